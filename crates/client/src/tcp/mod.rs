//! The transport to servers over TCP: dials, greets, keeps one connection per server, dials again
//! after a loss.
//!
//! ```text
//!   Idle ── due ──► Resolving ──► Dialing ── connected, hello ──► Greeting ── welcome ──► Up ── lost ──► Idle (pause doubles)
//!     ▲                │              │                              │
//!     └────────────────┴──────────────┴── failed ────────────────────┘          (or owes answers and is silent)
//! ```
//! The first welcome brings the cluster, this client's id and the shard map; from then on there is
//! one entry per server of the map. Those that are primary of no shard, and seeds that are none of
//! them, are only dialled when nobody else answers, or some shard has lost its server (`maps`), or
//! reads may be answered by backups (`backups`).
//! Further entries reach other threads of a server (`paths`).
//! Invariant: a shard is connected in the engine exactly while the entry that it is asked over is
//! `Up`.

mod backups;
mod maps;
mod paths;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use timestone_clock::server_time::ServerNumber;
use timestone_cluster::ShardMap;
use timestone_seda::{
    Break, ConnectionView, Context, DialId, DisconnectReason, FrameBatch, NetCommand, NetEvent,
    Protocol, ReplyAddress, Split, StageId,
};
use timestone_session::{limits as session, reconnect_pause};
use timestone_types::{ClientId, ClusterId, ShardId, Span, Timestamp};
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Frames, Hello, Kind, Message, RequestId, Role, Welcome,
    frame_length,
};

use self::paths::Change;
use self::server::{Server, State};
use crate::event::{ClientInput, ClientStageEvent};
use crate::event_loop::Core;
use crate::oneshot::Sender;
use crate::ops::Output;
use crate::transport::{Transport, asker, take_frames};
use crate::{Error, Result, address, limits};

/// The native protocol as its clients see it: cuts the bytes of servers into frames, all for the
/// stage that dialled.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    owner: StageId,
}

impl Native {
    /// Frames of connections whose owner is not known go to `owner`.
    #[must_use]
    pub const fn of(owner: StageId) -> Self {
        Self { owner }
    }
}

impl Protocol for Native {
    fn split(&mut self, connection: &ConnectionView, bytes: &[u8]) -> Split {
        match frame_length(bytes) {
            Ok(Some(length)) if length <= bytes.len() => {
                Split::Frame { length, to: connection.owner.unwrap_or(self.owner) }
            }
            Ok(Some(needed)) => Split::Incomplete { needed },
            Ok(None) => Split::Incomplete { needed: 4 },
            Err(_) => Split::Broken,
        }
    }

    fn busy(&mut self, _connection: &ConnectionView, _frame: &[u8], _out: &mut Vec<u8>) -> bool {
        false
    }

    fn refuse(
        &mut self,
        _connection: &ConnectionView,
        _reason: Break,
        _rest: &[u8],
        _out: &mut Vec<u8>,
    ) {
    }
}

/// A name that was resolved by a helper thread: which server, and its address.
type Resolved = Arc<Mutex<Vec<(String, std::io::Result<SocketAddr>)>>>;

/// How long servers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until the first welcome.
    pub(crate) connect: Duration,
    /// Until the first welcome, by servers that refuse connections or speak something else.
    pub(crate) refused: Duration,
    /// Until a connection that owes an answer and is silent is given up.
    pub(crate) silence: Duration,
}

/// Connections to the servers of one cluster.
pub(crate) struct Tcp {
    net: StageId,
    name: String,
    servers: Vec<Server>,
    cluster: ClusterId,
    map: Option<ShardMap>,
    /// The connection that each shard is asked over.
    paths: BTreeMap<ShardId, ReplyAddress>,
    /// When another connection is to be tried to a server that has some already.
    spread_at: Option<Timestamp>,
    next_dial: u64,
    resolved: Resolved,
    /// Told once, when the first welcome came or time is over.
    ready: Option<Sender<Result<()>>>,
    give_up_at: Option<Timestamp>,
    timeouts: Timeouts,
    began: Timestamp,
    last_failure: String,
    /// Some shard of the map has no server: a newer one is asked for then.
    ask_map_at: Option<Timestamp>,
    /// Since when some shard has had no server that serves it.
    missed_since: Option<Timestamp>,
    /// That is so for long: every server is dialled.
    looks_around: bool,
    /// Reads may be answered by backups: every server that keeps replicas is dialled.
    reads_at_backups: bool,
    /// When connections were last looked at for silence.
    looked: Timestamp,
}

impl Tcp {
    pub(crate) fn new(
        net: StageId,
        name: String,
        seeds: Vec<String>,
        timeouts: Timeouts,
        ready: Sender<Result<()>>,
    ) -> Self {
        Self {
            net,
            name,
            servers: seeds.into_iter().map(|seed| Server::new(None, seed)).collect(),
            cluster: ClusterId::ZERO,
            map: None,
            paths: BTreeMap::new(),
            spread_at: None,
            next_dial: 1,
            resolved: Arc::default(),
            ready: Some(ready),
            give_up_at: None,
            timeouts,
            began: Timestamp::ZERO,
            last_failure: "no server was reached".to_owned(),
            ask_map_at: None,
            missed_since: None,
            looks_around: false,
            reads_at_backups: false,
            looked: Timestamp::ZERO,
        }
    }

    fn find(&self, reply_to: ReplyAddress) -> Option<usize> {
        self.servers.iter().position(|server| server.reply_to() == Some(reply_to))
    }

    fn command(&self, context: &mut Context<'_, ClientStageEvent>, command: NetCommand) {
        if context.send(self.net, ClientStageEvent::Command(command)).is_err() {
            // The net stage is on this thread and empties its queue every turn; what is lost is
            // asked again after its timeout.
            tracing::warn!(
                "The queue of the net stage is full; a message to a server is dropped and will be \
                 repeated."
            );
            context.want_turn();
        }
    }

    /// Begins to connect to a server.
    fn dial(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core, index: usize) {
        let server = &mut self.servers[index];
        match address::literal(&server.address) {
            Some(address) => self.dial_address(context, index, address),
            None => {
                server.state = State::Resolving;
                let (name, resolved, shared) =
                    (server.address.clone(), Arc::clone(&self.resolved), Arc::clone(&core.shared));
                let looking_up = move || {
                    let found = address::resolve(&name);
                    resolved
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((name, found));
                    shared.tell();
                };
                if let Err(error) =
                    std::thread::Builder::new().name("timestone-names".to_owned()).spawn(looking_up)
                {
                    self.failed(core, index, format!("cannot start a thread: {error}"));
                }
            }
        }
    }

    fn dial_address(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        index: usize,
        address: SocketAddr,
    ) {
        let dial = DialId::new(self.next_dial);
        self.next_dial += 1;
        self.servers[index].state = State::Dialing(dial);
        self.command(context, NetCommand::Dial { dial, address, owner: context.stage() });
    }

    fn take_resolved(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        let found = core::mem::take(
            &mut *self.resolved.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        for (name, found) in found {
            let waits =
                |server: &Server| server.state == State::Resolving && server.address == name;
            let Some(index) = self.servers.iter().position(waits) else { continue };
            match found {
                Ok(address) => self.dial_address(context, index, address),
                Err(error) => self.failed(core, index, error.to_string()),
            }
        }
    }

    /// A server could not be reached, or its connection is gone.
    fn failed(&mut self, core: &Core, index: usize, why: String) {
        let now = core.now();
        let server = &mut self.servers[index];
        let pause = reconnect_pause(server.attempts);
        tracing::debug!(
            address = server.address,
            why,
            ?pause,
            "A server is not reached; it will be dialled again."
        );
        server.attempts += 1;
        server.refused = false;
        server.state = State::Idle { retry_at: now.saturating_add(pause) };
        for op in server.asked.drain(..) {
            let lost = || {
                Error::new(
                    ErrorCode::Unavailable,
                    "the connection was lost before the answer came",
                    "retry",
                )
            };
            core.finish(op, |_| Output::Failed(lost()));
        }
        let mut lost = core::mem::take(&mut server.shards);
        lost.append(&mut server.moved);
        self.lose_backups(core, index);
        let server = &mut self.servers[index];
        if server.is_further {
            self.lost_further(now, index);
        } else {
            self.last_failure = format!("{}: {why}", server.address);
        }
        self.divide(core, Change::Lost(&lost));
    }

    fn connected(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        core: &Core,
        view: &ConnectionView,
    ) {
        let dialled =
            |server: &Server| view.dial.is_some_and(|dial| server.state == State::Dialing(dial));
        let Some(index) = self.servers.iter().position(dialled) else {
            return self.command(context, NetCommand::Abort(view.reply_to));
        };
        let until = core.now().saturating_add(session::HELLO_TIMEOUT);
        self.servers[index].state = State::Greeting { reply_to: view.reply_to, until };
        let mut frame_batch = context.take_frame_batch(view.reply_to);
        let client = core.engine.borrow().client();
        let hello = Hello::new(Role::Client, self.cluster, client, &self.name);
        hello.encode(
            &Envelope { request: RequestId::new(1), ..Envelope::default() },
            &mut frame_batch.bytes,
        );
        self.command(context, NetCommand::Send(frame_batch));
    }

    /// The first frame of a server's connection.
    fn greeted(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        core: &Core,
        index: usize,
        frame: &Frame<'_>,
    ) {
        let refused = match frame.kind() {
            Kind::Welcome => match Welcome::decode(frame).map_err(|error| error.to_string()) {
                Ok(welcome) => match welcome.shard_map() {
                    Ok(map) => return self.welcomed(context, core, index, &welcome, map),
                    Err(error) => error.to_string(),
                },
                Err(error) => error,
            },
            Kind::ErrorReply => ErrorReply::decode(frame)
                .map_or_else(|error| error.to_string(), |reply| reply.to_string()),
            other => format!("it answered the hello with {}", other.name()),
        };
        if let Some(reply_to) = self.servers[index].reply_to() {
            self.command(context, NetCommand::Abort(reply_to));
        }
        tracing::warn!(
            address = self.servers[index].address,
            refused,
            "A server refused this client."
        );
        self.failed(core, index, refused);
    }

    fn welcomed(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        core: &Core,
        index: usize,
        welcome: &Welcome<'_>,
        map: ShardMap,
    ) {
        let Some(reply_to) = self.servers[index].reply_to() else { return };
        if self.cluster != ClusterId::ZERO && welcome.cluster != self.cluster {
            self.command(context, NetCommand::Abort(reply_to));
            return self.failed(
                core,
                index,
                format!("it belongs to another cluster, {:x}", welcome.cluster.get()),
            );
        }
        self.cluster = welcome.cluster;
        // The first id stays until the session under it is over. Servers that were greeted before it was
        // known offer one each, and a late offer must not replace it: a server greeted in between
        // repeats the first, and going back to it would begin its transactions' numbers anew.
        let mut engine = core.engine.borrow_mut();
        if engine.client() == ClientId::ZERO && welcome.client != ClientId::ZERO {
            engine.renew_client(core.now(), welcome.client);
        }
        drop(engine);
        let server = &mut self.servers[index];
        server.near = welcome.near.iter().collect();
        server.protocol = welcome.protocol;
        server.moved.clear();
        server.state = State::Up(reply_to);
        server.up_since = Some(core.now());
        server.attempts = 0;
        server.idle.renewed();
        self.follow_from(core, index, map);
        if !self.keeps(context, core.now(), (index, reply_to)) {
            return;
        }
        self.divide(core, Change::More);
        self.tell_of_backups(core, index);
        if let Some(ready) = self.ready.take() {
            ready.send(Ok(()));
        }
    }

    fn arrived(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        core: &Core,
        frame_batch: FrameBatch,
    ) {
        let reply_to = frame_batch.reply_to;
        let mut bytes = &frame_batch.bytes[..];
        if let Some(index) = self.find(reply_to) {
            if let State::Greeting { .. } = self.servers[index].state
                && let Ok(Some((frame, rest))) = Frame::split(bytes)
            {
                self.greeted(context, core, index, &frame);
                bytes = rest;
            }
            // Whoever says welcome has not answered what its last connections owed.
            if self.servers[index].is_up() && !bytes.is_empty() {
                self.servers[index].idle.heard(core.now());
                if !self.servers[index].asked.is_empty() {
                    for op in Frames::new(bytes).flatten().filter_map(|frame| asker(&frame)) {
                        self.servers[index].asked.retain(|&asked| asked != op);
                    }
                }
                let peer = self.servers[index].id.map(|id| ServerNumber(id.get()));
                if let Err(error) = take_frames(core, peer, bytes) {
                    self.command(context, NetCommand::Abort(reply_to));
                    self.failed(core, index, error.to_string());
                }
            }
        }
        context.finish_frame_batch(frame_batch);
    }

    fn look_after_connections(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        let now = core.now();
        if self.ask_map_at.is_some_and(|at| at <= now) {
            self.ask_map_at = Some(now.saturating_add(limits::UNOWNED_INTERVAL));
            core.engine.borrow_mut().shards_mut().miss_route();
        }
        self.spread(context, core);
        self.look_around(core);
        let dials_all = self.dials_all();
        for index in 0..self.servers.len() {
            let server = &self.servers[index];
            let is_wanted = dials_all || self.is_primary(server) || self.is_backup(server);
            match server.state {
                State::Idle { retry_at } if is_wanted && retry_at <= now => {
                    self.dial(context, core, index)
                }
                State::Greeting { reply_to, until } if until <= now => {
                    self.command(context, NetCommand::Abort(reply_to));
                    self.failed(core, index, "it does not answer the hello".to_owned());
                }
                _ => {}
            }
        }
        let refused = self.servers.iter().all(|server| server.refused)
            && now.since(self.began) >= self.timeouts.refused;
        if self.ready.is_some() && (refused || self.give_up_at.is_some_and(|at| at <= now)) {
            let message = if refused {
                format!("no server was reached; last tried {}", self.last_failure)
            } else {
                format!(
                    "no server answered within {}; last tried {}",
                    Span(self.timeouts.connect),
                    self.last_failure
                )
            };
            let error = Error::new(
                ErrorCode::Unavailable,
                message,
                "check that the server runs and the address is right",
            );
            if let Some(ready) = self.ready.take() {
                ready.send(Err(error));
            }
        }
    }

    /// Gives up connections whose servers owe answers and are silent: nobody tells when a
    /// connection is forgotten on its way.
    fn give_up_silent(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        let now = core.now();
        let since = now.since(self.looked);
        if since < session::SILENCE_LOOK {
            return;
        }
        self.looked = now;
        let overslept = since > session::OVERSLEPT;
        for index in 0..self.servers.len() {
            let server = &mut self.servers[index];
            let State::Up(reply_to) = server.state else { continue };
            let engine = core.engine.borrow();
            if let Some(since) = engine.shards().asked_since(&server.shards) {
                server.idle.asked(since);
            }
            let number = server.id.filter(|_| !server.is_further).map(|id| ServerNumber(id.get()));
            let asked = number.and_then(|number| engine.shards().backup_asked_since(number));
            if let Some(since) = asked {
                server.idle.asked(since);
            }
            if !server.asked.is_empty() {
                server.idle.asked(now);
            }
            let over = !overslept && server.idle.is_over(now, self.timeouts.silence);
            drop(engine);
            if over {
                server.idle.give_up();
                tracing::warn!(
                    address = server.address,
                    "A server owes answers and is silent; its connection is given up, and it is \
                     dialled anew."
                );
                self.command(context, NetCommand::Abort(reply_to));
                self.failed(core, index, "the server owes answers and is silent".to_owned());
            }
        }
    }

    fn send_to_any(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        core.drop_given_up();
        if core.to_server.borrow().is_empty() {
            return;
        }
        // One that is silent is given up in time; others answer meanwhile.
        let answers = |server: &Server| server.is_up() && !server.idle.is_owed();
        let answering = self.servers.iter().position(answers);
        let Some(index) = answering.or_else(|| self.servers.iter().position(Server::is_up)) else {
            return;
        };
        let Some(reply_to) = self.servers[index].reply_to() else { return };
        let mut frame_batch = context.take_frame_batch(reply_to);
        core::mem::swap(&mut frame_batch.bytes, &mut core.to_server.borrow_mut());
        self.servers[index]
            .asked
            .extend(Frames::new(&frame_batch.bytes).flatten().filter_map(|frame| asker(&frame)));
        self.command(context, NetCommand::Send(frame_batch));
    }
}

impl Transport<ClientStageEvent> for Tcp {
    fn start(&mut self, _context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        self.began = core.now();
        self.give_up_at = Some(self.began.saturating_add(self.timeouts.connect));
    }

    fn input(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        core: &Core,
        input: ClientInput,
    ) {
        match input {
            ClientInput::Net(NetEvent::FrameBatch(frame_batch))
            | ClientInput::Replies(frame_batch) => self.arrived(context, core, frame_batch),
            ClientInput::Net(NetEvent::Connected(view)) => self.connected(context, core, &view),
            ClientInput::Net(NetEvent::HalfClosed(reply_to)) => {
                self.command(context, NetCommand::Close(reply_to))
            }
            ClientInput::Net(NetEvent::Disconnected { reply_to, reason, .. }) => {
                if let Some(index) = self.find(reply_to) {
                    let foreign = matches!(reason, DisconnectReason::Broken(Break::Malformed));
                    let words = if foreign {
                        "this port does not speak Timestone's protocol (usually 7400)".to_owned()
                    } else {
                        format!("the connection was lost: {reason}")
                    };
                    self.failed(core, index, words);
                    self.servers[index].refused = foreign;
                }
            }
            ClientInput::Net(NetEvent::DialFailed { dial, error, .. }) => {
                if let Some(index) =
                    self.servers.iter().position(|server| server.state == State::Dialing(dial))
                {
                    let refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
                    let words = if refused {
                        "connection refused; is the server running?".to_owned()
                    } else {
                        error.to_string()
                    };
                    self.failed(core, index, words);
                    self.servers[index].refused = refused;
                }
            }
            ClientInput::Net(NetEvent::Written { .. })
            | ClientInput::Wake
            | ClientInput::Called(_) => {}
        }
    }

    fn pull_map(&mut self, context: &mut Context<'_, ClientStageEvent>, _core: &Core, turn: u32) {
        self.ask_for_map(context, turn);
    }

    fn follow(&mut self, core: &Core, map: ShardMap) {
        let from = self.servers.iter().position(Server::is_up).unwrap_or(0);
        self.follow_from(core, from, map);
    }

    fn ship(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        self.take_resolved(context, core);
        self.give_up_silent(context, core);
        self.look_after_connections(context, core);
        self.send_to_any(context, core);
        let mut engine = core.engine.borrow_mut();
        while let Some((shard, outbox)) = engine.shards_mut().next_dirty() {
            match self.paths.get(&shard) {
                Some(&reply_to) => {
                    let mut frame_batch = context.take_frame_batch(reply_to);
                    core::mem::swap(&mut frame_batch.bytes, outbox);
                    self.command(context, NetCommand::Send(frame_batch));
                }
                // Asked again when a connection stands.
                None => outbox.clear(),
            }
        }
        drop(engine);
        self.ship_to_backups(context, core);
    }

    fn leave(&mut self, context: &mut Context<'_, ClientStageEvent>) {
        for reply_to in self.servers.iter().filter_map(Server::reply_to) {
            self.command(context, NetCommand::Close(reply_to));
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let of_server = |server: &Server| match server.state {
            State::Idle { retry_at } => Some(retry_at),
            State::Greeting { until, .. } => Some(until),
            _ => None,
        };
        let giving_up = self.give_up_at.filter(|_| self.ready.is_some());
        // One that is not wanted is Idle with a time long past: it must not keep the loop awake.
        let dials_all = self.map.is_none() || self.looks_around || self.reads_at_backups;
        let servers = self
            .servers
            .iter()
            .filter(|server| dials_all || server.is_further || self.is_primary(server));
        let looks_at = self
            .missed_since
            .filter(|_| !self.looks_around)
            .map(|since| since.saturating_add(limits::LOOK_AROUND_AFTER));
        let owes = |server: &Server| server.is_up() && server.idle.is_owed();
        let look = self
            .servers
            .iter()
            .any(owes)
            .then(|| self.looked.saturating_add(session::SILENCE_LOOK));
        servers
            .filter_map(of_server)
            .chain(self.spread_at)
            .chain(giving_up)
            .chain(self.ask_map_at)
            .chain(looks_at)
            .chain(look)
            .min()
    }
}

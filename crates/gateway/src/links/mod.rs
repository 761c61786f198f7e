//! Connections to the other servers of the cluster: the paths to shards that are not in this
//! process.
//!
//! ```text
//!   shard map ─► which server a shard is asked at ─┬─► own process: its stage
//!                                                  ├─► another server: its link, while that is up
//!                                                  └─► nobody yet, or no address: refused at once
//! ```
//! One link a server, dialled as soon as the map names the server, greeted as any client does, with
//! the gateway's own client id. What the links do about loss is what the client library does: the
//! engine is told when a shard's connection stands or is lost and repeats its requests under their
//! own identity; silence and pauses are `timestone-session`'s.
//!
//! Invariants: a shard is connected in the engine exactly while its path stands; what arrives on a
//! connection that was given up is not looked at; a link holds no frames: what cannot be sent now
//! is dropped, and asked again. Source: docs/redis.md, "Several servers";
//! docs/protocol/membership.md.

mod link;

use std::collections::BTreeMap;

use timestone_cluster::{Address, ServerId, ShardEntry, ShardMap};
use timestone_seda::{
    ConnectionView, DialId, DisconnectReason, FrameBatch, NetCommand, NetEvent, ReplyAddress,
    StageId,
};
use timestone_session::{Engine, limits as session};
use timestone_types::{ClusterId, ShardId, Timestamp};
use timestone_wire::{
    Envelope, ErrorReply, Frame, Frames, Hello, Kind, MapIs, MapPull, Message, PROTOCOL,
    ProtocolVersion, RequestId, Role, SERVER_ITSELF, Welcome,
};

use self::link::{LinkState, ServerLink};
use crate::limits::UNWRITTEN_BOUNDS;
use crate::turn::{Output, Turn};

/// What the gateway calls itself in its greetings.
const NAME: &str = "timestone-gateway";
/// The number of the greeting, which the welcome answers.
const GREETING: RequestId = RequestId::new(1);

/// How a shard is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShardPath {
    /// Its stage is in this process.
    Own,
    /// Over the link to this server.
    Server(ServerId),
    /// Not at all: no server has it, or none that could be dialled.
    Nowhere,
}

/// Where frames for a shard go now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// To the stage of this process.
    Own,
    /// To this connection.
    Connection(ReplyAddress),
    /// Nowhere: they are dropped, and asked again.
    Nobody,
}

/// What a gateway must know of its own process to tell others from it.
#[derive(Clone, Debug)]
pub(crate) struct OwnProcess {
    /// The stage that owns the links.
    pub(crate) stage: StageId,
    /// The net stage that dials; without one no other server is reached.
    pub(crate) net: Option<StageId>,
    /// This server.
    pub(crate) server: ServerId,
    /// The shards of this process.
    pub(crate) shards: Vec<ShardId>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ServerLinks {
    own: OwnProcess,
    cluster: ClusterId,
    paths: BTreeMap<ShardId, ShardPath>,
    /// Whether there was ever a shard of another path than the own process.
    has_others: bool,
    links: Vec<ServerLink>,
    next_dial: u64,
    /// When links were last looked at for silence.
    looked: Timestamp,
    /// Connections that nobody needs any more, to be ended in the next turn.
    unneeded: Vec<ReplyAddress>,
}

/// What changes: the map.
impl ServerLinks {
    /// No links yet, and a path to nobody.
    pub(crate) const fn new(own: OwnProcess) -> Self {
        Self {
            own,
            cluster: ClusterId::ZERO,
            paths: BTreeMap::new(),
            has_others: false,
            links: Vec::new(),
            next_dial: 1,
            looked: Timestamp::ZERO,
            unneeded: Vec::new(),
        }
    }

    /// What was asked of shards that a map has elsewhere is not waited for any more: it is asked
    /// where they are, once their path stands. To be called before the engine follows the map.
    pub(crate) fn leave_moved(&self, now: Timestamp, engine: &mut Engine, map: &ShardMap) {
        for (&shard, &path) in &self.paths {
            let primary = map.primary(shard).map(|server| server.id);
            let has_moved = match path {
                ShardPath::Own => primary.is_some_and(|server| server != self.own.server),
                ShardPath::Server(server) => primary != Some(server),
                ShardPath::Nowhere => false,
            };
            if has_moved {
                engine.disconnected(now, shard);
            }
        }
    }

    /// Follows a map that the engine has its routes from: who is reached, and how.
    pub(crate) fn follow(&mut self, now: Timestamp, engine: &mut Engine, map: &ShardMap) {
        self.cluster = map.cluster();
        self.links.iter_mut().for_each(|link| link.shards.clear());
        let before = std::mem::take(&mut self.paths);
        for entry in map.shards() {
            let path = self.choose(map, entry);
            self.paths.insert(entry.id, path);
        }
        self.has_others |= self.paths.values().any(|&path| path != ShardPath::Own);
        let reached: Vec<ShardId> = self
            .paths
            .iter()
            .filter_map(|(&shard, &path)| (path != ShardPath::Nowhere).then_some(shard))
            .collect();
        engine.shards_mut().reach_only(&reached);
        for (&shard, &path) in &self.paths {
            let stands = self.stands(path);
            // What was asked over another path is answered over it or never: it counts as lost.
            if !stands || before.get(&shard).is_some_and(|&other| other != path) {
                engine.disconnected(now, shard);
            }
            if stands && !engine.shards().is_connected(shard) {
                engine.shards_mut().speaks(shard, self.protocol_over(path));
                engine.connected(now, shard);
            }
        }
        let unneeded = self.links.extract_if(.., |link| link.shards.is_empty());
        self.unneeded.extend(unneeded.filter_map(|link| link.reply_to()));
        self.assert_sound(engine);
    }

    /// The path to a shard by a map; its link is made if there is none.
    fn choose(&mut self, map: &ShardMap, entry: &ShardEntry) -> ShardPath {
        if entry.primary == self.own.server || entry.primary.is_none() {
            let is_here = self.own.shards.contains(&entry.id);
            return if is_here { ShardPath::Own } else { ShardPath::Nowhere };
        }
        let address = map.primary(entry.id).and_then(|server| server.addresses.native.as_ref());
        let Some(address) =
            address.and_then(Address::socket_address).filter(|_| self.own.net.is_some())
        else {
            return ShardPath::Nowhere;
        };
        let server = entry.primary;
        match self.links.iter_mut().find(|link| link.server == server) {
            Some(link) => {
                if link.address != address {
                    self.unneeded.extend(link.reply_to());
                    *link = ServerLink::new(server, address);
                }
                link.shards.push(entry.id);
            }
            None => {
                let mut link = ServerLink::new(server, address);
                link.shards.push(entry.id);
                self.links.push(link);
            }
        }
        ShardPath::Server(server)
    }

    /// Whether frames can be sent over a path.
    fn stands(&self, path: ShardPath) -> bool {
        match path {
            ShardPath::Own => true,
            ShardPath::Server(server) => {
                self.links.iter().any(|link| link.server == server && link.is_up())
            }
            ShardPath::Nowhere => false,
        }
    }

    /// The version of the protocol that is spoken over a path that stands.
    fn protocol_over(&self, path: ShardPath) -> ProtocolVersion {
        let link = self.links.iter().find(|link| path == ShardPath::Server(link.server));
        link.map_or(PROTOCOL.1, |link| link.protocol)
    }

    /// Each shard is connected in the engine exactly while its path stands.
    fn assert_sound(&self, engine: &Engine) {
        debug_assert!(
            self.paths
                .iter()
                .all(|(&shard, &path)| engine.shards().is_connected(shard) == self.stands(path)),
            "the engine is told of every connection: {self:?}"
        );
    }
}

/// What is sent.
impl ServerLinks {
    /// Where frames for a shard go now; `output_bound` is what a connection of this process may be
    /// owed at present.
    pub(crate) fn destination(&self, shard: ShardId, output_bound: usize) -> Destination {
        if !self.has_others {
            return Destination::Own;
        }
        match self.paths.get(&shard) {
            Some(ShardPath::Own) => Destination::Own,
            Some(ShardPath::Server(server)) => {
                let most = UNWRITTEN_BOUNDS * output_bound;
                let link = self.links.iter().find(|link| link.server == *server);
                let up = link.filter(|link| link.is_up() && link.unwritten < most);
                let reply_to = up.and_then(ServerLink::reply_to);
                reply_to.map_or(Destination::Nobody, Destination::Connection)
            }
            Some(ShardPath::Nowhere) | None => Destination::Nobody,
        }
    }

    /// Asks another server for its map, over one link after another: what this one's node knows may
    /// be older, for it may be cut off from the master.
    pub(crate) fn ask_for_map(&mut self, ctx: &mut Turn<'_>, turn: u32) {
        let up = self.links.iter_mut().filter(|link| link.is_up());
        let mut up: Vec<&mut ServerLink> = up.collect();
        let count = up.len().max(1);
        let Some(link) = up.get_mut(turn as usize % count) else { return };
        let Some(reply_to) = link.reply_to() else { return };
        link.asks_map = true;
        let mut bytes = ctx.take_buffer();
        MapPull {}.encode(&Envelope { shard: SERVER_ITSELF, ..Envelope::default() }, &mut bytes);
        link.unwritten += bytes.len();
        ctx.send(Output::ToServer(FrameBatch::new(reply_to, bytes)));
    }

    /// So many bytes were sent to a connection.
    pub(crate) fn sent(&mut self, to: ReplyAddress, bytes: usize) {
        if let Some(link) = self.links.iter_mut().find(|link| link.reply_to() == Some(to)) {
            debug_assert!(link.is_up(), "nothing is asked before the welcome");
            link.unwritten += bytes;
        }
    }

    /// The last frames are sent: links end when they are written.
    pub(crate) fn leave(&mut self, ctx: &mut Turn<'_>) {
        let links = std::mem::take(&mut self.links);
        for reply_to in links.iter().filter_map(ServerLink::reply_to) {
            ctx.send(Output::Net { to: reply_to.stage, command: NetCommand::Close(reply_to) });
        }
    }
}

/// What arrives.
impl ServerLinks {
    /// Whether what comes from a stage comes over links.
    #[inline]
    pub(crate) fn is_of(&self, stage: StageId) -> bool {
        self.own.net == Some(stage)
    }

    /// Takes what the net stage says of a connection that was dialled here.
    pub(crate) fn net_event(&mut self, ctx: &mut Turn<'_>, engine: &mut Engine, event: NetEvent) {
        match event {
            NetEvent::Connected(view) => self.connected(ctx, engine, &view),
            NetEvent::Disconnected { reply_to, reason, .. } => {
                if let Some(index) = self.position(reply_to) {
                    self.lost(ctx.now(), engine, index, &lost_by(&reason));
                }
            }
            NetEvent::DialFailed { dial, error, .. } => {
                let dialled = |link: &ServerLink| link.state == LinkState::Dialing(dial);
                if let Some(index) = self.links.iter().position(dialled) {
                    self.lost(ctx.now(), engine, index, &error.to_string());
                }
            }
            NetEvent::Written { reply_to, bytes } => {
                if let Some(index) = self.position(reply_to) {
                    let link = &mut self.links[index];
                    link.unwritten = link.unwritten.saturating_sub(bytes);
                }
            }
            NetEvent::HalfClosed(reply_to) => {
                ctx.send(Output::Net { to: reply_to.stage, command: NetCommand::Close(reply_to) });
            }
            NetEvent::FrameBatch(_) => {}
        }
    }

    fn position(&self, reply_to: ReplyAddress) -> Option<usize> {
        self.links.iter().position(|link| link.reply_to() == Some(reply_to))
    }

    fn connected(&mut self, ctx: &mut Turn<'_>, engine: &Engine, view: &ConnectionView) {
        let reply_to = view.reply_to;
        let dialled = |link: &&mut ServerLink| {
            view.dial.is_some_and(|dial| link.state == LinkState::Dialing(dial))
        };
        let Some(link) = self.links.iter_mut().find(dialled) else {
            return ctx.send(abort(reply_to));
        };
        let until = ctx.now().saturating_add(session::HELLO_TIMEOUT);
        link.state = LinkState::Greeting { reply_to, until };
        let mut bytes = ctx.take_buffer();
        Hello::new(Role::Client, self.cluster, engine.client(), NAME)
            .encode(&Envelope { request: GREETING, ..Envelope::default() }, &mut bytes);
        ctx.send(Output::ToServer(FrameBatch::new(reply_to, bytes)));
    }

    /// Takes frames that came over a link: answers, behind a welcome. A map that is among them and
    /// newer than the engine's routes is to be followed.
    pub(crate) fn arrived(
        &mut self,
        ctx: &mut Turn<'_>,
        engine: &mut Engine,
        frame_batch: &FrameBatch,
    ) -> Option<ShardMap> {
        let index = self.position(frame_batch.reply_to)?;
        let (now, mut bytes) = (ctx.now(), &frame_batch.bytes[..]);
        if let LinkState::Greeting { reply_to, .. } = self.links[index].state {
            let answer = Frame::split(bytes).ok().flatten();
            let greeted = answer
                .ok_or_else(|| "it answered the hello with no frame".to_owned())
                .and_then(|(frame, rest)| Ok((self.check_welcome(&frame)?, rest)));
            match greeted {
                Ok((protocol, rest)) => {
                    bytes = rest;
                    self.stands_now(now, engine, (index, reply_to), protocol);
                }
                Err(why) => {
                    tracing::warn!(address = %self.links[index].address, why, "a server refused a \
                        gateway's link; commands on its keys wait");
                    ctx.send(abort(reply_to));
                    self.lost(now, engine, index, &why);
                    return None;
                }
            }
        }
        // Whoever says welcome has not answered what was asked before.
        if bytes.is_empty() {
            return None;
        }
        self.links[index].idle.heard(now);
        let map = if self.links[index].asks_map { map_among(bytes) } else { None };
        self.links[index].asks_map &= map.is_none();
        if let Err(error) = engine.deliver_batch(now, bytes) {
            ctx.send(abort(frame_batch.reply_to));
            self.lost(now, engine, index, &error.to_string());
        }
        map.filter(|map| !engine.shards_mut().routes_are_of(map.version()))
    }

    /// The version of the protocol, if the first frame of a connection is a welcome to this cluster; if not,
    /// what it is.
    fn check_welcome(&self, frame: &Frame<'_>) -> Result<ProtocolVersion, String> {
        match frame.kind() {
            Kind::Welcome => {
                let welcome = Welcome::decode(frame).map_err(|error| error.to_string())?;
                if welcome.cluster == self.cluster {
                    return Ok(welcome.protocol);
                }
                Err(format!("it belongs to another cluster, {:x}", welcome.cluster.get()))
            }
            Kind::ErrorReply => Err(ErrorReply::decode(frame)
                .map_or_else(|error| error.to_string(), |reply| reply.to_string())),
            other => Err(format!("it answered the hello with {}", other.name())),
        }
    }

    /// A link is up: what waits for its shards is asked.
    fn stands_now(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        (index, reply_to): (usize, ReplyAddress),
        protocol: ProtocolVersion,
    ) {
        let link = &mut self.links[index];
        (link.state, link.attempts) = (LinkState::Up(reply_to), 0);
        link.protocol = protocol;
        link.idle.renewed();
        tracing::debug!(server = %link.server, address = %link.address, "a link stands");
        for &shard in &link.shards {
            engine.shards_mut().speaks(shard, protocol);
            engine.connected(now, shard);
        }
        self.assert_sound(engine);
    }

    /// A link is lost, or did not come about. It is dialled again after a pause.
    fn lost(&mut self, now: Timestamp, engine: &mut Engine, index: usize, why: &str) {
        let link = &mut self.links[index];
        let pause = link.end(now);
        tracing::debug!(server = %link.server, address = %link.address, why, ?pause, "a server is \
            not reached; it will be dialled again");
        link.shards.iter().for_each(|&shard| engine.disconnected(now, shard));
        self.assert_sound(engine);
    }
}

/// What time brings.
impl ServerLinks {
    /// Whether there is anything beside the own process.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.has_others
    }

    /// Ends what nobody needs, gives up what is silent, dials what is due.
    pub(crate) fn turn(&mut self, ctx: &mut Turn<'_>, engine: &mut Engine) {
        for reply_to in self.unneeded.drain(..) {
            ctx.send(abort(reply_to));
        }
        self.give_up_silent(ctx, engine);
        let now = ctx.now();
        for index in 0..self.links.len() {
            match self.links[index].state {
                LinkState::Idle { retry_at } if retry_at <= now => self.dial(ctx, index),
                LinkState::Greeting { reply_to, until } if until <= now => {
                    ctx.send(abort(reply_to));
                    self.lost(now, engine, index, "it does not answer the hello");
                }
                _ => {}
            }
        }
    }

    fn dial(&mut self, ctx: &mut Turn<'_>, index: usize) {
        let Some(net) = self.own.net else { return };
        let dial = DialId::new(self.next_dial);
        self.next_dial += 1;
        let link = &mut self.links[index];
        link.state = LinkState::Dialing(dial);
        let (address, owner) = (link.address, self.own.stage);
        ctx.send(Output::Net { to: net, command: NetCommand::Dial { dial, address, owner } });
    }

    /// Gives up links whose servers owe answers and are silent: nobody tells when a connection is
    /// forgotten between two machines.
    fn give_up_silent(&mut self, ctx: &mut Turn<'_>, engine: &mut Engine) {
        let now = ctx.now();
        let since = now.since(self.looked);
        if since < session::SILENCE_LOOK {
            return;
        }
        self.looked = now;
        let overslept = since > session::OVERSLEPT;
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let LinkState::Up(reply_to) = link.state else { continue };
            if let Some(asked) = engine.shards().asked_since(&link.shards) {
                link.idle.asked(asked);
            }
            if overslept || !link.idle.is_over(now, session::SILENCE_LIMIT) {
                continue;
            }
            link.idle.give_up();
            tracing::warn!(server = %link.server, address = %link.address, "a server owes answers \
                and is silent; its link is given up, and it is dialled anew");
            ctx.send(abort(reply_to));
            self.lost(now, engine, index, "it owes answers and is silent");
        }
    }

    /// How many shards of the map are not reached.
    pub(crate) fn unreached(&self) -> usize {
        self.paths.values().filter(|&&path| !self.stands(path)).count()
    }

    /// When [`Self::turn`] has something to do at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.links.iter().filter_map(|link| link.next_deadline(self.looked)).min()
    }
}

/// The map that a server was asked for.
fn map_among(bytes: &[u8]) -> Option<ShardMap> {
    let mut frames = Frames::new(bytes).flatten();
    let frame = frames.find(|frame| frame.kind() == Kind::MapIs)?;
    MapIs::decode(&frame).ok()?.shard_map().ok()
}

const fn abort(reply_to: ReplyAddress) -> Output {
    Output::Net { to: reply_to.stage, command: NetCommand::Abort(reply_to) }
}

fn lost_by(reason: &DisconnectReason) -> String {
    format!("the connection was lost: {reason}")
}

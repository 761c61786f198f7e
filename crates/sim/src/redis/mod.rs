//! Simulated Redis clients: a process with some connections, each of which speaks RESP over the
//! virtual network.
//!
//! ```text
//!   Generator ─► activity ─► requests ── bytes ──► net stage ──► a gateway
//!                   ▲            └─ Calls: invoke      │
//!                   └── answered ◄── Calls: answer ◄───┘        broken, or silent for too long: dial again, under another number
//! ```
//! A connection sends a pipeline at a time, and the next one before all of it is answered, up to a
//! bound. WATCH and what follows it, and a scan, have their connection for themselves. What is
//! deliberately absent: retries. What was not answered is not sent again.

mod calls;
mod reach;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use timestone_client::ClientStageEvent;
use timestone_seda::{
    Break, ConnectionView, Context, DialId, FrameBatch, Layout, NetCommand, NetConfig, NetEvent,
    NetStage, Network, Protocol, ReplyAddress, Split, Stage, StageId,
};
use timestone_types::Timestamp;
use timestone_workload::redis::{Activity, Arguments, Generator, Reply, Request, encode, parse};

pub(crate) use calls::{CallId, Calls, Mode, RedisWork};

use crate::redis::reach::Reach;
use timestone_types::random::{Dice, Seed};

const NET: StageId = StageId::new(0);
const CLIENT: StageId = StageId::new(1);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// An attempt that comes to nothing for this long is given up.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer is awaited for as long as a gateway takes for one at most, and a bit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// How often connections without anything to do look whether there is.
const POLL: Duration = Duration::from_millis(10);
/// The values of one generator are so far apart; there are fewer connections in a run.
const VALUES_APART: u64 = 1_000_000;
/// Requests of a connection that may be without answers when it sends more.
const MOST_OPEN: usize = 10;

/// Every byte is for the clients' stage.
struct Bytes;

impl Protocol for Bytes {
    fn split(&mut self, _connection: &ConnectionView, bytes: &[u8]) -> Split {
        Split::Frame { length: bytes.len(), to: CLIENT }
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

/// A request without its answer.
struct OpenCall {
    call: CallId,
    request: Request,
    sent: Timestamp,
    /// The same by true time.
    asked: Timestamp,
    /// Answers that are still to come, this request's own last.
    left: usize,
}

/// What has the connection for itself.
enum Alone {
    /// Nothing: pipelines.
    No,
    /// The transaction that is sent when what was watched is answered.
    Watching(Request),
    /// A scan with these words behind the cursor.
    Scanning(Arguments),
}

/// The keys of a round that are to be read, and written once more if that is wanted.
struct Round {
    number: u64,
    keys: Vec<String>,
}

/// What a connection is made of at present, or is to be made of.
struct Dialled {
    /// The number of the present connection, and the server that it was made to, or is being made
    /// to.
    number: u64,
    server: usize,
    reply_to: Option<ReplyAddress>,
    /// When the present connection began to be made, by true time: what is forgotten on its way
    /// later may be this connection, whether it reads or not.
    made: Timestamp,
    /// The attempt to connect that is under way.
    attempt: Option<(DialId, Timestamp)>,
    again_at: Timestamp,
}

impl Dialled {
    const fn nowhere() -> Self {
        Self {
            number: 0,
            server: 0,
            reply_to: None,
            made: Timestamp::ZERO,
            attempt: None,
            again_at: Timestamp::ZERO,
        }
    }

    /// An attempt to connect to a server begins.
    fn begin(&mut self, dial: DialId, server: usize, now: Timestamp, true_now: Timestamp) {
        assert!(self.reply_to.is_none() && self.attempt.is_none(), "one connection at a time");
        (self.attempt, self.made, self.server) = (Some((dial, now)), true_now, server);
    }

    /// It stands, under this number.
    fn stands(&mut self, reply_to: ReplyAddress, number: u64) {
        assert!(self.attempt.is_some(), "what stands was asked for");
        (self.reply_to, self.attempt, self.number) = (Some(reply_to), None, number);
    }

    /// It is gone, and is made anew at the earliest at `again_at`. Whom it is to be ended with.
    fn end(&mut self, again_at: Timestamp) -> Option<ReplyAddress> {
        (self.attempt, self.again_at) = (None, again_at);
        self.reply_to.take()
    }
}

struct RedisConnection {
    /// Among the connections of all processes.
    place: usize,
    dialled: Dialled,
    generator: Generator,
    dice: Dice,
    /// When it began to read again, if it ever read nothing, by the local time; it is so far behind
    /// with its answers.
    read_again: Timestamp,
    /// It has asked for much that it does not read.
    has_asked: bool,
    next_start: Timestamp,
    open: VecDeque<OpenCall>,
    alone: Alone,
    round: Round,
    inbox: Vec<u8>,
}

/// The stage of a process's connections. See the module.
struct RedisStage {
    calls: Arc<Calls>,
    servers: Vec<SocketAddr>,
    connections: Vec<RedisConnection>,
    dials: u64,
    reach: Reach,
    out: Vec<u8>,
    deadline: Timestamp,
}

impl RedisStage {
    fn command(ctx: &mut Context<'_, ClientStageEvent>, command: NetCommand) -> bool {
        ctx.send(NET, ClientStageEvent::Command(command)).is_ok()
    }

    fn of_reply_address(&mut self, reply_to: ReplyAddress) -> Option<usize> {
        self.connections.iter().position(|connection| connection.dialled.reply_to == Some(reply_to))
    }

    fn of_dial(&mut self, dial: DialId) -> Option<usize> {
        self.connections
            .iter()
            .position(|connection| connection.dialled.attempt.is_some_and(|(id, _)| id == dial))
    }

    /// The connection is gone, and so is what is known of its open calls.
    fn broken(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize) {
        let connection = &mut self.connections[at];
        if let Some(reply_to) = connection.dialled.end(ctx.now().saturating_add(PAUSE)) {
            Self::command(ctx, NetCommand::Abort(reply_to));
        }
        self.calls.abandon(connection.open.len());
        connection.open.clear();
        connection.inbox.clear();
        connection.alone = Alone::No;
    }

    fn received(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize, bytes: &[u8]) {
        self.connections[at].inbox.extend_from_slice(bytes);
        loop {
            let connection = &mut self.connections[at];
            match parse(&connection.inbox) {
                Ok(None) => return,
                Ok(Some((reply, length))) => {
                    connection.inbox.drain(..length);
                    self.replied(ctx, at, reply);
                }
                Err(what) => {
                    self.calls.wrong(format!("a gateway answered what is no answer: {what}"));
                    return self.broken(ctx, at);
                }
            }
        }
    }

    fn replied(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize, reply: Reply) {
        let connection = &mut self.connections[at];
        let Some(open) = connection.open.front_mut() else {
            self.calls.wrong(format!("a gateway answered {reply}, and nothing was asked"));
            return self.broken(ctx, at);
        };
        open.left -= 1;
        if open.left > 0 {
            // Those of MULTI and of what it queues.
            let wanted = if open.left == open.request.answers() - 1 { "OK" } else { "QUEUED" };
            if reply != Reply::Status(wanted.to_owned()) && !matches!(reply, Reply::Error(_)) {
                self.calls
                    .wrong(format!("{} was answered {reply} instead of {wanted}", open.request));
            }
            return;
        }
        let Some(open) = connection.open.pop_front() else { return };
        let (servers, server) = (self.servers.len(), connection.dialled.server);
        self.reach.judge(&self.calls, servers, server, &open.request, &reply);
        self.calls.answer(open.call, reply.clone());
        self.goes_on(ctx, at, &reply);
    }

    /// Sends what waited for an answer.
    fn goes_on(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize, reply: &Reply) {
        let connection = &mut self.connections[at];
        if !connection.open.is_empty() {
            return;
        }
        match std::mem::replace(&mut connection.alone, Alone::No) {
            Alone::No => {}
            Alone::Watching(then) => self.send(ctx, at, vec![then]),
            Alone::Scanning(words) => {
                let Reply::Array(parts) = reply else { return };
                let Some(Reply::Text(cursor)) = parts.first() else { return };
                if cursor != "0" {
                    let next = scan(cursor, &words);
                    connection.alone = Alone::Scanning(words);
                    self.send(ctx, at, vec![next]);
                }
            }
        }
    }

    /// Sends requests at once.
    fn send(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize, requests: Vec<Request>) {
        let connection = &mut self.connections[at];
        let Some(reply_to) = connection.dialled.reply_to else { return };
        self.out.clear();
        for request in requests {
            encode(&request, &mut self.out);
            let call = self.calls.invoke(connection.dialled.number, request.clone());
            let (sent, asked) = (ctx.now(), self.calls.now());
            connection.open.push_back(OpenCall {
                call,
                left: request.answers(),
                request,
                sent,
                asked,
            });
        }
        let frame_batch = FrameBatch::new(reply_to, self.out.clone());
        if !Self::command(ctx, NetCommand::Send(frame_batch)) {
            self.broken(ctx, at);
        }
    }

    /// Dials, gives up what takes too long, begins what is due.
    fn look_after(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize) {
        let (now, (mode, round)) = (ctx.now(), self.calls.mode());
        let connection = &mut self.connections[at];
        let unreading = self.calls.is_unreading(connection.place);
        if unreading {
            connection.read_again = now;
        }
        let read_again = connection.read_again;
        let is_late = |since: Timestamp, timeout| now.since(since.max(read_again)) > timeout;
        let silent = connection.open.front().filter(|open| is_late(open.sent, ANSWER_TIMEOUT));
        if let Some(open) =
            silent.filter(|open| self.calls.is_owed(connection.dialled.made, open.asked))
        {
            self.calls.wrong(format!(
                "connection {} has had no answer to {} for {ANSWER_TIMEOUT:?}, and nothing was in its way",
                connection.dialled.number, open.request
            ));
        }
        let silent = silent.is_some();
        if silent
            || connection.dialled.attempt.is_some_and(|(_, since)| is_late(since, DIAL_TIMEOUT))
        {
            self.broken(ctx, at);
        }
        let connection = &mut self.connections[at];
        connection.has_asked &= unreading;
        if connection.dialled.reply_to.is_none() {
            if connection.dialled.attempt.is_none()
                && now >= connection.dialled.again_at
                && mode != Mode::Idle
            {
                self.dials += 1;
                let dial = DialId::new(self.dials);
                let drawn = connection.dice.below(self.servers.len() as u64) as usize;
                let walks = matches!(mode, Mode::Touch | Mode::Audit);
                let server = if walks { connection.place % self.servers.len() } else { drawn };
                connection.dialled.begin(dial, server, now, self.calls.now());
                let address = self.servers[server];
                Self::command(ctx, NetCommand::Dial { dial, address, owner: CLIENT });
            }
        } else {
            let floods = unreading && mode == Mode::Work && !connection.has_asked;
            match mode {
                Mode::Idle => {}
                _ if floods && matches!(connection.alone, Alone::No) => self.flood(ctx, at),
                Mode::Work if connection.next_start <= now => self.work(ctx, at),
                Mode::Work => {}
                Mode::Touch | Mode::Audit => self.walk(ctx, at, mode, round),
            }
        }
        self.count(at, mode, round);
    }

    /// Tells how busy a connection is.
    fn count(&self, at: usize, mode: Mode, round: u64) {
        let connection = &self.connections[at];
        let walks = matches!(mode, Mode::Touch | Mode::Audit)
            && (connection.round.number != round || !connection.round.keys.is_empty());
        self.calls.set_busy(connection.place, connection.open.len() + usize::from(walks));
    }

    fn work(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize) {
        let interval = self.calls.work.interval.as_nanos() as u64;
        let connection = &mut self.connections[at];
        // Evenly between half and one and a half of the interval.
        let pause = Duration::from_nanos(interval / 2 + connection.dice.below(interval + 1));
        connection.next_start = ctx.now().saturating_add(pause);
        if connection.open.len() >= MOST_OPEN || !matches!(connection.alone, Alone::No) {
            return;
        }
        match connection.generator.draw() {
            Activity::Pipeline(requests) => self.send(ctx, at, requests),
            // What has a connection for itself waits until it is free, or is left out.
            Activity::Watch { .. } | Activity::Scan(_) if !connection.open.is_empty() => {}
            Activity::Watch { first, then } => {
                connection.alone = Alone::Watching(then);
                self.send(ctx, at, first);
            }
            Activity::Scan(words) => {
                let first = scan("0", &words);
                connection.alone = Alone::Scanning(words);
                self.send(ctx, at, vec![first]);
            }
        }
    }

    /// Asks for far more than the connection may be owed.
    fn flood(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize) {
        let connection = &mut self.connections[at];
        connection.has_asked = true;
        let requests = connection.generator.flood(connection.place as u64);
        self.send(ctx, at, requests);
    }

    /// Reads this connection's share of the keys, and writes each once more if that is wanted.
    fn walk(&mut self, ctx: &mut Context<'_, ClientStageEvent>, at: usize, mode: Mode, round: u64) {
        let connection = &mut self.connections[at];
        if connection.round.number != round {
            let (place, of) = (connection.place, self.calls.work.connections as usize);
            let keys = Generator::keys(&self.calls.work.mix);
            // Each of several servers is asked for everything.
            let all = self.servers.len() > 1;
            let share = keys
                .into_iter()
                .enumerate()
                .filter(|(at, _)| all || at % of == place)
                .map(|(_, key)| key);
            let own = self
                .calls
                .has_flooded(place)
                .then(|| Generator::own_key(&self.calls.work.mix, place as u64));
            connection.round = Round { number: round, keys: share.chain(own).collect() };
        }
        if !connection.open.is_empty() {
            return;
        }
        if connection.dialled.server != connection.place % self.servers.len()
            && self.servers.len() > 1
        {
            // Each server is walked by somebody.
            return self.broken(ctx, at);
        }
        let Some(key) = connection.round.keys.pop() else { return };
        let mut requests = vec![Request::command(&format!("GET {key}"))];
        if mode == Mode::Touch {
            requests.push(Request::command(&format!("SET {key} {}", self.calls.next_touch())));
        }
        self.send(ctx, at, requests);
    }
}

impl Drop for RedisStage {
    fn drop(&mut self) {
        for connection in &self.connections {
            self.calls.abandon(connection.open.len());
            self.calls.set_busy(connection.place, 0);
        }
    }
}

fn scan(cursor: &str, words: &[String]) -> Request {
    let head = ["SCAN".to_owned(), cursor.to_owned()].into_iter();
    Request::One(head.chain(words.iter().cloned()).collect())
}

impl Stage<ClientStageEvent> for RedisStage {
    fn name(&self) -> &str {
        "redis"
    }

    fn handle(
        &mut self,
        ctx: &mut Context<'_, ClientStageEvent>,
        events: &mut VecDeque<ClientStageEvent>,
    ) {
        while let Some(event) = events.pop_front() {
            let ClientStageEvent::Net(event) = event else { continue };
            match event {
                NetEvent::Connected(view) => {
                    let Some(at) = view.dial.and_then(|dial| self.of_dial(dial)) else {
                        Self::command(ctx, NetCommand::Abort(view.reply_to));
                        continue;
                    };
                    let number = self.calls.connect();
                    self.connections[at].dialled.stands(view.reply_to, number);
                }
                NetEvent::FrameBatch(frame_batch) => {
                    if let Some(at) = self.of_reply_address(frame_batch.reply_to) {
                        self.received(ctx, at, &frame_batch.bytes);
                    }
                    ctx.finish_frame_batch(frame_batch);
                }
                NetEvent::HalfClosed(reply_to) | NetEvent::Disconnected { reply_to, .. } => {
                    if let Some(at) = self.of_reply_address(reply_to) {
                        self.broken(ctx, at);
                    }
                }
                NetEvent::Written { .. } => {}
                NetEvent::DialFailed { dial, .. } => {
                    if let Some(at) = self.of_dial(dial) {
                        self.broken(ctx, at);
                    }
                }
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, ClientStageEvent>) {
        for at in 0..self.connections.len() {
            self.look_after(ctx, at);
        }
        let poll = ctx.now().saturating_add(POLL);
        let starts = self.connections.iter().map(|connection| connection.next_start);
        self.deadline = starts.filter(|start| *start > ctx.now()).min().unwrap_or(poll).min(poll);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        Some(self.deadline)
    }
}

/// The stages of a process with these connections, of the servers' gateways at `servers`.
pub(crate) fn stages(
    calls: &Arc<Calls>,
    servers: &[SocketAddr],
    places: std::ops::Range<usize>,
    seed: Seed,
    network: Arc<dyn Network>,
) -> (Vec<Box<dyn Stage<ClientStageEvent>>>, Layout) {
    let work = &calls.work;
    let connection = |place: usize| RedisConnection {
        place,
        dialled: Dialled::nowhere(),
        // Another life of the process writes other values.
        generator: Generator::new(work.mix.clone(), seed.0, calls.connect(), VALUES_APART),
        dice: seed.derive("connection", place as u64).dice(),
        read_again: Timestamp::ZERO,
        has_asked: false,
        next_start: Timestamp::ZERO,
        open: VecDeque::new(),
        alone: Alone::No,
        round: Round { number: 0, keys: Vec::new() },
        inbox: Vec::new(),
    };
    let stage = RedisStage {
        calls: Arc::clone(calls),
        servers: servers.to_vec(),
        connections: places.map(connection).collect(),
        dials: 0,
        reach: Reach::default(),
        out: Vec::new(),
        deadline: Timestamp::ZERO,
    };
    let config = NetConfig { owner: Some(CLIENT), network, ..NetConfig::default() };
    let stages: Vec<Box<dyn Stage<ClientStageEvent>>> =
        vec![Box::new(NetStage::new(Bytes, config)), Box::new(stage)];
    (stages, Layout::single(2))
}

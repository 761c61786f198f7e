//! The gateway without its surroundings: bytes of redis clients in, bytes for them and frames for
//! shards out.
//!
//! ```text
//!   received ─► advance: parse ─┬─ fast.rs      GET, SET, DEL … of one key: straight to the engine
//!                               └─ dispatch.rs  everything else ─► job
//!   deliver ─► engine ─► results ─► fast answers │ run.rs: jobs go on ─► answers ─► connections that waited advance
//! ```
//! All connections share one session of the engine: its clock then sees every commit of every
//! client here, so a command never reads below one that was answered before it, and fewer writes
//! are sent round again with a later timestamp.
//!
//! Deliberately absent: sockets, clocks, stages (see the parent module), what commands mean (see
//! [`super::keys`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use timestone_cluster::{ServerInfo, ShardMap};
use timestone_seda::{Memory, MemoryUse, ReplyAddress, Tally};
use timestone_session::{Engine, EngineConfig, OpResult, Routes, SessionError, SessionId};
use timestone_types::{ClientId, HashSeed, Timestamp, hash_key};
use timestone_wire::resp::{Parsed, ReplyWriter};

use super::client::{ClientNumber, ClientState};
use super::connection::{Connection, ConnectionIndex};
use super::dispatch::Flow;
use super::failure::Failure;
use super::figures::{GatewayGauges, Rate};
use super::hot::{Busy, HotKeys};
use super::inbox::Position;
use super::job::{JobId, Jobs, Operation};
use super::limits::{
    ANSWER_BYTES_A_COMMAND, COMMANDS_AT_ONCE, KEPT_BUFFER_BYTES, MAX_BACKLOG_BYTES, SHED_FROM_BYTES,
};
use super::marks::{Judged, Read};
use super::replies::{SlotId, Want};
use super::view::KEYSPACE;
use super::words::Words;
use timestone_wire::strangers::Stranger;

/// See the module.
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) session: SessionId,
    pub(super) seed: HashSeed,
    pub(super) connections: Vec<Option<Box<Connection>>>,
    free: Vec<ConnectionIndex>,
    /// The connections that are not gone, by their clients' numbers.
    pub(super) clients: BTreeMap<ClientNumber, ConnectionIndex>,
    /// By the net stage's slot: the connection that has it.
    by_slot: Vec<Option<ConnectionIndex>>,
    /// Connections with something to send or to put away.
    pub(super) listed: Vec<ConnectionIndex>,
    /// Connections whose waiting commands may go on.
    ready: VecDeque<ConnectionIndex>,
    pub(super) jobs: Jobs,
    pub(super) hot: HotKeys,
    pub(super) busy: Busy,
    /// Jobs to start.
    pub(super) starts: VecDeque<JobId>,
    /// Jobs that go on in the next turn: they have had their share of this one.
    pub(super) paused: VecDeque<JobId>,
    /// What jobs have carried out in this turn, in bytes.
    pub(super) carried_out: usize,
    /// Connections of which the same is true.
    pub(super) postponed: Vec<ConnectionIndex>,
    /// Jobs that wait for a while before they start again.
    pub(super) pausing: Vec<JobId>,
    pub(super) scratch: Vec<u8>,
    /// Bytes of the answer of the last command that touched no key, until they are counted.
    pub(super) local_bytes: usize,
    words: Words,
    pub(super) random: u64,
    pub(super) started: Timestamp,
    pub(super) commands: u64,
    pub(super) accepted: u64,
    pub(super) gauges: GatewayGauges,
    pub(super) rate: Rate,
    /// The time of this turn.
    pub(super) clock: Timestamp,
    thread: usize,
    /// The process's memory for connections, and what this gateway has of it.
    pub(super) memory: Arc<Memory>,
    pub(super) input: Tally,
    pub(super) output: Tally,
    /// What jobs make out of what is there, until it is committed: all of it, and what of it counts
    /// as input.
    pub(super) makes: u64,
    pub(super) made: Tally,
    /// Connections whose long commands wait for memory, in their order.
    pub(super) starving: VecDeque<ConnectionIndex>,
    /// Jobs that wait for memory for what they make, in their order.
    pub(super) without_memory: VecDeque<JobId>,
    pub(super) next_stall_check: Timestamp,
}

/// What must be done about a result once nothing of the engine is borrowed.
enum After {
    Nothing,
    Answered(ConnectionIndex),
    /// A fast command met a conflict: it goes on as a job.
    Again(ConnectionIndex, SlotId),
    /// A job has all its answers.
    Proceed(JobId),
}

impl Core {
    /// A gateway of `client` on a thread; the seed makes hashes and pauses unpredictable.
    pub(super) fn new(
        client: ClientId,
        routes: Routes,
        thread: usize,
        seed: u64,
        memory: &Arc<Memory>,
    ) -> Result<Self, SessionError> {
        let mut engine = Engine::new(EngineConfig::default(), client, routes, seed);
        let session = engine.open_session()?;
        Ok(Self {
            engine,
            session,
            seed: HashSeed(seed),
            connections: Vec::new(),
            free: Vec::new(),
            clients: BTreeMap::new(),
            by_slot: Vec::new(),
            listed: Vec::new(),
            ready: VecDeque::new(),
            jobs: Jobs::default(),
            hot: HotKeys::default(),
            busy: Busy::new(),
            starts: VecDeque::new(),
            paused: VecDeque::new(),
            carried_out: 0,
            postponed: Vec::new(),
            pausing: Vec::new(),
            scratch: Vec::new(),
            local_bytes: 0,
            words: Words::default(),
            random: seed | 1,
            started: Timestamp::ZERO,
            commands: 0,
            accepted: 0,
            gauges: GatewayGauges::default(),
            rate: Rate::default(),
            clock: Timestamp::ZERO,
            thread,
            memory: Arc::clone(memory),
            input: Tally::new(memory, MemoryUse::Input),
            output: Tally::new(memory, MemoryUse::Output),
            makes: 0,
            made: Tally::new(memory, MemoryUse::Input),
            starving: VecDeque::new(),
            without_memory: VecDeque::new(),
            next_stall_check: Timestamp::ZERO,
        })
    }

    /// What refusals call the servers that this gateway has no way to.
    pub(super) fn name_servers(&mut self, map: &ShardMap) {
        if self.started > Timestamp::ZERO && timestone_types::is_planted!(StaleServerNames) {
            return;
        }
        for entry in map.shards() {
            let name = map
                .primary(entry.id)
                .map_or_else(|| "no server yet".to_owned(), ServerInfo::for_redis_clients);
            self.engine.shards_mut().name_server(entry.id, &name);
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        hash_key(self.seed, KEYSPACE, key).0
    }

    pub(super) fn connection(&mut self, index: ConnectionIndex) -> Option<&mut Connection> {
        self.connections.get_mut(index.0 as usize)?.as_deref_mut()
    }

    /// The connection of a client that is not gone.
    pub(super) fn find_client(&self, number: ClientNumber) -> Option<&Connection> {
        let index = self.clients.get(&number)?;
        self.connections.get(index.0 as usize)?.as_deref()
    }

    /// Memory that is kept for the next command.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.scratch.capacity() + self.words.kept_bytes()
    }

    /// Lists a connection to be looked after at the end of the turn.
    pub(super) fn list(&mut self, index: ConnectionIndex) {
        let Some(connection) = self.connection(index) else { return };
        if !core::mem::replace(&mut connection.listed, true) {
            self.listed.push(index);
        }
    }

    /// A command of a connection was answered: what waited for it may go on.
    pub(super) fn answered(&mut self, index: ConnectionIndex) {
        self.list(index);
        let Some(connection) = self.connection(index) else { return };
        let (waits, has_grown) =
            (connection.blocked || connection.replies.has_shed(), connection.has_grown());
        if waits && !connection.postponed && !core::mem::replace(&mut connection.ready, true) {
            self.ready.push_back(index);
        }
        if has_grown {
            // What it counted for on its way here ends with its batch of frames: shards of other
            // threads may answer before this turn is over.
            self.count(index);
        }
    }
}

/// Connections.
impl Core {
    /// A client has connected.
    pub(super) fn connect(
        &mut self,
        now: Timestamp,
        reply_to: ReplyAddress,
        peer: std::net::SocketAddr,
    ) {
        self.accepted += 1;
        let number = ClientNumber((self.accepted as i64) << 8 | (self.thread as i64 & 0xff));
        let connection = Box::new(Connection::new(reply_to, ClientState::new(number, peer, now)));
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            ConnectionIndex(self.connections.len() as u32 - 1)
        });
        self.connections[index.0 as usize] = Some(connection);
        let slot = reply_to.connection.index();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(index);
        self.clients.insert(number, index);
    }

    /// The connection of a reply address, unless it is gone.
    pub(super) fn find(&self, reply_to: ReplyAddress) -> Option<ConnectionIndex> {
        let index = (*self.by_slot.get(reply_to.connection.index())?)?;
        let connection = self.connections[index.0 as usize].as_deref()?;
        (connection.reply_to == reply_to).then_some(index)
    }

    /// A client is gone. What it has asked and is under way is brought to an end; what it has
    /// queued is forgotten.
    pub(super) fn disconnect(&mut self, reply_to: ReplyAddress) {
        let Some(index) = self.find(reply_to) else { return };
        self.by_slot[reply_to.connection.index()] = None;
        if let Some(connection) = self.connection(index) {
            connection.gone = true;
            connection.closing = true;
            connection.end_multi();
            connection.unwatch();
            connection.reservation = None;
            connection.starving = None;
            connection.inbox.discard();
            connection.replies.drop_output();
            let number = connection.client.number;
            self.clients.remove(&number);
        }
        self.answered(index);
    }

    /// Removes a connection that is gone and owed nothing.
    pub(super) fn remove(&mut self, index: ConnectionIndex) -> Option<Box<Connection>> {
        let connection = self.connections.get_mut(index.0 as usize)?.take()?;
        self.input.change(connection.counted.0, 0);
        self.output.change(connection.counted.1, 0);
        self.free.push(index);
        Some(connection)
    }

    /// Takes what a client has sent; gives back a buffer that is not needed.
    pub(super) fn received(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        bytes: Vec<u8>,
    ) -> Vec<u8> {
        let Some(connection) = self.connection(index).filter(|connection| !connection.closing)
        else {
            return bytes;
        };
        connection.client.last_seen = now;
        let oldest = connection.replies.oldest();
        let spare = connection.inbox.append(bytes, oldest);
        if connection.inbox.backlog() > MAX_BACKLOG_BYTES {
            tracing::warn!(
                peer = %connection.client.peer,
                "a redis client has sent {MAX_BACKLOG_BYTES} bytes of commands without giving them \
                 time to run; its connection is closed"
            );
            connection.closing = true;
            connection.inbox.discard();
        }
        self.advance(now, index);
        spare
    }

    /// Carries out a connection's commands until one must wait or they are at their end.
    pub(super) fn advance(&mut self, now: Timestamp, index: ConnectionIndex) {
        self.list(index);
        let bound = self.output_bound();
        self.ask_again(now, index, bound);
        let mut carried_out = 0;
        loop {
            let Self { connections, engine, busy, commands, words, .. } = self;
            let Some(connection) =
                connections.get_mut(index.0 as usize).and_then(Option::as_deref_mut)
            else {
                return;
            };
            if connection.postponed || !connection.may_start(bound) {
                connection.blocked = connection.inbox.backlog() > 0;
                return;
            }
            if carried_out >= COMMANDS_AT_ONCE {
                (connection.postponed, connection.blocked) = (true, true);
                return self.postponed.push(index);
            }
            carried_out += 1;
            let position = connection.inbox.position();
            let flow = match connection.inbox.parse() {
                Ok(Parsed::Incomplete { consumed, needed }) => {
                    connection.inbox.consume(consumed);
                    connection.blocked = false;
                    if let Some(stranger) = Stranger::of_first(connection.inbox.unparsed()) {
                        return self.turn_away(index, position, stranger);
                    }
                    return self.collect(now, index, needed);
                }
                Err(error) => {
                    let mut text = b"ERR ".to_vec();
                    error.write(&mut text);
                    connection.replies.now(connection.client.protocol, position, |reply| {
                        reply.error_bytes(&text)
                    });
                    (connection.closing, connection.starving) = (true, None);
                    connection.inbox.discard();
                    return;
                }
                Ok(Parsed::Command(command)) => {
                    // What it still waited for has come: the rest of it was on its way before
                    // reading could be stopped.
                    (connection.reservation, connection.starving) = (None, None);
                    let consumed = command.consumed();
                    let plain =
                        super::fast::Plain::of(&command).filter(|_| connection.multi.is_none());
                    let flow = match plain {
                        Some(plain) => {
                            let mut way = super::fast::Way {
                                engine,
                                session: self.session,
                                seed: self.seed,
                                now,
                                index,
                                protocol: connection.client.protocol,
                                position,
                                replies: &mut connection.replies,
                                marks: &mut connection.marks,
                                busy,
                            };
                            connection.client.last_command = plain.name();
                            way.start(plain)
                        }
                        None => Flow::Elsewhere,
                    };
                    if flow == Flow::Elsewhere
                        && let Some(stranger) = Stranger::of(command.args(), command.is_inline())
                    {
                        return self.turn_away(index, position, stranger);
                    }
                    if flow == Flow::Elsewhere {
                        words.clear();
                        words.push_command(&command);
                    }
                    (flow, consumed)
                }
            };
            let (flow, consumed) = flow;
            *commands += u64::from(flow == Flow::Taken);
            let flow = if flow == Flow::Elsewhere {
                let words = core::mem::take(&mut self.words);
                let flow = self.dispatch(now, index, position, &words);
                self.words = words;
                // Others of this turn wait for long answers as they wait for many commands.
                carried_out +=
                    (core::mem::take(&mut self.local_bytes) / ANSWER_BYTES_A_COMMAND) as u32;
                self.commands += u64::from(flow == Flow::Taken);
                flow
            } else {
                flow
            };
            let Some(connection) = self.connection(index) else { return };
            if flow == Flow::Wait {
                connection.blocked = true;
                return;
            }
            connection.inbox.consume(consumed);
        }
    }
}

impl Core {
    /// Answers whoever is no Redis client in its own words, and closes the connection: nothing more
    /// of what it has sent is carried out.
    fn turn_away(&mut self, index: ConnectionIndex, position: Position, stranger: Stranger) {
        let Some(connection) = self.connection(index) else { return };
        tracing::warn!(peer = %connection.client.peer, ?stranger, "no redis client speaks here; \
            the connection is closed");
        connection.replies.now_bytes(position, &stranger.answer());
        (connection.closing, connection.starving) = (true, None);
        connection.end_multi();
        connection.inbox.discard();
    }
}

/// The engine's results.
impl Core {
    /// Does everything that can be done without new input.
    pub(super) fn work(&mut self, now: Timestamp) {
        self.clock = now;
        self.rate.look(now, self.commands);
        loop {
            self.feed_jobs(now);
            while let Some(job) = self.starts.pop_front() {
                self.start(now, job);
            }
            let mut any = false;
            while self.take_result(now) {
                any = true;
            }
            while let Some(index) = self.ready.pop_front() {
                any = true;
                if let Some(connection) = self.connection(index) {
                    connection.ready = false;
                    self.advance(now, index);
                }
            }
            if !any && self.starts.is_empty() {
                return self.give_back();
            }
        }
    }

    /// Gives back what long commands took of the buffers that all share.
    fn give_back(&mut self) {
        self.words.give_back();
        if self.scratch.capacity() > KEPT_BUFFER_BYTES {
            self.scratch = Vec::new();
        }
    }

    /// Takes one result of the engine to whom it belongs.
    fn take_result(&mut self, now: Timestamp) -> bool {
        let Self { engine, connections, jobs, scratch, busy, memory, gauges, .. } = self;
        let Some(done) = engine.next_done() else { return false };
        let after = match Operation::unpack(done.op.0) {
            Operation::Fast(index, slot) => {
                let connection =
                    connections.get_mut(index.0 as usize).and_then(Option::as_deref_mut);
                match connection {
                    Some(connection) => {
                        if let Some(hash) =
                            connection.replies.slot(slot).and_then(|slot| slot.entered)
                        {
                            connection.replies.note_entered(slot, None);
                            busy.leave(hash, 1);
                        }
                        let asked = connection.replies.asked(slot);
                        let after = answer_fast(connection, index, slot, &done.result, memory);
                        if matches!(after, After::Answered(_)) {
                            gauges.answered(asked, now);
                        }
                        after
                    }
                    None => After::Nothing,
                }
            }
            Operation::Job(id, number) => match jobs.get_mut(id) {
                Some(job) => job
                    .take_result(now, id, number, &done.result, scratch, memory)
                    .map_or(After::Nothing, After::Proceed),
                None => After::Nothing,
            },
        };
        match after {
            After::Nothing => {}
            After::Answered(index) => self.answered(index),
            After::Again(index, slot) => self.run_again(now, index, slot),
            After::Proceed(job) => self.proceed(now, job),
        }
        true
    }

    /// Starts the jobs whose pause is over, and lets the engine do what is due.
    pub(super) fn tick(&mut self, now: Timestamp) {
        if self.engine.next_deadline().is_some_and(|at| at <= now) {
            self.engine.tick(now);
        }
        for index in core::mem::take(&mut self.postponed) {
            if let Some(connection) = self.connection(index) {
                connection.postponed = false;
            }
            self.answered(index);
        }
        self.carried_out = 0;
        for _ in 0..self.paused.len() {
            if self.has_had_its_share() {
                break;
            }
            if let Some(id) = self.paused.pop_front() {
                self.proceed(now, id);
            }
        }
        let mut at = 0;
        while at < self.pausing.len() {
            let id = self.pausing[at];
            if self.jobs.get_mut(id).is_none_or(|job| job.paused_until <= now) {
                self.pausing.swap_remove(at);
                self.starts.push_back(id);
            } else {
                at += 1;
            }
        }
    }

    /// Whether something waits for nothing but the next turn.
    pub(super) fn goes_on(&self) -> bool {
        !self.paused.is_empty() || !self.postponed.is_empty()
    }

    /// When [`Core::tick`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let pauses =
            self.pausing.iter().filter_map(|&id| self.jobs.get(id)).map(|job| job.paused_until);
        pauses.chain(self.engine.next_deadline()).min()
    }

    /// The process ends: commands that wait for others, or for their clients to read, are not begun
    /// any more. Connections are closed behind the answers to what was begun.
    pub(super) fn drop_what_was_not_begun(&mut self) {
        for at in 0..self.connections.len() {
            let waiting =
                self.connections[at].as_deref_mut().filter(|connection| connection.blocked);
            let Some(connection) = waiting.filter(|connection| !connection.closing) else {
                continue;
            };
            (connection.closing, connection.blocked) = (true, false);
            connection.end_multi();
            connection.inbox.discard();
            self.answered(ConnectionIndex(at as u32));
        }
    }

    /// Whether nothing that was received is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.jobs.len() == 0
            && self.starts.is_empty()
            && self
                .connections
                .iter()
                .flatten()
                .all(|connection| connection.gone || connection.is_idle())
    }
}

/// Answers a fast command from its result.
fn answer_fast(
    connection: &mut Connection,
    index: ConnectionIndex,
    slot: SlotId,
    result: &OpResult<'_>,
    memory: &Memory,
) -> After {
    let Some(&expected) = connection.replies.slot(slot) else { return After::Nothing };
    if let OpResult::Value(view) = result
        && let Some(length) =
            view.value.map(<[u8]>::len).filter(|&length| length >= SHED_FROM_BYTES)
        && !connection.owed().has_room(
            connection.replies.is_first(slot),
            length,
            super::memory::output_bound(memory),
        )
        && !super::memory::ignores_bound()
    {
        connection.replies.shed(slot, length);
        return After::Answered(index);
    }
    if let OpResult::Value(view) = result {
        let found = Read { version: view.version, present: view.value.is_some() };
        let may_wait = expected.want == Want::Value && !connection.replies.is_first(slot);
        match connection.marks.judge(slot, found, may_wait) {
            Judged::Tell => {}
            Judged::Overtakes => {
                // It is asked for again when the earlier one is answered.
                connection.replies.drop_answer(slot);
                return After::Nothing;
            }
            Judged::Outdated => {
                connection.replies.drop_answer(slot);
                return After::Answered(index);
            }
        }
    }
    let again = match result {
        OpResult::Failed(error) => {
            error.retryable()
                && !matches!(error, SessionError::DeadlineExceeded | SessionError::Busy { .. })
        }
        OpResult::Aborted(abort) => abort.retryable(),
        _ => false,
    };
    if again {
        return After::Again(index, slot);
    }
    connection.answer(slot, |out| {
        let reply = &mut ReplyWriter::new(out, expected.protocol);
        match (expected.want, result) {
            (_, OpResult::Value(view)) => bulk_or_null(reply, view.value),
            (Want::Ok, OpResult::Written(_)) => reply.ok(),
            (Want::Count, OpResult::Written(_)) => reply.integer(1),
            (_, OpResult::Written(written)) => {
                bulk_or_null(reply, written.previous.and_then(|view| view.value))
            }
            (want, OpResult::Aborted(abort))
                if abort.kind() == timestone_types::AbortKind::Condition =>
            {
                match want {
                    Want::Count => reply.integer(0),
                    Want::Ok => reply.null(),
                    _ => bulk_or_null(reply, abort.found.and_then(|view| view.value)),
                }
            }
            (_, OpResult::Aborted(abort)) => reply.error_bytes(Failure::aborted(abort).bytes()),
            (_, OpResult::Unknown(txn)) => reply.error_bytes(Failure::unknown(*txn).bytes()),
            (_, OpResult::Failed(error)) => reply.error_bytes(Failure::from(error).bytes()),
            _ => reply.error_bytes(Failure::INTERNAL.bytes()),
        }
    });
    After::Answered(index)
}

#[inline]
fn bulk_or_null(reply: &mut ReplyWriter<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
}

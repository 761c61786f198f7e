//! Commands on single keys whose shards run on the gateway's own thread: collected, and carried out
//! by calls, a few at a time.
//!
//! ```text
//!   GET, SET ─► collected ─ 32 of them, or nothing else to do ─► their memory is fetched ─► shard called, one after
//!                                                                     the other ─┬─► answers
//!                                                                                └─► not now: asked in frames
//! ```
//! A call needs no frame and no slot of the engine; key and value stay in the receive buffer until
//! the store copies the value. Calls of one shard keep the order in which they were collected. The
//! session is the gateway's own, as for everything else that it asks.
//!
//! Invariants: what is collected is carried out within the same turn; a command is answered once,
//! by its call or by what its frame comes to.

use timestone_session::{Condition, Mutation, OpResult, ValueView, Written};
use timestone_shard::{DirectAnswer, DirectAt, DirectPut, Found, Shard};
use timestone_types::limits::MAX_VALUE_BYTES;
use timestone_types::{Epoch, Expiry, HashSeed, HashedKey, KeyRef, ShardId, Timestamp, TxnId};
use timestone_wire::resp::ReplyWriter;

use crate::backend::Backend;
use crate::connection::ConnectionIndex;
use crate::connection::inbox::{CommandPart, StreamPosition};
use crate::connection::replies::ReplyId;
use crate::failure::Failure;
use crate::jobs::job::Operation;
use crate::limits::{DIRECT_CALLS, DIRECT_ROUNDS};
use crate::parts::{Parts, ResultAction, take_fast_result};

/// What may be asked of a shard within a call.
pub trait DirectCalls {
    /// Has everything fetched that calls about these keys will look at.
    fn fetch_ahead(&self, reads: &[HashedKey], puts: &[HashedKey]);

    /// Reads the latest version of a key; `None`: nothing was done.
    fn get(&mut self, key: KeyRef<'_>, asked: DirectAt) -> Option<Found<'_>>;

    /// Puts a value.
    fn put(&mut self, put: DirectPut<'_>, asked: DirectAt) -> DirectAnswer;
}

impl DirectCalls for Shard {
    #[inline]
    fn fetch_ahead(&self, reads: &[HashedKey], puts: &[HashedKey]) {
        Self::fetch_ahead(self, reads, puts);
    }

    #[inline]
    fn get(&mut self, key: KeyRef<'_>, asked: DirectAt) -> Option<Found<'_>> {
        self.direct_get(key, asked)
    }

    #[inline]
    fn put(&mut self, put: DirectPut<'_>, asked: DirectAt) -> DirectAnswer {
        self.direct_put(put, asked)
    }
}

/// A shard whose stage runs on the gateway's thread.
pub trait DirectShard: Send {
    /// Which one.
    fn id(&self) -> ShardId;

    /// The secret of its key hashes.
    fn seed(&self) -> HashSeed;

    /// Whether writes are worth a call: with a log each has to wait for it.
    fn takes_puts(&self) -> bool;

    /// Whether it serves in this process at the moment.
    fn is_here(&self) -> bool;

    /// Calls it. Afterwards its stage is to have a turn. False, and nothing was done, where somebody
    /// else has it, or it does not serve here any more.
    fn enter(&mut self, run: &mut dyn FnMut(&mut dyn DirectCalls)) -> bool;
}

/// Where the key of a command goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectRoute {
    place: u8,
    epoch: Epoch,
    key: HashedKey,
}

/// A command that is to be carried out by a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectCommand {
    pub(crate) route: DirectRoute,
    pub(crate) connection: ConnectionIndex,
    pub(crate) reply_id: ReplyId,
    pub(crate) position: StreamPosition,
    /// Where its key is, and the value that it writes.
    pub(crate) key: CommandPart,
    pub(crate) value: Option<CommandPart>,
    /// The hash by which the gateway knows its key.
    pub(crate) hash: u64,
}

struct Callee {
    shard: Box<dyn DirectShard>,
    id: ShardId,
    seed: HashSeed,
    takes_puts: bool,
    /// It was called, and its stage has not been told.
    was_called: bool,
}

/// The shards that may be called, and what is collected for them.
#[derive(Default)]
pub(crate) struct Direct {
    shards: Vec<Callee>,
    commands: Vec<DirectCommand>,
    reads: Vec<HashedKey>,
    puts: Vec<HashedKey>,
}

impl Direct {
    /// Those of one thread.
    pub(crate) fn new(shards: Vec<Box<dyn DirectShard>>) -> Self {
        assert!(shards.len() < usize::from(u8::MAX), "a thread has few shards");
        let callee = |shard: Box<dyn DirectShard>| Callee {
            id: shard.id(),
            seed: shard.seed(),
            takes_puts: shard.takes_puts(),
            was_called: false,
            shard,
        };
        Self { shards: shards.into_iter().map(callee).collect(), ..Self::default() }
    }

    /// The route of a key, if its shard may be called to read it, or to write so many bytes.
    #[inline]
    pub(crate) fn route(
        &self,
        backend: &Backend,
        key: &[u8],
        value: Option<usize>,
    ) -> Option<DirectRoute> {
        if self.shards.is_empty() {
            return None;
        }
        let (id, epoch) = backend.engine_ref().direct_route(key)?;
        let place = self.shards.iter().position(|callee| callee.id == id)?;
        let callee = &self.shards[place];
        if !callee.shard.is_here() {
            return None;
        }
        if value.is_some_and(|bytes| !callee.takes_puts || bytes > MAX_VALUE_BYTES) {
            return None;
        }
        Some(DirectRoute {
            place: place as u8,
            epoch,
            key: HashedKey::new(callee.seed, backend.keyspace(), key),
        })
    }

    /// Collects a command.
    #[inline]
    pub(crate) fn collect(&mut self, command: DirectCommand) {
        debug_assert!(usize::from(command.route.place) < self.shards.len(), "its shard is called");
        self.commands.push(command);
    }

    /// Whether so many are collected that they are to be carried out.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.commands.len() >= DIRECT_CALLS
    }

    /// Whether nothing is collected.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Shards that were called, and whose stages are to be told.
    pub(crate) fn take_called(&mut self) -> impl Iterator<Item = ShardId> + '_ {
        let called = |callee: &mut Callee| std::mem::take(&mut callee.was_called);
        self.shards.iter_mut().filter_map(move |callee| called(callee).then_some(callee.id))
    }
}

impl Parts {
    /// Carries out what is collected for calls. Whether there was anything.
    pub(crate) fn run_direct(&mut self, now: Timestamp) -> bool {
        if self.direct.is_empty() {
            return false;
        }
        let mut commands = std::mem::take(&mut self.direct.commands);
        for place in 0..self.direct.shards.len() {
            self.call_shard(now, place, &commands);
        }
        commands.clear();
        debug_assert!(self.direct.is_empty(), "nothing is collected by what is carried out");
        self.direct.commands = commands;
        true
    }

    /// Carries out what is collected for one shard.
    fn call_shard(&mut self, now: Timestamp, place: usize, commands: &[DirectCommand]) {
        let of_shard = || commands.iter().filter(|one| usize::from(one.route.place) == place);
        if of_shard().next().is_none() {
            return;
        }
        let (mut reads, mut puts) =
            (std::mem::take(&mut self.direct.reads), std::mem::take(&mut self.direct.puts));
        for command in of_shard() {
            let keys = if command.value.is_some() { &mut puts } else { &mut reads };
            keys.push(command.route.key);
        }
        // It is taken out, so that answers find everything else of the gateway in its place.
        let mut shards = std::mem::take(&mut self.direct.shards);
        let has_entered = shards[place].shard.enter(&mut |shard| {
            shard.fetch_ahead(&reads, &puts);
            for command in of_shard() {
                self.carry_out(now, command, Some(&mut *shard));
            }
        });
        shards[place].was_called |= has_entered;
        self.direct.shards = shards;
        if !has_entered {
            of_shard().for_each(|command| self.carry_out(now, command, None));
        }
        reads.clear();
        puts.clear();
        (self.direct.reads, self.direct.puts) = (reads, puts);
    }

    /// Carries out one command: by a call, or by a frame.
    fn carry_out(
        &mut self,
        now: Timestamp,
        command: &DirectCommand,
        shard: Option<&mut dyn DirectCalls>,
    ) {
        let &DirectCommand { connection: index, reply_id, position, .. } = command;
        let Self { connections, backend, memory, figures, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let key = command.route.key.with(connection.inbox.part(position, command.key));
        let value = command.value.map(|part| connection.inbox.part(position, part));
        let result = match (shard, value) {
            (Some(shard), Some(value)) => put(backend, shard, now, (key, value), command.route),
            (Some(shard), None) => get(backend, shard, now, key, command.route),
            (None, _) => None,
        };
        let Some(result) = result else { return self.ask_instead(now, command) };
        let started = connection.replies.start_of(reply_id);
        match take_fast_result(connection, index, reply_id, &result, memory.process()) {
            ResultAction::Answered(index) => {
                figures.answered(started, now);
                self.answered(index);
            }
            ResultAction::Nothing => {}
            ResultAction::RunAsJob(..) | ResultAction::Proceed(_) => {
                debug_assert!(false, "a call comes to a value, or a write");
            }
        }
    }

    /// What could not be done by a call is asked in a frame.
    #[cold]
    fn ask_instead(&mut self, now: Timestamp, command: &DirectCommand) {
        let &DirectCommand { connection: index, reply_id, position, hash, .. } = command;
        let Self { connections, backend, jobs, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        debug_assert!(connection.replies.pending(reply_id).is_some(), "it is not answered");
        let operation = Operation::Fast(index, reply_id);
        let key = connection.inbox.part(position, command.key);
        let asked = match command.value {
            None => backend.get_latest(now, key, operation),
            Some(value) => {
                let value = connection.inbox.part(position, value);
                let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
                backend.write_if(now, key, mutation, Condition::Always, false, operation)
            }
        };
        match asked {
            Ok(()) if command.value.is_some() => {
                jobs.busy.enter(hash);
                connection.replies.note_entered(reply_id, Some(hash));
            }
            Ok(()) => {}
            Err(error) => {
                let (failure, protocol) = (Failure::from(error), connection.client.protocol);
                connection.answer(reply_id, |out| {
                    ReplyWriter::new(out, protocol).error_bytes(failure.bytes());
                });
                self.answered(index);
            }
        }
    }
}

/// Reads a key by a call.
#[inline]
fn get<'s>(
    backend: &mut Backend,
    shard: &'s mut dyn DirectCalls,
    now: Timestamp,
    key: KeyRef<'_>,
    DirectRoute { epoch, .. }: DirectRoute,
) -> Option<OpResult<'s>> {
    let begin = backend.begin_direct(now)?;
    let Found { version, expires_at, value } = shard.get(key, DirectAt { now, epoch, begin })?;
    backend.end_direct(version.timestamp);
    Some(OpResult::Value(ValueView { value, version, expires_at }))
}

/// Puts a value by a call: at a later timestamp, if the first is too low.
#[inline]
fn put<'s>(
    backend: &mut Backend,
    shard: &'s mut dyn DirectCalls,
    now: Timestamp,
    (key, value): (KeyRef<'_>, &[u8]),
    DirectRoute { epoch, .. }: DirectRoute,
) -> Option<OpResult<'s>> {
    let begin = backend.begin_direct(now)?;
    let client = backend.engine_ref().client();
    let mut commit = begin.next();
    for _ in 0..DIRECT_ROUNDS {
        let put = DirectPut { key, value, expires_at: Expiry::NEVER, client, commit };
        match shard.put(put, DirectAt { now, epoch, begin }) {
            DirectAnswer::Done => {
                backend.end_direct(commit);
                let (txn, previous) = (TxnId::default(), None);
                return Some(OpResult::Written(Written { timestamp: commit, txn, previous }));
            }
            DirectAnswer::Later(at) => commit = at.max(commit.next()),
            DirectAnswer::Indirect => return None,
        }
    }
    None
}

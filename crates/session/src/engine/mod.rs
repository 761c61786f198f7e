//! The engine: sessions, slots, outboxes, time-outs, reports and silent servers, for transactions
//! of whatever kind and for requests outside transactions.
//!
//! ```text
//!   application ── begin get put commit ─┐            ┌─ deliver.rs  replies
//!                                        ├─► manager ◄┤
//!   application ── get_latest write_if ──┼─► singles ◄┤
//!                  status ask            │            └─ upkeep.rs   connections, time, reports
//!                                        └─► Context: outbox per shard ──► host
//!                                                     results          ──► next_done
//! ```
//!
//! Invariants
//! - A timestamp that a session issues is above every one it issued before and above all that it
//!   has seen.
//! - A write is never reported failed while any shard may still carry it out.
//! - A slot is released only when its result was handed out and no participant is owed anything; so
//!   a value handed out by [`Engine::next_done`] stays until the next call.
//! - The watermark reported to a shard is at or below the begin of everything open, and of
//!   everything that this shard has not acknowledged.
//!
//! Deliberately absent: clocks (`now` is an argument), sockets, wakers; and what a transaction
//! reads, writes and is timestamped with, which is its manager's business.

#![expect(
    private_bounds,
    reason = "managers are of this crate; hosts name an engine by its kind of transactions"
)]

pub(crate) mod backups;
pub(crate) mod closed;
pub(crate) mod context;
mod deliver;
mod direct;
pub(crate) mod frames;
pub(crate) mod identity;
mod jitter;
mod map_pulls;
pub(crate) mod number;
pub(crate) mod offset;
pub(crate) mod replies;
pub(crate) mod reports;
pub(crate) mod results;
mod sessions;
pub(crate) mod shards;
mod singles;
pub(crate) mod slab;
mod timing;
mod unknown;
mod upkeep;
mod watermarks;

use timestone_types::{ClientId, Expiry, KeyspaceId, ShardId, Timestamp, TxnId};
use timestone_wire::RangeEntry;

use self::context::Context;
use self::results::{Finished, ResultAt};
use self::singles::Singles;
use self::slab::SlabKey;
use crate::handle::TicketKind;
use crate::managers::{Manager, Timestamps, TxnOwner};
use crate::{
    Condition, Done, EngineConfig, KeyName, Mutation, OpId, OpResult, OwnWrite, RequestOptions,
    Routes, SessionError, SessionId, Step, Ticket, TxnHandle, TxnOptions, ValueView, limits,
};

/// Counters of one engine since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Requests that were encoded, repetitions included.
    pub requests: u64,
    /// Requests that were asked again, for any reason.
    pub repeated: u64,
    /// Transactions that committed without a message.
    pub committed_locally: u64,
    /// Transactions and single-key writes that committed at participants.
    pub committed: u64,
    /// Transactions and single-key writes that were aborted, but not by the application.
    pub aborted: u64,
    /// Rounds with a later timestamp.
    pub later_rounds: u64,
    /// Transactions whose participants were asked to terminate them.
    pub terminations: u64,
    /// Replies that were late, doubled or unreadable.
    pub ignored_replies: u64,
    /// Reads that backups answered.
    pub answered_by_backups: u64,
    /// Those that a backup refused, or did not answer in time: the primary was asked.
    pub left_backups: u64,
    /// Transactions that were given up because no replica answered that has come as far as their
    /// snapshot: a new one begins further in the past.
    pub above_closed: u64,
}

/// The client's side of Timestone for one event loop, with transactions of one kind. See the
/// crate's description.
#[derive(Debug)]
pub struct Engine<M = Timestamps> {
    context: Context,
    manager: M,
    singles: Singles,
    handed_out: Option<Finished>,
    next_report: Timestamp,
}

/// Sessions.
impl<M: Manager> Engine<M> {
    /// An engine of `client` (an id that the master handed out). `seed` feeds the jitter of pauses
    /// and later timestamps. Every shard counts as connected until [`Engine::disconnected`] says
    /// otherwise.
    #[must_use]
    pub fn new(config: EngineConfig, client: ClientId, routes: Routes, seed: u64) -> Self {
        Self {
            context: Context::new(config, client, routes, seed),
            manager: M::new(seed),
            singles: Singles::new(),
            handed_out: None,
            next_report: Timestamp::ZERO,
        }
    }

    /// Opens a session. Transactions of one session see each other's effects, whatever the clock
    /// does.
    ///
    /// # Errors
    /// `Busy` when the engine carries [`crate::limits::MAX_SESSIONS`] already.
    pub fn open_session(&mut self) -> Result<SessionId, SessionError> {
        self.context.assert_sound();
        self.context.sessions.open()
    }

    /// Closes a session: its open transactions are forgotten, its commits under way are still
    /// brought to an end.
    pub fn close_session(&mut self, session: SessionId) {
        let session = SlabKey::from(session);
        if self.context.sessions.is_open(session) {
            self.manager.close_session(&mut self.context, session);
            self.context.sessions.close(session);
        }
        self.assert_all_sound();
    }

    /// The session has heard of something at `at`, from whomever: whatever it begins from now on
    /// lies above that, or above [`limits::LAST_TIMESTAMP`] if that is earlier.
    ///
    /// # Errors
    /// [`SessionError::NoSession`].
    pub fn saw(&mut self, session: SessionId, at: Timestamp) -> Result<(), SessionError> {
        if !self.context.sessions.is_open(session.into()) {
            return Err(SessionError::NoSession);
        }
        let at = at.min(limits::LAST_TIMESTAMP);
        self.context.session_learned(Some(session.into()), at.next());
        self.context.assert_sound();
        Ok(())
    }
}

/// Transactions.
impl<M: Manager> Engine<M> {
    /// Begins a transaction. Sends nothing.
    ///
    /// # Errors
    /// A closed session, a snapshot in the future, or [`crate::limits::MAX_TRANSACTIONS`] under
    /// way.
    pub fn begin(
        &mut self,
        now: Timestamp,
        session: SessionId,
        options: TxnOptions,
    ) -> Result<TxnHandle, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.manager.begin(&mut self.context, session.into(), options)
    }

    /// The snapshot that a transaction reads from.
    ///
    /// # Errors
    /// [`SessionError::NoTransaction`].
    pub fn begin_timestamp(&self, txn: TxnHandle) -> Result<Timestamp, SessionError> {
        self.manager.begin_timestamp(txn)
    }

    /// When the requests of an open transaction are given up; `None`: after the configured time each.
    ///
    /// # Errors
    /// A finished transaction.
    pub fn deadline(&self, txn: TxnHandle) -> Result<Option<Timestamp>, SessionError> {
        self.manager.owner(txn).map(|owner| owner.deadline)
    }

    /// Reads a key: the transaction's own write, else its own earlier read ([`Step::Value`]), else
    /// the shard is asked ([`Step::Pending`], then a [`Done`] with `op`). Many may be under way at
    /// once.
    ///
    /// # Errors
    /// A finished transaction, a limit, a key that no shard serves, or a full outbox.
    #[inline]
    pub fn get(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.manager.get(&mut self.context, txn, KeyName { keyspace, key }, op)
    }

    /// What the transaction knows about a key already, without asking anybody.
    #[must_use]
    pub fn peek(&self, txn: TxnHandle, keyspace: KeyspaceId, key: &[u8]) -> Option<ValueView<'_>> {
        self.manager.peek(txn, KeyName { keyspace, key })
    }

    /// A range was read at a transaction's snapshot, at every shard and to its end, by requests of the
    /// host's own ([`Engine::ask`]): it is validated at commit as what was read of single keys is.
    /// Said before anything of the range is told to whoever reads it.
    ///
    /// # Errors
    /// A finished transaction, or one that has read too many ranges.
    pub fn read_range(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        read: &RangeEntry<'_>,
    ) -> Result<(), SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.manager.read_range(&mut self.context, txn, read)
    }

    /// What a transaction is to write in a range, ascending by keys: values, or nothing where a key is
    /// deleted.
    ///
    /// # Errors
    /// A finished transaction.
    pub fn writes_in(
        &self,
        txn: TxnHandle,
        range: &RangeEntry<'_>,
    ) -> Result<Vec<OwnWrite<'_>>, SessionError> {
        self.manager.writes_in(txn, range)
    }

    /// Writes a key at commit, or deletes it when there is no value. Checks the limits now.
    ///
    /// # Errors
    /// A finished or read-only transaction, a limit, or a key that no shard serves.
    #[inline]
    pub fn write(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        key: KeyName<'_>,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.manager.write(&mut self.context, txn, key, value, expires_at)
    }

    /// Makes everything of a keyspace absent at commit, on every shard at one timestamp. The transaction
    /// writes nothing to the keyspace, and reads nothing of it from then on.
    ///
    /// # Errors
    /// A finished or read-only transaction, or one that writes to the keyspace.
    pub fn fence(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
    ) -> Result<(), SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.manager.fence(&mut self.context, txn, keyspace)
    }

    /// Its commit is acknowledged only when the clock's error bound has passed it, whatever was
    /// said at its begin.
    pub fn wait_for_clocks(&mut self, txn: TxnHandle) {
        self.manager.wait_for_clocks(txn);
        self.context.assert_sound();
    }

    /// Forgets a transaction. Nothing was sent that would have to be taken back. Without effect
    /// when it has finished.
    pub fn abort(&mut self, txn: TxnHandle) {
        self.manager.abort(&mut self.context, txn);
        self.context.assert_sound();
    }

    /// Commits. Without writes, and when no read met a prepared write, at once and without a
    /// message ([`Step::Committed`]); else a [`Done`] with `op` follows: `Committed`, `Aborted`,
    /// `Unknown` or `Failed`. The handle is worth nothing afterwards. Reads that were asked and not
    /// answered are not part of the transaction.
    ///
    /// # Errors
    /// A finished or too old transaction, or a full outbox: the transaction is over then as well.
    #[inline]
    pub fn commit(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.manager.commit(&mut self.context, txn, op)
    }
}

/// Requests outside transactions.
impl<M: Manager> Engine<M> {
    /// Reads the latest version of one key, linearizably: waits for prepared writes.
    ///
    /// # Errors
    /// A closed session, a limit, a key that no shard serves, or too much under way.
    pub fn get_latest(
        &mut self,
        now: Timestamp,
        session: SessionId,
        keyspace: KeyspaceId,
        key: &[u8],
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        let key = KeyName { keyspace, key };
        self.singles.get_latest(&mut self.context, session, key, options, op)
    }

    /// Writes one key, linearizably and exactly once, provided that `condition` holds (else
    /// `Aborted` with kind `Condition`).
    ///
    /// # Errors
    /// A closed session, a limit, a key that no shard serves, or too much under way.
    #[expect(
        clippy::too_many_arguments,
        reason = "a request outside a transaction says everything at once"
    )]
    pub fn write_if(
        &mut self,
        now: Timestamp,
        session: SessionId,
        keyspace: KeyspaceId,
        key: &[u8],
        mutation: Mutation<'_>,
        condition: Condition<'_>,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        let key = KeyName { keyspace, key };
        self.singles.write_if(&mut self.context, session, key, mutation, condition, options, op)
    }

    /// Asks every shard what became of a transaction.
    ///
    /// # Errors
    /// Too much under way, or no shard at all.
    pub fn status(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.singles.status(&mut self.context, txn, options, op)
    }

    /// Sends any other idempotent request (scan, count, statistics) to a shard: `encode` appends
    /// one frame that carries the given request number. The answer is [`OpResult::Frame`]. Asked
    /// again after a loss, until the deadline.
    ///
    /// # Errors
    /// A shard that is in no map, or too much under way.
    pub fn ask(
        &mut self,
        now: Timestamp,
        shard: ShardId,
        options: RequestOptions,
        op: OpId,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Step<'_>, SessionError> {
        self.ask_for(now, (shard, None), options, op, encode)
    }

    /// As [`Self::ask`], at the snapshot of an open transaction and until its deadline. Where the snapshot is too
    /// old, its session begins above the watermark from then on, as after a read.
    ///
    /// # Errors
    /// As [`Self::ask`]; a finished transaction.
    pub fn ask_within(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        shard: ShardId,
        op: OpId,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Step<'_>, SessionError> {
        let TxnOwner { session, deadline } = self.manager.owner(txn)?;
        let options = RequestOptions { deadline, ..RequestOptions::default() };
        self.ask_for(now, (shard, session), options, op, encode)
    }

    /// Asks for nobody, or for a session.
    fn ask_for(
        &mut self,
        now: Timestamp,
        (shard, session): (ShardId, Option<SlabKey>),
        options: RequestOptions,
        op: OpId,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Step<'_>, SessionError> {
        self.context.timing.advance(now);
        self.context.assert_sound();
        let Some(shard) = self.context.index_of(shard) else { return Err(SessionError::NoShard) };
        self.singles.ask(&mut self.context, (shard, session), options, op, encode)
    }
}

/// Results.
impl<M: Manager> Engine<M> {
    /// The next finished operation. What it borrows stays until the next call.
    pub fn next_done(&mut self) -> Option<Done<'_>> {
        self.context.assert_sound();
        match self.handed_out.take().map(|finished| finished.at) {
            Some(ResultAt::Commit(txn)) => self.manager.handed_out(txn),
            Some(ResultAt::Single(slot)) => self.singles.handed_out(slot),
            Some(ResultAt::Read(..) | ResultAt::Failed(_) | ResultAt::Taken) | None => {}
        }
        let Finished { op, at } = self.handed_out.insert(self.context.results.pop()?);
        let op = *op;
        // A read, which almost all are, is made where it is wanted: a result is a large thing to
        // move about.
        let result = match at {
            ResultAt::Read(txn, item) => match self.manager.finished_read(*txn, *item) {
                Some(view) => return Some(Done { op, result: OpResult::Value(view) }),
                None => None,
            },
            ResultAt::Failed(error) => Some(OpResult::Failed((**error).clone())),
            ResultAt::Taken => None,
            ResultAt::Commit(txn) => self.manager.commit_result(*txn),
            ResultAt::Single(slot) => self.singles.result(*slot),
        };
        let result = result.unwrap_or(OpResult::Failed(SessionError::NoTransaction));
        Some(Done { op, result })
    }

    /// What a transaction's read found, for as long as the transaction is open: a host may leave
    /// the value where it is until whoever waits looks at it.
    #[inline]
    #[must_use]
    pub fn read_result(&self, ticket: Ticket) -> Option<ValueView<'_>> {
        self.manager.read_result(ticket)
    }

    /// Drops interest in an operation: its [`Done`] will not come, except when it is finished
    /// already. A write under way goes on, at the timestamp that it has, and is brought to an end;
    /// what its session does next comes after it. A commit may still move to later timestamps. A
    /// read is forgotten.
    pub fn cancel(&mut self, ticket: Ticket) {
        let slot = SlabKey { index: ticket.index, generation: ticket.generation };
        match ticket.kind {
            TicketKind::Read | TicketKind::Commit => self.manager.cancel(ticket),
            TicketKind::Single => self.singles.cancel(&mut self.context, slot, ticket.op),
        }
        self.context.assert_sound();
    }
}

/// Invariants.
impl<M: Manager> Engine<M> {
    /// What holds between any two calls, of all that is under way; in debug builds only. For calls
    /// that look at everything themselves; others ask their context alone, which costs little, and
    /// at the beginning where they return what they borrow.
    fn assert_all_sound(&self) {
        self.context.assert_sound();
        if cfg!(debug_assertions) {
            self.manager.assert_sound(&self.context);
            self.singles.assert_sound(&self.context);
        }
    }
}

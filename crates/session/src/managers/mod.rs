//! Transaction managers: what a transaction of one kind does at begin, read and commit.
//!
//! ```text
//!   application ── begin get write commit ──►┌─────────┐── request ──► frames to shards
//!                                            │ Manager │── wake_at ──► timers
//!   shards ── replies to its transactions ──►└─────────┘── finish  ──► results
//!                              all outputs go through the Context that the engine lends
//! ```
//! The engine is generic over its [`Manager`] and calls it statically. It knows that there are
//! transactions, which it names by slots, and nothing of their timestamps, reads and writes, nor of
//! how they commit. Another kind of transaction is another type beside [`timestamps`], and an
//! `Engine` over it.

use core::fmt;

use timestone_types::{Expiry, KeyspaceId, Timestamp};
use timestone_wire::RangeEntry;

use crate::engine::context::{Again, Context};
use crate::engine::number::Number;
use crate::engine::replies::Reply;
use crate::engine::reports::Reports;
use crate::engine::shards::ShardIndex;
use crate::engine::slab::SlabKey;
use crate::{
    KeyName, OpId, OpResult, OwnWrite, SessionError, Step, Ticket, TxnHandle, TxnOptions, ValueView,
};

pub(crate) mod timestamps;

pub(crate) use timestamps::Timestamps;

/// Who a transaction is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxnOwner {
    /// `None`: closed meanwhile.
    pub(crate) session: Option<SlabKey>,
    /// When its requests are given up; `None`: after the configured time each.
    pub(crate) deadline: Option<Timestamp>,
}

/// Transactions of one kind. A slot that it takes stays taken until its last result was handed out
/// and no participant is owed anything.
pub(crate) trait Manager: fmt::Debug {
    /// A manager without transactions; `seed` is for its tables.
    fn new(seed: u64) -> Self;

    /// Begins a transaction of an open session. Sends nothing.
    fn begin(
        &mut self,
        context: &mut Context,
        session: SlabKey,
        options: TxnOptions,
    ) -> Result<TxnHandle, SessionError>;

    /// The snapshot that an open transaction reads from.
    fn begin_timestamp(&self, txn: TxnHandle) -> Result<Timestamp, SessionError>;

    /// The session of an open transaction, and how long its requests are tried.
    fn owner(&self, txn: TxnHandle) -> Result<TxnOwner, SessionError>;

    /// Reads a key: from what the transaction knows, or from its shard.
    fn get(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        key: KeyName<'_>,
        op: OpId,
    ) -> Result<Step<'_>, SessionError>;

    /// What an open transaction knows of a key.
    fn peek(&self, txn: TxnHandle, key: KeyName<'_>) -> Option<ValueView<'_>>;

    /// A range was read at the transaction's snapshot, at every shard and to its end: it is validated at
    /// commit as what was read of single keys is.
    fn read_range(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        read: &RangeEntry<'_>,
    ) -> Result<(), SessionError>;

    /// What an open transaction is to write in a range, ascending by keys: values, or nothing where a key
    /// is deleted.
    fn writes_in(
        &self,
        txn: TxnHandle,
        range: &RangeEntry<'_>,
    ) -> Result<Vec<OwnWrite<'_>>, SessionError>;

    /// Puts a key at commit, or deletes it.
    fn write(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        key: KeyName<'_>,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), SessionError>;

    /// Makes everything of a keyspace absent at commit.
    fn fence(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        keyspace: KeyspaceId,
    ) -> Result<(), SessionError>;

    /// Its commit is acknowledged only when every clock has passed it.
    fn wait_for_clocks(&mut self, txn: TxnHandle);

    /// Forgets an open transaction.
    fn abort(&mut self, context: &mut Context, txn: TxnHandle);

    /// Commits; the handle is worth nothing afterwards.
    fn commit(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        op: OpId,
    ) -> Result<Step<'_>, SessionError>;

    /// Nobody waits for a read or a commit any more.
    fn cancel(&mut self, ticket: Ticket);

    /// What a read of an open transaction found.
    fn read_result(&self, ticket: Ticket) -> Option<ValueView<'_>>;

    /// What a finished read found, while its result is handed out.
    fn finished_read(&self, txn: SlabKey, item: u32) -> Option<ValueView<'_>>;

    /// How a transaction ended, while its result is handed out.
    fn commit_result(&self, txn: SlabKey) -> Option<OpResult<'_>>;

    /// The end of a transaction was handed out.
    fn handed_out(&mut self, txn: SlabKey);

    /// A reply from a shard to one of its transactions. `None` when nobody waits for it.
    fn deliver(
        &mut self,
        context: &mut Context,
        from: ShardIndex,
        number: Number,
        reply: Reply<'_>,
    ) -> Option<()>;

    /// Does what is due, and asks to be woken for what is due later.
    fn sweep(&mut self, context: &mut Context);

    /// The map is another one: keys may be elsewhere.
    fn follow_routes(&mut self, context: &mut Context);

    /// What was sent to shards whose connection is new, or that have moved, may be lost.
    fn ask_again(&mut self, context: &mut Context, again: Again);

    /// A session was closed: its open transactions are forgotten.
    fn close_session(&mut self, context: &mut Context, session: SlabKey);

    /// The client's id is another one: the snapshots of open transactions are not held any more.
    fn end_snapshots(&mut self, context: &mut Context);

    /// Says what its transactions hold back.
    fn report(&self, context: &Context, reports: &mut Reports);

    /// Asserts its invariants, of every transaction when they are few; for debug builds.
    fn assert_sound(&self, context: &Context);

    /// How many transactions are not finished at every participant.
    fn unresolved(&self) -> usize;
}

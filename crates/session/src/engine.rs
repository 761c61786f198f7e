//! The engine's interface: what a host calls, grouped as sessions, transactions, single keys, transport and time.

use core::time::Duration;

use timestone_types::{ClientId, Expiry, KeyspaceId, ShardId, Timestamp, TxnId};

use crate::{
    Condition, Done, EngineConfig, Mutation, OpId, RequestOptions, Routes, SessionError, SessionId, Step, Ticket,
    TxnHandle, TxnOptions, ValueView,
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
}

/// The client's side of Timestone for one event loop.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    client: ClientId,
    routes: Routes,
    stats: EngineStats,
    outbox: Vec<u8>,
}

/// Sessions.
impl Engine {
    /// An engine of `client` (an id that the master handed out). `seed` feeds the jitter of pauses and later timestamps. Every shard
    /// counts as connected until [`Engine::disconnected`] says otherwise.
    #[must_use]
    pub fn new(config: EngineConfig, client: ClientId, routes: Routes, seed: u64) -> Self {
        todo!("the engine lands next")
    }

    /// Opens a session. Transactions of one session see each other's effects, whatever the clock does.
    pub fn open_session(&mut self) -> Result<SessionId, SessionError> {
        todo!("the engine lands next")
    }

    /// Closes a session: its open transactions are forgotten, its commits under way are still brought to an end.
    pub fn close_session(&mut self, session: SessionId) {
        todo!("the engine lands next")
    }
}

/// Transactions.
impl Engine {
    /// Begins a transaction. Sends nothing.
    pub fn begin(
        &mut self,
        now: Timestamp,
        session: SessionId,
        options: TxnOptions,
    ) -> Result<TxnHandle, SessionError> {
        todo!("the engine lands next")
    }

    /// The snapshot that a transaction reads from.
    pub fn begin_timestamp(&self, txn: TxnHandle) -> Result<Timestamp, SessionError> {
        todo!("the engine lands next")
    }

    /// Reads a key: the transaction's own write, else its own earlier read ([`Step::Value`]), else the shard is asked
    /// ([`Step::Pending`], then a [`Done`] with `op`). Many may be under way at once.
    pub fn get(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        todo!("the engine lands next")
    }

    /// What the transaction knows about a key already, without asking anybody.
    pub fn peek(&self, txn: TxnHandle, keyspace: KeyspaceId, key: &[u8]) -> Option<ValueView<'_>> {
        todo!("the engine lands next")
    }

    /// Writes a key at commit. Checks the limits now.
    pub fn put(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), SessionError> {
        todo!("the engine lands next")
    }

    /// Deletes a key at commit.
    pub fn delete(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<(), SessionError> {
        todo!("the engine lands next")
    }

    /// Makes everything of a keyspace absent at commit, on every shard at one timestamp.
    pub fn fence(&mut self, now: Timestamp, txn: TxnHandle, keyspace: KeyspaceId) -> Result<(), SessionError> {
        todo!("the engine lands next")
    }

    /// Commits. Without writes, and when no read met a prepared write, at once and without a message ([`Step::Committed`]); else a
    /// [`Done`] with `op` follows: `Committed`, `Aborted`, `Unknown` or `Failed`. The handle is worth nothing afterwards.
    pub fn commit(&mut self, now: Timestamp, txn: TxnHandle, op: OpId) -> Result<Step<'_>, SessionError> {
        todo!("the engine lands next")
    }

    /// Forgets a transaction. Nothing was sent that would have to be taken back. Without effect when it has finished.
    pub fn abort(&mut self, txn: TxnHandle) {
        todo!("the engine lands next")
    }
}

/// Requests outside transactions.
impl Engine {
    /// Reads the latest version of one key, linearizably: waits for prepared writes.
    pub fn get_latest(
        &mut self,
        now: Timestamp,
        session: SessionId,
        keyspace: KeyspaceId,
        key: &[u8],
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        todo!("the engine lands next")
    }

    /// Writes one key, linearizably and exactly once, provided that `condition` holds (else `Aborted` with kind `Condition`).
    #[expect(clippy::too_many_arguments, reason = "a request outside a transaction says everything at once")]
    pub fn write_if(
        &mut self,
        now: Timestamp,
        session: SessionId,
        keyspace: KeyspaceId,
        key: &[u8],
        mutation: Mutation<'_>,
        condition: Condition,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        todo!("the engine lands next")
    }

    /// Asks every shard what became of a transaction.
    pub fn status(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        todo!("the engine lands next")
    }

    /// Sends any other idempotent request (scan, count, statistics) to a shard: `encode` appends one frame that carries the given
    /// request number. The answer is [`crate::OpResult::Frame`]. Asked again after a loss, until the deadline.
    pub fn ask(
        &mut self,
        now: Timestamp,
        shard: ShardId,
        options: RequestOptions,
        op: OpId,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Step<'_>, SessionError> {
        todo!("the engine lands next")
    }

    /// Drops interest in an operation: its [`Done`] will not come, except when it is finished already. A write under way goes on and
    /// is brought to an end; a read is forgotten.
    pub fn cancel(&mut self, ticket: Ticket) {
        todo!("the engine lands next")
    }
}

/// Transport.
impl Engine {
    /// Takes one reply frame that came from `shard`. Late, doubled and unreadable replies are counted and ignored.
    pub fn deliver(&mut self, now: Timestamp, shard: ShardId, frame: &[u8]) {
        todo!("the engine lands next")
    }

    /// The connection to `shard` is lost: what was asked is asked again after [`Engine::connected`]; nothing is reported failed.
    pub fn disconnected(&mut self, now: Timestamp, shard: ShardId) {
        todo!("the engine lands next")
    }

    /// The connection to `shard` stands (again).
    pub fn connected(&mut self, now: Timestamp, shard: ShardId) {
        todo!("the engine lands next")
    }

    /// The next shard with bytes to send, and its outbox: whole frames, which the host takes out (the buffer keeps its capacity) or
    /// leaves for later.
    pub fn next_dirty(&mut self) -> Option<(ShardId, &mut Vec<u8>)> {
        todo!("the engine lands next")
    }

    /// A shard's outbox.
    pub fn outbox(&mut self, shard: ShardId) -> Option<&mut Vec<u8>> {
        todo!("the engine lands next")
    }

    /// The next finished operation.
    pub fn next_done(&mut self) -> Option<Done<'_>> {
        todo!("the engine lands next")
    }

    /// A newer shard map: what waits for it is asked at the right place.
    pub fn set_routes(&mut self, now: Timestamp, routes: Routes) {
        todo!("the engine lands next")
    }

    /// The routes in use.
    pub fn routes(&self) -> &Routes {
        todo!("the engine lands next")
    }

    /// Whether some server said that the routes are outdated; cleared by [`Engine::set_routes`].
    pub fn wants_routes(&self) -> bool {
        todo!("the engine lands next")
    }

    /// Whether the server ended this client's session: the host asks for a new client id and calls [`Engine::renew_client`].
    pub fn wants_client(&self) -> bool {
        todo!("the engine lands next")
    }

    /// Goes on under a new client id. Open transactions are over (`TooOld`), commits under way are resolved by asking.
    pub fn renew_client(&mut self, now: Timestamp, client: ClientId) {
        todo!("the engine lands next")
    }

    /// The id that requests carry.
    pub fn client(&self) -> ClientId {
        todo!("the engine lands next")
    }
}

/// Time.
impl Engine {
    /// Does what is due: repeats, deadlines, terminations, reports.
    pub fn tick(&mut self, now: Timestamp) {
        todo!("the engine lands next")
    }

    /// When [`Engine::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        todo!("the engine lands next")
    }

    /// The physical clock's error bound, for `external_wait`.
    pub fn set_clock_error(&mut self, bound: Duration) {
        todo!("the engine lands next")
    }

    /// How long to pause before attempt number `attempt` (from 1) of a whole transaction: exponential with jitter.
    pub fn backoff(&mut self, attempt: u32) -> Duration {
        todo!("the engine lands next")
    }

    /// How many transactions and writes are not finished at every participant yet; a host that shuts down waits for 0, bounded.
    pub fn unresolved(&self) -> usize {
        todo!("the engine lands next")
    }

    /// The counters.
    pub fn stats(&self) -> EngineStats {
        todo!("the engine lands next")
    }
}

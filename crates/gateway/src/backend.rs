//! The store as commands and jobs see it: operations out, results in.
//!
//! ```text
//!   fast path, jobs ─► Backend ─► session::Engine ─► outboxes for shards
//!                        ▲ results ◄───────┘ ◄─────── answers of shards
//! ```
//! All connections share one session of the engine: its clock then sees every commit of every
//! client here, so a command never reads below one that was answered before it, and fewer writes
//! are sent round again with a later timestamp. Every operation is on the one keyspace that the
//! gateway serves.
//!
//! This is the only place that asks shards for anything. Deliberately absent: what commands mean,
//! whom a result is for (an operation's name says so, see [`Operation`]).

use timestone_cluster::{KeyspaceName, MapVersion, ServerInfo, ShardMap};
use timestone_session::{
    Condition, Engine, EngineConfig, Mutation, OpId, RequestOptions, Routes, SessionError,
    SessionId, Step, TxnHandle, TxnOptions, ValueView,
};
use timestone_types::{ClientId, HashSeed, KeyspaceId, Timestamp, hash_key};
use timestone_wire::{Envelope, RequestId, WireError};

use crate::commands::view::TransactionView;
use crate::jobs::job::Operation;
use crate::served::ServedKeyspace;

/// See the module.
pub(crate) struct Backend {
    engine: Engine,
    session: SessionId,
    seed: HashSeed,
    pub(crate) served: ServedKeyspace,
}

impl Backend {
    /// The backend of a client, for one keyspace; the seed makes hashes and pauses unpredictable.
    pub(crate) fn new(
        client: ClientId,
        routes: Routes,
        keyspace: KeyspaceName,
        seed: u64,
    ) -> Result<Self, SessionError> {
        // What meets a conflict becomes a job, which is tried again for as long as any.
        let config = EngineConfig { tries_again: false, ..EngineConfig::default() };
        let mut engine = Engine::new(config, client, routes, seed);
        let session = engine.open_session()?;
        let served = ServedKeyspace::new(keyspace);
        Ok(Self { engine, session, seed: HashSeed(seed), served })
    }

    /// The keyspace that is served.
    #[inline]
    pub(crate) const fn keyspace(&self) -> KeyspaceId {
        self.served.id()
    }

    /// What refusals call the servers that this gateway has no path to.
    pub(crate) fn name_servers(&mut self, map: &ShardMap) {
        for entry in map.shards() {
            let name = map
                .primary(entry.id)
                .map_or_else(|| "no server yet".to_owned(), ServerInfo::for_redis_clients);
            debug_assert!(!name.is_empty(), "the server of {} has a name", entry.id);
            self.engine.shards_mut().name_server(entry.id, &name);
        }
    }

    /// The engine, for whoever keeps it going: routes, client ids, outboxes, deadlines.
    #[inline]
    pub(crate) const fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The engine, to look at.
    pub(crate) const fn engine_ref(&self) -> &Engine {
        &self.engine
    }

    /// The hash by which the gateway knows a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        hash_key(self.seed, self.keyspace(), key).0
    }

    /// How many shards the cluster has.
    pub(crate) fn shard_count(&self) -> usize {
        self.engine.shards().routes().shards().len()
    }
}

/// Single keys.
impl Backend {
    /// Asks for the latest version of a key.
    ///
    /// # Errors
    /// The key's shard cannot be asked, or the key is none.
    #[inline]
    pub(crate) fn get_latest(
        &mut self,
        now: Timestamp,
        key: &[u8],
        operation: Operation,
    ) -> Result<(), SessionError> {
        operation.assert_packs();
        let (options, op) = (RequestOptions::default(), OpId(operation.pack()));
        let keyspace = self.keyspace();
        self.engine.get_latest(now, self.session, keyspace, key, options, op).map(drop)
    }

    /// Asks for a write of one key; with `previous`, the result has the value that was there.
    ///
    /// # Errors
    /// The key's shard cannot be asked, or key or value are none.
    #[inline]
    pub(crate) fn write_if(
        &mut self,
        now: Timestamp,
        key: &[u8],
        mutation: Mutation<'_>,
        condition: Condition<'_>,
        previous: bool,
        operation: Operation,
    ) -> Result<(), SessionError> {
        operation.assert_packs();
        let options = RequestOptions { return_previous: previous, ..RequestOptions::default() };
        let (keyspace, op) = (self.keyspace(), OpId(operation.pack()));
        self.engine
            .write_if(now, self.session, keyspace, key, mutation, condition, options, op)
            .map(drop)
    }
}

/// Calls of shards of this thread.
impl Backend {
    /// Where the session's clock stands for a call that begins now; `None` if the session is gone.
    #[inline]
    pub(crate) fn begin_direct(&mut self, now: Timestamp) -> Option<Timestamp> {
        let begun = self.engine.begin_direct(now, self.session);
        debug_assert!(begun.is_ok(), "the session began with this gateway");
        begun.ok()
    }

    /// A call has found, or put, something at `at`.
    #[inline]
    pub(crate) fn end_direct(&mut self, at: Timestamp) {
        self.engine.end_direct(self.session, at);
    }
}

/// Transactions.
impl Backend {
    /// Begins a transaction whose commit validates what it has read.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn begin_strict(&mut self, now: Timestamp) -> Result<TxnHandle, SessionError> {
        let options = TxnOptions { strict: true, ..TxnOptions::default() };
        let txn = self.engine.begin(now, self.session, options)?;
        debug_assert!(self.is_open(txn), "what has begun is under way");
        Ok(txn)
    }

    /// Begins a transaction that only reads, and tells its snapshot.
    ///
    /// # Errors
    /// There are too many, or a shard has no server: a SCAN that would stop there is not begun.
    pub(crate) fn begin_snapshot(
        &mut self,
        now: Timestamp,
    ) -> Result<(TxnHandle, Timestamp), SessionError> {
        self.engine.shards().reaches_all()?;
        let options = TxnOptions { read_only: true, ..TxnOptions::default() };
        let txn = self.engine.begin(now, self.session, options)?;
        let at = self.engine.begin_timestamp(txn)?;
        debug_assert!(at > Timestamp::ZERO, "a snapshot of nothing");
        Ok((txn, at))
    }

    /// Asks for a key's value in a transaction; whether a result follows.
    ///
    /// # Errors
    /// The key's shard cannot be asked, or the key is none.
    pub(crate) fn get(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        key: &[u8],
        operation: Operation,
    ) -> Result<bool, SessionError> {
        operation.assert_packs();
        let keyspace = self.keyspace();
        let step = self.engine.get(now, txn, keyspace, key, OpId(operation.pack()))?;
        Ok(matches!(step, Step::Pending(_)))
    }

    /// A key as a transaction has it.
    pub(crate) fn peek(&self, txn: TxnHandle, key: &[u8]) -> Option<ValueView<'_>> {
        self.engine.peek(txn, self.keyspace(), key)
    }

    /// How long the value is that a key has in a transaction.
    pub(crate) fn value_length(&self, txn: TxnHandle, key: &[u8]) -> usize {
        self.peek(txn, key).and_then(|view| view.value).map_or(0, <[u8]>::len)
    }

    /// Whether a transaction is under way: it ends with its session, which the server may end.
    pub(crate) fn is_open(&self, txn: TxnHandle) -> bool {
        self.engine.begin_timestamp(txn).is_ok()
    }

    /// The keys of a transaction that is under way, for commands.
    pub(crate) fn view(&mut self, txn: TxnHandle, now: Timestamp) -> TransactionView<'_> {
        debug_assert!(self.is_open(txn), "commands see what is under way");
        let keyspace = self.keyspace();
        TransactionView { engine: &mut self.engine, txn, now, keyspace }
    }

    /// Clears the keyspace when the transaction commits.
    ///
    /// # Errors
    /// The transaction is over.
    pub(crate) fn clear_keyspace(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
    ) -> Result<(), SessionError> {
        let cleared = self.engine.fence(now, txn, self.keyspace());
        debug_assert!(cleared.is_err() || self.is_open(txn));
        cleared
    }

    /// Commits a transaction; whether a result follows.
    ///
    /// # Errors
    /// A finished transaction, or a full outbox: it is over then as well.
    pub(crate) fn commit(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        operation: Operation,
    ) -> Result<bool, SessionError> {
        operation.assert_packs();
        let step = self.engine.commit(now, txn, OpId(operation.pack()))?;
        Ok(matches!(step, Step::Pending(_)))
    }

    /// Ends a transaction without effect, if it is not over.
    pub(crate) fn abort(&mut self, txn: TxnHandle) {
        self.engine.abort(txn);
        debug_assert!(!self.is_open(txn), "what is ended is over");
    }
}

/// Whole shards.
impl Backend {
    /// Sends a shard, named by its place in the map, a question; `encode` writes its frame.
    ///
    /// # Errors
    /// There is no such shard, or it cannot be asked.
    pub(crate) fn ask_shard(
        &mut self,
        now: Timestamp,
        place: usize,
        operation: Operation,
        encode: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) -> Result<(), SessionError> {
        operation.assert_packs();
        let routes = self.engine.shards().routes();
        let &(shard, epoch) = routes.shards().get(place).ok_or(SessionError::NoShard)?;
        let map_version = MapVersion::new(routes.version());
        let op = OpId(operation.pack());
        self.engine.ask(now, shard, RequestOptions::default(), op, |request, out| {
            encode(&Envelope { shard, epoch, request: RequestId::new(request), map_version }, out);
        })?;
        Ok(())
    }

    /// The session takes no snapshot below this from now on.
    pub(crate) fn saw(&mut self, at: Timestamp) {
        // Only the session, which began with this gateway, can be missing: then the attempt that
        // follows says so.
        let seen = self.engine.saw(self.session, at);
        debug_assert!(seen.is_ok(), "the session began with this gateway");
    }

    /// Planted: the server of the shard in a place is not connected, and the shard counts as read to
    /// its end.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn leaves_out(&self, place: usize) -> bool {
        let shards = self.engine.shards();
        let shard = shards.routes().shards().get(place);
        timestone_types::is_planted!(PartialKeyspace)
            && shard.is_some_and(|&(shard, _)| !shards.is_connected(shard))
    }

    /// Takes answers of a shard.
    ///
    /// # Errors
    /// They cannot be read; the requests will be sent again.
    pub(crate) fn deliver(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), WireError> {
        debug_assert!(!bytes.is_empty(), "an answer of nothing");
        self.engine.deliver_batch(now, bytes)
    }
}

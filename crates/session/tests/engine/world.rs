//! One engine against reference shards, over a network that can be fair or foul.

use std::collections::VecDeque;
use std::time::Duration;

use timestone_cluster::MapVersion;
use timestone_session::{
    Abort, Engine, EngineConfig, KeyName, OpId, OpResult, Routes, SessionError, SessionId, Step,
    TxnStatus,
};
use timestone_testkit::Host;
use timestone_types::{
    AbortReason, ClientId, Epoch, KeyspaceId, ShardId, Timestamp, TxnId, Version,
};

/// The keyspace of all tests that need only one.
pub(crate) const SPACE: KeyspaceId = KeyspaceId::DEFAULT;

/// A key of [`SPACE`].
pub(crate) const fn name(key: &[u8]) -> KeyName<'_> {
    KeyName { keyspace: SPACE, key }
}

/// What came of an operation, owned.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    Value(Option<Vec<u8>>, Version),
    Committed(Timestamp, Option<TxnId>),
    Written(Timestamp, TxnId, Option<Vec<u8>>),
    Aborted {
        reason: AbortReason,
        key: Option<Vec<u8>>,
        read: Option<Version>,
        found: Option<Vec<u8>>,
    },
    Unknown(TxnId),
    Status(TxnStatus),
    Frame(Vec<u8>),
    Failed(SessionError),
}

impl From<OpResult<'_>> for Outcome {
    fn from(result: OpResult<'_>) -> Self {
        match result {
            OpResult::Value(view) => Self::Value(view.value.map(<[u8]>::to_vec), view.version),
            OpResult::Committed(committed) => Self::Committed(committed.timestamp, committed.txn),
            OpResult::Written(written) => {
                let previous = written.previous.and_then(|view| view.value.map(<[u8]>::to_vec));
                Self::Written(written.timestamp, written.txn, previous)
            }
            OpResult::Aborted(Abort { reason, key, read, found, .. }) => Self::Aborted {
                reason,
                key: key.map(|key| key.key.to_vec()),
                read,
                found: found.and_then(|view| view.value.map(<[u8]>::to_vec)),
            },
            OpResult::Unknown(txn) => Self::Unknown(txn),
            OpResult::Status(status) => Self::Status(status),
            OpResult::Frame(bytes) => Self::Frame(bytes.to_vec()),
            OpResult::Failed(error) => Self::Failed(error),
        }
    }
}

/// The engine, and what it has told.
pub(crate) struct Client {
    pub(crate) engine: Engine,
    pub(crate) done: VecDeque<(OpId, Outcome)>,
    /// The newest map, where somebody tells it to who asks.
    pub(crate) newest: Option<Routes>,
    /// How often the map was asked for.
    pub(crate) pulls: u32,
    next_op: u64,
}

impl Client {
    fn collect(&mut self) {
        while let Some(done) = self.engine.next_done() {
            let outcome = done.result.into();
            self.done.push_back((done.op, outcome));
        }
    }

    /// Asks for the map when the engine wants it; connects where the newest one has the shards.
    fn look_for_map(&mut self, now: Timestamp) {
        if self.engine.begin_pull(now).is_none() {
            return;
        }
        self.pulls += 1;
        let Some(newest) = &self.newest else { return };
        let version = MapVersion::new(newest.version());
        if !self.engine.shards_mut().routes_are_of(version) {
            self.engine.set_routes(now, newest.clone());
            for &(shard, _) in newest.shards() {
                if !self.engine.shards().is_connected(shard) {
                    self.engine.connected(now, shard);
                }
            }
        }
    }

    fn take(&mut self, op: OpId) -> Option<Outcome> {
        self.collect();
        let at = self.done.iter().position(|(done, _)| *done == op)?;
        Some(self.done.remove(at).unwrap().1)
    }
}

impl Host for Client {
    fn next_outgoing(&mut self) -> Option<(ShardId, Vec<u8>)> {
        let (shard, bytes) = self.engine.shards_mut().next_dirty()?;
        Some((shard, std::mem::take(bytes)))
    }

    fn deliver(&mut self, now: Timestamp, batch: &[u8]) {
        self.engine.deliver_batch(now, batch).unwrap();
        if self.engine.shards().wants_arrival() {
            self.engine.shards_mut().arrived(now);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.engine.next_deadline().into_iter().chain(self.engine.next_pull()).min()
    }

    fn tick(&mut self, now: Timestamp) {
        self.engine.tick(now);
        self.look_for_map(now);
        self.collect();
    }
}

pub(crate) type World = timestone_testkit::World<Client>;

/// Routes to `shards` shards in an epoch.
pub(crate) fn routes(version: u32, shards: u16, epoch: u32) -> Routes {
    let list = (0..shards).map(|raw| (ShardId::new(raw), Epoch::new(epoch))).collect();
    Routes::new(version, list, move |slot| Some(ShardId::new(slot.get() % shards)))
}

/// A world of so many shards.
pub(crate) fn world(shards: u16) -> World {
    world_with(shards, EngineConfig::default(), 7)
}

pub(crate) fn world_with(shards: u16, config: EngineConfig, seed: u64) -> World {
    let engine = Engine::new(config, ClientId::new(3), routes(1, shards, 1), seed);
    World::new(
        Client { engine, done: VecDeque::new(), newest: None, pulls: 0, next_op: 1 },
        shards,
        seed,
    )
}

/// What applications do with an engine.
pub(crate) trait Application {
    fn op(&mut self) -> OpId;
    fn session(&mut self) -> SessionId;
    /// The result of an operation, waited for at most 60 s.
    fn wait(&mut self, op: OpId) -> Outcome;
    /// The result of something that was just begun with `op`.
    fn outcome(&mut self, op: OpId, begun: Result<bool, SessionError>) -> Outcome;
}

impl Application for World {
    fn op(&mut self) -> OpId {
        self.host.next_op += 1;
        OpId(self.host.next_op)
    }

    fn session(&mut self) -> SessionId {
        self.host.engine.open_session().unwrap()
    }

    fn wait(&mut self, op: OpId) -> Outcome {
        let until = self.now.saturating_add(Duration::from_secs(60));
        let found = self.drive(until, |world| world.host.take(op));
        found.unwrap_or_else(|| panic!("operation {op:?} is not finished after a minute"))
    }

    fn outcome(&mut self, op: OpId, begun: Result<bool, SessionError>) -> Outcome {
        match begun {
            Ok(true) => self.wait(op),
            Ok(false) => panic!("answered at once"),
            Err(error) => Outcome::Failed(error),
        }
    }
}

/// Whether a step has to be waited for.
pub(crate) fn pending(step: Result<Step<'_>, SessionError>) -> Result<bool, SessionError> {
    step.map(|step| matches!(step, Step::Pending(_)))
}

//! One engine, some naive shards, and a network between them that loses, doubles and reorders, all
//! from one seed and under one clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use timestone_session::{
    Abort, Engine, EngineConfig, OpId, OpResult, Routes, SessionError, SessionId, Step, TxnStatus,
};
use timestone_types::{
    AbortReason, ClientId, Epoch, KeyspaceId, ShardId, Timestamp, TxnId, Version, slot_of,
};
use timestone_wire::{
    ClockIs, Envelope, Frame, Frames, Kind, Message, StatusIs, Terminate, TxnState,
};

use crate::shard::Shard;

/// The keyspace of all tests that need only one.
pub(crate) const SPACE: KeyspaceId = KeyspaceId::DEFAULT;
/// When the world begins.
pub(crate) const BEGIN: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

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

/// How the network treats frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Of 1000 frames, how many are lost.
    pub(crate) loss: u64,
    /// Of 1000 frames, how many arrive twice.
    pub(crate) doubled: u64,
    /// Shortest and longest way.
    pub(crate) delay: (Duration, Duration),
}

impl Weather {
    pub(crate) const FAIR: Self =
        Self { loss: 0, doubled: 0, delay: (Duration::from_micros(50), Duration::from_micros(50)) };
    pub(crate) const FOUL: Self = Self {
        loss: 100,
        doubled: 100,
        delay: (Duration::from_micros(20), Duration::from_millis(5)),
    };
}

enum To {
    Shard(usize),
    Engine,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) shards: Vec<Shard>,
    pub(crate) now: Timestamp,
    pub(crate) weather: Weather,
    /// Nothing gets to or from these shards.
    pub(crate) cut: Vec<bool>,
    flying: BTreeMap<(Timestamp, u64), (To, Vec<u8>)>,
    flown: u64,
    random: u64,
    pub(crate) done: VecDeque<(OpId, Outcome)>,
    next_op: u64,
}

/// The shard of a key when there are `shards`.
pub(crate) fn shard_of(key: &[u8], shards: u16) -> usize {
    usize::from(slot_of(key).get() % shards)
}

/// Routes to `shards` shards in an epoch.
pub(crate) fn routes(version: u32, shards: u16, epoch: u32) -> Routes {
    let list = (0..shards).map(|raw| (ShardId::new(raw), Epoch::new(epoch))).collect();
    Routes::new(version, list, move |slot| Some(ShardId::new(slot.get() % shards)))
}

impl World {
    pub(crate) fn new(shards: u16) -> Self {
        Self::with(shards, EngineConfig::default(), 7)
    }

    pub(crate) fn with(shards: u16, config: EngineConfig, seed: u64) -> Self {
        Self {
            engine: Engine::new(config, ClientId::new(3), routes(1, shards, 1), seed),
            shards: (0..shards).map(|raw| Shard::new(ShardId::new(raw))).collect(),
            now: BEGIN,
            weather: Weather::FAIR,
            cut: vec![false; usize::from(shards)],
            flying: BTreeMap::new(),
            flown: 0,
            random: seed,
            done: VecDeque::new(),
            next_op: 1,
        }
    }

    /// A number below `bound`.
    pub(crate) fn random(&mut self, bound: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    pub(crate) fn op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    pub(crate) fn session(&mut self) -> SessionId {
        self.engine.open_session().unwrap()
    }

    /// A key that lives on that shard, the `n`-th of them.
    pub(crate) fn key_on(&self, shard: usize, n: usize) -> Vec<u8> {
        let shards = self.shards.len() as u16;
        let names = (0..).map(|i| format!("key-{i}").into_bytes());
        names.filter(|key| shard_of(key, shards) == shard).nth(n).unwrap()
    }

    pub(crate) fn shard_of(&mut self, key: &[u8]) -> &mut Shard {
        let shards = self.shards.len() as u16;
        &mut self.shards[shard_of(key, shards)]
    }

    fn fly(&mut self, to: impl Fn() -> To, frame: &[u8]) {
        let copies = match self.random(1000) {
            luck if luck < self.weather.loss => 0,
            luck if luck < self.weather.loss + self.weather.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let (least, most) = self.weather.delay;
            let spread = (most - least).as_nanos() as u64;
            let delay = least + Duration::from_nanos(self.random(spread + 1));
            self.flown += 1;
            let at = (self.now.saturating_add(delay), self.flown);
            self.flying.insert(at, (to(), frame.to_vec()));
        }
    }

    fn ship(&mut self) {
        let mut frame_batches = Vec::new();
        while let Some((shard, bytes)) = self.engine.next_dirty() {
            frame_batches.push((usize::from(shard.get()), std::mem::take(bytes)));
        }
        for (shard, bytes) in frame_batches {
            for frame in Frames::new(&bytes) {
                if !self.cut[shard] {
                    self.fly(|| To::Shard(shard), frame.unwrap().bytes());
                }
            }
        }
        while let Some(done) = self.engine.next_done() {
            let outcome = done.result.into();
            self.done.push_back((done.op, outcome));
        }
    }

    /// Each answer travels alone, with a reading of the shard's clock in front of it, where it has
    /// one.
    fn reply(&mut self, shard: usize, bytes: &[u8]) {
        let reading = self.shards[shard]
            .clock_ahead
            .map(|ahead| ClockIs::new(self.now.saturating_add(ahead), None));
        for frame in Frames::new(bytes) {
            if !self.cut[shard] {
                let mut batch = Vec::new();
                let envelope =
                    Envelope { shard: ShardId::new(shard as u16), ..Envelope::default() };
                reading.iter().for_each(|reading| reading.encode(&envelope, &mut batch));
                batch.extend_from_slice(frame.unwrap().bytes());
                self.fly(|| To::Engine, &batch);
            }
        }
    }

    /// Termination among the shards, done at once: whoever is asked freezes all and decides.
    fn terminate(&mut self, asked: usize, frame: &Frame<'_>) {
        let terminate = Terminate::decode(frame).unwrap();
        let txn = terminate.txn;
        let members: Vec<usize> =
            terminate.participants.iter().map(|shard| usize::from(shard.get())).collect();
        let states: Vec<TxnState> =
            members.iter().map(|&member| self.shards[member].freeze(txn)).collect();
        let committed = states
            .iter()
            .find_map(|state| if let TxnState::Committed(at) = state { Some(*at) } else { None });
        let promised = match states[0] {
            TxnState::Prepared(at)
                if states.iter().all(|state| *state == TxnState::Prepared(at)) =>
            {
                Some(at)
            }
            _ => None,
        };
        let decision = committed.or(promised);
        for member in members {
            if !matches!(self.shards[member].state(txn), TxnState::Aborted) || decision.is_some() {
                self.shards[member].decide(txn, decision);
            }
        }
        let state = decision.map_or(TxnState::Aborted, TxnState::Committed);
        let mut out = Vec::new();
        StatusIs { txn, state }.encode(
            &frame.reply_envelope(self.shards[asked].epoch, frame.envelope().map_version),
            &mut out,
        );
        self.reply(asked, &out);
    }

    /// Goes to the next thing that happens, at most to `until`.
    fn step(&mut self, until: Timestamp) {
        self.ship();
        let flying = self.flying.keys().next().map(|key| key.0);
        let waiting = self.shards.iter().filter_map(Shard::next_deadline).min();
        let next = [flying, waiting, self.engine.next_deadline()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(until);
        self.now = self.now.max(next.min(until));
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let (to, frame) = entry.remove();
            let mut out = Vec::new();
            match to {
                To::Engine => {
                    self.engine.deliver_frame_batch(self.now, &frame).unwrap();
                    if self.engine.wants_arrival() {
                        self.engine.arrived(self.now);
                    }
                }
                To::Shard(shard) => {
                    let parsed = Frame::parse(&frame).unwrap();
                    if parsed.kind() == Kind::Terminate {
                        self.terminate(shard, &parsed);
                    } else {
                        self.shards[shard].take(self.now, &frame, &mut out);
                    }
                    self.reply(shard, &out);
                }
            }
        }
        for shard in 0..self.shards.len() {
            if self.shards[shard].next_deadline().is_some_and(|at| at <= self.now) {
                let mut out = Vec::new();
                self.shards[shard].turn(self.now, &mut out);
                self.reply(shard, &out);
            }
        }
        self.engine.tick(self.now);
        self.ship();
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        let until = self.now.saturating_add(span);
        while self.now < until {
            self.step(until);
        }
    }

    /// The result of an operation, waited for at most 60 s.
    pub(crate) fn wait(&mut self, op: OpId) -> Outcome {
        let until = self.now.saturating_add(Duration::from_secs(60));
        loop {
            if let Some(at) = self.done.iter().position(|(done, _)| *done == op) {
                return self.done.remove(at).unwrap().1;
            }
            assert!(self.now < until, "operation {op:?} is not finished after a minute");
            self.step(until);
        }
    }

    /// The result of something that was just begun with `op`.
    pub(crate) fn outcome(&mut self, op: OpId, begun: Result<bool, SessionError>) -> Outcome {
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

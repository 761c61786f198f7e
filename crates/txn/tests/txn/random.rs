//! Random runs: several clients and shards, skewed clocks, lost, doubled and reordered messages,
//! crashes with loss of what was not synced. When the faults stop, everything must come to its end,
//! and what was committed must be serializable and whole.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use timestone_txn::coordinator::{self, CommitKind, CommitResult, Coordinator};
use timestone_txn::participant::{Config, Output, ReadAt, Token, Wait, WriteKind};
use timestone_txn::validation::{LocalValidation, Timestamps, Validation};
use timestone_types::{
    ClientId, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, TxnOutcome, Version, random,
};

use crate::check::{Committed, violation};
use crate::stage::{Event, Key, Part, Read, Request, Stage, Value, Write};

const KEYS: u64 = 6;
const STEP: Duration = Duration::from_millis(2);

struct Dice(random::Dice);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0.roll() % sides
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Address {
    Client(usize),
    Shard(usize),
}

#[derive(Clone, Debug)]
enum Body {
    Ask(Request),
    Answer(TxnId, Output, Option<Value>),
}

struct Client {
    id: ClientId,
    skew: i64,
    seen: Timestamp,
    sequence: u64,
    begin: Timestamp,
    open: Option<TxnId>,
    wanted: Vec<Key>,
    reads: BTreeMap<Key, (Value, bool)>,
    writes: Vec<Key>,
    coordinator: Coordinator,
    called: Timestamp,
    since: Timestamp,
}

struct World<V: Validation> {
    dice: Dice,
    now: Timestamp,
    faults: bool,
    stages: Vec<Stage<V>>,
    /// Read-only transactions are validated by the shards as well.
    strict: bool,
    clients: Vec<Client>,
    flying: BTreeMap<(Timestamp, u64), (Address, Address, Body)>,
    sent: u64,
    tokens: BTreeMap<Token, (Address, TxnId)>,
    history: BTreeMap<TxnId, Committed>,
    told: BTreeMap<TxnId, TxnOutcome>,
    attempts: BTreeMap<TxnId, Committed>,
}

/// Every fifth transaction deletes what it writes.
fn deletes(txn: TxnId) -> bool {
    txn.sequence.get().is_multiple_of(5)
}

fn shard_of(key: &Key, shards: usize) -> usize {
    key.1.bytes().map(usize::from).sum::<usize>() % shards
}

impl<V: Validation + Default> World<V> {
    fn new(seed: u64, shards: u16, clients: u32, strict: bool) -> Self {
        let mut dice = Dice(random::Seed(seed).dice());
        let clients = (1..=clients)
            .map(|id| Client {
                id: ClientId::new(id),
                skew: dice.roll(60_000_000) as i64 - 30_000_000,
                seen: Timestamp::ZERO,
                sequence: 0,
                begin: Timestamp::ZERO,
                open: None,
                wanted: Vec::new(),
                reads: BTreeMap::new(),
                writes: Vec::new(),
                coordinator: Coordinator::new(),
                called: Timestamp::ZERO,
                since: Timestamp::ZERO,
            })
            .collect();
        let mut world = Self {
            dice,
            now: Timestamp::from_nanos(10_000_000_000),
            faults: true,
            stages: (0..shards)
                .map(|shard| {
                    // Every other run is one of shards with replicas, which a restart makes wait.
                    let has_replicas = seed % 2 == 1;
                    let config = Config { has_replicas, ..Config::default() };
                    let mut stage = Stage::new(ShardId::new(shard), config);
                    stage.clock_error = Duration::from_millis(3);
                    stage
                })
                .collect(),
            strict,
            clients,
            flying: BTreeMap::new(),
            sent: 0,
            tokens: BTreeMap::new(),
            history: BTreeMap::new(),
            told: BTreeMap::new(),
            attempts: BTreeMap::new(),
        };
        for shard in 0..world.stages.len() {
            let events = world.stages[shard].recover(world.now);
            world.absorb(shard, events);
        }
        world
    }

    fn send(&mut self, from: Address, to: Address, body: Body) {
        let copies = match self.dice.roll(40) {
            0 if self.faults => 0,
            1 if self.faults => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let slow = if self.faults && self.dice.roll(50) == 0 { 400 } else { 4 };
            let delay = Duration::from_micros(50 + self.dice.roll(slow * 1000));
            self.sent += 1;
            self.flying
                .insert((self.now.saturating_add(delay), self.sent), (from, to, body.clone()));
        }
    }

    fn absorb(&mut self, shard: usize, events: Vec<Event>) {
        let from = Address::Shard(shard);
        let id = ShardId::new(shard as u16);
        for (output, value) in events {
            let peer = |to: ShardId| Address::Shard(usize::from(to.get()));
            match output {
                Output::AskFreeze { to, txn, begin } => {
                    self.send(from, peer(to), Body::Ask(Request::Freeze { txn, begin }));
                }
                Output::AskTerminate { to, txn, begin, .. } => {
                    let participants = self.stages[shard].participants_of(txn);
                    self.send(
                        from,
                        peer(to),
                        Body::Ask(Request::Terminate { txn, begin, participants }),
                    );
                }
                Output::TellDecision { to, txn, outcome } => {
                    self.send(from, peer(to), Body::Ask(Request::Decide { txn, outcome }));
                }
                Output::ReadNow { token, at, .. }
                    if self.stages[shard].collected.check(at).is_ok() =>
                {
                    self.answer(shard, token, output, value);
                }
                Output::Vote { token, .. }
                | Output::Repeated { token, .. }
                | Output::Refuse { token, .. }
                | Output::StatusIs { token, .. }
                | Output::AskWriteSet { token, .. } => self.answer(shard, token, output, value),
                Output::FreezeAnswer { token, txn, state } => match self.tokens.get(&token) {
                    Some(&(to, _)) => {
                        self.send(
                            from,
                            to,
                            Body::Ask(Request::FreezeAnswer { from: id, txn, state }),
                        );
                    }
                    None => panic!("a question has a token"),
                },
                Output::AckDecision { token, txn } => match self.tokens.get(&token) {
                    Some(&(to @ Address::Shard(_), _)) => {
                        self.send(from, to, Body::Ask(Request::DecisionAcked { from: id, txn }));
                    }
                    _ => self.answer(shard, token, output, value),
                },
                _ => {}
            }
        }
    }

    fn answer(&mut self, shard: usize, token: Token, output: Output, value: Option<Value>) {
        if let Some(&(to @ Address::Client(_), txn)) = self.tokens.get(&token) {
            self.send(Address::Shard(shard), to, Body::Answer(txn, output, value));
        }
    }

    fn clock(&mut self, client: usize) -> Timestamp {
        let one = &mut self.clients[client];
        let physical = self.now.as_nanos().saturating_add_signed(one.skew);
        one.seen = Timestamp::from_nanos(physical).max(one.seen.next());
        one.seen
    }

    fn key(&mut self) -> Key {
        (KeyspaceId::DEFAULT, format!("k{}", self.dice.roll(KEYS)))
    }

    fn begin(&mut self, client: usize) {
        let begin = self.clock(client);
        let reads = 1 + self.dice.roll(3);
        let mut wanted: Vec<Key> = (0..reads).map(|_| self.key()).collect();
        wanted.sort();
        wanted.dedup();
        let count = self.dice.roll(3);
        let mut writes: Vec<Key> = (0..count).map(|_| self.key()).collect();
        writes.sort();
        writes.dedup();
        let one = &mut self.clients[client];
        one.sequence += 1;
        one.open = Some(TxnId::new(one.id, Sequence::new(one.sequence)));
        (one.begin, one.since, one.wanted, one.writes) = (begin, self.now, wanted, writes);
        one.reads.clear();
        one.coordinator.reset();
        self.ask_reads(client);
    }

    fn ask_reads(&mut self, client: usize) {
        let one = &self.clients[client];
        let at = ReadAt::Snapshot(one.begin);
        let missing: Vec<Key> =
            one.wanted.iter().filter(|key| !one.reads.contains_key(*key)).cloned().collect();
        for key in missing {
            let to = Address::Shard(shard_of(&key, self.stages.len()));
            let wait = if self.dice.roll(4) == 0 { Wait::No } else { Wait::Yes };
            self.send(Address::Client(client), to, Body::Ask(Request::Read { key, at, wait }));
        }
    }

    /// All reads are there: commit, here or over the shards.
    fn commit(&mut self, client: usize) {
        let (now, shards) = (self.now, self.stages.len());
        let commit = self.clock(client);
        let one = &mut self.clients[client];
        let Some(txn) = one.open else { return };
        let reads: Vec<(Key, Version)> =
            one.reads.iter().map(|(key, read)| (key.clone(), read.0.version)).collect();
        one.called = now;
        if one.writes.is_empty() && !self.strict {
            let mut validation = LocalValidation::default();
            one.reads.values().for_each(|read| validation.observe(0, read.1));
            if validation.commits() {
                let committed = Committed { reads, called: now, told: now, ..Committed::default() };
                self.history.insert(txn, committed);
            }
            one.open = None;
            return;
        }
        let keys = one.reads.keys().chain(&one.writes);
        let mut participants: Vec<ShardId> =
            keys.map(|key| ShardId::new(shard_of(key, shards) as u16)).collect();
        participants.sort_unstable();
        participants.dedup();
        let (writes, deletes) = (one.writes.clone(), deletes(txn));
        self.attempts
            .insert(txn, Committed { reads, writes, deletes, called: now, ..Committed::default() });
        let input = coordinator::Input::Commit {
            txn,
            begin: one.begin,
            commit,
            participants: &participants,
            kind: if self.clients[client].writes.is_empty() {
                CommitKind::StrictReadOnly
            } else {
                CommitKind::ReadWrite
            },
            external_wait: false,
            error_bound: Duration::ZERO,
            deadline: now.saturating_add(Duration::from_secs(60)),
        };
        self.coordinate(client, input);
    }

    fn part(&self, client: usize, shard: usize, commit: Timestamp, single: bool) -> Part {
        let one = &self.clients[client];
        let here = |key: &Key| shard_of(key, self.stages.len()) == shard;
        let read = |(key, read): (&Key, &(Value, bool))| Read {
            key: key.clone(),
            version: read.0.version,
            absent: read.0.value.is_none(),
            expires_at: Expiry::NEVER,
        };
        let txn = one.open.unwrap();
        let write = |key: &Key| Write {
            key: key.clone(),
            kind: if deletes(txn) { WriteKind::Delete } else { WriteKind::Put },
            value: txn.to_string(),
            expires_at: Expiry::NEVER,
        };
        Part {
            ranges: Vec::new(),
            txn,
            begin: one.begin,
            commit,
            placed_by: commit,
            single,
            wait: Wait::Yes,
            participants: one.coordinator.participants().to_vec(),
            reads: one.reads.iter().filter(|one| here(one.0)).map(read).collect(),
            writes: one.writes.iter().filter(|key| here(key)).map(write).collect(),
            expect: None,
            looked: None,
        }
    }

    fn coordinate(&mut self, client: usize, input: coordinator::Input<'_>) {
        let mut out = Vec::new();
        self.clients[client].coordinator.step(self.now, input, &mut out);
        let from = Address::Client(client);
        let Some(txn) = self.clients[client].open else { return };
        for output in out {
            use coordinator::Output;
            let to = |to: ShardId| Address::Shard(usize::from(to.get()));
            match output {
                Output::Prepare { to: shard, commit, single } => {
                    let part = self.part(client, usize::from(shard.get()), commit, single);
                    self.send(from, to(shard), Body::Ask(Request::Prepare(part)));
                }
                Output::SendWriteSet { to: shard, commit } => {
                    let part = self.part(client, usize::from(shard.get()), commit, false);
                    self.send(from, to(shard), Body::Ask(Request::WriteSet(part)));
                }
                Output::Decide { to: shard, outcome } => {
                    self.send(from, to(shard), Body::Ask(Request::Decide { txn, outcome }));
                }
                Output::Terminate { to: shard } => {
                    let begin = self.clients[client].begin;
                    let participants = self.clients[client].coordinator.participants().to_vec();
                    self.send(
                        from,
                        to(shard),
                        Body::Ask(Request::Terminate { txn, begin, participants }),
                    );
                }
                Output::Finished(CommitResult::Committed(at)) => {
                    self.clients[client].seen = self.clients[client].seen.max(at);
                    self.told.insert(txn, TxnOutcome::Committed(at));
                    self.note_committed(txn, at, self.now);
                }
                Output::Finished(CommitResult::Aborted { .. } | CommitResult::Refused { .. }) => {
                    self.told.insert(txn, TxnOutcome::Aborted);
                }
                Output::Finished(CommitResult::Unknown) => {}
                Output::Done => self.clients[client].open = None,
            }
        }
    }

    fn note_committed(&mut self, txn: TxnId, at: Timestamp, told: Timestamp) {
        let version = Version::new(at, txn.client);
        self.history.insert(txn, Committed { version, told, ..self.attempts[&txn].clone() });
    }

    fn deliver(&mut self, from: Address, to: Address, body: Body) {
        match (to, body) {
            (Address::Shard(shard), Body::Ask(request)) => {
                let token = Token(self.tokens.len() as u64 + 1);
                let txn = match (from, &request) {
                    (
                        Address::Client(client),
                        Request::Read { at: ReadAt::Snapshot(begin), .. },
                    ) => {
                        let one = &self.clients[client];
                        if one.begin == *begin {
                            one.open.unwrap_or_default()
                        } else {
                            TxnId::default()
                        }
                    }
                    (_, Request::Prepare(part) | Request::WriteSet(part)) => part.txn,
                    (
                        _,
                        Request::Decide { txn, .. }
                        | Request::Terminate { txn, .. }
                        | Request::Freeze { txn, .. },
                    ) => *txn,
                    _ => TxnId::default(),
                };
                self.tokens.insert(token, (from, txn));
                let events = self.stages[shard].request(self.now, token, request);
                self.absorb(shard, events);
            }
            (Address::Client(client), Body::Answer(txn, output, value))
                if self.clients[client].open == Some(txn) =>
            {
                let Address::Shard(shard) = from else { return };
                self.hear(client, ShardId::new(shard as u16), output, value);
            }
            _ => {}
        }
    }

    fn hear(&mut self, client: usize, from: ShardId, output: Output, value: Option<Value>) {
        match output {
            Output::ReadNow { prepared_before, .. } => {
                let Some(value) = value else { return };
                let one = &mut self.clients[client];
                if !one.coordinator.is_idle() || one.reads.contains_key(&value.key) {
                    return;
                }
                one.reads.insert(value.key.clone(), (value, prepared_before));
                if one.reads.len() == one.wanted.len() {
                    self.commit(client);
                }
            }
            Output::Vote { commit, vote, .. } | Output::Repeated { commit, vote, .. } => {
                let step = Duration::from_micros(self.dice.roll(100));
                self.coordinate(client, coordinator::Input::Vote { from, commit, vote, step });
            }
            Output::Refuse { refusal, .. } => {
                self.coordinate(client, coordinator::Input::Refused { from, refusal })
            }
            Output::StatusIs { status, .. } => {
                self.coordinate(client, coordinator::Input::StatusIs { from, status })
            }
            Output::AckDecision { .. } => {
                self.coordinate(client, coordinator::Input::Acked { from })
            }
            Output::AskWriteSet { .. } => {
                self.coordinate(client, coordinator::Input::WriteSetWanted { from })
            }
            _ => {}
        }
    }

    fn turn(&mut self) {
        self.now = self.now.saturating_add(STEP);
        while let Some(first) = self.flying.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (from, to, body) = first.remove();
            self.deliver(from, to, body);
        }
        for shard in 0..self.stages.len() {
            if self.faults && self.dice.roll(400) == 0 {
                let events = self.stages[shard].recover(self.now);
                self.absorb(shard, events);
            }
            let slow = self.faults && self.dice.roll(3) != 0;
            self.stages[shard].hold_log = slow;
            self.stages[shard].hold_apply = slow;
            let events = self.stages[shard].tick(self.now);
            self.absorb(shard, events);
        }
        for client in 0..self.clients.len() {
            self.drive(client);
        }
    }

    /// The client closes and comes back as another incarnation.
    fn leave(&mut self, client: usize) {
        self.report(client, true);
        let one = &mut self.clients[client];
        one.id = ClientId::new(one.id.get() + 100);
    }

    /// Tells all shards what the client may still use.
    fn report(&mut self, client: usize, closing: bool) {
        let one = &self.clients[client];
        let watermark = if one.open.is_some() { one.begin } else { one.seen };
        let acked = Sequence::new(one.sequence + u64::from(one.open.is_none()));
        let report = Request::Report { client: one.id, watermark, acked, clock: self.now, closing };
        for shard in 0..self.stages.len() {
            self.send(Address::Client(client), Address::Shard(shard), Body::Ask(report.clone()));
        }
    }

    fn drive(&mut self, client: usize) {
        let one = &self.clients[client];
        let busy = one.open.is_some();
        if !busy {
            if self.faults && self.dice.roll(3) == 0 {
                self.begin(client);
            } else if self.faults && self.dice.roll(300) == 0 {
                self.leave(client);
            }
        } else if one.coordinator.is_idle() {
            if self.now.since(one.since) > Duration::from_secs(1) {
                self.clients[client].open = None;
            } else if self.dice.roll(40) == 0 {
                self.ask_reads(client);
            }
        } else if self.faults && self.dice.roll(1500) == 0 {
            // The client dies in the middle of its commit and comes back as another incarnation.
            let id = ClientId::new(one.id.get() + 100);
            (self.clients[client].open, self.clients[client].id) = (None, id);
        } else if one.coordinator.next_deadline().is_some_and(|at| at <= self.now) {
            self.coordinate(client, coordinator::Input::Tick { error_bound: Duration::ZERO });
        }
        if self.dice.roll(25) == 0 {
            self.report(client, false);
        }
    }

    /// What is in the stores and nobody was told of was committed, too; then everything is checked.
    fn verdict(&mut self) -> Option<String> {
        let mut applied: BTreeMap<(ClientId, Timestamp), Vec<Key>> = BTreeMap::new();
        for stage in &self.stages {
            for (key, version) in stage.versions() {
                applied.entry((version.client, version.timestamp)).or_default().push(key.clone());
            }
        }
        let known: BTreeMap<_, TxnId> = self
            .stages
            .iter()
            .flat_map(|stage| stage.commits())
            .map(|(txn, at)| ((txn.client, at), txn))
            .collect();
        for (at, keys) in &mut applied {
            let Some(&txn) = known.get(at) else {
                return Some(format!("{keys:?} at {at:?} was committed by nobody"));
            };
            if self.told.get(&txn) == Some(&TxnOutcome::Aborted) {
                return Some(format!("{txn} was reported aborted, and its writes are there"));
            }
            if !self.history.contains_key(&txn) {
                self.note_committed(txn, at.1, Timestamp::MAX);
            }
        }
        for (txn, one) in &self.history {
            let mut keys =
                applied.remove(&(one.version.client, one.version.timestamp)).unwrap_or_default();
            keys.sort();
            if keys != one.writes {
                return Some(format!("{txn} wrote {:?}, but {keys:?} is there", one.writes));
            }
        }
        violation(&self.history)
    }
}

/// Runs one world to its end; says what is wrong, and how many read-write transactions were
/// committed.
pub fn run<V: Validation + Default>(
    seed: u64,
    shards: u16,
    clients: u32,
    strict: bool,
) -> (Option<String>, usize) {
    let mut world = World::<V>::new(seed, shards, clients, strict);
    for _ in 0..1500 {
        world.turn();
    }
    world.faults = false;
    for _ in 0..30_000 {
        world.turn();
        let idle = world.clients.iter().all(|one| one.open.is_none());
        let settled = world.stages.iter().all(|stage| {
            let stats = stage.core.view(Timestamp::ZERO);
            stats.in_flight == 0 && stats.waiting == 0
        });
        if idle && settled && world.flying.is_empty() {
            break;
        }
    }
    let stuck: Vec<_> = world
        .stages
        .iter()
        .map(|stage| stage.core.view(Timestamp::ZERO))
        .filter(|one| one.in_flight > 0)
        .collect();
    if !stuck.is_empty() {
        return (Some(format!("something stays prepared: {stuck:?}")), 0);
    }
    let verdict = world.verdict();
    (verdict, world.history.values().filter(|one| !one.writes.is_empty()).count())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_committed_history_is_serializable(seed: u64, shards in 1u16..4, clients in 2u32..6) {
        // A short run with few clients and much bad luck may commit nothing; `many_seeds` sees to
        // it that enough is committed.
        let (problem, _) = run::<Timestamps>(seed, shards, clients, false);
        prop_assert_eq!(problem, None);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn random_runs_catch_planted_bugs() {
    use timestone_types::planted::Bug;

    const CAUGHT: [Bug; 11] = [
        Bug::NoStep3,
        Bug::KnownKeysOnly,
        Bug::AppliedAtPrepared,
        Bug::UnrecordedAbsence,
        Bug::LatePrepare,
        Bug::RelaxedRule1,
        Bug::OwnTimestamp,
        Bug::ForgottenReadBound,
        Bug::EarlyVote,
        Bug::LostPromise,
        Bug::EarlyRelease,
    ];
    for bug in CAUGHT {
        let caught = (0..1000u64).any(|seed| {
            let (shards, clients) = (1 + (seed % 4) as u16, 2 + (seed % 5) as u32);
            let run = || run::<Timestamps>(seed, shards, clients, false).0;
            !matches!(crate::check::with_bug(bug, run), Ok(None))
        });
        assert!(caught, "{bug:?} was not caught within 1000 seeds");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long to soak is chosen from outside")]
fn many_seeds() {
    // `SOAK=n` runs that many instead.
    let seeds = std::env::var("SOAK").map_or(40, |n| n.parse().unwrap());
    let mut commits = 0;
    for seed in 0..seeds {
        let (problem, count) =
            run::<Timestamps>(seed, 1 + (seed % 4) as u16, 2 + (seed % 5) as u32, false);
        assert_eq!(problem, None, "seed {seed}");
        commits += count;
    }
    assert!(commits as u64 > seeds * 20, "only {commits} read-write transactions were committed");
}

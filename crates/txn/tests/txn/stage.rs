//! What a shard stage does around a participant, with maps for store and log: looks versions up,
//! keeps the bytes of prepares, applies, submits again what waited, loses what was not synced when
//! it crashes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use timestone_txn::participant::{
    Collected, Config, DecidedBy, DirectAnswer, DirectWrite, FrozenState, Input, JudgedCondition,
    LatestInStore, LogIntent, LogRange, LogSequence, Lookup, Output, Participant, Prepare,
    RangeItem, ReadAt, ReadItem, Recovered, Token, Wait, WriteItem, WriteKind,
};
use timestone_txn::validation::{Timestamps, Validation};
use timestone_types::{
    ClientId, Expiry, HashSeed, KeyHash, KeyRange, KeyspaceId, Sequence, ShardId, Timestamp, TxnId,
    TxnOutcome, Version, hash_key,
};

pub type Key = (KeyspaceId, String);

#[derive(Clone, Debug)]
pub struct Read {
    pub key: Key,
    pub version: Version,
    pub absent: bool,
    pub expires_at: Expiry,
}

#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    pub kind: WriteKind,
    pub value: String,
    pub expires_at: Expiry,
}

/// A range that was read.
#[derive(Clone, Debug)]
pub struct Range {
    pub keyspace: KeyspaceId,
    pub from: String,
    pub to: Option<String>,
    pub expires_at: Expiry,
}

impl Range {
    fn as_ref(&self) -> KeyRange<'_> {
        KeyRange {
            keyspace: self.keyspace,
            from: self.from.as_bytes(),
            to: self.to.as_ref().map(String::as_bytes),
        }
    }

    fn contains(&self, key: &Key) -> bool {
        key.0 == self.keyspace && self.as_ref().contains(key.1.as_bytes())
    }
}

#[derive(Clone, Debug)]
pub struct Part {
    pub txn: TxnId,
    pub begin: Timestamp,
    pub commit: Timestamp,
    /// The choice is the shard's up to here; zero: there is none.
    pub placed_by: Timestamp,
    pub single: bool,
    pub wait: Wait,
    pub participants: Vec<ShardId>,
    pub reads: Vec<Read>,
    pub ranges: Vec<Range>,
    pub writes: Vec<Write>,
    /// The value that the key must have; `Some(None)` = must be absent.
    pub expect: Option<Option<String>>,
    /// It was looked at then, and not when the prepare comes.
    pub looked: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub enum Request {
    Read {
        key: Key,
        at: ReadAt,
        wait: Wait,
    },
    Prepare(Part),
    WriteSet(Part),
    Decide {
        txn: TxnId,
        outcome: TxnOutcome,
    },
    Report {
        client: ClientId,
        watermark: Timestamp,
        acked: Sequence,
        clock: Timestamp,
        closing: bool,
    },
    Range {
        range: Range,
        at: Timestamp,
        wait: Wait,
    },
    Status {
        txn: TxnId,
    },
    Terminate {
        txn: TxnId,
        begin: Timestamp,
        participants: Vec<ShardId>,
    },
    Freeze {
        txn: TxnId,
        begin: Timestamp,
    },
    FreezeAnswer {
        from: ShardId,
        txn: TxnId,
        state: FrozenState,
    },
    DecisionAcked {
        from: ShardId,
        txn: TxnId,
    },
    RaiseFloor {
        keyspace: KeyspaceId,
        at: Timestamp,
        wait: Wait,
    },
    Newest {
        keyspace: KeyspaceId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub key: Key,
    pub version: Version,
    pub value: Option<String>,
    pub expires_at: Expiry,
}

/// An output, and for an answered read what was found.
pub type Event = (Output, Option<Value>);

#[derive(Clone, Debug)]
struct Record {
    value: Option<String>,
    expires_at: Expiry,
}

#[derive(Clone, Debug)]
struct Logged {
    intent: LogIntent,
    part: Option<Part>,
}

pub struct Stage<V: Validation = Timestamps> {
    pub shard: ShardId,
    pub core: Participant<V>,
    pub config: Config,
    pub collected: Collected,
    store: BTreeMap<Key, BTreeMap<Version, Record>>,
    fences: BTreeMap<KeyspaceId, Version>,
    log: Vec<Logged>,
    synced: usize,
    first_sequence: u64,
    payloads: BTreeMap<TxnId, Part>,
    parked: BTreeMap<Token, Request>,
    to_apply: VecDeque<(TxnId, Timestamp)>,
    commits: Vec<(TxnId, Timestamp)>,
    /// There is no room for new writes.
    pub full: bool,
    /// Conditions are looked up when the participant asks for it, and not before.
    pub waits_to_look: bool,
    /// There is no log: what may be put at once is.
    pub at_once: bool,
    looked: BTreeSet<Token>,
    pub hold_log: bool,
    pub hold_apply: bool,
    /// At the next recovery, the watermark is put here, as after a run without a log.
    pub raised: Option<Timestamp>,
    /// At the next recovery, the participant is told when its run begins, as servers do.
    pub tells_beginning: bool,
    /// How wrong the clock is, where that matters.
    pub clock_error: Duration,
}

pub fn hash(key: &Key) -> KeyHash {
    hash_key(HashSeed(1), key.0, key.1.as_bytes())
}

impl<V: Validation + Default> Stage<V> {
    pub fn new(shard: ShardId, config: Config) -> Self {
        Self {
            shard,
            core: Participant::with_validation(V::default(), shard, config),
            config,
            collected: Collected::default(),
            store: BTreeMap::new(),
            fences: BTreeMap::new(),
            log: Vec::new(),
            synced: 0,
            first_sequence: 1,
            payloads: BTreeMap::new(),
            parked: BTreeMap::new(),
            to_apply: VecDeque::new(),
            commits: Vec::new(),
            full: false,
            waits_to_look: false,
            at_once: false,
            looked: BTreeSet::new(),
            hold_log: false,
            hold_apply: false,
            raised: None,
            tells_beginning: false,
            clock_error: Duration::ZERO,
        }
    }

    pub fn latest(&self, key: &Key) -> LatestInStore {
        let fence = self.fences.get(&key.0).copied().unwrap_or(Version::ZERO);
        match self.store.get(key).and_then(|versions| versions.last_key_value()) {
            Some((&version, record)) if version > fence => {
                LatestInStore { version, absent: record.value.is_none() }
            }
            _ => LatestInStore { version: fence, absent: true },
        }
    }

    /// The highest timestamp of any version or fence of a keyspace.
    pub fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        let fence = self.fences.get(&keyspace).copied().unwrap_or(Version::ZERO);
        let versions = self
            .store
            .iter()
            .filter(|(key, _)| key.0 == keyspace)
            .flat_map(|(_, versions)| versions.keys());
        versions.copied().chain([fence]).max().unwrap_or(Version::ZERO).timestamp
    }

    pub fn lookup(&self, key: &Key, at: Timestamp) -> Value {
        self.lookup_as_of(key, at, at)
    }

    /// As [`Self::lookup`], expiry judged as of another time.
    fn lookup_as_of(&self, key: &Key, at: Timestamp, judged: Timestamp) -> Value {
        let top = Version::new(at, ClientId::new(u32::MAX));
        let fence =
            self.fences.get(&key.0).copied().filter(|fence| *fence <= top).unwrap_or(Version::ZERO);
        let found = self.store.get(key).and_then(|versions| versions.range(..=top).next_back());
        match found {
            Some((&version, record)) if version > fence => {
                let value = record.value.clone().filter(|_| !record.expires_at.has_passed(judged));
                Value { key: key.clone(), version, value, expires_at: record.expires_at }
            }
            _ => Value { key: key.clone(), version: fence, value: None, expires_at: Expiry::NEVER },
        }
    }

    /// Every version that was ever applied: (key, version).
    pub fn versions(&self) -> impl Iterator<Item = (&Key, Version)> {
        self.store
            .iter()
            .flat_map(|(key, versions)| versions.keys().map(move |&version| (key, version)))
    }

    /// Every transaction that was ever applied here, and at which timestamp.
    pub fn commits(&self) -> impl Iterator<Item = (TxnId, Timestamp)> {
        self.commits.iter().copied()
    }

    pub fn recover(&mut self, now: Timestamp) -> Vec<Event> {
        self.recover_after(now, None, &[])
    }

    /// As `recover`, after an outage, if sessions are to be waited for; not for these clients.
    pub fn recover_after(
        &mut self,
        now: Timestamp,
        outage: Option<Duration>,
        left: &[ClientId],
    ) -> Vec<Event> {
        self.core = Participant::with_validation(V::default(), self.shard, self.config);
        self.collected = Collected::default();
        self.first_sequence = 1;
        self.payloads.clear();
        self.parked.clear();
        self.to_apply.clear();
        self.log.truncate(self.synced);
        let mut out = Vec::new();
        if self.config.has_replicas {
            self.core.step(now, Input::ClockError { bound: self.clock_error }, &mut out);
        }
        if let Some(at) = self.raised.take() {
            for record in [
                Recovered::ReadBound { bound: at, watermark: at },
                Recovered::CertainWatermark(Timestamp::ZERO),
                Recovered::UnloggedUntil(at),
            ] {
                self.core.step(now, Input::Recovered(record), &mut out);
            }
        }
        if core::mem::take(&mut self.tells_beginning) {
            self.core.step(now, Input::Recovered(Recovered::Began(now)), &mut out);
        }
        // In any order: backwards is as good as forwards.
        for logged in self.log.clone().iter().rev() {
            let prepared =
                logged.part.iter().filter(|_| matches!(logged.intent, LogIntent::Prepare { .. }));
            let writes: Vec<WriteItem> = prepared.flat_map(|part| self.write_items(part)).collect();
            let record = match logged.intent {
                LogIntent::Prepare { txn, begin, commit, single, found } => {
                    let part = logged.part.as_ref().unwrap();
                    self.payloads.insert(txn, part.clone());
                    Recovered::Prepare {
                        txn,
                        begin,
                        commit,
                        single,
                        found,
                        participants: &part.participants,
                        writes: &writes,
                    }
                }
                LogIntent::Decision { txn, begin, outcome, abort, found, met, .. } => {
                    let participants =
                        logged.part.as_ref().map_or(&[][..], |part| &part.participants);
                    Recovered::Decision { txn, begin, outcome, abort, found, met, participants }
                }
                LogIntent::ReadBound { bound, watermark, .. } => {
                    Recovered::ReadBound { bound, watermark }
                }
            };
            self.core.step(now, Input::Recovered(record), &mut out);
        }
        if let Some(lasted) = outage {
            self.core.step(now, Input::Recovered(Recovered::Outage(lasted)), &mut out);
        }
        for &client in left {
            self.core.step(now, Input::Recovered(Recovered::ClientLeft(client)), &mut out);
        }
        self.core.step(now, Input::RecoveryDone, &mut out);
        let mut events = Vec::new();
        self.absorb(now, out, &mut events);
        self.settle(now, &mut events);
        events
    }

    pub fn tick(&mut self, now: Timestamp) -> Vec<Event> {
        self.feed(now, |core, now, out| core.step(now, Input::Tick, out))
    }

    /// Makes the log durable.
    pub fn sync(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        self.sync_into(now, &mut events);
        self.settle(now, &mut events);
        events
    }

    fn sync_into(&mut self, now: Timestamp, events: &mut Vec<Event>) -> bool {
        if self.synced == self.log.len() {
            return false;
        }
        let through = LogSequence(self.first_sequence + (self.log.len() - self.synced) as u64 - 1);
        self.first_sequence = through.0 + 1;
        self.synced = self.log.len();
        let mut out = Vec::new();
        self.core.step(now, Input::Durable { range: LogRange::through(through) }, &mut out);
        self.absorb(now, out, events);
        true
    }

    /// Applies what was decided.
    pub fn apply(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        self.apply_into(now, &mut events);
        self.settle(now, &mut events);
        events
    }

    fn apply_into(&mut self, now: Timestamp, events: &mut Vec<Event>) -> bool {
        let Some((txn, commit)) = self.to_apply.pop_front() else { return false };
        self.put(txn, commit);
        let mut out = Vec::new();
        self.core.step(now, Input::Applied { txn }, &mut out);
        self.absorb(now, out, events);
        true
    }

    /// Puts the writes of a transaction into the store.
    fn put(&mut self, txn: TxnId, commit: Timestamp) {
        let part = self.payloads.get(&txn).expect("the payload of what is applied is kept").clone();
        let version = Version::new(commit, txn.client);
        self.commits.push((txn, commit));
        for write in part.writes {
            if write.kind == WriteKind::Fence {
                self.fences.insert(write.key.0, version);
                continue;
            }
            let value = (write.kind == WriteKind::Put).then_some(write.value);
            self.store
                .entry(write.key)
                .or_default()
                .insert(version, Record { value, expires_at: write.expires_at });
        }
    }

    pub fn request(&mut self, now: Timestamp, token: Token, request: Request) -> Vec<Event> {
        let mut events = Vec::new();
        self.submit(now, token, request, None, &mut events);
        self.settle(now, &mut events);
        events
    }

    /// The log fails for good.
    pub fn lose_log(&mut self, now: Timestamp) -> Vec<Event> {
        self.feed(now, |core, now, out| core.step(now, Input::LogLost, out))
    }

    /// The physical clock leads the participant's time by so much.
    pub fn hold_clock(&mut self, now: Timestamp, back: Duration) -> Vec<Event> {
        self.feed(now, |core, now, out| core.step(now, Input::ClockHeld { back }, out))
    }

    /// The clock is wrong by so much at most.
    pub fn set_clock_error(&mut self, now: Timestamp, bound: Duration) -> Vec<Event> {
        self.clock_error = bound;
        self.feed(now, |core, now, out| core.step(now, Input::ClockError { bound }, out))
    }

    /// A timestamp is closed for backups.
    pub fn close_timestamp(&mut self, now: Timestamp) -> Vec<Event> {
        self.feed(now, |core, now, out| core.step(now, Input::CloseTimestamp, out))
    }

    fn feed(
        &mut self,
        now: Timestamp,
        step: impl FnOnce(&mut Participant<V>, Timestamp, &mut Vec<Output>),
    ) -> Vec<Event> {
        let (mut out, mut events) = (Vec::new(), Vec::new());
        step(&mut self.core, now, &mut out);
        self.absorb(now, out, &mut events);
        self.settle(now, &mut events);
        events
    }

    /// Log and store, unless they are held.
    fn settle(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        loop {
            let applied = !self.hold_apply && self.apply_into(now, events);
            let synced = !self.hold_log && self.sync_into(now, events);
            if !applied && !synced {
                return;
            }
        }
    }

    /// Somebody on the host's own thread reads a key.
    pub fn direct_read(&mut self, now: Timestamp, key: &Key, at: Timestamp) -> Vec<Event> {
        let mut out = Vec::new();
        let latest = self.latest(key);
        let input = Input::DirectRead { keyspace: key.0, key: hash(key), at, latest };
        self.core.step(now, input, &mut out);
        assert_eq!(out.len(), 1, "a call has one answer");
        let value = match out[0] {
            Output::Direct(DirectAnswer::Read { at, .. }) => Some(self.lookup(key, at)),
            _ => None,
        };
        out.into_iter().map(|output| (output, value.clone())).collect()
    }

    /// Somebody on the host's own thread puts a key, or deletes it.
    pub fn direct_write(&mut self, now: Timestamp, part: &Part) -> Vec<Event> {
        let mut out = Vec::new();
        let item = self.write_items(part)[0];
        let Part { txn, begin, commit, .. } = *part;
        let write = DirectWrite { item, client: txn.client, begin, commit };
        self.core.step(now, Input::DirectWrite(write), &mut out);
        assert_eq!(out.len(), 1, "a call has one answer");
        if out[0] == Output::Direct(DirectAnswer::Put) {
            let one = &part.writes[0];
            let value = (one.kind == WriteKind::Put).then(|| one.value.clone());
            let record = Record { value, expires_at: one.expires_at };
            let version = Version::new(commit, txn.client);
            self.store.entry(one.key.clone()).or_default().insert(version, record);
            self.core.step(now, Input::DirectPutDone(write), &mut out);
            assert_eq!(out.len(), 1, "what is put is not answered");
        }
        out.into_iter().map(|output| (output, None)).collect()
    }

    fn write_items(&self, part: &Part) -> Vec<WriteItem> {
        let item = |write: &Write| WriteItem {
            keyspace: write.key.0,
            key: hash(&write.key),
            kind: write.kind,
            latest: self.latest(&write.key),
            range_read: self.core.range_read_at(write.key.0, write.key.1.as_bytes(), part.commit),
        };
        part.writes.iter().map(item).collect()
    }

    /// Whose write sets have a key in a range.
    fn writers(&self, range: &Range) -> Vec<TxnId> {
        let writes = |part: &Part| part.writes.iter().any(|write| range.contains(&write.key));
        let mut writers: Vec<TxnId> =
            self.payloads.values().filter(|part| writes(part)).map(|part| part.txn).collect();
        writers.sort_unstable();
        writers
    }

    fn range_item(&self, range: &Range, begin: Timestamp) -> RangeItem {
        let inside = self.store.iter().filter(|(key, _)| range.contains(key));
        let versions = inside.flat_map(|(_, versions)| versions.keys());
        RangeItem {
            keyspace: range.keyspace,
            from: range.from.clone().into_bytes(),
            to: range.to.clone().map(String::into_bytes),
            expires_at: range.expires_at,
            newer: versions.map(|one| one.timestamp).filter(|&at| at > begin).max(),
            writers: self.writers(range),
        }
    }

    fn submit(
        &mut self,
        now: Timestamp,
        token: Token,
        request: Request,
        wait: Option<Wait>,
        events: &mut Vec<Event>,
    ) {
        let mut out = Vec::new();
        let kept = request.clone();
        match request {
            Request::Read { key, at, wait: asked } => {
                let latest = self.latest(&key);
                let wait = wait.unwrap_or(asked);
                let input =
                    Input::Read { token, keyspace: key.0, key: hash(&key), at, wait, latest };
                self.core.step(now, input, &mut out);
            }
            Request::Prepare(ref part) | Request::WriteSet(ref part) => {
                let decided = matches!(kept, Request::WriteSet(_));
                self.payloads.entry(part.txn).or_insert_with(|| part.clone());
                let reads: Vec<ReadItem> =
                    part.reads.iter().map(|read| self.read_item(read)).collect();
                let ranges: Vec<RangeItem> =
                    part.ranges.iter().map(|range| self.range_item(range, part.begin)).collect();
                let writes = self.write_items(part);
                let condition = part.expect.as_ref().map(|expected| {
                    let looked = part.looked.filter(|_| wait.is_none()).unwrap_or(Timestamp::MAX);
                    let found = self.lookup_as_of(&part.writes[0].key, looked, Timestamp::ZERO);
                    let expired_at = found.expires_at.timestamp();
                    let expired_at =
                        (!found.expires_at.is_never() && expired_at <= now).then_some(expired_at);
                    let value = found.value.filter(|_| expired_at.is_none());
                    let present = value.is_some();
                    JudgedCondition {
                        version: found.version,
                        holds: value == *expected,
                        present,
                        expired_at,
                    }
                });
                let prepare = Prepare {
                    token,
                    txn: part.txn,
                    begin: part.begin,
                    commit: part.commit,
                    placed_by: part.placed_by.max(part.commit),
                    single: part.single,
                    wait: wait.unwrap_or(part.wait),
                    participants: &part.participants,
                    reads: &reads,
                    ranges: &ranges,
                    writes: &writes,
                    condition: match condition {
                        None => Lookup::NotNeeded,
                        Some(_) if self.waits_to_look && !self.looked.remove(&token) => {
                            Lookup::Needed
                        }
                        Some(condition) => Lookup::Found(condition),
                    },
                    has_room: !self.full,
                    at_once: self.at_once,
                };
                let input = if decided {
                    Input::DecidedWriteSet { prepare }
                } else {
                    Input::Prepare(prepare)
                };
                self.core.step(now, input, &mut out);
                if let Some(&Output::PutNow { txn, commit, .. }) = out.last() {
                    self.put(txn, commit);
                    let prepare = Prepare { commit, ..prepare };
                    self.core.step(now, Input::PutDone { prepare }, &mut out);
                    self.payloads.remove(&txn);
                }
            }
            Request::Decide { txn, outcome } => {
                let input = Input::Decide { token, txn, outcome, decided_by: DecidedBy::Client };
                self.core.step(now, input, &mut out);
            }
            Request::Report { client, watermark, acked, clock, closing } => {
                self.core.step(
                    now,
                    Input::Report { client, watermark, acked, clock, closing },
                    &mut out,
                );
            }
            Request::Status { txn } => self.core.step(now, Input::Status { token, txn }, &mut out),
            Request::Terminate { txn, begin, ref participants } => {
                self.core.step(now, Input::Terminate { token, txn, begin, participants }, &mut out);
            }
            Request::Freeze { txn, begin } => {
                self.core.step(now, Input::Freeze { token, txn, begin }, &mut out)
            }
            Request::FreezeAnswer { from, txn, state } => {
                self.core.step(now, Input::FreezeAnswer { from, txn, state }, &mut out);
            }
            Request::DecisionAcked { from, txn } => {
                self.core.step(now, Input::DecisionAcked { from, txn }, &mut out)
            }
            Request::RaiseFloor { keyspace, at, wait: asked } => {
                let wait = wait.unwrap_or(asked);
                self.core.step(now, Input::Scan { token, keyspace, at, wait }, &mut out);
            }
            Request::Range { ref range, at, wait: asked } => {
                let writers = self.writers(range);
                let (wait, range) = (wait.unwrap_or(asked), range.as_ref());
                let input = Input::Range { token, range, at, wait, writers: &writers };
                self.core.step(now, input, &mut out);
            }
            Request::Newest { keyspace } => {
                let latest = self.newest(keyspace);
                self.core.step(now, Input::Newest { token, keyspace, latest }, &mut out);
            }
        }
        self.parked.insert(token, kept);
        self.absorb(now, out, events);
    }

    /// The file with the promise of a transaction leaves the log, which needs it no more.
    pub fn trim(&mut self, txn: TxnId) {
        assert!(!self.payloads.contains_key(&txn), "the promise of {txn} is still needed");
        let is_promise =
            |one: &Logged| matches!(one.intent, LogIntent::Prepare { txn: of, .. } if of == txn);
        self.synced -= self.log[..self.synced].iter().filter(|one| is_promise(one)).count();
        self.log.retain(|one| !is_promise(one));
    }

    /// Nothing is left of a key: its deletion was collected.
    pub fn collect(&mut self, key: &Key) {
        self.store.remove(key);
    }

    /// The decision of a transaction never came to the log: the run that carried it out had none,
    /// and found the promise in an older one.
    pub fn undecide(&mut self, txn: TxnId) {
        let is_decision =
            |one: &Logged| matches!(one.intent, LogIntent::Decision { txn: of, .. } if of == txn);
        self.synced -= self.log[..self.synced].iter().filter(|one| is_decision(one)).count();
        self.log.retain(|one| !is_decision(one));
    }

    /// All participants of a transaction that is promised here.
    pub fn participants_of(&self, txn: TxnId) -> Vec<ShardId> {
        self.payloads[&txn].participants.clone()
    }

    /// What a decision's record takes from the payload: a commit is decided while its write set is
    /// still here.
    fn payload_for(&self, txn: TxnId) -> Option<Part> {
        let part = self.payloads.get(&txn);
        assert!(
            part.is_some(),
            "the write set of {txn} is here until its commit is logged and applied"
        );
        part.cloned()
    }

    fn read_item(&self, read: &Read) -> ReadItem {
        ReadItem {
            keyspace: read.key.0,
            key: hash(&read.key),
            version: read.version,
            absent: read.absent,
            expires_at: read.expires_at,
            latest: self.latest(&read.key),
        }
    }

    fn absorb(&mut self, now: Timestamp, out: Vec<Output>, events: &mut Vec<Event>) {
        let mut again = Vec::new();
        for output in out {
            let mut value = None;
            match output {
                Output::Again { token, wait } => again.push((token, wait)),
                Output::LookUp { token, .. } => {
                    self.looked.insert(token);
                    again.push((token, Wait::Yes));
                }
                Output::ReadNow { token, at, .. } => {
                    let Some(Request::Read { key, .. }) = self.parked.get(&token) else {
                        panic!("a read was asked")
                    };
                    value = Some(self.lookup(key, at));
                }
                Output::Log { sequence, intent } => {
                    assert_eq!(
                        sequence.0,
                        self.first_sequence + (self.log.len() - self.synced) as u64
                    );
                    let part = match intent {
                        LogIntent::Prepare { txn, .. } => self.payloads.get(&txn).cloned(),
                        LogIntent::Decision { txn, outcome: TxnOutcome::Committed(_), .. } => {
                            self.payload_for(txn)
                        }
                        LogIntent::Decision { .. } | LogIntent::ReadBound { .. } => None,
                    };
                    self.log.push(Logged { intent, part });
                }
                Output::Began { watermark: at } | Output::AdvanceWatermark(at) => {
                    self.collected.advance(at)
                }
                Output::Apply { txn, commit } => self.to_apply.push_back((txn, commit)),
                Output::ForgetPayload { txn } => {
                    self.payloads.remove(&txn);
                }
                _ => {}
            }
            events.push((output, value));
        }
        for (token, wait) in again {
            let request =
                self.parked.get(&token).expect("what is submitted again was kept").clone();
            self.submit(now, token, request, Some(wait), events);
        }
    }
}

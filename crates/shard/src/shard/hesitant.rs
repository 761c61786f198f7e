//! A store that answers "pending" at random, for tests, and the shard on top of it.
//!
//! What it answers later is what was true when it was asked: the oldest answer that the interface
//! allows. A shard that takes such an answer for the present loses updates.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use timestone_store::{
    AsOf, Count, FigureValues, Figures, KeysAhead, Latest, LatestLookup, Lookup, PromisedPuts,
    PutSize, ReadOutcome, ReadToken, Reads, ScanCursor, ScanLimit, Store, StoreError, StoreEvent,
    Upkeep, Writes,
};
use timestone_types::{Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version};

/// Random numbers (splitmix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Below `n`.
    pub(super) fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// See the module.
pub(crate) struct Hesitant<S> {
    store: S,
    dice: Dice,
    /// One look-up in so many is answered at once.
    pending_of: u64,
    /// Answers to come, and the pumps until then.
    later: Vec<(u64, StoreEvent)>,
    faults: Arc<Faults>,
}

/// What a store is told to do, and what it was asked for.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Look-ups that are not answered at once fail.
    fails: AtomicBool,
    /// Nothing is let in.
    is_full: AtomicBool,
    /// How often youngest versions were asked for.
    looked: AtomicU64,
    /// How often room was asked for.
    asked_room: AtomicU64,
}

impl<S: Store> Hesitant<S> {
    pub(crate) fn new(store: S, seed: u64, pending_of: u64) -> Self {
        Self { store, dice: Dice(seed), pending_of, later: Vec::new(), faults: Arc::default() }
    }

    /// Says what it is told to do from now on.
    pub(super) fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults)
    }

    fn hesitates(&mut self) -> bool {
        self.dice.roll(self.pending_of) != 0
    }

    fn answer_later(&mut self, event: StoreEvent) {
        let pumps = self.dice.roll(5);
        self.later.push((pumps, event));
    }
}

impl<S: Store> Reads for Hesitant<S> {
    fn seed(&self) -> HashSeed {
        self.store.seed()
    }

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        if self.hesitates() {
            let outcome = match self.store.get_as_of(key, at, judged, token)? {
                Lookup::Present { version, expires_at, value } => {
                    ReadOutcome::Present { version, expires_at, value: value.to_vec() }
                }
                Lookup::Absent { version, expires_at } => {
                    ReadOutcome::Absent { version, expires_at }
                }
                Lookup::Pending => return Ok(Lookup::Pending),
            };
            self.answer_later(StoreEvent::ReadDone { token, outcome });
            return Ok(Lookup::Pending);
        }
        self.store.get_as_of(key, at, judged, token)
    }

    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        if self.hesitates() {
            return Ok(Lookup::Pending);
        }
        self.store.get_in_memory(key, at, judged)
    }

    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool {
        self.store.is_beside_fence(key, fence)
    }

    fn latest(&mut self, key: KeyRef<'_>, token: ReadToken) -> LatestLookup {
        self.faults.looked.fetch_add(1, Relaxed);
        let found = self.store.latest(key, token);
        match found {
            LatestLookup::Known(latest) if self.hesitates() => {
                let found = if self.faults.fails.load(Relaxed) {
                    Err(StoreError::Busy)
                } else {
                    Ok(latest)
                };
                self.answer_later(StoreEvent::LatestDone { token, found });
                LatestLookup::Pending
            }
            other => other,
        }
    }

    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest> {
        self.store.latest_in_memory(key)
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        self.store.newest(keyspace)
    }

    fn lost(&self, keyspace: KeyspaceId) -> Timestamp {
        self.store.lost(keyspace)
    }

    fn fetch_ahead(&self, keys: KeysAhead<'_>) {
        self.store.fetch_ahead(keys);
    }

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.store.scan_as_of(keyspace, cursor, limit, as_of, token)
    }

    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        self.store.list_keys(keyspace, cursor, limit, token);
    }

    fn kept_keyspaces(&self) -> Vec<KeyspaceId> {
        self.store.kept_keyspaces()
    }

    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version> {
        self.store.fences(keyspace)
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.store.count_as_of(keyspace, as_of, token)
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.store.recycle(bytes);
    }
}

impl<S: Store> Writes for Hesitant<S> {
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.store.put(key, version, value, expires_at)
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.store.delete(key, version)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.store.fence(keyspace, version)
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        if self.faults.is_full.load(Relaxed) {
            Err(StoreError::Busy)
        } else {
            self.store.admit(puts, promised)
        }
    }

    fn ask_room(&mut self, puts: &mut dyn Iterator<Item = PutSize>, promised: PromisedPuts) {
        self.faults.asked_room.fetch_add(1, Relaxed);
        self.store.ask_room(puts, promised);
    }
}

impl<S: Store> Upkeep for Hesitant<S> {
    fn recovered(&mut self, bound: Timestamp) {
        self.store.recovered(bound);
    }

    fn begin_life(&mut self) {
        self.later.clear();
        self.store.begin_life();
    }

    fn has_failed(&self) -> bool {
        self.store.has_failed()
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        self.store.advance_watermark(t);
    }

    fn watermark(&self) -> Timestamp {
        self.store.watermark()
    }

    fn youngest(&self) -> Timestamp {
        self.store.youngest()
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.store.advance_replay_floor(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        self.store.begin_batch(batch);
    }

    fn stable_batch(&self) -> u64 {
        self.store.stable_batch()
    }

    fn sync_soon(&mut self) {
        self.store.sync_soon();
    }

    fn checkpoint_now(&mut self) {
        self.store.checkpoint_now();
    }

    fn scrub(&mut self) {
        self.store.scrub();
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.store.pump(now, events);
        for (pumps, event) in std::mem::take(&mut self.later) {
            match pumps.checked_sub(1) {
                Some(left) => self.later.push((left, event)),
                None => events.push(event),
            }
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if self.later.is_empty() { self.store.next_deadline() } else { Some(Timestamp::ZERO) }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.store.wake_fd()
    }

    fn wait(&mut self, timeout: Duration) {
        self.store.wait(timeout);
    }

    fn resize_cache(&mut self, bytes: u64) {
        self.store.resize_cache(bytes);
    }

    fn charge_cache(&mut self, beside: u64) {
        self.store.charge_cache(beside);
    }

    fn shutdown(&mut self) {
        self.store.shutdown();
    }
}

impl<S: Store> Figures for Hesitant<S> {
    fn figures(&self) -> FigureValues {
        self.store.figures()
    }

    fn is_full(&self) -> bool {
        self.store.is_full()
    }
}

mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_seda::manual::ManualDriver;
    use timestone_seda::{FrameBatch, Memory, MemoryUse, Stage, StageId};
    use timestone_store::{Mftl, MftlConfig};
    use timestone_types::{ClientId, Sequence, ShardId, TxnId};
    use timestone_wire::{
        self as wire, Envelope, Frame, Frames, Get, Message, PrepareHead, PrepareWriter, ReadAt,
        ReadEntry, RequestId, Value, Verdict, Vote, WriteEntry, WriteKind,
    };

    use super::super::{LogPlace, own_reply_address};
    use super::*;
    use crate::replay::{Recovering, Replay};
    use crate::testing::{Event, TestStage};

    const SHARD: ShardId = ShardId::new(0);
    const STAGE: StageId = StageId::new(0);
    const ASKER: StageId = StageId::new(7);
    const CLIENT: ClientId = ClientId::new(3);
    const SPACE: KeyspaceId = KeyspaceId::DEFAULT;
    const START: Timestamp = Timestamp::from_nanos(100_000_000_000);
    const KEYS: [&[u8]; 2] = [b"one", b"two"];
    const CLIENTS: usize = 5;

    /// How far a client is that adds one to a counter, in a transaction.
    #[derive(Clone, Copy)]
    enum Doing {
        Nothing,
        Reading { key: usize },
        Committing { key: usize },
    }

    struct World {
        driver: ManualDriver<Event>,
        now: Timestamp,
        dice: Dice,
        clients: [Doing; CLIENTS],
        committed: [u64; KEYS.len()],
        asked: u64,
        frames: Vec<u8>,
    }

    impl World {
        fn new(seed: u64, pending_of: u64) -> Self {
            let device = Box::new(MemoryMedia::new(MemoryConfig::default()).open());
            let config = MftlConfig { checkpoint_bytes: 0, ..MftlConfig::default() };
            let (store, _) = Mftl::open(device, config).unwrap();
            let store = Hesitant::new(store, seed, pending_of);
            let with = Recovering::alone(SHARD, LogPlace::Nowhere, START);
            let stage = Replay::new(SHARD, Box::new(store)).finish(with);
            let driver = ManualDriver::new(
                vec![Box::new(TestStage(stage)) as Box<dyn Stage<Event>>],
                START,
                1000,
            );
            Self {
                driver,
                now: START,
                dice: Dice(seed ^ 0xabcd),
                clients: [Doing::Nothing; CLIENTS],
                committed: [0; KEYS.len()],
                asked: 0,
                frames: Vec::new(),
            }
        }

        /// Sends what clients want and takes what comes back.
        fn turn(&mut self) {
            let frame_batch =
                FrameBatch::new(own_reply_address(ASKER), std::mem::take(&mut self.frames));
            self.driver.set_now(self.now);
            self.driver.send(STAGE, Event::FrameBatch(frame_batch)).unwrap();
            self.driver.turn();
            while let Some((_, event)) = self.driver.take_sent() {
                let Event::FrameBatch(frame_batch) = event else { continue };
                let frames: Vec<Frame<'_>> = Frames::new(wire::without_clock(&frame_batch.bytes))
                    .map(Result::unwrap)
                    .collect();
                for frame in frames {
                    let client = frame.envelope().request.get() as usize - 1;
                    self.take(client, &frame);
                }
            }
        }

        fn envelope(client: usize) -> Envelope {
            let request = RequestId::new(client as u64 + 1);
            Envelope { request, shard: SHARD, ..Envelope::default() }
        }

        fn ask(&mut self, client: usize) {
            let key = self.dice.roll(KEYS.len() as u64) as usize;
            self.clients[client] = Doing::Reading { key };
            let at = match self.dice.roll(2) {
                0 => ReadAt::Latest(self.now),
                _ => ReadAt::Snapshot(self.now),
            };
            let get = Get { keyspace: SPACE, at, client: CLIENT, wait: true, key: KEYS[key] };
            get.encode(&Self::envelope(client), &mut self.frames);
        }

        fn take(&mut self, client: usize, frame: &Frame<'_>) {
            match self.clients[client] {
                Doing::Nothing => {}
                Doing::Reading { key } => match Value::decode(frame) {
                    Ok(found) => self.commit(client, key, &found),
                    Err(_) => self.clients[client] = Doing::Nothing,
                },
                Doing::Committing { key } => {
                    if Vote::decode(frame).is_ok_and(|vote| vote.verdict == Verdict::Yes) {
                        self.committed[key] += 1;
                    }
                    self.clients[client] = Doing::Nothing;
                }
            }
        }

        /// Puts one more than was found, if that is still the latest.
        fn commit(&mut self, client: usize, key: usize, found: &Value<'_>) {
            self.clients[client] = Doing::Committing { key };
            self.asked += 1;
            let begin = self.now.max(found.version.timestamp);
            let before = found.present.then(|| u64::from_be_bytes(found.value.try_into().unwrap()));
            let after = (before.unwrap_or(0) + 1).to_be_bytes();
            let participants = [SHARD];
            let head = PrepareHead {
                txn: TxnId::new(CLIENT, Sequence::new(self.asked)),
                begin,
                // Two clients need not agree about the time.
                commit: begin.saturating_add(Duration::from_micros(1 + self.dice.roll(400_000))),
                single: true,
                wait: true,
                participants: &participants,
            };
            let mut writer = PrepareWriter::begin(&Self::envelope(client), &head, &mut self.frames);
            writer.read(&ReadEntry {
                keyspace: SPACE,
                version: found.version,
                absent: !found.present,
                expires_at: found.expires_at,
                key: KEYS[key],
            });
            writer.write(&WriteEntry {
                keyspace: SPACE,
                kind: WriteKind::Put,
                expires_at: Expiry::NEVER,
                key: KEYS[key],
                value: &after,
            });
            writer.finish();
        }

        /// The counters as they are stored.
        fn stored(&mut self) -> [u64; KEYS.len()] {
            let mut stored = [0; KEYS.len()];
            for (key, stored) in stored.iter_mut().enumerate() {
                let get = Get {
                    keyspace: SPACE,
                    at: ReadAt::Latest(self.now),
                    client: CLIENT,
                    wait: true,
                    key: KEYS[key],
                };
                let mut bytes = Vec::new();
                get.encode(&Self::envelope(0), &mut bytes);
                for _ in 0..100 {
                    self.now = self.now.saturating_add(Duration::from_millis(100));
                    self.driver.set_now(self.now);
                    let frame_batch =
                        FrameBatch::new(own_reply_address(ASKER), std::mem::take(&mut bytes));
                    self.driver.send(STAGE, Event::FrameBatch(frame_batch)).unwrap();
                    self.driver.turn();
                    while let Some((_, event)) = self.driver.take_sent() {
                        let Event::FrameBatch(frame_batch) = event else { continue };
                        let frame = Frame::parse(wire::without_clock(&frame_batch.bytes)).unwrap();
                        let found = Value::decode(&frame).unwrap();
                        *stored = u64::from_be_bytes(found.value.try_into().unwrap());
                    }
                }
            }
            stored
        }
    }

    /// How many increments were acknowledged, and how many of them are stored.
    fn counted(seed: u64, pending_of: u64) -> ([u64; KEYS.len()], [u64; KEYS.len()]) {
        let mut world = World::new(seed, pending_of);
        for _ in 0..1500 {
            for client in 0..CLIENTS {
                if matches!(world.clients[client], Doing::Nothing) && world.dice.roll(2) == 0 {
                    world.ask(client);
                }
            }
            // Now and then so long that the window of recent accesses rotates.
            let step = if world.dice.roll(3) == 0 { 2_100 } else { 1 };
            world.now = world.now.saturating_add(Duration::from_millis(step));
            world.turn();
        }
        for _ in 0..200 {
            world.now = world.now.saturating_add(Duration::from_millis(10));
            world.turn();
        }
        assert!(world.clients.iter().all(|doing| matches!(doing, Doing::Nothing)), "all answered");
        (world.committed, world.stored())
    }

    /// A shard whose look-ups fail when they are told to.
    struct Failing {
        driver: ManualDriver<Event>,
        faults: Arc<Faults>,
        memory: Arc<Memory>,
    }

    impl Failing {
        fn new() -> Self {
            let device = Box::new(MemoryMedia::new(MemoryConfig::default()).open());
            let config = MftlConfig { checkpoint_bytes: 0, ..MftlConfig::default() };
            let (store, _) = Mftl::open(device, config).unwrap();
            let store = Hesitant::new(store, 1, 1_000_000);
            let faults = store.faults();
            let memory = Arc::new(Memory::new(1 << 20, 1 << 20, 1 << 20));
            let with = Recovering::alone(SHARD, LogPlace::Nowhere, START);
            let with = Recovering { memory: Arc::clone(&memory), ..with };
            let stage = Replay::new(SHARD, Box::new(store)).finish(with);
            let stages = vec![Box::new(TestStage(stage)) as Box<dyn Stage<Event>>];
            Self { driver: ManualDriver::new(stages, START, 1000), faults, memory }
        }

        /// What a request is answered with, if it is.
        fn ask(&mut self, write: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Option<wire::Kind> {
            let mut bytes = Vec::new();
            write(&World::envelope(0), &mut bytes);
            for _ in 0..20 {
                let batch = FrameBatch::new(own_reply_address(ASKER), std::mem::take(&mut bytes));
                self.driver.send(STAGE, Event::FrameBatch(batch)).unwrap();
                self.driver.turn();
                while let Some((to, event)) = self.driver.take_sent() {
                    if let Event::FrameBatch(batch) = event
                        && to == ASKER
                    {
                        let frames = wire::without_clock(&batch.bytes);
                        return Some(Frames::new(frames).next().unwrap().unwrap().kind());
                    }
                }
            }
            None
        }

        /// A prepare over two shards, for `millis` after the start.
        fn prepare(&mut self, number: u64, millis: u64) -> Option<wire::Kind> {
            self.prepare_of(number, number, millis)
        }

        fn prepare_of(&mut self, number: u64, key: u64, millis: u64) -> Option<wire::Kind> {
            let participants = [SHARD, ShardId::new(1)];
            let head = PrepareHead {
                txn: TxnId::new(CLIENT, Sequence::new(number)),
                begin: START,
                commit: START.saturating_add(Duration::from_millis(millis)),
                single: false,
                wait: false,
                participants: &participants,
            };
            self.ask(|envelope, out| {
                let mut writer = PrepareWriter::begin(envelope, &head, out);
                writer.write(&WriteEntry {
                    keyspace: SPACE,
                    kind: WriteKind::Put,
                    expires_at: Expiry::NEVER,
                    key: &key.to_be_bytes(),
                    value: b"value",
                });
                writer.finish();
            })
        }

        /// For how many milliseconds a write waits that may wait, and wants to know what was there.
        fn waits(&mut self, number: u64, key: u64, from: Timestamp) -> Option<u64> {
            let write = wire::Write {
                txn: TxnId::new(CLIENT, Sequence::new(number)),
                begin: START,
                commit: from.saturating_add(Duration::from_millis(20)),
                keyspace: SPACE,
                action: wire::WriteAction::Put,
                condition: wire::Condition::IfPresent,
                return_previous: false,
                wait: true,
                expires_at: Expiry::NEVER,
                key: &key.to_be_bytes(),
                value: b"value",
            };
            (0..1000).find(|&waited| {
                self.driver.set_now(from.saturating_add(Duration::from_millis(waited)));
                self.ask(|envelope, out| {
                    if waited == 0 {
                        write.encode(envelope, out);
                    }
                })
                .is_some()
            })
        }

        /// A single write that wants to know what was there.
        fn write(&mut self, number: u64) -> Option<wire::Kind> {
            let write = wire::Write {
                txn: TxnId::new(CLIENT, Sequence::new(number)),
                begin: START,
                commit: START.saturating_add(Duration::from_millis(number)),
                keyspace: SPACE,
                action: wire::WriteAction::Put,
                condition: wire::Condition::IfAbsent,
                return_previous: false,
                wait: false,
                expires_at: Expiry::NEVER,
                key: &number.to_be_bytes(),
                value: b"value",
            };
            self.ask(|envelope, out| write.encode(envelope, out))
        }
    }

    #[test]
    fn a_repeat_of_what_was_promised_or_decided_is_answered_although_its_look_up_fails() {
        let mut shard = Failing::new();
        assert_eq!(shard.prepare(1, 10), Some(wire::Kind::Vote));
        assert_eq!(shard.write(2), Some(wire::Kind::Written));
        shard.faults.fails.store(true, Relaxed);
        assert_eq!(shard.prepare(1, 10), Some(wire::Kind::Vote), "the promise that is kept");
        assert_eq!(shard.write(2), Some(wire::Kind::Written), "what was decided");
        assert_eq!(shard.prepare(3, 10), Some(wire::Kind::ErrorReply), "it is a new one");
        assert_eq!(shard.write(4), Some(wire::Kind::ErrorReply), "it is a new one");
    }

    #[test]
    fn a_repeat_asks_for_no_room_and_a_new_one_is_refused_before_its_look_up() {
        // Either others hold all memory, or the store is full.
        for (held_bytes, is_full) in [(1 << 20, false), (0, true)] {
            let mut shard = Failing::new();
            assert_eq!(shard.write(2), Some(wire::Kind::Written));
            assert_eq!(shard.prepare(1, 10), Some(wire::Kind::Vote));
            shard.faults.is_full.store(is_full, Relaxed);
            let _held = shard.memory.charge(MemoryUse::Writes, held_bytes);
            let asked = |shard: &Failing| {
                let refused = shard.memory.refused(MemoryUse::Writes);
                refused + shard.faults.asked_room.load(Relaxed)
            };
            assert_eq!(shard.prepare(1, 10), Some(wire::Kind::Vote), "the promise that is kept");
            assert_eq!(shard.write(2), Some(wire::Kind::Written), "what was decided");
            assert_eq!(asked(&shard), 0, "nothing is wanted for them");
            let looked = shard.faults.looked.load(Relaxed);
            assert_eq!(shard.prepare(3, 10), Some(wire::Kind::ErrorReply), "it is a new one");
            assert_eq!(shard.write(4), Some(wire::Kind::ErrorReply), "it is a new one");
            assert_eq!(asked(&shard), 2, "room is asked for");
            assert_eq!(shard.faults.looked.load(Relaxed), looked, "nobody has looked");
        }
    }

    /// For how long two writes wait, one after the other, whose key is promised to a transaction that nobody
    /// decides. What is there has to be read each time.
    fn wait_for_a_promise() -> [Option<u64>; 2] {
        let mut shard = Failing::new();
        assert_eq!(shard.write(2), Some(wire::Kind::Written));
        assert_eq!(shard.prepare_of(3, 2, 10), Some(wire::Kind::Vote));
        let later = START.saturating_add(Duration::from_millis(1500));
        [(4, START), (5, later)].map(|(number, from)| shard.waits(number, 2, from))
    }

    #[test]
    fn a_write_that_has_waited_for_a_promise_waits_once_and_the_next_one_as_long() {
        let millis = timestone_types::limits::PREPARED_WAIT.as_millis() as u64;
        for waited in wait_for_a_promise() {
            let waited = waited.expect("it is answered");
            assert!((millis..millis + 10).contains(&waited), "{waited} ms");
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_leave_to_wait_that_stays_for_the_next_write_is_noticed() {
        let bug = timestone_types::planted::Bug::KeepsLeave;
        let millis = timestone_types::limits::PREPARED_WAIT.as_millis() as u64;
        let [first, second] = timestone_types::planted::with(bug, wait_for_a_promise);
        assert!(first >= Some(millis) && second < Some(millis), "{first:?} and {second:?} ms");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_write_that_waits_anew_after_a_page_is_noticed() {
        let bug = timestone_types::planted::Bug::WaitsAnew;
        let millis = timestone_types::limits::PREPARED_WAIT.as_millis() as u64;
        let [waited, _] = timestone_types::planted::with(bug, wait_for_a_promise);
        assert!(waited.is_none_or(|waited| waited >= 2 * millis), "{waited:?} ms");
    }

    #[test]
    fn a_later_round_is_not_judged_without_its_look_ups() {
        let mut shard = Failing::new();
        assert_eq!(shard.prepare(1, 10), Some(wire::Kind::Vote));
        shard.faults.fails.store(true, Relaxed);
        assert_eq!(shard.prepare(1, 20), None, "the promise before it holds");
        shard.faults.fails.store(false, Relaxed);
        assert_eq!(shard.prepare(1, 20), Some(wire::Kind::Vote));
    }

    #[test]
    fn no_update_is_lost_whenever_the_store_answers() {
        for (seed, pending_of) in [(1, 1_000_000), (2, 2), (3, 4), (4, 1_000_000), (5, 3)] {
            let (committed, stored) = counted(seed, pending_of);
            assert!(committed.iter().all(|&count| count > 20), "{seed}: {committed:?}");
            assert_eq!(committed, stored, "seed {seed}");
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_answer_that_misses_what_was_written_meanwhile_loses_updates() {
        let lost = |seed| {
            timestone_types::planted::with(timestone_types::planted::Bug::StaleLookups, || {
                let (committed, stored) = counted(seed, 1_000_000);
                committed != stored
            })
        };
        assert!((1..20).any(lost), "the planted bug is found");
    }
}

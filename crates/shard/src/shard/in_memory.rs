//! Keyspaces in memory beside others on flash, over a restart (tests).
//!
//! A restart takes the keyspace in memory whole. What was promised or decided before comes back for
//! the other keyspaces only; nobody sees half of what is gone.

use std::time::Duration;

use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{FrameBatch, Stage, StageId};
use timestone_store::{Dram, DramConfig, Mftl, MftlConfig, Reads, Store, Stores};
use timestone_types::{
    AbortKind, ClientId, Epoch, Expiry, KeyspaceId, PreviousFound, Sequence, ShardId, Timestamp,
    TxnId, Version,
};
use timestone_wal::{BatchNumber, DecidedBy, LogRecord, Participants, RecordNumber};
use timestone_wire::{
    self as wire, Count, Counted, Decide, Envelope, ErrorCode, ErrorReply, Frame, Frames, Get,
    Message, Newest, NewestIs, Prepare, PrepareHead, PrepareWriter, ReadAt, ReadEntry, Value,
    Verdict, Vote, WriteEntry, WriteKind,
};

use super::hesitant::Hesitant;
use super::{LogPlace, RecordPlace, own_reply_address};
use crate::replay::{Recovering, Replay};
use crate::testing::{Event, TestStage};

const SHARD: ShardId = ShardId::new(0);
const ELSEWHERE: ShardId = ShardId::new(9);
const STAGE: StageId = StageId::new(0);
const ASKER: StageId = StageId::new(7);
const CLIENT: ClientId = ClientId::new(3);
const FLASH: KeyspaceId = KeyspaceId::DEFAULT;
const MEMORY: KeyspaceId = KeyspaceId::numbered(4, true);
/// When the earlier run was served last, and when this one begins.
const START: Timestamp = Timestamp::from_nanos(100_000_000_000);
/// The length in front of a record of a batch.
const PREFIX_BYTES: usize = 4;

fn before(millis: u64) -> Timestamp {
    START.saturating_sub(Duration::from_millis(millis))
}

fn after(millis: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(millis))
}

fn txn(number: u64) -> TxnId {
    TxnId::new(CLIENT, Sequence::new(number))
}

const fn put<'a>(keyspace: KeyspaceId, key: &'a [u8], value: &'a [u8]) -> WriteEntry<'a> {
    WriteEntry { keyspace, kind: WriteKind::Put, expires_at: Expiry::NEVER, key, value }
}

const fn fence(keyspace: KeyspaceId) -> WriteEntry<'static> {
    let (key, value): (&[u8], &[u8]) = (&[], &[]);
    WriteEntry { keyspace, kind: WriteKind::Fence, expires_at: Expiry::NEVER, key, value }
}

fn prepare(
    envelope: &Envelope,
    (number, begin, commit): (u64, Timestamp, Timestamp),
    participants: &[ShardId],
    reads: &[ReadEntry<'_>],
    writes: &[WriteEntry<'_>],
    out: &mut Vec<u8>,
) {
    let single = participants.len() == 1;
    let head = PrepareHead { txn: txn(number), begin, commit, single, wait: false, participants };
    let mut writer = PrepareWriter::begin(envelope, &head, out);
    reads.iter().for_each(|read| writer.read(read));
    writes.iter().for_each(|write| writer.write(write));
    writer.finish();
}

/// The record of a prepare at `commit`, and of its decision if it `is_decided`.
fn records(
    number: u64,
    commit: Timestamp,
    is_decided: bool,
    writes: &[WriteEntry<'_>],
) -> Vec<Vec<u8>> {
    let (begin, shards) = (before(900), [SHARD, ELSEWHERE]);
    let mut frame = Vec::new();
    let head = (number, begin, commit);
    prepare(&Envelope::default(), head, &shards, &[], writes, &mut frame);
    let decoded = Prepare::decode(&Frame::parse(&frame).unwrap()).unwrap();
    let (txn, found) = (txn(number), PreviousFound::Unasked);
    let (participants, body) = (Participants::new(&shards), decoded.body.bytes());
    let promise =
        LogRecord::Prepare { txn, begin, commit, single: false, found, participants, body };
    let (decided_by, abort, met) = (DecidedBy::Client, None, Timestamp::ZERO);
    let decision =
        LogRecord::Decision { txn, begin, commit, decided_by, abort, found, met, participants };
    let records = [Some(promise), is_decided.then_some(decision)];
    records
        .iter()
        .flatten()
        .map(|record| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes.split_off(PREFIX_BYTES)
        })
        .collect()
}

/// A store on flash and one in memory, which have recovered themselves.
fn stores() -> Stores {
    let device = Box::new(MemoryMedia::new(MemoryConfig::default()).open());
    let config = MftlConfig { checkpoint_bytes: 0, ..MftlConfig::default() };
    let (flash, _) = Mftl::open(device, config).unwrap();
    let config = DramConfig { seed: flash.seed(), memory_bytes: 1 << 20 };
    Stores::new(flash, Dram::in_recovery(config))
}

/// A shard whose log holds these records.
struct World {
    driver: ManualDriver<Event>,
}

impl World {
    fn with_log(records: &[Vec<u8>]) -> Self {
        Self::on(Box::new(stores()), records)
    }

    fn on(store: Box<dyn Store + Send>, records: &[Vec<u8>]) -> Self {
        Self::with_bound(store, records, START)
    }

    /// The earlier run has left a read bound that may lie ahead of the clock.
    fn with_bound(store: Box<dyn Store + Send>, records: &[Vec<u8>], bound: Timestamp) -> Self {
        let mut replay = Replay::new(SHARD, store);
        let mut last = Vec::new();
        LogRecord::ReadBound { bound, watermark: Timestamp::ZERO }.encode(&mut last);
        let last = last.split_off(PREFIX_BYTES);
        for (n, record) in records.iter().chain([&last]).enumerate() {
            let place = RecordPlace {
                batch: BatchNumber::new(1),
                epoch: Epoch::default(),
                number: RecordNumber::new(n as u64 + 1),
            };
            replay.record(START, place, record).unwrap();
        }
        let stage = replay.finish(Recovering::alone(SHARD, LogPlace::Nowhere, START));
        let stages = vec![Box::new(TestStage(stage)) as Box<dyn Stage<Event>>];
        let mut world = Self { driver: ManualDriver::new(stages, START, 1000) };
        world.driver.set_now(after(100));
        world
    }

    fn ask<T>(
        &mut self,
        encode: impl FnOnce(&Envelope, &mut Vec<u8>),
        read: impl FnOnce(&Frame<'_>) -> T,
    ) -> Result<T, ErrorCode> {
        let (envelope, mut bytes) = (Envelope { shard: SHARD, ..Envelope::default() }, Vec::new());
        encode(&envelope, &mut bytes);
        for _ in 0..1000 {
            let frame_batch = FrameBatch::new(own_reply_address(ASKER), std::mem::take(&mut bytes));
            self.driver.send(STAGE, Event::FrameBatch(frame_batch)).unwrap();
            self.driver.turn();
            while let Some((to, event)) = self.driver.take_sent() {
                if let Event::FrameBatch(frame_batch) = event
                    && to == ASKER
                {
                    let frames = wire::without_clock(&frame_batch.bytes);
                    let frame = Frames::new(frames).next().unwrap().unwrap();
                    return ErrorReply::decode(&frame)
                        .map_or_else(|_| Ok(read(&frame)), |error| Err(error.code));
                }
            }
        }
        panic!("no answer");
    }

    /// The version and the value that a read finds.
    fn get(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        at: ReadAt,
    ) -> Result<Option<(Version, Vec<u8>)>, ErrorCode> {
        let get = Get { keyspace, at, client: CLIENT, wait: false, key };
        self.ask(
            |envelope, out| get.encode(envelope, out),
            |frame| {
                let found = Value::decode(frame).unwrap();
                found.present.then(|| (found.version, found.value.to_vec()))
            },
        )
    }

    /// Where a scan would begin.
    fn newest(&mut self, keyspace: KeyspaceId) -> Result<Timestamp, ErrorCode> {
        self.ask(
            |envelope, out| Newest { keyspace }.encode(envelope, out),
            |frame| NewestIs::decode(frame).unwrap().at,
        )
    }

    fn value(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Option<Vec<u8>> {
        self.get(keyspace, key, ReadAt::Latest(after(100))).unwrap().map(|(_, value)| value)
    }

    fn count(&mut self, keyspace: KeyspaceId) -> u64 {
        let count = Count { keyspace, at: after(100), client: CLIENT };
        self.ask(
            |envelope, out| count.encode(envelope, out),
            |frame| Counted::decode(frame).unwrap().keys,
        )
        .unwrap()
    }

    fn commit(
        &mut self,
        number: u64,
        begin: Timestamp,
        reads: &[ReadEntry<'_>],
        writes: &[WriteEntry<'_>],
    ) -> Result<Verdict, ErrorCode> {
        let head = (number, begin, after(100 + number));
        self.ask(
            |envelope, out| prepare(envelope, head, &[SHARD], reads, writes, out),
            |frame| Vote::decode(frame).unwrap().verdict,
        )
    }

    fn decide(&mut self, number: u64, commit: Timestamp) {
        self.ask(
            |envelope, out| Decide::new(txn(number), Some(commit)).encode(envelope, out),
            |_| (),
        )
        .unwrap();
    }
}

/// A decided transaction over both keyspaces, and one that is only promised.
fn restarted() -> World {
    World::with_log(&log())
}

fn log() -> Vec<Vec<u8>> {
    let mut log = records(
        1,
        before(500),
        true,
        &[put(FLASH, b"one", b"1"), put(MEMORY, b"one", b"1"), put(MEMORY, b"more", b"1")],
    );
    log.extend(records(
        2,
        before(400),
        false,
        &[put(FLASH, b"two", b"2"), put(MEMORY, b"two", b"2")],
    ));
    log
}

#[test]
fn a_restart_empties_the_keyspace_in_memory_and_no_other() {
    let mut world = restarted();
    assert_eq!(world.value(FLASH, b"one"), Some(b"1".to_vec()));
    assert_eq!((world.value(MEMORY, b"one"), world.value(MEMORY, b"more")), (None, None));
    assert_eq!(world.commit(7, after(90), &[], &[put(MEMORY, b"new", b"7")]), Ok(Verdict::Yes));
    world.driver.set_now(after(300));
    assert_eq!(world.value(MEMORY, b"new"), Some(b"7".to_vec()));
}

/// What a promise of the earlier run puts that is decided in this one.
fn decided_late(mut world: World) -> [Option<Vec<u8>>; 2] {
    world.decide(2, before(400));
    world.driver.set_now(after(200));
    [world.value(FLASH, b"two"), world.value(MEMORY, b"two")]
}

#[test]
fn a_promise_of_the_earlier_run_puts_nothing_into_the_keyspace_that_was_lost() {
    assert_eq!(decided_late(restarted()), [Some(b"2".to_vec()), None]);
    for seed in 1..20 {
        let hesitant = World::on(Box::new(Hesitant::new(stores(), seed, 3)), &log());
        assert_eq!(decided_late(hesitant), [Some(b"2".to_vec()), None], "seed {seed}");
    }
    let mut world = restarted();
    world.decide(2, before(400));
    assert_eq!((world.count(FLASH), world.count(MEMORY)), (2, 0));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn half_of_what_was_lost_that_comes_back_is_found() {
    let bug = timestone_types::planted::Bug::ForgottenMemoryLoss;
    let [flash, memory] = timestone_types::planted::with(bug, || decided_late(restarted()));
    assert!(flash.is_some() && memory.is_some(), "the planted bug is found");
}

#[test]
fn who_read_before_the_restart_is_refused() {
    let mut world = restarted();
    let (begin, version) = (before(300), Version::new(before(500), CLIENT));
    let read = ReadEntry {
        keyspace: MEMORY,
        version,
        absent: false,
        expires_at: Expiry::NEVER,
        key: b"one",
    };
    let snapshot = world.get(MEMORY, b"more", ReadAt::Snapshot(begin));
    assert_eq!(snapshot, Err(ErrorCode::SnapshotTooOld), "the other half of it is gone");
    let writes = [put(FLASH, b"copy", b"of one")];
    let verdict = world.commit(5, begin, &[read], &writes);
    assert!(
        matches!(verdict, Ok(Verdict::No(reason)) if reason.kind == AbortKind::ReadConflict),
        "{verdict:?}"
    );
    // Who found it absent before the restart knows nothing of what was put in between.
    let absent = ReadEntry { version: Version::ZERO, absent: true, ..read };
    let verdict = world.commit(6, begin, &[absent], &writes);
    assert!(
        matches!(verdict, Ok(Verdict::No(reason)) if reason.kind == AbortKind::ReadConflict),
        "{verdict:?}"
    );
    assert_eq!(world.value(FLASH, b"copy"), None);
}

/// What a shard says 100 ms after its begin of keys in memory that were lost up to 900 ms after it:
/// to a snapshot, to who asks for what is latest, to a scan, and to a transaction that had read
/// before.
fn told_of_a_loss_ahead() -> [Result<Timestamp, ErrorCode>; 4] {
    let mut world = World::with_bound(Box::new(stores()), &log(), after(900));
    let now = after(100);
    let version = |found: Option<(Version, Vec<u8>)>| {
        found.map_or(Timestamp::ZERO, |(version, _)| version.timestamp)
    };
    let snapshot = world.get(MEMORY, b"one", ReadAt::Snapshot(now)).map(version);
    let latest = world.get(MEMORY, b"one", ReadAt::Latest(now)).map(version);
    let scan = world.newest(MEMORY);
    let (keyspace, version, expires_at) =
        (MEMORY, Version::new(before(500), CLIENT), Expiry::NEVER);
    let read = ReadEntry { keyspace, version, absent: false, expires_at, key: b"one" };
    let at_commit = world.commit(5, after(90), &[read], &[put(FLASH, b"copy", b"1")]);
    let above = |verdict| match verdict {
        Verdict::No(reason) => reason.at,
        other => panic!("{other:?}"),
    };
    assert_eq!(world.value(FLASH, b"one"), Some(b"1".to_vec()), "what is on flash is read");
    [snapshot, latest, scan, at_commit.map(above)]
}

#[test]
fn nobody_is_sent_into_the_future_for_what_was_lost() {
    assert_eq!(told_of_a_loss_ahead(), [Err(ErrorCode::Unavailable); 4]);
    let mut world = World::with_bound(Box::new(stores()), &log(), after(900));
    world.driver.set_now(after(901));
    let begun_below = world.get(MEMORY, b"one", ReadAt::Snapshot(after(100)));
    assert_eq!(begun_below, Err(ErrorCode::SnapshotTooOld));
    assert_eq!(world.get(MEMORY, b"one", ReadAt::Snapshot(after(901))), Ok(None));
    assert_eq!(world.get(MEMORY, b"one", ReadAt::Latest(after(100))), Ok(None));
    assert_eq!(world.newest(MEMORY), Ok(after(900)));
}

#[test]
fn what_was_lost_far_ahead_of_the_clock_is_not_waited_for() {
    let mut world = World::with_bound(Box::new(stores()), &log(), after(60_000));
    for at in [ReadAt::Snapshot(after(100)), ReadAt::Latest(after(100))] {
        assert_eq!(world.get(MEMORY, b"one", at), Err(ErrorCode::ClockBehind));
    }
    assert_eq!(world.newest(MEMORY), Err(ErrorCode::ClockBehind));
    let on_flash = world.get(FLASH, b"one", ReadAt::Latest(after(100)));
    assert!(matches!(on_flash, Ok(Some(_))), "{on_flash:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn who_is_sent_into_the_future_for_what_was_lost_is_noticed() {
    let bug = timestone_types::planted::Bug::SentIntoFuture;
    let [snapshot, latest, scan, at_commit] =
        timestone_types::planted::with(bug, told_of_a_loss_ahead);
    assert_eq!((snapshot, latest), (Err(ErrorCode::SnapshotTooOld), Ok(Timestamp::ZERO)));
    assert_eq!((scan, at_commit), (Ok(after(900)), Ok(after(900))));
}

#[test]
fn one_transaction_writes_to_both_keyspaces_and_a_fence_empties_one() {
    let mut world = World::with_log(&[]);
    let both = [put(FLASH, b"key", b"f"), put(MEMORY, b"key", b"m")];
    assert_eq!(world.commit(1, after(90), &[], &both), Ok(Verdict::Yes));
    world.driver.set_now(after(400));
    assert_eq!(world.value(FLASH, b"key"), Some(b"f".to_vec()));
    assert_eq!(world.value(MEMORY, b"key"), Some(b"m".to_vec()));
    let verdict = world.commit(300, after(200), &[], &[fence(MEMORY)]);
    let verdict = match verdict {
        Ok(Verdict::Later(_)) => {
            world.driver.set_now(after(900));
            world.commit(800, after(200), &[], &[fence(MEMORY)])
        }
        other => other,
    };
    assert_eq!(verdict, Ok(Verdict::Yes));
    world.driver.set_now(after(1500));
    let at = ReadAt::Latest(after(1500));
    assert_eq!(world.get(MEMORY, b"key", at), Ok(None));
    assert!(matches!(world.get(FLASH, b"key", at), Ok(Some(_))));
}

#[test]
fn puts_into_memory_that_is_used_up_are_refused_and_others_go_on() {
    let mut world = World::with_log(&[]);
    let value = vec![1; 20_000];
    let (mut number, mut refused) = (0_u64, None);
    while refused.is_none() && number < 100 {
        number += 1;
        let key = number.to_be_bytes();
        refused = world.commit(number, after(90), &[], &[put(MEMORY, &key, &value)]).err();
    }
    assert_eq!(refused, Some(ErrorCode::DeviceFull));
    assert!(number > 40, "{number} were taken");
    let both = [put(FLASH, b"key", b"f"), put(MEMORY, b"key", &value)];
    assert_eq!(world.commit(110, after(90), &[], &both), Err(ErrorCode::DeviceFull));
    let flash = [put(FLASH, b"key", &value)];
    assert_eq!(world.commit(111, after(90), &[], &flash), Ok(Verdict::Yes));
}

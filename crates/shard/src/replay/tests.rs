//! What a shard begins with, tested.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use timestone_clock::ManualClock;
use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{Context, FrameBatch, ReplyAddress, Stage, StageId};
use timestone_store::{Mftl, MftlConfig};
use timestone_types::{ClientId, Expiry, HashSeed, KeyspaceId, Sequence};
use timestone_wal::{DecidedBy, Participants, RecordNumber};
use timestone_wire::{
    Envelope, Frame, Frames, Get, Kind, Message, Prepare, PrepareHead, PrepareWriter, ReadAt,
    RequestId, Value, WriteEntry,
};

use super::*;
use crate::shard::{LogPlace, own_reply_address};
use crate::testing::{Event, TestStage};

const SHARD: ShardId = ShardId::new(0);
const STAGE: StageId = StageId::new(0);
const ASKER: StageId = StageId::new(7);
const CLIENT: ClientId = ClientId::new(3);
/// The length in front of a record of a batch.
const PREFIX_BYTES: usize = 4;
const VALUE: [u8; 900] = [5; 900];

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn txn(number: u64) -> TxnId {
    TxnId::new(CLIENT, Sequence::new(number))
}

/// The records of a transaction that writes one key: one record when the shard is alone, else a
/// promise and its decision.
fn records(
    number: u64,
    key: &[u8],
    value: Option<&[u8]>,
    commit: Timestamp,
    single: bool,
) -> Vec<Vec<u8>> {
    let (txn, begin, participants) = (txn(number), at(1), [SHARD]);
    let head = PrepareHead { txn, begin, commit, single, wait: false, participants: &participants };
    let mut frame = Vec::new();
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut frame);
    let kind = if value.is_some() { WriteKind::Put } else { WriteKind::Delete };
    let value = value.unwrap_or_default();
    let keyspace = KeyspaceId::DEFAULT;
    writer.write(&WriteEntry { keyspace, kind, expires_at: Expiry::NEVER, key, value });
    writer.finish();
    let prepare = Prepare::decode(&Frame::parse(&frame).unwrap()).unwrap();
    let participants = Participants::new(&participants);
    let body = prepare.body.bytes();
    let (found, met) = (PreviousFound::Unasked, Timestamp::ZERO);
    let mut records =
        vec![LogRecord::Prepare { txn, begin, commit, single, found, participants, body }];
    if !single {
        let (decided_by, abort) = (DecidedBy::Client, None);
        records.push(LogRecord::Decision {
            txn,
            begin,
            commit,
            decided_by,
            abort,
            found,
            met,
            participants,
        });
    }
    let bytes = records.iter().map(|record| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes.split_off(PREFIX_BYTES)
    });
    bytes.collect()
}

fn feed(replay: &mut Replay, records: &[Vec<u8>]) {
    feed_in(replay, 1, records);
}

fn feed_in(replay: &mut Replay, batch: u64, records: &[Vec<u8>]) {
    let (batch, epoch, number) = (BatchNumber::new(batch), Epoch::default(), RecordNumber::FIRST);
    for record in records {
        replay.record(at(1000), RecordPlace { batch, epoch, number }, record).unwrap();
    }
}

/// The answers to a latest read of each key, by number; `None` for a refusal.
fn ask(
    driver: &mut ManualDriver<Event>,
    keys: core::ops::Range<u64>,
) -> Vec<(u64, Option<(bool, bool)>)> {
    let mut bytes = Vec::new();
    for n in keys {
        let envelope = Envelope { request: RequestId::new(n), shard: SHARD, ..Envelope::default() };
        let (keyspace, key) = (KeyspaceId::DEFAULT, n.to_be_bytes());
        Get { keyspace, at: ReadAt::Latest(at(2000)), client: CLIENT, wait: false, key: &key }
            .encode(&envelope, &mut bytes);
    }
    let reply_to: ReplyAddress = own_reply_address(ASKER);
    driver.send(STAGE, Event::FrameBatch(FrameBatch::new(reply_to, bytes))).unwrap();
    driver.turn();
    let mut answers = Vec::new();
    while let Some((to, event)) = driver.take_sent() {
        let Event::FrameBatch(frame_batch) = event else { panic!("{event:?}") };
        assert_eq!(to, ASKER);
        for frame in Frames::new(timestone_wire::without_clock(&frame_batch.bytes)) {
            let frame = frame.unwrap();
            let value = (frame.kind() == Kind::Value).then(|| Value::decode(&frame).unwrap());
            assert!(value.is_none_or(|value| !value.present || value.value == VALUE));
            let answer = value.map(|value| (value.present, value.prepared_before));
            answers.push((frame.envelope().request.get(), answer));
        }
    }
    answers
}

/// How many of two reads below the beginning of a run are answered, of a snapshot and of what
/// is latest, before and after its first bound is durable.
fn read_at_the_beginning(records: &[Vec<u8>], log: LogPlace, served: Served) -> [usize; 2] {
    let (store, _) = Mftl::open(
        Box::new(MemoryMedia::new(MemoryConfig::default()).open()),
        MftlConfig::default(),
    )
    .unwrap();
    let mut replay = Replay::new(SHARD, Box::new(store));
    feed(&mut replay, records);
    let stage = replay.finish(Recovering {
        clock: Arc::new(ManualClock::new(at(1000))),
        past: Past { served, ..Past::default() },
        ..Recovering::alone(SHARD, log, at(1000))
    });
    let mut driver = ManualDriver::new(
        vec![Box::new(TestStage(stage)) as Box<dyn Stage<Event>>],
        at(1000),
        1000,
    );
    let mut bytes = Vec::new();
    for (n, at) in [(1, ReadAt::Snapshot(at(900))), (2, ReadAt::Latest(at(900)))] {
        let envelope = Envelope { request: RequestId::new(n), shard: SHARD, ..Envelope::default() };
        Get { keyspace: KeyspaceId::DEFAULT, at, client: CLIENT, wait: false, key: b"key" }
            .encode(&envelope, &mut bytes);
    }
    driver
        .send(STAGE, Event::FrameBatch(FrameBatch::new(own_reply_address(ASKER), bytes)))
        .unwrap();
    let mut bound = None;
    [(); 2].map(|()| {
        let mut answers = 0;
        for _ in 0..10 {
            driver.turn();
            while let Some((to, event)) = driver.take_sent() {
                match event {
                    Event::LogAppend(append) => bound = Some(append.head.batch),
                    Event::FrameBatch(frame_batch) if to == ASKER => {
                        let frames = Frames::new(timestone_wire::without_clock(&frame_batch.bytes));
                        answers += frames
                            .filter(|frame| frame.as_ref().unwrap().kind() == Kind::Value)
                            .count();
                    }
                    _ => {}
                }
            }
        }
        if let Some(batch) = bound.take() {
            driver.send(STAGE, Event::LogDurable { batch }).unwrap();
        }
        answers
    })
}

/// The bound of an earlier run, durable in the log.
fn bound_record(bound: Timestamp) -> Vec<Vec<u8>> {
    let mut record = Vec::new();
    LogRecord::ReadBound { bound, watermark: Timestamp::ZERO }.encode(&mut record);
    vec![record.split_off(PREFIX_BYTES)]
}

const LOGGED: LogPlace = LogPlace::Stage(StageId::new(5));

#[test]
fn nothing_is_read_at_the_beginning_of_a_run_that_the_next_one_would_not_know_of() {
    let (nothing, none) = (Served::default(), Vec::new());
    assert_eq!(
        read_at_the_beginning(&none, LOGGED, nothing),
        [0, 2],
        "the first start of a directory"
    );
    assert_eq!(read_at_the_beginning(&bound_record(at(900)), LOGGED, nothing), [0, 2]);
    assert_eq!(
        read_at_the_beginning(&bound_record(at(901)), LOGGED, nothing),
        [2, 0],
        "the log tells of it"
    );
    // The last run had no log: the manifest tells of it.
    assert_eq!(read_at_the_beginning(&none, LOGGED, Served::below(at(950))), [2, 0]);
    for records in [none, bound_record(at(900))] {
        assert_eq!(
            read_at_the_beginning(&records, LogPlace::Nowhere, nothing),
            [2, 0],
            "there is no log to wait for"
        );
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn reads_that_the_next_run_would_not_know_of_are_noticed() {
    let answered =
        timestone_types::planted::with(timestone_types::planted::Bug::ReadBeforeFirstBound, || {
            read_at_the_beginning(&bound_record(at(900)), LOGGED, Served::default())
        });
    assert_eq!(answered, [2, 0], "the planted bug is found");
}

/// A stage that tells the test how much is not applied yet.
struct Watched(TestStage, Arc<std::sync::atomic::AtomicUsize>);

impl Stage<Event> for Watched {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.0.start(ctx);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.0.handle(ctx, events);
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.0.turn(ctx);
        self.1.store(self.0.0.unapplied(), std::sync::atomic::Ordering::Relaxed);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.0.next_deadline()
    }
}

/// A directory without a log whose clock was set back: the stores say how far time had come.
#[test]
fn time_and_watermark_go_on_from_the_youngest_version_where_no_log_tells_of_them() {
    let second = |n: u64| at(n * 1_000_000_000);
    let (store, _) = Mftl::open(
        Box::new(MemoryMedia::new(MemoryConfig::default()).open()),
        MftlConfig::default(),
    )
    .unwrap();
    let mut replay = Replay::new(SHARD, Box::new(store));
    assert_eq!((replay.youngest(), replay.lived_until()), (Timestamp::ZERO, Timestamp::ZERO));
    let key = KeyRef::new(replay.store.seed(), KeyspaceId::DEFAULT, b"key");
    replay.store.put(key, Version::new(second(100), CLIENT), &VALUE, Expiry::NEVER).unwrap();
    replay.store.fence(KeyspaceId::new(5), Version::new(second(101), CLIENT)).unwrap();
    assert_eq!(replay.youngest(), second(101));
    assert_eq!(
        replay.lived_until(),
        second(101).saturating_sub(MAX_CLOCK_LEAD),
        "no later than the clock was"
    );
    for (now, watermark) in [(second(50), second(101)), (second(150), second(150))] {
        let served = Served::by(now, replay.youngest());
        assert_eq!(served.watermark(), watermark);
        assert_eq!(Served::below(served.as_timestamp()), served);
    }
    assert_eq!(Served::default().watermark(), Timestamp::ZERO);
}

/// Of two logs, one was emptied further than the other: it took the decision of a promise with
/// it that the other one still holds.
#[test]
fn a_promise_that_outlived_its_decision_is_forgotten_wherever_the_word_of_it_stands() {
    for word_comes_first in [true, false] {
        let (store, _) = Mftl::open(
            Box::new(MemoryMedia::new(MemoryConfig::default()).open()),
            MftlConfig::default(),
        )
        .unwrap();
        let mut replay = Replay::new(SHARD, Box::new(store));
        let mut word = Vec::new();
        LogRecord::KeepFrom { batch: BatchNumber::new(4) }.encode(&mut word);
        let word = [word.split_off(PREFIX_BYTES)];
        if word_comes_first {
            feed_in(&mut replay, 6, &word);
        }
        let [outlived, carried, young, decided] =
            [1, 2, 3, 4].map(|n| records(n, &n.to_be_bytes(), Some(&VALUE), at(10), false));
        feed_in(&mut replay, 1, &outlived[..1]);
        feed_in(&mut replay, 5, &carried[..1]);
        feed_in(&mut replay, 1, &carried[..1]);
        feed_in(&mut replay, 4, &young[..1]);
        feed_in(&mut replay, 1, &decided);
        if !word_comes_first {
            feed_in(&mut replay, 6, &word);
        }
        replay.forget_ended_promises();
        let promised: BTreeSet<TxnId> = replay.promised.keys().copied().collect();
        assert_eq!(promised, BTreeSet::from([txn(2), txn(3)]));
        assert_eq!((replay.payloads.len(), replay.applied()), (2, 1));
    }
}

#[test]
fn decided_writes_that_find_no_room_are_left_to_the_running_stage() {
    let config = MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 96,
        max_blocks: 96,
        ..MemoryConfig::default()
    };
    let mftl = MftlConfig {
        seed: HashSeed(7),
        cache_bytes: 0,
        checkpoint_bytes: 0,
        ..MftlConfig::default()
    };
    let (store, _) = Mftl::open(Box::new(MemoryMedia::new(config).open()), mftl).unwrap();
    let mut replay = Replay::new(SHARD, Box::new(store));
    // The device is filled, and then come a hundred more.
    let mut puts = 0;
    while replay.promised.len() < 100 {
        feed(
            &mut replay,
            &records(puts + 1, &puts.to_be_bytes(), Some(&VALUE), at(10), puts % 2 == 0),
        );
        puts += 1;
        assert!(puts < 10_000, "the device is never full");
    }
    let left: Vec<u64> = (0..puts).filter(|n| replay.promised.contains_key(&txn(n + 1))).collect();
    assert_eq!(replay.applied() + 100, puts, "each was applied or left");
    assert!(left.iter().any(|n| n % 2 == 0) && left.iter().any(|n| n % 2 == 1), "of both kinds");
    let bodies = left.iter().map(|n| replay.payloads.get(txn(n + 1)).unwrap().body.len() as u64);
    assert_eq!(
        replay.payloads.bytes(),
        bodies.sum::<u64>(),
        "only what is left counts as promised"
    );
    assert_eq!(replay.left_bytes as u64, replay.payloads.bytes());
    // What makes room stands behind them in the log.
    for n in 0..puts / 2 {
        feed(&mut replay, &records(puts + 1 + n, &n.to_be_bytes(), None, at(20), true));
    }
    let mut bound = Vec::new();
    LogRecord::ReadBound { bound: at(30), watermark: at(25) }.encode(&mut bound);
    feed(&mut replay, &[bound.split_off(PREFIX_BYTES)]);
    assert!(!replay.promised.is_empty(), "there is no room before the collector has run");

    let stage = replay.finish(Recovering {
        clock: Arc::new(ManualClock::new(at(1000))),
        ..Recovering::alone(SHARD, LogPlace::Nowhere, at(1000))
    });
    let unapplied = Arc::default();
    let mut driver = ManualDriver::new(
        vec![Box::new(Watched(TestStage(stage), Arc::clone(&unapplied))) as Box<dyn Stage<Event>>],
        at(1000),
        1000,
    );
    // Until they are applied, nobody is told that they are not there.
    for (n, answer) in ask(&mut driver, left[0]..puts) {
        let around = answer.is_none_or(|(present, prepared_before)| present || prepared_before);
        assert!(around || !left.contains(&n), "key {n} is answered as absent");
    }
    for round in 0.. {
        driver.turn();
        if round > 10 && unapplied.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            break;
        }
        assert!(round < 10_000, "what was left is never applied");
    }
    let answers = ask(&mut driver, 0..puts);
    let mut answers: BTreeSet<_> = answers.into_iter().collect();
    while answers.len() < puts as usize {
        driver.turn();
        answers.extend(ask(&mut driver, 0..0));
    }
    for (n, answer) in answers {
        assert_eq!(answer, Some((n >= puts / 2, false)), "key {n}");
    }
}

/// A device without room, as it fills up with transactions over several shards; and the first that found
/// none.
fn full() -> (Replay, u64) {
    let config = MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 96,
        max_blocks: 96,
        ..MemoryConfig::default()
    };
    let mftl = MftlConfig { cache_bytes: 0, checkpoint_bytes: 0, ..MftlConfig::default() };
    let (store, _) = Mftl::open(Box::new(MemoryMedia::new(config).open()), mftl).unwrap();
    let mut replay = Replay::new(SHARD, Box::new(store));
    for n in 1..10_000_u64 {
        feed_in(&mut replay, 1, &records(n, &n.to_be_bytes(), Some(&VALUE), at(10), false));
        if replay.has_left() {
            return (replay, n);
        }
    }
    panic!("the device is never full");
}

/// Its primary and its client have finished a transaction while a backup has no room for what it writes.
/// The next primary does not know it, and records an abort when it is asked.
#[test]
fn a_commit_that_waits_for_room_outlives_the_abort_of_a_primary_that_had_forgotten_it() {
    let (mut replay, left) = full();
    let (abort, participants) = (Some(AbortKind::TooOld), [SHARD]);
    let (begin, decided_by) = (at(1), DecidedBy::Termination);
    let abort = LogRecord::Decision {
        txn: txn(left),
        begin,
        commit: Timestamp::ZERO,
        decided_by,
        abort,
        found: PreviousFound::Unasked,
        met: Timestamp::ZERO,
        participants: Participants::new(&participants),
    };
    let mut bytes = Vec::new();
    abort.encode(&mut bytes);
    feed_in(&mut replay, 9, &[bytes.split_off(PREFIX_BYTES)]);
    assert!(replay.promised.contains_key(&txn(left)) && replay.payloads.get(txn(left)).is_some());
    let known = replay.decided.get(txn(left)).unwrap();
    let committed = TxnOutcome::Committed(at(10));
    assert_eq!((known.outcome, known.batch), (committed, BatchNumber::new(9)));
}

#[test]
fn large_transactions_that_find_no_room_make_a_backup_wait_before_they_are_many() {
    let media = MemoryMedia::new(MemoryConfig::default());
    let (store, _) = Mftl::open(Box::new(media.open()), MftlConfig::default()).unwrap();
    let mut replay = Replay::new(SHARD, Box::new(store));
    let value = vec![0; crate::limits::MAX_LEFT_BYTES / 8];
    let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
    let entry = WriteEntry { keyspace, kind, expires_at, key: b"large", value: &value };
    let mut body = Vec::new();
    PrepareBody::of_one_write(&entry, &mut body);
    let body = PrepareBody::parse(&body).unwrap();
    for n in 1..=8 {
        assert!(!replay.is_behind(), "{n}");
        replay.leave(BatchNumber::new(n), txn(n), at(1), at(2), true, &[SHARD], body);
    }
    assert!(replay.is_behind());
}

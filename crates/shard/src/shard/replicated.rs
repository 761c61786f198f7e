//! Tests: a shard with replicas looks at its clock as what promises the present is answered.

use std::sync::Arc;
use std::time::Duration;

use timestone_clock::{Clock, ErrorBound, ManualClock};
use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{FrameBatch, Stage, StageId};
use timestone_store::prelude::*;
use timestone_store::{Mftl, MftlConfig};
use timestone_txn::limits::{BOUND_AHEAD, UNVOUCHED_CLOCK_ERROR};
use timestone_txn::participant::Config;
use timestone_types::{
    ClientId, Epoch, Expiry, KeyRef, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, Version,
};
use timestone_wal::{BatchNumber, LogRecord, RecordNumber};
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Frames, Get, Kind, Message, Newest, PrepareHead,
    PrepareWriter, ReadAt, ReadEntry, without_clock,
};

use crate::replay::{Recovering, Replay};
use crate::shard::{LogPlace, RecordPlace, own_reply_address};
use crate::testing::{Event, TestStage};

const SHARD: ShardId = ShardId::new(0);
const STAGE: StageId = StageId::new(0);
const LOG: StageId = StageId::new(5);
const ASKER: StageId = StageId::new(7);
const CLIENT: ClientId = ClientId::new(3);
const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;
const WRITTEN: Version = Version::new(Timestamp::from_nanos(50_000_000_000), CLIENT);
/// Where the leases of earlier primaries end, and this one begins.
const START: Timestamp = Timestamp::from_nanos(100_000_000_000);
/// The length in front of a record of a batch.
const PREFIX_BYTES: usize = 4;

/// A clock moved by hand that says how wrong it is.
#[derive(Clone, Debug)]
struct Hands {
    clock: ManualClock,
    error: ErrorBound,
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn error_bound(&self) -> ErrorBound {
        self.error
    }

    fn source(&self) -> &'static str {
        "manual"
    }
}

/// What an answer was: its kind, or the error that it told.
type Told = Result<Kind, ErrorCode>;

/// A shard with replicas, whose log hears of them when it is told to.
struct Bench {
    driver: ManualDriver<Event>,
    hands: Hands,
    appended: Vec<BatchNumber>,
}

impl Bench {
    /// Its records are in a cache, or on a device that completes one read a turn.
    fn new(cache_bytes: u64, error: ErrorBound) -> Self {
        let config = MemoryConfig { completions_per_poll: 1, ..MemoryConfig::default() };
        let mftl = MftlConfig { cache_bytes, checkpoint_bytes: 0, ..MftlConfig::default() };
        let (mut store, _) = Mftl::open(Box::new(MemoryMedia::new(config).open()), mftl).unwrap();
        for n in 0..2000_u32 {
            let name = n.to_be_bytes();
            let key = KeyRef::new(store.seed(), KEYSPACE, &name);
            store.put(key, WRITTEN, &[7; 500], Expiry::NEVER).unwrap();
        }
        store.sync_soon();
        let mut events = Vec::new();
        for millis in 0..1000 {
            store.pump(Timestamp::from_nanos(51_000_000_000 + millis * 1_000_000), &mut events);
        }
        let mut replay = Replay::new(SHARD, Box::new(store));
        let (watermark, mut record) = (Timestamp::ZERO, Vec::new());
        LogRecord::ReadBound { bound: START, watermark }.encode(&mut record);
        let (batch, epoch, number) = (BatchNumber::new(1), Epoch::default(), RecordNumber::FIRST);
        let place = RecordPlace { batch, epoch, number };
        replay.record(START, place, &record[PREFIX_BYTES..]).unwrap();
        let hands = Hands { clock: ManualClock::new(START), error };
        let shard = replay.finish(Recovering {
            clock: Arc::new(hands.clone()),
            participant: Config { has_replicas: true, ..Config::default() },
            ..Recovering::alone(SHARD, LogPlace::Stage(LOG), START)
        });
        let stages = vec![Box::new(TestStage(shard)) as Box<dyn Stage<Event>>];
        let mut bench =
            Self { driver: ManualDriver::new(stages, START, 1000), hands, appended: Vec::new() };
        bench.turn();
        bench
    }

    /// One turn; what was told in it.
    fn turn(&mut self) -> Vec<Told> {
        // The device has no file descriptor that would wake the stage.
        self.driver.send(STAGE, Event::Wake).unwrap();
        self.driver.turn();
        let mut told = Vec::new();
        while let Some((to, event)) = self.driver.take_sent() {
            match event {
                Event::LogAppend(append) => self.appended.push(append.head.batch),
                Event::FrameBatch(batch) if to == ASKER => {
                    let frames = Frames::new(without_clock(&batch.bytes)).map(Result::unwrap);
                    told.extend(frames.map(|frame| told_by(&frame)));
                }
                _ => {}
            }
        }
        told
    }

    /// The replicas have everything: the last bound is the lease.
    fn sync(&mut self) {
        let batch = *self.appended.last().expect("a bound was logged");
        self.driver.send(STAGE, Event::LogDurable { batch }).unwrap();
        assert_eq!(self.turn(), [], "nobody has asked");
    }

    /// Time is there by the turn, and by the clock.
    fn set_now(&mut self, now: Timestamp) {
        self.driver.set_now(now);
        self.hands.clock.set(now);
    }

    fn send(&mut self, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&Envelope { shard: SHARD, ..Envelope::default() }, &mut bytes);
        let batch = FrameBatch::new(own_reply_address(ASKER), bytes);
        self.driver.send(STAGE, Event::FrameBatch(batch)).unwrap();
    }

    fn get(&mut self, at: ReadAt) -> Vec<Told> {
        self.send(|envelope, out| get(at, 1).encode(envelope, out));
        self.turn()
    }

    fn latest(&mut self) -> Vec<Told> {
        self.get(ReadAt::Latest(START))
    }

    fn newest(&mut self) -> Vec<Told> {
        self.send(|envelope, out| Newest { keyspace: KEYSPACE }.encode(envelope, out));
        self.turn()
    }

    /// Asks whether what a transaction has read is the latest.
    fn strict(&mut self, sequence: u64) -> Vec<Told> {
        let head = PrepareHead {
            txn: TxnId::new(CLIENT, Sequence::new(sequence)),
            begin: START,
            commit: START.next(),
            single: true,
            wait: false,
            participants: &[SHARD],
        };
        let (version, expires_at) = (WRITTEN, Expiry::NEVER);
        self.send(|envelope, out| {
            let mut writer = PrepareWriter::begin(envelope, &head, out);
            let key = &1_u32.to_be_bytes();
            writer.read(&ReadEntry { keyspace: KEYSPACE, version, absent: false, expires_at, key });
            writer.finish();
        });
        self.turn()
    }
}

const KEY_NAMES: [[u8; 4]; 5] = [
    1_u32.to_be_bytes(),
    100_u32.to_be_bytes(),
    400_u32.to_be_bytes(),
    700_u32.to_be_bytes(),
    1000_u32.to_be_bytes(),
];

fn get(at: ReadAt, key: usize) -> Get<'static> {
    Get { keyspace: KEYSPACE, at, client: CLIENT, wait: false, key: &KEY_NAMES[key - 1] }
}

fn told_by(frame: &Frame<'_>) -> Told {
    ErrorReply::decode(frame).map_or_else(|_| Ok(frame.kind()), |error| Err(error.code))
}

const REFUSED: [Told; 1] = [Err(ErrorCode::Unavailable)];

#[test]
fn what_is_there_now_is_told_by_the_clock_of_its_answer() {
    let mut bench = Bench::new(64 << 20, ErrorBound::NONE);
    bench.sync();
    let lease = START.saturating_add(BOUND_AHEAD);
    bench.hands.clock.set(lease.previous());
    assert_eq!(bench.latest(), [Ok(Kind::Value)]);
    assert_eq!(bench.newest(), [Ok(Kind::NewestIs)]);
    assert_eq!(bench.strict(1), [Ok(Kind::Vote)]);
    // The turn began before that, and does not know.
    bench.hands.clock.set(lease);
    assert_eq!(bench.latest(), REFUSED);
    assert_eq!(bench.newest(), REFUSED);
    assert_eq!(bench.strict(2), REFUSED);
    let snapshot = START.saturating_add(Duration::from_millis(400));
    assert_eq!(bench.get(ReadAt::Snapshot(snapshot)), [Ok(Kind::Value)]);
}

#[test]
fn what_is_there_now_waits_for_a_lease_that_covers_the_clocks_error() {
    let error = ErrorBound { bound: Duration::from_millis(300), synchronised: true };
    let mut bench = Bench::new(64 << 20, error);
    bench.sync();
    bench.set_now(START.saturating_add(Duration::from_millis(300)));
    assert_eq!(bench.latest(), [Ok(Kind::Value)]);
    bench.set_now(START.saturating_add(Duration::from_millis(700)));
    assert_eq!(bench.latest(), [], "a lease above it is on its way");
    let batch = *bench.appended.last().unwrap();
    bench.driver.send(STAGE, Event::LogDurable { batch }).unwrap();
    assert_eq!(bench.turn(), [Ok(Kind::Value)]);
}

#[test]
fn a_new_primary_takes_a_clock_that_nothing_vouches_for_as_a_quarter_of_a_second_wrong() {
    let error = ErrorBound { bound: Duration::from_secs(16), synchronised: false };
    let mut bench = Bench::new(64 << 20, error);
    bench.sync();
    assert_eq!(bench.latest(), [], "an earlier primary may still answer");
    assert_eq!(bench.get(ReadAt::Snapshot(START.previous())), [Ok(Kind::Value)]);
    let alone = START.saturating_add(UNVOUCHED_CLOCK_ERROR);
    bench.set_now(alone.previous());
    assert_eq!(bench.turn(), []);
    bench.set_now(alone);
    assert_eq!(bench.turn(), [Ok(Kind::Value)]);
    assert_eq!(bench.latest(), [Ok(Kind::Value)]);
}

/// What is told of reads of what is latest, whose pages are read while the lease ends.
fn reads_over_the_end_of_a_lease() -> Vec<Told> {
    let mut bench = Bench::new(0, ErrorBound::NONE);
    bench.sync();
    for key in 1..=KEY_NAMES.len() {
        bench.send(|envelope, out| get(ReadAt::Latest(START), key).encode(envelope, out));
    }
    let mut told = bench.turn();
    assert!(told.len() < KEY_NAMES.len(), "pages are read one after the other");
    bench.hands.clock.set(START.saturating_add(BOUND_AHEAD));
    for _ in 0..100 {
        told.extend(bench.turn());
    }
    told
}

#[test]
fn what_a_page_was_read_for_is_not_told_when_the_lease_is_over() {
    let told = reads_over_the_end_of_a_lease();
    assert_eq!(told.len(), KEY_NAMES.len(), "{told:?}");
    assert_eq!(told.last(), REFUSED.first());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn an_answer_that_is_not_checked_is_noticed() {
    let bug = timestone_types::planted::Bug::UncheckedPresent;
    let told = timestone_types::planted::with(bug, reads_over_the_end_of_a_lease);
    assert_eq!(told, [Ok(Kind::Value); KEY_NAMES.len()], "the planted bug is found");
}

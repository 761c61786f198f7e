//! Shards on a log stage: logs that are lost or have no room, and batches that no log takes.
//! `without_a_log.rs` has runs without one, `last_log.rs` the log that these make at their end.

mod last_log;
mod without_a_log;

use std::sync::Arc;
use std::time::Duration;

use timestone_flash::{FlashPace, MemoryConfig, MemoryDevice, MemoryMedia};
use timestone_seda::FrameBatch;
use timestone_seda::manual::ManualDriver;
use timestone_store::{Mftl, MftlConfig};
use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, Sequence, TxnId};
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::record::FIRST_OTHER_KIND;
use timestone_wal::{BatchHead, DeviceKind, LogConfig, LogRecord, RecordNumber};
use timestone_wire::{
    Condition, Decide, DecideAck, Envelope, ErrorCode, ErrorReply, Frame, Frames, Get, Kind,
    Message, Prepare, PrepareHead, PrepareWriter, ReadAt, Report, RequestId, Value, Verdict, Vote,
    Write, WriteAction, WriteEntry, WriteKind, WriteSet, Written, without_clock,
};

use super::*;
use crate::error::ServerError;
use crate::gauges::LogGauges;
use crate::shard_stage::ShardStage;
use crate::shared_shard::SharedShard;
use timestone_shard::gauges::ShardGauges;
use timestone_shard::{LogPlace, RecordPlace, Recovering, Replay, own_reply_address};
use timestone_wal::BatchNumber;

const SHARD: ShardId = ShardId::new(0);
const SHARD_STAGE: StageId = StageId::new(0);
const LOG_STAGE: StageId = StageId::new(1);
const ASKER: StageId = StageId::new(7);
const CLIENT: ClientId = ClientId::new(3);

/// A shard and its log on a disk in memory, stepped by hand.
struct Bench {
    disk: MemoryDisk,
    driver: ManualDriver<Event>,
    now: Timestamp,
    log: Arc<LogGauges>,
    shard: Arc<ShardGauges>,
}

impl Bench {
    fn new() -> Self {
        Self::new_on(MemoryDevice::new(tiny_flash()).media())
    }

    /// The first life on these devices, with a log.
    fn new_on(media: &MemoryMedia) -> Self {
        Self::on(
            MemoryDisk::new(),
            media,
            DeviceKind::Ssd,
            Timestamp::from_nanos(1_000_000_000_000),
        )
    }

    /// A life on devices that may have seen others; without a log, if `kind` says so, the disk's is
    /// only emptied.
    fn on(disk: MemoryDisk, media: &MemoryMedia, kind: DeviceKind, now: Timestamp) -> Self {
        Self::with(disk, media, kind, now, LogConfig::default())
    }

    fn with(
        disk: MemoryDisk,
        media: &MemoryMedia,
        kind: DeviceKind,
        now: Timestamp,
        config: LogConfig,
    ) -> Self {
        let (store, _) = Mftl::open(Box::new(media.open()), MftlConfig::default()).unwrap();
        let mut replay = Replay::new(SHARD, Box::new(store));
        let mut recovery = Log::open_on(disk.device(), config).unwrap();
        while let Some(record) = recovery.next_record().unwrap() {
            let place =
                RecordPlace { batch: record.batch, epoch: record.epoch, number: record.number };
            replay.record(now, place, record.bytes).unwrap();
        }
        let log = recovery.finish(now).unwrap();
        let gauges = Arc::new(LogGauges::default());
        let shards = vec![(SHARD, SHARD_STAGE)];
        let (place, stage) = if kind == DeviceKind::Ssd {
            (LogPlace::Stage(LOG_STAGE), LogStage::new(0, log, shards, Arc::clone(&gauges)))
        } else {
            let mut stage = LogStage::without_log(0, shards, Arc::clone(&gauges));
            stage.adopt(log);
            stage.makes_last_log(Box::new(|_| {
                Err(ServerError::Internal("there is no room".to_owned()))
            }));
            (LogPlace::Nowhere, stage)
        };
        let shard_gauges = Arc::new(ShardGauges::new(SHARD));
        let shard = replay.finish(Recovering {
            logs: vec![LOG_STAGE],
            gauges: Arc::clone(&shard_gauges),
            ..Recovering::alone(SHARD, place, now)
        });
        let stages: Vec<Box<dyn Stage<Event>>> =
            vec![Box::new(ShardStage::new(SHARD, SharedShard::new(shard))), Box::new(stage)];
        let mut bench = Self {
            disk,
            driver: ManualDriver::new(stages, now, 1000),
            now,
            log: gauges,
            shard: shard_gauges,
        };
        // The first read bound becomes durable.
        assert!(bench.answers().is_empty());
        bench.pass(Duration::from_millis(1));
        bench
    }

    /// Stops gracefully; the devices keep everything.
    fn stop(mut self) -> (MemoryDisk, Timestamp) {
        self.driver.begin_shutdown();
        for _ in 0..1000 {
            self.pass(Duration::from_millis(10));
            self.answers();
            // What was sent last to wake the stages is no work.
            self.driver.turn();
            if self.driver.is_drained() {
                return (self.disk, self.now);
            }
        }
        panic!("it does not stop");
    }

    /// The machine loses its power, and what was not synced with it.
    fn cut_power(self, media: &MemoryMedia) -> (MemoryDisk, Timestamp) {
        let Self { disk, driver, now, .. } = self;
        drop(driver);
        disk.crash(7);
        media.power_cut(7);
        (disk, now)
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.saturating_add(span);
        self.driver.set_now(self.now);
    }

    /// What was answered within some turns.
    fn answers(&mut self) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for _ in 0..50 {
            self.driver.turn();
            // Devices in memory do not call: the stages look into them every turn.
            // A stage that is blocked leaves its queue full, and looks all the same.
            let _ = self.driver.send(LOG_STAGE, Event::Wake);
            self.driver.send(SHARD_STAGE, Event::Wake).unwrap();
            while let Some((to, event)) = self.driver.take_sent() {
                let Event::FrameBatch(frame_batch) = event else { panic!("{event:?}") };
                assert_eq!(to, ASKER);
                answers.extend(
                    Frames::new(without_clock(&frame_batch.bytes))
                        .map(|frame| frame.unwrap().bytes().to_vec()),
                );
            }
        }
        answers
    }

    fn ask(&mut self, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        encode(
            &Envelope { request: RequestId::new(9), shard: SHARD, ..Envelope::default() },
            &mut bytes,
        );
        self.driver
            .send(SHARD_STAGE, Event::FrameBatch(FrameBatch::new(own_reply_address(ASKER), bytes)))
            .unwrap();
        self.answers()
    }

    /// A write, known by its number; asked again under it, it is the same one.
    fn put(&mut self, number: u64, key: &[u8]) -> Vec<Vec<u8>> {
        self.write(number, key, WriteAction::Put, b"value")
    }

    fn write(
        &mut self,
        number: u64,
        key: &[u8],
        action: WriteAction,
        value: &[u8],
    ) -> Vec<Vec<u8>> {
        let (begin, commit) = (self.now, self.now.next());
        let write = Write {
            txn: TxnId::new(CLIENT, Sequence::new(number)),
            begin,
            commit,
            keyspace: KeyspaceId::DEFAULT,
            action,
            wait: false,
            return_previous: false,
            expires_at: Expiry::NEVER,
            condition: Condition::Always,
            key,
            value,
        };
        self.ask(|envelope, out| write.encode(envelope, out))
    }

    fn get(&mut self, key: &[u8]) -> Vec<Vec<u8>> {
        let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Latest(self.now));
        self.ask(|envelope, out| {
            Get { keyspace, at, client: CLIENT, wait: false, key }.encode(envelope, out)
        })
    }

    fn has(&mut self, key: &[u8]) -> bool {
        let answers = self.get(key);
        Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present
    }

    /// Whether a transaction that writes the key waits for its decision: until then nobody is told
    /// what is latest.
    fn is_promised(&mut self, key: &[u8]) -> bool {
        let answers = self.get(key);
        ErrorReply::decode(&Frame::parse(&answers[0]).unwrap())
            .is_ok_and(|error| error.code == ErrorCode::Prepared)
    }

    /// As [`Self::has`], whatever is promised.
    fn holds(&mut self, key: &[u8]) -> bool {
        let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Snapshot(self.now));
        let get = Get { keyspace, at, client: CLIENT, wait: false, key };
        let answers = self.ask(|envelope, out| get.encode(envelope, out));
        Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present
    }

    /// Promises a transaction that another shard takes part in, and that puts a key here.
    fn promise(&mut self, number: u64, key: &[u8]) -> (TxnId, Timestamp) {
        let (txn, begin, commit) =
            (TxnId::new(CLIENT, Sequence::new(number)), self.now, self.now.next());
        let participants = [SHARD, ShardId::new(1)];
        let head = PrepareHead {
            txn,
            begin,
            commit,
            single: false,
            wait: false,
            participants: &participants,
        };
        let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
        let answers = self.ask(|envelope, out| {
            let mut writer = PrepareWriter::begin(envelope, &head, out);
            writer.write(&WriteEntry { keyspace, kind, expires_at, key, value: b"value" });
            writer.finish();
        });
        let vote = Vote::decode(&Frame::parse(&answers[0]).unwrap()).unwrap();
        assert_eq!((vote.txn, vote.verdict), (txn, Verdict::Yes));
        (txn, commit)
    }

    /// Tells the decision, and waits for its acknowledgement.
    fn decide(&mut self, txn: TxnId, commit: Option<Timestamp>) {
        let mut answers = self.ask(|envelope, out| Decide::new(txn, commit).encode(envelope, out));
        for _ in 0..200 {
            if let [answer] = &answers[..] {
                assert_eq!(DecideAck::decode(&Frame::parse(answer).unwrap()).unwrap().txn, txn);
                return;
            }
            assert!(answers.is_empty());
            self.pass(Duration::from_millis(10));
            answers = self.answers();
        }
        panic!("it is never acknowledged");
    }

    /// The client has no transaction that is older than now, and has had all answers.
    fn report(&mut self, acked: u64) {
        let (watermark, acked) = (self.now, Sequence::new(acked));
        let report = Report { client: CLIENT, watermark, acked, now: self.now, closing: false };
        // Without a request number, as nobody waits for an answer.
        let unasked = |envelope: &Envelope| Envelope { request: RequestId::NONE, ..*envelope };
        assert!(self.ask(|envelope, out| report.encode(&unasked(envelope), out)).is_empty());
    }

    /// Overwrites keys in no order, so that every block is collected at some time, the oldest ones
    /// among them.
    fn churn(&mut self, numbers: core::ops::Range<u64>) {
        for number in numbers {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let key = format!("churn {}", key % 150);
            let answers =
                self.write(number, key.as_bytes(), WriteAction::Put, &[number as u8; 3000]);
            assert_eq!(
                Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict,
                Verdict::Yes
            );
            self.pass(Duration::from_millis(10));
            if number.is_multiple_of(10) {
                self.report(number);
            }
        }
    }

    fn dropped_tombstones(&self) -> u64 {
        let mut figures = self.shard.store();
        figures.find(|(name, _)| *name == "dropped_tombstones_total").map_or(0, |(_, value)| value)
    }
}

/// Few blocks, so that all of them are collected soon.
fn tiny_flash() -> MemoryConfig {
    MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 64,
        max_blocks: 64,
        ..MemoryConfig::default()
    }
}

fn error_of(answers: &[Vec<u8>]) -> ErrorCode {
    let [answer] = answers else { panic!("one answer, not {}", answers.len()) };
    let frame = Frame::parse(answer).unwrap();
    let error = ErrorReply::decode(&frame).unwrap();
    assert!(!error.message.is_empty());
    error.code
}

#[test]
fn without_its_log_a_shard_serves_reads_refuses_writes_and_denies_nothing() {
    let mut bench = Bench::new();
    let answers = bench.put(1, b"kept");
    assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
    assert!(bench.log.failure().is_none());
    bench.disk.fail_writes(true);
    assert!(bench.put(2, b"perhaps").is_empty(), "it may be durable or not: nobody is told either");
    assert!(bench.log.failure().is_some());
    bench.disk.fail_writes(false);
    assert!(bench.put(2, b"perhaps").is_empty());
    assert_eq!(error_of(&bench.put(3, b"new")), ErrorCode::StorageFailed);
    assert_eq!(
        error_of(&bench.get(b"perhaps")),
        ErrorCode::Prepared,
        "neither the old nor the new value is certain"
    );
    // Long after the last read bound.
    bench.pass(Duration::from_secs(60));
    let answers = bench.get(b"kept");
    let frame = Frame::parse(&answers[0]).unwrap();
    assert_eq!(frame.kind(), Kind::Value);
    let value = Value::decode(&frame).unwrap();
    assert!(value.present && value.value == b"value" && !value.prepared_before);
    let answers = bench.get(b"new");
    assert!(!Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present);
    // What was acknowledged before is still known; the server can be stopped.
    let answers = bench.put(1, b"kept");
    assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
    bench.driver.begin_shutdown();
    for _ in 0..200 {
        bench.pass(Duration::from_millis(10));
        bench.answers();
    }
    bench.driver.turn();
    assert!(bench.driver.is_drained(), "what waits for the log is not waited for");
}

/// A shard whose log has room for two files, of which it lets none go, for its store makes nothing
/// durable.
fn with_room_for_two_files() -> (Bench, MemoryMedia) {
    let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
    let (disk, device) = (MemoryDisk::new(), MemoryDevice::new(MemoryConfig::default()));
    disk.limit_space(Some(2 * config.file_bytes));
    let (none, sync) = (Duration::ZERO, Duration::from_secs(1_000_000));
    let pace = FlashPace {
        read: none,
        program: none,
        per_page: none,
        erase: none,
        sync,
        spread: none,
        seed: 1,
    };
    device.media().set_pace(Some(pace));
    device.media().set_now(1);
    let now = Timestamp::from_nanos(1_000_000_000_000);
    let media = device.media().clone();
    (Bench::with(disk, &media, DeviceKind::Ssd, now, config), media)
}

/// Writes until a write is not carried out: how many were, and what became of that one, if
/// anything.
fn fill(bench: &mut Bench, from: u64, action: WriteAction) -> (u64, Option<ErrorCode>) {
    for number in from..from + 1000 {
        let answers =
            bench.write(number, format!("key {}", number % 50).as_bytes(), action, &[7; 3000]);
        let Some(answer) = answers.first() else { return (number - from, None) };
        if Written::decode(&Frame::parse(answer).unwrap()).is_err() {
            return (number - from, Some(error_of(&answers)));
        }
        bench.pass(Duration::from_millis(1));
    }
    panic!("there is always room");
}

#[test]
fn a_log_without_room_refuses_puts_at_once_and_takes_what_makes_room() {
    let (mut bench, _) = with_room_for_two_files();
    let (puts, met) = fill(&mut bench, 1, WriteAction::Put);
    assert!(puts > 20 && met == Some(ErrorCode::DeviceFull), "{puts} puts, then {met:?}");
    let words = bench.log.shortage.get().expect("it is told");
    assert!(words.contains("preallocate") && words.contains("free space"), "{words}");
    assert!(bench.has(b"key 1"), "reads go on");
    let answers = bench.write(2000, b"key 1", WriteAction::Delete, b"");
    assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
    // Whoever repeats what was done is told so.
    let repeated = bench.write(2, b"key 2", WriteAction::Put, &[7; 3000]);
    assert_eq!(
        Written::decode(&Frame::parse(&repeated[0]).unwrap()).unwrap().verdict,
        Verdict::Yes
    );
    bench.disk.limit_space(None);
    bench.pass(Duration::from_secs(2));
    bench.answers();
    let answers = bench.put(3000, b"key 1");
    assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
    assert!(bench.log.shortage.get().is_none(), "with room it goes on by itself");
}

#[test]
fn a_log_that_is_full_to_the_last_byte_does_not_hold_up_a_shutdown_and_loses_nothing() {
    let (mut bench, media) = with_room_for_two_files();
    let (puts, _) = fill(&mut bench, 1, WriteAction::Put);
    let (deletes, met) = fill(&mut bench, 2001, WriteAction::Delete);
    assert_eq!(met, None, "it waits for room");
    assert!(deletes > 10, "{deletes} deletes found the reserve");
    // The store syncs again, and that alone does not help: what a log lets go of must be written
    // there first.
    media.set_pace(None);
    media.set_now(u64::MAX / 2);
    let began = bench.now;
    bench.driver.begin_shutdown();
    while !bench.driver.is_drained() {
        bench.pass(Duration::from_millis(100));
        bench.answers();
        bench.driver.turn();
        assert!(bench.now.since(began) < Duration::from_secs(10), "it does not stop");
    }
    assert!(bench.log.failure().is_some(), "what waited is in doubt");
    let mut found = 0;
    let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
    let mut recovery = Log::open_on(bench.disk.device(), config).unwrap();
    while let Some(record) = recovery.next_record().unwrap() {
        found +=
            u64::from(matches!(LogRecord::decode(record.bytes), Ok(LogRecord::Prepare { .. })));
    }
    assert!(found >= puts + deletes, "{found} of {puts} and {deletes}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_shard_that_ignores_its_logs_shortage_is_found() {
    let met = crate::planted::with(crate::planted::Bug::IgnoredLogShortage, || {
        let (mut bench, _) = with_room_for_two_files();
        fill(&mut bench, 1, WriteAction::Put).1
    });
    assert_eq!(met, None, "the planted bug is found: the write waits for room");
}

/// A shard's batch of this number.
fn appended(shard: ShardId, batch: u64, bytes: Vec<u8>) -> Event {
    let first = RecordNumber::new(batch << 32);
    let head = BatchHead { shard, batch: BatchNumber::new(batch), epoch: Epoch::default(), first };
    Event::LogAppend(LogAppend { head, bytes })
}

/// Whether a log that is full goes on when the release that frees its oldest file comes behind the
/// batch that has no room.
fn goes_on_by_a_release_behind_a_batch_without_room() -> bool {
    let now = Timestamp::from_nanos(1_000_000_000_000);
    let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
    let disk = MemoryDisk::new();
    disk.limit_space(Some(2 * config.file_bytes));
    let log = Log::open_on(disk.device(), config).unwrap().finish(now).unwrap();
    let stage = LogStage::new(0, log, vec![(SHARD, ASKER)], Arc::new(LogGauges::default()));
    let mut driver = ManualDriver::new(vec![Box::new(stage) as Box<dyn Stage<Event>>], now, 1000);
    let log = StageId::new(0);
    let mut record = Vec::new();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &[7; 3000] }.encode(&mut record);
    let durable = |driver: &mut ManualDriver<Event>| {
        let mut last = 0;
        for _ in 0..20 {
            driver.turn();
            driver.send(log, Event::Wake).unwrap();
            while let Some((_, event)) = driver.take_sent() {
                if let Event::LogDurable { batch } = event {
                    last = batch.get();
                }
            }
        }
        last
    };
    for number in 1..1000 {
        driver.send(log, appended(SHARD, number, record.clone())).unwrap();
        if durable(&mut driver) < number {
            let keep_from = BatchNumber::new(number);
            driver.send(log, Event::LogRelease { shard: SHARD, keep_from }).unwrap();
            return durable(&mut driver) == number;
        }
    }
    panic!("there is always room");
}

#[test]
fn a_release_is_not_held_up_by_the_batch_that_waits_for_its_room() {
    assert!(goes_on_by_a_release_behind_a_batch_without_room());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_release_that_waits_behind_a_batch_without_room_is_noticed() {
    let goes_on = crate::planted::with(
        crate::planted::Bug::WaitingRelease,
        goes_on_by_a_release_behind_a_batch_without_room,
    );
    assert!(!goes_on, "the planted bug is found");
}

#[test]
fn nothing_is_durable_behind_a_batch_that_no_log_takes() {
    let now = Timestamp::from_nanos(1_000_000_000_000);
    let log = Log::open_on(MemoryDisk::new().device(), LogConfig::default())
        .unwrap()
        .finish(now)
        .unwrap();
    let gauges = Arc::new(LogGauges::default());
    let log = LogStage::new(0, log, vec![(SHARD, ASKER)], Arc::clone(&gauges));
    let mut driver = ManualDriver::new(vec![Box::new(log) as Box<dyn Stage<Event>>], now, 1000);
    let log = StageId::new(0);
    let mut record = Vec::new();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &vec![7; 1024 * 1024] }.encode(&mut record);
    let too_many = timestone_wal::limits::MAX_BATCH_BYTES / record.len() + 1;
    for (batch, records) in [(1, 1), (2, too_many), (3, 1)] {
        driver.send(log, appended(SHARD, batch, record.repeat(records))).unwrap();
    }
    let (mut durable, mut failed) = (Vec::new(), false);
    for _ in 0..50 {
        driver.turn();
        driver.send(log, Event::Wake).unwrap();
        while let Some((_, event)) = driver.take_sent() {
            match event {
                Event::LogDurable { batch } => durable.push(batch.get()),
                Event::LogFailed { .. } => failed = true,
                _ => {}
            }
        }
    }
    assert_eq!((durable, failed), (vec![1], true), "the third would vouch for the second");
    assert!(gauges.failure().is_some());
}

#[test]
fn a_write_set_that_comes_again_is_not_kept_again() {
    let mut bench = Bench::new();
    let (txn, begin, commit) = (TxnId::new(CLIENT, Sequence::new(1)), bench.now, bench.now.next());
    let participants = [SHARD, ShardId::new(1)];
    let head =
        PrepareHead { txn, begin, commit, single: false, wait: false, participants: &participants };
    let mut frame = Vec::new();
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut frame);
    let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
    writer.write(&WriteEntry { keyspace, kind, expires_at, key: b"told", value: b"value" });
    writer.finish();
    let body = Prepare::decode(&Frame::parse(&frame).unwrap()).unwrap().body;
    for _ in 0..3 {
        let answers =
            bench.ask(|envelope, out| WriteSet { txn, begin, commit, body }.encode(envelope, out));
        assert_eq!(DecideAck::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().txn, txn);
        bench.pass(Duration::from_secs(2));
        let answers = bench.get(b"told");
        assert!(Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present);
        assert_eq!(
            bench.shard.prepared.load(std::sync::atomic::Ordering::Relaxed),
            0,
            "it is in the store"
        );
    }
}

#[test]
fn a_log_that_is_only_emptied_is_looked_after_when_a_file_could_not_be_removed() {
    let disk = MemoryDisk::new();
    let now = Timestamp::from_nanos(1_000_000_000_000);
    let head = BatchHead {
        shard: SHARD,
        batch: BatchNumber::new(1),
        epoch: Epoch::default(),
        first: RecordNumber::FIRST,
    };
    let mut record = Vec::new();
    LogRecord::KeepFrom { batch: BatchNumber::new(1) }.encode(&mut record);
    let small = LogConfig { file_bytes: 1 << 20, ..LogConfig::default() };
    let mut log = Log::open_on(disk.device(), small).unwrap().finish(now).unwrap();
    log.append_batch(head, &record).unwrap();
    log.shutdown(now, &mut Vec::new()).unwrap();
    // A file of another size is removed, and not used again.
    let log = Log::open_on(disk.device(), LogConfig::default()).unwrap().finish(now).unwrap();
    let mut stage = LogStage::without_log(0, vec![(SHARD, ASKER)], Arc::new(LogGauges::default()));
    stage.adopt(log);
    let mut driver = ManualDriver::new(vec![Box::new(stage) as Box<dyn Stage<Event>>], now, 1000);
    disk.fail_removals(true);
    driver
        .send(StageId::new(0), Event::LogRelease { shard: SHARD, keep_from: BatchNumber::MAX })
        .unwrap();
    let emptied = |driver: &mut ManualDriver<Event>| {
        (0..100).any(|_| {
            driver.set_now(driver.next_deadline().expect("the stage is to be called again"));
            driver.turn();
            disk.files().len() == 1
        })
    };
    driver.turn();
    assert!(!emptied(&mut driver));
    disk.fail_removals(false);
    assert!(emptied(&mut driver));
}

#[test]
fn what_is_carried_forward_comes_in_batches_that_a_log_takes() {
    const OUTCOMES: u64 = 20_000;
    let now = Timestamp::from_nanos(1_000_000_000_000);
    let (store, _) =
        Mftl::open(Box::new(MemoryDevice::new(tiny_flash()).media().open()), MftlConfig::default())
            .unwrap();
    let mut replay = Replay::new(SHARD, Box::new(store));
    let participants: Vec<ShardId> = (0..40).map(ShardId::new).collect();
    for number in 1..=OUTCOMES {
        let (txn, participants) = (
            TxnId::new(CLIENT, Sequence::new(number)),
            timestone_wal::Participants::new(&participants),
        );
        let (decided_by, found, met) = (
            timestone_wal::DecidedBy::Client,
            timestone_types::PreviousFound::Unasked,
            Timestamp::ZERO,
        );
        let mut record = Vec::new();
        let decision = LogRecord::Decision {
            txn,
            begin: now,
            commit: now,
            decided_by,
            abort: None,
            found,
            met,
            participants,
        };
        decision.encode(&mut record);
        let (batch, epoch, number) =
            (BatchNumber::new(1), Epoch::default(), RecordNumber::new(number));
        replay.record(now, RecordPlace { batch, epoch, number }, &record.split_off(4)).unwrap();
    }
    let shard = replay.finish(Recovering {
        logs: vec![LOG_STAGE],
        ..Recovering::alone(SHARD, LogPlace::Stage(LOG_STAGE), now)
    });
    let mut driver = ManualDriver::new(
        vec![Box::new(ShardStage::new(SHARD, SharedShard::new(shard))) as Box<dyn Stage<Event>>],
        now,
        1000,
    );
    driver.send(SHARD_STAGE, Event::LogCopyForward { below: BatchNumber::new(2) }).unwrap();
    driver.turn();
    let (mut last, mut decisions) = (BatchNumber::new(1), 0);
    while let Some((_, event)) = driver.take_sent() {
        let Event::LogAppend(append) = event else { continue };
        assert_eq!(append.head.batch, last.next());
        last = append.head.batch;
        assert!(
            append.bytes.len() <= timestone_shard::limits::LOG_BATCH_BYTES + 4096,
            "{} bytes",
            append.bytes.len()
        );
        let records = timestone_wal::BatchRecords::new(&append.bytes);
        let is_decision =
            |record: &&[u8]| matches!(LogRecord::decode(record), Ok(LogRecord::Decision { .. }));
        decisions += records.map(Result::unwrap).filter(is_decision).count() as u64;
    }
    assert_eq!(decisions, OUTCOMES);
}

#[test]
fn the_failure_of_another_log_is_not_the_shards() {
    let mut bench = Bench::new();
    bench.driver.send(SHARD_STAGE, Event::LogFailed { log: StageId::new(5) }).unwrap();
    let answers = bench.put(1, b"k");
    assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
}

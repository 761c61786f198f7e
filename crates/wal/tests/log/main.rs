//! The log as its users see it: what was acknowledged is read back after every crash, and damage is
//! never passed over.
//!
//! Most tests run on the memory device, whose crashes are decided by seeds; those in `files` run on
//! real files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::cell::Cell;
use std::collections::BTreeMap;

use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::record::FIRST_OTHER_KIND;
use timestone_wal::{
    BatchHead, BatchNumber, DeviceKind, Log, LogConfig, LogEvent, LogRecord, RecordNumber,
    RecoveryReport, WalError, check_device,
};

#[path = "../../../../tests/scores.rs"]
mod scores;

mod damage;
mod files;
mod model;
mod space;
mod sweep;

mod allocations {
    //! Counts the allocations of each thread.
    #![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

    use std::alloc::{GlobalAlloc, Layout, System};

    pub(super) struct Counting;

    // SAFETY: every call is passed on to the system's allocator unchanged.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // A thread that is ending has no counter any more, and is not counted.
            let _ = super::ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise is passed on.
            unsafe { System.dealloc(pointer, layout) }
        }
    }
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// (shard, batch) and the batch's bytes.
type Batch = ((u16, u64), Vec<u8>);

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// Small files and blocks, so that everything rare happens often.
fn tiny() -> LogConfig {
    LogConfig {
        file_bytes: 64 * 1024,
        block_bytes: 8192,
        copy_forward_after_files: 2,
        ..LogConfig::default()
    }
}

/// A batch of one record whose content names it.
fn batch_of(shard: u16, batch: u64, bytes: usize) -> Vec<u8> {
    let content: Vec<u8> = (0..bytes)
        .map(|at| (at as u64 ^ batch.wrapping_mul(31) ^ u64::from(shard)) as u8)
        .collect();
    let mut out = Vec::new();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &content }.encode(&mut out);
    out
}

fn append(log: &mut Log, shard: u16, batch: u64, bytes: &[u8]) -> Result<(), WalError> {
    // So many numbers are set aside for each batch that no test has to count its records.
    let first = RecordNumber::new(batch << 32);
    let head = BatchHead {
        shard: ShardId::new(shard),
        batch: BatchNumber::new(batch),
        epoch: Epoch::new(1),
        first,
    };
    log.append_batch(head, bytes)
}

/// Reads everything; batches of several records are put together again.
fn read_all(
    disk: &MemoryDisk,
    config: &LogConfig,
) -> Result<(Vec<Batch>, RecoveryReport), WalError> {
    let mut recovery = Log::open_on(disk.device(), config.clone())?;
    let mut found: Vec<Batch> = Vec::new();
    while let Some(record) = recovery.next_record()? {
        let name = (record.shard.get(), record.batch.get());
        if found.last().is_none_or(|last| last.0 != name) {
            found.push((name, Vec::new()));
        }
        let bytes = &mut found.last_mut().unwrap().1;
        bytes.extend_from_slice(&u32::try_from(record.bytes.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(record.bytes);
    }
    Ok((found, recovery.report()))
}

fn open(disk: &MemoryDisk, config: &LogConfig, now: u64) -> Log {
    Log::open_on(disk.device(), config.clone()).unwrap().finish(at(now)).unwrap()
}

/// Pumps until everything is durable; gives the events.
fn settle(log: &mut Log, now: u64) -> Vec<LogEvent> {
    let mut events = Vec::new();
    for _ in 0..10_000 {
        log.pump(at(now), &mut events);
        if log.is_idle() {
            return events;
        }
    }
    panic!("the log does not come to rest: {:?}", log.stats());
}

fn durable(events: &[LogEvent]) -> Vec<(u16, u64)> {
    let durable = |event: &LogEvent| match event {
        LogEvent::Durable { shard, batch } => Some((shard.get(), batch.get())),
        _ => None,
    };
    events.iter().filter_map(durable).collect()
}

/// A log of `count` batches of `bytes` each, every batch in a group of its own.
fn written(config: &LogConfig, count: u64, bytes: usize) -> (MemoryDisk, Vec<Batch>) {
    let disk = MemoryDisk::new();
    let mut log = open(&disk, config, 1);
    let mut all = Vec::new();
    for batch in 1..=count {
        let content = batch_of(1, batch, bytes);
        append(&mut log, 1, batch, &content).unwrap();
        all.push(((1, batch), content));
        settle(&mut log, 1);
    }
    (disk, all)
}

#[test]
fn batches_of_all_sizes_and_shards_come_back_in_order_over_blocks_and_files() {
    let disk = MemoryDisk::new();
    let config = tiny();
    let mut log = open(&disk, &config, 1);
    let mut all = Vec::new();
    for (index, bytes) in
        [0, 1, 4000, 8190, 9000, 70_000, 200_000, 3, 16_000].into_iter().enumerate()
    {
        for shard in 1..=3 {
            let mut content = batch_of(shard, index as u64, bytes);
            LogRecord::ReadBound { bound: at(bytes as u64), watermark: at(3) }.encode(&mut content);
            append(&mut log, shard, index as u64, &content).unwrap();
            all.push(((shard, index as u64), content));
        }
    }
    let events = settle(&mut log, 1);
    assert_eq!(
        durable(&events).into_iter().collect::<BTreeMap<_, _>>(),
        BTreeMap::from([(1, 8), (2, 8), (3, 8)])
    );
    assert!(log.stats().rotations > 5, "a batch of 200 000 bytes spans files of 65 536");
    let (found, report) = read_all(&disk, &config).unwrap();
    assert_eq!(found, all);
    assert_eq!((report.batches, report.records, report.incomplete_batches), (27, 54, 0));
    assert!(check_device(disk.device(), &[]).unwrap().is_sound());
}

#[test]
fn a_transaction_of_64_mib_goes_through_default_blocks() {
    let config = LogConfig { file_bytes: 16 * 1024 * 1024, ..LogConfig::default() };
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let content = batch_of(1, 1, 64 * 1024 * 1024);
    append(&mut log, 1, 1, &content).unwrap();
    let refused = append(&mut log, 1, 2, &batch_of(1, 2, 10)).unwrap_err();
    assert!(matches!(refused, WalError::Busy { .. }) && refused.retryable(), "{refused}");
    assert_eq!(durable(&settle(&mut log, 1)), [(1, 1)]);
    append(&mut log, 1, 2, &batch_of(1, 2, 10)).unwrap();
    settle(&mut log, 1);
    let (found, _) = read_all(&disk, &config).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found[0].1 == content, "the large batch reads back whole");
    let huge = vec![0; timestone_wal::limits::MAX_BATCH_BYTES + 4];
    assert!(matches!(append(&mut log, 1, 3, &huge), Err(WalError::BatchTooLarge { .. })));
}

#[test]
fn everything_queued_while_a_group_is_in_flight_is_the_next_group() {
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &tiny(), 1);
    let mut events = Vec::new();
    disk.hold(true);
    append(&mut log, 1, 1, &batch_of(1, 1, 10)).unwrap();
    log.pump(at(1), &mut events);
    for batch in 2..=50 {
        append(&mut log, 1, batch, &batch_of(1, batch, 10)).unwrap();
        log.pump(at(1), &mut events);
    }
    assert!(durable(&events).is_empty(), "nothing is acknowledged before it is durable");
    disk.hold(false);
    log.pump(at(1), &mut events);
    log.pump(at(1), &mut events);
    assert_eq!(durable(&events), [(1, 1), (1, 50)]);
    assert_eq!(log.stats().groups, 2);
    assert_eq!(
        (log.stats().group_sizes[0], log.stats().group_sizes[5]),
        (1, 1),
        "groups of 1 and of 49"
    );
}

#[test]
fn a_failed_write_stops_the_log_for_good_and_loses_nothing_acknowledged() {
    let config = tiny();
    let (disk, all) = written(&config, 3, 100);
    let mut log = open(&disk, &config, 9);
    disk.fail_writes(true);
    append(&mut log, 1, 4, &batch_of(1, 4, 10)).unwrap();
    let mut events = Vec::new();
    log.pump(at(9), &mut events);
    append(&mut log, 1, 5, &batch_of(1, 5, 10)).unwrap();
    log.pump(at(9), &mut events);
    disk.fail_writes(false);
    for _ in 0..5 {
        log.pump(at(9), &mut events);
    }
    assert!(
        matches!(events[..], [LogEvent::Failed(_)]),
        "told once, and nothing acknowledged: {events:?}"
    );
    let refused = append(&mut log, 1, 6, &batch_of(1, 6, 10)).unwrap_err();
    assert!(matches!(refused, WalError::Poisoned { .. }) && !refused.retryable(), "{refused}");
    assert!(log.shutdown(at(9), &mut events).is_err());
    assert_eq!(read_all(&disk, &config).unwrap().0, all);
}

#[test]
fn the_steady_state_allocates_nothing() {
    let config = LogConfig { file_bytes: 64 * 1024 * 1024, ..LogConfig::default() };
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let mut events = Vec::with_capacity(64);
    let content = batch_of(1, 1, 600);
    let mut turn = |batch: u64| {
        for shard in 1..=4 {
            append(&mut log, shard, batch, &content).unwrap();
        }
        log.pump(at(1), &mut events);
        events.clear();
    };
    (1..100).for_each(&mut turn);
    let before = ALLOCATIONS.with(Cell::get);
    (100..2000).for_each(&mut turn);
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

#[test]
fn device_none_acknowledges_at_once_and_pmem_says_that_it_is_not_built() {
    let config = LogConfig { device: DeviceKind::None, ..LogConfig::default() };
    let mut log =
        Log::open("/nonexistent".as_ref(), config.clone()).unwrap().finish(at(1)).unwrap();
    append(&mut log, 1, 1, &batch_of(1, 1, 10)).unwrap();
    append(&mut log, 1, 2, &batch_of(1, 2, 10)).unwrap();
    assert!(!log.is_idle());
    assert_eq!(durable(&settle(&mut log, 1)), [(1, 2)]);
    assert!(settle(&mut log, 1).is_empty(), "told once");
    let error =
        Log::open("/nonexistent".as_ref(), LogConfig { device: DeviceKind::Pmem, ..config })
            .unwrap_err();
    assert!(error.to_string().contains("not built yet"), "{error}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_would() {
    for config in [
        LogConfig { block_bytes: 1000, ..LogConfig::default() },
        LogConfig { file_bytes: 100_000, ..LogConfig::default() },
        LogConfig { file_bytes: 1 << 20, block_bytes: 1 << 20, ..LogConfig::default() },
        LogConfig { queue_bytes: 0, ..LogConfig::default() },
    ] {
        let error = Log::open_on(MemoryDisk::new().device(), config).unwrap_err();
        assert!(
            matches!(error, WalError::Config { .. }) && error.to_string().contains("must be"),
            "{error}"
        );
    }
}

//! The log as its users see it: what was acknowledged is read back after every crash, and damage is never passed over.
//!
//! Most tests run on the memory device, whose crashes are decided by seeds; the last ones run on real files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::block::{BlockHeader, ENTRY_BYTES, HeaderAt};
use timestone_wal::device::FileName;
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::record::{FIRST_OTHER_KIND, PREFIX_BYTES};
use timestone_wal::{
    BatchHead, BatchNumber, DeviceKind, Log, LogConfig, LogEvent, LogRecord, RecordNumber, RecoveryReport, WalError,
    check, check_device,
};

#[path = "../../../../tests/scores.rs"]
mod scores;
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
    LogConfig { file_bytes: 64 * 1024, block_bytes: 8192, carry_after_files: 2, ..LogConfig::default() }
}

/// A batch of one record whose content names it.
fn batch_of(shard: u16, batch: u64, bytes: usize) -> Vec<u8> {
    let content: Vec<u8> = (0..bytes).map(|at| (at as u64 ^ batch.wrapping_mul(31) ^ u64::from(shard)) as u8).collect();
    let mut out = Vec::new();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &content }.encode(&mut out);
    out
}

fn append(log: &mut Log, shard: u16, batch: u64, bytes: &[u8]) -> Result<(), WalError> {
    // So many numbers are set aside for each batch that no test has to count its records.
    let first = RecordNumber::new(batch << 32);
    let head = BatchHead { shard: ShardId::new(shard), batch: BatchNumber::new(batch), epoch: Epoch::new(1), first };
    log.append_batch(head, bytes)
}

/// Reads everything; batches of several records are put together again.
fn read_all(disk: &MemoryDisk, config: &LogConfig) -> Result<(Vec<Batch>, RecoveryReport), WalError> {
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
    for (index, bytes) in [0, 1, 4000, 8190, 9000, 70_000, 200_000, 3, 16_000].into_iter().enumerate() {
        for shard in 1..=3 {
            let mut content = batch_of(shard, index as u64, bytes);
            LogRecord::ReadBound { bound: at(bytes as u64), watermark: at(3) }.encode(&mut content);
            append(&mut log, shard, index as u64, &content).unwrap();
            all.push(((shard, index as u64), content));
        }
    }
    let events = settle(&mut log, 1);
    assert_eq!(durable(&events).into_iter().collect::<BTreeMap<_, _>>(), BTreeMap::from([(1, 8), (2, 8), (3, 8)]));
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
    assert_eq!((log.stats().group_sizes[0], log.stats().group_sizes[5]), (1, 1), "groups of 1 and of 49");
}

#[test]
fn a_tail_torn_at_any_byte_loses_only_the_unacknowledged_group() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let all: Vec<Batch> = (1..=3).map(|batch| ((1, batch), batch_of(1, batch, 100))).collect();
    for (name, content) in &all {
        append(&mut log, name.0, name.1, content).unwrap();
        settle(&mut log, 1);
    }
    let file = disk.files()[0];
    disk.hold(true);
    let mut events = Vec::new();
    // A group of two blocks: 8192 and 4096 bytes on disk.
    append(&mut log, 1, 4, &batch_of(1, 4, 7000)).unwrap();
    append(&mut log, 1, 5, &batch_of(1, 5, 3000)).unwrap();
    log.pump(at(1), &mut events);
    let length = disk.writing_bytes();
    assert_eq!(length, 8192 + 4096);
    let old = disk.content(file);
    disk.hold(false);
    settle(&mut log, 1);
    let new = disk.content(file);
    let start = (0..old.len()).find(|&at| old[at] != new[at]).unwrap() / 4096 * 4096;
    for cut in 0..=length {
        let torn = disk.copy();
        let mut content = old.clone();
        content[start..start + cut].copy_from_slice(&new[start..start + cut]);
        torn.set_content(file, content);
        let (found, report) = read_all(&torn, &config).unwrap();
        assert!(found.len() >= 3 && found[..3] == all[..], "{cut} bytes: acknowledged batches come back");
        // What did not arrive may have been zero anyway.
        let arrived = |end: usize| cut >= end || new[start + cut..start + end] == old[start + cut..start + end];
        // The second block ends with the rest of batch 5: 3005 bytes, of which some fit the first one behind batch 4.
        let fits = 8192 - 48 - 2 * ENTRY_BYTES - 7005;
        let rest = 48 + ENTRY_BYTES + 3005 - fits;
        let whole = 3 + usize::from(arrived(8192)) + usize::from(arrived(8192 + rest));
        assert_eq!(found.len(), whole, "{cut} bytes");
        assert!(
            found[3..]
                .iter()
                .all(|((_, batch), bytes)| *bytes == batch_of(1, *batch, if *batch == 4 { 7000 } else { 3000 }))
        );
        assert_eq!(report.incomplete_batches, u64::from(found.len() == 4));
    }
}

/// Blocks that arrive without the one before them, all of one group, are a crash and no damage.
#[test]
fn a_group_that_lost_its_first_block_is_no_damage_but_an_acknowledged_block_is() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    append(&mut log, 1, 1, &batch_of(1, 1, 20_000)).unwrap();
    settle(&mut log, 1);
    let file = disk.files()[0];
    let mut content = disk.content(file);
    content[0..4096].fill(0);
    disk.set_content(file, content.clone());
    assert_eq!(read_all(&disk, &config).unwrap().0, []);
    // The same loss, with a later group behind it.
    append(&mut log, 1, 2, &batch_of(1, 2, 10)).unwrap();
    settle(&mut log, 1);
    let error = read_all(&disk, &config).unwrap_err();
    assert!(matches!(error, WalError::Corrupt { offset: 0, .. }), "{error}");
    assert!(error.to_string().contains(&file.to_string()), "{error}");
}

#[test]
fn any_flipped_bit_is_detected_or_harmless() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let mut all = Vec::new();
    for batch in 1..=12 {
        let content = batch_of(1, batch, if batch % 4 == 0 { 15_000 } else { 700 });
        append(&mut log, 1, batch, &content).unwrap();
        all.push(((1, batch), content));
        settle(&mut log, 1);
    }
    let files = disk.files();
    assert!(log.stats().rotations >= 1);
    let (mut detected, mut lost_last, mut harmless) = (0, 0, 0);
    let (mut covered, mut padding) = (0, 0);
    for &file in &files {
        let content = disk.content(file);
        let used = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let mut offset = 0;
        while let HeaderAt::Header(header) = BlockHeader::read(&content[offset..]) {
            let end = offset + 48 + header.length as usize;
            covered += end.min(used) - offset;
            offset += header.padded_bytes();
            padding += used.min(offset).saturating_sub(end);
        }
        let flipped = disk.copy();
        for byte in 0..used {
            let mut damaged = content.clone();
            damaged[byte] ^= 1 << (byte % 8);
            flipped.set_content(file, damaged);
            match read_all(&flipped, &config) {
                Ok((found, _)) if found == all => harmless += 1,
                Ok((found, _)) => {
                    assert_eq!(found, all[..all.len() - 1], "byte {byte} of {file}: only the last group may look torn");
                    lost_last += 1;
                }
                Err(WalError::Corrupt { file: named, .. }) => {
                    assert_eq!(named, file, "the error names the damaged file");
                    detected += 1;
                }
                Err(error) => panic!("byte {byte} of {file}: {error}"),
            }
        }
        flipped.set_content(file, content);
    }
    // Everything in front of padding is covered by a CRC; the last batch takes two blocks.
    assert_eq!((detected + lost_last, harmless), (covered, padding));
    assert_eq!(lost_last, 2 * 48 + 2 * ENTRY_BYTES + PREFIX_BYTES + 1 + 15_000);
}

#[test]
fn damage_in_the_middle_is_refused_changes_nothing_and_is_explained() {
    let config = tiny();
    let (disk, _) = written(&config, 40, 5000);
    let files = disk.files();
    let file = files[1];
    let mut content = disk.content(file);
    content[8192 + 100] ^= 1;
    disk.set_content(file, content);
    let images: Vec<_> = files.iter().map(|&file| disk.content(file)).collect();
    let error = Log::open_on(disk.device(), config).unwrap().finish(at(9)).unwrap_err();
    let WalError::Corrupt { file: named, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((*named, *offset), (file, 8192));
    assert_eq!(disk.files(), files);
    assert!(files.iter().zip(images).all(|(&file, image)| disk.content(file) == image), "nothing was changed");
    let report = check_device(disk.device(), &[]).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_eq!((report.findings[0].file, report.findings[0].offset), (file, 8192));
    assert_eq!(report.files.iter().map(|file| file.batches).sum::<u64>(), 39, "all other batches are readable");
    let text = report.to_string();
    assert!(text.contains("DAMAGED") && text.contains("offset 8192") && text.contains("shard 1: batches"), "{text}");
}

#[test]
fn a_missing_file_in_the_middle_and_a_cut_file_are_damage() {
    let config = tiny();
    let (disk, _) = written(&config, 40, 5000);
    let files = disk.files();
    assert!(files.len() >= 3);
    let missing = disk.copy();
    missing.delete(files[1]);
    let error = read_all(&missing, &config).unwrap_err();
    assert!(matches!(&error, WalError::Corrupt { file, .. } if *file == files[0]), "{error}");
    let cut = disk.copy();
    cut.set_content(files[1], disk.content(files[1])[..8192 * 2].to_vec());
    let error = read_all(&cut, &config).unwrap_err();
    assert!(matches!(&error, WalError::Corrupt { file, offset: 16_384, .. } if *file == files[1]), "{error}");
    let headless = disk.copy();
    let mut content = disk.content(files[0]);
    content[..48].fill(0xff);
    headless.set_content(files[0], content);
    let error = read_all(&headless, &config).unwrap_err();
    assert!(matches!(&error, WalError::Corrupt { file, offset: 0, .. } if *file == files[0]), "{error}");
}

#[test]
fn files_of_another_format_version_are_refused_as_such() {
    let config = tiny();
    let (disk, _) = written(&config, 1, 10);
    let file = disk.files()[0];
    let mut content = disk.content(file);
    content[4] = 9;
    let crc = crc32c::crc32c(&content[..44]);
    content[44..48].copy_from_slice(&crc.to_le_bytes());
    disk.set_content(file, content);
    let error = read_all(&disk, &config).unwrap_err();
    assert!(matches!(error, WalError::Version { found: 9, supported: 2, .. }), "{error}");
}

#[test]
fn log_files_kept_as_values_are_not_taken_for_blocks() {
    let config = tiny();
    let (disk, mut all) = written(&config, 2, 3000);
    let image = disk.content(disk.files()[0]);
    let mut log = open(&disk, &config, 5);
    let mut content = Vec::new();
    // Placed so that sectors of the copy fall on sectors of the file: entry and record headers come before it.
    let shift = 4096 - 48 - ENTRY_BYTES - PREFIX_BYTES - 1;
    let value: Vec<u8> = vec![7; shift].into_iter().chain(image[..8192].iter().copied()).collect();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &value }.encode(&mut content);
    append(&mut log, 1, 3, &content).unwrap();
    all.push(((1, 3), content));
    settle(&mut log, 5);
    // Behind it there may be a spare.
    let file = disk.files()[1];
    let inside = disk.content(file);
    assert!(matches!(BlockHeader::read(&inside[4096..]), HeaderAt::Header(_)), "the copy stands where a block could");
    assert_eq!(read_all(&disk, &config).unwrap().0, all);
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
    assert!(matches!(events[..], [LogEvent::Failed(_)]), "told once, and nothing acknowledged: {events:?}");
    let refused = append(&mut log, 1, 6, &batch_of(1, 6, 10)).unwrap_err();
    assert!(matches!(refused, WalError::Poisoned { .. }) && !refused.retryable(), "{refused}");
    assert!(log.shutdown(at(9), &mut events).is_err());
    assert_eq!(read_all(&disk, &config).unwrap().0, all);
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room_and_serves_what_fits() {
    let config = tiny();
    let disk = MemoryDisk::new();
    disk.limit_space(Some(2 * config.file_bytes));
    let mut log = open(&disk, &config, 1);
    let mut events = Vec::new();
    let (mut batch, mut refused) = (0, None);
    while refused.is_none() {
        batch += 1;
        assert!(batch < 1000, "a full disk refuses at last");
        match append(&mut log, 1, batch, &batch_of(1, batch, 3000)) {
            Ok(()) => events.extend(settle(&mut log, 1)),
            Err(error) => refused = Some(error),
        }
    }
    let refused = refused.unwrap();
    assert!(matches!(refused, WalError::NoSpace { .. }) && refused.retryable(), "{refused}");
    assert_eq!(events.iter().filter(|event| matches!(event, LogEvent::Degraded(_))).count(), 1);
    assert_eq!(durable(&events).last(), Some(&(1, batch - 1)), "everything accepted became durable");
    assert!(batch > 20, "two files were used: {batch} batches");
    assert_eq!(log.next_deadline(), Some(at(1_000_000_001)), "it tries again by itself");
    // Room by releasing: the old file is reused at once.
    log.release(ShardId::new(1), BatchNumber::new(batch));
    log.pump(at(2), &mut events);
    log.pump(at(2), &mut events);
    append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
    settle(&mut log, 2);
    assert_eq!(read_all(&disk, &config).unwrap().0.last().unwrap().0, (1, batch));
}

#[test]
fn a_log_that_once_had_two_files_goes_on_for_ever_on_a_disk_that_is_full() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let mut first = 1;
    while disk.files().len() < 2 {
        append(&mut log, 1, first, &batch_of(1, first, 3000)).unwrap();
        settle(&mut log, 1);
        log.pump(at(1), &mut Vec::new());
        first += 1;
    }
    disk.limit_space(Some(0));
    for batch in first..=300_u64 {
        append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        settle(&mut log, batch);
        log.release(ShardId::new(1), BatchNumber::new(batch));
        log.pump(at(batch), &mut Vec::new());
        assert!(log.shortage().is_none_or(|(_, room)| room > 0), "batch {batch}: {:?}", log.shortage());
    }
    assert!(log.stats().rotations > 10 && disk.files().len() == 2, "{:?}", log.stats());
}

#[test]
fn a_full_disk_is_told_in_time_and_what_was_let_in_before_finds_its_reserve() {
    let config = tiny();
    let disk = MemoryDisk::new();
    disk.limit_space(Some(2 * config.file_bytes));
    let mut log = open(&disk, &config, 1);
    let mut events = Vec::new();
    let mut batch = 0;
    while log.shortage().is_none_or(|(_, room)| room > 0) {
        batch += 1;
        append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        events.extend(settle(&mut log, 1));
        assert!(batch < 100, "a full disk is told at last");
    }
    let (cause, _) = log.shortage().unwrap();
    assert!(cause.contains("preallocate") && cause.contains(".log"), "{cause}");
    // What holds the only other file is asked for at once: from it the next one is made.
    let asked =
        |events: &[LogEvent]| events.iter().filter(|event| matches!(event, LogEvent::PleaseCarry { .. })).count();
    assert_eq!(asked(&events), 1, "{events:?}");
    // Two fifths of a file are left for what was let in before.
    let reserve = config.file_bytes / 5 * 2 - 3 * 4096;
    for _ in 0..reserve / 4096 {
        batch += 1;
        append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        settle(&mut log, 1);
    }
    assert!(log.shortage().is_some());
    disk.limit_space(None);
    log.pump(at(2_000_000_000), &mut events);
    log.pump(at(2_000_000_000), &mut events);
    assert!(log.shortage().is_none(), "with room it goes on by itself");
    assert_eq!(read_all(&disk, &config).unwrap().0.len() as u64, batch);
}

#[test]
fn space_stays_flat_under_load_and_reused_files_show_nothing_old() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let mut most = 0;
    for batch in 1..=2000_u64 {
        append(&mut log, 1, batch, &batch_of(1, batch, 2000)).unwrap();
        settle(&mut log, batch);
        log.release(ShardId::new(1), BatchNumber::new(batch.saturating_sub(5)));
        most = most.max(log.stats().space_bytes);
    }
    assert!(most <= 4 * config.file_bytes, "{most} bytes");
    assert!(log.stats().reclaimed > 50);
    let (found, _) = read_all(&disk, &config).unwrap();
    let first = found[0].0.1;
    assert_eq!(log.retained_from(ShardId::new(1)), Some(BatchNumber::new(first)));
    assert_eq!(found, (first..=2000).map(|batch| ((1, batch), batch_of(1, batch, 2000))).collect::<Vec<_>>());
}

#[test]
fn a_shard_that_holds_an_old_file_is_asked_to_carry_forward() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    append(&mut log, 7, 1, &batch_of(7, 1, 10)).unwrap();
    let mut events = Vec::new();
    for batch in 1..=60_u64 {
        append(&mut log, 1, batch, &batch_of(1, batch, 4000)).unwrap();
        log.release(ShardId::new(1), BatchNumber::new(batch));
        events.extend(settle(&mut log, batch));
    }
    let asked: Vec<_> = events.iter().filter(|event| matches!(event, LogEvent::PleaseCarry { .. })).collect();
    assert!(
        asked.iter().all(
            |event| matches!(event, LogEvent::PleaseCarry { shard, below } if shard.get() == 7 && below.get() == 2)
        )
    );
    assert!(!asked.is_empty() && asked.len() <= log.stats().rotations as usize, "{} times", asked.len());
    let held = log.stats().files;
    append(&mut log, 7, 2, &batch_of(7, 1, 10)).unwrap();
    settle(&mut log, 99);
    log.release(ShardId::new(7), BatchNumber::new(2));
    for _ in 0..20 {
        log.pump(at(99), &mut Vec::new());
    }
    assert!(held >= 4 && log.stats().files <= 2, "{held} files, then {}", log.stats().files);
}

/// What the log promises: recovered = everything acknowledged, plus a prefix of what was accepted after it, and no more.
#[derive(Clone, Default)]
struct Model {
    /// In the order of acceptance.
    accepted: Vec<Batch>,
    /// How many of them were acknowledged.
    acknowledged: usize,
    released: BTreeMap<u16, u64>,
    next: BTreeMap<u16, u64>,
}

impl Model {
    fn append(&mut self, log: &mut Log, shard: u16, bytes: usize) {
        let next = self.next.entry(shard).or_insert(1);
        let content = batch_of(shard, *next, bytes);
        match append(log, shard, *next, &content) {
            Ok(()) => {
                self.accepted.push(((shard, *next), content));
                *next += 1;
            }
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }

    fn hear(&mut self, events: &[LogEvent]) {
        for (shard, batch) in durable(events) {
            let place = self
                .accepted
                .iter()
                .position(|known| known.0 == (shard, batch))
                .expect("only accepted batches are durable");
            self.acknowledged = self.acknowledged.max(place + 1);
        }
    }

    fn release(&mut self, log: &mut Log, shard: u16) {
        let last =
            self.accepted[..self.acknowledged].iter().rev().find(|known| known.0.0 == shard).map(|known| known.0.1);
        if let Some(last) = last {
            self.released.insert(shard, last);
            log.release(ShardId::new(shard), BatchNumber::new(last));
        }
    }

    /// After a crash: compares, and goes on from what was found.
    fn compare(&mut self, found: Vec<Batch>) {
        let held = |batch: &Batch| batch.0.1 >= *self.released.get(&batch.0.0).unwrap_or(&0);
        let kept: Vec<Batch> = found.iter().filter(|batch| held(batch)).cloned().collect();
        let must: Vec<Batch> = self.accepted[..self.acknowledged].iter().filter(|batch| held(batch)).cloned().collect();
        let may: Vec<Batch> = self.accepted.iter().filter(|batch| held(batch)).cloned().collect();
        assert!(kept.len() >= must.len(), "acknowledged batches were lost: {} of {}", kept.len(), must.len());
        assert!(kept.len() <= may.len() && kept[..] == may[..kept.len()], "what came back was accepted, in this order");
        for batch in &found {
            assert!(self.accepted.contains(batch), "batch {:?} came back from nowhere", batch.0);
        }
        self.accepted = found;
        self.acknowledged = self.accepted.len();
    }
}

#[derive(Clone, Debug)]
enum Action {
    Append { shard: u16, bytes: usize },
    Pump,
    Release { shard: u16 },
    Hold(bool),
    Crash { seed: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![6 => 0_usize..600, 3 => 3000_usize..9000, 1 => 20_000_usize..150_000];
    prop_oneof![
        10 => (1_u16..4, bytes).prop_map(|(shard, bytes)| Action::Append { shard, bytes }),
        8 => Just(Action::Pump),
        2 => (1_u16..4).prop_map(|shard| Action::Release { shard }),
        2 => any::<bool>().prop_map(Action::Hold),
        1 => any::<u64>().prop_map(|seed| Action::Crash { seed }),
    ]
}

fn play(actions: &[Action]) {
    let config = LogConfig { queue_bytes: 300_000, ..tiny() };
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let mut model = Model::default();
    let mut now = 1;
    for action in actions.iter().chain([&Action::Crash { seed: 1 }, &Action::Crash { seed: 2 }]) {
        now += 1;
        match *action {
            Action::Append { shard, bytes } => model.append(&mut log, shard, bytes),
            Action::Pump => {
                let mut events = Vec::new();
                log.pump(at(now), &mut events);
                model.hear(&events);
            }
            Action::Release { shard } => model.release(&mut log, shard),
            Action::Hold(held) => disk.hold(held),
            Action::Crash { seed } => {
                disk.crash(seed);
                model.compare(read_all(&disk, &config).unwrap().0);
                log = open(&disk, &config, now);
                for (&shard, &released) in &model.released {
                    log.release(ShardId::new(shard), BatchNumber::new(released));
                }
                for shard in 1..4 {
                    let last = model.accepted.iter().filter(|batch| batch.0.0 == shard).map(|batch| batch.0.1).max();
                    let next = last.unwrap_or(0).max(*model.released.get(&shard).unwrap_or(&0)) + 1;
                    model.next.insert(shard, next);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_log_keeps_its_promise(actions in proptest::collection::vec(action(), 1..120)) {
        play(&actions);
    }

    #[test]
    fn no_bytes_make_recovery_or_records_panic(content in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let _ = LogRecord::decode(&content);
        let disk = MemoryDisk::new();
        disk.set_content(FileName::new(at(5)), content);
        prop_assert!(read_all(&disk, &tiny()).is_ok(), "bytes without a header are an empty log");
    }
}

/// Runs a fixed workload until the disk stops; gives the model of it.
fn workload(disk: &MemoryDisk, config: &LogConfig) -> Model {
    let mut log = open(disk, config, 1);
    let mut model = Model::default();
    for step in 0..120_u64 {
        let shard = 1 + (step % 3) as u16;
        model.append(&mut log, shard, [50, 5000, 900, 30_000][(step % 4) as usize]);
        if step % 2 == 0 {
            let mut events = Vec::new();
            log.pump(at(step), &mut events);
            model.hear(&events);
        }
        if step % 5 == 0 {
            model.release(&mut log, shard);
        }
    }
    for _ in 0..20 {
        let mut events = Vec::new();
        log.pump(at(100), &mut events);
        model.hear(&events);
    }
    model
}

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged_even_when_it_crashes_again() {
    let config = tiny();
    let disk = MemoryDisk::new();
    workload(&disk, &config);
    let operations = disk.operations();
    assert!(operations > 60, "{operations}");
    for stop in 2..=operations {
        for seed in 0..12 {
            let disk = MemoryDisk::new();
            disk.stop_at(stop);
            let mut model = workload(&disk, &config);
            disk.crash(seed * 1000 + stop);
            model.compare(read_all(&disk, &config).unwrap().0);
            // Recovery starts a fresh file, and the power fails again: with nothing written, and with a torn first group.
            let mut log = open(&disk, &config, 200);
            if seed % 2 == 0 {
                model.next.insert(9, 1);
                model.append(&mut log, 9, 20_000);
                disk.hold(true);
                log.pump(at(200), &mut Vec::new());
            }
            disk.crash(seed);
            model.compare(read_all(&disk, &config).unwrap().0);
            assert!(check_device(disk.device(), &[]).unwrap().is_sound());
        }
    }
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
    let mut log = Log::open("/nonexistent".as_ref(), config.clone()).unwrap().finish(at(1)).unwrap();
    append(&mut log, 1, 1, &batch_of(1, 1, 10)).unwrap();
    append(&mut log, 1, 2, &batch_of(1, 2, 10)).unwrap();
    assert!(!log.is_idle());
    assert_eq!(durable(&settle(&mut log, 1)), [(1, 2)]);
    assert!(settle(&mut log, 1).is_empty(), "told once");
    let error = Log::open("/nonexistent".as_ref(), LogConfig { device: DeviceKind::Pmem, ..config }).unwrap_err();
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
        assert!(matches!(error, WalError::Config { .. }) && error.to_string().contains("must be"), "{error}");
    }
}

/// Pumps a log on real files until everything is durable.
fn settle_waiting(log: &mut Log, events: &mut Vec<LogEvent>) {
    while !log.is_idle() {
        log.pump(at(1), events);
        log.wait(std::time::Duration::from_millis(5));
    }
}

#[test]
fn real_files_rotate_are_reused_and_come_back_after_a_drop_without_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("made/by/open");
    let config = LogConfig { device: DeviceKind::Ssd, ..tiny() };
    let mut next = 1;
    let mut first = 1;
    for round in 0..3_u64 {
        let mut recovery = Log::open(&directory, config.clone()).unwrap();
        let mut found = Vec::new();
        while let Some(record) = recovery.next_record().unwrap() {
            assert_eq!(record.bytes, &batch_of(1, record.batch.get(), 3000)[PREFIX_BYTES..]);
            found.push(record.batch.get());
        }
        assert!(found.iter().copied().eq(found.first().copied().unwrap_or(1)..next), "round {round}: {found:?}");
        assert!(found.first().is_none_or(|&oldest| oldest <= first), "nothing that is needed is gone");
        let mut log = recovery.finish(at(round)).unwrap();
        let mut events = Vec::new();
        for _ in 0..100 {
            append(&mut log, 1, next, &batch_of(1, next, 3000)).unwrap();
            settle_waiting(&mut log, &mut events);
            next += 1;
            first = next.saturating_sub(3);
            log.release(ShardId::new(1), BatchNumber::new(first));
        }
        assert_eq!(durable(&events).last(), Some(&(1, next - 1)));
        assert!(log.stats().rotations > 3 && log.stats().reclaimed > 1, "{:?}", log.stats());
    }
    std::fs::write(directory.join("00000000000000000099.log.new"), b"half").unwrap();
    std::fs::write(directory.join("README"), b"not ours").unwrap();
    let report = check(&directory, &[]).unwrap();
    assert!(report.is_sound(), "{report}");
    let mut log = Log::open(&directory, config).unwrap().finish(at(9)).unwrap();
    assert!(directory.join("README").exists() && !directory.join("00000000000000000099.log.new").exists());
    append(&mut log, 1, next, &batch_of(1, next, 1)).unwrap();
    let mut events = Vec::new();
    log.shutdown(at(9), &mut events).unwrap();
    assert_eq!(durable(&events), [(1, next)]);
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"").unwrap();
    let config = LogConfig::default();
    let error = Log::open(&path, config).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    let error = check(&folder.path().join("missing"), &[]).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

/// Records files, and cannot tell whether that is durable.
#[derive(Debug, Default)]
struct Unsure {
    files: std::sync::Mutex<std::collections::BTreeSet<FileName>>,
    // Not even what is taken off again.
    always: bool,
}

impl timestone_wal::device::FileRegistry for Unsure {
    fn created(&self, file: FileName) -> std::io::Result<()> {
        self.files.lock().unwrap().insert(file);
        Err(std::io::Error::other("perhaps"))
    }

    fn removing(&self, file: FileName) -> std::io::Result<()> {
        if self.always {
            return Err(std::io::Error::other("perhaps"));
        }
        self.files.lock().unwrap().remove(&file);
        Ok(())
    }
}

#[test]
fn a_new_file_that_may_have_been_recorded_does_not_go_before_it_is_not_any_more() {
    for always in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let registry = std::sync::Arc::new(Unsure { always, ..Unsure::default() });
        let config = LogConfig {
            registry: Some(std::sync::Arc::clone(&registry) as std::sync::Arc<dyn timestone_wal::device::FileRegistry>),
            device: DeviceKind::Ssd,
            ..tiny()
        };
        Log::open(folder.path(), config).unwrap().finish(at(1)).unwrap_err();
        let recorded = registry.files.lock().unwrap();
        assert!(
            recorded.iter().all(|file| folder.path().join(file.to_string()).exists()),
            "{recorded:?} must be there"
        );
        assert_eq!(recorded.len(), usize::from(always));
    }
}

#[test]
fn a_file_that_is_gone_is_damage_unless_its_loss_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let config = LogConfig { device: DeviceKind::Ssd, ..tiny() };
    let mut log = Log::open(directory, config.clone()).unwrap().finish(at(0)).unwrap();
    let mut events = Vec::new();
    for batch in 1..=100 {
        append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        settle_waiting(&mut log, &mut events);
    }
    log.shutdown(at(1), &mut events).unwrap();
    let files: Vec<_> = check(directory, &[]).unwrap().files.iter().map(|file| file.file.name).collect();
    assert!(files.len() > 3, "{files:?}");
    let gone = files[1];
    std::fs::remove_file(directory.join(gone.to_string())).unwrap();
    let report = check(directory, &[]).unwrap();
    assert!(!report.is_sound() && report.to_string().contains("DAMAGED"), "{report}");
    // As recovery does, it goes on behind a loss that was accepted, and says what is missing.
    let report = check(directory, &[gone]).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.accepted, [gone]);
    let text = report.to_string();
    assert!(
        text.contains(&format!("LOST, and that was accepted: {gone}")) && text.contains("sound, but for"),
        "{text}"
    );
    let config = LogConfig { lost: vec![gone], ..config };
    let mut recovery = Log::open(directory, config).unwrap();
    while recovery.next_record().unwrap().is_some() {}
    // The loss of another one was not.
    assert!(!check(directory, &[files[2]]).unwrap().is_sound());
}

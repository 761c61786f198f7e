//! Room: full disks, files that are reused, and shards that hold old ones.

use timestone_types::ShardId;
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::{BatchNumber, Log, LogEvent, WalError};

use super::{append, at, batch_of, durable, open, read_all, settle, tiny};

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
    assert_eq!(
        durable(&events).last(),
        Some(&(1, batch - 1)),
        "everything accepted became durable"
    );
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
        assert!(
            log.shortage().is_none_or(|(_, room)| room > 0),
            "batch {batch}: {:?}",
            log.shortage()
        );
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
    let asked = |events: &[LogEvent]| {
        events.iter().filter(|event| matches!(event, LogEvent::CopyForwardWanted { .. })).count()
    };
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
    assert_eq!(
        found,
        (first..=2000).map(|batch| ((1, batch), batch_of(1, batch, 2000))).collect::<Vec<_>>()
    );
}

/// The name that a failed reuse may have left is removed a second later, while time stands still for
/// the files that are made meanwhile.
#[test]
fn no_file_gets_the_name_that_a_failed_reuse_may_have_left() {
    /// So many that the file that is made after the failure is written to.
    const LAST: u64 = 70;
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    disk.fail_reuses(true);
    for batch in 1..=LAST {
        append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        settle(&mut log, 1);
        if batch == 25 {
            log.release(ShardId::new(1), BatchNumber::new(batch));
        }
    }
    disk.fail_reuses(false);
    let later = 3_000_000_000;
    for _ in 0..10 {
        log.pump(at(later), &mut Vec::new());
    }
    append(&mut log, 1, LAST + 1, &batch_of(1, LAST + 1, 3000)).unwrap();
    settle(&mut log, later);
    let (found, _) = read_all(&disk, &config).unwrap();
    let first = found[0].0.1;
    assert!(first <= 25, "what was not released is kept: {first}");
    let all = (first..=LAST + 1).map(|batch| ((1, batch), batch_of(1, batch, 3000)));
    assert_eq!(found, all.collect::<Vec<_>>());
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
    let asked: Vec<_> =
        events.iter().filter(|event| matches!(event, LogEvent::CopyForwardWanted { .. })).collect();
    assert!(
        asked.iter().all(
            |event| matches!(event, LogEvent::CopyForwardWanted { shard, below } if shard.get() == 7 && below.get() == 2)
        )
    );
    assert!(
        !asked.is_empty() && asked.len() <= log.stats().rotations as usize,
        "{} times",
        asked.len()
    );
    let held = log.stats().files;
    append(&mut log, 7, 2, &batch_of(7, 1, 10)).unwrap();
    settle(&mut log, 99);
    log.release(ShardId::new(7), BatchNumber::new(2));
    for _ in 0..20 {
        log.pump(at(99), &mut Vec::new());
    }
    assert!(held >= 4 && log.stats().files <= 2, "{held} files, then {}", log.stats().files);
}

/// How often shards are asked to carry forward by a log of an earlier run, to which nothing is
/// appended, when only one batch holds it at last; and how many files are left.
fn asked_by_an_old_log() -> (usize, u64) {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    append(&mut log, 7, 1, &batch_of(7, 1, 10)).unwrap();
    for batch in 1..=60_u64 {
        append(&mut log, 1, batch, &batch_of(1, batch, 4000)).unwrap();
        settle(&mut log, batch);
    }
    drop(log);
    let mut recovery = Log::open_on(disk.device(), config.clone()).unwrap();
    while recovery.next_record().unwrap().is_some() {}
    let mut log = recovery.finish(at(100)).unwrap();
    let mut events = Vec::new();
    let pump =
        |log: &mut Log, events: &mut Vec<LogEvent>| (0..20).for_each(|_| log.pump(at(101), events));
    pump(&mut log, &mut events);
    assert!(log.stats().files > 3 && events.is_empty(), "many batches hold it: {events:?}");
    for keep_from in [2, 61] {
        log.release(ShardId::new(1), BatchNumber::new(keep_from));
        pump(&mut log, &mut events);
    }
    let asked =
        events.iter().filter(|event| matches!(event, LogEvent::CopyForwardWanted { .. })).count();
    if asked > 0 {
        log.release(ShardId::new(7), BatchNumber::new(2));
        pump(&mut log, &mut Vec::new());
    }
    (asked, log.stats().files)
}

#[test]
fn a_log_that_nothing_is_appended_to_asks_when_few_batches_hold_it_at_last() {
    let (asked, files) = asked_by_an_old_log();
    assert!(asked == 1 && files <= 2, "asked {asked} times, {files} files are left");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_log_that_asks_at_its_opening_only_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let (asked, _) = with(Bug::AsksOnce, asked_by_an_old_log);
    assert_eq!(asked, 0, "the planted bug is found");
}

/// What a shard is asked to carry forward by a log that nothing is appended to any more, as it does so
/// file by file; and how many files are left.
#[test]
fn a_log_that_nothing_is_appended_to_any_more_asks_for_each_file_until_few_are_left() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    for batch in 1..=150_u64 {
        if batch % 30 == 1 {
            append(&mut log, 7, batch / 30 + 1, &batch_of(7, batch, 10)).unwrap();
        }
        append(&mut log, 1, batch, &batch_of(1, batch, 4000)).unwrap();
        settle(&mut log, batch);
    }
    let held = log.stats().files;
    let mut asked = Vec::new();
    let mut release = |shard, keep_from| {
        let mut events = Vec::new();
        log.release(ShardId::new(shard), BatchNumber::new(keep_from));
        (0..20).for_each(|_| log.pump(at(101), &mut events));
        asked.extend(events.iter().filter_map(|event| match event {
            LogEvent::CopyForwardWanted { shard, below } => Some((shard.get(), below.get())),
            _ => None,
        }));
        log.stats().files
    };
    release(1, 150);
    release(7, 2);
    release(7, 3);
    let left = release(7, 4);
    assert_eq!(asked, [(7, 2), (7, 3), (7, 4), (7, 5)], "of {held} files {left} are left");
    assert!(held > 6 && left <= 4, "{held} files, then {left}");
}

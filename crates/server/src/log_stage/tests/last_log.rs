//! The log that shards of a run without one make at its end: one after the other takes it.

use super::*;

const OTHER_SHARD: ShardId = ShardId::new(1);
const OTHER_ASKER: StageId = StageId::new(8);

/// A stage without a log, of two shards, that makes its last one in this way.
fn at_its_end(make: LastLog) -> ManualDriver<Event> {
    let shards = vec![(SHARD, ASKER), (OTHER_SHARD, OTHER_ASKER)];
    let mut stage = LogStage::without_log(0, shards, Arc::new(LogGauges::default()));
    stage.makes_last_log(make);
    let begun = Timestamp::from_nanos(1_000_000_000_000);
    ManualDriver::new(vec![Box::new(stage) as Box<dyn Stage<Event>>], begun, 1000)
}

/// What the shards of such a stage are told when one of them has appended a batch.
fn told_of_a_batch(
    driver: &mut ManualDriver<Event>,
    shard: ShardId,
    batch: u64,
    bytes: usize,
) -> Vec<(StageId, Event)> {
    let mut record = Vec::new();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &vec![7; bytes] }.encode(&mut record);
    driver.send(StageId::new(0), appended(shard, batch, record)).unwrap();
    let mut told = Vec::new();
    for _ in 0..50 {
        driver.turn();
        driver.send(StageId::new(0), Event::Wake).unwrap();
        while let Some(sent) = driver.take_sent() {
            told.push(sent);
        }
    }
    told
}

/// Whether a shard that takes the last log hears that another one could not make it.
fn hears_of_a_last_log_that_failed() -> bool {
    let mut driver =
        at_its_end(Box::new(|_| Err(ServerError::Internal("there is no room".to_owned()))));
    let failed = |told: &[(StageId, Event)], stage| {
        told.iter().any(|(to, event)| *to == stage && matches!(event, Event::LogFailed { .. }))
    };
    assert!(failed(&told_of_a_batch(&mut driver, SHARD, 1, 10), ASKER));
    // That it failed was told to the other shard as well, which had no log at that time.
    failed(&told_of_a_batch(&mut driver, OTHER_SHARD, 1, 10), OTHER_ASKER)
}

#[test]
fn whoever_takes_a_last_log_that_has_failed_hears_of_it() {
    assert!(hears_of_a_last_log_that_failed());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_shard_that_waits_for_a_last_log_that_failed_is_noticed() {
    let hears =
        crate::planted::with(crate::planted::Bug::UntoldLastLog, hears_of_a_last_log_that_failed);
    assert!(!hears, "the planted bug is found");
}

/// Whether what a shard leaves in the last log is kept, although its hand-over from earlier logs
/// ended when another shard had made that one.
fn keeps_what_is_left_in_a_last_log() -> bool {
    let disk = MemoryDisk::new();
    let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
    let (device, last) = (disk.clone(), config.clone());
    let mut driver = at_its_end(Box::new(move |now| {
        Ok(Log::open_on(device.device(), last).and_then(|recovery| recovery.finish(now)).unwrap())
    }));
    let durable = |told: &[(StageId, Event)], number| {
        told.iter()
            .any(|(_, event)| matches!(event, Event::LogDurable { batch } if batch.get() == number))
    };
    assert!(durable(&told_of_a_batch(&mut driver, SHARD, 1, 10), 1));
    let own = Event::LogRelease { shard: OTHER_SHARD, keep_from: BatchNumber::MAX };
    driver.send(StageId::new(0), own).unwrap();
    assert!(durable(&told_of_a_batch(&mut driver, OTHER_SHARD, 1, 100), 1));
    // The log goes on in other files, and the first shard needs nothing of the first one any more.
    for batch in 2..100 {
        assert!(durable(&told_of_a_batch(&mut driver, SHARD, batch, 4000), batch));
    }
    let keep_from = BatchNumber::new(100);
    driver.send(StageId::new(0), Event::LogRelease { shard: SHARD, keep_from }).unwrap();
    told_of_a_batch(&mut driver, SHARD, 100, 10);
    drop(driver);
    let mut recovery = Log::open_on(disk.device(), config).unwrap();
    let mut is_kept = false;
    while let Some(record) = recovery.next_record().unwrap() {
        is_kept |= record.shard == OTHER_SHARD;
    }
    is_kept
}

#[test]
fn what_is_left_in_a_last_log_outlives_hand_overs_that_end_late() {
    assert!(keeps_what_is_left_in_a_last_log());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_last_log_that_a_late_hand_over_releases_is_noticed() {
    let is_kept = crate::planted::with(
        crate::planted::Bug::ReleasedLastLog,
        keeps_what_is_left_in_a_last_log,
    );
    assert!(!is_kept, "the planted bug is found");
}

//! The log device changes between two lives of a server: from files to none and back, with kills
//! and stops at several moments. What was acknowledged stays, what was deleted stays deleted, and
//! the old logs go once the store holds what was in them.

use std::path::Path;
use std::time::{Duration, Instant};

use timestone_client::{ErrorCode, blocking};
use timestone_clock::{Clock, SystemClock};
use timestone_server::{ListenConfig, ServerConfig, SizeConfig, Tuning};
use timestone_wal::DeviceKind;

use crate::bits::{Image, image, restore};
use crate::running::{Running, config, staged};

const KEYS: u32 = 200;
/// Longer than any hand-over takes here.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server without ports on `data`, with small files and a small device, so that logs are emptied
/// and tombstones collected soon.
fn small(data: &Path, log: DeviceKind) -> ServerConfig {
    let mut tuning = Tuning::of(log);
    tuning.log.file_bytes = 128 * 1024;
    tuning.log.block_bytes = 16 * 1024;
    let shards = (!data.exists()).then_some(1);
    ServerConfig {
        listen: ListenConfig::default(),
        shards,
        sizes: SizeConfig { capacity_bytes: Some(24 << 20), ..SizeConfig::default() },
        log,
        tuning: Some(tuning),
        ..config(data)
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("value {number}").repeat(40).into_bytes()
}

/// Every even key is there; every odd one, too, or none of them.
fn check(db: &blocking::Db, odd_ones_are_there: Option<bool>, when: &str) {
    for number in 0..KEYS {
        let found = db.get(&key(number)).unwrap();
        assert!(
            found.as_deref().is_none_or(|found| found == &value(number)[..]),
            "{when}: key {number} is damaged"
        );
        match odd_ones_are_there {
            _ if number % 2 == 0 => assert!(found.is_some(), "{when}: key {number} is lost"),
            Some(there) => assert_eq!(found.is_some(), there, "{when}: key {number}"),
            None => {}
        }
    }
}

/// The names of the logs that have files.
fn logs(data: &Path) -> usize {
    std::fs::read_dir(data.join("wal")).map_or(0, |entries| entries.count())
}

/// Overwrites keys in no order, so that blocks are collected that hold something alive, the oldest
/// ones among them, and that for longer than the watermark lags.
fn churn(db: &blocking::Db) {
    let (begun, mut place) = (Instant::now(), 1u32);
    for written in 0u32.. {
        place = place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        db.put(format!("churn {}", (place >> 8) % 300).as_bytes(), &[written as u8; 8192]).unwrap();
        if written >= 6_000 && begun.elapsed() > Duration::from_secs(4) {
            break;
        }
    }
}

/// A life with a log that writes all keys and is killed.
fn life_with_a_log(data: &Path) -> Image {
    let running = Running::start(&small(data, DeviceKind::Ssd));
    for number in 0..KEYS {
        running.inside.put(&key(number), &value(number)).unwrap();
    }
    drop(running);
    image(data)
}

#[test]
fn what_was_deleted_without_a_log_stays_deleted_when_there_is_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    life_with_a_log(&data);
    let running = Running::start(&small(&data, DeviceKind::None));
    for number in (1..KEYS).step_by(2) {
        running.inside.delete(&key(number)).unwrap();
    }
    churn(&running.inside);
    check(&running.inside, Some(false), "without a log");
    running.server.shutdown().unwrap();
    // The old log is empty by now, and goes at the next start that has no use for it.
    let running = Running::start(&small(&data, DeviceKind::None));
    check(&running.inside, Some(false), "without a log, again");
    assert_eq!(logs(&data), 0, "the log of the first life is still there");
    running.server.shutdown().unwrap();
    let running = Running::start(&small(&data, DeviceKind::Ssd));
    check(&running.inside, Some(false), "with a log again");
    for number in (1..KEYS).step_by(2) {
        running.inside.put(&key(number), &value(number)).unwrap();
    }
    drop(running);
    let running = Running::start(&small(&data, DeviceKind::Ssd));
    check(&running.inside, Some(true), "killed with a log again");
    running.server.shutdown().unwrap();
}

/// What was overwritten is collected meanwhile. A store that was killed does not know up to when,
/// and a log would.
#[test]
fn a_snapshot_from_before_a_kill_without_a_log_is_refused_and_never_answered_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Without a checkpoint meanwhile, which would tell of a watermark.
    let config = |data: &Path| {
        let mut config = small(data, DeviceKind::None);
        config.tuning.as_mut().unwrap().checkpoint_bytes = 1 << 40;
        config
    };
    let running = Running::start(&config(&data));
    // Whole blocks of what nobody needs afterwards: they are collected first.
    let older = |number: u32| vec![number as u8; 16 << 10];
    for number in 0..KEYS {
        running.inside.put(&key(number), &older(number)).unwrap();
    }
    let then = SystemClock::new().now();
    for number in 0..KEYS {
        running.inside.put(&key(number), b"younger").unwrap();
    }
    churn(&running.inside);
    drop(running);
    let running = Running::start(&config(&data));
    for number in 0..KEYS {
        let found = running.inside.snapshot(then).and_then(|snapshot| snapshot.get(&key(number)));
        let told = found.map_err(|error| error.code());
        let right = matches!(&told, Ok(Some(found)) if **found == older(number)[..]);
        assert!(right || told == Err(ErrorCode::SnapshotTooOld), "key {number}: {told:?}");
    }
    running.server.shutdown().unwrap();
}

#[test]
fn a_kill_at_any_moment_of_the_hand_over_loses_nothing_that_was_logged() {
    if staged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let first = life_with_a_log(&data);
    for moment in [0, 5, 20, 60, 120, 200, 300, 450, 700, 1500] {
        restore(&data, &first);
        let running = Running::start(&small(&data, DeviceKind::None));
        std::thread::sleep(Duration::from_millis(moment));
        drop(running);
        for log in [DeviceKind::None, DeviceKind::Ssd] {
            let running = Running::start(&small(&data, log));
            check(&running.inside, Some(true), &format!("killed after {moment} ms, then {log:?}"));
            drop(running);
        }
    }
    // Without a kill it comes to its end by itself.
    restore(&data, &first);
    let begun = Instant::now();
    while logs(&data) > 0 {
        assert!(begun.elapsed() < TIMEOUT, "the logs are never removed");
        let running = Running::start(&small(&data, DeviceKind::None));
        std::thread::sleep(Duration::from_secs(2));
        check(&running.inside, Some(true), "handing over");
        running.server.shutdown().unwrap();
    }
}

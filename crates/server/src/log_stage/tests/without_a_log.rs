//! Runs without a log, and what goes from one with a log to one without, and back.

use super::*;

/// Whether a key that was deleted in a life without a log is there in the next life with one, which
/// finds what the first life logged.
fn comes_back_after_a_life_without_a_log() -> bool {
    let device = MemoryDevice::new(tiny_flash());
    let media = device.media();
    let mut first = Bench::new_on(media);
    first.put(1, b"victim");
    assert!(first.has(b"victim"));
    let (disk, now) = first.stop();
    let mut second = Bench::on(disk, media, DeviceKind::None, now);
    assert!(second.has(b"victim"));
    // Beyond all that the first life may have served.
    second.pass(Duration::from_secs(5));
    second.write(2, b"victim", WriteAction::Delete, b"");
    assert!(!second.has(b"victim"));
    second.churn(3..3000);
    assert!(!second.has(b"victim"));
    assert_eq!(second.dropped_tombstones(), 1, "the test is of tombstones that go");
    let (disk, now) = second.stop();
    Bench::on(disk, media, DeviceKind::Ssd, now).has(b"victim")
}

/// Whether what a promise of a life with a log puts is there after a power cut, when a life without
/// one has acknowledged its commit.
fn outlives_what_was_acknowledged_without_a_log() -> bool {
    let device = MemoryDevice::new(tiny_flash());
    let media = device.media();
    let mut first = Bench::new_on(media);
    let (txn, commit) = first.promise(1, b"promised");
    let (disk, now) = first.cut_power(media);
    let mut second = Bench::on(disk, media, DeviceKind::None, now);
    assert!(second.is_promised(b"promised"));
    second.decide(txn, Some(commit));
    assert!(second.has(b"promised"));
    let (disk, now) = second.cut_power(media);
    Bench::on(disk, media, DeviceKind::None, now).holds(b"promised")
}

/// Whether a promise of a life with a log is there in the next but one, when the log asked the one
/// in between, which had none, to carry it forward.
fn is_kept_by_a_life_that_cannot_carry_it_forward() -> bool {
    let device = MemoryDevice::new(tiny_flash());
    let media = device.media();
    let mut first = Bench::new_on(media);
    first.promise(1, b"promised");
    let (disk, now) = first.cut_power(media);
    let mut second = Bench::on(disk, media, DeviceKind::None, now);
    second
        .driver
        .send(SHARD_STAGE, Event::LogCopyForward { below: BatchNumber::new(1000) })
        .unwrap();
    for _ in 0..300 {
        second.answers();
        second.pass(Duration::from_millis(10));
    }
    let (disk, now) = second.cut_power(media);
    Bench::on(disk, media, DeviceKind::None, now).is_promised(b"promised")
}

#[test]
fn a_run_without_a_log_that_cannot_save_what_it_leaves_ends_all_the_same() {
    let device = MemoryDevice::new(tiny_flash());
    let begun = Timestamp::from_nanos(1_000_000_000_000);
    let mut bench = Bench::on(MemoryDisk::new(), device.media(), DeviceKind::None, begun);
    bench.promise(1, b"promised");
    let log = Arc::clone(&bench.log);
    let (_, now) = bench.stop();
    assert!(now.since(begun) < Duration::from_secs(3), "{:?}", now.since(begun));
    assert!(log.failure().is_some_and(|cause| cause.contains("there is no room")));
}

#[test]
fn a_key_deleted_without_a_log_does_not_come_back_when_there_is_one_again() {
    assert!(!comes_back_after_a_life_without_a_log());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn without_a_hand_over_a_deleted_key_comes_back() {
    let comes_back = crate::planted::with(
        crate::planted::Bug::NoHandOver,
        comes_back_after_a_life_without_a_log,
    );
    assert!(comes_back, "the planted bug is found");
}

#[test]
fn what_is_acknowledged_without_a_log_about_a_promise_in_an_older_one_is_on_the_device() {
    assert!(outlives_what_was_acknowledged_without_a_log());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn an_acknowledgement_before_the_put_is_on_the_device_loses_it() {
    let is_there = crate::planted::with(
        crate::planted::Bug::EarlyHandOverAck,
        outlives_what_was_acknowledged_without_a_log,
    );
    assert!(!is_there, "the planted bug is found");
}

#[test]
fn an_abort_of_a_promise_in_an_older_log_is_acknowledged_without_one() {
    let device = MemoryDevice::new(tiny_flash());
    let mut first = Bench::new_on(device.media());
    let (txn, _) = first.promise(1, b"promised");
    let (disk, now) = first.cut_power(device.media());
    let mut second = Bench::on(disk, device.media(), DeviceKind::None, now);
    second.decide(txn, None);
    assert!(!second.has(b"promised") && !second.is_promised(b"promised"));
    second.stop();
}

#[test]
fn a_life_without_a_log_carries_nothing_forward_and_keeps_the_promises_of_the_one_before() {
    assert!(is_kept_by_a_life_that_cannot_carry_it_forward());
    let device = MemoryDevice::new(tiny_flash());
    let mut first = Bench::new_on(device.media());
    first.put(1, b"key");
    let (disk, now) = first.cut_power(device.media());
    let mut second = Bench::on(disk, device.media(), DeviceKind::None, now);
    second
        .driver
        .send(SHARD_STAGE, Event::LogCopyForward { below: BatchNumber::new(1000) })
        .unwrap();
    // Nothing waits for a log that there is not.
    second.stop();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_life_without_a_log_that_carries_forward_loses_promises() {
    let is_kept = crate::planted::with(
        crate::planted::Bug::CarriesWithoutLog,
        is_kept_by_a_life_that_cannot_carry_it_forward,
    );
    assert!(!is_kept, "the planted bug is found");
}

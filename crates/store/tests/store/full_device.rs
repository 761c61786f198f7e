//! Stores on a device that is full, or grows: what is refused, what is asked again, and what comes back
//! when something has died.

use std::time::Duration;

use timestone_flash::{Fault, FlashPace, MemoryConfig, MemoryMedia, OpKind};
use timestone_store::prelude::*;
use timestone_store::{Mftl, Skimpy, StoreError};
use timestone_types::KeyspaceId;

use crate::driver::{Driver, ORDERED, SPACE, Survives, at, config, media, open, version};

#[test]
fn a_full_device_refuses_puts_and_recovers_by_deletes() {
    let media = media(8, 64);
    let (mut driver, _) = open(&media, config());
    let mut stored = 0u64;
    let full = loop {
        match driver.try_put(&stored.to_be_bytes(), 10, &[3; 900]) {
            Ok(()) => stored += 1,
            Err(StoreError::Busy) => {}
            Err(error) => break error,
        }
        driver.store.advance_watermark(at(15));
        driver.pump();
    };
    assert!(matches!(full, StoreError::DeviceFull { .. }), "{full}");
    assert!(driver.admit(1, 0).is_err() && full.retryable());
    let share = stored as f64 * 1000.0 / (64.0 * 8.0 * 4096.0);
    assert!(share > 0.65, "full at {share} of its space");
    for n in 0..stored {
        assert_eq!(driver.value(&n.to_be_bytes(), 15), Some(vec![3; 900]));
    }
    for n in 0..stored / 2 {
        driver.delete(&n.to_be_bytes(), 20);
    }
    driver.store.advance_watermark(at(25));
    driver.pumps(200);
    for n in 0..stored / 4 {
        driver.put(&(n + 100_000).to_be_bytes(), 30, &[4; 900]);
    }
    for n in stored / 2..stored {
        assert_eq!(driver.value(&n.to_be_bytes(), 30), Some(vec![3; 900]));
    }
}

/// Large values of few keys come faster than the device takes them: what is refused may be tried again, for most
/// of what is there is not even written, or dies soon.
fn overwrites_faster_than_the_device<S: Survives>() {
    let media = media(8, 60);
    let none = Duration::ZERO;
    let (read, program, per_page, erase, spread) = (none, none, none, none, none);
    let sync = Duration::from_millis(50);
    media.set_pace(Some(FlashPace { read, program, per_page, erase, sync, spread, seed: 1 }));
    let (mut driver, _) = S::open_on(&media, config(), false).expect("opens");
    for n in 1..400u64 {
        let mut turns = 0;
        while let Err(error) = driver.try_put(&(n % 8).to_be_bytes(), n, &[n as u8; 30_000]) {
            assert!(matches!(error, StoreError::Busy) && turns < 500, "put {n}: {error}");
            turns += 1;
            driver.pump();
            media.set_now(driver.now);
        }
        driver.store.advance_watermark(at(n - 1));
        driver.store.advance_replay_floor(at(n - 1));
    }
    for n in 392..400u64 {
        assert_eq!(driver.value(&(n % 8).to_be_bytes(), 400), Some(vec![n as u8; 30_000]));
    }
}

#[test]
fn a_store_is_not_full_of_values_that_are_not_written_yet() {
    overwrites_faster_than_the_device::<Mftl>();
    overwrites_faster_than_the_device::<Skimpy>();
}

/// A device is filled with values of so many bytes, and a fence hides all of them, but for one that is put `beside` it,
/// above. Blocks do not know at once; that passes by itself.
fn fence_on_a_full_device(space: KeyspaceId, bytes: usize, cold: bool, beside: bool) {
    let (mut driver, _) = open(&media(8, 64), config());
    driver.space = space;
    let mut stored = 0u64;
    loop {
        match driver.try_put(&stored.to_be_bytes(), 10 + stored, &vec![3; bytes]) {
            Ok(()) => stored += 1,
            Err(StoreError::Busy) => {}
            Err(StoreError::DeviceFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        driver.store.advance_watermark(at(15));
        driver.pump();
    }
    driver.pumps(if cold { 200 } else { 1 });
    // A device is full for a large value while there is room for small ones.
    assert!(driver.store.stats().space.full || bytes > 900);
    let fence = 20_000;
    if beside {
        driver.delete(b"beside", fence + 1);
    }
    driver.store.fence(space, version(fence)).expect("a fence goes deeper than puts");
    for turn in 0..200 {
        driver.pump();
        if turn == 50 {
            driver.store.advance_watermark(at(fence));
        }
        let admitted = driver.admit(900, 0);
        assert!(
            matches!(admitted, Ok(()) | Err(StoreError::Busy)),
            "{admitted:?}: what the fence hides will be free"
        );
        let put = driver.try_put(b"new", fence + 1, &[4; 900]);
        assert!(matches!(put, Ok(()) | Err(StoreError::Busy)), "{put:?}");
        assert!(!driver.store.stats().space.full);
    }
    let new = driver.count(space, fence + 1);
    for n in 0..stored * 3 / 4 {
        driver.put(&n.to_be_bytes(), fence + 2, &vec![4; bytes]);
    }
    assert_eq!(driver.count(space, fence + 2), stored * 3 / 4 + new);
}

#[test]
fn a_full_device_is_busy_and_not_full_from_a_fence_on() {
    for (bytes, cold, beside) in [
        (900, false, false),
        (900, true, false),
        (900, true, true),
        (100_000, false, false),
        (100_000, true, false),
        (100_000, true, true),
    ] {
        fence_on_a_full_device(SPACE, bytes, cold, beside);
        fence_on_a_full_device(ORDERED, bytes, cold, beside);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn parts_of_large_values_that_a_fence_hides_and_that_never_die_are_noticed() {
    use timestone_types::planted::{Bug, set, with};

    let run = || with(Bug::FenceKeepsParts, || fence_on_a_full_device(SPACE, 100_000, true, false));
    let found = std::panic::catch_unwind(run).is_err();
    set(None);
    assert!(found, "the planted bug is found");
}

#[test]
fn a_replay_of_everything_fits_a_device_that_was_full() {
    for size in [900, 20_000] {
        let (mut driver, _) = open(&media(8, 96), config());
        let mut stored = 0u64;
        while !matches!(
            driver.try_put(&stored.to_be_bytes(), 10, &vec![3; size]),
            Err(StoreError::DeviceFull { .. })
        ) {
            // What was refused as busy is tried again.
            stored = driver.store.stats().writes.puts;
            driver.store.advance_watermark(at(15));
            driver.pump();
        }
        for n in 0..stored / 2 {
            driver.delete(&n.to_be_bytes(), 20);
        }
        driver.store.advance_watermark(at(25));
        driver.pumps(300);
        for n in 0..stored / 4 {
            driver.put(&(n + 100_000).to_be_bytes(), 30, &vec![4; size]);
        }
        for n in 0..stored {
            let replayed = driver.try_put(&n.to_be_bytes(), 10, &vec![3; size]);
            replayed.unwrap_or_else(|error| {
                panic!("{size} bytes, put {n} of {stored} comes back: {error}")
            });
        }
        for n in 0..stored {
            let expected = (n >= stored / 2).then(|| vec![3; size]);
            assert_eq!(driver.value(&n.to_be_bytes(), 30), expected);
        }
    }
}

/// A device of ten blocks that may grow to 200.
fn growing_media() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 10,
        max_blocks: 200,
        ..MemoryConfig::default()
    })
}

#[test]
fn the_device_grows_before_it_is_full() {
    let media = growing_media();
    let (mut driver, _) = open(&media, config());
    for n in 0..2500u64 {
        driver.put(&n.to_be_bytes(), 10, &[5; 900]);
        driver.pump();
    }
    let stats = driver.store.stats();
    assert!(stats.space.blocks > 100 && stats.collection.collected_blocks == 0, "{stats:?}");
}

#[test]
fn a_device_that_could_not_grow_is_asked_again_after_a_while() {
    let media = growing_media();
    let (mut driver, _) = open(&media, config());
    for nth in [1, 2] {
        media.inject(Fault::Fail { kind: OpKind::Grow, nth });
    }
    let (mut stored, mut full_at, mut failed_at) = (0u64, None, None);
    let waited = loop {
        match driver.try_put(&stored.to_be_bytes(), 10, &[5; 900]) {
            Ok(()) => stored += 1,
            Err(StoreError::DeviceFull { blocks: 10, .. }) => _ = full_at.get_or_insert(driver.now),
            Err(StoreError::Busy) => {}
            Err(error) => panic!("refused: {error}"),
        }
        driver.pump();
        if media.pending_faults() < 2 {
            failed_at.get_or_insert(driver.now);
        }
        let blocks = driver.store.stats().space.blocks;
        match full_at {
            Some(_) if blocks > 10 => {
                break Duration::from_nanos(driver.now - failed_at.expect("it failed first"));
            }
            None => assert_eq!(blocks, 10, "it grew although it could not"),
            Some(since) => assert!(driver.now - since < 60_000_000_000, "it is never asked again"),
        }
    };
    assert_eq!(media.pending_faults(), 0);
    // A second after the first failure and two after the next.
    assert!(
        waited > Duration::from_millis(2900) && waited < Duration::from_millis(3500),
        "{waited:?}"
    );
    for n in stored..stored + 1000 {
        driver.put(&n.to_be_bytes(), 10, &[5; 900]);
    }
    for n in 0..stored + 1000 {
        assert_eq!(driver.value(&n.to_be_bytes(), 10), Some(vec![5; 900]));
    }
}

/// Blocks that are read in two parts, one of all parts in a look.
fn long_blocks() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: 256,
        initial_blocks: 80,
        max_blocks: 80,
        completions_per_poll: 1,
        ..MemoryConfig::default()
    })
}

/// A key of 400 bytes.
fn long_key(n: u64) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[b'k'; 392]].concat()
}

/// Many keys of a full device are deleted, all over it, before the watermark passes that: blocks of tombstones seem to be
/// dead and are not, while reads take longer than one look after the other. How many looks later there is room
/// for deletes again; `None` if there is none.
fn room_after_deletes(every: u64, extra: u64, restarts: bool) -> Option<usize> {
    let media = long_blocks();
    let (mut driver, _) = open(&media, config());
    let mut stored = 0u64;
    loop {
        match driver.try_put(&long_key(stored), 10, &[3; 500]) {
            Ok(()) => stored += 1,
            Err(StoreError::Busy) => driver.pump(),
            Err(StoreError::DeviceFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        if stored % 64 == extra % 64 {
            driver.pump();
        }
    }
    driver.pumps(2000);
    // A delete is tried for as long as others would wait for it.
    let delete = |driver: &mut Driver, n: u64| {
        (0..400).any(|_| {
            let done = driver.try_delete(&long_key(n * every % stored), 20 + n);
            driver.pump();
            done.is_ok()
        })
    };
    let deleted = (0..40 * stored).find(|&n| !delete(&mut driver, n)).unwrap_or(40 * stored);
    if restarts {
        // All tombstones seem to be dead then: a scan does not know what they hide.
        driver.sync();
        drop(driver);
        driver = open(&media, config()).0;
    }
    let late = 20 + 100 * stored;
    driver.store.advance_watermark(at(late));
    driver.store.advance_replay_floor(at(late));
    let looks = (0..5_000).find(|_| {
        driver.pump();
        driver.try_delete(b"another", late + 1).is_ok()
    });
    assert!(deleted > 10_000, "{deleted} of {stored}");
    looks
}

#[test]
fn deletes_all_over_a_full_device_make_room() {
    for every in [2, 5, 23] {
        for (extra, restarts) in [(0, false), (0, true), (17, true)] {
            let looks = room_after_deletes(every, extra, restarts);
            assert!(looks.is_some(), "every {every}. key, {extra}, after a restart: {restarts}");
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn tombstones_that_seem_to_be_dead_are_noticed() {
    use timestone_types::planted::{Bug, with};

    assert!(with(Bug::TombstonesCountAsDead, || room_after_deletes(5, 0, false)).is_none());
}

//! Large values of the store with its index on flash: how their death becomes known, and how blocks of
//! their parts come free.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_flash::{FlashPace, Unsettled};
use timestone_store::prelude::*;
use timestone_store::{Figure, Skimpy, SkimpyConfig, StoreError};
use timestone_types::Expiry;

use crate::collection::{Dice, seeds};
use crate::driver::{Driver, Got, SPACE, at, config, media, unruly_media, version};
use crate::frugal::{frugal, open_for};
use crate::scores::sweep_is_full;
use crate::sweep::{Plan, Shard, every_cut, small};

fn value(key: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 13 + key) as u8).collect()
}

/// Values share blocks, and every second one dies: those beside it leave these blocks. All keys are in the
/// translation cache. Gives a key that was not found.
fn lost_beside_those_that_died(rounds: u64) -> Option<u64> {
    let media = media(8, 120);
    let config = SkimpyConfig { keys: 400, translated_thousandths: 1000, ..frugal(config()) };
    let (store, _) = Skimpy::open(Box::new(media.open()), config).expect("opens");
    let mut driver = Driver::new(store);
    for n in 0..60u64 {
        driver.put(&n.to_be_bytes(), 10 + n, &value(n, 12_000));
        driver.pump();
    }
    driver.sync();
    for n in (0..60u64).step_by(2) {
        driver.delete(&n.to_be_bytes(), 100 + n);
    }
    driver.store.advance_watermark(at(500));
    driver.store.advance_replay_floor(at(500));
    for round in 0..rounds {
        let time = 1000 + round;
        driver.put(&(1000 + round % 5).to_be_bytes(), time, &value(round, 12_000));
        driver.store.advance_watermark(at(time - 1));
        driver.store.advance_replay_floor(at(time - 1));
        driver.pump();
        for n in (1..60u64).step_by(2) {
            if driver.get(&n.to_be_bytes(), time) != Got::Value(version(10 + n), value(n, 12_000)) {
                return Some(n);
            }
        }
    }
    let collected = driver.figure(Figure::CollectedBlocks);
    assert!(collected > 50, "{collected} blocks were collected");
    None
}

/// A block has parts of three values that have died, and of one whose head is not written, since a sync takes
/// long; room is asked for meanwhile. What becomes of that one.
fn beside_those_that_died() -> Option<Vec<u8>> {
    const BYTES: usize = 8000;
    let media = media(8, 40);
    let (mut driver, _) = open_for(&media, 200);
    // Two parts each, and eight pages are a block.
    for key in 0..3u64 {
        driver.put(&key.to_be_bytes(), 10, &value(key, BYTES));
        driver.pumps(3);
    }
    driver.sync();
    let none = Duration::ZERO;
    let sync = Duration::from_secs(100);
    let (read, program, per_page, erase, spread) = (none, none, none, none, none);
    media.set_pace(Some(FlashPace { read, program, per_page, erase, sync, spread, seed: 1 }));
    // The second one is in the next block.
    for key in 3..5u64 {
        driver.put(&key.to_be_bytes(), 20, &value(key, BYTES));
        driver.pumps(3);
    }
    (0..3u64).for_each(|key| driver.delete(&key.to_be_bytes(), 30));
    driver.store.advance_watermark(at(40));
    driver.store.advance_replay_floor(at(40));
    let ask_for_room = |driver: &mut Driver<Skimpy>| {
        for _ in 0..40 {
            assert!(driver.admit(1 << 20, 0).is_err(), "there is no room for that");
            driver.pump();
        }
    };
    ask_for_room(&mut driver);
    assert!(driver.store.stats().looks > 0, "what has died was looked for");
    media.set_pace(None);
    media.set_now(sync.as_nanos() as u64);
    driver.sync();
    ask_for_room(&mut driver);
    assert!(driver.figure(Figure::CollectedBlocks) > 0, "the block was emptied");
    driver.value(&3u64.to_be_bytes(), 50)
}

#[test]
fn a_value_whose_head_is_not_written_stays_where_it_is() {
    assert_eq!(beside_those_that_died(), Some(value(3, 8000)));
}

#[test]
fn values_that_leave_a_block_are_found_afterwards() {
    assert_eq!(lost_beside_those_that_died(1200), None);
}

/// What a history with large values does: sizes by how often, and how far the watermark trails.
#[derive(Clone, Copy, Debug)]
struct Mix {
    blocks: u32,
    keys: u64,
    sizes: &'static [usize],
    /// So many of hundred writes are deletions, and so many expire soon.
    deletes: u64,
    expiring: u64,
    /// Writes that the watermark trails behind.
    lag: u64,
}

/// What came of it.
#[derive(Debug)]
struct Lived {
    collected: u64,
    looks: u64,
    /// The most pumps that a write had to wait.
    busiest: u64,
}

/// A small device on which mostly large values are written, against what was written last.
fn live(mix: Mix, seed: u64, writes: u64) -> Lived {
    let media = unruly_media(8, mix.blocks, seed);
    let config = SkimpyConfig { keys: 60, ..frugal(config()) };
    let open = || Driver::new(Skimpy::open(Box::new(media.open()), config).expect("opens").0);
    let (mut driver, mut dice) = (open(), Dice(seed));
    // By key: its last write, the size of its value and when that expires.
    let mut newest: BTreeMap<u64, (u64, Option<(usize, u64)>)> = BTreeMap::new();
    let (mut collected, mut looks, mut busiest) = (0, 0, 0);
    for time in 10..10 + writes {
        let key = dice.below(mix.keys);
        let size = mix.sizes[dice.below(mix.sizes.len() as u64) as usize];
        let what = dice.below(100);
        let expires = if what < mix.expiring { time + 20 } else { u64::MAX };
        let written = (what < 100 - mix.deletes).then_some((size, expires));
        let mut waited = 0;
        loop {
            let done = match written {
                Some((size, expires)) => {
                    let name = key.to_be_bytes();
                    let place = driver.key(SPACE, &name);
                    let expiry = Expiry::at(at(expires));
                    driver.store.put(place, version(time), &value(time, size), expiry)
                }
                None => driver.try_delete(&key.to_be_bytes(), time),
            };
            match done {
                Ok(()) => break,
                Err(StoreError::Busy) => waited += 1,
                Err(error) => panic!("{mix:?}, seed {seed}, write {time}: {error}"),
            }
            assert!(
                waited < 3000,
                "{mix:?}, seed {seed}, write {time}: {:?}",
                driver.store.stats()
            );
            driver.pump();
        }
        busiest = busiest.max(waited);
        newest.insert(key, (time, written));
        driver.store.advance_watermark(at(time.saturating_sub(mix.lag)));
        driver.store.advance_replay_floor(at(time.saturating_sub(mix.lag)));
        if dice.below(2) == 0 {
            driver.pump();
        }
        if dice.below(500) == 0 {
            collected += driver.figure(Figure::CollectedBlocks);
            looks += driver.store.stats().looks;
            driver.sync();
            media.power_cut(dice.below(u64::MAX));
            driver = open();
            driver.store.advance_watermark(at(time.saturating_sub(mix.lag)));
        }
        if dice.below(60) == 0 {
            for (&key, &(at, written)) in &newest {
                let got = driver.get(&key.to_be_bytes(), time);
                match written.filter(|&(_, expires)| expires > time) {
                    Some((size, _)) => {
                        let is_there = got == Got::Value(version(at), value(at, size));
                        assert!(is_there, "{mix:?}, seed {seed}: key {key} at {time}");
                    }
                    None => {
                        let is_gone = matches!(got, Got::Absent(_));
                        assert!(is_gone, "{mix:?}, seed {seed}: key {key} is back at {time}");
                    }
                }
            }
        }
    }
    Lived {
        collected: collected + driver.figure(Figure::CollectedBlocks),
        looks: looks + driver.store.stats().looks,
        busiest,
    }
}

const LARGE: &[usize] = &[5000, 12_000, 40_000];
const MIXES: [Mix; 6] = [
    Mix { blocks: 64, keys: 20, sizes: LARGE, deletes: 20, expiring: 0, lag: 1 },
    Mix { blocks: 90, keys: 20, sizes: LARGE, deletes: 20, expiring: 0, lag: 40 },
    Mix { blocks: 64, keys: 20, sizes: &[20_000], deletes: 0, expiring: 0, lag: 1 },
    // All of them expire, and nothing says so.
    Mix { blocks: 64, keys: 1000, sizes: LARGE, deletes: 0, expiring: 100, lag: 1 },
    Mix {
        blocks: 70,
        keys: 40,
        sizes: &[100, 900, 5000, 30_000],
        deletes: 20,
        expiring: 30,
        lag: 10,
    },
    // Values that take many blocks each.
    Mix { blocks: 200, keys: 6, sizes: &[200_000, 5000], deletes: 20, expiring: 0, lag: 3 },
];

#[test]
fn large_values_come_and_go_for_ever() {
    for mix in MIXES {
        for seed in 1..seeds(3) {
            let lived = live(mix, seed, 3000);
            assert!(lived.collected > 100 && lived.looks > 0, "{mix:?}, seed {seed}: {lived:?}");
            assert!(lived.busiest < 300, "{mix:?}, seed {seed}: {lived:?}");
        }
    }
}

/// Puts until that is refused for more than a moment: how many were taken, and what the last one was
/// told.
fn fill(driver: &mut Driver<Skimpy>, size: usize) -> (u64, StoreError) {
    let (mut stored, mut waited) = (0u64, 0);
    loop {
        match driver.try_put(&stored.to_be_bytes(), 10 + stored, &value(stored, size)) {
            Ok(()) => (stored, waited) = (stored + 1, 0),
            Err(StoreError::Busy) if waited < 2000 => waited += 1,
            Err(error) => return (stored, error),
        }
        driver.store.advance_watermark(at(9 + stored));
        driver.store.advance_replay_floor(at(9 + stored));
        driver.pump();
    }
}

#[test]
fn a_device_full_of_large_values_says_so_and_recovers_by_deletes() {
    for size in [5000, 12_000, 40_000] {
        let media = media(8, 120);
        let (mut driver, _) = open_for(&media, 200);
        let (stored, refused) = fill(&mut driver, size);
        assert!(matches!(refused, StoreError::DeviceFull { .. }), "{size}, {stored}: {refused}");
        let share = stored as f64 * size as f64 / (120.0 * 8.0 * 4096.0);
        assert!(share > 0.5, "{size}: full at {share} of its space");
        // An idle store that is full does not look at its blocks again and again.
        let reads = driver.store.stats().reads.page_reads;
        driver.pumps(200);
        assert_eq!(driver.store.stats().reads.page_reads, reads, "{size}: it still looks");
        assert!(driver.store.is_full(), "{size}");
        // Every second value is deleted: each block has something that lives, and something dead.
        let mut time = 1000;
        for n in (0..stored).step_by(2) {
            time += 1;
            driver.delete(&n.to_be_bytes(), time);
        }
        // It is only busy while the watermark will let them go.
        driver.store.advance_watermark(at(999));
        for _ in 0..300 {
            let put = driver.try_put(b"new", time + 1, &value(1, size));
            assert!(put.is_err(), "{size}: nothing has died yet");
            driver.pump();
        }
        let put = driver.try_put(b"new", time + 1, &value(1, size));
        assert!(matches!(put, Err(StoreError::Busy)), "{size}: {put:?}");
        driver.store.advance_watermark(at(time));
        driver.store.advance_replay_floor(at(time));
        for n in 0..stored / 4 {
            driver.put(&(1_000_000 + n).to_be_bytes(), time + 2 + n, &value(n, size));
        }
        for n in (1..stored).step_by(2) {
            let got = driver.value(&n.to_be_bytes(), time + 100_000);
            assert!(got == Some(value(n, size)), "{size}: {n} of {stored} was never deleted");
        }
    }
}

fn sweep(steps: u64, plan: &Plan) -> u64 {
    let (media, mut shard) = (media(8, 31), Shard::<Skimpy>::default());
    shard.mostly_large = true;
    let figures = shard.clone().live(&media.copy(), small(0), steps, 7);
    let collected = figures.get(Figure::CollectedBlocks);
    assert!(collected > 20, "{collected} blocks were collected");
    every_cut(
        (&media, &shard),
        plan,
        |media, shard| _ = shard.live(media, small(0), steps, 7),
        |media, mut shard, cut| shard.replay_and_check(media, small(0), &format!("{cut:?}")),
    )
}

#[test]
fn sweep_a_power_cut_while_large_values_leave_their_blocks() {
    let fates: &[Unsettled] = &[Unsettled::Lost, Unsettled::Drawn(1)];
    let cuts = if sweep_is_full() {
        sweep(240, &Plan { sector: 4096, fates, stride: 1 })
    } else {
        sweep(160, &Plan { sector: 1 << 20, fates, stride: 2 })
    };
    assert!(cuts > 300, "{cuts} cuts");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, with};

    use super::*;

    #[test]
    fn a_translation_that_keeps_the_old_head_is_found() {
        assert!(with(Bug::KeepsOldHead, || lost_beside_those_that_died(1200)).is_some());
    }

    #[test]
    fn a_block_that_is_emptied_beside_a_value_without_its_head_is_found() {
        assert_eq!(with(Bug::EmptiesBesideHeads, beside_those_that_died), None);
    }
}

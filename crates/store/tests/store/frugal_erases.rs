//! Blocks of the store with its index on flash that cannot be erased: what tombstones hid there does not come
//! back (K10 of docs/design/skimpy.md).

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::{BlockId, MemoryMedia};
use timestone_store::prelude::*;
use timestone_store::{RecoveryReport, Skimpy, SkimpyConfig};

use crate::collection::{Dice, seeds};
use crate::driver::{Driver, Got, SPACE, at, config, media, version};
use crate::frugal::{frugal, open_with};
use crate::unruly_erases::{EraseFate, HeldErases, LifeOfErases, UnrulyErases, spoil_checkpoints};

/// Their values and tombstones take most of a block each.
const DELETED: u64 = 450;
const BLOCKS: u32 = 40;

/// About one key a bucket; memory knows all of them.
fn config_for_all() -> SkimpyConfig {
    SkimpyConfig { keys: 4000, translated_thousandths: 1000, ..frugal(config()) }
}

/// Opens the store on a device with such erases.
fn open(
    media: &MemoryMedia,
    fate: impl FnMut(BlockId) -> EraseFate + Send + 'static,
) -> (Driver<Skimpy>, RecoveryReport, HeldErases) {
    let (device, held) = UnrulyErases::open(media, fate);
    let (store, report) = Skimpy::open(Box::new(device), config_for_all()).expect("opens");
    (Driver::new(store), report, held)
}

/// What becomes of erases where those of one block have another fate than all others.
fn fate_of(one: BlockId, fate: EraseFate) -> impl Fn(BlockId) -> EraseFate {
    move |block| if block == one { fate } else { EraseFate::Done(0) }
}

fn collected(driver: &Driver<Skimpy>) -> u64 {
    driver.store.stats().collection.collected_blocks
}

fn dropped(driver: &Driver<Skimpy>) -> u64 {
    driver.store.stats().collection.dropped_tombstones
}

fn quarantined(driver: &Driver<Skimpy>) -> u32 {
    driver.store.stats().space.quarantined_blocks
}

/// Other keys fill the device, each durable soon, until something is so.
struct Filler {
    time: u64,
}

impl Filler {
    fn until(
        &mut self,
        driver: &mut Driver<Skimpy>,
        mut is_so: impl FnMut(&Driver<Skimpy>) -> bool,
    ) {
        let begin = self.time;
        while !is_so(driver) {
            self.time += 1;
            assert!(self.time < begin + 2000, "{:?}", driver.store.stats());
            let key = 1_000_000 + self.time % 40;
            driver.put(&key.to_be_bytes(), self.time, &[7; 3000]);
            driver.store.advance_watermark(at(self.time));
            driver.store.advance_replay_floor(at(self.time));
            driver.store.begin_batch(driver.store.stable_batch().max(1) + 1000);
            driver.store.sync_soon();
            for _ in 0..8 {
                driver.pump();
                if is_so(driver) {
                    return;
                }
            }
        }
    }
}

/// Keys are put, and deleted in the next block. The first block is being erased while the next one is emptied; that
/// fails when tombstones were dropped there. The next one, and some more, are done with then.
fn tombstones_are_dropped_beside_a_block_that_stays()
-> (MemoryMedia, Driver<Skimpy>, BlockId, Filler) {
    let media = media(8, BLOCKS);
    let mut first = None;
    let (mut driver, _, held) =
        open(&media, move |block| fate_of(*first.get_or_insert(block), EraseFate::HELD)(block));
    (0..DELETED).for_each(|key| driver.put(&key.to_be_bytes(), 10, &[1; 20]));
    (0..DELETED).for_each(|key| driver.delete(&key.to_be_bytes(), 20));
    let mut filler = Filler { time: 30 };
    filler.until(&mut driver, |_| !held.blocks().is_empty());
    let stays = held.blocks()[0];
    assert_eq!((dropped(&driver), collected(&driver)), (0, 1));
    filler.until(&mut driver, |driver| dropped(driver) > 0);
    assert_eq!(collected(&driver), 1, "the next one is being emptied");
    held.fail();
    driver.pump();
    assert!(quarantined(&driver) > 0, "it could not be erased");
    filler.until(&mut driver, |driver| collected(driver) > 4);
    (media, driver, stays, filler)
}

fn deleted_keys_that_are_there(driver: &mut Driver<Skimpy>) -> Vec<u64> {
    let is_there = |key: &u64| driver.value(&key.to_be_bytes(), 1 << 40).is_some();
    (0..DELETED).filter(is_there).collect()
}

fn back_after_a_crash() -> Vec<u64> {
    let (media, driver, ..) = tombstones_are_dropped_beside_a_block_that_stays();
    media.power_cut(1);
    drop(driver);
    let (mut driver, _) = open_with(&media, config_for_all());
    deleted_keys_that_are_there(&mut driver)
}

#[test]
fn what_was_forgotten_while_an_earlier_block_could_not_be_erased_stays_deleted() {
    assert_eq!(back_after_a_crash(), []);
}

/// The same, and the next start goes by a checkpoint: nothing leads to the tombstones any more. Their block is done
/// with once more; the first one can never be erased. The start after that has no checkpoint.
fn back_after_two_starts() -> Vec<u64> {
    let (media, mut driver, stays, mut filler) = tombstones_are_dropped_beside_a_block_that_stays();
    driver.shut_down();
    drop(driver);
    let (mut driver, report, _) = open(&media, fate_of(stays, EraseFate::Fails(1)));
    assert!(report.checkpoint.is_some() && report.scanned_records == 0, "{report:?}");
    filler.until(&mut driver, |driver| collected(driver) > 6);
    assert!(quarantined(&driver) > 0, "it could not be erased");
    drop(driver);
    spoil_checkpoints(&media, BLOCKS * 8);
    let (mut driver, report) = open_with(&media, config_for_all());
    assert!(report.checkpoint.is_none(), "{report:?}");
    deleted_keys_that_are_there(&mut driver)
}

#[test]
fn what_was_forgotten_before_a_restart_stays_deleted() {
    assert_eq!(back_after_two_starts(), []);
}

/// Some lives of a store with many small keys, of which ranges are put and deleted, on a device that holds erases
/// back, and fails some: mostly when tombstones have just been dropped. After each all is there that was not deleted, and nothing else, with checkpoints and without.
/// How many blocks were set aside.
fn lives(seed: u64) -> u32 {
    let mut dice = Dice(seed);
    let media = media(8, BLOCKS);
    let bad = BlockId(dice.below(u64::from(BLOCKS)) as u32);
    let config = SkimpyConfig {
        translated_thousandths: if dice.below(4) == 0 { 100 } else { 1000 },
        loose: dice.below(2) == 0,
        ..config_for_all()
    };
    let (mut time, mut there, mut aside) = (1, BTreeMap::new(), 0);
    for life in 0..3 {
        let erases = LifeOfErases { seed: dice.below(u64::MAX), bad, failures: 1, polls: 200 };
        let (device, held) = UnrulyErases::open(&media, erases.fate());
        let (store, _) = Skimpy::open(Box::new(device), config).expect("opens");
        let mut failures = 2;
        let mut driver = Driver::new(store);
        for _ in 0..6 + dice.below(8) {
            let (first, count) = (dice.below(300), 300 + dice.below(400));
            let (puts, deletes) = (dice.below(3) > 0, dice.below(3) > 0);
            for key in (first..first + count).filter(|_| puts) {
                time += 1;
                driver.put(&key.to_be_bytes(), time, &[7; 20]);
                there.insert(key, time);
            }
            for key in (first..first + count).filter(|_| deletes) {
                time += 1;
                driver.delete(&key.to_be_bytes(), time);
                there.remove(&key);
            }
            driver.sync();
            driver.store.advance_watermark(at(time));
            driver.store.advance_replay_floor(at(time));
            if dice.below(8) == 0 {
                driver.store.checkpoint_now();
            }
            for n in 0..20 + dice.below(60) {
                time += 1;
                let key = 1_000_000 + n % 40;
                driver.put(&key.to_be_bytes(), time, &[7; 3000]);
                there.insert(key, time);
                // All of a life is durable in the end: nothing is put again.
                driver.store.advance_watermark(at(time));
                driver.store.advance_replay_floor(at(time));
                driver.store.sync_soon();
                for _ in 0..dice.below(8) {
                    let before = dropped(&driver);
                    driver.pump();
                    let drops = dropped(&driver) > before && !held.blocks().is_empty();
                    if drops && failures > 0 && dice.below(2) == 0 {
                        failures -= 1;
                        held.fail();
                    }
                }
            }
        }
        driver.sync();
        aside += quarantined(&driver);
        match dice.below(3) {
            0 => driver.shut_down(),
            1 => media.power_cut(dice.below(1 << 30)),
            _ => media.kill(dice.below(1 << 30)),
        }
        drop(driver);
        for spoils in [false, true] {
            let copy = media.copy();
            if spoils {
                spoil_checkpoints(&copy, BLOCKS * 8);
            }
            let (mut driver, _) = open_with(&copy, config);
            let name = |key: &u64| key.to_be_bytes().to_vec();
            let found: BTreeSet<_> = driver.keys(SPACE, 1 << 40, 500).into_iter().collect();
            let expected: BTreeSet<_> = there.keys().map(name).collect();
            let missing = expected.difference(&found).count();
            let back = found.difference(&expected).count();
            assert_eq!(
                (missing, back),
                (0, 0),
                "seed {seed}, life {life}, without checkpoints: {spoils}: missing, and back"
            );
            for (key, time) in there.iter().step_by(9) {
                let got = driver.get(&key.to_be_bytes(), 1 << 40);
                let is_newest = matches!(got, Got::Value(found, _) if found == version(*time));
                assert!(is_newest, "seed {seed}, life {life}, {spoils}: key {key} at {time}");
            }
        }
    }
    aside
}

#[test]
fn nothing_comes_back_from_blocks_that_cannot_be_erased() {
    let count = seeds(7);
    let aside: Vec<u32> = (1..count).map(lives).collect();
    assert!(u64::from(aside.iter().sum::<u32>()) > count, "{aside:?} blocks were set aside");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    #[test]
    fn a_block_that_goes_beside_one_that_could_not_be_erased_is_found() {
        assert_ne!(with(Bug::ForgetsBesideFailed, back_after_a_crash), []);
    }

    #[test]
    fn a_block_that_goes_after_a_restart_beside_one_that_stays_is_found() {
        assert_ne!(with(Bug::ForgetsDropped, back_after_two_starts), []);
    }

    #[test]
    fn it_is_found_by_lives_as_well() {
        let ended = std::panic::catch_unwind(|| with(Bug::ForgetsBesideFailed, || lives(5)));
        set(None);
        assert!(ended.is_err());
    }
}

//! One store, and several owners one after the other: what an earlier one has asked is not answered
//! to the next one, and what it has put counts to none of the next one's batches.

use timestone_store::prelude::*;
use timestone_store::{AsOf, Dram, DramConfig, Lookup, ReadToken, ScanCursor, ScanLimit};
use timestone_types::{HashSeed, KeyRef};

use crate::driver::{Driver, SPACE, at, config, media, open, version};

const KEYS: u64 = 40;

/// A store with some values that are on its device alone, large ones among them.
fn filled() -> Driver {
    let media = media(8, 400);
    let (mut driver, _) = open(&media, config());
    for key in 0..KEYS {
        let size = if key % 4 == 0 { 20_000 } else { 900 };
        driver.put(&key.to_be_bytes(), 10, &vec![key as u8; size]);
    }
    driver.store.sync_soon();
    driver.pumps(200);
    driver.events.clear();
    driver
}

/// What is answered of reads and walks that an earlier life has asked.
fn answers_of_an_earlier_life() -> usize {
    let mut driver = filled();
    let mut pending = 0;
    for key in 0..KEYS {
        let bytes = key.to_be_bytes();
        let name = driver.key(SPACE, &bytes);
        let found = driver.store.get(name, at(20), ReadToken(key)).expect("readable");
        pending += usize::from(found == Lookup::Pending);
        if key == KEYS / 2 {
            driver.pump();
        }
    }
    assert!(pending > 10, "the device is asked");
    let limit = ScanLimit { keys: 1000, bytes: 1 << 20 };
    let as_of = AsOf { at: at(20), judged: at(20) };
    let token = ReadToken(KEYS);
    driver.store.scan_as_of(SPACE, ScanCursor::START, limit, as_of, token).expect("begins");
    driver.store.begin_life();
    driver.events.clear();
    driver.pumps(200);
    let answers = driver.events.len();
    driver.events.clear();
    for key in 0..KEYS {
        assert!(driver.value(&key.to_be_bytes(), 20).is_some_and(|value| value[0] == key as u8));
    }
    assert_eq!(driver.keys(SPACE, 20, 7).len(), KEYS as usize);
    answers
}

#[test]
fn reads_of_an_earlier_life_are_not_answered() {
    assert_eq!(answers_of_an_earlier_life(), 0);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn answers_to_an_earlier_life_are_noticed() {
    use timestone_types::planted::{Bug, with};

    assert!(with(Bug::AnswersEarlierLife, answers_of_an_earlier_life) > 0);
}

#[test]
fn batches_are_numbered_anew_and_nothing_counts_as_stable_too_early() {
    let media = media(8, 400);
    let (mut driver, _) = open(&media, config());
    driver.store.begin_batch(90);
    driver.put(b"small", 10, b"earlier");
    driver.put(b"large", 10, &[7; 20_000]);
    driver.store.begin_batch(95);
    driver.store.begin_life();
    for batch in 3..6 {
        driver.store.begin_batch(batch);
        assert_eq!(driver.store.stable_batch(), 0, "what was put before is not stable");
    }
    driver.put(b"own", 10, b"own");
    driver.store.begin_batch(7);
    driver.store.sync_soon();
    driver.pumps(200);
    assert_eq!(driver.store.stable_batch(), 6);
    driver.shut_down();
    // The next life hears of it, too.
    driver.store.begin_life();
    driver.shut_down();
}

#[test]
fn what_is_in_memory_is_lost_between_two_lives() {
    let seed = HashSeed(1);
    let mut store = Dram::new(DramConfig { seed, memory_bytes: 1 << 20 });
    let key = KeyRef::new(seed, SPACE, b"key");
    let put = |store: &mut Dram, nanos| {
        let never = timestone_types::Expiry::NEVER;
        store.put(key, version(nanos), b"value", never).unwrap();
    };
    put(&mut store, 10);
    store.begin_life();
    put(&mut store, 12);
    store.recovered(at(15));
    assert!(store.get(key, at(14), ReadToken(1)).is_err(), "some would be there, and some not");
    let found = store.get(key, at(16), ReadToken(1)).unwrap();
    assert!(matches!(found, Lookup::Absent { version, .. } if version.timestamp == at(15)));
    put(&mut store, 17);
    let found = store.get(key, at(18), ReadToken(1)).unwrap();
    assert!(matches!(found, Lookup::Present { .. }));
}

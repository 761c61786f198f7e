//! Large values of the store with its index on flash: how their death becomes known, and how blocks of
//! their parts come free.

use timestone_store::prelude::*;
use timestone_store::{Figure, Skimpy, SkimpyConfig};

use crate::driver::{Driver, Got, at, config, media, version};
use crate::frugal::frugal;

fn value(key: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 13 + key) as u8).collect()
}

/// Values share blocks, and every second one dies: those beside it leave these blocks. All keys are in the
/// translation cache.
#[test]
fn values_that_leave_a_block_are_found_afterwards() {
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
    let mut time = 1000;
    for round in 0..1200u64 {
        time += 1;
        driver.put(&(1000 + round % 5).to_be_bytes(), time, &value(round, 12_000));
        driver.store.advance_watermark(at(time - 1));
        driver.store.advance_replay_floor(at(time - 1));
        driver.pump();
        for n in (1..60u64).step_by(2) {
            let got = driver.get(&n.to_be_bytes(), time);
            let is_there = got == Got::Value(version(10 + n), value(n, 12_000));
            assert!(is_there, "key {n} is lost in round {round}");
        }
    }
    let collected = driver.figure(Figure::CollectedBlocks);
    assert!(collected > 50, "{collected} blocks were collected");
}

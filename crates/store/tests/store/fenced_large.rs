//! Large values that a fence hides, and the blocks that have a share of them.

use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_store::prelude::*;
use timestone_store::{MftlConfig, StoreError};
use timestone_types::HashSeed;

use crate::collection::Dice;
use crate::driver::{SPACE, at, config, media, open, version};

/// Values are put, and collected on a device that answers slowly. When collection has been at it for so many rounds,
/// a fence hides all of them: some wait for their turn to leave a block. Bytes that seem to be alive afterwards.
fn live_after_fence(rounds: u64) -> u64 {
    let media = MemoryMedia::new(MemoryConfig {
        pages_per_block: 64,
        initial_blocks: 40,
        max_blocks: 40,
        completions_per_poll: 2,
        ..MemoryConfig::default()
    });
    let (mut driver, _) = open(&media, config());
    let (mut dice, mut time, mut batch, mut left) = (Dice(7), 10, 0, rounds);
    while left > 0 {
        for _ in 0..4 {
            time += 1;
            let bytes = 5000 + dice.below(15_000) as usize;
            driver.put(&dice.below(400).to_be_bytes(), time, &vec![1; bytes]);
        }
        driver.store.advance_watermark(at(time - 1));
        // Heads are written when their parts are durable: soon, they lie in the same block.
        batch += 1;
        driver.store.begin_batch(batch);
        driver.store.sync_soon();
        driver.pumps(8);
        left -= u64::from(driver.store.stats().collection.collected_blocks >= 4);
    }
    driver.store.fence(SPACE, version(time + 1)).expect("accepted");
    driver.store.advance_watermark(at(time + 2));
    driver.pumps(600);
    driver.sync();
    let stats = driver.store.stats();
    assert_eq!(stats.corrupt, 0, "nothing is looked for where it is not");
    stats.space.live_bytes
}

#[test]
fn no_block_is_erased_while_a_dropped_index_names_what_was_to_leave_it() {
    for rounds in 10..20 {
        let live = live_after_fence(rounds);
        assert!(live < 8000, "{live} bytes alive, {rounds} rounds");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn blocks_that_are_erased_while_a_dropped_index_names_something_are_noticed() {
    use timestone_types::planted::{Bug, set, with};

    let found = (10..20).any(|rounds| {
        let run = || with(Bug::NamesErasedHeads, || live_after_fence(rounds));
        let found = std::panic::catch_unwind(run).is_err();
        set(None);
        found
    });
    assert!(found, "the planted bug is found");
}

/// A device is full of values of one and a half blocks, and a fence hides all of them: blocks with the end of one
/// and the beginning of another are emptied, some before the other's head is read. Bytes that seem to be
/// alive afterwards.
fn live_after_clearing(seed: u64) -> u64 {
    const BYTES: usize = 47_000;
    let seeded = || MftlConfig { seed: HashSeed(seed), ..config() };
    let (mut driver, _) = open(&media(8, 200), seeded());
    let mut stored = 0u64;
    loop {
        match driver.try_put(&stored.to_be_bytes(), 10 + stored, &[3; BYTES]) {
            Ok(()) => stored += 1,
            Err(StoreError::Busy) => {}
            Err(StoreError::DeviceFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        driver.pump();
    }
    driver.pumps(200);
    let full = driver.store.stats().space.live_bytes;
    assert!(full > stored * BYTES as u64 && stored > 50, "{full} bytes of {stored} values");
    driver.store.fence(SPACE, version(1000)).expect("accepted");
    driver.store.advance_watermark(at(1000));
    for _ in 0..1000 {
        driver.admit(BYTES, 0).ok();
        driver.pump();
    }
    driver.store.stats().space.live_bytes
}

#[test]
fn what_a_fence_hides_is_dead_in_all_its_blocks_also_when_one_goes_before_the_head_is_read() {
    for seed in 0..4 {
        let live = live_after_clearing(seed);
        assert!(live < 20_000, "seed {seed}: {live} bytes");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn parts_whose_head_a_fence_makes_void_and_that_never_die_are_noticed() {
    use timestone_types::planted::{Bug, with};

    let found = |seed| with(Bug::VoidKeepsParts, || live_after_clearing(seed)) > 60_000;
    assert!((0..4).any(found), "the planted bug is found");
}

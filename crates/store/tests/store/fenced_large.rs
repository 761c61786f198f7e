//! Large values that a fence hides, and the blocks that have a share of them.

use timestone_store::prelude::*;

use crate::collection::Dice;
use crate::driver::{Driver, SPACE, at, config, media, open, version};

/// Collection is emptying blocks of large values when a fence hides all of them, so many pumps after a look
/// at it. Bytes that seem to be alive afterwards.
fn live_after_fence(pumps: usize) -> u64 {
    let (media, mut dice) = (media(64, 40), Dice(7));
    let (mut driver, _) = open(&media, config());
    let mut time = 10;
    while driver.store.stats().collection.collected_blocks < 4 {
        time += 1;
        let bytes = 5000 + dice.below(15_000) as usize;
        driver.put(&dice.below(400).to_be_bytes(), time, &vec![1; bytes]);
        driver.store.advance_watermark(at(time - 1));
        driver.pump();
    }
    driver.pumps(pumps);
    driver.store.fence(SPACE, version(time + 1)).expect("accepted");
    driver.store.advance_watermark(at(time + 2));
    driver.pumps(400);
    driver.sync();
    let stats = driver.store.stats();
    assert_eq!(stats.corrupt, 0, "nothing is looked for where it is not");
    stats.space.live_bytes
}

#[test]
fn no_block_is_erased_while_a_dropped_index_names_what_was_to_leave_it() {
    for pumps in 0..24 {
        let live = live_after_fence(pumps);
        assert!(live < 200_000, "{live} bytes alive, {pumps} pumps");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn blocks_that_are_erased_while_a_dropped_index_names_something_are_noticed() {
    use timestone_types::planted::{Bug, set, with};

    let found = (0..24).any(|pumps| {
        let run = || with(Bug::NamesErasedHeads, || live_after_fence(pumps));
        let found = std::panic::catch_unwind(run).is_err();
        set(None);
        found
    });
    assert!(found, "the planted bug is found");
}

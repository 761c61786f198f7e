//! Buckets of the store with its index on flash that are written whole before the log's tail asks for it.

use std::collections::BTreeMap;

use timestone_store::prelude::*;
use timestone_store::{Lookup, ReadToken, SkimpyConfig};
use timestone_types::KeyRef;

use crate::collection::Dice;
use crate::driver::{SPACE, at, config, media};
use crate::frugal::{frugal, open_with};

/// Keys of a few buckets are put and looked for all the time, and nobody waits for an answer: how many of
/// them have another value in the end than the one that was put last.
fn misses_of_long_chains() -> usize {
    const KEYS: u64 = 40;
    let media = media(16, 100);
    let open = || {
        let few = SkimpyConfig { keys: 12, translated_thousandths: 0, ..frugal(config()) };
        open_with(&media, SkimpyConfig { loose: false, ..few })
    };
    let (mut driver, _) = open();
    let (mut dice, mut newest) = (Dice(11), BTreeMap::new());
    for n in 1..6000u64 {
        let key = dice.below(KEYS);
        driver.put(&key.to_be_bytes(), n, &[n as u8; 1500]);
        newest.insert(key, n as u8);
        driver.store.advance_watermark(at(n));
        driver.store.advance_replay_floor(at(n));
        let name = dice.below(KEYS).to_be_bytes();
        let key = KeyRef::new(driver.store.seed(), SPACE, &name);
        let found = driver.store.get(key, at(n), ReadToken(n)).expect("it is asked");
        assert!(!matches!(found, Lookup::Present { value: &[], .. }), "values have bytes");
        driver.pump();
    }
    let stats = driver.store.stats();
    assert!(stats.rewritten_buckets > 200, "{stats:?}");
    let mut missed = 0;
    for _ in 0..2 {
        for (key, &value) in &newest {
            let found = driver.value(&key.to_be_bytes(), 10_000);
            missed += usize::from(found != Some(vec![value; 1500]));
        }
        driver.sync();
        drop(driver);
        (driver, _) = open();
    }
    missed
}

#[test]
fn what_is_put_while_a_chain_is_made_short_is_there() {
    assert_eq!(misses_of_long_chains(), 0);
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    #[test]
    fn a_bucket_that_lacks_what_was_put_meanwhile_is_found() {
        let found = std::panic::catch_unwind(|| with(Bug::ShortensStale, misses_of_long_chains));
        set(None);
        assert!(found.is_err() || found.is_ok_and(|missed| missed > 0));
    }

    #[test]
    fn a_part_of_a_bucket_that_is_taken_for_all_of_it_is_found() {
        let found = std::panic::catch_unwind(|| with(Bug::HandsOverParts, misses_of_long_chains));
        set(None);
        assert!(found.is_err() || found.is_ok_and(|missed| missed > 0));
    }
}

//! The index: memory per key and version, order of chains, dead counts.

use timestone_types::{ClientId, KeyHash};

use super::*;

fn id(n: u64) -> KeyId {
    let hash = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    KeyId::new(KeyHash(hash ^ hash >> 29), n as u32)
}

fn at(nanos: u64) -> Version {
    Version::new(Timestamp::from_nanos(nanos), ClientId::new(1))
}

fn put(index: &mut Index, id: KeyId, nanos: u64, page: u32, watermark: u64) {
    let spot = index.probe(id, at(nanos));
    assert_ne!(spot, Spot::Exists);
    index.put(
        id,
        spot,
        at(nanos),
        Location::new(page, false, false),
        Timestamp::from_nanos(watermark),
    );
}

#[test]
fn keys_cost_32_bytes_and_further_versions_20() {
    let mut index = Index::new();
    let keys = 250_000;
    for n in 0..keys {
        put(&mut index, id(n), 1, 7, 0);
    }
    assert_eq!(index.keys(), keys);
    let per_key = index.bytes() as f64 / keys as f64;
    assert!(per_key <= 32.0, "{per_key} bytes per key");
    let before = index.bytes();
    for nanos in 2..5 {
        for n in 0..keys {
            put(&mut index, id(n), nanos, 8, 0);
        }
    }
    let further = (index.bytes() - before) as f64 / (3 * keys) as f64;
    assert!(further <= 20.1, "{further} bytes per further version");
    assert!(index.bytes() <= 32 * keys + 20 * 3 * keys, "all in");
}

#[test]
fn versions_descend_whatever_order_they_come_in() {
    let mut index = Index::new();
    for nanos in [50, 10, 40, 20, 30] {
        put(&mut index, id(1), nanos, nanos as u32, 0);
    }
    let order: Vec<u64> =
        index.chain(id(1)).map(|(version, _)| version.timestamp.as_nanos()).collect();
    assert_eq!(order, [50, 40, 30, 20, 10]);
    assert_eq!(index.probe(id(1), at(30)), Spot::Exists);
}

#[test]
fn dead_versions_are_counted_until_their_blocks_are_erased() {
    let mut index = Index::new();
    for nanos in 1..=4 {
        put(&mut index, id(1), nanos * 10, nanos as u32, nanos * 10);
    }
    let left: Vec<u64> =
        index.chain(id(1)).map(|(version, _)| version.timestamp.as_nanos()).collect();
    assert_eq!(left, [40], "the youngest at or below the watermark stays");
    assert_eq!(index.dead(), 3);
    let tombstone = at(50);
    let spot = index.probe(id(1), tombstone);
    index.put(id(1), spot, tombstone, Location::new(9, true, false), Timestamp::from_nanos(50));
    let watermark = Timestamp::from_nanos(60);
    for dead in (1..=4).rev() {
        assert_eq!(index.dead(), dead);
        assert_eq!(
            index.assess(id(1), tombstone, 9, watermark, true),
            Assessment::Keep,
            "{dead} records lie below it"
        );
        assert_eq!(
            index.assess(id(1), at(dead * 10), dead as u32, watermark, false),
            Assessment::Dead
        );
        index.erased(id(1));
    }
    assert_eq!(
        index.assess(id(1), tombstone, 9, watermark, false),
        Assessment::Keep,
        "an older write may still come"
    );
    assert_eq!(index.assess(id(1), tombstone, 9, watermark, true), Assessment::DroppedTombstone);
    assert_eq!((index.keys(), index.versions(), index.dead()), (0, 0, 0));
}

#[test]
fn collection_keeps_what_a_reader_at_the_watermark_needs() {
    let mut index = Index::new();
    for nanos in [10, 20, 30] {
        put(&mut index, id(1), nanos, nanos as u32, 0);
    }
    let watermark = Timestamp::from_nanos(25);
    assert_eq!(index.assess(id(1), at(30), 30, watermark, false), Assessment::Keep);
    assert_eq!(index.assess(id(1), at(20), 20, watermark, false), Assessment::Keep);
    assert_eq!(index.assess(id(1), at(10), 10, watermark, false), Assessment::Dead);
    index.left_behind(id(1));
    assert_eq!(index.dead(), 2);
    assert_eq!(
        index.assess(id(1), at(20), 99, watermark, false),
        Assessment::Dead,
        "what it was moved from was counted"
    );
    for _ in 0..2 {
        index.erased(id(1));
    }
    assert_eq!(index.assess(id(2), at(20), 20, watermark, false), Assessment::Untracked);
}

#[test]
fn a_sweep_leaves_what_is_above_the_fence() {
    let mut index = Index::new();
    for n in 0..100 {
        put(&mut index, id(n), 10, 1, 0);
        if n % 2 == 0 {
            put(&mut index, id(n), 30, 2, 0);
        }
    }
    let mut gone = 0;
    for segment in 0..SEGMENTS as u16 {
        index.sweep(segment, at(20), true, |_, _, _| gone += 1);
    }
    assert_eq!(gone, 50, "what a younger version supersedes was counted then");
    assert_eq!((index.keys(), index.versions(), index.live_heads()), (50, 50, 50));
}

#[test]
fn a_hot_key_does_not_make_puts_slow() {
    let mut index = Index::new();
    for nanos in 1..200_000u64 {
        put(&mut index, id(1), nanos, 1, nanos.saturating_sub(1000));
    }
    assert!(index.versions() < 3000, "{} versions are kept", index.versions());
}

#[test]
fn a_dead_record_that_collection_meets_takes_all_below_the_watermark_with_it() {
    let mut index = Index::new();
    for nanos in 1..=10 {
        put(&mut index, id(1), nanos * 10, nanos as u32, 0);
    }
    let watermark = Timestamp::from_nanos(55);
    let mut assess =
        |nanos: u64| index.assess(id(1), at(nanos), nanos as u32 / 10, watermark, false);
    assert_eq!(assess(60), Assessment::Keep, "it lies above the watermark");
    assert_eq!(assess(50), Assessment::Keep, "it is what a reader at the watermark gets");
    assert_eq!(assess(30), Assessment::Dead);
    assert_eq!(assess(20), Assessment::Dead, "it was counted with the first one");
    let left: Vec<u64> =
        index.chain(id(1)).map(|(version, _)| version.timestamp.as_nanos()).collect();
    assert_eq!(left, [100, 90, 80, 70, 60, 50]);
    assert_eq!(index.dead(), 4);
    for _ in 0..4 {
        index.erased(id(1));
    }
    assert_eq!(index.dead(), 0);
    assert_eq!(index.chain(id(1)).count(), 6);
}

/// A key with two versions that were pruned, below what is left at 30 and 40.
fn pruned() -> Index {
    let mut index = Index::new();
    for nanos in [10, 20, 30, 40] {
        put(&mut index, id(1), nanos, nanos as u32, 35);
    }
    assert_eq!((index.versions(), index.dead()), (2, 2));
    index
}

fn sweep(index: &mut Index, fence: u64) {
    index.sweep(id(1).segment, at(fence), true, |_, _, _| {});
}

#[test]
fn what_a_fence_hides_is_counted_no_more_when_it_has_been_through() {
    let mut index = pruned();
    sweep(&mut index, 35);
    assert_eq!((index.versions(), index.dead()), (1, 0));
    assert_eq!(
        index.assess(id(1), at(40), 40, Timestamp::from_nanos(50), true),
        Assessment::DroppedTombstone,
        "nothing below it is counted"
    );
    // Nothing is left of it but what lies above.
    let mut index = pruned();
    put(&mut index, id(1), 50, 50, 45);
    sweep(&mut index, 42);
    assert_eq!((index.versions(), index.dead()), (1, 0));
}

fn dead_above_a_fence() {
    // The youngest one that was pruned may lie above the fence.
    let mut index = pruned();
    sweep(&mut index, 15);
    assert_eq!((index.versions(), index.dead()), (2, 2));
    // A restart by the checkpoint that is being written may not have passed it.
    let mut index = pruned();
    index.sweep(id(1).segment, at(35), false, |_, _, _| {});
    assert_eq!((index.versions(), index.dead()), (1, 2));
    // So may a copy, or what a checkpoint counted.
    let mut index = pruned();
    index.left_behind(id(1));
    sweep(&mut index, 35);
    assert_eq!((index.versions(), index.dead()), (1, 3));
    let mut index = Index::new();
    index.restore(id(1), &[(at(40), Location::new(4, false, false))], 2);
    sweep(&mut index, 35);
    assert_eq!((index.versions(), index.dead()), (1, 2));
}

#[test]
fn dead_records_that_may_lie_above_a_fence_stay_counted() {
    dead_above_a_fence();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn dead_records_above_a_fence_that_are_forgotten_are_noticed() {
    use timestone_types::planted::{Bug, set, with};

    let found = std::panic::catch_unwind(|| with(Bug::ForgetsDeadAboveFence, dead_above_a_fence));
    set(None);
    assert!(found.is_err());
}

/// What of a tombstone is told when what it hides goes in some way.
fn told_when_bare(goes: impl FnOnce(&mut Index)) -> Vec<u64> {
    let mut index = Index::new();
    put(&mut index, id(1), 10, 1, 5);
    let tombstone = Location::new(3, true, false);
    let spot = index.probe(id(1), at(30));
    index.put(id(1), spot, at(30), tombstone, at(5).timestamp);
    assert!(index.hides(id(1)) && index.take_bare().next().is_none());
    goes(&mut index);
    index.take_bare().map(|(_, version, _)| version.timestamp.as_nanos()).collect()
}

#[test]
fn a_tombstone_that_hides_nothing_any_more_is_told_once() {
    assert_eq!(told_when_bare(|_| {}), [0; 0]);
    assert_eq!(
        told_when_bare(|index| index.sweep(id(1).segment, at(20), true, |_, _, _| {})),
        [30]
    );
    assert_eq!(told_when_bare(|index| assert!(index.forget(id(1), at(10), 1))), [30]);
    let erased = |index: &mut Index| {
        let fate = index.assess(id(1), at(10), 1, at(40).timestamp, true);
        assert_eq!(fate, Assessment::Dead);
        assert!(index.hides(id(1)), "until its block is erased");
        index.erased(id(1));
    };
    assert_eq!(told_when_bare(erased), [30]);
}

/// Of a value, a tombstone that hides something, and one that does not: what blocks are told to be dead when a fence
/// hides all of them, in both ways in which it can.
fn told_of_a_fence() -> [Vec<u64>; 2] {
    let mut index = Index::new();
    let delete = |index: &mut Index, n: u64, nanos: u64| {
        let spot = index.probe(id(n), at(nanos));
        let place = Location::new(nanos as u32, true, false);
        index.put(id(n), spot, at(nanos), place, Timestamp::ZERO);
    };
    put(&mut index, id(1), 10, 10, 0);
    put(&mut index, id(2), 10, 10, 0);
    delete(&mut index, 2, 20);
    delete(&mut index, 3, 30);
    let told = |version: Version| version.timestamp.as_nanos();
    let mut ways = [Vec::new(), Vec::new()];
    for segment in 0..SEGMENTS as u16 {
        ways[0].extend(index.alive_in(segment).map(|(_, version, _)| told(version)));
        index.sweep(segment, at(40), true, |_, version, _| ways[1].push(told(version)));
    }
    ways.iter_mut().for_each(|way| way.sort_unstable());
    ways
}

#[test]
fn what_counts_as_dead_already_is_not_told_when_a_fence_hides_it() {
    assert_eq!(told_of_a_fence(), [[10, 20], [10, 20]]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_tombstone_that_counts_twice_is_noticed() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::CountsBareAgain, told_of_a_fence), [[10, 20, 30], [10, 20, 30]]);
}

#[test]
fn dead_records_of_a_key_without_a_version_wait_for_one() {
    let (mut index, mark) = (Index::new(), Timestamp::from_nanos(100));
    index.restore(id(1), &[], 2);
    assert_eq!((index.keys(), index.dead()), (0, 0));
    assert_eq!(index.orphans_in(id(1).segment).collect::<Vec<_>>(), [(id(1), 2)]);
    // One of them goes with its block.
    assert_eq!(index.assess(id(1), at(10), 7, mark, false), Assessment::Dead);
    index.erased(id(1));
    let place = Location::new(9, true, false);
    index.put(id(1), Spot::NewKey, at(50), place, mark);
    assert!(index.hides(id(1)) && index.dead() == 1);
    assert_eq!(index.orphans_in(id(1).segment).count(), 0);
    assert_eq!(index.assess(id(1), at(50), 9, mark, true), Assessment::Keep);
    index.erased(id(1));
    assert_eq!(index.assess(id(1), at(50), 9, mark, true), Assessment::DroppedTombstone);
}

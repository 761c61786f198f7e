//! The tree of keys against an ordered map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use timestone_types::KeyspaceId;

use super::node::TreeNode;
use super::*;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// What the nodes take, counted anew.
fn counted_bytes(keys: &OrderedKeys) -> usize {
    fn of(node: &TreeNode) -> usize {
        node.own_bytes() + node.children().map(of).sum::<usize>()
    }
    of(&keys.root)
}

fn all(keys: &OrderedKeys) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let wanted = Wanted { from: &[], to: None, direction: Direction::Ascending, above: None };
    let ended = keys.walk(wanted, &mut u32::MAX.clone(), |key| {
        found.push(key.to_vec());
        true
    });
    assert_eq!(ended, Walked::ToEnd);
    found
}

/// Keys of a range, in steps of so many.
fn in_steps(
    keys: &OrderedKeys,
    range: KeyRange<'_>,
    direction: Direction,
    step: u32,
) -> Vec<Vec<u8>> {
    let (mut found, mut left) = (Vec::new(), RangeLeft::new(range, direction));
    loop {
        let (before, mut budget) = (found.len(), step);
        let ended = keys.walk(left.wanted(), &mut budget, |key| {
            found.push(key.to_vec());
            true
        });
        assert!(found.len() - before <= step as usize);
        match ended {
            Walked::UpTo(next) => left.go_on(next),
            Walked::ToEnd | Walked::Stopped => return found,
        }
    }
}

#[test]
fn a_long_key_costs_as_much_as_many_short_ones() {
    let mut keys = OrderedKeys::new();
    for n in 0..20u8 {
        keys.insert(&[&[n][..], &[b'.'; 60_000]].concat(), at(1));
    }
    let (mut budget, mut seen) = (300, 0);
    let wanted = Wanted { from: &[], to: None, direction: Direction::Ascending, above: None };
    let ended = keys.walk(wanted, &mut budget, |_| {
        seen += 1;
        true
    });
    assert!(matches!(ended, Walked::UpTo(next) if next.first() == Some(&seen)));
    assert_eq!((seen, budget), (6, 0), "300 steps of 1 KiB");
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Vec<u8>, u64),
    Remove(Vec<u8>),
    RemoveRange(Vec<u8>, usize),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = proptest::collection::vec(0u8..4, 0..6);
    let numbered = (0u32..2000).prop_map(|n| format!("user:{n:08}:name").into_bytes());
    let random = any::<u64>().prop_map(|n| n.to_be_bytes().to_vec());
    let long = (0usize..3, 0usize..3000, any::<u8>()).prop_map(|(kind, length, last)| {
        let mut key = vec![b'x'; [10, 2000, 60_000][kind] + length];
        key.push(last);
        key
    });
    prop_oneof![3 => short, 4 => numbered, 3 => random, 1 => long]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (key(), 1u64..1000).prop_map(|(key, nanos)| Op::Insert(key, nanos)),
        2 => key().prop_map(Op::Remove),
        1 => (key(), 1usize..60).prop_map(|(key, count)| Op::RemoveRange(key, count)),
    ]
}

/// Everything that has to hold.
fn check(keys: &OrderedKeys, model: &BTreeMap<Vec<u8>, u64>) {
    assert_eq!(keys.len(), model.len() as u64);
    assert!(all(keys).iter().eq(model.keys()), "the same keys in the same order");
    assert_eq!(counted_bytes(keys), keys.heap_bytes, "what is counted is what there is");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_like_an_ordered_map(history in proptest::collection::vec(ops(), 1..1500)) {
        let (mut keys, mut model) = (OrderedKeys::new(), BTreeMap::new());
        for (count, op) in history.into_iter().enumerate() {
            match op {
                Op::Insert(key, nanos) => {
                    let newest = model.entry(key.clone()).or_insert(0);
                    prop_assert_eq!(keys.insert(&key, at(nanos)), *newest == 0);
                    *newest = (*newest).max(nanos);
                }
                Op::Remove(key) => prop_assert_eq!(keys.remove(&key), model.remove(&key).is_some()),
                Op::RemoveRange(from, count) => {
                    let some: Vec<_> = model.range(from..).take(count).map(|one| one.0.clone()).collect();
                    for key in some {
                        prop_assert!(keys.remove(&key));
                        model.remove(&key);
                    }
                }
            }
            if count % 97 == 0 {
                check(&keys, &model);
            }
        }
        check(&keys, &model);
        for (key, _) in model.iter().step_by(7) {
            prop_assert!(keys.contains(key));
        }
    }

    #[test]
    fn a_walk_finds_what_is_in_the_range_whatever_the_step(
        inserted in proptest::collection::vec(key(), 1..600),
        ranges in proptest::collection::vec((key(), key(), any::<bool>(), 1u32..300), 1..20),
    ) {
        let mut keys = OrderedKeys::new();
        let mut model = BTreeMap::new();
        for key in inserted {
            keys.insert(&key, at(1));
            model.insert(key, 1);
        }
        for (from, to, open, step) in ranges {
            let to = (!open).then_some(to);
            let mut expected: Vec<_> = model
                .range(from.clone()..)
                .map(|one| one.0.clone())
                .take_while(|key| to.as_ref().is_none_or(|to| key < to))
                .collect();
            let keyspace = KeyspaceId::numbered(1, false).ordered();
            let range = KeyRange { keyspace, from: &from, to: to.as_deref() };
            prop_assert_eq!(&in_steps(&keys, range, Direction::Ascending, step), &expected);
            expected.reverse();
            prop_assert_eq!(in_steps(&keys, range, Direction::Descending, step), expected);
        }
    }

    /// Nothing that was written after a time is passed over.
    #[test]
    fn what_is_passed_over_is_not_younger(
        inserted in proptest::collection::vec((key(), 1u64..1000), 1..1000),
        removed in proptest::collection::vec(any::<proptest::sample::Index>(), 0..300),
        above in 0u64..1100,
        step in 1u32..50,
    ) {
        let (mut keys, mut model) = (OrderedKeys::new(), BTreeMap::new());
        for (key, nanos) in &inserted {
            keys.insert(key, at(*nanos));
            let newest = model.entry(key.clone()).or_insert(0);
            *newest = (*newest).max(*nanos);
        }
        for index in removed {
            let key = &index.get(&inserted).0;
            prop_assert_eq!(keys.remove(key), model.remove(key).is_some());
        }
        let (mut seen, mut from) = (std::collections::BTreeSet::new(), Vec::new());
        loop {
            let wanted = Wanted { from: &from, to: None, direction: Direction::Ascending, above: Some(at(above)) };
            let ended = keys.walk(wanted, &mut step.clone(), |key| seen.insert(key.to_vec()));
            let Walked::UpTo(next) = ended else { break };
            prop_assert!(next >= from);
            from = next;
        }
        for (key, newest) in model {
            prop_assert!(newest <= above || seen.contains(&key), "{newest} is above {above}");
        }
    }
}

#[test]
fn a_walk_passes_over_what_is_old() {
    let mut keys = OrderedKeys::new();
    for n in 0..100_000u64 {
        keys.insert(&n.to_be_bytes(), at(10));
    }
    keys.insert(&70_000u64.to_be_bytes(), at(20));
    let (mut seen, mut budget) = (0, 1000);
    let wanted =
        Wanted { from: &[], to: None, direction: Direction::Ascending, above: Some(at(10)) };
    let ended = keys.walk(wanted, &mut budget, |_| {
        seen += 1;
        true
    });
    assert_eq!(ended, Walked::ToEnd);
    assert!(seen <= 128 && budget > 700, "{seen} keys seen, {budget} left");
}

/// With any budget, wherever it is used up, a walk goes on until it has seen what is young.
#[test]
fn a_walk_in_steps_gets_past_every_part() {
    let mut keys = OrderedKeys::new();
    for n in 0..100_000u64 {
        keys.insert(&n.to_be_bytes(), at(10));
    }
    let young: BTreeSet<u64> = (0..40).map(|n| n * 2_477 + 31).collect();
    young.iter().for_each(|n| assert!(!keys.insert(&n.to_be_bytes(), at(20))));
    for step in (1..=64).chain([1000]) {
        let (mut from, mut seen, mut steps) = (Vec::<u8>::new(), BTreeSet::new(), 0);
        loop {
            let wanted = Wanted {
                from: &from,
                to: None,
                direction: Direction::Ascending,
                above: Some(at(10)),
            };
            let ended = keys.walk(wanted, &mut step.clone(), |key| {
                let key = u64::from_be_bytes(key.try_into().expect("eight bytes"));
                if young.contains(&key) {
                    seen.insert(key);
                }
                true
            });
            match ended {
                Walked::ToEnd => break,
                Walked::UpTo(next) => assert!(next > core::mem::replace(&mut from, next.clone())),
                Walked::Stopped => panic!("nobody has stopped it"),
            }
            steps += 1;
            assert!(steps < 20_000, "it goes on");
        }
        assert!(seen == young, "{} of {} with a step of {step}", seen.len(), young.len());
    }
}

#[test]
fn a_key_costs_little_more_than_what_tells_it_from_its_neighbours() {
    let (mut ascending, mut random) = (OrderedKeys::new(), OrderedKeys::new());
    let count = 100_000u64;
    for n in 0..count {
        ascending.insert(format!("user:{n:012}").as_bytes(), at(1));
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let other = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        random.insert(&[mixed.to_be_bytes(), other.to_be_bytes()].concat(), at(1));
    }
    let per_key = |keys: &OrderedKeys| keys.bytes() as f64 / count as f64;
    assert!(per_key(&ascending) < 8.0, "{} bytes for keys of 17", per_key(&ascending));
    assert!(per_key(&random) < 22.0, "{} bytes for keys of 16", per_key(&random));
}

#[test]
fn a_tree_that_is_given_up_goes_a_little_at_a_time() {
    let mut keys = OrderedKeys::new();
    for n in 0..50_000u64 {
        keys.insert(&n.to_be_bytes(), at(1));
    }
    let mut falling = keys.give_up();
    let mut steps = 0;
    while falling.free_some(16) {
        steps += 1;
    }
    assert!(steps > 20, "{steps} steps");
    assert!(falling.bytes() < 1 << 16);
}

#[test]
fn keys_that_go_take_their_memory_with_them() {
    let mut keys = OrderedKeys::new();
    for n in 0..50_000u64 {
        keys.insert(&n.to_be_bytes(), at(1));
    }
    let full = keys.bytes();
    for n in 0..50_000u64 {
        if n % 50 != 0 {
            assert!(keys.remove(&n.to_be_bytes()));
        }
    }
    assert!(keys.len() == 1000 && keys.bytes() < full / 10, "{} of {full}", keys.bytes());
    for n in (0..50_000u64).step_by(50) {
        assert!(keys.remove(&n.to_be_bytes()));
    }
    assert_eq!((keys.len(), counted_bytes(&keys)), (0, OrderedKeys::new().heap_bytes));
}

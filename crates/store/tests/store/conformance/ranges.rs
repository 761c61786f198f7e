//! Ranges of keyspaces whose keys are in order: every key that is visible as of a time, ascending,
//! and whether anything in a range was written after one.

use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Direction, Figure, KeyRange, ReadToken, ScanLimit, StoreError, StoreEvent,
};
use timestone_types::Expiry;

use super::{Behaviour, twice};
use crate::driver::{Driver, ORDERED, SPACE, at, version};

/// For stores that read ranges.
pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("a range finds its keys in order, whatever the step", ranges),
        ("a page of a range holds no more than its limit", pages),
        ("a page of a range ends, however few of its keys are there", ends),
        ("a range finds what can be seen as of its time", visible),
        ("a check finds what was written after a time, and nothing else", checks),
        ("a check passes over what is old", passes_over),
        ("a key whose last version is collected leaves the order", leaves),
        ("a key stays as long as a version of it does", stays),
        ("ranges of other keyspaces are refused", refused),
        ("a long range holds nobody up", turns),
        ("a fence empties a range", fences),
    ]
}

/// For stores that do not.
pub(super) fn without<S: Store>() -> Vec<Behaviour<S>> {
    vec![("no range is read", refused_everywhere)]
}

const ALL: (&[u8], Option<&[u8]>) = (&[], None);

const fn limit_of_all() -> ScanLimit {
    ScanLimit { keys: u32::MAX, bytes: usize::MAX }
}

fn in_order<S: Store>(driver: &mut Driver<S>) {
    driver.space = ORDERED;
}

/// Keys of unlike lengths, beginning alike and not; ascending.
fn names() -> Vec<Vec<u8>> {
    let numbered = (0..300u32).map(|n| format!("user:{:05}", n * 7).into_bytes());
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let long = (0..4u8).map(|n| [&[b'l'; 2000][..], &[n]].concat());
    let mut names: Vec<_> = numbered.chain(bytes).chain(long).chain([Vec::new()]).collect();
    names.sort();
    names
}

fn ranges<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    let names = names();
    for place in 0..names.len() {
        // In no order, large values among them.
        let name = &names[(place * 101) % names.len()];
        let size = if place % 40 == 7 { 9000 } else { 10 };
        driver.put(name, 10, &vec![1; size]);
    }
    assert_eq!(names.len(), 561, "101 has no factor in common with it");
    twice(driver, |driver| {
        let bounds: [(&[u8], Option<&[u8]>); 6] = [
            ALL,
            (b"user:", Some(b"user;")),
            (b"user:00100", Some(b"user:01000")),
            (b"", Some(b"")),
            (b"x", Some(b"b")),
            (&[255, 255], None),
        ];
        for (from, to) in bounds {
            let inside =
                |name: &&Vec<u8>| name.as_slice() >= from && to.is_none_or(|to| &name[..] < to);
            let expected: Vec<_> = names.iter().filter(inside).cloned().collect();
            for keys in [1, 2, 100, 100_000] {
                let limit = ScanLimit { keys, bytes: usize::MAX };
                let found = driver.range_within((from, to), 20, limit);
                assert!(found.iter().all(|(_, found)| *found == version(10)));
                let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
                assert!(found == expected, "{} of {} keys", found.len(), expected.len());
            }
        }
        assert!(driver.range(&[], None, 9).is_empty(), "nothing was there before");
    });
}

fn pages<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for n in 0..50u32 {
        driver.put(&[&n.to_be_bytes()[..], &[b'k'; 96]].concat(), 10, b"v");
    }
    twice(driver, |driver| {
        for (limit, expected) in [
            (ScanLimit { keys: 1, bytes: 0 }, 1),
            (ScanLimit { keys: 0, bytes: 1000 }, 1),
            (ScanLimit { keys: 100, bytes: 1000 }, 10),
            (ScanLimit { keys: 7, bytes: 1000 }, 7),
            (ScanLimit { keys: 50, bytes: 5000 }, 50),
        ] {
            let down = driver.try_range_in(Direction::Descending, ALL, 20, limit);
            let (entries, next) = down.expect("a page");
            assert_eq!(entries.len(), expected, "{limit:?}");
            let last_left = 50 - expected as u32;
            assert_eq!(next.is_none(), last_left == 0);
            // What is before it is left, and nothing else.
            let next =
                next.map(|next| driver.range_within((&next, None), 20, limit_of_all()).len());
            assert_eq!(next, (last_left > 0).then_some(expected), "{limit:?}");
            let (entries, next) = driver.try_range(ALL, 20, limit).expect("a page");
            assert_eq!(entries.len(), expected, "{limit:?}");
            let first_left: u32 = expected as u32;
            let next = next.map(|next| next[..4].to_vec());
            let expected = (expected < 50).then(|| first_left.to_be_bytes().to_vec());
            assert_eq!(next, expected, "the first key that was not looked at");
        }
    });
}

/// Deleted and expired keys, as at the head of a queue, before one that is there.
fn ends<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for n in 0..18_000u32 {
        if n % 9 == 0 {
            driver.put_expiring(&n.to_be_bytes(), 10, b"v", 15);
        } else {
            driver.delete(&n.to_be_bytes(), 10);
        }
        driver.pump();
    }
    driver.put(b"last", 10, b"v");
    driver.pumps(200);
    let limit = ScanLimit { keys: 1, bytes: 1000 };
    for direction in [Direction::Ascending, Direction::Descending] {
        let (entries, next) = driver.try_range_in(direction, ALL, 20, limit).expect("a page");
        let is_there = usize::from(direction == Direction::Descending);
        assert_eq!(entries.len(), is_there, "the first page, {direction:?}");
        assert!(next.is_some(), "there is more behind it, {direction:?}");
    }
    for keys in [1, 100] {
        let limit = ScanLimit { keys, bytes: 1000 };
        assert_eq!(driver.range_within(ALL, 20, limit), [(b"last".to_vec(), version(10))]);
    }
    assert_eq!(driver.range_within((b"last", None), 20, limit).len(), 1);
}

fn visible<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    driver.put(b"a", 10, b"v");
    driver.put(b"a", 20, b"w");
    driver.put(b"b", 10, b"v");
    driver.delete(b"b", 20);
    driver.put_expiring(b"c", 10, b"soon", 25);
    driver.put_expiring(b"d", 10, &[7; 9000], 25);
    driver.put(b"e", 30, b"late");
    driver.delete(b"f", 10);
    let entry = |key: &[u8], nanos| (key.to_vec(), version(nanos));
    twice(driver, |driver| {
        let all = vec![entry(b"a", 10), entry(b"b", 10), entry(b"c", 10), entry(b"d", 10)];
        assert_eq!(driver.range(&[], None, 15), all);
        let some = vec![entry(b"a", 20), entry(b"c", 10), entry(b"d", 10)];
        assert_eq!(driver.range(&[], None, 24), some);
        assert_eq!(driver.range(&[], None, 30), vec![entry(b"a", 20), entry(b"e", 30)]);
        assert_eq!(driver.range(b"b", Some(b"e"), 15), all[1..]);
    });
    // The expiry comes with the entry, and is judged as of another time if that is asked for.
    let as_of = AsOf { at: at(15), judged: at(40) };
    let limit = ScanLimit { keys: 100, bytes: usize::MAX };
    let (entries, _) = driver.try_range(ALL, 15, limit).expect("a page");
    let expiries: Vec<_> = entries.iter().map(|entry| entry.expires_at).collect();
    let soon = Expiry::at(at(25));
    assert_eq!(expiries, [Expiry::NEVER, Expiry::NEVER, soon, soon]);
    let range = KeyRange::all(ORDERED);
    driver
        .store
        .range_as_of(range, Direction::Ascending, limit, as_of, ReadToken(1))
        .expect("begins");
    driver.pumps(200);
    let found = driver.events.iter().find_map(|event| match event {
        StoreEvent::RangeDone { token: ReadToken(1), entries, next: None } => Some(entries.len()),
        _ => None,
    });
    assert_eq!(found, Some(2), "what has expired by then is left out");
}

pub(crate) fn checks<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    let names = names();
    for name in &names {
        driver.put(name, 10, b"v");
    }
    driver.put(b"user:00700", 30, b"w");
    driver.delete(b"user:01400", 40);
    driver.put_expiring(b"z", 50, b"v", 55);
    for step in [1, 3, 1000] {
        assert_eq!(driver.above(ALL, 50, step), None);
        assert_eq!(driver.above((b"a", Some(b"user:00700")), 10, step), None);
        let (from, to): (&[u8], &[u8]) = (b"user:00700", b"user:00701");
        let written = Some((Some(b"user:00700".to_vec()), version(30)));
        assert_eq!(driver.above((from, Some(to)), 29, step), written);
        assert_eq!(driver.above(ALL, 10, step), written, "the first one");
        assert_eq!(driver.above((from, Some(to)), 30, step), None);
        let deleted = Some((Some(b"user:01400".to_vec()), version(40)));
        assert_eq!(driver.above(ALL, 30, step), deleted, "a deletion is a write");
        assert_eq!(driver.above(ALL, 45, step), Some((Some(b"z".to_vec()), version(50))));
        assert_eq!(driver.above((b"", Some(b"")), 1, step), None);
        assert_eq!(driver.above((b"zz", None), 9, step), Some((Some(vec![b'{']), version(10))));
    }
    driver.store.advance_watermark(at(20));
    let too_old = driver.store.first_above(KeyRange::all(ORDERED), at(19), 10);
    assert!(matches!(too_old, Err(StoreError::TooOld { .. })));
    let too_old = driver.try_range(ALL, 19, ScanLimit { keys: 1, bytes: 1 });
    assert!(matches!(too_old, Err(StoreError::TooOld { .. })));
}

fn passes_over<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for n in 0..5000u32 {
        driver.put(&n.to_be_bytes(), 10, b"v");
        driver.pump();
    }
    driver.put(&4000u32.to_be_bytes(), 20, b"w");
    let range = KeyRange::all(ORDERED);
    let check = |driver: &Driver<S>, nanos, most| {
        driver.store.first_above(range, at(nanos), most).expect("checked")
    };
    assert_eq!(check(driver, 20, 2), timestone_store::RangeCheck::None, "one look at all of it");
    let found = check(driver, 10, 300);
    let key = Some(4000u32.to_be_bytes().to_vec());
    assert_eq!(found, timestone_store::RangeCheck::Above { key, version: version(20) });
    let looked_at_few = check(driver, 10, 10);
    assert!(matches!(looked_at_few, timestone_store::RangeCheck::More(_)), "{looked_at_few:?}");
}

/// Lets everything happen that collection does, while the watermark is at `nanos`.
fn collect<S: Store>(driver: &mut Driver<S>, nanos: u64) {
    driver.sync();
    driver.store.advance_watermark(at(nanos));
    driver.store.advance_replay_floor(at(nanos));
    // Something has to be written for blocks to be collected: about as much as there is room for.
    let on_flash = driver.figure(Figure::Blocks) > 0;
    let least = if on_flash { 400 } else { 0 };
    let mut round = 0;
    while round < 3 || driver.figure(Figure::CollectedBlocks) < least {
        round += 1;
        assert!(round < 1000, "nothing is collected");
        for n in 0..40u32 {
            driver.put_in(SPACE, &n.to_be_bytes(), nanos + round, &[1; 3000]);
        }
        driver.store.advance_watermark(at(nanos + round));
        driver.store.advance_replay_floor(at(nanos + round));
        driver.sync();
        driver.pumps(20);
    }
}

fn leaves<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for n in 0..600u32 {
        driver.put(&n.to_be_bytes(), 10, &[1; 300]);
    }
    let full = driver.figure(Figure::OrderBytes);
    for n in 0..600u32 {
        if n % 100 == 0 {
            driver.put(&n.to_be_bytes(), 20, b"stays");
        } else {
            driver.delete(&n.to_be_bytes(), 20);
        }
    }
    collect(driver, 30);
    let (keys, order) = (driver.figure(Figure::Keys), driver.figure(Figure::OrderBytes));
    assert!(keys <= 200, "{keys} keys are left: collection came by");
    assert!(order < full / 2, "{order} bytes of {full}");
    let found = driver.range(&[], None, 100_000);
    let stays: Vec<_> =
        (0..6u32).map(|n| ((n * 100).to_be_bytes().to_vec(), version(20))).collect();
    assert_eq!(found, stays);
    // And it comes back.
    driver.put(&7u32.to_be_bytes(), 90_000, b"again");
    assert_eq!(driver.range(&[0, 0, 0, 1], Some(&[0, 0, 0, 50]), 100_000).len(), 1);
}

pub(crate) fn stays<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for nanos in 10..16 {
        for n in 0..60u32 {
            driver.put(&n.to_be_bytes(), nanos, &[1; 900]);
        }
        driver.sync();
    }
    collect(driver, 30);
    assert_eq!(driver.range(&[], None, 100_000).len(), 60, "their older versions went");
    assert_eq!(driver.count(ORDERED, 100_000), 60);
}

fn refused<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    refused_in(driver, driver.space);
    in_order(driver);
    assert!(driver.range(&[], None, 20).is_empty(), "a keyspace that nobody has written to");
    assert_eq!(driver.above(ALL, 0, 10), None);
}

fn refused_everywhere<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    refused_in(driver, driver.space);
    refused_in(driver, ORDERED);
}

fn refused_in<S: Store>(driver: &mut Driver<S>, keyspace: timestone_types::KeyspaceId) {
    let (range, limit) = (KeyRange::all(keyspace), ScanLimit { keys: 10, bytes: 1000 });
    let as_of = AsOf { at: at(20), judged: at(20) };
    let read = driver.store.range_as_of(range, Direction::Ascending, limit, as_of, ReadToken(1));
    let Err(error @ StoreError::NotOrdered(of)) = read else { panic!("{read:?}") };
    assert!(of == keyspace && error.to_string().contains("--index ordered"), "{error}");
    let check = driver.store.first_above(range, at(1), 10);
    assert!(matches!(check, Err(StoreError::NotOrdered(_))));
}

/// Thousands of deleted keys are passed over while a short range is answered.
fn turns<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for n in 0..9000u32 {
        driver.delete(&n.to_be_bytes(), 10);
        driver.pump();
    }
    driver.put(b"short", 10, b"v");
    driver.pumps(200);
    driver.events.clear();
    let limit = ScanLimit { keys: 10, bytes: 1000 };
    let as_of = AsOf { at: at(20), judged: at(20) };
    driver
        .store
        .range_as_of(KeyRange::all(ORDERED), Direction::Ascending, limit, as_of, ReadToken(1))
        .expect("begins");
    let short = KeyRange { keyspace: ORDERED, from: b"short", to: None };
    driver
        .store
        .range_as_of(short, Direction::Ascending, limit, as_of, ReadToken(2))
        .expect("begins");
    let mut order = Vec::new();
    for pump in 0..100 {
        driver.pump();
        for event in driver.events.drain(..) {
            if let StoreEvent::RangeDone { token, entries, .. } = event {
                assert_eq!(entries.len(), 1);
                order.push((token.0, pump));
            }
        }
    }
    assert!(matches!(order[..], [(2, 0), (1, 2..)]), "(token, pump): {order:?}");
}

fn fences<S: Store>(driver: &mut Driver<S>) {
    in_order(driver);
    for n in 0..2000u32 {
        driver.put(&n.to_be_bytes(), 10, b"v");
        driver.pump();
    }
    driver.store.fence(ORDERED, version(20)).expect("fence");
    driver.put(&7u32.to_be_bytes(), 30, b"new");
    assert_eq!(driver.range(&[], None, 19).len(), 2000);
    assert_eq!(driver.range(&[], None, 40), [(7u32.to_be_bytes().to_vec(), version(30))]);
    assert_eq!(driver.above(ALL, 19, 10), Some((None, version(20))), "a fence is a write");
    assert_eq!(driver.above((b"", Some(b"")), 19, 10), None);
    let full = driver.figure(Figure::OrderBytes);
    driver.store.advance_watermark(at(25));
    driver.pumps(400);
    assert_eq!(driver.range(&[], None, 40).len(), 1);
    let left = driver.figure(Figure::OrderBytes);
    assert!(left < full / 4, "{left} of {full} bytes: what it hid has left the order");
    assert_eq!(driver.above(ALL, 25, 1000), Some((Some(7u32.to_be_bytes().to_vec()), version(30))));
    // Everything goes at once.
    driver.store.fence(ORDERED, version(50)).expect("fence");
    driver.store.advance_watermark(at(55));
    driver.pumps(400);
    assert!(driver.range(&[], None, 60).is_empty());
    driver.put(b"later", 70, b"v");
    assert_eq!(driver.range(&[], None, 80), [(b"later".to_vec(), version(70))]);
}

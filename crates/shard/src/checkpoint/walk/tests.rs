//! A walk over a store whose watermark moves on meanwhile.

use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_store::{
    Dram, DramConfig, Mftl, MftlConfig, Skimpy, SkimpyConfig, StoreEvent, Stores, prelude::*,
};
use timestone_types::{ClientId, Expiry, HashSeed};

use super::*;

const SEED: HashSeed = HashSeed(7);
const KEY: &[u8] = b"key";

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// What lies on these devices, and nothing of it in memory.
fn opened(media: &[MemoryMedia; 2]) -> Stores {
    let config = MftlConfig { seed: SEED, cache_bytes: 0, ..MftlConfig::default() };
    let (full, _) = Mftl::open(Box::new(media[0].open()), config).unwrap();
    let config = SkimpyConfig { seed: SEED, keys: 64, cache_bytes: 0, ..SkimpyConfig::default() };
    let (frugal, _) = Skimpy::open(Box::new(media[1].open()), config).unwrap();
    let dram = Dram::in_recovery(DramConfig { seed: SEED, memory_bytes: 1 << 20 });
    Stores::new(full, dram).with_frugal(frugal)
}

fn pump(store: &mut Stores, now: &mut u64) -> Vec<StoreEvent> {
    *now += 1_000_000;
    let mut events = Vec::new();
    store.pump(at(*now), &mut events);
    events
}

/// Versions at 10, 20 and 30 of one key, each on a page of its own; the watermark is at 5.
fn filled(keyspace: KeyspaceId, now: &mut u64) -> Stores {
    let media = [(); 2].map(|()| MemoryMedia::new(MemoryConfig::default()));
    let mut store = opened(&media);
    store.begin_batch(1);
    for t in [10u64, 20, 30] {
        let name = KeyRef::new(SEED, keyspace, KEY);
        let version = Version::new(at(t), ClientId::new(1));
        store.put(name, version, &[t as u8; 3000], Expiry::NEVER).unwrap();
    }
    store.begin_batch(2);
    for _ in 0..10_000 {
        if store.stable_batch() >= 1 {
            drop(store);
            let mut store = opened(&media);
            store.advance_watermark(at(5));
            return store;
        }
        store.sync_soon();
        pump(&mut store, now);
    }
    panic!("never durable");
}

/// How many items a walk finds, where the watermark moves to 35 while the version below `passed` is
/// read, and the store says so: what it looked through was rewritten.
fn items_when_passed(keyspace: KeyspaceId, passed: u64) -> Result<usize, StoreError> {
    let mut now = 1000;
    let mut store = filled(keyspace, &mut now);
    let mut walk = StoreWalk::of(keyspace);
    let (mut has_passed, mut items) = (None, 0);
    for _ in 0..1000 {
        items += core::iter::from_fn(|| walk.take_item()).count();
        if walk.is_over() {
            assert!(has_passed.is_some(), "the store has to be asked in {keyspace}");
            return Ok(items);
        }
        walk.go_on(at(now), &mut store)?;
        let asked = walk.reads.iter().find(|read| read.at == at(passed).previous());
        if let Some(token) = asked.and_then(|read| read.asked) {
            store.advance_watermark(at(35));
            has_passed = Some(token);
        }
        for event in pump(&mut store, &mut now) {
            match event {
                StoreEvent::ReadDone { token, outcome } => {
                    let (asked, watermark) = (at(passed).previous(), store.watermark());
                    let outcome = match has_passed == Some(token) {
                        true => ReadOutcome::Failed(StoreError::TooOld { at: asked, watermark }),
                        false => outcome,
                    };
                    walk.found(token, outcome, at(now), &mut store)?;
                }
                StoreEvent::ScanDone { token, keys, next } => walk.listed(token, &keys, next),
                _ => {}
            }
        }
    }
    panic!("it never ends in {keyspace}");
}

#[test]
fn a_walk_goes_on_when_the_watermark_passes_what_it_asks_for() {
    for keyspace in [KeyspaceId::numbered(4, false).frugal(), KeyspaceId::DEFAULT] {
        assert_eq!(items_when_passed(keyspace, 30).unwrap(), 1);
        assert_eq!(items_when_passed(keyspace, 20).unwrap(), 2);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_walk_that_is_given_up_for_that_is_found() {
    use timestone_types::planted::{Bug, with};

    let found = with(Bug::FailsPassedWalk, || items_when_passed(KeyspaceId::DEFAULT, 30));
    assert!(matches!(found, Err(StoreError::TooOld { .. })), "{found:?}");
}

/// How many items a walk finds where the device fails reads of keys, or of the list, until then; with
/// 100 ms between two of its turns.
fn items_when_failing(until: Timestamp, keys: bool) -> Result<usize, StoreError> {
    let error = || {
        let source = std::io::Error::other("a bad sector");
        StoreError::Flash(timestone_flash::FlashError::Medium { operation: "read", source })
    };
    let mut now = 1000;
    let mut store = filled(KeyspaceId::DEFAULT, &mut now);
    let began = now;
    let mut walk = StoreWalk::of(KeyspaceId::DEFAULT);
    let mut items = 0;
    for _ in 0..200 {
        items += core::iter::from_fn(|| walk.take_item()).count();
        if walk.is_over() {
            return Ok(items);
        }
        now += 99_000_000;
        let at = at(now);
        let fails = now < until.as_nanos().saturating_add(began);
        walk.go_on(at, &mut store)?;
        for event in pump(&mut store, &mut now) {
            match event {
                StoreEvent::ReadDone { token, .. } if fails && keys => {
                    walk.found(token, ReadOutcome::Failed(error()), at, &mut store)?;
                }
                StoreEvent::ScanDone { token, .. } if fails && !keys => {
                    walk.list_failed(token, at, error())?;
                }
                StoreEvent::ReadDone { token, outcome } => {
                    walk.found(token, outcome, at, &mut store)?;
                }
                StoreEvent::ScanDone { token, keys, next } => walk.listed(token, &keys, next),
                _ => {}
            }
        }
    }
    panic!("it never ends");
}

#[test]
fn a_read_that_fails_is_tried_again_for_a_while() {
    for keys in [true, false] {
        assert_eq!(items_when_failing(at(4_000_000_000), keys).unwrap(), 3);
        let found = items_when_failing(Timestamp::MAX, keys);
        assert!(matches!(found, Err(StoreError::Flash(_))), "{found:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
#[should_panic(expected = "it never ends")]
fn a_walk_that_never_gives_up_is_found() {
    use timestone_types::planted::{Bug, with};

    let _ = with(Bug::TriesForEver, || items_when_failing(Timestamp::MAX, true));
}

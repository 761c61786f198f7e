//! Scans while keys come and go, values move and blocks are collected: what was there throughout is
//! found, and nothing that never was.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Direction, KeyList, KeyRange, Mftl, MftlConfig, RangeList, ReadToken, ScanCursor,
    ScanLimit, StoreEvent,
};
use timestone_types::{Expiry, KeyspaceId};

use crate::driver::{Driver, Entries, ORDERED, SPACE, at, config, open, unruly_media, version};

const KEYS: u16 = 120;

/// What happens between two turns of a scan.
#[derive(Clone, Debug)]
enum Op {
    Put {
        key: u16,
        size: usize,
    },
    PutForAWhile {
        key: u16,
        expires_in: u64,
    },
    Delete {
        key: u16,
    },
    /// The watermark follows, as far as the scan lets it.
    Settle,
    Pump {
        times: usize,
    },
}

fn ops() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let size = prop_oneof![4 => 0usize..900, 1 => 3000usize..6000];
    prop_oneof![
        6 => (key.clone(), size).prop_map(|(key, size)| Op::Put { key, size }),
        1 => (key.clone(), 1u64..60).prop_map(|(key, expires_in)| Op::PutForAWhile { key, expires_in }),
        3 => key.prop_map(|key| Op::Delete { key }),
        1 => Just(Op::Settle),
        3 => (1usize..6).prop_map(|times| Op::Pump { times }),
    ]
}

/// Names of unlike length: some fill a page of a scan alone.
fn name(key: u16) -> Vec<u8> {
    let mut name = key.to_be_bytes().to_vec();
    name.resize(2 + usize::from(key % 7) * 60, b'.');
    name
}

/// When a key is there: versions by time, with their expiry; none for a tombstone.
#[derive(Default)]
struct Truth(BTreeMap<u16, BTreeMap<u64, Option<u64>>>);

impl Truth {
    fn is_present(&self, key: u16, nanos: u64) -> bool {
        let youngest = self.0.get(&key).and_then(|versions| versions.range(..=nanos).next_back());
        youngest.is_some_and(|(_, expires)| expires.is_some_and(|expires| nanos < expires))
    }

    fn present_at(&self, nanos: u64) -> BTreeSet<Vec<u8>> {
        (0..KEYS).filter(|&key| self.is_present(key, nanos)).map(name).collect()
    }
}

struct World {
    driver: Driver<Mftl>,
    truth: Truth,
    time: u64,
    watermark: u64,
    batch: u64,
    pages: u64,
}

impl World {
    fn new(seed: u64, cache_bytes: u64, space: KeyspaceId) -> Self {
        let media = unruly_media(8, 80, seed);
        let mut driver = open(&media, MftlConfig { cache_bytes, ..config() }).0;
        driver.space = space;
        let mut world =
            Self { driver, truth: Truth::default(), time: 10, watermark: 0, batch: 1, pages: 0 };
        for key in 0..KEYS {
            world.put(key, 300, u64::MAX);
        }
        world
    }

    fn after(before: &[Op], seed: u64, cached: bool, space: KeyspaceId) -> Self {
        let mut world = Self::new(seed, if cached { 2 << 20 } else { 0 }, space);
        before.iter().for_each(|op| world.act(op, u64::MAX));
        world
    }

    fn put(&mut self, key: u16, size: usize, expires: u64) {
        self.time += 1;
        let (bytes, time) = (name(key), self.time);
        let value = vec![key as u8; size];
        for _ in 0..100_000 {
            let place = self.driver.key(self.driver.space, &bytes);
            if self.driver.store.put(place, version(time), &value, Expiry::at(at(expires))).is_ok()
            {
                self.truth.0.entry(key).or_default().insert(time, Some(expires));
                return;
            }
            self.driver.pump();
        }
        panic!("no room: {:?}", self.driver.store.stats());
    }

    /// Does something, while nobody reads below `oldest`.
    fn act(&mut self, op: &Op, oldest: u64) {
        match *op {
            Op::Put { key, size } => self.put(key, size, u64::MAX),
            Op::PutForAWhile { key, expires_in } => self.put(key, 100, self.time + 1 + expires_in),
            Op::Delete { key } => {
                self.time += 1;
                self.driver.delete(&name(key), self.time);
                self.truth.0.entry(key).or_default().insert(self.time, None);
            }
            Op::Settle => {
                self.batch += 1;
                self.driver.store.begin_batch(self.batch);
                self.driver.store.sync_soon();
                self.watermark = self.watermark.max(oldest.min(self.time));
                self.driver.store.advance_watermark(at(self.watermark));
                self.driver.store.advance_replay_floor(at(self.watermark));
            }
            Op::Pump { times } => self.driver.pumps(times),
        }
    }

    /// One page of a scan, with something happening in every turn until it is there.
    fn page(
        &mut self,
        cursor: ScanCursor,
        limit: ScanLimit,
        nanos: u64,
        meanwhile: &mut impl Iterator<Item = Op>,
    ) -> (KeyList, Option<ScanCursor>) {
        self.pages += 1;
        let token = ReadToken(self.pages << 20);
        self.driver.store.scan(SPACE, cursor, limit, at(nanos), token).expect("scan");
        for _ in 0..100_000 {
            let place = self
                .driver
                .events
                .iter()
                .position(|event| matches!(event, StoreEvent::ScanDone { token: found, .. } if *found == token));
            if let Some(place) = place
                && let StoreEvent::ScanDone { keys, next, .. } =
                    self.driver.events.swap_remove(place)
            {
                return (keys, next);
            }
            if let Some(op) = meanwhile.next() {
                self.act(&op, nanos);
            }
            self.driver.pump();
        }
        panic!("no page");
    }
}

impl World {
    /// One page of a range from a key on, likewise.
    fn range_page(
        &mut self,
        from: &[u8],
        limit: ScanLimit,
        nanos: u64,
        meanwhile: &mut impl Iterator<Item = Op>,
    ) -> (RangeList, Option<Vec<u8>>) {
        self.pages += 1;
        let token = ReadToken(self.pages << 20);
        let range = KeyRange { keyspace: ORDERED, from, to: None };
        let as_of = AsOf { at: at(nanos), judged: at(nanos) };
        self.driver
            .store
            .range_as_of(range, Direction::Ascending, limit, as_of, token)
            .expect("begins");
        for _ in 0..100_000 {
            let of_page = |event: &StoreEvent| matches!(event, StoreEvent::RangeDone { token: found, .. } if *found == token);
            if let Some(place) = self.driver.events.iter().position(of_page)
                && let StoreEvent::RangeDone { entries, next, .. } =
                    self.driver.events.swap_remove(place)
            {
                return (entries, next);
            }
            if let Some(op) = meanwhile.next() {
                self.act(&op, nanos);
            }
            self.driver.pump();
        }
        panic!("no page");
    }
}

fn limits() -> impl Strategy<Value = ScanLimit> {
    (prop_oneof![1u32..8, 8u32..200], prop_oneof![1usize..500, 500usize..20_000])
        .prop_map(|(keys, bytes)| ScanLimit { keys, bytes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 500, ..ProptestConfig::default() })]

    /// As `Db::scan` and KEYS do it: every page at one point in time.
    #[test]
    fn a_scan_at_one_point_in_time_finds_exactly_what_was_there(
        before in proptest::collection::vec(ops(), 0..200),
        meanwhile in proptest::collection::vec(ops(), 0..600),
        limit in limits(),
        seed in any::<u64>(),
        cached in any::<bool>(),
    ) {
        let mut world = World::after(&before, seed, cached, SPACE);
        let nanos = world.time;
        let expected = world.truth.present_at(nanos);
        let (mut cursor, mut found, mut meanwhile) = (ScanCursor::START, Vec::new(), meanwhile.into_iter());
        loop {
            let (keys, next) = world.page(cursor, limit, nanos, &mut meanwhile);
            found.extend(keys.iter().map(<[u8]>::to_vec));
            let Some(next) = next else { break };
            cursor = next;
        }
        let once: BTreeSet<_> = found.iter().cloned().collect();
        prop_assert_eq!(once.len(), found.len(), "each key comes once");
        prop_assert_eq!(once, expected);
    }

    /// Page by page, with the versions that were visible then.
    #[test]
    fn a_range_at_one_point_in_time_finds_exactly_what_was_there(
        before in proptest::collection::vec(ops(), 0..200),
        meanwhile in proptest::collection::vec(ops(), 0..600),
        limit in limits(),
        seed in any::<u64>(),
        cached in any::<bool>(),
    ) {
        let mut world = World::after(&before, seed, cached, ORDERED);
        let nanos = world.time;
        let newest = |world: &World, key| {
            let versions = world.truth.0.get(&key).and_then(|all| all.range(..=nanos).next_back());
            version(versions.map_or(0, |(&at, _)| at))
        };
        let present = (0..KEYS).filter(|&key| world.truth.is_present(key, nanos));
        let mut expected: Entries = present.map(|key| (name(key), newest(&world, key))).collect();
        expected.sort();
        let (mut from, mut found, mut meanwhile) = (Vec::new(), Entries::new(), meanwhile.into_iter());
        loop {
            let (entries, next) = world.range_page(&from, limit, nanos, &mut meanwhile);
            prop_assert!(entries.len() <= limit.keys as usize);
            prop_assert!(entries.key_bytes() <= limit.bytes || entries.len() == 1);
            found.extend(entries.iter().map(|entry| (entry.key.to_vec(), entry.version)));
            let Some(next) = next else { break };
            from = next;
        }
        prop_assert_eq!(found, expected);
    }

    /// As SCAN does it: each page at the time at which it is asked for.
    #[test]
    fn a_scan_page_by_page_finds_what_was_there_throughout_and_nothing_that_never_was(
        before in proptest::collection::vec(ops(), 0..100),
        meanwhile in proptest::collection::vec(ops(), 0..600),
        limit in limits(),
        seed in any::<u64>(),
        cached in any::<bool>(),
    ) {
        let mut world = World::after(&before, seed, cached, SPACE);
        let begin = world.time;
        let (mut cursor, mut found, mut meanwhile) = (ScanCursor::START, BTreeSet::new(), meanwhile.into_iter());
        let end = loop {
            let nanos = world.time;
            let (keys, next) = world.page(cursor, limit, nanos, &mut meanwhile);
            found.extend(keys.iter().map(<[u8]>::to_vec));
            let Some(next) = next else { break nanos };
            cursor = next;
        };
        let always = (0..KEYS).filter(|&key| (begin..=end).all(|nanos| world.truth.is_present(key, nanos)));
        let ever = (0..KEYS).filter(|&key| (begin..=end).any(|nanos| world.truth.is_present(key, nanos)));
        let (always, ever): (BTreeSet<_>, BTreeSet<_>) = (always.map(name).collect(), ever.map(name).collect());
        prop_assert!(always.is_subset(&found), "missing: {:?}", always.difference(&found).count());
        prop_assert!(found.is_subset(&ever), "never there: {:?}", found.difference(&ever).count());
    }
}

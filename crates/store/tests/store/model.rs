//! Random histories against a model: an ordered map of all versions, with crashes and recoveries in
//! between.

use std::collections::BTreeMap;

use proptest::prelude::*;
use timestone_flash::FlashDevice;
use timestone_store::prelude::*;
use timestone_store::{
    Dram, Mftl, MftlConfig, RecoveryReport, ScanLimit, SftlFactory, StoreError, VftlConfig,
    VftlFactory,
};
use timestone_types::{ClientId, Expiry, KeyspaceId, Version};

use crate::conformance::dram;
use crate::driver::{Driver, Entries, Got, ORDERED, SPACE, at, config, media, open, version};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put {
        key: u8,
        nanos: u64,
        size: usize,
        expires: Option<u64>,
    },
    Delete {
        key: u8,
        nanos: u64,
    },
    Fence {
        nanos: u64,
    },
    Watermark {
        by: u64,
    },
    Read {
        key: u8,
        ahead: u64,
    },
    CountAndScan,
    /// Between two of the keys, in steps of so many; in order where there is an order.
    Range {
        keys: (u8, u8),
        ahead: u64,
        step: u32,
    },
    Pump {
        times: usize,
    },
    Checkpoint,
    SyncAndCrash {
        seed: u64,
    },
    ShutDownAndRestart,
    /// What an earlier run promised comes late.
    LatePut {
        key: u8,
        before: u64,
    },
}

/// What makes and ends stores for a history.
pub(crate) trait Life {
    type Store: Store;
    /// A key has its youngest version only.
    const SINGLE: bool = false;
    /// Puts may have to wait, and there may be no room.
    const CRAMPED: bool = false;

    /// After [`Op::SyncAndCrash`] (with its seed) and [`Op::ShutDownAndRestart`]. What is lost is
    /// lost for the model, too.
    fn restart(
        &mut self,
        driver: Driver<Self::Store>,
        model: &mut Model,
        crash: Option<u64>,
    ) -> Driver<Self::Store>;
}

pub(crate) fn ops() -> impl Strategy<Value = Op> {
    let key = 0u8..24;
    let nanos = 1u64..400;
    let size = prop_oneof![6 => 0usize..300, 2 => 1000usize..4000, 1 => 4000usize..30_000];
    let expires = prop_oneof![4 => Just(None), 1 => (1u64..600).prop_map(Some)];
    prop_oneof![
        12 => (key.clone(), nanos.clone(), size, expires).prop_map(|(key, nanos, size, expires)| Op::Put { key, nanos, size, expires }),
        4 => (key.clone(), nanos.clone()).prop_map(|(key, nanos)| Op::Delete { key, nanos }),
        1 => nanos.prop_map(|nanos| Op::Fence { nanos }),
        2 => (1u64..40).prop_map(|by| Op::Watermark { by }),
        8 => (key, 0u64..400).prop_map(|(key, ahead)| Op::Read { key, ahead }),
        1 => Just(Op::CountAndScan),
        3 => ((0u8..24, 0u8..26), 0u64..400, 1u32..30).prop_map(|(keys, ahead, step)| Op::Range { keys, ahead, step }),
        4 => (1usize..40).prop_map(|times| Op::Pump { times }),
        1 => Just(Op::Checkpoint),
        1 => any::<u64>().prop_map(|seed| Op::SyncAndCrash { seed }),
        1 => Just(Op::ShutDownAndRestart),
        1 => (0u8..24, 0u64..50).prop_map(|(key, before)| Op::LatePut { key, before }),
    ]
}

/// A value and when it expires; none for a tombstone.
type Written = Option<(Vec<u8>, u64)>;

#[derive(Default)]
pub(crate) struct Model {
    versions: BTreeMap<(u8, u64), Written>,
    fences: Vec<u64>,
    pub(crate) watermark: u64,
    written: BTreeMap<(u8, u64), ()>,
    /// Everything at or below it is lost, and nothing is read below it.
    lost: u64,
    /// A key has its youngest version only.
    single: bool,
    /// The keyspace keeps its keys in order.
    ordered: bool,
}

impl Op {
    /// The same, later.
    fn after(self, lost: u64) -> Self {
        match self {
            Self::Put { key, nanos, size, expires } => {
                Self::Put { key, nanos: lost + nanos, size, expires }
            }
            Self::Delete { key, nanos } => Self::Delete { key, nanos: lost + nanos },
            Self::Fence { nanos } => Self::Fence { nanos: lost + nanos },
            other => other,
        }
    }
}

impl Model {
    /// Nothing is read below it.
    fn floor(&self) -> u64 {
        self.watermark.max(self.lost)
    }

    fn get(&self, key: u8, nanos: u64) -> Got {
        let fence = self.fences.iter().copied().filter(|&fence| fence <= nanos).max().unwrap_or(0);
        let found = self.versions.range((key, 0)..=(key, nanos)).next_back();
        match found {
            Some((&(_, written), record)) if written > fence => match record {
                Some((value, expires)) if *expires > nanos => {
                    Got::Value(version(written), value.clone())
                }
                _ => Got::Absent(version(written)),
            },
            _ if fence > 0 => Got::Absent(version(fence)),
            _ if self.lost > 0 => Got::Absent(Version::new(at(self.lost), ClientId::new(u32::MAX))),
            _ => Got::Absent(Version::ZERO),
        }
    }

    /// What a read is answered; `None` where it is refused.
    fn answer(&self, key: u8, nanos: u64) -> Option<Got> {
        let written = self.versions.range((key, 0)..=(key, u64::MAX)).next_back();
        let youngest = written.map(|(&(_, nanos), _)| nanos);
        let youngest = youngest.into_iter().chain(self.fences.iter().copied()).max();
        let refused = self.single && youngest.is_some_and(|youngest| youngest > nanos);
        (!refused).then(|| self.get(key, nanos))
    }

    /// The earliest time from `nanos` on at which everything can be walked.
    fn walk_time(&self, nanos: u64) -> u64 {
        if !self.single {
            return nanos;
        }
        let written = self.versions.keys().map(|&(_, nanos)| nanos);
        written.chain(self.fences.iter().copied()).fold(nanos, u64::max)
    }

    fn present(&self, nanos: u64) -> Vec<Vec<u8>> {
        self.entries(nanos).into_iter().map(|(key, _)| key).collect()
    }

    fn entries(&self, nanos: u64) -> Entries {
        let version = |key| match self.get(key, nanos) {
            Got::Value(version, _) => Some(version),
            Got::Absent(_) => None,
        };
        (0..24).filter_map(|key| Some((self.name(key), version(key)?))).collect()
    }

    /// The bytes of a key: in an ordered keyspace some are too long for the head of a large value.
    fn name(&self, key: u8) -> Vec<u8> {
        let length = if self.ordered && key % 6 == 5 { 1500 } else { 1 };
        let mut name = vec![key];
        name.resize(length, b'.');
        name
    }

    /// Whether a version of a key, or a fence, lies above a time: the first key, or none for a
    /// fence, and the youngest version.
    fn above(&self, (from, to): (&[u8], &[u8]), nanos: u64) -> Option<(Option<Vec<u8>>, Version)> {
        let fence = self.fences.iter().copied().max().filter(|&fence| fence > nanos);
        if from < to && fence.is_some() {
            return fence.map(|fence| (None, version(fence)));
        }
        let newest = |key: u8| self.versions.range((key, 0)..=(key, u64::MAX)).next_back();
        let mut keys = (0..24).filter_map(|key| Some((self.name(key), newest(key)?.0.1)));
        let first = keys.find(|(name, newest)| (from..to).contains(&&name[..]) && *newest > nanos);
        first.map(|(name, newest)| (Some(name), version(newest)))
    }
}

fn value_of(key: u8, nanos: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 31 + nanos + u64::from(key)) as u8).collect()
}

/// Versions above the watermark only: what lies at or below it is the past, which no writer
/// changes.
fn writable(model: &Model, key: u8, nanos: u64) -> bool {
    nanos > model.watermark
        && !model.fences.contains(&nanos)
        && !model.written.contains_key(&(key, nanos))
}

/// What a store answers; `None` where it refuses.
fn answer<S: Store>(driver: &mut Driver<S>, key: &[u8], nanos: u64) -> Option<Got> {
    match driver.try_get_in(driver.space, key, nanos) {
        Ok(got) => Some(got),
        Err(StoreError::TooOld { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A range finds what the model says, and so does a check of it.
fn check_range<S: Store>(
    driver: &mut Driver<S>,
    model: &Model,
    (from, to): (u8, u8),
    nanos: u64,
    step: u32,
) {
    let range: (&[u8], &[u8]) = (&[from], &[to]);
    let inside = |(key, _): &(Vec<u8>, Version)| (range.0..range.1).contains(&&key[..]);
    let mut expected = model.entries(nanos);
    expected.retain(inside);
    let bytes = if step.is_multiple_of(3) { 1600 } else { usize::MAX };
    let limit = ScanLimit { keys: step, bytes };
    let found = driver.range_within((range.0, Some(range.1)), nanos, limit);
    assert_eq!(found, expected, "{from}..{to} at {nanos}");
    let above = driver.above((range.0, Some(range.1)), nanos, step);
    assert_eq!(above, model.above(range, nanos), "{from}..{to} above {nanos}");
}

pub(crate) fn run<L: Life>(history: Vec<Op>, mut driver: Driver<L::Store>, mut life: L) {
    let space = driver.space;
    let ordered = space.is_ordered();
    let mut model = Model { single: L::SINGLE, ordered, ..Model::default() };
    for op in history {
        // Time goes on behind what was lost.
        let op = op.after(model.lost);
        match op {
            Op::Put { key, nanos, size, expires } if writable(&model, key, nanos) => {
                let value = value_of(key, nanos, size);
                let expires = expires.map_or(u64::MAX, |after| nanos + after);
                let name = model.name(key);
                let place = driver.key(space, &name);
                let expiry = Expiry::at(at(expires));
                let mut put = driver.store.put(place, version(nanos), &value, expiry);
                for _ in 0..if L::CRAMPED { 300 } else { 0 } {
                    if put.is_ok() {
                        break;
                    }
                    driver.pump();
                    let place = driver.key(space, &name);
                    put = driver.store.put(place, version(nanos), &value, expiry);
                }
                if put.is_err() && L::CRAMPED {
                    continue;
                }
                put.expect("there is room");
                model.versions.insert((key, nanos), Some((value, expires)));
                model.written.insert((key, nanos), ());
            }
            Op::Delete { key, nanos } if writable(&model, key, nanos) => {
                driver.delete(&model.name(key), nanos);
                model.versions.insert((key, nanos), None);
                model.written.insert((key, nanos), ());
            }
            Op::Fence { nanos }
                if nanos > model.watermark && !model.written.keys().any(|&(_, at)| at == nanos) =>
            {
                driver.store.fence(space, version(nanos)).expect("fence");
                model.fences.push(nanos);
            }
            Op::LatePut { key, before } if model.lost > before => {
                driver.put(&model.name(key), model.lost - before, b"late");
            }
            Op::Put { .. } | Op::Delete { .. } | Op::Fence { .. } | Op::LatePut { .. } => {}
            Op::Watermark { by } => {
                model.watermark = model.floor() + by;
                driver.store.advance_watermark(at(model.watermark));
            }
            Op::Read { key, ahead } => {
                let nanos = model.floor() + ahead;
                assert_eq!(
                    answer(&mut driver, &model.name(key), nanos),
                    model.answer(key, nanos),
                    "key {key} at {nanos}"
                );
            }
            Op::CountAndScan => {
                let nanos = model.walk_time(model.floor() + 50);
                let expected = model.present(nanos);
                assert_eq!(driver.count(space, nanos), expected.len() as u64);
                assert_eq!(driver.keys(space, nanos, 5), expected);
            }
            Op::Range { keys, ahead, step } if ordered => {
                check_range(&mut driver, &model, keys, model.floor() + ahead, step);
            }
            Op::Range { .. } => {}
            Op::Pump { times } => driver.pumps(times),
            Op::Checkpoint => driver.checkpoint(),
            Op::SyncAndCrash { seed } => {
                driver.sync();
                driver = life.restart(driver, &mut model, Some(seed));
                driver.space = space;
            }
            Op::ShutDownAndRestart => {
                driver.shut_down();
                driver = life.restart(driver, &mut model, None);
                driver.space = space;
            }
        }
    }
    for nanos in (model.floor()..model.floor() + 450).step_by(90).filter(|_| ordered) {
        check_range(&mut driver, &model, (0, 25), nanos, 10);
    }
    for key in 0..24 {
        for nanos in model.floor()..model.floor() + 450 {
            assert_eq!(
                answer(&mut driver, &model.name(key), nanos),
                model.answer(key, nanos),
                "key {key} at {nanos} in the end"
            );
        }
    }
}

/// A store on flash keeps everything that was synced.
struct OnFlash {
    media: timestone_flash::MemoryMedia,
    config: MftlConfig,
}

impl Life for OnFlash {
    type Store = Mftl;

    fn restart(&mut self, driver: Driver, model: &mut Model, crash: Option<u64>) -> Driver {
        if let Some(seed) = crash {
            self.media.power_cut(seed);
        }
        drop(driver);
        let (mut driver, report) = open(&self.media, self.config);
        assert_eq!(report.corrupt_records, 0, "{report:?}");
        driver.store.advance_watermark(at(model.watermark));
        driver
    }
}

/// Other stores on flash do so, too.
pub(crate) struct Made<F, C = VftlConfig, const CRAMPED: bool = false> {
    pub(crate) media: timestone_flash::MemoryMedia,
    pub(crate) config: C,
    pub(crate) make: fn(Box<dyn FlashDevice>, C) -> F,
}

impl<F: Factory<Report = RecoveryReport>, C: Copy, const CRAMPED: bool> Made<F, C, CRAMPED> {
    pub(crate) fn open(&self) -> Driver<F::Store> {
        let opened = (self.make)(Box::new(self.media.open()), self.config).open();
        let Ok((store, report)) = opened else { panic!("it opens") };
        assert_eq!(report.corrupt_records, 0, "{report:?}");
        Driver::new(store)
    }
}

impl<F: Factory<Report = RecoveryReport>, C: Copy, const CRAMPED: bool> Life
    for Made<F, C, CRAMPED>
{
    type Store = F::Store;
    const CRAMPED: bool = CRAMPED;
    const SINGLE: bool = !F::CAPABILITIES.keeps_versions;

    fn restart(
        &mut self,
        driver: Driver<F::Store>,
        model: &mut Model,
        crash: Option<u64>,
    ) -> Driver<F::Store> {
        if let Some(seed) = crash {
            self.media.power_cut(seed);
        }
        drop(driver);
        let mut driver = self.open();
        driver.store.advance_watermark(at(model.watermark));
        driver
    }
}

/// A store in memory loses everything.
struct InMemory;

impl Life for InMemory {
    type Store = Dram;

    fn restart(&mut self, _: Driver<Dram>, model: &mut Model, _: Option<u64>) -> Driver<Dram> {
        let youngest = model.written.keys().map(|&(_, nanos)| nanos);
        let bound = youngest.chain(model.fences.iter().copied()).max().unwrap_or(0);
        let lost = bound.max(model.floor()) + 1;
        *model = Model { lost, ordered: model.ordered, ..Model::default() };
        let mut driver = Driver::new(Dram::in_recovery(dram()));
        driver.put(b"replayed", 10, b"from a log");
        driver.store.recovered(at(model.lost));
        driver
    }
}

fn on_flash(history: Vec<Op>, config: MftlConfig, space: KeyspaceId) {
    let media = media(8, 400);
    let (mut driver, _) = open(&media, config);
    driver.space = space;
    run(history, driver, OnFlash { media, config });
}

fn layered<F: Factory<Report = RecoveryReport>>(
    history: Vec<Op>,
    cache_bytes: u64,
    make: fn(Box<dyn FlashDevice>, VftlConfig) -> F,
) {
    let store = MftlConfig { cache_bytes, ..config() };
    let config = VftlConfig { store, ..VftlConfig::default() };
    let life: Made<_, _, false> = Made { media: media(8, 500), config, make };
    run(history, life.open(), life);
}

fn in_memory(history: Vec<Op>, space: KeyspaceId) {
    let mut driver = Driver::new(Dram::new(dram()));
    driver.space = space;
    run(history, driver, InMemory);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_store_behaves_like_an_ordered_map(history in proptest::collection::vec(ops(), 1..150)) {
        on_flash(history, config(), SPACE);
    }

    #[test]
    fn so_does_one_with_a_cache(history in proptest::collection::vec(ops(), 1..150)) {
        on_flash(history, MftlConfig { cache_bytes: 2 << 20, ..config() }, SPACE);
    }

    #[test]
    fn so_does_the_split_design(history in proptest::collection::vec(ops(), 1..150), cached: bool) {
        let cache_bytes = if cached { 2 << 20 } else { 0 };
        layered(history, cache_bytes, |device, config| VftlFactory { device, config });
    }

    #[test]
    fn so_does_a_single_version_store_but_for_the_past(
        history in proptest::collection::vec(ops(), 1..150),
        cached: bool,
    ) {
        let cache_bytes = if cached { 2 << 20 } else { 0 };
        layered(history, cache_bytes, |device, config| SftlFactory { device, config });
    }

    #[test]
    fn so_does_one_in_memory(history in proptest::collection::vec(ops(), 1..150)) {
        in_memory(history, SPACE);
    }

    #[test]
    fn one_in_order_behaves_like_an_ordered_map(
        history in proptest::collection::vec(ops(), 1..150),
        cached: bool,
    ) {
        let cache_bytes = if cached { 2 << 20 } else { 0 };
        on_flash(history, MftlConfig { cache_bytes, ..config() }, ORDERED);
    }

    #[test]
    fn so_does_one_in_order_in_memory(history in proptest::collection::vec(ops(), 1..150)) {
        in_memory(history, ORDERED);
    }
}

/// Whether some history shows a planted bug of the store in memory.
#[cfg(feature = "planted-bugs")]
fn is_found(bug: Option<timestone_types::planted::Bug>, try_out: fn(Vec<Op>)) -> bool {
    use proptest::test_runner::{Config, TestRunner};

    timestone_types::planted::set(bug);
    let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let histories = proptest::collection::vec(ops(), 1..150);
    let result = runner.run(&histories, |history| {
        try_out(history);
        Ok(())
    });
    timestone_types::planted::set(None);
    result.is_err()
}

#[cfg(feature = "planted-bugs")]
#[test]
fn bugs_of_the_store_in_memory_are_found() {
    use timestone_types::planted::Bug;

    let try_out = |history| in_memory(history, SPACE);
    assert!(!is_found(None, try_out));
    for bug in [Bug::OneVersionTooFew, Bug::ServesBehindFences, Bug::ForgottenMemoryLoss] {
        assert!(is_found(Some(bug), try_out), "{bug:?} is found");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn bugs_of_the_order_of_keys_are_found() {
    use timestone_types::planted::Bug;

    let try_out = |history| on_flash(history, config(), ORDERED);
    assert!(!is_found(None, try_out));
    for bug in [Bug::ScanMissesKeys, Bug::RangeSkips] {
        assert!(is_found(Some(bug), try_out), "{bug:?} is found");
    }
}

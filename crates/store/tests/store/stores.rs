//! The stores of a shard together: each kind of keyspace behaves as its store does, and what is
//! durable is so in both stores on flash.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use timestone_flash::MemoryMedia;
use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Capabilities, Dram, Figure, KeyspacePlace, Lookup, Mftl, MftlConfig, OpenFrugal, Opening,
    Places, PromisedPuts, PutSize, PutsInMemory, RangeCheck, ReadToken, ScanCursor, ScanLimit,
    Skimpy, SkimpyConfig, StoreError, Stores,
};
use timestone_types::{KeyRange, KeyspaceId, Timestamp, Version};

use crate::conformance::{dram, run_in};
use crate::driver::{Driver, Got, SPACE, at, config, media, version};
use crate::frugal::frugal;
use crate::model::{Life, Model, Op, ops, run};

/// A keyspace whose index is on flash.
const FRUGAL: KeyspaceId = KeyspaceId::numbered(7, false).frugal();

/// A keyspace that is kept under another id.
const MOVED: KeyspaceId = KeyspaceId::numbered(20, false);

/// The devices of a shard; the second one is made with the first write for it.
#[derive(Clone)]
struct Devices {
    full: MemoryMedia,
    frugal: Arc<Mutex<Option<MemoryMedia>>>,
    cache_bytes: u64,
    /// How often the second store is under way when it is asked for.
    asked_again: u32,
}

fn open_frugal(media: &MemoryMedia, config: SkimpyConfig) -> Result<Skimpy, String> {
    let opened = Skimpy::open(Box::new(media.open()), config);
    opened.map(|(store, _)| store).map_err(|error| error.to_string())
}

fn opening(opened: Result<Skimpy, String>) -> Opening {
    opened.map_or_else(Opening::Failed, |store| Opening::Open(Box::new(store)))
}

impl Devices {
    fn new(cache_bytes: u64) -> Self {
        Self { full: media(8, 400), frugal: Arc::default(), cache_bytes, asked_again: 0 }
    }

    /// With both, from the beginning.
    fn both(cache_bytes: u64) -> Self {
        Self { frugal: Arc::new(Mutex::new(Some(media(8, 400)))), ..Self::new(cache_bytes) }
    }

    fn has_frugal(&self) -> bool {
        self.frugal.lock().expect("nobody panicked while holding it").is_some()
    }

    fn open(&self) -> Stores {
        let cache_bytes = self.cache_bytes / if self.has_frugal() { 2 } else { 1 };
        let config = MftlConfig { cache_bytes, ..config() };
        let (full, report) = Mftl::open(Box::new(self.full.open()), config).expect("opens");
        assert_eq!(report.corrupt_records, 0, "{report:?}");
        let stores = Stores::new(full, Dram::in_recovery(dram()));
        if let Some(media) = &*self.frugal.lock().expect("nobody panicked while holding it") {
            return stores.with_frugal(open_frugal(media, frugal(config)).expect("opens"));
        }
        let place = Arc::clone(&self.frugal);
        let mut asked_again = self.asked_again;
        let open: OpenFrugal = Box::new(move |_| {
            if asked_again > 0 {
                asked_again -= 1;
                return Opening::UnderWay;
            }
            let mut place = place.lock().expect("nobody panicked while holding it");
            opening(open_frugal(place.get_or_insert_with(|| media(8, 400)), frugal(config)))
        });
        stores.with_frugal_later(open, self.cache_bytes)
    }

    fn power_cut(&self, seed: u64) {
        self.full.power_cut(seed);
        if let Some(media) = &*self.frugal.lock().expect("nobody panicked while holding it") {
            media.power_cut(seed.rotate_left(7));
        }
    }
}

/// Tried in keyspaces of either store on flash.
struct OnFlash(Devices);

impl Factory for OnFlash {
    type Store = Stores;
    type Report = ();

    const CAPABILITIES: Capabilities = Capabilities {
        survives_restart: true,
        answers_at_once: false,
        keeps_versions: true,
        reads_ranges: true,
    };

    fn open(self) -> Result<(Stores, ()), StoreError> {
        Ok((self.0.open(), ()))
    }
}

#[test]
fn every_kind_of_keyspace_behaves_as_its_store_does() {
    for cache_bytes in [0, 8 << 20] {
        run_in(FRUGAL, || OnFlash(Devices::new(cache_bytes)));
        run_in(FRUGAL, || OnFlash(Devices::both(cache_bytes)));
        run_in(SPACE, || OnFlash(Devices::both(cache_bytes)));
    }
    run_in(SPACE, || OnFlash(Devices::new(0)));
}

/// The same for keyspaces that are kept under other ids, in the store with its index on flash or in
/// the other one.
struct Elsewhere {
    devices: Devices,
    is_frugal: bool,
}

impl Factory for Elsewhere {
    type Store = Stores;
    type Report = ();

    const CAPABILITIES: Capabilities = OnFlash::CAPABILITIES;

    fn open(self) -> Result<(Stores, ()), StoreError> {
        // The second one is the keyspace beside it that is tried, too.
        let moved = [MOVED, KeyspaceId::new(MOVED.get() ^ 3)].into_iter().zip(3..);
        let places = moved.map(|(keyspace, number)| KeyspacePlace {
            keyspace,
            kept_as: KeyspaceId::place(number, self.is_frugal),
        });
        Ok((self.devices.open().with_places(Places::new(places)), ()))
    }
}

#[test]
fn a_keyspace_that_is_kept_elsewhere_behaves_as_the_store_there_does() {
    for is_frugal in [false, true] {
        run_in(MOVED, || Elsewhere { devices: Devices::both(0), is_frugal });
    }
}

#[test]
fn a_scan_goes_on_only_where_the_keyspace_is_kept_as_it_was() {
    let moved = |number| {
        let kept_as = KeyspaceId::place(number, true);
        Devices::both(0)
            .open()
            .with_places(Places::new([KeyspacePlace { keyspace: SPACE, kept_as }]))
    };
    let mut stores = [Devices::both(0).open(), moved(1), moved(2)].map(|stores| {
        let mut driver = Driver::new(stores);
        for key in 0..20u64 {
            driver.put(&key.to_be_bytes(), 10, b"value");
        }
        driver
    });
    let limit = ScanLimit { keys: 5, bytes: 1 << 20 };
    for from in 0..stores.len() {
        let (_, next) = stores[from].page(SPACE, 20, ScanCursor::START, limit);
        let cursor = next.expect("there are more");
        for (to, driver) in stores.iter_mut().enumerate() {
            let as_of = AsOf { at: at(20), judged: at(20) };
            let goes_on = driver.store.scan_as_of(SPACE, cursor, limit, as_of, ReadToken(77));
            assert_eq!(goes_on.is_ok(), from == to, "{from} {to} {goes_on:?}");
            driver.pumps(5);
        }
    }
}

impl Life for Devices {
    type Store = Stores;

    fn restart(
        &mut self,
        driver: Driver<Stores>,
        model: &mut Model,
        crash: Option<u64>,
    ) -> Driver<Stores> {
        if let Some(seed) = crash {
            self.power_cut(seed);
        }
        drop(driver);
        let mut driver = Driver::new(self.open());
        driver.store.advance_watermark(at(model.watermark));
        driver
    }
}

fn history(history: Vec<Op>, devices: Devices, space: KeyspaceId) {
    let mut driver = Driver::new(devices.open());
    driver.space = space;
    run(history, driver, devices);
}

/// What is put into two keyspaces by turns, as batches of a log have it.
fn batches(rounds: &[(bool, u8, u16)], cut: u64) {
    let devices = Devices { asked_again: (cut % 4) as u32, ..Devices::new(0) };
    let mut driver = Driver::new(devices.open());
    let mut put = Vec::new();
    for (batch, &(is_frugal, pumps, size)) in (1..).zip(rounds) {
        let space = if is_frugal { FRUGAL } else { SPACE };
        driver.store.begin_batch(batch);
        driver.put_in(space, b"k", batch, &vec![batch as u8; size.into()]);
        put.push((space, batch, size));
        driver.pumps(pumps.into());
    }
    let stable = driver.store.stable_batch();
    assert!(stable < put.len() as u64, "the open batch is never stable");
    devices.power_cut(cut);
    drop(driver);
    let mut driver = Driver::new(devices.open());
    for (space, batch, size) in put.into_iter().filter(|&(_, batch, _)| batch <= stable) {
        let expected = Got::Value(version(batch), vec![batch as u8; size.into()]);
        let found = driver.try_get_in(space, b"k", batch).expect("readable");
        assert!(found == expected, "batch {batch} of {stable} stable ones: {found:?}");
    }
}

type Rounds = Vec<(bool, u8, u16)>;

fn rounds() -> impl Strategy<Value = Rounds> {
    proptest::collection::vec((any::<bool>(), 0u8..60, 0u16..9000), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_frugal_keyspace_behaves_like_an_ordered_map(
        ops in proptest::collection::vec(ops(), 1..150),
        cached: bool,
        both: bool,
    ) {
        let cache_bytes = if cached { 4 << 20 } else { 0 };
        let devices = if both { Devices::both(cache_bytes) } else { Devices::new(cache_bytes) };
        history(ops, devices, FRUGAL);
    }

    #[test]
    fn a_full_one_beside_it_does_so_too(ops in proptest::collection::vec(ops(), 1..150)) {
        history(ops, Devices::both(0), SPACE);
    }

    #[test]
    fn what_is_stable_survives_a_power_cut_in_both_stores(rounds in rounds(), cut: u64) {
        batches(&rounds, cut);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_log_that_goes_by_one_store_alone_is_found() {
    use proptest::test_runner::{Config, TestRunner};
    use timestone_types::planted::{self, Bug};

    for bug in [None, Some(Bug::StableInOneStore)] {
        planted::set(bug);
        let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
        let tried = TestRunner::new(config).run(&(rounds(), any::<u64>()), |(rounds, cut)| {
            batches(&rounds, cut);
            Ok(())
        });
        planted::set(None);
        assert_eq!(tried.is_err(), bug.is_some(), "{bug:?}");
    }
}

#[test]
fn a_batch_is_stable_when_both_stores_have_it() {
    let mut driver = Driver::new(Devices::new(0).open());
    driver.store.begin_batch(1);
    driver.put(b"full", 10, b"v");
    driver.store.begin_batch(2);
    driver.sync_batch(2, 1);
    driver.put_in(FRUGAL, b"frugal", 20, b"v");
    driver.store.begin_batch(3);
    assert_eq!(driver.store.stable_batch(), 1, "the second one was opened in batch 2");
    driver.sync_batch(3, 2);
}

impl Driver<Stores> {
    fn sync_batch(&mut self, open: u64, stable: u64) {
        self.store.begin_batch(open);
        self.store.sync_soon();
        self.pumps(50);
        assert_eq!(self.store.stable_batch(), stable);
    }
}

#[test]
fn a_keyspace_that_nobody_has_written_to_is_empty_and_takes_no_device() {
    let devices = Devices::new(0);
    let mut driver = Driver::new(devices.open());
    driver.space = FRUGAL;
    driver.store.advance_watermark(at(50));
    assert_eq!(
        driver.try_get_in(FRUGAL, b"k", 60).expect("readable"),
        Got::Absent(Default::default())
    );
    assert!(driver.latest(b"k").absent);
    assert_eq!(driver.keys(FRUGAL, 60, 10), Vec::<Vec<u8>>::new());
    assert_eq!(driver.count(FRUGAL, 60), 0);
    assert!(matches!(driver.try_get_in(FRUGAL, b"k", 40), Err(StoreError::TooOld { .. })));
    assert!(matches!(
        driver.store.scan(FRUGAL, Default::default(), limit(), at(40), ReadToken(1)),
        Err(StoreError::TooOld { .. })
    ));
    assert!(matches!(
        driver.store.count(FRUGAL, at(40), ReadToken(1)),
        Err(StoreError::TooOld { .. })
    ));
    let range = KeyRange { keyspace: FRUGAL, from: b"", to: Some(b"z") };
    let check: Result<RangeCheck, _> = driver.store.first_above(range, at(60), 1);
    assert!(matches!(check, Err(StoreError::NotOrdered(FRUGAL))));
    assert!(driver.store.kept_keyspaces().is_empty() && driver.store.fences(FRUGAL).is_empty());
    assert_eq!(driver.store.newest(FRUGAL), Timestamp::ZERO);
    assert!(!devices.has_frugal());
    driver.put(b"k", 70, b"v");
    assert!(devices.has_frugal());
    assert!(
        matches!(driver.try_get_in(FRUGAL, b"k", 40), Err(StoreError::TooOld { .. })),
        "the store that came late knows the watermark"
    );
    assert_eq!(driver.store.kept_keyspaces(), [FRUGAL]);
}

fn limit() -> timestone_store::ScanLimit {
    timestone_store::ScanLimit { keys: 10, bytes: 1000 }
}

/// A device that cannot be had: writes are refused, each attempt costs something, and when it can be
/// had all goes on.
#[test]
fn a_device_that_cannot_be_opened_is_tried_again_after_a_while() {
    let (full, _) = Mftl::open(Box::new(media(8, 60).open()), config()).expect("opens");
    let (attempts, works) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let media = media(8, 60);
    let counted = (Arc::clone(&attempts), Arc::clone(&works));
    let open: OpenFrugal = Box::new(move |_| {
        counted.0.fetch_add(1, Relaxed);
        match counted.1.load(Relaxed) {
            0 => Opening::Failed("file shard-0000/frugal: no space left".to_owned()),
            1 => Opening::UnderWay,
            _ => opening(open_frugal(&media, frugal(config()))),
        }
    });
    let stores = Stores::new(full, Dram::new(dram())).with_frugal_later(open, 0);
    let mut driver = Driver::new(stores);
    driver.space = FRUGAL;
    driver.pump();
    for _ in 0..3 {
        let refused = driver.admit(10, 0).expect_err("there is no device");
        assert!(matches!(refused, StoreError::NoDevice(_)) && refused.retryable(), "{refused}");
        assert!(refused.to_string().contains("shard-0000/frugal"), "{refused}");
        assert!(matches!(driver.try_put(b"k", 10, b"v"), Err(StoreError::NoDevice(_))));
    }
    assert_eq!(attempts.load(Relaxed), 1, "an attempt blocks: not one for each write");
    driver.space = SPACE;
    assert!(driver.admit(10, 0).is_ok(), "what is not for it goes on");
    driver.space = FRUGAL;
    works.store(1, Relaxed);
    driver.pumps(1001);
    assert!(matches!(driver.admit(10, 0), Err(StoreError::Busy)), "it is being opened");
    assert_eq!(driver.try_get_in(FRUGAL, b"k", 20).expect("readable"), Got::Absent(Version::ZERO));
    let asked = attempts.load(Relaxed);
    works.store(2, Relaxed);
    driver.pump();
    driver.admit(10, 0).expect("it is there now");
    driver.put(b"k", 10, b"v");
    assert_eq!((driver.value(b"k", 20), attempts.load(Relaxed)), (Some(b"v".to_vec()), asked + 1));
}

#[test]
fn figures_scrubs_and_the_end_are_of_both_stores() {
    let devices = Devices::new(0);
    let mut driver = Driver::new(devices.open());
    driver.put(b"k", 10, &[1; 3000]);
    let blocks = driver.figure(Figure::Blocks);
    driver.sync();
    let one = driver.scrub();
    for n in 0..50u8 {
        driver.put_in(FRUGAL, &[n], 20, &[n; 3000]);
    }
    driver.sync();
    let both = driver.scrub();
    assert!(both.records >= one.records + 50 && both.pages > one.pages, "{one:?} {both:?}");
    assert_eq!(driver.figure(Figure::Blocks), 2 * blocks);
    assert_eq!((driver.figure(Figure::Versions), driver.figure(Figure::FrugalRecords)), (1, 50));
    let keys = driver.store.figures().known(Figure::Keys);
    assert_eq!(keys, None, "those of the second store cannot be counted");
    let (all, own) = (Figure::ProgrammedBytes, Figure::FrugalProgrammedBytes);
    assert!(driver.figure(own) > 50 * 3000 && driver.figure(all) > driver.figure(own) + 3000);
    assert!(driver.figure(Figure::FrugalIndexBytes) > 0);
    driver.checkpoint();
    driver.put_in(FRUGAL, b"last", 30, b"v");
    driver.put(b"last", 30, b"v");
    driver.shut_down();
    driver.shut_down();
    devices.power_cut(3);
    let mut driver = Driver::new(devices.open());
    let again = driver.scrub();
    assert!(again.records >= both.records, "{again:?}");
    assert_eq!((again.corrupt_pages, again.corrupt_records), (0, 0), "checkpoints are short");
    for space in [SPACE, FRUGAL] {
        let found = driver.try_get_in(space, b"last", 40).expect("readable");
        assert_eq!(found, Got::Value(version(30), b"v".to_vec()));
    }
}

/// A keyspace's writes count for its own device: one that is full refuses its own only.
#[test]
fn room_is_admitted_by_the_device_that_has_to_have_it() {
    let (full, _) = Mftl::open(Box::new(media(8, 24).open()), config()).expect("opens");
    let small = open_frugal(&media(8, 24), frugal(config())).expect("opens");
    let mut driver = Driver::new(Stores::new(full, Dram::new(dram())).with_frugal(small));
    driver.space = FRUGAL;
    let mut n = 0u64;
    while driver.admit(3500, 0).is_ok() {
        n += 1;
        driver.put(&n.to_be_bytes(), n, &[7; 3500]);
        driver.pumps(3);
        assert!(n < 10_000, "it is full some time");
    }
    driver.space = SPACE;
    driver.admit(3500, 0).expect("this one is empty");
    driver.put(b"k", 10, b"v");
    assert!(matches!(
        driver.store.get_in_memory(driver.key(SPACE, b"k"), at(20), at(20)),
        Ok(Lookup::Present { .. })
    ));
}
/// A keyspace in memory whose keys are in order.
const IN_MEMORY: KeyspaceId = KeyspaceId::numbered(9, true).ordered();

fn in_memory() -> Driver<Stores> {
    let mut driver = Driver::new(Devices::new(0).open());
    driver.store.recovered(Timestamp::ZERO);
    driver.space = IN_MEMORY;
    driver
}

#[test]
fn promises_for_flash_take_no_room_in_memory() {
    let mut driver = in_memory();
    driver.put(b"key", 10, &[7; 1000]);
    let limit = driver.figure(Figure::DramLimitBytes);
    let put = PutSize { keyspace: IN_MEMORY, bytes: 1000 };
    let mut admit = |promised| driver.store.admit(&mut core::iter::once(put), promised).is_ok();
    let mut promised =
        PromisedPuts { count: 1000, bytes: 2 * limit, in_memory: PutsInMemory::default() };
    assert!(admit(promised), "these are for flash");
    (0..1000).for_each(|_| promised.in_memory.add(IN_MEMORY, 10, limit as usize / 2000));
    assert!(admit(promised), "their values are there once");
    (0..1000).for_each(|_| promised.in_memory.add(IN_MEMORY, 10, limit as usize / 2000));
    assert!(!admit(promised), "there is no room for all of them");
}

#[test]
fn a_full_memory_is_told() {
    let mut driver = in_memory();
    assert!(!driver.store.is_full());
    for n in 0..1000u64 {
        if let Err(error) = driver.try_put(&n.to_be_bytes(), 10, &vec![7; 1 << 20]) {
            assert!(matches!(error, StoreError::MemoryFull { .. }), "{error}");
            assert!(n > 10 && driver.store.is_full());
            return;
        }
    }
    panic!("there is room for 1 GB");
}

//! The store on zones: a workload against a model on the strict fake of zoned devices, with power
//! cuts at any operation, zones that go bad, and limits as tight as the store allows.
//!
//! The workload is a shard's whose log keeps what is not stable: after a cut everything stable is
//! there, and when the rest was put again the store equals the model. `TIMESTONE_TEST_SWEEP=full`
//! tries many seeds.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_flash::{
    BlockId, FakeConfig, FakeZones, FlashDevice, Overwrite, PAGE_BYTES, Unsettled, ZonedConfig,
    ZonedDevice,
};
use timestone_io::{ZoneCondition, ZoneLimits};
use timestone_store::prelude::*;
use timestone_store::{Mftl, MftlConfig, MftlFactory, StoreError, StoreEvent, limits};

use crate::collection::Dice;
use crate::conformance;
use crate::driver::{Driver, Got, SPACE, at, config, version};
use crate::scores::sweep_is_full;

const KEYS: u64 = 40;
const BLOCKS: u32 = 100;
fn fake(
    folder: &tempfile::TempDir,
    pages_per_block: u32,
    blocks: u32,
    conventional: u32,
) -> FakeZones {
    fake_with(limits::OPEN_BLOCKS, folder, pages_per_block, blocks, conventional)
}

/// With so many active zones for data.
fn fake_with(
    open_blocks: u32,
    folder: &tempfile::TempDir,
    pages_per_block: u32,
    blocks: u32,
    conventional: u32,
) -> FakeZones {
    let in_order = conventional < 2;
    let table_zones = if in_order { 2 } else { 0 };
    let active = open_blocks + table_zones;
    let zones = FakeZones::new(FakeConfig {
        path: folder.path().join("zones"),
        conventional,
        sequential: blocks + table_zones,
        zone_bytes: 2 * u64::from(pages_per_block.next_power_of_two()) * PAGE_BYTES as u64,
        capacity_bytes: u64::from(pages_per_block) * PAGE_BYTES as u64,
        unit_bytes: 512,
        limits: ZoneLimits { max_open: 3, max_active: active },
        ops_per_poll: usize::MAX,
        shuffle: None,
    });
    zones.expect("a file can be made")
}

fn zoned_config() -> ZonedConfig {
    ZonedConfig { open_blocks: limits::OPEN_BLOCKS, ..ZonedConfig::default() }
}

fn device(zones: &FakeZones) -> Box<dyn FlashDevice> {
    let opened = ZonedDevice::open_or_format(Box::new(zones.open()), &zoned_config());
    Box::new(opened.expect("it opens").0)
}

#[test]
fn a_store_on_zones_behaves_as_every_store() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut all: Vec<FakeZones> = Vec::new();
    let made = std::cell::RefCell::new(&mut all);
    conformance::run(|| {
        let zones = fake(&folder, 16, 512, 0);
        made.borrow_mut().push(zones.clone());
        MftlFactory { device: device(&zones), config: config() }
    });
    assert!(!all.is_empty());
    assert!(all.iter().all(|zones| zones.violations() == 0), "the rules of zones are kept");
}

fn value(key: u64, time: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 13 + key * 7 + time * 3) as u8).collect()
}

/// What is put under a key at a time: bytes of its value, none for a tombstone.
#[derive(Clone, Copy)]
struct Logged {
    batch: u64,
    key: u64,
    time: u64,
    size: Option<usize>,
}

struct World {
    zones: FakeZones,
    driver: Driver<Mftl>,
    model: BTreeMap<(u64, u64), Option<usize>>,
    /// What is not stable.
    log: Vec<Logged>,
    batch: u64,
    watermark: u64,
    cuts: u32,
    _folder: tempfile::TempDir,
}

fn open(zones: &FakeZones) -> Driver<Mftl> {
    let config = MftlConfig { packing_delay: Duration::ZERO, ..config() };
    Driver::new(Mftl::open(device(zones), config).expect("opens").0)
}

impl World {
    fn new(conventional: u32) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let zones = fake(&folder, 8, BLOCKS, conventional);
        let driver = open(&zones);
        let model = BTreeMap::new();
        let (log, batch, watermark, cuts) = (Vec::new(), 0, 0, 0);
        Self { zones, driver, model, log, batch, watermark, cuts, _folder: folder }
    }

    fn pump(&mut self) {
        self.driver.pump();
        let failed =
            self.driver.events.iter().find(|event| matches!(event, StoreEvent::DeviceFailed(_)));
        assert!(failed.is_none() || self.zones.is_off(), "a zone is not the device: {failed:?}");
        let stable = self.driver.store.stable_batch();
        self.log.retain(|logged| logged.batch > stable);
    }

    /// Puts once, as long as there is power.
    fn apply(&mut self, logged: Logged) {
        let name = logged.key.to_be_bytes();
        for _ in 0..20_000 {
            let done = match logged.size {
                Some(size) => {
                    let value = value(logged.key, logged.time, size);
                    self.driver.try_put(&name, logged.time, &value)
                }
                None => self.driver.try_delete(&name, logged.time),
            };
            match done {
                Ok(()) => return,
                Err(StoreError::Busy) if self.zones.is_off() => return,
                Err(StoreError::Busy) => self.pump(),
                Err(error) => panic!("refused: {error}"),
            }
        }
        panic!("busy for ever: {:?}", self.driver.store.stats());
    }

    fn put(&mut self, key: u64, size: Option<usize>) {
        self.batch += 1;
        self.driver.store.begin_batch(self.batch);
        let logged = Logged { batch: self.batch, key, time: self.batch, size };
        self.log.push(logged);
        self.model.insert((key, logged.time), size);
        self.apply(logged);
    }

    fn check(&mut self, key: u64, time: u64) {
        let expected = self.model.range((key, 0)..=(key, time)).next_back();
        let expected = expected.map(|(&(_, at), &size)| (at, size));
        let got = self.driver.try_get_in(SPACE, &key.to_be_bytes(), time);
        match (expected, got) {
            (Some((at, Some(size))), Ok(Got::Value(found, bytes))) => {
                assert_eq!(found, version(at), "key {key} as of {time}");
                assert!(bytes == value(key, at, size), "key {key} as of {time}: another value");
            }
            (None | Some((_, None)), Ok(Got::Absent(_))) => {}
            (_, Err(_)) if self.zones.is_off() => {}
            (expected, got) => panic!("key {key} as of {time}: {got:?} instead of {expected:?}"),
        }
    }

    fn check_all(&mut self) {
        for key in 0..KEYS {
            self.check(key, self.batch + 1);
            self.check(key, self.watermark.max(1));
        }
    }

    /// The power comes again; the log has what was not stable.
    fn restart(&mut self) {
        self.cuts += u32::from(self.zones.is_off());
        let (stable, now) = (self.driver.store.stable_batch(), self.driver.now);
        self.driver = open(&self.zones);
        self.driver.now = now;
        self.driver.store.advance_watermark(at(self.watermark));
        self.driver.store.begin_batch(self.batch);
        self.log.retain(|logged| logged.batch > stable);
        self.log.iter_mut().for_each(|logged| logged.batch = self.batch);
        for logged in self.log.clone() {
            self.apply(logged);
        }
        if !self.zones.is_off() {
            self.check_all();
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        match dice.below(100) {
            0..60 => {
                let key = if dice.below(3) == 0 { dice.below(KEYS) } else { dice.below(8) };
                let size = match dice.below(14) {
                    0 => None,
                    1 => Some(4_000 + dice.below(40_000) as usize),
                    _ => Some(30 + dice.below(900) as usize),
                };
                self.put(key, size);
            }
            60..75 => {
                let span = self.batch + 1 - self.watermark;
                let time = self.watermark + dice.below(span + 1);
                self.check(dice.below(KEYS), time.max(1));
            }
            75..78 => self.driver.store.sync_soon(),
            78 if dice.below(3) == 0 => self.driver.store.checkpoint_now(),
            79 => {
                let others = match dice.below(4) {
                    0 => Unsettled::Kept,
                    1 => Unsettled::Lost,
                    _ => Unsettled::Drawn(dice.below(1 << 40)),
                };
                let keep = dice.below(5) as usize * 3 * 512;
                self.zones.cut_at(1 + dice.below(60) as u32, keep, others);
            }
            80..85 => {
                self.watermark = self.watermark.max((self.batch + 1).saturating_sub(30));
                self.driver.store.advance_watermark(at(self.watermark));
                let oldest = self.log.iter().map(|logged| logged.time - 1).min();
                let floor = self.watermark.min(oldest.unwrap_or(u64::MAX));
                self.driver.store.advance_replay_floor(at(floor));
            }
            _ => self.pump(),
        }
        if self.zones.is_off() {
            self.restart();
        }
    }
}

/// A life of many steps; how often the power went.
fn history(seed: u64) -> u32 {
    let mut world = World::new(if seed.is_multiple_of(2) { 0 } else { 2 });
    let mut dice = Dice(seed * 7919 + 1);
    for _ in 0..1500 {
        world.step(&mut dice);
    }
    while world.zones.is_off() {
        world.restart();
    }
    world.check_all();
    assert_eq!(world.zones.violations(), 0, "seed {seed}: the rules of zones are kept");
    world.cuts
}

#[test]
fn power_cuts_at_any_operation_lose_nothing_that_was_stable() {
    let seeds = if sweep_is_full() { 300 } else { 8 };
    let cuts: u32 = (0..seeds).map(history).sum();
    assert!(cuts > 5 * seeds as u32, "the power went {cuts} times");
}

#[test]
fn zones_that_go_bad_are_set_aside_also_after_a_restart() {
    let mut world = World::new(0);
    let mut dice = Dice(5);
    let lives = |world: &mut World, dice: &mut Dice, steps: u32| {
        for _ in 0..steps {
            let key = dice.below(KEYS);
            world.put(key, Some(30 + dice.below(900) as usize));
            world.pump();
            if dice.below(20) == 0 {
                world.watermark = world.watermark.max((world.batch + 1).saturating_sub(30));
                world.driver.store.advance_watermark(at(world.watermark));
                world.driver.store.sync_soon();
            }
        }
    };
    lives(&mut world, &mut dice, 600);
    let first_data = 2;
    for (block, condition) in [(3, ZoneCondition::ReadOnly), (9, ZoneCondition::ReadOnly)] {
        world.zones.set_condition(first_data + block, condition);
    }
    lives(&mut world, &mut dice, 4000);
    world.check_all();
    let device = world.driver.store.device();
    let bad = |device: &dyn FlashDevice| {
        (0..BLOCKS).filter(|&block| device.is_bad(BlockId(block))).collect::<Vec<_>>()
    };
    assert_eq!(bad(device), [3, 9], "collection and puts have met them");
    world.driver.sync();
    world.log.clear();
    world.restart();
    assert_eq!(bad(world.driver.store.device()), [3, 9]);
    let errors = world.driver.store.device().stats().errors;
    lives(&mut world, &mut dice, 2000);
    assert_eq!(world.driver.store.device().stats().errors, errors, "nobody tries them again");
    world.check_all();
    assert_eq!(world.zones.violations(), 0);
}

#[test]
fn a_device_that_allows_too_few_active_zones_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let zones = fake(&folder, 8, BLOCKS, 0);
    let config = ZonedConfig { open_blocks: limits::OPEN_BLOCKS + 1, ..zoned_config() };
    let refused = ZonedDevice::format(Box::new(zones.open()), &config, Overwrite::Refuse);
    let refused = refused.expect_err("eight active zones are one too few").to_string();
    assert!(refused.contains("8 active zones") && refused.contains("9 are needed"), "{refused}");
}

/// How many operations fail where all streams are used, with so many active zones for them.
fn errors_with(open_blocks: u32) -> u64 {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let zones = fake_with(open_blocks, &folder, 16, 128, 0);
    let config = ZonedConfig { open_blocks, ..zoned_config() };
    let device = ZonedDevice::open_or_format(Box::new(zones.open()), &config).expect("it opens").0;
    let config = MftlConfig { packing_delay: Duration::ZERO, ..crate::driver::config() };
    let mut driver = Driver::new(Mftl::open(Box::new(device), config).expect("opens").0);
    let mut dice = Dice(7);
    for n in 0..20_000u64 {
        let (time, cold) = (10 + n, dice.below(3) == 0);
        let key = if cold { 1000 + dice.below(2500) } else { dice.below(300) };
        let size = if n % 500 == 0 { 9000 } else { 400 };
        driver.put(&key.to_be_bytes(), time, &value(key, time, size));
        if n % 3 == 0 {
            driver.pump();
        }
        // Old versions stay for a while, so that what is superseded is moved.
        driver.store.advance_watermark(at(time.saturating_sub(2000)));
        driver.store.advance_replay_floor(at(time.saturating_sub(2000)));
        if n % 5000 == 4999 {
            driver.store.checkpoint_now();
        }
    }
    driver.store.checkpoint_now();
    driver.pumps(400);
    let stats = driver.store.stats();
    assert!(stats.collection.collected_blocks > 50, "{stats:?}");
    assert_eq!(zones.violations(), 0);
    driver.store.device().stats().errors
}

/// Nothing fails for want of an active zone where there are as many as streams; where there are fewer, blocks would
/// be set aside for nothing.
#[test]
fn each_stream_has_an_active_zone() {
    assert_eq!(errors_with(limits::OPEN_BLOCKS), 0);
    assert!(errors_with(limits::OPEN_BLOCKS - 1) > 0, "all streams are used");
}

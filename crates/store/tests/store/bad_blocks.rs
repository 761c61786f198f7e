//! Blocks that go bad under the store: programs and erases that fail, on the emulated device, against
//! a model, with crashes in between.
//!
//! The workload is a shard's whose log keeps what is not stable: after a crash everything stable is
//! there, and when the rest was put again the store equals the model. `TIMESTONE_TEST_SWEEP=full`
//! tries many seeds.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_flash::{
    BlockId, EmulatedConfig, EmulatedMedium, Fault, FaultRates, FlashClock, FlashDevice, OpKind,
};
use timestone_store::prelude::*;
use timestone_store::{Mftl, MftlConfig, Skimpy, SkimpyConfig, StoreError, StoreEvent};
use timestone_types::GeneratedRun;

use crate::collection::Dice;
use crate::driver::{Driver, Got, SPACE, at, config, version};
use crate::scores::sweep_is_full;

const KEYS: u64 = 60;
const BLOCKS: u32 = 160;

fn value(key: u64, time: u64, size: usize) -> Vec<u8> {
    let mut value = Vec::new();
    GeneratedRun { seed: time << 8 | key, length: size as u32 }.append(&mut value);
    value
}

/// What is put under a key at a time: bytes of its value, none for a tombstone.
#[derive(Clone, Copy)]
struct Logged {
    batch: u64,
    key: u64,
    time: u64,
    size: Option<usize>,
}

struct World<S: OnEmulated = Mftl> {
    medium: EmulatedMedium,
    driver: Driver<S>,
    model: BTreeMap<(u64, u64), Option<usize>>,
    /// What is not stable.
    log: Vec<Logged>,
    batch: u64,
    watermark: u64,
    rates: FaultRates,
    lives: u64,
}

fn medium(pages_per_block: u32, blocks: u32) -> EmulatedMedium {
    let config = EmulatedConfig {
        pages_per_block,
        initial_blocks: blocks,
        max_blocks: blocks,
        channels: 8,
        compact: true,
        ..EmulatedConfig::default()
    };
    EmulatedMedium::new(config, FlashClock::stopped())
}

/// A store on the emulated device.
trait OnEmulated: Store {
    /// Turns that it may ask for at one time: what it does then waits for nothing.
    const TURNS_AT_ONCE: u32;

    fn open(medium: &EmulatedMedium) -> Driver<Self>
    where
        Self: Sized;
    fn device(&self) -> &dyn FlashDevice;
}

impl OnEmulated for Mftl {
    // A checkpoint writes 2 of 1024 segments in each.
    const TURNS_AT_ONCE: u32 = 512 + 50;

    fn open(medium: &EmulatedMedium) -> Driver<Self> {
        let config = MftlConfig { packing_delay: Duration::ZERO, ..config() };
        let device = medium.open().expect("opens");
        Driver::new(Self::open(Box::new(device), config).expect("opens").0)
    }

    fn device(&self) -> &dyn FlashDevice {
        self.device()
    }
}

impl OnEmulated for Skimpy {
    const TURNS_AT_ONCE: u32 = 50;

    fn open(medium: &EmulatedMedium) -> Driver<Self> {
        let config = SkimpyConfig {
            packing_delay: Duration::ZERO,
            keys: KEYS,
            cache_bytes: 0,
            ..crate::frugal::frugal(config())
        };
        let device = medium.open().expect("opens");
        Driver::new(Self::open(Box::new(device), config).expect("opens").0)
    }

    fn device(&self) -> &dyn FlashDevice {
        self.device()
    }
}

impl<S: OnEmulated> World<S> {
    fn new(rates: FaultRates) -> Self {
        let medium = medium(8, BLOCKS);
        let driver = <S as OnEmulated>::open(&medium);
        let mut world = Self {
            medium,
            driver,
            model: BTreeMap::new(),
            log: Vec::new(),
            batch: 0,
            watermark: 0,
            rates,
            lives: 0,
        };
        world.medium.set_faults(world.rates);
        world.driver.now = world.medium.clock().now();
        world
    }

    fn time(&self) -> u64 {
        self.batch + 1
    }

    fn pump(&mut self) {
        self.driver.pump();
        self.medium.clock().advance_to(self.driver.now);
        let failed =
            self.driver.events.iter().find(|event| matches!(event, StoreEvent::DeviceFailed(_)));
        assert!(failed.is_none(), "a block is not the device: {failed:?}");
        let stable = self.driver.store.stable_batch();
        self.log.retain(|logged| logged.batch > stable);
    }

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
                Err(StoreError::Busy) => self.pump(),
                Err(error) => panic!("refused: {error}"),
            }
        }
        panic!("busy for ever: {:?}", self.driver.store.figures());
    }

    fn put(&mut self, key: u64, size: Option<usize>) {
        self.batch += 1;
        self.driver.store.begin_batch(self.batch);
        let logged = Logged { batch: self.batch, key, time: self.batch, size };
        self.log.push(logged);
        self.apply(logged);
        self.model.insert((key, logged.time), size);
    }

    /// The answer of the store, whose reads may fail a few times.
    fn get(&mut self, key: u64, time: u64) -> Got {
        let mut last = None;
        for _ in 0..20 {
            match self.driver.try_get_in(SPACE, &key.to_be_bytes(), time) {
                Ok(got) => return got,
                // A part that could not be read counts as damaged until it is asked for again.
                Err(error @ (StoreError::Flash(_) | StoreError::Corrupt { .. })) => {
                    last = Some(error);
                }
                Err(error) => panic!("key {key} as of {time}: {error}"),
            }
        }
        panic!("key {key} cannot be read: {last:?}")
    }

    fn check(&mut self, key: u64, time: u64) {
        let expected = self.model.range((key, 0)..=(key, time)).next_back();
        let expected = expected.map(|(&(_, at), &size)| (at, size));
        let got = self.get(key, time);
        match (expected, got) {
            (Some((at, Some(size))), Got::Value(found, bytes)) => {
                assert_eq!(found, version(at), "key {key} as of {time}");
                assert!(bytes == value(key, at, size), "key {key} as of {time}: another value");
            }
            (None | Some((_, None)), Got::Absent(_)) => {}
            (expected, got) => {
                let got = match got {
                    Got::Value(version, bytes) => format!("{version:?}, {} bytes", bytes.len()),
                    Got::Absent(version) => format!("absent since {version:?}"),
                };
                panic!("key {key} as of {time}: {got} instead of {expected:?}")
            }
        }
    }

    fn check_all(&mut self) {
        for key in 0..KEYS {
            self.check(key, self.time());
            self.check(key, self.watermark.max(1));
        }
    }

    /// The process dies and comes again; its log has what was not stable.
    fn crash(&mut self) {
        self.lives += 1;
        let stable = self.driver.store.stable_batch();
        // A read that fails during recovery is damage.
        let failed_reads = 0;
        let seed = self.rates.seed ^ self.lives << 32;
        self.medium.set_faults(FaultRates { failed_reads, seed, ..self.rates });
        let now = self.driver.now;
        self.driver = <S as OnEmulated>::open(&self.medium);
        self.medium.set_faults(FaultRates { seed: !seed, ..self.rates });
        self.driver.now = now.max(self.medium.clock().now());
        self.driver.store.advance_watermark(at(self.watermark));
        self.driver.store.begin_batch(self.batch);
        self.log.retain(|logged| logged.batch > stable);
        // What is put again belongs to the new life's first batch.
        self.log.iter_mut().for_each(|logged| logged.batch = self.batch);
        for logged in self.log.clone() {
            self.apply(logged);
        }
        self.check_all();
    }

    fn step(&mut self, dice: &mut Dice) {
        match dice.below(100) {
            0..60 => {
                let key = if dice.below(3) == 0 { dice.below(KEYS) } else { dice.below(8) };
                let size = match dice.below(14) {
                    0 => None,
                    1 => Some(4_000 + dice.below(50_000) as usize),
                    _ => Some(30 + dice.below(900) as usize),
                };
                self.put(key, size);
            }
            60..75 => {
                let span = self.time() - self.watermark;
                let time = self.watermark + dice.below(span + 1);
                self.check(dice.below(KEYS), time.max(1));
            }
            75..78 => self.driver.store.sync_soon(),
            78 if dice.below(4) == 0 => self.driver.store.checkpoint_now(),
            79 if dice.below(6) == 0 => self.crash(),
            80..85 => {
                self.watermark = self.watermark.max(self.time().saturating_sub(30));
                self.driver.store.advance_watermark(at(self.watermark));
                self.driver.store.advance_replay_floor(at(self.watermark.saturating_sub(20)));
            }
            _ => self.pump(),
        }
    }

    /// Sleeps until the store asks for a turn or the device has completed something, and gives it a turn.
    /// False when neither will be.
    fn sleep(&mut self) -> bool {
        let deadline = self.driver.store.next_deadline().map(|time| time.as_nanos());
        let Some(next) = deadline.into_iter().chain(self.medium.next_due()).min() else {
            return false;
        };
        self.driver.now = next.max(self.driver.now);
        self.medium.clock().advance_to(self.driver.now);
        self.driver.store.pump(at(self.driver.now), &mut self.driver.events);
        true
    }

    /// The log wants all of it to be stable. The store's thread sleeps from now on until the store asks
    /// for a turn, or the device has completed something, until nothing is left to be done. `meanwhile`
    /// is called before each turn until it says that it has done what it wanted.
    fn make_stable(&mut self, mut meanwhile: impl FnMut(&mut Self) -> bool) {
        self.driver.store.begin_batch(self.batch + 1);
        self.driver.store.sync_soon();
        self.driver.store.pump(at(self.driver.now), &mut self.driver.events);
        let end = self.driver.now + 10_000_000_000;
        let (mut is_done, mut turns) = (false, 0);
        while self.driver.now < end {
            is_done = is_done || meanwhile(self);
            let before = self.driver.now;
            if !self.sleep() {
                break;
            }
            turns = if self.driver.now > before { 0 } else { turns + 1 };
            let figures = self.driver.store.figures();
            assert!(turns < S::TURNS_AT_ONCE, "it turns without end: {figures:?}");
        }
        assert_eq!(self.driver.store.stable_batch(), self.batch, "what was put is durable");
        self.log.clear();
    }

    fn bad_blocks(&self) -> u32 {
        OnEmulated::device(&self.driver.store).stats().bad_blocks
    }
}

/// Rates at which many blocks go bad.
fn rates(seed: u64) -> FaultRates {
    FaultRates {
        seed,
        failed_reads: 3_000,
        failed_programs: 25_000,
        failed_erases: 40_000,
        ..FaultRates::default()
    }
}

/// A history in which blocks go bad; how many did.
fn history<S: OnEmulated>(seed: u64) -> u32 {
    let mut world = World::<S>::new(rates(seed));
    let mut dice = Dice(seed);
    let mut bad = 0;
    for _ in 0..1500 {
        world.step(&mut dice);
        // A crash soon after is what can lose something.
        if world.bad_blocks() > bad && dice.below(2) == 0 {
            world.driver.store.sync_soon();
            (0..dice.below(12)).for_each(|_| world.pump());
            world.crash();
        }
        bad = world.bad_blocks();
        // A device that is nearly used up is another test.
        if world.bad_blocks() > BLOCKS / 4 {
            world.rates = FaultRates { seed, ..FaultRates::default() };
            world.medium.set_faults(world.rates);
        }
    }
    world.check_all();
    world.medium.set_faults(FaultRates::default());
    world.crash();
    world.bad_blocks()
}

#[test]
fn blocks_that_go_bad_cost_their_room_and_nothing_else() {
    let seeds = if sweep_is_full() { 600 } else { 12 };
    // In 227 a part of a large value cannot be read at first, whose head could not be programmed.
    let bad: Vec<u32> = (0..seeds).chain([227]).map(history::<Mftl>).collect();
    assert!(bad.iter().sum::<u32>() > 100, "{bad:?} blocks went bad");
}

#[test]
fn so_do_those_under_an_index_on_flash() {
    let seeds = if sweep_is_full() { 600 } else { 8 };
    let bad: Vec<u32> = (0..seeds).map(history::<Skimpy>).collect();
    assert!(bad.iter().sum::<u32>() > 40, "{bad:?} blocks went bad");
}

#[test]
fn a_bad_block_stays_alone_also_after_a_restart() {
    for kind in [OpKind::Program, OpKind::Erase] {
        let mut world = World::<Mftl>::new(FaultRates::default());
        let mut dice = Dice(5);
        (0..200).for_each(|_| world.step(&mut dice));
        world.medium.inject(Fault::Fail { kind, nth: 2 });
        while world.medium.pending_faults() > 0 {
            world.step(&mut dice);
        }
        (0..100).for_each(|_| world.pump());
        let stats = world.driver.store.stats().space;
        assert_eq!((world.bad_blocks(), stats.quarantined_blocks), (1, 1));
        let errors = world.driver.store.device().stats().errors;
        (0..600).for_each(|_| world.step(&mut dice));
        if world.lives == 0 {
            assert_eq!(world.driver.store.device().stats().errors, errors, "nobody tries it again");
        }
        world.crash();
        (0..2000).for_each(|_| world.step(&mut dice));
        assert_eq!(
            world.driver.store.device().stats().errors,
            0,
            "{kind:?}: nobody tries it again"
        );
        let bad = (0..BLOCKS).filter(|&block| world.driver.store.device().is_bad(BlockId(block)));
        assert_eq!(bad.count(), 1);
        world.check_all();
    }
}

#[test]
fn a_program_that_fails_while_a_checkpoint_is_written_delays_the_checkpoint() {
    let mut world = World::<Mftl>::new(FaultRates::default());
    for time in 0..400 {
        world.put(time % KEYS, Some(700));
        world.pump();
    }
    world.driver.store.sync_soon();
    (0..50).for_each(|_| world.pump());
    world.medium.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    world.driver.store.checkpoint_now();
    for _ in 0..5000 {
        world.pump();
        if world.driver.events.iter().any(|event| matches!(event, StoreEvent::CheckpointDone)) {
            break;
        }
    }
    assert!(world.driver.events.iter().any(|event| matches!(event, StoreEvent::CheckpointDone)));
    assert_eq!(world.bad_blocks(), 1);
    let device = world.medium.open().expect("opens");
    let (_, report) = Mftl::open(Box::new(device), config()).expect("opens");
    assert_eq!((report.checkpoint.is_some(), report.keys), (true, KEYS));
}

/// Programs of two blocks of a checkpoint fail that were under way at one time, in either order.
fn checkpoint_of_which_two_blocks_fail(first: u32) -> usize {
    const BLOCKS: u32 = 900;
    let medium = medium(4, BLOCKS);
    let mut driver = <Mftl as OnEmulated>::open(&medium);
    let pump = |driver: &mut Driver<Mftl>| {
        driver.pump();
        medium.clock().advance_to(driver.now);
    };
    for n in 0..40u64 {
        driver.put(&n.to_be_bytes(), 10, &[b'v'; 400]);
        pump(&mut driver);
    }
    driver.store.sync_soon();
    (0..50).for_each(|_| pump(&mut driver));
    // A program is for a group of pages: each has a block of its own.
    for nth in [first, first + 1] {
        medium.inject(Fault::Fail { kind: OpKind::Program, nth });
    }
    driver.store.checkpoint_now();
    let is_done = |event: &StoreEvent| matches!(event, StoreEvent::CheckpointDone);
    for _ in 0..20_000 {
        pump(&mut driver);
        if driver.events.iter().any(is_done) {
            break;
        }
    }
    assert!(driver.events.iter().any(is_done), "a checkpoint is written in the end");
    assert!((0..40u64).all(|n| driver.value(&n.to_be_bytes(), 20).is_some()));
    (0..BLOCKS).filter(|&block| driver.store.device().is_bad(BlockId(block))).count()
}

#[test]
fn programs_of_two_blocks_of_a_checkpoint_may_fail_at_one_time() {
    for first in 1..4 {
        assert_eq!(checkpoint_of_which_two_blocks_fail(first), 2, "from the {first}th program on");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_block_that_is_erased_under_programs_is_found() {
    use timestone_types::planted::{Bug, set, with};
    let found = (1..4).any(|first| {
        let fails = || with(Bug::ErasesUnderWay, || checkpoint_of_which_two_blocks_fail(first));
        std::panic::catch_unwind(fails).is_err()
    });
    set(None);
    assert!(found, "the planted bug is found");
}

/// A program fails in a store that rests otherwise, and what it held moves elsewhere. Values are of so
/// many bytes; of the programs and reads that follow, these fail.
fn rests_while_a_block_is_replaced<S: OnEmulated>(
    checkpoint: bool,
    bytes: usize,
    faults: &[(OpKind, u32)],
) {
    let mut world = World::<S>::new(FaultRates::default());
    for time in 0..100 {
        world.put(time % KEYS, Some(700));
        world.pump();
    }
    world.driver.store.sync_soon();
    (0..50).for_each(|_| world.pump());
    for &(kind, nth) in faults {
        world.medium.inject(Fault::Fail { kind, nth });
    }
    world.put(1, Some(bytes));
    world.make_stable(|world| {
        if checkpoint && world.bad_blocks() > 0 {
            world.driver.store.checkpoint_now();
        }
        checkpoint && world.bad_blocks() > 0
    });
    assert_eq!((world.bad_blocks(), world.medium.pending_faults()), (1, 0), "{bytes} bytes");
    let is_done = |event: &StoreEvent| matches!(event, StoreEvent::CheckpointDone);
    assert_eq!(world.driver.events.iter().any(is_done), checkpoint);
    world.check_all();
}

#[test]
fn a_store_rests_while_what_could_not_be_programmed_becomes_durable_elsewhere() {
    use OpKind::{Program, Read};

    for checkpoint in [false, true] {
        rests_while_a_block_is_replaced::<Mftl>(checkpoint, 700, &[(Program, 1)]);
        rests_while_a_block_is_replaced::<Skimpy>(checkpoint, 700, &[(Program, 1)]);
        // Parts of a large value, and then its head.
        for nth in [1, 2] {
            rests_while_a_block_is_replaced::<Mftl>(checkpoint, 30_000, &[(Program, nth)]);
            rests_while_a_block_is_replaced::<Skimpy>(checkpoint, 30_000, &[(Program, nth)]);
        }
        // A part cannot be read at once.
        let faults = [(Program, 2), (Read, 1)];
        rests_while_a_block_is_replaced::<Mftl>(checkpoint, 12_000, &faults);
    }
}

/// A history in which blocks go bad, and the store rests now and then; how many went bad.
fn resting_history<S: OnEmulated>(seed: u64) -> u32 {
    let mut world = World::<S>::new(rates(seed));
    let mut dice = Dice(seed);
    for _ in 0..60 {
        (0..dice.below(30)).for_each(|_| world.step(&mut dice));
        world.make_stable(|_| true);
        if world.bad_blocks() > BLOCKS / 4 {
            world.medium.set_faults(FaultRates::default());
        }
    }
    world.check_all();
    world.bad_blocks()
}

#[test]
fn a_store_that_rests_has_nothing_left_to_make_stable() {
    let seeds = if sweep_is_full() { 300 } else { 8 };
    let bad: Vec<u32> = (0..seeds).map(resting_history::<Mftl>).collect();
    assert!(bad.iter().sum::<u32>() > 20, "{bad:?} blocks went bad");
    let bad: Vec<u32> = (0..seeds).map(resting_history::<Skimpy>).collect();
    assert!(bad.iter().sum::<u32>() > 20, "{bad:?} blocks went bad");
}

/// Puts on a small device, of a store whose thread sleeps until the store asks for a turn: whoever is refused
/// for a moment is taken in the end.
/// How many were.
fn refused_for_a_moment<S: OnEmulated>(seed: u64, sizes: &[usize]) -> u32 {
    let mut world = World::<S>::new(FaultRates::default());
    let mut dice = Dice(seed);
    let mut refused = 0;
    for time in 1..3000 {
        world.batch += 1;
        world.driver.store.begin_batch(world.batch);
        let key = dice.below(KEYS);
        let size = sizes[dice.below(sizes.len() as u64) as usize];
        let (mut turns, bytes) = (0, value(key, time, size));
        while let Err(error) = world.driver.try_put(&key.to_be_bytes(), time, &bytes) {
            assert!(matches!(error, StoreError::Busy), "seed {seed}, put {time}: {error}");
            if turns == 0 {
                // The turn in which it was refused.
                world.driver.store.pump(at(world.driver.now), &mut world.driver.events);
                refused += 1;
            } else {
                let goes_on = world.sleep() && turns < 5000;
                let figures = world.driver.store.figures();
                assert!(goes_on, "seed {seed}, put {time}, {sizes:?}: {figures:?}");
            }
            turns += 1;
        }
        world.model.insert((key, time), Some(size));
        world.driver.store.pump(at(world.driver.now), &mut world.driver.events);
        world.driver.store.advance_watermark(at(time - 1));
        world.driver.store.advance_replay_floor(at(time - 1));
        world.watermark = time - 1;
    }
    for key in 0..KEYS {
        world.check(key, world.batch);
    }
    refused
}

#[test]
fn whoever_waits_for_room_is_taken_with_the_turns_that_the_store_asks_for() {
    let mut refused = [0, 0];
    for seed in 0..2 {
        for sizes in [&[700, 900][..], &[20_000, 40_000], &[300, 5000, 60_000]] {
            refused[0] += refused_for_a_moment::<Mftl>(seed, sizes);
            refused[1] += refused_for_a_moment::<Skimpy>(seed, sizes);
        }
    }
    assert!(refused.iter().all(|&times| times > 1000), "{refused:?} were refused");
}

#[test]
fn a_worn_out_device_is_full_in_the_end_and_still_reads() {
    let medium = {
        let config = EmulatedConfig {
            pages_per_block: 8,
            initial_blocks: 60,
            max_blocks: 60,
            endurance: Some(4),
            ..EmulatedConfig::default()
        };
        EmulatedMedium::new(config, FlashClock::stopped())
    };
    let mut world = World::<Mftl>::new(FaultRates::default());
    world.driver = <Mftl as OnEmulated>::open(&medium);
    world.medium = medium;
    let mut ended = None;
    'use_up: for _ in 0..20_000 {
        world.batch += 1;
        let (key, time) = (world.batch % 20, world.batch);
        for _ in 0..2_000 {
            match world.driver.try_put(&key.to_be_bytes(), time, &value(key, time, 800)) {
                Ok(()) => break,
                Err(StoreError::Busy) => {
                    world.driver.pump();
                    world.medium.clock().advance_to(world.driver.now);
                }
                Err(error) => {
                    ended = Some(error);
                    break 'use_up;
                }
            }
            if world.driver.events.iter().any(|event| matches!(event, StoreEvent::DeviceFailed(_)))
            {
                break 'use_up;
            }
        }
        world.model.insert((key, time), Some(800));
        world.watermark = time - time.min(3);
        world.driver.store.advance_watermark(at(world.watermark));
    }
    assert!(world.bad_blocks() > 30, "{} of 60 blocks are worn out", world.bad_blocks());
    assert!(matches!(ended, None | Some(StoreError::DeviceFull { .. })), "{ended:?}");
    for key in 0..20 {
        world.check(key, world.batch);
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    /// The seed that finds a bug.
    fn found<S: OnEmulated>(bug: Bug) -> Option<u64> {
        let finds = |&seed: &u64| {
            let found = std::panic::catch_unwind(|| with(bug, || history::<S>(seed))).is_err();
            set(None);
            found
        };
        (0..40).find(finds)
    }

    #[test]
    fn puts_that_could_not_be_programmed_and_count_as_stable_are_noticed() {
        assert!(found::<Mftl>(Bug::ForgetsDisplaced).is_some());
        assert!(found::<Skimpy>(Bug::ForgetsDisplaced).is_some());
    }

    #[test]
    fn parts_of_large_values_that_are_lost_are_noticed() {
        assert!(found::<Mftl>(Bug::KeepsLostParts).is_some());
        assert!(found::<Skimpy>(Bug::KeepsLostParts).is_some());
    }
}

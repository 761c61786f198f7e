//! Collection: space comes back, nothing that somebody may read is lost, nothing dead returns.

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_store::prelude::*;
use timestone_store::{Figure, Mftl, MftlConfig, StoreError};
use timestone_types::Version;

use crate::driver::{Driver, Got, SPACE, Survives, at, config, media, open, unruly_media, version};

/// A small generator, so that histories repeat.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A write as the log holds it: batch, key, time, value (none: a delete).
type Logged = (u64, u64, u64, Option<usize>);

pub(crate) struct Churn<S: Survives = Mftl> {
    media: MemoryMedia,
    /// There is a translation layer below the store.
    layered: bool,
    config: MftlConfig,
    driver: Driver<S>,
    dice: Dice,
    log: Vec<Logged>,
    /// Per key all versions above the watermark and the youngest at or below it.
    model: BTreeMap<u64, BTreeMap<u64, Option<usize>>>,
    time: u64,
    batch: u64,
    keys: u64,
    sizes: Vec<usize>,
    pub(crate) collected: u64,
    dropped: u64,
    /// How far the watermark trails.
    trails: u64,
    /// Deletes at or below the watermark that the store knows nothing of any more, and how many
    /// there ever were: each was counted as a dropped tombstone once, and again when a crash had
    /// brought it back.
    gone: BTreeSet<(u64, u64)>,
    went: u64,
    pumps: u64,
}

fn value(key: u64, time: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 13 + key * 7 + time) as u8).collect()
}

impl Churn<Mftl> {
    fn new(
        media: MemoryMedia,
        config: MftlConfig,
        seed: u64,
        keys: u64,
        sizes: Vec<usize>,
    ) -> Self {
        Self::over(false, media, config, seed, keys, sizes)
    }

    pub(crate) fn over(
        layered: bool,
        media: MemoryMedia,
        config: MftlConfig,
        seed: u64,
        keys: u64,
        sizes: Vec<usize>,
    ) -> Self {
        Self::of(layered, media, config, seed, keys, sizes)
    }
}

impl<S: Survives> Churn<S> {
    /// One of any store.
    pub(crate) fn of(
        layered: bool,
        media: MemoryMedia,
        config: MftlConfig,
        seed: u64,
        keys: u64,
        sizes: Vec<usize>,
    ) -> Self {
        let (driver, _) = S::open_on(&media, config, layered).expect("opens");
        let (log, model) = (Vec::new(), BTreeMap::new());
        Self {
            media,
            layered,
            config,
            driver,
            dice: Dice(seed),
            log,
            model,
            time: 1,
            batch: 1,
            keys,
            sizes,
            collected: 0,
            dropped: 0,
            trails: 40,
            gone: BTreeSet::new(),
            went: 0,
            pumps: 0,
        }
    }

    fn write(&mut self) {
        self.time += 1 + self.dice.below(3);
        if self.dice.below(4) == 0 {
            self.batch += 1;
            self.driver.store.begin_batch(self.batch);
        }
        // A window of keys moves on slowly: those behind it stay as they are, a part of them
        // deleted.
        let key = (self.time / 200 + self.dice.below(self.keys / 16 + 8)) % self.keys;
        let size = self.sizes[self.dice.below(self.sizes.len() as u64) as usize];
        let size = (self.dice.below(4) > 0).then_some(size);
        // Half of the writes come a little late.
        let time = if self.dice.below(2) == 0 {
            self.time
        } else {
            self.time.saturating_sub(self.dice.below(20)).max(1)
        };
        if time <= self.driver.store.watermark().as_nanos()
            || self.model.get(&key).is_some_and(|all| all.contains_key(&time))
        {
            return;
        }
        self.apply(key, time, size);
        self.log.push((self.batch, key, time, size));
        self.model.entry(key).or_default().insert(time, size);
    }

    fn apply(&mut self, key: u64, time: u64, size: Option<usize>) {
        let name = key.to_be_bytes();
        for _ in 0..100_000 {
            let done = match size {
                Some(size) => self.driver.try_put(&name, time, &value(key, time, size)),
                None => self.driver.try_delete(&name, time),
            };
            match done {
                Ok(()) => return,
                Err(StoreError::Busy) => self.pump(),
                Err(error) => panic!("refused: {error}"),
            }
        }
        panic!("busy for ever: {:?}", self.driver.store.figures());
    }

    fn pump(&mut self) {
        self.driver.pump();
        self.pumps += 1;
        // Where they are not counted, nothing is missed by looking now and then: each look reads all
        // of them, which takes long where the index is on flash.
        if S::COUNTS_DELETIONS || self.pumps.is_multiple_of(32) {
            self.note_gone();
        }
    }

    /// Looks which deletes are gone since the last time. To be called before anything is written
    /// after a pump.
    fn note_gone(&mut self) {
        let before = self.went;
        for delete in self.absent_without_trace() {
            self.went += u64::from(self.gone.insert(delete));
        }
        let dropped = self.dropped + self.driver.figure(Figure::DroppedTombstones);
        assert!(
            self.went == dropped || !S::COUNTS_DELETIONS,
            "{} are gone, {before} before: {:?}",
            self.went,
            self.driver.store.figures()
        );
    }

    /// Deletes that are the latest at the watermark, and that the store answers as if they had
    /// never been.
    fn absent_without_trace(&mut self) -> Vec<(u64, u64)> {
        let watermark = self.driver.store.watermark().as_nanos();
        let latest = |(&key, all): (&u64, &BTreeMap<u64, Option<usize>>)| match all
            .range(..=watermark)
            .next_back()
        {
            Some((&time, None)) => Some((key, time)),
            _ => None,
        };
        let mut deletes: Vec<_> = self.model.iter().filter_map(latest).collect();
        deletes.retain(|(key, _)| {
            self.driver.get(&key.to_be_bytes(), watermark) == Got::Absent(Version::ZERO)
        });
        deletes
    }

    /// Moves the watermark, and the promise that nothing older comes, as far as the log allows.
    fn settle(&mut self) {
        let stable = self.driver.store.stable_batch();
        self.log.retain(|&(batch, ..)| batch > stable);
        let watermark = self.time.saturating_sub(self.trails);
        self.driver.store.advance_watermark(at(watermark));
        let oldest = self.log.iter().map(|&(_, _, time, _)| time - 1).min().unwrap_or(u64::MAX);
        self.driver.store.advance_replay_floor(at(watermark.min(oldest)));
    }

    fn crash(&mut self) {
        let stable = self.driver.store.stable_batch();
        let watermark = self.driver.store.watermark();
        self.collected += self.driver.figure(Figure::CollectedBlocks);
        self.dropped += self.driver.figure(Figure::DroppedTombstones);
        self.media.power_cut(self.dice.below(u64::MAX));
        let (driver, report) = S::open_on(&self.media, self.config, self.layered).expect("opens");
        assert_eq!(
            report.corrupt_records, 0,
            "torn pages are not stable, and whole ones are not corrupt: {report:?}"
        );
        self.driver = driver;
        self.driver.store.advance_watermark(watermark);
        self.batch += 1;
        self.driver.store.begin_batch(self.batch);
        self.log.retain(|&(batch, ..)| batch > stable);
        for at in 0..self.log.len() {
            let (_, key, time, size) = self.log[at];
            self.apply(key, time, size);
            self.log[at].0 = self.batch;
        }
        self.gone = self.absent_without_trace().into_iter().collect();
    }

    fn check(&mut self, what: &str) {
        let watermark = self.driver.store.watermark().as_nanos();
        for key in 0..self.keys {
            for nanos in [watermark, (watermark + self.time) / 2, self.time + 5] {
                let found = self.model.get(&key).and_then(|all| all.range(..=nanos).next_back());
                let got = self.driver.get(&key.to_be_bytes(), nanos);
                match (found, got) {
                    (Some((&time, &Some(size))), got) => {
                        assert_eq!(
                            got,
                            Got::Value(version(time), value(key, time, size)),
                            "{what}: {key} at {nanos}"
                        );
                    }
                    // A tombstone may have been collected.
                    (Some((&time, None)), Got::Absent(found)) => {
                        assert!(
                            found == version(time) || found == Version::ZERO,
                            "{what}: {key} at {nanos}: {found}"
                        );
                    }
                    (None, got) => {
                        assert_eq!(got, Got::Absent(Version::ZERO), "{what}: {key} at {nanos}")
                    }
                    (Some((time, None)), got) => {
                        panic!("{what}: key {key} came back at {nanos}: deleted at {time}, {got:?}")
                    }
                }
            }
        }
    }

    pub(crate) fn run(&mut self, rounds: usize, checkpoints: bool) {
        for round in 0..rounds {
            for _ in 0..150 {
                self.write();
                if self.dice.below(3) == 0 {
                    self.settle();
                    self.pump();
                }
            }
            match self.dice.below(4) {
                0 => self.crash(),
                1 if checkpoints => {
                    self.driver.checkpoint();
                    self.note_gone();
                }
                2 if checkpoints => {
                    self.driver.store.checkpoint_now();
                    let times = self.dice.below(600) as usize;
                    (0..times).for_each(|_| self.pump());
                    self.crash();
                }
                _ => (0..20).for_each(|_| self.pump()),
            }
            self.check(&format!("round {round}"));
        }
        self.collected += self.driver.figure(Figure::CollectedBlocks);
        self.dropped += self.driver.figure(Figure::DroppedTombstones);
        assert!(self.went == self.dropped || !S::COUNTS_DELETIONS);
    }
}

/// More of them for a soak: `STORE_SEEDS=100 cargo test -p timestone-store`.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("STORE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_small_device_serves_for_ever() {
    let mut dropped = 0;
    for seed in 1..seeds(8) {
        let config =
            MftlConfig { cache_bytes: if seed % 2 == 0 { 1 << 20 } else { 0 }, ..config() };
        let mut churn =
            Churn::new(unruly_media(8, 48, seed), config, seed, 240, vec![20, 300, 700]);
        churn.run(120, seed > 2);
        assert!(churn.collected > 50, "{} blocks were collected", churn.collected);
        dropped += churn.dropped;
    }
    assert!(dropped > 0, "no tombstone was ever dropped, so nothing was compared");
}

#[test]
fn large_values_are_collected_too() {
    for seed in 1..seeds(4) {
        let mut churn =
            Churn::new(unruly_media(8, 160, seed), config(), seed, 25, vec![100, 5000, 40_000]);
        churn.run(40, seed > 1);
        assert!(churn.collected > 50, "{} blocks were collected (seed {seed})", churn.collected);
    }
}

/// The index names nothing in a block that is erased: debug builds look. The device is so small, and the
/// watermark trails so far, that values are to leave a block which it passes before they do.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_large_value_that_stays_in_the_index_without_its_block_is_found() {
    use timestone_types::planted::{Bug, set};
    let found = (1..4).any(|seed| {
        let run = || {
            let sizes = vec![100, 5000, 12_000];
            let mut churn = Churn::new(unruly_media(32, 24, seed), config(), seed, 25, sizes);
            churn.trails = 400;
            set(Some(Bug::LeavesNodes));
            churn.run(40, false);
        };
        let panicked = std::panic::catch_unwind(run);
        set(None);
        panicked.is_err_and(|words| {
            words.downcast_ref::<&str>() == Some(&"whoever looks there finds nothing")
        })
    });
    assert!(found, "the planted bug is found");
}

/// A large value needs more free blocks than what makes collection begin by itself: a put that is
/// refused must bring it about.
#[test]
fn a_large_value_that_is_overwritten_again_and_again_never_waits_for_ever() {
    for size in [9_000, 40_000, 160_000, 300_000] {
        let (mut driver, _) = open(&media(8, 160), config());
        for n in 0..100u64 {
            let mut waited = 0;
            loop {
                match driver.try_put(b"k", 10 + n, &vec![n as u8; size]) {
                    Ok(()) => break,
                    Err(StoreError::Busy) => waited += 1,
                    Err(error) => panic!("{size} bytes, put {n}: {error}"),
                }
                assert!(waited < 2000, "{size} bytes: put {n} waits for ever");
                driver.pump();
            }
            driver.store.advance_watermark(at(10 + n));
            driver.pump();
        }
        assert_eq!(driver.value(b"k", 1000), Some(vec![99; size]));
    }
}

#[test]
fn what_is_not_refused_beforehand_is_taken() {
    for size in [700, 5_000, 9_000, 60_000] {
        let (mut driver, _) = open(&media(8, 160), config());
        let (mut stored, mut waited) = (0u64, 0);
        let full = loop {
            let key = stored.to_be_bytes();
            match driver.admit(key.len() + size, 0) {
                Ok(()) => {
                    // Collection goes on between the promise and the put, as it does while the log
                    // syncs.
                    (0..stored % 7).for_each(|_| driver.pump());
                    driver
                        .try_put(&key, 10, &vec![5; size])
                        .unwrap_or_else(|error| panic!("{size} bytes, {stored}: {error}"));
                    (stored, waited) = (stored + 1, 0);
                }
                Err(StoreError::Busy) => waited += 1,
                Err(error) => break error,
            }
            assert!(waited < 2000, "{size} bytes: after {stored}, waiting for ever");
            driver.store.advance_watermark(at(15));
            driver.pump();
        };
        assert!(matches!(full, StoreError::DeviceFull { .. }), "{full}");
        assert!(stored as usize * size > 160 * 8 * 4096 / 4, "{size} bytes: full with {stored}");
        // It says so at once from then on, but for what collection in progress still wins: that may
        // be used.
        let (mut said, mut more) = (0, 0);
        for n in 0..200u64 {
            driver.store.advance_watermark(at(16 + n));
            // Nobody asks in some of the pumps.
            (0..=n % 3).for_each(|_| driver.pump());
            match driver.admit(8 + size, 0) {
                Ok(()) => {
                    driver
                        .try_put(&(stored + more).to_be_bytes(), 10, &vec![5; size])
                        .unwrap_or_else(|error| panic!("{size} bytes, {more} more: {error}"));
                    more += 1;
                }
                Err(StoreError::DeviceFull { .. }) => said += 1,
                Err(_) => {}
            }
        }
        assert!(
            said > 150,
            "{size} bytes: full {said} times of 200, {more} more went in after {stored}"
        );
    }
}

#[test]
fn what_was_promised_together_finds_room_however_it_packs() {
    for size in [100, 700, 2_100, 3_000] {
        let (mut driver, _) = open(&media(8, 160), config());
        let mut promised = Vec::new();
        let each = size + 8;
        while driver.admit(each, promised.len()).is_ok() {
            promised.push((promised.len() as u64).to_be_bytes());
        }
        assert!(
            promised.len() * each > 160 * 8 * 4096 / 4,
            "{size} bytes: only {} are promised",
            promised.len()
        );
        for key in &promised {
            driver
                .try_put(key, 10, &vec![5; size])
                .unwrap_or_else(|error| panic!("{size} bytes, {key:?}: {error}"));
            driver.pump();
        }
    }
}

#[test]
fn everything_deleted_leaves_nothing() {
    let (mut driver, _) = open(&media(8, 40), config());
    for n in 0..600u64 {
        driver.put(&n.to_be_bytes(), 10, &[1; 700]);
    }
    for n in 0..600u64 {
        driver.delete(&n.to_be_bytes(), 20);
    }
    driver.store.advance_watermark(at(30));
    driver.store.advance_replay_floor(at(30));
    // Churn of a few other keys makes collection go round.
    for n in 0..6000u64 {
        driver.put(&(1000 + n % 5).to_be_bytes(), 40 + n, &[2; 700]);
        driver.store.advance_watermark(at(39 + n));
        driver.pump();
    }
    let stats = driver.store.stats();
    assert!(stats.index.keys < 300, "{} of 605 keys are still in the index", stats.index.keys);
    assert!(stats.collection.dropped_tombstones > 300);
}

#[test]
fn a_tombstone_stays_until_the_replay_floor_has_passed_it() {
    let (mut driver, _) = open(&media(8, 40), config());
    driver.put(b"k", 10, &[1; 700]);
    driver.delete(b"k", 20);
    for n in 0..6000u64 {
        driver.put(&(n % 5).to_be_bytes(), 40 + n, &[2; 700]);
        driver.store.advance_watermark(at(39 + n));
        driver.pump();
    }
    assert!(driver.store.stats().collection.collected_blocks > 100);
    assert_eq!(
        driver.get(b"k", 9000),
        Got::Absent(version(20)),
        "nobody promised that no older put will come"
    );
}

#[test]
fn wear_is_spread() {
    let (mut driver, _) = open(&media(8, 40), config());
    for n in 0..40_000u64 {
        driver.put(&(n % 40).to_be_bytes(), 10 + n, &[6; 700]);
        driver.store.advance_watermark(at(n));
        driver.pump();
    }
    let stats = driver.store.device().stats();
    assert!(
        stats.wear_max > 10 && stats.wear_max - stats.wear_min <= stats.wear_max / 2 + 5,
        "{stats:?}"
    );
    assert_eq!(driver.count(SPACE, 50_000), 40);
}

#[test]
fn what_never_dies_does_not_keep_its_blocks_from_wear() {
    let (mut driver, _) = open(&media(4, 40), config());
    // Three quarters of the blocks hold what nobody overwrites.
    let cold = 30 * 4 * 5;
    for n in 0..cold {
        driver.put(&u64::to_be_bytes(1 << 40 | n), 1 + n, &[1; 700]);
    }
    for n in cold..120_000 {
        driver.put(&(n % 4).to_be_bytes(), 10 + n, &[6; 700]);
        driver.store.advance_watermark(at(n));
        driver.pump();
    }
    let stats = driver.store.device().stats();
    // Without it, ten blocks would have been erased a thousand times, and thirty never.
    let spread = stats.wear_max - stats.wear_min;
    assert!(stats.erases > 40 * 250 && spread <= 280, "{stats:?}");
    assert_eq!(driver.count(SPACE, 200_000), cold + 4);
}

#[test]
fn expired_records_give_their_space_back() {
    let (mut driver, _) = open(&media(8, 40), config());
    for n in 0..20_000u64 {
        driver.put_expiring(&n.to_be_bytes(), 10 + n, &[7; 700], 60 + n);
        driver.store.advance_watermark(at(n));
        driver.store.advance_replay_floor(at(n));
        for _ in 0..2 {
            driver.pump();
        }
    }
    assert!(driver.store.stats().index.keys < 2000, "{:?}", driver.store.stats());
    assert_eq!(driver.count(SPACE, 20_009), 50);
}

/// Keys that are overwritten at random, with a watermark that trails behind the puts.
struct Overwriting {
    media: MemoryMedia,
    driver: Driver<Mftl>,
    dice: Dice,
    keys: u64,
    time: u64,
    newest: BTreeMap<u64, u64>,
}

impl Overwriting {
    const VALUE: usize = 500;

    /// A device of 16 MiB in 128 blocks when it has grown, of which so many thousandths are filled
    /// with live data.
    fn filled_to(share: u64, initial_blocks: u32) -> Self {
        let media = MemoryMedia::new(MemoryConfig {
            pages_per_block: 32,
            initial_blocks,
            max_blocks: 128,
            ..MemoryConfig::default()
        });
        let (driver, _) = open(&media, config());
        // Seven of these records fill a page.
        let keys = 128 * 32 * 7 * share / 1000;
        let mut load =
            Self { media, driver, dice: Dice(share), keys, time: 10, newest: BTreeMap::new() };
        for key in 0..keys {
            assert_eq!(load.try_overwrite(key), Ok(()), "key {key} of {keys}");
            if key % 32 == 0 {
                load.driver.pump();
            }
        }
        load
    }

    /// Overwrites a key as a shard does: asks first.
    fn try_overwrite(&mut self, key: u64) -> Result<(), String> {
        let bytes = Self::VALUE + 8;
        self.driver.admit(bytes, 0).map_err(|error| error.to_string())?;
        self.time += 1;
        let value = value(key, self.time, Self::VALUE);
        self.driver
            .try_put(&key.to_be_bytes(), self.time, &value)
            .map_err(|error| error.to_string())?;
        self.newest.insert(key, self.time);
        Ok(())
    }

    fn any_key(&mut self) -> u64 {
        self.dice.below(self.keys)
    }

    /// Every key has what was put last, also after a restart.
    fn check(&mut self) {
        self.check_values();
        self.driver.sync();
        self.driver = open(&self.media, config()).0;
        self.check_values();
    }

    fn check_values(&mut self) {
        for (&key, &time) in &self.newest {
            let found = self.driver.value(&key.to_be_bytes(), self.time);
            assert!(found == Some(value(key, time, Self::VALUE)), "key {key}, put at {time}");
        }
    }
}

#[test]
fn steady_overwriting_is_never_refused() {
    for (share, initial_blocks) in [(200, 128), (600, 128), (200, 16), (600, 16)] {
        let mut load = Overwriting::filled_to(share, initial_blocks);
        // Five times the device; the watermark is a twentieth of the device behind.
        for put in 0..128 * 32 * 7 * 5u64 {
            let key = load.any_key();
            let answer = load.try_overwrite(key);
            assert_eq!(
                answer,
                Ok(()),
                "put {put} at {share} thousandths, {:?}",
                load.driver.store.stats()
            );
            if put % 64 == 0 {
                load.driver
                    .store
                    .advance_watermark(at(load.time.saturating_sub(128 * 32 * 7 / 20)));
                load.driver.store.advance_replay_floor(load.driver.store.watermark());
                load.driver.pump();
            }
        }
        load.check();
    }
}

#[test]
fn garbage_that_the_watermark_has_not_passed_makes_no_full_store() {
    for share in [200, 600] {
        let mut load = Overwriting::filled_to(share, 128);
        for round in 0..3 {
            // The watermark stands still, as below a session that is silent: garbage only piles up.
            let busy = StoreError::Busy.to_string();
            let mut refused = 0;
            while refused < 2000 {
                let key = load.any_key();
                if let Err(words) = load.try_overwrite(key) {
                    assert_eq!(
                        words,
                        busy,
                        "round {round} at {share} thousandths, {:?}",
                        load.driver.store.stats()
                    );
                    refused += 1;
                    load.driver.pump();
                } else if load.dice.below(64) == 0 {
                    load.driver.pump();
                }
            }
            // It moves on: there is room again, and nobody is told anything else meanwhile.
            load.driver.store.advance_watermark(at(load.time));
            load.driver.store.advance_replay_floor(at(load.time));
            let mut waited = 0;
            while let Err(words) = load.try_overwrite(0) {
                assert_eq!(
                    words,
                    busy,
                    "round {round} at {share} thousandths, {:?}",
                    load.driver.store.stats()
                );
                waited += 1;
                assert!(waited < 200, "{:?}", load.driver.store.stats());
                load.driver.pump();
            }
        }
        load.check();
    }
}

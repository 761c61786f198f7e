//! Every moment of a workload in turn: the power goes at each program, erase and sync, with every
//! prefix of the pages under way, and again during the recovery from that.
//!
//! The workload writes, deletes, fences, expires, collects, checkpoints and holds large values, as
//! a shard does whose log keeps what is not stable. After each cut everything stable is there and
//! nothing that was never written; after the log's part was put again the store equals the model
//! exactly.
//!
//! `TIMESTONE_TEST_SWEEP=full cargo test -p timestone-store --release sweep` tries every sector,
//! and both fates of everything else.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use timestone_flash::{MemoryMedia, PAGE_BYTES, PowerCut, Unsettled};
use timestone_store::{Figure, FigureValues, Mftl, MftlConfig, StoreError};
use timestone_types::{Expiry, KeyspaceId, Version};

use crate::collection::Dice;
use crate::driver::{Driver, Got, ORDERED, SPACE, Survives, at, config, media, version};
use crate::scores::{Score, keep, sweep_is_full as full};
use crate::unruly_erases::LifeOfErases;

const KEYS: u64 = 24;
/// Keys below are written again and again, the others hardly: collection has to move those.
const HOT: u64 = 8;
/// What disks write at once.
const SECTOR: usize = 512;

/// What is written under (key, time): bytes of the value and its expiry; none for a tombstone.
type Written = Option<(usize, u64)>;

#[derive(Clone, Copy)]
struct Logged {
    batch: u64,
    key: u64,
    time: u64,
    what: Written,
}

/// A shard's view: what it wrote, what its log holds, what the store said is stable.
pub(crate) struct Shard<S = Mftl> {
    store: PhantomData<fn() -> S>,
    /// There is a translation layer below the store.
    layered: bool,
    /// Where it writes.
    space: KeyspaceId,
    written: BTreeMap<(u64, u64), (u64, Written)>,
    fence: Option<(u64, u64)>,
    log: Vec<Logged>,
    /// Everything of batches up to here is stable.
    stable: u64,
    watermark: u64,
    batch: u64,
    time: u64,
    /// Nearly all of what it writes is larger than a page, and much of it expires.
    pub(crate) mostly_large: bool,
    /// There may be no room where pages cannot be read: then it writes no more.
    pub(crate) may_fill: bool,
    /// What becomes of erases.
    pub(crate) erases: Option<LifeOfErases>,
}

fn value(key: u64, time: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 13 + key * 7 + time * 3) as u8).collect()
}

fn off(media: &MemoryMedia) -> bool {
    media.interrupted_bytes().is_some()
}

impl<S> Clone for Shard<S> {
    fn clone(&self) -> Self {
        Self { written: self.written.clone(), log: self.log.clone(), ..*self }
    }
}

impl<S> Default for Shard<S> {
    fn default() -> Self {
        Self {
            store: PhantomData,
            layered: false,
            space: SPACE,
            written: BTreeMap::new(),
            fence: None,
            log: Vec::new(),
            stable: 0,
            watermark: 0,
            batch: 0,
            time: 0,
            mostly_large: false,
            may_fill: false,
            erases: None,
        }
    }
}

impl Shard<Mftl> {
    /// One whose store has a translation layer below it.
    pub(crate) fn layered() -> Self {
        Self { layered: true, ..Self::default() }
    }
}

impl<S: Survives> Shard<S> {
    /// One that writes there.
    pub(crate) fn within(space: KeyspaceId) -> Self {
        Self { space, ..Self::default() }
    }

    /// Puts once, waiting while the store is busy; `false` when the power went.
    fn apply(
        &self,
        driver: &mut Driver<S>,
        media: &MemoryMedia,
        key: u64,
        time: u64,
        what: Written,
    ) -> bool {
        let name = self.name(key);
        for _ in 0..if self.may_fill { 2_000 } else { 20_000 } {
            let place = driver.key(self.space, &name);
            let done = match what {
                Some((size, expires)) => driver.store.put(
                    place,
                    version(time),
                    &value(key, time, size),
                    Expiry::at(at(expires)),
                ),
                None => driver.store.delete(place, version(time)),
            };
            match done {
                Ok(()) => return true,
                Err(StoreError::Busy) if off(media) => return false,
                Err(StoreError::Busy) => driver.pump(),
                Err(StoreError::DeviceFull { .. }) if self.may_fill => return false,
                Err(error) => panic!("refused: {error}"),
            }
        }
        if self.may_fill {
            return false;
        }
        panic!("busy for ever: {:?}", driver.store.figures());
    }

    pub(crate) fn note_stable(&mut self, driver: &Driver<S>) {
        self.stable = self.stable.max(driver.store.stable_batch());
    }

    /// As a shard does when it has time: the log lets go of what is stable, the watermark rises.
    fn settle(&mut self, driver: &mut Driver<S>) {
        let stable = self.stable;
        self.log.retain(|logged| logged.batch > stable);
        self.watermark = self.watermark.max(self.time.saturating_sub(12));
        driver.store.advance_watermark(at(self.watermark));
        let oldest = self.log.iter().map(|logged| logged.time - 1).min().unwrap_or(u64::MAX);
        driver.store.advance_replay_floor(at(self.watermark.min(oldest)));
    }

    /// Writes until it is through or the power goes; gives what the store counted.
    pub(crate) fn live(
        &mut self,
        media: &MemoryMedia,
        config: MftlConfig,
        steps: u64,
        seed: u64,
    ) -> FigureValues {
        let Some(mut driver) = self.open(media, config) else { return FigureValues::default() };
        self.live_in(&mut driver, media, steps, seed);
        // What the store says after the power went must not be more than what is true.
        driver.pumps(12);
        self.note_stable(&driver);
        driver.store.figures()
    }

    /// The same, in a store that is open.
    pub(crate) fn live_in(
        &mut self,
        driver: &mut Driver<S>,
        media: &MemoryMedia,
        steps: u64,
        seed: u64,
    ) {
        let mut dice = Dice(seed);
        for step in 0..steps {
            self.time += 2;
            self.batch += 1;
            driver.store.begin_batch(self.batch);
            let hot = if dice.below(12) == 0 { KEYS } else { HOT };
            let key = if step % 3 == 0 { step / 3 % KEYS } else { dice.below(hot) };
            let what = match dice.below(10) {
                0 | 1 => None,
                3 | 4 if self.mostly_large => {
                    Some((9000 + dice.below(9000) as usize, self.time + dice.below(60)))
                }
                5.. if self.mostly_large => Some((5000 + dice.below(9000) as usize, u64::MAX)),
                2 => Some((9000 + dice.below(3000) as usize, u64::MAX)),
                3 => Some((40, self.time + dice.below(60))),
                _ => Some((200 + dice.below(1800) as usize, u64::MAX)),
            };
            if step == steps / 6 && self.fence.is_none() {
                self.fence = Some((self.batch, self.time + 1));
                if driver.store.fence(self.space, version(self.time + 1)).is_err() {
                    assert!(off(media));
                }
                self.time += 2;
            }
            let logged = Logged { batch: self.batch, key, time: self.time, what };
            self.written.insert((key, self.time), (self.batch, what));
            self.log.push(logged);
            if !self.apply(driver, media, key, self.time, what) {
                if !off(media) {
                    self.written.remove(&(key, self.time));
                    self.log.pop();
                }
                break;
            }
            match step % 40 {
                17 => driver.store.sync_soon(),
                30 => driver.store.checkpoint_now(),
                _ => {}
            }
            driver.pumps(if step % 40 == 31 { 150 } else { 1 + (step % 3) as usize });
            self.note_stable(driver);
            if step % 4 == 0 {
                self.settle(driver);
            }
            if off(media) {
                break;
            }
        }
    }

    pub(crate) fn open(&self, media: &MemoryMedia, config: MftlConfig) -> Option<Driver<S>> {
        let opened = match self.erases {
            Some(erases) => S::open_over(erases.open(media), config, self.layered),
            None => S::open_on(media, config, self.layered),
        };
        match opened {
            Ok((mut driver, _)) => {
                driver.space = self.space;
                driver.store.advance_watermark(at(self.watermark));
                Some(driver)
            }
            Err(error) => {
                assert!(off(media), "{error}");
                None
            }
        }
    }

    /// The bytes of a key: where keys are in order, some are too long for the head of a large value.
    fn name(&self, key: u64) -> Vec<u8> {
        let mut name = key.to_be_bytes().to_vec();
        if self.space.is_ordered() && key % 6 == 5 {
            name.resize(1100, b'.');
        }
        name
    }

    /// A range finds exactly the keys that have values, with the versions that gets find.
    fn check_range(&self, driver: &mut Driver<S>, nanos: u64, what: &str) {
        let mut expected = Vec::new();
        for key in 0..KEYS {
            if let Got::Value(version, _) = driver.get(&self.name(key), nanos) {
                expected.push((self.name(key), version));
            }
        }
        assert_eq!(driver.range(&[], None, nanos), expected, "{what}: at {nanos}");
    }

    fn fence_before(&self, nanos: u64) -> Option<(u64, u64)> {
        self.fence.filter(|&(_, time)| time <= nanos)
    }

    /// What a read may find when only batches up to `stable` are certain.
    pub(crate) fn check(&self, driver: &mut Driver<S>, stable: u64, what: &str) {
        if self.space.is_ordered() {
            self.check_range(driver, self.watermark, what);
            self.check_range(driver, self.time + 5, what);
        }
        for key in 0..KEYS {
            let times = self.written.range((key, 0)..(key + 1, 0)).map(|(&(_, time), _)| time);
            let moments: Vec<u64> = times
                .chain([self.watermark, self.time + 5])
                .filter(|&t| t >= self.watermark)
                .collect();
            for nanos in moments {
                let got = driver.get(&self.name(key), nanos);
                let short = |got: &Got| match got {
                    Got::Value(version, value) => format!("{version}, {} bytes", value.len()),
                    Got::Absent(version) => format!("absent, {version}"),
                };
                assert!(
                    self.allows(key, nanos, stable, &got),
                    "{what}: key {key} at {nanos}, stable up to batch {stable}, watermark {}: {}; \
                     written: {:?}",
                    self.watermark,
                    short(&got),
                    self.written.range((key, 0)..(key + 1, 0)).rev().take(6).collect::<Vec<_>>()
                );
            }
        }
    }

    fn allows(&self, key: u64, nanos: u64, stable: u64, got: &Got) -> bool {
        let versions = || self.written.range((key, 0)..=(key, nanos));
        let certain_write =
            versions().filter(|(_, (batch, _))| *batch <= stable).map(|(&(_, time), _)| time).max();
        let certain_fence =
            self.fence_before(nanos).filter(|&(batch, _)| batch <= stable).map(|(_, time)| time);
        let certain = certain_write.max(certain_fence);
        let found = match got {
            Got::Value(found, _) | Got::Absent(found) => found.timestamp.as_nanos(),
        };
        let visible = |time: u64| match self.written.get(&(key, time)) {
            Some(&(_, Some((size, expires)))) if expires > nanos => Some(value(key, time, size)),
            _ => None,
        };
        // What the log still holds may have taken the place of what was stable, for everybody: then
        // the latter is gone for good, and only the log brings the key back.
        let seen_by_all = |(&(_, time), &(batch, _)): (&(u64, u64), &(u64, Written))| {
            batch > stable && certain.is_none_or(|certain| time > certain) && time <= self.watermark
        };
        let replaced = versions().any(seen_by_all);
        if !replaced && certain.is_some_and(|certain| found < certain) {
            // An absence that everybody has seen may have been collected.
            let absent =
                certain_write < certain_fence || certain.is_none_or(|time| visible(time).is_none());
            let bare =
                found == 0 || self.fence_before(nanos).is_some_and(|(_, time)| time == found);
            let collected = bare && certain.is_none_or(|time| time <= self.watermark);
            return absent && collected && matches!(got, Got::Absent(_));
        }
        match got {
            Got::Value(_, bytes) => visible(found).is_some_and(|expected| expected == *bytes),
            Got::Absent(found) if *found == Version::ZERO => true,
            Got::Absent(_) => {
                self.fence_before(nanos).is_some_and(|(_, time)| time == found)
                    || (self.written.contains_key(&(key, found)) && visible(found).is_none())
            }
        }
    }

    /// Puts again what the log holds, as after a crash, and compares everything.
    pub(crate) fn replay_and_check(&mut self, media: &MemoryMedia, config: MftlConfig, what: &str) {
        let Some(mut driver) = self.open(media, config) else { return };
        self.check_stable(&mut driver, what);
        self.replay(&mut driver, media);
        self.check(&mut driver, u64::MAX, what);
        let nanos = self.time + 5;
        let mut present = Vec::new();
        for key in 0..KEYS {
            if matches!(driver.get(&self.name(key), nanos), Got::Value(..)) {
                present.push(self.name(key));
            }
        }
        assert_eq!(driver.keys(self.space, nanos, 5), present, "{what}");
        assert_eq!(driver.count(self.space, nanos), present.len() as u64, "{what}");
    }

    fn replay(&mut self, driver: &mut Driver<S>, media: &MemoryMedia) -> bool {
        self.batch += 1;
        driver.store.begin_batch(self.batch);
        if let Some((batch, time)) = self.fence
            && batch > self.stable
            && driver.store.fence(self.space, version(time)).is_err()
        {
            assert!(off(media));
        }
        for logged in &self.log {
            if !self.apply(driver, media, logged.key, logged.time, logged.what) {
                return false;
            }
        }
        true
    }

    /// Puts again what the log holds, which belongs to one batch from then on; `false` when the power went, or there
    /// was no room: nothing counts as stable then.
    pub(crate) fn repeat(&mut self, driver: &mut Driver<S>, media: &MemoryMedia) -> bool {
        let is_through = self.replay(driver, media);
        let batch = self.batch;
        if !is_through || off(media) {
            return false;
        }
        for logged in &mut self.log {
            logged.batch = batch;
            self.written.insert((logged.key, logged.time), (batch, logged.what));
        }
        if let Some(fence) = self.fence.as_mut().filter(|fence| fence.0 > self.stable) {
            fence.0 = batch;
        }
        true
    }

    /// Everything stable is there.
    pub(crate) fn check_stable(&self, driver: &mut Driver<S>, what: &str) {
        self.check(driver, self.stable, what);
    }

    /// Nothing is read that was never written, whatever is missing; what cannot be read says so.
    pub(crate) fn check_nothing_is_made_up(&self, driver: &mut Driver<S>, what: &str) {
        for key in 0..KEYS {
            let nanos = self.time + 5;
            match driver.try_get_in(self.space, &self.name(key), nanos) {
                Ok(got) => assert!(self.allows(key, nanos, 0, &got), "{what}: key {key}: {got:?}"),
                Err(StoreError::Corrupt { .. } | StoreError::Flash(_)) => {}
                Err(error) => panic!("{what}: key {key}: {error}"),
            }
        }
    }

    /// A life that only repeats the log, makes it stable, and goes on a little: what a second cut
    /// interrupts.
    pub(crate) fn recover(&mut self, media: &MemoryMedia, config: MftlConfig) {
        let Some(mut driver) = self.open(media, config) else { return };
        if !self.repeat(&mut driver, media) {
            return;
        }
        driver.store.begin_batch(self.batch + 1);
        driver.store.sync_soon();
        for _ in 0..15 {
            driver.pump();
        }
        driver.store.checkpoint_now();
        for _ in 0..15 {
            driver.pump();
        }
        self.note_stable(&driver);
        self.settle(&mut driver);
    }
}

pub(crate) struct Plan {
    pub(crate) sector: usize,
    pub(crate) fates: &'static [Unsettled],
    /// Every so manieth operation is cut.
    pub(crate) stride: u32,
}

/// Cuts the power of the life that follows at every operation, in every way. Gives the number of
/// cuts.
pub(crate) fn every_cut<S>(
    before: (&MemoryMedia, &Shard<S>),
    plan: &Plan,
    live: impl Fn(&MemoryMedia, &mut Shard<S>),
    mut then: impl FnMut(&MemoryMedia, Shard<S>, PowerCut),
) -> u64 {
    let mut cuts = 0;
    for operation in (1..).step_by(plan.stride as usize) {
        for &others in plan.fates {
            for keep_bytes in (0..).step_by(plan.sector) {
                let (media, mut shard) = (before.0.copy(), before.1.clone());
                let cut = PowerCut { operation, keep_bytes, others };
                media.cut_power_at(cut);
                live(&media, &mut shard);
                let Some(interrupted) = media.interrupted_bytes() else { return cuts };
                cuts += 1;
                then(&media, shard, cut);
                if keep_bytes >= interrupted {
                    break;
                }
            }
        }
    }
    unreachable!("a workload has an end")
}

pub(crate) fn small(cache_bytes: u64) -> MftlConfig {
    MftlConfig { cache_bytes, ..config() }
}

fn keep_cuts(name: &str, space: KeyspaceId, cuts: u64) {
    let of = Score::Name(if space.is_ordered() {
        "`store`: the same, with keys in order"
    } else {
        "`store`: index, packing, collection, checkpoints"
    });
    keep(
        "crash points",
        &[("of", of), (name, Score::Count(cuts)), ("full", Score::Count(full().into()))],
    );
}

#[test]
fn sweep_a_power_cut_at_every_operation_with_every_prefix() {
    sweep_cuts(&media(8, 18), SPACE);
}

/// The same where keys are in order, some of them longer than the heads of values have room for.
#[test]
fn sweep_a_power_cut_at_every_operation_of_a_store_in_order() {
    sweep_cuts(&media(8, 20), ORDERED);
}

fn sweep_cuts(media: &MemoryMedia, space: KeyspaceId) {
    let shard = Shard::<Mftl>::within(space);
    let plan = if full() {
        Plan {
            sector: SECTOR,
            fates: &[Unsettled::Lost, Unsettled::Kept, Unsettled::Drawn(1), Unsettled::Drawn(2)],
            stride: 1,
        }
    } else {
        Plan { sector: 5 * SECTOR, fates: &[Unsettled::Lost, Unsettled::Drawn(1)], stride: 1 }
    };
    let steps = if full() { 600 } else { 300 };
    let stats = shard.clone().live(&media.copy(), small(0), steps, 7);
    assert!(
        stats.get(Figure::CollectedBlocks) > 5
            && stats.get(Figure::MovedRecords) > 3
            && stats.get(Figure::DroppedTombstones) > 1
            && stats.get(Figure::Checkpoints) > 1,
        "everything happens: {stats:?}"
    );
    let cuts = every_cut(
        (media, &shard),
        &plan,
        |media, shard| _ = shard.live(media, small(0), steps, 7),
        |media, mut shard, cut| shard.replay_and_check(media, small(0), &format!("{cut:?}")),
    );
    assert!(cuts > 300, "{cuts} cuts");
    keep_cuts("cuts", space, cuts);
}

#[test]
fn sweep_a_second_power_cut_at_every_operation_of_the_recovery() {
    sweep_second_cuts(&media(8, 18), SPACE);
}

#[test]
fn sweep_a_second_power_cut_at_every_operation_of_the_recovery_of_a_store_in_order() {
    sweep_second_cuts(&media(8, 20), ORDERED);
}

fn sweep_second_cuts(media: &MemoryMedia, space: KeyspaceId) {
    let shard = Shard::<Mftl>::within(space);
    let (first, second, steps) = if full() {
        let first = Plan {
            sector: PAGE_BYTES / 2,
            fates: &[Unsettled::Lost, Unsettled::Drawn(3)],
            stride: 1,
        };
        (
            first,
            Plan { sector: 3 * SECTOR, fates: &[Unsettled::Lost, Unsettled::Drawn(4)], stride: 1 },
            240,
        )
    } else {
        let first = Plan { sector: 3 * PAGE_BYTES + SECTOR, fates: &[Unsettled::Lost], stride: 9 };
        (
            first,
            Plan { sector: 2 * PAGE_BYTES + 3 * SECTOR, fates: &[Unsettled::Lost], stride: 1 },
            150,
        )
    };
    let mut second_cuts = 0;
    every_cut(
        (media, &shard),
        &first,
        |media, shard| _ = shard.live(media, small(0), steps, 11),
        |media, shard, first| {
            second_cuts += every_cut(
                (media, &shard),
                &second,
                |media, shard| shard.recover(media, small(0)),
                |media, mut shard, cut| {
                    shard.replay_and_check(media, small(0), &format!("{first:?}, then {cut:?}"))
                },
            );
        },
    );
    assert!(second_cuts > 300, "{second_cuts} cuts");
    keep_cuts("recovery_cuts", space, second_cuts);
}

/// Two blocks are collected at once, one with the parts of a value, the other with its head: the
/// head moves while the value does. (A store that let the parts go then lost the value.)
#[test]
fn values_survive_that_their_head_moves_while_they_do() {
    // The first is the one that was found; the others are cuts of the same kind.
    for seed in [7].into_iter().chain(100..140) {
        let (media, mut shard) = (media(8, 18), Shard::<Mftl>::default());
        media.cut_power_at(PowerCut { operation: 488, keep_bytes: 512, others: Unsettled::Lost });
        shard.live(&media, small(0), 600, seed);
        if off(&media) {
            shard.replay_and_check(&media, small(0), &format!("seed {seed}"));
        }
    }
}

//! A copy answers every read as what it was made of does, whatever happens before it is whole.

use core::time::Duration;

use timestone_flash::{MemoryConfig, MemoryMedia, PageId};
use timestone_store::{
    Dram, DramConfig, KeyspacePlace, Lookup, Mftl, MftlConfig, OpenFrugal, Opening, Places,
    ReadOutcome, ReadToken, Skimpy, SkimpyConfig, Stores, prelude::*,
};
use timestone_types::random::{Dice, Seed};
use timestone_types::{Expiry, HashSeed, KeyRef};

use super::*;

const FULL: KeyspaceId = KeyspaceId::numbered(3, false);
const FRUGAL: KeyspaceId = KeyspaceId::numbered(4, false).frugal();
/// Its records lie between the others.
const OTHER: KeyspaceId = KeyspaceId::numbered(5, false);
const KEYS: u64 = 40;
/// Past everything that is written.
const END: u64 = 1000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn media() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 120,
        max_blocks: 120,
        ..MemoryConfig::default()
    })
}

/// The devices of a shard, and its stores as they are opened.
struct World {
    full: MemoryMedia,
    frugal: MemoryMedia,
    store: Stores,
    now: u64,
}

fn open(full: &MemoryMedia, frugal: &MemoryMedia) -> Stores {
    let config = MftlConfig {
        store_id: 1,
        seed: HashSeed(7),
        cache_bytes: 0,
        checkpoint_bytes: 0,
        ..MftlConfig::default()
    };
    let (store, _) = Mftl::open(Box::new(full.open()), config).unwrap();
    let dram = Dram::in_recovery(DramConfig { seed: HashSeed(7), memory_bytes: 1 << 20 });
    let device = Box::new(frugal.open());
    let config = SkimpyConfig {
        store_id: 1,
        seed: HashSeed(7),
        keys: 64,
        cache_bytes: 0,
        checkpoint_bytes: 0,
        ..SkimpyConfig::default()
    };
    let (frugal, _) = Skimpy::open(device, config).unwrap();
    Stores::new(store, dram).with_frugal(frugal)
}

/// What a look-up says. What has expired for every reader may have become a tombstone, which has the
/// same version and no expiry: collection decides when.
fn told(found: &Lookup<'_>, watermark: Timestamp) -> String {
    match *found {
        Lookup::Absent { version, expires_at } if expires_at.timestamp() <= watermark => {
            format!("{:?}", Lookup::Absent { version, expires_at: Expiry::NEVER })
        }
        _ => format!("{found:?}"),
    }
}

impl World {
    fn new() -> Self {
        let (full, frugal) = (media(), media());
        let store = open(&full, &frugal);
        Self { full, frugal, store, now: END }
    }

    /// Everything of a shard that was not durable is gone, or torn.
    fn power_cut(&mut self, seed: u64) {
        self.full.power_cut(seed);
        self.frugal.power_cut(seed.rotate_left(9));
        self.store = open(&self.full, &self.frugal);
    }

    fn pump(&mut self) -> Vec<StoreEvent> {
        self.now += 1_000_000;
        let mut events = Vec::new();
        self.store.pump(at(self.now), &mut events);
        events
    }

    fn patiently(&mut self, mut call: impl FnMut(&mut Stores) -> Result<(), StoreError>) {
        for _ in 0..100_000 {
            match call(&mut self.store) {
                Ok(()) => return,
                Err(StoreError::Busy) => drop(self.pump()),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("busy for ever");
    }

    fn sync(&mut self, batch: u64) {
        self.store.begin_batch(batch + 1);
        for _ in 0..10_000 {
            if self.store.stable_batch() >= batch {
                return;
            }
            self.store.sync_soon();
            self.pump();
        }
        panic!("never durable");
    }

    /// Puts, deletes, fences and values that expire, with a watermark somewhere among them, durably.
    fn fill(&mut self, keyspace: KeyspaceId, dice: &mut Dice) {
        self.store.begin_batch(1);
        for t in 1..400 {
            let version = Version::new(at(t), ClientId::new(1));
            let key = dice.below(KEYS).to_be_bytes();
            let kind = dice.below(100);
            let length = if kind < 5 { 30_000 } else { dice.below(2000) };
            let value = vec![t as u8; length as usize];
            let expires_at =
                if dice.chance(0.2) { Expiry::at(at(t + dice.below(300))) } else { Expiry::NEVER };
            self.patiently(|store| {
                let seed = store.seed();
                match kind {
                    98.. => store.fence(keyspace, version),
                    80..98 => store.delete(KeyRef::new(seed, keyspace, &key), version),
                    _ => store.put(KeyRef::new(seed, keyspace, &key), version, &value, expires_at),
                }
            });
            self.patiently(|store| {
                store.put(KeyRef::new(store.seed(), OTHER, &key), version, &value, Expiry::NEVER)
            });
        }
        self.store.advance_watermark(at(dice.below(400)));
        self.sync(1);
    }

    fn answer(&mut self, keyspace: KeyspaceId, key: &[u8], t: u64) -> String {
        let name = KeyRef::new(self.store.seed(), keyspace, key);
        let watermark = self.store.watermark();
        match self.store.get(name, at(t), ReadToken(t)) {
            Ok(Lookup::Pending) => {}
            Ok(found) => return told(&found, watermark),
            Err(error) => return error.to_string(),
        }
        for _ in 0..10_000 {
            for event in self.pump() {
                let StoreEvent::ReadDone { outcome, .. } = event else { continue };
                return match outcome {
                    ReadOutcome::Present { version, expires_at, value } => {
                        told(&Lookup::Present { version, expires_at, value: &value }, watermark)
                    }
                    ReadOutcome::Absent { version, expires_at } => {
                        told(&Lookup::Absent { version, expires_at }, watermark)
                    }
                    ReadOutcome::Failed(error) => error.to_string(),
                };
            }
        }
        panic!("never answered");
    }

    /// What every key answers at times from the watermark on.
    fn answers(&mut self, keyspace: KeyspaceId, watermark: Timestamp) -> Vec<String> {
        let mut all = Vec::new();
        for key in 0..KEYS {
            for t in (watermark.as_nanos()..END).step_by(17).chain([END]) {
                all.push(self.answer(keyspace, &key.to_be_bytes(), t));
            }
        }
        all
    }

    /// Copies, for so many turns at most; whether it is whole.
    fn copy(&mut self, (from, to): (KeyspaceId, KeyspaceId), batch: u64, turns: u64) -> bool {
        let mut copy = KeyspaceCopy::new(from, to, batch);
        for _ in 0..turns {
            self.now += 1_000_000;
            if copy.turn(at(self.now), &mut self.store).unwrap() {
                return true;
            }
        }
        false
    }

    fn end(&mut self, keyspace: KeyspaceId, batch: u64) {
        let mut end = KeyspaceEnd::new(keyspace, batch);
        for _ in 0..10_000 {
            self.now += 1_000_000;
            if end.turn(at(self.now), &mut self.store).unwrap() {
                return;
            }
        }
        panic!("it never ends");
    }
}

fn place(number: u32, from: KeyspaceId) -> KeyspaceId {
    KeyspaceId::place(number, !from.is_frugal())
}

/// A move that is cut off after a random number of turns, and begun anew, until one is whole; then
/// the power goes at once.
fn moved_through_power_cuts(from: KeyspaceId, seed: u64) -> Result<(), String> {
    let mut dice = Seed(seed).dice();
    let mut world = World::new();
    world.fill(from, &mut dice);
    let watermark = world.store.watermark();
    let before = world.answers(from, watermark);
    let mut number = 1;
    loop {
        let to = place(number, from);
        let turns = if number > 3 { u64::MAX } else { dice.below(60) };
        let is_whole = world.copy((from, to), 10, turns);
        world.power_cut(dice.roll());
        world.store.advance_watermark(watermark);
        if is_whole {
            break;
        }
        let left = world.answers(from, watermark);
        assert!(left == before, "what was there is left alone");
        number += 1;
    }
    let to = place(number, from);
    if world.answers(to, watermark) != before {
        return Err(format!("seed {seed}: a whole copy does not answer as its source"));
    }
    // What is left of it goes, and the attempts before, and the copy stays as it is.
    for (id, batch) in (1..number).map(|n| place(n, from)).chain([from]).zip((20..).step_by(2)) {
        world.end(id, batch);
    }
    world.power_cut(dice.roll());
    world.store.advance_watermark(watermark);
    for id in (1..number).map(|n| place(n, from)).chain([from]) {
        let left = world.answers(id, at(END));
        assert!(left.iter().all(|answer| answer.starts_with("Absent")), "{left:?}");
    }
    let places = Places::new([KeyspacePlace { keyspace: from, kept_as: to }]);
    world.store = open(&world.full, &world.frugal).with_places(places);
    world.store.advance_watermark(watermark);
    assert!(world.answers(from, watermark) == before, "by its own id");
    assert_eq!(world.store.kept_keyspaces(), {
        let mut kept = [from, OTHER];
        kept.sort_unstable();
        kept
    });
    Ok(())
}

#[test]
fn a_copy_answers_as_its_source_after_power_cuts_at_any_turn() {
    for seed in 0..6 {
        for from in [FULL, FRUGAL] {
            moved_through_power_cuts(from, seed).unwrap();
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_move_that_does_not_wait_for_the_device_is_found() {
    use timestone_types::planted::{self, Bug};

    planted::set(Some(Bug::MovesBeforeDurable));
    let found = (0..6).any(|seed| {
        [FULL, FRUGAL].iter().any(|&from| moved_through_power_cuts(from, seed).is_err())
    });
    planted::set(None);
    assert!(found);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_copy_without_tombstones_is_found() {
    use timestone_types::planted::{self, Bug};

    planted::set(Some(Bug::CheckpointWithoutTombstones));
    let found = (0..6).any(|seed| moved_through_power_cuts(FULL, seed).is_err());
    planted::set(None);
    assert!(found);
}

#[test]
fn a_device_without_room_is_told_and_the_source_is_left_alone() {
    let mut world = World::new();
    world.frugal = MemoryMedia::new(MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 20,
        max_blocks: 20,
        ..MemoryConfig::default()
    });
    world.store = open(&world.full, &world.frugal);
    world.store.begin_batch(1);
    for n in 0..400u64 {
        let version = Version::new(at(1 + n), ClientId::new(1));
        world.patiently(|store| {
            let key = n.to_be_bytes();
            let name = KeyRef::new(store.seed(), FULL, &key);
            store.put(name, version, &[n as u8; 3000], Expiry::NEVER)
        });
    }
    world.sync(1);
    let before = world.answers(FULL, at(END));
    let mut copy = KeyspaceCopy::new(FULL, place(1, FULL), 10);
    let mut turns = 0;
    let refused = loop {
        world.now += Duration::from_millis(1).as_nanos() as u64;
        match copy.turn(at(world.now), &mut world.store) {
            Ok(is_whole) => assert!(!is_whole, "there is no room for it"),
            Err(error) => break error,
        }
        turns += 1;
        assert!(turns < 100_000, "it is told some time");
    };
    assert!(refused.to_string().contains("the store is full"), "{refused}");
    assert_eq!(world.answers(FULL, at(END)), before);
}

#[test]
fn a_keyspace_without_anything_is_moved_and_makes_no_device() {
    let (full, _) = Mftl::open(
        Box::new(media().open()),
        MftlConfig { seed: HashSeed(7), ..MftlConfig::default() },
    )
    .unwrap();
    let dram = Dram::in_recovery(DramConfig { seed: HashSeed(7), memory_bytes: 1 << 20 });
    let open: OpenFrugal = Box::new(|_| Opening::Failed("nobody writes to it".to_owned()));
    let mut store = Stores::new(full, dram).with_frugal_later(open, 0);
    let mut copy = KeyspaceCopy::new(FULL, place(1, FULL), 1);
    let mut end = KeyspaceEnd::new(FULL, 3);
    let mut turns = (1..100).map(|turn| at(turn * 1_000_000));
    assert!(turns.by_ref().any(|now| copy.turn(now, &mut store).unwrap()));
    assert!(turns.by_ref().any(|now| end.turn(now, &mut store).unwrap()));
    assert_eq!(copy.copied(), (0, 0));
}

/// What a copy says that is made while pages of a store are not read.
fn copied_beside_unread(from: KeyspaceId) -> Result<(), String> {
    let mut world = World::new();
    world.fill(from, &mut Seed(3).dice());
    let medium = if from.is_frugal() { &world.frugal } else { &world.full };
    let holds = |page: &PageId| medium.page(*page).is_some_and(|bytes| bytes[6] != 0);
    // In the middle of the log, behind the first pages of blocks.
    let pages: Vec<PageId> = (0..8 * 120).map(PageId).filter(holds).collect();
    let middle = pages[pages.len() / 2].0 / 8 * 8;
    medium.fail_reads_of([PageId(middle + 2), PageId(middle + 3)]);
    world.store = open(&world.full, &world.frugal);
    world.full.clear_faults();
    world.frugal.clear_faults();
    assert!(world.store.unread_pages() > 0, "some were not read");
    let mut copy = KeyspaceCopy::new(from, place(1, from), 10);
    for _ in 0..100_000 {
        world.now += 1_000_000;
        match copy.turn(at(world.now), &mut world.store) {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    panic!("it never ends");
}

#[test]
fn nothing_is_copied_while_pages_are_not_read() {
    for from in [FULL, FRUGAL] {
        let refused = copied_beside_unread(from).unwrap_err();
        assert!(refused.contains("could not be read at the start"), "{refused}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_copy_beside_pages_that_were_not_read_is_found() {
    use timestone_types::planted::{Bug, with};

    for from in [FULL, FRUGAL] {
        assert_eq!(with(Bug::CopiesBesideUnread, || copied_beside_unread(from)), Ok(()));
    }
}

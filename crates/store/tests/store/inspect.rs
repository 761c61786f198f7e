//! What is told of a device's blocks without a store: everything that was put is found, damage is
//! told with its place, and no bytes whatever make it panic.

use std::path::Path;
use std::time::Duration;

use timestone_flash::{BlockId, FileConfig, FileDevice, FileImage, PAGE_BYTES};
use timestone_store::inspect::{self, BlockState, Kind, PageState, Survey};
use timestone_store::prelude::*;
use timestone_store::{Mftl, StoreEvent};
use timestone_types::random::Seed;
use timestone_types::{ClientId, Expiry, HashSeed, KeyRef, Timestamp, Version};

use crate::driver::{Driver, SPACE, at, config};

const PAGES: u32 = 8;
const BLOCKS: u32 = 40;
const KEYS: u64 = 60;

fn version(time: u64) -> Version {
    Version::new(at(time), ClientId::new(1))
}

/// Waits for a device that is a file.
fn until(driver: &mut Driver, mut done: impl FnMut(&mut Driver) -> bool) {
    for _ in 0..20_000 {
        driver.pump();
        if done(driver) {
            return;
        }
        driver.store.wait(Duration::from_millis(1));
    }
    panic!("the store has not got there");
}

/// A device with two versions of each key, a tombstone, an expiring value, a large value, a fence
/// of another keyspace and a checkpoint.
fn written(path: &Path) {
    let shape = FileConfig {
        pages_per_block: PAGES,
        initial_blocks: BLOCKS,
        ..FileConfig::new(path, BLOCKS)
    };
    let (store, _) = Mftl::open(Box::new(FileDevice::create(&shape).expect("a device")), config())
        .expect("a store");
    let mut driver = Driver::new(store);
    driver.now = 1_000_000_000;
    let seed = driver.store.seed();
    let key_of = |bytes: &'static [u8]| KeyRef::new(seed, SPACE, bytes);
    for round in 1..=2 {
        for key in 0..KEYS {
            let key = key.to_be_bytes();
            let key = KeyRef::new(seed, SPACE, &key);
            driver
                .store
                .put(key, version(round), &[round as u8; 300], Expiry::NEVER)
                .expect("room");
        }
    }
    let until_then = Expiry::at(Timestamp::from_nanos(77));
    driver.store.put(key_of(b"expiring"), version(3), b"soon", until_then).expect("room");
    driver.store.put(key_of(b"gone"), version(4), b"here", Expiry::NEVER).expect("room");
    driver.store.delete(key_of(b"gone"), version(5)).expect("room");
    driver.store.put(key_of(b"large"), version(6), &[7; 20_000], Expiry::NEVER).expect("room");
    driver.store.fence(timestone_types::KeyspaceId::new(2), version(7)).expect("room");
    driver.store.shutdown();
    until(&mut driver, |driver| {
        driver.events.iter().any(|event| matches!(event, StoreEvent::ShutDown))
    });
}

/// Every record that a key has, by version, and the sums of the device.
fn look(image: &FileImage) -> (Survey, Vec<inspect::BlockView>, Option<HashSeed>) {
    let (mut survey, mut views, mut seed) = (Survey::default(), Vec::new(), None);
    let (geometry, mut bytes) = (image.geometry(), Vec::new());
    for number in 0..geometry.blocks {
        let block = BlockId(number);
        image.read_block(block, &mut bytes).expect("a readable block");
        let identity = inspect::identity(&bytes);
        seed = seed.or(identity.map(|(_, seed)| seed));
        survey.add_identity(identity);
        let view = inspect::block(geometry, block, image.generation(block), &bytes);
        survey.add(&view);
        views.push(view);
    }
    (survey, views, seed)
}

fn versions_of(views: &[inspect::BlockView], seed: HashSeed, key: &[u8]) -> Vec<(Version, Kind)> {
    let records = views.iter().flat_map(|view| &view.pages).flat_map(|page| &page.records);
    let contents = records.filter_map(|record| record.contents.as_ref());
    let of = contents.filter(|contents| inspect::is_of(contents, SPACE, key, seed));
    let mut found: Vec<_> = of.map(|contents| (contents.version, contents.kind)).collect();
    found.sort_by_key(|&(version, _)| core::cmp::Reverse(version));
    found
}

#[test]
fn what_was_put_is_found_in_the_blocks_and_its_sums_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    written(&path);
    let image = FileImage::open(&path).unwrap();
    let (survey, views, seed) = look(&image);
    let seed = seed.unwrap();
    assert_eq!((survey.damage_count, survey.stores.len()), (0, 1), "{:?}", survey.damage);
    assert_eq!(survey.records, 2 * KEYS + 5);
    assert_eq!((survey.tombstones, survey.expiring), (1, 1));
    assert_eq!(survey.fences.len(), 1);
    assert_eq!(survey.versions, Some((at(1), at(7))));
    assert!(survey.checkpoints.values().any(inspect::CheckpointPages::is_whole));
    let keys = survey.keys();
    assert_eq!((keys.keys, keys.present), (KEYS + 3, KEYS + 2));
    assert!(keys.live_bytes > KEYS * 300 + 20_000 && keys.dead_bytes > KEYS * 300);
    assert_eq!(survey.blocks.values().sum::<u64>(), u64::from(BLOCKS));
    assert_eq!(survey.erases, vec![0; BLOCKS as usize]);
    let key = 5u64.to_be_bytes();
    let found = versions_of(&views, seed, &key);
    assert_eq!(found, [(version(2), Kind::Value), (version(1), Kind::Value)]);
    let found = versions_of(&views, seed, b"gone");
    assert_eq!(found, [(version(5), Kind::Tombstone), (version(4), Kind::Value)]);
    assert_eq!(versions_of(&views, seed, b"large"), [(version(6), Kind::Large)]);
    assert_eq!(versions_of(&views, seed, b"nobody"), []);
    let large = views.iter().flat_map(|view| &view.pages).flat_map(|page| &page.records);
    let large = large.filter_map(|record| record.contents.as_ref());
    let large = large.into_iter().find(|contents| contents.kind == Kind::Large).unwrap();
    assert_eq!((large.key_bytes, large.value_bytes), (5, 20_000));
}

#[test]
fn damage_is_told_with_its_place_and_the_rest_is_still_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    written(&path);
    let image = FileImage::open(&path).unwrap();
    let (before, views, _) = look(&image);
    // The last byte of the first record of a page that another one follows.
    let holds = |view: &&inspect::BlockView| {
        view.pages.len() > 2 && view.pages[1].state == PageState::Records
    };
    let block = views.iter().find(holds).unwrap().block;
    let records = views[block.0 as usize].pages[0].records.len() as u64;
    let mut bytes = std::fs::read(&path).unwrap();
    let page = image.layout().block_offset(block.0) as usize;
    bytes[page + 48 + 60] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (survey, ..) = look(&FileImage::open(&path).unwrap());
    let [damage] = survey.damage.as_slice() else { panic!("{:?}", survey.damage) };
    assert_eq!((damage.block, damage.page, damage.slot), (block, 0, Some(0)));
    assert_eq!(survey.records, before.records - 1);
    // The page's header: all of its records are out of reach, and sound pages follow.
    bytes[page + 30] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (survey, views, _) = look(&FileImage::open(&path).unwrap());
    let [damage] = survey.damage.as_slice() else { panic!("{:?}", survey.damage) };
    assert_eq!((damage.block, damage.page, damage.slot), (block, 0, None));
    assert_eq!(views[block.0 as usize].state, BlockState::Damaged);
    assert_eq!((survey.records, survey.torn_tails), (before.records - records, 0));
}

#[test]
fn a_device_that_was_cut_short_is_told_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    written(&path);
    let image = FileImage::open(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let (before, views, _) = look(&image);
    let last = views.iter().rposition(|view| view.state != BlockState::Free).unwrap() as u32;
    let cut = image.layout().block_offset(last) as usize + PAGE_BYTES / 2;
    std::fs::write(&path, &whole[..cut]).unwrap();
    let image = FileImage::open(&path).unwrap();
    assert!(image.damage().iter().any(|damage| damage.contains("cut short")));
    let (survey, ..) = look(&image);
    assert!(survey.records <= before.records);
    assert!(survey.damage.iter().any(|damage| damage.block == BlockId(last)), "{survey:?}");
}

#[test]
fn no_corruption_whatever_makes_it_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    written(&path);
    let whole = std::fs::read(&path).unwrap();
    let layout = FileImage::open(&path).unwrap().layout();
    let damaged = folder.path().join("damaged");
    let mut looked = 0;
    for round in 0..150 {
        let mut dice = Seed(round).dice();
        let mut bytes = whole.clone();
        // Bytes of headers and of directories are met as often as all others together.
        for _ in 0..1 + dice.below(60) {
            let page = dice.below(bytes.len() as u64 / PAGE_BYTES as u64) as usize * PAGE_BYTES;
            let at = match dice.below(4) {
                0 => dice.below(PAGE_BYTES as u64),
                1 => dice.below(96),
                2 => PAGE_BYTES as u64 - 1 - dice.below(64),
                _ => 48 + dice.below(100),
            };
            bytes[page + at as usize] = dice.below(256) as u8;
        }
        // Headers that check out, over contents that need not.
        for page in bytes[layout.data_start() as usize..].chunks_exact_mut(PAGE_BYTES) {
            if round % 2 == 0 && page[0] == b'T' && dice.below(3) == 0 {
                reseal(page);
            }
        }
        if dice.below(4) == 0 {
            bytes.truncate(dice.below(bytes.len() as u64) as usize);
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let Ok(image) = FileImage::open(&damaged) else { continue };
        let (survey, views, seed) = look(&image);
        let _ = (survey.keys(), versions_of(&views, seed.unwrap_or_default(), b"large"));
        looked += 1;
    }
    assert!(looked > 75, "most devices could be looked at: {looked}");
}

/// Fills in the checksum of a page of records, wherever its counts allow one.
fn reseal(page: &mut [u8]) {
    let slots = usize::from(u16::from_le_bytes([page[20], page[21]])) * 4;
    let crc = match page[6] {
        1 | 2 if slots <= PAGE_BYTES - 48 => {
            let head = crc32c::crc32c(&page[12..48]);
            crc32c::crc32c_append(head, &page[PAGE_BYTES - slots..])
        }
        _ => crc32c::crc32c(&page[12..]),
    };
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}

//! Every bit of a small store flips in turn: noticed, or harmless; never a wrong answer, never a
//! panic.
//!
//! Noticed is: the store does not open, says so, or counts it in its recovery report, or the read
//! says that the record is corrupt. Only then may something be missing; what is answered was
//! written, always.
//!
//! `TIMESTONE_TEST_SWEEP=full cargo test -p timestone-store --release bits` flips every bit;
//! otherwise every one of headers and slots, and some of the rest.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use timestone_flash::{FileConfig, FileDevice, FlashDevice, MemoryMedia, PAGE_BYTES, PageId};
use timestone_store::prelude::*;
use timestone_store::{Mftl, ScanLimit, StoreError};
use timestone_types::{KeyspaceId, Version};

use crate::driver::{Driver, Got, ORDERED, SPACE, at, config, media, open, version};
use crate::scores::{Score, keep, sweep_is_full as full};

const PAGE_BITS: usize = PAGE_BYTES * 8;
/// Version 10 and 20 of each key; the last ones are tombstones, an expiring one, large ones.
const KEYS: u64 = 12;

type Model = BTreeMap<(u64, u64), Option<Vec<u8>>>;

fn content(key: u64, time: u64) -> Option<Vec<u8>> {
    let size = match (key, time) {
        (9, 20) => return None,
        (10, _) => 9000 + time as usize,
        (11, 20) => 4500,
        _ => 100 + (key * 37 + time) as usize,
    };
    Some((0..size).map(|n| (n as u64 * 7 + key * 31 + time) as u8).collect())
}

fn write(driver: &mut Driver<Mftl>, model: &mut Model, time: u64) {
    for key in 0..KEYS {
        let value = content(key, time);
        match &value {
            Some(bytes) => driver.put(&key.to_be_bytes(), time, bytes),
            None => driver.delete(&key.to_be_bytes(), time),
        }
        driver.pump();
        model.insert((key, time), value);
    }
}

/// What reads at these times must answer.
fn expected(model: &Model, key: u64, nanos: u64) -> Got {
    match model.range((key, 0)..=(key, nanos)).next_back() {
        Some((&(_, time), Some(value))) => Got::Value(version(time), value.clone()),
        Some((&(_, time), None)) => Got::Absent(version(time)),
        None => Got::Absent(Version::ZERO),
    }
}

#[derive(Default, Debug)]
struct Outcomes {
    refused: u32,
    reported: u32,
    read_errors: u32,
    harmless: u32,
}

impl Outcomes {
    /// Writes them down for the scorecard.
    fn keep(&self) {
        let detected = self.refused + self.reported + self.read_errors;
        let scores = [
            ("of", Score::Name("`store`: device, checkpoint and file images of small stores")),
            ("detected", Score::Count(detected.into())),
            ("harmless", Score::Count(self.harmless.into())),
            ("full", Score::Count(full().into())),
        ];
        keep("flipped bits", &scores);
    }
}

/// Opens the damaged store and reads everything.
fn probe(
    device: Box<dyn FlashDevice>,
    (model, space): (&Model, KeyspaceId),
    outcomes: &mut Outcomes,
    what: &str,
) {
    let (store, report) = match Mftl::open(device, config()) {
        Ok(opened) => opened,
        Err(_) => return outcomes.refused += 1,
    };
    let mut driver = Driver::new(store);
    driver.space = space;
    let (mut wrong, mut errors) = (0, 0);
    for nanos in [15, 25].into_iter().filter(|_| space.is_ordered()) {
        match range_is_right(&mut driver, model, nanos, what) {
            Ok(is_right) => wrong += u32::from(!is_right),
            Err(StoreError::Corrupt { .. }) => errors += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    for key in 0..KEYS {
        for nanos in [15, 25] {
            match driver.try_get_in(space, &key.to_be_bytes(), nanos) {
                Ok(got) if got == expected(model, key, nanos) => {}
                Ok(Got::Value(found, value)) => {
                    let time = found.timestamp.as_nanos();
                    assert_eq!(
                        model.get(&(key, time)),
                        Some(&Some(value)),
                        "{what}: a value that nobody wrote"
                    );
                    wrong += 1;
                }
                Ok(Got::Absent(found)) => {
                    let tombstone = model.get(&(key, found.timestamp.as_nanos())) == Some(&None);
                    assert!(found == Version::ZERO || tombstone, "{what}: {found}");
                    wrong += 1;
                }
                Err(StoreError::Corrupt { .. }) => errors += 1,
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
    assert!(
        wrong == 0 || report.met_damage(),
        "{what}: {wrong} wrong answers and nobody noticed: {report:?}"
    );
    // It goes on being a store: writing, collecting and checkpointing meet the damage as well.
    driver.put(b"more", 30, b"value");
    driver.store.advance_watermark(at(14));
    driver.checkpoint();
    assert_eq!(driver.value(b"more", 31), Some(b"value".to_vec()), "{what}");
    match (report.met_damage(), errors) {
        (true, _) => outcomes.reported += 1,
        (false, 0) => outcomes.harmless += 1,
        (false, _) => outcomes.read_errors += 1,
    }
}

/// Whether a range finds what gets should find; whatever it finds was written.
fn range_is_right(
    driver: &mut Driver<Mftl>,
    model: &Model,
    nanos: u64,
    what: &str,
) -> Result<bool, StoreError> {
    let limit = ScanLimit { keys: 1000, bytes: usize::MAX };
    let (entries, next) = driver.try_range((&[], None), nanos, limit)?;
    assert_eq!(next, None, "{what}: all of it");
    let found: Vec<_> = entries.iter().map(|entry| (entry.key.to_vec(), entry.version)).collect();
    for (key, version) in &found {
        let key = u64::from_be_bytes(key.as_slice().try_into().expect("a key that was written"));
        let written = model.get(&(key, version.timestamp.as_nanos()));
        assert!(written.is_some_and(Option::is_some), "{what}: an entry that nobody wrote");
    }
    let all = (0..KEYS).filter_map(|key| match expected(model, key, nanos) {
        Got::Value(version, _) => Some((key.to_be_bytes().to_vec(), version)),
        Got::Absent(_) => None,
    });
    Ok(found.into_iter().eq(all))
}

/// Bits of a page to be flipped: all of them, or those of the header and the slots and some of the
/// rest.
fn bits(page: u32) -> impl Iterator<Item = usize> {
    let all = full();
    let step = 199 + page as usize % 7;
    (0..PAGE_BITS).filter(move |bit| {
        all || bit % step == 0 || (*bit < 48 * 8 && bit % 5 == page as usize % 5)
    })
}

fn sweep(media: &MemoryMedia, model: (&Model, KeyspaceId), pages: u32) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut sound = Outcomes::default();
    probe(Box::new(media.copy().open()), model, &mut sound, "undamaged");
    assert_eq!((sound.harmless, sound.refused), (1, 0), "the store is sound at first");
    for page in 0..pages {
        for bit in bits(page) {
            let damaged = media.copy();
            if !damaged.flip_bit(PageId(page), bit) {
                break;
            }
            probe(
                Box::new(damaged.open()),
                model,
                &mut outcomes,
                &format!("page {page} bit {bit}"),
            );
        }
    }
    outcomes
}

#[test]
fn bits_of_a_store_that_was_synced_and_died() {
    let media = media(4, 24);
    let mut model = Model::new();
    let (mut driver, _) = open(&media, config());
    write(&mut driver, &mut model, 10);
    write(&mut driver, &mut model, 20);
    driver.sync();
    drop(driver);
    let outcomes = sweep(&media, (&model, SPACE), 96);
    assert!(outcomes.reported > 1000 && outcomes.harmless > 100, "{outcomes:?}");
    outcomes.keep();
}

#[test]
fn bits_of_a_store_that_was_shut_down() {
    let media = media(4, 24);
    let mut model = Model::new();
    let (mut driver, _) = open(&media, config());
    write(&mut driver, &mut model, 10);
    write(&mut driver, &mut model, 20);
    driver.shut_down();
    drop(driver);
    let outcomes = sweep(&media, (&model, SPACE), 96);
    assert!(outcomes.reported > 100 && outcomes.read_errors > 1000, "{outcomes:?}");
    outcomes.keep();
}

#[test]
fn bits_of_a_store_that_died_behind_its_checkpoint() {
    let media = media(4, 24);
    let mut model = Model::new();
    let (mut driver, _) = open(&media, config());
    write(&mut driver, &mut model, 10);
    driver.checkpoint();
    write(&mut driver, &mut model, 20);
    driver.sync();
    drop(driver);
    let outcomes = sweep(&media, (&model, SPACE), 96);
    assert!(outcomes.reported > 1000 && outcomes.read_errors > 100, "{outcomes:?}");
    outcomes.keep();
}

#[test]
fn bits_of_a_store_in_order_that_died_behind_its_checkpoint() {
    let media = media(4, 24);
    let mut model = Model::new();
    let (mut driver, _) = open(&media, config());
    driver.space = ORDERED;
    write(&mut driver, &mut model, 10);
    driver.checkpoint();
    write(&mut driver, &mut model, 20);
    driver.sync();
    drop(driver);
    let outcomes = sweep(&media, (&model, ORDERED), 96);
    assert!(outcomes.reported > 1000 && outcomes.read_errors > 100, "{outcomes:?}");
    outcomes.keep();
}

#[test]
fn bits_of_a_device_file() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = FileConfig {
        pages_per_block: 4,
        initial_blocks: 12,
        ..FileConfig::new(folder.path().join("shard.flash"), 12)
    };
    let mut model = Model::new();
    let device = FileDevice::open_or_create(&file).expect("a device").0;
    let mut driver = Driver::new(Mftl::open(Box::new(device), config()).expect("opens").0);
    write(&mut driver, &mut model, 10);
    write(&mut driver, &mut model, 20);
    driver.shut_down();
    drop(driver);
    let image = std::fs::read(&file.path).expect("readable");
    let used: Vec<usize> = (0..image.len() / PAGE_BYTES)
        .filter(|page| image[page * PAGE_BYTES..][..PAGE_BYTES].iter().any(|&byte| byte != 0))
        .collect();
    let mut outcomes = Outcomes::default();
    for &page in &used {
        let step = if full() { 1 } else { 2401 };
        for bit in
            (0..PAGE_BITS).filter(|bit| bit % step == 0 || (page < 8 && *bit < 320 && bit % 3 == 0))
        {
            // Opening repairs and the probe writes: each bit gets the file as it was.
            std::fs::write(&file.path, &image).expect("restored");
            let byte = page * PAGE_BYTES + bit / 8;
            let handle = std::fs::OpenOptions::new().write(true).open(&file.path).expect("opens");
            handle.write_at(&[image[byte] ^ 1 << (bit % 8)], byte as u64).expect("flipped");
            drop(handle);
            let what = format!("page {page} of the file, bit {bit}");
            match FileDevice::open_or_create(&file) {
                Ok((device, _)) => probe(Box::new(device), (&model, SPACE), &mut outcomes, &what),
                Err(_) => outcomes.refused += 1,
            }
        }
    }
    // Superblock and table have twins: damage of one copy is repaired.
    assert!(
        used.len() > 8 && outcomes.harmless > 100 && outcomes.read_errors > 100,
        "{outcomes:?}"
    );
    outcomes.keep();
}

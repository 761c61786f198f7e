//! Pages that one start could not read are there at a start that reads them, whatever was done between.

use timestone_flash::{MemoryMedia, PageId};
use timestone_store::prelude::*;
use timestone_store::{Mftl, Skimpy, SkimpyConfig};

use crate::driver::{Driver, Got, SPACE, Survives, at, config, media, open};
use crate::frugal::{frugal, open_chained, open_with};

const PAGES_PER_BLOCK: u32 = 32;
const BLOCKS: u32 = 24;
const KEYS: u64 = 1200;
/// Above all versions.
const LATE: u64 = 1 << 20;

fn open_any<S: Survives>(media: &MemoryMedia) -> Driver<S> {
    S::open_on(media, config(), false).expect("opens").0
}

/// A medium with all keys at 10. No checkpoint.
fn with_keys<S: Survives>() -> MemoryMedia {
    let media = media(PAGES_PER_BLOCK, BLOCKS);
    let mut driver = open_any::<S>(&media);
    (0..KEYS).for_each(|n| put(&mut driver, n, 10));
    driver.sync();
    media
}

/// Puts a key as soon as there is room.
fn put<S: Store>(driver: &mut Driver<S>, n: u64, nanos: u64) {
    for _ in 0..10_000 {
        let done = driver.try_put(&n.to_be_bytes(), nanos, &[b'v'; 450]);
        driver.pump();
        if done.is_ok() {
            return;
        }
    }
    panic!("no room");
}

/// Other keys are put, so that blocks are collected; deletions up to then may be forgotten.
fn churn<S: Store>(driver: &mut Driver<S>, from: u64, puts: u64) {
    driver.store.advance_watermark(at(LATE));
    driver.store.advance_replay_floor(at(LATE));
    (0..puts).for_each(|n| put(driver, 10_000 + n % 30, from + n));
}

fn is_there<S: Store>(driver: &mut Driver<S>, n: u64) -> bool {
    matches!(driver.try_get_in(SPACE, &n.to_be_bytes(), LATE), Ok(Got::Value(..)))
}

/// Some pages in the middle of each block, and its last ones.
fn parts_of_blocks() -> impl Iterator<Item = Vec<PageId>> {
    let parts = |block| [block + 10..block + 13, block + 29..block + 32];
    let blocks = (0..BLOCKS).map(|number| number * PAGES_PER_BLOCK);
    blocks.flat_map(parts).map(|part| part.map(PageId).collect())
}

/// How many keys are away at a start that cannot read some pages, and how many of them at the next one, which
/// can. Between the two, all others die and their blocks are collected, if it `collects`; and the store
/// `stops` with a checkpoint, or ends without one.
fn lost<S: Survives>(collects: bool, stops: bool) -> (usize, usize) {
    let whole = with_keys::<S>();
    let (mut away, mut lost) = (0, 0);
    for pages in parts_of_blocks() {
        let media = whole.copy();
        media.fail_reads_of(pages);
        let mut driver = open_any::<S>(&media);
        media.clear_faults();
        let (found, missing): (Vec<u64>, Vec<u64>) =
            (0..KEYS).partition(|&n| is_there(&mut driver, n));
        if missing.is_empty() {
            continue;
        }
        if collects {
            found.iter().for_each(|&n| put(&mut driver, n, 30));
            churn(&mut driver, 50, 8000);
        }
        if stops {
            driver.shut_down();
        } else {
            driver.sync();
        }
        drop(driver);
        let mut driver = open_any::<S>(&media);
        away += missing.len();
        lost += missing.iter().filter(|&&n| !is_there(&mut driver, n)).count();
        assert!(found.iter().all(|&n| is_there(&mut driver, n)), "what was there is there");
    }
    (away, lost)
}

fn nothing_is_lost<S: Survives>() {
    for (collects, stops) in [(false, true), (true, false), (true, true)] {
        let (away, lost) = lost::<S>(collects, stops);
        assert!(away > 100, "{away} keys were away");
        assert_eq!(lost, 0, "of {away}; collection: {collects}, a checkpoint: {stops}");
    }
}

/// The same of large values: pages with their heads are not read once. If they have `moved`, a checkpoint names
/// the heads that they had before.
fn lost_large<S: Survives>(moved: bool) -> (usize, usize) {
    const PART: u8 = 3;
    const CHECKPOINT: u8 = 4;
    let large = |driver: &mut Driver<S>, n: u64, nanos| {
        driver.put(&n.to_be_bytes(), nanos, &[b'v'; 18_000]);
        driver.pumps(4);
    };
    let whole = media(8, 96);
    let heads = || -> Vec<(PageId, Vec<u8>)> {
        let page = |page| Some((page, whole.page(page)?));
        let pages = (0..8 * 96).map(PageId).filter_map(page);
        pages.filter(|(_, bytes)| ![0, PART, CHECKPOINT].contains(&bytes[6])).collect()
    };
    let mut driver = open_any::<S>(&whole);
    let mut before = Vec::new();
    if moved {
        // Their parts lie beside those of values that die, their heads beside what stays.
        for n in 0..80 {
            (0..4).for_each(|small| put(&mut driver, 30_000 + 4 * n + small, 10));
            large(&mut driver, if n % 2 == 0 { n / 2 } else { 20_000 + n }, 10);
        }
        driver.sync();
        driver.checkpoint();
        before = heads();
        driver.store.advance_watermark(at(LATE));
        (0..80u64).for_each(|n| driver.delete(&(20_000 + n).to_be_bytes(), 15));
        (0..100).for_each(|n| large(&mut driver, 10_000 + n % 10, 20 + n));
    } else {
        (0..40).for_each(|n| large(&mut driver, n, 10));
    }
    driver.sync();
    drop(driver);
    let mut heads = heads();
    heads.retain(|head| !before.contains(head));
    let heads: Vec<PageId> = heads.into_iter().map(|(page, _)| page).collect();
    assert!(!heads.is_empty(), "there are heads");
    let (mut away, mut lost) = (0, 0);
    for page in heads {
        let media = whole.copy();
        media.fail_reads_of([page]);
        let mut driver = open_any::<S>(&media);
        media.clear_faults();
        let (found, missing): (Vec<u64>, Vec<u64>) =
            (0..40).partition(|&n| is_there(&mut driver, n));
        if missing.is_empty() {
            continue;
        }
        driver.store.advance_watermark(at(LATE));
        found.iter().for_each(|&n| large(&mut driver, n, 300));
        (0..400).for_each(|n| large(&mut driver, 10_000 + n % 10, 350 + n));
        driver.sync();
        drop(driver);
        let mut driver = open_any::<S>(&media);
        away += missing.len();
        lost += missing.iter().filter(|&&n| !is_there(&mut driver, n)).count();
        assert!(found.iter().all(|&n| is_there(&mut driver, n)), "what was there is there");
    }
    assert!(away > 0, "no head was away");
    (away, lost)
}

#[test]
fn parts_of_large_values_whose_heads_were_not_read_once_stay() {
    for moved in [false, true] {
        assert_eq!(lost_large::<Mftl>(moved).1, 0, "mftl, moved: {moved}");
        assert_eq!(lost_large::<Skimpy>(moved).1, 0, "skimpy, moved: {moved}");
    }
}

#[test]
fn pages_that_were_not_read_once_are_there_at_the_next_start() {
    nothing_is_lost::<Mftl>();
}

#[test]
fn so_are_those_of_a_store_with_its_index_on_flash() {
    nothing_is_lost::<Skimpy>();
}

/// Takes all checkpoints from a medium, so that everything is scanned.
fn forget_checkpoints(media: &MemoryMedia) {
    const CHECKPOINT: u8 = 4;
    let is_of_checkpoint =
        |page: &PageId| media.page(*page).is_some_and(|bytes| bytes[6] == CHECKPOINT);
    let all: Vec<PageId> =
        (0..BLOCKS * PAGES_PER_BLOCK).map(PageId).filter(is_of_checkpoint).collect();
    assert!(!all.is_empty(), "there was a checkpoint");
    all.into_iter().for_each(|page| media.set_page(page, &[0; 4096]));
}

/// How many keys come back that were deleted while their pages could not be read, over two starts with a
/// checkpoint between them.
fn come_back<S: Survives>() -> usize {
    let whole = with_keys::<S>();
    let (mut deleted, mut back) = (0, 0);
    for pages in parts_of_blocks() {
        let media = whole.copy();
        media.fail_reads_of(pages);
        let mut driver = open_any::<S>(&media);
        let missing: Vec<u64> = (0..KEYS).filter(|&n| !is_there(&mut driver, n)).collect();
        if missing.is_empty() {
            continue;
        }
        missing.iter().for_each(|n| driver.delete(&n.to_be_bytes(), 40));
        driver.shut_down();
        drop(driver);
        let mut driver = open_any::<S>(&media);
        churn(&mut driver, 50, 8000);
        driver.shut_down();
        drop(driver);
        media.clear_faults();
        let mut driver = open_any::<S>(&media);
        deleted += missing.len();
        back += missing.iter().filter(|&&n| is_there(&mut driver, n)).count();
        drop(driver);
        forget_checkpoints(&media);
        let mut driver = open_any::<S>(&media);
        back += missing.iter().filter(|&&n| is_there(&mut driver, n)).count();
    }
    assert!(deleted > 100, "{deleted} keys were deleted");
    back
}

#[test]
fn what_is_deleted_while_its_page_is_not_read_stays_deleted() {
    assert_eq!(come_back::<Mftl>(), 0);
    assert_eq!(come_back::<Skimpy>(), 0);
}

/// A page that is never read costs each start with a checkpoint that page, and what it holds counts once
/// when it is read.
#[test]
fn only_what_was_not_read_is_scanned_again() {
    let whole = with_keys::<Mftl>();
    let mut scanned = 0;
    for pages in parts_of_blocks() {
        let media = whole.copy();
        media.fail_reads_of(pages);
        let mut driver = open_any::<Mftl>(&media);
        let missing: Vec<u64> = (0..KEYS).filter(|&n| !is_there(&mut driver, n)).collect();
        if missing.is_empty() {
            continue;
        }
        for _ in 0..2 {
            driver.shut_down();
            drop(driver);
            let report;
            (driver, report) = open(&media, config());
            assert!(report.checkpoint.is_some() && report.met_damage(), "{report:?}");
            assert_eq!((report.scanned_records, report.corrupt_pages), (0, 3), "{report:?}");
        }
        driver.shut_down();
        drop(driver);
        media.clear_faults();
        let (mut driver, report) = open(&media, config());
        assert!(!report.met_damage(), "{report:?}");
        assert_eq!(report.scanned_records, missing.len() as u64, "{report:?}");
        driver.shut_down();
        drop(driver);
        let (mut driver, report) = open(&media, config());
        assert_eq!(report.scanned_records, 0, "{report:?}");
        assert!((0..KEYS).all(|n| is_there(&mut driver, n)));
        scanned += 1;
    }
    assert!(scanned > 4, "{scanned} parts of blocks");
}

/// A version is not read at one start, where an older and a younger one than it are put: what is read there
/// at the next one.
fn beside_a_version_that_was_not_read() -> [Option<Vec<u8>>; 3] {
    let media = media(8, 20);
    let mut driver = open_chained(&media, 2).0;
    (0..20u64).for_each(|n| driver.put(&n.to_be_bytes(), 5, &[b'v'; 450]));
    driver.put(b"x", 10, b"oldest");
    driver.put(b"y", 10, b"oldest");
    driver.sync();
    driver.put(b"x", 20, b"not read once");
    driver.put(b"y", 20, b"not read once");
    driver.sync();
    drop(driver);
    let has_it = |page: &PageId| {
        let bytes = media.page(*page).unwrap_or_default();
        bytes.windows(13).any(|bytes| bytes == b"not read once")
    };
    let pages: Vec<PageId> = (0..8 * 20).map(PageId).filter(has_it).collect();
    assert!(!pages.is_empty(), "it is on flash");
    media.fail_reads_of(pages);
    let mut driver = open_chained(&media, 2).0;
    assert_eq!(driver.value(b"x", 50).as_deref(), Some(&b"oldest"[..]));
    driver.put(b"x", 15, b"late");
    driver.put(b"y", 30, b"youngest");
    driver.sync();
    drop(driver);
    media.clear_faults();
    let mut driver = open_chained(&media, 2).0;
    [driver.value(b"x", 50), driver.value(b"y", 25), driver.value(b"y", 50)]
}

#[test]
fn a_version_that_was_not_read_once_has_its_place_among_the_others() {
    let expected = [&b"not read once"[..], b"not read once", b"youngest"];
    assert_eq!(beside_a_version_that_was_not_read(), expected.map(|value| Some(value.to_vec())));
}

/// What happens at a start that does not read a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// A version comes late that the deletion is younger than.
    LatePut,
    /// The same; and what lies behind the tombstone in the log was put before, and the bucket cannot be put
    /// together.
    LatePutInPieces,
    /// The block of the loose version leaves the log.
    Collection,
}

/// What a start finds of a deleted key, where the one before did not read the tombstone and knew a loose version.
fn beside_a_tombstone_that_was_not_read(meanwhile: Meanwhile) -> Option<Vec<u8>> {
    const PAGES: u32 = 8 * 20;
    let media = media(8, 20);
    let open = || open_with(&media, SkimpyConfig { keys: 2, ..frugal(config()) }).0;
    let mut driver = open();
    (0..20u64).for_each(|n| driver.put(&n.to_be_bytes(), 5, &[b'v'; 450]));
    driver.put(b"x", 5, b"in the chain");
    driver.put(b"x", 10, b"loose");
    driver.sync();
    let written = |page: &PageId| media.page(*page).is_some();
    let before: Vec<PageId> = (0..PAGES).map(PageId).filter(written).collect();
    driver.delete(b"x", 20);
    driver.sync();
    let is_new = |page: &PageId| written(page) && !before.contains(page);
    let pages: Vec<PageId> = (0..PAGES).map(PageId).filter(is_new).collect();
    assert!(!pages.is_empty(), "it is on flash");
    if meanwhile == Meanwhile::LatePutInPieces {
        (100..110u64).for_each(|n| driver.put(&n.to_be_bytes(), 21, b"behind it"));
        driver.sync();
    }
    drop(driver);
    media.fail_reads_of(pages);
    let mut driver = open();
    if meanwhile != Meanwhile::LatePutInPieces {
        assert_eq!(driver.value(b"x", 50).as_deref(), Some(&b"loose"[..]));
    }
    match meanwhile {
        Meanwhile::Collection => churn(&mut driver, 50, 3000),
        Meanwhile::LatePut => driver.put(b"x", 15, b"late"),
        Meanwhile::LatePutInPieces => {
            media.fail_reads_of(before);
            driver.put(b"x", 15, b"late");
        }
    }
    driver.sync();
    drop(driver);
    media.clear_faults();
    open().value(b"x", LATE)
}

#[test]
fn a_deletion_that_was_not_read_once_hides_what_is_older() {
    for meanwhile in [Meanwhile::LatePut, Meanwhile::LatePutInPieces, Meanwhile::Collection] {
        assert_eq!(beside_a_tombstone_that_was_not_read(meanwhile), None, "{meanwhile:?}");
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    #[test]
    fn a_loose_version_beside_what_was_not_read_is_found() {
        let found = with(Bug::LooseBesideUnread, || {
            beside_a_tombstone_that_was_not_read(Meanwhile::LatePut)
        });
        assert_eq!(found.as_deref(), Some(&b"late"[..]));
    }

    #[test]
    fn a_put_that_leads_a_chain_beside_what_was_not_read_is_found() {
        let found = with(Bug::LeadsBesideUnread, || {
            beside_a_tombstone_that_was_not_read(Meanwhile::LatePutInPieces)
        });
        assert_eq!(found.as_deref(), Some(&b"late"[..]));
    }

    /// Whether a behaviour fails, or loses something, with a bug.
    fn is_found(bug: Bug, behaviour: fn() -> (usize, usize)) -> bool {
        let found = std::panic::catch_unwind(|| with(bug, behaviour));
        set(None);
        found.map_or(true, |(_, lost)| lost > 0)
    }

    #[test]
    fn a_checkpoint_that_forgets_what_was_not_read_is_found() {
        assert!(is_found(Bug::ForgetsUnread, || lost::<Mftl>(false, true)));
        assert!(is_found(Bug::ForgetsUnread, || lost::<Skimpy>(false, true)));
    }

    /// (With an index on flash, collection meets the page that is not read, and forgets none.)
    #[test]
    fn deletions_that_are_forgotten_with_such_a_checkpoint_are_found() {
        assert!(is_found(Bug::ForgetsUnread, || (0, come_back::<Mftl>())));
    }

    #[test]
    fn a_block_that_is_erased_with_what_was_not_read_is_found() {
        assert!(is_found(Bug::ErasesUnread, || lost::<Mftl>(true, false)));
        assert!(is_found(Bug::ErasesUnread, || lost::<Skimpy>(true, false)));
    }

    #[test]
    fn parts_that_are_erased_before_their_heads_are_read_are_found() {
        assert!(is_found(Bug::DropsHeadless, || lost_large::<Mftl>(false)));
        assert!(is_found(Bug::DropsHeadless, || lost_large::<Skimpy>(false)));
    }

    #[test]
    fn parts_that_are_taken_for_those_of_a_head_that_is_void_are_found() {
        assert!(is_found(Bug::TrustsVoidHeads, || lost_large::<Skimpy>(true)));
    }

    #[test]
    fn a_chain_that_makes_void_what_it_does_not_have_is_found() {
        assert!(is_found(Bug::VoidsUnread, || lost::<Skimpy>(true, false)));
    }

    #[test]
    fn a_bucket_in_pieces_whose_order_is_trusted_is_found() {
        let found = with(Bug::TrustsPieces, beside_a_version_that_was_not_read);
        set(None);
        assert_ne!(found[0].as_deref(), Some(&b"not read once"[..]));
    }
}

//! What crashes leave of rewritten chains of the store with its index on flash, and rooms that are
//! hardly large enough for rewriting.

use timestone_flash::{MemoryMedia, PageId};
use timestone_store::prelude::*;
use timestone_store::{Figure, Lookup, ReadOutcome, ReadToken, Skimpy, StoreError, StoreEvent};

use crate::driver::{Driver, Got, SPACE, at, media};
use crate::frugal::{open_chained, programmed};

const BLOCKS: u32 = 40;
const KEY: &[u8] = b"key";
/// Bytes of a value that has a page for itself.
const PAGE_LONG: usize = 3000;

/// A store on which the bucket of a key was put together after a crash: its versions in the order of
/// their pages, and the pages of their copies.
struct PutTogether {
    media: MemoryMedia,
    copies: Vec<PageId>,
}

/// The page of a version's value among some.
fn page_of(media: &MemoryMedia, pages: &[PageId], version: u8) -> Option<PageId> {
    let has = |page: &&PageId| {
        let bytes = media.page(**page).unwrap_or_default();
        bytes.iter().filter(|&&byte| byte == version).count() > PAGE_LONG / 2
    };
    pages.iter().find(has).copied()
}

/// Pages of copies of the versions 10, 20 and 30, in this order, that were programmed since.
fn copies_since(media: &MemoryMedia, before: &[PageId]) -> Vec<PageId> {
    let new: Vec<PageId> =
        programmed(media, BLOCKS).into_iter().filter(|page| !before.contains(page)).collect();
    [10, 20, 30].into_iter().filter_map(|version| page_of(media, &new, version)).collect()
}

fn put_together() -> PutTogether {
    let media = media(8, BLOCKS);
    let (mut driver, _) = open_chained(&media, 2);
    for version in [10, 15, 20, 30] {
        driver.put(KEY, version, &[version as u8; PAGE_LONG]);
    }
    driver.sync();
    drop(driver);
    let pages = programmed(&media, BLOCKS);
    let lost = page_of(&media, &pages, 15).expect("it was written");
    media.set_page(lost, &[0; 4096]);
    let (mut driver, _) = open_chained(&media, 2);
    driver.pumps(200);
    driver.sync();
    let copies = copies_since(&media, &pages);
    assert_eq!(copies.len(), 3, "{:?}", driver.store.stats());
    PutTogether { media, copies }
}

/// The versions that were not lost are there.
fn check(driver: &mut Driver<Skimpy>, what: &str) {
    for (nanos, version) in [(100, 30), (29, 20), (19, 10)] {
        let got = driver.get(KEY, nanos);
        let Got::Value(_, value) = got else { panic!("{what}: {got:?} at {nanos}") };
        assert_eq!(value, vec![version; PAGE_LONG], "{what}: at {nanos}");
    }
}

/// The power goes while a bucket is rewritten, so that some copies are lost.
#[test]
fn a_rewriting_that_was_cut_is_done_again_and_comes_to_an_end() {
    let whole = put_together();
    for lost in 1..1 << 3 {
        let media = whole.media.copy();
        let gone = |at: &usize| lost & (1 << at) != 0;
        (0..3).filter(gone).for_each(|at| media.set_page(whole.copies[at], &[0; 4096]));
        let (mut driver, _) = open_chained(&media, 2);
        check(&mut driver, &format!("{lost:03b} at once"));
        driver.pumps(300);
        let rewritten = driver.store.stats();
        assert!(rewritten.rewritten_buckets > 0, "{lost:03b}: {rewritten:?}");
        driver.pumps(300);
        let later = driver.store.stats();
        assert_eq!(
            later.reads.page_reads, rewritten.reads.page_reads,
            "{lost:03b}: it still reads"
        );
        assert_eq!(later.rewritten_buckets, rewritten.rewritten_buckets, "{lost:03b}");
        check(&mut driver, &format!("{lost:03b} rewritten"));
    }
}

/// After a first cut a checkpoint knows the pieces of a bucket; the second cut keeps some copies of its
/// next rewriting.
#[test]
fn copies_beside_pieces_that_a_checkpoint_knows_are_not_the_youngest() {
    let once = put_together();
    once.copies[1..].iter().for_each(|&page| once.media.set_page(page, &[0; 4096]));
    let before = programmed(&once.media, BLOCKS);
    let (mut driver, _) = open_chained(&once.media, 2);
    driver.store.checkpoint_now();
    driver.pump();
    driver.checkpoint_done();
    driver.pumps(200);
    driver.sync();
    let copies = copies_since(&once.media, &before);
    assert_eq!(copies.len(), 3, "it was rewritten once more: {:?}", driver.store.stats());
    drop(driver);
    for lost in 0..1 << 3 {
        let media = once.media.copy();
        let gone = |at: &usize| lost & (1 << at) != 0;
        (0..3).filter(gone).for_each(|at| media.set_page(copies[at], &[0; 4096]));
        let (mut driver, report) = open_chained(&media, 2);
        assert!(report.checkpoint.is_some(), "{report:?}");
        check(&mut driver, &format!("{lost:03b} at once"));
        driver.pumps(300);
        check(&mut driver, &format!("{lost:03b} rewritten"));
    }
}

/// Deletions of every second key go on while the watermark stands still, until none finds room.
#[test]
fn deletions_that_took_the_last_blocks_can_be_collected() {
    let small = [(64, 2000, 900), (48, 500, 900), (64, 4000, 300)];
    let large = [(64, 200, 5000), (90, 200, 12_000), (120, 100, 40_000), (160, 100, 150_000)];
    for (blocks, keys, size) in small.into_iter().chain(large) {
        let media = media(8, blocks);
        let (mut driver, _) = open_chained(&media, keys);
        let (mut stored, mut waited) = (0u64, 0);
        while waited < 50 {
            match driver.try_put(&stored.to_be_bytes(), 10, &vec![7; size]) {
                Ok(()) => (stored, waited) = (stored + 1, 0),
                Err(StoreError::Busy | StoreError::DeviceFull { .. }) => waited += 1,
                Err(error) => panic!("{error}"),
            }
            driver.pump();
        }
        let mut now = 100;
        waited = 0;
        while waited < 50 {
            now += 1;
            match driver.try_delete(&((now * 2 % stored) | 1).to_be_bytes(), now) {
                Ok(()) => waited = 0,
                Err(StoreError::Busy | StoreError::DeviceFull { .. }) => waited += 1,
                Err(error) => panic!("{error}"),
            }
            if waited > 0 || now % 64 == 0 {
                driver.pump();
            }
        }
        let free = driver.figure(Figure::FreeBlocks);
        assert!(free <= 3, "{free} blocks are free");
        driver.store.advance_watermark(at(now + 1));
        driver.store.advance_replay_floor(at(now + 1));
        let mut turns = 0;
        while let Err(error) = driver.try_put(b"again", now + 2, &vec![8; size]) {
            turns += 1;
            assert!(
                turns < 5000,
                "{blocks} blocks, {size} bytes: {error}: {:?}",
                driver.store.stats()
            );
            driver.pump();
        }
        assert_eq!(driver.value(b"again", now + 3), Some(vec![8; size]));
        for n in (0..stored).step_by(2) {
            let found = driver.value(&n.to_be_bytes(), now + 3).is_some();
            assert!(found, "{n} of {stored} was never deleted");
        }
    }
}

/// After a restart few blocks are clean, and the others count as free all the same.
#[test]
fn buckets_are_put_together_after_a_restart_and_an_idle_store_rests() {
    let PutTogether { media, .. } = put_together();
    let (mut driver, _) = open_chained(&media, 2);
    driver.pumps(300);
    let now = driver.now;
    let deadline = driver.store.next_deadline();
    assert!(deadline.is_none_or(|deadline| deadline > at(now)), "{deadline:?} at {now}");
}

/// What a read at 15 comes to that begins some turns after the restart, and that the watermark overtakes
/// while the bucket is put together: `None` when it is told that it is too old.
fn overtaken(media: &MemoryMedia, turns: usize, counts: bool) -> Option<u64> {
    let (mut driver, _) = open_chained(media, 2);
    driver.pumps(turns);
    let token = ReadToken(1);
    if counts {
        driver.store.count(SPACE, at(15), token).expect("it is not too old yet");
    } else {
        let key = driver.key(SPACE, KEY);
        let found = driver.store.get(key, at(15), token).expect("it is not too old yet");
        if !matches!(found, Lookup::Pending) {
            assert!(matches!(found, Lookup::Present { .. }), "{turns}: {found:?}");
            return Some(1);
        }
    }
    driver.store.advance_watermark(at(25));
    for _ in 0..300 {
        driver.pump();
        if let Some(event) = driver.events.pop() {
            match event {
                StoreEvent::CountDone { keys, .. } => return Some(keys),
                StoreEvent::ReadDone { outcome: ReadOutcome::Present { .. }, .. } => {
                    return Some(1);
                }
                StoreEvent::ReadDone { outcome: ReadOutcome::Absent { .. }, .. } => return Some(0),
                StoreEvent::ReadDone {
                    outcome: ReadOutcome::Failed(StoreError::TooOld { .. }),
                    ..
                }
                | StoreEvent::ReadFailed { error: StoreError::TooOld { .. }, .. } => return None,
                event => panic!("{turns}: {event:?}"),
            }
        }
    }
    panic!("{turns}: no answer");
}

#[test]
fn a_read_that_the_watermark_overtakes_is_never_answered_wrongly() {
    let PutTogether { media, copies } = put_together();
    // It is to be put together once more.
    media.set_page(copies[2], &[0; 4096]);
    for counts in [false, true] {
        let told = (0..24).map(|turns| overtaken(&media, turns, counts)).collect::<Vec<_>>();
        assert!(!told.contains(&Some(0)), "counts: {counts}, by turns: {told:?}");
        assert!(told.contains(&None), "counts: {counts}, by turns: {told:?}");
    }
}

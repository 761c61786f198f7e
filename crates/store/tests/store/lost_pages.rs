//! Pages that a device will never read again, and whose loss somebody has accepted: nothing else is
//! lost with them, and no deletion is kept for their sake any more.

use timestone_flash::{BlockId, FlashDevice as _, MemoryMedia, PageId};
use timestone_store::prelude::*;
use timestone_store::{Figure, Mftl, Skimpy, inspect};

use crate::driver::{Driver, Got, SPACE, Survives, at, config, media};

const BLOCKS: u32 = 60;
const BLOCK_PAGES: u32 = 8;
const KEYS: u64 = 100;

/// A medium with keys, half of which a checkpoint knows, if it has one.
fn filled<S: Survives>(with_checkpoint: bool) -> MemoryMedia {
    let media = media(BLOCK_PAGES, BLOCKS);
    let (mut driver, _) = S::open_on(&media, config(), false).expect("opens");
    for n in 0..KEYS {
        driver.put(&n.to_be_bytes(), 10, &[n as u8; 500]);
        if with_checkpoint && n == KEYS / 2 {
            driver.checkpoint();
        }
    }
    driver.sync();
    media
}

fn is_written(media: &MemoryMedia, page: PageId) -> bool {
    media.page(page).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0))
}

/// The keys that have their value; all others are absent, or told damaged.
fn readable<S: Store>(driver: &mut Driver<S>, time: u64) -> Vec<u64> {
    let is_there = |n: &u64| match driver.try_get_in(SPACE, &n.to_be_bytes(), time) {
        Ok(Got::Value(_, value)) => {
            assert_eq!(value, [*n as u8; 500]);
            true
        }
        _ => false,
    };
    (0..KEYS).filter(is_there).collect()
}

/// Some keys are overwritten for so long that collection has been everywhere, or until the store is full.
fn churn<S: Store>(driver: &mut Driver<S>, from: u64, puts: u64) {
    for n in 0..puts {
        let key = (10_000 + n % 30).to_be_bytes();
        let put = (0..1000).any(|_| {
            let put = driver.try_put(&key, from + n, &[b'v'; 500]);
            driver.pump();
            put.is_ok()
        });
        if !put {
            break;
        }
        driver.store.advance_watermark(at(from + n - 1));
        driver.store.advance_replay_floor(at(from + n - 1));
        driver.pump();
    }
    driver.sync();
}

fn give_up(media: &MemoryMedia, pages: impl Iterator<Item = PageId>) {
    pages.for_each(|page| media.set_page(page, &inspect::lost_page(page)));
}

/// `drops`: collection goes round, and meets every deletion in time.
fn deletions_are_forgotten_again<S: Survives>(drops: bool) {
    let whole = filled::<S>(false);
    let mut tried = 0;
    for page in (0..BLOCKS * BLOCK_PAGES).map(PageId).step_by(5) {
        if !is_written(&whole, page) {
            continue;
        }
        tried += 1;
        let media = whole.copy();
        media.fail_reads_of([page]);
        let (mut driver, report) = S::open_on(&media, config(), false).expect("opens");
        assert_eq!(report.unread_pages, 1, "{page}: {report:?}");
        (0..KEYS).for_each(|n| driver.delete(&n.to_be_bytes(), 40));
        churn(&mut driver, 1000, 3000);
        assert_eq!(driver.figure(Figure::DroppedTombstones), 0, "{page}");
        drop(driver);
        give_up(&media, [page].into_iter());
        let (mut driver, report) = S::open_on(&media, config(), false).expect("opens");
        assert_eq!(report.unread_pages, 0, "{page}: {report:?}");
        churn(&mut driver, 10_000, 10_000);
        assert!(!drops || driver.figure(Figure::DroppedTombstones) > 0, "{page}");
        drop(driver);
        let mut driver = S::open_on(&media, config(), false).expect("opens").0;
        assert_eq!(readable(&mut driver, 25_000), [0; 0], "{page}: what was deleted is back");
    }
    assert!(tried > 2, "{tried} pages");
}

#[test]
fn deletions_are_forgotten_again_when_the_loss_of_unread_pages_is_accepted() {
    deletions_are_forgotten_again::<Mftl>(false);
    deletions_are_forgotten_again::<Skimpy>(true);
}

/// Whatever of a block is given up, also all of it, or its first page: what could be read beside it can be
/// read afterwards, and when the store has worked for long.
fn nothing_else_is_lost<S: Survives>(with_checkpoint: bool) {
    let whole = filled::<S>(with_checkpoint);
    let mut lost = 0;
    for (block, (from, to)) in (0..BLOCKS)
        .flat_map(|block| [(0, 8), (0, 1), (0, 2), (1, 8), (3, 4)].map(|some| (block, some)))
    {
        let pages = || (block * BLOCK_PAGES + from..block * BLOCK_PAGES + to).map(PageId);
        if !pages().any(|page| is_written(&whole, page)) {
            continue;
        }
        let media = whole.copy();
        media.fail_reads_of(pages());
        let (mut driver, report) = S::open_on(&media, config(), false).expect("opens");
        let before = readable(&mut driver, 20);
        drop(driver);
        lost += KEYS - before.len() as u64;
        give_up(&media, pages());
        let words = || format!("block {block}, pages {from} to {to}: {report:?}");
        let (mut driver, report) = S::open_on(&media, config(), false).expect("opens");
        assert_eq!(report.unread_pages, 0);
        let is_there = |driver: &mut Driver<S>, time: u64| {
            let after = readable(driver, time);
            let lost: Vec<_> = before.iter().filter(|n| !after.contains(n)).collect();
            assert!(lost.is_empty(), "{lost:?} at {time}, {}", words());
        };
        is_there(&mut driver, 20);
        churn(&mut driver, 1000, 3000);
        is_there(&mut driver, 5000);
        drop(driver);
        is_there(&mut S::open_on(&media, config(), false).expect("opens").0, 5000);
    }
    assert!(lost > KEYS, "{lost} keys were on pages that were lost");
}

#[test]
fn nothing_is_lost_beside_the_pages_that_are_given_up() {
    for with_checkpoint in [false, true] {
        nothing_else_is_lost::<Mftl>(with_checkpoint);
        nothing_else_is_lost::<Skimpy>(with_checkpoint);
    }
}

#[test]
fn who_looks_at_a_block_is_told_of_a_page_that_was_given_up() {
    let whole = filled::<Mftl>(false);
    give_up(&whole, [PageId(3)].into_iter());
    let geometry = whole.open().geometry();
    let bytes: Vec<u8> = (0..BLOCK_PAGES)
        .flat_map(|page| whole.page(PageId(page)).unwrap_or_else(|| vec![0; 4096]))
        .collect();
    let view = inspect::block(geometry, BlockId(0), None, &bytes);
    let told = &view.pages[3].state;
    assert!(
        matches!(told, inspect::PageState::Damaged(why) if why.contains("accepted")),
        "{told:?}"
    );
}

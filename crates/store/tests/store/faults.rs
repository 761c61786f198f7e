//! Damage and failures: noticed, counted, never a wrong answer.

use std::time::Duration;

use timestone_flash::{Fault, FileConfig, FileDevice, MemoryConfig, MemoryMedia, OpKind, PageId};
use timestone_store::prelude::*;
use timestone_store::{
    Lookup, Mftl, MftlConfig, ReadOutcome, ReadToken, Skimpy, StoreError, StoreEvent,
};
use timestone_types::{Expiry, HashSeed, KeyspaceId};

use crate::collection::Dice;
use crate::driver::{Driver, Got, SPACE, Survives, at, config, media, open, version};

#[test]
fn flipped_bits_are_noticed_or_harmless() {
    let media = media(8, 20);
    let (mut driver, _) = open(&media, config());
    let keys: Vec<Vec<u8>> = (0..7u32).map(|n| format!("key{n}").into_bytes()).collect();
    for key in &keys {
        driver.put(key, 10, &[b'v'; 500]);
    }
    driver.sync();
    let page = (0..160)
        .map(PageId)
        .find(|&page| media.flip_bit(page, 0))
        .expect("something was programmed");
    media.flip_bit(page, 0);
    let mut noticed = 0;
    for bit in (0..4096 * 8).step_by(13) {
        assert!(media.flip_bit(page, bit));
        for key in &keys {
            match driver.try_get_in(SPACE, key, 20) {
                Ok(Got::Value(_, value)) => {
                    assert_eq!(value, vec![b'v'; 500], "bit {bit} changed a value")
                }
                Ok(Got::Absent(_)) => panic!("bit {bit} hid a key"),
                Err(StoreError::Corrupt { .. }) => noticed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        media.flip_bit(page, bit);
    }
    assert!(noticed > 2000, "{noticed} reads noticed damage");
    assert_eq!(driver.scrub().corrupt_records, 0);
    media.flip_bit(page, 8 * 600);
    let report = driver.scrub();
    assert_eq!((report.records, report.corrupt_records, report.corrupt_pages), (7, 1, 0));
}

#[test]
fn recovery_counts_damage_and_keeps_the_rest() {
    let media = media(8, 40);
    let (mut driver, _) = open(&media, config());
    for n in 0..100u64 {
        driver.put(&n.to_be_bytes(), 10, &[b'v'; 500]);
    }
    driver.sync();
    drop(driver);
    let mut flipped = 0;
    for page in (0..320).step_by(5).map(PageId) {
        flipped += u32::from(media.flip_bit(page, 8 * 300));
    }
    let (mut driver, report) = open(&media, config());
    assert!(
        flipped > 1 && report.corrupt_records == u64::from(flipped),
        "{flipped} flipped: {report:?}"
    );
    let found = (0..100u64).filter(|n| driver.value(&n.to_be_bytes(), 20).is_some()).count() as u32;
    assert_eq!(found, 100 - flipped);
}

#[test]
fn the_first_page_of_a_block_may_be_lost_alone() {
    let media = media(8, 40);
    let (mut driver, _) = open(&media, config());
    for n in 0..200u64 {
        driver.put(&n.to_be_bytes(), 10, &[b'v'; 500]);
    }
    driver.sync();
    drop(driver);
    let first = (0..40)
        .map(|block| PageId(block * 8))
        .find(|&page| media.flip_bit(page, 3))
        .expect("programmed");
    let (mut driver, report) = open(&media, config());
    assert_eq!(report.corrupt_pages, 1, "{report:?} {first}");
    let found = (0..200u64).filter(|n| driver.value(&n.to_be_bytes(), 20).is_some()).count();
    assert!(
        (190..200).contains(&found),
        "only the seven records of one page are gone, not {}",
        200 - found
    );
}

/// What comes of reading all keys where the first page of one block after the other reads as empty, by a
/// checkpoint that has been written while these blocks were: how many values there are, and how many are known to
/// be damaged. None may bring the store down.
fn with_empty_first_pages() -> (usize, usize) {
    let media = media(8, 120);
    let (mut driver, _) = open(&media, config());
    let mut put = 0u64;
    let mut fill = |driver: &mut Driver<Mftl>, count: u64| {
        for n in put..put + count {
            driver.put(&n.to_be_bytes(), 10, &[b'v'; 500]);
        }
        put += count;
    };
    fill(&mut driver, 100);
    driver.store.checkpoint_now();
    for _ in 0..20 {
        fill(&mut driver, 20);
        driver.pump();
    }
    driver.checkpoint_done();
    driver.sync();
    drop(driver);
    let (mut values, mut damaged) = (0, 0);
    for first in (0..120).map(|block| PageId(block * 8)) {
        if media.page(first).is_none_or(|page| page.iter().all(|&byte| byte == 0)) {
            continue;
        }
        let media = media.copy();
        media.set_page(first, &[0; 4096]);
        let (mut driver, report) = open(&media, config());
        if report.checkpoint.is_none() {
            continue;
        }
        for n in 0..put {
            match driver.try_get_in(SPACE, &n.to_be_bytes(), 20) {
                Ok(Got::Value(..)) => values += 1,
                Err(StoreError::Corrupt { .. }) => damaged += 1,
                // Only a page that nothing names any more is not missed.
                Ok(Got::Absent(_)) => {}
                Err(error) => panic!("{error}"),
            }
            driver.pump();
        }
    }
    (values, damaged)
}

#[test]
fn a_block_of_which_the_index_knows_is_not_empty_whatever_its_first_page_says() {
    let (values, damaged) = with_empty_first_pages();
    assert!(damaged > 0 && damaged < 20 * 7, "{damaged} damaged, {values} values");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_block_that_is_taken_for_empty_is_found() {
    use timestone_types::planted::{Bug, with};
    let (values, _) = with_empty_first_pages();
    let found = std::panic::catch_unwind(|| with(Bug::BelievesEmptyPages, with_empty_first_pages));
    timestone_types::planted::set(None);
    assert!(found.is_err() || found.is_ok_and(|(fewer, _)| fewer < values), "of {values} values");
    for behaviour in [
        an_empty_first_page_hides_no_pages_behind_it,
        a_block_with_parts_of_a_value_is_kept_whatever_it_looks_like,
    ] {
        let found = std::panic::catch_unwind(|| with(Bug::BelievesEmptyPages, behaviour));
        timestone_types::planted::set(None);
        assert!(found.is_err(), "the bug is not noticed");
    }
}

/// A medium with small values and a large one, and their driver's end. No checkpoint.
fn with_a_large_value() -> MemoryMedia {
    let media = media(8, 120);
    let (mut driver, _) = open(&media, config());
    for n in 0..100u64 {
        driver.put(&n.to_be_bytes(), 10, &[b'v'; 500]);
    }
    driver.put(b"large", 10, &[7; 100_000]);
    driver.sync();
    media
}

fn is_blank(media: &MemoryMedia, page: PageId) -> bool {
    media.page(page).is_none_or(|page| page.iter().all(|&byte| byte == 0))
}

#[test]
fn an_empty_first_page_hides_no_pages_behind_it() {
    let media = with_a_large_value();
    let mut zeroed = 0;
    for first in (0..120).map(|block| PageId(block * 8)) {
        if is_blank(&media, first) || is_blank(&media, PageId(first.0 + 1)) {
            continue;
        }
        let media = media.copy();
        media.set_page(first, &[0; 4096]);
        let (mut driver, report) = open(&media, config());
        assert_eq!(report.corrupt_pages, 1, "{first}: {report:?}");
        zeroed += 1;
        for _ in 0..2 {
            let found =
                (0..100u64).filter(|n| driver.value(&n.to_be_bytes(), 20).is_some()).count();
            assert!(found >= 93, "{first}: {found} of 100");
            // Its head may have been in the page.
            let large = driver.try_get_in(SPACE, b"large", 20);
            assert!(
                matches!(large, Ok(Got::Value(..)) | Err(StoreError::Corrupt { .. })),
                "{first}: {large:?}"
            );
            // The store writes, and cleans what is in doubt.
            for n in 0..400u64 {
                driver.put(&(1000 + n).to_be_bytes(), 30, &[b'v'; 500]);
                driver.pump();
            }
        }
    }
    assert!(zeroed > 4, "{zeroed} blocks");
}

#[test]
fn a_block_with_parts_of_a_value_is_kept_whatever_it_looks_like() {
    let media = with_a_large_value();
    let mut damaged = 0;
    for block in 0..120 {
        let pages = || (block * 8..block * 8 + 8).map(PageId);
        if pages().all(|page| is_blank(&media, page)) {
            continue;
        }
        let media = media.copy();
        pages().for_each(|page| media.set_page(page, &[0; 4096]));
        let (mut driver, report) = open(&media, config());
        let is_damaged = |driver: &mut Driver<Mftl>| {
            matches!(driver.try_get_in(SPACE, b"large", 20), Err(StoreError::Corrupt { .. }))
        };
        if !is_damaged(&mut driver) {
            continue;
        }
        damaged += 1;
        assert!(report.met_damage(), "{report:?}");
        for n in 0..2000u64 {
            driver.put(&(n % 100).to_be_bytes(), 30 + n, &[b'v'; 500]);
            driver.store.advance_watermark(at(20));
            driver.pump();
        }
        assert!(is_damaged(&mut driver), "block {block}: it is still known");
    }
    assert!(damaged > 2, "{damaged} blocks");
}

/// How many of the keys from 0 on have a value at a time.
fn there(driver: &mut Driver<Mftl>, keys: u64, time: u64) -> u64 {
    (0..keys).filter(|n| driver.value(&n.to_be_bytes(), time).is_some()).count() as u64
}

/// How many keys are there at a start after one that could not read all: other keys were put meanwhile, and
/// these were deleted, if it `deletes`; nobody reads below `time`, if that is given.
fn there_after_churn(
    mut driver: Driver<Mftl>,
    media: &MemoryMedia,
    keys: u64,
    (deletes, puts): (bool, u64),
    time: Option<u64>,
) -> u64 {
    if deletes {
        (0..keys).for_each(|n| driver.delete(&n.to_be_bytes(), 40));
    }
    if let Some(time) = time {
        driver.store.advance_watermark(at(time));
        driver.store.advance_replay_floor(at(time));
    }
    for n in 0..puts {
        driver.put(&(10_000 + n % 30).to_be_bytes(), 50 + n, &[b'v'; 500]);
        driver.pump();
    }
    driver.sync();
    drop(driver);
    there(&mut open(media, config()).0, keys, time.unwrap_or(20))
}

/// A medium with so many keys, put in blocks of so many pages.
fn with_keys(pages_per_block: u32, blocks: u32, keys: u64) -> MemoryMedia {
    let media = media(pages_per_block, blocks);
    let (mut driver, _) = open(&media, config());
    (0..keys).for_each(|n| driver.put(&n.to_be_bytes(), 10, &[b'v'; 500]));
    driver.sync();
    media
}

/// A device that fails to read a block when it is opened, or all of it but its first page, may read it the
/// next time.
#[test]
fn a_block_that_could_not_be_read_once_is_not_erased() {
    let whole = with_keys(8, 40, 100);
    let mut missing = 0;
    for (block, from) in (0..40).flat_map(|block| [(block, 0), (block, 1)]) {
        for deletes in [false, true] {
            let media = whole.copy();
            media.fail_reads_of((block * 8 + from..block * 8 + 8).map(PageId));
            let (mut driver, report) = open(&media, config());
            let there_now = there(&mut driver, 100, 20);
            media.clear_faults();
            if there_now == 100 {
                continue;
            }
            missing += 1;
            assert!(report.met_damage(), "{report:?}");
            let (puts, time) = if deletes { (3000, Some(1 << 20)) } else { (600, None) };
            let found = there_after_churn(driver, &media, 100, (deletes, puts), time);
            assert_eq!(
                found,
                if deletes { 0 } else { 100 },
                "block {block} from page {from} on, deletes: {deletes}"
            );
        }
    }
    assert!(missing > 4, "{missing} blocks with something were unreadable");
}

/// The same of a part of a block.
#[test]
fn what_could_not_be_read_of_a_block_once_is_there_at_the_next_start() {
    let (whole, keys) = (with_keys(128, 20, 2500), 2500);
    let mut missing = 0;
    for (block, deletes) in (0..20).flat_map(|block| [(block, false), (block, true)]) {
        let media = whole.copy();
        media.fail_reads_of((block * 128 + 64..block * 128 + 128).map(PageId));
        let (mut driver, report) = open(&media, config());
        let there_now = there(&mut driver, keys, 20);
        media.clear_faults();
        if there_now == keys {
            continue;
        }
        missing += 1;
        assert!(report.met_damage(), "{report:?}");
        let found = there_after_churn(driver, &media, keys, (deletes, 15_000), Some(1 << 20));
        assert_eq!(
            found,
            if deletes { 0 } else { keys },
            "the second half of block {block} failed once, deletes: {deletes}"
        );
    }
    assert!(missing > 4, "{missing} halves of blocks failed");
}

/// Many pages are read at once.
#[test]
fn a_page_that_cannot_be_read_costs_no_other_page() {
    let media = with_keys(128, 20, 2500);
    let on_page =
        |page: PageId| media.page(page).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0));
    let mut unread = 0;
    for page in (0..20 * 128).step_by(37).map(PageId).filter(|&page| on_page(page)) {
        media.fail_reads_of([page]);
        let (mut driver, report) = open(&media, config());
        assert_eq!(report.corrupt_pages + report.unreadable_tails, 1, "{page}: {report:?}");
        let found = there(&mut driver, 2500, 20);
        assert!((2490..2500).contains(&found), "{page}: {found} of 2500 keys");
        media.clear_faults();
        unread += 1;
    }
    assert!(unread > 4, "{unread} pages");
}

#[test]
fn a_checkpoint_block_whose_first_page_is_damaged_is_erased() {
    let media = media(8, 200);
    let (mut driver, _) = open(&media, config());
    for n in 0..3000u64 {
        driver.put(&n.to_be_bytes(), 10, &[b'v'; 300]);
        driver.pump();
    }
    driver.shut_down();
    drop(driver);
    let free_after = |media: &MemoryMedia| {
        let (mut driver, report) = open(media, config());
        driver.checkpoint();
        driver.sync();
        driver.pumps(100);
        (driver.store.stats().space.free_blocks, report)
    };
    let (free, report) = free_after(&media.copy());
    assert_eq!(report.checkpoint, Some(1));
    let mut damaged = 0;
    for block in 0..200 {
        let first = PageId(block * 8);
        let media = media.copy();
        if !media.flip_bit(first, 3) {
            continue;
        }
        let (now, report) = free_after(&media);
        if report.checkpoint.is_none() {
            damaged += 1;
            // Packing differs a little.
            assert!(now + 1 >= free, "{now} blocks are free, and {free} without damage");
        }
    }
    assert!(damaged > 1, "{damaged} blocks of the checkpoint");
}

/// Parts of a value that damage has made look as if their block had never been written.
#[test]
fn a_large_value_whose_parts_look_empty_is_damaged_and_brings_nothing_down() {
    let media = media(8, 120);
    let (mut driver, _) = open(&media, config());
    driver.put(b"large", 10, &[7; 100_000]);
    driver.sync();
    drop(driver);
    let mut damaged = 0;
    for block in 0..120 {
        let pages = || (block * 8..block * 8 + 8).map(PageId);
        if pages()
            .all(|page| media.page(page).is_none_or(|page| page.iter().all(|&byte| byte == 0)))
        {
            continue;
        }
        let media = media.copy();
        pages().for_each(|page| media.set_page(page, &[0; 4096]));
        let (mut driver, _) = open(&media, config());
        let token = ReadToken(1);
        let key = driver.key(SPACE, b"large");
        let asked =
            driver.store.get(key, at(20), token).map(|found| matches!(found, Lookup::Pending));
        assert!(asked.is_ok(), "{asked:?}");
        // While it is read, the store writes, and cleans what is in doubt.
        for n in 0..400u64 {
            driver.put(&n.to_be_bytes(), 30, &[b'v'; 500]);
            driver.pump();
        }
        let answers = driver.events.iter().filter_map(|event| match event {
            StoreEvent::ReadDone { outcome, .. } => Some(outcome),
            _ => None,
        });
        damaged += answers.filter(|one| matches!(one, ReadOutcome::Failed(_))).count();
    }
    assert!(damaged > 0, "no value was told damaged");
}

/// A checkpoint takes many pumps. Keyspaces are in the order of their ids.
#[test]
fn a_keyspace_that_is_first_written_while_a_checkpoint_is_written_does_not_spoil_it() {
    let media = media(8, 200);
    let (mut driver, _) = open(&media, config());
    let put = |driver: &mut Driver<Mftl>, space: u32, n: u64| {
        let bytes = n.to_be_bytes();
        let key = driver.key(KeyspaceId::new(space), &bytes);
        driver.store.put(key, version(10), b"value", Expiry::NEVER).expect("accepted");
    };
    for n in 0..200 {
        put(&mut driver, 9, n);
        driver.pump();
    }
    driver.store.checkpoint_now();
    driver.pumps(20);
    put(&mut driver, 3, 0);
    driver.checkpoint_done();
    driver.sync();
    drop(driver);
    let (_, report) = open(&media, config());
    assert_eq!((report.checkpoint, report.bad_checkpoints, report.keys), (Some(1), 0, 201));
}

#[test]
fn a_checkpoint_saves_the_scan_and_a_bad_one_does_not_matter() {
    let media = media(8, 200);
    let (mut driver, _) = open(&media, config());
    for n in 0..3000u64 {
        driver.put(&n.to_be_bytes(), 10, &[b'v'; 300]);
        driver.pump();
    }
    driver.store.advance_watermark(at(15));
    driver.shut_down();
    drop(driver);
    let (mut driver, with) = open(&media, config());
    assert_eq!((with.checkpoint, with.keys, with.bad_checkpoints), (Some(1), 3000, 0));
    assert!(with.scanned_records < 50, "{with:?}");
    assert_eq!(driver.store.watermark(), at(15));
    driver.put(b"after", 20, b"the checkpoint");
    driver.sync();
    drop(driver);
    // Damage every checkpoint page: they are the ones whose kind byte is 4; flipping a bit of the
    // payload is enough.
    let (mut driver, again) = open(&media, config());
    assert_eq!((again.checkpoint, again.keys), (Some(1), 3001));
    assert_eq!(driver.value(b"after", 30), Some(b"the checkpoint".to_vec()));
    drop(driver);
    let mut last = None;
    for page in 0..1600 {
        if media.flip_bit(PageId(page), 8 * 2000) {
            let (_, report) = open(&media, config());
            media.flip_bit(PageId(page), 8 * 2000);
            if report.checkpoint.is_none() {
                assert_eq!((report.bad_checkpoints, report.keys), (1, 3001), "{report:?}");
                last = Some(page);
                break;
            }
        }
    }
    assert!(last.is_some(), "some page belongs to the checkpoint");
}

#[test]
fn a_crash_at_any_moment_loses_nothing_stable() {
    for moment in 0..90u64 {
        let media = media(8, 60);
        let (mut driver, _) = open(&media, config());
        let mut dice = Dice(moment);
        let mut written = Vec::new();
        let mut stable = 0;
        for step in 0..moment * 4 {
            driver.store.begin_batch(step + 1);
            let key = dice.below(30);
            driver.put(
                &key.to_be_bytes(),
                step + 1,
                &vec![step as u8; 100 + dice.below(900) as usize],
            );
            written.push((step + 1, key));
            if step % 3 == 0 {
                driver.pump();
            }
            if step == moment {
                driver.store.checkpoint_now();
            }
            stable = driver.store.stable_batch();
        }
        media.power_cut(moment);
        drop(driver);
        let (mut driver, _) = open(&media, config());
        for &(batch, key) in written.iter().filter(|&&(batch, _)| batch <= stable) {
            match driver.get(&key.to_be_bytes(), batch) {
                Got::Value(found, value) => {
                    assert_eq!(found, version(batch), "crash at {moment}");
                    assert!(value.iter().all(|&byte| byte == (batch - 1) as u8));
                }
                Got::Absent(_) => panic!(
                    "crash at {moment}: the put of batch {batch} is lost, {stable} was stable"
                ),
            }
        }
    }
}

/// *Otherwise* it is committed, and every later put waits for it.
#[test]
fn what_the_blocks_never_hold_is_not_promised() {
    let mut driver = open(&media(4, 400), config()).0;
    let most = driver.store.max_value_bytes();
    assert!(driver.admit(most, 0).is_ok());
    let refused = driver.admit(most + 1, 0);
    assert!(matches!(refused, Err(StoreError::ValueTooLarge { .. })), "{refused:?}");
    driver.put(b"", 10, &vec![7; most]);
    let (store, _) =
        timestone_store::Skimpy::open(Box::new(media(4, 400).open()), Default::default())
            .expect("opens");
    let refused = Driver::new(store).admit(most + 1, 0);
    assert!(matches!(refused, Err(StoreError::ValueTooLarge { .. })), "{refused:?}");
    // Where blocks hold every value, keys beside it do not matter.
    assert!(open(&media(256, 200), config()).0.admit((16 << 20) + 1000, 0).is_ok());
}

#[test]
fn a_failed_sync_ends_writing_but_not_reading() {
    let media = media(8, 20);
    let (mut driver, _) = open(&media, config());
    driver.put(b"k", 10, b"v");
    driver.sync();
    media.inject(Fault::Fail { kind: OpKind::Sync, nth: 1 });
    driver.put(b"k", 20, b"w");
    driver.store.sync_soon();
    driver.pumps(10);
    assert!(driver.events.iter().any(|event| matches!(event, StoreEvent::DeviceFailed(_))));
    assert!(driver.admit(1, 0).is_err());
    assert!(matches!(driver.try_put(b"k", 30, b"x"), Err(StoreError::Busy)));
    assert_eq!(
        (driver.value(b"k", 15), driver.value(b"k", 25)),
        (Some(b"v".to_vec()), Some(b"w".to_vec()))
    );
}

#[test]
fn a_device_that_programs_nothing_any_more_ends_writing_but_not_reading() {
    let media = media(8, 80);
    let (mut driver, _) = open(&media, config());
    driver.put(b"k", 10, b"v");
    driver.sync();
    for nth in 1..200 {
        media.inject(Fault::Fail { kind: OpKind::Program, nth });
    }
    driver.put(b"k", 20, b"w");
    let failed = |driver: &Driver<Mftl>| {
        driver.events.iter().any(|event| matches!(event, StoreEvent::DeviceFailed(_)))
    };
    for _ in 0..2000 {
        if failed(&driver) {
            break;
        }
        driver.store.sync_soon();
        driver.pump();
    }
    assert!(failed(&driver), "{:?}", driver.store.stats());
    assert!(matches!(driver.try_put(b"k", 30, b"x"), Err(StoreError::Busy)));
    assert_eq!(
        (driver.value(b"k", 15), driver.value(b"k", 25)),
        (Some(b"v".to_vec()), Some(b"w".to_vec()))
    );
}

/// A start that waits for clean blocks goes on with others, or finds that the device has failed.
#[test]
fn a_start_at_which_erases_fail_comes_to_an_end() {
    #[expect(clippy::disallowed_methods, reason = "a start that hangs must not hang the test")]
    fn start<S: Survives + Send + 'static>(failing: u32) {
        let media = media(8, 60);
        let mut driver = S::open_on(&media, config(), false).expect("opens").0;
        driver.put(b"k", 10, b"v");
        driver.sync();
        drop(driver);
        (1..=failing).for_each(|nth| media.inject(Fault::Fail { kind: OpKind::Erase, nth }));
        let (opened, opening) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut driver = S::open_on(&media, config(), false).expect("opens").0;
            let _ = opened.send((driver.value(b"k", 20), driver.try_put(b"k", 30, b"w").is_ok()));
        });
        let found = opening.recv_timeout(Duration::from_secs(60));
        let (value, takes_puts) = found.unwrap_or_else(|_| panic!("{failing} failures: it hangs"));
        assert_eq!(value.as_deref(), Some(&b"v"[..]));
        assert_eq!(takes_puts, failing < 17, "{failing} failures");
    }
    for failing in [8, 9, 15, 40] {
        start::<Mftl>(failing);
        start::<Skimpy>(failing);
    }
}

#[test]
fn a_failed_read_is_an_error_of_that_read_only() {
    let media = media(8, 20);
    let (mut driver, _) = open(&media, config());
    driver.put(b"k", 10, b"v");
    driver.sync();
    media.inject(Fault::Fail { kind: OpKind::Read, nth: 1 });
    assert!(matches!(driver.try_get_in(SPACE, b"k", 15), Err(StoreError::Flash(_))));
    assert_eq!(driver.value(b"k", 15), Some(b"v".to_vec()));
}

#[test]
fn a_burst_of_gets_of_one_page_reads_it_once() {
    let media = media(8, 20);
    let (mut driver, _) = open(&media, config());
    for n in 0..7u64 {
        driver.put(&n.to_be_bytes(), 10, &[n as u8; 500]);
    }
    driver.sync();
    let before = driver.store.stats().reads.page_reads;
    for n in 0..70u64 {
        let name = (n % 7).to_be_bytes();
        let key = driver.key(SPACE, &name);
        assert_eq!(driver.store.get(key, at(20), ReadToken(n)).expect("readable"), Lookup::Pending);
    }
    driver.pumps(5);
    assert_eq!(driver.store.stats().reads.page_reads, before + 1);
    let answers = driver.events.iter().filter(|event| {
        matches!(event, StoreEvent::ReadDone { token, outcome: ReadOutcome::Present { value, .. } }
            if value == &vec![(token.0 % 7) as u8; 500])
    });
    assert_eq!(answers.count(), 70);
}

#[test]
fn another_stores_device_is_refused_and_the_seed_stays() {
    let media = media(8, 20);
    let (mut driver, _) = open(&media, config());
    driver.put(b"k", 10, b"v");
    driver.sync();
    drop(driver);
    let other = MftlConfig { store_id: 43, ..config() };
    let refused = Mftl::open(Box::new(media.open()), other).err().expect("refused");
    assert!(matches!(refused, StoreError::ForeignStore { found: 42, expected: 43 }), "{refused}");
    let (mut driver, _) = open(&media, MftlConfig { seed: HashSeed(1), ..config() });
    assert_eq!(driver.store.seed(), HashSeed(7));
    assert_eq!(driver.value(b"k", 15), Some(b"v".to_vec()));
}

#[test]
fn collection_sets_a_damaged_block_aside() {
    let media = media(8, 60);
    let (mut driver, _) = open(&media, config());
    for n in 0..200u64 {
        driver.put(&n.to_be_bytes(), 10 + n, &[9; 700]);
        driver.pump();
    }
    driver.sync();
    let page =
        (0..480).map(PageId).find(|&page| media.flip_bit(page, 8 * 300)).expect("programmed");
    for n in 0..8000u64 {
        driver.put(&(n % 200).to_be_bytes(), 1000 + n, &[9; 700]);
        driver.store.advance_watermark(at(900 + n));
        driver.pump();
    }
    let stats = driver.store.stats();
    assert!(stats.corrupt > 0 && stats.collection.collected_blocks > 50, "page {page}: {stats:?}");
    for n in 0..200u64 {
        assert_eq!(driver.value(&n.to_be_bytes(), 10_000), Some(vec![9; 700]));
    }
}

#[test]
fn a_file_device_keeps_everything_over_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let file =
        FileConfig { initial_blocks: 16, ..FileConfig::new(dir.path().join("shard.flash"), 64) };
    let open = || {
        let device = FileDevice::open_or_create(&file).expect("a device").0;
        let (store, report) = Mftl::open(Box::new(device), config()).expect("opens");
        (Driver::new(store), report)
    };
    let (mut driver, _) = open();
    for n in 0..3000u64 {
        driver.put(&n.to_be_bytes(), 10 + n, &[n as u8; 600]);
    }
    driver.put(b"large", 10, &vec![7; 3 << 20]);
    while driver.store.stable_batch() < 1 {
        driver.store.begin_batch(2);
        driver.store.sync_soon();
        driver.pump();
        driver.store.wait(Duration::from_millis(5));
    }
    drop(driver);
    let (mut driver, scanned) = open();
    assert_eq!((scanned.checkpoint, scanned.keys, scanned.corrupt_records), (None, 3001, 0));
    for n in (0..3000u64).step_by(7) {
        assert_eq!(driver.value(&n.to_be_bytes(), 5000), Some(vec![n as u8; 600]));
    }
    assert_eq!(driver.value(b"large", 5000), Some(vec![7; 3 << 20]));
    driver.shut_down();
    drop(driver);
    let (mut driver, loaded) = open();
    assert_eq!((loaded.checkpoint, loaded.keys, loaded.scanned_records), (Some(1), 3001, 0));
    assert_eq!(driver.count(SPACE, 5000), 3001);
    assert_eq!(driver.value(b"large", 5000), Some(vec![7; 3 << 20]));
}

#[test]
fn a_shutdown_soon_after_a_crash_still_leaves_a_checkpoint() {
    // Free blocks are in doubt after a restart and are erased a few ahead; the device delivers
    // completions slowly, and the checkpoint needs more blocks than are clean.
    let media = MemoryMedia::new(MemoryConfig {
        pages_per_block: 2,
        initial_blocks: 4000,
        max_blocks: 4000,
        completions_per_poll: 1,
        ..MemoryConfig::default()
    });
    let (mut driver, _) = open(&media, config());
    for n in 0..100_000u64 {
        driver.put(&n.to_be_bytes(), 10, b"v");
        if n % 20 == 0 {
            driver.pump();
        }
    }
    driver.sync();
    drop(driver);
    let (mut driver, first) = open(&media, config());
    assert_eq!(first.keys, 100_000);
    driver.shut_down();
    drop(driver);
    let (_, report) = open(&media, config());
    assert_eq!(
        (report.checkpoint, report.bad_checkpoints, report.keys),
        (Some(1), 0, 100_000),
        "{report:?}"
    );
}

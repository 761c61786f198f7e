//! Faults and power cuts of the medium in memory.

use std::time::Duration;

use timestone_flash::{
    BlockId, Fault, FlashError, FlashOp, FlashPace, MemoryConfig, MemoryMedia, Misuse, OpKind,
    PAGE_BYTES, PageId, RejectedReason,
};

use crate::driver::{Driver, uniform};

fn media() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 4,
        max_blocks: 8,
        ..MemoryConfig::default()
    })
}

/// Nothing takes any time.
const PACE: FlashPace = FlashPace {
    read: Duration::ZERO,
    program: Duration::ZERO,
    per_page: Duration::ZERO,
    erase: Duration::ZERO,
    sync: Duration::ZERO,
    spread: Duration::ZERO,
    seed: 0,
};

/// What a page looks like after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageFate {
    Kept,
    Lost,
    Torn,
}

/// The fate of a page of zeros that was programmed with `byte`.
fn fate(driver: &mut Driver, block: u32, index: u32, byte: u8) -> PageFate {
    let op = driver.read_op(block, index, 1);
    let page = driver.run(op).unwrap().unwrap();
    match uniform(&page) {
        Some(found) if found == byte => PageFate::Kept,
        Some(0) => PageFate::Lost,
        Some(other) => panic!("a page holds {other}, which nobody wrote"),
        None => {
            let arrived = page.iter().take_while(|&&found| found == byte).count();
            assert!(
                arrived % 512 == 0 && page[arrived..].iter().all(|&found| found == 0),
                "torn between sectors"
            );
            PageFate::Torn
        }
    }
}

#[test]
fn a_power_cut_spares_what_was_synced_and_nothing_else_is_safe() {
    let mut fates = std::collections::BTreeMap::new();
    for seed in 0..200 {
        let media = media();
        let mut driver = Driver::new(media.open());
        driver.program(0, 0, &[1, 2, 3]);
        driver.sync();
        driver.program(0, 3, &[4, 5]);
        assert_eq!(media.unsynced_pages(), 2);
        media.power_cut(seed);
        let mut driver = Driver::new(media.open());
        assert_eq!(driver.read(0, 0, 3), [1, 2, 3], "seed {seed}");
        for (index, byte) in [(3, 4), (4, 5)] {
            *fates.entry(format!("{:?}", fate(&mut driver, 0, index, byte))).or_insert(0) += 1;
        }
    }
    assert_eq!(fates.len(), 3, "{fates:?}");
    assert!(fates.values().all(|&count| count > 40), "{fates:?}");
}

#[test]
fn a_sync_covers_only_programs_that_had_completed() {
    let lost = (0..100).filter(|&seed| {
        let media = media();
        let mut driver = Driver::new(media.open());
        let op = driver.program_op(0, 0, &[9]);
        driver.submit(op);
        // Submitted while the program is in flight: promises nothing about it.
        let token = driver.token();
        driver.submit(FlashOp::Sync { token });
        driver.drain();
        media.power_cut(seed);
        fate(&mut Driver::new(media.open()), 0, 0, 9) != PageFate::Kept
    });
    assert!(lost.count() > 20);
}

#[test]
fn what_a_dropped_device_had_under_way_is_covered_by_a_sync_of_the_next_one() {
    for seed in 0..40 {
        let media = media();
        media.set_pace(Some(FlashPace { program: Duration::from_millis(1), ..PACE }));
        let mut driver = Driver::new(media.open());
        let op = driver.program_op(0, 0, &[9]);
        driver.submit(op);
        assert_eq!(driver.device.poll(&mut Vec::new()), 0, "started, not completed");
        drop(driver);
        // Whoever opens it finds the page, and makes it durable with all else.
        media.set_pace(None);
        let mut driver = Driver::new(media.open());
        assert_eq!(driver.read(0, 0, 1), [9]);
        driver.sync();
        media.kill(seed);
        media.power_cut(seed);
        let found = fate(&mut Driver::new(media.open()), 0, 0, 9);
        assert_eq!(found, PageFate::Kept, "seed {seed}");
    }
}

#[test]
fn the_same_seed_leaves_the_same_medium() {
    let after = |seed| {
        let media = media();
        let mut driver = Driver::new(media.open());
        for block in 0..4 {
            driver.program(block, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        }
        media.power_cut(seed);
        let mut driver = Driver::new(media.open());
        (0..4)
            .flat_map(|block| (1..=8).map(move |byte| (block, byte)))
            .map(|(block, byte)| fate(&mut driver, block, u32::from(byte) - 1, byte))
            .collect::<Vec<_>>()
    };
    assert_eq!(after(7), after(7));
    assert_ne!(after(7), after(8));
}

#[test]
fn a_page_programmed_twice_without_a_sync_may_fall_back_to_either() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let media = media();
        let mut driver = Driver::new(media.open());
        driver.program(0, 0, &[1]);
        driver.sync();
        driver.erase(0);
        driver.program(0, 0, &[2]);
        driver.erase(0);
        driver.program(0, 0, &[3]);
        media.power_cut(seed);
        let mut driver = Driver::new(media.open());
        assert_eq!(driver.generation(0), 3, "completed erases are durable");
        let op = driver.read_op(0, 0, 1);
        let page = driver.run(op).unwrap().unwrap();
        seen.extend(page.iter().copied());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn an_unfinished_erase_has_happened_or_not() {
    let generations: std::collections::BTreeSet<_> = (0..40)
        .map(|seed| {
            let config = MemoryConfig { completions_per_poll: 0, ..MemoryConfig::default() };
            let media = MemoryMedia::new(config);
            let mut driver = Driver::new(media.open());
            let op = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
            driver.submit(op);
            assert_eq!(driver.device.poll(&mut Vec::new()), 0, "started, not completed");
            media.power_cut(seed);
            Driver::new(media.open()).generation(1)
        })
        .collect();
    assert_eq!(generations.into_iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_device_without_power_answers_with_errors_and_still_drains() {
    let media = media();
    let mut driver = Driver::new(media.open());
    driver.program(0, 0, &[1]);
    let op = driver.read_op(0, 0, 1);
    driver.submit(op);
    let op = driver.program_op(0, 1, &[2]);
    driver.submit(op);
    media.power_cut(1);
    let done = driver.drain();
    assert_eq!(done.len(), 2);
    assert!(
        done.iter()
            .all(|done| matches!(done.result, Err(FlashError::Failed { .. }))
                && done.buffer.is_some())
    );
    let op = driver.read_op(0, 0, 1);
    assert!(matches!(
        driver.try_submit(op),
        Err(RejectedReason::Refused(FlashError::Failed { .. }))
    ));
    assert_eq!(media.unsynced_pages(), 0, "what was never started never reaches the medium");
}

#[test]
fn the_nth_operation_of_a_kind_fails_once() {
    let media = media();
    let mut driver = Driver::new(media.open());
    driver.program(0, 0, &[1]);
    media.inject(Fault::Fail { kind: OpKind::Read, nth: 2 });
    assert_eq!(driver.read(0, 0, 1), [1]);
    assert_eq!(media.pending_faults(), 1);
    let op = driver.read_op(0, 0, 1);
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "read", .. })));
    assert_eq!(media.pending_faults(), 0);
    assert_eq!(driver.read(0, 0, 1), [1]);
    assert_eq!(driver.device.stats().errors, 1);
}

#[test]
fn a_failed_program_closes_its_block_until_it_is_erased() {
    let media = media();
    let mut driver = Driver::new(media.open());
    driver.program(0, 0, &[1]);
    media.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    let tokens: Vec<_> = [1, 2]
        .map(|index| {
            let op = driver.program_op(0, index, &[9]);
            driver.submit(op)
        })
        .into();
    let done = driver.outcomes();
    assert!(matches!(
        done[&tokens[0]].result,
        Err(FlashError::Medium { operation: "program", .. })
    ));
    assert!(
        matches!(done[&tokens[1]].result, Err(FlashError::Misuse(Misuse::BlockFailed { .. }))),
        "a page behind a hole cannot be read"
    );
    let op = driver.program_op(0, 3, &[9]);
    assert_eq!(driver.misuse(op), Misuse::BlockFailed { block: BlockId(0) });
    assert_eq!(driver.read(0, 0, 1), [1], "what was there still is");
    driver.erase(0);
    driver.program(0, 0, &[2]);
    assert_eq!(driver.read(0, 0, 1), [2]);
}

#[test]
fn a_failed_erase_can_be_repeated_but_not_programmed_over() {
    let media = media();
    let mut driver = Driver::new(media.open());
    driver.program(0, 0, &[1]);
    media.inject(Fault::Fail { kind: OpKind::Erase, nth: 1 });
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(0) };
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "erase", .. })));
    assert_eq!((driver.generation(0), driver.read(0, 0, 1)), (1, vec![1]));
    let op = driver.program_op(0, 1, &[9]);
    assert_eq!(driver.misuse(op), Misuse::BlockFailed { block: BlockId(0) });
    driver.erase(0);
    assert_eq!(driver.generation(0), 2);
}

#[test]
fn after_a_failed_sync_only_reads_are_served() {
    let media = media();
    let mut driver = Driver::new(media.open());
    driver.program(0, 0, &[1]);
    media.inject(Fault::Fail { kind: OpKind::Sync, nth: 1 });
    let op = FlashOp::Sync { token: driver.token() };
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "sync", .. })));
    assert_eq!(driver.read(0, 0, 1), [1]);
    let program = driver.program_op(0, 1, &[2]);
    let erase = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
    let sync = FlashOp::Sync { token: driver.token() };
    for op in [program, erase, sync] {
        assert!(matches!(
            driver.try_submit(op),
            Err(RejectedReason::Refused(FlashError::Failed { .. }))
        ));
    }
}

#[test]
fn torn_programs_and_rot_are_silent() {
    let media = media();
    let mut driver = Driver::new(media.open());
    media.inject(Fault::TornProgram { nth: 1, keep_bytes: PAGE_BYTES + 512 });
    driver.program(0, 0, &[7, 8]);
    let op = driver.read_op(0, 0, 2);
    let pages = driver.run(op).unwrap().unwrap();
    assert_eq!(uniform(&pages[..PAGE_BYTES]), Some(7));
    assert_eq!(uniform(&pages[PAGE_BYTES..][..512]), Some(8));
    assert_eq!(uniform(&pages[PAGE_BYTES + 512..]), Some(0));

    assert!(media.flip_bit(PageId(0), 12), "bit 4 of byte 1");
    let op = driver.read_op(0, 0, 1);
    let page = driver.run(op).unwrap().unwrap();
    assert_eq!((page[0], page[1], page[2]), (7, 7 ^ 16, 7));
    assert!(!media.flip_bit(PageId(31), 0), "there is nothing to rot");
    assert!(!media.flip_bit(PageId(99), 0), "there is no such page");
}

#[test]
fn a_full_medium_refuses_to_grow_until_there_is_room() {
    let media = media();
    let mut driver = Driver::new(media.open());
    media.set_full(true);
    let error = driver.grow(1).unwrap_err();
    assert!(matches!(error, FlashError::Full { .. }) && error.retryable(), "{error}");
    assert_eq!(driver.device.geometry().blocks, 4);
    media.set_full(false);
    driver.grow(1).unwrap();
    assert_eq!(driver.device.geometry().blocks, 5);
}

#[test]
fn opening_again_disconnects_the_device_before() {
    let media = media();
    let mut first = Driver::new(media.open());
    let mut second = Driver::new(media.open());
    let op = FlashOp::Sync { token: first.token() };
    assert!(matches!(
        first.try_submit(op),
        Err(RejectedReason::Refused(FlashError::Failed { .. }))
    ));
    second.sync();
}

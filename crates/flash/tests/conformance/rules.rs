//! The suite: rules that hold for every device. Each device is tried with the same scenarios:
//! fresh, and opened again.

use std::path::{Path, PathBuf};

use timestone_flash::{
    AlignedBuffer, BlockId, EmulatedConfig, EmulatedMedium, FakeConfig, FakeZones, FileConfig,
    FileDevice, FlashClock, FlashError, FlashOp, Generation, Latencies, MemoryConfig, MemoryMedia,
    Misuse, PAGE_BYTES, PageId, RejectedReason, ZonedConfig, ZonedDevice,
};
use timestone_io::{EngineChoice, ZoneLimits};
use timestone_types::random::Seed;

use crate::driver::Driver;

const PAGES: u32 = 8;
const BLOCKS: u32 = 6;
const MAX_BLOCKS: u32 = 12;
const DEPTH: u32 = 32;

/// Makes devices of one kind, over and over on the same medium.
pub(crate) enum Bench {
    Memory(MemoryMedia),
    Emulated(EmulatedMedium),
    File { config: FileConfig, created: bool, _folder: tempfile::TempDir },
    Zoned { zones: FakeZones, created: bool, _folder: tempfile::TempDir },
}

/// Zones of the suite's device: pages of 4 KiB, and less capacity than length.
pub(crate) const ZONE_BYTES: u64 = 16 * PAGE_BYTES as u64;

/// A fake of zoned devices with room for the suite's blocks.
pub(crate) fn zones(conventional: u32, limits: ZoneLimits) -> (FakeZones, tempfile::TempDir) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sequential = MAX_BLOCKS + if conventional < 2 { 2 } else { 0 };
    let config = FakeConfig { conventional, sequential, limits, ..fake(folder.path()) };
    (FakeZones::new(config).unwrap(), folder)
}

/// Its shape without conventional zones and limits.
pub(crate) fn fake(folder: &Path) -> FakeConfig {
    FakeConfig {
        path: folder.join("zones"),
        conventional: 0,
        sequential: MAX_BLOCKS + 2,
        zone_bytes: ZONE_BYTES,
        capacity_bytes: u64::from(PAGES) * PAGE_BYTES as u64,
        unit_bytes: 512,
        limits: ZoneLimits::default(),
        ops_per_poll: usize::MAX,
        shuffle: None,
    }
}

pub(crate) fn zoned_config() -> ZonedConfig {
    ZonedConfig {
        initial_blocks: Some(BLOCKS),
        queue_depth: DEPTH,
        open_blocks: BLOCKS,
        ..ZonedConfig::default()
    }
}

impl Bench {
    fn memory(completions_per_poll: usize, shuffle: Option<u64>) -> Self {
        let config = MemoryConfig {
            pages_per_block: PAGES,
            initial_blocks: BLOCKS,
            max_blocks: MAX_BLOCKS,
            queue_depth: DEPTH,
            completions_per_poll,
            shuffle,
        };
        Self::Memory(MemoryMedia::new(config))
    }

    fn emulated(clock: FlashClock, channels_per_block: u32, latencies: Latencies) -> Self {
        let config = EmulatedConfig {
            pages_per_block: PAGES,
            initial_blocks: BLOCKS,
            max_blocks: MAX_BLOCKS,
            queue_depth: DEPTH,
            channels: 4,
            channels_per_block,
            latencies,
            compact: channels_per_block > 1,
            wakes: latencies != Latencies::ZERO,
            ..EmulatedConfig::default()
        };
        Self::Emulated(EmulatedMedium::new(config, clock))
    }

    fn file(engine: EngineChoice) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let config = file_config(folder.path().join("flash"), engine);
        Self::File { config, created: false, _folder: folder }
    }

    fn zoned(conventional: u32, limits: ZoneLimits) -> Self {
        let (zones, folder) = zones(conventional, limits);
        Self::Zoned { zones, created: false, _folder: folder }
    }

    /// What reads behind the pages of a block that an erase has left: an erase of zones leaves
    /// nothing.
    fn leftover(&self, byte: u8) -> u8 {
        if matches!(self, Self::Zoned { .. }) { 0 } else { byte }
    }

    /// Opens the device (and before that creates it, the first time).
    fn open(&mut self) -> Driver {
        match self {
            Self::Memory(media) => Driver::new(media.open()),
            Self::Emulated(medium) => Driver::new(medium.open().unwrap()),
            Self::File { config, created, .. } => {
                let (device, is_new) = FileDevice::open_or_create(config).unwrap();
                assert_eq!(is_new, !std::mem::replace(created, true));
                Driver::new(device)
            }
            Self::Zoned { zones, created, .. } => {
                let medium = Box::new(zones.open());
                let (device, is_new) =
                    ZonedDevice::open_or_format(medium, &zoned_config()).unwrap();
                assert_eq!(is_new, !std::mem::replace(created, true));
                Driver::new(device)
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let (Self::Zoned { zones, .. }, false) = (self, std::thread::panicking()) {
            assert_eq!(zones.violations(), 0, "the rules of zones were broken");
        }
    }
}

pub(crate) fn file_config(path: PathBuf, engine: EngineChoice) -> FileConfig {
    FileConfig {
        pages_per_block: PAGES,
        initial_blocks: BLOCKS,
        max_blocks: MAX_BLOCKS,
        queue_depth: DEPTH,
        engine,
        ..FileConfig::new(path, MAX_BLOCKS)
    }
}

fn the_geometry_is_as_configured(bench: &mut Bench) {
    let driver = bench.open();
    let geometry = driver.device.geometry();
    assert_eq!(
        (geometry.pages_per_block, geometry.blocks, geometry.max_blocks),
        (PAGES, BLOCKS, MAX_BLOCKS)
    );
    assert_eq!(geometry.page(BlockId(2), 3), PageId(2 * PAGES + 3));
    assert_eq!((geometry.block_of(PageId(19)), geometry.index_of(PageId(19))), (BlockId(2), 3));
    for block in 0..BLOCKS {
        assert_eq!((driver.generation(block), driver.programmed(block)), (1, Some(0)));
    }
    assert_eq!((driver.generation(BLOCKS), driver.programmed(BLOCKS)), (0, None));
}

fn programs_in_order_read_back(bench: &mut Bench) {
    let mut driver = bench.open();
    driver.program(1, 0, &[10]);
    driver.program(1, 1, &[11, 12, 13]);
    driver.program(4, 0, &[40, 41, 42, 43, 44, 45, 46, 47]);
    assert_eq!(driver.read(1, 0, 4), [10, 11, 12, 13]);
    assert_eq!(driver.read(1, 2, 1), [12]);
    assert_eq!(driver.read(4, 6, 2), [46, 47]);
    assert_eq!(driver.programmed(1), Some(4));
    let stats = driver.device.stats();
    assert_eq!((stats.programs, stats.reads), (3, 3));
    assert_eq!(stats.programmed_bytes, 12 * PAGE_BYTES as u64);
    assert_eq!(stats.read_bytes, 7 * PAGE_BYTES as u64);
}

fn many_programs_at_once_complete_in_page_order(bench: &mut Bench) {
    let mut driver = bench.open();
    let mut tokens = [Vec::new(), Vec::new()];
    for index in 0..PAGES {
        for (block, tokens) in tokens.iter_mut().enumerate() {
            let op = driver.program_op(block as u32, index, &[index as u8]);
            tokens.push(driver.submit(op));
        }
    }
    assert_eq!(driver.device.in_flight(), 2 * PAGES as usize);
    let order: Vec<_> = driver
        .drain()
        .into_iter()
        .map(|done| {
            done.result.unwrap();
            assert_eq!(done.buffer.unwrap().len(), PAGE_BYTES, "the buffer comes back");
            done.token
        })
        .collect();
    for tokens in &tokens {
        let seen: Vec<_> = order.iter().filter(|token| tokens.contains(token)).collect();
        assert_eq!(seen, tokens.iter().collect::<Vec<_>>());
    }
    let expected: Vec<u8> = (0..PAGES as u8).collect();
    assert_eq!(driver.read(0, 0, PAGES), expected);
    assert_eq!(driver.read(1, 0, PAGES), expected);
}

fn misuse_is_reported_and_changes_nothing(bench: &mut Bench) {
    let mut driver = bench.open();
    driver.program(0, 0, &[1, 2]);

    let op = driver.program_op(0, 1, &[9]);
    assert_eq!(driver.misuse(op), Misuse::ProgrammedTwice { page: PageId(1), next: 2 });
    let op = driver.program_op(0, 3, &[9]);
    assert_eq!(driver.misuse(op), Misuse::OutOfOrder { page: PageId(3), next: 2 });
    let op = driver.read_op(0, 2, 1);
    assert_eq!(driver.misuse(op), Misuse::ReadErased { page: PageId(2) });
    let op = driver.read_op(0, 1, 3);
    assert_eq!(driver.misuse(op), Misuse::ReadErased { page: PageId(2) });
    let op = driver.read_op(0, 6, 1);
    assert_eq!(driver.misuse(op), Misuse::ReadErased { page: PageId(6) });
    let op = driver.read_op(0, 7, 2);
    assert_eq!(driver.misuse(op), Misuse::NotOneBlock { page: PageId(7), pages: 2 });
    let op = driver.read_op(0, 0, 0);
    assert_eq!(driver.misuse(op), Misuse::NotOneBlock { page: PageId(0), pages: 0 });
    let op = driver.program_op(0, 2, &[9; 7]);
    assert_eq!(driver.misuse(op), Misuse::NotOneBlock { page: PageId(2), pages: 7 });
    let page = PageId(BLOCKS * PAGES);
    let total = u64::from(BLOCKS * PAGES);
    for page in [page, PageId(u32::MAX)] {
        let op = FlashOp::Read {
            token: driver.token(),
            page,
            pages: 1,
            buffer: AlignedBuffer::zeroed(PAGE_BYTES),
        };
        let at = u64::from(page.0);
        assert_eq!(driver.misuse(op), Misuse::OutOfRange { first: at, last: at, pages: total });
    }
    let buffer = AlignedBuffer::zeroed(PAGE_BYTES);
    let op = FlashOp::Read { token: driver.token(), page: PageId(0), pages: 2, buffer };
    assert_eq!(driver.misuse(op), Misuse::WrongBuffer { bytes: PAGE_BYTES, pages: 2 });
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(BLOCKS) };
    assert!(matches!(driver.misuse(op), Misuse::OutOfRange { .. }));
    let op = FlashOp::Grow { token: driver.token(), blocks: 0 };
    assert_eq!(driver.misuse(op), Misuse::Growing);

    assert_eq!(driver.device.in_flight(), 0);
    assert_eq!(driver.device.stats().misuses, 13);
    assert_eq!(driver.read(0, 0, 2), [1, 2]);
    assert_eq!(driver.programmed(0), Some(2));
    driver.program(0, 2, &[3]);
}

fn a_page_cannot_be_read_before_its_program_completed(bench: &mut Bench) {
    let mut driver = bench.open();
    let op = driver.program_op(0, 0, &[5]);
    driver.submit(op);
    let op = driver.read_op(0, 0, 1);
    assert_eq!(driver.misuse(op), Misuse::ReadErased { page: PageId(0) });
    driver.drain();
    assert_eq!(driver.read(0, 0, 1), [5]);
}

fn an_erase_raises_the_generation_and_frees_the_pages(bench: &mut Bench) {
    let mut driver = bench.open();
    driver.program(2, 0, &[1, 2, 3]);
    driver.erase(2);
    assert_eq!((driver.generation(2), driver.programmed(2)), (2, Some(0)));
    assert_eq!((driver.generation(1), driver.generation(3)), (1, 1));
    let op = driver.read_op(2, 0, 1);
    assert_eq!(driver.misuse(op), Misuse::ReadErased { page: PageId(2 * PAGES) });
    driver.program(2, 0, &[7]);
    assert_eq!(driver.read(2, 0, 1), [7]);
    driver.erase(2);
    driver.erase(2);
    assert_eq!(driver.generation(2), 4);
    let stats = driver.device.stats();
    assert_eq!((stats.erases, stats.wear_min, stats.wear_max), (3, 1, 4));
}

fn an_erase_takes_its_turn_and_closes_the_block(bench: &mut Bench) {
    let mut driver = bench.open();
    driver.program(0, 0, &[1, 2]);
    let reads: Vec<_> = (0..2)
        .map(|index| {
            let op = driver.read_op(0, index, 1);
            driver.submit(op)
        })
        .collect();
    let op = driver.program_op(0, 2, &[3]);
    let program = driver.submit(op);
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(0) };
    let erase = driver.submit(op);
    assert_eq!(driver.generation(0), 1, "the generation rises at completion");
    let op = driver.read_op(0, 0, 1);
    assert_eq!(driver.misuse(op), Misuse::Erasing { block: BlockId(0) });
    let op = driver.program_op(0, 3, &[4]);
    assert_eq!(driver.misuse(op), Misuse::Erasing { block: BlockId(0) });
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(0) };
    assert_eq!(driver.misuse(op), Misuse::Erasing { block: BlockId(0) });
    let done = driver.drain();
    let position = |token| done.iter().position(|done| done.token == token).unwrap();
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert!(
        position(program) < position(erase)
            && reads.iter().all(|&read| position(read) < position(erase))
    );
    for (byte, &read) in [1, 2].iter().zip(&reads) {
        assert_eq!(done[position(read)].buffer.as_ref().unwrap()[0], *byte);
    }
    assert_eq!((driver.generation(0), driver.programmed(0)), (2, Some(0)));
}

fn many_erases_at_once_share_their_work(bench: &mut Bench) {
    let mut driver = bench.open();
    let tokens: Vec<_> = (0..BLOCKS)
        .map(|block| {
            let op = FlashOp::Erase { token: driver.token(), block: BlockId(block) };
            driver.submit(op)
        })
        .collect();
    let done = driver.outcomes();
    assert!(tokens.iter().all(|token| done[token].result.is_ok()));
    drop(driver);
    let driver = bench.open();
    assert!((0..BLOCKS).all(|block| driver.generation(block) == 2));
}

fn the_queue_is_bounded(bench: &mut Bench) {
    let mut driver = bench.open();
    for block in 0..4 {
        driver.program(block, 0, &[1; 8]);
    }
    for count in 0..DEPTH {
        let op = driver.read_op(count % 4, count % 8, 1);
        driver.submit(op);
    }
    let op = driver.read_op(0, 0, 1);
    assert!(matches!(driver.try_submit(op), Err(RejectedReason::QueueFull)));
    assert_eq!(driver.drain().len(), DEPTH as usize);
    assert_eq!(driver.read(0, 0, 1), [1]);
}

fn growth_adds_erased_blocks_up_to_the_capacity(bench: &mut Bench) {
    let mut driver = bench.open();
    let op = FlashOp::Grow { token: driver.token(), blocks: 2 };
    driver.submit(op);
    assert_eq!(driver.device.geometry().blocks, BLOCKS, "it rises at completion");
    let op = FlashOp::Grow { token: driver.token(), blocks: 1 };
    assert_eq!(driver.misuse(op), Misuse::Growing);
    let op = driver.program_op(BLOCKS, 0, &[1]);
    assert!(matches!(driver.misuse(op), Misuse::OutOfRange { .. }));
    // The device serves other operations meanwhile.
    let op = driver.program_op(0, 0, &[6]);
    driver.submit(op);
    assert!(driver.drain().iter().all(|done| done.result.is_ok()));
    assert_eq!(driver.device.geometry().blocks, BLOCKS + 2);
    assert_eq!((driver.generation(BLOCKS + 1), driver.programmed(BLOCKS + 1)), (1, Some(0)));
    driver.program(BLOCKS + 1, 0, &[8]);
    let op = FlashOp::Grow { token: driver.token(), blocks: MAX_BLOCKS };
    match driver.try_submit(op) {
        Err(RejectedReason::Refused(FlashError::Full { reason })) => {
            assert!(reason.contains("12"), "{reason}")
        }
        other => panic!("growth beyond the capacity: {other:?}"),
    }
    driver.grow(MAX_BLOCKS - BLOCKS - 2).unwrap();
    driver.sync();
    drop(driver);
    let mut driver = bench.open();
    assert_eq!(driver.device.geometry().blocks, MAX_BLOCKS);
    assert_eq!(driver.read(BLOCKS + 1, 0, 1), [8]);
    assert_eq!(driver.read(MAX_BLOCKS - 1, PAGES - 1, 1), [0], "new pages are zeros");
}

fn recovery_reads_everything_and_observes(bench: &mut Bench) {
    let mut driver = bench.open();
    driver.program(0, 0, &[1, 2, 3]);
    driver.program(1, 0, &[9, 9]);
    driver.erase(1);
    driver.program(1, 0, &[5]);
    driver.sync();
    drop(driver);

    let mut driver = bench.open();
    assert_eq!((driver.generation(0), driver.generation(1)), (1, 2));
    assert_eq!(driver.programmed(0), None);
    assert_eq!(
        driver.read(0, 0, PAGES),
        [1, 2, 3, 0, 0, 0, 0, 0],
        "unknown blocks can be read as a whole"
    );
    let leftover = bench.leftover(9);
    assert_eq!(driver.read(1, 0, 3), [5, leftover, 0], "what an older generation left");
    let op = driver.program_op(0, 3, &[4]);
    assert_eq!(driver.misuse(op), Misuse::NotObserved { block: BlockId(0) });

    driver.device.observe(BlockId(0), Generation(1), 3).unwrap();
    assert_eq!(driver.programmed(0), Some(3));
    let op = driver.read_op(0, 3, 1);
    assert_eq!(driver.misuse(op), Misuse::ReadErased { page: PageId(3) });
    let op = driver.program_op(0, 2, &[4]);
    assert!(matches!(driver.misuse(op), Misuse::ProgrammedTwice { .. }));
    driver.program(0, 3, &[4]);
    assert_eq!(driver.read(0, 0, 4), [1, 2, 3, 4]);

    // Pages of an older generation count as erased, an erase makes any block known.
    driver.device.observe(BlockId(1), Generation(1), 2).unwrap();
    assert_eq!((driver.generation(1), driver.programmed(1)), (2, Some(0)));
    driver.erase(2);
    driver.program(2, 0, &[7]);

    for (block, pages) in [(0, 3), (2, 0)] {
        let again = driver.device.observe(BlockId(block), Generation(1), pages).unwrap_err();
        assert!(matches!(again, FlashError::Misuse(Misuse::AlreadyKnown { .. })), "{again}");
    }
    let missing = driver.device.observe(BlockId(MAX_BLOCKS), Generation(1), 0).unwrap_err();
    assert!(matches!(missing, FlashError::Misuse(Misuse::OutOfRange { .. })), "{missing}");
    let long = driver.device.observe(BlockId(3), Generation(1), PAGES + 1).unwrap_err();
    assert!(matches!(long, FlashError::Misuse(Misuse::NotOneBlock { .. })), "{long}");
}

fn an_observed_generation_ahead_of_the_table_is_adopted(bench: &mut Bench) {
    bench.open();
    let mut driver = bench.open();
    driver.device.observe(BlockId(3), Generation(6), 2).unwrap();
    assert_eq!((driver.generation(3), driver.programmed(3)), (6, Some(2)));
    driver.erase(3);
    assert_eq!(driver.generation(3), 7);
    drop(driver);
    assert_eq!(bench.open().generation(3), 7);
}

fn syncs_complete_also_many_at_once(bench: &mut Bench) {
    let mut driver = bench.open();
    let mut tokens = Vec::new();
    for index in 0..PAGES {
        let op = driver.program_op(0, index, &[index as u8]);
        driver.submit(op);
        let token = driver.token();
        tokens.push(driver.submit(FlashOp::Sync { token }));
    }
    let done = driver.outcomes();
    assert!(tokens.iter().all(|token| done[token].result.is_ok()));
    let stats = driver.device.stats();
    assert_eq!(stats.syncs, u64::from(PAGES));
    assert!(stats.medium_syncs <= stats.syncs);
}

/// Random operations against a model of what every page holds; restarts in between.
fn random_use_agrees_with_a_model(bench: &mut Bench) {
    let mut dice = Seed(0x1234_5678).dice();
    let mut draw = |bound: u64| dice.below(bound);
    let mut model: Vec<(u32, Vec<u8>)> = vec![(1, Vec::new()); BLOCKS as usize];
    let mut driver = bench.open();
    for step in 0..600 {
        let block = draw(BLOCKS.into()) as u32;
        let (generation, pages) = &mut model[block as usize];
        match draw(10) {
            0 => {
                driver.erase(block);
                *generation += 1;
                pages.clear();
            }
            1..=5 if pages.len() < PAGES as usize => {
                let count = 1 + draw(u64::from(PAGES) - pages.len() as u64) as usize;
                let bytes: Vec<u8> = (0..count).map(|_| 1 + draw(255) as u8).collect();
                driver.program(block, pages.len() as u32, &bytes);
                pages.extend(bytes);
            }
            6 if step % 20 == 0 => {
                driver.sync();
                drop(driver);
                driver = bench.open();
                for (block, (generation, pages)) in (0..).zip(&model) {
                    driver
                        .device
                        .observe(BlockId(block), Generation(*generation), pages.len() as u32)
                        .unwrap();
                }
            }
            _ if !pages.is_empty() => {
                let from = draw(pages.len() as u64) as usize;
                assert_eq!(
                    driver.read(block, from as u32, (pages.len() - from) as u32),
                    pages[from..],
                    "step {step}"
                );
            }
            _ => {}
        }
        let (generation, pages) = &model[block as usize];
        assert_eq!(
            (driver.generation(block), driver.programmed(block)),
            (*generation, Some(pages.len() as u32))
        );
    }
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        suite!(@ memory, super::Bench::memory(usize::MAX, None), $($name),*);
        suite!(@ memory_slow_and_shuffled, super::Bench::memory(1, Some(42)), $($name),*);
        suite!(@ emulated_in_virtual_time, super::Bench::emulated(super::FlashClock::stopped(), 1, super::Latencies::PAPERS), $($name),*);
        suite!(@ emulated_on_many_channels, super::Bench::emulated(super::FlashClock::stopped(), 3, super::Latencies::PAPERS), $($name),*);
        suite!(@ emulated_in_real_time, super::Bench::emulated(super::FlashClock::real(), 1, super::Latencies::PAPERS), $($name),*);
        suite!(@ emulated_without_latencies, super::Bench::emulated(super::FlashClock::real(), 1, super::Latencies::ZERO), $($name),*);
        suite!(@ file_by_uring_or_threads, super::Bench::file(super::EngineChoice::Auto), $($name),*);
        suite!(@ zoned, super::Bench::zoned(0, super::ZoneLimits::default()), $($name),*);
        suite!(@ zoned_with_conventional_zones, super::Bench::zoned(3, super::ZoneLimits::default()), $($name),*);
        suite!(@ zoned_within_tight_limits, super::Bench::zoned(1, super::ZoneLimits { max_open: 3, max_active: 8 }), $($name),*);
        suite!(@ file_by_threads, super::Bench::file(super::EngineChoice::Threads), $($name),*);
    };
    (@ $kind:ident, $bench:expr, $($name:ident),*) => {
        mod $kind {
            $(#[test] fn $name() { super::$name(&mut $bench); })*
        }
    };
}

suite!(
    the_geometry_is_as_configured,
    programs_in_order_read_back,
    many_programs_at_once_complete_in_page_order,
    misuse_is_reported_and_changes_nothing,
    a_page_cannot_be_read_before_its_program_completed,
    an_erase_raises_the_generation_and_frees_the_pages,
    an_erase_takes_its_turn_and_closes_the_block,
    many_erases_at_once_share_their_work,
    the_queue_is_bounded,
    growth_adds_erased_blocks_up_to_the_capacity,
    recovery_reads_everything_and_observes,
    an_observed_generation_ahead_of_the_table_is_adopted,
    syncs_complete_also_many_at_once,
    random_use_agrees_with_a_model,
);

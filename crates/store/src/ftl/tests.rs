//! A host that writes, erases, syncs and reads at random over the translation layer, with crashes
//! in between; it knows what must be there.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_flash::{
    AlignedBuffer, BlockId, Fault, FlashCompletion, FlashDevice, FlashOp, Generation, MemoryConfig,
    MemoryMedia, OpKind, PAGE_BYTES, PageId, PowerCut, Token, Unsettled,
};
use timestone_types::random::{Dice, Seed};

use super::{Ftl, FtlConfig, FtlStats};

const PAGES: u32 = 8;

fn media(blocks: u32, shuffle: Option<u64>) -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: PAGES,
        initial_blocks: blocks,
        max_blocks: blocks + 20,
        queue_depth: 16,
        completions_per_poll: if shuffle.is_some() { 3 } else { usize::MAX },
        shuffle,
    })
}

fn open(media: &MemoryMedia) -> Ftl {
    Ftl::open(Box::new(media.open()), FtlConfig::default()).expect("it opens")
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Program {
        block: u32,
        index: u32,
        pages: u32,
    },
    Read {
        block: u32,
        generation: u32,
        index: u32,
        pages: u32,
    },
    Erase {
        block: u32,
    },
    /// The pages of each block that had been programmed.
    Sync,
    Grow,
}

/// A logical block, as the host knows it.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    generation: u32,
    submitted: u32,
    /// Programmed.
    programmed: u32,
    /// Of which so many are durable.
    durable: u32,
    erasing: bool,
}

struct Host {
    ftl: Ftl,
    blocks: Vec<Known>,
    asked: BTreeMap<Token, Asked>,
    covered: BTreeMap<Token, Vec<(u32, u32)>>,
    next: u64,
    dice: Dice,
    done: Vec<FlashCompletion>,
    /// The power may have gone.
    may_fail: bool,
}

/// What fills a page.
fn content(block: u32, generation: u32, index: u32) -> [u8; 16] {
    let mut bytes = *b"host............";
    for (at, word) in [(4, block), (8, generation), (12, index)] {
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn holds(page: &[u8], expected: [u8; 16]) -> bool {
    page.chunks_exact(16).all(|chunk| *chunk == expected)
}

impl Host {
    fn new(ftl: Ftl, seed: u64) -> Self {
        let blocks = ftl.geometry().blocks;
        let of = |block| Known { generation: ftl.generation(BlockId(block)).0, ..Known::default() };
        let blocks = (0..blocks).map(of).collect();
        Self {
            ftl,
            blocks,
            asked: BTreeMap::new(),
            covered: BTreeMap::new(),
            next: 1,
            dice: Seed(seed).dice(),
            done: Vec::new(),
            may_fail: false,
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.dice.below(u64::from(bound)) as u32
    }

    fn submit(&mut self, asked: Asked, op: impl FnOnce(Token) -> FlashOp) -> bool {
        let token = Token(self.next);
        self.next += 1;
        match self.ftl.submit(op(token)) {
            Ok(()) => {
                self.asked.insert(token, asked);
                true
            }
            Err(rejected) => {
                let full = matches!(rejected.reason, timestone_flash::RejectedReason::QueueFull);
                assert!(full || self.may_fail, "{:?}", rejected.reason);
                false
            }
        }
    }

    fn program(&mut self, block: u32, pages: u32) {
        let known = self.blocks[block as usize];
        let index = known.submitted;
        let page = PageId(block * PAGES + index);
        let mut buffer = AlignedBuffer::zeroed(pages as usize * PAGE_BYTES);
        for (bytes, n) in buffer.chunks_exact_mut(PAGE_BYTES).zip(index..) {
            let fill = content(block, known.generation, n);
            bytes.chunks_exact_mut(16).for_each(|chunk| chunk.copy_from_slice(&fill));
        }
        if self.submit(Asked::Program { block, index, pages }, |token| FlashOp::Program {
            token,
            page,
            buffer,
        }) {
            self.blocks[block as usize].submitted += pages;
        }
    }

    fn read(&mut self, block: u32, index: u32, pages: u32) {
        let generation = self.blocks[block as usize].generation;
        let buffer = AlignedBuffer::zeroed(pages as usize * PAGE_BYTES);
        let page = PageId(block * PAGES + index);
        self.submit(Asked::Read { block, generation, index, pages }, |token| FlashOp::Read {
            token,
            page,
            pages,
            buffer,
        });
    }

    fn erase(&mut self, block: u32) {
        if self
            .submit(Asked::Erase { block }, |token| FlashOp::Erase { token, block: BlockId(block) })
        {
            self.blocks[block as usize].erasing = true;
        }
    }

    fn sync(&mut self) {
        let token = Token(self.next);
        let covered =
            self.blocks.iter().map(|known| (known.generation, known.programmed)).collect();
        if self.submit(Asked::Sync, |token| FlashOp::Sync { token }) {
            self.covered.insert(token, covered);
        }
    }

    /// One step of a life.
    fn step(&mut self) {
        let block = self.below(self.blocks.len() as u32);
        let known = self.blocks[block as usize];
        match self.below(20) {
            _ if known.erasing => {}
            0..=9 if known.submitted < PAGES => {
                let pages = 1 + self.below(PAGES - known.submitted);
                self.program(block, pages);
            }
            0 if known.submitted == PAGES => self.erase(block),
            10..=15 if known.programmed > 0 => {
                let index = self.below(known.programmed);
                let pages = 1 + self.below(known.programmed - index);
                self.read(block, index, pages);
            }
            16 => self.sync(),
            _ => {}
        }
        if self.below(3) == 0 {
            self.poll();
        }
    }

    fn poll(&mut self) {
        let mut done = core::mem::take(&mut self.done);
        self.ftl.poll(&mut done);
        for FlashCompletion { token, result, buffer } in done.drain(..) {
            let asked = self.asked.remove(&token).expect("it was asked for, and once");
            if let Err(error) = result {
                assert!(self.may_fail, "{asked:?}: {error}");
                continue;
            }
            match asked {
                Asked::Program { block, index, pages } => {
                    let known = &mut self.blocks[block as usize];
                    assert_eq!(known.programmed, index, "in page order");
                    known.programmed += pages;
                }
                Asked::Read { block, generation, index, pages } => {
                    let buffer = buffer.expect("the buffer of a read");
                    assert_eq!(buffer.len(), pages as usize * PAGE_BYTES);
                    for (page, n) in buffer.chunks_exact(PAGE_BYTES).zip(index..) {
                        assert!(
                            holds(page, content(block, generation, n)),
                            "page {n} of block {block} in generation {generation}"
                        );
                    }
                }
                Asked::Erase { block } => {
                    let generation = self.ftl.generation(BlockId(block)).0;
                    let known = &mut self.blocks[block as usize];
                    assert_eq!(generation, known.generation + 1);
                    *known = Known { generation, ..Known::default() };
                }
                Asked::Sync => {
                    for (known, (generation, durable)) in
                        self.blocks.iter_mut().zip(self.covered.remove(&token).unwrap_or_default())
                    {
                        if known.generation == generation {
                            known.durable = known.durable.max(durable);
                        }
                    }
                }
                Asked::Grow => {
                    self.blocks.resize(
                        self.ftl.geometry().blocks as usize,
                        Known { generation: 1, ..Known::default() },
                    );
                }
            }
        }
        self.done = done;
        self.check_owners();
    }

    /// Invariant (1) of the layer.
    fn check_owners(&self) {
        let ftl = &self.ftl;
        for page in (0..ftl.map.blocks() * PAGES).step_by(7).map(PageId) {
            if let Some(place) = ftl.map.place(page) {
                assert_eq!(ftl.blocks.owner(place), page.0);
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.ftl.in_flight() == 0 {
                return;
            }
            self.poll();
            self.ftl.wait(Duration::from_millis(1));
        }
        panic!("it never ends: {:?}", self.asked);
    }

    /// After a crash: the device is opened again, and holds what was durable.
    fn reopen(self, media: &MemoryMedia, seed: u64) -> Self {
        let before = self.blocks;
        drop(self.ftl);
        let mut host = Self::new(open(media), seed);
        for (block, known) in (0..).zip(&before) {
            let generation = host.blocks[block as usize].generation;
            let erased = generation == known.generation + 1 && known.erasing;
            assert!(generation == known.generation || erased, "block {block}: {known:?}");
            let mut pages = 0;
            for index in 0..PAGES {
                let buffer = AlignedBuffer::zeroed(PAGE_BYTES);
                let page = PageId(block * PAGES + index);
                if host.ftl.programmed(BlockId(block)) == Some(0) {
                    break;
                }
                host.ftl
                    .submit(FlashOp::Read { token: Token(0), page, pages: 1, buffer })
                    .expect("what is not known can be read");
                let mut done = Vec::new();
                while host.ftl.poll(&mut done) == 0 {
                    host.ftl.wait(Duration::from_millis(1));
                }
                let buffer = done.pop().and_then(|done| done.buffer).expect("a read");
                if holds(&buffer, content(block, generation, index)) {
                    pages = index + 1;
                } else if !erased {
                    assert!(
                        index >= known.durable,
                        "page {index} of block {block} is lost: {known:?}"
                    );
                }
            }
            assert!(erased || pages >= known.durable, "block {block}: {known:?}, {pages} pages");
            if host.ftl.programmed(BlockId(block)).is_none() {
                host.ftl
                    .observe(BlockId(block), Generation(generation), pages)
                    .expect("it was not known");
            }
            // A host knows torn pages by their checksums, and goes on in another block.
            host.blocks[block as usize] =
                Known { generation, submitted: pages, programmed: pages, ..Known::default() };
            // What was found is durable when the layer has said so.
            host.blocks[block as usize].durable = if erased { 0 } else { known.durable };
        }
        host
    }
}

/// Lives with a crash after each. Gives what the last one counted.
fn lives(blocks: u32, shuffle: Option<u64>, seed: u64, count: u32, steps: u32) -> FtlStats {
    let media = media(blocks, shuffle);
    let mut host = Host::new(open(&media), seed);
    let mut stats = FtlStats::default();
    for life in 0..count {
        for _ in 0..steps {
            host.step();
        }
        if life % 3 == 2 {
            host.settle();
        }
        stats = host.ftl.ftl_stats();
        if life % 2 == 0 {
            media.power_cut(seed + u64::from(life));
        } else {
            media.kill(seed + u64::from(life));
        }
        host = host.reopen(&media, seed * 31 + u64::from(life));
    }
    stats
}

#[test]
fn what_is_durable_survives_crashes_while_collection_runs() {
    for seed in 0..24 {
        let shuffle = (seed % 2 == 0).then_some(seed);
        let stats = lives(40 + (seed as u32 % 3) * 7, shuffle, seed, 6, 3000);
        assert!(stats.moved_pages > 50 && stats.erased_blocks > 100, "seed {seed}: {stats:?}");
    }
}

#[test]
fn a_device_that_is_written_for_long_goes_on() {
    let media = media(64, None);
    let mut host = Host::new(open(&media), 1);
    for _ in 0..200_000 {
        host.step();
    }
    host.settle();
    let stats = host.ftl.ftl_stats();
    assert!(stats.write_amplification() < 6000, "{stats:?}");
    let wear = host.ftl.stats();
    assert!(wear.wear_max < 3 * wear.wear_min + 20, "wear is spread: {wear:?}");
    assert!(stats.journal_blocks <= u64::from(super::journal::most_blocks(64, PAGES)));
}

/// Cuts the power at every operation.
#[test]
fn a_power_cut_at_any_operation_loses_nothing_durable() {
    let live = |media: &MemoryMedia, seed: u64| {
        let mut host = Host::new(open(media), seed);
        host.may_fail = true;
        for _ in 0..900 {
            host.step();
        }
        host
    };
    let fates = [Unsettled::Lost, Unsettled::Kept, Unsettled::Drawn(5)];
    let mut cuts = 0;
    // The first operations make the journal.
    for operation in (5..).step_by(3) {
        let media = media(32, None);
        let others = fates[operation as usize % 3];
        let keep_bytes = (operation as usize * 1536) % (3 * PAGE_BYTES);
        media.cut_power_at(PowerCut { operation, keep_bytes, others });
        let host = live(&media, 11);
        if media.interrupted_bytes().is_none() {
            break;
        }
        cuts += 1;
        host.reopen(&media, 3);
    }
    assert!(cuts > 100, "{cuts} cuts");
}

#[test]
fn a_power_cut_while_it_is_opened_leaves_a_device_that_opens() {
    for operation in 1..40 {
        for others in [Unsettled::Lost, Unsettled::Drawn(operation.into())] {
            let media = media(32, None);
            media.cut_power_at(PowerCut { operation, keep_bytes: 700, others });
            let opened = Ftl::open(Box::new(media.open()), FtlConfig::default());
            if let Ok(ftl) = opened {
                let mut host = Host::new(ftl, operation.into());
                host.may_fail = true;
                (0..400).for_each(|_| host.step());
                media.power_cut(operation.into());
                let host = host.reopen(&media, 1);
                drop(host);
            } else {
                drop(open(&media));
            }
        }
    }
}

#[test]
fn it_grows_by_whole_logical_blocks() {
    let media = media(32, None);
    let mut host = Host::new(open(&media), 1);
    let before = host.ftl.geometry();
    assert!(before.max_blocks > before.blocks);
    for _ in 0..500 {
        host.step();
    }
    host.submit(Asked::Grow, |token| FlashOp::Grow { token, blocks: 3 });
    host.settle();
    assert!(host.ftl.geometry().blocks >= before.blocks + 3);
    for _ in 0..5000 {
        host.step();
    }
    host.sync();
    host.settle();
    media.power_cut(3);
    let host = host.reopen(&media, 4);
    assert!(host.ftl.geometry().blocks >= before.blocks + 3);
}

#[test]
fn a_device_with_something_else_on_it_is_refused() {
    let media = media(32, None);
    media.set_page(PageId(20 * PAGES), &[7; PAGE_BYTES]);
    let opened = Ftl::open(Box::new(media.open()), FtlConfig::default());
    assert!(matches!(opened.map(|_| ()), Err(crate::StoreError::Corrupt { .. })));
}

#[test]
fn a_journal_with_a_gap_is_refused() {
    // A map of several pages: a round takes several flushes.
    let media = media(300, None);
    let mut host = Host::new(open(&media), 9);
    for _ in 0..20_000 {
        host.step();
    }
    host.settle();
    drop(host);
    let geometry = media.open().geometry();
    let of_journal =
        |page: &PageId| media.page(*page).is_some_and(|bytes| bytes.starts_with(b"TSFT"));
    let pages: Vec<PageId> = (0..geometry.blocks * PAGES).map(PageId).filter(of_journal).collect();
    let mut refused = 0;
    for page in pages {
        let media = media.copy();
        media.flip_bit(page, 8 * 2000);
        let opened = Ftl::open(Box::new(media.open()), FtlConfig::default());
        refused += u32::from(matches!(opened, Err(crate::StoreError::Corrupt { .. })));
    }
    assert!(refused > 0, "damage in the middle is noticed");
}

/// A sync fails: everything is answered, what had been programmed can be read, and nothing is
/// written any more.
#[test]
fn a_failed_sync_ends_writing_and_leaves_nobody_waiting() {
    for nth in [1, 2, 5, 9, 30] {
        let media = media(40, Some(nth.into()));
        let mut host = Host::new(open(&media), nth.into());
        for _ in 0..3000 {
            host.step();
        }
        host.settle();
        media.inject(Fault::Fail { kind: OpKind::Sync, nth });
        host.may_fail = true;
        for _ in 0..20_000 {
            host.step();
        }
        host.settle();
        assert!(host.ftl.failed, "{nth}");
        let block = (0..).find(|&block| host.blocks[block as usize].programmed > 0);
        host.read(block.expect("something was written"), 0, 1);
        host.settle();
        let refused = host.ftl.submit(FlashOp::Sync { token: Token(0) });
        assert!(refused.is_err());
        let host = host.reopen(&media, 1);
        assert!(!host.ftl.failed);
    }
}

/// Programs and erases fail now and then: the host hears nothing of it.
#[test]
fn a_failed_program_or_erase_ends_its_block_and_nothing_else() {
    for seed in 0..24 {
        let media = media(56, (seed % 2 == 0).then_some(seed));
        let mut host = Host::new(open(&media), seed);
        let mut erases = 0;
        for round in 0..60u32 {
            let kind = if round % 9 == 8 { OpKind::Erase } else { OpKind::Program };
            // A block that cannot be erased is lost, and only so many are spare.
            if kind == OpKind::Program || erases < 3 {
                erases += u32::from(kind == OpKind::Erase);
                media.inject(Fault::Fail { kind, nth: 1 + (seed as u32 + round) % 23 });
            }
            for _ in 0..150 {
                host.step();
            }
        }
        host.settle();
        assert!(!host.ftl.failed && host.ftl.failed_blocks > 30, "seed {seed}");
        for block in 0..host.blocks.len() as u32 {
            match host.blocks[block as usize].programmed {
                0 => {}
                pages => host.read(block, 0, pages),
            }
            host.settle();
        }
        media.clear_faults();
        media.power_cut(seed);
        drop(host.reopen(&media, seed));
    }
}

#[test]
fn a_device_on_which_no_program_succeeds_has_failed() {
    let media = media(56, None);
    let mut host = Host::new(open(&media), 1);
    (0..500).for_each(|_| host.step());
    host.settle();
    (0..200).for_each(|_| media.inject(Fault::Fail { kind: OpKind::Program, nth: 1 }));
    host.may_fail = true;
    (0..3000).for_each(|_| host.step());
    host.settle();
    assert!(host.ftl.failed);
}

/// A page that collection cannot read at once is read again.
#[test]
fn a_failed_read_of_collection_loses_nothing() {
    let media = media(40, None);
    let mut host = Host::new(open(&media), 3);
    for round in 0..40 {
        media.inject(Fault::Fail { kind: OpKind::Read, nth: 1 + round % 7 });
        host.may_fail = true;
        for _ in 0..500 {
            host.step();
        }
    }
    host.settle();
    assert!(!host.ftl.failed && host.ftl.ftl_stats().moved_pages > 100);
    media.clear_faults();
    host.may_fail = false;
    for block in 0..host.blocks.len() as u32 {
        match host.blocks[block as usize].programmed {
            0 => {}
            pages => host.read(block, 0, pages),
        }
        host.settle();
    }
}

/// Pages of a journal that are sound and say anything: the device is opened or refused.
#[test]
fn whatever_a_journal_says_nothing_panics() {
    let media = media(120, None);
    let mut host = Host::new(open(&media), 9);
    for _ in 0..5000 {
        host.step();
    }
    host.settle();
    drop(host);
    let device = media.open();
    let generation = |page: PageId| device.generation(device.geometry().block_of(page));
    let pages: Vec<(PageId, Generation)> = (0..device.geometry().blocks * PAGES)
        .map(PageId)
        .filter(|&page| media.page(page).is_some_and(|bytes| bytes.starts_with(b"TSFT")))
        .map(|page| (page, generation(page)))
        .collect();
    let mut dice = Seed(4).dice();
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..800 {
        let media = media.copy();
        for _ in 0..1 + dice.below(3) {
            let (page, generation) = pages[dice.below(pages.len() as u64) as usize];
            let mut bytes = media.page(page).expect("it was programmed");
            let at = if dice.below(2) == 0 { dice.below(64) } else { dice.below(400) } as usize;
            bytes[at] = dice.roll() as u8;
            if dice.below(4) == 0 {
                let word = at / 4 * 4;
                bytes[word..word + 4].fill([0, 0xff][dice.below(2) as usize]);
            }
            super::journal::seal(&mut bytes, page, generation);
            media.set_page(page, &bytes);
        }
        match Ftl::open(Box::new(media.open()), FtlConfig::default()) {
            Err(_) => refused += 1,
            Ok(mut ftl) => {
                opened += 1;
                let mut done = Vec::new();
                for block in 0..ftl.geometry().blocks {
                    if ftl.programmed(BlockId(block)) == Some(0) {
                        continue;
                    }
                    let buffer = AlignedBuffer::zeroed(PAGES as usize * PAGE_BYTES);
                    let page = PageId(block * PAGES);
                    let read = FlashOp::Read { token: Token(1), page, pages: PAGES, buffer };
                    let _ = ftl.submit(read);
                    let _ = ftl.submit(FlashOp::Erase { token: Token(2), block: BlockId(block) });
                    ftl.poll(&mut done);
                }
                (0..20).for_each(|_| _ = ftl.poll(&mut done));
            }
        }
    }
    assert!(opened > 100 && refused > 8, "{opened} opened, {refused} refused");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_layer_that_forgets_what_it_has_moved_is_found() {
    use timestone_types::planted::{Bug, set};

    for bug in [Bug::ErasesUnjournaled, Bug::JournalsUnsynced] {
        let found = (0..40).find(|&seed| {
            set(Some(bug));
            let run = || lives(40, None, seed, 12, 1500);
            let failed = std::panic::catch_unwind(run).is_err();
            set(None);
            failed
        });
        assert!(found.is_some(), "{bug:?}");
    }
}

/// Who is told of erases has less to move.
#[test]
fn without_trims_what_was_erased_is_moved_until_it_is_written_again() {
    let moved = [true, false].map(|trims| {
        let config = FtlConfig { journaled: false, trims, ..FtlConfig::default() };
        let ftl = Ftl::open(Box::new(media(40, Some(3)).open()), config).expect("it opens");
        let mut host = Host::new(ftl, 5);
        for _ in 0..20_000 {
            host.step();
        }
        host.settle();
        host.ftl.ftl_stats().moved_pages
    });
    assert!(moved[1] > moved[0] * 3 / 2, "{moved:?}");
}

#[test]
fn without_a_journal_it_works_the_same_and_is_not_opened_again() {
    let media = media(40, Some(3));
    let config = FtlConfig { journaled: false, ..FtlConfig::default() };
    let ftl = Ftl::open(Box::new(media.open()), config).expect("it opens");
    let mut host = Host::new(ftl, 5);
    for _ in 0..20_000 {
        host.step();
    }
    host.settle();
    let stats = host.ftl.ftl_stats();
    assert!(stats.moved_pages > 100 && stats.journal_pages == 0, "{stats:?}");
    drop(host);
    for journaled in [false, true] {
        let config = FtlConfig { journaled, ..FtlConfig::default() };
        let opened = Ftl::open(Box::new(media.open()), config);
        assert!(matches!(opened, Err(crate::StoreError::Corrupt { .. })));
    }
}

//! What outlives an emulated device: its pages, generations and bad blocks, and the faults that
//! were ordered for it.
//!
//! ```text
//!   EmulatedMedium (shared handle) ── inject, flip_bit, wear, next_due ──► Medium
//!                                     EmulatedDevice (one at a time) ──────► programs, erases, reads
//! ```
//!
//! What is programmed stays, also when the device is dropped: a restart of the process that finds
//! its flash as it was. What is deliberately absent: power cuts, which the memory device has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use timestone_io::IoError;

use crate::clock::FlashClock;
use crate::device::{BlockId, Generation, PageId};
use crate::emulated::channels::Latencies;
use crate::emulated::device::EmulatedDevice;
use crate::emulated::pages::PageStore;
use crate::faults::{Fault, FaultOrders};
use crate::limits;

/// Shape and manners of an emulated device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmulatedConfig {
    /// Pages of every block.
    pub pages_per_block: u32,
    /// Blocks usable at first.
    pub initial_blocks: u32,
    /// Blocks it may grow to.
    pub max_blocks: u32,
    /// Most operations in flight.
    pub queue_depth: u32,
    /// Channels, which the blocks lie on in turn.
    pub channels: u32,
    /// Channels that the pages of one block are spread over, 1 to `channels`. More than one is what
    /// SSDs call a superblock.
    pub channels_per_block: u32,
    /// How long operations take.
    pub latencies: Latencies,
}

impl EmulatedConfig {
    /// The papers' emulated SSD: 32 pages of 4 KiB a block, queue depth 128, 50 µs, 100 µs and 1 ms
    /// (SEMEL §5, SkimpyFTL §4), with so many blocks. The channels are ours
    /// ([`limits::DEFAULT_CHANNELS`]).
    #[must_use]
    pub fn papers(blocks: u32) -> Self {
        Self {
            pages_per_block: limits::PAPERS_PAGES_PER_BLOCK,
            initial_blocks: blocks,
            max_blocks: blocks,
            ..Self::default()
        }
    }
}

impl Default for EmulatedConfig {
    fn default() -> Self {
        Self {
            pages_per_block: limits::DEFAULT_PAGES_PER_BLOCK,
            initial_blocks: 16,
            max_blocks: 64,
            queue_depth: limits::DEFAULT_QUEUE_DEPTH,
            channels: limits::DEFAULT_CHANNELS,
            channels_per_block: 1,
            latencies: Latencies::PAPERS,
        }
    }
}

/// The medium of an emulated device: outlives the device, takes orders for faults. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EmulatedMedium {
    shared: Arc<Mutex<Medium>>,
    config: EmulatedConfig,
    clock: FlashClock,
}

impl EmulatedMedium {
    /// A fresh medium of erased blocks, whose operations take their time by this clock: the
    /// machine's ([`FlashClock::real`]), or one that somebody moves ([`FlashClock::stopped`]).
    ///
    /// # Panics
    /// When the configuration has no pages, channels or queue, or more blocks at first than at
    /// most, or its pages cannot be numbered in 32 bits.
    #[must_use]
    pub fn new(config: EmulatedConfig, clock: FlashClock) -> Self {
        assert!(config.pages_per_block > 0 && config.initial_blocks <= config.max_blocks);
        assert!(config.queue_depth > 0, "a device takes operations");
        assert!(
            (1..=config.channels).contains(&config.channels_per_block),
            "a block lies on channels that are there"
        );
        assert!(
            config.max_blocks.checked_mul(config.pages_per_block).is_some(),
            "pages are numbered in 32 bits"
        );
        let medium = Medium {
            pages_per_block: config.pages_per_block,
            generations: vec![Generation::FIRST; config.initial_blocks as usize],
            pages: PageStore::new((config.initial_blocks * config.pages_per_block) as usize),
            fresh: true,
            session: 0,
            orders: FaultOrders::default(),
            full: false,
            next_due: None,
        };
        Self { shared: Arc::new(Mutex::new(medium)), config, clock }
    }

    /// Opens the device. A device opened before on the same medium stops working, as after a
    /// restart of the process.
    ///
    /// # Errors
    /// When the system is out of descriptors; never by a virtual clock.
    pub fn open(&self) -> Result<EmulatedDevice, IoError> {
        EmulatedDevice::open(self.clone())
    }

    /// Its clock, to be moved if it is a virtual one.
    #[must_use]
    pub fn clock(&self) -> &FlashClock {
        &self.clock
    }

    /// When something that was started completes next, by the clock.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.lock().next_due
    }

    /// Orders a fault.
    pub fn inject(&self, fault: Fault) {
        self.lock().orders.add(fault);
    }

    /// Takes back the faults that have not struck yet.
    pub fn clear_faults(&self) {
        self.lock().orders.clear();
    }

    /// Faults that were ordered and have not struck yet.
    #[must_use]
    pub fn pending_faults(&self) -> usize {
        self.lock().orders.pending()
    }

    /// Flips one bit (0 to 32 767) of a page as it is now: rot. Says whether the page ever held
    /// data; nothing is flipped otherwise.
    pub fn flip_bit(&self, page: PageId, bit: usize) -> bool {
        self.lock().pages.flip_bit(page, bit)
    }

    /// Makes every growth fail for lack of space, or no longer.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    pub(super) fn config(&self) -> &EmulatedConfig {
        &self.config
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Medium> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The medium itself.
#[derive(Debug)]
pub(super) struct Medium {
    pages_per_block: u32,
    pub(super) generations: Vec<Generation>,
    pub(super) pages: PageStore,
    /// Never opened: all blocks are known to be empty.
    fresh: bool,
    /// Rises at each opening; a device of an older session is dead.
    pub(super) session: u64,
    pub(super) orders: FaultOrders,
    pub(super) full: bool,
    pub(super) next_due: Option<u64>,
}

impl Medium {
    /// The next session. Says whether the medium had never been opened.
    pub(super) fn begin_session(&mut self) -> bool {
        self.session += 1;
        self.next_due = None;
        std::mem::replace(&mut self.fresh, false)
    }

    /// The block is erased. Its pages keep their content until they are programmed again.
    pub(super) fn erased(&mut self, block: BlockId) {
        let generation = &mut self.generations[block.0 as usize];
        *generation = generation.next();
    }

    /// A generation that recovery found to be higher than the medium's.
    pub(super) fn adopt(&mut self, block: BlockId, generation: Generation) {
        self.generations[block.0 as usize] = generation;
    }

    /// Adds erased blocks.
    pub(super) fn grow_to(&mut self, blocks: u32) {
        self.generations.resize(blocks as usize, Generation::FIRST);
        self.pages.grow_to((blocks * self.pages_per_block) as usize);
    }

    /// The page at which a misdirected program lands.
    pub(super) fn astray(&self, page: PageId, off: u32, pages: u32) -> PageId {
        let last = (self.pages.len() as u32).saturating_sub(pages);
        PageId(page.0.wrapping_add(off) % (last + 1))
    }
}

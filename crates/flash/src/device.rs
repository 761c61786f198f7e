//! The interface of a flash device: geometry, operations, completions, and the trait that every
//! device implements.
//!
//! ```text
//!            submit Erase            Program 0..n, in order          submit Erase
//!   unknown ─────────────► erased ─────────────────────────► filled ─────────────► erased (generation + 1)
//!      └──── observe(generation, programmed pages) ────────────┘
//! ```
//!
//! **Rules.** A block has a generation (its erase count, from 1) and a write pointer. A program
//! must start at the write pointer; pages below it can be read once their program has completed. A
//! device that was opened again does not know the write pointers: until the owner
//! [`observe`](FlashDevice::observe)s a block, every page of it may be read (whatever is there,
//! also leftovers of older generations, which is why owners stamp pages with the generation), and
//! none programmed.
//!
//! **Order.** Completions of programs to one block come in page order; everything else completes in
//! any order. An erase takes its turn after the reads and programs of its block that were submitted
//! before it; from its submission to its completion the block takes nothing else. Programs are
//! durable after a `Sync` that was *submitted after their completion*; erases and growth are
//! durable when they complete.

use core::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_io::AlignedBuffer;

use crate::error::FlashError;

/// Bytes of a page, the unit of reading and programming.
pub const PAGE_BYTES: usize = 4096;

/// One erase block, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockId(pub u32);

/// One page of the device: block × pages per block + index in the block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageId(pub u32);

/// How often a block was erased, plus one; zero is never handed out, so that a page of zeros
/// belongs to no generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u32);

impl Generation {
    /// The generation of a block that was never erased.
    pub const FIRST: Self = Self(1);

    /// The generation after this one's erase; stays at the last one rather than begin again.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The shape of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Pages of every block.
    pub pages_per_block: u32,
    /// Blocks that can be used now: 0 up to this.
    pub blocks: u32,
    /// Blocks that the device may grow to.
    pub max_blocks: u32,
}

impl Geometry {
    /// The page at `index` of `block`. Both must be within the geometry.
    #[must_use]
    pub const fn page(self, block: BlockId, index: u32) -> PageId {
        debug_assert!(index < self.pages_per_block);
        PageId(block.0 * self.pages_per_block + index)
    }

    /// The block that holds `page`.
    #[must_use]
    pub const fn block_of(self, page: PageId) -> BlockId {
        BlockId(page.0 / self.pages_per_block)
    }

    /// The position of `page` in its block.
    #[must_use]
    pub const fn index_of(self, page: PageId) -> u32 {
        page.0 % self.pages_per_block
    }

    /// Pages that the device may grow to; all have lower numbers.
    #[must_use]
    pub const fn most_pages(self) -> u32 {
        self.max_blocks.saturating_mul(self.pages_per_block)
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        self.pages_per_block as u64 * PAGE_BYTES as u64
    }

    /// Bytes that can be used now.
    #[must_use]
    pub const fn usable_bytes(self) -> u64 {
        self.blocks as u64 * self.block_bytes()
    }
}

/// Chosen by the caller of [`FlashDevice::submit`], returned in the completion, never interpreted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

/// One operation on a device.
#[derive(Debug)]
pub enum FlashOp {
    /// Reads `pages` consecutive pages of one block into the start of `buffer`, which must be large
    /// enough.
    Read {
        /// Returned in the completion.
        token: Token,
        /// The first page.
        page: PageId,
        /// How many, at least 1.
        pages: u32,
        /// Where they go; comes back in the completion.
        buffer: AlignedBuffer,
    },
    /// Programs the next pages of a block: as many as `buffer` is long (a multiple of
    /// [`PAGE_BYTES`]). `page` must be the block's write pointer. Programs that follow each other
    /// are written together.
    Program {
        /// Returned in the completion.
        token: Token,
        /// The first page.
        page: PageId,
        /// The pages' bytes; comes back in the completion.
        buffer: AlignedBuffer,
    },
    /// Erases a block: its generation rises, durably, by the time of completion.
    Erase {
        /// Returned in the completion.
        token: Token,
        /// The block.
        block: BlockId,
    },
    /// Programs that had completed when this was submitted are durable when it completes.
    Sync {
        /// Returned in the completion.
        token: Token,
    },
    /// Adds `blocks` erased blocks at the end, in the background and in pieces; `geometry().blocks`
    /// rises at completion. One at a time.
    Grow {
        /// Returned in the completion.
        token: Token,
        /// How many more blocks.
        blocks: u32,
    },
}

impl FlashOp {
    /// The token it will complete under.
    #[must_use]
    pub fn token(&self) -> Token {
        match self {
            Self::Read { token, .. }
            | Self::Program { token, .. }
            | Self::Erase { token, .. }
            | Self::Sync { token }
            | Self::Grow { token, .. } => *token,
        }
    }
}

/// What came of an operation.
#[derive(Debug)]
pub struct FlashCompletion {
    /// The token it was submitted under.
    pub token: Token,
    /// Success, or why not.
    pub result: Result<(), FlashError>,
    /// The buffer of a read or program.
    pub buffer: Option<AlignedBuffer>,
}

/// Why an operation was not accepted.
#[derive(Debug)]
pub enum RejectedReason {
    /// As many operations are in flight as the queue is deep: poll, then try again.
    QueueFull,
    /// The device would break its rules, or has failed.
    Refused(FlashError),
}

/// An operation that was not accepted, given back whole.
#[derive(Debug)]
pub struct Rejected {
    /// Why.
    pub reason: RejectedReason,
    /// The operation.
    pub op: FlashOp,
}

/// Counters since the device was opened, and its wear.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    /// Completed read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Completed program operations.
    pub programs: u64,
    /// Bytes programmed.
    pub programmed_bytes: u64,
    /// Writes that the programs were coalesced into.
    pub program_writes: u64,
    /// Completed erases.
    pub erases: u64,
    /// Completed sync operations.
    pub syncs: u64,
    /// Syncs of the medium that served them (and erases and growth).
    pub medium_syncs: u64,
    /// Operations that completed with an error.
    pub errors: u64,
    /// Operations rejected because they break the rules.
    pub misuses: u64,
    /// Damaged copies of device structures that were found at opening and repaired from their
    /// twins.
    pub repairs: u64,
    /// Lowest generation of a usable block.
    pub wear_min: u32,
    /// Highest generation of a usable block.
    pub wear_max: u32,
    /// Usable blocks that the device knows as bad.
    pub bad_blocks: u32,
    /// How exactly an emulated device keeps its times; zeros of every other.
    pub release_error: ReleaseError,
}

/// How much later than due an emulated device's completions were released by its owner's polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReleaseError {
    /// Completions.
    pub count: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The largest, in nanoseconds.
    pub max_ns: u64,
}

/// A flash device: asynchronous, single-threaded, never blocking but in [`wait`](Self::wait). See
/// the module's rules.
pub trait FlashDevice: Send {
    /// The shape now.
    fn geometry(&self) -> Geometry;

    /// The current generation of a block, zero when there is no such block. Rises when an erase
    /// *completes*.
    fn generation(&self, block: BlockId) -> Generation;

    /// The write pointer: pages of the block that were submitted for programming since its erase.
    /// `None` while it is unknown (opened again and not yet observed, or no such block).
    fn programmed(&self, block: BlockId) -> Option<u32>;

    /// Whether its blocks wear out by being erased, so that an owner should wear them evenly. If
    /// not, whatever lies below sees to that.
    fn wears_out(&self) -> bool {
        true
    }

    /// Which channel a block lies on, or the first of several. Operations of blocks with the same one
    /// are served one after the other, so that an erase holds up programs and reads of all of them; those
    /// of other blocks are not held up. `None`: the device does not know, or it is not so simple.
    fn channel(&self, block: BlockId) -> Option<u32> {
        let _ = block;
        None
    }

    /// Whether the device knows a block as bad: its pages can be read as far as they are there, but
    /// neither programs nor erases of it succeed any more, also after a restart. A device that keeps
    /// no such knowledge says no.
    fn is_bad(&self, block: BlockId) -> bool {
        let _ = block;
        false
    }

    /// Recovery: tells the device what the owner's scan of page headers found, so that it accepts
    /// the next program there and guards what is below. A generation above the device's own is
    /// adopted (its table was damaged and lags). A generation below it says that only leftovers
    /// were found: the block counts as erased.
    ///
    /// # Errors
    /// Misuse when the block does not exist, is already known, is busy, or has fewer pages.
    fn observe(
        &mut self,
        block: BlockId,
        generation: Generation,
        programmed_pages: u32,
    ) -> Result<(), FlashError>;

    /// The owner programs nothing more in this block before its erase: the device may give back what
    /// it keeps for an open block. A device that keeps nothing ignores it.
    fn seal(&mut self, block: BlockId) {
        let _ = block;
    }

    /// Accepts an operation; it starts at the next [`poll`](Self::poll) or [`wait`](Self::wait).
    ///
    /// # Errors
    /// Gives the operation back when the queue is full, it breaks the rules, or the device has
    /// failed.
    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected>;

    /// Starts what was accepted, appends what has completed to `completions`, says how many. Never
    /// blocks.
    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize;

    /// Operations accepted and not yet completed by a poll.
    fn in_flight(&self) -> usize;

    /// Blocks until a poll may make progress, or `timeout` has passed (recovery, shutdown, tests).
    fn wait(&mut self, timeout: Duration);

    /// Becomes readable (a new edge each time) when a poll may make progress; needs no reading by
    /// an edge-triggered [`Poller`](timestone_io::Poller). `None`: poll whenever something is in
    /// flight.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Counters and wear.
    fn stats(&self) -> DeviceStats;
}

//! What collection has to do with single buckets, and why: the words of [`super::collect`].
//!
//! Nothing is done here. A bucket is gathered first (`Gathering`), and then written, as a whole or
//! only what it has in the block that is emptied.

use timestone_types::Timestamp;

use super::chain::Gathering;

/// Buckets that are gathered at once.
pub(super) const AT_ONCE: usize = 256;
/// Those of them that are gathered only because their chains are long: nobody waits for these, and each is
/// written in the pump in which it is there, which puts wait for.
pub(super) const LONG_AT_ONCE: usize = 8;
/// How often what cannot be read is tried again: a device may fail to read once.
pub(super) const MOST_FAILURES: u32 = 8;

/// A bucket that is to be put together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    pub(super) bucket: u32,
    /// So many blocks were free, and so many of them clean, when there was no room for it.
    pub(super) refused: (u32, u32),
}

/// What decides whether buckets for which there is no room find some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Circumstances {
    pub(super) free: u32,
    pub(super) clean: u32,
    /// Pages of the open block.
    pub(super) left: u32,
    /// Blocks that are being emptied or erased, and whether the store may grow.
    pub(super) coming: u32,
    /// Whether blocks of large values are looked at or emptied, or have nothing to win.
    pub(super) parts_work: bool,
    pub(super) parts_rest: bool,
    pub(super) may_grow: bool,
    pub(super) mark: Timestamp,
    pub(super) floor: Timestamp,
    pub(super) waiting: usize,
    pub(super) leaving: usize,
}

/// A bucket that is being rewritten.
#[derive(Debug, Default)]
pub(super) struct BucketJob {
    /// What was gathered before something was linked in front.
    pub(super) whole: Option<Gathering>,
    pub(super) why: Why,
    /// How often it could not be gathered.
    pub(super) failures: u32,
}

/// Why a bucket is gathered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Why {
    /// It has records in pages that could not be programmed.
    Displaced,
    /// It has records in the log's tail.
    Tail,
    /// Its chain is long.
    Long,
    /// It is in pieces.
    #[default]
    Repair,
}

//! Checkpoints: everything that a shard's primary has, for a replica that has lost it, is new, or
//! lacks batches that nobody keeps any more.
//!
//! ```text
//!   replica: Rebuild ── ask(session, 0, 1, …) ──► primary: Export
//!                    ◄── part 0, 1, … last ──────
//!
//!   batches   … n │ n+1 …  m … through          (they go on to be written all the while)
//!                 │  │      └ kept state again: promises, outcomes, the bound
//!                 │  └ from here on every batch that counts is in a part
//!                 └ begin; once it counts: the state again, and then the walk over all keys
//! ```
//! A candidate that cannot serve before others have what it has gives them as well: of a store that
//! nobody writes to, with the batches that its own log is needed for.
//!
//! The primary goes on serving. What the walk meets is what the store has then, at the begin or
//! later; what is written meanwhile is in batches that are in parts as well. A replay takes records
//! in any order and versions twice, so both together are everything.
//!
//! Why nothing is missed. A write that is committed in a batch up to n is in the store when the walk
//! begins, or waits for room there: then it is among the promises that are recorded again. An
//! undecided promise is recorded again, too, and its decision comes in a later batch. What was
//! collected before the walk met it is superseded by a version that the watermark has passed; that
//! one is in the store, or was collected by the same reason, or came in a later batch. The same holds
//! for tombstones: one that is gone has nothing older left, here or in any batch that is still to
//! come. A key that is deleted and collected after the walk has met it is deleted by a later batch.
//! Nothing is collected as a tombstone by whoever takes the parts: its replay floor stays at zero.
//!
//! The last part is given when the state that was recorded again counts, so that it is in every
//! later epoch's table. Only batches that count are in parts (rule P12). Keyspaces in memory are
//! not: they are lost with every change of the primary.
//!
//! Source: docs/protocol/replication.md, P16 to P19; docs/formats/checkpoint.md.

mod copy;
mod export;
mod part;
mod rebuild;
mod walk;

pub use copy::{KeyspaceCopy, KeyspaceEnd};
pub(crate) use export::{Exports, Tap, ToDo};
pub use rebuild::{LoggedBatch, Rebuild, RebuildStep};

/// Which part of which checkpoint somebody asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartAsk {
    /// The number of the checkpoint, chosen by whoever takes it.
    pub session: u64,
    /// The part, counted from zero.
    pub part: u64,
}

/// Bytes of a [`PartAsk`].
pub const ASK_BYTES: usize = 16;

impl PartAsk {
    /// As it travels.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ASK_BYTES] {
        let mut bytes = [0; ASK_BYTES];
        bytes[..8].copy_from_slice(&self.session.to_le_bytes());
        bytes[8..].copy_from_slice(&self.part.to_le_bytes());
        bytes
    }

    /// As it has travelled; none where that is no question for a part.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (session, part) = bytes.split_at_checked(ASK_BYTES / 2)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        Some(Self { session: number(session)?, part: number(part)? })
    }

    /// For the part behind it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { session: self.session, part: self.part.saturating_add(1) }
    }
}

/// A part of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointPart {
    /// What it answers.
    pub ask: PartAsk,
    /// Nothing follows: it is the last one, or says that there is no such checkpoint any more.
    pub is_last: bool,
    /// The part.
    pub bytes: Vec<u8>,
}

/// A part holds about so many bytes; one record or batch that is larger comes alone. Tests have less,
/// so that there are many of them.
pub const PART_BYTES: usize = if cfg!(test) { 4 * 1024 } else { 256 * 1024 };
/// Batches that were written and are in no part yet: when there are more bytes of them, whoever
/// takes the parts is too slow, and begins anew. What is recorded again for the checkpoint does not
/// count. Tests have less.
pub const MAX_TAPPED_BYTES: usize = if cfg!(test) { 512 * 1024 } else { 64 * 1024 * 1024 };
/// A checkpoint that nobody asks for is forgotten after this time.
pub const FORGOTTEN_AFTER: core::time::Duration = core::time::Duration::from_secs(10);
/// When the store could not be read for a checkpoint, no other one begins for as long; twice as long
/// after each further time, up to the last.
const FIRST_PAUSE: core::time::Duration = core::time::Duration::from_secs(10);
const LAST_PAUSE: core::time::Duration = core::time::Duration::from_secs(640);

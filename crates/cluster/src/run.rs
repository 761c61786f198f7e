//! Run numbers: by which a data directory that is an older copy of itself is noticed (rule P16 of
//! docs/protocol/replication.md).
//!
//! ```text
//!   directory: run d ─► master: run k      d follows k? ─ no ─► an older copy: nothing in it may be used
//!                                             yes ─► the next run n: durable in the directory ─► durable at the master ─► serve
//! ```
//! The directory is asked for nothing and raised by nothing before the master has told what it
//! knows: otherwise an older copy whose starts are refused would catch up. It is raised before the
//! master: otherwise a crash between the two would make the latest directory look old.

use core::fmt;

use crate::ClusterError;
use crate::codec::{Cursor, put_u64};

/// One run of a data directory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Run {
    /// Counts the runs of the directory, from 1.
    pub number: u64,
    /// Drawn at random, so that two copies of a directory that both begin a run of one number know
    /// that they are two.
    pub tag: u64,
}

impl Run {
    /// No run yet.
    pub const NONE: Self = Self { number: 0, tag: 0 };
    /// The bytes that it takes.
    pub(crate) const BYTES: usize = 16;

    /// Whether a directory whose last run this is has everything that was done in it, where the
    /// master knows that `known` has begun. A higher number than the master's is sound: the process
    /// died between the two, or the master was restored.
    #[must_use]
    pub fn follows(self, known: Self) -> bool {
        self == known
            || self.number > known.number
            || timestone_types::is_planted!(BelievesOlderCopy)
    }

    /// The run that begins now, above what the directory (`self`) and the master have. A start that
    /// fails before the master has heard of it uses up no number.
    #[must_use]
    pub fn next(self, known: Self, tag: u64) -> Self {
        Self { number: self.number.max(known.number.saturating_add(1)), tag }
    }

    /// Whether the master's number was higher when this run began: the master's state is older than
    /// the directory.
    #[must_use]
    pub const fn is_ahead_of(self, known: Self) -> bool {
        self.number > known.number.saturating_add(1)
    }

    /// Whether a run that is about to begin may, at a master that knows that `known` has begun. The
    /// same once more is a repeat.
    pub(crate) fn may_begin(self, known: Self) -> bool {
        self == known || self.number > known.number
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_u64(out, self.number);
        put_u64(out, self.tag);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, ClusterError> {
        Ok(Self { number: cursor.u64()?, tag: cursor.u64()? })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

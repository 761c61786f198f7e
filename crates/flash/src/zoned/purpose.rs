//! What is under way on the medium, and for whom: the small words between the device's parts.

use timestone_io::IoToken;

use crate::device::{BlockId, Token};
use crate::queued::runs::RunId;

/// An erase whose generation is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Erasing {
    pub(super) token: Token,
    pub(super) block: BlockId,
    pub(super) started: bool,
}

/// Who waits for a sync of the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Syncer {
    Caller(Token),
    Table,
}

/// What an operation of the medium is for; travels in its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Read(u32),
    Run(RunId),
    /// A write or a reset of the table's log.
    Log,
    Sync,
    /// The reset that an erase is.
    Erase(BlockId),
    /// The reset of a zone that holds what nobody wants.
    Clear(BlockId),
    Finish(BlockId),
}

impl Purpose {
    pub(super) fn token(self) -> IoToken {
        let (kind, index) = match self {
            Self::Read(index) => (0, index),
            Self::Run(id) => (1, id.0),
            Self::Log => (2, 0),
            Self::Sync => (3, 0),
            Self::Erase(block) => (4, block.0),
            Self::Clear(block) => (5, block.0),
            Self::Finish(block) => (6, block.0),
        };
        IoToken(kind << 32 | u64::from(index))
    }

    pub(super) fn of(token: IoToken) -> Self {
        let index = token.0 as u32;
        match token.0 >> 32 {
            0 => Self::Read(index),
            1 => Self::Run(RunId(index)),
            2 => Self::Log,
            3 => Self::Sync,
            4 => Self::Erase(BlockId(index)),
            5 => Self::Clear(BlockId(index)),
            6 => Self::Finish(BlockId(index)),
            other => unreachable!("the device hands out no tokens of kind {other}"),
        }
    }
}

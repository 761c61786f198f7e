//! An operation that a device has accepted: checked against the rules, and what is left of it to do.

use crate::device::{BlockId, FlashOp};
use crate::error::{FlashError, Misuse};
use crate::faults::OpKind;
use crate::ledger::{Extent, Ledger};

/// What an accepted operation does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PendingOp {
    Read(Extent),
    Program(Extent),
    Erase(BlockId),
    Sync,
    /// The device has so many blocks afterwards.
    Grow(u32),
}

impl PendingOp {
    /// Checks an operation against the rules and counts it in. `failed`: why the device takes nothing
    /// but reads any more. `growing`: a growth is under way.
    pub(crate) fn admit(
        op: &FlashOp,
        failed: Option<&'static str>,
        ledger: &mut Ledger,
        growing: &mut bool,
    ) -> Result<Self, FlashError> {
        if let (Some(reason), false) = (failed, matches!(op, FlashOp::Read { .. })) {
            return Err(FlashError::Failed { reason });
        }
        match op {
            FlashOp::Read { page, pages, buffer, .. } => {
                ledger.begin_read(*page, *pages, buffer).map(Self::Read)
            }
            FlashOp::Program { page, buffer, .. } => {
                ledger.begin_program(*page, buffer).map(Self::Program)
            }
            FlashOp::Erase { block, .. } => {
                ledger.begin_erase(*block).map(|()| Self::Erase(*block))
            }
            FlashOp::Sync { .. } => Ok(Self::Sync),
            FlashOp::Grow { .. } if *growing => Err(Misuse::Growing.into()),
            FlashOp::Grow { blocks, .. } => {
                let target = ledger.check_growth(*blocks)?;
                *growing = true;
                Ok(Self::Grow(target))
            }
        }
    }

    pub(crate) const fn kind(self) -> OpKind {
        match self {
            Self::Read(_) => OpKind::Read,
            Self::Program(_) => OpKind::Program,
            Self::Erase(_) => OpKind::Erase,
            Self::Sync => OpKind::Sync,
            Self::Grow(_) => OpKind::Grow,
        }
    }

    /// Pages that it reads or programs.
    pub(crate) const fn pages(self) -> u32 {
        match self {
            Self::Read(extent) | Self::Program(extent) => extent.pages,
            Self::Erase(_) | Self::Sync | Self::Grow(_) => 0,
        }
    }

    /// Whether it keeps its place among the others of its block.
    pub(crate) const fn is_ordered(self) -> bool {
        matches!(self, Self::Program(_) | Self::Erase(_))
    }

    pub(crate) const fn block(self) -> Option<BlockId> {
        match self {
            Self::Read(extent) | Self::Program(extent) => Some(extent.block),
            Self::Erase(block) => Some(block),
            Self::Sync | Self::Grow(_) => None,
        }
    }
}

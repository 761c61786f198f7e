//! What an operation on the device is for.

use timestone_flash::{BlockId, PageId, Token};

/// One operation under way. Its token is its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// A whole read of the host, into its own buffer.
    Read {
        read: u32,
        block: BlockId,
    },
    /// Some pages of one, into a buffer of the layer.
    ReadPart {
        read: u32,
        block: BlockId,
        offset: u32,
        pages: u32,
    },
    /// Pages of a program of the host from an index on; `own`: the buffer is the host's.
    Program {
        program: u64,
        block: BlockId,
        index: u32,
        own: bool,
    },
    /// Pages that collection moves.
    MoveRead {
        from: PageId,
        pages: u32,
    },
    /// The same, to where they are going to be.
    MoveProgram {
        from: PageId,
        to: PageId,
        pages: u32,
    },
    Erase {
        block: BlockId,
    },
    JournalProgram {
        block: BlockId,
    },
    JournalSync,
    /// A sync of the host, where there is no journal.
    Sync {
        token: Token,
    },
    /// A growth that the host has asked for.
    Grow {
        token: Token,
    },
}

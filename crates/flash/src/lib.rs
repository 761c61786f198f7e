//! Flash devices: erase blocks of pages, programmed in order, erased whole. The store above is the
//! translation layer.
//!
//! ```text
//!   store ──FlashOp──► FlashDevice ──► FileDevice   (superblock, block table, pages in one file; io engine)
//!     ▲                    │    └────► MemoryDevice (same rules; faults and power cuts on request)
//!     └──FlashCompletion───┘
//! ```
//!
//! Every device keeps the same rules (SEMEL §2.2, docs/protocol/storage.md, "Flash device"), which
//! live in one place (`ledger.rs`): pages of a block are programmed once and in order, reading an
//! erased page is refused, and so is everything that breaks the rules: misuse is reported, never
//! obeyed.
//!
//! What is deliberately absent: what pages mean (headers, checksums, records), which block to write
//! next, wear levelling and collection. The layout of the file is in `docs/formats/flash.md`.

mod device;
mod dice;
mod error;
mod file;
pub mod ledger;
pub mod limits;
mod memory;

pub use device::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashOp, Generation, Geometry, PAGE_BYTES,
    PageId, Rejected, RejectedReason, Token,
};
pub use error::{FlashError, Misuse};
pub use file::layout::{self, DeviceId};
pub use file::{FileConfig, FileDevice};
pub use memory::{
    Fault, FlashPace, MemoryConfig, MemoryDevice, MemoryMedia, OpKind, PowerCut, Unsettled,
};
pub use timestone_io::AlignedBuffer;

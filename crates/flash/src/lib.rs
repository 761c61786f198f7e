//! Flash devices: erase blocks of pages, programmed in order, erased whole. The store above is the
//! translation layer.
//!
//! ```text
//!   store ──FlashOp──► FlashDevice ──► FileDevice     (superblock, block table, pages in one file; io engine)
//!     ▲                    │    ├────► ZonedDevice    (zones of a block device: reset = erase; table in a log)
//!     │                    │    ├────► MemoryDevice   (same rules; faults and power cuts on request)
//!     │                    │    └────► EmulatedDevice (pages in memory, the time that flash takes, faults, wear)
//!     └──FlashCompletion───┘
//! ```
//!
//! Every device keeps the same rules (SEMEL §2.2, docs/protocol/storage.md, "Flash device"), which
//! live in one place (`ledger.rs`): pages of a block are programmed once and in order, reading an
//! erased page is refused, and so is everything that breaks the rules: misuse is reported, never
//! obeyed.
//!
//! What is deliberately absent: what pages mean (headers, checksums, records), which block to write
//! next, wear levelling and collection. The layout of the file is in `docs/formats/flash.md`, that of a zoned
//! device in `docs/formats/zoned.md`.

mod bytes;
mod clock;
mod device;
mod dice;
mod emulated;
mod error;
mod faults;
mod file;
pub mod ledger;
pub mod limits;
mod memory;
mod pending;
mod queued;
mod zoned;

pub use clock::FlashClock;
pub use device::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashOp, Generation, Geometry, PAGE_BYTES,
    PageId, Rejected, RejectedReason, ReleaseError, Token,
};
pub use emulated::{EmulatedConfig, EmulatedDevice, EmulatedMedium, FaultRates, Latencies};
pub use error::{FlashError, Misuse};
pub use faults::{Fault, OpKind};
pub use file::layout::{self, DeviceId};
pub use file::{FileConfig, FileDevice, FileImage, GivenUp, UnreadablePages};
pub use memory::{FlashPace, MemoryConfig, MemoryDevice, MemoryMedia, PowerCut, Unsettled};
pub use timestone_io::AlignedBuffer;
pub use zoned::layout as zoned_layout;
pub use zoned::{
    FakeConfig, FakeMedium, FakeZones, KernelZones, Overwrite, ZoneOp, ZonedConfig, ZonedDevice,
    ZonedMedium,
};

//! The ground floor's I/O: everything that the rest of Timestone wants from the operating system's
//! files and sockets.
//!
//! ```text
//!   flash, wal ──IoOp──► IoEngine ──► io_uring            (probed at start)
//!        ▲                   │  └───► pread/pwrite threads (fallback, same API, same tests)
//!        └──IoCompletion─────┘
//!   seda ──register──► Poller (epoll, edge-triggered) ◄── wake_fd of engines, Waker of other threads
//! ```
//!
//! Files go through *completions* (a buffer moves into the operation and comes back with its
//! outcome), sockets through *readiness*. Buffers are aligned to pages, so that O_DIRECT accepts
//! them.
//!
//! What is deliberately absent: any notion of pages, blocks, logs or frames; retries that change an
//! outcome; async runtimes. The only `unsafe` of the crate is in [`buffer`](AlignedBuffer),
//! [`Region`], [`HugePageAllocator`], [`prefetch()`], the zone commands and the io_uring engine; the
//! API around it is safe, also when an engine is dropped while operations are in flight.

mod allocator;
mod buffer;
mod engine;
mod error;
mod file;
mod huge;
pub mod limits;
mod machine;
mod op;
mod poller;
mod prefetch;
mod region;
mod threads;
mod timer;
mod uring;
mod wakeup;
mod zones;

pub use allocator::HugePageAllocator;
pub use buffer::{ALIGNMENT, AlignedBuffer, BufferPool};
pub use engine::{EngineChoice, EngineKind, IoConfig, IoEngine};
pub use error::IoError;
pub use file::{
    Access, IoFile, free_bytes, open_direct, open_direct_synced, preallocate_zeroed,
    preallocate_zeroed_by, sync_parent,
};
pub use huge::HUGE_PAGE_BYTES;
pub use machine::{machine_memory, resident_memory};
pub use mio;
pub use op::{IoCompletion, IoOp, IoToken, Refused, RefusedReason};
pub use poller::{Interest, PollEvents, PollToken, Poller, Readiness, Waker};
pub use prefetch::{prefetch, prefetch_bytes, prefetch_lines};
pub use region::Region;
pub use timer::Timer;
pub use wakeup::WakeSignal;
pub use zones::{
    Zone, ZoneAction, ZoneCondition, ZoneKind, ZoneLimits, open_zoned, report_zones,
    write_unit_bytes, zone_bytes, zone_count, zone_limits,
};

//! Multi-version stores that are their own flash translation layer (SEMEL §3.1, §5.1;
//! docs/protocol/storage.md).
//!
//! [`Store`] is the interface that all stores keep; [`Mftl`] is the one of SEMEL: an index in
//! memory maps keys directly to flash pages, and one collector serves both flash space and version
//! retention. One store per shard, one thread per store.
//!
//! What is deliberately absent: clocks, threads and entropy (time arrives as an argument, the seed
//! by configuration), and any notion of transactions. The layout of pages is in
//! `docs/formats/store.md` and asserted by tests.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod api;
mod error;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod layout;
pub mod limits;
mod mftl;
#[cfg(feature = "planted-bugs")]
pub mod planted;

pub use api::{
    AsOf, Count, KeyList, Latest, Lookup, Prefetch, ReadOutcome, ReadToken, ScanCursor, ScanLimit,
    ScrubReport, Store, StoreEvent, StoreStats,
};
pub use error::StoreError;
pub use mftl::{Mftl, MftlConfig, RecoveryReport};

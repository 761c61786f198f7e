//! Multi-version stores that are their own flash translation layer (SEMEL §3.1, §5.1;
//! docs/protocol/storage.md).
//!
//! [`Store`] is the interface that all stores keep. [`Mftl`] is the one of SEMEL: an index in
//! memory maps keys directly to flash pages, and one collector serves both flash space and version
//! retention. [`Skimpy`] is the one of SkimpyFTL, with its index on flash. [`Dram`] keeps versions in memory only. [`Stores`] is
//! what a shard has: [`Mftl`], [`Skimpy`] and [`Dram`], chosen by keyspace. [`Vftl`] and [`Sftl`] are what SEMEL is compared with: the split design, and one
//! version of each key, both over a page-mapped translation layer, [`Ftl`]. One thread per store.
//!
//! What is deliberately absent: clocks, threads and entropy (time arrives as an argument, the seed
//! by configuration), and any notion of transactions. The layout of pages is in
//! `docs/formats/store.md` and asserted by tests.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod api;
mod dram;
mod error;
mod ftl;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod inspect;
mod kit;
mod layout;
pub mod limits;
mod mftl;
mod sftl;
mod skimpy;
mod stores;
mod vftl;

pub use api::{
    AsOf, Capabilities, Count, Direction, Factory, Figure, FigureValues, Figures, KeyList,
    KeyRange, KeysAhead, Latest, LatestLookup, Lookup, PromisedPuts, PutSize, PutsInMemory,
    RangeCheck, RangeEntry, RangeList, Ratio, ReadOutcome, ReadToken, Reads, ScanCursor, ScanLimit,
    ScrubReport, Store, StoreEvent, Upkeep, Writes, prefix_end, prelude,
};
pub use dram::{Dram, DramConfig};
pub use error::StoreError;
pub use ftl::{Ftl, FtlConfig, FtlMonitor, FtlStats};
pub use mftl::{
    CollectionStats, IndexStats, MemoryStats, Mftl, MftlConfig, MftlFactory, MftlStats, ReadStats,
    RecoveryReport, SpaceStats, WriteStats,
};
pub use sftl::{Sftl, SftlFactory};
pub use skimpy::{
    FrugalIndexStats, FrugalReadStats, Skimpy, SkimpyConfig, SkimpyFactory, SkimpyStats,
};
pub use stores::{KeyspacePlace, OpenFrugal, Opening, Places, Stores};
pub use vftl::{Vftl, VftlConfig, VftlFactory, VftlStats};

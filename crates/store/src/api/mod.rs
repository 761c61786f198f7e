//! The interface of every multi-version store, split by who uses it (SEMEL §3.1;
//! docs/protocol/storage.md, "Stores").
//!
//! ```text
//!   requests ──get/latest/scan/count──► Reads ───┐
//!   write sets ──put/delete/fence/admit► Writes ─┼─ Store ──FlashOp──► FlashDevice (if it has one)
//!   the stage, once a turn ──pump/sync──► Upkeep ┤
//!   gauges ──────────────────────────► Figures ──┘   made by a Factory
//!        ▲                                  │
//!        └──── StoreEvent (ReadDone, LatestDone, ScanDone, …) ◄── pump
//! ```
//!
//! A store belongs to one shard and one thread. No call blocks (but [`Upkeep::wait`], which is for
//! recovery, shutdown and tests); whatever needs the device is answered later by an event of
//! [`Upkeep::pump`]. Time arrives as an argument.
//!
//! **What the caller promises.** (1) Reads are asked at or above the watermark. (2) What is not yet
//! covered by [`Upkeep::stable_batch`] can be put again after a crash (a log holds it), or its loss
//! is acceptable. (3) After [`Upkeep::advance_replay_floor`]`(t)`, no put, delete or fence with a
//! version at or below `t` arrives any more, neither by replay of a log after a crash nor late from
//! elsewhere: only then may tombstones up to `t` go.

mod event;
mod factory;
mod figures;
pub(crate) mod forward;
mod found;
mod reads;
mod upkeep;
mod writes;

pub use event::{ScrubReport, StoreEvent};
pub use factory::{Capabilities, Factory};
pub use figures::{Figure, FigureValues, Figures, Ratio};
pub(crate) use found::check_order;
pub use found::{
    AsOf, Count, KeyList, Latest, LatestLookup, Lookup, RangeCheck, RangeEntry, RangeList,
    ReadOutcome, ReadToken, ScanCursor, ScanLimit,
};
pub use reads::{KeysAhead, Reads};
pub use timestone_types::{Direction, KeyRange, prefix_end};
pub use upkeep::Upkeep;
pub use writes::{PromisedPuts, PutSize, PutsInMemory, Writes};

/// A multi-version store of one shard: all parts of the interface. See the module for what the
/// caller promises.
pub trait Store: Reads + Writes + Upkeep + Figures {}

impl<S: Reads + Writes + Upkeep + Figures + ?Sized> Store for S {}

/// The parts of the interface, for whoever calls the methods of all of them.
pub mod prelude {
    pub use super::{Factory, Figures, Reads, Store, Upkeep, Writes};
}

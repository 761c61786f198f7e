//! Stores on an emulated SSD: gets and puts in a closed loop.
//!
//! ```text
//!   StorePart ─► for each store: fresh device ─► all keys put ─► preconditioned ─► for each place of the axis: settle, measure
//!                     StoreMix: so many requests in flight ─► store ─► Observed (counts pages) ─► emulated device
//!                      └─ Processor: what the turn's work took ─► the clock                     └─ its times, by the same clock
//! ```
//! One thread owns a store, as one shard's does. In virtual time its work takes what [`Processor`]
//! says, and nothing else moves the clock but the device; in real time the work takes what it
//! takes. A put is over when it is durable on flash; no log stands beside it.

mod calibrate;
mod device;
mod mix;
mod part;
mod processor;
mod put_tail;
mod subject;
mod sweep;

pub use calibrate::calibrate;
pub(crate) use part::StorePart;
pub use processor::Processor;
pub use put_tail::{PutTail, PutTimes, put_tails};
pub(crate) use sweep::run;

//! One shard's server side, without a thread, a socket, a file or a clock: requests are decoded, asked
//! of the participant and the store, recorded, and answered.
//!
//! ```text
//!   Input, time ─► Shard ─┬─► txn::Participant: whether a transaction may commit
//!                         ├─► store::Store: versions of keys
//!                         └─► Output: answers, log batches, messages to other shards
//! ```
//! A host (the shard stage of `server`) owns the thread and carries the outputs out; see [`Turn`]. A
//! shard begins as a [`Replay`] of what its logs hold; a [`Backup`] goes on replaying what a primary
//! elsewhere has logged, and can become a shard at any moment. What is deliberately absent: decisions (they
//! are the participant's), layouts of messages, records and pages, and threads.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod admission;
mod backup;
pub mod checkpoint;
mod closing;
mod driver;
mod error;
mod figures;
pub mod gauges;
pub mod limits;
mod log_records;
mod peers;
mod reads;
mod replay;
mod requests;
mod scrub;
mod shard;
mod single;
#[cfg(test)]
mod testing;
mod turn;
mod write_sets;

pub use backup::{Backup, BackupReadFigures, BackupReads};
pub use checkpoint::{CheckpointPart, KeyspaceCopy, KeyspaceEnd, PartAsk, Rebuild, RebuildStep};
pub use error::ShardError;
pub use log_records::log_contents::LogContents;
pub use replay::{Past, Recovering, Replay, Served};
pub use shard::{
    DirectAnswer, DirectAt, DirectPut, Found, LogPlace, Peers, RecordPlace, Shard,
    own_reply_address, reading,
};
pub use turn::{Input, LogAppend, LogShortage, Output, Turn};

//! The write-ahead log: what a server acknowledged is in here until its pages are programmed.
//!
//! Three layers as in DTranx §3.3.1:
//!
//! ```text
//!   shard: open batch of records          LogRecord::encode            transaction log   record.rs
//!        │ append_batch(shard, n, bytes)        copies once
//!        ▼
//!   blocks with CRC-32C and sequence ── groups ── files, rotation      log manager       log.rs, pending.rs, files.rs, block.rs
//!        │ one group in flight, the rest queues
//!        ▼
//!   ssd │ none │ memory (tests)                                        device            device/
//!        │
//!        ▼ Durable{shard, n}
//! ```
//!
//! [`Log::open`] gives a [`LogRecovery`], which hands out every record of every whole batch in file
//! order; [`LogRecovery::finish`] gives the [`Log`]. Nothing here blocks afterwards: the owner calls
//! [`Log::pump`] each turn.
//!
//! Invariants:
//! - a batch is acknowledged only when it and everything before it is durable;
//! - a failed write poisons the log: nothing is acknowledged after it;
//! - only whole files are reclaimed, oldest first, never the current one;
//! - recovery throws nothing away silently: it ends at the first bad block only when nothing after
//!   it was ever acknowledged.
//!
//! Deliberately absent: any notion of time (given as an argument), threads on the append path, the
//! meaning of records.

mod assemble;
pub mod block;
mod check;
mod config;
pub mod device;
mod error;
mod files;
pub mod limits;
mod log;
mod manager;
mod order;
mod pending;
pub mod record;
mod recovery;
mod walker;

pub use check::{CheckReport, FileReport, Finding, check, check_device};
pub use config::{
    BatchHead, BatchNumber, DeviceKind, LogConfig, LogEvent, LogStats, RecordNumber, RecoveryReport,
};
pub use error::WalError;
pub use log::Log;
pub use record::{BatchRecords, DecidedBy, LogRecord, Participants};
pub use recovery::{LogRecovery, RecoveredRecord};

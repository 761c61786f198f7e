//! The client's side of Timestone as a state machine without input or output: sessions, read and
//! write sets, routing, commits, single-key requests, retries, and the reports that move the
//! watermark.
//!
//! Source: MILANA §4 (client library, Algorithms 1 and 2), SEMEL §3.3 (single keys), DTranx
//! (exactly once); docs/protocol/transactions.md.
//!
//! ```text
//!   application ── begin · get · put · commit ──►┌────────┐── frames ──► outbox of each shard ──► host's transport
//!                                                │ Engine │
//!   application ◄── Step::Ready, Done ───────────└────────┘◄─ deliver(frame) ── host's transport
//! ```
//!
//! One [`Engine`] belongs to one event loop and carries many sessions. The host (native client,
//! RESP gateway, simulator) moves the bytes, supplies the time and wakes whoever waits for an
//! operation. What is deliberately absent: sockets, clocks, threads, futures and entropy; and the
//! cache between transactions, which will slot in front of [`Engine::get`] without changing it.

mod config;
mod deliver;
mod done;
mod engine;
mod error;
mod frames;
mod handle;
mod jitter;
mod keys;
pub mod limits;
mod number;
mod offset;
mod options;
mod patience;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod record;
mod routes;
mod shards;
mod single;
mod slab;
mod sweep;
mod transact;

pub use config::EngineConfig;
pub use done::{Abort, Committed, Done, KeyName, OpResult, TxnStatus, ValueView, Written};
pub use engine::{Engine, EngineStats};
pub use error::{LimitError, SessionError};
pub use handle::{OpId, SessionId, Ticket, TxnHandle};
pub use offset::ClockOffset;
pub use options::{Condition, Mutation, RequestOptions, Step, TxnOptions};
pub use patience::Patience;
pub use routes::Routes;

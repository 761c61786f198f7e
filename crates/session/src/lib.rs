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
//! operation. `engine` has what is the same for every kind of transaction, `managers` what each
//! kind does at begin, read and commit, `cache` the place of a cache between transactions. What is
//! deliberately absent: sockets, clocks, threads, futures and entropy.

mod cache;
mod config;
mod done;
mod engine;
mod error;
mod handle;
mod idle_timeout;
pub mod limits;
mod managers;
mod options;
mod routes;

pub use config::{EngineConfig, ReadOnlyCommit};
pub use done::{
    Abort, Committed, Done, KeyName, OpResult, OwnWrite, TxnStatus, ValueView, Written,
};
pub use engine::offset::ClockOffset;
pub use engine::shards::Shards;
pub use engine::{Engine, EngineStats};
pub use error::{LimitError, SessionError};
pub use handle::{OpId, SessionId, Ticket, TxnHandle};
pub use idle_timeout::{IdleTimeout, reconnect_pause};
pub use options::{Condition, Mutation, RequestOptions, Step, TxnOptions};
pub use routes::Routes;

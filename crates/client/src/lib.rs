//! The Rust client of Timestone: transactions, single keys, keyspaces; asynchronous and blocking;
//! over TCP or in process.
//!
//! ```text
//!   Db, Transaction (any thread, any executor) ── bounded queue, oneshot ──┐
//!                                                                          ▼
//!   LocalDb, LocalTransaction (tasks on the loop) ───────────────────► event loop ─ Engine ─ TCP, or stages of this process
//! ```
//! Start with [`connect`]; [`Db::transact`] runs a closure as a serializable transaction and
//! retries conflicts. Work that is worth it runs *on* the event loop by [`Db::spawn`], where a read
//! costs a frame and nothing is locked. [`blocking`] has the same names for threads. Every error
//! has a stable code, the key, the other transaction and a hint: [`Error`].
//!
//! What is deliberately absent: the protocol itself (`timestone-session`), bytes
//! (`timestone-wire`), threads and sockets (`timestone-seda`).

mod address;
pub mod blocking;
mod calls;
mod connect;
mod db;
mod error;
mod event;
mod event_loop;
mod executor;
mod inproc;
pub mod limits;
mod local;
mod local_transact;
mod master;
mod oneshot;
mod operation;
mod ops;
mod owned;
mod questions;
mod ranges;
mod retry;
mod scan;
mod shared;
mod stage;
mod tcp;
mod transport;
mod value;

pub use connect::{
    Attachment, ClientStages, ConnectOptions, InProcessClient, connect, connect_with, in_process,
};
pub use db::{Db, Pending, Transaction};
pub use error::{Error, Result};
pub use event::{ClientEvent, ClientInput, ClientStageEvent};
pub use inproc::{ByCalls, InProcess};
pub use local::{LocalDb, LocalTransaction};
pub use operation::Operation;
pub use retry::{TransactOptions, TransactionOptions, WriteOutcome};
pub use scan::{Entry, LocalScan, Scan, ScanOptions};
pub use tcp::Native;
pub use timestone_clock::Clock;
pub use timestone_clock::server_time::ClockFigures;
pub use timestone_cluster::{Keyspace, KeyspaceOptions};
pub use timestone_session::{
    ClockOffset, Condition, EngineConfig, EngineStats, Mutation, ReadOnlyCommit, TxnStatus,
};
pub use timestone_types::{
    AbortKind, ClientId, Expiry, KeyspaceId, ShardId, Timestamp, TxnId, Version,
};
pub use timestone_wire::ErrorCode;
pub use value::{Key, Value};

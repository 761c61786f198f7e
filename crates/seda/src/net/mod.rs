//! TCP for stages.
//!
//! ```text
//!   socket ─ read ─► scratch (shared) ─ split ─► one batch of frames per (connection, destination) ─► stages
//!   socket ◄─ one writev per connection and turn ── queued batches of frames ◄──────────────────────── stages
//! ```
//!
//! `protocol` is the vocabulary, `intake` turns received bytes into batches of frames, `connection`
//! is one socket with its queues, `retry_queue` keeps what a full stage refused, `socket` says where
//! streams come from, `stage` ties them together.

mod config;
mod connection;
mod intake;
mod metrics;
mod protocol;
mod retry_queue;
mod socket;
mod stage;

pub use config::NetConfig;
pub use metrics::{NetMetrics, NetSnapshot};
pub use protocol::{
    Break, ConnectionView, DialId, DisconnectReason, FrameBatchEvent, NetCommand, NetEvent,
    Protocol, Split,
};
pub use socket::{Listener, ListenerSocket, Network, StageSlot, Stream, StreamSocket, Tcp};
pub use stage::NetStage;

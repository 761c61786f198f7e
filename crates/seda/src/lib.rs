//! Stages, the queues between them, and the threads that run them: the machine room of servers and
//! clients.
//!
//! A *stage* owns its state and turns batches of events into events for other stages; it never
//! blocks. A *layout* says which stages run on which thread. The *fused driver* of this crate runs
//! all stages of a thread to completion in turns; the [`simulated`] one runs the same stages
//! single-threaded under a virtual clock, since a stage only ever sees its [`Context`].
//!
//! ```text
//!   sockets ─► NetStage ─ batch of frames ─► stage ─ event ─► stage ─ batch of frames ─► NetStage ─► one write per connection and turn
//!                 same thread: VecDeque      other thread: SPSC lane + sleeping flag      outside: Injector
//! ```
//!
//! What is deliberately absent: any knowledge of messages (a [`Protocol`] splits bytes,
//! [`FrameBatchEvent`] wraps batches of frames), of shards, logs or clients, and of where time
//! comes from (a [`TimeSource`] is handed in). Source: DTranx §3.1; docs/lab/building-blocks.md.

mod drain;
mod error;
mod frame_batch;
mod gauge;
mod handoff;
mod lanes;
mod latencies;
mod layout;
pub mod limits;
pub mod manual;
mod memory;
mod metrics;
mod net;

mod reactor;
mod runtime;
mod shutdown_flags;
pub mod simulated;
mod sleep;
mod spin;
mod stage;
mod sync;
mod turn;

pub use error::SedaError;
pub use frame_batch::{ConnectionId, FrameBatch, FrameBatchPool, Generation, ReplyAddress};
pub use gauge::{AdmissionLimit, Gauge};
pub use latencies::{Latencies, LatencyCounts};
pub use layout::{Layout, Pinning};
pub use memory::{Charge, Memory, MemoryUse, Tally};
pub use metrics::{RuntimeSnapshot, StageMetrics, StageSnapshot, ThreadSnapshot};
pub use net::{
    Break, ConnectionView, DialId, DisconnectReason, FrameBatchEvent, Listener, ListenerSocket,
    NetCommand, NetConfig, NetEvent, NetMetrics, NetSnapshot, NetStage, Network, Protocol, Split,
    StageSlot, Stream, StreamSocket, Tcp,
};
pub use runtime::{Handle, Injector, Runtime, RuntimeConfig};
pub use spin::Spin;
pub use stage::{Context, Driver, IoRegistry, Readiness, Stage, StageId, TimeSource};

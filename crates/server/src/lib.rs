//! The server: which stages a process runs, and how they are wired.
//!
//! ```text
//!   ServerConfig ─► datadir (lock, format) ─► stores recover ─► logs replay ─► stages ─► Runtime
//!                                             shard · log · native net · RESP net · gateway · node        HTTP beside them
//! ```
//! Roles on one node: storage (shards), gateway (RESP), master (embedded). The stages wrap the protocol cores and hold no protocol of
//! their own. What this crate deliberately does not do: parse flags and files, choose log formats, print.

mod assembly;
mod config;
mod datadir;
mod error;
mod event;
mod gateway;
mod gauges;
mod http;
pub mod limits;
mod log_stage;
mod native;
mod node;
mod raw;
mod running;
mod shard;

pub use assembly::{Guest, GuestSeat};
pub use config::{MasterPlace, ServerConfig};
pub use error::ServerError;
pub use event::Event;
pub use running::{Addresses, Server};
pub use timestone_wal::DeviceKind;

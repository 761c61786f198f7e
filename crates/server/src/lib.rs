//! The server: which stages a process runs, and how they are wired.
//!
//! ```text
//!   ServerConfig ─► datadir (lock, format) ─► stores recover ─► logs replay ─► stages ─► Runtime
//!                                             shard · log · native net · RESP net · gateway · node        HTTP beside them
//! ```
//! Roles on one node: storage (shards), gateway (RESP), master (embedded). The stages wrap the protocol cores and hold no protocol of
//! their own. What this crate deliberately does not do: parse flags and files, choose log formats, print.

mod assembly;
mod cluster_name;
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
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod premises;
mod raw;
mod restart;
mod running;
mod shard;
mod stages;

pub use assembly::{Guest, GuestSeat};
pub use config::{MasterPlace, ServerConfig, StageLayout, Tuning};
pub use error::ServerError;
pub use event::{Event, LogAppend};
pub use node::{JoinStep, Joining, Registration};
pub use premises::Premises;
pub use running::{Addresses, Server};
pub use stages::{Caches, ServerStages, ShardFigures, joining};
pub use timestone_wal::DeviceKind;

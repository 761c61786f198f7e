//! The server: which stages a process runs, and how they are wired.
//!
//! ```text
//!   ServerConfig ─► datadir (lock, format) ─► stores recover ─► logs replay ─► stages ─► Runtime
//!                                             shard · log · native net · RESP net · gateway · node        HTTP beside them
//! ```
//! Roles on one node: storage (shards), gateway (RESP), master (embedded). The stages wrap the
//! protocol cores and hold no protocol of their own. What this crate deliberately does not do:
//! parse flags and files, choose log formats, print.

mod assembly;
mod cluster_name;
mod config;
mod convert;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "not a stage: it takes what it needs from the operating system"
)]
mod datadir;
mod departure;
mod embedded_client;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "not a stage: it takes what it needs from the operating system"
)]
mod environment;
mod error;
mod event;
mod exposition;
mod flash;
mod gateway_stage;
mod gauges;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "not a stage: it takes what it needs from the operating system"
)]
mod http;
mod http_listener;
pub mod limits;
mod log_stage;
mod manifest;
mod memory;
mod native;
mod node;
mod outgoing;
#[cfg(feature = "planted-bugs")]
pub use timestone_types::planted;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "not a stage: it takes what it needs from the operating system"
)]
mod process;
mod raw;
mod replica_gauges;
mod replica_stage;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "not a stage: it takes what it needs from the operating system"
)]
mod restart;
mod running;
mod seen;
mod shard_call;
mod shard_stage;
mod shared_shard;
mod stages;

pub use assembly::{EmbeddedClient, EmbeddedClientSlot, UNNAMED_CLUSTER, etcd_prefix};
pub use config::{
    AcceptedLoss, FlashPlace, InForce, ListenConfig, MasterPlace, ServerConfig, SizeConfig,
    StageLayout, Tuning,
};
pub use convert::{Conversion, ConversionProgress, Turns, convert, convert_on};
pub use datadir::{
    DirectoryIdentity, DirectoryView, ManifestView, MissingFile, accepted_losses, missing_files,
};
pub use departure::HAND_OVER_TIMEOUT;
pub use environment::{Environment, FlashPart};
pub use error::ServerError;
pub use event::Event;
pub use node::{JoinStep, Joining, Registration};
pub use running::{Addresses, Server};
pub use stages::{
    Caches, ConnectionFigures, ReplicaFigures, ServerDeparture, ServerStages, ShardFigures, joining,
};
pub use timestone_cluster::DirectoryId;
pub use timestone_replication::Step;
pub use timestone_shard::{LogAppend, ShardError};
pub use timestone_wal::DeviceKind;

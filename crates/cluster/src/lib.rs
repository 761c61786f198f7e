//! Who owns what: slots, shards, servers, keyspaces and client ids, and the master that decides
//! about them.
//!
//! ```text
//!   servers ─ RegisterServer ─┐                         ┌─► ShardMap ─► clients route by slot
//!   clients ─ RegisterClient ─┼─► Master (one at a time)┼─► client ids, never handed out twice
//!   admins  ─ keyspaces ──────┘    state: bytes + CRC   └─► keyspace ids, never reused
//! ```
//!
//! The crate is sans-IO and deterministic. [`Master`] is the embedded master's core: commands in,
//! answers and "make this state durable first" out; whoever drives it does the file I/O.
//! [`MasterCommand`] and [`MasterAnswer`] are the interface that an etcd-backed master offers as
//! well. Source: docs/protocol/membership.md, "Slots, shards, epochs" and "The master"; SEMEL §3.2.
//!
//! What is deliberately absent: how heartbeats travel, moving of slots between shards, sockets and
//! files.

mod assign;
mod codec;
mod controller;
mod embedded;
mod error;
mod heartbeat;
mod keyspace;
mod lease;
pub mod limits;
mod map;
mod master;
mod message;
mod replication;
mod restored;
mod run;
mod server;
mod service;
mod state;
mod term;

pub use controller::{Controller, ControllerInput, ControllerLimits, ControllerOutput};
pub use embedded::EmbeddedMaster;
pub use error::ClusterError;
pub use heartbeat::{HandOver, Heartbeat, ReplicaClaim, ReplicaLoss, ReplicaStatus};
pub use keyspace::{
    CacheMode, CommitMode, ExternalMode, IndexKind, Isolation, Keyspace, KeyspaceName,
    KeyspaceOptions, StoreKind,
};
pub use lease::Leases;
pub use map::{MapVersion, ShardEntry, ShardMap, SlotRange};
pub use master::{Master, MasterStep};
pub use message::{ClientIdBlock, ControlState, MasterAnswer, MasterCommand};
pub use replication::{NormalConfiguration, ReplicationFactor, ShardChange};
pub use run::Run;
pub use server::{Address, DirectoryId, ServerAddresses, ServerId, ServerInfo};
pub use service::{MasterFailure, MasterService};
pub use term::Term;

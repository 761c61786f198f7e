//! The replicas of one shard: batches of log records are copied to backups, and one of the replicas
//! becomes primary when the primary is lost.
//!
//! ```text
//!   primary's shard ─ batch ─► Replica ─┬─ Persist ─► own log
//!                                       ├─ Append ──► backups: Persist ─► their logs, Acked ─┐
//!         answers ◄─ Counted ◄──────────┴────────────────────────────────────────────────────┘
//!   map: a new epoch ─► Replica (Lead) ─ Join ─► other replicas ─ Joined ─► Fetch ─► Install ─► Serve
//! ```
//! | where | what |
//! |---|---|
//! | `replica` | one replica of one shard: backup, candidate or primary |
//! | `message` | what replicas tell each other |
//! | `batches` | numbered batches that a replica may still have to hand on |
//! | `lineage` | the epochs that a replica's batches have come through |
//! | `number_set` | which batches somebody has |
//!
//! The rules are P1 to P8 of docs/protocol/replication.md. What a batch holds is opaque here: its
//! records are merged by the shard that replays them, which depends on no order. So two replicas
//! with the same batches have the same state. A replica is a deterministic state machine without
//! I/O: no threads, clocks, files, entropy.
//!
//! Deliberately absent: who becomes primary and when (the master and its controller say so), what
//! is in a batch, how a replica that is too far behind gets a checkpoint. Source: SEMEL §3.2,
//! MILANA §4.5 (Algorithm 2).

mod batches;
pub mod limits;
mod lineage;
mod message;
mod number_set;
mod replica;

pub use batches::{Batch, Payload};
pub use lineage::Lineage;
pub use message::{JoinAnswer, Message};
pub use number_set::NumberSet;
pub use replica::{
    Entry, GivenUp, Input, Mark, Output, Replica, ReplicaId, Step, Stored, Ticket, Void,
};

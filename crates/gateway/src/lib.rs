//! The RESP gateway, without a thread or a socket: every Redis client is a Timestone client.
//!
//! ```text
//!   Input: bytes of clients, answers of shards ─► Gateway ─► session::Engine ─► Output: frames for shards
//!                           ├─ ServerLinks: which of them go to other servers       └─► Output: frames for servers
//!                           └──────────────────────────────────────────────────────────► Output: answers
//! ```
//! | where | what |
//! |---|---|
//! | `turn` | the interface to the host |
//! | `gateway`, `node`, `shutdown` | what the host calls, questions to the node, the end |
//! | `served` | which keyspace clients are served, and what they are told while it is not there |
//! | `parts` | the parts side by side, and what goes from one to the other |
//! | `intake`, `fast`, `dispatch` | from received bytes to operations and jobs |
//! | `links` | connections to the cluster's other servers: paths to shards that are not here |
//! | `direct` | single keys of shards of the same thread, by calls |
//! | `connection` | one client: its bytes, its answers in order, MULTI and WATCH; all connections |
//! | `commands` | what commands mean: functions over a view of their keys |
//! | `jobs` | commands of more than one step: ask, execute, commit, retry |
//! | `memory` | what of the process's memory clients may take |
//! | `backend` | the only place that asks shards for anything |
//!
//! A host (the gateway stage of `server`) owns the thread and carries the outputs out; see [`Turn`].
//! What is deliberately absent: sockets, clocks, and anything that decides about transactions.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backend;
mod commands;
mod connection;
mod direct;
mod dispatch;
mod failure;
mod fast;
mod figures;
mod gateway;
mod intake;
mod jobs;
mod limits;
mod links;
mod memory;
mod node;
mod parts;
mod served;
mod shutdown;
#[cfg(test)]
mod tests;
mod turn;

pub use direct::{DirectCalls, DirectShard};
pub use figures::{CommandLatencies, GatewayGauges, command_names};
pub use gateway::{Gateway, Setup};
pub use limits::GATEWAY_ADMISSION;
pub use turn::{Input, Output, Turn};

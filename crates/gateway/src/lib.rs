//! The RESP gateway, without a thread or a socket: every Redis client is a Timestone client.
//!
//! ```text
//!   Input: bytes of clients, answers of shards ─► Gateway ─► session::Engine ─► Output: frames for shards
//!                                                    └─────────────────────────► Output: answers
//! ```
//! A host (the gateway stage of `server`) owns the thread and carries the outputs out; see [`Turn`].
//! What is deliberately absent: sockets, clocks, and anything that decides about transactions.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod gateway;
mod turn;

pub use gateway::limits::GATEWAY_ADMISSION;
pub use gateway::{CommandLatencies, Gateway, GatewayGauges, Setup, command_names};
pub use turn::{Input, Output, Turn};

//! The RESP gateway, without a thread or a socket: every Redis client is a Timestone client.
//!
//! ```text
//!   Input: bytes of clients, answers of shards ─► Gateway ─► session::Engine ─► Output: frames for shards
//!                                                    └─────────────────────────► Output: answers
//! ```
//! A host (the gateway stage of `server`) owns the thread and carries the outputs out; see [`Turn`].
//! What is deliberately absent: sockets, clocks, and anything that decides about transactions.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backend;
mod commands;
mod connection;
mod dispatch;
mod failure;
mod fast;
mod figures;
mod gateway;
mod intake;
mod jobs;
mod limits;
mod memory;
mod node;
mod parts;
mod shutdown;
#[cfg(test)]
mod tests;
mod turn;

pub use figures::{CommandLatencies, GatewayGauges, command_names};
pub use gateway::{Gateway, Setup};
pub use limits::GATEWAY_ADMISSION;
pub use turn::{Input, Output, Turn};

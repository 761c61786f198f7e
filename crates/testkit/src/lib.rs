//! What tests of several crates share: a reference shard and a world that is stepped.
//!
//! ```text
//!   a test ──► World ──┬── Host: what is under test, over the frames of the native protocol
//!              drive() ├── Network: loses, doubles and delays frames, from one seed
//!                      └── ReferenceShard: every version of every key in a map
//! ```
//! Only tests may depend on it. Random numbers are those of [`timestone_types::random`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod deposed;
mod network;
mod shard;
mod world;

pub use deposed::Deposed;
pub use network::{Network, Weather};
pub use shard::{ReferenceShard, Refuse};
pub use world::{BEGIN, Host, World};

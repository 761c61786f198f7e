//! The protocol core of transactions on precise time: participants validate by timestamps,
//! coordinators run two-phase commit.
//!
//! ```text
//!   session / gateway                                shard stage (owns the store, the log, the bytes)
//!   ┌─────────────┐  Prepare, Decide, Terminate      ┌─────────────┐  Read, Prepare, Decide, Durable, Applied, Tick …
//!   │ Coordinator │ ───────────────────────────────▶ │ Participant │
//!   │             │ ◀─────────────────────────────── │             │  ReadNow, Vote, Log, Apply, AskFreeze …
//!   └─────────────┘  votes, acknowledgements         └─────────────┘
//! ```
//!
//! What a participant knows of keys, and its rules about them, are a strategy of its own
//! ([`validation`]); the client's half of it is there, too.
//!
//! Both are deterministic state machines, `step(now, input, out)`: no threads, clocks, files,
//! entropy. Keys are known here as [`timestone_types::KeyHash`] only; values and key bytes never
//! enter. Sources: MILANA §4.1–4.5 (protocol, Algorithm 1, recovery), SEMEL §3.3 (single keys),
//! Kairos §4.3 (the timestamps of validated reads), and what mends them.
//!
//! What is deliberately absent: byte layouts, retries of whole transactions, caches, and anything
//! that looks at a clock.

pub mod coordinator;
mod error;
pub mod limits;
pub mod participant;
mod shards;
pub mod validation;

pub use error::Refusal;
pub use shards::ShardList;

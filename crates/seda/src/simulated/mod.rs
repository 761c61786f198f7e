//! The simulated driver: the stages, queues, timers and layouts of the real one, in one thread,
//! under virtual time.
//!
//! ```text
//!   world ─ ready, call, inject ─► SimulatedRuntime ── due() ─► when its next thread has something to do
//!     ▲                                  │ run(moment)
//!     │                                  ▼
//!     └──── the turn's end ◄── one turn of one virtual thread: rounds, flush, cost ──► busy until begin + cost
//! ```
//!
//! A virtual thread is busy for the time that a [`CostModel`] says its turn took, and a virtual
//! core runs one thread at a time ([`Cores`]): so queues grow and cores saturate in virtual time.
//! What a turn sends to another thread arrives there after its end. Stages see the local clock of
//! their process, which may be wrong; the driver sleeps by true time, as an operating system does,
//! and looks at the local clock again when it wakes.
//!
//! # Invariants
//! - Equal calls give equal runs: nothing here reads a clock, draws entropy or depends on
//!   addresses.
//! - A turn takes at least [`MIN_TURN`], so that virtual time passes whatever a stage wishes.
//!
//! What is deliberately absent: sockets, disks and the order between processes; those belong to the
//! simulator's world.

mod cost;
mod runtime;
mod time;

use std::time::Duration;

pub use cost::{Cores, CostModel, Meter, NoCost};
pub use runtime::{Claim, Observer, Silent, SimulatedConfig, SimulatedRuntime, SimulatedTurn};
pub use time::{LocalTime, VirtualTime};

/// How much CPU time a virtual thread gets before it must take a new place among those that want
/// its core: Linux's base slice on a few cores.
pub const SLICE: Duration = Duration::from_micros(1_400);
/// A virtual thread that has slept for no longer, and has used no more than [`LITTLE`] of its
/// slice, keeps its place: so Linux's scheduler, which leaves those in the queue for a moment that
/// have slept, and lets those wait that have run ahead of others.
pub const NAP: Duration = Duration::from_micros(200);
/// See [`NAP`].
pub const LITTLE: Duration = Duration::from_micros(100);
/// The least that a turn of a virtual thread takes.
pub const MIN_TURN: Duration = Duration::from_nanos(200);
/// The shortest time that a virtual thread sleeps for a deadline: real ones are not more punctual.
pub const MIN_SLEEP: Duration = Duration::from_micros(50);

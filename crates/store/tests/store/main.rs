//! The stores from outside: what every store must do, and what the `mftl` store must survive.

mod bad_blocks;
mod bits;
mod collection;
mod conformance;
mod driver;
mod emulated;
mod faults;
mod fence_traces;
mod lives;
mod model;
#[path = "../../../../tests/scores.rs"]
mod scores;
mod sweep;
mod unlogged;
mod walks;

//! The stores from outside: what every store must do, and what the `mftl` store must survive.

mod behaviours;
mod bits;
mod collection;
mod driver;
mod faults;
mod model;
#[path = "../../../../tests/scores.rs"]
mod scores;
mod sweep;
mod unlogged;
mod walks;

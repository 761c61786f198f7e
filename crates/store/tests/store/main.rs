//! The stores from outside: what every store must do, what the `mftl` store must survive, and what
//! it and its comparators must survive over a translation layer.

mod bad_blocks;
mod bits;
mod collection;
mod conformance;
mod dead_counts;
mod driver;
mod emulated;
mod faults;
mod fence_traces;
mod fenced_large;
mod frugal;
mod frugal_ahead;
mod frugal_cuts;
mod frugal_erases;
mod frugal_large;
mod frugal_loose;
mod frugal_tail;
mod frugal_whole;
mod full_device;
mod held;
mod inspect;
mod layered;
mod lives;
mod lost_pages;
mod model;
mod ordered;
mod put_tails;
#[path = "../../../../tests/scores.rs"]
mod scores;
mod stores;
mod sweep;
mod unlogged;
mod unread;
mod unread_lives;
mod unruly_erases;
mod waiting;
mod walks;
mod zoned;

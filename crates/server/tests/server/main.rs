//! Whole servers in this process: what they count, what they say about themselves, what they do
//! when something under them fails, or is damaged.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "whole servers run on real threads and clocks"
)]

mod admission;
mod bits;
#[path = "../../../../tests/block_on.rs"]
mod block_on;
mod cluster;
mod ending;
mod half_closed;
mod hand_over;
mod leaving;
mod links;
mod missing;
mod redis;
mod repeats;
#[allow(dead_code, reason = "each suite uses a part of it")]
#[path = "../../../../tests/resp.rs"]
mod resp;
mod running;
mod scan;
#[path = "../../../../tests/scores.rs"]
mod scores;
mod stalls;

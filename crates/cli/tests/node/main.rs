//! The real binary under bad conditions: killed, misused, damaged, spread over processes.
//!
//! ```text
//!   kill, restart, bad_input, cluster ─► server (processes) ─► timestone serve
//!                                    └─► clients: timestone, resp, peer (frames by hand)
//! ```
//! Every test has its own data directory and ports, and prints what it was seeded with.

mod bad_input;
mod cluster;
mod journal;
mod kill;
mod load;
mod peer;
mod random;
mod resp;
mod restart;
mod server;

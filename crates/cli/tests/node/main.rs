//! The real binary under bad conditions: killed, misused, damaged, spread over processes.
//!
//! ```text
//!   kill, restart, bad_input, bad_files, cluster ─► server (processes) ─► timestone serve
//!                                    └─► clients: timestone, resp, peer (frames by hand)
//! ```
//! Every test has its own data directory and ports, and prints what it was seeded with.

mod backup_reads;
mod bad_files;
mod bad_input;
mod churn;
mod cluster;
mod commands;
mod convert;
mod demo;
mod devices;
mod doors;
mod dump;
#[expect(clippy::unwrap_used, reason = "a test says what is wrong by where it panics")]
#[path = "../../../etcd/tests/etcd/server.rs"]
mod etcd;
mod faults;
mod frugal;
mod history;
mod inspect;
mod journal;
mod kill;
mod load;
mod memory;
mod missing;
mod on_etcd;
mod peer;
mod random;
mod reach;
mod redis_clients;
mod redis_keyspace;
mod replicated;
mod replicated_load;
#[allow(dead_code, reason = "each suite uses a part of it")]
#[path = "../../../../tests/resp.rs"]
mod resp;
mod restart;
mod server;
mod space;
mod strangers;
mod values;

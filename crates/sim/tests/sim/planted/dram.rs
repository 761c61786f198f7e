//! Bugs of the store in memory, beside one on flash in the same shards.

use timestone_server::planted::Bug;

use super::found_within;

/// Transactions over keyspaces in memory and on flash.
const BOTH: &str = include_str!("../../../../../scenarios/dram.toml");

/// Single keys of both.
const SINGLES: &str = include_str!("../../../../../scenarios/dram-singles.toml");

#[test]
fn a_committed_delete_that_is_not_applied_in_memory_is_found() {
    found_within(10, Bug::ForgottenDeletes, BOTH);
}

#[test]
fn a_delete_of_a_single_key_that_is_not_applied_in_memory_is_found() {
    found_within(5, Bug::ForgottenDeletes, SINGLES);
}

/// Nothing is deleted, and no server restarts: an absence is never right. Scans, late clocks, and
/// clients that stand still for longer than the watermark trails, ask for versions that are not the
/// youngest.
const SNAPSHOTS: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "25ms"
[workload]
kind = "register"
rate = 400
keys = 16
ops = 3
scans = 15
seconds = 5
[keyspaces]
stores = ["dram", "mftl"]
[storage]
log = "none"
[faults]
client-pause = { every = "500ms", lasting = "1500ms" }
break = { every = "500ms" }
clock-jump = { every = "1s" }
"#;

#[test]
fn a_version_in_memory_that_is_collected_too_early_is_found() {
    found_within(10, Bug::OneVersionTooFew, SNAPSHOTS);
}

/// No clock is wrong. What servers that are stopped leave undecided is in a log for the next run,
/// with a read bound a second ahead.
const STOPS: &str = r#"
[cluster]
servers = 2
shards = 3
threads = 2
clients = 6
sessions = 3
clocks = "ntp"
[workload]
kind = "register"
external = "none"
rate = 300
keys = 60
ops = 4
deletes = 20
scans = 5
seconds = 8
[keyspaces]
stores = ["mftl", "dram", "dram"]
[storage]
log = "none"
[faults]
stop = { every = "1500ms", lasting = "50ms" }
client-kill = { every = "1s" }
cut = { every = "4s", lasting = "300ms" }
"#;

#[test]
fn a_session_that_is_sent_into_the_future_for_what_was_lost_is_found() {
    found_within(20, Bug::SentIntoFuture, STOPS);
}

#[test]
fn a_loss_of_memory_that_nobody_knows_of_after_the_restart_is_found() {
    found_within(30, Bug::ForgottenMemoryLoss, BOTH);
}

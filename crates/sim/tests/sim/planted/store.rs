//! Bugs of what is kept: versions that go too early, and everything that must go in the end.

use timestone_server::planted::Bug;

use super::found_within;

/// A device that is collected all the time, with old records among ones that stay, and recovery by
/// a scan of everything.
const DELETIONS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 4
sessions = 2
[workload]
kind = "register"
rate = 500
keys = 1500
zipf = 0.9
deletes = 50
seconds = 50
[storage]
block-pages = 4
capacity-bytes = 2097152
checkpoint-bytes = 16777216
packing-delay = "50us"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "2s", lasting = "20ms" }
"#;

#[test]
fn a_tombstone_collected_too_early_is_found() {
    found_within(30, Bug::EarlyTombstone, DELETIONS);
}

/// A shard with two devices, one of which takes longer for a sync than the log keeps what is stable.
const TWO_DEVICES: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 4
sessions = 2
[workload]
kind = "register"
rate = 100
keys = 20
ops = 4
large = 3000
seconds = 30
[keyspaces]
stores = ["mftl", "frugal"]
[storage]
frugal-slowness = 4000
sync-interval = "5ms"
cache-bytes = 4194304
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
power-cut = { every = "5s", lasting = "20ms" }
"#;

#[test]
fn what_is_stable_in_one_of_two_stores_alone_is_found() {
    found_within(60, Bug::StableInOneStore, TWO_DEVICES);
}

/// The same device under lists that are deleted and begun anew.
const DELETED_LISTS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 4
sessions = 2
[workload]
kind = "list-append"
rate = 800
keys = 1500
zipf = 0.9
appends-per-key = 10000
deletes = 50
seconds = 30
[storage]
block-pages = 4
capacity-bytes = 2097152
checkpoint-bytes = 16777216
packing-delay = "50us"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "2s", lasting = "20ms" }
"#;

#[test]
fn a_tombstone_of_a_list_collected_too_early_is_found() {
    found_within(60, Bug::EarlyTombstone, DELETED_LISTS);
}

/// The same under accounts that are closed and opened again.
const CLOSED_ACCOUNTS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 4
sessions = 2
[workload]
kind = "bank"
rate = 500
keys = 300
deletes = 40
seconds = 15
[storage]
block-pages = 4
capacity-bytes = 2097152
checkpoint-bytes = 16777216
packing-delay = "50us"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "3s", lasting = "20ms" }
"#;

#[test]
fn a_tombstone_of_an_account_collected_too_early_is_found() {
    found_within(20, Bug::EarlyTombstone, CLOSED_ACCOUNTS);
}

/// Servers with changing numbers of logs, each of which loses its old files at its own pace, and
/// deletions whose tombstones are collected meanwhile.
const DELETIONS_OVER_LOGS: &str = r#"
[cluster]
servers = 1
threads = 3
vary-threads = true
shards = 3
clients = 4
sessions = 2
[workload]
kind = "register"
rate = 600
keys = 300
zipf = 0.9
deletes = 50
seconds = 30
[storage]
block-pages = 4
capacity-bytes = 1048576
checkpoint-bytes = 16777216
packing-delay = "50us"
log-file-bytes = 65536
log-block-bytes = 4096
log-change = "500ms"
[faults]
kill = { every = "3s", lasting = "20ms" }
"#;

#[test]
fn a_recovered_write_that_counts_as_settled_is_found() {
    found_within(30, Bug::EarlyReplayFloor, DELETIONS_OVER_LOGS);
}

/// A server with many quiet shards that is killed, comes back, and loses its power before its
/// stores had a reason to sync; its log gives up meanwhile what they call stable.
const KILLS_AND_POWER_CUTS: &str = r#"
[cluster]
servers = 1
shards = 16
clients = 2
sessions = 1
[workload]
kind = "register"
rate = 12
keys = 400
zipf = 0.0
seconds = 60
[storage]
checkpoint-bytes = 16777216
sync-interval = "4s"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "6s", lasting = "10ms" }
power-cut = { every = "6s", lasting = "10ms" }
"#;

#[test]
fn pages_in_a_cache_that_count_as_stable_are_found() {
    found_within(10, Bug::UnsyncedIsStable, KILLS_AND_POWER_CUTS);
}

/// Clients that come and go, and log files that are soon full.
const COMING_AND_GOING: &str = r#"
[cluster]
servers = 2
shards = 1
clients = 4
sessions = 2
[workload]
kind = "list-append"
rate = 300
keys = 6
seconds = 3
[storage]
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
client-kill = { every = "300ms", lasting = "20ms" }
"#;

#[test]
fn an_index_that_keeps_dead_versions_is_found() {
    found_within(10, Bug::DeadVersions, COMING_AND_GOING);
}

#[test]
fn an_outcome_that_is_never_forgotten_is_found() {
    found_within(10, Bug::HoardedOutcomes, COMING_AND_GOING);
}

#[test]
fn a_client_that_is_never_forgotten_is_found() {
    found_within(10, Bug::HoardedClients, COMING_AND_GOING);
}

#[test]
fn a_close_that_nobody_hears_is_found() {
    found_within(10, Bug::IgnoredClose, &COMING_AND_GOING.replace("client-kill", "client-leave"));
}

#[test]
fn a_log_that_is_never_released_is_found() {
    found_within(10, Bug::HoardedLog, COMING_AND_GOING);
}

/// The index of keyspaces changes between lives, and the power goes while that is done.
const CONVERSIONS: &str = include_str!("../../../../../scenarios/conversions.toml");

#[test]
fn a_keyspace_that_is_moved_before_it_is_durable_is_found() {
    // The power goes in the middle of the next conversion or life, and not right behind the move.
    found_within(40, Bug::MovesBeforeDurable, CONVERSIONS);
}

#[test]
fn a_keyspace_that_is_moved_onto_what_an_attempt_has_left_is_found() {
    found_within(20, Bug::MovesOntoLeftovers, CONVERSIONS);
}

#[test]
fn a_move_that_forgets_deletions_is_found() {
    found_within(40, Bug::CheckpointWithoutTombstones, CONVERSIONS);
}

#[test]
fn a_recovered_write_that_counts_as_settled_is_found_by_threads() {
    found_within(100, Bug::EarlyReplayFloor, include_str!("../../../../../scenarios/threads.toml"));
}

//! Bugs of logs, restarts and devices: what must survive, and what must not come back.

use timestone_server::planted::Bug;
use timestone_sim::Scenario;

use super::{found_within, once};

/// A server that is up again before the slowest client's clock has passed what was read before.
const RESTARTS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 8
sessions = 2
clocks = "150ms"
[workload]
kind = "list-append"
rate = 2000
keys = 6
appends-per-key = 6
seconds = 3
[faults]
kill = { every = "150ms", lasting = "5ms" }
"#;

#[test]
fn a_read_bound_that_is_forgotten_at_a_restart_is_found() {
    found_within(10, Bug::ForgottenReadBound, RESTARTS);
}

/// Everything that ends processes and connections, with clocks that disagree and logs that take
/// their time.
pub(super) const STORM: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "50ms"
[workload]
kind = "list-append"
rate = 400
keys = 6
seconds = 3
[storage]
log-write = "3ms"
decision-timeout = "150ms"
[network]
request-timeout = "40ms"
jitter = 1.5
[faults]
kill = { every = "500ms", lasting = "50ms" }
power-cut = { every = "1s", lasting = "100ms" }
client-pause = { every = "200ms", lasting = "200ms" }
client-kill = { every = "500ms" }
break = { every = "100ms" }
slow-network = { every = "500ms", lasting = "100ms" }
clock-jump = { every = "500ms" }
"#;

#[test]
fn acknowledging_before_the_sync_is_found() {
    found_within(250, Bug::EarlyAcknowledgement, STORM);
}

/// A log that takes its time, and a server that is killed while it does.
const CUT_LOGS: &str = r#"
[cluster]
servers = 1
shards = 2
clients = 6
sessions = 3
[workload]
kind = "list-append"
rate = 2000
keys = 20
seconds = 2
[storage]
log-write = "5ms"
[faults]
kill = { every = "100ms", lasting = "10ms" }
"#;

#[test]
fn voting_before_the_promise_is_durable_is_found() {
    found_within(10, Bug::EarlyVote, CUT_LOGS);
}

#[test]
fn a_recovery_that_skips_the_last_block_is_found() {
    found_within(60, Bug::SkippedBlock, STORM);
}

#[test]
fn a_recovery_that_drops_promises_is_found() {
    found_within(10, Bug::LostPromise, STORM);
}

#[test]
fn a_manifest_that_names_files_that_went_on_purpose_is_found() {
    found_within(10, Bug::StaleManifest, include_str!("../../../../../scenarios/threads.toml"));
}

#[test]
fn a_recovery_that_revives_decided_promises_is_found() {
    found_within(10, Bug::RevivedPromise, include_str!("../../../../../scenarios/threads.toml"));
}

/// A server that comes back with another cache and more room each time.
const RESIZED: &str = r#"
[cluster]
servers = 1
clients = 4
[workload]
kind = "list-append"
rate = 100
keys = 8
seconds = 4
[storage]
vary-cache = 65536
capacity-bytes = 4194304
vary-capacity = 33554432
[faults]
kill = { every = "700ms", lasting = "20ms" }
"#;

#[test]
fn a_change_of_capacity_that_is_forgotten_is_found() {
    found_within(5, Bug::ForgottenCapacity, RESIZED);
}

#[test]
fn a_change_of_the_cache_that_is_forgotten_is_found() {
    found_within(5, Bug::ForgottenCache, RESIZED);
}

/// A server that has a log in one life and none in the next, ended in every way.
const WITH_AND_WITHOUT_LOG: &str = r#"
[cluster]
servers = 1
shards = 3
threads = 2
vary-threads = true
clients = 4
sessions = 2
[workload]
kind = "list-append"
rate = 200
keys = 12
seconds = 15
[storage]
vary-log = true
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
stop = { every = "1500ms", lasting = "20ms" }
kill = { every = "2s", lasting = "20ms" }
power-cut = { every = "5s", lasting = "20ms" }
"#;

#[test]
fn a_change_to_no_log_without_a_hand_over_is_found() {
    found_within(20, Bug::NoHandOver, WITH_AND_WITHOUT_LOG);
}

/// Disks that lie about syncs and lose power, with values larger than a page, read from flash.
const LIES: &str = r#"
[cluster]
servers = 1
clients = 4
[workload]
kind = "register"
singles = true
external = "none"
ops = 1
keys = 12
large = 10000
rate = 200
seconds = 6
[storage]
cache-bytes = 0
log-file-bytes = 65536
[faults]
lying-sync = { every = "400ms", lasting = "300ms" }
"#;

#[test]
fn bytes_that_nobody_checks_are_found_where_disks_lie() {
    found_within(20, Bug::UncheckedBytes, LIES);
}

/// A server that is gone for seconds, so that its clients come back one after the other.
const LONG_OUTAGES: &str = r#"
[cluster]
servers = 1
shards = 2
clients = 8
sessions = 2
[workload]
kind = "register"
singles = true
external = "none"
outcomes-known = true
ops = 1
keys = 12
deletes = 15
rate = 200
seconds = 12
[faults]
kill = { every = "4s", lasting = "2s" }
"#;

#[test]
fn a_restart_that_forgets_sessions_is_found() {
    found_within(10, Bug::ForgottenSessions, LONG_OUTAGES);
}

/// Servers that are killed while decisions are on their way, and go on with a log or without; what
/// they put without one takes seconds to be on the device.
const DECIDED_ELSEWHERE: &str = r#"
[cluster]
servers = 2
shards = 1
clients = 4
sessions = 2
[workload]
kind = "list-append"
rate = 150
keys = 12
ops = 4
seconds = 20
[storage]
vary-log = true
packing-delay = "500ms"
sync-interval = "1s"
log-file-bytes = 65536
log-block-bytes = 4096
[network]
near = "10ms"
[faults]
kill = { every = "600ms", lasting = "10ms" }
"#;

#[test]
fn a_decision_that_is_acknowledged_before_its_put_is_on_the_device_is_found() {
    found_within(40, Bug::EarlyHandOverAck, DECIDED_ELSEWHERE);
}

/// Servers that are stopped in order now and then, with a log or without, while clients die that
/// have not told their decisions.
const STOPPED_UNDECIDED: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 4
[workload]
kind = "list-append"
rate = 250
keys = 16
ops = 4
seconds = 10
[storage]
vary-log = true
packing-delay = "50ms"
sync-interval = "500ms"
decision-timeout = "300ms"
log-file-bytes = 65536
log-block-bytes = 4096
[network]
near = "8ms"
[faults]
stop = { every = "1500ms", lasting = "10ms" }
client-kill = { every = "100ms", lasting = "10ms" }
"#;

#[test]
fn a_stop_without_a_log_that_leaves_promises_undecided_is_found() {
    found_within(40, Bug::EndsUndecided, STOPPED_UNDECIDED);
}

/// The same, so often that servers are stopped while others are down: nobody can be told anything
/// then but by the next run.
const STOPPED_WHILE_OTHERS_ARE_DOWN: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 4
[workload]
kind = "list-append"
rate = 500
keys = 16
ops = 4
seconds = 4
[storage]
vary-log = true
packing-delay = "50ms"
sync-interval = "500ms"
decision-timeout = "300ms"
log-file-bytes = 65536
log-block-bytes = 4096
[network]
near = "8ms"
[faults]
stop = { every = "300ms", lasting = "10ms" }
client-kill = { every = "200ms", lasting = "10ms" }
"#;

/// The same without logs, and with servers that are down for longer, so that who knows something
/// alone is stopped as well.
const STOPPED_FOR_LONG: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 4
[workload]
kind = "list-append"
rate = 500
keys = 16
ops = 4
seconds = 8
[storage]
log = "none"
packing-delay = "50ms"
sync-interval = "500ms"
decision-timeout = "300ms"
log-file-bytes = 65536
log-block-bytes = 4096
[network]
near = "8ms"
[faults]
stop = { every = "400ms", lasting = "1s" }
client-kill = { every = "100ms", lasting = "10ms" }
"#;

/// With seed 4 a server without a log knew alone that a transaction was committed, when both were
/// stopped.
#[test]
fn servers_that_stop_while_others_are_down_keep_their_word() {
    let scenario =
        Scenario::read("planted.toml", STOPPED_WHILE_OTHERS_ARE_DOWN).expect("a scenario");
    for seed in 1..=8 {
        assert_eq!(once(&scenario, seed).findings, [], "seed {seed}");
    }
}

#[test]
fn a_stop_without_a_log_that_leaves_nothing_to_the_next_run_is_found() {
    found_within(80, Bug::LeavesNothing, STOPPED_FOR_LONG);
}

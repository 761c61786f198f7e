//! Bugs of the end of a server: one that is told to stop waits for whom it should not.

use timestone_server::planted::Bug;

use super::found_within;

#[test]
fn a_stop_that_waits_for_servers_that_are_down_is_found() {
    found_within(40, Bug::WaitsForOthers, include_str!("../../../../../scenarios/restarts.toml"));
}

/// A server is told to stop while some of its Redis clients read nothing.
const UNREAD: &str = r#"
[cluster]
servers = 1
threads = 2
shards = 2
[workload]
kind = "redis"
seconds = 40
[redis]
clients = 3
connections = 3
rate = 60
keys = 3
[faults]
stalled-reader = { every = "800ms", lasting = "30s" }
stop = { every = "5s", lasting = "100ms" }
"#;

#[test]
fn a_stop_that_waits_for_who_reads_nothing_is_found() {
    found_within(5, Bug::WaitsForReaders, UNREAD);
}

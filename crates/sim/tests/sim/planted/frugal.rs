//! Bugs at the door of the store whose index is on flash, beside one whose index is in memory, in
//! the same shards.

use timestone_server::planted::Bug;

use super::found_within;

/// Nearly all keys are in the second store, so that the first one has made everything durable most
/// of the time; the log's files are small and go soon, and the power goes often.
const MOSTLY_FRUGAL: &str = r#"
[cluster]
servers = 1
shards = 2
clients = 5
sessions = 3
[workload]
kind = "register"
rate = 300
keys = 40
ops = 2
large = 3000
seconds = 10
[keyspaces]
stores = ["frugal", "frugal", "frugal", "frugal", "mftl"]
[storage]
sync-interval = "300ms"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
power-cut = { every = "1s", lasting = "100ms" }
"#;

#[test]
fn a_log_that_is_trimmed_by_what_one_of_two_stores_has_is_found() {
    found_within(20, Bug::StableInOneStore, MOSTLY_FRUGAL);
}

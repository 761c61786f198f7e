//! Bugs of ranges within transactions: marks, and what validation looks for.

use timestone_server::planted::Bug;

use super::found_within;

/// Ranges over keys that are new again and again, by clients whose clocks disagree, at shards that are slow to
/// decide.
const RANGES: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "25ms"
[workload]
kind = "list-append"
ranges = 60
rate = 600
keys = 6
appends-per-key = 2
seconds = 2
[keyspaces]
stores = ["mftl"]
ordered = true
"#;

/// Ranges at shards whose primaries die all the time, while transactions over both shards are promised and
/// decisions are late.
const FAILOVER: &str = r#"
[cluster]
replication = 3
servers = 3
shards = 2
clients = 6
sessions = 3
[workload]
kind = "list-append"
ranges = 60
rate = 800
keys = 4
appends-per-key = 1
seconds = 6
failover-within = "8s"
[keyspaces]
stores = ["mftl"]
ordered = true
[faults]
kill = { every = "1s", lasting = "500ms" }
cut = { every = "100ms", lasting = "500ms" }
client-kill = { every = "1s" }
"#;

#[test]
fn promises_that_a_new_primary_looks_for_in_no_range_are_found() {
    found_within(40, Bug::UnorderedPromises, FAILOVER);
}

#[test]
fn a_range_read_downwards_that_is_validated_at_its_other_end_is_found() {
    found_within(60, Bug::ValidatesOtherEnd, RANGES);
}

#[test]
fn a_range_that_leaves_no_mark_is_found() {
    found_within(60, Bug::UnmarkedRange, RANGES);
}

#[test]
fn a_validated_range_that_is_not_marked_at_commit_is_found() {
    found_within(60, Bug::UnraisedRange, RANGES);
}

#[test]
fn validation_that_overlooks_promises_in_ranges_is_found() {
    found_within(60, Bug::PreparedInRange, RANGES);
}

#[test]
fn validation_that_overlooks_what_is_new_in_ranges_is_found() {
    found_within(60, Bug::NewerInRange, RANGES);
}

#[test]
fn a_range_that_is_read_around_a_promise_is_found() {
    found_within(60, Bug::RangeAroundPromise, RANGES);
}

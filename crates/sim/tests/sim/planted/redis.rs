//! Bugs of the gateway, looked for by Redis clients.

use timestone_server::planted::Bug;

use super::found_within;

/// Redis clients with pipelines on a few keys, over two gateways of one server.
const PIPELINES: &str = r#"
[cluster]
threads = 2
shards = 2
[workload]
kind = "redis"
seconds = 2
[redis]
clients = 2
connections = 3
rate = 400
keys = 3
"#;

#[test]
fn a_pipeline_whose_order_on_a_key_is_lost_is_found() {
    found_within(5, Bug::UnorderedPipelines, PIPELINES);
}

#[test]
fn a_command_that_does_not_wait_for_the_one_that_it_follows_is_found() {
    found_within(10, Bug::HastyFollowers, PIPELINES);
}

#[test]
fn a_transaction_that_a_read_behind_it_overtakes_is_found() {
    found_within(30, Bug::OvertakenTransactions, PIPELINES);
}

#[test]
fn an_exec_that_ignores_watch_is_found() {
    found_within(10, Bug::IgnoredWatch, PIPELINES);
}

#[test]
fn a_committed_increment_that_is_repeated_is_found() {
    found_within(5, Bug::RepeatedCommits, PIPELINES);
}

#[test]
fn a_scan_that_loses_keys_is_found() {
    found_within(5, Bug::LostScanKeys, PIPELINES);
}

/// As gateways, of a keyspace whose keys are in order.
const ORDERED: &str = include_str!("../../../../../scenarios/gateways-ordered.toml");

#[test]
fn a_range_of_keys_that_ends_with_the_first_page_is_found() {
    found_within(5, Bug::ForgetsRangeEnds, ORDERED);
}

#[test]
fn a_count_of_a_moment_before_is_found() {
    found_within(10, Bug::StaleCounts, PIPELINES);
}

/// Servers that pass commands on to each other, while they die and connections between them break.
const GATEWAYS: &str = include_str!("../../../../../scenarios/gateways.toml");

#[test]
fn a_keyspace_without_the_servers_that_are_not_reached_is_found() {
    found_within(10, Bug::PartialKeyspace, GATEWAYS);
}

#[test]
fn a_gateway_that_does_not_hear_of_servers_that_join_later_is_found() {
    found_within(10, Bug::StaleLinks, GATEWAYS);
}

/// Two servers of one gateway each, whose link breaks again and again while many writes are on it.
const LINKS: &str = r#"
[cluster]
servers = 2
threads = 1
shards = 1
[workload]
kind = "redis"
seconds = 3
[redis]
clients = 2
connections = 3
rate = 1500
keys = 3
[faults]
break = { every = "15ms" }
slow-disk = { every = "500ms", lasting = "300ms" }
"#;

#[test]
fn a_write_that_is_repeated_under_another_name_is_found() {
    found_within(20, Bug::RenamedRepeats, LINKS);
}

#[test]
fn a_lost_link_that_fails_what_may_have_been_done_is_found() {
    found_within(20, Bug::FailsWithTheLink, LINKS);
}

#[test]
fn an_answer_that_a_gateway_loses_is_found() {
    found_within(5, Bug::LostAnswers, PIPELINES);
}

/// Redis clients that are split off with a primary, on many connections: one that waits for a write
/// reads nothing, and those that break and come again read once more. A key with a write under way is
/// not read by a call, so there are enough for some without one.
const SPLIT_OFF: &str = r#"
[cluster]
replication = 3
servers = 3
shards = 1
threads = 1
[workload]
kind = "redis"
seconds = 15
[redis]
clients = 6
connections = 16
rate = 600
keys = 40
[faults]
split = { every = "5s", lasting = "6s" }
break = { every = "20ms" }
"#;

#[test]
fn a_call_of_a_primary_that_was_deposed_is_found() {
    found_within(60, Bug::CallsAboveLease, SPLIT_OFF);
}

/// Servers with copies of one shard, whose links break while many writes are on them, and that die.
const LINKS_OF_COPIES: &str = r#"
[cluster]
replication = 3
servers = 3
threads = 1
shards = 1
[workload]
kind = "redis"
seconds = 5
[redis]
clients = 2
connections = 3
rate = 1500
keys = 3
[faults]
break = { every = "15ms" }
kill = { every = "2500ms", lasting = "1500ms" }
slow-disk = { every = "500ms", lasting = "300ms" }
"#;

#[test]
fn a_repeat_under_another_name_where_shards_have_copies_is_found() {
    found_within(20, Bug::RenamedRepeats, LINKS_OF_COPIES);
}

const CALLS: &str = include_str!("../../../../../scenarios/calls.toml");

#[test]
fn a_call_that_takes_no_notice_of_a_promise_is_found() {
    found_within(30, Bug::DirectUnderPromise, CALLS);
}

/// Clients that ask for megabytes and read none of it.
const FLOODS: &str = r#"
[cluster]
servers = 1
threads = 2
shards = 2
[workload]
kind = "redis"
seconds = 3
[redis]
clients = 2
connections = 3
rate = 60
keys = 3
[faults]
stalled-reader = { every = "800ms", lasting = "1s" }
"#;

#[test]
fn answers_without_bound_for_those_who_do_not_read_are_found() {
    found_within(5, Bug::BoundlessOutput, FLOODS);
}

#[test]
fn long_answers_to_commands_that_follow_others_are_found() {
    found_within(5, Bug::BoundlessFollowers, FLOODS);
}

/// Clients whose clocks are apart, so that what they commit lies ahead of the server's time; scans
/// by Redis clients lie above that, and so do the transactions that follow them. Clocks that are
/// far apart leave much room for when a key expires, but what was gone does not come back.
const SNAPSHOTS_AHEAD: &str = r#"
[cluster]
servers = 1
threads = 2
shards = 2
clients = 4
sessions = 2
clocks = "80ms"
[workload]
kind = "list-append"
rate = 200
keys = 8
seconds = 4
[redis]
clients = 2
connections = 3
rate = 500
keys = 2
"#;

#[test]
fn a_snapshot_that_expires_what_is_alive_to_others_is_found() {
    found_within(5, Bug::SnapshotsExpireAhead, SNAPSHOTS_AHEAD);
}

/// A server that is killed again and again, by a clock that jumps, with keys that expire. A run is
/// as long as writes wait after a restart, and a bit more.
const SET_BACK: &str = r#"
[cluster]
servers = 1
shards = 1
jump = "1s"
[workload]
kind = "redis"
seconds = 40
[redis]
clients = 1
connections = 6
rate = 600
keys = 12
[faults]
kill = { every = "1500ms", lasting = "1ms" }
clock-jump = { every = "1s", lasting = "1s" }
"#;

#[test]
fn what_was_told_expired_just_before_a_kill_and_is_there_again_is_found() {
    found_within(60, Bug::ForgottenToldExpiry, SET_BACK);
}

/// A log that fails now and then: no bound is durable any more while keys go on to expire, until
/// the server is started again.
const SET_BACK_AFTER_THE_LOG: &str = r#"
[cluster]
servers = 1
shards = 1
jump = "2s"
[workload]
kind = "redis"
seconds = 20
[redis]
clients = 1
connections = 6
rate = 600
keys = 12
[faults]
log-failure = { every = "1500ms", lasting = "600ms" }
clock-jump = { every = "1s", lasting = "400ms" }
"#;

#[test]
fn expiry_that_is_told_before_the_next_run_would_know_is_found() {
    found_within(40, Bug::UnsettledExpiry, SET_BACK_AFTER_THE_LOG);
}

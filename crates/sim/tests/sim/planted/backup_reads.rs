//! Bugs of reads at backups: timestamps that are closed too early, and backups that answer too much.
//!
//! A timestamp that is closed above the lease is found by the scripts of `timestone-txn` alone: a
//! primary that has no lease any more has recorded what does not count, and backups wait for that.

use timestone_server::planted::Bug;

use super::found_within;

/// Clients whose clocks are far apart and whose words are lost, so that writes come late; and servers
/// between which little passes at times.
const LATE: &str = r#"
[cluster]
replication = 3
shards = 2
clients = 6
sessions = 8
client-clocks = "200ms"
server-time = false
[workload]
kind = "list-append"
rate = 250
keys = 8
max-staleness = "500ms"
seconds = 15
[faults]
cut = { every = "2s", lasting = "1s" }
cut-from-servers = { every = "3s", lasting = "1s" }
slow-disk = { every = "2s", lasting = "500ms" }
break = { every = "500ms" }
"#;

#[test]
fn a_primary_that_closes_over_prepared_transactions_is_found() {
    found_within(20, Bug::ClosesOverPrepared, LATE);
}

/// Clients whose clocks fall behind by about as much as snapshots are old, and write.
const BEHIND: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 6
sessions = 8
jump = "900ms"
[workload]
kind = "list-append"
rate = 400
keys = 6
max-staleness = "500ms"
seconds = 15
[faults]
clock-jump = { every = "500ms", lasting = "4s" }
break = { every = "1s" }
"#;

#[test]
fn a_primary_that_writes_where_it_has_closed_is_found() {
    found_within(20, Bug::UnnotedClose, BEHIND);
}

#[test]
fn a_backup_that_answers_without_all_batches_is_found() {
    found_within(20, Bug::BackupReadsBehind, LATE);
}

#[test]
fn a_session_that_goes_back_to_an_old_snapshot_is_found() {
    found_within(20, Bug::SnapshotsGoBack, LATE);
}

/// A lost primary is noticed late, and sessions that only read go on.
const LOST: &str = r#"
[cluster]
replication = 3
servers = 3
shards = 2
clients = 4
sessions = 6
[workload]
kind = "list-append"
rate = 150
keys = 12
max-staleness = "10s"
readers = 3
old-reads-within = "2s"
failover-within = "15s"
seconds = 20
[storage]
replica-detection = "5s"
[faults]
kill = { every = "8s", lasting = "8s" }
"#;

#[test]
fn snapshots_that_begin_above_what_is_closed_are_found() {
    found_within(20, Bug::BeginsAboveClosed, LOST);
}

#[test]
fn snapshots_that_nobody_holds_are_found() {
    found_within(20, Bug::HoldsNoSnapshot, LOST);
}

#[test]
fn shards_that_are_each_read_at_what_is_closed_there_are_found() {
    found_within(20, Bug::ReadsEachAsClosed, LOST);
}

//! Bugs of replicas: what counts too early, tables that are wrong, logs that let go too much, and
//! primaries that were deposed.

use timestone_server::planted::Bug;

use super::found_within;

/// Servers that die, lose power and are cut off, several at a time: of three replicas of a shard,
/// any two may be gone together, and each may be primary again a moment later.
const DYING: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 5
sessions = 3
clocks = "ntp"
[workload]
kind = "list-append"
rate = 250
keys = 12
seconds = 20
[storage]
decision-timeout = "200ms"
[faults]
kill = { every = "2500ms", lasting = "1500ms" }
power-cut = { every = "2500ms", lasting = "1500ms" }
isolate = { every = "4s", lasting = "1500ms" }
cut-from-servers = { every = "4s", lasting = "2s" }
cut-one-way = { every = "2s", lasting = "1s" }
break = { every = "300ms" }
slow-disk = { every = "2s", lasting = "1500ms" }
client-kill = { every = "2s" }
"#;

#[test]
fn a_backup_that_takes_part_before_the_table_is_in_its_log_is_found() {
    found_within(5, Bug::AcksBeforeInstall, DYING);
}

#[test]
fn a_backup_whose_log_lets_go_of_what_its_store_lacks_is_found() {
    found_within(40, Bug::CarelessBackup, DYING);
}

#[test]
fn a_backup_that_forgets_outcomes_is_found() {
    found_within(5, Bug::ForgetfulBackup, DYING);
}

#[test]
fn batches_that_count_by_answers_of_old_tables_are_found() {
    found_within(80, Bug::MergesOldTables, DYING);
}

#[test]
fn a_primary_that_serves_before_its_own_log_has_the_table_is_found() {
    found_within(50, Bug::ServesWithoutOwnCopy, DYING);
}

#[test]
fn a_batch_that_counts_without_the_primary_is_found() {
    found_within(90, Bug::CountsWithoutItself, DYING);
}

#[test]
fn a_replica_that_keeps_what_a_table_has_cut_is_found() {
    found_within(120, Bug::KeepsCutBatches, DYING);
}

/// Processes die and are back before anybody misses them. A primary needs another epoch then, at once.
const RESTARTING: &str = r#"
[cluster]
replication = 3
shards = 2
clients = 4
clocks = "ptp"
[workload]
kind = "list-append"
rate = 100
keys = 12
seconds = 20
failover-within = "1500ms"
[storage]
replica-lease = "100ms"
replica-detection = "200ms"
[faults]
kill = { every = "3s", lasting = "100ms" }
"#;

/// Others answer it, and have installed that epoch: it waits for answers until it says that it hears
/// nobody.
#[test]
fn a_primary_that_leads_an_epoch_twice_is_found() {
    found_within(5, Bug::ReissuesEpoch, RESTARTING);
}

#[test]
fn a_server_that_ends_before_others_have_its_shards_is_found() {
    let scenario = include_str!("../../../../../scenarios/hand-over.toml");
    found_within(10, Bug::EndsBeforeHandOver, scenario);
}

/// Of five servers one hears no other one for long, and another one dies meanwhile.
const DEAF: &str = r#"
[cluster]
replication = 5
shards = 2
clients = 4
clocks = "ntp"
[workload]
kind = "list-append"
rate = 60
keys = 12
seconds = 40
failover-within = "9s"
[faults]
cut-from-servers = { every = "6s", lasting = "20s" }
kill = { every = "7s", lasting = "14s" }
"#;

#[test]
fn a_controller_that_hears_nobody_and_stays_is_found() {
    found_within(30, Bug::KeepsDeafTerm, DEAF);
}

/// Whoever is away for a moment lacks what nobody keeps, and takes a checkpoint; servers lose their
/// devices.
const REBUILDING: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 5
sessions = 3
clocks = "ntp"
[workload]
kind = "list-append"
rate = 250
keys = 12
seconds = 30
[storage]
decision-timeout = "200ms"
replica-kept-bytes = 2000
[faults]
kill = { every = "2500ms", lasting = "1s" }
power-cut = { every = "4s", lasting = "1500ms" }
isolate = { every = "4s", lasting = "1500ms" }
cut-from-servers = { every = "4s", lasting = "1500ms" }
cut-one-way = { every = "2s", lasting = "1s" }
lost-devices = { every = "3s", lasting = "500ms" }
break = { every = "500ms" }
client-kill = { every = "2s" }
"#;

#[test]
fn a_replica_that_does_not_say_that_it_gives_up_is_found() {
    found_within(60, Bug::GivesUpInSilence, REBUILDING);
}

#[test]
fn a_checkpoint_without_promises_and_outcomes_is_found() {
    found_within(80, Bug::CheckpointWithoutState, REBUILDING);
}

/// Servers that come back with an older copy of their data directory, while others lag, die and are
/// cut off: of what two replicas have acknowledged one has forgotten its part.
const OLDER: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 5
sessions = 3
clocks = "ntp"
[workload]
kind = "list-append"
rate = 250
keys = 12
seconds = 30
[storage]
decision-timeout = "200ms"
run-interval = "500ms"
[faults]
older-copy = { every = "1s", lasting = "300ms" }
kill = { every = "2500ms", lasting = "1500ms" }
power-cut = { every = "4s", lasting = "1500ms" }
isolate = { every = "3s", lasting = "1200ms" }
cut-from-servers = { every = "3s", lasting = "1200ms" }
break = { every = "500ms" }
client-kill = { every = "2s" }
"#;

#[test]
fn an_older_copy_that_is_taken_for_the_latest_is_found() {
    found_within(15, Bug::BelievesOlderCopy, OLDER);
}

#[test]
fn a_loss_that_counts_in_its_own_epoch_is_found() {
    found_within(30, Bug::CountsLossInBase, OLDER);
}

#[test]
fn a_replica_that_says_nothing_of_its_loss_is_found() {
    let scenario = include_str!("../../../../../scenarios/standing-by.toml");
    found_within(80, Bug::SaysNothingOfLoss, scenario);
}

/// Primaries that are split off with half of the clients, some of which have clocks that are far
/// behind: what these read is below any lease.
const SPLIT: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 6
sessions = 6
jump = "4s"
[workload]
kind = "register"
singles = true
external = "none"
ops = 1
keys = 12
rate = 500
seconds = 50
deadline = "700ms"
[faults]
split = { every = "4s", lasting = "3500ms" }
clock-jump = { every = "700ms", lasting = "6s" }
"#;

#[test]
fn a_single_read_above_the_lease_is_found() {
    found_within(15, Bug::ReadsAboveLease, SPLIT);
}

/// Servers that start again and again with other numbers of threads, so that a shard's batches are in
/// several logs, of which some are empty for a while.
const CHANGING_THREADS: &str = r#"
[cluster]
replication = 3
servers = 3
shards = 2
threads = 3
vary-threads = true
clients = 5
sessions = 2
[workload]
kind = "bank"
rate = 200
keys = 12
deletes = 20
seconds = 20
[storage]
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "1500ms", lasting = "500ms" }
power-cut = { every = "3s", lasting = "500ms" }
stop = { every = "3s", lasting = "300ms" }
"#;

#[test]
fn a_replica_that_takes_its_log_for_empty_is_found() {
    found_within(200, Bug::BelievesOldWord, CHANGING_THREADS);
}

/// Servers that do not reach one another for a moment, with logs that are slow and failovers that are
/// fast. So a primary goes on with one backup and the clients while the third replica, which it does
/// not hear, takes over with that backup, whose promise and whose table take a write of the log each.
const CROSSED: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 3
sessions = 3
clocks = "ntp"
[workload]
kind = "list-append"
rate = 400
keys = 12
seconds = 15
[storage]
decision-timeout = "200ms"
replica-detection = "200ms"
replica-lease = "100ms"
log-write = "10ms"
[faults]
cut = { every = "300ms", lasting = "700ms" }
isolate = { every = "3s", lasting = "700ms" }
break = { every = "1s" }
"#;

#[test]
fn a_backup_that_stores_for_a_deposed_primary_is_found() {
    found_within(40, Bug::AcceptsOldEpoch, CROSSED);
}

/// Machines lose power while their disks are slow, so that much of what they were sent is in no log,
/// and some of what one has acknowledged was kept from another one by a cut.
const UNSYNCED: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 3
sessions = 3
clocks = "ntp"
[workload]
kind = "list-append"
rate = 400
keys = 12
seconds = 20
[storage]
decision-timeout = "200ms"
replica-detection = "200ms"
replica-lease = "100ms"
log-write = "2ms"
[faults]
power-cut = { every = "700ms", lasting = "900ms" }
slow-disk = { every = "400ms", lasting = "1s" }
cut = { every = "400ms", lasting = "600ms" }
"#;

#[test]
fn a_backup_that_acknowledges_before_its_log_is_found() {
    found_within(40, Bug::AcksBeforeLog, UNSYNCED);
}

#[test]
fn a_controller_that_waits_for_a_primary_that_hears_no_master_is_found() {
    found_within(
        20,
        Bug::WaitsForUnaware,
        include_str!("../../../../../scenarios/master-cut.toml"),
    );
}

//! The simulator against bugs that are there: each is planted, one at a time, and must be found within a stated number of seeds.
//!
//! A scenario makes what the bug breaks common: lagging clients for marks, power cuts for durability, silent shards for votes. The
//! same seed without the bug must be right, so it is the bug that was found. A test is over with the first seed that finds it; the
//! bound leaves room for a change of the code to shift what seeds draw. Where scores are wanted (`TIMESTONE_TEST_SCORES`), it goes on to
//! several such seeds: the distances between them are what docs/verification.md gives the median of.

use timestone_server::planted::{Bug, defer_puts, plant, shorten_scan_pages};
use timestone_sim::{RunOptions, RunReport, Scenario, Seed, run};

use crate::scores::{self, Score};

/// Ends what is planted, also when the test fails.
struct Planted;

impl Planted {
    fn new(bug: Bug) -> Self {
        plant(Some(bug));
        Self
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(None);
    }
}

/// Puts wait, until the test ends.
struct PutsWait;

impl PutsWait {
    fn new() -> Self {
        defer_puts(true);
        Self
    }
}

impl Drop for PutsWait {
    fn drop(&mut self) {
        defer_puts(false);
    }
}

/// Pages of scans hold one key or two, until the test ends.
struct ShortPages;

impl ShortPages {
    fn new() -> Self {
        shorten_scan_pages(Some(24));
        Self
    }
}

impl Drop for ShortPages {
    fn drop(&mut self) {
        shorten_scan_pages(None);
    }
}

fn once(scenario: &Scenario, seed: u64) -> RunReport {
    run(scenario, Seed(seed), RunOptions::default()).expect("a world")
}

/// Distances between seeds that find a bug, where they are wanted: enough for a median.
const DISTANCES: usize = 9;

/// Looks for a planted bug under the seeds from 1 on.
#[track_caller]
fn found_within(bound: u64, bug: Bug, text: &str) {
    let scenario = Scenario::read("planted.toml", text).expect("a scenario");
    let wanted = if scores::are_wanted() { DISTANCES } else { 1 };
    let (mut distances, mut last) = (Vec::new(), 0);
    for seed in 1..=bound * wanted as u64 {
        assert!(seed <= bound || last > 0, "{bug:?} was not found within {bound} seeds");
        let report = {
            let _planted = Planted::new(bug);
            once(&scenario, seed)
        };
        if !report.is_right() {
            assert_eq!(once(&scenario, seed).findings, [], "seed {seed} fails without {bug:?}, too");
            distances.push(seed - last);
            last = seed;
            if distances.len() == wanted {
                break;
            }
        }
    }
    assert!(last > 0, "{bug:?} was not found within {bound} seeds");
    let score =
        [("bug", Score::Name(&title(bug))), ("distances", Score::Counts(&distances)), ("bound", Score::Count(bound))];
    scores::keep("planted", &score);
}

/// What a planted bug is called: as its test says, which names the thread that it runs in.
fn title(bug: Bug) -> String {
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next()?.strip_suffix("_is_found"));
    test.map_or_else(|| format!("{bug:?}"), |test| test.replace('_', " "))
}

/// Clients whose clocks disagree, on a few keys that are new again and again.
const SKEWED: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "10ms"
[workload]
kind = "list-append"
rate = 600
keys = 4
appends-per-key = 8
seconds = 2
"#;

/// Everything that ends processes and connections, with clocks that disagree and logs that take their time.
const STORM: &str = r#"
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

/// Clients far away, whose transactions last as long as the watermark lags, and whose answers get lost.
const FAR_CLIENTS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 6
sessions = 1
regions = 2
[workload]
kind = "list-append"
rate = 60
keys = 8
ops = 3
seconds = 10
[network]
far = "120ms"
[faults]
break = { every = "30ms" }
"#;

/// Slow clients whose transactions are terminated while they go on, and whose requests are repeated before they are answered.
const IMPATIENT: &str = r#"
[cluster]
servers = 3
shards = 2
clients = 6
sessions = 2
regions = 3
clocks = "30ms"
[workload]
kind = "list-append"
rate = 300
keys = 6
ops = 4
seconds = 4
[storage]
decision-timeout = "100ms"
[network]
far = "30ms"
jitter = 1.5
request-timeout = "20ms"
[faults]
client-pause = { every = "200ms", lasting = "250ms" }
break = { every = "200ms" }
"#;

/// Keys that are new again and again, used by clients whose clocks disagree.
const NEW_KEYS: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "25ms"
[workload]
kind = "list-append"
rate = 600
keys = 6
appends-per-key = 2
seconds = 2
"#;

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

/// Many transactions over servers that stop now and then: votes are asked for twice, and marks have moved when they come.
const STOPPING_SERVERS: &str = r#"
[cluster]
servers = 3
shards = 1
clients = 9
sessions = 8
regions = 3
clocks = "60ms"
[workload]
kind = "list-append"
rate = 2000
keys = 40
zipf = 0.0
ops = 4
seconds = 5
[network]
near = "10ms"
far = "10ms"
jitter = 4.0
[faults]
pause = { every = "200ms", lasting = "280ms" }
"#;

/// Clients whose clocks fall far behind while they are known, on keys of which many rest for longer than marks are kept.
const LAGGING_CLIENTS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 8
sessions = 3
jump = "8s"
[workload]
kind = "list-append"
rate = 150
keys = 500
zipf = 0.9
ops = 4
appends-per-key = 100
seconds = 30
[faults]
clock-jump = { every = "3s", lasting = "20s" }
"#;

/// A device that is collected all the time, with old records among ones that stay, and recovery by a scan of everything.
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
seconds = 25
[storage]
block-pages = 4
capacity-bytes = 2097152
checkpoint-bytes = 16777216
packing-delay = "50us"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "5s", lasting = "20ms" }
"#;

/// Servers with changing numbers of logs, each of which loses its old files at its own pace, and deletions whose tombstones are collected
/// meanwhile.
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

/// The same device under lists that are deleted and begun anew.
const DELETED_LISTS: &str = r#"
[cluster]
servers = 1
shards = 1
clients = 4
sessions = 2
[workload]
kind = "list-append"
rate = 500
keys = 1500
zipf = 0.9
appends-per-key = 10000
deletes = 50
seconds = 25
[storage]
block-pages = 4
capacity-bytes = 2097152
checkpoint-bytes = 16777216
packing-delay = "50us"
log-file-bytes = 65536
log-block-bytes = 4096
[faults]
kill = { every = "5s", lasting = "20ms" }
"#;

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

/// A server with many quiet shards that is killed, comes back, and loses its power before its stores had a reason to sync; its log gives up
/// meanwhile what they call stable.
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

/// Connections that something on their way forgets, and nothing else.
const BLACK_HOLES: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 4
[workload]
kind = "list-append"
rate = 100
keys = 8
seconds = 3
[faults]
black-hole = { every = "300ms" }
"#;

/// Clients far apart by their clocks, whose commits wait for them, and transactions over several shards that take their time.
const WAITING: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 9
sessions = 12
regions = 2
clocks = "30ms"
[workload]
kind = "list-append"
external = "wait"
rate = 3000
keys = 16
zipf = 0.0
ops = 2
seconds = 4
[network]
far = "10ms"
jitter = 1.0
"#;

/// Scans of a small keyspace by clients whose clocks disagree.
const SCANS: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 4
sessions = 2
clocks = "25ms"
[workload]
kind = "register"
scans = 30
ops = 2
keys = 30
deletes = 30
rate = 400
seconds = 2
"#;

/// A server whose clock is set minutes forward and back, and right again, while it runs and while it restarts.
const GLITCHES: &str = r#"
[cluster]
servers = 1
shards = 2
clients = 4
sessions = 2
clocks = "ntp"
[workload]
kind = "list-append"
rate = 100
keys = 8
seconds = 6
[faults]
clock-glitch = { every = "1s", lasting = "1s" }
"#;

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

#[test]
fn a_count_of_a_moment_before_is_found() {
    found_within(10, Bug::StaleCounts, PIPELINES);
}

#[test]
fn a_clock_that_follows_every_step_is_found() {
    found_within(10, Bug::FollowedStep, GLITCHES);
}

#[test]
fn a_dead_shard_that_holds_every_watermark_is_found() {
    // A log that takes its time: writes that the shard had when it died are without an end, others were never sent.
    let text = include_str!("../../../../scenarios/dead-shard.toml");
    found_within(10, Bug::HeldEverywhere, &text.replace("[faults]", "[storage]\nlog-write = \"40ms\"\n\n[faults]"));
}

#[test]
fn validation_without_step_3_is_found() {
    found_within(100, Bug::NoStep3, SKEWED);
}

#[test]
fn a_read_bound_that_is_forgotten_at_a_restart_is_found() {
    found_within(10, Bug::ForgottenReadBound, RESTARTS);
}

#[test]
fn acknowledging_before_the_sync_is_found() {
    found_within(250, Bug::EarlyAcknowledgement, STORM);
}

#[test]
fn voting_before_the_promise_is_durable_is_found() {
    found_within(10, Bug::EarlyVote, CUT_LOGS);
}

#[test]
fn a_recovery_that_skips_the_last_block_is_found() {
    found_within(60, Bug::SkippedBlock, STORM);
}

#[test]
fn absence_that_leaves_no_mark_is_found() {
    found_within(100, Bug::NoMarkOfAbsence, NEW_KEYS);
}

#[test]
fn a_commit_applied_at_the_promised_timestamp_is_found() {
    found_within(150, Bug::AppliedAtPrepared, STORM);
}

#[test]
fn a_prepare_accepted_after_its_decision_is_found() {
    found_within(20, Bug::LatePrepare, IMPATIENT);
}

/// Pages are short here, with the bug and without.
#[test]
fn a_page_of_a_scan_that_skips_keys_is_found() {
    let _short_pages = ShortPages::new();
    found_within(5, Bug::ScanSkips, SCANS);
}

#[test]
fn a_scan_below_what_was_acknowledged_is_found() {
    found_within(5, Bug::ScanBelowAcknowledged, SCANS);
}

#[test]
fn a_tombstone_collected_too_early_is_found() {
    found_within(10, Bug::EarlyTombstone, DELETIONS);
}

#[test]
fn a_tombstone_of_a_list_collected_too_early_is_found() {
    found_within(20, Bug::EarlyTombstone, DELETED_LISTS);
}

#[test]
fn a_tombstone_of_an_account_collected_too_early_is_found() {
    found_within(20, Bug::EarlyTombstone, CLOSED_ACCOUNTS);
}

#[test]
fn a_recovered_write_that_counts_as_settled_is_found() {
    found_within(30, Bug::SettledEarly, DELETIONS_OVER_LOGS);
}

#[test]
fn pages_in_a_cache_that_count_as_stable_are_found() {
    found_within(10, Bug::UnsyncedIsStable, KILLS_AND_POWER_CUTS);
}

#[test]
fn a_watermark_that_looks_at_one_session_is_found() {
    found_within(20, Bug::WatermarkOfOne, FAR_CLIENTS);
}

#[test]
fn a_report_that_ignores_a_session_is_found() {
    found_within(10, Bug::IgnoredSession, FAR_CLIENTS);
}

#[test]
fn a_floor_that_moves_backwards_is_found() {
    found_within(250, Bug::FallingFloor, LAGGING_CLIENTS);
}

#[test]
fn a_duplicate_prepare_that_is_validated_again_is_found() {
    found_within(20, Bug::RevalidatedDuplicate, IMPATIENT);
}

#[test]
fn a_vote_that_counts_twice_is_found() {
    found_within(20, Bug::DuplicateVote, STOPPING_SERVERS);
}

#[test]
fn a_vote_for_a_lower_timestamp_that_counts_is_found() {
    found_within(400, Bug::LowerVote, STOPPING_SERVERS);
}

#[test]
fn termination_that_answers_without_freezing_is_found() {
    found_within(200, Bug::NoFreeze, IMPATIENT);
}

/// Puts wait here, with the bug and without: a store that has no room for what was promised is rare.
#[test]
fn a_key_that_is_free_before_its_put_can_be_read_is_found() {
    let _puts_wait = PutsWait::new();
    found_within(30, Bug::EarlyRelease, SKEWED);
}

#[test]
fn a_recovery_that_drops_promises_is_found() {
    found_within(10, Bug::LostPromise, STORM);
}

#[test]
fn a_client_that_never_gives_a_silent_connection_up_is_found() {
    found_within(10, Bug::NeverRedials, BLACK_HOLES);
}

#[test]
fn an_acknowledgement_without_the_wait_for_clocks_is_found() {
    found_within(100, Bug::NoExternalWait, WAITING);
}

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
fn a_goodbye_that_nobody_hears_is_found() {
    found_within(10, Bug::DeafToFarewells, &COMING_AND_GOING.replace("client-kill", "client-leave"));
}

#[test]
fn a_log_that_is_never_released_is_found() {
    found_within(10, Bug::HoardedLog, COMING_AND_GOING);
}

#[test]
fn a_manifest_that_names_files_that_went_on_purpose_is_found() {
    found_within(10, Bug::StaleManifest, include_str!("../../../../scenarios/threads.toml"));
}

#[test]
fn a_recovery_that_revives_decided_promises_is_found() {
    found_within(10, Bug::RevivedPromise, include_str!("../../../../scenarios/threads.toml"));
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

#[test]
fn an_answer_that_a_gateway_loses_is_found() {
    found_within(5, Bug::LostAnswers, PIPELINES);
}

#[test]
fn a_recovered_write_that_counts_as_settled_is_found_by_threads() {
    found_within(30, Bug::SettledEarly, include_str!("../../../../scenarios/threads.toml"));
}

/// Takes, puts that return what was there and conditions, whose answers get lost.
const LOST_ANSWERS: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 4
sessions = 2
[workload]
kind = "register"
singles = true
external = "none"
ops = 1
keys = 6
deletes = 40
rate = 400
seconds = 3
[network]
request-timeout = "20ms"
[faults]
break = { every = "50ms" }
kill = { every = "1s", lasting = "100ms" }
"#;

#[test]
fn a_repeated_write_that_looks_up_afresh_is_found() {
    found_within(100, Bug::RepeatLooksAfresh, LOST_ANSWERS);
}

/// Values that expire, read by clients whose clocks disagree.
const EXPIRING: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "20ms"
[workload]
kind = "register"
singles = true
external = "none"
ops = 1
keys = 6
deletes = 5
expires = "40ms"
rate = 800
seconds = 3
"#;

#[test]
fn an_expiry_that_readers_judge_by_their_clocks_is_found() {
    found_within(5, Bug::ExpiryByClients, EXPIRING);
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

#[test]
fn a_write_of_unknown_fate_that_undoes_later_ones_is_found() {
    found_within(20, Bug::UndoneWrite, include_str!("../../../../scenarios/singles.toml"));
}

#[test]
fn a_reading_of_a_servers_clock_that_was_taken_too_early_is_found() {
    found_within(
        5,
        Bug::StaleReading,
        "[cluster]\nclocks = \"perfect\"\n[workload]\nkind = \"list-append\"\nrate = 100\nkeys = 8\nseconds = 1\n",
    );
}

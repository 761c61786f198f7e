//! Bugs of the protocol: validation, votes, termination, marks, scans, single-key writes, waiting
//! for the clocks.

use timestone_server::planted::{Bug, defer_puts, shorten_scan_pages};

use super::found_within;
use super::recovery::STORM;

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

#[test]
fn validation_without_step_3_is_found() {
    found_within(100, Bug::NoStep3, SKEWED);
}

/// Clients whose clocks disagree, with Centiman's validation.
const WATERMARKS: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 6
sessions = 2
clocks = "10ms"
[protocol]
later = false
wait = false
watermark-every = 8
[storage]
replica-lease = "50ms"
[workload]
kind = "list-append"
rate = 600
keys = 12
seconds = 2
"#;

#[test]
fn local_commits_above_the_watermark_are_found() {
    found_within(20, Bug::CommitsAboveWatermark, WATERMARKS);
}

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

#[test]
fn absence_that_leaves_no_mark_is_found() {
    found_within(100, Bug::UnrecordedAbsence, NEW_KEYS);
}

#[test]
fn a_commit_applied_at_the_promised_timestamp_is_found() {
    found_within(150, Bug::AppliedAtPrepared, STORM);
}

/// Slow clients whose transactions are terminated while they go on, and whose requests are repeated
/// before they are answered.
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

#[test]
fn a_prepare_accepted_after_its_decision_is_found() {
    found_within(20, Bug::LatePrepare, IMPATIENT);
}

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

/// Clients whose clocks fall far behind while they are known, on keys of which many rest for longer
/// than marks are kept.
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

#[test]
fn a_floor_that_moves_backwards_is_found() {
    found_within(250, Bug::FallingLowWater, LAGGING_CLIENTS);
}

#[test]
fn a_duplicate_prepare_that_is_validated_again_is_found() {
    found_within(20, Bug::RevalidatedDuplicate, IMPATIENT);
}

/// Many transactions over servers that stop now and then: votes are asked for twice, and marks have
/// moved when they come.
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

/// Puts wait here, with the bug and without: a store that has no room for what was promised is
/// rare.
#[test]
fn a_key_that_is_free_before_its_put_can_be_read_is_found() {
    let _puts_wait = PutsWait::new();
    found_within(30, Bug::EarlyRelease, SKEWED);
}

const NO_LOG: &str = include_str!("../../../../../scenarios/no-log.toml");

#[test]
fn what_is_put_at_once_and_noted_nowhere_is_found() {
    found_within(50, Bug::UnnotedPut, NO_LOG);
}

/// The last of what is put at once finds no room here, with the bug and without.
#[test]
fn what_is_put_at_once_without_room_is_found() {
    let _puts_wait = PutsWait::new();
    found_within(30, Bug::PutWithoutRoom, NO_LOG);
}

/// Clients far apart by their clocks, whose commits wait for them, and transactions over several
/// shards that take their time.
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

#[test]
fn an_acknowledgement_without_the_wait_for_clocks_is_found() {
    found_within(100, Bug::NoExternalWait, WAITING);
}

/// Takes, puts that return what was there and conditions, whose answers get lost: they are on their
/// way for as long as it takes to lose some in most seeds.
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
near = "3ms"
request-timeout = "20ms"
[faults]
break = { every = "50ms" }
kill = { every = "1s", lasting = "100ms" }
"#;

#[test]
fn a_repeated_write_that_looks_up_afresh_is_found() {
    found_within(5, Bug::RepeatLooksAfresh, LOST_ANSWERS);
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

#[test]
fn a_write_of_unknown_fate_that_undoes_later_ones_is_found() {
    found_within(20, Bug::UndoneWrite, include_str!("../../../../../scenarios/singles.toml"));
}

#[test]
fn a_put_that_is_placed_however_late_it_comes_is_found() {
    found_within(20, Bug::PlacesAtWill, include_str!("../../../../../scenarios/singles.toml"));
}

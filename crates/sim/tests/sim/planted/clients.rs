//! Bugs of clients, their reports and their connections, and of clocks.

use timestone_server::planted::Bug;

use super::found_within;

/// A server whose clock is set minutes forward and back, and right again, while it runs and while
/// it restarts.
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

#[test]
fn a_clock_that_follows_every_step_is_found() {
    found_within(10, Bug::FollowedStep, GLITCHES);
}

const EMBEDDED: &str = include_str!("../../../../../scenarios/embedded.toml");

#[test]
fn calls_that_do_not_move_their_session_on_are_found() {
    found_within(60, Bug::ForgetsCalls, EMBEDDED);
}

#[test]
fn a_session_that_does_not_go_on_above_a_call_that_it_gave_up_is_found() {
    found_within(60, Bug::ForgetsGivenUpCalls, EMBEDDED);
}

#[test]
fn a_loop_that_takes_answers_after_its_end_is_found() {
    let stops = include_str!("../../../../../scenarios/embedded-stops.toml");
    found_within(60, Bug::AnswersAfterItsEnd, stops);
}

#[test]
fn an_embedded_call_that_takes_no_notice_of_a_promise_is_found() {
    found_within(30, Bug::DirectUnderPromise, EMBEDDED);
}

/// Servers whose clocks are set minutes back while they restart, and right again before the master
/// is there.
const SLOW_JOINS: &str = r#"
[cluster]
servers = 2
shards = 3
clients = 3
sessions = 2
[workload]
kind = "list-append"
rate = 60
keys = 8
seconds = 20
[faults]
clock-glitch = { every = "400ms", lasting = "1s" }
power-cut = { every = "4s", lasting = "15s" }
"#;

#[test]
fn a_time_that_begins_long_before_the_server_serves_is_found() {
    found_within(60, Bug::TimeOfStart, SLOW_JOINS);
}

#[test]
fn a_dead_shard_that_holds_every_watermark_is_found() {
    // A log that takes its time: writes that the shard had when it died are without an end, others
    // were never sent.
    let text = include_str!("../../../../../scenarios/dead-shard.toml");
    found_within(
        10,
        Bug::HeldEverywhere,
        &text.replace("[faults]", "[storage]\nlog-write = \"40ms\"\n\n[faults]"),
    );
}

/// Clients far away, whose transactions last as long as the watermark lags, and whose answers get
/// lost.
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

#[test]
fn a_watermark_that_looks_at_one_session_is_found() {
    found_within(20, Bug::WatermarkOfOne, FAR_CLIENTS);
}

#[test]
fn a_report_that_ignores_a_session_is_found() {
    found_within(10, Bug::IgnoredSession, FAR_CLIENTS);
}

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

#[test]
fn a_client_that_never_gives_a_silent_connection_up_is_found() {
    found_within(10, Bug::NeverRedials, BLACK_HOLES);
}

#[test]
fn a_reading_of_a_servers_clock_that_was_taken_too_early_is_found() {
    found_within(
        5,
        Bug::StaleReading,
        "[cluster]\nclocks = \"perfect\"\n[workload]\nkind = \"list-append\"\nrate = 100\nkeys = \
         8\nseconds = 1\n",
    );
}

/// Clients that begin with clocks that are too late to be believed, for longer than a watermark may
/// trail.
const LATE_CLIENTS: &str = r#"
[cluster]
servers = 2
shards = 1
clients = 4
[workload]
kind = "list-append"
rate = 40
keys = 8
seconds = 18
watermark-lag = "13s"
[faults]
late-clock = { every = "2s", lasting = "25s" }
"#;

#[test]
fn a_late_clock_that_is_believed_is_found() {
    found_within(5, Bug::BelievedLateClocks, LATE_CLIENTS);
}

/// Clients with poor clocks that follow the servers' time.
const FOLLOWERS: &str = r#"
[cluster]
clocks = "ptp"
client-clocks = "20ms"
server-time = true
lie = "80ms"
clients = 4
[workload]
kind = "list-append"
rate = 100
keys = 8
seconds = 3
"#;

#[test]
fn a_time_that_steps_to_what_is_known_of_the_servers_is_found() {
    found_within(3, Bug::SteppedServerTime, FOLLOWERS);
}

#[test]
fn a_server_that_lies_and_is_believed_is_found() {
    found_within(3, Bug::BelievedLiar, FOLLOWERS);
}

/// The same far away: requests are asked again before they are answered.
const FAR_FOLLOWERS: &str = r#"
[cluster]
clocks = "ptp"
client-clocks = "20ms"
server-time = true
servers = 1
clients = 4
regions = 2
[workload]
kind = "list-append"
rate = 100
keys = 8
seconds = 3
[network]
far = "15ms"
request-timeout = "20ms"
"#;

#[test]
fn an_exchange_that_is_measured_from_a_later_copy_is_found() {
    found_within(5, Bug::MeasuresLaterCopies, FAR_FOLLOWERS);
}

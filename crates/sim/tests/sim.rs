//! The simulator itself: equal seeds give equal runs, whatever goes wrong in them, and a world
//! without faults is as promised.

#[cfg(feature = "planted-bugs")]
#[path = "sim/planted/mod.rs"]
mod planted;
#[cfg(feature = "planted-bugs")]
#[path = "../../../tests/scores.rs"]
mod scores;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use timestone_sim::{
    FaultKind, RunOptions, RunReport, Scenario, Seed, TraceLine, Watch, run, watch,
};
use timestone_workload::history::MicroOp;

const CALM: &str = r#"
[cluster]
clients = 4
[workload]
kind = "list-append"
rate = 200
seconds = 3
"#;

const STORMY: &str = r#"
[workload]
kind = "list-append"
rate = 100
seconds = 4
[faults]
kill = { every = "1s", lasting = "200ms" }
power-cut = { every = "2s" }
client-kill = { every = "1s" }
cut-one-way = { every = "1s" }
break = { every = "200ms" }
loss = { every = "2s" }
slow-disk = { every = "2s" }
clock-jump = { every = "1s" }
"#;

const STEPS: &str = r#"
[cluster]
threads = 2
shards = 2
jump = "10s"
[workload]
kind = "redis"
seconds = 8
[redis]
clients = 1
connections = 4
rate = 200
[faults]
clock-jump = { every = "400ms", lasting = "300ms" }
"#;

fn run_once(text: &str, seed: u64) -> RunReport {
    let scenario = Scenario::read("test.toml", text).expect("a scenario");
    run(&scenario, Seed(seed), RunOptions::default()).expect("a world")
}

const CLOSED: &str = r#"
[cluster]
servers = 2
clients = 3
sessions = 2
[storage]
replica-lease = "50ms"
[workload]
kind = "retwis-75"
closed = true
retries = true
keys = 4000
seconds = 0.5
warmup = "100ms"
"#;

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    for text in [CALM, STORMY] {
        let (one, same, other) = (run_once(text, 7), run_once(text, 7), run_once(text, 8));
        assert_eq!(one.trace_hash, same.trace_hash);
        assert_eq!((one.events, one.turns, one.tally), (same.events, same.turns, same.tally));
        assert_eq!((one.virtual_time, one.findings.clone()), (same.virtual_time, same.findings));
        assert_ne!(one.trace_hash, other.trace_hash);
    }
}

/// What is left out of the protocol for comparisons costs aborts, and nothing that is promised.
#[test]
fn without_later_timestamps_waiting_and_local_validation_more_aborts_and_all_is_as_promised() {
    let hot = CALM.replace("rate = 200", "rate = 400\nkeys = 8");
    let published =
        format!("{hot}\n[protocol]\nlater = false\nwait = false\nlocal-validation = false\n");
    let (mut ours, mut theirs) = (0, 0);
    for seed in 1..=2 {
        let (one, other) = (run_once(&hot, seed), run_once(&published, seed));
        assert!(one.is_right() && other.is_right(), "{:?} {:?}", one.findings, other.findings);
        ours += one.tally.aborted;
        theirs += other.tally.aborted;
    }
    assert!(theirs > ours, "{theirs} aborts as published, {ours} of ours");
}

/// Centiman's validation is serializable, and commits in the client what it may.
#[test]
fn with_watermarks_what_only_reads_is_serializable() {
    let text = include_str!("../../../scenarios/centiman.toml");
    for seed in 1..=3 {
        let report = run_once(text, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(report.tally.committed > 500, "seed {seed}: {:?}", report.tally);
    }
}

/// A closed run that counts what commits in the client: everything with MILANA's validation, nothing
/// where it is left out, and some of it below a watermark.
#[test]
fn what_only_reads_commits_in_the_client_as_the_protocol_says() {
    let share = |protocol: &str| {
        let text = format!("{CLOSED}\n[protocol]\nlater = false\nwait = false\n{protocol}\n");
        let pace = run_once(&text, 1).pace;
        assert!(pace.read_only > 200, "{pace:?}");
        pace.locally as f64 / pace.read_only as f64
    };
    let (all, none) = (share(""), share("local-validation = false"));
    let recorded = share("local-validation = false\nrecorded-reads = true");
    let some = share("watermark-every = 20");
    assert!(all > 0.9 && none == 0.0 && recorded == 0.0, "{all} {none} {recorded}");
    assert!(some > 0.2 && some < all, "{some} of {all}");
}

/// One version is not enough for snapshots: transactions that read late abort.
#[test]
fn with_one_version_more_transactions_abort_and_all_is_as_promised() {
    let hot =
        CALM.replace("list-append", "ycsb-social").replace("rate = 200", "rate = 600\nkeys = 40");
    let single = format!("{hot}\n[protocol]\nsingle-version = true\n");
    let (mut ours, mut theirs) = (0, 0);
    for seed in 1..=2 {
        let (one, other) = (run_once(&hot, seed), run_once(&single, seed));
        assert!(one.is_right() && other.is_right(), "{:?} {:?}", one.findings, other.findings);
        ours += one.tally.aborted;
        theirs += other.tally.aborted;
    }
    assert!(theirs > 3 * ours / 2, "{theirs} aborts with one version, {ours} with several");
}

/// Redis clients and the gateways of their server, while it dies and connections break.
#[test]
fn redis_clients_are_served_by_simulated_gateways() {
    for seed in 1..=3 {
        let report = run_once(GATEWAY, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(
            report.tally.committed > 300 && report.checked > 300,
            "seed {seed}: {:?}",
            report.tally
        );
        assert!(report.faults.len() >= 2, "seed {seed}: {:?}", report.faults);
    }
}

/// Clients that do not read are closed in the end, nobody else is, and all others are served.
#[test]
fn who_does_not_read_is_closed_in_the_end() {
    let mut closed = 0;
    for seed in 1..=4 {
        let report = run_once(include_str!("../../../scenarios/unread.toml"), seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(
            report.faults.contains_key(&FaultKind::StalledReader),
            "seed {seed}: {:?}",
            report.faults
        );
        assert!(report.tally.committed > 1_000, "seed {seed}: {:?}", report.tally);
        closed += report.stalled;
    }
    assert!(closed > 0, "nobody was closed");
}

/// Of several servers each serves every key, while they die and connections between them break.
#[test]
fn gateways_of_several_servers_serve_every_key() {
    for seed in 1..=3 {
        let report = run_once(include_str!("../../../scenarios/gateways.toml"), seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(
            report.tally.committed > 300 && report.checked > 300,
            "seed {seed}: {:?}",
            report.tally
        );
    }
}

/// A client that begins with a clock that is too late to be believed is told so, and nobody else
/// is: they lose nothing by it.
#[test]
fn a_client_whose_clock_is_too_late_disturbs_nobody() {
    for seed in 1..=3 {
        let report = run_once(LATE, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(report.faults.values().sum::<u64>() > 2, "seed {seed}: {:?}", report.faults);
        assert!(
            report.tally.errors > 0 && report.tally.committed > 200,
            "seed {seed}: {:?}",
            report.tally
        );
    }
}

const LATE: &str = r#"
[cluster]
servers = 2
shards = 2
clients = 4
[workload]
kind = "list-append"
rate = 40
keys = 8
seconds = 16
watermark-lag = "13s"
[faults]
late-clock = { every = "4s", lasting = "6s" }
"#;

const GATEWAY: &str = include_str!("../../../scenarios/gateway.toml");

/// Seconds in which whatever a scenario has happens at least once.
const LONG_ENOUGH: f64 = 15.0;

/// Layouts, threads that change, swarms, waiting for clocks, damage, single operations.
#[test]
fn every_scenario_runs_the_same_twice() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut hashes = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the scenarios") {
        let path = entry.expect("a scenario").path();
        // Those of the papers' experiments have a folder of their own.
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a scenario");
        let mut scenario = Scenario::read(&path.to_string_lossy(), &text).expect("a scenario");
        scenario.workload.seconds = scenario.workload.seconds.min(LONG_ENOUGH);
        let [one, same] =
            [(); 2].map(|()| run(&scenario, Seed(11), RunOptions::default()).expect("a world"));
        assert_eq!(
            (one.trace_hash, one.events, one.tally),
            (same.trace_hash, same.events, same.tally),
            "{path:?}"
        );
        assert_eq!(one.findings, same.findings, "{path:?}");
        hashes.insert(one.trace_hash);
    }
    assert!(hashes.len() > 10, "each is a run of its own");
}

/// Gateways go by the clock of their server: while it is set seconds forward and back, and nothing
/// else goes wrong, no command fails.
#[test]
fn steps_of_a_servers_clock_fail_no_command_of_a_redis_client() {
    for seed in 1..=5 {
        let report = run_once(STEPS, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        let struck = report.faults.values().sum::<u64>();
        assert!(
            struck > 2 && report.tally.committed > 300,
            "seed {seed}: {struck} steps, {:?}",
            report.tally
        );
        assert_eq!(
            (report.tally.errors, report.tally.unknown),
            (0, 0),
            "seed {seed}: {:?}",
            report.tally
        );
    }
}

#[test]
fn clocks_that_were_behind_when_all_was_loaded_miss_nothing() {
    for (kind, keys) in [("retwis", 1000), ("bank", 20), ("cycle", 16)] {
        let text = format!(
            "name = \"late\"\n[cluster]\nclocks = \"20ms\"\n[workload]\nkind = \"{kind}\"\nkeys = \
             {keys}\nrate = 500\nseconds = 2\n"
        );
        for seed in 1..=4 {
            assert_eq!(run_once(&text, seed).findings, [], "{kind}, seed {seed}");
        }
    }
}

#[test]
fn a_world_without_faults_commits_what_it_is_asked_for() {
    let report = run_once(CALM, 1);
    assert_eq!(report.findings, []);
    assert!(report.tally.committed > 500, "{:?}", report.tally);
    assert_eq!((report.tally.unknown, report.tally.errors), (0, 0));
    assert!(
        report.checked >= 2 * report.tally.committed,
        "the order and the end of the data are both checked"
    );
}

/// Takes the words as they come, and has seen enough at some moment.
struct Reader {
    lines: Vec<String>,
    enough: Duration,
}

impl Watch for Reader {
    fn look(&mut self, now: Duration, lines: &[TraceLine]) -> ControlFlow<()> {
        assert!(
            lines.iter().all(|line| Duration::from_nanos(line.at.as_nanos()) <= now),
            "nothing of the future"
        );
        self.lines.extend(lines.iter().map(ToString::to_string));
        if now >= self.enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn who_watches_is_told_all_in_time_and_may_end_the_run() {
    let scenario = Scenario::read("test.toml", STORMY).expect("a scenario");
    let watched = |enough| {
        let mut reader = Reader { lines: Vec::new(), enough };
        let options = RunOptions { words: true, ..RunOptions::default() };
        (watch(&scenario, Seed(7), options, &mut reader).expect("a world"), reader.lines)
    };
    let (report, lines) = watched(Duration::MAX);
    let report = report.expect("a run to its end");
    let kept =
        run(&scenario, Seed(7), RunOptions { keep_lines: usize::MAX, ..RunOptions::default() })
            .expect("a world");
    assert_eq!(report.trace_hash, kept.trace_hash, "looking on changes nothing");
    assert_eq!(lines, kept.lines.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (report, part) = watched(Duration::from_millis(500));
    assert!(
        report.is_none()
            && !part.is_empty()
            && part.len() < lines.len()
            && lines.starts_with(&part)
    );
}

#[test]
fn faults_strike_and_what_was_promised_holds_nevertheless() {
    let report = run_once(STORMY, 3);
    assert_eq!(report.findings, []);
    assert!(report.faults.len() >= 7, "{:?}", report.faults);
    assert!(report.tally.committed > 50, "{:?}", report.tally);
}

/// The master is none of the servers, and is gone now and then: what it decides goes through it
/// when it is back.
#[test]
fn a_master_outside_of_the_servers_may_be_gone_for_a_while() {
    for seed in 1..=3 {
        let report = run_once(OUTSIDE, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        let struck = |kind| report.faults.get(&kind).copied().unwrap_or_default();
        assert!(struck(FaultKind::MasterGone) > 0 && struck(FaultKind::Kill) > 1, "seed {seed}");
        assert!(report.tally.committed > 100, "seed {seed}: {:?}", report.tally);
    }
}

const OUTSIDE: &str = r#"
[cluster]
outside-master = true
shards = 1
clients = 4
[workload]
kind = "list-append"
rate = 200
keys = 10
seconds = 5
[faults]
kill = { every = "1s", lasting = "300ms" }
break = { every = "300ms" }
master-gone = { every = "1500ms", lasting = "1s" }
"#;

/// Shards go on to be served when their primaries are gone, and every replica has everything in the
/// end.
#[test]
fn another_replica_takes_the_place_of_a_primary_that_is_gone() {
    for scenario in [
        include_str!("../../../scenarios/failover.toml"),
        include_str!("../../../scenarios/failover-bank.toml"),
        include_str!("../../../scenarios/deposed.toml"),
        include_str!("../../../scenarios/hand-over.toml"),
        include_str!("../../../scenarios/no-master.toml"),
        include_str!("../../../scenarios/rebuilding.toml"),
        include_str!("../../../scenarios/older-copy.toml"),
        include_str!("../../../scenarios/standing-by.toml"),
        include_str!("../../../scenarios/short-leases.toml"),
        include_str!("../../../scenarios/backup-reads.toml"),
        include_str!("../../../scenarios/old-reads.toml"),
    ] {
        for seed in 1..=2 {
            let report = run_once(scenario, seed);
            assert_eq!(report.findings, [], "seed {seed} of {scenario}");
            assert!(report.tally.committed > 500, "seed {seed}: {:?}", report.tally);
        }
    }
}

/// A server that dies for good is missed by nobody: its shards have others.
#[test]
fn a_server_may_die_for_good() {
    let report = run_once(DEATH, 1);
    assert_eq!(report.findings, []);
    assert_eq!(report.faults.get(&FaultKind::Death), Some(&1), "the others must stay");
    assert!(report.failovers > 0 && report.tally.committed > 500, "{:?}", report.tally);
}

const DEATH: &str = r#"
[cluster]
replication = 3
shards = 1
clients = 4
[workload]
kind = "list-append"
rate = 200
keys = 10
seconds = 10
failover-within = "8s"
failovers = 1
[faults]
death = { every = "2s" }
break = { every = "500ms" }
"#;

/// A command that reached a gateway after it had told the shards that nothing comes any more was
/// carried out while they closed their stores: it was acknowledged, and lost.
#[test]
fn what_comes_after_the_end_of_a_gateway_is_not_begun() {
    let report = run_once(include_str!("../../../scenarios/calls.toml"), 6_008_893);
    assert_eq!(report.findings, []);
    assert!(report.tally.committed > 1_000, "{:?}", report.tally);
}

/// A client that greeted several servers at once went back to an id that it had given up, and
/// numbered its transactions anew: the second one under a number was answered with the first one's
/// outcome, and its writes were lost.
#[test]
fn a_client_that_is_offered_several_ids_loses_no_write() {
    let report = run_once(include_str!("../../../scenarios/swarm.toml"), 175);
    assert_eq!(report.findings, []);
    assert!(report.tally.committed > 50, "{:?}", report.tally);
}

/// A link that was slow and had a queue held a stream up for minutes, longer than the operations of
/// its client last: no copy of what was late was ever sent.
#[test]
fn a_queue_on_a_slow_link_ends_no_client() {
    for seed in [442_262_378, 766_432_554] {
        let report = run_once(include_str!("../../../scenarios/swarm.toml"), seed);
        assert_eq!(report.findings, [], "seed {seed}");
    }
}

/// What commits in calm shortly before the end has committed, also where whatever came before was
/// refused.
#[test]
fn a_calm_world_that_is_slow_is_not_stuck() {
    let report = run_once(include_str!("../../../scenarios/swarm.toml"), 72_230_587);
    assert_eq!(report.findings, []);
}

/// After the faults new sessions work in the places of the old ones, and need not see what those
/// wrote a moment ago.
#[test]
fn a_new_session_in_the_place_of_another_is_another_process() {
    let report = run_once(include_str!("../../../scenarios/swarm.toml"), 717_670_600);
    assert_eq!(report.findings, []);
}

/// Scans of whole keyspaces hold exactly what was there, and everything that was acknowledged
/// before.
#[test]
fn scans_are_transactions_that_read_every_key() {
    for seed in 1..=6 {
        let report = run_once(include_str!("../../../scenarios/scans.toml"), seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(report.tally.committed > 50, "{:?}", report.tally);
    }
}

/// Ranges within transactions are serializable, whatever comes into the gaps between their keys.
#[test]
fn ranges_within_transactions_are_serializable() {
    for seed in 1..=6 {
        let report = run_once(include_str!("../../../scenarios/ranges.toml"), seed);
        assert_eq!(report.findings, [], "seed {seed}");
        assert!(report.tally.committed > 50, "{:?}", report.tally);
    }
}

/// The close of a session was lost where answers were on their way: closing a socket that has unread input
/// resets the stream.
#[test]
fn who_leaves_before_all_answers_came_is_heard_nevertheless() {
    for seed in 1..=4 {
        let report = run_once(LEAVING, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        let left: u64 = report.faults.values().sum();
        assert!(left > 10, "seed {seed}: {:?}", report.faults);
    }
}

/// Clients that leave often, with answers that are long on their way.
const LEAVING: &str = r#"
[cluster]
servers = 2
shards = 1
clients = 4
sessions = 4
[workload]
kind = "list-append"
rate = 300
keys = 8
seconds = 3
[network]
near = "5ms"
[faults]
client-leave = { every = "200ms", lasting = "20ms" }
"#;

/// No seed is to blame for servers that cannot start as they are set up.
#[test]
fn a_world_whose_servers_can_never_start_is_an_error_and_no_finding() {
    let mut scenario = Scenario::read("test.toml", CALM).unwrap();
    scenario.storage.log.block_bytes = Some(0);
    let error = run(&scenario, Seed(1), RunOptions::default())
        .map(|report| report.findings)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("server-0 could not start") && error.contains("block_bytes is 0"),
        "{error}"
    );
}

/// Connections that are forgotten on their way, of clients and between servers.
#[test]
fn connections_that_die_in_silence_are_made_anew() {
    for seed in 1..=4 {
        let report = run_once(BLACK_HOLES, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        let struck = report.faults.values().sum::<u64>();
        assert!(struck > 10, "seed {seed}: {:?}", report.faults);
        assert!(report.tally.committed > 50, "seed {seed}: {:?}", report.tally);
    }
}

const BLACK_HOLES: &str = r#"
[cluster]
servers = 3
shards = 2
clients = 4
sessions = 2
[workload]
kind = "list-append"
rate = 200
keys = 8
seconds = 8
[faults]
black-hole = { every = "200ms" }
"#;

/// Redis clients that read nothing for a while, and their connections that are forgotten on their
/// way meanwhile: no answers can come on those, however long they are awaited afterwards.
#[test]
fn nobody_is_owed_answers_on_connections_that_were_forgotten_while_nobody_read() {
    for seed in 1..=4 {
        let report = run_once(FORGOTTEN_READERS, seed);
        assert_eq!(report.findings, [], "seed {seed}");
        let struck = report.faults.values().sum::<u64>();
        assert!(struck > 3, "seed {seed}: {:?}", report.faults);
        assert!(report.tally.committed > 50, "seed {seed}: {:?}", report.tally);
    }
}

const FORGOTTEN_READERS: &str = r#"
[cluster]
servers = 1
[workload]
kind = "redis"
seconds = 4
[redis]
clients = 2
connections = 2
rate = 60
keys = 4
[faults]
black-hole = { every = "400ms" }
stalled-reader = { every = "800ms", lasting = "2s" }
"#;

/// A reader saw a commit that its own client was still waiting out, and did not wait itself; who
/// came after it, with a slower clock, stood before that commit.
#[test]
fn who_reads_a_commit_that_is_waited_out_waits_too() {
    let report = run_once(include_str!("../../../scenarios/external.toml"), 835);
    assert_eq!(report.findings, []);
    assert!(report.tally.committed > 50, "{:?}", report.tally);
}

/// Every tenth append is acknowledged and never made.
const CANARY: &str = r#"
[workload]
kind = "list-append"
rate = 200
seconds = 1
canary = true
"#;

#[test]
fn the_canary_is_reported_with_its_property_its_transaction_and_its_key() {
    for seed in 1..=3 {
        let report = run_once(CANARY, seed);
        assert!(!report.is_right(), "the canary under seed {seed} was not noticed");
        let lost =
            report.findings.iter().find(|finding| finding.property == "durability and atomicity");
        let told = lost.map(|finding| finding.detail.as_str()).unwrap_or_default();
        for words in ["lost write", "process", "key"] {
            assert!(
                told.contains(words),
                "{words} is missing in {told:?}; all findings: {:?}",
                report.findings
            );
        }
    }
    assert_eq!(
        run_once(&CANARY.replace("canary = true", ""), 1).findings,
        [],
        "without it nothing is wrong"
    );
}

/// What findings call T57 is a transaction with an id of its own to the store: a trace says both,
/// of all that are prepared.
#[test]
fn a_trace_calls_transactions_as_the_history_does() {
    let scenario = Scenario::read("test.toml", STORMY).unwrap();
    let options = RunOptions { keep_lines: usize::MAX, keep_history: true, words: false };
    let report = run(&scenario, Seed(7), options).unwrap();
    let history = report.histories.sessions.unwrap();
    let (mut named, mut of_others) = (BTreeMap::<String, &str>::new(), 0);
    for line in &report.lines {
        let Some((_, prepare)) = line.what.split_once("Prepare to shard ") else { continue };
        let txn = prepare.split_once("txn ").unwrap().1.split(' ').next().unwrap();
        let Some((_, name)) = prepare.split_once(" (T") else {
            of_others += 1;
            continue;
        };
        // A part that only reads may fit several; the part that appends fits one.
        let Some((name, _)) = name.split_once(')').filter(|(name, _)| !name.contains(" or "))
        else {
            continue;
        };
        assert_eq!(*named.entry(txn.to_owned()).or_insert(name), name, "{txn} has two names");
        let index: u64 = name.parse().unwrap();
        let begun = history.events.iter().find(|event| event.index == index).unwrap();
        let keys: Vec<u64> = begun.ops.iter().map(key_of).collect();
        for key in prepare.split(" key ").skip(1) {
            let key = key.split([' ', '@']).next().unwrap().parse().unwrap();
            assert!(keys.contains(&key), "{line} is not of {begun:?}");
        }
    }
    assert!(named.len() > 100, "only {} were named", named.len());
    assert_eq!(named.values().collect::<BTreeSet<_>>().len(), named.len(), "no two have one name");
    // Loading, and the keys that are written once more in the end, are in no history.
    assert!(of_others < 100, "{of_others} prepares bear no name");
    let told = |words: &str| {
        report
            .lines
            .iter()
            .filter(|line| line.stage == "session" && line.what.contains(words))
            .count()
    };
    assert_eq!(told(" begins"), report.tally.begun as usize);
    assert_eq!(told(" committed"), report.tally.committed as usize);
}

fn key_of(op: &MicroOp) -> u64 {
    op.key().0
}

#[test]
fn lines_are_kept_when_they_are_asked_for() {
    let scenario = Scenario::read("test.toml", CALM).unwrap();
    let report =
        run(&scenario, Seed(1), RunOptions { keep_lines: 500, keep_history: true, words: false })
            .unwrap();
    assert_eq!(report.lines.len(), 500);
    assert!(
        report.lines.iter().any(|line| line.process == "server-1" && line.what.contains("shard"))
    );
    let history = report.histories.sessions.map(|history| history.events.len()).unwrap_or_default();
    assert!(history as u64 > report.tally.committed);
}

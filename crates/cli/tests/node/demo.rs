//! `timestone demo`: a cluster of its own that loses processes, and leaves none behind.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::server::{Node, binary, eventually, test_folder};

/// How long anything may take, on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(100);

fn demo(folder: &Path, flags: &[&str]) -> Node {
    let mut command = binary();
    command.args(["demo", "-o", "json"]).args(flags).env("TMPDIR", folder);
    Node::command(command)
}

/// The objects that it printed so far.
fn objects(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["event"] == kind)
}

/// The processes that it told of.
fn pids(objects: &[Value]) -> BTreeSet<i32> {
    let starts = of_kind(objects, "start");
    let first = starts.flat_map(|start| {
        let servers = start["servers"].as_array().into_iter().flatten();
        servers.map(|server| &server["pid"]).chain([&start["etcd"]["pid"]])
    });
    let later = of_kind(objects, "started").map(|started| &started["pid"]);
    first.chain(later).filter_map(Value::as_i64).map(|pid| pid as i32).collect()
}

/// Whether a process runs: one that has ended, and that nobody has asked for yet, does not.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its state stands after its name, which is in brackets.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

fn none_is_left(pids: &BTreeSet<i32>) {
    eventually("the end of every process", TIMEOUT, || {
        let left = pids.iter().find(|pid| runs(**pid));
        left.map_or(Ok(()), |pid| Err(format!("{pid} runs")))
    });
}

#[test]
fn servers_are_killed_and_transactions_go_on() {
    let folder = test_folder();
    let mut demo =
        demo(folder.path(), &["--kill-every", "1s", "--restart-after", "500ms", "--clients", "16"]);
    eventually("a failover, and a server that is back", TIMEOUT, || {
        let objects = objects(&demo.text());
        let has = |kind| of_kind(&objects, kind).next().is_some();
        if !demo.is_running() || (has("failover") && has("answers")) {
            Ok(())
        } else {
            Err(demo.text())
        }
    });
    demo.signal(Signal::TERM);
    let status = demo.ended(TIMEOUT);
    let text = demo.text();
    assert_eq!(status.code(), Some(0), "{text}");
    let objects = objects(&text);
    let end = of_kind(&objects, "end").next().expect("it tells what it came to");
    assert_eq!((&end["bank_right"], &end["wrong"]), (&Value::Bool(true), &Value::Null), "{text}");
    for figure in ["failovers", "processes_ended", "committed", "sums_checked"] {
        assert!(end[figure].as_u64().is_some_and(|count| count > 0), "{figure}: {text}");
    }
    let pids = pids(&objects);
    assert!(pids.len() >= 4, "three servers, and one again: {text}");
    none_is_left(&pids);
    let left = std::fs::read_dir(folder.path()).expect("our own folder").count();
    assert_eq!(left, 0, "the temporary folder is removed: {text}");
}

#[test]
fn no_process_outlives_a_demo_that_is_killed() {
    let folder = test_folder();
    let flags = ["--master", "embedded", "--replicas", "1", "--servers", "2", "--shards", "3"];
    let demo = demo(folder.path(), &flags);
    let pids = eventually("its start", TIMEOUT, || {
        let pids = pids(&objects(&demo.text()));
        if pids.len() == 2 { Ok(pids) } else { Err(demo.text()) }
    });
    assert!(pids.iter().all(|pid| runs(*pid)), "{}", demo.text());
    demo.kill();
    none_is_left(&pids);
}

#[test]
fn what_does_not_start_is_shown_with_the_end_of_its_log() {
    let folder = test_folder();
    let etcd = folder.path().join("etcd");
    std::fs::write(&etcd, "#!/bin/sh\necho today I do not >&2\nexit 3\n").expect("our own folder");
    std::fs::set_permissions(&etcd, PermissionsExt::from_mode(0o755)).expect("our own file");
    let data = folder.path().join("data");
    let mut command = binary();
    command.arg("demo").arg("--data").arg(&data).env("PATH", folder.path());
    let (code, text) = Node::command(command).outcome();
    assert_eq!(code, 1, "{text}");
    let words = ["etcd did not start: it ended with exit code 3", "today I do not", "are kept in"];
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
    assert!(data.join("etcd.log").exists(), "{text}");
}

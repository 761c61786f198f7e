//! `bench --protocol resp`: Redis clients of the real binary against the real server, and their
//! histories, also when the server is killed under them, restarted with other threads and another
//! log device, or the clients themselves end early.
//!
//! The reader of histories shares no code with the one of the workload crate, and forgives nothing:
//! every call has its answer or says that nobody knows, and no process goes on after that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::random::Random;
use crate::server::{Node, NodeSetup, binary, outcome, test_folder};

/// What a history came to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) ok: usize,
    fail: usize,
    info: usize,
    /// Calls without a line that ends them; only where the writer itself was killed.
    open: usize,
    /// The commands that were sent.
    commands: BTreeSet<String>,
    connections: BTreeSet<u64>,
}

/// A line's map, form by form: keywords, numbers, and whatever is in brackets or quotes as it
/// stands.
fn fields(line: &str) -> BTreeMap<String, String> {
    let inner = line
        .strip_prefix('{')
        .and_then(|line| line.strip_suffix('}'))
        .unwrap_or_else(|| panic!("no map: {line}"));
    let mut forms = Vec::new();
    let (mut depth, mut quoted, mut form) = (0, false, String::new());
    for c in inner.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth -= 1,
            ' ' | ',' if !quoted && depth == 0 => {
                if !form.is_empty() && form != "#error" {
                    forms.push(std::mem::take(&mut form));
                }
                continue;
            }
            _ => {}
        }
        assert!(depth >= 0, "a bracket that nothing opened: {line}");
        form.push(c);
    }
    forms.push(form);
    assert!(
        depth == 0 && !quoted && forms.len().is_multiple_of(2),
        "what is opened is closed: {line}"
    );
    let pair = |pair: &[String]| {
        let name = pair[0]
            .strip_prefix(':')
            .unwrap_or_else(|| panic!("{} is no keyword: {line}", pair[0]));
        (name.to_owned(), pair[1].clone())
    };
    let map: BTreeMap<String, String> = forms.chunks(2).map(pair).collect();
    assert_eq!(map.len() * 2, forms.len(), "a keyword comes once: {line}");
    map
}

/// Reads a history as strictly as anybody may. `is_cut` allows what a writer that was killed cannot
/// help: open calls, and a last line that it did not end.
pub(crate) fn read_strictly(path: &Path, is_cut: bool) -> Counts {
    let text = std::fs::read_to_string(path).expect("the history is there, in UTF-8");
    assert!(is_cut || text.ends_with('\n'), "the last line is whole");
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let mut lines = text[..whole].lines();
    let head = lines.next().expect("a history has a head");
    let map = fields(
        head.strip_prefix("; timestone history 1: ").expect("a comment that says what it is"),
    );
    assert_eq!((map["workload"].as_str(), map["protocol"].as_str()), (":redis", ":resp"), "{head}");
    assert!(map["clock-slack"].parse::<u64>().is_ok_and(|slack| slack > 0), "{head}");
    let (mut counts, mut time) = (Counts::default(), 0);
    // By process: the call that it has open; `None` once nobody knows what became of one.
    let mut processes: BTreeMap<u64, Option<Option<(String, String)>>> = BTreeMap::new();
    for (index, line) in (0u64..).zip(lines) {
        let map = fields(line);
        let number = |name: &str| {
            map[name].parse::<u64>().unwrap_or_else(|_| panic!("no number as :{name} in {line}"))
        };
        assert_eq!((number("index"), map["f"].as_str()), (index, ":redis"), "{line}");
        assert!(number("time") >= time, "time runs backwards at {line}");
        time = number("time");
        counts.connections.insert(number("connection"));
        let call = (map["connection"].clone(), map["value"].clone());
        assert!(call.1.starts_with('[') && call.1.ends_with(']'), "{line}");
        let process = processes.entry(number("process")).or_insert(Some(None));
        let Some(open) = process else {
            panic!("a process goes on after an unknown outcome: {line}")
        };
        let sent = open.take();
        let kind = map["type"].as_str();
        if kind == ":invoke" {
            assert!(
                sent.is_none() && !map.contains_key("reply"),
                "two at once, or an answer before it is asked: {line}"
            );
            let command =
                |word: &str| word.chars().all(|c| c.is_ascii_uppercase()).then(|| word.to_owned());
            counts.commands.extend(
                call.1
                    .split(['[', ']', '"', ' '])
                    .filter(|word| !word.is_empty())
                    .filter_map(command),
            );
            *open = Some(call);
            continue;
        }
        assert_eq!(sent, Some(call), "what is answered was asked, on the same connection: {line}");
        match kind {
            ":ok" => counts.ok += 1,
            ":fail" => counts.fail += 1,
            ":info" => {
                *process = None;
                counts.info += 1;
            }
            other => panic!("an unknown type {other}: {line}"),
        }
        assert!(kind == ":info" || map.contains_key("reply"), "an answer says what it was: {line}");
    }
    counts.open = processes.values().filter(|process| matches!(process, Some(Some(_)))).count();
    assert!(is_cut || counts.open == 0, "{} calls have no end: {counts:?}", counts.open);
    counts
}

fn bench(address: &str, history: Option<&Path>, words: &str) -> Command {
    let mut command = binary();
    command
        .args(["bench", "--protocol", "resp", "--warmup", "0s", "--address", address])
        .args(words.split(' '));
    if let Some(path) = history {
        command.arg("--history").arg(path);
    }
    command
}

/// Judges a history: nothing of it may be wrong.
pub(crate) fn judge(path: &Path) {
    let mut command = binary();
    command.arg("check").arg(path);
    let (code, text) = outcome(command);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("redis: ") && text.contains("nothing wrong"), "{text}");
    println!("{text}");
}

/// Few connections and calls a second: so that a slow machine keeps up, and a checker as well.
const GENTLE: &str = "--clients 6 --keys 5 --rate 400 --cut 1 --whole all";

#[test]
fn a_history_of_redis_clients_whose_server_is_killed_is_whole_and_right() {
    let mut random = Random::for_test("redis clients");
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--threads", "2");
    let mut node = place.start();
    let path = folder.path().join("history.edn");
    let run = Node::command(bench(&place.url(), Some(&path), &format!("{GENTLE} --duration 4s")));
    for _ in 0..2 {
        std::thread::sleep(random.span(800, 1300));
        node.kill();
        std::thread::sleep(random.span(50, 300));
        node = place.start();
    }
    let (code, text) = run.outcome();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("redis: 6 clients") && text.contains("latency p99"), "{text}");
    let counts = read_strictly(&path, false);
    println!("history of redis clients: {counts:?}");
    assert!(counts.ok > 200 && counts.info > 0, "{counts:?}");
    assert!(counts.connections.len() >= 12, "connections that broke were made anew: {counts:?}");
    for command in [
        "GET", "SET", "PX", "NX", "INCR", "MGET", "MSET", "WATCH", "SCAN", "KEYS", "DBSIZE",
        "APPEND",
    ] {
        assert!(counts.commands.contains(command), "{command} in {:?}", counts.commands);
    }
    judge(&path);
    // The same with one answer that nobody can have got.
    let text = std::fs::read_to_string(&path).expect("text");
    let (at, _) = text.match_indices(":reply \"v").next().expect("a value was read");
    let end = at + 8 + text[at + 8..].find('"').expect("its end");
    std::fs::write(&path, format!("{}v999999999{}", &text[..at + 8], &text[end..]))
        .expect("written");
    read_strictly(&path, false);
    let mut command = binary();
    command.arg("check").arg(&path);
    let (code, said) = outcome(command);
    assert!(code == 1 && said.contains("anomal"), "{said}");
    node.stop();
}

#[test]
fn redis_clients_that_end_early_leave_a_whole_history_and_killed_ones_all_lines_but_the_last() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let path = folder.path().join("history.edn");
    let started = |address: &str| {
        Node::writing(
            bench(address, Some(&path), &format!("{GENTLE} --duration 60s")),
            &path,
            20_000,
        )
    };
    // Its keys are deleted before each: a history begins with nothing.
    let (status, text) = started(&place.url()).terminate();
    assert!(status.success() && text.contains("redis: 6 clients"), "{text}");
    assert!(read_strictly(&path, false).ok > 0);
    judge(&path);
    started(&format!("redis://{}", place.resp)).kill();
    read_strictly(&path, true);
    judge(&path);
    node.stop();
}

#[test]
fn the_report_has_the_fields_of_the_other_workloads() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let (code, text) =
        outcome(bench(&place.url(), None, "--clients 4 --depth 8 --duration 1s -o json"));
    assert_eq!(code, 0, "{text}");
    let report: serde_json::Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!((&report["workload"], &report["clients"]), (&"redis".into(), &4.into()));
    for field in ["committed_per_second", "aborted_per_second", "duration_s"] {
        assert!(report[field].is_number(), "{field} in {text}");
    }
    assert!(report["committed_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{text}");
    for percentile in ["p50", "p90", "p99", "p999", "max"] {
        assert!(report["latency_us"][percentile].is_number(), "{percentile} in {text}");
        assert!(
            report["read_only"]["latency_us"][percentile].is_number(),
            "{percentile} in {text}"
        );
    }
    assert!(
        report["cpu_us_per_txn"]["server"].is_number(),
        "the server was asked over its native port: {text}"
    );
    let config = &report["config"];
    assert_eq!(
        (&config["protocol"], &config["depth"], &config["whole"]),
        (&"resp".into(), &8.into(), &"list".into())
    );
    // Whoever is not alone leaves others' keys where they are.
    let db = place.connect();
    db.put(b"mine", b"stays").expect("a put");
    let (code, text) =
        outcome(bench(&format!("redis://{}", place.resp), None, "--clients 2 --duration 300ms"));
    assert_eq!(code, 0, "{text}");
    assert_eq!(db.get(b"mine").expect("a read").as_deref(), Some(&b"stays"[..]));
    node.stop();
    let (code, text) = outcome(bench(&format!("redis://{}", place.resp), None, "--duration 300ms"));
    assert!(code == 1 && text.contains("timestone serve"), "{text}");
}

/// As the churn of `churn.rs`: what clears the keyspace there would take these clients' keys away,
/// so they have a server of their own.
#[test]
fn redis_clients_see_nothing_wrong_over_kills_and_changes_of_threads_and_log_device() {
    let mut random = Random::for_test("redis clients, churn");
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--log", "ssd");
    let mut node = place.start();
    let path = folder.path().join("history.edn");
    let run = Node::command(bench(&place.url(), Some(&path), &format!("{GENTLE} --duration 60s")));
    let mut log = "ssd";
    for round in 0..8 {
        std::thread::sleep(random.span(500, 1500));
        // Without a log a kill loses what was acknowledged, and says so: then the server is ended.
        let end = if log == "ssd" && random.below(3) > 0 { "killed" } else { "ended" };
        if end == "killed" {
            node.kill()
        } else {
            node.stop()
        }
        log = if random.below(2) == 0 { "ssd" } else { "none" };
        let threads = (1 + random.below(3)).to_string();
        println!("redis clients {round}: {end}, then --log {log} --threads {threads}");
        node = place.with("--log", log).with("--threads", &threads).start();
    }
    std::thread::sleep(Duration::from_secs(1));
    let (status, text) = run.terminate();
    assert!(status.success(), "{text}");
    let counts = read_strictly(&path, false);
    println!("churn of redis clients: {counts:?}");
    assert!(counts.ok > 500 && counts.info > 0, "{counts:?}");
    judge(&path);
    node.stop();
}

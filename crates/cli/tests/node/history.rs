//! Histories that `bench` and `sim` write, read by a strict reader of its own: what an outside
//! checker may demand of the format, whether the server was killed meanwhile, the run was
//! interrupted, or nothing could commit at all.
//!
//! The reader shares no code with the one of the workload crate, and forgives nothing: no unknown
//! line, no open invocation, no process that goes on after an outcome that nobody knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::random::Random;
use crate::server::{Node, NodeSetup, binary, eventually, outcome, test_folder};

/// The value under a keyword of a line's map, as text.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let start = line.find(&format!(":{name} ")).unwrap_or_else(|| panic!("no :{name} in {line}"));
    let rest = &line[start + name.len() + 2..];
    let end = if rest.starts_with('[') {
        rest.len() - 1
    } else {
        rest.find([',', '}']).unwrap_or(rest.len())
    };
    &rest[..end]
}

fn number(line: &str, name: &str) -> u64 {
    field(line, name).parse().unwrap_or_else(|_| panic!("no number as :{name} in {line}"))
}

/// Every bracket is closed, in order, and nothing is outside of them.
fn assert_balanced(line: &str) {
    let mut open = Vec::new();
    for (at, c) in line.char_indices() {
        match c {
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => assert_eq!(open.pop(), Some(c), "at {at} of {line}"),
            _ => assert!(!open.is_empty(), "text outside the map at {at} of {line}"),
        }
    }
    assert!(open.is_empty(), "the map does not end: {line}");
}

/// What a history came to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) ok: usize,
    fail: usize,
    info: usize,
    /// Invocations without a completion; only where the writer itself was killed.
    open: usize,
}

/// Reads a history as strictly as anybody may. `is_cut` allows what a writer that was killed cannot
/// help: open invocations, and a last line that it did not end.
pub(crate) fn read_strictly(path: &Path, workload: &str, is_cut: bool) -> Counts {
    let text = std::fs::read_to_string(path).expect("the history is there, in UTF-8");
    assert!(is_cut || text.ends_with('\n'), "the last line is whole");
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let mut lines = text[..whole].lines();
    let head = lines.next().expect("a history has a head");
    assert!(head.starts_with("; timestone history 1: {"), "a comment that says what it is: {head}");
    assert!(head.ends_with('}') && head.contains(&format!(":workload :{workload}")), "{head}");
    for name in ["isolation", "external", "protocol", "promise"] {
        assert!(field(head, name).starts_with(':'), "{head}");
    }
    if workload == "bank" {
        assert!(number(head, "accounts") > 0 && number(head, "total") > 0, "{head}");
    }
    let (mut counts, mut time) = (Counts::default(), 0);
    // By process: what it has invoked and not completed; `None` once nobody knows how its last one
    // ended.
    let mut processes: BTreeMap<u64, Option<Option<String>>> = BTreeMap::new();
    for (index, line) in (0u64..).zip(lines) {
        assert_balanced(line);
        assert!(line.starts_with("{:type :") && line.ends_with('}'), "{line}");
        assert_eq!((number(line, "index"), field(line, "f")), (index, ":txn"), "{line}");
        assert!(number(line, "time") >= time, "time runs backwards at {line}");
        time = number(line, "time");
        let value = field(line, "value").to_owned();
        assert!(value.starts_with('[') && value.ends_with(']'), "{line}");
        let process = processes.entry(number(line, "process")).or_insert(Some(None));
        let Some(open) = process else {
            panic!("a process goes on after an unknown outcome: {line}")
        };
        let invoked = open.take();
        match field(line, "type") {
            ":invoke" => {
                assert_eq!(invoked, None, "two at once: {line}");
                *open = Some(value);
                continue;
            }
            ":ok" => counts.ok += 1,
            ":fail" => counts.fail += 1,
            ":info" => {
                *process = None;
                counts.info += 1;
            }
            other => panic!("an unknown type {other}: {line}"),
        }
        assert!(invoked.is_some(), "a completion of nothing: {line}");
    }
    counts.open = processes.values().filter(|process| matches!(process, Some(Some(_)))).count();
    assert!(
        is_cut || counts.open == 0,
        "{} invocations have no completion: {counts:?}",
        counts.open
    );
    counts
}

fn bench(place: &NodeSetup, path: &Path, words: &str) -> Command {
    let mut command = binary();
    command.arg("bench").args(words.split(' ')).args([
        "--warmup",
        "0s",
        "--clients",
        "8",
        "--address",
        &place.url(),
    ]);
    command.arg("--history").arg(path);
    command
}

/// Judges a history by what it says of itself, without a flag.
pub(crate) fn judge(path: &Path) -> String {
    let mut command = binary();
    command.arg("check").arg(path);
    let (code, text) = outcome(command);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("nothing wrong"), "{text}");
    text
}

const WORKLOADS: [(&str, &str); 4] = [
    ("bank", "bank --keys 10"),
    ("list-append", "list-append"),
    ("register", "register"),
    ("single-keys", "register --singles"),
];

#[test]
fn histories_of_a_server_that_is_killed_are_whole_and_judge_themselves() {
    let mut random = Random::for_test("histories");
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let mut node = place.start();
    for (workload, words) in WORKLOADS {
        let path = folder.path().join(format!("{workload}.edn"));
        let run = Node::command(bench(&place, &path, &format!("{words} --duration 3s")));
        std::thread::sleep(random.span(900, 1400));
        node.kill();
        std::thread::sleep(random.span(100, 400));
        node = place.start();
        let (code, text) = run.outcome();
        assert_eq!(code, 0, "{text}");
        let counts = read_strictly(&path, workload, false);
        println!("history of {workload}: {counts:?}");
        assert!(counts.ok > 10, "{counts:?}");
        let said = judge(&path);
        assert!(said.contains(workload), "{said}");
    }
    node.stop();
}

#[test]
fn an_interrupted_run_leaves_a_whole_history_and_a_killed_one_all_lines_but_the_last() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let path = folder.path().join("history.edn");
    // Long enough that a slow machine has loaded its accounts before.
    let started = |words: &str| {
        Node::writing(bench(&place, &path, &format!("{words} --duration 60s")), &path, 1)
    };
    for (workload, words) in WORKLOADS {
        let (_, text) = started(words).terminate();
        println!("interrupted: {text}");
        let counts = read_strictly(&path, workload, false);
        assert!(counts.ok > 0, "{counts:?}");
        judge(&path);
        started(words).kill();
        read_strictly(&path, workload, true);
        judge(&path);
    }
    node.stop();
}

/// Commits wait for the clock's error bound, which is many seconds where nothing disciplines the
/// clock: longer than a run waits.
#[test]
fn a_history_of_commits_that_wait_for_the_clock_is_whole_and_the_run_says_what_they_waited_for() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let mut create = binary();
    create.args(["keyspace", "create", "strict", "--external", "wait", "--address", &place.url()]);
    assert_eq!(outcome(create).0, 0);
    let path = folder.path().join("history.edn");
    // The keyspace is new. To empty it would be a commit that waits for the clocks as well, half a
    // minute with one that nothing disciplines.
    let words = "list-append --keyspace strict --no-load --duration 1s -o json";
    let (code, text) = outcome(bench(&place, &path, words));
    let counts = read_strictly(&path, "list-append", false);
    println!("external = wait: {counts:?}\n{text}");
    if counts.info > 0 {
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("external = wait") && text.contains("error bound"), "{text}");
    } else {
        assert!(code == 0 && counts.ok > 0, "{text}");
    }
    let head = std::fs::read_to_string(&path)
        .expect("read")
        .lines()
        .next()
        .map(str::to_owned)
        .expect("a head");
    assert!(head.contains(":external :wait") && head.contains(":promise :real-time"), "{head}");
    node.stop();
}

/// To empty a keyspace is a commit that waits as all others do: half a minute where nothing
/// disciplines the clock.
#[test]
fn why_nothing_will_commit_is_told_before_the_keyspace_is_emptied() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let mut create = binary();
    create.args(["keyspace", "create", "strict", "--external", "wait", "--address", &place.url()]);
    assert_eq!(outcome(create).0, 0);
    let path = folder.path().join("history.edn");
    // A run so short that nothing of it commits, whatever disciplines the clock; the emptying takes
    // as long as the clock wants.
    let words = "list-append --keyspace strict --duration 1us -o json";
    let run = Node::command(bench(&place, &path, words));
    eventually("the warning", Duration::from_secs(10), || {
        let text = run.text();
        let (why, wait) = (
            text.find("warning: the keyspace 'strict' has external = wait"),
            text.find("emptying"),
        );
        // A clock with a small error bound makes nobody wait, and then that it is emptied is not
        // told.
        let told =
            why.is_some() && (wait > why || !text.contains("because nothing disciplines it"));
        if told { Ok(()) } else { Err(format!("after: {text}")) }
    });
    run.kill();
    node.stop();
}

/// The operations of a transaction: `:append 1 2`, `:r 1 [2 3]`.
fn operations(value: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in value.char_indices() {
        match c {
            '[' => {
                depth += 1;
                if depth == 2 {
                    begin = at + 1;
                }
            }
            ']' => {
                if depth == 2 {
                    found.push(&value[begin..at]);
                }
                depth -= 1;
            }
            _ => {}
        }
    }
    found
}

/// What `elle-cli` documents for its models list-append and rw-register: maps with these keys; reads
/// are of nil until they are answered; an element is appended, and a value written, to a key once.
#[test]
fn histories_without_deletions_are_what_elle_reads() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let path = folder.path().join("history.edn");
    for (workload, words, write) in [
        ("list-append", "list-append --delete-percent 0", ":append"),
        ("register", "register --delete-percent 0 --expire-percent 0", ":w"),
    ] {
        let (code, text) = outcome(bench(&place, &path, &format!("{words} --duration 1s")));
        assert_eq!(code, 0, "{text}");
        read_strictly(&path, workload, false);
        let (mut written, mut read) = (BTreeSet::new(), 0);
        for line in std::fs::read_to_string(&path).expect("it is there").lines().skip(1) {
            let names = line[..line.find(":value").expect("a value")].matches(" :").count();
            // Between the names stand values, two of which are keywords as well.
            assert!(names <= 7 && line.contains(":process "), "{line}");
            for op in operations(field(line, "value")) {
                let words: Vec<&str> = op.splitn(3, ' ').collect();
                let [kind, key, value] = words[..] else { panic!("{op} in {line}") };
                let key: u64 = key.parse().unwrap_or_else(|_| panic!("no key: {line}"));
                if kind == write {
                    let value: i64 = value.parse().unwrap_or_else(|_| panic!("no value: {line}"));
                    let is_new = field(line, "type") != ":invoke" || written.insert((key, value));
                    assert!(is_new, "{value} is written to {key} again: {line}");
                } else {
                    assert_eq!(kind, ":r", "{line}");
                    assert!(field(line, "type") == ":ok" || value == "nil", "{line}");
                    let numbers = value.trim_start_matches('[').trim_end_matches(']');
                    let are_numbers = numbers.split(' ').all(|each| each.parse::<i64>().is_ok());
                    assert!(are_numbers || ["nil", "[]"].contains(&value), "{line}");
                    assert_eq!(
                        value.starts_with('['),
                        workload == "list-append" && value != "nil",
                        "{line}"
                    );
                    read += usize::from(value != "nil");
                }
            }
        }
        assert!(!written.is_empty() && read > 0, "something was written and read");
    }
    node.stop();
}

#[test]
fn a_simulated_history_is_as_strict() {
    let folder = test_folder();
    let path = folder.path().join("history.edn");
    for (workload, scenario) in
        [("bank", "bank"), ("list-append", "list-append"), ("register", "singles")]
    {
        let file = folder.path().join("scenario.toml");
        let (kind, singles) = if scenario == "singles" {
            ("register", "singles = true\nops = 1\nexternal = \"none\"\n")
        } else {
            (scenario, "")
        };
        let text = format!(
            "[workload]\nkind = \"{kind}\"\n{singles}rate = 50\nseconds = 2\n[faults]\nclient-kill \
             = {{ every = \"500ms\" }}\nkill = {{ every = \"800ms\" }}\n"
        );
        std::fs::write(&file, text).expect("written");
        let mut command = binary();
        command.args(["sim", "--seed", "5", "--scenario"]).arg(&file).arg("--history").arg(&path);
        let (code, text) = outcome(command);
        assert_eq!(code, 0, "{text}");
        read_strictly(&path, workload, false);
        judge(&path);
    }
}

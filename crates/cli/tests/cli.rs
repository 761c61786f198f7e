//! The binary as people and scripts meet it: started as a process, on free ports and in folders of
//! its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_timestone");
/// How long a server may take to start or stop on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The binary, with none of our settings in its environment.
fn timestone() -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("TIMESTONE_") || name == "RUST_LOG")
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[track_caller]
fn failed(output: &Output, code: i32, words: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for word in words {
        assert!(message.contains(word), "'{word}' is missing in: {message}");
    }
}

/// A server of its own, killed when the test ends.
struct Server {
    child: Child,
    native: String,
    http: String,
}

impl Server {
    fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    fn start_with(data: &Path, flags: &[&str]) -> Self {
        let mut child =
            serve(data).args(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(addresses) = line.trim_end().strip_prefix("timestone ready: ") else {
            let mut problem = String::new();
            child.stderr.take().unwrap().read_to_string(&mut problem).unwrap();
            panic!("no ready line but '{line}': {problem}");
        };
        // What it logs must not fill the pipe.
        let mut log = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let address = |scheme: &str| {
            let found = addresses.split(' ').find(|url| url.starts_with(scheme));
            found.unwrap_or_else(|| panic!("{scheme} is missing in: {addresses}")).to_owned()
        };
        assert!(address("redis://").starts_with("redis://127.0.0.1:"));
        Self { child, native: address("timestone://"), http: address("http://") }
    }

    /// A command that talks to this server.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = timestone();
        command.args(words).env("TIMESTONE_ADDRESS", &self.native);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        run(&mut self.command(words))
    }

    fn run_with_input(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&succeeded(&self.run(words))).unwrap()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// The exit code, once the process has ended.
    fn ended(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < TIMEOUT, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Server {
    /// Ends the server gracefully.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(data: &Path) -> Command {
    let mut command = timestone();
    let any = "127.0.0.1:0";
    command
        .arg("serve")
        .arg("--data")
        .arg(data)
        .args(["--listen", any, "--resp", any, "--http", any]);
    command.args(["--capacity", "256MiB", "--cache", "16MiB", "--log-filter", "warn"]);
    // So the whole suite runs under either layout.
    if let Ok(layout) = std::env::var("TIMESTONE_LAYOUT") {
        command.args(["--layout", &layout]);
    }
    command
}

#[test]
fn a_round_trip_of_everything() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));

    // As long as its session lives, nothing that it may read goes: however long the commands below
    // take, history is there.
    let reader = timestone::blocking::connect(&server.native).unwrap();
    let oldest = reader.begin(&timestone::TransactionOptions::default()).unwrap();

    // Keys and values, as bytes.
    let written = succeeded(&server.run(&["put", "greeting", "hello"]));
    assert!(written.starts_with("written at "), "{written}");
    assert_eq!(server.run(&["get", "greeting"]).stdout, b"hello");
    let bytes: Vec<u8> = (0..=255).collect();
    succeeded(&server.run_with_input(&["put", "bytes", "-"], &bytes));
    assert_eq!(server.run(&["get", "bytes"]).stdout, bytes);
    assert!(
        server.json(&["get", "bytes", "-o", "json"])["value_base64"]
            .as_str()
            .unwrap()
            .starts_with("AAECAwQF")
    );
    let got = server.json(&["get", "greeting", "-o", "json"]);
    assert_eq!(
        (&got["key"], &got["value"], &got["found"]),
        (&"greeting".into(), &"hello".into(), &true.into())
    );
    assert!(succeeded(&server.run(&["get", "greeting", "-o", "table"])).contains("hello"));
    let all = succeeded(&server.run(&["scan"]));
    assert!(all.lines().any(|line| line == "greeting\thello") && all.lines().count() == 2, "{all}");
    assert_eq!(server.run(&["scan", "--prefix", "gree"]).stdout, b"greeting\thello\n");
    assert_eq!(server.json(&["scan", "--prefix", "gree", "-o", "json"])["value"], "hello");
    assert!(succeeded(&server.run(&["scan", "-o", "table", "--limit", "1"])).contains("written"));
    failed(&server.run(&["get", "nobody"]), 3, &["there is no key 'nobody'"]);
    assert!(server.json(&["delete", "bytes", "-o", "json"])["deleted"].as_bool().unwrap());
    assert_eq!(succeeded(&server.run(&["delete", "bytes"])), "was absent\n");

    // Time travel and expiry.
    let at = written.trim_end().rsplit(' ').next().unwrap();
    succeeded(&server.run(&["put", "greeting", "good bye"]));
    assert_eq!(server.run(&["get", "greeting", "--at", at]).stdout, b"hello");
    oldest.abort();
    succeeded(&server.run(&["put", "brief", "1", "--expire", "1s"]));
    let begin = Instant::now();
    while server.run(&["get", "brief"]).status.code() != Some(3) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the key does not expire");
    }
    failed(&server.run(&["put", "brief", "1", "--expire", "2001-01-01T00:00:00Z"]), 2, &["past"]);

    // Transactions.
    let script = b"get greeting\nput a 1\nput b \"two words\\x00\"\nif nobody absent\n";
    let output = succeeded(&server.run_with_input(&["txn"], script));
    assert!(output.starts_with("greeting = \"good bye\"\ncommitted at "), "{output}");
    assert_eq!(server.run(&["get", "b"]).stdout, b"two words\0");
    let refused = server.run_with_input(&["txn"], b"put a 2\nif a = 7\ncommit\n");
    // Its own write is what the condition sees.
    failed(&refused, 4, &["line 2", "if a = \"7\"", "has \"2\"", "nothing was written"]);
    failed(
        &server.run_with_input(&["txn"], b"put a 3\nfetch a\n"),
        2,
        &["line 2: 'fetch a' is not understood"],
    );
    assert_eq!(
        succeeded(&server.run_with_input(&["txn"], b"put a 4\nabort\n")),
        "aborted, nothing was written\n"
    );
    assert_eq!(server.run(&["get", "a"]).stdout, b"1");
    let json: Value = serde_json::from_slice(
        &server.run_with_input(&["txn", "-o", "json"], b"get a\nget nobody\n").stdout,
    )
    .unwrap();
    assert_eq!((&json["outcome"], &json["reads"][0]["value"]), (&"committed".into(), &"1".into()));
    assert_eq!(json["reads"][1]["found"], false);
    failed(&server.run(&["txn", "status", "ffff-1"]), 3, &["no server knows ffff-1"]);
    failed(&server.run(&["txn", "status", "nonsense"]), 2, &["nonsense"]);

    // Keyspaces.
    assert_eq!(server.json(&["keyspace", "create", "users", "-o", "json"])["name"], "users");
    failed(&server.run(&["keyspace", "create", "users"]), 1, &["users"]);
    failed(
        &server.run(&["keyspace", "create", "more", "--index", "frugal", "--store", "dram"]),
        2,
        &["index", "frugal", "full or ordered with store dram"],
    );
    succeeded(&server.run(&["put", "greeting", "from users", "--keyspace", "users"]));
    assert_eq!(server.run(&["get", "greeting", "--keyspace", "users"]).stdout, b"from users");
    assert_eq!(server.run(&["get", "greeting"]).stdout, b"good bye");
    assert_eq!(server.json(&["keyspace", "list", "-o", "json"]).as_array().unwrap().len(), 2);
    failed(&server.run(&["keyspace", "drop", "users"]), 2, &["--yes"]);
    succeeded(&server.run(&["keyspace", "drop", "users", "--yes"]));
    failed(&server.run(&["keyspace", "drop", "users", "--yes"]), 3, &["users"]);
    failed(&server.run(&["get", "greeting", "--keyspace", "users"]), 3, &["users"]);

    // Status.
    let status = server.json(&["status", "-o", "json"]);
    assert_eq!(status["shards"].as_array().unwrap().len(), 4);
    assert_eq!(status["servers"][0]["reachable"], true);
    assert!(status["servers"][0]["figures"]["uptime_seconds"].is_u64(), "{status}");
    assert!(status["servers"][0]["figures"]["cpu_seconds_total"].is_f64(), "{status}");
    assert!(status["servers"][0]["figures"]["clock_error_bound"].is_string(), "{status}");
    assert!(succeeded(&server.run(&["status"])).contains("watermark"));
}

#[test]
fn a_scrub_finds_a_bit_that_has_turned() {
    const MARK: &[u8] = b"the bytes that a disk will damage: ";
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let value = String::from_utf8_lossy(MARK).repeat(20);
    succeeded(&server.run(&["put", "fragile", &value]));
    for n in 0..50 {
        succeeded(&server.run(&["put", &format!("key {n}"), "value"]));
    }
    let whole = server.json(&["scrub", "-o", "json"]);
    assert_eq!(whole["shards"].as_array().unwrap().len(), 4, "{whole}");
    assert!(succeeded(&server.run(&["scrub"])).contains("damaged records"));

    // The page is on the disk when the store has been synced; nobody tells.
    let begun = std::time::Instant::now();
    let (path, at) = loop {
        let found = flash_files(&data).into_iter().find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(MARK.len()).position(|window| window == MARK)?;
            Some((path, at))
        });
        match found {
            Some(found) => break found,
            None if begun.elapsed().as_secs() > 20 => panic!("the value reaches no device"),
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"T", at as u64).unwrap();
    file.sync_all().unwrap();
    let output = server.run(&["scrub", "-o", "text"]);
    failed(&output, 1, &["1 of 4 shards", "damaged"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("corrupt_records 1") || text.contains("corrupt_pages 1"), "{text}");
    assert_eq!(server.run(&["get", "key 7"]).stdout, b"value", "other keys are served");
}

/// The files in which the shards of a data directory have their pages.
fn flash_files(data: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("shard-") {
            files.extend(
                std::fs::read_dir(entry.path()).unwrap().map(|entry| entry.unwrap().path()),
            );
        }
    }
    files
}

#[test]
fn a_conflict_is_explained_with_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    succeeded(&server.run(&["put", "contended", "1"]));
    let mut command = server.command(&["txn", "--interactive"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"get contended\nget contended twice\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "contended = \"1\"\n");
    succeeded(&server.run(&["put", "contended", "2"]));
    input.write_all(b"put contended 3\ncommit\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    failed(
        &output,
        4,
        &[
            "'get contended twice' is not understood",
            "nothing was written",
            "key=contended",
            "TS1020 CONFLICT",
        ],
    );
    assert_eq!(server.run(&["get", "contended"]).stdout, b"2");
}

#[test]
fn termination_drains_and_what_was_written_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (round, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let mut server = Server::start(&data);
        if round > 0 {
            assert_eq!(server.run(&["get", "round"]).stdout, (round - 1).to_string().as_bytes());
        }
        succeeded(&server.run(&["put", "round", &round.to_string()]));
        server.signal(signal);
        assert_eq!(server.ended(), Some(0), "SIG{signal}");
    }
    let server = Server::start(&data);
    assert_eq!(server.run(&["get", "round"]).stdout, b"1");
    drop(server);
    let check = run(timestone().args(["log", "check", "-o", "json"]).arg(&data));
    let reports: Value = serde_json::from_str(&succeeded(&check)).unwrap();
    assert!(reports.as_array().unwrap().iter().all(|report| report["sound"] == true), "{reports}");
    assert!(
        succeeded(&run(timestone().args(["log", "check"]).arg(&data))).contains("the log is sound")
    );
    failed(
        &run(timestone().args(["log", "check", "/nowhere"])),
        1,
        &["/nowhere", "nothing was checked"],
    );
}

#[test]
fn what_keeps_a_server_from_starting_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    failed(&run(&mut serve(&data)), 1, &["data directory", "in use by process", "--data"]);
    let other = folder.path().join("other");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let again = ["--listen", "--resp", "--http"].map(|flag| {
        let mut command = timestone();
        let any = "127.0.0.1:0";
        command.arg("serve").arg("--data").arg(&other);
        for own in ["--listen", "--resp", "--http"] {
            command.args([own, if own == flag { &address } else { any }]);
        }
        run(&mut command)
    });
    for output in again {
        failed(&output, 1, &["could not listen on", &address, "or 0 for any free one"]);
    }
    failed(
        &run(serve(&other).args(["--listen", "0.0.0.0:0"])),
        2,
        &["cannot be used multiple times"],
    );
    let open = run(timestone().args(["serve", "--listen", "0.0.0.0:0", "--data"]).arg(&other));
    failed(&open, 1, &["reachable from other machines", "--insecure"]);
    drop(server);
    let file = folder.path().join("not-a-folder");
    std::fs::write(&file, "x").unwrap();
    failed(&run(timestone().args(["serve", "--data"]).arg(&file)), 1, &["not-a-folder"]);
}

#[test]
fn settings_have_their_precedence_and_tell_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timestone.toml");
    std::fs::write(&file, "cache = \"64MiB\"\nshards = 2\nlog = \"none\"\n").unwrap();
    let show = |flags: &[&str]| {
        let mut command = timestone();
        command
            .args(["config", "show", "--origin", "-o", "json", "--config"])
            .arg(&file)
            .args(flags);
        command.env("TIMESTONE_CACHE", "32MiB").env("TIMESTONE_LOG", "none");
        let shown: Value = serde_json::from_str(&succeeded(&run(&mut command))).unwrap();
        shown
    };
    let shown = show(&["--log", "ssd"]);
    let of = |name: &str| {
        (shown[name]["value"].as_str().unwrap(), shown[name]["origin"].as_str().unwrap())
    };
    assert_eq!(of("log"), ("ssd", "flag"));
    assert_eq!(of("cache"), ("32MiB", "environment TIMESTONE_CACHE"));
    assert_eq!(of("shards"), ("2", format!("file {}", file.display()).as_str()));
    assert_eq!(of("data"), ("timestone-data", "default"));

    // What it prints as text is a file that it takes.
    let plain = run(timestone().args(["config", "show", "--shards", "7"]));
    let again = folder.path().join("again.toml");
    std::fs::write(&again, succeeded(&plain)).unwrap();
    let shown =
        succeeded(&run(timestone().args(["config", "show", "--origin", "--config"]).arg(&again)));
    assert!(
        shown.lines().any(|line| line.starts_with("shards = \"7\"") && line.contains("# file")),
        "{shown}"
    );
}

#[test]
fn a_log_check_that_found_no_log_says_so_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let check = |place: &std::path::Path| run(timestone().args(["log", "check"]).arg(place));
    failed(
        &check(&folder.path().join("nowhere")),
        1,
        &["there is no directory", "nothing was checked"],
    );
    failed(&check(folder.path()), 1, &["there is no log file in", "nothing was checked"]);
    std::fs::create_dir_all(folder.path().join("wal").join("thread-0")).unwrap();
    failed(&check(folder.path()), 1, &["there is no log file in", "nothing was checked"]);
}

#[test]
fn wrong_settings_are_refused_with_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timestone.toml");
    let with_file = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(timestone().args(["serve", "--config"]).arg(&file))
    };
    failed(&with_file("cahce = \"1MiB\"\n"), 2, &["unknown key 'cahce'", "did you mean 'cache'?"]);
    failed(&with_file("cache = \"much\"\n"), 2, &["--cache is 'much'", "512MiB"]);
    failed(&with_file("cache = \n"), 2, &["is not TOML"]);
    failed(
        &run(timestone().args(["serve", "--config", "/nowhere/file.toml"])),
        2,
        &["/nowhere/file.toml"],
    );
    failed(
        &run(timestone().args(["serve", "--log", "tape"])),
        2,
        &["--log is 'tape' (flag)", "ssd, none and pmem"],
    );
    failed(&run(timestone().args(["serve", "--log-filter", "a=b=c"])), 2, &["a=b=c"]);
    failed(&run(timestone().args(["serve", "--shrads", "3"])), 2, &["--shrads", "--shards"]);
    for command in [&["serve"][..], &["config", "show"]] {
        let unknown = run(timestone().args(command).env("TIMESTONE_CAHCE", "1GiB"));
        failed(
            &unknown,
            2,
            &["unknown environment variable TIMESTONE_CAHCE", "did you mean TIMESTONE_CACHE?"],
        );
    }
}

#[test]
fn a_keyspace_in_dram_is_empty_after_a_restart_and_asks_for_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let logged = Server::start_with(&data, &[]);
    let create = ["keyspace", "create", "scratch", "--store", "dram"];
    failed(&logged.run(&create), 1, &["a log", "--log none", "--store mftl"]);
    failed(
        &logged.run(&["keyspace", "create", "scratch", "--store", "tape"]),
        2,
        &["tape", "store", "mftl, dram"],
    );
    drop(logged);

    let server = Server::start_with(&data, &["--log", "none"]);
    assert!(succeeded(&server.run(&create)).contains("is empty after a restart"));
    succeeded(&server.run(&["put", "greeting", "kept"]));
    succeeded(&server.run(&["put", "greeting", "hello", "--keyspace", "scratch"]));
    succeeded(&server.run(&["put", "other", "there", "--keyspace", "scratch"]));
    succeeded(&server.run(&["delete", "other", "--keyspace", "scratch"]));
    assert_eq!(server.run(&["get", "greeting", "--keyspace", "scratch"]).stdout, b"hello");
    assert_eq!(server.run(&["get", "greeting"]).stdout, b"kept");
    assert_eq!(succeeded(&server.run(&["scan", "--keyspace", "scratch"])).lines().count(), 1);
    // A graceful end saves what is on flash.
    server.stop();

    let server = Server::start_with(&data, &["--log", "none"]);
    failed(&server.run(&["get", "greeting", "--keyspace", "scratch"]), 3, &["greeting"]);
    assert_eq!(server.run(&["get", "greeting"]).stdout, b"kept");
    let listed = server.json(&["keyspace", "list", "-o", "json"]);
    let of = |index: usize| (&listed[index]["store"], &listed[index]["survives_restart"]);
    assert_eq!(of(0), (&"mftl".into(), &true.into()), "{listed}");
    assert_eq!(of(1), (&"dram".into(), &false.into()), "{listed}");
    assert!(succeeded(&server.run(&["keyspace", "list", "-o", "table"])).contains("empty"));
    succeeded(&server.run(&["put", "greeting", "again", "--keyspace", "scratch"]));
    assert_eq!(server.run(&["get", "greeting", "--keyspace", "scratch"]).stdout, b"again");
    succeeded(&server.run(&["keyspace", "drop", "scratch", "--yes"]));
}

/// A keyspace whose keys are in order, from its creation to scans over a real process, before and after a
/// restart; and transactions that read it in its order.
#[test]
fn a_keyspace_in_order_is_scanned_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start_with(&data, &[]);
    succeeded(&server.run(&["keyspace", "create", "orders", "--index", "ordered"]));
    let listed = server.json(&["keyspace", "list", "-o", "json"]);
    assert_eq!(listed[1]["index"], "ordered", "{listed}");
    let within =
        |server: &Server, words: &[&str]| server.run(&[words, &["--keyspace", "orders"]].concat());
    for number in (0..40).rev() {
        let key = format!("order:{number:02}");
        succeeded(&within(&server, &["put", &key, &format!("v{number}")]));
    }
    succeeded(&within(&server, &["put", "other", "x"]));
    succeeded(&within(&server, &["delete", "order:07"]));
    let keys = |output: &Output| {
        let lines = succeeded(output);
        lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let expected: Vec<String> =
        (0..40).filter(|n| *n != 7).map(|n| format!("order:{n:02}")).collect();
    assert_eq!(keys(&within(&server, &["scan", "--prefix", "order:"])), expected);
    let some = within(&server, &["scan", "--from", "order:05", "--to", "order:09"]);
    assert_eq!(keys(&some), ["order:05", "order:06", "order:08"]);
    let first = within(&server, &["scan", "--from", "order:38", "--limit", "3"]);
    assert_eq!(keys(&first), ["order:38", "order:39", "other"]);
    let last = within(&server, &["scan", "--prefix", "order:", "--reverse", "--limit", "2"]);
    assert_eq!(keys(&last), ["order:39", "order:38"]);
    let mut backwards = keys(&within(&server, &["scan", "--prefix", "order:", "--reverse"]));
    backwards.reverse();
    assert_eq!(backwards, expected);
    failed(&server.run(&["scan", "--from", "a"]), 2, &["--index ordered"]);
    failed(&server.run(&["scan", "--reverse"]), 2, &["--index ordered"]);

    let script = folder.path().join("script");
    std::fs::write(
        &script,
        "put order:065 new\ndelete order:08\nscan order:0\nput count 10\ncommit\n",
    )
    .unwrap();
    let told = succeeded(&within(&server, &["txn", "--file", script.to_str().unwrap()]));
    let seen: Vec<&str> =
        told.lines().filter_map(|line| line.split_once(" = ")).map(|line| line.0).collect();
    assert_eq!(
        seen,
        [0, 1, 2, 3, 4, 5, 6, 65, 9].map(|n| match n {
            65 => "order:065".to_owned(),
            n => format!("order:{n:02}"),
        })
    );
    assert!(told.contains("committed at"), "{told}");
    server.stop();

    let server = Server::start_with(&data, &[]);
    let again = within(&server, &["scan", "--from", "order:06", "--to", "order:10"]);
    assert_eq!(keys(&again), ["order:06", "order:065", "order:09"]);
}

#[test]
fn without_a_server_commands_say_so() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let url = format!("timestone://{free}");
    failed(
        &run(timestone().args(["status", "--address", &url])),
        1,
        &[&free.to_string(), "timestone serve"],
    );
    failed(&run(timestone().args(["get", "k", "--address", "http://x"])), 2, &["timestone://"]);
}

#[test]
fn the_shell_gets_completion_and_manual_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let script = succeeded(&run(timestone().args(["completion", shell])));
        assert!(script.contains("keyspace") && script.contains("bench"), "{shell}");
    }
    assert!(succeeded(&run(timestone().arg("man"))).contains(".TH timestone"));
    let folder = tempfile::tempdir().unwrap();
    succeeded(&run(timestone().arg("man").arg(folder.path())));
    assert!(folder.path().join("timestone-bench.1").exists());
    assert_eq!(
        succeeded(&run(timestone().arg("version"))),
        format!("timestone {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_benchmark_in_process_reports_every_field() {
    let mut command = timestone();
    command.args([
        "bench",
        "retwis",
        "--in-process",
        "--log",
        "none",
        "--keys",
        "2000",
        "--clients",
        "32",
    ]);
    command.args(["--duration", "1s", "--warmup", "100ms", "-o", "json"]);
    let output = run(&mut command);
    let printed = succeeded(&output);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(output.stderr.is_empty(), "no terminal, no progress bar: {}", text(&output.stderr));
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&report["workload"], &report["clients"]), (&"retwis".into(), &32.into()));
    assert!(report["duration_s"].as_f64().unwrap() >= 1.0);
    assert!(report["committed_per_second"].as_f64().unwrap() > 0.0);
    for field in ["aborted_per_second", "abort_rate"] {
        assert!(report[field].is_f64(), "{field}");
    }
    assert!(report["aborts"].is_object());
    for percentile in ["p50", "p90", "p99", "p999", "max"] {
        assert!(report["latency_us"][percentile].as_f64().unwrap() > 0.0, "{percentile}");
        assert!(report["read_only"]["latency_us"][percentile].is_f64(), "{percentile}");
    }
    assert!(report["cpu_us_per_txn"]["client"].as_f64().unwrap() > 0.0);
    assert_eq!(
        (&report["config"]["log"], &report["config"]["keys"]),
        (&"none".into(), &2000.into())
    );
}

/// Checks a history in which nothing is wrong.
#[track_caller]
fn check(history: &Path, more: &[&str]) -> Value {
    let output = run(timestone().arg("check").arg(history).args(more).args(["-o", "json"]));
    let verdict: Value = serde_json::from_str(&succeeded(&output)).unwrap();
    assert_eq!(
        (&verdict["valid"], verdict["anomalies"].as_array().unwrap().len()),
        (&true.into(), 0),
        "{verdict}"
    );
    verdict
}

#[test]
fn a_history_is_judged_and_what_is_no_history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.edn");
    let judge = |text: &[u8], more: &[&str]| {
        std::fs::write(&path, text).unwrap();
        run(timestone().arg("check").arg(&path).args(more))
    };
    let event = |kind: &str, process: u32, value: &str| {
        format!("{{:type :{kind}, :process {process}, :f :txn, :value [{value}]}}\n")
    };
    let txn = |process, value: &str| event("invoke", process, value) + &event("ok", process, value);
    let stale =
        txn(0, "[:append 1 1]") + &txn(1, "[:r 1 []] [:append 2 5]") + &txn(2, "[:r 1 [1]]");

    let unanswered = event("invoke", 3, "[:append 2 6]");

    let output = judge(stale.as_bytes(), &[]);
    failed(&output, 1, &["1 anomaly"]);
    for words in [
        "G-single (read skew), between direct conflicts in real time",
        "(process 1) read key 1 without 1",
        "T2: [[:r 1 []]",
    ] {
        assert!(text(&output.stdout).contains(words), "{words} in {}", text(&output.stdout));
    }
    // Somebody found nothing where a value was; no promise about transactions forbids a late
    // snapshot, but that of single keys does.
    let late = txn(0, "[:w 1 7 9000000000]") + &txn(1, "[:r 1 nil]");
    assert!(judge(late.as_bytes(), &[]).status.success());
    let output = judge(late.as_bytes(), &["--workload", "single-keys"]);
    failed(&output, 1, &["1 anomaly"]);
    assert!(
        text(&output.stdout).contains("not linearizable, in real time: no order"),
        "{}",
        text(&output.stdout)
    );
    let slack = ["--workload", "single-keys", "--clock-slack", "10000"];
    assert!(judge(late.as_bytes(), &slack).status.success(), "it may have expired by then");

    let output = judge(stale.as_bytes(), &["-o", "json"]);
    failed(&output, 1, &["1 anomaly"]);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&verdict["valid"], &verdict["workload"], &verdict["transactions"]),
        (&false.into(), &"list-append".into(), &3.into())
    );
    assert_eq!(
        (&verdict["anomalies"][0]["kind"], &verdict["anomalies"][0]["breaks"]),
        (&"g-single".into(), &"conflicts".into())
    );
    assert!(
        succeeded(&judge(stale.as_bytes(), &["--promise", "session"])).contains("nothing wrong")
    );
    // A writer that was killed wrote a piece of its next line.
    let output = judge((stale.clone() + &unanswered[..unanswered.len() / 2]).as_bytes(), &[]);
    failed(&output, 1, &["1 anomaly", "note: the last line of", "left out"]);

    let unlike = txn(0, "[:w 1 1]") + &txn(1, "[:append 2 1]");
    let bank = txn(0, "[:r 0 5] [:r 1 6]");
    for (words, text, more, code) in [
        (
            &["line 2", "ends where a form is expected"][..],
            "; half a line\n{:type :ok, :proc\n",
            &[][..],
            2,
        ),
        (&["begun and not ended", "no transaction"], "; a head\n{:type :ok, :proc", &[], 2),
        (&["line 1", "follows the form at column 5"], "GET / HTTP/1.1", &[], 2),
        (&["no transaction"], "", &[], 2),
        (&["no transaction"], "", &["--workload", "register"], 2),
        (
            &["no transaction"],
            "{:type :ok, :process 0, :f :read, :value 5}",
            &["--workload", "list-append"],
            2,
        ),
        (
            &["nothing of bank", "list-append"],
            &stale,
            &["--workload", "bank", "--accounts", "2", "--total", "12"],
            2,
        ),
        (&["nothing of list-append", "register"], &bank, &["--workload", "list-append"], 2),
        (&["nothing to check"], &event("invoke", 0, "[:r 1 nil]"), &[], 2),
        (&["both lists and registers", "--workload"], &unlike, &[], 2),
        (&["--accounts", "--total"], &bank, &["--workload", "bank"], 2),
        (&["--workload bank"], &bank, &["--accounts", "2"], 2),
        (&["1 anomaly"], &bank, &["--workload", "bank", "--accounts", "2", "--total", "12"], 1),
        (&["serializable", "real-time"], &bank, &["--promise", "magic"], 2),
    ] {
        failed(&judge(text.as_bytes(), more), code, words);
    }
    failed(&judge(b"\xff\xfe", &[]), 2, &["history.edn", "no text", "UTF-8"]);
    failed(&run(timestone().arg("check").arg(folder.path().join("none"))), 3, &["no file", "none"]);
    failed(&run(timestone().arg("check").arg(folder.path())), 2, &["could not read"]);
}

#[test]
fn a_bank_under_load_keeps_its_total_and_a_history_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let bench = |words: &[&str]| {
        let common = ["--duration", "1s", "--warmup", "0s", "--clients", "16", "-o", "json"];
        let report: Value =
            serde_json::from_str(&succeeded(&server.run(&[words, &common].concat()))).unwrap();
        assert!(report["committed_per_second"].as_f64().unwrap() > 0.0, "{report}");
        report
    };
    let report = bench(&["bench", "bank", "--keys", "10"]);
    assert!(report["config"]["totals_checked"].as_u64().unwrap() > 0, "{report}");
    assert!(report["cpu_us_per_txn"]["server"].as_f64().unwrap() > 0.0, "{report}");

    // Twice: the second run must not see what the first one appended.
    for round in 0..2 {
        let history = folder.path().join(format!("history-{round}.edn"));
        bench(&["bench", "list-append", "--history", history.to_str().unwrap()]);
        // One server, one clock: more than the store promises to clients with clocks of their own.
        let verdict = check(&history, &["--promise", "real-time"]);
        assert!(verdict["transactions"].as_u64().unwrap() > 10, "{verdict}");
    }
    let history = folder.path().join("registers.edn");
    bench(&["bench", "register", "--history", history.to_str().unwrap()]);
    check(&history, &[]);
    let history = folder.path().join("bank.edn");
    bench(&["bench", "bank", "--keys", "10", "--history", history.to_str().unwrap()]);
    assert_eq!(check(&history, &[])["workload"], "bank", "a history says what it is");
    check(&history, &["--workload", "bank", "--accounts", "10", "--total", "10000"]);
    failed(&run(timestone().arg("check").arg(&history).args(["--total", "9999"])), 1, &["concern"]);
    // An open loop starts what it was asked to start.
    let report = bench(&["bench", "ycsb-b", "--keys", "1000", "--rate", "500"]);
    let started = report["committed_per_second"].as_f64().unwrap()
        + report["aborted_per_second"].as_f64().unwrap();
    assert!((300.0..700.0).contains(&started), "{report}");
    // Loading faster than the device writes loses nothing and leaves nothing behind.
    bench(&["bench", "ycsb-c", "--keys", "50000", "--keyspace", "bulk"]);
    let status = server.json(&["status", "-o", "json"]);
    assert!(status["servers"][0]["figures"]["keys"].as_u64().unwrap() >= 50_000, "{status}");
    succeeded(&server.run(&["keyspace", "drop", "bulk", "--yes"]));
    failed(
        &server.run(&["bench", "list-append", "--keyspace", "default"]),
        2,
        &["default", "--keyspace"],
    );
    failed(&server.run(&["bench", "tpc-e"]), 2, &["retwis", "tpc-e"]);
    // The others' keyspace has no order to scan in; one that is created for scans has.
    failed(&server.run(&["bench", "ycsb-e"]), 2, &["ycsb-e", "'bench' keeps none", "--keyspace"]);
    for _ in 0..2 {
        let report = bench(&["bench", "ycsb-e", "--keys", "5000", "--keyspace", "scans"]);
        assert_eq!(report["workload"], "ycsb-e");
        assert!(report["aborts"]["error"].is_null(), "{report}");
        assert!(report["read_only"]["latency_us"]["p50"].as_f64().unwrap() > 0.0, "{report}");
    }
}

/// What `timestone sim` is asked, of two virtual seconds of a small cluster.
fn sim(folder: &Path, words: &[&str]) -> Output {
    let file = folder.join("small.toml");
    std::fs::write(
        &file,
        "[workload]\nkind = \"bank\"\nrate = 50\nseconds = 2\n[faults]\nbreak = \
         { every = \"500ms\" }\n",
    )
    .unwrap();
    run(timestone().args(["sim", "--scenario"]).arg(&file).args(words))
}

#[test]
fn a_seed_is_stepped_through_and_only_what_is_asked_for_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let whole = succeeded(&sim(folder.path(), &["--step"]));
    let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    assert!(
        whole.starts_with("0.000000000s server-0")
            && last(&whole).contains("everything is as promised")
    );
    let moments = |text: &str| -> Vec<f64> {
        text.lines().filter_map(|line| line.split_once("s ")?.0.parse().ok()).collect()
    };
    let part = succeeded(&sim(
        folder.path(),
        &["--step", "--server", "server-1", "--from", "1s", "--until", "1200ms"],
    ));
    let shown = moments(&part);
    assert!(shown.len() > 10 && shown.iter().all(|moment| (1.0..=1.2).contains(moment)), "{part}");
    assert!(part.lines().rev().skip(1).all(|line| line.contains(" server-1 ")), "{part}");
    assert!(last(&part).contains("not run to its end, for --until has passed"), "{part}");

    let lines = succeeded(&sim(folder.path(), &["--step", "--until", "100ms", "-o", "json"]));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (end, steps) = lines.split_last().unwrap();
    assert_eq!(
        (end["complete"].as_bool(), end["shown"].as_u64()),
        (Some(false), Some(steps.len() as u64))
    );
    assert!(steps.iter().all(|step| step["at_ns"].is_u64()
        && step["process"].is_string()
        && step["what"].is_string()));

    let none = succeeded(&sim(folder.path(), &["--step", "--transaction", "999-9"]));
    assert!(last(&none).contains("none of them is about what you asked for"), "{none}");
    failed(
        &sim(folder.path(), &["--step", "--server", "server-9"]),
        3,
        &["server-9", "server-0, server-1"],
    );
    failed(
        &sim(folder.path(), &["--step", "--from", "2s", "--until", "1s"]),
        2,
        &["--until lies before --from"],
    );
    failed(&sim(folder.path(), &["--step", "--from", "soon"]), 2, &["soon", "250ms"]);
    failed(&sim(folder.path(), &["--step", "--seeds", "2"]), 2, &["--step", "--seeds"]);
}

#[test]
fn a_simulated_history_says_how_it_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("bank.edn");
    let said =
        succeeded(&sim(folder.path(), &["--seed", "3", "--history", history.to_str().unwrap()]));
    let flags = said.lines().last().and_then(|line| line.split_once("timestone check ")).unwrap().1;
    let words: Vec<&str> = flags.split(' ').collect();
    assert!(
        succeeded(&run(timestone().arg("check").args(&words))).contains("nothing wrong"),
        "{said}"
    );
    assert!(
        succeeded(&run(timestone().arg("check").arg(&history))).contains("bank, conflicts"),
        "its head says so"
    );
    // One that has lost its head is taken for what its operations look like.
    let text = std::fs::read_to_string(&history).unwrap();
    std::fs::write(&history, text.split_once('\n').unwrap().1).unwrap();
    failed(&run(timestone().arg("check").arg(&history)), 1, &["written twice", "--workload bank"]);
    failed(
        &sim(folder.path(), &["--history", "/nowhere/h.edn"]),
        2,
        &["could not write /nowhere/h.edn"],
    );
}

/// Runs a command line that the binary has printed, as a shell does, with more words behind it.
fn typed(line: &str, more: &str) -> Output {
    let words = line.strip_prefix("timestone ").unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("'{BINARY}' {words} {more}")).stdin(Stdio::null());
    run(&mut command)
}

#[test]
fn a_history_is_judged_by_what_was_promised_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (file, history) =
        (folder.path().join("a scenario.toml"), folder.path().join("a history.edn"));
    let said = |more: &str| {
        let text = format!("[workload]\nkind = \"list-append\"\nrate = 50\nseconds = 1\n{more}");
        std::fs::write(&file, text).unwrap();
        succeeded(&run(timestone()
            .args(["sim", "--scenario"])
            .arg(&file)
            .arg("--history")
            .arg(&history)))
    };
    for (more, promise) in [("", "conflicts"), ("external = \"wait\"\n", "real-time")] {
        let said = said(more);
        let line = said.lines().last().and_then(|line| line.split_once("judge it by: ")).unwrap().1;
        assert!(line.ends_with(&format!("--workload list-append --promise {promise}")), "{line}");
        assert!(succeeded(&typed(line, "")).contains("nothing wrong"), "{line}");
    }
    for (more, why) in [
        ("closed = true\n", "closed sessions write nothing down"),
        (
            "[faults]\nrot = { every = \"100ms\" }\n",
            "what had been acknowledged was lost, as it may be",
        ),
    ] {
        let said = said(more);
        assert!(said.contains(why) && !said.contains("timestone check"), "{said}");
        failed(&run(timestone().arg("check").arg(&history)), 2, &["not judged", why]);
    }
}

/// A scenario in which every tenth append is acknowledged and never made.
fn canary(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("a canary.toml");
    std::fs::write(
        &file,
        "[workload]\nkind = \"list-append\"\nrate = 100\nseconds = 1\ncanary = true\n",
    )
    .unwrap();
    file
}

#[test]
fn a_failing_seed_is_told_and_stepped_through_from_its_finding_to_its_transaction_and_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let (file, traces) = (canary(folder.path()), folder.path().join("traces"));
    let costs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../costmodel/costs.toml");
    let mut command = timestone();
    command.args(["sim", "-o", "json", "--scenario"]).arg(&file).arg("--costs").arg(&costs);
    let output = run(command.arg("--traces").arg(&traces));
    let trace = traces.join("sim-a_canary-1.trace");
    failed(
        &output,
        1,
        &[
            &format!("seed 1 of scenario {} failed:\n  ", file.display()),
            "\n  durability and atomicity: lost write: T",
            &format!("\n  its trace: {}\n", trace.display()),
            "timestone: seed 1 of scenario a canary failed",
        ],
    );
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["seeds"], &said["failed"][0]["seed"]), (&1.into(), &1.into()));
    let findings = said["failed"][0]["findings"].as_array().unwrap();
    assert!(
        findings.iter().any(|finding| finding["property"] == "durability and atomicity"),
        "{said}"
    );

    // What was lost, by a transaction that wrote something else besides: a client ends what writes
    // nothing by itself, without an id.
    let written = std::fs::read_to_string(&trace).unwrap();
    let lost = written.lines().rev().find_map(|line| {
        let (_, told) = line.split_once("lost write: ")?;
        let (name, rest) = told.split_once(" was told that ")?;
        let (element, rest) = rest.split_once(" is in ")?;
        let (key, _) = rest.split_once(',')?;
        let id = name.split(' ').next()?;
        let of = format!(" ({id})");
        let (before, _) = written.split_once(&of)?;
        Some([name, id, element, key, before.rsplit(' ').next()?])
    });
    let [name, id, element, key, txn] = lost.unwrap();

    let stderr = text(&output.stderr);
    let line = stderr.lines().find_map(|line| line.split_once("again, step by step: ")).unwrap().1;
    assert!(
        line.contains("a canary.toml' --costs ") && line.ends_with(" --seed 1 --step"),
        "{line}"
    );
    let steps = |more: &str| {
        let output = typed(line, more);
        failed(&output, 1, &["seed 1 failed"]);
        let steps: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        let end = steps
            .iter()
            .position(|line| line.starts_with("serializability: ") || line.starts_with("durab"));
        assert!(
            steps.last().unwrap().contains("this seed failed")
                && !steps.last().unwrap().contains("none of them")
        );
        // Faults and starts are shown whatever is asked for.
        steps[..end.unwrap()]
            .iter()
            .filter(|line| !line.contains(" *  "))
            .cloned()
            .collect::<Vec<_>>()
    };
    let by_id = steps(&format!("--transaction {id}"));
    for words in
        [format!("{name} begins:"), format!("append {key} {element}"), format!("{name} committed:")]
    {
        assert!(by_id.iter().any(|line| line.contains(&words)), "{words} is missing in {by_id:#?}");
    }
    let of_store = steps(&format!("--transaction {txn}"));
    assert!(
        of_store.iter().any(|line| line.contains("Prepare to shard") && line.contains(" sends "))
    );
    assert!(
        of_store.iter().any(|line| line.contains("Vote to shard")) && of_store.len() < by_id.len()
    );
    assert!(of_store.iter().all(|line| by_id.contains(line)), "{of_store:#?}");

    let number = key.strip_prefix("key ").unwrap();
    let by_key = steps(&format!("--key {number}"));
    assert!(by_key.iter().all(|line| line.contains(key)) && by_key.len() > 20, "{by_key:#?}");
    for words in [" Get to shard", " Value to shard", " w key "] {
        assert!(
            by_key.iter().any(|line| line.contains(words)),
            "{words} is missing in {by_key:#?}"
        );
    }
    assert_eq!(steps(&format!("--key k{number:0>15}")), by_key);
}

#[test]
fn many_failing_seeds_leave_some_traces_and_one_that_cannot_be_written_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, traces) = (canary(folder.path()), folder.path().join("traces"));
    let seeds = |traces: &Path, count: &str| {
        run(timestone()
            .args(["sim", "--seeds", count, "--scenario"])
            .arg(&file)
            .arg("--traces")
            .arg(traces))
    };
    let output = seeds(&traces, "12");
    failed(&output, 1, &["12 seeds of scenario a canary failed"]);
    let said = text(&output.stderr);
    let count = |words: &str| said.matches(words).count();
    assert_eq!((count("its trace: "), count("no trace of it: 10 were written")), (10, 2), "{said}");
    assert_eq!(std::fs::read_dir(&traces).unwrap().count(), 10);
    let output = seeds(&file, "2");
    failed(&output, 1, &["no trace of it: could not write", "2 seeds of scenario a canary failed"]);
    assert!(text(&output.stdout).contains("2 (2 failed)"), "{}", text(&output.stdout));
}

#[test]
fn scenarios_that_are_none_are_refused_with_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.toml");
    let refused = |content: &[u8]| {
        std::fs::write(&file, content).unwrap();
        run(timestone().args(["sim", "--scenario"]).arg(&file))
    };
    for (content, words) in [
        ("[cluster]\nserver = 3", &["line 2", "unknown field `server`", "`servers`"][..]),
        ("[workload]\nrate = \"fast\"", &["line 2", "expected a number"]),
        ("[faults]\nearthquake = { every = \"1s\" }", &["line 2", "earthquake", "power-cut"]),
        ("[faults]\nkill = \"1s\"", &["line 2", "{ every = "]),
        ("[workload]\nrate = -5", &["line 2", "between 0.01 and 1000000"]),
        ("[cluster]\nservers = 0", &["line 2", "between 1 and 64"]),
        ("[workload]\nkeys = 99999999999999999999", &["line 2", "a whole number"]),
        ("[workload]\nops = 1000000", &["line 2", "ops in [workload]"]),
        ("[cluster]\nservers = 2\nservers = 3", &["line 3", "duplicate key"]),
        ("servers 3", &["line 1"]),
    ] {
        failed(&refused(content.as_bytes()), 2, &[&["broken.toml"], words].concat());
    }
    failed(&refused(b"\xff\xfe\x00"), 2, &["broken.toml is no text"]);
    failed(&run(timestone().args(["sim", "--scenario"]).arg(folder.path())), 2, &["is a folder"]);
    failed(
        &run(timestone().args(["sim", "--scenario", "earthquake"])),
        3,
        &["earthquake", "list-append"],
    );
    for (words, said) in [
        (["--seeds", "0"], "0 is not in 1.."),
        (["--jobs", "0"], "1..=256"),
        (["--minutes", "nan"], "above zero"),
    ] {
        failed(&run(timestone().arg("sim").args(words)), 2, &[said]);
    }
}

#[test]
fn seeds_that_are_interrupted_tell_what_they_came_to() {
    let mut command = timestone();
    command.args(["sim", "--scenario", "calm", "--seeds", "1000000", "-o", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Until the signal is its to handle, it would end at once; then it has not run a seed yet.
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        Command::new("kill")
            .args(["-s", "INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    failed(&output, 130, &["interrupted after"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (said["interrupted"].as_bool(), said["failed"].as_array().map(Vec::len)),
        (Some(true), Some(0))
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = timestone();
    let mut child = command
        .args(["completion", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn the_http_port_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let address = server.http.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

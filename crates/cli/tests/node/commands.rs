//! What the exit codes and words of commands promise: that they tell what came of a command whoever
//! reads along, that they name what is missing, and that what makes no sense is refused.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use timestone::KeyspaceOptions;

use crate::bad_input::{assert_words, fresh};
use crate::server::{NodeSetup, binary, outcome};

fn command(words: &[&str]) -> Command {
    let mut command = binary();
    command.args(words);
    command
}

fn run(words: &[&str]) -> (i32, String) {
    outcome(command(words))
}

/// The exit code where whoever read standard output has gone before anything was written.
fn unread(words: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command(words).stdout(writer).status().expect("the binary can be started").code()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// The path of a script.
fn script(place: &NodeSetup, lines: &str) -> String {
    let path = place.data.with_extension("txn");
    fs::write(&path, lines).expect("written");
    text(&path).to_owned()
}

#[test]
fn an_expiry_without_a_unit_is_refused_by_scripts_as_by_put() {
    let (_folder, place) = fresh();
    let _node = place.start();
    let (db, url) = (place.connect(), place.url());
    db.put(b"k", b"kept").expect("a put");
    let (code, told) = run(&["put", "k", "v", "--expire", "30", "--address", &url]);
    assert_eq!(code, 2, "{told}");
    assert_words("put", &told, &["--expire lies in the past (1970-"]);
    let path = script(&place, "get k\nput k v expire 30\n");
    let (code, told) = run(&["txn", "-f", &path, "--address", &url]);
    assert_eq!(code, 2, "{told}");
    assert_words("txn", &told, &["line 2: the expiry of k lies in the past (1970-"]);
    assert_eq!(db.get(b"k").expect("a read").expect("it is there"), b"kept");
    let path = script(&place, "put k v expire 30min\n");
    assert_eq!(run(&["txn", "-f", &path, "--address", &url]).0, 0);
}

#[test]
fn a_transaction_ends_as_its_exit_code_says_also_when_nobody_reads() {
    let (_folder, place) = fresh();
    let node = place.start();
    let (db, url) = (place.connect(), place.url());
    db.put(b"k", b"1").expect("a put");
    for (form, value) in [("text", "2"), ("json", "3"), ("table", "4")] {
        let path = script(&place, &format!("get k\nget k\nput k {value}\n"));
        assert_eq!(unread(&["txn", "-f", &path, "-o", form, "--address", &url]), Some(0));
        let found = db.get(b"k").expect("a read").expect("it is there");
        assert_eq!(&found[..], value.as_bytes());
        let path = script(&place, "get k\nif k = nothing\nput k 9\n");
        assert_eq!(unread(&["txn", "-f", &path, "-o", form, "--address", &url]), Some(4));
        let missing = ["get", "nobody", "-o", form, "--address", &url];
        assert_eq!(unread(&missing), Some(3), "{form}");
    }
    assert_eq!(unread(&["txn", "status", "ffff-1", "--address", &url]), Some(3));
    assert_eq!(unread(&["get", "k", "--address", &url]), Some(0));
    node.stop();
}

#[test]
fn what_the_manifest_names_and_is_gone_is_named_and_no_directory_is_sound_without_it() {
    let (_folder, place) = fresh();
    let node = place.with("--shards", "2").start();
    let db = place.connect();
    for number in 0..100u32 {
        db.put(&number.to_be_bytes(), &[7; 500]).expect("a put");
    }
    node.kill();
    let data = text(&place.data);
    let commands =
        [&["data", "inspect", data][..], &["data", "unreadable", data], &["log", "check", data]];
    for words in commands {
        let (code, told) = run(words);
        assert_eq!(code, 0, "{words:?}: {told}");
    }
    let folder = place.data.join("wal/thread-0");
    let mut logs: Vec<_> = fs::read_dir(&folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    logs.sort();
    let log = format!("wal/thread-0/{}", logs.last().expect("a log file"));
    for gone in ["shard-0001/flash", &log] {
        fs::remove_file(place.data.join(gone)).expect("it is there");
    }
    let lines = ["MISSING: the flash file of shard 1 (shard-0001/flash)", &log];
    for words in commands {
        for form in ["text", "table"] {
            let (code, told) = run(&[words, &["-o", form]].concat());
            assert_eq!(code, 1, "{words:?}: {told}");
            assert_words(&words.join(" "), &told, &lines);
            assert_words("its end", &told, &["2 files that MANIFEST names are missing"]);
        }
        let (code, told) = run(&[words, &["-o", "json"]].concat());
        assert_eq!(code, 1, "{words:?}: {told}");
        let missing = format!("\"missing\":[\"shard-0001/flash\",\"{log}\"]");
        assert_words(&words.join(" "), &told, &[&missing]);
        // Nobody needs to read it to be told.
        assert_eq!(unread(words), Some(1), "{words:?}");
    }
    // Of one log that log's files, of one shard that shard's.
    let (code, told) = run(&["log", "check", text(&folder)]);
    assert_eq!(code, 1, "{told}");
    assert_words("one log", &told, &[&log]);
    assert!(!told.contains("shard-0001"), "{told}");
    assert_eq!(run(&["data", "unreadable", data, "--shard", "0"]).0, 0);
    let (code, told) = run(&["data", "inspect", data, "--key", "nobody"]);
    assert_eq!(code, 1, "{told}");
    assert_words("a key", &told, &["no block has a version", "shard-0001/flash"]);
    // Accepted once, nothing is missed any more.
    place.with("--shards", "2").with("--accept-loss", "all").start().stop();
    for words in commands {
        let (code, told) = run(words);
        assert_eq!(code, 0, "{words:?}: {told}");
    }
}

#[test]
fn damage_is_told_by_exit_codes_also_when_nobody_reads() {
    let (_folder, place) = fresh();
    place.start().stop();
    let format = place.data.join("FORMAT");
    let mut bytes = fs::read(&format).expect("readable");
    bytes[0] ^= 1;
    fs::write(&format, bytes).expect("written");
    for form in ["text", "json", "table"] {
        assert_eq!(unread(&["data", "inspect", text(&place.data), "-o", form]), Some(1), "{form}");
    }
}

#[test]
fn a_dump_is_loaded_from_a_pipe() {
    let (_folder, place) = fresh();
    let _node = place.start();
    let (db, url) = (place.connect(), place.url());
    for number in 0..3000u32 {
        db.put(&number.to_be_bytes(), b"value").expect("a put");
    }
    let dump = place.data.with_extension("dump");
    assert_eq!(run(&["dump", text(&dump), "--address", &url]).0, 0);
    let pipe = place.data.with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    db.create_keyspace("copy", KeyspaceOptions::DEFAULT).expect("created");
    let load = ["load", text(&pipe), "--keyspace", "copy", "--address", &url];
    let bytes = fs::read(&dump).expect("readable");
    let to = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(to, bytes));
    let (code, told) = run(&load);
    assert_eq!(code, 0, "{told}");
    assert_words("load", &told, &["3000 keys of"]);
    writer.join().expect("it does not panic").expect("written");
    let copy = db.keyspace("copy").expect("it is there");
    assert_eq!(copy.get(&7u32.to_be_bytes()).expect("a read").expect("it is there"), b"value");
    // A pipe is no file that a dump may replace.
    let (code, told) = run(&["dump", text(&pipe), "--force", "--address", &url]);
    assert_eq!(code, 2, "{told}");
    assert_words("dump", &told, &["is no regular file", "use - and redirect"]);
}

#[test]
fn settings_that_make_no_sense_are_refused_wherever_they_are_read() {
    let (_folder, place) = fresh();
    let data = text(&place.data);
    let convert = ["data", "convert", data, "default", "--index", "frugal"];
    for (flag, value) in [("--frugal-keys", "0"), ("--capacity", "1"), ("--frugal-capacity", "0")] {
        let (code, told) = run(&[&convert[..], &[flag, value]].concat());
        assert_eq!(code, 2, "{told}");
        assert_words("convert", &told, &[flag]);
    }
    for (flag, value) in [("--log-format", "x"), ("--accept-loss", "x"), ("--log-filter", ",,,=")] {
        for words in [&["config", "show"][..], &["serve"]] {
            let (code, told) = run(&[words, &["--data", data, flag, value]].concat());
            assert_eq!(code, 2, "{words:?} {flag}: {told}");
        }
    }
}

#[test]
fn a_program_is_told_which_versions_are_behind_a_fence() {
    let (_folder, place) = fresh();
    let node = place.start();
    let db = place.connect();
    let made = db.create_keyspace("orders", KeyspaceOptions::DEFAULT).expect("created");
    db.put(b"k", b"v").expect("a put");
    db.keyspace("orders").expect("it is there").put(b"k", b"v").expect("a put");
    db.drop_keyspace("orders").expect("dropped");
    node.stop();
    let id = made.id.to_string();
    for (keyspace, expected) in [(id.as_str(), true), ("default", false)] {
        let words = ["data", "inspect", text(&place.data), "--key", "k", "--keyspace", keyspace];
        let (code, told) = run(&[&words[..], &["-o", "json"]].concat());
        assert_eq!(code, 0, "{told}");
        let line: Value = serde_json::from_str(told.lines().next().expect("a line")).expect("JSON");
        assert_eq!(line["behind_fence"], Value::from(expected), "{line}");
    }
}

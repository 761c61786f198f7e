//! Files that are not ours, damaged, or without room: what is wrong is said by name, nothing else is
//! touched, and the rest is served.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use timestone::ErrorCode;
use timestone_types::ShardId;
use timestone_wire::{PrepareHead, Verdict};

use crate::bad_input::{Bystander, assert_words, fresh, refusal, with_byte};
use crate::peer::Peer;
use crate::resp::{Reply, Resp};
use crate::restart::now;
use crate::server::{NodeSetup, binary, eventually, outcome};

#[test]
fn a_data_directory_that_is_not_ours_to_use_is_refused_and_left_alone() {
    let (folder, place) = fresh();
    let node = place.start();
    let db = place.connect();
    db.put(b"key", b"value").expect("a put");

    // In use: by the server that runs, which does not notice.
    let second = NodeSetup::new(folder.path(), "unused").at(place.data.clone());
    let (code, text) = second.refused();
    assert_eq!(code, 1, "{text}");
    assert_words(
        "in use",
        &text,
        &["is in use by process", "--data", &place.data.display().to_string()],
    );
    db.put(b"key", b"still served").expect("the first server goes on");
    node.stop();

    let format = place.data.join("FORMAT");
    let original = fs::read_to_string(&format).expect("readable");
    let before = tree(&place.data);
    // What another version's checksum covers is its own business, as long as it fits where there is
    // one.
    let (unsealed, _) = original.split_once("checksum").expect("a checksum");
    let damaged: [(&str, String, &[&str]); 5] = [
        (
            "an older version",
            unsealed.replace("format = 2", "format = 1"),
            &["has format 1", "reads format 2", "copy the keys"],
        ),
        (
            "a digit that is wrong",
            original.replace("shards = 4", "shards = 5"),
            &["FORMAT is damaged", "checksum"],
        ),
        (
            "another version",
            unsealed.replace("format = 2", "format = 99"),
            &["has format 99", "reads format 2", "the Timestone version that wrote it"],
        ),
        ("a damaged FORMAT", "format = ".to_owned(), &["FORMAT is damaged", "backup"]),
        ("an empty FORMAT", String::new(), &["FORMAT is damaged"]),
    ];
    for (what, text, words) in damaged {
        fs::write(&format, text).expect("writable");
        let (code, text) = place.refused();
        assert_eq!(code, 1, "{what}: {text}");
        assert_words(what, &text, words);
    }
    fs::write(&format, original).expect("writable");
    assert_eq!(tree(&place.data), before, "nothing else in the directory was touched");

    let (code, text) = place.with("--shards", "7").refused();
    assert_eq!(code, 1, "{text}");
    assert_words(
        "another number of shards",
        &text,
        &["has 4 shards, but 7 were asked for", "leave --shards out"],
    );

    let master = place.data.join("master");
    let state = fs::read(&master).expect("readable");
    fs::write(&master, with_byte(state.clone(), state.len() / 2, state[state.len() / 2] ^ 0x55))
        .expect("writable");
    let (code, text) = place.refused();
    assert_eq!(code, 1, "{text}");
    assert_words(
        "a damaged master",
        &text,
        &["the master's state in", "restore the file from a backup"],
    );
    fs::write(&master, state).expect("writable");

    let foreign = place.at(folder.path().join("photographs"));
    fs::create_dir(&foreign.data).expect("a folder");
    fs::write(foreign.data.join("holiday.jpg"), b"precious").expect("a file");
    let (code, text) = foreign.refused();
    assert_eq!(code, 1, "{text}");
    assert_words(
        "foreign files",
        &text,
        &["is not a Timestone data directory", "holiday.jpg", "--data"],
    );
    assert_eq!(fs::read(foreign.data.join("holiday.jpg")).expect("still there"), b"precious");
    assert_eq!(
        fs::read_dir(&foreign.data).expect("readable").count(),
        1,
        "nothing was put beside it"
    );

    let file = place.at(format);
    let (code, text) = file.refused();
    assert_eq!(code, 1, "{text}");
    assert_words("a file", &text, &["could not create the data directory"]);

    let node = place.start();
    assert_eq!(
        db.get(b"key").expect("a read").as_deref(),
        Some(&b"still served"[..]),
        "nothing was lost by all this"
    );
    node.stop();
}

/// Every file below a folder with the checksum of its content.
fn tree(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable"))
        {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() != "LOCK" {
                let content = fs::read(entry.path()).expect("readable");
                found.push((entry.path(), crc32c::crc32c(&content)));
            }
        }
    }
    found.sort();
    found
}

/// Flips one bit of a file.
fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("the file opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("the byte is there");
    byte[0] ^= 0x10;
    file.write_all_at(&byte, at).expect("written");
    file.sync_all().expect("synced");
}

#[test]
fn a_log_that_is_damaged_in_the_middle_stops_the_start_and_is_explained() {
    let (_folder, place) = fresh();
    let node = place.start();
    let db = place.connect();
    for number in 0..200u32 {
        db.put(&number.to_be_bytes(), b"one commit, one group").expect("a put");
    }
    node.kill();
    let logs = place.data.join("wal").join("thread-0");
    let mut files: Vec<PathBuf> = fs::read_dir(&logs)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let file = files.first().expect("a log file").clone();
    let name = file.file_name().expect("it has one").to_string_lossy().into_owned();
    // Somewhere inside the 20th block: each commit made one block of a sector.
    let offset = 20 * 4096;
    flip(&file, offset + 100);

    let before = tree(&logs);
    let (code, text) = place.refused();
    assert_eq!(code, 1, "{text}");
    assert_words(
        "a damaged log",
        &text,
        &[
            name.trim_end_matches(".log"),
            &format!("offset {offset}"),
            "timestone log check",
            "backup",
        ],
    );
    assert_eq!(tree(&logs), before, "the log is as it was");
    let check = || {
        let mut command = binary();
        command.args(["log", "check"]).arg(&place.data);
        outcome(command)
    };
    let (code, text) = check();
    assert_eq!(code, 1, "{text}");
    assert_words(
        "log check",
        &text,
        &["DAMAGED", &format!("offset {offset}"), "readable again from"],
    );

    flip(&file, offset + 100);
    let (code, text) = check();
    assert_eq!(code, 0, "{text}");
    let node = place.start();
    for number in 0..200u32 {
        assert!(db.get(&number.to_be_bytes()).expect("a read").is_some(), "put {number}");
    }
    node.stop();
}

fn find(haystack: &[u8], needle: &[u8]) -> Vec<usize> {
    let first = needle[0];
    let candidates = haystack.iter().enumerate().filter(|&(_, &byte)| byte == first);
    candidates.map(|(at, _)| at).filter(|&at| haystack[at..].starts_with(needle)).collect()
}

#[test]
fn a_damaged_record_costs_its_key_and_no_other() {
    let (_folder, place) = fresh();
    let place = place.with("--shards", "1");
    let node = place.start();
    let db = place.connect();
    let value = |number: u32| format!("<value of {number:04}>{}", "z".repeat(700)).into_bytes();
    for number in 0..500u32 {
        db.put(format!("key/{number:04}").as_bytes(), &value(number)).expect("a put");
    }
    // After a graceful stop the device alone has it; a bit of one value rots.
    node.stop();
    let flash = place.data.join("shard-0000").join("flash");
    let bytes = fs::read(&flash).expect("readable");
    let copies = find(&bytes, b"<value of 0123>");
    assert!(!copies.is_empty(), "the value is on the device");
    for at in copies {
        flip(&flash, at as u64 + 50);
    }

    let node = place.start();
    let bystander = Bystander::watch(&place);
    let error = refusal("a damaged value", db.get(b"key/0123"));
    assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
    assert_words("a damaged value", &error.to_string(), &["damaged", "backup"]);
    for number in (0..500u32).filter(|number| *number != 123) {
        let got = db
            .get(format!("key/{number:04}").as_bytes())
            .unwrap_or_else(|error| panic!("key {number}: {error}"));
        assert!(got.is_some_and(|got| got == value(number)[..]), "key {number}");
    }
    let mut resp = Resp::connect(place.resp).expect("connects");
    assert!(
        matches!(resp.call(&[b"GET", b"key/0123"]).expect("a reply"), Reply::Error(text) if text.contains("damaged"))
    );
    assert!(matches!(resp.call(&[b"GET", b"key/0124"]).expect("a reply"), Reply::Bulk(_)));
    // Writing it again mends it.
    db.put(b"key/0123", b"anew").expect("a put");
    assert_eq!(db.get(b"key/0123").expect("a read").as_deref(), Some(&b"anew"[..]));
    bystander.finish();
    assert!(
        node.text().contains("could not serve a request"),
        "the server's log says where:\n{}",
        node.text()
    );
    node.stop();
}

#[test]
fn a_full_device_refuses_puts_and_serves_the_rest() {
    let (_folder, place) = fresh();
    let place = place.with("--shards", "1").with("--capacity", "24MiB");
    let node = place.start();
    let db = place.connect().with_deadline(Duration::from_secs(4));
    let value = vec![b'f'; 60_000];
    let key = |number: u32| format!("full/{number}").into_bytes();
    // One that is done before, and asked for again when there is no room any more.
    let mut peer = Peer::connect(place.native);
    let participants = [ShardId::ZERO];
    let head = PrepareHead {
        txn: peer.txn(1),
        begin: now(),
        commit: now(),
        single: true,
        wait: true,
        participants: &participants,
    };
    assert_eq!(peer.prepare(ShardId::ZERO, &head, b"early", &value), Ok(Verdict::Yes));
    let mut stored = 0;
    let error = loop {
        assert!(stored < 2000, "120 MB went into 24 MiB");
        match db.put(&key(stored), &value) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), ErrorCode::DeviceFull, "after {stored} values: {error}");
    assert_words("full", &error.to_string(), &["full", "delete", "--capacity"]);
    assert!(stored > 100, "24 MiB hold more than {stored} values of 60 kB");
    let again = peer.prepare_once(ShardId::ZERO, &head, b"early", &value);
    assert!(
        again.refusal_code() != Some(ErrorCode::DeviceFull),
        "what was committed is not called refused: {again:?}"
    );
    let mut resp = Resp::connect(place.resp).expect("connects");
    match resp.call(&[b"SET", b"more", &value]).expect("a reply") {
        Reply::Error(text) => assert!(text.starts_with("OOM "), "{text}"),
        other => panic!("{other:?}"),
    }
    // A transaction is refused as a whole.
    let error = refusal(
        "a put in a transaction",
        db.transact(|tx| tx.put(b"more", &value).and_then(|()| tx.delete(&key(0)))),
    );
    assert_eq!(error.code(), ErrorCode::DeviceFull, "{error}");
    for number in 0..stored {
        assert!(
            db.get(&key(number)).expect("reads go on").is_some_and(|got| got == value[..]),
            "value {number}"
        );
    }
    for number in 0..stored / 2 {
        db.delete(&key(number)).unwrap_or_else(|error| panic!("deletes go on: {error}"));
    }
    eventually("room after deletes", Duration::from_secs(20), || db.put(b"more", &value).map(drop));

    node.kill();
    let node = place.start();
    for number in 0..stored {
        let got = db.get(&key(number)).expect("a read");
        assert_eq!(got.is_some(), number >= stored / 2, "value {number} of {stored}");
    }
    assert!(db.get(b"more").expect("a read").is_some());
    node.stop();
}

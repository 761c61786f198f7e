//! Keyspaces with their index on flash: from their creation to what a restart and a kill leave, with
//! the device that they have, and what is said where it cannot be had.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use timestone::{KeyspaceOptions, blocking::Db};

use crate::bad_input::assert_words;
use crate::server::{NodeSetup, binary, eventually, outcome, test_folder};
use crate::values::{key, put_all, value};

const KEYS: u32 = 300;

fn run(place: &NodeSetup, words: &[&str]) -> (i32, String) {
    let mut command = binary();
    command.args(words).args(["--address", &place.url()]);
    outcome(command)
}

#[track_caller]
fn succeeded(place: &NodeSetup, words: &[&str]) -> String {
    let (code, text) = run(place, words);
    assert_eq!(code, 0, "{words:?}: {text}");
    text
}

fn create(place: &NodeSetup) -> Db {
    let said = succeeded(place, &["keyspace", "create", "big", "--index", "frugal"]);
    assert_words("created", &said, &["created keyspace big"]);
    place.connect().keyspace("big").expect("it was just made")
}

#[track_caller]
fn check_all(place: &NodeSetup, round: u32, deleted: u32) {
    let big = place.connect().keyspace("big").expect("it is there");
    for number in 0..KEYS {
        let expected = (number >= deleted).then(|| value(number, round));
        let found = big.get(&key(number)).expect("a read");
        assert!(found.as_deref() == expected.as_deref(), "key {number}: {found:?}");
    }
    assert_eq!(place.connect().get(&key(0)).expect("a read"), None, "another keyspace");
}

#[test]
fn a_frugal_keyspace_outlives_stops_and_kills_and_its_device_is_looked_at() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data")
        .with("--shards", "2")
        .with("--frugal-keys", "5000")
        .with("--frugal-capacity", "1GiB");
    let node = place.start();
    let big = create(&place);
    let listed = succeeded(&place, &["keyspace", "list", "-o", "json"]);
    let listed: Value = serde_json::from_str(listed.trim()).expect("JSON");
    assert_eq!((&listed[1]["index"], &listed[1]["name"]), (&"frugal".into(), &"big".into()));
    assert_eq!(listed[1]["store"], "skimpy");
    let file = |shard: u16| place.data.join(format!("shard-{shard:04}/frugal"));
    assert!(!file(0).exists() && !file(1).exists(), "nobody has written anything yet");
    assert_eq!(big.get(b"nobody").expect("a read"), None);
    put_all(&big, KEYS, 1);
    assert!(file(0).exists() && file(1).exists());
    node.stop();

    // A clean stop, then a kill in the middle of writes.
    let node = place.start();
    check_all(&place, 1, 0);
    let big = place.connect().keyspace("big").expect("it is there");
    put_all(&big, KEYS, 2);
    for number in 0..20 {
        big.delete(&key(number)).expect("a delete");
    }
    // A transaction over keyspaces of both kinds.
    let db = place.connect();
    db.transact(|tx| tx.put(b"beside", b"full")).expect("a transaction");
    node.kill();
    let node = place.start();
    check_all(&place, 2, 20);
    assert_eq!(place.connect().get(b"beside").expect("a read").as_deref(), Some(&b"full"[..]));

    let keys = succeeded(&place, &["scan", "--keyspace", "big", "-o", "json"]);
    assert_eq!(keys.lines().count() as u32, KEYS - 20, "{keys}");
    let told = |words: &[&str]| -> Value {
        serde_json::from_str(succeeded(&place, words).trim()).expect("JSON")
    };
    let scrubbed = told(&["scrub", "-o", "json"]);
    let shards = scrubbed["shards"].as_array().expect("a list").iter();
    let records: u64 = shards.filter_map(|shard| shard["records"].as_u64()).sum();
    assert!(records >= u64::from(KEYS), "a scrub is of both devices: {scrubbed}");
    let status = told(&["status", "-o", "json"]);
    let figure = |name: &str| status["servers"][0]["figures"][name].as_u64().unwrap_or_default();
    assert!(figure("frugal_records") >= u64::from(KEYS), "{status}");
    assert!(figure("frugal_index_bytes") > 0 && figure("frugal_capacity_bytes") > 0, "{status}");
    let keys = status["servers"][0]["figures"].get("keys");
    assert_eq!(keys, Some(&Value::Null), "how many keys there are is not known: {status}");
    let index_bytes = figure("frugal_index_bytes");
    node.stop();

    // Memory knows the places of all keys instead of a tenth.
    let node = place.with("--frugal-places", "100").start();
    check_all(&place, 2, 20);
    let status = told(&["status", "-o", "json"]);
    let more = status["servers"][0]["figures"]["frugal_index_bytes"].as_u64().unwrap_or_default();
    assert!(more > 2 * index_bytes, "{more} bytes, {index_bytes} before: {status}");
    node.stop();

    let inspected = |flags: &[&str]| {
        let mut command = binary();
        command.args(["data", "inspect"]).arg(&place.data).args(flags);
        outcome(command)
    };
    let (code, text) = inspected(&[]);
    assert_eq!(code, 0, "{text}");
    assert_words(
        "summary",
        &text,
        &["manifest: 4 flash files", "shard 0 frugal: ", "shard 1 frugal: ", "big ("],
    );
    let (code, text) = inspected(&["--key", "key 0100", "--keyspace", "big"]);
    assert_eq!(code, 0, "{text}");
    assert_words("a key", &text, &["frugal, block", "crc ok"]);
    let (code, text) = inspected(&["--block", "0", "--shard", "1", "--frugal"]);
    assert_eq!(code, 0, "{text}");

    // A device that is gone is missed.
    fs::remove_file(file(1)).expect("it is there");
    let (code, text) = place.refused();
    assert_eq!(code, 1, "{text}");
    assert_words("gone", &text, &["lacks shard-0001/frugal", "--accept-loss 1"]);
    let (_, text) = inspected(&[]);
    assert_words("gone", &text, &["MISSING: the frugal flash file of shard 1"]);
    let node = place.with("--accept-loss", "1").start();
    let big = place.connect().keyspace("big").expect("it is there");
    let left = (20..KEYS).filter(|&n| big.get(&key(n)).expect("a read").is_some()).count();
    // Those of the other shard, and what the log still has.
    assert!(left > 0, "{left}");
    big.put(b"again", b"written").expect("a new device is made");
    node.stop();
}

#[test]
fn a_device_that_cannot_be_made_is_named_and_had_as_soon_as_it_can_be() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--shards", "1");
    let node = place.start();
    let big = create(&place);
    // The name that a new device has until it is whole.
    let in_the_way = place.data.join("shard-0000/frugal.creating");
    fs::create_dir_all(in_the_way.join("full")).expect("made");
    let refused = big.put(b"key", b"value").expect_err("it cannot be made").to_string();
    assert_words("refused", &refused, &["shard-0000", "frugal", "cannot be opened"]);
    place.connect().put(b"key", b"value").expect("other keyspaces go on");
    assert_eq!(big.get(b"key").expect("a read"), None);
    fs::remove_dir_all(&in_the_way).expect("removed");
    eventually("a put", Duration::from_secs(20), || big.put(b"key", b"value"));
    assert_eq!(big.get(b"key").expect("a read").as_deref(), Some(&b"value"[..]));
    node.kill();
    let node = place.start();
    let big = place.connect().keyspace("big").expect("it is there");
    assert_eq!(big.get(b"key").expect("a read").as_deref(), Some(&b"value"[..]));
    node.stop();
}

#[test]
fn flash_in_memory_has_no_place_for_it_and_says_so() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--device", "emulated");
    let node = place.with("--capacity", "1GiB").start();
    let big = create(&place);
    let refused = big.put(b"key", b"value").expect_err("there is no place").to_string();
    assert_words("refused", &refused, &["--index full", "--device file"]);
    node.stop();
}

/// How an existing keyspace gets another index: a dump, loaded into a new one; and back.
#[test]
fn a_keyspace_is_copied_from_full_to_frugal_and_back() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--frugal-keys", "5000");
    let node = place.start();
    let db = place.connect();
    db.create_keyspace("small", KeyspaceOptions::default()).expect("a keyspace");
    let small = db.keyspace("small").expect("it was just made");
    put_all(&small, KEYS, 1);
    let big = create(&place);
    let dump = |name: &str, keyspace: &str| {
        let file = folder.path().join(name).to_str().expect("text").to_owned();
        succeeded(&place, &["dump", &file, "--keyspace", keyspace]);
        file
    };
    let file = dump("small.dump", "small");
    succeeded(&place, &["load", &file, "--keyspace", "big"]);
    check_all(&place, 1, 0);
    put_all(&big, KEYS, 3);
    db.drop_keyspace("small").expect("dropped");
    db.create_keyspace("small", KeyspaceOptions::default()).expect("a keyspace");
    let file = dump("big.dump", "big");
    succeeded(&place, &["load", &file, "--keyspace", "small"]);
    let small = place.connect().keyspace("small").expect("it was just made");
    for number in 0..KEYS {
        let found = small.get(&key(number)).expect("a read");
        assert_eq!(found.as_deref(), Some(&value(number, 3)[..]));
    }
    node.stop();
}

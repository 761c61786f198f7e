//! `timestone data convert`: another index for a keyspace, with all that it has, also when that is
//! killed, in a directory whose server was, and without a client noticing.

use std::time::Duration;

use serde_json::Value;
use timestone::{KeyspaceOptions, blocking::Db};
use timestone_cluster::IndexKind;

use crate::bad_input::assert_words;
use crate::server::{NodeSetup, binary, eventually, outcome, test_folder};
use crate::values::{key, put_all, value};

const KEYS: u32 = 400;

#[track_caller]
fn check_all(db: &Db, round: u32, deleted: u32) {
    for number in 0..KEYS {
        let expected = (number >= deleted).then(|| value(number, round));
        let found = eventually("a read", Duration::from_secs(30), || db.get(&key(number)));
        assert!(found.as_deref() == expected.as_deref(), "key {number}: {found:?}");
    }
}

fn convert(place: &NodeSetup, words: &[&str]) -> (i32, String) {
    let mut command = binary();
    command.args(["data", "convert"]).arg(&place.data).args(words);
    command.args(["--frugal-keys", "5000", "--capacity", "1GiB"]);
    outcome(command)
}

#[track_caller]
fn converted(place: &NodeSetup, keyspace: &str, index: &str) -> Value {
    let (code, text) = convert(place, &[keyspace, "--index", index, "-o", "json"]);
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(text.trim()).expect("JSON")
}

/// The store and the index of a keyspace, as they are listed.
fn listed(place: &NodeSetup, name: &str) -> (String, String) {
    let mut command = binary();
    command.args(["keyspace", "list", "-o", "json", "--address", &place.url()]);
    let (code, text) = outcome(command);
    assert_eq!(code, 0, "{text}");
    let all: Vec<Value> = serde_json::from_str(text.trim()).expect("JSON");
    let one = all.iter().find(|one| one["name"] == name).expect("it is listed");
    let word = |name: &str| one[name].as_str().expect("text").to_owned();
    (word("store"), word("index"))
}

/// The ids under which the manifest says that something is left over.
fn left_places(place: &NodeSetup) -> String {
    let path = place.data.join("MANIFEST");
    let manifest = std::fs::read_to_string(path).expect("a manifest");
    let line = manifest.lines().find_map(|line| line.strip_prefix("left_places = "));
    line.unwrap_or("[]").to_owned()
}

fn words(store: &str, index: &str) -> (String, String) {
    (store.to_owned(), index.to_owned())
}

#[test]
fn a_keyspace_changes_its_index_and_back_with_all_that_it_has() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--shards", "2");
    let node = place.start();
    let client = place.connect();
    client.create_keyspace("orders", KeyspaceOptions::default()).expect("a keyspace");
    let orders = client.keyspace("orders").expect("it was just made");
    put_all(&orders, KEYS, 1);
    put_all(&orders, KEYS, 2);
    for number in 0..20 {
        orders.delete(&key(number)).expect("a delete");
    }
    client.put(b"beside", b"in default").expect("a put");
    let (code, text) = convert(&place, &["orders", "--index", "frugal"]);
    assert_eq!(code, 1, "{text}");
    assert_words("a server runs", &text, &["in use by process", "stop that server"]);
    node.kill();

    let done = converted(&place, "orders", "frugal");
    assert_eq!((&done["changed"], &done["shards"]), (&true.into(), &2.into()), "{done}");
    let again = converted(&place, "orders", "frugal");
    assert_eq!((&again["changed"], &again["versions"]), (&false.into(), &0.into()), "{again}");

    // Whoever knew the keyspace knows it still.
    let node = place.start();
    check_all(&orders, 2, 20);
    check_all(&place.connect().keyspace("orders").expect("it is there"), 2, 20);
    assert_eq!(listed(&place, "orders"), words("skimpy", "frugal"));
    assert_eq!(listed(&place, "default"), words("mftl", "full"));
    assert_eq!(client.get(b"beside").expect("a read").as_deref(), Some(&b"in default"[..]));
    let found = orders.scan(&timestone::ScanOptions::default()).expect("a scan").count();
    assert_eq!(found as u32, KEYS - 20);
    put_all(&orders, KEYS, 3);
    node.stop();

    let mut command = binary();
    command.args(["data", "inspect"]).arg(&place.data);
    let (code, text) = outcome(command);
    assert_eq!(code, 0, "{text}");
    assert_words("summary", &text, &["orders (", "orders before its index was changed ("]);

    let done = converted(&place, "orders", "full");
    assert_eq!(done["changed"], true, "{done}");
    let node = place.start();
    check_all(&orders, 3, 0);
    assert_eq!(listed(&place, "orders"), words("mftl", "full"));
    node.kill();

    // The keyspace that always exists is one like others.
    assert_eq!(converted(&place, "default", "frugal")["changed"], true);
    let node = place.start();
    assert_eq!(client.get(b"beside").expect("a read").as_deref(), Some(&b"in default"[..]));
    check_all(&orders, 3, 0);
    client.put(b"beside", b"there now").expect("a put");
    node.kill();
    let node = place.start();
    assert_eq!(client.get(b"beside").expect("a read").as_deref(), Some(&b"there now"[..]));
    assert_eq!(listed(&place, "default"), words("skimpy", "frugal"));
    node.stop();
}

#[test]
fn a_conversion_that_is_killed_loses_nothing_and_is_done_when_it_is_run_again() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--shards", "2");
    let mut node = place.start();
    let client = place.connect();
    client.create_keyspace("orders", KeyspaceOptions::default()).expect("a keyspace");
    let orders = client.keyspace("orders").expect("it was just made");
    put_all(&orders, KEYS, 1);
    for round in 0..8 {
        node.kill();
        let index = if round % 2 == 0 { "frugal" } else { "full" };
        for attempt in 0..3 {
            let mut command = binary();
            command.args(["data", "convert"]).arg(&place.data).args(["orders", "--index", index]);
            command.args(["--frugal-keys", "5000", "--capacity", "1GiB"]);
            let mut process = command.spawn().expect("it starts");
            std::thread::sleep(Duration::from_millis(15 * round + 40 * attempt));
            process.kill().expect("it is ours");
            process.wait().expect("it ends");
        }
        if round % 4 == 3 {
            converted(&place, "orders", index);
        }
        node = place.start();
        assert_eq!(left_places(&place), "[]", "what an attempt has left goes with the start");
        check_all(&orders, 1, 0);
        orders.put(b"another", index.as_bytes()).expect("a put");
        let found = place.connect().keyspace("orders").expect("it is there").get(b"another");
        assert_eq!(found.expect("a read").as_deref(), Some(index.as_bytes()));
    }
    node.stop();
}

#[test]
fn what_cannot_be_converted_is_said_and_left_as_it_was() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--shards", "1");
    let (code, text) = convert(&place, &["default", "--index", "frugal"]);
    assert_eq!(code, 1, "{text}");
    assert_words("no directory", &text, &["is no data directory"]);
    assert!(!place.data.exists(), "nothing is made");

    let node = place.start();
    let client = place.connect();
    let ordered = KeyspaceOptions { index: IndexKind::Ordered, ..KeyspaceOptions::default() };
    client.create_keyspace("ordered", ordered).expect("a keyspace");
    for number in 0..60u32 {
        client.put(&key(number), &vec![number as u8; 500_000]).expect("a put");
    }
    node.stop();

    let refused = [
        (&["nobody", "--index", "frugal"][..], 3, "names no keyspace 'nobody'"),
        (&["ordered", "--index", "frugal"], 1, "its keys are in order"),
        (&["default", "--index", "ordered"], 2, "--index is full or frugal"),
        (&["default", "--index", "quick"], 2, "full, frugal, ordered"),
    ];
    for (words, expected, said) in refused {
        let (code, text) = convert(&place, words);
        assert_eq!(code, expected, "{text}");
        assert_words("refused", &text, &[said]);
    }
    // 30 MB do not fit into 16 MiB.
    let tight = ["default", "--index", "frugal", "--frugal-capacity", "16MiB"];
    let (code, text) = convert(&place, &tight);
    assert_eq!(code, 1, "{text}");
    let said = ["shard-0000/frugal", "the store is full", "as it was", "--frugal-capacity"];
    assert_words("no room", &text, &said);
    let node = place.start();
    for number in 0..60u32 {
        let found = client.get(&key(number)).expect("a read");
        assert_eq!(found.map(|value| value.len()), Some(500_000));
    }
    node.stop();
    assert_eq!(converted(&place, "default", "frugal")["changed"], true);
    let node = place.start();
    for number in 0..60u32 {
        let found = client.get(&key(number)).expect("a read");
        assert_eq!(found.map(|value| value.len()), Some(500_000));
    }
    node.stop();
}

#[test]
fn a_server_whose_master_is_elsewhere_converts_by_number() {
    let folder = test_folder();
    let first =
        NodeSetup::new(folder.path(), "a").with("--shards", "1").with("--cluster-shards", "2");
    let second =
        NodeSetup::new(folder.path(), "b").with("--shards", "1").with("--master", &first.url());
    let (master, other) = (first.start(), second.start());
    let client = first.connect();
    for number in 0..60u32 {
        eventually("a put", Duration::from_secs(30), || client.put(&key(number), b"there"));
    }
    other.stop();
    let (code, text) = convert(&second, &["orders", "--index", "frugal"]);
    assert_eq!(code, 3, "{text}");
    assert_words("no names here", &text, &["names no keyspace 'orders'", "its number"]);
    let done = converted(&second, "0", "frugal");
    assert_eq!((&done["changed"], &done["shards"]), (&true.into(), &1.into()), "{done}");
    let other = second.start();
    for number in 0..60u32 {
        let found = eventually("a read", Duration::from_secs(30), || client.get(&key(number)));
        assert_eq!(found.as_deref(), Some(&b"there"[..]));
    }
    other.stop();
    master.stop();
}

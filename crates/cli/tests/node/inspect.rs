//! `timestone data inspect` over directories that real servers made, whole, damaged and cut short;
//! and what a server says of its stores.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::Value;

use crate::bad_input::{assert_words, fresh};
use crate::server::{NodeSetup, binary, outcome};

const KEYS: u32 = 40;
/// Bytes of a page, and of its header.
const PAGE: u64 = 4096;
const HEADER: u64 = 48;

fn inspect(data: &Path, flags: &[&str]) -> (i32, String) {
    let mut command = binary();
    command.args(["data", "inspect"]).arg(data).args(flags);
    outcome(command)
}

/// Lines of JSON; what the command says beside them is left out.
fn described(data: &Path, flags: &[&str]) -> (i32, Vec<Value>) {
    let (code, text) = inspect(data, &[flags, &["-o", "json"]].concat());
    let lines = text.lines().filter(|line| line.starts_with('{'));
    (code, lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect())
}

fn one(place: &NodeSetup) -> NodeSetup {
    place.with("--shards", "1")
}

/// A directory that a server has left: overwritten keys, one that is gone, one that is large, one
/// of bytes that are no text.
fn written(place: &NodeSetup) {
    let node = one(place).start();
    let db = place.connect();
    for round in ["first", "second"] {
        for number in 0..KEYS {
            db.put(format!("key {number}").as_bytes(), round.as_bytes()).expect("a put");
        }
    }
    db.put(b"gone", b"here").expect("a put");
    db.delete(b"gone").expect("a delete");
    db.put(b"large", &vec![7; 50_000]).expect("a put");
    db.put(b"\xff\xfe", b"bytes").expect("a put");
    let (code, text) = inspect(&place.data, &[]);
    assert_eq!(code, 1, "{text}");
    assert_words("in use", &text, &["is in use by process"]);
    node.stop();
}

#[test]
fn a_directory_of_a_server_is_told_whole_by_block_and_by_key() {
    let (_folder, place) = fresh();
    written(&place);
    let (code, text) = inspect(&place.data, &[]);
    assert_eq!(code, 0, "{text}");
    assert_words(
        "summary",
        &text,
        &["format 2, 1 shards", "live bytes", "(1 pages, whole)", "log thread-0"],
    );
    let (code, lines) = described(&place.data, &[]);
    let shard = &lines[0]["shards"][0];
    // Each version may be there twice, where collection has moved it.
    assert_eq!((code, &shard["damage_count"]), (0, &Value::from(0)));
    assert!(shard["records"].as_u64().expect("a number") >= u64::from(2 * KEYS + 3), "{shard}");
    assert_eq!(shard["keys"], Value::from(KEYS + 3));
    assert_eq!(shard["present_keys"], Value::from(KEYS + 2));
    assert_eq!(inspect(&place.data, &["-o", "table"]).0, 0);

    let (code, versions) = described(&place.data, &["--key", "key 7"]);
    assert_eq!(code, 0);
    let written: Vec<u64> = versions
        .iter()
        .map(|version| version["written_ns"].as_str().expect("text").parse().expect("a number"))
        .collect();
    assert!(written.len() >= 2 && written.is_sorted_by(|one, other| one >= other), "{written:?}");
    let (_, versions) = described(&place.data, &["--key", "gone"]);
    assert_eq!(versions[0]["kind"], "tombstone");
    let (_, versions) = described(&place.data, &["--key", "large"]);
    assert_eq!(
        (&versions[0]["kind"], &versions[0]["value_bytes"]),
        (&"large value".into(), &50_000.into())
    );
    let (code, text) = inspect(&place.data, &["--key", "nobody"]);
    assert_eq!(code, 3, "{text}");
    let (code, text) = inspect(&place.data, &["--key", "key 7", "--keyspace", "none"]);
    assert_eq!(code, 2, "{text}");

    let (code, blocks) = described(&place.data, &["--blocks"]);
    assert_eq!((code, blocks.len() as u64), (0, shard["blocks"].as_u64().expect("a number")));
    let holding =
        blocks.iter().find(|block| block["records"].as_u64() > Some(10)).expect("a block");
    let number = holding["block"].to_string();
    let (code, lines) = described(&place.data, &["--block", &number]);
    let pages = lines[0]["pages"].as_array().expect("pages");
    let records =
        pages.iter().map(|page| page["records"].as_array().map_or(0, Vec::len)).sum::<usize>();
    assert_eq!((code, Some(records as u64)), (0, holding["records"].as_u64()));
    let (code, text) = inspect(&place.data, &["--block", &number]);
    assert_eq!(code, 0, "{text}");
    assert_words("a block", &text, &["page 0: records", "key 7", "crc ok"]);
    assert!(text.contains("\\xff\\xfe"), "bytes are escaped: {text}");
    let (code, text) = inspect(&place.data, &["--block", "4000000"]);
    assert_eq!(code, 2, "{text}");
    let (code, text) = inspect(&place.data, &["--shard", "9"]);
    assert_eq!(code, 1, "{text}");
    let node = one(&place).start();
    assert_eq!(place.connect().get(b"key 7").expect("a read").as_deref(), Some(&b"second"[..]));
    node.stop();
}

#[test]
fn damage_is_told_with_its_place_and_what_is_cut_short_as_far_as_it_goes() {
    let (folder, place) = fresh();
    written(&place);
    let flash = place.data.join("shard-0000/flash");
    let (_, blocks) = described(&place.data, &["--blocks"]);
    let holding =
        blocks.iter().find(|block| block["records"].as_u64() > Some(10)).expect("a block");
    let block = holding["block"].as_u64().expect("a number");
    let whole = fs::read(&flash).expect("readable");
    let pages = blocks_start(&whole);
    let file = fs::OpenOptions::new().write(true).open(&flash).expect("writable");
    let at = pages + block * 256 * PAGE + HEADER + 40;
    file.write_all_at(&[whole[at as usize] ^ 0x10], at).expect("written");
    let (code, text) = inspect(&place.data, &[]);
    assert_eq!(code, 1, "{text}");
    let where_it_is = format!("block {block}, page 0, slot 0: its checksum is wrong");
    assert_words("a flipped bit", &text, &["DAMAGED: shard 0", &where_it_is]);
    let (_, text) = inspect(&place.data, &["--block", &block.to_string()]);
    assert_words("its block", &text, &["crc DAMAGED"]);

    file.set_len(pages + block * 256 * PAGE + PAGE / 2).expect("cut");
    let (code, text) = inspect(&place.data, &[]);
    assert_eq!(code, 1, "{text}");
    assert_words("cut short", &text, &["it was cut short", "the file ends inside of it"]);
    file.set_len(100).expect("cut");
    let (code, text) = inspect(&place.data, &[]);
    assert_eq!(code, 1, "{text}");
    assert_words("hardly anything left", &text, &["DAMAGED: shard 0", "flash"]);
    for flags in [&["--blocks"][..], &["--block", "0"], &["--key", "key 7"]] {
        assert_eq!(inspect(&place.data, flags).0, 1, "{flags:?}");
    }
    fs::remove_file(&flash).expect("removed");
    let (_, text) = inspect(&place.data, &[]);
    assert_words("no flash file", &text, &["MISSING: the flash file of shard 0"]);
    let (code, text) = inspect(folder.path(), &[]);
    assert_eq!(code, 1, "{text}");
    assert_words("no data directory", &text, &["no data directory"]);
}

/// Where block 0 of a device begins: behind both copies of its table, at a whole mebibyte.
fn blocks_start(device: &[u8]) -> u64 {
    let room = u32::from_le_bytes(device[20..24].try_into().expect("four bytes"));
    let table = u64::from(room.div_ceil(1016));
    ((2 + 2 * table) * PAGE).next_multiple_of(1 << 20)
}

#[test]
fn a_server_says_what_its_stores_come_to() {
    let (_folder, place) = fresh();
    let node = place.start();
    let db = place.connect();
    for number in 0..KEYS {
        db.put(&number.to_be_bytes(), &[1; 200]).expect("a put");
        db.get(&number.to_be_bytes()).expect("a read");
    }
    let status = |form: &str| {
        let mut command = binary();
        command.args(["status", "-o", form, "--address", &place.url()]);
        let (code, text) = outcome(command);
        assert_eq!(code, 0, "{text}");
        text
    };
    let told =
        crate::server::eventually("figures of reads", std::time::Duration::from_secs(20), || {
            let told: Value = serde_json::from_str(&status("json")).expect("JSON");
            let figures = told["servers"][0]["figures"].clone();
            if figures["cache_hit_ratio"].is_number() {
                Ok(figures)
            } else {
                Err(figures.to_string())
            }
        });
    assert_eq!(told["cache_hit_ratio"], Value::from(1.0), "what was just put is in the cache");
    for figure in
        ["versions_per_key", "index_bytes_per_key", "live_bytes", "collection_debt_bytes", "erases"]
    {
        assert!(told[figure].is_number(), "{figure}: {told}");
    }
    let text = status("table");
    let words =
        ["write amplification", "% of reads", "per key", "collection owes", "erases of a block"];
    assert_words("status", &text, &words);
    node.stop();
}

#[test]
fn pages_that_can_be_read_are_touched_by_nobody_who_looks_for_others() {
    let (_folder, place) = fresh();
    let unreadable = |flags: &[&str]| {
        let mut command = binary();
        command.args(["data", "unreadable"]).arg(&place.data).args(flags);
        outcome(command)
    };
    let node = one(&place).start();
    place.connect().put(b"key", b"value").expect("a put");
    let (code, text) = unreadable(&["--accept-loss", "all"]);
    assert_eq!(code, 1, "{text}");
    assert_words("in use", &text, &["is in use by process"]);
    node.stop();
    let flash = place.data.join("shard-0000/flash");
    let before = fs::read(&flash).expect("readable");
    for flags in [&[][..], &["--accept-loss", "all"], &["--accept-loss", "0,3", "--shard", "0"]] {
        let (code, text) = unreadable(flags);
        assert_eq!(code, 0, "{text}");
        assert_words("all is well", &text, &["shard 0: all ", "pages can be read"]);
    }
    let (code, text) = unreadable(&["-o", "json"]);
    let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    let told: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((code, &told["unreadable"]), (0, &Value::Array(Vec::new())));
    assert!(told["pages"].as_u64() > Some(0), "{told}");
    assert_eq!(unreadable(&["--accept-loss", "some"]).0, 2);
    let (code, text) = unreadable(&["--shard", "9"]);
    assert_eq!(code, 1, "{text}");
    assert!(fs::read(&flash).expect("readable") == before, "nothing was written");
    // One that was cut short is not one whose pages cannot be read.
    let file = fs::OpenOptions::new().write(true).open(&flash).expect("writable");
    file.set_len(before.len() as u64 - PAGE).expect("cut");
    let (code, text) = unreadable(&["--accept-loss", "all"]);
    assert_eq!(code, 1, "{text}");
    assert_words("cut short", &text, &["bytes long, and needs"]);
}

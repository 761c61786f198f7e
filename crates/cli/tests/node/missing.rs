//! Files of a data directory that are gone: the server refuses to start, names them, and goes on
//! without them only when it is told to.

use std::fs;
use std::path::{Path, PathBuf};

use timestone_types::ShardId;

use crate::peer::Peer;
use crate::server::{NodeSetup, test_folder};

const KEYS: u32 = 400;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

/// A server with four shards and some keys in each.
fn filled(place: &NodeSetup) -> crate::server::Node {
    let node = place.start();
    let db = place.connect();
    for number in 0..KEYS {
        db.put(&key(number), b"kept").expect("a put");
    }
    node
}

/// How many of the keys are there.
fn count(place: &NodeSetup) -> u32 {
    let db = place.connect();
    (0..KEYS).map(|number| u32::from(db.get(&key(number)).expect("a read").is_some())).sum()
}

/// How many of the keys belong to the shard.
fn of_shard(place: &NodeSetup, shard: u16) -> u32 {
    let peer = Peer::connect(place.native);
    (0..KEYS).map(|number| u32::from(peer.shard_of(&key(number)) == ShardId::new(shard))).sum()
}

/// Everything in the directory but the lock.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for path in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path())
    {
        if path.is_dir() {
            names.extend(self::names(&path));
        }
        names.push(path);
    }
    names.sort();
    names
}

#[track_caller]
fn refused(place: &NodeSetup, words: &[&str]) {
    let before = names(&place.data);
    let (code, text) = place.refused();
    assert_eq!(code, 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert_eq!(names(&place.data), before, "nothing was created in place of what is missing");
}

#[test]
fn a_flash_file_that_is_gone_after_a_clean_stop_is_missed_until_its_loss_is_accepted() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = filled(&place);
    let lost = of_shard(&place, 2);
    assert!(lost > 0 && lost < KEYS);
    node.stop();
    fs::remove_file(place.data.join("shard-0002/flash")).expect("it is there");

    refused(&place, &["lacks shard-0002/flash", "--accept-loss 2", "backup"]);
    refused(&place.with("--accept-loss", "1,3"), &["lacks shard-0002/flash"]);
    let (code, text) = place.with("--accept-loss", "two").refused();
    assert_eq!(code, 2, "{text}");

    let node = place.with("--accept-loss", "2").start();
    let text = node.text();
    assert!(
        text.contains("going on without what is missing") && text.contains("shard-0002/flash"),
        "{text}"
    );
    let left = count(&place);
    assert!(
        (KEYS - lost..=KEYS).contains(&left),
        "{left} of {KEYS} keys, {lost} of them in the lost shard"
    );
    node.stop();
    // Accepted once is over: nothing is missing any more.
    let node = place.start();
    assert_eq!(count(&place), left);
    node.stop();
}

#[test]
fn logs_that_are_gone_after_a_kill_are_missed_and_concern_all_shards() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    filled(&place).kill();
    fs::remove_dir_all(place.data.join("wal")).expect("it is there");

    refused(&place, &["lacks wal/thread-0/", "--accept-loss all"]);
    refused(&place.with("--accept-loss", "2"), &["lacks wal/thread-0/", "--accept-loss all"]);
    let node = place.with("--accept-loss", "all").start();
    let left = count(&place);
    node.stop();
    let node = place.start();
    assert_eq!(count(&place), left);
    node.kill();
}

#[test]
fn one_log_file_that_is_gone_is_missed() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    filled(&place).kill();
    let logs = names(&place.data.join("wal").join("thread-0"));
    let newest = logs.last().expect("a log file");
    fs::remove_file(newest).expect("it is there");
    let name = newest.file_name().expect("it has one").to_string_lossy().into_owned();
    refused(&place, &[&format!("lacks wal/thread-0/{name}"), "--accept-loss all"]);
    let node = place.with("--accept-loss", "0,1,2,3").start();
    node.stop();
    place.start().stop();
}

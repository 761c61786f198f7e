//! Two processes that own the shards of one cluster, seen through Redis's port: each serves every
//! key, also after the other one was killed and started again; while it is down its keys, and no
//! others, are refused in the end, and nothing is left behind that would hold watermarks or a
//! shutdown.

use std::time::Duration;

use crate::peer::Peer;
use crate::resp::{Reply, Resp};
use crate::server::{Node, NodeSetup, binary, eventually, outcome, test_folder};

struct Two {
    places: [NodeSetup; 2],
    nodes: [Node; 2],
    _folder: tempfile::TempDir,
}

fn start() -> Two {
    let folder = test_folder();
    let first =
        NodeSetup::new(folder.path(), "a").with("--shards", "2").with("--cluster-shards", "4");
    let second =
        NodeSetup::new(folder.path(), "b").with("--shards", "2").with("--master", &first.url());
    let places = [first, second];
    let nodes = places.each_ref().map(NodeSetup::start);
    for place in &places {
        eventually("the map of all shards", Duration::from_secs(15), || {
            let map = Peer::connect(place.native).map;
            let free = map.shards().iter().filter(|shard| shard.primary.is_none()).count();
            if free == 0 { Ok(()) } else { Err(format!("{free} shards have no primary")) }
        });
    }
    Two { places, nodes, _folder: folder }
}

/// The page at a path of the HTTP port.
pub(crate) fn page(place: &NodeSetup, path: &str) -> String {
    let mut raw = Resp::connect(place.http).expect("connects");
    raw.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("sends");
    String::from_utf8(raw.closes().expect("a page")).expect("text")
}

fn run(place: &NodeSetup, words: &[&str]) -> (i32, String) {
    let mut command = binary();
    command.args(words).args(["--address", &place.url()]);
    outcome(command)
}

/// Writes all keys in one pipeline, and reads them.
fn write_and_read(redis: &mut Resp, keys: &[String], value: &str) {
    for key in keys {
        redis.queue(&[b"SET", key.as_bytes(), value.as_bytes()]).expect("sent");
    }
    for key in keys {
        let answer = redis.reply().expect("an answer");
        assert!(answer.is_ok(), "SET {key}: {answer:?}");
    }
    for key in keys {
        assert_eq!(get(redis, key), Reply::Bulk(value.into()), "GET {key}");
    }
}

fn get(redis: &mut Resp, key: &str) -> Reply {
    redis.call(&[b"GET", key.as_bytes()]).expect("an answer")
}

/// What concerns all shards is answered for all of them, at any node.
fn count(redis: &mut Resp) -> (Reply, usize, usize) {
    let counted = redis.call(&[b"DBSIZE"]).expect("an answer");
    let Reply::Array(listed) = redis.call(&[b"KEYS", b"*"]).expect("an answer") else {
        panic!("KEYS answers with an array")
    };
    let (mut cursor, mut scanned) = (b"0".to_vec(), 0);
    loop {
        let page = redis.call(&[b"SCAN", &cursor, b"COUNT", b"50"]).expect("an answer");
        let Reply::Array(parts) = page else { panic!("SCAN answers with an array") };
        let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else { panic!("{parts:?}") };
        scanned += keys.len();
        cursor.clone_from(next);
        if cursor == b"0" {
            return (counted, listed.len(), scanned);
        }
    }
}

/// How far the watermark of each shard of a server's cluster trails, in milliseconds; as far as can
/// be where that is not known yet.
fn lags(place: &NodeSetup) -> Vec<u64> {
    let (code, text) = run(place, &["status", "-o", "text"]);
    assert_eq!(code, 0, "{text}");
    let of_shards = text.lines().filter(|line| line.starts_with("shard "));
    let lag = |line: &str| line.rsplit(' ').next().and_then(|lag| lag.parse().ok());
    of_shards.map(|line| lag(line).unwrap_or(u64::MAX)).collect()
}

#[test]
fn every_node_serves_every_key_also_when_the_other_was_killed_and_started_again() {
    let Two { places, nodes: [first, second], _folder } = start();
    let [a, b] = &places;
    let connect = |place: &NodeSetup| Resp::connect(place.resp).expect("connects");
    let (mut redis, mut other) = (connect(a), connect(b));
    let keys: Vec<String> = (0..60).map(|number| format!("key/{number}")).collect();
    write_and_read(&mut redis, &keys, "one");
    assert_eq!(get(&mut other, "key/7"), Reply::Bulk(b"one".to_vec()));
    write_and_read(&mut other, &keys, "two");
    // Transactions over both, and what concerns all shards.
    let pairs = keys.iter().flat_map(|key| [key.as_bytes(), b"three"]);
    let mset: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
    assert!(redis.call(&mset).expect("an answer").is_ok());
    for redis in [&mut redis, &mut other] {
        assert_eq!(count(redis), (Reply::Integer(60), 60, 60));
    }
    let ready = page(a, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && !ready.contains("redis"), "{ready}");

    // The other server dies: its keys are refused in the end, and no others; nothing hangs.
    second.kill();
    let others = Peer::connect(a.native).map;
    let is_own = |key: &&String| {
        let (shard, own) = (others.shard_of_key(key.as_bytes()), others.shards()[0].primary);
        others.shard(shard).is_some_and(|entry| entry.primary == own)
    };
    let (own, missing): (Vec<&String>, Vec<&String>) = keys.iter().partition(is_own);
    assert!(own.len() > 10 && missing.len() > 10, "{} and {}", own.len(), missing.len());
    let mut waiting = connect(a);
    waiting.queue(&[b"SET", missing[0].as_bytes(), b"lost"]).expect("sent");
    waiting.queue(&[b"GET", missing[1].as_bytes()]).expect("sent");
    for key in own {
        assert_eq!(get(&mut redis, key), Reply::Bulk(b"three".to_vec()), "GET {key}");
    }
    for _ in 0..2 {
        let answer = waiting.reply().expect("an answer");
        let is_refused = matches!(&answer, Reply::Error(text) if text.starts_with("TRYAGAIN "));
        assert!(
            is_refused || matches!(&answer, Reply::Error(text) if text.starts_with("UNKNOWN ")),
            "{answer:?}"
        );
    }
    // And comes back.
    let second = b.start();
    let found = get(&mut redis, missing[1]);
    assert_eq!(found, Reply::Bulk(b"three".to_vec()));
    write_and_read(&mut redis, &keys, "four");
    let mut other = connect(b);
    write_and_read(&mut other, &keys, "five");
    for redis in [&mut redis, &mut other] {
        assert_eq!(count(redis), (Reply::Integer(60), 60, 60));
    }

    // Nothing of it is left: the watermark of every shard keeps up with the clock, and both servers
    // end well.
    let native = a.connect();
    native
        .transact(|tx| keys.iter().try_for_each(|key| tx.put(key.as_bytes(), b"native")))
        .expect("over both servers");
    eventually("watermarks that keep up", Duration::from_secs(30), || {
        let lags = lags(a);
        let keeps_up = lags.len() == 4 && lags.iter().all(|&lag| lag < 4_000);
        if keeps_up { Ok(()) } else { Err(format!("watermarks lag by {lags:?} ms")) }
    });
    assert!(redis.call(&[b"FLUSHDB"]).expect("an answer").is_ok());
    assert_eq!(count(&mut other), (Reply::Integer(0), 0, 0));
    drop(native);
    [second, first].into_iter().for_each(Node::stop);
}

#[test]
fn a_transaction_that_a_silent_shard_may_know_is_not_said_to_have_never_arrived() {
    let Two { places, nodes: [first, second], _folder } = start();
    let (code, text) = run(&places[0], &["txn", "status", "1f-2a"]);
    assert!(code == 3 && text.contains("no server knows"), "{code}: {text}");
    second.kill();
    let (code, text) = run(&places[0], &["txn", "status", "1f-2a"]);
    assert!(
        code == 1 && text.contains("did not answer") && text.contains("shards "),
        "{code}: {text}"
    );
    drop(first);
}

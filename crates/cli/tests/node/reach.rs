//! Two processes that own the shards of one cluster, seen through Redis's port: what a gateway has
//! no way to is refused at once and by name, leaves nothing behind that would hold watermarks or a
//! shutdown, and is told by `/readyz`, `status` and `txn status`.

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

#[test]
fn what_a_gateway_has_no_way_to_is_refused_at_once_by_name() {
    let Two { places, nodes, _folder } = start();
    let [a, b] = &places;
    let (mut redis, mut other) =
        (Resp::connect(a.resp).expect("connects"), Resp::connect(b.resp).expect("connects"));
    // All at once: one that had to wait would be seen by those behind it.
    let keys: Vec<String> = (0..60).map(|number| format!("key/{number}")).collect();
    for key in &keys {
        redis.queue(&[b"SET", key.as_bytes(), b"v"]).expect("sent");
    }
    let answers: Vec<Reply> = keys.iter().map(|_| redis.reply().expect("an answer")).collect();
    let mut refused = Vec::new();
    for (key, answer) in keys.iter().zip(&answers) {
        match answer {
            Reply::Error(text) => {
                assert!(text.starts_with("CLUSTERDOWN shard "), "{text}");
                assert!(
                    text.contains("nothing was done")
                        && text.contains(&format!("redis://{}", b.resp)),
                    "{text}"
                );
                refused.push(key.as_bytes());
            }
            other => assert!(other.is_ok(), "{other:?}"),
        }
    }
    assert!(refused.len() > 10 && refused.len() < 50, "{} of 60 are elsewhere", refused.len());
    for &key in &refused {
        assert_eq!(other.call(&[b"GET", key]).expect("an answer"), Reply::Nil, "nothing was done");
        assert!(other.call(&[b"SET", key, b"there"]).expect("an answer").is_ok());
    }
    // Reads, transactions over both, and what concerns all shards.
    let missing = refused[0];
    for words in [
        &[&b"GET"[..], missing][..],
        &[b"INCR", missing],
        &[
            b"MSET", b"key/0", b"1", b"key/1", b"1", b"key/2", b"1", b"key/3", b"1", b"key/4",
            b"1", missing, b"1",
        ],
        &[b"DEL", missing],
        &[b"WATCH", missing],
        &[b"DBSIZE"],
        &[b"KEYS", b"*"],
        &[b"SCAN", b"0"],
        &[b"FLUSHDB"],
    ] {
        let name = String::from_utf8_lossy(words[0]).into_owned();
        match redis.call(words).expect("an answer") {
            Reply::Error(text) => assert!(text.starts_with("CLUSTERDOWN shard "), "{name}: {text}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    // Told, and ready all the same.
    let ready = page(a, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("[!]redis-keys"), "{ready}");
    assert!(ready.contains("CLUSTERDOWN") && ready.contains(&b.resp.to_string()), "{ready}");
    // Nothing of it is left: the watermark of every shard keeps up with the clock, and both servers
    // end well.
    let native = a.connect();
    native
        .transact(|tx| keys.iter().try_for_each(|key| tx.put(key.as_bytes(), b"native")))
        .expect("over both servers");
    std::thread::sleep(Duration::from_secs(5));
    let (code, text) = run(a, &["status", "-o", "text"]);
    assert_eq!(code, 0, "{text}");
    let lags: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with("shard "))
        .map(|line| {
            line.rsplit(' ')
                .next()
                .and_then(|lag| lag.parse().ok())
                .unwrap_or_else(|| panic!("{line}"))
        })
        .collect();
    assert!(
        lags.len() == 4 && lags.iter().all(|&lag| lag < 4_000),
        "watermarks lag by {lags:?} ms"
    );
    drop(native);
    nodes.into_iter().rev().for_each(Node::stop);
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

//! A server whose Redis port serves a keyspace with its keys in order: before it is there, scans over
//! two servers, one of which is killed on the way, and what native clients see of it.

use std::time::Duration;

use timestone::KeyspaceOptions;
use timestone_cluster::IndexKind;

use crate::resp::{Reply, Resp};
use crate::server::{NodeSetup, eventually, test_folder};

const NAME: &str = "names";

fn texts(reply: &Reply) -> Vec<String> {
    let Reply::Array(parts) = reply else { panic!("no list: {reply:?}") };
    let text = |part: &Reply| match part {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("no text: {other:?}"),
    };
    parts.iter().map(text).collect()
}

fn ask(resp: &mut Resp, line: &str) -> Reply {
    let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    resp.call(&arguments).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn redis_clients_read_ranges_of_a_keyspace_in_order() {
    let folder = test_folder();
    let first = NodeSetup::new(folder.path(), "first").with("--resp-keyspace", NAME);
    let first = first.with("--shards", "2").with("--cluster-shards", "4").with("--threads", "2");
    let node = first.start();
    let second = NodeSetup::new(folder.path(), "second")
        .with("--resp-keyspace", NAME)
        .with("--shards", "2")
        .with("--master", &first.url());
    let other = second.start();

    let mut resp = Resp::connect(first.resp).expect("connects");
    let told = eventually("what is missing", Duration::from_secs(30), || {
        match ask(&mut resp, "SET a 1") {
            Reply::Error(text) if text.starts_with("ERR ") => Ok(text),
            early => Err(format!("{early:?}")),
        }
    });
    assert!(told.contains("timestone keyspace create names"), "{told}");
    let db = first.connect();
    let options = KeyspaceOptions { index: IndexKind::Ordered, ..KeyspaceOptions::default() };
    db.create_keyspace(NAME, options).expect("a keyspace");
    let names = db.keyspace(NAME).expect("it is there");
    for port in [first.resp, second.resp] {
        let mut resp = Resp::connect(port).expect("connects");
        eventually("the keyspace is served", Duration::from_secs(30), || {
            let reply = ask(&mut resp, "SET b 1");
            if reply.is_ok() { Ok(()) } else { Err(format!("{reply:?}")) }
        });
    }

    for n in 0..600 {
        for kind in ["user", "other"] {
            let set = format!("SET {kind}:{}:{n:03} x", n % 2);
            assert!(ask(&mut resp, &set).is_ok(), "{set}");
        }
    }
    let expected: Vec<String> = (0..600).step_by(2).map(|n| format!("user:0:{n:03}")).collect();
    assert_eq!(texts(&ask(&mut resp, "KEYS user:0:*")), expected, "in order");
    assert_eq!(ask(&mut resp, "DBSIZE"), Reply::Integer(1201));
    let seen = names.get(b"user:0:002").expect("a read");
    assert_eq!(seen.as_deref(), Some(&b"x"[..]), "native clients see the same keys");
    assert_eq!(db.get(b"user:0:002").expect("a read"), None, "it is another keyspace");

    // Page by page, from one server and the other in turn, over a restart of one of them.
    let mut beside = Resp::connect(second.resp).expect("connects");
    let (mut found, mut cursor, mut other) = (Vec::new(), "0".to_owned(), Some(other));
    for page in 0.. {
        let line = format!("SCAN {cursor} MATCH user:0:* COUNT 7");
        let ask_one = |resp: &mut Resp| match ask(resp, &line) {
            Reply::Array(parts) => Ok(parts),
            refused => Err(format!("{refused:?}")),
        };
        let port = if page % 2 == 0 { &mut resp } else { &mut beside };
        let parts = eventually("a page", Duration::from_secs(60), || ask_one(port));
        let [Reply::Bulk(next), keys] = &parts[..] else { panic!("{parts:?}") };
        found.extend(texts(keys));
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            assert!(page > 8, "{page} pages");
            break;
        }
        if page == 4 {
            other.take().expect("it runs").kill();
            other = Some(second.start());
            beside = Resp::connect(second.resp).expect("connects");
            eventually("the keyspace is served again", Duration::from_secs(30), || {
                let reply = ask(&mut beside, "GET b");
                if matches!(reply, Reply::Error(_)) { Err(format!("{reply:?}")) } else { Ok(()) }
            });
        }
    }
    assert_eq!(found, expected, "each once, and in order");
    assert!(ask(&mut resp, "FLUSHDB").is_ok());
    assert_eq!(ask(&mut beside, "DBSIZE"), Reply::Integer(0));
    other.expect("it runs").stop();
    node.stop();
}

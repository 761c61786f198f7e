//! Two servers of one cluster, each of which serves every key to Redis clients: over a link to the
//! other one, wherever that is at the moment.

use timestone_server::{MasterPlace, Server, ServerConfig};

use crate::resp::{Reply, Resp};
use crate::running::{config, eventually};

const KEYS: usize = 40;

fn connect(server: &Server) -> Resp {
    Resp::connect(server.addresses().resp.unwrap()).unwrap()
}

fn call(redis: &mut Resp, command: &str) -> Reply {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    redis.call(&words).unwrap()
}

/// Whether a server knows a primary of every shard, and has a link to each of the others.
fn reaches_all(server: &Server) -> bool {
    let map = server.shard_map();
    let is_whole = map.shards().iter().all(|shard| !shard.primary.is_none());
    is_whole && call(&mut connect(server), "DBSIZE") != Reply::Nil
}

#[test]
fn a_server_that_comes_back_on_other_ports_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let master = ServerConfig { cluster_shards: Some(4), ..config(&first) };
    let one = Server::start(&master).unwrap();
    let joining = ServerConfig {
        master: MasterPlace::Remote(one.addresses().native.unwrap()),
        ..config(&second)
    };
    // Until somebody has the other half, its keys are refused at once, and no others.
    let mut redis = connect(&one);
    let answers: Vec<Reply> =
        (0..KEYS).map(|number| call(&mut redis, &format!("SET key/{number} one"))).collect();
    let is_refused = |reply: &&Reply| matches!(reply, Reply::Error(text) if text.starts_with("CLUSTERDOWN") && text.contains("no server yet"));
    let refused = answers.iter().filter(is_refused).count();
    let taken = answers.iter().filter(|reply| reply.is_ok()).count();
    assert!(refused > 5 && taken > 5 && refused + taken == KEYS, "{answers:?}");

    let two = Server::start(&joining).unwrap();
    eventually("both know all shards", || reaches_all(&one) && reaches_all(&two));
    for (redis, value) in [(&mut redis, "two"), (&mut connect(&two), "three")] {
        for number in 0..KEYS {
            let answer = call(redis, &format!("SET key/{number} {value}"));
            assert!(answer.is_ok(), "key/{number}: {answer:?}");
        }
        assert_eq!(call(redis, "DBSIZE"), Reply::Integer(KEYS as i64));
    }
    let before = two.addresses().native.unwrap();
    two.shutdown().unwrap();
    let two = Server::start(&joining).unwrap();
    assert_ne!(two.addresses().native.unwrap(), before, "port 0 is any");
    for number in 0..KEYS {
        let answer = call(&mut redis, &format!("GET key/{number}"));
        assert_eq!(answer, Reply::Bulk(b"three".to_vec()), "key/{number}");
    }
    assert_eq!(call(&mut connect(&two), "DBSIZE"), Reply::Integer(KEYS as i64));
    // In whatever order they end.
    one.shutdown().unwrap();
    two.shutdown().unwrap();
}

//! Commands that ask for much, and what others wait for meanwhile: a gateway serves all connections
//! of its thread, so the work of one command must not keep the others out for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use timestone_server::ServerConfig;

use crate::redis::{Redis, Reply};
use crate::running::{Running, config};

/// The longest that a PING waited while `act` went on.
fn longest_wait<T>(running: &Running, act: impl FnOnce() -> T) -> (Duration, T) {
    let over = Arc::new(AtomicBool::new(false));
    let mut client = Redis::connect(running);
    let seen = Arc::clone(&over);
    let pinging = std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        while !seen.load(Ordering::Relaxed) {
            let asked = Instant::now();
            assert_eq!(client.ask(b"PING"), Reply::Simple("PONG".to_owned()));
            longest = longest.max(asked.elapsed());
        }
        longest
    });
    let done = act();
    over.store(true, Ordering::Relaxed);
    (pinging.join().unwrap(), done)
}

/// So many words: a command and keys.
fn words(command: &str, keys: u32) -> Vec<Vec<u8>> {
    let keys = (0..keys).map(|n| format!("key:{n}").into_bytes());
    std::iter::once(command.as_bytes().to_vec()).chain(keys).collect()
}

fn send(client: &mut Redis, words: &[Vec<u8>]) {
    client.send(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

const OK: &str = "OK";

#[test]
fn nobody_waits_long_for_commands_that_ask_for_much() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&ServerConfig { shards: Some(4), ..config(folder.path()) });
    let mut waits = Vec::new();
    let mut note = |what: &'static str, act: &mut dyn FnMut(&mut Redis) -> Reply| {
        let mut client = Redis::connect(&running);
        let (longest, reply) = longest_wait(&running, || act(&mut client));
        waits.push((what, longest));
        reply
    };
    let ok = Reply::Simple(OK.to_owned());
    for first in (0..60_000u32).step_by(20_000) {
        let pairs = (first..first + 20_000)
            .flat_map(|n| [format!("key:{n}").into_bytes(), b"value".to_vec()]);
        let set: Vec<Vec<u8>> = std::iter::once(b"MSET".to_vec()).chain(pairs).collect();
        let reply = note("MSET of 20 000 keys", &mut |client| {
            send(client, &set);
            client.reply()
        });
        assert_eq!(reply, ok);
    }
    let watch = words("WATCH", 60_000);
    let reply = note("WATCH of 60 000 keys, twice, and EXEC", &mut |client| {
        for _ in 0..2 {
            send(client, &watch);
            assert_eq!(client.reply(), ok);
        }
        assert_eq!(client.ask(b"MULTI"), ok);
        client.ask(b"EXEC")
    });
    assert_eq!(reply, Reply::Array(Vec::new()));
    let reply = note("KEYS of 60 000 keys", &mut |client| client.ask(b"KEYS *9"));
    assert_eq!(
        reply,
        if let Reply::Array(keys) = &reply { Reply::Array(keys.clone()) } else { Reply::Nil }
    );
    let get = words("MGET", 60_000);
    let reply = note("MGET of 60 000 keys", &mut |client| {
        send(client, &get);
        client.reply()
    });
    let Reply::Array(values) = reply else { panic!("{reply:?}") };
    assert!(
        values.len() == 60_000
            && values.iter().all(|value| *value == Reply::Bulk(b"value".to_vec()))
    );
    let reply = note("EXEC of 200 000 INCR and 20 000 APPEND", &mut |client| {
        assert_eq!(client.ask(b"MULTI"), ok);
        for n in 0..220_000u32 {
            let name = format!("count:{}", n % 4);
            if n % 11 == 0 {
                client.send(&[b"APPEND", b"text", b"some more of it"]);
            } else {
                client.send(&[b"INCR", name.as_bytes()]);
            }
            if n % 1000 == 999 {
                (0..1000)
                    .for_each(|_| assert_eq!(client.reply(), Reply::Simple("QUEUED".to_owned())));
            }
        }
        client.ask(b"EXEC")
    });
    let Reply::Array(answers) = reply else { panic!("{reply:?}") };
    assert_eq!((answers.len(), answers.last()), (220_000, Some(&Reply::Integer(50_000))));
    let reply = note("a pipeline of 400 000 PINGs", &mut |client| {
        let reader = client.split(400_000, b"+PONG\r\n");
        (0..400).for_each(|_| client.send_raw(&b"PING\r\n".repeat(1000)));
        reader.join().unwrap();
        client.ask(b"PING")
    });
    assert_eq!(reply, Reply::Simple("PONG".to_owned()));
    let delete = words("DEL", 60_000);
    let reply = note("DEL of 60 000 keys", &mut |client| {
        send(client, &delete);
        client.reply()
    });
    assert_eq!(reply, Reply::Integer(60_000));
    for (what, longest) in waits {
        assert!(longest < Duration::from_millis(1500), "{what}: a PING waited {longest:?}");
    }
}

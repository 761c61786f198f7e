//! Clients that take memory: they do not read, stop in the middle, queue without end. The server's
//! resident memory stays within what it was given and a fifth more, others are served meanwhile,
//! and what was taken is given back.
//!
//! The sizes are such that each case took several times the bound before there was one.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use timestone::{ClientId, KeyspaceId};
use timestone_types::ClusterId;
use timestone_wire::{Envelope, Get, Hello, Message, ReadAt, RequestId, Role};

use crate::bad_input::{Bystander, encoded};
use crate::peer::Peer;
use crate::resp::{Reply, Resp};
use crate::restart::now;
use crate::server::{Node, NodeSetup, eventually, test_folder};

/// How long a command waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(6);
const MIB: usize = 1024 * 1024;
/// What the servers are given.
const MEMORY: u64 = 768 * MIB as u64;
/// What they may take.
const BOUND: u64 = MEMORY / 5 * 6;

fn place(folder: &tempfile::TempDir) -> NodeSetup {
    let place =
        NodeSetup::new(folder.path(), "node").with("--cache", "64MiB").with("--capacity", "2GiB");
    // The device's speed is not what is tested.
    place.with("--memory", &MEMORY.to_string()).with("--log", "none")
}

/// Runs a case while the server's memory is watched; the most that was seen. Ends the case at the
/// first sight of too much.
fn watched(node: &Node, case: impl FnOnce()) -> u64 {
    let pid = node.pid();
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let resident = Node::resident_bytes(pid).unwrap_or(0);
                most.fetch_max(resident, Ordering::Relaxed);
                if resident > BOUND {
                    // At once: the machine is not this test's alone.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case));
        over.store(true, Ordering::Relaxed);
        let resident = most.load(Ordering::Relaxed);
        assert!(resident <= BOUND, "{} MiB of {} MiB", resident / MIB as u64, BOUND / MIB as u64);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    let most = most.load(Ordering::Relaxed);
    println!("at most {} MiB of {} MiB", most / MIB as u64, BOUND / MIB as u64);
    most
}

/// What the server has given back when clients are gone: it is left with little more than its
/// cache.
fn gives_back(node: &Node) {
    eventually("memory given back", Duration::from_secs(20), || {
        let resident = Node::resident_bytes(node.pid()).unwrap_or(0) / MIB as u64;
        if resident < 400 { Ok(()) } else { Err(format!("{resident} MiB are kept")) }
    });
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn put(place: &NodeSetup, key: &[u8], bytes: usize) {
    let mut resp = Resp::connect(place.resp).expect("connects");
    let value = vec![b'x'; bytes];
    eventually("a value is written", Duration::from_secs(10), || {
        match resp.call(&[b"SET", key, &value]) {
            Ok(reply) if reply.is_ok() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

/// A connection that writes what it can without waiting for long.
fn pushing(place: &NodeSetup) -> TcpStream {
    let stream = TcpStream::connect(place.resp).expect("connects");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    stream
}

/// Writes as much of it as is taken.
fn push(stream: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) | Err(_) => return,
            Ok(written) => bytes = &bytes[written..],
        }
    }
}

#[test]
fn many_who_do_not_read_their_answers_take_no_more_than_the_bound() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    put(&place, b"k", MIB);
    let bystander = Bystander::watch(&place);
    watched(&node, || {
        let pipeline = command(&[b"GET", b"k"]).repeat(500);
        let mut deaf: Vec<TcpStream> = (0..200).map(|_| pushing(&place)).collect();
        deaf.iter_mut().for_each(|stream| push(stream, &pipeline));
        std::thread::sleep(Duration::from_secs(10));
    });
    bystander.finish();
    gives_back(&node);
    node.stop();
}

#[test]
fn one_who_asks_for_much_gets_it_all_and_the_memory_comes_back() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    put(&place, b"k", 16 * MIB);
    let bystander = Bystander::watch(&place);
    let asked = 48;
    watched(&node, || {
        let mut stream = TcpStream::connect(place.resp).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(&command(&[b"GET", b"k"]).repeat(asked)).expect("sends");
        // It begins to read late.
        std::thread::sleep(Duration::from_secs(2));
        let (mut left, mut buffer) =
            (asked * (16 * MIB + b"$16777216\r\n\r\n".len()), vec![0; MIB]);
        while left > 0 {
            let read = stream.read(&mut buffer).expect("the answers go on");
            assert!(read > 0, "the connection ended with {left} bytes to come");
            left -= read;
        }
    });
    bystander.finish();
    gives_back(&node);
    node.stop();
}

#[test]
fn commands_that_stop_in_the_middle_take_no_more_than_the_bound() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    let bystander = Bystander::watch(&place);
    watched(&node, || {
        let mut stalled: Vec<TcpStream> = (0..150).map(|_| pushing(&place)).collect();
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 16 * MIB);
        let body = vec![b'x'; 16 * MIB - 10];
        std::thread::scope(|scope| {
            for stream in &mut stalled {
                scope.spawn(|| {
                    push(stream, head.as_bytes());
                    push(stream, &body);
                });
            }
        });
        std::thread::sleep(MEMORY_TIMEOUT);
        // Who found no memory is told so, in words.
        let mut words = String::new();
        for stream in &mut stalled {
            stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            let mut bytes = [0; 256];
            if let Ok(read) = stream.read(&mut bytes)
                && read > 0
            {
                words = String::from_utf8_lossy(&bytes[..read]).into_owned();
                break;
            }
        }
        assert!(words.starts_with("-TRYAGAIN no memory"), "{words}");
        // Short commands go on.
        let mut resp = Resp::connect(place.resp).expect("connects");
        assert!(resp.call(&[b"SET", b"short", b"value"]).expect("an answer").is_ok());
    });
    bystander.finish();
    gives_back(&node);
    node.stop();
}

#[test]
fn commands_that_are_queued_take_no_more_than_the_bound() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    let bystander = Bystander::watch(&place);
    watched(&node, || {
        let value = vec![b'x'; MIB / 5];
        let (mut refused, mut told) = (0, String::new());
        let mut open = Vec::new();
        for client in 0..30 {
            let mut resp = Resp::connect(place.resp).expect("connects");
            assert!(resp.call(&[b"MULTI"]).expect("an answer").is_ok());
            for place in 0..600 {
                match resp.call(&[b"SET", format!("{client}-{place}").as_bytes(), &value]) {
                    Ok(Reply::Simple(text)) if text == "QUEUED" => {}
                    Ok(Reply::Error(text)) => {
                        assert!(text.starts_with("TRYAGAIN "), "{text}");
                        (refused, told) = (refused + 1, text);
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
            open.push(resp);
        }
        assert!(refused > 20, "{refused} of 30 were refused");
        // Nothing of a refused transaction is carried out. Whoever was told that his connection is
        // closed, as his command was not even received, has one that is.
        let last = open.last_mut().expect("there are some");
        match last.call(&[b"EXEC"]) {
            Ok(Reply::Error(text)) => {
                assert!(text.starts_with("EXECABORT"), "{text}, after {told}")
            }
            Ok(other) => panic!("{other:?}, after {told}"),
            Err(error) => {
                assert!(told.contains("the connection is closed"), "{error}, after {told}")
            }
        }
        // Who gives up makes room for others.
        open.clear();
        eventually("room for another transaction", Duration::from_secs(5), || {
            let mut resp = Resp::connect(place.resp).map_err(|error| error.to_string())?;
            let answers = [&[&b"MULTI"[..]][..], &[b"SET", b"a", &value], &[b"EXEC"]]
                .map(|words| resp.call(words));
            if matches!(&answers[2], Ok(Reply::Array(_))) {
                Ok(())
            } else {
                Err(format!("{answers:?}"))
            }
        });
    });
    bystander.finish();
    gives_back(&node);
    node.stop();
}

/// Each command is 40 bytes long, and makes 16 MiB.
#[test]
fn values_that_short_commands_make_take_no_more_than_the_bound() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    let bystander = Bystander::watch(&place);
    let made = 60;
    watched(&node, || {
        let last = (16 * MIB - 1).to_string();
        let names: Vec<String> = (0..made).map(|n| format!("k{n}")).collect();
        let commands: Vec<Vec<&[u8]>> = names
            .iter()
            .map(|name| vec![&b"SETRANGE"[..], name.as_bytes(), last.as_bytes(), b"x"])
            .collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        let mut stream = TcpStream::connect(place.resp).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // Answers are expected to be short from then on, so that all of the commands start at once.
        stream.write_all(&command(&[b"GET", b"nope"]).repeat(200)).expect("sends");
        let mut short = vec![0; 200 * b"$-1\r\n".len()];
        stream.read_exact(&mut short).expect("the answers");
        stream.write_all(&bytes).expect("sends");
        let (mut answers, mut buffer) = (Vec::new(), vec![0; 4096]);
        while answers.iter().filter(|&&byte| byte == b'\n').count() < made {
            let read = stream.read(&mut buffer).expect("the answers go on");
            assert!(read > 0, "the connection ended after {}", answers.escape_ascii());
            answers.extend_from_slice(&buffer[..read]);
        }
        let text = String::from_utf8_lossy(&answers);
        let all: Vec<&str> = text.lines().collect();
        let done = all.iter().filter(|line| **line == ":16777216").count();
        let told = all.iter().filter(|line| line.starts_with("-TRYAGAIN ")).count();
        assert!(done > 0 && done + told == made, "{done} done, {told} told: {text}");
        println!("{done} of {made} were made");
    });
    bystander.finish();
    gives_back(&node);
    node.stop();
}

#[test]
fn native_clients_who_do_not_read_take_no_more_than_the_bound() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    put(&place, b"k", MIB);
    let peer = Peer::connect(place.native);
    let shard = peer.map.shard_of_key(b"k");
    let epoch = peer.map.epoch(shard).expect("an epoch");
    let bystander = Bystander::watch(&place);
    watched(&node, || {
        let mut bytes = encoded(
            &Hello::new(Role::Client, ClusterId::ZERO, ClientId::ZERO, "deaf"),
            Envelope::default(),
        );
        for round in 0..500 {
            let at = ReadAt::Latest(now());
            let get = Get {
                keyspace: KeyspaceId::DEFAULT,
                at,
                client: peer.client,
                wait: true,
                key: b"k",
            };
            let envelope = Envelope {
                shard,
                epoch,
                request: RequestId::new(round + 1),
                map_version: peer.map.version(),
            };
            get.encode(&envelope, &mut bytes);
        }
        let connect = || {
            let stream = TcpStream::connect(place.native).expect("connects");
            stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
            stream
        };
        let mut deaf: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
        deaf.iter_mut().for_each(|stream| push(stream, &bytes));
        std::thread::sleep(Duration::from_secs(10));
        // They have answers waiting.
        let mut first = [0; 4];
        deaf[0].set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        deaf[0].read_exact(&mut first).expect("an answer");
    });
    bystander.finish();
    gives_back(&node);
    node.stop();
}

/// Whoever reads nothing at all is closed in the end, and the log says why.
#[test]
fn who_reads_nothing_for_long_is_closed() {
    let folder = test_folder();
    let place = place(&folder);
    let node = place.start();
    put(&place, b"k", 16 * MIB);
    let mut stream = pushing(&place);
    push(&mut stream, &command(&[b"GET", b"k"]).repeat(8));
    eventually("the reason in the log", Duration::from_secs(60), || {
        let text = node.text();
        if text.contains("has read nothing for 30") {
            Ok(())
        } else {
            Err("it says nothing of it".to_owned())
        }
    });
    let begun = Instant::now();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    assert!(begun.elapsed() < Duration::from_secs(5) && rest.len() < 8 * 16 * MIB);
    node.stop();
}

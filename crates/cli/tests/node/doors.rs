//! Doors that are tried rarely: no descriptor is left for another connection, a client reads
//! nothing when the server ends, and a second signal comes during a shutdown.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::resp::{Reply, Resp};
use crate::server::{END_TIMEOUT, NodeSetup, eventually, test_folder};

fn readyz(http: SocketAddr) -> String {
    let mut stream = TcpStream::connect(http).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("sends");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .unwrap_or_else(|error| panic!("no answer ({error}) after {answer:?}"));
    answer
}

fn open_descriptors(pid: Pid) -> u64 {
    let listed =
        std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("our own child");
    listed.count() as u64
}

#[test]
fn who_finds_no_descriptor_waits_and_the_health_check_is_answered() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let node = place.start();
    let mut before = Resp::connect(place.resp).expect("connects");
    eventually("a write", Duration::from_secs(10), || match before.call(&[b"SET", b"k", b"v"]) {
        Ok(reply) if reply.is_ok() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Room for three more. The limit that the process was started with sizes its tables; this one
    // is the system's alone.
    let limits = getrlimit(Resource::Nofile);
    let few = Rlimit { current: Some(open_descriptors(node.pid()) + 3), maximum: limits.maximum };
    prlimit(Some(node.pid()), Resource::Nofile, few).expect("our own child");
    let mut crowd: Vec<Resp> = (0..12).filter_map(|_| Resp::connect(place.resp).ok()).collect();
    assert_eq!(crowd.len(), 12, "the system takes them on the server's behalf");
    eventually("the shortage is told", Duration::from_secs(10), || {
        match node.text().matches("Cannot accept").count() {
            0 => Err(node.text()),
            _ => Ok(()),
        }
    });
    // Whoever was there is served, and so is whoever asks how the process is.
    for _ in 0..3 {
        assert_eq!(before.call(&[b"GET", b"k"]).expect("an answer"), Reply::Bulk(b"v".to_vec()));
        let answer = readyz(place.http);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        std::thread::sleep(Duration::from_millis(300));
    }
    let told = node.text().matches("Cannot accept").count();
    assert!(told == 1, "told {told} times within seconds:\n{}", node.text());
    // There is room again: those that waited are accepted, without another attempt of theirs.
    prlimit(Some(node.pid()), Resource::Nofile, limits).expect("our own child");
    for resp in &mut crowd {
        assert_eq!(resp.call(&[b"GET", b"k"]).expect("an answer"), Reply::Bulk(b"v".to_vec()));
    }
    node.stop();
}

/// A client that asks for long answers, for much more behind them, and reads nothing.
fn deaf(place: &NodeSetup, client: &mut Resp) -> TcpStream {
    let long = vec![b'x'; 8 << 20];
    eventually("a write", Duration::from_secs(10), || {
        match client.call(&[b"SET", b"long", &long]) {
            Ok(reply) if reply.is_ok() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let mut deaf = TcpStream::connect(place.resp).expect("connects");
    deaf.write_all(b"GET long\r\n".repeat(3).as_slice()).expect("sends");
    deaf.write_all(b"INCR behind\r\n".repeat(20_000).as_slice()).expect("sends");
    deaf
}

/// Whoever reads nothing keeps nobody's server from ending, and loses only what nobody was told of.
#[test]
fn a_server_ends_beside_a_client_that_reads_nothing() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "node");
    let mut node = place.start();
    let mut client = Resp::connect(place.resp).expect("connects");
    let deaf = deaf(&place, &mut client);
    let native = place.connect();
    for number in 0..100u32 {
        assert!(
            client
                .call(&[b"SET", format!("k{number}").as_bytes(), b"v"])
                .expect("an answer")
                .is_ok()
        );
        native.put(format!("n{number}").as_bytes(), b"v").expect("written");
    }
    let begun = Instant::now();
    node.signal(Signal::TERM);
    let status = node.ended(END_TIMEOUT);
    let took = begun.elapsed();
    assert!(status.success(), "{status}:\n{}", node.text());
    // It is two seconds by itself; the machine may have other things to do.
    assert!(took < Duration::from_secs(12), "{took:?}:\n{}", node.text());
    drop((deaf, native));
    let again = place.start();
    let mut client = Resp::connect(place.resp).expect("connects");
    for number in 0..100u32 {
        let found = client.call(&[
            b"MGET",
            format!("k{number}").as_bytes(),
            format!("n{number}").as_bytes(),
        ]);
        let all = vec![Reply::Bulk(b"v".to_vec()); 2];
        assert_eq!(found.expect("an answer"), Reply::Array(all), "{number}");
    }
    again.stop();
}

#[test]
fn a_second_signal_ends_a_shutdown_at_once_and_loses_nothing() {
    for (first, second) in [(Signal::TERM, Signal::INT), (Signal::INT, Signal::TERM)] {
        let folder = test_folder();
        let place = NodeSetup::new(folder.path(), "node");
        let mut node = place.start();
        let db = place.connect();
        db.put(b"k", b"v").expect("written");
        // Who reads nothing makes the shutdown last for two seconds, so that the second signal
        // comes before it is over.
        let deaf = deaf(&place, &mut Resp::connect(place.resp).expect("connects"));
        // Both arrive at once: the process stands still meanwhile.
        node.signal(Signal::STOP);
        node.signal(first);
        node.signal(second);
        let begun = Instant::now();
        node.signal(Signal::CONT);
        let status = node.ended(END_TIMEOUT);
        assert_eq!(status.code(), Some(130), "{}", node.text());
        assert!(
            !node.text().contains("stopped"),
            "it did not wait for its stages:\n{}",
            node.text()
        );
        println!("ended within {:?}", begun.elapsed());
        drop((db, deaf));
        let again = place.start();
        assert_eq!(place.connect().get(b"k").expect("read").as_deref(), Some(&b"v"[..]));
        again.stop();
    }
}

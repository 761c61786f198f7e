//! Redis clients that have sent everything that they will ever send, and wait for the rest of their
//! answers: `… | nc -N host port`.

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use timestone_clock::{Clock, SystemClock};
use timestone_types::{ClientId, Expiry, KeyspaceId, Sequence, ShardId, TxnId};
use timestone_wire::{
    self as wire, Frame, Message, PrepareHead, PrepareWriter, Verdict, WriteEntry, WriteKind,
};

use crate::repeats::Socket;
use crate::running::{Running, config};

/// More than may be under way at once on one connection: most of them wait behind the first.
const BEHIND: usize = 1000;

/// What a client reads that asks for a key whose writer is silent for seconds, and then for much
/// else, and says that this was all; and how often it was counted up behind the read.
fn asked_and_half_closed() -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&timestone_server::ServerConfig {
        shards: Some(1),
        ..config(folder.path())
    });
    let mut writer = Socket::connect(&running, ClientId::ZERO);
    loop {
        let begin = SystemClock::new().now();
        let (txn, commit) = (TxnId::new(writer.client, Sequence::new(1)), begin.next());
        let head = PrepareHead {
            txn,
            begin,
            commit,
            single: false,
            wait: true,
            participants: &[ShardId::ZERO],
        };
        let mut bytes = Vec::new();
        let mut prepare = PrepareWriter::begin(&writer.envelope, &head, &mut bytes);
        let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
        prepare.write(&WriteEntry { keyspace, kind, expires_at, key: b"key", value: b"promised" });
        prepare.finish();
        let verdict = writer.ask_bytes(&bytes, |frame: &Frame<'_>| {
            wire::Vote::decode(frame).map(|vote| vote.verdict)
        });
        if verdict == Ok(Verdict::Yes) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut client = TcpStream::connect(running.server.addresses().resp.unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    client.write_all(format!("GET key\r\n{}", "INCR n\r\n".repeat(BEHIND)).as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut read = String::new();
    client.read_to_string(&mut read).unwrap();
    let mut other = crate::redis::Redis::connect(&running);
    let counted = match other.ask(b"GET n") {
        crate::redis::Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        reply => format!("{reply:?}"),
    };
    running.server.shutdown().unwrap();
    (read, counted)
}

#[test]
fn who_says_that_this_was_all_is_answered_everything_however_long_it_takes() {
    let (read, counted) = asked_and_half_closed();
    let counts: String = (1..=BEHIND).map(|count| format!(":{count}\r\n")).collect();
    assert_eq!(read, format!("$8\r\npromised\r\n{counts}"));
    assert_eq!(counted, BEHIND.to_string());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_client_that_is_cut_off_a_while_after_its_last_word_loses_commands() {
    timestone_server::planted::set(Some(timestone_server::planted::Bug::CutsHalfClosed));
    let (read, counted) = asked_and_half_closed();
    timestone_server::planted::set(None);
    assert!(read.is_empty() && counted != BEHIND.to_string(), "{} bytes, {counted}", read.len());
}

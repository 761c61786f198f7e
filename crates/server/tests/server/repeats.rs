//! A write whose answer was lost, asked again: what is told is the first copy's outcome, the
//! previous value included, whatever happened to the key, to the pages and to the server in
//! between.
//!
//! The client here is a socket that writes frames, because no client of ours asks again what it has
//! been told.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use timestone_clock::{Clock, SystemClock};
use timestone_cluster::MapVersion;
use timestone_server::{ServerConfig, SizeConfig};
use timestone_types::{
    AbortKind, ClientId, ClusterId, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId,
    Version,
};
use timestone_wire::{
    self as wire, Condition, Envelope, ErrorCode, Frame, Kind, Message, RequestId, Role, Verdict,
    WriteAction,
};

use crate::running::{Running, config};

const KEY: &[u8] = b"key";
const SHARD: ShardId = ShardId::ZERO;

/// A client that decides itself what it sends, and how often.
pub(crate) struct Socket {
    stream: TcpStream,
    received: Vec<u8>,
    pub(crate) envelope: Envelope,
    pub(crate) client: ClientId,
}

/// What a write was answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    Written { commit: Timestamp, verdict: Verdict, previous: Option<Vec<u8>>, version: Version },
    Refused(ErrorCode),
}

impl Told {
    fn previous(&self) -> Option<&[u8]> {
        let Self::Written { previous, .. } = self else { panic!("{self:?}") };
        previous.as_deref()
    }

    fn verdict(&self) -> Verdict {
        let Self::Written { verdict, .. } = self else { panic!("{self:?}") };
        *verdict
    }
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

/// A server with one shard.
fn one_shard(data: &std::path::Path) -> ServerConfig {
    ServerConfig { shards: Some(1), ..config(data) }
}

impl Socket {
    pub(crate) fn connect(running: &Running, client: ClientId) -> Self {
        let stream = TcpStream::connect(running.server.addresses().native.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let envelope = Envelope { request: RequestId::new(1), ..Envelope::default() };
        let mut socket = Self { stream, received: Vec::new(), envelope, client };
        let hello = wire::Hello::new(Role::Client, ClusterId::new(0), client, "repeats");
        let (client, shard, version) = socket.ask(&hello, |frame| {
            let welcome = wire::Welcome::decode(frame).unwrap();
            let map = welcome.shard_map().unwrap();
            (welcome.client, map.shards()[0].clone(), map.version())
        });
        socket.client = client;
        socket.envelope = Envelope {
            shard: shard.id,
            epoch: shard.epoch,
            request: RequestId::new(2),
            map_version: version,
        };
        assert_eq!((shard.id, version > MapVersion::ZERO), (SHARD, true));
        socket
    }

    pub(crate) fn ask<'a, T>(
        &mut self,
        message: &impl Message<'a>,
        read: impl FnOnce(&Frame<'_>) -> T,
    ) -> T {
        let mut bytes = Vec::new();
        message.encode(&self.envelope, &mut bytes);
        self.ask_bytes(&bytes, read)
    }

    /// Sends a frame as it is, and reads the answer.
    pub(crate) fn ask_bytes<T>(&mut self, frame: &[u8], read: impl FnOnce(&Frame<'_>) -> T) -> T {
        self.stream.write_all(frame).unwrap();
        let mut chunk = [0; 65536];
        loop {
            if let Some((frame, rest)) = Frame::split(wire::without_clock(&self.received)).unwrap()
            {
                let (answer, left) = (read(&frame), rest.to_vec());
                self.received = left;
                return answer;
            }
            let bytes = self.stream.read(&mut chunk).unwrap();
            assert!(bytes > 0, "the server hung up");
            self.received.extend_from_slice(&chunk[..bytes]);
        }
    }

    fn tell<'a>(&mut self, message: &impl Message<'a>) {
        let mut bytes = Vec::new();
        // Without a request number, as nobody waits for an answer.
        let envelope = Envelope { request: RequestId::NONE, ..self.envelope };
        message.encode(&envelope, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// A write of the key that asks for what was there before.
    fn write(
        &self,
        sequence: u64,
        action: WriteAction,
        value: &'static [u8],
    ) -> wire::Write<'static> {
        let begin = now();
        wire::Write {
            txn: TxnId::new(self.client, Sequence::new(sequence)),
            begin,
            commit: begin.next(),
            keyspace: KeyspaceId::DEFAULT,
            action,
            wait: true,
            return_previous: true,
            expires_at: Expiry::NEVER,
            condition: Condition::Always,
            key: KEY,
            value,
        }
    }

    /// Sends a write as often as the answer is a later timestamp; the copy that was carried out,
    /// and its answer.
    fn carry_out(&mut self, mut write: wire::Write<'static>) -> (wire::Write<'static>, Told) {
        loop {
            match self.send(&write) {
                Told::Written { verdict: Verdict::Later(at), .. } => write.commit = at,
                Told::Refused(ErrorCode::Unavailable | ErrorCode::Busy) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                told => return (write, told),
            }
        }
    }

    fn send(&mut self, write: &wire::Write<'static>) -> Told {
        self.ask(write, |frame| match frame.kind() {
            Kind::Written => {
                let written = wire::Written::decode(frame).unwrap();
                assert_eq!(written.txn, write.txn);
                Told::Written {
                    commit: written.commit,
                    verdict: written.verdict,
                    previous: written.previous_present.then(|| written.previous_value.to_vec()),
                    version: written.previous_version,
                }
            }
            _ => Told::Refused(wire::ErrorReply::decode(frame).unwrap().code),
        })
    }

    fn report(&mut self, acked: u64) {
        let (client, acked) = (self.client, Sequence::new(acked));
        self.tell(&wire::Report { client, watermark: now(), acked, now: now(), closing: false });
    }
}

/// The same answer as the first time, previous value and all.
fn same(first: &Told, again: &Told) {
    assert_eq!(first, again, "a repeat gets the first answer");
}

#[test]
fn a_repeated_take_returns_what_the_first_copy_took() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&one_shard(folder.path()));
    let mut socket = Socket::connect(&running, ClientId::ZERO);
    socket.carry_out(socket.write(1, WriteAction::Put, b"treasure"));
    let (take, first) = socket.carry_out(socket.write(2, WriteAction::Delete, b""));
    assert_eq!(first.previous(), Some(&b"treasure"[..]));
    same(&first, &socket.send(&take));
    // Whatever becomes of the key afterwards.
    socket.carry_out(socket.write(3, WriteAction::Put, b"another"));
    same(&first, &socket.send(&take));
    // Acknowledged: nobody may ask again.
    socket.report(4);
    assert_eq!(socket.send(&take), Told::Refused(ErrorCode::SessionEnded));
}

#[test]
fn a_repeated_put_returns_what_was_there_before_it_and_not_itself() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&one_shard(folder.path()));
    let mut socket = Socket::connect(&running, ClientId::ZERO);
    let (put, first) = socket.carry_out(socket.write(1, WriteAction::Put, b"one"));
    assert_eq!(first.previous(), None);
    same(&first, &socket.send(&put));
    let (put, first) = socket.carry_out(socket.write(2, WriteAction::Put, b"two"));
    assert_eq!(first.previous(), Some(&b"one"[..]));
    same(&first, &socket.send(&put));
}

#[test]
fn what_had_not_expired_for_the_first_copy_has_not_for_a_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&one_shard(folder.path()));
    let mut socket = Socket::connect(&running, ClientId::ZERO);
    let expires_at = Expiry::at(now().saturating_add(Duration::from_millis(300)));
    socket.carry_out(wire::Write { expires_at, ..socket.write(1, WriteAction::Put, b"short") });
    let (take, first) = socket.carry_out(socket.write(2, WriteAction::Delete, b""));
    assert_eq!(first.previous(), Some(&b"short"[..]));
    std::thread::sleep(Duration::from_millis(400));
    same(&first, &socket.send(&take));
}

#[test]
fn a_repeated_condition_that_failed_is_told_with_what_it_met() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&one_shard(folder.path()));
    let mut socket = Socket::connect(&running, ClientId::ZERO);
    socket.carry_out(socket.write(1, WriteAction::Put, b"one"));
    let set =
        wire::Write { condition: Condition::IfAbsent, ..socket.write(2, WriteAction::Put, b"two") };
    let (set, first) = socket.carry_out(set);
    assert!(
        matches!(first.verdict(), Verdict::No(reason) if reason.kind == AbortKind::Condition),
        "{first:?}"
    );
    assert_eq!(first.previous(), Some(&b"one"[..]));
    socket.carry_out(socket.write(3, WriteAction::Delete, b""));
    same(&first, &socket.send(&set));
    // A delete of nothing is done, and found nothing, whatever came later.
    let (delete, first) = socket.carry_out(socket.write(4, WriteAction::Delete, b""));
    assert_eq!((first.verdict(), first.previous()), (Verdict::Yes, None));
    socket.carry_out(socket.write(5, WriteAction::Put, b"three"));
    same(&first, &socket.send(&delete));
}

/// The same requests to the server's next life.
fn restarted(
    running: Running,
    config: &ServerConfig,
    client: ClientId,
    graceful: bool,
) -> (Running, Socket) {
    if graceful {
        running.server.shutdown().unwrap();
    } else {
        drop(running);
    }
    let running = Running::start(config);
    let socket = Socket::connect(&running, client);
    (running, socket)
}

#[test]
fn a_restart_changes_nothing_about_what_a_repeat_is_told() {
    for graceful in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let config = one_shard(folder.path());
        let running = Running::start(&config);
        let mut socket = Socket::connect(&running, ClientId::ZERO);
        socket.carry_out(socket.write(1, WriteAction::Put, b"treasure"));
        let take = socket.carry_out(socket.write(2, WriteAction::Delete, b""));
        let nothing = socket.carry_out(socket.write(3, WriteAction::Delete, b""));
        let put = socket.carry_out(socket.write(4, WriteAction::Put, b"one"));
        let new = wire::Write {
            condition: Condition::IfAbsent,
            ..socket.write(5, WriteAction::Put, b"two")
        };
        let new = socket.carry_out(new);
        socket.carry_out(socket.write(6, WriteAction::Put, b"three"));
        let expires_at = Expiry::at(now().saturating_add(Duration::from_millis(100)));
        socket.carry_out(wire::Write { expires_at, ..socket.write(7, WriteAction::Put, b"short") });
        let short = socket.carry_out(socket.write(8, WriteAction::Delete, b""));
        assert!(
            matches!(new.1.verdict(), Verdict::No(reason) if reason.kind == AbortKind::Condition)
        );
        assert_eq!(
            (new.1.previous(), short.1.previous()),
            (Some(&b"one"[..]), Some(&b"short"[..]))
        );
        std::thread::sleep(Duration::from_millis(150));

        let client = socket.client;
        let (running, mut socket) = restarted(running, &config, client, graceful);
        let told = [take, nothing, put, new, short];
        for (write, first) in &told {
            same(first, &socket.send(write));
        }
        // And once more: what the log held was read, and is held by another one.
        let (_running, mut socket) = restarted(running, &config, client, !graceful);
        for (write, first) in &told {
            same(first, &socket.send(write));
        }
    }
}

/// Others report at once after a restart. A client that comes back later than they do is told what
/// it would have been told before.
#[test]
fn whoever_comes_back_late_after_a_restart_is_told_the_first_answer_all_the_same() {
    for graceful in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let config = one_shard(folder.path());
        let running = Running::start(&config);
        let mut socket = Socket::connect(&running, ClientId::ZERO);
        // The watermark has risen by now, and follows the clock.
        std::thread::sleep(Duration::from_millis(1500));
        socket.carry_out(socket.write(1, WriteAction::Put, b"treasure"));
        let (take, first) = socket.carry_out(socket.write(2, WriteAction::Delete, b""));
        let late = socket.write(3, WriteAction::Put, b"sent and not arrived");
        let client = socket.client;
        let (running, socket) = restarted(running, &config, client, graceful);
        drop(socket);
        running.inside.put(b"other", b"a session that reports").unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        let mut socket = Socket::connect(&running, client);
        same(&first, &socket.send(&take));
        let (_, told) = socket.carry_out(late);
        assert_eq!(told.verdict(), Verdict::Yes, "it is carried out, for it never was");
    }
}

/// Changes a byte wherever this text lies in the file.
fn damage(file: &std::path::Path, text: &[u8]) -> usize {
    let mut bytes = std::fs::read(file).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - text.len()).filter(|&at| bytes[at..].starts_with(text)).collect();
    for &at in &places {
        bytes[at] ^= 1;
    }
    std::fs::write(file, bytes).unwrap();
    places.len()
}

#[test]
fn a_repeat_is_told_its_outcome_even_if_the_page_cannot_be_read_any_more() {
    const VALUE: &[u8] = b"a value that is found again in the file";
    let folder = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        sizes: SizeConfig { capacity_bytes: Some(64 << 20), ..SizeConfig::default() },
        ..one_shard(folder.path())
    };
    let running = Running::start(&config);
    let mut socket = Socket::connect(&running, ClientId::ZERO);
    socket.carry_out(socket.write(1, WriteAction::Put, b"one"));
    let put = wire::Write {
        condition: Condition::IfPresent,
        return_previous: false,
        ..socket.write(2, WriteAction::Put, VALUE)
    };
    let (put, first) = socket.carry_out(put);
    assert_eq!(first.verdict(), Verdict::Yes);
    let client = socket.client;
    running.server.shutdown().unwrap();
    assert!(damage(&folder.path().join("shard-0000/flash"), VALUE) > 0);

    let running = Running::start(&config);
    let mut socket = Socket::connect(&running, client);
    let (_, again) = socket.carry_out(put);
    assert_eq!(again.verdict(), Verdict::Yes, "it took place");
    // A new one that has to look at the page is not carried out, and says so.
    let new = wire::Write {
        condition: Condition::IfPresent,
        ..socket.write(3, WriteAction::Put, b"three")
    };
    assert_eq!(socket.carry_out(new).1, Told::Refused(ErrorCode::Corrupt));
}

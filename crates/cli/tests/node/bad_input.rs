//! Bad input of every kind: a clear error that says what to do, nothing lost, and others served
//! meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use timestone::blocking::Db;
use timestone::{ClientId, Error, ErrorCode, KeyspaceId};
use timestone_types::limits::{
    MAX_CLOCK_LEAD, MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_KEYS, MAX_VALUE_BYTES,
};
use timestone_types::{ClusterId, Epoch, Sequence, ShardId, TxnId};
use timestone_wire::{
    Done, Envelope, FetchWriteSet, Get, Hello, Kind, Message, Ping, PrepareHead, ProtocolVersion,
    ReadAt, RequestId, Role, Verdict,
};

use crate::peer::{Peer, Raw};
use crate::resp::{Reply, Resp};
use crate::restart::now;
use crate::server::{Node, NodeSetup, test_folder};

/// Another client, which goes on working and must not notice.
pub(crate) struct Bystander {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<(u64, Duration)>>,
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Bystander {
    pub(crate) fn watch(place: &NodeSetup) -> Self {
        let (db, stop) = (place.connect(), Arc::new(AtomicBool::new(false)));
        let rounds = Arc::new(AtomicU64::new(0));
        let (told, served) = (Arc::clone(&stop), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            let (mut rounds, mut slowest) = (0, Duration::ZERO);
            while !told.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let text = rounds.to_string();
                db.put(b"bystander", text.as_bytes()).expect("the bystander's put");
                assert_eq!(
                    db.get(b"bystander").expect("the bystander's get").as_deref(),
                    Some(text.as_bytes())
                );
                slowest = slowest.max(begun.elapsed());
                rounds += 1;
                served.store(rounds, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            (rounds, slowest)
        });
        Self { stop, rounds, thread: Some(thread) }
    }

    /// It was served all the time.
    pub(crate) fn finish(mut self) {
        // Right after a start writes wait until the clock has passed the read bound of the run
        // before.
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.rounds.load(Ordering::Relaxed) <= 5 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        let (rounds, slowest) = thread.join().expect("the bystander was disturbed");
        assert!(rounds > 5, "the bystander was served {rounds} times only");
        assert!(slowest < Duration::from_secs(3), "the bystander had to wait for {slowest:?}");
    }
}

pub(crate) fn assert_words(what: &str, text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{what}: '{word}' is missing in: {text}");
    }
}

pub(crate) fn fresh() -> (tempfile::TempDir, NodeSetup) {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    (folder, place)
}

pub(crate) fn encoded<'a>(message: &impl Message<'a>, envelope: Envelope) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&envelope, &mut bytes);
    bytes
}

fn hello() -> Hello<'static> {
    Hello::new(Role::Tool, ClusterId::ZERO, ClientId::ZERO, "node test")
}

pub(crate) fn with_byte(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    bytes[at] = byte;
    bytes
}

fn with_length(mut bytes: Vec<u8>, length: u32) -> Vec<u8> {
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// What strangers and broken programs send to the native port: an error frame with a code and
/// words, then the end.
#[test]
fn malformed_frames_are_answered_and_cut_off() {
    let (_folder, place) = fresh();
    let node = place.start();
    let bystander = Bystander::watch(&place);
    let good = encoded(&hello(), Envelope::default());
    let other_version = Hello { least: ProtocolVersion(98), most: ProtocolVersion(99), ..hello() };
    let other_cluster = Hello { cluster: ClusterId::new(0xbad), ..hello() };
    let ping = encoded(&Ping {}, Envelope { request: RequestId::new(7), ..Envelope::default() });

    let first: Vec<(&str, Vec<u8>, ErrorCode, &[&str])> = vec![
        (
            "garbage",
            vec![0xff; 64],
            ErrorCode::Malformed,
            &["no frame of Timestone's native protocol"],
        ),
        ("zeros", vec![0; 64], ErrorCode::Malformed, &["no frame"]),
        (
            "TLS",
            [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 200]].concat(),
            ErrorCode::Malformed,
            &["no frame"],
        ),
        ("a request before the hello", ping.clone(), ErrorCode::Malformed, &["no frame"]),
        (
            "a hello with another magic",
            with_byte(good.clone(), 24, b'X'),
            ErrorCode::Malformed,
            &["hello"],
        ),
        (
            "a hello that lies about its length",
            with_length(good.clone(), good.len() as u32 - 1),
            ErrorCode::Malformed,
            &[],
        ),
        (
            "another version",
            encoded(&other_version, Envelope::default()),
            ErrorCode::VersionMismatch,
            &["98", "99", "3"],
        ),
        (
            "another cluster",
            encoded(&other_cluster, Envelope::default()),
            ErrorCode::WrongCluster,
            &["bad", "check the address"],
        ),
    ];
    for (what, bytes, code, words) in first {
        let mut raw = Raw::connect(place.native).expect("connects");
        raw.send(&bytes).expect("sends");
        let frames = raw
            .until_closed()
            .unwrap_or_else(|error| panic!("{what}: the connection is not closed: {error}"));
        assert_eq!(frames.len(), 1, "{what}: {frames:?}");
        let (got, text) = frames[0].refusal();
        assert_eq!(got, code, "{what}: {text}");
        assert_words(what, &text, words);
    }

    let greeted = |bytes: &[u8]| {
        let mut raw = Raw::connect(place.native).expect("connects");
        raw.send(&good).expect("sends");
        assert_eq!(raw.receive().expect("a welcome").frame().kind(), Kind::Welcome);
        raw.send(bytes).expect("sends");
        raw
    };
    let later: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("a frame that is too long", with_length(ping.clone(), u32::MAX), &[]),
        ("a frame that is too short", with_length(ping.clone(), 3), &[]),
        ("an unknown kind", with_byte(ping.clone(), 4, 77), &[]),
        ("unknown flags", with_byte(ping.clone(), 5, 0x80), &[]),
    ];
    for (what, bytes, words) in later {
        let frames = greeted(&bytes)
            .until_closed()
            .unwrap_or_else(|error| panic!("{what}: not closed: {error}"));
        assert_eq!(frames.len(), 1, "{what}: {frames:?}");
        let (code, text) = frames[0].refusal();
        assert_eq!(code, ErrorCode::Malformed, "{what}: {text}");
        assert_words(what, &text, words);
    }

    // A body that cannot be read, or a shard that is not here: refused by itself, the connection
    // goes on.
    let map = Peer::connect(place.native).map;
    let epoch = map.epoch(ShardId::ZERO).unwrap_or(Epoch::ZERO);
    let here = Envelope {
        shard: ShardId::ZERO,
        epoch,
        request: RequestId::new(9),
        map_version: map.version(),
    };
    let get = Get {
        keyspace: KeyspaceId::DEFAULT,
        at: ReadAt::Latest(now()),
        client: ClientId::new(1),
        wait: false,
        key: b"key",
    };
    let whole = encoded(&get, here);
    let cut = with_length(whole[..whole.len() - 2].to_vec(), whole.len() as u32 - 2);
    let alone: Vec<(&str, Vec<u8>, ErrorCode)> = vec![
        ("a body that is cut short", cut, ErrorCode::Malformed),
        ("a time that is none", with_byte(whole.clone(), 28, 9), ErrorCode::Malformed),
        (
            "a shard that does not exist",
            encoded(&get, Envelope { shard: ShardId::new(999), ..here }),
            ErrorCode::WrongShard,
        ),
        (
            "an epoch of long ago",
            encoded(&get, Envelope { epoch: Epoch::ZERO, ..here }),
            ErrorCode::StaleEpoch,
        ),
    ];
    for (what, bytes, code) in alone {
        let mut raw = greeted(&bytes);
        let (got, text) = raw.receive().unwrap_or_else(|error| panic!("{what}: {error}")).refusal();
        assert_eq!(got, code, "{what}: {text}");
        raw.send(&encoded(&Ping {}, here)).expect("sends");
        let answer =
            raw.receive().unwrap_or_else(|error| panic!("{what}: the connection is gone: {error}"));
        assert!(Done::decode(&answer.frame()).is_ok(), "{what}");
    }

    // What a shard of another server wants from a client, and asks this one: left to the client,
    // and not refused.
    let wanted =
        FetchWriteSet { txn: TxnId::new(ClientId::new(1), Sequence::new(1)), commit: now() };
    let mut raw = greeted(&encoded(&wanted, Envelope { shard: ShardId::new(999), ..here }));
    raw.send(&encoded(&Ping {}, here)).expect("sends");
    assert!(Done::decode(&raw.receive().expect("an answer").frame()).is_ok());

    // Half a frame and nothing more, then the end.
    for end in 1..whole.len() {
        drop(greeted(&whole[..end]));
    }
    bystander.finish();
    node.stop();
}

/// What breaks the Redis protocol, in Redis's words; and what keeps to it and asks for too much.
#[test]
fn malformed_resp_is_answered_in_the_words_of_redis() {
    let (_folder, place) = fresh();
    let node = place.start();
    let bystander = Bystander::watch(&place);
    let broken: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "a count that is none",
            b"*x\r\n".to_vec(),
            "ERR Protocol error: invalid multibulk length",
        ),
        (
            "a count that is too great",
            b"*2147483647\r\n".to_vec(),
            "ERR Protocol error: invalid multibulk length",
        ),
        (
            "a length that is none",
            b"*1\r\n$-5\r\n".to_vec(),
            "ERR Protocol error: invalid bulk length",
        ),
        (
            "a length that is too great",
            b"*1\r\n$4294967296\r\n".to_vec(),
            "ERR Protocol error: invalid bulk length",
        ),
        ("no length", b"*1\r\n:5\r\n".to_vec(), "ERR Protocol error: expected '$', got ':'"),
        (
            "an open quote",
            b"SET key \"val\r\n".to_vec(),
            "ERR Protocol error: unbalanced quotes in request",
        ),
        ("a line without an end", vec![b'a'; 70_000], "ERR Protocol error: too big inline request"),
    ];
    for (what, bytes, words) in broken {
        let mut resp = Resp::connect(place.resp).expect("connects");
        resp.send(&bytes).expect("sends");
        assert_eq!(resp.reply().expect(what), Reply::Error(words.to_owned()), "{what}");
        assert!(
            resp.closes().is_ok_and(|rest| rest.is_empty()),
            "{what}: the connection is not closed"
        );
    }

    let mut resp = Resp::connect(place.resp).expect("connects");
    assert!(resp.call(&[b"SET", b"text", b"words"]).expect("a reply").is_ok());
    let (long_key, long_value) = (vec![b'k'; MAX_KEY_BYTES + 1], vec![b'v'; MAX_VALUE_BYTES + 1]);
    let refused: [(&[&[u8]], &str); 10] = [
        (
            &[b"NOSUCH", b"a", b"b"],
            "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
        ),
        (&[b"GET"], "ERR wrong number of arguments for 'get' command"),
        (&[b"SET", b"a"], "ERR wrong number of arguments for 'set' command"),
        (&[b"SET", b"a", b"b", b"NOPE"], "ERR syntax error"),
        (&[b"INCR", b"text"], "ERR value is not an integer or out of range"),
        (&[b"EXPIRE", b"a", b"soon"], "ERR value is not an integer or out of range"),
        (&[b"EXEC"], "ERR EXEC without MULTI"),
        (&[b"SELECT", b"99"], "ERR DB index is out of range"),
        (&[b"SET", &long_key, b"v"], "key"),
        (&[b"SET", b"long", &long_value], "value"),
    ];
    for (words, expected) in refused {
        let name = String::from_utf8_lossy(words[0]).into_owned();
        match resp.call(words).unwrap_or_else(|error| panic!("{name}: {error}")) {
            Reply::Error(text) => {
                assert!(text.starts_with("ERR ") && text.contains(expected), "{name}: {text}")
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(
            resp.call(&[b"GET", b"text"]).expect("goes on"),
            Reply::Bulk(b"words".to_vec()),
            "after {name}"
        );
    }
    // A transaction with a mistake in it does nothing at all.
    assert!(resp.call(&[b"MULTI"]).expect("a reply").is_ok());
    resp.call(&[b"SET", b"half", b"done"]).expect("queued");
    assert!(matches!(resp.call(&[b"NOSUCH"]).expect("a reply"), Reply::Error(_)));
    assert!(
        matches!(resp.call(&[b"EXEC"]).expect("a reply"), Reply::Error(text) if text.starts_with("EXECABORT"))
    );
    assert_eq!(resp.call(&[b"GET", b"half"]).expect("a reply"), Reply::Nil);
    // Half a command and nothing more.
    let whole = b"*3\r\n$3\r\nSET\r\n$4\r\ntext\r\n$4\r\nhalf\r\n";
    for end in 1..whole.len() - 2 {
        Resp::connect(place.resp).expect("connects").send(&whole[..end]).expect("sends");
    }
    assert_eq!(resp.call(&[b"GET", b"text"]).expect("a reply"), Reply::Bulk(b"words".to_vec()));
    bystander.finish();
    node.stop();
}

pub(crate) fn refusal<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) -> Error {
    match result {
        Err(error) => error,
        Ok(done) => panic!("{what} was accepted: {done:?}"),
    }
}

#[test]
fn oversized_keys_values_and_transactions_are_refused_before_they_are_sent() {
    let (_folder, place) = fresh();
    let node = place.start();
    let bystander = Bystander::watch(&place);
    let db = place.connect();
    let (key, value) = (vec![b'k'; MAX_KEY_BYTES], vec![b'v'; MAX_VALUE_BYTES]);
    let (long_key, long_value) = (vec![b'k'; MAX_KEY_BYTES + 1], vec![b'v'; MAX_VALUE_BYTES + 1]);
    let refused = [
        (
            "a long key",
            refusal("a long key", db.put(&long_key, b"v")),
            ErrorCode::KeyTooLong,
            "65536",
        ),
        (
            "a long value",
            refusal("a long value", db.put(b"k", &long_value)),
            ErrorCode::ValueTooLong,
            "16777216",
        ),
        (
            "an empty key",
            refusal("an empty key", db.put(b"", b"v")),
            ErrorCode::BadArgument,
            "empty",
        ),
        (
            "a read of a long key",
            refusal("a read", db.get(&long_key)),
            ErrorCode::KeyTooLong,
            "65536",
        ),
        (
            "many bytes",
            refusal(
                "many bytes",
                db.transact(|tx| (0u8..=4).try_for_each(|number| tx.put(&[number], &value))),
            ),
            ErrorCode::TxnTooLarge,
            &*MAX_TXN_BYTES.to_string(),
        ),
        (
            "many keys",
            refusal(
                "many keys",
                db.as_async()
                    .spawn(|db| async move {
                        let tx = db.begin(&timestone::TransactionOptions::default())?;
                        (0..=MAX_TXN_KEYS as u32)
                            .try_for_each(|number| tx.put(&number.to_be_bytes(), b""))?;
                        tx.commit().await
                    })
                    .wait(),
            ),
            ErrorCode::TxnTooManyKeys,
            &*MAX_TXN_KEYS.to_string(),
        ),
    ];
    for (what, error, code, words) in refused {
        assert_eq!(error.code(), code, "{what}: {error}");
        assert_words(what, &error.to_string(), &[words]);
        assert!(!error.retryable(), "{what}");
    }

    // By hand, past the client's check: the server has its own.
    let mut peer = Peer::connect(place.native);
    let get = Get {
        keyspace: KeyspaceId::DEFAULT,
        at: ReadAt::Latest(now()),
        client: peer.client,
        wait: false,
        key: &long_key,
    };
    let (code, text) = peer.ask(ShardId::ZERO, |envelope, out| get.encode(envelope, out)).refusal();
    assert_eq!(code, ErrorCode::Malformed, "{text}");
    assert_words("a long key by hand", &text, &["65537", "65536"]);
    assert_eq!(
        peer.ask(ShardId::ZERO, |envelope, out| Ping {}.encode(envelope, out)).frame().kind(),
        Kind::Done
    );

    // What is just short enough is stored, and survives.
    db.put(&key, &value).expect("the longest key and value");
    let small: Vec<[u8; 4]> = (0..1000u32).map(u32::to_be_bytes).collect();
    db.transact(|tx| small.iter().try_for_each(|key| tx.put(key, b"small")))
        .expect("a thousand keys");
    bystander.finish();
    node.kill();
    let node = place.start();
    assert!(db.get(&key).expect("a read").is_some_and(|got| got == value[..]), "the longest value");
    for key in &small {
        assert_eq!(db.get(key).expect("a read").as_deref(), Some(&b"small"[..]));
    }
    node.stop();
}

#[test]
fn a_start_that_cannot_work_says_why_and_what_to_do() {
    let (folder, place) = fresh();
    let node = place.start();
    let fresh = |name: &str| NodeSetup::new(folder.path(), name);
    let taken = |flag: &str, address: SocketAddr| {
        fresh(flag.trim_matches('-')).with(flag, &address.to_string())
    };
    let port = place.native.port();
    let cases: Vec<(&str, NodeSetup, i32, Vec<String>)> = vec![
        (
            "the native port in use",
            taken("--listen", place.native),
            1,
            vec![
                place.native.to_string(),
                "the native protocol".to_owned(),
                "another process may use the port".to_owned(),
            ],
        ),
        (
            "the RESP port in use",
            taken("--resp", place.resp),
            1,
            vec![place.resp.to_string(), "the Redis protocol".to_owned()],
        ),
        (
            "the HTTP port in use",
            taken("--http", place.http),
            1,
            vec![place.http.to_string(), "another process".to_owned()],
        ),
        (
            "an address that others reach",
            fresh("open").with("--listen", "0.0.0.0:0"),
            1,
            vec![
                "refusing to listen on 0.0.0.0".to_owned(),
                "--insecure".to_owned(),
                "loopback".to_owned(),
            ],
        ),
        (
            "the same for RESP",
            fresh("open").with("--resp", "0.0.0.0:0"),
            1,
            vec!["--insecure".to_owned()],
        ),
        (
            "the same for HTTP",
            fresh("open").with("--http", "0.0.0.0:0"),
            1,
            vec!["--insecure".to_owned()],
        ),
        (
            "persistent memory",
            fresh("pmem").with("--log", "pmem"),
            2,
            vec!["pmem".to_owned(), "ssd".to_owned()],
        ),
        (
            "a capacity that shards cannot do with",
            fresh("small").with("--capacity", "20MiB"),
            2,
            vec!["4 shards need 67108864".to_owned()],
        ),
        (
            "an unknown log",
            fresh("log").with("--log", "tape"),
            2,
            vec!["--log is 'tape'".to_owned(), "ssd, none and pmem".to_owned()],
        ),
        (
            "a size that is none",
            fresh("size").with("--cache", "plenty"),
            2,
            vec!["--cache is 'plenty'".to_owned(), "512MiB".to_owned()],
        ),
        (
            "an address that is none",
            fresh("address").with("--listen", "nowhere"),
            2,
            vec!["HOST:PORT".to_owned()],
        ),
        (
            "an etcd whose address is none",
            fresh("master").with("--master", "etcd://127.0.0.1:2379,nowhere"),
            2,
            vec!["--master is 'etcd://".to_owned(), "HOST:PORT".to_owned()],
        ),
        (
            "a file that is not there",
            fresh("config").with("--config", "/no/such/file"),
            2,
            vec!["/no/such/file".to_owned()],
        ),
    ];
    let bystander = Bystander::watch(&place);
    for (what, place, expected, words) in cases {
        let (code, text) = place.refused();
        assert_eq!(code, expected, "{what}: {text}");
        assert_words(what, &text, &words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let file = folder.path().join("timestone.toml");
    fs::write(&file, "cahce = \"64MiB\"\n").expect("writable");
    let (code, text) = fresh("toml").with("--config", &file.display().to_string()).refused();
    assert_eq!(code, 2, "{text}");
    assert_words(
        "an unknown key",
        &text,
        &["unknown key 'cahce'", "did you mean 'cache'?", "timestone.toml"],
    );
    bystander.finish();
    node.stop();

    // A port that was in use is free again at once.
    let again = place.start();
    assert_eq!(place.native.port(), port);
    again.stop();
    let open: Node = fresh("insecure")
        .with("--listen", &format!("0.0.0.0:{port}"))
        .with("--insecure", "true")
        .start();
    open.stop();
}

#[test]
fn a_clock_far_ahead_is_refused_and_told_so() {
    let (_folder, place) = fresh();
    let node = place.start();
    let bystander = Bystander::watch(&place);
    let mut peer = Peer::connect(place.native);
    let shard = ShardId::new(1);
    let key = peer.key_of(shard, "ahead");
    let ahead = now().saturating_add(MAX_CLOCK_LEAD).saturating_add(Duration::from_secs(10));
    for at in [ReadAt::Latest(ahead), ReadAt::Snapshot(ahead)] {
        let (code, text) = peer.get(shard, at, &key).expect_err("a read far ahead is refused");
        assert_eq!(code, ErrorCode::ClockAhead, "{text}");
        assert_words("a read far ahead", &text, &["ahead", "clock"]);
    }
    let participants = [shard];
    let head = |txn, commit, single| PrepareHead {
        txn,
        begin: now().saturating_sub(Duration::from_millis(1)),
        commit,
        single,
        wait: false,
        participants: &participants,
    };
    for single in [true, false] {
        let txn = peer.txn(1 + u64::from(single));
        let (code, text) = peer
            .prepare(shard, &head(txn, ahead, single), &key, b"value")
            .expect_err("a write far ahead is refused");
        assert_eq!(code, ErrorCode::ClockAhead, "{text}");
    }
    // It left nothing behind: who has the right time writes the key at once.
    let txn = peer.txn(10);
    assert_eq!(peer.prepare(shard, &head(txn, now(), true), &key, b"on time"), Ok(Verdict::Yes));
    let db: Db = place.connect();
    assert_eq!(db.get(&key).expect("a read").as_deref(), Some(&b"on time"[..]));
    bystander.finish();
    node.stop();
}

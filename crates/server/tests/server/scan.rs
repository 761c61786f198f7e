//! Scans, over TCP and in process: everything of one snapshot, once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use timestone_client::{KeyspaceOptions, ScanOptions, TransactionOptions, blocking};
use timestone_clock::{Clock, SystemClock};
use timestone_server::ServerConfig;
use timestone_types::{ClientId, Expiry, KeyspaceId, Sequence, TxnId};
use timestone_wire::{self as wire, Condition, Message, Verdict, WriteAction};

use crate::block_on::block_on;
use crate::redis::{Redis, Reply};
use crate::repeats::Socket;
use crate::running::{Running, config};

fn all(db: &blocking::Db, options: &ScanOptions) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in db.scan(options).unwrap() {
        let (key, value) = entry.unwrap();
        assert!(found.insert(key.into_vec(), value.into_vec()).is_none(), "a key comes once");
    }
    found
}

#[test]
fn a_scan_finds_every_key_of_its_snapshot_once() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let native = running.native();
    // More than a page on each of two shards.
    let mut expected = BTreeMap::new();
    for chunk in (0..3000u32).collect::<Vec<_>>().chunks(500) {
        let names: Vec<_> = chunk
            .iter()
            .map(|n| (format!("{}-{n}", n % 3).into_bytes(), n.to_le_bytes().to_vec()))
            .collect();
        native.transact(|tx| names.iter().try_for_each(|(key, value)| tx.put(key, value))).unwrap();
        expected.extend(names);
    }
    native.delete(b"0-0").unwrap();
    expected.remove(&b"0-0"[..]);
    native.create_keyspace("other", KeyspaceOptions::DEFAULT).unwrap();
    let other = native.keyspace("other").unwrap();
    other.put(b"there", b"too").unwrap();

    // Each client has seen its own writes; the other one asks for a point in time that is surely
    // behind them.
    let mut scan = native.scan(&ScanOptions::default()).unwrap();
    let at = scan.timestamp();
    let first = scan.next().unwrap().unwrap();
    native.put(b"later", b"x").unwrap();
    native.put(b"1-1", b"changed").unwrap();
    let rest: BTreeMap<_, _> =
        scan.map(|entry| entry.map(|(key, value)| (key, value.into_vec())).unwrap()).collect();
    assert_eq!(rest.len() + 1, expected.len());
    assert_eq!(expected.get(&first.0[..]).map(Vec::as_slice), Some(&first.1[..]));
    let then = ScanOptions { at: Some(at), ..ScanOptions::default() };
    for db in [&native, &running.inside] {
        assert_eq!(all(db, &then), expected, "as of the first scan");
        let prefix = ScanOptions { prefix: b"2-".to_vec(), at: Some(at), ..ScanOptions::default() };
        assert_eq!(all(db, &prefix).len(), 1000);
    }
    let begun = block_on(async {
        let mut scan = running.inside.as_async().scan(&then).await.unwrap();
        let mut keys = 0;
        while scan.next().await.unwrap().is_some() {
            keys += 1;
        }
        (keys, scan.timestamp())
    });
    assert_eq!(begun, (expected.len(), at));
    let now = all(&native, &ScanOptions::default());
    assert_eq!((now.len(), now[&b"1-1"[..]].as_slice()), (expected.len() + 1, &b"changed"[..]));
    assert_eq!(all(&other, &ScanOptions::default()).into_keys().collect::<Vec<_>>(), [b"there"]);
}

/// A page of a scan has a bound in bytes: what does not fit comes with the next one.
#[test]
fn long_keys_come_through_scans_of_every_door() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let native = running.native();
    // On each of two shards five pages by bytes, and less than two by the number of keys.
    let name = |n: u32| [n.to_be_bytes().as_slice(), &[b'k'; 4092]].concat();
    for chunk in (0..2000u32).collect::<Vec<_>>().chunks(250) {
        native.transact(|tx| chunk.iter().try_for_each(|&n| tx.put(&name(n), b"v"))).unwrap();
    }
    let expected: BTreeSet<Vec<u8>> = (0..2000).map(name).collect();
    for db in [&native, &running.inside] {
        let found: BTreeSet<_> = all(db, &ScanOptions::default()).into_keys().collect();
        assert!(found == expected, "{} of 2000 keys", found.len());
    }

    let mut redis = Redis::connect(&running);
    assert_eq!(redis.ask(b"DBSIZE"), Reply::Integer(2000));
    let found = keys_of(redis.ask(b"KEYS *"));
    assert!(found == expected, "{} of 2000 keys", found.len());
    for count in ["1", "10", "400", "10000", "1000000"] {
        let (mut cursor, mut keys, mut pages) =
            ("0".to_owned(), BTreeMap::<Vec<u8>, u32>::new(), 0);
        loop {
            let Reply::Array(answer) = redis.ask(format!("SCAN {cursor} COUNT {count}").as_bytes())
            else {
                panic!()
            };
            let [Reply::Bulk(next), page] = <[Reply; 2]>::try_from(answer).unwrap() else {
                panic!()
            };
            keys_of(page).into_iter().for_each(|key| *keys.entry(key).or_default() += 1);
            pages += 1;
            cursor = String::from_utf8(next).unwrap();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(keys.len(), 2000, "with COUNT {count}");
        assert!(
            keys.values().all(|&times| times == 1),
            "nothing changed meanwhile, so each key comes once"
        );
        assert!(pages >= 8, "{pages} pages with COUNT {count}");
    }
}

/// A client whose clock leads by a third of a second.
struct Leading {
    socket: Socket,
    sequence: u64,
}

impl Leading {
    fn connect(running: &Running) -> Self {
        Self { socket: Socket::connect(running, ClientId::ZERO), sequence: 0 }
    }

    /// Writes a key, or deletes it.
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        let mut begin = SystemClock::new().now().saturating_add(Duration::from_millis(300));
        self.sequence += 1;
        let txn = TxnId::new(self.socket.client, Sequence::new(self.sequence));
        loop {
            let write = wire::Write {
                txn,
                begin,
                commit: begin.next(),
                keyspace: KeyspaceId::DEFAULT,
                action: if value.is_some() { WriteAction::Put } else { WriteAction::Delete },
                wait: true,
                return_previous: false,
                expires_at: Expiry::NEVER,
                condition: Condition::Always,
                key,
                value: value.unwrap_or_default(),
            };
            match self.socket.ask(&write, |frame| wire::Written::decode(frame).unwrap().verdict) {
                Verdict::Yes => return,
                Verdict::Later(at) => begin = at,
                Verdict::No(reason) => panic!("{reason:?}"),
            }
        }
    }
}

/// All keys by SCAN, a few at a time.
fn scanned(redis: &mut Redis) -> BTreeSet<Vec<u8>> {
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    loop {
        let Reply::Array(answer) = redis.ask(format!("SCAN {cursor} COUNT 3").as_bytes()) else {
            panic!()
        };
        let [Reply::Bulk(next), page] = <[Reply; 2]>::try_from(answer).unwrap() else { panic!() };
        found.extend(keys_of(page));
        cursor = String::from_utf8(next).unwrap();
        if cursor == "0" {
            return found;
        }
    }
}

/// Keys are written, and deleted, by a client whose clock leads: whoever scans afterwards knows of
/// it.
#[test]
fn scans_see_what_was_acknowledged_by_a_clock_that_leads() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&ServerConfig { shards: Some(1), ..config(folder.path()) });
    let (mut leading, mut redis) = (Leading::connect(&running), Redis::connect(&running));
    let mut expected = BTreeSet::new();
    for n in 0..16u8 {
        leading.write(&[n], Some(b"v"));
        expected.insert(vec![n]);
        if n % 3 == 2 {
            leading.write(&[n - 1], None);
            expected.remove(&vec![n - 1]);
        }
        match n % 4 {
            0 => assert_eq!(
                redis.ask(b"DBSIZE"),
                Reply::Integer(expected.len() as i64),
                "after key {n}"
            ),
            1 => assert_eq!(keys_of(redis.ask(b"KEYS *")), expected, "after key {n}"),
            2 => assert_eq!(scanned(&mut redis), expected, "after key {n}"),
            _ => {
                let found: BTreeSet<_> =
                    all(&running.native(), &ScanOptions::default()).into_keys().collect();
                assert_eq!(found, expected, "after key {n}");
                let found: BTreeSet<_> =
                    all(&running.inside, &ScanOptions::default()).into_keys().collect();
                assert_eq!(found, expected, "after key {n}");
            }
        }
    }
    expected.iter().for_each(|key| leading.write(key, None));
    assert_eq!(redis.ask(b"RANDOMKEY"), Reply::Nil);
}

/// A fence lies above every mark, and so ahead of the clock: the gateways of other threads know of
/// it.
#[test]
fn a_flushed_keyspace_is_empty_to_the_gateways_of_all_threads() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&ServerConfig {
        threads: Some(2),
        shards: Some(1),
        ..config(folder.path())
    });
    let mut clients: Vec<Redis> = (0..8).map(|_| Redis::connect(&running)).collect();
    let mut leading = Leading::connect(&running);
    for round in 0..24usize {
        let name = format!("SET key:{round} v");
        assert_eq!(clients[round % 8].ask(name.as_bytes()), Reply::Simple("OK".to_owned()));
        assert_eq!(clients[(round + 1) % 8].ask(b"DBSIZE"), Reply::Integer(1), "in round {round}");
        leading.write(b"ahead", Some(b"v"));
        assert_eq!(clients[(round + 2) % 8].ask(b"FLUSHDB"), Reply::Simple("OK".to_owned()));
        let other = &mut clients[(round + 3) % 8];
        match round % 3 {
            0 => assert_eq!(other.ask(b"DBSIZE"), Reply::Integer(0), "in round {round}"),
            1 => assert_eq!(keys_of(other.ask(b"KEYS *")), BTreeSet::new(), "in round {round}"),
            _ => assert_eq!(scanned(other), BTreeSet::new(), "in round {round}"),
        }
        // Each round goes above the one before: the clocks follow.
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// As in Redis: a flush touches the watched keys that were there.
#[test]
fn a_flush_touches_the_watched_keys_that_it_removes_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let (mut watcher, mut other) = (Redis::connect(&running), Redis::connect(&running));
    let ok = || Reply::Simple("OK".to_owned());
    // Before the flush, what others do after WATCH; whether EXEC runs.
    let cases: [(&str, &[&str], bool); 7] = [
        ("WATCH never", &["FLUSHDB"], true),
        ("WATCH never", &["FLUSHDB", "FLUSHDB"], true),
        ("WATCH never", &["SET never 1", "FLUSHDB"], false),
        ("WATCH never", &["FLUSHDB", "SET never 1"], false),
        ("WATCH never", &["FLUSHDB", "SET never 1", "FLUSHDB"], false),
        ("WATCH there", &["FLUSHDB"], false),
        ("WATCH there never", &["FLUSHDB", "SET there 1"], false),
    ];
    for (round, (watch, flow, runs)) in cases.into_iter().cycle().take(28).enumerate() {
        // A key of this round alone, which has no record of the rounds before.
        let of_round =
            |command: &str| command.replace("never", &format!("never:{round}")).into_bytes();
        assert_eq!(other.ask(b"SET there 1"), ok());
        let begun = Instant::now();
        assert_eq!(watcher.ask(&of_round(watch)), ok());
        for command in flow {
            assert_eq!(other.ask(&of_round(command)), ok());
        }
        assert_eq!(watcher.ask(b"MULTI"), ok());
        assert_eq!(watcher.ask(b"PING"), Reply::Simple("QUEUED".to_owned()));
        let ran = watcher.ask(b"EXEC") != Reply::Nil;
        // What became of a key that is not there is remembered for about a second.
        let is_late = begun.elapsed() > Duration::from_millis(400);
        assert!(
            ran == runs || runs && is_late,
            "round {round}: {watch}, {flow:?}, after {:?}",
            begun.elapsed()
        );
    }
    // Nobody is made to wait for the watermark, and whoever watches from behind the flush sees
    // nothing of it later.
    assert_eq!(other.ask(b"FLUSHDB"), ok());
    assert_eq!(watcher.ask(b"WATCH later"), ok());
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(watcher.ask(b"MULTI"), ok());
    assert_eq!(watcher.ask(b"SET later 1"), Reply::Simple("QUEUED".to_owned()));
    assert_ne!(watcher.ask(b"EXEC"), Reply::Nil);
}

/// What a transaction read as absent under a fence is validated as any absence is.
#[test]
fn absence_under_a_fence_conflicts_with_what_was_written_there_since() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let db = running.native();
    let mut redis = Redis::connect(&running);
    let flows: [(&[&str], bool); 6] = [
        (&[], true),
        (&["FLUSHDB"], true),
        (&["SET k 1"], false),
        (&["SET k 1", "DEL k"], false),
        (&["SET k 1", "FLUSHDB"], false),
        (&["FLUSHDB", "SET k 1"], false),
    ];
    for (round, (flow, commits)) in flows.into_iter().cycle().take(24).enumerate() {
        assert_eq!(redis.ask(b"FLUSHDB"), Reply::Simple("OK".to_owned()));
        let name = format!("k:{round}");
        let mut attempt = || {
            let tx = db.begin(&TransactionOptions::default()).unwrap();
            assert!(tx.get(name.as_bytes()).unwrap().is_none());
            for command in flow {
                redis.ask(command.replace(" k", &format!(" {name}")).as_bytes());
            }
            tx.put(b"other", b"x").unwrap();
            tx.commit()
        };
        // A flush behind the snapshot may be taken for a conflict; what was written there must be.
        let mut done = attempt();
        let expected = commits || done.is_err();
        assert!(expected, "round {round}: {flow:?} went unnoticed");
        // A snapshot may lie below the flush before it, by some milliseconds at most.
        for _ in 0..50 {
            if !flow.is_empty() || done.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
            done = attempt();
        }
        assert!(!flow.is_empty() || done.is_ok(), "round {round}: {:?}", done.err());
    }
}

/// What one transaction may hold is no bound of a scan.
#[test]
fn a_scan_finds_more_bytes_than_a_transaction_may_hold() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let native = running.native();
    for n in 0..60u8 {
        native.put(&[n], &[n; 100]).unwrap();
    }
    for n in 60..67u8 {
        native.put(&[n], &vec![n; 15 << 20]).unwrap();
    }
    for db in [&native, &running.inside] {
        let found: Vec<_> = db.scan(&ScanOptions::default()).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), 67);
        for (key, value) in found {
            let (n, value) = (key[0], value.into_vec());
            assert_eq!(value.len(), if n < 60 { 100 } else { 15 << 20 });
            assert!(value.iter().all(|&byte| byte == n));
        }
    }
}

fn keys_of(reply: Reply) -> BTreeSet<Vec<u8>> {
    let Reply::Array(keys) = reply else { panic!("{reply:?} is no array") };
    keys.into_iter()
        .map(|key| if let Reply::Bulk(key) = key { key } else { panic!("{key:?} is no key") })
        .collect()
}

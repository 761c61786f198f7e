//! Three processes that own the shards of one cluster: transactions over all of them, clients that
//! vanish, processes that die.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use timestone::blocking::Db;
use timestone::{AbortKind, ErrorCode, KeyspaceOptions, Timestamp, TxnId};
use timestone_types::ShardId;
use timestone_wire::{PrepareHead, ReadAt, TxnState, Verdict};

use crate::journal::Journal;
use crate::load::{Loads, TOTAL, bank_total, open_bank};
use crate::peer::Peer;
use crate::random::Random;
use crate::restart::now;
use crate::server::{Node, NodeSetup, eventually, test_folder};

/// A cluster of three processes with two shards each; the first hosts the master.
struct Cluster {
    places: Vec<NodeSetup>,
    nodes: Vec<Option<Node>>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        Self::with_logs(["ssd"; 3])
    }

    fn with_logs(logs: [&str; 3]) -> Self {
        let folder = test_folder();
        let first =
            NodeSetup::new(folder.path(), "a").with("--shards", "2").with("--cluster-shards", "6");
        let master = first.url();
        let others = ["b", "c"].map(|name| {
            NodeSetup::new(folder.path(), name).with("--shards", "2").with("--master", &master)
        });
        let places = std::iter::once(first)
            .chain(others)
            .zip(logs)
            .map(|(place, log)| place.with("--log", log));
        let places: Vec<NodeSetup> = places.collect();
        let nodes = places.iter().map(|place| Some(place.start())).collect();
        let cluster = Self { places, nodes, _folder: folder };
        cluster.wait_for_shards();
        cluster
    }

    /// Until every server knows the primary of every shard.
    fn wait_for_shards(&self) {
        for place in &self.places {
            eventually("the map of all shards", Duration::from_secs(15), || {
                let map = Peer::connect(place.native).map;
                let free = map.shards().iter().filter(|shard| shard.primary.is_none()).count();
                if free == 0 && map.shards().len() == 6 {
                    Ok(())
                } else {
                    Err(format!("{free} shards have no primary"))
                }
            });
        }
    }

    fn connect(&self, index: usize) -> Db {
        self.places[index].connect()
    }

    fn kill(&mut self, index: usize) {
        self.nodes[index].take().expect("it runs").kill();
    }

    /// Ends a process in order.
    fn end(&mut self, index: usize) {
        self.nodes[index].take().expect("it runs").stop();
    }

    /// How many logs a process has in its directory.
    fn logs(&self, index: usize) -> usize {
        std::fs::read_dir(self.places[index].data.join("wal")).map_or(0, |entries| entries.count())
    }

    fn restart(&mut self, index: usize) {
        self.nodes[index] = Some(self.places[index].start());
    }

    fn stop(mut self) {
        for node in self.nodes.drain(..).rev().flatten() {
            node.stop();
        }
    }
}

/// A client that talks to every process by hand, under one id.
struct ByHand {
    peers: Vec<(SocketAddr, Peer)>,
    sequence: u64,
}

impl ByHand {
    fn connect(cluster: &Cluster) -> Self {
        let first = Peer::connect(cluster.places[0].native);
        let client = first.client;
        let mut peers = vec![(cluster.places[0].native, first)];
        for place in &cluster.places[1..] {
            peers.push((place.native, Peer::connect_as(place.native, client)));
        }
        assert!(
            peers.iter().all(|(_, peer)| peer.client == client),
            "the id that was brought is kept"
        );
        Self { peers, sequence: 0 }
    }

    fn of(&mut self, shard: ShardId) -> &mut Peer {
        let address = self.peers[0].1.address_of(shard);
        let known = self.peers.iter_mut().find(|(native, _)| *native == address);
        &mut known.expect("every primary is one of the three").1
    }

    fn next_txn(&mut self) -> TxnId {
        self.sequence += 1;
        self.peers[0].1.txn(self.sequence)
    }

    /// One shard of every process.
    fn one_shard_each(&self) -> Vec<ShardId> {
        let peer = &self.peers[0].1;
        let mut seen = Vec::new();
        let shards = peer.map.shards().iter().map(|entry| entry.id);
        shards
            .filter(|&shard| {
                !seen.contains(&peer.address_of(shard)) && {
                    seen.push(peer.address_of(shard));
                    true
                }
            })
            .collect()
    }

    fn keys(&self, shards: &[ShardId], stem: &str) -> Vec<Vec<u8>> {
        shards.iter().map(|&shard| self.peers[0].1.key_of(shard, stem)).collect()
    }

    /// Prepares a put at `shards`, of a new transaction over `participants`; every vote must be
    /// yes. As every client does, it begins anew when the watermark has passed it on its way, which
    /// happens on a machine that is slow at the moment: nobody has heard of this client before.
    fn prepared(
        &mut self,
        participants: &[ShardId],
        shards: &[ShardId],
        stem: &str,
    ) -> (TxnId, Timestamp) {
        let keys = self.keys(shards, stem);
        for _ in 0..50 {
            let (txn, commit) = (self.next_txn(), now());
            let head = PrepareHead {
                txn,
                begin: commit.previous(),
                commit,
                single: false,
                wait: false,
                participants,
            };
            let mut promised = Vec::new();
            for (&shard, key) in shards.iter().zip(&keys) {
                match self.of(shard).prepare(shard, &head, key, b"value").expect("a vote") {
                    Verdict::Yes => promised.push(shard),
                    Verdict::No(reason) if reason.kind == AbortKind::TooOld => break,
                    other => panic!("shard {shard} votes {other:?}"),
                }
            }
            if promised.len() == shards.len() {
                return (txn, commit);
            }
            for shard in promised {
                self.of(shard).decide(shard, txn, None);
            }
        }
        panic!("every one of 50 transactions was too old when it arrived");
    }
}

fn values(db: &Db, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    keys.iter()
        .map(|key| {
            db.get(key).unwrap_or_else(|error| panic!("{error}")).map(|value| value.to_vec())
        })
        .collect()
}

/// Every participant says the same, or has forgotten it: whoever resolved it tells them that all
/// have acknowledged.
fn all_say(cluster: &Cluster, shards: &[ShardId], txn: TxnId, expected: fn(TxnState) -> bool) {
    for &shard in shards {
        eventually("the same outcome everywhere", Duration::from_secs(15), || {
            let state = ByHand::connect(cluster).of(shard).status(shard, txn);
            assert!(
                expected(state) || matches!(state, TxnState::Unknown | TxnState::Prepared(_)),
                "shard {shard} says {state:?} of transaction {txn}"
            );
            if matches!(state, TxnState::Prepared(_)) {
                Err(format!("shard {shard} says {state:?}"))
            } else {
                Ok(())
            }
        });
    }
}

#[test]
fn three_processes_are_one_store() {
    let mut random = Random::for_test("cluster");
    let mut cluster = Cluster::start();
    let hand = ByHand::connect(&cluster);
    assert_eq!(hand.one_shard_each().len(), 3, "every process owns shards");
    let shards: Vec<ShardId> = hand.peers[0].1.map.shards().iter().map(|entry| entry.id).collect();
    let keys = hand.keys(&shards, "everywhere");

    // One transaction over the shards of all processes, written by way of one, read by way of the
    // others.
    cluster
        .connect(2)
        .transact(|tx| keys.iter().try_for_each(|key| tx.put(key, b"once")))
        .expect("a transaction over three processes commits");
    for index in 0..3 {
        let seen = cluster
            .connect(index)
            .transact(|tx| tx.get_many(&keys))
            .expect("a snapshot over three processes");
        assert!(
            seen.iter().all(|value| value.as_deref() == Some(&b"once"[..])),
            "by way of process {index}: {seen:?}"
        );
    }

    // Keyspaces are the cluster's, whichever process is asked.
    let [a, b, c] = [0, 1, 2].map(|index| cluster.connect(index));
    b.create_keyspace("letters", KeyspaceOptions::default())
        .expect("created by way of the second process");
    let listed = |db: &Db| {
        db.keyspaces().expect("a list").iter().any(|keyspace| keyspace.name.as_str() == "letters")
    };
    assert!(listed(&a) && listed(&b) && listed(&c));
    let again = c.create_keyspace("letters", KeyspaceOptions::default()).expect_err("it exists");
    assert_eq!(again.code(), ErrorCode::KeyspaceExists, "{again}");
    c.keyspace("letters").expect("found").put(b"key", b"in letters").expect("written");
    assert_eq!(
        a.keyspace("letters").expect("found").get(b"key").expect("read").as_deref(),
        Some(&b"in letters"[..])
    );
    assert!(a.get(b"key").expect("read").is_none(), "the default keyspace is another one");
    c.drop_keyspace("letters").expect("dropped by way of the third process");
    assert!(!listed(&a) && !listed(&b) && !listed(&c));
    let gone = b.keyspace("letters").expect_err("it is gone");
    assert_eq!(gone.code(), ErrorCode::KeyspaceUnknown, "{gone}");

    // Any process may die and come back under load, the one with the master too.
    let journal = Arc::new(Journal::default());
    open_bank(&a);
    let mut loads = Loads::new();
    loads.bank("bank-a", a.clone(), &journal, &mut random);
    loads.bank("bank-c", c.clone(), &journal, &mut random);
    loads.several("several", b.clone(), &journal, &mut random);
    for index in [1, 2, 0] {
        std::thread::sleep(random.span(300, 900));
        cluster.kill(index);
        std::thread::sleep(random.span(0, 700));
        cluster.restart(index);
        loads.wait_until_served(&journal, Duration::from_secs(20));
        assert_eq!(bank_total(&b), TOTAL, "after process {index} was killed");
        journal.check(&b, &mut random);
    }
    loads.stop();
    println!("cluster: {}", journal.summary());
    assert_eq!(bank_total(&a), TOTAL);
    journal.check_all(&c);
    cluster.stop();
}

#[test]
fn participants_in_several_processes_end_what_a_vanished_client_left() {
    let mut cluster = Cluster::start();
    let db = cluster.connect(1);

    // All prepared, the client dies: they agree on commit among themselves.
    let mut hand = ByHand::connect(&cluster);
    let shards = hand.one_shard_each();
    let keys = hand.keys(&shards, "all");
    let (txn, _) = hand.prepared(&shards, &shards, "all");
    drop(hand);
    assert!(
        values(&db, &keys).iter().all(|value| value.as_deref() == Some(&b"value"[..])),
        "prepared everywhere is committed"
    );
    all_say(&cluster, &shards, txn, |state| matches!(state, TxnState::Committed(_)));

    // One of them never heard of it: abort, everywhere, and the late prepare changes nothing.
    let mut hand = ByHand::connect(&cluster);
    let keys = hand.keys(&shards, "some");
    let (txn, commit) = hand.prepared(&shards, &shards[..2], "some");
    drop(hand);
    all_say(&cluster, &shards[..2], txn, |state| state == TxnState::Aborted);
    assert!(values(&db, &keys).iter().all(Option::is_none), "not prepared everywhere is aborted");
    let mut late = ByHand::connect(&cluster);
    let head = PrepareHead {
        txn,
        begin: commit.previous(),
        commit,
        single: false,
        wait: false,
        participants: &shards,
    };
    let vote = late.of(shards[2]).prepare(shards[2], &head, &keys[2], b"value");
    println!("cluster: a prepare that comes after the abort is answered with {vote:?}");
    assert!(
        values(&db, &keys).iter().all(Option::is_none),
        "a prepare that comes after the abort changes nothing"
    );

    // All prepared, client and one participant die: the promise is durable, so it is commit once
    // that one is back.
    let mut hand = ByHand::connect(&cluster);
    let keys = hand.keys(&shards, "killed");
    let (txn, _) = hand.prepared(&shards, &shards, "killed");
    drop(hand);
    cluster.kill(2);
    std::thread::sleep(Duration::from_millis(300));
    cluster.restart(2);
    let patient = db.with_deadline(Duration::from_secs(20));
    assert!(
        values(&patient, &keys).iter().all(|value| value.as_deref() == Some(&b"value"[..])),
        "a durable promise is kept"
    );
    all_say(&cluster, &shards, txn, |state| matches!(state, TxnState::Committed(_)));

    // One was told the decision, the others not: they ask it.
    let mut hand = ByHand::connect(&cluster);
    let keys = hand.keys(&shards, "told");
    let (txn, commit) = hand.prepared(&shards, &shards, "told");
    hand.of(shards[1]).decide(shards[1], txn, Some(commit));
    drop(hand);
    assert!(values(&db, &keys).iter().all(|value| value.as_deref() == Some(&b"value"[..])));
    let mut hand = ByHand::connect(&cluster);
    for (&shard, key) in shards.iter().zip(&keys) {
        let (version, _) = hand.of(shard).get(shard, ReadAt::Latest(now()), key).expect("a read");
        assert_eq!(version.timestamp, commit, "every participant applied it at the decided time");
    }
    drop(hand);

    // The same, and everything dies. The one that was told comes back first, and the watermark
    // passes the transaction long before the others come back and ask: it must know until they do.
    let mut hand = ByHand::connect(&cluster);
    let keys = hand.keys(&shards, "knows");
    let (txn, commit) = hand.prepared(&shards, &shards, "knows");
    let first = cluster.places[0].native;
    let told = shards.iter().copied().find(|&shard| hand.peers[0].1.address_of(shard) == first);
    let told = told.expect("the first process has a shard");
    hand.of(told).decide(told, txn, Some(commit));
    drop(hand);
    (0..3).for_each(|index| cluster.kill(index));
    cluster.restart(0);
    // Its reports move the watermark.
    let own = cluster.connect(0);
    std::thread::sleep(Duration::from_secs(6));
    (1..3).for_each(|index| cluster.restart(index));
    let patient = own.with_deadline(Duration::from_secs(20));
    let found = values(&patient, &keys);
    let value = Some(&b"value"[..]);
    assert!(
        found.iter().all(|found| found.as_deref() == value),
        "a committed transaction is there in part: {found:?}"
    );
    cluster.stop();
}

/// Two servers without logs and one with one hold a promise each, and the decision reaches one of
/// them when the others are down, one stopped and one killed. That one is stopped as well, and
/// nobody else knows: what was promised and what was decided must be there in the next runs.
#[test]
fn servers_without_logs_that_are_stopped_keep_their_promises_and_their_word() {
    let mut cluster = Cluster::with_logs(["none", "none", "ssd"]);
    let mut hand = ByHand::connect(&cluster);
    let shards = hand.one_shard_each();
    let keys = hand.keys(&shards, "word");
    let (txn, commit) = hand.prepared(&shards, &shards, "word");
    let first = cluster.places[0].native;
    let told = shards.iter().copied().find(|&shard| hand.peers[0].1.address_of(shard) == first);
    let told = told.expect("the first process has a shard");
    cluster.kill(2);
    cluster.end(1);
    hand.of(told).decide(told, txn, Some(commit));
    drop(hand);
    cluster.end(0);
    let left = [cluster.logs(0), cluster.logs(1)];
    (0..3).for_each(|index| cluster.restart(index));
    let patient = cluster.connect(0).with_deadline(Duration::from_secs(20));
    let found = values(&patient, &keys);
    let value = Some(&b"value"[..]);
    assert!(
        found.iter().all(|found| found.as_deref() == value),
        "a committed transaction is there in part: {found:?}"
    );
    let mut hand = ByHand::connect(&cluster);
    for (&shard, key) in shards.iter().zip(&keys) {
        let (version, _) = hand.of(shard).get(shard, ReadAt::Latest(now()), key).expect("a read");
        assert_eq!(version.timestamp, commit, "every participant applied it at the decided time");
    }
    drop(hand);
    assert_eq!(left, [1; 2], "both have left what others need");
    // Others have it by now: the log is emptied, and goes with the next start.
    eventually("the log that was left goes", Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_secs(2));
        cluster.end(0);
        cluster.restart(0);
        if cluster.logs(0) == 0 { Ok(()) } else { Err("it is still there") }
    });
    cluster.stop();
}

//! Servers that do not hear each other, while clients reach them, and networks that are bad all over.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use timestone::Timestamp;
use timestone::blocking::Db;
use timestone_types::ShardId;

use crate::faults::links::Party;
use crate::faults::{Trial, others};
use crate::peer::Peer;
use crate::replicated::{TIMEOUT, shards};
use crate::restart::now;
use crate::server::{NodeSetup, eventually};

/// A reader waits no longer for a server that has been deposed.
const SILENT: Duration = Duration::from_millis(500);
/// Keys that are written and read in turn: one of them may be prepared.
const KEYS: usize = 12;

/// Somebody writes rising numbers to keys of a shard, wherever its primary is. Somebody else reads
/// them, and knows one server only, whatever becomes of that: a number below one that was
/// acknowledged before the question is an answer of the past.
struct LeftBehind {
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// A key, and the last number whose write was acknowledged.
struct RisingKey {
    key: Vec<u8>,
    acknowledged: AtomicU64,
}

impl LeftBehind {
    /// With the server that is the primary of a shard now. The reader's clock is late.
    fn with(place: &NodeSetup, db: Db, shard: ShardId, late: Duration) -> Self {
        let peer = Peer::connect(place.native);
        let keys = (0..KEYS).map(|number| {
            let key = peer.key_of(shard, &format!("left-behind-{number}"));
            RisingKey { key, acknowledged: AtomicU64::new(0) }
        });
        let keys: Arc<Vec<RisingKey>> = Arc::new(keys.collect());
        let mut left = Self { is_over: Arc::default(), answers: Arc::default(), threads: vec![] };
        let (is_over, written) = (Arc::clone(&left.is_over), Arc::clone(&keys));
        left.threads.push(std::thread::spawn(move || write_rising(&db, &written, &is_over)));
        let (is_over, answers) = (Arc::clone(&left.is_over), Arc::clone(&left.answers));
        let address = place.native;
        left.threads.push(std::thread::spawn(move || {
            read_at(address, peer, shard, &keys, late, &is_over, &answers);
        }));
        let wanted = KEYS as u64;
        eventually("the reader is answered", TIMEOUT, || {
            let count = left.answers.load(Ordering::SeqCst);
            if count >= wanted { Ok(()) } else { Err(format!("{count} of {wanted}")) }
        });
        left
    }

    fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            assert!(thread.join().is_ok(), "writer or reader failed");
        }
    }
}

fn write_rising(db: &Db, keys: &[RisingKey], is_over: &AtomicBool) {
    let db = db.with_deadline(SILENT);
    for number in 1u64.. {
        for RisingKey { key, acknowledged } in keys {
            // The next key only when this one is written: so no more than one is prepared, which
            // nobody can read, at a server that hears nobody.
            while db.put(key, number.to_string().as_bytes()).is_err() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
            }
            acknowledged.store(number, Ordering::SeqCst);
            if is_over.load(Ordering::SeqCst) {
                println!("left behind: every key was written about {number} times");
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Asks the server at this address, as what it was when the first map was fetched.
fn read_at(
    address: SocketAddr,
    first: Peer,
    shard: ShardId,
    keys: &[RisingKey],
    late: Duration,
    is_over: &AtomicBool,
    answers: &AtomicU64,
) {
    let (client, map) = (first.client, first.map.clone());
    let (mut peer, mut refused) = (Some(first), BTreeMap::<String, u64>::new());
    let late = u64::try_from(late.as_nanos()).expect("a short time");
    for RisingKey { key, acknowledged } in keys.iter().cycle() {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let Some(asked) = &mut peer else {
            peer = Peer::try_connect_as(address, client, SILENT).ok();
            match &mut peer {
                Some(peer) => peer.map = map.clone(),
                None => *refused.entry("no answer to a hello".to_owned()).or_default() += 1,
            }
            continue;
        };
        let least = acknowledged.load(Ordering::SeqCst);
        let at = Timestamp::from_nanos(now().as_nanos() - late);
        match asked.try_latest(shard, at, key) {
            Ok(Ok(found)) => {
                let found = found.map(|value| String::from_utf8_lossy(&value).into_owned());
                let found = found.map_or(0, |number| number.parse().expect("a number"));
                assert!(found >= least, "{found} from {address}, after {least} was acknowledged");
                answers.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Err((code, _))) => {
                *refused.entry(format!("{code:?}")).or_default() += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => {
                *refused.entry(error.kind().to_string()).or_default() += 1;
                peer = None;
            }
        }
    }
    println!("left behind: {} answers, refused {refused:?}", answers.load(Ordering::SeqCst));
}

/// Cuts a primary off from the other servers, and with `etcd` from that as well, while clients
/// reach it; and heals that when others have followed. It is the primary of some shard, or this one.
pub(super) fn depose(trial: &mut Trial, lost: Option<usize>, late: Duration, with_etcd: bool) {
    let lost = lost.unwrap_or_else(|| trial.a_primary(0));
    let [asked, _] = others(lost);
    let status = trial.cluster.wait_until_complete(asked);
    let id = trial.cluster.id_of(lost, &status);
    let number = shards(&status).position(|shard| shard["primary"] == id);
    let place = trial.cluster.places[lost].clone();
    let shard = Peer::connect(place.native).map.shards()[number.expect("it is a primary")].id;
    let left = LeftBehind::with(&place, trial.db.clone(), shard, late);
    for other in others(lost) {
        let (lost, other) = (Party::Server(lost), Party::Server(other));
        trial.links.stall(lost, other);
        trial.links.stall(other, lost);
    }
    if with_etcd {
        trial.links.cut(Party::Server(lost), Party::Etcd);
    }
    trial.cluster.wait_until_moved(lost, asked);
    trial.is_served("while a deposed primary has clients");
    trial.links.heal();
    left.end();
    trial.cluster.wait_until_complete(asked);
}

#[test]
fn a_deposed_primary_that_keeps_its_clients_tells_them_nothing_of_the_past() {
    let mut trial = Trial::start("deposed");
    depose(&mut trial, None, Duration::ZERO, true);
    trial.end();
}

/// Messages are late, connections end with what was under way, one way or both are silent for a
/// while: what TCP makes of messages that are lost, doubled and reordered.
#[test]
fn histories_are_right_where_links_are_late_silent_and_broken() {
    let mut trial = Trial::start("messages");
    let everybody = [Party::Server(0), Party::Server(1), Party::Server(2), Party::Client];
    for _ in 0..2 {
        trial.links.disturb(&everybody, Duration::from_millis(20), 4);
        trial.pause(1000, 1500);
        // One direction, between servers or to clients.
        let from = everybody[trial.random.below(4) as usize];
        let to = everybody[trial.random.below(4) as usize];
        trial.links.stall(from, to);
        trial.pause(300, 1500);
        trial.links.heal();
        let (one, other) = (trial.random.below(4) as usize, trial.random.below(4) as usize);
        trial.links.cut(everybody[one], everybody[other]);
        trial.pause(300, 1000);
        trial.links.heal();
    }
    trial.end();
}

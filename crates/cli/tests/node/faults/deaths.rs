//! Processes that are killed together, or while they take over from one that was killed.

use serde_json::Value;

use crate::faults::{Trial, others};
use crate::peer::Peer;
use crate::replicated::{TIMEOUT, shards};
use crate::server::eventually;

/// How many primaries are killed on their way.
const TAKEOVERS: usize = 3;

/// Clients die in the middle of their transactions, and a primary of these at once or a moment
/// later: the other servers end what they left, and nobody waits for it.
#[test]
fn client_and_primary_die_together_and_the_others_end_what_they_left() {
    let mut trial = Trial::start("client and primary");
    let clients = trial.bench("list-append", "list-append");
    let lost = trial.a_primary(0);
    let [asked, _] = others(lost);
    if trial.random.below(2) == 0 {
        trial.cluster.kill(lost);
        clients.kill();
    } else {
        clients.kill();
        trial.pause(0, 100);
        trial.cluster.kill(lost);
    }
    trial.cluster.wait_until_moved(lost, asked);
    trial.tell("moved");
    // What the dead clients had promised stands in nobody's way: every key of theirs can be read,
    // and written.
    let keyspace = trial.db.keyspace(&trial.next_keyspace()).expect("they wrote to it");
    let keys: Vec<Vec<u8>> = eventually("a scan", TIMEOUT, || {
        let scan = keyspace.scan(&timestone::ScanOptions::default())?;
        scan.map(|entry| entry.map(|(key, _)| key.to_vec())).collect::<Result<_, _>>()
    });
    assert!(!keys.is_empty(), "they wrote something");
    for key in &keys {
        eventually("a deletion", TIMEOUT, || keyspace.delete(key).map(drop));
    }
    trial.is_served("while a server is lost");
    trial.cluster.restart(lost);
    trial.end();
}

/// A primary is killed, its follower is killed as soon as it is named, and so on: each dies
/// somewhere on its way to serve, with the one before it just on its way back.
#[test]
fn primaries_are_killed_while_they_become_primary_again_and_again() {
    let mut trial = Trial::start("failover during a failover");
    let mut down = trial.a_primary(0);
    let peer = Peer::connect(trial.cluster.places[down].native);
    let address = trial.cluster.places[down].reached_at();
    let mut of_primary = peer.map.shards().iter().map(|entry| entry.id);
    let shard = of_primary.find(|&id| peer.address_of(id) == address).expect("it is a primary");
    trial.cluster.kill(down);
    for _ in 0..TAKEOVERS {
        let next = eventually("another primary", TIMEOUT, || {
            let asked = others(down)[0];
            let map = Peer::connect(trial.cluster.places[asked].native).map;
            let primary = map.primary(shard).ok_or("nobody")?;
            let address = primary.addresses.native.as_ref().ok_or("no address")?;
            let places = &trial.cluster.places;
            let found = (0..places.len())
                .find(|&place| places[place].reached_at().to_string() == address.as_str());
            let found = found.ok_or("unknown")?;
            if found == down { Err("still the one that is down") } else { Ok(found) }
        });
        // It joins, fetches, installs, or serves already.
        trial.pause(0, 400);
        trial.cluster.spawn(down);
        trial.pause(0, 100);
        trial.cluster.kill(next);
        trial.cluster.wait_until_ready(down);
        down = next;
    }
    let [asked, _] = others(down);
    trial.cluster.wait_until_moved(down, asked);
    trial.is_served("while a server is lost");
    trial.cluster.restart(down);
    trial.end();
}

fn epoch_of(shard: &Value) -> u64 {
    shard["epoch"].as_u64().expect("an epoch")
}

/// Kills a primary beside the controller, waits until others have followed, and starts it again.
/// No shard goes back to an epoch below those of `seen`, and those that fail over get one above.
fn fail_over(trial: &mut Trial, seen: &mut [u64]) {
    // On a machine that stands still now and then all of them may be the controller's for a while.
    let (before, lost) = eventually("a primary beside the controller", TIMEOUT, || {
        let before = trial.cluster.wait_until_complete(0);
        let controller = trial.cluster.place_of(&before["controller"]["server"], &before);
        let mut primaries =
            shards(&before).map(|shard| trial.cluster.place_of(&shard["primary"], &before));
        let lost = primaries.find(|&lost| lost != controller);
        drop(primaries);
        lost.map(|lost| (before, lost)).ok_or("the controller leads every shard")
    });
    let lost_id = trial.cluster.id_of(lost, &before);
    trial.cluster.kill(lost);
    let after = trial.cluster.wait_until_moved(lost, others(lost)[0]);
    for ((before, after), seen) in shards(&before).zip(shards(&after)).zip(seen) {
        for shard in [before, after] {
            assert!(epoch_of(shard) >= *seen, "{} after {seen}: {shard}", epoch_of(shard));
            *seen = epoch_of(shard);
        }
        assert!(before["primary"] != lost_id || epoch_of(after) > epoch_of(before), "{after}");
    }
    println!("epochs {:?}", shards(&after).map(epoch_of).collect::<Vec<_>>());
    trial.is_served("while a server is lost");
    trial.cluster.restart(lost);
}

/// Etcd goes on from a backup that knows nothing of the epochs since: none of them is handed out
/// again.
#[test]
fn etcd_with_several_copies_is_restored_from_a_backup_and_no_epoch_comes_twice() {
    let mut trial = Trial::start("etcd from a backup");
    trial.etcd.back_up();
    let mut seen = [0; 3];
    fail_over(&mut trial, &mut seen);
    trial.etcd.restore();
    trial.is_served("after the restore");
    fail_over(&mut trial, &mut seen);
    trial.end();
}

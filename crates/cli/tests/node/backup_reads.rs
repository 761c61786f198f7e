//! Three processes that keep three copies of each shard, and a client whose snapshots may be old: its
//! reads are answered at all of them, and go on when one is killed, however late that is noticed.

use std::time::{Duration, Instant};

use serde_json::Value;
use timestone::TransactionOptions;
use timestone::blocking::Db;

use crate::replicated::{Replicated, TIMEOUT, shards};
use crate::server::eventually;

const KEYS: u32 = 30;
const OLD: Duration = Duration::from_millis(500);

fn key(number: u32) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

fn write(db: &Db, value: &str) {
    for number in 0..KEYS {
        eventually("a write", TIMEOUT, || db.put(&key(number), value.as_bytes()).map(drop));
    }
}

/// All keys in one snapshot, which may be old.
fn read(db: &Db, old: Duration) -> Vec<Option<String>> {
    eventually("a snapshot", TIMEOUT, || {
        let options =
            TransactionOptions { max_staleness: Some(old), ..TransactionOptions::default() };
        let tx = db.begin(&options)?;
        let found: Result<Vec<_>, timestone::Error> = (0..KEYS)
            .map(|number| {
                let found = tx.get(&key(number))?;
                Ok(found.map(|value| String::from_utf8_lossy(&value).into_owned()))
            })
            .collect();
        tx.commit()?;
        found
    })
}

/// How many reads backups have answered to this client.
fn answered(db: &Db) -> u64 {
    db.as_async().stats().wait().expect("the client lives").answered_by_backups
}

/// Reads until backups have answered so many more reads; every snapshot is whole.
fn read_at_backups(db: &Db, wanted: u64, value: &str) {
    let until = answered(db) + wanted;
    eventually("backups answer", TIMEOUT, || {
        for _ in 0..20 {
            let found = read(db, OLD);
            assert!(found.iter().all(|found| found.as_deref() == Some(value)), "{found:?}");
        }
        let count = answered(db);
        if count >= until { Ok(()) } else { Err(format!("{count} of {until}")) }
    });
}

#[test]
fn snapshots_that_may_be_old_are_read_at_backups_and_a_session_sees_its_writes() {
    let mut cluster = Replicated::start(None);
    let status = cluster.wait_until_complete(0);
    let (writer, reader) = (cluster.places[0].connect(), cluster.places[0].connect());
    write(&writer, "one");
    std::thread::sleep(2 * OLD);
    read_at_backups(&reader, 200, "one");
    let closed = |shard: &Value| {
        let replicas = shard["replication"]["replicas"].as_array().expect("replicas");
        replicas
            .iter()
            .any(|replica| replica["closed_lag"].as_str().is_some_and(|lag| lag != "none"))
    };
    cluster.wait_for(0, "a backup tells how far it is", |status| shards(status).any(closed));
    // Whoever has written sees it at once.
    write(&writer, "two");
    assert!(read(&writer, OLD).iter().all(|found| found.as_deref() == Some("two")));
    // Others do when it is old enough.
    std::thread::sleep(2 * OLD);
    read_at_backups(&reader, 200, "two");
    // Another server is killed than the one that is asked for the status.
    let lost = (1..3).find(|&index| {
        shards(&status).any(|shard| shard["primary"] == cluster.id_of(index, &status))
    });
    let lost = lost.unwrap_or(1);
    cluster.kill(lost);
    cluster.wait_until_moved(lost, 0);
    read_at_backups(&reader, 200, "two");
    cluster.restart(lost);
    cluster.wait_until_complete(0);
    read_at_backups(&reader, 200, "two");
}

#[test]
fn snapshots_that_may_be_old_go_on_while_nobody_serves_a_shard() {
    const OLDEST: Duration = Duration::from_secs(20);
    let mut cluster = Replicated::start_noticing_losses_after("10s");
    let status = cluster.wait_until_complete(0);
    let (writer, reader) = (cluster.places[0].connect(), cluster.places[0].connect());
    write(&writer, "one");
    std::thread::sleep(2 * OLD);
    read_at_backups(&reader, 200, "one");
    let is_one = |found: &[Option<String>]| {
        assert!(found.iter().all(|found| found.as_deref() == Some("one")), "{found:?}");
    };
    is_one(&read(&reader, OLDEST));
    // What the session has seen is closed at backups by now; a session never goes back.
    std::thread::sleep(2 * OLD);
    let lost = (1..3).find(|&index| {
        shards(&status).any(|shard| shard["primary"] == cluster.id_of(index, &status))
    });
    let lost = lost.expect("a server that is primary of a shard");
    cluster.kill(lost);
    let killed = Instant::now();
    let mut snapshots = 0;
    while killed.elapsed() < Duration::from_secs(6) {
        let asked = Instant::now();
        is_one(&read(&reader, OLDEST));
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
        snapshots += 1;
    }
    assert!(snapshots > 20, "{snapshots}");
    // Nobody serves the shard meanwhile.
    let hurried = writer.with_deadline(Duration::from_millis(300));
    let is_refused = |number| hurried.put(&key(number), b"two").is_err();
    assert!((0..KEYS).any(is_refused), "a shard without a primary is written");
    assert!(killed.elapsed() < Duration::from_secs(10), "it was noticed meanwhile");
    cluster.wait_until_moved(lost, 0);
    write(&writer, "three");
    std::thread::sleep(2 * OLD);
    read_at_backups(&reader, 200, "three");
}

//! What a restart must not change, and how it goes when it was asked for politely.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use timestone::Timestamp;
use timestone_clock::{Clock, SystemClock};
use timestone_types::ShardId;
use timestone_wire::{PrepareHead, ReadAt, Verdict};

use crate::journal::{Journal, WorkEnd, value_of};
use crate::peer::Peer;
use crate::random::Random;
use crate::server::{NodeSetup, eventually, test_folder};

pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}

const SHARD: ShardId = ShardId::new(1);

/// A write of one key at exactly this time, and nothing else: a client whose clock stands there.
fn write_at(
    peer: &mut Peer,
    sequence: u64,
    key: &[u8],
    value: &[u8],
    commit: Timestamp,
) -> Verdict {
    let txn = peer.txn(sequence);
    let begin = commit.previous();
    let head =
        PrepareHead { txn, begin, commit, single: true, wait: false, participants: &[SHARD] };
    peer.prepare(SHARD, &head, key, value).expect("a vote")
}

/// docs/protocol/recovery.md, "The read bound": a read at t is a promise that nothing commits at or
/// below t any more. It must survive.
#[test]
fn a_writer_that_lags_cannot_commit_below_a_read_of_before_the_crash() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let mut peer = Peer::connect(place.native);
    let (read, unread) = (peer.key_of(SHARD, "read"), peer.key_of(SHARD, "unread"));
    assert_eq!(write_at(&mut peer, 1, &read, b"old", now()), Verdict::Yes);

    // A reader whose clock is ahead, as far as clocks may be.
    let at = now().saturating_add(Duration::from_millis(300));
    let (version, value) =
        peer.get(SHARD, ReadAt::Snapshot(at), &read).expect("a read a little ahead is served");
    assert_eq!(value.as_deref(), Some(&b"old"[..]));
    // Without a crash: refused for the key that was read, and only for that one.
    let refused = write_at(&mut peer, 2, &read, b"lagging", at.previous());
    assert!(matches!(refused, Verdict::Later(later) if later >= at), "{refused:?}");
    assert_eq!(write_at(&mut peer, 3, &unread, b"lagging", at.previous()), Verdict::Yes);

    node.kill();
    let node = place.start();
    let mut peer = Peer::connect(place.native);
    let after = write_at(&mut peer, 1, &read, b"lagging", at.previous());
    assert_ne!(after, Verdict::Yes, "a write committed below a read of before the crash");
    let (same, value) =
        peer.get(SHARD, ReadAt::Snapshot(at), &read).expect("the same snapshot is still served");
    assert_eq!((same, value.as_deref()), (version, Some(&b"old"[..])));

    // It may write later, as it is told.
    let Verdict::Later(mut later) = after else {
        panic!("only the timestamp is too low: {after:?}")
    };
    for sequence in 2.. {
        assert!(sequence < 10, "told to come later again and again");
        match write_at(&mut peer, sequence, &read, b"new", later.next()) {
            Verdict::Yes => break,
            Verdict::Later(again) => later = again,
            Verdict::No(reason) => panic!("{reason:?}"),
        }
    }
    assert!(later > at);
    let latest = eventually("the write", Duration::from_secs(5), || {
        match peer.get(SHARD, ReadAt::Latest(now()), &read) {
            Ok((_, value)) => Ok(value),
            Err((code, words)) => Err(format!("{code} {words}")),
        }
    });
    assert_eq!(latest.as_deref(), Some(&b"new"[..]));
    node.stop();
}

#[test]
fn a_graceful_stop_drains_and_leaves_checkpoints() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let journal = Arc::new(Journal::default());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (db, journal, stop) = (place.connect(), Arc::clone(&journal), Arc::clone(&stop));
            std::thread::spawn(move || {
                for number in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let keys: Vec<String> =
                        (0..=writer).map(|part| format!("{writer}/{number}/{part}")).collect();
                    let work = journal.begin(keys.clone());
                    let done = db.transact(|tx| {
                        keys.iter()
                            .try_for_each(|key| tx.put(key.as_bytes(), value_of(key).as_bytes()))
                    });
                    journal.settle(
                        "writer",
                        work,
                        done.map_or_else(|error| WorkEnd::of(&error), |()| WorkEnd::Acknowledged),
                    );
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(700));
    let asked = Instant::now();
    let (status, text) = node.terminate();
    let took = asked.elapsed();
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(text.contains("The server has stopped"), "{text}");

    let mut node = place.start();
    // Every store is as its checkpoint says.
    let text = node.text();
    let stores: Vec<&str> = text.lines().filter(|line| line.contains("store open")).collect();
    assert_eq!(stores.len(), 4, "{text}");
    for store in stores {
        assert!(
            store.contains("checkpoint=true"),
            "a store was left without its checkpoint: {store}"
        );
    }
    let replayed =
        text.lines().find(|line| line.contains("log replayed")).unwrap_or_default().to_owned();
    // The writers find the server again by themselves.
    let before = journal.acknowledged("writer");
    eventually("the writers' return", Duration::from_secs(15), || {
        if journal.acknowledged("writer") > before + 10 {
            Ok(())
        } else {
            Err("no writer is served again")
        }
    });
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().expect("the writer went on");
    }
    println!("restart: graceful stop under load: {took:?}; the start then: {replayed}");
    let db = place.connect();
    let checked = journal.check_all(&db);
    assert!(checked > 10, "the load did something");
    assert!(node.is_running());
    node.stop();

    // And with nothing under way at all.
    let node = place.start();
    node.stop();
    let node = place.start();
    journal.check(&db, &mut Random::seeded(1));
    node.stop();
}

/// Reported, not asserted: how long a start takes with something to recover.
#[test]
fn a_killed_server_with_a_hundred_thousand_tuples_is_back_soon() {
    const TUPLES: usize = 100_000;
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let db = place.connect();
    let value = |number: usize| format!("{number}:{}", "v".repeat(505));
    let filling = Instant::now();
    for some in (0..TUPLES).collect::<Vec<_>>().chunks(1000) {
        let asked: Vec<_> = some
            .iter()
            .map(|&number| {
                db.as_async().put(format!("tuple/{number}").as_bytes(), value(number).as_bytes())
            })
            .collect();
        for put in asked {
            put.wait().expect("the server takes puts");
        }
    }
    let filled = filling.elapsed();
    node.kill();
    let started = Instant::now();
    let node = place.start();
    let ready = started.elapsed();
    let first = db.get(b"tuple/99999").expect("a read").expect("the last tuple is there");
    let served = started.elapsed();
    assert_eq!(first, value(99_999).as_bytes()[..]);
    for number in (0..TUPLES).step_by(997) {
        let got = db
            .get(format!("tuple/{number}").as_bytes())
            .expect("a read")
            .expect("the tuple is there");
        assert_eq!(got, value(number).as_bytes()[..]);
    }
    let replayed = node
        .text()
        .lines()
        .find(|line| line.contains("log replayed"))
        .unwrap_or_default()
        .to_owned();
    println!(
        "restart with {TUPLES} tuples of 512 B (written in {filled:?}): ready after {ready:?}, \
         served after {served:?}; {replayed}"
    );
    node.stop();
}

//! Shards whose server is gone, over real sockets: a client that was given one address follows them
//! wherever they go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use timestone_client::blocking;

use crate::count;
use crate::fake::Server;

/// Raises a counter again and again while `run` goes on; how often that was acknowledged, and how
/// long one call took at most.
fn raised_during(db: &blocking::Db, run: impl FnOnce()) -> (u64, Duration) {
    let (over, raised) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|scope| {
        let raiser = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::SeqCst) {
                let begun = Instant::now();
                db.transact(|tx| {
                    let next = count(tx.get(b"n")?) + 1;
                    tx.put(b"n", &next.to_le_bytes())?;
                    tx.put(b"elsewhere", &next.to_le_bytes())
                })
                .expect("a failover is no more than a pause");
                raised.fetch_add(1, Ordering::SeqCst);
                longest = longest.max(begun.elapsed());
            }
            longest
        });
        run();
        over.store(true, Ordering::SeqCst);
        raiser.join().unwrap()
    });
    (raised.into_inner(), longest)
}

fn pause() {
    std::thread::sleep(Duration::from_millis(600));
}

#[test]
fn a_client_that_knows_one_address_follows_its_shards_to_servers_that_it_never_asked() {
    let servers = Server::cluster(3, 2);
    let db = blocking::connect(&servers[0].url()).unwrap();
    let greeted = |server: &Server| server.hellos.load(Ordering::SeqCst) > 0;
    let mut before = 0;
    let (raised, longest) = raised_during(&db, || {
        pause();
        assert!(!greeted(&servers[1]) && !greeted(&servers[2]), "backups are left alone");
        servers[0].die();
        pause();
        servers[1].take_over();
        pause();
        // And on to the third, and back to the first.
        servers[1].die();
        servers[2].take_over();
        pause();
        servers[0].come_back();
        servers[2].die();
        servers[0].take_over();
        std::thread::sleep(Duration::from_secs(1));
        before = count(db.get(b"n").unwrap());
    });
    assert!(raised > 5 && before > 0, "{raised} raised");
    assert_eq!(count(db.get(b"n").unwrap()), raised);
    assert_eq!(count(db.get(b"elsewhere").unwrap()), raised);
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    assert!(servers.iter().all(|server| greeted(server)));
}

#[test]
fn a_server_that_lives_on_and_serves_no_more_is_left() {
    let servers = Server::cluster(3, 2);
    let db = blocking::connect(&servers[0].url()).unwrap();
    let (raised, longest) = raised_during(&db, || {
        pause();
        // The map says so before its new primary serves.
        servers[1].idle.store(true, Ordering::SeqCst);
        servers[1].take_over();
        pause();
        servers[1].idle.store(false, Ordering::SeqCst);
        pause();
    });
    assert!(raised > 5, "{raised} raised");
    assert_eq!(count(db.get(b"n").unwrap()), raised);
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[test]
fn a_server_that_is_silent_is_left_before_its_connection_is_given_up() {
    let servers = Server::cluster(3, 2);
    // It talks to the others as well, so that one of them is up.
    let urls: Vec<_> = servers.iter().map(|server| server.address.to_string()).collect();
    let url = format!("timestone://{}", urls.join(","));
    let db = blocking::connect(&url).unwrap();
    let (raised, longest) = raised_during(&db, || {
        pause();
        servers[0].deaf.store(true, Ordering::SeqCst);
        pause();
        servers[2].take_over();
        pause();
    });
    assert!(raised > 5, "{raised} raised");
    // What the silent server has carried out was not told, and is told by the next one.
    assert_eq!(count(db.get(b"n").unwrap()), raised);
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[test]
fn a_client_that_is_given_a_backup_finds_the_primary() {
    let servers = Server::cluster(3, 1);
    let db = blocking::connect(&servers[2].url()).unwrap();
    db.put(b"k", b"v").unwrap();
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
}

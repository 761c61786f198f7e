//! SIGKILL at random moments under load, again and again: everything acknowledged is there
//! afterwards, nothing that was refused is. The same for servers with a thread for each stage,
//! fewer times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use timestone::blocking::Db;

use crate::journal::{Journal, value_of};
use crate::load::{Loads, TOTAL, bank_total, open_bank};
use crate::random::Random;
use crate::server::{NodeSetup, binary, outcome, test_folder};

/// Kills under load, at least 20 as the design asks.
const KILLS: usize = 24;
/// Kills of a server whose layout is staged: what differs are the queues between its threads, not
/// what is durable.
const STAGED_KILLS: usize = 8;
/// How long every load may take to be served again after a restart.
const BACK: Duration = Duration::from_secs(15);

fn check(db: &Db, journal: &Journal, random: &mut Random) -> usize {
    assert_eq!(bank_total(db), TOTAL, "money was lost or made");
    journal.check(db, random)
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed_again_and_again() {
    nothing_is_lost("kill", KILLS, |place| place);
}

#[test]
fn nothing_acknowledged_is_lost_when_a_server_with_a_thread_for_each_stage_is_killed() {
    nothing_is_lost("kill staged", STAGED_KILLS, |place| place.with("--layout", "staged"));
}

/// Kills the server of a place so many times, under every load.
fn nothing_is_lost(name: &str, kills: usize, adjust: impl Fn(NodeSetup) -> NodeSetup) {
    let mut random = Random::for_test(name);
    let folder = test_folder();
    println!("{name}: data in {}", folder.path().display());
    let place = adjust(NodeSetup::new(folder.path(), "data").with("--log", "ssd"));
    let journal = Arc::new(Journal::default());
    let mut node = place.start();
    let db = place.connect();
    open_bank(&db);

    let mut loads = Loads::new();
    loads.bank("bank-a", place.connect(), &journal, &mut random);
    loads.bank("bank-b", db.clone(), &journal, &mut random);
    loads.puts("puts", place.connect(), &journal, &mut random);
    loads.several("several", db.clone(), &journal, &mut random);
    loads.reader("reader", place.connect(), &journal, &mut random);
    loads.resp("resp", place.resp, &journal, &mut random);
    if !loads.redis_py("redis-py", place.resp, &journal, &mut random) {
        println!(
            "{name}: NO PYTHON WITH redis-py HERE (name one with TIMESTONE_TEST_PYTHON): the RESP \
             port is loaded by the test's own client only"
        );
    }

    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        loads.wait_until_served(&journal, BACK);
        std::thread::sleep(random.span(0, 900));
        node.kill();
        if round % 3 == 1 {
            // Once more while it recovers.
            let again = place.spawn();
            std::thread::sleep(random.span(1, 250));
            again.kill();
        }
        // The number of log streams changes under the data: 1, 2, 1, 2, …
        let threads = if round % 2 == 0 { "2" } else { "1" };
        let restarted = Instant::now();
        node = place.with("--threads", threads).start();
        let ready = restarted.elapsed();
        slowest = slowest.max(ready);
        let checked = check(&db, &journal, &mut random);
        println!("{name} {:2}: ready after {ready:?}, {checked} works checked", round + 1);
    }
    loads.wait_until_served(&journal, BACK);
    loads.stop();
    println!(
        "{name}: {kills} kills in {:?}, slowest restart {slowest:?}; {}",
        started.elapsed(),
        journal.summary()
    );

    assert_eq!(bank_total(&db), TOTAL);
    journal.check_all(&db);
    node.stop();
    let (code, text) = outcome({
        let mut command = binary();
        command.args(["log", "check"]).arg(&place.data);
        command
    });
    assert_eq!(code, 0, "{text}");
    let node = place.start();
    assert_eq!(bank_total(&db), TOTAL);
    let checked = journal.check_all(&db);
    println!(
        "{name}: {checked} works are as they were reported, after a graceful stop and a start"
    );
    node.stop();
}

/// Without a log nothing is promised but this: the store opens, serves, and what it returns was
/// written under that key.
#[test]
fn without_a_log_a_kill_loses_writes_but_damages_nothing() {
    let mut random = Random::for_test("kill without a log");
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--log", "none");
    let mut node = place.start();
    let db = place.connect();
    for round in 0..4 {
        let deadline = Instant::now() + random.span(200, 1500);
        let mut written = 0u32;
        while Instant::now() < deadline {
            let asked: Vec<_> = (0..100)
                .map(|part| format!("{round}/{written}/{part}"))
                .map(|key| db.as_async().put(key.as_bytes(), value_of(&key).as_bytes()))
                .collect();
            for put in asked {
                put.wait().expect("the server takes puts");
            }
            written += 1;
        }
        node.kill();
        node = place.with("--threads", if round % 2 == 0 { "2" } else { "1" }).start();
        let keys: Vec<String> = (0..written)
            .flat_map(|number| (0..100).map(move |part| format!("{round}/{number}/{part}")))
            .collect();
        let mut kept = 0;
        for some in keys.chunks(500) {
            let asked: Vec<_> = some.iter().map(|key| db.as_async().get(key.as_bytes())).collect();
            for (key, got) in some.iter().zip(asked) {
                if let Some(value) =
                    got.wait().unwrap_or_else(|error| panic!("could not read {key}: {error}"))
                {
                    assert_eq!(
                        String::from_utf8_lossy(&value),
                        value_of(key),
                        "key {key} is damaged"
                    );
                    kept += 1;
                }
            }
        }
        println!(
            "kill without a log {}: {kept} of {} writes were on the device",
            round + 1,
            keys.len()
        );
        let key = format!("after/{round}");
        db.put(key.as_bytes(), b"served").expect("the server serves writes");
        assert_eq!(db.get(key.as_bytes()).expect("and reads").as_deref(), Some(&b"served"[..]));
    }
    node.stop();
    let node = place.start();
    assert_eq!(
        db.get(b"after/3").expect("a read").as_deref(),
        Some(&b"served"[..]),
        "a graceful stop loses nothing, log or not"
    );
    node.stop();
}

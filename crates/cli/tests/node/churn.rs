//! Keys that come and go while the server is killed, ended, and started again with other threads
//! and another log device: deletes, values that are taken, values that expire, scans, and FLUSHDB.
//!
//! ```text
//!   native writer (a keyspace of its own) ─┐          ┌─ what each key may hold ─► every read and scan is judged by it
//!   RESP writer (the default keyspace) ────┴─ Model ──┘
//!   main thread: kill │ end and start with other --threads, --log ssd or none
//! ```
//! Every value is written once, so that one that comes back, or is taken twice, is known for what
//! it is. A key has one writer, and a writer does one thing at a time: so the model is exact but
//! for what a lost answer leaves open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use timestone::blocking::Db;
use timestone::{Error, Expiry, KeyspaceOptions, ScanOptions};

use crate::journal::WorkEnd;
use crate::random::Random;
use crate::resp::{Reply, Resp};
use crate::restart::now;
use crate::server::{NodeSetup, binary, eventually, outcome, test_folder};

/// Keys of each writer: few, so that each is written, deleted and taken again and again.
const KEYS: u64 = 40;
/// Kills and ends of the whole test.
const ROUNDS: usize = 14;
/// How much later than asked for a value may go: clocks, and the pause in which the server is down.
const EXPIRY_SLACK: Duration = Duration::from_secs(5);

/// What a key may hold.
#[derive(Clone, Debug, Default)]
struct Known {
    /// One of these; absent at first.
    may_be: BTreeSet<Option<String>>,
    /// Whatever was written: what a server without a log may go back to.
    ever: BTreeSet<Option<String>>,
    /// From then on it is absent, if it holds the value that expires.
    gone_at: Option<Instant>,
}

/// A value is what its first word says; the rest makes it long.
fn word(value: &str) -> String {
    value.split('|').next().unwrap_or_default().to_owned()
}

/// What a writer knows of its keys.
#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<String, Known>,
    taken: BTreeSet<String>,
    next: u64,
    judged: u64,
}

impl Model {
    fn known(&mut self, key: &str) -> &mut Known {
        self.keys.entry(key.to_owned()).or_insert_with(|| {
            let absent = BTreeSet::from([None]);
            Known { may_be: absent.clone(), ever: absent, gone_at: None }
        })
    }

    fn value(&mut self) -> String {
        self.next += 1;
        format!("v{}|{}", self.next, "x".repeat((self.next * 97 % 3_000) as usize))
    }

    /// A write to a key ended: `after` is what it holds if it took place.
    fn wrote(&mut self, key: &str, after: Option<&str>, fate: WorkEnd, expires: Option<Duration>) {
        let known = self.known(key);
        let after = after.map(word);
        known.ever.insert(after.clone());
        match fate {
            WorkEnd::Acknowledged => {
                known.may_be = BTreeSet::from([after]);
                known.gone_at = expires.map(|span| Instant::now() + span + EXPIRY_SLACK);
                if expires.is_some() {
                    known.may_be.insert(None);
                }
            }
            WorkEnd::Unknown(_) | WorkEnd::Open => {
                known.may_be.insert(after);
                known.gone_at = None;
                if expires.is_some() {
                    known.may_be.insert(None);
                }
            }
            WorkEnd::Refused => {}
        }
    }

    /// A key was read.
    fn read(&mut self, what: &str, key: &str, found: Option<&str>) {
        self.judged += 1;
        let found = found.map(word);
        let known = self.known(key).clone();
        assert!(
            known.may_be.contains(&found),
            "{what}: {key} is {found:?}, and may be {:?}",
            known.may_be
        );
        if known.gone_at.is_some_and(|at| at < Instant::now()) {
            assert_eq!(found, None, "{what}: {key} expired long ago");
        }
    }

    /// A value was taken: nobody else may ever take it.
    fn took(&mut self, key: &str, value: &str) {
        self.read("take", key, Some(value));
        assert!(self.taken.insert(word(value)), "{key}: {} was taken twice", word(value));
    }

    /// All keys were listed: what is certainly there is there, what is certainly not is not.
    fn listed(&mut self, what: &str, found: &BTreeSet<String>) {
        self.judged += 1;
        for (key, known) in &self.keys {
            let (present, absent) =
                (!known.may_be.contains(&None), known.may_be.iter().all(Option::is_none));
            assert!(
                !present || found.contains(key),
                "{what}: {key} is missing, and holds {:?}",
                known.may_be
            );
            assert!(!absent || !found.contains(key), "{what}: {key} is there, and was deleted");
        }
    }

    /// The server was killed without a log: each key may be as it was at any time.
    fn forget(&mut self) {
        for known in self.keys.values_mut() {
            known.may_be.clone_from(&known.ever);
            known.gone_at = None;
        }
        self.taken.clear();
    }
}

/// What the writers and the main thread share.
#[derive(Debug, Default)]
struct Shared {
    native: Mutex<Model>,
    resp: Mutex<Model>,
    stop: AtomicBool,
    rounds: [AtomicU64; 2],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fate<T>(done: &Result<T, Error>) -> WorkEnd {
    done.as_ref().map_or_else(WorkEnd::of, |_| WorkEnd::Acknowledged)
}

/// One thing that the native writer does; whether the server answered.
fn native_step(db: &Db, model: &mut Model, random: &mut Random) -> bool {
    let key = format!("n{}", random.below(KEYS));
    let bytes = key.as_bytes();
    match random.below(12) {
        0..=3 => {
            let value = model.value();
            let done = db.put(bytes, value.as_bytes());
            model.wrote(&key, Some(&value), fate(&done), None);
            done.is_ok()
        }
        4..=5 => {
            let done = db.delete(bytes);
            model.wrote(&key, None, fate(&done), None);
            done.is_ok()
        }
        6 => {
            let (value, span) = (model.value(), random.span(50, 500));
            let done =
                db.put_until(bytes, value.as_bytes(), Expiry::at(now().saturating_add(span)));
            model.wrote(&key, Some(&value), fate(&done), Some(span));
            done.is_ok()
        }
        7..=8 => {
            let done = db.take(bytes);
            if let Ok(outcome) = &done {
                match outcome.found.as_deref().filter(|_| outcome.took_place()) {
                    Some(value) => model.took(&key, &String::from_utf8_lossy(value)),
                    None => model.read("take", &key, None),
                }
            }
            model.wrote(&key, None, fate(&done), None);
            done.is_ok()
        }
        9 => {
            let scan = db.scan(&ScanOptions::default());
            let found: Result<BTreeSet<String>, Error> = scan.and_then(|scan| {
                scan.map(|entry| entry.map(|(key, _)| String::from_utf8_lossy(&key).into_owned()))
                    .collect()
            });
            if let Ok(found) = &found {
                model.listed("scan", found);
            }
            found.is_ok()
        }
        _ => {
            let found = db.get(bytes);
            if let Ok(found) = &found {
                model.read("get", &key, found.as_deref().map(String::from_utf8_lossy).as_deref());
            }
            found.is_ok()
        }
    }
}

/// What an answer says of a write.
fn fate_of(answer: &std::io::Result<Reply>) -> WorkEnd {
    match answer {
        Err(_) => WorkEnd::Unknown(None),
        Ok(Reply::Error(text)) if text.starts_with("UNKNOWN") => WorkEnd::Unknown(None),
        Ok(Reply::Error(_)) => WorkEnd::Refused,
        Ok(_) => WorkEnd::Acknowledged,
    }
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// One thing that the RESP writer does; `None`: the connection is lost.
fn resp_step(resp: &mut Resp, model: &mut Model, random: &mut Random) -> Option<bool> {
    let key = format!("r{}", random.below(KEYS));
    let bytes = key.as_bytes();
    let answer = match random.below(40) {
        0..=11 => {
            let value = model.value();
            let answer = resp.call(&[b"SET", bytes, value.as_bytes()]);
            model.wrote(&key, Some(&value), fate_of(&answer), None);
            answer
        }
        12..=17 => {
            let answer = resp.call(&[b"DEL", bytes]);
            model.wrote(&key, None, fate_of(&answer), None);
            answer
        }
        18..=20 => {
            let (value, span) = (model.value(), random.span(50, 500));
            let answer = resp.call(&[
                b"SET",
                bytes,
                value.as_bytes(),
                b"PX",
                span.as_millis().to_string().as_bytes(),
            ]);
            model.wrote(&key, Some(&value), fate_of(&answer), Some(span));
            answer
        }
        21..=25 => {
            let answer = resp.call(&[b"GETDEL", bytes]);
            match answer.as_ref().ok().map(text) {
                Some(Some(value)) => model.took(&key, &value),
                Some(None) if matches!(answer, Ok(Reply::Nil)) => model.read("GETDEL", &key, None),
                _ => {}
            }
            model.wrote(&key, None, fate_of(&answer), None);
            answer
        }
        26..=29 => {
            let answer = resp.call(&[b"KEYS", b"*"]);
            if let Ok(Reply::Array(found)) = &answer {
                model.listed("KEYS", &found.iter().filter_map(text).collect());
            }
            answer
        }
        30 => {
            let answer = resp.call(&[b"FLUSHDB"]);
            for key in model.keys.keys().cloned().collect::<Vec<_>>() {
                model.wrote(&key, None, fate_of(&answer), None);
            }
            answer
        }
        _ => {
            let answer = resp.call(&[b"GET", bytes]);
            if let Ok(reply @ (Reply::Bulk(_) | Reply::Nil)) = &answer {
                model.read("GET", &key, text(reply).as_deref());
            }
            answer
        }
    };
    match answer {
        Ok(Reply::Error(_)) => Some(false),
        Ok(_) => Some(true),
        Err(_) => None,
    }
}

const PAUSE: Duration = Duration::from_millis(20);

fn native_writer(db: &Db, shared: &Shared, mut random: Random) {
    let hasty = db.with_deadline(Duration::from_millis(400));
    while !shared.stop.load(Ordering::Relaxed) {
        let db = if random.below(3) == 0 { &hasty } else { db };
        if native_step(db, &mut lock(&shared.native), &mut random) {
            shared.rounds[0].fetch_add(1, Ordering::Relaxed);
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}

fn resp_writer(address: SocketAddr, shared: &Shared, mut random: Random) {
    while !shared.stop.load(Ordering::Relaxed) {
        let Ok(mut resp) = Resp::connect(address) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        while !shared.stop.load(Ordering::Relaxed) {
            match resp_step(&mut resp, &mut lock(&shared.resp), &mut random) {
                Some(true) => {
                    shared.rounds[1].fetch_add(1, Ordering::Relaxed);
                }
                Some(false) => std::thread::sleep(PAUSE),
                None => break,
            }
        }
    }
}

/// Waits until both writers were served some times more.
fn wait_until_served(shared: &Shared) {
    let before = shared.rounds.each_ref().map(|rounds| rounds.load(Ordering::Relaxed));
    eventually("the writers' return", Duration::from_secs(20), || {
        let now = shared.rounds.each_ref().map(|rounds| rounds.load(Ordering::Relaxed));
        if now.iter().zip(before).all(|(now, before)| *now > before + 60) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
}

#[test]
fn keys_that_come_and_go_survive_kills_and_changes_of_threads_and_log_device() {
    let mut random = Random::for_test("churn");
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--log", "ssd");
    let mut node = place.start();
    let db = place.connect();
    db.create_keyspace("churn", KeyspaceOptions::default()).expect("a keyspace of its own");
    let db = db.keyspace("churn").expect("it was just made");
    let shared = Arc::new(Shared::default());
    let writers = {
        let (native, resp) = (Arc::clone(&shared), Arc::clone(&shared));
        let (one, two, db, address) = (random.fork(), random.fork(), db.clone(), place.resp);
        [
            std::thread::spawn(move || native_writer(&db, &native, one)),
            std::thread::spawn(move || resp_writer(address, &resp, two)),
        ]
    };
    let alive = |what: &str| {
        assert!(writers.iter().all(|writer| !writer.is_finished()), "a writer failed {what}")
    };
    let mut log = "ssd";
    for round in 0..ROUNDS {
        wait_until_served(&shared);
        std::thread::sleep(random.span(0, 700));
        alive("before the end of a round");
        let end = match (log, random.below(3)) {
            ("ssd", 0) => "ended",
            ("ssd", _) => "killed",
            (_, 0) => "killed without a log",
            _ => "ended",
        };
        if end == "killed without a log" {
            // What the device had not taken is lost, and nothing says what: no writer may be
            // between its write and its answer.
            let (mut native, mut resp) = (lock(&shared.native), lock(&shared.resp));
            node.kill();
            native.forget();
            resp.forget();
        } else if end == "killed" {
            node.kill();
        } else {
            node.stop();
        }
        // Another device every now and then, and other threads, both after a kill as well.
        log = if random.below(2) == 0 { "ssd" } else { "none" };
        let threads = (1 + random.below(3)).to_string();
        println!("churn {round:2}: {end}, then --log {log} --threads {threads}");
        node = place.with("--log", log).with("--threads", &threads).start();
    }
    wait_until_served(&shared);
    shared.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().expect("a writer found what cannot be");
    }
    // Everything once more, at rest, and after one more start.
    node.stop();
    let node = place.with("--log", "ssd").start();
    audit(&db, &place, &shared);
    node.stop();
    let (code, said) = outcome({
        let mut command = binary();
        command.args(["log", "check"]).arg(&place.data);
        command
    });
    assert_eq!(code, 0, "{said}");
}

/// Reads every key of both writers.
fn audit(db: &Db, place: &NodeSetup, shared: &Shared) {
    let mut native = lock(&shared.native);
    for key in native.keys.keys().cloned().collect::<Vec<_>>() {
        let found = db.get(key.as_bytes()).unwrap_or_else(|error| panic!("{key}: {error}"));
        native.read("at the end", &key, found.as_deref().map(String::from_utf8_lossy).as_deref());
    }
    let mut resp = lock(&shared.resp);
    let mut redis = Resp::connect(place.resp).expect("connects");
    for key in resp.keys.keys().cloned().collect::<Vec<_>>() {
        let found = redis.call(&[b"GET", key.as_bytes()]).expect("an answer");
        resp.read("at the end", &key, text(&found).as_deref());
    }
    println!("churn: {} and {} answers judged", native.judged, resp.judged);
}

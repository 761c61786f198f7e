//! Single keys of an embedded store without a log, which are asked by calls: what tasks on two loops
//! see of a few keys is what one register for each key would tell them, by the versions.
//!
//! A key's versions are the order in which its puts took place. So it is enough that whoever begins
//! after something was known of a key finds, or makes, no older version of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use timestone::server::DeviceKind;
use timestone::{Embedded, LocalDb, OpenOptions, Timestamp, TransactionOptions};

const KEYS: u64 = 6;
const TASKS: u64 = 12;
/// More than what a put that is left to its shard may lie ahead.
const GIVEN_UP_EVERY: Duration = Duration::from_millis(30);
const LASTS: Duration = Duration::from_millis(1500);

/// What is known of a key, by everybody together.
#[derive(Default)]
struct Known {
    /// The youngest version that somebody was told of.
    youngest: BTreeMap<u64, Timestamp>,
    /// Values of acknowledged puts, by key and version.
    values: BTreeMap<(u64, Timestamp), Vec<u8>>,
    /// Values that gets have found.
    found: BTreeMap<(u64, Timestamp), Vec<u8>>,
    /// Values whose puts were given up, with the version of the next put of the same session.
    given_up: BTreeMap<Vec<u8>, Timestamp>,
    last_given_up: Option<Instant>,
    puts: u64,
    gets: u64,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn open(folder: &std::path::Path, log: DeviceKind) -> Embedded {
    let mut options = OpenOptions::new(folder).log(log);
    options.server.threads = Some(2);
    options.server.shards = Some(4);
    options.server.sizes.capacity_bytes = Some(256 << 20);
    options.server.sizes.cache_bytes = 16 << 20;
    timestone::open_with(&options).unwrap()
}

/// Reads and puts one key after the other, gives some puts up, and writes some in transactions.
async fn session(db: LocalDb, seed: u64, known: Arc<Mutex<Known>>) {
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let ends = Instant::now() + LASTS;
    let mut number = 0_u64;
    while Instant::now() < ends {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (roll, at) = (dice >> 40, (dice >> 33) % KEYS);
        number += 1;
        let name = key(at);
        let value = [seed.to_be_bytes(), number.to_be_bytes()].concat();
        let before = known.lock().unwrap().youngest.get(&at).copied().unwrap_or_default();
        let (version, is_put) = match roll % 16 {
            0..7 => {
                let found = again(|| db.get(&name)).await;
                let version =
                    found.as_ref().map_or(Timestamp::ZERO, |found| found.version().timestamp);
                let mut known = known.lock().unwrap();
                known.gets += 1;
                if let Some(found) = found {
                    known.found.insert((at, version), found.to_vec());
                }
                (version, false)
            }
            7 if may_give_up(&known) => {
                // Nobody waits for the first; the second comes after it, or prevents it.
                let given_up = [b"given up", &value[..]].concat();
                drop(begun(&db, at, &given_up));
                let version = again(|| db.put(&name, &value)).await;
                known.lock().unwrap().given_up.insert(given_up, version);
                (version, true)
            }
            8 => {
                let put = async {
                    let transaction = db.begin(&TransactionOptions::default())?;
                    transaction.get(&key(at)).await?;
                    transaction.put(&key(at), &value)?;
                    transaction.commit().await
                };
                match put.await {
                    Ok(version) => (version, true),
                    Err(error) if error.retryable() => continue,
                    Err(error) => panic!("{error}"),
                }
            }
            _ => (again(|| db.put(&name, &value)).await, true),
        };
        assert!(
            if is_put { version > before } else { version >= before },
            "key {at}: {version} after {before}, a put: {is_put}"
        );
        let mut known = known.lock().unwrap();
        if is_put {
            known.puts += 1;
            let twice = known.values.insert((at, version), value);
            assert_eq!(twice, None, "two puts of key {at} at {version}");
        }
        let youngest = known.youngest.entry(at).or_default();
        *youngest = version.max(*youngest);
    }
}

/// Whether a put may be given up now. Each sets its session's clock ahead, and all that see what it puts:
/// so it is seldom enough for time to follow.
fn may_give_up(known: &Mutex<Known>) -> bool {
    let last = &mut known.lock().unwrap().last_given_up;
    let may = last.is_none_or(|last| last.elapsed() > GIVEN_UP_EVERY);
    if may {
        *last = Some(Instant::now());
    }
    may
}

/// Asks until it is not refused any more: a key may be held by transactions.
async fn again<T, F: Future<Output = timestone::Result<T>>>(mut ask: impl FnMut() -> F) -> T {
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }
}

/// A put that has begun.
fn begun(db: &LocalDb, at: u64, value: &[u8]) -> impl Sized + use<> {
    let (db, value) = (db.clone(), value.to_vec());
    let mut put = Box::pin(async move { db.put(&key(at), &value).await.map(drop) });
    let polled = pin!(&mut put).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "nothing is answered before it is asked");
    put
}

fn run(log: DeviceKind) -> Known {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("data"), log);
    let known = Arc::new(Mutex::new(Known::default()));
    let mut running = Vec::new();
    for (loop_number, db) in (0..).zip(store.loops()) {
        for task in 0..TASKS {
            let known = Arc::clone(&known);
            running.push(db.spawn(move |db: LocalDb| async move {
                let session_db = db.new_session()?;
                session(session_db, loop_number * TASKS + task, known).await;
                Ok(())
            }));
        }
    }
    for one in running {
        one.wait().unwrap();
    }
    store.close().unwrap();
    Arc::into_inner(known).unwrap().into_inner().unwrap()
}

fn check(known: &Known) {
    assert!(known.puts > 200 && known.gets > 200, "{} puts, {} gets", known.puts, known.gets);
    assert!(known.given_up.len() > 10, "{} were given up", known.given_up.len());
    for (place, found) in &known.found {
        match known.values.get(place) {
            Some(value) => assert_eq!(found, value, "{place:?}"),
            // Given up, and carried out all the same: before what its session put next.
            None => {
                let next = known.given_up.get(found);
                assert!(next.is_some_and(|&next| place.1 < next), "{place:?}: {found:?}, {next:?}");
            }
        }
    }
}

#[test]
fn keys_without_a_log_are_registers() {
    check(&run(DeviceKind::None));
}

#[test]
fn keys_with_a_log_are_registers() {
    check(&run(DeviceKind::Ssd));
}

/// A session whose handle is gone while it waits is open until it is answered.
#[test]
fn a_call_outlives_the_handle_it_was_asked_by() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("data"), DeviceKind::None);
    let asked = store.loops()[1].spawn(|db: LocalDb| async move {
        let mut keys: Vec<_> = Vec::new();
        for number in 0..100_u64 {
            keys.push(db.new_session()?.get(&key(number)));
        }
        for get in keys {
            assert!(get.await?.is_none());
        }
        for number in 0..100_u64 {
            let session = db.new_session()?;
            let put = async move { session.put(&key(number), b"value").await };
            put.await?;
        }
        for number in 0..100_u64 {
            assert_eq!(db.get(&key(number)).await?.as_deref(), Some(&b"value"[..]));
        }
        Ok(())
    });
    asked.wait().unwrap();
    // Beside calls: what takes longer, and what is not put by calls.
    let db = timestone::blocking::Db::from(store.db());
    let long = vec![7; 100_000];
    db.put(b"long", &long).unwrap();
    assert_eq!(db.get(b"long").unwrap().as_deref(), Some(&long[..]));
    assert!(db.get(&[0; 100_000]).is_err(), "a key that is too long is refused");
    drop(db);
    store.close().unwrap();
}

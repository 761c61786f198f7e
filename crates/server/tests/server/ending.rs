//! Embedded clients that are busy when the server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use timestone_wal::DeviceKind;

use crate::running::{Running, config, eventually};

/// So many keys that both shards have some of them.
const KEYS: u64 = 6;

#[test]
fn transactions_of_an_embedded_client_over_ends_without_a_log_are_whole_and_nobody_waits_for_long()
{
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    (config.threads, config.log) = (Some(2), DeviceKind::None);
    let mut acknowledged = 0u64;
    for round in 0..12 {
        let Running { server, inside } = Running::start(&config);
        let read = |db: &timestone_client::blocking::Db| {
            db.transact(|tx| {
                (0..KEYS).map(|key| tx.get(&key.to_be_bytes())).collect::<Result<Vec<_>, _>>()
            })
            .unwrap()
        };
        let found = read(&inside);
        let number = |value: &Option<timestone_client::Value>| {
            value.as_ref().map_or(0, |value| u64::from_be_bytes((**value).try_into().unwrap()))
        };
        let last = number(&found[0]);
        assert!(
            found.iter().all(|value| number(value) == last),
            "round {round}: half of one: {found:?}"
        );
        assert!(
            last >= acknowledged,
            "round {round}: {last} is there, {acknowledged} was acknowledged"
        );
        let some = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&some);
        let writing = std::thread::spawn(move || {
            let mut written = last;
            loop {
                let next = written + 1;
                let put = inside.transact(|tx| {
                    (0..KEYS).try_for_each(|key| tx.put(&key.to_be_bytes(), &next.to_be_bytes()))
                });
                match put {
                    Ok(_) => {
                        written = next;
                        told.store(next > last + 1, Ordering::Relaxed);
                    }
                    Err(_) => return written,
                }
            }
        });
        eventually("the embedded client commits", || some.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        server.shutdown().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(6), "round {round}: {:?}", begun.elapsed());
        acknowledged = writing.join().unwrap();
    }
    assert!(acknowledged > 12);
}

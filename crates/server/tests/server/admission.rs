//! What is let in at a door, and what stages of one process send each other, is counted once and
//! released once.

use crate::running::{Running, config, eventually};

#[test]
fn nothing_stays_counted_after_a_load_from_every_side() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let native = running.native();
    std::thread::scope(|scope| {
        for db in [&native, &running.inside] {
            scope.spawn(move || {
                for n in 0..300u32 {
                    let key = format!("key-{}", n % 40);
                    db.put(key.as_bytes(), &[7; 300]).unwrap();
                    db.transact(|tx| {
                        let value = tx.get(key.as_bytes())?.unwrap_or_default();
                        tx.put(b"other", &value)
                    })
                    .unwrap();
                }
            });
        }
        scope.spawn(|| {
            let commands = "SET a 1\r\nINCR n\r\nMGET a b c\r\n".repeat(300);
            let first = "+OK\r\n:1\r\n*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n";
            assert!(running.resp(&commands, 300 * first.len()).starts_with(first));
        });
    });
    let stages = || running.server.injector().metrics().stages;
    let counted: Vec<_> =
        stages().into_iter().filter(|stage| stage.name.starts_with("shard")).collect();
    assert!(counted.len() == 2 && counted.iter().all(|stage| stage.events_total > 100));
    // An underflow would wrap around to a very large number, which never goes away.
    eventually("every gauge at zero", || {
        stages().iter().all(|stage| (stage.admitted_requests, stage.admitted_bytes) == (0, 0))
    });
    let (status, page) = running.page("/metrics");
    assert_eq!(status, 200);
    assert!(page.contains("timestone_stage_admitted_bytes{stage=\"shard-0\"} 0\n"), "{page}");
    drop(native);
    running.server.shutdown().unwrap();
}

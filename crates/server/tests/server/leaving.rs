//! Clients that end: they say so, and nothing waits for them as it does for those that fell silent.

use std::time::Instant;

use timestone_types::limits::SESSION_TTL;

use crate::running::{Running, config, eventually};

#[test]
fn a_client_that_has_left_holds_the_watermark_back_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let native = running.native();
    native.put(b"one", b"1").unwrap();
    running.inside.put(b"another", b"1").unwrap();
    drop(native);
    let left = Instant::now();
    eventually("the watermark passes the moment at which the client left", || {
        let since = left.elapsed();
        assert!(since < SESSION_TTL, "it was waited for like one that fell silent");
        let (_, page) = running.page("/metrics");
        let lags = page.lines().filter(|line| line.starts_with("timestone_watermark_lag_seconds{"));
        let lags: Vec<f64> =
            lags.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        lags.len() == 2 && lags.iter().all(|lag| *lag < since.as_secs_f64())
    });
    running.server.shutdown().unwrap();
}

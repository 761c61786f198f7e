//! Prints nanoseconds per operation of the participant's fast paths:
//! `cargo run --release -p timestone-txn --example txn_bench`.
//!
//! Keys are drawn from a hot set and from a million; the log is durable at once, as with device
//! `none`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark reads the clock and reports"
)]

use std::time::{Duration, Instant};

use timestone_txn::participant::{
    Config, Input, LatestInStore, LogIntent, LogRange, LogSequence, Lookup, Output, Participant,
    Prepare, ReadAt, ReadItem, Token, Wait, WriteItem, WriteKind,
};
use timestone_types::{
    ClientId, Expiry, HashSeed, KeyHash, KeyspaceId, Sequence, ShardId, Timestamp, TxnId,
    TxnOutcome, Version, hash_key,
};

struct Bench {
    core: Participant,
    now: Timestamp,
    out: Vec<Output>,
    durable: LogSequence,
    latest: Vec<Version>,
    keys: Vec<KeyHash>,
    sequence: u64,
    random: u64,
}

impl Bench {
    fn new(count: u64) -> Self {
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let key = |n: u64| hash_key(HashSeed(7), KeyspaceId::DEFAULT, &n.to_le_bytes());
        let mut bench = Self {
            core: Participant::new(ShardId::new(0), Config::default()),
            now,
            out: Vec::with_capacity(64),
            durable: LogSequence(0),
            latest: vec![Version::ZERO; count as usize],
            keys: (0..count).map(key).collect(),
            sequence: 0,
            random: 1,
        };
        bench.core.step(now, Input::RecoveryDone, &mut bench.out);
        bench.log_is_durable();
        bench
    }

    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % self.keys.len() as u64) as usize
    }

    fn store(&self, key: usize) -> LatestInStore {
        LatestInStore { version: self.latest[key], absent: self.latest[key].is_zero() }
    }

    fn log_is_durable(&mut self) {
        for output in self.out.drain(..) {
            if let Output::Log { sequence, intent } = output {
                std::hint::black_box::<LogIntent>(intent);
                self.durable = sequence;
            }
        }
        self.core.step(
            self.now,
            Input::Durable { range: LogRange::through(self.durable) },
            &mut self.out,
        );
        self.out.clear();
    }

    /// Virtual time passes; reports and ticks come as they would.
    fn pass(&mut self, operations: u64) {
        self.now = self.now.saturating_add(Duration::from_micros(2));
        if operations.is_multiple_of(2000) {
            let (client, acked) = (ClientId::new(1), Sequence::new(self.sequence));
            let report = Input::Report {
                client,
                watermark: self.now,
                acked,
                clock: self.now,
                closing: false,
            };
            self.core.step(self.now, report, &mut self.out);
            self.core.step(self.now, Input::Tick, &mut self.out);
            self.log_is_durable();
        }
    }

    fn read(&mut self) {
        let key = self.draw();
        let at = ReadAt::Snapshot(self.now);
        let (token, keyspace, latest) = (Token(1), KeyspaceId::DEFAULT, self.store(key));
        let input =
            Input::Read { token, keyspace, key: self.keys[key], at, wait: Wait::Yes, latest };
        self.core.step(self.now, input, &mut self.out);
        self.out.clear();
    }

    /// Three reads, two writes; returns what was written and whether it was promised.
    fn prepare(&mut self, single: bool) -> (TxnId, [usize; 2], Timestamp) {
        self.sequence += 1;
        let txn = TxnId::new(ClientId::new(1), Sequence::new(self.sequence));
        let (begin, commit) = (self.now, self.now.next());
        let reads = [self.draw(), self.draw(), self.draw()].map(|key| {
            let latest = self.store(key);
            ReadItem {
                keyspace: KeyspaceId::DEFAULT,
                key: self.keys[key],
                version: latest.version,
                absent: latest.absent,
                expires_at: Expiry::NEVER,
                latest,
            }
        });
        let written = [self.draw(), self.draw()];
        let writes = written.map(|key| {
            let (keyspace, key, latest) = (KeyspaceId::DEFAULT, self.keys[key], self.store(key));
            WriteItem { keyspace, key, kind: WriteKind::Put, latest, range_read: Timestamp::ZERO }
        });
        let participants: &[ShardId] = &[ShardId::new(0), ShardId::new(1)];
        let prepare = Prepare {
            token: Token(self.sequence),
            txn,
            begin,
            commit,
            placed_by: commit,
            single,
            wait: Wait::No,
            participants,
            reads: &reads,
            ranges: &[],
            writes: &writes,
            condition: Lookup::NotNeeded,
            has_room: true,
            at_once: false,
        };
        self.core.step(self.now, Input::Prepare(prepare), &mut self.out);
        (txn, written, commit)
    }

    fn finish(&mut self, txn: TxnId, written: [usize; 2], at: Timestamp) {
        self.core.step(self.now, Input::Applied { txn }, &mut self.out);
        for key in written {
            self.latest[key] = Version::new(at, txn.client);
        }
        self.out.clear();
    }

    fn two_phase(&mut self) {
        let (txn, written, at) = self.prepare(false);
        self.log_is_durable();
        let (token, outcome) = (Token(1), TxnOutcome::Committed(at));
        let decided_by = timestone_txn::participant::DecidedBy::Client;
        self.core.step(self.now, Input::Decide { token, txn, outcome, decided_by }, &mut self.out);
        self.log_is_durable();
        self.finish(txn, written, at);
    }

    fn one_phase(&mut self) {
        let (txn, written, at) = self.prepare(true);
        self.log_is_durable();
        self.finish(txn, written, at);
    }
}

fn measure(name: &str, keys: u64, operations: u64, mut operation: impl FnMut(&mut Bench)) {
    let mut bench = Bench::new(keys);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for n in 1..=operations {
            operation(&mut bench);
            bench.pass(n);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    let stats = bench.core.view(bench.now);
    println!(
        "{name:<44} {keys:>8} keys {best:>8.1} ns   ({} access records, {} kept)",
        stats.access_records, stats.kept
    );
}

fn main() {
    println!("best of five runs, drawing keys and passing time included");
    measure("nothing (the loop itself)", 1_000, 1_000_000, |bench| {
        let key = bench.draw();
        std::hint::black_box(bench.store(key));
    });
    for keys in [1_000, 1_000_000] {
        measure("read", keys, 2_000_000, Bench::read);
        measure("one phase: prepare 3r 2w, durable, applied", keys, 500_000, Bench::one_phase);
        measure("two phases: and decide, durable", keys, 500_000, Bench::two_phase);
    }
    // The prepare alone: refused ones would be cheaper, so only promises are timed, then undone
    // outside the clock.
    for keys in [1_000, 1_000_000] {
        let mut bench = Bench::new(keys);
        let (mut spent, mut best) = (Duration::ZERO, f64::MAX);
        for n in 1..=400_000u64 {
            let start = Instant::now();
            let (txn, written, at) = bench.prepare(true);
            spent += start.elapsed();
            bench.log_is_durable();
            bench.finish(txn, written, at);
            bench.pass(n);
            if n.is_multiple_of(80_000) {
                best = best.min(spent.as_nanos() as f64 / 80_000.0);
                spent = Duration::ZERO;
            }
        }
        println!(
            "{:<44} {keys:>8} keys {best:>8.1} ns   (with one clock read)",
            "prepare 3r 2w alone"
        );
    }
}

//! How long it takes to generate a transaction, to draw a key and to record an outcome:
//! nanoseconds, the best of several rounds.
//!
//! `cargo bench -p timestone-workload`. What stands on the client's hot path must stay far below
//! the microseconds that a transaction costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use timestone_workload::{
    Generator, KeyIndex, Random, Recorder, TxnPlan, WorkloadKind, WorkloadSpec, Zipf,
};

/// Many short rounds: one below a scheduler's slice is left alone now and then, even on a busy
/// machine.
const ROUNDS: u32 = 300;
const ITERATIONS: u32 = 5_000;

fn best_ns(mut work: impl FnMut()) -> f64 {
    let mut round = || {
        let begun = Instant::now();
        for _ in 0..ITERATIONS {
            work();
        }
        begun.elapsed().as_nanos() as f64 / f64::from(ITERATIONS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    for name in WorkloadKind::names() {
        let spec = WorkloadSpec::named(name).expect("the name is one of the list");
        let mut generator = Generator::new(&spec, 0, 256).expect("the usual parameters are valid");
        let mut plan = TxnPlan::default();
        let mut ops = 0;
        let mut count = 0u64;
        let ns = best_ns(|| {
            generator.next(&mut plan);
            ops += plan.ops.len() as u64;
            count += 1;
            black_box(&plan);
        });
        let ops_per_txn = ops as f64 / count as f64;
        println!(
            "{name:14} {ns:7.1} ns a transaction, {:5.1} ns each of its {ops_per_txn:.1} operations",
            ns / ops_per_txn
        );
    }
    let spec = WorkloadSpec { ops_per_txn: 4, ..WorkloadSpec::of(WorkloadKind::YcsbB) };
    let mut generator = Generator::new(&spec, 0, 1).expect("the parameters are valid");
    let mut plan = TxnPlan::default();
    println!("ycsb-b, 4 keys {:7.1} ns a transaction", best_ns(|| generator.next(&mut plan)));
    let mut random = Random::new(1);
    for alpha in [0.0, 0.75, 0.99, 1.0, 1.2] {
        let zipf = Zipf::new(1_000_000, alpha);
        println!(
            "zipf α = {alpha:<5} {:7.1} ns a draw",
            best_ns(|| _ = black_box(zipf.draw(&mut random)))
        );
    }
    let (shape, mut key, mut next) = (spec.key_shape(), Vec::new(), 0);
    let ns = best_ns(|| {
        key.clear();
        next += 7;
        shape.write(KeyIndex(next), &mut key);
        black_box(&key);
    });
    println!("key spelled    {ns:7.1} ns");
    let mut recorder = Recorder::new();
    let ns = best_ns(|| recorder.committed(Duration::from_nanos(random.below(1_000_000)), false));
    println!("commit counted {ns:7.1} ns");
}

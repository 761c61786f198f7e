//! What stages take: workloads that run in the simulator under a stopwatch, and what explains their times best.
//!
//! Few sessions tell what a turn with little to do costs, many what a frame costs among others; transactions of one and of four operations tell
//! decisions apart from prepares. Writing workloads write their device over once before anything is measured, so that collection runs.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use timestone_sim::{Scenario, Seed, StageCosts, StageKind, Stopwatch, measure as run};

/// Workload, operations of a transaction (as usual when none are named), sessions, log, seconds until it counts, and for how long.
type Run = (&'static str, Option<u32>, u32, &'static str, f64, f64);

/// What is run.
const RUNS: [Run; 8] = [
    ("retwis", None, 256, "none", 8.0, 1.0),
    ("retwis", None, 16, "ssd", 0.5, 1.0),
    ("ycsb-a", Some(1), 256, "none", 8.0, 1.0),
    ("ycsb-a", Some(4), 32, "ssd", 1.0, 0.8),
    ("ycsb-a", Some(1), 16, "none", 0.5, 0.5),
    ("ycsb-b", Some(1), 256, "none", 4.0, 0.3),
    ("ycsb-c", Some(1), 256, "none", 0.5, 0.2),
    ("ycsb-c", Some(1), 16, "none", 0.5, 0.3),
];

/// The costs of all kinds of stages.
pub(crate) fn measure() -> Result<BTreeMap<StageKind, StageCosts>, Box<dyn Error>> {
    let begin = Instant::now();
    let stopwatch = Stopwatch::new(move || begin.elapsed().as_nanos() as u64);
    let mut before = BTreeMap::new();
    for (number, (kind, ops, sessions, log, warmup, seconds)) in RUNS.into_iter().enumerate() {
        let (from, text) = (Instant::now(), scenario(kind, ops, sessions, log, warmup, warmup + seconds));
        let report = run(&Scenario::read("calibrate", &text)?, Seed(number as u64 + 1), &stopwatch)?;
        if report.pace.committed == 0 {
            return Err(format!("{kind} in the simulator committed nothing").into());
        }
        let totals = stopwatch.samples().totals();
        let each = |(kind, total): (&StageKind, &f64)| {
            let one = (total - before.get(kind).unwrap_or(&0.0)) / report.pace.committed as f64;
            format!(" {kind:?} {one:.0} ns")
        };
        let took: String = totals.iter().map(each).collect();
        println!("stages   {kind}, {sessions} sessions, {:.1} s; a transaction:{took}", from.elapsed().as_secs_f64());
        before = totals;
    }
    let samples = stopwatch.samples();
    for (kind, (count, left)) in samples.spread() {
        println!("stages   {kind:?}: {count} samples, {:.0} % of their time spread over all", left * 100.0);
    }
    Ok(samples.costs())
}

fn scenario(kind: &str, ops: Option<u32>, sessions: u32, log: &str, warmup: f64, seconds: f64) -> String {
    let ops = ops.map_or_else(String::new, |ops| format!("ops = {ops}\n"));
    format!(
        "name = \"calibrate\"\n\
         [cluster]\nservers = 1\nshards = 4\nclients = 1\nsessions = {sessions}\ntogether = true\nclocks = \"perfect\"\n\
         [workload]\nkind = \"{kind}\"\n{ops}keys = 100000\nzipf = 0.75\nclosed = true\n\
         seconds = {seconds}\nwarmup = \"{}ms\"\n\
         [storage]\nas-served = true\nlog = \"{log}\"\ncache-bytes = 100663296\ncapacity-bytes = 536870912\n\
         [network]\nnear = \"1us\"\njitter = 0\n",
        warmup * 1000.0
    )
}

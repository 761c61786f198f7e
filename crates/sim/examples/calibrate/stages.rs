//! What stages take: workloads that run in the simulator under a stopwatch, and what explains their times best.
//!
//! Few sessions tell what a turn with little to do costs, many what a frame costs among others, and nothing else does: the less there is to do, the
//! more of what a frame needs is in the caches. Writing workloads write their device over once before anything is measured, so that collection runs.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use timestone_sim::{Samples, Scenario, Seed, StageCosts, StageKind, Stopwatch, measure as run};

use crate::threads::{pin, two_cores};
use crate::{median, thread_cpu};

/// Workload, operations of a transaction (as usual when none are named), sessions, log, seconds until it counts, and for how long.
type Run = (&'static str, Option<u32>, u32, &'static str, f64, f64);

const RETWIS: Run = ("retwis", None, 256, "none", 8.0, 1.0);
const YCSB_A: Run = ("ycsb-a", Some(1), 256, "none", 8.0, 1.0);
const YCSB_B: Run = ("ycsb-b", Some(1), 256, "none", 4.0, 0.3);
const YCSB_C: Run = ("ycsb-c", Some(1), 256, "none", 0.5, 0.2);

const FUSED: &str = "cores = 2\n";
/// Many turns with little to do in each, which find in the processor's caches what other stages left there.
const STAGED: &str = "cores = 1\nlayout = \"staged\"\n";

/// What is run, and where.
const RUNS: [(Run, &str); 12] = [
    (RETWIS, FUSED),
    (RETWIS, STAGED),
    (("retwis", None, 16, "ssd", 0.5, 0.15), FUSED),
    (YCSB_A, FUSED),
    (YCSB_A, STAGED),
    (("ycsb-a", Some(4), 32, "ssd", 1.0, 0.15), FUSED),
    (("ycsb-a", Some(1), 16, "none", 0.5, 0.04), FUSED),
    (YCSB_B, FUSED),
    (YCSB_B, STAGED),
    (YCSB_C, FUSED),
    (YCSB_C, STAGED),
    (("ycsb-c", Some(1), 16, "none", 0.5, 0.02), FUSED),
];

/// As many find what they need no longer in the nearest caches.
const MANY_SESSIONS: u32 = 256;

/// What is run on one core and on two, to see what stages on several cores take more.
const APART: [Run; 2] = [("ycsb-a", Some(1), 256, "none", 2.0, 0.4), ("ycsb-c", Some(1), 256, "none", 0.5, 0.3)];
/// Which kinds of stages that tells of.
const APART_KINDS: [StageKind; 3] = [StageKind::Net, StageKind::Shard, StageKind::Log];
/// How often.
const APART_ROUNDS: usize = 3;

/// The costs of all kinds of stages.
pub(crate) fn measure() -> Result<BTreeMap<StageKind, StageCosts>, Box<dyn Error>> {
    let (mut all, mut runs) = (Samples::default(), Vec::new());
    for (number, (one, cluster)) in RUNS.into_iter().enumerate() {
        let from = Instant::now();
        let stopwatch = Stopwatch::new(|| thread_cpu().as_nanos() as u64);
        let committed = run_one(one, cluster, number, &stopwatch)?;
        let (workload, sessions) = (one.0, one.2);
        let layout = if cluster == STAGED { "staged, one core" } else { "fused, two cores" };
        println!("stages   {workload}, {sessions} sessions, {layout}: {:.1} s", from.elapsed().as_secs_f64());
        let samples = stopwatch.samples();
        if sessions < MANY_SESSIONS {
            all.extend_turns(samples.clone());
        } else {
            all.extend(samples.clone());
        }
        runs.push((format!("{workload:<6} {sessions:>3} {layout}"), committed, samples));
    }
    for (kind, (count, left)) in all.spread() {
        println!("stages   {kind:?}: {count} samples, {:.0} % of their time spread over all", left * 100.0);
    }
    let mut costs = all.costs();
    println!("stages   a transaction took, and should have taken by these costs, in ns:");
    for (name, committed, samples) in runs {
        let expected = samples.expected(&costs);
        let each = |(kind, took): (StageKind, f64)| {
            format!(
                " {kind:?} {}: {:.0} {:.0}",
                samples.spread()[&kind].0,
                took / committed,
                expected.get(&kind).unwrap_or(&0.0) / committed
            )
        };
        println!("stages   {name}:{}", samples.totals().into_iter().map(each).collect::<String>());
    }
    for (kind, far) in apart()? {
        println!("stages   {kind:?}: {:.0} % more on several cores", far * 100.0);
        costs.entry(kind).or_default().far = far;
    }
    Ok(costs)
}

/// What each kind of stage takes more, as a share, when every turn runs on the real core that stands for its virtual one: the very same runs on
/// one core and on two, by turns, with as many moves from core to core in either, which cost far more than what is asked for here. Of servers:
/// a client has one thread, and what comes to it from elsewhere comes through sockets, whose bytes between
/// cores have figures of their own.
fn apart() -> Result<BTreeMap<StageKind, f64>, Box<dyn Error>> {
    let (one, another) = two_cores()?;
    let all = rustix::thread::sched_getaffinity(None)?;
    let mut shares: BTreeMap<StageKind, Vec<f64>> = BTreeMap::new();
    for round in 0..APART_ROUNDS {
        let [near, far] = [[one, one], [one, another]].map(|cores| -> Result<_, Box<dyn Error>> {
            let here = AtomicUsize::new(usize::MAX);
            let follow = move |virtual_core: usize| {
                // A core that cannot be had leaves things as they are.
                if here.swap(virtual_core, Ordering::Relaxed) != virtual_core {
                    // Away in any case, and here or there: moving costs the same in both.
                    let _ = pin(another).and_then(|()| pin(one)).and_then(|()| pin(cores[virtual_core % 2]));
                }
            };
            let stopwatch = Stopwatch::new(|| thread_cpu().as_nanos() as u64).following(follow);
            for one in APART {
                run_one(one, "cores = 2\nlayout = \"staged\"\n", round, &stopwatch)?;
            }
            Ok(stopwatch.samples().totals())
        });
        let (near, far) = (near?, far?);
        for (kind, far) in far.into_iter().filter(|(kind, _)| APART_KINDS.contains(kind)) {
            let near = near.get(&kind).copied().unwrap_or(far).max(1.0);
            shares.entry(kind).or_default().push((far / near - 1.0).max(0.0));
        }
    }
    rustix::thread::sched_setaffinity(None, &all)?;
    Ok(shares.into_iter().map(|(kind, shares)| (kind, median(shares))).collect())
}

/// One run under a stopwatch; how many transactions committed.
fn run_one(run_of: Run, cluster: &str, seed: usize, stopwatch: &Stopwatch) -> Result<f64, Box<dyn Error>> {
    let scenario = Scenario::read("calibrate", &scenario(run_of, cluster))?;
    let report = run(&scenario, Seed(seed as u64 + 1), stopwatch)?;
    if report.pace.committed == 0 {
        return Err(format!("{} in the simulator committed nothing", run_of.0).into());
    }
    Ok(report.pace.committed as f64)
}

fn scenario((kind, ops, sessions, log, warmup, seconds): Run, cluster: &str) -> String {
    let ops = ops.map_or_else(String::new, |ops| format!("ops = {ops}\n"));
    let seconds = warmup + seconds;
    format!(
        "name = \"calibrate\"\n\
         [cluster]\nservers = 1\nshards = 4\nclients = 1\nsessions = {sessions}\ntogether = true\nclocks = \"perfect\"\n{cluster}\
         [workload]\nkind = \"{kind}\"\n{ops}keys = 100000\nzipf = 0.75\nclosed = true\n\
         seconds = {seconds}\nwarmup = \"{}ms\"\n\
         [storage]\nas-served = true\nlog = \"{log}\"\ncache-bytes = 100663296\ncapacity-bytes = 536870912\n\
         [network]\nnear = \"1us\"\njitter = 0\n",
        warmup * 1000.0
    )
}

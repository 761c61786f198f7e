//! What stages take: workloads that run in the simulator under a stopwatch, and what explains their
//! times best.
//!
//! Few sessions tell what a turn with little to do costs, many what a frame costs among others, and
//! nothing else does: the less there is to do, the more of what a frame needs is in the caches.
//! Writing workloads write their device over once before anything is measured, so that collection
//! runs. What others on the same hardware slow down is taken off.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use timestone_sim::{
    Samples, Scenario, Seed, StageCosts, StageKind, Stopwatch, ThreadCosts, measure as run,
};

use crate::neighbours::{Alone, Slices};
use crate::threads::{pin, two_cores};
use crate::{median, thread_cpu};

/// Workload, operations of a transaction (as usual when none are named), sessions, log, seconds
/// until it counts, and for how long.
type Run = (&'static str, Option<u32>, u32, &'static str, f64, f64);

const RETWIS: Run = ("retwis", None, 256, "none", 8.0, 2.0);
const YCSB_A: Run = ("ycsb-a", Some(1), 256, "none", 8.0, 2.0);
const YCSB_B: Run = ("ycsb-b", Some(1), 256, "none", 4.0, 1.0);
const YCSB_C: Run = ("ycsb-c", Some(1), 256, "none", 0.5, 1.0);

const FUSED: &str = "cores = 2\n";
/// Many turns with little to do in each, which find in the processor's caches what other stages
/// left there.
const STAGED: &str = "cores = 1\nlayout = \"staged\"\n";

/// What is run, and where.
const RUNS: [(Run, &str); 12] = [
    (RETWIS, FUSED),
    (RETWIS, STAGED),
    (("retwis", None, 16, "ssd", 0.5, 0.5), FUSED),
    (YCSB_A, FUSED),
    (YCSB_A, STAGED),
    (("ycsb-a", Some(4), 32, "ssd", 1.0, 0.3), FUSED),
    (("ycsb-a", Some(1), 16, "none", 0.5, 0.2), FUSED),
    (YCSB_B, FUSED),
    (YCSB_B, STAGED),
    (YCSB_C, FUSED),
    (YCSB_C, STAGED),
    (("ycsb-c", Some(1), 16, "none", 0.5, 0.2), FUSED),
];

/// As many find what they need no longer in the nearest caches.
const MANY_SESSIONS: u32 = 256;

/// What is run on one core and on two, to see what stages on several cores take more.
const APART: [Run; 2] =
    [("ycsb-a", Some(1), 256, "none", 2.0, 1.0), ("ycsb-c", Some(1), 256, "none", 0.5, 0.5)];
/// Which kinds of stages that tells of.
const APART_KINDS: [StageKind; 3] = [StageKind::Net, StageKind::Shard, StageKind::Log];
/// How often.
const APART_ROUNDS: usize = 3;

/// What work takes more than arithmetic does while others have the other half of a core, where this
/// machine did not tell: measured on the machine that docs/benchmarks.md names.
const NEIGHBOURS: f64 = 3.0;
/// It tells when arithmetic varied by so much, as a standard deviation.
const VARIED: f64 = 0.02;
/// No more than so much is believed.
const MOST: f64 = 6.0;
/// Steps of that fit.
const FITS: usize = 20;

/// What was measured of one run.
struct Measured {
    name: String,
    sessions: u32,
    /// By slice of time, with how many times as long as alone arithmetic took in it.
    slices: Vec<(f64, Samples)>,
}

impl Measured {
    /// All of it, as if nobody had been beside it.
    fn alone(&self, neighbours: f64) -> Samples {
        let mut all = Samples::default();
        for (slowness, samples) in &self.slices {
            all.append(samples.clone().scaled(1.0 / ThreadCosts::beside(neighbours, *slowness)));
        }
        all
    }
}

/// The costs of all kinds of stages, and
/// [`ThreadCosts::neighbours`](timestone_sim::ThreadCosts::neighbours).
pub(crate) fn measure(
    cores_alone: &Alone,
) -> Result<(BTreeMap<StageKind, StageCosts>, f64), Box<dyn Error>> {
    let (one, another) = two_cores()?;
    let everywhere = rustix::thread::sched_getaffinity(None)?;
    pin(one)?;
    let mut runs = Vec::new();
    for (run, cluster) in RUNS {
        let from = Instant::now();
        let slices = Slices::new(cores_alone);
        let clock_slices = slices.clone();
        let stopwatch = Stopwatch::new(cpu_nanos).following(move |_| clock_slices.now());
        run_one(run, cluster, &stopwatch)?;
        let (workload, sessions) = (run.0, run.2);
        let layout = if cluster == STAGED { "staged, one core" } else { "fused, two cores" };
        let name = format!("{workload:<6} {sessions:>3} {layout}");
        println!("stages   {name}: {:.1} s", from.elapsed().as_secs_f64());
        let slices = slices.slowness().into_iter().zip(stopwatch.groups()).collect();
        runs.push(Measured { name, sessions, slices });
    }
    let neighbours = neighbours_of(&runs);
    let mut all = Samples::default();
    let alone: Vec<Samples> = runs.iter().map(|run| run.alone(neighbours)).collect();
    for (run, samples) in runs.iter().zip(alone.iter().cloned()) {
        if run.sessions < MANY_SESSIONS { all.extend_turns(samples) } else { all.extend(samples) }
    }
    for (kind, (count, left)) in all.spread() {
        println!(
            "stages   {kind:?}: {count} samples, {:.0} % of their time spread over all",
            left * 100.0
        );
    }
    let mut costs = all.costs();
    println!("stages   what was measured, of what it should have been by these costs:");
    for (run, samples) in runs.iter().zip(&alone) {
        let each = excess(samples, &costs).into_iter();
        println!(
            "stages   {}:{}",
            run.name,
            each.map(|(kind, excess)| format!(" {kind:?} {excess:.2}")).collect::<String>()
        );
    }
    for (kind, far) in apart([one, another], cores_alone, neighbours, &costs)? {
        println!("stages   {kind:?}: {:.0} % more on several cores", far * 100.0);
        costs.entry(kind).or_default().far = far;
    }
    rustix::thread::sched_setaffinity(None, &everywhere)?;
    Ok((costs, neighbours))
}

/// How what stages take follows what arithmetic takes:
/// `took = level · (1 + neighbours · (slowness - 1))`, with a level for each run, fitted to the
/// slices of all runs.
fn neighbours_of(runs: &[Measured]) -> f64 {
    let mut all = Samples::default();
    runs.iter().for_each(|run| all.extend(run.alone(0.0)));
    let costs = all.costs();
    // Of each slice, how slow arithmetic was, what it took of what it should have, and what it
    // took: longer slices count more.
    let point = |(slowness, samples): &(f64, Samples)| {
        let [took, should] =
            [samples.totals(), samples.expected(&costs)].map(|kinds| kinds.values().sum::<f64>());
        (should > 0.0).then(|| (slowness - 1.0, took / should, took))
    };
    let runs: Vec<Vec<_>> =
        runs.iter().map(|run| run.slices.iter().filter_map(point).collect()).collect();
    let (mut neighbours, mut varied) = (0.0, 0.0);
    for _ in 0..FITS {
        let (mut squares, mut products, mut weights) = (0.0, 0.0, 0.0);
        for run in &runs {
            let weight: f64 = run.iter().map(|(_, _, took)| took).sum();
            let slow = run.iter().map(|(slow, _, took)| slow * took).sum::<f64>() / weight;
            let excess = run.iter().map(|(_, excess, took)| excess * took).sum::<f64>() / weight;
            let level = excess / (1.0 + neighbours * slow);
            for (own, excess, took) in run {
                squares += took * (own - slow).powi(2);
                products += took * (own - slow) * (excess / level);
            }
            weights += weight;
        }
        varied = (squares / weights).sqrt();
        neighbours = (products / squares).clamp(0.0, MOST);
    }
    println!(
        "stages   arithmetic varied by {varied:.3}, and stages by {neighbours:.2} times as much"
    );
    if varied >= VARIED { neighbours } else { NEIGHBOURS }
}

/// What each kind of stage takes more, as a share, when every turn runs on the real core that
/// stands for its virtual one: the very same runs on one core and on two, by turns, with as many
/// moves from core to core in either, which cost far more than what is asked for here. Of servers:
/// a client has one thread, and what comes to it from elsewhere comes through sockets, whose bytes
/// between cores have figures of their own.
fn apart(
    [one, another]: [usize; 2],
    cores_alone: &Alone,
    neighbours: f64,
    costs: &BTreeMap<StageKind, StageCosts>,
) -> Result<BTreeMap<StageKind, f64>, Box<dyn Error>> {
    let mut shares: BTreeMap<StageKind, Vec<f64>> = BTreeMap::new();
    for _ in 0..APART_ROUNDS {
        let [near, far] = [[one, one], [one, another]].map(|cores| -> Result<_, Box<dyn Error>> {
            let (here, slices) = (AtomicUsize::new(usize::MAX), Slices::new(cores_alone));
            let clock_slices = slices.clone();
            let follow = move |virtual_core: usize| {
                // A core that cannot be had leaves things as they are.
                if here.swap(virtual_core, Ordering::Relaxed) != virtual_core {
                    // Away in any case, and here or there: moving costs the same in both.
                    let _ = pin(another)
                        .and_then(|()| pin(one))
                        .and_then(|()| pin(cores[virtual_core % 2]));
                }
                clock_slices.now()
            };
            let stopwatch = Stopwatch::new(cpu_nanos).following(follow);
            for one in APART {
                run_one(one, "cores = 2\nlayout = \"staged\"\n", &stopwatch)?;
            }
            let slices = slices.slowness().into_iter().zip(stopwatch.groups()).collect();
            let measured = Measured { name: String::new(), sessions: MANY_SESSIONS, slices };
            Ok(excess(&measured.alone(neighbours), costs))
        });
        let (near, far) = (near?, far?);
        for (kind, far) in far.into_iter().filter(|(kind, _)| APART_KINDS.contains(kind)) {
            let near = near.get(&kind).copied().unwrap_or(far);
            shares.entry(kind).or_default().push((far / near - 1.0).max(0.0));
        }
    }
    pin(one)?;
    Ok(shares.into_iter().map(|(kind, shares)| (kind, median(shares))).collect())
}

/// How many times what each kind of stage should have taken it took.
fn excess(samples: &Samples, costs: &BTreeMap<StageKind, StageCosts>) -> BTreeMap<StageKind, f64> {
    let expected = samples.expected(costs);
    let one = |(kind, took): (StageKind, f64)| {
        (kind, took / expected.get(&kind).copied().unwrap_or(0.0).max(1.0))
    };
    samples.totals().into_iter().map(one).collect()
}

fn cpu_nanos() -> u64 {
    thread_cpu().as_nanos() as u64
}

/// One run under a stopwatch.
fn run_one(run_of: Run, cluster: &str, stopwatch: &Stopwatch) -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::read("calibrate", &scenario(run_of, cluster))?;
    let report = run(&scenario, Seed(1), stopwatch)?;
    if report.pace.committed == 0 {
        return Err(format!("{} in the simulator committed nothing", run_of.0).into());
    }
    Ok(())
}

fn scenario((kind, ops, sessions, log, warmup, seconds): Run, cluster: &str) -> String {
    let ops = ops.map_or_else(String::new, |ops| format!("ops = {ops}\n"));
    let seconds = warmup + seconds;
    format!(
        "name = \"calibrate\"\n\
         [cluster]\nservers = 1\nshards = 4\nclients = 1\nsessions = {sessions}\ntogether = \
         true\nclocks = \"perfect\"\n{cluster}\
         [workload]\nkind = \"{kind}\"\n{ops}keys = 100000\nzipf = 0.75\nclosed = true\n\
         seconds = {seconds}\nwarmup = \"{}ms\"\n\
         [storage]\nas-served = true\nlog = \"{log}\"\ncache-bytes = 100663296\ncapacity-bytes = \
         536870912\n\
         [network]\nnear = \"1us\"\njitter = 0\n",
        warmup * 1000.0
    )
}

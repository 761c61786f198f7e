//! The simulator against bugs that are there: each is planted, one at a time, and must be found
//! within a stated number of seeds.
//!
//! A scenario makes what the bug breaks common: lagging clients for marks, power cuts for
//! durability, silent shards for votes. The same seed without the bug must be right, so it is the
//! bug that was found. A test is over with the first seed that finds it; the bound leaves room for
//! a change of the code to shift what seeds draw. Where scores are wanted
//! (`TIMESTONE_TEST_SCORES`), it goes on to several such seeds: the distances between them are what
//! docs/lab/scorecard.md gives the median of. One file for each part of the system.

mod backup_reads;
mod clients;
mod dram;
mod ending;
mod failover;
mod protocol;
mod ranges;
mod recovery;
mod redis;
mod store;

use timestone_server::planted::{Bug, set as plant};
use timestone_sim::{RunOptions, RunReport, Scenario, Seed, run};

use crate::scores::{self, Score};

/// Ends what is planted, also when the test fails.
struct Planted;

impl Planted {
    fn new(bug: Bug) -> Self {
        plant(Some(bug));
        Self
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(None);
    }
}

fn once(scenario: &Scenario, seed: u64) -> RunReport {
    run(scenario, Seed(seed), RunOptions::default()).expect("a world")
}

/// Distances between seeds that find a bug, where they are wanted: enough for a median.
const DISTANCES: usize = 9;

/// By test: a seed that has found its bug. It is tried first; where it finds nothing any more, the others are.
const KNOWN_SEEDS: &str = include_str!("known_seeds.txt");

/// The seed that a test begins with.
fn known_seed() -> Option<u64> {
    let thread = std::thread::current();
    let test = thread.name()?.rsplit("::").next()?.to_owned();
    let mut lines = KNOWN_SEEDS.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == test).map(|(_, seed)| seed.parse().expect("a seed"))
}

/// Looks for a planted bug under the seeds from 1 on.
#[track_caller]
fn found_within(bound: u64, bug: Bug, text: &str) {
    let scenario = Scenario::read("planted.toml", text).expect("a scenario");
    let is_found_by = |seed| {
        let report = {
            let _planted = Planted::new(bug);
            once(&scenario, seed)
        };
        let is_found = !report.is_right();
        if is_found {
            let without = once(&scenario, seed).findings;
            assert_eq!(without, [], "seed {seed} fails without {bug:?}, too");
        }
        is_found
    };
    if !scores::are_wanted() {
        let known = known_seed().filter(|&seed| seed <= bound && is_found_by(seed));
        let Some(seed) = known.or_else(|| (1..=bound).find(|&seed| is_found_by(seed))) else {
            panic!("{bug:?} was not found within {bound} seeds");
        };
        #[expect(clippy::disallowed_macros, reason = "a test tells what it has found")]
        {
            println!("{} is found by seed {seed}", title(bug));
        }
        return;
    }
    let (mut distances, mut last) = (Vec::new(), 0);
    for seed in 1..=bound * DISTANCES as u64 {
        assert!(seed <= bound || last > 0, "{bug:?} was not found within {bound} seeds");
        if is_found_by(seed) {
            distances.push(seed - last);
            last = seed;
            if distances.len() == DISTANCES {
                break;
            }
        }
    }
    assert!(last > 0, "{bug:?} was not found within {bound} seeds");
    let score = [
        ("bug", Score::Name(&title(bug))),
        ("distances", Score::Counts(&distances)),
        ("bound", Score::Count(bound)),
    ];
    scores::keep("planted", &score);
}

/// What a planted bug is called: as its test says, which names the thread that it runs in.
fn title(bug: Bug) -> String {
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next()?.strip_suffix("_is_found"));
    test.map_or_else(|| format!("{bug:?}"), |test| test.replace('_', " "))
}

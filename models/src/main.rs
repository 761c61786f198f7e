//! Models of `seda`'s lock-free parts: the very files, compiled against loom, under all
//! interleavings of a few threads and everything that the memory model allows.
//!
//! ```text
//!   models               every model must hold, every planted bug must be caught; prints a table, exit code 1 otherwise
//!   models NAME [BUG]    one of them, in this process
//! ```
//!
//! | model | of `seda` | what may not happen |
//! |---|---|---|
//! | `sleep` | `sleep.rs` | a consumer sleeps for ever although an event was pushed; two producers both pay for the wake-up |
//! | `lanes` | `lanes.rs`, `handoff.rs`, `sleep.rs` | an event of a lane is lost, doubled or overtaken, with a full ring between; its consumer sleeps on |
//! | `inject` | `handoff.rs`, `sleep.rs` | the same for the queue that threads outside push to, with two of them |
//! | `gauge` | `gauge.rs` | counts that do not come back to zero; more admitted than the limit and one batch of frames for each net stage |
//! | `drain` | `drain.rs`, `handoff.rs`, `lanes.rs` | two threads are called drained while an event is under way or being handled |
//! | `drain-three` | the same | the same of three threads, each of which hands on to the next |
//! | `stop` | `shutdown_flags.rs`, `sleep.rs` | a thread sleeps on although it was ordered to finish or to stop |
//! | `metrics` | `metrics.rs`, `gauge.rs` | a count is lost, or goes backwards for who reads it |
//!
//! No model, for nothing of it is shared: `frame_batch.rs` (pools belong to a thread; a batch of
//! frames moves by value, in an event of a lane), `spin.rs` (each thread decides by its own score;
//! the number of local clients that it looks at may be old, and costs time then), `simulated/` (one
//! thread).
//!
//! `TIMESTONE_TEST_SCORES=FILE models/run` writes how many interleavings each model went through,
//! for the scorecard.

#![allow(
    dead_code,
    reason = "the files are compiled as they are; no model uses everything in them"
)]

#[path = "../../crates/seda/src/drain.rs"]
mod drain;
#[path = "../../crates/seda/src/gauge.rs"]
mod gauge;
#[path = "../../crates/seda/src/handoff.rs"]
mod handoff;
#[path = "../../crates/seda/src/lanes.rs"]
mod lanes;
mod limits;
#[path = "../../crates/seda/src/metrics.rs"]
mod metrics;
mod models;
mod planted;
#[path = "../../tests/scores.rs"]
mod scores;
#[path = "../../crates/seda/src/shutdown_flags.rs"]
mod shutdown_flags;
#[path = "../../crates/seda/src/sleep.rs"]
mod sleep;
mod sync;

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use gauge::Gauge;
use planted::Bug;
use scores::Score;

/// The name of a stage, as `seda` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StageId(pub(crate) u16);

type Model = (&'static str, fn(), &'static [Bug]);

/// Each model, and the bugs that it must catch.
const MODELS: [Model; 8] = [
    ("sleep", models::sleep, &[Bug::NoFence, Bug::WakeBeforePush]),
    ("lanes", models::lanes, &[Bug::NoFence, Bug::WakeBeforePush, Bug::BlindChunk]),
    ("inject", models::inject, &[Bug::NoFence, Bug::WakeBeforePush]),
    ("gauge", models::gauge, &[Bug::LostUpdate]),
    ("drain", models::drain, &[Bug::EarlyReceipt, Bug::QuietForEver]),
    ("drain-three", models::drain_three, &[Bug::EarlyReceipt]),
    ("stop", models::stop, &[Bug::WakeBeforeOrder]),
    ("metrics", models::metrics, &[Bug::LostUpdate, Bug::TwoWriters]),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = arguments.first() else { return all() };
    let Some((_, run, bugs)) = MODELS.iter().find(|(known, ..)| known == name) else {
        eprintln!(
            "there is no model {name}; there are {}",
            MODELS.map(|(name, ..)| name).join(", ")
        );
        return ExitCode::from(2);
    };
    let bug = match arguments.get(1) {
        None => None,
        Some(wanted) => match bugs.iter().find(|bug| format!("{bug:?}") == *wanted) {
            Some(bug) => Some(*bug),
            None => {
                eprintln!("model {name} knows no bug {wanted}; it knows {bugs:?}");
                return ExitCode::from(2);
            }
        },
    };
    planted::plant(bug);
    let begin = Instant::now();
    run();
    println!("{} interleavings in {:.1} s", models::explored(), begin.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

/// Runs every model by itself, and with each of its bugs, in processes of their own: a model that
/// fails ends its process.
fn all() -> ExitCode {
    let mut wrong = 0;
    for (name, _, bugs) in MODELS {
        let (mut interleavings, mut caught) = (0, 0);
        for bug in std::iter::once(None).chain(bugs.iter().copied().map(Some)) {
            let said = one(name, bug);
            let verdict = match (bug, &said) {
                (None, Some(said)) => {
                    interleavings =
                        said.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                    format!("holds, {said}")
                }
                (None, None) => format!("FAILS; see `models {name}`"),
                (Some(bug), None) => {
                    caught += 1;
                    format!("catches {bug:?}")
                }
                (Some(bug), Some(_)) => format!("MISSES {bug:?}"),
            };
            wrong += usize::from(said.is_some() != bug.is_none());
            println!("model {name}: {verdict}");
        }
        if interleavings > 0 {
            let counted = [
                ("of", Score::Name(name)),
                ("interleavings", Score::Count(interleavings)),
                ("caught", Score::Count(caught)),
            ];
            scores::keep("model", &counted);
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one model; what it says when it holds.
fn one(name: &str, bug: Option<Bug>) -> Option<String> {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new(program);
    command.arg(name).args(bug.map(|bug| format!("{bug:?}"))).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

//! Models of `seda`'s lock-free parts: the very files, compiled against loom, under all interleavings of a few threads and everything
//! that the memory model allows.
//!
//! ```text
//!   models               every model must hold, every planted bug must be caught; prints a table, exit code 1 otherwise
//!   models NAME [BUG]    one of them, in this process
//! ```
//!
//! | model | what may not happen |
//! |---|---|
//! | `sleep` | a consumer sleeps for ever although an event was pushed; two producers both pay for the wake-up |
//! | `lanes` | an event of a lane is lost, doubled or overtaken, with a full ring between; its consumer sleeps on |
//! | `inject` | the same for the queue that threads outside push to, with two of them |
//! | `gauge` | counts that do not come back to zero; more admitted than the limit and one parcel for each net stage |
//! | `drain` | a runtime is called drained while an event is under way or being handled |

#![allow(dead_code, reason = "the files are compiled as they are; no model uses everything in them")]

#[path = "../../crates/seda/src/drain.rs"]
mod drain;
#[path = "../../crates/seda/src/gauge.rs"]
mod gauge;
#[path = "../../crates/seda/src/handoff.rs"]
mod handoff;
#[path = "../../crates/seda/src/lanes.rs"]
mod lanes;
mod limits;
mod models;
mod planted;
#[path = "../../crates/seda/src/sleep.rs"]
mod sleep;
mod sync;

use std::process::{Command, ExitCode, Stdio};

use planted::Bug;

/// The name of a stage, as `seda` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StageId(pub(crate) u16);

type Model = (&'static str, fn(), &'static [Bug]);

/// Each model, and the bugs that it must catch.
const MODELS: [Model; 5] = [
    ("sleep", models::sleep, &[Bug::NoFence, Bug::WakeBeforePush]),
    ("lanes", models::lanes, &[Bug::NoFence, Bug::WakeBeforePush, Bug::BlindChunk]),
    ("inject", models::inject, &[Bug::NoFence, Bug::WakeBeforePush]),
    ("gauge", models::gauge, &[Bug::LostUpdate]),
    ("drain", models::drain, &[Bug::EarlyReceipt, Bug::QuietForEver]),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = arguments.first() else { return all() };
    let Some((_, run, bugs)) = MODELS.iter().find(|(known, ..)| known == name) else {
        eprintln!("there is no model {name}; there are {}", MODELS.map(|(name, ..)| name).join(", "));
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
    run();
    ExitCode::SUCCESS
}

/// Runs every model by itself, and with each of its bugs, in processes of their own: a model that fails ends its process.
fn all() -> ExitCode {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut wrong = 0;
    for (name, _, bugs) in MODELS {
        for bug in std::iter::once(None).chain(bugs.iter().copied().map(Some)) {
            let mut command = Command::new(&program);
            command.arg(name).stdout(Stdio::null()).stderr(Stdio::null());
            if let Some(bug) = bug {
                command.arg(format!("{bug:?}"));
            }
            let holds = command.status().is_ok_and(|status| status.success());
            let right = holds == bug.is_none();
            wrong += usize::from(!right);
            let verdict = match (bug, right) {
                (None, true) => "holds".to_owned(),
                (None, false) => format!("FAILS; see `models {name}`"),
                (Some(bug), true) => format!("catches {bug:?}"),
                (Some(bug), false) => format!("MISSES {bug:?}"),
            };
            println!("model {name}: {verdict}");
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

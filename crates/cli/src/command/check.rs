//! `timestone check FILE`: judges a history that `bench --history`, the simulator or Jepsen wrote.
//!
//! ```text
//!   FILE or - ─► history::read ─► lists? registers? ─► check::… ─► verdict: words, or JSON; exit code 1 when something is wrong
//! ```
//! Exit code 1 says that of a history that was judged, and nothing else: what is no history, or has nothing to judge, is wrong usage.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::json;
use timestone_workload::check::{AnomalyKind, Promise, Verdict, check_bank, check_list_append, check_register};
use timestone_workload::history::{self, History, MicroOp, Seen};

use crate::failure::Failure;
use crate::output::{Format, write_json, write_line};

/// Flags of `timestone check`.
#[derive(Args, Debug)]
#[command(after_help = "\
The promises, each with those before it:
  serializable  some serial order explains everything
  session       and in it each session's transactions stand as it ran them
  conflicts     and so do read-write transactions that conflict directly, as they ran in real time
  real-time     and so does everything: strict serializability, which 'external = wait' gives

Exit codes:
  0  nothing is wrong
  1  the history has anomalies
  2  it was not judged: unreadable, empty or another workload's, or wrong usage
  3  there is no such file")]
pub(crate) struct CheckArgs {
    /// The history, one EDN map a line as 'bench --history' and Jepsen write it; '-' reads standard input
    file: PathBuf,
    /// What must hold
    #[arg(long, default_value = "conflicts",
        value_parser = PossibleValuesParser::new(Promise::ALL.map(Promise::name)))]
    promise: String,
    /// What the transactions did [default: what their operations show]
    #[arg(long, value_enum)]
    workload: Option<Workload>,
    /// Bank: how many accounts there are
    #[arg(long, value_name = "N")]
    accounts: Option<u64>,
    /// Bank: how much they hold together
    #[arg(long, value_name = "SUM")]
    total: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Workload {
    /// Appends to lists, and readings of them.
    ListAppend,
    /// Writes of values that are written once, and readings of them.
    Register,
    /// Transfers between accounts, and readings of all.
    Bank,
}

impl Workload {
    const fn name(self) -> &'static str {
        match self {
            Self::ListAppend => "list-append",
            Self::Register => "register",
            Self::Bank => "bank",
        }
    }
}

/// Reads the history and says what is wrong with it; that is a failure.
pub(crate) fn run(args: &CheckArgs, format: Format) -> Result<(), Failure> {
    let text = read(args)?;
    let name = args.file.display();
    let history = history::read(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let promise = Promise::named(&args.promise)
        .ok_or_else(|| Failure::usage(format!("there is no promise '{}'", args.promise)))?;
    let workload = match args.workload {
        Some(workload) => fitting(workload, &history),
        None => shown(&history),
    };
    let workload = workload.map_err(|problem| Failure::usage(format!("{name}: {problem}")))?;
    let verdict = match (workload, args.accounts, args.total) {
        (Workload::ListAppend, None, None) => check_list_append(&history, promise),
        (Workload::Register, None, None) => check_register(&history, promise),
        (Workload::Bank, Some(accounts), Some(total)) => check_bank(&history, accounts, total),
        (Workload::Bank, ..) => {
            return Err(Failure::usage("a bank is checked against --accounts and --total: give both"));
        }
        _ => {
            let workload = workload.name();
            return Err(Failure::usage(format!(
                "--accounts and --total are a bank's, and this is {workload}; add --workload bank"
            )));
        }
    };
    if format == Format::Json {
        write_json(&describe(args, workload, promise, &verdict))?;
    } else {
        write_line(&format!("{name}: {}, {}: {verdict}", workload.name(), promise.name()))?;
    }
    if verdict.is_valid() {
        return Ok(());
    }
    let count = verdict.anomalies.len() + verdict.unreported;
    // Balances are written again and again: judged as registers, a bank is full of them.
    let guessed = args.workload.is_none() && workload == Workload::Register;
    let twice = verdict.anomalies.iter().any(|anomaly| anomaly.kind == AnomalyKind::Duplicate);
    let hint = if guessed && twice {
        "; values were written twice: if they are a bank's balances, add --workload bank, --accounts and --total"
    } else {
        ""
    };
    Err(Failure::failed(format!("{name} has {count} anomal{}{hint}", if count == 1 { "y" } else { "ies" })))
}

fn read(args: &CheckArgs) -> Result<String, Failure> {
    let name = args.file.display();
    let mut bytes = Vec::new();
    if args.file.as_os_str() == "-" {
        io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::usage(format!("could not read standard input: {error}")))?;
    } else {
        bytes = fs::read(&args.file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::not_found(format!("there is no file {name}")),
            _ => Failure::usage(format!("could not read {name}: {error}")),
        })?;
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("{name} is no text from byte {at} on; a history is EDN in UTF-8"))
    })
}

/// The workloads that a history's operations show; a bank's are those of registers.
fn kinds(history: &History) -> Result<BTreeSet<Workload>, String> {
    if history.events.is_empty() {
        return Err("there is no transaction in it (no event with ':f :txn')".to_owned());
    }
    let of = |op: &MicroOp| match op {
        MicroOp::Append { .. } | MicroOp::Read { seen: Seen::List(_), .. } => Some(Workload::ListAppend),
        MicroOp::Write { .. } | MicroOp::Read { seen: Seen::Integer(_), .. } => Some(Workload::Register),
        MicroOp::Read { seen: Seen::Nothing, .. } => None,
    };
    Ok(history.events.iter().flat_map(|event| &event.ops).filter_map(of).collect())
}

/// The workload that was named, unless the history is another one's: the checker of a bank would pass over lists and find nothing wrong.
fn fitting(workload: Workload, history: &History) -> Result<Workload, String> {
    let found = kinds(history)?;
    let wanted = if workload == Workload::Bank { Workload::Register } else { workload };
    match found.first() {
        Some(other) if !found.contains(&wanted) => {
            Err(format!("there is nothing of {} in it, but of {}", workload.name(), other.name()))
        }
        _ => Ok(workload),
    }
}

/// The workload that a history's operations show.
fn shown(history: &History) -> Result<Workload, String> {
    let found = kinds(history)?;
    match (found.first(), found.len()) {
        (Some(workload), 1) => Ok(*workload),
        (None, _) => Err("nothing in it was written or found, so there is nothing to check".to_owned()),
        _ => {
            Err("it has both lists and registers; check histories of one workload, or say which with --workload"
                .to_owned())
        }
    }
}

fn describe(args: &CheckArgs, workload: Workload, promise: Promise, verdict: &Verdict) -> serde_json::Value {
    let anomalies = verdict.anomalies.iter().map(|anomaly| {
        json!({
            "kind": anomaly.kind.id(),
            "breaks": anomaly.breaks.name(),
            "story": anomaly.story.trim_start(),
        })
    });
    json!({
        "file": args.file.display().to_string(),
        "workload": workload.name(),
        "promise": promise.name(),
        "transactions": verdict.transactions,
        "valid": verdict.is_valid(),
        "anomalies": anomalies.collect::<Vec<_>>(),
        "unreported": verdict.unreported,
    })
}

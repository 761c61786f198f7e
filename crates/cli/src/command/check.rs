//! `timestone check FILE`: judges a history that `bench --history` (of either protocol), the
//! simulator or Jepsen wrote, by what its head says it is.
//!
//! ```text
//!   FILE or - ─► history::read ─► head? lists? registers? ─► check::… ─► verdict: words, or JSON; exit code 1 when something is wrong
//! ```
//! Exit code 1 says that of a history that was judged, and nothing else: what is no history, or has
//! nothing to judge, is wrong usage.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::json;
use timestone_workload::check::{
    AnomalyKind, CheckResult, Promise, check_bank, check_list_append, check_redis, check_register,
    check_single_keys,
};
use timestone_workload::history::{self, History, Judged, MicroOp, Seen};
use timestone_workload::redis;

use crate::failure::Failure;
use crate::output::{Format, or_unread, say, write_json, write_line};

/// Flags of `timestone check`.
#[derive(Args, Debug)]
#[command(after_help = "\
The promises, each with those before it:
  serializable  some serial order explains everything
  session       and in it each session's transactions stand as it ran them
  conflicts     and so do read-write transactions that conflict directly, as they ran in real time
  real-time     and so does everything: strict serializability, which 'external = wait' gives

Histories of Redis clients ('bench --protocol resp', the simulator) are judged by what docs/redis.md promises: each
key is linearizable, expiry included, several keys are serializable, EXEC is nil when a watched key was touched.
Deleted lists may be begun anew, and closed accounts opened again; what is deleted must not come back.

Exit codes:
  0  nothing is wrong
  1  the history has anomalies
  2  it was not judged: unreadable, empty or another workload's, or wrong usage
  3  there is no such file")]
pub(crate) struct CheckArgs {
    /// The history, one EDN map a line as 'bench --history' and Jepsen write it; '-' reads standard
    /// input
    file: PathBuf,
    /// What must hold [default: what the history says of itself, else conflicts]
    #[arg(long, value_parser = PossibleValuesParser::new(Promise::ALL.map(Promise::name)))]
    promise: Option<String>,
    /// What the transactions did [default: what the history says of itself, else what its
    /// operations show]
    #[arg(long, value_enum)]
    workload: Option<Workload>,
    /// Bank: how many accounts there are [default: what the history says of itself]
    #[arg(long, value_name = "N")]
    accounts: Option<u64>,
    /// Bank: how much they hold together [default: what the history says of itself]
    #[arg(long, value_name = "SUM")]
    total: Option<i64>,
    /// Single keys: milliseconds by which the clocks that judged expiry may have been wrong
    #[arg(long, value_name = "MS", default_value_t = 500)]
    clock_slack: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Workload {
    /// Appends to lists, deletions and readings of them.
    ListAppend,
    /// Writes of values that are written once, and readings of them.
    Register,
    /// Transfers between accounts, some of which close one, and readings of all.
    Bank,
    /// As register, and each operation on one key besides: takes, conditions, values that expire.
    SingleKeys,
    /// Commands of Redis clients, as such a history says itself.
    Redis,
}

impl Workload {
    const fn of(judged: Judged) -> Self {
        match judged {
            Judged::ListAppend => Self::ListAppend,
            Judged::Register => Self::Register,
            Judged::SingleKeys => Self::SingleKeys,
            Judged::Bank { .. } => Self::Bank,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::ListAppend => "list-append",
            Self::Register => "register",
            Self::Bank => "bank",
            Self::SingleKeys => "single-keys",
            Self::Redis => "redis",
        }
    }
}

/// Reads the history and says what is wrong with it; that is a failure.
pub(crate) fn run(args: &CheckArgs, format: Format) -> Result<(), Failure> {
    let bytes = read(args)?;
    let name = args.file.display();
    let (text, is_cut) = history::without_cut_line(&bytes).map_err(|error| {
        let at = error.valid_up_to();
        Failure::usage(format!("{name} is no text from byte {at} on; a history is EDN in UTF-8"))
    })?;
    if is_cut {
        say(&format!(
            "note: the last line of {name} was begun and not ended, as by a writer that was \
             killed; it is left out"
        ));
    }
    if redis::is_redis(text) {
        return judge_redis(args, text, format);
    }
    let history =
        history::read(text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let promise = match (&args.promise, &history.head) {
        (Some(name), _) => Promise::named(name)
            .ok_or_else(|| Failure::usage(format!("there is no promise '{name}'")))?,
        (None, Some(head)) => head.promise,
        (None, None) => Promise::Conflicts,
    };
    let said = history.head.as_ref().map(|head| Workload::of(head.judged));
    let workload = match args.workload.or(said) {
        Some(workload) => fitting(workload, &history),
        None => shown(&history),
    };
    if let Some(why) = history.head.as_ref().and_then(|head| head.void.as_ref()) {
        return Err(Failure::usage(format!("{name} was not judged: {why}")));
    }
    let workload = workload.map_err(|problem| Failure::usage(format!("{name}: {problem}")))?;
    let verdict = judge(args, workload, &history, promise)?;
    or_unread(match format {
        Format::Json => write_json(&describe(args, workload, promise, &verdict)),
        Format::Text | Format::Table => {
            write_line(&format!("{name}: {}, {}: {verdict}", workload.name(), promise.name()))
        }
    })?;
    if verdict.is_valid() {
        return Ok(());
    }
    let (count, concerned) = (verdict.proved(), verdict.concerned());
    // Balances are written again and again: judged as registers, a bank is full of them.
    let guessed = args.workload.or(said).is_none() && workload == Workload::Register;
    let twice = verdict.anomalies.iter().any(|anomaly| anomaly.kind == AnomalyKind::Duplicate);
    let hint = if guessed && twice {
        "; values were written twice: if they are a bank's balances, add --workload bank, \
         --accounts and --total"
    } else {
        ""
    };
    let proved = if count == 1 {
        "1 anomaly, which concerns".to_owned()
    } else {
        format!("{count} anomalies, which concern")
    };
    let s = if concerned == 1 { "" } else { "s" };
    Err(Failure::failed(format!("{name} has {proved} {concerned} transaction{s}{hint}")))
}

/// Runs the workload's checker.
fn judge(
    args: &CheckArgs,
    workload: Workload,
    history: &History,
    promise: Promise,
) -> Result<CheckResult, Failure> {
    let head = history.head.as_ref().map(|head| head.judged);
    let (accounts, total) = match head {
        Some(Judged::Bank { accounts, total }) if workload == Workload::Bank => {
            (args.accounts.or(Some(accounts)), args.total.or(Some(total)))
        }
        _ => (args.accounts, args.total),
    };
    match (workload, accounts, total) {
        (Workload::ListAppend, None, None) => Ok(check_list_append(history, promise)),
        (Workload::Register, None, None) => Ok(check_register(history, promise)),
        (Workload::SingleKeys, None, None) => {
            let slack = Duration::from_millis(args.clock_slack);
            let mut verdict = check_register(history, promise);
            verdict.absorb(check_single_keys(history, &BTreeMap::new(), slack));
            Ok(verdict)
        }
        (Workload::Bank, Some(accounts), Some(total)) => Ok(check_bank(history, accounts, total)),
        (Workload::Bank, ..) => {
            Err(Failure::usage("a bank is checked against --accounts and --total: give both"))
        }
        _ => {
            let workload = workload.name();
            Err(Failure::usage(format!(
                "--accounts and --total are a bank's, and this is {workload}; add --workload bank"
            )))
        }
    }
}

/// The same for a history of Redis clients.
fn judge_redis(args: &CheckArgs, text: &str, format: Format) -> Result<(), Failure> {
    let name = args.file.display();
    if args.workload.is_some_and(|workload| workload != Workload::Redis) {
        return Err(Failure::usage(format!(
            "{name} is a history of Redis clients; leave --workload out"
        )));
    }
    let history = redis::read(text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if history.calls.is_empty() {
        return Err(Failure::usage(format!(
            "{name}: there is no call in it (no event with ':f :redis')"
        )));
    }
    let verdict = check_redis(&history);
    or_unread(match format {
        Format::Json => write_json(&describe(args, Workload::Redis, Promise::Conflicts, &verdict)),
        Format::Text | Format::Table => write_line(&format!("{name}: redis: {verdict}")),
    })?;
    if verdict.is_valid() {
        return Ok(());
    }
    let count = verdict.anomalies.len() + verdict.unreported;
    Err(Failure::failed(format!(
        "{name} has {count} anomal{}",
        if count == 1 { "y" } else { "ies" }
    )))
}

fn read(args: &CheckArgs) -> Result<Vec<u8>, Failure> {
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
    Ok(bytes)
}

/// The workloads that a history's operations show; a bank's are those of registers.
fn kinds(history: &History) -> Result<BTreeSet<Workload>, String> {
    if history.events.is_empty() {
        return Err("there is no transaction in it (no event with ':f :txn')".to_owned());
    }
    let of = |op: &MicroOp| match op {
        MicroOp::Append { .. } | MicroOp::Read { seen: Seen::List(_), .. } => {
            Some(Workload::ListAppend)
        }
        MicroOp::Write { value: Some(_), .. }
        | MicroOp::WriteUntil { .. }
        | MicroOp::Read { seen: Seen::Integer(_), .. } => Some(Workload::Register),
        // Lists are deleted as registers are.
        MicroOp::Read { seen: Seen::Nothing, .. } | MicroOp::Write { value: None, .. } => None,
    };
    Ok(history.events.iter().flat_map(|event| &event.ops).filter_map(of).collect())
}

/// The workload that was named, unless the history is another one's: the checker of a bank would
/// pass over lists and find nothing wrong.
fn fitting(workload: Workload, history: &History) -> Result<Workload, String> {
    let found = kinds(history)?;
    let is_of_registers = matches!(workload, Workload::Bank | Workload::SingleKeys);
    let wanted = if is_of_registers { Workload::Register } else { workload };
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
        (None, _) => {
            Err("nothing in it was written or found, so there is nothing to check".to_owned())
        }
        _ => Err("it has both lists and registers; check histories of one workload, or say which \
                with --workload"
            .to_owned()),
    }
}

fn describe(
    args: &CheckArgs,
    workload: Workload,
    promise: Promise,
    verdict: &CheckResult,
) -> serde_json::Value {
    let anomalies = verdict.anomalies.iter().map(|anomaly| {
        json!({
            "kind": anomaly.kind.id(),
            "breaks": anomaly.breaks.name(),
            "story": anomaly.story.trim_start(),
        })
    });
    let concerned =
        verdict.concerned.iter().map(|(kind, count)| (kind.id().to_owned(), json!(count)));
    json!({
        "file": args.file.display().to_string(),
        "workload": workload.name(),
        "promise": promise.name(),
        "transactions": verdict.transactions,
        "valid": verdict.is_valid(),
        "anomalies": anomalies.collect::<Vec<_>>(),
        "proved": verdict.proved(),
        "concerned": concerned.collect::<serde_json::Map<_, _>>(),
        "unreported": verdict.unreported,
        "undecided": verdict.undecided,
    })
}

//! `timestone txn`: one transaction from a script or typed line by line; and what became of an
//! earlier one.

use std::io::{BufRead, IsTerminal, Read, Write, stderr, stdin};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use timestone::{TxnId, TxnStatus};

use crate::failure::Failure;
use crate::link::KeyspaceTarget;
use crate::output::{Format, or_unread, put_bytes, shown, table, write_json, write_line};
use crate::script::{self, Runner, ScriptOutcome, ScriptRead};

/// Flags of `timestone txn`.
#[derive(Args, Debug)]
#[command(after_help = "\
Statements, one a line:
  get KEY                      print a key
  scan [PREFIX]                print the keys that begin so, in their order (keyspaces created with --index ordered)
  put KEY VALUE [expire WHEN]  write at commit
  delete KEY                   delete at commit
  if KEY = VALUE               go on only when it holds; also: != VALUE, exists, absent
  commit | abort               the end; a script without either commits, a person who types Ctrl-D aborts
Words with blanks or special bytes stand in quotes: \"two words\\n\\x00\" or 'as it is'. '#' begins a comment.
Everything takes effect, or nothing does. Exit code 4: conflict, or a condition that does not hold.")]
pub(crate) struct TxnArgs {
    #[command(subcommand)]
    command: Option<TxnCommand>,
    /// The script; standard input when left out.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Run every line as it comes, also where standard input is no terminal.
    #[arg(short, long, conflicts_with = "file")]
    interactive: bool,
    #[command(flatten)]
    place: KeyspaceTarget,
}

#[derive(Subcommand, Debug)]
enum TxnCommand {
    /// Ask what became of a transaction, by the id that an error named.
    Status {
        /// The transaction, such as 1f-2a.
        id: TxnId,
    },
}

/// Runs a script, a conversation, or the question.
pub(crate) fn run(args: &TxnArgs, format: Format) -> Result<(), Failure> {
    if let Some(TxnCommand::Status { id }) = &args.command {
        return print_status(*id, args.place.target.connect()?.status(*id)?, format);
    }
    let mut reads: Vec<ScriptRead> = Vec::new();
    let mut is_read = true;
    let ending = {
        let mut observe = |seen: ScriptRead| {
            // A reader that goes away ends the printing, and not the transaction: the exit code tells
            // how it ended.
            if format == Format::Text && is_read {
                is_read = is_printed(write_line(&sentence(&seen)))?;
            }
            reads.push(seen);
            Ok(())
        };
        if args.interactive || (args.file.is_none() && stdin().is_terminal()) {
            converse(args, &mut observe)
        } else {
            let text = read_script(args)?;
            let statements = script::parse(&text).map_err(Failure::usage)?;
            Runner::begin(&args.place.connect()?)?.run(&statements, &mut observe)
        }
    };
    let printed = or_unread(report(&reads, &ending, format));
    match ending? {
        ScriptOutcome::Committed(at) => {
            printed.map_err(|failure| failure.after(&format!("committed at {at}")))
        }
        ScriptOutcome::Aborted => printed,
    }
}

/// Whether there was somebody to read it.
fn is_printed(printed: Result<(), Failure>) -> Result<bool, Failure> {
    let is_read = printed.is_ok();
    or_unread(printed).map(|()| is_read)
}

fn read_script(args: &TxnArgs) -> Result<Vec<u8>, Failure> {
    if let Some(path) = &args.file {
        return std::fs::read(path).map_err(|error| {
            Failure::usage(format!("could not read the script {}: {error}", path.display()))
        });
    }
    let mut text = Vec::new();
    stdin().lock().read_to_end(&mut text).map_err(|error| {
        Failure::failed(format!("could not read the script from standard input: {error}"))
    })?;
    Ok(text)
}

/// A transaction typed line by line. Mistakes in typing are forgiven; the end of input without a
/// commit is an abort.
fn converse(
    args: &TxnArgs,
    observe: &mut script::ReadObserver<'_>,
) -> Result<ScriptOutcome, Failure> {
    let runner = Runner::begin(&args.place.connect()?)?;
    let mut line = Vec::new();
    loop {
        if stdin().is_terminal() {
            say("txn> ");
        }
        line.clear();
        let length = stdin().lock().read_until(b'\n', &mut line).map_err(|error| {
            Failure::failed(format!("could not read from the terminal: {error}"))
        })?;
        if length == 0 {
            return Ok(ScriptOutcome::Aborted);
        }
        match script::parse_line(line.trim_ascii_end()) {
            Ok(None) => {}
            Ok(Some(statement)) => match runner.step(&statement, observe) {
                Ok(None) => {}
                Ok(Some(ending)) => return Ok(ending),
                Err(problem) if problem.is_usage() => say(&format!("{problem}\n")),
                Err(failure) => return Err(failure),
            },
            Err(problem) => say(&format!("{problem}\n")),
        }
    }
}

/// Prompts and hints; when nobody sees them, nothing is lost.
fn say(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn sentence(seen: &ScriptRead) -> String {
    match &seen.value {
        Some(value) => format!("{} = \"{}\"", shown(&seen.key), shown(value)),
        None => format!("{} is absent", shown(&seen.key)),
    }
}

fn report(
    reads: &[ScriptRead],
    ending: &Result<ScriptOutcome, Failure>,
    format: Format,
) -> Result<(), Failure> {
    match format {
        Format::Text => match ending {
            Ok(ScriptOutcome::Committed(at)) => write_line(&format!("committed at {at}")),
            Ok(ScriptOutcome::Aborted) => write_line("aborted, nothing was written"),
            Err(_) => Ok(()),
        },
        Format::Json => {
            let mut object = Map::new();
            match ending {
                Ok(ScriptOutcome::Committed(at)) => {
                    object.insert("outcome".to_owned(), "committed".into());
                    object.insert("committed_ns".to_owned(), at.to_string().into());
                }
                Ok(ScriptOutcome::Aborted) => {
                    object.insert("outcome".to_owned(), "aborted".into());
                }
                Err(failure) => {
                    let outcome = if failure.is_unknown() { "unknown" } else { "aborted" };
                    object.insert("outcome".to_owned(), outcome.into());
                    object.insert("reason".to_owned(), failure.to_string().into());
                }
            }
            object
                .insert("reads".to_owned(), reads.iter().map(describe).collect::<Vec<_>>().into());
            write_json(&object)
        }
        Format::Table => {
            let mut table = table(&["key", "value"]);
            for seen in reads {
                table.add_row([
                    shown(&seen.key),
                    seen.value.as_deref().map_or_else(|| "(absent)".to_owned(), shown),
                ]);
            }
            write_line(&table.to_string())?;
            report(reads, ending, Format::Text)
        }
    }
}

fn describe(seen: &ScriptRead) -> Value {
    let mut object = Map::new();
    put_bytes(&mut object, "key", &seen.key);
    object.insert("found".to_owned(), seen.value.is_some().into());
    if let Some(value) = &seen.value {
        put_bytes(&mut object, "value", value);
    }
    Value::Object(object)
}

fn print_status(id: TxnId, status: TxnStatus, format: Format) -> Result<(), Failure> {
    let (word, at) = match status {
        TxnStatus::Committed(at) => ("committed", Some(at)),
        TxnStatus::Aborted => ("aborted", None),
        TxnStatus::Prepared(at) => ("prepared", Some(at)),
        TxnStatus::Unknown => ("unknown", None),
    };
    or_unread(match format {
        Format::Json => write_json(
            &json!({ "txn": id.to_string(), "status": word, "at_ns": at.map(|at| at.to_string()) }),
        ),
        Format::Text | Format::Table => {
            let when = at.map_or_else(String::new, |at| format!(" at {at}"));
            write_line(&format!("{id} {word}{when}"))
        }
    })?;
    match status {
        TxnStatus::Committed(_) | TxnStatus::Aborted => Ok(()),
        TxnStatus::Prepared(_) => Err(Failure::unknown(format!(
            "{id} is prepared and not decided yet; ask again in a few seconds"
        ))),
        TxnStatus::Unknown => Err(Failure::not_found(format!(
            "no server knows {id}: it never arrived, or it ended so long ago that it was forgotten"
        ))),
    }
}

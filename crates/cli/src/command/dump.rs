//! `timestone dump`: all keys of a keyspace, as of one point in time, into a file that `timestone load` reads.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write, stderr};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use timestone::ScanOptions;

use crate::bench::progress;
use crate::dump_file::{DumpWriter, Head};
use crate::failure::Failure;
use crate::link::Place;
use crate::moment::{self, Moment};
use crate::output::{Format, write_json, write_line};

/// What an unfinished file is called.
const UNFINISHED: &str = ".unfinished";

/// Flags of `timestone dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// The file to write; it gets its name when it is whole. "-" writes to standard output.
    file: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Dump the state as of this point in time, as `timestone get --at`.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<Moment>,
    #[command(flatten)]
    place: Place,
}

/// Writes the dump, and says how much it holds.
pub(crate) fn run(args: &DumpArgs, format: Format) -> Result<(), Failure> {
    if args.file == Path::new("-") {
        let (entries, head) = dump(args, io::stdout().lock()).map_err(|failure| failure.0)?;
        // Standard output is the dump's.
        let _ = writeln!(stderr(), "{}", words(&head, entries, "standard output"));
        return Ok(());
    }
    let place = args.file.display();
    if args.file.exists() && !args.force {
        return Err(Failure::usage(format!("{place} exists; give another name, or --force to replace it")));
    }
    let mut unfinished = args.file.clone().into_os_string();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let failed = |error: io::Error| Failure::usage(format!("could not write {place}: {error}"));
    let file = File::create(&unfinished).map_err(failed)?;
    let done = dump(args, &file).and_then(|done| {
        file.sync_all().and_then(|()| fs::rename(&unfinished, &args.file)).map_err(failed).map_err(DumpFailure)?;
        Ok(done)
    });
    let (entries, head) = done.map_err(|failure| {
        // Nobody can use it; what cannot be removed has a name that says so.
        let _ = fs::remove_file(&unfinished);
        failure.0
    })?;
    let place = place.to_string();
    match format {
        Format::Json => write_json(&json!({
            "file": place, "keyspace": head.keyspace, "as_of_ns": head.as_of.as_nanos().to_string(), "entries": entries,
        })),
        Format::Text | Format::Table => write_line(&words(&head, entries, &place)),
    }
}

fn words(head: &Head, entries: u64, place: &str) -> String {
    format!("{entries} keys of keyspace {} as of {} are in {place}", head.keyspace, moment::shown(head.as_of))
}

/// Why a dump was not finished.
struct DumpFailure(Failure);

impl From<timestone::Error> for DumpFailure {
    fn from(error: timestone::Error) -> Self {
        Self(error.into())
    }
}

impl From<io::Error> for DumpFailure {
    fn from(error: io::Error) -> Self {
        Self(match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::failed("whoever read the dump has gone: it is cut short"),
            _ => Failure::failed(format!("could not write the dump: {error}")),
        })
    }
}

fn dump(args: &DumpArgs, out: impl Write) -> Result<(u64, Head), DumpFailure> {
    let db = args.place.connect().map_err(DumpFailure)?;
    let at = match args.at {
        Some(at) => Some(at.resolve(db.as_async().spawn(|db| async move { Ok(db.now()) }).wait()?)),
        None => None,
    };
    let scan = db.scan(&ScanOptions { prefix: Vec::new(), at })?;
    let head = Head { keyspace: args.place.keyspace.clone(), as_of: scan.timestamp() };
    let bar = progress::spinner("dumping");
    let mut writer = DumpWriter::begin(BufWriter::with_capacity(1 << 20, out), &head)?;
    for entry in scan {
        let (key, value) = entry?;
        writer.entry(&key, &value, value.expires_at())?;
        bar.inc(1);
    }
    let (_, entries) = writer.finish()?;
    bar.finish_and_clear();
    Ok((entries, head))
}

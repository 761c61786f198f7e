//! `timestone load`: writes the keys of a dump into a keyspace.
//!
//! A file is checked whole before anything is written, and what can be read only once batch by batch:
//! each before its first key is written. A key is written by a write
//! of its own, many of them under way at once; loading the same file again writes the same keys
//! again, so a load that was interrupted is simply repeated.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use timestone::blocking::Db;
use timestone::{ErrorCode, Timestamp};

use crate::bench::progress;
use crate::dump_file::{DumpReader, Entry};
use crate::failure::Failure;
use crate::link::Target;
use crate::moment;
use crate::output::{Format, write_json, write_line};

/// Bytes of values that are under way at once.
const WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// How often a key is written before the load is given up.
const ATTEMPTS: u32 = 10;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Flags of `timestone load`.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// The file that `timestone dump` wrote, or a pipe with its bytes; "-" reads standard input.
    file: PathBuf,
    /// The keyspace to write to [default: the one that was dumped, as the file says].
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Loads the file, and says how much it held.
pub(crate) fn run(args: &LoadArgs, format: Format) -> Result<(), Failure> {
    let place = args.file.display().to_string();
    if args.file == Path::new("-") {
        return load(args, "standard input", io::stdin().lock(), format);
    }
    let unreadable = |error| Failure::failed(format!("could not read {place}: {error}"));
    // Opened once: a pipe gives each byte once.
    let mut file = match File::open(&args.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::not_found(format!("there is no {place}")));
        }
        opened => opened.map_err(unreadable)?,
    };
    if file.metadata().map_err(unreadable)?.is_file() {
        // It can be read twice: nothing is written from one that is damaged anywhere.
        let unusable = |words: String| {
            Failure::failed(format!("{place} cannot be loaded: {words}; nothing was written"))
        };
        let (mut reader, _) = DumpReader::begin(buffered(&file)).map_err(unusable)?;
        while reader.batch().map_err(unusable)?.is_some() {}
        file.rewind().map_err(unreadable)?;
    }
    load(args, &place, buffered(&file), format)
}

fn buffered(file: &File) -> BufReader<&File> {
    BufReader::with_capacity(1 << 20, file)
}

/// What came of it.
#[derive(Default)]
struct Loaded {
    written: u64,
    expired: u64,
}

fn load(args: &LoadArgs, place: &str, input: impl BufRead, format: Format) -> Result<(), Failure> {
    let unusable = |words: String, loaded: &Loaded| {
        let so_far = match loaded.written {
            0 => "nothing was written".to_owned(),
            keys => format!("{keys} keys before it were written"),
        };
        Failure::failed(format!("{place} cannot be loaded: {words}; {so_far}"))
    };
    let mut loaded = Loaded::default();
    let (mut reader, head) = DumpReader::begin(input).map_err(|words| unusable(words, &loaded))?;
    let db = args.target.connect()?;
    let keyspace = args.keyspace.clone().unwrap_or(head.keyspace);
    let db = if keyspace == crate::link::DEFAULT_KEYSPACE { db } else { db.keyspace(&keyspace)? };
    let now = moment::now(&db)?;
    let bar = progress::spinner("loading");
    while let Some(batch) = reader.batch().map_err(|words| unusable(words, &loaded))? {
        let entries = batch.len() as u64;
        write(&db, &batch, now, &mut loaded).map_err(|error| {
            Failure::from(error).after(&format!("{} keys were written", loaded.written))
        })?;
        bar.inc(entries);
    }
    bar.finish_and_clear();
    let Loaded { written, expired } = loaded;
    match format {
        Format::Json => write_json(
            &json!({ "file": place, "keyspace": keyspace, "written": written, "expired": expired }),
        ),
        Format::Text | Format::Table => {
            let passed =
                if expired == 0 { String::new() } else { format!("; {expired} had expired") };
            write_line(&format!("{written} keys of {place} are in keyspace {keyspace}{passed}"))
        }
    }
}

/// Writes the entries of a batch, as many at once as [`WINDOW_BYTES`] allows.
fn write(
    db: &Db,
    batch: &[Entry],
    now: Timestamp,
    loaded: &mut Loaded,
) -> Result<(), timestone::Error> {
    let mut rest = batch;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|entry| {
            let fits = bytes < WINDOW_BYTES;
            bytes += entry.key.len() + entry.value.len();
            fits
        });
        let (window, after) = rest.split_at(fits.count());
        rest = after;
        let wanted = window.iter().filter(|entry| !entry.expires_at.has_passed(now));
        let under_way: Vec<_> = wanted
            .map(|entry| {
                (db.as_async().put_until(&entry.key, &entry.value, entry.expires_at), entry)
            })
            .collect();
        loaded.expired += (window.len() - under_way.len()) as u64;
        for (write, entry) in under_way {
            if let Err(error) = write.wait() {
                again(db, entry, error)?;
            }
            loaded.written += 1;
        }
    }
    Ok(())
}

/// Writes one key again, where that may help: it does not matter whether an earlier attempt took
/// effect.
fn again(db: &Db, entry: &Entry, mut error: timestone::Error) -> Result<(), timestone::Error> {
    for _ in 1..ATTEMPTS {
        if !error.retryable()
            && !matches!(error.code(), ErrorCode::UnknownOutcome | ErrorCode::Timeout)
        {
            break;
        }
        std::thread::sleep(error.retry_after().unwrap_or(PAUSE));
        match db.put_until(&entry.key, &entry.value, entry.expires_at) {
            Ok(_) => return Ok(()),
            Err(next) => error = next,
        }
    }
    Err(error)
}

//! `timestone put`: writes one key.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin};

use clap::Args;
use serde_json::Map;
use timestone::Timestamp;

use crate::failure::Failure;
use crate::link::{KeyspaceTarget, key_bytes, value_bytes};
use crate::moment::{self, Expires};
use crate::output::{Format, put_bytes, shown, table, write_json, write_line};

/// Flags of `timestone put`.
#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// The key.
    key: OsString,
    /// The value; "-", or nothing where standard input is no terminal, reads it from standard
    /// input, byte by byte.
    #[arg(allow_hyphen_values = true)]
    value: Option<OsString>,
    /// The key becomes absent then: after a span such as 30s, or at a date.
    #[arg(long, value_name = "WHEN")]
    expire: Option<Expires>,
    #[command(flatten)]
    place: KeyspaceTarget,
}

/// Writes the key and prints when.
pub(crate) fn run(args: &PutArgs, format: Format) -> Result<(), Failure> {
    let key = key_bytes(&args.key);
    let value = match &args.value {
        Some(value) => value_bytes(value)?,
        None if stdin().is_terminal() => {
            return Err(Failure::usage(
                "no value: give one, or '-' to type it and end it with Ctrl-D",
            ));
        }
        None => value_bytes("-".as_ref())?,
    };
    let db = args.place.connect()?;
    let at = match args.expire {
        None => db.put(&key, &value)?,
        Some(end) => {
            let now = moment::now(&db)?;
            let past = |problem| Failure::usage(format!("--expire {problem}"));
            let expiry = end.resolve_ahead(now).map_err(past)?;
            db.put_until(&key, &value, expiry)?
        }
    };
    report(&key, at, format)
}

/// Prints that a key was written at `at`.
fn report(key: &[u8], at: Timestamp, format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => write_line(&format!("written at {at}")),
        Format::Json => {
            let mut object = Map::new();
            put_bytes(&mut object, "key", key);
            object.insert("written_ns".to_owned(), at.to_string().into());
            write_json(&object)
        }
        Format::Table => {
            let mut table = table(&["key", "written"]);
            table.add_row([shown(key), moment::shown(at)]);
            write_line(&table.to_string())
        }
    }
}

//! `timestone scan`: all keys of a keyspace, or those with a prefix, as of one point in time.

use std::ffi::OsString;

use clap::Args;
use serde_json::Map;
use timestone::ScanOptions;

use crate::failure::Failure;
use crate::link::{KeyspaceTarget, key_bytes};
use crate::moment::{self, Moment};
use crate::output::{Format, put_bytes, shown, table, write_json, write_line};

/// Flags of `timestone scan`.
#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    /// Only keys that begin so [default: all].
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<OsString>,
    /// Only keys from this one on; in keyspaces whose index is `ordered`.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys before this one; in keyspaces whose index is `ordered`.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// The last keys first; in keyspaces whose index is `ordered`.
    #[arg(long)]
    reverse: bool,
    /// Stop after this many keys.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Read as of this point in time, as `timestone get --at`.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<Moment>,
    #[command(flatten)]
    place: KeyspaceTarget,
}

/// Prints each key and its value as they come: in the order of keys, or its reverse, where the keyspace keeps one, elsewhere in no
/// particular order.
pub(crate) fn run(args: &ScanArgs, format: Format) -> Result<(), Failure> {
    let db = args.place.connect()?;
    let at = match args.at {
        Some(at) => Some(at.resolve(moment::now(&db)?)),
        None => None,
    };
    let options = ScanOptions {
        prefix: args.prefix.as_deref().map(key_bytes).unwrap_or_default(),
        from: args.from.as_deref().map(key_bytes).unwrap_or_default(),
        to: args.to.as_deref().map(key_bytes),
        limit: args.limit,
        descending: args.reverse,
        at,
    };
    let mut rows = table(&["key", "value", "written"]);
    for entry in db.scan(&options)? {
        let (key, value) = entry?;
        match format {
            Format::Text => write_line(&format!("{}\t{}", shown(&key), shown(&value)))?,
            Format::Json => {
                let mut object = Map::new();
                put_bytes(&mut object, "key", &key);
                put_bytes(&mut object, "value", &value);
                object
                    .insert("written_ns".to_owned(), value.version().timestamp.to_string().into());
                write_json(&object)?;
            }
            Format::Table => {
                rows.add_row([
                    shown(&key),
                    shown(&value),
                    moment::shown(value.version().timestamp),
                ]);
            }
        }
    }
    if format == Format::Table { write_line(&rows.to_string()) } else { Ok(()) }
}

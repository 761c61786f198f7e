//! `timestone delete`: deletes one key. A key that is absent already is no failure; the output
//! tells.

use std::ffi::OsString;

use clap::Args;
use serde_json::Map;

use crate::failure::Failure;
use crate::link::{KeyspaceTarget, key_bytes};
use crate::moment;
use crate::output::{Format, put_bytes, shown, table, write_json, write_line};

/// Flags of `timestone delete`.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The key.
    key: OsString,
    #[command(flatten)]
    place: KeyspaceTarget,
}

/// Deletes the key and prints when, or that it was absent.
pub(crate) fn run(args: &DeleteArgs, format: Format) -> Result<(), Failure> {
    let key = key_bytes(&args.key);
    let at = args.place.connect()?.take(&key)?.written;
    match format {
        Format::Text => {
            write_line(&at.map_or_else(|| "was absent".to_owned(), |at| format!("deleted at {at}")))
        }
        Format::Json => {
            let mut object = Map::new();
            put_bytes(&mut object, "key", &key);
            object.insert("deleted".to_owned(), at.is_some().into());
            if let Some(at) = at {
                object.insert("deleted_ns".to_owned(), at.to_string().into());
            }
            write_json(&object)
        }
        Format::Table => {
            let mut table = table(&["key", "deleted"]);
            table.add_row([shown(&key), at.map_or_else(|| "was absent".to_owned(), moment::shown)]);
            write_line(&table.to_string())
        }
    }
}

//! `timestone get`: one key, now or at a point in the past.

use std::ffi::OsString;

use clap::Args;
use serde_json::Map;
use timestone::Value;

use crate::failure::Failure;
use crate::link::{KeyspaceTarget, key_bytes};
use crate::moment::{self, Moment};
use crate::output::{
    Format, or_unread, put_bytes, shown, table, write_json, write_line, write_value,
};

/// Flags of `timestone get`.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The key.
    key: OsString,
    /// Read as of this point in time: a date, a span before now such as -500ms, or nanoseconds
    /// since 1970. Versions are kept for as long as an open transaction may need them, about a
    /// second at least.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<Moment>,
    #[command(flatten)]
    place: KeyspaceTarget,
}

/// Reads the key and prints its value; an absent key is a failure of its own kind.
pub(crate) fn run(args: &GetArgs, format: Format) -> Result<(), Failure> {
    let key = key_bytes(&args.key);
    let found = read(args, &key)?;
    match format {
        Format::Text => match found {
            Some(value) => write_value(&value),
            None => Err(Failure::not_found(format!("there is no key '{}'", shown(&key)))),
        },
        Format::Json => {
            or_unread(write_json(&describe(&key, found.as_ref())))?;
            if found.is_some() { Ok(()) } else { Err(Failure::not_found(String::new())) }
        }
        Format::Table => {
            let Some(value) = found else {
                return Err(Failure::not_found(format!("there is no key '{}'", shown(&key))));
            };
            let mut table = table(&["key", "value", "written", "expires"]);
            table.add_row([
                shown(&key),
                shown(&value),
                moment::shown(value.version().timestamp),
                expiry(&value),
            ]);
            write_line(&table.to_string())
        }
    }
}

fn read(args: &GetArgs, key: &[u8]) -> Result<Option<Value>, Failure> {
    let db = args.place.connect()?;
    let Some(at) = args.at else { return Ok(db.get(key)?) };
    let now = moment::now(&db)?;
    let snapshot = db.snapshot(at.resolve(now))?;
    let value = snapshot.get(key)?;
    snapshot.commit()?;
    Ok(value)
}

fn expiry(value: &Value) -> String {
    if value.expires_at().is_never() {
        "never".to_owned()
    } else {
        moment::shown(value.expires_at().timestamp())
    }
}

/// A key's state as JSON. Timestamps are strings: most JSON readers cannot hold 64 bits.
fn describe(key: &[u8], found: Option<&Value>) -> Map<String, serde_json::Value> {
    let mut object = Map::new();
    put_bytes(&mut object, "key", key);
    object.insert("found".to_owned(), found.is_some().into());
    if let Some(value) = found {
        put_bytes(&mut object, "value", value);
        let version = value.version();
        object.insert("written_ns".to_owned(), version.timestamp.to_string().into());
        object.insert("written_by".to_owned(), version.client.to_string().into());
        if !value.expires_at().is_never() {
            object
                .insert("expires_ns".to_owned(), value.expires_at().timestamp().to_string().into());
        }
    }
    object
}

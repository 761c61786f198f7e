//! `timestone data convert`: another index for a keyspace of a data directory that no server uses.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use timestone::server::{ServerConfig, ServerError, conversion};
use timestone_cluster::IndexKind;

use crate::bench::progress;
use crate::failure::Failure;
use crate::output::{Format, write_json, write_line};
use crate::settings;

/// Flags of `timestone data convert`.
#[derive(Args, Debug)]
#[command(after_help = "\
The keyspace keeps its name and its number, and everything in it: values, expiry, deletions, and the versions that open
snapshots may need. It is copied within the directory, and the room of what it was is free when a server has run for a
moment. Interrupted at any moment, by a power cut too, it can be run again; until it is done the keyspace is as it was.
In a cluster each server has its own directory: convert one after the other, or some of them only.

Exit codes:
  0  the keyspace has this index
  1  a server uses the directory, there is no room, or something cannot be read
  2  wrong usage
  3  there is no such keyspace")]
pub(super) struct ConvertArgs {
    /// The data directory.
    directory: PathBuf,
    /// The keyspace: its name, where the directory has an embedded master, or its number, as
    /// `timestone keyspace list` shows it.
    keyspace: String,
    /// How its keys are to be found: full, by an index in memory, or frugal, by one on flash.
    #[arg(long, value_name = "KIND")]
    index: String,
    /// As for `timestone serve`: most space on the flash device [default: 80 % of the free space].
    #[arg(long, value_name = "SIZE", value_parser = settings::capacity)]
    capacity: Option<u64>,
    /// As for `timestone serve`: most space of keyspaces with index frugal [default: as --capacity].
    #[arg(long, value_name = "SIZE", value_parser = settings::capacity)]
    frugal_capacity: Option<u64>,
    /// As for `timestone serve`: keys that are expected in these keyspaces; counts for shards that had
    /// none so far [default: 10000000].
    #[arg(long, value_name = "N", value_parser = settings::keys)]
    frugal_keys: Option<u64>,
}

/// Converts, and says what it came to.
pub(super) fn run(args: &ConvertArgs, format: Format) -> Result<(), Failure> {
    let index: IndexKind = args
        .index
        .parse()
        .map_err(|error: timestone_cluster::ClusterError| Failure::usage(error.to_string()))?;
    if index == IndexKind::Ordered {
        return Err(Failure::usage(
            "--index is full or frugal here; for keys in order create another keyspace, then \
             `timestone dump` this one and `timestone load` the other",
        ));
    }
    let mut config = ServerConfig::embedded(args.directory.clone());
    config.sizes.capacity_bytes = args.capacity;
    config.sizes.frugal_capacity_bytes = args.frugal_capacity;
    config.sizes.frugal_keys = args.frugal_keys.unwrap_or(config.sizes.frugal_keys);
    let bar = progress::spinner("copying");
    let told = conversion::convert(&config, &args.keyspace, index, &mut |progress| {
        bar.set_position(progress.versions);
    });
    bar.finish_and_clear();
    let done = told.map_err(|error| match error {
        ServerError::NoKeyspace { .. } => Failure::not_found(error.to_string()),
        error => Failure::failed(error.to_string()),
    })?;
    let (keyspace, progress) = (&args.keyspace, done.progress);
    match format {
        Format::Json => write_json(&json!({
            "keyspace": keyspace, "id": done.keyspace.get(), "index": index.name(), "changed": done.is_changed,
            "shards": progress.shards, "versions": progress.versions, "bytes": progress.bytes,
        })),
        Format::Text | Format::Table if done.is_changed => write_line(&format!(
            "keyspace {keyspace} has index {index} now: {} versions of {} shards were copied",
            progress.versions, progress.shards
        )),
        Format::Text | Format::Table => {
            write_line(&format!("keyspace {keyspace} has index {index} already"))
        }
    }
}

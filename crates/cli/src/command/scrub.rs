//! `timestone scrub`: every shard reads its whole device and verifies every checksum, beside what it
//! serves.

use clap::Args;
use serde_json::json;
use timestone_cluster::{ShardEntry, ShardMap};
use timestone_wire::Scrubbed;

use super::status::{first_answer, native_of};
use crate::bench::progress;
use crate::failure::Failure;
use crate::link::Target;
use crate::output::{Format, or_unread, table, write_json, write_line};
use crate::probe;

/// Flags of `timestone scrub`.
#[derive(Args, Debug)]
#[command(after_long_help = "Reads go on meanwhile, and share the devices with it. What it finds \
    damaged is named in the log of the shard's server; a damaged record is never served. Exit code \
    1: something is damaged, or a shard does not answer.")]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    target: Target,
}

/// One shard, and what its scrub found or why there is no answer.
struct ShardScrub {
    shard: String,
    address: String,
    found: Result<Scrubbed, Failure>,
}

impl ShardScrub {
    fn is_damaged(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| found.corrupt_pages + found.corrupt_records > 0)
    }
}

/// Scrubs one shard after the other, so that a server's devices do not slow each other down.
pub(crate) fn run(args: &ScrubArgs, format: Format) -> Result<(), Failure> {
    let (asked, first) = first_answer(&args.target.address)?;
    let map = first.map;
    let bar = progress::spinner("scrubbing");
    let mut seen = Vec::new();
    for (done, shard) in map.shards().iter().enumerate() {
        bar.set_message(format!("shard {} ({done} of {} done)", shard.id, map.shards().len()));
        seen.push(scrub(&map, shard, &asked));
    }
    bar.finish_and_clear();
    or_unread(match format {
        Format::Json => write_json(&describe(&seen)),
        Format::Table => print_table(&seen),
        Format::Text => print_text(&seen),
    })?;
    if let Some(failure) = seen.iter().find_map(|shard| shard.found.as_ref().err()) {
        return Err(Failure::failed(failure.to_string()));
    }
    match seen.iter().filter(|shard| shard.is_damaged()).count() {
        0 => Ok(()),
        damaged => Err(Failure::failed(format!(
            "{damaged} of {} shards hold damaged records: their servers' logs name the places; \
             restore these shards from a backup, or write the keys anew",
            seen.len()
        ))),
    }
}

fn scrub(map: &ShardMap, shard: &ShardEntry, asked: &str) -> ShardScrub {
    let address = map
        .primary(shard.id)
        .map_or_else(|| asked.to_owned(), |info| native_of(info, map.servers().len(), asked));
    let found = probe::scrub(&address, shard.id, shard.epoch);
    ShardScrub { shard: shard.id.to_string(), address, found }
}

fn describe(seen: &[ShardScrub]) -> serde_json::Value {
    let of_shard = |shard: &ShardScrub| match &shard.found {
        Ok(found) => json!({
            "shard": shard.shard,
            "server": shard.address,
            "pages": found.pages,
            "records": found.records,
            "corrupt_pages": found.corrupt_pages,
            "corrupt_records": found.corrupt_records,
        }),
        Err(failure) => json!({
            "shard": shard.shard, "server": shard.address, "problem": failure.to_string(),
        }),
    };
    json!({ "shards": seen.iter().map(of_shard).collect::<Vec<_>>() })
}

fn print_table(seen: &[ShardScrub]) -> Result<(), Failure> {
    let mut rows =
        table(&["shard", "server", "pages", "records", "damaged pages", "damaged records"]);
    for shard in seen {
        let figures = shard.found.as_ref().map_or_else(
            |_| ["–", "–", "–", "–"].map(str::to_owned),
            |found| {
                [found.pages, found.records, found.corrupt_pages, found.corrupt_records]
                    .map(|figure| figure.to_string())
            },
        );
        let mut row = vec![shard.shard.clone(), shard.address.clone()];
        row.extend(figures);
        rows.add_row(row);
    }
    write_line(&rows.to_string())
}

fn print_text(seen: &[ShardScrub]) -> Result<(), Failure> {
    for shard in seen {
        write_line(&match &shard.found {
            Ok(found) => format!(
                "shard {} pages {} records {} corrupt_pages {} corrupt_records {}",
                shard.shard, found.pages, found.records, found.corrupt_pages, found.corrupt_records
            ),
            Err(failure) => format!("shard {} problem {failure}", shard.shard),
        })?;
    }
    Ok(())
}

//! All versions of a key that blocks hold, newest first, and where.

use std::cmp::Reverse;
use std::ffi::OsStr;

use serde_json::Value;
use timestone::server::inspect::{RecordContents, RecordView, is_of};
use timestone_types::{ShardId, Version};

use super::block::describe;
use super::{Directory, expiry, told, walk};
use crate::failure::Failure;
use crate::link::key_bytes;
use crate::moment;
use crate::output::{Format, or_unread, shown, table, write_json, write_line};

const HEAD: [&str; 9] =
    ["version", "written", "what", "expires", "value", "shard", "block", "page", "crc"];

/// A record of the key.
struct FoundVersion {
    shard: ShardId,
    /// As the shard's device is called.
    place: String,
    block: u32,
    page: u32,
    record: RecordView,
    contents: RecordContents,
}

pub(super) fn print(
    directory: &Directory,
    key: &OsStr,
    keyspace: &str,
    format: Format,
) -> Result<(), Failure> {
    let key = key_bytes(key);
    let id = directory.keyspace(keyspace)?;
    let (mut found, mut fences) = (Vec::new(), Vec::new());
    for shard in &directory.shards {
        let image = match &shard.image {
            Ok(image) => image,
            Err(error) => return Err(Failure::failed(format!("shard {}: {error}", shard.name()))),
        };
        for looked in walk(image) {
            let seed = looked.identity.map(|(_, seed)| seed).unwrap_or_default();
            for page in &looked.view.pages {
                for (record, contents) in told(page) {
                    if contents.kind.is_fence() && contents.keyspace == id && contents.is_intact {
                        fences.push(contents.version);
                    }
                    if is_of(contents, id, &key, seed) {
                        found.push(FoundVersion {
                            shard: shard.id,
                            place: shard.name(),
                            block: looked.view.block.0,
                            page: page.index,
                            record: record.clone(),
                            contents: contents.clone(),
                        });
                    }
                }
            }
        }
    }
    found.sort_by_key(|version| (Reverse(version.contents.version), version.block, version.page));
    let fence = fences.into_iter().max();
    or_unread(write(directory, &found, fence, format))?;
    if let (Some(fence), false) = (fence, format == Format::Json) {
        let words = format!("what is not younger than {fence} is behind a fence of the keyspace");
        or_unread(write_line(&words))?;
    }
    match found.is_empty() {
        true => Err(Failure::not_found(format!(
            "no block has a version of '{}' in keyspace {}",
            shown(&key),
            directory.keyspace_name(id)
        ))),
        false => Ok(()),
    }
}

fn write(
    directory: &Directory,
    found: &[FoundVersion],
    fence: Option<Version>,
    format: Format,
) -> Result<(), Failure> {
    let mut rows = table(&HEAD);
    for version in found {
        match format {
            Format::Json => write_json(&described(directory, version, fence))?,
            Format::Text => write_line(&line(version))?,
            Format::Table => {
                rows.add_row(cells(version));
            }
        }
    }
    match format == Format::Table && !found.is_empty() {
        true => write_line(&rows.to_string()),
        false => Ok(()),
    }
}

fn cells(version: &FoundVersion) -> [String; 9] {
    let contents = &version.contents;
    [
        contents.version.to_string(),
        moment::shown(contents.version.timestamp),
        contents.kind.name().to_owned(),
        expiry(contents),
        format!("{} B", contents.value_bytes),
        version.place.clone(),
        version.block.to_string(),
        version.page.to_string(),
        if contents.is_intact { "ok" } else { "DAMAGED" }.to_owned(),
    ]
}

fn line(version: &FoundVersion) -> String {
    let [of, written, what, expires, value, shard, block, page, crc] = cells(version);
    format!(
        "{of} ({written})\t{what}\texpires {expires}\t{value}\tshard {shard}, block {block}, page {page}, \
         slot {}\tcrc {crc}",
        version.record.slot
    )
}

fn described(directory: &Directory, version: &FoundVersion, fence: Option<Version>) -> Value {
    let mut object = describe(directory, &version.record);
    object["shard"] = version.shard.get().into();
    object["block"] = version.block.into();
    object["page"] = version.page.into();
    object["behind_fence"] = fence.is_some_and(|fence| version.contents.version <= fence).into();
    object
}

//! The pages and records of one block.

use serde_json::{Map, Value, json};
use timestone::server::inspect::{BlockId, PageState, PageView, RecordContents, RecordView};

use super::{Directory, Looked, expiry, look};
use crate::failure::Failure;
use crate::moment;
use crate::output::{Format, or_unread, put_bytes, shown, table, write_json, write_line};

const HEAD: [&str; 10] =
    ["page", "slot", "what", "keyspace", "key", "version", "written", "expires", "value", "crc"];

pub(super) fn print(directory: &Directory, number: u32, format: Format) -> Result<(), Failure> {
    let [shard] = directory.shards.as_slice() else {
        return Err(match directory.shards.len() {
            0 => Failure::failed(format!("there is no flash file in {}", directory.path.display())),
            shards => Failure::usage(format!(
                "there are {shards} shards, each with blocks of its own; say which with --shard"
            )),
        });
    };
    let image = shard.image.as_ref().map_err(|error| Failure::failed(error.clone()))?;
    let blocks = image.geometry().blocks;
    if number >= blocks {
        return Err(Failure::usage(format!(
            "shard {} has blocks 0 to {}",
            shard.name(),
            blocks.max(1) - 1
        )));
    }
    let looked = look(image, BlockId(number), &mut Vec::new());
    or_unread(match format {
        Format::Json => write_json(&described(directory, &looked)),
        Format::Text => print_text(directory, &looked),
        Format::Table => {
            let mut rows = table(&HEAD);
            for page in &looked.view.pages {
                if page.records.is_empty() {
                    let what = what(&page.state);
                    rows.add_row([page.index.to_string(), String::new(), what]);
                }
                for record in &page.records {
                    rows.add_row(cells(directory, page, record));
                }
            }
            write_line(&rows.to_string())
        }
    })?;
    match looked.unreadable {
        Some(error) => Err(Failure::failed(format!("the block could not be read whole: {error}"))),
        None => Ok(()),
    }
}

/// A page that holds no records, in words.
fn what(state: &PageState) -> String {
    match state {
        PageState::Damaged(why) => format!("DAMAGED: {why}"),
        PageState::Earlier(generation) => format!("of an earlier life, generation {generation}"),
        PageState::LargePart { hash, version, part, .. } => {
            format!("part {part} of a large value, key hash {:016x}, version {version}", hash.0)
        }
        PageState::Checkpoint { number, place, is_last } => {
            format!(
                "page {place} of checkpoint {number}{}",
                if *is_last { ", the last" } else { "" }
            )
        }
        state => state.name().to_owned(),
    }
}

fn cells(directory: &Directory, page: &PageView, record: &RecordView) -> [String; 10] {
    let none = String::new;
    let place = [page.index.to_string(), record.slot.to_string()];
    let [page, slot] = place;
    let Some(contents) = &record.contents else {
        let what = "DAMAGED: its lengths make no sense".to_owned();
        return [page, slot, what, none(), none(), none(), none(), none(), none(), none()];
    };
    [
        page,
        slot,
        contents.kind.name().to_owned(),
        directory.keyspace_name(contents.keyspace),
        key_of(contents),
        contents.version.to_string(),
        moment::shown(contents.version.timestamp),
        expiry(contents),
        format!("{} B", contents.value_bytes),
        if contents.is_intact { "ok" } else { "DAMAGED" }.to_owned(),
    ]
}

/// The key, or where it is.
pub(super) fn key_of(contents: &RecordContents) -> String {
    match contents.key.is_empty() && contents.key_bytes > 0 {
        true => format!("(of {} bytes, in pages of its own)", contents.key_bytes),
        false => shown(&contents.key),
    }
}

fn print_text(directory: &Directory, looked: &Looked) -> Result<(), Failure> {
    let view = &looked.view;
    let generation =
        view.generation.map_or_else(|| "unknown".to_owned(), |found| found.to_string());
    write_line(&format!(
        "block {}: {}, generation {generation}, {} pages written",
        view.block,
        view.state.name(),
        view.pages.len()
    ))?;
    for page in &view.pages {
        let sequence =
            page.sequence.map_or_else(String::new, |found| format!(", sequence {found}"));
        let what = what(&page.state);
        let records = match page.records.len() {
            0 => String::new(),
            records => format!(", {records} records, {} bytes used", page.used_bytes),
        };
        write_line(&format!("page {}: {what}{sequence}{records}", page.index))?;
        for record in &page.records {
            let [_, slot, what, keyspace, key, version, written, expires, value, crc] =
                cells(directory, page, record);
            write_line(&match record.contents {
                None => format!("  slot {slot}: {what}"),
                Some(_) => format!(
                    "  slot {slot}: {what}\t{keyspace}\t{key}\t{version} ({written})\texpires {expires}\t{value}\tcrc {crc}"
                ),
            })?;
        }
    }
    Ok(())
}

fn described(directory: &Directory, looked: &Looked) -> Value {
    let pages = looked.view.pages.iter().map(|page| {
        json!({
            "page": page.index,
            "state": page.state.name(),
            "detail": what(&page.state),
            "sequence": page.sequence,
            "used_bytes": page.used_bytes,
            "records": page.records.iter().map(|record| describe(directory, record)).collect::<Vec<_>>(),
        })
    });
    json!({
        "block": looked.view.block.0,
        "state": looked.view.state.name(),
        "generation": looked.view.generation.map(|generation| generation.0),
        "unreadable": looked.unreadable,
        "pages": pages.collect::<Vec<_>>(),
    })
}

/// A record as JSON. Timestamps are strings: most JSON readers cannot hold 64 bits.
pub(super) fn describe(directory: &Directory, record: &RecordView) -> Value {
    let mut object = Map::new();
    object.insert("slot".to_owned(), record.slot.into());
    object.insert("readable".to_owned(), record.contents.is_some().into());
    let Some(contents) = &record.contents else { return Value::Object(object) };
    if contents.key_bytes as usize == contents.key.len() {
        put_bytes(&mut object, "key", &contents.key);
    }
    let Value::Object(rest) = json!({
        "kind": contents.kind.name(),
        "keyspace": directory.keyspace_name(contents.keyspace),
        "keyspace_id": contents.keyspace.get(),
        "key_hash": format!("{:016x}", contents.hash.0),
        "written_ns": contents.version.timestamp.to_string(),
        "written_by": contents.version.client.to_string(),
        "expires_ns": (!contents.expires_at.is_never())
            .then(|| contents.expires_at.timestamp().to_string()),
        "record_bytes": contents.record_bytes,
        "key_bytes": contents.key_bytes,
        "value_bytes": contents.value_bytes,
        "stored_bytes": contents.stored_bytes,
        "crc_ok": contents.is_intact,
    }) else {
        return Value::Object(object);
    };
    object.extend(rest);
    Value::Object(object)
}

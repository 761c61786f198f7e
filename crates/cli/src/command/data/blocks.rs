//! A row for each block of each shard.

use std::collections::BTreeSet;

use serde_json::json;
use timestone::server::inspect::{BlockView, PageView};
use timestone_types::ShardId;

use super::{Directory, Looked, Shard, told, walk};
use crate::failure::Failure;
use crate::output::{Format, or_unread, table, write_json, write_line};

const HEAD: [&str; 9] = [
    "shard",
    "block",
    "state",
    "generation",
    "sequence",
    "pages",
    "records",
    "kinds",
    "bytes used",
];

pub(super) fn print(directory: &Directory, format: Format) -> Result<(), Failure> {
    or_unread(print_rows(directory, format))?;
    let bad = directory.shards.iter().find_map(|shard| Some((shard, shard.image.as_ref().err()?)));
    match bad {
        Some((shard, error)) => Err(Failure::failed(format!("shard {}: {error}", shard.name()))),
        None => Ok(()),
    }
}

/// Those of every shard of which anything can be seen.
fn print_rows(directory: &Directory, format: Format) -> Result<(), Failure> {
    let mut rows = table(&HEAD);
    for shard in &directory.shards {
        let Ok(image) = &shard.image else { continue };
        for looked in walk(image) {
            let row = Row::of(shard, &looked);
            match format {
                Format::Json => write_json(&row.described(&looked.view))?,
                Format::Text => write_line(&row.cells().join("\t"))?,
                Format::Table => {
                    rows.add_row(row.cells());
                }
            }
        }
    }
    if format == Format::Table { write_line(&rows.to_string()) } else { Ok(()) }
}

/// What is told of a block.
struct Row {
    shard: ShardId,
    /// As the shard's device is called.
    place: String,
    flash: &'static str,
    state: String,
    block: u32,
    generation: Option<u32>,
    sequences: Option<(u64, u64)>,
    pages: usize,
    records: usize,
    kinds: BTreeSet<&'static str>,
    used_bytes: u64,
}

impl Row {
    fn of(shard: &Shard, looked: &Looked) -> Self {
        let view = &looked.view;
        let sequences = view.pages.iter().filter_map(|page| page.sequence);
        let (least, most) = (sequences.clone().min(), sequences.max());
        let of_life = || view.pages.iter().filter(|page| page.state.is_sound());
        let kind = |page: &PageView| match page.records.is_empty() {
            true => vec![page.state.name()],
            false => told(page).map(|(_, contents)| contents.kind.name()).collect(),
        };
        Self {
            shard: shard.id,
            place: shard.name(),
            flash: shard.part.file_name(),
            state: match &looked.unreadable {
                Some(_) => "unreadable".to_owned(),
                None => view.state.name().to_owned(),
            },
            block: view.block.0,
            generation: view.generation.map(|generation| generation.0),
            sequences: least.zip(most),
            pages: of_life().count(),
            records: view.pages.iter().map(|page| page.records.len()).sum(),
            kinds: of_life().flat_map(kind).collect(),
            used_bytes: of_life().map(|page| u64::from(page.used_bytes)).sum(),
        }
    }

    fn kinds(&self) -> String {
        self.kinds.iter().copied().collect::<Vec<_>>().join(", ")
    }

    fn cells(&self) -> [String; 9] {
        let unknown = || "–".to_owned();
        [
            self.place.clone(),
            self.block.to_string(),
            self.state.clone(),
            self.generation.map_or_else(unknown, |generation| generation.to_string()),
            self.sequences.map_or_else(unknown, |(least, most)| format!("{least}–{most}")),
            self.pages.to_string(),
            self.records.to_string(),
            self.kinds(),
            self.used_bytes.to_string(),
        ]
    }

    fn described(&self, view: &BlockView) -> serde_json::Value {
        json!({
            "shard": self.shard.get(),
            "flash": self.flash,
            "block": self.block,
            "state": self.state,
            "generation": self.generation,
            "first_sequence": self.sequences.map(|(least, _)| least),
            "last_sequence": self.sequences.map(|(_, most)| most),
            "pages": self.pages,
            "written_pages": view.pages.len(),
            "records": self.records,
            "kinds": self.kinds,
            "used_bytes": self.used_bytes,
        })
    }
}

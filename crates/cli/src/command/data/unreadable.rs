//! `timestone data unreadable`: which pages of a data directory's flash files cannot be read, and the
//! end of the hope that they ever will be.
//!
//! ```text
//!   each flash file ─► its unreadable pages ─┬─► named
//!                                            └─► --accept-loss: each once more ─► a mark in its place
//! ```
//! A server that meets such a page keeps all deletions until a start that reads everything
//! (docs/protocol/recovery.md, N3a). What can be read is never touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use timestone::server::AcceptedLoss;
use timestone::server::inspect::{
    BlockId, DirectoryView, FlashError, FlashPart, Geometry, GivenUp, MissingFile, PageId,
    UnreadablePages, lost_page,
};
use timestone_types::ShardId;

use super::{device_name, missing};
use crate::bench::progress;
use crate::failure::Failure;
use crate::output::{Format, or_unread, write_json, write_line};
use crate::settings;

/// Flags of `timestone data unreadable`.
#[derive(Args, Debug)]
#[command(after_help = "\
A page that cannot be read may be read by a later start, after another cable, controller or kernel. So a server keeps
every deletion as long as it meets one, and each keeps its room. With --accept-loss nobody waits for these pages any
more: something else is written in their places. What only they held is lost for good: keys, older values of which are
seen again where those can be read, and deletions, whose keys may be back. Each page is tried again just before; one
that can be read then is left as it is. Where other servers have copies of the shard rather have this one's made anew:
remove the flash file, and start once with `timestone serve --accept-loss`.

Exit codes:
  0  every page can be read, or what could not has been given up
  1  some pages cannot be read, a file is missing, a server uses the directory, or a file takes nothing
  2  wrong usage")]
pub(super) struct UnreadableArgs {
    /// The data directory.
    directory: PathBuf,
    /// Only this shard.
    #[arg(long, value_name = "S")]
    shard: Option<u16>,
    /// Give up the pages that cannot be read, of these shards (such as 2 or 0,3), or of all. What only
    /// they held is lost, also if the disk could read them later.
    #[arg(long, value_name = "SHARDS", value_parser = settings::accepted_loss)]
    accept_loss: Option<AcceptedLoss>,
}

/// What came of one file.
struct FileFindings {
    geometry: Geometry,
    /// Those that could not be read.
    unreadable: Vec<PageId>,
    /// What became of those that were to be given up.
    ends: BTreeMap<PageId, GivenUp>,
}

/// Looks, gives up what may be given up, and says what it came to.
pub(super) fn run(args: &UnreadableArgs, format: Format) -> Result<(), Failure> {
    let view =
        DirectoryView::of(&args.directory).map_err(|error| Failure::failed(error.to_string()))?;
    let chosen = |shard: ShardId| args.shard.is_none_or(|only| shard.get() == only);
    let files: Vec<_> = view.flash.iter().filter(|((shard, _), _)| chosen(*shard)).collect();
    let is_asked = |file: &&MissingFile| match file {
        MissingFile::Flash(shard, _) => chosen(*shard),
        MissingFile::Log { .. } => args.shard.is_none(),
    };
    let absent: Vec<MissingFile> = view.missing.iter().filter(is_asked).cloned().collect();
    if files.is_empty() && absent.is_empty() {
        return Err(Failure::failed(format!(
            "there is no such flash file in {}; devices that are no files are not looked at",
            args.directory.display()
        )));
    }
    let accepted = args.accept_loss.clone().unwrap_or_default();
    let mut left = 0;
    for (&(shard, part), path) in files {
        let told = look(path, accepted.includes(shard)).map_err(|error| {
            Failure::failed(format!("shard {}: {error}", device_name(shard, part)))
        })?;
        left += told.unreadable.len() - told.ends.len();
        or_unread(tell((shard, part, path), &told, format))?;
    }
    if !absent.is_empty() {
        or_unread(match format {
            Format::Json => write_json(&json!({ "missing": missing::paths(&absent) })),
            Format::Text | Format::Table => {
                absent.iter().try_for_each(|file| write_line(&missing::line(file)))
            }
        })?;
    }
    match left {
        0 if absent.is_empty() => Ok(()),
        0 => Err(Failure::failed(missing::count(&absent))),
        _ => Err(Failure::failed(format!(
            "{left} pages cannot be read. While that is so, no deletion is forgotten; where the disk \
             will never read them again, --accept-loss gives them up (see --help)"
        ))),
    }
}

/// Reads a whole file; where that is accepted, gives up what cannot be read.
fn look(path: &Path, is_accepted: bool) -> Result<FileFindings, FlashError> {
    let mut pages = UnreadablePages::open(path)?;
    let geometry = pages.geometry();
    let bar = progress::blocks(geometry.blocks);
    let mut unreadable = Vec::new();
    for block in (0..geometry.blocks).map(BlockId) {
        unreadable.append(&mut pages.find(block));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut ends = BTreeMap::new();
    for &page in unreadable.iter().filter(|_| is_accepted) {
        ends.insert(page, pages.give_up(page, &lost_page(page))?);
    }
    Ok(FileFindings { geometry, unreadable, ends })
}

fn tell(
    (shard, part, path): (ShardId, FlashPart, &Path),
    told: &FileFindings,
    format: Format,
) -> Result<(), Failure> {
    let place = |page: PageId| (told.geometry.block_of(page).0, told.geometry.index_of(page));
    let end = |page: &PageId| match told.ends.get(page) {
        None => "unreadable",
        Some(GivenUp::Readable) => "readable after all",
        Some(GivenUp::Replaced) => "given up",
    };
    let pages = u64::from(told.geometry.blocks) * u64::from(told.geometry.pages_per_block);
    if format == Format::Json {
        let described = told.unreadable.iter().map(|page| {
            let (block, index) = place(*page);
            json!({ "block": block, "page": index, "state": end(page) })
        });
        return write_json(&json!({
            "shard": shard.get(), "flash": part.file_name(), "path": path, "pages": pages,
            "unreadable": described.collect::<Vec<_>>(),
        }));
    }
    let name = device_name(shard, part);
    if told.unreadable.is_empty() {
        return write_line(&format!("shard {name}: all {pages} pages can be read"));
    }
    write_line(&format!(
        "shard {name}: {} of {pages} pages could not be read, in {}",
        told.unreadable.len(),
        path.display()
    ))?;
    for page in &told.unreadable {
        let (block, index) = place(*page);
        write_line(&format!("  block {block} page {index}: {}", end(page)))?;
    }
    Ok(())
}

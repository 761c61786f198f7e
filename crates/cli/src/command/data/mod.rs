//! `timestone data`: a data directory without a server. `inspect` says what lies in it and changes
//! nothing; `convert` ([`convert`]) gives a keyspace another index; `unreadable` ([`unreadable`])
//! names the pages that the disk does not read, and lets go of them.
//!
//! ```text
//!   DIR ─► DirectoryView (small files, lock) ─► FileImage of each shard ─► blocks, one by one
//!                                                  summary ◄── sums of all ──┤
//!                                                  blocks  ◄── a row each ───┤
//!                                                  block   ◄── one, whole ───┤
//!                                                  key     ◄── its records ──┘
//! ```
//! The crates that own the formats read them (`timestone::server::inspect`); this prints. Keys are
//! printed as other commands print them.

mod block;
mod blocks;
mod convert;
mod key;
pub(super) mod missing;
mod summary;
mod unreadable;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use timestone::server::inspect::{
    self, BlockId, BlockView, DirectoryView, FileImage, FlashPart, MissingFile, PageView,
    RecordContents, RecordView,
};
use timestone_types::{HashSeed, KeyspaceId, ShardId};

use crate::failure::Failure;
use crate::moment;
use crate::output::Format;

/// Flags of `timestone data`.
#[derive(Args, Debug)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// Walk a data directory that no server uses, and say what is in it. Changes nothing.
    Inspect(InspectArgs),
    /// Give a keyspace of a data directory that no server uses another index: full or frugal.
    Convert(convert::ConvertArgs),
    /// Name the pages of a data directory that no server uses that its disk does not read; with
    /// --accept-loss, give them up.
    Unreadable(unreadable::UnreadableArgs),
}

/// Flags of `timestone data inspect`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a flag: a summary of each shard. What is live is what the blocks tell: the youngest version of each key that is no
deletion. The index, the watermark and what the log alone holds are not looked at.

Exit codes:
  0  nothing is damaged
  1  something is damaged or missing, a server uses the directory, or it cannot be read
  2  wrong usage
  3  with --key: no block has a version of it")]
struct InspectArgs {
    /// The data directory.
    directory: PathBuf,
    /// A row for each block: state, generation, sequence, records, bytes.
    #[arg(long, conflicts_with_all = ["block", "key"])]
    blocks: bool,
    /// The pages and records of this block.
    #[arg(long, value_name = "N", conflicts_with = "key")]
    block: Option<u32>,
    /// Only this shard; with --block it is needed where there are several.
    #[arg(long, value_name = "S")]
    shard: Option<u16>,
    /// Only the devices of keyspaces with index frugal; with --block they are meant by this flag alone.
    #[arg(long)]
    frugal: bool,
    /// All versions of this key that blocks hold, newest first, and where.
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,
    /// The key's keyspace: its name, where the directory has an embedded master, or its number.
    #[arg(long, value_name = "K", default_value = "default", requires = "key")]
    keyspace: String,
}

/// Runs one of them.
pub(crate) fn run(args: &DataArgs, format: Format) -> Result<(), Failure> {
    match &args.command {
        DataCommand::Inspect(args) => inspect(args, format),
        DataCommand::Convert(args) => convert::run(args, format),
        DataCommand::Unreadable(args) => unreadable::run(args, format),
    }
}

/// Walks the directory and prints what was asked for.
fn inspect(args: &InspectArgs, format: Format) -> Result<(), Failure> {
    let parts = match (args.frugal, args.block) {
        (true, _) => &FlashPart::ALL[1..],
        (false, Some(_)) => &FlashPart::ALL[..1],
        (false, None) => &FlashPart::ALL,
    };
    let directory = Directory::open(&args.directory, args.shard, parts)?;
    match (&args.key, args.block) {
        (Some(key), _) => {
            let told = key::print(&directory, key, &args.keyspace, format);
            missing::unless_missing(&directory.missing_flash(args.shard, parts), told)
        }
        (None, Some(number)) => block::print(&directory, number, format),
        (None, None) if args.blocks => {
            let told = blocks::print(&directory, format);
            missing::unless_missing(&directory.missing_flash(args.shard, parts), told)
        }
        (None, None) => summary::print(&directory, format),
    }
}

/// A data directory, and what can be seen of the shards that were asked for.
struct Directory {
    path: PathBuf,
    view: DirectoryView,
    shards: Vec<Shard>,
}

/// One of a shard's devices.
struct Shard {
    id: ShardId,
    part: FlashPart,
    path: PathBuf,
    /// What is wrong with the file, if nothing can be seen of it.
    image: Result<FileImage, String>,
}

impl Shard {
    /// What it is called, with the device where it is not the usual one.
    fn name(&self) -> String {
        device_name(self.id, self.part)
    }
}

fn device_name(shard: ShardId, part: FlashPart) -> String {
    match part {
        FlashPart::Full => shard.to_string(),
        FlashPart::Frugal => format!("{shard} frugal"),
    }
}

impl Directory {
    fn open(path: &Path, only: Option<u16>, parts: &[FlashPart]) -> Result<Self, Failure> {
        let view = DirectoryView::of(path).map_err(|error| Failure::failed(error.to_string()))?;
        let chosen = |shard: &ShardId| only.is_none_or(|only| shard.get() == only);
        let shards: Vec<Shard> = view
            .flash
            .iter()
            .filter(|((id, part), _)| chosen(id) && parts.contains(part))
            .map(|(&(id, part), file)| {
                let image = FileImage::open(file).map_err(|error| error.to_string());
                Shard { id, part, path: file.clone(), image }
            })
            .collect();
        if let (Some(only), true) = (only, shards.is_empty()) {
            return Err(Failure::failed(format!(
                "there is no such flash file of shard {only} in {}",
                path.display()
            )));
        }
        Ok(Self { path: path.to_owned(), view, shards })
    }

    /// The flash files that are missing among those that were asked for.
    fn missing_flash(&self, only: Option<u16>, parts: &[FlashPart]) -> Vec<MissingFile> {
        let chosen = |file: &&MissingFile| match file {
            MissingFile::Flash(shard, part) => {
                only.is_none_or(|only| shard.get() == only) && parts.contains(part)
            }
            MissingFile::Log { .. } => false,
        };
        self.view.missing.iter().filter(chosen).cloned().collect()
    }

    /// The number of a keyspace that is told by its name or its number.
    fn keyspace(&self, told: &str) -> Result<KeyspaceId, Failure> {
        let named = self.view.keyspaces.iter().find(|(_, name)| *name == told);
        let number = || match told {
            "default" => Some(KeyspaceId::DEFAULT),
            number => number.parse().ok().map(KeyspaceId::new),
        };
        named.map(|(&id, _)| id).or_else(number).ok_or_else(|| {
            Failure::usage(format!(
                "this directory names no keyspace '{told}'; give its number, as the summary shows it"
            ))
        })
    }

    /// The name of a keyspace, or its number where none is known.
    fn keyspace_name(&self, id: KeyspaceId) -> String {
        match self.view.keyspaces.get(&id) {
            Some(name) => name.clone(),
            None if id == KeyspaceId::DEFAULT => "default".to_owned(),
            None => id.to_string(),
        }
    }
}

/// A block, and whose its pages are.
struct Looked {
    view: BlockView,
    identity: Option<(u64, HashSeed)>,
    /// What the system said to a read of it.
    unreadable: Option<String>,
}

/// Reads one block.
fn look(image: &FileImage, block: BlockId, bytes: &mut Vec<u8>) -> Looked {
    let unreadable = image.read_block(block, bytes).err().map(|error| error.to_string());
    Looked {
        view: inspect::block(image.geometry(), block, image.generation(block), bytes),
        identity: inspect::identity(bytes),
        unreadable,
    }
}

/// Reads one block after the other.
fn walk(image: &FileImage) -> impl Iterator<Item = Looked> + '_ {
    let mut bytes = Vec::new();
    (0..image.geometry().blocks).map(move |block| look(image, BlockId(block), &mut bytes))
}

/// When a record stops being visible.
fn expiry(contents: &RecordContents) -> String {
    match contents.expires_at.is_never() {
        true => "never".to_owned(),
        false => moment::shown(contents.expires_at.timestamp()),
    }
}

/// The records of a page with what they say, as far as they say anything.
fn told(page: &PageView) -> impl Iterator<Item = (&RecordView, &RecordContents)> {
    page.records.iter().filter_map(|record| Some((record, record.contents.as_ref()?)))
}

//! Creating and opening the file of a device. Blocks; runs before the data path does.
//!
//! A device is built under the name `<path>.creating` and renamed when it is whole and durable, so
//! a crash leaves either no device or a complete one. Opening checks version, shape and id, repairs
//! damaged or lagging copies, and takes a lock that ends with the process.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use timestone_io::{
    Access, AlignedBuffer, EngineChoice, IoError, IoFile, WakeSignal, open_direct,
    preallocate_zeroed, sync_parent,
};

use crate::device::{Generation, PAGE_BYTES};
use crate::error::FlashError;
use crate::file::layout::{
    BadSuperblock, COPIES, DeviceId, ENTRIES_PER_TABLE_PAGE, FORMAT_VERSION, Layout,
};
use crate::file::table::BlockTable;
use crate::limits::{
    DEFAULT_PAGES_PER_BLOCK, DEFAULT_QUEUE_DEPTH, MAX_PAGES_PER_BLOCK, MAX_QUEUE_DEPTH,
    MIN_PAGES_PER_BLOCK, TABLE_READ_PAGES, TABLE_ROOM_FACTOR,
};

/// Where a file device is and what it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileConfig {
    /// The file.
    pub path: PathBuf,
    /// Pages of every block, 2 to 4096; fixed at creation.
    pub pages_per_block: u32,
    /// Blocks that are preallocated and written at creation.
    pub initial_blocks: u32,
    /// Blocks that it may grow to: the capacity. May be changed between openings, up to eight times
    /// that at creation, or up to `table_blocks` at creation, whichever is more.
    pub max_blocks: u32,
    /// At creation: blocks that the block table has room for at least, at 8 bytes each.
    pub table_blocks: u32,
    /// At creation: its id, `None` to draw one. At opening: the id that it must have, `None` for
    /// any.
    pub device_id: Option<DeviceId>,
    /// Bytes that growing leaves free on the file system, for others who must not run out of room.
    pub keep_free_bytes: u64,
    /// Most operations in flight, 1 to 2048.
    pub queue_depth: u32,
    /// Which I/O engine to use.
    pub engine: EngineChoice,
    /// The descriptor that completions signal, which other devices of the thread may signal as well;
    /// `None` for one of its own.
    pub wake: Option<WakeSignal>,
}

impl FileConfig {
    /// The default shape at `path`: 1 MiB blocks, 64 of them at first, growing to `max_blocks`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, max_blocks: u32) -> Self {
        Self {
            path: path.into(),
            pages_per_block: DEFAULT_PAGES_PER_BLOCK,
            initial_blocks: max_blocks.min(64),
            max_blocks,
            table_blocks: 0,
            device_id: None,
            keep_free_bytes: 0,
            queue_depth: DEFAULT_QUEUE_DEPTH,
            engine: EngineChoice::Auto,
            wake: None,
        }
    }

    fn check(&self) -> Result<(), FlashError> {
        let pages = u64::from(self.pages_per_block);
        in_bounds(
            "the flash device's pages per block",
            pages,
            MIN_PAGES_PER_BLOCK.into(),
            MAX_PAGES_PER_BLOCK.into(),
        )?;
        let most_blocks = u64::from(u32::MAX) / pages;
        in_bounds("the flash device's capacity in blocks", self.max_blocks.into(), 1, most_blocks)?;
        in_bounds(
            "the flash device's block table in blocks",
            self.table_blocks.into(),
            0,
            most_blocks,
        )?;
        in_bounds(
            "the flash device's initial blocks",
            self.initial_blocks.into(),
            0,
            self.max_blocks.into(),
        )?;
        in_bounds(
            "the flash device's queue depth",
            self.queue_depth.into(),
            1,
            MAX_QUEUE_DEPTH.into(),
        )
    }
}

fn in_bounds(what: &'static str, value: u64, low: u64, high: u64) -> Result<(), FlashError> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(IoError::OutOfBounds { what, value, low, high }.into()),
    }
}

/// A file that was found in order.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: IoFile,
    pub(crate) layout: Layout,
    pub(crate) table: BlockTable,
    pub(crate) generations: Vec<Generation>,
    pub(crate) max_blocks: u32,
    pub(crate) repairs: u64,
}

/// Builds the file of a new device.
pub(crate) fn create(config: &FileConfig) -> Result<(), FlashError> {
    config.check()?;
    let path = &config.path;
    if path.exists() {
        return Err(unusable(
            path,
            "it exists already; open it, or remove it to create a new device",
        ));
    }
    let building = building_path(path);
    remove_leftover(&building)?;
    let file = open_direct(&building, Access::CreateNew)?;
    lock(&file)?;
    let layout = Layout {
        pages_per_block: config.pages_per_block,
        table_room: table_room(config),
        device_id: config.device_id.unwrap_or_else(draw_id),
    };
    preallocate_zeroed(&file, 0, layout.block_offset(config.initial_blocks))?;
    let generations = vec![Generation::FIRST; config.initial_blocks as usize];
    let table = BlockTable::new(layout, generations, vec![1; layout.table_pages() as usize]);
    let mut page = AlignedBuffer::zeroed(PAGE_BYTES);
    for copy in 0..COPIES {
        for index in 0..layout.table_pages() {
            table.encode(index, &mut page);
            file.write_blocking(layout.table_offset(copy, index), &page)?;
        }
        layout.encode(&mut page);
        file.write_blocking(u64::from(copy) * PAGE_BYTES as u64, &page)?;
    }
    file.sync()?;
    std::fs::rename(&building, path).map_err(|source| IoError::File {
        action: "rename the new device to",
        path: path.clone(),
        source,
    })?;
    sync_parent(path)?;
    tracing::debug!(path = %path.display(), id = %layout.device_id, blocks = config.initial_blocks, "flash device created");
    Ok(())
}

/// Opens the file of a device and sets right what a crash or rot has left.
pub(crate) fn open(config: &FileConfig) -> Result<Opened, FlashError> {
    config.check()?;
    let path = &config.path;
    let file = open_direct(path, Access::ReadWrite)?;
    lock(&file)?;
    let mut repairs = 0;
    let layout = read_superblocks(&file, path, &mut repairs)?;
    check_shape(config, layout)?;
    let (generations, sequences) = read_table(&file, path, layout, &mut repairs)?;
    let blocks = generations.len() as u32;
    let needed = layout.block_offset(blocks);
    let length = file.length_bytes()?;
    if length < needed {
        let reason = format!(
            "it is {length} bytes long, but its {blocks} blocks need {needed}: it was cut short; \
             restore it from a replica or backup"
        );
        return Err(unusable(path, reason));
    }
    let max_blocks = config.max_blocks.max(blocks).min(layout.table_room);
    if max_blocks < config.max_blocks {
        tracing::warn!(
            path = %path.display(), wanted_blocks = config.max_blocks, possible_blocks = max_blocks,
            "the block table, whose size was fixed when the file was created, has no room for the \
             whole capacity; what fits is used"
        );
    }
    let table = BlockTable::new(layout, generations.clone(), sequences);
    Ok(Opened { file, layout, table, generations, max_blocks, repairs })
}

/// One process and one device at a time.
pub(super) fn lock(file: &IoFile) -> Result<(), FlashError> {
    match file.lock()? {
        true => Ok(()),
        false => Err(unusable(
            file.path(),
            "another process is using it; stop that one, or choose another folder",
        )),
    }
}

fn building_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".creating");
    PathBuf::from(name)
}

/// Removes what a creation that crashed has left, unless it is still going on.
fn remove_leftover(building: &Path) -> Result<(), FlashError> {
    if !building.exists() {
        return Ok(());
    }
    lock(&open_direct(building, Access::ReadWrite)?)?;
    std::fs::remove_file(building).map_err(|source| {
        IoError::File { action: "remove the unfinished device", path: building.to_owned(), source }
            .into()
    })
}

/// Room for growth beyond the capacity of today, filling whole table pages, as far as pages can be
/// numbered.
fn table_room(config: &FileConfig) -> u32 {
    let most = u32::MAX / config.pages_per_block;
    let roomy =
        config.max_blocks.saturating_mul(TABLE_ROOM_FACTOR).max(config.table_blocks).min(most);
    roomy.checked_next_multiple_of(ENTRIES_PER_TABLE_PAGE).unwrap_or(most).min(most)
}

/// An id that no other device has, from the hasher's process-wide entropy.
fn draw_id() -> DeviceId {
    DeviceId(RandomState::new().hash_one(std::process::id()))
}

fn read_superblocks(file: &IoFile, path: &Path, repairs: &mut u64) -> Result<Layout, FlashError> {
    let mut page = AlignedBuffer::zeroed(PAGE_BYTES);
    let mut found = [Err(BadSuperblock::NotADevice); COPIES as usize];
    for (copy, found) in found.iter_mut().enumerate() {
        file.read_blocking((copy * PAGE_BYTES) as u64, &mut page)?;
        *found = Layout::decode(&page);
    }
    let layout = match found {
        [Ok(first), Ok(second)] if first != second => {
            return Err(unusable(
                path,
                "its two superblocks contradict each other; restore it from a replica or backup",
            ));
        }
        [Ok(layout), _] | [_, Ok(layout)] => layout,
        [Err(first), Err(second)] => return Err(unusable(path, explain(first, second))),
    };
    for (copy, found) in found.iter().enumerate() {
        if let Err(damage) = found {
            tracing::warn!(path = %path.display(), copy, ?damage, "repairing a damaged superblock \
                from its twin");
            layout.encode(&mut page);
            file.write_blocking((copy * PAGE_BYTES) as u64, &page)?;
            file.sync()?;
            *repairs += 1;
        }
    }
    Ok(layout)
}

/// Why neither superblock will do: the copies agree unless one is also damaged, so the more telling
/// answer counts.
pub(super) fn explain(first: BadSuperblock, second: BadSuperblock) -> String {
    let telling = |bad: &BadSuperblock| match bad {
        BadSuperblock::Version(_) => 0,
        BadSuperblock::PageBytes(_) => 1,
        BadSuperblock::Damaged => 2,
        BadSuperblock::NotADevice => 3,
    };
    match if telling(&second) < telling(&first) { second } else { first } {
        BadSuperblock::Version(found) => format!(
            "its format has version {found}, this program reads and writes version \
             {FORMAT_VERSION}; use a matching program"
        ),
        BadSuperblock::PageBytes(found) => {
            format!(
                "its pages have {found} bytes, this program's have {PAGE_BYTES}; use a matching \
                 program"
            )
        }
        BadSuperblock::Damaged => {
            "both copies of its superblock are damaged; restore it from a replica or backup"
                .to_owned()
        }
        BadSuperblock::NotADevice => "it is not a flash device; choose another file".to_owned(),
    }
}

fn check_shape(config: &FileConfig, layout: Layout) -> Result<(), FlashError> {
    if layout.pages_per_block != config.pages_per_block {
        let reason = format!(
            "it was created with {} pages per block, the configuration says {}; set it back, or \
             use another file",
            layout.pages_per_block, config.pages_per_block
        );
        return Err(unusable(&config.path, reason));
    }
    match config.device_id {
        Some(expected) if expected != layout.device_id => {
            let reason = format!(
                "it is device {}, but {expected} belongs here; was a file swapped or copied?",
                layout.device_id
            );
            Err(unusable(&config.path, reason))
        }
        _ => Ok(()),
    }
}

/// The generations of the usable blocks, and the sequence of each table page.
fn read_table(
    file: &IoFile,
    path: &Path,
    layout: Layout,
    repairs: &mut u64,
) -> Result<(Vec<Generation>, Vec<u64>), FlashError> {
    let mut copies = [AlignedBuffer::zeroed(PAGE_BYTES), AlignedBuffer::zeroed(PAGE_BYTES)];
    let mut run = AlignedBuffer::zeroed(0);
    let mut ahead = [Vec::new(), Vec::new()];
    let mut generations = Vec::new();
    let mut sequences = Vec::with_capacity(layout.table_pages() as usize);
    for index in 0..layout.table_pages() {
        let place = (index % TABLE_READ_PAGES) as usize * PAGE_BYTES;
        if place == 0 {
            let pages = TABLE_READ_PAGES.min(layout.table_pages() - index) as usize;
            if run.len() != pages * PAGE_BYTES {
                run = AlignedBuffer::zeroed(pages * PAGE_BYTES);
            }
            for (copy, ahead) in (0..COPIES).zip(&mut ahead) {
                file.read_blocking(layout.table_offset(copy, index), &mut run)?;
                ahead.clear();
                ahead.extend_from_slice(&run);
            }
        }
        for (page, ahead) in copies.iter_mut().zip(&ahead) {
            page.copy_from_slice(&ahead[place..place + PAGE_BYTES]);
        }
        let found = [layout.check_table(&copies[0], index), layout.check_table(&copies[1], index)];
        let newer = match found {
            [None, None] => {
                let reason = format!(
                    "both copies of page {index} of its block table are damaged; restore it from a \
                     replica or backup"
                );
                return Err(unusable(path, reason));
            }
            [first, second] => usize::from(second > first),
        };
        if *copies[0] != *copies[1] {
            let lagging = 1 - newer;
            if found[lagging].is_none() {
                tracing::warn!(path = %path.display(), copy = lagging, page = index, "repairing a damaged page of the block table");
                *repairs += 1;
            }
            // The newer copy may sit in a cache still: it must be durable before the other is
            // touched.
            file.sync()?;
            file.write_blocking(layout.table_offset(lagging as u32, index), &copies[newer])?;
            file.sync()?;
        }
        sequences.extend(found[newer]);
        generations.extend(Layout::table_entries(&copies[newer]));
    }
    let usable =
        generations.iter().position(|generation| generation.0 == 0).unwrap_or(generations.len());
    // A growth over several table pages that a crash cut short may have reached a later page only:
    // those blocks hold nothing.
    let unfinished =
        |generation: &Generation| generation.0 == 0 || *generation == Generation::FIRST;
    if !generations[usable..].iter().all(unfinished) || usable > layout.table_room as usize {
        return Err(unusable(
            path,
            "its block table has a gap; restore it from a replica or backup",
        ));
    }
    generations.truncate(usable);
    Ok((generations, sequences))
}

fn unusable(path: &Path, reason: impl Into<String>) -> FlashError {
    FlashError::Unusable { path: path.to_owned(), reason: reason.into() }
}

//! The file of a device, looked at without opening it as one: read-only, without a lock, and as far
//! as its bytes go.
//!
//! Where [opening](super::open) refuses a damaged device, and repairs one that is damaged in one
//! copy, this says what is wrong and goes on. It changes nothing. Whoever uses it sees to it that no
//! device is at work on the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::layout::{COPIES, ENTRIES_PER_TABLE_PAGE, Layout};
use super::open::explain;
use crate::device::{BlockId, Generation, Geometry, PAGE_BYTES};
use crate::error::FlashError;

/// Damaged pages of the table that are named, at most; the others are counted.
const MAX_NAMED: usize = 16;

/// A device's file as it lies there.
#[derive(Debug)]
pub struct FileImage {
    file: File,
    path: PathBuf,
    layout: Layout,
    bytes: u64,
    /// Of every block that exists; `None` where both copies of the table are damaged.
    generations: Vec<Option<Generation>>,
    damage: Vec<String>,
}

impl FileImage {
    /// Looks at a file.
    ///
    /// # Errors
    /// It cannot be read, or neither copy of its superblock can be made sense of.
    pub fn open(path: &Path) -> Result<Self, FlashError> {
        let unreadable = |error: io::Error| unusable(path, format!("it cannot be read: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let mut damage = Vec::new();
        let layout = superblock(&file, path, &mut damage)?;
        let mut image =
            Self { file, path: path.to_owned(), layout, bytes, generations: Vec::new(), damage };
        image.read_table();
        Ok(image)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its superblock says.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The shape of the device: its blocks are those that the table names.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry {
            pages_per_block: self.layout.pages_per_block,
            blocks: self.generations.len() as u32,
            max_blocks: self.layout.table_room,
        }
    }

    /// The generation of a block; `None` when it does not exist, or nobody knows.
    #[must_use]
    pub fn generation(&self, block: BlockId) -> Option<Generation> {
        self.generations.get(block.0 as usize).copied().flatten()
    }

    /// What is wrong with superblocks, table and length, in sentences.
    #[must_use]
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// The bytes of a block into `bytes`, as many as the file has of it, and as can be read.
    ///
    /// # Errors
    /// What the system says to a read of the block; `bytes` holds what came before.
    pub fn read_block(&self, block: BlockId, bytes: &mut Vec<u8>) -> io::Result<()> {
        let wanted = self.layout.block_bytes() as usize;
        read_up_to(&self.file, self.layout.block_offset(block.0), wanted, bytes)
    }

    fn read_table(&mut self) {
        let (layout, mut copies) = (self.layout, [Vec::new(), Vec::new()]);
        let (room, mut damaged) = (layout.table_room, Vec::new());
        let mut entries: Vec<Option<Generation>> = Vec::new();
        for index in 0..layout.table_pages() {
            let mut found = [None; COPIES as usize];
            for (copy, page) in copies.iter_mut().enumerate() {
                let offset = layout.table_offset(copy as u32, index);
                let read = read_up_to(&self.file, offset, PAGE_BYTES, page);
                if read.is_ok() && page.len() == PAGE_BYTES {
                    found[copy] = layout.check_table(page, index);
                }
                if found[copy].is_none() {
                    damaged
                        .push(format!("page {index} of copy {copy} of the block table is damaged"));
                }
            }
            let covered =
                ENTRIES_PER_TABLE_PAGE.min(room - index * ENTRIES_PER_TABLE_PAGE) as usize;
            match found {
                [None, None] => entries.resize(entries.len() + covered, None),
                [first, second] => {
                    let page = &copies[usize::from(second > first)];
                    entries.extend(Layout::table_entries(page).take(covered).map(Some));
                }
            }
        }
        let more = damaged.len().saturating_sub(MAX_NAMED);
        self.damage.extend(damaged.into_iter().take(MAX_NAMED));
        if more > 0 {
            self.damage.push(format!("so are {more} more pages of the block table"));
        }
        // Those behind the last one that exists do not. Where nobody knows, the length decides.
        let held = self.bytes.saturating_sub(layout.data_start()) / layout.block_bytes();
        let exists = |(number, entry): (usize, &Option<Generation>)| match entry {
            Some(generation) => generation.0 > 0,
            None => (number as u64) < held,
        };
        let blocks =
            entries.iter().enumerate().filter(|&entry| exists(entry)).map(|(at, _)| at + 1);
        entries.truncate(blocks.last().unwrap_or(0));
        self.generations =
            entries.into_iter().map(|entry| entry.filter(|generation| generation.0 > 0)).collect();
        let needed = layout.block_offset(self.generations.len() as u32);
        if self.bytes < needed {
            self.damage.push(format!(
                "the file is {} bytes long, but its {} blocks need {needed}: it was cut short",
                self.bytes,
                self.generations.len()
            ));
        }
    }
}

fn superblock(file: &File, path: &Path, damage: &mut Vec<String>) -> Result<Layout, FlashError> {
    let mut page = Vec::new();
    let mut decoded = [0, 1].map(|copy: u64| {
        let read = read_up_to(file, copy * PAGE_BYTES as u64, PAGE_BYTES, &mut page);
        read.map(|()| Layout::decode(&page))
    });
    for (copy, found) in decoded.iter().enumerate() {
        match found {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => damage.push(format!("copy {copy} of the superblock is damaged")),
            Err(error) => damage.push(format!("copy {copy} of the superblock: {error}")),
        }
    }
    if let [Ok(Ok(first)), Ok(Ok(second))] = &decoded
        && first != second
    {
        damage.push("its two superblocks contradict each other; the first is believed".to_owned());
    }
    if let Some(layout) = decoded.iter().find_map(|found| found.as_ref().ok()?.ok()) {
        return Ok(layout);
    }
    let [first, second] = &mut decoded;
    match (first, second) {
        (Ok(Err(first)), Ok(Err(second))) => Err(unusable(path, explain(*first, *second))),
        (Err(error), _) | (_, Err(error)) => {
            Err(unusable(path, format!("it cannot be read: {error}")))
        }
        _ => unreachable!("a superblock that decodes was returned"),
    }
}

/// Reads `wanted` bytes from `offset` on, or up to the end of the file.
fn read_up_to(file: &File, offset: u64, wanted: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    bytes.resize(wanted, 0);
    let mut filled = 0;
    let outcome = loop {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break Ok(()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    bytes.truncate(filled);
    outcome
}

fn unusable(path: &Path, reason: String) -> FlashError {
    FlashError::Unusable { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::file::layout::superblock as at;
    use crate::{FileConfig, FileDevice};

    const BLOCKS: u32 = 5;

    fn device(folder: &Path) -> PathBuf {
        let path = folder.join("flash");
        let config = FileConfig { initial_blocks: BLOCKS, ..FileConfig::new(&path, 9) };
        drop(FileDevice::create(&config).unwrap());
        path
    }

    #[test]
    fn a_whole_device_has_no_damage_and_blank_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let image = FileImage::open(&device(folder.path())).unwrap();
        assert_eq!((image.geometry().blocks, image.damage()), (BLOCKS, [].as_slice()));
        assert_eq!(image.generation(BlockId(BLOCKS - 1)), Some(Generation::FIRST));
        assert_eq!(image.generation(BlockId(BLOCKS)), None);
        let mut bytes = Vec::new();
        image.read_block(BlockId(BLOCKS - 1), &mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, image.layout().block_bytes());
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_device_is_seen_by_whichever_copy_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = device(folder.path());
        let mut bytes = fs::read(&path).unwrap();
        let layout = Layout::decode(&bytes[..PAGE_BYTES]).unwrap();
        let table = layout.table_offset(1, 0) as usize;
        bytes[at::DEVICE_ID] ^= 1;
        bytes[table + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let image = FileImage::open(&path).unwrap();
        assert_eq!(image.damage().len(), 2, "{:?}", image.damage());
        assert_eq!(image.geometry().blocks, BLOCKS);
        bytes[layout.table_offset(0, 0) as usize + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let image = FileImage::open(&path).unwrap();
        assert_eq!(image.geometry().blocks, BLOCKS, "the length tells");
        assert_eq!(image.generation(BlockId(0)), None);
        bytes[PAGE_BYTES + at::DEVICE_ID] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = FileImage::open(&path).unwrap_err().to_string();
        assert!(error.contains("both copies of its superblock"), "{error}");
    }

    #[test]
    fn a_file_that_was_cut_short_is_read_as_far_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = device(folder.path());
        let whole = fs::read(&path).unwrap();
        let layout = Layout::decode(&whole[..PAGE_BYTES]).unwrap();
        let cut = layout.block_offset(2) as usize + 5000;
        for length in [0, 1, PAGE_BYTES, 3 * PAGE_BYTES, layout.data_start() as usize, cut] {
            fs::write(&path, &whole[..length]).unwrap();
            let Ok(image) = FileImage::open(&path) else {
                assert!(length < PAGE_BYTES, "a superblock is there");
                continue;
            };
            assert!(!image.damage().is_empty());
            let mut bytes = Vec::new();
            image.read_block(BlockId(2), &mut bytes).unwrap();
            assert_eq!(bytes.len(), if length == cut { 5000 } else { 0 });
        }
    }
}

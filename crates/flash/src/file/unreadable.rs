//! Pages of a device's file that cannot be read, for whoever is to say that they are lost.
//!
//! ```text
//!   open ─► lock, shape ─► find: block by block, and page by page where that fails ─► pages
//!                          give_up: the page once more ─┬─ it was read: left as it is
//!                                                       └─ the superblock is read, the page is not ─► other bytes, sync, read again
//! ```
//!
//! The device itself never does this: a page that is not read now may be read at the next start, and
//! only a person knows that the disk will not come back. What is written in its place is the owner's
//! affair; here it is bytes.
//!
//! Invariant: nothing is written over a page that can be read.

use std::path::Path;

use timestone_io::{Access, AlignedBuffer, IoError, IoFile, open_direct};

use super::image::FileImage;
use super::layout::Layout;
use super::open::lock;
use crate::device::{BlockId, Geometry, PAGE_BYTES, PageId};
use crate::error::FlashError;

/// So often a page is read that cannot be read.
const READ_TRIES: u32 = 4;

/// The bytes of the file: a disk, or what a test has for one.
trait PageFile: std::fmt::Debug {
    fn read(&mut self, offset: u64, buffer: &mut AlignedBuffer) -> Result<(), IoError>;
    /// Durable when it returns.
    fn write(&mut self, offset: u64, buffer: &AlignedBuffer) -> Result<(), IoError>;
}

impl PageFile for IoFile {
    fn read(&mut self, offset: u64, buffer: &mut AlignedBuffer) -> Result<(), IoError> {
        self.read_blocking(offset, buffer)
    }

    fn write(&mut self, offset: u64, buffer: &AlignedBuffer) -> Result<(), IoError> {
        self.write_blocking(offset, buffer)?;
        self.sync()
    }
}

/// What became of a page that was to be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// It can be read after all, and was left as it is.
    Readable,
    /// Its place has other bytes now, and can be read.
    Replaced,
}

/// The file of a device that nobody uses, and which of its pages cannot be read.
#[derive(Debug)]
pub struct UnreadablePages {
    medium: Box<dyn PageFile>,
    layout: Layout,
    geometry: Geometry,
}

impl UnreadablePages {
    /// Takes the file for itself alone.
    ///
    /// # Errors
    /// Another process uses it, or it is not the file of a device that a server would open.
    pub fn open(path: &Path) -> Result<Self, FlashError> {
        let image = FileImage::open(path)?;
        let (layout, geometry) = (image.layout(), image.geometry());
        let needed = layout.block_offset(geometry.blocks);
        if image.bytes() < needed {
            let reason = format!("it is {} bytes long, and needs {needed}", image.bytes());
            return Err(FlashError::Unusable { path: path.to_owned(), reason });
        }
        let file = open_direct(path, Access::ReadWrite)?;
        lock(&file)?;
        Ok(Self { medium: Box::new(file), layout, geometry })
    }

    /// Its blocks.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The pages of a block that cannot be read, each tried by itself several times.
    pub fn find(&mut self, block: BlockId) -> Vec<PageId> {
        let mut whole = AlignedBuffer::zeroed(self.layout.block_bytes() as usize);
        if self.medium.read(self.layout.block_offset(block.0), &mut whole).is_ok() {
            return Vec::new();
        }
        let geometry = self.geometry;
        let pages = (0..geometry.pages_per_block).map(|index| geometry.page(block, index));
        pages.filter(|&page| self.try_page(page).is_err()).collect()
    }

    /// Writes `bytes` where a page is, if it still cannot be read.
    ///
    /// # Errors
    /// The file as a whole cannot be read, which says nothing of this page; or its place takes no
    /// other bytes. It is as it was then, or cannot be read.
    ///
    /// # Panics
    /// When `bytes` are no page.
    pub fn give_up(&mut self, page: PageId, bytes: &[u8]) -> Result<GivenUp, FlashError> {
        assert_eq!(bytes.len(), PAGE_BYTES, "a page in its place");
        if self.try_page(page).is_ok() {
            return Ok(GivenUp::Readable);
        }
        // A disk that is away at the moment reads nothing: that is no reason to give anything up.
        let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES);
        self.medium.read(0, &mut buffer)?;
        if self.try_page(page).is_ok() {
            return Ok(GivenUp::Readable);
        }
        buffer.copy_from_slice(bytes);
        let offset = self.offset(page);
        self.medium.write(offset, &buffer)?;
        buffer.fill(0);
        self.medium.read(offset, &mut buffer)?;
        if *buffer != *bytes {
            return Err(FlashError::Medium {
                operation: "program",
                source: std::io::Error::other("what was written reads as something else"),
            });
        }
        Ok(GivenUp::Replaced)
    }

    fn try_page(&mut self, page: PageId) -> Result<(), IoError> {
        let (offset, mut buffer) = (self.offset(page), AlignedBuffer::zeroed(PAGE_BYTES));
        let mut outcome = Ok(());
        for _ in 0..READ_TRIES {
            outcome = self.medium.read(offset, &mut buffer);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn offset(&self, page: PageId) -> u64 {
        let (block, index) = (self.geometry.block_of(page), self.geometry.index_of(page));
        assert!(block.0 < self.geometry.blocks, "a page of the device");
        self.layout.block_offset(block.0) + u64::from(index) * PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::*;
    use crate::{FileConfig, FileDevice};

    /// A disk some of whose places are not read, each so often.
    #[derive(Clone, Debug, Default)]
    struct BadDisk(Rc<RefCell<Places>>);

    #[derive(Debug, Default)]
    struct Places {
        unread: BTreeMap<u64, u32>,
        takes_nothing: bool,
        written: BTreeMap<u64, Vec<u8>>,
    }

    fn failed() -> IoError {
        let source = std::io::Error::other("an injected fault");
        IoError::File { action: "read", path: "disk".into(), source }
    }

    impl PageFile for BadDisk {
        fn read(&mut self, offset: u64, buffer: &mut AlignedBuffer) -> Result<(), IoError> {
            let mut places = self.0.borrow_mut();
            let range = offset..offset + buffer.len() as u64;
            if let Some((_, times)) = places.unread.range_mut(range).find(|(_, times)| **times > 0)
            {
                *times -= 1;
                return Err(failed());
            }
            buffer.fill(0);
            if let Some(bytes) = places.written.get(&offset) {
                buffer.copy_from_slice(bytes);
            }
            Ok(())
        }

        fn write(&mut self, offset: u64, buffer: &AlignedBuffer) -> Result<(), IoError> {
            let mut places = self.0.borrow_mut();
            if places.takes_nothing {
                return Err(failed());
            }
            places.unread.remove(&offset);
            places.written.insert(offset, buffer.to_vec());
            Ok(())
        }
    }

    fn pages_of(disk: &BadDisk) -> UnreadablePages {
        let layout = Layout { pages_per_block: 8, table_room: 10, device_id: Default::default() };
        let geometry = Geometry { pages_per_block: 8, blocks: 4, max_blocks: 10 };
        UnreadablePages { medium: Box::new(disk.clone()), layout, geometry }
    }

    #[test]
    fn only_pages_that_are_never_read_are_found_and_given_up() {
        let disk = BadDisk::default();
        let mut pages = pages_of(&disk);
        let place = |page: u32| pages_of(&disk).offset(PageId(page));
        // One is read in the end.
        disk.0.borrow_mut().unread = [(place(9), u32::MAX), (place(12), 3)].into();
        let found: Vec<PageId> = (0..4).flat_map(|block| pages.find(BlockId(block))).collect();
        assert_eq!(found, [PageId(9)]);
        let bytes = [7; PAGE_BYTES];
        assert_eq!(pages.give_up(PageId(10), &bytes).ok(), Some(GivenUp::Readable));
        disk.0.borrow_mut().unread.insert(place(12), 3);
        assert_eq!(pages.give_up(PageId(12), &bytes).ok(), Some(GivenUp::Readable));
        assert!(disk.0.borrow().written.is_empty(), "nothing is written over what can be read");
        assert_eq!(pages.give_up(PageId(9), &bytes).ok(), Some(GivenUp::Replaced));
        let written = disk.0.borrow().written.keys().copied().collect::<Vec<_>>();
        assert_eq!(written, [place(9)]);
        assert!((0..4).all(|block| pages.find(BlockId(block)).is_empty()));
    }

    #[test]
    fn nothing_is_given_up_of_a_disk_that_is_away_or_takes_nothing() {
        let disk = BadDisk::default();
        let mut pages = pages_of(&disk);
        let place = pages.offset(PageId(9));
        disk.0.borrow_mut().unread = [(0, 1), (place, u32::MAX)].into();
        assert!(pages.give_up(PageId(9), &[7; PAGE_BYTES]).is_err());
        disk.0.borrow_mut().takes_nothing = true;
        assert!(pages.give_up(PageId(9), &[7; PAGE_BYTES]).is_err());
        assert!(disk.0.borrow().written.is_empty());
        assert_eq!(pages.find(BlockId(1)), [PageId(9)]);
    }

    #[test]
    fn a_device_has_no_such_pages_and_is_nobody_elses_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let config = FileConfig { initial_blocks: 3, ..FileConfig::new(&path, 9) };
        let device = FileDevice::create(&config).unwrap();
        assert!(UnreadablePages::open(&path).is_err(), "a device is at work");
        drop(device);
        let mut pages = UnreadablePages::open(&path).unwrap();
        assert_eq!(pages.geometry().blocks, 3);
        assert!((0..3).all(|block| pages.find(BlockId(block)).is_empty()));
        assert_eq!(pages.give_up(PageId(1), &[7; PAGE_BYTES]).ok(), Some(GivenUp::Readable));
        drop(pages);
        let image = FileImage::open(&path).unwrap();
        let mut bytes = Vec::new();
        image.read_block(BlockId(0), &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}

//! Walks all blocks of a log in order, and decides where the log ends (docs/formats/wal.md, "Where
//! a log ends").
//!
//! Invariant: every block that was ever acknowledged is either handed out or reported as damage.
//! The only exception is one that nothing after it proves: the very last group of a log cannot be
//! told from one that a crash cut short.
//!
//! A sector that the disk does not read is no beginning of a block, and its bytes are zeros. Where the
//! log would end there, it does not: an acknowledged block may be what is not read (planted bug
//! `EndsAtUnread`).
//!
//! Deliberately absent: what is inside payloads.

use timestone_types::is_planted;

use crate::WalError;
use crate::block::{BlockHeader, BlockSequence, HEADER_BYTES, HeaderAt};
use crate::device::{FileInfo, FileName, LogDevice};
use crate::limits::{MAX_BLOCK_BYTES, SECTOR_BYTES};

/// Bytes read at once.
const WINDOW_BYTES: usize = 1024 * 1024;

const MAY_BE_THERE: &str = "a block may be there that was acknowledged";

/// A file on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkFile {
    pub(crate) info: FileInfo,
    /// The header of its first block, when that is there.
    pub(crate) first: Option<BlockHeader>,
    /// The disk does not read where that would be.
    unread: bool,
}

/// Where a block was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlace {
    /// Index of the file among [`Walker::files`].
    pub(crate) index: usize,
    pub(crate) file: FileName,
    pub(crate) offset: u64,
}

/// The part of a file that was read last.
#[derive(Debug, Default)]
struct Window {
    file: Option<FileName>,
    offset: u64,
    bytes: Vec<u8>,
    length: usize,
    /// Where sectors of it begin that the disk does not read.
    unread: Vec<u64>,
}

impl Window {
    fn is_unread(&self, offset: u64, bytes: usize) -> bool {
        let begin = offset.saturating_sub(SECTOR_BYTES as u64 - 1);
        self.unread.iter().any(|sector| (begin..offset + bytes as u64).contains(sector))
    }
}

/// Why no block was handed out.
struct NoBlock {
    detail: String,
    /// The disk does not read all of what is there.
    unread: bool,
}

impl NoBlock {
    fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), unread: false }
    }

    fn unread() -> Self {
        Self { detail: "the disk does not read what is there".to_owned(), unread: true }
    }
}

pub(crate) struct Walker {
    device: Box<dyn LogDevice>,
    files: Vec<WalkFile>,
    /// Files that are known to be gone.
    lost: Vec<FileName>,
    /// The block that was handed out last stands behind one of them.
    passed_lost_file: bool,
    index: usize,
    offset: u64,
    /// The sequence of the next block; unknown before the first.
    expected: Option<BlockSequence>,
    window: Window,
    /// Payload of the block that was handed out last.
    payload: Vec<u8>,
}

impl Walker {
    /// Looks at the start of every file. Where one of the `lost` files was, blocks may be missing.
    pub(crate) fn open(
        mut device: Box<dyn LogDevice>,
        lost: &[FileName],
    ) -> Result<Self, WalError> {
        let infos = device.list()?;
        let mut walker = Self {
            device,
            files: Vec::with_capacity(infos.len()),
            lost: lost.to_vec(),
            passed_lost_file: false,
            index: 0,
            offset: 0,
            expected: None,
            window: Window::default(),
            payload: Vec::new(),
        };
        for info in infos {
            let first = walker.header_at(info, 0)?;
            let unread = walker.window.is_unread(0, HEADER_BYTES);
            walker.files.push(WalkFile { info, first, unread });
        }
        Ok(walker)
    }

    pub(crate) fn files(&self) -> &[WalkFile] {
        &self.files
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The sequence after that of the last block; the first one of an empty log.
    pub(crate) fn next_sequence(&self) -> BlockSequence {
        self.expected.unwrap_or(BlockSequence::FIRST)
    }

    /// Whether blocks are missing before the one that was handed out last. Says so once.
    pub(crate) fn passed_lost_file(&mut self) -> bool {
        core::mem::take(&mut self.passed_lost_file)
    }

    pub(crate) fn into_device(self) -> Box<dyn LogDevice> {
        self.device
    }

    /// The next block; its payload is in [`Walker::payload`]. `None` at the end of the log.
    pub(crate) fn next_block(&mut self) -> Result<Option<(BlockPlace, BlockHeader)>, WalError> {
        loop {
            let Some(&WalkFile { info, .. }) = self.files.get(self.index) else { return Ok(None) };
            let place = BlockPlace { index: self.index, file: info.name, offset: self.offset };
            let header = self.header_at(info, self.offset)?;
            // A log begins with whatever block its oldest file begins with, also when its payload
            // is torn.
            self.expected = self.expected.or(header.map(|header| header.sequence));
            let why = match header {
                Some(header)
                    if self.expected.is_some_and(|expected| expected != header.sequence) =>
                {
                    NoBlock::new(format!(
                        "block {} stands where block {} is expected",
                        header.sequence.0,
                        self.next_sequence().0
                    ))
                }
                #[cfg(feature = "planted-bugs")]
                Some(header) if is_planted!(SkippedBlock) && self.is_last(info, header)? => {
                    self.expected = Some(header.sequence.plus(1));
                    self.index = self.files.len();
                    return Ok(None);
                }
                Some(header) => match self.load(info, header)? {
                    None => {
                        self.expected = Some(header.sequence.plus(1));
                        self.offset += header.padded_bytes() as u64;
                        return Ok(Some((place, header)));
                    }
                    Some(why) => why,
                },
                None if self.window.is_unread(self.offset, HEADER_BYTES) => NoBlock::unread(),
                None => NoBlock::new("no block begins here"),
            };
            if !self.continues_elsewhere(place, &why)? {
                self.index = self.files.len();
                return Ok(None);
            }
        }
    }

    /// Planted: whether nothing follows this block, neither here nor in a later file.
    #[cfg(feature = "planted-bugs")]
    fn is_last(&mut self, info: FileInfo, header: BlockHeader) -> Result<bool, WalError> {
        let next = header.sequence.plus(1);
        let here = self.header_at(info, self.offset + header.padded_bytes() as u64)?;
        let later = self.files.iter().skip(self.index + 1).filter_map(|file| file.first);
        Ok(!here.into_iter().chain(later).any(|header| header.sequence >= next))
    }

    /// After an error of `next_block`: goes to the next block that stands anywhere behind the
    /// damage. `None` when there is none.
    pub(crate) fn skip_damage(&mut self) -> Result<Option<BlockPlace>, WalError> {
        let mut from = self.offset + SECTOR_BYTES as u64;
        while let Some(&WalkFile { info, .. }) = self.files.get(self.index) {
            let found = self.find_header(info, from, |_, _| true)?;
            if let Some((offset, header)) = found {
                self.offset = offset;
                self.expected = Some(header.sequence);
                return Ok(Some(BlockPlace { index: self.index, file: info.name, offset }));
            }
            self.index += 1;
            self.offset = 0;
            from = 0;
        }
        Ok(None)
    }

    /// Reads and checks the payload of the block at the current offset; says what is wrong with it.
    fn load(&mut self, info: FileInfo, header: BlockHeader) -> Result<Option<NoBlock>, WalError> {
        let length = header.length as usize;
        if self.offset + header.padded_bytes() as u64 > info.bytes {
            return Ok(Some(NoBlock::new("the block reaches beyond the end of its file")));
        }
        let mut payload = core::mem::take(&mut self.payload);
        payload.clear();
        let view = self.view(info, self.offset, HEADER_BYTES + length)?;
        payload.extend_from_slice(view.get(HEADER_BYTES..).unwrap_or_default());
        self.payload = payload;
        if self.window.is_unread(self.offset, HEADER_BYTES + length) {
            return Ok(Some(NoBlock::unread()));
        }
        if self.payload.len() != length {
            return Ok(Some(NoBlock::new("the file ends inside the block")));
        }
        let right = crc32c::crc32c(&self.payload) == header.payload_crc;
        let right = right || is_planted!(UncheckedBytes);
        Ok((!right).then(|| NoBlock::new("the block's payload does not match its CRC")))
    }

    /// No block stands at `place`. Goes to the file where an earlier recovery went on, or says that
    /// the log ends here.
    fn continues_elsewhere(&mut self, place: BlockPlace, why: &NoBlock) -> Result<bool, WalError> {
        let later = self.files.iter().enumerate().skip(place.index + 1);
        let next =
            later.clone().find_map(|(index, file)| Some((index, file.first?, file.info.name)));
        let ((file, offset), proof) = match next {
            Some((index, first, _)) if self.expected == Some(first.sequence) => {
                self.index = index;
                self.offset = 0;
                return Ok(true);
            }
            Some((index, first, name))
                if self.lost.iter().any(|lost| (place.file..name).contains(lost)) =>
            {
                match self.proof_beside_loss(place, index)? {
                    Some((at, proof)) if !is_planted!(LossHidesDamage) => {
                        ((at.file, at.offset), proof)
                    }
                    _ if let Some(at) = self.unread_before(place, why, index) => {
                        (at, MAY_BE_THERE.to_owned())
                    }
                    _ => {
                        self.index = index;
                        self.offset = 0;
                        self.expected = Some(first.sequence);
                        self.passed_lost_file = true;
                        return Ok(true);
                    }
                }
            }
            Some((_, first, name)) => {
                let proof = format!("file {name} begins with block {}", first.sequence.0);
                (self.blamed(place)?, proof)
            }
            None => match self.proof_of_loss(place, self.files.len(), self.expected)? {
                Some(proof) => (self.blamed(place)?, proof),
                None => match self.unread_before(place, why, place.index + 2) {
                    Some(at) => (at, MAY_BE_THERE.to_owned()),
                    None => return Ok(false),
                },
            },
        };
        let detail = format!("{}, but {proof}", why.detail);
        Err(WalError::Corrupt { file, offset, detail })
    }

    /// Where the next block may be, and the disk does not read: here, or at the beginning of a file before
    /// that of index `end`.
    fn unread_before(
        &self,
        place: BlockPlace,
        why: &NoBlock,
        end: usize,
    ) -> Option<(FileName, u64)> {
        if is_planted!(EndsAtUnread) {
            return None;
        }
        let mut later = self.files.iter().take(end).skip(place.index + 1);
        let here = why.unread.then_some((place.file, place.offset));
        here.or_else(|| later.find(|file| file.unread).map(|file| (file.info.name, 0)))
    }

    /// Looks for a block that was sent after one before it in the same file was durable: that one
    /// was not in the file that is gone. In the rest of this file, and in those without a first
    /// block before the file of index `end`.
    fn proof_beside_loss(
        &mut self,
        place: BlockPlace,
        end: usize,
    ) -> Result<Option<(BlockPlace, String)>, WalError> {
        let (mut at, mut expected) = (place, self.expected);
        while at.index < end {
            let next = at.index + 1;
            if let Some(proof) = self.proof_of_loss(at, next, expected)? {
                return Ok(Some((at, proof)));
            }
            // Where the blocks of a later file begin is not known.
            at = BlockPlace { index: next, file: self.files[next].info.name, offset: 0 };
            expected = None;
        }
        Ok(None)
    }

    /// Looks for a block that was sent after the missing one was durable, in the rest of this file
    /// and in later ones before the file of index `end`.
    fn proof_of_loss(
        &mut self,
        place: BlockPlace,
        end: usize,
        expected: Option<BlockSequence>,
    ) -> Result<Option<String>, WalError> {
        // With no block before, the lowest group of this file is the one that may have been cut
        // short.
        let unknown = expected.is_none();
        let Some(below) = (match expected {
            None => self.lowest_group(place)?,
            known => known,
        }) else {
            return Ok(None);
        };
        for index in place.index..end {
            let info = self.files[index].info;
            let from = if index == place.index { place.offset } else { 0 };
            let proof = self.find_header(info, from, |offset, header| {
                header.durable_below > below
                    || (unknown && offset > 0 && header.sequence == header.durable_below)
            })?;
            if let Some((offset, header)) = proof {
                let (block, name) = (header.sequence.0, info.name);
                return Ok(Some(format!(
                    "block {block} at offset {offset} of file {name} was sent when it was durable"
                )));
            }
        }
        Ok(None)
    }

    /// Where the missing block must have been: at the start of the next file when that holds blocks
    /// without a first one, or begins with what is neither blank nor a block of an earlier use;
    /// else here.
    fn blamed(&mut self, place: BlockPlace) -> Result<(FileName, u64), WalError> {
        if let Some(&WalkFile { info, first: None, unread }) = self.files.get(place.index + 1)
            && (unread
                || self.begins_damaged(info)?
                || self.find_header(info, 0, |_, _| true)?.is_some())
        {
            return Ok((info.name, 0));
        }
        Ok((place.file, place.offset))
    }

    fn begins_damaged(&mut self, info: FileInfo) -> Result<bool, WalError> {
        let start = self.view(info, 0, HEADER_BYTES)?;
        Ok(BlockHeader::read(start) == HeaderAt::Nothing && start.iter().any(|&byte| byte != 0))
    }

    /// The lowest `durable_below` of any block in the file.
    fn lowest_group(&mut self, place: BlockPlace) -> Result<Option<BlockSequence>, WalError> {
        let mut lowest = None;
        let info = self.files[place.index].info;
        self.find_header(info, place.offset, |_, header| {
            lowest = Some(lowest.map_or(header.durable_below, |other: BlockSequence| {
                other.min(header.durable_below)
            }));
            false
        })?;
        Ok(lowest)
    }

    /// The first header of this file at or behind `from` that is wanted.
    fn find_header(
        &mut self,
        info: FileInfo,
        from: u64,
        mut wanted: impl FnMut(u64, &BlockHeader) -> bool,
    ) -> Result<Option<(u64, BlockHeader)>, WalError> {
        let mut start = from;
        while start < info.bytes {
            let view = self.view(info, start, WINDOW_BYTES)?;
            if view.len() < HEADER_BYTES {
                break;
            }
            for (index, sector) in view.chunks(SECTOR_BYTES).enumerate() {
                let offset = start + (index * SECTOR_BYTES) as u64;
                if let HeaderAt::Header(header) = BlockHeader::read(sector)
                    && header.file == info.name
                    && wanted(offset, &header)
                {
                    return Ok(Some((offset, header)));
                }
            }
            start += WINDOW_BYTES as u64;
        }
        Ok(None)
    }

    /// The header of this file at `offset`, if there is one.
    fn header_at(&mut self, info: FileInfo, offset: u64) -> Result<Option<BlockHeader>, WalError> {
        match BlockHeader::read(self.view(info, offset, HEADER_BYTES)?) {
            HeaderAt::Header(header) if header.file == info.name => Ok(Some(header)),
            // Elsewhere these may be a client's bytes, in what is left of an earlier use of the file.
            HeaderAt::OtherVersion(found) if offset == 0 => Err(WalError::Version {
                file: info.name,
                found,
                supported: crate::block::FORMAT_VERSION,
            }),
            HeaderAt::Header(_) | HeaderAt::OtherVersion(_) | HeaderAt::Nothing => Ok(None),
        }
    }

    /// `length` bytes from `offset` on, fewer at the end of the file.
    fn view(&mut self, info: FileInfo, offset: u64, length: usize) -> Result<&[u8], WalError> {
        assert!(length <= MAX_BLOCK_BYTES, "no block is longer");
        let window = &mut self.window;
        let inside = window.file == Some(info.name)
            && offset >= window.offset
            && offset + length as u64 <= window.offset + window.length as u64;
        if !inside {
            // The first look at a file is for its first header alone: no need to read more.
            let want = if offset == 0 && length == HEADER_BYTES && window.file != Some(info.name) {
                SECTOR_BYTES
            } else {
                WINDOW_BYTES
            };
            let left = usize::try_from(info.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
            let want = want.max(length).min(left);
            if window.bytes.len() < want {
                window.bytes.resize(want, 0);
            }
            window.file = None;
            window.unread.clear();
            let into = &mut window.bytes[..want];
            window.length = match self.device.read(info.name, offset, into) {
                Err(error) if error.is_of_the_disk() => {
                    read_sectors(&mut *self.device, (info.name, offset), into, &mut window.unread)?
                }
                length => length?,
            };
            window.file = Some(info.name);
            window.offset = offset;
        }
        let start =
            usize::try_from(offset - window.offset).unwrap_or(usize::MAX).min(window.length);
        let end = (start + length).min(window.length);
        Ok(&window.bytes[start..end])
    }
}

/// Reads sector by sector; those that the disk does not read are zeros, and noted.
fn read_sectors(
    device: &mut dyn LogDevice,
    (file, from): (FileName, u64),
    into: &mut [u8],
    unread: &mut Vec<u64>,
) -> Result<usize, WalError> {
    let mut done = 0;
    for sector in into.chunks_mut(SECTOR_BYTES) {
        let offset = from + done as u64;
        let length = match device.read(file, offset, sector) {
            Err(error) if error.is_of_the_disk() => {
                tracing::warn!(%error, offset, "a sector of a log file is not read");
                sector.fill(0);
                unread.push(offset);
                sector.len()
            }
            length => length?,
        };
        done += length;
        if length < sector.len() {
            break;
        }
    }
    Ok(done)
}

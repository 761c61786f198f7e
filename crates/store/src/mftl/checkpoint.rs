//! Checkpoints: the index on flash, so that a restart need not scan everything.
//!
//! ```text
//!   begin: block table (generation, first page to scan) ─► segments of the index, a few at every pump ─► barrier: everything written so
//!   far is durable ─► end page, synced: the checkpoint counts ─► the one before is erased
//! ```
//!
//! The index changes while it is written. That is sound, because recovery scans what was written
//! since the beginning anyway, and because nothing is erased unnoticed: an entry whose block has
//! another generation is void, and its record, if it still lives, was moved to a page that is
//! scanned. At the end, everything that the entries name is durable. Blocks that collection was
//! emptying are listed in the end page and scanned whole, so that copies left behind are known.
//!
//! What it deliberately does not hold: values that are being staged (their puts are not stable; the
//! log has them).

use timestone_flash::{BlockId, Generation};
use timestone_types::{ClientId, KeyspaceId, Timestamp, Version};

use super::Mftl;
use super::index::{Index, KeyId, Location, SEGMENTS};
use super::space::Fence;
use crate::api::StoreEvent;
use crate::kit::blocks::BlockState;
use crate::kit::writer::StreamId;
use crate::layout::{MAX_COUNT, PageKind, RAW_PAYLOAD, put_u32, put_u64, u32_at, u64_at};

/// Behind the page header: checkpoint number u64, page number in the checkpoint u32, 1 on the last
/// page u32.
const PAGE_FIXED: usize = 16;
const PAYLOAD: usize = RAW_PAYLOAD - PAGE_FIXED;
/// What a key takes in the stream at least.
const KEY_BYTES: usize = 16;
/// Segments that one pump writes.
const SEGMENTS_PER_PUMP: u16 = 2;

const BLOCKS: u8 = b'B';
const SPACE: u8 = b'K';
const FENCE: u8 = b'F';
const SEGMENT: u8 = b'G';
const END: u8 = b'E';

/// How far the buffered bytes got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emitted {
    All,
    /// Free blocks are still being erased: the rest stays in the buffer until the next pump.
    Waiting,
    NoRoom,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Streaming {
        space: usize,
        segment: u16,
    },
    Barrier {
        ordinals: [u64; 4],
    },
    /// The end page is being written.
    Closing,
    Ending {
        ordinal: u64,
    },
}

/// Writes checkpoints.
pub(super) struct Checkpointer {
    phase: Phase,
    wanted: bool,
    wanted_final: bool,
    /// The final checkpoint of a shutdown is durable.
    pub(super) final_done: bool,
    /// Bytes put since the last one began.
    pub(super) consumed: u64,
    number: u64,
    page: u32,
    buffer: Vec<u8>,
    emptied: Vec<BlockId>,
    /// Blocks of the last complete checkpoint, and of the one being written.
    complete: Vec<BlockId>,
    writing: Vec<BlockId>,
}

impl Checkpointer {
    /// Goes on behind checkpoint `number`, which lies in `complete`.
    pub(super) fn resume(number: u64, complete: Vec<BlockId>) -> Self {
        Self {
            phase: Phase::Idle,
            wanted: false,
            wanted_final: false,
            final_done: false,
            consumed: 0,
            number,
            page: 0,
            buffer: Vec::new(),
            emptied: Vec::new(),
            complete,
            writing: Vec::new(),
        }
    }

    /// Asks for one.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Asks for the one that ends a shutdown.
    pub(super) fn want_final(&mut self) {
        self.wanted = true;
        self.wanted_final = true;
    }

    /// Whether one is wanted or being written.
    pub(super) fn wanted_or_running(&self) -> bool {
        self.wanted || self.phase != Phase::Idle
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        (self.wanted && self.phase == Phase::Idle)
            || matches!(self.phase, Phase::Streaming { .. } | Phase::Closing)
    }

    /// Whether it waits for something to become durable.
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Barrier { .. } | Phase::Ending { .. })
    }
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.timestamp.as_nanos().to_le_bytes());
    out.extend_from_slice(&version.client.get().to_le_bytes());
}

impl Mftl {
    /// Goes one step further with a checkpoint.
    pub(super) fn pump_checkpoint(&mut self) {
        let due = self.config.checkpoint_bytes > 0
            && self.checkpointer.consumed >= self.config.checkpoint_bytes;
        match self.checkpointer.phase {
            Phase::Idle if self.checkpointer.wanted || due => self.begin_checkpoint(),
            Phase::Idle => {}
            Phase::Streaming { space, segment } => self.stream_checkpoint(space, segment),
            Phase::Barrier { ordinals } => {
                let durable = StreamId::ALL
                    .iter()
                    .all(|&stream| self.writer.is_durable(stream, ordinals[stream as usize]));
                if durable {
                    self.end_checkpoint();
                }
            }
            Phase::Closing => self.close_checkpoint(),
            Phase::Ending { ordinal } => {
                if self.writer.is_durable(StreamId::Checkpoint, ordinal) {
                    self.checkpoint_done();
                }
            }
        }
    }

    fn begin_checkpoint(&mut self) {
        self.checkpointer.wanted = false;
        self.checkpointer.consumed = 0;
        self.checkpointer.number += 1;
        self.checkpointer.page = 0;
        self.checkpointer.emptied.clear();
        self.writer.end_block(StreamId::Checkpoint, &mut self.blocks, &mut self.port);
        let mut out = core::mem::take(&mut self.checkpointer.buffer);
        out.clear();
        out.push(BLOCKS);
        out.extend_from_slice(&self.watermark.as_nanos().to_le_bytes());
        out.extend_from_slice(&self.blocks.largest.to_le_bytes());
        out.extend_from_slice(&self.blocks.count().to_le_bytes());
        for number in 0..self.blocks.count() {
            let block = BlockId(number);
            let from = self.writer.scan_from(block, &self.blocks);
            let entry = self.blocks.get(block);
            let counts = entry.counts();
            for word in [entry.generation.0, from, counts[0], counts[1], counts[2], counts[3]] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        for space in &self.spaces.list {
            out.push(SPACE);
            out.extend_from_slice(&space.id.get().to_le_bytes());
            put_version(&mut out, space.youngest);
            for fence in &space.fences {
                out.push(FENCE);
                out.extend_from_slice(&space.id.get().to_le_bytes());
                put_version(&mut out, fence.version);
                out.extend_from_slice(&fence.page.to_le_bytes());
            }
        }
        self.checkpointer.buffer = out;
        self.checkpointer.phase = Phase::Streaming { space: 0, segment: 0 };
    }

    fn note_victims(&mut self) {
        for block in self.collector.victims() {
            if !self.checkpointer.emptied.contains(&block) {
                self.checkpointer.emptied.push(block);
            }
        }
    }

    fn stream_checkpoint(&mut self, mut space: usize, mut segment: u16) {
        self.note_victims();
        if self.writer.is_behind() {
            return;
        }
        // What an earlier pump could not write comes first.
        match self.emit_pages(false) {
            Emitted::All => {}
            Emitted::Waiting => return,
            Emitted::NoRoom => return self.abandon_checkpoint(),
        }
        let mut out = core::mem::take(&mut self.checkpointer.buffer);
        for _ in 0..SEGMENTS_PER_PUMP {
            let Some(entry) = self.spaces.list.get(space) else { break };
            write_segment(&mut out, entry.id, &entry.index, segment);
            segment += 1;
            if usize::from(segment) == SEGMENTS {
                (space, segment) = (space + 1, 0);
            }
        }
        self.checkpointer.buffer = out;
        self.checkpointer.phase = Phase::Streaming { space, segment };
        let emitted = self.emit_pages(false);
        if emitted == Emitted::NoRoom {
            self.abandon_checkpoint();
        } else if emitted == Emitted::All && space >= self.spaces.list.len() {
            let mut ordinals = [0; 4];
            for stream in StreamId::ALL {
                self.writer.flush(stream, &self.blocks, &mut self.port);
                ordinals[stream as usize] = self.writer.ordinal(stream);
            }
            self.checkpointer.phase = Phase::Barrier { ordinals };
        }
    }

    fn end_checkpoint(&mut self) {
        self.note_victims();
        self.checkpointer.buffer.push(END);
        let emptied = core::mem::take(&mut self.checkpointer.emptied);
        self.checkpointer.buffer.extend_from_slice(&(emptied.len() as u32).to_le_bytes());
        for block in emptied {
            self.checkpointer.buffer.extend_from_slice(&block.0.to_le_bytes());
        }
        self.checkpointer.phase = Phase::Closing;
        self.close_checkpoint();
    }

    fn close_checkpoint(&mut self) {
        match self.emit_pages(true) {
            Emitted::All => {}
            Emitted::Waiting => return,
            Emitted::NoRoom => return self.abandon_checkpoint(),
        }
        self.writer.end_block(StreamId::Checkpoint, &mut self.blocks, &mut self.port);
        self.checkpointer.phase =
            Phase::Ending { ordinal: self.writer.ordinal(StreamId::Checkpoint) };
    }

    fn checkpoint_done(&mut self) {
        self.checkpointer.phase = Phase::Idle;
        let writing = core::mem::take(&mut self.checkpointer.writing);
        let before = core::mem::replace(&mut self.checkpointer.complete, writing);
        self.erase_checkpoint(before);
        self.stats.checkpoints += 1;
        if core::mem::take(&mut self.checkpointer.wanted_final) {
            self.checkpointer.final_done = true;
        }
        self.events.push(StoreEvent::CheckpointDone);
    }

    /// There is no room: what was written goes, the last complete checkpoint stays.
    fn abandon_checkpoint(&mut self) {
        self.writer.end_block(StreamId::Checkpoint, &mut self.blocks, &mut self.port);
        self.checkpointer.phase = Phase::Idle;
        let writing = core::mem::take(&mut self.checkpointer.writing);
        tracing::warn!(
            blocks = writing.len(),
            "no room for a checkpoint; a restart will scan more"
        );
        self.erase_checkpoint(writing);
        if core::mem::take(&mut self.checkpointer.wanted_final) {
            self.checkpointer.final_done = true;
        }
    }

    fn erase_checkpoint(&mut self, blocks: Vec<BlockId>) {
        for block in blocks {
            if self.blocks.get(block).readers == 0
                && self.blocks.get(block).state == BlockState::Sealed
            {
                self.erase(block);
            } else {
                // A scrub is reading there: the next checkpoint's end takes it.
                self.checkpointer.complete.push(block);
            }
        }
    }

    /// Writes full pages of the buffer, and with `last` what is left.
    fn emit_pages(&mut self, last: bool) -> Emitted {
        let buffer = core::mem::take(&mut self.checkpointer.buffer);
        let mut rest = &buffer[..];
        let mut emitted = Emitted::All;
        while rest.len() >= PAYLOAD || (last && !rest.is_empty()) {
            let (chunk, after) = rest.split_at(rest.len().min(PAYLOAD));
            let (number, page) = (self.checkpointer.number, self.checkpointer.page);
            let ends = u32::from(last && after.is_empty());
            let leave = self.blocks.reserve() / 2;
            let into = (&mut self.blocks, &mut self.port);
            let used = (PAGE_FIXED + chunk.len()) as u16;
            let written = self.writer.append_raw(
                StreamId::Checkpoint,
                PageKind::Checkpoint,
                used,
                leave,
                into,
                |page_bytes| {
                    let body = page_bytes.len() - RAW_PAYLOAD;
                    put_u64(page_bytes, body, number);
                    put_u32(page_bytes, body + 8, page);
                    put_u32(page_bytes, body + 12, ends);
                    page_bytes[body + PAGE_FIXED..body + PAGE_FIXED + chunk.len()]
                        .copy_from_slice(chunk);
                },
            );
            let Some(written) = written else {
                // Blocks that are free but not erased yet will do in a moment; without them there
                // is no room.
                emitted = if self.blocks.free_count() > leave.max(self.blocks.clean_count()) {
                    Emitted::Waiting
                } else {
                    Emitted::NoRoom
                };
                break;
            };
            let block = self.blocks.of(written);
            if self.checkpointer.writing.last() != Some(&block) {
                self.checkpointer.writing.push(block);
            }
            self.checkpointer.page += 1;
            rest = after;
        }
        let done = buffer.len() - rest.len();
        self.checkpointer.buffer = buffer;
        self.checkpointer.buffer.drain(..done);
        emitted
    }
}

fn write_segment(out: &mut Vec<u8>, keyspace: KeyspaceId, index: &Index, segment: u16) {
    if index.keys_in(segment) == 0 {
        return;
    }
    out.push(SEGMENT);
    out.extend_from_slice(&keyspace.get().to_le_bytes());
    out.extend_from_slice(&u32::from(segment).to_le_bytes());
    out.extend_from_slice(&index.keys_in(segment).to_le_bytes());
    for (id, chain, dead) in index.keys_from(segment, 0) {
        let versions =
            chain.clone().filter(|(_, place)| place.page() < Location::MAX_PAGES).count();
        for word in [id.tag, id.check, dead, versions as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for (version, place) in chain.filter(|(_, place)| place.page() < Location::MAX_PAGES) {
            put_version(out, version);
            out.extend_from_slice(&place.raw().to_le_bytes());
        }
    }
}

/// A page of a checkpoint: its number, its place in it, whether it is the last, its payload.
pub(crate) fn read_page(page: &[u8], used: u16) -> Option<(u64, u32, bool, &[u8])> {
    let body = page.len() - RAW_PAYLOAD;
    let end = body
        .checked_add(usize::from(used))
        .filter(|&end| used as usize >= PAGE_FIXED && end <= page.len())?;
    let last = u32_at(page, body + 12) == 1;
    let number = Some(u64_at(page, body)).filter(|&number| number <= MAX_COUNT)?;
    Some((number, u32_at(page, body + 8), last, &page[body + PAGE_FIXED..end]))
}

/// As the payloads of a checkpoint lie in its pages, for images made by hand.
#[cfg(feature = "fuzz")]
pub(crate) fn pages_of(stream: &[u8]) -> Vec<Vec<u8>> {
    let count = stream.chunks(PAYLOAD).len();
    let page = |(place, chunk): (usize, &[u8])| {
        let mut page = vec![0; timestone_flash::PAGE_BYTES];
        let body = page.len() - RAW_PAYLOAD;
        page[6] = PageKind::Checkpoint as u8;
        crate::layout::put_u16(&mut page, 20, (PAGE_FIXED + chunk.len()) as u16);
        put_u64(&mut page, body, 1);
        put_u32(&mut page, body + 8, place as u32);
        put_u32(&mut page, body + 12, u32::from(place + 1 == count));
        page[body + PAGE_FIXED..body + PAGE_FIXED + chunk.len()].copy_from_slice(chunk);
        page
    };
    stream.chunks(PAYLOAD).enumerate().map(page).collect()
}

/// What a checkpoint says of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockMark {
    pub(super) generation: Generation,
    pub(super) scan_from: u32,
    pub(super) counts: [u32; 4],
}

/// A checkpoint's content other than the index, which goes where the reader wants it.
#[derive(Default)]
pub(super) struct Content {
    pub(super) watermark: Timestamp,
    /// Blocks that the largest value takes.
    pub(super) largest: u32,
    pub(super) blocks: Vec<BlockMark>,
    pub(super) spaces: Vec<(KeyspaceId, Version)>,
    pub(super) fences: Vec<(KeyspaceId, Fence)>,
    pub(super) emptied: Vec<BlockId>,
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_at_checked(4)?;
        self.0 = rest;
        Some(u32_at(head, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_at_checked(8)?;
        self.0 = rest;
        Some(u64_at(head, 0))
    }

    fn version(&mut self) -> Option<Version> {
        let time = Timestamp::from_nanos(self.u64()?);
        Some(Version::new(time, ClientId::new(self.u32()?)))
    }
}

/// Reads the joined payloads of a checkpoint. `key` gets every key, its versions (youngest first),
/// its dead records, and how many keys its segment has from it on. `None`: it makes no
/// sense, and what `key` got so far must be thrown away.
pub(super) fn read(
    bytes: &[u8],
    mut key: impl FnMut(&[BlockMark], KeyspaceId, KeyId, &[(Version, Location)], u32, u32),
) -> Option<Content> {
    let mut cursor = Cursor(bytes);
    let mut content = Content::default();
    let mut versions = Vec::new();
    loop {
        match cursor.u8()? {
            BLOCKS => {
                content.watermark = Timestamp::from_nanos(cursor.u64()?);
                content.largest = cursor.u32()?;
                for _ in 0..cursor.u32()? {
                    let generation = Generation(cursor.u32()?);
                    let scan_from = cursor.u32()?;
                    let counts = [cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?];
                    content.blocks.push(BlockMark { generation, scan_from, counts });
                }
            }
            SPACE => {
                let id = KeyspaceId::new(cursor.u32()?);
                content.spaces.push((id, cursor.version()?));
            }
            FENCE => {
                let id = KeyspaceId::new(cursor.u32()?);
                let version = cursor.version()?;
                content.fences.push((id, Fence { version, page: cursor.u32()? }));
            }
            SEGMENT => {
                let keyspace = KeyspaceId::new(cursor.u32()?);
                let segment =
                    u16::try_from(cursor.u32()?).ok().filter(|&at| usize::from(at) < SEGMENTS)?;
                let keys = cursor.u32()?;
                if keys as usize > cursor.0.len() / KEY_BYTES {
                    return None;
                }
                for done in 0..keys {
                    // No key has the tag of an empty slot.
                    let tag = cursor.u32().filter(|&tag| tag != 0)?;
                    let id = KeyId { segment, tag, check: cursor.u32()? };
                    let dead = cursor.u32()?;
                    versions.clear();
                    for _ in 0..cursor.u32()? {
                        let version = cursor.version()?;
                        versions.push((version, Location::from_raw(cursor.u32()?)?));
                    }
                    key(&content.blocks, keyspace, id, &versions, dead, keys - done);
                }
            }
            END => {
                for _ in 0..cursor.u32()? {
                    content.emptied.push(BlockId(cursor.u32()?));
                }
                return cursor.0.is_empty().then_some(content);
            }
            _ => return None,
        }
    }
}

//! Checkpoints: the index on flash, so that a restart need not scan everything.
//!
//! ```text
//!   begin: block table (generation, first page to scan)
//!     ─► per keyspace: segments of the index, a few at every pump; then its keys, if they are in order
//!     ─► barrier: everything written so far is durable
//!     ─► end page, synced: the checkpoint counts ─► the one before is erased
//! ```
//!
//! The index changes while it is written. That is sound, because recovery scans what was written
//! since the beginning anyway, and because nothing is erased unnoticed: an entry whose block has
//! another generation is void, and its record, if it still lives, was moved to a page that is
//! scanned. At the end, everything that the entries name is durable. Blocks that collection was
//! emptying are listed in the end page and scanned whole, so that copies left behind are known.
//!
//! The keys of a keyspace that is ordered change meanwhile, too. What was put since the beginning is
//! scanned. Any other key with a version that recovery will find was there at the beginning, and has
//! stayed in its place, so that the stream, which goes by the order of keys, does not miss it.
//!
//! Pages that recovery could not read are listed: they lie before the first page to scan, and a scan looks at
//! them nevertheless. So are those that it found torn.
//!
//! A fence that goes through the index takes entries out of it, and tells blocks what died. So no sweep goes on
//! between the table of blocks, which says how much of each has died, and the last segment: whatever the fence
//! hides is in both, or in none (CO3d of docs/protocol/storage.md).
//!
//! What it deliberately does not hold: values that are being staged (their puts are not stable; the
//! log has them).
//!
//! Hidden dependencies that this part made explicit: a checkpoint is due by the bytes that puts
//! wrote, which is told with each pump; collection's victims must be known to it at every step.
//!
//! Invariants: one checkpoint is written at a time, to blocks of its own (`writing`); the blocks of
//! the last complete one are erased only when the next one is durable.

use timestone_flash::{BlockId, Generation, PageId};
use timestone_types::limits::MAX_KEY_BYTES;
use timestone_types::{ClientId, Direction, KeyspaceId, Timestamp, Version, is_planted};

use super::collect::victims::Victims;
use super::index::{Index, KeyId, Location, SEGMENTS};
use super::order::Order;
use super::space::{Fence, Space, Spaces};
use crate::kit::blocks::BlockState;
use crate::kit::ordered::{Walked, Wanted, common};
use crate::kit::volume::Volume;
use crate::kit::writer::{StreamId, Writer};
use crate::layout::{
    CHECKPOINT_FIXED as PAGE_FIXED, CHECKPOINT_PAYLOAD as PAYLOAD, PageKind, u16_at, u32_at,
    u64_at, write_checkpoint_page as write_page,
};

/// What a key takes in the stream at least.
const KEY_BYTES: usize = 16;
/// Segments that one pump writes.
const SEGMENTS_PER_PUMP: u16 = 2;
/// Keys in their order that one pump writes.
const KEYS_PER_PUMP: u32 = 1024;
/// Bytes of them, about.
const KEY_BYTES_PER_PUMP: usize = 64 * 1024;
/// What a key in its order takes in the stream beside its bytes.
const ORDERED_BYTES: usize = 6;

const BLOCKS: u8 = b'B';
const HOLES: u8 = b'H';
const UNREAD: u8 = b'U';
const SPACE: u8 = b'K';
const FENCE: u8 = b'F';
const SEGMENT: u8 = b'G';
const ORDERED: u8 = b'O';
const ORDER_END: u8 = b'P';
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
enum CheckpointPhase {
    Idle,
    /// From this segment of this keyspace on, and behind the last one from the key `next_key` on;
    /// `None` when all were written. By its id: keyspaces that are written for the first time
    /// meanwhile take places before it.
    Streaming {
        space: Option<KeyspaceId>,
        segment: u16,
    },
    Barrier {
        ordinals: [u64; StreamId::ALL.len()],
    },
    /// The end page is being written.
    Closing,
    Ending {
        ordinal: u64,
    },
}

/// Whether every stream is durable up to its ordinal.
fn is_durable(ordinals: [u64; StreamId::ALL.len()], writer: &Writer) -> bool {
    let durable = |&of: &StreamId| writer.ledger.is_durable(of, ordinals[of as usize]);
    StreamId::ALL.iter().all(durable)
}

/// Whether no fence is on its way through the index.
fn may_begin(spaces: &Spaces) -> bool {
    !spaces.is_sweeping() || is_planted!(SweepsBesideCheckpoint)
}

/// Writes checkpoints.
pub(super) struct Checkpointer {
    phase: CheckpointPhase,
    wanted: bool,
    wanted_final: bool,
    /// The final checkpoint of a shutdown is durable.
    final_done: bool,
    /// Bytes of puts between two checkpoints; zero for checkpoints on demand only.
    every_bytes: u64,
    /// Bytes that puts had written when the last one began.
    begun_at: u64,
    /// How many became durable since opening.
    completed: u64,
    number: u64,
    page: u32,
    buffer: Vec<u8>,
    next_key: Vec<u8>,
    emptied: Vec<BlockId>,
    /// Blocks of the last complete checkpoint, and of the one being written.
    complete: Vec<BlockId>,
    writing: Vec<BlockId>,
}

impl Checkpointer {
    /// Goes on behind checkpoint `number`, which lies in `complete`; one follows after every
    /// `every_bytes` of puts.
    pub(super) fn resume(number: u64, complete: Vec<BlockId>, every_bytes: u64) -> Self {
        Self {
            phase: CheckpointPhase::Idle,
            wanted: false,
            wanted_final: false,
            final_done: false,
            every_bytes,
            begun_at: 0,
            completed: 0,
            number,
            page: 0,
            buffer: Vec::new(),
            next_key: Vec::new(),
            emptied: Vec::new(),
            complete,
            writing: Vec::new(),
        }
    }

    /// How many became durable since opening.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// What holds between calls.
    fn assert_sound(&self) {
        debug_assert!(!(self.final_done && self.wanted_final), "there is one last checkpoint");
    }

    /// Asks for one.
    pub(super) fn want(&mut self) {
        self.assert_sound();
        self.wanted = true;
    }

    /// Asks for the one that ends a shutdown, unless one is wanted or being written already. True
    /// when it is durable (or there was no room for it).
    pub(super) fn finish(&mut self) -> bool {
        self.assert_sound();
        if !self.final_done && !self.wanted && self.phase == CheckpointPhase::Idle {
            (self.wanted, self.wanted_final) = (true, true);
        }
        self.final_done
    }

    /// Whether the next pump can do something: the device wakes what waits for it.
    pub(super) fn has_work(&self, writer: &Writer, spaces: &Spaces) -> bool {
        match self.phase {
            CheckpointPhase::Idle => self.wanted && may_begin(spaces),
            CheckpointPhase::Streaming { .. } | CheckpointPhase::Closing => !writer.is_behind(),
            CheckpointPhase::Barrier { ordinals } => is_durable(ordinals, writer),
            CheckpointPhase::Ending { ordinal } => {
                writer.ledger.is_durable(StreamId::Checkpoint, ordinal)
            }
        }
    }

    /// Whether one is being written. Its watermark is that of its beginning: a restart by it may not
    /// have passed a fence that goes through the index meanwhile.
    pub(super) fn is_writing(&self) -> bool {
        self.phase != CheckpointPhase::Idle
    }

    /// Whether the index is being written: no fence goes through it meanwhile.
    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.phase, CheckpointPhase::Streaming { .. })
            && !is_planted!(SweepsBesideCheckpoint)
    }

    /// Whether it waits for something to become durable.
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, CheckpointPhase::Barrier { .. } | CheckpointPhase::Ending { .. })
    }

    /// Goes one step further. `put_bytes` are those that puts have written since opening. True when
    /// a checkpoint has become durable.
    pub(super) fn pump(
        &mut self,
        put_bytes: u64,
        volume: &mut Volume,
        spaces: &Spaces,
        victims: &Victims,
    ) -> bool {
        assert!(put_bytes >= self.begun_at, "bytes that were put only rise");
        let due = self.every_bytes > 0 && put_bytes - self.begun_at >= self.every_bytes;
        match self.phase {
            CheckpointPhase::Idle if (self.wanted || due) && may_begin(spaces) => {
                self.begun_at = put_bytes;
                self.begin(volume, spaces);
            }
            CheckpointPhase::Idle => {}
            CheckpointPhase::Streaming { space, segment } => {
                self.stream((space, segment), volume, spaces, victims);
            }
            CheckpointPhase::Barrier { ordinals } => {
                if is_durable(ordinals, &volume.writer) {
                    self.end(volume, victims);
                }
            }
            CheckpointPhase::Closing => self.close(volume),
            CheckpointPhase::Ending { ordinal } => {
                if volume.writer.ledger.is_durable(StreamId::Checkpoint, ordinal) {
                    self.done(volume);
                    return true;
                }
            }
        }
        false
    }

    fn begin(&mut self, volume: &mut Volume, spaces: &Spaces) {
        assert!(self.phase == CheckpointPhase::Idle && self.writing.is_empty(), "one at a time");
        self.wanted = false;
        self.number += 1;
        self.page = 0;
        self.emptied.clear();
        volume.end_block(StreamId::Checkpoint);
        self.buffer.clear();
        self.next_key.clear();
        write_blocks(&mut self.buffer, volume, spaces.marks.watermark());
        write_pages(&mut self.buffer, HOLES, volume.blocks.holes());
        if !is_planted!(ForgetsUnread) {
            write_pages(&mut self.buffer, UNREAD, volume.blocks.unread());
        }
        for space in &spaces.list {
            self.buffer.push(SPACE);
            self.buffer.extend_from_slice(&space.id.get().to_le_bytes());
            put_version(&mut self.buffer, space.youngest);
            for fence in &space.fences {
                self.buffer.push(FENCE);
                self.buffer.extend_from_slice(&space.id.get().to_le_bytes());
                put_version(&mut self.buffer, fence.version);
                self.buffer.extend_from_slice(&fence.page.to_le_bytes());
            }
        }
        let space = spaces.list.first().map(|space| space.id);
        self.phase = CheckpointPhase::Streaming { space, segment: 0 };
    }

    fn note_victims(&mut self, victims: &Victims) {
        for block in victims.blocks() {
            if !self.emptied.contains(&block) {
                self.emptied.push(block);
            }
        }
        debug_assert!(victims.blocks().all(|block| self.emptied.contains(&block)));
    }

    fn stream(
        &mut self,
        (mut space, mut segment): (Option<KeyspaceId>, u16),
        volume: &mut Volume,
        spaces: &Spaces,
        victims: &Victims,
    ) {
        debug_assert!(
            matches!(self.phase, CheckpointPhase::Streaming { .. }),
            "segments are written"
        );
        self.note_victims(victims);
        if volume.writer.is_behind() {
            return;
        }
        // What an earlier pump could not write comes first.
        match self.emit_pages(false, volume) {
            Emitted::All => {}
            Emitted::Waiting => return,
            Emitted::NoRoom => return self.abandon(volume),
        }
        for _ in 0..SEGMENTS_PER_PUMP {
            let Some(id) = space else { break };
            let Some(entry) = spaces.get(id) else {
                unreachable!("keyspace {id} goes on while it is written")
            };
            if usize::from(segment) < SEGMENTS {
                write_segment(&mut self.buffer, id, &entry.index, segment);
                segment += 1;
            }
            if usize::from(segment) == SEGMENTS && self.stream_order(entry) {
                let mut ids = spaces.list.iter().map(|space| space.id);
                (space, segment) = (ids.find(|&next| next > id), 0);
            }
        }
        self.phase = CheckpointPhase::Streaming { space, segment };
        let emitted = self.emit_pages(false, volume);
        if emitted == Emitted::NoRoom {
            self.abandon(volume);
        } else if emitted == Emitted::All && space.is_none() {
            volume.flush_all();
            let ordinals = StreamId::ALL.map(|stream| volume.writer.ordinal(stream));
            self.phase = CheckpointPhase::Barrier { ordinals };
        }
    }

    /// Writes further keys of a keyspace in their order; true when there are none (any more).
    fn stream_order(&mut self, space: &Space) -> bool {
        let Some(order) = &space.order else { return true };
        let from = core::mem::take(&mut self.next_key);
        match write_keys(&mut self.buffer, space.id, order, &from) {
            Some(next) => {
                debug_assert!(next > from, "a checkpoint goes on");
                self.next_key = next;
                false
            }
            None => {
                // Without its end, recovery knows that keys may be missing, and scans everything.
                if order.is_whole(&space.index) {
                    write_order_end(&mut self.buffer, space.id, order);
                }
                true
            }
        }
    }

    fn end(&mut self, volume: &mut Volume, victims: &Victims) {
        self.assert_sound();
        self.note_victims(victims);
        self.buffer.push(END);
        let emptied = core::mem::take(&mut self.emptied);
        self.buffer.extend_from_slice(&(emptied.len() as u32).to_le_bytes());
        for block in emptied {
            self.buffer.extend_from_slice(&block.0.to_le_bytes());
        }
        self.phase = CheckpointPhase::Closing;
        self.close(volume);
    }

    fn close(&mut self, volume: &mut Volume) {
        debug_assert_eq!(self.phase, CheckpointPhase::Closing);
        match self.emit_pages(true, volume) {
            Emitted::All => {}
            Emitted::Waiting => return,
            Emitted::NoRoom => return self.abandon(volume),
        }
        assert!(self.buffer.is_empty(), "the end page is written");
        volume.end_block(StreamId::Checkpoint);
        self.phase =
            CheckpointPhase::Ending { ordinal: volume.writer.ordinal(StreamId::Checkpoint) };
    }

    fn done(&mut self, volume: &mut Volume) {
        self.assert_sound();
        self.phase = CheckpointPhase::Idle;
        let writing = core::mem::take(&mut self.writing);
        let before = core::mem::replace(&mut self.complete, writing);
        self.erase(before, volume);
        self.completed += 1;
        self.final_done |= core::mem::take(&mut self.wanted_final);
    }

    /// There is no room: what was written goes, the last complete checkpoint stays.
    fn abandon(&mut self, volume: &mut Volume) {
        self.assert_sound();
        volume.end_block(StreamId::Checkpoint);
        self.phase = CheckpointPhase::Idle;
        let writing = core::mem::take(&mut self.writing);
        tracing::warn!(
            blocks = writing.len(),
            "no room for a checkpoint; a restart will scan more"
        );
        self.erase(writing, volume);
        self.final_done |= core::mem::take(&mut self.wanted_final);
    }

    /// A program of a block has failed: the checkpoint that lies in it is written again from its
    /// beginning. The block is a victim by now, and not erased.
    pub(super) fn block_failed(&mut self, block: BlockId, volume: &mut Volume) {
        self.assert_sound();
        // One that an earlier failure has left, with this program under way.
        self.complete.retain(|&other| other != block);
        if !self.writing.contains(&block) {
            return;
        }
        volume.end_block(StreamId::Checkpoint);
        self.phase = CheckpointPhase::Idle;
        self.wanted = true;
        let mut writing = core::mem::take(&mut self.writing);
        writing.retain(|&other| other != block);
        self.erase(writing, volume);
    }

    fn erase(&mut self, blocks: Vec<BlockId>, volume: &mut Volume) {
        self.assert_sound();
        for block in blocks {
            let entry = volume.blocks.get(block);
            let is_written = entry.readable == entry.pages || is_planted!(ErasesUnderWay);
            if entry.readers == 0 && entry.state == BlockState::Sealed && is_written {
                volume.erase(block);
            } else {
                // A scrub is reading there, or pages are on their way: the next checkpoint's end takes it.
                self.complete.push(block);
            }
        }
    }

    /// Writes full pages of the buffer, and with `last` what is left.
    fn emit_pages(&mut self, last: bool, volume: &mut Volume) -> Emitted {
        let mut rest = &self.buffer[..];
        let mut emitted = Emitted::All;
        while rest.len() >= PAYLOAD || (last && !rest.is_empty()) {
            let (chunk, after) = rest.split_at(rest.len().min(PAYLOAD));
            let ends = last && after.is_empty();
            let leave = volume.blocks.reserve() / 2;
            let used = (PAGE_FIXED + chunk.len()) as u16;
            let (kind, number, page) = (PageKind::Checkpoint, self.number, self.page);
            let written = volume.append_raw(StreamId::Checkpoint, kind, used, leave, |bytes| {
                write_page(bytes, number, page, ends, chunk);
            });
            let Some(written) = written else {
                // Blocks that are free but not erased yet will do in a moment; without them there
                // is no room.
                let blocks = &volume.blocks;
                emitted = if blocks.free_count() > leave.max(blocks.clean_count()) {
                    Emitted::Waiting
                } else {
                    Emitted::NoRoom
                };
                break;
            };
            let block = volume.blocks.of(written);
            if self.writing.last() != Some(&block) {
                self.writing.push(block);
            }
            self.page += 1;
            rest = after;
        }
        let done = self.buffer.len() - rest.len();
        debug_assert!(emitted != Emitted::All || self.buffer.len() - done < PAYLOAD);
        self.buffer.drain(..done);
        emitted
    }
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.timestamp.as_nanos().to_le_bytes());
    out.extend_from_slice(&version.client.get().to_le_bytes());
}

/// The block table: where a scan of each block would begin.
fn write_blocks(out: &mut Vec<u8>, volume: &Volume, watermark: Timestamp) {
    out.push(BLOCKS);
    out.extend_from_slice(&watermark.as_nanos().to_le_bytes());
    out.extend_from_slice(&volume.blocks.largest().to_le_bytes());
    out.extend_from_slice(&volume.blocks.count().to_le_bytes());
    for number in 0..volume.blocks.count() {
        let block = BlockId(number);
        let from = volume.scan_from(block);
        let entry = volume.blocks.get(block);
        let counts = entry.counts();
        for word in [entry.generation.0, from, counts[0], counts[1], counts[2], counts[3]] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Pages of which the index knows nothing although they lie before where a scan would begin.
fn write_pages(out: &mut Vec<u8>, kind: u8, pages: impl ExactSizeIterator<Item = u32>) {
    if pages.len() > 0 {
        out.push(kind);
        out.extend_from_slice(&(pages.len() as u32).to_le_bytes());
        pages.for_each(|page| out.extend_from_slice(&page.to_le_bytes()));
    }
}

fn write_segment(out: &mut Vec<u8>, keyspace: KeyspaceId, index: &Index, segment: u16) {
    let orphans = index.orphans_in(segment);
    let keys = index.keys_in(segment) + orphans.clone().count() as u32;
    if keys == 0 {
        return;
    }
    out.push(SEGMENT);
    out.extend_from_slice(&keyspace.get().to_le_bytes());
    out.extend_from_slice(&u32::from(segment).to_le_bytes());
    out.extend_from_slice(&keys.to_le_bytes());
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
    for (id, dead) in orphans {
        for word in [id.tag, id.check, dead, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Writes some keys of an order, from one on; the first one that is left.
fn write_keys(
    out: &mut Vec<u8>,
    keyspace: KeyspaceId,
    order: &Order,
    from: &[u8],
) -> Option<Vec<u8>> {
    out.push(ORDERED);
    out.extend_from_slice(&keyspace.get().to_le_bytes());
    let (begin, mut count, mut next) = (out.len(), 0u32, None);
    out.extend_from_slice(&count.to_le_bytes());
    let mut before: Vec<u8> = Vec::new();
    let wanted = Wanted { from, to: None, direction: Direction::Ascending, above: None };
    let walked = order.walk(wanted, &mut KEYS_PER_PUMP.clone(), |key| {
        if count > 0 && out.len() - begin > KEY_BYTES_PER_PUMP {
            next = Some(key.to_vec());
            return false;
        }
        // What a key has in common with the one before it is not written again.
        let shared = common(&before, key).min(usize::from(u16::MAX));
        out.extend_from_slice(&(shared as u16).to_le_bytes());
        out.extend_from_slice(&((key.len() - shared) as u32).to_le_bytes());
        out.extend_from_slice(&key[shared..]);
        before.clear();
        before.extend_from_slice(key);
        count += 1;
        true
    });
    out[begin..begin + 4].copy_from_slice(&count.to_le_bytes());
    if let Walked::UpTo(key) = walked {
        next = Some(key);
    }
    if is_planted!(CheckpointSkipsKeys)
        && let Some(next) = &mut next
    {
        next.push(0);
    }
    next
}

/// All keys of an order were written: entries of the index that several of them share.
fn write_order_end(out: &mut Vec<u8>, keyspace: KeyspaceId, order: &Order) {
    out.push(ORDER_END);
    out.extend_from_slice(&keyspace.get().to_le_bytes());
    out.extend_from_slice(&(order.shared().len() as u32).to_le_bytes());
    for id in order.shared() {
        for word in [u32::from(id.segment), id.tag, id.check] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// As the payloads of a checkpoint lie in its pages, for images made by hand.
#[cfg(feature = "fuzz")]
pub(crate) fn pages_of(stream: &[u8]) -> Vec<Vec<u8>> {
    let count = stream.chunks(PAYLOAD).len();
    let page = |(place, chunk): (usize, &[u8])| {
        let mut page = vec![0; timestone_flash::PAGE_BYTES];
        page[6] = PageKind::Checkpoint as u8;
        crate::layout::put_u16(&mut page, 20, (PAGE_FIXED + chunk.len()) as u16);
        write_page(&mut page, 1, place as u32, place + 1 == count, chunk);
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
    /// Pages that were found torn, or were not read.
    pub(super) holes: Vec<PageId>,
    /// Those that were not read, ascending.
    pub(super) unread: Vec<PageId>,
    pub(super) spaces: Vec<(KeyspaceId, Version)>,
    pub(super) fences: Vec<(KeyspaceId, Fence)>,
    /// Keyspaces all of whose keys came in their order, with the entries of the index that several
    /// of them share.
    pub(super) orders: Vec<(KeyspaceId, Vec<KeyId>)>,
    pub(super) emptied: Vec<BlockId>,
}

/// A key that the index of a checkpoint names.
pub(super) struct NamedKey<'a> {
    pub(super) keyspace: KeyspaceId,
    pub(super) id: KeyId,
    /// Youngest first.
    pub(super) versions: &'a [(Version, Location)],
    /// Its dead records.
    pub(super) dead: u32,
    /// How many keys its segment has from it on.
    pub(super) left: u32,
}

/// What goes to whoever reads a checkpoint, piece by piece.
pub(super) enum StreamItem<'a> {
    /// A key of the index.
    Key(NamedKey<'a>),
    /// The bytes of a key, ascending.
    Ordered(KeyspaceId, &'a [u8]),
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16_at(self.bytes(2)?, 0))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32_at(self.bytes(4)?, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64_at(self.bytes(8)?, 0))
    }

    fn pages(&mut self) -> Option<Vec<PageId>> {
        let count = self.u32()? as usize;
        if count > self.0.len() / size_of::<u32>() {
            return None;
        }
        (0..count).map(|_| self.u32().map(PageId)).collect()
    }

    /// The keys of a segment, with what [`read`] tells of them.
    fn segment(&mut self, mut key: impl FnMut(NamedKey<'_>)) -> Option<()> {
        let keyspace = KeyspaceId::new(self.u32()?);
        let segment = u16::try_from(self.u32()?).ok().filter(|&at| usize::from(at) < SEGMENTS)?;
        let keys = self.u32()?;
        if keys as usize > self.0.len() / KEY_BYTES {
            return None;
        }
        let mut versions = Vec::new();
        for done in 0..keys {
            // No key has the tag of an empty slot.
            let tag = self.u32().filter(|&tag| tag != 0)?;
            let id = KeyId { segment, tag, check: self.u32()? };
            let dead = self.u32()?;
            versions.clear();
            for _ in 0..self.u32()? {
                let version = self.version()?;
                versions.push((version, Location::from_raw(self.u32()?)?));
            }
            key(NamedKey { keyspace, id, versions: &versions, dead, left: keys - done });
        }
        Some(())
    }

    /// Keys in their order.
    fn ordered(&mut self, mut take: impl FnMut(KeyspaceId, &[u8])) -> Option<()> {
        let keyspace = Some(KeyspaceId::new(self.u32()?)).filter(|id| id.is_ordered())?;
        let keys = self.u32()?;
        if keys as usize > self.0.len() / ORDERED_BYTES {
            return None;
        }
        let mut key = Vec::new();
        for _ in 0..keys {
            let shared = usize::from(self.u16()?);
            let rest = self.u32()? as usize;
            if shared > key.len() || shared + rest > MAX_KEY_BYTES {
                return None;
            }
            key.truncate(shared);
            key.extend_from_slice(self.bytes(rest)?);
            take(keyspace, &key);
        }
        Some(())
    }

    /// The end of an order.
    fn order_end(&mut self) -> Option<(KeyspaceId, Vec<KeyId>)> {
        let keyspace = Some(KeyspaceId::new(self.u32()?)).filter(|id| id.is_ordered())?;
        let mut shared = Vec::new();
        for _ in 0..self.u32()? {
            let segment =
                u16::try_from(self.u32()?).ok().filter(|&at| usize::from(at) < SEGMENTS)?;
            shared.push(KeyId { segment, tag: self.u32()?, check: self.u32()? });
        }
        Some((keyspace, shared))
    }

    fn version(&mut self) -> Option<Version> {
        let time = Timestamp::from_nanos(self.u64()?);
        Some(Version::new(time, ClientId::new(self.u32()?)))
    }
}

/// Reads the joined payloads of a checkpoint. `take` gets every key of its indexes, and every key in
/// its order. `None`: it makes no sense, and what `take` got so far must be thrown away.
pub(super) fn read(
    bytes: &[u8],
    mut take: impl FnMut(&[BlockMark], StreamItem<'_>),
) -> Option<Content> {
    let mut cursor = Cursor(bytes);
    let mut content = Content::default();
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
            HOLES => content.holes = cursor.pages()?,
            UNREAD => content.unread = cursor.pages()?,
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
                cursor.segment(|key| take(&content.blocks, StreamItem::Key(key)))?;
            }
            ORDERED => {
                cursor.ordered(|id, key| take(&content.blocks, StreamItem::Ordered(id, key)))?;
            }
            ORDER_END => content.orders.push(cursor.order_end()?),
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

#[cfg(test)]
mod tests;

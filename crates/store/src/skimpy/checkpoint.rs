//! Checkpoints: the bucket heads on flash, so that a restart need not scan everything.
//!
//! ```text
//!   begin: the open page is closed; block table, keyspaces, heads as they are now ─► stream
//!     ─► its pages, a few at every pump ─► barrier: what the heads name is durable ─► last page, synced
//! ```
//!
//! A checkpoint is the state of one moment. Recovery links what was written since, in the order of
//! the log. A head whose block was erased since is void: its bucket was rewritten, or had nothing
//! left. While a chain is damaged, a checkpoint says that everything is to be scanned: only that
//! finds what lies behind the damage.
//!
//! Invariants: one checkpoint is written at a time, to blocks of its own; those of the last complete
//! one are erased only when the next one is durable.

use timestone_flash::{BlockId, Generation, PageId};
use timestone_types::{ClientId, KeyHash, KeyspaceId, Timestamp, Version, is_planted};

use super::buckets::{Beginning, Buckets, RecordPlace};
use super::contents::FrugalContents;
use super::loose::LooseVersion;
use super::spaces::Fence;
use super::translations::{Name, Youngest};
use crate::kit::blocks::BlockState;
use crate::kit::volume::Volume;
use crate::kit::writer::{StreamId, Writer};
use crate::layout::{
    CHECKPOINT_FIXED, CHECKPOINT_PAYLOAD, NO_PAGE, PageKind, u16_at, u32_at, u64_at,
    write_checkpoint_page,
};

/// "This is of a skimpy store", and the version of the stream.
const MAGIC: u32 = u32::from_le_bytes(*b"SKM4");
/// Those of earlier versions, whose chains this one does not follow.
const EARLIER: [[u8; 4]; 3] = [*b"SKM1", *b"SKM2", *b"SKM3"];
const END: u8 = b'E';

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CheckpointStage {
    Idle,
    Streaming,
    Barrier,
    Closing,
    Ending { ordinal: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emitted {
    All,
    /// Free blocks are still being erased.
    Waiting,
    NoRoom,
}

/// What a checkpoint would find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Chains {
    Sound,
    /// Everything has to be scanned.
    Damaged,
    /// They lead through pages that could not be programmed: none can be written now.
    Displaced,
}

/// Writes checkpoints.
pub(super) struct Checkpointer {
    phase: CheckpointStage,
    wanted: bool,
    wanted_final: bool,
    final_done: bool,
    every_bytes: u64,
    begun_at: u64,
    completed: u64,
    number: u64,
    page: u32,
    buffer: Vec<u8>,
    /// How much of it is written.
    written: usize,
    ordinals: [u64; StreamId::ALL.len()],
    complete: Vec<BlockId>,
    writing: Vec<BlockId>,
}

impl Checkpointer {
    /// Goes on behind checkpoint `number`, which lies in `complete`.
    pub(super) fn resume(number: u64, complete: Vec<BlockId>, every_bytes: u64) -> Self {
        Self {
            phase: CheckpointStage::Idle,
            wanted: false,
            wanted_final: false,
            final_done: false,
            every_bytes,
            begun_at: 0,
            completed: 0,
            number,
            page: 0,
            buffer: Vec::new(),
            written: 0,
            ordinals: [0; StreamId::ALL.len()],
            complete,
            writing: Vec::new(),
        }
    }

    /// How many became durable since opening.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Asks for one.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Asks for the one that ends a shutdown. True when it is durable (or there was no room for it).
    pub(super) fn finish(&mut self) -> bool {
        if !self.final_done && !self.wanted && self.phase == CheckpointStage::Idle {
            (self.wanted, self.wanted_final) = (true, true);
        }
        self.final_done
    }

    /// Whether the next pump can do something. Pages are written while the device keeps pace: who
    /// waits for it is woken by it.
    pub(super) fn has_work(&self, writer: &Writer, chains: Chains) -> bool {
        match self.phase {
            CheckpointStage::Idle => self.wanted && chains != Chains::Displaced,
            CheckpointStage::Streaming | CheckpointStage::Closing => !writer.is_behind(),
            CheckpointStage::Barrier => self.is_behind_barrier(writer),
            CheckpointStage::Ending { ordinal } => {
                writer.ledger.is_durable(StreamId::Checkpoint, ordinal)
            }
        }
    }

    /// Whether everything that it tells of is durable.
    fn is_behind_barrier(&self, writer: &Writer) -> bool {
        let is_durable = |&of: &StreamId| writer.ledger.is_durable(of, self.ordinals[of as usize]);
        [StreamId::Hot, StreamId::Large].iter().all(is_durable)
    }

    /// Whether it waits for something to become durable.
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, CheckpointStage::Barrier | CheckpointStage::Ending { .. })
    }

    /// Goes one step further. True when a checkpoint has become durable.
    pub(super) fn pump(&mut self, core: &mut FrugalContents, chains: Chains) -> bool {
        let bytes = core.counts.put_bytes;
        let due = self.every_bytes > 0 && bytes - self.begun_at >= self.every_bytes;
        match self.phase {
            CheckpointStage::Idle if (self.wanted || due) && chains != Chains::Displaced => {
                self.begun_at = bytes;
                self.begin(core, chains == Chains::Sound);
            }
            CheckpointStage::Idle => {}
            CheckpointStage::Streaming => match self.emit(false, &mut core.kit.volume) {
                Emitted::All => self.phase = CheckpointStage::Barrier,
                Emitted::Waiting => {}
                Emitted::NoRoom => self.abandon(&mut core.kit.volume),
            },
            CheckpointStage::Barrier => {
                if self.is_behind_barrier(&core.kit.volume.writer) {
                    self.phase = CheckpointStage::Closing;
                    self.close(&mut core.kit.volume);
                }
            }
            CheckpointStage::Closing => self.close(&mut core.kit.volume),
            CheckpointStage::Ending { ordinal } => {
                if core.kit.volume.writer.ledger.is_durable(StreamId::Checkpoint, ordinal) {
                    self.done(&mut core.kit.volume);
                    return true;
                }
            }
        }
        false
    }

    fn begin(&mut self, core: &mut FrugalContents, sound: bool) {
        assert!(self.phase == CheckpointStage::Idle && self.writing.is_empty(), "one at a time");
        self.wanted = false;
        self.number += 1;
        (self.page, self.written) = (0, 0);
        core.kit.volume.end_block(StreamId::Checkpoint);
        core.kit.volume.flush(StreamId::Hot);
        core.kit.volume.flush(StreamId::Large);
        self.ordinals = StreamId::ALL.map(|stream| core.kit.volume.writer.ordinal(stream));
        self.buffer.clear();
        write(&mut self.buffer, core, sound);
        self.phase = CheckpointStage::Streaming;
    }

    fn close(&mut self, volume: &mut Volume) {
        match self.emit(true, volume) {
            Emitted::All => {}
            Emitted::Waiting => return,
            Emitted::NoRoom => return self.abandon(volume),
        }
        volume.end_block(StreamId::Checkpoint);
        self.buffer = Vec::new();
        self.phase =
            CheckpointStage::Ending { ordinal: volume.writer.ordinal(StreamId::Checkpoint) };
    }

    fn done(&mut self, volume: &mut Volume) {
        self.phase = CheckpointStage::Idle;
        let writing = core::mem::take(&mut self.writing);
        let before = core::mem::replace(&mut self.complete, writing);
        self.erase(before, volume);
        self.completed += 1;
        self.final_done |= core::mem::take(&mut self.wanted_final);
    }

    /// There is no room: what was written goes, the last complete checkpoint stays.
    fn abandon(&mut self, volume: &mut Volume) {
        volume.end_block(StreamId::Checkpoint);
        self.phase = CheckpointStage::Idle;
        let writing = core::mem::take(&mut self.writing);
        tracing::warn!(
            blocks = writing.len(),
            "no room for a checkpoint; a restart will scan more"
        );
        self.erase(writing, volume);
        self.final_done |= core::mem::take(&mut self.wanted_final);
    }

    /// A program of a block has failed: the checkpoint lies there, or names pages there that will never
    /// be programmed. It is written again from its beginning.
    pub(super) fn begin_again(&mut self, block: BlockId, volume: &mut Volume) {
        self.complete.retain(|&other| other != block);
        if self.phase == CheckpointStage::Idle {
            return;
        }
        volume.end_block(StreamId::Checkpoint);
        self.phase = CheckpointStage::Idle;
        self.wanted = true;
        let mut writing = core::mem::take(&mut self.writing);
        writing.retain(|&other| other != block);
        self.erase(writing, volume);
    }

    fn erase(&mut self, blocks: Vec<BlockId>, volume: &mut Volume) {
        for block in blocks {
            let entry = volume.blocks.get(block);
            let is_written = entry.readable == entry.pages;
            if entry.readers == 0 && entry.state == BlockState::Sealed && is_written {
                volume.erase(block);
            } else {
                // Somebody reads there: the next checkpoint's end takes it.
                self.complete.push(block);
            }
        }
    }

    /// Writes full pages of the buffer, some at a time, and with `last` what is left.
    fn emit(&mut self, last: bool, volume: &mut Volume) -> Emitted {
        for _ in 0..64 {
            let rest = &self.buffer[self.written..];
            if rest.is_empty() || (!last && rest.len() <= CHECKPOINT_PAYLOAD) {
                return Emitted::All;
            }
            if volume.writer.is_behind() {
                return Emitted::Waiting;
            }
            let chunk = &rest[..rest.len().min(CHECKPOINT_PAYLOAD)];
            let ends = last && chunk.len() == rest.len();
            let leave = volume.blocks.reserve() / 2;
            let used = (CHECKPOINT_FIXED + chunk.len()) as u16;
            let (kind, number, page) = (PageKind::Checkpoint, self.number, self.page);
            let written = volume.append_raw(StreamId::Checkpoint, kind, used, leave, |bytes| {
                write_checkpoint_page(bytes, number, page, ends, chunk);
            });
            let length = chunk.len();
            let Some(written) = written else {
                let blocks = &volume.blocks;
                return if blocks.free_count() > leave.max(blocks.clean_count()) {
                    Emitted::Waiting
                } else {
                    Emitted::NoRoom
                };
            };
            let block = volume.blocks.of(written);
            if self.writing.last() != Some(&block) {
                self.writing.push(block);
            }
            self.page += 1;
            self.written += length;
        }
        Emitted::Waiting
    }
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    put_u64(out, version.timestamp.as_nanos());
    put_u32(out, version.client.get());
}

fn put_loose(out: &mut Vec<u8>, LooseVersion { name, version, page }: LooseVersion) {
    put_u32(out, name.keyspace.get());
    put_u64(out, name.hash.0);
    put_u32(out, name.check);
    put_version(out, version);
    put_u32(out, page);
}

fn write(out: &mut Vec<u8>, core: &FrugalContents, sound: bool) {
    let (volume, buckets) = (&core.kit.volume, &core.buckets);
    put_u32(out, MAGIC);
    out.extend_from_slice(&[u8::from(sound), buckets.bits()]);
    put_u64(out, core.spaces.marks.watermark().as_nanos());
    put_u32(out, volume.blocks.largest());
    put_u64(out, core.records);
    put_u64(out, core.record_bytes);
    put_u32(out, volume.blocks.count());
    for number in 0..volume.blocks.count() {
        let block = BlockId(number);
        let entry = volume.blocks.get(block);
        put_u32(out, entry.generation.0);
        put_u32(out, volume.scan_from(block));
        entry.counts().into_iter().for_each(|count| put_u32(out, count));
    }
    put_u32(out, core.spaces.list.len() as u32);
    for space in &core.spaces.list {
        put_u32(out, space.id.get());
        put_version(out, space.youngest);
        put_u32(out, space.fences.len() as u32);
        for fence in &space.fences {
            put_version(out, fence.version);
            put_u32(out, fence.page);
        }
    }
    let groups = buckets.saved_groups();
    groups.for_each(|first| put_u64(out, buckets.youngest(first).as_nanos()));
    buckets.heads().for_each(|head| put_u32(out, head));
    let pieces: Vec<u32> = buckets.in_pieces().collect();
    put_u32(out, pieces.len() as u32);
    for bucket in pieces {
        let older = buckets.older(bucket);
        put_u32(out, bucket);
        put_u32(out, older.len() as u32);
        for beginning in older {
            match beginning {
                Beginning::Chain(place) => {
                    put_u32(out, place.page);
                    out.extend_from_slice(&place.slot.to_le_bytes());
                }
                Beginning::Loose(version) => {
                    put_u32(out, NO_PAGE);
                    put_loose(out, *version);
                }
            }
        }
    }
    let loose: Vec<(Name, Youngest)> = match is_planted!(ForgetsLoose) {
        true => Vec::new(),
        false => core.translations.loose_among(0..=u64::MAX).collect(),
    };
    put_u32(out, loose.len() as u32);
    for (name, youngest) in loose {
        let Youngest { version, page, exact, .. } = youngest;
        put_loose(out, LooseVersion { name, version, page });
        out.push(u8::from(exact));
    }
    let scars = buckets.scars();
    put_u32(out, scars.len() as u32);
    scars.for_each(|page| put_u32(out, page));
    let holes = volume.blocks.holes();
    put_u32(out, holes.len() as u32);
    holes.for_each(|page| put_u32(out, page));
    out.push(END);
}

/// What a checkpoint says of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockMark {
    pub(super) generation: Generation,
    pub(super) scan_from: u32,
    pub(super) counts: [u32; 4],
}

/// A checkpoint.
pub(super) struct CheckpointContent {
    /// Otherwise everything is to be scanned.
    pub(super) sound: bool,
    pub(super) watermark: Timestamp,
    pub(super) largest: u32,
    pub(super) records: u64,
    pub(super) record_bytes: u64,
    pub(super) blocks: Vec<BlockMark>,
    pub(super) spaces: Vec<(KeyspaceId, Version, Vec<Fence>)>,
    pub(super) buckets: Buckets,
    /// Youngest versions of keys to which no chain leads, and whether their prior pointers are exact.
    pub(super) loose: Vec<(LooseVersion, bool)>,
    /// Pages that a crash took: what points there points nowhere.
    pub(super) holes: Vec<PageId>,
}

struct StreamReader<'a>(&'a [u8]);

impl StreamReader<'_> {
    fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16_at(self.take(2)?, 0))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32_at(self.take(4)?, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64_at(self.take(8)?, 0))
    }

    fn version(&mut self) -> Option<Version> {
        let timestamp = Timestamp::from_nanos(self.u64()?);
        Some(Version::new(timestamp, ClientId::new(self.u32()?)))
    }

    fn loose(&mut self) -> Option<LooseVersion> {
        let keyspace = KeyspaceId::new(self.u32()?);
        let (hash, check) = (KeyHash(self.u64()?), self.u32()?);
        let (version, page) = (self.version()?, self.u32()?);
        Some(LooseVersion { name: Name { keyspace, hash, check }, version, page })
    }

    /// A number of things that take at least so many bytes each.
    fn count(&mut self, least: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count.checked_mul(least)? <= self.0.len()).then_some(count)
    }
}

/// Whether a checkpoint is one of an earlier version.
pub(super) fn is_earlier(bytes: &[u8]) -> bool {
    EARLIER.iter().any(|magic| bytes.starts_with(magic))
}

/// Reads what [`write`] wrote, on a device of at most so many pages; `None` when it makes no sense.
pub(super) fn read(bytes: &[u8], pages: u32) -> Option<CheckpointContent> {
    let mut reader = StreamReader(bytes);
    if reader.u32()? != MAGIC {
        return None;
    }
    let sound = reader.u8()? == 1;
    let bits = reader.u8()?;
    let watermark = Timestamp::from_nanos(reader.u64()?);
    let (largest, records, record_bytes) = (reader.u32()?, reader.u64()?, reader.u64()?);
    let mut blocks = Vec::new();
    for _ in 0..reader.count(24)? {
        let generation = Generation(reader.u32()?);
        let scan_from = reader.u32()?;
        let counts = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        blocks.push(BlockMark { generation, scan_from, counts });
    }
    let mut spaces = Vec::new();
    for _ in 0..reader.count(20)? {
        let (id, youngest) = (KeyspaceId::new(reader.u32()?), reader.version()?);
        let mut fences = Vec::new();
        for _ in 0..reader.count(16)? {
            fences.push(Fence { version: reader.version()?, page: reader.u32()? });
        }
        spaces.push((id, youngest, fences));
    }
    if !Buckets::has_room_for(bits) || reader.0.len() < 4usize.checked_shl(bits.into())? {
        return None;
    }
    let mut buckets = Buckets::new(bits, pages);
    for first in buckets.saved_groups() {
        buckets.raise_youngest(first, Timestamp::from_nanos(reader.u64()?));
    }
    for bucket in 0..buckets.count() {
        let head = reader.u32()?;
        if !buckets.may_begin_in(head) {
            return None;
        }
        buckets.restore(bucket, head, Vec::new());
    }
    for _ in 0..reader.count(8)? {
        let bucket = reader.u32()?;
        if bucket >= buckets.count() {
            return None;
        }
        let mut older = Vec::new();
        for _ in 0..reader.count(6)? {
            older.push(match reader.u32()? {
                NO_PAGE => Beginning::Loose(reader.loose()?),
                page => Beginning::Chain(RecordPlace { page, slot: reader.u16()? }),
            });
        }
        let head = buckets.head(bucket);
        buckets.restore(bucket, head, older);
    }
    let mut loose = Vec::new();
    for _ in 0..reader.count(33)? {
        let version = reader.loose()?;
        loose.push((version, reader.u8()? == 1));
    }
    for _ in 0..reader.count(4)? {
        buckets.add_scar(reader.u32()?);
    }
    let mut holes = Vec::new();
    for _ in 0..reader.count(4)? {
        holes.push(PageId(reader.u32()?));
    }
    (reader.u8()? == END && reader.0.is_empty()).then_some(CheckpointContent {
        sound,
        watermark,
        largest,
        records,
        record_bytes,
        blocks,
        spaces,
        buckets,
        loose,
        holes,
    })
}

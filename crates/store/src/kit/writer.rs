//! Packing records into pages, pages into groups, and knowing what has become durable.
//!
//! ```text
//!   record ─► open page ─sealed─► group (512 KiB, one block) ─submit─► device ─sync─► durable
//!                └────────── readable from here ───────────┘ (until its program completes)
//! ```
//!
//! Streams keep apart what dies at different times: puts of keys that change often and of others,
//! survivors of collection, large values, checkpoints. Each has one open block and one group being filled. A group's bytes stay
//! until all its programs have completed, so whatever was written can be read at once; the device
//! gets a copy.
//!
//! A stream's pages are numbered by *ordinals*, so that anybody can wait for "everything up to
//! here"; what of it is durable is in the [`super::ledger`].
//!
//! Invariants: pages of a block are submitted in order; `completed ≤ submitted ≤ sealed ≤ pages ≤
//! capacity` in every group.

use timestone_flash::{AlignedBuffer, BlockId, FlashOp, PAGE_BYTES, PageId};
use timestone_types::{HashSeed, Timestamp};

use super::blocks::Blocks;
use super::ledger::{Held, Ledger, Program};
use super::port::{Port, Purpose, given_back_of};
use crate::layout::{self, HEADER_BYTES, PageHeader, PageKind, Record};
use crate::limits::GROUP_PAGES;

/// Groups that may wait for the device; beyond, puts are answered with `Busy`.
pub(crate) const MAX_GROUPS: usize = 64;
/// Never fewer than so many: each stream fills one, and as many are on their way.
const LEAST_GROUPS: usize = 2 * StreamId::ALL.len();
/// Groups of one block of common size, of which the first may have begun anywhere.
const GROUPS_OF_BLOCK: usize = 3;
/// Bytes of a group, and of the copy of it that the device has.
const GROUP_BYTES: u64 = 2 * GROUP_PAGES as u64 * PAGE_BYTES as u64;

const _: () = assert!(StreamId::ALL.len() == crate::limits::OPEN_BLOCKS as usize);

/// What is written together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum StreamId {
    /// Puts, but for those in `Warm`.
    Hot = 0,
    /// What collection has moved.
    Cold = 1,
    Large = 2,
    Checkpoint = 3,
    /// What collection has moved although a younger version is there: it dies when the watermark
    /// passes that one.
    Superseded = 4,
    /// Puts of keys that were not put for long: they will live as long again.
    Warm = 5,
}

impl StreamId {
    pub(crate) const ALL: [Self; 6] =
        [Self::Hot, Self::Cold, Self::Large, Self::Checkpoint, Self::Superseded, Self::Warm];

    fn records(self) -> PageKind {
        if self == Self::Large { PageKind::LargeHeads } else { PageKind::Records }
    }
}

#[derive(Debug, Default)]
struct Stream {
    block: Option<BlockId>,
    group: Option<u64>,
    /// Pages begun.
    started: u64,
    /// The last page begun takes more records.
    open: bool,
    open_since: Timestamp,
    sealed_since: Option<Timestamp>,
}

#[derive(Debug)]
struct Group {
    id: u64,
    stream: StreamId,
    block: BlockId,
    first: u32,
    capacity: u32,
    pages: u32,
    sealed: u32,
    submitted: u32,
    completed: u32,
    bytes: AlignedBuffer,
    /// In its sealed pages that are not submitted, and in its open page.
    sealed_held: Held,
    open_held: Held,
}

impl Group {
    fn page(&self, index: u32) -> &[u8] {
        let at = (index - self.first) as usize * PAGE_BYTES;
        &self.bytes[at..at + PAGE_BYTES]
    }
}

/// Identity that is stamped into pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) store: u64,
    pub(crate) seed: HashSeed,
}

/// The streams of one store.
pub(crate) struct Writer {
    pub(crate) stamp: Stamp,
    /// The sequence number of the next page.
    sequence: u64,
    /// The log batch of puts from now on.
    batch: u64,
    now: Timestamp,
    programmed_pages: u64,
    streams: [Stream; StreamId::ALL.len()],
    groups: Vec<Group>,
    /// How many there may be before puts wait, besides those of blocks that failed.
    most_groups: usize,
    next_group: u64,
    spare: Vec<AlignedBuffer>,
    /// Spare ones that nobody took since [`Writer::give_back`] was called.
    idle_spare: usize,
    pub(crate) ledger: Ledger,
}

impl Writer {
    /// Streams without blocks, whose first page has this sequence number.
    pub(crate) fn new(stamp: Stamp, sequence: u64) -> Self {
        Self {
            stamp,
            sequence,
            batch: 0,
            now: Timestamp::ZERO,
            programmed_pages: 0,
            streams: Default::default(),
            groups: Vec::new(),
            most_groups: MAX_GROUPS,
            next_group: 0,
            spare: Vec::new(),
            idle_spare: 0,
            ledger: Ledger::default(),
        }
    }

    /// Has puts wait when groups and their copies take so many bytes.
    pub(crate) fn bound_groups(&mut self, bytes: u64) {
        let most = usize::try_from(bytes / GROUP_BYTES).unwrap_or(MAX_GROUPS);
        self.most_groups = most.clamp(LEAST_GROUPS, MAX_GROUPS);
    }

    /// The time that it was told last.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Time goes on.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.assert_sound();
    }

    /// Puts from now on belong to a log batch.
    #[inline]
    pub(crate) fn begin_batch(&mut self, batch: u64) {
        debug_assert!(batch >= self.batch, "batch numbers rise");
        self.batch = self.batch.max(batch);
    }

    /// Batches are numbered anew: what was put so far belongs to one below all of them.
    pub(crate) fn number_anew(&mut self) {
        self.batch = 0;
        self.ledger.held_mut().for_each(Held::number_anew);
        for group in &mut self.groups {
            group.sealed_held.number_anew();
            group.open_held.number_anew();
        }
        debug_assert!(
            self.not_durable().all(|held| held.batch == 0 || held.batch == u64::MAX),
            "nothing keeps its number"
        );
    }

    /// The log batch that puts belong to.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// Pages handed to the device since opening.
    pub(crate) fn programmed_pages(&self) -> u64 {
        self.programmed_pages
    }

    /// Whether so much waits for the device that puts should wait, too.
    pub(crate) fn is_behind(&self) -> bool {
        let of_failed = self.ledger.failed_blocks() * GROUPS_OF_BLOCK;
        self.groups.len() >= (self.most_groups + of_failed).min(MAX_GROUPS)
    }

    /// Bytes of the groups' pages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.groups.len() + self.spare.len()) as u64 * (GROUP_PAGES as usize * PAGE_BYTES) as u64
    }

    /// Gives the system back some of the spare memory that nobody took since this was called last.
    pub(crate) fn give_back(&mut self) {
        let left = self.spare.len() - given_back_of(self.idle_spare);
        self.spare.truncate(left);
        self.idle_spare = left;
        self.assert_sound();
    }

    /// Whether a record would fit without a new block.
    pub(crate) fn has_room(&self, stream: StreamId, bytes: usize, blocks: &Blocks) -> bool {
        let state = &self.streams[stream as usize];
        let Some(block) = state.block else { return false };
        blocks.get(block).pages < blocks.geometry.pages_per_block
            || (state.open
                && self.open_page(stream).is_some_and(|page| layout::room(page) >= bytes))
    }

    /// Pages that a stream may begin without a new block.
    pub(crate) fn pages_left(&self, stream: StreamId, blocks: &Blocks) -> u32 {
        let block = self.streams[stream as usize].block;
        block.map_or(0, |block| blocks.geometry.pages_per_block - blocks.get(block).pages)
    }

    /// Bytes that the open page of a stream has for further records, with what each takes beside; zero
    /// when none is open.
    pub(crate) fn room_in_page(&self, stream: StreamId) -> usize {
        let page = self.open_page(stream).filter(|_| self.streams[stream as usize].open);
        page.map_or(0, |page| layout::room(page) + layout::SLOT_BYTES)
    }

    fn group_index(&self, id: u64) -> Option<usize> {
        self.groups.iter().rposition(|group| group.id == id)
    }

    fn open_page(&self, stream: StreamId) -> Option<&[u8]> {
        let group = &self.groups[self.group_index(self.streams[stream as usize].group?)?];
        Some(group.page(group.first + group.pages - 1))
    }

    /// Of every group: what is submitted is sealed, what is sealed was begun.
    #[inline]
    fn assert_sound(&self) {
        let is_sound = |group: &Group| {
            group.completed <= group.submitted
                && group.submitted <= group.sealed
                && group.sealed <= group.pages
                && group.pages <= group.capacity
        };
        debug_assert!(self.groups.iter().all(is_sound), "pages go from begun to completed");
    }

    /// Adds a record; `None` when there is no block for it (`leave` free ones must stay).
    pub(crate) fn append(
        &mut self,
        stream: StreamId,
        record: &Record<'_>,
        check: u32,
        leave: u32,
        blocks: &mut Blocks,
        port: &mut Port,
    ) -> Option<PageId> {
        let held = match stream {
            StreamId::Hot | StreamId::Warm => {
                Held { batch: self.batch, oldest: record.version.timestamp }
            }
            StreamId::Cold | StreamId::Superseded | StreamId::Large | StreamId::Checkpoint => {
                Held::NOTHING
            }
        };
        self.append_held(stream, (record, held), check, leave, (blocks, port))
    }

    /// As [`Self::append`], of a record that is of these puts.
    pub(crate) fn append_held(
        &mut self,
        stream: StreamId,
        (record, held): (&Record<'_>, Held),
        check: u32,
        leave: u32,
        (blocks, port): (&mut Blocks, &mut Port),
    ) -> Option<PageId> {
        self.assert_sound();
        let bytes = record.bytes();
        if self.streams[stream as usize].open
            && self.open_page(stream).is_none_or(|page| layout::room(page) < bytes)
        {
            self.seal(stream, blocks, port);
        }
        if !self.streams[stream as usize].open {
            self.begin_page(stream, stream.records(), leave, blocks)?;
            let state = &mut self.streams[stream as usize];
            state.open = true;
            state.open_since = self.now;
        }
        let at = self.group_index(self.streams[stream as usize].group?)?;
        let group = &mut self.groups[at];
        let index = group.pages as usize - 1;
        layout::append(
            &mut group.bytes[index * PAGE_BYTES..(index + 1) * PAGE_BYTES],
            record,
            check,
        );
        group.open_held.add(held);
        let block = group.block;
        let page = blocks.geometry.page(block, group.first + index as u32);
        let expires = (!record.expires_at.is_never()).then(|| record.expires_at.timestamp());
        blocks.usage(block).wrote((bytes + layout::SLOT_BYTES) as u32, expires);
        Some(page)
    }

    /// Notes that the open page of a stream holds a put that was made earlier.
    pub(crate) fn note_put(&mut self, stream: StreamId, held: Held) {
        self.assert_sound();
        let Some(at) = self.streams[stream as usize].group.and_then(|id| self.group_index(id))
        else {
            return;
        };
        self.groups[at].open_held.add(held);
    }

    /// Adds a page that holds no records; `fill` writes what is behind the page header.
    pub(crate) fn append_raw(
        &mut self,
        stream: StreamId,
        kind: PageKind,
        used: u16,
        leave: u32,
        (blocks, port): (&mut Blocks, &mut Port),
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<PageId> {
        self.assert_sound();
        if self.streams[stream as usize].open {
            self.seal(stream, blocks, port);
        }
        self.begin_page(stream, kind, leave, blocks)?;
        let at = self.group_index(self.streams[stream as usize].group?)?;
        let group = &mut self.groups[at];
        let index = group.pages as usize - 1;
        let bytes = &mut group.bytes[index * PAGE_BYTES..(index + 1) * PAGE_BYTES];
        layout::put_u16(bytes, 20, used);
        fill(bytes);
        let block = group.block;
        let page = blocks.geometry.page(block, group.first + index as u32);
        blocks.usage(block).wrote_raw();
        self.seal(stream, blocks, port);
        Some(page)
    }

    /// Begins the next page of a stream, in a new group or block when needed.
    fn begin_page(
        &mut self,
        stream: StreamId,
        kind: PageKind,
        leave: u32,
        blocks: &mut Blocks,
    ) -> Option<()> {
        self.assert_sound();
        let pages_per_block = blocks.geometry.pages_per_block;
        let current = self.streams[stream as usize].group.and_then(|id| self.group_index(id));
        let at = match current {
            Some(at) if self.groups[at].pages < self.groups[at].capacity => at,
            _ => {
                let open = self.streams[stream as usize]
                    .block
                    .filter(|&block| blocks.get(block).pages < pages_per_block);
                let block = match open {
                    Some(block) => block,
                    None => {
                        let fresh = blocks.take(stream, leave)?;
                        if let Some(full) = self.streams[stream as usize].block.replace(fresh) {
                            blocks.seal(full);
                        }
                        fresh
                    }
                };
                self.begin_group(stream, block, blocks.get(block).pages, pages_per_block)
            }
        };
        let group = &mut self.groups[at];
        let index = group.first + group.pages;
        let header = PageHeader {
            kind,
            generation: blocks.get(group.block).generation,
            page: blocks.geometry.page(group.block, index),
            count: 0,
            used: HEADER_BYTES as u16,
            store: self.stamp.store,
            seed: self.stamp.seed.0,
            sequence: self.sequence,
        };
        let begin = group.pages as usize * PAGE_BYTES;
        layout::init_page(&mut group.bytes[begin..begin + PAGE_BYTES], &header);
        group.pages += 1;
        blocks.page_begun(group.block);
        self.sequence += 1;
        self.streams[stream as usize].started += 1;
        Some(())
    }

    fn begin_group(
        &mut self,
        stream: StreamId,
        block: BlockId,
        first: u32,
        pages_per_block: u32,
    ) -> usize {
        assert!(first < pages_per_block, "a block that is full takes no group");
        let capacity = GROUP_PAGES.min(pages_per_block - first);
        let bytes = self
            .spare
            .pop()
            .unwrap_or_else(|| AlignedBuffer::zeroed(GROUP_PAGES as usize * PAGE_BYTES));
        self.idle_spare = self.idle_spare.min(self.spare.len());
        let id = self.next_group;
        self.next_group += 1;
        self.groups.push(Group {
            id,
            stream,
            block,
            first,
            capacity,
            pages: 0,
            sealed: 0,
            submitted: 0,
            completed: 0,
            bytes,
            sealed_held: Held::NOTHING,
            open_held: Held::NOTHING,
        });
        self.streams[stream as usize].group = Some(id);
        self.groups.len() - 1
    }

    /// Completes the page that was begun last; a full group leaves for the device.
    fn seal(&mut self, stream: StreamId, blocks: &Blocks, port: &mut Port) {
        let state = &mut self.streams[stream as usize];
        let Some(id) = state.group else { return };
        state.open = false;
        state.sealed_since.get_or_insert(self.now);
        let Some(at) = self.group_index(id) else { return };
        let group = &mut self.groups[at];
        if group.sealed == group.pages {
            return;
        }
        let begin = group.sealed as usize * PAGE_BYTES;
        layout::seal(&mut group.bytes[begin..begin + PAGE_BYTES]);
        group.sealed += 1;
        debug_assert!(group.sealed <= group.pages, "what is sealed was begun");
        group.sealed_held.add(core::mem::replace(&mut group.open_held, Held::NOTHING));
        if group.sealed == group.capacity {
            self.submit(stream, blocks, port);
        }
    }

    /// Hands the sealed pages of a stream to the device.
    fn submit(&mut self, stream: StreamId, blocks: &Blocks, port: &mut Port) {
        let state = &mut self.streams[stream as usize];
        state.sealed_since = None;
        let Some(at) =
            state.group.and_then(|id| self.groups.iter().rposition(|group| group.id == id))
        else {
            return;
        };
        let group = &mut self.groups[at];
        let pages = group.sealed - group.submitted;
        if pages == 0 {
            return;
        }
        let mut buffer = port.buffer(pages);
        let begin = group.submitted as usize * PAGE_BYTES;
        buffer.copy_from_slice(&group.bytes[begin..begin + pages as usize * PAGE_BYTES]);
        let page = blocks.geometry.page(group.block, group.first + group.submitted);
        group.submitted = group.sealed;
        assert!(group.sealed <= group.pages && group.pages <= group.capacity);
        let unsealed = u64::from(group.pages - group.sealed);
        let number = self.ledger.submitted(Program {
            group: group.id,
            stream,
            pages,
            ordinal: state.started - unsealed,
            held: core::mem::replace(&mut group.sealed_held, Held::NOTHING),
        });
        port.write(FlashOp::Program { token: Purpose::Program.token(number), page, buffer });
        self.programmed_pages += u64::from(pages);
        if group.submitted == group.capacity {
            state.group = None;
        }
    }

    /// The open page of a stream takes no more records.
    pub(crate) fn end_page(&mut self, stream: StreamId, blocks: &Blocks, port: &mut Port) {
        self.assert_sound();
        if self.streams[stream as usize].open {
            self.seal(stream, blocks, port);
        }
    }

    /// Seals the open page of a stream and hands everything to the device.
    pub(crate) fn flush(&mut self, stream: StreamId, blocks: &Blocks, port: &mut Port) {
        self.assert_sound();
        if self.streams[stream as usize].open {
            self.seal(stream, blocks, port);
        }
        self.submit(stream, blocks, port);
    }

    /// Ends the open block of a stream after flushing, so that it may be collected.
    pub(crate) fn end_block(&mut self, stream: StreamId, blocks: &mut Blocks, port: &mut Port) {
        self.assert_sound();
        self.flush(stream, blocks, port);
        let state = &mut self.streams[stream as usize];
        state.group = None;
        if let Some(block) = state.block.take() {
            blocks.seal(block);
            port.seal(block);
        }
        self.retire();
    }

    /// Hands over what has waited long enough.
    pub(crate) fn flush_due(
        &mut self,
        packing: core::time::Duration,
        partial: core::time::Duration,
        blocks: &Blocks,
        port: &mut Port,
    ) {
        self.assert_sound();
        for stream in StreamId::ALL {
            let state = &self.streams[stream as usize];
            if state.open && self.now >= state.open_since.saturating_add(partial) {
                self.flush(stream, blocks, port);
            } else if state
                .sealed_since
                .is_some_and(|since| self.now >= since.saturating_add(packing))
            {
                self.submit(stream, blocks, port);
            }
        }
    }

    /// When [`Self::flush_due`] has something to do next.
    pub(crate) fn flush_deadline(
        &self,
        packing: core::time::Duration,
        partial: core::time::Duration,
    ) -> Option<Timestamp> {
        let open = self
            .streams
            .iter()
            .filter(|state| state.open)
            .map(|state| state.open_since.saturating_add(partial));
        let sealed = self
            .streams
            .iter()
            .filter_map(|state| state.sealed_since)
            .map(|since| since.saturating_add(packing));
        open.chain(sealed).min()
    }

    /// A program has completed.
    pub(crate) fn programmed(&mut self, number: u64, blocks: &mut Blocks) {
        let Some((id, pages)) = self.ledger.programmed(number) else { return };
        let Some(at) = self.group_index(id) else { return };
        let group = &mut self.groups[at];
        group.completed += pages;
        assert!(group.completed <= group.submitted, "what completes was submitted");
        blocks.programmed(group.block, pages);
        self.retire();
    }

    /// A program has failed. The block when this is its first failure: its stream goes on in another
    /// block, and its pages that are not on flash stay in memory until [`Self::relocated`].
    pub(crate) fn program_failed(&mut self, number: u64, blocks: &mut Blocks) -> Option<BlockId> {
        let (id, held) = self.ledger.failed(number)?;
        let group = &self.groups[self.group_index(id)?];
        let (block, stream) = (group.block, group.stream);
        if !self.ledger.displace(block, stream, held) {
            return None;
        }
        let state = &mut self.streams[stream as usize];
        if state.block == Some(block) {
            (state.block, state.group, state.open, state.sealed_since) = (None, None, false, None);
            blocks.seal(block);
        }
        let mut never_submitted = false;
        for group in self.groups.iter_mut().filter(|group| group.block == block) {
            if group.sealed < group.pages {
                let begin = group.sealed as usize * PAGE_BYTES;
                layout::seal(&mut group.bytes[begin..begin + PAGE_BYTES]);
                group.sealed = group.pages;
            }
            never_submitted |= group.submitted < group.pages;
            for held in [&mut group.sealed_held, &mut group.open_held] {
                let held = core::mem::replace(held, Held::NOTHING);
                self.ledger.displace(block, stream, held);
            }
        }
        if never_submitted {
            self.ledger.skipped(stream, self.streams[stream as usize].started);
        }
        self.assert_sound();
        Some(block)
    }

    /// What was displaced from a block that failed is durable elsewhere.
    pub(crate) fn relocated(&mut self, block: BlockId) {
        self.ledger.relocated(block);
        while let Some(at) = self.groups.iter().position(|group| group.block == block) {
            let group = self.groups.swap_remove(at);
            if self.spare.len() < 8 {
                self.spare.push(group.bytes);
            }
        }
        self.assert_sound();
    }

    /// Drops groups that are on flash whole and take no more pages.
    fn retire(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            let group = &self.groups[at];
            let current = self.streams[group.stream as usize].group == Some(group.id);
            if !current && group.completed == group.pages {
                let group = self.groups.swap_remove(at);
                if self.spare.len() < 8 {
                    self.spare.push(group.bytes);
                }
            } else {
                at += 1;
            }
        }
        self.assert_sound();
    }

    /// The bytes of a page that is not readable from the device yet.
    pub(crate) fn page(&self, page: PageId, blocks: &Blocks) -> Option<&[u8]> {
        let block = blocks.of(page);
        let index = blocks.geometry.index_of(page);
        let group = self.groups.iter().find(|group| {
            group.block == block && (group.first..group.first + group.pages).contains(&index)
        })?;
        Some(group.page(index))
    }

    /// The number of the page begun last in a stream.
    pub(crate) fn ordinal(&self, stream: StreamId) -> u64 {
        self.streams[stream as usize].started
    }

    /// Whether everything that was written is durable.
    pub(crate) fn all_durable(&self) -> bool {
        StreamId::ALL.iter().all(|&stream| self.ledger.is_durable(stream, self.ordinal(stream)))
    }

    /// The lowest batch with a put that is not durable.
    pub(crate) fn lowest_unstable(&self) -> u64 {
        self.not_durable().map(|held| held.batch).min().unwrap_or(u64::MAX)
    }

    /// The lowest timestamp of a put that is not durable.
    pub(crate) fn oldest_unstable(&self) -> Timestamp {
        self.not_durable().map(|held| held.oldest).min().unwrap_or(Timestamp::MAX)
    }

    fn not_durable(&self) -> impl Iterator<Item = Held> + '_ {
        let pending = self.ledger.held();
        let packed = self.groups.iter().flat_map(|group| [group.sealed_held, group.open_held]);
        pending.chain(packed)
    }

    /// Where the next record of a stream would go at the earliest: everything before it in its
    /// block is complete.
    pub(crate) fn scan_from(&self, block: BlockId, blocks: &Blocks) -> u32 {
        let pages = blocks.get(block).pages;
        let open = self.streams.iter().any(|state| state.block == Some(block) && state.open);
        pages - u32::from(open)
    }
}

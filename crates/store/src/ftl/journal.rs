//! The journal: what makes the map durable.
//!
//! ```text
//!   entries wait ─► sync (their data) ─► program: entries, parts of the map ─► sync ─► durable
//!                                            │
//!   log of flushes:  … │ e │ e m │ e │ e M │ e │ e m │ …   M ends a round of the whole map
//!                      └ what lies before the last whole round goes
//! ```
//!
//! A flush is durable as a whole or counts as nothing. It is built from what has been programmed,
//! and written when that is durable: so whoever finds it, synced or not, finds the pages that it
//! names. For every two pages of entries a page of the map itself is written, so the log stays
//! short, and no flush is long. Replaying the log from the beginning of the last whole round gives
//! the map. The bytes are in `docs/formats/ftl.md`.
//!
//! Invariants: one flush is under way; entries become durable in order.

use std::collections::VecDeque;

use timestone_flash::{AlignedBuffer, BlockId, FlashOp, Generation, PAGE_BYTES, PageId, Token};

use timestone_types::is_planted;

use super::blocks::{Blocks, Content, State};
use super::map::Map;
use super::slab::Slab;
use super::task::Task;
use crate::kit::port::Port;

/// `TSFT`.
const MAGIC: u32 = u32::from_le_bytes(*b"TSFT");
/// Above every number of a flush: nothing lives to write so many.
const MAX_FLUSH: u64 = 1 << 62;
/// Version of the pages' layout.
pub(super) const FORMAT: u16 = 1;
/// Bytes of a page's header.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 12;
/// Entries of a page.
const ENTRIES: usize = (PAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Words of the map in a page.
const WORDS: usize = (PAGE_BYTES - HEADER_BYTES) / size_of::<u32>();
/// Pages of entries in a flush, at most.
const MAX_ENTRY_PAGES: u32 = 32;
/// Pages of entries for which one page of the map is written.
const ENTRY_PAGES_OF_PART: u32 = 2;
const CRC: core::ops::Range<usize> = 8..12;

/// Pages of entries in a flush on blocks of this size, at most.
const fn entry_pages(pages_per_block: u32) -> u32 {
    let quarter = pages_per_block / 4;
    if quarter == 0 {
        1
    } else if quarter > MAX_ENTRY_PAGES {
        MAX_ENTRY_PAGES
    } else {
        quarter
    }
}

/// Pages that the map of so many logical blocks takes.
pub(super) fn map_pages(logical_blocks: u32, pages_per_block: u32) -> u32 {
    (logical_blocks * (pages_per_block + 1)).div_ceil(WORDS as u32).max(1)
}

/// Blocks that the journal takes at most: two rounds, what is written at an opening, and blocks
/// that are begun.
pub(super) fn most_blocks(logical_blocks: u32, pages_per_block: u32) -> u32 {
    let map = map_pages(logical_blocks, pages_per_block);
    let rounds = 2 * (1 + ENTRY_PAGES_OF_PART) * map + 3 * entry_pages(pages_per_block);
    rounds.div_ceil(pages_per_block) + 3 + map.div_ceil(pages_per_block)
}

/// A change of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// Logical pages are in the pages from here on.
    Placed { page: u32, place: u32, pages: u32 },
    /// A logical block was erased, and has this generation now.
    Trimmed { block: u32, generation: u32 },
}

impl Entry {
    fn write(self, bytes: &mut [u8]) {
        let words = match self {
            Self::Placed { page, place, pages } => [page, place, pages],
            Self::Trimmed { block, generation } => [block, generation, 0],
        };
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Self {
        match (word(bytes, 0), word(bytes, 4), word(bytes, 8)) {
            (block, generation, 0) => Self::Trimmed { block, generation },
            (page, place, pages) => Self::Placed { page, place, pages },
        }
    }

    /// Changes the map; `None` when the entry names what is not there.
    pub(super) fn apply(self, map: &mut Map, device_pages: u32) -> Option<()> {
        match self {
            Self::Placed { page, place, pages } => {
                let within =
                    |first: u32, all: u32| first.checked_add(pages).is_some_and(|end| end <= all);
                let logical = map.pages_of(BlockId(map.blocks())).start;
                if !within(page, logical) || !within(place, device_pages) {
                    return None;
                }
                (0..pages).for_each(|n| map.set(PageId(page + n), PageId(place + n)));
            }
            Self::Trimmed { block, generation } => {
                if block >= map.blocks() || generation == 0 {
                    return None;
                }
                map.trim(BlockId(block), Generation(generation)).for_each(drop);
            }
        }
        Some(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What a page of the journal says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The number of the flush.
    pub(super) flush: u64,
    /// Counts the openings of the device.
    pub(super) epoch: u32,
    /// Which page of the flush.
    pub(super) index: u32,
    /// Pages of the flush.
    pub(super) pages: u32,
    /// Entries or words in it.
    count: u32,
    /// The first word, on a page of the map.
    first: u32,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Entries = 1,
    Map = 2,
    /// The last part of the map.
    MapEnd = 3,
}

impl Header {
    fn write(&self, page: &mut [u8]) {
        page[..HEADER_BYTES].fill(0);
        page[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        page[4..6].copy_from_slice(&FORMAT.to_le_bytes());
        page[6] = self.kind as u8;
        page[12..16].copy_from_slice(&self.count.to_le_bytes());
        page[16..24].copy_from_slice(&self.flush.to_le_bytes());
        page[24..28].copy_from_slice(&self.epoch.to_le_bytes());
        page[28..32].copy_from_slice(&self.index.to_le_bytes());
        page[32..36].copy_from_slice(&self.pages.to_le_bytes());
        page[36..40].copy_from_slice(&self.first.to_le_bytes());
    }

    /// Reads a page of the journal that is where it belongs. `None` for anything else.
    pub(super) fn read(page: &[u8], place: PageId, generation: Generation) -> Option<Self> {
        if word(page, 0) != MAGIC
            || u16::from_le_bytes([page[4], page[5]]) != FORMAT
            || word(page, 40) != place.0
            || word(page, 44) != generation.0
            || word(page, 8) != checksum(page)
        {
            return None;
        }
        let kind = match page[6] {
            1 => Kind::Entries,
            2 => Kind::Map,
            3 => Kind::MapEnd,
            _ => return None,
        };
        let header = Self {
            flush: u64::from(word(page, 16)) | u64::from(word(page, 20)) << 32,
            epoch: word(page, 24),
            index: word(page, 28),
            pages: word(page, 32),
            count: word(page, 12),
            first: word(page, 36),
            kind,
        };
        let most = if kind == Kind::Entries { ENTRIES } else { WORDS };
        let makes_sense = header.count as usize <= most
            && header.index < header.pages
            && header.first.checked_add(header.count).is_some()
            && header.flush < MAX_FLUSH
            && header.epoch < u32::MAX;
        makes_sense.then_some(header)
    }

    /// Whether a round of the map begins here.
    pub(super) fn begins_round(&self) -> bool {
        self.kind != Kind::Entries && self.first == 0
    }

    /// Whether it ends here.
    pub(super) fn ends_round(&self) -> bool {
        self.kind == Kind::MapEnd
    }

    /// Takes in what the page holds; `None` when that cannot be.
    pub(super) fn apply(&self, page: &[u8], map: &mut Map, device_pages: u32) -> Option<()> {
        let content = &page[HEADER_BYTES..];
        if self.kind == Kind::Entries {
            let mut entries = content.chunks_exact(ENTRY_BYTES).take(self.count as usize);
            return entries.try_for_each(|bytes| Entry::read(bytes).apply(map, device_pages));
        }
        let mut words = content.chunks_exact(4).take(self.count as usize).zip(self.first..);
        words.try_for_each(|(bytes, at)| map.set_word(at, word(bytes, 0)))
    }
}

fn checksum(page: &[u8]) -> u32 {
    let before = crc32c::crc32c(&page[..CRC.start]);
    crc32c::crc32c_append(before, &page[CRC.end..PAGE_BYTES])
}

/// Says where a page of the journal is going to be.
pub(super) fn seal(page: &mut [u8], place: PageId, generation: Generation) {
    page[40..44].copy_from_slice(&place.0.to_le_bytes());
    page[44..48].copy_from_slice(&generation.0.to_le_bytes());
    let sum = checksum(page);
    page[CRC].copy_from_slice(&sum.to_le_bytes());
}

/// What a flush is waiting for.
enum Flush {
    Idle,
    /// The sync of the data that it names.
    DataSync(AlignedBuffer),
    /// A free block.
    Room(AlignedBuffer, u32),
    /// So many programs.
    Programs(u32),
    /// The sync of its own pages.
    Sync,
}

/// The journal of a translation layer.
pub(super) struct Journal {
    stage: Flush,
    waiting: VecDeque<Entry>,
    /// Entries, ever.
    appended: u64,
    /// Of which so many are durable.
    durable: u64,
    /// Those that the flush under way makes durable.
    covered: u64,
    /// Somebody waits for what is not durable.
    wanted: bool,
    /// The next flush has the whole map.
    whole: bool,
    /// The number of the next flush.
    flush: u64,
    epoch: u32,
    /// Pages of entries for which no part of the map was written.
    credit: u32,
    /// The next word of the round.
    word: u32,
    /// The flush in which the round began.
    round: u64,
    /// The flush in which the last round began that the flush under way makes whole.
    whole_since: Option<u64>,
    /// Blocks of the log in order, with the first flush of each.
    log: VecDeque<(BlockId, u64)>,
    /// The last block of the log has room.
    is_open: bool,
    pages: u64,
    /// Nothing is written: everything counts as durable.
    is_off: bool,
}

impl Journal {
    /// One whose next flush has this number, after a log in these blocks.
    pub(super) fn new(flush: u64, epoch: u32, log: VecDeque<(BlockId, u64)>) -> Self {
        Self {
            stage: Flush::Idle,
            waiting: VecDeque::new(),
            appended: 0,
            durable: 0,
            covered: 0,
            wanted: false,
            whole: false,
            flush,
            epoch,
            credit: 0,
            word: 0,
            round: flush,
            whole_since: None,
            log,
            is_open: false,
            pages: 0,
            is_off: false,
        }
    }

    /// One that writes nothing.
    pub(super) fn off() -> Self {
        Self { is_off: true, ..Self::new(1, 1, VecDeque::new()) }
    }

    /// The number of entries, ever: who waits for what was appended so far waits for this to be
    /// durable.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// Whether so many entries are durable.
    pub(super) fn is_durable(&self, appended: u64) -> bool {
        self.is_off || self.durable >= appended
    }

    /// Pages that it has programmed.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Blocks that it has.
    pub(super) fn blocks(&self) -> u32 {
        self.log.len() as u32
    }

    /// Whether nothing is under way or wanted.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.stage, Flush::Idle) && !self.whole && !(self.wanted && self.has_news())
    }

    fn has_news(&self) -> bool {
        self.durable < self.appended
    }

    /// Notes a change of the map.
    pub(super) fn append(&mut self, entry: Entry) {
        if self.is_off {
            return;
        }
        if let (
            Some(Entry::Placed { page, place, pages }),
            Entry::Placed { page: next, place: at, pages: more },
        ) = (self.waiting.back_mut(), entry)
            && (*page + *pages, *place + *pages) == (next, at)
        {
            *pages += more;
            return;
        }
        self.waiting.push_back(entry);
        self.appended += 1;
    }

    /// What was appended is to be durable soon.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// The whole map is to be written by one flush.
    pub(super) fn want_whole(&mut self) {
        self.whole = true;
    }

    /// Goes on, as far as nothing has to be waited for.
    pub(super) fn pump(
        &mut self,
        map: &Map,
        blocks: &mut Blocks,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        if let Flush::Idle = self.stage {
            let most = ENTRIES * entry_pages(blocks.geometry.pages_per_block) as usize;
            let due = (self.wanted && self.has_news()) || self.waiting.len() > most;
            if !due && !self.whole {
                return;
            }
            let buffer = self.build(map, blocks, port);
            if is_planted!(JournalsUnsynced) {
                return self.program(buffer, 0, blocks, port, tasks);
            }
            self.sync(port, tasks);
            self.stage = Flush::DataSync(buffer);
        }
        if let Flush::Room(..) = self.stage
            && let Flush::Room(buffer, programs) = core::mem::replace(&mut self.stage, Flush::Idle)
        {
            self.program(buffer, programs, blocks, port, tasks);
        }
    }

    fn sync(&self, port: &mut Port, tasks: &mut Slab<Task>) {
        let token = Token(tasks.add(Task::JournalSync).into());
        port.write(FlashOp::Sync { token });
    }

    /// The pages of a flush, of what is known now.
    fn build(&mut self, map: &Map, blocks: &Blocks, port: &mut Port) -> AlignedBuffer {
        let limit = entry_pages(blocks.geometry.pages_per_block) as usize;
        let entries = self.waiting.len().min(limit * ENTRIES);
        let entry_pages = entries.div_ceil(ENTRIES) as u32;
        if self.whole {
            self.word = 0;
        }
        let words = map.words();
        let mut parts = (words - self.word).div_ceil(WORDS as u32);
        if !self.whole {
            self.credit += entry_pages;
            parts = parts.min(self.credit / ENTRY_PAGES_OF_PART);
            self.credit -= parts * ENTRY_PAGES_OF_PART;
        }
        if self.word == 0 && parts > 0 {
            self.round = self.flush;
        }
        let pages = entry_pages + parts;
        let mut buffer = port.buffer(pages);
        let header = Header {
            flush: self.flush,
            epoch: self.epoch,
            index: 0,
            pages,
            count: 0,
            first: 0,
            kind: Kind::Entries,
        };
        for (page, index) in buffer.chunks_exact_mut(PAGE_BYTES).zip(0..) {
            page.fill(0);
            if index < entry_pages {
                let count = self.waiting.len().min(ENTRIES).min(entries - index as usize * ENTRIES);
                let taken = self.waiting.drain(..count);
                for (bytes, entry) in page[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES).zip(taken)
                {
                    entry.write(bytes);
                }
                Header { index, count: count as u32, ..header }.write(page);
                continue;
            }
            let first = self.word;
            let count = (words - first).min(WORDS as u32);
            for (bytes, at) in page[HEADER_BYTES..].chunks_exact_mut(4).zip(first..first + count) {
                bytes.copy_from_slice(&map.word(at).to_le_bytes());
            }
            self.word += count;
            let ends = self.word == words;
            let kind = if ends { Kind::MapEnd } else { Kind::Map };
            Header { index, count, first, kind, ..header }.write(page);
            if ends {
                self.whole_since = Some(self.round);
                self.word = 0;
            }
        }
        self.whole = false;
        self.wanted &= !self.waiting.is_empty();
        self.covered = self.appended - self.waiting.len() as u64;
        self.flush += 1;
        self.pages += u64::from(pages);
        buffer
    }

    /// Programs a flush behind what is there, as far as there are blocks for it.
    fn program(
        &mut self,
        mut buffer: AlignedBuffer,
        mut programs: u32,
        blocks: &mut Blocks,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        let mut left = (buffer.len() / PAGE_BYTES) as u32;
        let mut done = 0;
        while left > 0 {
            let open = self.log.back().filter(|_| self.is_open).map(|&(block, _)| block);
            let Some(block) = open.or_else(|| blocks.take(State::Journal, 0)) else {
                let mut rest = port.buffer(left);
                rest.copy_from_slice(&buffer[done * PAGE_BYTES..]);
                port.give(buffer);
                self.stage = Flush::Room(rest, programs);
                return;
            };
            if open.is_none() {
                self.log.push_back((block, self.flush - 1));
                self.is_open = true;
            }
            let pages = blocks.room(block).min(left);
            let place = blocks.begin_program(block, pages, Content::Journal);
            let generation = port.device.generation(block);
            let range = done * PAGE_BYTES..(done + pages as usize) * PAGE_BYTES;
            for (page, at) in buffer[range.clone()].chunks_exact_mut(PAGE_BYTES).zip(place.0..) {
                seal(page, PageId(at), generation);
            }
            self.is_open = blocks.room(block) > 0;
            let token = Token(tasks.add(Task::JournalProgram { block }).into());
            programs += 1;
            done += pages as usize;
            left -= pages;
            if done == pages as usize && left == 0 {
                port.write(FlashOp::Program { token, page: place, buffer });
                self.stage = Flush::Programs(programs);
                return;
            }
            let mut piece = port.buffer(pages);
            piece.copy_from_slice(&buffer[range]);
            port.write(FlashOp::Program { token, page: place, buffer: piece });
        }
        port.give(buffer);
        self.stage = Flush::Programs(programs);
    }

    /// One of its programs has completed.
    pub(super) fn programmed(&mut self, port: &mut Port, tasks: &mut Slab<Task>) {
        match &mut self.stage {
            Flush::Programs(left) if *left > 1 => *left -= 1,
            Flush::Programs(_) => {
                self.sync(port, tasks);
                self.stage = Flush::Sync;
            }
            // A flush over several blocks, the next of which is not there yet.
            Flush::Room(_, programs) => *programs -= 1,
            _ => unreachable!("a program of the journal belongs to a flush"),
        }
    }

    /// One of its programs has failed: its pages go elsewhere.
    pub(super) fn not_programmed(
        &mut self,
        piece: AlignedBuffer,
        block: BlockId,
        blocks: &mut Blocks,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        if self.log.back().is_some_and(|&(last, _)| last == block) {
            self.is_open = false;
        }
        match core::mem::replace(&mut self.stage, Flush::Idle) {
            Flush::Programs(programs) => self.program(piece, programs - 1, blocks, port, tasks),
            Flush::Room(rest, programs) => {
                let mut both = AlignedBuffer::zeroed(rest.len() + piece.len());
                both[..rest.len()].copy_from_slice(&rest);
                both[rest.len()..].copy_from_slice(&piece);
                port.give(rest);
                port.give(piece);
                self.stage = Flush::Room(both, programs - 1);
            }
            _ => unreachable!("a program of the journal belongs to a flush"),
        }
    }

    /// One of its syncs has completed. Blocks that the log needs no longer are drained from now on.
    pub(super) fn synced(
        &mut self,
        blocks: &mut Blocks,
        port: &mut Port,
        tasks: &mut Slab<Task>,
        mut released: impl FnMut(BlockId),
    ) {
        match core::mem::replace(&mut self.stage, Flush::Idle) {
            Flush::DataSync(buffer) => self.program(buffer, 0, blocks, port, tasks),
            Flush::Sync => {
                self.durable = self.covered;
                if let Some(since) = self.whole_since.take() {
                    // The first flush of a block may have begun in the one before.
                    while self.log.get(1).is_some_and(|&(_, first)| first < since) {
                        let Some((block, _)) = self.log.pop_front() else { break };
                        blocks.leave_journal(block);
                        released(block);
                    }
                }
            }
            _ => unreachable!("a sync of the journal belongs to a flush"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_parts_of_the_map_read_back() {
        let mut map = Map::new(8, 4);
        let entries = [
            Entry::Placed { page: 3, place: 40, pages: 2 },
            Entry::Trimmed { block: 2, generation: 9 },
        ];
        entries.iter().for_each(|entry| entry.apply(&mut map, 64).expect("within the device"));
        for (entry, expected) in entries.iter().zip([[3, 40, 2], [2, 9, 0]]) {
            let mut bytes = [0; ENTRY_BYTES];
            entry.write(&mut bytes);
            assert_eq!([word(&bytes, 0), word(&bytes, 4), word(&bytes, 8)], expected);
            assert_eq!(Entry::read(&bytes), *entry);
        }
        assert_eq!(map.place(PageId(4)), Some(PageId(41)));
        assert_eq!(map.generation(BlockId(2)), Generation(9));
        let mut copy = Map::new(8, 4);
        (0..map.words()).for_each(|at| copy.set_word(at, map.word(at)).expect("a word"));
        assert!((0..32).all(|page| copy.place(PageId(page)) == map.place(PageId(page))));
        assert_eq!(copy.generation(BlockId(2)), Generation(9));
    }

    #[test]
    fn an_entry_beyond_the_device_is_refused() {
        let mut map = Map::new(8, 4);
        for entry in [
            Entry::Placed { page: 31, place: 0, pages: 2 },
            Entry::Placed { page: 0, place: 63, pages: 2 },
            Entry::Placed { page: u32::MAX, place: 0, pages: 1 },
            Entry::Trimmed { block: 4, generation: 1 },
        ] {
            assert_eq!(entry.apply(&mut map, 64), None, "{entry:?}");
        }
    }

    #[test]
    fn a_page_of_the_journal_is_known_by_its_place_its_generation_and_its_bytes() {
        let mut page = vec![0; PAGE_BYTES];
        let header = Header {
            flush: 1 << 40,
            epoch: 3,
            index: 1,
            pages: 2,
            count: 5,
            first: 7,
            kind: Kind::Map,
        };
        header.write(&mut page);
        seal(&mut page, PageId(9), Generation(4));
        assert_eq!(Header::read(&page, PageId(9), Generation(4)), Some(header));
        assert_eq!(Header::read(&page, PageId(8), Generation(4)), None);
        assert_eq!(Header::read(&page, PageId(9), Generation(5)), None);
        page[4000] ^= 1;
        assert_eq!(Header::read(&page, PageId(9), Generation(4)), None);
    }

    #[test]
    fn the_document_says_what_the_code_does() {
        let document = include_str!("../../../../docs/formats/ftl.md");
        let states =
            |line: String| assert!(document.contains(&line), "docs/formats/ftl.md lacks: {line}");
        states(format!("format version **{FORMAT}**"));
        states(format!("Journal page header: **{HEADER_BYTES}** bytes"));
        states(format!("Entry: **{ENTRY_BYTES}** bytes"));
        states(format!("entries of a page: **{ENTRIES}**"));
        states(format!("words of a page: **{WORDS}**"));
        for kind in [Kind::Entries, Kind::Map, Kind::MapEnd] {
            states(format!("| {} | `{kind:?}` |", kind as u8));
        }
        let mut page = vec![0; PAGE_BYTES];
        let header = Header {
            flush: 0x1122_3344_5566_7788,
            epoch: 2,
            index: 3,
            pages: 4,
            count: 5,
            first: 6,
            kind: Kind::Map,
        };
        header.write(&mut page);
        seal(&mut page, PageId(7), Generation(8));
        let fields = [
            ("magic", 0, 4, u64::from(MAGIC)),
            ("format", 4, 2, u64::from(FORMAT)),
            ("kind", 6, 1, Kind::Map as u64),
            ("checksum", 8, 4, u64::from(checksum(&page))),
            ("count", 12, 4, 5),
            ("flush", 16, 8, 0x1122_3344_5566_7788),
            ("epoch", 24, 4, 2),
            ("index", 28, 4, 3),
            ("pages", 32, 4, 4),
            ("first word", 36, 4, 6),
            ("page number", 40, 4, 7),
            ("generation", 44, 4, 8),
        ];
        for (name, offset, bytes, expected) in fields {
            states(format!("| {offset} | {name} | {bytes} |"));
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&page[offset..offset + bytes]);
            assert_eq!(u64::from_le_bytes(value), expected, "{name}");
        }
    }
}

//! What lies in the blocks of a store's device, told block by block from their bytes: for whoever
//! looks at a data directory without a server.
//!
//! ```text
//!   bytes of a block ─► block(): pages ─► records, each with what is wrong with it
//!                                 └─────► Survey: sums of a shard; what is live, as far as blocks tell
//! ```
//! It reads what the layout lays out, and nothing else: no index, no checkpoint's
//! contents, no log. So it cannot know the watermark, and calls *live* what is the youngest version
//! of its key and no deletion. Bytes may be anything: what makes no sense is reported with its
//! place. No I/O, and no panic.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use timestone_flash::{BlockId, Generation, Geometry, PAGE_BYTES, PageId};
use timestone_types::{Expiry, HashSeed, HashedKey, KeyHash, KeyspaceId, Timestamp, Version};

use crate::layout::{
    self, LargeHead, PageHeader, PageKind, Record, RecordKind, part_header, read_checkpoint_page,
};

/// A block as it lies on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockView {
    /// Which one.
    pub block: BlockId,
    /// How often it was erased, plus one; `None` where the device's table does not tell.
    pub generation: Option<Generation>,
    /// What it holds.
    pub state: BlockState,
    /// Its pages, in order, up to the last that is not blank.
    pub pages: Vec<PageView>,
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BlockState {
    /// Nothing of its generation.
    Free,
    /// Sound pages, and blank ones behind them: it was being written.
    Partial,
    /// Sound pages to its end.
    Full,
    /// Something that is not sound, before a page that is, or alone.
    Damaged,
}

impl BlockState {
    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Partial => "partial",
            Self::Full => "full",
            Self::Damaged => "damaged",
        }
    }
}

/// A page of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageView {
    /// From 0, in its block.
    pub index: u32,
    /// What it is.
    pub state: PageState,
    /// Rises with every page that the store began; of sound pages.
    pub sequence: Option<u64>,
    /// Bytes of it that hold something, header included.
    pub used_bytes: u32,
    /// The records, of pages that hold some.
    pub records: Vec<RecordView>,
}

/// What a page is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Zeros.
    Blank,
    /// A page of an earlier life of its block.
    Earlier(Generation),
    /// Records.
    Records,
    /// Heads of large values.
    LargeHeads,
    /// A part of a large value: of which key, by its hash, and which part.
    LargePart {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The hash of the key.
        hash: KeyHash,
        /// The version.
        version: Version,
        /// From 0.
        part: u32,
    },
    /// A part of a checkpoint.
    Checkpoint {
        /// Of which.
        number: u64,
        /// Which part, from 0.
        place: u32,
        /// Whether it is the last.
        is_last: bool,
    },
    /// Not what belongs here; why, in words.
    Damaged(&'static str),
}

impl PageState {
    /// In a word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Earlier(_) => "earlier life",
            Self::Records => "records",
            Self::LargeHeads => "large heads",
            Self::LargePart { .. } => "large part",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Damaged(_) => "damaged",
        }
    }

    /// Whether it is a page of its block's life, whole and undamaged.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        !matches!(self, Self::Blank | Self::Earlier(_) | Self::Damaged(_))
    }
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A key with a value.
    Value,
    /// A key that is absent from this version on.
    Tombstone,
    /// A key with a value that lies in pages of its own.
    Large,
    /// A tombstone whose key lies in pages of its own.
    LargeTombstone,
    /// The whole keyspace is absent from this version on.
    Fence,
}

impl Kind {
    /// In a word or two.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Tombstone => "tombstone",
            Self::Large => "large value",
            Self::LargeTombstone => "large tombstone",
            Self::Fence => "fence",
        }
    }

    /// Whether it is of a keyspace, and of no key.
    #[must_use]
    pub const fn is_fence(self) -> bool {
        matches!(self, Self::Fence)
    }

    const fn of(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Value => Self::Value,
            RecordKind::Tombstone => Self::Tombstone,
            RecordKind::Large => Self::Large,
            RecordKind::LargeTombstone => Self::LargeTombstone,
            RecordKind::Fence => Self::Fence,
        }
    }
}

/// A record of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordView {
    /// Its place in the page's directory.
    pub slot: u16,
    /// What can be said of it; `None` when its slot or its lengths make no sense.
    pub contents: Option<RecordContents>,
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordContents {
    /// What it is.
    pub kind: Kind,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The hash of its key, as its writer filed it.
    pub hash: KeyHash,
    /// The key; empty for a fence, and where it lies in pages of its own.
    pub key: Vec<u8>,
    /// The version.
    pub version: Version,
    /// When it stops being visible.
    pub expires_at: Expiry,
    /// Bytes of the record.
    pub record_bytes: u32,
    /// Bytes of the key, wherever it lies.
    pub key_bytes: u32,
    /// Bytes of the value, wherever it lies.
    pub value_bytes: u32,
    /// Bytes that the record and its pages take.
    pub stored_bytes: u64,
    /// Whether its checksum is right. What a damaged record says need not be true.
    pub is_intact: bool,
}

impl RecordContents {
    /// Whether it makes its key (or its keyspace) absent.
    #[must_use]
    pub const fn is_deletion(&self) -> bool {
        matches!(self.kind, Kind::Tombstone | Kind::LargeTombstone | Kind::Fence)
    }
}

/// Looks at a block: `bytes` is as much of it as there is.
#[must_use]
pub fn block(
    geometry: Geometry,
    block: BlockId,
    generation: Option<Generation>,
    bytes: &[u8],
) -> BlockView {
    let mut pages: Vec<PageView> = Vec::new();
    let whole = geometry.pages_per_block as usize;
    for (index, raw) in bytes.chunks(PAGE_BYTES).take(whole).enumerate() {
        pages.push(page(geometry, block, index as u32, generation, raw));
    }
    let held = pages.len();
    let written = pages.iter().rposition(|page| page.state != PageState::Blank);
    pages.truncate(written.map_or(0, |last| last + 1));
    let sound = pages.iter().filter(|page| page.state.is_sound()).count();
    let is_damaged = |page: &PageView| matches!(page.state, PageState::Damaged(_));
    let last_sound = pages.iter().rposition(|page| page.state.is_sound());
    let state = match last_sound {
        Some(last) if sound <= last => BlockState::Damaged,
        Some(last) if last + 1 == whole => BlockState::Full,
        Some(_) => BlockState::Partial,
        None if pages.iter().any(is_damaged) || held < whole => BlockState::Damaged,
        None => BlockState::Free,
    };
    BlockView { block, generation, state, pages }
}

/// What takes the place of a page that cannot be read, once somebody has accepted its loss. To a
/// store it is a damaged page, whose block is therefore not taken for empty; and one that will never
/// be read, so that no deletion is kept for its sake.
#[must_use]
pub fn lost_page(page: PageId) -> Vec<u8> {
    layout::lost_page(page)
}

fn page(
    geometry: Geometry,
    block: BlockId,
    index: u32,
    generation: Option<Generation>,
    bytes: &[u8],
) -> PageView {
    let damaged = |why| PageView {
        index,
        state: PageState::Damaged(why),
        sequence: None,
        used_bytes: 0,
        records: Vec::new(),
    };
    if bytes.len() < PAGE_BYTES {
        return damaged("the file ends inside of it");
    }
    if layout::is_lost_page(bytes) {
        return damaged("it could not be read, and its loss was accepted");
    }
    let header = match PageHeader::read(bytes) {
        None if bytes.iter().all(|&byte| byte == 0) => {
            return PageView { state: PageState::Blank, ..damaged("") };
        }
        None => return damaged("its header does not check out"),
        Some(Err(_)) => return damaged("it is of another format"),
        Some(Ok(header)) => header,
    };
    if u64::from(header.page.0)
        != u64::from(block.0) * u64::from(geometry.pages_per_block) + u64::from(index)
    {
        return damaged("it was written to another place");
    }
    match generation {
        Some(generation) if header.generation < generation => {
            return PageView { state: PageState::Earlier(header.generation), ..damaged("") };
        }
        Some(generation) if header.generation > generation => {
            return damaged("it is of a later life of its block than the table knows");
        }
        _ => {}
    }
    let Some(state) = state_of(&header, bytes) else {
        return damaged("what it says of a checkpoint makes no sense");
    };
    let holds_records = matches!(state, PageState::Records | PageState::LargeHeads);
    let records = if holds_records { records_of(bytes) } else { Vec::new() };
    let used_bytes = match holds_records {
        true => u32::from(header.used).min(PAGE_BYTES as u32),
        false => PAGE_BYTES as u32,
    };
    PageView { index, state, sequence: Some(header.sequence), used_bytes, records }
}

fn state_of(header: &PageHeader, bytes: &[u8]) -> Option<PageState> {
    Some(match header.kind {
        PageKind::Records => PageState::Records,
        PageKind::LargeHeads => PageState::LargeHeads,
        PageKind::LargePart => {
            let (part, _) = part_header(bytes);
            let (keyspace, hash, version) = (part.keyspace, part.hash, part.version);
            PageState::LargePart { keyspace, hash, version, part: part.part }
        }
        PageKind::Checkpoint => {
            let (number, place, is_last, _) = read_checkpoint_page(bytes, header.count)?;
            PageState::Checkpoint { number, place, is_last }
        }
    })
}

fn records_of(page: &[u8]) -> Vec<RecordView> {
    let record = |(slot, raw): (usize, Option<&[u8]>)| RecordView {
        slot: slot as u16,
        contents: raw.and_then(|raw| {
            let record = Record::read(raw)?;
            Some(contents(&record, Record::read_intact(raw).is_some()))
        }),
    };
    layout::records(page).enumerate().map(record).collect()
}

fn contents(record: &Record<'_>, is_intact: bool) -> RecordContents {
    let record_bytes = record.bytes() as u32;
    let (mut key_bytes, mut value_bytes) = (record.key.len() as u32, record.value.len() as u32);
    let mut stored_bytes = u64::from(record_bytes);
    let head = if record.kind.is_large() { LargeHead::read(record.value) } else { None };
    if let Some(head) = head {
        if head.key_outside > 0 {
            key_bytes = head.key_outside;
        }
        value_bytes = head.total - head.key_outside;
        let pages: u64 = head.extents.iter().map(|extent| u64::from(extent.pages)).sum();
        stored_bytes += pages * PAGE_BYTES as u64;
    }
    RecordContents {
        kind: Kind::of(record.kind),
        keyspace: record.keyspace,
        hash: record.hash,
        key: record.key.to_vec(),
        version: record.version,
        expires_at: record.expires_at,
        record_bytes,
        key_bytes,
        value_bytes,
        stored_bytes,
        is_intact,
    }
}

/// The store and the seed that the first sound page of a block names.
#[must_use]
pub fn identity(bytes: &[u8]) -> Option<(u64, HashSeed)> {
    let pages = bytes.chunks_exact(PAGE_BYTES);
    let header = pages.filter_map(PageHeader::read).find_map(Result::ok)?;
    Some((header.store, HashSeed(header.seed)))
}

/// Whether a record is one of a key, whose hash is known under the seed of its page. Where the key
/// lies in pages of its own, its hash and its length decide.
#[must_use]
pub fn is_of(contents: &RecordContents, keyspace: KeyspaceId, key: &[u8], seed: HashSeed) -> bool {
    if contents.keyspace != keyspace || contents.kind == Kind::Fence {
        return false;
    }
    match contents.key.is_empty() && contents.key_bytes > 0 {
        true => {
            contents.key_bytes as usize == key.len()
                && contents.hash == HashedKey::new(seed, keyspace, key).hash
        }
        false => contents.key == key,
    }
}

/// Something that is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The block.
    pub block: BlockId,
    /// The page in it.
    pub page: u32,
    /// The record's slot; `None` when it is the page.
    pub slot: Option<u16>,
    /// What is wrong.
    pub detail: &'static str,
}

/// A checkpoint, by its pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckpointPages {
    places: BTreeSet<u32>,
    last: Option<u32>,
}

impl CheckpointPages {
    /// Pages that are there.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.places.len() as u64
    }

    /// Whether none is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.last.is_some_and(|last| u64::from(last) + 1 == self.pages())
    }
}

/// Sums over the blocks of a shard.
#[derive(Clone, Default, Debug)]
pub struct Survey {
    /// Blocks by state.
    pub blocks: BTreeMap<BlockState, u64>,
    /// Pages by what they are.
    pub pages: BTreeMap<&'static str, u64>,
    /// Erases of each block whose generation is known.
    pub erases: Vec<u32>,
    /// Records that are intact, copies that collection left included.
    pub records: u64,
    /// Those of them that make a key absent.
    pub tombstones: u64,
    /// Those of them with an expiry.
    pub expiring: u64,
    /// Bytes of intact records, and of the pages that large ones have.
    pub record_bytes: u64,
    /// Records of each keyspace, of those that are intact.
    pub keyspaces: BTreeMap<KeyspaceId, u64>,
    /// The youngest fence of each keyspace that has one.
    pub fences: BTreeMap<KeyspaceId, Version>,
    /// The oldest and the youngest version that an intact record has.
    pub versions: Option<(Timestamp, Timestamp)>,
    /// Checkpoints by number.
    pub checkpoints: BTreeMap<u64, CheckpointPages>,
    /// Stores whose pages are here; one, unless files were mixed up.
    pub stores: BTreeSet<u64>,
    /// What is wrong, in order of place, as far as [`Self::MAX_DAMAGE`] allows.
    pub damage: Vec<Damage>,
    /// Everything that is wrong.
    pub damage_count: u64,
    /// Pages that make no sense behind the last sound one of their block: a crash leaves such.
    pub torn_tails: u64,
    youngest: HashTable<Youngest>,
}

/// The youngest version of a key, and what its records take.
#[derive(Clone, Copy, Debug)]
struct Youngest {
    keyspace: KeyspaceId,
    hash: KeyHash,
    version: Version,
    is_deletion: bool,
    bytes: u64,
}

impl Youngest {
    /// Hashes of keys are as good as random ones; keyspaces are in them.
    const fn place(&self) -> u64 {
        self.hash.0
    }
}

/// What blocks tell of keys.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeySums {
    /// Keys with a record, deleted ones included. Two that share a hash count as one.
    pub keys: u64,
    /// Those whose youngest version is a value.
    pub present: u64,
    /// Bytes of the youngest versions of those.
    pub live_bytes: u64,
    /// Bytes of all other records.
    pub dead_bytes: u64,
}

impl Survey {
    /// Damages that are kept with their place; others are counted.
    pub const MAX_DAMAGE: usize = 1000;

    /// Adds a block.
    pub fn add(&mut self, view: &BlockView) {
        *self.blocks.entry(view.state).or_default() += 1;
        self.erases.extend(view.generation.map(|generation| generation.0.saturating_sub(1)));
        let last_sound = view.pages.iter().rposition(|page| page.state.is_sound());
        for (at, page) in view.pages.iter().enumerate() {
            *self.pages.entry(page.state.name()).or_default() += 1;
            match page.state {
                PageState::Damaged(detail) => {
                    self.torn_tails += u64::from(last_sound.is_none_or(|last| at > last));
                    self.note(Damage { block: view.block, page: page.index, slot: None, detail });
                }
                PageState::Checkpoint { number, place, is_last } => {
                    let pages = self.checkpoints.entry(number).or_default();
                    pages.places.insert(place);
                    if is_last {
                        pages.last = Some(place);
                    }
                }
                _ => {}
            }
            for record in &page.records {
                self.add_record(view.block, page.index, record);
            }
        }
    }

    /// Notes whose pages a block holds.
    pub fn add_identity(&mut self, identity: Option<(u64, HashSeed)>) {
        self.stores.extend(identity.map(|(store, _)| store));
    }

    fn note(&mut self, damage: Damage) {
        self.damage_count += 1;
        if self.damage.len() < Self::MAX_DAMAGE {
            self.damage.push(damage);
        }
    }

    fn add_record(&mut self, block: BlockId, page: u32, record: &RecordView) {
        let wrong = |detail| Damage { block, page, slot: Some(record.slot), detail };
        let contents = match &record.contents {
            None => return self.note(wrong("its lengths make no sense")),
            Some(contents) if !contents.is_intact => {
                return self.note(wrong("its checksum is wrong"));
            }
            Some(contents) => contents,
        };
        self.records += 1;
        self.record_bytes += contents.stored_bytes;
        self.expiring += u64::from(!contents.expires_at.is_never());
        *self.keyspaces.entry(contents.keyspace).or_default() += 1;
        let at = contents.version.timestamp;
        let (oldest, youngest) = self.versions.unwrap_or((at, at));
        self.versions = Some((oldest.min(at), youngest.max(at)));
        if contents.kind == Kind::Fence {
            let fence = self.fences.entry(contents.keyspace).or_insert(contents.version);
            *fence = (*fence).max(contents.version);
            return;
        }
        self.tombstones += u64::from(contents.is_deletion());
        let found = Youngest {
            keyspace: contents.keyspace,
            hash: contents.hash,
            version: contents.version,
            is_deletion: contents.is_deletion(),
            bytes: contents.stored_bytes,
        };
        let is_same =
            |known: &Youngest| (known.keyspace, known.hash) == (found.keyspace, found.hash);
        match self.youngest.entry(found.place(), is_same, Youngest::place) {
            Entry::Vacant(vacant) => {
                vacant.insert(found);
            }
            Entry::Occupied(mut known) => {
                if known.get().version < found.version {
                    *known.get_mut() = found;
                }
            }
        }
    }

    /// What the blocks tell of keys: deletions are those of tombstones and fences. The watermark is
    /// not known, nor what has expired.
    #[must_use]
    pub fn keys(&self) -> KeySums {
        let mut sums = KeySums { keys: self.youngest.len() as u64, ..KeySums::default() };
        for youngest in &self.youngest {
            let fence = self.fences.get(&youngest.keyspace);
            let fenced = fence.is_some_and(|fence| *fence >= youngest.version);
            if !youngest.is_deletion && !fenced {
                sums.present += 1;
                sums.live_bytes += youngest.bytes;
            }
        }
        sums.dead_bytes = self.record_bytes.saturating_sub(sums.live_bytes);
        sums
    }
}

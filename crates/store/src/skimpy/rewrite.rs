//! What is appended when a bucket leaves a block of the log.
//!
//! ```text
//!   whole:  everything that is kept ─► one place: a new chain, the old one is void
//!   moved:  what is kept in the block ─► in front of the chain, whose end goes with the block
//! ```
//!
//! A whole bucket is short to read afterwards, and empties other blocks as well; but where its
//! records lie scattered it takes many times what the block gives back. Moving takes what lives in
//! the block, and no more: so it always wins, as long as something in the block is dead.
//!
//! What must not happen: a copy of an older version is believed to be the youngest one, when a crash
//! takes the youngest one's copy. So only the youngest is not flagged.

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::{BlockId, Generation, PAGE_BYTES, PageId};
use timestone_types::is_planted;

use super::buckets::RecordPlace;
use super::chain::{Gathering, is_in_place};
use super::contents::FrugalContents;
use super::keep::{JudgedKey, KeepVerdict, KeptRecord};
use super::translations::{Name, Youngest};
use crate::kit::blocks::{BlockState, Blocks};
use crate::kit::volume::block_bytes;
use crate::kit::writer::StreamId;
use crate::layout::{self, LargeHead, LinkKind, Links, NO_PAGE, Record, RecordKind, UNKNOWN_PAGE};

/// A chain with so many records more than are kept is long.
const LONG_CHAIN: usize = 8;
/// So many of the log's bytes for each dead one, at most, where a bucket is written whole for its own sake.
const LEAST_DEAD: u64 = 4;
/// Free blocks that are left when a long chain is made short.
const LEAST_LEFT: u32 = 3;

/// How a bucket leaves the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Whole,
    Moved,
    /// There is no room for either.
    Waits,
}

/// Bytes of what is kept of a bucket: all, and what of it lies in the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    all: u64,
    own: u64,
}

impl Weight {
    /// Of a bucket that leaves a block, or is put together.
    pub(super) fn of(gathering: &Gathering, verdict: &KeepVerdict) -> Self {
        let mut weight = Self { all: 0, own: 0 };
        for kept in verdict.kept() {
            let bytes = kept_bytes(gathering, kept) as u64;
            weight.all += bytes;
            if kept.leaves {
                weight.own += bytes;
            }
        }
        weight
    }

    /// Bytes that are kept of the block.
    pub(super) fn own(self) -> u64 {
        self.own
    }

    /// Bytes that a whole bucket takes beside the block's own.
    pub(super) fn beside(self) -> u64 {
        self.all - self.own
    }

    /// What of `bytes`, which were written for all, was for the block's own.
    pub(super) fn share(self, bytes: u64) -> u64 {
        bytes * self.own / self.all.max(1)
    }
}

fn kept_bytes(gathering: &Gathering, kept: &KeptRecord) -> usize {
    gathering.record(&gathering.records[kept.at]).bytes() + layout::SLOT_BYTES
}

/// Chooses. Whole where that takes hardly more than the block's own records, where there is room to
/// spare, or where it takes no more than `budget` bytes beside: where a long chain gets short, until few
/// blocks are left.
pub(super) fn choose(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    weight: Weight,
    block: Option<BlockId>,
    budget: u64,
    core: &FrugalContents,
) -> Way {
    let is_long = gathering.records.len() > verdict.count() + LONG_CHAIN;
    let blocks = &core.kit.volume.blocks;
    let leave = match (block, weight.own == weight.all) {
        (Some(_), true) => 0,
        (Some(_), false) if is_long && weight.beside() <= budget => LEAST_LEFT,
        (Some(_), false) if weight.beside() <= budget => blocks.reserve(),
        (Some(_), false) if weight.all <= 2 * weight.own => blocks.floor(),
        _ => spare(blocks),
    };
    if has_room_for_whole(gathering, verdict, leave, core) {
        return Way::Whole;
    }
    let own = verdict.kept().filter(|kept| kept.leaves);
    let own = own.map(|kept| kept_bytes(gathering, kept));
    if block.is_some() && leave > 0 && has_room(own, 0, core) { Way::Moved } else { Way::Waits }
}

/// With more free blocks than these, whole buckets are rewritten: half way from where puts are
/// refused to where collection begins.
pub(super) fn spare(blocks: &Blocks) -> u32 {
    u32::midpoint(blocks.floor(), blocks.low_water())
}

/// Whether records of these lengths find room, whatever stays free.
pub(super) fn has_room_at_all(lengths: impl Iterator<Item = usize>, core: &FrugalContents) -> bool {
    has_room(lengths, 0, core)
}

/// Whether records of these lengths find room, and so many blocks stay free, if they are written in this
/// order.
fn has_room(lengths: impl Iterator<Item = usize>, leave: u32, core: &FrugalContents) -> bool {
    let mut packing = Packing::default();
    lengths.for_each(|length| packing.add(length));
    packing.has_room(leave, core)
}

/// Whether all that is kept of a bucket finds room as [`append_whole`] writes it, and so many blocks stay
/// free.
fn has_room_for_whole(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    leave: u32,
    core: &FrugalContents,
) -> bool {
    let mut packing = Packing::default();
    let WholeOrder { loose, chain } = WholeOrder::of(verdict, core);
    loose.iter().for_each(|kept| packing.add(kept_bytes(gathering, kept)));
    if begins_a_page(gathering, &chain, packing.left, core) {
        packing.left = 0;
    }
    chain.iter().for_each(|kept| packing.add(kept_bytes(gathering, kept)));
    packing.has_room(leave, core)
}

/// Bytes that a page has for records, with what each takes beside.
const PAGE_ROOM: usize = PAGE_BYTES - layout::HEADER_BYTES;

/// Pages that records take which are written one after the other. The open page may have room for none of
/// them. Where it has, the same records, or shorter ones, begin no more pages than these, in the same order.
#[derive(Default)]
struct Packing {
    pages: u32,
    /// Bytes that the last one has left.
    left: usize,
}

impl Packing {
    fn add(&mut self, length: usize) {
        if length > self.left {
            (self.pages, self.left) = (self.pages + 1, PAGE_ROOM);
        }
        self.left -= length;
    }

    /// Whether there are so many pages, and so many blocks stay free. What the open block has left counts as
    /// well: *otherwise* the last blocks would never be used, though a block of the log could be emptied into
    /// them.
    fn has_room(&self, leave: u32, core: &FrugalContents) -> bool {
        let volume = &core.kit.volume;
        let left = volume.writer.pages_left(StreamId::Hot, &volume.blocks);
        let blocks = self.pages.saturating_sub(left).div_ceil(volume.geometry().pages_per_block);
        volume.blocks.clean_count() >= blocks && volume.blocks.free_count() >= blocks + leave
    }
}

/// What is kept of a bucket, in the order in which it is written whole.
struct WholeOrder<'a> {
    /// What stays loose, first.
    loose: Vec<&'a KeptRecord>,
    chain: Vec<&'a KeptRecord>,
}

impl<'a> WholeOrder<'a> {
    fn of(verdict: &'a KeepVerdict, core: &FrugalContents) -> Self {
        let stays_loose = |kept: &&KeptRecord| kept.is_loose && core.may_stay_loose();
        let (loose, chain) = verdict.kept().partition(stays_loose);
        Self { loose, chain }
    }
}

/// Appends what is kept, the oldest first, with all pointers; the bucket's head is the last one. Loose
/// versions stay loose.
pub(super) fn append_whole(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    core: &mut FrugalContents,
) {
    let mut newest: BTreeMap<Name, Youngest> =
        verdict.keys().map(|key| (key.name, Youngest::NONE)).collect();
    let mut loose: BTreeMap<Name, Youngest> = BTreeMap::new();
    let order = WholeOrder::of(verdict, core);
    for kept in order.loose {
        loose.insert(kept.name, append_loose(gathering, kept, core));
    }
    let mut head = NO_PAGE;
    let count = order.chain.len();
    if begins_a_page(
        gathering,
        &order.chain,
        core.kit.volume.writer.room_in_page(StreamId::Hot),
        core,
    ) {
        core.kit.volume.end_page(StreamId::Hot);
    }
    // Without copies it begins, at the earliest, in the open block.
    core.wholes.rewritten(gathering.bucket, core.log.len().saturating_sub(1));
    // A chain that does not have what lies on pages that were not read makes nothing void, and may have
    // younger versions behind it when these are read.
    let is_all = core.kit.volume.blocks.are_all_read() || is_planted!(VoidsUnread);
    for (number, kept) in order.chain.into_iter().enumerate() {
        let (prior, kind) = if is_all {
            let prior = newest.get(&kept.name).map_or(NO_PAGE, |known| known.page);
            (prior, LinkKind::of_copy(number, count))
        } else {
            (UNKNOWN_PAGE, LinkKind::Flagged)
        };
        let links =
            Links { next: head, prior, loose_prior: false, kind, bits: core.buckets.bits() };
        let youngest = append(gathering, kept, links, core);
        if number == 0 {
            core.wholes.rewritten(gathering.bucket, core.log.len() - 1);
        }
        head = youngest.page;
        newest.insert(kept.name, youngest);
    }
    core.buckets.rewritten(gathering.bucket, head);
    for &JudgedKey { name, .. } in verdict.keys().filter(|key| !key.stays) {
        let youngest = loose.get(&name).or_else(|| newest.get(&name)).copied();
        core.translations.update(name, youngest.unwrap_or(Youngest::NONE));
    }
    let all = 0..gathering.records.len();
    forget(gathering, verdict, all, core);
    core.counts.rewritten_buckets += 1;
}

/// Whether a bucket's chain begins a page, as it fits one and not what the open one has left, and there is
/// room to spare: who looks for one of its keys reads one page. What is left empty comes back when the block
/// is emptied.
fn begins_a_page(
    gathering: &Gathering,
    chain: &[&KeptRecord],
    left: usize,
    core: &FrugalContents,
) -> bool {
    let bytes: usize = chain.iter().map(|kept| kept_bytes(gathering, kept)).sum();
    let blocks = &core.kit.volume.blocks;
    let has_room = blocks.free_count() > spare(blocks);
    bytes > left && bytes <= PAGE_ROOM && has_room && !is_planted!(SplitsWholeBuckets)
}

/// Appends what is kept in a block, the oldest first, in front of the chain; what is loose stays so. What
/// lies there is the chain's end: the block is the log's tail. Older versions of a run go with its youngest,
/// wherever they lie.
pub(super) fn append_moved(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    block: BlockId,
    core: &mut FrugalContents,
) {
    let (bucket, geometry) = (gathering.bucket, core.kit.volume.geometry());
    let is_own = |at: usize, core: &FrugalContents| {
        gathering.is_in(at, Some(block), &core.kit.volume.blocks)
    };
    let is_whole = core.buckets.older(bucket).is_empty() && core.may_lead();
    let mut head = core.buckets.head(bucket);
    let mut moved: BTreeMap<Name, Youngest> = BTreeMap::new();
    for kept in verdict.kept() {
        if !kept.leaves {
            debug_assert!(may_stay(gathering, kept, core), "{kept:?} goes with its block");
            continue;
        }
        if kept.is_loose && core.may_stay_loose() {
            moved.insert(kept.name, append_loose(gathering, kept, core));
            continue;
        }
        let (younger, older) = (kept.has_younger, kept.has_older);
        let kind = if younger || !is_whole { LinkKind::Flagged } else { LinkKind::Youngest };
        let prior = if younger || older || !is_whole { UNKNOWN_PAGE } else { NO_PAGE };
        let bits = core.buckets.bits();
        let links = Links { next: head, prior, loose_prior: false, kind, bits };
        let copy = append(gathering, kept, links, core);
        head = copy.page;
        moved.insert(kept.name, copy);
    }
    let first = geometry.page(block, 0).0;
    core.buckets.moved(bucket, head, first..first + geometry.pages_per_block);
    for &JudgedKey { name, youngest, first, .. } in verdict.keys().filter(|key| !key.stays) {
        let youngest = youngest.map_or(Youngest::NONE, |at| {
            if is_own(at, core) {
                return Youngest { exact: is_whole, ..moved[&name] };
            }
            let gathered = &gathering.records[at];
            let exact = is_whole && first == at && !moved.contains_key(&name);
            Youngest::of(&gathering.record(gathered), gathered.place.page, exact)
        });
        core.translations.update(name, youngest);
    }
    let own: Vec<usize> = (0..gathering.records.len()).filter(|&at| is_own(at, core)).collect();
    forget(gathering, verdict, own.into_iter(), core);
}

/// Whether what is kept is still there when every block is erased that has left the log. A tombstone need not
/// be: it may be kept for what lies in such a block as well.
fn may_stay(gathering: &Gathering, kept: &KeptRecord, core: &FrugalContents) -> bool {
    let gathered = &gathering.records[kept.at];
    let record = gathering.record(gathered);
    let blocks = &core.kit.volume.blocks;
    let block = blocks.of(PageId(gathered.place.page));
    let is_emptied =
        core.log.front() != Some(&block) && blocks.get(block).state == BlockState::Victim;
    !is_emptied || record.kind.is_tombstone() || !record.expires_at.is_never()
}

/// Appends what is kept of some records, whose pages could not be programmed, in front of the chain, loose ones
/// as well. What was behind them are further beginnings, as after a crash.
pub(super) fn append_displaced(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    is_displaced: impl Fn(usize) -> bool,
    core: &mut FrugalContents,
) {
    let bucket = gathering.bucket;
    // Several blocks may have failed, with others between them.
    let of_chain = (0..gathering.records.len()).filter(|&at| !gathering.records[at].is_loose);
    let of_chain: Vec<usize> = of_chain.collect();
    let behind = of_chain
        .windows(2)
        .filter(|pair| is_displaced(pair[0]) && !is_displaced(pair[1]))
        .map(|pair| gathering.records[pair[1]].place);
    let behind: Vec<RecordPlace> = behind.collect();
    let (mut head, mut moved) = (core.buckets.head(bucket), BTreeMap::new());
    for kept in verdict.kept().filter(|kept| is_displaced(kept.at)) {
        let (prior, kind) = (UNKNOWN_PAGE, LinkKind::Flagged);
        let copy = append(
            gathering,
            kept,
            Links { next: head, prior, loose_prior: false, kind, bits: core.buckets.bits() },
            core,
        );
        head = copy.page;
        moved.insert(kept.name, copy);
    }
    core.buckets.displaced(bucket, head, &behind);
    for &JudgedKey { name, youngest, stays, .. } in verdict.keys() {
        if stays {
            core.translations.mistrust(name);
            continue;
        }
        let youngest = youngest.map_or(Youngest::NONE, |at| {
            let gathered = &gathering.records[at];
            match moved.get(&name).filter(|_| is_displaced(at)) {
                Some(&copy) => Youngest { exact: false, ..copy },
                None => Youngest::of(&gathering.record(gathered), gathered.place.page, false),
            }
        });
        core.translations.update(name, youngest);
    }
    let displaced = (0..gathering.records.len()).filter(|&at| is_displaced(at));
    let bytes = |at: usize| gathering.record(&gathering.records[at]).bytes() as u64;
    let gone = displaced.clone().map(bytes).fold((0, 0), |sum, one| (sum.0 + 1, sum.1 + one));
    core.left_log(gone.0, gone.1);
    forget(gathering, verdict, displaced, core);
}

/// Whether buckets with long chains are written whole: so much of the log is dead that what becomes void
/// with them comes back soon.
/// `won_before`: what the last block that was emptied has given back.
pub(super) fn may_shorten(won_before: u64, core: &FrugalContents) -> bool {
    let volume = &core.kit.volume;
    let dead = core.superseded_bytes >= core.record_bytes / LEAST_DEAD
        || won_before >= block_bytes(volume.geometry()) / LEAST_DEAD;
    dead && volume.blocks.free_count() > volume.blocks.reserve()
}

/// Whether there is room for one of them.
pub(super) fn has_room_to_shorten(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    core: &FrugalContents,
) -> bool {
    has_room_for_whole(gathering, verdict, core.kit.volume.blocks.reserve(), core)
}

/// Whether there is room to move some of what is kept.
pub(super) fn has_room_for(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    moves: impl Fn(usize) -> bool,
    core: &FrugalContents,
) -> bool {
    let kept = verdict.kept().filter(|kept| moves(kept.at));
    has_room(kept.map(|kept| kept_bytes(gathering, kept)), 0, core)
}

fn append_loose(gathering: &Gathering, kept: &KeptRecord, core: &mut FrugalContents) -> Youngest {
    core.append_loose_copy(&gathering.record(&gathering.records[kept.at]), kept.name)
}

fn append(
    gathering: &Gathering,
    kept: &KeptRecord,
    links: Links,
    core: &mut FrugalContents,
) -> Youngest {
    let mut record = gathering.record(&gathering.records[kept.at]);
    if kept.shrinks {
        (record.kind, record.value) = (RecordKind::Tombstone, &[]);
    }
    record.links = Some(links);
    core.append_copy(&record, kept.name)
}

/// Notes what dies with records of these places, which are in the chain no more.
fn forget(
    gathering: &Gathering,
    verdict: &KeepVerdict,
    places: impl Iterator<Item = usize>,
    core: &mut FrugalContents,
) {
    let record = |at: usize| gathering.record(&gathering.records[at]);
    // Parts that live, or are counted as dead: by where the first of a value is.
    let mut accounted: BTreeSet<(PageId, Generation)> = verdict
        .kept()
        .filter(|kept| !kept.shrinks)
        .filter_map(|kept| first_part(&record(kept.at)))
        .collect();
    for at in places {
        let record = record(at);
        let kept = verdict.of(at);
        if kept.is_none() && !verdict.stays_at(at) {
            core.counts.dropped_records += 1;
            core.counts.dropped_tombstones += u64::from(verdict.forgets_at(at));
        }
        if kept.is_none_or(|kept| kept.shrinks)
            && first_part(&record).is_some_and(|first| accounted.insert(first))
        {
            core.counts.dead_part_bytes += parts_died(&record, &mut core.kit.volume.blocks);
        }
    }
}

fn first_part(record: &Record<'_>) -> Option<(PageId, Generation)> {
    let head = record.kind.is_large().then(|| LargeHead::read(record.value)).flatten()?;
    head.extents.first().map(|extent| (extent.page, extent.generation))
}

/// The parts of a large value that is dropped are dead: their bytes. Of a value that has left one of its
/// blocks some parts may be gone before: the others are not.
fn parts_died(dropped: &Record<'_>, blocks: &mut Blocks) -> u64 {
    let Some(head) = LargeHead::read(dropped.value) else { return 0 };
    let mut bytes = 0;
    for extent in &head.extents {
        if is_in_place(extent, blocks) {
            blocks.usage(blocks.of(extent.page)).died(extent.pages * PAGE_BYTES as u32);
            bytes += u64::from(extent.pages) * PAGE_BYTES as u64;
        }
    }
    bytes
}

/// What may be written beside a block's own records while it is emptied: half of what it will win, if
/// as much of it is dead as of the one before, or of all as far as that is known.
pub(super) fn budget(won_before: u64, core: &FrugalContents) -> u64 {
    let block = block_bytes(core.kit.volume.geometry());
    let known = block * core.superseded_bytes.min(core.record_bytes) / core.record_bytes.max(1);
    known.max(won_before) / 2
}

/// What the log has grown by since its ordinal was `before`, in bytes.
pub(super) fn grown_since(before: u64, core: &FrugalContents) -> u64 {
    (core.kit.volume.writer.ordinal(StreamId::Hot) - before) * PAGE_BYTES as u64
}

/// Whether so much seems to be dead that it is worth emptying blocks before it is urgent.
pub(super) fn is_worthwhile(core: &FrugalContents) -> bool {
    core.superseded_bytes >= block_bytes(core.kit.volume.geometry())
        && core.superseded_bytes >= core.record_bytes / 8
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

    use super::super::chain::SoughtKey;
    use super::super::keep::Leaving;
    use super::super::work::looks_of;
    use super::super::{Skimpy, SkimpyConfig, keep};
    use super::*;
    use crate::api::{Reads, Upkeep, Writes};
    use crate::kit::ledger::Held;

    /// A way in which a bucket leaves the log's tail.
    type Append = fn(&Gathering, &KeepVerdict, BlockId, &mut FrugalContents);

    const WAYS: [(&str, Append); 3] = [
        ("whole", |gathering, verdict, _, core| append_whole(gathering, verdict, core)),
        ("moved", append_moved),
        ("displaced", |gathering, verdict, _, core| {
            append_displaced(gathering, verdict, |at| at.is_multiple_of(2), core);
        }),
    ];

    /// Looks at records while a bucket is judged and leaves a block: of one key with so many versions
    /// that a reader may want.
    fn looks_at(versions: u64, append: Append) -> u64 {
        let config = MemoryConfig {
            pages_per_block: 64,
            initial_blocks: 64,
            max_blocks: 64,
            ..MemoryConfig::default()
        };
        let device = Box::new(MemoryMedia::new(config).open());
        let config = SkimpyConfig { keys: 4, cache_bytes: 0, ..SkimpyConfig::default() };
        let (mut store, _) = Skimpy::open(device, config).expect("opens");
        for n in 1..=versions {
            let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, b"hot");
            let version = Version::new(Timestamp::from_nanos(n), ClientId::new(1));
            store.put(key, version, b"value", Expiry::NEVER).expect("there is room");
            if n % 200 == 0 {
                store.pump(Timestamp::from_nanos(n * 1_000_000), &mut Vec::new());
            }
        }
        let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, b"hot");
        let core = &mut store.core;
        let mut gathering = core.gathering(core.buckets.of(key.hash), None);
        while let Some(page) = gathering.page(&core.buckets, &core.kit.volume.blocks) {
            let group = core.kit.volume.page_in_group(PageId(page));
            let bytes = group.expect("nothing is durable yet").to_vec();
            gathering.look(&bytes, true, &core.buckets).expect("it is sound");
        }
        assert_eq!(gathering.records.len() as u64, versions);
        let tail = core.log[0];
        looks_of(|| {
            let verdict = keep::judge(&gathering, Leaving::Block(tail), true, core);
            assert_eq!(verdict.count() as u64, versions, "all of them are wanted");
            append(&gathering, &verdict, tail, core);
        })
    }

    /// *Otherwise* one key with very many versions takes a pump long.
    #[test]
    fn work_grows_hardly_faster_than_versions() {
        for (name, append) in WAYS {
            let looks = [500, 4000].map(|versions| looks_at(versions, append));
            // Sorting takes half as much again for each.
            assert!(looks[0] > 500 && looks[1] < 14 * looks[0], "{name}: {looks:?}");
            assert!(looks[1] < 4000 * 100, "{name}: {looks:?}");
        }
    }

    /// A bucket is written whole while the open page has room for one of its three records: the pages
    /// where they are then.
    fn pages_of_a_whole_bucket() -> BTreeSet<u32> {
        let config =
            MemoryConfig { pages_per_block: 64, initial_blocks: 64, ..MemoryConfig::default() };
        let device = Box::new(MemoryMedia::new(config).open());
        let config = SkimpyConfig { keys: 1000, cache_bytes: 0, ..SkimpyConfig::default() };
        let (mut store, _) = Skimpy::open(device, config).expect("opens");
        let names: Vec<[u8; 8]> = (0..10_000u64).map(u64::to_be_bytes).collect();
        let bucket_of = |store: &Skimpy, name: &[u8; 8]| {
            let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, name);
            store.core.buckets.of(key.hash)
        };
        let bucket = bucket_of(&store, &names[0]);
        let (own, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| bucket_of(&store, name) == bucket);
        let three = own.iter().take(3).map(|name| (name, 800));
        for (name, bytes) in three.chain([(&others[0], 3000), (&others[1], 2800)]) {
            let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, name);
            let version = Version::new(Timestamp::from_nanos(5), ClientId::new(1));
            store.put(key, version, &vec![1; bytes], Expiry::NEVER).expect("there is room");
        }
        let core = &mut store.core;
        let gathered = |core: &FrugalContents| {
            let mut gathering = core.gathering(bucket, None);
            while let Some(page) = gathering.page(&core.buckets, &core.kit.volume.blocks) {
                let group = core.kit.volume.page_in_group(PageId(page));
                let bytes = group.expect("nothing is durable yet").to_vec();
                gathering.look(&bytes, true, &core.buckets).expect("it is sound");
            }
            gathering
        };
        let gathering = gathered(core);
        let verdict = keep::judge(&gathering, Leaving::Nothing, false, core);
        append_whole(&gathering, &verdict, core);
        let gathering = gathered(core);
        assert_eq!(gathering.records.len(), 3);
        gathering.records.iter().map(|record| record.place.page).collect()
    }

    #[test]
    fn a_bucket_that_is_written_whole_lies_in_one_page() {
        assert_eq!(pages_of_a_whole_bucket().len(), 1);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_whole_bucket_that_lies_in_two_pages_is_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::SplitsWholeBuckets, pages_of_a_whole_bucket).len(), 2);
    }

    /// How a bucket of which everything lies in the tail leaves it, with so many pages left of the log and no
    /// clean block. What is kept would fit two in the order of its versions.
    fn way_with_pages_left(pages: u32) -> Way {
        let config = MemoryConfig {
            pages_per_block: 8,
            initial_blocks: 16,
            max_blocks: 16,
            ..MemoryConfig::default()
        };
        let device = Box::new(MemoryMedia::new(config).open());
        let config = SkimpyConfig {
            keys: 1,
            translated_thousandths: 64_000,
            cache_bytes: 0,
            ..Default::default()
        };
        let (mut store, _) = Skimpy::open(device, config).expect("opens");
        let seed = store.seed();
        let names: Vec<[u8; 4]> = (0..100u32).map(u32::to_be_bytes).collect();
        let keys = names.iter().map(|name| KeyRef::new(seed, KeyspaceId::DEFAULT, name));
        let (own, others): (Vec<_>, Vec<_>) = keys.partition(|key| key.hash.0 >> 63 == 0);
        let version = |n| Version::new(Timestamp::from_nanos(n), ClientId::new(1));
        let put = |store: &mut Skimpy, key, n, bytes: usize| {
            store.put(key, version(n), &vec![7; bytes], Expiry::NEVER).expect("there is room");
        };
        // x and y have loose versions, a and b are in the chain.
        let [x, y, a, b] = [own[0], own[1], own[2], own[3]];
        for (key, n, bytes) in
            [(x, 1, 10), (y, 2, 10), (a, 10, 2700), (x, 20, 1000), (b, 30, 2700), (y, 40, 1000)]
        {
            put(&mut store, key, n, bytes);
        }
        let core = &mut store.core;
        let tail = core.log[0];
        let bucket = core.buckets.of(x.hash);
        let link = |core: &mut FrugalContents, key: KeyRef<'_>, n| {
            let value = vec![7; 3800];
            let record = Record {
                kind: RecordKind::Value,
                keyspace: key.keyspace,
                hash: key.hash,
                version: version(n),
                expires_at: Expiry::at(Timestamp::MAX.previous()),
                key: key.bytes,
                value: &value,
                links: None,
            };
            core.link(&record, SoughtKey::of(key).name, Held::NOTHING, 0)
        };
        let mut n = 100;
        while core.kit.volume.blocks.clean_count() > 0
            || core.kit.volume.writer.pages_left(StreamId::Hot, &core.kit.volume.blocks) != pages
        {
            n += 1;
            link(core, others[n as usize % 8], n).expect("there is room");
        }
        let mut gathering = core.gathering(bucket, None);
        while let Some(page) = gathering.page(&core.buckets, &core.kit.volume.blocks) {
            let group = core.kit.volume.page_in_group(PageId(page));
            let bytes = group.expect("nothing is durable yet").to_vec();
            gathering.look(&bytes, true, &core.buckets).expect("it is sound");
        }
        let verdict = keep::judge(&gathering, Leaving::Block(tail), false, core);
        let lengths = verdict.kept().map(|kept| kept_bytes(&gathering, kept));
        assert!(has_room(lengths, 0, core), "it would fit in another order");
        let weight = Weight::of(&gathering, &verdict);
        let way = choose(&gathering, &verdict, weight, Some(tail), 0, core);
        if way == Way::Whole {
            append_whole(&gathering, &verdict, core);
        }
        way
    }

    /// As it is written, loose ones first, it takes three.
    #[test]
    fn what_seems_to_have_room_has_room() {
        assert_eq!([2, 3].map(way_with_pages_left), [Way::Waits, Way::Whole]);
    }
}

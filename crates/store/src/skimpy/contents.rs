//! What the store holds: pages and blocks, keyspaces, buckets, translations, staged values; how a
//! record gets into its chain, and what of a chain can be followed in memory.
//!
//! ```text
//!   link: bucket's head ─► hash next     translation ─► prior, or unknown     not the youngest? flagged
//!           └─► the log (one stream) ─► head, translation
//!   put_loose: translation ─► prior ─► the log ─► translation
//! ```
//!
//! A put is known to be its key's youngest version when the translation says so, when everything
//! that was ever linked near its bucket is older, or when what lies in memory of the chain shows it.
//!
//! Invariant: all records of keys are in one stream, so that the order of their linking is that of
//! their pages' sequence numbers and slots.

use std::collections::{BTreeMap, VecDeque};

use timestone_flash::{BlockId, PageId};
use timestone_types::{Expiry, HashSeed, KeyHash, Timestamp, Version, check_key, is_planted};

use super::buckets::{Buckets, RecordPlace};
use super::chain::{Gathering, GatheringRule, Search, SoughtKey, Start};
use super::epochs::WholeRewritings;
use super::long::{LongChains, SpareRoom};
use super::loose::LooseVersion;
use super::rewrite;
use super::spaces::FencedSpaces;
use super::tail_pages::TailPages;
use super::translations::{Name, Translations, Youngest};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::key_id::KeyId;
use crate::kit::ledger::Held;
use crate::kit::writer::StreamId;
use crate::layout::{self, LargeHead, LinkKind, Links, NO_PAGE, Record, RecordKind, UNKNOWN_PAGE};

/// A value whose head is not written yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedVersion {
    pub(super) version: Version,
    pub(super) slot: u32,
    pub(super) tombstone: bool,
    pub(super) may_expire: bool,
}

/// What the store counts since its opening.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FrugalCounts {
    pub(super) puts: u64,
    pub(super) duplicates: u64,
    pub(super) put_bytes: u64,
    pub(super) flagged: u64,
    pub(super) cache_hits: u64,
    pub(super) page_hits: u64,
    pub(super) device_gets: u64,
    pub(super) moved: u64,
    pub(super) rewritten_buckets: u64,
    pub(super) collected_blocks: u64,
    pub(super) dropped_tombstones: u64,
    pub(super) dropped_records: u64,
    /// Of parts of large values that rewriting has let go.
    pub(super) dead_part_bytes: u64,
    /// Blocks of parts that were looked at.
    pub(super) looks: u64,
}

/// See the module.
pub(super) struct FrugalContents {
    pub(super) kit: Kit,
    pub(super) spaces: FencedSpaces,
    pub(super) buckets: Buckets,
    pub(super) translations: Translations,
    pub(super) staged: BTreeMap<Name, Vec<StagedVersion>>,
    /// Blocks of records, the oldest first.
    pub(super) log: VecDeque<BlockId>,
    pub(super) tail_pages: TailPages,
    pub(super) wholes: WholeRewritings,
    pub(super) long_chains: LongChains,
    /// Records in blocks of the log.
    pub(super) records: u64,
    pub(super) record_bytes: u64,
    /// About how many of them are dead, as far as that was known when a younger version came.
    pub(super) superseded_bytes: u64,
    pub(super) counts: FrugalCounts,
}

/// What is known of a key before something is written.
pub(super) enum Known {
    Youngest(Youngest),
    /// The version is there already.
    Exists,
    Unknown,
}

/// What the cache knows a key by.
pub(super) fn key_id(name: Name) -> KeyId {
    KeyId::new(name.hash, name.check)
}

impl FrugalContents {
    /// What a record's key is known by.
    pub(super) fn name_of(&self, record: &Record<'_>) -> Name {
        name_of(record, self.spaces.seed)
    }

    /// Follows a chain as far as it lies in memory. If that is not over, the device would have to be
    /// asked.
    pub(super) fn search_in_memory(
        &self,
        key: SoughtKey<'_>,
        at: Timestamp,
        start: Start,
    ) -> Search {
        let bucket = self.buckets.of(key.name.hash);
        let mut search = Search::new(bucket, at, start, &self.buckets);
        let blocks = &self.kit.volume.blocks;
        while let Some(page) = search.page(&self.buckets, blocks) {
            let Some(bytes) = self.kit.volume.page_in_group(PageId(page)) else {
                return search;
            };
            if search.look(bytes, true, key, &self.buckets, blocks, None).is_err() {
                return search;
            }
        }
        search
    }

    /// The record at a place that lies in memory.
    pub(super) fn record_in_group(&self, place: RecordPlace) -> Result<Record<'_>, StoreError> {
        self.kit
            .volume
            .page_in_group(PageId(place.page))
            .and_then(|bytes| layout::record_at(bytes, place.slot))
            .and_then(Record::read)
            .ok_or(StoreError::Corrupt {
                page: place.page,
                reason: "a page being written lost a record",
            })
    }

    /// The youngest staged version of a key at or before a time.
    pub(super) fn staged_at(&self, name: Name, at: Timestamp) -> Option<StagedVersion> {
        let versions = self.staged.get(&name)?.iter().copied();
        versions.filter(|staged| staged.version.timestamp <= at).max_by_key(|staged| staged.version)
    }

    /// What a search for a key begins with.
    pub(super) fn start_of(&self, name: Name) -> Start {
        Start { known: self.translations.peek(name) }
    }

    /// Whether memory knows where a key's youngest version is.
    pub(super) fn knows(&self, name: Name) -> bool {
        self.translations.peek(name).is_some()
    }

    /// What is known of a key that a version is to be written of, without the device.
    pub(super) fn known(&mut self, key: SoughtKey<'_>, version: Version) -> Known {
        if let Some(youngest) = self.translations.get(key.name) {
            if youngest.version == version {
                return Known::Exists;
            }
            if youngest.version < version {
                return Known::Youngest(youngest);
            }
            // Only from there is a loose one found.
            let start = Start { known: Some(youngest).filter(|known| known.loose) };
            let search = self.search_in_memory(key, version.timestamp, start);
            let found = search.best.is_some_and(|best| best.version == version);
            return if found { Known::Exists } else { Known::Youngest(youngest) };
        }
        let search = self.search_in_memory(key, version.timestamp, Start::HEAD);
        if search.best.as_ref().is_some_and(|best| best.version == version) {
            return Known::Exists;
        }
        match search.youngest().filter(|_| search.is_over()) {
            Some(youngest) => {
                self.translations.insert(key.name, youngest);
                Known::Youngest(youngest)
            }
            None => Known::Unknown,
        }
    }

    /// Appends a record to the log and puts it in front of its chain; its page. `None`: there is no
    /// room, as fewer than `leave` blocks would stay free. The open block may be one that collection
    /// took out of what is left: that is not filled with others.
    pub(super) fn link(
        &mut self,
        record: &Record<'_>,
        name: Name,
        held: Held,
        leave: u32,
    ) -> Option<PageId> {
        if self.kit.volume.blocks.free_count() < leave {
            return None;
        }
        let bucket = self.buckets.of(record.hash);
        let known = self.translations.peek(name);
        let version = record.version;
        let is_youngest = match known {
            Some(known) => known.version < version,
            None => {
                version.timestamp > self.buckets.youngest(bucket)
                    && self.buckets.older(bucket).is_empty()
            }
        };
        // Nothing else leads to a loose one.
        let loose_prior = known.is_some_and(|known| is_youngest && known.loose);
        let prior = match known {
            Some(known) if is_youngest && known.loose => known.page,
            Some(known) if is_youngest && known.exact && self.may_lead() => known.page,
            _ => UNKNOWN_PAGE,
        };
        if let Some(known) = known.filter(|_| is_youngest)
            && self.may_be_loose(record, name, known)
        {
            let (bits, kind) = (self.buckets.bits(), LinkKind::Loose);
            // What is in the chain is looked for there: by now it may have been rewritten.
            let prior = if loose_prior { known.page } else { UNKNOWN_PAGE };
            let links = Links { next: NO_PAGE, prior, loose_prior, kind, bits };
            let record = Record { links: Some(links), ..*record };
            return self.put_loose(&record, name, known, (held, leave));
        }
        let head = self.buckets.head(bucket);
        // What came late may be younger than some of the loose ones.
        let mistrusted = loose_prior && known.is_some_and(|known| !known.exact);
        let kind = match is_youngest && !mistrusted && self.may_lead() {
            true => LinkKind::Youngest,
            false => LinkKind::Flagged,
        };
        let links = Links { next: head, prior, loose_prior, kind, bits: self.buckets.bits() };
        let record = Record { links: Some(links), ..*record };
        let page = self.append(&record, name.check, held, leave)?;
        if head != page.0 && !record.kind.is_large() {
            self.buckets.add_detours(bucket, 1);
            self.long_chains.note(bucket, SpareRoom::Scarce, &self.buckets);
        }
        self.buckets.link(bucket, page.0, version.timestamp);
        self.records += 1;
        self.record_bytes += record.bytes() as u64;
        self.counts.flagged += u64::from(!is_youngest);
        if known.is_some_and(|known| !known.version.is_zero()) {
            self.superseded_bytes += record.bytes() as u64;
        }
        let newest = Youngest::of(&record, page.0, true);
        match known {
            // It has another head now: the parts of the old one are about to go.
            Some(known) if known.version == version && !is_planted!(KeepsOldHead) => {
                self.translations.update(name, newest);
            }
            Some(known) if !is_youngest => {
                self.translations.update(name, Youngest { exact: false, ..known });
            }
            _ if is_youngest => self.translations.insert(name, newest),
            _ => {}
        }
        Some(page)
    }

    /// Whether a version that is its key's youngest needs no chain: memory keeps where it is. What goes by
    /// rules of its own (a tombstone, what expires, a large value) is in the chain. So is everything while a page
    /// is unread: it may have a younger one.
    fn may_be_loose(&self, record: &Record<'_>, name: Name, known: Youngest) -> bool {
        let is_plain = record.kind == RecordKind::Value && record.expires_at.is_never();
        let is_known = known.loose
            || (known.exact
                && known.page != NO_PAGE
                && self.buckets.older(self.buckets.of(name.hash)).is_empty());
        is_plain && is_known && self.may_stay_loose() && self.translations.may_be_loose(name)
    }

    /// Whether anything may be loose: while a page is unread it may have a younger version of any key (K13b).
    pub(super) fn may_stay_loose(&self) -> bool {
        self.kit.volume.blocks.are_all_read() || is_planted!(LooseBesideUnread)
    }

    /// Whether what is linked in front of a chain may say that nothing younger is behind it: not while a page is
    /// unread (K13b).
    pub(super) fn may_lead(&self) -> bool {
        self.kit.volume.blocks.are_all_read() || is_planted!(LeadsBesideUnread)
    }

    /// Appends a loose version of a key; its page, as for [`Self::link`].
    fn put_loose(
        &mut self,
        record: &Record<'_>,
        name: Name,
        known: Youngest,
        (held, leave): (Held, u32),
    ) -> Option<PageId> {
        let page = self.append(record, name.check, held, leave)?;
        self.buckets.put(self.buckets.of(record.hash), record.version.timestamp);
        self.records += 1;
        self.record_bytes += record.bytes() as u64;
        self.superseded_bytes += record.bytes() as u64;
        // Nobody reads before a version that is at or below the watermark.
        let mark = self.spaces.marks.collection();
        let exact = known.exact || known.version.timestamp <= mark;
        self.translations.update(name, Youngest::of(record, page.0, exact));
        Some(page)
    }

    /// Appends a copy of a loose version that stays loose, for which there is room. What of its key is older is in
    /// the chain by now.
    pub(super) fn append_loose_copy(&mut self, record: &Record<'_>, name: Name) -> Youngest {
        let is_passed = record.version.timestamp <= self.spaces.marks.collection();
        let prior = if is_passed { NO_PAGE } else { UNKNOWN_PAGE };
        let (bits, kind) = (self.buckets.bits(), LinkKind::Loose);
        let links = Links { next: NO_PAGE, prior, loose_prior: false, kind, bits };
        self.append_copy(&Record { links: Some(links), ..*record }, name)
    }

    /// Appends a record to the log.
    pub(super) fn append(
        &mut self,
        record: &Record<'_>,
        check: u32,
        held: Held,
        leave: u32,
    ) -> Option<PageId> {
        let page = self.kit.volume.append_held(StreamId::Hot, (record, held), check, leave)?;
        let block = self.kit.volume.blocks.of(page);
        if self.log.back() != Some(&block) {
            debug_assert!(!self.log.contains(&block), "a block is filled once");
            self.log.push_back(block);
            let bytes = self.kit.volume.page_in_group(page).expect("it was just begun");
            self.buckets.begun(block, layout::sequence(bytes));
            self.translations.block_begun(self.kit.volume.blocks.count());
        }
        Some(page)
    }

    /// A look-up of a small value has gone through so many pages of a bucket's chain.
    pub(super) fn walked(&mut self, bucket: u32, pages: u8) {
        if pages < 2 {
            return;
        }
        self.buckets.add_detours(bucket, pages - 1);
        let blocks = &self.kit.volume.blocks;
        let has_room = blocks.free_count() > rewrite::spare(blocks);
        let room = if has_room { SpareRoom::ToSpare } else { SpareRoom::Scarce };
        self.long_chains.note(bucket, room, &self.buckets);
    }

    /// Whether a bucket's chain begins in a block, or one of its pieces may.
    pub(super) fn begins_in(&self, bucket: u32, block: BlockId) -> bool {
        let head = self.buckets.head(bucket);
        !self.buckets.older(bucket).is_empty()
            || (head != NO_PAGE && self.kit.volume.blocks.of(PageId(head)) == block)
    }

    /// Records have left the log with their block, in which nothing was alive any more.
    pub(super) fn left_log(&mut self, records: u64, bytes: u64) {
        self.records = self.records.saturating_sub(records);
        self.record_bytes = self.record_bytes.saturating_sub(bytes);
        self.superseded_bytes = self.superseded_bytes.saturating_sub(bytes);
    }

    /// Appends a copy of a record, for which there is room; where it is now.
    pub(super) fn append_copy(&mut self, record: &Record<'_>, name: Name) -> Youngest {
        let page = self.append(record, name.check, Held::NOTHING, 0);
        let page = page.expect("there was room for all of them");
        self.records += 1;
        self.record_bytes += record.bytes() as u64;
        // The original is dead now, until its block leaves the log.
        self.superseded_bytes += record.bytes() as u64;
        self.counts.moved += 1;
        Youngest::of(record, page.0, true)
    }

    /// Gathers a bucket from its newest record on: all that a reader may want; or until it meets one of
    /// those that were gathered before.
    pub(super) fn gathering(&self, bucket: u32, before: Option<&Gathering>) -> Gathering {
        let rule = gathering_rule(bucket, &self.buckets, &self.translations, &self.spaces);
        Gathering::new(bucket, before, rule, &self.buckets)
    }

    /// Memory of the index.
    pub(super) fn index_bytes(&self) -> u64 {
        self.buckets.bytes() + self.wholes.bytes() + self.translations.bytes()
    }
}

/// What a record's key is known by.
pub(super) fn name_of(record: &Record<'_>, seed: HashSeed) -> Name {
    let check = match record.kind.is_large().then(|| LargeHead::read(record.value)).flatten() {
        Some(head) => head.check,
        None => check_key(seed, record.keyspace, record.key),
    };
    Name { keyspace: record.keyspace, hash: record.hash, check }
}

/// Whether a record is one of a key, by its hashes.
pub(super) fn is_of(record: &Record<'_>, name: Name, seed: HashSeed) -> bool {
    record.hash == name.hash && name_of(record, seed) == name
}

/// What the records of a bucket are gathered by now.
pub(super) fn gathering_rule(
    bucket: u32,
    buckets: &Buckets,
    translations: &Translations,
    spaces: &FencedSpaces,
) -> GatheringRule {
    let loose = translations.loose_among(buckets.hashes(bucket));
    let version = |(name, Youngest { version, page, .. })| LooseVersion { name, version, page };
    let (mark, seed) = (spaces.marks.collection(), spaces.seed);
    GatheringRule { loose: loose.map(version).collect(), mark, seed }
}

/// A fence's record.
pub(super) fn fence_record(
    keyspace: timestone_types::KeyspaceId,
    version: Version,
) -> Record<'static> {
    Record {
        kind: layout::RecordKind::Fence,
        keyspace,
        hash: KeyHash(0),
        version,
        expires_at: Expiry::NEVER,
        key: &[],
        value: &[],
        links: None,
    }
}

const _: () = assert!(NO_PAGE > UNKNOWN_PAGE, "both lie above every page");

#[cfg(test)]
mod tests {
    use timestone_flash::Geometry;

    use super::*;

    /// Bytes for each key of SkimpyFTL's device (§4): 20 million keys, 32 GB in blocks of 32 pages.
    fn index_bytes(translated_thousandths: u64) -> f64 {
        const KEYS: u64 = 20_000_000;
        let blocks = (32_000_000_000u64 / (32 * 4096)) as u32;
        let geometry = Geometry { pages_per_block: 32, blocks, max_blocks: blocks };
        let mut buckets = Buckets::new(Buckets::bits_for(KEYS, 3), geometry.most_pages());
        buckets.begun(BlockId(blocks - 1), 1);
        let wholes = WholeRewritings::new(buckets.count(), blocks);
        let known = (KEYS * translated_thousandths / 1000) as usize;
        let translations = Translations::new(known, true, geometry);
        (buckets.bytes() + wholes.bytes() + translations.bytes()) as f64 / KEYS as f64
    }

    /// `mftl` has 45 there (docs/experiments/skimpy-f5.md).
    #[test]
    fn with_few_translations_the_index_takes_a_twentieth_of_a_full_one() {
        let [few, many] = [14, 100].map(index_bytes);
        assert!(few <= 45.0 / 20.0 && many <= 5.3, "{few} {many}");
    }
}

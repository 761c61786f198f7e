//! Walks: scans and counts over an index, scrubs over all pages.
//!
//! A scan follows the order of hashes: segment, then tag; its cursor is that pair, so it survives
//! growth of tables and restarts. Keys are not in memory: each one is read, from the cache, a group
//! or its page (shared with everybody who wants that page). A count reads only versions that may
//! have expired, and nothing at all when no key of the keyspace can expire and the question is
//! about now.
//!
//! ```text
//!   cursor ──► keys in order, found in any order ──► sorted: [ as many as the limit allows │ too many ]   listed up to here
//!                                                            next cursor ──────────────────┘ found again by the next scan
//! ```
//! How long keys are is known only when they are found, and many reads are under way at once: so a
//! scan may find more than its limit. What is too much is dropped, and the cursor goes back to the
//! first key that was dropped.
//!
//! Invariants: `outstanding` of a walk = its waiters in [`super::reads`]; a cursor that is given
//! out is behind every key that came with it, and not behind any other that is visible.

use timestone_flash::{BlockId, FlashError, FlashOp, PAGE_BYTES, PageId};
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version};

use super::Mftl;
use super::collect;
use super::index::{KeyId, Location, SEGMENTS};
use super::reads::{For, Waiter};
use crate::api::{AsOf, Count, KeyList, ReadToken, ScanCursor, ScanLimit, ScrubReport, StoreEvent};
use crate::error::StoreError;
use crate::kit::blocks::BlockState;
use crate::kit::port::Purpose;
use crate::layout::{self, PageKind, Record};
use crate::limits::GROUP_PAGES;

/// Reads that one walk may have under way.
const MAX_OUTSTANDING: u32 = 64;
/// Keys that one pump looks at.
const KEYS_PER_PUMP: u32 = 2048;

/// Keys that are listed at a time.
const KEYS_AT_A_TIME: u32 = 32;

enum WalkKind {
    Scan { limit: ScanLimit, listed: u32, found: FoundKeys },
    Count { keys: u64 },
}

/// Keys that a scan found, in any order, with their positions.
#[derive(Default)]
struct FoundKeys {
    keys: Vec<(ScanCursor, core::ops::Range<usize>)>,
    bytes: Vec<u8>,
}

impl FoundKeys {
    fn push(&mut self, position: ScanCursor, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.keys.push((position, start..self.bytes.len()));
    }

    /// The first keys in the order of positions, as many as a limit allows but at least those of
    /// one position; and the position of the first key that was left out.
    fn within(mut self, limit: ScanLimit) -> (KeyList, Option<ScanCursor>) {
        self.keys.sort_by_key(|(position, _)| *position);
        let (mut taken, mut count, mut bytes) = (KeyList::default(), 0, 0);
        for group in self.keys.chunk_by(|one, other| one.0 == other.0) {
            count += group.len();
            bytes += group.iter().map(|(_, range)| range.len()).sum::<usize>();
            if (count > limit.keys as usize || bytes > limit.bytes) && !taken.is_empty() {
                return (taken, Some(group[0].0));
            }
            group.iter().for_each(|(_, range)| taken.push(&self.bytes[range.clone()]));
        }
        (taken, None)
    }
}

const fn position_of(segment: u16, tag: u32) -> ScanCursor {
    ScanCursor((segment as u64) << 32 | tag as u64)
}

struct Walk {
    id: u64,
    token: ReadToken,
    keyspace: KeyspaceId,
    as_of: AsOf,
    kind: WalkKind,
    segment: u16,
    tag: u32,
    outstanding: u32,
    error: Option<StoreError>,
}

impl Walk {
    fn listed_all(&self) -> bool {
        usize::from(self.segment) >= SEGMENTS
            || self.error.is_some()
            || matches!(&self.kind, WalkKind::Scan { limit, listed, found } if *listed >= limit.keys || found.bytes.len() >= limit.bytes)
    }

    /// How many keys are to be listed next.
    fn wanted(&self) -> u32 {
        match &self.kind {
            WalkKind::Scan { limit, listed, .. } => {
                limit.keys.saturating_sub(*listed).min(KEYS_AT_A_TIME)
            }
            WalkKind::Count { .. } => KEYS_AT_A_TIME,
        }
    }

    fn found(&mut self, id: KeyId, key: &[u8]) {
        match &mut self.kind {
            WalkKind::Scan { found, .. } => found.push(position_of(id.segment, id.tag), key),
            WalkKind::Count { keys } => *keys += 1,
        }
    }

    fn finish(self) -> StoreEvent {
        let token = self.token;
        if let Some(error) = self.error {
            return StoreEvent::ReadFailed { token, error };
        }
        match self.kind {
            WalkKind::Count { keys } => StoreEvent::CountDone { token, keys },
            WalkKind::Scan { limit, found, .. } => {
                let more = usize::from(self.segment) < SEGMENTS;
                let listed_to = more.then(|| position_of(self.segment, self.tag));
                let (keys, left_out) = found.within(limit);
                #[cfg(feature = "planted-bugs")]
                let left_out =
                    left_out.filter(|_| !crate::planted::bugs().drop_what_a_page_cannot_hold);
                StoreEvent::ScanDone { token, keys, next: left_out.or(listed_to) }
            }
        }
    }
}

struct Scrub {
    block: u32,
    page: u32,
    reading: Option<(PageId, u32)>,
    report: ScrubReport,
}

/// All walks under way.
#[derive(Default)]
pub(super) struct Walks {
    list: Vec<Walk>,
    next_id: u64,
    scrub: Option<Scrub>,
    /// Pages that waiters want and that were in groups when they asked.
    pub(super) group_pages: Vec<PageId>,
}

impl Walks {
    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        !self.group_pages.is_empty()
            || self.scrub.as_ref().is_some_and(|scrub| scrub.reading.is_none())
            || self.list.iter().any(|walk| !walk.listed_all() && walk.outstanding < MAX_OUTSTANDING)
    }
}

impl Mftl {
    pub(super) fn check_age(&self, at: Timestamp) -> Result<(), StoreError> {
        if at < self.watermark {
            Err(StoreError::TooOld { at, watermark: self.watermark })
        } else {
            Ok(())
        }
    }

    fn begin_walk(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        cursor: ScanCursor,
        token: ReadToken,
        kind: WalkKind,
    ) {
        let id = self.walks.next_id;
        self.walks.next_id += 1;
        let segment = (cursor.0 >> 32).min(SEGMENTS as u64) as u16;
        let tag = cursor.0 as u32;
        self.walks.list.push(Walk {
            id,
            token,
            keyspace,
            as_of,
            kind,
            segment,
            tag,
            outstanding: 0,
            error: None,
        });
    }

    pub(super) fn begin_scan(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.check_age(as_of.at)?;
        let limit = ScanLimit { keys: limit.keys.max(1), bytes: limit.bytes.max(1) };
        let kind = WalkKind::Scan { limit, listed: 0, found: FoundKeys::default() };
        self.begin_walk(keyspace, as_of, cursor, token, kind);
        Ok(())
    }

    pub(super) fn begin_count(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        let at = as_of.at;
        self.check_age(at)?;
        let Some(space) = self.spaces.get(keyspace) else { return Ok(Count::Keys(0)) };
        let fence = space.fence_at(at);
        if space.youngest <= fence {
            return Ok(Count::Keys(0));
        }
        let now = space.youngest.timestamp <= at;
        if now && space.index.expiring_heads() == 0 && space.swept >= fence {
            return Ok(Count::Keys(space.index.live_heads()));
        }
        self.begin_walk(keyspace, as_of, ScanCursor::START, token, WalkKind::Count { keys: 0 });
        Ok(Count::Pending)
    }

    /// Lists further keys, and reports walks that are done.
    pub(super) fn pump_walks(&mut self) {
        self.serve_queued();
        self.serve_group_pages();
        let mut budget = KEYS_PER_PUMP;
        for at in 0..self.walks.list.len() {
            self.list_keys(at, &mut budget);
        }
        let mut at = 0;
        while at < self.walks.list.len() {
            let walk = &self.walks.list[at];
            if walk.outstanding == 0 && walk.listed_all() {
                let walk = self.walks.list.remove(at);
                self.events.push(walk.finish());
            } else {
                at += 1;
            }
        }
        self.pump_scrub();
    }

    fn list_keys(&mut self, at: usize, budget: &mut u32) {
        loop {
            let walk = &mut self.walks.list[at];
            if walk.listed_all() || walk.outstanding >= MAX_OUTSTANDING || *budget == 0 {
                return;
            }
            let Some(space) = self.spaces.get(walk.keyspace) else {
                walk.segment = SEGMENTS as u16;
                return;
            };
            let fence = space.fence_at(walk.as_of.at);
            let (segment, wanted) = (walk.segment, walk.wanted());
            let (mut last, mut ended, mut looked) = (None, true, 0);
            let mut candidates = Vec::new();
            for (id, mut chain, _) in space.index.keys_from(segment, walk.tag) {
                // Keys with equal tags are never split: the cursor could not tell them apart.
                if looked >= wanted && last != Some(id.tag) {
                    ended = false;
                    walk.tag = id.tag;
                    break;
                }
                last = Some(id.tag);
                looked += 1;
                let visible = chain.find(|(version, _)| version.timestamp <= walk.as_of.at);
                if let Some((version, location)) = visible
                    && version > fence
                    && !location.tombstone()
                {
                    candidates.push((id, version, location));
                }
            }
            if ended {
                walk.segment += 1;
                walk.tag = 0;
            }
            *budget = budget.saturating_sub(looked.max(1));
            let keyless = matches!(walk.kind, WalkKind::Count { .. });
            if let WalkKind::Scan { listed, .. } = &mut walk.kind {
                *listed += candidates.len() as u32;
            }
            for (id, version, location) in candidates {
                if keyless && !location.may_expire() {
                    self.walks.list[at].found(id, &[]);
                } else {
                    self.look_up(at, id, version, location);
                }
            }
        }
    }

    /// Finds key and expiry of a version, at once or through a page.
    fn look_up(&mut self, at: usize, id: KeyId, version: Version, location: Location) {
        let walk = &mut self.walks.list[at];
        let (keyspace, time) = (walk.keyspace, walk.as_of.judged);
        if location.page() >= Location::STAGED {
            let slot = location.page() - Location::STAGED;
            if !self.staging.value(slot).0.has_passed(time) {
                walk.found(id, self.staging.key(slot));
            }
            return;
        }
        if let Some(place) = self.cache.find_by_id(keyspace, id, version) {
            if !self.cache.expires_at(place).has_passed(time) {
                walk.found(id, self.cache.key(place));
            }
            return;
        }
        walk.outstanding += 1;
        let who = For::Walk(walk.id);
        self.wait_for_page(Waiter::keyless(who, keyspace, id, version, PageId(location.page())));
    }

    /// A waiter of a walk has its record.
    pub(super) fn walk_found(&mut self, who: For, id: KeyId, key: &[u8], expires_at: Expiry) {
        match who {
            For::Walk(walk) => {
                let Some(walk) = self.walks.list.iter_mut().find(|one| one.id == walk) else {
                    return;
                };
                walk.outstanding -= 1;
                if !expires_at.has_passed(walk.as_of.judged) {
                    walk.found(id, key);
                }
            }
            // Not a large value any more: it has been moved already.
            For::Restage(block) => collect::restaged(&mut self.collector, block),
            For::Get(_) | For::DeadParts(_) => {}
        }
    }

    /// A waiter of a walk met a page that no longer has its record; the record has moved, so its
    /// key is looked up anew.
    pub(super) fn walk_skipped(&mut self, waiter: &Waiter) {
        match waiter.who {
            For::Walk(id) => {
                let Some(at) = self.walks.list.iter().position(|walk| walk.id == id) else {
                    return;
                };
                self.walks.list[at].outstanding -= 1;
                let elsewhere = self.spaces.get(waiter.keyspace).and_then(|space| {
                    space.index.chain(waiter.id).find(|&(version, place)| {
                        version == waiter.version && place.page() != waiter.page.0
                    })
                });
                if let Some((version, location)) = elsewhere {
                    self.look_up(at, waiter.id, version, location);
                }
            }
            For::Restage(block) => collect::restaged(&mut self.collector, block),
            For::Get(_) | For::DeadParts(_) => {}
        }
    }

    /// A waiter of a walk failed.
    pub(super) fn walk_failed(&mut self, who: For, error: StoreError) {
        match who {
            For::Walk(id) => {
                let Some(walk) = self.walks.list.iter_mut().find(|walk| walk.id == id) else {
                    return;
                };
                walk.outstanding -= 1;
                walk.error.get_or_insert(error);
            }
            For::Restage(block) => collect::restage_failed(&mut self.collector, block),
            For::Get(_) | For::DeadParts(_) => {}
        }
    }

    pub(super) fn begin_scrub(&mut self) {
        self.walks.scrub.get_or_insert(Scrub {
            block: 0,
            page: 0,
            reading: None,
            report: ScrubReport::default(),
        });
    }

    fn pump_scrub(&mut self) {
        let Some(scrub) = &mut self.walks.scrub else { return };
        if scrub.reading.is_some() {
            return;
        }
        loop {
            if scrub.block >= self.blocks.count() {
                let report = scrub.report;
                self.walks.scrub = None;
                self.events.push(StoreEvent::ScrubDone(report));
                return;
            }
            let block = self.blocks.get_mut(BlockId(scrub.block));
            let readable = !matches!(block.state, BlockState::Free | BlockState::Erasing);
            if readable && scrub.page < block.readable {
                let count = GROUP_PAGES.min(block.readable - scrub.page);
                let page = self.blocks.geometry.page(BlockId(scrub.block), scrub.page);
                self.blocks.get_mut(BlockId(scrub.block)).readers += 1;
                scrub.page += count;
                scrub.reading = Some((page, count));
                let buffer = self.port.buffer(count);
                self.port.read(FlashOp::Read {
                    token: Purpose::ScrubRead.token(0),
                    page,
                    pages: count,
                    buffer,
                });
                return;
            }
            scrub.block += 1;
            scrub.page = 0;
        }
    }

    pub(super) fn scrub_read(&mut self, result: Result<(), FlashError>, bytes: &[u8]) {
        let Some(scrub) = &mut self.walks.scrub else { return };
        let Some((first, count)) = scrub.reading.take() else { return };
        let block = self.blocks.of(first);
        let generation = self.blocks.get(block).generation;
        self.blocks.get_mut(block).readers -= 1;
        let report = &mut scrub.report;
        report.pages += u64::from(count);
        if result.is_err() {
            report.corrupt_pages += u64::from(count);
            return;
        }
        for (offset, page) in bytes.chunks_exact(PAGE_BYTES).take(count as usize).enumerate() {
            match layout::verify(
                page,
                PageId(first.0 + offset as u32),
                generation,
                self.config.store_id,
            ) {
                Ok(header) if matches!(header.kind, PageKind::Records | PageKind::LargeHeads) => {
                    for raw in layout::records(page) {
                        report.records += 1;
                        if raw.and_then(Record::read_intact).is_none() {
                            report.corrupt_records += 1;
                        }
                    }
                }
                Ok(_) => {}
                Err(_) if self.blocks.is_hole(PageId(first.0 + offset as u32)) => {}
                Err(_) => report.corrupt_pages += 1,
            }
        }
    }
}

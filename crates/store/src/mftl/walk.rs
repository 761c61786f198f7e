//! Walks: scans and counts over an index.
//!
//! A scan follows the order of hashes: segment, then tag; its cursor is that pair, so it survives
//! growth of tables and restarts. Keys are not in memory: each one is read, from the cache, a group
//! or its page (shared with everybody who wants that page). A count reads only versions that may
//! have expired, and nothing at all when no key of the keyspace can expire and the question is
//! about now.
//!
//! ```text
//!   cursor ─► keys in order, found in any order
//!     ─► sorted: [ as many as the limit allows │ too many ]   listed up to here
//!                                 next cursor ─┘ found again by the next scan
//! ```
//! How long keys are is known only when they are found, and many reads are under way at once: so a
//! scan may find more than its limit. What is too much is dropped, and the cursor goes back to the
//! first key that was dropped.
//!
//! Invariants: `outstanding` of a walk = its waiters in [`super::reads`]; a cursor that is given
//! out is behind every key that came with it, and not behind any other that is visible.

use timestone_flash::PageId;
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version, is_planted};

use super::index::{KeyId, Location, SEGMENTS};
use super::reads::{For, PendingReads, Waiter};
use super::space::{Space, Spaces};
use crate::api::{AsOf, Count, KeyList, ReadToken, ScanCursor, ScanLimit, StoreEvent};
use crate::error::StoreError;
use crate::kit::Kit;

/// Reads that one walk may have under way.
const MAX_OUTSTANDING: u32 = 64;
/// Keys that one pump looks at.
const KEYS_PER_PUMP: u32 = 2048;

/// Keys that are listed at a time.
const KEYS_AT_A_TIME: u32 = 32;

enum WalkKind {
    /// `is_whole`: of all keys, whatever their youngest version is.
    Scan {
        limit: ScanLimit,
        listed: u32,
        found: FoundKeys,
        is_whole: bool,
    },
    Count {
        keys: u64,
    },
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
        debug_assert_eq!(self.keys.last().map_or(0, |last| last.1.end), start, "keys in a row");
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
    /// None: nobody wants the answer any more.
    token: Option<ReadToken>,
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
            || self.token.is_none()
            || self.error.is_some()
            || match &self.kind {
                WalkKind::Scan { limit, listed, found, .. } => {
                    *listed >= limit.keys || found.bytes.len() >= limit.bytes
                }
                WalkKind::Count { .. } => false,
            }
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
            WalkKind::Scan { found, listed, .. } => {
                debug_assert!(found.keys.len() < *listed as usize, "what is found was listed");
                found.push(position_of(id.segment, id.tag), key);
            }
            WalkKind::Count { keys } => *keys += 1,
        }
    }

    /// One of its reads has come back.
    fn arrived(&mut self) {
        assert!(self.outstanding > 0, "it was waited for");
        self.outstanding -= 1;
    }

    /// Lists further keys, as long as there are any and the budget lasts.
    fn list_keys(
        &mut self,
        budget: &mut u32,
        spaces: &Spaces,
        kit: &mut Kit,
        reads: &mut PendingReads,
    ) {
        let before = (self.segment, self.tag);
        while !self.listed_all() && self.outstanding < MAX_OUTSTANDING && *budget > 0 {
            let Some(space) = spaces.get(self.keyspace) else {
                self.segment = SEGMENTS as u16;
                return;
            };
            let (candidates, looked) = self.candidates(space);
            *budget = budget.saturating_sub(looked.max(1));
            let keyless = matches!(self.kind, WalkKind::Count { .. });
            if let WalkKind::Scan { listed, .. } = &mut self.kind {
                *listed += candidates.len() as u32;
            }
            for (id, version, location) in candidates {
                if keyless && !location.may_expire() {
                    self.found(id, &[]);
                } else {
                    self.look_up(id, version, location, kit, reads);
                }
            }
        }
        debug_assert!((self.segment, self.tag) >= before, "a walk goes forwards");
    }

    /// The versions of the next keys that may be visible, and how many keys were looked at. The
    /// walk goes on behind them.
    fn candidates(&mut self, space: &Space) -> (Vec<(KeyId, Version, Location)>, u32) {
        let is_whole = matches!(self.kind, WalkKind::Scan { is_whole: true, .. });
        let fence = if is_whole { Version::ZERO } else { space.fence_at(self.as_of.at) };
        let wanted = self.wanted();
        let (mut last, mut ended, mut looked) = (None, true, 0);
        let mut candidates = Vec::new();
        for (id, mut chain, _) in space.index.keys_from(self.segment, self.tag) {
            // Keys with equal tags are never split: the cursor could not tell them apart.
            if looked >= wanted && last != Some(id.tag) {
                ended = false;
                assert!(id.tag > self.tag, "a walk goes forwards");
                self.tag = id.tag;
                break;
            }
            last = Some(id.tag);
            looked += 1;
            let visible = chain.find(|(version, _)| version.timestamp <= self.as_of.at);
            if let Some((version, location)) = visible
                && version > fence
                && (is_whole || !location.tombstone())
            {
                candidates.push((id, version, location));
            }
        }
        if ended {
            self.segment += 1;
            self.tag = 0;
        }
        (candidates, looked)
    }

    /// Finds key and expiry of a version, at once or through a page.
    fn look_up(
        &mut self,
        id: KeyId,
        version: Version,
        location: Location,
        kit: &mut Kit,
        reads: &mut PendingReads,
    ) {
        debug_assert!(version.timestamp <= self.as_of.at, "nothing younger than was asked for");
        let (keyspace, time) = (self.keyspace, self.as_of.judged);
        if let Some(slot) = location.staged() {
            if !kit.staging.value(slot).0.has_passed(time) {
                self.found(id, kit.staging.key(slot));
            }
            return;
        }
        if let Some(place) = kit.cache.find_by_id(keyspace, id, version) {
            if !kit.cache.expires_at(place).has_passed(time) {
                self.found(id, kit.cache.key(place));
            }
            return;
        }
        self.outstanding += 1;
        let (who, page) = (For::Walk(self.id), PageId(location.page()));
        reads.wait(Waiter::keyless(who, keyspace, id, version, page), &mut kit.volume);
    }

    fn finish(self) -> Option<StoreEvent> {
        let token = self.token?;
        if let Some(error) = self.error {
            return Some(StoreEvent::ReadFailed { token, error });
        }
        Some(match self.kind {
            WalkKind::Count { keys } => StoreEvent::CountDone { token, keys },
            WalkKind::Scan { limit, found, .. } => {
                let more = usize::from(self.segment) < SEGMENTS;
                let listed_to = more.then(|| position_of(self.segment, self.tag));
                let (keys, left_out) = found.within(limit);
                let left_out = left_out.filter(|_| !is_planted!(ScanSkips));
                StoreEvent::ScanDone { token, keys, next: left_out.or(listed_to) }
            }
        })
    }
}

/// All walks under way.
#[derive(Default)]
pub(super) struct Walks {
    list: Vec<Walk>,
    next_id: u64,
}

impl Walks {
    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        self.list.iter().any(|walk| !walk.listed_all() && walk.outstanding < MAX_OUTSTANDING)
    }

    /// Nobody wants the answers to the walks under way any more: each goes when its reads are back.
    pub(super) fn abandon(&mut self) {
        self.list.iter_mut().for_each(|walk| walk.token = None);
    }

    fn begin(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        cursor: ScanCursor,
        token: ReadToken,
        kind: WalkKind,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let segment = (cursor.0 >> 32).min(SEGMENTS as u64) as u16;
        let tag = cursor.0 as u32;
        debug_assert!(self.list.iter().all(|walk| walk.id < id), "numbers rise");
        self.list.push(Walk {
            id,
            token: Some(token),
            keyspace,
            as_of,
            kind,
            segment,
            tag,
            outstanding: 0,
            error: None,
        });
    }

    /// Begins a scan, whose time may be asked.
    pub(super) fn begin_scan(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) {
        self.begin_walk((keyspace, cursor, limit), as_of, token, false);
    }

    /// Begins a scan of all keys, by their youngest versions.
    pub(super) fn begin_list(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        // Nothing has expired at the beginning of time.
        let as_of = AsOf { at: Timestamp::MAX, judged: Timestamp::ZERO };
        self.begin_walk((keyspace, cursor, limit), as_of, token, true);
    }

    fn begin_walk(
        &mut self,
        (keyspace, cursor, limit): (KeyspaceId, ScanCursor, ScanLimit),
        as_of: AsOf,
        token: ReadToken,
        is_whole: bool,
    ) {
        debug_assert!(self.next_id < u64::MAX, "numbers do not come again");
        let limit = ScanLimit { keys: limit.keys.max(1), bytes: limit.bytes.max(1) };
        let kind = WalkKind::Scan { limit, listed: 0, found: FoundKeys::default(), is_whole };
        self.begin(keyspace, as_of, cursor, token, kind);
    }

    /// Counts, whose time may be asked: from memory alone if that can be.
    pub(super) fn begin_count(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
        spaces: &Spaces,
    ) -> Count {
        let at = as_of.at;
        let Some(space) = spaces.get(keyspace) else { return Count::Keys(0) };
        let fence = space.fence_at(at);
        if space.youngest <= fence {
            return Count::Keys(0);
        }
        let now = space.youngest.timestamp <= at;
        if now && space.index.expiring_heads() == 0 && space.swept >= fence {
            debug_assert!(space.swept == fence, "the fence that was swept for is kept");
            return Count::Keys(space.index.live_heads());
        }
        self.begin(keyspace, as_of, ScanCursor::START, token, WalkKind::Count { keys: 0 });
        Count::Pending
    }

    /// Lists further keys, and reports walks that are done.
    pub(super) fn pump(
        &mut self,
        spaces: &Spaces,
        kit: &mut Kit,
        reads: &mut PendingReads,
        events: &mut Vec<StoreEvent>,
    ) {
        let mut budget = KEYS_PER_PUMP;
        for walk in &mut self.list {
            walk.list_keys(&mut budget, spaces, kit, reads);
        }
        let mut at = 0;
        while at < self.list.len() {
            let walk = &self.list[at];
            if walk.outstanding == 0 && walk.listed_all() {
                events.extend(self.list.remove(at).finish());
            } else {
                at += 1;
            }
        }
        let is_over = |walk: &Walk| walk.outstanding == 0 && walk.listed_all();
        debug_assert!(!self.list.iter().any(is_over), "a walk that is over is told");
    }

    fn find(&mut self, id: u64) -> Option<&mut Walk> {
        self.list.iter_mut().find(|walk| walk.id == id)
    }

    /// A waiter of a walk has its record.
    pub(super) fn found(&mut self, walk: u64, id: KeyId, key: &[u8], expires_at: Expiry) {
        let walk = self.find(walk);
        debug_assert!(walk.is_some(), "a walk stays as long as it waits");
        let Some(walk) = walk else { return };
        walk.arrived();
        if !expires_at.has_passed(walk.as_of.judged) {
            walk.found(id, key);
        }
    }

    /// A waiter of a walk met a page that no longer has its record; the record has moved, so its
    /// key is looked up anew.
    pub(super) fn skipped(
        &mut self,
        walk: u64,
        waiter: &Waiter,
        spaces: &Spaces,
        kit: &mut Kit,
        reads: &mut PendingReads,
    ) {
        let walk = self.find(walk);
        debug_assert!(walk.is_some(), "a walk stays as long as it waits");
        let Some(walk) = walk else { return };
        walk.arrived();
        let elsewhere = spaces.get(waiter.keyspace).and_then(|space| {
            space.index.chain(waiter.id).find(|&(version, place)| {
                version == waiter.version && place.page() != waiter.page.0
            })
        });
        if let Some((version, location)) = elsewhere {
            walk.look_up(waiter.id, version, location, kit, reads);
        }
    }

    /// A waiter of a walk failed.
    pub(super) fn failed(&mut self, walk: u64, error: StoreError) {
        let walk = self.find(walk);
        debug_assert!(walk.is_some(), "a walk stays as long as it waits");
        let Some(walk) = walk else { return };
        walk.arrived();
        walk.error.get_or_insert(error);
    }
}

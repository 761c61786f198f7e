//! Scans and counts: in the order of hashes, a bounded number of entries at every pump.
//!
//! Invariant: a walk in the list is not answered yet.

use std::collections::VecDeque;

use timestone_types::{KeyspaceId, Timestamp, Version};

use super::chain::Entry;
use super::contents::Contents;
use super::space::Space;
use super::watermarks::Watermarks;
use crate::api::{AsOf, KeyList, ReadToken, ScanCursor, ScanLimit, StoreEvent};

/// Entries that walks look at in one pump, about.
const WALKED_AT_ONCE: usize = 4096;

/// What a walk collects.
enum Kind {
    /// Keys, within a limit. `is_whole`: of all keys, whatever their youngest version is.
    Scan { limit: ScanLimit, keys: KeyList, bytes: usize, is_whole: bool },
    /// How many.
    Count { keys: u64 },
}

/// A scan or count under way.
pub(super) struct Walk {
    token: ReadToken,
    keyspace: KeyspaceId,
    as_of: AsOf,
    kind: Kind,
    /// The hash at which it goes on.
    from: u64,
}

/// How far a walk has come.
enum Walked {
    /// It looked at so many entries, and goes on.
    On(usize),
    /// It is answered.
    Done(StoreEvent),
}

const fn position_of(entry: &Entry) -> u64 {
    entry.hash >> ScanCursor::BELOW
}

/// Whether the entry shows a value.
fn is_visible(entry: &Entry, as_of: AsOf, fence: Version) -> bool {
    entry.at(as_of.at).is_some_and(|stored| {
        stored.version > fence
            && stored.value.is_some()
            && !stored.expires_at.has_passed(as_of.judged)
    })
}

impl Walk {
    pub(super) fn scan(
        token: ReadToken,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
    ) -> Self {
        let kind = Kind::Scan { limit, keys: KeyList::default(), bytes: 0, is_whole: false };
        // A cursor behind the last position finds nothing.
        let from = cursor.0.saturating_mul(1 << ScanCursor::BELOW);
        Self { token, keyspace, as_of, kind, from }
    }

    pub(super) fn list(
        token: ReadToken,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
    ) -> Self {
        let as_of = AsOf { at: Timestamp::MAX, judged: Timestamp::ZERO };
        let kind = Kind::Scan { limit, keys: KeyList::default(), bytes: 0, is_whole: true };
        Self { kind, ..Self::scan(token, keyspace, cursor, limit, as_of) }
    }

    pub(super) const fn count(token: ReadToken, keyspace: KeyspaceId, as_of: AsOf) -> Self {
        Self { token, keyspace, as_of, kind: Kind::Count { keys: 0 }, from: 0 }
    }

    /// Walks through one segment.
    fn step(&mut self, space: Option<&Space>) -> Walked {
        let Some(space) = space else { return Walked::Done(self.finish(None)) };
        let fence = space.fence_at(self.as_of.at);
        let (entries, next) = space.table.from(self.from);
        let as_of = self.as_of;
        match &mut self.kind {
            Kind::Count { keys } => {
                *keys += entries.iter().filter(|one| is_visible(one, as_of, fence)).count() as u64;
            }
            Kind::Scan { limit, keys, bytes, is_whole } => {
                for group in entries.chunk_by(|one, other| position_of(one) == position_of(other)) {
                    let is_whole = *is_whole;
                    let is_found = |one: &Entry| is_whole || is_visible(one, as_of, fence);
                    let found = || group.iter().filter(|one| is_found(one));
                    let more: usize = found().map(|one| one.key.len()).sum();
                    let count = keys.len() + found().count();
                    let is_over = count > limit.keys as usize || *bytes + more > limit.bytes;
                    let is_full = keys.len() >= limit.keys as usize;
                    if is_full || (is_over && !keys.is_empty() && more > 0) {
                        let here = ScanCursor(position_of(group[0]));
                        return Walked::Done(self.finish(Some(here)));
                    }
                    *bytes += more;
                    found().for_each(|one| keys.push(&one.key));
                }
            }
        }
        match next {
            Some(next) => {
                debug_assert!(next > self.from, "a walk goes on");
                self.from = next;
                Walked::On(entries.len())
            }
            None => Walked::Done(self.finish(None)),
        }
    }

    fn finish(&mut self, next: Option<ScanCursor>) -> StoreEvent {
        let token = self.token;
        debug_assert!(
            next.is_none() || matches!(self.kind, Kind::Scan { .. }),
            "what is counted is counted to its end"
        );
        match &mut self.kind {
            Kind::Count { keys } => StoreEvent::CountDone { token, keys: *keys },
            Kind::Scan { keys, .. } => {
                StoreEvent::ScanDone { token, keys: core::mem::take(keys), next }
            }
        }
    }
}

/// All scans and counts under way.
#[derive(Default)]
pub(super) struct Walks {
    list: VecDeque<Walk>,
}

impl Walks {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Begins a walk, whose time may be asked.
    pub(super) fn begin(&mut self, walk: Walk, marks: &Watermarks) {
        debug_assert!(walk.as_of.at >= marks.watermark(), "what it looks for is there");
        self.list.push_back(walk);
    }

    /// Goes on with them.
    pub(super) fn pump(&mut self, contents: &Contents, events: &mut Vec<StoreEvent>) {
        let mut left = WALKED_AT_ONCE;
        while left > 0
            && let Some(mut walk) = self.list.pop_front()
        {
            match walk.step(contents.get(walk.keyspace)) {
                Walked::Done(event) => events.push(event),
                Walked::On(entries) => {
                    left = left.saturating_sub(entries.max(1));
                    // One after the other in turn, so that short ones are not held up by long ones.
                    self.list.push_back(walk);
                }
            }
        }
        debug_assert!(left == 0 || self.list.is_empty(), "walks go on as far as they may");
    }
}

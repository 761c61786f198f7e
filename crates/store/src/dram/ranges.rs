//! Reads of ranges: in the order of keys, a bounded number of them at every pump. A page ends behind a
//! bounded number of keys that are not visible, too.
//!
//! Invariant: a read in the list is not answered yet.

use std::collections::VecDeque;

use timestone_types::{Direction, HashSeed, KeyRef, KeyspaceId, Timestamp, Version, is_planted};

use super::chain::Stored;
use super::contents::Contents;
use super::space::Space;
use super::watermarks::Watermarks;
use crate::api::{
    AsOf, KeyRange, RangeCheck, RangeEntry, RangeList, ReadToken, ScanLimit, StoreEvent,
};
use crate::kit::ordered::{RangeLeft, Walked, cost_of};
use crate::limits::{RANGE_HIDDEN_KEYS, RANGE_KEYS_AT_ONCE, RANGE_KEYS_PER_PUMP};

/// A read of a range that is under way.
pub(super) struct RangeWalk {
    token: ReadToken,
    keyspace: KeyspaceId,
    left: RangeLeft,
    limit: ScanLimit,
    as_of: AsOf,
    found: RangeList,
    /// What the look at keys has cost that are not visible.
    hidden: u32,
}

impl RangeWalk {
    pub(super) fn new(
        token: ReadToken,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
    ) -> Self {
        let limit = ScanLimit { keys: limit.keys.max(1), ..limit };
        let left = RangeLeft::new(range, direction);
        let (keyspace, found) = (range.keyspace, RangeList::default());
        Self { token, keyspace, left, limit, as_of, found, hidden: 0 }
    }

    /// Looks at some keys; its answer, when it has one.
    fn step(
        &mut self,
        seed: HashSeed,
        space: Option<&Space>,
        budget: &mut u32,
    ) -> Option<StoreEvent> {
        let Some((space, order)) = space.and_then(|space| Some((space, space.order.as_ref()?)))
        else {
            return Some(self.finish(true));
        };
        let (fence, as_of, limit) = (space.fence_at(self.as_of.at), self.as_of, self.limit);
        let (found, hidden, mut left_out) = (&mut self.found, &mut self.hidden, None);
        let walked = order.walk(self.left.wanted(), budget, |key| {
            let Some(stored) = visible(seed, space, key, as_of, fence) else {
                *hidden += cost_of(key);
                return true;
            };
            let bytes = found.key_bytes() + key.len();
            if found.len() as u64 == u64::from(limit.keys)
                || (bytes > limit.bytes && !found.is_empty())
            {
                left_out = Some(key.to_vec());
                return false;
            }
            let Stored { version, expires_at, .. } = *stored;
            found.push(RangeEntry { key, version, expires_at });
            true
        });
        debug_assert_eq!(walked == Walked::Stopped, left_out.is_some(), "it stops without room");
        if let Some(key) = left_out {
            self.left.stop_at(&key);
            return Some(self.finish(false));
        }
        match walked {
            Walked::ToEnd | Walked::Stopped => Some(self.finish(true)),
            Walked::UpTo(next) => {
                self.left.go_on(next);
                let is_long = self.hidden >= RANGE_HIDDEN_KEYS && !is_planted!(EndlessPages);
                is_long.then(|| self.finish(false))
            }
        }
    }

    /// Its answer; `is_at_end`: nothing is left.
    fn finish(&mut self, is_at_end: bool) -> StoreEvent {
        debug_assert!(self.found.len() as u64 <= u64::from(self.limit.keys), "within the limit");
        let entries = core::mem::take(&mut self.found);
        let next = (!is_at_end).then(|| self.left.clone().next());
        StoreEvent::RangeDone { token: self.token, entries, next }
    }
}

/// The version of a key that shows a value.
fn visible<'a>(
    seed: HashSeed,
    space: &'a Space,
    key: &[u8],
    as_of: AsOf,
    fence: Version,
) -> Option<&'a Stored> {
    let hash = KeyRef::new(seed, space.id, key).hash.0;
    let entry = space.table.find(hash, key);
    debug_assert!(entry.is_some(), "what is in the order is in the table");
    entry?.at(as_of.at).filter(|stored| {
        stored.version > fence
            && stored.value.is_some()
            && !stored.expires_at.has_passed(as_of.judged)
    })
}

/// The first key of a range whose youngest version lies above `t`.
pub(super) fn first_above(
    seed: HashSeed,
    space: &Space,
    range: KeyRange<'_>,
    t: Timestamp,
    max_keys: u32,
) -> RangeCheck {
    let fence = space.latest_fence();
    if fence.timestamp > t && !range.is_empty() {
        return RangeCheck::Above { key: None, version: fence };
    }
    let Some(order) = &space.order else { return RangeCheck::None };
    order.first_above(range, t, max_keys, |key| {
        let entry = space.table.find(KeyRef::new(seed, space.id, key).hash.0, key);
        entry.map(|entry| entry.newest.version)
    })
}

/// All reads of ranges that are under way.
#[derive(Default)]
pub(super) struct RangeReads {
    list: VecDeque<RangeWalk>,
}

impl RangeReads {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Begins one, whose time may be asked.
    pub(super) fn begin(&mut self, read: RangeWalk, marks: &Watermarks) {
        debug_assert!(read.as_of.at >= marks.watermark(), "what it looks for is there");
        self.list.push_back(read);
    }

    /// Goes on with them, one after the other in turn, so that short ones are not held up by long
    /// ones.
    pub(super) fn pump(
        &mut self,
        seed: HashSeed,
        contents: &Contents,
        marks: &Watermarks,
        events: &mut Vec<StoreEvent>,
    ) {
        let mut left = RANGE_KEYS_PER_PUMP;
        while left > 0
            && let Some(mut read) = self.list.pop_front()
        {
            if let Err(error) = marks.check_age(read.as_of.at) {
                events.push(StoreEvent::ReadFailed { token: read.token, error });
                continue;
            }
            let mut budget = RANGE_KEYS_AT_ONCE.min(left);
            let given = budget;
            let answer = read.step(seed, contents.get(read.keyspace), &mut budget);
            // Whoever looks at nothing costs something as well.
            left = left.saturating_sub((given - budget).max(1));
            match answer {
                Some(event) => events.push(event),
                None => self.list.push_back(read),
            }
        }
        debug_assert!(left == 0 || self.list.is_empty(), "reads go on as far as they may");
    }
}

//! Collection: what nobody may ask for any more leaves the memory, a little at every pump.
//!
//! ```text
//!   a version supersedes another, or is a tombstone ─► due (by its timestamp) ─ watermark ─► trimmed
//!   a tombstone is all that is left ─────────► tombstones (by its timestamp) ─ replay floor ─► gone
//!   a fence ─────────────────────────────── watermark ─► sweep, a segment at a time
//!   versions that may expire ─────────────── rotation: the whole table once in a while
//! ```
//! Each write adds one item to a queue, at most, and each item is taken out once or twice. Expiry
//! goes by a rotation instead: a key that is put again and again with a long time to live would
//! leave an item behind each time.

use core::cmp::Reverse;
use core::mem::size_of;
use core::time::Duration;
use std::collections::BinaryHeap;

use timestone_types::{KeyspaceId, Timestamp};

use super::space::Spaces;
use super::watermarks::Watermarks;

/// Items of the queues that one pump takes.
const ITEMS_AT_ONCE: usize = 512;
/// A queue with fewer than one item in so many places gives memory back.
const SPARSE: usize = 8;
/// How often a few segments are looked through for what has expired.
const EXPIRY_PACE: Duration = Duration::from_millis(100);
/// In so many paces all of them have been: a minute.
const EXPIRY_PACES: usize = 600;
/// Entries of a segment at its fullest, for the number of segments.
const SEGMENT_ENTRIES: usize = 1024;

type Item = Reverse<(Timestamp, KeyspaceId, u64)>;

/// What is to be looked at, and when.
#[derive(Default)]
pub(super) struct Collector {
    /// By the watermark that makes them worth a look.
    due: BinaryHeap<Item>,
    /// By the replay floor that lets them go.
    tombstones: BinaryHeap<Item>,
    expire_at: Timestamp,
}

impl Collector {
    /// A key is worth a look when the watermark has reached `at`.
    pub(super) fn note(&mut self, at: Timestamp, keyspace: KeyspaceId, hash: u64) {
        debug_assert!(at > Timestamp::ZERO, "nothing is due at the beginning of time");
        self.due.push(Reverse((at, keyspace, hash)));
    }

    /// Does some of what is due.
    pub(super) fn pump(&mut self, now: Timestamp, marks: &Watermarks, spaces: &mut Spaces) {
        let (watermark, floor) = (marks.watermark(), marks.tombstone_floor());
        for turn in 0..ITEMS_AT_ONCE {
            let (due, tombstones) = (&mut self.due, &mut self.tombstones);
            // In turns, so that neither waits for the end of the other.
            let item = if turn % 2 == 0 {
                next(due, watermark).or_else(|| next(tombstones, floor))
            } else {
                next(tombstones, floor).or_else(|| next(due, watermark))
            };
            let Some((_, keyspace, hash)) = item else { break };
            let Some(space) = spaces.get_mut(keyspace) else { continue };
            let by = marks.collected(space);
            if let Some(at) = space.collect(hash, &by) {
                self.tombstones.push(Reverse((at, keyspace, hash)));
            }
        }
        for queue in [&mut self.due, &mut self.tombstones] {
            if queue.len() * SPARSE < queue.capacity() {
                queue.shrink_to(queue.len() * 2);
            }
        }
        for space in spaces.iter_mut() {
            let by = marks.collected(space);
            space.sweep(&by);
            if space.expires && now >= self.expire_at {
                let segments = space.table.len().div_ceil(SEGMENT_ENTRIES).div_ceil(EXPIRY_PACES);
                space.expire(segments.max(1), &by);
            }
        }
        if now >= self.expire_at {
            self.expire_at = now.saturating_add(EXPIRY_PACE);
        }
        debug_assert!(self.expire_at > now, "the next look is later");
    }

    /// When there is something to do next.
    pub(super) fn next_deadline(
        &self,
        now: Timestamp,
        marks: &Watermarks,
        spaces: &Spaces,
    ) -> Option<Timestamp> {
        let (watermark, floor) = (marks.watermark(), marks.tombstone_floor());
        let is_due = self.due.peek().is_some_and(|Reverse(item)| item.0 <= watermark)
            || self.tombstones.peek().is_some_and(|Reverse(item)| item.0 <= floor)
            || spaces.iter().any(|space| space.is_to_sweep(watermark));
        if is_due {
            return Some(now);
        }
        spaces.iter().any(|space| space.expires).then_some(self.expire_at)
    }

    /// Bytes of the queues.
    pub(super) fn bytes(&self) -> usize {
        (self.due.capacity() + self.tombstones.capacity()) * size_of::<Item>()
    }
}

/// The first item, if it is at or below `until`.
fn next(queue: &mut BinaryHeap<Item>, until: Timestamp) -> Option<(Timestamp, KeyspaceId, u64)> {
    let Reverse(item) = *queue.peek()?;
    (item.0 <= until).then(|| {
        queue.pop();
        debug_assert!(queue.peek().is_none_or(|Reverse(rest)| *rest >= item), "the first is due");
        item
    })
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Expiry, HashSeed, KeyRef, Version};

    use super::super::{Dram, DramConfig};
    use super::*;
    use crate::api::prelude::*;

    #[test]
    fn tombstones_go_while_more_versions_are_due_than_a_pump_takes() {
        let mut store = Dram::new(DramConfig { seed: HashSeed(7), memory_bytes: 64 << 20 });
        let space = KeyspaceId::DEFAULT;
        let version = |nanos| Version::new(Timestamp::from_nanos(nanos), ClientId::new(1));
        for n in 0..100u32 {
            let name = (n + 10_000).to_be_bytes();
            let key = KeyRef::new(store.seed(), space, &name);
            store.put(key, version(1), b"v", Expiry::NEVER).expect("put");
            store.delete(key, version(2)).expect("deleted");
        }
        let mut events = Vec::new();
        for round in 3..30u64 {
            for n in 0..2 * ITEMS_AT_ONCE as u32 {
                let name = n.to_be_bytes();
                let key = KeyRef::new(store.seed(), space, &name);
                store.put(key, version(round), b"v", Expiry::NEVER).expect("put");
            }
            store.advance_watermark(Timestamp::from_nanos(round));
            store.advance_replay_floor(Timestamp::from_nanos(round));
            store.pump(Timestamp::from_nanos(round), &mut events);
        }
        let keys = store.figures().get(crate::api::Figure::Keys);
        assert_eq!(keys, 2 * ITEMS_AT_ONCE as u64, "the deleted ones are gone");
    }
}

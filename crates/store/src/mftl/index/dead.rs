//! Dead counts: what is added, what is taken off, and what a fence makes of them.
//!
//! ```text
//!   pruned, left behind, of a checkpoint ─► +    dead count    - ◄── its block is erased
//!                                                    └─ dropped ◄── a fence hides all of them
//! ```
//! Who meets a record that a fence hides does not count it down: nobody could tell whether it was
//! counted before, or was named until the fence went through. So what was counted goes when the fence
//! goes through, or with the key when the last of it is met before that. *Otherwise* a tombstone above the fence waits for it until a restart.
//!
//! Invariant: a dead count is never too low.

use timestone_types::{Timestamp, Version, is_planted};

use super::pool::{Link, Node};
use super::segment::Head;
use super::{Index, KeyId, Location};

/// What is added to a dead count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    /// Versions that were pruned: all of them lie below what is left of their chain.
    Pruned,
    /// Copies, or what a checkpoint counted.
    Others,
}

impl Index {
    pub(super) fn count_dead(&mut self, id: KeyId, slot: usize, count: u32, what: Counted) {
        assert!(count > 0, "a dead count holds at least one");
        self.dead += u64::from(count);
        let older = self.head(id, slot).older;
        if older != Link::NONE && self.pool.get(older).is_dead_count() {
            let dead_count = self.pool.get_mut(older);
            dead_count.set_dead(dead_count.dead().saturating_add(count));
        } else {
            let dead_count = self.pool.add(Node::dead_count(count, older));
            self.head_mut(id, slot).older = dead_count;
        }
        let link = self.head(id, slot).older;
        if what == Counted::Others {
            self.pool.get_mut(link).note_others();
        }
    }

    pub(super) fn dead_count_of(&self, head: &Head) -> Option<Link> {
        (head.older != Link::NONE && self.pool.get(head.older).is_dead_count())
            .then_some(head.older)
    }

    /// Whether a key has dead records.
    pub(crate) fn has_dead(&self, id: KeyId) -> bool {
        if self.orphans.has(id) {
            return true;
        }
        self.slot(id).is_some_and(|slot| self.dead_count_of(self.head(id, slot)).is_some())
    }

    /// A record of a key has moved, and the one that it was copied from stays in a block that is not
    /// about to be erased: it is dead. Whether it is counted: a key that has left the index meanwhile
    /// needs none.
    pub(crate) fn left_behind(&mut self, id: KeyId) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        self.count_dead(id, slot, 1, Counted::Others);
        true
    }

    /// The block with a record that [`Self::assess`] called dead is erased, or the record was never
    /// written.
    pub(crate) fn erased(&mut self, id: KeyId) {
        let Some(slot) = self.slot(id) else { return self.orphans.take_one(id) };
        let Some(link) = self.dead_count_of(self.head(id, slot)) else { return };
        self.dead -= 1;
        let dead_count = *self.pool.get(link);
        assert!(dead_count.dead() > 0, "a dead count holds at least one");
        if dead_count.dead() > 1 {
            self.pool.get_mut(link).set_dead(dead_count.dead() - 1);
        } else {
            self.head_mut(id, slot).older = dead_count.next;
            self.pool.remove(link);
        }
        self.note_bare(id);
    }

    /// Something is gone that a key had beside its youngest version. If that is a tombstone, and nothing else is left:
    /// it will be told to whoever asks for such.
    pub(super) fn note_bare(&mut self, id: KeyId) {
        let Some(slot) = self.slot(id) else { return };
        let head = self.head(id, slot);
        if head.location.tombstone() && head.older == Link::NONE {
            let bare = (id, head.version(), head.location);
            self.bare.push(bare);
        }
    }

    /// Tombstones that hide nothing any more since the last call: their keys and versions, and where they were then.
    pub(crate) fn take_bare(&mut self) -> impl Iterator<Item = (KeyId, Version, Location)> + '_ {
        self.bare.drain(..)
    }

    /// Whether a version is its key's youngest, a tombstone at this place, and hides nothing.
    pub(crate) fn is_bare(&self, id: KeyId, version: Version, place: Location) -> bool {
        place.tombstone() && self.latest(id) == Some((version, place)) && !self.hides(id)
    }

    /// Whether a key has anything beside its youngest version, which a tombstone hides.
    pub(crate) fn hides(&self, id: KeyId) -> bool {
        self.slot(id).is_some_and(|slot| self.hides_in(id, slot))
    }

    /// The same of a key whose slot is known.
    pub(crate) fn hides_in(&self, id: KeyId, slot: usize) -> bool {
        self.head(id, slot).older != Link::NONE
    }

    /// A key has a version again: what it had of dead records is counted with it.
    pub(super) fn adopt(&mut self, id: KeyId) {
        if let Some(dead) = self.orphans.take(id)
            && !is_planted!(ForgetsOrphans)
            && let Some(slot) = self.slot(id)
        {
            self.count_dead(id, slot, dead, Counted::Others);
        }
    }

    /// As [`Self::forget`], of a version whose value is gone: what else its key has of dead records stays counted.
    pub(crate) fn forget_void(&mut self, id: KeyId, version: Version, page: u32) -> bool {
        let link = self.slot(id).and_then(|slot| self.dead_count_of(self.head(id, slot)));
        let dead = link.map_or(0, |link| self.pool.get(link).dead());
        let was_there = self.forget(id, version, page);
        if was_there && self.slot(id).is_none() {
            self.orphans.add(id, dead);
        }
        was_there
    }

    /// Dead records of keys of one segment that have no version, and how many each has.
    pub(crate) fn orphans_in(
        &self,
        segment: u16,
    ) -> impl Iterator<Item = (KeyId, u32)> + Clone + '_ {
        self.orphans.of_segment(segment)
    }

    /// The records of one segment that their blocks take for alive: of each key the youngest one, unless that is
    /// a tombstone that hides nothing. All others were counted as dead when they came to be so.
    pub(crate) fn alive_in(
        &self,
        segment: u16,
    ) -> impl Iterator<Item = (KeyId, Version, Location)> + '_ {
        self.segments.get(segment as usize).into_iter().flat_map(move |table| {
            table.in_order(0).filter_map(move |at| {
                let head = table.head(at);
                let id = KeyId { segment, tag: table.tag(at), check: head.check };
                head.counts_as_alive().then_some((id, head.version(), head.location))
            })
        })
    }

    /// Whether a record of a place is one of these.
    pub(crate) fn counts_as_alive(&self, id: KeyId, version: Version, page: u32) -> bool {
        self.slot(id).is_some_and(|slot| {
            let head = self.head(id, slot);
            head.version() == version && head.location.page() == page && head.counts_as_alive()
        })
    }

    /// Removes everything at or below a fence from one segment; reports what leaves that its block takes for alive.
    /// Dead records that the fence hides are not counted from then on: who meets one does not count it
    /// down, for nobody could tell whether it was counted before.
    pub(crate) fn sweep(
        &mut self,
        segment: u16,
        fence: Version,
        forgets_dead: bool,
        mut gone: impl FnMut(KeyId, Version, Location),
    ) {
        self.assert_sound();
        let Some(table) = self.segments.get(segment as usize) else { return };
        let ids: Vec<KeyId> = table
            .in_order(0)
            .map(|at| KeyId { segment, tag: table.tag(at), check: table.head(at).check })
            .collect();
        let mut survivors = Vec::new();
        for id in ids {
            let Some(slot) = self.slot(id) else { continue };
            let head = *self.head(id, slot);
            survivors.clear();
            let mut swept = false;
            for (version, location) in self.chain_of(&head) {
                if version > fence {
                    survivors.push((version, location));
                } else {
                    swept = true;
                }
            }
            if head.version() <= fence && head.counts_as_alive() {
                gone(id, head.version(), head.location);
            }
            let left = self.dead_above(&head, fence, forgets_dead);
            if swept {
                let left = left.unwrap_or((0, Counted::Pruned));
                self.drop_chain(id, slot);
                self.install(id, &survivors, left);
                self.note_bare(id);
            } else if left.is_none()
                && let Some(link) = self.dead_count_of(&head)
            {
                let dead_count = *self.pool.get(link);
                self.dead -= u64::from(dead_count.dead());
                self.head_mut(id, slot).older = dead_count.next;
                self.pool.remove(link);
                self.note_bare(id);
            }
        }
    }

    /// The dead records of a key, unless all of them lie below a fence: those that were pruned do as
    /// soon as it lies above what they were pruned below.
    fn dead_above(
        &self,
        head: &Head,
        fence: Version,
        forgets_dead: bool,
    ) -> Option<(u32, Counted)> {
        let dead_count = self.pool.get(self.dead_count_of(head)?);
        let pruned_below = dead_count.pruned_below();
        let is_known = pruned_below > Timestamp::ZERO && !dead_count.has_others();
        let are_hidden = (forgets_dead && is_known && pruned_below < fence.timestamp)
            || is_planted!(ForgetsDeadAboveFence);
        let what = if dead_count.has_others() { Counted::Others } else { Counted::Pruned };
        (!are_hidden).then_some((dead_count.dead(), what))
    }
}

//! Which keys the commands of one connection that are under way touch, so that later commands on
//! the same keys wait.
//!
//! An access is 62 bits of a key's hash and two of what is done to it; two keys with one hash wait for
//! each other, which costs time and nothing else. There are few accesses per connection, so they are
//! compared one by one, which the processor does several at once.

use timestone_types::Version;

use crate::connection::replies::ReplyId;
use crate::limits::MAX_KEY_ACCESSES;

/// What a single-key read found: a version of its key, and whether that is a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyState {
    pub(crate) version: Version,
    pub(crate) present: bool,
}

impl KeyState {
    /// Older than anything.
    const NONE: Self = Self { version: Version::ZERO, present: true };

    /// Whether the other one tells of a later state of the key: a younger version, or the same one
    /// that has expired.
    fn is_before(self, other: Self) -> bool {
        self.version < other.version
            || self.version == other.version && self.present && !other.present
    }
}

/// What is to be done with what a single-key read has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOrder {
    /// It is the answer.
    InOrder,
    /// It has overtaken an earlier command of its key, which may find a later state.
    Overtakes,
    /// An earlier read of its key was answered with a later state.
    Outdated,
}

/// What a command does to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessKind {
    /// Reads it.
    Read,
    /// Writes it (and may read it) on its own.
    Write,
    /// Writes it in the order of the key's queue, which keeps the order of all that is queued
    /// there.
    Queued,
}

const WRITES: u64 = 1;
const QUEUED: u64 = 2;
const KEY: u64 = !(WRITES | QUEUED);

/// A key and what is done to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyAccess(u64);

impl KeyAccess {
    pub(crate) const fn new(hash: u64, kind: AccessKind) -> Self {
        Self(
            (hash & KEY)
                | match kind {
                    AccessKind::Read => 0,
                    AccessKind::Write => WRITES,
                    AccessKind::Queued => WRITES | QUEUED,
                },
        )
    }

    const fn has_key_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & KEY == 0
    }

    const fn conflicts(self, other: Self) -> bool {
        self.has_key_of(other) && (self.0 | other.0) & WRITES != 0 && self.0 & other.0 & QUEUED == 0
    }
}

/// Whether a command was taken before another one of its connection: they are counted, and the
/// count wraps around.
const fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// The key accesses of one connection's commands under way.
#[derive(Debug, Default)]
pub(crate) struct KeyAccesses {
    accesses: Vec<KeyAccess>,
    owners: Vec<u32>,
    /// What an earlier read of the key was answered while this command was under way.
    answered: Vec<KeyState>,
    /// Since there were none, two were of one key.
    share_a_key: bool,
    /// Since there were none, one command had several.
    has_several: bool,
}

impl KeyAccesses {
    /// Whether a command that touches a key so must wait.
    #[inline]
    pub(crate) fn blocks(&self, new: KeyAccess) -> bool {
        if timestone_types::is_planted!(UnorderedPipelines) {
            return false;
        }
        self.accesses.iter().fold(false, |blocked, access| blocked | access.conflicts(new))
    }

    /// What is to be done with what a single-key read has found; `may_wait`: it may be asked for
    /// again when an earlier one is answered. The three questions below in one: nearly always no
    /// two commands under way are of one key.
    #[inline]
    pub(crate) fn judge(&mut self, owner: ReplyId, found: KeyState, may_wait: bool) -> ReadOrder {
        self.assert_sound();
        if !self.share_a_key {
            return ReadOrder::InOrder;
        }
        if may_wait && self.overtakes(owner) {
            return ReadOrder::Overtakes;
        }
        if self.is_outdated(owner, found) {
            return ReadOrder::Outdated;
        }
        self.answers(owner, found);
        ReadOrder::InOrder
    }

    /// Whether an earlier command of the same key is still under way: a single-key read whose
    /// answer comes before that one's has overtaken it, as reads do not wait for each other and one
    /// that is refused is sent again.
    pub(crate) fn overtakes(&self, owner: ReplyId) -> bool {
        if timestone_types::is_planted!(OvertakenReads) {
            return false;
        }
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return false;
        };
        let access = self.accesses[own];
        self.accesses
            .iter()
            .zip(&self.owners)
            .any(|(other, &candidate)| other.has_key_of(access) && is_before(candidate, owner.0))
    }

    /// A single-key read is about to be answered with this: later reads of its key that are under
    /// way must not find less. They may have been read before, for a read that is refused is sent
    /// again.
    pub(crate) fn answers(&mut self, owner: ReplyId, found: KeyState) {
        self.assert_sound();
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return;
        };
        let access = self.accesses[own];
        for at in 0..self.accesses.len() {
            let is_later =
                self.accesses[at].has_key_of(access) && is_before(owner.0, self.owners[at]);
            if is_later && self.answered[at].is_before(found) {
                self.answered[at] = found;
            }
        }
    }

    /// Whether an earlier read of the same key was answered with a later state than this one has
    /// found. It is to be asked for again then, and whatever it finds is right.
    pub(crate) fn is_outdated(&mut self, owner: ReplyId, found: KeyState) -> bool {
        self.assert_sound();
        if timestone_types::is_planted!(OutdatedReads) {
            return false;
        }
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return false;
        };
        let is_outdated = found.is_before(self.answered[own]);
        if is_outdated {
            self.answered[own] = KeyState::NONE;
        }
        is_outdated
    }

    /// Whether there is room for the accesses of a command with so many keys.
    pub(crate) fn has_room(&self, keys: usize) -> bool {
        self.accesses.len() + keys <= MAX_KEY_ACCESSES
    }

    /// Adds an access; a command's are added one after the other.
    #[inline]
    pub(crate) fn add(&mut self, access: KeyAccess, owner: ReplyId) {
        self.share_a_key |=
            self.accesses.iter().fold(false, |any, other| any | other.has_key_of(access));
        self.has_several |= self.owners.last() == Some(&owner.0);
        self.accesses.push(access);
        self.owners.push(owner.0);
        self.answered.push(KeyState::NONE);
        self.assert_sound();
    }

    #[inline]
    fn assert_sound(&self) {
        debug_assert!(
            self.owners.len() == self.accesses.len() && self.answered.len() == self.accesses.len(),
            "every access has an owner and what was answered"
        );
    }

    /// A command that followed others only reads its only key.
    pub(crate) fn reads_alone(&mut self, owner: ReplyId) {
        self.assert_sound();
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return;
        };
        let hash = self.accesses[own].0 & KEY;
        self.accesses[own] = KeyAccess::new(hash, AccessKind::Read);
    }

    /// Removes the accesses of a command that is done.
    #[inline]
    pub(crate) fn remove(&mut self, owner: ReplyId) {
        let mut at = 0;
        while let Some(found) = self.owners[at..].iter().position(|&candidate| candidate == owner.0)
        {
            at += found;
            self.owners.swap_remove(at);
            self.accesses.swap_remove(at);
            self.answered.swap_remove(at);
            if !self.has_several {
                break;
            }
        }
        debug_assert!(!self.owners.contains(&owner.0), "a command that is done touches no key");
        if self.accesses.is_empty() {
            (self.share_a_key, self.has_several) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_overtakes_earlier_ones_of_its_key_only() {
        let mut accesses = KeyAccesses::default();
        // The count of commands wraps around in between, and accesses are not kept in order.
        let (first, second, third) = (ReplyId(u32::MAX), ReplyId(0), ReplyId(1));
        accesses.add(KeyAccess::new(0x40, AccessKind::Read), third);
        accesses.add(KeyAccess::new(0x40, AccessKind::Read), first);
        accesses.add(KeyAccess::new(0x80, AccessKind::Read), second);
        assert!(
            accesses.overtakes(third) && !accesses.overtakes(second) && !accesses.overtakes(first)
        );
        accesses.remove(first);
        assert!(!accesses.overtakes(third));
        assert!(!accesses.overtakes(first), "it is done");
    }

    #[test]
    fn a_read_is_outdated_when_an_earlier_one_was_answered_with_more() {
        let read = |at, present| KeyState {
            version: Version::new(
                timestone_types::Timestamp::from_nanos(at),
                timestone_types::ClientId::new(1),
            ),
            present,
        };
        let mut accesses = KeyAccesses::default();
        let (first, second, other) = (ReplyId(u32::MAX), ReplyId(0), ReplyId(1));
        accesses.add(KeyAccess::new(0x40, AccessKind::Read), second);
        accesses.add(KeyAccess::new(0x40, AccessKind::Read), first);
        accesses.add(KeyAccess::new(0x80, AccessKind::Read), other);
        accesses.answers(first, read(7, true));
        assert!(!accesses.is_outdated(other, read(3, true)), "another key's");
        assert!(
            !accesses.is_outdated(second, read(7, true))
                && !accesses.is_outdated(second, read(8, true))
        );
        accesses.answers(first, read(7, false));
        assert!(accesses.is_outdated(second, read(7, true)), "it has expired since");
        assert!(
            !accesses.is_outdated(second, read(0, false)),
            "asked again, it finds that the record was cleared away"
        );
        accesses.answers(second, read(9, true));
        assert!(!accesses.is_outdated(first, read(3, true)), "an earlier read may find less");
    }

    #[test]
    fn what_is_judged_at_once_is_what_the_questions_say() {
        let read = |at| KeyState {
            version: Version::new(
                timestone_types::Timestamp::from_nanos(at),
                timestone_types::ClientId::new(1),
            ),
            present: true,
        };
        let mut accesses = KeyAccesses::default();
        let (first, second, other) = (ReplyId(u32::MAX), ReplyId(0), ReplyId(1));
        accesses.add(KeyAccess::new(0x40, AccessKind::Read), second);
        accesses.add(KeyAccess::new(0x40, AccessKind::Read), first);
        accesses.add(KeyAccess::new(0x80, AccessKind::Read), other);
        assert_eq!(accesses.judge(second, read(5), true), ReadOrder::Overtakes);
        assert_eq!(accesses.judge(second, read(5), false), ReadOrder::InOrder, "it cannot wait");
        assert_eq!(accesses.judge(first, read(7), true), ReadOrder::InOrder);
        accesses.remove(first);
        assert_eq!(accesses.judge(other, read(3), true), ReadOrder::InOrder, "another key's");
        assert_eq!(
            accesses.judge(second, read(5), true),
            ReadOrder::Outdated,
            "though it is alone now"
        );
        assert_eq!(accesses.judge(second, read(5), true), ReadOrder::InOrder, "asked again");
        accesses.remove(second);
        assert_eq!(accesses.judge(second, read(1), true), ReadOrder::InOrder, "it is done");
    }

    #[test]
    fn a_write_on_either_side_blocks_but_not_within_one_queue() {
        let read = KeyAccess::new(0x40, AccessKind::Read);
        let write = KeyAccess::new(0x40, AccessKind::Write);
        let queued = KeyAccess::new(0x40, AccessKind::Queued);
        let mut accesses = KeyAccesses::default();
        accesses.add(read, ReplyId(1));
        assert!(!accesses.blocks(read) && accesses.blocks(write) && accesses.blocks(queued));
        accesses.add(KeyAccess::new(0x80, AccessKind::Write), ReplyId(2));
        assert!(
            accesses.blocks(KeyAccess::new(0x80, AccessKind::Read))
                && !accesses.blocks(KeyAccess::new(0xc0, AccessKind::Write))
        );
        accesses.remove(ReplyId(1));
        accesses.add(queued, ReplyId(3));
        accesses.add(queued, ReplyId(3));
        assert!(!accesses.blocks(queued) && accesses.blocks(read) && accesses.blocks(write));
        accesses.remove(ReplyId(3));
        assert!(!accesses.blocks(write));
        accesses.remove(ReplyId(2));
        assert!(accesses.accesses.is_empty() && accesses.owners.is_empty());
    }
}

//! Which keys the commands of one connection that are under way touch, so that later commands on
//! the same keys wait.
//!
//! A mark is 62 bits of a key's hash and two of what is done to it; two keys with one hash wait for
//! each other, which costs time and nothing else. There are few marks per connection, so they are
//! compared one by one, which the processor does several at once.

use timestone_types::Version;

use super::limits::MAX_MARKS;
use super::replies::SlotId;

/// What a single-key read found: a version of its key, and whether that is a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Read {
    pub(super) version: Version,
    pub(super) present: bool,
}

impl Read {
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
pub(super) enum Judged {
    /// It is the answer.
    Tell,
    /// It has overtaken an earlier command of its key, which may find a later state.
    Overtakes,
    /// An earlier read of its key was answered with a later state.
    Outdated,
}

/// What a command does to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
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
pub(super) struct Mark(u64);

impl Mark {
    pub(super) const fn new(hash: u64, touch: Touch) -> Self {
        Self(
            (hash & KEY)
                | match touch {
                    Touch::Read => 0,
                    Touch::Write => WRITES,
                    Touch::Queued => WRITES | QUEUED,
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

/// The marks of one connection.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    owners: Vec<u32>,
    /// What an earlier read of the key was answered while this command was under way.
    answered: Vec<Read>,
    /// Since there were none, two were of one key.
    share_a_key: bool,
    /// Since there were none, one command had several.
    has_several: bool,
}

impl Marks {
    /// Whether a command that touches a key so must wait.
    #[inline]
    pub(super) fn blocks(&self, new: Mark) -> bool {
        if timestone_types::is_planted!(UnorderedPipelines) {
            return false;
        }
        self.marks.iter().fold(false, |blocked, mark| blocked | mark.conflicts(new))
    }

    /// What is to be done with what a single-key read has found; `may_wait`: it may be asked for
    /// again when an earlier one is answered. The three questions below in one: nearly always no
    /// two commands under way are of one key.
    #[inline]
    pub(super) fn judge(&mut self, owner: SlotId, found: Read, may_wait: bool) -> Judged {
        if !self.share_a_key {
            return Judged::Tell;
        }
        if may_wait && self.overtakes(owner) {
            return Judged::Overtakes;
        }
        if self.is_outdated(owner, found) {
            return Judged::Outdated;
        }
        self.answers(owner, found);
        Judged::Tell
    }

    /// Whether an earlier command of the same key is still under way: a single-key read whose
    /// answer comes before that one's has overtaken it, as reads do not wait for each other and one
    /// that is refused is sent again.
    pub(super) fn overtakes(&self, owner: SlotId) -> bool {
        if timestone_types::is_planted!(OvertakenReads) {
            return false;
        }
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return false;
        };
        let mark = self.marks[own];
        self.marks
            .iter()
            .zip(&self.owners)
            .any(|(other, &candidate)| other.has_key_of(mark) && is_before(candidate, owner.0))
    }

    /// A single-key read is about to be answered with this: later reads of its key that are under
    /// way must not find less. They may have been read before, for a read that is refused is sent
    /// again.
    pub(super) fn answers(&mut self, owner: SlotId, found: Read) {
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return;
        };
        let mark = self.marks[own];
        for at in 0..self.marks.len() {
            let is_later = self.marks[at].has_key_of(mark) && is_before(owner.0, self.owners[at]);
            if is_later && self.answered[at].is_before(found) {
                self.answered[at] = found;
            }
        }
    }

    /// Whether an earlier read of the same key was answered with a later state than this one has
    /// found. It is to be asked for again then, and whatever it finds is right.
    pub(super) fn is_outdated(&mut self, owner: SlotId, found: Read) -> bool {
        if timestone_types::is_planted!(OutdatedReads) {
            return false;
        }
        let Some(own) = self.owners.iter().position(|&candidate| candidate == owner.0) else {
            return false;
        };
        let is_outdated = found.is_before(self.answered[own]);
        if is_outdated {
            self.answered[own] = Read::NONE;
        }
        is_outdated
    }

    /// Whether there is room for the marks of a command with so many keys.
    pub(super) fn has_room(&self, keys: usize) -> bool {
        self.marks.len() + keys <= MAX_MARKS
    }

    /// Adds a mark; a command's are added one after the other.
    #[inline]
    pub(super) fn add(&mut self, mark: Mark, owner: SlotId) {
        self.share_a_key |=
            self.marks.iter().fold(false, |any, other| any | other.has_key_of(mark));
        self.has_several |= self.owners.last() == Some(&owner.0);
        self.marks.push(mark);
        self.owners.push(owner.0);
        self.answered.push(Read::NONE);
    }

    /// Removes the marks of a command that is done.
    #[inline]
    pub(super) fn remove(&mut self, owner: SlotId) {
        let mut at = 0;
        while let Some(found) = self.owners[at..].iter().position(|&candidate| candidate == owner.0)
        {
            at += found;
            self.owners.swap_remove(at);
            self.marks.swap_remove(at);
            self.answered.swap_remove(at);
            if !self.has_several {
                break;
            }
        }
        if self.marks.is_empty() {
            (self.share_a_key, self.has_several) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_overtakes_earlier_ones_of_its_key_only() {
        let mut marks = Marks::default();
        // The count of commands wraps around in between, and marks are not kept in order.
        let (first, second, third) = (SlotId(u32::MAX), SlotId(0), SlotId(1));
        marks.add(Mark::new(0x40, Touch::Read), third);
        marks.add(Mark::new(0x40, Touch::Read), first);
        marks.add(Mark::new(0x80, Touch::Read), second);
        assert!(marks.overtakes(third) && !marks.overtakes(second) && !marks.overtakes(first));
        marks.remove(first);
        assert!(!marks.overtakes(third));
        assert!(!marks.overtakes(first), "it is done");
    }

    #[test]
    fn a_read_is_outdated_when_an_earlier_one_was_answered_with_more() {
        let read = |at, present| Read {
            version: Version::new(
                timestone_types::Timestamp::from_nanos(at),
                timestone_types::ClientId::new(1),
            ),
            present,
        };
        let mut marks = Marks::default();
        let (first, second, other) = (SlotId(u32::MAX), SlotId(0), SlotId(1));
        marks.add(Mark::new(0x40, Touch::Read), second);
        marks.add(Mark::new(0x40, Touch::Read), first);
        marks.add(Mark::new(0x80, Touch::Read), other);
        marks.answers(first, read(7, true));
        assert!(!marks.is_outdated(other, read(3, true)), "another key's");
        assert!(
            !marks.is_outdated(second, read(7, true)) && !marks.is_outdated(second, read(8, true))
        );
        marks.answers(first, read(7, false));
        assert!(marks.is_outdated(second, read(7, true)), "it has expired since");
        assert!(
            !marks.is_outdated(second, read(0, false)),
            "asked again, it finds that the record was cleared away"
        );
        marks.answers(second, read(9, true));
        assert!(!marks.is_outdated(first, read(3, true)), "an earlier read may find less");
    }

    #[test]
    fn what_is_judged_at_once_is_what_the_questions_say() {
        let read = |at| Read {
            version: Version::new(
                timestone_types::Timestamp::from_nanos(at),
                timestone_types::ClientId::new(1),
            ),
            present: true,
        };
        let mut marks = Marks::default();
        let (first, second, other) = (SlotId(u32::MAX), SlotId(0), SlotId(1));
        marks.add(Mark::new(0x40, Touch::Read), second);
        marks.add(Mark::new(0x40, Touch::Read), first);
        marks.add(Mark::new(0x80, Touch::Read), other);
        assert_eq!(marks.judge(second, read(5), true), Judged::Overtakes);
        assert_eq!(marks.judge(second, read(5), false), Judged::Tell, "it cannot wait");
        assert_eq!(marks.judge(first, read(7), true), Judged::Tell);
        marks.remove(first);
        assert_eq!(marks.judge(other, read(3), true), Judged::Tell, "another key's");
        assert_eq!(marks.judge(second, read(5), true), Judged::Outdated, "though it is alone now");
        assert_eq!(marks.judge(second, read(5), true), Judged::Tell, "asked again");
        marks.remove(second);
        assert_eq!(marks.judge(second, read(1), true), Judged::Tell, "it is done");
    }

    #[test]
    fn a_write_on_either_side_blocks_but_not_within_one_queue() {
        let read = Mark::new(0x40, Touch::Read);
        let write = Mark::new(0x40, Touch::Write);
        let queued = Mark::new(0x40, Touch::Queued);
        let mut marks = Marks::default();
        marks.add(read, SlotId(1));
        assert!(!marks.blocks(read) && marks.blocks(write) && marks.blocks(queued));
        marks.add(Mark::new(0x80, Touch::Write), SlotId(2));
        assert!(
            marks.blocks(Mark::new(0x80, Touch::Read))
                && !marks.blocks(Mark::new(0xc0, Touch::Write))
        );
        marks.remove(SlotId(1));
        marks.add(queued, SlotId(3));
        marks.add(queued, SlotId(3));
        assert!(!marks.blocks(queued) && marks.blocks(read) && marks.blocks(write));
        marks.remove(SlotId(3));
        assert!(!marks.blocks(write));
        marks.remove(SlotId(2));
        assert!(marks.marks.is_empty() && marks.owners.is_empty());
    }
}

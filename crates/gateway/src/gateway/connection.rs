//! One redis client's connection: what it sent, what it is owed, and its transaction state.
//!
//! ```text
//!   bytes ─► inbox ─► one command ─┬─ keys free? ─► under way (slot, marks) ─► answered in order ─► out
//!                                  └─ else it waits, and everything behind it
//! ```
//! Commands of a pipeline run side by side unless they touch the same key with a write on either
//! side; so commands on different keys may take effect in any order, as in a pipeline to a Redis
//! Cluster. A command that must run alone (WATCH, SCAN, FLUSHDB, one with very many keys) is the
//! connection's *barrier*: it starts when nothing is under way, and nothing starts before it is
//! answered.

use std::collections::BTreeMap;

use timestone_seda::{Charge, ReplyAddress};
use timestone_types::{Timestamp, Version};

use super::client::ClientState;
use super::command::Spec;
use super::inbox::{Inbox, Position};
use super::limits::{CHARGED_ANSWER_BYTES, MAX_IN_FLIGHT};
use super::marks::Marks;
use super::replies::{Asked, Replies, SlotId};
use super::words::Words;
use timestone_session::ValueView;

/// Bytes of answers that a connection is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    /// Those that can leave, or are on their way.
    leaving: usize,
    all: usize,
}

impl Owed {
    /// Whether an answer of this length may be kept. The oldest command's is, as long as what can
    /// leave is within the bound: nothing else gets rid of those that wait behind it.
    pub(super) const fn has_room(self, first: bool, length: usize, bound: usize) -> bool {
        if first { self.leaving <= bound } else { self.all + length <= bound }
    }
}

/// Names a connection of this gateway while it has unanswered commands or is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConnectionIndex(pub(super) u32);

/// A command queued by MULTI.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) spec: &'static Spec,
    pub(super) words: core::ops::Range<u32>,
}

/// What MULTI has queued.
#[derive(Debug, Default)]
pub(super) struct Multi {
    pub(super) words: Words,
    pub(super) commands: Vec<Queued>,
    /// A command could not be queued: EXEC will refuse.
    pub(super) spoilt: bool,
    /// Their memory.
    pub(super) charge: Option<Charge>,
}

impl Multi {
    /// EXEC will refuse: what is queued is forgotten.
    pub(super) fn spoil(&mut self) {
        self.spoilt = true;
        self.words = Words::default();
        self.commands = Vec::new();
        if let Some(charge) = &mut self.charge {
            charge.set(0);
        }
    }
}

/// A key as WATCH found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watched {
    pub(super) version: Version,
    pub(super) present: bool,
}

impl Watched {
    /// Whether the key was touched since, by a write or by expiring. That an absent key's record
    /// was cleared away is no touch.
    pub(super) fn is_touched(&self, found: &ValueView<'_>) -> bool {
        let present = found.value.is_some();
        if self.present || present {
            return present != self.present || found.version != self.version;
        }
        found.version > self.version
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reply_to: ReplyAddress,
    pub(super) client: ClientState,
    pub(super) inbox: Inbox,
    pub(super) replies: Replies,
    pub(super) marks: Marks,
    pub(super) barrier: Option<SlotId>,
    pub(super) multi: Option<Box<Multi>>,
    /// By key: what is watched already stays as it was found first.
    pub(super) watched: BTreeMap<Box<[u8]>, Watched>,
    /// Their memory.
    pub(super) watched_charge: Option<Charge>,
    /// What was watched was forgotten for want of memory: the next EXEC answers that it may have
    /// changed.
    pub(super) watch_lost: bool,
    /// What is admitted to the stage and still counted: requests and bytes.
    pub(super) admitted: (u64, u64),
    /// Bytes sent to the net stage of which it has not said that they are written.
    pub(super) unwritten: usize,
    /// Memory for the long command that is being received.
    pub(super) reservation: Option<Charge>,
    /// Its long command waits for memory until then at most; it needs so many bytes.
    pub(super) starving: Option<(Timestamp, usize)>,
    /// The net stage was told to read nothing more from it.
    pub(super) paused: bool,
    /// Bytes of input and output that the gateway has counted for it.
    pub(super) counted: (u64, u64),
    /// It has commands that wait for others.
    pub(super) blocked: bool,
    /// It has had its share of this turn.
    pub(super) postponed: bool,
    /// Nothing more is carried out; closed when everything is answered.
    pub(super) closing: bool,
    /// The client sends nothing more; closed when everything is answered.
    pub(super) half_closed: bool,
    /// The net stage was told to close it.
    pub(super) closed: bool,
    /// It is gone.
    pub(super) gone: bool,
    /// It is in the list of those to look after at the end of the turn.
    pub(super) listed: bool,
    /// It is in the list of those that may go on.
    pub(super) ready: bool,
}

impl Connection {
    pub(super) fn new(reply_to: ReplyAddress, client: ClientState) -> Self {
        Self {
            reply_to,
            client,
            inbox: Inbox::new(),
            replies: Replies::new(),
            marks: Marks::default(),
            barrier: None,
            multi: None,
            watched: BTreeMap::new(),
            watched_charge: None,
            watch_lost: false,
            admitted: (0, 0),
            unwritten: 0,
            reservation: None,
            starving: None,
            paused: false,
            counted: (0, 0),
            blocked: false,
            postponed: false,
            closing: false,
            half_closed: false,
            closed: false,
            gone: false,
            listed: false,
            ready: false,
        }
    }

    /// Whether another command may be looked at, when the connection may be owed `bound` bytes of
    /// answers.
    pub(super) fn may_start(&self, bound: usize) -> bool {
        self.barrier.is_none()
            && self.replies.len() < MAX_IN_FLIGHT
            && self.owed_bytes() < bound
            && self.replies.expected_bytes() <= bound
            && !self.replies.has_shed()
            && !self.closing
    }

    /// Answers that are not known to be written, in bytes.
    pub(super) fn owed_bytes(&self) -> usize {
        self.unwritten + self.replies.waiting_bytes()
    }

    /// Whether the buffers of its answers have grown much since they were counted.
    #[inline]
    pub(super) fn has_grown(&self) -> bool {
        let counted = self.counted.1 as usize;
        self.replies.memory_bytes() >= counted + CHARGED_ANSWER_BYTES
            && !super::memory::forgets_passing()
    }

    /// What it is owed at this moment, for whoever asks whether more fits.
    pub(super) fn owed(&self) -> Owed {
        Owed { leaving: self.unwritten + self.replies.ready_bytes(), all: self.owed_bytes() }
    }

    /// Answers a command under way, and lets what waited for it go on. Tells which command it was,
    /// if it was one on keys.
    #[inline]
    pub(super) fn answer(
        &mut self,
        slot: SlotId,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Asked> {
        let asked = self.replies.asked(slot);
        #[cfg(feature = "planted-bugs")]
        if asked.is_some() && timestone_types::planted::loses_answer() {
            return asked;
        }
        self.replies.answer(slot, write);
        self.marks.remove(slot);
        if self.barrier == Some(slot) {
            self.barrier = None;
        }
        asked
    }

    /// Whether the answer of this single-key read comes before that of an earlier command on its
    /// key.
    pub(super) fn overtakes(&self, slot: SlotId) -> bool {
        !self.replies.is_first(slot) && self.marks.overtakes(slot)
    }

    /// Answers a command at once with an error.
    pub(super) fn refuse(&mut self, position: Position, failure: &super::failure::Failure) {
        self.replies
            .now(self.client.protocol, position, |reply| reply.error_bytes(failure.bytes()));
    }

    /// Ends the transaction state, as EXEC, DISCARD and RESET do.
    pub(super) fn end_multi(&mut self) -> Option<Box<Multi>> {
        self.client.queued = None;
        self.multi.take()
    }

    /// Ends the watch over keys, as EXEC, UNWATCH, DISCARD and RESET do.
    pub(super) fn unwatch(&mut self) {
        self.watched.clear();
        self.watched_charge = None;
        self.watch_lost = false;
        self.client.watched = 0;
    }

    /// Forgets what is watched, for want of memory. EXEC may always answer that something has
    /// changed.
    pub(super) fn lose_watched(&mut self) {
        self.unwatch();
        self.watch_lost = true;
    }

    /// What is admitted and need not be counted any longer. What waits for commands before it stays
    /// counted, so that the net stage stops reading when too much does; what was carried out
    /// meanwhile does not, or a client that never lets its pipeline run dry would in the end be
    /// counted for all that it has ever sent.
    pub(super) fn give_up_admitted(&mut self) -> (u64, u64) {
        let waiting = if self.blocked && !self.closing { self.inbox.backlog() as u64 } else { 0 };
        if waiting > 0 && timestone_types::is_planted!(CountedForEver) {
            return (0, 0);
        }
        let (frames, bytes) = self.admitted;
        let kept = (frames.min(u64::from(waiting > 0)), bytes.min(waiting));
        self.admitted = kept;
        (frames - kept.0, bytes - kept.1)
    }

    /// Whether nothing is left to be done for a client that is still there.
    pub(super) fn is_idle(&self) -> bool {
        self.replies.is_empty() && !self.replies.has_output() && (self.closing || !self.blocked)
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Expiry, Timestamp};

    use super::*;

    fn found(value: Option<&[u8]>, version: u64) -> ValueView<'_> {
        let version = Version::new(Timestamp::from_nanos(version), ClientId::new(1));
        ValueView { value, version, expires_at: Expiry::NEVER }
    }

    fn watched(view: ValueView<'_>) -> Watched {
        Watched { version: view.version, present: view.value.is_some() }
    }

    #[test]
    fn writes_deletes_and_expiry_touch_a_watched_key_and_collection_does_not() {
        let present = watched(found(Some(b"a"), 5));
        assert!(!present.is_touched(&found(Some(b"a"), 5)));
        assert!(present.is_touched(&found(Some(b"a"), 6)), "the same value again is a write");
        assert!(present.is_touched(&found(None, 6)), "deleted");
        assert!(present.is_touched(&found(None, 5)), "expired");
        let absent = watched(found(None, 5));
        assert!(!absent.is_touched(&found(None, 5)));
        assert!(!absent.is_touched(&found(None, 0)), "the tombstone was collected");
        assert!(absent.is_touched(&found(None, 7)), "made and deleted");
        assert!(absent.is_touched(&found(Some(b"a"), 7)));
    }
}

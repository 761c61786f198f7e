//! One redis client's connection: what it sent, what it is owed, and its transaction state.
//!
//! ```text
//!   bytes ─► inbox ─► one command ─┬─ keys free? ─► under way (reply, key accesses) ─► answered in order ─► out
//!                                  ├─ short, of one key: it follows those on that key ─► under way with others
//!                                  └─ else it waits, and everything behind it
//! ```
//! Commands of a pipeline run side by side unless they touch the same key with a write on either
//! side; so commands on different keys may take effect in any order, as in a pipeline to a Redis
//! Cluster. A short command over one key that comes behind others on it follows them ([`followers`]);
//! others wait, and what comes behind them waits, too. A command that must run alone (WATCH, SCAN,
//! FLUSHDB, one with very many keys) is the connection's *barrier*: it starts when nothing is under
//! way, and nothing starts before it is answered.

pub(crate) mod client;
pub(crate) mod followers;
pub(crate) mod inbox;
pub(crate) mod key_access;
pub(crate) mod replies;
pub(crate) mod table;

use std::collections::BTreeMap;

use timestone_seda::{Charge, ReplyAddress};
use timestone_types::{Timestamp, Version};

use crate::commands::arguments::{Args, ArgumentBuffer};
use crate::commands::table::Spec;
use crate::connection::client::ClientState;
use crate::connection::followers::Followers;
use crate::connection::inbox::{Inbox, StreamPosition};
use crate::connection::key_access::KeyAccesses;
use crate::connection::replies::{CommandStart, ReplyId, ReplyQueue};
use crate::failure::Failure;
use crate::limits::{CHARGED_ANSWER_BYTES, MAX_IN_FLIGHT};
use timestone_session::ValueView;

/// Bytes of answers that a connection is owed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedBytes {
    /// Those that can leave, or are on their way.
    leaving: usize,
    all: usize,
}

impl OwedBytes {
    /// Whether an answer of this length may be kept. The oldest command's is, as long as what can
    /// leave is within the bound: nothing else gets rid of those that wait behind it.
    pub(crate) const fn has_room(self, first: bool, length: usize, bound: usize) -> bool {
        if first { self.leaving <= bound } else { self.all + length <= bound }
    }
}

/// Names a connection of this gateway while it has unanswered commands or is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ConnectionIndex(pub(crate) u32);

/// A command queued by MULTI.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) spec: &'static Spec,
    pub(crate) arguments: core::ops::Range<u32>,
}

/// What MULTI has queued.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    pub(crate) arguments: ArgumentBuffer,
    pub(crate) commands: Vec<Queued>,
    /// A command could not be queued: EXEC will refuse.
    pub(crate) dirty: bool,
    /// Their memory.
    pub(crate) charge: Option<Charge>,
}

impl Multi {
    /// EXEC will refuse: what is queued is forgotten.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
        self.arguments = ArgumentBuffer::default();
        self.commands = Vec::new();
        if let Some(charge) = &mut self.charge {
            charge.set(0);
        }
        debug_assert!(self.charge.as_ref().is_none_or(|charge| charge.bytes() == 0));
    }
}

/// A key as WATCH found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watched {
    pub(crate) version: Version,
    pub(crate) present: bool,
}

impl Watched {
    /// Whether the key was touched since, by a write or by expiring. That an absent key's record
    /// was cleared away is no touch.
    pub(crate) fn is_touched(&self, found: &ValueView<'_>) -> bool {
        let present = found.value.is_some();
        if self.present || present {
            return present != self.present || found.version != self.version;
        }
        found.version > self.version
    }
}

/// What MULTI has queued and WATCH has found.
#[derive(Debug, Default)]
pub(crate) struct TransactionState {
    pub(crate) multi: Option<Box<Multi>>,
    /// By key: what is watched already stays as it was found first.
    pub(crate) watched: BTreeMap<Box<[u8]>, Watched>,
    /// Their memory.
    pub(crate) watched_charge: Option<Charge>,
    /// What was watched was forgotten for want of memory: the next EXEC answers that it may have
    /// changed.
    pub(crate) watch_lost: bool,
}

impl TransactionState {
    /// Bytes that the queue of MULTI is charged for.
    pub(crate) fn queued_bytes(&self) -> u64 {
        let charge = self.multi.as_ref().and_then(|multi| multi.charge.as_ref());
        charge.map_or(0, Charge::bytes)
    }

    /// Bytes that what is watched is charged for.
    pub(crate) fn watched_bytes(&self) -> u64 {
        self.watched_charge.as_ref().map_or(0, Charge::bytes)
    }
}

/// A long command that waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryWait {
    /// How long it waits at most.
    pub(crate) until: Timestamp,
    /// How many bytes of it are missing, at least.
    pub(crate) needed: usize,
}

/// What a connection is counted for.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// What is admitted to the stage and still counted: requests and bytes.
    pub(crate) admitted: (u64, u64),
    /// Bytes sent to the net stage of which it has not said that they are written.
    pub(crate) unwritten: usize,
    /// Memory for the long command that is being received.
    pub(crate) reservation: Option<Charge>,
    /// Its long command waits for memory.
    pub(crate) wait: Option<MemoryWait>,
    /// Bytes of input and output that the gateway has counted for it.
    pub(crate) counted: (u64, u64),
}

impl Usage {
    /// Bytes that are reserved for the long command that is being received.
    pub(crate) fn reserved(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Charge::bytes)
    }
}

/// How far a connection is from its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CloseState {
    /// Nothing more is carried out; closed when everything is answered.
    pub(crate) closing: bool,
    /// The client sends nothing more; closed when everything is answered.
    pub(crate) half_closed: bool,
    /// The net stage was told to close it.
    pub(crate) closed: bool,
    /// It is gone.
    pub(crate) gone: bool,
}

/// What a connection waits for, and which lists it stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TurnState {
    /// The net stage was told to read nothing more from it.
    pub(crate) paused: bool,
    /// It has commands that wait for others.
    pub(crate) blocked: bool,
    /// It has had its share of this turn.
    pub(crate) postponed: bool,
    /// It is in the list of those to look after at the end of the turn.
    pub(crate) listed: bool,
    /// It is in the list of those that may go on.
    pub(crate) ready: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) reply_to: ReplyAddress,
    pub(crate) client: ClientState,
    pub(crate) inbox: Inbox,
    pub(crate) replies: ReplyQueue,
    /// Which keys its commands under way touch.
    pub(crate) accesses: KeyAccesses,
    /// Jobs that wait for commands of it on the same key.
    pub(crate) followers: Followers,
    /// The command that must run alone.
    pub(crate) barrier: Option<ReplyId>,
    pub(crate) transaction: TransactionState,
    pub(crate) usage: Usage,
    pub(crate) life: CloseState,
    pub(crate) turn: TurnState,
}

impl Connection {
    pub(crate) fn new(reply_to: ReplyAddress, client: ClientState) -> Self {
        Self {
            reply_to,
            client,
            inbox: Inbox::new(),
            replies: ReplyQueue::new(),
            accesses: KeyAccesses::default(),
            followers: Followers::default(),
            barrier: None,
            transaction: TransactionState::default(),
            usage: Usage::default(),
            life: CloseState::default(),
            turn: TurnState::default(),
        }
    }

    /// Nothing more of what it has sent is carried out; it is closed when everything is answered.
    pub(crate) fn close(&mut self) {
        self.life.closing = true;
        self.inbox.discard();
        assert_eq!(self.inbox.backlog(), 0, "nothing more is carried out");
    }

    /// Its client is gone: what it has queued, and what it is owed, is forgotten.
    pub(crate) fn leave(&mut self) {
        assert!(!self.life.gone, "a client leaves once");
        self.life.gone = true;
        self.close();
        self.end_multi();
        self.unwatch();
        (self.usage.reservation, self.usage.wait) = (None, None);
        self.replies.drop_output();
    }

    /// Whether something waits for the answers of its commands under way.
    #[inline]
    pub(crate) fn waits_for_answers(&self) -> bool {
        self.turn.blocked || self.replies.has_shed() || !self.followers.is_empty()
    }

    /// Puts a command that must run alone in front of everything that comes behind it.
    pub(crate) fn set_barrier(&mut self, id: ReplyId) {
        assert!(self.barrier.is_none(), "one command at a time runs alone");
        self.barrier = Some(id);
    }

    /// The net stage has written so much of what it was sent.
    pub(crate) fn written(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.usage.unwritten, "what is written was sent");
        self.usage.unwritten = self.usage.unwritten.saturating_sub(bytes);
    }

    /// Whether another command may be looked at, when the connection may be owed `bound` bytes of
    /// answers.
    pub(crate) fn may_start(&self, bound: usize) -> bool {
        self.barrier.is_none()
            && self.replies.len() < MAX_IN_FLIGHT
            && self.owed_bytes() < bound
            && self.replies.expected_bytes() <= bound
            && !self.replies.has_shed()
            && !self.life.closing
    }

    /// Answers that are not known to be written, in bytes.
    pub(crate) fn owed_bytes(&self) -> usize {
        self.usage.unwritten + self.replies.waiting_bytes()
    }

    /// Whether the buffers of its answers have grown much since they were counted.
    #[inline]
    pub(crate) fn has_grown(&self) -> bool {
        let counted = self.usage.counted.1 as usize;
        self.replies.memory_bytes() >= counted + CHARGED_ANSWER_BYTES
            && !crate::memory::forgets_passing()
    }

    /// What it is owed at this moment, for whoever asks whether more fits.
    pub(crate) fn owed(&self) -> OwedBytes {
        OwedBytes {
            leaving: self.usage.unwritten + self.replies.ready_bytes(),
            all: self.owed_bytes(),
        }
    }

    /// Answers a command under way, and lets what waited for it go on. Tells which command it was,
    /// if it was one on keys.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        reply_id: ReplyId,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<CommandStart> {
        debug_assert!(self.replies.pending(reply_id).is_some(), "a command is answered once");
        let asked = self.replies.start_of(reply_id);
        #[cfg(feature = "planted-bugs")]
        if asked.is_some() && timestone_types::planted::loses_answer() {
            return asked;
        }
        self.replies.answer(reply_id, write);
        self.accesses.remove(reply_id);
        if self.barrier == Some(reply_id) {
            self.barrier = None;
        }
        asked
    }

    /// Whether the answer of this single-key read comes before that of an earlier command on its
    /// key.
    pub(crate) fn overtakes(&self, reply_id: ReplyId) -> bool {
        !self.replies.is_first(reply_id) && self.accesses.overtakes(reply_id)
    }

    /// Answers a command at once with an error.
    pub(crate) fn refuse(&mut self, position: StreamPosition, failure: &Failure) {
        debug_assert!(!self.life.gone, "somebody is there to be answered");
        self.replies
            .now(self.client.protocol, position, |reply| reply.error_bytes(failure.bytes()));
    }

    /// Answers a command that may not be given so. It spoils the transaction that it was to be part
    /// of; EXEC, which was to be its end, ends it.
    pub(crate) fn refuse_command(
        &mut self,
        position: StreamPosition,
        args: Args<'_>,
        failure: &Failure,
    ) {
        if args.is(0, b"EXEC") {
            self.end_multi();
            self.unwatch();
            return self.refuse(position, &Failure::exec_refused(failure));
        }
        if let Some(multi) = &mut self.transaction.multi {
            multi.mark_dirty();
        }
        self.refuse(position, failure);
    }

    /// A queue of MULTI begins, or goes on.
    pub(crate) fn begin_multi(&mut self, multi: Multi) {
        assert!(self.transaction.multi.is_none(), "there is one queue of MULTI at a time");
        self.client.queued = Some(multi.commands.len());
        self.transaction.multi = Some(Box::new(multi));
    }

    /// Ends the transaction state, as EXEC, DISCARD and RESET do.
    pub(crate) fn end_multi(&mut self) -> Option<Box<Multi>> {
        debug_assert_eq!(self.client.queued.is_some(), self.transaction.multi.is_some());
        self.client.queued = None;
        self.transaction.multi.take()
    }

    /// Ends the watch over keys, as EXEC, UNWATCH, DISCARD and RESET do.
    pub(crate) fn unwatch(&mut self) {
        debug_assert_eq!(self.client.watched, self.transaction.watched.len());
        self.transaction.watched.clear();
        self.transaction.watched_charge = None;
        self.transaction.watch_lost = false;
        self.client.watched = 0;
    }

    /// Forgets what is watched, for want of memory. EXEC may always answer that something has
    /// changed.
    pub(crate) fn lose_watched(&mut self) {
        self.unwatch();
        self.transaction.watch_lost = true;
        debug_assert_eq!(self.transaction.watched_bytes(), 0, "nothing of it is left");
    }

    /// What is admitted and need not be counted any longer. What waits for commands before it stays
    /// counted, so that the net stage stops reading when too much does; what was carried out
    /// meanwhile does not, or a client that never lets its pipeline run dry would in the end be
    /// counted for all that it has ever sent.
    pub(crate) fn give_up_admitted(&mut self) -> (u64, u64) {
        let waiting =
            if self.turn.blocked && !self.life.closing { self.inbox.backlog() as u64 } else { 0 };
        if waiting > 0 && timestone_types::is_planted!(CountedForEver) {
            return (0, 0);
        }
        let (frames, bytes) = self.usage.admitted;
        let kept = (frames.min(u64::from(waiting > 0)), bytes.min(waiting));
        debug_assert!(kept.0 <= frames && kept.1 <= bytes, "what is kept was admitted");
        self.usage.admitted = kept;
        (frames - kept.0, bytes - kept.1)
    }

    /// Whether nothing is left to be done for a client that is still there.
    pub(crate) fn is_idle(&self) -> bool {
        self.replies.is_empty()
            && !self.replies.has_output()
            && (self.life.closing || !self.turn.blocked)
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

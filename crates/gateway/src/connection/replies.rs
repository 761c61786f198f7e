//! A connection's answers, in the order of its commands, whatever order they are found in.
//!
//! ```text
//!   pending   [waiting #7][ready #8][waiting #9]        late   answer #8        full   answers #1 … #4        out   #5, #6
//! ```
//! The answer to the oldest command is written where the net stage will take it; others wait in
//! `late` until their turn comes. A buffer that has grown to [`FULL_BUFFER_BYTES`] leaves by
//! itself: one that held all long answers of a turn would be copied as it grows, would have room
//! for as much again, and would be kept until the last byte of it is written.
//!
//! Invariants: `full` and then `out` hold whole answers in order; a ready answer is never the first;
//! `late` is empty when none is ready.

use std::collections::VecDeque;

use timestone_types::Timestamp;
use timestone_wire::resp::{Protocol, ReplyWriter};

use crate::commands::table::Cmd;
use crate::connection::inbox::StreamPosition;
use crate::limits::{
    FIRST_ANSWER_BYTES, FULL_BUFFER_BYTES, KEPT_BUFFER_BYTES, RESERVED_ANSWER_BYTES,
};

/// Names a command of a connection until it is answered: they are counted, and the count wraps
/// around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyId(pub(crate) u32);

/// What the answer of a command that takes the fast path looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyKind {
    /// A value, or null: GET, GETDEL.
    Value,
    /// `OK`, or null when a condition did not hold: SET.
    Ok,
    /// The value that was there before: SET GET, GETSET.
    Previous,
    /// 1, or 0 when a condition did not hold: DEL, SETNX.
    Count,
    /// A job answers.
    Job,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReplyState {
    Waiting,
    Ready { start: usize, length: usize },
}

/// A command that is not answered to the net stage yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingReply {
    state: ReplyState,
    pub(crate) reply_kind: ReplyKind,
    pub(crate) protocol: Protocol,
    /// Where the command begins in the connection's stream.
    pub(crate) position: StreamPosition,
    /// The hash of the key that a fast write has entered as busy.
    pub(crate) entered: Option<u64>,
    /// Its answer found no room, or came before that of an earlier read of the same key: it is
    /// asked for again.
    pub(crate) shed: bool,
    /// Which command, and when it was read; nothing for those that touch no key.
    asked: Option<CommandStart>,
}

/// A command on keys, and when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandStart {
    pub(crate) cmd: Cmd,
    pub(crate) at: Timestamp,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    pending: VecDeque<PendingReply>,
    first: u32,
    ready: u32,
    late: Vec<u8>,
    out: Vec<u8>,
    /// Bytes that left at once lately: as much is reserved when the next answers begin.
    expected: usize,
    /// Buffers that leave before `out`, their bytes, and their memory.
    full: VecDeque<Vec<u8>>,
    full_bytes: usize,
    full_memory: usize,
    /// Slots that are shed, and about how long the longest answers of late are, in bytes.
    shed: u32,
    longest: usize,
    /// Writes under way that return what was there, and about how long the longest of those answers
    /// are: they cannot be read again, so that short answers to other commands say nothing about
    /// them.
    returning: u32,
    longest_returned: usize,
}

impl ReplyQueue {
    pub(crate) const fn new() -> Self {
        Self {
            pending: VecDeque::new(),
            first: 0,
            ready: 0,
            late: Vec::new(),
            out: Vec::new(),
            expected: 0,
            full: VecDeque::new(),
            full_bytes: 0,
            full_memory: 0,
            shed: 0,
            longest: FIRST_ANSWER_BYTES,
            returning: 0,
            longest_returned: FIRST_ANSWER_BYTES,
        }
    }

    /// What holds between calls.
    #[inline]
    fn assert_sound(&self) {
        debug_assert!(self.ready as usize <= self.pending.len(), "ready answers are pending");
        debug_assert!(self.shed as usize <= self.pending.len(), "dropped answers are pending");
        debug_assert!(self.full.is_empty() == (self.full_bytes == 0), "full buffers are counted");
    }

    /// Commands that are not answered.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Bytes that wait, in order or not.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.ready_bytes() + self.late.len()
    }

    /// Where the oldest command under way begins.
    pub(crate) fn oldest(&self) -> Option<StreamPosition> {
        self.pending.front().map(|pending| pending.position)
    }

    /// Expects an answer.
    #[inline]
    pub(crate) fn expect(
        &mut self,
        reply_kind: ReplyKind,
        protocol: Protocol,
        position: StreamPosition,
    ) -> ReplyId {
        self.assert_sound();
        let id = ReplyId(self.first.wrapping_add(self.pending.len() as u32));
        self.returning += u32::from(reply_kind == ReplyKind::Previous);
        self.pending.push_back(PendingReply {
            state: ReplyState::Waiting,
            reply_kind,
            protocol,
            position,
            entered: None,
            shed: false,
            asked: None,
        });
        id
    }

    /// Answers a command at once, behind those that are under way.
    pub(crate) fn now(
        &mut self,
        protocol: Protocol,
        position: StreamPosition,
        write: impl FnOnce(&mut ReplyWriter<'_>),
    ) {
        self.assert_sound();
        if self.pending.is_empty() {
            write(&mut ReplyWriter::new(&mut self.out, protocol));
            return self.close_full();
        }
        let id = self.expect(ReplyKind::Job, protocol, position);
        self.answer(id, |out| write(&mut ReplyWriter::new(out, protocol)));
    }

    /// The same with an answer that is written already.
    pub(crate) fn now_bytes(&mut self, position: StreamPosition, answer: &[u8]) {
        self.assert_sound();
        if self.pending.is_empty() {
            self.out.extend_from_slice(answer);
            return self.close_full();
        }
        let id = self.expect(ReplyKind::Job, Protocol::Resp2, position);
        self.answer(id, |out| out.extend_from_slice(answer));
    }

    /// Notes which command it is, and when it was read.
    #[inline]
    pub(crate) fn note_start(&mut self, id: ReplyId, asked: CommandStart) {
        if let Some(pending) = self.pending.get_mut(id.0.wrapping_sub(self.first) as usize) {
            debug_assert!(pending.asked.is_none(), "a command starts once");
            pending.asked = Some(asked);
        }
    }

    /// Which command it is, if it is one on keys.
    #[inline]
    pub(crate) fn start_of(&self, id: ReplyId) -> Option<CommandStart> {
        self.pending.get(id.0.wrapping_sub(self.first) as usize)?.asked
    }

    /// A command under way.
    #[inline]
    pub(crate) fn pending(&self, id: ReplyId) -> Option<&PendingReply> {
        self.pending
            .get(id.0.wrapping_sub(self.first) as usize)
            .filter(|pending| pending.state == ReplyState::Waiting)
    }

    /// Notes that a fast write has entered its key as busy; `None`: that it has left.
    #[inline]
    pub(crate) fn note_entered(&mut self, id: ReplyId, hash: Option<u64>) {
        self.assert_sound();
        if let Some(pending) = self.pending.get_mut(id.0.wrapping_sub(self.first) as usize) {
            pending.entered = hash;
        }
    }

    /// Answers a command under way with what `write` appends.
    #[inline]
    pub(crate) fn answer(&mut self, id: ReplyId, write: impl FnOnce(&mut Vec<u8>)) {
        let place = id.0.wrapping_sub(self.first) as usize;
        if place == 0 {
            if self.out.capacity() == 0 {
                self.out.reserve(self.expected);
            }
            let before = self.out.len();
            write(&mut self.out);
            self.note_answer(place, self.out.len() - before);
            self.close_full();
            self.pending.pop_front();
            self.first = self.first.wrapping_add(1);
            if self.ready > 0 {
                self.follow();
            }
            return;
        }
        let start = self.late.len();
        write(&mut self.late);
        let length = self.late.len() - start;
        self.note_answer(place, length);
        if let Some(pending) = self.pending.get_mut(place) {
            pending.state = ReplyState::Ready { start, length };
            self.ready += 1;
            debug_assert!((self.ready as usize) < self.pending.len(), "the first is never ready");
        }
    }

    /// A command under way was answered with so many bytes.
    #[inline]
    fn note_answer(&mut self, place: usize, length: usize) {
        debug_assert!(self.returning as usize <= self.pending.len());
        self.note_length(length);
        if self.returning > 0
            && self
                .pending
                .get(place)
                .is_some_and(|pending| pending.reply_kind == ReplyKind::Previous)
        {
            self.returning -= 1;
            self.longest_returned = length.max(self.longest_returned - self.longest_returned / 16);
        }
    }

    /// Remembers how long answers are; a long one is forgotten after some dozens of short ones.
    #[inline]
    fn note_length(&mut self, length: usize) {
        self.longest = length.max(self.longest - self.longest / 16);
        debug_assert!(self.longest >= length, "no answer was longer");
    }

    /// What the commands under way will about add to what waits.
    pub(crate) fn expected_bytes(&self) -> usize {
        let returned = (self.returning as usize).saturating_mul(self.longest_returned);
        self.pending.len().saturating_mul(self.longest).saturating_add(returned)
    }

    /// Bytes that can leave.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.full_bytes + self.out.len()
    }

    /// Memory of the buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.full_memory + self.out.capacity() + self.late.capacity()
    }

    /// Whether this is the oldest command under way.
    pub(crate) fn is_first(&self, id: ReplyId) -> bool {
        id.0 == self.first
    }

    /// The answer to a command, of this length, found no room: it is asked for again later.
    pub(crate) fn shed(&mut self, id: ReplyId, length: usize) {
        self.note_length(length);
        self.drop_answer(id);
        self.assert_sound();
    }

    /// A command of a job is answered with a value of this length: it is asked for by itself when
    /// there is room.
    pub(crate) fn ask_later(&mut self, id: ReplyId, length: usize) {
        if let Some(pending) = self.pending.get_mut(id.0.wrapping_sub(self.first) as usize) {
            debug_assert_eq!(pending.reply_kind, ReplyKind::Job);
            pending.reply_kind = ReplyKind::Value;
        }
        self.shed(id, length);
    }

    /// The answer to a command is not taken: it is asked for again when those before it are
    /// answered.
    pub(crate) fn drop_answer(&mut self, id: ReplyId) {
        if let Some(pending) = self.pending.get_mut(id.0.wrapping_sub(self.first) as usize)
            && !core::mem::replace(&mut pending.shed, true)
        {
            self.shed += 1;
        }
        self.assert_sound();
    }

    /// Whether answers wait to be asked for again.
    pub(crate) fn has_shed(&self) -> bool {
        self.shed > 0
    }

    /// The oldest command whose answer is to be asked for again, if its answer fits: `room` says
    /// whether, for the oldest command under way or for another one of the length that is given. It
    /// counts as asked for from then on.
    pub(crate) fn ask_again(
        &mut self,
        room: impl FnOnce(bool, usize) -> bool,
    ) -> Option<(ReplyId, StreamPosition)> {
        if self.shed == 0 {
            return None;
        }
        let place = self.pending.iter().position(|pending| pending.shed)?;
        // One at a time: those that were asked for again and are under way stand before it.
        let others =
            self.pending.iter().take(place).any(|pending| pending.state == ReplyState::Waiting);
        if others || !room(place == 0, self.longest) {
            return None;
        }
        let pending = self.pending.get_mut(place)?;
        pending.shed = false;
        assert!(self.shed > 0, "what was dropped is counted");
        self.shed -= 1;
        Some((ReplyId(self.first.wrapping_add(place as u32)), pending.position))
    }

    /// Moves on the answers whose turn has come.
    fn follow(&mut self) {
        while let Some(&PendingReply { state: ReplyState::Ready { start, length }, .. }) =
            self.pending.front()
        {
            self.out.extend_from_slice(&self.late[start..][..length]);
            self.close_full();
            self.pending.pop_front();
            self.first = self.first.wrapping_add(1);
            self.ready -= 1;
        }
        debug_assert!(self.ready as usize <= self.pending.len(), "ready answers are pending");
        if self.ready == 0 {
            self.late.clear();
            give_back(&mut self.late);
        }
    }

    /// Nothing more is appended to a buffer that has grown to its size.
    #[inline]
    fn close_full(&mut self) {
        if self.out.len() >= FULL_BUFFER_BYTES {
            let mut full = core::mem::take(&mut self.out);
            if full.capacity() - full.len() > full.len() / 8 {
                // It may wait for its reader for long.
                full.shrink_to_fit();
            }
            self.full_bytes += full.len();
            self.full_memory += full.capacity();
            self.full.push_back(full);
        }
        self.assert_sound();
    }

    /// Takes the next buffer of answers that can leave.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.assert_sound();
        match self.full.pop_front() {
            Some(full) => {
                self.full_bytes -= full.len();
                self.full_memory -= full.capacity();
                Some(full)
            }
            None if self.out.is_empty() => None,
            None => {
                self.expected = self.out.len().min(RESERVED_ANSWER_BYTES);
                Some(core::mem::take(&mut self.out))
            }
        }
    }

    /// Whether something can leave.
    pub(crate) fn has_output(&self) -> bool {
        self.ready_bytes() > 0
    }

    /// Forgets what was written: nobody is there to read it.
    pub(crate) fn drop_output(&mut self) {
        (self.full, self.full_bytes, self.full_memory) = (VecDeque::new(), 0, 0);
        self.out.clear();
        give_back(&mut self.out);
        self.assert_sound();
    }
}

/// Gives an empty buffer back that has grown. Whole: a part of it that stayed would hold the place
/// where it lies.
fn give_back(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BUFFER_BYTES {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::inbox::Inbox;

    #[test]
    fn answers_leave_in_the_order_of_their_commands() {
        let at = Inbox::new().position();
        let mut replies = ReplyQueue::new();
        // The count of commands wraps around in between.
        replies.first = u32::MAX - 1;
        let ids: Vec<ReplyId> =
            (0..4).map(|_| replies.expect(ReplyKind::Ok, Protocol::Resp2, at)).collect();
        replies.answer(ids[2], |out| out.extend_from_slice(b"c"));
        replies.answer(ids[1], |out| out.extend_from_slice(b"b"));
        assert!(
            !replies.has_output()
                && replies.pending(ids[2]).is_none()
                && replies.pending(ids[3]).is_some()
        );
        replies.now(Protocol::Resp2, at, |reply| reply.ok());
        replies.answer(ids[0], |out| out.extend_from_slice(b"a"));
        assert_eq!(replies.take().unwrap(), b"abc");
        assert!(replies.late.len() == 7, "the answer behind #3 waits");
        replies.answer(ids[3], |out| out.extend_from_slice(b"d"));
        assert_eq!(replies.take().unwrap(), b"d+OK\r\n");
        assert!(replies.is_empty() && replies.late.is_empty() && replies.ready == 0);
        replies.now(Protocol::Resp2, at, |reply| reply.ok());
        let taken = replies.take().unwrap();
        assert_eq!(taken, b"+OK\r\n");
        replies.now(Protocol::Resp2, at, |reply| reply.null());
        assert_eq!(replies.take().unwrap(), b"$-1\r\n");
        assert_eq!((replies.take(), replies.has_output()), (None, false));
    }
}

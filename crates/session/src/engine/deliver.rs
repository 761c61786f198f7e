//! Replies: each finds its asker by its number, and moves it on.
//!
//! What is late (the slot has moved on), doubled (the asker does not wait any more), from the wrong
//! shard or unreadable is counted and ignored: networks repeat and reorder, and no peer may bring
//! the engine down.

use timestone_types::{ShardId, Timestamp, is_planted};
use timestone_wire::{
    self as wire, ClockIs, ClosedIs, Frame, Frames, Message as _, WatermarkIs, WireError,
};

use super::Engine;
use super::number::{self, Asker, Number};
use super::replies::{self, Fault, Reply};
use super::shards::ShardIndex;
use crate::managers::Manager;

impl<M: Manager> Engine<M> {
    /// Takes a run of whole reply frames; each says in its header which shard it comes from.
    ///
    /// # Errors
    /// What could not be read: the connection cannot be trusted further and is to be closed. Frames
    /// before it were taken.
    pub fn deliver_batch(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), WireError> {
        self.context.shards.begin_batch(None);
        let mut frames = Frames::new(bytes);
        for frame in &mut frames {
            let frame = frame.inspect_err(|_| self.context.stats.ignored_replies += 1)?;
            self.deliver_frame(now, frame.envelope().shard, &frame);
        }
        self.context.assert_sound();
        if frames.rest().is_empty() { Ok(()) } else { Err(WireError::Truncated { kind: 0 }) }
    }

    /// Takes one reply that was split off already and came from `shard`, of the batch that
    /// [`crate::Shards::begin_batch`] has begun. Late, doubled and unreadable replies are counted and
    /// ignored.
    pub fn deliver_frame(&mut self, now: Timestamp, shard: ShardId, frame: &Frame<'_>) {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.context.shards.saw_map(frame.envelope().map_version);
        if frame.kind() == wire::Kind::ClockIs {
            self.context.shards.forget_reading();
        }
        let taken = self.context.shards.index_of(shard).and_then(|from| self.take(from, frame));
        // What a server says of itself, and of no shard, concerns nobody here.
        if taken.is_none() && shard != wire::SERVER_ITSELF {
            self.context.stats.ignored_replies += 1;
        }
    }

    #[inline]
    fn take(&mut self, from: ShardIndex, frame: &Frame<'_>) -> Option<()> {
        let context = &mut self.context;
        debug_assert!(from.0 < context.shards.count(), "a frame from a shard without an index");
        let is_older = context.shards.is_of_older_epoch(from, frame.envelope().epoch);
        let is_of_another = context.shards.is_of_another(from);
        let request = frame.envelope().request.get();
        if let Some(peer) = context.shards.peer().filter(|_| context.shards.wants_backups()) {
            context.shards.backups.heard(context.timing.now(), peer, request);
        }
        if !is_older && !is_of_another {
            context.shards.heard(from);
        }
        if frame.kind() == wire::Kind::ClockIs {
            let reading = ClockIs::decode(frame).ok()?;
            context.timing.compare(reading.now);
            context.shards.read(from, reading);
            return Some(());
        }
        if frame.kind() == wire::Kind::ClosedIs {
            let at = ClosedIs::decode(frame).ok()?.at;
            context.shards.closed_is(context.timing.now(), from, at);
            return Some(());
        }
        if frame.kind() == wire::Kind::WatermarkIs {
            let at = WatermarkIs::decode(frame).ok().filter(|_| !is_of_another)?.at;
            context.watermarks.tell(from, at);
            return Some(());
        }
        let reply = replies::read(frame).ok();
        match reply {
            _ if is_of_another => {}
            // Where input waits for its turn, a server refuses without a look at its clock.
            Some(Reply::Fault(Fault::Busy { .. })) => context.shards.refused(from, request),
            Some(Reply::Fault(Fault::NotServing { .. } | Fault::WrongRoute)) => {
                context.shards.refused(from, request);
                context.shards.doubt(from);
            }
            _ => {
                context.shards.answered(from, request);
                if !is_older {
                    context.shards.trust(from);
                }
            }
        }
        let mut reply = reply.filter(Reply::is_of_this_age)?;
        if number::is_ping(request) {
            return Some(());
        }
        let number = Number::unpack(request);
        if is_older && !is_planted!(LateAnswerOfDeposed) {
            reply = reply.in_older_epoch(number.asker)?;
        }
        match number.asker {
            Asker::Read | Asker::Commit => self.manager.deliver(context, from, number, reply),
            Asker::Single => self.singles.deliver(context, from, number, frame, reply),
            // A reply to a report. Only what concerns the whole engine matters.
            Asker::Nobody => {
                if let Reply::Fault(fault) = reply {
                    context.note(&fault);
                }
                Some(())
            }
        }
    }
}

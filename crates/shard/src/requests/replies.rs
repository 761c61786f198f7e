//! Answers of one turn, one open batch of frames per reply address.
//!
//! Everything that a shard says to one connection in one turn leaves as one batch of frames, so
//! that the net stage writes it at once. A batch of frames that has grown to
//! [`REPLY_FRAME_BATCH_BYTES`] leaves early. Large ones count in the process's memory for answers
//! until they arrive.
//!
//! Each begins with a reading of the server's clock (docs/protocol/time.md, "Readings of the
//! server's clock"). It is taken when the batch of frames leaves: the turn's time would not do, for
//! a request that was sent after the turn began may be answered in it. One reading serves all
//! batches of frames that leave together; it goes into a frame that has its place from the start,
//! so that nothing is allocated or moved for it.

use std::sync::Arc;

use timestone_clock::Clock;
use timestone_seda::{Charge, FrameBatch, Memory, MemoryUse, ReplyAddress};
use timestone_wire::{ClockIs, Envelope};

use crate::limits::{CHARGED_VALUE_BYTES, REPLY_FRAME_BATCH_BYTES};
use crate::turn::{Output, Turn};

/// The open batches of frames of a stage.
pub(crate) struct Replies {
    open: Vec<(ReplyAddress, Vec<u8>, Option<Charge>)>,
    memory: Arc<Memory>,
    clock: Arc<dyn Clock>,
    // Of the frame at the front of every batch of frames.
    envelope: Envelope,
    // Reply addresses come in runs: most lookups are answered by the last one used.
    last: usize,
}

impl Replies {
    /// Of the shard that `envelope` names, by `clock`.
    pub(crate) const fn new(
        memory: Arc<Memory>,
        clock: Arc<dyn Clock>,
        envelope: Envelope,
    ) -> Self {
        Self { open: Vec::new(), memory, clock, envelope, last: 0 }
    }

    /// Another epoch or map is told from now on.
    pub(crate) fn set_envelope(&mut self, envelope: Envelope) {
        assert!(self.envelope.shard == envelope.shard, "a shard keeps its number");
        self.envelope = envelope;
    }

    /// Whether a value, or a page of keys, of this length may be answered now; counts it, if it is large, until the
    /// answer has arrived. Short ones are bounded by the requests that ask for them.
    #[inline]
    pub(crate) fn has_room(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        bytes: usize,
    ) -> bool {
        if bytes < CHARGED_VALUE_BYTES {
            return true;
        }
        if !self.memory.has_room(MemoryUse::Output, bytes as u64) {
            self.memory.note_refused(MemoryUse::Output);
            return false;
        }
        let memory = Arc::clone(&self.memory);
        let _ = self.buffer(ctx, reply_to);
        debug_assert_eq!(self.open[self.last].0, reply_to, "it counts where it is answered");
        let charge = &mut self.open[self.last].2;
        match charge {
            Some(charge) => charge.set(charge.bytes() + bytes as u64),
            none => *none = Some(memory.charge(MemoryUse::Output, bytes as u64)),
        }
        true
    }

    /// The buffer in which the answer to `reply_to` is to be written.
    pub(crate) fn buffer(&mut self, ctx: &mut Turn<'_>, reply_to: ReplyAddress) -> &mut Vec<u8> {
        let found = match self.open.get(self.last) {
            Some((open, ..)) if *open == reply_to => Some(self.last),
            _ => self.open.iter().position(|(open, ..)| *open == reply_to),
        };
        self.last = match found {
            Some(index) => {
                if self.open[index].1.len() >= REPLY_FRAME_BATCH_BYTES {
                    let next = self.begin(ctx);
                    let mut full = std::mem::replace(&mut self.open[index].1, next);
                    let charge = self.open[index].2.take();
                    reading(&*self.clock).fill(&mut full);
                    Self::ship(ctx, FrameBatch { charge, ..FrameBatch::new(reply_to, full) });
                }
                index
            }
            None => {
                let first = self.begin(ctx);
                self.open.push((reply_to, first, None));
                self.open.len() - 1
            }
        };
        &mut self.open[self.last].1
    }

    /// What was written last was counted by whoever had it: the batch of frames counts it from now
    /// on, until it has arrived.
    pub(crate) fn count(&mut self, charge: Option<Charge>) {
        debug_assert!(self.last < self.open.len(), "an answer was written before");
        let (Some(charge), Some((.., own))) = (charge, self.open.get_mut(self.last)) else {
            return;
        };
        match own {
            Some(own) => own.set(own.bytes() + charge.bytes()),
            none => *none = Some(charge),
        }
    }

    /// Sends every open batch of frames.
    pub(crate) fn flush(&mut self, ctx: &mut Turn<'_>) {
        let mut open = std::mem::take(&mut self.open);
        let reading = (!open.is_empty()).then(|| reading(&*self.clock));
        for (reply_to, mut bytes, charge) in open.drain(..) {
            debug_assert!(bytes.len() >= ClockIs::FIXED_BYTES, "a reading comes first");
            if bytes.len() <= ClockIs::FIXED_BYTES {
                ctx.buffers.give(bytes);
            } else {
                reading.iter().for_each(|reading| reading.fill(&mut bytes));
                Self::ship(ctx, FrameBatch { charge, ..FrameBatch::new(reply_to, bytes) });
            }
        }
        self.open = open;
        self.last = 0;
    }

    /// Whether everything has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The buffer of another batch of frames.
    fn begin(&self, ctx: &mut Turn<'_>) -> Vec<u8> {
        let mut bytes = ctx.buffers.take();
        ClockIs::begin(&self.envelope, &mut bytes);
        debug_assert_eq!(bytes.len(), ClockIs::FIXED_BYTES, "a reading comes first");
        bytes
    }

    fn ship(ctx: &mut Turn<'_>, mut frame_batch: FrameBatch) {
        debug_assert!(
            frame_batch.bytes.len() > ClockIs::FIXED_BYTES,
            "an answer comes behind the reading"
        );
        // It was counted by its values; the buffer may have grown beyond them.
        let memory = frame_batch.bytes.capacity() as u64;
        if let Some(charge) = &mut frame_batch.charge {
            charge.set(memory.max(charge.bytes()));
        }
        ctx.send(Output::Answer(frame_batch));
    }
}

/// What a batch of replies that leaves now is told of the clock.
pub fn reading(clock: &dyn Clock) -> ClockIs {
    let error = clock.error_bound();
    let now = clock.now();
    #[cfg(feature = "planted-bugs")]
    let now = timestone_types::planted::read_clock(now);
    ClockIs::new(now, error.synchronised.then_some(error.bound))
}

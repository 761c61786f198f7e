//! Answers of one turn, one open parcel per origin.
//!
//! Everything that a shard says to one connection in one turn leaves as one parcel, so that the net stage writes it at once.
//! A parcel that has grown to [`REPLY_PARCEL_BYTES`] leaves early. Large ones count in the process's memory for answers until they arrive.

use std::collections::VecDeque;
use std::sync::Arc;

use timestone_seda::{Charge, Context, Memory, MemoryUse, Origin, Parcel};

use crate::event::Event;
use crate::limits::{CHARGED_VALUE_BYTES, REPLY_PARCEL_BYTES};

/// The open parcels of a stage.
pub(crate) struct Replies {
    open: Vec<(Origin, Vec<u8>, Option<Charge>)>,
    memory: Arc<Memory>,
    // Origins come in runs: most lookups are answered by the last one used.
    last: usize,
    unsent: VecDeque<Parcel>,
}

impl Replies {
    pub(crate) const fn new(memory: Arc<Memory>) -> Self {
        Self { open: Vec::new(), memory, last: 0, unsent: VecDeque::new() }
    }

    /// Whether a value of this length may be answered now; counts it, if it is large, until the answer has arrived. Short ones are bounded by the
    /// requests that ask for them.
    #[inline]
    pub(crate) fn has_room(&mut self, ctx: &mut Context<'_, Event>, origin: Origin, bytes: usize) -> bool {
        if bytes < CHARGED_VALUE_BYTES {
            return true;
        }
        if !self.memory.has_room(MemoryUse::Output, bytes as u64) {
            self.memory.note_refused(MemoryUse::Output);
            return false;
        }
        let memory = Arc::clone(&self.memory);
        let _ = self.buffer(ctx, origin);
        let charge = &mut self.open[self.last].2;
        match charge {
            Some(charge) => charge.set(charge.bytes() + bytes as u64),
            none => *none = Some(memory.charge(MemoryUse::Output, bytes as u64)),
        }
        true
    }

    /// The buffer in which the answer to `origin` is to be written.
    pub(crate) fn buffer(&mut self, ctx: &mut Context<'_, Event>, origin: Origin) -> &mut Vec<u8> {
        let found = match self.open.get(self.last) {
            Some((open, ..)) if *open == origin => Some(self.last),
            _ => self.open.iter().position(|(open, ..)| *open == origin),
        };
        self.last = match found {
            Some(index) => {
                if self.open[index].1.len() >= REPLY_PARCEL_BYTES {
                    let full = std::mem::replace(&mut self.open[index].1, ctx.take_buffer());
                    let charge = self.open[index].2.take();
                    self.ship(ctx, Parcel { charge, ..Parcel::new(origin, full) });
                }
                index
            }
            None => {
                self.open.push((origin, ctx.take_buffer(), None));
                self.open.len() - 1
            }
        };
        &mut self.open[self.last].1
    }

    /// Sends every open parcel.
    pub(crate) fn flush(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some(parcel) = self.unsent.pop_front() {
            if let Err(parcel) = send(ctx, parcel) {
                self.unsent.push_front(parcel);
                break;
            }
        }
        let mut open = std::mem::take(&mut self.open);
        for (origin, bytes, charge) in open.drain(..) {
            if bytes.is_empty() {
                ctx.give_buffer(bytes);
            } else {
                self.ship(ctx, Parcel { charge, ..Parcel::new(origin, bytes) });
            }
        }
        self.open = open;
        self.last = 0;
        if !self.unsent.is_empty() {
            ctx.want_turn();
        }
    }

    /// Whether everything has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.unsent.is_empty()
    }

    fn ship(&mut self, ctx: &mut Context<'_, Event>, parcel: Parcel) {
        if !self.unsent.is_empty() {
            self.unsent.push_back(parcel);
        } else if let Err(parcel) = send(ctx, parcel) {
            self.unsent.push_back(parcel);
            ctx.want_turn();
        }
    }
}

fn send(ctx: &mut Context<'_, Event>, parcel: Parcel) -> Result<(), Parcel> {
    let to = parcel.origin.stage;
    ctx.send(to, Event::Parcel(parcel)).map_err(|event| match event {
        Event::Parcel(parcel) => parcel,
        other => unreachable!("a queue gives back what it was given, not {other:?}"),
    })
}

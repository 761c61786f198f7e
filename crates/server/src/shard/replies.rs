//! Answers of one turn, one open parcel per origin.
//!
//! Everything that a shard says to one connection in one turn leaves as one parcel, so that the net stage writes it at once.
//! A parcel that has grown to [`REPLY_PARCEL_BYTES`] leaves early.

use std::collections::VecDeque;

use timestone_seda::{Context, Origin, Parcel};

use crate::event::Event;
use crate::limits::REPLY_PARCEL_BYTES;

/// The open parcels of a stage.
#[derive(Default)]
pub(crate) struct Replies {
    open: Vec<(Origin, Vec<u8>)>,
    // Origins come in runs: most lookups are answered by the last one used.
    last: usize,
    unsent: VecDeque<Parcel>,
}

impl Replies {
    /// The buffer in which the answer to `origin` is to be written.
    pub(crate) fn buffer(&mut self, ctx: &mut Context<'_, Event>, origin: Origin) -> &mut Vec<u8> {
        let found = match self.open.get(self.last) {
            Some((open, _)) if *open == origin => Some(self.last),
            _ => self.open.iter().position(|(open, _)| *open == origin),
        };
        self.last = match found {
            Some(index) => {
                if self.open[index].1.len() >= REPLY_PARCEL_BYTES {
                    let full = std::mem::replace(&mut self.open[index].1, ctx.take_buffer());
                    self.ship(ctx, Parcel::new(origin, full));
                }
                index
            }
            None => {
                self.open.push((origin, ctx.take_buffer()));
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
        for (origin, bytes) in open.drain(..) {
            if bytes.is_empty() {
                ctx.give_buffer(bytes);
            } else {
                self.ship(ctx, Parcel::new(origin, bytes));
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

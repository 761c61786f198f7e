//! Events that a full stage refused, kept in order until it takes them.
//!
//! Invariant: per destination, what is sent through the retry queue arrives in the order in which it
//! was sent: once something waits for a stage, everything after it waits behind it. So a
//! connection's opening comes before its batches of frames, its end after them. What waits is
//! bounded, since a connection with something here is not read from.

use std::collections::VecDeque;

use crate::{Context, StageId};

/// A connection slot in one of its uses.
pub(super) type Holder = (u32, u32);

/// See the module.
#[derive(Debug)]
pub(super) struct RetryQueue<E> {
    queues: Vec<Queue<E>>,
}

#[derive(Debug)]
struct Queue<E> {
    to: StageId,
    events: VecDeque<(E, Option<Holder>)>,
}

impl<E> RetryQueue<E> {
    pub(super) const fn new() -> Self {
        Self { queues: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Sends, or keeps. Whether it was sent; otherwise `holder` comes back from [`RetryQueue::pump`]
    /// when it is.
    pub(super) fn send(
        &mut self,
        ctx: &mut Context<'_, E>,
        to: StageId,
        event: E,
        holder: Option<Holder>,
    ) -> bool {
        if !self.queues.is_empty()
            && let Some(queue) = self.queues.iter_mut().find(|queue| queue.to == to)
        {
            queue.events.push_back((event, holder));
            return false;
        }
        match ctx.send(to, event) {
            Ok(()) => true,
            Err(event) => {
                self.queues.push(Queue { to, events: VecDeque::from([(event, holder)]) });
                false
            }
        }
    }

    /// Tries again; `delivered` is told each holder whose event was sent.
    pub(super) fn pump(&mut self, ctx: &mut Context<'_, E>, mut delivered: impl FnMut(Holder)) {
        self.queues.retain_mut(|queue| {
            while let Some((event, holder)) = queue.events.pop_front() {
                if let Err(event) = ctx.send(queue.to, event) {
                    queue.events.push_front((event, holder));
                    return true;
                }
                if let Some(holder) = holder {
                    delivered(holder);
                }
            }
            false
        });
    }
}

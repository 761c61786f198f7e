//! What a stage sends, in order, when the queues of others may be full.

use std::collections::VecDeque;

use timestone_seda::{Context, StageId};

use crate::event::Event;

/// Events that a full queue did not take; nothing overtakes them.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<(StageId, Event)>,
}

impl Outgoing {
    /// Sends an event, behind those that wait.
    pub(crate) fn send(&mut self, ctx: &mut Context<'_, Event>, to: StageId, event: Event) {
        if !self.waiting.is_empty() {
            self.waiting.push_back((to, event));
        } else if let Err(event) = ctx.send(to, event) {
            self.waiting.push_back((to, event));
        }
        if !self.waiting.is_empty() {
            ctx.want_turn();
        }
    }

    /// Sends what waits, as far as there is room now. Once a turn.
    pub(crate) fn send_again(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some((to, event)) = self.waiting.pop_front() {
            if let Err(event) = ctx.send(to, event) {
                self.waiting.push_front((to, event));
                return ctx.want_turn();
            }
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

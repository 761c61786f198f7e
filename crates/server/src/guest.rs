//! A guest among the server's stages, counted for the shards: they close their stores only when
//! none is left that may write.
//!
//! Guests end by themselves after the begin of a shutdown, once what they have under way has ended.
//! This says nothing of what they are.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use timestone_seda::{Context, Readiness, Stage};
use timestone_types::Timestamp;

use crate::assembly::Guest;
use crate::event::Event;
use timestone_shard::gauges::ShardGauges;

/// A guest that the shards wait for when the process ends.
pub(crate) struct CountedGuest {
    guest: Guest,
    shards: Arc<[Arc<ShardGauges>]>,
    has_ended: bool,
}

impl CountedGuest {
    pub(crate) fn new(guest: Guest, shards: Arc<[Arc<ShardGauges>]>) -> Self {
        shards.iter().for_each(|shard| _ = shard.writers.fetch_add(1, Ordering::AcqRel));
        Self { guest, shards, has_ended: false }
    }

    fn look(&mut self, ctx: &Context<'_, Event>) {
        if !self.has_ended && ctx.is_shutting_down() && self.guest.drained() {
            self.end();
        }
    }

    /// It has sent its last frame.
    fn end(&mut self) {
        self.has_ended = true;
        self.shards.iter().for_each(|shard| _ = shard.writers.fetch_sub(1, Ordering::AcqRel));
    }
}

impl Stage<Event> for CountedGuest {
    fn name(&self) -> &str {
        self.guest.name()
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.guest.start(ctx);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.guest.handle(ctx, events);
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.guest.turn(ctx);
        self.look(ctx);
    }

    fn flush(&mut self, ctx: &mut Context<'_, Event>) {
        self.guest.flush(ctx);
    }

    fn ready(&mut self, ctx: &mut Context<'_, Event>, ready: &[Readiness]) {
        self.guest.ready(ctx, ready);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.guest.next_deadline()
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.guest.wake_fd()
    }

    fn drained(&self) -> bool {
        self.guest.drained()
    }
}

//! An embedded client among the server's stages, counted for the shards: they close their stores
//! only when none is left that may write.
//!
//! Embedded clients end by themselves after the begin of a shutdown, once what they have under way
//! has ended. This says nothing of what they are.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use timestone_seda::{Context, Readiness, Stage};
use timestone_types::Timestamp;

use crate::assembly::EmbeddedClient;
use crate::event::Event;
use timestone_shard::gauges::ShardGauges;

/// An embedded client that the shards wait for when the process ends.
pub(crate) struct CountedClient {
    embedded_client: EmbeddedClient,
    shards: Arc<[Arc<ShardGauges>]>,
    has_ended: bool,
}

impl CountedClient {
    pub(crate) fn new(embedded_client: EmbeddedClient, shards: Arc<[Arc<ShardGauges>]>) -> Self {
        shards.iter().for_each(|shard| _ = shard.writers.fetch_add(1, Ordering::AcqRel));
        Self { embedded_client, shards, has_ended: false }
    }

    fn look(&mut self, ctx: &Context<'_, Event>) {
        if !self.has_ended && ctx.is_shutting_down() && self.embedded_client.drained() {
            self.end();
        }
    }

    /// It has sent its last frame.
    fn end(&mut self) {
        self.has_ended = true;
        self.shards.iter().for_each(|shard| _ = shard.writers.fetch_sub(1, Ordering::AcqRel));
    }
}

impl Stage<Event> for CountedClient {
    fn name(&self) -> &str {
        self.embedded_client.name()
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.embedded_client.start(ctx);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.embedded_client.handle(ctx, events);
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.embedded_client.turn(ctx);
        self.look(ctx);
    }

    fn flush(&mut self, ctx: &mut Context<'_, Event>) {
        self.embedded_client.flush(ctx);
    }

    fn ready(&mut self, ctx: &mut Context<'_, Event>, ready: &[Readiness]) {
        self.embedded_client.ready(ctx, ready);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.embedded_client.next_deadline()
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.embedded_client.wake_fd()
    }

    fn drained(&self) -> bool {
        self.embedded_client.drained()
    }
}

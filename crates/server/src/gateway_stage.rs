//! The stage of one gateway: it hands the gateway what comes, carries out what the gateway wants,
//! and keeps what finds no room.
//!
//! ```text
//!   RESP net ── bytes ──► GatewayStage ─► Gateway ─► outputs ─┬─► shard stages, the node stage
//!            ◄────────────────────────────── answers ─────────┤
//!                                                              └─► native net: dials, frames for other servers
//! ```
//! Deliberately absent: everything that a gateway does; see `timestone-gateway`.

use std::collections::VecDeque;

use timestone_gateway::{Gateway, Input, Output, Turn};
use timestone_seda::{Context, FrameBatch, Stage, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wire::count_frames;

use crate::event::Event;
use crate::outgoing::Outgoing;

/// See the module.
pub(crate) struct GatewayStage {
    name: String,
    core: Gateway,
    node: StageId,
    shards: Vec<(ShardId, StageId)>,
    /// Emptied by every call.
    outputs: Vec<Output>,
    outgoing: Outgoing,
}

impl GatewayStage {
    /// The stage of the gateway of a thread, with the shards of its process.
    pub(crate) fn new(
        thread: usize,
        core: Gateway,
        node: StageId,
        shards: Vec<(ShardId, StageId)>,
    ) -> Self {
        Self {
            name: format!("gateway-{thread}"),
            core,
            node,
            shards,
            outputs: Vec::new(),
            outgoing: Outgoing::default(),
        }
    }

    /// Calls the gateway, and carries out what it wants.
    fn call(
        &mut self,
        ctx: &mut Context<'_, Event>,
        run: impl FnOnce(&mut Gateway, &mut Turn<'_>),
    ) {
        let (now, stage, ends) = (ctx.now(), ctx.stage(), ctx.is_shutting_down());
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut turn = Turn::new(now, ctx.frame_batches(), &mut outputs)
            .shutting_down(ends)
            .with_unsent(!self.outgoing.is_empty());
        run(&mut self.core, &mut turn);
        let (wants_turn, (requests, bytes)) = (turn.wants_turn(), turn.released());
        if wants_turn {
            ctx.want_turn();
        }
        if requests > 0 || bytes > 0 {
            ctx.gauge(stage).release(requests, bytes);
        }
        for output in outputs.drain(..) {
            self.carry_out(ctx, output);
        }
        self.outputs = outputs;
    }

    fn carry_out(&mut self, ctx: &mut Context<'_, Event>, output: Output) {
        match output {
            Output::Answer(frame_batch) | Output::ToServer(frame_batch) => {
                self.outgoing.send(ctx, frame_batch.reply_to.stage, Event::FrameBatch(frame_batch))
            }
            Output::ToShard { shard, frame_batch } => self.send_to_shard(ctx, shard, frame_batch),
            Output::Called(shard) => {
                if let Some(&(_, stage)) = self.shards.iter().find(|(id, _)| *id == shard) {
                    self.outgoing.send(ctx, stage, Event::Wake);
                }
            }
            Output::ToNode(frame_batch) => {
                self.outgoing.send(ctx, self.node, Event::FrameBatch(frame_batch))
            }
            Output::Net { to, command } => self.outgoing.send(ctx, to, Event::NetCommand(command)),
        }
    }

    fn send_to_shard(
        &mut self,
        ctx: &mut Context<'_, Event>,
        shard: ShardId,
        mut frame_batch: FrameBatch,
    ) {
        let Some(&(_, to)) = self.shards.iter().find(|(id, _)| *id == shard) else {
            debug_assert!(false, "{shard} is not of this process");
            return;
        };
        // The shard releases what it has dealt with, frame by frame: as much must be counted in.
        if ctx.gauge(to).is_limited() {
            frame_batch.frames = count_frames(&frame_batch.bytes);
            ctx.gauge(to).admit(u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
        }
        self.outgoing.send(ctx, to, Event::FrameBatch(frame_batch));
    }
}

/// What of the events is for a gateway.
fn input_of(event: Event) -> Option<Input> {
    match event {
        Event::FrameBatch(frame_batch) => Some(Input::FrameBatch(frame_batch)),
        Event::Net(event) => Some(Input::Net(event)),
        Event::MapChanged(map) => Some(Input::MapChanged(map)),
        other => {
            debug_assert!(false, "the gateway was sent an event that is not for it: {other:?}");
            None
        }
    }
}

impl Stage<Event> for GatewayStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.call(ctx, Gateway::start);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.call(ctx, |core, turn| {
            for event in events.drain(..) {
                if let Some(input) = input_of(event) {
                    core.input(turn, input);
                }
            }
        });
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.outgoing.send_again(ctx);
        self.call(ctx, Gateway::turn);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.core.next_deadline()
    }

    fn drained(&self) -> bool {
        self.outgoing.is_empty() && self.core.is_drained()
    }
}

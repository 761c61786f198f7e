//! A host of gateways for tests: the stage that a server has, without queues that are ever full.

use std::collections::VecDeque;
use std::sync::Arc;

use timestone_cluster::ShardMap;
use timestone_seda::{Context, FrameBatch, NetCommand, NetEvent, Stage, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wire::count_frames;

use crate::{Gateway, Input, Output, Turn};

/// What stages of a test tell each other.
#[derive(Debug)]
pub(super) enum Event {
    FrameBatch(FrameBatch),
    Net(NetEvent),
    NetCommand(NetCommand),
    MapChanged(Arc<ShardMap>),
}

/// See the module.
pub(super) struct GatewayStage {
    pub(super) core: Gateway,
    pub(super) node: StageId,
    pub(super) shards: Vec<(ShardId, StageId)>,
}

impl GatewayStage {
    fn call(
        &mut self,
        ctx: &mut Context<'_, Event>,
        run: impl FnOnce(&mut Gateway, &mut Turn<'_>),
    ) {
        let (now, stage, ends) = (ctx.now(), ctx.stage(), ctx.is_shutting_down());
        let mut outputs = Vec::new();
        let mut turn = Turn::new(now, ctx.frame_batches(), &mut outputs).shutting_down(ends);
        run(&mut self.core, &mut turn);
        let (wants_turn, (requests, bytes)) = (turn.wants_turn(), turn.released());
        if wants_turn {
            ctx.want_turn();
        }
        ctx.gauge(stage).release(requests, bytes);
        for output in outputs {
            let (to, event) = match output {
                Output::Answer(frame_batch) | Output::ToServer(frame_batch) => {
                    (frame_batch.reply_to.stage, Event::FrameBatch(frame_batch))
                }
                Output::ToShard { shard, mut frame_batch } => {
                    let found = self.shards.iter().find(|(id, _)| *id == shard);
                    let to = found.map_or(self.node, |(_, stage)| *stage);
                    frame_batch.frames = count_frames(&frame_batch.bytes);
                    ctx.gauge(to)
                        .admit(u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
                    (to, Event::FrameBatch(frame_batch))
                }
                Output::Called(_) => continue,
                Output::ToNode(frame_batch) => (self.node, Event::FrameBatch(frame_batch)),
                Output::Net { to, command } => (to, Event::NetCommand(command)),
            };
            assert!(ctx.send(to, event).is_ok(), "room in a test's queue");
        }
    }
}

impl Stage<Event> for GatewayStage {
    fn name(&self) -> &str {
        "gateway"
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.call(ctx, Gateway::start);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.call(ctx, |gateway, turn| {
            for event in events.drain(..) {
                let input = match event {
                    Event::FrameBatch(frame_batch) => Input::FrameBatch(frame_batch),
                    Event::Net(event) => Input::Net(event),
                    Event::MapChanged(map) => Input::MapChanged(map),
                    Event::NetCommand(command) => panic!("{command:?} is for net stages"),
                };
                gateway.input(turn, input);
            }
        });
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.call(ctx, Gateway::turn);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.core.next_deadline()
    }

    fn drained(&self) -> bool {
        self.core.is_drained()
    }
}

//! The stage of one shard: it hands the shard what comes, carries out what the shard wants, and
//! keeps what finds no room.
//!
//! ```text
//!   events ─► Shard ─► outputs ─► net stages, log stages, stages of other shards
//!                         └─ a queue is full ─► unsent ─► sent in a later turn, in order
//! ```
//! The gateway of the same thread may call the shard between two of its events, and has it get a
//! turn afterwards (`Event::Wake`).
//!
//! Deliberately absent: everything that a shard does; see `timestone-shard`.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use timestone_seda::{Context, Stage, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wire::Calls;

use crate::event::Event;
use crate::outgoing::Outgoing;
use crate::shard_call;
use crate::shared_shard::SharedShard;
use timestone_shard::{Input, Output, Shard, Turn};

/// See the module.
pub(crate) struct ShardStage {
    name: String,
    shard: SharedShard,
    /// Emptied by every call.
    outputs: Vec<Output>,
    outgoing: Outgoing,
    /// Calls with their answers; emptied by every call.
    called: Vec<(StageId, Box<Calls>)>,
}

impl ShardStage {
    /// The stage of the shard with this id.
    pub(crate) fn new(id: ShardId, shard: SharedShard) -> Self {
        Self {
            name: format!("shard-{id}"),
            shard,
            outputs: Vec::new(),
            outgoing: Outgoing::default(),
            called: Vec::new(),
        }
    }

    /// Calls the shard, and carries out what it wants.
    fn call(&mut self, ctx: &mut Context<'_, Event>, run: impl FnOnce(&mut Shard, &mut Turn<'_>)) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let has_unsent = !self.outgoing.is_empty();
        shard_call::call(ctx, &mut self.shard.get(), (has_unsent, false), &mut outputs, run);
        for output in outputs.drain(..) {
            self.carry_out(ctx, output);
        }
        self.outputs = outputs;
    }

    fn carry_out(&mut self, ctx: &mut Context<'_, Event>, output: Output) {
        match shard_call::send(ctx, &mut self.outgoing, &self.name, output) {
            Some(Output::LogAppend { log, append }) => {
                self.outgoing.send(ctx, log, Event::LogAppend(append))
            }
            Some(Output::LogRelease { log, shard, keep_from }) => {
                self.outgoing.send(ctx, log, Event::LogRelease { shard, keep_from });
            }
            Some(Output::Answer(_) | Output::ToPeer { .. }) | None => {}
        }
    }
}

/// What of the events is for a shard.
fn input_of(event: Event) -> Option<Input> {
    Some(match event {
        Event::FrameBatch(frame_batch) => Input::FrameBatch(frame_batch),
        Event::LogDurable { batch } => Input::LogDurable { batch },
        Event::LogRetained { log, from } => Input::LogRetained { log, from },
        Event::LogCopyForward { below } => Input::LogCopyForward { below },
        Event::LogRoom { log, shortage } => Input::LogRoom { log, shortage },
        Event::LogFailed { log } => Input::LogFailed { log },
        Event::MapChanged(map) => Input::MapChanged(map),
        Event::Net(_)
        | Event::NetCommand(_)
        | Event::LogAppend(_)
        | Event::LogRelease { .. }
        | Event::ConfigurationsChanged(_)
        | Event::HandOver { .. }
        | Event::Calls { .. }
        | Event::Wake => return None,
    })
}

impl Stage<Event> for ShardStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.call(ctx, Shard::start);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        let mut called = std::mem::take(&mut self.called);
        self.call(ctx, |core, turn| {
            core.begin_inputs(turn);
            for event in events.drain(..) {
                if let Event::Calls { reply_to, mut calls } = event {
                    core.call(turn.now(), &mut calls);
                    called.push((reply_to, calls));
                } else if let Some(input) = input_of(event) {
                    core.input(turn, input);
                }
            }
        });
        for (reply_to, calls) in called.drain(..) {
            self.outgoing.send(ctx, reply_to, Event::Calls { reply_to, calls });
        }
        self.called = called;
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.outgoing.send_again(ctx);
        self.call(ctx, Shard::turn);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.shard.get().next_deadline()
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.shard.get().wake_fd()
    }

    fn drained(&self) -> bool {
        self.outgoing.is_empty() && self.shard.get().is_drained()
    }
}

//! A host of shards for tests: the stage that a server has, without queues that are ever full.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use timestone_cluster::ShardMap;
use timestone_seda::{Context, FrameBatch, Stage};
use timestone_types::{ShardId, Timestamp};
use timestone_wal::BatchNumber;

use crate::checkpoint::{CheckpointPart, PartAsk};
use crate::{Input, LogAppend, Output, Shard, Turn};

/// What shards hear and say.
#[derive(Debug)]
pub(crate) enum Event {
    /// To a shard, or an answer of it.
    FrameBatch(FrameBatch),
    LogAppend(LogAppend),
    LogDurable {
        batch: BatchNumber,
    },
    LogRelease {
        shard: ShardId,
        keep_from: BatchNumber,
    },
    LogRetained {
        log: timestone_seda::StageId,
        from: BatchNumber,
    },
    LogFailed {
        log: timestone_seda::StageId,
    },
    /// The log wants to let go of what is below.
    LogCopyForward {
        below: BatchNumber,
    },
    /// A replica asks for a part of a checkpoint.
    AskPart(PartAsk),
    #[expect(dead_code, reason = "no test changes the map yet")]
    MapChanged(std::sync::Arc<ShardMap>),
    /// Nothing: a turn is wanted.
    Wake,
}

/// See the module.
pub(crate) struct TestStage(pub(crate) Shard);

impl TestStage {
    fn call(&mut self, ctx: &mut Context<'_, Event>, run: impl FnOnce(&mut Shard, &mut Turn<'_>)) {
        let (now, stage, ends) = (ctx.now(), ctx.stage(), ctx.is_shutting_down());
        let mut outputs = Vec::new();
        let mut turn = Turn::new(now, stage, ctx.frame_batches(), &mut outputs).shutting_down(ends);
        run(&mut self.0, &mut turn);
        for output in outputs {
            let (to, event) = match output {
                Output::Answer(frame_batch) => {
                    (frame_batch.reply_to.stage, Event::FrameBatch(frame_batch))
                }
                Output::ToPeer { to, frame_batch } => (to, Event::FrameBatch(frame_batch)),
                Output::LogAppend { log, append } => (log, Event::LogAppend(append)),
                Output::LogRelease { log, shard, keep_from } => {
                    (log, Event::LogRelease { shard, keep_from })
                }
            };
            ctx.send(to, event).expect("room in a test's queue");
        }
    }
}

/// A stage whose shard can be taken out again.
#[derive(Clone)]
pub(crate) struct Removable(Arc<Mutex<Option<TestStage>>>);

impl Removable {
    pub(crate) fn new(shard: Shard) -> Self {
        Self(Arc::new(Mutex::new(Some(TestStage(shard)))))
    }

    /// The shard; the stage is not called any more.
    pub(crate) fn take(&self) -> Shard {
        self.0.lock().unwrap().take().expect("it is taken once").0
    }

    /// A part of a checkpoint that is to be sent.
    pub(crate) fn take_part(&self) -> Option<CheckpointPart> {
        self.with(|stage| stage.0.take_part())
    }

    fn with<T>(&self, run: impl FnOnce(&mut TestStage) -> T) -> T {
        run(self.0.lock().unwrap().as_mut().expect("it was not taken out"))
    }
}

impl Stage<Event> for Removable {
    fn name(&self) -> &str {
        "removable shard"
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.with(|stage| stage.start(ctx));
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.with(|stage| stage.handle(ctx, events));
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.with(|stage| stage.turn(ctx));
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.with(|stage| stage.next_deadline())
    }

    fn drained(&self) -> bool {
        self.with(|stage| stage.drained())
    }
}

impl Stage<Event> for TestStage {
    fn name(&self) -> &str {
        "shard"
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.call(ctx, Shard::start);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.call(ctx, |shard, turn| {
            shard.begin_inputs(turn);
            for event in events.drain(..) {
                let input = match event {
                    Event::AskPart(ask) => {
                        shard.ask_part(turn, ask);
                        continue;
                    }
                    Event::FrameBatch(frame_batch) => Input::FrameBatch(frame_batch),
                    Event::LogDurable { batch } => Input::LogDurable { batch },
                    Event::LogRetained { log, from } => Input::LogRetained { log, from },
                    Event::LogCopyForward { below } => Input::LogCopyForward { below },
                    Event::LogFailed { log } => Input::LogFailed { log },
                    Event::MapChanged(map) => Input::MapChanged(map),
                    Event::LogAppend(_) | Event::LogRelease { .. } | Event::Wake => continue,
                };
                shard.input(turn, input);
            }
        });
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.call(ctx, Shard::turn);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.0.next_deadline()
    }

    fn drained(&self) -> bool {
        self.0.is_drained()
    }
}

//! A stage's call of a shard, and what the shard wants sent: the same for a shard with one copy and
//! for the primary of several.

use timestone_seda::Context;
use timestone_shard::{Output, Shard, Turn};

use crate::event::Event;
use crate::outgoing::Outgoing;

/// Calls a shard; `outputs` is empty before, and has what the shard wants done after it.
/// `has_unsent`: something that it wanted sent waits for room. `is_log_busy`: its log writes what it
/// was given before.
pub(crate) fn call(
    ctx: &mut Context<'_, Event>,
    shard: &mut Shard,
    (has_unsent, is_log_busy): (bool, bool),
    outputs: &mut Vec<Output>,
    run: impl FnOnce(&mut Shard, &mut Turn<'_>),
) {
    let (now, stage, ends) = (ctx.now(), ctx.stage(), ctx.is_shutting_down());
    let mut turn = Turn::new(now, stage, ctx.frame_batches(), outputs)
        .shutting_down(ends)
        .with_unsent(has_unsent)
        .with_busy_log(is_log_busy);
    run(shard, &mut turn);
    let (requests, bytes) = turn.finished();
    if requests > 0 {
        ctx.gauge(stage).release(requests, bytes);
    }
}

/// Sends what goes to clients and to other shards; what is for a log is given back. `name` is the
/// stage's.
pub(crate) fn send(
    ctx: &mut Context<'_, Event>,
    outgoing: &mut Outgoing,
    name: &str,
    output: Output,
) -> Option<Output> {
    match output {
        Output::Answer(frame_batch) => {
            outgoing.send(ctx, frame_batch.reply_to.stage, Event::FrameBatch(frame_batch));
            None
        }
        Output::ToPeer { to, frame_batch } => {
            if ctx.send(to, Event::FrameBatch(frame_batch)).is_err() {
                tracing::debug!(shard = name, %to, "a message to another shard found its queue \
                    full");
            }
            None
        }
        for_log @ (Output::LogAppend { .. } | Output::LogRelease { .. }) => Some(for_log),
    }
}

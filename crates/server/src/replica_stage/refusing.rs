//! What whoever hears that asks a server for a shard that it does not serve.

use timestone_seda::{Context, FrameBatch};
use timestone_wire::{Envelope, ErrorCode, ErrorReply, Frames, Kind, Message, RequestId};

use super::ReplicaStage;
use crate::event::Event;
use crate::limits::NOT_SERVING_RETRY_AFTER;

impl ReplicaStage {
    /// Answers each request that it is to be asked elsewhere, or later.
    pub(super) fn refuse(&mut self, ctx: &mut Context<'_, Event>, frame_batch: FrameBatch) {
        let reply_to = frame_batch.reply_to;
        let epoch = self.map.epoch(self.shard).unwrap_or_default();
        let is_elsewhere = self.map.primary(self.shard).is_none_or(|own| own.id != self.server);
        let mut out = ctx.take_buffer();
        for frame in Frames::new(&frame_batch.bytes) {
            let Ok(frame) = frame else { break };
            let envelope = frame.envelope();
            if frame.kind().is_reply()
                || frame.kind() == Kind::Report
                || envelope.request == RequestId::NONE
            {
                continue;
            }
            let envelope = Envelope { epoch, map_version: self.map.version(), ..*envelope };
            if is_elsewhere {
                let words = format!(
                    "shard {} is not served by this server; fetch the shard map again",
                    self.shard
                );
                ErrorReply::new(ErrorCode::WrongShard, &words).encode(&envelope, &mut out);
            } else {
                let words = format!(
                    "this server is becoming primary of shard {}; try again shortly",
                    self.shard
                );
                ErrorReply::new(ErrorCode::Unavailable, &words)
                    .with_retry_after(NOT_SERVING_RETRY_AFTER)
                    .encode(&envelope, &mut out);
            }
        }
        ctx.finish_frame_batch(frame_batch);
        if out.is_empty() {
            return ctx.give_buffer(out);
        }
        let answer = Event::FrameBatch(FrameBatch::new(reply_to, out));
        self.outgoing.send(ctx, reply_to.stage, answer);
    }
}

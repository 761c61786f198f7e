//! What whoever hears that asks a server for a shard that it does not serve.

use timestone_cluster::{MapVersion, ServerId, ShardMap};
use timestone_seda::{Context, FrameBatch};
use timestone_types::{Epoch, ShardId};
use timestone_wire::{Envelope, ErrorCode, ErrorReply, Frame, Frames, Kind, Message, RequestId};

use super::ReplicaStage;
use crate::event::Event;
use crate::limits::NOT_SERVING_RETRY_AFTER;

/// What a request is answered that this server does not serve: to ask elsewhere, or later.
pub(super) struct NotServed {
    shard: ShardId,
    epoch: Epoch,
    map_version: MapVersion,
    is_elsewhere: bool,
}

impl NotServed {
    /// By this map, at this server.
    pub(super) fn of(shard: ShardId, map: &ShardMap, server: ServerId) -> Self {
        let epoch = map.epoch(shard).unwrap_or_default();
        let is_elsewhere = map.primary(shard).is_none_or(|own| own.id != server);
        Self { shard, epoch, map_version: map.version(), is_elsewhere }
    }

    /// Answers a request; what asks for no answer has none.
    pub(super) fn answer(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let &Self { shard, epoch, map_version, is_elsewhere } = self;
        let envelope = frame.envelope();
        if frame.kind().is_reply()
            || frame.kind() == Kind::Report
            || envelope.request == RequestId::NONE
        {
            return;
        }
        let envelope = Envelope { epoch, map_version, ..*envelope };
        if is_elsewhere {
            let words =
                format!("shard {shard} is not served by this server; fetch the shard map again");
            ErrorReply::new(ErrorCode::WrongShard, &words).encode(&envelope, out);
        } else {
            let words =
                format!("this server is becoming primary of shard {shard}; try again shortly");
            ErrorReply::new(ErrorCode::Unavailable, &words)
                .with_retry_after(NOT_SERVING_RETRY_AFTER)
                .encode(&envelope, out);
        }
    }
}

impl ReplicaStage {
    /// Answers each request that it is to be asked elsewhere, or later.
    pub(super) fn refuse(&mut self, ctx: &mut Context<'_, Event>, frame_batch: FrameBatch) {
        let reply_to = frame_batch.reply_to;
        let refusal = NotServed::of(self.shard, &self.map, self.server);
        let mut out = ctx.take_buffer();
        for frame in Frames::new(&frame_batch.bytes) {
            let Ok(frame) = frame else { break };
            refusal.answer(&frame, &mut out);
        }
        ctx.finish_frame_batch(frame_batch);
        if out.is_empty() {
            return ctx.give_buffer(out);
        }
        let answer = Event::FrameBatch(FrameBatch::new(reply_to, out));
        self.outgoing.send(ctx, reply_to.stage, answer);
    }
}

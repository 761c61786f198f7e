//! Commands for the master: carried out here, or relayed to the process that has it; and the map
//! of shards, which it is asked for now and then.

use std::sync::Arc;

use timestone_cluster::{ClusterError, MasterAnswer, MasterCommand, ShardMap, StoreKind};
use timestone_seda::{Context, FrameBatch, ReplyAddress, StageId};
use timestone_wire::{
    self as wire, Envelope, ErrorCode, ErrorReply, Frame, MapIs, MasterReply, Message,
};

use super::NodeStage;
use crate::event::Event;

impl NodeStage {
    /// Asks the master for its map, when that is due.
    pub(super) fn pull_map(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(address) = self.master.address() else { return };
        if !self.maps.wants(ctx.now()) {
            return;
        }
        let mut out = ctx.take_buffer();
        wire::MapPull {}.encode(&Envelope::default(), &mut out);
        self.send_to(ctx, address, out);
    }

    /// Whoever asks is told the map.
    pub(super) fn answer_map(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let mut map = Vec::new();
        self.maps.map().encode(&mut map);
        self.answer(ctx, reply_to, frame, |envelope, out| {
            MapIs { map: &map }.encode(envelope, out)
        });
    }

    /// Tells shards and gateways of a newer map.
    pub(super) fn set_map(&mut self, ctx: &mut Context<'_, Event>, map: ShardMap) {
        let Some(map) = self.maps.change(map) else { return };
        let shards = self.shard_stages.iter().map(|&(_, stage)| stage);
        let told: Vec<StageId> = shards.chain(self.gateways.iter().copied()).collect();
        for stage in told {
            self.outgoing.send(ctx, stage, Event::MapChanged(Arc::clone(&map)));
        }
    }

    /// One of our own stages is about to be given client ids, in place of those that ended when it
    /// was silent. What it leaves behind under them, the next run need not wait for; if the
    /// manifest cannot be saved, it waits once.
    fn note_clients(&self, reply_to: ReplyAddress, answer: &MasterAnswer) {
        if timestone_types::is_planted!(ForgottenRenewal) {
            return;
        }
        if let MasterAnswer::Clients(block) = answer
            && self.embedded.stages.contains(&reply_to.stage)
            && let Err(error) =
                self.embedded.manifest.has_clients(&block.iter().collect::<Vec<_>>())
        {
            tracing::warn!(%error, "the manifest could not be saved: the next start will wait for \
                a client of this one");
        }
    }

    /// Whether a command asks for a keyspace in memory on a server that has a log.
    fn is_dram_with_log(&self, command: &MasterCommand) -> bool {
        matches!(
            command,
            MasterCommand::CreateKeyspace { options, .. } if options.store == StoreKind::Dram
        ) && self.life.has_log()
    }

    pub(super) fn master_ask(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let command = match wire::MasterAsk::decode(frame) {
            Ok(ask) => ask.master_command(),
            Err(error) => {
                let words = error.to_string();
                let code = ErrorCode::from(&error);
                return self.answer(ctx, reply_to, frame, |envelope, out| {
                    ErrorReply::new(code, &words).encode(envelope, out)
                });
            }
        };
        let done = match command {
            Ok(command) if self.is_dram_with_log(&command) => Err(ClusterError::DramWithLog.into()),
            Ok(command) if self.master.is_embedded() => self.master.execute(command),
            Ok(command) => return self.relay(ctx, reply_to, frame, &command),
            Err(error) => Err(error.into()),
        };
        match done {
            Ok((answer, map)) => {
                if let Some(map) = map {
                    self.set_map(ctx, map);
                }
                self.note_clients(reply_to, &answer);
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                self.answer(ctx, reply_to, frame, |envelope, out| {
                    MasterReply { answer: &bytes }.encode(envelope, out)
                });
            }
            Err(error) => {
                let (code, words) = (error.code(), error.to_string());
                self.answer(ctx, reply_to, frame, |envelope, out| {
                    ErrorReply::new(code, &words).encode(envelope, out)
                });
            }
        }
    }

    /// Passes a command on to the master in another process; its answer finds the way back by a
    /// number of ours.
    fn relay(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        command: &MasterCommand,
    ) {
        let number = self.master.relay(reply_to, frame.envelope().request);
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let envelope = Envelope { request: number, ..Envelope::default() };
        let mut out = ctx.take_buffer();
        wire::MasterAsk { command: &bytes }.encode(&envelope, &mut out);
        if let Some(address) = self.master.address() {
            self.send_to(ctx, address, out);
        }
    }

    pub(super) fn ask_for_clients(&mut self, ctx: &mut Context<'_, Event>) {
        let Some((address, number)) = self.master.want_clients() else { return };
        let mut bytes = Vec::new();
        MasterCommand::RegisterClient { count: crate::limits::CLIENT_BLOCK }.encode(&mut bytes);
        let mut out = ctx.take_buffer();
        wire::MasterAsk { command: &bytes }
            .encode(&Envelope { request: number, ..Envelope::default() }, &mut out);
        self.send_to(ctx, address, out);
    }

    pub(super) fn master_replied(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        let number = frame.envelope().request;
        let answer = MasterReply::decode(frame).ok().and_then(|reply| reply.master_answer().ok());
        if let Some((reply_to, request)) = self.master.relayed(number) {
            if let Some(answer) = &answer {
                self.note_clients(reply_to, answer);
            }
            let mut out = ctx.take_buffer();
            self.tell_clock(&mut out);
            let begun = out.len();
            out.extend_from_slice(frame.bytes());
            out[begun + 12..begun + 20].copy_from_slice(&request.get().to_le_bytes());
            return self.outgoing.send(
                ctx,
                reply_to.stage,
                Event::FrameBatch(FrameBatch::new(reply_to, out)),
            );
        }
        if let Some(MasterAnswer::Clients(block)) = answer {
            self.master.add_clients(block);
            while let Some((reply_to, request, protocol)) = self.master.waiting.pop_front() {
                match self.master.client_id() {
                    Ok(Some(client)) => self.welcome(ctx, reply_to, request, protocol, client),
                    _ => {
                        self.master.waiting.push_front((reply_to, request, protocol));
                        return self.ask_for_clients(ctx);
                    }
                }
            }
        }
    }
}

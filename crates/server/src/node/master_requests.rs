//! Commands for the master: carried out here, or relayed to the process that has it or to the
//! worker that asks etcd.

use timestone_cluster::{ClientIdBlock, ClusterError, MasterAnswer, MasterCommand, StoreKind};
use timestone_seda::{Context, FrameBatch, ReplyAddress};
use timestone_wire::{self as wire, Envelope, ErrorCode, ErrorReply, Frame, MasterReply, Message};

use super::NodeStage;
use super::master::MasterError;
use crate::event::Event;

impl NodeStage {
    pub(super) fn etcd_answered(
        &mut self,
        ctx: &mut Context<'_, Event>,
        number: wire::RequestId,
        done: Result<MasterAnswer, MasterError>,
    ) {
        if let Some(asked) = self.controlling.asked(number) {
            return self.controller_answered(ctx, asked, done);
        }
        if self.runs.is_answer(number) {
            return self.run_answered(ctx.now(), done);
        }
        let Some((reply_to, request)) = self.master.relayed(number) else {
            return match done {
                Ok(MasterAnswer::Clients(block)) => self.clients_came(ctx, block),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "there are no client ids to hand out; etcd is asked \
                        again");
                    self.master.link_lost();
                }
            };
        };
        if let Ok(answer) = &done {
            self.note_clients(reply_to, answer);
        }
        let mut out = ctx.take_buffer();
        self.tell_clock(&mut out);
        let map_version = self.maps.map().version();
        let envelope = Envelope { request, map_version, ..Envelope::default() };
        match done {
            Ok(answer) => {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                MasterReply { answer: &bytes }.encode(&envelope, &mut out);
            }
            Err(error) => {
                let code = match error {
                    MasterError::Save(_) => ErrorCode::UnknownOutcome,
                    _ => error.code(),
                };
                ErrorReply::new(code, &error.to_string()).encode(&envelope, &mut out);
            }
        }
        self.outgoing.send(ctx, reply_to.stage, Event::FrameBatch(FrameBatch::new(reply_to, out)));
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
            // The controller asks from within the process that it runs in.
            Ok(command) if command.is_of_controllers() => {
                let words =
                    "changes of shards are the controller's business, and not served over the wire";
                return self.answer(ctx, reply_to, frame, |envelope, out| {
                    ErrorReply::new(ErrorCode::Unsupported, words).encode(envelope, out)
                });
            }
            Ok(command) if self.is_dram_with_log(&command) => Err(ClusterError::DramWithLog.into()),
            Ok(command) if self.master.is_here() => self.master.execute(command),
            // Clients look for a map often while a shard is missed, and the master has other things to
            // do. This process follows it by itself.
            Ok(MasterCommand::FetchMap) => Ok((MasterAnswer::Map(self.maps.map().clone()), None)),
            Ok(command) => return self.relay(ctx, reply_to, frame, &command),
            Err(error) => Err(error.into()),
        };
        match done {
            Ok((answer, map)) => {
                if let Some(map) = map {
                    self.set_map(ctx, map);
                    self.refresh_control(ctx);
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

    /// Passes a command on to the master in another process, or on etcd; its answer finds the way
    /// back by a number of ours.
    fn relay(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        command: &MasterCommand,
    ) {
        let number = self.master.relay(reply_to, frame.envelope().request);
        self.ask_elsewhere(ctx, number, command);
    }

    pub(super) fn ask_for_clients(&mut self, ctx: &mut Context<'_, Event>) {
        if let Some(number) = self.master.want_clients() {
            let command = MasterCommand::RegisterClient { count: crate::limits::CLIENT_BLOCK };
            self.ask_elsewhere(ctx, number, &command);
        }
    }

    /// Asks the master that is not in this process.
    pub(super) fn ask_elsewhere(
        &mut self,
        ctx: &mut Context<'_, Event>,
        number: wire::RequestId,
        command: &MasterCommand,
    ) {
        let is_urgent = self.controlling.has_asked(number);
        match self.master.ask_etcd(number, command, is_urgent) {
            Some(true) => return,
            Some(false) => {
                let words = "too many commands wait for etcd; ask again".to_owned();
                return self.etcd_answered(ctx, number, Err(MasterError::Save(words)));
            }
            None => {}
        }
        let Some(address) = self.master.address() else { return };
        if self.links.is_pausing(ctx.now(), address) {
            return self.master.link_lost();
        }
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let envelope = Envelope { request: number, ..Envelope::default() };
        let mut out = ctx.take_buffer();
        wire::MasterAsk { command: &bytes }.encode(&envelope, &mut out);
        self.send_to(ctx, address, out);
    }

    pub(super) fn master_replied(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        let number = frame.envelope().request;
        if self.runs.is_answer(number) {
            return self.run_replied(ctx.now(), frame);
        }
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
        match answer {
            Some(MasterAnswer::Clients(block)) => self.clients_came(ctx, block),
            Some(MasterAnswer::Control(control)) => self.set_control(ctx, control),
            _ => {}
        }
    }

    /// Client ids came, for which greetings may wait.
    fn clients_came(&mut self, ctx: &mut Context<'_, Event>, block: ClientIdBlock) {
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

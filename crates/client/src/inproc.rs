//! The transport to shards in the same process: batches of frames are sent to their stages
//! directly, no socket, no copy.
//!
//! A shard's stage gets what a net stage would send it, with this client's stage as the reply
//! address, and answers there. A shard that another server serves is not followed: its stage here
//! says so, and what is asked waits until its deadline.

use std::collections::VecDeque;

use timestone_seda::{
    ConnectionId, Context, FrameBatch, FrameBatchEvent, Generation, NetEvent, ReplyAddress, StageId,
};
use timestone_types::{ShardId, Timestamp};
use timestone_wire::{Frames, count_frames};

use crate::calls::take_answers;
use crate::event::{ClientEvent, ClientInput};
use crate::event_loop::Core;
use crate::transport::{Transport, ask_for_map, ask_master_for_map, take_frames};

/// Which stage serves which shard, and which the rest.
#[derive(Clone, Debug)]
pub struct InProcess {
    /// The stage of every shard.
    pub shards: Vec<(ShardId, StageId)>,
    /// The stage that answers what concerns the server and the master (keyspaces, client ids, the
    /// map).
    pub server: StageId,
    /// Decides the client's pauses.
    pub seed: u64,
    /// What of the shards may be asked by calls.
    pub by_calls: ByCalls,
}

/// What shards of the same process may be asked by calls instead of in frames: rule K6 of
/// docs/protocol/transactions.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ByCalls {
    /// Their stages take no calls.
    #[default]
    Nothing,
    /// Reads of what is latest.
    Reads,
    /// Those, and puts that depend on nothing. For shards without a log: with one each put has to
    /// wait for it.
    ReadsAndPuts,
}

/// See [`InProcess`].
pub(crate) struct Lanes<E> {
    wiring: InProcess,
    /// What a full queue did not take, in order.
    stuck: VecDeque<(StageId, E)>,
}

impl<E> Lanes<E> {
    pub(crate) fn new(wiring: InProcess) -> Self {
        Self { wiring, stuck: VecDeque::new() }
    }

    fn stage_of(&self, shard: ShardId) -> Option<StageId> {
        // Shards are few and numbered from 0: the place is almost always the number.
        match self.wiring.shards.get(usize::from(shard.get())) {
            Some(&(id, stage)) if id == shard => Some(stage),
            _ => self.wiring.shards.iter().find(|entry| entry.0 == shard).map(|entry| entry.1),
        }
    }
}

impl<E: ClientEvent> Lanes<E> {
    fn send(&mut self, context: &mut Context<'_, E>, to: StageId, bytes: &mut Vec<u8>) {
        let reply_to = ReplyAddress {
            stage: context.stage(),
            connection: ConnectionId::new(0),
            generation: Generation::new(0),
        };
        let mut buffer = context.take_buffer();
        core::mem::swap(&mut buffer, bytes);
        let mut frame_batch = FrameBatch::new(reply_to, buffer);
        if context.gauge(to).is_limited() {
            frame_batch.frames = count_frames(&frame_batch.bytes);
            context.gauge(to).admit(u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
        }
        let event = <E as FrameBatchEvent>::from_net(NetEvent::FrameBatch(frame_batch));
        self.send_event(context, to, event);
    }

    fn send_event(&mut self, context: &mut Context<'_, E>, to: StageId, event: E) {
        if !self.stuck.is_empty() {
            self.stuck.push_back((to, event));
        } else if let Err(event) = context.send(to, event) {
            self.stuck.push_back((to, event));
        }
    }

    fn retry_stuck(&mut self, context: &mut Context<'_, E>) {
        while let Some((to, event)) = self.stuck.pop_front() {
            if let Err(event) = context.send(to, event) {
                self.stuck.push_front((to, event));
                return context.want_turn();
            }
        }
    }
}

impl<E: ClientEvent> Transport<E> for Lanes<E> {
    fn start(&mut self, _context: &mut Context<'_, E>, core: &Core) {
        let shards = self.wiring.shards.iter().map(|&(shard, _)| shard);
        core.calls.borrow_mut().begin(shards, self.wiring.by_calls);
    }

    fn input(&mut self, context: &mut Context<'_, E>, core: &Core, input: ClientInput) {
        let frame_batch = match input {
            ClientInput::Replies(frame_batch)
            | ClientInput::Net(NetEvent::FrameBatch(frame_batch)) => frame_batch,
            ClientInput::Called(calls) => return take_answers(core, calls),
            ClientInput::Net(_) | ClientInput::Wake => return,
        };
        if let Err(error) = take_frames(core, None, &frame_batch.bytes) {
            let left = Frames::new(&frame_batch.bytes).rest().len();
            tracing::error!(%error, left, "A reply of this process's own shard could not be read; \
                what follows it is dropped.");
        }
        context.finish_frame_batch(frame_batch);
    }

    fn pull_map(&mut self, _context: &mut Context<'_, E>, core: &Core, _turn: u32) {
        let mut to_server = core.to_server.borrow_mut();
        ask_for_map(&mut to_server);
        ask_master_for_map(&mut to_server);
    }

    fn ship(&mut self, context: &mut Context<'_, E>, core: &Core) {
        self.retry_stuck(context);
        if !self.stuck.is_empty() {
            // Outboxes grow meanwhile, and the engine refuses when they are full.
            return;
        }
        let mut engine = core.engine.borrow_mut();
        while let Some((shard, outbox)) = engine.shards_mut().next_dirty() {
            match self.stage_of(shard) {
                Some(stage) => self.send(context, stage, outbox),
                None => outbox.clear(),
            }
        }
        drop(engine);
        let mut calls = core.calls.borrow_mut();
        while let Some((shard, batch)) = calls.next_batch() {
            let Some(to) = self.stage_of(shard) else {
                unreachable!("only shards of this process are called")
            };
            let event = E::calls(batch, context.stage());
            self.send_event(context, to, event);
        }
        drop(calls);
        let mut to_server = core.to_server.borrow_mut();
        if !to_server.is_empty() {
            self.send(context, self.wiring.server, &mut to_server);
        }
        if !self.stuck.is_empty() {
            context.want_turn();
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }
}

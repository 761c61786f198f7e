//! How this process follows the master: the map of shards, and the configurations of those that have
//! several replicas, are asked for now and then, and told to the stages that need them.

use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::{ControlState, MasterAnswer, MasterCommand, ShardMap};
use timestone_etcd::MasterNews;
use timestone_seda::{Context, ReplyAddress, StageId};
use timestone_wire::{self as wire, Envelope, Frame, MapIs, Message};

use super::NodeStage;
use super::maps::{CONTROL_INTERVAL, NEWS_INTERVAL, PULL_INTERVAL};
use super::master::MasterError;
use crate::event::Event;

impl NodeStage {
    /// Asks the master for what it has changed, when that is due.
    pub(super) fn follow_master(&mut self, ctx: &mut Context<'_, Event>) {
        if self.master.is_on_etcd() {
            self.maps.wants(ctx.now(), NEWS_INTERVAL);
            return self.hear_etcd(ctx);
        }
        if !self.follows() || !self.maps.wants(ctx.now(), self.follow_interval()) {
            return;
        }
        if self.master.is_shared() {
            return self.look_at_master(ctx);
        }
        // Greetings wait while the master is away: it is asked until it answers.
        if !self.master.waiting.is_empty() {
            self.ask_for_clients(ctx);
        }
        if self.maps.is_replicated() {
            let number = self.master.number();
            return self.ask_elsewhere(ctx, number, &MasterCommand::FetchControl);
        }
        let Some(address) = self.master.address() else { return };
        let mut out = ctx.take_buffer();
        wire::MapPull {}.encode(&Envelope::default(), &mut out);
        self.send_to(ctx, address, out);
    }

    /// Whether the master changes without this process.
    pub(super) const fn follows(&self) -> bool {
        !self.master.is_here() || self.master.is_shared()
    }

    fn follow_interval(&self) -> Duration {
        if self.maps.is_replicated() { CONTROL_INTERVAL } else { PULL_INTERVAL }
    }

    /// Looks at the master that is here, which has changed perhaps.
    pub(super) fn look_at_master(&mut self, ctx: &mut Context<'_, Event>) {
        match self.master.newer_map() {
            Ok(Some(map)) => self.set_map(ctx, map),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the map cannot be followed"),
        }
        self.refresh_control(ctx);
    }

    /// Takes what the worker that asks etcd has to tell.
    fn hear_etcd(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some(news) = self.master.news() {
            match news {
                MasterNews::Map(map) => self.set_map(ctx, map),
                MasterNews::Control(control) => self.set_control(ctx, *control),
                MasterNews::Controller(term) => self.set_term(ctx, term),
                MasterNews::Answered(number, done) => {
                    let number = wire::RequestId::new(number);
                    self.etcd_answered(ctx, number, done.map_err(MasterError::from));
                }
            }
        }
        // Greetings wait while etcd is silent: it is asked until it answers.
        if !self.master.waiting.is_empty() {
            self.ask_for_clients(ctx);
        }
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

    /// Asks the master that is here for the configurations, where shards have several replicas.
    pub(super) fn refresh_control(&mut self, ctx: &mut Context<'_, Event>) {
        if !self.maps.is_replicated() {
            return;
        }
        match self.master.ask(MasterCommand::FetchControl) {
            Ok(MasterAnswer::Control(control)) => self.set_control(ctx, control),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the configurations cannot be followed"),
        }
    }

    /// Tells replicas, and the controller, of other configurations; and everybody of the map, if it
    /// is newer.
    pub(super) fn set_control(&mut self, ctx: &mut Context<'_, Event>, control: ControlState) {
        if control.map.version() > self.maps.map().version() {
            self.set_map(ctx, control.map.clone());
        }
        let Some(control) = self.maps.change_control(control) else { return };
        self.tell_control(ctx);
        self.controller_hears_of(ctx, &control);
    }

    /// Tells replicas the configurations of now.
    pub(super) fn tell_control(&mut self, ctx: &mut Context<'_, Event>) {
        let told: Vec<StageId> = self.shard_stages.iter().map(|&(_, stage)| stage).collect();
        for stage in told {
            let control = Arc::clone(self.maps.control());
            self.outgoing.send(ctx, stage, Event::ConfigurationsChanged(control));
        }
    }
}

//! How this server's primaries are handed over: all of them when the server is being stopped, and
//! the one that the controller asks for.
//!
//! ```text
//!   departure has begun ─┐                    ┌─► replicas: leases become short, then *hands over* in heartbeats
//!   controller asks ─────┴─► HandOver{wanted} ┘      └─► controller: a successor ─► serves, confirmed ─► departure is over
//! ```
//! A primary serves until its successor begins, so nothing has to be undone when nobody comes. The
//! controller hands over its own shards first, and resigns then. Source:
//! docs/protocol/membership.md, "A server that is stopped".

use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::{HandOver, ServerId, ShardEntry};
use timestone_seda::Context;
use timestone_types::{ShardId, Timestamp};

use super::{NodeStage, links};
use crate::departure::Departure;
use crate::event::Event;

/// A primary hands over for so long after it was asked last: several heartbeats.
const ASKED_FOR: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Leaving {
    departure: Arc<Departure>,
    /// The shards of which it was the primary when it began to leave.
    left: Option<Vec<ShardId>>,
    /// What the controller has asked for, and until when that holds.
    asked: Option<(HandOver, Timestamp)>,
}

impl Leaving {
    pub(super) const fn new(departure: Arc<Departure>) -> Self {
        Self { departure, left: None, asked: None }
    }

    /// Whether the server is being stopped.
    pub(super) const fn has_begun(&self) -> bool {
        self.left.is_some()
    }

    /// When what was asked for is over.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.asked.map(|(_, until)| until)
    }
}

impl NodeStage {
    /// Goes on to leave, if the server is being stopped.
    pub(super) fn leave(&mut self, ctx: &mut Context<'_, Event>) {
        let now = ctx.now();
        if self.leaving.asked.is_some_and(|(_, until)| now >= until) {
            self.ask_stage(ctx, None);
        }
        if !self.leaving.departure.has_begun() || self.leaving.departure.is_over() {
            return;
        }
        if !self.maps.is_replicated() {
            return self.leaving.departure.end();
        }
        if self.leaving.left.is_none() {
            let server = self.server;
            let shards = self.maps.map().shards().iter();
            let own = shards.filter(|entry| entry.primary == server).map(|entry| entry.id);
            self.leaving.left = Some(own.collect());
            tracing::info!("this server is being stopped: its shards go to others first");
            let stages: Vec<_> = self.shard_stages.iter().map(|&(_, stage)| stage).collect();
            for stage in stages {
                self.outgoing.send(ctx, stage, Event::HandOver { is_wanted: true });
            }
            self.heartbeats.hurry(now);
        }
        if self.has_left(now) || timestone_types::is_planted!(EndsBeforeHandOver) {
            self.leaving.departure.end();
            self.resign(ctx);
        }
    }

    /// Whether somebody else serves each shard of which this server was the primary, or nobody can.
    fn has_left(&self, now: Timestamp) -> bool {
        let Some(left) = &self.leaving.left else { return false };
        let control = self.maps.control();
        let mut shards = control.map.shards().iter().zip(&control.normal);
        shards.all(|(entry, normal)| {
            if entry.primary == self.server {
                !self.is_followed(now, entry)
            } else {
                entry.epoch == normal.epoch || !left.contains(&entry.id)
            }
        })
    }

    /// Whether another server could become primary of a shard, and somebody could say so.
    fn is_followed(&self, now: Timestamp, entry: &ShardEntry) -> bool {
        let mut others = entry.replicas.iter().filter(|&&server| server != self.server);
        let has_controller =
            self.master_server().is_none_or(|server| self.heartbeats.hears(now, server));
        has_controller && others.any(|&server| self.heartbeats.may_lead(now, entry.id, server))
    }

    /// The server that hosts the master, if that is another one.
    fn master_server(&self) -> Option<ServerId> {
        let address = self.master.address()?;
        let is_meant = |text: &str| links::resolve(text) == Some(address);
        let mut servers = self.maps.map().servers().iter();
        let found = servers.find(|server| {
            server.addresses.native.as_ref().is_some_and(|native| is_meant(native.as_str()))
        })?;
        Some(found.id).filter(|&server| server != self.server)
    }

    /// The controller asks a primary to hand over, perhaps one of this server.
    pub(super) fn asked_to_hand_over(&mut self, ctx: &mut Context<'_, Event>, asked: HandOver) {
        let entry = self.maps.map().shard(asked.shard);
        let is_own =
            entry.is_some_and(|entry| entry.primary == self.server && entry.epoch == asked.epoch);
        if !is_own || self.leaving.has_begun() {
            return;
        }
        let until = ctx.now().saturating_add(ASKED_FOR);
        if self.leaving.asked.is_some_and(|(known, _)| known == asked) {
            self.leaving.asked = Some((asked, until));
        } else {
            self.ask_stage(ctx, Some((asked, until)));
        }
    }

    /// Tells the replica that is asked to hand over, and the one that was before.
    fn ask_stage(&mut self, ctx: &mut Context<'_, Event>, asked: Option<(HandOver, Timestamp)>) {
        let before = std::mem::replace(&mut self.leaving.asked, asked);
        let (is_leaving, changes) = (self.leaving.has_begun(), [(before, false), (asked, true)]);
        for (hand_over, is_wanted) in changes {
            let Some((hand_over, _)) = hand_over.filter(|_| is_wanted || !is_leaving) else {
                continue;
            };
            let stage = self.shard_stages.iter().find(|(shard, _)| *shard == hand_over.shard);
            if let Some(&(_, stage)) = stage {
                self.outgoing.send(ctx, stage, Event::HandOver { is_wanted });
            }
        }
    }
}

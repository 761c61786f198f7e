//! The controller: hears servers, and says which shard is to have which configuration.
//!
//! ```text
//!   heartbeats ─► Heard ───┐
//!   time ───────► Tick ────┤                  ┌─► Change   move a lost server's primaries; replace a replica
//!   master ─────► Fetched ─┼─► Controller ────┼─► Confirm  a primary says that it serves: that configuration is normal
//!   answers ────► Changed ─┤                  └─► Fetch    what it knows is stale
//!                 Conflict ┘
//! ```
//! It proposes; the master compares and swaps. So two controllers at once, or one that slept, do no
//! harm: what they propose by an old epoch or in an old term is refused. Invariants:
//! - a primary comes from the last normal configuration and from the current one;
//! - a configuration is normal when its primary says that it serves in its epoch, and not before;
//! - replicas change only while the current configuration is normal, by one at a time;
//! - nobody is lost before the controller has listened for a whole detection time without a pause,
//!   and no server that has just registered before it had time to start;
//! - a primary that serves and hands over is followed by a replica that follows it;
//! - after a conflict nothing is proposed until the master's state was fetched again; it is fetched
//!   now and then without one, because others may have changed what it waits for.
//!
//! Source: docs/protocol/membership.md, "The controller"; SEMEL §3.2. What is deliberately absent:
//! who is the controller, and how heartbeats travel.

mod decide;
mod level;
mod state;
mod view;

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_types::{Epoch, ShardId, Timestamp};

use crate::controller::level::Levelling;
use crate::controller::state::Try;
use crate::controller::view::View;
use crate::limits::{MIN_DETECTION, START_TIME};
use crate::{
    ControlState, HandOver, Heartbeat, Leases, ReplicaStatus, ServerId, ShardChange, ShardEntry,
};

/// When servers are lost, and when their replicas are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerLimits {
    /// A server that is not heard for as long is lost, at least [`MIN_DETECTION`]. Heartbeats come
    /// several times within it.
    pub detection: Duration,
    /// A replica that is lost, or does not join its shard's epoch, for as long is replaced by one at
    /// a server that stands by; and as long it stays away at least.
    pub replace_after: Duration,
    /// Whether primaries move to servers that have fewer, one after the other, when all is well.
    pub levels: bool,
}

impl Default for ControllerLimits {
    /// Half a second, a minute, and primaries move.
    fn default() -> Self {
        Self {
            detection: Duration::from_millis(500),
            replace_after: Duration::from_secs(60),
            levels: true,
        }
    }
}

/// What a controller takes in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerInput {
    /// The master's state.
    Fetched(Box<ControlState>),
    /// A heartbeat came.
    Heard(Heartbeat),
    /// A proposal was carried out.
    Changed(ShardEntry),
    /// A proposal met another epoch.
    Conflict(ShardEntry),
    /// A proposal was refused, or the master could not be asked.
    Refused(ShardId),
    /// Time has passed.
    Tick,
}

/// What a controller wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerOutput {
    /// Ask the master for [`crate::MasterCommand::FetchControl`].
    Fetch,
    /// Ask it for [`crate::MasterCommand::ChangeShard`].
    Change(ShardChange),
    /// Ask it for [`crate::MasterCommand::ConfirmShard`].
    Confirm {
        /// The shard.
        shard: ShardId,
        /// The epoch in which it serves.
        epoch: Epoch,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Controller {
    limits: ControllerLimits,
    /// The master's state as it was fetched, and changed by our own proposals since.
    view: Option<View>,
    /// What is known is stale: nothing is proposed until the state was fetched.
    is_stale: bool,
    /// When the master's state is asked for next.
    fetch_at: Timestamp,
    servers: Leases,
    /// Since when each server is heard without a gap.
    heard_since: BTreeMap<ServerId, Timestamp>,
    replicas: BTreeMap<(ShardId, ServerId), ReplicaStatus>,
    /// Proposals under way, until when their answers are waited for, and the primaries in them.
    pending: BTreeMap<ShardId, (Timestamp, Option<ServerId>)>,
    /// Since when replicas are lost, or not in their shard's epoch.
    unfit_since: BTreeMap<(ShardId, ServerId), Timestamp>,
    /// Servers that have registered lately and were not heard yet, and until when that is no loss.
    starting_until: BTreeMap<ServerId, Timestamp>,
    /// Since when live servers tell nothing of a replica that they are to have.
    untold_since: BTreeMap<(ShardId, ServerId), Timestamp>,
    /// The last epoch that each replica could not lead, since the shard served last.
    could_not_lead: BTreeMap<(ShardId, ServerId), Epoch>,
    /// The last epoch of each shard in which each primary needed another one, and how many epochs
    /// that were, since the shard last served for [`STEADY_TIME`].
    needed_epochs: BTreeMap<(ShardId, ServerId), (Epoch, u32)>,
    /// Since when each shard serves in its epoch.
    serves_since: BTreeMap<ShardId, (Epoch, Timestamp)>,
    /// Who was to lead in the place of a primary with unread pages, until it has served for
    /// [`STEADY_TIME`].
    tries: BTreeMap<(ShardId, ServerId), Try>,
    /// Since when a shard's live primary has not heard of the shard's epoch.
    unaware_since: BTreeMap<ShardId, (Epoch, Timestamp)>,
    /// When a primary was last given another epoch because it asked.
    renewed_at: BTreeMap<ShardId, Timestamp>,
    /// When replicas were taken out.
    removed_at: BTreeMap<(ShardId, ServerId), Timestamp>,
    /// Since when this controller listens without a pause, and when it was stepped last.
    listening: Option<(Timestamp, Timestamp)>,
    levelling: Levelling,
}

impl Controller {
    /// A controller that knows nothing yet.
    #[must_use]
    pub fn new(mut limits: ControllerLimits) -> Self {
        limits.detection = limits.detection.max(MIN_DETECTION);
        limits.replace_after = limits.replace_after.max(limits.detection);
        Self {
            limits,
            view: None,
            is_stale: true,
            fetch_at: Timestamp::ZERO,
            servers: Leases::new(limits.detection),
            heard_since: BTreeMap::new(),
            replicas: BTreeMap::new(),
            pending: BTreeMap::new(),
            unfit_since: BTreeMap::new(),
            starting_until: BTreeMap::new(),
            untold_since: BTreeMap::new(),
            could_not_lead: BTreeMap::new(),
            needed_epochs: BTreeMap::new(),
            serves_since: BTreeMap::new(),
            tries: BTreeMap::new(),
            unaware_since: BTreeMap::new(),
            renewed_at: BTreeMap::new(),
            removed_at: BTreeMap::new(),
            listening: None,
            levelling: Levelling::default(),
        }
    }

    /// The primary that it asks to hand its shard over.
    #[must_use]
    pub fn asked(&self) -> Option<HandOver> {
        self.levelling.asked()
    }

    /// When it has to be stepped again: a step that comes later by more than a quarter of the
    /// detection time counts as a pause.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.listening.map(|(_, last)| last.saturating_add(self.limits.detection / 4))
    }

    /// Takes an input at this time: what is to be done.
    pub fn step(&mut self, now: Timestamp, input: ControllerInput) -> Vec<ControllerOutput> {
        let now = self.listen(now);
        match input {
            ControllerInput::Fetched(control) => self.fetched(now, *control),
            ControllerInput::Heard(heartbeat) => self.heard(now, heartbeat),
            ControllerInput::Changed(entry) => {
                self.pending.remove(&entry.id);
                if !self.view.as_mut().is_some_and(|view| view.changed(entry)) {
                    self.fetch(now);
                }
            }
            ControllerInput::Conflict(entry) => {
                self.pending.remove(&entry.id);
                self.fetch(now);
            }
            ControllerInput::Refused(shard) => {
                self.pending.remove(&shard);
                self.fetch(now);
            }
            ControllerInput::Tick => {}
        }
        self.outputs(now)
    }

    /// Notes that it is awake; time does not go backwards.
    fn listen(&mut self, now: Timestamp) -> Timestamp {
        let (since, now) = match self.listening {
            None => (now, now),
            Some((since, last)) => {
                let now = now.max(last);
                // Heartbeats of a pause may be lost or still on their way: it listens anew.
                let paused = now > last.saturating_add(self.limits.detection / 2);
                (if paused { now } else { since }, now)
            }
        };
        self.listening = Some((since, now));
        now
    }

    /// What is known is not to be acted on.
    fn fetch(&mut self, now: Timestamp) {
        self.is_stale = true;
        self.fetch_at = now;
    }

    fn fetched(&mut self, now: Timestamp, control: ControlState) {
        let fetched = View::new(control);
        // An answer that was overtaken by later ones.
        if self.view.as_ref().is_some_and(|view| fetched.is_older_than(view)) {
            return self.fetch(now);
        }
        if let Some(view) = &self.view {
            for &server in
                fetched.servers().iter().filter(|server| !view.servers().contains(server))
            {
                self.starting_until.insert(server, now.saturating_add(START_TIME));
            }
        }
        self.view = Some(fetched);
        self.is_stale = false;
        self.fetch_at = now.saturating_add(self.limits.detection * 4);
    }

    fn heard(&mut self, now: Timestamp, heartbeat: Heartbeat) {
        let server = heartbeat.server;
        if !self.servers.is_alive(now, server) {
            self.heard_since.insert(server, now);
        }
        self.servers.renew(now, server);
        self.starting_until.remove(&server);
        self.replicas.retain(|&(_, one), _| one != server);
        for status in heartbeat.replicas {
            self.replicas.insert((status.shard, server), status);
        }
    }

    fn outputs(&mut self, now: Timestamp) -> Vec<ControllerOutput> {
        let answered_by = now.saturating_add(self.limits.detection * 4);
        let before = self.pending.len();
        self.pending.retain(|_, (until, _)| now < *until);
        if self.pending.len() < before {
            self.fetch(now);
        }
        let mut outputs = Vec::new();
        if now >= self.fetch_at {
            self.fetch_at = answered_by;
            outputs.push(ControllerOutput::Fetch);
        }
        if self.is_stale {
            return outputs;
        }
        let Some(view) = self.view.take() else { return outputs };
        for (entry, normal) in view.shards() {
            self.note_replicas(now, entry);
            if self.pending.contains_key(&entry.id) {
                continue;
            }
            if let Some(output) = self.decide(now, &view, entry, normal) {
                let primary = match &output {
                    ControllerOutput::Change(change) => Some(change.primary),
                    ControllerOutput::Fetch | ControllerOutput::Confirm { .. } => None,
                };
                self.pending.insert(entry.id, (answered_by, primary));
                outputs.push(output);
            }
        }
        if self.limits.levels {
            self.level(now, &view);
        }
        self.view = Some(view);
        outputs
    }
}

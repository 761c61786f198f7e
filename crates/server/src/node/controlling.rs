//! The cluster's controller, while this server is it: where the master is in this process always,
//! on etcd and at a master of the environment while the server holds the controller's lease.
//!
//! ```text
//!   campaign ─► term ─► Controller ◄── heartbeats, time, the master's state
//!                           └─► Fetch, Change, Confirm ─► master, with the term ─► its answer ─► Controller
//! ```
//! A controller is begun anew with every term: it listens before it calls anybody lost. What the
//! master refuses is not proposed again in the same step. Source: docs/protocol/membership.md, "The
//! controller".

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::{
    ClusterError, ControlState, Controller, ControllerInput, ControllerLimits, ControllerOutput,
    HandOver, Heartbeat, MasterAnswer, MasterCommand, ServerId, Term,
};
use timestone_seda::Context;
use timestone_types::{ShardId, Timestamp};
use timestone_wire::RequestId;

use super::NodeStage;
use super::candidacy::Candidacy;
use super::master::MasterError;
use crate::event::Event;

/// How often the server asks to be the controller, or to stay it.
const CAMPAIGN_INTERVAL: Duration = Duration::from_millis(250);
/// How often the master's state is asked for in one step of the controller.
const MAX_FETCHES: u32 = 4;
/// Most questions whose answers are waited for.
const MAX_ASKED: usize = 1024;

/// What was asked of the master for the controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControllerAsk {
    term: Term,
    /// The shard that is to be changed or confirmed; `None`: the master's state.
    shard: Option<ShardId>,
}

struct Running {
    term: Term,
    controller: Controller,
    /// Refusals that it has not been told yet.
    refused: BTreeSet<ShardId>,
}

/// See the module.
pub(super) struct Controlling {
    limits: ControllerLimits,
    running: Option<Running>,
    campaign_at: Timestamp,
    candidacy: Candidacy,
    /// What the master is asked by way of a worker, by number.
    asked: BTreeMap<u64, ControllerAsk>,
    /// What it did last, in words.
    last: Option<String>,
}

impl Controlling {
    pub(super) const fn new(limits: ControllerLimits) -> Self {
        Self {
            limits,
            running: None,
            campaign_at: Timestamp::ZERO,
            candidacy: Candidacy::new(),
            asked: BTreeMap::new(),
            last: None,
        }
    }

    /// The term for which this server is the controller.
    pub(super) fn term(&self) -> Option<Term> {
        self.running.as_ref().map(|running| running.term)
    }

    /// The primary that it asks to hand over, while this server is the controller.
    pub(super) fn asked_to_hand_over(&self) -> Option<HandOver> {
        self.running.as_ref().and_then(|running| running.controller.asked())
    }

    /// What the controller did last, in words.
    pub(super) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// What was asked under this number, if the controller has asked.
    pub(super) fn asked(&mut self, number: RequestId) -> Option<ControllerAsk> {
        self.asked.remove(&number.get())
    }

    /// Whether the controller has asked something under this number, and waits.
    pub(super) fn has_asked(&self, number: RequestId) -> bool {
        self.asked.contains_key(&number.get())
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.running.as_ref().and_then(|running| running.controller.next_deadline())
    }

    /// What an output comes to: what is asked of the master.
    fn command(
        &mut self,
        term: Term,
        output: ControllerOutput,
    ) -> (Option<ShardId>, MasterCommand) {
        match output {
            ControllerOutput::Fetch => (None, MasterCommand::FetchControl),
            ControllerOutput::Change(change) => {
                tracing::info!(
                    shard = %change.shard, primary = %change.primary,
                    replicas = %listed(&change.replicas), after = %change.expected,
                    "the controller changes a shard"
                );
                let (shard, primary) = (change.shard, change.primary);
                self.last = Some(format!("gave shard {shard} primary {primary}"));
                (Some(shard), MasterCommand::ChangeShard { term, change })
            }
            ControllerOutput::Confirm { shard, epoch } => {
                self.last = Some(format!("confirmed epoch {epoch} of shard {shard}"));
                (Some(shard), MasterCommand::ConfirmShard { term, shard, epoch })
            }
        }
    }
}

fn listed(servers: &[ServerId]) -> String {
    let numbers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

impl NodeStage {
    /// Asks to be the controller when that is due, and lets it see that time passes.
    pub(super) fn control(&mut self, ctx: &mut Context<'_, Event>) {
        if !self.maps.is_replicated() {
            return;
        }
        let now = ctx.now();
        if now >= self.controlling.campaign_at {
            self.controlling.campaign_at = now.saturating_add(CAMPAIGN_INTERVAL);
            self.campaign(ctx);
        }
        if self.controlling.deadline().is_some_and(|deadline| now >= deadline) {
            self.step_controller(ctx, ControllerInput::Tick);
        }
    }

    /// Asks to be the controller or to stay it, or lets others be it. Nobody takes the place of a
    /// server whose own master it is.
    fn campaign(&mut self, ctx: &mut Context<'_, Event>) {
        let now = ctx.now();
        let is_controller = self.controlling.term().is_some();
        let hears_enough = self.hears_enough(now)
            || !self.master.may_be_controlled_elsewhere()
            || timestone_types::is_planted!(KeepsDeafTerm);
        let may = self.controlling.candidacy.look(now, hears_enough, is_controller);
        self.master.set_candidate(may);
        if !self.master.is_here() {
            // The worker that asks etcd campaigns by itself.
            return;
        }
        let done = if may {
            self.master.campaign(now, self.server)
        } else if is_controller {
            self.master.resign(self.server).map(|()| None)
        } else {
            return;
        };
        match done {
            Ok(term) => self.set_term(ctx, term),
            Err(error) => tracing::warn!(%error, "it is not known who is the controller"),
        }
    }

    /// This server is being stopped: another one is to be the controller, at once.
    pub(super) fn resign(&mut self, ctx: &mut Context<'_, Event>) {
        if self.master.may_be_controlled_elsewhere() {
            self.controlling.candidacy.end();
            self.campaign(ctx);
        }
    }

    /// When [`NodeStage::control`] has something to do.
    pub(super) fn control_deadline(&self) -> Option<Timestamp> {
        let campaign = self.maps.is_replicated().then_some(self.controlling.campaign_at);
        [campaign, self.controlling.deadline()].into_iter().flatten().min()
    }

    /// This server is the controller for a term, or is not it.
    pub(super) fn set_term(&mut self, ctx: &mut Context<'_, Event>, term: Option<Term>) {
        if term == self.controlling.term() {
            return;
        }
        match term {
            Some(term) => tracing::info!(%term, "this server is the controller"),
            None => tracing::info!("this server is not the controller any more"),
        }
        let limits = self.controlling.limits;
        self.controlling.running = term.map(|term| Running {
            term,
            controller: Controller::new(limits),
            refused: BTreeSet::new(),
        });
        self.step_controller(ctx, ControllerInput::Tick);
    }

    pub(super) fn controller_hears(&mut self, ctx: &mut Context<'_, Event>, heartbeat: Heartbeat) {
        self.step_controller(ctx, ControllerInput::Heard(heartbeat));
    }

    /// The master's state is another one, perhaps by somebody else.
    pub(super) fn controller_hears_of(
        &mut self,
        ctx: &mut Context<'_, Event>,
        control: &Arc<ControlState>,
    ) {
        if self.controlling.running.is_some() {
            let control = Box::new(ControlState::clone(control));
            self.step_controller(ctx, ControllerInput::Fetched(control));
        }
    }

    /// Steps the controller. It is told first what was refused since its last step: while heartbeats
    /// come, nothing else steps it.
    fn step_controller(&mut self, ctx: &mut Context<'_, Event>, input: ControllerInput) {
        let running = self.controlling.running.as_mut();
        let refused = running.map_or_else(BTreeSet::new, |one| core::mem::take(&mut one.refused));
        let mut inputs: VecDeque<ControllerInput> =
            refused.into_iter().map(ControllerInput::Refused).collect();
        inputs.push_back(input);
        let (mut has_changed, mut fetches) = (false, 0);
        while let Some(input) = inputs.pop_front() {
            has_changed |= matches!(input, ControllerInput::Changed(_));
            let Some(running) = &mut self.controlling.running else { break };
            let term = running.term;
            for output in running.controller.step(ctx.now(), input) {
                let (shard, command) = self.controlling.command(term, output);
                let asked = ControllerAsk { term, shard };
                fetches += u32::from(shard.is_none());
                if !self.master.is_here() {
                    // One answer is enough for all that asks for it in this step.
                    if shard.is_some() || fetches == 1 {
                        self.ask_for_controller(ctx, asked, &command);
                    }
                    continue;
                }
                // It asks again after a while, should it make nothing of what it was told.
                if shard.is_some() || fetches <= MAX_FETCHES {
                    let done = self.master.ask(command);
                    inputs.extend(self.controller_input(asked, done));
                }
            }
        }
        if has_changed && self.master.is_here() {
            self.look_at_master(ctx);
        }
    }

    /// Asks by way of the worker, which answers later.
    fn ask_for_controller(
        &mut self,
        ctx: &mut Context<'_, Event>,
        asked: ControllerAsk,
        command: &MasterCommand,
    ) {
        let number = self.master.number();
        if self.controlling.asked.len() >= MAX_ASKED {
            self.controlling.asked.pop_first();
        }
        self.controlling.asked.insert(number.get(), asked);
        self.ask_elsewhere(ctx, number, command);
    }

    /// The worker's answer.
    pub(super) fn controller_answered(
        &mut self,
        ctx: &mut Context<'_, Event>,
        asked: ControllerAsk,
        done: Result<MasterAnswer, MasterError>,
    ) {
        if let Some(input) = self.controller_input(asked, done) {
            self.step_controller(ctx, input);
        }
    }

    /// What the controller is told of an answer. One to another term's controller is not for it.
    fn controller_input(
        &mut self,
        asked: ControllerAsk,
        done: Result<MasterAnswer, MasterError>,
    ) -> Option<ControllerInput> {
        let controlling = &mut self.controlling;
        let running = controlling.running.as_mut().filter(|one| one.term == asked.term)?;
        match done {
            Ok(MasterAnswer::Control(control)) => Some(ControllerInput::Fetched(Box::new(control))),
            Ok(MasterAnswer::Changed(entry)) => Some(ControllerInput::Changed(entry)),
            Ok(MasterAnswer::Conflict(entry)) => Some(ControllerInput::Conflict(entry)),
            Ok(_) => None,
            Err(MasterError::Refused(ClusterError::StaleTerm { current, .. })) => {
                tracing::info!(term = %asked.term, %current, "another server is the controller");
                controlling.running = None;
                None
            }
            Err(error) => {
                tracing::warn!(shard = ?asked.shard, %error, "the master did not do what the \
                    controller asked; it looks again");
                running.refused.extend(asked.shard);
                None
            }
        }
    }
}

//! A run that lasts goes on under the next number now and then, in the data directory and then at
//! the master: so a copy of the directory that was taken while it was used is noticed as well (rule
//! P16 of docs/protocol/replication.md).
//!
//! ```text
//!   due ─► next number, durable in the directory ─► RaiseRun ─► answered ─► due again an interval later
//!                                                      └─ no answer: the same number again ─┘
//! ```
//! Where the master is embedded in this process its state is in the same directory and as old as
//! that: nothing is raised.

use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::{ClusterError, MasterAnswer, MasterCommand, Run};
use timestone_seda::Context;
use timestone_types::Timestamp;
use timestone_wire::{ErrorReply, Frame, MasterReply, Message, RequestId};

use super::NodeStage;
use super::master::MasterError;
use crate::event::Event;
use crate::limits::RUN_AGAIN;
use crate::manifest::Manifest;

/// See the module.
pub(super) struct Runs {
    manifest: Arc<Manifest>,
    interval: Duration,
    /// Whether the master is elsewhere.
    is_told: bool,
    /// The last run that the master has heard of.
    run: Run,
    next: Timestamp,
    /// Under which number the master was asked last.
    asked: Option<RequestId>,
}

impl Runs {
    /// The run of the manifest has begun.
    pub(super) fn new(manifest: Arc<Manifest>, interval: Duration, is_told: bool) -> Self {
        let run = manifest.run();
        Self { manifest, interval, is_told, run, next: Timestamp::ZERO, asked: None }
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        self.next = now.saturating_add(self.interval);
    }

    /// When [`NodeStage::raise_run`] has something to do.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.is_told.then_some(self.next)
    }

    /// Whether this is the answer to what the master was asked last.
    pub(super) fn is_answer(&mut self, number: RequestId) -> bool {
        self.asked.take_if(|asked| *asked == number).is_some()
    }

    /// The run that goes on.
    fn following(&self) -> Run {
        Run { number: self.run.number + 1, ..self.run }
    }

    fn answered(&mut self, now: Timestamp, done: Result<(), String>) {
        match done {
            Ok(()) => {
                self.run = self.following();
                self.begin(now);
            }
            Err(error) => tracing::warn!(%error, "the master did not take the number of this run; \
                it is told again"),
        }
    }
}

impl NodeStage {
    /// Goes on under the next number when that is due.
    pub(super) fn raise_run(&mut self, ctx: &mut Context<'_, Event>) {
        let now = ctx.now();
        if self.runs.deadline().is_none_or(|due| now < due) {
            return;
        }
        self.runs.next = now.saturating_add(RUN_AGAIN.min(self.runs.interval));
        let run = self.runs.following();
        if let Err(error) = self.runs.manifest.raise_run(run) {
            return tracing::warn!(%error, "the manifest could not be saved; it is tried again");
        }
        let command = MasterCommand::RaiseRun { server: self.server, run };
        if self.master.is_here() {
            let done = self.master.ask(command);
            return self.run_answered(now, done);
        }
        let number = self.master.number();
        self.runs.asked = Some(number);
        self.ask_elsewhere(ctx, number, &command);
    }

    /// What the master says of the number.
    pub(super) fn run_answered(&mut self, now: Timestamp, done: Result<MasterAnswer, MasterError>) {
        let done = match done {
            Ok(_) => Ok(()),
            Err(MasterError::Refused(ClusterError::StaleRun { .. })) => Err(SUPERSEDED.to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.runs.answered(now, done);
    }

    /// The same of a master in another process.
    pub(super) fn run_replied(&mut self, now: Timestamp, frame: &Frame<'_>) {
        let done = match ErrorReply::decode(frame) {
            Ok(refused) => Err(refused.to_string()),
            Err(_) => MasterReply::decode(frame).map(drop).map_err(|error| error.to_string()),
        };
        self.runs.answered(now, done);
    }
}

/// What is said where another process has begun a run.
const SUPERSEDED: &str = "another process has been started with a copy of this server's data \
    directory, and both take themselves for this server: stop one of them";

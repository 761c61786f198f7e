//! A server that joins its cluster: a process of its own kind, until the master has answered.
//!
//! ```text
//!   dial ─► hello ─► register ─► client ids ─► (the world builds the server's stages)
//!    ▲                    └── lost, refused connection, silence: again after a pause ──┐
//!    └───────────────────────────────────────────────────────────────────────────────┘
//! ```
//! What the real process does on a blocking socket before its stages run, this stage does over the
//! same exchange: a client of the master, with the events and the frames of one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use timestone_client::{ClientStageEvent, Native};
use timestone_seda::{
    Context, DialId, FrameBatch, Layout, NetCommand, NetConfig, NetEvent, NetStage, Network,
    ReplyAddress, Stage, StageId,
};
use timestone_server::{JoinStep, Joining, Registration};
use timestone_types::Timestamp;
use timestone_wire::without_clock;

const NET: StageId = StageId::new(0);
const JOIN: StageId = StageId::new(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// An attempt that is not answered for this long is given up.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// What came of it, once it is there.
pub(crate) type JoinOutcome = Arc<Mutex<Option<Result<Registration, String>>>>;

struct JoinStage {
    master: SocketAddr,
    joining: Joining,
    attempt: Option<Joining>,
    reply_to: Option<ReplyAddress>,
    dials: u64,
    again_at: Timestamp,
    outcome: JoinOutcome,
}

impl JoinStage {
    fn send(
        &self,
        ctx: &mut Context<'_, ClientStageEvent>,
        reply_to: ReplyAddress,
        bytes: Vec<u8>,
    ) {
        // The net stage is on the same thread; what does not fit its queue is asked again in the
        // next attempt.
        let _ = ctx.send(
            NET,
            ClientStageEvent::Command(NetCommand::Send(FrameBatch::new(reply_to, bytes))),
        );
    }

    fn give_up(&mut self, ctx: &mut Context<'_, ClientStageEvent>) {
        if let Some(reply_to) = self.reply_to.take() {
            let _ = ctx.send(NET, ClientStageEvent::Command(NetCommand::Abort(reply_to)));
        }
        self.attempt = None;
        self.again_at = ctx.now().saturating_add(PAUSE);
    }
}

impl Stage<ClientStageEvent> for JoinStage {
    fn name(&self) -> &str {
        "join"
    }

    fn handle(
        &mut self,
        ctx: &mut Context<'_, ClientStageEvent>,
        events: &mut VecDeque<ClientStageEvent>,
    ) {
        while let Some(event) = events.pop_front() {
            match event {
                ClientStageEvent::Net(NetEvent::Connected(view)) => {
                    let mut joining = self.joining.clone();
                    let bytes = joining.begin();
                    self.attempt = Some(joining);
                    self.reply_to = Some(view.reply_to);
                    self.send(ctx, view.reply_to, bytes);
                }
                ClientStageEvent::Net(NetEvent::FrameBatch(frame_batch))
                    if Some(frame_batch.reply_to) == self.reply_to =>
                {
                    let Some(attempt) = &mut self.attempt else { continue };
                    let answer = without_clock(&frame_batch.bytes);
                    if answer.is_empty() {
                        continue;
                    }
                    let done = match attempt.answered(answer) {
                        Ok(JoinStep::Send(bytes)) => {
                            self.send(ctx, frame_batch.reply_to, bytes);
                            continue;
                        }
                        Ok(JoinStep::Joined(registration)) => Ok(registration),
                        Err(words) => Err(words),
                    };
                    *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                    self.give_up(ctx);
                }
                // What ends an earlier attempt is no news.
                ClientStageEvent::Net(NetEvent::Disconnected { reply_to, .. })
                    if Some(reply_to) == self.reply_to =>
                {
                    self.give_up(ctx)
                }
                ClientStageEvent::Net(NetEvent::DialFailed { dial, .. })
                    if dial.number() == self.dials =>
                {
                    self.give_up(ctx)
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, ClientStageEvent>) {
        if ctx.now() < self.again_at {
            return;
        }
        self.give_up(ctx);
        self.again_at = ctx.now().saturating_add(RETRY_TIMEOUT);
        self.dials += 1;
        let dial =
            NetCommand::Dial { dial: DialId::new(self.dials), address: self.master, owner: JOIN };
        let _ = ctx.send(NET, ClientStageEvent::Command(dial));
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        Some(self.again_at)
    }
}

/// The stages of a process that joins the cluster of the master at `master`.
pub(crate) fn stages(
    master: SocketAddr,
    joining: Joining,
    network: Arc<dyn Network>,
) -> (Vec<Box<dyn Stage<ClientStageEvent>>>, Layout, JoinOutcome) {
    let outcome = JoinOutcome::default();
    let config = NetConfig {
        name: "join-net".to_owned(),
        owner: Some(JOIN),
        network,
        ..NetConfig::default()
    };
    let stage = JoinStage {
        master,
        joining,
        attempt: None,
        reply_to: None,
        dials: 0,
        again_at: Timestamp::ZERO,
        outcome: Arc::clone(&outcome),
    };
    let stages: Vec<Box<dyn Stage<ClientStageEvent>>> =
        vec![Box::new(NetStage::new(Native::of(JOIN), config)), Box::new(stage)];
    (stages, Layout::single(2), outcome)
}

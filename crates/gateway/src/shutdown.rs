//! The end of a gateway, bounded in time.
//!
//! ```text
//!   shutting down ── LAST_COMMANDS ─► waiting commands are dropped
//!        ├── all is answered ──────────────────────► the session is closed ─► ended
//!        └── LAST_ANSWERS ─► given up: the session is closed ─────────────────► ended
//! ```
//! Invariants: each step is taken once; nothing is given up before the session is closed.

use timestone_types::Timestamp;

use crate::limits::{LAST_ANSWERS, LAST_COMMANDS};
use crate::parts::Parts;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shutdown {
    thread: usize,
    /// Since when the process is shutting down.
    since: Option<Timestamp>,
    /// The shards were told that nothing comes any more.
    closed_session: bool,
    /// It ends although not everything is answered: what comes of that is nobody's business any
    /// more, and nothing follows from it.
    gave_up: bool,
    /// The shards know that nothing comes any more.
    has_ended: bool,
}

impl Shutdown {
    /// Not begun, for the gateway of a thread.
    pub(crate) const fn new(thread: usize) -> Self {
        Self { thread, since: None, closed_session: false, gave_up: false, has_ended: false }
    }

    /// Whether the shards were told that nothing comes any more.
    pub(crate) const fn has_closed_session(&self) -> bool {
        self.closed_session
    }

    /// Whether it ends although not everything is answered.
    pub(crate) const fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Whether it has ended.
    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes the next step, if it is time.
    pub(crate) fn advance(&mut self, now: Timestamp, parts: &mut Parts) {
        let waited = now.since(*self.since.get_or_insert(now));
        let waits = waits_for_everything();
        if waited >= LAST_COMMANDS && !waits {
            parts.connections.drop_waiting_commands(&mut parts.memory);
        }
        let is_done = parts.is_done();
        let is_over = waited >= LAST_ANSWERS && !waits;
        if !self.closed_session && (is_done || is_over) {
            self.closed_session = true;
            parts.backend.engine().close(now);
        }
        if is_over && !is_done && !self.gave_up {
            assert!(self.closed_session, "nothing is given up before the session is closed");
            self.gave_up = true;
            let unresolved = parts.backend.engine_ref().unresolved();
            tracing::warn!(
                gateway = self.thread,
                unresolved,
                "some commands of redis clients got no answer in time; they are given up"
            );
        }
    }

    /// The last frame has been sent.
    pub(crate) fn end(&mut self) {
        assert!(self.closed_session && !self.has_ended, "a gateway ends once, with its session");
        self.has_ended = true;
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let since = self.since?;
        let steps = [LAST_COMMANDS, LAST_ANSWERS].map(|span| since.saturating_add(span));
        steps.into_iter().find(|at| *at > now)
    }
}

/// Whether the end of a process waits for whoever does not read, and for answers that never come.
fn waits_for_everything() -> bool {
    timestone_types::is_planted!(EndlessGateway)
}

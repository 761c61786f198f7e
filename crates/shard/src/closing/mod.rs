//! The end of a shard: when its store may be closed.
//!
//! The store takes no writes from then on, so nobody may be about to send one: no gateway and no
//! embedded client of this process, which finish what they have begun, step by step and shard by
//! shard; nor whoever decides about what was promised here, unless that one stays silent. What is on
//! its way already has come within [`CLOSE_INTERVAL`].
//!
//! Gateways and embedded clients end within seconds, also when they get no answer (a log that failed
//! gives none), so none is waited for without end. Questions of peers may come again and again: how
//! long decisions are waited for counts from the first quiet moment.

pub(crate) mod hand_over;

use std::time::Duration;

use timestone_types::Timestamp;

use crate::limits::{CLOSE_INTERVAL, LAST_DECISIONS};

/// How far the end has come.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Since when nothing is under way here.
    quiet_since: Option<Timestamp>,
    /// Since when decisions are waited for.
    undecided_since: Option<Timestamp>,
    /// When to look again whether the store may be closed.
    again_at: Option<Timestamp>,
    /// A run without a log has come to its end, and writes what others still need into one.
    has_taken_log: bool,
    is_draining: bool,
    is_down: bool,
}

impl Closing {
    /// Whether it has been quiet for long enough, and then whether the time for decisions is over.
    pub(crate) fn waited(&mut self, now: Timestamp, is_quiet: bool) -> Option<bool> {
        assert!(!self.is_draining, "the store is closed once");
        if !is_quiet {
            self.quiet_since = None;
            return None;
        }
        let quiet = now.since(*self.quiet_since.get_or_insert(now));
        let silent = now.since(*self.undecided_since.get_or_insert(now));
        (quiet >= CLOSE_INTERVAL).then(|| silent >= last_decisions())
    }

    /// The store is told to close, if it `may`; else it is looked again: nobody tells when the last
    /// gateway or embedded client has ended.
    pub(crate) fn set_draining(&mut self, now: Timestamp, may: bool) {
        assert!(!self.is_draining, "the store is closed once");
        self.is_draining = may;
        self.again_at = Some(now.saturating_add(CLOSE_INTERVAL)).filter(|_| !may);
    }

    /// Whether the store was told to close.
    #[inline]
    pub(crate) const fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// The store is closed.
    pub(crate) fn set_down(&mut self) {
        debug_assert!(self.is_draining, "the store closes when it is told to");
        self.is_down = true;
    }

    /// Whether the store is closed.
    pub(crate) const fn is_down(&self) -> bool {
        self.is_down
    }

    /// What others still need is written into a log.
    pub(crate) fn take_log(&mut self) {
        assert!(!self.has_taken_log, "a log is taken once");
        self.has_taken_log = true;
    }

    /// Whether a run without a log has taken one.
    pub(crate) const fn has_taken_log(&self) -> bool {
        self.has_taken_log
    }

    /// When to look again.
    pub(crate) const fn deadline(&self) -> Option<Timestamp> {
        self.again_at
    }
}

/// How long decisions are waited for at the end.
fn last_decisions() -> Duration {
    if timestone_types::is_planted!(EndsUndecided) { Duration::ZERO } else { LAST_DECISIONS }
}

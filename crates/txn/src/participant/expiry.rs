//! Expiry: as of when it is judged, and what of it may be told.
//!
//! ```text
//!      now (when the bound is asked for)         bound − EXPIRY_BELOW_BOUND                  bound
//!   ────┼───────────────────────────────────────────────┼──────────────────────────────────────┤
//!       │ the next run goes on here or above            │ this run tells nothing expired from here on,
//!       └────────────── in doubt for it ────────────────┘ until a later bound is durable
//! ```
//! Expiry is judged by this server's own time, which never goes back within a run. Over a restart
//! the clock may: the next run knows of the last one's time what the durable read bound says, which
//! was written [`BOUND_AHEAD`] ahead of it. So it judges from there on, and nothing expires before
//! its time. What the last run may have *told* expired reaches further, and therefore
//!
//! - nothing is told expired unless the durable bound lies [`EXPIRY_BELOW_BOUND`] above its expiry,
//!   and
//! - a key that is alive, but would not be at that limit of the last run, is in doubt: it is not
//!   told alive either. Its reader asks again, until time has passed the expiry.
//!
//! A walk tells of many keys: it begins above the doubt, and is refused as long as time has not
//! passed that. A validation takes whatever may have been told expired as expired: its transaction
//! begins again, and reads.
//!
//! Where the clock was set back further than time goes on by itself, time stands still for this
//! shard; the doubt ends all the same, as the time that passes here has passed since the last run.

use timestone_types::{Expiry, Timestamp, is_planted};

use crate::Refusal;
use crate::limits::{BOUND_AHEAD, EXPIRY_BELOW_BOUND};

/// As of when the expiry of what is looked up is judged, and what of it may be told. It goes with
/// every output that has something looked up, and holds for whatever comes of that, also when a
/// page has to be read first: what may be told then only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiryRule {
    /// This server's time, which never goes back here: a latest version that expires by then is
    /// absent, whatever the reader's clock shows.
    pub as_of: Timestamp,
    settled: Timestamp,
    told: Timestamp,
    is_log_lost: bool,
}

impl ExpiryRule {
    /// Whether it may be told that a record is present, or absent (and `expires_at` its expiry, if
    /// it has one): it may be in doubt whether it had expired before a restart, or will have after
    /// the next one. `snapshot` is what is read, [`Timestamp::MAX`] for what is latest.
    ///
    /// # Errors
    /// [`Refusal::Recovering`] while time has not come so far again as the last run may have told
    /// of, or the log is late; [`Refusal::LogLost`] where no log will ever know of the expiry.
    #[inline]
    pub fn may_tell(
        &self,
        snapshot: Timestamp,
        is_present: bool,
        expires_at: Expiry,
    ) -> Result<(), Refusal> {
        let is_certain = if is_present {
            !expires_at.has_passed(self.told.min(snapshot))
        } else {
            expires_at.is_never()
                || expires_at.has_passed(self.settled)
                || is_planted!(UnsettledExpiry)
        };
        if is_certain { Ok(()) } else { Err(self.doubt(is_present)) }
    }

    #[cold]
    const fn doubt(&self, is_present: bool) -> Refusal {
        if self.is_log_lost && !is_present { Refusal::LogLost } else { Refusal::Recovering }
    }
}

/// What is known of time where expiry is judged by it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpiryTime {
    /// As of when it was judged last.
    judged: Timestamp,
    /// What expires by then may be told expired: a bound is durable that lets the next run know.
    settled: Timestamp,
    /// What expires by then may have been told expired by earlier runs.
    told: Timestamp,
    /// Where time stood at least when the last run ended, and this server's time when this one
    /// began.
    began: (Timestamp, Timestamp),
}

impl ExpiryTime {
    /// Goes on after a run whose last durable bound is `durable`; this one begins at `bound`, which
    /// is written nowhere yet if it is later.
    pub(super) fn after(durable: Timestamp, bound: Timestamp, now: Timestamp) -> Self {
        let since = bound.saturating_sub(BOUND_AHEAD);
        let told = if is_planted!(ForgottenToldExpiry) {
            Timestamp::ZERO
        } else {
            bound.saturating_sub(EXPIRY_BELOW_BOUND)
        };
        let settled = durable.saturating_sub(EXPIRY_BELOW_BOUND);
        Self { judged: since, settled, told, began: (since, now) }
    }

    /// A bound is durable.
    pub(super) fn bound_is_durable(&mut self, bound: Timestamp) {
        let settled = bound.saturating_sub(EXPIRY_BELOW_BOUND);
        assert!(
            settled >= self.settled || is_planted!(ForgottenReadBound),
            "what may be told may be told for ever"
        );
        self.settled = settled;
    }

    /// As of when the expiry of a latest version is judged that is read at `at`: by this server's
    /// time, which never goes back here. So what one reader has seen expired no later one sees
    /// alive, whatever their clocks show. What is found so may be told if [`Self::check`] lets it.
    #[inline]
    pub(super) fn judge(&mut self, now: Timestamp, at: Timestamp) -> Timestamp {
        let before = self.judged;
        self.judged = self.judged.max(now);
        if self.judged < self.told {
            self.leave_doubt(now);
        }
        debug_assert!(self.judged >= before, "the time of expiry never goes back");
        if is_planted!(ExpiryByClients) { at } else { self.judged }
    }

    /// What expires by then may have been told expired by earlier runs.
    #[inline]
    pub(super) const fn told(&self) -> Timestamp {
        self.told
    }

    /// What expires by then may be told expired.
    pub(super) const fn settled(&self) -> Timestamp {
        self.settled
    }

    /// Whether what has expired by then may be told expired.
    pub(super) fn is_settled(&self, judged: Timestamp) -> bool {
        judged <= self.settled || is_planted!(UnsettledExpiry)
    }

    /// What goes with an answer that is looked up now, at `at`.
    #[inline]
    pub(super) fn rule(&mut self, now: Timestamp, at: Timestamp, is_log_lost: bool) -> ExpiryRule {
        let as_of = self.judge(now, at);
        self.assert_sound();
        ExpiryRule { as_of, settled: self.settled, told: self.told, is_log_lost }
    }

    #[cold]
    fn leave_doubt(&mut self, now: Timestamp) {
        let (since, began) = self.began;
        self.judged = self.judged.max(since.saturating_add(now.since(began)).min(self.told));
        self.assert_sound();
    }

    /// What holds between look-ups.
    #[inline]
    fn assert_sound(&self) {
        debug_assert!(self.judged >= self.began.0, "time goes on from where the last run ended");
    }
}

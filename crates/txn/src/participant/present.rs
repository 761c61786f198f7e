//! What promises the present, at a shard that has other replicas.
//!
//! ```text
//!    earlier primaries may answer │               this one alone              │ later ones may answer
//!   ─────────────────────────old lease ── now − error ── now ── now + error ── bound.durable ────────▶ t
//! ```
//! Another replica may become primary, and the one before it not hear of it. Snapshots do not mind:
//! each primary serves them below its lease, which is the durable read bound, and writes nothing at
//! or below the leases of earlier ones. A single read, a condition and a strict read are about what is
//! there *now*, whatever timestamp they come with. Somebody else may know better at any true time
//! that the lease does not cover. So
//!
//! - they are answered while the clock plus its error lies below the lease (rule P4);
//! - a new primary waits until its clock less its error has passed the highest lease of earlier
//!   ones, the **old lease**, with those, and with whatever tells that something is or will be committed:
//!   a *yes*, a *prepared* answer to termination, an acknowledgement of a write (rule P5).
//!
//! A *no*, an abort and a snapshot below the lease wait for nothing. A shard without other replicas
//! waits for no lease and needs none. Source: MILANA §4.5; docs/protocol/replication.md, "Leases".

use core::time::Duration;

use timestone_types::{Timestamp, TxnOutcome, is_planted};

use super::Participant;
use super::horizon::Horizon;
use super::input::{Input, ReadAt, Token, TxnStatus, Wait};
use super::output::Output;
use super::transactions::Transactions;
use crate::Refusal;
use crate::limits::MAX_PRESENT_ERROR;
use crate::validation::Validation;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Present {
    has_replicas: bool,
    /// True time lies within this of the time that is handed in; nothing is known before it is told.
    error: Option<Duration>,
    /// Earlier primaries may answer until true time has passed it; zero when it has.
    old_lease: Timestamp,
}

impl Present {
    pub(super) const fn new(has_replicas: bool) -> Self {
        Self { has_replicas, error: None, old_lease: Timestamp::ZERO }
    }

    #[inline]
    pub(super) const fn has_replicas(&self) -> bool {
        self.has_replicas
    }

    /// True time lies within this of the time that is handed in.
    pub(super) const fn set_error(&mut self, bound: Duration) {
        self.error = Some(bound);
    }

    /// How wrong the clock may be, as far as the present is told at all.
    pub(super) fn error_of_lease(&self) -> Duration {
        let error = self.error.filter(|error| self.has_replicas && *error <= MAX_PRESENT_ERROR);
        error.unwrap_or_default()
    }

    /// A run begins; earlier primaries have leases up to `old_lease`.
    pub(super) fn begin(&mut self, old_lease: Timestamp) {
        assert!(self.old_lease == Timestamp::ZERO, "a run begins once");
        if self.has_replicas {
            self.old_lease = old_lease;
        }
    }

    /// Whether earlier primaries may still answer.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.old_lease > Timestamp::ZERO
    }

    /// When that is over, by a clock that goes on being as wrong as it is.
    pub(super) fn passes_at(&self) -> Option<Timestamp> {
        self.error.filter(|_| self.is_waiting()).map(|error| self.old_lease.saturating_add(error))
    }

    /// Looks whether it is over. It stays so: true time does not go back, however wrong the clock
    /// becomes.
    fn observe(&mut self, now: Timestamp) -> bool {
        assert!(self.has_replicas || !self.is_waiting(), "one replica waits for nobody");
        let is_over = self.passes_at().is_some_and(|at| at <= now);
        if is_over {
            self.old_lease = Timestamp::ZERO;
        }
        is_over
    }

    /// The latest that true time can be, which the lease must lie above; `None`: no lease is needed.
    ///
    /// # Errors
    /// [`Refusal::Recovering`] while the clock is not known well enough.
    #[inline]
    fn latest_true_time(
        &self,
        now: Timestamp,
        error: Option<Duration>,
    ) -> Result<Option<Timestamp>, Refusal> {
        if !self.has_replicas || is_planted!(ReadsAboveLease) {
            return Ok(None);
        }
        match error {
            Some(error) if error <= MAX_PRESENT_ERROR => Ok(Some(now.saturating_add(error))),
            Some(_) | None => Err(Refusal::Recovering),
        }
    }
}

impl<V: Validation> Participant<V> {
    /// Until when earlier primaries may still answer, by a clock that goes on being as wrong as it is:
    /// what promises the present waits for that. `None` when nobody may, or nothing is known of the
    /// clock.
    #[must_use]
    pub fn waits_for_leases_until(&self) -> Option<Timestamp> {
        self.horizon.present.passes_at()
    }

    /// Whether an input waits because earlier primaries may still answer; then that is said.
    #[cold]
    pub(super) fn waits_for_present(
        &mut self,
        now: Timestamp,
        input: &Input<'_>,
        out: &mut Vec<Output>,
    ) -> bool {
        if matches!(input, Input::DirectRead { .. } | Input::DirectWrite(_)) {
            // A call has one answer and wakes nobody.
            return false;
        }
        let old_lease = self.horizon.present.old_lease;
        if self.horizon.present.observe(now) {
            self.life.waiting.wake_for_present(out);
            return false;
        }
        let Some((token, wait)) = tells_present(&self.life.txns, input) else { return false };
        let refusal = match Horizon::may_write(now, old_lease) {
            Err(refusal) => Some(refusal),
            Ok(()) => self.life.waiting.is_full().then_some(Refusal::Busy),
        };
        match refusal {
            Some(refusal) => out.push(Output::Refuse { token, refusal }),
            None => {
                self.life.waiting.park_for_present(token, wait);
                out.push(Output::Parked { token });
            }
        }
        true
    }

    /// Whether what is there now may be told. If not, whoever asked waits until a bound that lies
    /// far enough ahead is durable, or is refused.
    #[inline]
    pub(super) fn shows_present(
        &mut self,
        now: Timestamp,
        (token, wait): (Token, Wait),
        out: &mut Vec<Output>,
    ) -> bool {
        let present = &self.horizon.present;
        match present.latest_true_time(now, present.error) {
            Ok(None) => true,
            Ok(Some(latest)) if self.horizon.bound.admits(latest) => true,
            Ok(Some(latest)) => {
                self.park_behind_bound(now, token, wait, latest, out);
                false
            }
            Err(refusal) => {
                out.push(Output::Refuse { token, refusal });
                false
            }
        }
    }

    /// Whether its lease reaches no further than needed ([`Input::Leases`]): whoever becomes primary now
    /// waits for about [`crate::limits::SHORT_LEASE`] and twice the clock's error.
    #[must_use]
    pub fn has_short_lease(&self, now: Timestamp) -> bool {
        self.horizon.bound.is_short(now, self.horizon.present.error_of_lease())
    }

    /// Whether what is there now may be told without any wait, within a call.
    #[inline]
    pub(super) fn may_tell_at_once(&self, now: Timestamp) -> bool {
        let present = &self.horizon.present;
        if is_planted!(CallsAboveLease) {
            return true;
        }
        let admits = |latest: Option<Timestamp>| {
            latest.is_none_or(|latest| self.horizon.bound.admits(latest))
        };
        !present.is_waiting() && present.latest_true_time(now, present.error).is_ok_and(admits)
    }

    /// Whether what is there now may be told, by a clock that shows `now` and is wrong by no more than
    /// `error`. Whoever answers a single read, a strict read or a question how new a keyspace is
    /// asks this just before, by a clock that is read then: the input was taken at the time of a
    /// turn, which may have begun before the request was sent, and a page may have been read since.
    ///
    /// # Errors
    /// [`Refusal::Recovering`] where another primary may answer by now; never without replicas.
    pub fn check_present(&self, now: Timestamp, error: Duration) -> Result<(), Refusal> {
        match self.horizon.present.latest_true_time(now, Some(error))? {
            Some(latest) if !self.horizon.bound.admits(latest) => Err(Refusal::Recovering),
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether an answer to it would tell what is there now, or that something is or will be committed;
/// and how it may wait.
fn tells_present(txns: &Transactions, input: &Input<'_>) -> Option<(Token, Wait)> {
    // What is asked about may be told to be committed, or to be promised.
    let is_vouched_for = |txn, status_of_promise| match txns.status_of(txn).0 {
        TxnStatus::Decided(TxnOutcome::Committed(_)) => true,
        TxnStatus::Prepared(_) => status_of_promise,
        TxnStatus::Decided(TxnOutcome::Aborted) | TxnStatus::Unknown => false,
    };
    let (is_read, asked) = match *input {
        Input::Read { token, at: ReadAt::Latest(_), wait, .. } => (true, (token, wait)),
        Input::Newest { token, .. } => (true, (token, Wait::Yes)),
        Input::Prepare(prepare) => (prepare.leaves_no_trace(), (prepare.token, prepare.wait)),
        Input::Status { token, txn } if is_vouched_for(txn, false) => (false, (token, Wait::No)),
        Input::Terminate { token, txn, .. } | Input::Freeze { token, txn, .. }
            if is_vouched_for(txn, true) =>
        {
            (false, (token, Wait::No))
        }
        _ => return None,
    };
    let goes_on = (is_read && is_planted!(ReadsUnderOldLease))
        || (!is_read && is_planted!(VotesUnderOldLease));
    (!goes_on).then_some(asked)
}

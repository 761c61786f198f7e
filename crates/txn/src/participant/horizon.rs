//! What time allows: the durable read bound, the watermark, the guard against broken clocks, as of
//! when expiry is judged, and, with replicas, when the present may be told.
//!
//! ```text
//!   0 ─────── watermark.durable ── watermark.pledged ───────── now ──── bound.durable ── bound.asked ──▶ t
//!     may be collected │ nothing new is let in │     served            │ not served yet
//! ```
//!
//! The **read bound** lies above every timestamp that was served; it is durable before anything at
//! or above it is served, and after a restart the low-water timestamp starts there, so that an
//! access record lost with the memory is never undercut. The **watermark** travels in the same log
//! record: it comes into force (versions may be collected, outcomes forgotten) when it is durable,
//! so it never falls back. From the moment it is *asked* to be logged, nothing below it is let in
//! any more.
//!
//! Invariants: bound and watermark only rise; `watermark.durable` ≤ `watermark.pledged`;
//! `bound.durable` ≤ `bound.asked`.
//!
//! It knows no transactions: who is asked for the watermark passes what holds it back.

use core::ops::Range;
use core::time::Duration;

use timestone_types::{Timestamp, is_planted, limits as shared};

use super::expiry::{ExpiryRule, ExpiryTime};
use super::present::Present;
use crate::Refusal;
use crate::limits::{BOUND_AHEAD, MAX_LOW_WATER_LEAD, MIN_LEASE, RENEWALS_OF_LEASE, SHORT_LEASE};

/// The durable read bound and its renewal.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadBound {
    /// How far ahead of the clock it is written, at least.
    lease: Duration,
    /// What is served lies below.
    durable: Timestamp,
    /// What will be durable.
    asked: Timestamp,
    renew_at: Timestamp,
    /// It reaches no further than needed: another replica is to become primary, and waits for it.
    is_short: bool,
    /// The log has failed, so that nothing becomes durable any more. See [`super::log_lost`].
    lost: bool,
}

impl Default for ReadBound {
    fn default() -> Self {
        Self::new(BOUND_AHEAD)
    }
}

impl ReadBound {
    const fn new(lease: Duration) -> Self {
        let (durable, asked, renew_at) = (Timestamp::ZERO, Timestamp::ZERO, Timestamp::ZERO);
        Self { lease, durable, asked, renew_at, is_short: false, lost: false }
    }

    /// Goes on after a run that left `durable`; this one begins at `began`.
    pub(super) fn begin(&mut self, durable: Timestamp, began: Timestamp) {
        assert!(durable <= began, "a run begins at or above what earlier ones have served");
        (self.durable, self.asked) = (durable, began);
    }

    /// Whether something at `at` may be served now.
    #[inline]
    pub(super) fn admits(&self, at: Timestamp) -> bool {
        at < self.durable
    }

    /// What is served lies below.
    pub(super) const fn durable(&self) -> Timestamp {
        self.durable
    }

    /// Whether a bound above `at` is on its way.
    pub(super) fn is_asked_for(&self, at: Timestamp) -> bool {
        at < self.asked
    }

    pub(super) const fn renew_at(&self) -> Timestamp {
        self.renew_at
    }

    /// The lease in force.
    fn lease(&self) -> Duration {
        if self.is_short { self.lease.min(SHORT_LEASE) } else { self.lease }
    }

    /// How long after a bound the next one is written.
    fn renewal(&self) -> Duration {
        self.lease() / RENEWALS_OF_LEASE
    }

    /// How far ahead of the clock the bound is written. What promises the present needs one above the
    /// clock's `error`, until the next one is durable: a renewal later, and as much again for a slow
    /// sync.
    fn ahead(&self, error: Duration) -> Duration {
        self.lease().max(error + 2 * self.renewal()).min(BOUND_AHEAD)
    }

    /// The bound to be written next: ahead of the clock, which is wrong by no more than `error`, and
    /// above `at_least`.
    fn ask(&mut self, now: Timestamp, at_least: Timestamp, error: Duration) -> Timestamp {
        let (ahead, renewal) = (self.ahead(error), self.renewal());
        self.asked =
            now.saturating_add(ahead).max(at_least.saturating_add(renewal)).max(self.asked);
        // A long one that was asked for before lasts for a while.
        let from = if self.is_short { self.asked.saturating_sub(ahead).max(now) } else { now };
        self.renew_at = from.saturating_add(renewal);
        assert!(self.asked >= self.durable, "the bound only rises");
        self.asked
    }

    /// From now on it reaches no further than needed, or as far as usual again.
    pub(super) const fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
        if !is_short {
            self.renew_at = Timestamp::ZERO;
        }
    }

    /// Whether it reaches no further than needed, with everything that is on its way.
    pub(super) fn is_short(&self, now: Timestamp, error: Duration) -> bool {
        self.is_short && self.asked <= now.saturating_add(self.ahead(error))
    }

    #[inline]
    pub(super) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// The log has failed: the bound stays where it is.
    pub(super) fn lose(&mut self) {
        assert!(self.asked >= self.durable, "the bound only rises");
        self.lost = true;
    }

    /// When a read of what is latest takes place without a log: below the durable bound, unless the
    /// version itself lies above it, whose record raises the next run's low-water timestamp as the
    /// bound does.
    #[cold]
    fn latest_without_log(&self, asked: Timestamp) -> Timestamp {
        asked.min(self.durable.saturating_sub(Duration::from_nanos(1)))
    }
}

/// What the stage has let be collected: what [`super::Output::Began`] and the last
/// [`super::Output::AdvanceWatermark`] told. Whoever
/// answers later than in the step that let a read take place asks it: versions may have been
/// collected while a page was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected(Timestamp);

impl Collected {
    /// The watermark rose.
    pub fn advance(&mut self, watermark: Timestamp) {
        assert!(watermark >= self.0, "the watermark only rises");
        self.0 = watermark;
    }

    /// Versions below it may be gone.
    #[inline]
    #[must_use]
    pub const fn below(self) -> Timestamp {
        self.0
    }

    /// Whether a read at `at` may still be answered.
    ///
    /// # Errors
    /// [`Refusal::TooOld`] when the watermark has passed `at` meanwhile.
    #[inline]
    pub fn check(self, at: Timestamp) -> Result<(), Refusal> {
        if at < self.0 && !is_planted!(UncheckedAnswer) {
            return Err(Refusal::TooOld { watermark: self.0 });
        }
        Ok(())
    }
}

/// The watermark, and what is not certain below it.
#[derive(Clone, Debug)]
pub(super) struct Watermark {
    durable: Timestamp,
    pledged: Timestamp,
    /// Commits of the last run in here may have been carried out or not, whatever the watermark:
    /// their promises may be lost.
    uncertain: Range<Timestamp>,
    /// From then on their write sets are not asked for: nobody who has one comes any more. Peers
    /// have none, and would tell the decision for ever.
    uncertain_until: Timestamp,
    /// After a restart, sessions that were live may come back until then.
    returning_until: Timestamp,
}

impl Default for Watermark {
    fn default() -> Self {
        Self {
            durable: Timestamp::ZERO,
            pledged: Timestamp::ZERO,
            uncertain: Timestamp::ZERO..Timestamp::ZERO,
            uncertain_until: Timestamp::ZERO,
            returning_until: Timestamp::ZERO,
        }
    }
}

impl Watermark {
    /// Goes on at `durable` after a restart; what is uncertain below it began at `certain`.
    pub(super) fn begin(
        &mut self,
        now: Timestamp,
        durable: Timestamp,
        certain: Option<Timestamp>,
        bound: Timestamp,
    ) {
        assert!(durable >= self.durable, "the watermark only rises");
        (self.durable, self.pledged) = (durable, durable);
        // A session that lived held the watermark below its begin, and one that fell silent for
        // this long after its last word. So nothing that lies above can have been collected by the
        // last run, nor a delete that came after it.
        let older = if is_planted!(TrustedOldDecisions) {
            Timestamp::ZERO
        } else {
            durable.saturating_sub(shared::SESSION_TTL)
        };
        self.uncertain =
            certain.map_or(Timestamp::ZERO..Timestamp::ZERO, |certain| certain.max(older)..bound);
        self.uncertain_until = now.saturating_add(shared::SESSION_TTL);
    }

    /// Versions below it may be gone.
    #[inline]
    pub(super) const fn durable(&self) -> Timestamp {
        self.durable
    }

    /// Nothing below it is let in.
    #[inline]
    pub(super) const fn pledged(&self) -> Timestamp {
        self.pledged
    }

    /// Sessions that were live are waited for.
    pub(super) fn wait_for_sessions(&mut self, until: Timestamp) {
        assert!(until >= self.returning_until, "sessions are waited for once");
        self.returning_until = until;
    }

    /// Asks for a higher one. `held_at` is where sessions and transactions in flight hold it back;
    /// `None` leaves it where it is.
    fn ask(&mut self, now: Timestamp, held_at: Option<Timestamp>) -> Timestamp {
        if now >= self.returning_until
            && let Some(at) = held_at
        {
            self.pledged = self.pledged.max(at);
        }
        assert!(self.pledged >= self.durable, "the watermark only rises");
        self.pledged
    }

    /// What was asked for is durable; whether that is a higher one.
    fn is_durable(&mut self, at: Timestamp) -> bool {
        assert!(at >= self.durable && at <= self.pledged, "what becomes durable was asked for");
        let rose = at > self.durable;
        self.durable = at;
        rose
    }

    /// Whether a commit at this timestamp that is not known here was carried out here, and was
    /// forgotten: no watermark passes a promise of this shard, and nothing commits without one. It
    /// is the watermark that is *asked* to be logged, not the one in force: what is written from
    /// now on is logged behind the record that lets the higher one come into force, and must not
    /// lie below that. After a run without a log the watermark is put above all that was served,
    /// promises that are lost included: these are asked for, as long as nothing that was deleted
    /// since can have been collected.
    pub(super) fn was_carried_out(&self, at: Timestamp) -> bool {
        let below = if is_planted!(WriteBelowPledge) { self.durable } else { self.pledged };
        // What is deleted after the restart lies above the end of the range.
        let is_uncertain = self.uncertain.contains(&at)
            && (below <= self.uncertain.end || is_planted!(TrustedOldDecisions))
            && !is_planted!(TrustedWatermark);
        at < below && !is_uncertain
    }

    /// Whether a watermark above this timestamp is on its way. One that does not count yet may never
    /// do so, where another replica has become primary: nothing is concluded from it there.
    pub(super) fn is_passing(&self, at: Timestamp) -> bool {
        at >= self.durable && at < self.pledged
    }

    /// Whether the write set of a commit at this timestamp that is not known here is asked for: not
    /// for ever, since who tells the decision may be a peer, which has none. A write set that was
    /// asked for in time is carried out whenever it comes.
    pub(super) fn is_asked_for(&self, now: Timestamp, at: Timestamp) -> bool {
        let in_vain = self.uncertain.contains(&at)
            && now >= self.uncertain_until
            && !is_planted!(TrustedOldDecisions);
        !in_vain && !self.was_carried_out(at)
    }

    /// Whether the commit of an unknown transaction that began at `begin` may be carried out
    /// although the watermark is above it: asked for now, or asked for before. An abort that is
    /// told is recorded for so long.
    pub(super) fn is_uncertain_after(&self, begin: Timestamp) -> bool {
        begin < self.uncertain.end
            && self.pledged <= self.uncertain.end
            && !is_planted!(UnrecordedAbort)
    }

    /// Where what is uncertain ends.
    pub(super) const fn uncertain_end(&self) -> Timestamp {
        self.uncertain.end
    }

    /// Planted: what is uncertain is forgotten when nobody is asked for write sets any more.
    pub(super) fn forget_uncertain(&mut self, now: Timestamp) {
        assert!(is_planted!(ForgottenAborts), "it is uncertain as long as a commit may come");
        if now >= self.uncertain_until {
            self.uncertain = Timestamp::ZERO..Timestamp::ZERO;
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Horizon {
    pub(super) bound: ReadBound,
    pub(super) watermark: Watermark,
    pub(super) expiry: ExpiryTime,
    pub(super) present: Present,
    /// What was closed last: see [`super::closed`].
    pub(super) closed: Timestamp,
    /// How far the physical clock leads the time that this participant is given.
    pub(super) held_back: Duration,
}

impl Horizon {
    pub(super) fn new(has_replicas: bool, lease: Duration) -> Self {
        let lease = lease.clamp(MIN_LEASE, BOUND_AHEAD);
        let (bound, present) = (ReadBound::new(lease), Present::new(has_replicas));
        Self { bound, present, ..Self::default() }
    }

    /// What holds between inputs.
    #[inline]
    pub(super) fn assert_sound(&self) {
        let (bound, watermark) = (&self.bound, &self.watermark);
        debug_assert!(bound.durable <= bound.asked, "what is durable was asked for");
        debug_assert!(watermark.durable <= watermark.pledged, "what is in force was asked for");
    }

    /// Asks for a higher bound and watermark.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        at_least: Timestamp,
        held_at: Option<Timestamp>,
    ) -> (Timestamp, Timestamp) {
        let bound = self.bound.ask(now, at_least, self.present.error_of_lease());
        assert!(bound > at_least, "what waits for the bound lies below it");
        (bound, self.watermark.ask(now, held_at))
    }

    /// They are durable; whether the watermark has risen.
    pub(super) fn is_durable(&mut self, bound: Timestamp, watermark: Timestamp) -> bool {
        assert!(bound >= self.bound.durable, "the bound only rises");
        assert!(bound <= self.bound.asked, "what becomes durable was asked for");
        self.bound.durable = bound;
        self.expiry.bound_is_durable(bound);
        self.watermark.is_durable(watermark)
    }

    /// What goes with an answer that is looked up now, at `at`.
    #[inline]
    pub(super) fn expiry_rule(&mut self, now: Timestamp, at: Timestamp) -> ExpiryRule {
        self.assert_sound();
        self.expiry.rule(now, at, self.bound.lost)
    }

    /// The guard against broken clocks.
    #[inline]
    pub(super) fn within_lead(&self, now: Timestamp, at: Timestamp) -> Result<(), Refusal> {
        let lead = at.since(now);
        if lead > shared::MAX_CLOCK_LEAD && !is_planted!(TrustedClocks) {
            return Err(self.refuse_lead(lead));
        }
        Ok(())
    }

    /// The same for a read: at or below the low-water timestamp it raises no access record, so that
    /// it does no harm however far ahead it is.
    #[inline]
    pub(super) fn may_read_at(
        &self,
        now: Timestamp,
        at: Timestamp,
        low_water: Timestamp,
    ) -> Result<(), Refusal> {
        if at <= low_water { Ok(()) } else { self.within_lead(now, at) }
    }

    /// Whether a decision at this timestamp may be carried out. What commits was promised here: in
    /// this run within the lead of clocks, in an earlier one at or below the low-water timestamp.
    /// Anything else was made up, and would drag the read bound and the low-water timestamp along.
    pub(super) fn may_commit_at(
        &self,
        now: Timestamp,
        at: Timestamp,
        low_water: Timestamp,
    ) -> Result<(), Refusal> {
        self.assert_sound();
        if at == Timestamp::ZERO {
            return Err(Refusal::Contradiction);
        }
        self.may_read_at(now, at, low_water)
    }

    /// Writes commit above the low-water timestamp, and nobody is sent further ahead than clocks
    /// may be. Only a restart whose clock was set back puts it so far ahead that there is no
    /// waiting for it.
    #[inline]
    pub(super) fn may_write(now: Timestamp, low_water: Timestamp) -> Result<(), Refusal> {
        let left = low_water.since(now);
        if left > MAX_LOW_WATER_LEAD { Err(Refusal::ClockBehind { left }) } else { Ok(()) }
    }

    /// Whether what happened at `at` is not told yet: whoever hears of it goes on above it, and a
    /// restart has put that ahead of the clock, as it did the low-water timestamp. Nobody is sent
    /// into the future for it: other servers would refuse what comes from there. Where it lies so
    /// far ahead that there is no waiting for it, it is told.
    #[inline]
    pub(super) fn is_to_come(now: Timestamp, at: Timestamp, low_water: Timestamp) -> bool {
        at > now
            && low_water > now
            && Self::may_write(now, low_water).is_ok()
            && !is_planted!(SentIntoFuture)
    }

    /// At or above which timestamp what is latest is read. A log that is lost lets nothing in that the
    /// read could come after.
    #[inline]
    pub(super) fn latest_asked(&self, now: Timestamp, asked: Timestamp) -> Timestamp {
        if self.bound.lost {
            return self.bound.latest_without_log(asked);
        }
        let allowed = now.saturating_add(shared::MAX_CLOCK_LEAD);
        let is_held = asked.since(allowed) <= self.held_back;
        if is_held && is_planted!(MovesReadsBack) { asked.min(allowed) } else { asked }
    }

    /// Why what is latest is not read at `asked`. Only what its session may still have under way stands
    /// against a lower timestamp, so whoever asks may come again with that at once.
    pub(super) fn may_read_latest_at(
        &self,
        now: Timestamp,
        asked: Timestamp,
        low_water: Timestamp,
    ) -> Result<(), Refusal> {
        self.may_read_at(now, asked, low_water).map_err(|refusal| match refusal {
            Refusal::ClockHeld { .. } => Refusal::ClockHeld { wait: Duration::ZERO },
            other => other,
        })
    }

    /// Above every version that a read of what is latest may find.
    #[inline]
    pub(super) const fn settled(&self) -> Timestamp {
        if self.bound.lost { self.watermark.durable } else { self.watermark.pledged }
    }

    #[cold]
    fn refuse_lead(&self, lead: Duration) -> Refusal {
        let wait = lead.saturating_sub(shared::MAX_CLOCK_LEAD);
        if wait <= self.held_back {
            Refusal::ClockHeld { wait }
        } else {
            Refusal::ClockAhead { lead }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// How far ahead of the clock a bound is asked for, with this lease and this error of the clock;
    /// and when the next one is.
    fn asked(lease: u64, error: u64) -> (Duration, Duration) {
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let mut horizon = Horizon::new(true, ms(lease));
        horizon.present.set_error(ms(error));
        let (bound, _) = horizon.ask(now, Timestamp::ZERO, None);
        (bound.since(now), horizon.bound.renew_at().since(now))
    }

    #[test]
    fn a_lease_is_as_long_as_it_is_said_to_be_and_as_the_clocks_error_needs() {
        assert_eq!(asked(1000, 0), (ms(1000), ms(250)));
        assert_eq!(asked(50, 1), (ms(50), Duration::from_micros(12_500)));
        assert_eq!(asked(50, 250), (ms(275), Duration::from_micros(12_500)));
        // With more, nobody is told what is there now.
        assert_eq!(asked(50, 501), asked(50, 0));
        assert_eq!((asked(1000, 500), asked(10, 0)), (asked(1000, 0), asked(50, 0)));
    }

    #[test]
    fn no_bound_is_further_ahead_than_restarts_take_it_to_be() {
        for lease in [50, 100, 400, 999, 1000, 5000] {
            for error in [0, 1, 10, 250, 500, 10_000] {
                assert!(asked(lease, error).0 <= BOUND_AHEAD, "{lease} {error}");
            }
        }
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(10_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn a_short_lease_lets_the_last_bound_run_down_and_is_renewed_in_time() {
        let error = ms(3);
        let mut bound = ReadBound::default();
        bound.begin(Timestamp::ZERO, at(0));
        assert_eq!(bound.ask(at(0), at(0), error), at(1000));
        bound.set_short(true);
        assert_eq!(bound.ask(at(250), at(250), error), at(1000), "it only rises");
        assert_eq!(bound.renew_at(), at(925));
        assert!(!bound.is_short(at(899), error), "a successor would wait for it");
        assert!(bound.is_short(at(900), error));
        assert_eq!(bound.ask(at(925), at(925), error), at(1025));
        assert_eq!(bound.renew_at(), at(950));
        assert!(bound.is_short(at(925), error));
        assert_eq!(bound.ask(at(930), at(1200), error), at(1225), "a clock is ahead");
        assert!(!bound.is_short(at(930), error));
        bound.set_short(false);
        assert!(bound.renew_at() < at(940), "it is renewed at once");
        assert_eq!(bound.ask(at(940), at(940), error), at(1940));
    }

    #[test]
    fn a_short_lease_is_no_longer_than_the_usual_one_and_as_long_as_the_clocks_error_needs() {
        let mut bound = ReadBound::new(ms(60));
        bound.begin(Timestamp::ZERO, at(0));
        bound.set_short(true);
        assert_eq!(bound.ask(at(0), at(0), ms(0)), at(60));
        assert_eq!(bound.ask(at(100), at(100), ms(250)), at(380));
        let mut bound = ReadBound::default();
        bound.begin(Timestamp::ZERO, at(0));
        bound.set_short(true);
        assert_eq!(bound.ask(at(0), at(0), ms(16_000)), at(1000));
    }
}

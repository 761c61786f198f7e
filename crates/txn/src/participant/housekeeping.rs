//! Time and the log: deadlines, what becomes durable, the read bound and the watermark, what may be
//! forgotten with it, reports, and how a run begins.

use timestone_types::{Timestamp, TxnId, is_planted, limits as shared};

use super::Participant;
use super::appended::PendingRecord;
use super::input::LogRange;
use super::output::{LogIntent, Output};
use super::recovery::LogReplay;
use super::waiting::Timer;
use crate::limits::RETURN_MARGIN;
use crate::validation::Validation;

impl<V: Validation> Participant<V> {
    pub(super) fn tick(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        self.assert_serving();
        let is_lost = self.horizon.bound.is_lost();
        while let Some(timer) = self.life.waiting.pop_due(now) {
            match timer {
                Timer::Waiter(index, generation) => {
                    self.life.waiting.expire(&mut self.life.txns.table, index, generation, out)
                }
                Timer::Passed(token, deadline) => {
                    self.life.waiting.passed(now, token, deadline, out)
                }
                Timer::Effort(txn) if !is_lost => self.try_again(now, txn, out),
                Timer::Effort(_) => {}
            }
        }
        self.life.retire(now);
        if is_lost {
            // Nothing is resolved, and no bound renewed.
            return;
        }
        if is_planted!(ForgottenAborts) {
            self.horizon.watermark.forget_uncertain(now);
        }
        // Who ends a transaction answers itself first, that it is prepared.
        let waits = self.horizon.present.is_waiting() && !is_planted!(VotesUnderOldLease);
        while let Some((slot, by)) = self.life.txns.table.first_timeout() {
            if by > now || waits {
                break;
            }
            self.termination.time_out(now, &mut self.life, slot, out);
        }
        if now >= self.horizon.bound.renew_at() {
            self.ask_bound(now, now, out);
        }
    }

    fn try_again(&mut self, now: Timestamp, txn: TxnId, out: &mut Vec<Output>) {
        assert!(!self.horizon.bound.is_lost(), "nothing is resolved without a log");
        if !self.termination.try_again(now, &mut self.life, txn, out) {
            let (txns, waiting) = (&mut self.life.txns, &mut self.life.waiting);
            self.propagation.try_again(now, txns, waiting, txn, out);
        }
    }

    pub(super) fn deadline(&self) -> Timestamp {
        let mut next = self.life.validation.retire_at();
        if let Some(at) = self.life.waiting.next_timer() {
            next = next.min(at);
        }
        if self.horizon.bound.is_lost() {
            return next;
        }
        match (self.horizon.present.passes_at(), self.life.txns.table.first_timeout()) {
            (Some(at), _) => next = next.min(at),
            (None, Some((_, by))) if !self.horizon.present.is_waiting() => next = next.min(by),
            (None, _) => {}
        }
        next.min(self.horizon.bound.renew_at())
    }

    /// A range of records is durable.
    pub(super) fn durable(&mut self, now: Timestamp, range: LogRange, out: &mut Vec<Output>) {
        self.assert_serving();
        self.life.log.durable(range);
        while let Some(pending) = self.life.log.next_durable() {
            if let PendingRecord::Bound { bound, watermark } = pending {
                self.bound_is_durable(now, bound, watermark, out);
            } else if let Some(txn) = self.life.recorded(pending, out) {
                self.termination.abort_is_recorded(txn, out);
            }
        }
    }

    fn bound_is_durable(
        &mut self,
        now: Timestamp,
        bound: Timestamp,
        watermark: Timestamp,
        out: &mut Vec<Output>,
    ) {
        let has_risen = self.horizon.is_durable(bound, watermark);
        self.horizon.assert_sound();
        self.life.waiting.wake_behind_bound(out);
        if has_risen {
            out.push(Output::AdvanceWatermark(watermark));
            let (propagation, waiting) = (&mut self.propagation, &mut self.life.waiting);
            let propagate = |kept: &_| propagation.begin(now, waiting, kept, out);
            self.life.txns.forget_below(now, watermark, propagate);
        }
    }

    /// Asks for a higher read bound and watermark. The watermark is the minimum over live sessions'
    /// reports, the oldest begin in flight, and the own clock less the configured lag; with no live
    /// session it stays where it is (docs/protocol/time.md, "Watermark").
    pub(super) fn ask_bound(&mut self, now: Timestamp, at_least: Timestamp, out: &mut Vec<Output>) {
        let config = &self.life.config;
        let lag = config.watermark_lag.saturating_add(config.history);
        let held_at = self.life.txns.hold_watermark(now, lag);
        let (bound, watermark) = self.horizon.ask(now, at_least, held_at);
        self.horizon.assert_sound();
        let is_propagating = self.propagation.is_active();
        let intent = LogIntent::ReadBound { bound, watermark, is_propagating };
        self.life.log.append(intent, PendingRecord::Bound { bound, watermark }, out);
    }

    /// The log was read to its end: the run begins.
    ///
    /// After a restart no session has reported, and those that come first must not be taken for
    /// all: the watermark would pass what the others still use. So it stays where it is until every
    /// session that was live has had the time to dial again, which takes it no longer than the
    /// outage, nor than its longest pause.
    pub(super) fn recovery_done(
        &mut self,
        now: Timestamp,
        recovery: LogReplay,
        out: &mut Vec<Output>,
    ) {
        assert!(self.recovery.is_none(), "a run begins once");
        let watermark = recovery.watermark();
        if watermark > Timestamp::ZERO {
            out.push(Output::Began { watermark });
        }
        let sessions = recovery.restore(now, &mut self.horizon, &mut self.life, out);
        if let Some((outage, left)) = sessions
            && !is_planted!(ForgottenSessions)
        {
            let pause = outage.min(shared::MAX_RECONNECT_PAUSE).saturating_add(RETURN_MARGIN);
            self.horizon.watermark.wait_for_sessions(now.saturating_add(pause));
            self.life.txns.expect_clients(now, watermark, &left);
        }
        self.ask_bound(now, now, out);
    }

    /// The log has failed: reads that waited for the bound are judged again.
    pub(super) fn lose_log(&mut self, out: &mut Vec<Output>) {
        self.assert_serving();
        self.horizon.bound.lose();
        self.life.waiting.wake_behind_bound(out);
    }
}

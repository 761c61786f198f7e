//! Time: the window's rotation, decision timeouts, the durable read bound, the watermark, and what
//! may be forgotten with it.
//!
//! The **read bound** lies above every timestamp that was served; it is durable before anything at
//! or above it is served, and after a restart the floor starts there, so that a mark lost with the
//! memory is never undercut. The **watermark** travels in the same record: it comes into force
//! (versions may be collected, outcomes forgotten) when it is durable, so it never falls back. From
//! the moment it is *asked* to be logged, nothing below it is let in any more.
//!
//! The watermark is the minimum over live sessions' reports, the oldest begin in flight, and the
//! own clock less [`shared::WATERMARK_LAG`]; with no live session it stays where it is (time.md). A
//! session whose clock is further behind than [`shared::MAX_CLOCK_LAG`] holds it back by that and
//! no more.
//!
//! A restart forgets which sessions live, so the watermark waits for them
//! ([`Participant::wait_for_sessions`]).

use core::time::Duration;
use std::collections::BTreeSet;

use timestone_types::{ClientId, Sequence, Timestamp, TxnId, limits as shared};

use super::input::{Token, Wait, WriteKind};
use super::output::{LogIntent, Output};
use super::table::Kept;
use super::waiting::Timer;
use super::{Participant, Pending};
use crate::Refusal;
use crate::limits::{BOUND_AHEAD, BOUND_RENEWAL, RETURN_MARGIN};
use crate::planted::bugs;
use crate::validation::Validation;

/// The durable read bound and its renewal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    /// What is served lies below.
    pub(super) durable: Timestamp,
    /// What will be durable.
    pub(super) asked: Timestamp,
    pub(super) renew_at: Timestamp,
    /// The log has failed, so that nothing becomes durable any more. See [`super::log_lost`].
    pub(super) lost: bool,
}

impl Bound {
    /// Whether something at `at` may be served now.
    #[inline]
    pub(super) fn admits(&self, at: Timestamp) -> bool {
        at < self.durable
    }
}

impl<V: Validation> Participant<V> {
    pub(super) fn tick(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        while let Some(timer) = self.waiting.pop_due(now) {
            match timer {
                Timer::Waiter(index, generation) => {
                    self.waiting.expire(&mut self.table, index, generation, out)
                }
                Timer::Passed(token, deadline) => self.waiting.passed(now, token, deadline, out),
                Timer::Resolution(txn) => self.resolution_is_due(now, txn, out),
            }
        }
        self.drop_old_marks(now);
        #[cfg(feature = "planted-bugs")]
        if now >= self.uncertain_until && bugs().forget_told_aborts {
            self.uncertain = Timestamp::ZERO..Timestamp::ZERO;
        }
        while let Some((slot, by)) = self.table.first_timeout() {
            if by > now {
                break;
            }
            self.lose_patience(now, slot, out);
        }
        if now >= self.bound.renew_at {
            self.ask_bound(now, now, out);
        }
    }

    /// Turns the window of marks when it is time.
    pub(super) fn drop_old_marks(&mut self, now: Timestamp) {
        let held = self.table.live().flat_map(|(_, record)| &record.writes);
        let held = held.filter(|one| one.kind != WriteKind::Fence).map(|one| one.key);
        self.validation.retire(now, held);
    }

    pub(super) fn deadline(&self) -> Timestamp {
        if self.bound.lost {
            return self
                .waiting
                .next_timer()
                .map_or(self.validation.retire_at(), |at| at.min(self.validation.retire_at()));
        }
        let mut next = self.bound.renew_at.min(self.validation.retire_at());
        if let Some(at) = self.waiting.next_timer() {
            next = next.min(at);
        }
        if let Some((_, by)) = self.table.first_timeout() {
            next = next.min(by);
        }
        next
    }

    /// Something at `at` has to wait until a bound above it is durable.
    pub(super) fn park_behind_bound(
        &mut self,
        now: Timestamp,
        token: Token,
        wait: Wait,
        at: Timestamp,
        out: &mut Vec<Output>,
    ) {
        if self.waiting.is_full() || self.bound.lost {
            let refusal = if self.bound.lost { Refusal::LogLost } else { Refusal::Busy };
            return out.push(Output::Refuse { token, refusal });
        }
        self.waiting.park_behind_bound(token, wait);
        out.push(Output::Parked { token });
        if at >= self.bound.asked {
            self.ask_bound(now, at, out);
        }
    }

    pub(super) fn ask_bound(&mut self, now: Timestamp, at_least: Timestamp, out: &mut Vec<Output>) {
        let bound = now
            .saturating_add(BOUND_AHEAD)
            .max(at_least.saturating_add(BOUND_RENEWAL))
            .max(self.bound.asked);
        let watermark = self.next_watermark(now);
        self.pledged_watermark = watermark;
        self.bound.asked = bound;
        self.bound.renew_at = now.saturating_add(BOUND_RENEWAL);
        self.log(
            LogIntent::ReadBound { bound, watermark },
            Pending::Bound { bound, watermark },
            out,
        );
    }

    /// After a restart no session has reported, and those that come first must not be taken for
    /// all: the watermark would pass what the others still use. So it stays where it is until every
    /// session that was live has had the time to dial again, which takes it no longer than the
    /// outage, nor than its longest pause. Clients with outcomes or promises above the watermark
    /// count as if they had reported it, for as long as one that falls silent counts: they may ask
    /// for these outcomes. Not those in `left`, which are gone.
    pub(super) fn wait_for_sessions(
        &mut self,
        now: Timestamp,
        outage: Duration,
        left: &BTreeSet<ClientId>,
    ) {
        if bugs().forget_sessions {
            return;
        }
        let pause = outage.min(shared::MAX_RECONNECT_PAUSE);
        self.returning_until = now.saturating_add(pause).saturating_add(RETURN_MARGIN);
        let watermark = self.watermark;
        for client in self.clients.all_mut() {
            if client.newest_begin >= watermark && !left.contains(&client.id) {
                client.reported = Some(watermark);
                client.heard_at = now;
            }
        }
    }

    /// Whether a commit at this timestamp that is not known here was carried out here, and was
    /// forgotten: no watermark passes a promise of this shard, and nothing commits without one. It
    /// is the watermark that is *asked* to be logged, not the one in force: what is written from
    /// now on is logged behind the record that lets the higher one come into force, and must not
    /// lie below that. After a run without a log the watermark is put above all that was served,
    /// promises that are lost included: these are asked for, as long as nothing that was deleted
    /// since can have been collected.
    pub(super) fn was_carried_out(&self, at: Timestamp) -> bool {
        let below = if bugs().write_below_pledge { self.watermark } else { self.pledged_watermark };
        // What is deleted after the restart lies above the end of the range.
        let is_uncertain = self.uncertain.contains(&at)
            && (below <= self.uncertain.end || bugs().trust_old_decisions)
            && !bugs().trust_raised_watermark;
        at < below && !is_uncertain
    }

    /// Whether the write set of a commit at this timestamp that is not known here is asked for: not
    /// for ever, since who tells the decision may be a peer, which has none. A write set that was
    /// asked for in time is carried out whenever it comes.
    pub(super) fn is_asked_for(&self, now: Timestamp, at: Timestamp) -> bool {
        let in_vain = self.uncertain.contains(&at)
            && now >= self.uncertain_until
            && !bugs().trust_old_decisions;
        !in_vain && !self.was_carried_out(at)
    }

    /// Whether the commit of an unknown transaction that began at `begin` may be carried out
    /// although the watermark is above it: asked for now, or asked for before. An abort that is
    /// told is recorded for so long.
    pub(super) fn is_uncertain_after(&self, begin: Timestamp) -> bool {
        begin < self.uncertain.end
            && self.pledged_watermark <= self.uncertain.end
            && !bugs().abort_without_record
    }

    fn next_watermark(&self, now: Timestamp) -> Timestamp {
        if now < self.returning_until {
            return self.pledged_watermark;
        }
        let mut reports = self
            .clients
            .all()
            .iter()
            .filter(|one| one.is_live(now))
            .filter_map(|one| one.holds(now));
        let lowest = if bugs().watermark_of_one { reports.next_back() } else { reports.min() };
        let Some(lowest) = lowest else { return self.pledged_watermark };
        let in_flight =
            self.table.live().map(|(_, record)| record.begin).min().unwrap_or(Timestamp::MAX);
        let own =
            now.saturating_sub(shared::WATERMARK_LAG).saturating_sub(self.config.history_window);
        lowest.min(in_flight).min(own).max(self.pledged_watermark)
    }

    pub(super) fn bound_is_durable(
        &mut self,
        now: Timestamp,
        bound: Timestamp,
        watermark: Timestamp,
        out: &mut Vec<Output>,
    ) {
        assert!(
            bound >= self.bound.durable && watermark >= self.watermark,
            "bound and watermark only rise"
        );
        self.bound.durable = bound;
        self.expiry.bound_is_durable(bound);
        self.waiting.wake_behind_bound(out);
        if watermark > self.watermark {
            self.watermark = watermark;
            out.push(Output::AdvanceWatermark(watermark));
            self.forget_below_watermark(now, out);
        }
    }

    /// A client's report. Reports may arrive late and out of order; what they say only rises.
    pub(super) fn report(
        &mut self,
        now: Timestamp,
        id: ClientId,
        (watermark, acked, clock): (Timestamp, Sequence, Timestamp),
        closing: bool,
    ) {
        let lags = now.since(clock) > shared::MAX_CLOCK_LAG && !bugs().believe_late_clocks;
        let closing = closing && !bugs().deaf_to_farewells;
        let Some(client) = self.clients.entry(id, now) else { return };
        client.left |= closing;
        client.heard_at = client.heard_at.max(now);
        client.lags = lags;
        client.reported = Some(client.reported.unwrap_or(Timestamp::ZERO).max(watermark));
        client.acked = client.acked.max(acked);
        let (acked, mut first) = (client.acked, client.first_kept);
        while first != u32::MAX && !bugs().hoard_outcomes {
            let kept = self.table.kept(first);
            if kept.txn.sequence >= acked || !kept.durable {
                break;
            }
            let next = kept.next;
            self.table.forget(first);
            first = next;
        }
        if let Some(client) = self.clients.entry(id, now) {
            client.first_kept = first;
        }
    }

    /// Outcomes whose begin lies below the watermark go: replays are refused from now on. A commit
    /// over several shards that nobody reported as acknowledged is told to the others first.
    fn forget_below_watermark(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        for index in 0..self.clients.all().len() {
            // Most clients keep nothing that old, and need no walk.
            if self.clients.all()[index].oldest_kept < self.watermark && !bugs().hoard_outcomes {
                self.forget_of_client(now, index, out);
            }
        }
        if bugs().hoard_clients {
            return;
        }
        let watermark = self.watermark;
        self.clients.drop_if(|one| {
            !one.is_live(now) && one.first_kept == u32::MAX && one.newest_begin < watermark
        });
    }

    /// Looks at every outcome of the client: they are listed in the order in which they were
    /// finished, so that one below the watermark may stand behind one above it.
    fn forget_of_client(&mut self, now: Timestamp, index: usize, out: &mut Vec<Output>) {
        let client = self.clients.all()[index];
        let (mut first, mut last, mut oldest) = (client.first_kept, u32::MAX, Timestamp::MAX);
        let mut at = first;
        while at != u32::MAX {
            let kept = self.table.kept(at);
            let (next, begin, acked) = (kept.next, kept.begin, kept.txn.sequence < client.acked);
            if begin >= self.watermark || !kept.durable {
                if bugs().propagate_first_only {
                    (last, oldest) = (client.last_kept, begin);
                    break;
                }
                oldest = oldest.min(begin);
                last = at;
            } else {
                match last {
                    u32::MAX => first = next,
                    before => self.table.kept_mut(before).next = next,
                }
                if acked || !self.spread(now, at, out) {
                    self.table.forget(at);
                }
            }
            at = next;
        }
        let client = self.clients.get_mut(index);
        (client.first_kept, client.last_kept, client.oldest_kept) = (first, last, oldest);
    }

    pub(super) fn is_acked(&self, txn: TxnId) -> bool {
        self.clients.find(txn.client).is_some_and(|client| txn.sequence < client.acked)
    }

    /// Makes sure that outcomes of the client can be kept; false when there are too many clients.
    pub(super) fn know_client(&mut self, now: Timestamp, id: ClientId, begin: Timestamp) -> bool {
        match self.clients.entry(id, now) {
            Some(client) => {
                client.newest_begin = client.newest_begin.max(begin);
                true
            }
            None => false,
        }
    }

    /// Adds an outcome to the table and to its client's list.
    pub(super) fn keep(&mut self, kept: Kept) -> u32 {
        let index = self.table.keep(kept);
        self.link(index);
        index
    }

    pub(super) fn link(&mut self, index: u32) {
        let kept = self.table.kept(index);
        let (id, begin) = (kept.txn.client, kept.begin);
        let Some(client) = self.clients.entry(id, Timestamp::ZERO) else { return };
        client.newest_begin = client.newest_begin.max(begin);
        client.oldest_kept = client.oldest_kept.min(begin);
        let last = client.last_kept;
        let empty = client.first_kept == u32::MAX;
        client.last_kept = index;
        if empty {
            client.first_kept = index;
        } else {
            self.table.kept_mut(last).next = index;
        }
    }
}

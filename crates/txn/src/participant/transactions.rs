//! The transactions that this shard knows, and the clients that they belong to: what is in flight,
//! what became of the rest, and for how long that is remembered.
//!
//! ```text
//!   in flight ──finish──▶ kept ─┬─ acknowledged by its client     ──▶ forgotten
//!                               └─ its begin below the watermark  ──▶ forgotten, or propagated first
//! ```
//!
//! Invariants: a transaction is in at most one place; every kept outcome hangs in the list of its
//! client; an outcome is forgotten only when it is durable.
//!
//! It decides nothing: what becomes of a transaction is told by [`super::life`].

use core::time::Duration;
use std::collections::BTreeSet;

use timestone_types::{
    AbortKind, ClientId, Sequence, ShardId, Timestamp, TxnId, TxnOutcome, is_planted,
    limits as shared,
};

use super::clients::Clients;
use super::input::TxnStatus;
use super::table::{Fate, Handle, Holder, Kept, Phase, Table, TxnPlace};
use crate::limits::{MAX_KEPT_OUTCOMES, MAX_PREPARED};

/// What a client says of itself. See [`super::Input::Report`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) client: ClientId,
    pub(super) watermark: Timestamp,
    pub(super) acked: Sequence,
    pub(super) clock: Timestamp,
    pub(super) closing: bool,
}

/// What is known of a transaction when nothing more can be made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Knowledge {
    /// Its end, or that it has ended.
    Durably,
    /// Something, part of which may be on the device or not.
    Perhaps,
    /// Nothing.
    Not,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Transactions {
    pub(super) table: Table,
    clients: Clients,
    pub(super) past: Past,
}

/// What this run cannot know of earlier ones, whose clients' words and records may be gone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// What began below may have been finished and forgotten on the word of its client, which is in no
    /// record.
    pub(super) remembers_from: Timestamp,
    /// A promise from below may have been carried out in a run without a log, which recorded nothing.
    pub(super) leftovers_below: Timestamp,
}

impl Transactions {
    pub(super) fn new() -> Self {
        Self { table: Table::new(), clients: Clients::new(), past: Past::default() }
    }

    pub(super) fn clients(&self) -> usize {
        self.clients.all().len()
    }

    /// Whether another promise, and the outcome that it becomes, have room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.table.in_flight() < MAX_PREPARED && self.table.kept_len() < MAX_KEPT_OUTCOMES
    }

    /// Its client has said that everybody has acknowledged its end.
    #[inline]
    pub(super) fn is_acked(&self, txn: TxnId) -> bool {
        self.clients.find(txn.client).is_some_and(|client| txn.sequence < client.acked)
    }

    /// Whether a transaction that is not known here may have been finished in an earlier run, and
    /// forgotten: its client has not said in this one what it has acknowledged.
    pub(super) fn may_be_forgotten(&self, txn: TxnId, begin: Timestamp) -> bool {
        let has_reported = self.clients.find(txn.client).is_some_and(|client| client.has_reported);
        begin < self.past.remembers_from && !has_reported && !is_planted!(AbortsWhatItForgot)
    }

    /// Whether a promise may have been carried out by a run that recorded nothing, and what it wrote have
    /// been written over since.
    pub(super) fn may_be_leftover(&self, slot: Holder) -> bool {
        let record = self.table.record(slot);
        record.recovered
            && record.begin < self.past.leftovers_below
            && !is_planted!(AbortsLeftovers)
    }

    /// Makes sure that outcomes of the client can be kept; false when there are too many clients.
    #[inline]
    pub(super) fn know_client(&mut self, now: Timestamp, id: ClientId, begin: Timestamp) -> bool {
        match self.clients.entry(id, now) {
            Some(client) => {
                debug_assert!(client.id == id, "a client is found by its id");
                client.newest_begin = client.newest_begin.max(begin);
                true
            }
            None => false,
        }
    }

    /// The same for a client that the log names.
    pub(super) fn know_client_of_log(&mut self, now: Timestamp, id: ClientId, begin: Timestamp) {
        if !is_planted!(ForgottenPastClients) {
            self.clients.entry_of_log(id, now);
        }
        let is_known = self.know_client(now, id, begin);
        assert!(
            is_known || is_planted!(ForgottenPastClients),
            "a client of the log always has room"
        );
    }

    /// Adds an outcome to the table and to its client's list.
    pub(super) fn keep(&mut self, kept: Kept) -> u32 {
        assert!(!kept.is_listed, "an outcome that comes hangs in no list");
        let index = self.table.keep(kept);
        self.link(index);
        index
    }

    /// Turns what was in flight into an outcome.
    pub(super) fn finish(&mut self, slot: Holder, fate: Fate) -> u32 {
        let index = self.table.finish(slot, fate, true);
        self.link(index);
        debug_assert!(self.table.kept(index).durable, "what was in flight ends durably");
        index
    }

    fn link(&mut self, index: u32) {
        let kept = self.table.kept(index);
        let (id, begin) = (kept.txn.client, kept.begin);
        assert!(!kept.is_listed && kept.next == u32::MAX, "an outcome hangs in one list, once");
        let Some(client) = self.clients.entry(id, Timestamp::ZERO) else { return };
        client.newest_begin = client.newest_begin.max(begin);
        client.oldest_kept = client.oldest_kept.min(begin);
        let last = client.last_kept;
        let empty = client.first_kept == u32::MAX;
        client.last_kept = index;
        self.table.kept_mut(index).is_listed = true;
        if empty {
            client.first_kept = index;
        } else {
            self.table.kept_mut(last).next = index;
        }
    }

    /// Somebody waits for the end of a transaction.
    pub(super) fn note_asked(&mut self, txn: TxnId) {
        match self.table.find(txn) {
            Some(TxnPlace::Kept(index)) => self.table.kept_mut(index).asked = true,
            Some(TxnPlace::Flight(slot)) => self.table.record_mut(slot).asked = true,
            None => debug_assert!(false, "somebody waits for the end of what is not known"),
        }
    }

    /// What is known, and whether it is durable.
    pub(super) fn status_of(&self, txn: TxnId) -> (TxnStatus, bool) {
        match self.table.find(txn) {
            None => (TxnStatus::Unknown, true),
            Some(TxnPlace::Kept(index)) => {
                let kept = self.table.kept(index);
                let is_told = !kept.fate.is_forgotten();
                let status = TxnStatus::Decided(kept.fate.outcome());
                (if is_told { status } else { TxnStatus::Unknown }, kept.durable)
            }
            Some(TxnPlace::Flight(slot)) => {
                let record = self.table.record(slot);
                match record.phase {
                    Phase::Prepared { durable } => (TxnStatus::Prepared(record.commit), durable),
                    Phase::Aborting => (TxnStatus::Prepared(record.commit), true),
                    Phase::Committed { at, logged, .. } => {
                        (TxnStatus::Decided(TxnOutcome::Committed(at)), logged)
                    }
                }
            }
        }
    }

    /// What is known when nothing more can be made durable.
    pub(super) fn known(&self, txn: TxnId) -> Knowledge {
        match self.table.find(txn) {
            Some(TxnPlace::Kept(index)) if self.table.kept(index).durable => Knowledge::Durably,
            Some(_) => Knowledge::Perhaps,
            None if self.is_acked(txn) => Knowledge::Durably,
            None => Knowledge::Not,
        }
    }

    /// Whether a promise stands that is durable, and neither being moved nor being taken back: only
    /// such a one may be told to anybody.
    pub(super) fn is_settled(&self, slot: Holder) -> bool {
        let record = self.table.record(slot);
        record.phase == Phase::Prepared { durable: true } && record.moves.to.is_none()
    }

    /// The record that a handle means, and what it is, unless it has gone meanwhile.
    #[inline]
    pub(super) fn alive(&self, handle: Handle) -> Option<Holder> {
        self.table.alive(handle)
    }

    /// Down to where sessions and promises hold the watermark back; `None` if no session does. A
    /// session whose clock is further behind than [`shared::MAX_CLOCK_LAG`] holds it back by that
    /// and no more.
    pub(super) fn hold_watermark(&self, now: Timestamp, lag: Duration) -> Option<Timestamp> {
        let live = self.clients.all().iter().filter(|one| one.is_live(now));
        let mut reports = live.filter_map(|one| one.holds(now));
        let lowest = if is_planted!(WatermarkOfOne) { reports.next_back() } else { reports.min() }?;
        let in_flight = self.table.live().map(|(_, record)| record.begin).min();
        let own = now.saturating_sub(lag);
        Some(lowest.min(in_flight.unwrap_or(Timestamp::MAX)).min(own))
    }

    /// After a restart: clients with outcomes or promises above the watermark count as if they had
    /// reported it, for as long as one that falls silent counts: they may ask for these outcomes.
    /// Not those in `left`, which are gone.
    pub(super) fn expect_clients(
        &mut self,
        now: Timestamp,
        watermark: Timestamp,
        left: &BTreeSet<ClientId>,
    ) {
        for client in self.clients.all_mut() {
            debug_assert!(
                client.reported.is_none() || is_planted!(ServesInRecovery),
                "nobody reports before the run begins"
            );
            if client.newest_begin >= watermark && !left.contains(&client.id) {
                client.reported = Some(watermark);
                client.heard_at = now;
            }
        }
    }

    /// A client's report. Reports may arrive late and out of order; what they say only rises.
    pub(super) fn report(&mut self, now: Timestamp, report: Report) {
        let Report { client: id, watermark, acked, clock, closing } = report;
        let lags = now.since(clock) > shared::MAX_CLOCK_LAG && !is_planted!(BelievedLateClocks);
        let closing = closing && !is_planted!(IgnoredClose);
        let Some(client) = self.clients.entry(id, now) else { return };
        client.left |= closing;
        client.heard_at = client.heard_at.max(now);
        client.lags = lags;
        client.reported = Some(client.reported.unwrap_or(Timestamp::ZERO).max(watermark));
        client.has_reported = true;
        client.acked = client.acked.max(acked);
        let (acked, mut first) = (client.acked, client.first_kept);
        while first != u32::MAX && !is_planted!(HoardedOutcomes) {
            let kept = self.table.kept(first);
            if kept.txn.sequence >= acked || !kept.durable {
                break;
            }
            assert!(kept.txn.client == id, "an outcome hangs in the list of its client");
            let next = kept.next;
            self.table.kept_mut(first).is_listed = false;
            self.table.forget(first);
            first = next;
        }
        if let Some(client) = self.clients.entry(id, now) {
            client.first_kept = first;
        }
    }

    /// Outcomes whose begin lies below the watermark go: replays are refused from now on. Of those
    /// that nobody reported as acknowledged, `propagate` says whether it has to tell others first,
    /// and keeps them so long.
    pub(super) fn forget_below(
        &mut self,
        now: Timestamp,
        watermark: Timestamp,
        mut propagate: impl FnMut(&Kept) -> bool,
    ) {
        for index in 0..self.clients.all().len() {
            // Most clients keep nothing that old, and need no walk.
            if self.clients.all()[index].oldest_kept < watermark && !is_planted!(HoardedOutcomes) {
                self.forget_of_client(index, watermark, &mut propagate);
            }
        }
        if is_planted!(HoardedClients) {
            return;
        }
        self.clients.drop_if(|one| {
            !one.is_live(now) && one.first_kept == u32::MAX && one.newest_begin < watermark
        });
        debug_assert!(
            self.clients.all().iter().all(|one| one.first_kept == u32::MAX
                || self.table.kept(one.first_kept).txn.client == one.id),
            "a list begins with an outcome of its client"
        );
    }

    /// Looks at every outcome of the client: they are listed in the order in which they were
    /// finished, so that one below the watermark may stand behind one above it.
    fn forget_of_client(
        &mut self,
        index: usize,
        watermark: Timestamp,
        propagate: &mut impl FnMut(&Kept) -> bool,
    ) {
        let client = self.clients.all()[index];
        let (mut first, mut last, mut oldest) = (client.first_kept, u32::MAX, Timestamp::MAX);
        let mut at = first;
        while at != u32::MAX {
            let kept = self.table.kept(at);
            let (next, begin, acked) = (kept.next, kept.begin, kept.txn.sequence < client.acked);
            if begin >= watermark || !kept.durable {
                if is_planted!(PropagatesFirstOnly) {
                    (last, oldest) = (client.last_kept, begin);
                    break;
                }
                oldest = oldest.min(begin);
                last = at;
            } else {
                let is_gone = acked || !propagate(kept);
                match last {
                    u32::MAX => first = next,
                    before => self.table.kept_mut(before).next = next,
                }
                self.table.kept_mut(at).is_listed = false;
                if is_gone {
                    self.table.forget(at);
                }
            }
            at = next;
        }
        debug_assert!((first == u32::MAX) == (last == u32::MAX), "a list has both ends or none");
        let client = self.clients.get_mut(index);
        (client.first_kept, client.last_kept, client.oldest_kept) = (first, last, oldest);
    }

    /// Everybody has a decision that was propagated.
    pub(super) fn propagated(&mut self, txn: TxnId, keeps: bool) {
        let Some(TxnPlace::Kept(index)) = self.table.find(txn) else { return };
        let kept = self.table.kept(index);
        debug_assert!(kept.txn == txn, "an outcome is found by its transaction");
        if !kept.durable {
            // Another outcome than the one that was propagated, which was forgotten meanwhile: this
            // one is kept until it is durable.
            return;
        }
        if !keeps {
            // What hangs in its client's list came after the one that was propagated, and goes when
            // the list lets it.
            if !kept.is_listed {
                self.table.forget(index);
            }
            return;
        }
        // The others tell this shard in turn, and must be answered; nobody has to be told any more.
        if let Fate::Committed { participants, .. } = &mut self.table.kept_mut(index).fate {
            *participants = crate::ShardList::default();
        }
    }

    /// Every durable outcome, by transaction, of a run that ends.
    pub(super) fn durable_outcomes(&self) -> Vec<(TxnId, u32)> {
        let places = self.table.places();
        let kept = places.filter_map(|(txn, place)| match place {
            TxnPlace::Kept(index) if self.table.kept(index).durable => Some((txn, index)),
            TxnPlace::Kept(_) | TxnPlace::Flight(_) => None,
        });
        let mut outcomes: Vec<_> = kept.collect();
        outcomes.sort_unstable();
        outcomes
    }

    /// Whether others may still have to be told of a commit at or below `until`: it must not be
    /// lost before they have it.
    pub(super) fn owes_decisions(&self, until: Timestamp) -> bool {
        self.table.places().any(|(_, place)| match place {
            TxnPlace::Flight(slot) => {
                let record = self.table.record(slot);
                let Phase::Committed { at, logged: true, .. } = record.phase else { return false };
                at <= until && !record.single && record.participants.as_slice().len() > 1
            }
            TxnPlace::Kept(index) => {
                let kept = self.table.kept(index);
                let Fate::Committed { at, participants } = &kept.fate else { return false };
                kept.durable && *at <= until && participants.as_slice().len() > 1
            }
        })
    }

    /// Whether an abort of a transaction that began at or below `until` is kept.
    pub(super) fn keeps_aborts(&self, until: Timestamp) -> bool {
        self.table.places().any(|(_, place)| {
            let TxnPlace::Kept(index) = place else { return false };
            let kept = self.table.kept(index);
            matches!(kept.fate, Fate::Aborted(_)) && kept.begin <= until
        })
    }
}

impl Fate {
    /// Of a commit: those that may still have to be told.
    pub(super) fn participants(&self) -> &[ShardId] {
        match self {
            Self::Committed { participants, .. } => participants.as_slice(),
            Self::Aborted(_) => &[],
        }
    }

    /// Why, when it was aborted, and the timestamp of the version that a condition met.
    pub(super) fn abort(&self) -> (Option<AbortKind>, Timestamp) {
        match self {
            Self::Committed { .. } => (None, Timestamp::ZERO),
            Self::Aborted(reason) if reason.kind == AbortKind::Condition => {
                (Some(reason.kind), reason.at)
            }
            Self::Aborted(reason) => (Some(reason.kind), Timestamp::ZERO),
        }
    }
}

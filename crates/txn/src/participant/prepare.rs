//! Prepares: validation at the primary (Algorithm 1 of MILANA §4.2, with step 3 of Kairos §4.3),
//! promises and refusals.
//!
//! ```text
//!   unseen ──pass──▶ Prepared ──durable──▶ Vote Yes           (single: Apply, then Yes)
//!     │                 │ again, later timestamp: the old promise holds until the new one is durable
//!     ├─too low──▶ Vote Later(t), nothing promised
//!     ├─blocked──▶ parked ──▶ Again, or No when the time is up
//!     └─refused──▶ aborted ──durable──▶ Vote No(reason)
//! ```
//!
//! Rules, atomically per shard: (1) every read key has no prepared write of another transaction at
//! *any* timestamp, its latest version is the one read, not expired at commit nor by the server's
//! time, nor told expired before a restart; (2) every written key has no prepared write of another,
//! and all its marks lie below commit; (3) then `latest_read` of every validated read key rises to
//! commit, and the written keys are prepared.
//!
//! A prepare is identified by (transaction, commit timestamp): a duplicate gets the same vote, a
//! lower one none.

use timestone_types::{
    AbortKind, AbortReason, PreviousFound, ShardId, Timestamp, TxnOutcome, Version,
};

use super::input::{DecisionOrigin, Prepare, ReadItem, Vote, Wait, WriteItem, WriteKind};
use super::output::{LogIntent, Output};
use super::table::{Asker, Fate, Kept, Phase, Place, Slot, Written};
use super::{AfterAbort, Participant, Pending};
use crate::Refusal;
use crate::limits::{FENCE_MARGIN, MAX_FLOOR_LEAD, MAX_KEPT_OUTCOMES, MAX_PREPARED, PROMISED_WAIT};
use crate::planted::bugs;

/// What validation found.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Pass,
    /// Only the timestamp is too low; this one would do.
    Later(Timestamp),
    /// Somebody undecided stands in the way; the reason to give when there is no more waiting.
    Blocked(Slot, AbortReason),
    /// The condition was evaluated against a version that is not the latest any more.
    Stale(AbortReason),
    No(AbortReason),
}

/// What validation collects while it walks over the items.
#[derive(Clone, Copy, Default)]
struct Findings {
    later: Timestamp,
    blocked: Option<(Slot, AbortReason)>,
}

impl Participant {
    pub(super) fn prepare(&mut self, now: Timestamp, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let token = prepare.token;
        match self.table.find(prepare.txn) {
            Some(Place::Flight(slot)) => return self.prepare_again(now, slot, prepare, out),
            Some(Place::Kept(index)) if !bugs().forget_outcomes => {
                return self.vote_as_kept(index, prepare, out);
            }
            Some(Place::Kept(_)) | None => {}
        }
        if self.is_acked(prepare.txn) {
            return out.push(Output::Refuse { token, refusal: Refusal::Finished });
        }
        let leaves_no_trace = prepare.single && prepare.writes.is_empty();
        let latest = prepare.commit.max(prepare.begin);
        let admitted = match leaves_no_trace {
            true => self.may_read_at(now, latest),
            false => self.clock_has_passed_floor(now).and_then(|()| self.within_lead(now, latest)),
        };
        if let Err(refusal) = admitted {
            return out.push(Output::Refuse { token, refusal });
        }
        if prepare.begin < self.watermark {
            // Not recorded: the watermark is durable and only rises, so it will say no for ever.
            let reason = AbortReason { at: self.watermark, ..AbortReason::of(AbortKind::TooOld) };
            return self.vote(prepare, Vote::No(reason), out);
        }
        if prepare.begin < self.pledged_watermark {
            let reason =
                AbortReason { at: self.pledged_watermark, ..AbortReason::of(AbortKind::TooOld) };
            return match self.know_client(now, prepare.txn.client, prepare.begin) {
                true => self.refuse(prepare, reason, false, out),
                false => out.push(Output::Refuse { token, refusal: Refusal::Busy }),
            };
        }
        if !self.bound.admits(prepare.commit) {
            return self.park_behind_bound(now, token, prepare.wait, prepare.commit, out);
        }
        let room =
            self.table.in_flight() < MAX_PREPARED && self.table.kept_len() < MAX_KEPT_OUTCOMES;
        if !room || !self.know_client(now, prepare.txn.client, prepare.begin) {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        match self.validate(now, prepare, Slot::NONE) {
            Verdict::Pass if leaves_no_trace => {
                self.mark_reads(prepare);
                self.vote(prepare, Vote::Yes, out);
            }
            Verdict::Pass => self.promise(now, prepare, out),
            // The floor lies ahead of the clock only after a restart. Nobody is sent into the
            // future for that.
            Verdict::Later(_) if self.window.floor() > now => {
                out.push(Output::Refuse { token, refusal: Refusal::Recovering });
            }
            Verdict::Later(at) if self.config.vote_later => {
                self.vote(prepare, Vote::Later(at), out)
            }
            Verdict::Later(at) => {
                self.refuse(
                    prepare,
                    AbortReason { at, ..AbortReason::of(AbortKind::Timestamp) },
                    leaves_no_trace,
                    out,
                );
            }
            Verdict::Blocked(slot, reason) => {
                match self.may_wait_for(now, slot, prepare, &reason) {
                    Some(deadline) => {
                        self.park(token, self.table.handle(slot), false, deadline, out);
                    }
                    None => self.refuse(prepare, reason, leaves_no_trace, out),
                }
            }
            Verdict::Stale(_) if prepare.wait != Wait::No => {
                out.push(Output::Again { token, wait: Wait::No })
            }
            Verdict::Stale(reason) | Verdict::No(reason) => {
                self.refuse(prepare, reason, leaves_no_trace, out)
            }
        }
    }

    /// Writes commit above the floor, and nobody is sent further ahead than clocks may be. Only a
    /// restart whose clock was set back puts the floor so far ahead that there is no waiting for
    /// it.
    #[inline]
    fn clock_has_passed_floor(&self, now: Timestamp) -> Result<(), Refusal> {
        let left = self.window.floor().since(now);
        if left > MAX_FLOOR_LEAD { Err(Refusal::ClockBehind { left }) } else { Ok(()) }
    }

    /// Until when a prepare may wait for the decision about `holder`; `None`: it is refused at
    /// once. Wait-die: what has promises at other shards waits only for lower timestamps, so that
    /// no two transactions wait for each other at two shards, and only for a moment, because others
    /// wait for those promises. A key that was *read* and is being written is not worth a wait:
    /// when the other one commits, the read is stale.
    fn may_wait_for(
        &self,
        now: Timestamp,
        holder: Slot,
        prepare: &Prepare<'_>,
        reason: &AbortReason,
    ) -> Option<Timestamp> {
        if reason.kind == AbortKind::Prepared {
            return None;
        }
        let deadline = self.may_wait(now, prepare.wait)?;
        if prepare.single {
            return Some(deadline);
        }
        (self.may_commit_at(holder) < prepare.commit)
            .then(|| deadline.min(now.saturating_add(PROMISED_WAIT)))
    }

    pub(super) fn vote(&self, prepare: &Prepare<'_>, vote: Vote, out: &mut Vec<Output>) {
        out.push(Output::Vote {
            token: prepare.token,
            txn: prepare.txn,
            commit: prepare.commit,
            vote,
        });
    }

    /// Rules 1 and 2. Changes nothing but which generation marks live in.
    fn validate(&mut self, now: Timestamp, prepare: &Prepare<'_>, own: Slot) -> Verdict {
        let mut found = Findings::default();
        let judged =
            self.judges_expiry(now, prepare.commit).max(prepare.commit).max(self.expiry.told);
        if prepare.commit <= prepare.begin {
            found.later = prepare.begin.next();
        }
        for (index, item) in prepare.reads.iter().enumerate() {
            if let Err(reason) =
                self.check_read(prepare, judged, index as u32, item, own, &mut found)
            {
                return Verdict::No(reason);
            }
        }
        let offset = prepare.reads.len() as u32;
        for (index, item) in prepare.writes.iter().enumerate() {
            match item.kind {
                WriteKind::Put | WriteKind::Delete => {
                    self.check_write(prepare.commit, offset + index as u32, item, own, &mut found);
                }
                WriteKind::Fence => self.check_fence(
                    now,
                    prepare.commit,
                    offset + index as u32,
                    item,
                    own,
                    &mut found,
                ),
            }
        }
        if let Some(verdict) = self.check_condition(prepare, &mut found) {
            return verdict;
        }
        if found.later > Timestamp::ZERO {
            return Verdict::Later(found.later);
        }
        match found.blocked {
            Some((slot, reason)) => Verdict::Blocked(slot, reason),
            None => Verdict::Pass,
        }
    }

    /// Rule 1 for one key. All absences are equal, and their versions tell nothing: collection
    /// takes what the mark remembers (a tombstone, or a put that has expired), and a look-up finds
    /// an older version then, or none. Who read nothing at begin finds nothing at commit if:
    ///
    /// 1. Nothing was put since. `last_present` is at or above the youngest put of the keys that
    ///    share the mark, and above every read that went around a put while that was prepared. A
    ///    put after the read is a conflict even when it has expired or is deleted by now: others
    ///    may have read it between begin and commit. A mark that is made anew knows of such a put
    ///    from the store: collection takes only what had expired, or was deleted, by the watermark,
    ///    and nobody is let in whose begin lies below that.
    /// 2. Nothing is there now, by the mark or by the store, which has every commit that blocks the
    ///    key no more. That is about a put *below* begin which was read around, when the mark that
    ///    knew of it is gone. Such a put is there as long as it lives. If collection has taken it,
    ///    it had expired by the watermark, and so by begin: nothing was the right answer for
    ///    everybody.
    #[inline]
    fn check_read(
        &mut self,
        prepare: &Prepare<'_>,
        judged: Timestamp,
        index: u32,
        item: &ReadItem,
        own: Slot,
        found: &mut Findings,
    ) -> Result<(), AbortReason> {
        let mark = *self.window.mark(item.key, item.latest);
        let fence = if self.keyspaces.is_quiet() {
            Version::ZERO
        } else {
            self.keyspaces.fence(item.keyspace)
        };
        let (latest, absent) =
            if fence > mark.latest { (fence, true) } else { (mark.latest, mark.absent) };
        let gone_from_store = item.latest.absent && !bugs().tell_absences_apart;
        let put_since =
            mark.last_present > prepare.begin.max(item.version.timestamp) && !bugs().overlook_puts;
        let still_absent = item.absent && (absent || gone_from_store) && !put_since;
        let reason =
            |kind, other| AbortReason { kind, item: Some(index), other, at: latest.timestamp };
        if latest != item.version && !still_absent {
            return Err(reason(AbortKind::ReadConflict, None));
        }
        if !item.absent && item.expires_at.has_passed(judged) {
            return Err(AbortReason {
                at: item.expires_at.timestamp(),
                ..reason(AbortKind::Expired, None)
            });
        }
        if latest.timestamp >= prepare.commit {
            found.later = found.later.max(latest.timestamp.next());
        }
        if let Some(slot) = self.holder(item.keyspace, item.key, mark.prepared, own, prepare.commit)
        {
            found.blocked.get_or_insert((
                slot,
                reason(AbortKind::Prepared, Some(self.table.record(slot).txn)),
            ));
        }
        Ok(())
    }

    /// Rule 2 for one key.
    #[inline]
    fn check_write(
        &mut self,
        commit: Timestamp,
        index: u32,
        item: &WriteItem,
        own: Slot,
        found: &mut Findings,
    ) {
        let mark = *self.window.mark(item.key, item.latest);
        let mut highest = mark.latest_read.max(mark.latest.timestamp).max(self.window.floor());
        if !self.keyspaces.is_quiet() {
            highest = highest.max(self.keyspaces.scan_mark(item.keyspace));
            highest = highest.max(self.keyspaces.fence(item.keyspace).timestamp);
        }
        if highest > commit || (highest == commit && !bugs().equal_is_enough) {
            found.later = found.later.max(highest.next());
        }
        if let Some(slot) = self.holder(item.keyspace, item.key, mark.prepared, own, Timestamp::MAX)
        {
            let other = Some(self.table.record(slot).txn);
            let reason = AbortReason {
                kind: AbortKind::WriteConflict,
                item: Some(index),
                other,
                at: self.may_commit_at(slot),
            };
            found.blocked.get_or_insert((slot, reason));
        }
    }

    /// Rule 2 for a whole keyspace: above every mark there is, and nobody else writes in it.
    fn check_fence(
        &self,
        now: Timestamp,
        commit: Timestamp,
        index: u32,
        item: &WriteItem,
        own: Slot,
        found: &mut Findings,
    ) {
        let highest = self.window.ceiling().max(self.keyspaces.fence(item.keyspace).timestamp);
        if commit <= highest {
            found.later = found.later.max(highest.max(now).saturating_add(FENCE_MARGIN));
        }
        if let Some(slot) = self.writer_in(item.keyspace, own) {
            let other = Some(self.table.record(slot).txn);
            let reason = AbortReason {
                kind: AbortKind::WriteConflict,
                item: Some(index),
                other,
                at: self.may_commit_at(slot),
            };
            found.blocked.get_or_insert((slot, reason));
        }
    }

    /// Another transaction's prepared write that covers the key. `commit` matters to a planted bug
    /// only.
    #[inline]
    fn holder(
        &self,
        keyspace: timestone_types::KeyspaceId,
        key: timestone_types::KeyHash,
        prepared: Slot,
        own: Slot,
        commit: Timestamp,
    ) -> Option<Slot> {
        let bugs = bugs();
        let tolerated =
            |slot: Slot| slot == own || (bugs.relax_rule_1 && self.may_commit_at(slot) > commit);
        if !prepared.is_none() && !tolerated(prepared) {
            return Some(prepared);
        }
        if self.window.is_crowded() {
            let other = self.window.crowd(key).find(|&slot| !tolerated(slot));
            if other.is_some() {
                return other;
            }
        }
        if self.keyspaces.is_quiet() {
            return None;
        }
        self.keyspaces.prepared(keyspace).find(|&slot| !tolerated(slot))
    }

    /// The condition of a single-key write. It was evaluated before this turn's `step`; whatever
    /// could have changed since shows here: a prepared write (wait first), or a younger version
    /// (evaluate again).
    fn check_condition(&mut self, prepare: &Prepare<'_>, found: &mut Findings) -> Option<Verdict> {
        let (Some(condition), Some(item)) = (prepare.condition, prepare.writes.first()) else {
            return None;
        };
        if let Some((slot, reason)) = found.blocked {
            return Some(Verdict::Blocked(slot, reason));
        }
        let latest = self.window.mark(item.key, item.latest).latest;
        let index = Some(prepare.reads.len() as u32);
        let reason = AbortReason {
            item: index,
            at: latest.timestamp,
            ..AbortReason::of(AbortKind::WriteConflict)
        };
        let fence = self.keyspaces.fence(item.keyspace);
        // All absences are equal. What the mark remembers, a tombstone or a version that has
        // expired, may have been collected: no look-up finds it again. Whatever was put since is in
        // the store by now, or blocks the key.
        let is_absent_still =
            !condition.present && item.latest.absent && !bugs().tell_absences_apart;
        if latest > condition.version.max(fence) && !is_absent_still {
            return Some(Verdict::Stale(reason));
        }
        // A fence leaves no version at its keys: what was found below it is gone, and absence stays
        // absence.
        let is_removed = condition.present && fence > condition.version;
        if is_removed && !bugs().keep_conditions_over_fences {
            return Some(Verdict::Stale(AbortReason { at: fence.timestamp, ..reason }));
        }
        let expired_at = condition.expired_at.unwrap_or(Timestamp::ZERO);
        if condition.holds {
            // By the server's time the key was absent, and by the write's timestamp it must be,
            // too.
            if expired_at > prepare.commit {
                found.later = found.later.max(expired_at);
            }
            return None;
        }
        // The refusal tells what the key holds, so it is a read at commit.
        let met = latest.max(condition.version).timestamp;
        self.raise_read(item.key, prepare.commit.max(met).max(expired_at), false);
        Some(Verdict::No(AbortReason { kind: AbortKind::Condition, at: met, ..reason }))
    }

    /// Step 3, first half.
    fn mark_reads(&mut self, prepare: &Prepare<'_>) {
        if bugs().skip_step_3 {
            return;
        }
        for item in prepare.reads {
            self.raise_read(item.key, prepare.commit, item.absent);
        }
    }

    /// Step 3, both halves, and the promise's way into the log.
    fn promise(&mut self, now: Timestamp, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        self.mark_reads(prepare);
        let phase = Phase::Prepared { durable: false };
        let slot = self.table.insert(prepare.txn, prepare.begin, prepare.commit, phase);
        self.adopt(slot, prepare.single, prepare.participants, prepare.writes);
        self.table.record_mut(slot).found = prepare.found();
        if !prepare.single {
            self.table.join_timeouts(slot, now.saturating_add(self.config.decision_timeout));
        }
        self.log_promise(slot, prepare, out);
    }

    fn log_promise(&mut self, slot: Slot, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let asker = Asker { token: prepare.token, commit: prepare.commit };
        let pending = Pending::Promise { record: self.table.handle(slot), asker, txn: prepare.txn };
        let Prepare { txn, begin, commit, single, .. } = *prepare;
        if bugs().vote_before_durable {
            self.vote(prepare, Vote::Yes, out);
        }
        let found = prepare.found();
        self.log(LogIntent::Prepare { txn, begin, commit, single, found }, pending, out);
    }

    /// Records a no, durably before it is sent. A strict read leaves no trace: its no binds nobody.
    fn refuse(
        &mut self,
        prepare: &Prepare<'_>,
        reason: AbortReason,
        leaves_no_trace: bool,
        out: &mut Vec<Output>,
    ) {
        if leaves_no_trace {
            return self.vote(prepare, Vote::No(reason), out);
        }
        let Prepare { txn, begin, commit, token, .. } = *prepare;
        let failed = reason.kind == AbortKind::Condition;
        let (found, met) = if failed {
            (prepare.found(), reason.at)
        } else {
            (PreviousFound::Unasked, Timestamp::ZERO)
        };
        let fate = Fate::Aborted(reason);
        self.keep(Kept { txn, begin, fate, found, durable: false, asked: false, next: u32::MAX });
        let then = AfterAbort::Vote { asker: Asker { token, commit }, reason };
        let (origin, pending) = (DecisionOrigin::Participant, Pending::Aborted { txn, then });
        let (outcome, abort) = (TxnOutcome::Aborted, Some(reason.kind));
        self.log(
            LogIntent::Decision { txn, begin, outcome, abort, found, met, origin },
            pending,
            out,
        );
    }

    /// A duplicate gets the same answer again.
    fn vote_as_kept(&mut self, index: u32, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let kept = self.table.kept_mut(index);
        if !kept.durable {
            kept.asked = true;
            return self.park_asking(prepare.txn, prepare.token, out);
        }
        let (begin, found) = (kept.begin, kept.found);
        match kept.fate {
            Fate::Aborted(reason) if reason.kind == AbortKind::Condition => {
                // The version that the condition met is the youngest up to here: reading it raised
                // its mark.
                self.repeat(prepare, Vote::No(reason), found, begin.max(reason.at), out);
            }
            Fate::Aborted(reason) => self.vote(prepare, Vote::No(reason), out),
            Fate::Committed { at, .. } => self.vote_as_committed(prepare, at, found, out),
        }
    }

    fn vote_as_committed(
        &self,
        prepare: &Prepare<'_>,
        at: Timestamp,
        found: PreviousFound,
        out: &mut Vec<Output>,
    ) {
        if prepare.commit < at {
            return out.push(Output::Ignored { token: prepare.token });
        }
        let vote =
            if prepare.commit == at { Vote::Yes } else { Vote::Decided(TxnOutcome::Committed(at)) };
        self.repeat(prepare, vote, found, at.previous(), out);
    }

    /// The answer to a repeat. Its first copy's answer may have carried a previous value: the
    /// versions at `at` stay, because the client reports no watermark above the begin of what it
    /// has no answer to. What it *has* an answer to it may not ask again.
    fn repeat(
        &self,
        prepare: &Prepare<'_>,
        vote: Vote,
        found: PreviousFound,
        at: Timestamp,
        out: &mut Vec<Output>,
    ) {
        let (token, txn, commit) = (prepare.token, prepare.txn, prepare.commit);
        match found {
            PreviousFound::Unasked => self.vote(prepare, vote, out),
            _ if self.is_acked(txn) => {
                out.push(Output::Refuse { token, refusal: Refusal::Finished })
            }
            found => {
                let present = found == PreviousFound::Present;
                out.push(Output::Repeated { token, txn, commit, vote, at, present });
            }
        }
    }

    /// A prepare of a transaction that is in flight: a duplicate, an old one, or the next round.
    fn prepare_again(
        &mut self,
        now: Timestamp,
        slot: Slot,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        #[cfg(feature = "planted-bugs")]
        if bugs().revalidate_duplicates
            && self.table.record(slot).phase == (Phase::Prepared { durable: true })
            && self.table.record(slot).commit == prepare.commit
        {
            return self.validate_again(now, slot, prepare, out);
        }
        let record = self.table.record_mut(slot);
        let (token, commit) = (prepare.token, prepare.commit);
        match record.phase {
            Phase::Committed { at, logged: true, .. } => {
                let found = record.found;
                return self.vote_as_committed(prepare, at, found, out);
            }
            Phase::Prepared { durable: true }
                if commit == record.commit && commit == record.seen =>
            {
                return self.vote(prepare, Vote::Yes, out);
            }
            Phase::Prepared { .. } if commit < record.seen => {
                return out.push(Output::Ignored { token });
            }
            Phase::Prepared { .. }
                if commit > record.commit && record.moving_to != Some(commit) && !record.single => {
            }
            Phase::Prepared { .. } | Phase::Aborting | Phase::Committed { .. } => {
                record.asked = true;
                return self.park_asking(prepare.txn, token, out);
            }
        }
        if record.frozen {
            return out.push(Output::Refuse { token, refusal: Refusal::Terminating });
        }
        if !record.writes.iter().copied().eq(prepare.writes.iter().map(Written::of)) {
            return out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
        }
        if let Err(refusal) = self.within_lead(now, commit) {
            return out.push(Output::Refuse { token, refusal });
        }
        if commit >= self.bound.durable {
            return self.park_behind_bound(now, token, prepare.wait, commit, out);
        }
        self.next_round(now, slot, prepare, out);
    }

    /// Validates at a later timestamp; the promise that is there holds until the new one is
    /// durable.
    fn next_round(
        &mut self,
        now: Timestamp,
        slot: Slot,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        self.table.record_mut(slot).seen = prepare.commit;
        #[cfg(feature = "planted-bugs")]
        if bugs().drop_old_promise {
            self.release_keys(slot, None);
        }
        match self.validate(now, prepare, slot) {
            Verdict::Pass => {
                self.mark_reads(prepare);
                self.table.record_mut(slot).moving_to = Some(prepare.commit);
                #[cfg(feature = "planted-bugs")]
                if bugs().drop_old_promise {
                    self.hold_again(slot);
                }
                self.log_promise(slot, prepare, out);
            }
            Verdict::Later(at) if self.config.vote_later => {
                self.vote(prepare, Vote::Later(at), out)
            }
            Verdict::Later(at) => {
                self.abort_promise(
                    slot,
                    prepare,
                    AbortReason { at, ..AbortReason::of(AbortKind::Timestamp) },
                    out,
                );
            }
            Verdict::Blocked(other, reason) => {
                match self.may_wait_for(now, other, prepare, &reason) {
                    Some(deadline) => {
                        self.park(prepare.token, self.table.handle(other), false, deadline, out);
                    }
                    None => self.abort_promise(slot, prepare, reason, out),
                }
            }
            Verdict::Stale(reason) | Verdict::No(reason) => {
                self.abort_promise(slot, prepare, reason, out)
            }
        }
    }

    /// Planted: a duplicate is judged by marks that have moved on since, its own among them.
    #[cfg(feature = "planted-bugs")]
    fn validate_again(
        &mut self,
        now: Timestamp,
        slot: Slot,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        match self.validate(now, prepare, slot) {
            Verdict::Pass => self.vote(prepare, Vote::Yes, out),
            Verdict::Later(at) => {
                self.abort_promise(
                    slot,
                    prepare,
                    AbortReason { at, ..AbortReason::of(AbortKind::Timestamp) },
                    out,
                );
            }
            Verdict::Blocked(_, reason) | Verdict::Stale(reason) | Verdict::No(reason) => {
                self.abort_promise(slot, prepare, reason, out);
            }
        }
    }

    #[cfg(feature = "planted-bugs")]
    fn hold_again(&mut self, slot: Slot) {
        for one in self.table.record(slot).writes.clone() {
            match one.kind {
                WriteKind::Put | WriteKind::Delete => {
                    self.window.hold(one.key, slot, super::input::LatestInStore::NONE)
                }
                WriteKind::Fence => self.keyspaces.hold(one.keyspace, slot),
            }
        }
    }

    /// A no after an earlier yes: the promise holds until the no is durable, or a crash in between
    /// would free the keys of a transaction that recovery finds prepared.
    fn abort_promise(
        &mut self,
        slot: Slot,
        prepare: &Prepare<'_>,
        reason: AbortReason,
        out: &mut Vec<Output>,
    ) {
        let asker = Asker { token: prepare.token, commit: prepare.commit };
        self.table.record_mut(slot).phase = Phase::Aborting;
        self.table.leave_timeouts(slot);
        let pending = Pending::AbortedPromise {
            record: self.table.handle(slot),
            txn: prepare.txn,
            asker,
            reason,
        };
        let (origin, abort) = (DecisionOrigin::Participant, Some(reason.kind));
        self.log_decision(
            prepare.txn,
            prepare.begin,
            TxnOutcome::Aborted,
            abort,
            origin,
            pending,
            out,
        );
    }

    /// A committed transaction whose prepare never arrived brings its write set: applied without
    /// validation, since it *is* committed, and recorded with its decision.
    pub(super) fn decided_write_set(
        &mut self,
        now: Timestamp,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        let outcome = TxnOutcome::Committed(prepare.commit);
        if self.table.find(prepare.txn).is_some() || self.is_acked(prepare.txn) {
            return self.decide(
                now,
                Some(prepare.token),
                prepare.txn,
                outcome,
                DecisionOrigin::Client,
                out,
            );
        }
        // As for a decision alone: below the watermark this repeats what was carried out. Nothing
        // may be written there any more, or what was deleted since would come back.
        if self.was_carried_out(prepare.commit) && !bugs().write_below_watermark {
            return out.push(Output::AckDecision { token: prepare.token, txn: prepare.txn });
        }
        if !self.know_client(now, prepare.txn.client, prepare.begin) {
            return out.push(Output::Refuse { token: prepare.token, refusal: Refusal::Busy });
        }
        let Prepare { txn, begin, commit, single, token, .. } = *prepare;
        let slot = self.table.insert(txn, begin, commit, Phase::Prepared { durable: false });
        self.adopt(slot, single, prepare.participants, prepare.writes);
        let found = PreviousFound::Unasked;
        self.log(LogIntent::Prepare { txn, begin, commit, single, found }, Pending::Nothing, out);
        self.decide(now, Some(token), txn, outcome, DecisionOrigin::Client, out);
    }

    /// Fills a record with what it writes, and holds the keys whoever else does.
    pub(super) fn adopt(
        &mut self,
        slot: Slot,
        single: bool,
        participants: &[ShardId],
        writes: &[WriteItem],
    ) {
        let record = self.table.record_mut(slot);
        record.single = single;
        record.participants.set(participants);
        record.writes.extend(writes.iter().map(Written::of));
        for item in writes {
            match item.kind {
                WriteKind::Put | WriteKind::Delete => self.window.hold(item.key, slot, item.latest),
                WriteKind::Fence => self.keyspaces.hold(item.keyspace, slot),
            }
        }
    }
}

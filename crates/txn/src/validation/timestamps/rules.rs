//! Rules 1 and 2, and the conditions of single-key writes: what a validation by timestamps asks.

use timestone_types::{AbortKind, AbortReason, Timestamp, Version, is_planted};

use super::Timestamps;
use crate::limits::FENCE_MARGIN;
use crate::participant::{Holder, Prepare, RangeItem, ReadItem, WriteItem, WriteKind};
use crate::validation::{Case, Until, Verdict};

/// What validation collects while it walks over the items.
#[derive(Clone, Copy, Default)]
struct Findings {
    later: Timestamp,
    blocked: Option<(Holder, AbortReason)>,
}

impl Findings {
    /// A higher commit timestamp that was asked for is a higher one.
    #[inline]
    fn assert_above(&self, commit: Timestamp) {
        debug_assert!(self.later == Timestamp::ZERO || self.later > commit);
    }

    /// A key that was *read* and is being written is not worth a wait: when the other one commits,
    /// the read is stale.
    fn verdict_of_blocked(self) -> Option<Verdict> {
        let (holder, reason) = self.blocked?;
        Some(match reason.kind {
            AbortKind::Prepared => Verdict::No(reason),
            _ => Verdict::Wait(Until::Decided(holder), reason),
        })
    }
}

impl Timestamps {
    /// Rules 1 and 2. Changes nothing but which generation records live in, and what a condition
    /// that does not hold tells of its key.
    pub(super) fn check(&mut self, prepare: &Prepare<'_>, case: &Case<'_>) -> Verdict {
        let mut found = Findings::default();
        if prepare.commit <= prepare.begin {
            found.later = prepare.begin.next();
        }
        for (index, item) in prepare.reads.iter().enumerate() {
            if let Err(reason) = self.check_read(prepare, case, index as u32, item, &mut found) {
                return Verdict::No(reason);
            }
        }
        for item in prepare.ranges {
            if let Err(reason) = self.check_range(prepare, case, item, &mut found) {
                return Verdict::No(reason);
            }
        }
        let offset = prepare.reads.len() as u32;
        for (index, item) in prepare.writes.iter().enumerate() {
            let index = offset + index as u32;
            match item.kind {
                WriteKind::Put | WriteKind::Delete => {
                    self.check_write(prepare.commit, case, index, item, &mut found)
                }
                WriteKind::Fence => self.check_fence(prepare.commit, case, index, item, &mut found),
            }
        }
        if let Some(verdict) = self.check_condition(prepare, &mut found) {
            return verdict;
        }
        if found.later > Timestamp::ZERO {
            assert!(found.later > prepare.commit, "a later timestamp is a later one");
            return Verdict::Later(found.later);
        }
        found.verdict_of_blocked().unwrap_or(Verdict::Promise)
    }

    /// Rule 1 for one key. All absences are equal, and their versions tell nothing: collection
    /// takes what the record remembers (a tombstone, or a put that has expired), and a look-up finds
    /// an older version then, or none. Who read nothing at begin finds nothing at commit if:
    ///
    /// 1. Nothing was put since. `last_present` is at or above the youngest put of the keys that
    ///    share the record, and above every read that went around a put while that was prepared. A
    ///    put after the read is a conflict even when it has expired or is deleted by now: others
    ///    may have read it between begin and commit. A record that is made anew knows of such a put
    ///    from the store: collection takes only what had expired, or was deleted, by the watermark,
    ///    and nobody is let in whose begin lies below that.
    /// 2. Nothing is there now, by the record or by the store, which has every commit that blocks the
    ///    key no more. That is about a put *below* begin which was read around, when the record that
    ///    knew of it is gone. Such a put is there as long as it lives. If collection has taken it,
    ///    it had expired by the watermark, and so by begin: nothing was the right answer for
    ///    everybody.
    #[inline]
    fn check_read(
        &mut self,
        prepare: &Prepare<'_>,
        case: &Case<'_>,
        index: u32,
        item: &ReadItem,
        found: &mut Findings,
    ) -> Result<(), AbortReason> {
        let record = *self.recent.record(item.key, item.latest);
        let fence = if self.keyspaces.has_no_fence() {
            Version::ZERO
        } else {
            self.keyspaces.fence(item.keyspace)
        };
        let (latest, absent) =
            if fence > record.latest { (fence, true) } else { (record.latest, record.absent) };
        let gone_from_store = item.latest.absent && !is_planted!(AbsencesApart);
        let put_since = record.last_present > prepare.begin.max(item.version.timestamp)
            && !is_planted!(OverlookedPuts);
        let still_absent = item.absent && (absent || gone_from_store) && !put_since;
        let reason =
            |kind, other| AbortReason { kind, item: Some(index), other, at: latest.timestamp };
        if latest != item.version && !still_absent {
            return Err(reason(AbortKind::ReadConflict, None));
        }
        if !item.absent && item.expires_at.has_passed(case.expires_by) {
            return Err(AbortReason {
                at: item.expires_at.timestamp(),
                ..reason(AbortKind::Expired, None)
            });
        }
        if latest.timestamp >= prepare.commit {
            found.later = found.later.max(latest.timestamp.next());
        }
        if let Some(holder) =
            self.holder(item.keyspace, item.key, record.prepared, case, prepare.commit)
        {
            let other = Some(case.others.txn(holder));
            found.blocked.get_or_insert((holder, reason(AbortKind::Prepared, other)));
        }
        found.assert_above(prepare.commit);
        Ok(())
    }

    /// Rule 1 for a range. What was read of it is what was there at begin, and no write commits at or below
    /// begin in it since then: its access record saw to that. So it is unchanged if nothing in it is newer, and
    /// nobody holds a key of it. A write whose promise was lost commits below all the same, when it comes late.
    fn check_range(
        &self,
        prepare: &Prepare<'_>,
        case: &Case<'_>,
        item: &RangeItem,
        found: &mut Findings,
    ) -> Result<(), AbortReason> {
        let fence = self.keyspaces.fence(item.keyspace).timestamp;
        let newer = item.newer.unwrap_or(Timestamp::ZERO).max(fence);
        let late = self.keyspaces.late(item.keyspace);
        let reason = |kind, other, at| AbortReason { kind, item: None, other, at };
        if newer > prepare.begin && !is_planted!(NewerInRange) {
            return Err(reason(AbortKind::ReadConflict, None, newer));
        }
        if late > prepare.begin && !is_planted!(LateInRange) {
            return Err(reason(AbortKind::ReadConflict, None, late));
        }
        if item.expires_at.has_passed(case.expires_by) {
            return Err(reason(AbortKind::Expired, None, item.expires_at.timestamp()));
        }
        let mut writers = case.others.writers_of(item.range(), &item.writers);
        if let Some(holder) = writers.find(|&holder| holder != case.own)
            && !is_planted!(PreparedInRange)
        {
            let other = Some(case.others.txn(holder));
            let reason = reason(AbortKind::Prepared, other, case.others.may_commit_at(holder));
            found.blocked.get_or_insert((holder, reason));
        }
        Ok(())
    }

    /// Rule 2 for one key.
    #[inline]
    fn check_write(
        &mut self,
        commit: Timestamp,
        case: &Case<'_>,
        index: u32,
        item: &WriteItem,
        found: &mut Findings,
    ) {
        let record = self.recent.look(item.key, item.latest);
        let mut highest =
            record.latest_read.max(record.latest.timestamp).max(self.recent.low_water());
        highest = highest.max(item.range_read);
        if !self.keyspaces.is_quiet() {
            highest = highest.max(self.keyspaces.scanned_at(item.keyspace));
            highest = highest.max(self.keyspaces.fence(item.keyspace).timestamp);
        }
        if highest > commit || (highest == commit && !is_planted!(EqualIsEnough)) {
            found.later = found.later.max(highest.next());
        }
        if let Some(holder) =
            self.holder(item.keyspace, item.key, record.prepared, case, Timestamp::MAX)
        {
            let other = Some(case.others.txn(holder));
            let reason = AbortReason {
                kind: AbortKind::WriteConflict,
                item: Some(index),
                other,
                at: case.others.may_commit_at(holder),
            };
            found.blocked.get_or_insert((holder, reason));
        }
        found.assert_above(commit);
    }

    /// Rule 2 for a whole keyspace: above every timestamp there is, and nobody else writes in it.
    fn check_fence(
        &self,
        commit: Timestamp,
        case: &Case<'_>,
        index: u32,
        item: &WriteItem,
        found: &mut Findings,
    ) {
        let highest = self.recent.high_water().max(self.keyspaces.fence(item.keyspace).timestamp);
        if commit <= highest {
            found.later = found.later.max(highest.max(case.now).saturating_add(FENCE_MARGIN));
        }
        if let Some(holder) = case.others.writer_in(item.keyspace, case.own) {
            let other = Some(case.others.txn(holder));
            let reason = AbortReason {
                kind: AbortKind::WriteConflict,
                item: Some(index),
                other,
                at: case.others.may_commit_at(holder),
            };
            found.blocked.get_or_insert((holder, reason));
        }
        found.assert_above(commit);
    }

    /// Another transaction's prepared write that covers the key. `commit` matters to a planted bug
    /// only.
    #[inline]
    fn holder(
        &self,
        keyspace: timestone_types::KeyspaceId,
        key: timestone_types::KeyHash,
        prepared: Holder,
        case: &Case<'_>,
        commit: Timestamp,
    ) -> Option<Holder> {
        let tolerated = |holder: Holder| {
            holder == case.own
                || (is_planted!(RelaxedRule1) && case.others.may_commit_at(holder) > commit)
        };
        if !prepared.is_none() && !tolerated(prepared) {
            return Some(prepared);
        }
        if self.recent.has_more_holders() {
            let other = self.recent.more_holders(key).find(|&holder| !tolerated(holder));
            if other.is_some() {
                return other;
            }
        }
        if self.keyspaces.holds_nothing() {
            return None;
        }
        self.keyspaces.prepared(keyspace).find(|&holder| !tolerated(holder))
    }

    /// The condition of a single-key write. It was evaluated before this turn's `step`; whatever
    /// could have changed since shows here: a prepared write (wait first), or a younger version
    /// (evaluate again).
    fn check_condition(&mut self, prepare: &Prepare<'_>, found: &mut Findings) -> Option<Verdict> {
        let (Some(condition), Some(item)) = (prepare.condition.found(), prepare.writes.first())
        else {
            return None;
        };
        if let Some(blocked) = found.verdict_of_blocked() {
            return Some(blocked);
        }
        let latest = self.recent.record(item.key, item.latest).latest;
        let index = Some(prepare.reads.len() as u32);
        let reason = AbortReason {
            item: index,
            at: latest.timestamp,
            ..AbortReason::of(AbortKind::WriteConflict)
        };
        let fence = self.keyspaces.fence(item.keyspace);
        // All absences are equal. What the record remembers, a tombstone or a version that has
        // expired, may have been collected: no look-up finds it again. Whatever was put since is in
        // the store by now, or blocks the key.
        let is_absent_still =
            !condition.present && item.latest.absent && !is_planted!(AbsencesApart);
        if latest > condition.version.max(fence) && !is_absent_still {
            return Some(Verdict::Again(reason));
        }
        // A fence leaves no version at its keys: what was found below it is gone, and absence stays
        // absence.
        let is_removed = condition.present && fence > condition.version;
        if is_removed && !is_planted!(ConditionOverFence) {
            return Some(Verdict::Again(AbortReason { at: fence.timestamp, ..reason }));
        }
        let expired_at = condition.expired_at.unwrap_or(Timestamp::ZERO);
        if condition.holds {
            // By the server's time the key was absent, and by the write's timestamp it must be,
            // too.
            if expired_at > prepare.commit {
                found.later = found.later.max(expired_at);
            }
            found.assert_above(prepare.commit);
            return None;
        }
        // The refusal tells what the key holds, so it is a read at commit.
        let met = latest.max(condition.version).timestamp;
        self.raise_read(item.key, prepare.commit.max(met).max(expired_at), false);
        Some(Verdict::No(AbortReason { kind: AbortKind::Condition, at: met, ..reason }))
    }
}

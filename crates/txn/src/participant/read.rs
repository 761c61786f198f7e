//! Reads of single keys, and scans of keyspaces.
//!
//! In one atomic step: look whether a prepared write at or below the snapshot is pending, raise
//! `latest_read`, let the stage choose the version (MILANA §4.1, §4.3). Better than the paper: a
//! read that meets a prepared version waits for its decision, and raises the mark only when it is
//! answered. Linearizable single reads (SEMEL §3.3) wait for *any* prepared write.

use timestone_types::{KeyHash, KeyspaceId, Timestamp};

use super::Participant;
use super::input::{LatestInStore, ReadAt, Token, Wait};
use super::output::Output;
use super::table::{Phase, Slot};
use crate::Refusal;
use crate::planted::bugs;

impl Participant {
    #[allow(clippy::too_many_arguments, reason = "the fields of one input")]
    #[inline]
    pub(super) fn read(
        &mut self,
        now: Timestamp,
        token: Token,
        keyspace: KeyspaceId,
        key: KeyHash,
        at: ReadAt,
        wait: Wait,
        latest: LatestInStore,
        out: &mut Vec<Output>,
    ) {
        let (asked, any) = match at {
            ReadAt::Snapshot(begin) => (begin, false),
            ReadAt::Latest(client_now) => (self.latest_asked(now, client_now), true),
        };
        if !any && asked < self.pledged_watermark {
            return out.push(Output::Refuse {
                token,
                refusal: Refusal::TooOld { watermark: self.pledged_watermark },
            });
        }
        if let Err(refusal) = self.may_read_at(now, asked) {
            return out.push(Output::Refuse { token, refusal });
        }
        let bugs = bugs();
        let settled = if self.bound.lost { self.watermark } else { self.pledged_watermark };
        let mark = self.window.mark(key, latest);
        let (prepared, newest, absent) = (mark.prepared, mark.latest.timestamp, mark.absent);
        let at = if any { asked.max(newest).max(settled) } else { asked };
        // Without a log, the latest version may lie above the bound: its record raises the next
        // run's floor as the bound does.
        let is_admitted = self.bound.admits(at)
            || (self.bound.lost && (any || (bugs.read_beyond_lost_log && at <= now)));
        if !is_admitted {
            return self.park_behind_bound(now, token, wait, at, out);
        }
        if prepared.is_none()
            && self.keyspaces.is_quiet()
            && !bugs.forget_absent_marks
            && !bugs.mark_only_known_keys
        {
            if at > mark.latest_read {
                mark.latest_read = at;
                self.window.note(at);
            }
            return out.push(Output::ReadNow { token, at, prepared_before: false });
        }
        let limit = if any { Timestamp::MAX } else { at };
        if let Some(slot) = self.read_blocker(keyspace, key, prepared, limit) {
            if let Some(deadline) = self.may_wait(now, wait) {
                let owner = self.table.handle(slot);
                return self.park(token, owner, true, deadline, out);
            }
            if any {
                let other = self.table.record(slot).txn;
                return out.push(Output::Refuse { token, refusal: Refusal::Prepared { other } });
            }
            self.raise_read(key, at, absent);
            return out.push(Output::ReadNow { token, at, prepared_before: true });
        }
        self.raise_read(key, at, absent);
        out.push(Output::ReadNow { token, at, prepared_before: false });
    }

    /// Raises `latest_read` of a key whose mark was looked up just before.
    #[inline]
    pub(super) fn raise_read(&mut self, key: KeyHash, at: Timestamp, absent: bool) {
        let bugs = bugs();
        if (bugs.forget_absent_marks && absent) || (bugs.mark_only_known_keys && self.made_now(key))
        {
            return;
        }
        let mark = self.window.mark(key, LatestInStore::NONE);
        if at > mark.latest_read {
            mark.latest_read = at;
            self.window.note(at);
        }
    }

    /// Whether the mark of a key carries nothing but the floor: what the planted bug takes for "no
    /// entry".
    fn made_now(&mut self, key: KeyHash) -> bool {
        let floor = self.window.floor();
        self.window.mark(key, LatestInStore::NONE).latest_read == floor
    }

    /// Who may still commit a write of the key at or below `limit`.
    #[inline]
    fn read_blocker(
        &self,
        keyspace: KeyspaceId,
        key: KeyHash,
        prepared: Slot,
        limit: Timestamp,
    ) -> Option<Slot> {
        if !prepared.is_none() && self.may_commit_at(prepared) <= limit {
            return Some(prepared);
        }
        if self.window.is_crowded() {
            let other = self.window.crowd(key).find(|&slot| self.may_commit_at(slot) <= limit);
            if other.is_some() {
                return other;
            }
        }
        if self.keyspaces.is_quiet() {
            return None;
        }
        self.keyspaces.prepared(keyspace).find(|&slot| self.may_commit_at(slot) <= limit)
    }

    /// The lowest timestamp at which a transaction in flight may commit.
    #[inline]
    pub(super) fn may_commit_at(&self, slot: Slot) -> Timestamp {
        let record = self.table.record(slot);
        match record.phase {
            Phase::Committed { at, .. } => at,
            Phase::Prepared { .. } | Phase::Aborting => record.commit,
        }
    }

    /// A scan at `at`: no write of the keyspace commits at or below it from now on.
    pub(super) fn raise_floor(
        &mut self,
        now: Timestamp,
        token: Token,
        keyspace: KeyspaceId,
        at: Timestamp,
        wait: Wait,
        out: &mut Vec<Output>,
    ) {
        if at < self.pledged_watermark {
            return out.push(Output::Refuse {
                token,
                refusal: Refusal::TooOld { watermark: self.pledged_watermark },
            });
        }
        if let Err(refusal) = self.may_read_at(now, at) {
            return out.push(Output::Refuse { token, refusal });
        }
        // A walk does not tell of each key by itself whether it had expired.
        let judged = self.judges_expiry(now, at).min(at);
        if judged < self.expiry.told.min(at) {
            return out.push(Output::Refuse { token, refusal: Refusal::Recovering });
        }
        let is_settled = judged <= self.expiry.settled || bugs().tell_expiry_at_once;
        if !self.bound.admits(at) || !is_settled {
            return self.park_behind_bound(now, token, wait, at, out);
        }
        let blocker = self.writer_below(keyspace, at);
        if let (Some(slot), Some(deadline)) = (blocker, self.may_wait(now, wait)) {
            let owner = self.table.handle(slot);
            return self.park(token, owner, true, deadline, out);
        }
        self.keyspaces.raise_scan_mark(keyspace, at);
        self.window.note(at);
        out.push(Output::FloorRaised { token, at, prepared_before: blocker.is_some() });
    }

    /// How new a keyspace is. A scan that begins at or above the answers of all shards sees every
    /// write that was acknowledged before it asked: one that can be read lies at or below `latest`;
    /// one that is only promised here may be acknowledged all the same, since its client needs no
    /// more than the promises. Scans count as well, so that of two one after the other the later
    /// one sees no less. A watermark that a restart has put ahead of the clock counts, too: a scan
    /// below it would be refused. So does what was told expired before the restart: it is there as
    /// of earlier snapshots.
    pub(super) fn newest(
        &self,
        token: Token,
        keyspace: KeyspaceId,
        latest: Timestamp,
        out: &mut Vec<Output>,
    ) {
        let writers = self
            .table
            .live()
            .filter(|(_, record)| record.writes.iter().any(|one| one.keyspace == keyspace));
        let promised = writers.map(|(slot, _)| self.may_commit_at(slot)).max().unwrap_or_default();
        let (fence, scanned) =
            (self.keyspaces.fence(keyspace).timestamp, self.keyspaces.scan_mark(keyspace));
        let at = if bugs().scan_below_acknowledged {
            Timestamp::ZERO
        } else {
            let watermark =
                if bugs().scan_below_watermark { Timestamp::ZERO } else { self.pledged_watermark };
            latest.max(promised).max(fence).max(scanned).max(watermark).max(self.expiry.told)
        };
        out.push(Output::NewestIs { token, at });
    }

    /// Some transaction in flight that may commit a write of the keyspace at or below `at`.
    fn writer_below(&self, keyspace: KeyspaceId, at: Timestamp) -> Option<Slot> {
        self.table
            .live()
            .filter(|(_, record)| record.writes.iter().any(|one| one.keyspace == keyspace))
            .map(|(slot, _)| slot)
            .find(|&slot| self.may_commit_at(slot) <= at)
    }

    /// Some transaction in flight, other than the one in `except`, that writes in the keyspace.
    pub(super) fn writer_in(&self, keyspace: KeyspaceId, except: Slot) -> Option<Slot> {
        self.table
            .live()
            .find(|&(slot, record)| {
                slot != except && record.writes.iter().any(|one| one.keyspace == keyspace)
            })
            .map(|(slot, _)| slot)
    }
}

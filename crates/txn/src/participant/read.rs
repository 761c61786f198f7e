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
use crate::Refusal;
use crate::planted::bugs;
use crate::validation::{KeyRead, Reading, Validation};

impl<V: Validation> Participant<V> {
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
        let read = KeyRead { keyspace, key, latest: any, store: latest };
        let (bound, mut at) = (self.bound, asked);
        let reading = self.validation.read(&read, self.table.others(), |newest| {
            at = if any { asked.max(newest).max(settled) } else { asked };
            // Without a log, the latest version may lie above the bound: its record raises the next
            // run's low-water timestamp as the bound does.
            let is_admitted = bound.admits(at)
                || (bound.lost && (any || (bugs.read_beyond_lost_log && at <= now)));
            is_admitted.then_some(at)
        });
        let holder = match reading {
            Reading::At(at) => {
                return out.push(Output::ReadNow { token, at, prepared_before: false });
            }
            Reading::NotAdmitted => return self.park_behind_bound(now, token, wait, at, out),
            Reading::Blocked(_, holder) => holder,
        };
        if let Some(deadline) = self.may_wait(now, wait) {
            let owner = self.table.handle(holder);
            return self.park(token, owner, true, deadline, out);
        }
        if any {
            let other = self.table.record(holder).txn;
            return out.push(Output::Refuse { token, refusal: Refusal::Prepared { other } });
        }
        self.validation.read_around(&read, at);
        out.push(Output::ReadNow { token, at, prepared_before: true });
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
        let others = self.table.others();
        let blocker = others.writers_in(keyspace).find(|&one| others.may_commit_at(one) <= at);
        if let (Some(slot), Some(deadline)) = (blocker, self.may_wait(now, wait)) {
            let owner = self.table.handle(slot);
            return self.park(token, owner, true, deadline, out);
        }
        self.validation.scanned(keyspace, at);
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
        let others = self.table.others();
        let promised = others.writers_in(keyspace).map(|one| others.may_commit_at(one)).max();
        let promised = promised.unwrap_or_default().max(self.validation.newest(keyspace));
        let at = if bugs().scan_below_acknowledged {
            Timestamp::ZERO
        } else {
            let watermark =
                if bugs().scan_below_watermark { Timestamp::ZERO } else { self.pledged_watermark };
            latest.max(promised).max(watermark).max(self.expiry.told)
        };
        out.push(Output::NewestIs { token, at });
    }
}

//! What is let in: reads, prepares, scans and decisions meet the clock guard, the watermark and the
//! read bound before they meet a transaction or a key.
//!
//! A read that meets a prepared version waits for its decision, and is noted only when it is
//! answered. What may not be served yet waits until a bound above it is durable.

use timestone_types::{
    AbortKind, AbortReason, KeyRange, KeyspaceId, Timestamp, TxnId, TxnOutcome, is_planted,
};

use super::Participant;
use super::decisions::Decision;
use super::horizon::Horizon;
use super::input::{DecidedBy, Lookup, Prepare, ReadAt, Token, Vote, Wait};
use super::output::Output;
use super::promises::{Repetition, vote};
use super::table::{Holder, TxnPlace};
use crate::Refusal;
use crate::validation::{KeyRead, ReadVerdict, Validation};

/// A read of one key, as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAsked {
    pub(super) token: Token,
    pub(super) key: KeyRead,
    pub(super) at: ReadAt,
    pub(super) wait: Wait,
}

/// A read of a whole keyspace or of a range, as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanAsked<'a> {
    pub(super) token: Token,
    pub(super) keyspace: KeyspaceId,
    pub(super) at: Timestamp,
    pub(super) wait: Wait,
    /// Of a range: which one, and who writes in it.
    pub(super) range: Option<(KeyRange<'a>, &'a [TxnId])>,
}

const fn too_old(watermark: Timestamp) -> AbortReason {
    AbortReason { at: watermark, ..AbortReason::of(AbortKind::TooOld) }
}

impl<V: Validation> Participant<V> {
    #[inline]
    pub(super) fn read(&mut self, now: Timestamp, read: ReadAsked, out: &mut Vec<Output>) {
        let token = read.token;
        if read.key.latest && !self.shows_present(now, (token, read.wait), out) {
            return;
        }
        let (reading, at) = match self.judge_read(now, &read.key, read.at) {
            Ok(judged) => judged,
            Err(refusal) => return out.push(Output::Refuse { token, refusal }),
        };
        match reading {
            ReadVerdict::At(at) => {
                let expiry = self.horizon.expiry_rule(now, at);
                out.push(Output::ReadNow { token, at, prepared_before: false, expiry });
            }
            ReadVerdict::NotAdmitted => self.park_behind_bound(now, token, read.wait, at, out),
            ReadVerdict::Blocked(at, holder) => self.read_blocked(now, &read, at, holder, out),
        }
    }

    /// Whether and at which timestamp a key may be read; noted if it may. Also the timestamp that
    /// was to be admitted.
    #[inline]
    pub(super) fn judge_read(
        &mut self,
        now: Timestamp,
        key: &KeyRead,
        at: ReadAt,
    ) -> Result<(ReadVerdict, Timestamp), Refusal> {
        self.assert_serving();
        let asked = match at {
            ReadAt::Snapshot(begin) => begin,
            ReadAt::Latest(client_now) => self.horizon.latest_asked(now, client_now),
        };
        let (any, watermark) = (key.latest, self.horizon.watermark.pledged());
        if !any && asked < watermark {
            return Err(Refusal::TooOld { watermark });
        }
        let low_water = self.life.validation.low_water();
        if any {
            self.horizon.may_read_latest_at(now, asked, low_water)?;
        } else {
            self.horizon.may_read_at(now, asked, low_water)?;
        }
        let (bound, settled, mut at) = (&self.horizon.bound, self.horizon.settled(), asked);
        let others = self.life.txns.table.others();
        let reading = self.life.validation.read(key, others, |newest| {
            if any {
                at = asked.max(newest).max(settled);
            }
            // Without a log, the latest version may lie above the bound: its record raises the next
            // run's low-water timestamp as the bound does.
            let may_pass = any || (is_planted!(ReadBeyondLostLog) && at <= now);
            (bound.admits(at) || (bound.is_lost() && may_pass)).then_some(at)
        });
        Ok((reading, at))
    }

    /// A read that met a prepared write waits for its decision, or is answered around it.
    fn read_blocked(
        &mut self,
        now: Timestamp,
        read: &ReadAsked,
        at: Timestamp,
        holder: Holder,
        out: &mut Vec<Output>,
    ) {
        let token = read.token;
        debug_assert!(read.key.latest || self.life.txns.table.others().may_commit_at(holder) <= at);
        if let Some(deadline) = self.life.may_wait(now, read.wait) {
            return self.life.park_read(token, holder, deadline, out);
        }
        if read.key.latest {
            let other = self.life.txns.table.record(holder).txn;
            return out.push(Output::Refuse { token, refusal: Refusal::Prepared { other } });
        }
        self.life.validation.read_around(&read.key, at);
        let expiry = self.horizon.expiry_rule(now, at);
        out.push(Output::ReadNow { token, at, prepared_before: true, expiry });
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
        let is_lost = self.horizon.bound.is_lost();
        if self.life.waiting.is_full() || is_lost {
            let refusal = if is_lost { Refusal::LogLost } else { Refusal::Busy };
            return out.push(Output::Refuse { token, refusal });
        }
        self.life.waiting.park_behind_bound(token, wait);
        out.push(Output::Parked { token });
        if !self.horizon.bound.is_asked_for(at) {
            self.ask_bound(now, at, out);
        }
        assert!(self.horizon.bound.is_asked_for(at), "a bound above it is on its way");
    }

    /// As of when the expiry of what a prepare read is judged. Whatever may have been told expired
    /// is taken as expired: its transaction begins again, and reads.
    fn expires_by(&mut self, now: Timestamp, commit: Timestamp) -> Timestamp {
        self.assert_serving();
        let expiry = &mut self.horizon.expiry;
        expiry.judge(now, commit).max(commit).max(expiry.told())
    }

    pub(super) fn prepare(&mut self, now: Timestamp, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        self.assert_serving();
        let token = prepare.token;
        match self.life.txns.table.find(prepare.txn) {
            Some(TxnPlace::Flight(slot)) => return self.prepare_again(now, slot, prepare, out),
            Some(TxnPlace::Kept(index)) if !is_planted!(LatePrepare) => {
                return self.life.vote_as_kept(index, prepare, out);
            }
            Some(TxnPlace::Kept(_)) | None => {}
        }
        if self.life.txns.is_acked(prepare.txn) {
            return out.push(Output::Refuse { token, refusal: Refusal::Finished });
        }
        if let Err(refusal) = self.may_prepare_at(now, prepare) {
            return out.push(Output::Refuse { token, refusal });
        }
        let (durable, pledged) =
            (self.horizon.watermark.durable(), self.horizon.watermark.pledged());
        if prepare.begin < durable {
            // Not recorded: the watermark is durable and only rises, so it will say no for ever.
            return vote(prepare, Vote::No(too_old(durable)), out);
        }
        if prepare.begin < pledged {
            return match self.life.txns.know_client(now, prepare.txn.client, prepare.begin) {
                true => self.life.refuse(prepare, too_old(pledged), out),
                false => out.push(Output::Refuse { token, refusal: Refusal::Busy }),
            };
        }
        // It is a new one, and may stay that until room is made or its key is looked up.
        if !prepare.has_room {
            return out.push(Output::NoRoom { token });
        }
        // Who is told that a condition does not hold, or that what it read is the latest, is told of the
        // present.
        let tells_present = prepare.leaves_no_trace() || prepare.condition != Lookup::NotNeeded;
        if tells_present && !self.shows_present(now, (token, prepare.wait), out) {
            return;
        }
        if prepare.condition == Lookup::Needed {
            let latest =
                prepare.writes.first().map_or(Timestamp::ZERO, |one| one.latest.version.timestamp);
            let expiry = self.horizon.expiry_rule(now, prepare.commit.max(latest));
            return out.push(Output::LookUp { token, expiry });
        }
        if !self.horizon.bound.admits(prepare.commit) {
            return self.park_behind_bound(now, token, prepare.wait, prepare.commit, out);
        }
        let txns = &mut self.life.txns;
        if !txns.has_room() || !txns.know_client(now, prepare.txn.client, prepare.begin) {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        let mut placed = *prepare;
        loop {
            let expires_by = self.expires_by(now, placed.commit);
            let Some(at) = self.life.prepare_new(now, expires_by, &placed, out) else { return };
            debug_assert!(at > placed.commit, "a put moves up");
            if !self.horizon.bound.admits(at) {
                return self.park_behind_bound(now, token, prepare.wait, at, out);
            }
            placed.commit = at;
        }
    }

    /// Whether the timestamps of a prepare may be let in at this server's time.
    pub(super) fn may_prepare_at(
        &self,
        now: Timestamp,
        prepare: &Prepare<'_>,
    ) -> Result<(), Refusal> {
        let latest = prepare.commit.max(prepare.begin);
        let low_water = self.life.validation.low_water();
        if prepare.leaves_no_trace() {
            return self.horizon.may_read_at(now, latest, low_water);
        }
        Horizon::may_write(now, low_water)?;
        self.horizon.within_lead(now, latest)
    }

    /// A prepare of a transaction that is in flight.
    fn prepare_again(
        &mut self,
        now: Timestamp,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        let record = self.life.txns.table.record(slot);
        debug_assert!(record.txn == prepare.txn, "a repeat is about its transaction");
        let expires_by = self.expires_by(now, prepare.commit);
        if is_planted!(RevalidatedDuplicate)
            && self.life.judge_duplicate(now, expires_by, slot, prepare, out)
        {
            return;
        }
        if self.life.prepare_again(slot, prepare, out) == Repetition::Answered {
            return;
        }
        let (token, commit) = (prepare.token, prepare.commit);
        if let Err(refusal) = self.horizon.within_lead(now, commit) {
            return out.push(Output::Refuse { token, refusal });
        }
        if !self.horizon.bound.admits(commit) {
            return self.park_behind_bound(now, token, prepare.wait, commit, out);
        }
        self.life.next_round(now, expires_by, slot, prepare, out);
    }

    /// A committed transaction whose prepare never arrived brings its write set.
    pub(super) fn decided_write_set(
        &mut self,
        now: Timestamp,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        self.assert_serving();
        let Prepare { token, txn, .. } = *prepare;
        let outcome = TxnOutcome::Committed(prepare.commit);
        if self.life.txns.table.find(txn).is_some() || self.life.txns.is_acked(txn) {
            let decided_by = DecidedBy::Client;
            return self.decide(
                now,
                Decision { token: Some(token), txn, outcome, decided_by },
                out,
            );
        }
        let low_water = self.life.validation.low_water();
        if let Err(refusal) = self.horizon.may_commit_at(now, prepare.commit, low_water) {
            return out.push(Output::Refuse { token, refusal });
        }
        if self.life.waits_for_watermark(&self.horizon.watermark, prepare.commit) {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        // As for a decision alone: below the watermark this repeats what was carried out. Nothing
        // may be written there any more, or what was deleted since would come back.
        let is_repeat = self.horizon.watermark.was_carried_out(prepare.commit);
        if is_repeat && !is_planted!(WriteBelowWatermark) {
            return out.push(Output::AckDecision { token, txn });
        }
        if !self.life.txns.know_client(now, txn.client, prepare.begin) {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        self.life.adopt_committed(prepare, out);
    }

    /// A decision arrives, from a coordinator or a peer.
    pub(super) fn decide(&mut self, now: Timestamp, decision: Decision, out: &mut Vec<Output>) {
        self.assert_serving();
        if let TxnOutcome::Committed(at) = decision.outcome
            && let Err(refusal) =
                self.horizon.may_commit_at(now, at, self.life.validation.low_water())
        {
            // Who told it asks again if it is right, and only a clock is not.
            let refused = decision.token.map(|token| Output::Refuse { token, refusal });
            return out.extend(refused);
        }
        match self.life.txns.table.find(decision.txn) {
            Some(place) => {
                if self.life.decide(place, decision, out) {
                    self.termination.ended(decision.txn);
                }
            }
            None => self.life.decide_unseen(now, &self.horizon.watermark, decision, out),
        }
    }

    /// A scan at `at`: no write of the keyspace, or of the range, commits at or below it from now on. It is
    /// never answered around a writer: that one would commit below what was read.
    pub(super) fn scan(&mut self, now: Timestamp, scan: &ScanAsked<'_>, out: &mut Vec<Output>) {
        self.assert_serving();
        let &ScanAsked { token, keyspace, at, wait, range } = scan;
        let watermark = self.horizon.watermark.pledged();
        if at < watermark {
            return out.push(Output::Refuse { token, refusal: Refusal::TooOld { watermark } });
        }
        let low_water = self.life.validation.low_water();
        if let Err(refusal) = self.horizon.may_read_at(now, at, low_water) {
            return out.push(Output::Refuse { token, refusal });
        }
        // A walk does not tell of each key by itself whether it had expired.
        let judged = self.horizon.expiry.judge(now, at).min(at);
        if judged < self.horizon.expiry.told().min(at) {
            return out.push(Output::Refuse { token, refusal: Refusal::Recovering });
        }
        let is_settled = self.horizon.expiry.is_settled(judged);
        if !self.horizon.bound.admits(at) || !is_settled {
            return self.park_behind_bound(now, token, wait, at, out);
        }
        let others = self.life.txns.table.others();
        let is_below = |one: &Holder| others.may_commit_at(*one) <= at;
        let blocker = match range {
            None => others.writers_in(keyspace).find(is_below),
            Some((range, writers)) => {
                let mut inside = others.writers_of(range, writers);
                inside.find(is_below).filter(|_| !is_planted!(RangeAroundPromise))
            }
        };
        if let (Some(holder), Some(deadline)) = (blocker, self.life.may_wait(now, wait)) {
            return self.life.park_read(token, holder, deadline, out);
        }
        let prepared_before = blocker.is_some();
        match range {
            None => self.life.validation.scanned(keyspace, at),
            Some((range, _)) if !prepared_before && !is_planted!(UnmarkedRange) => {
                self.life.validation.range_read(range, at);
            }
            Some(_) => {}
        }
        out.push(Output::ScanNow { token, at, as_of: judged, prepared_before });
    }

    /// How new a keyspace is. A scan that begins at or above the answers of all shards sees every
    /// write that was acknowledged before it asked: one that can be read lies at or below `latest`;
    /// one that is only promised here may be acknowledged all the same, since its client needs no
    /// more than the promises. Scans count as well, so that of two one after the other the later
    /// one sees no less. A watermark that a restart has put ahead of the clock counts, too: a scan
    /// below it would be refused. So does what was told expired before the restart: it is there as
    /// of earlier snapshots.
    pub(super) fn newest(
        &mut self,
        now: Timestamp,
        (token, keyspace, latest): (Token, KeyspaceId, Timestamp),
        out: &mut Vec<Output>,
    ) {
        if !self.shows_present(now, (token, Wait::Yes), out) {
            return;
        }
        let others = self.life.txns.table.others();
        let promised = others.writers_in(keyspace).map(|one| others.may_commit_at(one)).max();
        let known = promised.unwrap_or_default().max(self.life.validation.newest(keyspace));
        let watermark = match is_planted!(ScanBelowWatermark) {
            true => Timestamp::ZERO,
            false => self.horizon.watermark.pledged(),
        };
        let at = match is_planted!(ScanBelowAcknowledged) {
            true => Timestamp::ZERO,
            false => latest.max(known).max(watermark).max(self.horizon.expiry.told()),
        };
        out.push(Output::NewestIs { token, at });
    }
}

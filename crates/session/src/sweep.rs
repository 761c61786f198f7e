//! What time brings: requests to repeat, deadlines, coordinators' timers, acknowledgements that
//! were held back, and the reports that let the watermark rise.
//!
//! Nothing is kept per request: one due time for the whole engine, at or before the earliest thing
//! that is due, and a look at everything open when it comes. Most requests are answered long
//! before, so the look is rare.

use timestone_txn::coordinator::Input;
use timestone_types::{ClientId, Sequence, Timestamp, TxnId};

use crate::{
    Engine, SessionError, TxnStatus,
    frames::{self, Route},
    keys::Read,
    limits, number,
    record::{Outcome, Phase, Txn, Want},
    shards::Place,
};

/// What one shard is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    /// The lowest timestamp that may still be used there.
    pub(crate) watermark: Timestamp,
    /// The first transaction or write that is not over yet.
    lowest: Option<Sequence>,
}

impl Report {
    fn hold(&mut self, begin: Timestamp) {
        self.watermark = self.watermark.min(begin);
    }

    /// Something of an earlier id of this client is not asked about under the present one.
    fn owe(&mut self, client: ClientId, txn: TxnId) {
        if txn.client == client {
            self.lowest = Some(self.lowest.map_or(txn.sequence, |lowest| lowest.min(txn.sequence)));
        }
    }

    /// Every transaction and write of this client up to it is finished and acknowledged by all who
    /// took part.
    fn acked(&self, last: Sequence) -> Sequence {
        self.lowest.map_or(last, |lowest| Sequence::new(lowest.get() - 1))
    }
}

/// Time.
impl Engine {
    /// Does what is due: repeats, deadlines, terminations, reports.
    pub fn tick(&mut self, now: Timestamp) {
        let now = self.advance(now);
        if now >= self.next_report {
            self.report_everywhere();
        }
        if now >= self.next_due {
            self.sweep(now);
        }
    }

    /// When [`Engine::tick`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        Some(self.next_due.min(self.next_report))
    }

    fn sweep(&mut self, now: Timestamp) {
        self.next_due = Timestamp::MAX;
        for index in 0..self.txns.slots() {
            if self.txns.name(index).is_none() {
                continue;
            }
            match self.txns.at(index).phase {
                Phase::Open => self.sweep_reads(now, index),
                Phase::Committing | Phase::Told => self.sweep_commit(now, index),
                Phase::Closed => {}
            }
        }
        for index in 0..self.singles.slots() {
            if self.singles.name(index).is_some() {
                self.sweep_single(now, index);
            }
        }
        self.next_due = self.next_due.max(now.saturating_add(limits::SWEEP_INTERVAL));
    }

    fn sweep_reads(&mut self, now: Timestamp, index: u32) {
        let mut at = 0;
        while self.txns.at(index).asked > 0 && at < self.txns.at(index).keys.len() {
            let entry = *self.txns.at(index).keys.entry(at);
            if let Read::Asked(_) = entry.read {
                if entry.deadline <= now {
                    self.fail_read(index, at, SessionError::DeadlineExceeded);
                } else if entry.due <= now {
                    self.repeat_read(now, index, at);
                } else {
                    self.note_due(entry.due.min(entry.deadline));
                }
            }
            at += 1;
        }
    }

    fn repeat_read(&mut self, now: Timestamp, index: u32, at: u32) {
        if let Some(name) = self.txns.name(index) {
            self.stats.repeated += 1;
            self.send_read(now, name, at);
            let deadline = self.txns.at(index).keys.entry(at).deadline;
            self.note_due(deadline);
        }
    }

    fn sweep_commit(&mut self, now: Timestamp, index: u32) {
        if self.txns.at(index).due <= now {
            let error_bound = self.clock_error;
            self.coordinate(now, index, Input::Tick { error_bound });
        } else {
            let due = self.txns.at(index).due;
            self.note_due(due);
        }
    }

    fn sweep_single(&mut self, now: Timestamp, index: u32) {
        let single = self.singles.at(index);
        let (due, deadline) = (single.due, single.deadline);
        if single.settled {
            // It took place, and waits for the clocks.
            if single.outcome.is_none() && due <= now {
                let at = single.commit;
                self.end_single(now, index, Outcome::Committed(at));
            } else if single.outcome.is_none() && deadline <= now {
                self.end_before_the_clocks(now, index);
            } else if single.outcome.is_none() {
                self.note_due(due.min(deadline));
            }
        } else if deadline <= now {
            if single.begins_anew() {
                let refused = SessionError::Busy { retry_after: limits::MAX_RETRY_PAUSE };
                self.end_single(now, index, Outcome::Failed(refused));
            } else if single.is_write() {
                self.give_up_write(now, index);
                self.note_due(due);
            } else if single.want == Want::Status {
                let outcome = self.status_without_the_silent(index);
                self.end_single(now, index, outcome);
            } else {
                self.end_single(now, index, Outcome::Failed(SessionError::DeadlineExceeded));
            }
        } else if due <= now {
            self.stats.repeated += 1;
            let single = self.singles.at_mut(index);
            single.attempts += 1;
            self.send_single(now, index);
            self.note_due(deadline);
        } else {
            self.note_due(due.min(deadline));
        }
    }

    /// What is known of a transaction at the deadline of the question. That nobody who answered has
    /// heard of it proves nothing: one of those that were silent may have carried it out.
    fn status_without_the_silent(&self, index: u32) -> Outcome {
        let single = self.singles.at(index);
        match single.status {
            Some(status) if status != TxnStatus::Unknown => Outcome::Status(status),
            _ => {
                let silent = single.silent.iter().map(|&place| self.shards.at(place).id).collect();
                Outcome::Failed(SessionError::Silent { shards: silent })
            }
        }
    }

    /// Asks everything again that waits for this shard (or for any), because its connection or the
    /// map is new.
    pub(crate) fn ask_again_at(&mut self, now: Timestamp, place: Option<Place>) {
        let concerns = |other: Place| place.is_none_or(|place| place == other);
        for index in 0..self.txns.slots() {
            if self.txns.name(index).is_none() {
                continue;
            }
            match self.txns.at(index).phase {
                Phase::Open if self.txns.at(index).asked > 0 => {
                    for at in 0..self.txns.at(index).keys.len() {
                        let entry = self.txns.at(index).keys.entry(at);
                        if matches!(entry.read, Read::Asked(_)) && concerns(entry.place) {
                            self.repeat_read(now, index, at);
                        }
                    }
                }
                Phase::Committing | Phase::Told => self.tell_coordinator_of_loss(now, index, place),
                Phase::Open | Phase::Closed => {}
            }
        }
        for index in 0..self.singles.slots() {
            if self.singles.name(index).is_none() {
                continue;
            }
            let single = self.singles.at_mut(index);
            let waits =
                concerns(single.place) || single.silent.iter().any(|&silent| concerns(silent));
            if !single.settled && waits {
                single.attempts += 1;
                if place.is_none() && !single.silent.is_empty() {
                    // Which shards there are may have changed, and all of them are asked.
                    single.silent.retain(|&silent| self.shards.at(silent).known);
                }
                if place.is_none() && single.key_bytes > 0 && !single.key().is_empty() {
                    single.place = self.shards.of_key(single.key()).unwrap_or(single.place);
                }
                self.stats.repeated += 1;
                self.send_single(now, index);
            }
        }
    }

    fn tell_coordinator_of_loss(&mut self, now: Timestamp, index: u32, place: Option<Place>) {
        let mut at = 0;
        while let Some(&from) = self.txns.at(index).participants.get(at) {
            let concerned = place.is_none_or(|place| self.shards.at(place).id == from);
            if concerned && !self.txns.at(index).settled {
                self.coordinate(now, index, Input::Disconnected { from });
            }
            if self.txns.name(index).is_none() {
                return;
            }
            at += 1;
        }
    }
}

/// Reports.
///
/// Each shard is told what may still be used *there*. An open transaction may touch any shard, so
/// its begin holds all of them. What is being committed or written concerns the shards that take
/// part in it and no others: one that is gone for long must not stop the collection on those that
/// live (docs/protocol/time.md, "Watermark").
impl Engine {
    /// What every shard may be told: the lowest timestamp that may still be used there, and the
    /// sequence up to which everything is over.
    pub(crate) fn reports(&self) -> Vec<Report> {
        let mut open = self.clock;
        let mut reports =
            vec![Report { watermark: self.clock, lowest: None }; usize::from(self.shards.places())];
        for (_, txn) in self.txns.iter() {
            match txn.phase {
                Phase::Open => open = open.min(txn.begin),
                Phase::Committing | Phase::Told if !txn.settled => {
                    self.hold_participants(txn, &mut reports)
                }
                Phase::Committing | Phase::Told | Phase::Closed => {}
            }
        }
        for (_, single) in self.singles.iter().filter(|(_, single)| !single.settled) {
            if single.begin != Timestamp::ZERO && !single.begins_anew() {
                reports[single.place.index()].hold(single.begin);
            }
            if single.is_write() {
                reports[single.place.index()].owe(self.client, single.id);
            }
        }
        for known in &self.lingering {
            let places = known.at.iter().filter_map(|&shard| self.shards.place_of(shard));
            places.for_each(|place| reports[place.index()].owe(self.client, known.txn));
        }
        reports.iter_mut().for_each(|report| report.hold(open));
        #[cfg(feature = "planted-bugs")]
        self.spoil(&mut reports);
        reports
    }

    /// A transaction that is being committed: its begin may be used where the decision is not
    /// acknowledged yet. Its outcome is kept by every participant until all have acknowledged it.
    fn hold_participants(&self, txn: &Txn, reports: &mut [Report]) {
        for &shard in &txn.participants {
            let Some(place) = self.shards.place_of(shard) else { continue };
            let report = &mut reports[place.index()];
            report.owe(self.client, txn.id);
            if !txn.coordinator.has_acknowledged(shard) {
                report.hold(txn.begin);
            }
        }
    }

    /// Planted: reports that hold too little, or too much.
    #[cfg(feature = "planted-bugs")]
    fn spoil(&self, reports: &mut [Report]) {
        if crate::planted::bugs().hold_everywhere {
            let lowest = reports.iter().map(|report| report.watermark).min().unwrap_or(self.clock);
            reports.iter_mut().for_each(|report| report.hold(lowest));
        }
        if crate::planted::bugs().ignore_oldest_session {
            let txns = self.txns.iter().filter(|(_, txn)| {
                txn.phase != Phase::Closed && !(txn.phase == Phase::Told && txn.settled)
            });
            let singles = self
                .singles
                .iter()
                .filter(|(_, single)| !single.settled && single.begin != Timestamp::ZERO);
            let mut begins: Vec<_> = txns
                .map(|(_, txn)| txn.begin)
                .chain(singles.map(|(_, single)| single.begin))
                .collect();
            begins.sort_unstable();
            let second = begins.get(1).copied().unwrap_or(self.clock).min(self.clock);
            reports.iter_mut().for_each(|report| report.watermark = second);
        }
    }

    /// Tells every shard what may still be used.
    pub(crate) fn report_everywhere(&mut self) {
        self.trim_lingering(self.clock);
        self.next_report = self.clock.saturating_add(self.config.report_interval);
        for (raw, report) in (0..).zip(self.reports()) {
            self.append_report(
                Place(raw),
                report.watermark,
                report.acked(self.last_sequence),
                false,
            );
        }
    }

    /// Tells one shard, whose connection is new.
    pub(crate) fn report_to(&mut self, place: Place) {
        if let Some(&report) = self.reports().get(place.index()) {
            self.append_report(place, report.watermark, report.acked(self.last_sequence), false);
        }
    }

    /// Says goodbye to every shard: nothing of this client is open any more, so it holds the
    /// watermark back no longer, and will not ask again. What is still under way stays to be
    /// terminated by the participants.
    pub fn say_goodbye(&mut self, now: Timestamp) {
        let now = self.advance(now);
        for (raw, report) in (0..).zip(self.reports()) {
            self.append_report(Place(raw), now, report.acked(self.last_sequence), true);
        }
    }

    fn append_report(
        &mut self,
        place: Place,
        watermark: Timestamp,
        acked: Sequence,
        closing: bool,
    ) {
        let shard = self.shards.at(place);
        if !shard.up || !shard.known || shard.elsewhere.is_some() {
            return;
        }
        let route = Route {
            shard: shard.id,
            epoch: shard.epoch,
            map_version: self.shards.map_version(),
            request: number::NOBODY,
        };
        frames::report(
            route,
            self.client,
            (watermark, self.clock),
            acked,
            closing,
            self.shards.outbox(place),
        );
    }
}

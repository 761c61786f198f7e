//! What time brings: requests to repeat, deadlines, coordinators' timers, acknowledgements that were held back, and the reports
//! that let the watermark rise.
//!
//! Nothing is kept per request: one due time for the whole engine, at or before the earliest thing that is due, and a look at
//! everything open when it comes. Most requests are answered long before, so the look is rare.

use timestone_txn::coordinator::Input;
use timestone_types::{Sequence, Timestamp};

use crate::{
    Engine, SessionError,
    frames::{self, Route},
    keys::Read,
    limits, number,
    record::{Outcome, Phase, Want},
    shards::Place,
};

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
            if single.outcome.is_none() && due <= now {
                let at = single.commit;
                self.end_single(now, index, Outcome::Committed(at));
            } else if single.outcome.is_none() {
                self.note_due(due);
            }
        } else if deadline <= now {
            if single.is_write() {
                self.give_up_write(now, index);
                self.note_due(due);
            } else if let (Want::Status, Some(status)) = (single.want, single.status) {
                self.end_single(now, index, Outcome::Status(status));
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

    /// Asks everything again that waits for this shard (or for any), because its connection or the map is new.
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
            let waits = concerns(single.place) || single.silent.iter().any(|&silent| concerns(silent));
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
impl Engine {
    /// The lowest timestamp that may still be used here: the begin of what is oldest and open or unacknowledged; the clock when idle.
    pub(crate) fn watermark(&self) -> Timestamp {
        let txns = self
            .txns
            .iter()
            .filter(|(_, txn)| txn.phase != Phase::Closed && !(txn.phase == Phase::Told && txn.settled));
        let singles = self.singles.iter().filter(|(_, single)| !single.settled && single.begin != Timestamp::ZERO);
        let begins = txns.map(|(_, txn)| txn.begin).chain(singles.map(|(_, single)| single.begin));
        #[cfg(feature = "planted-bugs")]
        if crate::planted::bugs().ignore_oldest_session {
            let mut begins: Vec<Timestamp> = begins.collect();
            begins.sort_unstable();
            return begins.get(1).copied().unwrap_or(self.clock).min(self.clock);
        }
        begins.min().unwrap_or(self.clock).min(self.clock)
    }

    /// Every transaction and write of this client up to it is finished and acknowledged.
    pub(crate) fn acked(&self) -> Sequence {
        let txns = self.txns.iter().filter(|(_, txn)| !txn.settled).map(|(_, txn)| txn.id);
        let singles =
            self.singles.iter().filter(|(_, single)| single.is_write() && !single.settled).map(|(_, single)| single.id);
        let lingering = self.lingering.iter().map(|known| known.txn);
        let open = txns.chain(singles).chain(lingering).filter(|id| id.client == self.client).map(|id| id.sequence);
        open.min().map_or(self.last_sequence, |lowest| Sequence::new(lowest.get() - 1))
    }

    /// Tells every shard what may still be used.
    pub(crate) fn report_everywhere(&mut self) {
        self.trim_lingering(self.clock);
        self.next_report = self.clock.saturating_add(self.config.report_interval);
        let (watermark, acked) = (self.watermark(), self.acked());
        for raw in 0..self.shards.places() {
            self.append_report(Place(raw), watermark, acked, false);
        }
    }

    /// Tells one shard, whose connection is new.
    pub(crate) fn report_to(&mut self, place: Place) {
        let (watermark, acked) = (self.watermark(), self.acked());
        self.append_report(place, watermark, acked, false);
    }

    /// Says goodbye to every shard: nothing of this client is open any more, so it holds the watermark back no longer, and will
    /// not ask again. What is still under way stays to be terminated by the participants.
    pub fn say_goodbye(&mut self, now: Timestamp) {
        let now = self.advance(now);
        let acked = self.acked();
        for raw in 0..self.shards.places() {
            self.append_report(Place(raw), now, acked, true);
        }
    }

    fn append_report(&mut self, place: Place, watermark: Timestamp, acked: Sequence, closing: bool) {
        let shard = self.shards.at(place);
        if !shard.up || !shard.known || !shard.reported {
            return;
        }
        let route = Route {
            shard: shard.id,
            epoch: shard.epoch,
            map_version: self.shards.map_version(),
            request: number::NOBODY,
        };
        frames::report(route, self.client, watermark, acked, closing, self.shards.outbox(place));
    }
}

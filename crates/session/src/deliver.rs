//! Replies: each finds its asker by its number, and moves it on.
//!
//! What is late (the slot has moved on), doubled (the asker does not wait any more), from the wrong
//! shard or unreadable is counted and ignored: networks repeat and reorder, and no peer may bring
//! the engine down.

use timestone_txn::coordinator::Input;
use timestone_txn::participant::Vote;
use timestone_types::{AbortKind, AbortReason, ShardId, Timestamp, TxnOutcome};

use timestone_wire::{self as wire, ClockIs, ErrorCode, Frame, Frames, Message as _, WireError};

use crate::{
    ClockOffset, Engine, SessionError,
    engine::EndedWhat,
    frames::{self, Fault, Reply},
    keys::{Answer, Read},
    limits,
    number::{Kind, Number},
    record::{Ending, Outcome, Phase, Want},
    shards::Place,
};

impl Engine {
    /// Takes one reply frame that came from `shard`. Late, doubled and unreadable replies are
    /// counted and ignored.
    pub fn deliver(&mut self, now: Timestamp, shard: ShardId, frame: &[u8]) {
        match Frame::parse(frame) {
            Ok(frame) => self.deliver_frame(now, shard, &frame),
            Err(_) => self.stats.ignored_replies += 1,
        }
    }

    /// Takes a run of whole reply frames; each says in its header which shard it comes from.
    ///
    /// # Errors
    /// What could not be read: the connection cannot be trusted further and is to be closed. Frames
    /// before it were taken.
    pub fn deliver_frame_batch(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), WireError> {
        let mut frames = Frames::new(bytes);
        for frame in &mut frames {
            let frame = frame.inspect_err(|_| self.stats.ignored_replies += 1)?;
            self.deliver_frame(now, frame.envelope().shard, &frame);
        }
        if frames.rest().is_empty() { Ok(()) } else { Err(WireError::Truncated { kind: 0 }) }
    }

    /// Takes one reply that was split off already.
    pub fn deliver_frame(&mut self, now: Timestamp, shard: ShardId, frame: &Frame<'_>) {
        let now = self.advance(now);
        self.wants_routes |= frame.envelope().map_version.get() > self.shards.map_version();
        let number = Number::unpack(frame.envelope().request.get());
        let taken = self.shards.place_of(shard).and_then(|place| {
            self.shards.heard(place);
            if frame.kind() == wire::Kind::ClockIs {
                let reading = ClockIs::decode(frame).ok()?;
                self.lag = reading.now.since(now);
                self.shards.at_mut(place).offset.read(reading);
                return Some(());
            }
            if self.shards.at_mut(place).offset.answered(frame.envelope().request.get()) {
                self.wants_arrival = Some(place);
            }
            match number.kind {
                Kind::Read => self.deliver_read(now, place, number, frame),
                Kind::Commit => self.deliver_commit(now, shard, number, frame),
                Kind::Single => self.deliver_single(now, place, number, frame),
                Kind::None => self.deliver_to_nobody(frame),
            }
        });
        // What a server says of itself, and of no shard, concerns nobody here.
        if taken.is_none() && shard != wire::SERVER_ITSELF {
            self.stats.ignored_replies += 1;
        }
    }

    /// Whether an answer was delivered whose arrival tells something of its server's clock: the
    /// host reads its own clock and says so with [`Engine::arrived`]. The time of its turn would
    /// not do, for the turn may have begun before the answer arrived.
    #[must_use]
    pub const fn wants_arrival(&self) -> bool {
        self.wants_arrival.is_some()
    }

    /// What was delivered had arrived at `at`, by a clock that was read afterwards.
    pub fn arrived(&mut self, at: Timestamp) {
        if let Some(place) = self.wants_arrival.take() {
            self.shards.at_mut(place).offset.arrived(at);
        }
    }

    /// How far the clock of a shard's server is from this process's, as the latest exchange told;
    /// `None` before the first.
    #[must_use]
    pub fn clock_offset(&self, shard: ShardId) -> Option<ClockOffset> {
        self.shards.at(self.shards.place_of(shard)?).offset.latest()
    }

    /// The same for every shard of the map.
    pub fn clock_offsets(&self) -> impl Iterator<Item = (ShardId, ClockOffset)> + '_ {
        let known = self.shards.known().map(|place| self.shards.at(place));
        known.filter_map(|shard| Some((shard.id, shard.offset.latest()?)))
    }

    /// An answer to a transaction's read.
    fn deliver_read(
        &mut self,
        now: Timestamp,
        place: Place,
        number: Number,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let name = self.txns.name(number.name.index).filter(|&name| number.is_for(name))?;
        let txn = self.txns.at_mut(name.index);
        let asked = txn.phase == Phase::Open && number.item < txn.keys.len();
        let entry = asked.then(|| txn.keys.entry(number.item))?;
        let Read::Asked(op) = entry.read else { return None };
        if entry.place != place {
            return None;
        }
        match frames::reply(frame).ok()? {
            Reply::Value(answer) => {
                txn.asked -= 1;
                let learned = txn.keys.learn(number.item, answer);
                if let Err(limit) = &learned {
                    txn.keys.entry_mut(number.item).read = Read::None;
                    let failed = EndedWhat::Failed(Box::new((*limit).into()));
                    if let Some(op) = op {
                        self.finish(op, failed);
                    }
                } else if let Some(op) = op {
                    self.finish(op, EndedWhat::Read(name, number.item));
                }
                if !self.txns.at(name.index).waiters.is_empty() {
                    self.tell_waiters(
                        name.index,
                        number.item,
                        learned.err().map(SessionError::from),
                    );
                }
            }
            Reply::Fault(fault) => self.fault_of_read(now, name.index, number.item, fault),
            _ => return None,
        }
        Some(())
    }

    /// Tells the further operations that wait for one read what came of it.
    fn tell_waiters(&mut self, index: u32, item: u32, error: Option<SessionError>) {
        let Some(name) = self.txns.name(index) else { return };
        let mut at = 0;
        while let Some(&(entry, op)) = self.txns.at(index).waiters.get(at) {
            if entry != item {
                at += 1;
                continue;
            }
            self.txns.at_mut(index).waiters.swap_remove(at);
            let failed = error.clone().map(|error| EndedWhat::Failed(Box::new(error)));
            let what = failed.unwrap_or(EndedWhat::Read(name, item));
            self.finish(op, what);
        }
    }

    fn fault_of_read(&mut self, now: Timestamp, index: u32, item: u32, fault: Fault<'_>) {
        if let Some(pause) = self.pause_for(&fault, self.txns.at(index).keys.entry(item).attempts) {
            let entry = self.txns.at_mut(index).keys.entry_mut(item);
            entry.attempts += 1;
            entry.due = now.saturating_add(pause);
            let due = entry.due;
            return self.note_due(due);
        }
        match fault {
            Fault::TooOld { watermark } => self.close_as_too_old(index, Some(item), watermark),
            Fault::ClockAhead { lead } => self.close_with(index, item, Ending::ClockAhead { lead }),
            Fault::SessionEnded => {
                self.wants_client = true;
                self.close_with(index, item, Ending::SessionEnded);
            }
            other => self.fail_read(index, item, other.into()),
        }
    }

    /// One read failed; the transaction lives on.
    pub(crate) fn fail_read(&mut self, index: u32, item: u32, error: SessionError) {
        let txn = self.txns.at_mut(index);
        let op = txn.keys.take_waiter(item);
        txn.keys.entry_mut(item).read = Read::None;
        txn.asked -= 1;
        if let Some(op) = op {
            self.finish(op, EndedWhat::Failed(Box::new(error.clone())));
        }
        self.tell_waiters(index, item, Some(error));
    }

    /// How long to wait before asking again, when the fault passes by itself.
    fn pause_for(&mut self, fault: &Fault<'_>, attempts: u32) -> Option<core::time::Duration> {
        let pause =
            self.jitter.pause(attempts + 1, limits::MIN_RETRY_PAUSE, limits::MAX_RETRY_PAUSE);
        match *fault {
            Fault::Busy { retry_after } => {
                Some(retry_after.min(limits::MAX_RETRY_PAUSE).max(pause))
            }
            Fault::Prepared { .. } => Some(pause),
            Fault::WrongRoute => {
                self.wants_routes = true;
                Some(pause)
            }
            _ => None,
        }
    }

    /// An answer to a committing transaction: a vote, an acknowledgement, or what became of it.
    fn deliver_commit(
        &mut self,
        now: Timestamp,
        from: ShardId,
        number: Number,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let name = self.txns.name(number.name.index).filter(|&name| number.is_for(name))?;
        let index = name.index;
        if !matches!(self.txns.at(index).phase, Phase::Committing | Phase::Told)
            || self.txns.at(index).settled
        {
            return None;
        }
        let own = self.txns.at(index).id;
        let input = match frames::reply(frame).ok()? {
            Reply::Vote { txn, commit, vote } if txn == own => {
                self.stats.later_rounds += u64::from(matches!(vote, Vote::Later(_)));
                let step = self.jitter.step(limits::LATER_SPREAD);
                Input::Vote { from, commit, vote, step }
            }
            Reply::Acked { txn } if txn == own => Input::Acked { from },
            Reply::WriteSetWanted { txn } if txn == own => Input::WriteSetWanted { from },
            Reply::Status { txn, status } if txn == own => {
                Input::StatusIs { from, status: status.into() }
            }
            Reply::Fault(fault) => Input::Refused { from, refusal: self.note_fault(index, fault)? },
            _ => return None,
        };
        self.coordinate(now, index, input);
        Some(())
    }

    /// What a refusal during a commit means for the whole engine, and for the coordinator.
    fn note_fault(&mut self, index: u32, fault: Fault<'_>) -> Option<timestone_txn::Refusal> {
        self.wants_routes |= matches!(fault, Fault::WrongRoute);
        self.wants_client |= matches!(fault, Fault::SessionEnded);
        if let Fault::Other { .. } = fault {
            self.txns.at_mut(index).fault = Some(fault.into());
        }
        fault.refusal()
    }

    /// An answer to a request outside transactions.
    fn deliver_single(
        &mut self,
        now: Timestamp,
        place: Place,
        number: Number,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let name = self.singles.name(number.name.index).filter(|&name| number.is_for(name))?;
        let index = name.index;
        let single = self.singles.at_mut(index);
        let asked = single.want == Want::Status || single.place == place;
        if single.settled || !asked {
            return None;
        }
        let reply = frames::reply(frame).ok()?;
        match (single.want, reply) {
            (_, Reply::Fault(fault)) => self.fault_of_single(now, index, fault)?,
            // The shard read around a write that was not decided or applied in time. What was
            // acknowledged to somebody else may be in there: not the latest, then.
            (Want::Get, Reply::Value(Answer { prepared_before: true, .. })) => {
                self.fault_of_single(
                    now,
                    index,
                    Fault::Prepared { other: timestone_types::TxnId::default() },
                )?;
            }
            (Want::Get, Reply::Value(Answer { version, expires_at, value, .. })) => {
                single.buffer.clear();
                single.buffer.extend_from_slice(value.unwrap_or_default());
                let present = value.is_some();
                self.end_single(now, index, Outcome::Value { version, expires_at, present });
            }
            (Want::Put | Want::Delete, Reply::Written { commit, vote, previous }) => {
                let current = commit == single.commit;
                if !matches!(vote, Vote::Later(_)) {
                    single.keep_previous(previous);
                }
                self.vote_on_single(now, index, commit, vote, current)?;
            }
            (Want::Put | Want::Delete, Reply::Status { txn, status }) if txn == single.id => {
                let vote = Vote::Decided(status.outcome()?);
                self.vote_on_single(now, index, Timestamp::ZERO, vote, true)?;
            }
            (Want::Status, Reply::Status { txn, status }) if txn == single.id => {
                self.merge_status(now, index, place, status);
            }
            (Want::Ask, _) => {
                single.buffer.clear();
                single.buffer.extend_from_slice(frame.bytes());
                self.end_single(now, index, Outcome::Frame);
            }
            _ => return None,
        }
        Some(())
    }

    /// A vote about a single-key write. A decision counts whichever round it answers; `Later` only
    /// when it answers the present one.
    fn vote_on_single(
        &mut self,
        now: Timestamp,
        index: u32,
        commit: Timestamp,
        vote: Vote,
        current: bool,
    ) -> Option<()> {
        match vote {
            Vote::Yes | Vote::Decided(TxnOutcome::Committed(_)) => {
                let at =
                    if let Vote::Decided(TxnOutcome::Committed(at)) = vote { at } else { commit };
                self.wrote(now, index, at);
            }
            // Too old for a copy means too old to be remembered: an earlier one may have been
            // carried out, unless each was refused.
            Vote::No(reason)
                if reason.kind == AbortKind::TooOld
                    && self.singles.at(index).may_be_forgotten() =>
            {
                self.end_single(now, index, Outcome::Unknown);
            }
            Vote::No(reason) => self.end_single(now, index, Outcome::Aborted(reason)),
            Vote::Decided(TxnOutcome::Aborted) => {
                self.end_single(
                    now,
                    index,
                    Outcome::Aborted(AbortReason::of(AbortKind::Terminated)),
                );
            }
            // It was reported as unknown. Others, its own session first, may have gone on from what
            // they found: it takes place at the time at which it was asked, or never. Marks only
            // rise, so no copy of it has a chance any more.
            Vote::Later(_)
                if current
                    && self.singles.at(index).outcome.is_some()
                    && !crate::single::undoes_later_writes() =>
            {
                self.end_single(
                    now,
                    index,
                    Outcome::Aborted(AbortReason::of(AbortKind::Timestamp)),
                );
            }
            Vote::Later(bound) if current => self.later(now, index, bound),
            Vote::Later(_) => return None,
        }
        Some(())
    }

    /// A single-key write took place at `at`: told at once, or when the clock's error bound has
    /// passed.
    fn wrote(&mut self, now: Timestamp, index: u32, at: Timestamp) {
        let until = at.saturating_add(self.clock_error);
        let single = self.singles.at_mut(index);
        if single.external_wait && single.outcome.is_none() && until >= now {
            single.settled = true;
            single.commit = at;
            single.due = until.next();
            let due = single.due;
            self.note_due(due);
        } else {
            self.end_single(now, index, Outcome::Committed(at));
        }
    }

    fn fault_of_single(&mut self, now: Timestamp, index: u32, fault: Fault<'_>) -> Option<()> {
        if let Some(pause) = self.pause_for(&fault, self.singles.at(index).attempts) {
            let single = self.singles.at_mut(index);
            let told_unknown = single.is_write() && single.outcome.is_some();
            if told_unknown && fault.lacks_room() && !crate::single::keeps_refused() {
                // Nobody waits for it, and as long as it is asked it keeps the room from becoming
                // free that it asks for. An earlier copy takes place at its timestamp or, below the
                // watermark, never.
                self.end_single(now, index, Outcome::Unknown);
                return Some(());
            }
            single.attempts += 1;
            single.unanswered = false;
            single.due = now.saturating_add(pause);
            let due = single.due;
            self.note_due(due);
            return Some(());
        }
        self.wants_client |= matches!(fault, Fault::SessionEnded);
        let single = self.singles.at(index);
        let (is_write, doubtful, forgotten) =
            (single.is_write(), single.doubtful, single.may_be_forgotten());
        let outcome = match fault {
            // Forgotten, perhaps after it was carried out.
            Fault::TooOld { .. } if is_write && forgotten => Outcome::Unknown,
            Fault::TooOld { watermark } => Outcome::Aborted(AbortReason {
                at: watermark,
                ..AbortReason::of(AbortKind::TooOld)
            }),
            // Under this id it was carried out or refused before, and nobody remembers which.
            Fault::SessionEnded | Fault::Terminating if is_write => Outcome::Unknown,
            Fault::Other { code: ErrorCode::UnknownOutcome, .. } if is_write => Outcome::Unknown,
            // Whatever this copy met, an earlier one may have been carried out, or be waiting at
            // the server for its turn.
            _ if is_write && doubtful && !crate::single::fails_for_copies() => Outcome::Unknown,
            // The server was restarted, and does not say whether it has forgotten an earlier copy.
            Fault::Other { code: ErrorCode::ClockBehind, .. } if is_write && forgotten => {
                Outcome::Unknown
            }
            other => Outcome::Failed(other.into()),
        };
        self.end_single(now, index, outcome);
        Some(())
    }

    /// A reply to a report. Only what concerns the whole engine matters.
    fn deliver_to_nobody(&mut self, frame: &Frame<'_>) -> Option<()> {
        match frames::reply(frame).ok()? {
            Reply::Fault(Fault::WrongRoute) => self.wants_routes = true,
            Reply::Fault(Fault::SessionEnded) => self.wants_client = true,
            _ => {}
        }
        Some(())
    }
}

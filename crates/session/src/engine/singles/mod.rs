//! Requests outside transactions: linearizable reads and exactly-once writes of one key, questions
//! about a transaction, and the host's own frames.
//!
//! ```text
//!   write ──► Prepare-like request under one TxnId ──► took place | condition failed | aborted ──► Done
//!                 ▲   │ Later(t): another round at t + a small step, same TxnId
//!                 ├───┤ refused, because another write of the key was not over in time: again, with a new TxnId
//!                 └───┴ lost, Busy, restarted: the same (TxnId, timestamp) again, until the deadline; then Unknown,
//!                       and it is still asked in the background until its outcome is known
//! ```
//! `answers.rs` has what comes back. Source: SEMEL §3.3; DTranx (exactly once);
//! docs/protocol/transactions.md, "Single keys".

mod answers;
pub(crate) mod record;

use timestone_types::{
    Expiry, Timestamp, TxnId, TxnOutcome, Version, is_planted, limits as shared,
};
use timestone_wire::{Frame, Kind};

use self::record::{Single, SingleResult, Want, WriteOptions};
use super::context::{Again, Context};
use super::frames;
use super::number::Asker;
use super::reports::Reports;
use super::results::ResultAt;
use super::shards::ShardIndex;
use super::slab::{Slab, SlabKey};
use crate::handle::TicketKind;
use crate::{
    Condition, KeyName, LimitError, Mutation, OpId, OpResult, RequestOptions, SessionError,
    SessionId, Step, Ticket, TxnStatus, limits,
};

/// The requests under way. See the module's description.
#[derive(Debug)]
pub(crate) struct Singles(Slab<Single>);

/// What the application asks.
impl Singles {
    pub(super) const fn new() -> Self {
        Self(Slab::new(limits::MAX_SINGLES))
    }

    pub(super) fn get_latest(
        &mut self,
        context: &mut Context,
        session: SessionId,
        key: KeyName<'_>,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'static>, SessionError> {
        let begin = issue(context, session)?;
        let shard = shard_to_ask(context, key.key)?;
        let slot = self.open(context, Want::Get, shard, options, op)?;
        let single = self.0.at_mut(slot.index);
        single.session = Some(session.into());
        single.keyspace = key.keyspace;
        single.begin = begin;
        single.bytes.fill(key.key, &[], &[]);
        self.send(context, slot.index);
        self.assert_one(slot.index);
        Ok(ticket(slot, op))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a request outside a transaction says everything at once"
    )]
    pub(super) fn write_if(
        &mut self,
        context: &mut Context,
        session: SessionId,
        key: KeyName<'_>,
        mutation: Mutation<'_>,
        condition: Condition<'_>,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'static>, SessionError> {
        let shard = shard_to_ask(context, key.key)?;
        let (want, value, expires_at) = match mutation {
            Mutation::Put { value, expires_at } => (Want::Put, value, expires_at),
            Mutation::PutKeepExpiry { value } => (Want::Put, value, Expiry::NEVER),
            Mutation::Delete => (Want::Delete, &[][..], Expiry::NEVER),
        };
        let expected =
            if let Condition::ValueIs(expected) = condition { expected } else { &[][..] };
        if let Some(bytes) =
            [value.len(), expected.len()].into_iter().find(|&bytes| bytes > shared::MAX_VALUE_BYTES)
        {
            return Err(LimitError::ValueTooLong { bytes }.into());
        }
        let begin = issue(context, session)?;
        let slot = self.open(context, want, shard, options, op)?;
        let single = self.0.at_mut(slot.index);
        single.session = Some(session.into());
        single.keyspace = key.keyspace;
        single.id = context.next_id();
        single.begin = begin;
        // Above begin, as every commit: the begin of this write was issued to nobody else. And not
        // behind what was acknowledged to anybody before, where that is promised.
        let lowest = begin.next();
        single.commit = if options.external_wait {
            propose_ahead(context, single.session, lowest)
        } else {
            lowest
        };
        single.write = WriteOptions {
            condition: condition.into(),
            expires_at,
            keep_expiry: matches!(mutation, Mutation::PutKeepExpiry { .. }),
            return_previous: options.return_previous,
            external_wait: options.external_wait,
        };
        single.bytes.fill(key.key, value, expected);
        self.send(context, slot.index);
        self.assert_one(slot.index);
        Ok(ticket(slot, op))
    }

    pub(super) fn status(
        &mut self,
        context: &mut Context,
        txn: TxnId,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'static>, SessionError> {
        let Some(first) = context.shards().next() else { return Err(SessionError::NoShard) };
        let slot = self.open(context, Want::Status, first, options, op)?;
        let single = self.0.at_mut(slot.index);
        single.id = txn;
        single.poll.silent.extend(context.shards());
        if let Some(outcome) = context.outcome_of_unknown(txn) {
            self.end(context, slot.index, SingleResult::Status(outcome.into()));
        } else {
            self.send(context, slot.index);
        }
        self.assert_one(slot.index);
        Ok(ticket(slot, op))
    }

    pub(super) fn ask(
        &mut self,
        context: &mut Context,
        (shard, session): (ShardIndex, Option<SlabKey>),
        options: RequestOptions,
        op: OpId,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Step<'static>, SessionError> {
        let slot = self.open(context, Want::Ask, context.reach(shard)?, options, op)?;
        self.0.at_mut(slot.index).session = session;
        let request = super::number::Number::new(Asker::Single, slot, 0).pack();
        encode(request, self.0.at_mut(slot.index).bytes.frame_mut());
        self.send(context, slot.index);
        self.assert_one(slot.index);
        Ok(ticket(slot, op))
    }

    fn open(
        &mut self,
        context: &mut Context,
        want: Want,
        shard: ShardIndex,
        options: RequestOptions,
        op: OpId,
    ) -> Result<SlabKey, SessionError> {
        context.check_room(shard)?;
        let deadline = context.deadline(options.deadline);
        let Some((slot, single)) = self.0.take() else {
            return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
        };
        single.open(want, op, shard, deadline);
        context.wake_at(deadline);
        self.assert_one(slot.index);
        Ok(slot)
    }

    /// Nobody waits for this request any more. A write under way goes on, at the timestamp that it
    /// has.
    pub(super) fn cancel(&mut self, context: &mut Context, slot: SlabKey, op: OpId) {
        let Some(single) = self.0.get_mut(slot).filter(|single| single.op == Some(op)) else {
            return;
        };
        if single.result.is_some() {
            return;
        }
        single.op = None;
        if single.is_write() && !single.is_settled {
            return self.give_up_write(context, slot.index);
        }
        if single.is_write() && !timestone_types::is_planted!(ForgetsUntold) {
            // It has taken place, and would have been told when the clocks have passed it.
            context.session_learned(single.session, single.commit.next());
        }
        single.is_settled = true;
        self.release_if_over(slot.index);
        self.assert_one(slot.index);
    }
}

/// What is sent, and when.
impl Singles {
    /// Appends a request to its shard's outbox (or to every silent shard's), where there is a
    /// connection.
    fn send(&mut self, context: &mut Context, index: u32) {
        let Some(slot) = self.0.key(index) else { return };
        let single = self.0.at_mut(index);
        assert!(!single.is_settled, "{} is over, and sent again", single.id);
        if let Err(error) = Self::is_understood(context, single) {
            return self.end(context, index, SingleResult::Failed(error));
        }
        if single.begins_anew() && single.copies.attempts > 0 {
            // No server has seen it: it takes place after whatever its session has seen meanwhile,
            // and the watermark has gone on without it.
            let now = context.now();
            let clock = single.session.and_then(|session| context.session_clock(session));
            single.begin = clock.map_or(now, |clock| clock.begin(now)).max(single.begin);
            let lowest = single.commit.max(single.begin.next());
            single.commit = if single.write.external_wait {
                propose_ahead(context, single.session, lowest)
            } else {
                lowest
            };
        }
        let is_sent = if single.want == Want::Status {
            let mut is_sent = false;
            for &shard in &single.poll.silent {
                is_sent |= Self::send_to(context, slot, single, shard, u32::from(shard.0));
            }
            is_sent
        } else {
            let places = context.places_puts(single.shard);
            single.copies.are_placed |= single.may_be_placed() && places;
            if single.copies.are_placed && !places {
                // It may have been placed, and this server chooses no timestamps: it says at which
                // one, or puts it at the last one that was left to another.
                single.commit = single.last_chance();
                single.copies.next_round_elsewhere();
            }
            Self::send_to(context, slot, single, single.shard, single.copies.round)
        };
        single.times.due = Timestamp::MAX;
        if is_sent {
            single.copies.sent();
            single.times.due = context.repeat_at();
        }
        context.wake_at(single.times.due);
    }

    /// Whether the server of its shard knows what is asked. One that does not would end the connection.
    fn is_understood(context: &Context, single: &Single) -> Result<(), SessionError> {
        if single.want != Want::Ask {
            return Ok(());
        }
        let asks = Frame::parse(single.bytes.all()).map(|frame| frame.kind());
        match asks {
            Ok(Kind::Range) => context.reads_ranges(single.shard),
            Ok(Kind::RangeDown) => context.reads_downwards(single.shard),
            _ => Ok(()),
        }
    }

    /// Whether there is a connection to send it on.
    fn send_to(
        context: &mut Context,
        slot: SlabKey,
        single: &Single,
        to: ShardIndex,
        item: u32,
    ) -> bool {
        if single.copies.attempts == 0 {
            context.watch_clock(to, Asker::Single, slot, item);
        }
        debug_assert!(!single.is_settled, "{} is over, and sent again", single.id);
        let (client, wait) = (context.client(), context.config().wait);
        let at = read_at(context, single);
        let Some((route, out)) = context.request(to, Asker::Single, slot, item) else {
            return false;
        };
        match single.want {
            Want::Get => frames::latest_read(route, client, single, at, wait, out),
            Want::Put | Want::Delete => frames::write(route, single, wait, out),
            Want::Status => frames::status(route, single.id, out),
            Want::Ask => frames::again(route, single.bytes.all(), out),
        }
        true
    }

    /// Does what is due: repeats, deadlines, ends that waited for the clocks.
    pub(super) fn sweep(&mut self, context: &mut Context) {
        for index in 0..self.0.slots() {
            if self.0.key(index).is_some() {
                self.sweep_one(context, index);
                self.assert_one(index);
            }
        }
    }

    fn sweep_one(&mut self, context: &mut Context, index: u32) {
        let single = self.0.at(index);
        let (now, due, deadline) = (context.now(), single.times.due, single.times.deadline);
        single.assert_sound();
        if single.is_settled {
            // It took place, and waits for the clocks.
            let at = single.commit;
            if single.result.is_some() {
                // Somebody has yet to take it.
            } else if context.has_passed(at) {
                self.end(context, index, SingleResult::Committed(at));
            } else if deadline <= now {
                self.end_before_the_clocks(context, index);
            } else {
                // The error bound may be another one by now.
                let due = context.passed_at(at);
                self.0.at_mut(index).times.due = due;
                context.wake_at(due.min(deadline));
            }
        } else if deadline <= now {
            self.give_up(context, index);
        } else if due <= now {
            self.repeat(context, index);
            context.wake_at(deadline);
        } else {
            context.wake_at(due.min(deadline));
        }
    }

    fn repeat(&mut self, context: &mut Context, index: u32) {
        if is_planted!(RenamedRepeats) && self.0.at(index).is_write() {
            self.0.at_mut(index).id = context.next_id();
        }
        context.stats().repeated += 1;
        debug_assert!(!self.0.at(index).is_settled, "what is over is repeated");
        self.0.at_mut(index).copies.attempts += 1;
        self.send(context, index);
    }

    /// Asks everything again that waits for shards whose connection is new, or that have moved.
    pub(super) fn ask_again(&mut self, context: &mut Context, again: Again) {
        for index in 0..self.0.slots() {
            if self.0.key(index).is_none() || self.0.at(index).is_settled {
                continue;
            }
            let single = self.0.at_mut(index);
            let before = single.shard;
            if matches!(again, Again::Moved) {
                // Which shards there are may have changed, and all of them are asked.
                single.poll.silent.retain(|&silent| context.has(silent));
                if !single.bytes.key().is_empty() {
                    let owner = context.owner_of(single.bytes.key());
                    single.shard = owner.unwrap_or(single.shard);
                }
            }
            let mut asked = single.poll.silent.iter().copied().chain([single.shard]);
            let is_concerned = asked.any(|shard| context.is_asked_again(again, shard));
            if is_concerned || single.shard != before {
                self.repeat(context, index);
            }
            self.assert_one(index);
        }
    }

    /// Says what is held back: the begin of what is under way, and the outcomes of writes.
    pub(super) fn report(&self, reports: &mut Reports) {
        for (_, single) in self.0.iter().filter(|(_, single)| !single.is_settled) {
            single.assert_sound();
            if single.begin != Timestamp::ZERO && !single.begins_anew() {
                reports.hold(single.shard, single.begin);
            }
            if single.is_write() {
                reports.owe(single.shard, single.id);
            }
        }
    }

    /// Planted: what was asked of a shard is over, and was not done.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn fail_all(&mut self, context: &mut Context, shard: ShardIndex) {
        for index in 0..self.0.slots() {
            let is_asked = |single: &Single| single.shard == shard && single.is_write();
            if self.0.key(index).is_some()
                && is_asked(self.0.at(index))
                && !self.0.at(index).is_settled
                && self.0.at(index).result.is_none()
            {
                self.end(context, index, SingleResult::Failed(SessionError::DeadlineExceeded));
            }
        }
    }

    pub(super) fn unresolved(&self) -> usize {
        let is_unresolved = |single: &Single| single.is_write() && !single.is_settled;
        self.0.iter().filter(|(_, single)| is_unresolved(single)).count()
    }
}

/// Ends.
impl Singles {
    /// Ends a request with a result; its operation is told, when anybody still waits.
    fn end(&mut self, context: &mut Context, index: u32, result: SingleResult) {
        let Some(slot) = self.0.key(index) else { return };
        let single = self.0.at_mut(index);
        let lag = match &result {
            SingleResult::Aborted(reason) => context.lag_behind(reason),
            _ => None,
        };
        let learned = match &result {
            SingleResult::Committed(at) => {
                context.stats().committed += 1;
                Some((*at).next())
            }
            SingleResult::Aborted(reason) => {
                context.stats().aborted += 1;
                Some(reason.at.next()).filter(|_| reason.at > Timestamp::ZERO)
            }
            SingleResult::Value { version, expires_at, present } => {
                Some(seen_by_read(context.now(), *version, *expires_at, *present).next())
            }
            // A copy of it may be waiting at the server.
            SingleResult::Unknown => {
                context.session_gave_up(single.session, single.last_chance().next());
                None
            }
            _ => None,
        };
        if let Some(bound) = learned {
            context.session_learned(single.session, bound);
        }
        if single.is_write() && single.result.is_some() {
            let outcome = match result {
                SingleResult::Committed(at) => Some(TxnOutcome::Committed(at)),
                SingleResult::Aborted(_) => Some(TxnOutcome::Aborted),
                _ => None,
            };
            context.learn_unknown(single.id, outcome);
        } else {
            assert!(single.result.is_none(), "{} ends twice", single.id);
            single.result = Some(match lag {
                Some(lag) => SingleResult::Failed(SessionError::ClockBehind { lag }),
                None => result,
            });
            if let Some(op) = single.op {
                context.finish(op, ResultAt::Single(slot));
            }
        }
        single.is_settled = true;
        single.times.due = Timestamp::MAX;
        self.release_if_over(index);
        context.trim_unknown();
    }

    /// The deadline of a request passed.
    fn give_up(&mut self, context: &mut Context, index: u32) {
        let single = self.0.at(index);
        assert!(single.times.deadline <= context.now(), "{} has time left", single.id);
        if let Some(reason) = single.met.filter(|_| single.begins_anew()) {
            self.end(context, index, SingleResult::Aborted(reason));
        } else if single.begins_anew() {
            let refused = if context.is_connected(single.shard) {
                SessionError::Busy { retry_after: limits::MAX_RETRY_PAUSE }
            } else {
                SessionError::DeadlineExceeded
            };
            self.end(context, index, SingleResult::Failed(refused));
        } else if single.is_write() {
            let due = single.times.due;
            self.give_up_write(context, index);
            context.wake_at(due);
        } else if single.want == Want::Status {
            let result = status_without_the_silent(context, single);
            self.end(context, index, result);
        } else {
            self.end(context, index, SingleResult::Failed(SessionError::DeadlineExceeded));
        }
    }

    /// The deadline of a write passed, or nobody waits for it any more: the application is told
    /// `Unknown`, if it is told; the request goes on until its outcome is known, at the timestamp
    /// that it has. What this session does next comes after whatever that leaves to its shard.
    fn give_up_write(&mut self, context: &mut Context, index: u32) {
        let Some(slot) = self.0.key(index) else { return };
        let single = self.0.at_mut(index);
        assert!(single.is_write() && !single.is_settled, "{} is no write under way", single.id);
        single.result = Some(SingleResult::Unknown);
        single.times.deadline = Timestamp::MAX;
        if !is_planted!(UndoneWrite) {
            context.session_gave_up(single.session, single.last_chance().next());
        }
        context.remember_unknown(single.id, [context.id_of(single.shard)].into(), None);
        if let Some(op) = single.op {
            context.finish(op, ResultAt::Single(slot));
        }
        context.trim_unknown();
    }

    /// The deadline of a write passed that took place and waits for the clocks: that none is behind
    /// it any more is not known in time. Whoever asks is told that it took place.
    fn end_before_the_clocks(&mut self, context: &mut Context, index: u32) {
        let single = self.0.at(index);
        assert!(single.is_write() && single.is_settled, "{} has not taken place", single.id);
        let (at, outcome) = (context.id_of(single.shard), TxnOutcome::Committed(single.commit));
        context.remember_unknown(single.id, [at].into(), Some(outcome));
        self.end(context, index, SingleResult::Unknown);
    }

    fn release_if_over(&mut self, index: u32) {
        let single = self.0.at_mut(index);
        if single.is_over() {
            single.close();
            self.0.release(index);
        }
        self.assert_one(index);
    }

    /// The result of a request was handed out.
    pub(super) fn handed_out(&mut self, slot: SlabKey) {
        if let Some(single) = self.0.get_mut(slot) {
            assert!(single.result.is_some(), "{} has no result", single.id);
            single.op = None;
            self.release_if_over(slot.index);
        }
    }

    /// What came of a request, while its result is handed out.
    pub(super) fn result(&self, slot: SlabKey) -> Option<OpResult<'_>> {
        self.0.get(slot).map(Single::told)
    }
}

/// Invariants.
impl Singles {
    /// Of the request in a slot, when it is taken.
    #[inline]
    fn assert_one(&self, index: u32) {
        if cfg!(debug_assertions) && self.0.key(index).is_some() {
            self.0.at(index).assert_sound();
        }
    }

    /// Every request has its slot, its session's clock where it needs one, and its time. Walks the
    /// requests when they are few.
    pub(super) fn assert_sound(&self, context: &Context) {
        if self.0.slots() > limits::CHECKED_SLOTS {
            return;
        }
        self.0.assert_sound();
        for (_, single) in self.0.iter() {
            single.assert_sound();
            if let Some(due) = single.due() {
                context.assert_wakes_by(due);
            }
        }
    }
}

/// A timestamp of a session, above all that it has seen.
pub(super) fn issue(context: &mut Context, session: SessionId) -> Result<Timestamp, SessionError> {
    let now = context.now();
    match context.session_clock(session.into()) {
        Some(clock) => {
            let issued = clock.begin(now);
            debug_assert!(issued >= now, "{issued} lies in the past");
            Ok(issued)
        }
        None => Err(SessionError::NoSession),
    }
}

/// What whoever has read this has seen. What has expired for it is not there for what it does next,
/// whose clock may be behind. No server's is further ahead.
pub(super) fn seen_by_read(
    now: Timestamp,
    version: Version,
    expires_at: Expiry,
    is_present: bool,
) -> Timestamp {
    let gone = expires_at.timestamp();
    let latest = now.saturating_add(shared::MAX_CLOCK_LEAD);
    let is_gone = !is_present && gone <= latest;
    if is_gone { version.timestamp.max(gone) } else { version.timestamp }
}

/// A timestamp for a write that waits for the clocks, at or above `lowest` and not behind what
/// anybody was told before. No other write of its session gets the same.
fn propose_ahead(context: &mut Context, session: Option<SlabKey>, lowest: Timestamp) -> Timestamp {
    let earliest = lowest.max(context.external_now());
    let clock = session.and_then(|session| context.session_clock(session));
    let commit = clock.map_or(earliest, |clock| clock.propose_commit(earliest));
    debug_assert!(commit >= earliest, "{commit} is behind what others were told");
    commit
}

/// The shard of a key that keeps the limits.
pub(super) fn shard_to_ask(context: &Context, key: &[u8]) -> Result<ShardIndex, SessionError> {
    if key.is_empty() {
        return Err(LimitError::EmptyKey.into());
    }
    if key.len() > shared::MAX_KEY_BYTES {
        return Err(LimitError::KeyTooLong { bytes: key.len() }.into());
    }
    context.shard_of(key)
}

fn ticket(slot: SlabKey, op: OpId) -> Step<'static> {
    let SlabKey { index, generation } = slot;
    Step::Pending(Ticket { kind: TicketKind::Single, index, generation, item: 0, op })
}

/// At or above which timestamp what is latest is read. Its begin is as good as any lower one that keeps out
/// whatever the session has given up. A server whose clock is held refuses what leads because of
/// that, so who is asked again is asked for the lowest.
fn read_at(context: &Context, single: &Single) -> Timestamp {
    let is_first = single.copies.attempts == 0;
    let lowest =
        single.session.filter(|_| !is_first).and_then(|session| context.lowest_read(session));
    lowest.map_or(single.begin, |lowest| lowest.min(single.begin))
}

/// What is known of a transaction at the deadline of the question. That nobody who answered has
/// heard of it proves nothing: one of those that were silent may have carried it out.
fn status_without_the_silent(context: &Context, single: &Single) -> SingleResult {
    match single.poll.best {
        Some(status) if status != TxnStatus::Unknown => SingleResult::Status(status),
        _ => {
            let silent = single.poll.silent.iter().map(|&shard| context.id_of(shard)).collect();
            SingleResult::Failed(SessionError::Silent { shards: silent })
        }
    }
}

//! Commits: from the application's call to the last acknowledgement.
//!
//! ```text
//!   commit ──► Coordinator ──► Prepare, Decide, … ──► frames
//!                   ▲  └─────► Finished ──► result     Done ──► nothing is owed
//!   votes, losses, ticks
//! ```

use core::mem;

use timestone_txn::Refusal;
use timestone_txn::coordinator::{CommitKind, CommitResult, Input, Output};
use timestone_txn::participant::Vote;
use timestone_types::{AbortKind, AbortReason, ShardId, Timestamp, TxnOutcome};

use super::Timestamps;
use super::frames::{self, PrepareAs};
use super::record::{Ending, Phase, TxnResult};
use crate::cache::Cache;
use crate::engine::context::{Again, Context};
use crate::engine::frames::Route;
use crate::engine::number::Asker;
use crate::engine::replies::{Fault, Reply};
use crate::engine::results::ResultAt;
use crate::engine::shards::ShardIndex;
use crate::engine::slab::SlabKey;
use crate::handle::TicketKind;
use crate::{OpId, ReadOnlyCommit, SessionError, Step, Ticket, TxnStatus, limits};

impl<C: Cache> Timestamps<C> {
    /// Commits an open transaction without reads under way.
    pub(super) fn commit_open(
        &mut self,
        context: &mut Context,
        slot: SlabKey,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let SlabKey { index, generation } = slot;
        let txn = self.txns.at(index);
        assert!(txn.asked == 0, "reads under way are not part of the transaction");
        self.txns.has_seen(context, index);
        context.count_commit();
        let txn = self.txns.at_mut(index);
        let writes = txn.keys.writes() > 0;
        let must_be_latest = txn.options.must_be_latest();
        let mut local = txn.keys.validate_locally(must_be_latest);
        if !txn.ranges.is_empty() {
            // A range is never read around a promise.
            local.observe(0, false);
        }
        let uncertain = local.uncertain();
        // Nothing to validate is nothing to ask anybody for.
        let has_read = txn.keys.shards().next().is_some() || !txn.ranges.is_empty();
        let asks_shards = has_read
            && match context.config().read_only {
                ReadOnlyCommit::Locally => false,
                ReadOnlyCommit::BelowWatermark { .. } => {
                    !txn.ranges.is_empty() || !txn.keys.lies_below(txn.watermark)
                }
                ReadOnlyCommit::Remotely | ReadOnlyCommit::Recorded => true,
            };
        if !writes && local.commits() && !asks_shards {
            let begin = txn.begin;
            context.stats().committed_locally += 1;
            self.txns.end(index);
            return Ok(Step::Committed(begin));
        }
        let ticket = Ticket { kind: TicketKind::Commit, index, generation, item: 0, op };
        txn.op = Some(op);
        if !writes && txn.options.snapshot_at.is_some() {
            // A snapshot in the past cannot be shown to be the latest state; only an undecided
            // write can be waited out.
            let kind =
                if uncertain.is_some() { AbortKind::Prepared } else { AbortKind::ReadConflict };
            let aborted = TxnResult::Aborted { reason: AbortReason::of(kind), entry: uncertain };
            self.txns.close(context, index, Some(aborted));
            return Ok(Step::Pending(ticket));
        }
        let reads_ranges = !txn.ranges.is_empty();
        let outdated = context
            .shards()
            .filter(|_| reads_ranges)
            .try_for_each(|shard| context.reads_ranges(shard));
        if let Err(error) = outdated {
            txn.op = None;
            self.txns.close(context, index, None);
            return Err(error);
        }
        if context.deadline(txn.options.deadline) <= context.now() {
            // Nothing was sent yet, so it is known not to take place; after a prepare it could be unknown.
            txn.op = None;
            self.txns.close(context, index, None);
            return Err(SessionError::CommitTooLate);
        }
        let of_ranges = context.shards().filter(|_| reads_ranges);
        if txn.keys.shards().chain(of_ranges).any(|shard| context.is_full(shard)) {
            // Nothing was sent, and nothing of it is kept: whoever wants it begins anew.
            txn.op = None;
            self.txns.close(context, index, None);
            return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
        }
        let is_recorded = writes || context.config().read_only == ReadOnlyCommit::Recorded;
        let kind = if is_recorded { CommitKind::ReadWrite } else { CommitKind::StrictReadOnly };
        self.start_commit(context, index, kind);
        Ok(Step::Pending(ticket))
    }

    fn start_commit(&mut self, context: &mut Context, index: u32, kind: CommitKind) {
        let id = context.next_id();
        self.txns.is_committing(index);
        let txn = self.txns.at_mut(index);
        txn.commit.id = id;
        txn.commit.is_owing = true;
        let mut participants = mem::take(&mut txn.commit.participants);
        let of_ranges =
            context.shards().filter(|&shard| !txn.ranges.is_empty() && context.has(shard));
        for shard in txn.keys.shards().chain(of_ranges) {
            let shard = context.id_of(shard);
            if let Err(place) = participants.binary_search(&shard) {
                participants.insert(place, shard);
            }
        }
        assert!(!participants.is_empty(), "{id} has no participants");
        debug_assert!(participants.is_sorted_by(|one, other| one < other), "each once");
        let now = context.now();
        let deadline = context.deadline(txn.options.deadline);
        // Not behind what was acknowledged to anybody before.
        let earliest = if txn.options.external_wait { context.external_now() } else { now };
        let physical = earliest.max(txn.begin.next()).max(txn.keys.highest_read().next());
        let clock = txn.session.and_then(|session| context.session_clock(session));
        let commit = clock.map_or(physical, |clock| clock.propose_commit(physical));
        assert!(commit > txn.begin, "{id} would commit before it began");
        let input = Input::Commit {
            txn: id,
            begin: txn.begin,
            commit,
            participants: &participants,
            kind,
            // Without writes, too: what was read may be a commit whose own client still waits,
            // ahead of other clocks.
            external_wait: txn.options.external_wait,
            error_bound: context.external_wait(),
            deadline,
        };
        txn.commit.coordinator.step(now, input, &mut self.outputs);
        txn.commit.participants = participants;
        self.carry_out(context, index);
    }

    /// Gives a committing transaction's coordinator an input and does what it wants done.
    fn coordinate(&mut self, context: &mut Context, index: u32, input: Input<'_>) {
        assert!(self.outputs.is_empty(), "outputs of another coordinator are not carried out");
        let coordinator = &mut self.txns.at_mut(index).commit.coordinator;
        coordinator.set_error_bound(context.external_wait());
        coordinator.step(context.now(), input, &mut self.outputs);
        self.carry_out(context, index);
    }

    fn carry_out(&mut self, context: &mut Context, index: u32) {
        let mut outputs = mem::take(&mut self.outputs);
        let mut is_unsent = false;
        for output in outputs.drain(..) {
            match output {
                Output::Prepare { to, commit, single } => {
                    is_unsent |= !self.send_prepare(context, index, to, commit, single);
                }
                Output::SendWriteSet { to, commit } => {
                    self.send_write_set(context, index, to, commit);
                }
                Output::Decide { to, outcome } => {
                    let id = self.txns.at(index).commit.id;
                    if let Some((_, route, out)) = self.request(context, index, to) {
                        frames::decide(route, id, outcome, out);
                    }
                }
                Output::Terminate { to } => {
                    context.stats().terminations += 1;
                    if let Some((_, route, out)) = self.request(context, index, to) {
                        frames::terminate(route, self.txns.at(index), out);
                    }
                }
                Output::Finished(result) => self.tell(context, index, result),
                Output::Done => self.settle(context, index),
            }
        }
        debug_assert!(self.outputs.is_empty(), "a coordinator was asked by another's output");
        self.outputs = outputs;
        if is_unsent {
            self.wait_for_connections(context, index);
        }
        let commit = &mut self.txns.at_mut(index).commit;
        commit.due = commit.coordinator.next_deadline().unwrap_or(Timestamp::MAX);
        context.wake_at(commit.due);
        self.txns.release_if_over(index);
    }

    /// A prepare was not sent, for want of a connection to a server that understands it: its shard cannot take it for now, and is asked
    /// again until the deadline, as one that says so itself. The others hold their promises for it.
    fn wait_for_connections(&mut self, context: &Context, index: u32) {
        let txn = self.txns.at_mut(index);
        let (reads_ranges, commit) = (!txn.ranges.is_empty(), &mut txn.commit);
        for &from in &commit.participants {
            let shard = context.index_of(from);
            let takes_it = shard.is_some_and(|shard| {
                context.is_connected(shard)
                    && (!reads_ranges || context.reads_ranges(shard).is_ok())
            });
            if !takes_it {
                let input = Input::Refused { from, refusal: Refusal::Recovering };
                commit.coordinator.step(context.now(), input, &mut self.outputs);
            }
        }
        assert!(self.outputs.is_empty(), "who waits for a connection does nothing");
    }

    /// Room for one frame of a commit to a participant, when there is a connection.
    fn request<'c>(
        &self,
        context: &'c mut Context,
        index: u32,
        to: ShardId,
    ) -> Option<(ShardIndex, Route, &'c mut Vec<u8>)> {
        let (shard, slot) = (context.index_of(to)?, self.txns.key(index)?);
        assert!(self.txns.at(index).commit.is_owing, "a frame of a commit that is over");
        let (route, out) = context.request(shard, Asker::Commit, slot, 0)?;
        Some((shard, route, out))
    }

    /// Whether there is a connection to send it on. A shard may have gone to an older server, which refuses
    /// ranges with the connection.
    fn send_prepare(
        &mut self,
        context: &mut Context,
        index: u32,
        to: ShardId,
        commit: Timestamp,
        one_phase: bool,
    ) -> bool {
        let txn = self.txns.at_mut(index);
        debug_assert!(commit > txn.begin, "{} would commit before it began", txn.commit.id);
        txn.commit.highest = txn.commit.highest.max(commit);
        let wait = context.config().wait;
        let reads_ranges = !txn.ranges.is_empty();
        let shard = context.index_of(to).filter(|_| reads_ranges);
        if shard.is_some_and(|shard| context.reads_ranges(shard).is_err()) {
            return false;
        }
        let Some((shard, route, out)) = self.request(context, index, to) else { return false };
        let how = PrepareAs { shard, commit, one_phase, wait };
        frames::prepare(route, self.txns.at(index), &how, out);
        true
    }

    fn send_write_set(
        &mut self,
        context: &mut Context,
        index: u32,
        to: ShardId,
        commit: Timestamp,
    ) {
        debug_assert!(commit <= self.txns.at(index).commit.highest, "{commit} was never tried");
        if let Some((shard, route, out)) = self.request(context, index, to) {
            let how = PrepareAs { shard, commit, one_phase: false, wait: false };
            frames::write_set(route, self.txns.at(index), &how, out);
        }
    }

    /// Every participant has acknowledged.
    fn settle(&mut self, context: &mut Context, index: u32) {
        let txn = self.txns.at_mut(index);
        assert!(txn.commit.is_owing && txn.result.is_some(), "{} is not decided", txn.commit.id);
        txn.commit.is_owing = false;
        if txn.result == Some(TxnResult::Unknown) {
            context.learn_unknown(txn.commit.id, txn.commit.coordinator.outcome());
        }
    }

    /// Records what the application is to be told, and what the session learns from it.
    fn tell(&mut self, context: &mut Context, index: u32, result: CommitResult) {
        let Some(slot) = self.txns.key(index) else { return };
        let txn = self.txns.at_mut(index);
        assert!(txn.phase == Phase::Committing, "{} is told twice", txn.commit.id);
        txn.phase = Phase::Told;
        let (result, learned) = match result {
            CommitResult::Committed(at) => {
                context.stats().committed += 1;
                if let Some(clock) = txn.session.and_then(|session| context.session_clock(session))
                {
                    clock.committed(at);
                }
                (TxnResult::Committed(at), Timestamp::ZERO)
            }
            CommitResult::Aborted { reason, by } => {
                let shard = by.and_then(|shard| context.index_of(shard));
                let entry =
                    shard.zip(reason.item).and_then(|(shard, item)| txn.keys.item(shard, item));
                aborted(context, reason, entry)
            }
            CommitResult::Refused { refusal, .. } => match Fault::from(refusal).ending() {
                Ok(ending) => {
                    context.stats().aborted += 1;
                    (TxnResult::Failed(ending), Timestamp::ZERO)
                }
                Err(reason) => aborted(context, reason, None),
            },
            CommitResult::Unknown => {
                let at = txn.commit.participants.as_slice().into();
                context.remember_unknown(txn.commit.id, at, None);
                // It may still commit, but not after what this session does next.
                context.session_gave_up(txn.session, txn.commit.highest.next());
                (TxnResult::Unknown, Timestamp::ZERO)
            }
        };
        txn.result = Some(result);
        if C::IS_THERE {
            let outcome = match result {
                TxnResult::Committed(at) => Some(TxnOutcome::Committed(at)),
                TxnResult::Aborted { .. } | TxnResult::Failed(_) => Some(TxnOutcome::Aborted),
                TxnResult::Unknown => None,
            };
            for (key, is_write) in txn.keys.taking_part() {
                self.cache.ended(key, is_write, outcome);
            }
        }
        if learned > Timestamp::ZERO.next() {
            context.session_learned(txn.session, learned);
        }
        if let Some(op) = txn.op {
            context.finish(op, ResultAt::Commit(slot));
        }
        context.trim_unknown();
    }

    /// Gives the coordinator its time, when it wants some.
    pub(super) fn sweep_commit(&mut self, context: &mut Context, index: u32) {
        let due = self.txns.at(index).commit.due;
        debug_assert!(!self.txns.at(index).is_open(), "an open transaction has no coordinator");
        // The error bound may be less than when the time to look again was set.
        if due <= context.now() || self.txns.at(index).options.external_wait {
            let error_bound = context.external_wait();
            self.coordinate(context, index, Input::Tick { error_bound });
        } else {
            context.wake_at(due);
        }
    }

    /// What was sent to participants whose connection is new, or that have moved, may be lost. Where
    /// shards move one after another, rounds are not used up by it.
    pub(super) fn tell_of_loss(&mut self, context: &mut Context, index: u32, again: Again) {
        debug_assert!(!self.txns.at(index).is_open(), "an open transaction has no coordinator");
        let mut at = 0;
        while let Some(&from) = self.txns.at(index).commit.participants.get(at) {
            let shard = context.index_of(from);
            let is_concerned = shard.is_some_and(|shard| context.is_asked_again(again, shard));
            if is_concerned && self.txns.at(index).commit.is_owing {
                if matches!(again, Again::Moved) {
                    let refusal = Refusal::Recovering;
                    self.coordinate(context, index, Input::Refused { from, refusal });
                }
                self.coordinate(context, index, Input::Disconnected { from });
            }
            if self.txns.key(index).is_none() {
                return;
            }
            at += 1;
        }
    }

    /// An answer to a committing transaction: a vote, an acknowledgement, or what became of it.
    pub(super) fn deliver_commit(
        &mut self,
        context: &mut Context,
        from: ShardIndex,
        index: u32,
        reply: Reply<'_>,
    ) -> Option<()> {
        let txn = self.txns.at_mut(index);
        if !matches!(txn.phase, Phase::Committing | Phase::Told) || !txn.commit.is_owing {
            return None;
        }
        let (own, from) = (txn.commit.id, context.id_of(from));
        debug_assert!(txn.commit.participants.is_sorted(), "{own} has its participants twice");
        let input = match reply {
            // The validation of what was only read leaves no record: an old primary's binds nobody.
            Reply::Vote { late: true, .. } if txn.keys.writes() == 0 => return None,
            Reply::Vote { txn, commit, vote, .. } if txn == own => {
                context.stats().later_rounds += u64::from(matches!(vote, Vote::Later(_)));
                Input::Vote { from, commit, vote, step: context.later_step() }
            }
            Reply::Acked { txn } if txn == own => Input::Acked { from },
            Reply::WriteSetWanted { txn } if txn == own => Input::WriteSetWanted { from },
            // Nobody can have committed at a timestamp that was never tried.
            Reply::Status { status: TxnStatus::Committed(at), .. } if at > txn.commit.highest => {
                return None;
            }
            Reply::Status { txn, status } if txn == own => {
                Input::StatusIs { from, status: status.into() }
            }
            Reply::Fault(fault) => {
                context.note(&fault);
                if let Fault::Other { .. } = fault {
                    txn.commit.fault = Some(fault.into());
                }
                Input::Refused { from, refusal: fault.refusal() }
            }
            _ => return None,
        };
        self.coordinate(context, index, input);
        Some(())
    }
}

/// What the application is told of an abort, and above what its session goes on.
fn aborted(
    context: &mut Context,
    reason: AbortReason,
    entry: Option<u32>,
) -> (TxnResult, Timestamp) {
    context.stats().aborted += 1;
    let result = match context.lag_behind(&reason) {
        Some(lag) => TxnResult::Failed(Ending::ClockBehind { lag }),
        None => TxnResult::Aborted { reason, entry },
    };
    debug_assert!(entry.is_none() || reason.item.is_some(), "an entry that no item names");
    (result, reason.at.next())
}

//! Carrying out what the core wants: answers, records, writes into the store, messages to other
//! shards.

use timestone_store::{StoreError, StoreEvent};
use timestone_txn::participant::{Input, LogIntent, LogRange, Output, Token, Wait};
use timestone_types::{Timestamp, TxnOutcome};
use timestone_wal::BatchNumber;
use timestone_wire::{self as wire, Frame, Message, Shards};

use super::Shard;
use crate::driver::ReadNow;
use crate::reads::lookups::Answered;
use crate::requests::pending::{Repeat, RequestPurpose, token_of};
use crate::requests::states::{state_of_frozen, state_of_status, verdict_of_write};
use crate::turn::Turn;
use crate::write_sets::{Put, Target, Unapplied};

impl Shard {
    /// Carries out everything that the core has put out; `current` is the request that is at hand.
    pub(super) fn carry_out(&mut self, ctx: &mut Turn<'_>, current: Option<(Token, &Frame<'_>)>) {
        while self.driver.has_outputs() {
            let mut outputs = self.driver.take_outputs();
            self.write_sets.look_ahead(&outputs);
            for output in outputs.drain(..) {
                self.output(ctx, output, current);
            }
            self.driver.give_back(outputs);
        }
        // Without a log, what was just recorded is durable already.
        if let Some(through) = self.log_records.take_durable_at_once() {
            self.step(ctx, Input::Durable { range: LogRange::through(through) }, current);
        }
        if self.driver.begin_handing_in() {
            while let Some((token, wait)) = self.driver.next_again() {
                self.resubmit(ctx, token, Some(wait));
            }
        }
        self.driver.assert_carried_out();
    }

    fn output(&mut self, ctx: &mut Turn<'_>, output: Output, current: Option<(Token, &Frame<'_>)>) {
        match output {
            Output::ReadNow { token, at, prepared_before, expiry } => {
                let read = (self.seed, ReadNow { at, prepared_before, expiry });
                self.parts().2.read_later(ctx, token, read, current)
            }
            Output::Again { token, wait } => {
                self.requests.keep_frame(token, current);
                self.driver.note_again(token, wait);
            }
            Output::Parked { token } => self.requests.park(token, current),
            Output::Refuse { token, refusal } => self.requests.refuse(ctx, token, &refusal),
            Output::Ignored { token } => self.requests.close(token),
            Output::Vote { token, txn, commit, vote } => {
                self.requests.vote(ctx, token, (txn, commit), vote, &self.driver)
            }
            Output::Repeated { token, txn, commit, vote, at, present } => {
                let is_write = self
                    .requests
                    .get_mut(token)
                    .is_some_and(|request| request.purpose == RequestPurpose::Write);
                if !is_write || timestone_types::is_planted!(RepeatLooksAfresh) {
                    return self.requests.vote(ctx, token, (txn, commit), vote, &self.driver);
                }
                self.figures.gauges().vote(&vote);
                let (commit, verdict) = verdict_of_write(commit, vote);
                let repeat = Repeat { txn, commit, verdict, at, present };
                let (single, _, mut parts) = self.parts();
                single.answer_repeat(ctx, token, repeat, current, &mut parts);
            }
            Output::Log { sequence, intent } => {
                if let (LogIntent::Prepare { txn, begin, single, .. }, Some((_, frame))) =
                    (&intent, current)
                {
                    let of = (*txn, *begin, *single);
                    self.write_sets.keep(
                        of,
                        frame,
                        self.shard,
                        (&self.items, self.single.written()),
                    );
                }
                let (log_records, payloads, closers) = self.log();
                log_records.record(sequence, intent, payloads, (closers.watermark, closers.store));
            }
            Output::Apply { txn, commit } => {
                self.figures.gauges().commit();
                self.write_sets.fetch_ahead(self.driver.participant(), &*self.store);
                // What does not fit is queued by it.
                let work = Unapplied::all(txn, commit);
                if self.write_sets.is_next(ctx.now(), work) {
                    self.put(ctx, work);
                }
            }
            Output::AckDecision { token, txn } => {
                let Self { hand_over, requests, store, write_sets, .. } = self;
                hand_over.acknowledge(ctx, (token, txn), requests, (&**store, write_sets));
            }
            Output::AskWriteSet { token, txn } => {
                let commit = Timestamp::ZERO;
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::FetchWriteSet { txn, commit }.encode(envelope, out)
                });
            }
            Output::ForgetPayload { txn } => self.write_sets.payloads_mut().forget(txn),
            Output::StatusIs { token, txn, status } => {
                let state = state_of_status(status);
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::StatusIs { txn, state }.encode(envelope, out)
                });
            }
            Output::ScanNow { token, at, as_of, prepared_before } => {
                self.parts().2.scan_now(ctx, token, at, as_of, prepared_before, current);
            }
            Output::NewestIs { token, at } => {
                if let Err(refusal) = self.driver.check_present() {
                    return self.requests.refuse(ctx, token, &refusal);
                }
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::NewestIs { at }.encode(envelope, out)
                });
            }
            Output::FreezeAnswer { token, txn, state } => {
                let state = state_of_frozen(state);
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::FreezeAnswer { txn, state }.encode(envelope, out)
                });
            }
            Output::AskFreeze { to, txn, begin } => {
                self.around.messages.tell(ctx, to, |envelope, out| {
                    wire::Freeze { txn, begin }.encode(envelope, out)
                });
            }
            Output::AskTerminate { to, txn, begin, commit } => {
                debug_assert_ne!(to, self.shard, "others are asked");
                // What is asked about was promised here: its write set is kept.
                let participants =
                    self.write_sets.payloads().get(txn).map_or(&[][..], |one| &one.participants);
                self.around.messages.tell(ctx, to, |envelope, out| {
                    let participants = Shards::new(participants);
                    wire::Terminate { txn, begin, commit, participants }.encode(envelope, out);
                });
            }
            Output::TellDecision { to, txn, outcome } => {
                let decision = decision_of(outcome);
                self.around.messages.tell(ctx, to, |envelope, out| {
                    wire::Decide::new(txn, decision).encode(envelope, out)
                });
            }
            // They are answered where they are asked for, with the frame at hand.
            Output::LookUp { token, .. }
            | Output::NoRoom { token }
            | Output::PutNow { token, .. } => self.requests.fail(ctx, token, &StoreError::Busy),
            // They are taken where they are asked for.
            Output::Owed { .. }
            | Output::CopyForward(_)
            | Output::Closed { .. }
            | Output::Recognised { .. }
            | Output::Direct(_) => {}
            Output::Began { watermark } => self.driver.advance(watermark),
            Output::AdvanceWatermark(at) => {
                self.driver.advance(at);
                self.store.advance_watermark(at);
                if self.log_records.is_without_log() {
                    // Nothing can be replayed, and the core lets no write below the watermark in.
                    self.store.advance_replay_floor(at);
                }
            }
        }
    }

    /// Hands a request that had to wait to the core again.
    pub(super) fn resubmit(&mut self, ctx: &mut Turn<'_>, token: Token, wait: Option<Wait>) {
        self.requests.unpark(token);
        let Some(request) = self.requests.get_mut(token) else { return };
        let bytes = std::mem::take(&mut request.frame);
        let submitted = match Frame::parse(&bytes) {
            Ok(frame) => self.submit(ctx, token, &frame, &[], wait),
            Err(error) => Err(error),
        };
        if let Err(error) = submitted {
            // It was decoded before it was kept.
            tracing::error!(shard = %self.shard, %error, "a request that waited cannot be read any \
                more");
            self.requests.close(token);
        }
        if let Some(request) = self.requests.get_mut(token)
            && request.frame.is_empty()
        {
            request.frame = bytes;
        }
        self.driver.assert_carried_out();
    }

    /// Puts a decided transaction's writes into the store, as far as there is room. Whether nothing
    /// of it waits.
    fn put(&mut self, ctx: &Turn<'_>, work: Unapplied) -> bool {
        let txn = work.txn();
        let (shard, seed, has_log) = (self.shard, self.seed, self.log_records.has_log());
        let (store, lookups) = (&mut *self.store, &mut self.lookups);
        let put = self.write_sets.put(work, &mut Target { shard, seed, has_log, store, lookups });
        if let Put::Done(prepared_in) = put {
            self.log_records.applied(prepared_in);
            self.hand_over.applied(txn, &mut *self.store);
            self.driver.step(ctx.now(), Input::Applied { txn });
        }
        debug_assert!(
            put != Put::NoRoom || !self.write_sets.are_applied(),
            "what finds no room waits"
        );
        put != Put::NoRoom
    }

    /// Goes on with writes for which the store had no room.
    pub(super) fn put_rest(&mut self, ctx: &mut Turn<'_>) {
        #[cfg(feature = "planted-bugs")]
        if self.write_sets.still_waits(ctx.now()) {
            return;
        }
        for _ in 0..self.write_sets.unapplied() {
            let Some(work) = self.write_sets.take_first() else { break };
            if !self.put(ctx, work) {
                break;
            }
        }
        if self.driver.has_outputs() {
            self.carry_out(ctx, None);
        }
        self.driver.assert_carried_out();
        self.write_sets.look_again(ctx.now());
    }

    /// What the store reports.
    pub(super) fn store_event(&mut self, ctx: &mut Turn<'_>, event: StoreEvent) {
        let Some(event) = self.take_exported(event, ctx.now()) else { return };
        match event {
            StoreEvent::ReadDone { token, outcome } => {
                let token = token_of(token);
                let request = self.requests.get_mut(token);
                if request.is_some_and(|request| request.purpose == RequestPurpose::Write) {
                    let (single, _, mut parts) = self.parts();
                    if single.write_found(ctx, token, outcome, &mut parts) {
                        self.resubmit(ctx, token, None);
                    }
                } else {
                    self.parts().2.read_done(ctx, token, outcome);
                }
            }
            StoreEvent::LatestDone { token, found } => match self.lookups.answer(token, found) {
                Answered::Waiting => {}
                Answered::Ready { token, wait } => self.resubmit(ctx, token, wait),
                Answered::Failed { token, error } => self.look_up_failed(ctx, token, &error),
            },
            StoreEvent::ScanDone { token, keys, next } => {
                self.parts().2.scan_done(ctx, token_of(token), &keys, next)
            }
            StoreEvent::RangeDone { token, entries, next } => {
                self.parts().2.range_done(ctx, token_of(token), &entries, next.as_deref())
            }
            StoreEvent::CountDone { token, keys } => {
                self.parts().2.count_done(ctx, token_of(token), keys)
            }
            StoreEvent::ReadFailed { token, error } => {
                self.requests.fail(ctx, token_of(token), &error)
            }
            StoreEvent::DeviceFailed(error) => {
                tracing::error!(shard = %self.shard, %error, "the flash device failed; this shard \
                    takes no more writes");
            }
            StoreEvent::ScrubDone(report) => {
                self.around.scrub_askers.scrubbed(ctx, &report, &mut self.requests)
            }
            StoreEvent::CheckpointDone => {
                tracing::debug!(shard = %self.shard, "checkpoint written");
                if self.hand_over.checkpoint_done(&mut *self.store) {
                    tracing::info!(shard = %self.shard, "everything that the logs of earlier runs \
                        held is in the store: they may go");
                    self.log_records.release_below(ctx, BatchNumber::MAX);
                }
            }
            StoreEvent::ShutDown => self.closing.set_down(),
        }
        self.driver.assert_carried_out();
    }
}

const fn decision_of(outcome: TxnOutcome) -> Option<Timestamp> {
    match outcome {
        TxnOutcome::Committed(at) => Some(at),
        TxnOutcome::Aborted => None,
    }
}

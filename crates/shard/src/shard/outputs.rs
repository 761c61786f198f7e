//! Carrying out what the core wants: answers, records, writes into the store, messages to other
//! shards.

use timestone_seda::ReplyAddress;
use timestone_store::{ReadOutcome, StoreError, StoreEvent};
use timestone_txn::Refusal;
use timestone_txn::participant::{
    ExpiryRule, Input, LogIntent, LogRange, LogSequence, Output, Token, Vote, Wait,
};
use timestone_types::{AbortKind, KeyRef, Timestamp, TxnId, TxnOutcome, Version};
use timestone_wal::{BatchNumber, DecisionOrigin, LogRecord, Participants};
use timestone_wire::{self as wire, Frame, Message, PrepareBody, Shards, Verdict};

use super::request::ReadNow;
use super::{LogPlace, Shard, Unapplied};
use crate::limits::LOG_BATCH_BYTES;
use crate::reads::expiry;
use crate::requests::pending::{Purpose, Repeat, token_of};
use crate::requests::states::{
    state_of_frozen, state_of_outcome, state_of_status, verdict_of_write,
};
use crate::turn::Turn;

impl Shard {
    /// Carries out everything that the core has put out; `current` is the request that is at hand.
    pub(super) fn carry_out(&mut self, ctx: &mut Turn<'_>, current: Option<(Token, &Frame<'_>)>) {
        while !self.outputs.is_empty() {
            let spare = std::mem::take(&mut self.spare_outputs);
            let mut outputs = std::mem::replace(&mut self.outputs, spare);
            for output in outputs.drain(..) {
                self.output(ctx, output, current);
            }
            self.spare_outputs = outputs;
        }
        self.durable_soon(ctx, current);
        // Whoever is handed in again carries out its own outputs in here, and must not begin to
        // hand in others below that.
        if !self.handing_in {
            self.handing_in = true;
            while let Some((token, wait)) = self.again.pop_front() {
                self.resubmit(ctx, token, Some(wait));
            }
            self.handing_in = false;
        }
    }

    /// Without a log, what was just recorded is durable already.
    fn durable_soon(&mut self, ctx: &mut Turn<'_>, current: Option<(Token, &Frame<'_>)>) {
        if let Some(through) = self.durable_at_once.take() {
            self.participant.step(
                ctx.now(),
                Input::Durable { range: LogRange::through(through) },
                &mut self.outputs,
            );
            if !self.outputs.is_empty() {
                self.carry_out(ctx, current);
            }
        }
    }

    fn output(&mut self, ctx: &mut Turn<'_>, output: Output, current: Option<(Token, &Frame<'_>)>) {
        match output {
            Output::ReadNow { token, at, prepared_before, expiry } => {
                self.read_later(ctx, token, ReadNow { at, prepared_before, expiry }, current)
            }
            Output::Again { token, wait } => {
                self.requests.keep_frame(token, current);
                self.again.push_back((token, wait));
            }
            Output::Parked { token } => self.requests.park(token, current),
            Output::Refuse { token, refusal } => self.requests.refuse(ctx, token, &refusal),
            Output::Ignored { token } => self.requests.close(token),
            Output::Vote { token, txn, commit, vote } => self.vote(ctx, token, txn, commit, vote),
            Output::Repeated { token, txn, commit, vote, at, present } => {
                let is_write = self
                    .requests
                    .get_mut(token)
                    .is_some_and(|request| request.purpose == Purpose::Write);
                if !is_write || timestone_types::is_planted!(RepeatLooksAfresh) {
                    return self.vote(ctx, token, txn, commit, vote);
                }
                self.gauges.vote(&vote);
                let (commit, verdict) = verdict_of_write(commit, vote);
                self.answer_repeat(
                    ctx,
                    token,
                    Repeat { txn, commit, verdict, at, present },
                    current,
                );
            }
            Output::Log { sequence, intent } => self.log(sequence, intent, current),
            Output::Apply { txn, commit } => {
                self.gauges.commit();
                self.apply(ctx, Unapplied { txn, commit, done: 0 });
            }
            Output::AckDecision { token, txn } => self.acknowledge(ctx, token, txn),
            Output::AskWriteSet { token, txn } => {
                let commit = Timestamp::ZERO;
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::FetchWriteSet { txn, commit }.encode(envelope, out)
                });
            }
            Output::ForgetPayload { txn } => self.payloads.forget(txn),
            Output::StatusIs { token, txn, status } => {
                let state = state_of_status(status);
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::StatusIs { txn, state }.encode(envelope, out)
                });
            }
            Output::ScanNow { token, at, as_of, prepared_before } => {
                self.scan_now(ctx, token, at, as_of, prepared_before, current);
            }
            Output::NewestIs { token, at } => {
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
                self.messages.tell(ctx, to, |envelope, out| {
                    wire::Freeze { txn, begin }.encode(envelope, out)
                });
            }
            Output::AskTerminate { to, txn, begin, commit } => {
                // What is asked about was promised here: its write set is kept.
                let participants = self.payloads.get(txn).map_or(&[][..], |one| &one.participants);
                self.messages.tell(ctx, to, |envelope, out| {
                    let participants = Shards::new(participants);
                    wire::Terminate { txn, begin, commit, participants }.encode(envelope, out);
                });
            }
            Output::TellDecision { to, txn, outcome } => {
                let decision = decision_of(outcome);
                self.messages.tell(ctx, to, |envelope, out| {
                    wire::Decide::new(txn, decision).encode(envelope, out)
                });
            }
            // It is answered where it is asked for, with the frame at hand.
            Output::LookUp { token, .. } | Output::NoRoom { token } => {
                self.requests.fail(ctx, token, &StoreError::Busy)
            }
            Output::NotHere(what) => {
                tracing::error!(shard = %self.shard, ?what, "this server has no replicas, and was \
                    told something that only those know");
            }
            // They are taken where they are asked for.
            Output::Owed { .. } | Output::CopyForward(_) | Output::Recognised { .. } => {}
            Output::Began { watermark } => self.collected.advance(watermark),
            Output::AdvanceWatermark(at) => {
                self.collected.advance(at);
                self.store.advance_watermark(at);
                if self.is_without_log() {
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
            Ok(frame) => self.submit(ctx, token, &frame, None, wait),
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
    }

    /// A read that could not be answered in the same step.
    fn read_later(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        read: ReadNow,
        current: Option<(Token, &Frame<'_>)>,
    ) {
        if let Some((at_hand, frame)) = current
            && at_hand == token
        {
            return self.read_frame(ctx, token, frame, read);
        }
        let Some(request) = self.requests.get_mut(token) else { return };
        let bytes = std::mem::take(&mut request.frame);
        if let Ok(frame) = Frame::parse(&bytes) {
            self.read_frame(ctx, token, &frame, read);
        }
    }

    fn read_frame(&mut self, ctx: &mut Turn<'_>, token: Token, frame: &Frame<'_>, read: ReadNow) {
        if let Ok(get) = wire::Get::decode(frame) {
            let key = KeyRef::new(self.seed, get.keyspace, get.key);
            self.read_now(ctx, token, key, get.at, read);
        }
    }

    fn vote(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        txn: TxnId,
        commit: Timestamp,
        vote: Vote,
    ) {
        let Some(request) = self.requests.get_mut(token) else { return };
        let purpose = request.purpose;
        if purpose == Purpose::Write && self.is_waited_out(ctx.now(), &vote) {
            return self.requests.refuse(ctx, token, &Refusal::Recovering);
        }
        self.gauges.vote(&vote);
        if purpose == Purpose::Write {
            let (commit, verdict) = verdict_of_write(commit, vote);
            return self.requests.answer_written(ctx, token, txn, commit, verdict);
        }
        let verdict = match vote {
            Vote::Yes => Verdict::Yes,
            Vote::Later(at) => Verdict::Later(at),
            Vote::No(reason) => Verdict::No(reason),
            Vote::Decided(outcome) => {
                let state = state_of_outcome(outcome);
                return self.requests.answer(ctx, token, |envelope, out| {
                    wire::StatusIs { txn, state }.encode(envelope, out)
                });
            }
        };
        self.requests.answer(ctx, token, |envelope, out| {
            wire::Vote { txn, commit, verdict }.encode(envelope, out)
        });
    }

    /// Whether a single write is refused only because a restart has put the watermark ahead of the
    /// clock, which was set back. It has no snapshot: asked again in a moment, it begins above.
    /// That it was refused is recorded nowhere.
    fn is_waited_out(&self, now: Timestamp, vote: &Vote) -> bool {
        if timestone_types::is_planted!(RefusesBelowAheadWatermark) {
            return false;
        }
        matches!(vote, Vote::No(reason) if reason.kind == AbortKind::TooOld && reason.at > now)
            && self.collected.below() > now
    }

    fn log(
        &mut self,
        sequence: LogSequence,
        intent: LogIntent,
        current: Option<(Token, &Frame<'_>)>,
    ) {
        let recorded = self.log != LogPlace::Nowhere;
        match intent {
            LogIntent::Prepare { txn, begin, commit, single, found } => {
                self.keep_payload(txn, begin, single, current);
                let batch = self.journal.open_batch();
                let Some(payload) = self.payloads.get_mut(txn) else { return };
                // The records of earlier rounds are worth nothing once this one is durable; until
                // then they are kept.
                payload.batch =
                    Some(payload.batch.map_or(batch, |earlier: BatchNumber| earlier.min(batch)));
                if recorded {
                    // New writes lie above the watermark, so this says nothing. What a batch
                    // settles should not rest on that alone.
                    self.journal.carries(commit);
                    let participants = Participants::new(&payload.participants);
                    let body = &payload.body;
                    let record = LogRecord::Prepare {
                        txn,
                        begin,
                        commit,
                        single,
                        found,
                        participants,
                        body,
                    };
                    self.journal.record(sequence, &record);
                }
            }
            LogIntent::Decision { txn, begin, outcome, abort, found, met, origin } if recorded => {
                // A commit is decided while its write set is here, and with it the participants.
                let payload =
                    self.payloads.get(txn).filter(|payload| abort.is_none() && !payload.single);
                let participants =
                    Participants::new(payload.map_or(&[], |payload| &payload.participants));
                let (commit, origin) =
                    (decision_of(outcome).unwrap_or(Timestamp::ZERO), origin_of(origin));
                let record = LogRecord::Decision {
                    txn,
                    begin,
                    commit,
                    origin,
                    abort,
                    found,
                    met,
                    participants,
                };
                self.journal.record(sequence, &record);
            }
            LogIntent::ReadBound { bound, watermark, is_propagating } if recorded => {
                self.journal.record(sequence, &LogRecord::ReadBound { bound, watermark });
                self.announce(is_propagating);
            }
            LogIntent::Decision { .. } | LogIntent::ReadBound { .. } => {}
        }
        if !recorded {
            self.durable_at_once = Some(sequence);
        }
    }

    /// Writes down, now and then, how much of the log is not needed any more.
    fn announce(&mut self, is_propagating: bool) {
        if timestone_types::is_planted!(HoardedLog) {
            return;
        }
        let stable = BatchNumber::new(self.store.stable_batch());
        let oldest = self.payloads.oldest_batch();
        self.journal.announce(self.collected.below(), stable, oldest, is_propagating);
    }

    /// Copies the body of the prepare, or of the write set that was asked for, that is at hand to
    /// where it stays until it is applied.
    fn keep_payload(
        &mut self,
        txn: TxnId,
        begin: Timestamp,
        single: bool,
        current: Option<(Token, &Frame<'_>)>,
    ) {
        let Some((_, frame)) = current else { return };
        match frame.kind() {
            wire::Kind::Prepare => {
                if let Ok(prepare) = wire::Prepare::decode(frame) {
                    self.payloads.keep(
                        txn,
                        begin,
                        single,
                        &self.participants,
                        prepare.body.bytes(),
                    );
                }
            }
            wire::Kind::Write => {
                let participants = [self.shard];
                if let Ok(frame) = Frame::parse(&self.body)
                    && let Ok(prepare) = wire::Prepare::decode(&frame)
                {
                    self.payloads.keep(txn, begin, single, &participants, prepare.body.bytes());
                }
            }
            wire::Kind::WriteSet => {
                if let Ok(set) = wire::WriteSet::decode(frame) {
                    self.payloads.keep(txn, begin, single, &self.participants, set.body.bytes());
                }
            }
            _ => {}
        }
    }

    /// Puts a decided transaction's writes into the store, as far as there is room.
    fn apply(&mut self, ctx: &mut Turn<'_>, work: Unapplied) {
        #[cfg(feature = "planted-bugs")]
        if timestone_types::planted::defers_puts() {
            self.unapplied.push_back(work);
            self.apply_again_at = ctx.now();
            return;
        }
        if self.unapplied.is_empty() {
            // What does not fit is queued by it.
            self.try_apply(ctx, work);
        } else {
            self.unapplied.push_back(work);
        }
    }

    /// Whether everything was applied; what was not is queued.
    fn try_apply(&mut self, ctx: &mut Turn<'_>, work: Unapplied) -> bool {
        let Unapplied { txn, commit, done } = work;
        let Some(payload) = self.payloads.get_mut(txn) else {
            tracing::error!(shard = %self.shard, %txn, "a decided transaction has no write set here");
            return true;
        };
        let batch = payload.batch;
        let version = Version::new(commit, txn.client);
        let body = match PrepareBody::parse(&payload.body) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(shard = %self.shard, %txn, %error, "a kept write set cannot be \
                    read any more");
                return true;
            }
        };
        for (index, write) in body.writes().enumerate().skip(done) {
            let key = KeyRef::new(self.seed, write.keyspace, write.key);
            let put = match write.kind {
                wire::WriteKind::Put => self.store.put(key, version, write.value, write.expires_at),
                wire::WriteKind::Delete => self.store.delete(key, version),
                wire::WriteKind::Fence => self.store.fence(write.keyspace, version),
            };
            if let Err(error) = put {
                if matches!(error, StoreError::ShuttingDown) {
                    // Who decided was silent for too long. The next start finds promise and
                    // decision in the log, if there is one.
                    match self.log {
                        LogPlace::Stage(_) => {
                            tracing::warn!(shard = %self.shard, %txn, "a commit was decided after \
                                the store was closed: the next start carries it out")
                        }
                        LogPlace::Nowhere => {
                            tracing::error!(shard = %self.shard, %txn, "a commit was decided after \
                                the store was closed: it is lost, as there is no log")
                        }
                    }
                    return true;
                }
                if !error.retryable() {
                    tracing::error!(shard = %self.shard, %txn, %error, "a committed write cannot \
                        be stored; it stays in the log");
                }
                self.unapplied.push_back(Unapplied { txn, commit, done: index });
                self.no_room = Some(error);
                return false;
            }
            if !self.lookups.is_empty() {
                match write.kind {
                    wire::WriteKind::Fence => self.lookups.raise_all(write.keyspace, version),
                    kind => self.lookups.raise(
                        write.keyspace,
                        key.hash,
                        version,
                        kind == wire::WriteKind::Delete,
                    ),
                }
            }
        }
        self.journal.applied(batch.unwrap_or_else(|| self.journal.open_batch()));
        self.inherited_applied(txn);
        self.participant.step(ctx.now(), Input::Applied { txn }, &mut self.outputs);
        true
    }

    /// Goes on with writes for which the store had no room.
    pub(super) fn apply_rest(&mut self, ctx: &mut Turn<'_>) {
        #[cfg(feature = "planted-bugs")]
        if !self.unapplied.is_empty() && timestone_types::planted::puts_still_wait() {
            self.apply_again_at = ctx.now();
            return;
        }
        for _ in 0..self.unapplied.len() {
            let Some(work) = self.unapplied.pop_front() else { break };
            if !self.try_apply(ctx, work) {
                break;
            }
        }
        if !self.outputs.is_empty() {
            self.carry_out(ctx, None);
        }
        // Room comes with what the device completes, which wakes the stage; the rest is looked at
        // now and then.
        self.apply_again_at = ctx.now().saturating_add(crate::limits::APPLY_INTERVAL);
    }

    /// What the store reports.
    pub(super) fn store_event(&mut self, ctx: &mut Turn<'_>, event: StoreEvent) {
        match event {
            StoreEvent::ReadDone { token, outcome } => {
                self.read_done(ctx, token_of(token), outcome)
            }
            StoreEvent::LatestDone { token, found } => {
                let answered = self.lookups.answer(token, found);
                self.looked_up(ctx, answered);
            }
            StoreEvent::ScanDone { token, keys, next } => {
                self.scan_done(ctx, token_of(token), &keys, next)
            }
            StoreEvent::CountDone { token, keys } => self.count_done(ctx, token_of(token), keys),
            StoreEvent::ReadFailed { token, error } => {
                self.requests.fail(ctx, token_of(token), &error)
            }
            StoreEvent::DeviceFailed(error) => {
                tracing::error!(shard = %self.shard, %error, "the flash device failed; this shard \
                    takes no more writes");
            }
            StoreEvent::ScrubDone(report) => self.scrubbed(ctx, &report),
            StoreEvent::CheckpointDone => {
                tracing::debug!(shard = %self.shard, "checkpoint written");
                self.checkpoint_done(ctx);
            }
            StoreEvent::ShutDown => self.store_down = true,
        }
    }

    fn read_done(&mut self, ctx: &mut Turn<'_>, token: Token, outcome: ReadOutcome) {
        let Some(request) = self.requests.get_mut(token) else {
            if let ReadOutcome::Present { value, .. } = outcome {
                self.store.recycle(value);
            }
            return;
        };
        if request.purpose == Purpose::Write {
            return self.write_found(ctx, token, outcome);
        }
        let (at, snapshot, prepared_before) =
            (request.at, request.snapshot, request.prepared_before);
        let expiry = request.expiry;
        if let Err(refusal) = self.may_answer(at, snapshot, &expiry, &outcome) {
            if let ReadOutcome::Present { value, .. } = outcome {
                self.store.recycle(value);
            }
            return self.requests.refuse(ctx, token, &refusal);
        }
        match outcome {
            ReadOutcome::Present { value, .. }
                if !self.requests.has_reply_room(ctx, token, value.len()) =>
            {
                self.requests.refuse_unread(ctx, token);
                self.store.recycle(value);
            }
            ReadOutcome::Present { version, expires_at, value } => {
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::Value {
                        version,
                        expires_at,
                        prepared_before,
                        present: true,
                        value: &value,
                    }
                    .encode(envelope, out);
                });
                self.store.recycle(value);
            }
            ReadOutcome::Absent { version, expires_at } => {
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::Value {
                        version,
                        expires_at,
                        prepared_before,
                        present: false,
                        value: &[],
                    }
                    .encode(envelope, out);
                })
            }
            ReadOutcome::Failed(error) => self.requests.fail(ctx, token, &error),
        }
    }

    /// Whether what was found as of `at` may be told: it may have been collected meanwhile, or be
    /// in doubt whether it has expired.
    fn may_answer(
        &self,
        at: Timestamp,
        snapshot: Timestamp,
        rule: &ExpiryRule,
        found: &ReadOutcome,
    ) -> Result<(), Refusal> {
        self.collected.check(at)?;
        expiry::check_read(rule, snapshot, found)
    }

    /// Appends again what old log files hold up: promises and outcomes that are still needed.
    pub(super) fn carry_forward(&mut self, ctx: &mut Turn<'_>, below: BatchNumber) {
        if self.carrying.is_some() {
            return;
        }
        let mut outputs = Vec::new();
        self.participant.step(ctx.now(), Input::CopyForward, &mut outputs);
        let Some(Output::CopyForward(copy)) = outputs.pop() else { return };
        for txn in self.payloads.below(below) {
            if let (Some(payload), Some(promise)) = (self.payloads.get_mut(txn), copy.promise(txn))
            {
                let participants = Participants::new(&payload.participants);
                let (begin, single, body, commit) =
                    (payload.begin, payload.single, &payload.body, promise.commit);
                let found = promise.found;
                self.journal.note(&LogRecord::Prepare {
                    txn,
                    begin,
                    commit,
                    single,
                    found,
                    participants,
                    body,
                });
                self.journal.carries(commit);
                if promise.is_decided {
                    let (origin, abort, met) = (DecisionOrigin::Termination, None, Timestamp::ZERO);
                    let decision = LogRecord::Decision {
                        txn,
                        begin,
                        commit,
                        origin,
                        abort,
                        found,
                        met,
                        participants,
                    };
                    self.journal.note(&decision);
                }
                payload.batch = Some(self.journal.open_batch());
                self.close_full_batch(ctx);
            }
        }
        let (now, watermark) = (ctx.now(), self.collected.below());
        let mut closed = Vec::new();
        for kept in &copy.outcomes {
            let (txn, begin, abort, found, met) =
                (kept.txn, kept.begin, kept.abort, kept.found, kept.met);
            let (commit, origin) =
                (decision_of(kept.outcome).unwrap_or(Timestamp::ZERO), DecisionOrigin::Termination);
            let participants = Participants::new(kept.participants.as_slice());
            self.journal.note(&LogRecord::Decision {
                txn,
                begin,
                commit,
                origin,
                abort,
                found,
                met,
                participants,
            });
            // There may be millions of them, and a log takes no batch of any size.
            if self.journal.open_bytes() >= LOG_BATCH_BYTES {
                closed.extend(self.journal.close(now, watermark, || ctx.take_buffer()));
                self.store.begin_batch(self.journal.open_batch().get());
            }
        }
        for batch in closed {
            self.append(ctx, batch);
        }
        let bound = copy.bound;
        self.journal.note(&LogRecord::ReadBound { bound, watermark });
        self.carrying = Some((below, self.journal.open_batch()));
        self.store.sync_soon();
        self.close_batch(ctx);
    }

    /// Whether decisions, or aborts, would be lost with this run.
    pub(super) fn owes(&mut self, ctx: &mut Turn<'_>, input: Input<'_>) -> (bool, bool) {
        let mut outputs = Vec::new();
        self.participant.step(ctx.now(), input, &mut outputs);
        let owed = match outputs.pop() {
            Some(Output::Owed { decisions, aborts }) => (decisions, aborts),
            Some(_) | None => (false, false),
        };
        self.outputs.append(&mut outputs);
        if !self.outputs.is_empty() {
            self.carry_out(ctx, None);
        }
        owed
    }

    pub(super) fn answer_stats(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let envelope = self.requests.envelope_for(frame);
        let figures = self.store.figures();
        let open = self.requests.len() as u64;
        let out = self.requests.reply(ctx, reply_to);
        let mut list = wire::StatusListWriter::begin(&envelope, out);
        let own = [
            ("watermark", self.collected.below().as_nanos()),
            ("prepared", self.payloads.len() as u64),
            ("requests", open),
        ];
        for (name, value) in figures.iter().map(|(figure, value)| (figure.name(), value)).chain(own)
        {
            assert!(list.push(name, &value.to_string()), "a shard's figures fit a frame by far");
        }
        list.finish();
    }
}

const fn decision_of(outcome: TxnOutcome) -> Option<Timestamp> {
    match outcome {
        TxnOutcome::Committed(at) => Some(at),
        TxnOutcome::Aborted => None,
    }
}

const fn origin_of(origin: timestone_txn::participant::DecisionOrigin) -> DecisionOrigin {
    match origin {
        timestone_txn::participant::DecisionOrigin::Client => DecisionOrigin::Client,
        timestone_txn::participant::DecisionOrigin::Termination
        | timestone_txn::participant::DecisionOrigin::Participant => DecisionOrigin::Termination,
    }
}

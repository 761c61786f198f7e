//! From frames to inputs of the core: decode, hash each key once, look up what the index knows.

use timestone_seda::ReplyAddress;
use timestone_store::{KeyRange, PutSize, StoreError};
use timestone_txn::Refusal;
use timestone_txn::participant::{
    self, DecidedBy, FrozenState, Input, LatestInStore, Output, Prepare, ReadAt, Token, Wait,
};
use timestone_types::{HashedKey, KeyRef, KeyspaceId, Timestamp, TxnId, TxnOutcome, Version};
use timestone_wire::{self as wire, ErrorCode, ErrorReply, Frame, Kind, Message, TxnState};

use super::Shard;
use crate::admission::AdmissionError;
use crate::figures::ShardFigures;
use crate::reads::items::Items;
use crate::reads::lost;
use crate::requests::pending::RequestPurpose;
use crate::single::{GoesOn, Validated};
use crate::turn::Turn;
use crate::write_sets::put_at_once;

/// Whether there is room for what a request puts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PutRoom {
    Free,
    /// There is none, and it is a new one: that was answered.
    Refused,
    /// There is none, and it is not new.
    Full,
}

/// How a request may wait, from the flag that it carries.
pub(crate) const fn wait_of(wait: bool) -> Wait {
    if wait { Wait::Yes } else { Wait::No }
}

pub(super) const fn read_at(at: wire::ReadAt) -> ReadAt {
    match at {
        wire::ReadAt::Snapshot(at) => ReadAt::Snapshot(at),
        wire::ReadAt::Latest(at) => ReadAt::Latest(at),
    }
}

/// A prepare as the core takes it, whose keys are in `items`.
#[inline]
fn prepare_of<'a>(
    token: Token,
    prepare: &wire::Prepare<'_>,
    items: &'a Items,
    GoesOn { wait, has_room, at_once }: GoesOn,
) -> Prepare<'a> {
    Prepare {
        token,
        txn: prepare.txn,
        begin: prepare.begin,
        commit: prepare.commit,
        placed_by: prepare.commit,
        single: prepare.single,
        wait: wait.unwrap_or(wait_of(prepare.wait)),
        participants: items.participants(),
        reads: items.reads(),
        ranges: items.ranges(),
        writes: items.writes(),
        condition: participant::Lookup::NotNeeded,
        has_room,
        at_once,
    }
}

impl Shard {
    /// Takes one frame that has just arrived; `keys` are its keys, hashed, if there was a
    /// [look ahead](crate::reads::ahead) at them.
    pub(super) fn frame(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        keys: &[HashedKey],
    ) {
        self.driver.assert_carried_out();
        if frame.envelope().epoch != self.requests.epoch() && !frame.kind().is_reply() {
            return self.requests.refuse_epoch(ctx, reply_to, frame);
        }
        self.figures.gauges().count(frame.kind());
        let purpose = match frame.kind() {
            Kind::Get => RequestPurpose::Get,
            Kind::Prepare | Kind::PrepareRanges => RequestPurpose::Prepare,
            Kind::Write => RequestPurpose::Write,
            Kind::Scan => RequestPurpose::Scan,
            Kind::Count => RequestPurpose::Count,
            Kind::Range | Kind::RangeDown => RequestPurpose::Range,
            Kind::Decide
            | Kind::Status
            | Kind::Terminate
            | Kind::Freeze
            | Kind::WriteSet
            | Kind::Newest => RequestPurpose::Other,
            _ => return self.without_token(ctx, reply_to, frame),
        };
        let token = self.requests.open(reply_to, frame, purpose);
        if let Err(error) = self.submit(ctx, token, frame, keys, None) {
            self.requests.close(token);
            let text = error.to_string();
            self.requests.answer_error(
                ctx,
                reply_to,
                frame,
                &ErrorReply::new(ErrorCode::from(&error), &text),
            );
        }
    }

    /// Hands a request to the core, for the first time or again (`wait` is what the core gave back
    /// then). `keys` are its keys, if they have been hashed.
    pub(super) fn submit(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
        keys: &[HashedKey],
        wait: Option<Wait>,
    ) -> Result<(), wire::WireError> {
        self.driver.assert_carried_out();
        match frame.kind() {
            Kind::Get => self.submit_get(ctx, token, frame, keys.first(), wait),
            Kind::Prepare | Kind::PrepareRanges => {
                self.submit_prepare(ctx, token, frame, keys, wait)
            }
            Kind::Write => self.submit_write(ctx, token, frame, keys.first(), wait),
            Kind::Scan => {
                let scan = wire::Scan::decode(frame)?;
                if !self.reads(ctx, token, scan.keyspace) {
                    return Ok(());
                }
                let wait = wait.unwrap_or(Wait::Yes);
                let input = Input::Scan { token, keyspace: scan.keyspace, at: scan.at, wait };
                self.step(ctx, input, Some((token, frame)));
                Ok(())
            }
            Kind::Count => {
                let count = wire::Count::decode(frame)?;
                if !self.reads(ctx, token, count.keyspace) {
                    return Ok(());
                }
                let wait = wait.unwrap_or(Wait::Yes);
                let input = Input::Scan { token, keyspace: count.keyspace, at: count.at, wait };
                self.step(ctx, input, Some((token, frame)));
                Ok(())
            }
            Kind::Range | Kind::RangeDown => self.submit_range(ctx, token, frame, wait),
            Kind::WriteSet => self.submit_write_set(ctx, token, frame),
            _ => self.submit_short(ctx, token, frame),
        }
    }

    fn submit_range(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
        wait: Option<Wait>,
    ) -> Result<(), wire::WireError> {
        let (asked, _) = wire::Range::decode_any(frame)?;
        if !self.reads(ctx, token, asked.keyspace) {
            return Ok(());
        }
        if !asked.keyspace.is_ordered() {
            self.requests.fail(ctx, token, &StoreError::NotOrdered(asked.keyspace));
            return Ok(());
        }
        let (keyspace, from, to) = (asked.keyspace, asked.from, asked.end());
        let (wait, range) = (wait.unwrap_or(Wait::Yes), KeyRange { keyspace, from, to });
        let writers = self.write_sets.payloads().writers_in(range);
        let input = Input::Range { token, range, at: asked.at, wait, writers: &writers };
        self.step(ctx, input, Some((token, frame)));
        Ok(())
    }

    /// Whether a keyspace is read at this server's time. If it is not, whoever asks is told so.
    #[inline]
    fn reads(&mut self, ctx: &mut Turn<'_>, token: Token, keyspace: KeyspaceId) -> bool {
        let refusal = self.refuses_to_read(ctx.now(), keyspace);
        refusal.map(|refusal| self.requests.refuse(ctx, token, &refusal)).is_none()
    }

    /// Why a keyspace is not read at this server's time.
    #[inline]
    pub(super) fn refuses_to_read(&self, now: Timestamp, keyspace: KeyspaceId) -> Option<Refusal> {
        if keyspace.is_in_memory() { lost::refusal(now, self.store.lost(keyspace)) } else { None }
    }

    /// A key of a frame, hashed unless it was before.
    #[inline]
    fn key<'k>(
        &self,
        hashed: Option<&HashedKey>,
        keyspace: KeyspaceId,
        bytes: &'k [u8],
    ) -> KeyRef<'k> {
        let key = match hashed {
            Some(hashed) => hashed.with(bytes),
            None => KeyRef::new(self.seed, keyspace, bytes),
        };
        debug_assert!(key == KeyRef::new(self.seed, keyspace, bytes), "it is the frame's key");
        key
    }

    #[inline]
    fn submit_get(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
        key: Option<&HashedKey>,
        wait: Option<Wait>,
    ) -> Result<(), wire::WireError> {
        let get = wire::Get::decode(frame)?;
        if !self.reads(ctx, token, get.keyspace) {
            return Ok(());
        }
        let key = self.key(key, get.keyspace, get.key);
        let Some(latest) = self.parts().2.latest(token, frame, wait, key) else { return Ok(()) };
        let input = Input::Read {
            token,
            keyspace: get.keyspace,
            key: key.hash,
            at: read_at(get.at),
            wait: wait.unwrap_or(wait_of(get.wait)),
            latest,
        };
        self.driver.step(ctx.now(), input);
        if let Some(now) = self.driver.take_read(token) {
            self.parts().2.read_now(ctx, token, key, get.at, now);
        } else {
            self.carry_out(ctx, Some((token, frame)));
        }
        self.driver.assert_carried_out();
        Ok(())
    }

    fn submit_prepare(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
        keys: &[HashedKey],
        wait: Option<Wait>,
    ) -> Result<(), wire::WireError> {
        let (prepare, ranges) = wire::Prepare::decode_any(frame)?;
        let body = &prepare.body;
        let puts = || {
            let puts = body.writes().filter(|write| write.kind == wire::WriteKind::Put);
            puts.map(|write| PutSize {
                keyspace: write.keyspace,
                bytes: write.key.len() + write.value.len(),
            })
        };
        // Deletes and fences go on.
        let room = match puts().next() {
            Some(_) => self.room_for(ctx, (token, prepare.txn, prepare.begin), &puts),
            None => PutRoom::Free,
        };
        if room == PutRoom::Refused {
            return Ok(());
        }
        let (_, items, mut parts) = self.parts();
        if !items.look_up((token, wait), frame, (body, keys), &mut parts) {
            return Ok(());
        }
        if let Some(request) = parts.requests.get_mut(token) {
            request.is_strict_read = prepare.single && body.writes().next().is_none();
        }
        let has_room = room == PutRoom::Free;
        let goes_on = GoesOn { wait, has_room, at_once: self.puts_at_once() };
        self.step_prepare(ctx, token, (&prepare, ranges), goes_on);
        if self.driver.puts_at().is_some() {
            self.put_prepare(ctx, token, &prepare, goes_on);
        }
        self.carry_out_prepare(ctx, token, frame);
        self.driver.assert_carried_out();
        Ok(())
    }

    /// Hands a prepare to the core whose keys are in the items.
    #[inline]
    fn step_prepare(
        &mut self,
        ctx: &Turn<'_>,
        token: Token,
        (prepare, ranges): (&wire::Prepare<'_>, wire::RangeEntries<'_>),
        goes_on: GoesOn,
    ) {
        self.driver.assert_carried_out();
        self.items.set_participants(prepare.participants.iter());
        let around = (&*self.store, self.write_sets.payloads());
        self.items.look_at_ranges((prepare, ranges), self.driver.participant(), around);
        self.step_items(ctx, token, prepare, goes_on);
    }

    /// Hands a prepare to the core as the items have it.
    fn step_items(
        &mut self,
        ctx: &Turn<'_>,
        token: Token,
        prepare: &wire::Prepare<'_>,
        goes_on: GoesOn,
    ) {
        let input = Input::Prepare(prepare_of(token, prepare, &self.items, goes_on));
        self.driver.step(ctx.now(), input);
    }

    /// Whether writes of this shard alone need not wait for anything.
    #[inline]
    pub(super) fn puts_at_once(&self) -> bool {
        !self.log_records.has_log() && self.write_sets.are_applied()
    }

    /// Puts the writes of a prepare that need not be promised; one that finds no room is.
    fn put_prepare(
        &mut self,
        ctx: &Turn<'_>,
        token: Token,
        prepare: &wire::Prepare<'_>,
        goes_on: GoesOn,
    ) {
        self.driver.clear();
        let version = Version::new(prepare.commit, prepare.txn.client);
        let Self { items, store, lookups, .. } = self;
        let writes = prepare.body.writes().zip(items.write_keys());
        let writes = writes.map(|(write, key)| (key.with(write.key), write));
        let put = put_at_once(writes, version, &mut **store, lookups);
        if put.is_err() && !timestone_types::is_planted!(PutWithoutRoom) {
            // What was put of it is put again, which changes nothing. Its ranges are not looked at
            // again: they would show what it has put itself, and it would be refused.
            let goes_on = GoesOn { at_once: false, ..goes_on };
            return self.step_items(ctx, token, prepare, goes_on);
        }
        let prepare = prepare_of(token, prepare, &self.items, goes_on);
        self.driver.step(ctx.now(), Input::PutDone { prepare });
        self.note_put_at_once();
    }

    /// The writes of a transaction were put that was never promised.
    pub(super) fn note_put_at_once(&mut self) {
        debug_assert!(!self.log_records.has_log(), "with a log there is a promise");
        self.log_records.applied(None);
        self.figures.gauges().commit();
    }

    /// Carries out what came of a prepare. There was no room for it if the core asks for some: it was
    /// handed in as one that is not new.
    pub(super) fn carry_out_prepare(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
    ) {
        if let [Output::NoRoom { .. }] = self.driver.outputs() {
            self.driver.clear();
            return self.requests.fail(ctx, token, &StoreError::Busy);
        }
        self.carry_out(ctx, Some((token, frame)));
    }

    /// Whether there is room for what a request puts. If not, and it is a new one, it is refused before
    /// its keys are looked up; what was promised or decided before is answered as it was, also after
    /// the store has filled up.
    fn room_for<I: Iterator<Item = PutSize>>(
        &mut self,
        ctx: &mut Turn<'_>,
        (token, txn, begin): (Token, TxnId, Timestamp),
        puts: &impl Fn() -> I,
    ) -> PutRoom {
        let Some(error) = self.admission_error(puts) else { return PutRoom::Free };
        if !self.driver.is_new(ctx.now(), token, txn, begin) {
            return PutRoom::Full;
        }
        let Self { admission, store, write_sets, lookups, .. } = self;
        admission.refuse(&error, puts, &mut **store, write_sets);
        // There was room when it began to look them up.
        lookups.take(token);
        match error {
            AdmissionError::Log(words) => self.requests.refuse_full(ctx, token, &words),
            AdmissionError::Store(error) => self.requests.fail(ctx, token, &error),
        }
        PutRoom::Refused
    }

    /// Why there is no room for puts of these bytes of key and value, if so.
    pub(super) fn admission_error<I: Iterator<Item = PutSize>>(
        &mut self,
        puts: &impl Fn() -> I,
    ) -> Option<AdmissionError> {
        self.driver.assert_carried_out();
        let Self { admission, store, write_sets, log_records, .. } = self;
        admission.error(puts, &mut **store, write_sets, log_records.open_bytes())
    }

    /// A committed transaction's write set, asked for because its prepare never arrived.
    fn submit_write_set(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
    ) -> Result<(), wire::WireError> {
        let set = wire::WriteSet::decode(frame)?;
        let (_, items, mut parts) = self.parts();
        if !items.look_up((token, None), frame, (&set.body, &[]), &mut parts) {
            return Ok(());
        }
        self.items.set_participants(std::iter::once(self.shard));
        let prepare = Prepare {
            token,
            txn: set.txn,
            begin: set.begin,
            commit: set.commit,
            placed_by: set.commit,
            single: false,
            wait: Wait::No,
            participants: self.items.participants(),
            reads: self.items.reads(),
            ranges: &[],
            writes: self.items.writes(),
            condition: participant::Lookup::NotNeeded,
            has_room: true,
            at_once: false,
        };
        self.driver.step(ctx.now(), Input::DecidedWriteSet { prepare });
        self.carry_out(ctx, Some((token, frame)));
        self.driver.assert_carried_out();
        Ok(())
    }

    fn submit_short(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
    ) -> Result<(), wire::WireError> {
        match frame.kind() {
            Kind::Decide => {
                let decide = wire::Decide::decode(frame)?;
                let from_peer = self
                    .requests
                    .get_mut(token)
                    .is_some_and(|request| self.around.messages.are_from_peer(request.reply_to));
                let decided_by = if from_peer { DecidedBy::Termination } else { DecidedBy::Client };
                let outcome = decide.decision().map_or(TxnOutcome::Aborted, TxnOutcome::Committed);
                if outcome == TxnOutcome::Aborted {
                    self.figures.gauges().decide_abort();
                }
                self.step(
                    ctx,
                    Input::Decide { token, txn: decide.txn, outcome, decided_by },
                    Some((token, frame)),
                );
            }
            Kind::Status => {
                let txn = wire::Status::decode(frame)?.txn;
                self.step(ctx, Input::Status { token, txn }, Some((token, frame)));
            }
            Kind::Terminate => {
                let ask = wire::Terminate::decode(frame)?;
                self.items.set_participants(ask.participants.iter());
                let participants = self.items.participants();
                let input =
                    Input::Terminate { token, txn: ask.txn, begin: ask.begin, participants };
                self.driver.step(ctx.now(), input);
                if self.driver.has_outputs() {
                    self.carry_out(ctx, Some((token, frame)));
                }
            }
            Kind::Freeze => {
                let ask = wire::Freeze::decode(frame)?;
                self.step(
                    ctx,
                    Input::Freeze { token, txn: ask.txn, begin: ask.begin },
                    Some((token, frame)),
                );
            }
            Kind::Newest => {
                let keyspace = wire::Newest::decode(frame)?.keyspace;
                if !self.reads(ctx, token, keyspace) {
                    return Ok(());
                }
                let latest = self.store.newest(keyspace);
                self.step(ctx, Input::Newest { token, keyspace, latest }, Some((token, frame)));
            }
            other => unreachable!("{} is not opened as a request", other.name()),
        }
        self.driver.assert_carried_out();
        Ok(())
    }

    /// Frames that need no token: reports, peers' answers, statistics.
    fn without_token(&mut self, ctx: &mut Turn<'_>, reply_to: ReplyAddress, frame: &Frame<'_>) {
        self.driver.assert_carried_out();
        let taken = match frame.kind() {
            Kind::Report => wire::Report::decode(frame).map(|report| {
                let wire::Report { client, watermark, acked, now: clock, closing } = report;
                self.step(ctx, Input::Report { client, watermark, acked, clock, closing }, None);
                if frame.envelope().request.get() != 0 {
                    let (envelope, at) =
                        (self.requests.envelope_for(frame), self.driver.collected().below());
                    let out = self.requests.reply(ctx, reply_to);
                    wire::WatermarkIs { at }.encode(&envelope, out);
                }
            }),
            Kind::FreezeAnswer => wire::FreezeAnswer::decode(frame).map(|answer| {
                let state = match answer.state {
                    TxnState::Prepared(at) => FrozenState::Prepared(at),
                    TxnState::Committed(at) => FrozenState::Decided(TxnOutcome::Committed(at)),
                    TxnState::Aborted => FrozenState::Decided(TxnOutcome::Aborted),
                    TxnState::Unknown => FrozenState::Finished,
                    TxnState::Forgotten => FrozenState::Forgotten,
                };
                let from = frame.envelope().shard;
                self.step(ctx, Input::FreezeAnswer { from, txn: answer.txn, state }, None);
            }),
            // Of a peer that was asked to end a transaction, and knows how it ended.
            Kind::StatusIs => wire::StatusIs::decode(frame).map(|is| {
                let outcome = match is.state {
                    TxnState::Committed(at) => TxnOutcome::Committed(at),
                    TxnState::Aborted => TxnOutcome::Aborted,
                    TxnState::Prepared(_) | TxnState::Unknown | TxnState::Forgotten => return,
                };
                let (from, state) = (frame.envelope().shard, FrozenState::Decided(outcome));
                self.step(ctx, Input::FreezeAnswer { from, txn: is.txn, state }, None);
            }),
            Kind::DecideAck => wire::DecideAck::decode(frame).map(|ack| {
                let from = frame.envelope().shard;
                self.step(ctx, Input::DecisionAcked { from, txn: ack.txn }, None);
            }),
            Kind::ShardStats => wire::ShardStats::decode(frame).map(|_| {
                let prepared = self.write_sets.payloads().len();
                let of = (&*self.store, &self.driver, prepared);
                ShardFigures::answer(ctx, reply_to, frame, &mut self.requests, of);
            }),
            Kind::Scrub => wire::Scrub::decode(frame).map(|_| {
                let Self { requests, store, around, .. } = self;
                around.scrub_askers.scrub(ctx, (reply_to, frame), requests, &mut **store);
            }),
            Kind::Ping => wire::Ping::decode(frame).map(|_| {
                let envelope = self.requests.envelope_for(frame);
                wire::Done {}.encode(&envelope, self.requests.reply(ctx, reply_to));
            }),
            kind if kind.is_reply() => Ok(()),
            kind => {
                let words =
                    format!("a shard does not serve {} requests; ask the server", kind.name());
                return self.requests.answer_error(
                    ctx,
                    reply_to,
                    frame,
                    &ErrorReply::new(ErrorCode::Unsupported, &words),
                );
            }
        };
        if let Err(error) = taken {
            let text = error.to_string();
            self.requests.answer_error(
                ctx,
                reply_to,
                frame,
                &ErrorReply::new(ErrorCode::from(&error), &text),
            );
        }
    }

    fn submit_write(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
        key: Option<&HashedKey>,
        wait: Option<Wait>,
    ) -> Result<(), wire::WireError> {
        let write = wire::Write::decode(frame)?;
        let size = PutSize { keyspace: write.keyspace, bytes: write.key.len() + write.value.len() };
        let room = match write.action {
            wire::WriteAction::Delete => PutRoom::Free,
            _ => self.room_for(ctx, (token, write.txn, write.begin), &|| std::iter::once(size)),
        };
        if room == PutRoom::Refused {
            return Ok(());
        }
        let key = self.key(key, write.keyspace, write.key);
        let Some(latest) = self.parts().2.latest(token, frame, wait, key) else { return Ok(()) };
        let has_room = room == PutRoom::Free;
        let goes_on = GoesOn { wait, has_room, at_once: self.puts_at_once() };
        let (single, _, mut parts) = self.parts();
        match single.validate(ctx, (token, frame), &write, (key, latest), goes_on, &mut parts) {
            Validated::Later => {}
            Validated::Stepped => self.carry_out_prepare(ctx, token, frame),
            Validated::Put => {
                self.note_put_at_once();
                self.carry_out_prepare(ctx, token, frame);
            }
        }
        self.driver.assert_carried_out();
        Ok(())
    }

    /// What a request needs cannot be read. What was promised or decided before is answered as it
    /// was: that it failed would not be true, since it may be carried out.
    pub(super) fn look_up_failed(&mut self, ctx: &mut Turn<'_>, token: Token, error: &StoreError) {
        self.driver.assert_carried_out();
        let Some(request) = self.requests.get_mut(token) else { return };
        let bytes = std::mem::take(&mut request.frame);
        let Ok(frame) = Frame::parse(&bytes) else { return self.requests.close(token) };
        let (txn, begin, commit) = match frame.kind() {
            Kind::Get => return self.requests.fail(ctx, token, error),
            Kind::Prepare | Kind::PrepareRanges => match wire::Prepare::decode_any(&frame) {
                Ok((one, _)) => (one.txn, one.begin, one.commit),
                Err(_) => return self.requests.close(token),
            },
            Kind::Write => match wire::Write::decode(&frame) {
                Ok(one) => (one.txn, one.begin, one.commit),
                Err(_) => return self.requests.close(token),
            },
            // Whoever decided sends the write set again.
            _ => return self.requests.close(token),
        };
        if self.driver.is_new(ctx.now(), token, txn, begin) {
            return self.requests.fail(ctx, token, error);
        }
        let promised = self.write_sets.payloads().get(txn).map(|payload| payload.commit);
        if promised.is_some_and(|promised| commit > promised) {
            // A later round is judged by what is there. Whoever asks repeats it; the promise that
            // is kept holds until then.
            tracing::error!(shard = %self.shard, %error, "a request that is under way already \
                cannot be looked up again");
            return self.requests.close(token);
        }
        self.repeat_without_look_up(ctx, token, &frame);
        self.driver.assert_carried_out();
    }

    /// Hands a prepare or a write that is not new to the core, which answers it from what it keeps:
    /// the youngest versions of its keys are not looked at.
    fn repeat_without_look_up(&mut self, ctx: &mut Turn<'_>, token: Token, frame: &Frame<'_>) {
        debug_assert!(
            matches!(frame.kind(), Kind::Prepare | Kind::PrepareRanges | Kind::Write),
            "others look up afresh"
        );
        // It is not let in if it is new after all.
        let goes_on = GoesOn { wait: None, has_room: false, at_once: false };
        if let Ok((prepare, ranges)) = wire::Prepare::decode_any(frame) {
            self.items.list(&prepare.body, &[]);
            self.step_prepare(ctx, token, (&prepare, ranges), goes_on);
            self.carry_out_prepare(ctx, token, frame);
        } else if let Ok(write) = wire::Write::decode(frame) {
            let key = KeyRef::new(self.seed, write.keyspace, write.key);
            let of = (key, LatestInStore::NONE);
            let (single, _, mut parts) = self.parts();
            let validated = single.validate(ctx, (token, frame), &write, of, goes_on, &mut parts);
            if validated != Validated::Later {
                self.carry_out_prepare(ctx, token, frame);
            }
        }
    }
}

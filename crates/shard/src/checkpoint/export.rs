//! The primary's side of a checkpoint.
//!
//! ```text
//!   Begun(n) ── n counts ─► Walking, the state recorded again up to m ── all keys met, m counts,
//!                                          every batch that counts is in a part ─► the last part
//! ```
//! One at a time; whoever asks for another one waits until this one is over or forgotten. The part
//! that was asked for last is kept, since it may be lost on its way.

use std::collections::VecDeque;

use timestone_store::{StoreError, StoreEvent};
use timestone_types::{Epoch, Timestamp};
use timestone_wal::{BatchHead, BatchNumber};

use super::part::{PartHead, PartItem, PartKind, encode};
use super::walk::StoreWalk;
use super::{
    CheckpointPart, FIRST_PAUSE, FORGOTTEN_AFTER, LAST_PAUSE, MAX_TAPPED_BYTES, PART_BYTES, PartAsk,
};
use crate::shard::ShardStore;

/// Batches that leave for the log while a checkpoint is made.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    batches: VecDeque<(BatchNumber, Vec<u8>)>,
    bytes: usize,
    /// The last batch of what was recorded again, and the bytes up to it that are still here.
    state: (BatchNumber, usize),
}

impl Tap {
    /// These batches, and no more.
    fn of<'a>(batches: impl Iterator<Item = (BatchHead, &'a [u8])>) -> Self {
        let mut tap = Self::default();
        batches.for_each(|(head, bytes)| tap.push(head, bytes));
        tap
    }

    /// A batch leaves.
    pub(crate) fn push(&mut self, head: BatchHead, bytes: &[u8]) {
        let (batch, epoch, first) = (head.batch, head.epoch, head.first);
        debug_assert!(self.batches.back().is_none_or(|(last, _)| last.next() == batch));
        let mut item = Vec::with_capacity(bytes.len() + 32);
        PartItem::Batch { batch, epoch, first, bytes }.encode(&mut item);
        self.bytes += item.len();
        self.batches.push_back((batch, item));
    }

    /// The next batch, if it is `durable`.
    fn take(&mut self, durable: BatchNumber) -> Option<(BatchNumber, Vec<u8>)> {
        let next = self.batches.pop_front_if(|(batch, _)| *batch <= durable)?;
        self.bytes -= next.1.len();
        if next.0 <= self.state.0 {
            self.state.1 -= next.1.len();
        }
        Some(next)
    }

    /// What is kept was recorded again, up to this batch. That is as much as there is of it, at once,
    /// and no sign that whoever takes the parts is slow.
    pub(crate) fn note_state(&mut self, m: BatchNumber) {
        let up_to = self.batches.iter().filter(|(batch, _)| *batch <= m);
        self.state = (m, up_to.map(|(_, item)| item.len()).sum());
    }

    /// Bytes that have left since what is kept was recorded again.
    fn bytes_behind_state(&self) -> usize {
        if timestone_types::is_planted!(CountsTappedState) {
            return self.bytes;
        }
        debug_assert!(self.state.1 <= self.bytes, "what was recorded again is among the batches");
        self.bytes - self.state.1
    }

    fn is_ready(&self, durable: BatchNumber) -> bool {
        self.batches.front().is_some_and(|(batch, _)| *batch <= durable)
    }
}

/// How far a checkpoint has come.
#[derive(Debug)]
enum ExportStep {
    /// Everything up to this batch has to count first.
    Begun(BatchNumber),
    /// What was recorded again counts with this batch.
    Walking(BatchNumber, Box<StoreWalk>),
}

/// A checkpoint under way.
#[derive(Debug)]
struct Export {
    session: u64,
    epoch: Epoch,
    step: ExportStep,
    /// The part that is asked for next, and whether it is.
    number: u64,
    is_asked: bool,
    asked_at: Timestamp,
    /// Whoever has all parts so far, and gets the others, lacks nothing up to this batch.
    through: BatchNumber,
    /// The part before.
    last: Option<CheckpointPart>,
    is_complete: bool,
}

/// Says that there is no such checkpoint any more.
fn gone(epoch: Epoch, ask: PartAsk) -> CheckpointPart {
    let (kind, PartAsk { session, part: number }) = (PartKind::Gone, ask);
    let through = BatchNumber::ZERO;
    CheckpointPart {
        ask,
        is_last: true,
        bytes: encode(&PartHead { kind, session, number, epoch, through }, &[]),
    }
}

/// What the shard has to do for a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToDo {
    Nothing,
    /// What is kept is to be recorded again, from all batches up to this one.
    Record(BatchNumber),
}

/// The checkpoints of a shard. See the module.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    current: Option<Export>,
    /// The batches of one that ends with what counted at its begin.
    fixed: Option<Tap>,
    /// Parts that are to be sent.
    parts: VecDeque<CheckpointPart>,
    /// Something is damaged that a checkpoint needs.
    has_met_damage: bool,
    /// How often in a row the store could not be read, and until when no other one begins.
    failures: u32,
    paused_until: Timestamp,
}

impl Exports {
    /// A replica asks for a part. Whether a checkpoint is to begin: batches are tapped from here
    /// on, and [`Exports::begin`] says behind which one. None does for a while after the store could
    /// not be read, nor at all while pages of it are unread: each would cost a copy of the state, and
    /// whoever takes it would begin anew. It hears nothing, and asks again.
    pub(crate) fn ask(
        &mut self,
        now: Timestamp,
        epoch: Epoch,
        ask: PartAsk,
        store: &ShardStore,
    ) -> bool {
        self.forget_old(now);
        let PartAsk { session, part: number } = ask;
        self.current.take_if(|export| export.epoch != epoch);
        match &mut self.current {
            Some(export) if export.session == session => {
                export.asked_at = now;
                if number == export.number && !export.is_complete {
                    export.is_asked = true;
                } else if let Some(last) = export.last.as_ref().filter(|last| last.ask == ask) {
                    self.parts.push_back(last.clone());
                } else {
                    self.parts.push_back(gone(epoch, ask));
                }
                false
            }
            _ if number > 0 => {
                self.parts.push_back(gone(epoch, ask));
                false
            }
            // It waits until the one before is forgotten: its last part may have been lost.
            Some(_) => false,
            None => self.may_begin(now, store),
        }
    }

    fn may_begin(&self, now: Timestamp, store: &ShardStore) -> bool {
        if timestone_types::is_planted!(ExportsInVain) {
            return true;
        }
        now >= self.paused_until && store.unread_pages() == 0
    }

    /// Whether a checkpoint needed what is damaged.
    pub(crate) const fn have_met_damage(&self) -> bool {
        self.has_met_damage
    }

    /// A checkpoint begins behind the batch that has left last.
    pub(crate) fn begin(&mut self, now: Timestamp, epoch: Epoch, session: u64, n: BatchNumber) {
        debug_assert!(self.current.is_none(), "one at a time");
        self.fixed = None;
        self.current = Some(Export {
            session,
            epoch,
            step: ExportStep::Begun(n),
            number: 0,
            is_asked: true,
            asked_at: now,
            through: n,
            last: None,
            is_complete: false,
        });
    }

    /// A checkpoint begins that ends with what counts now: of a store that has everything up to
    /// `through`, but for what is in these batches.
    pub(crate) fn begin_fixed<'a>(
        &mut self,
        now: Timestamp,
        (epoch, session, through): (Epoch, u64, BatchNumber),
        batches: impl Iterator<Item = (BatchHead, &'a [u8])>,
        store: &ShardStore,
    ) {
        self.begin(now, epoch, session, through);
        self.recorded(now, through, store);
        self.fixed = Some(Tap::of(batches));
    }

    /// What is under way waits for batches that may never count: it is given up. Whoever takes it
    /// begins anew.
    pub(crate) fn give_up_live(&mut self, durable: BatchNumber) {
        let taps = self.taps();
        self.current.take_if(|export| taps && export.is_blocked(durable));
    }

    /// Nothing is kept any more of what follows a checkpoint. One that ends with what counted at its
    /// begin, or has come to its end, does not bring that: it is forgotten, and whoever takes it begins
    /// anew.
    pub(crate) fn leave_behind(&mut self, session: u64) {
        let is_fixed = self.fixed.is_some();
        let is_in_vain = |export: &mut Export| {
            export.session == session
                && (is_fixed || export.is_complete)
                && !timestone_types::is_planted!(GivesInVain)
        };
        self.current.take_if(is_in_vain);
        if self.current.is_none() {
            self.fixed = None;
        }
    }

    /// A part that is to be sent.
    pub(crate) fn take_part(&mut self) -> Option<CheckpointPart> {
        self.parts.pop_front()
    }

    /// The checkpoint under way, and up to which batch it brings everything.
    pub(crate) fn progress(&self) -> Option<(u64, BatchNumber)> {
        self.current.as_ref().map(|export| (export.session, export.through))
    }

    /// Forgets a checkpoint that nobody asks for any more.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        self.current.take_if(|export| export.asked_at.saturating_add(FORGOTTEN_AFTER) <= now);
        if self.current.is_none() {
            self.fixed = None;
        }
    }

    /// Whether batches are to be tapped.
    pub(crate) fn taps(&self) -> bool {
        self.fixed.is_none() && self.is_under_way()
    }

    /// Whether there is anything to go on with.
    pub(crate) fn is_under_way(&self) -> bool {
        self.current.as_ref().is_some_and(|export| !export.is_complete)
    }

    /// Goes on with a checkpoint. `live` is what has left since, and up to where it counts; it is
    /// needed while [batches are tapped](Self::taps).
    pub(crate) fn go_on(
        &mut self,
        now: Timestamp,
        live: Option<(&mut Tap, BatchNumber)>,
        is_copying: bool,
        store: &mut ShardStore,
    ) -> ToDo {
        let Some(export) = &mut self.current else { return ToDo::Nothing };
        let (tap, durable) = match (&mut self.fixed, live) {
            (Some(fixed), _) => (fixed, BatchNumber::MAX),
            (None, Some((tap, _))) if tap.bytes_behind_state() > MAX_TAPPED_BYTES => {
                tracing::warn!("a checkpoint is given up: whoever takes it is too slow");
                self.current = None;
                return ToDo::Nothing;
            }
            (None, Some(live)) => live,
            (None, None) => return ToDo::Nothing,
        };
        match &mut export.step {
            ExportStep::Begun(n) => {
                let counts = *n <= durable || timestone_types::is_planted!(EarlyCheckpoint);
                if counts && !is_copying { ToDo::Record(*n) } else { ToDo::Nothing }
            }
            ExportStep::Walking(..) => {
                match export.build(now, (tap, durable), store, &mut self.parts) {
                    Ok(()) if export.is_complete => self.failures = 0,
                    Ok(()) => {}
                    Err(error) => self.failed(&error),
                }
                ToDo::Nothing
            }
        }
    }

    /// What is kept was recorded again, up to this batch: the walk begins.
    pub(crate) fn recorded(&mut self, now: Timestamp, m: BatchNumber, store: &ShardStore) {
        if let Some(export) = &mut self.current {
            export.step = ExportStep::Walking(m, Box::new(StoreWalk::new(now, store)));
        }
    }

    fn walk(&mut self) -> Option<&mut StoreWalk> {
        match &mut self.current.as_mut()?.step {
            ExportStep::Walking(_, walk) => Some(walk),
            ExportStep::Begun(_) => None,
        }
    }

    /// Deals with an event of the store that is for a checkpoint; gives others back.
    pub(crate) fn take_event(
        &mut self,
        event: StoreEvent,
        now: Timestamp,
        store: &mut ShardStore,
    ) -> Option<StoreEvent> {
        match event {
            StoreEvent::ReadDone { token, outcome } if StoreWalk::is_token(token) => {
                let found = self.walk().map(|walk| walk.found(token, outcome, now, store));
                self.told(found);
            }
            StoreEvent::ScanDone { token, keys, next } if StoreWalk::is_token(token) => {
                if let Some(walk) = self.walk() {
                    walk.listed(token, &keys, next);
                }
            }
            StoreEvent::ReadFailed { token, error } if StoreWalk::is_token(token) => {
                let failed = self.walk().map(|walk| walk.list_failed(token, now, error));
                self.told(failed);
            }
            other => return Some(other),
        }
        None
    }

    /// What the walk says of an answer of the store.
    fn told(&mut self, said: Option<Result<(), StoreError>>) {
        if let Some(Err(error)) = said {
            self.failed(&error);
        }
    }

    /// The store cannot read what a checkpoint needs.
    fn failed(&mut self, error: &StoreError) {
        let Some(export) = self.current.take() else { return };
        self.has_met_damage = true;
        let pause = (FIRST_PAUSE * 2u32.saturating_pow(self.failures)).min(LAST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.paused_until = export.asked_at.saturating_add(pause);
        tracing::error!(%error, ?pause, "a checkpoint is given up: the store cannot be read. No \
            other one begins for a while");
    }

    /// When to go on, if it can.
    pub(crate) fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let export = self.current.as_ref()?;
        let walk = match &export.step {
            ExportStep::Walking(_, walk) => walk.deadline(),
            ExportStep::Begun(_) => None,
        };
        let forgotten = export.asked_at.saturating_add(FORGOTTEN_AFTER);
        Some(walk.map_or(forgotten, |at| at.max(now)))
    }
}

impl Export {
    /// Whether it waits for something to count; before its first part that is all that it does.
    fn is_blocked(&self, durable: BatchNumber) -> bool {
        match &self.step {
            ExportStep::Begun(_) => true,
            ExportStep::Walking(m, walk) => walk.is_over() && *m > durable,
        }
    }

    /// Walks on, and makes the part that is asked for when there is enough for it.
    fn build(
        &mut self,
        now: Timestamp,
        (tap, durable): (&mut Tap, BatchNumber),
        store: &mut ShardStore,
        parts: &mut VecDeque<CheckpointPart>,
    ) -> Result<(), StoreError> {
        let ExportStep::Walking(m, walk) = &mut self.step else { return Ok(()) };
        walk.go_on(now, store)?;
        if !self.is_asked {
            return Ok(());
        }
        let is_found = walk.is_over();
        // What has left meanwhile does not wait for the walk for long.
        let is_tapped = tap.is_ready(durable) && tap.bytes >= PART_BYTES;
        if !is_found && !is_tapped && walk.item_bytes() < PART_BYTES {
            return Ok(());
        }
        let mut items = Vec::new();
        while items.len() < PART_BYTES
            && let Some((batch, item)) = tap.take(durable)
        {
            self.through = self.through.max(batch);
            items.extend_from_slice(&item);
        }
        while let Some(next) = walk.next_bytes()
            && (items.is_empty() || items.len() + next <= PART_BYTES)
            && let Some(item) = walk.take_item()
        {
            items.extend_from_slice(&item);
        }
        let counts = *m <= durable;
        let is_last = is_found && walk.item_bytes() == 0 && !tap.is_ready(durable) && counts;
        if items.is_empty() && !is_last {
            return Ok(());
        }
        let kind = if is_last { PartKind::Last } else { PartKind::Some };
        let Self { session, number, epoch, through, .. } = *self;
        let head = PartHead { kind, session, number, epoch, through };
        let ask = PartAsk { session: self.session, part: self.number };
        let part = CheckpointPart { ask, is_last, bytes: encode(&head, &items) };
        parts.push_back(part.clone());
        self.last = Some(part);
        (self.number, self.is_asked, self.is_complete) = (self.number + 1, false, is_last);
        Ok(())
    }
}

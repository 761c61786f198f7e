//! From a data directory to a shard that can serve: the store is recovered, then the logs are
//! replayed into it.
//!
//! ```text
//!   Mftl::open ─► store ─┐
//!   every log folder ────┴─► Replay::record … ─► finish ─► Shard (RecoveryDone when it starts)
//! ```
//! Records come in any order between logs. What is decided goes straight into the store (a version
//! that is there already changes nothing), so that the memory needed does not grow with the log;
//! what is not decided stays promised, with its bytes. `begin` tells the participant, `past` has what
//! no log tells. Source: DTranx §4.4, MILANA §4.5.

mod begin;
mod bounds;
mod going_on;
mod outcomes;
mod past;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use timestone_store::{Store, StoreError, StoreEvent};
use timestone_txn::limits::BOUND_AHEAD;
use timestone_types::limits::{MAX_CLOCK_LEAD, WATERMARK_LAG};
use timestone_types::{
    AbortKind, Epoch, HashedKey, KeyRef, PreviousFound, ShardId, Timestamp, TxnId, TxnOutcome,
    Version,
};
use timestone_wal::{BatchNumber, LogRecord};
use timestone_wire::{PrepareBody, WriteKind};

use crate::error::ShardError;
use crate::log_records::order::{RecordOrder, RecordPlace};
use crate::write_sets::payload::{Payload, Payloads};
pub use begin::Recovering;
use bounds::Bounds;
use outcomes::Outcomes;
pub use past::{Past, Served};

/// How long to wait for the device before looking again.
const DEVICE_WAIT: Duration = Duration::from_millis(10);
/// How often in a row to look in vain before a write is left to the running stage.
const MAX_WAITS: u32 = 100;

/// A shard whose logs are being replayed.
pub struct Replay {
    shard: ShardId,
    store: Box<dyn Store + Send>,
    payloads: Payloads,
    promised: HashMap<TxnId, Promised, FixedState>,
    decided: Outcomes,
    bound: Timestamp,
    watermark: Timestamp,
    /// The store's own one, as its last checkpoint has it.
    store_watermark: Timestamp,
    lowest: Option<BatchNumber>,
    /// Which batches tell of the read bound and the watermark.
    bounds: Bounds,
    order: RecordOrder,
    /// The lowest timestamp of all writes in the logs.
    oldest_write: Timestamp,
    /// The same of one batch.
    oldest_of_batch: Timestamp,
    keep_from: BatchNumber,
    /// What lies below it and is not needed was forgotten.
    pruned_to: BatchNumber,
    applied: u64,
    /// The lowest batch with a prepare whose writes went into the store since this was last taken.
    applied_from: Option<BatchNumber>,
    /// Decided transactions that the store has had no room for, and how long their bodies are.
    left: VecDeque<(TxnId, usize)>,
    left_bytes: usize,
    device: Device,
    waits_in_vain: u32,
    events: Vec<StoreEvent>,
    /// Keys that are looked at ahead of the records that put them; emptied by each use.
    ahead: Vec<HashedKey>,
}

/// What to do when the store's device is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    /// Wait for it: nobody is served.
    IsWaitedFor,
    /// Go on without, and come back in a later turn.
    IsLeft,
}

/// A promise as the log has it.
struct Promised {
    /// The highest timestamp that was promised.
    commit: Timestamp,
    /// The last batch that says so.
    batch: BatchNumber,
    /// The last batch with this timestamp: what is before it is not needed.
    needed: BatchNumber,
}

/// What is known of a decided transaction.
#[derive(Clone)]
struct Decided {
    begin: Timestamp,
    outcome: TxnOutcome,
    abort: Option<AbortKind>,
    /// What a single-key write found, and where its condition met it if that did not hold.
    found: PreviousFound,
    met: Timestamp,
    /// The last batch that says so.
    batch: BatchNumber,
    /// Of a commit over several shards: all of them. One may still wait for the decision, and its
    /// client is gone.
    participants: Vec<ShardId>,
}

impl Replay {
    /// A shard on a store that has recovered itself.
    pub fn new(shard: ShardId, store: Box<dyn Store + Send>) -> Self {
        let watermark = store.watermark();
        Self {
            shard,
            store,
            payloads: Payloads::default(),
            promised: HashMap::default(),
            decided: Outcomes::default(),
            bound: Timestamp::ZERO,
            watermark,
            store_watermark: watermark,
            lowest: None,
            bounds: Bounds::default(),
            order: RecordOrder::default(),
            oldest_write: Timestamp::MAX,
            oldest_of_batch: Timestamp::MAX,
            keep_from: BatchNumber::ZERO,
            pruned_to: BatchNumber::ZERO,
            applied: 0,
            applied_from: None,
            left: VecDeque::new(),
            left_bytes: 0,
            device: Device::IsWaitedFor,
            waits_in_vain: 0,
            events: Vec::new(),
            ahead: Vec::new(),
        }
    }

    /// Transactions whose writes were found in the log.
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// Where time stood at least when the shard's last life ended: its read bound was written ahead
    /// of the clock by no more than [`BOUND_AHEAD`], the watermark of its store trailed the clock
    /// by [`WATERMARK_LAG`] or more, and what it wrote led the clock by no more than
    /// [`MAX_CLOCK_LEAD`].
    ///
    /// The watermark of the log's records is left out: their bounds tell more, and one that a
    /// restart without certainty raised ([`Served`]) does not trail the clock. Nothing here may be
    /// later than the clock of then, or time would get ahead with every restart.
    pub fn lived_until(&self) -> Timestamp {
        let lag =
            if self.store_watermark > Timestamp::ZERO { WATERMARK_LAG } else { Duration::ZERO };
        let by_bound = self.bound.saturating_sub(BOUND_AHEAD);
        by_bound
            .max(self.store_watermark.saturating_add(lag))
            .max(self.youngest().saturating_sub(MAX_CLOCK_LEAD))
    }

    /// The latest read bound in the logs.
    pub const fn bound(&self) -> Timestamp {
        self.bound
    }

    /// At or above every version that the store holds.
    pub fn youngest(&self) -> Timestamp {
        self.store.youngest()
    }

    fn assert_sound(&self) {
        assert_eq!(self.promised.len(), self.payloads.len(), "a promise has its write set");
        assert!(self.waits_in_vain <= MAX_WAITS, "waits for the device are bounded");
        debug_assert!(
            self.lowest.is_some() == self.order.last().is_some()
                && self.lowest <= self.order.last().map(|last| last.batch),
            "a record is in a batch"
        );
    }

    /// Takes one record of the shard.
    ///
    /// # Errors
    /// The record cannot be understood, or the store cannot take it.
    pub fn record(
        &mut self,
        now: Timestamp,
        place: RecordPlace,
        bytes: &[u8],
    ) -> Result<(), ShardError> {
        let batch = place.batch;
        self.lowest = Some(self.lowest.map_or(batch, |lowest| lowest.min(batch)));
        self.order.take(place);
        match LogRecord::decode(bytes).map_err(ShardError::part)? {
            LogRecord::Prepare { txn, begin, commit, single, found, participants, body } => {
                let body = PrepareBody::parse(body).map_err(ShardError::part)?;
                self.bound = self.bound.max(commit);
                self.oldest_write = self.oldest_write.min(commit);
                self.oldest_of_batch = self.oldest_of_batch.min(commit);
                if single {
                    let (outcome, met) = (TxnOutcome::Committed(commit), Timestamp::ZERO);
                    let decided = Decided {
                        begin,
                        outcome,
                        abort: None,
                        found,
                        met,
                        batch,
                        participants: Vec::new(),
                    };
                    self.decided.insert(txn, decided);
                }
                let known = match single {
                    true => Some(TxnOutcome::Committed(commit)),
                    false => self.decided.get(txn).map(|decided| decided.outcome),
                };
                match known {
                    Some(TxnOutcome::Committed(at)) => {
                        if !self.apply(now, (txn, at, batch), body)? {
                            let participants: Vec<ShardId> = participants.iter().collect();
                            self.leave(batch, txn, begin, at, single, &participants, body);
                        }
                    }
                    Some(TxnOutcome::Aborted) => {}
                    None => {
                        let participants: Vec<ShardId> = participants.iter().collect();
                        let payload =
                            self.payloads.keep(txn, begin, single, &participants, (body, &[]));
                        payload.commit = payload.commit.max(commit);
                        payload.batch =
                            Some(payload.batch.map_or(batch, |earlier| earlier.min(batch)));
                        let first = Promised { commit, batch, needed: batch };
                        let promised = self.promised.entry(txn).or_insert(first);
                        if (commit, batch) > (promised.commit, promised.needed) {
                            (promised.commit, promised.needed) = (commit, batch);
                        }
                        promised.batch = promised.batch.max(batch);
                    }
                }
            }
            LogRecord::Decision { txn, begin, commit, abort, found, met, participants, .. } => {
                let outcome = if commit == Timestamp::ZERO {
                    TxnOutcome::Aborted
                } else {
                    TxnOutcome::Committed(commit)
                };
                let participants = participants.iter().collect();
                let decided = Decided { begin, outcome, abort, found, met, batch, participants };
                self.decide(now, txn, decided)?;
            }
            LogRecord::ReadBound { bound, watermark } => {
                self.bound = self.bound.max(bound);
                self.watermark = self.watermark.max(watermark);
                self.bounds.take(batch, bound, watermark);
                // It is durable, so it is in force. What was pruned below it is not written again.
                self.store.advance_watermark(watermark);
            }
            LogRecord::KeepFrom { batch } => self.keep_from = self.keep_from.max(batch),
            LogRecord::Other { kind, .. } => {
                return Err(ShardError::UnknownRecord { shard: self.shard, kind });
            }
        }
        self.assert_sound();
        Ok(())
    }

    fn decide(&mut self, now: Timestamp, txn: TxnId, decided: Decided) -> Result<(), ShardError> {
        let is_committed = |known: &Decided| matches!(known.outcome, TxnOutcome::Committed(_));
        if decided.outcome == TxnOutcome::Aborted && self.decided.get(txn).is_some_and(is_committed)
        {
            // A later primary had forgotten the commit, and keeps the transaction out. What it writes may
            // still wait for room here.
            self.decided.told_again(txn, decided.batch);
            return Ok(());
        }
        if let TxnOutcome::Committed(at) = decided.outcome {
            self.bound = self.bound.max(at);
            if let Some(promised) = self.promised.remove(&txn)
                && let Some(payload) = self.payloads.take(txn)
            {
                let Payload { body, begin, participants, batch, .. } = &payload;
                let body = PrepareBody::parse(body).map_err(ShardError::part)?;
                let batch = match self.device {
                    Device::IsWaitedFor => batch.unwrap_or(self.lowest.unwrap_or_default()),
                    // The own log has let go of what is before.
                    Device::IsLeft => promised.needed,
                };
                if !self.apply(now, (txn, at, batch), body)? {
                    self.leave(batch, txn, *begin, at, false, participants, body);
                    self.decided.insert(txn, decided);
                    return Ok(());
                }
                self.payloads.recycle(payload);
            }
        }
        self.promised.remove(&txn);
        self.payloads.forget(txn);
        self.decided.insert(txn, decided);
        self.assert_sound();
        Ok(())
    }

    /// Keeps a decided transaction that the store has no room for now: the stage applies it when it
    /// has, as it would have without a crash. What makes the room (deletes, the watermark, erased
    /// blocks) may come later in the log, or only while serving.
    #[expect(clippy::too_many_arguments, reason = "everything that a prepare's record says")]
    fn leave(
        &mut self,
        batch: BatchNumber,
        txn: TxnId,
        begin: Timestamp,
        commit: Timestamp,
        single: bool,
        participants: &[ShardId],
        body: PrepareBody<'_>,
    ) {
        let payload = self.payloads.keep(txn, begin, single, participants, (body, &[]));
        (payload.commit, payload.batch) = (commit, Some(batch));
        self.promised.insert(txn, Promised { commit, batch, needed: batch });
        let bytes = body.bytes_of_writes();
        self.left.push_back((txn, bytes));
        self.left_bytes += bytes;
        self.assert_sound();
    }

    /// Puts a transaction's writes into the store; false when it has no room for all of them.
    fn apply(
        &mut self,
        now: Timestamp,
        (txn, commit, batch): (TxnId, Timestamp, BatchNumber),
        body: PrepareBody<'_>,
    ) -> Result<bool, ShardError> {
        assert!(commit <= self.bound, "what is applied lies below what the logs tell of");
        let version = Version::new(commit, txn.client);
        let seed = self.store.seed();
        for write in body.writes() {
            let key = KeyRef::new(seed, write.keyspace, write.key);
            let done = self.with_room(now, |store| match write.kind {
                WriteKind::Put => store.put(key, version, write.value, write.expires_at),
                WriteKind::Delete => store.delete(key, version),
                WriteKind::Fence => store.fence(write.keyspace, version),
            })?;
            if !done {
                return Ok(false);
            }
        }
        self.applied += 1;
        self.applied_from = Some(self.applied_from.map_or(batch, |lowest| lowest.min(batch)));
        Ok(true)
    }

    /// Writes into the store, waiting for the device where it has no room for more at the moment.
    /// False when waiting does not help; waits in a row are bounded by [`MAX_WAITS`].
    fn with_room(
        &mut self,
        now: Timestamp,
        mut write: impl FnMut(&mut (dyn Store + Send)) -> Result<(), StoreError>,
    ) -> Result<bool, ShardError> {
        loop {
            match write(&mut *self.store) {
                Ok(()) => {
                    self.waits_in_vain = 0;
                    return Ok(true);
                }
                Err(StoreError::DeviceFull { .. } | StoreError::NoDevice(_)) => return Ok(false),
                Err(StoreError::Busy)
                    if self.device == Device::IsLeft || self.waits_in_vain >= MAX_WAITS =>
                {
                    return Ok(false);
                }
                Err(StoreError::Busy) => {
                    assert!(self.waits_in_vain < MAX_WAITS, "waits for the device are bounded");
                    self.waits_in_vain += 1;
                    self.store.pump(now, &mut self.events);
                    self.store.wait(DEVICE_WAIT);
                    self.store.pump(now, &mut self.events);
                    self.events.clear();
                }
                Err(error) => return Err(ShardError::part(error)),
            }
        }
    }

    /// Forgets promises that were decided in a batch that is gone: the files that hold them stayed
    /// for other shards or batches, in this log or another one. Who knows of the decision may have
    /// been told that everybody does, and would never tell it again.
    fn forget_ended_promises(&mut self) {
        if timestone_types::is_planted!(RevivedPromise) {
            return;
        }
        let (decided, payloads) = (&self.decided, &mut self.payloads);
        self.promised.retain(|txn, promised| {
            let is_needed = promised.batch >= self.keep_from || decided.contains(*txn);
            if !is_needed {
                payloads.forget(*txn);
            }
            is_needed
        });
        self.assert_sound();
    }

    /// Whether what the logs hold of the shard fits together, and to the epoch that the master
    /// gives it.
    ///
    /// # Errors
    /// It does not: files of different times were put together.
    pub fn check(&self, epoch: Epoch) -> Result<(), ShardError> {
        self.order
            .check(epoch)
            .map_err(|detail| ShardError::RecordOrder { shard: self.shard, detail })
    }
}

//! A replay that goes on while others are served: what a backup needs of it.

use timestone_store::KeysAhead;
use timestone_types::{HashedKey, ShardId, Timestamp, TxnOutcome};
use timestone_wal::{BatchHead, BatchNumber, BatchRecords, LogRecord};
use timestone_wire::PrepareBody;

use super::{Device, Payload, Replay};
use crate::error::ShardError;
use crate::limits::{LOOK_AHEAD, LOOK_AHEAD_KEYS, MAX_LEFT, MAX_LEFT_BYTES};
use crate::log_records::order::RecordPlace;
use crate::shard::ShardStore;

impl Replay {
    /// The device is not waited for from now on: what it has no room for is put later, by the
    /// backup. For a replay beside others that are served.
    #[must_use]
    pub fn beside_others(mut self) -> Self {
        self.leave_device();
        self
    }

    pub(crate) fn leave_device(&mut self) {
        self.device = Device::IsLeft;
    }

    /// Takes the records of a batch.
    ///
    /// # Errors
    /// A record cannot be understood, or the store cannot take it.
    pub fn batch(
        &mut self,
        now: Timestamp,
        head: BatchHead,
        bytes: &[u8],
    ) -> Result<(), ShardError> {
        assert_eq!(head.shard, self.shard, "a batch is for its shard");
        self.begin_batch();
        let mut number = head.first;
        let mut records = BatchRecords::new(bytes);
        loop {
            let looked_at = self.look_ahead(records);
            for record in records.by_ref().take(looked_at) {
                let place = RecordPlace { batch: head.batch, epoch: head.epoch, number };
                let record = record.map_err(ShardError::part)?;
                self.record(now, place, record)?;
                number = number.plus(1);
            }
            if looked_at == 0 {
                return Ok(());
            }
        }
    }

    /// Has the store fetch what the puts of the next records will look at, so that they do not wait
    /// for memory one after the other. How many records were looked at; none are left if none.
    fn look_ahead(&mut self, records: BatchRecords<'_>) -> usize {
        let (mut keys, seed) = (std::mem::take(&mut self.ahead), self.store.seed());
        let mut looked_at = 0;
        for record in records.take(LOOK_AHEAD) {
            looked_at += 1;
            let body = match record.ok().and_then(|record| LogRecord::decode(record).ok()) {
                Some(LogRecord::Prepare { single: true, body, .. }) => body,
                Some(LogRecord::Decision { txn, commit, .. }) if commit > Timestamp::ZERO => {
                    self.payloads.get(txn).map_or(&[][..], |payload| &payload.body)
                }
                _ => continue,
            };
            // What cannot be read is told when it is carried out.
            let Ok(body) = PrepareBody::parse(body) else { continue };
            let room = LOOK_AHEAD_KEYS - keys.len();
            let puts = body.writes().take(room);
            keys.extend(puts.map(|put| HashedKey::new(seed, put.keyspace, put.key)));
            if keys.len() == LOOK_AHEAD_KEYS {
                break;
            }
        }
        self.store.fetch_ahead(KeysAhead { puts: &keys, ..KeysAhead::default() });
        keys.clear();
        self.ahead = keys;
        looked_at
    }

    pub(crate) const fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn store(&self) -> &ShardStore {
        &*self.store
    }

    pub(crate) fn store_mut(&mut self) -> &mut ShardStore {
        &mut *self.store
    }

    pub(crate) const fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// The last batch of which a record was taken.
    pub(crate) fn last_batch(&self) -> BatchNumber {
        self.order.last().map(|last| last.batch).unwrap_or_default()
    }

    /// The lowest batch that the logs hold, and the lowest timestamp of their writes.
    pub(crate) fn logged(&self) -> Option<(BatchNumber, Timestamp)> {
        self.lowest.map(|lowest| (lowest, self.oldest_write))
    }

    /// Whether so much waits for the store that more should wait, too.
    pub(crate) fn is_behind(&self) -> bool {
        self.left.len() >= MAX_LEFT || self.left_bytes >= MAX_LEFT_BYTES
    }

    /// Whether something waits for the store.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Promises that are not decided, or wait for the store.
    pub(crate) fn promised(&self) -> usize {
        self.promised.len()
    }

    /// Records of another batch follow.
    fn begin_batch(&mut self) {
        self.oldest_of_batch = Timestamp::MAX;
    }

    /// The lowest timestamp of the writes of the batch.
    pub(crate) const fn oldest_of_batch(&self) -> Timestamp {
        self.oldest_of_batch
    }

    /// The lowest batch with a prepare whose writes went into the store since this was last asked.
    pub(crate) const fn take_applied(&mut self) -> Option<BatchNumber> {
        self.applied_from.take()
    }

    /// Puts what the store has had no room for.
    pub(crate) fn go_on(&mut self, now: Timestamp) -> Result<(), ShardError> {
        for _ in 0..self.left.len() {
            let Some((txn, bytes)) = self.left.pop_front() else { break };
            self.left_bytes -= bytes;
            let outcome = self.decided.get(txn).map(|decided| decided.outcome);
            let (Some(TxnOutcome::Committed(at)), Some(payload)) =
                (outcome, self.payloads.take(txn))
            else {
                continue;
            };
            self.promised.remove(&txn);
            let Payload { body, begin, participants, single, batch, .. } = &payload;
            let body = PrepareBody::parse(body).map_err(ShardError::part)?;
            let batch = batch.unwrap_or_default();
            if !self.apply(now, (txn, at, batch), body)? {
                self.leave(batch, txn, *begin, at, *single, participants, body);
                // It stays the first.
                self.left.rotate_right(1);
                break;
            }
        }
        self.assert_sound();
        Ok(())
    }

    /// Forgets what the primary's log has let go of: promises that were decided, and outcomes that
    /// nobody asks for any more.
    pub(crate) fn prune(&mut self) {
        if timestone_types::is_planted!(ForgetfulBackup) {
            let promised = &self.promised;
            self.decided.forget_all(|txn| promised.contains_key(&txn));
        }
        if self.keep_from <= self.pruned_to {
            return;
        }
        self.pruned_to = self.keep_from;
        self.forget_ended_promises();
        let (keep_from, promised) = (self.keep_from, &self.promised);
        self.decided.forget_below(keep_from, |txn| promised.contains_key(&txn));
    }

    /// The lowest batch with a promise, an outcome or a read bound that is needed. Of a promise the
    /// last copy is enough: a backup takes what it has durably.
    pub(crate) fn lowest_needed(&self) -> Option<BatchNumber> {
        let promised = self.promised.values().map(|promised| promised.needed).min();
        [promised, self.decided.lowest(), self.bounds.lowest()].into_iter().flatten().min()
    }

    /// Nothing was served at or above this.
    pub(crate) fn served_below(&mut self, bound: Timestamp) {
        self.bound = self.bound.max(bound);
    }

    /// The logs hold nothing below this batch that a recovery needs.
    pub(crate) fn kept_from(&mut self, batch: BatchNumber) {
        self.lowest = self.lowest.map(|lowest| lowest.max(batch.min(self.last_batch())));
    }
}

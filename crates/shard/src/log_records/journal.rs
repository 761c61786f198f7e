//! A shard's side of the log: the open batch, which sequence rides in which batch, and what may be
//! released.
//!
//! ```text
//!   record(sequence) ─► open batch ── end of turn ──► log stage
//!   durable(batch) ─► highest sequence that is durable now
//!   keep_from = lowest batch that is still needed:
//!      · undecided or unapplied prepares (their batch)        · applied puts that the store does not call stable yet
//!      · batches younger than the watermark (kept outcomes), unless they were carried forward
//!      · all that were not carried forward, while commits below the watermark are being told to other participants
//!   truncation point ─► KeepFrom record ── durable ──► the logs may go that far
//! ```
//! Invariants: batch numbers rise by one; a sequence is in exactly one batch; `keep_from` never
//! falls, and is durable before any file goes for it: of several logs one may keep a promise longer
//! than another keeps its decision. Source: DTranx §3.3.2 (reclaiming by state transition).

use std::collections::VecDeque;

use timestone_txn::participant::LogSequence;
use timestone_types::{Timestamp, limits};
use timestone_wal::{BatchNumber, LogRecord, RecordNumber};

use super::retained::{BatchEpoch, RetainedBatches};
use super::unstable::UnstablePuts;

/// A batch on its way to the log.
#[derive(Debug)]
pub(crate) struct ClosedBatch {
    pub(crate) batch: BatchNumber,
    /// The number of its first record.
    pub(crate) first: RecordNumber,
    pub(crate) bytes: Vec<u8>,
}

/// Records of one shard on their way to the log, and what is known of those that arrived.
pub(crate) struct Journal {
    open: Vec<u8>,
    open_batch: BatchNumber,
    open_first: RecordNumber,
    open_records: u64,
    // The lowest timestamp of writes that were carried forward into the open batch.
    open_oldest: Timestamp,
    last_sequence: Option<LogSequence>,
    // (batch, last sequence in it), oldest first, not durable yet.
    in_flight: VecDeque<(BatchNumber, LogSequence)>,
    durable: BatchNumber,
    unstable: UnstablePuts,
    // Oldest first, one per grain of time.
    epochs: VecDeque<BatchEpoch>,
    // As `epochs`, for batches that the log may still hand out at a recovery.
    retained: RetainedBatches,
    // Everything that is needed below it stands in a durable batch again.
    copied_below: BatchNumber,
    truncation_point: BatchNumber,
    // (batch that says so, first batch that is still needed), not durable yet.
    unconfirmed: Option<(BatchNumber, BatchNumber)>,
}

impl Journal {
    /// A journal whose next batch has the number `first`, and its first record the number `record`.
    pub(crate) fn new(first: BatchNumber, record: RecordNumber) -> Self {
        Self {
            open: Vec::new(),
            open_batch: first,
            open_first: record,
            open_records: 0,
            open_oldest: Timestamp::MAX,
            last_sequence: None,
            in_flight: VecDeque::new(),
            durable: BatchNumber::new(first.get() - 1),
            unstable: UnstablePuts::default(),
            epochs: VecDeque::new(),
            retained: RetainedBatches::default(),
            copied_below: BatchNumber::ZERO,
            truncation_point: BatchNumber::ZERO,
            unconfirmed: None,
        }
    }

    /// The batch that records are being added to.
    pub(crate) const fn open_batch(&self) -> BatchNumber {
        self.open_batch
    }

    /// Batches on their way rise, and none is durable, kept or freed before it was made.
    fn assert_sound(&self) {
        debug_assert_eq!(self.open.is_empty(), self.open_records == 0, "records have bytes");
        debug_assert!(self.durable < self.open_batch, "what is being filled is not durable");
        debug_assert!(
            self.in_flight.front().is_none_or(|&(batch, _)| self.durable < batch)
                && self.in_flight.back().is_none_or(|&(batch, _)| batch < self.open_batch),
            "what is on its way is neither open nor durable"
        );
        debug_assert!(
            self.truncation_point <= self.durable.next(),
            "what is not durable is needed"
        );
        debug_assert!(
            self.unconfirmed.is_none_or(|(said_in, from)| {
                from == self.truncation_point && from <= said_in && said_in <= self.open_batch
            }),
            "the last truncation point is the one that is on its way"
        );
    }

    /// Adds a record that the participant waits for.
    pub(crate) fn record(&mut self, sequence: LogSequence, record: &LogRecord<'_>) {
        let before = self.last_sequence.or(self.in_flight.back().map(|&(_, last)| last));
        debug_assert!(before.is_none_or(|before| before < sequence), "sequences rise");
        self.note(record);
        self.last_sequence = Some(sequence);
    }

    /// Adds a record that nobody waits for.
    pub(crate) fn note(&mut self, record: &LogRecord<'_>) {
        record.encode(&mut self.open);
        self.open_records += 1;
        self.assert_sound();
    }

    /// The write that was recorded last has this timestamp. One that is recorded again may lie
    /// below the watermark, where nothing new comes.
    pub(crate) fn note_write(&mut self, commit: Timestamp) {
        debug_assert!(self.open_records > 0, "the write is in the open batch");
        self.open_oldest = self.open_oldest.min(commit);
    }

    /// Begins to record what was not recorded so far: the next batch comes behind `last`, the last
    /// one that the store was told of. Puts of this run so far may be in any of its batches.
    ///
    /// # Panics
    /// Something was recorded that is not durable.
    pub(crate) fn begin(&mut self, last: BatchNumber) {
        assert!(self.is_idle(), "what is recorded already keeps its number");
        let last = self.open_batch.max(last);
        self.unstable.count_all_to(last);
        (self.open_batch, self.durable) = (last.next(), last);
    }

    /// Everything up to this batch is durable.
    pub(crate) const fn durable_to(&self) -> BatchNumber {
        self.durable
    }

    /// Bytes in the open batch.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.len()
    }

    /// Closes the open batch, if it holds anything; `fresh` becomes the buffer of the next one.
    pub(crate) fn close(
        &mut self,
        now: Timestamp,
        watermark: Timestamp,
        fresh: impl FnOnce() -> Vec<u8>,
    ) -> Option<ClosedBatch> {
        if self.open.is_empty() {
            return None;
        }
        let batch = self.open_batch;
        if let Some(sequence) = self.last_sequence.take() {
            self.in_flight.push_back((batch, sequence));
        }
        let oldest = std::mem::replace(&mut self.open_oldest, Timestamp::MAX);
        let before = self.epochs.back().copied();
        if let Some(epoch) = BatchEpoch::begun_by(batch, (now, watermark, oldest), before) {
            self.begin_epoch(epoch);
        }
        let first = self.open_first;
        self.open_batch = batch.next();
        self.open_first = first.plus(std::mem::take(&mut self.open_records));
        let bytes = std::mem::replace(&mut self.open, fresh());
        self.assert_sound();
        Some(ClosedBatch { batch, first, bytes })
    }

    fn begin_epoch(&mut self, epoch: BatchEpoch) {
        let is_before = |before: &BatchEpoch| before.batch < epoch.batch && before.at <= epoch.at;
        debug_assert!(self.epochs.back().is_none_or(is_before), "later batches, later epochs");
        self.epochs.push_back(epoch);
        self.retained.push(epoch);
    }

    /// Batches from `batch` on were found in the logs at a restart. Whatever the watermark is by
    /// now: it was lower when they were written, and every write in them may be replayed again
    /// until all of them are gone. `oldest` is the lowest timestamp of these writes. `bound` is the
    /// read bound that was recovered, or the present if that is later: nothing in these batches
    /// began above it, whatever the clock shows now.
    pub(crate) fn recovered(
        &mut self,
        batch: BatchNumber,
        bound: Timestamp,
        watermark: Timestamp,
        oldest: Timestamp,
    ) {
        assert!(batch < self.open_batch, "what was recovered lies behind what is recorded now");
        let replayed_above = watermark.min(oldest.previous());
        #[cfg(feature = "planted-bugs")]
        let replayed_above =
            if timestone_types::is_planted!(EarlyReplayFloor) { watermark } else { replayed_above };
        self.begin_epoch(BatchEpoch { batch, at: bound, replayed_above });
        self.unstable.applied(self.open_batch, batch);
    }

    /// The log can hand out nothing before `from` any more: up to which timestamp no write can come
    /// back, if that is known.
    pub(crate) fn replayed_above(&mut self, from: BatchNumber) -> Option<Timestamp> {
        self.retained.replayed_above(from)
    }

    /// The log says that everything up to `batch` is durable: the highest sequence that is durable
    /// with it, if that is news.
    pub(crate) fn durable(&mut self, batch: BatchNumber) -> Option<LogSequence> {
        self.durable = self.durable.max(batch);
        let mut through = None;
        while let Some(&(oldest, sequence)) = self.in_flight.front()
            && oldest <= batch
        {
            through = Some(sequence);
            self.in_flight.pop_front();
        }
        self.assert_sound();
        through
    }

    /// Whether nothing waits for the log.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.in_flight.is_empty()
    }

    /// Puts whose prepare is in `prepared_in` were applied now; the store counts them to the open
    /// batch.
    pub(crate) fn applied(&mut self, prepared_in: BatchNumber) {
        self.unstable.applied(self.open_batch, prepared_in);
        self.assert_sound();
    }

    /// Everything still needed below `below` is in a batch again that is durable.
    pub(crate) fn copied_forward(&mut self, below: BatchNumber) {
        debug_assert!(below <= self.open_batch, "what is copied is recorded already");
        self.copied_below = self.copied_below.max(below);
    }

    /// Writes down the first batch that is still needed, when that is news and the last such record
    /// is durable. `is_propagating`: outcomes below the watermark are needed as well.
    pub(crate) fn record_truncation_point(
        &mut self,
        watermark: Timestamp,
        stable: BatchNumber,
        oldest_payload: Option<BatchNumber>,
        is_propagating: bool,
    ) {
        self.unstable.stable(stable);
        // A transaction's begin may lead the batch epoch by the clock lead that is allowed.
        let old = watermark.saturating_sub(limits::MAX_CLOCK_LEAD);
        while self.epochs.get(1).is_some_and(|next| next.at < old) {
            self.epochs.pop_front();
        }
        let young = match self.epochs.front() {
            _ if is_propagating => self.copied_below,
            first => first.map_or(self.open_batch, |first| first.batch).max(self.copied_below),
        };
        let puts = self.unstable.lowest();
        let keep_from =
            [Some(young), puts, oldest_payload].into_iter().flatten().min().unwrap_or(young);
        let keep_from = keep_from.min(self.durable.next());
        if self.unconfirmed.is_none() && keep_from > self.truncation_point {
            self.truncation_point = keep_from;
            self.unconfirmed = Some((self.open_batch, keep_from));
            self.note(&LogRecord::KeepFrom { batch: keep_from });
        }
        self.assert_sound();
    }

    /// The first batch that is still needed, once it is durable that those before it are not.
    pub(crate) fn release(&mut self) -> Option<BatchNumber> {
        self.assert_sound();
        self.unconfirmed
            .take_if(|(batch, _)| *batch <= self.durable)
            .map(|(_, keep_from)| keep_from)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::retained::MAX_RETAINED;
    use super::*;

    fn record() -> LogRecord<'static> {
        LogRecord::ReadBound { bound: Timestamp::ZERO, watermark: Timestamp::ZERO }
    }

    fn journal() -> Journal {
        Journal::new(BatchNumber::new(1), RecordNumber::FIRST)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn durability_of_a_batch_is_durability_of_its_last_sequence() {
        let mut journal = journal();
        journal.record(LogSequence(1), &record());
        journal.record(LogSequence(2), &record());
        let ClosedBatch { batch: first, first: record_1, bytes } =
            journal.close(at(1), Timestamp::ZERO, Vec::new).unwrap();
        assert!(!bytes.is_empty() && !journal.is_idle());
        journal.record(LogSequence(3), &record());
        let ClosedBatch { batch: second, first: record_3, .. } =
            journal.close(at(2), Timestamp::ZERO, Vec::new).unwrap();
        assert_eq!((first.get(), second.get()), (1, 2));
        assert_eq!((record_1.get(), record_3.get()), (1, 3));
        assert_eq!(journal.durable(first), Some(LogSequence(2)));
        assert_eq!(journal.durable(first), None);
        assert_eq!(journal.durable(second), Some(LogSequence(3)));
        assert!(journal.is_idle() && journal.close(at(3), Timestamp::ZERO, Vec::new).is_none());
    }

    /// What the logs are told when what is needed now has become durable.
    fn next_release(
        journal: &mut Journal,
        watermark: Timestamp,
        stable: BatchNumber,
        payload: Option<BatchNumber>,
        is_propagating: bool,
    ) -> Option<BatchNumber> {
        journal.record_truncation_point(watermark, stable, payload, is_propagating);
        if let Some(ClosedBatch { batch, bytes, .. }) =
            journal.close(watermark, watermark, Vec::new)
        {
            let [Ok(record)] = timestone_wal::BatchRecords::new(&bytes).collect::<Vec<_>>()[..]
            else {
                panic!("one record")
            };
            let LogRecord::KeepFrom { batch: keep_from } = LogRecord::decode(record).unwrap()
            else {
                panic!()
            };
            assert_eq!(journal.release(), None, "a crash now would find no word of it");
            journal.durable(batch);
            let released = journal.release();
            assert_eq!(released, Some(keep_from));
            return released;
        }
        journal.release()
    }

    #[test]
    fn while_one_word_of_what_is_needed_is_on_its_way_there_is_no_other() {
        let mut journal = journal();
        journal.record_truncation_point(at(0), BatchNumber::ZERO, None, false);
        let first = journal.close(at(1), at(0), Vec::new).unwrap().batch;
        journal.note(&record());
        let second = journal.close(at(60_000), at(0), Vec::new).unwrap().batch;
        journal.record_truncation_point(at(120_000), BatchNumber::new(9), None, false);
        assert!(journal.open_bytes() == 0 && journal.release().is_none());
        journal.durable(second);
        assert_eq!((first, journal.release()), (BatchNumber::new(1), Some(first)));
        journal.record_truncation_point(at(120_000), BatchNumber::new(9), None, false);
        let third = journal.close(at(60_001), at(0), Vec::new).unwrap().batch;
        journal.durable(third);
        assert_eq!(journal.release(), Some(second));
    }

    #[test]
    fn a_batch_is_kept_for_payloads_unstable_puts_and_young_outcomes() {
        let mut journal = journal();
        for batch in 1..=4u64 {
            journal.record(LogSequence(batch), &record());
            if batch == 3 {
                journal.applied(BatchNumber::new(2));
            }
            journal.close(at(batch * 1000), at(batch), Vec::new).unwrap();
            journal.durable(BatchNumber::new(batch));
        }
        let number = BatchNumber::new;
        let mut needed = |watermark, stable, payload| {
            next_release(&mut journal, watermark, stable, payload, false)
        };
        // The watermark keeps everything young; then the unstable put of batch 2; then an undecided
        // prepare; then nothing.
        assert_eq!(needed(at(1), BatchNumber::ZERO, None), Some(number(1)));
        assert_eq!(needed(at(60_000), BatchNumber::ZERO, None), Some(number(2)));
        assert_eq!(needed(at(60_000), number(2), None), None);
        assert_eq!(needed(at(60_000), number(3), Some(number(3))), Some(number(3)));
        assert_eq!(needed(at(60_000), number(3), Some(number(3))), None);
        assert_eq!(needed(at(60_000), number(3), None), Some(number(4)));
    }

    #[test]
    fn while_commits_are_being_told_to_others_only_what_was_carried_forward_goes() {
        let mut journal = journal();
        for batch in 1..=4u64 {
            journal.record(LogSequence(batch), &record());
            journal.close(at(batch * 1000), at(batch), Vec::new).unwrap();
            journal.durable(BatchNumber::new(batch));
        }
        assert_eq!(next_release(&mut journal, at(60_000), BatchNumber::ZERO, None, true), None);
        journal.copied_forward(BatchNumber::new(3));
        let mut needed = |is_propagating| {
            next_release(&mut journal, at(60_000), BatchNumber::ZERO, None, is_propagating)
        };
        assert_eq!(needed(true), Some(BatchNumber::new(3)));
        assert_eq!(needed(false), Some(BatchNumber::new(4)));
    }

    #[test]
    fn copying_forward_frees_young_batches_but_not_unstable_puts() {
        let mut journal = journal();
        for batch in 1..=3u64 {
            journal.record(LogSequence(batch), &record());
            journal.close(at(batch * 1000), at(batch), Vec::new).unwrap();
            journal.durable(BatchNumber::new(batch));
        }
        journal.copied_forward(BatchNumber::new(3));
        assert_eq!(
            next_release(&mut journal, at(0), BatchNumber::ZERO, None, false),
            Some(BatchNumber::new(3))
        );
    }

    #[test]
    fn no_write_comes_back_below_the_watermark_of_the_oldest_batch_that_is_retained() {
        let mut journal = journal();
        for batch in 1..=3u64 {
            journal.record(LogSequence(batch), &record());
            journal.close(at(batch * 1000), at(batch), Vec::new).unwrap();
        }
        assert_eq!(journal.replayed_above(BatchNumber::new(1)), Some(at(1)));
        assert_eq!(journal.replayed_above(BatchNumber::new(2)), Some(at(2)));
        assert_eq!(journal.replayed_above(BatchNumber::new(9)), Some(at(3)));
    }

    #[test]
    fn recovered_batches_free_nothing_that_was_written_in_them() {
        let mut journal = Journal::new(BatchNumber::new(11), RecordNumber::new(11));
        journal.recovered(BatchNumber::new(3), at(60_000), at(50), at(5));
        journal.record(LogSequence(1), &record());
        journal.close(at(61_000), at(55), Vec::new).unwrap();
        assert_eq!(journal.replayed_above(BatchNumber::new(3)), Some(at(5).previous()));
        assert_eq!(
            journal.replayed_above(BatchNumber::new(10)),
            Some(at(5).previous()),
            "a write of it may be in the tenth"
        );
        assert_eq!(journal.replayed_above(BatchNumber::new(11)), Some(at(55)));
    }

    /// A life with a log, then one by a clock that was set back by an hour: what began in the first
    /// one is not old.
    fn kept_from_after_the_clock_was_set_back() -> Option<BatchNumber> {
        const HOUR: u64 = 3_600_000;
        let (watermark, bound) = (at(2 * HOUR), at(2 * HOUR + 2_000));
        let mut journal = Journal::new(BatchNumber::new(11), RecordNumber::new(11));
        #[cfg(feature = "planted-bugs")]
        let bound = if timestone_types::is_planted!(AgeByTheClock) { at(HOUR) } else { bound };
        journal.recovered(BatchNumber::new(3), bound, watermark, watermark);
        for batch in 11..=20u64 {
            journal.record(LogSequence(batch), &record());
            // The clock is behind the watermark for an hour, so that the watermark stays.
            journal.close(at(HOUR + batch * 250), watermark, Vec::new).unwrap();
            journal.durable(BatchNumber::new(batch));
        }
        let kept = next_release(&mut journal, watermark, BatchNumber::new(20), None, false);
        // The clock passes the old bound, the watermark follows: now they may go.
        journal.record(LogSequence(21), &record());
        let last =
            journal.close(at(2 * HOUR + 4_000), at(2 * HOUR + 3_000), Vec::new).unwrap().batch;
        journal.durable(last);
        assert!(
            next_release(&mut journal, at(2 * HOUR + 10_000), last, None, false)
                > kept.min(Some(last))
        );
        kept
    }

    #[test]
    fn what_an_earlier_life_recorded_does_not_grow_old_by_a_clock_that_was_set_back() {
        assert_eq!(kept_from_after_the_clock_was_set_back(), Some(BatchNumber::new(3)));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn outcomes_that_grow_old_by_a_clock_that_was_set_back_are_noticed() {
        let kept = timestone_types::planted::with(
            timestone_types::planted::Bug::AgeByTheClock,
            kept_from_after_the_clock_was_set_back,
        );
        assert!(kept > Some(BatchNumber::new(3)), "{kept:?}");
    }

    /// A clock that was set back by less than a server goes on by itself: time goes on a little
    /// below the last bound.
    #[test]
    fn what_began_just_below_the_last_bound_is_not_old_when_time_goes_on_below_it() {
        let mut journal = Journal::new(BatchNumber::new(11), RecordNumber::new(11));
        // A transaction began at 10 400, by a clock that led. The bound was 11 000, and time goes
        // on at 10 000.
        journal.recovered(BatchNumber::new(3), at(11_000), at(8_900), at(8_900));
        for batch in 11..=20u64 {
            journal.record(LogSequence(batch), &record());
            journal.close(at(10_000 + (batch - 11) * 50), at(8_900), Vec::new).unwrap();
            journal.durable(BatchNumber::new(batch));
        }
        assert_eq!(
            next_release(&mut journal, at(10_300), BatchNumber::new(20), None, false),
            Some(BatchNumber::new(3))
        );
    }

    #[test]
    fn an_old_write_that_is_copied_forward_may_come_back_before_its_new_batch_has_gone() {
        let mut journal = journal();
        for (batch, copied) in [(1, None), (2, Some(at(7))), (3, None)] {
            journal.record(LogSequence(batch), &record());
            copied.into_iter().for_each(|commit| journal.note_write(commit));
            journal.close(at(batch * 1000), at(batch * 10), Vec::new).unwrap();
        }
        assert_eq!(journal.replayed_above(BatchNumber::new(1)), Some(at(7).previous()));
        assert_eq!(journal.replayed_above(BatchNumber::new(2)), Some(at(7).previous()));
        assert_eq!(journal.replayed_above(BatchNumber::new(3)), Some(at(30)));
    }

    #[test]
    fn what_is_remembered_of_a_quiet_shard_is_bounded_and_stays_on_the_safe_side() {
        let mut journal = journal();
        for batch in 1..=3 * MAX_RETAINED as u64 {
            journal.record(LogSequence(batch), &record());
            journal.close(at(batch * 1000), at(batch), Vec::new).unwrap();
        }
        assert!(journal.retained.len() <= MAX_RETAINED);
        let below = journal.replayed_above(BatchNumber::new(5000)).unwrap();
        assert!(below <= at(5000) && below >= at(4900), "{below}");
    }
}

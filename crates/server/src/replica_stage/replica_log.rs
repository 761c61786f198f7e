//! A replica's side of its log: which of its log batches holds what, and what of them may go.
//!
//! ```text
//!   Persist{ticket, entry} ─► log batch ─► log stage ─► durable ─► ticket
//!   what the shard, or the backup, needs no more ─► said in the next log batch ─► durable ─► the logs may go that far
//! ```
//! The log knows log batches by the replica's own count, which rises with each of them: a batch of
//! the shard may come out of order, and twice in different epochs. Batches that are needed are kept
//! in memory as well: a primary that is deposed goes on as a backup from them.
//!
//! A replica that gives up all that it had begins another life, and so does each checkpoint that it
//! begins to take: what the log has of earlier lives is void.
//!
//! Invariants: nothing is let go before a log batch that says so is durable, so a restart knows from
//! where on its log has everything; the last mark is always in the log.

use std::collections::{BTreeMap, VecDeque};

use timestone_replication::{Batch, Entry, Ticket, Void};
use timestone_seda::StageId;
use timestone_shard::{LogAppend, LogContents};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::record::put_record;
use timestone_wal::{BatchHead, BatchNumber, RecordNumber};

use super::bytes::LogBytes;
use super::entry::{self, EntryHead};
use crate::event::Event;
use crate::limits::MARK_AGAIN_BYTES;

/// What a log batch holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeldEntry {
    Mark,
    Batch(BatchNumber),
    /// A batch of what was given up.
    Void,
}

/// What was handed to the log and is not durable.
#[derive(Clone, Copy, Debug)]
struct Appended {
    number: BatchNumber,
    /// What waits for it.
    ticket: Option<Ticket>,
    /// What it says of the life, and of what is needed.
    head: EntryHead,
    is_mark: bool,
    at: Timestamp,
}

/// What a start has found in the logs of one replica.
#[derive(Debug, Default)]
pub(crate) struct FoundEntries {
    /// By the numbers of their log batches.
    entries: BTreeMap<BatchNumber, (EntryHead, Entry<LogBytes>)>,
    /// The records of the log batch that is being read.
    open: Option<(BatchNumber, Vec<u8>)>,
    /// The highest number of a record.
    last_record: Option<RecordNumber>,
    /// Something was lost: everything is void, and no log says so yet.
    void: Option<Void>,
    /// A log batch that is none of a replica's.
    stranger: Option<BatchNumber>,
}

impl FoundEntries {
    /// Takes the next record of a log.
    pub(crate) fn record(&mut self, batch: BatchNumber, number: RecordNumber, bytes: &[u8]) {
        if self.open.as_ref().is_some_and(|(open, _)| *open != batch) {
            self.close();
        }
        self.last_record = self.last_record.max(Some(number));
        put_record(bytes, &mut self.open.get_or_insert_with(|| (batch, Vec::new())).1);
    }

    /// A log has been read to its end.
    pub(crate) fn close(&mut self) {
        let Some((batch, records)) = self.open.take() else { return };
        match entry::decode(&records) {
            Some(found) => drop(self.entries.insert(batch, found)),
            None => self.stranger = self.stranger.or(Some(batch)),
        }
    }

    /// Something was lost, here or in the store.
    pub(crate) fn is_void(&mut self, void: Void) {
        if !timestone_types::is_planted!(ForgetsLostDevices) {
            self.void = Some(void);
        }
    }

    pub(super) const fn void(&self) -> Option<Void> {
        self.void
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of a log batch that no replica has written, if there is one.
    pub(crate) const fn stranger(&self) -> Option<BatchNumber> {
        self.stranger
    }

    /// The life that it is in.
    fn life(&self) -> u32 {
        self.entries.values().map(|(head, _)| head.life).max().unwrap_or_default()
    }

    /// Whether everything here is void, and a checkpoint was to come: the store is to be emptied.
    pub(crate) fn is_emptied(&self) -> bool {
        if self.void.is_some() {
            return true;
        }
        let marks = self.entries.values().rev().filter_map(|(_, entry)| match entry {
            Entry::Mark(mark) => Some(mark.emptied),
            Entry::Batch(_) => None,
        });
        marks.take(1).any(|emptied| emptied)
    }

    /// The first batch that the log is needed for; what is before it is in the store.
    fn keep_from(&self) -> BatchNumber {
        let first = BatchNumber::ZERO.next();
        if self.is_emptied() {
            return first;
        }
        let life = self.life();
        let of_life = self.entries.values().filter(|(head, _)| head.life == life);
        of_life.map(|(head, _)| head.keep_from).max().unwrap_or_default().max(first)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ReplicaLog {
    shard: ShardId,
    /// Where it appends.
    log: StageId,
    /// Every log that may hold something of it, and the oldest log batch that it may hand out.
    logs: LogContents,
    next: BatchNumber,
    next_record: RecordNumber,
    in_flight: VecDeque<Appended>,
    /// What the logs may still hand out, by ascending number.
    held: VecDeque<(BatchNumber, HeldEntry)>,
    /// The batches from the first that is needed on.
    batches: BTreeMap<BatchNumber, Batch<LogBytes>>,
    bytes: usize,
    /// The life and the first batch that is needed, and the same as a durable log batch says it.
    head: EntryHead,
    durable_head: EntryHead,
    /// The logs were told that nothing below this log batch is needed.
    released: BatchNumber,
    /// The last mark, and the log batch that it is in.
    mark: Option<(BatchNumber, Entry<LogBytes>)>,
    /// The log batch with the last mark that is durable.
    durable_mark: BatchNumber,
    /// Bytes that were appended behind the last mark.
    since_mark: usize,
}

impl ReplicaLog {
    /// A log in which this was found. With what there was before it, and the entries in their
    /// order.
    pub(super) fn recovered(
        shard: ShardId,
        (log, logs): (StageId, &[StageId]),
        mut found: FoundEntries,
    ) -> (Self, BatchNumber, Vec<Entry<LogBytes>>) {
        found.close();
        let head = EntryHead { keep_from: found.keep_from(), life: found.life() };
        let base = BatchNumber::new(head.keep_from.get() - 1);
        let last = found.entries.last_key_value().map(|(number, _)| *number);
        let mut own = Self {
            shard,
            log,
            logs: LogContents::of(logs),
            next: last.unwrap_or_default().next(),
            next_record: found.last_record.map_or(RecordNumber::FIRST, |last| last.plus(1)),
            in_flight: VecDeque::new(),
            held: VecDeque::new(),
            batches: BTreeMap::new(),
            bytes: 0,
            head,
            durable_head: head,
            released: BatchNumber::ZERO,
            mark: None,
            durable_mark: BatchNumber::ZERO,
            since_mark: 0,
        };
        let mut entries = Vec::new();
        let is_emptied = found.is_emptied();
        for (number, (of, entry)) in found.entries {
            own.note(number, of.life, &entry);
            // Of an earlier life nothing is left, and nothing of a checkpoint that was not whole.
            let is_void = of.life < head.life || is_emptied;
            let is_void = is_void && !timestone_types::is_planted!(TakesVoidEntries);
            if !is_void || matches!(entry, Entry::Mark(_)) {
                entries.push(entry);
            }
        }
        if is_emptied {
            own.give_up();
        }
        own.durable_mark = own.mark.as_ref().map_or(BatchNumber::ZERO, |(number, _)| *number);
        (own, base, entries)
    }

    /// Bytes of the batches that are needed.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Everything up to this batch is needed no more: it is in the store.
    pub(super) const fn base(&self) -> BatchNumber {
        BatchNumber::new(self.head.keep_from.get().saturating_sub(1))
    }

    /// The batches that are needed, up to this one.
    pub(super) fn batches(&self, through: BatchNumber) -> impl Iterator<Item = &Batch<LogBytes>> {
        let needed = self.batches.range(self.head.keep_from..);
        needed.map(|(_, batch)| batch).take_while(move |batch| batch.number <= through)
    }

    /// This is the batch of its number that counts.
    pub(super) fn counts(&mut self, batch: &Batch<LogBytes>) {
        if batch.number >= self.head.keep_from {
            self.hold(batch);
        }
    }

    fn hold(&mut self, batch: &Batch<LogBytes>) {
        self.bytes += batch.payload.records.len();
        if let Some(before) = self.batches.insert(batch.number, batch.clone()) {
            self.bytes -= before.payload.records.len();
        }
    }

    /// The log says durably that everything is void, and a checkpoint begins: nothing that is here is
    /// needed but the mark, and what comes is of another life.
    pub(super) fn give_up(&mut self) {
        self.begin_life();
        for (_, held) in &mut self.held {
            if matches!(held, HeldEntry::Batch(_)) {
                *held = HeldEntry::Void;
            }
        }
    }

    fn begin_life(&mut self) {
        self.head = EntryHead { keep_from: BatchNumber::ZERO.next(), life: self.head.life + 1 };
        self.batches.clear();
        self.bytes = 0;
    }

    /// A log batch has this number and content, of this life.
    fn note(&mut self, number: BatchNumber, life: u32, entry: &Entry<LogBytes>) {
        debug_assert!(
            self.held.back().is_none_or(|(last, _)| *last < number),
            "log batches are numbered upwards"
        );
        let held = match entry {
            Entry::Batch(_) if life < self.head.life => HeldEntry::Void,
            Entry::Batch(batch) => {
                self.counts(batch);
                HeldEntry::Batch(batch.number)
            }
            Entry::Mark(_) => {
                self.mark = Some((number, entry.clone()));
                HeldEntry::Mark
            }
        };
        self.held.push_back((number, held));
    }

    /// What to tell which stage so that an entry becomes durable.
    pub(super) fn append(
        &mut self,
        at: Timestamp,
        ticket: Option<Ticket>,
        entry: &Entry<LogBytes>,
        mut bytes: Vec<u8>,
    ) -> (StageId, Event) {
        if self.begins_life(entry) {
            self.begin_life();
        }
        let batch = self.next;
        self.next = batch.next();
        let records = entry::encode(entry, self.head, &mut bytes);
        let head =
            BatchHead { shard: self.shard, batch, epoch: Epoch::ZERO, first: self.next_record };
        self.next_record = self.next_record.plus(records);
        let (of, is_mark) = (self.head, matches!(entry, Entry::Mark(_)));
        self.since_mark = if is_mark { 0 } else { self.since_mark + bytes.len() };
        self.in_flight.push_back(Appended { number: batch, ticket, head: of, is_mark, at });
        self.logs.given(self.log, batch);
        self.note(batch, of.life, entry);
        (self.log, Event::LogAppend(LogAppend { head, bytes }))
    }

    /// The mark, if it lies so far back that it is to be appended again.
    pub(super) fn old_mark(&self) -> Option<Entry<LogBytes>> {
        let is_old = self.since_mark >= MARK_AGAIN_BYTES;
        self.mark.as_ref().filter(|_| is_old).map(|(_, mark)| mark.clone())
    }

    /// Whether everything before is void from this mark on.
    fn begins_life(&self, entry: &Entry<LogBytes>) -> bool {
        let was_emptied = matches!(&self.mark, Some((_, Entry::Mark(mark))) if mark.emptied);
        matches!(entry, Entry::Mark(mark) if mark.emptied) && !was_emptied
    }

    /// Everything up to this log batch is durable: the last ticket of it.
    pub(super) fn durable(&mut self, through: BatchNumber) -> Option<Ticket> {
        let mut last = None;
        while let Some(one) = self.in_flight.pop_front_if(|one| one.number <= through) {
            last = one.ticket.or(last);
            let is_later = self.durable_head.life < one.head.life;
            if is_later || self.durable_head.keep_from < one.head.keep_from {
                self.durable_head = one.head;
            }
            if one.is_mark {
                self.durable_mark = one.number;
            }
        }
        last
    }

    /// When the oldest was appended of what is not durable.
    pub(super) fn oldest_on_its_way(&self) -> Option<Timestamp> {
        self.in_flight.front().map(|one| one.at)
    }

    /// Whether nothing waits for the log.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Nothing below this batch is needed any more. It is said in what is appended next.
    pub(super) fn needs_from(&mut self, keep_from: BatchNumber) {
        if keep_from <= self.head.keep_from {
            return;
        }
        self.head.keep_from = keep_from;
        while let Some(first) = self.batches.first_entry().filter(|first| *first.key() < keep_from)
        {
            self.bytes -= first.remove().payload.records.len();
        }
    }

    /// What to tell all logs, when they may let something go.
    pub(super) fn release(&mut self) -> Option<impl Iterator<Item = (StageId, Event)> + '_> {
        let from = self.held.partition_point(|(number, _)| *number < self.released);
        let is_needed = |&&(number, held): &&(BatchNumber, HeldEntry)| match held {
            HeldEntry::Mark => number >= self.durable_mark,
            HeldEntry::Void => false,
            HeldEntry::Batch(batch) => batch >= self.durable_head.keep_from,
        };
        let first = self.held.range(from..).find(is_needed).map(|(number, _)| *number);
        let keep_from = first.unwrap_or(self.next);
        if keep_from <= self.released || keep_from <= BatchNumber::ZERO.next() {
            return None;
        }
        self.released = keep_from;
        let shard = self.shard;
        let logs = self.logs.stages();
        Some(logs.map(move |log| (log, Event::LogRelease { shard, keep_from })))
    }

    /// A log can hand out nothing before this log batch any more: the first batch of the shard that
    /// any log may hand out, when all have spoken.
    pub(super) fn retained(&mut self, log: StageId, from: BatchNumber) -> Option<BatchNumber> {
        let on_its_way = self.in_flight.front().filter(|_| log == self.log);
        self.logs.told(log, from, on_its_way.map(|first| first.number));
        let oldest = self.logs.oldest()?;
        while self.held.pop_front_if(|(number, _)| *number < oldest).is_some() {}
        let batches = self.held.iter().filter_map(|(_, held)| match held {
            HeldEntry::Batch(batch) => Some(*batch),
            HeldEntry::Mark | HeldEntry::Void => None,
        });
        batches.min()
    }

    /// The log asks for what is below this log batch to be appended again. The mark, if it is there,
    /// or if it is to say what is not needed any more; and up to which batch of the shard (which is
    /// not meant), of those that count.
    pub(super) fn copy_forward(
        &self,
        below: BatchNumber,
        counted: BatchNumber,
    ) -> (Option<Entry<LogBytes>>, Option<BatchNumber>) {
        let has_news = self.head != self.durable_head;
        let mark = self.mark.as_ref().filter(|(number, _)| has_news || *number < below);
        let older = self.held.iter().take_while(|(number, _)| *number < below);
        let batches = older.filter_map(|(_, held)| match held {
            // What a table has cut has a number that other batches get.
            HeldEntry::Batch(batch) if *batch >= self.head.keep_from && *batch <= counted => {
                Some(*batch)
            }
            HeldEntry::Batch(_) | HeldEntry::Mark | HeldEntry::Void => None,
        });
        (mark.map(|(_, mark)| mark.clone()), batches.max().map(BatchNumber::next))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use timestone_replication::Mark;

    use super::*;

    const LOG: StageId = StageId::new(4);
    const SHARD: ShardId = ShardId::new(2);

    fn number(raw: u64) -> BatchNumber {
        BatchNumber::new(raw)
    }

    fn batch(raw: u64) -> Entry<LogBytes> {
        let payload = LogBytes { first: RecordNumber::new(raw), records: Arc::from([]) };
        let (epoch, lease) = (Epoch::new(1), Timestamp::ZERO);
        Entry::Batch(Batch { number: number(raw), epoch, lease, payload })
    }

    fn mark() -> Entry<LogBytes> {
        Entry::Mark(Mark::default())
    }

    /// A replica's log, and all that it was given.
    fn log_of(entries: &[Entry<LogBytes>]) -> (ReplicaLog, Vec<LogAppend>) {
        let (mut log, base, found) =
            ReplicaLog::recovered(SHARD, (LOG, &[LOG]), FoundEntries::default());
        assert!(base == BatchNumber::ZERO && found.is_empty());
        let mut appended = Vec::new();
        for (entry, ticket) in entries.iter().zip(1..) {
            let (to, event) = log.append(Timestamp::ZERO, Some(Ticket(ticket)), entry, Vec::new());
            let Event::LogAppend(append) = event else { panic!("{event:?}") };
            assert_eq!(to, LOG);
            appended.push(append);
        }
        (log, appended)
    }

    fn released(log: &mut ReplicaLog) -> Option<u64> {
        let events: Vec<_> = log.release()?.collect();
        let [(LOG, Event::LogRelease { shard: SHARD, keep_from })] = events[..] else {
            panic!("{events:?}")
        };
        Some(keep_from.get())
    }

    #[test]
    fn nothing_is_let_go_before_it_is_durable_that_it_is_not_needed() {
        let (mut log, _) = log_of(&[mark(), batch(1), batch(2), batch(3)]);
        assert_eq!(log.durable(number(3)), Some(Ticket(3)));
        assert_eq!(log.durable(number(4)), Some(Ticket(4)));
        assert_eq!(released(&mut log), None);
        log.needs_from(number(3));
        assert_eq!(log.batches(number(9)).map(|batch| batch.number.get()).collect::<Vec<_>>(), [3]);
        assert_eq!(released(&mut log), None, "a crash now would find no word of it");
        log.append(Timestamp::ZERO, None, &mark(), Vec::new());
        assert_eq!(released(&mut log), None);
        assert_eq!(log.durable(number(5)), None, "nobody waits for it");
        assert_eq!(released(&mut log), Some(4));
    }

    #[test]
    fn the_last_mark_is_needed_and_is_copied_forward() {
        let (mut log, _) = log_of(&[mark(), batch(1), batch(2)]);
        log.needs_from(number(2));
        log.append(Timestamp::ZERO, None, &batch(3), Vec::new());
        log.durable(number(4));
        assert_eq!(released(&mut log), None, "the mark is in the first one");
        let (copied, below) = log.copy_forward(number(3), number(3));
        assert_eq!((copied.clone(), below), (Some(mark()), None));
        log.append(Timestamp::ZERO, None, &copied.unwrap(), Vec::new());
        log.durable(number(5));
        assert_eq!(released(&mut log), Some(3));
        assert_eq!(log.copy_forward(number(4), number(3)), (None, Some(number(3))));
        assert_eq!(log.copy_forward(number(4), number(1)), (None, None), "it may be cut");
    }

    #[test]
    fn a_mark_that_lies_far_back_is_appended_again_and_holds_nothing_up() {
        let (mut log, _) = log_of(&[mark(), batch(1), batch(2)]);
        assert_eq!(log.old_mark(), None);
        let Entry::Batch(mut large) = batch(3) else { unreachable!() };
        large.payload.records = vec![0; MARK_AGAIN_BYTES].into();
        log.needs_from(number(3));
        log.append(Timestamp::ZERO, None, &Entry::Batch(large), Vec::new());
        log.durable(number(4));
        assert_eq!(released(&mut log), None, "the mark is in the first one");
        let again = log.old_mark().expect("it is far back");
        assert_eq!(again, mark());
        log.append(Timestamp::ZERO, None, &again, Vec::new());
        assert_eq!(log.old_mark(), None);
        log.durable(number(5));
        assert_eq!(released(&mut log), Some(4), "what is needed yet");
    }

    #[test]
    fn what_logs_may_hand_out_is_known_by_batches_of_the_shard() {
        let (mut log, _) = log_of(&[mark(), batch(2), batch(1), batch(3)]);
        log.durable(number(4));
        assert_eq!(log.retained(LOG, number(1)), Some(number(1)));
        assert_eq!(log.retained(LOG, number(4)), Some(number(3)));
        assert_eq!(log.retained(LOG, BatchNumber::MAX), None);
    }

    #[test]
    fn a_log_that_held_nothing_holds_what_it_was_given_since() {
        let other = StageId::new(5);
        let (mut log, ..) =
            ReplicaLog::recovered(SHARD, (LOG, &[other, LOG]), FoundEntries::default());
        assert_eq!(log.retained(other, BatchNumber::MAX), None);
        assert_eq!(log.retained(LOG, BatchNumber::MAX), None);
        log.append(Timestamp::ZERO, Some(Ticket(1)), &mark(), Vec::new());
        log.append(Timestamp::ZERO, Some(Ticket(2)), &batch(1), Vec::new());
        // Said before it was given them.
        assert_eq!(log.retained(LOG, BatchNumber::MAX), Some(number(1)));
        log.durable(number(2));
        assert_eq!(log.retained(other, BatchNumber::MAX), Some(number(1)));
        assert_eq!(released(&mut log), None, "the mark is needed");
        assert_eq!(log.retained(LOG, number(2)), Some(number(1)));
    }

    #[test]
    fn a_restart_finds_what_was_appended_in_order_and_from_where_on() {
        let (mut log, mut appended) = log_of(&[mark(), batch(1), batch(2), batch(2)]);
        log.needs_from(number(2));
        let (_, event) = log.append(Timestamp::ZERO, None, &batch(3), Vec::new());
        let Event::LogAppend(last) = event else { panic!("{event:?}") };
        appended.push(last);
        let mut found = FoundEntries::default();
        // One log after the other: the older one comes last.
        for append in appended[2..].iter().chain(&appended[..2]) {
            for (record, count) in timestone_wal::BatchRecords::new(&append.bytes).zip(0..) {
                found.record(append.head.batch, append.head.first.plus(count), record.unwrap());
            }
        }
        let (log, base, entries) = ReplicaLog::recovered(SHARD, (LOG, &[LOG]), found);
        assert_eq!(entries, [mark(), batch(1), batch(2), batch(2), batch(3)]);
        assert_eq!((base, log.head.keep_from), (number(1), number(2)));
        assert_eq!((log.next, log.next_record), (number(6), RecordNumber::FIRST.plus(5)));
    }

    fn emptied() -> Entry<LogBytes> {
        Entry::Mark(Mark { emptied: true, ..Mark::default() })
    }

    /// What a restart finds.
    fn found(appended: &[LogAppend]) -> FoundEntries {
        let mut found = FoundEntries::default();
        for append in appended {
            for (record, count) in timestone_wal::BatchRecords::new(&append.bytes).zip(0..) {
                found.record(append.head.batch, append.head.first.plus(count), record.unwrap());
            }
        }
        found.close();
        found
    }

    fn append(log: &mut ReplicaLog, entry: &Entry<LogBytes>, to: &mut Vec<LogAppend>) {
        let (_, event) = log.append(Timestamp::ZERO, None, entry, Vec::new());
        let Event::LogAppend(append) = event else { panic!("{event:?}") };
        to.push(append);
    }

    #[test]
    fn what_was_given_up_is_let_go_when_the_log_says_so() {
        let (mut log, mut appended) = log_of(&[mark(), batch(1), batch(2)]);
        log.durable(number(3));
        append(&mut log, &emptied(), &mut appended);
        assert_eq!(released(&mut log), None, "a crash now finds what it had");
        log.durable(number(4));
        log.give_up();
        assert_eq!(released(&mut log), Some(4), "the mark alone is needed");
        let restart = found(&appended);
        assert!(restart.is_emptied());
        let (log, base, entries) = ReplicaLog::recovered(SHARD, (LOG, &[LOG]), restart);
        assert_eq!((base, entries), (BatchNumber::ZERO, vec![mark(), emptied()]));
        assert_eq!(log.batches(number(9)).count(), 0);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_restart_that_takes_what_was_given_up_is_noticed() {
        use timestone_types::planted::{Bug, with};
        let left = || {
            let (_, mut appended) = log_of(&[mark(), batch(1)]);
            let mut log = ReplicaLog::recovered(SHARD, (LOG, &[LOG]), found(&appended)).0;
            append(&mut log, &emptied(), &mut appended);
            ReplicaLog::recovered(SHARD, (LOG, &[LOG]), found(&appended)).2.len()
        };
        assert_eq!((left(), with(Bug::TakesVoidEntries, left)), (2, 3));
    }

    #[test]
    fn a_checkpoint_that_was_not_whole_leaves_nothing() {
        let (mut log, mut appended) = log_of(&[mark(), batch(1)]);
        append(&mut log, &emptied(), &mut appended);
        log.give_up();
        // The first one brought batches, and was needed from the second of them on.
        append(&mut log, &batch(8), &mut appended);
        log.needs_from(number(9));
        append(&mut log, &batch(9), &mut appended);
        log.give_up();
        append(&mut log, &batch(7), &mut appended);
        append(&mut log, &batch(8), &mut appended);
        log.needs_from(number(7));
        append(&mut log, &mark(), &mut appended);
        let restart = found(&appended);
        assert!(!restart.is_emptied());
        let (log, base, entries) = ReplicaLog::recovered(SHARD, (LOG, &[LOG]), restart);
        let of_life = [mark(), emptied(), batch(7), batch(8), mark()];
        assert_eq!((base, &entries[..]), (number(6), &of_life[..]));
        assert_eq!(
            log.batches(number(9)).map(|batch| batch.number.get()).collect::<Vec<_>>(),
            [7, 8]
        );
    }

    #[test]
    fn a_replica_that_has_lost_something_has_nothing() {
        let (_, appended) = log_of(&[mark(), batch(1)]);
        let mut restart = found(&appended);
        let void = Void::found(Epoch::new(4), true);
        restart.is_void(void);
        assert!(restart.is_emptied());
        assert_eq!(restart.void(), Some(void));
        let (_, base, entries) = ReplicaLog::recovered(SHARD, (LOG, &[LOG]), restart);
        assert_eq!((base, entries), (BatchNumber::ZERO, vec![mark()]));
    }

    #[test]
    fn a_log_batch_that_no_replica_wrote_is_told() {
        let mut found = FoundEntries::default();
        let mut bytes = Vec::new();
        timestone_wal::LogRecord::KeepFrom { batch: number(3) }.encode(&mut bytes);
        found.record(number(7), RecordNumber::FIRST, &bytes[4..]);
        found.close();
        assert_eq!(found.stranger(), Some(number(7)));
    }
}

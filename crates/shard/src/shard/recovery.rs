//! From a data directory to a shard that can serve: the store is recovered, then the logs are
//! replayed into it.
//!
//! ```text
//!   Mftl::open ─► store ─┐
//!   every log folder ────┴─► Replay::record … ─► finish ─► Shard (RecoveryDone when it starts)
//! ```
//! Records come in any order between logs. What is decided goes straight into the store (a version
//! that is there already changes nothing), so that the memory needed does not grow with the log;
//! what is not decided stays promised, with its bytes. Source: DTranx §4.4, MILANA §4.5.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use timestone_clock::Clock;
use timestone_cluster::MapVersion;
use timestone_seda::{Memory, StageId};
use timestone_store::{LatestLookup, ReadToken, Store, StoreError, StoreEvent};
use timestone_txn::limits::BOUND_AHEAD;
use timestone_txn::participant::{
    self, Input, LatestInStore, Participant, Recovered, WriteItem, WriteKind,
};
use timestone_types::limits::{MAX_CLOCK_LEAD, WATERMARK_LAG};
use timestone_types::{
    AbortKind, ClientId, Epoch, KeyRef, PreviousFound, ShardId, Timestamp, TxnId, TxnOutcome,
    Version,
};
use timestone_wal::{BatchNumber, LogRecord, RecordNumber};
use timestone_wire::{PrepareBody, WriteKind as WireWriteKind};

use super::{Around, LogPlace, Peers, Shard};
use crate::admission::Admission;
use crate::closing::Closing;
use crate::closing::hand_over::{HandOver, HandOverStep};
use crate::driver::Driver;
use crate::error::ShardError;
use crate::figures::ShardFigures;
use crate::gauges::ShardGauges;
use crate::log_records::LogRecords;
use crate::log_records::journal::Journal;
use crate::log_records::order::{RecordOrder, RecordPlace};
use crate::peers::Messages;
use crate::reads::items::Items;
use crate::reads::lookups::{Lookups, in_store};
use crate::requests::Requests;
use crate::scrub::ScrubAskers;
use crate::single::SingleWrites;
use crate::write_sets::WriteSets;
use crate::write_sets::payload::{Payload, Payloads};

/// How long to wait for the device before looking again.
const DEVICE_WAIT: Duration = Duration::from_millis(10);
/// How often in a row to look in vain before a write is left to the running stage.
const MAX_WAITS: u32 = 100;

/// What a run is told of earlier ones, beside what the logs hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Past {
    /// What they served, as far as the logs may not tell it.
    pub served: Served,
    /// How long nobody was served, if the sessions that were live are to be waited for: their last
    /// server has not been gone for long, the logs tell of them, and it did not begin again and
    /// again before they can have come back.
    pub outage: Option<Duration>,
}

/// A shard whose logs are being replayed.
pub struct Replay {
    shard: ShardId,
    store: Box<dyn Store + Send>,
    payloads: Payloads,
    promised: HashMap<TxnId, Promised, FixedState>,
    decided: HashMap<TxnId, Decided, FixedState>,
    bound: Timestamp,
    watermark: Timestamp,
    /// The store's own one, as its last checkpoint has it.
    store_watermark: Timestamp,
    lowest: Option<BatchNumber>,
    order: RecordOrder,
    /// The lowest timestamp of all writes in the logs.
    oldest_write: Timestamp,
    keep_from: BatchNumber,
    applied: u64,
    waits_in_vain: u32,
    events: Vec<StoreEvent>,
}

/// A promise as the log has it.
struct Promised {
    /// The highest timestamp that was promised.
    commit: Timestamp,
    /// The last batch that says so.
    batch: BatchNumber,
}

/// What is known of a decided transaction.
struct Decided {
    begin: Timestamp,
    outcome: TxnOutcome,
    abort: Option<AbortKind>,
    /// What a single-key write found, and where its condition met it if that did not hold.
    found: PreviousFound,
    met: Timestamp,
    /// Of a commit over several shards: all of them. One may still wait for the decision, and its
    /// client is gone.
    participants: Vec<ShardId>,
}

/// What the shard is told beside its state.
pub struct Recovering {
    /// The epoch that the master gives it.
    pub epoch: Epoch,
    /// The version of the shard map in force.
    pub map_version: MapVersion,
    /// Where its records go.
    pub log: LogPlace,
    /// Every log stage: earlier runs may have left batches of this shard with any of them.
    pub logs: Vec<StageId>,
    /// How it reaches other shards.
    pub peers: Peers,
    /// What it publishes.
    pub gauges: Arc<ShardGauges>,
    /// How far the clock is held back, and its error bound.
    pub clock: Arc<dyn Clock>,
    /// What the logs may not tell of earlier runs.
    pub past: Past,
    /// Clients that are gone with earlier runs.
    pub left: Arc<BTreeSet<ClientId>>,
    /// The present, by the clock that the stage will be given.
    pub now: Timestamp,
    /// Bounds of its participant.
    pub participant: participant::Config,
    /// The process's memory for its connections.
    pub memory: Arc<Memory>,
}

impl Recovering {
    /// A shard that has no peers, and no earlier runs to be told of, at `now`. For tests and tools.
    #[must_use]
    pub fn alone(shard: ShardId, log: LogPlace, now: Timestamp) -> Self {
        Self {
            epoch: Epoch::default(),
            map_version: MapVersion::default(),
            log,
            logs: Vec::new(),
            peers: Peers::default(),
            gauges: Arc::new(ShardGauges::new(shard)),
            clock: Arc::new(timestone_clock::ManualClock::default()),
            past: Past::default(),
            left: Arc::default(),
            now,
            participant: participant::Config::default(),
            memory: Arc::default(),
        }
    }
}

/// A bound on what earlier runs did that no log tells of: they had none, or it is lost. Zero when
/// the logs tell everything.
///
/// Two things follow from it, and both need it. The low-water timestamp of the shard begins at it, so
/// that nothing is written below what was read. And the watermark begins [`MAX_CLOCK_LEAD`] below
/// it, at the timestamp that it was made of: collection went by a watermark of which the
/// checkpoints tell an early one only, so that a snapshot below this may miss versions, and would
/// be answered as if they had never been.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    below: Timestamp,
}

impl Served {
    /// What was saved of it: nanoseconds, zero for none.
    pub const fn below(below: Timestamp) -> Self {
        Self { below }
    }

    /// By a clock that shows `now`, and a directory in which nothing is younger than `youngest`.
    /// The watermark trails the clock, and should the clock have been set back, every version that
    /// collection may have spared a younger one lies below the youngest.
    pub fn by(now: Timestamp, youngest: Timestamp) -> Self {
        Self { below: now.max(youngest).saturating_add(MAX_CLOCK_LEAD) }
    }

    /// As it is saved.
    pub const fn as_timestamp(self) -> Timestamp {
        self.below
    }

    /// The later one of both.
    pub fn max(self, other: Self) -> Self {
        Self { below: self.below.max(other.below) }
    }

    /// At or above the watermark that was in force.
    fn watermark(self) -> Timestamp {
        if timestone_types::is_planted!(StaleWatermark) {
            return Timestamp::ZERO;
        }
        self.below.saturating_sub(MAX_CLOCK_LEAD)
    }
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
            decided: HashMap::default(),
            bound: Timestamp::ZERO,
            watermark,
            store_watermark: watermark,
            lowest: None,
            order: RecordOrder::default(),
            oldest_write: Timestamp::MAX,
            keep_from: BatchNumber::ZERO,
            applied: 0,
            waits_in_vain: 0,
            events: Vec::new(),
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
                self.bound = self.bound.max(commit);
                self.oldest_write = self.oldest_write.min(commit);
                if single {
                    let (outcome, met) = (TxnOutcome::Committed(commit), Timestamp::ZERO);
                    let decided = Decided {
                        begin,
                        outcome,
                        abort: None,
                        found,
                        met,
                        participants: Vec::new(),
                    };
                    self.decided.insert(txn, decided);
                }
                match self.decided.get(&txn).map(|decided| decided.outcome) {
                    Some(TxnOutcome::Committed(at)) => {
                        if !self.apply(now, txn, at, body)? {
                            let participants: Vec<ShardId> = participants.iter().collect();
                            self.leave(batch, txn, begin, at, single, &participants, body);
                        }
                    }
                    Some(TxnOutcome::Aborted) => {}
                    None => {
                        let participants: Vec<ShardId> = participants.iter().collect();
                        let payload = self.payloads.keep(txn, begin, single, &participants, body);
                        payload.commit = payload.commit.max(commit);
                        payload.batch =
                            Some(payload.batch.map_or(batch, |earlier| earlier.min(batch)));
                        let promised =
                            self.promised.entry(txn).or_insert(Promised { commit, batch });
                        promised.commit = promised.commit.max(commit);
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
                self.decide(now, txn, Decided { begin, outcome, abort, found, met, participants })?;
            }
            LogRecord::ReadBound { bound, watermark } => {
                self.bound = self.bound.max(bound);
                self.watermark = self.watermark.max(watermark);
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
        if let TxnOutcome::Committed(at) = decided.outcome {
            self.bound = self.bound.max(at);
            if self.promised.remove(&txn).is_some()
                && let Some(payload) = self.payloads.take(txn)
            {
                let Payload { body, begin, participants, batch, .. } = payload;
                let batch = batch.unwrap_or(self.lowest.unwrap_or_default());
                if !self.apply(now, txn, at, &body)? {
                    self.leave(batch, txn, begin, at, false, &participants, &body);
                    self.decided.insert(txn, decided);
                    return Ok(());
                }
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
        body: &[u8],
    ) {
        let payload = self.payloads.keep(txn, begin, single, participants, body);
        (payload.commit, payload.batch) = (commit, Some(batch));
        self.promised.insert(txn, Promised { commit, batch });
        self.assert_sound();
    }

    /// Puts a transaction's writes into the store; false when it has no room for all of them.
    fn apply(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        commit: Timestamp,
        body: &[u8],
    ) -> Result<bool, ShardError> {
        assert!(commit <= self.bound, "what is applied lies below what the logs tell of");
        let body = PrepareBody::parse(body).map_err(ShardError::part)?;
        let version = Version::new(commit, txn.client);
        let seed = self.store.seed();
        for write in body.writes() {
            let key = KeyRef::new(seed, write.keyspace, write.key);
            let done = self.with_room(now, |store| match write.kind {
                WireWriteKind::Put => store.put(key, version, write.value, write.expires_at),
                WireWriteKind::Delete => store.delete(key, version),
                WireWriteKind::Fence => store.fence(write.keyspace, version),
            })?;
            if !done {
                return Ok(false);
            }
        }
        self.applied += 1;
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
                Err(StoreError::DeviceFull { .. }) => return Ok(false),
                Err(StoreError::Busy) if self.waits_in_vain >= MAX_WAITS => return Ok(false),
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
            let is_needed = promised.batch >= self.keep_from || decided.contains_key(txn);
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

    /// The log was read to its end: the stage, which serves once it has started.
    pub fn finish(mut self, with: Recovering) -> Shard {
        self.forget_ended_promises();
        let Self {
            shard,
            mut store,
            payloads,
            promised,
            decided,
            bound,
            watermark,
            lowest,
            order,
            oldest_write,
            ..
        } = self;
        // A log that should be there and says nothing tells of nothing.
        let is_lost = bound == Timestamp::ZERO && store.youngest() > Timestamp::ZERO;
        let served = if is_lost {
            Served::by(with.now, store.youngest()).max(with.past.served)
        } else {
            with.past.served
        };
        // What the manifest tells of earlier runs it tells the next one, too. Nothing tells that of
        // the present before it is in the log.
        let durable = bound.max(with.past.served.as_timestamp());
        let bound = durable.max(with.now).max(served.as_timestamp());
        let in_logs = watermark;
        // Whatever an earlier run wrote or promised lies at or below it.
        store.recovered(bound);
        let watermark = watermark.max(served.watermark());
        let seed = store.seed();
        let mut participant = Participant::new(shard, with.participant);
        let mut outputs = Vec::new();
        let mut clients: BTreeSet<ClientId> =
            promised.keys().chain(decided.keys()).map(|txn| txn.client).collect();
        clients.retain(|client| with.left.contains(client));
        let mut tell = |record: Recovered<'_>| {
            participant.step(with.now, Input::Recovered(record), &mut outputs)
        };
        tell(Recovered::ReadBound { bound: durable, watermark });
        tell(Recovered::Began(bound));
        if watermark > in_logs {
            tell(Recovered::CertainWatermark(in_logs));
        }
        with.past.outage.into_iter().for_each(|lasted| tell(Recovered::Outage(lasted)));
        clients.into_iter().for_each(|client| tell(Recovered::ClientLeft(client)));
        let in_order: BTreeSet<TxnId> = promised.keys().copied().collect();
        for txn in in_order {
            let (Some(payload), Some(&Promised { commit, .. })) =
                (payloads.get(txn), promised.get(&txn))
            else {
                continue;
            };
            let writes = write_items(&mut *store, seed, (with.now, bound), &payload.body);
            let (begin, single, participants) =
                (payload.begin, payload.single, &payload.participants[..]);
            let found = decided.get(&txn).map_or(PreviousFound::Unasked, |decided| decided.found);
            tell(Recovered::Prepare {
                txn,
                begin,
                commit,
                single,
                found,
                participants,
                writes: &writes,
            });
        }
        let in_order: BTreeSet<TxnId> = decided.keys().copied().collect();
        for txn in in_order {
            let Decided { begin, outcome, abort, found, met, ref participants } = decided[&txn];
            tell(Recovered::Decision { txn, begin, outcome, abort, found, met, participants });
        }
        let (batch, record) = match order.last() {
            Some(last) => (last.batch.next(), last.number.plus(1)),
            None => (BatchNumber::ZERO.next(), RecordNumber::FIRST),
        };
        let step = match lowest {
            Some(_) if with.log == LogPlace::Nowhere => HandOverStep::Deciding(bound),
            _ => HandOverStep::Over,
        };
        #[cfg(feature = "planted-bugs")]
        let step = if timestone_types::is_planted!(NoHandOver) { HandOverStep::Over } else { step };
        let undecided = promised.keys().copied().filter(|txn| !decided.contains_key(txn));
        let undecided = undecided.filter(|_| step != HandOverStep::Over);
        let hand_over = HandOver::new(step, undecided, batch);
        let mut journal = Journal::new(batch, record);
        if let Some(lowest) = lowest {
            let latest_begin = bound;
            #[cfg(feature = "planted-bugs")]
            let latest_begin =
                if timestone_types::is_planted!(AgeByTheClock) { with.now } else { latest_begin };
            journal.recovered(lowest, latest_begin, in_logs, oldest_write);
        }
        let who = (shard, with.epoch, with.map_version);
        let (memory, clock) = (Arc::clone(&with.memory), Arc::clone(&with.clock));
        Shard {
            shard,
            seed,
            store,
            driver: Driver::new(participant, outputs, with.clock),
            requests: Requests::new(who, memory, clock, Arc::clone(&with.gauges)),
            lookups: Lookups::default(),
            items: Items::new(seed),
            single: SingleWrites::new(shard, seed),
            admission: Admission::new(with.memory),
            write_sets: WriteSets::new(payloads),
            log_records: LogRecords::new((shard, with.epoch), with.log, journal, &with.logs),
            hand_over,
            closing: Closing::default(),
            figures: ShardFigures::new(with.gauges),
            around: Around {
                messages: Messages::new(shard, with.map_version, with.peers),
                scrub_askers: ScrubAskers::default(),
                store_events: Vec::new(),
            },
        }
    }
}

fn write_items(
    store: &mut (dyn Store + Send),
    seed: timestone_types::HashSeed,
    (now, bound): (Timestamp, Timestamp),
    body: &[u8],
) -> Vec<WriteItem> {
    let count = PrepareBody::write_count(body) as usize;
    let Ok(body) = PrepareBody::parse(body) else { return Vec::new() };
    let items = body.writes().map(|write| {
        let key = KeyRef::new(seed, write.keyspace, write.key);
        let kind = match write.kind {
            WireWriteKind::Put => WriteKind::Put,
            WireWriteKind::Delete => WriteKind::Delete,
            WireWriteKind::Fence => WriteKind::Fence,
        };
        let latest = latest_now(store, key, now).unwrap_or_else(|error| {
            tracing::error!(%error, "the youngest version of a key that was promised cannot be \
                looked up: readers of it are refused for a moment");
            // As young as anything can be: whoever read an older one, or nothing, is refused.
            let version = Version::new(bound, ClientId::new(0));
            LatestInStore { version, absent: false }
        });
        WriteItem { keyspace: write.keyspace, key: key.hash, kind, latest }
    });
    let items: Vec<WriteItem> = items.collect();
    assert_eq!(items.len(), count, "a body says how many writes it has");
    items
}

/// Looks up the youngest version of a key, waiting for the device. Nobody else uses the store yet.
fn latest_now(
    store: &mut (dyn Store + Send),
    key: KeyRef<'_>,
    now: Timestamp,
) -> Result<LatestInStore, StoreError> {
    const ASKED: ReadToken = ReadToken(u64::MAX);
    if let LatestLookup::Known(latest) = store.latest(key, ASKED) {
        return Ok(in_store(latest));
    }
    let mut events = Vec::new();
    loop {
        store.pump(now, &mut events);
        for event in events.drain(..) {
            match event {
                StoreEvent::LatestDone { token: ASKED, found } => return found.map(in_store),
                StoreEvent::DeviceFailed(error) => return Err(error),
                other => assert!(
                    !matches!(other, StoreEvent::ReadDone { .. } | StoreEvent::ScanDone { .. }),
                    "nobody reads before the shard serves"
                ),
            }
        }
        store.wait(DEVICE_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use timestone_clock::ManualClock;
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_seda::manual::ManualDriver;
    use timestone_seda::{Context, FrameBatch, ReplyAddress, Stage};
    use timestone_store::{Mftl, MftlConfig};
    use timestone_types::{Expiry, HashSeed, KeyspaceId, Sequence};
    use timestone_wal::{DecisionOrigin, Participants};
    use timestone_wire::{
        Envelope, Frame, Frames, Get, Kind, Message, Prepare, PrepareHead, PrepareWriter, ReadAt,
        RequestId, Value, WriteEntry,
    };

    use super::super::own_reply_address;
    use std::collections::VecDeque;

    use super::*;
    use crate::testing::{Event, TestStage};

    const SHARD: ShardId = ShardId::new(0);
    const STAGE: StageId = StageId::new(0);
    const ASKER: StageId = StageId::new(7);
    const CLIENT: ClientId = ClientId::new(3);
    /// The length in front of a record of a batch.
    const PREFIX_BYTES: usize = 4;
    const VALUE: [u8; 900] = [5; 900];

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn txn(number: u64) -> TxnId {
        TxnId::new(CLIENT, Sequence::new(number))
    }

    /// The records of a transaction that writes one key: one record when the shard is alone, else a
    /// promise and its decision.
    fn records(
        number: u64,
        key: &[u8],
        value: Option<&[u8]>,
        commit: Timestamp,
        single: bool,
    ) -> Vec<Vec<u8>> {
        let (txn, begin, participants) = (txn(number), at(1), [SHARD]);
        let head =
            PrepareHead { txn, begin, commit, single, wait: false, participants: &participants };
        let mut frame = Vec::new();
        let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut frame);
        let kind = if value.is_some() { WireWriteKind::Put } else { WireWriteKind::Delete };
        let value = value.unwrap_or_default();
        let keyspace = KeyspaceId::DEFAULT;
        writer.write(&WriteEntry { keyspace, kind, expires_at: Expiry::NEVER, key, value });
        writer.finish();
        let prepare = Prepare::decode(&Frame::parse(&frame).unwrap()).unwrap();
        let participants = Participants::new(&participants);
        let body = prepare.body.bytes();
        let (found, met) = (PreviousFound::Unasked, Timestamp::ZERO);
        let mut records =
            vec![LogRecord::Prepare { txn, begin, commit, single, found, participants, body }];
        if !single {
            let (origin, abort) = (DecisionOrigin::Client, None);
            records.push(LogRecord::Decision {
                txn,
                begin,
                commit,
                origin,
                abort,
                found,
                met,
                participants,
            });
        }
        let bytes = records.iter().map(|record| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes.split_off(PREFIX_BYTES)
        });
        bytes.collect()
    }

    fn feed(replay: &mut Replay, records: &[Vec<u8>]) {
        feed_in(replay, 1, records);
    }

    fn feed_in(replay: &mut Replay, batch: u64, records: &[Vec<u8>]) {
        let (batch, epoch, number) =
            (BatchNumber::new(batch), Epoch::default(), RecordNumber::FIRST);
        for record in records {
            replay.record(at(1000), RecordPlace { batch, epoch, number }, record).unwrap();
        }
    }

    /// The answers to a latest read of each key, by number; `None` for a refusal.
    fn ask(
        driver: &mut ManualDriver<Event>,
        keys: core::ops::Range<u64>,
    ) -> Vec<(u64, Option<(bool, bool)>)> {
        let mut bytes = Vec::new();
        for n in keys {
            let envelope =
                Envelope { request: RequestId::new(n), shard: SHARD, ..Envelope::default() };
            let (keyspace, key) = (KeyspaceId::DEFAULT, n.to_be_bytes());
            Get { keyspace, at: ReadAt::Latest(at(2000)), client: CLIENT, wait: false, key: &key }
                .encode(&envelope, &mut bytes);
        }
        let reply_to: ReplyAddress = own_reply_address(ASKER);
        driver.send(STAGE, Event::FrameBatch(FrameBatch::new(reply_to, bytes))).unwrap();
        driver.turn();
        let mut answers = Vec::new();
        while let Some((to, event)) = driver.take_sent() {
            let Event::FrameBatch(frame_batch) = event else { panic!("{event:?}") };
            assert_eq!(to, ASKER);
            for frame in Frames::new(timestone_wire::without_clock(&frame_batch.bytes)) {
                let frame = frame.unwrap();
                let value = (frame.kind() == Kind::Value).then(|| Value::decode(&frame).unwrap());
                assert!(value.is_none_or(|value| !value.present || value.value == VALUE));
                let answer = value.map(|value| (value.present, value.prepared_before));
                answers.push((frame.envelope().request.get(), answer));
            }
        }
        answers
    }

    /// How many of two reads below the beginning of a run are answered, of a snapshot and of what
    /// is latest, before and after its first bound is durable.
    fn read_at_the_beginning(records: &[Vec<u8>], log: LogPlace, served: Served) -> [usize; 2] {
        let (store, _) = Mftl::open(
            Box::new(MemoryMedia::new(MemoryConfig::default()).open()),
            MftlConfig::default(),
        )
        .unwrap();
        let mut replay = Replay::new(SHARD, Box::new(store));
        feed(&mut replay, records);
        let stage = replay.finish(Recovering {
            clock: Arc::new(ManualClock::new(at(1000))),
            past: Past { served, ..Past::default() },
            ..Recovering::alone(SHARD, log, at(1000))
        });
        let mut driver = ManualDriver::new(
            vec![Box::new(TestStage(stage)) as Box<dyn Stage<Event>>],
            at(1000),
            1000,
        );
        let mut bytes = Vec::new();
        for (n, at) in [(1, ReadAt::Snapshot(at(900))), (2, ReadAt::Latest(at(900)))] {
            let envelope =
                Envelope { request: RequestId::new(n), shard: SHARD, ..Envelope::default() };
            Get { keyspace: KeyspaceId::DEFAULT, at, client: CLIENT, wait: false, key: b"key" }
                .encode(&envelope, &mut bytes);
        }
        driver
            .send(STAGE, Event::FrameBatch(FrameBatch::new(own_reply_address(ASKER), bytes)))
            .unwrap();
        let mut bound = None;
        [(); 2].map(|()| {
            let mut answers = 0;
            for _ in 0..10 {
                driver.turn();
                while let Some((to, event)) = driver.take_sent() {
                    match event {
                        Event::LogAppend(append) => bound = Some(append.head.batch),
                        Event::FrameBatch(frame_batch) if to == ASKER => {
                            let frames =
                                Frames::new(timestone_wire::without_clock(&frame_batch.bytes));
                            answers += frames
                                .filter(|frame| frame.as_ref().unwrap().kind() == Kind::Value)
                                .count();
                        }
                        _ => {}
                    }
                }
            }
            if let Some(batch) = bound.take() {
                driver.send(STAGE, Event::LogDurable { batch }).unwrap();
            }
            answers
        })
    }

    /// The bound of an earlier run, durable in the log.
    fn bound_record(bound: Timestamp) -> Vec<Vec<u8>> {
        let mut record = Vec::new();
        LogRecord::ReadBound { bound, watermark: Timestamp::ZERO }.encode(&mut record);
        vec![record.split_off(PREFIX_BYTES)]
    }

    const LOGGED: LogPlace = LogPlace::Stage(StageId::new(5));

    #[test]
    fn nothing_is_read_at_the_beginning_of_a_run_that_the_next_one_would_not_know_of() {
        let (nothing, none) = (Served::default(), Vec::new());
        assert_eq!(
            read_at_the_beginning(&none, LOGGED, nothing),
            [0, 2],
            "the first start of a directory"
        );
        assert_eq!(read_at_the_beginning(&bound_record(at(900)), LOGGED, nothing), [0, 2]);
        assert_eq!(
            read_at_the_beginning(&bound_record(at(901)), LOGGED, nothing),
            [2, 0],
            "the log tells of it"
        );
        // The last run had no log: the manifest tells of it.
        assert_eq!(read_at_the_beginning(&none, LOGGED, Served::below(at(950))), [2, 0]);
        for records in [none, bound_record(at(900))] {
            assert_eq!(
                read_at_the_beginning(&records, LogPlace::Nowhere, nothing),
                [2, 0],
                "there is no log to wait for"
            );
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn reads_that_the_next_run_would_not_know_of_are_noticed() {
        let answered = timestone_types::planted::with(
            timestone_types::planted::Bug::ReadBeforeFirstBound,
            || read_at_the_beginning(&bound_record(at(900)), LOGGED, Served::default()),
        );
        assert_eq!(answered, [2, 0], "the planted bug is found");
    }

    /// A stage that tells the test how much is not applied yet.
    struct Watched(TestStage, Arc<std::sync::atomic::AtomicUsize>);

    impl Stage<Event> for Watched {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn start(&mut self, ctx: &mut Context<'_, Event>) {
            self.0.start(ctx);
        }

        fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
            self.0.handle(ctx, events);
        }

        fn turn(&mut self, ctx: &mut Context<'_, Event>) {
            self.0.turn(ctx);
            self.1.store(self.0.0.write_sets.unapplied(), std::sync::atomic::Ordering::Relaxed);
        }

        fn next_deadline(&self) -> Option<Timestamp> {
            self.0.next_deadline()
        }
    }

    /// A directory without a log whose clock was set back: the stores say how far time had come.
    #[test]
    fn time_and_watermark_go_on_from_the_youngest_version_where_no_log_tells_of_them() {
        let second = |n: u64| at(n * 1_000_000_000);
        let (store, _) = Mftl::open(
            Box::new(MemoryMedia::new(MemoryConfig::default()).open()),
            MftlConfig::default(),
        )
        .unwrap();
        let mut replay = Replay::new(SHARD, Box::new(store));
        assert_eq!((replay.youngest(), replay.lived_until()), (Timestamp::ZERO, Timestamp::ZERO));
        let key = KeyRef::new(replay.store.seed(), KeyspaceId::DEFAULT, b"key");
        replay.store.put(key, Version::new(second(100), CLIENT), &VALUE, Expiry::NEVER).unwrap();
        replay.store.fence(KeyspaceId::new(5), Version::new(second(101), CLIENT)).unwrap();
        assert_eq!(replay.youngest(), second(101));
        assert_eq!(
            replay.lived_until(),
            second(101).saturating_sub(MAX_CLOCK_LEAD),
            "no later than the clock was"
        );
        for (now, watermark) in [(second(50), second(101)), (second(150), second(150))] {
            let served = Served::by(now, replay.youngest());
            assert_eq!(served.watermark(), watermark);
            assert_eq!(Served::below(served.as_timestamp()), served);
        }
        assert_eq!(Served::default().watermark(), Timestamp::ZERO);
    }

    /// Of two logs, one was emptied further than the other: it took the decision of a promise with
    /// it that the other one still holds.
    #[test]
    fn a_promise_that_outlived_its_decision_is_forgotten_wherever_the_word_of_it_stands() {
        for word_comes_first in [true, false] {
            let (store, _) = Mftl::open(
                Box::new(MemoryMedia::new(MemoryConfig::default()).open()),
                MftlConfig::default(),
            )
            .unwrap();
            let mut replay = Replay::new(SHARD, Box::new(store));
            let mut word = Vec::new();
            LogRecord::KeepFrom { batch: BatchNumber::new(4) }.encode(&mut word);
            let word = [word.split_off(PREFIX_BYTES)];
            if word_comes_first {
                feed_in(&mut replay, 6, &word);
            }
            let [outlived, carried, young, decided] =
                [1, 2, 3, 4].map(|n| records(n, &n.to_be_bytes(), Some(&VALUE), at(10), false));
            feed_in(&mut replay, 1, &outlived[..1]);
            feed_in(&mut replay, 5, &carried[..1]);
            feed_in(&mut replay, 1, &carried[..1]);
            feed_in(&mut replay, 4, &young[..1]);
            feed_in(&mut replay, 1, &decided);
            if !word_comes_first {
                feed_in(&mut replay, 6, &word);
            }
            replay.forget_ended_promises();
            let promised: BTreeSet<TxnId> = replay.promised.keys().copied().collect();
            assert_eq!(promised, BTreeSet::from([txn(2), txn(3)]));
            assert_eq!((replay.payloads.len(), replay.applied()), (2, 1));
        }
    }

    #[test]
    fn decided_writes_that_find_no_room_are_left_to_the_running_stage() {
        let config = MemoryConfig {
            pages_per_block: 8,
            initial_blocks: 96,
            max_blocks: 96,
            ..MemoryConfig::default()
        };
        let mftl = MftlConfig {
            seed: HashSeed(7),
            cache_bytes: 0,
            checkpoint_bytes: 0,
            ..MftlConfig::default()
        };
        let (store, _) = Mftl::open(Box::new(MemoryMedia::new(config).open()), mftl).unwrap();
        let mut replay = Replay::new(SHARD, Box::new(store));
        // The device is filled, and then come a hundred more.
        let mut puts = 0;
        while replay.promised.len() < 100 {
            feed(
                &mut replay,
                &records(puts + 1, &puts.to_be_bytes(), Some(&VALUE), at(10), puts % 2 == 0),
            );
            puts += 1;
            assert!(puts < 10_000, "the device is never full");
        }
        let left: Vec<u64> =
            (0..puts).filter(|n| replay.promised.contains_key(&txn(n + 1))).collect();
        assert_eq!(replay.applied() + 100, puts, "each was applied or left");
        assert!(
            left.iter().any(|n| n % 2 == 0) && left.iter().any(|n| n % 2 == 1),
            "of both kinds"
        );
        let bodies =
            left.iter().map(|n| replay.payloads.get(txn(n + 1)).unwrap().body.len() as u64);
        assert_eq!(
            replay.payloads.bytes(),
            bodies.sum::<u64>(),
            "only what is left counts as promised"
        );
        // What makes room stands behind them in the log.
        for n in 0..puts / 2 {
            feed(&mut replay, &records(puts + 1 + n, &n.to_be_bytes(), None, at(20), true));
        }
        let mut bound = Vec::new();
        LogRecord::ReadBound { bound: at(30), watermark: at(25) }.encode(&mut bound);
        feed(&mut replay, &[bound.split_off(PREFIX_BYTES)]);
        assert!(!replay.promised.is_empty(), "there is no room before the collector has run");

        let stage = replay.finish(Recovering {
            clock: Arc::new(ManualClock::new(at(1000))),
            ..Recovering::alone(SHARD, LogPlace::Nowhere, at(1000))
        });
        let unapplied = Arc::default();
        let mut driver = ManualDriver::new(
            vec![Box::new(Watched(TestStage(stage), Arc::clone(&unapplied)))
                as Box<dyn Stage<Event>>],
            at(1000),
            1000,
        );
        // Until they are applied, nobody is told that they are not there.
        for (n, answer) in ask(&mut driver, left[0]..puts) {
            let around = answer.is_none_or(|(present, prepared_before)| present || prepared_before);
            assert!(around || !left.contains(&n), "key {n} is answered as absent");
        }
        for round in 0.. {
            driver.turn();
            if round > 10 && unapplied.load(std::sync::atomic::Ordering::Relaxed) == 0 {
                break;
            }
            assert!(round < 10_000, "what was left is never applied");
        }
        let answers = ask(&mut driver, 0..puts);
        let mut answers: BTreeSet<_> = answers.into_iter().collect();
        while answers.len() < puts as usize {
            driver.turn();
            answers.extend(ask(&mut driver, 0..0));
        }
        for (n, answer) in answers {
            assert_eq!(answer, Some((n >= puts / 2, false)), "key {n}");
        }
    }
}

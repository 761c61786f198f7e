//! From what was replayed to a shard that serves: the participant is told what was recovered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use timestone_clock::Clock;
use timestone_cluster::MapVersion;
use timestone_seda::{Memory, StageId};
use timestone_store::{LatestLookup, ReadToken, Store, StoreError, StoreEvent};
use timestone_txn::participant::{
    self, Input, LatestInStore, Participant, Recovered, WriteItem, WriteKind,
};
use timestone_types::{
    ClientId, Epoch, HashSeed, KeyRef, PreviousFound, ShardId, Timestamp, TxnId, Version,
};
use timestone_wal::{BatchNumber, RecordNumber};
use timestone_wire::{PrepareBody, WriteKind as WireWriteKind};

use super::{DEVICE_WAIT, Decided, Past, Promised, Replay, Served};
use crate::closing::hand_over::{HandOver, HandOverStep};
use crate::gauges::ShardGauges;
use crate::log_records::journal::Journal;
use crate::peers::Peers;
use crate::reads::lookups::in_store;
use crate::shard::{Beginning, LogPlace, Shard};

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

impl Replay {
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
        let mut clients: BTreeSet<ClientId> = promised
            .keys()
            .copied()
            .chain(decided.iter().map(|(txn, _)| txn))
            .map(|txn| txn.client)
            .collect();
        clients.retain(|client| with.left.contains(client));
        let mut tell = |record: Recovered<'_>| {
            participant.step(with.now, Input::Recovered(record), &mut outputs)
        };
        tell(Recovered::ReadBound { bound: durable, watermark });
        tell(Recovered::Began(bound));
        if watermark > in_logs {
            tell(Recovered::CertainWatermark(in_logs));
        }
        tell(Recovered::UnloggedUntil(served.as_timestamp()));
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
            let found = decided.get(txn).map_or(PreviousFound::Unasked, |decided| decided.found);
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
        let in_order: BTreeMap<TxnId, &Decided> = decided.iter().collect();
        for (txn, decided) in in_order {
            let &Decided { begin, outcome, abort, found, met, ref participants, .. } = decided;
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
        let undecided = promised.keys().copied().filter(|txn| !decided.contains(*txn));
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
        let beginning = Beginning { store, participant, outputs, payloads, journal, hand_over };
        Shard::begin(shard, beginning, with)
    }
}

fn write_items(
    store: &mut (dyn Store + Send),
    seed: HashSeed,
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
        // Whatever was read in earlier runs lies below where this one begins to write.
        let range_read = Timestamp::ZERO;
        WriteItem { keyspace: write.keyspace, key: key.hash, kind, latest, range_read }
    });
    let items: Vec<WriteItem> = items.collect();
    assert_eq!(items.len(), count, "a body says how many writes it has");
    items
}

/// Looks up the youngest version of a key, waiting for the device. What else the store reports is dropped: where a
/// backup becomes the shard, that may be reads for clients, which are sent to the shard, or a checkpoint for
/// another replica, which begins anew.
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
                StoreEvent::ReadDone { .. } if timestone_types::is_planted!(NobodyReadsYet) => {
                    panic!("nobody reads before the shard serves")
                }
                _ => {}
            }
        }
        store.wait(DEVICE_WAIT);
    }
}

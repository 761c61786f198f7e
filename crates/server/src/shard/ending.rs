//! The end of a shard's stage, tested: two shards of one process that have no log, and a client that falls silent.

use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::MapVersion;
use timestone_flash::{MemoryDevice, MemoryMedia};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{Parcel, Stage, StageId};
use timestone_store::{Mftl, MftlConfig};
use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId};
use timestone_wire::{
    Decide, DecideAck, Envelope, Frame, Frames, Get, Kind, Message, PrepareHead, PrepareWriter, ReadAt, RequestId,
    Value, Verdict, Vote, WriteEntry, WriteKind, without_clock,
};

use super::{LogPlace, Peers, Recovering, Replay, own_origin};
use crate::event::Event;
use crate::gauges::ShardGauges;

const SHARDS: [ShardId; 2] = [ShardId::new(0), ShardId::new(1)];
const ASKER: StageId = StageId::new(7);
const CLIENT: ClientId = ClientId::new(3);
const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);
const STEP: Duration = Duration::from_millis(10);

const fn stage_of(shard: ShardId) -> StageId {
    StageId::new(shard.get())
}

/// Two shards, stepped by hand.
struct Pair {
    driver: ManualDriver<Event>,
    gauges: Vec<Arc<ShardGauges>>,
    now: Timestamp,
}

impl Pair {
    fn on(media: [&MemoryMedia; 2], now: Timestamp) -> Self {
        let mut peers = Peers::default();
        for shard in SHARDS {
            peers.add(shard, stage_of(shard), Epoch::default(), true);
        }
        let gauges: Vec<_> = SHARDS.map(|shard| Arc::new(ShardGauges::new(shard))).into();
        let mut stages: Vec<Box<dyn Stage<Event>>> = Vec::new();
        for ((shard, media), gauges) in SHARDS.into_iter().zip(media).zip(&gauges) {
            let (store, _) = Mftl::open(Box::new(media.open()), MftlConfig::default()).unwrap();
            stages.push(Box::new(Replay::new(shard, Box::new(store)).finish(Recovering {
                epoch: Epoch::default(),
                map_version: MapVersion::default(),
                log: LogPlace::Nowhere,
                logs: Vec::new(),
                peers: peers.clone(),
                gauges: Arc::clone(gauges),
                clock: Arc::new(timestone_clock::ManualClock::default()),
                past: Default::default(),
                left: Arc::default(),
                now,
                participant: timestone_txn::participant::Config::default(),
                memory: Arc::default(),
            })));
        }
        let mut pair = Self { driver: ManualDriver::new(stages, now, 1000), gauges, now };
        assert!(pair.answers().is_empty());
        pair.pass(STEP);
        pair
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.saturating_add(span);
        self.driver.set_now(self.now);
    }

    /// What was answered within some turns.
    fn answers(&mut self) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for _ in 0..20 {
            self.driver.turn();
            SHARDS.iter().for_each(|&shard| self.driver.send(stage_of(shard), Event::Wake).unwrap());
            while let Some((to, event)) = self.driver.take_sent() {
                let Event::Parcel(parcel) = event else { panic!("{event:?}") };
                assert_eq!(to, ASKER);
                answers.extend(Frames::new(without_clock(&parcel.bytes)).map(|frame| frame.unwrap().bytes().to_vec()));
            }
        }
        answers
    }

    fn ask(&mut self, shard: ShardId, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        encode(&Envelope { request: RequestId::new(9), shard, ..Envelope::default() }, &mut bytes);
        self.driver.send(stage_of(shard), Event::Parcel(Parcel::new(own_origin(ASKER), bytes))).unwrap();
        self.answers()
    }

    /// Promises a transaction of both shards at one of them.
    fn promise(&mut self, shard: ShardId, number: u64, key: &[u8]) -> (TxnId, Timestamp) {
        let (txn, begin) = (TxnId::new(CLIENT, Sequence::new(number)), self.now);
        let commit = begin.next();
        let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants: &SHARDS };
        let answers = self.ask(shard, |envelope, out| {
            let mut writer = PrepareWriter::begin(envelope, &head, out);
            let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
            writer.write(&WriteEntry { keyspace, kind, expires_at, key, value: b"value" });
            writer.finish();
        });
        assert_eq!(Vote::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
        (txn, commit)
    }

    /// Tells the commit, and takes the acknowledgement.
    fn decide(&mut self, shard: ShardId, (txn, commit): (TxnId, Timestamp)) {
        let answers = self.ask(shard, |envelope, out| Decide::new(txn, Some(commit)).encode(envelope, out));
        assert_eq!(DecideAck::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().txn, txn);
    }

    fn has(&mut self, shard: ShardId, key: &[u8]) -> bool {
        let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Snapshot(self.now));
        let get = Get { keyspace, at, client: CLIENT, wait: false, key };
        let answers = self.ask(shard, |envelope, out| get.encode(envelope, out));
        let frame = Frame::parse(&answers[0]).unwrap();
        frame.kind() == Kind::Value && Value::decode(&frame).unwrap().present
    }

    /// Steps on until both have ended. Tells how long that took.
    fn end(&mut self, within: Duration) -> Option<Duration> {
        let begun = self.now;
        while self.now.since(begun) <= within {
            self.pass(STEP);
            self.answers();
            self.driver.turn();
            if self.driver.is_drained() {
                return Some(self.now.since(begun));
            }
        }
        None
    }
}

/// A committed transaction whose decision reached one of two shards before they were stopped: which of them have its writes in the next
/// run, and how long the end took.
fn is_whole_after_an_end(decided_at: ShardId) -> ([bool; 2], Duration) {
    let devices = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [devices[0].media(), devices[1].media()];
    let mut first = Pair::on(media, START);
    // Both stores have been written to.
    for shard in SHARDS {
        first.promise(shard, 1, b"old");
    }
    for shard in SHARDS {
        first.decide(shard, (TxnId::new(CLIENT, Sequence::new(1)), first.now.next()));
    }
    let mut promised = None;
    for shard in SHARDS {
        promised = Some(first.promise(shard, 2, b"new"));
    }
    first.decide(decided_at, promised.unwrap());
    first.driver.begin_shutdown();
    let took = first.end(Duration::from_secs(20)).expect("it ends");
    let now = first.now;
    drop(first);
    let mut second = Pair::on(media, now.saturating_add(Duration::from_secs(1)));
    assert!(SHARDS.into_iter().all(|shard| second.has(shard, b"old")));
    (SHARDS.map(|shard| second.has(shard, b"new")), took)
}

#[test]
fn a_stop_without_a_log_waits_until_shards_have_the_decisions_that_others_have() {
    for decided_at in SHARDS {
        let (has, took) = is_whole_after_an_end(decided_at);
        assert_eq!(has, [true; 2], "decided at {decided_at}");
        assert!(took < Duration::from_millis(500), "the other one is told at once: {took:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_stop_that_waits_for_no_decision_loses_half_of_a_commit() {
    let has =
        crate::planted::with(crate::planted::Bug::EndsUndecided, || SHARDS.map(|shard| is_whole_after_an_end(shard).0));
    assert!(has.contains(&[true, false]) || has.contains(&[false, true]), "the planted bug is found");
}

/// Nobody has a decision: the shards end the transaction among themselves.
#[test]
fn a_stop_without_a_log_waits_until_what_a_silent_client_left_is_decided() {
    let devices = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [devices[0].media(), devices[1].media()];
    let mut first = Pair::on(media, START);
    for shard in SHARDS {
        first.promise(shard, 1, b"new");
    }
    first.driver.begin_shutdown();
    let took = first.end(Duration::from_secs(20)).expect("it ends");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let now = first.now;
    drop(first);
    let mut second = Pair::on(media, now.saturating_add(Duration::from_secs(1)));
    assert_eq!(SHARDS.map(|shard| second.has(shard, b"new")), [true; 2]);
}

/// One that is about to write is waited for, and what it sent last is taken before the store is closed.
#[test]
fn a_store_is_closed_when_nobody_is_about_to_write_and_what_was_sent_has_come() {
    let device = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [device[0].media(), device[1].media()];
    let mut first = Pair::on(media, START);
    let writers = |pair: &Pair, count| {
        pair.gauges.iter().for_each(|gauges| gauges.writers.store(count, std::sync::atomic::Ordering::Release));
    };
    writers(&first, 1);
    first.driver.begin_shutdown();
    assert!(first.end(Duration::from_secs(1)).is_none(), "somebody may write");
    // It ends; its last frames come a little later.
    writers(&first, 0);
    first.answers();
    let mut promised = None;
    for shard in SHARDS {
        promised = Some(first.promise(shard, 1, b"last"));
    }
    SHARDS.into_iter().for_each(|shard| first.decide(shard, promised.unwrap()));
    first.end(Duration::from_secs(1)).expect("it ends");
    let now = first.now;
    drop(first);
    let mut second = Pair::on(media, now.saturating_add(Duration::from_secs(1)));
    assert_eq!(SHARDS.map(|shard| second.has(shard, b"last")), [true; 2]);
}

/// How long a shard is left with a promise whose outcome the lowest participant knows, when their client has fallen silent.
fn until_the_lowest_has_told() -> Duration {
    let device = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let mut pair = Pair::on([device[0].media(), device[1].media()], START);
    let mut promised = None;
    for shard in SHARDS {
        promised = Some(pair.promise(shard, 1, b"key"));
    }
    let begun = pair.now;
    pair.decide(SHARDS[0], promised.unwrap());
    while !pair.has(SHARDS[1], b"key") && pair.now.since(begun) < Duration::from_secs(10) {
        pair.pass(STEP);
        pair.answers();
    }
    pair.now.since(begun)
}

#[test]
fn a_shard_hears_of_an_end_that_the_lowest_participant_knows() {
    let took = until_the_lowest_has_told();
    assert!(took < Duration::from_millis(2_500), "{took:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_shard_that_hears_of_no_known_end_is_noticed() {
    let took = crate::planted::with(crate::planted::Bug::IgnoredEnds, until_the_lowest_has_told);
    assert!(took > Duration::from_secs(3), "the planted bug is found: {took:?}");
}

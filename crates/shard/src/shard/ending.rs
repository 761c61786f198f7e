//! The end of a shard's stage, tested: two shards of one process, and a client that falls silent,
//! or a server that is down.

use std::sync::Arc;
use std::time::Duration;

use timestone_flash::{MemoryDevice, MemoryMedia};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{FrameBatch, Stage, StageId};
use timestone_store::{Mftl, MftlConfig};
use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId};
use timestone_wal::{BatchNumber, BatchRecords};
use timestone_wire::{
    Decide, DecideAck, Envelope, Frame, Frames, Freeze, FreezeAnswer, Get, Kind, Message,
    PrepareHead, PrepareWriter, ReadAt, RequestId, Shards, Terminate, TxnState, Value, Verdict,
    Vote, WriteEntry, WriteKind, without_clock,
};

use super::{LogPlace, Peers, RecordPlace, own_reply_address};
use crate::LogAppend;
use crate::gauges::ShardGauges;
use crate::replay::{Recovering, Replay};
use crate::testing::{Event, TestStage};

const SHARDS: [ShardId; 2] = [ShardId::new(0), ShardId::new(1)];
const ASKER: StageId = StageId::new(7);
/// The log of both shards, which makes everything durable at once.
const LOG: StageId = StageId::new(8);
/// Where the way to another server begins, which is down, and its shard.
const ELSEWHERE: StageId = StageId::new(9);
const FAR_SHARD: ShardId = ShardId::new(2);
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
    /// What the log holds of runs before, and what it was given.
    before: Vec<LogAppend>,
    logged: Vec<LogAppend>,
}

impl Pair {
    fn on(media: [&MemoryMedia; 2], now: Timestamp) -> Self {
        Self::with_log(media, now, LogPlace::Nowhere, Vec::new())
    }

    /// The run after this one, a second later.
    fn next(self, media: [&MemoryMedia; 2]) -> Self {
        let Self { driver, now, mut before, logged, .. } = self;
        drop(driver);
        before.extend(logged);
        Self::with_log(media, now.saturating_add(Duration::from_secs(1)), LogPlace::Nowhere, before)
    }

    fn with_log(
        media: [&MemoryMedia; 2],
        now: Timestamp,
        log: LogPlace,
        before: Vec<LogAppend>,
    ) -> Self {
        let mut peers = Peers::default();
        peers.add(FAR_SHARD, ELSEWHERE, Epoch::default(), false);
        for shard in SHARDS {
            peers.add(shard, stage_of(shard), Epoch::default(), true);
        }
        let gauges: Vec<_> = SHARDS.map(|shard| Arc::new(ShardGauges::new(shard))).into();
        let mut stages: Vec<Box<dyn Stage<Event>>> = Vec::new();
        for ((shard, media), gauges) in SHARDS.into_iter().zip(media).zip(&gauges) {
            let (store, _) = Mftl::open(Box::new(media.open()), MftlConfig::default()).unwrap();
            let mut replay = Replay::new(shard, Box::new(store));
            for LogAppend { head, bytes } in
                before.iter().filter(|append| append.head.shard == shard)
            {
                for (number, record) in (0..).zip(BatchRecords::new(bytes)) {
                    let place = RecordPlace {
                        batch: head.batch,
                        epoch: head.epoch,
                        number: head.first.plus(number),
                    };
                    replay.record(now, place, record.unwrap()).unwrap();
                }
            }
            replay.check(Epoch::default()).unwrap();
            stages.push(Box::new(TestStage(replay.finish(Recovering {
                logs: vec![LOG],
                peers: peers.clone(),
                gauges: Arc::clone(gauges),
                ..Recovering::alone(shard, log, now)
            }))));
        }
        let driver = ManualDriver::new(stages, now, 1000);
        let mut pair = Self { driver, gauges, now, before, logged: Vec::new() };
        SHARDS.iter().for_each(|&shard| pair.release(shard, BatchNumber::ZERO));
        assert!(pair.answers().is_empty());
        pair.pass(STEP);
        pair
    }

    /// The log lets go of what a shard does not need any more.
    fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        self.before.retain(|append| append.head.shard != shard || append.head.batch >= keep_from);
        let batches = self
            .before
            .iter()
            .filter(|append| append.head.shard == shard)
            .map(|append| append.head.batch);
        let from = batches.min().unwrap_or(BatchNumber::MAX);
        self.driver.send(stage_of(shard), Event::LogRetained { log: LOG, from }).unwrap();
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
            SHARDS
                .iter()
                .for_each(|&shard| self.driver.send(stage_of(shard), Event::Wake).unwrap());
            while let Some((to, event)) = self.driver.take_sent() {
                match event {
                    Event::FrameBatch(frame_batch) if to == ASKER => {
                        let frames = Frames::new(without_clock(&frame_batch.bytes));
                        answers.extend(frames.map(|frame| frame.unwrap().bytes().to_vec()));
                    }
                    Event::FrameBatch(_) if to == ELSEWHERE => {}
                    Event::LogAppend(append) if to == LOG => {
                        let durable = Event::LogDurable { batch: append.head.batch };
                        self.driver.send(stage_of(append.head.shard), durable).unwrap();
                        self.logged.push(append);
                    }
                    Event::LogRelease { shard, keep_from } if to == LOG => {
                        self.release(shard, keep_from)
                    }
                    event => panic!("{to}: {event:?}"),
                }
            }
        }
        answers
    }

    fn ask(
        &mut self,
        shard: ShardId,
        encode: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        encode(&Envelope { request: RequestId::new(9), shard, ..Envelope::default() }, &mut bytes);
        self.driver
            .send(
                stage_of(shard),
                Event::FrameBatch(FrameBatch::new(own_reply_address(ASKER), bytes)),
            )
            .unwrap();
        self.answers()
    }

    /// Promises a transaction of both shards at one of them.
    fn promise(&mut self, shard: ShardId, number: u64, key: &[u8]) -> (TxnId, Timestamp) {
        self.promise_with(&SHARDS, shard, number, key)
    }

    fn promise_with(
        &mut self,
        participants: &[ShardId],
        shard: ShardId,
        number: u64,
        key: &[u8],
    ) -> (TxnId, Timestamp) {
        let (txn, begin) = (TxnId::new(CLIENT, Sequence::new(number)), self.now);
        let commit = begin.next();
        let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants };
        let answers = self.ask(shard, |envelope, out| {
            let mut writer = PrepareWriter::begin(envelope, &head, out);
            let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
            writer.write(&WriteEntry { keyspace, kind, expires_at, key, value: b"value" });
            writer.finish();
        });
        assert_eq!(
            Vote::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict,
            Verdict::Yes
        );
        (txn, commit)
    }

    /// Tells the commit, and takes the acknowledgement.
    fn decide(&mut self, shard: ShardId, (txn, commit): (TxnId, Timestamp)) {
        let answers =
            self.ask(shard, |envelope, out| Decide::new(txn, Some(commit)).encode(envelope, out));
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

/// A committed transaction whose decision reached one of two shards before they were stopped: which
/// of them have its writes in the next run, and how long the end took.
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
    assert!(first.logged.is_empty(), "everybody has been told");
    let mut second = first.next(media);
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
    let has = timestone_types::planted::with(timestone_types::planted::Bug::EndsUndecided, || {
        SHARDS.map(|shard| is_whole_after_an_end(shard).0)
    });
    assert!(
        has.contains(&[true, false]) || has.contains(&[false, true]),
        "the planted bug is found"
    );
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
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    let mut second = first.next(media);
    for _ in 0..500 {
        second.pass(STEP);
        second.answers();
    }
    assert_eq!(SHARDS.map(|shard| second.has(shard, b"new")), [true; 2]);
}

/// What a shard without a log says in its next run, to a server that was down when it ended, of two
/// transactions with a shard there: one that it knows to be committed, and one that nobody has
/// decided.
fn told_after_an_end() -> [TxnState; 2] {
    let devices = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [devices[0].media(), devices[1].media()];
    let participants = [SHARDS[0], FAR_SHARD];
    let mut first = Pair::on(media, START);
    let begin = first.now;
    let decided = first.promise_with(&participants, SHARDS[0], 1, b"decided");
    first.decide(SHARDS[0], decided);
    let open = first.promise_with(&participants, SHARDS[0], 2, b"open");
    first.driver.begin_shutdown();
    let took = first.end(Duration::from_secs(20)).expect("it ends");
    assert!(took >= crate::limits::LAST_DECISIONS && took < Duration::from_secs(3), "{took:?}");
    let mut second = first.next(media);
    assert!(second.has(SHARDS[0], b"decided"));
    [decided.0, open.0].map(|txn| {
        let answers =
            second.ask(SHARDS[0], |envelope, out| Freeze { txn, begin }.encode(envelope, out));
        let told = FreezeAnswer::decode(&Frame::parse(&answers[0]).unwrap()).unwrap();
        assert_eq!(told.txn, txn);
        told.state
    })
}

#[test]
fn a_run_without_a_log_leaves_to_the_next_one_what_others_have_not_been_told() {
    let commit = START.saturating_add(STEP).next();
    assert_eq!(told_after_an_end(), [TxnState::Committed(commit), TxnState::Prepared(commit)]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_run_without_a_log_that_leaves_nothing_is_noticed() {
    let told = timestone_types::planted::with(
        timestone_types::planted::Bug::LeavesNothing,
        told_after_an_end,
    );
    assert_eq!(told, [TxnState::Aborted; 2], "the planted bug is found");
}

/// What a commit is answered with in the run after one that said of it that it was aborted. A
/// promise of the run before that one may have been lost, so that the commit would be carried out
/// where nobody knows what was said.
fn answer_after_a_told_abort() -> Kind {
    let devices = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [devices[0].media(), devices[1].media()];
    let mut first = Pair::on(media, START);
    let old = first.promise_with(&[SHARDS[0]], SHARDS[0], 1, b"old");
    first.decide(SHARDS[0], old);
    first.driver.begin_shutdown();
    first.end(Duration::from_secs(20)).expect("it ends");
    let mut second = first.next(media);
    // Begun by a clock that leads.
    let (txn, begin) = (
        TxnId::new(CLIENT, Sequence::new(2)),
        second.now.saturating_add(Duration::from_millis(300)),
    );
    let answers =
        second.ask(SHARDS[0], |envelope, out| Freeze { txn, begin }.encode(envelope, out));
    assert_eq!(
        FreezeAnswer::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().state,
        TxnState::Aborted
    );
    second.driver.begin_shutdown();
    let took = second.end(Duration::from_secs(20)).expect("it ends");
    assert!(took < Duration::from_millis(500), "nothing is waited for: {took:?}");
    let mut third = second.next(media);
    let answers = third
        .ask(SHARDS[0], |envelope, out| Decide::new(txn, Some(begin.next())).encode(envelope, out));
    Frame::parse(&answers[0]).unwrap().kind()
}

#[test]
fn an_abort_that_was_told_in_a_run_without_a_log_stays_one_after_its_end() {
    assert_eq!(answer_after_a_told_abort(), Kind::ErrorReply);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn an_abort_that_is_told_and_left_to_nobody_is_noticed() {
    let kind = timestone_types::planted::with(
        timestone_types::planted::Bug::LeavesNothing,
        answer_after_a_told_abort,
    );
    assert_eq!(kind, Kind::FetchWriteSet, "the planted bug is found");
}

/// A decision that comes when the log has what was open, and the store is being closed: it is in
/// the log before anybody is told that it has come, and the next run carries it out.
#[test]
fn a_decision_that_comes_to_a_run_without_a_log_at_its_very_end_is_carried_out_by_the_next_one() {
    for turns in 0..6 {
        let devices = [(); 2].map(|()| MemoryDevice::new(Default::default()));
        let media = [devices[0].media(), devices[1].media()];
        let participants = [SHARDS[0], FAR_SHARD];
        let mut first = Pair::on(media, START);
        let open = first.promise_with(&participants, SHARDS[0], 1, b"open");
        first.driver.begin_shutdown();
        while first.logged.is_empty() {
            first.pass(STEP);
            first.answers();
        }
        for _ in 0..turns {
            first.pass(STEP);
            first.answers();
        }
        first.decide(SHARDS[0], open);
        first.end(Duration::from_secs(20)).expect("it ends");
        let mut second = first.next(media);
        assert!(second.has(SHARDS[0], b"open"), "after {turns} turns");
    }
}

/// The log of a run without one holds what the run before left and what it leaves itself, until all
/// of it is in the store and told.
#[test]
fn what_runs_without_a_log_leave_one_after_the_other_is_kept_until_others_have_it() {
    let devices = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [devices[0].media(), devices[1].media()];
    let participants = [SHARDS[0], FAR_SHARD];
    let mut pair = Pair::on(media, START);
    let (begin, mut txns) = (pair.now, Vec::new());
    for number in 1..=3 {
        let promised = pair.promise_with(&participants, SHARDS[0], number, &[number as u8]);
        if number == 1 {
            pair.decide(SHARDS[0], promised);
        }
        txns.push(promised.0);
        pair.driver.begin_shutdown();
        pair.end(Duration::from_secs(20)).expect("it ends");
        pair = pair.next(media);
    }
    let states = txns.into_iter().map(|txn| {
        let answers =
            pair.ask(SHARDS[0], |envelope, out| Freeze { txn, begin }.encode(envelope, out));
        FreezeAnswer::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().state
    });
    let states: Vec<TxnState> = states.collect();
    assert!(
        matches!(
            states[..],
            [TxnState::Committed(_), TxnState::Prepared(_), TxnState::Prepared(_)]
        ),
        "{states:?}"
    );
}

/// Whether the shards closed their stores while somebody was about to write, and whether what that
/// one sent last is there in the next run.
fn ends_beside_a_writer() -> (bool, [bool; 2]) {
    let device = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [device[0].media(), device[1].media()];
    let mut first = Pair::on(media, START);
    let writers = |pair: &Pair, count| {
        pair.gauges
            .iter()
            .for_each(|gauges| gauges.writers.store(count, std::sync::atomic::Ordering::Release));
    };
    writers(&first, 1);
    first.driver.begin_shutdown();
    let too_early = first.end(Duration::from_secs(1)).is_some();
    // It ends; its last frames come a little later.
    writers(&first, 0);
    first.answers();
    let mut promised = None;
    for shard in SHARDS {
        promised = Some(first.promise(shard, 1, b"last"));
    }
    SHARDS.into_iter().for_each(|shard| first.decide(shard, promised.unwrap()));
    let ended = first.end(Duration::from_secs(1));
    assert!(too_early || ended.is_some(), "it ends");
    let now = first.now;
    drop(first);
    let mut second = Pair::on(media, now.saturating_add(Duration::from_secs(1)));
    (too_early, SHARDS.map(|shard| second.has(shard, b"last")))
}

/// One that is about to write is waited for, and what it sent last is taken before the store is
/// closed.
#[test]
fn a_store_is_closed_when_nobody_is_about_to_write_and_what_was_sent_has_come() {
    assert_eq!(ends_beside_a_writer(), (false, [true; 2]));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_store_that_is_closed_under_a_writer_loses_what_it_writes() {
    let found = timestone_types::planted::with(
        timestone_types::planted::Bug::ClosesUnderWriters,
        ends_beside_a_writer,
    );
    assert_eq!(found, (true, [false; 2]), "the planted bug is found");
}

/// How long a shard with a log takes to end that holds a promise whose other participant is on a
/// server that is down: somebody reads the key, somebody asks for the transaction's end, and peers
/// go on asking all the time.
fn end_while_another_is_down() -> Option<Duration> {
    let device = [(); 2].map(|()| MemoryDevice::new(Default::default()));
    let media = [device[0].media(), device[1].media()];
    let mut pair = Pair::with_log(media, START, LogPlace::Stage(LOG), Vec::new());
    let participants = [SHARDS[0], FAR_SHARD];
    let (txn, commit) = pair.promise_with(&participants, SHARDS[0], 1, b"key");
    let begin = pair.now;
    let terminate = Terminate { txn, begin, commit, participants: Shards::new(&participants) };
    let asked = pair.ask(SHARDS[0], |envelope, out| terminate.encode(envelope, out));
    assert!(asked.is_empty(), "nobody knows");
    let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Latest(pair.now));
    let get = Get { keyspace, at, client: CLIENT, wait: true, key: b"key" };
    assert!(
        pair.ask(SHARDS[0], |envelope, out| get.encode(envelope, out)).is_empty(),
        "it waits for the decision"
    );
    pair.driver.begin_shutdown();
    let begun = pair.now;
    while pair.now.since(begun) <= Duration::from_secs(20) {
        if pair.end(Duration::from_millis(500)).is_some() {
            return Some(pair.now.since(begun));
        }
        pair.ask(SHARDS[0], |envelope, out| terminate.encode(envelope, out));
    }
    None
}

#[test]
fn a_stop_with_a_log_does_not_wait_for_a_server_that_is_down() {
    let took = end_while_another_is_down().expect("it ends");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(took >= crate::limits::LAST_DECISIONS, "a decision may come: {took:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_stop_that_waits_for_what_waits_for_others_is_found() {
    let took = timestone_types::planted::with(
        timestone_types::planted::Bug::WaitsForOthers,
        end_while_another_is_down,
    );
    assert_eq!(took, None, "the planted bug is found");
}

/// How long a shard is left with a promise whose outcome the lowest participant knows, when their
/// client has fallen silent.
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
    let took = timestone_types::planted::with(
        timestone_types::planted::Bug::IgnoredEnds,
        until_the_lowest_has_told,
    );
    assert!(took > Duration::from_secs(3), "the planted bug is found: {took:?}");
}

//! A primary whose log is followed by a backup, which takes its place at some moment.

mod deposed;
mod rebuilt;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use timestone_clock::ManualClock;
use timestone_flash::{MemoryConfig, MemoryMedia};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{FrameBatch, Stage};
use timestone_store::{Mftl, MftlConfig, ReadToken};
use timestone_txn::participant::Config;
use timestone_types::random::{Dice, Seed};
use timestone_types::{ClientId, Epoch, Expiry, KeyRef, KeyspaceId, Sequence, TxnId};
use timestone_wal::{BatchRecords, LogRecord};
use timestone_wire::{
    Decide, Envelope, Frame, Frames, Get, Kind, Message, PrepareHead, PrepareWriter, ReadAt,
    Report, RequestId, Value, Verdict, Vote, Write, WriteAction, WriteEntry, WriteKind, Written,
    without_clock,
};

use super::*;
use crate::shard::hesitant::Hesitant;
use crate::shard::{LogPlace, own_reply_address};
use crate::testing::{Event, Removable};
use crate::{LogAppend, Past};

const SHARD: ShardId = ShardId::new(0);
const FAR_SHARD: ShardId = ShardId::new(1);
const STAGE: StageId = StageId::new(0);
const LOG: StageId = StageId::new(5);
const ASKER: StageId = StageId::new(7);
const ELSEWHERE: StageId = StageId::new(9);
const CLIENT: ClientId = ClientId::new(3);
const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;
const KEYS: u64 = 12;
const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);
/// So many of the last single writes may be asked for again.
const REPEATED: usize = 5;
const EPOCH: Epoch = Epoch::new(1);

/// Some keys are in another keyspace.
fn keyspace_of(key: u64) -> KeyspaceId {
    if key % 4 == 3 { KeyspaceId::numbered(7, false) } else { KEYSPACE }
}

fn store_on(media: &MemoryMedia) -> Box<Mftl> {
    let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
    Box::new(Mftl::open(Box::new(media.open()), config).unwrap().0)
}

fn media() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig::default())
}

/// A shard, stepped by hand.
struct Served {
    driver: ManualDriver<Event>,
    stage: Removable,
    now: Timestamp,
    /// What its log was given, all of it durable.
    logged: Vec<LogAppend>,
    /// What it was given that does not count, once it is cut off from its backups.
    uncounted: Vec<LogAppend>,
    is_cut_off: bool,
    /// What is in the log, and not durable yet.
    in_flight: Vec<LogAppend>,
    /// Nothing becomes durable.
    is_held: bool,
    /// What lies below was let go of.
    kept_from: BatchNumber,
    requests: u64,
}

fn recovering(now: Timestamp) -> Recovering {
    let mut peers = crate::Peers::default();
    peers.add(FAR_SHARD, ELSEWHERE, EPOCH, false);
    peers.add(SHARD, STAGE, EPOCH, true);
    Recovering {
        epoch: EPOCH,
        peers,
        logs: vec![LOG],
        clock: Arc::new(ManualClock::new(now)),
        past: Past { outage: Some(Duration::from_millis(50)), ..Past::default() },
        participant: Config { has_replicas: true, ..Config::default() },
        ..Recovering::alone(SHARD, LogPlace::Stage(LOG), now)
    }
}

impl Served {
    fn new(shard: Shard, now: Timestamp) -> Self {
        let stage = Removable::new(shard);
        let stages = vec![Box::new(stage.clone()) as Box<dyn Stage<Event>>];
        let driver = ManualDriver::new(stages, now, 1000);
        let mut served = Self {
            driver,
            stage,
            now,
            logged: Vec::new(),
            uncounted: Vec::new(),
            is_cut_off: false,
            in_flight: Vec::new(),
            is_held: false,
            kept_from: BatchNumber::ZERO,
            requests: 0,
        };
        served.turns();
        served
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        self.driver.set_now(self.now);
        self.turns();
    }

    /// Some turns; what was answered in them. The log syncs at once.
    fn turns(&mut self) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for _ in 0..6 {
            self.driver.turn();
            self.driver.send(STAGE, Event::Wake).unwrap();
            while let Some((to, event)) = self.driver.take_sent() {
                match event {
                    Event::FrameBatch(batch) if to == ASKER => {
                        let frames = Frames::new(without_clock(&batch.bytes));
                        answers.extend(frames.map(|frame| frame.unwrap().bytes().to_vec()));
                    }
                    Event::LogAppend(append) if self.is_cut_off => self.uncounted.push(append),
                    Event::LogAppend(append) => self.in_flight.push(append),
                    Event::LogRelease { keep_from, .. } => {
                        self.kept_from = keep_from;
                        let retained = Event::LogRetained { log: LOG, from: keep_from };
                        self.driver.send(STAGE, retained).unwrap();
                    }
                    Event::FrameBatch(_) => {}
                    event => panic!("{to}: {event:?}"),
                }
            }
            if !self.is_held {
                for append in std::mem::take(&mut self.in_flight) {
                    let durable = Event::LogDurable { batch: append.head.batch };
                    self.driver.send(STAGE, durable).unwrap();
                    self.logged.push(append);
                }
            }
        }
        answers
    }

    fn ask(&mut self, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.requests += 1;
        let (request, shard) = (RequestId::new(self.requests), SHARD);
        encode(&Envelope { request, shard, epoch: EPOCH, ..Envelope::default() }, &mut bytes);
        let batch = FrameBatch::new(own_reply_address(ASKER), bytes);
        self.driver.send(STAGE, Event::FrameBatch(batch)).unwrap();
        self.turns().into_iter().find(|answer| {
            Frame::parse(answer).is_ok_and(|frame| frame.envelope().request == request)
        })
    }

    /// What a single write is told, if anything.
    fn try_write(&mut self, write: &Asked, commit: Timestamp) -> Option<Verdict> {
        let asked = Write {
            txn: write.txn,
            begin: write.begin,
            commit,
            keyspace: keyspace_of(write.key),
            action: if write.value.is_some() { WriteAction::Put } else { WriteAction::Delete },
            wait: false,
            return_previous: false,
            expires_at: Expiry::NEVER,
            condition: timestone_wire::Condition::Always,
            key: &write.key.to_be_bytes(),
            value: &write.value.map_or_else(Vec::new, |value| value.to_be_bytes().to_vec()),
        };
        let answer = self.ask(|envelope, out| asked.encode(envelope, out))?;
        let frame = Frame::parse(&answer).unwrap();
        (frame.kind() == Kind::Written).then(|| Written::decode(&frame).unwrap().verdict)
    }

    /// What a single write is told, and at which timestamp; as often as it is told a later one it
    /// asks with that. Its commit timestamp has passed then.
    fn write(&mut self, write: &Asked, mut commit: Timestamp) -> (Verdict, Timestamp) {
        for _ in 0..50 {
            match self.try_write(write, commit) {
                Some(Verdict::Later(at)) => commit = at,
                Some(verdict) => {
                    while self.now < commit {
                        self.pass(100);
                    }
                    return (verdict, commit);
                }
                // A prepared write is in the way, or time has to pass after the change.
                None => self.pass(300),
            }
        }
        panic!("{write:?} is never answered");
    }

    fn promise(&mut self, asked: &Asked) -> Option<Timestamp> {
        let mut commit = asked.begin.next();
        for _ in 0..3 {
            let participants = &[SHARD, FAR_SHARD];
            let (txn, begin) = (asked.txn, asked.begin);
            let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants };
            let answer = self.ask(|envelope, out| {
                let mut writer = PrepareWriter::begin(envelope, &head, out);
                let (kind, value) = match asked.value {
                    Some(value) => (WriteKind::Put, value.to_be_bytes().to_vec()),
                    None => (WriteKind::Delete, Vec::new()),
                };
                let (keyspace, expires_at) = (keyspace_of(asked.key), Expiry::NEVER);
                let key = &asked.key.to_be_bytes();
                writer.write(&WriteEntry { keyspace, kind, expires_at, key, value: &value });
                writer.finish();
            })?;
            let frame = Frame::parse(&answer).unwrap();
            match (frame.kind() == Kind::Vote).then(|| Vote::decode(&frame).unwrap().verdict)? {
                Verdict::Yes => {
                    while self.now < commit {
                        self.pass(100);
                    }
                    return Some(commit);
                }
                Verdict::Later(at) => commit = at,
                Verdict::No(_) => return None,
            }
        }
        None
    }

    fn decide(&mut self, txn: TxnId, decision: Option<Timestamp>) {
        let told = self.ask(|envelope, out| Decide::new(txn, decision).encode(envelope, out));
        let kind = told.map(|bytes| Frame::parse(&bytes).unwrap().kind());
        assert_eq!(kind, Some(Kind::DecideAck), "the decision of {txn} is acknowledged");
    }

    /// The client uses nothing below this any more.
    fn report(&mut self, watermark: Timestamp) {
        let (client, now, acked) = (CLIENT, self.now, Sequence::ZERO);
        let report = Report { client, watermark, acked, now, closing: false };
        self.ask(|envelope, out| report.encode(envelope, out));
    }

    /// The latest value of a key; waits for whoever is in the way.
    fn read(&mut self, key: u64) -> Option<u64> {
        for _ in 0..50 {
            let at = ReadAt::Snapshot(self.now);
            let get = Get {
                keyspace: keyspace_of(key),
                at,
                client: CLIENT,
                wait: false,
                key: &key.to_be_bytes(),
            };
            let answer = self.ask(|envelope, out| get.encode(envelope, out));
            let value = answer.as_deref().and_then(|bytes| {
                let frame = Frame::parse(bytes).unwrap();
                let value = Value::decode(&frame).ok()?;
                let number = || u64::from_be_bytes(value.value.try_into().unwrap());
                (!value.prepared_before).then(|| value.present.then(number))
            });
            match value {
                Some(value) => return value,
                None => self.pass(300),
            }
        }
        panic!("key {key} is never read");
    }
}

/// A write that somebody has asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    txn: TxnId,
    begin: Timestamp,
    key: u64,
    value: Option<u64>,
}

/// What clients know.
#[derive(Default)]
struct Known {
    sequence: u64,
    values: BTreeMap<u64, u64>,
    /// Single writes that were carried out, and at which timestamps.
    done: Vec<(Asked, Timestamp)>,
    /// Promises that nobody has decided, each with its timestamp; one a key.
    open: BTreeMap<u64, (Asked, Timestamp)>,
    /// What was committed, or promised, without an answer lies at or below it.
    latest: Timestamp,
    /// What was asked of a primary that has not answered, and whether it is a single write.
    tried: BTreeMap<TxnId, (Asked, bool)>,
    /// Decisions that were told to a primary that has not acknowledged them.
    fates: BTreeMap<TxnId, bool>,
}

impl Known {
    fn wish(&mut self, dice: &mut Dice, now: Timestamp) -> Asked {
        self.sequence += 1;
        let txn = TxnId::new(CLIENT, Sequence::new(self.sequence));
        let value = (dice.below(4) > 0).then_some(self.sequence);
        Asked { txn, begin: now, key: dice.below(KEYS), value }
    }

    /// When the oldest write began that may be asked for again, or is open.
    fn oldest(&self, now: Timestamp) -> Timestamp {
        let repeated = self.done.iter().rev().take(REPEATED).map(|(asked, _)| asked.begin);
        let open = self.open.values().map(|(asked, _)| asked.begin);
        repeated.chain(open).min().unwrap_or(now)
    }

    /// Whether a promise is to be committed: as was decided before, or as somebody `wishes`.
    fn commits(&self, asked: &Asked, wishes: bool) -> bool {
        self.fates.get(&asked.txn).copied().unwrap_or(wishes)
    }

    fn carried_out(&mut self, asked: &Asked) {
        match asked.value {
            Some(value) => self.values.insert(asked.key, value),
            None => self.values.remove(&asked.key),
        };
    }
}

/// One step of the clients.
fn step(dice: &mut Dice, served: &mut Served, known: &mut Known) {
    let asked = known.wish(dice, served.now);
    match dice.below(10) {
        0..=3 if !known.open.contains_key(&asked.key) => {
            let (verdict, commit) = served.write(&asked, asked.begin.next());
            assert_eq!(verdict, Verdict::Yes, "{asked:?}");
            known.carried_out(&asked);
            known.done.push((asked, commit));
        }
        4..=5 if !known.open.contains_key(&asked.key) => {
            if let Some(commit) = served.promise(&asked) {
                known.open.insert(asked.key, (asked, commit));
            }
        }
        6..=7 => {
            if let Some((_, (asked, commit))) = known.open.pop_first() {
                let commits = known.commits(&asked, dice.below(3) > 0);
                served.decide(asked.txn, commits.then_some(commit));
                if commits {
                    known.carried_out(&asked);
                }
            }
        }
        8 => served.report(known.oldest(served.now)),
        _ => served.pass(dice.below(400)),
    }
}

/// Takes what was logged since.
fn follow(backup: &mut Backup, taken: &mut usize, served: &Served) {
    for LogAppend { head, bytes } in &served.logged[*taken..] {
        backup.take(served.now, *head, bytes).unwrap();
    }
    *taken = served.logged.len();
    backup.turn(served.now).unwrap();
}

/// Ends every promise that is open.
fn decide_all(dice: &mut Dice, served: &mut Served, known: &mut Known) {
    while let Some((_, (asked, commit))) = known.open.pop_first() {
        let commits = known.commits(&asked, dice.below(2) == 0);
        served.decide(asked.txn, commits.then_some(commit));
        if commits {
            known.carried_out(&asked);
        }
    }
}

/// What a new primary has to know.
fn check(dice: &mut Dice, mut served: Served, mut known: Known) {
    for &(asked, commit) in known.done.iter().rev().take(REPEATED) {
        // It was told already, and asks again: nothing is carried out twice.
        let told = served.write(&asked, commit);
        assert_eq!(told, (Verdict::Yes, commit), "a repeat of {asked:?}");
    }
    decide_all(dice, &mut served, &mut known);
    for key in 0..KEYS {
        assert_eq!(served.read(key), known.values.get(&key).copied(), "key {key}");
    }
    // It goes on, when the lease of the last primary is over.
    served.pass(1_000);
    for _ in 0..10 {
        step(dice, &mut served, &mut known);
    }
}

/// What a restart finds on a device, and in a log that holds nothing below `from`.
fn replayed(
    media: &MemoryMedia,
    now: Timestamp,
    logged: &[LogAppend],
    from: BatchNumber,
) -> Replay {
    let mut replay = Replay::new(SHARD, store_on(media));
    for LogAppend { head, bytes } in logged.iter().filter(|one| one.head.batch >= from) {
        replay.batch(now, *head, bytes).unwrap();
    }
    replay
}

/// A backup follows a primary, and takes its place: as it is, or after a restart from its own log
/// and what its device has kept.
fn takes_over(seed: u64, restarts: bool) {
    let mut dice = Seed(seed).derive("backup", 0).dice();
    let (own, others) = (media(), media());
    let replay = Replay::new(SHARD, store_on(&own));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let mut backup = Backup::new(Replay::new(SHARD, store_on(&others)), &[LOG]);
    let (mut known, mut taken, mut kept_from) = (Known::default(), 0, BatchNumber::ZERO);
    for _ in 0..dice.below(120) + 10 {
        step(&mut dice, &mut served, &mut known);
        if dice.below(3) == 0 {
            follow(&mut backup, &mut taken, &served);
            let keep_from = backup.keep_from();
            assert!(keep_from >= kept_from, "what the log has let go of is not needed again");
            kept_from = keep_from;
            backup.log_retained(LOG, keep_from);
        }
    }
    follow(&mut backup, &mut taken, &served);
    let (now, logged) = (served.now, std::mem::take(&mut served.logged));
    drop(served);
    if restarts {
        drop(backup);
        others.kill(seed);
        let replay = replayed(&others, now, &logged, kept_from);
        backup = Backup::new(replay, &[LOG]);
    }
    assert!(!backup.has_failed());
    let now = now.saturating_add(Duration::from_millis(100));
    let floor = now.saturating_add(Duration::from_millis(dice.below(900)));
    let served = Served::new(backup.promote(floor, recovering(now)), now);
    check(&mut dice, served, known);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_backup_that_forgets_or_keeps_too_little_is_noticed() {
    use timestone_types::planted::{Bug, with};

    let fails = |bug, restarts| {
        (0..150).any(|seed| {
            with(bug, || std::panic::catch_unwind(|| takes_over(seed, restarts)).is_err())
        })
    };
    assert!(fails(Bug::ForgetfulBackup, false), "a write is carried out twice");
    assert!(fails(Bug::CarelessBackup, true), "what was acknowledged is lost");
    assert!(fails(Bug::LostPromise, false), "a promise is lost");
}

#[test]
fn a_backup_that_takes_over_knows_what_the_primary_has_told() {
    for seed in 0..150 {
        takes_over(seed, false);
    }
}

#[test]
fn a_backup_that_starts_anew_has_kept_what_it_needs() {
    for seed in 0..150 {
        takes_over(seed, true);
    }
}

/// Whether a snapshot may be read.
fn is_shown(served: &mut Served, at: Timestamp) -> bool {
    let (at, key) = (ReadAt::Snapshot(at), &0u64.to_be_bytes());
    let get = Get { keyspace: KEYSPACE, at, client: CLIENT, wait: false, key };
    let answer = served.ask(|envelope, out| get.encode(envelope, out)).unwrap();
    Value::decode(&Frame::parse(&answer).unwrap()).is_ok()
}

/// A shard that was written to, and then was idle until its backup's log needs as little as it ever
/// does; with that.
fn idle(served: &mut Served, backup: &mut Backup) -> BatchNumber {
    let (mut dice, mut known, mut taken) = (Seed(1).dice(), Known::default(), 0);
    for key in 0..10 {
        let asked = Asked { key, ..known.wish(&mut dice, served.now) };
        assert_eq!(served.write(&asked, asked.begin.next()).0, Verdict::Yes);
    }
    for _ in 0..200 {
        served.report(served.now);
        served.pass(400);
        follow(backup, &mut taken, served);
    }
    backup.keep_from()
}

#[test]
fn a_backup_whose_log_is_emptied_goes_on_with_the_watermark_and_the_numbers() {
    let (own, others) = (media(), media());
    let replay = Replay::new(SHARD, store_on(&own));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let mut backup = Backup::new(Replay::new(SHARD, store_on(&others)), &[LOG]);
    let kept_from = idle(&mut served, &mut backup);
    let last = served.logged.last().unwrap().head;
    assert!(kept_from.get() + 5 > last.batch.get(), "{kept_from} of {last:?}");
    let (old, now) = (START.saturating_add(Duration::from_secs(1)), served.now);
    assert!(!is_shown(&mut served, old), "it lies below the watermark");
    drop(backup);
    others.kill(1);
    let replay = replayed(&others, now, &served.logged, kept_from);
    let backup = Backup::new(replay, &[LOG]);
    assert_eq!(backup.last(), last.batch);
    let mut served = Served::new(backup.promote(now, recovering(now)), now);
    assert!(!is_shown(&mut served, old), "it is refused by the new primary, too");
    served.pass(1_000);
    let first = served.logged.first().unwrap().head;
    assert!(first.batch > last.batch && first.first > last.first, "{first:?} after {last:?}");
}

/// A promise that nobody decides is carried from file to file by its primary.
#[test]
fn a_promise_that_nobody_decides_does_not_hold_a_log_for_ever() {
    let others = media();
    let mut backup = Backup::new(Replay::new(SHARD, store_on(&others)), &[LOG]);
    let (own, mut known, mut dice) = (media(), Known::default(), Seed(2).dice());
    let replay = Replay::new(SHARD, store_on(&own));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let asked = known.wish(&mut dice, served.now);
    assert!(served.promise(&asked).is_some());
    let mut taken = 0;
    for _ in 0..5 {
        served.pass(400);
        follow(&mut backup, &mut taken, &served);
    }
    let promise = served.logged.iter().find(|one| {
        BatchRecords::new(&one.bytes).any(|record| {
            matches!(LogRecord::decode(record.unwrap()), Ok(LogRecord::Prepare { .. }))
        })
    });
    let &LogAppend { mut head, ref bytes } = promise.unwrap();
    let first = head.batch;
    assert!(backup.keep_from() <= first);
    // The same batch again, later: as the primary carries it.
    for _ in 0..3 {
        head.batch = backup.last().next();
        backup.take(served.now, head, bytes).unwrap();
    }
    assert!(backup.keep_from() > first, "the last copy is enough");
}

/// The read bound and the watermark that a restart of a backup finds, where the primary's last bound
/// was on its way when it recorded again what an old file held; and those that had been in force.
fn bound_after_restart() -> [(Timestamp, Timestamp); 2] {
    let others = media();
    let mut backup = Backup::new(Replay::new(SHARD, store_on(&others)), &[LOG]);
    let replay = Replay::new(SHARD, store_on(&media()));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let mut taken = 0;
    for _ in 0..20 {
        served.report(served.now);
        served.pass(400);
    }
    served.is_held = true;
    served.report(served.now);
    served.pass(400);
    assert!(!served.in_flight.is_empty(), "a bound is on its way");
    let below = served.logged.last().unwrap().head.batch;
    served.driver.send(STAGE, Event::LogCopyForward { below }).unwrap();
    served.turns();
    served.is_held = false;
    served.turns();
    follow(&mut backup, &mut taken, &served);
    let had = (backup.replay.bound(), backup.replay.watermark());
    let (kept_from, now) = (backup.keep_from(), served.now);
    drop(backup);
    others.kill(1);
    let replay = replayed(&others, now, &served.logged, kept_from);
    [(replay.bound(), replay.watermark()), had]
}

#[test]
fn a_backup_keeps_the_highest_bound_and_not_the_last() {
    let [found, had] = bound_after_restart();
    assert_eq!(found, had);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_backup_that_keeps_the_last_bound_is_noticed() {
    use timestone_types::planted::{Bug, with};

    let [found, had] = with(Bug::KeepsLastBound, bound_after_restart);
    assert!(found.0 < had.0 && found.1 < had.1, "{found:?} {had:?}");
}

/// A backup becomes the shard that has reads for clients under way, while what is promised has to be looked up on
/// the device.
fn takes_over_while_it_is_read(seed: u64) {
    let (own, others) = (media(), media());
    let store = Hesitant::new(*store_on(&others), seed, 3);
    let mut backup = Backup::new(Replay::new(SHARD, Box::new(store)), &[LOG]);
    let (mut known, mut dice) = (Known::default(), Seed(seed).dice());
    let replay = Replay::new(SHARD, store_on(&own));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let asked = known.wish(&mut dice, served.now);
    assert!(served.promise(&asked).is_some());
    served.pass(400);
    follow(&mut backup, &mut 0, &served);
    let (now, store) = (served.now, backup.replay.store_mut());
    let hash_seed = store.seed();
    for number in 0..20 {
        let bytes = (number % KEYS).to_be_bytes();
        let key = KeyRef::new(hash_seed, keyspace_of(number % KEYS), &bytes);
        let asked = store.get_as_of(key, now, now, ReadToken(number << 32 | 0xffff_fffe));
        assert!(asked.is_ok());
    }
    drop(Served::new(backup.promote(now, recovering(now)), now));
}

#[test]
fn a_backup_that_is_read_may_take_over() {
    (0..30).for_each(takes_over_while_it_is_read);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_backup_that_expects_no_reads_is_found() {
    use timestone_types::planted::{Bug, with};

    let fails = |seed| {
        let run = || with(Bug::NobodyReadsYet, || takes_over_while_it_is_read(seed));
        std::panic::catch_unwind(run).is_err()
    };
    assert!((0..30).any(fails));
}

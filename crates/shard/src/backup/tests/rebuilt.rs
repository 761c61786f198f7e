//! A replica that begins with nothing: it takes a checkpoint from a primary that goes on to be
//! written to, follows it, and takes its place.

use std::collections::BTreeSet;

use timestone_flash::PageId;
use timestone_wire::Condition;

use super::*;
use crate::checkpoint::{CheckpointPart, PartAsk, Rebuild, RebuildStep};
use crate::gauges::ShardGauges;

/// Keys behind those of the clients: their values are large, and many of them expire.
const LARGE_KEYS: core::ops::Range<u64> = KEYS..KEYS + 60;

/// So small that blocks are collected.
fn small_media() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: 8,
        initial_blocks: 64,
        max_blocks: 64,
        ..MemoryConfig::default()
    })
}

/// What a snapshot shows of a key; none where it is refused, or waits for a promise.
type Shown = Option<(bool, Vec<u8>)>;

impl Served {
    /// A put of a large value that expires, or a deletion.
    fn write_large(&mut self, dice: &mut Dice, sequence: u64) {
        let key = LARGE_KEYS.start + dice.below(LARGE_KEYS.end - LARGE_KEYS.start);
        let size = if dice.below(4) == 0 { 30_000 } else { 6_000 };
        let value = vec![sequence as u8; dice.below(size) as usize];
        let (is_put, expires) = (dice.below(4) > 0, dice.below(2) == 0);
        let soon = self.now.saturating_add(Duration::from_millis(dice.below(5_000) + 1));
        let expires_at = if is_put && expires { Expiry::at(soon) } else { Expiry::NEVER };
        let (txn, begin) = (TxnId::new(CLIENT, Sequence::new(sequence)), self.now);
        let mut commit = begin.next();
        for _ in 0..5 {
            let asked = Write {
                txn,
                begin,
                commit,
                keyspace: keyspace_of(key),
                action: if is_put { WriteAction::Put } else { WriteAction::Delete },
                wait: false,
                return_previous: false,
                expires_at,
                condition: Condition::Always,
                key: &key.to_be_bytes(),
                value: if is_put { &value } else { &[] },
            };
            let answer = self.ask(|envelope, out| asked.encode(envelope, out));
            let Some(answer) = answer else { return self.pass(300) };
            let frame = Frame::parse(&answer).unwrap();
            let is_written = frame.kind() == Kind::Written;
            match is_written.then(|| Written::decode(&frame).unwrap().verdict) {
                Some(Verdict::Later(at)) => commit = at,
                Some(_) => return,
                // The device is full, or busy.
                None => self.pass(100),
            }
        }
    }

    /// Empties the default keyspace, if nobody holds a key of it.
    fn fence(&mut self, known: &mut Known) {
        known.sequence += 1;
        let (txn, begin) = (TxnId::new(CLIENT, Sequence::new(known.sequence)), self.now);
        let mut commit = begin.next();
        for _ in 0..3 {
            let participants = &[SHARD];
            let head = PrepareHead { txn, begin, commit, single: true, wait: false, participants };
            let answer = self.ask(|envelope, out| {
                let mut writer = PrepareWriter::begin(envelope, &head, out);
                let (kind, expires_at) = (WriteKind::Fence, Expiry::NEVER);
                let (key, value): (&[u8], &[u8]) = (&[], &[]);
                writer.write(&WriteEntry { keyspace: KEYSPACE, kind, expires_at, key, value });
                writer.finish();
            });
            let Some(answer) = answer else { return };
            let frame = Frame::parse(&answer).unwrap();
            match (frame.kind() == Kind::Vote).then(|| Vote::decode(&frame).unwrap().verdict) {
                Some(Verdict::Yes) => {
                    known.values.retain(|&key, _| keyspace_of(key) != KEYSPACE);
                    while self.now < commit {
                        self.pass(100);
                    }
                    return;
                }
                Some(Verdict::Later(at)) => commit = at,
                _ => return,
            }
        }
    }

    fn shown(&mut self, key: u64, at: Timestamp) -> Shown {
        let at = ReadAt::Snapshot(at);
        let (keyspace, key) = (keyspace_of(key), &key.to_be_bytes());
        let get = Get { keyspace, at, client: CLIENT, wait: false, key };
        let answer = self.ask(|envelope, out| get.encode(envelope, out))?;
        let value = Value::decode(&Frame::parse(&answer).unwrap()).ok()?;
        (!value.prepared_before).then(|| (value.present, value.value.to_vec()))
    }
}

/// A replica that takes a checkpoint, and its own log.
struct Taker {
    rebuild: Option<Rebuild>,
    backup: Option<Backup>,
    own_log: Vec<LogAppend>,
    /// How many came.
    parts: u64,
}

/// The number of the checkpoint that is taken.
const SESSION: u64 = 1;

impl Taker {
    fn new(media: &MemoryMedia) -> Self {
        let rebuild = Some(Rebuild::new(SHARD, store_on(media), SESSION));
        Self { rebuild, backup: None, own_log: Vec::new(), parts: 0 }
    }

    /// One step further: a part, which may be lost; or a batch of the primary.
    fn go_on(&mut self, dice: &mut Dice, served: &mut Served, counted: &[LogAppend]) {
        if let Some(backup) = &mut self.backup {
            let last = backup.last();
            for LogAppend { head, bytes } in counted.iter().filter(|one| one.head.batch > last) {
                backup.take(served.now, *head, bytes).unwrap();
                self.own_log.push(LogAppend { head: *head, bytes: bytes.clone() });
            }
            return backup.turn(served.now).unwrap();
        }
        let Some(rebuild) = &mut self.rebuild else { return };
        match rebuild.step() {
            RebuildStep::Ask(ask) => {
                served.driver.send(STAGE, Event::AskPart(ask)).unwrap();
                served.turns();
                while let Some(CheckpointPart { ask: of, bytes, .. }) = served.stage.take_part() {
                    assert_eq!(of, ask);
                    self.parts += 1;
                    let is_lost = dice.below(6) == 0;
                    for _ in 0..if is_lost { 0 } else { dice.below(2) + 1 } {
                        rebuild.part(served.now, bytes.clone()).unwrap();
                    }
                }
            }
            RebuildStep::Wait => rebuild.turn(served.now).unwrap(),
            RebuildStep::Done { through, .. } => {
                let rebuild = self.rebuild.take().unwrap();
                assert_eq!(self.own_log.last().unwrap().head.batch, through);
                let backup = rebuild.into_backup(&[LOG]);
                assert_eq!(backup.last(), through);
                self.backup = Some(backup);
                return;
            }
            RebuildStep::Anew => panic!("the primary is the same"),
        }
        let batches = core::iter::from_fn(|| rebuild.take_batch())
            .map(|(head, bytes)| LogAppend { head, bytes });
        self.own_log.extend(batches);
    }
}

/// What the clients do, among them those that let versions be collected.
fn busy_step(dice: &mut Dice, served: &mut Served, known: &mut Known) {
    match dice.below(12) {
        0..=5 => {
            known.sequence += 1;
            served.write_large(dice, known.sequence);
        }
        6 if dice.below(6) == 0 && known.open.is_empty() => served.fence(known),
        // The log lets go of what is old, and tombstones may be dropped.
        8 if dice.below(3) == 0 => served.pass(2_000),
        7 if dice.below(3) == 0 => {
            // Nothing holds the watermark, so that the device does not fill up.
            decide_all(dice, served, known);
            served.report(known.oldest(served.now));
        }
        _ => step(dice, served, known),
    }
}

/// Writes and promises that are in the log, and not durable when the checkpoint begins.
fn begin_with_writes(dice: &mut Dice, served: &mut Served, known: &mut Known, taker: &mut Taker) {
    served.is_held = true;
    let mut tried = Vec::new();
    let mut keys = BTreeSet::new();
    for _ in 0..dice.below(5) {
        let asked = known.wish(dice, served.now);
        if !known.open.contains_key(&asked.key) && keys.insert(asked.key) {
            let commit = served.write_in_vain(&asked);
            tried.push((asked, commit));
        }
    }
    for _ in 0..dice.below(8) {
        taker.go_on(dice, served, &[]);
    }
    served.is_held = false;
    for (asked, commit) in tried {
        let (verdict, commit) = served.write(&asked, commit);
        assert_eq!(verdict, Verdict::Yes, "{asked:?}");
        known.carried_out(&asked);
        known.done.push((asked, commit));
    }
}

/// What has happened in a run, so that not all of them are without it.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    collected_blocks: u64,
    dropped_tombstones: u64,
    parts: u64,
}

impl Met {
    fn add(self, other: Self) -> Self {
        Self {
            collected_blocks: self.collected_blocks + other.collected_blocks,
            dropped_tombstones: self.dropped_tombstones + other.dropped_tombstones,
            parts: self.parts + other.parts,
        }
    }
}

fn is_rebuilt(seed: u64, restarts: bool) -> Met {
    let mut dice = Seed(seed).derive("rebuilt", 0).dice();
    let (own, others) = (small_media(), small_media());
    let replay = Replay::new(SHARD, store_on(&own));
    let gauges = Arc::new(ShardGauges::new(SHARD));
    let with = Recovering { gauges: Arc::clone(&gauges), ..recovering(START) };
    let mut served = Served::new(replay.finish(with), START);
    let (mut known, mut counted) = (Known::default(), Vec::new());
    for _ in 0..dice.below(600) + 200 {
        busy_step(&mut dice, &mut served, &mut known);
    }
    let mut taker = Taker::new(&others);
    begin_with_writes(&mut dice, &mut served, &mut known, &mut taker);
    for _ in 0..2_000 {
        if taker.backup.is_some() && dice.below(30) == 0 {
            break;
        }
        if dice.below(3) > 0 {
            busy_step(&mut dice, &mut served, &mut known);
        }
        counted.append(&mut served.logged);
        taker.go_on(&mut dice, &mut served, &counted);
    }
    assert!(taker.backup.is_some(), "the checkpoint comes to its end");
    served.pass(10);
    counted.append(&mut served.logged);
    taker.go_on(&mut dice, &mut served, &counted);

    // What snapshots show now, they show at the next primary.
    let now = served.now;
    let moments: Vec<Timestamp> = (0..6)
        .map(|_| now.saturating_sub(Duration::from_millis(dice.below(5_000))))
        .chain([now])
        .collect();
    let mut shown = Vec::new();
    for &at in &moments {
        for key in 0..LARGE_KEYS.end {
            shown.push((key, at, served.shown(key, at)));
        }
    }
    counted.append(&mut served.logged);
    taker.go_on(&mut dice, &mut served, &counted);
    let now = served.now;
    drop(served);
    let mut backup = taker.backup.unwrap();
    if restarts {
        let kept_from = backup.keep_from();
        drop(backup);
        others.kill(seed);
        let replay = replayed(&others, now, &taker.own_log, kept_from);
        backup = Backup::new(replay, &[LOG]);
    }
    let now = now.saturating_add(Duration::from_millis(100));
    let floor = now.saturating_add(Duration::from_millis(dice.below(900)));
    let mut served = Served::new(backup.promote(floor, recovering(now)), now);
    while served.now <= floor {
        served.pass(100);
    }
    for (key, at, before) in shown {
        let after = served.shown(key, at);
        if before.is_some() && !known.open.contains_key(&key) {
            assert_eq!(after, before, "key {key} at {at}");
        }
    }
    check(&mut dice, served, known);
    let figure = |name| gauges.store().find(|(of, _)| *of == name).unwrap().1;
    Met {
        collected_blocks: figure("collected_blocks_total"),
        dropped_tombstones: figure("dropped_tombstones_total"),
        parts: taker.parts,
    }
}

#[test]
fn a_replica_that_begins_with_a_checkpoint_has_everything() {
    let met = (0..40).map(|seed| is_rebuilt(seed, false)).fold(Met::default(), Met::add);
    assert!(met.collected_blocks > 400 && met.dropped_tombstones > 10, "{met:?}");
    assert!(met.parts > 80, "{met:?}");
}

#[test]
fn a_replica_that_has_taken_a_checkpoint_keeps_it_over_a_restart() {
    for seed in 0..40 {
        is_rebuilt(seed, true);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_checkpoint_that_lacks_something_is_noticed() {
    use timestone_types::planted::{Bug, with};

    let bugs =
        [Bug::CheckpointWithoutTombstones, Bug::CheckpointWithoutState, Bug::EarlyCheckpoint];
    for bug in bugs {
        let fails = (0..60).any(|seed| {
            with(bug, || std::panic::catch_unwind(|| is_rebuilt(seed, false)).is_err())
        });
        assert!(fails, "{bug:?}");
    }
}

/// A primary with some parts to give.
fn filled() -> Served {
    let replay = Replay::new(SHARD, store_on(&media()));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let mut dice = Seed(1).dice();
    for sequence in 1..200 {
        served.write_large(&mut dice, sequence);
    }
    served
}

fn ask(served: &mut Served, part: u64) -> Option<Vec<u8>> {
    let ask = PartAsk { session: SESSION, part };
    assert_eq!(PartAsk::from_bytes(&ask.to_bytes()), Some(ask));
    served.driver.send(STAGE, Event::AskPart(ask)).unwrap();
    for _ in 0..20 {
        served.turns();
    }
    served.stage.take_part().map(|part| part.bytes)
}

#[test]
fn a_checkpoint_is_begun_anew_at_another_primary() {
    let [mut first, mut second] = [filled(), filled()];
    let mut rebuild = Rebuild::new(SHARD, store_on(&media()), SESSION);
    let part = ask(&mut first, 0).expect("a part");
    assert_eq!(ask(&mut first, 0), Some(part.clone()), "it may have been lost");
    rebuild.part(first.now, part).unwrap();
    for _ in 0..100 {
        rebuild.turn(first.now).unwrap();
    }
    let next = PartAsk { session: SESSION, part: 1 };
    assert_eq!(rebuild.step(), RebuildStep::Ask(next));
    let gone = ask(&mut second, 1).expect("an answer");
    rebuild.part(first.now, gone).unwrap();
    assert_eq!(rebuild.step(), RebuildStep::Anew);
}

impl Served {
    /// Promises a large value, of a transaction over two shards.
    fn promise_large(&mut self, sequence: u64, bytes: usize) {
        let txn = TxnId::new(CLIENT, Sequence::new(sequence));
        let (begin, participants) = (self.now, &[SHARD, FAR_SHARD]);
        let mut commit = begin.next();
        let value = vec![sequence as u8; bytes];
        for _ in 0..3 {
            let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants };
            let answer = self.ask(|envelope, out| {
                let mut writer = PrepareWriter::begin(envelope, &head, out);
                let (kind, expires_at) = (WriteKind::Put, Expiry::NEVER);
                let (key, value) = (&sequence.to_be_bytes()[..], &value[..]);
                writer.write(&WriteEntry { keyspace: KEYSPACE, kind, expires_at, key, value });
                writer.finish();
            });
            let answer = answer.expect("an answer");
            let frame = Frame::parse(&answer).unwrap();
            match Vote::decode(&frame).unwrap().verdict {
                Verdict::Yes => return,
                Verdict::Later(at) => commit = at,
                Verdict::No(reason) => panic!("{reason:?}"),
            }
        }
        panic!("a promise is never made");
    }
}

/// Whether a primary gives a checkpoint with more undecided promises than may be tapped.
fn large_state_is_given() -> bool {
    let replay = Replay::new(SHARD, store_on(&media()));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let promised = crate::checkpoint::MAX_TAPPED_BYTES + 128 * 1024;
    for sequence in 1..=(promised / (16 * 1024)) as u64 {
        served.promise_large(sequence, 16 * 1024);
    }
    let mut taker = Taker::new(&media());
    let mut dice = Seed(1).dice();
    for _ in 0..2_000 {
        let is_given_up =
            taker.rebuild.as_ref().is_some_and(|rebuild| rebuild.step() == RebuildStep::Anew);
        if is_given_up {
            return false;
        }
        if taker.backup.is_some() {
            return true;
        }
        taker.go_on(&mut dice, &mut served, &[]);
    }
    false
}

#[test]
fn a_checkpoint_with_more_state_than_may_be_tapped_comes_to_its_end() {
    assert!(large_state_is_given());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_checkpoint_that_is_given_up_for_its_state_is_noticed() {
    use timestone_types::planted::{Bug, with};
    assert!(!with(Bug::CountsTappedState, large_state_is_given));
}

/// How often a primary records its state again for a checkpoint that needs what is damaged, while it
/// is asked for one every second of half a minute.
fn begun_beside_damage() -> usize {
    let media = media();
    let replay = Replay::new(SHARD, store_on(&media));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let (mut dice, mut known) = (Seed(1).dice(), Known::default());
    for sequence in 1..100 {
        served.write_large(&mut dice, sequence);
    }
    known.sequence = 100;
    let asked = Asked { key: 1, ..known.wish(&mut dice, served.now) };
    assert!(served.promise(&asked).is_some(), "there is state");
    (0..20).for_each(|_| served.pass(400));
    for page in (0..1 << 14).map(PageId) {
        media.flip_bit(page, 2_000 * 8);
    }
    let before = served.logged.len();
    for _ in 0..30 {
        assert_eq!(ask(&mut served, 0), None, "no part is whole");
        served.pass(1_000);
    }
    let is_state = |append: &&LogAppend| {
        BatchRecords::new(&append.bytes).any(|record| {
            matches!(LogRecord::decode(record.unwrap()), Ok(LogRecord::Prepare { .. }))
        })
    };
    served.logged[before..].iter().filter(is_state).count()
}

#[test]
fn a_checkpoint_that_needs_what_is_damaged_is_begun_ever_more_seldom() {
    let begun = begun_beside_damage();
    assert!((1..=3).contains(&begun), "{begun} times");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_primary_that_begins_checkpoints_in_vain_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let begun = with(Bug::ExportsInVain, begun_beside_damage);
    assert!(begun > 10, "{begun} times");
}

#[test]
fn a_checkpoint_that_nobody_asks_for_any_more_makes_way_for_another() {
    let mut served = filled();
    ask(&mut served, 0).expect("a part");
    let other = PartAsk { session: SESSION + 1, part: 0 };
    served.driver.send(STAGE, Event::AskPart(other)).unwrap();
    served.turns();
    assert_eq!(served.stage.take_part(), None, "one at a time");
    served.pass(11_000);
    served.driver.send(STAGE, Event::AskPart(other)).unwrap();
    for _ in 0..20 {
        served.turns();
    }
    assert_eq!(served.stage.take_part().map(|part| part.ask), Some(other));
}

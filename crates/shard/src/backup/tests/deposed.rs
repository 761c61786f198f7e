//! Two replicas that take turns: the primary is deposed, becomes a backup over the same store, and
//! later the primary again. What it had logged last does not count, unless it is in the table of the
//! next epoch.

use timestone_seda::{Memory, MemoryUse};
use timestone_store::{Dram, DramConfig, Reads, Stores};

use super::*;
use crate::gauges::ShardGauges;

impl Served {
    /// Its backups do not hear it any more: nothing counts of what it logs from now on.
    fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// Asks for a write that is not told to be done; at which timestamp at last.
    pub(super) fn write_in_vain(&mut self, asked: &Asked) -> Timestamp {
        let mut commit = asked.begin.next();
        loop {
            match self.try_write(asked, commit) {
                Some(Verdict::Later(at)) => commit = at,
                told => {
                    assert_eq!(told, None, "{asked:?} does not count");
                    return commit;
                }
            }
        }
    }

    fn depose(self) -> Box<dyn timestone_store::Store + Send> {
        self.stage.take().depose()
    }
}

impl Known {
    /// Whoever was not answered is told by the records of the next epoch's table.
    fn settle(&mut self, table: &[LogAppend]) {
        for LogAppend { bytes, .. } in table {
            for record in BatchRecords::new(bytes) {
                match LogRecord::decode(record.unwrap()).unwrap() {
                    LogRecord::Prepare { txn, commit, single, .. } => {
                        let Some(&(asked, _)) = self.tried.get(&txn) else { continue };
                        self.latest = self.latest.max(commit);
                        if single {
                            self.tried.remove(&txn);
                            self.carried_out(&asked);
                            self.done.push((asked, commit));
                        } else {
                            self.open.insert(asked.key, (asked, commit));
                        }
                    }
                    LogRecord::Decision { txn, commit, .. } => {
                        // A deletion of what is not there: it has its outcome, and no effect.
                        self.tried.remove(&txn);
                        let of = self.open.values().find(|(asked, _)| asked.txn == txn);
                        let Some(&(asked, _)) = of else { continue };
                        self.open.remove(&asked.key);
                        if commit > Timestamp::ZERO {
                            self.carried_out(&asked);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// One step of the clients of a primary that is cut off: nobody is told that anything was done.
fn attempt(dice: &mut Dice, served: &mut Served, known: &mut Known) {
    let asked = known.wish(dice, served.now);
    match dice.below(8) {
        0..=3 if !known.open.contains_key(&asked.key) => {
            served.write_in_vain(&asked);
            known.tried.insert(asked.txn, (asked, true));
        }
        4..=5 if !known.open.contains_key(&asked.key) => {
            assert_eq!(served.promise(&asked), None, "{asked:?} does not count");
            known.tried.insert(asked.txn, (asked, false));
        }
        6 => {
            let undecided =
                |(asked, _): &&(Asked, Timestamp)| !known.fates.contains_key(&asked.txn);
            let Some(&(asked, commit)) = known.open.values().find(undecided) else { return };
            let commits = dice.below(3) > 0;
            let decision = Decide::new(asked.txn, commits.then_some(commit));
            let told = served.ask(|envelope, out| decision.encode(envelope, out));
            assert_eq!(told, None, "the decision of {asked:?} does not count");
            known.fates.insert(asked.txn, commits);
        }
        _ => served.pass(dice.below(40)),
    }
}

/// The other replica, and what its own log has let go of.
struct Other {
    backup: Backup,
    kept_from: BatchNumber,
}

impl Other {
    fn new(backup: Backup, kept_from: BatchNumber) -> Self {
        Self { backup, kept_from }
    }

    /// Takes what counts now.
    fn follow(&mut self, now: Timestamp, counted: &[LogAppend]) {
        let last = self.backup.last();
        for LogAppend { head, bytes } in counted.iter().filter(|one| one.head.batch > last) {
            self.backup.take(now, *head, bytes).unwrap();
        }
        self.backup.turn(now).unwrap();
    }

    fn empty_log(&mut self) {
        let keep_from = self.backup.keep_from();
        assert!(keep_from >= self.kept_from, "what the log has let go of is not needed again");
        self.kept_from = keep_from;
        self.backup.log_retained(LOG, keep_from);
    }
}

fn appended(append: &LogAppend) -> LogAppend {
    LogAppend { head: append.head, bytes: append.bytes.clone() }
}

/// What was asked of the deposed primary in vain has left no trace; somebody asks again.
fn check_lost(dice: &mut Dice, served: &mut Served, known: &mut Known) {
    while served.now < known.latest {
        served.pass(100);
    }
    for key in (0..KEYS).filter(|key| !known.open.contains_key(key)) {
        assert_eq!(served.read(key), known.values.get(&key).copied(), "key {key}");
    }
    for (_, (asked, is_single)) in std::mem::take(&mut known.tried) {
        if is_single && dice.below(2) == 0 && !known.open.contains_key(&asked.key) {
            // It is a new one: refused where another one has been carried out since.
            let (verdict, commit) = served.write(&asked, asked.begin.next());
            if verdict == Verdict::Yes {
                known.carried_out(&asked);
                known.done.push((asked, commit));
            }
        }
    }
}

fn take_turns(seed: u64) {
    let mut dice = Seed(seed).derive("turns", 0).dice();
    let media = [media(), media()];
    let replay = Replay::new(SHARD, store_on(&media[0]));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let replay = Replay::new(SHARD, store_on(&media[1]));
    let mut other = Other::new(Backup::new(replay, &[LOG]), BatchNumber::ZERO);
    let (mut known, mut counted) = (Known::default(), Vec::new());
    for turn in 0..dice.below(4) + 2 {
        for _ in 0..dice.below(50) + 5 {
            step(&mut dice, &mut served, &mut known);
            counted.append(&mut served.logged);
            if dice.below(3) == 0 {
                other.follow(served.now, &counted);
                other.empty_log();
            }
        }
        served.cut_off();
        for _ in 0..dice.below(15) {
            attempt(&mut dice, &mut served, &mut known);
        }
        let uncounted = std::mem::take(&mut served.uncounted);
        let in_table = &uncounted[..dice.below(uncounted.len() as u64 + 1) as usize];
        known.settle(in_table);
        // The deposed one replays what counts of its own log.
        let (now, kept_from) = (served.now, served.kept_from);
        let mut replay = Replay::new(SHARD, served.depose()).beside_others();
        for LogAppend { head, bytes } in counted.iter().filter(|one| one.head.batch >= kept_from) {
            replay.batch(now, *head, bytes).unwrap();
        }
        let deposed = Other::new(Backup::new(replay, &[LOG]), kept_from);
        counted.extend(in_table.iter().map(appended));
        other.follow(now, &counted);
        assert!(!other.backup.has_failed());
        let now = now.saturating_add(Duration::from_millis(100));
        let floor = now.saturating_add(Duration::from_millis(dice.below(900)));
        let Other { backup, kept_from } = std::mem::replace(&mut other, deposed);
        served = Served::new(backup.promote(floor, recovering(now)), now);
        served.kept_from = kept_from;
        if dice.below(3) == 0 {
            let own = &media[(turn % 2) as usize];
            other.follow(now, &counted);
            other.empty_log();
            let Other { backup, kept_from } = other;
            drop(backup);
            own.kill(seed);
            let replay = replayed(own, now, &counted, kept_from);
            other = Other::new(Backup::new(replay, &[LOG]), kept_from);
        }
        check_lost(&mut dice, &mut served, &mut known);
    }
    check(&mut dice, served, known);
}

#[test]
fn replicas_take_turns_and_nothing_that_does_not_count_survives() {
    for seed in 0..150 {
        take_turns(seed);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_deposed_primary_that_keeps_what_does_not_count_is_noticed() {
    use timestone_types::planted::{Bug, with};

    for bug in [Bug::PutsWhenDeposed, Bug::OldBatchNumbers] {
        let fails = (0..150)
            .any(|seed| with(bug, || std::panic::catch_unwind(|| take_turns(seed)).is_err()));
        assert!(fails, "{bug:?}");
    }
}

#[test]
fn a_deposed_primary_gives_its_memory_back_and_shows_no_promise() {
    let gauges = Arc::new(ShardGauges::new(SHARD));
    let memory = Arc::new(Memory::new(1 << 30, 1 << 30, 1 << 30));
    let with = Recovering {
        gauges: Arc::clone(&gauges),
        memory: Arc::clone(&memory),
        ..recovering(START)
    };
    let mut served = Served::new(Replay::new(SHARD, store_on(&media())).finish(with), START);
    let (txn, begin) = (TxnId::new(CLIENT, Sequence::new(1)), served.now);
    let (participants, commit) = (&[SHARD, FAR_SHARD], begin.next());
    let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants };
    served.ask(|envelope, out| {
        let mut writer = PrepareWriter::begin(envelope, &head, out);
        let (kind, expires_at, value) = (WriteKind::Put, Expiry::NEVER, &[7; 1 << 20]);
        writer.write(&WriteEntry { keyspace: KEYSPACE, kind, expires_at, key: b"key", value });
        writer.finish();
    });
    served.pass(100);
    let prepared = || gauges.prepared.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(prepared(), 1);
    assert!(memory.used(MemoryUse::Writes) >= 1 << 20);
    let (now, store) = (served.now, served.depose());
    assert_eq!((prepared(), memory.used(MemoryUse::Writes)), (0, 0));
    let mut backup = Backup::new(Replay::new(SHARD, store).beside_others(), &[LOG]);
    backup.publish(now, &gauges);
    assert_eq!(prepared(), 0, "it was fed with nothing");
}

#[test]
fn a_backup_that_ends_closes_its_store_with_a_checkpoint() {
    let (own, others) = (media(), media());
    let replay = Replay::new(SHARD, store_on(&own));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let mut backup = Backup::new(Replay::new(SHARD, store_on(&others)), &[LOG]);
    idle(&mut served, &mut backup);
    let gauges = Arc::new(ShardGauges::new(SHARD));
    let checkpoints = |backup: &mut Backup, now| {
        backup.publish(now, &gauges);
        gauges.store().find(|(name, _)| *name == "checkpoints_total").unwrap().1
    };
    let mut now = served.now;
    let before = checkpoints(&mut backup, now);
    backup.shutdown(now).unwrap();
    for _ in 0..10_000 {
        if !backup.is_drained() {
            now = now.saturating_add(Duration::from_millis(1));
            backup.turn(now).unwrap();
        }
    }
    assert!(backup.is_drained());
    now = now.saturating_add(Duration::from_millis(100));
    assert_eq!(checkpoints(&mut backup, now), before + 1);
}

#[test]
fn a_primary_without_backups_ends_when_its_log_is_given_up() {
    let mut served =
        Served::new(Replay::new(SHARD, store_on(&media())).finish(recovering(START)), START);
    let (mut known, mut dice) = (Known::default(), Seed(4).dice());
    served.cut_off();
    let asked = known.wish(&mut dice, served.now);
    assert_eq!(served.try_write(&asked, asked.begin.next()), None);
    served.driver.begin_shutdown();
    for _ in 0..100 {
        served.pass(100);
    }
    assert!(!served.stage.drained(), "it waits for its backups");
    served.driver.send(STAGE, Event::LogFailed { log: LOG }).unwrap();
    for _ in 0..10 {
        served.pass(10);
    }
    assert!(served.stage.drained(), "within a moment");
}

const MEMORY: KeyspaceId = KeyspaceId::numbered(4, true);

/// As [`store_on`], with keyspaces in memory.
fn stores_on(media: &MemoryMedia) -> Box<Stores> {
    let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
    let flash = Mftl::open(Box::new(media.open()), config).unwrap().0;
    let config = DramConfig { seed: flash.seed(), memory_bytes: 1 << 20 };
    Box::new(Stores::new(flash, Dram::in_recovery(config)))
}

impl Served {
    /// Writes into the keyspace in memory, as soon as that may be.
    fn write_in_memory(&mut self, number: u64) {
        let (txn, mut commit) = (TxnId::new(CLIENT, Sequence::new(number)), self.now.next());
        for _ in 0..50 {
            let asked = Write {
                txn,
                begin: self.now,
                commit,
                keyspace: MEMORY,
                action: WriteAction::Put,
                wait: false,
                return_previous: false,
                expires_at: Expiry::NEVER,
                condition: timestone_wire::Condition::Always,
                key: b"key",
                value: &number.to_be_bytes(),
            };
            let answer = self.ask(|envelope, out| asked.encode(envelope, out)).unwrap();
            let frame = Frame::parse(&answer).unwrap();
            let is_written = frame.kind() == Kind::Written;
            match is_written.then(|| Written::decode(&frame).unwrap().verdict) {
                Some(Verdict::Yes) => return self.pass(100),
                Some(Verdict::Later(at)) => commit = at,
                _ => {
                    self.pass(300);
                    commit = self.now.next();
                }
            }
        }
        panic!("{number} is never written");
    }

    /// What the keyspace in memory shows, as soon as it may be read.
    fn read_in_memory(&mut self) -> Option<u64> {
        for _ in 0..50 {
            let at = ReadAt::Latest(self.now);
            let get = Get { keyspace: MEMORY, at, client: CLIENT, wait: false, key: b"key" };
            let answer = self.ask(|envelope, out| get.encode(envelope, out)).unwrap();
            match Value::decode(&Frame::parse(&answer).unwrap()) {
                Ok(value) => {
                    let number = || u64::from_be_bytes(value.value.try_into().unwrap());
                    return value.present.then(number);
                }
                Err(_) => self.pass(300),
            }
        }
        panic!("it is never read");
    }
}

#[test]
fn a_keyspace_in_memory_is_lost_whole_with_each_change_of_the_primary() {
    let replay = Replay::new(SHARD, stores_on(&media()));
    let mut served = Served::new(replay.finish(recovering(START)), START);
    let mut other = Backup::new(Replay::new(SHARD, stores_on(&media())), &[LOG]);
    let mut counted = Vec::new();
    for number in [1, 2, 3, 4] {
        served.write_in_memory(number);
        assert_eq!(served.read_in_memory(), Some(number));
        counted.append(&mut served.logged);
        let now = served.now;
        let mut replay = Replay::new(SHARD, served.depose()).beside_others();
        for LogAppend { head, bytes } in &counted {
            replay.batch(now, *head, bytes).unwrap();
        }
        let last = other.last();
        for LogAppend { head, bytes } in counted.iter().filter(|one| one.head.batch > last) {
            other.take(now, *head, bytes).unwrap();
        }
        let next = std::mem::replace(&mut other, Backup::new(replay, &[LOG]));
        served = Served::new(next.promote(now, recovering(now)), now);
        assert_eq!(served.read_in_memory(), None, "after {number}");
    }
}

//! Whether what the store has found of a key may be told: it may be in doubt whether that had
//! expired before a restart, or will have after the next one ([`ExpiryRule::may_tell`]). Each
//! look-up passes here: those that are answered at once, and those that wait for a page. Scans and
//! counts do not: the core lets them begin when nothing is in doubt for them.

use timestone_store::{Lookup, ReadOutcome, StoreError};
use timestone_txn::Refusal;
use timestone_txn::participant::ExpiryRule;
use timestone_types::Timestamp;

/// Of what was found at once, as of `snapshot` ([`Timestamp::MAX`]: what is latest).
#[inline]
pub(crate) fn check(
    rule: &ExpiryRule,
    snapshot: Timestamp,
    found: &Result<Lookup<'_>, StoreError>,
) -> Result<(), Refusal> {
    match *found {
        Ok(Lookup::Present { expires_at, .. }) => rule.may_tell(snapshot, true, expires_at),
        Ok(Lookup::Absent { expires_at, .. }) => rule.may_tell(snapshot, false, expires_at),
        Ok(Lookup::Pending) | Err(_) => Ok(()),
    }
}

/// Of what a page read has found.
pub(crate) fn check_read(
    rule: &ExpiryRule,
    snapshot: Timestamp,
    found: &ReadOutcome,
) -> Result<(), Refusal> {
    match *found {
        ReadOutcome::Present { expires_at, .. } => rule.may_tell(snapshot, true, expires_at),
        ReadOutcome::Absent { expires_at, .. } => rule.may_tell(snapshot, false, expires_at),
        ReadOutcome::Failed(_) => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_seda::manual::ManualDriver;
    use timestone_seda::{FrameBatch, Stage, StageId};
    use timestone_store::prelude::*;
    use timestone_store::{Lookup, Mftl, MftlConfig, ReadToken, StoreEvent};
    use timestone_txn::limits::{BOUND_AHEAD, EXPIRY_BELOW_BOUND};
    use timestone_types::{
        AbortKind, ClientId, Epoch, Expiry, KeyRef, KeyspaceId, Sequence, ShardId, Timestamp,
        TxnId, Version,
    };
    use timestone_wal::{BatchNumber, LogRecord, RecordNumber};
    use timestone_wire::{
        Condition, Count, Counted, Envelope, ErrorCode, ErrorReply, Frame, Frames, Get, Message,
        Newest, NewestIs, ReadAt, Value, Verdict, Write, WriteAction, Written,
    };

    use crate::replay::{Recovering, Replay};
    use crate::shard::{LogPlace, RecordPlace, own_reply_address};
    use crate::testing::Event;

    pub(crate) const SHARD: ShardId = ShardId::new(0);
    const STAGE: StageId = StageId::new(0);
    const LOG: StageId = StageId::new(5);
    const ASKER: StageId = StageId::new(7);
    const CLIENT: ClientId = ClientId::new(3);
    const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;
    const OTHERS: KeyspaceId = KeyspaceId::new(5);
    /// Where the clock stood when the last run had its last durable bound written, and where this
    /// one begins.
    pub(crate) const START: Timestamp = Timestamp::from_nanos(100_000_000_000);
    /// The length in front of a record of a batch.
    const PREFIX_BYTES: usize = 4;
    /// Keys, and how long after the start they expire; what expires before 500 ms have passed may
    /// have been told expired.
    const KEYS: [(&[u8], u64); 3] = [(b"gone", 0), (b"doubtful", 300), (b"alive", 501)];

    pub(crate) fn after_start(millis: u64) -> Timestamp {
        START.saturating_add(Duration::from_millis(millis))
    }

    /// A shard after a restart, whose records are in its cache or on its device.
    pub(crate) struct Bench {
        pub(crate) driver: ManualDriver<Event>,
        appended: Vec<BatchNumber>,
    }

    impl Bench {
        pub(crate) fn new(cache_bytes: u64, log: LogPlace) -> Self {
            let config = MemoryConfig { completions_per_poll: 1, ..MemoryConfig::default() };
            let mftl = MftlConfig { cache_bytes, checkpoint_bytes: 0, ..MftlConfig::default() };
            let (mut store, _) =
                Mftl::open(Box::new(MemoryMedia::new(config).open()), mftl).unwrap();
            for (name, millis) in KEYS {
                let key = KeyRef::new(store.seed(), KEYSPACE, name);
                let version = Version::new(Timestamp::from_nanos(50_000_000_000), CLIENT);
                store.put(key, version, &[7; 500], Expiry::at(after_start(millis))).unwrap();
            }
            let late = KeyRef::new(store.seed(), OTHERS, b"late");
            let version = Version::new(Timestamp::from_nanos(50_000_000_000), CLIENT);
            store.put(late, version, &[7; 500], Expiry::at(after_start(1501))).unwrap();
            // What is written last stays in memory for a while.
            for n in 0..2000_u32 {
                let name = n.to_be_bytes();
                let key = KeyRef::new(store.seed(), OTHERS, &name);
                store
                    .put(
                        key,
                        Version::new(Timestamp::from_nanos(50_000_000_000), CLIENT),
                        &[7; 500],
                        Expiry::NEVER,
                    )
                    .unwrap();
            }
            store.sync_soon();
            let mut events = Vec::new();
            for millis in 0..1000 {
                store.pump(Timestamp::from_nanos(51_000_000_000 + millis * 1_000_000), &mut events);
            }
            let key = KeyRef::new(store.seed(), KEYSPACE, b"alive");
            let waits = matches!(store.get(key, START, ReadToken(u64::MAX)), Ok(Lookup::Pending));
            assert_eq!(waits, cache_bytes == 0, "a page is read where there is no cache");
            while waits && !events.iter().any(|event| matches!(event, StoreEvent::ReadDone { .. }))
            {
                store.pump(START, &mut events);
            }
            let mut replay = Replay::new(SHARD, Box::new(store));
            let (bound, watermark, mut record) =
                (START.saturating_add(BOUND_AHEAD), Timestamp::ZERO, Vec::new());
            LogRecord::ReadBound { bound, watermark }.encode(&mut record);
            let place = RecordPlace {
                batch: BatchNumber::new(1),
                epoch: Epoch::default(),
                number: RecordNumber::FIRST,
            };
            replay.record(START, place, &record[PREFIX_BYTES..]).unwrap();
            let stage = replay.finish(Recovering::alone(SHARD, log, START));
            let driver = ManualDriver::new(
                vec![Box::new(crate::testing::TestStage(stage)) as Box<dyn Stage<Event>>],
                START,
                1000,
            );
            Self { driver, appended: Vec::new() }
        }

        pub(crate) fn ask<T>(
            &mut self,
            encode: impl FnOnce(&Envelope, &mut Vec<u8>),
            read: impl FnOnce(&Frame<'_>) -> T,
        ) -> Result<T, ErrorCode> {
            let (envelope, mut bytes) =
                (Envelope { shard: SHARD, ..Envelope::default() }, Vec::new());
            encode(&envelope, &mut bytes);
            for _ in 0..1000 {
                // The device has no file descriptor that would wake the stage.
                let frame_batch =
                    FrameBatch::new(own_reply_address(ASKER), std::mem::take(&mut bytes));
                self.driver.send(STAGE, Event::FrameBatch(frame_batch)).unwrap();
                self.driver.turn();
                while let Some((to, event)) = self.driver.take_sent() {
                    match event {
                        Event::LogAppend(append) => self.appended.push(append.head.batch),
                        Event::FrameBatch(frame_batch) if to == ASKER => {
                            let frame =
                                Frame::parse(timestone_wire::without_clock(&frame_batch.bytes))
                                    .unwrap();
                            return ErrorReply::decode(&frame)
                                .map_or_else(|_| Ok(read(&frame)), |error| Err(error.code));
                        }
                        _ => {}
                    }
                }
            }
            panic!("no answer");
        }

        fn get(&mut self, key: &[u8], at: ReadAt) -> Result<bool, ErrorCode> {
            let get = Get { keyspace: KEYSPACE, at, client: CLIENT, wait: false, key };
            self.ask(
                |envelope, out| get.encode(envelope, out),
                |frame| Value::decode(frame).unwrap().present,
            )
        }

        fn latest(&mut self, key: &[u8]) -> Result<bool, ErrorCode> {
            self.get(key, ReadAt::Latest(START))
        }

        /// Writes where nothing is.
        fn add(
            &mut self,
            number: u64,
            key: &[u8],
            commit: Timestamp,
        ) -> Result<Verdict, ErrorCode> {
            self.write(&put_if(Condition::IfAbsent, number, key, commit))
        }

        pub(crate) fn write(&mut self, write: &Write<'_>) -> Result<Verdict, ErrorCode> {
            self.ask(
                |envelope, out| write.encode(envelope, out),
                |frame| Written::decode(frame).unwrap().verdict,
            )
        }

        fn newest(&mut self) -> Timestamp {
            let newest = Newest { keyspace: KEYSPACE };
            self.ask(
                |envelope, out| newest.encode(envelope, out),
                |frame| NewestIs::decode(frame).unwrap().at,
            )
            .unwrap()
        }

        fn count(&mut self, at: Timestamp) -> Result<u64, ErrorCode> {
            let count = Count { keyspace: KEYSPACE, at, client: CLIENT };
            self.ask(
                |envelope, out| count.encode(envelope, out),
                |frame| Counted::decode(frame).unwrap().keys,
            )
        }
    }

    pub(crate) fn put_if<'a>(
        condition: Condition<'a>,
        number: u64,
        key: &'a [u8],
        commit: Timestamp,
    ) -> Write<'a> {
        Write {
            txn: TxnId::new(CLIENT, Sequence::new(number)),
            begin: START,
            commit,
            keyspace: KEYSPACE,
            action: WriteAction::Put,
            wait: false,
            return_previous: false,
            expires_at: Expiry::NEVER,
            condition,
            key,
            value: b"new",
        }
    }

    fn is_present(answer: Result<Verdict, ErrorCode>) -> bool {
        matches!(answer, Ok(Verdict::No(reason)) if reason.kind == AbortKind::Condition)
    }

    const REFUSED: Result<bool, ErrorCode> = Err(ErrorCode::Unavailable);

    #[test]
    fn what_the_last_run_may_have_told_expired_is_not_told_alive() {
        for cache_bytes in [0, 16 << 20] {
            let mut bench = Bench::new(cache_bytes, LogPlace::Nowhere);
            assert_eq!(bench.latest(b"gone"), Ok(false));
            assert_eq!(bench.latest(b"alive"), Ok(true));
            assert_eq!(bench.latest(b"doubtful"), REFUSED);
            assert_eq!(bench.add(1, b"doubtful", after_start(1)), Err(ErrorCode::Unavailable));
            assert!(is_present(bench.add(2, b"alive", after_start(1))));
            // As of a snapshot before it, it is there whatever becomes of it.
            assert_eq!(bench.get(b"doubtful", ReadAt::Snapshot(after_start(299))), Ok(true));
            assert_eq!(bench.get(b"doubtful", ReadAt::Snapshot(after_start(300))), REFUSED);
            let newest = bench.newest();
            assert_eq!(
                newest,
                START.saturating_add(BOUND_AHEAD.saturating_sub(EXPIRY_BELOW_BOUND))
            );
            assert_eq!(bench.count(newest), Err(ErrorCode::Unavailable));

            bench.driver.set_now(after_start(299));
            assert_eq!(bench.latest(b"doubtful"), REFUSED);
            bench.driver.set_now(after_start(300));
            assert_eq!(bench.latest(b"doubtful"), Ok(false));
            assert_eq!(
                bench.count(newest),
                Err(ErrorCode::Unavailable),
                "others may still be in doubt"
            );
            bench.driver.set_now(after_start(500));
            assert_eq!(bench.count(newest), Ok(1));
            bench.driver.set_now(after_start(1000));
            assert_eq!(bench.add(3, b"doubtful", after_start(1001)), Ok(Verdict::Yes));
        }
    }

    /// Whether it is told alive, by a read and by a condition.
    #[cfg(feature = "planted-bugs")]
    fn is_told_alive(cache_bytes: u64) -> [bool; 3] {
        let mut bench = Bench::new(cache_bytes, LogPlace::Nowhere);
        let newest = bench.newest();
        [
            bench.latest(b"doubtful") == Ok(true),
            is_present(bench.add(1, b"doubtful", after_start(1))),
            bench.count(newest.max(START)) == Ok(2),
        ]
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn expiry_that_was_told_and_is_forgotten_is_noticed() {
        for cache_bytes in [0, 16 << 20] {
            let told = timestone_types::planted::with(
                timestone_types::planted::Bug::ForgottenToldExpiry,
                || is_told_alive(cache_bytes),
            );
            assert_eq!(told, [true; 3], "the planted bug is found");
        }
    }

    /// What becomes of a write where something must be, which expires while its page is read.
    fn expires_while_its_page_is_read() -> Verdict {
        let mut bench = Bench::new(0, LogPlace::Nowhere);
        bench.driver.set_now(after_start(1500));
        let (envelope, mut bytes) = (Envelope { shard: SHARD, ..Envelope::default() }, Vec::new());
        // The device completes few reads a turn, and these are asked for first.
        for n in [100_u32, 400, 700, 1000] {
            let (keyspace, at) = (OTHERS, ReadAt::Latest(START));
            Get { keyspace, at, client: CLIENT, wait: false, key: &n.to_be_bytes() }
                .encode(&envelope, &mut bytes);
        }
        let write = put_if(Condition::IfPresent, 1, b"late", after_start(1502));
        Write { keyspace: OTHERS, ..write }.encode(&envelope, &mut bytes);
        for turn in 0..1000 {
            bench
                .driver
                .send(
                    STAGE,
                    Event::FrameBatch(FrameBatch::new(
                        own_reply_address(ASKER),
                        std::mem::take(&mut bytes),
                    )),
                )
                .unwrap();
            bench.driver.turn();
            while let Some((_, event)) = bench.driver.take_sent() {
                let Event::FrameBatch(frame_batch) = event else { continue };
                let mut frames = Frames::new(timestone_wire::without_clock(&frame_batch.bytes))
                    .map(Result::unwrap);
                if let Some(written) = frames.find_map(|frame| Written::decode(&frame).ok()) {
                    assert!(turn > 0, "its page is read while the time passes");
                    return written.verdict;
                }
            }
            // Others may be told now that it has expired.
            bench.driver.set_now(after_start(1502));
        }
        panic!("no answer");
    }

    #[test]
    fn what_expires_while_its_page_is_read_is_not_found_by_the_write() {
        let verdict = expires_while_its_page_is_read();
        assert!(is_present(Ok(verdict)), "the condition does not hold: {verdict:?}");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn expiry_that_is_judged_before_the_page_is_read_is_noticed() {
        let bug = timestone_types::planted::Bug::JudgesBeforeThePage;
        let verdict = timestone_types::planted::with(bug, expires_while_its_page_is_read);
        assert_eq!(verdict, Verdict::Yes, "the planted bug is found");
    }

    /// What is told of a key that has expired, before and after a bound is durable that lets the
    /// next run know.
    fn told_before_and_after_the_bound(cache_bytes: u64) -> [Result<bool, ErrorCode>; 2] {
        let mut bench = Bench::new(cache_bytes, LogPlace::Stage(LOG));
        assert_eq!(bench.latest(b"gone"), Ok(false), "the last run's bound tells of it");
        bench.driver.set_now(after_start(501));
        let before = bench.latest(b"alive");
        assert!(!is_present(bench.add(1, b"alive", after_start(502))));
        let &batch = bench.appended.last().expect("the bound is on its way to the log");
        bench.driver.send(STAGE, Event::LogDurable { batch }).unwrap();
        [before, bench.latest(b"alive")]
    }

    #[test]
    fn nothing_is_told_expired_before_the_next_run_would_know() {
        for cache_bytes in [0, 16 << 20] {
            assert_eq!(told_before_and_after_the_bound(cache_bytes), [REFUSED, Ok(false)]);
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn expiry_that_is_told_before_the_next_run_would_know_is_noticed() {
        let told =
            timestone_types::planted::with(timestone_types::planted::Bug::UnsettledExpiry, || {
                told_before_and_after_the_bound(0)
            });
        assert_eq!(told, [Ok(false); 2], "the planted bug is found");
    }
}

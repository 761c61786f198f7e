//! The log stage: one per reactor thread, shared by the shards of that thread.
//!
//! ```text
//!   shard ── LogBatch{shard, batch, bytes} ──► log stage ── block, write, sync ──► device
//!   shard ◄─ LogDurable{batch} ──────────────┘      (everything queued during one sync is the next group)
//!   shard ── LogRelease{shard, keep_from} ───► whole old files go      LogCarry{below} ──► shard
//! ```
//! A run without a log has one such stage as well. It empties what earlier runs left, and makes a log when a shard that ends appends to it
//! what others still need.
//!
//! Invariants: a batch is acknowledged only when the log says durable; after a failure nothing is ever acknowledged again. Shards are
//! told when the log cannot make its next file, long before it has no room: they let in only what it can take, and what they have
//! let in can be finished. A log that has no room even for that counts as failed at a shutdown.
//! What it deliberately does not do: look into records. Source: DTranx §3.3, §3.4.

use std::collections::VecDeque;
use std::fmt::Display;

use timestone_seda::{Context, Stage, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{BatchNumber, Log, LogEvent, WalError};

use crate::error::ServerError;
use crate::event::{Event, LogAppend, LogShortage};
use crate::limits::{BLOCKED_LOG_PATIENCE, EMPTYING_POLL, LAST_LOG_POLL, LOG_ROOM_STEP_BYTES};

/// Makes the log for what a run without one leaves. Blocks, for as long as a small file takes to be made.
pub(crate) type LastLog = Box<dyn FnOnce(Timestamp) -> Result<Log, ServerError> + Send>;

/// Owns one log and answers the shards of its thread.
pub(crate) struct LogStage {
    name: String,
    log: Option<Log>,
    events: Vec<LogEvent>,
    // A batch the log had no room for; everything behind it waits, so that batches of a shard stay in order.
    blocked: bool,
    // All shards of the process: those of this thread append here, others may have batches of an earlier run here.
    shards: Vec<(ShardId, StageId)>,
    gauges: std::sync::Arc<crate::gauges::LogGauges>,
    unsent: VecDeque<(StageId, Event)>,
    // In a run without a log, until the first shard that ends has something to leave.
    last_log: Option<LastLog>,
    // The log was made at the end: nothing wakes the stage for it.
    is_last: bool,
    // Logs of threads that an earlier run had; they are only emptied.
    adopted: Vec<Log>,
    // Files reclaimed when the shards were last told what is retained.
    told: Option<u64>,
    // What the shards were told of the log's room: how much there is, and why no more.
    short: Option<(u64, String)>,
    // Since when nothing has become durable of what waits, while the log cannot make its next file.
    stuck_since: Option<Timestamp>,
    // When such a log is given up, at a shutdown.
    give_up_at: Option<Timestamp>,
    // When to look again at a log that is being emptied.
    look_at: Option<Timestamp>,
    failed: bool,
    // By the place of a shard: its batches that are not durable, and when they were appended.
    appended: Vec<VecDeque<(BatchNumber, Timestamp)>>,
}

impl LogStage {
    pub(crate) fn new(
        thread: usize,
        log: Log,
        shards: Vec<(ShardId, StageId)>,
        gauges: std::sync::Arc<crate::gauges::LogGauges>,
    ) -> Self {
        let mut stage = Self::without_log(thread, shards, gauges);
        stage.log = Some(log);
        stage
    }

    /// A stage without a log, which empties the logs that it adopts. It takes nothing unless it [can make one](Self::makes_last_log).
    pub(crate) fn without_log(
        thread: usize,
        shards: Vec<(ShardId, StageId)>,
        gauges: std::sync::Arc<crate::gauges::LogGauges>,
    ) -> Self {
        let appended = shards.iter().map(|_| VecDeque::new()).collect();
        Self {
            appended,
            name: format!("log-{thread}"),
            log: None,
            events: Vec::new(),
            blocked: false,
            shards,
            gauges,
            unsent: VecDeque::new(),
            last_log: None,
            is_last: false,
            adopted: Vec::new(),
            told: None,
            short: None,
            stuck_since: None,
            give_up_at: None,
            look_at: None,
            failed: false,
        }
    }

    /// Takes over a log that nobody appends to any more; its files go when no shard needs them.
    pub(crate) fn adopt(&mut self, log: Log) {
        self.adopted.push(log);
    }

    /// Whoever appends something makes a log, in this way.
    pub(crate) fn makes_last_log(&mut self, make: LastLog) {
        self.last_log = Some(make);
    }

    /// Whether there is no log here.
    pub(crate) fn is_blank(&self) -> bool {
        self.log.is_none() && self.adopted.is_empty()
    }

    /// The first batch of a run without a log: it has come to its end.
    fn make_last_log(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(make) = self.last_log.take() else { return };
        self.is_last = true;
        match make(ctx.now()) {
            Ok(log) => self.log = Some(log),
            Err(error) => self.fail(ctx, &error),
        }
    }

    /// Tells the shards what the logs of this stage can still hand out at a recovery, when that has changed.
    fn tell_retained(&mut self, ctx: &mut Context<'_, Event>) {
        let logs = || self.log.iter().chain(&self.adopted);
        let reclaimed = logs().map(|log| log.stats().reclaimed).sum();
        if self.told == Some(reclaimed) {
            return;
        }
        self.told = Some(reclaimed);
        for index in 0..self.shards.len() {
            let (shard, stage) = self.shards[index];
            let oldest = self.log.iter().chain(&self.adopted).filter_map(|log| log.retained_from(shard)).min();
            let from = oldest.unwrap_or(BatchNumber::MAX);
            self.send(ctx, stage, Event::LogRetained { log: ctx.stage(), from });
        }
    }

    /// Tells the shards how much they may still let in, when that has changed.
    fn tell_room(&mut self, ctx: &mut Context<'_, Event>) {
        let now = self.log.as_ref().filter(|_| !self.failed).and_then(Log::shortage);
        let now = now.map(|(cause, room)| (cause, room / LOG_ROOM_STEP_BYTES * LOG_ROOM_STEP_BYTES));
        let said = self.short.as_ref().map(|(room, cause)| (cause.as_str(), *room));
        if now == said {
            return;
        }
        let next = now.map(|(cause, room)| (room, cause.to_owned()));
        let shortage = next.as_ref().map(|(room_bytes, cause)| LogShortage {
            room_bytes: *room_bytes,
            words: format!(
                "no room for writes: {cause}. Delete something or free space on the disk; writes go on by themselves then"
            )
            .into(),
        });
        let refuses = shortage.as_ref().filter(|shortage| shortage.room_bytes == 0);
        self.gauges.shortage.set(refuses.map(|shortage| &*shortage.words));
        if self.short.is_some() && next.is_none() {
            tracing::info!(log = self.name, "the log has room for its next file again");
        }
        self.short = next;
        for (_, stage) in self.shards.clone() {
            self.send(ctx, stage, Event::LogRoom { log: ctx.stage(), shortage: shortage.clone() });
        }
    }

    /// Gives up a log at a shutdown that has no room for what waits, and gets none: it is in doubt, and nobody is told otherwise.
    fn give_up_when_stuck(&mut self, ctx: &mut Context<'_, Event>) {
        let waits = self.blocked || self.log.as_ref().is_some_and(|log| !log.is_idle());
        self.give_up_at = None;
        let Some((_, cause)) = self.short.as_ref().filter(|_| waits && !self.failed) else {
            self.stuck_since = None;
            return;
        };
        let at = self.stuck_since.get_or_insert(ctx.now()).saturating_add(BLOCKED_LOG_PATIENCE);
        if !ctx.is_shutting_down() {
            return;
        }
        self.give_up_at = Some(at).filter(|&at| ctx.now() < at);
        if self.give_up_at.is_none() {
            let error = WalError::NoSpace { cause: cause.clone() };
            self.fail(ctx, &error);
        }
    }

    fn append(&mut self, append: &LogAppend) -> Result<(), WalError> {
        // Shards without a log send nothing before their end.
        let Some(log) = &mut self.log else { return Ok(()) };
        log.append_batch(append.head, &append.bytes)
    }

    fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        self.log.iter_mut().chain(&mut self.adopted).for_each(|log| log.release(shard, keep_from));
    }

    /// Carries out the releases that stand behind a batch without room: the file that one of them frees may be what that batch waits for.
    /// Their order to batches means nothing.
    fn release_behind(&mut self, events: &mut VecDeque<Event>) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::WaitingRelease) {
            return;
        }
        events.retain(|event| {
            let &Event::LogRelease { shard, keep_from } = event else { return true };
            self.release(shard, keep_from);
            false
        });
    }

    fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.shards.iter().position(|(id, _)| *id == shard)
    }

    /// Batches of a shard up to this one are durable: how long they waited. What waits is bounded by what the log queues.
    fn time_durable(&mut self, now: Timestamp, shard: ShardId, batch: BatchNumber) {
        let Some(place) = self.place_of(shard) else { return };
        let appended = &mut self.appended[place];
        while let Some((_, at)) = appended.pop_front_if(|(number, _)| *number <= batch) {
            self.gauges.durable.since(at, now);
        }
    }

    fn stage_of(&self, shard: ShardId) -> Option<StageId> {
        self.shards.iter().find(|(id, _)| *id == shard).map(|(_, stage)| *stage)
    }

    fn report(&mut self, ctx: &mut Context<'_, Event>) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                LogEvent::Durable { shard, batch } => {
                    self.stuck_since = None;
                    self.time_durable(ctx.now(), shard, batch);
                    self.tell(ctx, shard, Event::LogDurable { batch });
                }
                LogEvent::PleaseCarry { shard, below } => self.tell(ctx, shard, Event::LogCarry { below }),
                LogEvent::Degraded(error) => {
                    tracing::warn!(
                        log = self.name, %error,
                        "the log cannot make its next file: it goes on in the current one, and writes are refused before that is full; \
                         free space on the disk, or delete something"
                    );
                }
                LogEvent::Failed(error) => self.fail(ctx, &error),
            }
        }
        self.events = events;
    }

    /// Nothing more is acknowledged.
    fn fail(&mut self, ctx: &mut Context<'_, Event>, error: &dyn Display) {
        if self.is_last {
            tracing::error!(
                %error,
                "what this server has decided and others have not been told, and what it has promised, cannot be saved: it is lost with the \
                 end of this run, which has no log. Transactions over several servers that were acknowledged in the last seconds may be left in \
                 halves. Look at the free space under the data directory before the next stop"
            );
        } else {
            tracing::error!(
                %error,
                "the log failed: reads go on, writes are refused. What was acknowledged is safe. Remove the cause (look at the \
                 device and the free space under the data directory), then restart the server"
            );
        }
        self.gauges.fail(error.to_string());
        self.failed = true;
        self.appended.iter_mut().for_each(VecDeque::clear);
        for (_, stage) in self.shards.clone() {
            self.send(ctx, stage, Event::LogFailed { log: ctx.stage() });
        }
    }

    fn tell(&mut self, ctx: &mut Context<'_, Event>, shard: ShardId, event: Event) {
        if let Some(stage) = self.stage_of(shard) {
            self.send(ctx, stage, event);
        }
    }

    fn send(&mut self, ctx: &mut Context<'_, Event>, stage: StageId, event: Event) {
        if !self.unsent.is_empty() {
            self.unsent.push_back((stage, event));
        } else if let Err(event) = ctx.send(stage, event) {
            self.unsent.push_back((stage, event));
        }
    }

    fn send_again(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some((stage, event)) = self.unsent.pop_front() {
            if let Err(event) = ctx.send(stage, event) {
                self.unsent.push_front((stage, event));
                ctx.want_turn();
                break;
            }
        }
    }
}

impl Stage<Event> for LogStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.blocked = false;
        while let Some(event) = events.pop_front() {
            if matches!(event, Event::LogAppend(_)) {
                self.make_last_log(ctx);
            }
            match event {
                // What follows a batch that is missing must not become durable: it would vouch for that one, too.
                Event::LogAppend(append) if self.failed => ctx.give_buffer(append.bytes),
                Event::LogAppend(append) => match self.append(&append) {
                    Ok(()) => {
                        if let Some(place) = self.place_of(append.head.shard) {
                            self.appended[place].push_back((append.head.batch, ctx.now()));
                        }
                        ctx.give_buffer(append.bytes);
                    }
                    Err(error) if error.retryable() => {
                        events.push_front(Event::LogAppend(append));
                        self.blocked = true;
                        self.release_behind(events);
                        break;
                    }
                    Err(WalError::Poisoned { .. }) => ctx.give_buffer(append.bytes),
                    Err(error) => {
                        ctx.give_buffer(append.bytes);
                        self.fail(ctx, &error);
                    }
                },
                Event::LogRelease { shard, keep_from } => self.release(shard, keep_from),
                _ => {}
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.send_again(ctx);
        if let Some(log) = &mut self.log {
            log.pump(ctx.now(), &mut self.events);
            self.gauges.publish(&log.stats());
        }
        for log in &mut self.adopted {
            log.pump(ctx.now(), &mut self.events);
        }
        let is_changing = self.adopted.iter().any(Log::is_changing);
        let poll = if self.is_last { Some(LAST_LOG_POLL) } else { is_changing.then_some(EMPTYING_POLL) };
        self.look_at = poll.map(|poll| ctx.now().saturating_add(poll));
        self.report(ctx);
        self.tell_room(ctx);
        self.give_up_when_stuck(ctx);
        self.tell_retained(ctx);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        // Nothing else wakes a stage that only empties logs: not to go on with one of them when something went wrong, either.
        let logs = self.log.iter().chain(&self.adopted).filter_map(Log::next_deadline).min();
        [logs, self.look_at, self.give_up_at].into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<std::os::fd::RawFd> {
        self.log.as_ref().and_then(Log::wake_fd)
    }

    fn drained(&self) -> bool {
        // What waits in a log that failed is never written.
        let idle = self.failed || (!self.blocked && self.log.as_ref().is_none_or(Log::is_idle));
        idle && self.unsent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use timestone_cluster::MapVersion;
    use timestone_flash::{FlashPace, MemoryConfig, MemoryDevice, MemoryMedia};
    use timestone_seda::Parcel;
    use timestone_seda::manual::ManualDriver;
    use timestone_store::{Mftl, MftlConfig};
    use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, Sequence, TxnId};
    use timestone_wal::device::memory::MemoryDisk;
    use timestone_wal::record::FIRST_OTHER_KIND;
    use timestone_wal::{BatchHead, DeviceKind, LogConfig, LogRecord, RecordNumber};
    use timestone_wire::{
        Condition, Decide, DecideAck, Envelope, ErrorCode, ErrorReply, Frame, Frames, Get, Kind, Message, Prepare,
        PrepareHead, PrepareWriter, ReadAt, Report, RequestId, Value, Verdict, Vote, Write, WriteAction, WriteEntry,
        WriteKind, WriteSet, Written, without_clock,
    };

    use super::*;
    use crate::gauges::{LogGauges, ShardGauges};
    use crate::shard::{LogPlace, Peers, RecordPlace, Recovering, Replay, own_origin};

    const SHARD: ShardId = ShardId::new(0);
    const SHARD_STAGE: StageId = StageId::new(0);
    const LOG_STAGE: StageId = StageId::new(1);
    const ASKER: StageId = StageId::new(7);
    const CLIENT: ClientId = ClientId::new(3);

    /// A shard and its log on a disk in memory, stepped by hand.
    struct Bench {
        disk: MemoryDisk,
        driver: ManualDriver<Event>,
        now: Timestamp,
        log: Arc<LogGauges>,
        shard: Arc<ShardGauges>,
    }

    impl Bench {
        fn new() -> Self {
            Self::new_on(MemoryDevice::new(tiny_flash()).media())
        }

        /// The first life on these devices, with a log.
        fn new_on(media: &MemoryMedia) -> Self {
            Self::on(MemoryDisk::new(), media, DeviceKind::Ssd, Timestamp::from_nanos(1_000_000_000_000))
        }

        /// A life on devices that may have seen others; without a log, if `kind` says so, the disk's is only emptied.
        fn on(disk: MemoryDisk, media: &MemoryMedia, kind: DeviceKind, now: Timestamp) -> Self {
            Self::with(disk, media, kind, now, LogConfig::default())
        }

        fn with(disk: MemoryDisk, media: &MemoryMedia, kind: DeviceKind, now: Timestamp, config: LogConfig) -> Self {
            let (store, _) = Mftl::open(Box::new(media.open()), MftlConfig::default()).unwrap();
            let mut replay = Replay::new(SHARD, Box::new(store));
            let mut recovery = Log::open_on(disk.device(), config).unwrap();
            while let Some(record) = recovery.next_record().unwrap() {
                let place = RecordPlace { batch: record.batch, epoch: record.epoch, number: record.number };
                replay.record(now, place, record.bytes).unwrap();
            }
            let log = recovery.finish(now).unwrap();
            let gauges = Arc::new(LogGauges::default());
            let shards = vec![(SHARD, SHARD_STAGE)];
            let (place, stage) = if kind == DeviceKind::Ssd {
                (LogPlace::Stage(LOG_STAGE), LogStage::new(0, log, shards, Arc::clone(&gauges)))
            } else {
                let mut stage = LogStage::without_log(0, shards, Arc::clone(&gauges));
                stage.adopt(log);
                stage.makes_last_log(Box::new(|_| Err(ServerError::Internal("there is no room".to_owned()))));
                (LogPlace::Nowhere, stage)
            };
            let shard_gauges = Arc::new(ShardGauges::new(SHARD));
            let shard = replay.finish(Recovering {
                epoch: Epoch::default(),
                map_version: MapVersion::default(),
                log: place,
                logs: vec![LOG_STAGE],
                peers: Peers::default(),
                gauges: Arc::clone(&shard_gauges),
                clock: Arc::new(timestone_clock::ManualClock::default()),
                past: Default::default(),
                left: Arc::default(),
                now,
                participant: timestone_txn::participant::Config::default(),
                memory: Arc::default(),
            });
            let stages: Vec<Box<dyn Stage<Event>>> = vec![Box::new(shard), Box::new(stage)];
            let mut bench =
                Self { disk, driver: ManualDriver::new(stages, now, 1000), now, log: gauges, shard: shard_gauges };
            // The first read bound becomes durable.
            assert!(bench.answers().is_empty());
            bench.pass(Duration::from_millis(1));
            bench
        }

        /// Stops gracefully; the devices keep everything.
        fn stop(mut self) -> (MemoryDisk, Timestamp) {
            self.driver.begin_shutdown();
            for _ in 0..1000 {
                self.pass(Duration::from_millis(10));
                self.answers();
                // What was sent last to wake the stages is no work.
                self.driver.turn();
                if self.driver.is_drained() {
                    return (self.disk, self.now);
                }
            }
            panic!("it does not stop");
        }

        /// The machine loses its power, and what was not synced with it.
        fn cut_power(self, media: &MemoryMedia) -> (MemoryDisk, Timestamp) {
            let Self { disk, driver, now, .. } = self;
            drop(driver);
            disk.crash(7);
            media.power_cut(7);
            (disk, now)
        }

        fn pass(&mut self, span: Duration) {
            self.now = self.now.saturating_add(span);
            self.driver.set_now(self.now);
        }

        /// What was answered within some turns.
        fn answers(&mut self) -> Vec<Vec<u8>> {
            let mut answers = Vec::new();
            for _ in 0..50 {
                self.driver.turn();
                // Devices in memory do not call: the stages look into them every turn.
                // A stage that is blocked leaves its queue full, and looks all the same.
                let _ = self.driver.send(LOG_STAGE, Event::Wake);
                self.driver.send(SHARD_STAGE, Event::Wake).unwrap();
                while let Some((to, event)) = self.driver.take_sent() {
                    let Event::Parcel(parcel) = event else { panic!("{event:?}") };
                    assert_eq!(to, ASKER);
                    answers
                        .extend(Frames::new(without_clock(&parcel.bytes)).map(|frame| frame.unwrap().bytes().to_vec()));
                }
            }
            answers
        }

        fn ask(&mut self, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Vec<Vec<u8>> {
            let mut bytes = Vec::new();
            encode(&Envelope { request: RequestId::new(9), shard: SHARD, ..Envelope::default() }, &mut bytes);
            self.driver.send(SHARD_STAGE, Event::Parcel(Parcel::new(own_origin(ASKER), bytes))).unwrap();
            self.answers()
        }

        /// A write, known by its number; asked again under it, it is the same one.
        fn put(&mut self, number: u64, key: &[u8]) -> Vec<Vec<u8>> {
            self.write(number, key, WriteAction::Put, b"value")
        }

        fn write(&mut self, number: u64, key: &[u8], action: WriteAction, value: &[u8]) -> Vec<Vec<u8>> {
            let (begin, commit) = (self.now, self.now.next());
            let write = Write {
                txn: TxnId::new(CLIENT, Sequence::new(number)),
                begin,
                commit,
                keyspace: KeyspaceId::DEFAULT,
                action,
                wait: false,
                return_previous: false,
                expires_at: Expiry::NEVER,
                condition: Condition::Always,
                key,
                value,
            };
            self.ask(|envelope, out| write.encode(envelope, out))
        }

        fn get(&mut self, key: &[u8]) -> Vec<Vec<u8>> {
            let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Latest(self.now));
            self.ask(|envelope, out| Get { keyspace, at, client: CLIENT, wait: false, key }.encode(envelope, out))
        }

        fn has(&mut self, key: &[u8]) -> bool {
            let answers = self.get(key);
            Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present
        }

        /// Whether a transaction that writes the key waits for its decision: until then nobody is told what is latest.
        fn is_promised(&mut self, key: &[u8]) -> bool {
            let answers = self.get(key);
            ErrorReply::decode(&Frame::parse(&answers[0]).unwrap()).is_ok_and(|error| error.code == ErrorCode::Prepared)
        }

        /// As [`Self::has`], whatever is promised.
        fn holds(&mut self, key: &[u8]) -> bool {
            let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Snapshot(self.now));
            let get = Get { keyspace, at, client: CLIENT, wait: false, key };
            let answers = self.ask(|envelope, out| get.encode(envelope, out));
            Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present
        }

        /// Promises a transaction that another shard takes part in, and that puts a key here.
        fn promise(&mut self, number: u64, key: &[u8]) -> (TxnId, Timestamp) {
            let (txn, begin, commit) = (TxnId::new(CLIENT, Sequence::new(number)), self.now, self.now.next());
            let participants = [SHARD, ShardId::new(1)];
            let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants: &participants };
            let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
            let answers = self.ask(|envelope, out| {
                let mut writer = PrepareWriter::begin(envelope, &head, out);
                writer.write(&WriteEntry { keyspace, kind, expires_at, key, value: b"value" });
                writer.finish();
            });
            let vote = Vote::decode(&Frame::parse(&answers[0]).unwrap()).unwrap();
            assert_eq!((vote.txn, vote.verdict), (txn, Verdict::Yes));
            (txn, commit)
        }

        /// Tells the decision, and waits for its acknowledgement.
        fn decide(&mut self, txn: TxnId, commit: Option<Timestamp>) {
            let mut answers = self.ask(|envelope, out| Decide::new(txn, commit).encode(envelope, out));
            for _ in 0..200 {
                if let [answer] = &answers[..] {
                    assert_eq!(DecideAck::decode(&Frame::parse(answer).unwrap()).unwrap().txn, txn);
                    return;
                }
                assert!(answers.is_empty());
                self.pass(Duration::from_millis(10));
                answers = self.answers();
            }
            panic!("it is never acknowledged");
        }

        /// The client has no transaction that is older than now, and has had all answers.
        fn report(&mut self, acked: u64) {
            let (watermark, acked) = (self.now, Sequence::new(acked));
            let report = Report { client: CLIENT, watermark, acked, now: self.now, closing: false };
            assert!(self.ask(|envelope, out| report.encode(envelope, out)).is_empty());
        }

        /// Overwrites keys in no order, so that every block is collected at some time, the oldest ones among them.
        fn churn(&mut self, numbers: core::ops::Range<u64>) {
            for number in numbers {
                let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let key = format!("churn {}", key % 150);
                let answers = self.write(number, key.as_bytes(), WriteAction::Put, &[number as u8; 3000]);
                assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
                self.pass(Duration::from_millis(10));
                if number.is_multiple_of(10) {
                    self.report(number);
                }
            }
        }

        fn dropped_tombstones(&self) -> u64 {
            let mut figures = self.shard.store();
            figures.find(|(name, _)| *name == "dropped_tombstones_total").map_or(0, |(_, value)| value)
        }
    }

    /// Few blocks, so that all of them are collected soon.
    fn tiny_flash() -> MemoryConfig {
        MemoryConfig { pages_per_block: 8, initial_blocks: 64, max_blocks: 64, ..MemoryConfig::default() }
    }

    /// Whether a key that was deleted in a life without a log is there in the next life with one, which finds what the first life logged.
    fn comes_back_after_a_life_without_a_log() -> bool {
        let device = MemoryDevice::new(tiny_flash());
        let media = device.media();
        let mut first = Bench::new_on(media);
        first.put(1, b"victim");
        assert!(first.has(b"victim"));
        let (disk, now) = first.stop();
        let mut second = Bench::on(disk, media, DeviceKind::None, now);
        assert!(second.has(b"victim"));
        // Beyond all that the first life may have served.
        second.pass(Duration::from_secs(5));
        second.write(2, b"victim", WriteAction::Delete, b"");
        assert!(!second.has(b"victim"));
        second.churn(3..3000);
        assert!(!second.has(b"victim"));
        assert_eq!(second.dropped_tombstones(), 1, "the test is of tombstones that go");
        let (disk, now) = second.stop();
        Bench::on(disk, media, DeviceKind::Ssd, now).has(b"victim")
    }

    /// Whether what a promise of a life with a log puts is there after a power cut, when a life without one has acknowledged its commit.
    fn outlives_what_was_acknowledged_without_a_log() -> bool {
        let device = MemoryDevice::new(tiny_flash());
        let media = device.media();
        let mut first = Bench::new_on(media);
        let (txn, commit) = first.promise(1, b"promised");
        let (disk, now) = first.cut_power(media);
        let mut second = Bench::on(disk, media, DeviceKind::None, now);
        assert!(second.is_promised(b"promised"));
        second.decide(txn, Some(commit));
        assert!(second.has(b"promised"));
        let (disk, now) = second.cut_power(media);
        Bench::on(disk, media, DeviceKind::None, now).holds(b"promised")
    }

    /// Whether a promise of a life with a log is there in the next but one, when the log asked the one in between, which had none, to
    /// carry it forward.
    fn is_kept_by_a_life_that_cannot_carry_it_forward() -> bool {
        let device = MemoryDevice::new(tiny_flash());
        let media = device.media();
        let mut first = Bench::new_on(media);
        first.promise(1, b"promised");
        let (disk, now) = first.cut_power(media);
        let mut second = Bench::on(disk, media, DeviceKind::None, now);
        second.driver.send(SHARD_STAGE, Event::LogCarry { below: BatchNumber::new(1000) }).unwrap();
        for _ in 0..300 {
            second.answers();
            second.pass(Duration::from_millis(10));
        }
        let (disk, now) = second.cut_power(media);
        Bench::on(disk, media, DeviceKind::None, now).is_promised(b"promised")
    }

    #[test]
    fn a_run_without_a_log_that_cannot_save_what_it_leaves_ends_all_the_same() {
        let device = MemoryDevice::new(tiny_flash());
        let begun = Timestamp::from_nanos(1_000_000_000_000);
        let mut bench = Bench::on(MemoryDisk::new(), device.media(), DeviceKind::None, begun);
        bench.promise(1, b"promised");
        let log = Arc::clone(&bench.log);
        let (_, now) = bench.stop();
        assert!(now.since(begun) < Duration::from_secs(3), "{:?}", now.since(begun));
        assert!(log.failure().is_some_and(|cause| cause.contains("there is no room")));
    }

    fn error_of(answers: &[Vec<u8>]) -> ErrorCode {
        let [answer] = answers else { panic!("one answer, not {}", answers.len()) };
        let frame = Frame::parse(answer).unwrap();
        let error = ErrorReply::decode(&frame).unwrap();
        assert!(!error.message.is_empty());
        error.code
    }

    #[test]
    fn without_its_log_a_shard_serves_reads_refuses_writes_and_denies_nothing() {
        let mut bench = Bench::new();
        let answers = bench.put(1, b"kept");
        assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
        assert!(bench.log.failure().is_none());
        bench.disk.fail_writes(true);
        assert!(bench.put(2, b"perhaps").is_empty(), "it may be durable or not: nobody is told either");
        assert!(bench.log.failure().is_some());
        bench.disk.fail_writes(false);
        assert!(bench.put(2, b"perhaps").is_empty());
        assert_eq!(error_of(&bench.put(3, b"new")), ErrorCode::StorageFailed);
        assert_eq!(
            error_of(&bench.get(b"perhaps")),
            ErrorCode::Prepared,
            "neither the old nor the new value is certain"
        );
        // Long after the last read bound.
        bench.pass(Duration::from_secs(60));
        let answers = bench.get(b"kept");
        let frame = Frame::parse(&answers[0]).unwrap();
        assert_eq!(frame.kind(), Kind::Value);
        let value = Value::decode(&frame).unwrap();
        assert!(value.present && value.value == b"value" && !value.prepared_before);
        let answers = bench.get(b"new");
        assert!(!Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present);
        // What was acknowledged before is still known; the server can be stopped.
        let answers = bench.put(1, b"kept");
        assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
        bench.driver.begin_shutdown();
        for _ in 0..200 {
            bench.pass(Duration::from_millis(10));
            bench.answers();
        }
        bench.driver.turn();
        assert!(bench.driver.is_drained(), "what waits for the log is not waited for");
    }

    /// A shard whose log has room for two files, of which it lets none go, for its store makes nothing durable.
    fn with_room_for_two_files() -> (Bench, MemoryMedia) {
        let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
        let (disk, device) = (MemoryDisk::new(), MemoryDevice::new(MemoryConfig::default()));
        disk.limit_space(Some(2 * config.file_bytes));
        let (none, sync) = (Duration::ZERO, Duration::from_secs(1_000_000));
        let pace = FlashPace { read: none, program: none, per_page: none, erase: none, sync, spread: none, seed: 1 };
        device.media().set_pace(Some(pace));
        device.media().set_now(1);
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let media = device.media().clone();
        (Bench::with(disk, &media, DeviceKind::Ssd, now, config), media)
    }

    /// Writes until a write is not carried out: how many were, and what became of that one, if anything.
    fn fill(bench: &mut Bench, from: u64, action: WriteAction) -> (u64, Option<ErrorCode>) {
        for number in from..from + 1000 {
            let answers = bench.write(number, format!("key {}", number % 50).as_bytes(), action, &[7; 3000]);
            let Some(answer) = answers.first() else { return (number - from, None) };
            if Written::decode(&Frame::parse(answer).unwrap()).is_err() {
                return (number - from, Some(error_of(&answers)));
            }
            bench.pass(Duration::from_millis(1));
        }
        panic!("there is always room");
    }

    #[test]
    fn a_log_without_room_refuses_puts_at_once_and_takes_what_makes_room() {
        let (mut bench, _) = with_room_for_two_files();
        let (puts, met) = fill(&mut bench, 1, WriteAction::Put);
        assert!(puts > 20 && met == Some(ErrorCode::DeviceFull), "{puts} puts, then {met:?}");
        let words = bench.log.shortage.get().expect("it is told");
        assert!(words.contains("preallocate") && words.contains("free space"), "{words}");
        assert!(bench.has(b"key 1"), "reads go on");
        let answers = bench.write(2000, b"key 1", WriteAction::Delete, b"");
        assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
        // Whoever repeats what was done is told so.
        let repeated = bench.write(2, b"key 2", WriteAction::Put, &[7; 3000]);
        assert_eq!(Written::decode(&Frame::parse(&repeated[0]).unwrap()).unwrap().verdict, Verdict::Yes);
        bench.disk.limit_space(None);
        bench.pass(Duration::from_secs(2));
        bench.answers();
        let answers = bench.put(3000, b"key 1");
        assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
        assert!(bench.log.shortage.get().is_none(), "with room it goes on by itself");
    }

    #[test]
    fn a_log_that_is_full_to_the_last_byte_does_not_hold_up_a_shutdown_and_loses_nothing() {
        let (mut bench, media) = with_room_for_two_files();
        let (puts, _) = fill(&mut bench, 1, WriteAction::Put);
        let (deletes, met) = fill(&mut bench, 2001, WriteAction::Delete);
        assert_eq!(met, None, "it waits for room");
        assert!(deletes > 10, "{deletes} deletes found the reserve");
        // The store syncs again, and that alone does not help: what a log lets go of must be written there first.
        media.set_pace(None);
        media.set_now(u64::MAX / 2);
        let began = bench.now;
        bench.driver.begin_shutdown();
        while !bench.driver.is_drained() {
            bench.pass(Duration::from_millis(100));
            bench.answers();
            bench.driver.turn();
            assert!(bench.now.since(began) < Duration::from_secs(10), "it does not stop");
        }
        assert!(bench.log.failure().is_some(), "what waited is in doubt");
        let mut found = 0;
        let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
        let mut recovery = Log::open_on(bench.disk.device(), config).unwrap();
        while let Some(record) = recovery.next_record().unwrap() {
            found += u64::from(matches!(LogRecord::decode(record.bytes), Ok(LogRecord::Prepare { .. })));
        }
        assert!(found >= puts + deletes, "{found} of {puts} and {deletes}");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_shard_that_ignores_its_logs_shortage_is_found() {
        let met = crate::planted::with(crate::planted::Bug::IgnoredLogShortage, || {
            let (mut bench, _) = with_room_for_two_files();
            fill(&mut bench, 1, WriteAction::Put).1
        });
        assert_eq!(met, None, "the planted bug is found: the write waits for room");
    }

    /// Whether a log that is full goes on when the release that frees its oldest file comes behind the batch that has no room.
    fn goes_on_by_a_release_behind_a_batch_without_room() -> bool {
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let config = LogConfig { file_bytes: 128 * 1024, block_bytes: 8192, ..LogConfig::default() };
        let disk = MemoryDisk::new();
        disk.limit_space(Some(2 * config.file_bytes));
        let log = Log::open_on(disk.device(), config).unwrap().finish(now).unwrap();
        let stage = LogStage::new(0, log, vec![(SHARD, ASKER)], Arc::new(LogGauges::default()));
        let mut driver = ManualDriver::new(vec![Box::new(stage) as Box<dyn Stage<Event>>], now, 1000);
        let log = StageId::new(0);
        let mut record = Vec::new();
        LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &[7; 3000] }.encode(&mut record);
        let durable = |driver: &mut ManualDriver<Event>| {
            let mut last = 0;
            for _ in 0..20 {
                driver.turn();
                driver.send(log, Event::Wake).unwrap();
                while let Some((_, event)) = driver.take_sent() {
                    if let Event::LogDurable { batch } = event {
                        last = batch.get();
                    }
                }
            }
            last
        };
        for number in 1..1000 {
            let (batch, first) = (BatchNumber::new(number), RecordNumber::new(number << 32));
            let head = BatchHead { shard: SHARD, batch, epoch: Epoch::default(), first };
            driver.send(log, Event::LogAppend(LogAppend { head, bytes: record.clone() })).unwrap();
            if durable(&mut driver) < number {
                driver.send(log, Event::LogRelease { shard: SHARD, keep_from: batch }).unwrap();
                return durable(&mut driver) == number;
            }
        }
        panic!("there is always room");
    }

    #[test]
    fn a_release_is_not_held_up_by_the_batch_that_waits_for_its_room() {
        assert!(goes_on_by_a_release_behind_a_batch_without_room());
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_release_that_waits_behind_a_batch_without_room_is_noticed() {
        let goes_on =
            crate::planted::with(crate::planted::Bug::WaitingRelease, goes_on_by_a_release_behind_a_batch_without_room);
        assert!(!goes_on, "the planted bug is found");
    }

    #[test]
    fn nothing_is_durable_behind_a_batch_that_no_log_takes() {
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let log = Log::open_on(MemoryDisk::new().device(), LogConfig::default()).unwrap().finish(now).unwrap();
        let gauges = Arc::new(LogGauges::default());
        let log = LogStage::new(0, log, vec![(SHARD, ASKER)], Arc::clone(&gauges));
        let mut driver = ManualDriver::new(vec![Box::new(log) as Box<dyn Stage<Event>>], now, 1000);
        let log = StageId::new(0);
        let mut record = Vec::new();
        LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &vec![7; 1024 * 1024] }.encode(&mut record);
        let too_many = timestone_wal::limits::MAX_BATCH_BYTES / record.len() + 1;
        for (batch, records) in [(1, 1), (2, too_many), (3, 1)] {
            let (batch, first) = (BatchNumber::new(batch), RecordNumber::new(batch << 32));
            let head = BatchHead { shard: SHARD, batch, epoch: Epoch::default(), first };
            let append = LogAppend { head, bytes: record.repeat(records) };
            driver.send(log, Event::LogAppend(append)).unwrap();
        }
        let (mut durable, mut failed) = (Vec::new(), false);
        for _ in 0..50 {
            driver.turn();
            driver.send(log, Event::Wake).unwrap();
            while let Some((_, event)) = driver.take_sent() {
                match event {
                    Event::LogDurable { batch } => durable.push(batch.get()),
                    Event::LogFailed { .. } => failed = true,
                    _ => {}
                }
            }
        }
        assert_eq!((durable, failed), (vec![1], true), "the third would vouch for the second");
        assert!(gauges.failure().is_some());
    }

    #[test]
    fn a_write_set_that_comes_again_is_not_kept_again() {
        let mut bench = Bench::new();
        let (txn, begin, commit) = (TxnId::new(CLIENT, Sequence::new(1)), bench.now, bench.now.next());
        let participants = [SHARD, ShardId::new(1)];
        let head = PrepareHead { txn, begin, commit, single: false, wait: false, participants: &participants };
        let mut frame = Vec::new();
        let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut frame);
        let (keyspace, kind, expires_at) = (KeyspaceId::DEFAULT, WriteKind::Put, Expiry::NEVER);
        writer.write(&WriteEntry { keyspace, kind, expires_at, key: b"told", value: b"value" });
        writer.finish();
        let body = Prepare::decode(&Frame::parse(&frame).unwrap()).unwrap().body;
        for _ in 0..3 {
            let answers = bench.ask(|envelope, out| WriteSet { txn, begin, commit, body }.encode(envelope, out));
            assert_eq!(DecideAck::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().txn, txn);
            bench.pass(Duration::from_secs(2));
            let answers = bench.get(b"told");
            assert!(Value::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().present);
            assert_eq!(bench.shard.prepared.load(std::sync::atomic::Ordering::Relaxed), 0, "it is in the store");
        }
    }

    #[test]
    fn a_key_deleted_without_a_log_does_not_come_back_when_there_is_one_again() {
        assert!(!comes_back_after_a_life_without_a_log());
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn without_a_hand_over_a_deleted_key_comes_back() {
        let comes_back = crate::planted::with(crate::planted::Bug::NoHandOver, comes_back_after_a_life_without_a_log);
        assert!(comes_back, "the planted bug is found");
    }

    #[test]
    fn what_is_acknowledged_without_a_log_about_a_promise_in_an_older_one_is_on_the_device() {
        assert!(outlives_what_was_acknowledged_without_a_log());
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_acknowledgement_before_the_put_is_on_the_device_loses_it() {
        let is_there =
            crate::planted::with(crate::planted::Bug::EarlyHandOverAck, outlives_what_was_acknowledged_without_a_log);
        assert!(!is_there, "the planted bug is found");
    }

    #[test]
    fn an_abort_of_a_promise_in_an_older_log_is_acknowledged_without_one() {
        let device = MemoryDevice::new(tiny_flash());
        let mut first = Bench::new_on(device.media());
        let (txn, _) = first.promise(1, b"promised");
        let (disk, now) = first.cut_power(device.media());
        let mut second = Bench::on(disk, device.media(), DeviceKind::None, now);
        second.decide(txn, None);
        assert!(!second.has(b"promised") && !second.is_promised(b"promised"));
        second.stop();
    }

    #[test]
    fn a_life_without_a_log_carries_nothing_forward_and_keeps_the_promises_of_the_one_before() {
        assert!(is_kept_by_a_life_that_cannot_carry_it_forward());
        let device = MemoryDevice::new(tiny_flash());
        let mut first = Bench::new_on(device.media());
        first.put(1, b"key");
        let (disk, now) = first.cut_power(device.media());
        let mut second = Bench::on(disk, device.media(), DeviceKind::None, now);
        second.driver.send(SHARD_STAGE, Event::LogCarry { below: BatchNumber::new(1000) }).unwrap();
        // Nothing waits for a log that there is not.
        second.stop();
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_life_without_a_log_that_carries_forward_loses_promises() {
        let is_kept = crate::planted::with(
            crate::planted::Bug::CarriesWithoutLog,
            is_kept_by_a_life_that_cannot_carry_it_forward,
        );
        assert!(!is_kept, "the planted bug is found");
    }

    #[test]
    fn a_log_that_is_only_emptied_is_looked_after_when_a_file_could_not_be_removed() {
        let disk = MemoryDisk::new();
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let head =
            BatchHead { shard: SHARD, batch: BatchNumber::new(1), epoch: Epoch::default(), first: RecordNumber::FIRST };
        let mut record = Vec::new();
        LogRecord::KeepFrom { batch: BatchNumber::new(1) }.encode(&mut record);
        let small = LogConfig { file_bytes: 1 << 20, ..LogConfig::default() };
        let mut log = Log::open_on(disk.device(), small).unwrap().finish(now).unwrap();
        log.append_batch(head, &record).unwrap();
        log.shutdown(now, &mut Vec::new()).unwrap();
        // A file of another size is removed, and not used again.
        let log = Log::open_on(disk.device(), LogConfig::default()).unwrap().finish(now).unwrap();
        let mut stage = LogStage::without_log(0, vec![(SHARD, ASKER)], Arc::new(LogGauges::default()));
        stage.adopt(log);
        let mut driver = ManualDriver::new(vec![Box::new(stage) as Box<dyn Stage<Event>>], now, 1000);
        disk.fail_removals(true);
        driver.send(StageId::new(0), Event::LogRelease { shard: SHARD, keep_from: BatchNumber::MAX }).unwrap();
        let emptied = |driver: &mut ManualDriver<Event>| {
            (0..100).any(|_| {
                driver.set_now(driver.next_deadline().expect("the stage is to be called again"));
                driver.turn();
                disk.files().len() == 1
            })
        };
        driver.turn();
        assert!(!emptied(&mut driver));
        disk.fail_removals(false);
        assert!(emptied(&mut driver));
    }

    #[test]
    fn what_is_carried_forward_comes_in_batches_that_a_log_takes() {
        const OUTCOMES: u64 = 20_000;
        let now = Timestamp::from_nanos(1_000_000_000_000);
        let (store, _) =
            Mftl::open(Box::new(MemoryDevice::new(tiny_flash()).media().open()), MftlConfig::default()).unwrap();
        let mut replay = Replay::new(SHARD, Box::new(store));
        let participants: Vec<ShardId> = (0..40).map(ShardId::new).collect();
        for number in 1..=OUTCOMES {
            let (txn, participants) =
                (TxnId::new(CLIENT, Sequence::new(number)), timestone_wal::Participants::new(&participants));
            let (origin, found, met) =
                (timestone_wal::DecisionOrigin::Client, timestone_types::PreviousFound::Unasked, Timestamp::ZERO);
            let mut record = Vec::new();
            let decision =
                LogRecord::Decision { txn, begin: now, commit: now, origin, abort: None, found, met, participants };
            decision.encode(&mut record);
            let (batch, epoch, number) = (BatchNumber::new(1), Epoch::default(), RecordNumber::new(number));
            replay.record(now, RecordPlace { batch, epoch, number }, &record.split_off(4)).unwrap();
        }
        let shard = replay.finish(Recovering {
            epoch: Epoch::default(),
            map_version: MapVersion::default(),
            log: LogPlace::Stage(LOG_STAGE),
            logs: vec![LOG_STAGE],
            peers: Peers::default(),
            gauges: Arc::new(ShardGauges::new(SHARD)),
            clock: Arc::new(timestone_clock::ManualClock::default()),
            past: Default::default(),
            left: Arc::default(),
            now,
            participant: timestone_txn::participant::Config::default(),
            memory: Arc::default(),
        });
        let mut driver = ManualDriver::new(vec![Box::new(shard) as Box<dyn Stage<Event>>], now, 1000);
        driver.send(SHARD_STAGE, Event::LogCarry { below: BatchNumber::new(2) }).unwrap();
        driver.turn();
        let (mut last, mut decisions) = (BatchNumber::new(1), 0);
        while let Some((_, event)) = driver.take_sent() {
            let Event::LogAppend(append) = event else { continue };
            assert_eq!(append.head.batch, last.next());
            last = append.head.batch;
            assert!(append.bytes.len() <= crate::limits::LOG_BATCH_BYTES + 4096, "{} bytes", append.bytes.len());
            let records = timestone_wal::BatchRecords::new(&append.bytes);
            let is_decision = |record: &&[u8]| matches!(LogRecord::decode(record), Ok(LogRecord::Decision { .. }));
            decisions += records.map(Result::unwrap).filter(is_decision).count() as u64;
        }
        assert_eq!(decisions, OUTCOMES);
    }

    #[test]
    fn the_failure_of_another_log_is_not_the_shards() {
        let mut bench = Bench::new();
        bench.driver.send(SHARD_STAGE, Event::LogFailed { log: StageId::new(5) }).unwrap();
        let answers = bench.put(1, b"k");
        assert_eq!(Written::decode(&Frame::parse(&answers[0]).unwrap()).unwrap().verdict, Verdict::Yes);
    }
}

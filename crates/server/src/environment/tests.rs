//! Data directories that are cut short by crashes, opened by runs with other log devices, and found
//! by clocks that were set back.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use timestone_clock::ManualClock;
use timestone_seda::manual::ManualDriver;
use timestone_seda::{FrameBatch, StageId};
use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, Sequence, Timestamp, TxnId};
use timestone_wire::{
    Condition, Envelope, ErrorCode, ErrorReply, Frame, Get, Message, ReadAt, Value, Verdict, Write,
    WriteAction, Written,
};

use super::*;
use crate::config::{AcceptedLoss, SizeConfig, Tuning};
use crate::event::Event;
use crate::manifest::Manifest;
use crate::stages::ServerStages;
use timestone_shard::own_reply_address;

/// A data directory that is copied before and after every step that changes it, as a crash at that
/// moment would leave it.
struct Photographed {
    inner: LocalEnvironment,
    data: PathBuf,
    // Where the copies go, if any are taken.
    album: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    taken: Mutex<usize>,
    // The manifest is replaced, but whether that is durable cannot be found out.
    is_unsure: AtomicBool,
}

impl Photographed {
    fn new(
        inner: LocalEnvironment,
        data: PathBuf,
        album: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            inner,
            data,
            album,
            clock,
            taken: Mutex::default(),
            is_unsure: AtomicBool::new(false),
        }
    }

    fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        self.take();
        let done = step();
        self.take();
        done
    }

    fn take(&self) {
        let Some(album) = &self.album else { return };
        let mut taken = self.taken.lock().unwrap();
        copy(&self.data, &album.join(taken.to_string()));
        *taken += 1;
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

impl Environment for Photographed {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }
    fn network(&self) -> Arc<dyn Network> {
        self.inner.network()
    }
    fn shards(&self) -> u16 {
        self.inner.shards()
    }
    fn directory(&self) -> DirectoryId {
        self.inner.directory()
    }
    fn draw(&self) -> u64 {
        self.inner.draw()
    }
    fn load_manifest(&self) -> Result<Option<Vec<u8>>, ServerError> {
        self.inner.load_manifest()
    }
    fn save_manifest(&self, bytes: &[u8]) -> Result<(), ServerError> {
        self.step(|| self.inner.save_manifest(bytes))?;
        match self.is_unsure.load(Ordering::Relaxed) {
            true => Err(ServerError::Internal("the folder cannot be synced".to_owned())),
            false => Ok(()),
        }
    }
    fn has_flash(&self, shard: ShardId, part: FlashPart) -> bool {
        self.inner.has_flash(shard, part)
    }
    fn log_files(&self, name: &str) -> Result<Vec<FileName>, ServerError> {
        self.inner.log_files(name)
    }
    fn open_flash(
        &self,
        shard: ShardId,
        part: FlashPart,
        blocks: u32,
    ) -> Result<Box<dyn FlashDevice>, ServerError> {
        self.step(|| self.inner.open_flash(shard, part, blocks))
    }
    fn remove_flash(&self, shard: ShardId) -> Result<(), ServerError> {
        self.step(|| self.inner.remove_flash(shard))
    }
    fn capacity_bytes(&self) -> Result<u64, ServerError> {
        self.inner.capacity_bytes()
    }
    fn logs(&self) -> Result<Vec<String>, ServerError> {
        self.inner.logs()
    }
    fn open_log(&self, name: &str, config: LogConfig) -> Result<LogRecovery, ServerError> {
        self.step(|| self.inner.open_log(name, config))
    }
    fn remove_log(&self, name: &str) -> Result<(), ServerError> {
        self.step(|| self.inner.remove_log(name))
    }
    fn load_master(&self) -> Result<Option<Vec<u8>>, ServerError> {
        self.inner.load_master()
    }
    fn save_master(&self, bytes: &[u8]) -> Result<(), ServerError> {
        self.step(|| self.inner.save_master(bytes))
    }
    fn load_cluster(&self) -> Result<ClusterId, ServerError> {
        self.inner.load_cluster()
    }
    fn save_cluster(&self, cluster: ClusterId) -> Result<(), ServerError> {
        self.step(|| self.inner.save_cluster(cluster))
    }
    fn register(&self, address: SocketAddr, joining: Joining) -> Result<Registration, ServerError> {
        self.inner.register(address, joining)
    }
    fn place(&self) -> PathBuf {
        self.inner.place()
    }
}

#[test]
fn a_capacity_that_was_small_at_creation_does_not_limit_what_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let config = ServerConfig::embedded(folder.path().join("data"));
    let environment = LocalEnvironment::open(&config).unwrap();
    let capacity = |blocks| {
        environment
            .open_flash(ShardId::new(0), FlashPart::Full, blocks)
            .unwrap()
            .geometry()
            .max_blocks
    };
    assert_eq!(capacity(limits::MIN_BLOCKS), limits::MIN_BLOCKS);
    assert_eq!(capacity(limits::TABLE_BLOCKS), limits::TABLE_BLOCKS);
    assert!(
        capacity(2 * limits::TABLE_BLOCKS) < 2 * limits::TABLE_BLOCKS,
        "there is a limit, and it is told"
    );
}

/// Lives of a server on one directory, each of which ends with a kill; asked as a client would, by
/// a clock that stands still.
struct Life {
    driver: ManualDriver<Event>,
    shard: StageId,
    logs: Vec<StageId>,
    epoch: Epoch,
}

impl Life {
    fn begin(folder: &Path, log: DeviceKind, clock: &ManualClock) -> Self {
        Self::begin_without(folder, log, clock, AcceptedLoss::Nothing)
    }

    fn begin_without(
        folder: &Path,
        log: DeviceKind,
        clock: &ManualClock,
        accept_loss: AcceptedLoss,
    ) -> Self {
        let mut tuning = Tuning::of(log);
        tuning.log.file_bytes = 128 * 1024;
        tuning.log.block_bytes = 16 * 1024;
        let data = folder.join("data");
        let config = ServerConfig {
            shards: (!data.exists()).then_some(1),
            threads: Some(1),
            sizes: SizeConfig {
                capacity_bytes: Some(32 << 20),
                cache_bytes: 1 << 20,
                ..SizeConfig::default()
            },
            log,
            accept_loss,
            tuning: Some(tuning),
            ..ServerConfig::embedded(data.clone())
        };
        let inner = LocalEnvironment::open(&config).unwrap();
        let environment = Photographed::new(inner, data, None, Arc::new(clock.clone()));
        let built = ServerStages::build(&config, Arc::new(environment)).unwrap();
        let driver = ManualDriver::new(built.stages, clock.now(), 1000);
        Self { driver, shard: built.shards[0].1, logs: built.logs, epoch: Epoch::new(1) }
    }

    /// Time passes, for the stages as well.
    fn goes_on(&mut self, lasts: Duration, clock: &ManualClock) {
        let now = clock.advance(lasts);
        self.driver.set_now(now);
        self.driver.turn();
    }

    /// The answer. Devices take their time.
    fn ask(&mut self, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Vec<u8> {
        let asker = StageId::new(u16::MAX);
        let envelope =
            Envelope { shard: ShardId::new(0), epoch: self.epoch, ..Envelope::default() };
        let mut bytes = Vec::new();
        encode(&envelope, &mut bytes);
        self.driver
            .send(self.shard, Event::FrameBatch(FrameBatch::new(own_reply_address(asker), bytes)))
            .unwrap();
        for _ in 0..10_000 {
            self.driver.turn();
            for &stage in self.logs.iter().chain([&self.shard]) {
                self.driver.send(stage, Event::Wake).unwrap();
            }
            while let Some((to, event)) = self.driver.take_sent() {
                if let Event::FrameBatch(frame_batch) = event
                    && to == asker
                {
                    return timestone_wire::without_clock(&frame_batch.bytes).to_vec();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no answer");
    }

    /// What becomes of a write that commits right above `at`.
    fn put(&mut self, number: u64, at: Timestamp) -> Result<Verdict, ErrorCode> {
        self.put_until(number, at, Expiry::NEVER)
    }

    fn put_until(
        &mut self,
        number: u64,
        at: Timestamp,
        expires_at: Expiry,
    ) -> Result<Verdict, ErrorCode> {
        let write = Write {
            txn: TxnId::new(ClientId::new(3), Sequence::new(number)),
            begin: at,
            commit: at.next(),
            keyspace: KeyspaceId::DEFAULT,
            action: WriteAction::Put,
            wait: false,
            return_previous: false,
            expires_at,
            condition: Condition::Always,
            key: b"key",
            value: b"value",
        };
        let answer = self.ask(|envelope, out| write.encode(envelope, out));
        let frame = Frame::parse(&answer).unwrap();
        match ErrorReply::decode(&frame) {
            Ok(error) => Err(error.code),
            Err(_) => Ok(Written::decode(&frame).unwrap().verdict),
        }
    }

    /// Whether the key is there, asked until the shard knows what it may tell.
    fn has(&mut self, at: Timestamp) -> bool {
        for _ in 0..1000 {
            match self.get(ReadAt::Latest(at)) {
                Err(ErrorCode::Unavailable) => std::thread::sleep(Duration::from_millis(1)),
                answer => return answer.unwrap(),
            }
        }
        panic!("refused again and again")
    }

    /// Whether the key is there.
    fn get(&mut self, at: ReadAt) -> Result<bool, ErrorCode> {
        let get = Get {
            keyspace: KeyspaceId::DEFAULT,
            at,
            client: ClientId::new(3),
            wait: false,
            key: b"key",
        };
        let answer = self.ask(|envelope, out| get.encode(envelope, out));
        let frame = Frame::parse(&answer).unwrap();
        match ErrorReply::decode(&frame) {
            Ok(error) => Err(error.code),
            Err(_) => Ok(Value::decode(&frame).unwrap().present),
        }
    }
}

/// What a life with a log says to a write below a read that the life without a log before it has
/// served.
fn write_below_what_was_read_without_a_log() -> Result<Verdict, ErrorCode> {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let mut life = Life::begin(folder.path(), DeviceKind::Ssd, &clock);
    assert_eq!(life.put(1, clock.now()), Ok(Verdict::Yes));
    drop(life);
    // Far above all that the log knows of.
    let now = clock.advance(Duration::from_secs(10));
    let mut life = Life::begin(folder.path(), DeviceKind::None, &clock);
    assert!(life.has(now.saturating_add(Duration::from_millis(400))), "a client may be ahead");
    drop(life);
    let now = clock.advance(Duration::from_millis(1));
    // One that is killed before it has logged anything, and one that serves.
    drop(Life::begin(folder.path(), DeviceKind::Ssd, &clock));
    let verdict = Life::begin(folder.path(), DeviceKind::Ssd, &clock).put(2, now);
    let now = clock.advance(Duration::from_secs(5));
    assert_eq!(Life::begin(folder.path(), DeviceKind::Ssd, &clock).put(4, now), Ok(Verdict::Yes));
    verdict
}

#[test]
fn what_a_run_without_a_log_served_is_not_written_below_by_the_next_with_one() {
    // The floor is ahead of the clock: the client asks again when that has passed.
    assert_eq!(write_below_what_was_read_without_a_log(), Err(ErrorCode::Unavailable));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_run_without_a_log_that_is_forgotten_is_written_below() {
    let verdict = crate::planted::with(
        crate::planted::Bug::ForgottenUnloggedRun,
        write_below_what_was_read_without_a_log,
    );
    assert_eq!(verdict, Ok(Verdict::Yes), "the planted bug is found");
}

/// What a write is told after a kill over which the clock of a server without a log was set back:
/// at once, and when the clock has come to where it was.
fn writes_after_a_clock_that_was_set_back() -> [Result<Verdict, ErrorCode>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let mut life = Life::begin(folder.path(), DeviceKind::None, &clock);
    // The first moment of a shard is below its floor.
    life.goes_on(Duration::from_secs(2), &clock);
    assert_eq!(life.put(1, clock.now()), Ok(Verdict::Yes));
    life.goes_on(Duration::from_secs(2), &clock);
    drop(life);
    let now = clock.now().saturating_sub(Duration::from_secs(60));
    clock.set(now);
    let mut life = Life::begin(folder.path(), DeviceKind::None, &clock);
    assert!(clock.now() > now.saturating_add(Duration::from_secs(50)), "time goes on where it was");
    let at_once = life.put(2, clock.now());
    life.goes_on(Duration::from_secs(5), &clock);
    [at_once, life.put(2, clock.now())]
}

#[test]
fn a_write_waits_until_the_clock_has_come_to_where_it_was() {
    assert_eq!(
        writes_after_a_clock_that_was_set_back(),
        [Err(ErrorCode::Unavailable), Ok(Verdict::Yes)]
    );
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_write_that_is_refused_for_a_clock_that_was_set_back_is_noticed() {
    let [at_once, _] = crate::planted::with(
        crate::planted::Bug::RefusesBelowAheadWatermark,
        writes_after_a_clock_that_was_set_back,
    );
    assert!(matches!(at_once, Ok(Verdict::No(_))), "the planted bug is found: {at_once:?}");
}

/// Whether a server without a log lets a write in below a read of a run before, long after the last
/// write of that, whose end the clock was set back over.
fn is_written_below_a_late_read() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let mut life = Life::begin(folder.path(), DeviceKind::None, &clock);
    life.goes_on(Duration::from_secs(2), &clock);
    assert_eq!(life.put(1, clock.now()), Ok(Verdict::Yes));
    for _ in 0..12 {
        life.goes_on(Duration::from_secs(5), &clock);
    }
    let read = clock.now();
    assert_eq!(life.get(ReadAt::Snapshot(read)), Ok(true));
    life.goes_on(limits::LIFE_INTERVAL, &clock);
    drop(life);
    clock.set(read.saturating_sub(Duration::from_secs(30)));
    let mut life = Life::begin(folder.path(), DeviceKind::None, &clock);
    life.goes_on(Duration::from_secs(2), &clock);
    let write = clock.now();
    assert_eq!(life.put(2, write), Ok(Verdict::Yes));
    write < read
}

#[test]
fn a_run_without_a_log_saves_how_far_it_has_lived() {
    assert!(!is_written_below_a_late_read());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_life_that_is_not_saved_is_noticed() {
    let below =
        crate::planted::with(crate::planted::Bug::ForgottenLife, is_written_below_a_late_read);
    assert!(below, "the planted bug is found");
}

/// The log of the second life is there and tells nothing of time, for that life was killed at once.
#[test]
fn time_goes_on_from_a_life_without_a_log_over_one_whose_log_tells_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let mut life = Life::begin(folder.path(), DeviceKind::None, &clock);
    life.goes_on(Duration::from_secs(2), &clock);
    assert_eq!(life.put(1, clock.now()), Ok(Verdict::Yes));
    // Long after the last version that a store could tell of.
    for _ in 0..16 {
        life.goes_on(Duration::from_secs(5), &clock);
    }
    drop(life);
    let lived = clock.now().saturating_sub(limits::LIFE_INTERVAL);
    let set_back = clock.now().saturating_sub(Duration::from_secs(60));
    for _ in 0..2 {
        clock.set(set_back);
        drop(Life::begin(folder.path(), DeviceKind::Ssd, &clock));
        assert!(clock.now() >= lived, "time goes on where it was");
    }
}

/// How the last life is told of, or not.
#[derive(Clone, Copy, Debug)]
enum Told {
    WithLog,
    WithoutLog,
    /// A life with a log that is killed before it has logged anything comes after one without.
    WithoutLogThenLog,
    LogLost,
}

/// What a snapshot is told that lies before the end of a life that was killed.
fn snapshot_of_a_life_before(told: Told) -> Result<bool, ErrorCode> {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let log = match told {
        Told::WithLog | Told::LogLost => DeviceKind::Ssd,
        Told::WithoutLog | Told::WithoutLogThenLog => DeviceKind::None,
    };
    let mut life = Life::begin(folder.path(), log, &clock);
    // Not before this shard's first moment: what was never served may be answered.
    let then = clock.now().saturating_add(Duration::from_millis(400));
    assert_eq!(life.get(ReadAt::Snapshot(then)), Ok(false));
    drop(life);
    clock.advance(Duration::from_secs(5));
    let mut life = match told {
        Told::WithLog | Told::WithoutLog => Life::begin(folder.path(), log, &clock),
        Told::WithoutLogThenLog => {
            drop(Life::begin(folder.path(), DeviceKind::Ssd, &clock));
            clock.advance(Duration::from_secs(5));
            Life::begin(folder.path(), DeviceKind::Ssd, &clock)
        }
        Told::LogLost => {
            std::fs::remove_dir_all(folder.path().join("data/wal")).unwrap();
            Life::begin_without(folder.path(), log, &clock, AcceptedLoss::Everything)
        }
    };
    let answer = life.get(ReadAt::Snapshot(then));
    // What is asked for from now on, and what is latest, is answered.
    assert_eq!(life.get(ReadAt::Snapshot(clock.now())), Ok(false));
    assert_eq!(life.get(ReadAt::Latest(clock.now())), Ok(false));
    answer
}

#[test]
fn a_snapshot_that_a_life_without_a_word_of_its_watermark_may_have_collected_is_refused() {
    assert_eq!(
        snapshot_of_a_life_before(Told::WithLog),
        Ok(false),
        "the log knows that nothing was collected"
    );
    for told in [Told::WithoutLog, Told::WithoutLogThenLog, Told::LogLost] {
        assert_eq!(snapshot_of_a_life_before(told), Err(ErrorCode::SnapshotTooOld), "{told:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_stale_watermark_is_noticed() {
    let answers = crate::planted::with(crate::planted::Bug::StaleWatermark, || {
        [Told::WithoutLog, Told::WithoutLogThenLog, Told::LogLost].map(snapshot_of_a_life_before)
    });
    assert_eq!(answers, [Ok(false); 3], "the planted bug is found");
}

/// Whether a record that a reader has seen expired is there after a restart, the clock having been
/// set back by an hour.
fn expired_is_there_again() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let mut life = Life::begin(folder.path(), DeviceKind::Ssd, &clock);
    let expires_at = Expiry::at(clock.now().saturating_add(Duration::from_secs(60)));
    assert_eq!(life.put_until(1, clock.now(), expires_at), Ok(Verdict::Yes));
    assert!(life.has(clock.now()));
    drop(life);
    let now = clock.advance(Duration::from_secs(61));
    assert!(!Life::begin(folder.path(), DeviceKind::Ssd, &clock).has(now));
    clock.set(now.saturating_sub(Duration::from_secs(3600)));
    Life::begin(folder.path(), DeviceKind::Ssd, &clock).has(clock.now())
}

#[test]
fn what_was_seen_expired_stays_expired_when_the_clock_is_set_back_over_a_restart() {
    assert!(!expired_is_there_again());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn expiry_that_is_forgotten_at_a_restart_is_noticed() {
    let is_there =
        crate::planted::with(crate::planted::Bug::ForgottenExpiry, expired_is_there_again);
    assert!(is_there, "the planted bug is found");
}

/// What is told, after a restart over which the clock was set back, of a record that was seen
/// expired between the last durable bound and the kill: at once, and when time has come so far
/// again.
fn told_of_what_was_seen_expired_last() -> [Result<bool, ErrorCode>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let mut life = Life::begin(folder.path(), DeviceKind::Ssd, &clock);
    let began = clock.now();
    let expires_at = Expiry::at(began.saturating_add(Duration::from_millis(300)));
    life.goes_on(Duration::from_millis(250), &clock);
    // A bound was asked for just now. The log keeps the order: when the write is durable, so is the
    // bound.
    assert_eq!(life.put_until(1, clock.now(), expires_at), Ok(Verdict::Yes));
    assert!(life.has(clock.now()));
    life.goes_on(Duration::from_millis(60), &clock);
    assert!(!life.has(clock.now()));
    drop(life);
    clock.set(began);
    let mut life = Life::begin(folder.path(), DeviceKind::Ssd, &clock);
    assert_eq!(
        clock.now(),
        began.saturating_add(Duration::from_millis(250)),
        "time goes on from the bound"
    );
    let at_once = life.get(ReadAt::Latest(began));
    life.goes_on(Duration::from_millis(50), &clock);
    [at_once, Ok(life.has(clock.now()))]
}

#[test]
fn what_was_seen_expired_just_before_a_kill_is_not_there_again() {
    assert_eq!(told_of_what_was_seen_expired_last(), [Err(ErrorCode::Unavailable), Ok(false)]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn what_is_there_again_after_a_kill_is_noticed() {
    let told = crate::planted::with(
        crate::planted::Bug::ForgottenToldExpiry,
        told_of_what_was_seen_expired_last,
    );
    assert_eq!(told, [Ok(true), Ok(false)], "the planted bug is found");
}

#[test]
fn what_may_be_on_the_manifest_is_taken_off_again_before_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let config = ServerConfig::embedded(folder.path().join("data"));
    let inner = LocalEnvironment::open(&config).unwrap();
    let clock = inner.clock();
    let flaky = Arc::new(Photographed::new(inner, config.data.clone(), None, clock));
    let environment = Arc::clone(&flaky) as Arc<dyn Environment>;
    let manifest = Manifest::open(&environment, &AcceptedLoss::Nothing).unwrap();
    let (registry, file) = (manifest.registry("thread-0"), FileName::new(Timestamp::from_nanos(7)));
    let names_it = || {
        String::from_utf8(flaky.load_manifest().unwrap().unwrap()).unwrap().contains("00007.log")
    };
    flaky.is_unsure.store(true, Ordering::Relaxed);
    registry.created(file).unwrap_err();
    assert!(names_it(), "the test is of a manifest that may name it");
    registry.removing(file).unwrap_err();
    flaky.is_unsure.store(false, Ordering::Relaxed);
    registry.created(file).unwrap();
    flaky.is_unsure.store(true, Ordering::Relaxed);
    registry.removing(file).unwrap_err();
    // It stays then, and stays to be removed.
    flaky.is_unsure.store(false, Ordering::Relaxed);
    registry.removing(file).unwrap();
    assert!(!names_it());
    flaky.is_unsure.store(true, Ordering::Relaxed);
    registry.created(file).unwrap_err();
    flaky.is_unsure.store(false, Ordering::Relaxed);
    registry.removing(file).unwrap();
    assert!(!names_it(), "it may go, for no start can miss it");
}

#[test]
fn a_first_start_that_a_crash_cuts_short_anywhere_leaves_a_directory_that_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (data, album) = (folder.path().join("data"), folder.path().join("album"));
    let mut tuning = Tuning::of(timestone_wal::DeviceKind::Ssd);
    tuning.log.file_bytes = 128 * 1024;
    tuning.log.block_bytes = 16 * 1024;
    let config = ServerConfig {
        shards: Some(2),
        threads: Some(2),
        sizes: SizeConfig {
            capacity_bytes: Some(32 << 20),
            cache_bytes: 1 << 20,
            ..SizeConfig::default()
        },
        tuning: Some(tuning),
        ..ServerConfig::embedded(data.clone())
    };
    let inner = LocalEnvironment::open(&config).unwrap();
    let clock = inner.clock();
    let photographed = Arc::new(Photographed::new(inner, data, Some(album.clone()), clock));
    drop(ServerStages::build(&config, Arc::clone(&photographed) as Arc<dyn Environment>).unwrap());
    let taken = *photographed.taken.lock().unwrap();
    assert!(taken >= 20, "{taken} steps");
    for step in 0..taken {
        let data = album.join(step.to_string());
        let config = ServerConfig { data: data.clone(), shards: None, ..config.clone() };
        let environment = Arc::new(
            LocalEnvironment::open(&config).unwrap_or_else(|error| panic!("step {step}: {error}")),
        );
        if let Err(error) = ServerStages::build(&config, environment) {
            panic!("step {step} of {taken}: {error}");
        }
        std::fs::remove_dir_all(data).unwrap();
    }
}

/// What a start says that comes after a crash which removed no file that had been taken off the
/// manifest, and another one at any step of the start after that.
fn starts_after_two_crashes() -> Result<(), ServerError> {
    let folder = tempfile::tempdir().unwrap();
    let (data, album) = (folder.path().join("data"), folder.path().join("album"));
    let mut tuning = Tuning::of(DeviceKind::Ssd);
    tuning.log.file_bytes = 128 * 1024;
    tuning.log.block_bytes = 16 * 1024;
    let config = ServerConfig {
        shards: Some(1),
        threads: Some(1),
        sizes: SizeConfig {
            capacity_bytes: Some(32 << 20),
            cache_bytes: 1 << 20,
            ..SizeConfig::default()
        },
        tuning: Some(tuning.clone()),
        ..ServerConfig::embedded(data.clone())
    };
    let environment: Arc<dyn Environment> = Arc::new(LocalEnvironment::open(&config).unwrap());
    drop(ServerStages::build(&config, Arc::clone(&environment)).unwrap());
    // Runs with more threads: one log with a record in its first file and a blank one behind that,
    // and one with nothing in it.
    let manifest = Manifest::open(&environment, &AcceptedLoss::Nothing).unwrap();
    let now = environment.clock().now();
    let open = |name: &str, at: u64| {
        let log = LogConfig { registry: Some(manifest.registry(name)), ..tuning.log.clone() };
        let mut recovery = environment.open_log(name, log).unwrap();
        while recovery.next_record().unwrap().is_some() {}
        recovery.finish(now.saturating_add(Duration::from_nanos(at))).unwrap()
    };
    let mut log = open("thread-1", 1);
    let (shard, batch) = (ShardId::new(0), timestone_wal::BatchNumber::new(1));
    let first = timestone_wal::RecordNumber::FIRST;
    let mut record = Vec::new();
    timestone_wal::LogRecord::KeepFrom { batch }.encode(&mut record);
    log.append_batch(
        timestone_wal::BatchHead { shard, batch, epoch: Epoch::default(), first },
        &record,
    )
    .unwrap();
    log.shutdown(now, &mut Vec::new()).unwrap();
    drop(open("thread-1", 2));
    drop(open("thread-2", 3));
    let files = environment.log_files("thread-1").unwrap();
    assert_eq!(files.len(), 2, "one with the record, and a blank one");
    // The first crash: the file is off the manifest, and still there.
    manifest.registry("thread-1").removing(*files.iter().min().unwrap()).unwrap();
    drop((manifest, environment));
    let config = ServerConfig { shards: None, ..config };
    let inner = LocalEnvironment::open(&config).unwrap();
    let clock = inner.clock();
    let photographed = Arc::new(Photographed::new(inner, data, Some(album.clone()), clock));
    drop(ServerStages::build(&config, Arc::clone(&photographed) as Arc<dyn Environment>).unwrap());
    let saved = String::from_utf8(photographed.load_manifest().unwrap().unwrap()).unwrap();
    assert!(
        saved.contains("thread-1") && !saved.contains("thread-2"),
        "a log without a folder is none: {saved}"
    );
    let taken = *photographed.taken.lock().unwrap();
    assert!(taken >= 10, "{taken} steps");
    for step in 0..taken {
        let data = album.join(step.to_string());
        let config = ServerConfig { data: data.clone(), ..config.clone() };
        ServerStages::build(&config, Arc::new(LocalEnvironment::open(&config).unwrap()))?;
        std::fs::remove_dir_all(data).unwrap();
    }
    Ok(())
}

#[test]
fn a_log_stays_on_the_manifest_while_a_file_may_be_there_that_was_taken_off_it() {
    starts_after_two_crashes().unwrap();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_log_that_leaves_the_manifest_with_its_last_file_is_noticed() {
    let started =
        crate::planted::with(crate::planted::Bug::UnlistedWithLastFile, starts_after_two_crashes);
    assert!(
        matches!(started, Err(ServerError::UnlistedLog { .. })),
        "the planted bug is found: {started:?}"
    );
}

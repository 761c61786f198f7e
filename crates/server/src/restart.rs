//! From devices to shards: stores are opened and logs replayed, several shards side by side.
//!
//! ```text
//!   shards ─► open_stores (a thread for each of a few) ─► Replay per shard
//!   log ─► read, checked ─┬─ chunks ─► worker 0: shards 0, 2, …  ─► Replay::record
//!                         └─ chunks ─► worker 1: shards 1, 3, …
//! ```
//! Records of a shard keep their order; between shards there is none. With a parallelism of one
//! everything happens on the caller's thread, in order: what is simulated must not depend on
//! threads. Source: DTranx §4.4.

use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timestone_seda::StageId;
use timestone_store::prelude::*;
use timestone_store::{
    Dram, DramConfig, FtlConfig, Mftl, MftlConfig, OpenFrugal, Opening, Places, RecoveryReport,
    Sftl, Skimpy, SkimpyConfig, Stores, VftlConfig,
};
use timestone_types::{ClusterId, ShardId, Timestamp};
use timestone_wal::{DeviceKind, LogConfig};

use crate::assembly::StagePlan;
use crate::config::{ServerConfig, Tuning};
use crate::environment::{Environment, FlashPart};
use crate::error::ServerError;
use crate::gauges::LogGauges;
use crate::limits::{self, REPLAY_CHUNK_BYTES, REPLAY_CHUNKS_AHEAD};
use crate::log_stage::{LastLog, LogStage};
use crate::manifest::Manifest;
use crate::replica_stage::FoundEntries;
use timestone_shard::{RecordPlace, Replay};

/// What opens stores, also while a server runs.
pub(crate) struct StoreOpener {
    pub(crate) config: ServerConfig,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) tuning: Tuning,
    pub(crate) cluster: ClusterId,
    /// Over how many shards the device's space and the caches are divided.
    pub(crate) shards: usize,
}

impl StoreOpener {
    /// Opens or creates the stores of these shards, several side by side.
    pub(crate) fn open_all(&self, shards: &[ShardId]) -> Result<Vec<Replay>, ServerError> {
        side_by_side(self.environment.parallelism(), shards, |&shard| self.open(shard))
    }

    /// Opens or creates the store of a shard.
    pub(crate) fn open(&self, shard: ShardId) -> Result<Replay, ServerError> {
        Ok(Replay::new(shard, self.open_store(shard)?))
    }

    /// Makes the store of a shard anew: what is there goes. Nobody has it open.
    pub(crate) fn open_empty(&self, shard: ShardId) -> Result<Box<dyn Store + Send>, ServerError> {
        self.manifest.removing_flash(shard)?;
        self.environment.remove_flash(shard)?;
        self.open_store(shard)
    }

    /// Opens the stores of a shard with nothing between: keyspaces by the ids that they are kept
    /// under.
    pub(crate) fn open_as_kept(
        &self,
        shard: ShardId,
    ) -> Result<Box<dyn Store + Send>, ServerError> {
        self.open_with(shard, None)
    }

    fn open_store(&self, shard: ShardId) -> Result<Box<dyn Store + Send>, ServerError> {
        self.open_with(shard, Some(self.manifest.places()))
    }

    fn open_with(
        &self,
        shard: ShardId,
        places: Option<Places>,
    ) -> Result<Box<dyn Store + Send>, ServerError> {
        let (config, tuning, environment) = (&self.config, &self.tuning, &*self.environment);
        let count = self.shards.max(1) as u64;
        let budget = crate::memory::Budget::of(config);
        let capacity = match config.sizes.capacity_bytes {
            Some(bytes) => bytes,
            None => environment.capacity_bytes()?,
        };
        let blocks = self.blocks_of(capacity);
        let cache_bytes = config.sizes.cache_bytes / count;
        #[cfg(feature = "planted-bugs")]
        let cache_bytes =
            if timestone_types::is_planted!(ForgottenCache) { 8 << 20 } else { cache_bytes };
        let started = std::time::Instant::now();
        #[cfg(feature = "planted-bugs")]
        let blocks = if timestone_types::is_planted!(ForgottenCapacity)
            && environment.has_flash(shard, FlashPart::Full)
        {
            limits::MIN_BLOCKS
        } else {
            blocks
        };
        let has_frugal = environment.has_flash(shard, FlashPart::Frugal);
        let device = environment.open_flash(shard, FlashPart::Full, blocks)?;
        self.manifest.flash_created(shard, FlashPart::Full)?;
        let mftl = MftlConfig {
            store_id: self.cluster.get().rotate_left(16) ^ u64::from(shard.get()),
            seed: self.manifest.hash_seed()?,
            cache_bytes: if has_frugal { cache_bytes / 2 } else { cache_bytes },
            beside_bytes: budget.beside / count,
            page_buffer_bytes: budget.page_buffers / count,
            staged_bytes: (budget.writes / count).min(timestone_store::limits::MAX_STAGED_BYTES),
            assembled_bytes: (budget.assembled / count)
                .min(timestone_store::limits::MAX_ASSEMBLED_BYTES),
            packing_delay: tuning.packing_delay,
            partial_page_delay: tuning.partial_page_delay,
            sync_interval: tuning.sync_interval,
            checkpoint_bytes: tuning.checkpoint_bytes,
            without_log: config.log == DeviceKind::None,
        };
        let failed = |source| ServerError::Store { shard, source: Box::new(source) };
        if tuning.single_version {
            let config = VftlConfig { store: mftl, ftl: FtlConfig::default() };
            let (store, _) = Sftl::open(device, config).map_err(failed)?;
            return Ok(Box::new(store));
        }
        let (store, report) = Mftl::open(device, mftl).map_err(failed)?;
        tell(shard, FlashPart::Full, &report, started);
        let memory_bytes = config.sizes.dram_bytes / count;
        let dram = Dram::in_recovery(DramConfig { seed: store.seed(), memory_bytes });
        let frugal = FrugalOpener {
            shard,
            environment: Arc::clone(&self.environment),
            manifest: Arc::clone(&self.manifest),
            blocks: self.blocks_of(config.sizes.frugal_capacity_bytes.unwrap_or(capacity)),
            block_bytes: tuning.block_bytes,
            keys: config.sizes.frugal_keys / count,
            places: config.sizes.frugal_places,
            full: MftlConfig { seed: store.seed(), ..mftl },
        };
        let stores = Stores::new(store, dram);
        let stores = match places {
            Some(places) => stores.with_places(places),
            None => stores,
        };
        if has_frugal {
            return Ok(Box::new(stores.with_frugal(frugal.open()?)));
        }
        Ok(Box::new(stores.with_frugal_later(frugal.later(), cache_bytes)))
    }

    /// The blocks of a shard's device, of so many bytes over all shards.
    fn blocks_of(&self, capacity: u64) -> u32 {
        let of_shard = capacity / self.shards.max(1) as u64;
        u32::try_from(of_shard / self.tuning.block_bytes)
            .unwrap_or(u32::MAX)
            .max(limits::MIN_BLOCKS)
    }
}

/// For how many keys a device with so much room gets buckets, where so many are expected.
fn keys_of_buckets(expected: u64, room: u64) -> u64 {
    expected.max(limits::MIN_FRUGAL_KEYS).min(room).max(1)
}

/// Opens the store of a shard's keyspaces with their index on flash: at the start where it is there,
/// and otherwise when something is to be written to one.
struct FrugalOpener {
    shard: ShardId,
    environment: Arc<dyn Environment>,
    manifest: Arc<Manifest>,
    blocks: u32,
    block_bytes: u64,
    keys: u64,
    /// Of so many of a hundred of them memory knows where they are.
    places: u32,
    /// How the other store on flash runs.
    full: MftlConfig,
}

impl FrugalOpener {
    fn open(&self) -> Result<Skimpy, ServerError> {
        let (shard, part, full) = (self.shard, FlashPart::Frugal, &self.full);
        let started = std::time::Instant::now();
        let device = self.environment.open_flash(shard, part, self.blocks)?;
        self.manifest.flash_created(shard, part)?;
        let room = u64::from(self.blocks) * self.block_bytes / limits::FRUGAL_BYTES_PER_KEY;
        let config = SkimpyConfig {
            store_id: full.store_id,
            seed: full.seed,
            keys: keys_of_buckets(self.keys, room),
            translated_thousandths: self.places.clamp(1, 100) * 10,
            cache_bytes: full.cache_bytes,
            // What its index takes is taken out of its record cache: the other store has the share.
            beside_bytes: 0,
            staged_bytes: full.staged_bytes,
            assembled_bytes: full.assembled_bytes,
            packing_delay: full.packing_delay,
            partial_page_delay: full.partial_page_delay,
            sync_interval: full.sync_interval,
            checkpoint_bytes: full.checkpoint_bytes,
            without_log: full.without_log,
            ..SkimpyConfig::default()
        };
        let (store, report) = Skimpy::open(device, config)
            .map_err(|source| ServerError::Store { shard, source: Box::new(source) })?;
        tell(shard, part, &report, started);
        Ok(store)
    }

    fn open_or_say(&self) -> Opening {
        match self.open() {
            Ok(store) => Opening::Open(Box::new(store)),
            Err(error) => Opening::Failed(format!(
                "the device of the keyspaces with index frugal in shard-{:04} cannot be opened: \
                 {error}. What is written to them is refused until it can be; all else goes on",
                self.shard.get()
            )),
        }
    }

    /// Opens it when it is asked for: on a thread of its own, where threads are allowed, for it takes
    /// as long as a few syncs and the writing of its first blocks do.
    fn later(self) -> OpenFrugal {
        if self.environment.parallelism() <= 1 {
            return Box::new(move |_| self.open_or_say());
        }
        let (opener, mut beside) = (Arc::new(self), OpenedBeside::default());
        Box::new(move |at_most| beside.ask(&opener, at_most))
    }
}

/// A store that a thread of its own opens.
#[derive(Default)]
struct OpenedBeside(Option<(Receiver<Opening>, std::thread::JoinHandle<()>)>);

impl OpenedBeside {
    /// How far it has come, after so long at the latest; begins where nobody has.
    fn ask(&mut self, opener: &Arc<FrugalOpener>, at_most: Duration) -> Opening {
        if self.0.is_none() {
            let (opener, (sender, receiver)) = (Arc::clone(opener), sync_channel(1));
            let open = move || {
                // Who has asked may be gone.
                let _ = sender.send(opener.open_or_say());
            };
            #[expect(
                clippy::disallowed_methods,
                reason = "only where an environment allows threads, and never in a simulation"
            )]
            match std::thread::Builder::new().name("open-frugal".to_owned()).spawn(open) {
                Ok(thread) => self.0 = Some((receiver, thread)),
                Err(error) => return Opening::Failed(format!("no thread can be started: {error}")),
            }
        }
        let told = self.0.as_ref().map(|(receiver, _)| receiver.recv_timeout(at_most));
        match told {
            Some(Err(RecvTimeoutError::Timeout)) => Opening::UnderWay,
            Some(Ok(opening)) => {
                self.end();
                opening
            }
            None | Some(Err(RecvTimeoutError::Disconnected)) => {
                self.end();
                Opening::Failed(worker_panicked().to_string())
            }
        }
    }

    fn end(&mut self) {
        let _ = self.0.take().map(|(_, thread)| thread.join());
    }
}

/// Nothing is made in a data directory that somebody else may own by then.
impl Drop for OpenedBeside {
    fn drop(&mut self) {
        self.end();
    }
}

/// Logs what a store found on its device.
fn tell(shard: ShardId, part: FlashPart, report: &RecoveryReport, started: std::time::Instant) {
    let file = part.file_name();
    tracing::info!(
        %shard, file, keys = report.keys, read_bytes = report.read_bytes, checkpoint = report.checkpoint.is_some(),
        elapsed_ms = started.elapsed().as_millis() as u64, "store open"
    );
    if report.unread_pages > 0 {
        tell_unread(shard, file, report.unread_pages);
    }
    if report.met_damage() {
        tracing::warn!(
            %shard, file, corrupt_records = report.corrupt_records, corrupt_pages = report.corrupt_pages,
            bad_checkpoints = report.bad_checkpoints, unreadable_tails = report.unreadable_tails,
            "the store met what it cannot read. After a crash that is what the last writes \
             left, and the log has them; after a clean \
             shutdown the device is damaged: restore the shard from a backup if its keys matter"
        );
    }
}

/// Says what to do about pages that a device did not read.
fn tell_unread(shard: ShardId, file: &str, pages: u64) {
    tracing::warn!(
        %shard, file, pages,
        "the device did not read some pages. It may read them at the next start, so no deletion is \
         forgotten until one that reads all, and each keeps its room. `timestone data unreadable` \
         names the pages while no server runs, and lets go of them where the device will never read \
         them again"
    );
}

pub(crate) type LogStages = Vec<(LogStage, Arc<LogGauges>)>;

/// Replays every log of the environment into the shards, and opens the log of every thread.
pub(crate) fn replay_logs(
    config: &ServerConfig,
    environment: &Arc<dyn Environment>,
    manifest: &Arc<Manifest>,
    tuning: &Tuning,
    plan: &StagePlan,
    stage_of: &[(ShardId, StageId)],
    mut into: ReplayedInto<'_>,
) -> Result<LogStages, ServerError> {
    let started = std::time::Instant::now();
    let now = environment.clock().now();
    if config.log == DeviceKind::Pmem {
        // Refused by the log itself, in its own words.
        environment.open_log(
            &name_of(0),
            LogConfig { device: DeviceKind::Pmem, ..LogConfig::default() },
        )?;
    }
    // Logs that an earlier run wrote are replayed whatever this one is told.
    let mut names = environment.logs()?;
    manifest.forget_logs_but(&names)?;
    refuse_unlisted_logs(&**environment, manifest, tuning, &names)?;
    let own: Vec<String> = if config.log == DeviceKind::Ssd {
        (0..plan.threads).map(name_of).collect()
    } else {
        Vec::new()
    };
    names.extend(own.iter().cloned());
    names.sort();
    names.dedup();
    let (mut logs, mut emptied) = (Vec::new(), Vec::new());
    let (mut records, mut bytes) = (0u64, 0u64);
    for name in &names {
        let (registry, lost) = (Some(manifest.registry(name)), manifest.lost_files(name));
        // Nothing is appended to the others, which have an empty file all the same.
        let file_bytes =
            if own.contains(name) { tuning.log.file_bytes } else { last_file_bytes(tuning) };
        let log =
            LogConfig { device: DeviceKind::Ssd, registry, lost, file_bytes, ..tuning.log.clone() };
        let mut recovery = environment.open_log(name, log)?;
        into.read(environment.parallelism(), now, |take| {
            while let Some(record) = recovery.next_record().map_err(ServerError::part)? {
                let index = stage_of.iter().position(|(shard, _)| *shard == record.shard);
                let Some(index) = index else {
                    return Err(ServerError::ForeignRecord {
                        path: name.into(),
                        shard: record.shard,
                    });
                };
                records += 1;
                bytes += record.bytes.len() as u64;
                let place =
                    RecordPlace { batch: record.batch, epoch: record.epoch, number: record.number };
                take(index, place, record.bytes)?;
            }
            Ok(())
        })?;
        if own.contains(name) || recovery.report().records > 0 {
            logs.push((name.clone(), recovery.finish(now).map_err(ServerError::part)?));
        } else {
            emptied.push((name.clone(), recovery));
        }
    }
    let applied = into.applied();
    tracing::info!(
        records,
        bytes,
        applied,
        elapsed_ms = started.elapsed().as_millis() as u64,
        "log replayed"
    );
    // Earlier runs have emptied these, and this one writes nothing there.
    for (name, recovery) in emptied {
        recovery.discard().map_err(ServerError::part)?;
        environment.remove_log(&name)?;
        names.retain(|present| *present != name);
        tracing::info!(log = name, "removed a log that held nothing any more");
    }
    manifest.forget_logs_but(&names)?;
    let mut stages: LogStages = Vec::new();
    if config.log != DeviceKind::Ssd {
        if !logs.is_empty() {
            tracing::info!(
                logs = logs.len(),
                "logs of an earlier run are emptied: they go when the store holds all that is in \
                 them"
            );
        }
        let gauges = Arc::new(LogGauges::default());
        let mut stage = LogStage::without_log(0, stage_of.to_vec(), Arc::clone(&gauges));
        stage.makes_last_log(last_log(environment, manifest, tuning));
        stages.push((stage, gauges));
    }
    for thread in 0..own.len() {
        let Some(index) = logs.iter().position(|(name, _)| *name == name_of(thread)) else {
            continue;
        };
        let (_, log) = logs.swap_remove(index);
        let gauges = Arc::new(LogGauges::default());
        stages.push((LogStage::new(thread, log, stage_of.to_vec(), Arc::clone(&gauges)), gauges));
    }
    // Logs that this run does not write to are held by the first stage, until nothing in them is
    // needed.
    if let Some((first, _)) = stages.first_mut() {
        for (_, log) in logs {
            first.adopt(log);
        }
    }
    Ok(stages)
}

fn name_of(thread: usize) -> String {
    format!("thread-{thread}")
}

/// How long the files are of a log that holds little.
fn last_file_bytes(tuning: &Tuning) -> u64 {
    limits::LAST_LOG_FILE_BYTES.min(tuning.log.file_bytes)
}

/// The log of what a run without one leaves at its end: beside those of earlier runs that are not
/// empty yet. The next start takes it for one of these.
fn last_log(
    environment: &Arc<dyn Environment>,
    manifest: &Arc<Manifest>,
    tuning: &Tuning,
) -> LastLog {
    let (environment, manifest) = (Arc::clone(environment), Arc::clone(manifest));
    let log = LogConfig {
        device: DeviceKind::Ssd,
        file_bytes: last_file_bytes(tuning),
        // What is written at an end is not written again before it.
        copy_forward_after_files: usize::MAX / 8,
        ..tuning.log.clone()
    };
    Box::new(move |now| {
        let taken = environment.logs()?;
        let name = (0..).map(name_of).find(|name| !taken.contains(name)).unwrap_or_default();
        let registry = Some(manifest.registry(&name));
        let recovery = environment.open_log(&name, LogConfig { registry, ..log })?;
        let log = recovery.finish(now).map_err(ServerError::part)?;
        tracing::info!(
            log = name,
            "what others have not been told yet is saved for the next start"
        );
        Ok(log)
    })
}

/// A log whose first file was made is on the manifest until its folder is gone. One that is not
/// there and holds records was put there by somebody: what was deleted since these were written
/// would come back with them. Nothing has been replayed yet.
fn refuse_unlisted_logs(
    environment: &dyn Environment,
    manifest: &Manifest,
    tuning: &Tuning,
    names: &[String],
) -> Result<(), ServerError> {
    for name in names.iter().filter(|name| !manifest.lists_log(name)) {
        let log = LogConfig { device: DeviceKind::Ssd, ..tuning.log.clone() };
        if environment.open_log(name, log)?.next_record().map_err(ServerError::part)?.is_some() {
            return Err(ServerError::UnlistedLog { path: environment.root(), log: name.clone() });
        }
    }
    Ok(())
}

/// Does `work` for every item, for up to `workers` of them at a time; the results come in the order
/// of the items.
fn side_by_side<T: Sync, R: Send>(
    workers: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, ServerError> + Sync,
) -> Result<Vec<R>, ServerError> {
    if workers <= 1 {
        return items.iter().map(work).collect();
    }
    let next = Mutex::new(items.iter().enumerate());
    let run = || {
        let mut done = Vec::new();
        loop {
            let taken = next.lock().ok().and_then(|mut next| next.next());
            let Some((index, item)) = taken else { return done };
            done.push((index, work(item)));
        }
    };
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers.min(items.len())).map(|_| scope.spawn(run)).collect();
        for worker in workers {
            done.extend(worker.join().map_err(|_| worker_panicked())?);
        }
        Ok::<(), ServerError>(())
    })?;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn worker_panicked() -> ServerError {
    ServerError::Internal("a thread of the recovery panicked".to_owned())
}

/// Records on their way to a worker.
#[derive(Default)]
struct Chunk {
    records: Vec<(usize, RecordPlace, Range<usize>)>,
    bytes: Vec<u8>,
}

/// What takes the records of a log, one after the other: the index of the shard, where the record
/// stands, its bytes.
type Take<'a> = dyn FnMut(usize, RecordPlace, &[u8]) -> Result<(), ServerError> + 'a;

/// Who takes the records of the logs, by shard.
pub(crate) enum ReplayedInto<'a> {
    /// Shards with one copy: what is in their logs counts.
    Shards(&'a mut [Replay]),
    /// Replicas: what of it counts is known when all was read.
    Replicas(&'a mut [FoundEntries]),
}

impl ReplayedInto<'_> {
    /// Lets `read` hand out the records of a log.
    fn read(
        &mut self,
        workers: usize,
        now: Timestamp,
        read: impl FnOnce(&mut Take<'_>) -> Result<(), ServerError>,
    ) -> Result<(), ServerError> {
        match self {
            Self::Shards(replays) => replay_side_by_side(workers, now, replays, read),
            Self::Replicas(found) => {
                read(&mut |index, place, bytes| {
                    found[index].record(place.batch, place.number, bytes);
                    Ok(())
                })?;
                found.iter_mut().for_each(FoundEntries::close);
                Ok(())
            }
        }
    }

    /// Transactions that were put into stores.
    fn applied(&self) -> u64 {
        match self {
            Self::Shards(replays) => replays.iter().map(Replay::applied).sum(),
            Self::Replicas(_) => 0,
        }
    }
}

/// Lets `read` hand out the records of a log and replays them, up to `workers` shards at a time.
fn replay_side_by_side(
    workers: usize,
    now: Timestamp,
    replays: &mut [Replay],
    read: impl FnOnce(&mut Take<'_>) -> Result<(), ServerError>,
) -> Result<(), ServerError> {
    let workers = workers.min(replays.len());
    if workers <= 1 {
        return read(&mut |index, place, bytes| Ok(replays[index].record(now, place, bytes)?));
    }
    let mut shares: Vec<Vec<&mut Replay>> = (0..workers).map(|_| Vec::new()).collect();
    for (index, replay) in replays.iter_mut().enumerate() {
        shares[index % workers].push(replay);
    }
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut threads = Vec::new();
        for share in shares {
            let (sender, receiver) = sync_channel(REPLAY_CHUNKS_AHEAD);
            senders.push((sender, Chunk::default()));
            threads.push(scope.spawn(move || replay_share(now, share, &receiver)));
        }
        let mut take = |index: usize, place, bytes: &[u8]| {
            let (sender, chunk) = &mut senders[index % workers];
            let start = chunk.bytes.len();
            chunk.bytes.extend_from_slice(bytes);
            chunk.records.push((index / workers, place, start..chunk.bytes.len()));
            if chunk.bytes.len() >= REPLAY_CHUNK_BYTES { ship(sender, chunk) } else { Ok(()) }
        };
        let read = read(&mut take)
            .and_then(|()| senders.iter_mut().try_for_each(|(sender, chunk)| ship(sender, chunk)));
        drop(senders);
        // A worker that failed says why; what the reader met then is only that the worker is gone.
        for thread in threads {
            thread.join().map_err(|_| worker_panicked())??;
        }
        read
    })
}

fn ship(to: &SyncSender<Chunk>, chunk: &mut Chunk) -> Result<(), ServerError> {
    to.send(std::mem::take(chunk)).map_err(|_| worker_panicked())
}

fn replay_share(
    now: Timestamp,
    mut share: Vec<&mut Replay>,
    chunks: &Receiver<Chunk>,
) -> Result<(), ServerError> {
    for chunk in chunks {
        for (index, place, range) in chunk.records {
            share[index].record(now, place, &chunk.bytes[range])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_expected_keys_make_no_long_chains_and_a_small_device_has_no_room_for_many() {
        assert_eq!(keys_of_buckets(0, 1 << 20), limits::MIN_FRUGAL_KEYS);
        assert_eq!(keys_of_buckets(50_000, 1 << 20), 50_000);
        assert_eq!(keys_of_buckets(50_000, 4096), 4096);
        assert_eq!(keys_of_buckets(0, 300), 300);
        assert_eq!(keys_of_buckets(0, 0), 1);
    }

    #[test]
    fn results_come_in_order_whoever_made_them_and_the_first_error_is_told() {
        let items: Vec<u32> = (0..50).collect();
        for workers in [1, 2, 7, 100] {
            let squares = side_by_side(workers, &items, |n| Ok(n * n)).unwrap();
            assert!(squares.iter().zip(&items).all(|(square, n)| *square == n * n));
            let odd = |n: &u32| {
                if *n < 30 { Ok(()) } else { Err(ServerError::Internal(format!("number {n}"))) }
            };
            assert!(
                side_by_side(workers, &items, odd).unwrap_err().to_string().contains("number 30")
            );
        }
    }
}

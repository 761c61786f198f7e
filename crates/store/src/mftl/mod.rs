//! The multi-version store of SEMEL (§3.1): the index maps a key directly to a flash page, one
//! collector serves space and versions.
//!
//! ```text
//!            put ───────────────► writer ──► groups of pages ──► port ──► device
//!             │  └──► cache          ▲                            ▲ │
//!             ▼         ▲            │ survivors                  │ │ pages
//!   space ► index       └── reads ◄──┼────────────────────────────┘ ▼
//!             ▲                   collect, staging, walk, checkpoint (a little at every pump)
//!             └── recover (once, at opening)
//! ```
//!
//! The parts hold their own state; this module owns them all, takes the calls of [`Store`](crate::Store) and
//! drives the parts from [`Upkeep::pump`].
//!
//! Invariants: (1) every record in a block that is not erased, and not hidden by a fence at or
//! below the watermark, is named by the index or counted in its key's grave; (2) a block is erased
//! only when its survivors are durable elsewhere and no read is under way in it; (3) what the index
//! names can be read at once: from the cache, a group, the staging area or the device.

mod blocks;
mod cache;
mod checkpoint;
mod collect;
mod config;
mod factory;
mod index;
mod port;
mod put;
mod reads;
mod recover;
mod space;
mod staging;
mod stats;
mod walk;
mod writer;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_flash::{BlockId, FlashCompletion, FlashDevice, FlashError, FlashOp, PageId};
use timestone_types::{Expiry, HashSeed, KeyRef, KeyspaceId, Span, Timestamp, Version};

use crate::api::{
    AsOf, Count, FigureValues, Figures, Latest, LatestLookup, Lookup, PutSize, ReadToken, Reads,
    ScanCursor, ScanLimit, StoreEvent, Upkeep, Writes,
};
use crate::error::StoreError;
use crate::layout::{MAX_RECORD_BYTES, Record};
use crate::limits::{PROMISE_MARGIN, RECYCLE_BYTES};
use blocks::{BlockState, Blocks};
use cache::Cache;
use checkpoint::Checkpointer;
use collect::Collector;
pub use config::{MftlConfig, RecoveryReport};
pub use factory::MftlFactory;
use index::{KeyId, Location};
use port::{Port, Purpose};
use reads::{Found, Reads as PageReads};
use space::Spaces;
use staging::Staging;
pub use stats::MftlStats;
use walk::Walks;
use writer::{StreamId, Writer};

#[cfg(feature = "fuzz")]
pub(crate) use checkpoint::{pages_of as checkpoint_pages, read_page as decode_checkpoint_page};

/// Decodes the stream of a checkpoint; how many keys it names.
#[cfg(feature = "fuzz")]
pub(crate) fn decode_checkpoint(bytes: &[u8]) -> Option<u64> {
    let mut keys = 0;
    checkpoint::read(bytes, |_, _, _, _, _, _| keys += 1)?;
    Some(keys)
}

/// How far a shutdown has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Running,
    /// No more writes; everything is being made durable, a checkpoint last.
    Draining,
    Down,
}

/// How often a store that comes to its end looks whether it has.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

/// Keys whose entries are fetched together when a block has been erased.
const ERASED_TOGETHER: usize = 32;

/// What puts take of pages, at most, for every byte of theirs: of two pages that follow each other,
/// more than one is filled. For the smallest records it stands for their headers.
const WORST_PACKING: u64 = 2;

/// The store. See [`crate::Store`] for its operations.
///
/// ```
/// use timestone_store::{Lookup, Mftl, MftlConfig, ReadToken, Reads, Writes};
/// use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Box::new(timestone_flash::MemoryDevice::new(timestone_flash::MemoryConfig::default()));
/// let (mut store, report) = Mftl::open(device, MftlConfig::default())?;
/// assert_eq!(report.keys, 0);
/// let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, b"planet");
/// let version = Version::new(Timestamp::from_nanos(7), ClientId::new(1));
/// store.put(key, version, b"earth", Expiry::NEVER)?;
/// let found = store.get(key, Timestamp::from_nanos(8), ReadToken(1))?;
/// assert!(matches!(found, Lookup::Present { value: b"earth", .. }));
/// # Ok(())
/// # }
/// ```
pub struct Mftl {
    config: MftlConfig,
    seed: HashSeed,
    port: Port,
    blocks: Blocks,
    spaces: Spaces,
    cache: Cache,
    writer: Writer,
    reads: PageReads,
    staging: Staging,
    collector: Collector,
    checkpointer: Checkpointer,
    walks: Walks,
    /// Reads below it are refused.
    watermark: Timestamp,
    /// What a version at or below it supersedes may go. Without a log it may trail the watermark.
    collection_watermark: Timestamp,
    settled: Timestamp,
    life: Life,
    failed: bool,
    sync_wanted: bool,
    growing: bool,
    /// Dirty blocks that are being erased.
    cleaning: Vec<BlockId>,
    stats: MftlStats,
    events: Vec<StoreEvent>,
    completions: Vec<FlashCompletion>,
    recycled: Vec<Vec<u8>>,
    recycled_bytes: usize,
}

impl Mftl {
    /// Opens the store on a device: recovers whatever is there, blocking through the device's own
    /// waiting.
    ///
    /// # Errors
    /// [`StoreError::ForeignStore`], [`StoreError::Format`], and failures of the device.
    pub fn open(
        device: Box<dyn FlashDevice>,
        config: MftlConfig,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        recover::open(device, config)
    }

    /// The configuration it was opened with.
    #[must_use]
    pub fn config(&self) -> &MftlConfig {
        &self.config
    }

    /// The device under the store.
    #[must_use]
    pub fn device(&self) -> &dyn FlashDevice {
        &*self.port.device
    }

    /// The longest value that this device's blocks allow.
    #[must_use]
    pub fn max_value_bytes(&self) -> usize {
        staging::max_value_bytes(self.blocks.geometry)
    }

    /// Ends the store without draining and gives its device back, as after a crash of the process.
    /// For tests.
    #[must_use]
    pub fn into_device(self) -> Box<dyn FlashDevice> {
        self.port.device
    }

    /// Bytes for an answer, recycled when there are any.
    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = self.recycled.pop().unwrap_or_default();
        self.recycled_bytes -= bytes.capacity();
        bytes.clear();
        bytes
    }

    /// The first failure of the device ends writing.
    fn device_failed(&mut self, error: impl Into<StoreError>) {
        if !self.failed {
            self.failed = true;
            self.events.push(StoreEvent::DeviceFailed(error.into()));
        }
    }

    fn complete(&mut self, completion: FlashCompletion) {
        let FlashCompletion { token, result, buffer } = completion;
        let Some((purpose, number)) = Purpose::of(token) else { return };
        match purpose {
            Purpose::Program => {
                if let Some(buffer) = buffer {
                    self.port.give(buffer);
                }
                match result {
                    Ok(()) => self.writer.programmed(number, &mut self.blocks),
                    Err(error) => self.device_failed(error),
                }
            }
            Purpose::Sync => match result {
                Ok(()) => {
                    self.writer.synced();
                    if self.collection_watermark < self.watermark {
                        self.follow_watermark();
                    }
                }
                Err(error) => self.device_failed(error),
            },
            Purpose::Erase => match result {
                Ok(()) => self.erased(BlockId(number as u32)),
                Err(error) => self.device_failed(error),
            },
            Purpose::Grow => {
                self.growing = false;
                match result {
                    Ok(()) => self.grown(),
                    Err(error) => {
                        let (pause, is_news) =
                            self.collector.growth_failed(self.writer.now, cause_of(&error));
                        if is_news {
                            tracing::warn!(
                                %error,
                                "the flash device could not grow: free space on its disk; it tries \
                                 again in {}, and then now and then",
                                Span(pause)
                            );
                        }
                    }
                }
            }
            Purpose::PageRead | Purpose::VictimRead | Purpose::PartRead | Purpose::ScrubRead => {
                self.port.read_done();
                let Some(buffer) = buffer else { return };
                match purpose {
                    Purpose::PageRead => self.page_read(PageId(number as u32), result, &buffer),
                    Purpose::PartRead => self.part_read(number, result, &buffer),
                    Purpose::ScrubRead => self.scrub_read(result, &buffer),
                    _ => {
                        self.victim_read(number, result, buffer);
                        return;
                    }
                }
                self.port.give(buffer);
            }
            Purpose::Recovery => {}
        }
    }

    fn grown(&mut self) {
        self.collector.growth_done();
        self.blocks.geometry = self.port.device.geometry();
        while self.blocks.count() < self.blocks.geometry.blocks {
            let generation = self.port.device.generation(BlockId(self.blocks.count()));
            self.blocks.add_free(generation);
        }
    }

    /// Takes in what has completed.
    fn poll(&mut self) {
        let mut completions = core::mem::take(&mut self.completions);
        self.port.submit(&mut completions);
        self.port.device.poll(&mut completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
    }

    fn sweep(&mut self) -> bool {
        let (blocks, watermark) = (&mut self.blocks, self.collection_watermark);
        let swept = self.spaces.sweep(watermark, |page, by| {
            if page < Location::MAX_PAGES {
                blocks.superseded(PageId(page), by, watermark);
            }
        });
        if swept {
            self.collector.much_died();
        }
        swept
    }

    /// Whether a write that waits for nothing but the next pump is under way.
    fn has_work(&self) -> bool {
        self.staging.has_work(&self.writer)
            || self.collector.has_work()
            || self.checkpointer.has_work()
            || self.walks.has_work()
            || self.reads.has_work()
            || !self.spaces.graveyard.is_empty()
            || self
                .spaces
                .list
                .iter()
                .any(|space| space.fence_at(self.collection_watermark) > space.swept)
    }

    fn drain(&mut self) {
        match self.life {
            Life::Draining if self.failed => {}
            Life::Draining => {
                if !self.staging.is_empty() {
                    self.sync_wanted = true;
                } else if self.checkpointer.final_done {
                    self.life = Life::Down;
                    self.events.push(StoreEvent::ShutDown);
                } else if !self.checkpointer.wanted_or_running() {
                    self.checkpointer.want_final();
                }
            }
            Life::Running | Life::Down => {}
        }
    }
}

/// Why a device could not grow, without the advice that comes with it.
fn cause_of(error: &FlashError) -> String {
    match error {
        FlashError::Full { reason } => reason.clone(),
        other => other.to_string(),
    }
}

impl Reads for Mftl {
    fn seed(&self) -> HashSeed {
        self.seed
    }

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.check_age(at)?;
        let id = KeyId::of(self.seed, key);
        match self.locate(key.keyspace, id, key.bytes, at, None) {
            Found::Absent { version, expires_at } => Ok(Lookup::Absent { version, expires_at }),
            Found::Cached { version, place } => {
                self.stats.cache_hits += 1;
                let expires_at = self.cache.expires_at(place);
                Ok(reads::visible(version, expires_at, self.cache.value(place), judged))
            }
            Found::InGroup { version, page, offset } => {
                self.stats.page_hits += 1;
                let record = self.record_in_group(page, offset)?;
                Ok(reads::visible(version, record.expires_at, record.value, judged))
            }
            Found::Staged { version, slot } => {
                self.stats.page_hits += 1;
                let (expires_at, value) = self.staging.value(slot);
                Ok(reads::visible(version, expires_at, value, judged))
            }
            Found::OnFlash { version, page } => {
                self.stats.device_gets += 1;
                self.wait_for_page(reads::Waiter::get(token, key, id, (at, judged), version, page));
                Ok(Lookup::Pending)
            }
        }
    }

    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool {
        // What a fence at or below the watermark hid may have left the index.
        if fence.timestamp <= self.collection_watermark {
            return false;
        }
        let Some(space) = self.spaces.get(key.keyspace) else { return false };
        if !space.fences.iter().any(|known| known.version == fence) {
            return false;
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::bugs().forget_what_fences_hide {
            return true;
        }
        space.index.chain(KeyId::of(self.seed, key)).next().is_none()
    }

    fn latest(&mut self, key: KeyRef<'_>, _token: ReadToken) -> LatestLookup {
        let Some(space) = self.spaces.get(key.keyspace) else {
            return LatestLookup::Known(Latest { absent: true, ..Latest::default() });
        };
        let fence = space.latest_fence();
        LatestLookup::Known(match space.index.latest(KeyId::of(self.seed, key)) {
            Some((version, location)) if version > fence => {
                Latest { version, absent: location.tombstone(), may_expire: location.may_expire() }
            }
            _ => Latest { version: fence, absent: true, may_expire: false },
        })
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        self.spaces
            .get(keyspace)
            .map_or(Timestamp::ZERO, |space| space.youngest.max(space.latest_fence()).timestamp)
    }

    fn fetch_ahead(&self, reads: &[KeyRef<'_>], others: &[KeyRef<'_>]) {
        // Each step finds its way by what the one before it has fetched.
        for step in [index::Prefetch::Search, index::Prefetch::Entry] {
            for key in reads.iter().chain(others) {
                if let Some(space) = self.spaces.get(key.keyspace) {
                    space.index.prefetch(key.hash, step);
                }
            }
        }
    }

    fn fetch_records_ahead(&self, keys: &[KeyRef<'_>]) {
        const AT_ONCE: usize = 64;
        let hash_of = |key: &KeyRef<'_>| {
            let id = KeyId::of(self.seed, *key);
            let (version, _) = self.spaces.get(key.keyspace)?.index.latest(id)?;
            Some(cache::CacheKey { keyspace: key.keyspace, id, version, key: key.bytes }.hash())
        };
        let mut hashes = [0; AT_ONCE];
        for keys in keys.chunks(AT_ONCE) {
            let mut count = 0;
            for hash in keys.iter().filter_map(hash_of) {
                self.cache.prefetch_bucket(hash);
                hashes[count] = hash;
                count += 1;
            }
            hashes[..count].iter().for_each(|&hash| self.cache.prefetch_record(hash));
        }
    }

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.begin_scan(keyspace, cursor, limit, as_of, token)
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.begin_count(keyspace, as_of, token)
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        if self.recycled_bytes + bytes.capacity() <= RECYCLE_BYTES {
            self.recycled_bytes += bytes.capacity();
            self.recycled.push(bytes);
        }
    }
}

impl Writes for Mftl {
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.write(key, version, Some(value), expires_at)
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.write(key, version, None, Expiry::NEVER)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.write_fence(keyspace, version)
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: u64,
    ) -> Result<(), StoreError> {
        if self.waits() {
            return Err(StoreError::Busy);
        }
        // A promise must hold even if collection takes a block or two until it is kept, and however
        // badly its records pack.
        let margin = u64::from(PROMISE_MARGIN) * u64::from(self.blocks.geometry.pages_per_block);
        let ahead = promised * WORST_PACKING + margin * timestone_flash::PAGE_BYTES as u64;
        let (mut small, mut values, mut large) = (0, 0, 0);
        for PutSize { bytes, .. } in puts {
            if Record::bytes_for(bytes, 0, true) > MAX_RECORD_BYTES {
                values += 1;
                large += bytes as u64;
            } else {
                small += bytes as u64 * WORST_PACKING;
            }
        }
        if values == 0 && small == 0 {
            return Ok(());
        }
        let has_room = if values == 0 {
            self.has_room_for_small(ahead + small)
        } else {
            self.has_room_for_large(values, ahead + small + large)
        };
        if has_room { Ok(()) } else { Err(self.no_room()) }
    }
}

impl Upkeep for Mftl {
    fn advance_watermark(&mut self, t: Timestamp) {
        if t > self.watermark {
            self.watermark = t;
            self.follow_watermark();
        }
    }

    fn watermark(&self) -> Timestamp {
        self.watermark
    }

    fn youngest(&self) -> Timestamp {
        let of_spaces =
            self.spaces.list.iter().map(|space| space.youngest.max(space.latest_fence()).timestamp);
        of_spaces.max().unwrap_or_default()
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.settled = self.settled.max(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        debug_assert!(batch >= self.writer.batch, "batch numbers rise");
        self.writer.batch = self.writer.batch.max(batch);
    }

    fn stable_batch(&self) -> u64 {
        let lowest =
            self.writer.lowest_unstable().min(self.staging.lowest_batch()).min(self.writer.batch);
        lowest.saturating_sub(1)
    }

    fn sync_soon(&mut self) {
        self.sync_wanted = true;
    }

    fn checkpoint_now(&mut self) {
        self.checkpointer.want();
    }

    fn scrub(&mut self) {
        self.begin_scrub();
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.writer.now = self.writer.now.max(now);
        self.poll();
        if !self.failed {
            self.pump_staging();
            self.clean_blocks();
            self.pump_collector();
            self.sweep();
            self.pump_checkpoint();
            let (packing, partial) = (self.config.packing_delay, self.config.partial_page_delay);
            if self.sync_wanted || self.life == Life::Draining {
                for stream in StreamId::ALL {
                    self.writer.flush(stream, &self.blocks, &mut self.port);
                }
            }
            self.writer.flush_due(packing, partial, &self.blocks, &mut self.port);
            let wanted = self.sync_wanted || self.somebody_waits_for_durability();
            self.writer.sync(self.config.sync_interval, wanted, &mut self.port);
            if self.sync_wanted && self.writer.all_durable() {
                self.sync_wanted = false;
            }
            self.drain();
        }
        self.pump_walks();
        self.poll();
        self.stats.programmed_bytes =
            self.writer.programmed_pages * timestone_flash::PAGE_BYTES as u64;
        events.append(&mut self.events);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if self.failed {
            // Only what reads goes on; everything else waits for a restart, and must not keep the
            // thread awake.
            let reads = self.walks.has_work() || !self.events.is_empty();
            return reads.then_some(self.writer.now);
        }
        if self.has_work() || !self.events.is_empty() {
            return Some(self.writer.now);
        }
        let flush =
            self.writer.flush_deadline(self.config.packing_delay, self.config.partial_page_delay);
        let sync = self.writer.sync_deadline(self.config.sync_interval);
        // What drains waits for the device most of the time, which may be slow; its completions
        // wake the thread.
        let drain =
            (self.life == Life::Draining).then(|| self.writer.now.saturating_add(DRAIN_INTERVAL));
        flush.into_iter().chain(sync).chain(drain).min()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.device.wake_fd()
    }

    fn wait(&mut self, timeout: Duration) {
        self.port.device.wait(timeout);
    }

    fn resize_cache(&mut self, bytes: u64) {
        self.cache.resize(bytes);
    }

    fn shutdown(&mut self) {
        if self.life == Life::Running {
            self.life = Life::Draining;
        }
    }
}

impl Figures for Mftl {
    fn figures(&self) -> FigureValues {
        self.stats().figures()
    }

    fn is_full(&self) -> bool {
        // Another attempt to grow, after one that failed, is no room yet.
        self.collector.stuck
            && (!self.growing || self.collector.growth_refusal().is_some())
            && self.blocks.free_count() <= self.blocks.floor()
    }

    fn growth_error(&self) -> Option<&str> {
        self.collector.growth_refusal().map(|cause| &**cause)
    }
}

impl Mftl {
    /// What it counts.
    #[must_use]
    pub fn stats(&self) -> MftlStats {
        let spaces = &self.spaces.list;
        let sum = |what: fn(&space::Space) -> u64| spaces.iter().map(what).sum::<u64>();
        MftlStats {
            keys: sum(|space| space.index.keys()),
            versions: sum(|space| space.index.versions()),
            dead_records: sum(|space| space.index.dead()),
            index_bytes: sum(|space| space.index.bytes()),
            cache_bytes: self.cache.bytes(),
            blocks: self.blocks.count(),
            most_blocks: self.blocks.geometry.max_blocks,
            free_blocks: self.blocks.free_count(),
            block_bytes: u64::from(self.blocks.geometry.pages_per_block)
                * timestone_flash::PAGE_BYTES as u64,
            buffer_bytes: self.writer.memory_bytes()
                + self.port.memory_bytes()
                + self.staging.bytes(),
            full: self.is_full(),
            ..self.stats
        }
    }

    /// Whether puts must wait for something that passes by itself.
    fn waits(&self) -> bool {
        self.failed || self.writer.is_behind() || self.staging.is_full()
    }

    /// Whether puts that fit pages find room after so many bytes more. If not, it is asked for.
    fn has_room_for_small(&mut self, ahead: u64) -> bool {
        let free = self.blocks.free_count();
        let block =
            u64::from(self.blocks.geometry.pages_per_block) * timestone_flash::PAGE_BYTES as u64;
        // Without a log collection waits for what is staged: that must not wait for room which
        // others have taken meanwhile.
        let ahead = if self.config.without_log { ahead + self.staging.bytes() } else { ahead };
        let wanted =
            self.blocks.reserve() + u32::try_from(ahead.div_ceil(block)).unwrap_or(u32::MAX);
        let open = ahead == 0
            && self.writer.has_room(StreamId::Hot, timestone_flash::PAGE_BYTES, &self.blocks);
        let has_room = open || free > wanted;
        if !has_room {
            self.collector.asked = self.collector.asked.max(wanted.saturating_add(1));
        }
        has_room
    }

    /// Lets collection follow the watermark. With a log at once: the log has what is not durable
    /// here. Without one a put buries what it supersedes only when it is durable itself, or a crash
    /// would take both: the new version from memory, the old one from the device.
    fn follow_watermark(&mut self) {
        let mut durable_below = Timestamp::MAX;
        if self.config.without_log {
            durable_below = self.writer.oldest_unstable().min(self.staging.oldest_put());
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::bugs().bury_by_what_is_not_durable {
            durable_below = Timestamp::MAX;
        }
        self.collection_watermark =
            self.collection_watermark.max(self.watermark.min(durable_below.previous()));
    }

    /// A block has been erased: what it held is really gone.
    fn erased(&mut self, block: BlockId) {
        let generation = self.port.device.generation(block);
        let gone = self.collector.erased(block);
        for few in gone.chunks(ERASED_TOGETHER) {
            for step in [index::Prefetch::Search, index::Prefetch::Entry, index::Prefetch::Older] {
                for &(keyspace, _, id) in few {
                    if let Some(space) = self.spaces.get(keyspace) {
                        space.index.prefetch(id.place(), step);
                    }
                }
            }
            for &(keyspace, epoch, id) in few {
                if let Some(space) = self.spaces.get_mut(keyspace)
                    && space.epoch == epoch
                {
                    space.index.erased(id);
                }
            }
        }
        if let Some(at) = self.cleaning.iter().position(|&other| other == block) {
            self.cleaning.swap_remove(at);
            self.blocks.cleaned();
        }
        self.blocks.release(block, generation);
    }

    /// Erases free blocks that a crash left in doubt, a few ahead of their use.
    fn clean_blocks(&mut self) {
        while let Some(block) = self.blocks.next_to_clean() {
            self.cleaning.push(block);
            self.erase(block);
        }
    }

    /// Asks for a block's erase. Nobody may be reading in it.
    fn erase(&mut self, block: BlockId) {
        let entry = self.blocks.get_mut(block);
        assert_eq!(entry.readers, 0, "a block with readers is not erased");
        entry.state = BlockState::Erasing;
        self.port.write(FlashOp::Erase { token: Purpose::Erase.token(u64::from(block.0)), block });
    }

    fn somebody_waits_for_durability(&self) -> bool {
        self.life == Life::Draining
            || self.collector.waits(&self.writer)
            || self.checkpointer.waits()
            || self.staging.waits()
    }
}

//! The multi-version store of SEMEL (§3.1): the index maps a key directly to a flash page, one
//! collector serves flash space and versions.
//!
//! ```text
//!   put ─────────┐  ┌───────── locate ◄─ get          kit: cache, staging, room,
//!                ▼  ▼                                      volume (writer, blocks, port)
//!   watermarks ► space ► index ◄── walk  (scan, count)     reads in flight
//!                          order ◄── ranges
//!                ▲  ▲
//!   collect ─────┘  └───────── checkpoint             large: heads of large values
//!                                                     recover: once, at opening
//! ```
//!
//! The parts own their state, and get the other parts that they need as arguments; this module owns
//! the parts, takes the calls of [`Store`](crate::Store), hands out what the device completed, and
//! gives every part its turn in [`Upkeep::pump`].
//!
//! Invariants: (1) every record in a block that is not erased, and not hidden by a fence at or
//! below the watermark, is named by the index or included in its key's dead count; (2) a block is
//! erased only when its survivors are durable elsewhere and no read is under way in it; (3) what
//! the index names can be read at once: from the cache, a group, the staging area or the device.

mod checkpoint;
mod collect;
mod config;
mod factory;
mod index;
mod large;
mod locate;
mod order;
mod outside;
mod placement;
mod put;
mod ranges;
mod reads;
mod recover;
mod space;
mod stats;
mod walk;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_flash::{BlockId, FlashCompletion, FlashDevice, FlashError, PAGE_BYTES, PageId};
use timestone_types::{
    Direction, Expiry, HashSeed, HashedKey, KeyHash, KeyRef, KeyspaceId, Timestamp, Version,
    is_planted,
};

use crate::api::{
    AsOf, Count, FigureValues, Figures, KeyRange, KeysAhead, Latest, Lookup, PromisedPuts, PutSize,
    RangeCheck, ReadToken, Reads, ScanCursor, ScanLimit, StoreEvent, Upkeep, Writes, check_order,
};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::life::Life;
use crate::kit::port::Purpose;
use crate::kit::scrub::Scrubber;
use crate::kit::staging::max_value_bytes;
use crate::kit::volume::block_bytes;
use checkpoint::Checkpointer;
use collect::Collector;
pub use config::{MftlConfig, RecoveryReport};
pub use factory::MftlFactory;
use index::{Ahead, Index, KeyId, NODES_OF_PUT};
use locate::{Found, Sought, locate, record_in_group, visible};
use placement::Placement;
use put::{Put, WriteCounts};
use ranges::RangeReads;
use reads::{PendingReads, Serving, Waiter};
use space::{Space, Spaces};
pub use stats::{
    CollectionStats, IndexStats, MemoryStats, MftlStats, ReadStats, SpaceStats, WriteStats,
};
use walk::Walks;

#[cfg(feature = "fuzz")]
use checkpoint::StreamItem;
#[cfg(feature = "fuzz")]
pub(crate) use checkpoint::pages_of as checkpoint_pages;

/// Decodes the stream of a checkpoint; how many keys it names.
#[cfg(feature = "fuzz")]
pub(crate) fn decode_checkpoint(bytes: &[u8]) -> Option<u64> {
    let mut keys = 0;
    checkpoint::read(bytes, |_, item| keys += u64::from(matches!(item, StreamItem::Key(_))))?;
    Some(keys)
}

/// How gets were answered.
#[derive(Clone, Copy, Default, Debug)]
struct GetCounts {
    cache_hits: u64,
    page_hits: u64,
    device_gets: u64,
}

/// The store. See [`crate::Store`] for its operations.
///
/// ```
/// use timestone_store::{Lookup, Mftl, MftlConfig, ReadToken, Reads, Writes};
/// use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use timestone_flash::{MemoryConfig, MemoryDevice};
/// # let device = Box::new(MemoryDevice::new(MemoryConfig::default()));
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
    kit: Kit,
    spaces: Spaces,
    reads: PendingReads,
    walks: Walks,
    ranges: RangeReads,
    scrubber: Scrubber,
    collector: Collector,
    checkpointer: Checkpointer,
    life: Life,
    gets: GetCounts,
    placement: Placement,
    writes: WriteCounts,
    events: Vec<StoreEvent>,
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

    /// The device under the store.
    #[must_use]
    pub fn device(&self) -> &dyn FlashDevice {
        self.kit.volume.device()
    }

    /// The longest value that this device's blocks allow.
    #[must_use]
    pub fn max_value_bytes(&self) -> usize {
        max_value_bytes(self.kit.volume.geometry())
    }

    /// Ends the store without draining and gives its device back, as after a crash of the process.
    /// For tests.
    #[must_use]
    pub fn into_device(self) -> Box<dyn FlashDevice> {
        self.kit.volume.into_device()
    }

    /// Records that have expired by a later time than this are kept, wherever the watermark is.
    pub(crate) fn keep_expired(&mut self, after: Timestamp) {
        self.spaces.marks.keep_expired(after);
    }

    /// What collection came to so far: the part of [`stats`](Self::stats) that costs nothing.
    #[must_use]
    pub fn collection_stats(&self) -> CollectionStats {
        self.collector.victims.counts()
    }

    /// What it counts.
    #[must_use]
    pub fn stats(&self) -> MftlStats {
        let sum = |what: fn(&Space) -> u64| self.spaces.list.iter().map(what).sum::<u64>();
        let volume = &self.kit.volume;
        let (blocks, pages) = (&volume.blocks, volume.writer.programmed_pages());
        let (written_bytes, live_bytes) = blocks.use_of_space(self.spaces.marks.collection());
        let (erases, most_erases) = blocks.wear();
        MftlStats {
            index: IndexStats {
                keys: sum(|space| space.index.keys()),
                versions: sum(|space| space.index.versions()),
                dead_records: sum(|space| space.index.dead()),
                bytes: self.index_bytes(),
                order_bytes: sum(Space::order_bytes),
            },
            reads: ReadStats {
                cache_hits: self.gets.cache_hits,
                page_hits: self.gets.page_hits,
                device_gets: self.gets.device_gets,
                page_reads: self.reads.pages.issued(),
            },
            writes: WriteStats {
                puts: self.writes.puts,
                duplicate_puts: self.writes.duplicates,
                put_bytes: self.writes.bytes,
                programmed_bytes: pages * PAGE_BYTES as u64,
            },
            collection: self.collector.victims.counts(),
            space: SpaceStats {
                blocks: blocks.count(),
                most_blocks: blocks.geometry.max_blocks,
                free_blocks: blocks.free_count(),
                quarantined_blocks: blocks.quarantined_count(),
                block_bytes: block_bytes(blocks.geometry),
                live_bytes,
                dead_bytes: written_bytes - live_bytes,
                owed_blocks: collect::low_water(blocks).saturating_sub(blocks.free_count()),
                erases,
                most_erases,
                full: self.is_full(),
            },
            memory: MemoryStats {
                cache_bytes: self.kit.cache.bytes(),
                cache_limit_bytes: self.kit.cache.limit_bytes(),
                buffer_bytes: self.buffer_bytes(),
            },
            corrupt: volume.corrupt,
            checkpoints: self.checkpointer.completed(),
        }
    }

    fn index_bytes(&self) -> u64 {
        self.spaces.list.iter().map(Space::index_bytes).sum()
    }

    fn buffer_bytes(&self) -> u64 {
        self.kit.volume.memory_bytes() + self.kit.staging.bytes()
    }

    /// What holds between calls.
    #[inline]
    fn assert_sound(&self) {
        self.kit.volume.assert_sound();
        self.spaces.marks.assert_sound();
        self.collector.assert_sound();
        self.life.assert_sound();
    }

    /// Takes in what has completed.
    fn poll(&mut self) {
        let mut completions = self.kit.volume.poll();
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.kit.volume.polled(completions);
        self.assert_sound();
    }

    /// Hands a completion to whoever asked for it. The first failure of a write ends writing.
    fn complete(&mut self, FlashCompletion { token, result, buffer }: FlashCompletion) {
        self.assert_sound();
        let Some((purpose, number)) = Purpose::of(token) else { return };
        if purpose.is_read() {
            self.kit.volume.read_done();
            let Some(buffer) = buffer else { return };
            let readable = result.is_ok();
            match purpose {
                Purpose::PageRead => {
                    Serving::of(self).page_read(PageId(number as u32), result, &buffer);
                }
                Purpose::PartRead => Serving::of(self).parts_read(number, readable, &buffer),
                Purpose::ScrubRead => {
                    self.scrubber.pages_read(readable, &buffer, &mut self.kit.volume);
                }
                _ => {
                    // It keeps the buffer until it has looked at every page.
                    let (victims, volume) = (&mut self.collector.victims, &mut self.kit.volume);
                    return victims.pages_read(number, readable, buffer, volume);
                }
            }
            return self.kit.volume.give(buffer);
        }
        if let Some(buffer) = buffer {
            self.kit.volume.give(buffer);
        }
        let volume = &mut self.kit.volume;
        match (purpose, result) {
            (Purpose::Grow, Ok(())) => self.kit.room.grown(volume),
            (Purpose::Grow, Err(error)) => self.kit.room.growth_failed(volume.now(), &error),
            (Purpose::Program, Err(error)) if self.life.is_of_block(&error) => {
                self.program_failed(number, error);
            }
            (Purpose::Erase, Err(error)) if self.life.is_of_block(&error) => {
                self.collector.erase_failed(BlockId(number as u32), volume, &mut self.spaces);
                self.life.block_failed(error, &mut self.events);
            }
            (_, Err(error)) => self.life.fail(error.into(), &mut self.events),
            (Purpose::Program, Ok(())) => {
                self.life.block_succeeded();
                volume.writer.programmed(number, &mut volume.blocks);
            }
            (Purpose::Sync, Ok(())) => {
                volume.writer.ledger.synced();
                self.spaces.marks.follow(&volume.writer, &self.kit.staging);
            }
            (Purpose::Erase, Ok(())) => {
                self.life.block_succeeded();
                self.collector.erased(BlockId(number as u32), volume, &mut self.spaces);
            }
            _ => {}
        }
    }

    /// A program has failed: its stream goes on elsewhere, and its block is emptied of what can be
    /// saved, in memory and on flash, and left alone then.
    fn program_failed(&mut self, number: u64, error: FlashError) {
        let Kit { volume, staging, .. } = &mut self.kit;
        let Some(block) = volume.writer.program_failed(number, &mut volume.blocks) else { return };
        tracing::warn!(block = block.0, "a program failed; its block is emptied and set aside");
        staging.block_failed(block, &mut volume.blocks);
        self.collector.victims.begin_failed(block, volume);
        self.checkpointer.block_failed(block, volume);
        self.life.block_failed(error, &mut self.events);
    }

    /// Whether something waits to become durable.
    fn waits(&self) -> bool {
        self.collector.victims.waits(&self.kit.volume.writer)
            || self.checkpointer.waits()
            || self.kit.staging.waits()
    }

    /// Where the youngest version of a key at or before `at` is.
    #[inline]
    fn find(&mut self, key: KeyRef<'_>, at: Timestamp) -> Result<Found, StoreError> {
        self.spaces.marks.check_age(at)?;
        debug_assert!(self.spaces.marks.collection() <= at, "what may be read is not collected");
        let id = KeyId::of(key.hashed());
        let sought = Sought { keyspace: key.keyspace, id, key: key.bytes };
        Ok(locate(&self.spaces, &mut self.kit, sought, at, None))
    }

    /// What was found, for whoever judges its expiry as of `judged`: pending if it is on flash.
    #[inline]
    fn told(&mut self, found: Found, judged: Timestamp) -> Result<Lookup<'_>, StoreError> {
        match found {
            Found::Absent { version, expires_at } => Ok(Lookup::Absent { version, expires_at }),
            Found::Cached { version, place } => {
                self.gets.cache_hits += 1;
                let expires_at = self.kit.cache.expires_at(place);
                Ok(visible(version, expires_at, self.kit.cache.value(place), judged))
            }
            Found::InGroup { version, page, offset } => {
                self.gets.page_hits += 1;
                let record = record_in_group(&self.kit.volume, page, offset)?;
                Ok(visible(version, record.expires_at, record.value, judged))
            }
            Found::Staged { version, slot } => {
                self.gets.page_hits += 1;
                let (expires_at, value) = self.kit.staging.value(slot);
                Ok(visible(version, expires_at, value, judged))
            }
            Found::OnFlash { .. } => Ok(Lookup::Pending),
        }
    }

    /// What fetching keys ahead takes, with so many nodes of each.
    #[inline]
    fn with_index<'a>(
        &'a self,
        keys: &'a [HashedKey],
        nodes: usize,
    ) -> impl Iterator<Item = (Option<&'a Index>, KeyHash, usize)> {
        keys.iter().map(move |key| (self.spaces.index(key.keyspace), key.hash, nodes))
    }
}

impl Reads for Mftl {
    fn seed(&self) -> HashSeed {
        self.spaces.seed
    }

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        let found = self.find(key, at)?;
        if let Found::OnFlash { version, page } = found {
            self.gets.device_gets += 1;
            let id = KeyId::of(key.hashed());
            let waiter = Waiter::get(token, key, id, (at, judged), version, page);
            self.reads.wait(waiter, &mut self.kit.volume);
            return Ok(Lookup::Pending);
        }
        self.told(found, judged)
    }

    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        let found = self.find(key, at)?;
        self.told(found, judged)
    }

    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool {
        // What a fence at or below the watermark hid may have left the index.
        if fence.timestamp <= self.spaces.marks.collection() {
            return false;
        }
        let Some(space) = self.spaces.get(key.keyspace) else { return false };
        if !space.has_fence(fence) {
            return false;
        }
        if is_planted!(TracelessFences) {
            return true;
        }
        space.index.chain(KeyId::of(key.hashed())).next().is_none()
    }

    #[inline]
    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest> {
        let Some(space) = self.spaces.get(key.keyspace) else {
            return Some(Latest { absent: true, ..Latest::default() });
        };
        let fence = space.latest_fence();
        debug_assert!(space.swept <= fence, "the fence that was swept for is kept");
        Some(match space.index.latest(KeyId::of(key.hashed())) {
            Some((version, location)) if version > fence => {
                Latest { version, absent: location.tombstone(), may_expire: location.may_expire() }
            }
            _ => Latest { version: fence, absent: true, may_expire: false },
        })
    }

    fn lost(&self, _keyspace: KeyspaceId) -> Timestamp {
        Timestamp::ZERO
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        self.spaces.get(keyspace).map_or(Timestamp::ZERO, Space::newest)
    }

    fn fetch_ahead(&self, KeysAhead { reads, validated, puts }: KeysAhead<'_>) {
        let keys = reads.iter().chain(puts);
        keys.for_each(|key| self.kit.cache.prefetch_bucket(key.keyspace, KeyId::of(*key)));
        let of_reads = self.with_index(reads, 0);
        let of_puts = self.with_index(puts, NODES_OF_PUT);
        let mut all = of_reads.chain(of_puts).chain(self.with_index(validated, 0));
        let mut reads = reads.iter();
        while let Some(ahead) = Ahead::take(&mut all) {
            for (youngest, key) in ahead.youngest().zip(reads.by_ref()) {
                if let Some(version) = youngest {
                    self.kit.cache.prefetch_record(key.keyspace, KeyId::of(*key), version);
                }
            }
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
        self.spaces.marks.check_age(as_of.at)?;
        self.assert_sound();
        self.walks.begin_scan(keyspace, cursor, limit, as_of, token);
        Ok(())
    }

    fn range_as_of(
        &mut self,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        check_order(&range)?;
        self.spaces.marks.check_age(as_of.at)?;
        self.assert_sound();
        self.ranges.begin(range, direction, limit, as_of, token);
        Ok(())
    }

    fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
    ) -> Result<RangeCheck, StoreError> {
        check_order(&range)?;
        self.spaces.marks.check_age(t)?;
        let Some(space) = self.spaces.get(range.keyspace) else { return Ok(RangeCheck::None) };
        space.check_order_above(t)?;
        Ok(ranges::first_above(self.spaces.seed, space, range, t, max_keys))
    }

    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        self.assert_sound();
        self.walks.begin_list(keyspace, cursor, limit, token);
    }

    fn kept_keyspaces(&self) -> Vec<KeyspaceId> {
        debug_assert!(self.spaces.list.is_sorted_by_key(|space| space.id));
        self.spaces.list.iter().map(|space| space.id).collect()
    }

    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version> {
        let space = self.spaces.get(keyspace);
        let fences = space.map_or(&[][..], |space| &space.fences);
        fences.iter().map(|fence| fence.version).collect()
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.spaces.marks.check_age(as_of.at)?;
        self.assert_sound();
        Ok(self.walks.begin_count(keyspace, as_of, token, &self.spaces))
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.assert_sound();
        self.kit.buffers.give(bytes);
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
        self.life.may_write(version, &self.kit.volume.writer)?;
        self.assert_sound();
        let put = Put { key, version, value: Some(value), expires_at };
        let (kit, spaces) = (&mut self.kit, &mut self.spaces);
        put::write(put, kit, spaces, &mut self.reads, (&mut self.placement, &mut self.writes))
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.life.may_write(version, &self.kit.volume.writer)?;
        self.assert_sound();
        let put = Put { key, version, value: None, expires_at: Expiry::NEVER };
        let (kit, spaces) = (&mut self.kit, &mut self.spaces);
        put::write(put, kit, spaces, &mut self.reads, (&mut self.placement, &mut self.writes))
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.life.may_write(version, &self.kit.volume.writer)?;
        self.assert_sound();
        let (kit, spaces) = (&mut self.kit, &mut self.spaces);
        put::write_fence(keyspace, version, kit, spaces, &mut self.writes)
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        let Kit { volume, room, staging, .. } = &self.kit;
        if self.life.has_failed() || volume.writer.is_behind() || staging.is_full() {
            return Err(StoreError::Busy);
        }
        match put::lacking(puts, promised.bytes, room, volume, staging)? {
            None => Ok(()),
            Some(_) => Err(room.none(&volume.blocks)),
        }
    }

    fn ask_room(&mut self, puts: &mut dyn Iterator<Item = PutSize>, promised: PromisedPuts) {
        let Kit { volume, room, staging, .. } = &mut self.kit;
        if let Ok(Some(blocks)) = put::lacking(puts, promised.bytes, room, volume, staging) {
            room.ask(blocks, volume);
        }
    }
}

impl Upkeep for Mftl {
    fn unread_pages(&self) -> usize {
        self.kit.volume.blocks.unread().len()
    }

    fn begin_life(&mut self) {
        self.assert_sound();
        if !is_planted!(AnswersEarlierLife) {
            self.reads.abandon_gets();
            self.walks.abandon();
            self.ranges.abandon();
            self.events.retain(|event| !event.answers_a_read());
        }
        if !is_planted!(OldBatchNumbers) {
            self.kit.volume.writer.number_anew();
            self.kit.staging.number_anew();
        }
    }

    fn has_failed(&self) -> bool {
        self.life.has_failed()
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        self.assert_sound();
        self.spaces.marks.raise(t, &self.kit.volume.writer, &self.kit.staging);
    }

    fn watermark(&self) -> Timestamp {
        self.spaces.marks.watermark()
    }

    fn youngest(&self) -> Timestamp {
        self.spaces.youngest()
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.assert_sound();
        self.spaces.marks.raise_replay_floor(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        self.assert_sound();
        self.kit.volume.writer.begin_batch(batch);
    }

    fn stable_batch(&self) -> u64 {
        let writer = &self.kit.volume.writer;
        let lowest = writer.lowest_unstable().min(self.kit.staging.lowest_batch());
        lowest.min(writer.batch()).saturating_sub(1)
    }

    fn sync_soon(&mut self) {
        self.assert_sound();
        self.life.want_sync();
    }

    fn checkpoint_now(&mut self) {
        self.assert_sound();
        self.checkpointer.want();
    }

    fn scrub(&mut self) {
        self.assert_sound();
        self.scrubber.begin();
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.assert_sound();
        self.kit.volume.writer.tick(now);
        self.poll();
        if !self.life.has_failed() {
            let Self { kit, spaces, reads, collector, checkpointer, .. } = self;
            let died = large::pump(kit, spaces, &mut collector.victims);
            if reads.take_parts_died() || died {
                collector.much_died();
            }
            kit.volume.clean_blocks();
            collector.pump(self.writes.bytes, kit, spaces, reads);
            let forgets_dead = !checkpointer.is_writing();
            if !checkpointer.is_streaming() && spaces.sweep(&mut kit.volume, reads, forgets_dead) {
                collector.much_died();
            }
            spaces.tidy_orders();
            let (volume, victims) = (&mut kit.volume, &collector.victims);
            if checkpointer.pump(self.writes.bytes, volume, spaces, victims) {
                self.events.push(StoreEvent::CheckpointDone);
            }
            let waits = self.waits();
            self.life.make_durable(self.config.delays(), waits, &mut self.kit.volume);
            let finished = || self.checkpointer.finish();
            self.life.drain(&self.kit.staging, finished, &mut self.events);
        }
        let mut serving = Serving::of(self);
        serving.queued();
        serving.group_pages();
        self.walks.pump(&self.spaces, &mut self.kit, &mut self.reads, &mut self.events);
        self.ranges.pump(&self.spaces, &mut self.kit, &mut self.reads, &mut self.events);
        if let Some(report) = self.scrubber.pump(&mut self.kit.volume) {
            self.events.push(StoreEvent::ScrubDone(report));
        }
        self.poll();
        events.append(&mut self.events);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let (volume, writer) = (&self.kit.volume, &self.kit.volume.writer);
        let walks = self.walks.has_work()
            || self.ranges.has_work()
            || self.reads.pages.has_work()
            || self.scrubber.has_work();
        if self.life.has_failed() {
            // Only what reads goes on; everything else waits for a restart, and must not keep the
            // thread awake.
            return (walks || !self.events.is_empty()).then_some(volume.now());
        }
        let work = walks
            || self.kit.staging.has_work(volume)
            || self.collector.victims.has_work(volume, &self.kit.staging)
            || self.checkpointer.has_work(writer, &self.spaces)
            || self.reads.assemblies.has_work()
            || !self.checkpointer.is_streaming() && self.spaces.has_unswept(&self.reads)
            || self.spaces.are_untidy();
        if work || !self.events.is_empty() {
            return Some(volume.now());
        }
        let flush =
            writer.flush_deadline(self.config.packing_delay, self.config.partial_page_delay);
        // What completed at the end of a turn is synced in the next one, if something waits for that.
        let interval = if self.waits() { Duration::ZERO } else { self.config.sync_interval };
        let sync = writer.ledger.sync_deadline(interval);
        flush.into_iter().chain(sync).chain(self.life.deadline(volume.now())).min()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kit.volume.device().wake_fd()
    }

    fn wait(&mut self, timeout: Duration) {
        self.assert_sound();
        self.kit.volume.wait(timeout);
    }

    fn resize_cache(&mut self, bytes: u64) {
        self.assert_sound();
        self.kit.cache.resize(bytes);
    }

    fn charge_cache(&mut self, beside: u64) {
        self.assert_sound();
        self.kit.volume.give_back();
        let used = self.index_bytes() + self.buffer_bytes() + beside;
        self.kit.cache.charge(used.saturating_sub(self.config.beside_bytes));
    }

    fn shutdown(&mut self) {
        self.assert_sound();
        self.life.begin_draining(&mut self.events);
    }
}

impl Figures for Mftl {
    fn figures(&self) -> FigureValues {
        self.stats().figures()
    }

    fn is_full(&self) -> bool {
        self.kit.room.is_full(&self.kit.volume.blocks)
    }

    fn growth_error(&self) -> Option<&str> {
        self.kit.room.growth_error()
    }
}

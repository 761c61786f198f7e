//! The multi-version store of SkimpyFTL: as [`Mftl`](crate::Mftl), with the index on flash.
//!
//! ```text
//!   put ──► core: bucket head, translation ──► record with two pointers ──► log
//!   get ──► translation │ record cache ──► else reads: page ─ next ─► page … ──► answer
//!   collect: the log's tail ─► buckets ─► keep ─► rewritten       scan: bucket after bucket
//!   checkpoint, recover: bucket heads                             put: staging of large values
//! ```
//!
//! In memory are some four bytes a bucket, less on small devices, and a bounded cache of translations; each record on
//! flash points to the next one of its bucket and to the next older version of its key (docs/design/skimpy.md).
//!
//! Invariants: (1) every record that a reader may want is in its bucket's chain, behind one of
//! the older beginnings that recovery found, or of a run of loose versions (K27); (2) a block is erased only when no chain leads there, what
//! replaces its records is durable, and nothing reads in it; (3) a walk whose bucket is rewritten
//! begins anew.

mod ahead;
mod buckets;
mod chain;
mod checkpoint;
mod collect;
mod config;
mod contents;
mod displaced;
mod emptied;
mod epochs;
mod factory;
mod futile;
mod jobs;
mod keep;
mod long;
mod loose;
mod packed;
mod parts;
mod periods;
mod put;
mod reads;
mod recover;
mod rewrite;
mod scan;
mod spaces;
mod stats;
mod tail;
mod tail_pages;
mod translations;
mod victim;
mod work;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_flash::{BlockId, FlashCompletion, FlashDevice, FlashError, PAGE_BYTES, PageId};
use timestone_types::{Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version, is_planted};

use crate::api::{
    AsOf, Count, FigureValues, Figures, KeysAhead, Latest, LatestLookup, Lookup, PromisedPuts,
    PutSize, ReadToken, Reads, ScanCursor, ScanLimit, StoreEvent, Upkeep, Writes,
};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::cache::{CacheKey, CachedRecord};
use crate::kit::life::Life;
use crate::kit::port::Purpose;
use crate::kit::scrub::Scrubber;
use crate::kit::staging::max_value_bytes;
use crate::kit::volume::block_bytes;
use crate::kit::writer::StreamId;
use crate::layout::RecordKind;
use crate::mftl::{CollectionStats, MemoryStats, RecoveryReport, SpaceStats, WriteStats};
use buckets::RecordPlace;
use chain::{SoughtKey, Start};
use checkpoint::Checkpointer;
use collect::TailCollector;
pub use config::SkimpyConfig;
use contents::FrugalContents;
pub use factory::SkimpyFactory;
use reads::{Owner, PendingReads, ServingWalks, WalkResult, latest_of};
use scan::Scans;
pub use stats::{FrugalIndexStats, FrugalReadStats, SkimpyStats};

/// Where a version was found.
#[derive(Clone, Copy, Debug)]
enum FoundAt {
    Absent { version: Version, expires_at: Expiry },
    Cached { version: Version, place: CachedRecord },
    InGroup { place: RecordPlace },
    Staged { version: Version, slot: u32 },
    OnFlash,
}

/// The store. See [`crate::Store`] for its operations.
pub struct Skimpy {
    config: SkimpyConfig,
    core: FrugalContents,
    reads: PendingReads,
    scans: Scans,
    scrubber: Scrubber,
    collector: TailCollector,
    checkpointer: Checkpointer,
    life: Life,
    events: Vec<StoreEvent>,
}

impl Skimpy {
    /// Opens the store on a device: recovers whatever is there, blocking through the device's own
    /// waiting.
    ///
    /// # Errors
    /// [`StoreError::ForeignStore`], [`StoreError::Format`], [`StoreError::EarlierChains`], and failures of the device.
    pub fn open(
        device: Box<dyn FlashDevice>,
        config: SkimpyConfig,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        recover::open(device, config)
    }

    /// The device under the store.
    #[must_use]
    pub fn device(&self) -> &dyn FlashDevice {
        self.core.kit.volume.device()
    }

    /// The longest value that this device's blocks allow.
    #[must_use]
    pub fn max_value_bytes(&self) -> usize {
        max_value_bytes(self.core.kit.volume.geometry())
    }

    /// What collection came to so far: the part of [`stats`](Self::stats) that costs nothing.
    #[must_use]
    pub fn collection_stats(&self) -> CollectionStats {
        let counts = &self.core.counts;
        CollectionStats {
            moved_records: counts.moved,
            collected_blocks: counts.collected_blocks,
            dropped_tombstones: counts.dropped_tombstones,
        }
    }

    /// What it counts.
    #[must_use]
    pub fn stats(&self) -> SkimpyStats {
        let FrugalContents { kit, buckets, translations, counts, .. } = &self.core;
        let blocks = &kit.volume.blocks;
        let (written_bytes, live_bytes) = blocks.use_of_space(self.core.spaces.marks.collection());
        let (erases, most_erases) = blocks.wear();
        SkimpyStats {
            index: FrugalIndexStats {
                records: self.core.records,
                record_bytes: self.core.record_bytes,
                bytes: self.core.index_bytes(),
                bucket_bytes: buckets.bytes(),
                buckets: buckets.count(),
                translation_hits: translations.hits,
                translation_misses: translations.misses,
                flagged_puts: counts.flagged,
                damaged_buckets: self.collector.damaged_buckets.len() as u64,
            },
            reads: FrugalReadStats {
                cache_hits: counts.cache_hits,
                page_hits: counts.page_hits,
                device_gets: counts.device_gets,
                page_reads: self.reads.pages.issued(),
            },
            writes: WriteStats {
                puts: counts.puts,
                duplicate_puts: counts.duplicates,
                put_bytes: counts.put_bytes,
                programmed_bytes: kit.volume.writer.programmed_pages() * PAGE_BYTES as u64,
            },
            collection: self.collection_stats(),
            rewritten_buckets: counts.rewritten_buckets,
            dropped_records: counts.dropped_records,
            looks: counts.looks,
            space: SpaceStats {
                blocks: blocks.count(),
                most_blocks: blocks.geometry.max_blocks,
                free_blocks: blocks.free_count(),
                block_bytes: block_bytes(blocks.geometry),
                quarantined_blocks: blocks.quarantined_count(),
                live_bytes,
                dead_bytes: written_bytes - live_bytes,
                owed_blocks: blocks.low_water().saturating_sub(blocks.free_count()),
                erases,
                most_erases,
                full: self.is_full(),
            },
            memory: MemoryStats {
                cache_bytes: kit.cache.bytes(),
                cache_limit_bytes: kit.cache.limit_bytes(),
                buffer_bytes: self.buffer_bytes(),
            },
            corrupt: kit.volume.corrupt,
            checkpoints: self.checkpointer.completed(),
        }
    }

    fn buffer_bytes(&self) -> u64 {
        let FrugalContents { kit, tail_pages, .. } = &self.core;
        let collection = tail_pages.memory_bytes() + self.reads.early.memory_bytes();
        kit.volume.memory_bytes() + kit.staging.bytes() + collection
    }

    fn serving(&mut self) -> ServingWalks<'_> {
        ServingWalks { core: &mut self.core, reads: &mut self.reads, events: &mut self.events }
    }

    /// Takes in what has completed.
    fn poll(&mut self) {
        let mut completions = self.core.kit.volume.poll();
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.core.kit.volume.polled(completions);
        self.take_answers();
    }

    /// Hands a completion to whoever asked for it. A failed sync ends writing.
    fn complete(&mut self, FlashCompletion { token, result, buffer }: FlashCompletion) {
        let Some((purpose, number)) = Purpose::of(token) else { return };
        if purpose.is_read() {
            self.core.kit.volume.read_done();
            let Some(buffer) = buffer else { return };
            let readable = result.is_ok();
            match purpose {
                Purpose::PageRead => {
                    self.serving().page_read(PageId(number as u32), result, &buffer);
                }
                Purpose::PartRead => self.serving().parts_read(number, readable, &buffer),
                Purpose::ScrubRead => {
                    self.scrubber.pages_read(readable, &buffer, &mut self.core.kit.volume);
                }
                _ => self.collector.pages_read(number, readable, &buffer, &mut self.core),
            }
            return self.core.kit.volume.give(buffer);
        }
        if let Some(buffer) = buffer {
            self.core.kit.volume.give(buffer);
        }
        let Kit { volume, room, staging, .. } = &mut self.core.kit;
        match (purpose, result) {
            (Purpose::Grow, Ok(())) => room.grown(volume),
            (Purpose::Grow, Err(error)) => room.growth_failed(volume.now(), &error),
            (Purpose::Program, Err(error)) if self.life.is_of_block(&error) => {
                self.program_failed(number, error);
            }
            (Purpose::Erase, Err(error)) if self.life.is_of_block(&error) => {
                self.collector.erase_failed(BlockId(number as u32), volume);
                self.life.block_failed(error, &mut self.events);
            }
            (_, Err(error)) => self.life.fail(error.into(), &mut self.events),
            (Purpose::Program, Ok(())) => {
                self.life.block_succeeded();
                volume.writer.programmed(number, &mut volume.blocks);
            }
            (Purpose::Sync, Ok(())) => {
                volume.writer.ledger.synced();
                self.core.spaces.marks.follow(&volume.writer, staging);
            }
            (Purpose::Erase, Ok(())) => {
                self.life.block_succeeded();
                let block = BlockId(number as u32);
                let first = volume.geometry().page(block, 0).0;
                let pages = volume.geometry().pages_per_block;
                for bucket in self.core.buckets.erased(block, first, pages) {
                    self.reads.rewritten(bucket);
                }
                self.collector.erased(block);
                volume.erased(block);
            }
            _ => {}
        }
    }

    /// A program has failed: its stream goes on elsewhere, and what the block has in memory alone is
    /// written again. What was programmed of a block of the log stays there until it is the tail.
    fn program_failed(&mut self, number: u64, error: FlashError) {
        let Kit { volume, staging, .. } = &mut self.core.kit;
        let Some(block) = volume.writer.program_failed(number, &mut volume.blocks) else { return };
        tracing::warn!(
            block = block.0,
            "a program failed; what was to be in its block is written elsewhere"
        );
        staging.block_failed(block, &mut volume.blocks);
        match volume.blocks.get(block).stream {
            StreamId::Large => {
                volume.writer.relocated(block);
                volume.blocks.cut_to_readable(block);
            }
            StreamId::Checkpoint => {
                volume.writer.relocated(block);
                volume.blocks.quarantine(block);
                self.checkpointer.begin_again(block, volume);
            }
            _ => {
                self.collector.begin_failed(block, &self.core);
                self.checkpointer.begin_again(block, &mut self.core.kit.volume);
            }
        }
        self.life.block_failed(error, &mut self.events);
    }

    /// Whether something waits to become durable.
    fn waits(&self) -> bool {
        self.collector.waits() || self.checkpointer.waits() || self.core.kit.staging.waits()
    }

    /// Hands what reads have come to to whoever asked for it.
    fn take_answers(&mut self) {
        while let Some(answer) = self.reads.answers.pop_front() {
            let mut serving = ServingWalks {
                core: &mut self.core,
                reads: &mut self.reads,
                events: &mut self.events,
            };
            match answer {
                WalkResult::Gathered(Owner::Scan(scan), gathering) => {
                    self.scans.gathered(scan, gathering);
                }
                WalkResult::Gathered(Owner::Rewriting, gathering) => {
                    self.collector.gathered(gathering, &mut serving);
                }
                WalkResult::Gathered(Owner::Early, gathering) => {
                    serving.reads.early.gathered(gathering);
                }
                WalkResult::Gathered(Owner::Parts(block), gathering) => {
                    self.collector.parts.gathered(block, &gathering, &mut serving);
                }
                WalkResult::Walked(gathering) => self.collector.walked(gathering, &mut serving),
                WalkResult::Damaged(Owner::Scan(scan), _, error) => {
                    self.scans.failed(scan, error, &mut self.events);
                }
                WalkResult::Damaged(owner, bucket, _) => {
                    self.collector.damaged(owner, bucket, &mut serving);
                }
                WalkResult::LargeKey(scan, Ok(key)) => self.scans.large_key(scan, key),
                WalkResult::LargeKey(scan, Err(error)) => {
                    self.scans.failed(scan, error, &mut self.events);
                }
                WalkResult::Left(block, bucket, staged) => {
                    self.collector.parts.left(block, bucket, staged);
                }
            }
        }
    }

    /// Where the youngest version of a key at or before `at` is.
    fn find(&mut self, key: KeyRef<'_>, at: Timestamp) -> Result<FoundAt, StoreError> {
        self.core.spaces.marks.check_age(at)?;
        let core = &mut self.core;
        let never = Expiry::NEVER;
        let Some(space) = core.spaces.get(key.keyspace) else {
            return Ok(FoundAt::Absent { version: Version::ZERO, expires_at: never });
        };
        let fence = space.fence_at(at);
        let sought = SoughtKey::of(key);
        let staged = core.staged_at(sought.name, at);
        let known = core.translations.get(sought.name);
        if let Some(known) = known.filter(|known| known.version.timestamp <= at) {
            let newest = known.version.max(fence);
            if let Some(staged) = staged.filter(|staged| staged.version > newest) {
                return Ok(in_staging(staged));
            }
            if known.version <= fence {
                return Ok(FoundAt::Absent { version: fence, expires_at: never });
            }
            if known.tombstone && !known.may_expire {
                return Ok(FoundAt::Absent { version: known.version, expires_at: never });
            }
            let (keyspace, id) = (key.keyspace, contents::key_id(sought.name));
            let filed = CacheKey { keyspace, id, version: known.version, key: key.bytes };
            if let Some(place) = core.kit.cache.find(filed) {
                return Ok(FoundAt::Cached { version: known.version, place });
            }
        }
        let search = core.search_in_memory(sought, at, Start { known });
        if !search.is_over() {
            return Ok(FoundAt::OnFlash);
        }
        if let Some(youngest) = search.youngest() {
            core.translations.insert(sought.name, youngest);
        }
        let found = search.best.as_ref().map_or(Version::ZERO, |best| best.version).max(fence);
        if let Some(staged) = staged.filter(|staged| staged.version > found) {
            return Ok(in_staging(staged));
        }
        Ok(match search.best.filter(|best| best.version > fence) {
            None => FoundAt::Absent { version: fence, expires_at: never },
            Some(best) if best.kind.is_tombstone() => {
                FoundAt::Absent { version: best.version, expires_at: best.expires_at }
            }
            Some(best) if best.kind == RecordKind::Value => FoundAt::InGroup { place: best.place },
            Some(_) => FoundAt::OnFlash,
        })
    }

    /// What was found, for whoever judges its expiry as of `judged`: pending if it is on flash.
    fn told(&mut self, found: FoundAt, judged: Timestamp) -> Result<Lookup<'_>, StoreError> {
        let core = &mut self.core;
        match found {
            FoundAt::Absent { version, expires_at } => Ok(Lookup::Absent { version, expires_at }),
            FoundAt::Cached { version, place } => {
                core.counts.cache_hits += 1;
                let expires_at = core.kit.cache.expires_at(place);
                Ok(visible(version, expires_at, core.kit.cache.value(place), judged))
            }
            FoundAt::InGroup { place } => {
                core.counts.page_hits += 1;
                let record = core.record_in_group(place)?;
                Ok(visible(record.version, record.expires_at, record.value, judged))
            }
            FoundAt::Staged { version, slot } => {
                core.counts.page_hits += 1;
                let (expires_at, value) = core.kit.staging.value(slot);
                Ok(visible(version, expires_at, value, judged))
            }
            FoundAt::OnFlash => Ok(Lookup::Pending),
        }
    }
}

fn in_staging(staged: contents::StagedVersion) -> FoundAt {
    let version = staged.version;
    if staged.tombstone {
        return FoundAt::Absent { version, expires_at: Expiry::NEVER };
    }
    FoundAt::Staged { version, slot: staged.slot }
}

/// A record as a reader sees it who judges its expiry as of `judged`.
fn visible(version: Version, expires_at: Expiry, value: &[u8], judged: Timestamp) -> Lookup<'_> {
    if expires_at.has_passed(judged) {
        Lookup::Absent { version, expires_at }
    } else {
        Lookup::Present { version, expires_at, value }
    }
}

impl Reads for Skimpy {
    fn seed(&self) -> HashSeed {
        self.core.spaces.seed
    }

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        let found = self.find(key, at)?;
        if matches!(found, FoundAt::OnFlash) {
            self.core.counts.device_gets += 1;
            self.serving().get(key, (at, judged), Some(token));
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
        if fence.timestamp <= self.core.spaces.marks.collection() {
            return false;
        }
        let Some(space) = self.core.spaces.get(key.keyspace) else { return false };
        if !space.has_fence(fence) || self.core.staged.contains_key(&SoughtKey::of(key).name) {
            return false;
        }
        let sought = SoughtKey::of(key);
        match self.core.translations.peek(sought.name) {
            Some(known) => known.version.is_zero(),
            None => {
                let search = self.core.search_in_memory(sought, Timestamp::MAX, Start::HEAD);
                search.is_over() && search.best.is_none()
            }
        }
    }

    fn latest(&mut self, key: KeyRef<'_>, token: ReadToken) -> LatestLookup {
        let name = SoughtKey::of(key).name;
        if self.core.translations.get(name).is_some()
            && let Some(latest) = self.latest_in_memory(key)
        {
            return LatestLookup::Known(latest);
        }
        if let Some(latest) = self.latest_in_memory(key) {
            return LatestLookup::Known(latest);
        }
        self.serving().latest(key, token);
        LatestLookup::Pending
    }

    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest> {
        let Some(space) = self.core.spaces.get(key.keyspace) else {
            return Some(Latest { absent: true, ..Latest::default() });
        };
        let sought = SoughtKey::of(key);
        let fence = space.latest_fence();
        let staged = self.core.staged_at(sought.name, Timestamp::MAX);
        if let Some(known) = self.core.translations.peek(sought.name) {
            return Some(latest_of(known, staged, fence));
        }
        let search = self.core.search_in_memory(sought, Timestamp::MAX, Start::HEAD);
        let youngest = search.youngest().filter(|_| search.is_over())?;
        Some(latest_of(youngest, staged, fence))
    }

    fn lost(&self, _keyspace: KeyspaceId) -> Timestamp {
        Timestamp::ZERO
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        self.core.spaces.get(keyspace).map_or(Timestamp::ZERO, spaces::FencedSpace::newest)
    }

    fn fetch_ahead(&self, KeysAhead { .. }: KeysAhead<'_>) {}

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.core.spaces.marks.check_age(as_of.at)?;
        self.scans.begin_scan(keyspace, cursor, limit, Some(as_of), token);
        Ok(())
    }

    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        self.scans.begin_scan(keyspace, cursor, limit, None, token);
    }

    fn kept_keyspaces(&self) -> Vec<KeyspaceId> {
        self.core.spaces.list.iter().map(|space| space.id).collect()
    }

    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version> {
        let space = self.core.spaces.get(keyspace);
        let fences = space.map_or(&[][..], |space| &space.fences);
        fences.iter().map(|fence| fence.version).collect()
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.core.spaces.marks.check_age(as_of.at)?;
        self.scans.begin_count(keyspace, as_of, token);
        Ok(Count::Pending)
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.core.kit.buffers.give(bytes);
    }
}

impl Writes for Skimpy {
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.life.may_write(version, &self.core.kit.volume.writer)?;
        put::write(key, version, Some(value), expires_at, &mut self.core)
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.life.may_write(version, &self.core.kit.volume.writer)?;
        put::write(key, version, None, Expiry::NEVER, &mut self.core)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.life.may_write(version, &self.core.kit.volume.writer)?;
        put::write_fence(keyspace, version, &mut self.core)
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        let Kit { volume, room, staging, .. } = &self.core.kit;
        if self.life.has_failed() || volume.writer.is_behind() || staging.is_full() {
            return Err(StoreError::Busy);
        }
        match put::lacking(puts, promised.bytes, room, volume, staging)? {
            None => Ok(()),
            Some(_) => Err(room.none(&volume.blocks)),
        }
    }

    fn ask_room(&mut self, puts: &mut dyn Iterator<Item = PutSize>, promised: PromisedPuts) {
        let Kit { volume, room, staging, .. } = &mut self.core.kit;
        if let Ok(Some(blocks)) = put::lacking(puts, promised.bytes, room, volume, staging) {
            room.ask(blocks, volume);
        }
    }
}

impl Upkeep for Skimpy {
    fn unread_pages(&self) -> usize {
        self.core.kit.volume.blocks.unread().len()
    }

    fn begin_life(&mut self) {
        if !is_planted!(AnswersEarlierLife) {
            self.reads.abandon_gets();
            self.scans.abandon();
            self.events.retain(|event| !event.answers_a_read());
        }
        if !is_planted!(OldBatchNumbers) {
            self.core.kit.volume.writer.number_anew();
            self.core.kit.staging.number_anew();
        }
    }

    fn has_failed(&self) -> bool {
        self.life.has_failed()
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        let Kit { volume, staging, .. } = &self.core.kit;
        self.core.spaces.marks.raise(t, &volume.writer, staging);
    }

    fn watermark(&self) -> Timestamp {
        self.core.spaces.marks.watermark()
    }

    fn youngest(&self) -> Timestamp {
        self.core.spaces.youngest()
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.core.spaces.marks.raise_replay_floor(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        self.core.kit.volume.writer.begin_batch(batch);
    }

    fn stable_batch(&self) -> u64 {
        let writer = &self.core.kit.volume.writer;
        let lowest = writer.lowest_unstable().min(self.core.kit.staging.lowest_batch());
        lowest.min(writer.batch()).saturating_sub(1)
    }

    fn sync_soon(&mut self) {
        self.life.want_sync();
    }

    fn checkpoint_now(&mut self) {
        self.checkpointer.want();
    }

    fn scrub(&mut self) {
        self.scrubber.begin();
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.core.kit.volume.writer.tick(now);
        self.poll();
        if !self.life.has_failed() {
            let Self { core, reads, collector, checkpointer, .. } = self;
            for (moved, bucket) in put::pump_staging(core) {
                collector.parts.moved(&moved, bucket, &core.kit.volume.blocks);
                // Who is behind the new head already would meet the old one alone, which is void soon.
                reads.rewritten(bucket);
            }
            core.kit.volume.clean_blocks();
            collector.pump(&mut ServingWalks { core, reads, events: &mut self.events });
            if checkpointer.pump(core, collector.state(core)) {
                self.events.push(StoreEvent::CheckpointDone);
            }
            let waits = self.waits();
            self.life.make_durable(self.config.delays(), waits, &mut self.core.kit.volume);
            let finished = || self.checkpointer.finish();
            self.life.drain(&self.core.kit.staging, finished, &mut self.events);
        }
        let mut serving = self.serving();
        serving.queued();
        serving.group_pages();
        self.take_answers();
        let Self { core, reads, scans, events: mine, .. } = self;
        scans.pump(&mut ServingWalks { core, reads, events: mine });
        self.take_answers();
        if let Some(report) = self.scrubber.pump(&mut self.core.kit.volume) {
            self.events.push(StoreEvent::ScrubDone(report));
        }
        self.poll();
        events.append(&mut self.events);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let (volume, writer) = (&self.core.kit.volume, &self.core.kit.volume.writer);
        let walks = self.scans.has_work() || self.reads.has_work() || self.scrubber.has_work();
        if self.life.has_failed() {
            return (walks || !self.events.is_empty()).then_some(volume.now());
        }
        let work = walks
            || self.core.kit.staging.has_work(volume)
            || self.collector.has_work(&self.reads.early, &self.core)
            || self.checkpointer.has_work(writer, self.collector.state(&self.core));
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
        self.core.kit.volume.device().wake_fd()
    }

    fn wait(&mut self, timeout: Duration) {
        self.core.kit.volume.wait(timeout);
    }

    fn resize_cache(&mut self, bytes: u64) {
        self.core.kit.cache.resize(bytes);
    }

    fn charge_cache(&mut self, beside: u64) {
        let used = self.core.index_bytes() + self.buffer_bytes() + beside;
        self.core.kit.cache.charge(used.saturating_sub(self.config.beside_bytes));
    }

    fn shutdown(&mut self) {
        self.life.begin_draining(&mut self.events);
    }
}

impl Figures for Skimpy {
    fn figures(&self) -> FigureValues {
        self.stats().figures()
    }

    fn is_full(&self) -> bool {
        self.core.kit.room.is_full(&self.core.kit.volume.blocks)
    }

    fn growth_error(&self) -> Option<&str> {
        self.core.kit.room.growth_error()
    }
}

//! The split design that SEMEL is compared with (§5.1): a multi-version store over a drive that
//! cannot be told anything. Two layers, each with its own map and its own collector, and neither
//! knows of the other.
//!
//! ```text
//!   put, get ─► store: index (key ─► versions ─► logical page), collector of its log, a tenth kept
//!                 │    pages of 4 KiB
//!                 ▼
//!               Ftl:   map (logical page ─► page), collector of its blocks, a tenth spare
//!                 │
//!                 ▼
//!               device
//! ```
//!
//! The upper layer is the multi-version store of this crate: the same index, packing, cache and
//! collector. So what differs from `mftl` is the structure alone: a key takes two look-ups, a record
//! is moved by two collectors, room is kept back twice, and blocks of the log are spread over blocks
//! of the device. Decisions are in `docs/design/comparators.md`.

mod stats;

use timestone_flash::{FlashDevice, PAGE_BYTES};
use timestone_types::{Direction, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

use crate::api::forward::{forward_reads, forward_upkeep};
use crate::api::{
    AsOf, Capabilities, Count, Factory, FigureValues, Figures, KeyRange, Lookup, PromisedPuts,
    PutSize, RangeCheck, ReadToken, Reads, ScanCursor, ScanLimit, Upkeep, Writes,
};
use crate::error::StoreError;
use crate::ftl::{Ftl, FtlConfig, FtlMonitor, FtlStats};
use crate::mftl::{CollectionStats, Mftl, MftlConfig, RecoveryReport};
pub use stats::VftlStats;

/// How a [`Vftl`] is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct VftlConfig {
    /// The upper layer.
    pub store: MftlConfig,
    /// The lower one.
    pub ftl: FtlConfig,
}

/// The store. See the module.
pub struct Vftl {
    store: Mftl,
    ftl: FtlMonitor,
}

impl Vftl {
    /// Opens both layers on a device, and recovers whatever is there, blocking.
    ///
    /// # Errors
    /// Those of [`Ftl::open`] and [`Mftl::open`].
    pub fn open(
        device: Box<dyn FlashDevice>,
        config: VftlConfig,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        let layer = Ftl::open(device, config.ftl)?;
        let ftl = layer.monitor();
        let (store, report) = Mftl::open(Box::new(layer), config.store)?;
        Ok((Self { store, ftl }, report))
    }

    /// What collection of the upper layer, and what the lower layer, came to so far: the parts of
    /// [`stats`](Self::stats) that cost nothing.
    #[must_use]
    pub fn collection_stats(&self) -> (CollectionStats, FtlStats) {
        (self.store.collection_stats(), self.ftl.stats())
    }

    /// What it counts.
    #[must_use]
    pub fn stats(&self) -> VftlStats {
        VftlStats {
            store: self.store.stats(),
            ftl: self.ftl.stats(),
            device: self.store.device().stats(),
        }
    }

    /// What has expired by a later time than this is kept.
    pub(crate) fn keep_expired(&mut self, after: Timestamp) {
        self.store.keep_expired(after);
    }
}

impl Reads for Vftl {
    forward_reads!(store);

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.store.get_as_of(key, at, judged, token)
    }

    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        self.store.get_in_memory(key, at, judged)
    }

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.store.scan_as_of(keyspace, cursor, limit, as_of, token)
    }

    fn range_as_of(
        &mut self,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.store.range_as_of(range, direction, limit, as_of, token)
    }

    fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
    ) -> Result<RangeCheck, StoreError> {
        self.store.first_above(range, t, max_keys)
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.store.count_as_of(keyspace, as_of, token)
    }
}

impl Writes for Vftl {
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.store.put(key, version, value, expires_at)
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.store.delete(key, version)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.store.fence(keyspace, version)
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        self.store.admit(puts, promised)
    }

    fn ask_room(&mut self, puts: &mut dyn Iterator<Item = PutSize>, promised: PromisedPuts) {
        self.store.ask_room(puts, promised);
    }
}

impl Upkeep for Vftl {
    forward_upkeep!(store);

    fn advance_watermark(&mut self, t: Timestamp) {
        self.store.advance_watermark(t);
    }

    fn watermark(&self) -> Timestamp {
        self.store.watermark()
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.store.advance_replay_floor(t);
    }
}

impl Figures for Vftl {
    fn figures(&self) -> FigureValues {
        let VftlStats { mut store, ftl, .. } = self.stats();
        let pages = ftl.host_pages + ftl.moved_pages + ftl.journal_pages;
        store.writes.programmed_bytes = pages * PAGE_BYTES as u64;
        store.index.bytes += ftl.map_bytes;
        store.figures()
    }

    fn is_full(&self) -> bool {
        self.store.is_full()
    }

    fn growth_error(&self) -> Option<&str> {
        self.store.growth_error()
    }
}

/// A device, and how the store on it is to be.
pub struct VftlFactory {
    /// Where the store is, or is to be.
    pub device: Box<dyn FlashDevice>,
    /// How it runs.
    pub config: VftlConfig,
}

impl Factory for VftlFactory {
    type Store = Vftl;
    type Report = RecoveryReport;

    const CAPABILITIES: Capabilities = Capabilities {
        survives_restart: true,
        answers_at_once: false,
        keeps_versions: true,
        reads_ranges: true,
    };

    fn open(self) -> Result<(Vftl, RecoveryReport), StoreError> {
        Vftl::open(self.device, self.config)
    }
}

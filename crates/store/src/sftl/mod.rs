//! The single-version baseline of SEMEL (§5.1): a key has one version, the youngest.
//!
//! ```text
//!   put ─► older than what is there? ─ yes ─► dropped
//!            └─ no ─► the watermark of the store below rises to it: what it replaces is dead
//!   get ─► the youngest version lies above the read? ─ yes ─► refused: too old
//! ```
//!
//! It is the store of [`Vftl`] without its history: the same index, packing and collectors over the
//! same translation layer. There are no snapshots: a read at a time at which the youngest version
//! was not yet there is refused, so that a transaction that comes late aborts, as it does on a store
//! that overwrites. A keyspace is walked only as of a time at or above everything in it.
//!
//! Invariant: the store below never answers a read at a time above its own watermark with anything
//! but the youngest version.

use timestone_flash::FlashDevice;
use timestone_types::{Expiry, KeyRef, KeyspaceId, Timestamp, Version};

use crate::api::forward::{forward_reads, forward_upkeep};
use crate::api::{
    AsOf, Capabilities, Count, Factory, FigureValues, Figures, Lookup, PromisedPuts, PutSize,
    ReadToken, Reads, ScanCursor, ScanLimit, Upkeep, Writes,
};
use crate::error::StoreError;
use crate::ftl::FtlStats;
use crate::mftl::{CollectionStats, RecoveryReport};
use crate::vftl::{Vftl, VftlConfig, VftlStats};

/// The store. See the module.
pub struct Sftl {
    store: Vftl,
    /// What the caller has said. That of the store below runs ahead.
    watermark: Timestamp,
    replay_floor: Timestamp,
    /// Puts and deletes that came too late.
    dropped: u64,
}

impl Sftl {
    /// Opens it on a device, and recovers whatever is there, blocking.
    ///
    /// # Errors
    /// Those of [`Vftl::open`].
    pub fn open(
        device: Box<dyn FlashDevice>,
        config: VftlConfig,
    ) -> Result<(Self, RecoveryReport), StoreError> {
        let (mut store, report) = Vftl::open(device, config)?;
        store.keep_expired(Timestamp::ZERO);
        let zero = Timestamp::ZERO;
        Ok((Self { store, watermark: zero, replay_floor: zero, dropped: 0 }, report))
    }

    /// What collection of the upper layer, and what the lower layer, came to so far: the parts of
    /// [`stats`](Self::stats) that cost nothing.
    #[must_use]
    pub fn collection_stats(&self) -> (CollectionStats, FtlStats) {
        self.store.collection_stats()
    }

    /// What both layers count.
    #[must_use]
    pub fn stats(&self) -> VftlStats {
        self.store.stats()
    }

    /// Puts and deletes that were dropped: a younger version was there.
    #[must_use]
    pub fn dropped_puts(&self) -> u64 {
        self.dropped
    }

    fn check_age(&self, at: Timestamp) -> Result<(), StoreError> {
        if at < self.watermark {
            return Err(StoreError::TooOld { at, watermark: self.watermark });
        }
        Ok(())
    }

    /// The time at which the store below answers a read at `at`: that of the youngest version.
    fn time_below(&self, key: KeyRef<'_>, at: Timestamp) -> Result<Timestamp, StoreError> {
        self.check_age(at)?;
        let youngest = self
            .store
            .latest_in_memory(key)
            .map_or(Timestamp::ZERO, |latest| latest.version.timestamp);
        if youngest > at {
            return Err(StoreError::TooOld { at, watermark: youngest });
        }
        Ok(at.max(self.store.watermark()))
    }

    /// As [`Self::time_below`], for a whole keyspace.
    fn time_of_walk(&self, keyspace: KeyspaceId, as_of: AsOf) -> Result<AsOf, StoreError> {
        self.check_age(as_of.at)?;
        let newest = self.store.newest(keyspace);
        if newest > as_of.at {
            return Err(StoreError::TooOld { at: as_of.at, watermark: newest });
        }
        Ok(AsOf { at: as_of.at.max(self.store.watermark()), ..as_of })
    }

    /// Whether a version replaces what is there. What it replaces is dead from now on.
    fn replaces(&mut self, key: KeyRef<'_>, version: Version) -> bool {
        if self.store.latest_in_memory(key).is_some_and(|latest| latest.version > version) {
            self.dropped += 1;
            return false;
        }
        // A version that is going to be refused moves nothing.
        if version.timestamp < Timestamp::MAX {
            self.store.advance_watermark(version.timestamp);
        }
        true
    }

    /// Deletes are forgotten when nobody reads below them any more.
    fn follow(&mut self) {
        self.store.keep_expired(self.watermark);
        self.store.advance_replay_floor(self.replay_floor.min(self.watermark));
    }
}

impl Reads for Sftl {
    forward_reads!(store);

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        let at = self.time_below(key, at)?;
        self.store.get_as_of(key, at, judged, token)
    }

    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        let at = self.time_below(key, at)?;
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
        let as_of = self.time_of_walk(keyspace, as_of)?;
        self.store.scan_as_of(keyspace, cursor, limit, as_of, token)
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        let as_of = self.time_of_walk(keyspace, as_of)?;
        self.store.count_as_of(keyspace, as_of, token)
    }
}

impl Writes for Sftl {
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        if self.replaces(key, version) {
            return self.store.put(key, version, value, expires_at);
        }
        Ok(())
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        if self.replaces(key, version) {
            return self.store.delete(key, version);
        }
        Ok(())
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.store.fence(keyspace, version)?;
        self.store.advance_watermark(version.timestamp);
        Ok(())
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

impl Upkeep for Sftl {
    forward_upkeep!(store);

    fn advance_watermark(&mut self, t: Timestamp) {
        self.watermark = self.watermark.max(t);
        self.store.advance_watermark(t);
        self.follow();
    }

    fn watermark(&self) -> Timestamp {
        self.watermark
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.replay_floor = self.replay_floor.max(t);
        self.follow();
    }
}

impl Figures for Sftl {
    fn figures(&self) -> FigureValues {
        self.store.figures()
    }

    fn is_full(&self) -> bool {
        self.store.is_full()
    }

    fn growth_error(&self) -> Option<&str> {
        self.store.growth_error()
    }
}

/// A device, and how the store on it is to be.
pub struct SftlFactory {
    /// Where the store is, or is to be.
    pub device: Box<dyn FlashDevice>,
    /// How it runs.
    pub config: VftlConfig,
}

impl Factory for SftlFactory {
    type Store = Sftl;
    type Report = RecoveryReport;

    const CAPABILITIES: Capabilities = Capabilities {
        survives_restart: true,
        answers_at_once: false,
        keeps_versions: false,
        reads_ranges: false,
    };

    fn open(self) -> Result<(Sftl, RecoveryReport), StoreError> {
        Sftl::open(self.device, self.config)
    }
}

//! The stores as an experiment sees them: how each is opened, and what it tells about its work.

use timestone_flash::FlashDevice;
use timestone_store::prelude::*;
use timestone_store::{
    Figure, FtlConfig, Mftl, MftlConfig, Sftl, Skimpy, SkimpyConfig, StoreError, Vftl, VftlConfig,
};

use crate::store::part::StorePart;

/// A store that tells what its collectors do.
pub(super) trait Subject: Store + Sized {
    /// Opens it on a fresh device.
    fn open_on(
        device: Box<dyn FlashDevice>,
        part: &StorePart,
        keys_per_bucket: u32,
    ) -> Result<Self, StoreError>;

    /// Records that its collection has moved.
    fn moved_records(&self) -> u64;

    /// Pages that its lower translation layer has written and moved, and those that it has moved.
    fn translated_pages(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Bytes of memory of its index, the map of a lower layer included.
    fn index_bytes(&self) -> u64 {
        self.figures().get(Figure::IndexBytes)
    }

    /// Look-ups that a translation cache answered, and those that it did not.
    fn translations(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Every put waits for its page: there is no log, no record cache, and no checkpoint.
fn config(part: &StorePart) -> MftlConfig {
    MftlConfig {
        cache_bytes: 0,
        packing_delay: part.packing_delay,
        partial_page_delay: part.partial_page_delay,
        sync_interval: core::time::Duration::ZERO,
        checkpoint_bytes: 0,
        without_log: true,
        ..MftlConfig::default()
    }
}

fn layered(part: &StorePart) -> VftlConfig {
    let ftl = FtlConfig {
        spare_divisor: part.spare_divisor,
        journaled: part.journaled,
        trims: part.trims,
    };
    VftlConfig { store: config(part), ftl }
}

impl Subject for Mftl {
    fn open_on(device: Box<dyn FlashDevice>, part: &StorePart, _: u32) -> Result<Self, StoreError> {
        Ok(Self::open(device, config(part))?.0)
    }

    fn moved_records(&self) -> u64 {
        self.collection_stats().moved_records
    }
}

impl Subject for Vftl {
    fn open_on(device: Box<dyn FlashDevice>, part: &StorePart, _: u32) -> Result<Self, StoreError> {
        Ok(Self::open(device, layered(part))?.0)
    }

    fn moved_records(&self) -> u64 {
        self.collection_stats().0.moved_records
    }

    fn translated_pages(&self) -> (u64, u64) {
        let ftl = self.collection_stats().1;
        (ftl.host_pages + ftl.moved_pages, ftl.moved_pages)
    }
}

impl Subject for Sftl {
    fn open_on(device: Box<dyn FlashDevice>, part: &StorePart, _: u32) -> Result<Self, StoreError> {
        Ok(Self::open(device, layered(part))?.0)
    }

    fn moved_records(&self) -> u64 {
        self.collection_stats().0.moved_records
    }

    fn translated_pages(&self) -> (u64, u64) {
        let ftl = self.collection_stats().1;
        (ftl.host_pages + ftl.moved_pages, ftl.moved_pages)
    }
}

impl Subject for Skimpy {
    fn open_on(
        device: Box<dyn FlashDevice>,
        part: &StorePart,
        keys_per_bucket: u32,
    ) -> Result<Self, StoreError> {
        let MftlConfig { cache_bytes, packing_delay, partial_page_delay, sync_interval, .. } =
            config(part);
        let config = SkimpyConfig {
            keys: part.keys,
            keys_per_bucket,
            translated_thousandths: part.translated_thousandths,
            cache_bytes,
            packing_delay,
            partial_page_delay,
            sync_interval,
            checkpoint_bytes: 0,
            without_log: true,
            ..SkimpyConfig::default()
        };
        Ok(Self::open(device, config)?.0)
    }

    fn moved_records(&self) -> u64 {
        self.collection_stats().moved_records
    }

    fn translations(&self) -> Option<(u64, u64)> {
        let index = self.stats().index;
        Some((index.translation_hits, index.translation_misses))
    }
}

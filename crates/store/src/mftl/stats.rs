//! What [`Mftl`](super::Mftl) counts, and how that is told as [`FigureValues`].

use crate::api::{Figure, FigureValues};

/// Sizes and counters of an `mftl` store.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MftlStats {
    /// Keys in the index (tombstones included).
    pub keys: u64,
    /// Versions in the index, further ones included.
    pub versions: u64,
    /// Dead records that the index still counts, until their blocks are erased.
    pub dead_records: u64,
    /// Bytes of memory of the index, all in.
    pub index_bytes: u64,
    /// Bytes of memory of the cache, its table included.
    pub cache_bytes: u64,
    /// Gets answered by the cache.
    pub cache_hits: u64,
    /// Gets answered by a page that is not yet programmed.
    pub page_hits: u64,
    /// Gets that needed the device.
    pub device_gets: u64,
    /// Page reads that these gets shared or caused.
    pub page_reads: u64,
    /// Puts, deletes and fences accepted.
    pub puts: u64,
    /// Puts that were there already.
    pub duplicate_puts: u64,
    /// Bytes of records put by the caller.
    pub put_bytes: u64,
    /// Bytes of pages programmed, for whatever reason.
    pub programmed_bytes: u64,
    /// Records moved by collection.
    pub moved_records: u64,
    /// Blocks collected.
    pub collected_blocks: u64,
    /// Tombstones dropped by collection.
    pub dropped_tombstones: u64,
    /// Blocks of the device now.
    pub blocks: u32,
    /// Blocks that it may grow to.
    pub most_blocks: u32,
    /// Blocks that are erased and free.
    pub free_blocks: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Memory of the pages and large values on their way to the device and from it, buffers that
    /// wait for the next ones included.
    pub buffer_bytes: u64,
    /// Corrupt records and pages met since opening.
    pub corrupt: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Puts are refused, and will be until something is deleted or the device can grow.
    pub full: bool,
}

impl MftlStats {
    /// The same by the names that all stores share.
    #[must_use]
    pub fn figures(&self) -> FigureValues {
        let mut figures = FigureValues::default();
        let told = [
            (Figure::Keys, self.keys),
            (Figure::Versions, self.versions),
            (Figure::IndexBytes, self.index_bytes),
            (Figure::CacheBytes, self.cache_bytes),
            (Figure::BufferBytes, self.buffer_bytes),
            (Figure::CacheHits, self.cache_hits),
            (Figure::PageHits, self.page_hits),
            (Figure::DeviceGets, self.device_gets),
            (Figure::Puts, self.puts),
            (Figure::DuplicatePuts, self.duplicate_puts),
            (Figure::PutBytes, self.put_bytes),
            (Figure::ProgrammedBytes, self.programmed_bytes),
            (Figure::MovedRecords, self.moved_records),
            (Figure::CollectedBlocks, self.collected_blocks),
            (Figure::DroppedTombstones, self.dropped_tombstones),
            (Figure::Blocks, u64::from(self.blocks)),
            (Figure::FreeBlocks, u64::from(self.free_blocks)),
            (Figure::CapacityBytes, u64::from(self.blocks) * self.block_bytes),
            (Figure::LimitBytes, u64::from(self.most_blocks) * self.block_bytes),
            (Figure::FreeBytes, u64::from(self.free_blocks) * self.block_bytes),
            (Figure::Corrupt, self.corrupt),
            (Figure::Checkpoints, self.checkpoints),
        ];
        for (figure, value) in told {
            figures.add(figure, value);
        }
        figures
    }
}

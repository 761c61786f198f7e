//! What [`Mftl`](super::Mftl) counts, and how that is told as [`FigureValues`].

use crate::api::{Figure, FigureValues};

/// What the index holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStats {
    /// Keys (tombstones included).
    pub keys: u64,
    /// Versions, further ones included.
    pub versions: u64,
    /// Dead records that it still counts, until their blocks are erased.
    pub dead_records: u64,
    /// Bytes of memory, all in.
    pub bytes: u64,
    /// Those of them that orders of keys take.
    pub order_bytes: u64,
}

/// How gets were answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadStats {
    /// Gets answered by the cache.
    pub cache_hits: u64,
    /// Gets answered by a page that is not yet programmed.
    pub page_hits: u64,
    /// Gets that needed the device.
    pub device_gets: u64,
    /// Page reads that these gets shared or caused.
    pub page_reads: u64,
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteStats {
    /// Puts, deletes and fences accepted.
    pub puts: u64,
    /// Puts that were there already.
    pub duplicate_puts: u64,
    /// Bytes of records put by the caller.
    pub put_bytes: u64,
    /// Bytes of pages programmed, for whatever reason.
    pub programmed_bytes: u64,
}

/// What collection came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectionStats {
    /// Records moved.
    pub moved_records: u64,
    /// Blocks collected.
    pub collected_blocks: u64,
    /// Tombstones dropped.
    pub dropped_tombstones: u64,
}

/// Room on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceStats {
    /// Blocks of the device now.
    pub blocks: u32,
    /// Blocks that it may grow to.
    pub most_blocks: u32,
    /// Blocks that are erased and free.
    pub free_blocks: u32,
    /// Blocks that are left alone: with damaged pages, or after a failed program or erase.
    pub quarantined_blocks: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes that are written and live, by estimate.
    pub live_bytes: u64,
    /// The other bytes that are written.
    pub dead_bytes: u64,
    /// Blocks that are to be freed until as many are free as are meant to be.
    pub owed_blocks: u32,
    /// Erases of all blocks since the device was made.
    pub erases: u64,
    /// Erases of the block that was erased most.
    pub most_erases: u32,
    /// Puts are refused, and will be until something is deleted or the device can grow.
    pub full: bool,
}

impl SpaceStats {
    /// What every store on flash tells of its device by these names.
    pub(crate) fn tell(&self, figures: &mut FigureValues) {
        let told = [
            (Figure::LiveBytes, self.live_bytes),
            (Figure::DeadBytes, self.dead_bytes),
            (Figure::DebtBytes, u64::from(self.owed_blocks) * self.block_bytes),
            (Figure::Erases, self.erases),
            (Figure::MostErases, u64::from(self.most_erases)),
        ];
        told.into_iter().for_each(|(figure, value)| figures.add(figure, value));
    }
}

/// Memory beside the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// The cache, its table included.
    pub cache_bytes: u64,
    /// What the cache may take now: less what is charged to it.
    pub cache_limit_bytes: u64,
    /// The pages and large values on their way to the device and from it, buffers that wait for the
    /// next ones included.
    pub buffer_bytes: u64,
}

/// Sizes of an `mftl` store, and counters since its opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MftlStats {
    /// What the index holds.
    pub index: IndexStats,
    /// How gets were answered.
    pub reads: ReadStats,
    /// What was written.
    pub writes: WriteStats,
    /// What collection came to.
    pub collection: CollectionStats,
    /// Room on the device.
    pub space: SpaceStats,
    /// Memory beside the index.
    pub memory: MemoryStats,
    /// Corrupt records and pages met.
    pub corrupt: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
}

impl MftlStats {
    /// Bytes programmed for one that was put, in thousandths; zero while nothing was.
    #[must_use]
    pub fn write_amplification(&self) -> u64 {
        let programmed = self.writes.programmed_bytes.saturating_mul(1000);
        programmed.checked_div(self.writes.put_bytes).unwrap_or(0)
    }

    /// The same by the names that all stores share.
    #[must_use]
    pub fn figures(&self) -> FigureValues {
        let Self { index, reads, writes, collection, space, memory, corrupt, checkpoints } = *self;
        let bytes_of = |blocks: u32| u64::from(blocks) * space.block_bytes;
        let mut figures = FigureValues::default();
        space.tell(&mut figures);
        let told = [
            (Figure::Keys, index.keys),
            (Figure::Versions, index.versions),
            (Figure::IndexBytes, index.bytes),
            (Figure::OrderBytes, index.order_bytes),
            (Figure::CacheBytes, memory.cache_bytes),
            (Figure::CacheLimitBytes, memory.cache_limit_bytes),
            (Figure::BufferBytes, memory.buffer_bytes),
            (Figure::CacheHits, reads.cache_hits),
            (Figure::PageHits, reads.page_hits),
            (Figure::DeviceGets, reads.device_gets),
            (Figure::Puts, writes.puts),
            (Figure::DuplicatePuts, writes.duplicate_puts),
            (Figure::PutBytes, writes.put_bytes),
            (Figure::ProgrammedBytes, writes.programmed_bytes),
            (Figure::MovedRecords, collection.moved_records),
            (Figure::CollectedBlocks, collection.collected_blocks),
            (Figure::DroppedTombstones, collection.dropped_tombstones),
            (Figure::Blocks, u64::from(space.blocks)),
            (Figure::FreeBlocks, u64::from(space.free_blocks)),
            (Figure::QuarantinedBlocks, u64::from(space.quarantined_blocks)),
            (Figure::CapacityBytes, bytes_of(space.blocks)),
            (Figure::LimitBytes, bytes_of(space.most_blocks)),
            (Figure::FreeBytes, bytes_of(space.free_blocks)),
            (Figure::DeadRecords, index.dead_records),
            (Figure::PageReads, reads.page_reads),
            (Figure::Corrupt, corrupt),
            (Figure::Checkpoints, checkpoints),
        ];
        for (figure, value) in told {
            figures.add(figure, value);
        }
        figures
    }
}

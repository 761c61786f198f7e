//! What [`Skimpy`](super::Skimpy) counts, and how that is told as [`FigureValues`].

use crate::api::{Figure, FigureValues};
use crate::mftl::{CollectionStats, MemoryStats, SpaceStats, WriteStats};

/// The index in memory, and what it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrugalIndexStats {
    /// Records in chains: versions of keys, copies and dead ones included until they are collected.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Bytes of memory of the index, all in: bucket heads and their groups, translations.
    pub bytes: u64,
    /// Bytes of the bucket heads and their groups.
    pub bucket_bytes: u64,
    /// Buckets.
    pub buckets: u32,
    /// Look-ups that the translation cache answered.
    pub translation_hits: u64,
    /// Look-ups that it did not.
    pub translation_misses: u64,
    /// Puts that were not known to be their key's youngest version.
    pub flagged_puts: u64,
    /// Buckets whose chains are damaged.
    pub damaged_buckets: u64,
}

/// How gets were answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrugalReadStats {
    /// Gets answered by the record cache.
    pub cache_hits: u64,
    /// Gets answered by pages that are not yet programmed.
    pub page_hits: u64,
    /// Gets that needed the device.
    pub device_gets: u64,
    /// Page reads, for gets, look-ups, scans and collection.
    pub page_reads: u64,
}

/// Sizes of a `skimpy` store, and counters since its opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SkimpyStats {
    /// The index.
    pub index: FrugalIndexStats,
    /// How gets were answered.
    pub reads: FrugalReadStats,
    /// What was written. Programmed bytes by those that were put: the write amplification.
    pub writes: WriteStats,
    /// What collection came to.
    pub collection: CollectionStats,
    /// Buckets that were rewritten.
    pub rewritten_buckets: u64,
    /// Records that collection has dropped.
    pub dropped_records: u64,
    /// Blocks of large values that were looked at to find out how much of them is dead.
    pub looks: u64,
    /// Room on the device.
    pub space: SpaceStats,
    /// Memory beside the index.
    pub memory: MemoryStats,
    /// Corrupt records and pages met.
    pub corrupt: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
}

impl SkimpyStats {
    /// The same by the names that all stores share. How many keys there are is not known where there are
    /// any, and what relates to it is not told (docs/design/skimpy.md, "Not built yet").
    #[must_use]
    pub fn figures(&self) -> FigureValues {
        let Self { index, reads, writes, collection, space, memory, corrupt, checkpoints, .. } =
            *self;
        let bytes_of = |blocks: u32| u64::from(blocks) * space.block_bytes;
        let mut figures = FigureValues::default();
        space.tell(&mut figures);
        if index.records > 0 {
            figures.leave_out(Figure::Keys);
        }
        let told = [
            (Figure::Versions, index.records),
            (Figure::IndexBytes, index.bytes),
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

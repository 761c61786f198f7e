//! Figures: statistics by name, whatever the store. A store tells those that it has; the others are
//! zero. What a store has and cannot count is left out, and the sum over stores is not known then.

/// Declares statistics, in the order in which they are shown: an enum with names and meanings.
macro_rules! statistics {
    ($(#[$doc:meta])* $enum:ident { $($name:ident $text:literal $help:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $enum {
            $(#[doc = $help] $name,)+
        }

        impl $enum {
            /// All of them, in the order in which they are shown.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];

            /// Its name, with the unit last where it has one; counters end with `_total`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$name => $help,)+
                }
            }
        }
    };
}

statistics! {
    /// A statistic of a store.
    Figure {
        Keys "keys" "Keys with a version in the index, deleted ones included until they are collected. Not known where a keyspace with index frugal has any.",
        Versions "versions" "Versions in the index, of all keys.",
        IndexBytes "index_bytes" "Memory of the index.",
        OrderBytes "order_bytes" "Memory of the orders of keys, which is part of that of the index.",
        CacheBytes "cache_bytes" "Memory of the record cache.",
        CacheLimitBytes "cache_limit_bytes" "Memory that the record cache may take now: less what the index, page buffers and access records take above their share.",
        BufferBytes "buffer_bytes" "Memory of pages and large values on their way to the device and from it.",
        CacheHits "cache_hits_total" "Reads answered from the record cache.",
        PageHits "page_hits_total" "Reads answered from a page that was in memory.",
        DeviceGets "device_gets_total" "Reads that had to wait for the device.",
        Puts "puts_total" "Versions written, deletions included.",
        DuplicatePuts "duplicate_puts_total" "Versions that were put again, and were there already.",
        PutBytes "put_bytes_total" "Bytes of keys and values written.",
        ProgrammedBytes "programmed_bytes_total" "Bytes written to the device, copies and padding included.",
        MovedRecords "moved_records_total" "Records copied out of blocks before they were erased.",
        CollectedBlocks "collected_blocks_total" "Blocks that were freed.",
        DroppedTombstones "dropped_tombstones_total" "Deletions forgotten, as nothing older can come back any more.",
        Blocks "blocks" "Blocks that the device has room for.",
        FreeBlocks "free_blocks" "Blocks that hold nothing.",
        QuarantinedBlocks "quarantined_blocks" "Blocks that are left alone for good: with damaged pages, or after a failed program or erase.",
        CapacityBytes "capacity_bytes" "Bytes that the blocks of the device have room for.",
        LimitBytes "limit_bytes" "Bytes that the device may grow to.",
        FreeBytes "free_bytes" "Bytes of blocks that hold nothing.",
        LiveBytes "live_bytes" "Bytes written to the device that are still needed, checkpoints included, by estimate.",
        DeadBytes "dead_bytes" "The other bytes written, which collection gives back.",
        DeadRecords "dead_records" "Records that nobody can read any more, whose blocks are not erased yet.",
        DebtBytes "collection_debt_bytes" "Bytes of blocks that collection, or growth, has to free until as much is free as is meant to be.",
        PageReads "page_reads_total" "Pages read from the device for reads; those that come together share one.",
        Erases "erases" "Erases of all blocks since the device was made.",
        MostErases "most_erases" "Erases of the block that was erased most; of several stores, of the one with the most.",
        Corrupt "corrupt_total" "Pages and records that did not match their checksum.",
        Checkpoints "checkpoints_total" "Checkpoints of the index written.",
        FrugalRecords "frugal_records" "Records of the keyspaces with index frugal: versions, with copies and dead ones until they are collected.",
        FrugalIndexBytes "frugal_index_bytes" "Memory of the index of the keyspaces with index frugal: bucket heads and translations.",
        FrugalDeviceGets "frugal_device_gets_total" "Those of device_gets_total that were of keyspaces with index frugal.",
        FrugalProgrammedBytes "frugal_programmed_bytes_total" "Those of programmed_bytes_total that were written to the device of the keyspaces with index frugal.",
        FrugalCapacityBytes "frugal_capacity_bytes" "Those of capacity_bytes that are of the device of the keyspaces with index frugal.",
        FrugalLimitBytes "frugal_limit_bytes" "Those of limit_bytes that are of the device of the keyspaces with index frugal.",
        FrugalFreeBytes "frugal_free_bytes" "Those of free_bytes that are of the device of the keyspaces with index frugal.",
        FrugalLiveBytes "frugal_live_bytes" "Those of live_bytes that are of the device of the keyspaces with index frugal.",
        FrugalDebtBytes "frugal_collection_debt_bytes" "Those of collection_debt_bytes that are of the device of the keyspaces with index frugal.",
        DramGets "dram_gets_total" "Reads of keyspaces in dram.",
        DramBytes "dram_bytes" "Memory of the keyspaces in dram: keys, versions and tables.",
        DramLimitBytes "dram_limit_bytes" "Memory that the keyspaces in dram may take.",
    }
}

/// A value for every [`Figure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FigureValues {
    values: [u64; Figure::ALL.len()],
    /// A bit for each figure whose value leaves something out.
    partial: u64,
}

const _: () = assert!(Figure::ALL.len() <= u64::BITS as usize, "each figure has its bit");

impl Default for FigureValues {
    fn default() -> Self {
        Self { values: [0; Figure::ALL.len()], partial: 0 }
    }
}

impl FigureValues {
    /// The value of one of them, without what could not be counted.
    #[must_use]
    pub const fn get(&self, figure: Figure) -> u64 {
        self.values[figure as usize]
    }

    /// The value of one of them; `None` where something could not be counted.
    #[must_use]
    pub const fn known(&self, figure: Figure) -> Option<u64> {
        if self.partial >> figure as u32 & 1 == 0 { Some(self.get(figure)) } else { None }
    }

    /// Something was not counted in one of them.
    pub const fn leave_out(&mut self, figure: Figure) {
        self.partial |= 1 << figure as u32;
    }

    /// The figures in which something was not counted, a bit for each.
    #[must_use]
    pub const fn partial(&self) -> u64 {
        self.partial
    }

    /// The same figures, in which something was not counted, as [`partial`](Self::partial) says.
    #[must_use]
    pub const fn but_for(mut self, partial: u64) -> Self {
        self.partial |= partial;
        self
    }

    /// Adds to one of them. Sums stop at the end of the numbers.
    pub const fn add(&mut self, figure: Figure, value: u64) {
        let own = &mut self.values[figure as usize];
        *own = own.saturating_add(value);
        debug_assert!(*own >= value, "a sum is no less than what was added");
    }

    /// Adds those of another store: sums, and the larger of what is a maximum.
    pub fn add_all(&mut self, other: &Self) {
        for (figure, value) in other.iter() {
            let own = &mut self.values[figure as usize];
            *own = match figure {
                Figure::MostErases => value.max(*own),
                _ => own.saturating_add(value),
            };
        }
        self.partial |= other.partial;
        debug_assert!(self.values.iter().zip(other.values).all(|(sum, value)| *sum >= value));
    }

    /// All of them with their values, in the order of [`Figure::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Figure, u64)> {
        Figure::ALL.into_iter().zip(self.values)
    }
}

statistics! {
    /// What two or three figures say together.
    Ratio {
        LiveRatio "live_ratio" "Share of the bytes written to the device that is still needed.",
        VersionsPerKey "versions_per_key" "Versions in the index for each key.",
        IndexBytesPerKey "index_bytes_per_key" "Memory of the index for each key, further versions included.",
        WriteAmplification "write_amplification" "Bytes written to the device for each byte that was put.",
        WearSpread "wear_spread" "Erases of the block that was erased most, for each that a block has on average.",
        CacheHitRatio "cache_hit_ratio" "Share of reads that the record cache answered, keyspaces in dram left out.",
        FlashReadsPerGet "flash_reads_per_get" "Pages read from the device for each read, keyspaces in dram left out.",
    }
}

impl Ratio {
    /// Of these figures; `None` where there is nothing to relate to.
    #[must_use]
    pub fn of(self, figures: &FigureValues) -> Option<f64> {
        let get = |figure| figures.get(figure) as f64;
        let (part, whole) = match self {
            Self::LiveRatio => {
                (get(Figure::LiveBytes), get(Figure::LiveBytes) + get(Figure::DeadBytes))
            }
            Self::VersionsPerKey => (get(Figure::Versions), get(Figure::Keys)),
            Self::IndexBytesPerKey => (get(Figure::IndexBytes), get(Figure::Keys)),
            Self::WriteAmplification => (get(Figure::ProgrammedBytes), get(Figure::PutBytes)),
            Self::WearSpread => {
                (get(Figure::MostErases) * get(Figure::Blocks), get(Figure::Erases))
            }
            Self::CacheHitRatio => (get(Figure::CacheHits), flash_gets(get)),
            Self::FlashReadsPerGet => (get(Figure::PageReads), flash_gets(get)),
        };
        (whole > 0.0).then(|| part / whole)
    }
}

/// Reads of keyspaces on flash.
fn flash_gets(get: impl Fn(Figure) -> f64) -> f64 {
    get(Figure::CacheHits) + get(Figure::PageHits) + get(Figure::DeviceGets)
}

/// What a store tells of itself.
pub trait Figures {
    /// Sizes and counters.
    fn figures(&self) -> FigureValues;

    /// Puts are refused, and will be until something is deleted or there is more room.
    fn is_full(&self) -> bool;

    /// Why the device could not grow when it was asked to last, though the capacity would allow it;
    /// `None` when it could, or where nothing grows.
    fn growth_error(&self) -> Option<&str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_stores_are_sums_but_for_what_is_a_maximum() {
        let (mut sum, mut other) = (FigureValues::default(), FigureValues::default());
        for (values, erases, most) in [(&mut sum, 10, 7), (&mut other, 5, 3)] {
            values.add(Figure::Erases, erases);
            values.add(Figure::MostErases, most);
            values.add(Figure::Blocks, 5);
        }
        sum.add_all(&other);
        assert_eq!((sum.get(Figure::Erases), sum.get(Figure::MostErases)), (15, 7));
        let spread = Ratio::WearSpread.of(&sum).unwrap();
        assert!((spread - 7.0 / 1.5).abs() < 1e-9, "{spread}");
    }

    #[test]
    fn what_one_store_cannot_count_is_not_known_of_all() {
        let (mut sum, mut other) = (FigureValues::default(), FigureValues::default());
        sum.add(Figure::Keys, 3);
        assert_eq!(sum.known(Figure::Keys), Some(3));
        other.leave_out(Figure::Keys);
        sum.add_all(&other);
        assert_eq!((sum.known(Figure::Keys), sum.get(Figure::Keys)), (None, 3));
        assert_eq!(sum.known(Figure::Versions), Some(0));
        assert_eq!(FigureValues::default().but_for(sum.partial()).known(Figure::Keys), None);
    }

    #[test]
    fn a_ratio_to_nothing_is_none() {
        let figures = FigureValues::default();
        assert!(Ratio::ALL.into_iter().all(|ratio| ratio.of(&figures).is_none()));
    }

    #[test]
    fn names_of_figures_and_ratios_are_told_apart() {
        let figures = Figure::ALL.into_iter().map(Figure::name);
        let mut names: Vec<_> = figures.chain(Ratio::ALL.into_iter().map(Ratio::name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

//! Figures: statistics by name, whatever the store. A store tells those that it has; the others are
//! zero.

/// Declares the figures: in the order in which they are shown.
macro_rules! figures {
    ($($name:ident $text:literal $help:literal,)+) => {
        /// A statistic of a store.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Figure {
            $(#[doc = $help] $name,)+
        }

        impl Figure {
            /// All of them, in the order in which they are shown.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];

            /// Its name, with the unit last; counters end with `_total`.
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

figures! {
    Keys "keys" "Keys with a version in the index, deleted ones included until they are collected.",
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
    Corrupt "corrupt_total" "Pages and records that did not match their checksum.",
    Checkpoints "checkpoints_total" "Checkpoints of the index written.",
    DramGets "dram_gets_total" "Reads of keyspaces in dram.",
    DramBytes "dram_bytes" "Memory of the keyspaces in dram: keys, versions and tables.",
    DramLimitBytes "dram_limit_bytes" "Memory that the keyspaces in dram may take.",
}

/// A value for every [`Figure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FigureValues([u64; Figure::ALL.len()]);

impl FigureValues {
    /// The value of one of them.
    #[must_use]
    pub const fn get(&self, figure: Figure) -> u64 {
        self.0[figure as usize]
    }

    /// Adds to one of them. Sums stop at the end of the numbers.
    pub const fn add(&mut self, figure: Figure, value: u64) {
        self.0[figure as usize] = self.0[figure as usize].saturating_add(value);
        debug_assert!(self.0[figure as usize] >= value, "a sum is no less than what was added");
    }

    /// Adds those of another store.
    pub fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, value)| *sum = sum.saturating_add(value));
        debug_assert!(self.0.iter().zip(other.0).all(|(sum, value)| *sum >= value));
    }

    /// All of them with their values, in the order of [`Figure::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Figure, u64)> {
        Figure::ALL.into_iter().zip(self.0)
    }
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

//! How a process's memory is shared out.
//!
//! ```text
//!   memory ─┬─ base                what the process needs itself
//!           ├─ cache               records that may be dropped at any time; at most half
//!           ├─ beside              indexes, page buffers, access records: what the cache leaves of
//!           │                      that half, at most a quarter of all else
//!           └─ buffers ─┬─ answers that nobody has read yet       7/20
//!                       ├─ large values on their way from a device 1/20, two copies: put together, in the pages that were read
//!                       ├─ input, three copies of it              3/10: in a connection, in the gateway, on its way to a shard
//!                       └─ promised writes, four copies of them   3/10: at the shard, in the log, in the log's blocks, in the store
//! ```
//! The shares of the buffers are upper bounds for what clients can cause, whatever they do. The
//! indexes grow with the number of keys, and are not refused: what exceeds their share is taken out
//! of the record caches, of which an eighth stays.
//!
//! A store without ports has no clients but its application: a sixteenth suffices for buffers, and
//! the cache may have all else, less what indexes, page buffers and access records take of it.

use std::sync::Arc;

use timestone_seda::Memory;

use crate::config::ServerConfig;
use crate::limits::{
    BASE_MEMORY_BYTES, DEFAULT_MEMORY_BYTES, EMBEDDED_BASE_MEMORY_BYTES, MIN_MEMORY_BYTES,
};

/// Copies of what was received that may exist at once.
const INPUT_COPIES: u64 = 3;
/// Copies of a promised write set that may exist at once.
const WRITE_COPIES: u64 = 4;

/// Copies of a large value that is put together: itself, and the pages that have it.
const ASSEMBLED_COPIES: u64 = 2;

/// The part of an embedded store's memory that its buffers have at least.
const EMBEDDED_BUFFERS: u64 = 16;

/// The part of a process's memory that pages which wait for the devices have at most.
const PAGE_BUFFERS: u64 = 8;
/// The part of a process's memory that records of recent accesses have at most.
const ACCESS_RECORDS: u64 = 32;
/// Bytes that a key takes of it: two generations of which each has as many keys fill a quarter of a
/// table of lines of 64 bytes at least, and half where the number of keys is a power of two.
const BYTES_PER_RECENT_KEY: u64 = 4 * 64;

/// The shares of a process's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) total: u64,
    pub(crate) cache: u64,
    pub(crate) beside: u64,
    /// Of what is beside, and of the cache: pages that wait for the devices.
    pub(crate) page_buffers: u64,
    pub(crate) input: u64,
    pub(crate) writes: u64,
    pub(crate) output: u64,
    /// Large values that are put together from their pages.
    pub(crate) assembled: u64,
}

impl Budget {
    /// The shares under a configuration.
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let total = config.sizes.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES).max(MIN_MEMORY_BYTES);
        let (base, most_cache) = if config.listen.is_embedded() {
            let base = EMBEDDED_BASE_MEMORY_BYTES;
            (base, total - base - total / EMBEDDED_BUFFERS)
        } else {
            (BASE_MEMORY_BYTES, total / 2)
        };
        let cache = config.sizes.cache_bytes.min(most_cache);
        let rest = total - cache - base;
        let beside = (total / 2).saturating_sub(cache).min(rest / 4);
        let buffers = rest - beside;
        let share = |twentieths: u64, copies: u64| buffers / 20 * twentieths / copies;
        Self {
            total,
            cache,
            beside,
            page_buffers: total / PAGE_BUFFERS,
            input: share(6, INPUT_COPIES),
            writes: share(6, WRITE_COPIES),
            output: share(7, 1),
            assembled: share(1, ASSEMBLED_COPIES),
        }
    }

    /// How many keys each of so many shards remembers of a generation of recent accesses, at most:
    /// so few less than a power of two that the table does not become twice as large.
    pub(crate) fn recent_keys(&self, shards: usize) -> usize {
        let share = self.total / ACCESS_RECORDS / (shards.max(1) as u64) / BYTES_PER_RECENT_KEY;
        let whole = 1 << share.max(8).ilog2();
        // A generation gets more keys before it is ended: that is looked at now and then.
        whole / 8 * 5
    }

    /// The counters that keep to it.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::new(Memory::new(self.input, self.writes, self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies_of(budget: &Budget) -> u64 {
        INPUT_COPIES * budget.input
            + WRITE_COPIES * budget.writes
            + budget.output
            + ASSEMBLED_COPIES * budget.assembled
    }

    #[test]
    fn the_shares_and_their_copies_are_within_the_total() {
        for (memory, cache) in
            [(0, u64::MAX), (768 << 20, 64 << 20), (64 << 30, 1 << 30), (2 << 30, 3 << 30)]
        {
            let mut config = ServerConfig::new("data".into());
            (config.sizes.memory_bytes, config.sizes.cache_bytes) = (Some(memory), cache);
            let budget = Budget::of(&config);
            let all = budget.cache + budget.beside + BASE_MEMORY_BYTES + copies_of(&budget);
            assert!(all <= budget.total, "{budget:?}");
            let roomy = cache < memory / 4;
            assert_eq!(budget.beside > 0, roomy, "{budget:?}");
            assert!(
                budget.cache <= budget.total / 2
                    && budget.output > budget.input
                    && budget.writes > 0,
                "{budget:?}"
            );
        }
    }

    #[test]
    fn an_embedded_store_has_a_cache_of_all_that_is_left() {
        for memory in [0, 308 << 20, 8 << 30] {
            let mut config = ServerConfig::embedded("data".into());
            (config.sizes.memory_bytes, config.sizes.cache_bytes) = (Some(memory), memory.max(1));
            let budget = Budget::of(&config);
            let all =
                budget.cache + budget.beside + EMBEDDED_BASE_MEMORY_BYTES + copies_of(&budget);
            assert!(all <= budget.total && budget.writes > 0, "{budget:?}");
            if memory > 0 {
                assert!(budget.cache > budget.total * 7 / 10, "{budget:?}");
            }
        }
    }

    #[test]
    fn recent_keys_fit_their_part_of_the_memory() {
        for (memory, shards) in [(256 << 20, 4), (1 << 30, 1), (4 << 30, 64)] {
            let mut config = ServerConfig::new("data".into());
            config.sizes.memory_bytes = Some(memory);
            let budget = Budget::of(&config);
            let keys = budget.recent_keys(shards) as u64;
            // Two generations, in a table of a power of two lines of which half are in use.
            let table = (2 * 2 * keys).next_power_of_two() * 64 * shards as u64;
            assert!(table <= memory / ACCESS_RECORDS, "{keys} keys take {table}");
            assert!(table > memory / ACCESS_RECORDS / 4, "{keys} keys take {table}");
        }
    }
}

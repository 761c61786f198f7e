//! How a process's memory is shared out.
//!
//! ```text
//!   memory ─┬─ base                what the process needs itself
//!           ├─ cache               records that may be dropped at any time; at most half
//!           ├─ beside              indexes, page buffers, access records: what the cache leaves of
//!           │                      that half, at most a quarter of all else
//!           └─ buffers ─┬─ answers that nobody has read yet       2/5
//!                       ├─ input, three copies of it              3/10: in a connection, in the gateway, on its way to a shard
//!                       └─ promised writes, four copies of them   3/10: at the shard, in the log, in the log's blocks, in the store
//! ```
//! The shares of the buffers are upper bounds for what clients can cause, whatever they do. The
//! indexes grow with the number of keys, and are not refused: what exceeds their share is taken out
//! of the record caches, of which a quarter stays.

use std::sync::Arc;

use timestone_seda::Memory;

use crate::config::ServerConfig;
use crate::limits::{BASE_MEMORY_BYTES, DEFAULT_MEMORY_BYTES, MIN_MEMORY_BYTES};

/// Copies of what was received that may exist at once.
const INPUT_COPIES: u64 = 3;
/// Copies of a promised write set that may exist at once.
const WRITE_COPIES: u64 = 4;

/// The shares of a process's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) total: u64,
    pub(crate) cache: u64,
    pub(crate) beside: u64,
    pub(crate) input: u64,
    pub(crate) writes: u64,
    pub(crate) output: u64,
}

impl Budget {
    /// The shares under a configuration.
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let total = config.sizes.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES).max(MIN_MEMORY_BYTES);
        let cache = config.sizes.cache_bytes.min(total / 2);
        let rest = total - cache - BASE_MEMORY_BYTES;
        let beside = (total / 2 - cache).min(rest / 4);
        let buffers = rest - beside;
        let share = |tenths: u64, copies: u64| buffers / 10 * tenths / copies;
        Self {
            total,
            cache,
            beside,
            input: share(3, INPUT_COPIES),
            writes: share(3, WRITE_COPIES),
            output: share(4, 1),
        }
    }

    /// The counters that keep to it.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::new(Memory::new(self.input, self.writes, self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_and_their_copies_are_within_the_total() {
        for (memory, cache) in
            [(0, u64::MAX), (768 << 20, 64 << 20), (64 << 30, 1 << 30), (2 << 30, 3 << 30)]
        {
            let mut config = ServerConfig::new("data".into());
            (config.sizes.memory_bytes, config.sizes.cache_bytes) = (Some(memory), cache);
            let budget = Budget::of(&config);
            let copies = INPUT_COPIES * budget.input + WRITE_COPIES * budget.writes + budget.output;
            let all = budget.cache + budget.beside + BASE_MEMORY_BYTES + copies;
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
}

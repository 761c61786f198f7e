//! What a processor's caches hold when a thread gets its turn: not what it left there, for others
//! have worked meanwhile. Switches and system calls are timed after such work, because right after
//! themselves they take a third or a half of the time.

use std::time::{Duration, Instant};

/// What is touched: as much as the second cache of a server's core holds. A turn of a busy shard
/// takes as long.
const BYTES: usize = 2 * 1024 * 1024;
const LINE: usize = 64;

/// Memory that is touched line by line, in an order that no prefetcher knows.
pub(crate) struct CacheWork {
    memory: Vec<u8>,
    order: Vec<u32>,
}

impl CacheWork {
    pub(crate) fn new() -> Self {
        let lines = (BYTES / LINE) as u32;
        // Odd multiples go through all of a power of two.
        let order = (0..lines).map(|number| number.wrapping_mul(0x9e37_79b1) % lines).collect();
        Self { memory: vec![1; BYTES], order }
    }

    /// Touches all of it; how long that took.
    pub(crate) fn turn(&mut self) -> Duration {
        let begin = Instant::now();
        for &line in &self.order {
            let byte = &mut self.memory[line as usize * LINE];
            *byte = byte.wrapping_add(1);
        }
        begin.elapsed()
    }
}

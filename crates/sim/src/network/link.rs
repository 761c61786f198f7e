//! How long bytes take from one process to another.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ProcessId;
use timestone_types::random::Dice;

/// What a link does to bytes at the moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkQuality {
    /// How likely a segment is lost and sent again.
    pub loss: f64,
    /// Every latency is multiplied by this.
    pub slowness: u32,
}

impl Default for LinkQuality {
    fn default() -> Self {
        Self { loss: 0.0, slowness: 1 }
    }
}

/// Latencies and bandwidth of all links.
#[derive(Clone, Debug)]
pub struct LinkModel {
    /// The region of each process; those not named are in region 0.
    pub regions: BTreeMap<ProcessId, u32>,
    /// One way within a region.
    pub near: Duration,
    /// One way between two regions.
    pub far: Duration,
    /// Latencies vary by up to this share of themselves, and rarely by much more.
    pub jitter: f64,
    /// Bytes a second of each direction of a connection.
    pub bytes_per_second: u64,
    /// What is wrong with all links at the moment.
    pub quality: LinkQuality,
}

impl Default for LinkModel {
    fn default() -> Self {
        Self {
            regions: BTreeMap::new(),
            near: Duration::from_micros(50),
            far: Duration::from_millis(30),
            jitter: 0.5,
            bytes_per_second: 1_250_000_000,
            quality: LinkQuality::default(),
        }
    }
}

impl LinkModel {
    pub(super) fn latency(&self, from: ProcessId, to: ProcessId, dice: &mut Dice) -> Duration {
        let region = |process| self.regions.get(&process).copied().unwrap_or(0);
        let base = if region(from) == region(to) { self.near } else { self.far };
        let nanos = base.as_nanos() as u64 * u64::from(self.quality.slowness.max(1));
        let spread = (nanos as f64 * self.jitter) as u64;
        // One packet in a hundred meets a queue.
        let queue = if dice.below(100) == 0 { dice.below(20 * spread + 1) } else { 0 };
        Duration::from_nanos(nanos + dice.below(spread + 1) + queue)
    }

    pub(super) const fn sending(&self, bytes: usize) -> Duration {
        let rate = if self.bytes_per_second == 0 { 1 } else { self.bytes_per_second };
        Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate)
    }
}

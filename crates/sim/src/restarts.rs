//! What a server may be at its next start that it was not at the last one: threads, layout, log
//! device, cache, capacity. (Its keyspaces' index: see `world/conversions.rs`.)
//!
//! ```text
//!   first start: as the scenario says        every later one: what varies is drawn from (server, life)
//! ```
//! All of it is what an operator may change from one start to the next (docs/operating.md,
//! "Settings"); how many shards a thread has follows from threads and layout. What is deliberately
//! absent: anything that a running server changes.

use std::fmt;
use std::time::Duration;

use timestone_seda::simulated::VirtualTime;
use timestone_server::{ServerConfig, StageLayout};
use timestone_wal::DeviceKind;
use timestone_workload::check::Loss;

use crate::clock::moment;
use crate::world::WorldConfig;
use timestone_types::random::Seed;

/// What waits for a device that keeps up does so for no longer, beside the delays that are set.
pub(crate) const FLUSH_SLACK: Duration = Duration::from_millis(500);

/// What varies from start to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vary {
    /// How many threads a server has, at least one and at most as many as its scenario says.
    pub(crate) threads: bool,
    /// Whether its threads run several stages each, or one.
    pub(crate) layout: bool,
    /// Whether it has a log.
    pub(crate) log: bool,
    /// Bytes of its cache: none to so many.
    pub(crate) cache_bytes: Option<u64>,
    /// Bytes that its devices may take: they only grow, up to so many.
    pub(crate) capacity_bytes: Option<u64>,
    /// Whether its keyspaces get another index between two lives.
    pub(crate) index: bool,
}

/// Something that was different after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RestartChange {
    /// The number of threads, and with it the number of logs and the shards of each thread.
    Threads,
    /// Which stages share a thread.
    Layout,
    /// No log after one.
    LogDropped,
    /// A log after none.
    LogTaken,
    /// The size of the record cache.
    Cache,
    /// Room for more.
    Capacity,
    /// Another index of a keyspace.
    Index,
    /// A change of an index that was cut off, with the power.
    IndexCutOff,
}

impl RestartChange {
    /// What tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "restart: threads",
            Self::Layout => "restart: layout",
            Self::LogDropped => "restart: log dropped",
            Self::LogTaken => "restart: log taken",
            Self::Cache => "restart: cache",
            Self::Capacity => "restart: capacity",
            Self::Index => "restart: index",
            Self::IndexCutOff => "restart: index, cut off",
        }
    }
}

impl fmt::Display for RestartChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Vary {
    /// Draws a server's next life. What is different then.
    pub(crate) fn draw(
        self,
        world: &WorldConfig,
        server: &mut ServerConfig,
        is_first: bool,
        seed: Seed,
    ) -> Vec<RestartChange> {
        let before = server.clone();
        if self.threads {
            let threads = seed.derive("threads", 0).dice().between(1, world.machine.threads as u64);
            server.threads = Some(threads as usize);
        }
        if is_first {
            return Vec::new();
        }
        if self.layout {
            let staged = seed.derive("layout", 0).dice().chance(0.5);
            server.layout = if staged { StageLayout::Staged } else { StageLayout::Fused };
        }
        if self.log {
            let has_log = seed.derive("log", 0).dice().chance(0.5);
            server.log = if has_log { DeviceKind::Ssd } else { DeviceKind::None };
        }
        if let Some(most) = self.cache_bytes {
            // Of every size, from nothing on.
            let mut dice = seed.derive("cache", 0).dice();
            server.sizes.cache_bytes = dice.below(most + 1) >> dice.below(12);
        }
        if let (Some(most), Some(now)) = (self.capacity_bytes, server.sizes.capacity_bytes) {
            let more = seed.derive("capacity", 0).dice().below(most.saturating_sub(now) + 1);
            server.sizes.capacity_bytes = Some(now + more);
        }
        changes(&before, server)
    }
}

fn changes(before: &ServerConfig, now: &ServerConfig) -> Vec<RestartChange> {
    let log = if now.log == DeviceKind::None {
        RestartChange::LogDropped
    } else {
        RestartChange::LogTaken
    };
    let all = [
        (RestartChange::Threads, before.threads != now.threads),
        (RestartChange::Layout, before.layout != now.layout),
        (log, before.log != now.log),
        (RestartChange::Cache, before.sizes.cache_bytes != now.sizes.cache_bytes),
        (RestartChange::Capacity, before.sizes.capacity_bytes != now.sizes.capacity_bytes),
    ];
    all.into_iter().filter(|(_, changed)| *changed).map(|(change, _)| change).collect()
}

/// For how long a server has been acknowledging what only its memory holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unlogged {
    /// The first of its lives in a row without a log began then. What came before is in a log, or
    /// was brought to flash by an orderly stop.
    since: Option<VirtualTime>,
    /// Its devices could not keep up since then, and whether they still cannot.
    hindered: Option<VirtualTime>,
    is_hindered: bool,
}

impl Unlogged {
    /// A life begins.
    pub(crate) fn begins(&mut self, log: DeviceKind, now: VirtualTime) {
        self.since = if log == DeviceKind::None { self.since.or(Some(now)) } else { None };
    }

    /// Its devices are slow, full or broken from now on.
    pub(crate) fn hinder(&mut self, now: VirtualTime) {
        self.hindered.get_or_insert(now);
        self.is_hindered = true;
    }

    /// They can keep up again. What waits for them until then is not through before the life ends,
    /// for all that is known here.
    pub(crate) const fn ease(&mut self) {
        self.is_hindered = false;
    }

    /// It ends in order, with everything on flash.
    pub(crate) fn stops(&mut self, now: VirtualTime) {
        (self.since, self.hindered) = (None, self.is_hindered.then_some(now));
    }

    /// It dies. What it may lose, if anything: what it acknowledged within `delay` before that, or
    /// since its devices could not keep up. Without a delay it may be anything that no log has.
    pub(crate) fn dies(&mut self, now: VirtualTime, delay: Option<Duration>) -> Option<Loss> {
        let hindered = std::mem::replace(&mut self.hindered, self.is_hindered.then_some(now));
        let since = self.since?;
        let delay = delay.map_or(u64::MAX, |delay| delay.as_nanos() as u64);
        let late = VirtualTime::from_nanos(now.as_nanos().saturating_sub(delay));
        let from = since.max(hindered.map_or(late, |hindered| hindered.min(late)));
        Some(Loss { from: moment(from), to: moment(now) })
    }
}

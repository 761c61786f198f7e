//! What a gateway counts for others, and what it is told by the shards of its process for INFO.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use timestone_types::Timestamp;

use crate::commands::table::Cmd;
use crate::connection::replies::CommandStart;
use timestone_seda::Latencies;
use timestone_shard::gauges::ShardGauges;

/// Commands, by their place in [`Cmd`].
const COMMANDS: usize = Cmd::Watch as usize + 1;

/// How long the commands of one gateway took, by command.
#[derive(Debug)]
pub struct CommandLatencies(Box<[Latencies]>);

impl Default for CommandLatencies {
    fn default() -> Self {
        Self((0..COMMANDS).map(|_| Latencies::default()).collect())
    }
}

impl CommandLatencies {
    /// Those of one command.
    pub fn of(&self, command: usize) -> &Latencies {
        &self.0[command]
    }
}

/// Every command's place among the latencies, and its name.
pub fn command_names() -> impl Iterator<Item = (usize, &'static str)> {
    crate::commands::table::COMMANDS.iter().map(|spec| (spec.cmd as usize, spec.name))
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct GatewayGauges {
    /// How long commands took.
    pub latencies: Arc<CommandLatencies>,
    /// What the shards of the process publish.
    pub shards: Arc<[Arc<ShardGauges>]>,
    /// How many shards of the cluster it does not reach at present.
    pub unreached: Arc<AtomicU64>,
}

impl GatewayGauges {
    /// A gateway begins: the shards wait for it when the process ends.
    pub(crate) fn begin(&self) {
        self.shards.iter().for_each(|shard| _ = shard.writers.fetch_add(1, Ordering::AcqRel));
    }

    /// It has sent its last frame.
    pub(crate) fn end(&self) {
        self.shards.iter().for_each(|shard| _ = shard.writers.fetch_sub(1, Ordering::AcqRel));
    }

    /// A command was answered.
    #[inline]
    pub(crate) fn answered(&self, asked: Option<CommandStart>, now: Timestamp) {
        if let Some(CommandStart { cmd, at }) = asked {
            self.latencies.0[cmd as usize].since(at, now);
        }
    }

    /// How many gateways the process has.
    pub(crate) fn gateways(&self) -> u64 {
        let writers = self.shards.first().map_or(1, |shard| shard.writers.load(Ordering::Acquire));
        writers.max(1)
    }

    fn sum(&self, names: &[&str]) -> u64 {
        let figures = self.shards.iter().flat_map(|shard| shard.store());
        figures.filter(|(name, _)| names.contains(name)).map(|(_, value)| value).sum()
    }

    /// Memory of the indexes and caches: what the data takes.
    pub(crate) fn dataset_bytes(&self) -> u64 {
        self.sum(&["index_bytes", "cache_bytes"])
    }

    /// Bytes of pages that the stores hold in memory on their way to their devices.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.sum(&["buffer_bytes"])
    }

    /// Keys in the indexes.
    pub(crate) fn keys(&self) -> u64 {
        self.sum(&["keys"])
    }
}

/// What a gateway counts, and since when.
#[derive(Debug, Default)]
pub(crate) struct GatewayFigures {
    gauges: GatewayGauges,
    rate: CommandRate,
    commands: u64,
    started: Timestamp,
}

impl GatewayFigures {
    /// GatewayFigures that are published so.
    pub(crate) fn new(gauges: GatewayGauges) -> Self {
        Self { gauges, ..Self::default() }
    }

    /// The gateway begins to serve.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        assert_eq!(self.started, Timestamp::ZERO, "a gateway begins once");
        self.started = now;
        self.gauges.begin();
    }

    /// When it began; zero before that.
    pub(crate) const fn started(&self) -> Timestamp {
        self.started
    }

    /// What is published.
    pub(crate) const fn gauges(&self) -> &GatewayGauges {
        &self.gauges
    }

    /// So many commands were carried out, or begun.
    #[inline]
    pub(crate) const fn took(&mut self, commands: u64) {
        debug_assert!(commands <= 1, "commands are taken one by one");
        self.commands += commands;
    }

    /// How many commands were carried out, or begun.
    pub(crate) const fn commands(&self) -> u64 {
        self.commands
    }

    /// A turn at `now`.
    #[inline]
    pub(crate) fn look(&mut self, now: Timestamp) {
        debug_assert!(now >= self.started, "a turn before the first");
        self.rate.look(now, self.commands);
    }

    /// Commands a second, lately.
    pub(crate) const fn per_second(&self) -> u64 {
        self.rate.per_second()
    }

    /// A command was answered.
    #[inline]
    pub(crate) fn answered(&self, started: Option<CommandStart>, now: Timestamp) {
        self.gauges.answered(started, now);
    }
}

/// How many commands were carried out lately: those of the last whole second.
#[derive(Debug, Default)]
pub(crate) struct CommandRate {
    since: Timestamp,
    before: u64,
    per_second: u64,
}

const SECOND: Duration = Duration::from_secs(1);

impl CommandRate {
    /// So many commands were carried out up to now.
    #[inline]
    pub(crate) fn look(&mut self, now: Timestamp, commands: u64) {
        debug_assert!(commands >= self.before, "commands are counted up");
        if now < self.since.saturating_add(SECOND) {
            return;
        }
        let span = now.since(self.since).as_secs_f64();
        self.per_second = ((commands - self.before) as f64 / span) as u64;
        (self.since, self.before) = (now, commands);
    }

    pub(crate) const fn per_second(&self) -> u64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_full_second() {
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let mut rate = CommandRate::default();
        rate.look(at(5_000), 10);
        rate.look(at(5_500), 400);
        rate.look(at(6_000), 810);
        assert_eq!(rate.per_second(), 800);
        rate.look(at(6_999), 900);
        assert_eq!(rate.per_second(), 800);
        rate.look(at(8_000), 810);
        assert_eq!(rate.per_second(), 0);
    }

    #[test]
    fn every_command_has_a_place() {
        let mut places: Vec<usize> = command_names().map(|(place, _)| place).collect();
        places.sort_unstable();
        places.dedup();
        assert!(
            places.len() == crate::commands::table::COMMANDS.len()
                && places.iter().all(|place| *place < COMMANDS)
        );
    }
}

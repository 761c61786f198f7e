//! Watches every process while a run goes on: that it rests when it has nothing to do, and that the
//! watermarks of a server that is up rise.
//!
//! What it does not do: judge what comes of transactions; that is the checkers'.

use std::time::Duration;

use timestone_seda::simulated::VirtualTime;
use timestone_types::Timestamp;

use super::LOOK;
use crate::check::Finding;
use crate::clock::EPOCH;
use crate::world::World;

/// More turns than this from one look to the next can only be empty ones.
const SPINNING_TURNS: u64 = 6_000;
/// A process that does so for this many looks in a row goes round in circles.
const SPINNING_LOOKS: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    turns: u64,
    /// Looks in a row at which it had not rested.
    spun: u32,
    /// In which life it was seen last, and since when it has been up in that.
    life: u64,
    up_since: VirtualTime,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// By process.
    watched: Vec<Watched>,
    /// How far the watermark of a server that is up may trail, while faults strike elsewhere.
    watermark_lag: Option<Duration>,
}

impl Watchdog {
    pub(super) fn new(world: &World, watermark_lag: Option<Duration>) -> Self {
        Self { watched: vec![Watched::default(); world.processes.len()], watermark_lag }
    }

    /// Finds watermarks that trail the time by more than the scenario allows, on servers that have
    /// been up for longer than that: what is wrong elsewhere must not hold them.
    pub(super) fn trailing_watermark(&mut self, world: &World) -> Option<Finding> {
        let allowed = self.watermark_lag?;
        let now = world.now();
        for (process, watched) in world.processes.iter().zip(&mut self.watched) {
            if watched.life != process.lives || !process.is_up() || process.paused {
                (watched.life, watched.up_since) = (process.lives, now);
            }
        }
        let truth = Timestamp::from_nanos(EPOCH.as_nanos() + now.as_nanos());
        for (id, figures) in world.figures() {
            let (process, watched) = (&world.processes[id], &self.watched[id.0 as usize]);
            let lag = truth.since(figures.watermark);
            if now.since(watched.up_since) > allowed && lag > allowed {
                let words = format!(
                    "the watermark of shard {} of {} trails by {lag:?}",
                    figures.shard, process.name
                );
                return Some(Finding::new("watermark", words));
            }
        }
        None
    }

    /// Finds processes that go round in circles: turn after turn without a pause, and without
    /// events to handle.
    pub(super) fn restless_process(&mut self, world: &World) -> Option<Finding> {
        for (process, watched) in world.processes.iter().zip(&mut self.watched) {
            let turns = process.turns.saturating_sub(watched.turns);
            watched.turns = process.turns;
            watched.spun = if turns > SPINNING_TURNS { watched.spun + 1 } else { 0 };
            if watched.spun >= SPINNING_LOOKS {
                let mut stages = world.processes.stage_turns();
                stages.sort_by_key(|(_, turns)| std::cmp::Reverse(*turns));
                let busiest = stages.first().map_or("", |(name, _)| name.as_str());
                let detail = format!(
                    "{} makes {turns} turns in {LOOK:?} and does nothing in them; {busiest}",
                    process.name
                );
                return Some(Finding::new("rest", detail));
            }
        }
        None
    }
}

//! How often devices interrupt the cores of a machine, and which core looks after each.

use timestone_seda::simulated::VirtualTime;
use timestone_types::random::{Dice, Seed};

use super::WorldConfig;
use crate::processes::Processes;

/// Interruptions that are not yet anybody's.
#[derive(Debug)]
pub(super) struct Interruptions {
    /// How many, and until when.
    pending: Vec<(u64, VirtualTime)>,
    /// Says whom.
    dice: Dice,
}

impl Interruptions {
    pub(super) fn new(seed: Seed) -> Self {
        Self { pending: Vec::new(), dice: seed.derive("interruptions", 0).dice() }
    }

    pub(super) fn push(&mut self, count: u64, done: VirtualTime) {
        self.pending.push((count, done));
    }

    /// When a device has done something, one of the machine's cores looks after it, whoever works
    /// there: parts of what is large are done one after another. With a single core, that is in
    /// what the device costs.
    pub(super) fn plan(&mut self, config: &WorldConfig, processes: &Processes, now: VirtualTime) {
        let shared = config.machine.together && config.machine.cores > 1;
        let cores = config.machine.cores.max(processes.len()) as u64;
        for (count, done) in self.pending.drain(..).filter(|_| shared) {
            let each = done.since(now) / u32::try_from(count).unwrap_or(u32::MAX);
            for part in 1..=count {
                let at = now.after(each * u32::try_from(part).unwrap_or(u32::MAX));
                if let Some(process) = processes.get(self.dice.below(cores) as usize) {
                    process.counter.device_at(at);
                }
            }
        }
    }
}

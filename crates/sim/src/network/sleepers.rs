//! Who has to be woken by what a turn writes.
//!
//! On one machine, a write to a connection whose other end blocks calls a core for it, and the
//! writer spends that within the call: what it writes after that leaves later, while the one that
//! was woken is on its way. This is what keeps two processes from doing everything in turns.

use std::time::Duration;

use timestone_seda::StageId;
use timestone_seda::simulated::VirtualTime;

use super::{EndId, NetworkState, ProcessId};

/// A stage whose thread blocks.
#[derive(Debug)]
struct Sleeper {
    process: ProcessId,
    stage: StageId,
    from: VirtualTime,
    /// When it wakes by itself.
    until: Option<VirtualTime>,
}

/// The stages of other processes on the machine that block, while a turn runs.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    begin: VirtualTime,
    /// From when on a core has nothing to do and may be called.
    idle: Option<VirtualTime>,
    asleep: Vec<Sleeper>,
}

impl Sleepers {
    /// A turn begins, and nobody sleeps yet.
    pub(crate) fn begin(&mut self, at: VirtualTime, idle: Option<VirtualTime>) {
        (self.begin, self.idle) = (at, idle);
        self.asleep.clear();
    }

    /// These stages of a process block: each from when on, and until when.
    pub(crate) fn add(
        &mut self,
        process: ProcessId,
        stages: impl Iterator<Item = (StageId, VirtualTime, Option<VirtualTime>)>,
    ) {
        self.asleep.extend(stages.map(|(stage, from, until)| Sleeper {
            process,
            stage,
            from,
            until,
        }));
    }
}

impl NetworkState {
    /// A segment of an end leaves so far into the turn: whether its peer sleeps and is woken by it,
    /// and how long the core has had nothing to do that is called for it, if one has.
    pub(super) fn wakes(&mut self, end: EndId, elapsed: Duration) -> Option<Option<Duration>> {
        if self.sleepers.asleep.is_empty() {
            return None;
        }
        let peer = self.end(end)?.peer?;
        let peer = self.end(peer)?;
        let (process, stage) = (peer.process, peer.slot?.stage);
        let Sleepers { begin, idle, asleep } = &mut self.sleepers;
        let now = begin.after(elapsed);
        let sleeps = |one: &Sleeper| one.from <= now && one.until.is_none_or(|until| until > now);
        let place = asleep
            .iter()
            .position(|one| one.process == process && one.stage == stage && sleeps(one))?;
        // From now on it does not.
        asleep.swap_remove(place);
        Some(idle.filter(|from| *from <= now).map(|from| now.since(from)))
    }
}

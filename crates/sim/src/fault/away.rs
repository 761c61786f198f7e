//! Which servers are of use to others, and whether a fault may take one more.
//!
//! ```text
//!   well ── may have to do with less, or with one peer less ──► hindered      down, paused, cut off from all other servers ──► away
//! ```
//! What is deliberately absent: whether a server is of use indeed. That is found out by those who
//! ask it.

use super::{Injector, Side, Undo};
use crate::network::ProcessId;
use crate::process::Process;
use crate::world::World;

use super::FaultKind;

/// How a server is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hardship {
    /// Nothing is in its way.
    Well,
    /// It serves, and perhaps not everybody, or slowly, or with errors.
    Hindered,
    /// Its shards need somebody else.
    Away,
}

impl Undo {
    /// How the process is that it concerns; of what concerns no server, or harms none, nothing.
    fn condition(self, id: ProcessId) -> Hardship {
        let (whose, condition) = match self {
            Self::Rejoin(whose, Side::Everybody | Side::Servers, _) | Self::Unite(whose, _) => {
                (whose, Hardship::Away)
            }
            Self::Rejoin(whose, Side::Clients | Side::Nobody, _)
            | Self::Disk(whose)
            | Self::ClockAndReboot(whose)
            | Self::Reboot(whose)
            | Self::Room(whose)
            | Self::Memory(whose)
            | Self::Truth(whose, _) => (whose, Hardship::Hindered),
            Self::Heal(from, to) => (if to == id { to } else { from }, Hardship::Hindered),
            Self::Network => (id, Hardship::Hindered),
            // Clocks are wrong now and then wherever there are any; a master is no server.
            Self::Clock(_)
            | Self::Master
            | Self::StopBound(..)
            | Self::StopTimeout(..)
            | Self::Reader(_)
            | Self::LateClock(_) => return Hardship::Well,
        };
        if whose == id { condition } else { Hardship::Well }
    }
}

impl Injector {
    /// How a server is.
    pub(crate) fn condition(&self, world: &World, id: ProcessId) -> Hardship {
        let process = &world.processes[id];
        if !is_here(process) {
            return Hardship::Away;
        }
        if process.hands_over {
            return Hardship::Hindered;
        }
        let pending = self.undos.iter().flatten();
        pending.map(|undo| undo.condition(id)).max().unwrap_or(Hardship::Well)
    }

    /// Whether a server is there for the others, or may be: links may stand again while a cut that was
    /// made of some of them counts against it.
    pub(crate) fn is_reached(&self, world: &World, id: ProcessId) -> bool {
        let is_joined = |other: &Process| {
            is_here(other) && (other.id == id || world.network.stands(id, other.id))
        };
        let servers = || world.processes.iter().filter(|process| process.is_server());
        self.condition(world, id) != Hardship::Away
            || (is_here(&world.processes[id])
                && servers().filter(|other| is_joined(other)).count() > servers().count() / 2)
    }

    /// How many servers beside this one are not well.
    pub(super) fn unwell_besides(&self, world: &World, id: ProcessId) -> usize {
        let servers = world.processes.iter().filter(|process| process.is_server());
        servers
            .filter(|server| server.id != id && self.condition(world, server.id) != Hardship::Well)
            .count()
    }

    /// Whether no more servers are in a bad way than there are to spare, so that every shard must
    /// be served by somebody.
    pub(crate) fn leaves_enough(&self, world: &World) -> bool {
        let servers = world.processes.iter().filter(|process| process.is_server());
        let unwell =
            servers.filter(|server| self.condition(world, server.id) != Hardship::Well).count();
        unwell <= world.config.members.spares()
            && !self.undos.iter().flatten().any(Undo::is_of_all)
            && world.has_enough_copies(|id| self.condition(world, id) != Hardship::Away)
    }

    /// Whether a fault may strike a process: there are always others with what it has, and with
    /// `keeps_enough`, always enough that serve.
    pub(super) fn may_strike(&self, world: &World, kind: FaultKind, id: ProcessId) -> bool {
        // Everything that counts is on more disks than one, whichever servers are well.
        if kind == FaultKind::OlderCopy && self.lacks_a_copy {
            return false;
        }
        if kind.takes_a_copy() && kind != FaultKind::OlderCopy {
            return world.is_whole() && self.unwell_besides(world, id) == 0;
        }
        let is_bound = self.keeps_enough && kind.takes_a_server();
        !is_bound
            || !world.processes[id].is_server()
            || self.unwell_besides(world, id) < world.config.members.spares()
    }
}

/// Whether a process runs, and is not about to end.
fn is_here(process: &Process) -> bool {
    process.is_up()
        && !process.paused
        && process.planned_crash.is_none()
        && (process.leaving.is_none() || process.hands_over)
}

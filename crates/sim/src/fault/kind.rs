//! The kinds of faults: their names, what they mean for what is promised, and how long they last.
//!
//! What it does not do: strike; that is the injector's.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// A server's process ends at once and comes back. What its devices completed is there, synced
    /// or not. Its peers' connections are reset.
    Kill,
    /// The same with its machine: its devices lose what was not synced, also what an earlier
    /// process left there, and nobody is told.
    PowerCut,
    /// A server's process stands still.
    Pause,
    /// A client dies, wherever in a commit it is, and another one takes its place.
    ClientKill,
    /// A client ends what it has open, closes its session and ends; another one takes its place. No
    /// mishap, and nobody may have to wait for it.
    ClientLeave,
    /// A client stands still.
    ClientPause,
    /// Two processes cannot reach each other.
    Cut,
    /// One process cannot reach another one, which can reach it.
    CutOneWay,
    /// A server is cut off from everybody.
    Isolate,
    /// The master's server is cut off from everybody; where the master is none of them, a server from
    /// the master alone.
    MasterCut,
    /// All servers of a region lose power together.
    RegionLoss,
    /// A connection breaks.
    Break,
    /// Something on its way forgets a connection: what is sent on it vanishes, and nobody is told.
    BlackHole,
    /// Segments are lost, and sent again later.
    Loss,
    /// The whole network is slow.
    SlowNetwork,
    /// A server's devices are slow.
    SlowDisk,
    /// The log's writes fail; the process is restarted afterwards.
    LogFailure,
    /// A sync, a program or an erase of a flash device fails; the process is restarted afterwards.
    FlashFailure,
    /// A read of a flash device fails once.
    ReadFailure,
    /// Devices have no room to grow.
    Full,
    /// A clock is set forward or back.
    ClockJump,
    /// A clock runs fast or slow.
    ClockDrift,
    /// A clock stands still.
    ClockStop,
    /// The clock of a server's machine is set far forward or back, while the server runs or while
    /// it is being restarted.
    ClockGlitch,
    /// A server's memory is scarce: its caches shrink, and it takes on a few requests at a time;
    /// the others it calls busy.
    MemoryPressure,
    /// A bit of a flash page flips.
    Rot,
    /// A flash device writes a page somewhere else, and says that all is well.
    Misdirected,
    /// A flash device writes a part of a page, and says that all is well.
    TornWrite,
    /// A flash device writes nothing, and says that all is well.
    LostWrite,
    /// A server is stopped as an operator stops it, and comes back: whatever its log, nothing is
    /// lost.
    Stop,
    /// A server's devices acknowledge syncs that they have not done. Half of the time they do them
    /// in the end, half of the time the power goes before.
    LyingSync,
    /// A process of Redis clients asks for far more than it may be owed, and reads none of it.
    StalledReader,
    /// A client dies, and the one that takes its place begins with a clock that is too far behind
    /// to be believed.
    LateClock,
    /// A server is cut off from all other servers; clients reach it.
    CutFromServers,
    /// A server is cut off from all clients; other servers reach it.
    CutFromClients,
    /// A server and half of the clients are cut off from all others.
    Split,
    /// The master outside of the servers answers nobody.
    MasterGone,
    /// A server dies and does not come back.
    Death,
    /// A server dies with its data directory. An empty one takes its place, which is another server
    /// to the cluster.
    LostDirectory,
    /// A server dies and loses its flash and its logs, but not the small files beside them: it
    /// comes back as the same server, which knows that it has lost them.
    LostDevices,
    /// A server's data directory is copied, while it runs or is down. The next time that it is
    /// struck it dies, and the copy takes the directory's place.
    OlderCopy,
}

/// Every kind with the name that scenarios know it by.
const KINDS: [(FaultKind, &str); 41] = [
    (FaultKind::Kill, "kill"),
    (FaultKind::PowerCut, "power-cut"),
    (FaultKind::Pause, "pause"),
    (FaultKind::ClientKill, "client-kill"),
    (FaultKind::ClientLeave, "client-leave"),
    (FaultKind::ClientPause, "client-pause"),
    (FaultKind::Cut, "cut"),
    (FaultKind::CutOneWay, "cut-one-way"),
    (FaultKind::Isolate, "isolate"),
    (FaultKind::MasterCut, "master-cut"),
    (FaultKind::RegionLoss, "region-loss"),
    (FaultKind::Break, "break"),
    (FaultKind::Loss, "loss"),
    (FaultKind::SlowNetwork, "slow-network"),
    (FaultKind::SlowDisk, "slow-disk"),
    (FaultKind::LogFailure, "log-failure"),
    (FaultKind::FlashFailure, "flash-failure"),
    (FaultKind::ReadFailure, "read-failure"),
    (FaultKind::Full, "full"),
    (FaultKind::ClockJump, "clock-jump"),
    (FaultKind::ClockDrift, "clock-drift"),
    (FaultKind::ClockStop, "clock-stop"),
    (FaultKind::Rot, "rot"),
    (FaultKind::Misdirected, "misdirected"),
    (FaultKind::TornWrite, "torn-write"),
    (FaultKind::LostWrite, "lost-write"),
    (FaultKind::BlackHole, "black-hole"),
    (FaultKind::MemoryPressure, "memory-pressure"),
    (FaultKind::ClockGlitch, "clock-glitch"),
    (FaultKind::Stop, "stop"),
    (FaultKind::LyingSync, "lying-sync"),
    (FaultKind::StalledReader, "stalled-reader"),
    (FaultKind::LateClock, "late-clock"),
    (FaultKind::CutFromServers, "cut-from-servers"),
    (FaultKind::CutFromClients, "cut-from-clients"),
    (FaultKind::Split, "split"),
    (FaultKind::MasterGone, "master-gone"),
    (FaultKind::Death, "death"),
    (FaultKind::LostDirectory, "lost-directory"),
    (FaultKind::LostDevices, "lost-devices"),
    (FaultKind::OlderCopy, "older-copy"),
];

impl FaultKind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.into_iter().map(|(kind, _)| kind)
    }

    /// The name that scenarios know it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Whether it destroys what was acknowledged behind the store's back. A single copy can only
    /// notice that: after such a fault nothing is demanded but that no answer is made up.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Rot | Self::Misdirected | Self::TornWrite | Self::LostWrite)
    }

    /// Whether it takes a copy of what was acknowledged: where there are others, all is promised
    /// nevertheless, as long as they are not taken before it is replaced.
    #[must_use]
    pub const fn takes_a_copy(self) -> bool {
        matches!(self, Self::Death | Self::LostDirectory | Self::LostDevices | Self::OlderCopy)
    }

    /// Whether it is for clusters whose servers stand in for each other, or whose master is none of
    /// them: no seed draws it for others.
    #[must_use]
    pub(crate) const fn is_of_failover(self) -> bool {
        self.takes_a_copy()
            || matches!(
                self,
                Self::CutFromServers | Self::CutFromClients | Self::Split | Self::MasterGone
            )
    }

    /// Whether a server that it strikes may be of no use to others.
    #[must_use]
    pub(crate) const fn takes_a_server(self) -> bool {
        self.takes_a_copy()
            || matches!(
                self,
                Self::Kill
                    | Self::PowerCut
                    | Self::Stop
                    | Self::Pause
                    | Self::Cut
                    | Self::CutOneWay
                    | Self::Isolate
                    | Self::CutFromServers
                    | Self::CutFromClients
                    | Self::Split
                    | Self::SlowDisk
                    | Self::LogFailure
                    | Self::FlashFailure
                    | Self::Full
                    | Self::MemoryPressure
                    | Self::ClockGlitch
                    | Self::LyingSync
            )
    }

    /// Whether it may keep a decision from those who wait for it for long.
    #[must_use]
    pub(crate) const fn delays_messages(self) -> bool {
        matches!(
            self,
            Self::Pause
                | Self::ClientPause
                | Self::Cut
                | Self::CutOneWay
                | Self::Isolate
                | Self::MasterCut
                | Self::CutFromServers
                | Self::CutFromClients
                | Self::Split
                | Self::BlackHole
                | Self::Loss
                | Self::SlowNetwork
                | Self::MemoryPressure
        )
    }

    /// Whether a server that is told to stop takes no longer because of it: it waits for no other
    /// process without end.
    #[must_use]
    pub(crate) const fn holds_up_no_stop(self) -> bool {
        let orderly = matches!(self, Self::ClientLeave | Self::Stop | Self::Break);
        orderly
            || matches!(self, Self::Kill | Self::PowerCut | Self::ClientKill | Self::StalledReader)
    }

    /// Whether it takes a clock out of the bound that everybody relies on.
    #[must_use]
    pub const fn is_of_clocks(self) -> bool {
        matches!(
            self,
            Self::ClockJump
                | Self::ClockDrift
                | Self::ClockStop
                | Self::ClockGlitch
                | Self::LateClock
        )
    }

    /// How long it lasts unless a scenario says otherwise.
    #[must_use]
    pub const fn usual_length(self) -> Duration {
        match self {
            Self::Kill
            | Self::PowerCut
            | Self::ClientKill
            | Self::ClientLeave
            | Self::Stop
            | Self::LogFailure
            | Self::FlashFailure => Duration::from_millis(300),
            Self::ClockGlitch => Duration::from_millis(1_500),
            Self::StalledReader => Duration::from_secs(10),
            Self::RegionLoss | Self::Full | Self::ClockDrift | Self::LateClock => {
                Duration::from_secs(2)
            }
            Self::ClockStop => Duration::from_millis(200),
            Self::CutFromServers | Self::CutFromClients | Self::Split | Self::MasterGone => {
                Duration::from_secs(3)
            }
            _ => Duration::from_millis(500),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = KINDS.iter().find(|(_, name)| *name == text);
        found.map(|(kind, _)| *kind).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|(_, name)| *name).collect();
            format!("there is no fault {text:?}; the kinds are {}", names.join(", "))
        })
    }
}

/// How often and how long a kind of fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// From one to the next, on average.
    pub every: Duration,
    /// How long it lasts, on average.
    pub lasting: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_as_it_is_named() {
        for kind in FaultKind::all() {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "earthquake".parse::<FaultKind>().unwrap_err();
        assert!(error.contains("\"earthquake\"") && error.contains("power-cut"), "{error}");
    }
}

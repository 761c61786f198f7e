//! Looking at a world from outside: figures, logs, devices, CPU time and the trace. Nothing here
//! changes it.

use std::time::Duration;

use timestone_seda::simulated::{Cores, VirtualTime};
use timestone_server::ShardFigures;
use timestone_types::ShardId;

use crate::network::ProcessId;
use crate::process::{Life, Role};
use crate::trace::TraceLine;
use crate::world::World;

impl World {
    /// The figures of every shard of every server that serves.
    pub(crate) fn figures(&self) -> Vec<(ProcessId, ShardFigures)> {
        let mut all = Vec::new();
        for process in &self.processes {
            if let Life::Serving(serving) = &process.life {
                all.extend((serving.figures)().into_iter().map(|figures| (process.id, figures)));
            }
        }
        all
    }

    /// Turns of each stage of each process that is up, by name.
    pub(crate) fn stage_turns(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for process in &self.processes {
            let metrics = match &process.life {
                Life::Serving(serving) => serving.runtime.metrics(),
                Life::Client { runtime, .. } | Life::Redis { runtime } => runtime.metrics(),
                Life::Down | Life::Joining { .. } => continue,
            };
            all.extend(
                metrics
                    .stages
                    .iter()
                    .map(|stage| (format!("{} {}", process.name, stage.name), stage.turns_total)),
            );
        }
        all
    }

    /// Bytes on the log disks of a server.
    pub(crate) fn log_bytes(&self, id: ProcessId) -> u64 {
        let Role::Server(server) = &self.processes[id.0 as usize].role else { return 0 };
        server.environment.disks().iter().map(|(_, disk)| disk.used_bytes()).sum()
    }

    /// The flash medium of one shard of a server.
    pub(crate) fn media(&self, id: ProcessId) -> Vec<(ShardId, timestone_flash::MemoryMedia)> {
        match &self.processes[id.0 as usize].role {
            Role::Server(server) => server.environment.media(),
            Role::Client(_) | Role::Redis(_) => Vec::new(),
        }
    }

    /// The log disks of a server.
    pub(crate) fn disks(&self, id: ProcessId) -> Vec<timestone_wal::device::memory::MemoryDisk> {
        match &self.processes[id.0 as usize].role {
            Role::Server(server) => {
                server.environment.disks().into_iter().map(|(_, disk)| disk).collect()
            }
            Role::Client(_) | Role::Redis(_) => Vec::new(),
        }
    }

    /// Takes the lines of the trace that were kept.
    pub(crate) fn take_trace_lines(&mut self) -> Vec<TraceLine> {
        let processes = &self.processes;
        let line = |(id, stage, at, what): (ProcessId, String, VirtualTime, String)| TraceLine {
            at,
            process: processes[id.0 as usize].name.clone(),
            stage,
            what,
        };
        self.trace.take_lines().map(line).collect()
    }

    /// CPU time spent on all machines.
    pub(crate) fn busy(&self) -> Duration {
        self.machines.iter().map(Cores::busy).sum()
    }

    /// CPU time that the servers' present lives have spent, and the clients'.
    pub(crate) fn busy_by_role(&self) -> (Duration, Duration) {
        let mut busy = (Duration::ZERO, Duration::ZERO);
        for process in &self.processes {
            match &process.life {
                Life::Serving(serving) => busy.0 += serving.runtime.busy(),
                Life::Client { runtime, .. } | Life::Redis { runtime } => busy.1 += runtime.busy(),
                Life::Down | Life::Joining { .. } => {}
            }
        }
        busy
    }
}

//! The processes of a world, by id, and inspection of them: figures, logs, devices, CPU time.
//!
//! Invariant: a process's id is its position, and processes are never taken away: only their lives
//! end. What it does not do: anything that takes time; that is the world's.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use timestone_server::{FlashPart, ShardFigures};
use timestone_types::ShardId;

use crate::network::ProcessId;
use crate::process::{Process, ProcessLife, Role};

/// See the module.
#[derive(Default)]
pub(crate) struct Processes(Vec<Process>);

impl Index<ProcessId> for Processes {
    type Output = Process;

    fn index(&self, id: ProcessId) -> &Process {
        &self.0[id.0 as usize]
    }
}

impl IndexMut<ProcessId> for Processes {
    fn index_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.0[id.0 as usize]
    }
}

impl<'a> IntoIterator for &'a Processes {
    type Item = &'a Process;
    type IntoIter = std::slice::Iter<'a, Process>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Processes {
    /// The id that the next process gets.
    pub(crate) fn next_id(&self) -> ProcessId {
        ProcessId(self.0.len() as u32)
    }

    pub(crate) fn push(&mut self, process: Process) {
        assert_eq!(process.id, self.next_id(), "a process's id is its position");
        self.0.push(process);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.0.len() as u32).map(ProcessId)
    }

    pub(crate) fn get(&self, position: usize) -> Option<&Process> {
        self.0.get(position)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Process> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Process> {
        self.0.iter_mut()
    }

    /// The figures of every shard of every server that serves.
    pub(crate) fn figures(&self) -> Vec<(ProcessId, ShardFigures)> {
        let mut all = Vec::new();
        for process in self {
            if let ProcessLife::Serving(serving) = &process.life {
                all.extend((serving.figures)().into_iter().map(|figures| (process.id, figures)));
            }
        }
        all
    }

    /// Turns of each stage of each process that is up, by name.
    pub(crate) fn stage_turns(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for process in self {
            let metrics = match &process.life {
                ProcessLife::Serving(serving) => serving.runtime.metrics(),
                ProcessLife::Client { runtime, .. } | ProcessLife::Redis { runtime } => {
                    runtime.metrics()
                }
                ProcessLife::Down | ProcessLife::Joining { .. } => continue,
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
        let Role::Server(server) = &self[id].role else { return 0 };
        server.environment.disks().iter().map(|(_, disk)| disk.used_bytes()).sum()
    }

    /// The flash media of the shards of a server.
    pub(crate) fn media(
        &self,
        id: ProcessId,
    ) -> Vec<((ShardId, FlashPart), timestone_flash::MemoryMedia)> {
        match &self[id].role {
            Role::Server(server) => server.environment.media(),
            Role::Client(_) | Role::Redis(_) => Vec::new(),
        }
    }

    /// The log disks of a server.
    pub(crate) fn disks(&self, id: ProcessId) -> Vec<timestone_wal::device::memory::MemoryDisk> {
        match &self[id].role {
            Role::Server(server) => {
                server.environment.disks().into_iter().map(|(_, disk)| disk).collect()
            }
            Role::Client(_) | Role::Redis(_) => Vec::new(),
        }
    }

    /// CPU time that the servers' present lives have spent, and the clients'.
    pub(crate) fn busy_by_role(&self) -> (Duration, Duration) {
        let mut busy = (Duration::ZERO, Duration::ZERO);
        for process in self {
            match &process.life {
                ProcessLife::Serving(serving) => busy.0 += serving.runtime.busy(),
                ProcessLife::Client { runtime, .. } | ProcessLife::Redis { runtime } => {
                    busy.1 += runtime.busy()
                }
                ProcessLife::Down | ProcessLife::Joining { .. } => {}
            }
        }
        busy
    }
}

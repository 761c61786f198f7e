//! Processor time: of this process, and of the servers as they tell it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use timestone_workload::CpuUse;

use crate::probe;

/// Processor time used so far.
#[derive(Clone, Debug)]
pub(super) struct CpuReading {
    process: Duration,
    /// Of every server, in their order; `None` where there are none, or one does not tell.
    servers: Option<Vec<ServerReading>>,
}

/// What one server's process has used since its start.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ServerReading {
    /// When it started, as it says: another one is another process, whose time began at nothing.
    started: Option<String>,
    used: Duration,
}

/// What was used from one reading to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) cpu: CpuUse,
    /// A server was started anew in between: what its process before had used went with it.
    pub(super) restarted: bool,
}

impl CpuReading {
    /// Reads both; of servers only where there are some, and only when every one tells.
    pub(super) fn take(servers: &[String]) -> Self {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let process = Duration::new(
            u64::try_from(own.tv_sec).unwrap_or(0),
            u32::try_from(own.tv_nsec).unwrap_or(0),
        );
        let told = servers.iter().map(|server| {
            let answer = probe::ask(server).ok()?;
            Some(ServerReading {
                started: answer.started().map(str::to_owned),
                used: answer.cpu()?,
            })
        });
        let servers = if servers.is_empty() { None } else { told.collect() };
        Self { process, servers }
    }

    /// What was used since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Used {
        let client = Some(self.process.saturating_sub(earlier.process));
        let pairs = || self.servers.iter().flatten().zip(earlier.servers.iter().flatten());
        let is_other = |(later, earlier): (&ServerReading, &ServerReading)| {
            later.started != earlier.started || later.used < earlier.used
        };
        let restarted = pairs().any(is_other);
        let told = self.servers.is_some() && earlier.servers.is_some() && !restarted;
        let server = told
            .then(|| pairs().map(|(later, earlier)| later.used.saturating_sub(earlier.used)).sum());
        Used { cpu: CpuUse { client, server }, restarted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_is_counted() {
        let before = CpuReading::take(&[]);
        let mut sum = 0u64;
        let mut after = CpuReading::take(&[]);
        while after.since(&before).cpu.client < Some(Duration::from_millis(5)) {
            sum = std::hint::black_box(sum.wrapping_add(1));
            after = CpuReading::take(&[]);
        }
        assert_eq!(after.since(&before).cpu.server, None);
    }

    #[test]
    fn a_server_that_was_started_anew_has_no_figure_and_the_others_have() {
        let reading = |servers: &[(&str, u64)]| {
            let one = |&(started, seconds): &(&str, u64)| ServerReading {
                started: Some(started.to_owned()),
                used: Duration::from_secs(seconds),
            };
            CpuReading { process: Duration::ZERO, servers: Some(servers.iter().map(one).collect()) }
        };
        let before = reading(&[("10", 100), ("11", 7)]);
        let used = reading(&[("10", 103), ("11", 8)]).since(&before);
        assert_eq!((used.cpu.server, used.restarted), (Some(Duration::from_secs(4)), false));
        // More than before, as it had much to recover: still another process.
        for anew in [("12", 101), ("10", 2)] {
            let used = reading(&[anew, ("11", 8)]).since(&before);
            assert_eq!((used.cpu.server, used.restarted), (None, true));
        }
    }
}

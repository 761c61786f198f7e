//! Processor time: of this process, and of the servers as they tell it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use timestone_workload::CpuUse;

use crate::probe;

/// Processor time used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    process: Duration,
    servers: Option<Duration>,
}

impl Reading {
    /// Reads both; of servers only where there are some, and only when every one tells.
    pub(super) fn take(servers: &[String]) -> Self {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let process = Duration::new(u64::try_from(own.tv_sec).unwrap_or(0), u32::try_from(own.tv_nsec).unwrap_or(0));
        let told = servers.iter().map(|server| probe::ask(server).ok()?.cpu());
        let servers = if servers.is_empty() { None } else { told.sum() };
        Self { process, servers }
    }

    /// What was used since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> CpuUse {
        let servers = self.servers.zip(earlier.servers);
        CpuUse {
            client: Some(self.process.saturating_sub(earlier.process)),
            server: servers.map(|(later, earlier)| later.saturating_sub(earlier)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_is_counted() {
        let before = Reading::take(&[]);
        let mut sum = 0u64;
        let mut after = Reading::take(&[]);
        while after.since(&before).client < Some(Duration::from_millis(5)) {
            sum = std::hint::black_box(sum.wrapping_add(1));
            after = Reading::take(&[]);
        }
        assert_eq!(after.since(&before).server, None);
    }
}

//! What the operating system says of this process and of the file system of its data; asked by the
//! HTTP thread alone.

use std::path::Path;

use rustix::fs::statvfs;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Figures of the process; `None` where the system does not tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessFigures {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<f64>,
    pub(crate) virtual_bytes: Option<f64>,
    pub(crate) open_fds: Option<f64>,
    pub(crate) max_fds: Option<f64>,
}

/// Asks.
pub(crate) fn figures() -> ProcessFigures {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    // Pages: all, resident, … (proc_pid_statm(5)).
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages =
        statm.split(' ').map(|word| Some(word.parse::<u64>().ok()? as f64 * page_size() as f64));
    let (virtual_bytes, resident_bytes) = (pages.next().flatten(), pages.next().flatten());
    let open_fds = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    ProcessFigures {
        cpu_seconds: Some(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9),
        resident_bytes,
        virtual_bytes,
        open_fds,
        max_fds: getrlimit(Resource::Nofile).current.map(|most| most as f64),
    }
}

/// The size of a directory's file system, and what may still be used of it, in bytes.
pub(crate) fn file_system(directory: &Path) -> Option<(u64, u64)> {
    let of = statvfs(directory).ok()?;
    Some((of.f_blocks.saturating_mul(of.f_frsize), of.f_bavail.saturating_mul(of.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        let figures = figures();
        assert!(
            figures.resident_bytes > Some(1e5) && figures.virtual_bytes >= figures.resident_bytes
        );
        assert!(figures.open_fds >= Some(3.0) && figures.max_fds >= figures.open_fds);
        let (size, free) = file_system(Path::new("/")).unwrap();
        assert!(size > 0 && free <= size);
    }
}

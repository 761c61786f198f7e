//! How much memory the machine has, and how much this process uses, as the system tells it.
//!
//! A container's processes see the whole machine but are ended at their control group's limit: the
//! smaller one counts.

use std::fs;
use std::path::Path;

/// Memory that this process may use at most, in bytes: the machine's, or the limit of the tightest
/// control group that it is in. `None` where the system does not tell.
#[must_use]
pub fn machine_memory() -> Option<u64> {
    let total = total_of(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&group, |path| fs::read_to_string(path).ok());
    Some(limit.map_or(total, |limit| limit.min(total)))
}

/// Memory of this process that is in the machine's, in bytes.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&status, "VmRSS:")
}

fn total_of(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, "MemTotal:")
}

/// The value of a line such as `MemTotal:  16384 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest limit of the control groups that `/proc/self/cgroup` names, from the process's own up
/// to the root.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let own = Path::new(group.trim_start_matches('/'));
        let limit = |group: &Path| {
            read(&Path::new(root).join(group).join(file))?.trim().parse::<u64>().ok()
        };
        own.ancestors().filter_map(limit).collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let file = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("4096\n".to_owned()),
            "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => Some("8192\n".to_owned()),
            _ => None,
        };
        assert_eq!(group_limit("0::/a/b\n", file), Some(4096));
        assert_eq!(group_limit("5:cpu,memory:/c\n4:pids:/a\n", file), Some(8192));
        assert_eq!(group_limit("0::/\n", file), None);
        assert_eq!(total_of("MemTotal:       16 kB\nMemFree: 3 kB\n"), Some(16 * 1024));
    }

    #[test]
    fn a_process_fits_its_machine() {
        let (resident, machine) = (resident_memory().unwrap(), machine_memory().unwrap());
        assert!(resident > 0 && resident < machine, "{resident} of {machine}");
    }
}

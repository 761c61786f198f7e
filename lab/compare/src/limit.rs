//! A control group that limits the memory of a run, page cache included.
//!
//! The user names a group of the memory controller under which groups may be made; nothing else of
//! the machine's groups is touched.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fault;

/// Beside what a store may take: program, stacks, histograms, random bytes.
const BESIDE_BYTES: u64 = 64 << 20;

/// The file that holds the limit: of version 2, and of version 1.
const LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

/// The group of a run under `parent`.
pub(crate) fn group(parent: &Path, process: u32) -> PathBuf {
    parent.join(format!("compare-{process}"))
}

/// Makes a group with a limit, and moves this process into it.
pub(crate) fn join(parent: &Path, memory_bytes: u64) -> Result<(), Fault> {
    let group = group(parent, std::process::id());
    fs::create_dir(&group).map_err(|error| format!("no group at {}: {error}", group.display()))?;
    let limit = LIMITS.iter().map(|name| group.join(name)).find(|file| file.exists());
    let Some(limit) = limit else {
        let _ = fs::remove_dir(&group);
        return Err(format!("{} has no memory controller", parent.display()).into());
    };
    fs::write(&limit, (memory_bytes + BESIDE_BYTES).to_string())?;
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(())
}

/// Removes the group of a process that has ended.
pub(crate) fn remove(parent: &Path, process: u32) {
    // Without the group there is nothing to remove.
    let _ = fs::remove_dir(group(parent, process));
}

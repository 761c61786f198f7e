//! What the kernel counts of this process: processor time, bytes written, memory, space.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use crate::Fault;

/// The kernel's tick of `/proc/…/stat`, on every architecture that Linux still has.
const TICKS_PER_SECOND: u64 = 100;
/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Processor time of all threads, of user and kernel, to a tick of 10 ms.
pub(crate) fn processor_time() -> Result<Duration, Fault> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in brackets may hold anything; `utime` and `stime` are fields 14 and 15.
    let rest = stat.rsplit_once(')').ok_or("/proc/self/stat has another form")?.1;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut next = || -> Result<u64, Fault> {
        Ok(fields.next().ok_or("/proc/self/stat has too few fields")?.parse()?)
    };
    let ticks = next()? + next()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Bytes that this process caused to be written to the device: pages made dirty and direct writes,
/// less those that were cut off before they were written.
pub(crate) fn bytes_written() -> Result<u64, Fault> {
    let io = fs::read_to_string("/proc/self/io")?;
    Ok(field(&io, "write_bytes:")?.saturating_sub(field(&io, "cancelled_write_bytes:")?))
}

/// Memory in use, and the part of it that is pages of files.
pub(crate) fn resident_bytes() -> Result<(u64, u64), Fault> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok((field(&status, "VmRSS:")? * 1024, field(&status, "RssFile:")? * 1024))
}

fn field(text: &str, name: &str) -> Result<u64, Fault> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.ok_or_else(|| format!("the kernel does not tell {name}"))?;
    Ok(line.split_ascii_whitespace().next().ok_or("an empty field of /proc")?.parse()?)
}

/// Space that a folder takes, holes left out.
pub(crate) fn disk_bytes(folder: &Path) -> Result<u64, Fault> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A store may remove a file at any moment.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() {
            bytes += disk_bytes(&entry.path())?;
        } else {
            bytes += found.blocks() * STAT_BLOCK_BYTES;
        }
    }
    Ok(bytes)
}

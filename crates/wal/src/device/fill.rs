//! How fast a fresh log file is filled with zeros, while the log that it is for goes on.
//!
//! A file is filled before it is used. At the disk's full speed every group of the log would wait
//! behind writes of a megabyte meanwhile: 4 - 9 ms each instead of 0.2 ms, for a tenth of the time
//! (docs/benchmarks.md). So it is filled in small pieces, and only as fast as it has to be there in
//! time.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::path::Path;
use std::thread;
use std::time::Instant;

use timestone_io::{Access, IoError, IoFile};

use crate::WalError;
use crate::limits::{FILL_PERCENT_AHEAD, FILL_PIECE_BYTES, FILL_SPEED, FILL_WAIT};

/// What the log does meanwhile. Shared by the log's thread and the one that makes its files.
#[derive(Debug, Default)]
pub(super) struct Appending {
    /// How much of its current file is used.
    used: AtomicU64,
    /// Nothing is to be waited for: the log is being closed.
    is_over: AtomicBool,
}

impl Appending {
    /// The current file is used up to there.
    pub(super) fn use_up_to(&self, offset: u64) {
        self.used.store(offset, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The file that is being filled, as large as the current one, and when that began.
struct Begun {
    at: Instant,
    bytes: u64,
    /// How much of the current file was used.
    used: u64,
}

impl Begun {
    /// Whether to wait before more of the file is written than is done.
    fn is_early(&self, done: u64, used: u64) -> bool {
        let Some(rest) = self.bytes.checked_sub(self.used).filter(|&rest| rest > 0) else {
            return false;
        };
        // The next file is needed: it was begun behind this one's end, or is used by now.
        let Some(used) = used.checked_sub(self.used) else { return false };
        let by_log = u128::from(self.bytes) * u128::from(FILL_PERCENT_AHEAD) * u128::from(used)
            / (100 * u128::from(rest));
        let by_time = (self.at.elapsed().as_secs_f64() * FILL_SPEED as f64) as u64;
        u128::from(done) > by_log.max(u128::from(by_time))
    }
}

/// Makes a file of zeros: at once where nothing was appended yet, else beside what the log does.
pub(super) fn fill(path: &Path, bytes: u64, beside: &Appending) -> Result<(), WalError> {
    let failed = |error| super::ssd::from_io(path, error);
    let file = timestone_io::open_direct(path, Access::CreateNew).map_err(failed)?;
    let free = timestone_io::free_bytes(&file);
    write_zeros(&file, bytes, beside).map_err(|error| match (error, free) {
        (IoError::NoSpace { .. }, Some(free)) => {
            let words =
                format!("the file system is full: {bytes} bytes are needed, {free} are free");
            let full = std::io::Error::new(std::io::ErrorKind::StorageFull, words);
            WalError::io("preallocate", path, full)
        }
        (error, _) => failed(error),
    })?;
    // Length and allocation must be durable as well, or every later write would have to make them
    // so.
    file.file().sync_all().map_err(|cause| WalError::io("sync", path, cause))
}

fn write_zeros(file: &IoFile, bytes: u64, appending: &Appending) -> Result<(), IoError> {
    let begun = Begun { at: Instant::now(), bytes, used: appending.used() };
    if begun.used == 0 {
        return timestone_io::preallocate_zeroed(file, 0, bytes);
    }
    timestone_io::preallocate_zeroed_by(file, 0, bytes, FILL_PIECE_BYTES, |done| {
        while begun.is_early(done, appending.used()) && !appending.is_over.load(Ordering::Relaxed) {
            thread::sleep(FILL_WAIT);
        }
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const FILE: u64 = 64 * FILL_PIECE_BYTES as u64;

    fn filled(beside: &Appending) -> (Vec<u8>, Duration) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let began = Instant::now();
        fill(&path, FILE, beside).unwrap();
        (std::fs::read(path).unwrap(), began.elapsed())
    }

    #[test]
    fn a_file_is_whole_however_fast_the_log_goes_on() {
        let idle = Appending::default();
        idle.use_up_to(1);
        let (zeros, took) = filled(&idle);
        assert_eq!(zeros, vec![0; FILE as usize]);
        // All but the first piece wait for their time.
        let waited = (FILE - 2 * FILL_PIECE_BYTES as u64) as f64 / FILL_SPEED as f64;
        assert!(took.as_secs_f64() >= waited, "{took:?}");
        let (fresh, closed) = (Appending::default(), idle);
        closed.end();
        for beside in [&fresh, &closed] {
            assert_eq!(filled(beside).0.len(), FILE as usize);
        }
    }

    #[test]
    fn it_is_full_before_the_current_one_is_used_up() {
        // Nothing is allowed by time.
        let at = Instant::now() + Duration::from_secs(3600);
        for began_at in [0, 50, 80, 99] {
            let begun = Begun { at, bytes: 100, used: began_at };
            assert!(begun.is_early(1, began_at), "begun at {began_at}");
            let rest = 100 - began_at;
            let last = began_at + rest.div_ceil(FILL_PERCENT_AHEAD / 50) + rest / 2;
            assert!(!begun.is_early(99, last.min(100)), "begun at {began_at}, used {last}");
            // The next one is needed, or used.
            assert!(!begun.is_early(99, 100) && (began_at == 0 || !begun.is_early(99, 0)));
        }
        assert!(!Begun { at, bytes: 100, used: 100 }.is_early(99, 100));
    }
}

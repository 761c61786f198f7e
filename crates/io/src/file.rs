//! Files for the engines: opened directly (O_DIRECT) where the file system agrees, shared by
//! reference count, preallocated.
//!
//! The helpers here block; they are for opening, creating and recovering. The data path goes
//! through [`IoEngine`](crate::IoEngine).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Instant;

use rustix::fs::{FallocateFlags, FlockOperation, flock};

use crate::buffer::AlignedBuffer;
use crate::error::IoError;
use crate::limits::{LOCK_RETRY, LOCK_TIMEOUT, ZERO_FILL_BYTES};

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// An existing file, for reading.
    ReadOnly,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

/// An open file, cheap to clone; operations in flight keep it open.
#[derive(Clone, Debug)]
pub struct IoFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    path: PathBuf,
    direct: bool,
}

impl IoFile {
    /// Wraps a file that somebody else opened; `direct` says whether O_DIRECT's alignment rules
    /// hold for it.
    #[must_use]
    pub fn new(file: File, path: &Path, direct: bool) -> Self {
        Self { inner: Arc::new(Inner { file, path: path.to_owned(), direct }) }
    }

    /// The file itself, for blocking calls.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.inner.file
    }

    /// Where it was opened (it may have been renamed since).
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Whether transfers bypass the page cache, and offsets and lengths must be multiples of 4096.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Length of the file in bytes.
    ///
    /// # Errors
    /// When the file's metadata cannot be read.
    pub fn length_bytes(&self) -> Result<u64, IoError> {
        Ok(self.file().metadata().map_err(|source| self.failed("measure", source))?.len())
    }

    /// Takes the file's advisory lock for as long as the file is open; `false` when somebody else
    /// has it. Blocks up to
    /// [`LOCK_TIMEOUT`]: what a killed process had under way keeps its files open, and may still
    /// write to them, after the process is gone. Whoever got the lock knows that this is over.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn lock(&self) -> Result<bool, IoError> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(self.file(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(true),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    sleep(LOCK_RETRY)
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
                Err(errno) => return Err(self.failed("lock", errno.into())),
            }
        }
    }

    /// Makes everything written so far durable; blocks.
    ///
    /// # Errors
    /// When the device failed. What was written since the last success may be lost then, even if a
    /// later call succeeds.
    pub fn sync(&self) -> Result<(), IoError> {
        self.file().sync_data().map_err(|source| self.failed("sync", source))
    }

    /// Reads `buffer.len()` bytes at `offset`; blocks. Bytes beyond the end of the file read as
    /// zeros.
    ///
    /// # Errors
    /// When the device failed.
    pub fn read_blocking(&self, offset: u64, buffer: &mut AlignedBuffer) -> Result<(), IoError> {
        let length = buffer.len();
        let got = read_fully(self, offset, buffer, length)
            .map_err(|source| self.failed("read", source))?;
        buffer[got..].fill(0);
        Ok(())
    }

    /// Writes the whole buffer at `offset`; blocks.
    ///
    /// # Errors
    /// When the device failed or is full.
    pub fn write_blocking(&self, offset: u64, buffer: &AlignedBuffer) -> Result<(), IoError> {
        self.file().write_all_at(buffer, offset).map_err(|source| self.failed("write", source))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> IoError {
        IoError::File { action, path: self.path().to_owned(), source }
    }
}

impl AsFd for IoFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

/// Opens a file with O_DIRECT; where the file system refuses that, without it (and says so in the
/// log).
///
/// # Errors
/// When the file cannot be opened or created.
pub fn open_direct(path: &Path, access: Access) -> Result<IoFile, IoError> {
    open_with(path, access, 0)
}

/// Opens an existing file as [`open_direct`] does, for reading and writing, with O_DSYNC: what a
/// write has written is durable when it completes. What the file has of its own (times) is not, as
/// long as its data can be found without: that would be another write each time.
///
/// # Errors
/// When the file cannot be opened.
pub fn open_direct_synced(path: &Path) -> Result<IoFile, IoError> {
    // rustix takes O_SYNC for O_DSYNC.
    open_with(path, Access::ReadWrite, libc::O_DSYNC)
}

fn open_with(path: &Path, access: Access, flags: i32) -> Result<IoFile, IoError> {
    let mut options = OpenOptions::new();
    options.read(true).write(access != Access::ReadOnly).create_new(access == Access::CreateNew);
    let direct = options.clone().custom_flags(libc::O_DIRECT | flags).open(path);
    let failed = |source| IoError::File { action: "open", path: path.to_owned(), source };
    match direct {
        Ok(file) => Ok(IoFile::new(file, path, true)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            // The refusal may come after the file was created: then it is ours to open, not
            // somebody else's.
            if access == Access::CreateNew && path.exists() {
                options.create_new(false);
            }
            let file = options.custom_flags(flags).open(path).map_err(failed)?;
            tracing::warn!(path = %path.display(), "the file system refuses O_DIRECT: going \
                through the page cache");
            Ok(IoFile::new(file, path, false))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Bytes that may still be taken on the file system of an open file; `None` when it does not tell.
#[must_use]
pub fn free_bytes(file: &IoFile) -> Option<u64> {
    let told = rustix::fs::fstatvfs(file.file()).ok()?;
    Some(told.f_bavail.saturating_mul(told.f_frsize))
}

/// Makes the entry of `path` in its folder durable (after a create, rename or remove); blocks.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_parent(path: &Path) -> Result<(), IoError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed =
        |source| IoError::File { action: "sync the folder", path: folder.to_owned(), source };
    File::open(folder).map_err(failed)?.sync_all().map_err(failed)
}

/// Reserves the range *and writes zeros over it*, then syncs: later writes inside change no
/// metadata, which makes a synced 4 KiB write about ten times faster than an extending one
/// (docs/lab/building-blocks.md). Blocks; bytes are multiples of 4096.
///
/// # Errors
/// [`IoError::NoSpace`] when the file system is full, otherwise the failing call.
pub fn preallocate_zeroed(file: &IoFile, offset: u64, bytes: u64) -> Result<(), IoError> {
    preallocate_zeroed_by(file, offset, bytes, ZERO_FILL_BYTES, |_| {})
}

/// As [`preallocate_zeroed`], in pieces of so many bytes (a multiple of 4096). Before each one
/// `pause` is called with the bytes that are written by then: others may need the disk meanwhile.
///
/// # Errors
/// As [`preallocate_zeroed`].
pub fn preallocate_zeroed_by(
    file: &IoFile,
    offset: u64,
    bytes: u64,
    piece_bytes: usize,
    mut pause: impl FnMut(u64),
) -> Result<(), IoError> {
    let full = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            IoError::NoSpace { path: file.path().to_owned(), bytes }
        }
        _ => file.failed("preallocate", source),
    };
    allocate(file, offset, bytes).map_err(full)?;
    let zeros =
        AlignedBuffer::zeroed(piece_bytes.min(usize::try_from(bytes).unwrap_or(piece_bytes)));
    let mut done = 0;
    while done < bytes {
        pause(done);
        let piece = (zeros.len() as u64).min(bytes - done);
        let piece_bytes = usize::try_from(piece).unwrap_or(zeros.len());
        file.file().write_all_at(&zeros[..piece_bytes], offset + done).map_err(full)?;
        done += piece;
    }
    file.sync()
}

/// `fallocate`, or an extension of the file where the file system cannot reserve.
pub(crate) fn allocate(file: &IoFile, offset: u64, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    loop {
        return match rustix::fs::fallocate(file.file(), FallocateFlags::empty(), offset, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                extend(file, offset, bytes)
            }
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Makes the file at least `offset + bytes` long, without reserving anything.
pub(crate) fn extend(file: &IoFile, offset: u64, bytes: u64) -> io::Result<()> {
    if file.file().metadata()?.len() < offset + bytes {
        file.file().set_len(offset + bytes)?;
    }
    Ok(())
}

/// Reads until `length` bytes are there or the file ends; says how many there were.
pub(crate) fn read_fully(
    file: &IoFile,
    offset: u64,
    buffer: &mut AlignedBuffer,
    length: usize,
) -> io::Result<usize> {
    let mut done = 0;
    while done < length {
        match file.file().read_at(&mut buffer[done..length], offset + done as u64) {
            Ok(0) => break,
            Ok(bytes) => {
                done += bytes;
                if at_unaligned_end(file, done) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A direct read that stopped off the grid has met the end of the file; asking on from there would
/// be refused.
pub(crate) fn at_unaligned_end(file: &IoFile, done: usize) -> bool {
    file.is_direct() && !done.is_multiple_of(crate::ALIGNMENT)
}

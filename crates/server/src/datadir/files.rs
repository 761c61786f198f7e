//! Folders and small files that a crash, and a file system that is full, leave whole.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::ServerError;

pub(super) const RESERVE_FILE: &str = "RESERVE";
/// What the largest of the small files may take twice by far, but for a master of very many servers
/// and keyspaces.
const RESERVE_BYTES: usize = 64 * 1024;
/// Whether there is no such file, or not even a directory for it.
pub(super) fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Creates a folder, and those that it is in, where they are missing; each is durable in its
/// parent.
pub(super) fn create_folder(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_folder(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    File::open(parent)?.sync_all()
}

/// Replaces the file, also on a file system that is full: the log can reuse its files only when the
/// manifest can be saved. What that takes is given by a file of zeros, which is put up again as
/// soon as there is room.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), ServerError> {
    let reserve = path.with_file_name(RESERVE_FILE);
    let is_full = |source: &std::io::Error| {
        matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
    };
    match write_aside(path, bytes) {
        Err(source) if is_full(&source) && fs::remove_file(&reserve).is_ok() => {
            write_aside(path, bytes)
        }
        written => written,
    }
    .map_err(|source| ServerError::io("write", path, source))?;
    // Half of it, and none, are tried again at the next change; nothing depends on it before.
    let is_whole =
        fs::metadata(&reserve).is_ok_and(|metadata| metadata.len() == RESERVE_BYTES as u64);
    if !is_whole && fs::write(&reserve, [0; RESERVE_BYTES]).is_err() {
        let _ = fs::remove_file(&reserve);
    }
    Ok(())
}

/// Writes `bytes` beside `path`, syncs, renames over it and syncs the folder.
fn write_aside(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

//! The data directory: who owns it, which format it has, and where each part lives inside it.
//!
//! ```text
//! timestone-data/
//!   LOCK          held (flock) by the one process that owns the directory; holds its pid
//!   FORMAT        format version, the number of shards, the directory's id, their checksum; written once, atomically
//!   DEVICE        what the flash devices are, where they are no files of the directory; written once
//!   MANIFEST      what must be here, and the seed of the cluster's key hashes; replaced atomically (manifest)
//!   master        the embedded master's state (cluster)
//!   cluster       the id of the cluster, where the master is elsewhere
//!   RESERVE       zeros: room for the files above on a file system that is full
//!   cluster-name  the cluster's name, once it was given one
//!   shard-0000/   flash, frugal (devices of its stores)   one folder a shard
//!   wal/thread-0/ the log files of one reactor thread
//! ```
//!
//! Invariants: one process at a time; a foreign directory, and one of another format, is refused
//! before anything in it is touched; every file that is replaced is written aside, synced and
//! renamed; every folder is durable in its parent before anything is put into it. A small file that
//! is damaged, or missing where there is data, is refused by name: without it the data would be
//! another server's, or another cluster's.

mod absent;
mod files;
mod identity;
mod view;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use timestone_types::{ClusterId, ShardId};
use timestone_wal::device::FileName;

use crate::cluster_name::ClusterName;
use crate::config::FlashPlace;
use crate::environment::FlashPart;
use crate::error::ServerError;
use crate::manifest::Manifest;
pub use absent::{MissingFile, missing_files};
pub(crate) use files::replace_file;
use files::{RESERVE_FILE, create_folder, is_absent};
use identity::FORMAT_FILE;
pub(crate) use identity::{FORMAT_VERSION, Identity};
pub use view::{DirectoryIdentity, DirectoryView, ManifestView};

const LOCK_FILE: &str = "LOCK";
const MANIFEST_FILE: &str = "MANIFEST";
const DEVICE_FILE: &str = "DEVICE";
const MASTER_FILE: &str = "master";
const CLUSTER_FILE: &str = "cluster";
const ETCD_FILE: &str = "etcd";
const CLUSTER_NAME_FILE: &str = "cluster-name";
/// Hexadecimal digits of a cluster's id.
const CLUSTER_DIGITS: usize = 16;
/// What is wrong with a file that says whose the data is, and is not there.
const MISSING: &str = "it is missing, and the directory holds data";
const LOG_FOLDER: &str = "wal";
const SHARD_PREFIX: &str = "shard-";
/// The files of a data directory's logs that are gone and whose loss was accepted at a start, by
/// the folder of their log. For whoever explains a log without a server.
#[must_use]
pub fn accepted_losses(directory: &Path) -> BTreeMap<String, Vec<FileName>> {
    fs::read(directory.join(MANIFEST_FILE))
        .map_or_else(|_| BTreeMap::new(), |bytes| Manifest::accepted_losses(&bytes))
}

/// An owned, locked data directory.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    identity: Identity,
    // Held for its lock; released by the operating system even when the process is killed.
    _lock: File,
}

impl DataDir {
    /// Opens `path`, creating it when it does not exist, and takes its lock. `shards` is what a
    /// fresh directory gets; an existing one keeps its number, and a different wish is an error. So
    /// is another kind of flash device than it was created with, and an existing one whose flash was
    /// in memory.
    ///
    /// # Errors
    /// The directory is in use, has another format, another number of shards, another device, or
    /// cannot be read or written.
    pub(crate) fn open(
        path: &Path,
        flash: &FlashPlace,
        shards: Option<u16>,
        draw_id: impl FnOnce() -> u64,
    ) -> Result<Self, ServerError> {
        // Before anything is created: what is not ours, or cannot be read, stays as it is.
        match Identity::read(path)? {
            None => refuse_foreign_content(path)?,
            Some(_) => check_device(path, flash)?,
        }
        create_folder(path)
            .map_err(|source| ServerError::io("create the data directory", path, source))?;
        let lock = take_lock(path)?;
        // Again, now that nobody else creates it.
        let identity = match Identity::read(path)? {
            Some(identity) => {
                check_device(path, flash)?;
                identity
            }
            None => {
                refuse_foreign_content(path)?;
                let identity = Identity {
                    format: FORMAT_VERSION,
                    shards: shards.unwrap_or(crate::limits::DEFAULT_SHARDS),
                    directory: draw_id(),
                };
                // In this order: where there is a format there is a manifest, and the device.
                replace_file(&path.join(MANIFEST_FILE), &Manifest::blank()?)?;
                note_device(path, flash)?;
                replace_file(&path.join(FORMAT_FILE), identity.text()?.as_bytes())?;
                identity
            }
        };
        if let Some(wanted) = shards
            && wanted != identity.shards
        {
            return Err(ServerError::ShardCount {
                path: path.to_owned(),
                existing: identity.shards,
                wanted,
            });
        }
        Ok(Self { path: path.to_owned(), identity, _lock: lock })
    }

    /// What the directory says about itself.
    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    /// A flash file of one shard; its folder is created.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub(crate) fn flash_file(
        &self,
        shard: ShardId,
        part: FlashPart,
    ) -> Result<PathBuf, ServerError> {
        let folder = self.shard_folder(shard.get());
        create_folder(&folder).map_err(|source| ServerError::io("create", &folder, source))?;
        Ok(folder.join(part.file_name()))
    }

    /// Removes the flash files of one shard, durably; there may be none.
    ///
    /// # Errors
    /// They cannot be removed.
    pub(crate) fn remove_flash(&self, shard: ShardId) -> Result<(), ServerError> {
        let folder = self.shard_folder(shard.get());
        for part in FlashPart::ALL {
            let file = folder.join(part.file_name());
            match fs::remove_file(&file) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                removed => removed.and_then(|()| File::open(&folder)?.sync_all()),
            }
            .map_err(|source| ServerError::io("remove", &file, source))?;
        }
        Ok(())
    }

    fn shard_folder(&self, shard: u16) -> PathBuf {
        self.path.join(format!("{SHARD_PREFIX}{shard:04}"))
    }

    fn log_root(&self) -> PathBuf {
        self.path.join(LOG_FOLDER)
    }

    /// The folder of one log; the one that all logs are in is created.
    ///
    /// # Errors
    /// That cannot be created.
    pub(crate) fn log_folder(&self, name: &str) -> Result<PathBuf, ServerError> {
        let root = self.log_root();
        create_folder(&root).map_err(|source| ServerError::io("create", &root, source))?;
        Ok(root.join(name))
    }

    /// Removes the folder of a log that holds no log files any more, durably. What else is in it is
    /// not ours: it stays, and the folder with it. Whether it is gone.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove_log_folder(&self, name: &str) -> Result<bool, ServerError> {
        let (root, folder) = (self.log_root(), self.log_root().join(name));
        let removed = fs::remove_dir(&folder).and_then(|()| File::open(&root)?.sync_all());
        match removed {
            Err(source) if source.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(false),
            removed => {
                removed.map(|()| true).map_err(|source| ServerError::io("remove", &folder, source))
            }
        }
    }

    /// Whether a server kept anything here: who it is was durable before.
    fn holds_data(&self) -> bool {
        let is_named = || self.load_manifest().is_ok_and(|bytes| Manifest::names_anything(&bytes));
        self.log_root().exists() || self.existing_shard_folders().next().is_some() || is_named()
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the manifest is.
    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.path.join(MANIFEST_FILE)
    }

    /// The bytes of the manifest.
    ///
    /// # Errors
    /// It cannot be read, or is missing: it was there before `FORMAT` was.
    pub(crate) fn load_manifest(&self) -> Result<Vec<u8>, ServerError> {
        let path = self.manifest_path();
        match fs::read(&path) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ServerError::BadFormatFile { path, detail: "it is missing".to_owned() })
            }
            Err(error) => Err(ServerError::io("read", &path, error)),
        }
    }

    /// Replaces the manifest atomically and durably.
    ///
    /// # Errors
    /// The file cannot be written; the old one is intact then.
    pub(crate) fn save_manifest(&self, bytes: &[u8]) -> Result<(), ServerError> {
        replace_file(&self.manifest_path(), bytes)
    }

    /// Whether a flash file of a shard is there.
    pub(crate) fn has_flash(&self, shard: ShardId, part: FlashPart) -> bool {
        self.shard_folder(shard.get()).join(part.file_name()).exists()
    }

    /// The log files in one log's folder; none when there is no such folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn log_files(&self, name: &str) -> Result<Vec<FileName>, ServerError> {
        let folder = self.log_root().join(name);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ServerError::io("list", &folder, error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| ServerError::io("list", &folder, source))?;
            files.extend(entry.file_name().to_str().and_then(FileName::parse));
        }
        Ok(files)
    }

    /// The folders of all shards that were opened here. Their numbers are those of the cluster.
    fn existing_shard_folders(&self) -> impl Iterator<Item = PathBuf> {
        shard_folders(&self.path)
    }

    /// Every log folder that exists, whichever number of threads wrote them, in order of name.
    /// Other folders may be beside them, which nobody may even be allowed to read: a file system
    /// that is mounted there has its `lost+found`.
    ///
    /// # Errors
    /// The folder of the logs cannot be read.
    pub(crate) fn existing_log_folders(&self) -> Result<Vec<PathBuf>, ServerError> {
        let root = self.log_root();
        let entries = match fs::read_dir(&root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ServerError::io("list", &root, error)),
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| ServerError::io("list", &root, source))?;
            if entry.path().is_dir() && is_log_folder(&entry.path()) {
                folders.push(entry.path());
            }
        }
        folders.sort();
        Ok(folders)
    }

    /// The embedded master's state as it was last saved, if it ever was.
    ///
    /// # Errors
    /// The file exists but cannot be read, or it is missing where there is data.
    pub(crate) fn load_master(&self) -> Result<Option<Vec<u8>>, ServerError> {
        self.load_state_of_master(self.master_path())
    }

    /// What the master left in a file; none where nothing was kept here yet.
    fn load_state_of_master(&self, path: PathBuf) -> Result<Option<Vec<u8>>, ServerError> {
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => match self.holds_data() {
                true => Err(ServerError::BadMaster { path, detail: MISSING.to_owned() }),
                false => Ok(None),
            },
            Err(error) => Err(ServerError::io("read", &path, error)),
        }
    }

    /// Where the embedded master's state is.
    pub(crate) fn master_path(&self) -> PathBuf {
        self.path.join(MASTER_FILE)
    }

    /// The cluster that this directory joined, where the master is elsewhere; zero before it has
    /// joined one.
    ///
    /// # Errors
    /// The file exists but cannot be read or understood, or it is missing where there is data.
    pub(crate) fn load_cluster(&self) -> Result<ClusterId, ServerError> {
        let path = self.cluster_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return match self.holds_data() {
                    true => Err(ServerError::BadFormatFile { path, detail: MISSING.to_owned() }),
                    false => Ok(ClusterId::ZERO),
                };
            }
            Err(error) => return Err(ServerError::io("read", &path, error)),
        };
        let id = text.strip_suffix('\n').filter(|id| id.len() == CLUSTER_DIGITS);
        let id = id.and_then(|id| u64::from_str_radix(id, 16).ok()).map(ClusterId::new);
        id.ok_or_else(|| ServerError::BadFormatFile {
            path,
            detail: "it holds no id of a cluster".to_owned(),
        })
    }

    /// Remembers the cluster that this directory belongs to.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save_cluster(&self, cluster: ClusterId) -> Result<(), ServerError> {
        replace_file(
            &self.cluster_path(),
            format!("{:0CLUSTER_DIGITS$x}\n", cluster.get()).as_bytes(),
        )
    }

    /// The latest state of the master on etcd that this server has seen, and where it is kept.
    ///
    /// # Errors
    /// The file exists but cannot be read, or it is missing where there is data.
    pub(crate) fn load_seen(&self) -> Result<(PathBuf, Vec<u8>), ServerError> {
        let path = self.path.join(ETCD_FILE);
        let bytes = self.load_state_of_master(path.clone())?;
        Ok((path, bytes.unwrap_or_default()))
    }

    /// Where the id of the cluster is, where the master is elsewhere.
    pub(crate) fn cluster_path(&self) -> PathBuf {
        self.path.join(CLUSTER_FILE)
    }

    /// Where the cluster's name is.
    pub(crate) fn cluster_name_path(&self) -> PathBuf {
        self.path.join(CLUSTER_NAME_FILE)
    }

    /// The name of the cluster that this directory belongs to, if it was given one.
    ///
    /// # Errors
    /// The file exists but cannot be read, or holds no name.
    pub(crate) fn load_cluster_name(&self) -> Result<Option<String>, ServerError> {
        let path = self.cluster_name_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ServerError::io("read", &path, error)),
        };
        match text.strip_suffix('\n').map(ClusterName::parse) {
            Some(Ok(name)) => Ok(Some(name.as_str().to_owned())),
            _ => Err(ServerError::BadFormatFile {
                path,
                detail: "it holds no name of a cluster".to_owned(),
            }),
        }
    }

    /// Remembers the cluster's name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save_cluster_name(&self, name: &str) -> Result<(), ServerError> {
        replace_file(&self.cluster_name_path(), format!("{name}\n").as_bytes())
    }

    /// As [`default_capacity`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn default_capacity(&self) -> Result<u64, ServerError> {
        default_capacity(&self.path)
    }

    /// Replaces the embedded master's state atomically and durably.
    ///
    /// # Errors
    /// The file cannot be written; the old state is intact then.
    pub(crate) fn save_master(&self, bytes: &[u8]) -> Result<(), ServerError> {
        replace_file(&self.master_path(), bytes)
    }
}

/// How many shards the directory has, if it is there. Takes no lock, and changes nothing.
///
/// # Errors
/// It has another format, or its format cannot be read.
pub(crate) fn existing_shards(path: &Path) -> Result<Option<u16>, ServerError> {
    Ok(Identity::read(path)?.map(|identity| identity.shards))
}

/// What the flash devices of a directory may take when nothing is said: 80 % of the free space, and
/// what they have already. The directory may be one that is still to be created.
///
/// # Errors
/// The file system does not tell.
pub(crate) fn default_capacity(path: &Path) -> Result<u64, ServerError> {
    let existing = path.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let told = rustix::fs::statvfs(existing);
    let told =
        told.map_err(|errno| ServerError::io("measure the free space of", existing, errno.into()))?;
    let used: u64 = shard_folders(path)
        .flat_map(|folder| FlashPart::ALL.map(|part| folder.join(part.file_name())))
        .map(|file| fs::metadata(file).map_or(0, |metadata| metadata.len()))
        .sum();
    Ok((told.f_bavail * told.f_frsize + used) / 5 * 4)
}

fn shard_folders(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(SHARD_PREFIX))
        .map(|entry| entry.path())
}

/// Whether a folder among the logs is that of a log: by its name, or since it holds a file of one.
/// A log's own folder is one without any file, too.
fn is_log_folder(path: &Path) -> bool {
    if timestone_types::is_planted!(EveryFolderIsALog) {
        return true;
    }
    let name = path.file_name().and_then(std::ffi::OsStr::to_str);
    let thread = name.and_then(|name| name.strip_prefix("thread-"));
    if thread.is_some_and(|thread| thread.parse::<u16>().is_ok()) {
        return true;
    }
    let Ok(entries) = fs::read_dir(path) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_str().and_then(FileName::parse).is_some())
}

fn take_lock(path: &Path) -> Result<File, ServerError> {
    let lock_path = path.join(LOCK_FILE);
    let mut lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&lock_path)
        .map_err(|source| ServerError::io("open the lock file", &lock_path, source))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        // The pid only makes the message better; a reader that cannot have it says "unknown".
        let _ = lock.read_to_string(&mut pid);
        let pid = if pid.trim().is_empty() { "unknown".to_owned() } else { pid.trim().to_owned() };
        return Err(ServerError::InUse { path: path.to_owned(), pid });
    }
    lock.set_len(0)
        .and_then(|()| lock.seek(SeekFrom::Start(0)))
        .and_then(|_| write!(lock, "{}", std::process::id()))
        .map_err(|source| ServerError::io("write the lock file", &lock_path, source))?;
    Ok(lock)
}

/// Notes what the flash devices are; for files that is no file.
fn note_device(path: &Path, flash: &FlashPlace) -> Result<(), ServerError> {
    let file = path.join(DEVICE_FILE);
    match flash {
        FlashPlace::Emulated | FlashPlace::Zoned(_) => {
            replace_file(&file, format!("{}\n", flash.name()).as_bytes())
        }
        FlashPlace::Files => match fs::remove_file(&file) {
            Err(error) if is_absent(&error) => Ok(()),
            // It is durable with the next file that is put into the directory.
            removed => removed.map_err(|source| ServerError::io("remove", &file, source)),
        },
    }
}

/// An existing directory goes on with the devices that it was created with, if they can still be
/// there.
fn check_device(path: &Path, flash: &FlashPlace) -> Result<(), ServerError> {
    let file = path.join(DEVICE_FILE);
    let existing = match fs::read_to_string(&file) {
        Ok(text) => text.trim_end().to_owned(),
        Err(error) if is_absent(&error) => FlashPlace::Files.name().to_owned(),
        Err(source) => return Err(ServerError::io("read", &file, source)),
    };
    if existing == FlashPlace::Emulated.name() {
        return Err(ServerError::FlashGone { path: path.to_owned() });
    }
    match existing == flash.name() {
        true => Ok(()),
        false => {
            Err(ServerError::OtherDevice { path: path.to_owned(), existing, wanted: flash.name() })
        }
    }
}

/// A directory without `FORMAT` must be empty but for what a creation that a crash cut short has
/// left: somebody's photographs are not a database.
fn refuse_foreign_content(path: &Path) -> Result<(), ServerError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(source) => return Err(ServerError::io("list", path, source)),
    };
    let unfinished = |file: &str| format!("{file}.new");
    let ours = [
        LOCK_FILE.to_owned(),
        MANIFEST_FILE.to_owned(),
        DEVICE_FILE.to_owned(),
        unfinished(DEVICE_FILE),
        unfinished(MANIFEST_FILE),
        unfinished(FORMAT_FILE),
        RESERVE_FILE.to_owned(),
        "lost+found".to_owned(),
    ];
    for entry in entries {
        let entry = entry.map_err(|source| ServerError::io("list", path, source))?;
        let name = entry.file_name();
        if !ours.iter().any(|known| name == known.as_str()) {
            return Err(match path.join(MANIFEST_FILE).exists() {
                true => ServerError::BadFormatFile {
                    path: path.join(FORMAT_FILE),
                    detail: MISSING.to_owned(),
                },
                false => ServerError::NotOurs {
                    path: path.to_owned(),
                    found: name.to_string_lossy().into_owned(),
                },
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, shards: Option<u16>) -> Result<DataDir, ServerError> {
        open_for(path, &FlashPlace::Files, shards)
    }

    fn open_for(
        path: &Path,
        flash: &FlashPlace,
        shards: Option<u16>,
    ) -> Result<DataDir, ServerError> {
        DataDir::open(path, flash, shards, || 42)
    }

    #[test]
    fn a_directory_keeps_its_device_and_one_whose_flash_was_in_memory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let zoned = FlashPlace::Zoned(vec![PathBuf::from("/dev/null")]);
        let kinds = [FlashPlace::Files, FlashPlace::Emulated, zoned];
        for (number, kind) in kinds.iter().enumerate() {
            let path = folder.path().join(number.to_string());
            drop(open_for(&path, kind, None).unwrap());
            for other in &kinds {
                let again = open_for(&path, other, None);
                match (kind, again) {
                    (FlashPlace::Emulated, Err(ServerError::FlashGone { .. })) => {}
                    (FlashPlace::Files | FlashPlace::Zoned(_), Ok(_)) => assert_eq!(kind, other),
                    (_, Err(ServerError::OtherDevice { existing, wanted, .. })) => {
                        assert_eq!((existing.as_str(), wanted), (kind.name(), other.name()));
                        assert_ne!(kind, other);
                    }
                    (_, outcome) => panic!("{kind:?} opened as {other:?}: {outcome:?}"),
                }
            }
        }
        // A creation that a crash cut short before the format was there counts for nothing.
        let path = folder.path().join("short");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(DEVICE_FILE), "emulated\n").unwrap();
        drop(open(&path, None).unwrap());
        assert!(!path.join(DEVICE_FILE).exists());
        open(&path, None).unwrap();
    }

    #[test]
    fn a_fresh_directory_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let first = open(&path, Some(3)).unwrap();
        drop(first);
        let again = open(&path, None).unwrap();
        assert_eq!(again.identity(), Identity { format: FORMAT_VERSION, shards: 3, directory: 42 });
    }

    #[test]
    fn a_second_owner_is_refused_and_told_the_pid() {
        let folder = tempfile::tempdir().unwrap();
        let _first = open(folder.path(), None).unwrap();
        let error = open(folder.path(), None).unwrap_err();
        assert!(
            matches!(&error, ServerError::InUse { pid, .. } if *pid == std::process::id().to_string()),
            "{error}"
        );
    }

    #[test]
    fn another_format_another_count_and_foreign_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), Some(2)).unwrap());
        assert!(matches!(
            open(folder.path(), Some(4)),
            Err(ServerError::ShardCount { existing: 2, wanted: 4, .. })
        ));
        fs::write(folder.path().join(FORMAT_FILE), "format = 999\n").unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(ServerError::OtherFormat { found: 999, .. })
        ));
        fs::write(folder.path().join(FORMAT_FILE), "garbage").unwrap();
        assert!(matches!(open(folder.path(), None), Err(ServerError::BadFormatFile { .. })));

        let photos = tempfile::tempdir().unwrap();
        fs::write(photos.path().join("cat.jpg"), b"meow").unwrap();
        assert!(matches!(open(photos.path(), None), Err(ServerError::NotOurs { .. })));
        assert!(!photos.path().join(FORMAT_FILE).exists());
    }

    /// Everything in a directory, by name.
    fn content(path: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> = entries
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    fs::read(entry.path()).unwrap_or_default(),
                )
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_refused_directory_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cat.jpg"), b"meow").unwrap();
        let before = content(folder.path());
        assert!(matches!(open(folder.path(), None), Err(ServerError::NotOurs { .. })));
        assert_eq!(content(folder.path()), before);

        let older = tempfile::tempdir().unwrap();
        fs::write(older.path().join(FORMAT_FILE), "format = 1\nshards = 3\nhash_seed = 42\n")
            .unwrap();
        fs::write(older.path().join(LOCK_FILE), "1234567").unwrap();
        let before = content(older.path());
        let error = open(older.path(), None).unwrap_err().to_string();
        assert!(error.contains("format 1") && error.contains("copy the keys"), "{error}");
        assert_eq!(content(older.path()), before);
    }

    #[test]
    fn a_creation_that_was_cut_short_anywhere_is_done_again_and_a_format_that_went_is_missed() {
        let whole = tempfile::tempdir().unwrap();
        drop(open(whole.path(), None).unwrap());
        let [lock, manifest, format] = [LOCK_FILE, MANIFEST_FILE, FORMAT_FILE]
            .map(|name| fs::read(whole.path().join(name)).unwrap());
        let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
        let steps: [&[(&str, Vec<u8>)]; 6] = [
            &[],
            &[("LOCK", Vec::new())],
            &[("LOCK", lock.clone()), ("MANIFEST.new", half(&manifest))],
            &[("LOCK", lock.clone()), ("MANIFEST", manifest.clone())],
            &[
                ("LOCK", lock.clone()),
                ("MANIFEST", manifest.clone()),
                ("FORMAT.new", half(&format)),
            ],
            &[("LOCK", lock.clone()), ("MANIFEST", manifest.clone()), ("FORMAT", format.clone())],
        ];
        for (step, files) in steps.iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            for (name, bytes) in *files {
                fs::write(folder.path().join(name), bytes).unwrap();
            }
            let opened =
                open(folder.path(), None).unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert!(opened.load_manifest().is_ok(), "step {step}");
        }

        let directory = open(whole.path(), None).unwrap();
        directory.flash_file(ShardId::new(0), FlashPart::Full).unwrap();
        drop(directory);
        fs::remove_file(whole.path().join(FORMAT_FILE)).unwrap();
        let error = open(whole.path(), None).unwrap_err().to_string();
        assert!(error.contains("/FORMAT is damaged (it is missing"), "{error}");
    }

    /// The names of the logs where there is a folder of a mounted file system, a stray one, a copy
    /// of a log, and an empty log.
    fn logs_beside_other_folders() -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let directory = open(folder.path(), None).unwrap();
        directory.log_folder("thread-0").unwrap();
        let wal = folder.path().join("wal");
        for name in ["thread-0", "lost+found", "notes", "thread-0-copy"] {
            fs::create_dir(wal.join(name)).unwrap();
        }
        fs::write(wal.join("notes/list.txt"), "").unwrap();
        fs::write(wal.join("thread-0-copy/00000000000000000001.log"), "").unwrap();
        let folders = directory.existing_log_folders().unwrap();
        folders.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn folders_that_are_no_logs_are_left_alone() {
        assert_eq!(logs_beside_other_folders(), ["thread-0", "thread-0-copy"]);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_folder_that_is_taken_for_a_log_is_noticed() {
        let logs =
            crate::planted::with(crate::planted::Bug::EveryFolderIsALog, logs_beside_other_folders);
        assert_eq!(logs.len(), 4, "the planted bug is found");
    }

    #[test]
    fn the_cluster_and_its_name_are_refused_when_they_are_damaged_or_missing_beside_data() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open(folder.path(), None).unwrap();
        assert_eq!(
            (directory.load_cluster().unwrap(), directory.load_cluster_name().unwrap()),
            (ClusterId::ZERO, None)
        );
        assert!(directory.load_master().unwrap().is_none());
        directory.save_cluster(ClusterId::new(0x1f)).unwrap();
        directory.save_cluster_name("blue").unwrap();
        assert_eq!(directory.load_cluster().unwrap(), ClusterId::new(0x1f));
        assert_eq!(directory.load_cluster_name().unwrap().as_deref(), Some("blue"));
        for damaged in ["", "\n", " 00000000000001f\n", "000000000000001f", "000000000000001g\n"] {
            fs::write(directory.cluster_path(), damaged).unwrap();
            let error = directory.load_cluster().unwrap_err().to_string();
            assert!(error.contains("/cluster is damaged"), "{damaged:?}: {error}");
        }
        for damaged in ["", "\n", " \n", "blue", "bl*e\n"] {
            fs::write(directory.cluster_name_path(), damaged).unwrap();
            let error = directory.load_cluster_name().unwrap_err().to_string();
            assert!(error.contains("/cluster-name is damaged"), "{damaged:?}: {error}");
        }
        fs::remove_file(directory.cluster_path()).unwrap();
        directory.log_folder("thread-0").unwrap();
        let error = directory.load_cluster().unwrap_err().to_string();
        assert!(error.contains("/cluster is damaged (it is missing"), "{error}");
        let error = directory.load_master().unwrap_err().to_string();
        assert!(error.contains("/master cannot be used: it is missing"), "{error}");
    }
}

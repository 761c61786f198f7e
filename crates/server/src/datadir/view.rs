//! A data directory as its small files tell it, for whoever looks at one without a server.
//!
//! Nothing is created, replaced or repaired. What is damaged is told beside what is not. While the
//! view lives no server starts in the directory; where one runs there is no view.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use timestone_cluster::Master;
use timestone_types::{ClusterId, KeyspaceId, ShardId};

use super::absent::{MissingFile, missing_of};
use super::{
    CLUSTER_NAME_FILE, FORMAT_FILE, Identity, LOCK_FILE, LOG_FOLDER, MANIFEST_FILE, MASTER_FILE,
    Manifest, SHARD_PREFIX, is_absent, is_log_folder, shard_folders,
};
use crate::environment::FlashPart;
use crate::error::ServerError;

/// What the small files of a data directory say.
#[derive(Debug)]
pub struct DirectoryView {
    /// What `FORMAT` says, or what is wrong with it.
    pub identity: Result<DirectoryIdentity, String>,
    /// What `MANIFEST` names, or what is wrong with it.
    pub manifest: Result<ManifestView, String>,
    /// The cluster whose embedded master's state is here, if it is, and if it can be read.
    pub cluster: Option<ClusterId>,
    /// The cluster's name, once it was given one.
    pub cluster_name: Option<String>,
    /// Names of keyspaces, as far as the state of an embedded master tells.
    pub keyspaces: BTreeMap<KeyspaceId, String>,
    /// The flash files that are there, by shard and device.
    pub flash: BTreeMap<(ShardId, FlashPart), PathBuf>,
    /// The files that `MANIFEST` names and that are not there.
    pub missing: Vec<MissingFile>,
    /// The folders of logs that are there.
    pub logs: Vec<PathBuf>,
    /// Held so that no server starts here; `None` where there is no lock file.
    _lock: Option<File>,
}

/// What `FORMAT` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryIdentity {
    /// The format of the directory.
    pub format: u32,
    /// How many shards it holds.
    pub shards: u16,
    /// What the master knows it by.
    pub directory: u64,
}

/// What `MANIFEST` names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ManifestView {
    /// Shards whose flash file was created.
    pub shards: Vec<ShardId>,
    /// Shards whose second one was, for keyspaces with their index on flash.
    pub frugal: Vec<ShardId>,
    /// Shards whose replica is void, as somebody accepted.
    pub void: Vec<ShardId>,
    /// Log files that must be there, by log.
    pub log_files: BTreeMap<String, Vec<String>>,
    /// The number of the last run; zero before the first.
    pub run: u64,
    /// The last run had no log.
    pub unlogged: bool,
    /// Keyspaces whose index was changed here, with the id under which each is kept.
    pub places: Vec<(KeyspaceId, KeyspaceId)>,
}

impl DirectoryView {
    /// Looks at a data directory.
    ///
    /// # Errors
    /// [`ServerError::InUse`] while a server is at work there, and when it is no data directory, or
    /// cannot be read.
    pub fn of(path: &Path) -> Result<Self, ServerError> {
        let lock = hold(path)?;
        let identity = Identity::read(path);
        if matches!(identity, Ok(None)) && shard_folders(path).next().is_none() {
            return Err(ServerError::BadFormatFile {
                path: path.join(FORMAT_FILE),
                detail: "it is missing, so this is no data directory".to_owned(),
            });
        }
        let identity = match identity {
            Ok(Some(Identity { format, shards, directory })) => {
                Ok(DirectoryIdentity { format, shards, directory })
            }
            Ok(None) => Err("it is missing".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let manifest = fs::read(path.join(MANIFEST_FILE));
        let manifest = manifest.map_err(|error| error.to_string());
        let master = fs::read(path.join(MASTER_FILE)).ok();
        let master = master.and_then(|bytes| Master::decode(&bytes).ok());
        let name = fs::read_to_string(path.join(CLUSTER_NAME_FILE)).ok();
        let manifest = manifest.and_then(|bytes| Manifest::view(&bytes));
        let mut keyspaces: BTreeMap<KeyspaceId, String> = master.iter().flat_map(named).collect();
        for (own, kept_as) in manifest.iter().flat_map(|manifest| &manifest.places) {
            let name = keyspaces.remove(own).unwrap_or_else(|| own.to_string());
            // What is left there is behind a fence.
            keyspaces.insert(*own, format!("{name} before its index was changed"));
            keyspaces.insert(*kept_as, name);
        }
        let missing = manifest.as_ref().map_or_else(|_| Vec::new(), |it| missing_of(path, it));
        Ok(Self {
            identity,
            manifest,
            missing,
            cluster: master.as_ref().map(Master::cluster),
            cluster_name: name.map(|name| name.trim_end().to_owned()),
            keyspaces,
            flash: flash_files(path),
            logs: log_folders(path)?,
            _lock: lock,
        })
    }
}

fn named(master: &Master) -> impl Iterator<Item = (KeyspaceId, String)> {
    let keyspaces = master.keyspaces().iter();
    keyspaces.map(|keyspace| (keyspace.id, keyspace.name.to_string()))
}

/// A lock that others who look may hold as well, and no server.
fn hold(path: &Path) -> Result<Option<File>, ServerError> {
    let place = path.join(LOCK_FILE);
    let mut lock = match File::open(&place) {
        Ok(lock) => lock,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(ServerError::io("open the lock file", &place, error)),
    };
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(Some(lock));
    }
    let mut pid = String::new();
    // The pid only makes the message better; a reader that cannot have it says "unknown".
    let _ = lock.read_to_string(&mut pid);
    let pid = if pid.trim().is_empty() { "unknown" } else { pid.trim() };
    Err(ServerError::InUse { path: path.to_owned(), pid: pid.to_owned() })
}

fn flash_files(path: &Path) -> BTreeMap<(ShardId, FlashPart), PathBuf> {
    let file = |folder: &Path, part: FlashPart| {
        let number = folder.file_name()?.to_str()?.strip_prefix(SHARD_PREFIX)?.parse().ok()?;
        let file = folder.join(part.file_name());
        file.exists().then(|| ((ShardId::new(number), part), file))
    };
    shard_folders(path)
        .flat_map(|folder| FlashPart::ALL.map(|part| file(&folder, part)))
        .flatten()
        .collect()
}

fn log_folders(path: &Path) -> Result<Vec<PathBuf>, ServerError> {
    let root = path.join(LOG_FOLDER);
    let entries = match fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(ServerError::io("list", &root, error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> =
        paths.filter(|path| path.is_dir() && is_log_folder(path)).collect();
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::super::DataDir;
    use super::*;
    use crate::config::FlashPlace;

    #[test]
    fn a_directory_is_not_looked_at_while_somebody_owns_it_and_owned_by_nobody_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let owner = DataDir::open(&path, &FlashPlace::Files, Some(3), || 42).unwrap();
        assert!(matches!(DirectoryView::of(&path), Err(ServerError::InUse { .. })));
        drop(owner);
        let view = DirectoryView::of(&path).unwrap();
        let identity = view.identity.clone().unwrap();
        assert_eq!((identity.shards, identity.directory), (3, 42));
        assert_eq!(view.manifest, Ok(ManifestView::default()));
        assert!(DirectoryView::of(&path).is_ok(), "others may look as well");
        assert!(matches!(
            DataDir::open(&path, &FlashPlace::Files, None, || 42),
            Err(ServerError::InUse { .. })
        ));
        drop(view);
        assert!(DataDir::open(&path, &FlashPlace::Files, None, || 42).is_ok());
    }

    #[test]
    fn what_is_no_data_directory_is_refused_and_damaged_files_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = DirectoryView::of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no data directory"), "{error}");
        let path = folder.path().join("data");
        drop(DataDir::open(&path, &FlashPlace::Files, Some(3), || 42).unwrap());
        for file in [FORMAT_FILE, MANIFEST_FILE] {
            let mut bytes = fs::read(path.join(file)).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path.join(file), bytes).unwrap();
        }
        let view = DirectoryView::of(&path).unwrap();
        assert!(view.identity.is_err() && view.manifest.is_err(), "{view:?}");
    }
}

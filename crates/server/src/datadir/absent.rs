//! What `MANIFEST` names and the directory lacks, for whoever looks at one without a server: what a
//! start would miss (`manifest::missing`), by the same rules.
//!
//! Losses that somebody accepted are named no more, and so are none of these. Of flash devices that
//! are no files nothing can be said.

use std::fmt;
use std::fs;
use std::path::Path;

use timestone_types::ShardId;

use super::view::ManifestView;
use super::{DEVICE_FILE, LOG_FOLDER, MANIFEST_FILE, Manifest, SHARD_PREFIX};
use crate::environment::FlashPart;

/// A file that should be there and is not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MissingFile {
    /// A flash file of a shard.
    Flash(ShardId, FlashPart),
    /// A file of a log.
    Log {
        /// The folder of the log.
        log: String,
        /// The file's name in it.
        file: String,
    },
}

impl fmt::Display for MissingFile {
    /// Its path in the directory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flash(shard, part) => {
                write!(f, "{SHARD_PREFIX}{:04}/{}", shard.get(), part.file_name())
            }
            Self::Log { log, file } => write!(f, "{LOG_FOLDER}/{log}/{file}"),
        }
    }
}

/// The files that a data directory's manifest names and that are not there: flash files first, then
/// those of logs. None where the manifest cannot be read, as somebody else says.
///
/// A server may be at work there: a file leaves the manifest before it goes, so that what is missing
/// is missing only if it is still named afterwards.
#[must_use]
pub fn missing_files(directory: &Path) -> Vec<MissingFile> {
    let once = || manifest_of(directory).map_or_else(Vec::new, |it| missing_of(directory, &it));
    let found = once();
    if found.is_empty() {
        return found;
    }
    let again = once();
    found.into_iter().filter(|file| again.contains(file)).collect()
}

fn manifest_of(directory: &Path) -> Option<ManifestView> {
    Manifest::view(&fs::read(directory.join(MANIFEST_FILE)).ok()?).ok()
}

/// Those of them that this manifest names.
pub(super) fn missing_of(directory: &Path, manifest: &ManifestView) -> Vec<MissingFile> {
    let parts = [(&manifest.shards, FlashPart::Full), (&manifest.frugal, FlashPart::Frugal)];
    let flash = parts.into_iter().flat_map(|(shards, part)| {
        shards.iter().map(move |&shard| MissingFile::Flash(shard, part))
    });
    let are_files = !directory.join(DEVICE_FILE).exists();
    let logs = manifest.log_files.iter().flat_map(|(log, files)| {
        files.iter().map(|file| MissingFile::Log { log: log.clone(), file: file.clone() })
    });
    flash
        .filter(|_| are_files)
        .chain(logs)
        .filter(|file| !directory.join(file.to_string()).exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_and_not_there_is_missing_unless_the_devices_are_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let manifest = ManifestView {
            shards: [0, 1].map(ShardId::new).to_vec(),
            frugal: vec![ShardId::new(1)],
            log_files: [("thread-0".to_owned(), vec!["1.log".to_owned(), "2.log".to_owned()])]
                .into(),
            ..ManifestView::default()
        };
        for there in ["shard-0000/flash", "wal/thread-0/2.log"] {
            fs::create_dir_all(path.join(there).parent().unwrap()).unwrap();
            fs::write(path.join(there), b"").unwrap();
        }
        let named = || -> Vec<String> {
            missing_of(path, &manifest).iter().map(ToString::to_string).collect()
        };
        let log = "wal/thread-0/1.log";
        assert_eq!(named(), ["shard-0001/flash", "shard-0001/frugal", log]);
        fs::write(path.join(DEVICE_FILE), b"zoned").unwrap();
        assert_eq!(named(), [log]);
        assert_eq!(missing_files(path), Vec::new(), "there is no manifest that says anything");
    }
}

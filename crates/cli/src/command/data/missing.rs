//! Files that a data directory's manifest names and that are not there, in the words of every command
//! that looks at one: a server refuses to start without them.

use timestone::server::inspect::{FlashPart, MissingFile};

use crate::failure::Failure;

/// The line that names it.
pub(crate) fn line(file: &MissingFile) -> String {
    match file {
        MissingFile::Flash(shard, FlashPart::Full) => {
            format!("MISSING: the flash file of shard {shard} ({file})")
        }
        MissingFile::Flash(shard, FlashPart::Frugal) => {
            format!("MISSING: the frugal flash file of shard {shard} ({file})")
        }
        MissingFile::Log { log, .. } => format!("MISSING: a file of log {log} ({file})"),
    }
}

/// Their paths in the directory, for programs.
pub(crate) fn paths(files: &[MissingFile]) -> Vec<String> {
    files.iter().map(ToString::to_string).collect()
}

/// How many there are.
pub(crate) fn count(files: &[MissingFile]) -> String {
    match files {
        [file] => format!("{file}, which MANIFEST names, is missing"),
        files => format!("{} files that MANIFEST names are missing", files.len()),
    }
}

/// What was told, where all of it was there to be looked at.
pub(super) fn unless_missing(
    files: &[MissingFile],
    told: Result<(), Failure>,
) -> Result<(), Failure> {
    match (files, told) {
        ([], told) => told,
        (_, Err(failure)) if failure.code == 1 => Err(failure),
        (files, told) => {
            let also = told.err().filter(|failure| !failure.is_silent());
            let also = also.map_or_else(String::new, |failure| format!("{failure}; but "));
            Err(Failure::failed(format!(
                "{also}{}: what should be there was not looked at",
                count(files)
            )))
        }
    }
}

//! `FORMAT`: which format a data directory has, how many shards, and what the master knows it by.
//!
//! Nothing of the file is believed before its checksum is right, the number of the format included.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::is_absent;
use crate::error::ServerError;

/// The format of the directory and of everything in it. Raised when a reader of the version before
/// could not cope.
pub(crate) const FORMAT_VERSION: u32 = 2;

pub(super) const FORMAT_FILE: &str = "FORMAT";
/// Begins the last line of `FORMAT`: the CRC-32C of the lines before it.
const CHECKSUM_KEY: &str = "checksum = ";

/// What `FORMAT` says about the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// [`FORMAT_VERSION`] of the writer.
    pub(crate) format: u32,
    /// How many shards this directory holds.
    pub(crate) shards: u16,
    /// What the master knows the directory by, drawn when it was created.
    pub(crate) directory: u64,
}

impl Identity {
    /// What the file holds.
    pub(super) fn text(&self) -> Result<String, ServerError> {
        let mut text =
            toml::to_string(self).map_err(|error| ServerError::Internal(error.to_string()))?;
        let checksum = crc32c::crc32c(text.as_bytes());
        text.push_str(&format!("{CHECKSUM_KEY}{checksum}\n"));
        Ok(text)
    }

    /// What `FORMAT` in the directory says, if it is there.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, ServerError> {
        let format_path = path.join(FORMAT_FILE);
        match fs::read_to_string(&format_path) {
            Ok(text) => Self::parse(path, &text).map(Some),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(ServerError::io("read", &format_path, error)),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ServerError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged =
            |detail: String| ServerError::BadFormatFile { path: path.join(FORMAT_FILE), detail };
        let told = text.rsplit_once(CHECKSUM_KEY);
        // Before anything of it is believed, the number of the format included.
        if let Some((covered, checksum)) = told
            && checksum.trim_end().parse() != Ok(crc32c::crc32c(covered.as_bytes()))
        {
            return Err(damaged("its checksum is wrong".to_owned()));
        }
        let found: Format = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
        if found.format != FORMAT_VERSION {
            return Err(ServerError::OtherFormat {
                path: path.to_owned(),
                found: found.format,
                ours: FORMAT_VERSION,
            });
        }
        if told.is_none() {
            return Err(damaged("its checksum is missing".to_owned()));
        }
        toml::from_str(text).map_err(|error| damaged(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_the_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FORMAT_FILE);
        let identity = Identity { format: FORMAT_VERSION, shards: 3, directory: 42 };
        fs::write(&path, identity.text().unwrap()).unwrap();
        assert_eq!(Identity::read(folder.path()).unwrap(), Some(identity));
        let sealed = fs::read(&path).unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            match Identity::read(folder.path()) {
                Ok(read) => assert_eq!(read, Some(identity), "bit {bit}"),
                Err(error) => {
                    assert!(error.to_string().contains(FORMAT_FILE), "bit {bit}: {error}")
                }
            }
        }
    }
}

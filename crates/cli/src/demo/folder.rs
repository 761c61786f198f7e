//! The folder of a demo: a temporary one, or the user's.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::failure::Failure;

/// See the module.
pub(super) enum DemoFolder {
    /// Removed at the end, if nobody wants to look at it.
    Temporary(TempDir),
    /// Kept.
    Given(PathBuf),
}

impl DemoFolder {
    /// The folder that was named, or a temporary one.
    pub(super) fn create(named: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = named else {
            return tempfile::Builder::new()
                .prefix("timestone-demo-")
                .tempdir()
                .map(Self::Temporary)
                .map_err(|error| {
                    Failure::failed(format!(
                        "could not make a temporary folder: {error}; name one with --data"
                    ))
                });
        };
        let failed = |error: std::io::Error| {
            Failure::failed(format!("could not use the folder {}: {error}", path.display()))
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        if std::fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(Failure::usage(format!(
                "--data is {}, which is not empty: the demo founds a new cluster; name another \
                 folder, or empty it",
                path.display()
            )));
        }
        // Servers are told of it, wherever they run.
        path.canonicalize().map(Self::Given).map_err(failed)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Given(path) => path,
        }
    }

    /// No process uses it any more.
    pub(super) fn end(self, keep: bool) -> Result<(), Failure> {
        match self {
            Self::Temporary(folder) if keep => {
                super::tell_kept(&folder.keep());
                Ok(())
            }
            Self::Given(path) => {
                super::tell_kept(&path);
                Ok(())
            }
            Self::Temporary(folder) => {
                let path = folder.path().to_owned();
                folder.close().map_err(|error| {
                    Failure::failed(format!("could not remove {}: {error}", path.display()))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let demo = DemoFolder::create(Some(&data)).unwrap();
        assert!(demo.path().is_dir());
        std::fs::write(data.join("file"), "x").unwrap();
        let Err(failure) = DemoFolder::create(Some(&data)) else { panic!("it was taken") };
        assert!(failure.code == 2 && failure.to_string().contains("not empty"), "{failure}");
        demo.end(false).unwrap();
        assert!(data.join("file").exists(), "what the user named is kept");
    }

    #[test]
    fn a_temporary_folder_goes_unless_it_is_to_be_kept() {
        for keep in [false, true] {
            let demo = DemoFolder::create(None).unwrap();
            let path = demo.path().to_owned();
            demo.end(keep).unwrap();
            assert_eq!(path.exists(), keep);
            if keep {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}

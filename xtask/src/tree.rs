//! The text files of the repository, as git knows them, and what a check says about them.
//!
//! Checks are functions from a [`Tree`] to [`Finding`]s, so that a test can hand them a small bad
//! tree.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::steps::output_of;

/// One thing that is wrong in one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// From the root, with `/` between folders.
    pub path: String,
    /// From 1; 0 when it concerns the whole file.
    pub line: usize,
    /// What is wrong and, where it helps, what to do.
    pub message: String,
}

impl Finding {
    /// A finding on this line, or on the whole file at line 0.
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Every text file by its path from the root, with `/` between folders, and the older versions of
/// the ratchet file.
#[derive(Default, Debug)]
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Committed versions of the ratchet file; empty where git cannot tell.
    pub ratchet_history: Vec<String>,
}

impl Tree {
    /// What is committed or about to be: tracked files, and untracked ones that are not ignored.
    pub fn load(root: &Path) -> Result<Self, String> {
        let listed = output_of(
            root,
            "git",
            &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        )?;
        let mut tree =
            Self { files: BTreeMap::new(), ratchet_history: crate::tidy::ratchet_history(root) };
        for raw in listed.split(|&byte| byte == 0).filter(|raw| !raw.is_empty()) {
            let path = String::from_utf8_lossy(raw).into_owned();
            // A deleted file is still listed until the deletion is committed; a binary one is none
            // of our business.
            if let Some(text) =
                std::fs::read(root.join(&path)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
            {
                tree.files.insert(path, text);
            }
        }
        Ok(tree)
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust sources.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        let files =
            files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        Self { files, ratchet_history: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_its_place() {
        assert_eq!(Finding::new("a.rs", 3, "is odd").to_string(), "a.rs:3: is odd");
        assert_eq!(Finding::new("a.rs", 0, "is odd").to_string(), "a.rs: is odd");
    }
}

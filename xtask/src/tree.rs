//! The text files of the repository, as git knows them, and what a check says about them.
//!
//! Checks are functions from a [`Tree`] to [`Finding`]s, so that a test can hand them a small bad
//! tree.

use std::collections::{BTreeMap, BTreeSet};
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
/// the lists that only shrink.
#[derive(Default, Debug)]
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Files that are no text: they exist, and that is all we know.
    others: BTreeSet<String>,
    /// Committed versions of the lists that only shrink, the newest first.
    history: BTreeMap<&'static str, Vec<String>>,
}

impl Tree {
    /// What is committed or about to be: tracked files, and untracked ones that are not ignored.
    pub fn load(root: &Path) -> Result<Self, String> {
        let listed = output_of(
            root,
            "git",
            &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        )?;
        let mut tree = Self::default();
        for list in [crate::tidy::RATCHET, crate::counts::FILE] {
            tree.history.insert(list, versions(root, list));
        }
        for raw in listed.split(|&byte| byte == 0).filter(|raw| !raw.is_empty()) {
            let path = String::from_utf8_lossy(raw).into_owned();
            // A deleted file is still listed until the deletion is committed.
            let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
            tree.insert(path, bytes);
        }
        Ok(tree)
    }

    /// The tree of a commit. It has no history.
    pub fn at(root: &Path, commit: &str) -> Result<Self, String> {
        let listed = output_of(root, "git", &["ls-tree", "-r", "-z", "--name-only", commit])?;
        let mut tree = Self::default();
        for raw in listed.split(|&byte| byte == 0).filter(|raw| !raw.is_empty()) {
            let path = String::from_utf8_lossy(raw).into_owned();
            let bytes = output_of(root, "git", &["show", &format!("{commit}:{path}")])?;
            tree.insert(path, bytes);
        }
        Ok(tree)
    }

    fn insert(&mut self, path: String, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => {
                self.files.insert(path, text);
            }
            Err(_) => {
                self.others.insert(path);
            }
        }
    }

    /// A tree of these files: path and text.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(own).collect(), ..Self::default() }
    }

    /// Whether there is such a file or folder.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        let is_there = |known: &String| known == path || known.starts_with(&folder);
        path.is_empty() || self.files.keys().chain(&self.others).any(is_there)
    }

    /// Committed versions of a list that only shrinks, the newest first; none where git cannot
    /// tell.
    pub(crate) fn history(&self, list: &str) -> &[String] {
        self.history.get(list).map_or(&[], Vec::as_slice)
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

/// The versions of a file as they landed, the newest first: what a branch had on its way does not
/// count. None where git has no history to tell.
fn versions(root: &Path, file: &str) -> Vec<String> {
    let text = |arguments: &[&str]| {
        output_of(root, "git", arguments).ok().and_then(|out| String::from_utf8(out).ok())
    };
    let commits = text(&["log", "--first-parent", "--format=%H", "--", file]).unwrap_or_default();
    commits.lines().filter_map(|commit| text(&["show", &format!("{commit}:{file}")])).collect()
}

#[cfg(test)]
impl Tree {
    pub(crate) fn set_history(&mut self, list: &'static str, history: &[&str]) {
        self.history.insert(list, history.iter().map(|older| (*older).to_owned()).collect());
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        Self::of(&files)
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

//! Rooms (crates) and files that the walks of docs/tour.md pass, checked to exist.
//!
//! A walk is a section of the page; its files stand in backticks, by their path from the root or by
//! an end of it.

use std::collections::BTreeSet;

use xtask::tree::Tree;

const PAGE: &str = "docs/tour.md";

/// One walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Walk {
    pub(crate) name: String,
    pub(crate) rooms: usize,
    pub(crate) files: usize,
    /// Named, and not in the tree.
    pub(crate) missing: Vec<String>,
}

/// Of each section that begins with `Walk: `. A page without any is one walk.
pub(crate) fn count(tree: &Tree) -> Vec<Walk> {
    let page = tree.text(PAGE).unwrap_or_default();
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push((title.to_owned(), String::new()));
        } else if let Some((_, text)) = sections.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    let named: Vec<_> = sections
        .iter()
        .filter_map(|(title, text)| Some((title.strip_prefix("Walk: ")?.to_owned(), text.clone())))
        .collect();
    let walks =
        if named.is_empty() { vec![("the page".to_owned(), page.to_owned())] } else { named };
    walks.into_iter().map(|(name, text)| walk(tree, name, &text)).collect()
}

fn walk(tree: &Tree, name: String, text: &str) -> Walk {
    let (mut rooms, mut files, mut missing) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let mut last_room = String::new();
    for token in text.split('`').skip(1).step_by(2) {
        if let Some(room) = token.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) {
            room.clone_into(&mut last_room);
        }
        if !token.ends_with(".rs") {
            continue;
        }
        let end = format!("/{token}");
        let here = format!("crates/{last_room}/");
        let fits = |path: &&str| *path == token || path.ends_with(&end);
        let mut fitting: Vec<&str> = tree.sources().map(|(path, _)| path).filter(fits).collect();
        // Nearest first: where the text has just been.
        fitting.sort_by_key(|path| !path.starts_with(&here));
        match fitting.first() {
            Some(path) => {
                rooms.insert(path.split('/').nth(1).unwrap_or_default().to_owned());
                files.insert((*path).to_owned());
            }
            None => missing.push(token.to_owned()),
        }
    }
    Walk { name, rooms: rooms.len(), files: files.len(), missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_and_files_are_counted_and_what_is_gone_is_named() {
        let page = "# Tour\n## Walk: a get\n`crates/a/src/x.rs`, then `y.rs` and `gone.rs`; `A::b`.\n\
                    ## Walk: a commit\n`b/src/y.rs`, again `b/src/y.rs`.\n## Else\n`z.rs`\n";
        let tree = Tree::of(&[
            (PAGE, page),
            ("crates/a/src/x.rs", ""),
            ("crates/a/src/y.rs", ""),
            ("crates/b/src/y.rs", ""),
        ]);
        let walk = |name: &str, rooms, files, missing: &[&str]| Walk {
            name: name.to_owned(),
            rooms,
            files,
            missing: missing.iter().map(|one| (*one).to_owned()).collect(),
        };
        assert_eq!(count(&tree), [walk("a get", 1, 2, &["gone.rs"]), walk("a commit", 1, 1, &[])]);
    }
}

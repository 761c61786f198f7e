//! Every Rust file says first what it is for: it opens with `//!`.

use crate::tree::{Finding, Tree};

/// A header shorter than this says nothing.
const SHORTEST_HEADER_CHARS: usize = 20;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let complaint = |(path, text): (&str, &str)| {
        let header: String = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        if header.is_empty() && !text.starts_with("//!") {
            return Some(Finding::new(
                path,
                1,
                "does not open with a //! header that says what the file is for",
            ));
        }
        let is_short = header.trim().chars().count() < SHORTEST_HEADER_CHARS;
        is_short.then(|| {
            Finding::new(path, 1, "has a //! header too short to say what the file is for")
        })
    };
    tree.sources().filter_map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_passes() {
        assert_eq!(
            check(&Tree::from([(
                "a.rs",
                "//! Turns inputs into outputs, and does nothing else.\nfn a() {}"
            )])),
            []
        );
        assert_eq!(check(&Tree::from([("notes.md", "no header")])), []);
    }

    #[test]
    fn a_file_without_one_is_noticed() {
        for bad in [
            "",
            "fn a() {}",
            "// Turns inputs into outputs, and does nothing else.",
            "\n//! Late, after an empty line.",
        ] {
            assert!(
                check(&Tree::from([("a.rs", bad)]))[0].message.contains("does not open"),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_empty_phrase_is_noticed() {
        assert!(check(&Tree::from([("a.rs", "//! Module a.\n")]))[0].message.contains("too short"));
    }
}

//! Sources that the tour and the map name in backticks exist, by their path from the root or by an
//! end of it.
//!
//! A walk through files that have moved leads nowhere.

use crate::tree::{Finding, Tree};

/// Pages that lead through the sources.
const PAGES: [&str; 2] = ["ARCHITECTURE.md", "docs/tour.md"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in PAGES {
        let lines = tree.text(page).unwrap_or_default().lines().enumerate();
        for (at, line) in lines {
            for token in line.split('`').skip(1).step_by(2) {
                if is_source(token) && !exists(tree, token) {
                    let message = format!("names '{token}', which does not exist");
                    findings.push(Finding::new(page, at + 1, message));
                }
            }
        }
    }
    findings
}

/// Whether this is the path of a source, and no pattern of several.
fn is_source(token: &str) -> bool {
    token.ends_with(".rs") && !token.contains([' ', '*', '{', '…'])
}

fn exists(tree: &Tree, token: &str) -> bool {
    let end = format!("/{token}");
    tree.files().any(|(path, _)| path == token || path.ends_with(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(tour: &str) -> Vec<String> {
        let tree = Tree::from([("docs/tour.md", tour), ("crates/store/src/put.rs", "")]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sources_that_exist_pass() {
        let tour = "`crates/store/src/put.rs`, `store/src/put.rs` and `put.rs`; `{a,b}.rs`, x.rs\n";
        assert_eq!(messages(tour), [""; 0]);
    }

    #[test]
    fn a_source_that_does_not_exist_is_noticed() {
        for gone in ["`gone.rs`", "`crates/store/put.rs`", "`output.rs` `put.rs`"] {
            let found = messages(&format!("text\n{gone}\n"));
            assert!(
                found.len() == 1 && found[0].starts_with("docs/tour.md:2"),
                "{gone}: {found:?}"
            );
        }
    }
}

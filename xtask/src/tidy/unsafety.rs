//! Unsafe code lives in `io`, `wal` and `seda` only (ARCHITECTURE.md, invariant 8), where each
//! block says why it is sound.

use crate::lexer::{code_only, lines_with_word};
use crate::tree::{Finding, Tree};

/// The last one is no part of Timestone: LMDB, beside which it is measured, cannot be opened otherwise.
const ALLOWED: [&str; 4] =
    ["crates/io/", "crates/wal/", "crates/seda/", "lab/compare/src/engine/lmdb.rs"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in
        tree.sources().filter(|(path, _)| !ALLOWED.iter().any(|folder| path.starts_with(folder)))
    {
        let code = code_only(text);
        for line in lines_with_word(&code, "unsafe") {
            findings.push(Finding::new(
                path,
                line,
                "is unsafe; unsafe code lives in io, wal and seda only",
            ));
        }
        for line in lines_with_word(&code, "unsafe_code") {
            if code.lines().nth(line - 1).is_some_and(|attribute| {
                !attribute.contains("forbid") && !attribute.contains("deny")
            }) {
                findings.push(Finding::new(
                    path,
                    line,
                    "lifts the ban on unsafe code, which only io, wal and seda may",
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_allowed_where_it_belongs() {
        let block = "fn a() { unsafe { b() } }";
        assert_eq!(
            check(&Tree::from([("crates/io/src/a.rs", block), ("crates/seda/src/a.rs", block)])),
            []
        );
        let talk = "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";";
        assert_eq!(check(&Tree::from([("crates/txn/src/a.rs", talk)])), []);
    }

    #[test]
    fn it_is_noticed_elsewhere() {
        for bad in
            ["fn a() { unsafe { b() } }", "unsafe impl Send for A {}", "#![allow(unsafe_code)]"]
        {
            assert_eq!(check(&Tree::from([("crates/txn/src/a.rs", bad)])).len(), 1, "{bad}");
            assert_eq!(check(&Tree::from([("crates/iota/src/a.rs", bad)])).len(), 1, "{bad}");
        }
    }
}

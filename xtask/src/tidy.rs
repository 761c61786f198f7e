//! Our own checks: what ARCHITECTURE.md and CONTRIBUTING.md ask for, where neither rustc nor clippy
//! can see it.
//!
//! Each check is a function from the tree to findings, in a module of its own, with tests that show
//! it failing on a bad sample.

mod citations;
mod dependencies;
mod determinism;
mod floors;
mod headers;
mod lengths;
mod links;
mod map;
mod named_files;
mod paths;
mod retired;
mod unsafety;
mod words;

use crate::manifest::members;
use crate::tree::{Finding, Tree};

pub(crate) use lengths::{RATCHET, lower as lower_ratchet};
pub(crate) use retired::counted;

/// Runs every check. `Err` when the tree is too broken to be checked.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let members = members(tree)?;
    let mut findings = Vec::new();
    findings.extend(floors::check(&members));
    findings.extend(dependencies::check(tree, &members)?);
    findings.extend(map::check(tree, &members));
    findings.extend(determinism::check(tree));
    findings.extend(headers::check(tree));
    findings.extend(lengths::check(tree));
    findings.extend(words::check(tree));
    findings.extend(unsafety::check(tree));
    findings.extend(paths::check(tree));
    findings.extend(links::check(tree));
    findings.extend(named_files::check(tree));
    findings.extend(citations::check(tree));
    findings.extend(retired::check(tree));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

//! What `verify`, `tidy` and `fix` consist of, in the order of what fails fastest.

use std::path::Path;

use crate::steps::{Steps, has_cargo_subcommand, workspace_root};
use crate::tree::Tree;
use crate::{counts, licences, tidy};

/// Everything that CI checks. Cargo is held to the committed lock file, so that nothing is written.
pub fn verify(with_tests: bool) -> Result<(), String> {
    let root = workspace_root()?;
    let mut steps = Steps::new(&root);
    steps.cargo("format", &["fmt", "--all", "--check"], &[]);
    steps.own("tidy", || check_tree(&root));
    steps.cargo(
        "clippy",
        &["clippy", "--locked", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
        &[],
    );
    steps.cargo(
        "documentation",
        &["doc", "--locked", "--workspace", "--no-deps", "--quiet"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    );
    check_licences(&root, &mut steps);
    if with_tests {
        steps.cargo("tests", &["test", "--locked", "--workspace", "--quiet"], &[]);
    }
    steps.outcome()
}

/// Our own checks alone.
pub fn tidy() -> Result<(), String> {
    let root = workspace_root()?;
    let mut steps = Steps::new(&root);
    steps.own("tidy", || check_tree(&root));
    steps.outcome()
}

/// The licences of all dependencies alone.
pub fn licences() -> Result<(), String> {
    let root = workspace_root()?;
    let mut steps = Steps::new(&root);
    check_licences(&root, &mut steps);
    steps.outcome()
}

/// Whatever a machine can put right.
pub fn fix() -> Result<(), String> {
    let root = workspace_root()?;
    let mut steps = Steps::new(&root);
    steps.cargo(
        "clippy --fix",
        &[
            "clippy",
            "--fix",
            "--allow-dirty",
            "--allow-staged",
            "--workspace",
            "--all-targets",
            "--quiet",
        ],
        &[],
    );
    steps.cargo("format", &["fmt", "--all"], &[]);
    steps.own("ratchet", || tidy::lower_ratchet(&root).and_then(|()| counts::lower(&root)));
    steps.outcome()
}

/// By cargo-deny where it is installed, which knows more (bans, sources); else by our own reading
/// of cargo's metadata.
fn check_licences(root: &Path, steps: &mut Steps) {
    if has_cargo_subcommand(root, "deny") {
        steps.cargo(
            "cargo-deny",
            &["deny", "--locked", "check", "bans", "licenses", "sources"],
            &[],
        );
    } else {
        steps.own("licences", || licences::check(root));
    }
}

fn check_tree(root: &Path) -> Result<(), String> {
    let findings = tidy::check(&Tree::load(root)?)?;
    if findings.is_empty() {
        return Ok(());
    }
    Err(findings.iter().map(|finding| format!("   {finding}\n")).collect())
}

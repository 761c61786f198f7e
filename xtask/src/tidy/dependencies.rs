//! Dependencies are declared once, in the workspace, and each has a reason in docs/dependencies.md
//! (CONTRIBUTING.md).

use std::collections::BTreeSet;

use crate::manifest::{Manifest, workspace_dependencies};
use crate::tree::{Finding, Tree};

const REASONS: &str = "docs/dependencies.md";

pub(super) fn check(tree: &Tree, members: &[Manifest]) -> Result<Vec<Finding>, String> {
    let declared = workspace_dependencies(tree)?;
    let mut findings = Vec::new();
    for member in members {
        for dependency in member.dependencies.iter().filter(|dependency| !dependency.is_inherited) {
            let message = format!(
                "declares {} by itself; declare it in the workspace and inherit it from there",
                dependency.name
            );
            findings.push(Finding::new(&member.path, 0, message));
        }
    }
    let reasons = reasons(tree.text(REASONS).unwrap_or_default());
    let foreign: BTreeSet<&str> =
        declared.iter().filter(|(_, ours)| !ours).map(|(name, _)| name.as_str()).collect();
    let used: BTreeSet<&str> = members
        .iter()
        .flat_map(|member| &member.dependencies)
        .map(|dependency| dependency.name.as_str())
        .collect();
    for name in &foreign {
        if !reasons.iter().any(|(_, listed, reason)| listed == name && !reason.is_empty()) {
            findings.push(Finding::new(REASONS, 0, format!("gives no reason for {name}")));
        }
        if !used.contains(name) {
            findings.push(Finding::new(
                "Cargo.toml",
                0,
                format!("declares {name}, which no crate uses"),
            ));
        }
    }
    for (line, name, _) in reasons.iter().filter(|(_, name, _)| !foreign.contains(name)) {
        findings.push(Finding::new(
            REASONS,
            *line,
            format!("lists {name}, which the workspace does not declare"),
        ));
    }
    Ok(findings)
}

/// The rows of the page's table that begin with a name in backticks: line, name, reason (the row's
/// last cell).
fn reasons(page: &str) -> Vec<(usize, &str, &str)> {
    page.lines()
        .enumerate()
        .filter_map(|(at, line)| {
            let (name, cells) = line.strip_prefix("| `")?.split_once('`')?;
            let reason = cells.trim_end().strip_suffix('|')?.rsplit('|').next()?;
            Some((at + 1, name, reason.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::members;

    fn findings(workspace: &str, member: &str, page: &str) -> Vec<String> {
        let workspace = format!("[workspace.dependencies]\n{workspace}\n");
        let member = format!("[package]\nname = 'a'\n[dependencies]\n{member}\n");
        let tree = Tree::from([
            ("Cargo.toml", workspace.as_str()),
            ("crates/a/Cargo.toml", member.as_str()),
            (REASONS, page),
        ]);
        let found = check(&tree, &members(&tree).unwrap()).unwrap();
        found.into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_dependency_declared_once_and_explained_passes() {
        let found = findings(
            "mio = '1'\nours = { path = 'crates/ours' }",
            "mio.workspace = true",
            "| `mio` | io | readiness |",
        );
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_version_of_ones_own_is_refused() {
        let found = findings("mio = '1'", "mio = '1'", "| `mio` | io | readiness |");
        assert!(found.len() == 1 && found[0].contains("by itself"), "{found:?}");
    }

    #[test]
    fn a_dependency_without_a_reason_is_refused() {
        for page in ["", "| `mio` | io | |", "| `mio` |"] {
            let found = findings("mio = '1'", "mio.workspace = true", page);
            assert!(
                found.len() == 1 && found[0].contains("no reason for mio"),
                "{page}: {found:?}"
            );
        }
    }

    #[test]
    fn a_dependency_that_nobody_uses_is_refused() {
        let found = findings("mio = '1'", "", "| `mio` | io | readiness |");
        assert!(found.len() == 1 && found[0].contains("no crate uses"), "{found:?}");
    }

    #[test]
    fn a_reason_for_nothing_is_refused() {
        let found = findings("", "", "\n| `mio` | io | readiness |");
        assert!(found.len() == 1 && found[0].contains("dependencies.md:2"), "{found:?}");
    }
}

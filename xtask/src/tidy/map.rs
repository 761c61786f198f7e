//! The README's map of the tree shows every crate with its floor, and none that is not there.

use crate::manifest::Manifest;
use crate::tree::{Finding, Tree};

const README: &str = "README.md";

pub(super) fn check(tree: &Tree, members: &[Manifest]) -> Vec<Finding> {
    let rows = rows(tree.text(README).unwrap_or_default());
    let mut findings = Vec::new();
    for member in members.iter().filter(|member| member.folder.starts_with("crates/")) {
        let floor = member.floor.map(|floor| floor.to_string()).unwrap_or_default();
        match rows.iter().find(|(_, folder, _)| *folder == member.folder) {
            None => {
                findings.push(Finding::new(README, 0, format!("the map lacks {}", member.folder)))
            }
            Some((line, _, shown)) if *shown != floor => {
                let message = format!(
                    "the map puts {} on floor '{shown}', its manifest on '{floor}'",
                    member.folder
                );
                findings.push(Finding::new(README, *line, message));
            }
            Some(_) => {}
        }
    }
    for (line, folder, _) in rows {
        if !members.iter().any(|member| member.folder == folder) {
            findings.push(Finding::new(
                README,
                line,
                format!("the map shows {folder}, which does not exist"),
            ));
        }
    }
    findings
}

/// Rows such as ``| `crates/types` | 1 | … |``: line, folder, floor.
fn rows(readme: &str) -> Vec<(usize, &str, &str)> {
    readme
        .lines()
        .enumerate()
        .filter_map(|(at, line)| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let folder = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            folder
                .starts_with("crates/")
                .then(|| (at + 1, folder, cells.next().unwrap_or_default()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::members;

    fn findings(readme: &str) -> Vec<Finding> {
        let manifest = "[package]\nname = 'timestone-a'\nmetadata.timestone.floor = 3";
        let tree = Tree::from([("crates/a/Cargo.toml", manifest), (README, readme)]);
        check(&tree, &members(&tree).unwrap())
    }

    #[test]
    fn a_true_map_passes() {
        assert_eq!(findings("| folder | floor |\n|---|---|\n| `crates/a` | 3 | things |"), []);
    }

    #[test]
    fn a_missing_crate_is_noticed() {
        assert!(findings("# Timestone")[0].message.contains("lacks crates/a"));
    }

    #[test]
    fn a_wrong_floor_is_noticed() {
        assert!(findings("| `crates/a` | 4 | things |")[0].message.contains("floor '4'"));
    }

    #[test]
    fn a_crate_that_is_not_there_is_noticed() {
        let found = findings("| `crates/a` | 3 | things |\n| `crates/b` | 3 | ghosts |");
        assert!(found.len() == 1 && found[0].line == 2, "{found:?}");
    }
}

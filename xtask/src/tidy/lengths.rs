//! Files stay short enough to hold one idea: 800 lines of production code, tests at the end not
//! counted.
//!
//! Files that were longer when the ratchet was first committed are listed in it with their length.
//! The list only shrinks: a listed file may not grow, a number may not exceed what the file has
//! now, nothing is added later than the first version.

use std::collections::BTreeMap;
use std::path::Path;

use crate::lexer::production_lines;
use crate::tree::{Finding, Tree};

const LONGEST: usize = 800;
pub(crate) const RATCHET: &str = "xtask/ratchet.txt";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let listed = entries(tree.text(RATCHET).unwrap_or_default(), &mut findings);
    let lengths: BTreeMap<&str, usize> = tree
        .sources()
        .filter(|(path, _)| is_production(path))
        .map(|(path, text)| (path, production_lines(text)))
        .collect();
    for (path, length) in &lengths {
        let allowed = listed.get(*path).map_or(LONGEST, |(_, recorded)| *recorded);
        if *length > allowed {
            let message = format!(
                "has {length} lines of production code, {allowed} are allowed: it has found its \
                 seam"
            );
            findings.push(Finding::new(path, 0, message));
        }
    }
    for (path, (line, recorded)) in &listed {
        let actual = lengths.get(path.as_str()).copied().unwrap_or(0);
        if actual <= LONGEST {
            findings.push(Finding::new(
                RATCHET,
                *line,
                format!("{path} no longer needs its entry; run cargo xtask fix"),
            ));
        } else if actual < *recorded {
            findings.push(Finding::new(
                RATCHET,
                *line,
                format!("{path} has shrunk to {actual}; run cargo xtask fix"),
            ));
        }
        for older in tree.history(RATCHET) {
            match entries(older, &mut Vec::new()).get(path) {
                Some((_, before)) if before >= recorded => {}
                Some((_, before)) => {
                    findings.push(Finding::new(
                        RATCHET,
                        *line,
                        format!("{path} was at {before}; the ratchet only shrinks"),
                    ));
                }
                None => {
                    findings.push(Finding::new(
                        RATCHET,
                        *line,
                        format!("{path} was not listed; the ratchet only shrinks"),
                    ));
                }
            }
        }
    }
    findings
}

/// Tests and benchmarks may be as long as they like: in folders of theirs, or a module's tests in a
/// file of their own.
fn is_production(path: &str) -> bool {
    !path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches" | "examples"))
}

/// Lines `path length`; `#` begins a comment.
fn entries(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, (usize, usize)> {
    let mut entries = BTreeMap::new();
    for (at, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty())
    {
        match line.rsplit_once(' ').and_then(|(path, length)| Some((path, length.parse().ok()?))) {
            Some((path, length)) => {
                entries.insert(path.to_owned(), (at + 1, length));
            }
            None => findings.push(Finding::new(
                RATCHET,
                at + 1,
                format!("'{line}' is not of the form: path length"),
            )),
        }
    }
    entries
}

/// Rewrites the ratchet file to what the listed files have now; never raises a number, never adds a
/// line.
pub(crate) fn lower(root: &Path) -> Result<(), String> {
    let path = root.join(RATCHET);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{RATCHET}: {error}"))?;
    let lowered = lowered(&text, &Tree::load(root)?);
    if lowered == text {
        return Ok(());
    }
    std::fs::write(&path, lowered).map_err(|error| format!("{RATCHET}: {error}"))
}

fn lowered(text: &str, tree: &Tree) -> String {
    let listed = entries(text, &mut Vec::new());
    let mut out: String =
        text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for (path, (_, recorded)) in listed {
        let actual = tree.text(&path).map_or(0, production_lines);
        if actual > LONGEST {
            out.push_str(&format!("{path} {}\n", recorded.min(actual)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(lines: usize) -> String {
        "let a = 1;\n".repeat(lines)
            + "#[cfg(test)]\nmod tests {\n"
            + &"let b = 2;\n".repeat(900)
            + "}\n"
    }

    fn messages(path: &str, lines: usize, ratchet: &str, history: &[&str]) -> Vec<String> {
        let source = source(lines);
        let mut tree = Tree::from([(path, source.as_str()), (RATCHET, ratchet)]);
        tree.set_history(RATCHET, history);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_short_file_with_long_tests_passes() {
        assert_eq!(messages("crates/a/src/b.rs", 800, "", &[]), [""; 0]);
        assert_eq!(messages("crates/a/tests/b.rs", 2_000, "", &[]), [""; 0]);
        assert_eq!(messages("crates/a/src/b/tests.rs", 2_000, "", &[]), [""; 0]);
        assert_eq!(messages("crates/a/src/contests.rs", 801, "", &[]).len(), 1);
    }

    #[test]
    fn a_long_file_is_noticed() {
        assert!(messages("crates/a/src/b.rs", 801, "", &[])[0].contains("801"));
    }

    #[test]
    fn a_listed_file_may_stay_and_not_grow() {
        let ratchet = "# why\ncrates/a/src/b.rs 900\n";
        assert_eq!(messages("crates/a/src/b.rs", 900, ratchet, &[ratchet]), [""; 0]);
        assert!(messages("crates/a/src/b.rs", 901, ratchet, &[ratchet])[0].contains("901"));
    }

    #[test]
    fn an_entry_that_is_too_high_must_be_lowered() {
        assert!(
            messages("crates/a/src/b.rs", 850, "crates/a/src/b.rs 900", &[])[0]
                .contains("shrunk to 850")
        );
        assert!(
            messages("crates/a/src/b.rs", 700, "crates/a/src/b.rs 900", &[])[0]
                .contains("no longer needs")
        );
    }

    #[test]
    fn the_list_only_shrinks() {
        let now = "crates/a/src/b.rs 900";
        assert!(messages("crates/a/src/b.rs", 900, now, &[""])[0].contains("was not listed"));
        assert!(
            messages("crates/a/src/b.rs", 900, now, &["crates/a/src/b.rs 850"])[0]
                .contains("was at 850")
        );
        assert_eq!(messages("crates/a/src/b.rs", 900, now, &["crates/a/src/b.rs 950"]), [""; 0]);
    }

    #[test]
    fn a_garbled_line_is_noticed() {
        assert!(messages("crates/a/src/b.rs", 1, "crates/a/src/b.rs", &[])[0].contains("form"));
    }

    #[test]
    fn lowering_drops_and_lowers_and_never_adds() {
        let (long, short) = (source(850), source(10));
        let tree = Tree::from([
            ("a.rs", long.as_str()),
            ("b.rs", short.as_str()),
            ("c.rs", long.as_str()),
        ]);
        assert_eq!(lowered("# why\na.rs 900\nb.rs 900\n", &tree), "# why\na.rs 850\n");
        assert_eq!(lowered("a.rs 820\n", &tree), "a.rs 820\n");
    }
}

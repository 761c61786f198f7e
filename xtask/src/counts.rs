//! Counts that may only shrink: uses of retired words, and modules that share a type's name.
//!
//! The list has a line for each count above its bound, such as `retired WORD 12` or
//! `homonym Place 9`. A count above its line is refused. A line is lowered by `cargo xtask fix`; it
//! is never raised, and once it is gone it does not come back.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tree::{Finding, Tree};

/// The list, from the root.
pub const FILE: &str = "xtask/glossary-ratchet.txt";

/// Of a kind (`retired`, `homonym`) and a name.
pub(crate) type Key = (String, String);

/// One line of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) count: usize,
}

/// The lines `kind name count` of the list; `#` begins a comment.
pub(crate) fn entries(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<Key, Entry> {
    let mut entries = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let read = || {
            let (rest, count) = line.rsplit_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            Some(((kind.to_owned(), name.to_owned()), count.parse().ok()?))
        };
        match read() {
            Some((key, count)) => {
                entries.insert(key, Entry { line: at + 1, count });
            }
            None => findings.push(Finding::new(
                FILE,
                at + 1,
                format!("'{line}' is not of the form: kind name count"),
            )),
        }
    }
    entries
}

/// What the list's history forbids: a count that rises, and a line that comes back.
pub(crate) fn check_history(
    listed: &BTreeMap<Key, Entry>,
    history: &[String],
    findings: &mut Vec<Finding>,
) {
    // The newest version comes first. A line that was missing in a younger one had gone.
    for ((kind, name), entry) in listed {
        let key = (kind.clone(), name.clone());
        let mut had_gone = false;
        for older in history {
            match entries(older, &mut Vec::new()).get(&key) {
                Some(before) if had_gone || before.count < entry.count => {
                    let message = format!(
                        "{kind} {name} was at {} before; this list only shrinks",
                        if had_gone { 0 } else { before.count }
                    );
                    findings.push(Finding::new(FILE, entry.line, message));
                    break;
                }
                Some(_) => {}
                None => had_gone = true,
            }
        }
    }
}

/// Rewrites the list to what is counted now; never raises a number, never adds a line.
pub(crate) fn lower(root: &Path) -> Result<(), String> {
    let path = root.join(FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
    let tree = Tree::load(root)?;
    let lowered = lowered(&text, &crate::tidy::counted(&tree));
    if lowered == text {
        return Ok(());
    }
    std::fs::write(&path, lowered).map_err(|error| format!("{FILE}: {error}"))
}

fn lowered(text: &str, counted: &BTreeMap<Key, usize>) -> String {
    let comments = text.lines().filter(|line| line.starts_with('#'));
    let mut out: String = comments.map(|line| format!("{line}\n")).collect();
    for (key, entry) in entries(text, &mut Vec::new()) {
        let count = counted.get(&key).map_or(0, |count| entry.count.min(*count));
        if count > 0 {
            out.push_str(&format!("{} {} {count}\n", key.0, key.1));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history_findings(now: &str, history: &[&str]) -> Vec<String> {
        let mut findings = Vec::new();
        let listed = entries(now, &mut findings);
        let history: Vec<String> = history.iter().map(|older| (*older).to_owned()).collect();
        check_history(&listed, &history, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_count_may_shrink_and_a_new_word_may_come() {
        assert_eq!(history_findings("retired a 3\nretired new 9", &["retired a 4"]), [""; 0]);
    }

    #[test]
    fn a_count_that_rose_is_noticed() {
        let found = history_findings("# why\nretired a 5", &["retired a 5", "retired a 4"]);
        assert!(found.len() == 1 && found[0].contains(":2: retired a was at 4"), "{found:?}");
    }

    #[test]
    fn a_line_that_came_back_is_noticed() {
        let found = history_findings("retired a 2", &["retired a 2", "", "retired a 4"]);
        assert!(found.len() == 1 && found[0].contains("was at 0"), "{found:?}");
    }

    #[test]
    fn a_garbled_line_is_noticed() {
        assert!(history_findings("retired 3", &[])[0].contains("form"));
    }

    #[test]
    fn lowering_drops_and_lowers_and_never_raises() {
        let counted = BTreeMap::from([
            (("retired".to_owned(), "a".to_owned()), 2),
            (("retired".to_owned(), "b".to_owned()), 9),
        ]);
        assert_eq!(
            lowered("# why\nretired a 3\nretired b 4\nhomonym C 3\n", &counted),
            "# why\nretired a 2\nretired b 4\n"
        );
    }
}

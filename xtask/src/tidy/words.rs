//! Nothing unfinished is committed: no reminders to oneself, no debugging leftovers, no promises
//! that panic.

use crate::lexer::{code_only, lines_with_word};
use crate::tree::{Finding, Tree};

/// In comments as well as code.
const REMINDERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// In code only: comments may speak of them.
const LEFTOVERS: [&str; 3] = ["dbg!", "todo!", "unimplemented!"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_code = |path: &str| {
        [".rs", ".toml", ".sh", ".py", ".yml", ".yaml"].iter().any(|end| path.ends_with(end))
    };
    for (path, text) in tree.files().filter(|(path, _)| is_code(path) || path.starts_with(".ci/")) {
        for word in REMINDERS {
            for line in lines_with_word(text, word) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("says {word}: do it, or write an issue"),
                ));
            }
        }
    }
    for (path, text) in tree.sources() {
        let code = code_only(text);
        for word in LEFTOVERS {
            for line in lines_with_word(&code, word) {
                findings.push(Finding::new(path, line, format!("has {word}(…) left in it")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_code_passes() {
        let tree = Tree::from([
            ("a.rs", "// todo! panics\nlet s = \"dbg!\"; let mastodon = 1;"),
            ("a.md", REMINDERS[0]),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_reminder_is_noticed_in_comments_of_every_language() {
        for word in REMINDERS {
            for (path, text) in [
                ("a.rs", format!("// {word}: later")),
                ("a.sh", format!("# {word} later")),
                (".ci/run", format!("# {word}")),
            ] {
                let found = check(&Tree::from([(path, text.as_str())]));
                assert!(found.len() == 1 && found[0].message.contains(word), "{path}: {found:?}");
            }
        }
    }

    #[test]
    fn a_leftover_is_noticed_in_code() {
        for word in LEFTOVERS {
            let text = format!("fn a() {{\n    {word}();\n}}");
            let found = check(&Tree::from([("a.rs", text.as_str())]));
            assert!(found.len() == 1 && found[0].line == 2, "{word}: {found:?}");
        }
    }
}

//! The glossary's words: what it retired may not spread, and few types share a name.
//!
//! Counts that were above their bound when the rule began are listed in `xtask/glossary-ratchet.txt`.

use std::collections::BTreeMap;

use crate::counts::{self, Key};
use crate::glossary::{HOMONYM_MODULES, PAGE, homonyms, retired, rules};
use crate::tree::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let listed = counts::entries(tree.text(counts::FILE).unwrap_or_default(), &mut findings);
    let (rules, odd) = rules(tree.text(PAGE).unwrap_or_default());
    for line in odd {
        let message = "is no row of the form: | `word` | what to say | everywhere, identifiers, \
                       names or phrase | `folder/` or – |";
        findings.push(Finding::new(PAGE, line, message));
    }
    let bound = |kind: &str, name: &str, least: usize| {
        listed.get(&(kind.to_owned(), name.to_owned())).map_or(least, |entry| entry.count)
    };
    for (rule, uses) in rules.iter().zip(retired(tree, &rules)) {
        let allowed = bound("retired", rule.name(), 0);
        // Which use is the new one, nobody can tell; the last one is as good as any.
        let Some(last) = uses.last().filter(|_| uses.len() > allowed) else { continue };
        let message = format!(
            "'{}' is retired ({} uses, {allowed} are allowed); say: {}",
            rule.name(),
            uses.len(),
            rule.instead
        );
        findings.push(Finding::new(&last.path, last.line, message));
    }
    for (name, modules) in homonyms(tree) {
        let allowed = bound("homonym", &name, HOMONYM_MODULES);
        if modules.len() > allowed {
            let message = format!(
                "{} modules define a type {name}, {allowed} may: {}",
                modules.len(),
                modules.join(", ")
            );
            findings.push(Finding::new(&modules[0], 0, message));
        }
    }
    counts::check_history(&listed, tree.history(counts::FILE), &mut findings);
    findings
}

/// What the list would say now.
pub(crate) fn counted(tree: &Tree) -> BTreeMap<Key, usize> {
    let (rules, _) = rules(tree.text(PAGE).unwrap_or_default());
    let words = rules.iter().zip(retired(tree, &rules));
    let words =
        words.map(|(rule, uses)| (("retired".to_owned(), rule.name().to_owned()), uses.len()));
    let names = homonyms(tree).into_iter();
    let names = names.map(|(name, modules)| (("homonym".to_owned(), name), modules.len()));
    words.chain(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "## Retired words\n| `parcel` | batch of frames | everywhere | – |\n";

    fn messages(listed: &str, source: &str) -> Vec<String> {
        let tree = Tree::from([
            (PAGE, GLOSSARY),
            (counts::FILE, listed),
            ("crates/a/src/a.rs", source),
            ("crates/a/src/b.rs", "struct Place;"),
            ("crates/a/src/c.rs", "struct Place;"),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_listed_passes() {
        assert_eq!(messages("", "struct Other;"), [""; 0]);
        assert_eq!(messages("retired parcel 2", "// parcel\nstruct Parcel;"), [""; 0]);
        assert_eq!(messages("retired parcel 2", "// parcel"), [""; 0]);
        assert_eq!(messages("homonym Place 3", "struct Place;"), [""; 0]);
    }

    #[test]
    fn a_retired_word_is_refused_and_the_new_one_is_told() {
        for listed in ["", "retired parcel 1"] {
            let found = messages(listed, "// parcel\nstruct Parcel;");
            assert!(found.len() == 1 && found[0].contains("say: batch of frames"), "{found:?}");
            assert!(found[0].starts_with("crates/a/src/a.rs:2"), "{found:?}");
        }
    }

    #[test]
    fn one_more_type_of_a_name_is_refused() {
        let found = messages("", "struct Place;");
        assert!(
            found.len() == 1 && found[0].contains("3 modules define a type Place"),
            "{found:?}"
        );
    }

    #[test]
    fn a_row_that_nobody_can_read_is_refused() {
        let tree = Tree::from([(PAGE, "## Retired words\n| `a` | b | anywhere | – |\n")]);
        assert!(check(&tree)[0].message.contains("no row of the form"));
    }
}

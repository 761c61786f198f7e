//! `cargo lab structure`: figures of the code's structure, from the tree or from a commit.
//!
//! ```text
//!   sources ─► syn ─► types: methods, files, fields ─┐
//!                 └─► cores: functions that change state, assertions ─┼─► report ─► text, JSON, docs/lab/structure.md
//!   docs/tour.md ─► rooms and files of each walk ────┤
//!   docs/glossary.md ─► retired words, homonyms ─────┘
//! ```
//!
//! Production code alone is counted: modules and functions for tests, benchmarks and examples are
//! left out. What is within its bound is counted and not listed.

mod assertions;
mod report;
mod types;
mod walks;

use xtask::glossary;
use xtask::steps::workspace_root;
use xtask::tree::Tree;

use crate::page;
use report::{Figures, pair};

/// The page that shows the figures of two trees side by side, and its region.
const PAGE: &str = "docs/lab/structure.md";
const REGION: &str = "structure";

/// Counts, and prints or writes what was counted.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let (mut at, mut before, mut json, mut lacking, mut uses) = (None, None, false, None, None);
    let mut words = options.iter();
    while let Some(&word) = words.next() {
        match (word, words.next()) {
            ("--at", Some(commit)) => at = Some(*commit),
            ("--page", Some(commit)) => before = Some(*commit),
            ("-o", Some(&"json")) => json = true,
            ("-o", Some(&"text")) => json = false,
            ("--lacking", Some(core)) => lacking = Some(*core),
            ("--uses", Some(word)) => uses = Some(*word),
            _ => {
                return Err(format!(
                    "structure has no option '{word}', or it lacks its value; see cargo lab help"
                ));
            }
        }
    }
    let root = workspace_root()?;
    let here = Tree::load(&root)?;
    if let Some(core) = lacking {
        let core = (core != "all").then_some(core);
        assertions::lacking(&parse(&here)?, core).iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    // What is retired is what today's glossary says, whatever tree is looked at.
    let rules = glossary::rules(here.text(glossary::PAGE).unwrap_or_default()).0;
    if let Some(word) = uses {
        return print_uses(&here, &rules, word);
    }
    let count = |tree: &Tree| -> Result<Figures, String> {
        let sources = parse(tree)?;
        Ok(Figures {
            types: types::count(&sources),
            assertions: assertions::count(&sources),
            walks: walks::count(tree),
            homonyms: glossary::homonyms(tree),
            retired: rules
                .iter()
                .zip(glossary::retired(tree, &rules))
                .map(|(rule, uses)| (rule.name().to_owned(), uses.len()))
                .collect(),
        })
    };
    let figures = match at {
        Some(commit) => count(&Tree::at(&root, commit)?)?,
        None => count(&here)?,
    };
    if let Some(commit) = before {
        let older = count(&Tree::at(&root, commit)?)?;
        let path = root.join(PAGE);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
        let filled = page::fill(PAGE, &text, REGION, &pair(commit, &older, &figures))?;
        return std::fs::write(&path, filled).map_err(|error| format!("{PAGE}: {error}"));
    }
    print!("{}", if json { format!("{:#}\n", figures.json()) } else { figures.text() });
    Ok(())
}

/// Where a retired word is still used, or each of them for `all`.
fn print_uses(tree: &Tree, rules: &[glossary::Rule], word: &str) -> Result<(), String> {
    let rules_of =
        |rule: &glossary::Rule| word == "all" || rule.forms.iter().any(|form| form == word);
    if !rules.iter().any(rules_of) {
        return Err(format!("{} retires no '{word}'", glossary::PAGE));
    }
    for (rule, uses) in rules.iter().zip(glossary::retired(tree, rules)) {
        for place in uses.iter().filter(|_| rules_of(rule)) {
            println!("{}:{}: {}, say {}", place.path, place.line, rule.name(), rule.instead);
        }
    }
    Ok(())
}

/// A source of production code, parsed.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) file: syn::File,
}

impl Source {
    /// `store` of `crates/store/src/api.rs`.
    pub(crate) fn package(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }
}

fn parse(tree: &Tree) -> Result<Vec<Source>, String> {
    let parsed = |(path, text): (&str, &str)| {
        let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        Ok(Source { path: path.to_owned(), file })
    };
    glossary::production(tree).into_iter().map(parsed).collect()
}

/// Whether something stands behind `#[cfg(test)]` or is a test.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"));
        is_cfg_test || attribute.path().is_ident("test")
    })
}

#[cfg(test)]
pub(crate) fn sources<const N: usize>(files: [(&str, &str); N]) -> Vec<Source> {
    let parsed = |(path, text): (&str, &str)| Source {
        path: path.to_owned(),
        file: syn::parse_file(text).expect("a sample that parses"),
    };
    files.into_iter().map(parsed).collect()
}

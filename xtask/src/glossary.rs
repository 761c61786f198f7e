//! The words of `docs/glossary.md` as a machine reads them: what the glossary retired and how often
//! that still occurs, and names that several types share.
//!
//! ```text
//!   docs/glossary.md, "Retired words" ─► rules ─┐
//!   sources, pages, scenarios ──────────────────┴─► uses of each word, by file and line
//!   sources without their tests ──────────────────► type names, with the modules that define them
//! ```
//!
//! An identifier is looked at word by word: `ParcelPool` and `parcel_pool` both say *parcel* and
//! *pool*.

use std::collections::BTreeMap;

use crate::lexer::{code_only, production_lines};
use crate::tree::Tree;

/// The page with the table of retired words.
pub const PAGE: &str = "docs/glossary.md";

/// Files that must name retired words: the glossary, the plan that retires them, the counts and
/// the pages that show them, and the tests of this check.
const EXEMPT: [&str; 6] = [
    PAGE,
    "docs/design/house.md",
    "docs/lab/structure.md",
    crate::counts::FILE,
    "xtask/src/glossary.rs",
    "xtask/src/tidy/retired.rs",
];

/// Type names that any module may use for its own: everybody knows what they mean, and the module
/// says whose they are.
pub const CONVENTIONAL: [&str; 24] = [
    "Args", "Builder", "Command", "Config", "Context", "Entry", "Error", "Event", "Handle",
    "Header", "Id", "Input", "Inner", "Iter", "Kind", "Limits", "Options", "Output", "Outputs",
    "Report", "Result", "Settings", "State", "Stats",
];

/// A name may be defined in so many modules before it counts as a homonym.
pub const HOMONYM_MODULES: usize = 2;

/// Where a retired word is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matched {
    /// In identifiers, comments, strings and pages.
    Everywhere,
    /// As a word of an identifier: the word is plain English as well.
    Identifiers,
    /// As a whole identifier.
    Names,
    /// As a phrase, in comments, strings and pages.
    Phrase,
}

/// One row of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What is retired, in all its forms; the first one names the row.
    pub forms: Vec<String>,
    /// What to say instead.
    pub instead: String,
    /// Where it is looked for.
    pub matched: Matched,
    /// Paths begin with one of these; everywhere when there is none.
    pub below: Vec<String>,
    /// Its line in the page.
    pub line: usize,
}

impl Rule {
    /// What names this row in the list of counts.
    pub fn name(&self) -> &str {
        self.forms.first().map_or("", String::as_str)
    }

    fn covers(&self, path: &str) -> bool {
        self.below.is_empty() || self.below.iter().any(|prefix| path.starts_with(prefix.as_str()))
    }
}

/// A retired word that still stands somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// The file.
    pub path: String,
    /// From 1.
    pub line: usize,
}

/// The rows of the page's table, and the lines that look like one and cannot be read.
pub fn rules(page: &str) -> (Vec<Rule>, Vec<usize>) {
    let (mut rules, mut odd) = (Vec::new(), Vec::new());
    let rows = page
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != "## Retired words")
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter(|(_, line)| line.starts_with("| `"));
    for (at, line) in rows {
        match rule(line, at + 1) {
            Some(rule) => rules.push(rule),
            None => odd.push(at + 1),
        }
    }
    (rules, odd)
}

/// Of a row such as ``| `parcel` `parcels` | batch of frames | everywhere | – |``.
fn rule(row: &str, line: usize) -> Option<Rule> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [forms, instead, matched, below] = cells.as_slice() else { return None };
    let quoted = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let matched = match *matched {
        "everywhere" => Matched::Everywhere,
        "identifiers" => Matched::Identifiers,
        "names" => Matched::Names,
        "phrase" => Matched::Phrase,
        _ => return None,
    };
    let forms = quoted(forms);
    let below = quoted(below);
    let is_whole =
        !forms.is_empty() && !instead.is_empty() && (!below.is_empty() || cells[3] == "–");
    is_whole.then(|| Rule { forms, instead: (*instead).to_owned(), matched, below, line })
}

/// Every use of every rule's words, in the order of the rules.
pub fn retired(tree: &Tree, rules: &[Rule]) -> Vec<Vec<Use>> {
    let mut uses = vec![Vec::new(); rules.len()];
    for (path, text) in tree.files().filter(|(path, _)| is_looked_at(path)) {
        let code = if path.ends_with(".rs") { code_only(text) } else { String::new() };
        let code: Vec<Vec<&str>> = code.lines().map(|line| identifiers(line).collect()).collect();
        for (at, line) in text.lines().enumerate() {
            let all: Vec<&str> = identifiers(line).collect();
            let in_code = code.get(at).map_or(&[][..], Vec::as_slice);
            for (rule, uses) in rules.iter().zip(&mut uses).filter(|(rule, _)| rule.covers(path)) {
                let found = match rule.matched {
                    Matched::Everywhere => with_word(&all, &rule.forms),
                    Matched::Identifiers => with_word(in_code, &rule.forms),
                    Matched::Names => {
                        in_code.iter().filter(|name| rule.forms.iter().any(|f| f == *name)).count()
                    }
                    Matched::Phrase => phrases(line, &rule.forms),
                };
                uses.extend((0..found).map(|_| Use { path: path.to_owned(), line: at + 1 }));
            }
        }
    }
    uses
}

/// Type names that more than [`HOMONYM_MODULES`] modules of production code define, with those
/// modules. Conventional names are left out.
pub fn homonyms(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in production(tree) {
        let code = code_only(text);
        for line in code.lines().take(production_lines(text)) {
            let Some(name) = defined_type(line) else { continue };
            let modules = defined.entry(name.to_owned()).or_default();
            if modules.last().is_none_or(|last| last != path) {
                modules.push(path.to_owned());
            }
        }
    }
    defined.retain(|name, modules| {
        modules.len() > HOMONYM_MODULES && !CONVENTIONAL.contains(&name.as_str())
    });
    defined
}

/// The crates' sources that are neither tests nor benchmarks nor examples.
pub fn production(tree: &Tree) -> Vec<(&str, &str)> {
    let is_beside = |part: &str| matches!(part, "tests" | "benches" | "examples" | "tests.rs");
    let is_of_crate = |path: &str| path.starts_with("crates/") && !path.split('/').any(is_beside);
    let sources: Vec<_> = tree.sources().filter(|(path, _)| is_of_crate(path)).collect();
    let tests: Vec<String> =
        sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &str| {
        let stem = path.trim_end_matches(".rs");
        tests.iter().any(|module| {
            stem.strip_prefix(module.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    sources.into_iter().filter(|(path, _)| !is_test(path)).collect()
}

/// The modules in files of their own that a file declares behind `#[cfg(test)]`: their paths,
/// without `.rs`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_root = matches!(name, "mod.rs" | "lib.rs" | "main.rs");
    let folder = if is_root { folder } else { path.trim_end_matches(".rs") };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let module = |pair: &[&str]| {
        let declared = pair[1].strip_suffix(';').filter(|_| pair[0] == "#[cfg(test)]")?;
        let (_, name) = declared.rsplit_once("mod ")?;
        Some(format!("{folder}/{name}"))
    };
    lines.windows(2).filter_map(module).collect()
}

fn is_looked_at(path: &str) -> bool {
    let is_text = [".rs", ".md", ".toml"].iter().any(|end| path.ends_with(end));
    is_text && !EXEMPT.contains(&path)
}

/// The name that a line such as `pub(crate) struct Name` defines. `type` counts at a module's level
/// only: an associated type has the name that its trait gave it.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    while words.peek().is_some_and(|word| word.starts_with("pub") || *word == "unsafe") {
        words.next();
    }
    let keyword = words.next()?;
    let is_definition = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = words.next().filter(|_| is_definition)?;
    let end = name.find(|c: char| !is_word(c)).unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_word(c)).filter(|name| !name.is_empty())
}

/// How often one of the forms is a word of an identifier.
fn with_word(names: &[&str], forms: &[String]) -> usize {
    let is_form = |word: &str| forms.iter().any(|form| form.eq_ignore_ascii_case(word));
    names.iter().flat_map(|name| words(name)).filter(|word| is_form(word)).count()
}

/// The words of an identifier: `HTTPServer`, `http_server` and `HttpServer` have two.
fn words(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let (mut words, mut begin) = (Vec::new(), 0);
    for at in 1..=bytes.len() {
        let ends = at == bytes.len() || {
            let (before, here) = (bytes[at - 1], bytes[at]);
            let next_is_lower = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            here == b'_'
                || before == b'_'
                || (here.is_ascii_uppercase() && (!before.is_ascii_uppercase() || next_is_lower))
        };
        if ends {
            let word = &name[begin..at];
            if word != "_" && !word.is_empty() {
                words.push(word);
            }
            begin = at;
        }
    }
    words
}

/// How often one of the phrases stands in a line, as whole words.
fn phrases(line: &str, forms: &[String]) -> usize {
    let line = line.to_lowercase();
    let stands = |form: &str| {
        line.match_indices(form)
            .filter(|(at, _)| {
                !line[..*at].ends_with(is_word) && !line[at + form.len()..].starts_with(is_word)
            })
            .count()
    };
    forms.iter().map(|form| stands(&form.to_lowercase())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(rows: &str, path: &str, text: &str) -> Vec<usize> {
        let page = format!("## Retired words\n\n{rows}\n## Next\n| `x` | y | names | – |\n");
        let (rules, odd) = rules(&page);
        assert!(odd.is_empty(), "{odd:?}");
        retired(&Tree::from([(path, text)]), &rules).iter().map(Vec::len).collect()
    }

    #[test]
    fn identifiers_are_split_into_words() {
        assert_eq!(words("ParcelPool"), ["Parcel", "Pool"]);
        assert_eq!(words("parcel_pool"), ["parcel", "pool"]);
        assert_eq!(words("HTTPServer"), ["HTTP", "Server"]);
        assert_eq!(words("_MAX_PARCELS"), ["MAX", "PARCELS"]);
        assert_eq!(words("x"), ["x"]);
    }

    #[test]
    fn a_word_is_found_in_identifiers_comments_strings_and_pages() {
        let row = "| `parcel` `parcels` | batch of frames | everywhere | – |";
        let text =
            "struct ParcelPool; // a parcel\nlet a = \"timestone_parcels_total\"; parcelled();";
        assert_eq!(uses(row, "crates/a/src/a.rs", text), [3]);
        assert_eq!(uses(row, "docs/a.md", "Parcels, and a parcel."), [2]);
        assert_eq!(uses(row, "docs/glossary.md", "parcel"), [0]);
    }

    #[test]
    fn plain_english_is_found_in_identifiers_alone() {
        let row = "| `window` | recent-access table | identifiers | `crates/txn/` |";
        let text = "// a window\nlet read_window = Window::new(\"window\");";
        assert_eq!(uses(row, "crates/txn/src/a.rs", text), [2]);
        assert_eq!(uses(row, "crates/wal/src/a.rs", text), [0]);
        assert_eq!(uses("| `Way` | path | names | – |", "a.rs", "Way::A; by_way(); ByWay"), [1]);
    }

    #[test]
    fn a_phrase_is_whole_words() {
        let row = "| `floor of marks` | low-water timestamp | phrase | – |";
        assert_eq!(uses(row, "a.rs", "// The Floor of marks rises; floor of markss"), [1]);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let page =
            "## Retired words\n| `a` | b | somewhere | – |\n| `a` | b |\n| `a` | b | names | |";
        assert_eq!(rules(page), (vec![], vec![2, 3, 4]));
    }

    #[test]
    fn names_of_many_modules_are_homonyms() {
        let tree = Tree::from([
            ("crates/a/src/a.rs", "pub struct Place;\nstruct Error;\nimpl A { type Item = B; }"),
            ("crates/a/src/b.rs", "pub(crate) enum Place {}\nstruct Error;"),
            ("crates/b/src/c.rs", "pub struct Place<T>(T);\nstruct Error;\nstruct Once;"),
            ("crates/b/src/d.rs", "struct Once;\n#[cfg(test)]\nmod tests {\nstruct Once;\n}"),
            ("crates/b/tests/e.rs", "struct Once;"),
            ("crates/b/src/tests.rs", "struct Once;"),
            ("crates/b/src/lib.rs", "#[cfg(test)]\npub(crate) mod bench;"),
            ("crates/b/src/bench.rs", "struct Once;"),
            ("crates/b/src/bench/more.rs", "struct Once;"),
        ]);
        let found = homonyms(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found["Place"].len(), 3);
    }
}

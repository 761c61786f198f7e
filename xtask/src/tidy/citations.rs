//! Pages that sources cite are in the repository, and so are the headings that are quoted with
//! them; a `Source:` names such a page or one of the papers.
//!
//! A page is cited by its path from the root (`docs/protocol/time.md`), or from the citing file.
//! A heading follows in quotes: `docs/protocol/time.md, "Watermark"`. Papers are known by the names
//! that the glossary's table of papers gives them.

use super::links::{headings, resolve};
use crate::glossary::PAGE;
use crate::tree::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let papers = papers(tree.text(PAGE).unwrap_or_default());
    let mut findings = Vec::new();
    // Tests of our own checks cite pages that do not exist, on purpose.
    for (path, text) in tree.sources().filter(|(path, _)| !path.starts_with("xtask/src/tidy/")) {
        for comment in comments(text) {
            let mut complain = |message: String| {
                findings.push(Finding::new(path, comment.line, message));
            };
            let cited = citations(&comment.text);
            for citation in &cited {
                match page_of(tree, path, &citation.page) {
                    None => complain(format!("cites {}, which does not exist", citation.page)),
                    Some(page) => {
                        for heading in citation.headings.iter().filter(|h| !has(page, h)) {
                            complain(format!(
                                "cites \"{heading}\" of {}, which has no such heading",
                                citation.page
                            ));
                        }
                    }
                }
            }
            for paper in &papers {
                for section in sections(&comment.text, &paper.name) {
                    if !paper.sections.contains(&section) {
                        complain(format!(
                            "cites §{section} of {}, which {PAGE} does not list",
                            paper.name
                        ));
                    }
                }
            }
            for source in sources(&comment.text) {
                let names_page = !citations(source).is_empty();
                if !names_page && !papers.iter().any(|paper| source.contains(&paper.name)) {
                    complain("names as its source neither a page nor a paper".to_owned());
                }
            }
        }
    }
    findings
}

fn page_of<'a>(tree: &'a Tree, path: &str, page: &str) -> Option<&'a str> {
    tree.text(page).or_else(|| tree.text(&resolve(path, page)))
}

fn has(page: &str, quoted: &str) -> bool {
    headings(page).iter().any(|heading| heading.title == quoted)
}

/// A paper that sources may name.
struct Paper {
    name: String,
    /// The numbers of its sections.
    sections: Vec<String>,
}

/// Rows of the glossary's table under "Papers": names, title, sections. A row may name several
/// systems of one paper.
fn papers(page: &str) -> Vec<Paper> {
    let rows = page
        .lines()
        .skip_while(|line| *line != "## Papers")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| ") && !line.starts_with("| name "));
    let mut found = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, _, sections] = cells.as_slice() else { continue };
        let sections: Vec<String> = sections.split_whitespace().map(str::to_owned).collect();
        for name in names.split(", ") {
            found.push(Paper { name: name.to_owned(), sections: sections.clone() });
        }
    }
    found
}

/// The sections that follow a paper's name: `MILANA §4.1`, `DTranx §3.3, §3.4`, `MILANA §4.1–4.5`
/// (its ends).
fn sections(text: &str, paper: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(paper) {
        let mut rest = text[at + paper.len()..].trim_start_matches([' ', '(']);
        while let Some(numbers) = rest.strip_prefix('§') {
            let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '–');
            let end = numbers.find(|c: char| !is_number(c)).unwrap_or(numbers.len());
            let ends = numbers[..end].trim_end_matches('.').split('–');
            found.extend(ends.map(|number| number.trim_end_matches('.').to_owned()));
            rest = numbers[end..].trim_start_matches([',', ' ']);
        }
    }
    found
}

/// A run of comment lines as one text.
struct Comment {
    line: usize,
    text: String,
}

fn comments(source: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut last = 0;
    for (at, line) in source.lines().enumerate() {
        let Some(text) = line.trim_start().strip_prefix("//") else { continue };
        let text = text.trim_start_matches(['/', '!']).trim();
        // An empty line ends a paragraph.
        if text.is_empty() {
            continue;
        }
        match found.last_mut().filter(|_| last == at && at > 0) {
            Some(comment) => {
                comment.text.push(' ');
                comment.text.push_str(text);
            }
            None => found.push(Comment { line: at + 1, text: text.to_owned() }),
        }
        last = at + 1;
    }
    found
}

struct Citation {
    page: String,
    headings: Vec<String>,
}

/// Words that end in `.md`, with the headings that are quoted right behind them.
fn citations(text: &str) -> Vec<Citation> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    let mut found = Vec::new();
    for (at, _) in text.match_indices(".md") {
        let end = at + ".md".len();
        if text[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let begin = text[..at]
            .rfind(|c: char| !is_path(c))
            .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
        // Such as `*.md`: no page in particular.
        if begin == at {
            continue;
        }
        found.push(Citation { page: text[begin..end].to_owned(), headings: quoted(&text[end..]) });
    }
    found
}

/// The quoted headings at the beginning of what follows a page: `, "One" and "Two"`, `("One")`.
fn quoted(mut rest: &str) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches(['`', ')', ']', ',', ' ', '(']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
        let Some((heading, after)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'))
        else {
            return found;
        };
        found.push(heading.trim_end_matches(',').to_owned());
        rest = after;
    }
}

/// What stands behind `Source:` or `Sources:`, to the end of the paragraph.
fn sources(text: &str) -> impl Iterator<Item = &str> {
    ["Source: ", "Sources: "].into_iter().filter_map(|mark| Some(text.split_once(mark)?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(source: &str) -> Vec<String> {
        let tree = Tree::from([
            ("crates/a/src/a.rs", source),
            ("crates/a/README.md", "# Of a crate\n"),
            ("docs/protocol/time.md", "# Time\n## Watermark\n## `Two` words\n"),
            (
                PAGE,
                "## Papers\n| name | title | sections |\n|---|---|---|\n| SEMEL, MILANA | … | 4 4.1 4.5 |\n## Other\n",
            ),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pages_headings_and_papers_that_exist_pass() {
        for good in [
            "//! See docs/protocol/time.md, \"Watermark\" and \"Two words\".",
            "//! (`docs/protocol/time.md`, \"Two\n//! words\"). The rest.",
            "// Source: MILANA §4.1–4.5, SEMEL (§4). 9",
            "// As ../README.md says.\nlet a = \"gone.md\"; // README.mdx",
            "//! Sources: docs/protocol/time.md.",
        ] {
            assert_eq!(messages(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn a_page_that_does_not_exist_is_noticed() {
        for bad in ["//! Source: time.md.", "/// see docs/gone.md, \"Watermark\"", "    // gone.md"]
        {
            let found = messages(bad);
            assert!(found.len() == 1 && found[0].contains("does not exist"), "{bad}: {found:?}");
        }
    }

    #[test]
    fn a_heading_that_does_not_exist_is_noticed() {
        let found = messages("//! docs/protocol/time.md (\"Watermark\", \"Water\").");
        assert!(found.len() == 1 && found[0].contains("\"Water\""), "{found:?}");
    }

    #[test]
    fn a_section_that_a_paper_does_not_have_is_noticed() {
        for bad in ["// MILANA §4.9", "// (SEMEL §4.1, §7)", "// MILANA\n// §4–9."] {
            let found = messages(bad);
            assert!(found.len() == 1 && found[0].contains("cites §"), "{bad}: {found:?}");
        }
    }

    #[test]
    fn a_source_that_nobody_can_look_up_is_noticed() {
        let found = messages("//! What it does.\n//!\n//! Source: hearsay.");
        assert!(found.len() == 1 && found[0].contains("neither a page nor a paper"), "{found:?}");
        assert!(found[0].starts_with("crates/a/src/a.rs:3"), "{found:?}");
    }
}

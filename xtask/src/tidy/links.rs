//! Links between pages lead somewhere: the file exists, and so does the heading in it.
//!
//! Addresses elsewhere (`https:`, `mailto:`) are not looked at. Nothing inside code blocks or code
//! spans is a link.

use crate::tree::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            if let Some(message) = complaint(tree, path, &target) {
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

fn complaint(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let file = if file.is_empty() { page.to_owned() } else { resolve(page, file) };
    if !tree.exists(&file) {
        return Some(format!("links to {file}, which does not exist"));
    }
    let anchor = anchor?;
    let known = tree.text(&file).map(headings).unwrap_or_default();
    let is_known = known.iter().any(|heading| heading.anchor == anchor);
    (!is_known).then(|| format!("links to #{anchor} of {file}, which has no such heading"))
}

/// `target` as seen from the folder of `page`.
pub(super) fn resolve(page: &str, target: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The targets of `[text](target)`, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some(begin) = rest.find("](") {
            rest = &rest[begin + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split_whitespace().next().unwrap_or_default();
            found.push((at, target.to_owned()));
            rest = &rest[end..];
        }
    }
    found
}

/// A heading of a page: its words, and what a link calls it.
pub(super) struct Heading {
    pub(super) title: String,
    pub(super) anchor: String,
}

/// The headings of a page. Of two that are alike, the second's anchor ends in `-1`.
pub(super) fn headings(text: &str) -> Vec<Heading> {
    let mut found: Vec<Heading> = Vec::new();
    for (_, line) in prose(text) {
        let Some(title) = line.strip_prefix('#') else { continue };
        let title = title.trim_start_matches('#').trim();
        let slug: String = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let base = |heading: &&Heading| {
            heading.anchor == slug
                || heading.anchor.strip_prefix(&slug).is_some_and(|rest| {
                    rest.strip_prefix('-').is_some_and(|n| n.parse::<u32>().is_ok())
                })
        };
        let anchor = match found.iter().filter(base).count() {
            0 => slug,
            count => format!("{slug}-{count}"),
        };
        found.push(Heading { title: title.replace('`', ""), anchor });
    }
    found
}

/// The lines outside of code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            lines.push((at + 1, line));
        }
    }
    lines
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(page: &str) -> Vec<String> {
        let tree = Tree::from([
            ("docs/a.md", page),
            ("docs/design/b.md", "# Two words, `code` & more\n## Same\n## Same\n"),
            ("README.md", "# Top\n"),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "# Here\n[a](design/b.md) [b](../README.md#top) [c](#here) [d](design) \
                    [e](https://example.org/x.md) [f](design/b.md#two-words-code--more) \
                    [g](design/b.md#same-1)\n";
        assert_eq!(messages(page), [""; 0]);
    }

    #[test]
    fn code_is_no_link() {
        assert_eq!(messages("`[a](gone.md)`\n```\n[b](gone.md)\n```\n    [c](gone.md)\n"), [""; 0]);
    }

    #[test]
    fn a_page_that_does_not_exist_is_noticed() {
        for link in ["gone.md", "design/gone.md#same", "../b.md"] {
            let found = messages(&format!("text\n[a]({link})\n"));
            assert!(found.len() == 1 && found[0].contains("does not exist"), "{link}: {found:?}");
            assert!(found[0].starts_with("docs/a.md:2"), "{found:?}");
        }
    }

    #[test]
    fn a_heading_that_does_not_exist_is_noticed() {
        for link in ["design/b.md#samee", "#there", "design/b.md#same-2"] {
            let found = messages(&format!("# Here\n[a]({link})\n"));
            assert!(found.len() == 1 && found[0].contains("no such heading"), "{link}: {found:?}");
        }
    }
}

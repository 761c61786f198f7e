//! Just enough of Rust's lexical grammar to tell code from comments and literals, and production
//! code from its tests.
//!
//! It never parses: what it blanks out, it replaces by spaces, so that lines and columns stay where
//! they were.

/// The source with comments and the insides of string and character literals blanked out.
pub fn code_only(source: &str) -> String {
    let mut rest = source;
    let mut out = String::with_capacity(source.len());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' | 'b' | 'c' if !ends_in_word(&out) => prefixed_literal(rest).unwrap_or(0),
            '\'' => character(rest).unwrap_or(0),
            _ => 0,
        };
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// How many lines come before the tests at a file's end: before a `#[cfg(test)]` in the first
/// column that opens a module.
pub fn production_lines(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let opens_tests = |at: &usize| {
        lines[*at] == "#[cfg(test)]"
            && lines.get(at + 1).is_some_and(|next| next.starts_with("mod "))
    };
    (0..lines.len()).find(opens_tests).unwrap_or(lines.len())
}

/// The lines (from 1) on which `word` stands as a whole word.
pub fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let on_line = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let begins = !line[..at].ends_with(is_word) || !word.starts_with(is_word);
            let ends = !line[at + word.len()..].starts_with(is_word) || !word.ends_with(is_word);
            begins && ends
        })
    };
    text.lines().enumerate().filter(|(_, line)| on_line(line)).map(|(at, _)| at + 1).collect()
}

fn ends_in_word(out: &str) -> bool {
    out.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'`, but neither an identifier nor `r#keyword`.
fn prefixed_literal(rest: &str) -> Option<usize> {
    let letters = rest.find(|c: char| !matches!(c, 'r' | 'b' | 'c'))?;
    let after = &rest[letters..];
    if letters > 2 {
        return None;
    }
    if rest[..letters].contains('r') {
        let hashes = after.find(|c: char| c != '#')?;
        if !after[hashes..].starts_with('"') {
            return None;
        }
        let close = format!("\"{}", "#".repeat(hashes));
        let inside = &after[hashes + 1..];
        return Some(
            letters + hashes + 1 + inside.find(&close).map_or(inside.len(), |at| at + close.len()),
        );
    }
    match after.chars().next()? {
        '"' => Some(letters + string(after)),
        '\'' => character(after).map(|length| letters + length),
        _ => None,
    }
}

/// A character literal, not a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut inside = rest.char_indices().skip(1);
    let (_, first) = inside.next()?;
    if first == '\\' {
        let _ = inside.next()?;
        return inside.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    inside.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_vanish_and_lines_stay() {
        let source = "let a = \"x // \\\" y\"; // z\nlet b = 'q'; /* u /* v */ w */ let c: &'a str \
            = r#\"m\"n\"#;\n";
        let code = code_only(source);
        assert_eq!(code.lines().count(), source.lines().count());
        for gone in ["x", "y", "z", "q", "u", "v", "w", "m", "n"] {
            assert!(lines_with_word(&code, gone).is_empty(), "{gone} in {code}");
        }
        for kept in ["a", "b", "c", "str", "let"] {
            assert!(!lines_with_word(&code, kept).is_empty(), "{kept} in {code}");
        }
    }

    #[test]
    fn identifiers_that_begin_like_literals_stay() {
        let code = code_only("r#match br b c'x' rabbit('\\'') b\"gone\" '\\u{41}' end");
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>(),
            ["r#match", "br", "b", "rabbit(", ")", "end"]
        );
    }

    #[test]
    fn a_literal_that_never_ends_ends_with_the_file() {
        assert_eq!(code_only("a \"b").trim(), "a");
        assert_eq!(code_only("a /* b").trim(), "a");
        assert_eq!(code_only("a r#\"b\"").trim(), "a");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(lines_with_word("one\nnone one\nonely", "one"), [1, 2]);
        assert_eq!(lines_with_word("my_dbg!(x)\ndbg!(x)", "dbg!"), [2]);
    }

    #[test]
    fn tests_at_the_end_are_not_production_code() {
        assert_eq!(production_lines("//! a\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 3);
        assert_eq!(production_lines("//! a\n#[cfg(test)]\nuse x;\nfn b() {}\n"), 4);
    }
}

//! As much of EDN (extensible data notation) as histories use: maps, vectors, lists, keywords,
//! integers, strings, nil, booleans, and tagged forms, whose tags are passed over.
//!
//! Reads one form at a time from text it borrows from. Commas are white space, `;` begins a
//! comment. Depth is bounded; whatever is malformed is named with its column.

use crate::limits::MAX_EDN_DEPTH;

/// One form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form<'a> {
    Nil,
    Bool(bool),
    Integer(i64),
    Keyword(&'a str),
    /// A symbol, or a string's raw text.
    Text(&'a str),
    /// A vector or list.
    Sequence(Vec<Form<'a>>),
    Map(Vec<(Form<'a>, Form<'a>)>),
}

impl<'a> Form<'a> {
    /// The value under a keyword of a map.
    pub(crate) fn get(&self, keyword: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries
            .iter()
            .find(|(key, _)| matches!(key, Self::Keyword(name) if *name == keyword))
            .map(|(_, value)| value)
    }
}

/// Reads the form that `line` holds; `None` when it holds none (blank, or a comment).
pub(crate) fn parse(line: &str) -> Result<Option<Form<'_>>, String> {
    let mut reader = Reader { text: line, at: 0 };
    reader.skip();
    if reader.at == line.len() {
        return Ok(None);
    }
    let form = reader.form(0)?;
    reader.skip();
    if reader.at < line.len() {
        Err(reader.problem("something follows the form"))
    } else {
        Ok(Some(form))
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn problem(&self, what: &str) -> String {
        format!("{what} at column {}", self.text[..self.at].chars().count() + 1)
    }

    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.find(|c: char| !(c.is_whitespace() || c == ',')).unwrap_or(rest.len());
            self.at += blank;
            if !self.rest().starts_with(';') {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn form(&mut self, depth: usize) -> Result<Form<'a>, String> {
        if depth > MAX_EDN_DEPTH {
            return Err(self.problem("forms are nested too deeply"));
        }
        match self.peek() {
            None => Err(self.problem("the line ends where a form is expected")),
            Some('{') => self.map(depth),
            Some('[') => self.sequence(']', depth).map(Form::Sequence),
            Some('(') => self.sequence(')', depth).map(Form::Sequence),
            Some('"') => self.string(),
            Some('#') => self.tagged(depth),
            Some(_) => self.atom(),
        }
    }

    fn sequence(&mut self, close: char, depth: usize) -> Result<Vec<Form<'a>>, String> {
        self.at += 1;
        let mut forms = Vec::new();
        loop {
            self.skip();
            if self.peek() == Some(close) {
                self.at += 1;
                return Ok(forms);
            }
            forms.push(self.form(depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Form<'a>, String> {
        let forms = self.sequence('}', depth)?;
        if forms.len() % 2 == 1 {
            return Err(self.problem("a map has a key without a value, and ends"));
        }
        let mut forms = forms.into_iter();
        let mut entries = Vec::with_capacity(forms.len() / 2);
        while let (Some(key), Some(value)) = (forms.next(), forms.next()) {
            entries.push((key, value));
        }
        Ok(Form::Map(entries))
    }

    /// `#tag form`.
    fn tagged(&mut self, depth: usize) -> Result<Form<'a>, String> {
        let rest = &self.rest()[1..];
        if !rest.starts_with(|c: char| c.is_alphabetic()) {
            return Err(self.problem("a '#' that begins no tag stands"));
        }
        self.at += 1 + rest
            .find(|c: char| c.is_whitespace() || "{[(\",;".contains(c))
            .unwrap_or(rest.len());
        self.skip();
        self.form(depth + 1)
    }

    fn string(&mut self) -> Result<Form<'a>, String> {
        let mut escaped = false;
        for (at, c) in self.rest().char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    let text = &self.rest()[1..at];
                    self.at += at + 1;
                    return Ok(Form::Text(text));
                }
                _ => {}
            }
        }
        Err(self.problem("a string that does not end begins"))
    }

    fn atom(&mut self) -> Result<Form<'a>, String> {
        let rest = self.rest();
        let ends = |c: char| {
            c.is_whitespace() || matches!(c, ',' | ';' | '"' | '(' | ')' | '[' | ']' | '{' | '}')
        };
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        let form = match word {
            "" => return Err(self.problem("an unexpected bracket stands")),
            "nil" => Form::Nil,
            "true" => Form::Bool(true),
            "false" => Form::Bool(false),
            _ if word.starts_with(':') => Form::Keyword(&word[1..]),
            _ if word.starts_with(|c: char| c.is_ascii_digit())
                || (word.len() > 1
                    && word.starts_with(['-', '+'])
                    && word[1..].starts_with(|c: char| c.is_ascii_digit())) =>
            {
                // `N` marks an arbitrarily long integer; those of histories fit 64 bits.
                let digits = word.strip_suffix('N').unwrap_or(word);
                Form::Integer(
                    digits
                        .parse()
                        .map_err(|_| self.problem(&format!("'{word}' is no 64-bit integer")))?,
                )
            }
            _ => Form::Text(word),
        };
        self.at += word.len();
        Ok(form)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_form_is_read() {
        let form =
            parse("{:a [1 -2 +3 4N], :b (nil true) \"c\\\"d\" sym :e {} }; end").unwrap().unwrap();
        let integers = [1, -2, 3, 4].map(Form::Integer).to_vec();
        assert_eq!(form.get("a"), Some(&Form::Sequence(integers)));
        assert_eq!(form.get("b"), Some(&Form::Sequence(vec![Form::Nil, Form::Bool(true)])));
        assert_eq!(form.get("e"), Some(&Form::Map(Vec::new())));
        let Form::Map(entries) = &form else { panic!("a map") };
        assert_eq!(entries[2], (Form::Text("c\\\"d"), Form::Text("sym")));
        assert_eq!(form.get("missing"), None);
    }

    #[test]
    fn blank_lines_and_comments_hold_nothing() {
        for line in ["", "  , ", "; all comment"] {
            assert_eq!(parse(line), Ok(None));
        }
    }

    #[test]
    fn what_is_malformed_is_named_with_its_column() {
        for (line, problem) in [
            ("[1 2", "ends where a form is expected at column 5"),
            ("{:a}", "key without a value"),
            ("[1]]", "something follows the form at column 4"),
            ("]", "unexpected bracket stands at column 1"),
            ("\"abc", "does not end begins at column 1"),
            ("#{1 2}", "begins no tag stands at column 1"),
            ("99999999999999999999", "no 64-bit integer at column 1"),
        ] {
            let found = parse(line).unwrap_err();
            assert!(found.contains(problem), "{line}: {found}");
        }
        assert!(parse(&"[".repeat(1_000)).unwrap_err().contains("too deeply"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*|[\\[\\]{}():;# \"\\\\0-9nil-]{0,40}") {
            let _ = parse(&text);
        }
    }
}

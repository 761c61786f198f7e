//! Scripts of `timestone txn`: their words and statements.
//!
//! ```text
//!   get KEY                     read; printed as KEY = "VALUE"
//!   scan [PREFIX]               read the keys that begin so, in their order; printed as get
//!   put KEY VALUE [expire WHEN] write at commit
//!   delete KEY                  delete at commit
//!   if KEY = VALUE              go on only when it holds; also !=, `if KEY exists`, `if KEY absent`
//!   commit                      the end: everything takes effect, or nothing does
//!   abort                       the end: nothing takes effect
//! ```
//! Words are separated by blanks. A word in double quotes may hold blanks and the escapes
//! `\n \r \t \0 \\ \" \xHH`, so that every byte can be written; in single quotes everything stands
//! for itself. `#` begins a comment.

mod run;
mod words;

use std::fmt;

pub(crate) use run::{ReadObserver, Runner, ScriptOutcome, ScriptRead};

use crate::moment::Expires;
use crate::output::shown;

/// One line of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Statement {
    /// Read a key.
    Get(Vec<u8>),
    /// Read the keys that begin so, in their order.
    Scan(Vec<u8>),
    /// Write a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// When it ends; `None` for never.
        end: Option<Expires>,
    },
    /// Delete a key.
    Delete(Vec<u8>),
    /// Go on only when this holds.
    If(Vec<u8>, Test),
    /// The end: take effect.
    Commit,
    /// The end: take no effect.
    Abort,
}

/// What must hold of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// It has this value.
    Is(Vec<u8>),
    /// It has another value, or none.
    IsNot(Vec<u8>),
    /// It is there.
    Exists,
    /// It is not there.
    Absent,
}

impl Test {
    /// Whether it holds of what is there.
    pub(crate) fn holds(&self, found: Option<&[u8]>) -> bool {
        match self {
            Self::Is(value) => found == Some(value),
            Self::IsNot(value) => found != Some(value),
            Self::Exists => found.is_some(),
            Self::Absent => found.is_none(),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => write!(f, "= \"{}\"", shown(value)),
            Self::IsNot(value) => write!(f, "!= \"{}\"", shown(value)),
            Self::Exists => f.write_str("exists"),
            Self::Absent => f.write_str("absent"),
        }
    }
}

const FORMS: &str = "the statements are: get KEY, scan [PREFIX], put KEY VALUE [expire WHEN], delete KEY, if KEY \
    = VALUE, commit, abort";

/// Reads one line; `None` when it is blank or a comment.
pub(crate) fn parse_line(line: &[u8]) -> Result<Option<Statement>, String> {
    let words = words::split(line)?;
    let Some((name, rest)) = words.split_first() else { return Ok(None) };
    let statement = match (name.to_ascii_lowercase().as_slice(), rest) {
        (b"get", [key]) => Statement::Get(key.clone()),
        (b"scan", []) => Statement::Scan(Vec::new()),
        (b"scan", [prefix]) => Statement::Scan(prefix.clone()),
        (b"put" | b"set", [key, value]) => {
            Statement::Put { key: key.clone(), value: value.clone(), end: None }
        }
        (b"put" | b"set", [key, value, word, when]) if word == b"expire" => {
            let when = std::str::from_utf8(when).map_err(|_| "WHEN is no text".to_owned())?;
            Statement::Put { key: key.clone(), value: value.clone(), end: Some(when.parse()?) }
        }
        (b"delete" | b"del", [key]) => Statement::Delete(key.clone()),
        (b"if", [key, test @ ..]) => Statement::If(key.clone(), parse_test(test)?),
        (b"commit", []) => Statement::Commit,
        (b"abort" | b"rollback", []) => Statement::Abort,
        _ => return Err(format!("'{}' is not understood; {FORMS}", shown(line.trim_ascii()))),
    };
    Ok(Some(statement))
}

fn parse_test(words: &[Vec<u8>]) -> Result<Test, String> {
    match words {
        [operator, value] if operator == b"=" || operator == b"==" => Ok(Test::Is(value.clone())),
        [operator, value] if operator == b"!=" => Ok(Test::IsNot(value.clone())),
        [word] if word == b"exists" => Ok(Test::Exists),
        [word] if word == b"absent" => Ok(Test::Absent),
        _ => {
            Err("a condition is: if KEY = VALUE, if KEY != VALUE, if KEY exists, or if KEY absent"
                .to_owned())
        }
    }
}

/// A statement with the number of its line, from 1.
pub(crate) type Numbered = (usize, Statement);

/// Reads a whole script, so that nothing runs of one that is wrong somewhere.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<Numbered>, String> {
    let mut statements: Vec<Numbered> = Vec::new();
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = at + 1;
        let parsed = parse_line(line.strip_suffix(b"\r").unwrap_or(line))
            .map_err(|problem| format!("line {number}: {problem}"))?;
        let Some(statement) = parsed else { continue };
        if let Some((end, Statement::Commit | Statement::Abort)) = statements.last() {
            return Err(format!(
                "line {number}: the transaction ended on line {end}; one script is one transaction"
            ));
        }
        statements.push((number, statement));
    }
    Ok(statements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Statement {
        parse_line(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn statements_are_read() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        assert_eq!(line("get a"), Statement::Get(bytes("a")));
        assert_eq!(line("scan a"), Statement::Scan(bytes("a")));
        assert_eq!(line("scan"), Statement::Scan(bytes("")));
        assert_eq!(
            line("  PUT a 'b c'  # why"),
            Statement::Put { key: bytes("a"), value: bytes("b c"), end: None }
        );
        assert!(matches!(
            line("put a b expire 30s"),
            Statement::Put { end: Some(Expires::After(_)), .. }
        ));
        assert_eq!(line("delete \"a\\x00\""), Statement::Delete(vec![b'a', 0]));
        assert_eq!(line("if a = 1"), Statement::If(bytes("a"), Test::Is(bytes("1"))));
        assert_eq!(line("if a != 1"), Statement::If(bytes("a"), Test::IsNot(bytes("1"))));
        assert_eq!(line("if a exists"), Statement::If(bytes("a"), Test::Exists));
        assert_eq!(line("if a absent"), Statement::If(bytes("a"), Test::Absent));
        assert_eq!((line("commit"), line("abort")), (Statement::Commit, Statement::Abort));
        assert_eq!(parse_line(b"  # only a comment"), Ok(None));
    }

    #[test]
    fn conditions_hold_of_what_is_there() {
        let is = Test::Is(b"1".to_vec());
        assert!(is.holds(Some(b"1")) && !is.holds(Some(b"2")) && !is.holds(None));
        let is_not = Test::IsNot(b"1".to_vec());
        assert!(!is_not.holds(Some(b"1")) && is_not.holds(Some(b"2")) && is_not.holds(None));
        assert!(Test::Exists.holds(Some(b"")) && !Test::Exists.holds(None));
        assert!(Test::Absent.holds(None) && !Test::Absent.holds(Some(b"")));
    }

    #[test]
    fn a_script_that_is_wrong_somewhere_is_refused_with_the_line() {
        for (text, expected) in [
            ("get a\n\nfetch b\n", "line 3: 'fetch b' is not understood"),
            ("put a\n", "line 1"),
            ("if a > 1\n", "line 1: a condition is"),
            ("get a\ncommit\nget b\n", "line 3: the transaction ended on line 2"),
            ("put a b expire someday\n", "line 1: write a span"),
        ] {
            let problem = parse(text.as_bytes()).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
        assert_eq!(parse(b"# nothing\r\nget a\r\n").unwrap(), [(2, Statement::Get(b"a".to_vec()))]);
    }
}

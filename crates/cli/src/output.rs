//! What commands print: bytes as they are, tables for people, JSON for programs.
//!
//! Keys and values are bytes. In JSON they are text where they are UTF-8 (`"key"`), base64
//! otherwise (`"key_base64"`); in tables whatever is not printable is escaped; as text they are
//! written as they are. A reader that goes away early (`| head`) ends the command quietly; one that has
//! a verdict or a commit to come goes on to it without a reader ([`or_unread`]).

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Columns where nobody can tell.
const USUAL_WIDTH: usize = 80;

/// The form of a command's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Plain text, values byte by byte.
    Text,
    /// One JSON object or array, on one line.
    Json,
    /// A table.
    Table,
}

/// Writes bytes to standard output.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(cannot_write)
}

/// Writes a line to standard output.
pub(crate) fn write_line(text: &str) -> Result<(), Failure> {
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(text);
    line.push('\n');
    write_bytes(line.as_bytes())
}

/// Says something on standard error; when nobody listens, nothing is lost.
pub(crate) fn say(words: &str) {
    let _ = writeln!(io::stderr().lock(), "{words}");
}

/// Printed, or nobody reads any more: for commands whose exit code tells more than that they have
/// printed.
pub(crate) fn or_unread(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(failure) if failure.is_silent() && failure.code == 0 => Ok(()),
        printed => printed,
    }
}

fn cannot_write(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::reader_gone()
    } else {
        Failure::failed(format!("could not write to standard output: {error}"))
    }
}

/// Writes a value as it is, and a line feed after it where a person reads along.
pub(crate) fn write_value(value: &[u8]) -> Result<(), Failure> {
    write_bytes(value)?;
    if io::stdout().is_terminal() && !value.ends_with(b"\n") { write_bytes(b"\n") } else { Ok(()) }
}

/// Writes one JSON value on one line.
pub(crate) fn write_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::failed(format!("internal error: {error}")))?;
    write_line(&text)
}

/// A table with a header.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header(header.iter().copied());
    table
}

/// Columns of the terminal, or of one that everybody has.
pub(crate) fn terminal_width() -> usize {
    Table::new().width().map_or(USUAL_WIDTH, |width| usize::from(width).max(1))
}

/// Bytes for a table or a message: printable as they are, anything else escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// A word as a shell reads it: as it is where it is plain, in quotes otherwise.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Adds bytes to a JSON object: as text under `name`, or as base64 under `name_base64`.
pub(crate) fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), base64(bytes).into()),
    };
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place)) & 63;
            out.push(if place > chunk.len() { '=' } else { char::from(ALPHABET[digit as usize]) });
        }
    }
    out
}

/// Reads base64 with padding; `None` for anything else.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut groups = text.as_bytes().chunks(4).peekable();
    while let Some(group) = groups.next() {
        let padding = group.iter().rev().take_while(|&&digit| digit == b'=').count();
        if group.len() != 4 || padding > 2 || (padding > 0 && groups.peek().is_some()) {
            return None;
        }
        let mut word = 0;
        for &digit in &group[..4 - padding] {
            word = word << 6 | ALPHABET.iter().position(|&known| known == digit)? as u32;
        }
        word <<= 6 * padding;
        let bytes = [(word >> 16) as u8, (word >> 8) as u8, word as u8];
        // Bits that no byte has are zero, so that every text means one thing and every thing has
        // one text.
        if bytes[3 - padding..].iter().any(|&rest| rest != 0) {
            return None;
        }
        out.extend_from_slice(&bytes[..3 - padding]);
    }
    Some(out)
}

/// Whether a progress bar or a prompt would be seen.
pub(crate) fn errors_are_seen() -> bool {
    io::stderr().is_terminal()
}

/// Whether colours are wanted on standard error: a terminal, and `NO_COLOR` unset or empty
/// (no-color.org).
pub(crate) fn errors_are_coloured() -> bool {
    errors_are_seen() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
            assert_eq!(from_base64(coded).as_deref(), Some(plain.as_bytes()));
        }
        for bad in ["Z", "Zg", "Zg=", "Z===", "Zg==Zg==", "Zh==", "Z g=", "Zg==\n"] {
            assert_eq!(from_base64(bad), None, "{bad:?}");
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn only_a_reader_that_has_gone_is_forgiven() {
        assert!(or_unread(Err(cannot_write(io::ErrorKind::BrokenPipe.into()))).is_ok());
        assert!(or_unread(Err(cannot_write(io::ErrorKind::StorageFull.into()))).is_err());
        assert!(or_unread(Err(Failure::not_found(String::new()))).is_err());
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_not_take_it_as_one() {
        for (word, said) in [
            ("scenarios/bank.toml", "scenarios/bank.toml"),
            ("my scenario.toml", "'my scenario.toml'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), said);
        }
    }

    #[test]
    fn bytes_are_text_where_they_can_be() {
        let mut object = Map::new();
        put_bytes(&mut object, "key", "grün".as_bytes());
        put_bytes(&mut object, "value", &[0xff]);
        assert_eq!(
            Value::Object(object),
            serde_json::json!({ "key": "grün", "value_base64": "/w==" })
        );
        assert_eq!(shown(b"a\nb\xff"), "a\\nb\\xff");
        assert_eq!(shown("grün".as_bytes()), "grün");
    }
}

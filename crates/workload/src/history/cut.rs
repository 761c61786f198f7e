//! What a writer that was killed leaves at the end of a history.
//!
//! A kernel may end a killed process in the middle of a `write`, at the end of any page of it. The
//! lines before the cut are in real-time order, so they are a whole history of what had happened
//! until then; the piece of a line behind them says nothing.

use std::str::Utf8Error;

use super::edn;

/// The text of a history without a last line that its writer began and did not end, and whether
/// there was one: a piece of a map, without a newline, behind lines that are whole.
///
/// # Errors
/// [`Utf8Error`] when another line is no text.
pub fn without_cut_line(bytes: &[u8]) -> Result<(&str, bool), Utf8Error> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let whole = std::str::from_utf8(&bytes[..end])?;
    let is_map = !whole.is_empty() && bytes[end..].starts_with(b"{");
    match std::str::from_utf8(bytes) {
        Ok(text) if !is_map || edn::parse(&text[end..]).is_ok() => Ok((text, false)),
        Err(error) if !is_map => Err(error),
        _ => Ok((whole, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_begun_and_not_ended_is_left_out_wherever_it_was_cut() {
        let (first, last) = ("; a head\n{:a 1}\n", "{:process 0, :value [\"ä\"]}");
        let text = [first, last].concat();
        for end in first.len() + 1..text.len() {
            assert_eq!(without_cut_line(&text.as_bytes()[..end]), Ok((first, true)), "at {end}");
        }
        for whole in [first.to_owned(), text.clone(), text.clone() + "\n", String::new()] {
            assert_eq!(without_cut_line(whole.as_bytes()), Ok((whole.as_str(), false)));
        }
    }

    #[test]
    fn only_the_last_line_can_have_been_cut() {
        for text in ["{:a 1\n{:a 2}\n", "{:a 1}\n{:a\n", "{:a", "{:a 1}\nGET / HTTP/1.1"] {
            assert_eq!(without_cut_line(text.as_bytes()), Ok((text, false)), "its reader says so");
        }
        let error = without_cut_line(b"{:a 1}\n\xff\n{:a").unwrap_err();
        assert_eq!(error.valid_up_to(), 7);
        assert!(without_cut_line(b"\xff\xfe").is_err());
    }
}

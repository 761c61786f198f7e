//! Splits a line into words: blanks, quotes, escapes, comments. Bytes in, bytes out.

/// The words of a line; a comment ends it.
pub(super) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        if first == b'#' {
            break;
        }
        let (word, after) = match first {
            b'"' => quoted(&rest[1..])?,
            b'\'' => literal(&rest[1..])?,
            _ => bare(rest),
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err("a blank is missing after a quoted word".to_owned());
        }
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

fn bare(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let length = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (text[..length].to_vec(), &text[length..])
}

fn literal(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let end = text.iter().position(|&byte| byte == b'\'').ok_or("a single quote is not closed")?;
    Ok((text[..end].to_vec(), &text[end + 1..]))
}

fn quoted(mut text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut word = Vec::new();
    loop {
        text = match text {
            [b'"', rest @ ..] => return Ok((word, rest)),
            [b'\\', b'x', high, low, rest @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value =
                    digit(*high).zip(digit(*low)).ok_or("\\x wants two hexadecimal digits")?;
                word.push((value.0 * 16 + value.1) as u8);
                rest
            }
            [b'\\', escaped, rest @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'0' => 0,
                    b'\\' | b'"' => *escaped,
                    other => {
                        return Err(format!(
                            "there is no escape '\\{}'; use \\xHH",
                            other.escape_ascii()
                        ));
                    }
                });
                rest
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
            [] => return Err("a double quote is not closed".to_owned()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_blanks_outside_quotes() {
        let words = split(b"put  a#b \"x \\\"y\\\" \\x00\\xfF\\n\" 'it\\n' # rest").unwrap();
        assert_eq!(
            words,
            [b"put".to_vec(), b"a#b".to_vec(), b"x \"y\" \0\xff\n".to_vec(), b"it\\n".to_vec()]
        );
        assert_eq!(split(b"\xff ''").unwrap(), [vec![0xff], vec![]]);
    }

    #[test]
    fn what_is_not_closed_or_not_known_is_refused() {
        for (text, expected) in [
            (&b"\"a"[..], "double quote"),
            (b"'a", "single quote"),
            (b"\"\\q\"", "no escape"),
            (b"\"\\xg0\"", "hexadecimal"),
            (b"\"\\", "double quote"),
            (b"\"a\"b", "blank is missing"),
        ] {
            let problem = split(text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}

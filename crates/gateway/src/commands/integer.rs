//! Integers as Redis reads them: an optional minus, digits, no leading zero, no plus, no spaces.

/// Reads a signed 64-bit number; `None` for anything that Redis calls "not an integer or out of
/// range".
#[must_use]
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    digits.iter().try_fold(0i64, |value, &byte| {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        if !byte.is_ascii_digit() {
            return None;
        }
        let value = value.checked_mul(10)?;
        if negative { value.checked_sub(digit) } else { value.checked_add(digit) }
    })
}

/// Reads a cursor: an unsigned 64-bit number, leading zeros and a plus allowed. No scan gives a
/// negative or an empty one; as in Redis they are cursors, and here they stand for the beginning.
#[must_use]
pub(crate) fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0u64, |value, &byte| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if byte.is_ascii_digit() { value.checked_mul(10)?.checked_add(digit) } else { None }
    })?;
    Some(if negative { 0 } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_in_redis() {
        for (text, value) in [
            ("0", 0),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "1a",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn cursors_are_read_as_in_redis() {
        for (text, value) in [
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("+7", Some(7)),
            ("007", Some(7)),
            ("", Some(0)),
            ("-0", Some(0)),
            ("-1", Some(0)),
            ("-18446744073709551616", None),
            ("-", None),
            ("+", None),
            ("--1", None),
            ("+-1", None),
            (" 1", None),
            ("1 ", None),
            ("x", None),
        ] {
            assert_eq!(parse_cursor(text.as_bytes()), value, "{text:?}");
        }
    }
}

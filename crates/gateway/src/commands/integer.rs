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

/// Reads a cursor: an unsigned 64-bit number, leading zeros allowed.
#[must_use]
pub(crate) fn parse_unsigned(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if byte.is_ascii_digit() { value.checked_mul(10)?.checked_add(digit) } else { None }
    })
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
        assert_eq!(parse_unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_unsigned(b"18446744073709551616"), None);
        assert_eq!(parse_unsigned(b"-1"), None);
        assert_eq!(parse_unsigned(b""), None);
    }
}

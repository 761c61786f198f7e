//! Redis's glob patterns: `*`, `?`, `[a-c]`, `[^x]`, and a backslash before what is meant literally.
//!
//! Used by KEYS, SCAN MATCH and CONFIG GET. Unlike the recursive original this takes time in proportion to the product of both
//! lengths at worst, because after a mismatch only the last star can still help. Deliberately absent: case folding (see
//! [`matches_any_case`]) and everything that other globs know.

/// Whether `text` matches `pattern` as a whole.
#[must_use]
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on after a mismatch: behind the last star, one byte of the text further than the last time.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, from));
            continue;
        }
        let (fits, length) = if at < pattern.len() { take_one(&pattern[at..], text[from]) } else { (false, 0) };
        if fits {
            at += length;
            from += 1;
        } else if let Some((behind_star, used)) = retry {
            at = behind_star;
            from = used + 1;
            retry = Some((behind_star, from));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// The same, with ASCII letters of either case taken as equal.
#[must_use]
pub(super) fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches(&pattern.to_ascii_lowercase(), &text.to_ascii_lowercase())
}

/// Whether the first element of `pattern` (not a star, not empty) matches `byte`, and how long that element is.
fn take_one(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (fits, length) = take_class(class, byte);
            (fits, 1 + length)
        }
        [b'\\', literal, ..] => (*literal == byte, 2),
        [literal, ..] => (*literal == byte, 1),
        [] => (false, 0),
    }
}

/// The same for a class, without its opening bracket. A class without an end reaches to the pattern's end, as in Redis.
fn take_class(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut fits = false;
    loop {
        match &class[at..] {
            [] => break,
            [b'\\', literal, ..] => {
                fits |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [low, b'-', high, ..] => {
                fits |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                fits |= *literal == byte;
                at += 1;
            }
        }
    }
    (fits != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: [(&str, &str, bool); 27] = [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "hllo", true),
            ("h*llo", "heeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"a[\]]b", "a]b", true),
            ("a[b", "ab", true),
            ("a[b", "ac", false),
            (r"a\", r"a\", true),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c*", "xxaxxcxxbxx", false),
            ("user:*:name", "user:1:name", true),
            ("user:*:name", "user:1:nam", false),
            ("**", "x", true),
            ("[]a", "a", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
        assert!(matches_any_case(b"MAX*", b"maxmemory"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let text = vec![b'a'; 20_000];
        assert!(!matches(b"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", &text));
    }
}

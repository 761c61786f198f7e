//! Redis's glob patterns: `*`, `?`, `[a-c]`, `[^x]`, and a backslash before what is meant
//! literally.
//!
//! Used by KEYS, SCAN MATCH, CONFIG GET and COMMAND LIST. A pattern is compiled once for a page of
//! keys: to a set of states of one bit each, of which the first so many elements of the pattern have
//! been matched.
//!
//! ```text
//!   pattern  a * b          states  0 ─a─► 1 ─b─► 2       next = ((now & accepts[byte]) << 1) | (now & stars)
//!                                          ↺ any byte     a text matches when the last state is in the set at its end
//! ```
//! So each byte of a text costs one step for every 64 elements of the pattern, whatever both are:
//! following one path, and going back where it fails, takes as many steps as there are elements,
//! for patterns that are made for it. Deliberately absent: case folding (see [`Glob::any_case`])
//! and everything that other globs know.

/// What every text begins with that a pattern matches, and whether it matches that text alone.
#[must_use]
pub(crate) fn literal_prefix(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        match rest {
            [] => return (prefix, true),
            [b'*' | b'?' | b'[', ..] => return (prefix, false),
            [b'\\', literal, behind @ ..] => {
                prefix.push(*literal);
                rest = behind;
            }
            [literal, behind @ ..] => {
                prefix.push(*literal);
                rest = behind;
            }
        }
    }
}

/// A compiled pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Glob {
    /// Of 64 states each.
    blocks: usize,
    /// For each byte, the states that it leads on from.
    accepts: Vec<u64>,
    /// The states that any byte keeps.
    stars: Vec<u64>,
    /// The state of who has matched everything.
    last: usize,
}

impl Glob {
    /// Compiles a pattern; takes time in proportion to it, or 256 times that for its classes.
    #[must_use]
    pub(crate) fn new(pattern: &[u8]) -> Self {
        // One state an element at most, and the last one.
        let blocks = pattern.len() / 64 + 1;
        let mut glob =
            Self { blocks, accepts: vec![0; 256 * blocks], stars: vec![0; blocks], last: 0 };
        let mut rest = pattern;
        while let Some(&first) = rest.first() {
            let (word, bit) = (glob.last / 64, 1 << (glob.last % 64));
            if first == b'*' {
                glob.stars[word] |= bit;
                rest = &rest[1..];
                continue;
            }
            let mut accept = |byte: u8| glob.accepts[usize::from(byte) * blocks + word] |= bit;
            let length = match rest {
                [b'?', ..] => {
                    (0..=u8::MAX).for_each(accept);
                    1
                }
                [b'[', class @ ..] => {
                    (0..=u8::MAX).filter(|&byte| take_class(class, byte).0).for_each(accept);
                    1 + take_class(class, 0).1
                }
                [b'\\', literal, ..] => {
                    accept(*literal);
                    2
                }
                _ => {
                    accept(first);
                    1
                }
            };
            rest = &rest[length..];
            glob.last += 1;
        }
        glob
    }

    /// Compiles a pattern for texts in lower case, which it matches whatever the case of its own
    /// ASCII letters is.
    #[must_use]
    pub(crate) fn any_case(pattern: &[u8]) -> Self {
        Self::new(&pattern.to_ascii_lowercase())
    }

    /// Whether `text` matches the pattern as a whole.
    #[must_use]
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match (&self.accepts[..], &self.stars[..]) {
            (accepts, &[stars]) if accepts.len() == 256 => {
                self.matches_in_one_block(accepts, stars, text)
            }
            _ => self.matches_in_blocks(text),
        }
    }

    /// The same for short patterns, whose states are one word.
    fn matches_in_one_block(&self, accepts: &[u64], stars: u64, text: &[u8]) -> bool {
        let end = 1 << self.last;
        let mut now = 1_u64;
        for &byte in text {
            now = ((now & accepts[usize::from(byte)]) << 1) | (now & stars);
            // No way leads on, or a star takes whatever follows.
            if now == 0 || now & stars & end != 0 {
                break;
            }
        }
        now & end != 0
    }

    fn matches_in_blocks(&self, text: &[u8]) -> bool {
        let mut now = vec![0_u64; self.blocks];
        now[0] = 1;
        for &byte in text {
            let accepts = &self.accepts[usize::from(byte) * self.blocks..][..self.blocks];
            let (mut carried, mut any) = (0, 0);
            for ((now, accepts), stars) in now.iter_mut().zip(accepts).zip(&self.stars) {
                let goes_on = *now & accepts;
                *now = (goes_on << 1) | carried | (*now & stars);
                carried = goes_on >> 63;
                any |= *now;
            }
            if any == 0 {
                return false;
            }
        }
        now[self.last / 64] & (1 << (self.last % 64)) != 0
    }
}

/// Whether a class, without its opening bracket, has `byte`, and how long it is. One without an end
/// reaches to the pattern's end, as in Redis.
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
            assert_eq!(
                Glob::new(pattern.as_bytes()).matches(text.as_bytes()),
                expected,
                "{pattern} on {text}"
            );
        }
        assert!(Glob::any_case(b"MAX*").matches(b"maxmemory"));
        let across = Glob::new(b"[a-\xff]");
        assert!(across.matches(b"z") && across.matches(b"\x80") && !across.matches(b"Z"));
    }

    /// By going back: each element takes as much as it may, and less where the rest does not fit.
    fn reference(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', rest @ ..], text) => {
                (0..=text.len()).any(|skipped| reference(rest, &text[skipped..]))
            }
            (_, []) => false,
            ([b'?', rest @ ..], [_, left @ ..]) => reference(rest, left),
            ([b'[', class @ ..], [byte, left @ ..]) => {
                let (fits, length) = take_class(class, *byte);
                fits && reference(&class[length..], left)
            }
            ([b'\\', literal, rest @ ..], [byte, left @ ..]) => {
                literal == byte && reference(rest, left)
            }
            ([literal, rest @ ..], [byte, left @ ..]) => literal == byte && reference(rest, left),
        }
    }

    #[test]
    fn every_short_pattern_matches_what_it_matches_by_going_back() {
        let mut random = 7_u64;
        let mut draw = |of: &[u8], most: usize| -> Vec<u8> {
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as usize
            };
            let length = next() % (most + 1);
            (0..length).map(|_| of[next() % of.len()]).collect()
        };
        let mut matched = 0;
        for _ in 0..200_000 {
            let (pattern, text) = (draw(b"ab*?[]^-\\a*", 9), draw(b"ab-]", 7));
            let expected = reference(&pattern, &text);
            matched += usize::from(expected);
            let shown = || (pattern.escape_ascii().to_string(), text.escape_ascii().to_string());
            assert_eq!(Glob::new(&pattern).matches(&text), expected, "{:?}", shown());
            // The same behind what makes the pattern longer than a word of states.
            let (long, far) =
                ([&[b'x'; 61][..], &pattern].concat(), [&[b'x'; 61][..], &text].concat());
            assert_eq!(Glob::new(&long).matches(&far), expected, "{:?}, long", shown());
        }
        assert!(matched > 10_000, "{matched} of them match");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    fn patterns_made_to_fail_late_take_time_in_proportion_to_the_text() {
        let text = vec![b'a'; 64 * 1024];
        let stars = b"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b".to_vec();
        let late = [&b"*"[..], &[b'a'; 1022], b"b"].concat();
        let begun = std::time::Instant::now();
        for _ in 0..64 {
            assert!(!Glob::new(&stars).matches(&text) && !Glob::new(&late).matches(&text));
        }
        // A step for every pair of their bytes would be 4 billion of them.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
}

//! What strangers at a port may have meant, and an answer in their own protocol.
//!
//! A browser, a health check or a Redis client on the wrong port gets words that it can show,
//! instead of bytes that it cannot read.

/// The words with which HTTP requests begin.
const METHODS: [&[u8]; 9] = [
    b"GET /",
    b"POST ",
    b"HEAD /",
    b"PUT /",
    b"DELETE /",
    b"OPTIONS ",
    b"PATCH /",
    b"CONNECT ",
    b"TRACE /",
];

/// Whether these are the first bytes of an HTTP request.
pub fn is_http(bytes: &[u8]) -> bool {
    METHODS.iter().any(|method| bytes.starts_with(method))
}

/// Whether these are the first bytes of a Redis client: an array, or the inline form of a command
/// that every client knows.
pub fn is_resp(bytes: &[u8]) -> bool {
    let inline = |word: &[u8]| {
        bytes.len() > word.len()
            && bytes[..word.len()].eq_ignore_ascii_case(word)
            && b" \r\n".contains(&bytes[word.len()])
    };
    matches!(bytes, [b'*', b'0'..=b'9', ..])
        || [&b"PING"[..], b"AUTH", b"HELLO", b"INFO", b"SELECT"].into_iter().any(inline)
}

/// What an HTTP client is told by a port that speaks `protocol`.
pub fn http_answer(protocol: &str) -> Vec<u8> {
    let body = format!(
        "This port speaks {protocol}, not HTTP. Metrics and health are served over HTTP on another \
         port, 7402 by default.\n"
    );
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Whether a line's first word is no text: a frame of the native protocol, or of TLS, begins with its
/// length and kind. The word may have its quotes or not: without them its bytes move to the front, so
/// that what is binary with them is so without.
fn is_binary(word: &[u8]) -> bool {
    word[..word.len().min(8)].iter().any(u8::is_ascii_control)
}

/// What whoever is no Redis client is told by the RESP port before it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// A request line or a header of HTTP: perhaps a web page's, whose body must not be carried
    /// out.
    Http,
    /// Bytes that no Redis client sends, such as a frame of the native protocol.
    Foreign,
}

impl Stranger {
    /// Who sends a command with these words, if no Redis client does. `inline`: it came as a line
    /// of text, not as an array.
    pub fn of<'a>(
        words: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        inline: bool,
    ) -> Option<Self> {
        let name = words.clone().next()?;
        if inline && is_binary(name) {
            return Some(Self::Foreign);
        }
        // In an array the third word is a value, and values may be anything.
        let is_request = inline
            && words.len() == 3
            && words.clone().last().is_some_and(|version| version.starts_with(b"HTTP/"));
        if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:") || is_request {
            return Some(Self::Http);
        }
        let is_name =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'|');
        match name {
            _ if !inline || name.iter().all(is_name) => None,
            [.., b':'] => Some(Self::Http),
            // A command's name begins with a letter: this may be a mistake in one.
            [first, ..] if first.is_ascii_alphabetic() => None,
            _ => Some(Self::Foreign),
        }
    }

    /// Who sends a line that begins with these bytes, before the line is whole or where it cannot be
    /// read. Only its first word is looked at, what follows may be any value. Of the whole line
    /// [`Stranger::of`] says the same, so that it does not matter how TCP cut it.
    pub fn of_first(bytes: &[u8]) -> Option<Self> {
        // As the parser of lines takes them. A vertical tab is a control character otherwise.
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
        if bytes.first() == Some(&b'*') {
            return None;
        }
        let word = bytes.iter().position(|byte| !is_space(byte)).map(|at| &bytes[at..])?;
        let end = word.iter().position(is_space).unwrap_or(word.len());
        is_binary(&word[..end]).then_some(Self::Foreign)
    }

    /// The answer.
    pub fn answer(self) -> Vec<u8> {
        match self {
            Self::Http => http_answer("the Redis protocol (RESP)"),
            Self::Foreign => {
                b"-ERR Protocol error: this is no command; this port speaks the Redis \
                protocol (RESP), Timestone's native \
protocol is spoken on another port, 7400 by default\r\n"
                    .to_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_known_by_their_first_bytes() {
        assert!(
            is_http(b"GET / HTTP/1.1\r\n")
                && is_http(b"POST /x HTTP/1.1\r\n")
                && !is_http(b"GET key\r\n")
        );
        assert!(
            is_resp(b"*1\r\n$4\r\nPING\r\n")
                && is_resp(b"ping\r\n")
                && !is_resp(b"PINGPONG\r\n")
                && !is_resp(b"\x20\0\0\0")
        );
        let of = |line: &str, inline| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            Stranger::of(words.iter().copied(), inline)
        };
        for line in
            ["POST / HTTP/1.1", "Host: x", "host: x", "GET / HTTP/1.1", "Content-Type: text/plain"]
        {
            assert_eq!(of(line, true), Some(Stranger::Http), "{line}");
        }
        assert_eq!(of("SETNX k HTTP/1.1", false), None, "a value");
        assert_eq!(
            (of("post a", false), of("{\"a\":1}", true)),
            (Some(Stranger::Http), Some(Stranger::Foreign))
        );
        assert_eq!(
            (of("GET a", true), of("FOO", true), of("a:b", false), of("GET a b", true)),
            (None, None, None, None)
        );
        assert_eq!((of("foo! bar", true), of("\u{1}foo", false)), (None, None), "a mistake");
        for line in ["(a)", "!foo", "\u{1}foo", "foo\u{1} a"] {
            assert_eq!(of(line, true), Some(Stranger::Foreign), "{line:?}");
        }
        assert_eq!(Stranger::of_first(b"/\0\0\0\x01\0"), Some(Stranger::Foreign));
        assert_eq!(
            (Stranger::of_first(b"*1\0"), Stranger::of_first(b"\r\nPING k\0")),
            (None, None)
        );
        assert_eq!((Stranger::of_first(b"SET \x01"), Stranger::of_first(b" \x0bSE")), (None, None));
        for line in [&b"SE\x01T a"[..], b"\n\0\0\0\x01", b" \x0b\x16\x03\x01"] {
            let first = line.escape_ascii();
            assert_eq!(Stranger::of_first(line), Some(Stranger::Foreign), "{first}");
        }
        let answer = String::from_utf8(http_answer("X")).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    }
}

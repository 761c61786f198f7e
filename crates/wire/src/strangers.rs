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
            _ => Some(Self::Foreign),
        }
    }

    /// Who sends a line that begins with these bytes, before the line is whole: the length and kind
    /// of a frame of the native protocol, or of TLS, are no text.
    pub fn of_first(bytes: &[u8]) -> Option<Self> {
        let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
        let first = &bytes[..bytes.len().min(8)];
        (first.first() != Some(&b'*') && !first.iter().all(is_text)).then_some(Self::Foreign)
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
        assert_eq!(Stranger::of_first(b"/\0\0\0\x01\0"), Some(Stranger::Foreign));
        assert_eq!(
            (Stranger::of_first(b"*1\0"), Stranger::of_first(b"\r\nPING k\0")),
            (None, None)
        );
        let answer = String::from_utf8(http_answer("X")).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    }
}

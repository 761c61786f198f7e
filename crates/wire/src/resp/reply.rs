//! Replies in RESP2 and RESP3.
//!
//! RESP2 has no null, map, set, double, boolean, verbatim text or push: each has the form that
//! Redis gives it for old clients.

use std::io::Write as _;

/// Which dialect a connection speaks; HELLO changes it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// What every connection begins with.
    #[default]
    Resp2,
    /// With types of its own for nulls, maps, sets, doubles, booleans and pushes.
    Resp3,
}

/// Appends replies to a connection's outgoing bytes; allocates nothing else.
///
/// ```
/// use timestone_wire::resp::{Protocol, ReplyWriter};
///
/// let mut out = Vec::new();
/// let mut reply = ReplyWriter::new(&mut out, Protocol::Resp2);
/// reply.array(2);
/// reply.bulk(b"key");
/// reply.null();
/// assert_eq!(out, b"*2\r\n$3\r\nkey\r\n$-1\r\n");
/// ```
#[derive(Debug)]
pub struct ReplyWriter<'v> {
    out: &'v mut Vec<u8>,
    protocol: Protocol,
}

/// Most digits of a 64-bit number, with its sign.
const MAX_DIGITS: usize = 20;

impl<'v> ReplyWriter<'v> {
    /// Over a connection's outgoing bytes.
    #[must_use]
    pub const fn new(out: &'v mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The dialect.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A short text without line ends; line ends in it become spaces.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.line(text.as_bytes());
    }

    /// An error: its first word is its code (`ERR`, `WRONGTYPE`, …). Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// An error whose text quotes bytes of the client.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.out.push(b'-');
        self.line(text);
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.prefixed(b':', value.unsigned_abs(), value < 0);
    }

    /// Bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + MAX_DIGITS + 5);
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as bytes: `INCRBYFLOAT`'s relatives and CONFIG answer numbers so.
    pub fn bulk_integer(&mut self, value: i64) {
        let mut digits = [0u8; MAX_DIGITS];
        let digits = format_digits(value.unsigned_abs(), value < 0, &mut digits);
        self.bulk(digits);
    }

    /// "Nothing" where bytes were expected.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n".as_slice(),
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// "Nothing" where an array was expected: a failed EXEC.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n".as_slice(),
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Begins an array of `length` replies.
    #[inline]
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a map of `pairs` pairs; RESP2 gets an array of keys and values.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', pairs * 2),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    /// Begins a set of `length` replies; RESP2 gets an array.
    pub fn set(&mut self, length: usize) {
        let kind = if self.protocol == Protocol::Resp2 { b'*' } else { b'~' };
        self.length(kind, length);
    }

    /// Begins a push of `length` replies; RESP2 gets an array.
    pub fn push(&mut self, length: usize) {
        let kind = if self.protocol == Protocol::Resp2 { b'*' } else { b'>' };
        self.length(kind, length);
    }

    /// A floating-point number, in the shortest form that reads back the same; RESP2 gets it as
    /// bytes.
    pub fn double(&mut self, value: f64) {
        let mut text = [0u8; 32];
        let text = format_double(value, &mut text);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// True or false; RESP2 gets 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// Text with its format (`txt`, `mkd`); RESP2 gets it as bytes.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn line(&mut self, text: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn length(&mut self, kind: u8, length: usize) {
        self.prefixed(kind, length as u64, false);
    }

    #[inline]
    fn prefixed(&mut self, kind: u8, magnitude: u64, negative: bool) {
        if magnitude < 10 && !negative {
            self.out.extend_from_slice(&[kind, b'0' + magnitude as u8, b'\r', b'\n']);
            return;
        }
        let mut digits = [0u8; MAX_DIGITS];
        let digits = format_digits(magnitude, negative, &mut digits);
        self.out.push(kind);
        self.out.extend_from_slice(digits);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Writes a number at the end of `buffer`, and gives what was written.
fn format_digits(mut magnitude: u64, negative: bool, buffer: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut at = MAX_DIGITS;
    loop {
        at -= 1;
        buffer[at] = b'0' + (magnitude % 10) as u8;
        magnitude /= 10;
        if magnitude == 0 {
            break;
        }
    }
    if negative {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

/// Writes a floating-point number to the front of `buffer`, and gives what was written. Far from 1,
/// with an exponent.
fn format_double(value: f64, buffer: &mut [u8; 32]) -> &[u8] {
    if value.is_nan() {
        return b"nan";
    }
    if value.is_infinite() {
        return if value > 0.0 { b"inf" } else { b"-inf" };
    }
    let magnitude = value.abs();
    let plain = magnitude == 0.0 || (1e-5..1e17).contains(&magnitude);
    let mut rest = &mut buffer[..];
    let written = if plain { write!(rest, "{value}") } else { write!(rest, "{value:e}") };
    // 17 significant digits, a sign, a point and either four zeros or an exponent fit in 32 bytes.
    assert!(written.is_ok(), "a floating-point number takes at most 32 bytes");
    let left = rest.len();
    let used = buffer.len() - left;
    &buffer[..used]
}

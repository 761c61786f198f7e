//! Commands, found incrementally in a receive buffer.
//!
//! ```text
//!   receive buffer  *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*1\r\n$4\r\nPI…
//!                   └── parse ──► Command[GET][key], consumed 22 ──┘└ parse ──► Incomplete: come back with more bytes
//! ```
//! Both forms of Redis are read: arrays of bulk strings, and inline commands (a line of words with
//! quotes). Between calls the caller only appends to the buffer, or drops the bytes that a call
//! reported as consumed from its front; the parser remembers where it was, so that bytes are looked
//! at once. Like Redis, it does not look at the two bytes after a bulk string.
//!
//! Invariants: no allocation per command once the list of arguments has grown; memory is bounded by
//! the bytes received.

use core::fmt;
use core::ops::Range;

use timestone_types::limits::MAX_TXN_BYTES;

/// How much of a command the parser accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RespLimits {
    /// Most arguments of one command, its name included.
    pub max_args: usize,
    /// Longest argument, in bytes. Above the longest value, so that values a little too long get a
    /// better answer.
    pub max_bulk_bytes: usize,
    /// Longest whole command, in bytes.
    pub max_command_bytes: usize,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            max_args: 1024 * 1024,
            max_bulk_bytes: MAX_TXN_BYTES,
            max_command_bytes: 2 * MAX_TXN_BYTES,
        }
    }
}

/// Longest line: an inline command, or a length. As in Redis.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// A command with more arguments than this gives their list's memory back: 16 bytes each on every
/// connection add up.
const KEEP_ARGS: usize = 512;
/// The same for the bytes of words of text.
const KEEP_WORDS: usize = 4 * 1024;
/// What is kept of both by a connection that has nothing to read.
const IDLE_ARGS: usize = 64;
const IDLE_WORDS: usize = 1024;

/// The bytes do not follow the protocol. The text is Redis's; answer `-ERR ` and the text, then
/// close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// An inline command without an end.
    TooBigInline,
    /// An inline command with an open quote, or a quote inside a word.
    UnbalancedQuotes,
    /// The line with the number of arguments has no end.
    TooBigMultibulkCount,
    /// The number of arguments is not one, or too great.
    InvalidMultibulkLength,
    /// The line with the length of an argument has no end.
    TooBigBulkCount,
    /// An argument does not begin with `$`, but with this byte.
    ExpectedDollar(u8),
    /// The length of an argument is not one, or too great.
    InvalidBulkLength,
    /// The whole command is too long.
    TooBigCommand,
}

impl ProtocolError {
    /// Appends the error as Redis words it, `Protocol error: ` included, for a reply.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Protocol error: ");
        out.extend_from_slice(self.text().as_bytes());
        if let Self::ExpectedDollar(byte) = self {
            out.extend_from_slice(&[byte, b'\'']);
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::TooBigInline => "too big inline request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::TooBigMultibulkCount => "too big mbulk count string",
            Self::InvalidMultibulkLength => "invalid multibulk length",
            Self::TooBigBulkCount => "too big bulk count string",
            Self::ExpectedDollar(_) => "expected '$', got '",
            Self::InvalidBulkLength => "invalid bulk length",
            Self::TooBigCommand => "too big request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.text())?;
        if let Self::ExpectedDollar(byte) = self {
            write!(f, "{}'", char::from(*byte))
        } else {
            Ok(())
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Where the parser is in the command that it is reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ParserState {
    /// At the first byte of a command.
    Start,
    /// Inside an array; this many arguments are still to come, at the line with the next one's
    /// length.
    Length { left: usize },
    /// Inside an array, at the bytes of an argument of this length.
    Bulk { left: usize, bytes: usize },
}

/// Reads one connection's commands.
#[derive(Clone, Debug)]
pub struct CommandParser {
    limits: RespLimits,
    state: ParserState,
    /// Where the next unread byte is, counted from the command's first byte.
    position: usize,
    /// Up to where the line at `position` has been searched for its end.
    searched: usize,
    /// The arguments read so far: ranges of the command's bytes, or of `words` for an inline
    /// command.
    args: Vec<Range<usize>>,
    /// The words of an inline command without their quotes.
    words: Vec<u8>,
    inline: bool,
}

/// What a call found.
#[derive(Debug)]
pub enum Parsed<'p> {
    /// A whole command. Drop [`Command::consumed`] bytes from the front of the buffer when done
    /// with it.
    Command(Command<'p>),
    /// Not a whole command yet.
    Incomplete {
        /// These bytes hold nothing any more (empty lines, empty arrays): drop them from the front
        /// of the buffer.
        consumed: usize,
        /// At least this many more bytes are needed, for whoever sizes the buffer.
        needed: usize,
    },
}

/// One command, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct Command<'p> {
    args: &'p [Range<usize>],
    bytes: &'p [u8],
    /// Bytes of empty commands before it.
    skipped: usize,
    consumed: usize,
    inline: bool,
}

impl<'p> Command<'p> {
    /// Whether it came as a line of text instead of an array.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        self.inline
    }

    /// How many arguments it has, its name included; at least 1.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether it has no arguments, not even a name: never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// An argument; 0 is the command's name.
    #[must_use]
    #[inline]
    pub fn arg(&self, index: usize) -> Option<&'p [u8]> {
        self.args.get(index).map(|range| &self.bytes[range.clone()])
    }

    /// Where an argument is in the buffer. Not those of inline commands, whose quotes are gone.
    #[must_use]
    #[inline]
    pub fn place(&self, index: usize) -> Option<Range<usize>> {
        let range = self.args.get(index).filter(|_| !self.inline)?;
        Some(self.skipped + range.start..self.skipped + range.end)
    }

    /// The command's name, as it was sent.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &'p [u8] {
        self.arg(0).unwrap_or_default()
    }

    /// All arguments, the name first.
    #[must_use]
    #[inline]
    pub fn args(&self) -> Args<'p> {
        Args { args: self.args.iter(), bytes: self.bytes }
    }

    /// How many bytes of the buffer's front it took, empty commands before it included.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> usize {
        self.consumed
    }
}

/// The arguments of a command.
#[derive(Clone, Debug)]
pub struct Args<'p> {
    args: core::slice::Iter<'p, Range<usize>>,
    bytes: &'p [u8],
}

impl<'p> Iterator for Args<'p> {
    type Item = &'p [u8];

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.args.next().map(|range| &self.bytes[range.clone()])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.args.size_hint()
    }
}

impl ExactSizeIterator for Args<'_> {}

/// How far one step of reading came.
enum ParseStep {
    /// A whole command.
    Whole,
    /// Something is done, go on.
    On,
    /// More bytes are needed, at least so many.
    Wait(usize),
}

impl CommandParser {
    /// For a new connection.
    #[must_use]
    pub const fn new(limits: RespLimits) -> Self {
        Self {
            limits,
            state: ParserState::Start,
            position: 0,
            searched: 0,
            args: Vec::new(),
            words: Vec::new(),
            inline: false,
        }
    }

    /// Looks for the next command in `buffer`, which begins where the last consumed byte ended.
    ///
    /// # Errors
    /// [`ProtocolError`]: answer it, then close the connection; the parser is not used again.
    pub fn parse<'p>(&'p mut self, buffer: &'p [u8]) -> Result<Parsed<'p>, ProtocolError> {
        // Empty commands at the front are passed over; everything else counts from the command's
        // first byte.
        let mut skipped = 0;
        loop {
            let bytes = &buffer[skipped..];
            let step = match self.state {
                ParserState::Start => self.start(bytes)?,
                ParserState::Length { left } => self.bulk_length(bytes, left)?,
                ParserState::Bulk { left, bytes: length } => self.bulk(bytes, left, length),
            };
            match step {
                ParseStep::On if self.state == ParserState::Start => skipped += self.restart(),
                ParseStep::On => {}
                ParseStep::Whole => {
                    let consumed = skipped + self.restart();
                    let bytes = if self.inline { &self.words } else { bytes };
                    return Ok(Parsed::Command(Command {
                        args: &self.args,
                        bytes,
                        skipped,
                        consumed,
                        inline: self.inline,
                    }));
                }
                ParseStep::Wait(needed) => {
                    return Ok(Parsed::Incomplete { consumed: skipped, needed });
                }
            }
        }
    }

    /// Memory that a long command takes here beside its bytes, such as where each of its arguments
    /// is: 0 for what every parser has.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        let args = if self.args.capacity() > IDLE_ARGS {
            self.args.capacity() * size_of::<Range<usize>>()
        } else {
            0
        };
        let words = if self.words.capacity() > IDLE_WORDS { self.words.capacity() } else { 0 };
        args + words
    }

    /// Between two commands, when there is nothing to read: forgets the last one, and gives back
    /// what a long one took.
    pub fn release(&mut self) {
        if self.state == ParserState::Start && self.position == 0 {
            self.give_back(IDLE_ARGS, IDLE_WORDS);
        }
    }

    fn give_back(&mut self, args: usize, words: usize) {
        self.args.clear();
        self.words.clear();
        if self.args.capacity() > args {
            self.args.shrink_to(args);
        }
        if self.words.capacity() > words {
            self.words.shrink_to(words);
        }
    }

    /// Gets ready for the next command, and gives how many bytes the last one took.
    fn restart(&mut self) -> usize {
        self.state = ParserState::Start;
        self.searched = 0;
        core::mem::take(&mut self.position)
    }

    fn start(&mut self, buffer: &[u8]) -> Result<ParseStep, ProtocolError> {
        self.give_back(KEEP_ARGS, KEEP_WORDS);
        self.inline = buffer.get(self.position).is_some_and(|&first| first != b'*');
        if self.inline { self.inline_command(buffer) } else { self.multibulk_length(buffer) }
    }

    fn inline_command(&mut self, buffer: &[u8]) -> Result<ParseStep, ProtocolError> {
        let Some(end) = self.find(buffer, b'\n') else {
            if buffer.len() - self.position > MAX_LINE_BYTES {
                return Err(ProtocolError::TooBigInline);
            }
            return Ok(ParseStep::Wait(1));
        };
        let line = &buffer[self.position..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.advance(end + 1);
        split_words(line, &mut self.words, &mut self.args)?;
        Ok(if self.args.is_empty() { ParseStep::On } else { ParseStep::Whole })
    }

    fn multibulk_length(&mut self, buffer: &[u8]) -> Result<ParseStep, ProtocolError> {
        let Some((count, after)) = self.number_line(buffer, ProtocolError::TooBigMultibulkCount)?
        else {
            return Ok(ParseStep::Wait(1));
        };
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        if count > self.limits.max_args {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        self.advance(after);
        if count > 0 {
            self.state = ParserState::Length { left: count };
        }
        Ok(ParseStep::On)
    }

    fn bulk_length(&mut self, buffer: &[u8], left: usize) -> Result<ParseStep, ProtocolError> {
        let Some((length, after)) = self.number_line(buffer, ProtocolError::TooBigBulkCount)?
        else {
            return Ok(ParseStep::Wait(1));
        };
        let first = buffer[self.position];
        if first != b'$' {
            return Err(ProtocolError::ExpectedDollar(first));
        }
        let bytes = length
            .and_then(|length| usize::try_from(length).ok())
            .ok_or(ProtocolError::InvalidBulkLength)?;
        if bytes > self.limits.max_bulk_bytes {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if after + bytes > self.limits.max_command_bytes {
            return Err(ProtocolError::TooBigCommand);
        }
        self.advance(after);
        self.state = ParserState::Bulk { left, bytes };
        Ok(ParseStep::On)
    }

    fn bulk(&mut self, buffer: &[u8], left: usize, bytes: usize) -> ParseStep {
        let end = self.position + bytes;
        let have = buffer.len();
        if have < end + 2 {
            return ParseStep::Wait(end + 2 - have);
        }
        self.args.push(self.position..end);
        self.advance(end + 2);
        if left == 1 {
            return ParseStep::Whole;
        }
        self.state = ParserState::Length { left: left - 1 };
        ParseStep::On
    }

    /// The number of the line at `position`, after its first byte, and where the next line begins;
    /// `None` inside while the line is not whole, and for the number when it is not one.
    #[inline]
    fn number_line(
        &mut self,
        buffer: &[u8],
        too_long: ProtocolError,
    ) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
        if let Some((number, bytes)) = short_number(&buffer[self.position..]) {
            return Ok(Some((Some(number), self.position + bytes)));
        }
        let Some(end) = self.find(buffer, b'\r') else {
            if buffer.len() - self.position > MAX_LINE_BYTES {
                return Err(too_long);
            }
            return Ok(None);
        };
        // The line feed belongs to the line, and like Redis nobody looks at it.
        if end + 1 >= buffer.len() {
            self.searched = end;
            return Ok(None);
        }
        let digits = buffer.get(self.position + 1..end).unwrap_or_default();
        Ok(Some((parse_integer(digits), end + 2)))
    }

    /// Where the next `byte` at or after `position` is; remembers how far it looked.
    fn find(&mut self, buffer: &[u8], byte: u8) -> Option<usize> {
        let from = self.searched.max(self.position);
        let found = buffer[from..]
            .iter()
            .position(|&candidate| candidate == byte)
            .map(|index| from + index);
        self.searched = found.unwrap_or(buffer.len());
        found
    }

    fn advance(&mut self, to: usize) {
        self.position = to;
        self.searched = to;
    }
}

/// A number of up to three digits at the front, behind one byte and before the end of its line, and
/// the bytes of that line: nearly every count and length is one.
#[inline]
fn short_number(line: &[u8]) -> Option<(i64, usize)> {
    let digit = |byte: u8| i64::from(byte - b'0');
    match *line {
        [_, one @ b'0'..=b'9', b'\r', _, ..] => Some((digit(one), 4)),
        [_, ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', _, ..] => {
            Some((digit(ten) * 10 + digit(one), 5))
        }
        [_, hundred @ b'1'..=b'9', ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', _, ..] => {
            Some((digit(hundred) * 100 + digit(ten) * 10 + digit(one), 6))
        }
        _ => None,
    }
}

/// A number as Redis reads it: an optional minus, digits, no leading zero, no plus, no spaces.
fn parse_integer(digits: &[u8]) -> Option<i64> {
    let (negative, magnitude) = match digits {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, digits),
    };
    match magnitude {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    magnitude.iter().try_fold(0i64, |value, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        let value = value.checked_mul(10)?;
        if negative { value.checked_sub(digit) } else { value.checked_add(digit) }
    })
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Splits a line into words as Redis's `sdssplitargs` does: "double quotes" with escapes, 'single
/// quotes' with `\'`. Unlike there a zero byte does not end the line: a value that holds one is
/// taken whole.
fn split_words(
    line: &[u8],
    words: &mut Vec<u8>,
    args: &mut Vec<Range<usize>>,
) -> Result<(), ProtocolError> {
    let mut rest = line;
    while let Some(start) = rest.iter().position(|&byte| !is_space(byte)) {
        let from = words.len();
        rest = take_word(&rest[start..], words)?;
        args.push(from..words.len());
    }
    Ok(())
}

/// Appends the word at the front of `rest` to `words`, and gives what follows it.
fn take_word<'l>(mut rest: &'l [u8], words: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Ok(rest),
            [byte, ..] if is_space(*byte) => return Ok(rest),
            [b'"', after @ ..] => return closed(take_double_quoted(after, words)?),
            [b'\'', after @ ..] => return closed(take_single_quoted(after, words)?),
            [byte, after @ ..] => {
                words.push(*byte);
                rest = after;
            }
        }
    }
}

/// A closing quote is followed by a space or the end.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest {
        [byte, ..] if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn take_double_quoted<'l>(
    mut rest: &'l [u8],
    words: &mut Vec<u8>,
) -> Result<&'l [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                words.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                words.push(*byte);
                rest = after;
            }
        }
    }
}

fn take_single_quoted<'l>(
    mut rest: &'l [u8],
    words: &mut Vec<u8>,
) -> Result<&'l [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'\'', after @ ..] => {
                words.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Ok(after),
            [byte, after @ ..] => {
                words.push(*byte);
                rest = after;
            }
        }
    }
}

const fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

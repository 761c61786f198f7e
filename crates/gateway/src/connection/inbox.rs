//! What a connection has sent: the bytes from the oldest unanswered command on.
//!
//! ```text
//!   stream position   base                    parsed                 end
//!                      │ commands under way     │ not yet carried out │
//!   bytes              └────────────────────────┴─────────────────────┘
//! ```
//! Commands are read in place. Those under way stay here until they are answered, so that one whose
//! fast path failed (a conflict with a transaction) can be read again instead of having been copied
//! beforehand. In the steady state of a pipelining client a batch of frames's buffer arrives, becomes the
//! inbox as it is, and goes back to the pool when its last command is answered.

use core::ops::Range;

use timestone_wire::resp::{CommandParser, Parsed, ProtocolError, RespLimits};

use crate::commands::arguments::ArgumentBuffer;

/// A position in a connection's stream of bytes, cut to 32 bits: what is here spans far less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamPosition(u32);

/// A part of a command, counted from where the command begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandPart {
    begin: u32,
    bytes: u32,
}

impl CommandPart {
    /// The part in these places, unless it is too far away.
    #[inline]
    pub(crate) fn new(place: Range<usize>) -> Option<Self> {
        let (begin, bytes) = (place.start.try_into().ok()?, place.len().try_into().ok()?);
        Some(Self { begin, bytes })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inbox {
    parser: CommandParser,
    bytes: Vec<u8>,
    parsed: usize,
    base: u32,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            parser: CommandParser::new(RespLimits::default()),
            bytes: Vec::new(),
            parsed: 0,
            base: 0,
        }
    }

    /// Takes received bytes; `oldest` is where the oldest command under way begins. Gives back a
    /// buffer that is not needed.
    pub(crate) fn append(&mut self, received: Vec<u8>, oldest: Option<StreamPosition>) -> Vec<u8> {
        if self.bytes.is_empty() {
            return core::mem::replace(&mut self.bytes, received);
        }
        let needed_from = oldest.map_or(self.parsed, |oldest| self.offset(oldest));
        if needed_from * 2 >= self.bytes.len() {
            self.drop_front(needed_from);
        }
        self.assert_sound();
        self.bytes.extend_from_slice(&received);
        received
    }

    /// What holds between calls.
    #[inline]
    fn assert_sound(&self) {
        debug_assert!(self.parsed <= self.bytes.len(), "only what is here is carried out");
    }

    fn drop_front(&mut self, count: usize) {
        assert!(count <= self.parsed, "what is not carried out stays");
        self.bytes.drain(..count);
        self.parsed -= count;
        self.base = self.base.wrapping_add(count as u32);
    }

    fn offset(&self, position: StreamPosition) -> usize {
        position.0.wrapping_sub(self.base) as usize
    }

    /// Looks for the next command.
    pub(crate) fn parse(&mut self) -> Result<Parsed<'_>, ProtocolError> {
        self.assert_sound();
        self.parser.parse(&self.bytes[self.parsed..])
    }

    /// Where the next command begins.
    pub(crate) const fn position(&self) -> StreamPosition {
        StreamPosition(self.base.wrapping_add(self.parsed as u32))
    }

    /// The bytes that are not carried out.
    pub(crate) fn unparsed(&self) -> &[u8] {
        &self.bytes[self.parsed..]
    }

    /// Memory of the buffer and of the parser, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.parser.memory_bytes()
    }

    /// Memory of what is not carried out, in bytes: with where the arguments of the next command
    /// are.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.backlog() + self.parser.memory_bytes()
    }

    /// Makes room for so many bytes more, and no more than that.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
        self.assert_sound();
    }

    /// Goes on behind a command that was carried out, or behind bytes that hold nothing.
    pub(crate) const fn consume(&mut self, bytes: usize) {
        self.parsed += bytes;
        debug_assert!(self.parsed <= self.bytes.len(), "only what is here is carried out");
    }

    /// Bytes that are not carried out yet.
    pub(crate) fn backlog(&self) -> usize {
        self.bytes.len() - self.parsed
    }

    /// Reads the command at `position` again, and appends its arguments.
    pub(crate) fn read_again(
        &self,
        position: StreamPosition,
        arguments: &mut ArgumentBuffer,
    ) -> Option<Range<u32>> {
        let from = self.offset(position);
        debug_assert!(from < self.parsed, "it was read before");
        let mut parser = CommandParser::new(RespLimits::default());
        match parser.parse(self.bytes.get(from..)?) {
            Ok(Parsed::Command(command)) => Some(arguments.push_command(&command)),
            _ => None,
        }
    }

    /// A part of the command at `position`, which is under way.
    #[inline]
    pub(crate) fn part(&self, position: StreamPosition, part: CommandPart) -> &[u8] {
        let from = self.offset(position) + part.begin as usize;
        debug_assert!(from + part.bytes as usize <= self.parsed, "it was read before");
        &self.bytes[from..from + part.bytes as usize]
    }

    /// Gives the buffer back when everything is carried out; only while nothing is under way.
    pub(crate) fn release(&mut self) -> Option<Vec<u8>> {
        self.assert_sound();
        if self.parsed < self.bytes.len() || self.bytes.capacity() == 0 {
            return None;
        }
        self.parser.release();
        self.base = self.base.wrapping_add(self.parsed as u32);
        self.parsed = 0;
        Some(core::mem::take(&mut self.bytes))
    }

    /// The buffer, of a connection that is over.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Drops everything that is not carried out: the connection is at its end.
    pub(crate) fn discard(&mut self) {
        self.bytes.truncate(self.parsed);
        self.assert_sound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(inbox: &mut Inbox) -> Option<(StreamPosition, Vec<u8>)> {
        let at = inbox.position();
        let (word, consumed) = match inbox.parse().unwrap() {
            Parsed::Command(command) => (Some(command.name().to_vec()), command.consumed()),
            Parsed::Incomplete { consumed, .. } => (None, consumed),
        };
        inbox.consume(consumed);
        word.map(|word| (at, word))
    }

    #[test]
    fn commands_in_progress_can_be_read_again_and_the_rest_is_dropped() {
        let mut inbox = Inbox::new();
        assert!(inbox.append(b"one\r\ntwo\r\nthr".to_vec(), None).is_empty());
        let (first, word) = next(&mut inbox).unwrap();
        assert_eq!(word, b"one");
        let (second, _) = next(&mut inbox).unwrap();
        assert!(next(&mut inbox).is_none());
        inbox.append(b"ee\r\n".to_vec(), Some(first));
        let (third, word) = next(&mut inbox).unwrap();
        assert_eq!(word, b"three");
        let mut arguments = ArgumentBuffer::default();
        assert_eq!(inbox.read_again(first, &mut arguments), Some(0..1));
        assert_eq!(inbox.read_again(second, &mut arguments), Some(1..2));
        assert_eq!((arguments.argument(0), arguments.argument(1)), (&b"one"[..], &b"two"[..]));
        // Now the first two are answered.
        inbox.append(b"four\r\n".to_vec(), Some(third));
        assert_eq!(inbox.read_again(third, &mut arguments), Some(2..3));
        assert_eq!(arguments.argument(2), b"three");
        assert_eq!(inbox.release(), None, "the fourth is not carried out");
        assert!(next(&mut inbox).is_some());
        assert!(inbox.release().is_some());
        assert_eq!(inbox.backlog(), 0);
    }
}

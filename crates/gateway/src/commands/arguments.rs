//! Commands that are kept: their arguments one after the other in one buffer, and where each of them
//! is.
//!
//! What is carried out at once is read in place from the receive buffer; what waits (a
//! transaction's queue, a command that must be able to run again) is copied here, once.

use core::ops::Range;

use timestone_wire::resp::Command;

/// One argument of an [`ArgumentBuffer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ArgumentSpan {
    start: u32,
    length: u32,
}

/// Arguments of any number of commands. Holds less than 4 GiB, which the bounds of commands and
/// transactions see to.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ArgumentBuffer {
    bytes: Vec<u8>,
    spans: Vec<ArgumentSpan>,
}

/// Memory above this is given back when the arguments are cleared.
const KEPT_BYTES: usize = 16 * 1024;
const KEPT_SPANS: usize = 1024;

impl ArgumentBuffer {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS);
        self.assert_sound();
    }

    /// The arguments fill the buffer, one after the other.
    #[inline]
    fn assert_sound(&self) {
        let end = self.spans.last().map_or(0, |last| (last.start + last.length) as usize);
        debug_assert_eq!(end, self.bytes.len(), "the last argument ends where the buffer does");
    }

    /// Gives back what a long command took; call it when nothing of them is needed any more.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES || self.spans.capacity() > KEPT_SPANS {
            self.clear();
        }
        self.assert_sound();
    }

    /// Appends one argument.
    pub(crate) fn push(&mut self, argument: &[u8]) {
        let start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(argument.len()).unwrap_or(u32::MAX);
        assert!(
            start < u32::MAX && length < u32::MAX,
            "commands and transactions are bounded far below 4 GiB"
        );
        self.bytes.extend_from_slice(argument);
        self.spans.push(ArgumentSpan { start, length });
    }

    /// Appends the arguments of a command; the range names them in [`ArgumentBuffer::args`].
    pub(crate) fn push_command(&mut self, command: &Command<'_>) -> Range<u32> {
        self.assert_sound();
        let from = self.count();
        command.args().for_each(|argument| self.push(argument));
        from..self.count()
    }

    /// Appends the arguments of another list.
    pub(crate) fn push_args(&mut self, args: Args<'_>) -> Range<u32> {
        self.assert_sound();
        let from = self.count();
        args.iter().for_each(|argument| self.push(argument));
        from..self.count()
    }

    /// How many arguments there are.
    pub(crate) fn count(&self) -> u32 {
        self.spans.len() as u32
    }

    /// How many bytes they have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that they take: their bytes, and where each of them is.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<ArgumentSpan>()
    }

    /// The memory that they keep.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<ArgumentSpan>()
    }

    /// An argument by its place.
    pub(crate) fn argument(&self, at: u32) -> &[u8] {
        self.spans.get(at as usize).map_or(&[], |span| slice(&self.bytes, *span))
    }

    /// Some of the arguments, as one command.
    pub(crate) fn args(&self, range: Range<u32>) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans[range.start as usize..range.end as usize] }
    }

    /// All arguments as one command.
    pub(crate) fn all(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }
}

fn slice(bytes: &[u8], span: ArgumentSpan) -> &[u8] {
    &bytes[span.start as usize..(span.start + span.length) as usize]
}

/// The arguments of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [ArgumentSpan],
}

impl<'a> Args<'a> {
    /// How many arguments, the name included.
    pub(crate) const fn len(&self) -> usize {
        self.spans.len()
    }

    /// The table of commands has checked that there are at least so many, the name included.
    #[inline]
    pub(crate) fn assert_at_least(&self, count: usize) {
        debug_assert!(self.len() >= count, "{} arguments, {count} were checked", self.len());
    }

    /// An argument; empty when there are not so many.
    pub(crate) fn get(&self, at: usize) -> &'a [u8] {
        self.spans.get(at).map_or(&[], |span| slice(self.bytes, *span))
    }

    /// Whether an argument is this one, in either case.
    pub(crate) fn is(&self, at: usize, argument: &[u8]) -> bool {
        self.get(at).eq_ignore_ascii_case(argument)
    }

    /// The memory that they take in an [`ArgumentBuffer`].
    pub(crate) fn memory_bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum::<usize>() + size_of_val(self.spans)
    }

    /// All arguments.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + 'a {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| slice(bytes, *span))
    }

    /// The arguments from this one on.
    pub(crate) fn from(&self, at: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(at..).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_several_commands_are_told_apart() {
        let mut arguments = ArgumentBuffer::default();
        arguments.push(b"GET");
        arguments.push(b"");
        let first = 0..arguments.count();
        arguments.push(b"PING");
        let second = first.end..arguments.count();
        assert_eq!(arguments.args(first).iter().collect::<Vec<_>>(), [&b"GET"[..], b""]);
        assert!(arguments.args(second.clone()).is(0, b"ping"));
        assert_eq!(arguments.args(second).get(7), b"");
        assert_eq!(
            (arguments.argument(2), arguments.argument(9), arguments.bytes()),
            (&b"PING"[..], &b""[..], 7)
        );
    }
}

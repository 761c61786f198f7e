//! Commands that are kept: their words one after the other in one buffer, and where each of them
//! is.
//!
//! What is carried out at once is read in place from the receive buffer; what waits (a
//! transaction's queue, a command that must be able to run again) is copied here, once.

use core::ops::Range;

use timestone_wire::resp::Command;

/// One word of a [`Words`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    start: u32,
    length: u32,
}

/// Words of any number of commands. Holds less than 4 GiB, which the bounds of commands and
/// transactions see to.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// Memory above this is given back when the words are cleared.
const KEPT_BYTES: usize = 16 * 1024;
const KEPT_SPANS: usize = 1024;

impl Words {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS);
    }

    /// Gives back what a long command took; call it when nothing of them is needed any more.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES || self.spans.capacity() > KEPT_SPANS {
            self.clear();
        }
    }

    /// Appends one word.
    pub(super) fn push(&mut self, word: &[u8]) {
        let start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(word.len()).unwrap_or(u32::MAX);
        assert!(
            start < u32::MAX && length < u32::MAX,
            "commands and transactions are bounded far below 4 GiB"
        );
        self.bytes.extend_from_slice(word);
        self.spans.push(Span { start, length });
    }

    /// Appends the words of a command; the range names them in [`Words::args`].
    pub(super) fn push_command(&mut self, command: &Command<'_>) -> Range<u32> {
        let from = self.count();
        command.args().for_each(|word| self.push(word));
        from..self.count()
    }

    /// Appends the words of another list.
    pub(super) fn push_args(&mut self, args: Args<'_>) -> Range<u32> {
        let from = self.count();
        args.iter().for_each(|word| self.push(word));
        from..self.count()
    }

    /// How many words there are.
    pub(super) fn count(&self) -> u32 {
        self.spans.len() as u32
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that they take: their bytes, and where each of them is.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>()
    }

    /// The memory that they keep.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// A word by its place.
    pub(super) fn word(&self, at: u32) -> &[u8] {
        self.spans.get(at as usize).map_or(&[], |span| slice(&self.bytes, *span))
    }

    /// Some of the words, as one command.
    pub(super) fn args(&self, range: Range<u32>) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans[range.start as usize..range.end as usize] }
    }

    /// All words as one command.
    pub(super) fn all(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }
}

fn slice(bytes: &[u8], span: Span) -> &[u8] {
    &bytes[span.start as usize..(span.start + span.length) as usize]
}

/// The words of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// How many words, the name included.
    pub(super) const fn len(&self) -> usize {
        self.spans.len()
    }

    /// A word; empty when there are not so many.
    pub(super) fn get(&self, at: usize) -> &'a [u8] {
        self.spans.get(at).map_or(&[], |span| slice(self.bytes, *span))
    }

    /// Whether a word is this one, in either case.
    pub(super) fn is(&self, at: usize, word: &[u8]) -> bool {
        self.get(at).eq_ignore_ascii_case(word)
    }

    /// The memory that they take in a [`Words`].
    pub(super) fn memory_bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum::<usize>() + size_of_val(self.spans)
    }

    /// All words.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + 'a {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| slice(bytes, *span))
    }

    /// The words from this one on.
    pub(super) fn from(&self, at: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(at..).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_several_commands_are_told_apart() {
        let mut words = Words::default();
        words.push(b"GET");
        words.push(b"");
        let first = 0..words.count();
        words.push(b"PING");
        let second = first.end..words.count();
        assert_eq!(words.args(first).iter().collect::<Vec<_>>(), [&b"GET"[..], b""]);
        assert!(words.args(second.clone()).is(0, b"ping"));
        assert_eq!(words.args(second).get(7), b"");
        assert_eq!((words.word(2), words.word(9), words.bytes()), (&b"PING"[..], &b""[..], 7));
    }
}

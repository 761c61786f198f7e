//! What is left of a range that is read a part at a time, in either direction.

use timestone_types::{Direction, KeyRange, key_behind};

use super::Wanted;

/// The keys of a range that have not been looked at yet: they are its end when it is read upwards, and its
/// beginning when it is read downwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RangeLeft {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    direction: Direction,
}

impl RangeLeft {
    /// All of a range.
    pub(crate) fn new(range: KeyRange<'_>, direction: Direction) -> Self {
        Self { from: range.from.to_vec(), to: range.to.map(<[u8]>::to_vec), direction }
    }

    /// What a walk is to see next.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        let (from, to, direction) = (self.from.as_slice(), self.to.as_deref(), self.direction);
        Wanted { from, to, direction, above: None }
    }

    /// A walk ended at `next` ([`Walked::UpTo`](super::Walked::UpTo)).
    pub(crate) fn go_on(&mut self, next: Vec<u8>) {
        match self.direction {
            Direction::Ascending => {
                debug_assert!(next >= self.from, "a read goes on");
                self.from = next;
            }
            Direction::Descending => {
                debug_assert!(self.to.as_ref().is_none_or(|to| next <= *to), "a read goes on");
                self.to = Some(next);
            }
        }
    }

    /// This key is the next one to be looked at.
    pub(crate) fn stop_at(&mut self, key: &[u8]) {
        self.go_on(match self.direction {
            Direction::Ascending => key.to_vec(),
            Direction::Descending => key_behind(key),
        });
    }

    /// Where a read of what is left begins: at this key, or, downwards, with the last key before it.
    pub(crate) fn next(self) -> Vec<u8> {
        match self.direction {
            Direction::Ascending => self.from,
            Direction::Descending => self.to.unwrap_or_default(),
        }
    }
}

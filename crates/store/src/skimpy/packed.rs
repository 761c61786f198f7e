//! What memory knows of each bucket, in few bytes.
//!
//! ```text
//!   pages: 3 bytes each ─► a page beyond 2^24 is noted ─► 4 bytes each from then on
//!   small numbers: 4 bits each, two in a byte
//! ```
//!
//! There are as many buckets as a third of the keys or more, so a byte of each is a third of a byte of
//! a key.

use crate::layout::NO_PAGE;

/// The first page for which three bytes are too few: they say that there is none.
const BEYOND: u32 = (1 << 24) - 1;

/// A page, or none, for each number.
pub(super) struct PackedPages {
    /// Bytes of each.
    width: usize,
    bytes: Vec<u8>,
}

impl PackedPages {
    /// None for any of so many.
    pub(super) fn none(count: usize) -> Self {
        Self { width: 3, bytes: vec![u8::MAX; count * 3] }
    }

    /// The page of a number.
    pub(super) fn get(&self, at: usize) -> u32 {
        let begin = at * self.width;
        let mut page = [0; 4];
        page[..self.width].copy_from_slice(&self.bytes[begin..begin + self.width]);
        match u32::from_le_bytes(page) {
            BEYOND if self.width == 3 => NO_PAGE,
            page => page,
        }
    }

    /// Changes the page of a number.
    pub(super) fn set(&mut self, at: usize, page: u32) {
        if self.width == 3 && page >= BEYOND && page != NO_PAGE {
            self.widen();
        }
        let begin = at * self.width;
        // That there is none are bits that are set, however many.
        self.bytes[begin..begin + self.width].copy_from_slice(&page.to_le_bytes()[..self.width]);
    }

    fn widen(&mut self) {
        let bytes = self.iter().flat_map(u32::to_le_bytes).collect();
        *self = Self { width: 4, bytes };
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// All pages, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).map(|at| self.get(at))
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A number of four bits for each number; zero at first.
pub(super) struct Nibbles {
    bytes: Vec<u8>,
}

impl Nibbles {
    /// The largest one.
    pub(super) const MOST: u8 = 15;

    /// So many zeros.
    pub(super) fn zeros(count: usize) -> Self {
        Self { bytes: vec![0; count.div_ceil(2)] }
    }

    /// The one of a number.
    pub(super) fn get(&self, at: usize) -> u8 {
        (self.bytes[at / 2] >> (at % 2 * 4)) & Self::MOST
    }

    /// Changes the one of a number; `value`: at most [`Self::MOST`].
    pub(super) fn set(&mut self, at: usize, value: u8) {
        debug_assert!(value <= Self::MOST, "it has four bits");
        let (byte, shift) = (&mut self.bytes[at / 2], at % 2 * 4);
        *byte = *byte & !(Self::MOST << shift) | value << shift;
    }

    /// Sets all that are `old` to zero.
    pub(super) fn clear(&mut self, old: u8) {
        for byte in &mut self.bytes {
            if *byte & Self::MOST == old {
                *byte &= !Self::MOST;
            }
            if *byte >> 4 == old {
                *byte &= Self::MOST;
            }
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_take_three_bytes_until_one_needs_four() {
        let mut pages = PackedPages::none(3);
        pages.set(1, BEYOND - 1);
        assert_eq!(pages.iter().collect::<Vec<_>>(), [NO_PAGE, BEYOND - 1, NO_PAGE]);
        assert_eq!((pages.count(), pages.memory_bytes()), (3, 9));
        pages.set(2, BEYOND);
        assert_eq!(pages.iter().collect::<Vec<_>>(), [NO_PAGE, BEYOND - 1, BEYOND]);
        pages.set(0, NO_PAGE - 2);
        pages.set(1, NO_PAGE);
        assert_eq!(pages.iter().collect::<Vec<_>>(), [NO_PAGE - 2, NO_PAGE, BEYOND]);
        assert_eq!((pages.count(), pages.memory_bytes()), (3, 12));
    }

    #[test]
    fn small_numbers_leave_their_neighbours_alone() {
        let mut nibbles = Nibbles::zeros(5);
        for (at, value) in [(0, 7), (1, 15), (2, 7), (4, 1), (1, 3)] {
            nibbles.set(at, value);
        }
        let all = |nibbles: &Nibbles| (0..5).map(|at| nibbles.get(at)).collect::<Vec<_>>();
        assert_eq!(all(&nibbles), [7, 3, 7, 0, 1]);
        nibbles.clear(7);
        assert_eq!(all(&nibbles), [0, 3, 0, 0, 1]);
    }
}

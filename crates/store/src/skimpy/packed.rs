//! What memory knows of each bucket, in few bits.
//!
//! ```text
//!   pages: as many bits each as the device's last one needs
//!   small numbers: 4 bits each, two in a byte
//! ```
//!
//! There are as many buckets as a third of the keys or more, so eight bits of each are a third of a byte
//! of a key.

use crate::layout::NO_PAGE;

/// Bytes that are read and written at once.
const WORD: usize = size_of::<u64>();

/// A page, or none, for each number.
pub(super) struct PackedPages {
    count: usize,
    /// Bits of each, 32 at most; all of them are set where there is no page.
    width: u32,
    /// With room for a word that begins in the last byte.
    bytes: Vec<u8>,
}

impl PackedPages {
    /// None for any of so many; there are `pages` on the device, or there will be.
    pub(super) fn none(count: usize, pages: u32) -> Self {
        let width = (u32::BITS - pages.leading_zeros()).max(1);
        let bytes = (count * width as usize).div_ceil(8) + WORD - 1;
        Self { count, width, bytes: vec![u8::MAX; bytes] }
    }

    /// Where the word begins that has a number's page, and how many bits lie before that.
    const fn place(&self, at: usize) -> (usize, u32) {
        let bit = at * self.width as usize;
        (bit / 8, (bit % 8) as u32)
    }

    fn word(&self, begin: usize) -> u64 {
        let bytes = &self.bytes[begin..begin + WORD];
        u64::from_le_bytes(bytes.try_into().expect("it is as long"))
    }

    /// All bits of a page: there is none.
    const fn none_of(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// Whether a page is one of the device, or none.
    pub(super) fn has_room_for(&self, page: u32) -> bool {
        page == NO_PAGE || u64::from(page) < self.none_of()
    }

    /// The page of a number.
    pub(super) fn get(&self, at: usize) -> u32 {
        debug_assert!(at < self.count);
        let (begin, shift) = self.place(at);
        let page = self.word(begin) >> shift & self.none_of();
        if page == self.none_of() { NO_PAGE } else { page as u32 }
    }

    /// Changes the page of a number.
    pub(super) fn set(&mut self, at: usize, page: u32) {
        assert!(self.has_room_for(page), "page {page} lies beyond the device");
        debug_assert!(at < self.count);
        let (begin, shift) = self.place(at);
        let bits = self.none_of() << shift;
        // That there is none are bits that are set, however many.
        let word = self.word(begin) & !bits | u64::from(page) << shift & bits;
        self.bytes[begin..begin + WORD].copy_from_slice(&word.to_le_bytes());
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// All pages, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).map(|at| self.get(at))
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A number of four bits for each number; zero at first.
#[derive(Clone, Copy)]
pub(super) struct Nibbles<B = Vec<u8>> {
    bytes: B,
}

impl Nibbles {
    /// The largest one.
    pub(super) const MOST: u8 = 15;

    /// So many zeros.
    pub(super) fn zeros(count: usize) -> Self {
        Self { bytes: vec![0; count.div_ceil(2)] }
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

impl<const BYTES: usize> Nibbles<[u8; BYTES]> {
    /// Two zeros for each byte.
    pub(super) const ZEROS: Self = Self { bytes: [0; BYTES] };

    /// Adds one to that of a number, up to the largest.
    pub(super) fn raise(&mut self, at: usize) {
        self.set(at, (self.get(at) + 1).min(Nibbles::MOST));
    }

    /// Halves all of them.
    pub(super) fn halve(&mut self) {
        for byte in &mut self.bytes {
            *byte = *byte >> 1 & 0x77;
        }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Nibbles<B> {
    /// The one of a number.
    pub(super) fn get(&self, at: usize) -> u8 {
        (self.bytes.as_ref()[at / 2] >> (at % 2 * 4)) & Nibbles::MOST
    }

    /// Changes the one of a number; `value`: at most [`Nibbles::MOST`].
    pub(super) fn set(&mut self, at: usize, value: u8) {
        debug_assert!(value <= Nibbles::MOST, "it has four bits");
        let (byte, shift) = (&mut self.bytes.as_mut()[at / 2], at % 2 * 4);
        *byte = *byte & !(Nibbles::MOST << shift) | value << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_take_as_many_bits_as_the_last_one() {
        for (pages, width) in [(1, 1), (2, 2), (127, 7), (128, 8), (7_812_500, 23), (1 << 24, 25)] {
            let packed = PackedPages::none(100, pages);
            assert_eq!((packed.width, packed.count()), (width, 100), "{pages}");
            assert_eq!(packed.memory_bytes(), (100 * width as usize).div_ceil(8) + 7);
            assert!(packed.iter().all(|page| page == NO_PAGE) && packed.has_room_for(pages - 1));
        }
        assert_eq!(PackedPages::none(1, NO_PAGE).width, 32);
    }

    #[test]
    fn pages_leave_their_neighbours_alone() {
        for pages in [1, 2, 3, 100, 1 << 15, 7_812_500, (1 << 23) - 1, 1 << 31, NO_PAGE] {
            let (mut packed, mut plain) = (PackedPages::none(37, pages), [NO_PAGE; 37]);
            for n in 0..1000u32 {
                let at = (n * 17 % 37) as usize;
                let page = if n % 5 == 0 { NO_PAGE } else { n.wrapping_mul(0x9e37_79b1) % pages };
                packed.set(at, page);
                plain[at] = page;
                assert!(packed.iter().eq(plain), "{pages} {n}");
            }
        }
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
    #[test]
    fn small_numbers_are_counted_up_and_halved() {
        let mut nibbles = Nibbles::<[u8; 2]>::ZEROS;
        (0..20).for_each(|_| nibbles.raise(1));
        (0..7).for_each(|_| nibbles.raise(2));
        let all = |nibbles: &Nibbles<[u8; 2]>| [0, 1, 2, 3].map(|at| nibbles.get(at));
        assert_eq!(all(&nibbles), [0, 15, 7, 0]);
        nibbles.halve();
        assert_eq!(all(&nibbles), [0, 7, 3, 0]);
    }
}

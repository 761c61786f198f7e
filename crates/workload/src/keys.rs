//! Keys by number, and how they look as bytes.
//!
//! Generators speak of key numbers; only who sends a request spells one out, into its own buffer.
//! The hot keys of a skewed distribution are strewn over the numbers, because keys with
//! neighbouring numbers are loaded together and would share pages.

use crate::limits::MIN_KEY_BYTES;

/// A key of a workload, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyIndex(pub u64);

/// How long keys are.
///
/// ```
/// use timestone_workload::{KeyIndex, KeyShape};
///
/// let mut key = Vec::new();
/// KeyShape::new(16).write(KeyIndex(1234), &mut key);
/// assert_eq!(key, b"k000000000001234");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyShape {
    bytes: usize,
    /// Neighbouring numbers are no neighbours in the order of keys.
    is_strewn: bool,
}

/// A fraction of all spellings that lies near their golden section, and has no factor in common with any power
/// of ten: multiples of it fall into the middle of the largest gaps between earlier ones.
const STEP_OF_TEN: u64 = 618_033_988_749_894_849;
/// The lowest power of ten above it.
const STEP_WHOLE: u64 = 1_000_000_000_000_000_000;

impl KeyShape {
    /// Keys of this many bytes, at least [`MIN_KEY_BYTES`].
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes: bytes.max(MIN_KEY_BYTES), is_strewn: false }
    }

    /// Keys whose order is not that of their numbers: a key with a new number lies between those that are
    /// there, wherever those are. YCSB spells hashes of its numbers for that; here no two are the same.
    #[must_use]
    pub const fn strewn(self) -> Self {
        Self { is_strewn: true, ..self }
    }

    /// The number that is spelled for a key, below the capacity.
    fn spelled(self, key: KeyIndex) -> u64 {
        match (self.is_strewn, self.capacity()) {
            (false, _) => key.0,
            // Twenty digits and more hold any number.
            (true, u64::MAX) => key.0.wrapping_mul(STEP_OF_TEN),
            (true, capacity) => {
                // Nearly the golden section of the capacity, and odd, and no multiple of five.
                let step = (STEP_OF_TEN / (STEP_WHOLE / capacity.min(STEP_WHOLE))) / 10 * 10 + 9;
                (u128::from(key.0) * u128::from(step) % u128::from(capacity)) as u64
            }
        }
    }

    /// How many bytes a key has.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// How many keys have a spelling of their own.
    #[must_use]
    pub fn capacity(self) -> u64 {
        u32::try_from(self.bytes - 1)
            .ok()
            .and_then(|digits| 10u64.checked_pow(digits))
            .unwrap_or(u64::MAX)
    }

    /// Appends the key's bytes: `k` and the number in decimal digits, filled up with zeros; of strewn keys
    /// another number that no other key has.
    pub fn write(self, key: KeyIndex, out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + self.bytes, b'0');
        let spelled = &mut out[begin..];
        spelled[0] = b'k';
        let mut rest = self.spelled(key);
        for digit in spelled[1..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        debug_assert_eq!(rest, 0, "the specification checks that keys fit");
    }

    /// The number of a key that [`write`](Self::write) spelled, where keys are in the order of their numbers.
    #[must_use]
    pub fn read(self, key: &[u8]) -> Option<KeyIndex> {
        debug_assert!(!self.is_strewn, "nobody asks which number a strewn key has");
        let digits = key.strip_prefix(b"k").filter(|_| key.len() == self.bytes)?;
        digits
            .iter()
            .try_fold(0u64, |sum, &digit| {
                let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
                sum.checked_mul(10)?.checked_add(u64::from(digit))
            })
            .map(KeyIndex)
    }
}

/// A fixed permutation of the key numbers below a count: rank → rank · m mod count, with m coprime
/// to the count and near its golden section, so that neighbouring ranks land far apart.
#[derive(Clone, Copy, Debug)]
pub struct Strewing {
    count: u64,
    multiplier: u64,
}

impl Strewing {
    /// Of the numbers below `count`, at least 1.
    #[must_use]
    pub fn new(count: u64) -> Self {
        let count = count.max(1);
        let mut multiplier = ((count as f64 * 0.618_033_988_749_895) as u64).max(1);
        while greatest_common_divisor(multiplier, count) != 1 {
            multiplier += 1;
        }
        Self { count, multiplier }
    }

    /// The key of a rank, which must be below the count.
    #[inline]
    #[must_use]
    pub fn key(self, rank: u64) -> KeyIndex {
        // Up to 2³² keys, which is every realistic run, the product fits 64 bits and the division
        // is several times cheaper.
        if self.count <= u64::from(u32::MAX) {
            KeyIndex(rank * self.multiplier % self.count)
        } else {
            KeyIndex(
                (u128::from(rank) * u128::from(self.multiplier) % u128::from(self.count)) as u64,
            )
        }
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_as_written() {
        for (bytes, index) in [(16, 0), (16, 999_999_999_999_999), (8, 9_999_999), (64, u64::MAX)] {
            let shape = KeyShape::new(bytes);
            let mut key = b"before".to_vec();
            shape.write(KeyIndex(index), &mut key);
            assert_eq!(key.len(), 6 + bytes);
            assert_eq!(shape.read(&key[6..]), Some(KeyIndex(index)));
        }
        assert_eq!(KeyShape::new(16).read(b"k00000000000123"), None);
        assert_eq!(KeyShape::new(16).read(b"x000000000001234"), None);
        assert_eq!(KeyShape::new(16).read(b"k00000000000123x"), None);
    }

    #[test]
    fn strewn_keys_differ_and_new_ones_fall_among_those_that_are_there() {
        for bytes in [8, 9, 16, 19, 20, 21, 32] {
            let shape = KeyShape::new(bytes).strewn();
            let spell = |index| {
                let mut key = Vec::new();
                shape.write(KeyIndex(index), &mut key);
                assert_eq!(key.len(), bytes);
                key
            };
            let mut keys: Vec<Vec<u8>> = (0..10_000).map(spell).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 10_000, "{bytes}");
            // Of a thousand new keys hardly two come one after the other.
            let places: std::collections::BTreeSet<usize> = (10_000..11_000)
                .map(|index| keys.partition_point(|key| *key < spell(index)))
                .collect();
            assert!(places.len() > 900, "{bytes}: {}", places.len());
        }
        // Every number of the shortest keys has a spelling of its own.
        let shape = KeyShape::new(8).strewn();
        let mut seen = vec![false; 10_000_000];
        (0..10_000_000).for_each(|index| seen[shape.spelled(KeyIndex(index)) as usize] = true);
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn capacity_counts_the_digits() {
        assert_eq!(KeyShape::new(8).capacity(), 10_000_000);
        assert_eq!(KeyShape::new(64).capacity(), u64::MAX);
    }

    #[test]
    fn strewing_is_a_permutation() {
        for count in [1u64, 2, 6, 10, 97, 1_000, 4_096] {
            let strewing = Strewing::new(count);
            let mut seen: Vec<u64> = (0..count).map(|rank| strewing.key(rank).0).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
        let large = Strewing::new(5_000_000_000);
        assert!(large.key(4_999_999_999).0 < 5_000_000_000);
        assert_ne!(large.key(1), large.key(2));
    }
}

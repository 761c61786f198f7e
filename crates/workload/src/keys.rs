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
}

impl KeyShape {
    /// Keys of this many bytes, at least [`MIN_KEY_BYTES`].
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes: bytes.max(MIN_KEY_BYTES) }
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

    /// Appends the key's bytes: `k` and the number in decimal digits, filled up with zeros.
    pub fn write(self, key: KeyIndex, out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + self.bytes, b'0');
        let spelled = &mut out[begin..];
        spelled[0] = b'k';
        let mut rest = key.0;
        for digit in spelled[1..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        debug_assert_eq!(rest, 0, "the specification checks that keys fit");
    }

    /// The number of a key that [`write`](Self::write) spelled.
    #[must_use]
    pub fn read(self, key: &[u8]) -> Option<KeyIndex> {
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

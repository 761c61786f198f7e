//! A small, fast, portable source of random numbers that is a function of its seed.
//!
//! `SplitMix64` (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): one
//! addition and three multiply-shift steps a number, passes BigCrush, and its stream is fixed by
//! its definition, so that a seed means the same workload in every version of this crate. Not for
//! secrets.

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The stream of a part (a client, a purpose) of whatever has `seed`; streams of different
    /// parts are unrelated.
    #[must_use]
    pub const fn derived(seed: u64, part: u64) -> Self {
        Self {
            state: mix(seed.wrapping_add(GAMMA))
                ^ mix(part.wrapping_mul(GAMMA).wrapping_add(0x5851_f42d_4c95_7f2d)),
        }
    }

    /// Any 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number below `bound`, which must not be zero; its bias is below `bound` / 2⁶⁴.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "there is no number below zero");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number in [0, 1), a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// `true` with probability `percent` / 100.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs of SplitMix64 for the seed 1234567, as its reference implementation prints
        // them.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn parts_of_one_seed_differ() {
        let first = |seed, part| Random::derived(seed, part).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
        assert_ne!(first(1, 2), first(2, 1));
    }

    #[test]
    fn bounds_are_kept_and_met() {
        let mut random = Random::new(5);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[usize::try_from(random.between(3, 9)).unwrap() - 3] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|&count| (850..1_150).contains(&count)), "{seen:?}");
    }
}

//! What workloads draw with: [`Dice`] of a seed, and of a part of whatever has a seed.
//!
//! A seed means the same workload in every version of this crate, so that the streams are fixed:
//! `SplitMix64` (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), as
//! its definition has it. Not for secrets.

use timestone_types::random::{Dice, Seed};

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(Dice);

/// What tells the seeds of parts from those of wholes. Recorded seeds hang on it.
const PART: u64 = 0x5851_f42d_4c95_7f2d;
/// The step of `SplitMix64`'s state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Seed(seed).dice())
    }

    /// The stream of a part (a client, a purpose) of whatever has `seed`; streams of different
    /// parts are unrelated.
    #[must_use]
    pub const fn derived(seed: u64, part: u64) -> Self {
        // Dice step before they mix: one step back gives what is mixed itself.
        let part = part.wrapping_mul(GAMMA).wrapping_add(PART).wrapping_sub(GAMMA);
        Self::new(Seed(seed).dice().roll() ^ Seed(part).dice().roll())
    }

    /// Any 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0.roll()
    }

    /// A number below `bound`, which must not be zero; its bias is below `bound` / 2⁶⁴.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "there is no number below zero");
        self.0.below(bound)
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number in [0, 1), a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.0.fraction()
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
    fn the_streams_of_parts_are_those_that_seeds_were_recorded_with() {
        assert_eq!(Random::derived(1, 2).bits(), 11_298_358_692_672_928_611);
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

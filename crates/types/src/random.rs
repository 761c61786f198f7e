//! Where all randomness comes from: one root seed, and a seed of its own for everything that draws.
//!
//! ```text
//!   root ── derive("network", 0) ──► the network's dice
//!        ── derive("server", 2) ──► server 2 ── derive("flash", 1) ──► the latencies of its second shard's device
//! ```
//! A derived seed is `mix(parent ⊕ fnv1a(name) ⊕ mix(index))`, with SplitMix64's output function as
//! `mix`. What one component draws therefore never shifts what another one does: a scenario with
//! one fault kind less meets the same workload.

/// A seed; see the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of the component called `name`, the `index`-th of its kind.
    #[must_use]
    pub fn derive(self, name: &str, index: u64) -> Self {
        let hashed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(mix(self.0 ^ hashed ^ mix(index)))
    }

    /// Dice that draw from it.
    #[must_use]
    pub const fn dice(self) -> Dice {
        Dice(self.0)
    }
}

/// `SplitMix64`'s output function (Steele, Lea, Flood 2014).
const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The next 64 bits.
    #[inline]
    pub const fn roll(&mut self) -> u64 {
        let rolled = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        rolled
    }

    /// The same stream behind its next `count` numbers.
    #[must_use]
    pub const fn skipped(&self, count: u64) -> Self {
        Self(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(count)))
    }

    /// A number below `bound`; zero when that is zero.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.roll() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from zero up to, and without, one.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_draw_from_unrelated_streams() {
        let root = Seed(1);
        assert_eq!(root.derive("network", 0), root.derive("network", 0));
        let seeds = [
            root.derive("network", 0),
            root.derive("network", 1),
            root.derive("disk", 0),
            Seed(2).derive("disk", 0),
        ];
        for (at, seed) in seeds.iter().enumerate() {
            assert!(seeds[at + 1..].iter().all(|other| other != seed));
        }
    }

    #[test]
    fn a_stream_goes_on_behind_what_was_skipped() {
        let mut dice = Seed(9).dice();
        let mut later = dice.skipped(5);
        (0..5).for_each(|_| _ = dice.roll());
        assert_eq!(dice.roll(), later.roll());
    }

    #[test]
    fn dice_keep_their_bounds() {
        let mut dice = Seed(3).dice();
        let mut hits = 0;
        for _ in 0..10_000 {
            assert!(dice.below(7) < 7 && (3..=5).contains(&dice.between(3, 5)));
            hits += u32::from(dice.chance(0.25));
        }
        assert!((2_300..2_700).contains(&hits), "{hits}");
    }
}

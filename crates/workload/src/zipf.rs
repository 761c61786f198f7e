//! Zipf's distribution over ranks 0 … n − 1, for every exponent α ≥ 0, in constant time and memory.
//!
//! Rejection-inversion (Hörmann, Derflinger: "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996). The histogram of h(k) = k^−α is
//! covered by its continuous counterpart, whose integral H(x) = (x^(1−α) − 1)/(1−α) (ln x for α
//! = 1) can be inverted:
//!
//! ```text
//!   u uniform in (H(1.5) − 1, H(n + ½))  ──►  x = H⁻¹(u)  ──►  k = round(x)
//!   accept at once when k − x ≤ s, else when u ≥ H(k + ½) − h(k); else draw again (under 1.2 draws on average)
//! ```
//! The result is exact up to rounding; YCSB's approximation is not, and does not exist for α ≥ 1.
//!
//! # Invariants
//! - Ranks lie below n; rank 0 is the most frequent.

use crate::Random;

/// Below this distance of α from 1, the powers lose their digits and the logarithmic form is used.
const NEAR_ONE: f64 = 1e-6;

/// Draws ranks with probability proportional to (rank + 1)^−α.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: f64,
    count: u64,
    alpha: f64,
    /// 1 − α, and its inverse.
    beta: f64,
    inverse_beta: f64,
    low: f64,
    width: f64,
    s: f64,
}

impl Zipf {
    /// Ranks below `count` (at least 1) with exponent `alpha` (at least 0; 0 is uniform).
    #[must_use]
    pub fn new(count: u64, alpha: f64) -> Self {
        let count = count.max(1);
        let alpha = alpha.max(0.0);
        let beta = if (1.0 - alpha).abs() < NEAR_ONE { 0.0 } else { 1.0 - alpha };
        let inverse_beta = if beta == 0.0 { 0.0 } else { 1.0 / beta };
        let mut zipf = Self {
            n: count as f64,
            count,
            alpha,
            beta,
            inverse_beta,
            low: 0.0,
            width: 0.0,
            s: 0.0,
        };
        let high = zipf.integral(zipf.n + 0.5);
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.width = high - zipf.low;
        zipf.s = 2.0 - zipf.inverse_integral(zipf.integral(2.5) - zipf.mass(2.0));
        zipf
    }

    /// A rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        if self.alpha == 0.0 {
            return random.below(self.count);
        }
        loop {
            let u = self.low + random.unit() * self.width;
            let x = self.inverse_integral(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.s || u >= self.integral(k + 0.5) - self.mass(k) {
                return k as u64 - 1;
            }
        }
    }

    /// h(x) = x^−α.
    #[inline]
    fn mass(&self, x: f64) -> f64 {
        power(x, -self.alpha)
    }

    /// H(x), the integral of h from 1 to x.
    #[inline]
    fn integral(&self, x: f64) -> f64 {
        if self.beta == 0.0 { x.ln() } else { (power(x, self.beta) - 1.0) * self.inverse_beta }
    }

    /// H⁻¹(u).
    #[inline]
    fn inverse_integral(&self, u: f64) -> f64 {
        if self.beta == 0.0 { u.exp() } else { power(u * self.beta + 1.0, self.inverse_beta) }
    }
}

/// base^exponent in half the time of `powf`: the last digits, which it loses, decide nothing here.
#[inline]
fn power(base: f64, exponent: f64) -> f64 {
    (base.ln() * exponent).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest deviation, in standard deviations, of what was drawn from what the definition
    /// says.
    fn worst_deviation(count: u64, alpha: f64, draws: u32) -> f64 {
        let zipf = Zipf::new(count, alpha);
        let mut random = Random::new(11);
        let mut seen = vec![0u32; usize::try_from(count).unwrap()];
        for _ in 0..draws {
            seen[usize::try_from(zipf.draw(&mut random)).unwrap()] += 1;
        }
        let weight = |rank: usize| ((rank + 1) as f64).powf(-alpha);
        let total: f64 = (0..seen.len()).map(weight).sum();
        let deviation = |rank: usize| {
            let p = weight(rank) / total;
            let expected = p * f64::from(draws);
            (f64::from(seen[rank]) - expected).abs() / (expected * (1.0 - p)).sqrt()
        };
        (0..seen.len()).map(deviation).fold(0.0, f64::max)
    }

    #[test]
    fn frequencies_follow_the_definition_below_at_and_above_one() {
        for alpha in [0.0, 0.4, 0.75, 0.99, 1.0, 1.000_000_1, 1.2, 2.5] {
            let worst = worst_deviation(50, alpha, 400_000);
            assert!(worst < 4.5, "α = {alpha}: {worst} standard deviations");
        }
    }

    #[test]
    fn ranks_stay_below_the_count() {
        let mut random = Random::new(3);
        for count in [1, 2, 3, 1_000_000_007] {
            for alpha in [0.0, 0.5, 1.0, 5.0] {
                let zipf = Zipf::new(count, alpha);
                assert!((0..10_000).all(|_| zipf.draw(&mut random) < count), "{count} {alpha}");
            }
        }
    }

    #[test]
    fn a_million_keys_are_drawn_as_often_as_the_harmonic_numbers_say() {
        let (count, alpha, draws) = (1_000_000u64, 0.99, 1_000_000u32);
        let zipf = Zipf::new(count, alpha);
        let mut random = Random::new(17);
        let hottest =
            (0..draws).filter(|_| zipf.draw(&mut random) < 100).count() as f64 / f64::from(draws);
        let sum = |ranks: u64| (1..=ranks).map(|rank| (rank as f64).powf(-alpha)).sum::<f64>();
        assert!((hottest - sum(100) / sum(count)).abs() < 0.002, "{hottest}");
    }
}

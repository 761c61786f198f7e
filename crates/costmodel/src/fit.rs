//! How a quantity depends on what comes with it: least squares with weights that are not negative.
//!
//! A negative price would make work that takes time give some back; so weights that would be
//! negative are none, and the others explain as much as they can. Relative errors count, so that
//! small samples tell what a little work costs; and what takes far longer than its like (a stage
//! that cleans up, an interrupt) is left out, to be dealt with by [`Regression::unexplained`].
//! Where work is put off, samples that follow each other are added up, so that what one causes and
//! another does is in the same one.

/// Rounds of descent; each weight is set to its best value given all others, in turn.
const ROUNDS: usize = 2_000;
/// Fits, each without what the one before found to be odd.
const FITS: usize = 5;
/// A sample is odd when it is so many times as large as it should be, and by [`SLACK`] more.
const ODD: f64 = 2.5;
/// In units of the quantity: errors below it do not count as relative ones.
const SLACK: f64 = 500.0;

/// What each feature of samples costs: the prices, none negative, that explain their quantities
/// best. Samples are features, all as many, and a quantity in nanoseconds.
#[must_use]
pub fn prices(samples: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let width = samples.first().map_or(0, |(features, _)| features.len());
    let mut regression = Regression::new(width, 1);
    for (features, quantity) in samples {
        regression.add(features, *quantity);
    }
    regression.solve(|_| None)
}

/// Samples: features, and a quantity each.
#[derive(Clone, Debug)]
pub(super) struct Regression {
    width: usize,
    /// How many samples that follow each other are added up to one.
    window: usize,
    /// Those that are not a whole window yet, and how many they are.
    open: (Vec<f64>, usize),
    /// Features and quantity, one sample after another.
    samples: Vec<f32>,
    /// Samples at the end of each run but the last: every run counts the same, however many samples
    /// it has.
    runs: Vec<usize>,
    sums: Vec<f64>,
    total: f64,
}

impl Regression {
    pub(super) fn new(width: usize, window: usize) -> Self {
        let open = (vec![0.0; width + 1], 0);
        Self {
            width,
            window,
            open,
            samples: Vec::new(),
            runs: Vec::new(),
            sums: vec![0.0; width],
            total: 0.0,
        }
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, features: &[f64], quantity: f64) {
        debug_assert_eq!(features.len(), self.width, "all samples have the same features");
        for (sum, figure) in self.open.0.iter_mut().zip(features.iter().chain([&quantity])) {
            *sum += figure;
        }
        self.open.1 += 1;
        if self.open.1 == self.window {
            self.samples.extend(self.open.0.iter().map(|sum| *sum as f32));
            self.open.0.fill(0.0);
            self.open.1 = 0;
        }
        self.total += quantity;
        for (sum, feature) in self.sums.iter_mut().zip(features) {
            *sum += feature;
        }
    }

    /// Adds the samples of another run, whole windows only.
    pub(super) fn extend(&mut self, other: Self) {
        self.runs.push(self.samples());
        self.append(other);
    }

    /// As if all quantities had been so many times as large.
    pub(super) fn scale(&mut self, times: f64) {
        let stride = self.width + 1;
        self.samples.chunks_exact_mut(stride).for_each(|sample| sample[stride - 1] *= times as f32);
        self.open.0[stride - 1] *= times;
        self.total *= times;
    }

    /// Adds more samples of the same run, whole windows only.
    pub(super) fn append(&mut self, other: Self) {
        debug_assert_eq!(self.width, other.width, "all samples have the same features");
        self.samples.extend(other.samples);
        self.total += other.total;
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum += more;
        }
    }

    pub(super) fn samples(&self) -> usize {
        self.samples.len() / (self.width + 1)
    }

    /// The sum of the quantities.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// The sum of a feature.
    pub(super) fn sum(&self, feature: usize) -> f64 {
        self.sums[feature]
    }

    /// What of the quantity weights leave over, of all samples together: negative, if they say more
    /// than there was.
    pub(super) fn unexplained(&self, weights: &[f64]) -> f64 {
        self.total - self.sums.iter().zip(weights).map(|(sum, weight)| sum * weight).sum::<f64>()
    }

    /// The share of the quantity that is left over.
    pub(super) fn share(&self, left: f64) -> f64 {
        left / self.total.max(1.0)
    }

    /// The weights, none negative, with the smallest errors; those of features that are `known` are
    /// given.
    pub(super) fn solve(&self, known: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
        let mut weights = Vec::new();
        for _ in 0..FITS {
            weights = self.fit(&weights, &known);
        }
        weights
    }

    /// How much a sample counts: all of a run count as much as all of another.
    fn share_at(&self, place: usize) -> f64 {
        let run = self.runs.partition_point(|&end| end <= place);
        let begin = run.checked_sub(1).map_or(0, |before| self.runs[before]);
        let end = self.runs.get(run).copied().unwrap_or_else(|| self.samples());
        1.0 / (end - begin).max(1) as f64
    }

    /// One fit, to the samples that are not odd by the weights of the one before.
    fn fit(&self, before: &[f64], known: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
        let (mut gram, mut with) = (vec![0.0; self.width * self.width], vec![0.0; self.width]);
        for (place, sample) in self.samples.chunks_exact(self.width + 1).enumerate() {
            let (features, quantity) = (&sample[..self.width], f64::from(sample[self.width]));
            let expected = if before.is_empty() { quantity } else { predicted(features, before) };
            if quantity > ODD * expected + SLACK {
                continue;
            }
            let weight = self.share_at(place) / (expected + SLACK).powi(2);
            for (row, &feature) in
                features.iter().enumerate().filter(|(_, feature)| **feature != 0.0)
            {
                let feature = f64::from(feature) * weight;
                with[row] += feature * quantity;
                for (sum, &other) in gram[row * self.width..].iter_mut().zip(features) {
                    *sum += feature * f64::from(other);
                }
            }
        }
        descend(&gram, &with, known)
    }
}

fn predicted(features: &[f32], weights: &[f64]) -> f64 {
    features.iter().zip(weights).map(|(feature, weight)| f64::from(*feature) * weight).sum()
}

/// Solves `gram · weights = with` as well as weights can that are not negative.
fn descend(gram: &[f64], with: &[f64], known: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
    let width = with.len();
    let mut weights: Vec<f64> = (0..width).map(|one| known(one).unwrap_or(0.0)).collect();
    for _ in 0..ROUNDS {
        for one in 0..width {
            let row = &gram[one * width..(one + 1) * width];
            if row[one] <= 0.0 || known(one).is_some() {
                continue;
            }
            let all: f64 = row.iter().zip(&weights).map(|(gram, weight)| gram * weight).sum();
            weights[one] = f64::max(weights[one] + (with[one] - all) / row[one], 0.0);
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use timestone_types::random::Seed;

    #[test]
    fn weights_are_found_again_and_what_is_odd_is_left_over() {
        let mut dice = Seed(3).dice();
        let mut regression = Regression::new(4, 1);
        let mut odd = 0.0;
        for round in 0..2_000 {
            let features = [1.0, dice.below(50) as f64, dice.below(4) as f64, 0.0];
            let noise = dice.below(21) as f64 - 10.0;
            let burst = if round % 100 == 0 { 500_000.0 } else { 0.0 };
            odd += burst;
            regression
                .add(&features, 200.0 + 30.0 * features[1] + 70.0 * features[2] + noise + burst);
        }
        let weights = regression.solve(|_| None);
        for (found, expected) in weights.iter().zip([200.0, 30.0, 70.0, 0.0]) {
            assert!((found - expected).abs() < 3.0, "{weights:?}");
        }
        assert!(
            (regression.unexplained(&weights) / odd - 1.0).abs() < 0.02,
            "{}",
            regression.unexplained(&weights)
        );
    }

    #[test]
    fn runs_count_the_same_however_many_samples_they_have() {
        let run = |samples: u32, cost: f64| {
            let mut regression = Regression::new(1, 1);
            (0..samples).for_each(|_| regression.add(&[1000.0], 1000.0 * cost));
            regression
        };
        let mut regression = run(10_000, 10.0);
        regression.extend(run(10, 11.0));
        regression.extend(run(10, 12.0));
        let weight = regression.solve(|_| None)[0];
        assert!((10.8..11.2).contains(&weight), "{weight}");
        assert_eq!((regression.samples(), regression.sum(0)), (10_020, 10_020_000.0));
    }

    #[test]
    fn a_run_in_parts_is_scaled_part_by_part() {
        let part = |slowness: f64, samples: u32| {
            let mut regression = Regression::new(1, 2);
            (0..samples).for_each(|_| regression.add(&[1000.0], 20_000.0 * slowness));
            regression
        };
        let mut whole = part(1.0, 10);
        let mut slow = part(1.5, 21);
        slow.scale(1.0 / 1.5);
        whole.append(slow);
        assert!((whole.total() - 31.0 * 20_000.0).abs() < 0.1, "{}", whole.total());
        // Whole windows only, and all of them are one run.
        assert_eq!((whole.samples(), whole.runs.len()), (15, 0));
        assert!((whole.solve(|_| None)[0] - 20.0).abs() < 0.01, "{:?}", whole.solve(|_| None));
    }

    #[test]
    fn what_would_be_negative_is_nothing() {
        let mut regression = Regression::new(2, 1);
        for count in 0..100 {
            let features = [1.0, f64::from(count)];
            regression.add(&features, 50.0 - 0.2 * features[1]);
        }
        let weights = regression.solve(|_| None);
        assert!(weights[1] == 0.0 && (weights[0] - 40.1).abs() < 0.5, "{weights:?}");
    }
}

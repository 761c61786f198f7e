//! When a measurement may end: write amplification over time.
//!
//! ```text
//!   start        1/3          2/3          now
//!     ├────────────┼────────────┼────────────┤
//!                     middle        last            steady: they differ by a tenth at most
//! ```
//! A store that fills fresh space looks steady before it has to make room for the first time. So as
//! many bytes must have been put as the store has tuples, besides.

use std::time::Duration;

/// How far two windows may differ.
const TOLERANCE: f64 = 0.1;

/// Bytes at a moment of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) put_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// What is known of a measurement's write amplification.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Amplification {
    /// Bytes written for each byte put, over the last two thirds.
    pub(crate) factor: f64,
    pub(crate) is_steady: bool,
}

/// `None` where nothing was put in one of the last two thirds.
pub(crate) fn amplification(samples: &[Sample], data_bytes: u64) -> Option<Amplification> {
    let (first, last) = (samples.first()?, samples.last()?);
    let span = last.at.saturating_sub(first.at);
    let after = |part: u32| samples.iter().find(|sample| sample.at >= first.at + span * part / 3);
    let (one, two) = (after(1)?, after(2)?);
    let middle = between(one, two)?;
    let end = between(two, last)?;
    let turned_over = last.put_bytes - first.put_bytes >= data_bytes;
    let close = (middle - end).abs() <= TOLERANCE * middle.max(end);
    Some(Amplification { factor: between(one, last)?, is_steady: turned_over && close })
}

fn between(from: &Sample, to: &Sample) -> Option<f64> {
    let put = to.put_bytes.checked_sub(from.put_bytes).filter(|&put| put > 0)?;
    Some(to.written_bytes.saturating_sub(from.written_bytes) as f64 / put as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(written: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |second| Sample {
            at: Duration::from_secs(second),
            put_bytes: second * 100,
            written_bytes: written(second),
        };
        (0..=30).map(sample).collect()
    }

    #[test]
    fn what_still_rises_is_not_steady_and_a_constant_is() {
        let constant = amplification(&samples(|second| second * 250), 3000).unwrap();
        assert!(constant.is_steady);
        assert!((constant.factor - 2.5).abs() < 1e-9);
        let rising = amplification(&samples(|second| second * second * 10), 3000).unwrap();
        assert!(!rising.is_steady);
    }

    #[test]
    fn nothing_is_steady_before_all_was_put_once() {
        assert!(!amplification(&samples(|second| second * 100), 3001).unwrap().is_steady);
        assert!(amplification(&[], 1).is_none());
    }
}

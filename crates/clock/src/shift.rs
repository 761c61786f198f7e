//! A clock that is set wrong on purpose.

use std::str::FromStr;
use std::time::Duration;

use crate::limits::MAX_GIVEN_SKEW;
use crate::skew::span;
use crate::{BootTime, ClockError};

/// By how much a process's clock is set wrong, to see what servers make of it: by each of these in
/// turn, for so long, counted from the machine's start; so that processes of one machine may change
/// at the same moments, and need not.
///
/// As text it is `-200ms`, or `100ms,-100ms/2s`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClockShift {
    by_ns: Vec<i64>,
    each: Duration,
}

impl ClockShift {
    /// By how much the clock is wrong at a moment, in nanoseconds.
    #[must_use]
    pub fn at(&self, boot: BootTime) -> i64 {
        let turn = u128::from(boot.as_nanos()) / self.each.as_nanos().max(1);
        let index = turn % self.by_ns.len().max(1) as u128;
        self.by_ns.get(index as usize).copied().unwrap_or(0)
    }

    /// The most by which it is ever wrong, either way.
    #[must_use]
    pub fn most(&self) -> Duration {
        let most = self.by_ns.iter().map(|by| by.unsigned_abs()).max();
        Duration::from_nanos(most.unwrap_or(0))
    }

    /// Whether the clock is never wrong by it.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.most().is_zero()
    }
}

impl FromStr for ClockShift {
    type Err = ClockError;

    fn from_str(text: &str) -> Result<Self, ClockError> {
        let parse = || {
            let (turns, each) = match text.split_once('/') {
                Some((turns, each)) => (turns, span(each.trim())?),
                None => (text, Duration::ZERO),
            };
            let by_ns = |turn: &str| {
                let turn = turn.trim();
                let size = span(turn.trim_start_matches('-')).filter(|by| *by <= MAX_GIVEN_SKEW)?;
                let by = i64::try_from(size.as_nanos()).ok()?;
                Some(if turn.starts_with('-') { -by } else { by })
            };
            let by_ns: Vec<i64> = turns.split(',').map(by_ns).collect::<Option<_>>()?;
            // Turns have a length, and what has a length is turns.
            ((by_ns.len() > 1) != each.is_zero()).then_some(Self { by_ns, each })
        };
        parse().ok_or_else(|| ClockError::UnknownShift(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift(text: &str) -> ClockShift {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_clock_is_wrong_by_one_after_the_other() {
        let ms = |ms: u64| BootTime::from_nanos(ms * 1_000_000);
        let constant = shift("-200ms");
        assert_eq!((constant.at(ms(0)), constant.at(ms(77_777))), (-200_000_000, -200_000_000));
        let turns = shift("100ms, -1s ,0s/2s");
        let seen: Vec<i64> = (0..8).map(|second| turns.at(ms(second * 1000))).collect();
        let (first, second) = (100_000_000, -1_000_000_000);
        assert_eq!(seen, [first, first, second, second, 0, 0, first, first]);
        assert_eq!(turns.most(), Duration::from_secs(1));
        assert!(ClockShift::default().is_none() && shift("0s").is_none());
        assert_eq!(ClockShift::default().at(ms(5)), 0);
    }

    #[test]
    fn what_is_no_shift_is_refused() {
        for text in ["", "200", "1s,2s", "1s/2s", "1s,2s/0s", "2min", "61s", "1s,/2s"] {
            assert!(text.parse::<ClockShift>().is_err(), "{text}");
        }
    }
}

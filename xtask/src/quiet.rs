//! Waiting for a machine that has nothing else to do.
//!
//! Others on the same hardware slow everything down by a third, for seconds or for minutes. A fixed piece of work tells: it always takes the same time
//! when nobody disturbs. What is measured counts when that work took hardly longer than at its best, before it and after it.

use std::thread;
use std::time::{Duration, Instant};

/// How much longer than at its best the work may take, in percent.
const SLACK: u128 = 12;
/// How long a disturbed machine is waited for, each time; then things are measured as they are.
const PATIENCE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(500);

/// Knows how fast the machine is at its best.
pub(crate) struct Quiet<W> {
    work: W,
    best: Duration,
    disturbed: u32,
}

impl<W: FnMut() -> Result<(), String>> Quiet<W> {
    /// With work that takes half a second or so; it is done a few times, to know it.
    pub(crate) fn new(mut work: W) -> Result<Self, String> {
        work()?;
        let mut quiet = Self { work, best: Duration::MAX, disturbed: 0 };
        for _ in 0..10 {
            quiet.is_quiet()?;
        }
        Ok(quiet)
    }

    fn is_quiet(&mut self) -> Result<bool, String> {
        let begin = Instant::now();
        (self.work)()?;
        let took = begin.elapsed();
        self.best = self.best.min(took);
        Ok(took.as_nanos() * 100 <= self.best.as_nanos() * (100 + SLACK))
    }

    /// Measures while the machine is quiet, or takes the `better` of several attempts.
    pub(crate) fn measure<T>(
        &mut self,
        attempts: u32,
        mut one: impl FnMut() -> Result<T, String>,
        better: impl Fn(T, T) -> T,
    ) -> Result<T, String> {
        let (mut so_far, mut attempt) = (None, 0);
        loop {
            attempt += 1;
            let begin = Instant::now();
            while !self.is_quiet()? && begin.elapsed() < PATIENCE {
                thread::sleep(PAUSE);
            }
            let measured = one()?;
            let quiet = self.is_quiet()?;
            let best = match so_far {
                Some(before) => better(before, measured),
                None => measured,
            };
            if quiet || attempt >= attempts {
                self.disturbed += u32::from(!quiet);
                return Ok(best);
            }
            so_far = Some(best);
        }
    }

    /// How many measurements stand although the machine was disturbed in all attempts.
    pub(crate) fn disturbed(&self) -> u32 {
        self.disturbed
    }
}

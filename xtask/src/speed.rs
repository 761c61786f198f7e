//! How fast the machine is at the moment.
//!
//! Others on the same hardware slow everything down by a third, for seconds or for minutes. A fixed piece of work tells by how much: it is done before
//! and after whatever is measured, and figures of different moments are compared by what it took then.

/// The middle of so many times counts.
const TIMES: usize = 3;
/// How far apart the times before and after a measurement may be, as a share; otherwise it is repeated.
const STEADY: f64 = 0.08;

/// Knows a piece of work, which says how many seconds it took.
pub(crate) struct Speed<W> {
    work: W,
    before: f64,
    unsteady: u32,
}

/// What was measured, and when.
pub(crate) struct Timed<T> {
    pub(crate) value: T,
    /// Seconds that the work took at that time.
    pub(crate) work: f64,
    /// By which share the times before and after differ.
    pub(crate) drift: f64,
}

impl<W: FnMut() -> Result<f64, String>> Speed<W> {
    /// With work that takes half a second or so.
    pub(crate) fn new(mut work: W) -> Result<Self, String> {
        work()?;
        let mut speed = Self { work, before: 0.0, unsteady: 0 };
        speed.before = speed.time()?;
        Ok(speed)
    }

    fn time(&mut self) -> Result<f64, String> {
        let mut times = [0.0; TIMES];
        for time in &mut times {
            *time = (self.work)()?;
        }
        times.sort_unstable_by(f64::total_cmp);
        Ok(times[TIMES / 2])
    }

    /// Measures, again where the machine's speed changed meanwhile, up to so many times: the attempt in which it changed least.
    pub(crate) fn measure<T>(
        &mut self,
        attempts: u32,
        mut one: impl FnMut() -> Result<T, String>,
    ) -> Result<Timed<T>, String> {
        let mut attempt = 1;
        let mut best = self.attempt(&mut one)?;
        while best.drift > STEADY && attempt < attempts {
            attempt += 1;
            let next = self.attempt(&mut one)?;
            best = best.steadier(next);
        }
        self.unsteady += u32::from(best.drift > STEADY);
        Ok(best)
    }

    fn attempt<T>(&mut self, one: &mut impl FnMut() -> Result<T, String>) -> Result<Timed<T>, String> {
        let before = self.before;
        let value = one()?;
        self.before = self.time()?;
        let work = f64::midpoint(before, self.before);
        Ok(Timed { value, work, drift: (self.before - before).abs() / work })
    }

    /// How many measurements stand although the machine's speed changed in all attempts.
    pub(crate) fn unsteady(&self) -> u32 {
        self.unsteady
    }
}

impl<T> Timed<T> {
    /// The one during which the machine's speed changed less.
    pub(crate) fn steadier(self, other: Self) -> Self {
        if other.drift < self.drift { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attempt_counts_in_which_the_machine_changed_least() {
        // The first piece of work warms up; the machine slows down after those that come before the first attempt, and stays so.
        let mut done = 0;
        let work = move || {
            done += 1;
            Ok(if done > 1 + TIMES { 2.0 } else { 1.0 })
        };
        let mut speed = Speed::new(work).unwrap();
        let mut attempts = 0;
        let count = || {
            attempts += 1;
            Ok(attempts)
        };
        let timed = speed.measure(4, count).unwrap();
        assert_eq!((timed.value, timed.work, timed.drift), (2, 2.0, 0.0), "the second of up to four");
        assert_eq!(speed.unsteady(), 0);
    }

    #[test]
    fn what_stays_unsteady_is_counted() {
        let mut seconds = 1.0;
        let work = move || {
            seconds *= 1.5;
            Ok(seconds)
        };
        let mut speed = Speed::new(work).unwrap();
        let timed = speed.measure(3, || Ok(())).unwrap();
        assert!(timed.drift > STEADY);
        assert_eq!(speed.unsteady(), 1);
    }
}

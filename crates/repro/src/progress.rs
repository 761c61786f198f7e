//! Whoever looks on while an experiment runs.

use std::ops::ControlFlow;

use crate::error::ReproError;

/// Looks on while an experiment runs, and may end it.
pub trait Progress {
    /// So much of it is done, from 0 to 1, and this is under way. Whether it goes on.
    fn at(&mut self, share: f64, doing: &str) -> ControlFlow<()>;
}

/// ProgressPart of an experiment's progress.
pub(crate) struct ProgressPart<'a> {
    progress: &'a mut dyn Progress,
    from: f64,
    length: f64,
}

impl<'a> ProgressPart<'a> {
    /// ProgressPart `number` of `count` that are alike.
    pub(crate) fn of(progress: &'a mut dyn Progress, number: usize, count: usize) -> Self {
        let length = 1.0 / count.max(1) as f64;
        Self { progress, from: number as f64 * length, length }
    }

    /// So much of this part is done.
    pub(crate) fn at(&mut self, share: f64, doing: &str) -> Result<(), ReproError> {
        let share = self.from + share.clamp(0.0, 1.0) * self.length;
        match self.progress.at(share, doing) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ReproError::Interrupted),
        }
    }

    /// ProgressPart `number` of `count` parts of this one.
    pub(crate) fn part(&mut self, number: usize, count: usize) -> ProgressPart<'_> {
        self.span(number, 1, count)
    }

    /// So many parts of `count` parts of this one, from `number` on.
    pub(crate) fn span(&mut self, number: usize, parts: usize, count: usize) -> ProgressPart<'_> {
        let one = self.length / count.max(1) as f64;
        let from = self.from + number as f64 * one;
        ProgressPart { progress: self.progress, from, length: one * parts as f64 }
    }
}

//! Which stages run on which thread.

use crate::limits::MAX_STAGES;
use crate::{SedaError, StageId};

/// Whether threads are bound to cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// The operating system decides.
    #[default]
    None,
    /// Thread i runs on core i, modulo the cores that the process may use.
    Cores,
    /// Thread i runs on the i-th of these cores, in turn.
    List(Vec<usize>),
}

/// Which stages run on which thread, in which order: list net stages first, then the stages they
/// feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The stages of each thread.
    pub threads: Vec<Vec<StageId>>,
    /// Whether threads are bound to cores.
    pub pinning: Pinning,
}

impl Layout {
    /// A layout without pinning.
    #[must_use]
    pub const fn new(threads: Vec<Vec<StageId>>) -> Self {
        Self { threads, pinning: Pinning::None }
    }

    /// All of `stages` stages on one thread, in the order of their ids.
    #[must_use]
    pub fn single(stages: u16) -> Self {
        Self::new(vec![(0..stages).map(StageId::new).collect()])
    }

    /// The thread of each stage.
    pub(crate) fn homes(&self, stages: usize) -> Result<Vec<(usize, usize)>, SedaError> {
        let threads = self.threads.len();
        if stages == 0 || stages > MAX_STAGES || threads == 0 || threads > MAX_STAGES {
            return Err(SedaError::Size { stages, threads, limit: MAX_STAGES });
        }
        let mut homes = vec![None; stages];
        for (thread, list) in self.threads.iter().enumerate() {
            for (place, &stage) in list.iter().enumerate() {
                match homes.get_mut(stage.index()) {
                    None => return Err(SedaError::Layout(stage, "which does not exist")),
                    Some(Some(_)) => return Err(SedaError::Layout(stage, "twice")),
                    Some(home) => *home = Some((thread, place)),
                }
            }
        }
        let missing = |index| SedaError::Layout(StageId::new(index as u16), "nowhere");
        homes
            .into_iter()
            .enumerate()
            .map(|(index, home)| home.ok_or_else(|| missing(index)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_must_be_placed_exactly_once() {
        let s = StageId::new;
        let homes = Layout::new(vec![vec![s(1)], vec![s(0), s(2)]]).homes(3).expect("complete");
        assert_eq!(homes, [(1, 0), (0, 0), (1, 1)]);
        let text = |layout: Layout, stages| layout.homes(stages).expect_err("refused").to_string();
        assert!(text(Layout::single(2), 3).contains("s2 nowhere"));
        assert!(text(Layout::new(vec![vec![s(0)], vec![s(0)]]), 1).contains("s0 twice"));
        assert!(text(Layout::single(2), 1).contains("s1 which does not exist"));
        assert!(text(Layout::new(vec![]), 1).contains("0 threads"));
    }
}

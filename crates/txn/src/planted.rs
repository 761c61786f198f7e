//! Bugs on purpose: the tests switch one on and must fail. Compiled only with the feature `planted-bugs`.

/// Which bugs are switched on; see `docs` of each field for the class of verification.md that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlantedBugs {
    /// 1: validated reads do not raise `latest_read`.
    pub skip_step_3: bool,
}

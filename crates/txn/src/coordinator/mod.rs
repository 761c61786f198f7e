//! The coordinator: one per committing transaction, in the client's session or the gateway.

mod input;
mod output;

pub use input::{CommitKind, Input};
pub use output::{CommitResult, Output};
use timestone_types::Timestamp;

/// One committing transaction. Pool them: [`Coordinator::reset`] keeps what was allocated.
#[derive(Debug, Default)]
pub struct Coordinator {}

impl Coordinator {
    /// A fresh coordinator.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it fresh again.
    pub fn reset(&mut self) {}

    /// Takes one input; appends what is to be done to `out`.
    pub fn step(&mut self, _now: Timestamp, _input: Input<'_>, _out: &mut Vec<Output>) {}

    /// When the next `Tick` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }
}

/// Collects what a read-only transaction needs to know to commit by itself (MILANA §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalValidation {
    uncertain: bool,
}

impl LocalValidation {
    /// Notes one answered read.
    pub fn observe(&mut self, prepared_before: bool) {
        self.uncertain |= prepared_before;
    }

    /// Whether the transaction commits without a message: no key that it read had a prepared version at or below begin.
    #[must_use]
    pub fn commits(self) -> bool {
        !self.uncertain
    }
}

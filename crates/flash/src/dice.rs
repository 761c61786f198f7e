//! What the memory device's faults are drawn with: the same seed gives the same faults, on every
//! machine. Not a source of entropy, and not for anything but tests and simulation.

use timestone_types::random::{Dice, Seed};

/// Dice whose numbers below a bound are remainders. The simulator's regression seeds hang on this
/// sequence; [`Dice::below`] draws another one.
#[derive(Clone, Debug)]
pub(crate) struct FaultDice(Dice);

impl FaultDice {
    /// Dice whose whole sequence the seed determines.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Seed(seed).dice())
    }

    /// A number below `bound` (at least 1). The bias of the remainder is far below what faults can
    /// notice.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "there is no number below zero");
        (self.0.roll() % bound as u64) as usize
    }
}

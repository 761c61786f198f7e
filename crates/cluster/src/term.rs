//! Terms of controllers: who may change shards, and since when.

use core::fmt;

/// Counts the controllers of one cluster; only rises. What carries an older term is refused.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term(u64);

impl Term {
    /// "No controller yet"; and, in a change, "asked for by the primary itself".
    pub const ZERO: Self = Self(0);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number, for layouts and displays.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The term after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

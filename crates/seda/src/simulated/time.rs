//! True time, as only the simulation knows it, and the local clocks that processes see instead.

use core::fmt;
use core::time::Duration;

use timestone_types::Timestamp;

/// A moment of true time, in nanoseconds since the simulated world began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtualTime(u64);

impl VirtualTime {
    /// The beginning of the world.
    pub const ZERO: Self = Self(0);
    /// Later than everything.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment this many nanoseconds after the beginning.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` later; [`VirtualTime::MAX`] at most.
    #[must_use]
    pub const fn after(self, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos > u64::MAX as u128 { Self::MAX } else { Self(self.0.saturating_add(nanos as u64)) }
    }

    /// The span since an earlier moment; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

impl fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The clock of one process: what it shows at each moment of true time. May stand still, jump and
/// run fast or slow.
pub trait LocalTime {
    /// What it shows.
    fn at(&self, moment: VirtualTime) -> Timestamp;
}

impl<F: Fn(VirtualTime) -> Timestamp> LocalTime for F {
    fn at(&self, moment: VirtualTime) -> Timestamp {
        self(moment)
    }
}

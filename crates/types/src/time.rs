//! Points in time, versions made of them, and expiry.
//!
//! A [`Timestamp`] counts nanoseconds since the Unix epoch (64 bits last until 2554; the paper's
//! 100 ns resolution is too coarse for today's clocks). A [`Version`] adds the writer's id, so that
//! all writes of all clients are totally ordered (SEMEL §3).

use core::fmt;
use core::time::Duration;

use crate::ClientId;

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Before every real point in time; "never" for marks that only rise.
    pub const ZERO: Self = Self(0);
    /// After every real point in time.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the Unix epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The next representable point in time; [`Timestamp::MAX`] stays where it is.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The point just before this one; [`Timestamp::ZERO`] stays where it is.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// This point plus a span, saturating.
    #[must_use]
    pub const fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(span)))
    }

    /// This point minus a span, saturating at zero.
    #[must_use]
    pub const fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(span)))
    }

    /// The span from `earlier` to this point; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

const fn nanos_of(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A length of time as people read it, in three digits: `5 s`, `1.25 s`, `300 ms`, `12.5 µs`,
/// `2 min 30 s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let seconds = self.0.as_secs();
        if seconds >= 60 {
            return match seconds % 60 {
                0 => write!(f, "{} min", seconds / 60),
                rest => write!(f, "{} min {rest} s", seconds / 60),
            };
        }
        let (unit, name) = match nanos {
            1_000_000_000.. => (1_000_000_000, "s"),
            1_000_000.. => (1_000_000, "ms"),
            1_000.. => (1_000, "µs"),
            _ => return write!(f, "{nanos} ns"),
        };
        let (whole, digits) = (nanos / unit, nanos % unit * 100 / unit);
        match (whole, digits) {
            (100.., _) | (_, 0) => write!(f, "{whole} {name}"),
            (10.., digits) if digits < 10 => write!(f, "{whole} {name}"),
            (10.., digits) => write!(f, "{whole}.{} {name}", digits / 10),
            (_, digits) if digits.is_multiple_of(10) => write!(f, "{whole}.{} {name}", digits / 10),
            (_, digits) => write!(f, "{whole}.{digits:02} {name}"),
        }
    }
}

/// Who wrote, and when: the name of one version of one key. Ordered by timestamp, then by client.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The commit timestamp of the writing transaction.
    pub timestamp: Timestamp,
    /// The writing client; breaks ties between equal timestamps.
    pub client: ClientId,
}

impl Version {
    /// Below every version that was ever written: "there is none".
    pub const ZERO: Self = Self { timestamp: Timestamp::ZERO, client: ClientId::ZERO };

    /// The version that `client` writes at `timestamp`.
    #[must_use]
    pub const fn new(timestamp: Timestamp, client: ClientId) -> Self {
        Self { timestamp, client }
    }

    /// Whether this is [`Version::ZERO`].
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.timestamp, self.client)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.timestamp, self.client)
    }
}

/// When a record stops being visible: absent for reads at or after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Expiry(Timestamp);

impl Expiry {
    /// The record does not expire.
    pub const NEVER: Self = Self(Timestamp::MAX);

    /// Expires at `at`; [`Timestamp::MAX`] means never.
    #[must_use]
    pub const fn at(at: Timestamp) -> Self {
        Self(at)
    }

    /// The first point in time at which the record is absent; [`Timestamp::MAX`] when it never
    /// expires.
    #[must_use]
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }

    /// Whether the record never expires.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// Whether a read at `at` finds the record absent.
    #[must_use]
    pub fn has_passed(self, at: Timestamp) -> bool {
        !self.is_never() && at >= self.0
    }
}

impl Default for Expiry {
    fn default() -> Self {
        Self::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_time_and_then_by_client() {
        let early = Version::new(Timestamp::from_nanos(1), ClientId::new(9));
        let late = Version::new(Timestamp::from_nanos(2), ClientId::new(1));
        let tie = Version::new(Timestamp::from_nanos(2), ClientId::new(2));
        assert!(Version::ZERO < early && early < late && late < tie);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::MAX.next(), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.previous(), Timestamp::ZERO);
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(
            Timestamp::from_nanos(5).saturating_sub(Duration::from_secs(1)),
            Timestamp::ZERO
        );
        assert_eq!(Timestamp::from_nanos(5).since(Timestamp::from_nanos(9)), Duration::ZERO);
    }

    #[test]
    fn spans_are_told_in_three_digits_and_a_unit() {
        let told = |nanos| Span(Duration::from_nanos(nanos)).to_string();
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.5 µs"),
            (12_345_678, "12.3 ms"),
            (300_000_123, "300 ms"),
            (999_999_999, "999 ms"),
            (1_000_000_001, "1 s"),
            (1_050_000_000, "1.05 s"),
            (10_090_000_000, "10 s"),
            (59_990_000_000, "59.9 s"),
            (60_000_000_000, "1 min"),
            (150_700_000_000, "2 min 30 s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(told(nanos), expected);
        }
    }

    #[test]
    fn expiry_is_inclusive_and_never_does_not_pass() {
        let expiry = Expiry::at(Timestamp::from_nanos(10));
        assert!(!expiry.has_passed(Timestamp::from_nanos(9)));
        assert!(expiry.has_passed(Timestamp::from_nanos(10)));
        assert!(!Expiry::NEVER.has_passed(Timestamp::MAX));
    }
}

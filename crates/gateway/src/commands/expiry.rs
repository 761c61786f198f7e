//! Times to live: Redis counts milliseconds since the Unix epoch, the store nanoseconds.
//!
//! A record expires at the beginning of its millisecond. What lies beyond the year 2554, where the
//! store's time ends, expires then: times are cut where they are resolved, so that what is compared
//! is what is stored.

use timestone_types::{Expiry, Timestamp};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Millis(pub(crate) i64);

impl Millis {
    /// The last one that a record can expire at.
    const LAST: Self = Self(((u64::MAX - 1) / NANOS_PER_MILLI) as i64);

    /// The millisecond that a point in time lies in.
    pub(crate) const fn of(at: Timestamp) -> Self {
        // 64 bits of nanoseconds are 44 bits of milliseconds.
        Self((at.as_nanos() / NANOS_PER_MILLI) as i64)
    }

    /// When a record expires; `None` when it does not.
    pub(crate) fn of_expiry(expiry: Expiry) -> Option<Self> {
        (!expiry.is_never()).then(|| Self::of(expiry.timestamp()))
    }

    /// The expiry at this millisecond, which was resolved: see [`Unit::resolve`].
    pub(crate) fn expiry(self) -> Expiry {
        debug_assert!(self <= Self::LAST, "{self:?} is beyond what is stored");
        let millis = u64::try_from(self.0).unwrap_or(0);
        Expiry::at(Timestamp::from_nanos(millis * NANOS_PER_MILLI))
    }

    /// Whole seconds, rounded as Redis rounds.
    pub(crate) const fn to_seconds(self) -> i64 {
        (self.0 + 500) / 1000
    }
}

/// How a command says when a key expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Seconds from now: EX.
    Seconds,
    /// Milliseconds from now: PX.
    Millis,
    /// Seconds since the epoch: EXAT.
    SecondsAt,
    /// Milliseconds since the epoch: PXAT.
    MillisAt,
}

impl Unit {
    /// The unit that an option of SET and GETEX names.
    pub(crate) fn of_option(option: &[u8]) -> Option<Self> {
        Some(match () {
            () if option.eq_ignore_ascii_case(b"EX") => Self::Seconds,
            () if option.eq_ignore_ascii_case(b"PX") => Self::Millis,
            () if option.eq_ignore_ascii_case(b"EXAT") => Self::SecondsAt,
            () if option.eq_ignore_ascii_case(b"PXAT") => Self::MillisAt,
            () => return None,
        })
    }

    const fn is_seconds(self) -> bool {
        matches!(self, Self::Seconds | Self::SecondsAt)
    }

    const fn is_relative(self) -> bool {
        matches!(self, Self::Seconds | Self::Millis)
    }

    /// The millisecond meant by `value`, or the last one that is stored, if that is earlier; `None`
    /// when it overflows.
    pub(crate) fn resolve(self, value: i64, now: Timestamp) -> Option<Millis> {
        let millis = if self.is_seconds() { value.checked_mul(1000)? } else { value };
        let millis =
            if self.is_relative() { millis.checked_add(Millis::of(now).0)? } else { millis };
        Some(Millis(millis).min(Millis::LAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_resolve_to_milliseconds_or_overflow() {
        let now = Timestamp::from_nanos(5_000_400_000);
        assert_eq!(Unit::Seconds.resolve(2, now), Some(Millis(7_000)));
        assert_eq!(Unit::Millis.resolve(2, now), Some(Millis(5_002)));
        assert_eq!(Unit::SecondsAt.resolve(2, now), Some(Millis(2_000)));
        assert_eq!(Unit::MillisAt.resolve(2, now), Some(Millis(2)));
        assert_eq!(Unit::Seconds.resolve(i64::MAX / 1000 + 1, now), None);
        assert_eq!(Unit::Millis.resolve(i64::MAX, now), None);
    }

    #[test]
    fn an_expiry_beyond_the_end_of_time_is_not_never() {
        for unit in [Unit::SecondsAt, Unit::MillisAt, Unit::Seconds, Unit::Millis] {
            let far = unit.resolve(i64::MAX / 2000, Timestamp::from_nanos(5)).unwrap();
            assert!(!far.expiry().is_never());
            assert_eq!(Millis::of_expiry(far.expiry()), Some(far), "it is stored as it was meant");
        }
        let last = Expiry::at(Timestamp::from_nanos(u64::MAX - 1));
        assert_eq!(Millis::of_expiry(last), Some(Millis::LAST));
        assert_eq!(Millis::of_expiry(Millis(7_000).expiry()), Some(Millis(7_000)));
        assert_eq!(Millis::of_expiry(Expiry::NEVER), None);
        assert_eq!(Millis(1_500).to_seconds(), 2);
    }
}

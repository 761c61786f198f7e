//! Points in time as people write them: `--at` for time travel, `--expire` for expiry.
//!
//! A moment is a date (`2026-11-20T12:00:00Z`), a span before now (`-5s`, `5s ago`), or nanoseconds
//! since the Unix epoch as the other commands print them. What is relative is resolved where a
//! clock is at hand, never here.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use timestone::blocking::Db;
use timestone::{Expiry, Timestamp};

/// A client's now, from which what is relative is seen.
pub(crate) fn now(db: &Db) -> timestone::Result<Timestamp> {
    db.as_async().spawn(|db| async move { Ok(db.now()) }).wait()
}

/// A point in time, possibly relative to now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// This one.
    At(Timestamp),
    /// This long ago.
    Ago(Duration),
}

impl Moment {
    /// The point in time, seen from `now`.
    pub(crate) const fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(span) => now.saturating_sub(span),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ago = text.strip_prefix('-').or_else(|| text.strip_suffix("ago").map(str::trim));
        if let Some(span) = ago {
            return humantime::parse_duration(span)
                .map(Self::Ago)
                .map_err(|error| format!("'{span}' is no span: {error}"));
        }
        point(text).map(Self::At).ok_or_else(|| {
            "write a date such as 2026-11-20T12:00:00Z, a span before now such as -5s, or \
             nanoseconds since 1970"
                .to_owned()
        })
    }
}

fn point(text: &str) -> Option<Timestamp> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Timestamp::from_nanos);
    }
    let time = humantime::parse_rfc3339_weak(text.trim_end_matches('Z')).ok()?;
    nanos_of(time).map(Timestamp::from_nanos)
}

fn nanos_of(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// When a value ends: after a span, or at a point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expires {
    /// This long after now.
    After(Duration),
    /// At this point.
    At(Timestamp),
}

impl Expires {
    /// The expiry, seen from `now`.
    pub(crate) const fn resolve(self, now: Timestamp) -> Expiry {
        match self {
            Self::After(span) => Expiry::at(now.saturating_add(span)),
            Self::At(at) => Expiry::at(at),
        }
    }

    /// The expiry of a value that is to be seen for a while, seen from `now`. One that has passed
    /// would delete its key: most often it is a span whose unit was forgotten.
    pub(crate) fn resolve_ahead(self, now: Timestamp) -> Result<Expiry, String> {
        let expiry = self.resolve(now);
        match expiry.has_passed(now) {
            true => Err(format!(
                "lies in the past ({}); write a span with its unit, such as 30s, or a date to come",
                shown(expiry.timestamp())
            )),
            false => Ok(expiry),
        }
    }
}

impl FromStr for Expires {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(span) = humantime::parse_duration(text) {
            return Ok(Self::After(span));
        }
        let point = point(text).map(Self::At);
        point.ok_or_else(|| {
            "write a span such as 30s or 2h, or a date such as 2026-11-20T12:00:00Z".to_owned()
        })
    }
}

/// A point in time as people read it: UTC, to the millisecond.
pub(crate) fn shown(at: Timestamp) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(at.as_nanos())).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_spans_and_nanoseconds() {
        let noon = Timestamp::from_nanos(1_795_176_000_000_000_000);
        assert_eq!("2026-11-20T12:00:00Z".parse(), Ok(Moment::At(noon)));
        assert_eq!("2026-11-20 12:00:00".parse(), Ok(Moment::At(noon)));
        assert_eq!("1795176000000000000".parse(), Ok(Moment::At(noon)));
        assert_eq!("-5s".parse(), Ok(Moment::Ago(Duration::from_secs(5))));
        assert_eq!("2m ago".parse(), Ok(Moment::Ago(Duration::from_secs(120))));
        assert_eq!(
            Moment::Ago(Duration::from_secs(1)).resolve(noon),
            noon.saturating_sub(Duration::from_secs(1))
        );
        assert_eq!(shown(noon), "2026-11-20T12:00:00.000Z");
        for bad in ["", "soon", "-soon", "20 pages ago", "1-2-3"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ends_are_spans_and_dates() {
        let now = Timestamp::from_nanos(5);
        assert_eq!(
            "1s".parse::<Expires>().unwrap().resolve(now),
            Expiry::at(Timestamp::from_nanos(1_000_000_005))
        );
        assert!(matches!("2026-11-20T12:00:00Z".parse::<Expires>().unwrap(), Expires::At(_)));
        assert!("whenever".parse::<Expires>().is_err());
        let noon = Timestamp::from_nanos(1_795_176_000_000_000_000);
        let unit_forgotten = "30".parse::<Expires>().unwrap();
        let words = unit_forgotten.resolve_ahead(noon).unwrap_err();
        assert!(words.contains("past (1970-01-01") && words.contains("30s"), "{words}");
        let soon = "30s".parse::<Expires>().unwrap();
        assert_eq!(soon.resolve_ahead(noon), Ok(soon.resolve(noon)));
    }
}

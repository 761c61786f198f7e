//! When a keyspace is read again that was lost with an earlier run.
//!
//! ```text
//!   this run begins ─────── now ──────────────── lost ──────────────────▶ t
//!      wrote, read and promised by earlier runs │ absent, until somebody puts
//!                               └ asked again ──┘
//! ```
//! A store in memory takes for lost whatever lies at or below a bound, which is above everything
//! that earlier runs wrote, promised or read: up to a second ahead of the clock. Whoever hears of
//! the loss (an absence, a scan's beginning, a snapshot that is too old) goes on above it, at other
//! servers as well, and these refuse what is so far ahead. So nobody hears of it before the clock
//! has passed it. Nothing is written before that either.

use timestone_txn::Refusal;
use timestone_txn::limits::MAX_LOW_WATER_LEAD;
use timestone_types::{Timestamp, is_planted};

/// Why what was lost up to `lost` is not read yet.
#[inline]
pub(crate) fn refusal(now: Timestamp, lost: Timestamp) -> Option<Refusal> {
    if lost <= now || is_planted!(SentIntoFuture) {
        return None;
    }
    let left = lost.since(now);
    Some(if left > MAX_LOW_WATER_LEAD {
        Refusal::ClockBehind { left }
    } else {
        Refusal::Recovering
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_lost_is_waited_for_where_that_is_worth_it() {
        let (lost, ms) = (Timestamp::from_nanos(10_000_000_000), Duration::from_millis);
        let left = ms(2_001);
        assert_eq!(refusal(lost.saturating_sub(left), lost), Some(Refusal::ClockBehind { left }));
        assert_eq!(refusal(lost.saturating_sub(ms(2_000)), lost), Some(Refusal::Recovering));
        assert_eq!(refusal(lost.saturating_sub(ms(1)), lost), Some(Refusal::Recovering));
        assert_eq!((refusal(lost, lost), refusal(lost, Timestamp::ZERO)), (None, None));
    }
}

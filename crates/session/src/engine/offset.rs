//! How far a server's clock is from this process's.
//!
//! ```text
//!   own clock      sent ─────────────────────────────── received
//!                     ╲                              ╱
//!   server's clock     ╲── request read · reading ──╱          reading − received  ≤  offset  ≤  reading − sent
//! ```
//! Cristian's way: the server read its clock between the sending of a request and the arrival of
//! its answer, so the reading belongs to some moment in between. That holds whatever either clock
//! does meanwhile, as long as neither runs backwards; how narrow the bound is depends on how long
//! the answer took. Only the first copy of a request counts, for the answer to an earlier one may
//! have been read before a later one was sent.
//!
//! A reading belongs to the answers of its own batch, and to no others: an answer that comes in
//! another batch may have come over another connection, and its request may have been sent after the
//! reading.
//!
//! Deliberately absent: what to make of several bounds (their intersection, drift, several
//! servers), which is the business of the host's clock. Source: docs/protocol/time.md, "Readings of
//! the server's clock".

use core::time::Duration;

use timestone_types::Timestamp;
use timestone_wire::ClockIs;

/// What one exchange told of a server's clock, relative to this process's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockOffset {
    /// The server's clock is ahead of this one by at least this much, in nanoseconds; negative: it
    /// may be behind.
    pub least_ns: i64,
    /// It is ahead by at most this much, in nanoseconds.
    pub most_ns: i64,
    /// How far the server's clock may be from true time; `None` when nothing vouches for it.
    pub error: Option<Duration>,
    /// When the answer arrived, by this process's clock.
    pub at: Timestamp,
}

impl ClockOffset {
    /// The bound from an exchange: when the request was sent, what the server then read, when the
    /// answer had arrived. `None` for times that no exchange has.
    #[must_use]
    pub fn of(sent: Timestamp, reading: ClockIs, received: Timestamp) -> Option<Self> {
        if received < sent {
            return None;
        }
        let apart = |own: Timestamp| {
            i64::try_from(i128::from(reading.now.as_nanos()) - i128::from(own.as_nanos())).ok()
        };
        Some(Self {
            least_ns: apart(received)?,
            most_ns: apart(sent)?,
            error: reading.error(),
            at: received,
        })
    }

    /// The middle of the bound: the best guess, in nanoseconds.
    #[must_use]
    pub const fn middle_ns(&self) -> i64 {
        self.least_ns + (self.width_ns() / 2) as i64
    }

    /// How far the middle may be from the truth: half of what the answer took.
    #[must_use]
    pub const fn half_width(&self) -> Duration {
        Duration::from_nanos(self.width_ns().div_ceil(2))
    }

    const fn width_ns(&self) -> u64 {
        self.most_ns.abs_diff(self.least_ns)
    }
}

/// What is under way on one connection to learn the offset of the clock at its other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OffsetProbe {
    /// The request whose answer is waited for, and when it was handed over to be sent.
    asked: Option<(u64, Timestamp)>,
    /// The answer is here, and the host has not said when it arrived.
    answered: Option<(Timestamp, ClockIs)>,
    latest: Option<ClockOffset>,
}

impl OffsetProbe {
    /// The first copy of a request is on its way. One at a time is watched, and given up after
    /// `timeout`.
    #[inline]
    pub(crate) fn sent(&mut self, request: u64, now: Timestamp, timeout: Duration) {
        if self.asked.is_none_or(|(_, sent)| now.since(sent) >= timeout) {
            self.asked = Some((request, now));
        }
        self.assert_sound();
    }

    /// The request that is watched is being sent again: a bug on purpose.
    pub(crate) fn sent_again(&mut self, request: u64, now: Timestamp) {
        if let Some((asked, sent)) = &mut self.asked
            && *asked == request
        {
            *sent = now;
        }
        self.assert_sound();
    }

    /// Whether nothing was learned for so long, and nothing is under way.
    pub(crate) fn is_overdue(&self, now: Timestamp, after: Duration, timeout: Duration) -> bool {
        let is_old = self.latest.is_none_or(|latest| now.since(latest.at) >= after);
        is_old && self.asked.is_none_or(|(_, sent)| now.since(sent) >= timeout)
    }

    /// An answer came, in a batch with this reading. Whether it was the one that was waited for:
    /// then the host is to tell the time.
    #[inline]
    pub(crate) fn answered(&mut self, request: u64, reading: ClockIs) -> bool {
        let Some((asked, sent)) = self.asked else { return false };
        if asked != request {
            return false;
        }
        self.asked = None;
        self.answered = Some((sent, reading));
        self.assert_sound();
        true
    }

    /// A refusal came that no reading belongs to: the request is watched no longer, for it may be
    /// asked again.
    pub(crate) fn refused(&mut self, request: u64) {
        if self.asked.is_some_and(|(asked, _)| asked == request) {
            self.asked = None;
        }
        self.assert_sound();
    }

    /// The answer had arrived at `at`: when its request was sent, and the reading.
    pub(crate) fn arrived(&mut self, at: Timestamp) -> Option<(Timestamp, ClockIs)> {
        let (sent, reading) = self.answered.take()?;
        self.latest = Some(ClockOffset::of(sent, reading, at)?);
        self.assert_sound();
        Some((sent, reading))
    }

    /// The connection is gone, and with it what is under way. What was learned stays true of its
    /// moment.
    pub(crate) fn lost(&mut self) {
        self.asked = None;
        self.answered = None;
        self.assert_sound();
    }

    /// What the last exchange told.
    pub(crate) const fn latest(&self) -> Option<ClockOffset> {
        self.latest
    }

    #[inline]
    fn assert_sound(&self) {
        let is_interval = |offset: ClockOffset| offset.least_ns <= offset.most_ns;
        debug_assert!(self.latest.is_none_or(is_interval), "the upper bound is below the lower");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    const fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn reading(nanos: u64) -> ClockIs {
        ClockIs::new(at(nanos), Some(Duration::from_nanos(7)))
    }

    #[test]
    fn the_truth_lies_within_what_sending_and_arrival_allow() {
        // The server is 1000 ahead, the way there takes 30, the way back 50, and the answer 20.
        let (sent, read, received) = (at(5_000), reading(6_050), at(5_100));
        let offset = ClockOffset::of(sent, read, received).unwrap();
        assert_eq!((offset.least_ns, offset.most_ns), (950, 1_050));
        assert!((offset.least_ns..=offset.most_ns).contains(&1_000));
        assert_eq!((offset.middle_ns(), offset.half_width()), (1_000, Duration::from_nanos(50)));
        assert_eq!((offset.error, offset.at), (Some(Duration::from_nanos(7)), received));
        // It is behind.
        let offset = ClockOffset::of(sent, reading(4_000), received).unwrap();
        assert_eq!((offset.least_ns, offset.most_ns), (-1_100, -1_000));
        // A clock that ran backwards tells nothing.
        assert_eq!(ClockOffset::of(received, read, sent), None);
        // Nor does one that is centuries away.
        assert_eq!(ClockOffset::of(at(0), reading(u64::MAX), at(1)), None);
    }

    #[test]
    fn a_bound_comes_from_one_request_its_reading_and_its_arrival() {
        let mut probe = OffsetProbe::default();
        probe.sent(7, at(100), TIMEOUT);
        probe.sent(8, at(110), TIMEOUT);
        assert!(!probe.answered(8, reading(150)), "it was not watched");
        assert!(probe.answered(7, reading(160)));
        assert!(!probe.answered(7, reading(160)), "only once");
        assert_eq!(probe.latest(), None, "nobody has said when it arrived");
        assert_eq!(probe.arrived(at(200)), Some((at(100), reading(160))));
        let latest = probe.latest().unwrap();
        assert_eq!((latest.least_ns, latest.most_ns), (-40, 60));
        assert_eq!(probe.arrived(at(300)), None);
        assert_eq!(probe.latest(), Some(latest));
    }

    #[test]
    fn what_is_under_way_ends_with_the_connection_or_the_timeout() {
        let mut probe = OffsetProbe::default();
        probe.sent(7, at(100), TIMEOUT);
        probe.lost();
        assert!(!probe.answered(7, reading(150)));
        probe.sent(8, at(200), TIMEOUT);
        probe.sent(9, at(200).saturating_add(TIMEOUT), TIMEOUT);
        assert!(!probe.answered(8, reading(250)) && probe.answered(9, reading(250)));
    }

    #[test]
    fn a_clock_that_was_not_read_lately_is_overdue_unless_an_answer_is_under_way() {
        let (mut probe, after) = (OffsetProbe::default(), Duration::from_secs(2));
        let is_overdue = |probe: &OffsetProbe, now| probe.is_overdue(now, after, TIMEOUT);
        assert!(is_overdue(&probe, at(0)));
        probe.sent(7, at(100), TIMEOUT);
        assert!(!is_overdue(&probe, at(200)));
        assert!(is_overdue(&probe, at(100).saturating_add(TIMEOUT)));
        assert!(probe.answered(7, reading(150)));
        assert!(probe.arrived(at(200)).is_some());
        assert!(!is_overdue(&probe, at(199).saturating_add(after)));
        assert!(is_overdue(&probe, at(200).saturating_add(after)));
    }
}

//! The clock of one session: readings of a physical clock made strictly monotonic, and never below
//! what the session has seen.
//!
//! ```text
//!   physical now ──────────────┐
//!   last issued + 1 ───────────┼─ max ──► begin / commit timestamp
//!   last commit + 1 ──┐        │
//!   learned bound ────┴ floor ─┘
//! ```
//! So a session reads its own writes even when its commit timestamp was pushed upwards, and a retry
//! after an abort begins above what it collided with (SEMEL §3, MILANA §4.4). It reads no clock:
//! the physical reading is an argument.
//!
//! # Invariants
//! - Every issued timestamp is above every one issued before, above every commit reported, and at
//!   or above every learned bound.

use timestone_types::Timestamp;

/// Issues the timestamps of one session.
///
/// ```
/// use timestone_clock::SessionClock;
/// use timestone_types::Timestamp;
///
/// let at = Timestamp::from_nanos;
/// let mut clock = SessionClock::new();
/// assert_eq!(clock.begin(at(100)), at(100));
/// clock.committed(at(250)); // the servers pushed the commit upwards
/// assert_eq!(clock.begin(at(110)), at(251));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionClock {
    last_issued: Timestamp,
    floor: Timestamp,
}

impl SessionClock {
    /// The clock of a session that has seen nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last_issued: Timestamp::ZERO, floor: Timestamp::ZERO }
    }

    /// The begin timestamp of a transaction that starts when the physical clock shows `physical`.
    pub fn begin(&mut self, physical: Timestamp) -> Timestamp {
        let issued = self.peek(physical);
        assert!(
            issued > self.last_issued,
            "a session ran out of timestamps: {issued} is the last there is"
        );
        self.last_issued = issued;
        issued
    }

    /// A commit timestamp to propose when the physical clock shows `physical`: by the rule of
    /// [`begin`](Self::begin).
    pub fn propose_commit(&mut self, physical: Timestamp) -> Timestamp {
        self.begin(physical)
    }

    /// What [`begin`](Self::begin) would return, without issuing it: the lowest timestamp that an
    /// idle session may still use.
    #[must_use]
    pub fn peek(&self, physical: Timestamp) -> Timestamp {
        physical.max(self.last_issued.next()).max(self.floor)
    }

    /// A transaction of this session committed at `at`: whatever begins from now on sees it.
    pub fn committed(&mut self, at: Timestamp) {
        self.floor = self.floor.max(at.next());
    }

    /// A server said that only timestamps at or above `bound` have a chance.
    pub fn learned(&mut self, bound: Timestamp) {
        self.floor = self.floor.max(bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn timestamps_rise_strictly_while_the_physical_clock_stands_or_steps_back() {
        let mut clock = SessionClock::new();
        assert_eq!(clock.begin(at(100)), at(100));
        assert_eq!(clock.begin(at(100)), at(101));
        assert_eq!(clock.propose_commit(at(40)), at(102));
        assert_eq!(clock.begin(at(500)), at(500));
    }

    #[test]
    fn a_session_begins_above_its_own_commit() {
        let mut clock = SessionClock::new();
        let _ = clock.begin(at(100));
        clock.committed(at(900));
        clock.committed(at(300));
        assert_eq!(clock.peek(at(200)), at(901));
        assert_eq!(clock.begin(at(200)), at(901));
        assert_eq!(clock.begin(at(2_000)), at(2_000));
    }

    #[test]
    fn a_learned_bound_is_itself_allowed_and_never_lowers_the_floor() {
        let mut clock = SessionClock::new();
        clock.learned(at(700));
        clock.learned(at(600));
        assert_eq!(clock.begin(at(1)), at(700));
        assert_eq!(clock.begin(at(1)), at(701));
    }

    #[test]
    fn looking_issues_nothing() {
        let mut clock = SessionClock::new();
        assert_eq!(clock.peek(at(5)), at(5));
        assert_eq!(clock.peek(at(5)), at(5));
        assert_eq!(clock.begin(at(5)), at(5));
    }
}

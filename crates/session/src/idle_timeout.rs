//! How long a connection may stay silent while its peer owes an answer.
//!
//! ```text
//!   asked ──► owes ── heard ──► quiet again, the limit is the usual one
//!              └── nothing for the limit ──► over: the host ends the connection and dials anew; the limit doubles
//! ```
//! A connection can be dead with nobody to tell it: the peer's machine is gone, or something on the
//! way (a firewall, an address translator) has forgotten the connection. The operating system
//! notices after a quarter of an hour. Requests are repeated under their own identity, so that it
//! costs nothing but time to ask them again on another connection, and whoever has heard nothing at
//! all for several request timeouts does so.
//!
//! The limit doubles with every connection that is given up in a row: a request that takes long to
//! send, or an answer that takes long to arrive, gets its time in the end. Silence is no reason
//! while nothing was asked: peers have nothing to say then.
//!
//! Invariants
//! - A connection on which something was heard within the limit is never given up.
//! - A connection on which something was asked and nothing heard is over after
//!   [`limits::MAX_SILENCE`] at the latest.

use core::time::Duration;

use timestone_types::{Timestamp, is_planted};

use crate::limits;

/// What one side of a connection knows about the silence of the other. Belongs to the peer, over
/// all its connections in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleTimeout {
    /// When the first thing was asked since the last was heard.
    asked: Option<Timestamp>,
    heard: Timestamp,
    /// How many connections were given up in a row.
    given_up: u32,
}

impl IdleTimeout {
    /// Something was sent at `at` that the peer answers.
    pub fn asked(&mut self, at: Timestamp) {
        self.asked = Some(self.asked.map_or(at, |before| before.min(at)));
        debug_assert!(self.asked <= Some(at), "what was asked is counted from later on");
    }

    /// Anything at all has arrived.
    pub const fn heard(&mut self, now: Timestamp) {
        *self = Self { asked: None, heard: now, given_up: 0 };
        debug_assert!(!self.is_owed(), "who has spoken owes nothing");
    }

    /// The connection is another one: nothing was asked on it yet.
    pub const fn renewed(&mut self) {
        self.asked = None;
        debug_assert!(!self.is_owed(), "nothing was asked on a new connection");
    }

    /// Whether the peer owes an answer and has been silent for the limit: `limit` for the first
    /// connection, twice as much for each further one in a row, [`limits::MAX_SILENCE`] at most.
    #[must_use]
    pub fn is_over(&self, now: Timestamp, limit: Duration) -> bool {
        if is_planted!(NeverRedials) {
            return false;
        }
        let doubled =
            limit.saturating_mul(1 << self.given_up.min(16)).min(limits::MAX_SILENCE.max(limit));
        self.asked.is_some_and(|asked| now >= asked.max(self.heard).saturating_add(doubled))
    }

    /// Whether something was asked since anything was heard.
    #[must_use]
    pub const fn is_owed(&self) -> bool {
        self.asked.is_some()
    }

    /// The connection is given up.
    pub const fn give_up(&mut self) {
        assert!(self.is_owed(), "a connection is given up that owes nothing");
        self.given_up = self.given_up.saturating_add(1);
        self.asked = None;
    }
}

/// How long a server is left alone after so many attempts to reach it that failed in a row.
#[must_use]
pub fn reconnect_pause(attempts: u32) -> Duration {
    let doubled = limits::MIN_RECONNECT_PAUSE.saturating_mul(1 << attempts.min(16));
    doubled.min(limits::MAX_RECONNECT_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn silence_counts_from_the_first_question_or_the_last_sound() {
        let mut idle = IdleTimeout::default();
        assert!(!idle.is_over(at(3_600_000), LIMIT), "nothing was asked");
        idle.asked(at(1_000));
        idle.asked(at(4_000));
        assert!(!idle.is_over(at(5_999), LIMIT));
        assert!(idle.is_over(at(6_000), LIMIT));
        idle.heard(at(5_000));
        assert!(
            !idle.is_over(at(3_600_000), LIMIT),
            "what was asked is answered, or will be asked again"
        );
        // One of many questions is old, and answers to others keep coming.
        idle.asked(at(1_000));
        assert!(!idle.is_over(at(9_999), LIMIT));
        assert!(idle.is_over(at(10_000), LIMIT));
    }

    #[test]
    fn the_limit_doubles_until_something_is_heard() {
        let mut idle = IdleTimeout::default();
        let mut now = 0;
        for expected in [5_000, 10_000, 20_000, 40_000, 60_000, 60_000] {
            idle.renewed();
            idle.asked(at(now));
            assert!(!idle.is_over(at(now + expected - 1), LIMIT));
            assert!(idle.is_over(at(now + expected), LIMIT));
            idle.give_up();
            now += expected;
            assert!(
                !idle.is_over(at(now + 3_600_000), LIMIT),
                "nothing was asked on the next connection"
            );
        }
        idle.asked(at(now));
        idle.heard(at(now + 1));
        idle.asked(at(now + 2));
        assert!(idle.is_over(at(now + 5_002), LIMIT));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = [0, 1, 2, 7, 8, 60, u32::MAX].map(reconnect_pause);
        assert_eq!(pauses.map(|pause| pause.as_millis()), [10, 20, 40, 1_280, 2_000, 2_000, 2_000]);
    }

    #[test]
    fn a_limit_above_the_longest_is_kept() {
        let mut idle = IdleTimeout::default();
        idle.asked(at(0));
        let hour = Duration::from_secs(3_600);
        assert!(!idle.is_over(at(3_599_999), hour));
        assert!(idle.is_over(at(3_600_000), hour));
    }
}

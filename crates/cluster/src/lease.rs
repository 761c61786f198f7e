//! Who is alive, by when it was heard last.
//!
//! Time comes in with every call and is whatever the caller goes by, as long as it does not go
//! backwards; leases of different callers are never compared. Source:
//! docs/protocol/membership.md, "Who is alive".

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_types::Timestamp;

use crate::ServerId;
use crate::limits::MIN_DETECTION;

/// A lease of each server that was ever heard, renewed whenever it is heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leases {
    time_to_live: Duration,
    heard: BTreeMap<ServerId, Timestamp>,
}

impl Leases {
    /// Leases that end `time_to_live` after a server was heard; shorter ones than
    /// [`MIN_DETECTION`] are lengthened to it.
    #[must_use]
    pub fn new(time_to_live: Duration) -> Self {
        Self { time_to_live: time_to_live.max(MIN_DETECTION), heard: BTreeMap::new() }
    }

    /// How long a lease lasts.
    #[must_use]
    pub const fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    /// A server was heard. Time that lies before what was heard last counts as that.
    pub fn renew(&mut self, now: Timestamp, server: ServerId) {
        let heard = self.heard.entry(server).or_insert(now);
        *heard = now.max(*heard);
    }

    /// Ends a server's lease at once.
    pub fn end(&mut self, server: ServerId) {
        self.heard.remove(&server);
    }

    /// When a server was heard last; `None` if it never was, or has ended its lease.
    #[must_use]
    pub fn heard_at(&self, server: ServerId) -> Option<Timestamp> {
        self.heard.get(&server).copied()
    }

    /// Whether a server's lease lasts.
    #[must_use]
    pub fn is_alive(&self, now: Timestamp, server: ServerId) -> bool {
        self.heard_at(server).is_some_and(|heard| now < heard.saturating_add(self.time_to_live))
    }

    /// The servers whose leases last, ascending.
    #[must_use]
    pub fn alive(&self, now: Timestamp) -> Vec<ServerId> {
        self.heard.keys().copied().filter(|&server| self.is_alive(now, server)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_server_is_alive_until_its_lease_ends() {
        let (one, two) = (ServerId::new(1), ServerId::new(2));
        let mut leases = Leases::new(Duration::from_millis(50));
        leases.renew(at(100), one);
        leases.renew(at(120), two);
        assert_eq!(leases.alive(at(149)), [one, two]);
        assert_eq!(leases.alive(at(150)), [two]);
        leases.renew(at(160), one);
        leases.renew(at(90), one);
        assert!(leases.is_alive(at(209), one), "time that goes backwards takes nothing away");
        leases.end(one);
        assert_eq!(leases.alive(at(165)), [two]);
    }

    #[test]
    fn no_lease_is_shorter_than_a_loaded_machine_can_renew() {
        assert_eq!(Leases::new(Duration::from_millis(1)).time_to_live(), MIN_DETECTION);
    }
}

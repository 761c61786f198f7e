//! Closed timestamps: what backups may answer snapshots at.
//!
//! ```text
//!       closed             what is prepared          now − CLOSED_LAG        now          the lease
//!   ──────┼──────────────────────┼──────────────────────────┼─────────────────┼───────────────┼──▶ t
//!         │ nothing more commits here: every key counts as read
//! ```
//! Once the primary has closed a timestamp, everything that ever commits at or below it stands in
//! what was recorded by then. So whoever has carried that out can answer a snapshot at or below it.
//! It lies below the lease, which is the durable read bound: later primaries promise nothing there
//! either. Nothing at or below it is prepared. What expires by then may be told expired
//! ([`super::expiry`]). Nothing is closed unless somebody asks for it.
//!
//! Source: MILANA §4.6; docs/protocol/replication.md, rule P21.

use timestone_types::{Timestamp, is_planted};

use super::Participant;
use crate::limits::CLOSED_LAG;
use crate::validation::Validation;

impl<V: Validation> Participant<V> {
    /// Closes a timestamp, as late as may be; which one is closed.
    pub(super) fn close_timestamp(&mut self, now: Timestamp) -> Timestamp {
        self.assert_serving();
        let horizon = &self.horizon;
        if horizon.bound.is_lost() {
            return horizon.closed;
        }
        let mut at = now.saturating_sub(CLOSED_LAG);
        if !is_planted!(ClosesAboveLease) {
            at = at.min(horizon.bound.durable().previous()).min(horizon.expiry.settled());
        }
        let others = self.life.txns.table.others();
        let in_flight = self.life.txns.table.live().map(|(one, _)| others.may_commit_at(one)).min();
        if let Some(lowest) = in_flight.filter(|_| !is_planted!(ClosesOverPrepared)) {
            at = at.min(lowest.previous());
        }
        if at > self.horizon.closed {
            self.life.validation.close(at);
            self.horizon.closed = at;
        }
        self.horizon.assert_sound();
        self.horizon.closed
    }
}

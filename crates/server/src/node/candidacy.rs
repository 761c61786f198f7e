//! Whether this server may be the controller.
//!
//! One that hears fewer than half of the servers that have replicas can do nothing for their shards:
//! it lets others be it for a while. Where nobody hears more, because so many are dead, it is it by
//! turns: some shards may have enough replicas left. Turns become longer, so that one is long enough
//! to replace those that stay away. One that is being stopped is it no more.
//! Source: docs/protocol/membership.md, "The controller".

use std::collections::BTreeSet;
use std::time::Duration;

use timestone_cluster::ServerId;
use timestone_types::Timestamp;

use super::NodeStage;

/// How long a server that hears too few others stays the controller at first, and how long it lets
/// others be it then. Each turn is twice as long as the one before.
const FEW_HEARD_FOR: Duration = Duration::from_secs(3);
/// The longest turn: some times the usual time after which a lost server is replaced.
const LONGEST_TURN: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidacy {
    /// While it hears too few.
    few: Option<CandidateTurn>,
    /// It never is it again.
    is_over: bool,
}

/// Since when it may be the controller or may not, and for how long.
#[derive(Clone, Copy, Debug)]
struct CandidateTurn {
    since: Timestamp,
    may: bool,
    lasts: Duration,
}

impl Candidacy {
    pub(super) const fn new() -> Self {
        Self { few: None, is_over: false }
    }

    /// It never becomes the controller again.
    pub(super) const fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether it may be the controller now.
    pub(super) fn look(&mut self, now: Timestamp, hears_enough: bool, is_controller: bool) -> bool {
        if self.is_over {
            return false;
        }
        if hears_enough {
            self.few = None;
            return true;
        }
        let first = CandidateTurn { since: now, may: is_controller, lasts: FEW_HEARD_FOR };
        let turn = self.few.get_or_insert(first);
        if now.since(turn.since) >= turn.lasts {
            let lasts = (2 * turn.lasts).min(LONGEST_TURN);
            *turn = CandidateTurn { since: now, may: !turn.may, lasts };
        }
        turn.may
    }
}

impl NodeStage {
    /// Whether at least half of the servers that have replicas are heard, this one included.
    pub(super) fn hears_enough(&self, now: Timestamp) -> bool {
        let shards = self.maps.map().shards().iter();
        let servers: BTreeSet<ServerId> =
            shards.flat_map(|entry| entry.replicas.iter().copied()).collect();
        let is_heard =
            |&&server: &&ServerId| server == self.server || self.heartbeats.hears(now, server);
        2 * servers.iter().filter(is_heard).count() >= servers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn who_hears_too_few_lets_others_be_the_controller_by_turns() {
        let mut candidacy = Candidacy::new();
        assert!(candidacy.look(at(0), true, false), "it hears enough");
        assert!(candidacy.look(at(10), false, true), "it may be for a moment");
        assert!(candidacy.look(at(3_009), false, true));
        assert!(!candidacy.look(at(3_010), false, true));
        assert!(!candidacy.look(at(9_009), false, false));
        assert!(candidacy.look(at(9_010), false, false), "perhaps nobody hears more");
        assert!(candidacy.look(at(21_009), false, true));
        assert!(!candidacy.look(at(21_010), false, true));
        assert!(candidacy.look(at(21_020), true, false));
        assert!(candidacy.look(at(30_000), false, true));
        assert!(!candidacy.look(at(33_000), false, true), "turns begin short again");
    }

    #[test]
    fn who_begins_and_hears_nobody_waits() {
        let mut candidacy = Candidacy::new();
        assert!(!candidacy.look(at(0), false, false));
        assert!(candidacy.look(at(100), true, false));
        candidacy.end();
        assert!(!candidacy.look(at(200), true, false), "it is being stopped");
    }
}

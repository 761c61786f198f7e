//! How many copies of a shard there are, which configuration of it counts, and what a change of a
//! configuration must keep.
//!
//! ```text
//!   epoch n      {1, 2, 3}   normal: its primary has said that it serves
//!   epoch n + 1  {1, 2, 4}   not yet: what was acknowledged lies in {1, 2, 3}, and nobody but 1 and 2 may be primary
//! ```
//! Source: docs/protocol/membership.md, "Replica sets"; MILANA §4.5. What is deliberately absent:
//! who is alive, and who should be primary; the controller decides that.

use core::fmt;

use timestone_types::{Epoch, ShardId};

use crate::limits::MAX_REPLICATION;
use crate::{ClusterError, ServerId, ShardEntry};

/// How many replicas each shard of a cluster has: 2f + 1, of which f may be lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicationFactor(u8);

impl ReplicationFactor {
    /// One copy: nothing may be lost.
    pub const ONE: Self = Self(1);

    /// A factor of 1, 3 or 5.
    ///
    /// # Errors
    /// [`ClusterError::UnknownValue`] for any other number.
    pub fn new(replicas: u8) -> Result<Self, ClusterError> {
        if replicas.is_multiple_of(2) || replicas > MAX_REPLICATION {
            return Err(ClusterError::UnknownValue {
                option: "replication",
                value: replicas.to_string(),
                choices: "1, 3, 5",
            });
        }
        Ok(Self(replicas))
    }

    /// How many replicas a complete set has.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// How many replicas of a complete set there are, as a length.
    #[must_use]
    pub const fn replicas(self) -> usize {
        self.0 as usize
    }

    /// f + 1: as many have every record that counts, and as many must take part in a change.
    #[must_use]
    pub const fn quorum(self) -> usize {
        self.replicas() / 2 + 1
    }
}

impl fmt::Display for ReplicationFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The last configuration of a shard whose primary has said that it serves: what was acknowledged
/// lies there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NormalConfiguration {
    /// Its epoch; [`Epoch::ZERO`] while none has served.
    pub epoch: Epoch,
    /// Its replicas; empty while no server has taken the shard.
    pub replicas: Vec<ServerId>,
}

impl NormalConfiguration {
    /// Of a shard that no server has taken.
    pub const NONE: Self = Self { epoch: Epoch::ZERO, replicas: Vec::new() };

    /// Of a shard with one copy, or none: what it has acknowledged lies there, if anywhere.
    pub(crate) fn of_entry(entry: &ShardEntry) -> Self {
        Self { epoch: entry.epoch, replicas: entry.replicas.clone() }
    }

    /// Of a shard that was given a whole set of replicas, none of which has served yet: what it has
    /// acknowledged, nothing, lies there.
    pub(crate) fn never_served(entry: &ShardEntry) -> Self {
        Self { epoch: Epoch::ZERO, replicas: entry.replicas.clone() }
    }

    /// Whether no configuration has served yet, as far as the master knows.
    #[must_use]
    pub fn has_never_served(&self) -> bool {
        self.epoch == Epoch::ZERO
    }

    /// How many of this configuration's replicas have every record that counts, or more.
    #[must_use]
    pub fn quorum(&self, factor: ReplicationFactor) -> usize {
        factor.quorum().min(self.replicas.len())
    }
}

/// What a shard's next configuration is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardChange {
    /// The shard.
    pub shard: ShardId,
    /// The epoch that it has as far as whoever asks knows; the next one is one higher.
    pub expected: Epoch,
    /// Its primary.
    pub primary: ServerId,
    /// All its replicas, the primary included.
    pub replicas: Vec<ServerId>,
}

impl ShardChange {
    /// Whether the change is one that keeps what the shard has acknowledged: the reason why not.
    /// Servers are looked for by `is_known`.
    pub(crate) fn check(
        &self,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
        factor: ReplicationFactor,
        is_known: impl Fn(ServerId) -> bool,
    ) -> Result<(), &'static str> {
        let replicas = &self.replicas;
        if entry.primary.is_none() {
            return Err("no server has taken it yet");
        }
        if !replicas.contains(&self.primary) {
            return Err("its primary would not be one of its replicas");
        }
        let mut sorted = replicas.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != replicas.len() {
            return Err("a replica is named twice");
        }
        if replicas.len() > factor.replicas() {
            return Err("it would have more replicas than the cluster's replication");
        }
        if !replicas.iter().all(|&server| is_known(server)) {
            return Err("a replica is not a server of the cluster");
        }
        if !normal.replicas.contains(&self.primary) || !entry.replicas.contains(&self.primary) {
            return Err("its primary would come from outside the last configuration that served");
        }
        let same_set = replicas.len() == entry.replicas.len()
            && replicas.iter().all(|server| entry.replicas.contains(server));
        if same_set {
            return Ok(());
        }
        if normal.epoch != entry.epoch {
            return Err("its current configuration has not served yet, so its replicas stay");
        }
        let staying = replicas.iter().filter(|server| normal.replicas.contains(server)).count();
        if staying < normal.quorum(factor) {
            return Err("too few replicas of the last configuration that served would stay");
        }
        if replicas.len() < factor.quorum() {
            return Err("it would have too few replicas to acknowledge anything");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_one_three_or_five() {
        for (replicas, quorum) in [(1, 1), (3, 2), (5, 3)] {
            let factor = ReplicationFactor::new(replicas).expect("a factor");
            assert_eq!((factor.get(), factor.quorum()), (replicas, quorum));
        }
        for replicas in [0, 2, 4, 6, 7, 255] {
            assert!(ReplicationFactor::new(replicas).is_err(), "{replicas} was taken");
        }
    }
}

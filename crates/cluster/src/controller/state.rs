//! What the controller knows of replicas: who is lost, who follows, who serves, who failed to lead.

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_types::{Epoch, ShardId, Timestamp};

use super::Controller;
use super::view::View;
use crate::limits::{HEARS_WITHIN, MAX_TRY_AGAIN_AFTER, STEADY_TIME, TRY_AGAIN_AFTER};
use crate::{NormalConfiguration, ReplicaClaim, ReplicaLoss, ServerId, ShardEntry};

/// A replica was to lead in the place of a primary with unread pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    /// The shard's epoch before.
    epoch: Epoch,
    again_at: Timestamp,
    pause: Duration,
}

impl Controller {
    /// Notes since when each replica of a shard is lost, not in its epoch, or not told of; and
    /// whether its primary could not lead.
    pub(super) fn note_replicas(&mut self, now: Timestamp, entry: &ShardEntry) {
        for &server in &entry.replicas {
            let (key, is_alive) = ((entry.id, server), self.servers.is_alive(now, server));
            let is_behind = self.installed(entry.id, server) != entry.epoch;
            let is_unfit = self.is_lost(now, server)
                || (is_alive && is_behind && !self.rebuilds(entry, server));
            if is_unfit {
                self.unfit_since.entry(key).or_insert(now);
            } else {
                self.unfit_since.remove(&key);
            }
            if is_alive && !self.replicas.contains_key(&key) {
                self.untold_since.entry(key).or_insert(now);
            } else {
                self.untold_since.remove(&key);
            }
        }
        let claim = self.claim(now, entry);
        self.note_steadiness(now, entry, claim);
        self.note_awareness(now, entry);
        let key = (entry.id, entry.primary);
        match claim {
            ReplicaClaim::Serves | ReplicaClaim::HandsOver => {
                self.could_not_lead.retain(|(shard, _), _| *shard != entry.id);
            }
            ReplicaClaim::CannotLead | ReplicaClaim::HearsNobody => {
                self.could_not_lead.insert(key, entry.epoch);
            }
            ReplicaClaim::NeedsEpoch => {
                let (epoch, count) = self.needed_epochs.entry(key).or_default();
                if *epoch != entry.epoch {
                    (*epoch, *count) = (entry.epoch, *count + 1);
                }
            }
            ReplicaClaim::Rebuilds | ReplicaClaim::Leaves | ReplicaClaim::None => {}
        }
    }

    /// Notes since when a shard's primary lives and has not heard of the shard's epoch, as when it
    /// reaches the other servers and not the master. After a while it counts as one that could not
    /// lead.
    fn note_awareness(&mut self, now: Timestamp, entry: &ShardEntry) {
        let key = (entry.id, entry.primary);
        let status = self.replicas.get(&key);
        let is_unaware = self.servers.is_alive(now, entry.primary)
            && status.is_some_and(|status| status.promised < entry.epoch);
        if !is_unaware {
            self.unaware_since.remove(&entry.id);
            return;
        }
        since_in_epoch(&mut self.unaware_since, now, entry);
        if self.is_unaware(now, entry) {
            self.could_not_lead.insert(key, entry.epoch);
        }
    }

    /// Whether a shard's live primary has not heard for long that it leads.
    pub(super) fn is_unaware(&self, now: Timestamp, entry: &ShardEntry) -> bool {
        let limit = HEARS_WITHIN.max(self.limits.detection * 4);
        let since = self.unaware_since.get(&entry.id);
        since.is_some_and(|&(epoch, since)| {
            epoch == entry.epoch && now >= since.saturating_add(limit)
        }) && !timestone_types::is_planted!(WaitsForUnaware)
    }

    /// Notes since when a shard serves, and forgets after a while who needed other epochs, and that
    /// its primary was only tried.
    fn note_steadiness(&mut self, now: Timestamp, entry: &ShardEntry, claim: ReplicaClaim) {
        if !claim.serves() {
            self.serves_since.remove(&entry.id);
            return;
        }
        let since = since_in_epoch(&mut self.serves_since, now, entry);
        if now >= since.saturating_add(STEADY_TIME) {
            self.needed_epochs.retain(|(shard, _), _| *shard != entry.id);
            self.tries.remove(&(entry.id, entry.primary));
        }
    }

    /// How often the replica of a shard at this server needed another epoch lately, beyond the one
    /// that every start may need.
    pub(super) fn repeated_starts(&self, shard: ShardId, server: ServerId) -> u32 {
        self.needed_epochs.get(&(shard, server)).map_or(0, |(_, count)| count.saturating_sub(1))
    }

    /// Whether a replica may lead in the place of a primary with unread pages, which serves: not if it
    /// has started again and again, nor soon after it was tried. What failed then would fail again,
    /// and the shard would have no primary meanwhile.
    pub(super) fn may_try(&self, now: Timestamp, entry: &ShardEntry, server: ServerId) -> bool {
        let tried = self.tries.get(&(entry.id, server));
        // In the same epoch it was not carried out.
        let is_early =
            tried.is_some_and(|tried| tried.epoch != entry.epoch && now < tried.again_at);
        (!is_early && self.repeated_starts(entry.id, server) == 0)
            || timestone_types::is_planted!(TriesAgainAtOnce)
    }

    /// Notes that a replica is to lead in the place of a primary with unread pages.
    pub(super) fn note_try(&mut self, now: Timestamp, entry: &ShardEntry, server: ServerId) {
        let key = (entry.id, server);
        let pause = match self.tries.get(&key) {
            None => TRY_AGAIN_AFTER,
            Some(tried) if tried.epoch == entry.epoch => tried.pause,
            Some(tried) => (tried.pause * 2).min(MAX_TRY_AGAIN_AFTER),
        };
        let again_at = now.saturating_add(pause);
        self.tries.insert(key, Try { epoch: entry.epoch, again_at, pause });
    }

    /// What the primary of a shard says of the shard's epoch.
    pub(super) fn claim(&self, now: Timestamp, entry: &ShardEntry) -> ReplicaClaim {
        let status = self.replicas.get(&(entry.id, entry.primary));
        match status.filter(|_| self.servers.is_alive(now, entry.primary)) {
            Some(status)
                if timestone_types::is_planted!(ConfirmsInstalled)
                    && status.installed == entry.epoch =>
            {
                ReplicaClaim::Serves
            }
            Some(status) => status.claim_of(entry.epoch),
            None => ReplicaClaim::None,
        }
    }

    /// Whether this controller has listened for a whole detection time without a pause.
    pub(super) fn has_listened(&self, now: Timestamp) -> bool {
        let since = self.listening.map(|(since, _)| since);
        since.is_some_and(|since| now >= since.saturating_add(self.limits.detection))
    }

    /// Whether a server is silent although this controller has listened for long enough.
    pub(super) fn is_lost(&self, now: Timestamp, server: ServerId) -> bool {
        let is_starting = self.starting_until.get(&server).is_some_and(|until| now < *until);
        self.has_listened(now) && !is_starting && !self.servers.is_alive(now, server)
    }

    /// Whether the replica of a shard at this server is lost: with the server, or alone, when the
    /// server has told nothing of it for a whole detection time.
    pub(super) fn is_lost_replica(&self, now: Timestamp, shard: ShardId, server: ServerId) -> bool {
        let untold = self
            .untold_since
            .get(&(shard, server))
            .is_some_and(|since| now >= since.saturating_add(self.limits.detection));
        self.is_lost(now, server) || (untold && self.servers.is_alive(now, server))
    }

    /// The epoch that a server has installed of a shard.
    pub(super) fn installed(&self, shard: ShardId, server: ServerId) -> Epoch {
        self.replicas.get(&(shard, server)).map_or(Epoch::ZERO, |status| status.installed)
    }

    /// Whether a server is alive and its answer counts for a candidate whose table rests on this epoch:
    /// it knows what it had of the shard, or has lost that before.
    pub(super) fn can_answer(
        &self,
        now: Timestamp,
        shard: ShardId,
        server: ServerId,
        (normal, base): (&NormalConfiguration, Epoch),
    ) -> bool {
        let loss = self.replicas.get(&(shard, server)).map(|status| status.loss);
        let counts = match loss {
            Some(ReplicaLoss::GivenUp) => true,
            Some(ReplicaLoss::VoidSince(since)) => since < base,
            Some(ReplicaLoss::None | ReplicaLoss::Unread) | None => false,
        };
        self.can_lead(now, shard, server, normal) || (self.servers.is_alive(now, server) && counts)
    }

    /// Whether a server is alive and has state of the shard that counts. Before a shard has served,
    /// having none is all that there is to have.
    pub(super) fn can_lead(
        &self,
        now: Timestamp,
        shard: ShardId,
        server: ServerId,
        normal: &NormalConfiguration,
    ) -> bool {
        let is_told = self.replicas.contains_key(&(shard, server));
        self.servers.is_alive(now, server)
            && is_told
            && (normal.has_never_served() || self.installed(shard, server) != Epoch::ZERO)
    }

    /// Whether a replica takes a checkpoint of its shard, and gets on.
    pub(super) fn rebuilds(&self, entry: &ShardEntry, server: ServerId) -> bool {
        let status = self.replicas.get(&(entry.id, server));
        status.is_some_and(|status| status.claim_of(entry.epoch) == ReplicaClaim::Rebuilds)
    }

    /// Whether the server of a replica is being stopped, as far as is told.
    pub(super) fn leaves(&self, shard: ShardId, server: ServerId) -> bool {
        let status = self.replicas.get(&(shard, server));
        status.is_some_and(|status| status.claim == ReplicaClaim::Leaves)
    }

    /// Whether a replica lacks what its device has not read, or what is damaged there. It would tell
    /// clients an older version, or nothing, where others have the right one.
    pub(super) fn is_unread(&self, shard: ShardId, server: ServerId) -> bool {
        let status = self.replicas.get(&(shard, server));
        status.is_some_and(|status| status.loss == ReplicaLoss::Unread)
            && !timestone_types::is_planted!(LeadsBesideUnreadPages)
    }

    /// Of how many shards each server is the primary, what is proposed included.
    pub(super) fn primaries_of(&self, view: &View) -> BTreeMap<ServerId, usize> {
        let mut counts = BTreeMap::new();
        for (entry, _) in view.shards() {
            let proposed = self.pending.get(&entry.id).and_then(|(_, primary)| *primary);
            *counts.entry(proposed.unwrap_or(entry.primary)).or_default() += 1;
        }
        counts
    }

    /// How much a replica lacks, as far as is told.
    pub(super) fn lag_records(&self, shard: ShardId, server: ServerId) -> u64 {
        self.replicas.get(&(shard, server)).map_or(u64::MAX, |status| status.lag_records)
    }

    /// Whether a replica follows its shard.
    pub(super) fn is_fit(&self, now: Timestamp, entry: &ShardEntry, server: ServerId) -> bool {
        let status = self.replicas.get(&(entry.id, server));
        self.servers.is_alive(now, server)
            && status.is_some_and(|status| status.installed == entry.epoch)
    }

    pub(super) fn normal_is_current(entry: &ShardEntry, normal: &NormalConfiguration) -> bool {
        entry.epoch == normal.epoch
    }
}

/// Notes that something is so of a shard in its epoch; since when it is.
fn since_in_epoch(
    all: &mut BTreeMap<ShardId, (Epoch, Timestamp)>,
    now: Timestamp,
    entry: &ShardEntry,
) -> Timestamp {
    let noted = all.entry(entry.id).or_insert((entry.epoch, now));
    if noted.0 != entry.epoch {
        *noted = (entry.epoch, now);
    }
    noted.1
}

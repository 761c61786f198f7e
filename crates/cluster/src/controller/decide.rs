//! What a shard needs next: to be confirmed, another primary, another epoch, another replica in the
//! place of one, or one more.
//!
//! A primary that hands over is followed by a replica that has next to everything; it serves until
//! that one begins.

use core::cmp::Reverse;

use timestone_types::{Epoch, Timestamp};

use super::view::View;
use super::{Controller, ControllerOutput};
use crate::limits::MAX_HAND_OVER_LAG;
use crate::{NormalConfiguration, ReplicaClaim, ServerId, ShardChange, ShardEntry};

impl Controller {
    /// The next step for a shard, if it needs one.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
    ) -> Option<ControllerOutput> {
        if entry.primary.is_none() {
            return None;
        }
        let claim = self.claim(now, entry);
        if claim.serves() && !Self::normal_is_current(entry, normal) {
            return Some(ControllerOutput::Confirm { shard: entry.id, epoch: entry.epoch });
        }
        let change = if self.is_lost_replica(now, entry.id, entry.primary) {
            self.other_primary(now, view, entry, normal)
        } else {
            match claim {
                ReplicaClaim::HandsOver => self.successor(now, view, entry, |_| true),
                ReplicaClaim::Serves => self
                    .instead_of_unread(now, view, entry)
                    .or_else(|| self.in_place_of_unfit(now, view, entry))
                    .or_else(|| self.with_another(now, view, entry)),
                ReplicaClaim::NeedsEpoch | ReplicaClaim::CannotLead => {
                    self.another_epoch(now, view, entry, normal)
                }
                ReplicaClaim::HearsNobody => self.instead_of_deaf(now, view, entry, normal),
                ReplicaClaim::None if self.is_unaware(now, entry) => {
                    self.instead_of_deaf(now, view, entry, normal)
                }
                ReplicaClaim::Rebuilds | ReplicaClaim::Leaves | ReplicaClaim::None => None,
            }
        }?;
        assert!(
            normal.replicas.contains(&change.primary) && entry.replicas.contains(&change.primary),
            "a primary comes from the last normal configuration and from the current one"
        );
        Some(ControllerOutput::Change(change))
    }

    /// The replica to which a primary hands its shard over: one that follows, and lacks next to
    /// nothing, whose device has read all that it has, and that may be tried. Of several the one at the
    /// server that is primary of the fewest shards, then the one that lacks least.
    fn successor(
        &self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
        may_try: impl Fn(ServerId) -> bool,
    ) -> Option<ShardChange> {
        let primaries = self.primaries_of(view);
        let may_follow = |&&server: &&ServerId| {
            let lag_records = self.lag_records(entry.id, server);
            let follows = self.is_fit(now, entry, server)
                && lag_records <= MAX_HAND_OVER_LAG
                && !self.is_unread(entry.id, server);
            server != entry.primary
                && !self.leaves(entry.id, server)
                && may_try(server)
                && (follows || timestone_types::is_planted!(HandsOverToAnybody))
        };
        let key = |&&server: &&ServerId| {
            let count = primaries.get(&server).copied().unwrap_or(0);
            (count, self.lag_records(entry.id, server), server)
        };
        let primary = entry.replicas.iter().filter(may_follow).min_by_key(key)?;
        Some(change_of(entry, *primary, entry.replicas.clone()))
    }

    /// The live replica that is the most up to date, if enough others are left for it to serve.
    /// One that could not lead before comes after those that have not tried.
    fn other_primary(
        &self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
    ) -> Option<ShardChange> {
        let factor = view.replication();
        let able = |&&server: &&ServerId| self.can_lead(now, entry.id, server, normal);
        let installed =
            normal.replicas.iter().filter(able).map(|&one| self.installed(entry.id, one));
        let known = (normal, installed.max().unwrap_or(Epoch::ZERO));
        let answers = |&&server: &&ServerId| self.can_answer(now, entry.id, server, known);
        // It must learn what was acknowledged, and be able to acknowledge more.
        let alive = entry.replicas.iter().filter(|&&one| self.servers.is_alive(now, one)).count();
        if normal.replicas.iter().filter(answers).count() < normal.quorum(factor)
            || alive < factor.quorum()
        {
            return None;
        }
        let primary = entry
            .replicas
            .iter()
            .filter(able)
            .filter(|server| normal.replicas.contains(server))
            .max_by_key(|&&server| self.fitness(entry, normal, server))?;
        Some(change_of(entry, *primary, entry.replicas.clone()))
    }

    /// How well a replica can lead its shard: the higher, the better. Of several that are alike,
    /// the present primary; not if it has started again and again, because it would do so as the
    /// primary for ever: it is back before it counts as lost. One that has not followed the last
    /// normal configuration does not take its place. Who has started
    /// again and again comes behind all others, also those that lack what their device has not read:
    /// they serve. Those come behind the rest, also behind one whose server is being stopped.
    fn fitness(
        &self,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
        server: ServerId,
    ) -> impl Ord + use<> {
        let key = (entry.id, server);
        let installed = self.installed(entry.id, server);
        let failed = self.could_not_lead.get(&key).copied().unwrap_or(Epoch::ZERO);
        let lag_records = self.lag_records(entry.id, server);
        (
            Reverse(failed),
            installed >= normal.epoch,
            Reverse(self.repeated_starts(entry.id, server)),
            !self.is_unread(entry.id, server),
            !self.leaves(entry.id, server),
            installed,
            Reverse(lag_records),
            server == entry.primary,
            Reverse(server),
        )
    }

    /// The shard in its next epoch, because its primary cannot lead this one: with the replica that
    /// is the most up to date, or the same primary again while no other one could serve. Not more
    /// often than the loss of a server is noticed: a primary that fails at once does not use up
    /// epochs. All replicas are heard first, or known to be silent.
    fn another_epoch(
        &mut self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
    ) -> Option<ShardChange> {
        if !self.may_renew(now, entry) {
            return None;
        }
        self.renewed_at.insert(entry.id, now);
        let same = || change_of(entry, entry.primary, entry.replicas.clone());
        Some(self.other_primary(now, view, entry, normal).unwrap_or_else(same))
    }

    /// The shard with another primary in the place of one that hears none of the others, or nothing of
    /// the epoch, if one could serve. It goes on to ask; a new epoch for it alone would change nothing.
    fn instead_of_deaf(
        &mut self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
    ) -> Option<ShardChange> {
        if !self.may_renew(now, entry) || timestone_types::is_planted!(WaitsForDeaf) {
            return None;
        }
        let change = self.other_primary(now, view, entry, normal);
        let change = change.filter(|change| change.primary != entry.primary)?;
        self.renewed_at.insert(entry.id, now);
        Some(change)
    }

    /// The shard with another primary in the place of one whose device has not read all that it has,
    /// if one follows that has everything, and has not just failed to lead.
    fn instead_of_unread(
        &mut self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
    ) -> Option<ShardChange> {
        if !self.is_unread(entry.id, entry.primary) || !self.may_renew(now, entry) {
            return None;
        }
        let may_try = |server| self.may_try(now, entry, server);
        let change = self.successor(now, view, entry, may_try)?;
        self.note_try(now, entry, change.primary);
        self.renewed_at.insert(entry.id, now);
        Some(change)
    }

    /// Whether enough is known of a shard's replicas, and its primary was not changed just now.
    fn may_renew(&self, now: Timestamp, entry: &ShardEntry) -> bool {
        let all_heard = entry.replicas.iter().all(|&one| self.servers.is_alive(now, one));
        let renewed = self.renewed_at.get(&entry.id);
        (all_heard || self.has_listened(now))
            && renewed.is_none_or(|at| now >= at.saturating_add(self.limits.detection))
    }

    /// The shard with another replica in the place of one that has been lost for long. Where nobody
    /// can take its place it stays: it may come back, and without it the others are one less.
    fn in_place_of_unfit(
        &mut self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
    ) -> Option<ShardChange> {
        let quorum = view.replication().quorum();
        let unfit = entry
            .replicas
            .iter()
            .copied()
            .find(|&server| server != entry.primary && self.must_leave(now, entry, server))?;
        let staying: Vec<ServerId> =
            entry.replicas.iter().copied().filter(|&server| server != unfit).collect();
        let fit = staying.iter().filter(|&&server| self.is_fit(now, entry, server)).count();
        if fit < quorum {
            return None;
        }
        // Another epoch would begin the checkpoints of others anew, for which it may be waiting.
        let others_rebuild = staying.iter().any(|&one| self.rebuilds(entry, one));
        if others_rebuild && self.servers.is_alive(now, unfit) {
            return None;
        }
        let joining = self.joining(now, view, entry)?;
        self.removed_at.insert((entry.id, unfit), now);
        let replicas = staying.into_iter().chain([joining]).collect();
        Some(change_of(entry, entry.primary, replicas))
    }

    fn must_leave(&self, now: Timestamp, entry: &ShardEntry, server: ServerId) -> bool {
        let since = self.unfit_since.get(&(entry.id, server));
        since.is_some_and(|since| now >= since.saturating_add(self.limits.replace_after))
    }

    /// The shard with one replica more, at the server that has the fewest.
    fn with_another(
        &mut self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
    ) -> Option<ShardChange> {
        // A shard of one replica is completed when servers register.
        if entry.replicas.len() >= view.replication().replicas() || entry.replicas.len() == 1 {
            return None;
        }
        let joining = self.joining(now, view, entry)?;
        let mut replicas = entry.replicas.clone();
        replicas.push(joining);
        Some(change_of(entry, entry.primary, replicas))
    }

    /// The live server that may become a replica of a shard and has the fewest: it has time to do so.
    fn joining(&mut self, now: Timestamp, view: &View, entry: &ShardEntry) -> Option<ServerId> {
        let counts = view.replicas_of();
        let may_join = |server: &ServerId| {
            let heard_for_long = self
                .heard_since
                .get(server)
                .is_some_and(|since| now >= since.saturating_add(self.limits.detection));
            let stayed_away = self
                .removed_at
                .get(&(entry.id, *server))
                .is_none_or(|removed| now >= removed.saturating_add(self.limits.replace_after));
            !entry.replicas.contains(server)
                && self.servers.is_alive(now, *server)
                && heard_for_long
                && stayed_away
        };
        let servers = view.servers().iter().copied().filter(may_join);
        let joining =
            servers.min_by_key(|server| (counts.get(server).copied().unwrap_or(0), *server))?;
        self.unfit_since.remove(&(entry.id, joining));
        Some(joining)
    }
}

fn change_of(entry: &ShardEntry, primary: ServerId, replicas: Vec<ServerId>) -> ShardChange {
    ShardChange { shard: entry.id, expected: entry.epoch, primary, replicas }
}

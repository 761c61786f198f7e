//! How far the backups of each shard have come, as they tell with what they answer, or when they are
//! asked because nothing was read there lately; and where a snapshot is to lie that they can answer
//! while a primary is silent.
//!
//! ```text
//!   ClosedIs of a backup ─► told ──┬─ bound: where snapshots begin while a primary is silent
//!   an answer of the primary ──────┤
//!     (what they lag counts no     └─ held:  what servers are to keep, so that a snapshot there
//!      longer)                               can be read at all shards
//! ```
//! A backup closes nothing any more when its primary is gone. Snapshots that begin as usual come to lie
//! above what is closed, then. So, as long as `max_staleness` allows it, they begin at what the backup
//! that has come furthest has told, at the shard that is furthest behind: one snapshot is closed at all
//! shards. Source: docs/protocol/replication.md, rule P23.

use core::time::Duration;

use timestone_clock::server_time::ServerNumber;
use timestone_types::{Timestamp, is_planted};

use super::shards::{ShardIndex, Shards};
use crate::limits;

/// What a backup has told last.
#[derive(Clone, Copy, Debug)]
struct Told {
    server: ServerNumber,
    /// It answers snapshots at or below this.
    at: Timestamp,
    heard: Timestamp,
}

/// The backups of one shard.
#[derive(Debug, Default)]
struct OfShard {
    told: Vec<Told>,
    /// They lag, by what was told last, and the primary has not answered since.
    is_behind: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    shards: Vec<OfShard>,
    /// How many of them are behind.
    behind: usize,
    /// The most that a transaction has allowed.
    longest: Duration,
    /// When one began last.
    used: Timestamp,
}

impl Closed {
    /// A backup of a shard answers snapshots at or below `at`.
    pub(super) fn tell(
        &mut self,
        now: Timestamp,
        shard: ShardIndex,
        (server, at): (ServerNumber, Timestamp),
    ) {
        if self.shards.len() <= shard.index() {
            self.shards.resize_with(shard.index() + 1, OfShard::default);
        }
        let told = &mut self.shards[shard.index()].told;
        told.retain(|one| one.server != server && is_recent(now, one));
        told.push(Told { server, at, heard: now });
        let furthest = told.iter().map(|one| one.at).max().unwrap_or(at);
        self.set_behind(shard, now.since(furthest) >= limits::CLOSED_LAGS);
    }

    /// The primary of a shard has answered.
    #[inline]
    pub(super) fn serves(&mut self, shard: ShardIndex) {
        if self.behind > 0 && shard.index() < self.shards.len() {
            self.set_behind(shard, false);
        }
    }

    fn set_behind(&mut self, shard: ShardIndex, is_behind: bool) {
        let of = &mut self.shards[shard.index()];
        self.behind += usize::from(is_behind);
        self.behind -= usize::from(std::mem::replace(&mut of.is_behind, is_behind));
        let counted = || self.shards.iter().filter(|of| of.is_behind).count();
        debug_assert!(self.shards.len() > limits::CHECKED_SHARDS || counted() == self.behind);
    }

    /// Another map: what others have told than these backups of a shard counts no longer.
    pub(super) fn keep(&mut self, shard: ShardIndex, is_backup: impl Fn(ServerNumber) -> bool) {
        if let Some(of) = self.shards.get_mut(shard.index()) {
            of.told.retain(|one| is_backup(one.server));
        }
    }

    /// What the backups of a shard have told.
    fn told(&self, shard: ShardIndex) -> &[Told] {
        self.shards.get(shard.index()).map_or(&[], |of| &of.told)
    }

    fn told_by(&self, shard: ShardIndex, server: ServerNumber) -> Option<&Told> {
        self.told(shard).iter().find(|one| one.server == server)
    }

    /// Up to where one of a shard's backups answers that can be asked, and when it has said so. One that
    /// has closed nothing says zero, and answers nothing.
    fn furthest(
        &self,
        now: Timestamp,
        shard: ShardIndex,
        is_up: impl Fn(ServerNumber) -> bool,
    ) -> Option<Told> {
        let told = self.told(shard);
        let answers = |one: &&Told| one.at > Timestamp::ZERO && is_up(one.server);
        let open = told.iter().filter(|one| is_recent(now, one)).filter(answers);
        open.max_by_key(|one| one.at).copied()
    }

    /// Whether a backup is to be asked how far it has come: its answers have not said so lately, and
    /// transactions are begun that want to know.
    pub(super) fn is_due(&self, now: Timestamp, shard: ShardIndex, server: ServerNumber) -> bool {
        let told = self.told_by(shard, server);
        now.since(self.used) < limits::CLOSED_USED
            && told.is_none_or(|told| now.since(told.heard) >= limits::CLOSED_ASKED_AFTER)
    }

    /// Whether a backup has said just now that it has not come as far as `at`.
    pub(super) fn lacks(
        &self,
        now: Timestamp,
        shard: ShardIndex,
        (server, at): (ServerNumber, Timestamp),
    ) -> bool {
        let told = self.told_by(shard, server);
        told.is_some_and(|one| one.at < at && now.since(one.heard) < limits::BACKUP_PAUSE)
    }
}

fn is_recent(now: Timestamp, told: &Told) -> bool {
    now.since(told.heard) < limits::CLOSED_TOLD_LASTS
}

/// For the engine.
impl Shards {
    /// A backup of a shard tells up to where it answers; who it is, the batch says.
    pub(super) fn closed_is(&mut self, now: Timestamp, shard: ShardIndex, at: Timestamp) {
        if let Some(server) = self.peer().filter(|_| self.is_of_another(shard)) {
            self.closed.tell(now, shard, (server, at));
        }
    }

    /// Up to where one of a shard's backups answers that can be asked.
    pub(crate) fn closed_at(&self, now: Timestamp, shard: ShardIndex) -> Option<Timestamp> {
        let furthest = self.closed.furthest(now, shard, |server| self.backups.is_up(server));
        furthest.map(|told| told.at)
    }

    /// At or below which timestamp a snapshot is to begin that may be so old, so that backups answer
    /// it where primaries are silent. `None`: they all answer, as far as is known.
    pub(crate) fn snapshot_bound(&mut self, now: Timestamp, most: Duration) -> Option<Timestamp> {
        (self.closed.longest, self.closed.used) = (self.closed.longest.max(most), now);
        if self.closed.behind == 0 && !self.misses_any() || is_planted!(BeginsAboveClosed) {
            return None;
        }
        let silent = self.known().filter(|&shard| self.is_silent(shard));
        let closed = silent.filter_map(|shard| self.closed_at(now, shard));
        closed.filter(|&at| now.since(at) <= most).min()
    }

    /// Whether a shard's primary does not answer, or its backups lag as if it did not.
    fn is_silent(&self, shard: ShardIndex) -> bool {
        let is_behind = self.closed.shards.get(shard.index()).is_some_and(|of| of.is_behind);
        is_behind || !self.serves(shard)
    }

    /// The lowest timestamp at which a snapshot may begin from now on that backups may answer: where it
    /// usually lies, or where a primary that is silent, or falls silent now, makes it lie. Participants
    /// take no report back, so it is told before it is used.
    pub(crate) fn held_snapshot(&self, now: Timestamp) -> Option<Timestamp> {
        let longest = self.closed.longest;
        if longest.is_zero() || is_planted!(HoldsNoSnapshot) {
            return None;
        }
        let held = self.known().filter_map(|shard| {
            let told = self.closed.furthest(now, shard, |server| self.backups.is_up(server))?;
            let is_fresh = now.since(told.heard) < limits::CLOSED_LAGS;
            (is_fresh || self.is_silent(shard)).then_some(told.at)
        });
        let usual = now.saturating_sub(longest.min(limits::READ_BEHIND));
        Some(held.filter(|&at| now.since(at) <= longest).fold(usual, Timestamp::min))
    }
}

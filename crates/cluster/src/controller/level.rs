//! Primaries move to servers that have fewer, one at a time, while all is well: so that after a
//! failure or a restart each server has its share again.
//!
//! ```text
//!   all is well for a while ──► asks one primary to hand over ──► HandsOver ──► decide: its successor
//!            ▲                                  └── nothing comes of it ──► a long pause     │
//!            └──────────────────────── all is well again ◄───────────────────────────────────┘
//! ```
//! A shard moves only if its primary's server has at least two shards more than the one that it
//! moves to, so that none moves back. What is deliberately absent: moving replicas.

use core::time::Duration;

use timestone_types::Timestamp;

use super::Controller;
use super::view::View;
use crate::limits::{LEVEL_AFTER, LEVEL_NEXT_AFTER, LEVEL_PAUSE, LEVEL_TIMEOUT, MAX_HAND_OVER_LAG};
use crate::{HandOver, NormalConfiguration, ServerId, ShardEntry};

/// How far it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Levelling {
    /// Who is asked, and until when something must have come of it.
    asked: Option<(HandOver, Timestamp)>,
    /// When the next one may be asked, if all is well until then.
    next_at: Option<Timestamp>,
}

impl Levelling {
    pub(super) fn asked(&self) -> Option<HandOver> {
        self.asked.map(|(asked, _)| asked)
    }
}

impl Controller {
    /// Looks whether a shard should move.
    pub(super) fn level(&mut self, now: Timestamp, view: &View) {
        let asked = self.levelling.asked();
        let is_others = |entry: &ShardEntry| asked.is_none_or(|asked| asked.shard != entry.id);
        let mut others = view.shards().filter(|(entry, _)| is_others(entry));
        if others.any(|(entry, normal)| !self.is_well(now, view, entry, normal)) {
            return self.level_after(now, LEVEL_AFTER);
        }
        let Some((asked, until)) = self.levelling.asked else {
            let next_at = *self.levelling.next_at.get_or_insert(now.saturating_add(LEVEL_AFTER));
            if now >= next_at {
                let until = now.saturating_add(LEVEL_TIMEOUT);
                self.levelling.asked = self.too_many(view).map(|asked| (asked, until));
            }
            return;
        };
        let moved = view.shards().find(|(entry, _)| entry.id == asked.shard);
        let is_over = moved.is_none_or(|(entry, normal)| {
            entry.epoch > asked.epoch && self.is_well(now, view, entry, normal)
        });
        if is_over {
            self.level_after(now, LEVEL_NEXT_AFTER);
        } else if now >= until {
            self.level_after(now, LEVEL_PAUSE);
        }
    }

    /// Nobody is asked before so long has passed.
    fn level_after(&mut self, now: Timestamp, pause: Duration) {
        self.levelling = Levelling { asked: None, next_at: Some(now.saturating_add(pause)) };
    }

    /// Whether a shard is complete, serves, and all its replicas follow.
    fn is_well(
        &self,
        now: Timestamp,
        view: &View,
        entry: &ShardEntry,
        normal: &NormalConfiguration,
    ) -> bool {
        entry.replicas.len() == view.replication().replicas()
            && Self::normal_is_current(entry, normal)
            && !self.pending.contains_key(&entry.id)
            && self.claim(now, entry).serves()
            && entry.replicas.iter().all(|&server| {
                self.is_fit(now, entry, server)
                    && !self.leaves(entry.id, server)
                    && self.lag_records(entry.id, server) <= MAX_HAND_OVER_LAG
            })
    }

    /// A shard whose primary's server has more of them than a server with another replica of it, so
    /// that it is worth while: of several, where the difference is largest.
    fn too_many(&self, view: &View) -> Option<HandOver> {
        let counts = self.primaries_of(view);
        let count = |server: &ServerId| counts.get(server).copied().unwrap_or(0);
        let gain = |entry: &ShardEntry| {
            // One that lacks something does not lead while another one can.
            let whole = entry.replicas.iter().filter(|&&one| !self.is_unread(entry.id, one));
            whole.map(count).min().map_or(0, |fewest| count(&entry.primary).saturating_sub(fewest))
        };
        let shards = view.shards().map(|(entry, _)| (gain(entry), entry));
        let worth = shards.filter(|(gain, _)| *gain >= 2);
        let (_, entry) = worth.max_by_key(|(gain, entry)| (*gain, core::cmp::Reverse(entry.id)))?;
        Some(HandOver { shard: entry.id, epoch: entry.epoch })
    }
}

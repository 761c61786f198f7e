//! The end of a primary whose epoch is over: its store goes to a backup.
//!
//! ```text
//!   Shard ── depose ─► store ─► Replay, fed with what counts of the own log ─► Backup
//! ```
//! The store has only what counts, and decisions that are certain although their records do not
//! count yet: a client decides what all shards have promised so that it counts, and whoever is
//! primary later is told the same. Everything else that the shard knows may rest on what does not
//! count: it is dropped, and what does count is replayed. Source: docs/protocol/replication.md, P12.

use timestone_store::Store;
use timestone_txn::participant::View;

use super::Shard;

impl Shard {
    /// It serves nobody any more. Its store is given back as it is, for the replay of a backup;
    /// everything else is dropped, with the memory that it was charged for. Whoever waits for an
    /// answer is not told anything: what he has asked for may still count, or not.
    ///
    /// # Panics
    /// The store is being closed already ([`Shard::is_closing`]).
    #[must_use]
    pub fn depose(mut self) -> Box<dyn Store + Send> {
        assert!(!self.is_closing(), "a store that is being closed takes nothing from a primary");
        #[cfg(feature = "planted-bugs")]
        if timestone_types::is_planted!(PutsWhenDeposed) {
            self.put_promised();
        }
        self.store.begin_life();
        self.figures.publish_without(&*self.store, self.driver.collected().below(), 0);
        self.figures.gauges().publish_tables(&View::default());
        self.store
    }

    /// Whether the store's device has failed: it takes nothing any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.store.has_failed()
    }

    /// Whether the store takes nothing any more, because the process ends. Then the shard is brought
    /// to its end as it is.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.closing.is_draining()
    }

    /// Puts what nobody knows to be committed.
    #[cfg(feature = "planted-bugs")]
    fn put_promised(&mut self) {
        use crate::write_sets::{Target, Unapplied};

        let (shard, seed, has_log) = (self.shard, self.seed, self.log_records.has_log());
        let promised = self.write_sets.payloads().promised();
        for (txn, commit) in promised {
            let (store, lookups) = (&mut *self.store, &mut self.lookups);
            let mut target = Target { shard, seed, has_log, store, lookups };
            self.write_sets.put(Unapplied::all(txn, commit), &mut target);
        }
    }
}

//! What a restart finds in its log.

use std::collections::BTreeMap;

use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use super::input::{Entry, Mark, Output};
use super::persisting::{Persisted, Persisting};
use super::{Own, Replica, ReplicaId};
use crate::batches::{Batch, Batches, Payload};
use crate::limits::Retention;
use crate::lineage::Lineage;
use crate::number_set::NumberSet;

/// What a replica finds when it starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stored<B> {
    /// Everything up to this batch is in its store, or in what else a restart brings back; it
    /// counts. Nothing is where the last mark says that everything is void.
    pub base: BatchNumber,
    /// What it had made durable, in the order of [`Output::Persist`]; what the log has let go is
    /// missing.
    pub entries: Vec<Entry<B>>,
    /// A replica that has lost something of what it had gives up everything, and takes a checkpoint.
    /// Said at each start until [`Output::TakeCheckpoint`]; the log tells of it from then on.
    pub void: Option<Void>,
}

/// What a replica may have done that it does not know of, because it has lost something of what it had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Void {
    /// The newest epoch that the master has handed out: it may have promised that, and refuses what is
    /// before.
    pub promised: Epoch,
    /// It may have acknowledged and granted something in any epoch up to this one.
    pub since: Epoch,
}

impl Void {
    /// Of a replica that has lost something while this epoch was the newest one. Who is not in its
    /// configuration has acknowledged and granted nothing in it.
    #[must_use]
    pub const fn found(newest: Epoch, is_member: bool) -> Self {
        let since = if is_member { newest } else { Epoch::new(newest.get().saturating_sub(1)) };
        Self { promised: newest, since }
    }
}

impl<B> Stored<B> {
    /// A replica that never had anything.
    #[must_use]
    pub const fn new() -> Self {
        Self { base: BatchNumber::ZERO, entries: Vec::new(), void: None }
    }
}

impl<B> Default for Stored<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// Batches as the log has them: of one number there may be several, of different epochs.
type FoundBatches<B> = BTreeMap<(BatchNumber, Epoch), Batch<B>>;

impl<B: Payload> Replica<B> {
    /// A replica that starts. It is a backup until it is told to lead, and hands out again what
    /// counts above the base.
    pub fn recover(me: ReplicaId, stored: Stored<B>, out: &mut Vec<Output<B>>) -> Self {
        let (mut mark, mut found) = (Mark::default(), FoundBatches::new());
        let mut lease = Timestamp::ZERO;
        for entry in stored.entries {
            match entry {
                Entry::Batch(batch) => {
                    lease = lease.max(batch.lease);
                    found.insert((batch.number, batch.epoch), batch);
                }
                Entry::Mark(next) => {
                    lease = lease.max(next.lease);
                    mark = next;
                }
            }
        }
        let is_void = mark.emptied || stored.void.is_some();
        let base = if is_void { BatchNumber::ZERO } else { stored.base };
        if is_void {
            found.clear();
            (mark.lineage, mark.counted) = (Lineage::default(), BatchNumber::ZERO);
        }
        let lost_before = match mark.lost_before {
            first @ Some(_) if timestone_types::is_planted!(KeepsFirstLoss) => first,
            first => first.max(stored.void.map(|void| void.since)),
        };
        let may_have_promised = stored.void.map(|void| void.promised).max(lost_before);
        // What it remembers of the time before may be less than what it had.
        let given_up = mark.given_up.filter(|_| stored.void.is_none());
        let mut own = Own {
            promised: mark.promised.max(may_have_promised.unwrap_or_default()),
            lineage: mark.lineage,
            lease,
            batches: Batches::above(base),
            received: NumberSet::through(base),
            durable: NumberSet::through(base),
            counted: base.max(mark.counted),
            applied: base,
            lost_before,
            given_up,
            emptied: is_void,
            session: mark.session,
        };
        // The last mark alone says what was cut: one before it may be of a table that was given up
        // for the next epoch before anybody was told of it. Of one number the batch of the latest
        // epoch counts. Batches for a table whose mark is missing are of later epochs than what is
        // installed.
        for (_, batch) in found {
            let is_valid = own.lineage.has(batch.epoch, batch.number);
            if batch.number > base && is_valid {
                own.durable.insert(batch.number);
                own.take(batch);
            }
        }
        own.lease = own.lease.max(lease);
        own.apply(out);
        let persisting = Persisting::default();
        let retention = Retention::default();
        let (table, primary, leading) = (None, None, None);
        let mut replica = Self { me, own, persisting, table, primary, leading, retention };
        if stored.void.is_some() {
            // Before anything else is in the log, and before anything is answered.
            let mark = replica.mark();
            replica.persist(Persisted::Emptied, Entry::Mark(mark), out);
        } else {
            replica.take_checkpoint(out);
        }
        replica
    }
}

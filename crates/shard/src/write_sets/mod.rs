//! Write sets of promised transactions, from the prepare until the store holds their writes.
//!
//! ```text
//!   prepare ─► keep ─► decided ─► put ─┬─ all in the store ─► forget
//!                                      └─ no room ─► waits ─► put again, from the write that failed
//! ```
//! Invariants: write sets that wait for room take turns, so that a delete behind a put gets its own; while
//! one waits, no other is promised room.

mod ahead;
pub(crate) mod payload;

use std::collections::VecDeque;

use timestone_store::StoreError;
use timestone_txn::participant::{Output, Participant};
use timestone_types::{HashSeed, KeyRef, ShardId, Timestamp, TxnId, Version};
use timestone_wal::BatchNumber;
use timestone_wire::{self as wire, Frame, Message, PrepareBody, WriteEntry, WriteKind};

use crate::limits::APPLY_INTERVAL;
use crate::reads::items::Items;
use crate::reads::lookups::Lookups;
use crate::shard::ShardStore;
use crate::single::SingleBody;
use ahead::PutsAhead;
use payload::Payloads;

/// A write set on its way into the store, which had no room for all of it at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unapplied {
    txn: TxnId,
    commit: Timestamp,
    /// Writes of the body that are done already.
    done: usize,
}

impl Unapplied {
    /// All of a transaction's writes.
    pub(crate) const fn all(txn: TxnId, commit: Timestamp) -> Self {
        Self { txn, commit, done: 0 }
    }

    /// Whose writes these are.
    pub(crate) const fn txn(&self) -> TxnId {
        self.txn
    }
}

/// Where write sets are put.
pub(crate) struct Target<'a> {
    pub(crate) shard: ShardId,
    pub(crate) seed: HashSeed,
    pub(crate) has_log: bool,
    pub(crate) store: &'a mut ShardStore,
    pub(crate) lookups: &'a mut Lookups,
}

/// What became of a write set that was to be put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// It is in the store. Its prepare is in this batch.
    Done(Option<BatchNumber>),
    /// It cannot be put any more; nothing waits.
    Dropped,
    /// The rest waits for room.
    NoRoom,
}

/// All write sets of a shard.
#[derive(Default)]
pub(crate) struct WriteSets {
    payloads: Payloads,
    ahead: PutsAhead,
    unapplied: VecDeque<Unapplied>,
    /// Why the first of them has to wait.
    no_room: Option<StoreError>,
    /// When to try again what the store had no room for.
    again_at: Timestamp,
}

impl WriteSets {
    /// Those that earlier runs have left.
    pub(crate) fn new(payloads: Payloads) -> Self {
        Self { payloads, ..Self::default() }
    }

    /// What is kept, by transaction.
    pub(crate) const fn payloads(&self) -> &Payloads {
        &self.payloads
    }

    /// The same, to change it.
    pub(crate) const fn payloads_mut(&mut self) -> &mut Payloads {
        &mut self.payloads
    }

    /// Notes whose write sets these outputs put.
    #[inline]
    pub(crate) fn look_ahead(&mut self, outputs: &[Output]) {
        self.ahead.note(outputs);
    }

    /// The next of them is about to be put: what those behind it look at is fetched now and then.
    #[inline]
    pub(crate) fn fetch_ahead(&mut self, participant: &Participant, store: &ShardStore) {
        self.ahead.advance(&self.payloads, participant, store);
    }

    /// Copies the writes of the prepare, or of the write set that was asked for, that is at hand to
    /// where they stay until it is applied: its keys are in `items`. The body of a single write is
    /// `written`, and moves there.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        (txn, begin, single): (TxnId, Timestamp, bool),
        frame: &Frame<'_>,
        shard: ShardId,
        (items, written): (&Items, &mut SingleBody),
    ) {
        let participants = items.participants();
        match frame.kind() {
            wire::Kind::Prepare | wire::Kind::PrepareRanges => {
                if let Ok((prepare, _)) = wire::Prepare::decode_any(frame) {
                    let body = (prepare.body, items.write_keys());
                    self.payloads.keep(txn, begin, single, participants, body);
                }
            }
            wire::Kind::Write => {
                let (body, key) = (&mut written.body, written.key);
                self.payloads.keep_whole(txn, begin, &[shard], (body, &[key]));
            }
            wire::Kind::WriteSet => {
                if let Ok(set) = wire::WriteSet::decode(frame) {
                    let body = (set.body, items.write_keys());
                    self.payloads.keep(txn, begin, single, participants, body);
                }
            }
            _ => {}
        }
        debug_assert!(self.payloads.get(txn).is_some(), "what is promised is kept");
    }

    /// Whether everything that was decided is in the store.
    #[inline]
    pub(crate) fn are_applied(&self) -> bool {
        self.unapplied.is_empty()
    }

    /// How many decided write sets wait for room.
    pub(crate) fn unapplied(&self) -> usize {
        self.unapplied.len()
    }

    /// Whether this transaction's writes wait for room.
    pub(crate) fn is_unapplied(&self, txn: TxnId) -> bool {
        self.unapplied.iter().any(|work| work.txn == txn)
    }

    /// Whether more puts may be promised, as far as this goes. What waits for memory does not hold
    /// up puts of which none `is_for_memory`.
    ///
    /// # Errors
    /// What was decided before waits for room, and why.
    #[inline]
    pub(crate) fn check_room(&self, is_for_memory: impl Fn() -> bool) -> Result<(), StoreError> {
        match self.no_room {
            _ if self.unapplied.is_empty() => Ok(()),
            Some(StoreError::MemoryFull { .. }) if !is_for_memory() => Ok(()),
            Some(StoreError::DeviceFull { live_blocks, blocks, ref growth }) => {
                Err(StoreError::DeviceFull { live_blocks, blocks, growth: growth.clone() })
            }
            Some(StoreError::MemoryFull { used_bytes, limit_bytes }) => {
                Err(StoreError::MemoryFull { used_bytes, limit_bytes })
            }
            Some(StoreError::NoDevice(ref words)) => Err(StoreError::NoDevice(words.clone())),
            _ => Err(StoreError::Busy),
        }
    }

    /// A write set was decided: whether it is to be put now. If not, it waits behind others.
    #[inline]
    pub(crate) fn is_next(&mut self, now: Timestamp, work: Unapplied) -> bool {
        assert_eq!(work.done, 0, "nothing of it is put before it is decided");
        #[cfg(feature = "planted-bugs")]
        if timestone_types::planted::defers_puts() {
            self.unapplied.push_back(work);
            self.again_at = now;
            return false;
        }
        let _ = now;
        if !self.unapplied.is_empty() {
            self.unapplied.push_back(work);
            return false;
        }
        true
    }

    /// Takes the first one that waits, to put it again.
    pub(crate) fn take_first(&mut self) -> Option<Unapplied> {
        let first = self.unapplied.pop_front();
        debug_assert!(
            first.zip(self.unapplied.front()).is_none_or(|(first, next)| first.txn != next.txn),
            "a write set waits once"
        );
        first
    }

    /// Looks again whether there is room in a while: it comes with what the device completes, which
    /// wakes the host.
    pub(crate) fn look_again(&mut self, now: Timestamp) {
        self.again_at = now.saturating_add(APPLY_INTERVAL);
        debug_assert!(self.again_at > now, "time for others passes in between");
    }

    /// Whether a planted bug keeps what waits where it is.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn still_waits(&mut self, now: Timestamp) -> bool {
        let waits = !self.unapplied.is_empty() && timestone_types::planted::puts_still_wait();
        if waits {
            self.again_at = now;
        }
        debug_assert!(!waits || self.deadline() == Some(now), "what waits is looked at again");
        waits
    }

    /// When to look again whether there is room.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        (!self.unapplied.is_empty()).then_some(self.again_at)
    }

    /// Puts what is not done yet of a write set into the store, as far as there is room; the rest
    /// is queued.
    #[inline]
    pub(crate) fn put(&mut self, work: Unapplied, target: &mut Target<'_>) -> Put {
        let Unapplied { txn, commit, done } = work;
        let shard = target.shard;
        let Some(payload) = self.payloads.get(txn) else {
            tracing::error!(%shard, %txn, "a decided transaction has no write set here");
            return Put::Dropped;
        };
        let batch = payload.batch;
        let version = Version::new(commit, txn.client);
        let body = match PrepareBody::parse(&payload.body) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(%shard, %txn, %error, "a kept write set cannot be read any more");
                return Put::Dropped;
            }
        };
        for (index, write) in body.writes().enumerate().skip(done) {
            let key = match payload.keys.get(index) {
                Some(hashed) => hashed.with(write.key),
                None => KeyRef::new(target.seed, write.keyspace, write.key),
            };
            debug_assert!(
                write.kind == WriteKind::Fence
                    || key == KeyRef::new(target.seed, write.keyspace, write.key),
                "the keys of a write set are those of its writes"
            );
            let put = put_one((key, version), &write, &mut *target.store, target.lookups);
            if let Err(error) = put {
                if matches!(error, StoreError::ShuttingDown) {
                    target.report_closed(txn);
                    return Put::Dropped;
                }
                if !error.retryable() {
                    tracing::error!(%shard, %txn, %error, "a committed write cannot be stored; it \
                        stays in the log");
                }
                assert!(index >= done, "what is put stays put");
                self.unapplied.push_back(Unapplied { txn, commit, done: index });
                self.no_room = Some(error);
                return Put::NoRoom;
            }
        }
        Put::Done(batch)
    }
}

/// Puts one write into the store, and raises what look-ups have found of its key.
///
/// # Errors
/// The store's; nothing was put then.
#[inline]
fn put_one(
    (key, version): (KeyRef<'_>, Version),
    write: &WriteEntry<'_>,
    store: &mut ShardStore,
    lookups: &mut Lookups,
) -> Result<(), StoreError> {
    match write.kind {
        WriteKind::Put => store.put(key, version, write.value, write.expires_at)?,
        WriteKind::Delete => store.delete(key, version)?,
        WriteKind::Fence => store.fence(write.keyspace, version)?,
    }
    if !lookups.is_empty() {
        match write.kind {
            WriteKind::Fence => lookups.raise_all(write.keyspace, version),
            kind => {
                let absent = kind == WriteKind::Delete;
                lookups.raise(write.keyspace, key.hash, version, absent);
            }
        }
    }
    Ok(())
}

/// Puts writes that need not be promised, all with one version. Those that find no room, and what
/// follows them, are left out: they are promised then, and put again.
///
/// # Errors
/// Why the first of them is left out.
#[inline]
pub(crate) fn put_at_once<'a>(
    writes: impl ExactSizeIterator<Item = (KeyRef<'a>, WriteEntry<'a>)>,
    version: Version,
    store: &mut ShardStore,
    lookups: &mut Lookups,
) -> Result<(), StoreError> {
    #[cfg(feature = "planted-bugs")]
    let last = writes.len() - 1;
    for (at, (key, write)) in writes.enumerate() {
        #[cfg(feature = "planted-bugs")]
        if timestone_types::planted::defers_puts() && at == last {
            return Err(StoreError::Busy);
        }
        let _ = at;
        put_one((key, version), &write, store, lookups)?;
    }
    Ok(())
}

impl Target<'_> {
    /// Who decided was silent for too long. The next start finds promise and decision in the log,
    /// if there is one.
    #[cold]
    fn report_closed(&self, txn: TxnId) {
        let shard = self.shard;
        if self.has_log {
            tracing::warn!(%shard, %txn, "a commit was decided after the store was closed: the \
                next start carries it out")
        } else {
            tracing::error!(%shard, %txn, "a commit was decided after the store was closed: it is \
                lost, as there is no log")
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Sequence};

    use super::*;

    #[test]
    fn what_waits_for_memory_holds_up_puts_for_memory_alone() {
        let mut write_sets = WriteSets::default();
        assert!(write_sets.check_room(|| true).is_ok(), "nothing waits");
        let txn = TxnId::new(ClientId::new(1), Sequence::new(1));
        write_sets.unapplied.push_back(Unapplied::all(txn, Timestamp::from_nanos(1)));
        write_sets.no_room = Some(StoreError::MemoryFull { used_bytes: 9, limit_bytes: 10 });
        let refused = write_sets.check_room(|| true);
        assert!(matches!(refused, Err(StoreError::MemoryFull { used_bytes: 9, .. })));
        assert!(write_sets.check_room(|| false).is_ok());
        write_sets.no_room = Some(StoreError::Busy);
        assert!(matches!(write_sets.check_room(|| false), Err(StoreError::Busy)));
    }
}

//! The side of whoever takes a checkpoint: from parts to a backup.
//!
//! ```text
//!   part ─► items ─┬─ versions, tombstones, fences ─► store
//!                  └─ batches that count ─► replay, and the own log
//!   last part ─► everything put is durable ─► done: Rebased, Backup
//! ```
//! The store is an empty one: whatever the replica had before goes first (rule P19). Nothing of it
//! serves or counts before the checkpoint is whole; a restart meanwhile begins with an empty store
//! again.
//!
//! Invariants: parts come in their order, each once; batches are successive; no log holds what the
//! parts brought, so it is durable here before anybody is told that it is done.

use std::collections::VecDeque;

use timestone_seda::StageId;
use timestone_store::{Store, StoreError};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::{BatchHead, BatchNumber};

use super::PartAsk;
use super::part::{self, PartError, PartItem, PartKind};
use crate::backup::Backup;
use crate::error::ShardError;
use crate::replay::Replay;

/// What the store counts the parts to.
const PARTS_BATCH: u64 = 1;

/// What is asked of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RebuildStep {
    /// This part is to be asked for, again and again until it has come.
    Ask(PartAsk),
    /// What has come is not put yet, or not durable: turns will do.
    Wait,
    /// Everything is in the store, durably. When the batches of [`Rebuild::take_batch`] are in the
    /// own log as well, the replica is rebased, and goes on with [`Rebuild::into_backup`].
    Done {
        /// The epoch of the primary that the checkpoint is from.
        epoch: Epoch,
        /// The last batch of the checkpoint.
        through: BatchNumber,
    },
    /// The primary does not know of the checkpoint any more: the store is to be made anew, and
    /// another one is to begin.
    Anew,
}

/// A batch of log records, as its primary wrote it.
pub type LoggedBatch = (BatchHead, Vec<u8>);

/// A replica that is being rebuilt. See the module.
pub struct Rebuild {
    replay: Replay,
    session: u64,
    /// The part that is wanted next.
    next: u64,
    epoch: Option<Epoch>,
    /// The part that is being put, and where its next item begins, counted from its end.
    putting: Option<(Vec<u8>, usize)>,
    /// Batches for the own log.
    batches: VecDeque<LoggedBatch>,
    last: Option<BatchNumber>,
    /// Up to which batch the parts bring everything, as they say.
    through: BatchNumber,
    is_whole: bool,
    is_synced: bool,
    is_gone: bool,
    events: Vec<timestone_store::StoreEvent>,
}

impl Rebuild {
    /// Into an empty store. `session` is a number that nobody has used for this shard before.
    ///
    /// # Panics
    /// The store is not empty.
    #[must_use]
    pub fn new(shard: ShardId, store: Box<dyn Store + Send>, session: u64) -> Self {
        assert_eq!(store.youngest(), Timestamp::ZERO, "what was there before goes first");
        let mut replay = Replay::new(shard, store).beside_others();
        replay.store_mut().begin_batch(PARTS_BATCH);
        Self {
            replay,
            session,
            next: 0,
            epoch: None,
            putting: None,
            batches: VecDeque::new(),
            last: None,
            through: BatchNumber::ZERO,
            is_whole: false,
            is_synced: false,
            is_gone: false,
            events: Vec::new(),
        }
    }

    /// What is to be done next.
    #[must_use]
    pub fn step(&self) -> RebuildStep {
        if self.is_gone {
            return RebuildStep::Anew;
        }
        if self.putting.is_some() || self.replay.is_behind() {
            return RebuildStep::Wait;
        }
        if !self.is_whole {
            return RebuildStep::Ask(PartAsk { session: self.session, part: self.next });
        }
        let through = self.last.unwrap_or(self.through);
        match self.epoch.filter(|_| self.is_synced && through > BatchNumber::ZERO) {
            Some(epoch) => RebuildStep::Done { epoch, through },
            None => RebuildStep::Wait,
        }
    }

    /// A part has come. One that was not asked for, or comes twice, is dropped.
    ///
    /// # Errors
    /// It is damaged.
    pub fn part(&mut self, now: Timestamp, bytes: Vec<u8>) -> Result<(), ShardError> {
        let (head, _) = part::decode(&bytes).map_err(ShardError::part)?;
        if head.session != self.session || head.number != self.next || self.putting.is_some() {
            return Ok(());
        }
        // One session is one epoch's.
        let is_other = self.epoch.is_some_and(|epoch| epoch != head.epoch);
        if head.kind == PartKind::Gone || is_other {
            self.is_gone = true;
            return Ok(());
        }
        (self.epoch, self.through) = (Some(head.epoch), self.through.max(head.through));
        self.is_whole = head.kind == PartKind::Last;
        self.next += 1;
        self.putting = Some((bytes, usize::MAX));
        self.turn(now)
    }

    /// Goes on: puts what has come, and makes it durable. Called every turn.
    ///
    /// # Errors
    /// A part or a record cannot be understood, or the store cannot take it and never will.
    pub fn turn(&mut self, now: Timestamp) -> Result<(), ShardError> {
        self.replay.go_on(now)?;
        self.put(now)?;
        let mut events = std::mem::take(&mut self.events);
        self.replay.store_mut().pump(now, &mut events);
        events.clear();
        self.events = events;
        if self.is_whole && self.putting.is_none() && !self.replay.has_left() && !self.is_synced {
            let store = self.replay.store_mut();
            store.begin_batch(PARTS_BATCH + 1);
            if store.stable_batch() >= PARTS_BATCH {
                self.is_synced = true;
            } else {
                store.sync_soon();
            }
        }
        Ok(())
    }

    /// Puts the items of the part, as far as the store has room for them.
    fn put(&mut self, now: Timestamp) -> Result<(), ShardError> {
        let Some((bytes, left)) = self.putting.take() else { return Ok(()) };
        let (_, mut items) = part::decode_sound(&bytes).map_err(ShardError::part)?;
        items.skip_to(left);
        loop {
            let left = items.left();
            let Some(item) = items.next() else { return Ok(()) };
            if !self.item(now, &item.map_err(ShardError::part)?)? {
                self.putting = Some((bytes, left));
                return Ok(());
            }
        }
    }

    /// Puts an item; false when the store has no room for it now.
    fn item(&mut self, now: Timestamp, item: &PartItem<'_>) -> Result<bool, ShardError> {
        if let PartItem::Batch { batch, epoch, first, bytes } = *item {
            if self.replay.is_behind() {
                return Ok(false);
            }
            let shard = self.replay.shard();
            return self.batch(now, BatchHead { shard, batch, epoch, first }, bytes);
        }
        match item.put_into(self.replay.store_mut(), None) {
            Ok(()) => Ok(true),
            Err(StoreError::Busy | StoreError::DeviceFull { .. } | StoreError::NoDevice(_)) => {
                Ok(false)
            }
            Err(error) => Err(ShardError::part(error)),
        }
    }

    fn batch(&mut self, now: Timestamp, head: BatchHead, bytes: &[u8]) -> Result<bool, ShardError> {
        if self.last.is_some_and(|last| last.next() != head.batch) {
            return Err(ShardError::part(PartError::Damaged("a batch is missing")));
        }
        self.last = Some(head.batch);
        self.replay.batch(now, head, bytes)?;
        self.replay.prune();
        self.batches.push_back((head, bytes.to_vec()));
        Ok(true)
    }

    /// The next batch for the own log; they come in their order, each once. Nothing is promised of
    /// them before the checkpoint is done; then all have to be durable there.
    pub fn take_batch(&mut self) -> Option<LoggedBatch> {
        self.batches.pop_front()
    }

    /// The first batch that the own log is needed for, of those that were taken for it: what has an
    /// undecided promise or an outcome, and the last one. The next one where the whole of it has none.
    #[must_use]
    pub fn keep_from(&self) -> Option<BatchNumber> {
        let Some(last) = self.last else { return self.is_whole.then(|| self.through.next()) };
        Some(self.replay.lowest_needed().map_or(last, |needed| needed.min(last)))
    }

    /// When the next turn is due.
    #[must_use]
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let store = self.replay.store().next_deadline();
        let works = self.putting.is_some() || self.replay.has_left();
        let works = works || (self.is_whole && !self.is_synced);
        // The store makes room in its own time.
        [store, works.then_some(now)].into_iter().flatten().min()
    }

    /// Readable when the device has completed something.
    #[must_use]
    pub fn wake_fd(&self) -> Option<std::os::fd::RawFd> {
        use std::os::fd::AsRawFd;
        self.replay.store().wake_fd().map(|fd| fd.as_raw_fd())
    }

    /// Whether the device has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.replay.store().has_failed()
    }

    /// The backup that it has become; `logs` as for [`Backup::new`].
    ///
    /// # Panics
    /// It is not done, or batches were not taken for the own log.
    #[must_use]
    pub fn into_backup(mut self, logs: &[StageId]) -> Backup {
        assert!(matches!(self.step(), RebuildStep::Done { .. }), "the checkpoint is whole");
        assert!(self.batches.is_empty(), "the own log has what the backup may need again");
        self.replay.store_mut().begin_life();
        Backup::new(self.replay, logs)
    }
}

//! A keyspace that changes its index: everything that a store has of it is copied to another id, and
//! later what is left under the first one is put behind a fence.
//!
//! ```text
//!   KeyspaceCopy: StoreWalk ─► fences, versions, tombstones, expiry ─► the other id ─► durable
//!   KeyspaceEnd:  fence above all of it ─► durable
//! ```
//! For stores that nobody serves from: their owner does nothing else, and does not move the watermark.
//! Both ids may be those of one store on flash or of two; the ids say so.
//!
//! Nothing that a reader at or above the watermark may need is missing under the other id: that is
//! what the walk is for. Versions of a key come youngest first. A tombstone is collected only at or
//! below the watermark, and there the walk of its key ends: no older version comes behind it.
//!
//! Either may be broken off at any moment and begun anew, a copy under another id.

use core::time::Duration;

use timestone_store::{PromisedPuts, PutSize, StoreError, StoreEvent};
use timestone_types::{ClientId, KeyspaceId, Timestamp, Version, is_planted};

use super::part;
use super::walk::StoreWalk;
use crate::error::ShardError;
use crate::shard::ShardStore;

/// A store that has no room for so long will have none.
const FULL_TIMEOUT: Duration = Duration::from_secs(5);
/// Items that are put in one turn.
const ITEMS_PER_TURN: usize = 512;

/// What is put in one batch, and durable before the end of it is told.
#[derive(Clone, Copy, Debug)]
struct OneBatch {
    batch: u64,
    has_begun: bool,
    has_ended: bool,
}

impl OneBatch {
    const fn new(batch: u64) -> Self {
        Self { batch, has_begun: false, has_ended: false }
    }

    /// Called before anything is put.
    fn begin(&mut self, store: &mut ShardStore) {
        if !core::mem::replace(&mut self.has_begun, true) {
            store.begin_batch(self.batch);
        }
    }

    /// Everything was put: whether it is durable.
    fn is_durable(&mut self, store: &mut ShardStore) -> bool {
        debug_assert!(self.has_begun, "what was put is in the batch");
        if !core::mem::replace(&mut self.has_ended, true) {
            store.begin_batch(self.batch + 1);
        }
        let is_durable = store.stable_batch() >= self.batch || is_planted!(MovesBeforeDurable);
        if !is_durable {
            store.sync_soon();
        }
        is_durable
    }
}

/// Whether a store that refuses may take it later; it is an error when it has refused for long.
///
/// # Errors
/// What it has said.
fn may_wait(
    error: StoreError,
    full_since: &mut Option<Timestamp>,
    now: Timestamp,
) -> Result<(), ShardError> {
    match error {
        StoreError::Busy => Ok(()),
        // Collection may win something yet.
        StoreError::DeviceFull { .. } | StoreError::NoDevice(_) => {
            let since = *full_since.get_or_insert(now);
            if now.since(since) < FULL_TIMEOUT { Ok(()) } else { Err(ShardError::part(error)) }
        }
        error => Err(ShardError::part(error)),
    }
}

/// See the module.
#[derive(Debug)]
pub struct KeyspaceCopy {
    walk: StoreWalk,
    to: KeyspaceId,
    /// The item that the store had no room for.
    putting: Option<Vec<u8>>,
    full_since: Option<Timestamp>,
    batch: OneBatch,
    events: Vec<StoreEvent>,
    versions: u64,
    bytes: u64,
}

impl KeyspaceCopy {
    /// Of what is kept under `from`, to an id that nothing was ever kept under. The store counts it to
    /// this batch, and nothing was counted to it or a later one.
    #[must_use]
    pub fn new(from: KeyspaceId, to: KeyspaceId, batch: u64) -> Self {
        debug_assert_ne!(from, to);
        Self {
            walk: StoreWalk::of(from),
            to,
            putting: None,
            full_since: None,
            batch: OneBatch::new(batch),
            events: Vec::new(),
            versions: 0,
            bytes: 0,
        }
    }

    /// Versions, tombstones and fences that were copied so far, and bytes of their keys and values.
    #[must_use]
    pub const fn copied(&self) -> (u64, u64) {
        (self.versions, self.bytes)
    }

    /// Goes on; whether everything is copied, durably. Otherwise call it again, when the store has
    /// [waited](timestone_store::Upkeep::wait) for its devices a moment.
    ///
    /// # Errors
    /// Something cannot be read, or there is no room for it.
    pub fn turn(&mut self, now: Timestamp, store: &mut ShardStore) -> Result<bool, ShardError> {
        self.batch.begin(store);
        self.walk.go_on(now, store).map_err(ShardError::part)?;
        for _ in 0..ITEMS_PER_TURN {
            if !self.put_next(now, store)? {
                break;
            }
        }
        let is_put = self.walk.is_over() && self.walk.item_bytes() == 0 && self.putting.is_none();
        let is_over = is_put && self.batch.is_durable(store);
        self.pump(now, store)?;
        Ok(is_over)
    }

    /// Puts the next item, if there is one and the store has room for it.
    fn put_next(&mut self, now: Timestamp, store: &mut ShardStore) -> Result<bool, ShardError> {
        let Some(bytes) = self.putting.take().or_else(|| self.walk.take_item()) else {
            return Ok(false);
        };
        let item = part::decode_item(&bytes).map_err(ShardError::part)?;
        let size = PutSize { keyspace: self.to, bytes: item.put_bytes() };
        let put = store
            .admit(&mut core::iter::once(size), PromisedPuts::default())
            .inspect_err(|_| {
                store.ask_room(&mut core::iter::once(size), PromisedPuts::default());
            })
            .and_then(|()| item.put_into(store, Some(self.to)));
        match put {
            Ok(()) => {
                self.versions += 1;
                self.bytes += item.put_bytes() as u64;
                self.full_since = None;
                Ok(true)
            }
            Err(error) => {
                may_wait(error, &mut self.full_since, now)?;
                self.putting = Some(bytes);
                Ok(false)
            }
        }
    }

    fn pump(&mut self, now: Timestamp, store: &mut ShardStore) -> Result<(), ShardError> {
        let mut events = core::mem::take(&mut self.events);
        store.pump(now, &mut events);
        for event in events.drain(..) {
            match event {
                StoreEvent::ReadDone { token, outcome } if StoreWalk::is_token(token) => {
                    self.walk.found(token, outcome, now, store).map_err(ShardError::part)?;
                }
                StoreEvent::ScanDone { token, keys, next } if StoreWalk::is_token(token) => {
                    self.walk.listed(token, &keys, next);
                }
                StoreEvent::ReadFailed { token, error } => {
                    self.walk.list_failed(token, now, error).map_err(ShardError::part)?;
                }
                StoreEvent::DeviceFailed(error) => {
                    return Err(ShardError::part(error));
                }
                _ => {}
            }
        }
        self.events = events;
        Ok(())
    }
}

/// The end of what a store keeps under an id that is not used any more: its room comes free as the
/// watermark passes it.
#[derive(Debug)]
pub struct KeyspaceEnd {
    keyspace: KeyspaceId,
    is_fenced: bool,
    full_since: Option<Timestamp>,
    batch: OneBatch,
}

impl KeyspaceEnd {
    /// Of what is kept under this id; the batch as for [`KeyspaceCopy::new`].
    #[must_use]
    pub const fn new(keyspace: KeyspaceId, batch: u64) -> Self {
        Self { keyspace, is_fenced: false, full_since: None, batch: OneBatch::new(batch) }
    }

    /// Goes on; whether it is over, durably.
    ///
    /// # Errors
    /// The store cannot take the fence.
    pub fn turn(&mut self, now: Timestamp, store: &mut ShardStore) -> Result<bool, ShardError> {
        self.batch.begin(store);
        let newest = store.newest(self.keyspace);
        if !self.is_fenced && newest > Timestamp::ZERO {
            let above = Version::new(newest.next(), ClientId::ZERO);
            // One that is there already stands for all that is below it.
            let fenced = match store.fences(self.keyspace).last() {
                Some(fence) if fence.timestamp >= newest => Ok(()),
                _ => store.fence(self.keyspace, above),
            };
            match fenced {
                Ok(()) => self.is_fenced = true,
                Err(error) => may_wait(error, &mut self.full_since, now)?,
            }
        }
        let is_fenced = self.is_fenced || newest == Timestamp::ZERO;
        let is_over = is_fenced && self.batch.is_durable(store);
        let mut events = Vec::new();
        store.pump(now, &mut events);
        for event in events {
            if let StoreEvent::DeviceFailed(error) = event {
                return Err(ShardError::part(error));
            }
        }
        Ok(is_over)
    }
}

#[cfg(test)]
mod tests;

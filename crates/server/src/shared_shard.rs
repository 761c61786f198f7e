//! A shard that its own stage and the gateway of its thread take turns with.
//!
//! ```text
//!   ShardStage ─ every event ─► SharedShard ◄─ single keys, within a call ─ Gateway
//! ```
//! Both stages run on one thread, so nobody ever waits: whoever finds it taken goes the ordinary
//! way. What a call leaves to be done is done in the turn that the shard's stage gets afterwards.
//! Where a shard has several copies, it is here only while this server is its primary: the gateway
//! looks into its slot.
//!
//! Invariants: it is held for the time of a call, never across an event; a shard that serves here no
//! more is in no slot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use timestone_gateway::{DirectCalls, DirectShard};
use timestone_shard::Shard;
use timestone_types::{HashSeed, ShardId};

/// See the module.
#[derive(Clone)]
pub(crate) struct SharedShard(Arc<Mutex<Shard>>);

impl SharedShard {
    pub(crate) fn new(shard: Shard) -> Self {
        Self(Arc::new(Mutex::new(shard)))
    }

    /// The shard, for its stage.
    #[inline]
    pub(crate) fn get(&self) -> MutexGuard<'_, Shard> {
        // A stage that panics ends its process.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the gateway of a thread finds a shard, while that serves here.
#[derive(Clone, Default)]
pub(crate) struct ShardSlot(Arc<Slot>);

#[derive(Default)]
struct Slot {
    /// Whether there is one: so that a look costs nothing.
    is_filled: AtomicBool,
    shard: Mutex<Option<SharedShard>>,
}

impl ShardSlot {
    /// Whether the shard serves here.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.0.is_filled.load(Ordering::Relaxed)
    }

    fn set(&self, shard: Option<SharedShard>) {
        let is_filled = shard.is_some();
        *self.0.shard.lock().unwrap_or_else(PoisonError::into_inner) = shard;
        self.0.is_filled.store(is_filled, Ordering::Relaxed);
    }
}

/// A shard that the gateway of its thread may call for as long as this lives.
pub(crate) struct LentShard {
    shard: SharedShard,
    slot: ShardSlot,
}

impl LentShard {
    /// Puts a shard into its slot.
    pub(crate) fn new(shard: Shard, slot: ShardSlot) -> Self {
        let shard = SharedShard::new(shard);
        slot.set(Some(shard.clone()));
        Self { shard, slot }
    }

    /// The shard, for its stage.
    #[inline]
    pub(crate) fn get(&self) -> MutexGuard<'_, Shard> {
        self.shard.get()
    }

    /// It is not called any more.
    pub(crate) fn withdraw(&self) {
        self.slot.set(None);
    }

    /// The shard itself; it is not called any more.
    pub(crate) fn take_back(self) -> Shard {
        let shard = self.shard.clone();
        drop(self);
        let Some(shard) = Arc::into_inner(shard.0) else {
            unreachable!("between two events nobody calls it")
        };
        shard.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LentShard {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// A shard as the gateway of its thread may call it.
pub(crate) struct CalledShard {
    pub(crate) id: ShardId,
    pub(crate) seed: HashSeed,
    pub(crate) slot: ShardSlot,
    /// It has no log.
    pub(crate) takes_puts: bool,
}

impl CalledShard {
    /// One that serves here for as long as the process lives.
    pub(crate) fn always(id: ShardId, shard: SharedShard, takes_puts: bool) -> Self {
        let (seed, slot) = (shard.get().seed(), ShardSlot::default());
        slot.set(Some(shard));
        Self { id, seed, slot, takes_puts }
    }
}

impl DirectShard for CalledShard {
    fn id(&self) -> ShardId {
        self.id
    }

    fn seed(&self) -> HashSeed {
        self.seed
    }

    fn takes_puts(&self) -> bool {
        self.takes_puts
    }

    #[inline]
    fn is_here(&self) -> bool {
        self.slot.is_filled()
    }

    fn enter(&mut self, run: &mut dyn FnMut(&mut dyn DirectCalls)) -> bool {
        let Ok(slot) = self.slot.0.shard.try_lock() else { return false };
        let Some(Ok(mut shard)) = slot.as_ref().map(|shared| shared.0.try_lock()) else {
            return false;
        };
        run(&mut *shard);
        true
    }
}

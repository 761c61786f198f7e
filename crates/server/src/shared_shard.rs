//! A shard that its own stage and the gateway of its thread take turns with.
//!
//! ```text
//!   ShardStage ─ every event ─► SharedShard ◄─ single keys, within a call ─ Gateway
//! ```
//! Both stages run on one thread, so nobody ever waits: whoever finds it taken goes the ordinary
//! way. What a call leaves to be done is done in the turn that the shard's stage gets afterwards.
//!
//! Invariant: it is held for the time of a call, never across an event.

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

/// A shard as the gateway of its thread may call it.
pub(crate) struct CalledShard {
    pub(crate) id: ShardId,
    pub(crate) shard: SharedShard,
    /// It has no log.
    pub(crate) takes_puts: bool,
}

impl DirectShard for CalledShard {
    fn id(&self) -> ShardId {
        self.id
    }

    fn seed(&self) -> HashSeed {
        self.shard.get().seed()
    }

    fn takes_puts(&self) -> bool {
        self.takes_puts
    }

    fn enter(&mut self, run: &mut dyn FnMut(&mut dyn DirectCalls)) -> bool {
        let Ok(mut shard) = self.shard.0.try_lock() else { return false };
        run(&mut *shard);
        true
    }
}

//! The bounds of this crate, in one place.

use core::time::Duration;

/// Bytes of batches that a primary keeps for backups that lack them. A backup that is further behind
/// than this is not waited for: it needs a checkpoint. Reads at memory speed, 64 MiB are a second of
/// a busy shard.
pub const MAX_RETAINED_BYTES: usize = 64 << 20;
/// After so long without a word from a replica that owes one, it is asked what it has, and what it
/// lacks is sent again.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// A candidate that has got nothing for so long of what it lacks of its table does not lead: those
/// that have it do not answer. Another replica may have it, or the same one an epoch later.
pub const FETCH_PATIENCE: Duration = Duration::from_secs(2);
/// Most epochs whose tables a replica remembers the ends of. A replica that is more failovers behind
/// needs a checkpoint.
pub const MAX_LINEAGE: usize = 32;
/// Most replicas of a shard: f is at most 2, and a change of the configuration may name the replicas
/// of two.
pub const MAX_REPLICAS: usize = 10;

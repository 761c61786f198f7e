//! The bounds of this crate, in one place.

use core::time::Duration;

/// What a primary keeps for backups that lack it. A backup that is further behind is not waited for:
/// it needs a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Retention {
    /// Bytes of batches. 64 MiB by default: a second of a busy shard.
    pub bytes: usize,
    /// Batches; at most [`MAX_RETAINED_BATCHES`].
    pub batches: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 64 << 20, batches: MAX_RETAINED_BATCHES }
    }
}

/// Most batches that a primary keeps for backups that lack them: so many of 64 bytes take 64 MiB.
pub const MAX_RETAINED_BATCHES: usize = 1 << 20;
/// A backup takes no batch that lies further beyond its first hole: twice what a primary keeps, as
/// what does not count yet is kept beside it.
pub const MAX_AHEAD: u64 = 1 << 21;
/// Most batches that a replica may say that it can hand out: what a primary keeps, and what its own
/// log has kept over a restart.
pub const MAX_SPAN: u64 = 1 << 22;
/// Most runs of batches that a backup stores above its first hole: what would make more is sent
/// again later.
pub const MAX_RUNS: usize = 1024;
/// Most runs in a message: of what it had before a table, and of that.
pub const MAX_RUNS_TOLD: usize = 4 * MAX_RUNS;
/// After so long without a word from a replica that owes one, it is asked what it has, and what it
/// lacks is sent again.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// A candidate that has got nothing for so long of what it lacks of its table does not lead: those
/// that have it do not answer. Another replica may have it, or the same one an epoch later. Who leads,
/// waits for others and hears nothing new for so long says so.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of batches with which a replica answers one who fetches, unless one batch has more. An
/// answer that is asked for twice fills no link for long.
pub const FETCHED_BYTES: usize = 8 << 20;
/// Most epochs whose tables a replica remembers the ends of. A replica that is more failovers behind
/// needs a checkpoint.
pub const MAX_LINEAGE: usize = 32;
/// Most replicas of a shard: f is at most 2, and a change of the configuration may name the replicas
/// of two.
pub const MAX_REPLICAS: usize = 10;

//! What keeps a shard from being brought up from what its logs hold.

use thiserror::Error;
use timestone_types::ShardId;

/// Why a replay ends.
#[derive(Debug, Error)]
pub enum ShardError {
    /// A record of a kind that this version does not know.
    #[error(
        "the log of shard {shard} holds a record of kind {kind}, which this version does not know; \
         use the version that wrote it"
    )]
    UnknownRecord {
        /// The shard.
        shard: ShardId,
        /// The record's kind.
        kind: u8,
    },
    /// What the logs hold of a shard does not fit together.
    #[error(
        "the records of shard {shard} in the log do not fit together ({detail}); a folder of the \
         log, or the master's state, is from another \
         time: restore the whole directory from one backup"
    )]
    RecordOrder {
        /// The shard.
        shard: ShardId,
        /// What does not fit.
        detail: String,
    },
    /// The store, a record or a write set refused, in its own words.
    #[error("{0}")]
    Part(Box<dyn std::error::Error + Send + Sync>),
}

impl ShardError {
    pub(crate) fn part(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Part(Box::new(error))
    }
}

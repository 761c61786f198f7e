//! What the replicas of a shard tell each other.
//!
//! Every message carries an epoch. A replica refuses what is below the epoch that it has promised,
//! and names that one. Messages may be lost, doubled and reordered.

use timestone_types::{Epoch, Timestamp, is_planted};
use timestone_wal::BatchNumber;

use crate::batches::Batch;
use crate::lineage::Lineage;
use crate::number_set::NumberSet;

/// What a replica has, as it answers when it joins an epoch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JoinAnswer {
    /// The epochs whose tables it has installed; the last one is what it is in.
    pub lineage: Lineage,
    /// The highest lease that it has granted or held, in any epoch.
    pub lease: Timestamp,
    /// The batches that it has durably, of that epoch and before.
    pub has: NumberSet,
    /// It can hand out those above this one only: none, where that is the last one.
    pub held_above: BatchNumber,
    /// It has lost what it had while this epoch was the newest one, and has acknowledged and granted
    /// nothing since. So it has nothing, and that counts where the table rests on a later epoch (rule
    /// P22).
    pub void_since: Option<Epoch>,
}

impl JoinAnswer {
    /// Whether it counts for a table that rests on this epoch: it tells all that the replica may have
    /// acknowledged and that such a table may lack.
    pub(crate) fn counts_above(&self, base: Epoch) -> bool {
        let Some(since) = self.void_since else { return true };
        if is_planted!(SaysNothingOfLoss) {
            return false;
        }
        since < base || (since == base && is_planted!(CountsLossInBase))
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message<B> {
    /// To all: promise to refuse lower epochs, and tell what you have.
    Join {
        /// The epoch that is to begin.
        epoch: Epoch,
    },
    /// The promise is durable.
    Joined {
        /// The promised epoch.
        epoch: Epoch,
        /// What the replica has.
        answer: JoinAnswer,
    },
    /// To one that has joined: send these.
    Fetch {
        /// The epoch that is to begin.
        epoch: Epoch,
        /// The batches that the new primary lacks, in runs.
        runs: Vec<(BatchNumber, BatchNumber)>,
    },
    /// A batch that was fetched.
    Fetched {
        /// The epoch that is to begin.
        epoch: Epoch,
        /// The batch.
        batch: Batch<B>,
    },
    /// The table of a new epoch: all batches up to `through`, as the replicas of that
    /// lineage have them. Tell what you lack of them; when you have all, make that durable.
    Install {
        /// The new epoch.
        epoch: Epoch,
        /// The lineage of those whose batches it is made of.
        based_on: Lineage,
        /// The last batch of the table.
        through: BatchNumber,
        /// The highest lease of all earlier epochs.
        floor: Timestamp,
    },
    /// A batch, for the log.
    Append {
        /// The epoch of the primary that sends it.
        epoch: Epoch,
        /// Everything up to this one counts.
        counted: BatchNumber,
        /// All replicas have everything up to this one.
        stable: BatchNumber,
        /// The batch.
        batch: Batch<B>,
    },
    /// Tell what you have.
    Probe {
        /// The primary's epoch.
        epoch: Epoch,
        /// Everything up to this one counts.
        counted: BatchNumber,
        /// All replicas have everything up to this one.
        stable: BatchNumber,
    },
    /// What a backup has.
    Acked {
        /// The epoch that it is in, or is installing.
        epoch: Epoch,
        /// Whether it has installed the epoch's table.
        installed: bool,
        /// It knows that everything up to this one counts.
        counted: BatchNumber,
        /// The checkpoint that it has taken last: what it said before that it had it may have given
        /// up. Zero for none.
        session: u64,
        /// What it has durably.
        durable: NumberSet,
        /// What it was sent, durable or not, where it was asked. What is missing here is to be sent
        /// again.
        received: Option<NumberSet>,
    },
    /// To one that lacks batches which nobody keeps any more: take a checkpoint.
    NeedsCheckpoint {
        /// The primary's epoch.
        epoch: Epoch,
        /// The batches up to this one are kept no more.
        held_above: BatchNumber,
    },
    /// The sender's epoch is over.
    Refused {
        /// What the replica has promised.
        promised: Epoch,
    },
}

impl<B> Message<B> {
    /// The epoch that the message is of.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        match self {
            Self::Join { epoch }
            | Self::Joined { epoch, .. }
            | Self::Fetch { epoch, .. }
            | Self::Fetched { epoch, .. }
            | Self::Install { epoch, .. }
            | Self::Append { epoch, .. }
            | Self::Probe { epoch, .. }
            | Self::Acked { epoch, .. }
            | Self::NeedsCheckpoint { epoch, .. }
            | Self::Refused { promised: epoch } => *epoch,
        }
    }
}

//! The participant: one per shard primary; see [`Participant`].

mod input;
mod output;

use core::time::Duration;

pub use input::{
    Condition, DecisionOrigin, FrozenState, Input, LatestInStore, Prepare, ReadAt, ReadItem, Recovered, Ticket, Token,
    TxnStatus, Vote, Wait, WriteItem, WriteKind,
};
pub use output::{LogIntent, Output};
use timestone_types::{ShardId, Timestamp, TxnId, limits as shared};

use crate::Refusal;

/// What can be chosen per shard.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long `Wait::Yes` waits.
    pub prepared_wait: Duration,
    /// Vote `Later` where only the timestamp is too low; `false` is the paper's behaviour (abort).
    pub vote_later: bool,
    /// Holds the watermark back for reads in the past.
    pub history_window: Duration,
    /// After this long without a decision, termination begins.
    pub decision_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prepared_wait: shared::PREPARED_WAIT,
            vote_later: true,
            history_window: Duration::ZERO,
            decision_timeout: shared::DECISION_TIMEOUT,
        }
    }
}

/// One shard's primary. Starts in recovery: hand it the log's records, then `Input::RecoveryDone`.
#[derive(Debug)]
pub struct Participant {
    shard: ShardId,
}

impl Participant {
    /// A participant that knows nothing yet.
    #[must_use]
    pub fn new(shard: ShardId, _config: Config) -> Self {
        Self { shard }
    }

    /// Takes one input; appends what is to be done to `out`, in order.
    pub fn step(&mut self, _now: Timestamp, _input: Input<'_>, _out: &mut Vec<Output>) {}

    /// When the next `Tick` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// Which shard this is.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The durable watermark: snapshots below it are refused.
    #[must_use]
    pub fn watermark(&self) -> Timestamp {
        Timestamp::ZERO
    }

    /// To be asked just before a read at `at` is answered: versions may have been collected while a page was read.
    ///
    /// # Errors
    /// [`Refusal::TooOld`] when the watermark has passed `at` meanwhile.
    pub fn check_answer(&self, _at: Timestamp) -> Result<(), Refusal> {
        Ok(())
    }

    /// All participants of a transaction that is in flight here; empty when it is not.
    #[must_use]
    pub fn participants_of(&self, _txn: TxnId) -> &[ShardId] {
        &[]
    }
}

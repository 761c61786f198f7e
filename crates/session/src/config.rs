//! What a host may set on an engine. Plain data; the defaults are the design's.

use core::time::Duration;

use timestone_types::limits as shared;

use crate::limits;

/// Where a transaction that only reads commits. All but the default is for experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadOnlyCommit {
    /// In the client, where what its reads were told suffices (MILANA §4.3).
    #[default]
    Locally,
    /// In the client, where every version that it read lies below the watermark, as in Centiman
    /// ([`timestone_txn::validation::BelowWatermark`]). Shards need not remember reads. Serializable; the
    /// order of sessions is not promised.
    BelowWatermark {
        /// After how many transactions of this engine the watermark is spread.
        every: u32,
    },
    /// At its shards, always: they validate it in one round and keep nothing.
    Remotely,
    /// At its shards, always, as one that writes: where there are several they keep records, which their
    /// backups have as well, and are told the decision. So it is in MILANA without local validation
    /// (§4.2).
    Recorded,
}

/// Settings of one [`crate::Engine`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// Reads and prepares that meet a prepared write wait at the primary for its decision (bounded)
    /// instead of going on. Default on.
    pub wait: bool,
    /// A single-key write that is refused because of another one, for which it has waited, is tried again
    /// until its deadline. For hosts that do not do that themselves. Default on.
    pub tries_again: bool,
    /// Where a transaction that only reads commits.
    pub read_only: ReadOnlyCommit,
    /// An unanswered request is asked again after this long.
    pub request_timeout: Duration,
    /// A connection that owes an answer and is silent for this long is given up by the host, see
    /// [`crate::IdleTimeout`].
    pub silence_limit: Duration,
    /// The deadline of operations that name none.
    pub default_deadline: Duration,
    /// How often the lowest timestamp still in use is reported to every shard.
    pub report_interval: Duration,
    /// How long a read-write transaction may stay open.
    pub max_transaction_age: Duration,
    /// Servers that have told nothing of their clocks for [`limits::CLOCK_ASKED_AFTER`] are asked for
    /// that alone. For hosts whose clock follows the servers'. Default off.
    pub asks_clocks: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            wait: true,
            tries_again: true,
            read_only: ReadOnlyCommit::Locally,
            request_timeout: limits::REQUEST_TIMEOUT,
            silence_limit: limits::SILENCE_LIMIT,
            default_deadline: shared::DEFAULT_DEADLINE,
            report_interval: shared::REPORT_INTERVAL,
            max_transaction_age: shared::MAX_TXN_AGE,
            asks_clocks: false,
        }
    }
}

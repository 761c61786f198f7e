//! What a host may set on an engine. Plain data; the defaults are the design's.

use core::time::Duration;

use timestone_types::limits as shared;

use crate::limits;

/// Settings of one [`crate::Engine`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// Reads and prepares that meet a prepared write wait at the primary for its decision (bounded)
    /// instead of going on. Default on.
    pub wait: bool,
    /// A transaction that only reads commits in the client where what its reads were told suffices
    /// (MILANA §4.3). Default on; off, it is always validated by its shards: for experiments.
    pub validates_locally: bool,
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
            validates_locally: true,
            request_timeout: limits::REQUEST_TIMEOUT,
            silence_limit: limits::SILENCE_LIMIT,
            default_deadline: limits::DEFAULT_DEADLINE,
            report_interval: shared::REPORT_INTERVAL,
            max_transaction_age: shared::MAX_TXN_AGE,
            asks_clocks: false,
        }
    }
}

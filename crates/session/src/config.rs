//! What a host may set on an engine. Plain data; the defaults are the design's.

use core::time::Duration;

use timestone_types::limits as shared;

use crate::limits;

/// Settings of one [`crate::Engine`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// Reads and prepares that meet a prepared write wait at the primary for its decision (bounded) instead of going on. Default on.
    pub wait: bool,
    /// How often a commit is tried again with a later timestamp before it is given up. 0 is the paper's behaviour: abort at once.
    pub later_rounds: u32,
    /// An unanswered request is asked again after this long.
    pub request_timeout: Duration,
    /// After this long without every vote, the participants are asked to terminate the transaction among themselves.
    pub decision_timeout: Duration,
    /// The deadline of operations that name none.
    pub default_deadline: Duration,
    /// How often the lowest timestamp still in use is reported to every shard.
    pub report_interval: Duration,
    /// How long a read-write transaction may stay open.
    pub max_transaction_age: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            wait: true,
            later_rounds: shared::MAX_LATER_ROUNDS,
            request_timeout: limits::REQUEST_TIMEOUT,
            decision_timeout: shared::DECISION_TIMEOUT,
            default_deadline: limits::DEFAULT_DEADLINE,
            report_interval: shared::REPORT_INTERVAL,
            max_transaction_age: shared::MAX_TXN_AGE,
        }
    }
}

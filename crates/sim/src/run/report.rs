//! What is wanted of a run, who looks on, and what came of it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use timestone_types::random::Seed;
use timestone_workload::SnapshotAges;
use timestone_workload::history::History;
use timestone_workload::redis::RedisHistory;

use crate::board::TxnTally;
use crate::check::Finding;
use crate::fault::FaultKind;
use crate::judge::Judge;
use crate::restarts::RestartChange;
#[cfg(doc)]
use crate::run::watch;
use crate::trace::TraceLine;

/// What is wanted of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Lines of the trace to keep, the last ones; none without words.
    pub keep_lines: usize,
    /// Whether the history is handed out.
    pub keep_history: bool,
    /// Whether whoever watches is handed the trace in words; then none of it is kept.
    pub words: bool,
}

/// Looks on while a run goes on; see [`watch`].
pub trait Watch {
    /// So much virtual time has passed, and these lines were added to the trace, if words are
    /// wanted. Whether the run goes on.
    fn look(&mut self, now: Duration, lines: &[TraceLine]) -> ControlFlow<()>;
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Its seed.
    pub seed: Seed,
    /// A hash over everything that every stage was given.
    pub trace_hash: u64,
    /// Events that stages were given.
    pub events: u64,
    /// Turns of virtual threads.
    pub turns: u64,
    /// How much virtual time passed.
    pub virtual_time: Duration,
    /// CPU time that the virtual machines spent.
    pub busy: Duration,
    /// What became of transactions.
    pub tally: TxnTally,
    /// Faults that struck, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// What restarts changed, and how often.
    pub changes: BTreeMap<RestartChange, u64>,
    /// Connections that servers closed because their clients read nothing for too long.
    pub stalled: u64,
    /// How often another server became primary of a shard, until everything came to rest.
    pub failovers: u64,
    /// Reads that backups answered.
    pub backup_reads: u64,
    /// How it ran until the sessions were told to end.
    pub pace: Pace,
    /// Transactions that checkers looked at.
    pub checked: u64,
    /// What is wrong; nothing, when the run is as promised.
    pub findings: Vec<Finding>,
    /// What happened last, in words, when asked for.
    pub lines: Vec<TraceLine>,
    /// What clients did.
    pub histories: Histories,
}

/// What clients did, as histories, and who can judge it.
#[derive(Clone, Debug)]
pub struct Histories {
    /// The history of the sessions, when asked for.
    pub sessions: Option<History>,
    /// That of the Redis clients, when asked for and there are any.
    pub redis: Option<RedisHistory>,
    /// How they are judged, or why they cannot be, as a sentence about them.
    pub judge: Result<Judge, &'static str>,
}

/// How much was done while transactions were begun: from the end of the warm-up to the end of the
/// faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// How long that was, in virtual time.
    pub span: Duration,
    /// Transactions that committed.
    pub committed: u64,
    /// And that did not.
    pub aborted: u64,
    /// Of those that committed: what only read.
    pub read_only: u64,
    /// And what of it committed in the client.
    pub locally: u64,
    /// How old what they read was.
    pub snapshots: SnapshotAges,
    /// CPU time of the servers.
    pub servers: Duration,
    /// CPU time of the clients.
    pub clients: Duration,
}

impl Pace {
    /// Committed transactions a second of virtual time.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.committed as f64 / self.span.as_secs_f64().max(1e-9)
    }
}

impl RunReport {
    /// Whether everything is as promised.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.findings.is_empty()
    }
}

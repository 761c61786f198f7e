//! What can go wrong when a runtime is started, listens or stops.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::StageId;

/// Errors of this crate; those of single connections travel as events instead.
#[derive(Debug, thiserror::Error)]
pub enum SedaError {
    /// The layout does not place every stage exactly once.
    #[error("The layout names stage {0} {1}; place every stage on exactly one thread.")]
    Layout(StageId, &'static str),
    /// There are more stages or threads than the runtime supports, or none.
    #[error(
        "A runtime of {stages} stages on {threads} threads is not possible; use between 1 and \
         {limit} of each."
    )]
    Size {
        /// Stages asked for.
        stages: usize,
        /// Threads asked for.
        threads: usize,
        /// The most of either.
        limit: usize,
    },
    /// A listening address could not be bound.
    #[error(
        "Cannot listen on {address}: {source}. Is another process using the port? Choose another \
         address, or stop that process."
    )]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system refused a thread, a poller or a waker.
    #[error(
        "Cannot start the runtime ({what}): {source}. Check the limits on open files and threads."
    )]
    Start {
        /// What was being created.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The stages named did not finish their work in time; they were stopped nevertheless.
    #[error("Not drained within {} s: {}. Their unfinished work was given up.", waited.as_secs_f64(), stages.join(", "))]
    NotDrained {
        /// How long was waited.
        waited: Duration,
        /// The names of the stages that still had work, or queues that were not empty.
        stages: Vec<String>,
    },
}

impl SedaError {
    /// Whether the same call may succeed later without a change of configuration.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::Listen { .. } | Self::Start { .. })
    }
}

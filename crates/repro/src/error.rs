//! Why an experiment gives no figures.

use timestone_store::StoreError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum ReproError {
    /// The file of an experiment is wrong: which one, where, and what would be right.
    #[error("{0}")]
    Spec(String),
    /// There is no such experiment.
    #[error(
        "there is no experiment {name:?}; did you mean {nearest}? `timestone repro list` names all"
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// What is called most like it.
        nearest: String,
    },
    /// It has to run in virtual time.
    #[error("{0} runs in virtual time only: it needs more machines than there are")]
    VirtualOnly(String),
    /// A store refused what the experiment needs of it.
    #[error("{store} gave up after {requests} requests: {error}")]
    Store {
        /// Which one.
        store: String,
        /// How many were done before.
        requests: u64,
        /// What it said.
        error: StoreError,
    },
    /// A run came to a state in which nothing happens any more, or is wrong by itself.
    #[error("{0}")]
    Run(String),
    /// What came of it cannot be written.
    #[error("could not write {path}: {reason}")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Whoever watched wanted it to end.
    #[error("interrupted")]
    Interrupted,
}

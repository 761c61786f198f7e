//! The one error of this crate.

/// What can be wrong with a workload's parameters or with a history.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("there is no workload '{0}'; these are: {known}", known = crate::spec::names().join(", "))]
    UnknownWorkload(String),
    /// A parameter is out of its range.
    #[error("{name} is {given}, but {demand}")]
    Parameter {
        /// The parameter, as the command line spells it.
        name: &'static str,
        /// What was given.
        given: String,
        /// What it must be, as the rest of a sentence.
        demand: &'static str,
    },
    /// A value in the store is not what this workload writes.
    #[error(
        "a value of {bytes} bytes is no {expected}; does another workload's data live in this \
         keyspace?"
    )]
    Value {
        /// What was expected.
        expected: &'static str,
        /// How long the value is.
        bytes: usize,
    },
    /// A history's text is malformed.
    #[error("line {line} of the history: {problem}")]
    History {
        /// From 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The history could not be written.
    #[error("the history could not be written: {0}")]
    Write(#[from] std::io::Error),
}

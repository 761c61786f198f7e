//! What can keep a simulation from running; what it finds is no error but a finding.

use thiserror::Error;

/// Why a simulation could not run.
#[derive(Debug, Error)]
pub enum SimError {
    /// The scenario makes no sense.
    #[error("{0}")]
    Scenario(String),
    /// The costs cannot be read.
    #[error("{0}")]
    Costs(#[from] timestone_costmodel::CostError),
    /// The world could not be built.
    #[error(
        "the simulated world could not be built: {0}; this is a bug of the simulator or of the \
         configuration"
    )]
    World(String),
}

impl SimError {
    pub(crate) fn world(error: impl std::fmt::Display) -> Self {
        Self::World(error.to_string())
    }
}

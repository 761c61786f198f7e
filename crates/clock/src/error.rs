//! The one error of this crate: a clock or skew model that cannot be had as asked for.

/// Why a clock could not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClockError {
    /// The text names no skew model.
    #[error(
        "'{0}' is no skew model; use perfect, ptp, ntp, azure-ptp, or a duration such as 250us, \
         2ms or 1s (at most 60s)"
    )]
    UnknownModel(String),
    /// The text does not say by how much a clock is to be set wrong.
    #[error(
        "'{0}' does not say by how much the clock is wrong; use a duration such as 200ms or -1s (at \
         most 60s), or several and for how long each, such as 100ms,-100ms/2s"
    )]
    UnknownShift(String),
}

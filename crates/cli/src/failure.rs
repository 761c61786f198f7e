//! How a command fails: a sentence for the person, a number for the script.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | it failed: the server could not start, the cluster could not be reached, the operation was refused |
//! | 2 | wrong usage: an unknown flag, a bad value, a bad configuration file, a history that is none, a file that cannot be written |
//! | 3 | not found: the key is absent, the keyspace does not exist |
//! | 4 | conflict: the transaction was aborted, nothing was written |
//! | 5 | unknown: it is not known whether the write took effect; ask with `timestone txn status` |
//! | 130 | interrupted: a signal ended it early, and what there was so far is told |

use std::fmt;

use timestone::ErrorCode;

const USAGE: u8 = 2;
const UNKNOWN: u8 = 5;
/// As shells report a process that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    /// Something went wrong.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The command was used wrongly.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into() }
    }

    /// What was asked for does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }

    /// The transaction was aborted.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self { code: 4, message: message.into() }
    }

    /// Whether the transaction took effect is not known.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self { code: UNKNOWN, message: message.into() }
    }

    /// A signal ended it early.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, message: message.into() }
    }

    /// The same, said of a line of a script.
    pub(crate) fn on_line(mut self, line: usize) -> Self {
        if !self.is_silent() {
            self.message = format!("line {line}: {}", self.message);
        }
        self
    }

    /// The same, with what was done before.
    pub(crate) fn after(mut self, done: &str) -> Self {
        if !self.is_silent() {
            self.message = format!("{} ({done})", self.message);
        }
        self
    }

    /// Whether it is not known what took effect.
    pub(crate) const fn is_unknown(&self) -> bool {
        self.code == UNKNOWN
    }

    /// Whether the command was used wrongly, and nothing was done.
    pub(crate) const fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// Whether something went wrong: not that a signal ended it, or that nobody reads along.
    pub(crate) fn is_a_finding(&self) -> bool {
        !self.is_silent() && self.code != INTERRUPTED
    }

    /// Whoever read our output has gone: nothing is left to do, and nothing to say.
    pub(crate) const fn reader_gone() -> Self {
        Self { code: 0, message: String::new() }
    }

    /// Whether there is nothing to say.
    pub(crate) fn is_silent(&self) -> bool {
        self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The exit code that tells a script what kind of refusal it met.
const fn exit_code(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::UnknownOutcome => UNKNOWN,
        ErrorCode::KeyspaceUnknown => 3,
        ErrorCode::Conflict
        | ErrorCode::Prepared
        | ErrorCode::TimestampTooLow
        | ErrorCode::Expired
        | ErrorCode::ConditionFailed
        | ErrorCode::Terminated
        | ErrorCode::Aborted => 4,
        ErrorCode::BadArgument => 2,
        _ => 1,
    }
}

impl From<timestone::Error> for Failure {
    fn from(error: timestone::Error) -> Self {
        Self { code: exit_code(error.code()), message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_map_to_the_documented_exit_codes() {
        let codes = [
            (ErrorCode::UnknownOutcome, 5),
            (ErrorCode::Conflict, 4),
            (ErrorCode::KeyspaceUnknown, 3),
            (ErrorCode::BadArgument, 2),
            (ErrorCode::Busy, 1),
            (ErrorCode::Unavailable, 1),
        ];
        for (code, expected) in codes {
            assert_eq!(exit_code(code), expected, "{code}");
        }
    }
}

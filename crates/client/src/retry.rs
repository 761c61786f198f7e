//! When a transaction is run again, and when that ends.

use core::time::Duration;

use timestone_session::TxnOptions;
use timestone_types::Timestamp;
use timestone_wire::ErrorCode;

use crate::{Error, Result, Value, limits};

/// How a transaction is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Validate even a read-only transaction at commit: externally consistent.
    pub strict: bool,
    /// Read as of this point in time.
    pub snapshot_at: Option<Timestamp>,
    /// Read as of a time that is no longer past than this, and let backups answer: the nearest
    /// replica does, the primary among them, and those that are about as near take turns. Implies
    /// `read_only`. What the session has seen or written it still sees. With `snapshot_at` that is
    /// the snapshot, and backups may answer. Primaries alone are asked with `strict` and
    /// `external_wait`, and for keyspaces in memory.
    pub max_staleness: Option<Duration>,
    /// Acknowledge the commit only when the clock's error bound has passed its timestamp.
    pub external_wait: bool,
    /// Give up after this long, counted from begin.
    pub deadline: Option<Duration>,
}

impl TransactionOptions {
    pub(crate) fn for_engine(
        &self,
        now: Timestamp,
        handle_deadline: Option<Duration>,
    ) -> TxnOptions {
        TxnOptions {
            read_only: self.read_only,
            strict: self.strict,
            snapshot_at: self.snapshot_at,
            max_staleness: self.max_staleness,
            external_wait: self.external_wait,
            deadline: self.deadline.or(handle_deadline).map(|span| now.saturating_add(span)),
        }
    }
}

/// How `transact` runs its closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactOptions {
    /// How each attempt runs.
    pub transaction: TransactionOptions,
    /// How often the closure is run, at most.
    pub max_attempts: u32,
}

impl Default for TransactOptions {
    fn default() -> Self {
        Self { transaction: TransactionOptions::default(), max_attempts: limits::MAX_ATTEMPTS }
    }
}

/// What came of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// When it took place; `None` when its condition did not hold.
    pub written: Option<Timestamp>,
    /// The value that the key had before, when it was asked for; or what it has, when the condition
    /// did not hold.
    pub found: Option<Value>,
}

impl WriteOutcome {
    /// Whether it took place.
    #[must_use]
    pub const fn took_place(&self) -> bool {
        self.written.is_some()
    }

    /// The timestamp of a write without a condition.
    pub(crate) fn or_condition(self, key: &[u8]) -> Result<Timestamp> {
        self.written.ok_or_else(|| {
            let message = format!(
                "the write of key {} had a condition that did not hold",
                key.escape_ascii()
            );
            Error::new(ErrorCode::ConditionFailed, message, "")
        })
    }
}

/// Notes what an operation of a transaction has met that a new attempt may not meet: the first of it. Once the
/// transaction's own commit is unknown, no attempt follows, whatever was met.
pub(crate) fn note_met(met: &mut Option<Error>, error: &Error) {
    if error.code() == ErrorCode::UnknownOutcome {
        *met = Some(error.clone());
    } else if error.retryable() {
        met.get_or_insert_with(|| error.clone());
    }
}

/// Counts attempts.
#[derive(Debug)]
pub(crate) struct Retry {
    attempts: u32,
    most: u32,
}

impl Retry {
    pub(crate) fn new(options: &TransactOptions) -> Self {
        Self { attempts: 0, most: options.max_attempts.max(1) }
    }

    /// An attempt failed with `error`: whether there is another one.
    pub(crate) fn again(&mut self, error: Error) -> Result<()> {
        self.attempts += 1;
        if error.retryable() && self.attempts < self.most {
            Ok(())
        } else {
            Err(error.after(self.attempts))
        }
    }

    /// A closure has returned this, and an operation of it had met what a new attempt may not meet:
    /// another one that began later hears that there is no such transaction, and may be what the
    /// closure looked at first.
    ///
    /// # Errors
    /// It is not run again.
    pub(crate) fn again_unless_own(&mut self, error: Error, met: Option<Error>) -> Result<()> {
        match met {
            Some(met) if met.code() == ErrorCode::UnknownOutcome => {
                Err(met.after(self.attempts + 1))
            }
            Some(met) if !error.retryable() => {
                self.again(met).map_err(|_| error.after(self.attempts))
            }
            _ => self.again(error),
        }
    }

    /// An attempt ended with an error of the application's own: it is run again because an operation
    /// of it had met what a new attempt may not meet.
    ///
    /// # Errors
    /// It is not run again.
    pub(crate) fn again_if_met<E>(
        &mut self,
        own: E,
        met: Option<Error>,
    ) -> core::result::Result<(), E> {
        if met.is_some_and(|met| self.again(met).is_ok()) { Ok(()) } else { Err(own) }
    }

    pub(crate) const fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use timestone_session::SessionError;
    use timestone_types::{ClientId, Sequence, TxnId};

    use super::*;

    /// *Otherwise* what it has written may take place twice.
    #[test]
    fn a_closure_whose_own_commit_is_unknown_is_not_run_again_whatever_it_met_before() {
        let met_before = Error::from(SessionError::DeadlineExceeded);
        assert!(met_before.retryable());
        let unknown = Error::unknown(TxnId::new(ClientId::new(1), Sequence::new(1)));
        let mut met = None;
        note_met(&mut met, &met_before);
        let mut retry = Retry::new(&TransactOptions::default());
        assert_eq!(retry.again_if_met("its own", met.clone()), Ok(()));
        note_met(&mut met, &unknown);
        note_met(&mut met, &met_before);
        let mut retry = Retry::new(&TransactOptions::default());
        for returned in [unknown, met_before] {
            let told = retry.again_unless_own(returned, met.clone()).unwrap_err();
            assert_eq!(told.code(), ErrorCode::UnknownOutcome);
        }
        assert_eq!(retry.again_if_met("its own", met), Err("its own"));
    }
}

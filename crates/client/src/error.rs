//! What went wrong, in words and in fields.
//!
//! `TS1020 CONFLICT key=acct/7: read version 41.3, committed 43 by txn 9f-2; retry`: a stable code,
//! the thing, the facts, and what to do. Programs use the fields; the text may change.

use core::fmt;
use core::time::Duration;

use timestone_session::{Abort, SessionError};
use timestone_types::{AbortKind, KeyspaceId, Timestamp, TxnId};
use timestone_wire::{ErrorCode, ErrorReply};

/// The result of everything here.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why something did not happen. Cheap to move; details are on the heap.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Clone, PartialEq, Eq)]
struct Details {
    code: ErrorCode,
    kind: Option<AbortKind>,
    key: Option<(KeyspaceId, Vec<u8>)>,
    other: Option<TxnId>,
    txn: Option<TxnId>,
    retry_after: Option<Duration>,
    attempts: u32,
    retryable: bool,
    message: String,
    hint: &'static str,
}

impl Error {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>, hint: &'static str) -> Self {
        Self(Box::new(Details {
            code,
            kind: None,
            key: None,
            other: None,
            txn: None,
            retry_after: None,
            attempts: 1,
            retryable: code.retryable(),
            message: message.into(),
            hint,
        }))
    }

    /// An error of the application itself: returned from the closure of `transact`, it aborts the
    /// transaction and is not retried.
    #[must_use]
    pub fn application(message: impl fmt::Display) -> Self {
        Self::new(ErrorCode::Aborted, message.to_string(), "")
    }

    /// The event loop is gone.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorCode::Unavailable, "the client is closed", "connect again").not_retryable()
    }

    /// The event loop has ended while somebody waited for this. A write may have been on its way.
    pub(crate) fn closed_meanwhile() -> Self {
        Self::new(
            ErrorCode::UnknownOutcome,
            "the client is closed, and whether this was done is not known",
            "connect again, and look",
        )
    }

    /// The queue to the event loop is full.
    pub(crate) fn overloaded() -> Self {
        Self::new(
            ErrorCode::Busy,
            "too many calls wait for the client's event loop",
            "make fewer calls at once, or retry",
        )
    }

    pub(crate) fn unknown(txn: TxnId) -> Self {
        let message = format!("whether transaction {txn} committed is not known yet");
        let mut error = Self::new(
            ErrorCode::UnknownOutcome,
            message,
            "ask with `timestone txn status`, or by Db::status",
        );
        error.0.txn = Some(txn);
        error
    }

    /// The same for a change of the cluster that was sent and not answered: it may have been made.
    pub(crate) fn of_lost_change(self) -> Self {
        self.of_change("no answer came; whether the change was made is not known")
    }

    /// The same where the master says that it does not know, and why.
    pub(crate) fn of_unknown_change(self) -> Self {
        self.of_change(format!("whether the change was made is not known: {}", self.0.message))
    }

    fn of_change(&self, message: impl Into<String>) -> Self {
        let hint = "look whether it was (`timestone keyspace list`), then ask again";
        Self::new(self.0.code, message, hint).not_retryable()
    }

    /// The master could not answer what changes nothing.
    pub(crate) fn of_question(self) -> Self {
        Self::new(ErrorCode::Unavailable, self.0.message, "retry")
    }

    pub(crate) fn of_abort(abort: &Abort<'_>) -> Self {
        let hint = if abort.retryable() { "retry" } else { "" };
        let mut error = Self::new(abort.code(), describe(abort), hint);
        error.0.kind = Some(abort.kind());
        error.0.key = abort.key.map(|key| (key.keyspace, key.key.to_vec()));
        error.0.other = abort.reason.other;
        error.0.txn = abort.txn;
        error
    }

    pub(crate) fn of_reply(reply: &ErrorReply<'_>) -> Self {
        let mut error =
            Self::new(reply.code, reply.message, if reply.retryable() { "retry" } else { "" });
        error.0.retry_after = reply.retry_after();
        error.0.other = reply.other;
        error
    }

    /// Ranges, and scans within transactions, need an order of keys.
    pub(crate) fn not_ordered() -> Self {
        Self::new(
            ErrorCode::BadArgument,
            "the keyspace keeps no order of its keys",
            "create a keyspace with --index ordered to read ranges of it, or within transactions",
        )
    }

    fn not_retryable(mut self) -> Self {
        self.0.retryable = false;
        self
    }

    pub(crate) fn after(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Whether running the same work again may succeed. Never true when the work may have taken
    /// place.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the work has certainly not taken place: aborted, worth another try, or refused for
    /// want of room or for a late clock. The others may say so in words, or not know.
    #[must_use]
    pub fn had_no_effect(&self) -> bool {
        let refused = matches!(
            self.0.code,
            ErrorCode::DeviceFull | ErrorCode::ClientClockBehind | ErrorCode::TxnTooLong
        );
        self.0.kind.is_some() || self.0.retryable || refused
    }

    /// For an aborted transaction: what kind of abort.
    #[must_use]
    pub fn abort_kind(&self) -> Option<AbortKind> {
        self.0.kind
    }

    /// The key that met it, when one did.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_ref().map(|(_, key)| key.as_slice())
    }

    /// The keyspace of that key.
    #[must_use]
    pub fn keyspace(&self) -> Option<KeyspaceId> {
        self.0.key.as_ref().map(|(keyspace, _)| *keyspace)
    }

    /// The other transaction that stood in the way, when it is known.
    #[must_use]
    pub fn other(&self) -> Option<TxnId> {
        self.0.other
    }

    /// The transaction that it is about; for [`ErrorCode::UnknownOutcome`], the one to ask about.
    #[must_use]
    pub fn txn(&self) -> Option<TxnId> {
        self.0.txn
    }

    /// How long to wait before the next attempt, when the server said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How often the work was run before this error was returned.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// What to do about it; empty when there is nothing to say.
    #[must_use]
    pub fn hint(&self) -> &str {
        self.0.hint
    }
}

/// A point in time as a clock on the wall has it, for people: what is gone is minutes old, not
/// days.
fn time_of_day(at: Timestamp) -> String {
    let seconds = at.as_nanos() / 1_000_000_000;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

/// The facts of an abort, as far as they are known.
fn describe(abort: &Abort<'_>) -> String {
    let by = abort.reason.other.map_or_else(String::new, |other| format!(" by txn {other}"));
    match (abort.kind(), abort.read) {
        (AbortKind::ReadConflict, Some(read)) => {
            format!("read version {read}, committed {}{by}", abort.reason.at)
        }
        (AbortKind::WriteConflict, _) => format!("written{by} at {}", abort.reason.at),
        (AbortKind::Prepared, _) => format!("being written{by}, not decided in time"),
        (AbortKind::TooOld, _) => {
            format!(
                "history before {} is gone; ask for a later time, or, in a transaction, commit \
                 sooner after its begin",
                time_of_day(abort.reason.at)
            )
        }
        (kind, _) => format!("{kind}{by}"),
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        let code = error.code().unwrap_or(ErrorCode::Aborted);
        let retryable = error.retryable();
        let retry_after =
            if let SessionError::Busy { retry_after } = error { Some(retry_after) } else { None };
        let mut out = Self::new(code, error.to_string(), if retryable { "retry" } else { "" });
        out.0.retry_after = retry_after;
        out.0.retryable = retryable;
        out
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &self.0;
        write!(f, "{}", details.code)?;
        if let Some((keyspace, key)) = &details.key {
            write!(f, " key=")?;
            if *keyspace != KeyspaceId::DEFAULT {
                write!(f, "{keyspace}:")?;
            }
            write!(f, "{}", key.escape_ascii())?;
        }
        write!(f, ": {}", details.message)?;
        if details.attempts > 1 {
            write!(f, " (after {} attempts)", details.attempts)?;
        }
        if !details.hint.is_empty() {
            write!(f, "; {}", details.hint)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use timestone_session::KeyName;
    use timestone_types::{AbortReason, ClientId, Sequence, Version};

    use super::*;

    #[test]
    fn a_conflict_reads_as_documented() {
        let other = TxnId::new(ClientId::new(0x9f), Sequence::new(2));
        let at = Timestamp::from_nanos;
        let abort = Abort {
            reason: AbortReason {
                kind: AbortKind::ReadConflict,
                item: Some(0),
                other: Some(other),
                at: at(43),
            },
            key: Some(KeyName { keyspace: KeyspaceId::DEFAULT, key: b"acct/7" }),
            read: Some(Version::new(at(41), ClientId::new(3))),
            found: None,
            txn: None,
        };
        let error = Error::of_abort(&abort);
        assert_eq!(
            error.to_string(),
            "TS1020 CONFLICT key=acct/7: read version 41.3, committed 43 by txn 9f-2; retry"
        );
        assert!(error.retryable());
        assert_eq!((error.key(), error.other()), (Some(&b"acct/7"[..]), Some(other)));
        let last = error.after(64).to_string();
        assert!(last.ends_with("by txn 9f-2 (after 64 attempts); retry"), "{last}");
    }

    #[test]
    fn history_that_is_gone_is_told_by_the_clock_on_the_wall() {
        let at = Timestamp::from_nanos(1_795_382_386 * 1_000_000_000 + 7);
        let reason = AbortReason { at, ..AbortReason::of(AbortKind::TooOld) };
        let error =
            Error::of_abort(&Abort { reason, key: None, read: None, found: None, txn: None })
                .to_string();
        assert!(
            error.contains("history before 21:19:46 UTC is gone; ask for a later time"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_outcome_is_never_retried() {
        let error = Error::unknown(TxnId::new(ClientId::new(1), Sequence::new(2)));
        assert!(!error.retryable());
        assert!(
            error
                .to_string()
                .starts_with("TS1029 UNKNOWN_OUTCOME: whether transaction 1-2 committed")
        );
    }
}

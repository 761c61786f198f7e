//! Why a command is answered with an error, in Redis's words where Redis has the error, for clients
//! match on them.
//!
//! An error's first word is its code. Errors that Redis does not know use `ERR`, or a code whose
//! meaning to clients fits: `TRYAGAIN` (asking again may succeed; nothing was done), `OOM` (no
//! room), `UNKNOWN` (nobody knows yet whether it was done), `CLUSTERDOWN` (the key's shard has no
//! server yet, or none that can be dialled; nothing was done).

use std::borrow::Cow;

use timestone_session::{Abort, LimitError, SessionError};
use timestone_types::TxnId;
use timestone_wire::ErrorCode;

use crate::limits::SHOWN_BYTES;

/// The text of an error reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure(Cow<'static, [u8]>);

/// As much of an argument as an error text shows: arguments may have millions of bytes.
pub(crate) fn shown(argument: &[u8]) -> &[u8] {
    &argument[..argument.len().min(SHOWN_BYTES)]
}

const fn fixed(text: &'static str) -> Failure {
    Failure(Cow::Borrowed(text.as_bytes()))
}

impl Failure {
    pub(crate) const SYNTAX: Self = fixed("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Self = fixed("ERR value is not an integer or out of range");
    pub(crate) const NOT_A_FLOAT: Self = fixed("ERR value is not a valid float");
    pub(crate) const NAN_OR_INFINITY: Self = fixed("ERR increment would produce NaN or Infinity");
    pub(crate) const OVERFLOW: Self = fixed("ERR increment or decrement would overflow");
    pub(crate) const DECREMENT_OVERFLOW: Self = fixed("ERR decrement would overflow");
    pub(crate) const OFFSET: Self = fixed("ERR offset is out of range");
    pub(crate) const TOO_LONG: Self =
        fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const CURSOR: Self = fixed("ERR invalid cursor");
    pub(crate) const LOST_CURSOR: Self = fixed(
        "ERR invalid cursor: the keyspace's index was changed since, or another server has it in \
         another way; begin again with cursor 0",
    );
    pub(crate) const CURSOR_OF_ANOTHER_KEYSPACE: Self = fixed(
        "ERR invalid cursor: it is of another keyspace than this server's, for only one of them has \
         its keys in order; let all servers behind one address have the same --resp-keyspace, and \
         begin again with cursor 0",
    );
    pub(crate) const NOT_32_BITS: Self =
        fixed("ERR value is out of range, value must between -2147483648 and 2147483647");
    pub(crate) const DB_INDEX: Self = fixed("ERR DB index is out of range");
    pub(crate) const NX_AND_OTHERS: Self =
        fixed("ERR NX and XX, GT or LT options at the same time are not compatible");
    pub(crate) const GT_AND_LT: Self =
        fixed("ERR GT and LT options at the same time are not compatible");
    pub(crate) const EXEC_WITHOUT_MULTI: Self = fixed("ERR EXEC without MULTI");
    pub(crate) const DISCARD_WITHOUT_MULTI: Self = fixed("ERR DISCARD without MULTI");
    pub(crate) const NESTED_MULTI: Self = fixed("ERR MULTI calls can not be nested");
    pub(crate) const WATCH_IN_MULTI: Self = fixed("ERR WATCH inside MULTI is not allowed");
    pub(crate) const EXEC_ABORTED: Self =
        fixed("EXECABORT Transaction discarded because of previous errors.");
    pub(crate) const NOT_IN_MULTI: Self = fixed("ERR Command not allowed inside a transaction");
    pub(crate) const NOT_QUEUEABLE: Self = fixed(
        "ERR Command not allowed inside a transaction: it reads or clears the whole keyspace, send \
         it outside of MULTI",
    );
    pub(crate) const NO_PROTOCOL: Self = fixed("NOPROTO unsupported protocol version");
    pub(crate) const PROTOCOL_NUMBER: Self =
        fixed("ERR Protocol version is not an integer or out of range");
    pub(crate) const NO_PASSWORD: Self = fixed(
        "ERR AUTH <password> called without any password configured for the default user. Are you \
         sure your configuration is correct?",
    );
    pub(crate) const WRONG_PASSWORD: Self =
        fixed("WRONGPASS invalid username-password pair or user is disabled.");
    pub(crate) const CLIENT_NAME: Self =
        fixed("ERR Client names cannot contain spaces, newlines or special characters.");
    pub(crate) const NAME_TOO_LONG: Self =
        fixed("ERR names of clients and libraries are at most 1024 bytes long");
    pub(crate) const TOO_MANY_QUEUED: Self = fixed(
        "ERR the transaction's commands are longer than a transaction may be: send it in pieces",
    );
    pub(crate) const TOO_MANY_WATCHED: Self = fixed(
        "ERR more keys are watched than a transaction may touch: watch fewer, or UNWATCH first",
    );
    pub(crate) const PATTERN_TOO_LONG: Self = fixed("ERR the pattern is longer than 1024 bytes");
    pub(crate) const TOO_MANY_PATTERNS: Self = fixed(
        "ERR the patterns have more than 4096 bytes in all, one for each of them included: ask for \
         fewer at a time",
    );
    pub(crate) const TOO_MANY_NAMED: Self =
        fixed("ERR more than 1024 names in one command: ask for fewer at a time");
    pub(crate) const REPLY_TOO_LONG: Self =
        fixed("ERR the answer would be too long: use SCAN, which answers in pieces");
    pub(crate) const CONTENDED: Self = fixed(
        "TRYAGAIN the command met conflicts with other transactions again and again; nothing was \
         done, so it may be sent again",
    );
    pub(crate) const NO_MEMORY_FOR_QUEUE: Self = fixed(
        "TRYAGAIN the memory for commands queued by MULTI is used up; the transaction is \
         discarded, try it again later",
    );
    pub(crate) const NO_MEMORY_FOR_WATCH: Self = fixed(
        "TRYAGAIN the memory for what clients have sent is used up; none of these keys is watched, \
         try it again later",
    );
    pub(crate) const NO_MEMORY_FOR_COMMAND: Self = fixed(
        "TRYAGAIN no memory was free for this command for some seconds; nothing was done, the \
         connection is closed",
    );
    pub(crate) const NO_MEMORY_TO_MAKE: Self = fixed(
        "TRYAGAIN no memory was free for some seconds for the values that this command makes; \
         nothing was done, try it again later",
    );
    pub(crate) const NO_MEMORY_FOR_ANSWER: Self =
        fixed("TRYAGAIN the memory for answers is used up; nothing was done, try it again later");
    pub(crate) const ANSWER_TOO_LONG: Self = fixed(
        "ERR the answer would be longer than 128 MiB; nothing was done, ask for less at a time",
    );
    pub(crate) const INTERNAL: Self = fixed(
        "ERR internal error: a shard's answer could not be understood; nothing was written. The \
         server's log says more",
    );

    /// An error with its code in front.
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The wrong number of arguments.
    pub(crate) fn arity(command: &str) -> Self {
        Self::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// A time to live that is not above zero, or overflows.
    pub(crate) fn expire_time(command: &str) -> Self {
        Self::text(format!("ERR invalid expire time in '{command}' command"))
    }

    /// An option that a command does not have.
    pub(crate) fn option(option: &[u8]) -> Self {
        Self::text([b"ERR Unsupported option ", shown(option)].concat())
    }

    /// An error that quotes an argument.
    pub(crate) fn quoting(head: &str, argument: &[u8]) -> Self {
        Self::text([head.as_bytes(), b" '", shown(argument), b"'"].concat())
    }

    /// A subcommand that a command does not have.
    pub(crate) fn subcommand(command: &str, subcommand: &[u8]) -> Self {
        Self::text(
            [
                b"ERR unknown subcommand '",
                shown(subcommand),
                b"'. Try ",
                command.as_bytes(),
                b" HELP.",
            ]
            .concat(),
        )
    }

    /// EXEC may not be given so: its transaction is over all the same.
    pub(crate) fn exec_refused(failure: &Self) -> Self {
        let why = failure.0.strip_prefix(b"ERR ").unwrap_or(&failure.0);
        Self::text([b"EXECABORT Transaction discarded because of: ", why].concat())
    }

    /// The error that a queued command met when its transaction ran.
    pub(crate) fn in_transaction(place: usize, command: &str, failure: &Self) -> Self {
        let head = format!(
            "EXECABORT Transaction discarded because command {place} ('{command}') failed: "
        );
        const TAIL: &[u8] =
            b" (unlike Redis, Timestone then writes nothing of the whole transaction)";
        Self::text([head.as_bytes(), failure.bytes(), TAIL].concat())
    }

    /// The fate of a write is not known.
    pub(crate) fn unknown(txn: TxnId) -> Self {
        Self::text(format!(
            "UNKNOWN no answer came in time: transaction {txn} may have been carried out, or may \
             still be; \
             'timestone txn status {txn}' tells"
        ))
    }

    /// A transaction or write that was aborted for good.
    pub(crate) fn aborted(abort: &Abort<'_>) -> Self {
        let code = if abort.retryable() { "TRYAGAIN" } else { "ERR" };
        let mut text = format!("{code} nothing was written: {}", abort.reason.kind).into_bytes();
        if let Some(key) = abort.key {
            text.extend_from_slice(b", key ");
            text.extend(shown(key.key).iter().flat_map(|&byte| core::ascii::escape_default(byte)));
        }
        Self(Cow::Owned(text))
    }

    /// Whether it may be the fault of one command of those that met it together, and nothing of them
    /// was done. Not while it is unknown whether they were carried out; and others' writes on a key
    /// are in the way of all of them.
    pub(crate) fn may_be_of_one(&self) -> bool {
        !self.0.starts_with(b"UNKNOWN ") && *self.0 != *Self::CONTENDED.0
    }

    /// The text, code included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&SessionError> for Failure {
    fn from(error: &SessionError) -> Self {
        let code = match error.code() {
            Some(ErrorCode::DeviceFull) => "OOM",
            Some(ErrorCode::StorageFailed) => "MISCONF",
            _ if matches!(error, SessionError::Elsewhere { .. }) => "CLUSTERDOWN",
            _ if error.retryable() => "TRYAGAIN",
            _ => "ERR",
        };
        Self::text(format!("{code} {error}"))
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::from(&error)
    }
}

impl From<LimitError> for Failure {
    fn from(error: LimitError) -> Self {
        Self::text(format!("ERR {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_happened_and_whether_to_try_again() {
        let busy = SessionError::Busy { retry_after: core::time::Duration::from_millis(1) };
        assert!(Failure::from(&busy).bytes().starts_with(b"TRYAGAIN the server is busy"));
        let full =
            SessionError::Refused { code: ErrorCode::DeviceFull, message: "full".to_owned() };
        assert!(Failure::from(&full).bytes().starts_with(b"OOM "));
        let unknown = Failure::unknown("1f-2a".parse().unwrap());
        assert!(String::from_utf8_lossy(unknown.bytes()).contains("may have been carried out"));
        let inside = Failure::in_transaction(2, "incr", &Failure::NOT_AN_INTEGER);
        assert!(inside.bytes().starts_with(
            b"EXECABORT Transaction discarded because command 2 ('incr') failed: ERR value"
        ));
    }
}

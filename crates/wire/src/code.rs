//! Stable codes of refusals: what users see as `TS1020 CONFLICT`, and what programs act on.

use core::fmt;

use timestone_cluster::ClusterError;
use timestone_types::AbortKind;

use crate::WireError;
use crate::layout::Fixed;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal $retryable:literal,)+) => {
        /// The kind of a refusal. Numbers and names never change their meaning; 1000–1009 protocol,
        /// 1010–1019 routing and load, 1020–1029 transactions, 1030–1039 limits, 1040–1049
        /// keyspaces and cluster, 1050–1059 storage, 1090–1099 the rest.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant = $number,)+
        }

        impl ErrorCode {
            /// All codes, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The code with this number.
            #[must_use]
            pub const fn from_u16(raw: u16) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The code's name, in capitals.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Whether the work may succeed when it is tried again: the same request for routing
            /// and load (after the hint, or after fetching the map), a new transaction for
            /// conflicts.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self {
                    $(Self::$variant => $retryable,)+
                }
            }
        }
    };
}

codes! {
    /// The frame was not understood; the connection is closed.
    Malformed = 1000 "MALFORMED" false,
    /// No common version of the protocol. Detail: our highest version.
    VersionMismatch = 1001 "VERSION_MISMATCH" false,
    /// The peer belongs to another cluster. Detail: our cluster id.
    WrongCluster = 1002 "WRONG_CLUSTER" false,
    /// This version does not serve what was asked for.
    Unsupported = 1003 "UNSUPPORTED" false,
    /// Who asks may not.
    NotAllowed = 1004 "NOT_ALLOWED" false,
    /// The shard lives elsewhere: fetch the map. Detail: the version of the map that says so.
    WrongShard = 1010 "WRONG_SHARD" true,
    /// The request carries an older epoch: fetch the map. Detail: the current epoch.
    StaleEpoch = 1011 "STALE_EPOCH" true,
    /// The server or shard cannot serve yet, or is leaving.
    Unavailable = 1012 "UNAVAILABLE" true,
    /// Overload, refused at the door; the hint says how long to wait.
    Busy = 1013 "BUSY" true,
    /// The time that the request was given is over.
    Timeout = 1014 "TIMEOUT" true,
    /// Another transaction wrote, or is writing, the same key. Detail: the timestamp that stood in
    /// the way.
    Conflict = 1020 "CONFLICT" true,
    /// A key that was read is being written by a transaction that was not decided in time.
    Prepared = 1021 "PREPARED" true,
    /// The commit timestamp stayed too low in every round. Detail: the timestamp that stood in the
    /// way.
    TimestampTooLow = 1022 "TIMESTAMP_TOO_LOW" true,
    /// A value that was read expired before commit.
    Expired = 1023 "EXPIRED" true,
    /// The snapshot lies below the watermark. Detail: the watermark.
    SnapshotTooOld = 1024 "SNAPSHOT_TOO_OLD" true,
    /// The condition of the write did not hold.
    ConditionFailed = 1025 "CONDITION_FAILED" false,
    /// Termination aborted the transaction because its client was silent.
    Terminated = 1026 "TERMINATED" true,
    /// The application asked for the abort.
    Aborted = 1027 "ABORTED" false,
    /// The timestamp lies too far ahead of the server's clock: mend the client's clock. Detail: the
    /// lead in nanoseconds.
    ClockAhead = 1028 "CLOCK_AHEAD" false,
    /// Whether the transaction committed is not known: `timestone txn status ID` asks later.
    UnknownOutcome = 1029 "UNKNOWN_OUTCOME" false,
    /// A key is too long. Detail: the bound in bytes.
    KeyTooLong = 1030 "KEY_TOO_LONG" false,
    /// A value is too long. Detail: the bound in bytes.
    ValueTooLong = 1031 "VALUE_TOO_LONG" false,
    /// A transaction carries too many bytes. Detail: the bound in bytes.
    TxnTooLarge = 1032 "TXN_TOO_LARGE" false,
    /// A transaction has too many keys. Detail: the bound.
    TxnTooManyKeys = 1033 "TXN_TOO_MANY_KEYS" false,
    /// A transaction was open for too long. Detail: the bound in nanoseconds.
    TxnTooLong = 1034 "TXN_TOO_LONG" true,
    /// The client's session ended; what it asked may have been executed, and is not executed again.
    SessionEnded = 1035 "SESSION_ENDED" false,
    /// The server's clock was set far back: nothing is written until it has passed what was served
    /// before. Detail: the time left, in nanoseconds.
    ClockBehind = 1036 "CLOCK_BEHIND" false,
    /// The client's clock is so far behind that what it begins lies below the watermark: mend it.
    /// Clients find it out by themselves, from `SNAPSHOT_TOO_OLD` and the reading of the server's
    /// clock before it. Detail: how far it is behind at least, in nanoseconds.
    ClientClockBehind = 1037 "CLIENT_CLOCK_BEHIND" false,
    /// No keyspace of that name or id.
    KeyspaceUnknown = 1040 "KEYSPACE_UNKNOWN" false,
    /// A keyspace of that name exists.
    KeyspaceExists = 1041 "KEYSPACE_EXISTS" false,
    /// The name, address or number cannot be used.
    BadArgument = 1042 "BAD_ARGUMENT" false,
    /// One transaction mixes keyspaces of different kinds.
    KeyspacesMixed = 1043 "KEYSPACES_MIXED" false,
    /// A bound of the cluster's metadata was met. Detail: the bound.
    ClusterLimit = 1044 "CLUSTER_LIMIT" false,
    /// The device is full: delete, or raise the capacity.
    DeviceFull = 1050 "DEVICE_FULL" false,
    /// The device or the log failed; the server's log says where.
    StorageFailed = 1051 "STORAGE_FAILED" false,
    /// Stored bytes are damaged; the server's log says where.
    Corrupt = 1052 "CORRUPT" false,
    /// A fault of this program; the server's log says where.
    Internal = 1090 "INTERNAL" false,
}

impl ErrorCode {
    /// The number, as in `TS1020`.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code for the kind of an abort.
    #[must_use]
    pub const fn of_abort(kind: AbortKind) -> Self {
        match kind {
            AbortKind::ReadConflict | AbortKind::WriteConflict => Self::Conflict,
            AbortKind::Prepared => Self::Prepared,
            AbortKind::Timestamp => Self::TimestampTooLow,
            AbortKind::Expired => Self::Expired,
            AbortKind::TooOld => Self::SnapshotTooOld,
            AbortKind::Condition => Self::ConditionFailed,
            AbortKind::Terminated => Self::Terminated,
            AbortKind::Requested => Self::Aborted,
        }
    }
}

impl From<&WireError> for ErrorCode {
    fn from(error: &WireError) -> Self {
        match error {
            WireError::Version { .. } => Self::VersionMismatch,
            WireError::UnknownKind(_) => Self::Unsupported,
            _ => Self::Malformed,
        }
    }
}

impl From<&ClusterError> for ErrorCode {
    fn from(error: &ClusterError) -> Self {
        match error {
            ClusterError::Malformed { .. }
            | ClusterError::Format { .. }
            | ClusterError::SlotOwners { .. }
            | ClusterError::DuplicateShard(_) => Self::Malformed,
            ClusterError::Checksum { .. } => Self::Corrupt,
            ClusterError::Unsupported { .. } | ClusterError::DramWithLog => Self::Unsupported,
            ClusterError::UnknownValue { .. }
            | ClusterError::BadName { .. }
            | ClusterError::BadAddress { .. }
            | ClusterError::ShardUnknown(_)
            | ClusterError::ServerUnknown(_)
            | ClusterError::BadChange { .. }
            | ClusterError::KeyspacePermanent => Self::BadArgument,
            ClusterError::StaleTerm { .. } | ClusterError::StaleRun { .. } => Self::NotAllowed,
            ClusterError::Restored { .. } => Self::Unavailable,
            ClusterError::KeyspaceExists { .. } => Self::KeyspaceExists,
            ClusterError::KeyspaceUnknown { .. } => Self::KeyspaceUnknown,
            ClusterError::Limit { .. } => Self::ClusterLimit,
            ClusterError::WrongCluster { .. } => Self::WrongCluster,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TS{} {}", self.number(), self.name())
    }
}

impl Fixed for ErrorCode {
    const BYTES: usize = 2;

    fn store(&self, to: &mut [u8]) {
        self.number().store(to);
    }

    fn load(from: &[u8]) -> Result<Self, WireError> {
        Self::from_u16(u16::load(from)?)
            .ok_or(WireError::BadField { field: "the code of an error" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_print_as_documented_and_read_back() {
        assert_eq!(ErrorCode::Conflict.to_string(), "TS1020 CONFLICT");
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_u16(code.number()), Some(code));
        }
        assert!(ErrorCode::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        assert_eq!(ErrorCode::from_u16(1019), None);
    }

    #[test]
    fn an_abort_and_its_code_agree_on_retrying() {
        for kind in AbortKind::ALL {
            assert_eq!(ErrorCode::of_abort(kind).retryable(), kind.retryable(), "{kind:?}");
        }
    }
}

//! Replies. Every one echoes its request's number in the header.

use core::time::Duration;

use timestone_cluster::{ClusterError, MasterAnswer, ShardMap};
use timestone_types::{AbortReason, Expiry, Timestamp, TxnId, Version};

use crate::code::ErrorCode;
use crate::layout::{
    ClusterBytes, CursorBytes, ErrorText, Fixed as _, PartBytes, ValueBytes, message,
};
use crate::list::{ScanCodec, ScanEntries, StatusCodec, StatusEntries};
use crate::prepare::{BodyCodec, PrepareBody};
use crate::value::{TxnState, Verdict};
use crate::{Envelope, HEADER_BYTES, Message as _};

message! {
    /// Answers [`crate::Get`].
    Value<'a> {
        fixed {
            /// The version that was chosen; of the tombstone or expired record when absent, zero
            /// when there never was one.
            version: Version,
            /// When the record expires, or expired.
            expires_at: Expiry,
            /// Whether a prepared write at or below the snapshot was pending: no local commit then.
            prepared_before: bool,
            /// Whether the key has a value there.
            present: bool,
        }
        variable {
            /// The value; empty when absent.
            value: &'a [u8] => ValueBytes,
        }
    }
}

message! {
    /// Answers [`crate::Prepare`].
    Vote {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// The commit timestamp that the vote is for.
            commit: Timestamp,
            /// The vote.
            verdict: Verdict,
        }
    }
}

message! {
    /// Answers [`crate::Write`].
    Written<'a> {
        fixed {
            /// The write's id.
            txn: TxnId,
            /// The timestamp that the answer is for; with `Yes` the version's.
            commit: Timestamp,
            /// Done durably, later, or refused (`Condition` when the condition did not hold).
            verdict: Verdict,
            /// Whether the key was present before. Filled when the previous value was asked for, or
            /// the condition did not hold.
            previous_present: bool,
            /// The version that the key had before; filled in the same cases.
            previous_version: Version,
            /// When that one expires, or expired.
            previous_expires_at: Expiry,
        }
        variable {
            /// The value that the key had before, when it was asked for and present; else empty.
            previous_value: &'a [u8] => ValueBytes,
        }
    }
}

message! {
    /// Answers [`crate::Decide`]: the decision is durable here.
    DecideAck {
        fixed {
            /// The transaction.
            txn: TxnId,
        }
    }
}

message! {
    /// Answers [`crate::Status`] and [`crate::Terminate`].
    StatusIs {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// What is known of it.
            state: TxnState,
        }
    }
}

message! {
    /// Answers [`crate::Freeze`]; the header names the participant.
    FreezeAnswer {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Where the participant stands, durably: prepared, committed or aborted.
            state: TxnState,
        }
    }
}

message! {
    /// Answers [`crate::FetchWriteSet`].
    WriteSet<'a> {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Its begin.
            begin: Timestamp,
            /// Its commit timestamp.
            commit: Timestamp,
        }
        variable {
            /// Reads and writes of the participant that asked.
            body: PrepareBody<'a> => BodyCodec,
        }
    }
}

message! {
    /// Answers [`crate::Scan`]. [`crate::ScanPageWriter`] writes one entry by entry.
    ScanPage<'a> {
        fixed {
            /// Where to go on.
            next: u64,
            /// Nothing is left.
            done: bool,
        }
        variable {
            /// The entries.
            entries: ScanEntries<'a> => ScanCodec,
        }
    }
}

message! {
    /// Answers [`crate::Count`].
    Counted {
        fixed {
            /// How many keys.
            keys: u64,
        }
    }
}

message! {
    /// Answers [`crate::Scrub`].
    Scrubbed {
        fixed {
            /// Pages that were read.
            pages: u64,
            /// Records whose checksum was verified.
            records: u64,
            /// Pages whose header does not check out.
            corrupt_pages: u64,
            /// Records whose checksum does not check out.
            corrupt_records: u64,
        }
    }
}

message! {
    /// Answers [`crate::Newest`].
    NewestIs {
        fixed {
            /// At or above every write that was acknowledged, zero when there is none.
            at: Timestamp,
        }
    }
}

message! {
    /// Stands in front of every batch of replies, under no request number: a reading of the
    /// server's clock, taken after the requests were read that the batch answers. See
    /// [`ClockIs::fill`].
    ClockIs {
        fixed {
            /// What the server's clock showed.
            now: Timestamp,
            /// How far that may be from true time, in nanoseconds; [`ClockIs::UNSYNCHRONISED`] when
            /// nothing vouches for it.
            error_ns: u64,
        }
    }
}

impl ClockIs {
    /// The error of a clock that nothing disciplines.
    pub const UNSYNCHRONISED: u64 = u64::MAX;

    /// A reading; `None`: nothing vouches for the clock.
    #[must_use]
    pub fn new(now: Timestamp, error: Option<Duration>) -> Self {
        let error_ns = error.map_or(Self::UNSYNCHRONISED, |error| {
            u64::try_from(error.as_nanos()).unwrap_or(Self::UNSYNCHRONISED)
        });
        Self { now, error_ns }
    }

    /// How far the reading may be from true time; `None` when nothing vouches for it.
    #[must_use]
    pub const fn error(&self) -> Option<Duration> {
        if self.error_ns == Self::UNSYNCHRONISED {
            None
        } else {
            Some(Duration::from_nanos(self.error_ns))
        }
    }

    /// Begins a batch with the frame of a reading that is not taken yet: [`ClockIs::fill`] puts it
    /// in when the batch leaves, so that it is younger than everything that the batch answers.
    #[inline]
    pub fn begin(envelope: &Envelope, out: &mut Vec<u8>) {
        debug_assert!(out.is_empty(), "the reading stands at the front of a batch");
        Self { now: Timestamp::ZERO, error_ns: Self::UNSYNCHRONISED }.encode(envelope, out);
    }

    /// Puts the reading into a batch that [`ClockIs::begin`] began.
    #[inline]
    pub fn fill(&self, batch: &mut [u8]) {
        let body = &mut batch[HEADER_BYTES..Self::FIXED_BYTES];
        self.now.store(&mut body[..8]);
        self.error_ns.store(&mut body[8..]);
    }
}

message! {
    /// Answers [`crate::ShardStats`] and [`crate::NodeStatus`]. [`crate::StatusListWriter`] writes
    /// one entry by entry.
    StatusList<'a> {
        fixed {}
        variable {
            /// Names and values.
            entries: StatusEntries<'a> => StatusCodec,
        }
    }
}

message! {
    /// Answers [`crate::MapPull`].
    MapIs<'a> {
        fixed {}
        variable {
            /// The map, as `ShardMap::encode` writes it.
            map: &'a [u8] => ClusterBytes,
        }
    }
}

impl MapIs<'_> {
    /// Reads the map.
    ///
    /// # Errors
    /// What `ShardMap::decode` refuses.
    pub fn shard_map(&self) -> Result<ShardMap, ClusterError> {
        ShardMap::decode(self.map)
    }
}

message! {
    /// Answers [`crate::MasterAsk`].
    MasterReply<'a> {
        fixed {}
        variable {
            /// The answer, as `MasterAnswer::encode` writes it.
            answer: &'a [u8] => ClusterBytes,
        }
    }
}

impl MasterReply<'_> {
    /// Reads the answer.
    ///
    /// # Errors
    /// What `MasterAnswer::decode` refuses.
    pub fn master_answer(&self) -> Result<MasterAnswer, ClusterError> {
        MasterAnswer::decode(self.answer)
    }
}

message! {
    /// Done, or alive: answers requests that have nothing to say.
    Done {
        fixed {}
    }
}

message! {
    /// Answers [`crate::Heartbeat`].
    HeartbeatAck {
        fixed {}
    }
}

message! {
    /// Answers [`crate::CheckpointAsk`].
    CheckpointPart<'a> {
        fixed {
            /// Nothing follows this part.
            last: bool,
        }
        variable {
            /// What the next ask names; opaque to whoever asks.
            cursor: &'a [u8] => CursorBytes,
            /// The part, in the encoding of the shard.
            part: &'a [u8] => PartBytes,
        }
    }
}

message! {
    /// Answers [`crate::ClosedAsk`], in the primary's epoch, which the header names. A backup tells it to
    /// whoever reads there, too.
    ClosedIs {
        fixed {
            /// The batch of the shard up to which everything has to be carried out; 0 from a backup,
            /// which has carried it out.
            through: u64,
            /// Snapshots at or below it may be answered then.
            at: Timestamp,
        }
    }
}

message! {
    /// Answers a [`crate::Report`] that has a request number.
    WatermarkIs {
        fixed {
            /// The shard's watermark, which is durable: whatever commits there from now on lies at or
            /// above it.
            at: Timestamp,
        }
    }
}

message! {
    /// Refuses a request of any kind.
    ErrorReply<'a> {
        fixed {
            /// What kind of refusal.
            code: ErrorCode,
            /// When to try again, in nanoseconds; 0 when there is no hint. See
            /// [`ErrorReply::retry_after`].
            retry_after_ns: u64,
            /// A number that belongs to the code: see [`ErrorCode`] for which.
            detail: u64,
            /// The other transaction, where one stood in the way.
            other: Option<TxnId>,
        }
        variable {
            /// A sentence for people that names the thing and what to do; cut to
            /// [`crate::limits::MAX_ERROR_TEXT_BYTES`].
            message: &'a str => ErrorText,
        }
    }
}

impl<'a> ErrorReply<'a> {
    /// A refusal without hint, detail or other transaction.
    #[must_use]
    pub const fn new(code: ErrorCode, message: &'a str) -> Self {
        Self { code, retry_after_ns: 0, detail: 0, other: None, message }
    }

    /// The same with a number that belongs to the code.
    #[must_use]
    pub const fn with_detail(self, detail: u64) -> Self {
        Self { detail, ..self }
    }

    /// The same with a hint when to try again (saturating at 584 years).
    #[must_use]
    pub fn with_retry_after(self, span: Duration) -> Self {
        Self { retry_after_ns: u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), ..self }
    }

    /// A refusal for the reason that a participant gave.
    #[must_use]
    pub fn of_abort(reason: &AbortReason, message: &'a str) -> Self {
        let code = ErrorCode::of_abort(reason.kind);
        Self { code, retry_after_ns: 0, detail: reason.at.as_nanos(), other: reason.other, message }
    }

    /// When to try again, when the server gave a hint.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        if self.retry_after_ns == 0 {
            None
        } else {
            Some(Duration::from_nanos(self.retry_after_ns))
        }
    }

    /// Whether trying again may succeed; see [`ErrorCode::retryable`].
    #[must_use]
    pub const fn retryable(&self) -> bool {
        self.code.retryable()
    }
}

impl core::fmt::Display for ErrorReply<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

//! The engine's requests and replies as `timestone-wire` writes them, and what a refusal on the
//! wire means here.
//!
//! The only file that knows messages. Requests are appended straight to a shard's outbox; replies
//! are read in place.

use core::time::Duration;

use timestone_cluster::MapVersion;
use timestone_txn::Refusal;
use timestone_txn::participant;
use timestone_types::{
    AbortKind, AbortReason, ClientId, Epoch, Sequence, ShardId, Timestamp, TxnId, TxnOutcome,
};
use timestone_wire::{
    Decide, DecideAck, Envelope, ErrorCode, ErrorReply, FetchWriteSet, Frame, Get, Kind, Message,
    Prepare, PrepareHead, PrepareWriter, ReadAt, ReadEntry, Report, RequestId,
    Shards as ShardsOnWire, Status, StatusIs, Terminate, TxnState, Value, Verdict, Vote, WireError,
    Write, WriteAction, WriteEntry, WriteKind, WriteSet, Written,
};

use crate::{
    KeyName, SessionError, TxnStatus, ValueView, keys,
    record::{Ending, Expected, Single, Txn, Want},
    shards::Place,
};

/// Where a request goes and whom its reply is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) map_version: u32,
    pub(crate) request: u64,
}

impl From<Route> for Envelope {
    fn from(route: Route) -> Self {
        Self {
            shard: route.shard,
            epoch: route.epoch,
            request: RequestId::new(route.request),
            map_version: MapVersion::new(route.map_version),
        }
    }
}

/// A transaction's read.
pub(crate) fn snapshot_read(
    route: Route,
    client: ClientId,
    begin: Timestamp,
    wait: bool,
    key: KeyName<'_>,
    out: &mut Vec<u8>,
) {
    let get =
        Get { keyspace: key.keyspace, at: ReadAt::Snapshot(begin), client, wait, key: key.key };
    get.encode(&route.into(), out);
}

/// A linearizable read of one key.
pub(crate) fn latest_read(
    route: Route,
    client: ClientId,
    single: &Single,
    wait: bool,
    out: &mut Vec<u8>,
) {
    let at = ReadAt::Latest(single.begin);
    Get { keyspace: single.keyspace, at, client, wait, key: single.key() }
        .encode(&route.into(), out);
}

/// A single-key write.
pub(crate) fn write(route: Route, single: &Single, wait: bool, out: &mut Vec<u8>) {
    let action = match single.want {
        Want::Delete => WriteAction::Delete,
        _ if single.keep_expiry => WriteAction::PutKeepExpiry,
        _ => WriteAction::Put,
    };
    let condition = match single.condition {
        Expected::Always => timestone_wire::Condition::Always,
        Expected::Absent => timestone_wire::Condition::IfAbsent,
        Expected::Present => timestone_wire::Condition::IfPresent,
        Expected::Version(version) => timestone_wire::Condition::IfVersion(version),
        Expected::Value => timestone_wire::Condition::IfValue(single.expected()),
    };
    let write = Write {
        txn: single.id,
        begin: single.begin,
        commit: single.commit,
        keyspace: single.keyspace,
        action,
        wait,
        return_previous: single.return_previous,
        expires_at: single.expires_at,
        condition,
        key: single.key(),
        value: single.value(),
    };
    write.encode(&route.into(), out);
}

/// How a transaction's part is to be prepared at one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepareAs {
    pub(crate) place: Place,
    pub(crate) commit: Timestamp,
    pub(crate) single: bool,
    pub(crate) wait: bool,
}

/// A transaction's part at one shard.
pub(crate) fn prepare(route: Route, txn: &Txn, how: &PrepareAs, out: &mut Vec<u8>) {
    let participants =
        if how.single { core::slice::from_ref(&route.shard) } else { &txn.participants };
    let head = PrepareHead {
        txn: txn.id,
        begin: txn.begin,
        commit: how.commit,
        single: how.single,
        wait: how.wait,
        participants,
    };
    let mut writer = PrepareWriter::begin(&route.into(), &head, out);
    for (at, entry) in txn.keys.reads_of(how.place) {
        writer.read(&ReadEntry {
            keyspace: entry.keyspace,
            version: entry.version,
            absent: !entry.present,
            expires_at: entry.expires_read,
            key: txn.keys.key(at).key,
        });
    }
    for (at, entry) in txn.keys.writes_of(how.place) {
        let kind = match entry.write {
            keys::Write::Put => WriteKind::Put,
            keys::Write::Fence => WriteKind::Fence,
            keys::Write::Delete | keys::Write::None => WriteKind::Delete,
        };
        writer.write(&WriteEntry {
            keyspace: entry.keyspace,
            kind,
            expires_at: entry.expires_written,
            key: txn.keys.key(at).key,
            value: txn.keys.value_written(at),
        });
    }
    writer.finish();
}

/// The part of a committed transaction for a participant that never saw it. Rare: the part is
/// written as a prepare first, whose body is then sent.
pub(crate) fn write_set(route: Route, txn: &Txn, how: &PrepareAs, out: &mut Vec<u8>) {
    let mut scratch = Vec::new();
    prepare(route, txn, how, &mut scratch);
    let body = Frame::parse(&scratch)
        .and_then(|frame| Prepare::decode(&frame))
        .map(|prepare| prepare.body);
    // What was just written reads back; were it not so, the participant would ask again and find
    // out elsewhere.
    if let Ok(body) = body {
        WriteSet { txn: txn.id, begin: txn.begin, commit: how.commit, body }
            .encode(&route.into(), out);
    }
}

/// A decision.
pub(crate) fn decide(route: Route, txn: TxnId, outcome: TxnOutcome, out: &mut Vec<u8>) {
    let decision = match outcome {
        TxnOutcome::Committed(at) => Some(at),
        TxnOutcome::Aborted => None,
    };
    Decide::new(txn, decision).encode(&route.into(), out);
}

/// A request to end a transaction that its coordinator could not.
pub(crate) fn terminate(route: Route, txn: &Txn, out: &mut Vec<u8>) {
    let participants = ShardsOnWire::new(&txn.participants);
    Terminate { txn: txn.id, begin: txn.begin, commit: txn.highest_commit, participants }
        .encode(&route.into(), out);
}

/// A question about a transaction.
pub(crate) fn status(route: Route, txn: TxnId, out: &mut Vec<u8>) {
    Status { txn }.encode(&route.into(), out);
}

/// A report.
pub(crate) fn report(
    route: Route,
    client: ClientId,
    (watermark, now): (Timestamp, Timestamp),
    acked: Sequence,
    closing: bool,
    out: &mut Vec<u8>,
) {
    Report { client, watermark, acked, now, closing }.encode(&route.into(), out);
}

/// A reply, as far as the engine cares.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply<'a> {
    /// A read's answer.
    Value(keys::Answer<'a>),
    /// A participant's vote, for one commit timestamp.
    Vote { txn: TxnId, commit: Timestamp, vote: participant::Vote },
    /// A single-key write's answer; the previous value where it was asked for or the condition
    /// failed.
    Written { commit: Timestamp, vote: participant::Vote, previous: ValueView<'a> },
    /// A decision is durable.
    Acked { txn: TxnId },
    /// A decision came without its prepare.
    WriteSetWanted { txn: TxnId },
    /// What is known of a transaction.
    Status { txn: TxnId, status: TxnStatus },
    /// A refusal.
    Fault(Fault<'a>),
    /// Anything else; the host may have asked it.
    Other,
}

/// Reads a reply in place.
pub(crate) fn reply<'a>(frame: &Frame<'a>) -> Result<Reply<'a>, WireError> {
    Ok(match frame.kind() {
        Kind::Value => {
            let Value { version, expires_at, prepared_before, present, value } =
                Value::decode(frame)?;
            let value = present.then_some(value);
            Reply::Value(keys::Answer { version, expires_at, prepared_before, value })
        }
        Kind::Vote => {
            let Vote { txn, commit, verdict } = Vote::decode(frame)?;
            Reply::Vote { txn, commit, vote: vote_of(verdict) }
        }
        Kind::Written => {
            let written = Written::decode(frame)?;
            let previous = ValueView {
                value: written.previous_present.then_some(written.previous_value),
                version: written.previous_version,
                expires_at: written.previous_expires_at,
            };
            Reply::Written { commit: written.commit, vote: vote_of(written.verdict), previous }
        }
        Kind::DecideAck => Reply::Acked { txn: DecideAck::decode(frame)?.txn },
        Kind::FetchWriteSet => Reply::WriteSetWanted { txn: FetchWriteSet::decode(frame)?.txn },
        Kind::StatusIs => {
            let StatusIs { txn, state } = StatusIs::decode(frame)?;
            Reply::Status { txn, status: state.into() }
        }
        Kind::ErrorReply => Reply::Fault(ErrorReply::decode(frame)?.into()),
        _ => Reply::Other,
    })
}

const fn vote_of(verdict: Verdict) -> participant::Vote {
    match verdict {
        Verdict::Yes => participant::Vote::Yes,
        Verdict::Later(at) => participant::Vote::Later(at),
        Verdict::No(reason) => participant::Vote::No(reason),
    }
}

impl From<TxnState> for TxnStatus {
    fn from(state: TxnState) -> Self {
        match state {
            TxnState::Unknown => Self::Unknown,
            TxnState::Prepared(at) => Self::Prepared(at),
            TxnState::Committed(at) => Self::Committed(at),
            TxnState::Aborted => Self::Aborted,
        }
    }
}

impl From<TxnStatus> for participant::TxnStatus {
    fn from(status: TxnStatus) -> Self {
        match status {
            TxnStatus::Unknown => Self::Unknown,
            TxnStatus::Prepared(at) => Self::Prepared(at),
            TxnStatus::Committed(at) => Self::Decided(TxnOutcome::Committed(at)),
            TxnStatus::Aborted => Self::Decided(TxnOutcome::Aborted),
        }
    }
}

/// Why a request was not served, by what the engine does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault<'a> {
    /// Overload, or not ready: ask again after a while.
    Busy { retry_after: Duration },
    /// The shard or its epoch is another one: fetch the map, ask again.
    WrongRoute,
    /// The snapshot is below the watermark.
    TooOld { watermark: Timestamp },
    /// The timestamp is too far in the server's future.
    ClockAhead { lead: Duration },
    /// A prepared write was not decided in time: ask again.
    Prepared { other: TxnId },
    /// The client's session is over, or the request was finished and forgotten.
    SessionEnded,
    /// The transaction is being terminated.
    Terminating,
    /// For the application to see.
    Other { code: ErrorCode, message: &'a str },
}

impl<'a> From<ErrorReply<'a>> for Fault<'a> {
    fn from(error: ErrorReply<'a>) -> Self {
        match error.code {
            ErrorCode::Busy | ErrorCode::Unavailable | ErrorCode::Timeout => {
                Self::Busy { retry_after: error.retry_after().unwrap_or_default() }
            }
            ErrorCode::WrongShard | ErrorCode::StaleEpoch => Self::WrongRoute,
            ErrorCode::SnapshotTooOld => {
                Self::TooOld { watermark: Timestamp::from_nanos(error.detail) }
            }
            ErrorCode::ClockAhead => Self::ClockAhead { lead: Duration::from_nanos(error.detail) },
            ErrorCode::Prepared => Self::Prepared { other: error.other.unwrap_or_default() },
            ErrorCode::SessionEnded => Self::SessionEnded,
            ErrorCode::Terminated => Self::Terminating,
            code => Self::Other { code, message: error.message },
        }
    }
}

impl From<Refusal> for Fault<'_> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooOld { watermark } => Self::TooOld { watermark },
            Refusal::ClockAhead { lead } => Self::ClockAhead { lead },
            Refusal::Prepared { other } => Self::Prepared { other },
            Refusal::Finished => Self::SessionEnded,
            Refusal::Terminating => Self::Terminating,
            Refusal::Recovering | Refusal::Busy => Self::Busy { retry_after: Duration::ZERO },
            Refusal::ClockHeld { wait } => Self::Busy { retry_after: wait },
            Refusal::ClockBehind { .. } => Self::Other {
                code: ErrorCode::ClockBehind,
                message: "the server's clock is far behind what it has served; nothing is written \
                    until it has passed that",
            },
            Refusal::LogLost => Self::Other {
                code: ErrorCode::StorageFailed,
                message: "the server's log has failed; nothing is written",
            },
            Refusal::Contradiction => Self::Other {
                code: ErrorCode::Internal,
                message: "two decisions about one transaction contradict each other",
            },
        }
    }
}

impl Fault<'_> {
    /// Whether the server serves, and has no room for this. One that is not serving yet gives no
    /// hint when to come again.
    pub(crate) const fn lacks_room(&self) -> bool {
        matches!(self, Self::Busy { retry_after } if !retry_after.is_zero())
    }

    /// The same as a participant of the transaction core would say it; `None` when there is nothing
    /// to do but to wait for the map. A refusal that waiting does not mend sends the coordinator to
    /// ask for termination, so that nothing stays promised.
    pub(crate) const fn refusal(&self) -> Option<Refusal> {
        Some(match *self {
            Self::Busy { .. } => Refusal::Busy,
            Self::WrongRoute => return None,
            Self::TooOld { watermark } => Refusal::TooOld { watermark },
            Self::ClockAhead { lead } => Refusal::ClockAhead { lead },
            Self::Prepared { other } => Refusal::Prepared { other },
            Self::SessionEnded => Refusal::Finished,
            // About a transaction: what the shard was told contradicts what it has recorded.
            Self::Other { code: ErrorCode::Internal, .. } => Refusal::Contradiction,
            Self::Terminating | Self::Other { .. } => Refusal::Terminating,
        })
    }

    /// How a transaction ends that was refused so before anything was promised: as an abort with
    /// its reason, or as an error.
    pub(crate) fn ending(&self) -> Result<Ending, AbortReason> {
        let aborted = |kind, at, other| AbortReason { kind, item: None, other, at };
        match *self {
            Self::Busy { retry_after } => Ok(Ending::Busy { retry_after }),
            Self::ClockAhead { lead } => Ok(Ending::ClockAhead { lead }),
            Self::SessionEnded => Ok(Ending::SessionEnded),
            Self::TooOld { watermark } => Err(aborted(AbortKind::TooOld, watermark, None)),
            Self::Prepared { other } => {
                Err(aborted(AbortKind::Prepared, Timestamp::ZERO, Some(other)))
            }
            Self::WrongRoute | Self::Terminating | Self::Other { .. } => {
                Err(AbortReason::of(AbortKind::Terminated))
            }
        }
    }
}

impl From<Fault<'_>> for SessionError {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::Busy { retry_after } => Self::Busy { retry_after },
            Fault::WrongRoute => Self::NoShard,
            Fault::ClockAhead { lead } => Self::ClockAhead { lead },
            Fault::SessionEnded => Self::SessionEnded,
            Fault::Other { code, message } => Self::Refused { code, message: message.to_owned() },
            Fault::TooOld { .. } => Self::Refused {
                code: ErrorCode::SnapshotTooOld,
                message: "the snapshot is too old".to_owned(),
            },
            Fault::Prepared { .. } | Fault::Terminating => Self::Refused {
                code: ErrorCode::Prepared,
                message: "the key is being written by another transaction".to_owned(),
            },
        }
    }
}

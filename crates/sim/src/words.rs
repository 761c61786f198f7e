//! Frames, log records and what sessions do in words, for traces.

use std::fmt::Write as _;

use timestone_types::{ShardId, Timestamp, TxnId, Version};
use timestone_wal::{BatchRecords, LogRecord};
use timestone_wire::{
    Call, CallAnswer, ClosedIs, Decide, DecideAck, ErrorReply, FetchWriteSet, Forget, Frame,
    Freeze, FreezeAnswer, Get, GetAtBackup, Kind, Message, Prepare, PrepareBody, ReadAt, Report,
    Status, StatusIs, Terminate, Value, Vote, Write, WriteSet, Written,
};
use timestone_workload::history::{MicroOp, Seen};
use timestone_workload::{ValueKind, list_of};

use crate::clock::EPOCH;
use crate::names::{Names, key};

/// Of a filling, its number is what tells it from others.
const SHOWN_BYTES: usize = 24;

/// A timestamp as seconds since the world began, as far as clocks go.
fn moment(at: Timestamp) -> String {
    if at < EPOCH {
        return format!("#{}", at.as_nanos());
    }
    let nanos = at.as_nanos() - EPOCH.as_nanos();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn shards(list: impl Iterator<Item = ShardId>) -> String {
    let names: Vec<String> = list.map(|shard| shard.to_string()).collect();
    names.join(",")
}

fn body(body: &PrepareBody<'_>) -> String {
    let mut out = String::new();
    for read in body.reads() {
        // Writing to a String cannot fail.
        let seen = if read.absent { "absent".to_owned() } else { moment(read.version.timestamp) };
        let _ = write!(out, " r key {}@{seen}", key(read.key));
    }
    for write in body.writes() {
        let _ = write!(out, " w key {}", key(write.key));
    }
    out
}

/// What was read, as histories tell it.
fn value(found: &Value<'_>, kind: ValueKind) -> String {
    let pending =
        if found.prepared_before { ", and a write before that is not decided" } else { "" };
    let said = version(found.version, found.present.then_some(found.value), kind);
    format!("{said}{pending}")
}

/// A version, and its value if there is one.
fn version(version: Version, value: Option<&[u8]>, kind: ValueKind) -> String {
    let at = moment(version.timestamp);
    match value {
        Some(value) => format!("{} of {at}", shown(value, kind)),
        None if version.timestamp == Timestamp::ZERO => "absent".to_owned(),
        None => format!("absent since {at}"),
    }
}

/// A value as histories tell it, or its begin.
fn shown(value: &[u8], kind: ValueKind) -> String {
    let mut list = Vec::new();
    if kind == ValueKind::List && list_of(value, &mut list).is_ok() {
        format!("{list:?}")
    } else {
        value[..value.len().min(SHOWN_BYTES)].escape_ascii().to_string()
    }
}

/// A call of an embedded client, with its answer if it has one.
pub(crate) fn call(call: &Call<'_>, answer: Option<CallAnswer<'_>>, kind: ValueKind) -> String {
    let (key, begin) = (key(call.key), moment(call.at.begin));
    let asked = match call.put {
        None => format!("call: key {key} the latest, at {begin}"),
        Some((value, _)) => format!("call: put {} to key {key}, begin {begin}", shown(value, kind)),
    };
    match answer {
        None => asked,
        Some(CallAnswer::Found { version: at, value, .. }) => {
            format!("{asked}: {}", version(at, value, kind))
        }
        Some(CallAnswer::Put(at)) => format!("{asked}: done at {}", moment(at)),
        Some(CallAnswer::NotNow) => format!("{asked}: not now"),
    }
}

/// The steps of a transaction, with what it saw as far as that is known.
pub(crate) fn steps(ops: &[MicroOp]) -> String {
    let mut out = String::new();
    for op in ops {
        let _ = match op {
            MicroOp::Read { key, seen: Seen::Nothing } => write!(out, " r key {}", key.0),
            MicroOp::Read { key, seen: Seen::Integer(value) } => {
                write!(out, " r key {} {value}", key.0)
            }
            MicroOp::Read { key, seen: Seen::List(list) } => {
                write!(out, " r key {} {list:?}", key.0)
            }
            MicroOp::Append { key, element } => write!(out, " append key {} {element}", key.0),
            MicroOp::Write { key, value: Some(value) } => write!(out, " w key {} {value}", key.0),
            MicroOp::Write { key, value: None } => write!(out, " w key {}", key.0),
            MicroOp::WriteUntil { key, value, until } => {
                write!(
                    out,
                    " w key {} {value} until {}",
                    key.0,
                    moment(EPOCH.saturating_add(until.since(Timestamp::ZERO)))
                )
            }
        };
    }
    out
}

fn decision(commit: Option<Timestamp>) -> String {
    commit.map_or_else(|| "abort".to_owned(), |at| format!("commit {}", moment(at)))
}

/// What a frame says of the one transaction that it is about.
fn said_of(frame: &Frame<'_>) -> Option<(TxnId, String)> {
    match frame.kind() {
        Kind::Prepare => Prepare::decode(frame).ok().map(|prepare| {
            let single = if prepare.single { " single" } else { "" };
            let (begin, commit) = (moment(prepare.begin), moment(prepare.commit));
            let (on, body) = (shards(prepare.participants.iter()), body(&prepare.body));
            (prepare.txn, format!("begin {begin} commit {commit}{single} on {on}{body}"))
        }),
        Kind::Write => Write::decode(frame).ok().map(|write| {
            (
                write.txn,
                format!(
                    "key {} {:?} commit {}",
                    key(write.key),
                    write.action,
                    moment(write.commit)
                ),
            )
        }),
        Kind::Vote => {
            let said = |vote: Vote| {
                (vote.txn, format!("{:?} for commit {}", vote.verdict, moment(vote.commit)))
            };
            Vote::decode(frame).ok().map(said)
        }
        Kind::Written => {
            let said = |reply: Written<'_>| {
                (reply.txn, format!("{:?} at {}", reply.verdict, moment(reply.commit)))
            };
            Written::decode(frame).ok().map(said)
        }
        Kind::Decide => {
            Decide::decode(frame).ok().map(|decide| (decide.txn, decision(decide.decision())))
        }
        Kind::DecideAck => {
            DecideAck::decode(frame).ok().map(|ack| (ack.txn, "is durable".to_owned()))
        }
        Kind::Status => {
            Status::decode(frame).ok().map(|status| (status.txn, "what became of it".to_owned()))
        }
        Kind::Terminate => Terminate::decode(frame).ok().map(|terminate| {
            let (commit, on) = (moment(terminate.commit), shards(terminate.participants.iter()));
            (terminate.txn, format!("commit {commit} on {on}"))
        }),
        Kind::StatusIs => {
            StatusIs::decode(frame).ok().map(|status| (status.txn, format!("{:?}", status.state)))
        }
        Kind::Freeze => Freeze::decode(frame)
            .ok()
            .map(|freeze| (freeze.txn, format!("begin {}", moment(freeze.begin)))),
        Kind::FreezeAnswer => FreezeAnswer::decode(frame)
            .ok()
            .map(|answer| (answer.txn, format!("{:?}", answer.state))),
        Kind::FetchWriteSet => FetchWriteSet::decode(frame)
            .ok()
            .map(|fetch| (fetch.txn, format!("commit {}", moment(fetch.commit)))),
        Kind::WriteSet => WriteSet::decode(frame)
            .ok()
            .map(|set| (set.txn, format!("commit {}{}", moment(set.commit), body(&set.body)))),
        Kind::Forget => {
            Forget::decode(frame).ok().map(|forget| (forget.txn, "everybody knows".to_owned()))
        }
        _ => None,
    }
}

/// A frame: what kind, for which shard, and what it says. `about` is the key that it answers for,
/// which it does not name itself.
pub(crate) fn frame(frame: &Frame<'_>, about: Option<&str>, names: &Names) -> String {
    let mut head = format!(
        "{} to shard {} #{:x}",
        frame.kind().name(),
        frame.envelope().shard,
        frame.envelope().request.get()
    );
    if let Some(key) = about {
        let _ = write!(head, " of key {key}");
    }
    if let Some((txn, said)) = said_of(frame) {
        return format!("{head}: {} {said}", names.of(txn));
    }
    let said = match frame.kind() {
        Kind::Get => Get::decode(frame).ok().map(|get| {
            let at = match get.at {
                ReadAt::Snapshot(at) => format!("as of {}", moment(at)),
                ReadAt::Latest(at) => format!("the latest, at {}", moment(at)),
            };
            format!("key {} {at}", key(get.key))
        }),
        Kind::GetAtBackup => GetAtBackup::decode(frame)
            .ok()
            .map(|get| format!("key {} as of {}, at a backup", key(get.key), moment(get.at))),
        Kind::ClosedIs => ClosedIs::decode(frame)
            .ok()
            .map(|closed| format!("{} with batch {}", moment(closed.at), closed.through)),
        Kind::Value => Value::decode(frame).ok().map(|found| value(&found, names.values())),
        Kind::Report => Report::decode(frame).ok().map(|report| format!("{report:?}")),
        Kind::ErrorReply => ErrorReply::decode(frame).ok().map(|error| error.to_string()),
        _ => None,
    };
    said.map_or(head.clone(), |said| format!("{head}: {said}"))
}

/// The records of a log batch.
pub(crate) fn records(bytes: &[u8], names: &Names) -> String {
    let mut out = String::new();
    for record in BatchRecords::new(bytes).flatten() {
        let text = match LogRecord::decode(record) {
            Ok(LogRecord::Prepare { txn, commit, single, body: bytes, .. }) => {
                let single = if single { " single" } else { "" };
                let body = PrepareBody::parse(bytes)
                    .map_or_else(|_| String::new(), |parsed| body(&parsed));
                format!("prepare {} commit {}{single}{body}", names.of(txn), moment(commit))
            }
            Ok(LogRecord::Decision { txn, commit, .. }) if commit == Timestamp::ZERO => {
                format!("abort {}", names.of(txn))
            }
            Ok(LogRecord::Decision { txn, commit, .. }) => {
                format!("commit {} at {}", names.of(txn), moment(commit))
            }
            Ok(LogRecord::ReadBound { bound, watermark }) => {
                format!("read bound {} watermark {}", moment(bound), moment(watermark))
            }
            Ok(LogRecord::KeepFrom { batch }) => format!("keep from batch {batch}"),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        };
        let _ = write!(out, "{}{text}", if out.is_empty() { "" } else { "; " });
    }
    out
}

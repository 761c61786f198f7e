//! Frames and log records in words, for traces.

use std::fmt::Write as _;

use timestone_types::{ShardId, Timestamp, TxnId, TxnOutcome};
use timestone_wal::{BatchRecords, LogRecord};
use timestone_wire::{
    Decide, DecideAck, ErrorReply, Frame, Freeze, FreezeAnswer, Get, Kind, Message, Prepare, PrepareBody, Report,
    Value, Vote, Write, Written,
};

use crate::clock::EPOCH;

/// A timestamp as seconds since the world began, as far as clocks go.
fn moment(at: Timestamp) -> String {
    if at < EPOCH {
        return format!("#{}", at.as_nanos());
    }
    let nanos = at.as_nanos() - EPOCH.as_nanos();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn key(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_start_matches('0').to_owned()
}

fn transaction(txn: TxnId) -> String {
    format!("txn {txn}")
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

/// A frame: what kind, for which shard, and what it says.
pub(crate) fn frame(frame: &Frame<'_>) -> String {
    let head =
        format!("{} to shard {} #{:x}", frame.kind().name(), frame.envelope().shard, frame.envelope().request.get());
    let said = match frame.kind() {
        Kind::Get => Get::decode(frame).ok().map(|get| format!("key {} {:?}", key(get.key), get.at)),
        Kind::Prepare => Prepare::decode(frame).ok().map(|prepare| {
            let single = if prepare.single { " single" } else { "" };
            let (begin, commit) = (moment(prepare.begin), moment(prepare.commit));
            let body = body(&prepare.body);
            format!(
                "{} begin {begin} commit {commit}{single} on {}{body}",
                transaction(prepare.txn),
                shards(prepare.participants.iter())
            )
        }),
        Kind::Write => Write::decode(frame).ok().map(|write| {
            format!(
                "{} key {} {:?} commit {}",
                transaction(write.txn),
                key(write.key),
                write.action,
                moment(write.commit)
            )
        }),
        Kind::Decide => Decide::decode(frame).ok().map(|decide| format!("{decide:?}")),
        Kind::Vote => Vote::decode(frame).ok().map(|vote| format!("{vote:?}")),
        Kind::Value => Value::decode(frame).ok().map(|value| format!("{value:?}")),
        Kind::Written => Written::decode(frame).ok().map(|written| format!("{written:?}")),
        Kind::DecideAck => DecideAck::decode(frame).ok().map(|ack| format!("{ack:?}")),
        Kind::Freeze => Freeze::decode(frame).ok().map(|freeze| format!("{freeze:?}")),
        Kind::FreezeAnswer => FreezeAnswer::decode(frame).ok().map(|answer| format!("{answer:?}")),
        Kind::Report => Report::decode(frame).ok().map(|report| format!("{report:?}")),
        Kind::ErrorReply => ErrorReply::decode(frame).ok().map(|error| error.to_string()),
        _ => None,
    };
    said.map_or(head.clone(), |said| format!("{head}: {said}"))
}

/// The records of a log batch.
pub(crate) fn records(bytes: &[u8]) -> String {
    let mut out = String::new();
    for record in BatchRecords::new(bytes).flatten() {
        let text = match LogRecord::decode(record) {
            Ok(LogRecord::Prepare { txn, commit, single, body: bytes, .. }) => {
                let single = if single { " single" } else { "" };
                let body = PrepareBody::parse(bytes).map_or_else(|_| String::new(), |parsed| body(&parsed));
                format!("prepare {} commit {}{single}{body}", transaction(txn), moment(commit))
            }
            Ok(LogRecord::Decision { txn, commit, .. }) if commit == Timestamp::ZERO => {
                format!("abort {}", transaction(txn))
            }
            Ok(LogRecord::Decision { txn, commit, .. }) => format!("commit {} at {}", transaction(txn), moment(commit)),
            Ok(LogRecord::Outcome { txn, outcome }) => match outcome {
                TxnOutcome::Committed(at) => format!("outcome {} committed at {}", transaction(txn), moment(at)),
                TxnOutcome::Aborted => format!("outcome {} aborted", transaction(txn)),
            },
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

//! The requests of a transaction as `timestone-wire` writes them, appended straight to a shard's
//! outbox.

use timestone_types::{ClientId, Timestamp, TxnId, TxnOutcome};
use timestone_wire::{
    Decide, Frame, Get, GetAtBackup, Message, Prepare, PrepareHead, PrepareWriter, ReadAt,
    ReadEntry, Shards as ShardsOnWire, Terminate, WriteEntry, WriteKind, WriteSet,
};

use super::keys::PendingWrite;
use super::record::Txn;
use crate::KeyName;
use crate::engine::frames::Route;
use crate::engine::shards::ShardIndex;

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

/// A transaction's read, at a backup.
pub(crate) fn read_at_backup(route: Route, begin: Timestamp, key: KeyName<'_>, out: &mut Vec<u8>) {
    GetAtBackup { keyspace: key.keyspace, at: begin, key: key.key }.encode(&route.into(), out);
}

/// How a transaction's part is to be prepared at one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepareAs {
    pub(crate) shard: ShardIndex,
    pub(crate) commit: Timestamp,
    pub(crate) one_phase: bool,
    pub(crate) wait: bool,
}

/// A transaction's part at one shard.
pub(crate) fn prepare(route: Route, txn: &Txn, how: &PrepareAs, out: &mut Vec<u8>) {
    let participants =
        if how.one_phase { core::slice::from_ref(&route.shard) } else { &txn.commit.participants };
    let head = PrepareHead {
        txn: txn.commit.id,
        begin: txn.begin,
        commit: how.commit,
        single: how.one_phase,
        wait: how.wait,
        participants,
    };
    let ranges = txn.ranges.list();
    let mut writer = PrepareWriter::begin_with(&route.into(), &head, ranges.entries(), out);
    for (at, entry) in txn.keys.reads_of(how.shard) {
        writer.read(&ReadEntry {
            keyspace: entry.keyspace,
            version: entry.version,
            absent: !entry.present,
            expires_at: entry.expires_read,
            key: txn.keys.key(at).key,
        });
    }
    for (at, entry) in txn.keys.writes_of(how.shard) {
        let kind = match entry.write {
            PendingWrite::Put => WriteKind::Put,
            PendingWrite::Fence => WriteKind::Fence,
            PendingWrite::Delete | PendingWrite::None => WriteKind::Delete,
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
        .and_then(|frame| Prepare::decode_any(&frame))
        .map(|(prepare, _)| prepare.body);
    // What was just written reads back; were it not so, the participant would ask again and find
    // out elsewhere.
    if let Ok(body) = body {
        WriteSet { txn: txn.commit.id, begin: txn.begin, commit: how.commit, body }
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
    let participants = ShardsOnWire::new(&txn.commit.participants);
    Terminate { txn: txn.commit.id, begin: txn.begin, commit: txn.commit.highest, participants }
        .encode(&route.into(), out);
}

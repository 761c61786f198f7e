//! The engine's own requests as `timestone-wire` writes them: requests outside transactions, and
//! reports. They are appended straight to a shard's outbox.

use timestone_cluster::MapVersion;
use timestone_types::{ClientId, Epoch, Sequence, ShardId, Timestamp, TxnId};
use timestone_wire::{
    self as wire, Condition, Envelope, Get, Message, Ping, ReadAt, Report, RequestId, Status,
    Write, WriteAction,
};

use super::singles::record::{Expected, Single, Want};

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

/// A linearizable read of one key.
pub(crate) fn latest_read(
    route: Route,
    client: ClientId,
    single: &Single,
    at: Timestamp,
    wait: bool,
    out: &mut Vec<u8>,
) {
    let at = ReadAt::Latest(at);
    Get { keyspace: single.keyspace, at, client, wait, key: single.bytes.key() }
        .encode(&route.into(), out);
}

/// A single-key write.
pub(crate) fn write(route: Route, single: &Single, wait: bool, out: &mut Vec<u8>) {
    let action = match single.want {
        Want::Delete => WriteAction::Delete,
        _ if single.copies.are_placed => WriteAction::PutFrom,
        _ if single.write.keep_expiry => WriteAction::PutKeepExpiry,
        _ => WriteAction::Put,
    };
    let condition = match single.write.condition {
        Expected::Always => Condition::Always,
        Expected::Absent => Condition::IfAbsent,
        Expected::Present => Condition::IfPresent,
        Expected::Version(version) => Condition::IfVersion(version),
        Expected::Value => Condition::IfValue(single.bytes.expected()),
    };
    let write = Write {
        txn: single.id,
        begin: single.begin,
        commit: single.commit,
        keyspace: single.keyspace,
        action,
        wait,
        return_previous: single.write.return_previous,
        expires_at: single.write.expires_at,
        condition,
        key: single.bytes.key(),
        value: single.bytes.value(),
    };
    write.encode(&route.into(), out);
}

/// A question about a transaction.
pub(crate) fn status(route: Route, txn: TxnId, out: &mut Vec<u8>) {
    Status { txn }.encode(&route.into(), out);
}

/// A frame that the host wrote, perhaps when the map was another one.
pub(crate) fn again(route: Route, frame: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(frame);
    wire::restamp(&mut out[begin..], route.epoch, MapVersion::new(route.map_version));
}

/// A question for nothing but a sign of life, and with it a reading of the server's clock.
pub(crate) fn ping(route: Route, out: &mut Vec<u8>) {
    Ping {}.encode(&route.into(), out);
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

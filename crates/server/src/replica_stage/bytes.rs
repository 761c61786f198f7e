//! The records of a batch, shared by the log, the other replicas and the shard.

use std::sync::Arc;

use timestone_replication::{Batch, Payload};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::{BatchHead, BatchNumber, BatchRecords, LogRecord, RecordNumber};
use timestone_wire::BatchBytes;

/// Records as a shard made them, each with its length in front.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LogBytes {
    /// The number of the first one.
    pub(super) first: RecordNumber,
    pub(super) records: Arc<[u8]>,
}

impl LogBytes {
    /// As another replica is sent them.
    pub(super) fn as_sent(&self) -> BatchBytes<'_> {
        BatchBytes { first: self.first, records: &self.records }
    }
}

impl Payload for LogBytes {
    fn bytes(&self) -> usize {
        self.records.len()
    }
}

/// The head of a batch, as the shard that made it knew it.
pub(super) fn head_of(shard: ShardId, batch: &Batch<LogBytes>) -> BatchHead {
    let (number, epoch): (BatchNumber, Epoch) = (batch.number, batch.epoch);
    BatchHead { shard, batch: number, epoch, first: batch.payload.first }
}

/// The highest read bound in a batch; zero if there is none.
pub(super) fn lease_in(records: &[u8]) -> Timestamp {
    let bound = |record: Result<&[u8], _>| match LogRecord::decode(record.ok()?) {
        Ok(LogRecord::ReadBound { bound, .. }) => Some(bound),
        _ => None,
    };
    BatchRecords::new(records).filter_map(bound).max().unwrap_or_default()
}

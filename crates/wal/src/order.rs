//! Whether what a log holds of each shard goes on from batch to batch: numbers of batches and of
//! records rise, epochs never fall.
//!
//! A batch that breaks the order was written by a bug or stands in the wrong place; a checksum
//! would not tell.

use timestone_types::{Epoch, ShardId};

use crate::{BatchHead, BatchNumber, RecordNumber};

/// Where the shard's last batch ended.
#[derive(Clone, Copy, Debug)]
struct ShardEnd {
    shard: ShardId,
    batch: BatchNumber,
    epoch: Epoch,
    next: RecordNumber,
}

/// The end of every shard that was seen. A log has tens of shards at most, so a list is searched.
#[derive(Debug, Default)]
pub(crate) struct BatchOrder {
    ends: Vec<ShardEnd>,
}

impl BatchOrder {
    /// Takes the next batch, of so many records. Batches in between may be in another log.
    pub(crate) fn follow(&mut self, head: BatchHead, records: u64) -> Result<(), String> {
        let BatchHead { shard, batch, epoch, first } = head;
        let end = ShardEnd { shard, batch, epoch, next: first.plus(records) };
        let Some(last) = self.ends.iter_mut().find(|end| end.shard == shard) else {
            self.ends.push(end);
            return Ok(());
        };
        let follows = batch > last.batch && first >= last.next && epoch >= last.epoch;
        if !follows {
            return Err(format!(
                "batch {batch} of shard {shard} (epoch {epoch}, from record {first} on) does not \
                 follow batch {} (epoch {}, next record {})",
                last.batch, last.epoch, last.next
            ));
        }
        *last = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(shard: u16, batch: u64, epoch: u32, first: u64) -> BatchHead {
        BatchHead {
            shard: ShardId::new(shard),
            batch: BatchNumber::new(batch),
            epoch: Epoch::new(epoch),
            first: RecordNumber::new(first),
        }
    }

    #[test]
    fn disorder_behind_a_batch_without_records_is_told() {
        let mut order = BatchOrder::default();
        order.follow(head(1, 1, 1, 0), 0).unwrap();
        let told = order.follow(head(1, 1, 1, 0), 0).unwrap_err();
        assert!(told.ends_with("does not follow batch 1 (epoch 1, next record 0)"), "{told}");
    }

    #[test]
    fn numbers_rise_and_epochs_never_fall_for_each_shard_alone() {
        let mut order = BatchOrder::default();
        for (next, records) in [
            (head(1, 4, 1, 10), 3),
            (head(2, 1, 7, 1), 1),
            (head(1, 5, 1, 13), 0),
            (head(1, 9, 2, 20), 1),
        ] {
            order.follow(next, records).unwrap();
        }
        for wrong in [head(1, 9, 2, 21), head(1, 10, 2, 20), head(1, 10, 1, 21)] {
            assert!(
                order.follow(wrong, 1).is_err_and(|text| text.contains("does not follow batch 9")),
                "{wrong:?}"
            );
        }
        order.follow(head(2, 2, 7, 2), 1).unwrap();
    }
}

//! What a replica of a shard tells the rest of its process: plain atomics, written by its stage, read
//! by the node stage (heartbeats) and by whoever looks.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use timestone_cluster::ReplicaLoss;
use timestone_replication::Step;
use timestone_shard::BackupReadFigures;
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::BatchNumber;

/// What a replica needs of the master.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Nothing.
    #[default]
    Nothing,
    /// Another epoch: it has promised the one that it is to lead, perhaps before a restart.
    NewEpoch,
    /// Another primary: nobody that answers has what it lacks.
    OtherPrimary,
    /// Another primary, as soon as possible: it serves, and its leases are short.
    Successor,
    /// Another primary that reaches more replicas: none has told this one anything new for long.
    MoreReached,
    /// That it is not replaced: it takes a checkpoint, and gets on.
    TimeToRebuild,
}

/// What a replica says of the epoch that it has promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    pub(crate) promised: Epoch,
    pub(crate) step: Option<Step>,
    pub(crate) wish: Wish,
}

/// See the module. The standing is of one moment; each other figure by itself is current, and
/// together they may be of different turns.
#[derive(Debug)]
pub(crate) struct ReplicaGauges {
    pub(crate) shard: ShardId,
    /// The promised epoch, the step and the wish, in one word: a step is never taken for one of
    /// another epoch.
    standing: AtomicU64,
    installed: AtomicU32,
    /// What it has lost: which kind, above the epoch of that.
    loss: AtomicU64,
    counted: AtomicU64,
    lag: AtomicU64,
    /// What clients may read at this backup, in nanoseconds; zero: nothing.
    closed: AtomicU64,
    reads: AtomicU64,
    refused_reads: AtomicU64,
}

/// The steps by their numbers in [`ReplicaGauges`]; the first one stands for a server that keeps no
/// replica of the shard.
const STEPS: [Option<Step>; 7] = [
    None,
    Some(Step::Backup),
    Some(Step::Joining),
    Some(Step::Fetching),
    Some(Step::Installing),
    Some(Step::Serving),
    Some(Step::Rebuilding),
];

impl ReplicaGauges {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            standing: AtomicU64::default(),
            installed: AtomicU32::default(),
            loss: AtomicU64::default(),
            counted: AtomicU64::default(),
            lag: AtomicU64::default(),
            closed: AtomicU64::default(),
            reads: AtomicU64::default(),
            refused_reads: AtomicU64::default(),
        }
    }

    /// What it says of the epoch that it has promised.
    pub(crate) fn standing(&self) -> Standing {
        let word = self.standing.load(Relaxed);
        Standing {
            promised: Epoch::new((word >> 32) as u32),
            step: STEPS.get(usize::from((word >> 8) as u8)).copied().flatten(),
            wish: match word as u8 {
                1 => Wish::NewEpoch,
                2 => Wish::OtherPrimary,
                3 => Wish::Successor,
                4 => Wish::MoreReached,
                5 => Wish::TimeToRebuild,
                _ => Wish::Nothing,
            },
        }
    }

    /// Only the replica's stage writes.
    fn set_standing(&self, standing: Standing) {
        let step = STEPS.iter().position(|&known| known == standing.step).unwrap_or_default();
        let word =
            u64::from(standing.promised.get()) << 32 | (step as u64) << 8 | standing.wish as u64;
        self.standing.store(word, Relaxed);
    }

    /// How far it is on its way to serve; `None` where there is no replica of the shard here, or
    /// one that can keep nothing any more (its log or its device has failed).
    pub(crate) fn step(&self) -> Option<Step> {
        self.standing().step
    }

    pub(crate) fn set_step(&self, step: Option<Step>) {
        self.set_standing(Standing { step, ..self.standing() });
    }

    pub(crate) fn set_wish(&self, wish: Wish) {
        self.set_standing(Standing { wish, ..self.standing() });
    }

    /// What it has lost of what it had.
    pub(crate) fn loss(&self) -> ReplicaLoss {
        let word = self.loss.load(Relaxed);
        match word >> 32 {
            0 => ReplicaLoss::None,
            1 => ReplicaLoss::GivenUp,
            3 => ReplicaLoss::Unread,
            _ => ReplicaLoss::VoidSince(Epoch::new(word as u32)),
        }
    }

    pub(crate) fn set_loss(&self, loss: ReplicaLoss) {
        let word = match loss {
            ReplicaLoss::None => 0,
            ReplicaLoss::GivenUp => 1 << 32,
            ReplicaLoss::VoidSince(epoch) => 2 << 32 | u64::from(epoch.get()),
            ReplicaLoss::Unread => 3 << 32,
        };
        self.loss.store(word, Relaxed);
    }

    /// The last epoch whose table it has installed durably.
    pub(crate) fn installed(&self) -> Epoch {
        Epoch::new(self.installed.load(Relaxed))
    }

    /// Another promised epoch begins as a backup's: the step is set behind it. A wish stays until it
    /// is taken back.
    pub(crate) fn set_epochs(&self, promised: Epoch, installed: Epoch) {
        self.installed.store(installed.get(), Relaxed);
        let before = self.standing();
        if before.promised != promised {
            let step = before.step.map(|_| Step::Backup);
            self.set_standing(Standing { promised, step, ..before });
        }
    }

    /// Everything up to this batch counts, as far as it knows.
    pub(crate) fn counted(&self) -> BatchNumber {
        BatchNumber::new(self.counted.load(Relaxed))
    }

    /// How many batches it lacks, as far as it knows.
    pub(crate) fn lag(&self) -> u64 {
        self.lag.load(Relaxed)
    }

    /// How old the latest snapshot is that may be read here as at a backup; `None` where none may.
    pub(crate) fn closed_lag(&self, now: Timestamp) -> Option<Duration> {
        let closed = Timestamp::from_nanos(self.closed.load(Relaxed));
        (closed > Timestamp::ZERO).then(|| now.since(closed))
    }

    /// Reads that were answered here as a backup, and that were refused.
    pub(crate) fn backup_reads(&self) -> (u64, u64) {
        (self.reads.load(Relaxed), self.refused_reads.load(Relaxed))
    }

    pub(crate) fn set_reads(&self, closed: Timestamp, reads: BackupReadFigures) {
        self.closed.store(closed.as_nanos(), Relaxed);
        self.reads.store(reads.answered, Relaxed);
        self.refused_reads.store(reads.refused, Relaxed);
    }

    pub(crate) fn set_progress(&self, counted: BatchNumber, lag: u64) {
        self.counted.store(counted.get(), Relaxed);
        self.lag.store(lag, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_of_the_epoch_in_which_it_was_taken() {
        let gauges = ReplicaGauges::new(ShardId::ZERO);
        assert_eq!(gauges.step(), None);
        gauges.set_epochs(Epoch::new(7), Epoch::new(6));
        for &step in &STEPS {
            gauges.set_step(step);
            let standing = gauges.standing();
            assert_eq!((standing.step, standing.promised), (step, Epoch::new(7)));
        }
        gauges.set_step(Some(Step::Serving));
        gauges.set_wish(Wish::OtherPrimary);
        gauges.set_epochs(Epoch::new(7), Epoch::new(7));
        let standing = gauges.standing();
        assert_eq!((standing.step, standing.wish), (Some(Step::Serving), Wish::OtherPrimary));
        gauges.set_epochs(Epoch::new(8), Epoch::new(7));
        let standing = gauges.standing();
        assert_eq!(standing.promised, Epoch::new(8));
        assert_eq!((standing.step, standing.wish), (Some(Step::Backup), Wish::OtherPrimary));
        assert_eq!(gauges.installed(), Epoch::new(7));
    }
}

//! What a replica of a shard tells the rest of its process: plain atomics, written by its stage, read
//! by the node stage (heartbeats) and by whoever looks.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use timestone_replication::Step;
use timestone_types::{Epoch, ShardId};
use timestone_wal::BatchNumber;

/// What a replica that is to be primary needs of the master.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Nothing.
    #[default]
    Nothing,
    /// Another epoch: it has promised the one that it is to lead, perhaps before a restart.
    NewEpoch,
    /// Another primary: nobody that answers has what it lacks.
    OtherPrimary,
}

/// See the module. Each figure by itself is current; together they may be of different turns.
#[derive(Debug)]
pub(crate) struct ReplicaGauges {
    pub(crate) shard: ShardId,
    step: AtomicU8,
    wish: AtomicU8,
    promised: AtomicU32,
    installed: AtomicU32,
    counted: AtomicU64,
    lag: AtomicU64,
}

/// The steps by their numbers in [`ReplicaGauges`]; the first one stands for a server that keeps no
/// replica of the shard.
const STEPS: [Option<Step>; 6] = [
    None,
    Some(Step::Backup),
    Some(Step::Joining),
    Some(Step::Fetching),
    Some(Step::Installing),
    Some(Step::Serving),
];

impl ReplicaGauges {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            step: AtomicU8::default(),
            wish: AtomicU8::default(),
            promised: AtomicU32::default(),
            installed: AtomicU32::default(),
            counted: AtomicU64::default(),
            lag: AtomicU64::default(),
        }
    }

    /// How far it is on its way to serve; `None` where there is no replica of the shard here, or
    /// one that can keep nothing any more (its log or its device has failed).
    pub(crate) fn step(&self) -> Option<Step> {
        STEPS.get(usize::from(self.step.load(Relaxed))).copied().flatten()
    }

    pub(crate) fn set_step(&self, step: Option<Step>) {
        let number = STEPS.iter().position(|&known| known == step).unwrap_or_default();
        self.step.store(number as u8, Relaxed);
    }

    /// What it needs of the master. It is of the epoch that it has [promised](Self::promised).
    pub(crate) fn wish(&self) -> Wish {
        match self.wish.load(Relaxed) {
            1 => Wish::NewEpoch,
            2 => Wish::OtherPrimary,
            _ => Wish::Nothing,
        }
    }

    pub(crate) fn set_wish(&self, wish: Wish) {
        self.wish.store(wish as u8, Relaxed);
    }

    /// The epoch below which it refuses everything.
    pub(crate) fn promised(&self) -> Epoch {
        Epoch::new(self.promised.load(Relaxed))
    }

    /// The last epoch whose table it has installed durably.
    pub(crate) fn installed(&self) -> Epoch {
        Epoch::new(self.installed.load(Relaxed))
    }

    pub(crate) fn set_epochs(&self, promised: Epoch, installed: Epoch) {
        self.promised.store(promised.get(), Relaxed);
        self.installed.store(installed.get(), Relaxed);
    }

    /// Everything up to this batch counts, as far as it knows.
    pub(crate) fn counted(&self) -> BatchNumber {
        BatchNumber::new(self.counted.load(Relaxed))
    }

    /// How many batches it lacks, as far as it knows.
    pub(crate) fn lag(&self) -> u64 {
        self.lag.load(Relaxed)
    }

    pub(crate) fn set_progress(&self, counted: BatchNumber, lag: u64) {
        self.counted.store(counted.get(), Relaxed);
        self.lag.store(lag, Relaxed);
    }
}

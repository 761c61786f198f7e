//! A small world: what every replica, client and the master have, and what was ever sent.
//!
//! Messages are facts: once sent, they may arrive at any time, in any order, any number of times or
//! never. So a loss is a step that is not taken, and whoever stands still is one that takes none.

use crate::record::{Attempt, Record};

pub const SHARDS: usize = 2;
pub const REPLICAS: usize = 3;
/// Replicas that may fail.
pub const F: usize = 1;
pub const TXNS: usize = 3;
/// Epochs of a shard, at most; they begin with 1.
pub const EPOCHS: usize = 3;

/// Bounds of leases, as timestamps. True time is known as the number of bounds that have passed:
/// nothing else about it matters. Clients' timestamps have nothing to do with true time: their
/// clocks are as wrong as they like.
pub const BOUNDS: [u8; 3] = [0, 4, 8];
/// An index of `BOUNDS`.
pub type Lease = u8;

/// A transaction: what it reads and writes of the one key of each shard.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub begin: u8,
    pub commits: [u8; 2],
    pub reads: [bool; SHARDS],
    pub writes: [bool; SHARDS],
}

impl Spec {
    pub fn uses(&self, shard: usize) -> bool {
        self.reads[shard] || self.writes[shard]
    }

    pub fn participants(&self) -> impl Iterator<Item = usize> {
        let used = core::array::from_fn::<bool, SHARDS, _>(|shard| self.uses(shard));
        (0..SHARDS).filter(move |&shard| used[shard])
    }

    pub fn is_single(&self) -> bool {
        self.participants().count() == 1
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    #[default]
    Idle,
    /// Has merged the answers for its epoch; the table is on its way.
    Merged(u8),
    Serving(u8),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    // Durable:
    pub promised: u8,
    /// The last epoch whose table it has installed.
    pub normal: u8,
    pub table: [Record; TXNS],
    pub granted: Lease,
    /// The highest lease that it held as a primary.
    pub held: Lease,
    // In memory, of a primary:
    pub role: Role,
    pub view: [Record; TXNS],
    /// `latest_read` of the key.
    pub read_mark: u8,
    /// The lease that it has in its epoch.
    pub lease: Lease,
    /// The highest lease of earlier epochs.
    pub old_lease: Lease,
}

/// A shard: its master's word, its replicas, and what they have ever told each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    pub epoch: u8,
    pub primary: u8,
    pub replicas: [Replica; REPLICAS],
    /// Records that the primary of an epoch has sent.
    pub sent: [[u8; TXNS]; EPOCHS],
    /// Records that a replica has acknowledged.
    pub acked: [[[u8; TXNS]; EPOCHS]; REPLICAS],
    /// The table that an epoch begins with, and the leases before it.
    pub merged: [Option<([Record; TXNS], Lease)>; EPOCHS],
    /// Replicas that have told that they installed it.
    pub installed: [u8; EPOCHS],
    /// The latest version that a single read was answered with.
    pub seen: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Told {
    /// A bit for each attempt.
    pub commits: u8,
    pub abort: bool,
}

impl Told {
    pub fn commit(&self) -> Option<Attempt> {
        (self.commits != 0).then(|| self.commits.trailing_zeros() as u8)
    }

    pub fn is_any(&self) -> bool {
        self.commits != 0 || self.abort
    }
}

/// A transaction: its client, and what was ever said of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Txn {
    pub is_client_up: bool,
    pub attempt: Attempt,
    /// The versions that it read.
    pub reads: [Option<u8>; SHARDS],
    /// Attempts that a shard said yes to.
    pub yes: [u8; SHARDS],
    pub no: [bool; SHARDS],
    pub later: [u8; SHARDS],
    /// Records that a shard has answered termination with.
    pub answers: [u8; SHARDS],
    pub told: Told,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// How many of `BOUNDS` true time has passed, less one.
    pub now: u8,
    pub shards: [Shard; SHARDS],
    pub txns: [Txn; TXNS],
    /// What the snapshot has read.
    pub snapshot: [Option<u8>; SHARDS],
    pub restarts: u8,
    pub client_crashes: u8,
    /// A single read has missed what was known before it.
    pub is_stale: bool,
    /// A shard was told the opposite of what it has.
    pub is_contradicted: bool,
}

impl World {
    pub fn new() -> Self {
        let replica = |index: usize| Replica {
            promised: 1,
            normal: 1,
            table: [Record::Unseen; TXNS],
            granted: if index == 2 { 1 } else { 0 },
            held: if index == 0 { 1 } else { 0 },
            role: if index == 0 { Role::Serving(1) } else { Role::Idle },
            view: [Record::Unseen; TXNS],
            read_mark: 0,
            lease: if index == 0 { 1 } else { 0 },
            old_lease: 0,
        };
        let shard = Shard {
            epoch: 1,
            primary: 0,
            replicas: core::array::from_fn(replica),
            sent: [[0; TXNS]; EPOCHS],
            acked: [[[0; TXNS]; EPOCHS]; REPLICAS],
            merged: [None; EPOCHS],
            installed: [0; EPOCHS],
            seen: 0,
        };
        let txn = Txn {
            is_client_up: true,
            attempt: 0,
            reads: [None; SHARDS],
            yes: [0; SHARDS],
            no: [false; SHARDS],
            later: [0; SHARDS],
            answers: [0; SHARDS],
            told: Told::default(),
        };
        Self {
            now: 0,
            shards: core::array::from_fn(|_| shard.clone()),
            txns: core::array::from_fn(|_| txn.clone()),
            snapshot: [None; SHARDS],
            restarts: 0,
            client_crashes: 0,
            is_stale: false,
            is_contradicted: false,
        }
    }
}

impl Shard {
    /// Whether a record that the primary of an epoch has sent, or began with, is durable at it and
    /// `F` others, as far as it knows.
    pub fn is_durable(&self, epoch: u8, primary: usize, txn: usize, record: Record) -> bool {
        let at = usize::from(epoch) - 1;
        if record == Record::Unseen {
            return false;
        }
        if self.merged[at].is_some_and(|(table, _)| table[txn] == record) {
            return true;
        }
        let has = |replica: usize| self.acked[replica][at][txn] & record.bit() != 0;
        let others = (0..REPLICAS).filter(|&replica| replica != primary && has(replica)).count();
        has(primary) && others >= F
    }
}

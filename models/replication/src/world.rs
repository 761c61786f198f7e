//! A small world: what every replica, client and the master have, and what was ever sent.
//!
//! Messages are facts: once sent, they may arrive at any time, in any order, any number of times or
//! never. So a loss is a step that is not taken, and whoever stands still is one that takes none.

use crate::record::{ATTEMPTS, Attempt, Record};

pub const SHARDS: usize = 2;
/// Replicas of a shard, at most.
pub const REPLICAS: usize = 5;
pub const TXNS: usize = 2;
/// Epochs of a shard, at most; they begin with 1.
pub const EPOCHS: usize = 4;

/// Bounds of leases, as timestamps. True time is known as the number of bounds that have passed:
/// nothing else about it matters. Clients' timestamps have nothing to do with true time: their
/// clocks are as wrong as they like.
pub const BOUNDS: [u8; 3] = [0, 4, 8];
/// An index of `BOUNDS`.
pub type Lease = u8;

/// A shard, and a replica of it.
pub type At = (usize, usize);
/// A set of replicas, a bit for each.
pub type Replicas = u8;
/// A set of transactions.
pub type Txns = u8;
/// A set of versions: a bit for each attempt of each transaction.
pub type Versions = u8;

/// The version that a transaction writes at an attempt.
pub fn version_bit(txn: usize, attempt: Attempt) -> Versions {
    1 << (txn * usize::from(ATTEMPTS) + usize::from(attempt))
}

/// The versions of what is committed among some transactions.
pub fn committed_versions(records: &[Record; TXNS], txns: Txns) -> Versions {
    (0..TXNS).filter(|txn| txns & 1 << txn != 0).fold(0, |versions, txn| match records[txn] {
        Record::Committed(attempt) => versions | version_bit(txn, attempt),
        _ => versions,
    })
}

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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Role {
    #[default]
    Idle,
    /// Has merged the answers for its epoch; the table is on its way.
    Merged(u8),
    Serving(u8),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Replica {
    // Durable:
    pub promised: u8,
    /// The last epoch whose table it has installed.
    pub normal: u8,
    pub table: [Record; TXNS],
    /// What its store has of records that it has dropped.
    pub store: Versions,
    /// Transactions whose records it has dropped as stable.
    pub settled: Txns,
    /// Transactions that began below the watermark, or whose outcome their client has acknowledged.
    pub passed: Txns,
    pub granted: Lease,
    /// The highest lease that it held as a primary.
    pub held: Lease,
    /// It has lost what it had, and knows it: it has acknowledged and granted nothing in any epoch
    /// after this one, and nothing in this one since.
    pub lost_in: Option<u8>,
    /// It has given up what it had: its records are what it remembers of that, and it hands out none.
    pub is_empty: bool,
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

/// What an epoch begins with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Table {
    pub records: [Record; TXNS],
    /// The highest lease of earlier epochs.
    pub lease: Lease,
    /// The epoch whose records it was merged from.
    pub base: u8,
    /// Transactions that it leaves out because their records were stable.
    pub settled: Txns,
    pub passed: Txns,
    /// The checkpoint that goes with it.
    pub store: Versions,
}

/// A shard: its master's word, its replicas, and what they have ever told each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Shard {
    pub epoch: u8,
    pub primary: u8,
    pub replicas: [Replica; REPLICAS],
    /// Records that the primary of an epoch has sent.
    pub sent: [[u8; TXNS]; EPOCHS],
    /// Records that a replica has acknowledged.
    pub acked: [[[u8; TXNS]; EPOCHS]; REPLICAS],
    pub merged: [Option<Table>; EPOCHS],
    /// Replicas that have told that they installed it.
    pub installed: [Replicas; EPOCHS],
    /// Replicas that have a transaction's `passed` durably, the primary that sent it first.
    pub marked: [[Replicas; TXNS]; EPOCHS],
    /// Transactions whose records all replicas may drop, as the primary of an epoch has told.
    pub stable: [Txns; EPOCHS],
    /// The records that a backup needs to read at the snapshot, if the primary of an epoch has
    /// closed it.
    pub closed: [Option<[u8; TXNS]>; EPOCHS],
    /// The epoch in which a replica has lost its state first, where that is kept.
    pub first_lost_in: [Option<u8>; REPLICAS],
    /// The latest version that a single read was answered with.
    pub seen: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Txn {
    pub is_client_up: bool,
    pub attempt: Attempt,
    /// The versions that it read.
    pub reads: [Option<u8>; SHARDS],
    /// Attempts that a shard said yes to.
    pub yes: [u8; SHARDS],
    pub no: [bool; SHARDS],
    pub later: [u8; SHARDS],
    /// Records that a shard has answered termination with, or `FORGOTTEN`.
    pub answers: [u8; SHARDS],
    /// Whether a shard has acknowledged the commit.
    pub acknowledged: [bool; SHARDS],
    pub told: Told,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct World {
    /// How many of `BOUNDS` true time has passed, less one.
    pub now: u8,
    pub shards: [Shard; SHARDS],
    pub txns: [Txn; TXNS],
    /// What the snapshot has read.
    pub snapshot: [Option<u8>; SHARDS],
    pub restarts: u8,
    pub losses: u8,
    pub given_up: u8,
    pub client_crashes: u8,
    /// A single read has missed what was known before it.
    pub is_stale: bool,
    /// A shard was told the opposite of what it has.
    pub is_contradicted: bool,
}

impl Replica {
    /// A replica at the beginning; the first one is primary, the last one has granted its lease.
    pub fn first(index: usize, members: Replicas) -> Self {
        let is_member = members & 1 << index != 0;
        let is_primary = index == 0;
        let is_last = members >> index == 1;
        Self {
            promised: u8::from(is_member),
            normal: u8::from(is_member),
            granted: u8::from(is_last),
            held: u8::from(is_primary),
            role: if is_primary { Role::Serving(1) } else { Role::Idle },
            lease: u8::from(is_primary),
            ..Self::default()
        }
    }
}

impl World {
    /// The beginning, with the members of each shard's first epoch.
    pub fn new(members: Replicas) -> Self {
        let mut shard = Shard {
            epoch: 1,
            replicas: core::array::from_fn(|index| Replica::first(index, members)),
            ..Shard::default()
        };
        shard.installed[0] = members;
        let txn = Txn { is_client_up: true, ..Txn::default() };
        Self {
            shards: core::array::from_fn(|_| shard.clone()),
            txns: core::array::from_fn(|_| txn.clone()),
            ..Self::default()
        }
    }
}

impl World {
    /// The same world, or the one with its two shards exchanged: of both always the same one.
    pub fn representative(&self) -> Self {
        let mut other = self.clone();
        other.shards.swap(0, 1);
        other.snapshot.swap(0, 1);
        for txn in &mut other.txns {
            txn.reads.swap(0, 1);
            txn.yes.swap(0, 1);
            txn.no.swap(0, 1);
            txn.later.swap(0, 1);
            txn.answers.swap(0, 1);
            txn.acknowledged.swap(0, 1);
        }
        other.min(self.clone())
    }
}

/// The replicas of a set.
pub fn each(replicas: Replicas) -> impl Iterator<Item = usize> {
    (0..REPLICAS).filter(move |index| replicas & 1 << index != 0)
}

const _: () = assert!(TXNS * ATTEMPTS as usize <= 8 && REPLICAS <= 8 && EPOCHS < 8);

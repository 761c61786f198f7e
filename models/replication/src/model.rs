//! The steps of a world, and what must hold in every state.

use stateright::{Model, Property};

use crate::mutation::Mutation;
use crate::record::{Attempt, Record};
use crate::world::{EPOCHS, F, Lease, REPLICAS, Role, SHARDS, Spec, TXNS, World};

/// A small world's transactions and how much may happen in it.
#[derive(Clone, Debug)]
pub struct Small {
    pub name: &'static str,
    /// What happens in it, in a sentence.
    pub about: &'static str,
    /// Whether it takes more than a minute or two: only by name.
    pub is_large: bool,
    pub specs: [Spec; TXNS],
    /// What somebody has read of the key of each shard at first.
    pub marks: [u8; SHARDS],
    /// The last epoch of each shard.
    pub epochs: [u8; SHARDS],
    /// Replicas that are made primary by the master.
    pub candidates: &'static [usize],
    pub restarts: u8,
    pub client_crashes: u8,
    /// How many bounds of leases true time may pass.
    pub times: u8,
    /// The highest lease.
    pub leases: Lease,
    /// The timestamp of a snapshot that reads all shards.
    pub snapshot: Option<u8>,
    /// Whether somebody reads the key of a shard by itself, again and again.
    pub singles: [bool; SHARDS],
    pub has_termination: bool,
    pub mutation: Option<Mutation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    // Time and restarts.
    TimePasses,
    Restart { shard: usize, replica: usize },
    // Becoming primary.
    TakeOver { shard: usize, primary: usize, with: usize },
    Install { shard: usize, replica: usize },
    // Leases and records.
    Renew { shard: usize, primary: usize, replica: usize, lease: Lease },
    Store { shard: usize, replica: usize, epoch: u8, txn: usize, record: Record },
    AckOnly { shard: usize, replica: usize, epoch: u8, txn: usize, record: Record },
    // Transactions.
    Read { shard: usize, primary: usize, txn: usize },
    Prepare { shard: usize, primary: usize, txn: usize, attempt: Attempt },
    Vote { shard: usize, primary: usize, txn: usize },
    TryLater { txn: usize },
    Decide { txn: usize },
    Hear { shard: usize, primary: usize, txn: usize },
    ClientCrash { txn: usize },
    // Termination.
    Freeze { shard: usize, primary: usize, txn: usize },
    Answer { shard: usize, primary: usize, txn: usize },
    Conclude { txn: usize },
    // Other readers.
    Snapshot { shard: usize, primary: usize },
    SingleRead { shard: usize, primary: usize },
}

impl Small {
    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub fn at(&self, txn: usize, attempt: Attempt) -> u8 {
        self.specs[txn].commits[usize::from(attempt)]
    }

    /// The newest version at or below a timestamp.
    pub fn version(&self, view: &[Record; TXNS], shard: usize, at: u8) -> u8 {
        let committed = (0..TXNS).filter_map(|txn| match view[txn] {
            Record::Committed(attempt) if self.specs[txn].writes[shard] => {
                Some(self.at(txn, attempt))
            }
            _ => None,
        });
        committed.filter(|&version| version <= at).max().unwrap_or(0)
    }

    /// Whether somebody holds the key by a promise to write it at or below a timestamp.
    pub fn is_written(&self, view: &[Record; TXNS], shard: usize, at: u8) -> bool {
        (0..TXNS).any(|txn| {
            self.specs[txn].writes[shard]
                && view[txn].promised().is_some_and(|attempt| self.at(txn, attempt) <= at)
        })
    }

    /// Whether nothing happens to the replicas of a shard.
    pub fn is_steady(&self, shard: usize) -> bool {
        self.epochs[shard] == 1 && self.restarts == 0 && !self.is(Mutation::ReissuesEpoch)
    }

    /// The epoch that a replica serves in.
    pub fn serves(&self, world: &World, shard: usize, replica: usize) -> Option<u8> {
        let replica = &world.shards[shard].replicas[replica];
        match replica.role {
            Role::Serving(epoch) => Some(epoch),
            _ => None,
        }
    }

    /// A primary decides to record something, and sends it.
    pub fn propose(
        &self,
        world: &mut World,
        (shard, primary): (usize, usize),
        txn: usize,
        record: Record,
    ) {
        let Some(epoch) = self.serves(world, shard, primary) else { return };
        let of_shard = &mut world.shards[shard];
        of_shard.replicas[primary].view[txn] = record;
        of_shard.sent[usize::from(epoch) - 1][txn] |= record.bit();
        // A shard that never fails over: its backups have everything at once.
        if self.is_steady(shard) {
            for replica in 0..REPLICAS {
                self.store(world, (shard, replica), epoch, txn, record);
            }
            return;
        }
        // Its own copy. States without it differ from others only in what nobody can tell.
        self.store(world, (shard, primary), epoch, txn, record);
    }

    fn transactions(&self, world: &World, out: &mut Vec<Step>) {
        for txn in 0..TXNS {
            let one = &world.txns[txn];
            let participants = self.specs[txn].participants().count();
            if participants == 0 {
                continue;
            }
            for shard in self.specs[txn].participants() {
                for primary in 0..REPLICAS {
                    if self.serves(world, shard, primary).is_none() {
                        continue;
                    }
                    out.push(Step::Read { shard, primary, txn });
                    for attempt in 0..=one.attempt {
                        out.push(Step::Prepare { shard, primary, txn, attempt });
                    }
                    out.push(Step::Vote { shard, primary, txn });
                    out.push(Step::Hear { shard, primary, txn });
                    if self.has_termination {
                        out.push(Step::Freeze { shard, primary, txn });
                        out.push(Step::Answer { shard, primary, txn });
                    }
                }
            }
            out.push(Step::TryLater { txn });
            out.push(Step::Decide { txn });
            if self.has_termination {
                out.push(Step::Conclude { txn });
            }
            if one.is_client_up && world.client_crashes < self.client_crashes {
                out.push(Step::ClientCrash { txn });
            }
        }
    }
}

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new();
        for (of_shard, mark) in world.shards.iter_mut().zip(self.marks) {
            of_shard.replicas[0].read_mark = mark;
        }
        vec![world]
    }

    fn actions(&self, world: &World, out: &mut Vec<Step>) {
        if world.is_stale || world.is_contradicted {
            return;
        }
        if world.now < self.times {
            out.push(Step::TimePasses);
        }
        for shard in 0..SHARDS {
            if !self.specs.iter().any(|spec| spec.uses(shard)) {
                continue;
            }
            let of_shard = &world.shards[shard];
            if of_shard.epoch < self.epochs[shard] || self.is(Mutation::ReissuesEpoch) {
                for &primary in self.candidates {
                    for with in (0..REPLICAS).filter(|&with| with != primary) {
                        out.push(Step::TakeOver { shard, primary, with });
                    }
                }
            }
            for replica in 0..REPLICAS {
                let one = &of_shard.replicas[replica];
                // Others have nothing in memory that they could lose.
                let may_lose = one.role != Role::Idle || self.is(Mutation::GrantIsVolatile);
                if may_lose && world.restarts < self.restarts {
                    out.push(Step::Restart { shard, replica });
                }
                out.push(Step::Install { shard, replica });
                for epoch in 1..=of_shard.epoch {
                    for txn in 0..TXNS {
                        let at = usize::from(epoch) - 1;
                        let new = of_shard.sent[at][txn] & !of_shard.acked[replica][at][txn];
                        for record in Record::of(new) {
                            out.push(Step::Store { shard, replica, epoch, txn, record });
                            if self.is(Mutation::AcksBeforeLog) {
                                out.push(Step::AckOnly { shard, replica, epoch, txn, record });
                            }
                        }
                    }
                }
                if self.serves(world, shard, replica).is_some() {
                    for other in (0..REPLICAS).filter(|&other| other != replica) {
                        for lease in (world.now + 1).max(one.lease + 1)..=self.leases {
                            out.push(Step::Renew {
                                shard,
                                primary: replica,
                                replica: other,
                                lease,
                            });
                        }
                    }
                    if self.snapshot.is_some() {
                        out.push(Step::Snapshot { shard, primary: replica });
                    }
                    if self.singles[shard] {
                        out.push(Step::SingleRead { shard, primary: replica });
                    }
                }
            }
        }
        self.transactions(world, out);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        let took_place = match step {
            Step::TimePasses => {
                next.now += 1;
                true
            }
            Step::Restart { shard, replica } => self.restart(&mut next, shard, replica),
            Step::TakeOver { shard, primary, with } => {
                self.take_over(&mut next, shard, (primary, with))
            }
            Step::Install { shard, replica } => self.install(&mut next, shard, replica),
            Step::Renew { shard, primary, replica, lease } => {
                self.renew(&mut next, shard, (primary, replica), lease)
            }
            Step::Store { shard, replica, epoch, txn, record } => {
                self.store(&mut next, (shard, replica), epoch, txn, record)
            }
            Step::AckOnly { shard, replica, epoch, txn, record } => {
                self.acknowledge(&mut next, (shard, replica), epoch, txn, record)
            }
            Step::Read { shard, primary, txn } => self.read(&mut next, (shard, primary), txn),
            Step::Prepare { shard, primary, txn, attempt } => {
                self.prepare(&mut next, (shard, primary), txn, attempt)
            }
            Step::Vote { shard, primary, txn } => self.vote(&mut next, (shard, primary), txn),
            Step::TryLater { txn } => self.try_later(&mut next, txn),
            Step::Decide { txn } => self.decide(&mut next, txn),
            Step::Hear { shard, primary, txn } => self.hear(&mut next, (shard, primary), txn),
            Step::ClientCrash { txn } => {
                next.txns[txn].is_client_up = false;
                next.client_crashes += 1;
                true
            }
            Step::Freeze { shard, primary, txn } => self.freeze(&mut next, (shard, primary), txn),
            Step::Answer { shard, primary, txn } => self.answer(&mut next, (shard, primary), txn),
            Step::Conclude { txn } => self.conclude(&mut next, txn),
            Step::Snapshot { shard, primary } => self.read_snapshot(&mut next, shard, primary),
            Step::SingleRead { shard, primary } => self.read_single(&mut next, shard, primary),
        };
        (took_place && next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a transaction has one outcome", |_, world: &World| {
                world
                    .txns
                    .iter()
                    .all(|txn| txn.told.commits.count_ones() + u32::from(txn.told.abort) <= 1)
                    && !world.is_contradicted
            }),
            Property::always("nothing acknowledged is lost", is_kept),
            Property::always("committed transactions are serializable", is_serializable),
            Property::always("single reads see what was there before them", |_, world: &World| {
                !world.is_stale
            }),
            Property::sometimes("a transaction commits", |_, world: &World| {
                world.txns.iter().any(|txn| txn.told.commits != 0)
            }),
        ]
    }
}

/// A primary that serves in its shard's newest epoch has what was told.
fn is_kept(model: &Small, world: &World) -> bool {
    (0..SHARDS).all(|shard| {
        let of_shard = &world.shards[shard];
        let primary = &of_shard.replicas[usize::from(of_shard.primary)];
        if primary.role != Role::Serving(of_shard.epoch) {
            return true;
        }
        (0..TXNS).filter(|&txn| model.specs[txn].uses(shard)).all(|txn| {
            let told = world.txns[txn].told;
            match (told.commit(), primary.view[txn]) {
                (Some(attempt), Record::Committed(has)) => attempt == has,
                (Some(attempt), Record::Prepared(has) | Record::Frozen(has)) => attempt == has,
                (Some(_), Record::Unseen | Record::Aborted) => false,
                (None, Record::Committed(_)) => !told.abort,
                (None, _) => true,
            }
        })
    })
}

/// What every transaction and the snapshot have read is the newest below their timestamps.
fn is_serializable(model: &Small, world: &World) -> bool {
    let commit_of =
        |txn: usize| world.txns[txn].told.commit().map(|attempt| model.at(txn, attempt));
    let is_newest = |reader: Option<usize>, shard: usize, version: u8, at: u8| {
        (0..TXNS).filter(|&txn| Some(txn) != reader && model.specs[txn].writes[shard]).all(|txn| {
            let commits = model.specs[txn].commits;
            let read_from = version != 0 && commits.contains(&version);
            let is_aborted = world.txns[txn].told.abort;
            let missed = commit_of(txn).is_some_and(|commit| version < commit && commit <= at);
            !missed && !(read_from && is_aborted)
        })
    };
    let transactions = (0..TXNS).all(|txn| {
        let Some(commit) = commit_of(txn) else { return true };
        (0..SHARDS).all(|shard| {
            world.txns[txn].reads[shard]
                .is_none_or(|version| is_newest(Some(txn), shard, version, commit))
        })
    });
    let snapshot = model.snapshot.is_none_or(|at| {
        (0..SHARDS).all(|shard| {
            world.snapshot[shard].is_none_or(|version| is_newest(None, shard, version, at))
        })
    });
    transactions && snapshot
}

const _: () = assert!(F + 1 < REPLICAS && EPOCHS < 8);

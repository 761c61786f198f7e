//! A small world's bounds, and what its steps share.

use stateright::{Model, Property};

use crate::mutation::Mutation;
use crate::properties;
use crate::record::{Attempt, Record};
use crate::step::Step;
use crate::world::{
    At, EPOCHS, Lease, Replica, Replicas, Role, SHARDS, Spec, TXNS, Versions, World, each,
    version_bit,
};

/// A small world's transactions and how much may happen in it.
#[derive(Clone, Debug)]
pub struct Small {
    pub name: &'static str,
    /// What happens in it, in a sentence.
    pub about: &'static str,
    /// Whether it takes more than a minute or two: only by name.
    pub is_large: bool,
    /// Whether its two shards do the same, so that one may stand for the other.
    pub is_symmetric: bool,
    pub specs: [Spec; TXNS],
    /// What somebody has read of the key of each shard at first.
    pub marks: [u8; SHARDS],
    /// Replicas that may fail.
    pub f: usize,
    /// Replicas that there are.
    pub replicas: usize,
    /// The configuration of each epoch.
    pub members: [Replicas; EPOCHS],
    /// The last epoch of each shard.
    pub epochs: [u8; SHARDS],
    /// Replicas that are made primary by the master.
    pub candidates: &'static [usize],
    pub restarts: u8,
    /// How many disks may be lost.
    pub losses: u8,
    /// How often a replica may give up what it has.
    pub gives_up: u8,
    pub client_crashes: u8,
    /// How many bounds of leases true time has passed at first.
    pub begins_at: u8,
    /// How many bounds of leases true time may pass, with those.
    pub times: u8,
    /// The highest lease.
    pub leases: Lease,
    /// The timestamp of a snapshot that reads all shards.
    pub snapshot: Option<u8>,
    /// Whether it may read at backups, under closed timestamps.
    pub has_closed_timestamps: bool,
    /// Whether somebody reads the key of a shard by itself, again and again.
    pub singles: [bool; SHARDS],
    pub has_termination: bool,
    /// Whether watermarks rise.
    pub has_watermarks: bool,
    /// Whether backups have a watermark as soon as it is sent.
    pub marks_at_once: bool,
    /// Whether records are dropped.
    pub has_truncation: bool,
    /// Whether a client that lives may be taken for dead, so that the watermark passes it.
    pub has_silence: bool,
    /// Whether it is asked of every state that everything comes to an end when faults do.
    pub checks_ends: bool,
    pub mutation: Option<Mutation>,
}

impl Small {
    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub fn at(&self, txn: usize, attempt: Attempt) -> u8 {
        self.specs[txn].commits[usize::from(attempt)]
    }

    pub fn is_used(&self, shard: usize) -> bool {
        self.specs.iter().any(|spec| spec.uses(shard))
    }

    /// The configuration of an epoch.
    pub fn members(&self, epoch: u8) -> Replicas {
        self.members[usize::from(epoch.max(1)) - 1]
    }

    pub fn changes_members(&self) -> bool {
        self.members.iter().any(|members| *members != self.members[0])
    }

    /// The newest version at or below a timestamp, of records and of what a store has.
    pub fn version(&self, records: &[Record; TXNS], store: Versions, shard: usize, at: u8) -> u8 {
        let mut newest = 0;
        for txn in (0..TXNS).filter(|&txn| self.specs[txn].writes[shard]) {
            for (attempt, commit) in (0..).zip(self.specs[txn].commits) {
                let is_there = records[txn] == Record::Committed(attempt)
                    || store & version_bit(txn, attempt) != 0;
                if is_there && commit <= at {
                    newest = newest.max(commit);
                }
            }
        }
        newest
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

    /// The primary that serves in a shard's newest epoch, if there is one.
    pub fn newest<'a>(&self, world: &'a World, shard: usize) -> Option<&'a Replica> {
        let of_shard = &world.shards[shard];
        let primary = &of_shard.replicas[usize::from(of_shard.primary)];
        (primary.role == Role::Serving(of_shard.epoch)).then_some(primary)
    }

    /// Whether a primary and enough of its backups are among some replicas.
    pub fn is_enough(&self, epoch: u8, primary: usize, replicas: Replicas) -> bool {
        let others = replicas & self.members(epoch) & !(1 << primary);
        let needed = if self.is(Mutation::OneBackupIsEnough) { 1 } else { self.f };
        replicas & 1 << primary != 0 && others.count_ones() as usize >= needed
    }

    /// Whether a record that a primary has sent, or began with, counts, as far as it knows.
    pub fn counts(&self, world: &World, (shard, primary): At, txn: usize, record: Record) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let (of_shard, at) = (&world.shards[shard], usize::from(epoch) - 1);
        if record == Record::Unseen {
            return false;
        }
        if of_shard.merged[at].is_some_and(|table| table.records[txn] == record) {
            return true;
        }
        let has = |replica: &usize| of_shard.acked[*replica][at][txn] & record.bit() != 0;
        let having = (0..self.replicas).filter(has).fold(0, |set, replica| set | 1 << replica);
        self.is_enough(epoch, primary, having)
    }

    /// A primary decides to record something, and sends it.
    pub fn propose(&self, world: &mut World, (shard, primary): At, txn: usize, record: Record) {
        let Some(epoch) = self.serves(world, shard, primary) else { return };
        let of_shard = &mut world.shards[shard];
        of_shard.replicas[primary].view[txn] = record;
        of_shard.sent[usize::from(epoch) - 1][txn] |= record.bit();
        // A shard that never fails over: its backups have everything at once.
        if self.is_steady(shard) {
            for replica in each(self.members(epoch)) {
                self.store(world, (shard, replica), epoch, txn, record);
            }
            return;
        }
        // Its own copy. States without it differ from others only in what nobody can tell.
        self.store(world, (shard, primary), epoch, txn, record);
    }
}

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new(self.members[0]);
        world.now = self.begins_at;
        for (of_shard, mark) in world.shards.iter_mut().zip(self.marks) {
            of_shard.replicas[0].read_mark = mark;
        }
        // Where nothing fails, a later lease says nothing new.
        for shard in (0..SHARDS).filter(|&shard| self.is_steady(shard)) {
            world.shards[shard].replicas[0].lease = self.leases.max(1);
        }
        vec![world]
    }

    fn actions(&self, world: &World, out: &mut Vec<Step>) {
        if !world.is_stale && !world.is_contradicted {
            self.steps(world, out);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        (self.take(&mut next, step) && next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

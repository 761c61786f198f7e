//! What may happen in a world.

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::{Attempt, Record};
use crate::world::{Lease, REPLICAS, Replicas, Role, SHARDS, TXNS, World};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    // Time and faults.
    TimePasses,
    Restart { shard: usize, replica: usize },
    Lose { shard: usize, replica: usize },
    Empty { shard: usize, replica: usize },
    // Becoming primary, and coming back.
    TakeOver { shard: usize, primary: usize, with: Replicas },
    Install { shard: usize, replica: usize },
    Rebuild { shard: usize, primary: usize, replica: usize },
    // Leases and records.
    Renew { shard: usize, primary: usize, by: Replicas, lease: Lease },
    Store { shard: usize, replica: usize, epoch: u8, txn: usize, record: Record },
    AckOnly { shard: usize, replica: usize, epoch: u8, txn: usize, record: Record },
    // Watermarks, and records that are dropped.
    Pass { shard: usize, primary: usize, txn: usize },
    StoreMark { shard: usize, replica: usize, epoch: u8, txn: usize },
    AcknowledgeDecision { shard: usize, primary: usize, txn: usize },
    Settle { shard: usize, primary: usize, txn: usize },
    Truncate { shard: usize, replica: usize, txn: usize },
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
    GiveUp { shard: usize, primary: usize, txn: usize },
    Conclude { txn: usize },
    // Other readers.
    Snapshot { shard: usize, primary: usize },
    Close { shard: usize, primary: usize },
    ReadAtBackup { shard: usize, replica: usize },
    SingleRead { shard: usize, primary: usize },
}

impl Small {
    /// Steps that may be possible.
    pub fn steps(&self, world: &World, out: &mut Vec<Step>) {
        if world.now < self.times {
            out.push(Step::TimePasses);
        }
        for shard in (0..SHARDS).filter(|&shard| self.is_used(shard)) {
            self.take_overs(world, shard, out);
            for replica in 0..self.replicas {
                self.faults(world, (shard, replica), out);
                self.of_backup(world, (shard, replica), out);
                if self.serves(world, shard, replica).is_some() {
                    self.of_primary(world, (shard, replica), out);
                }
            }
        }
        for txn in (0..TXNS).filter(|&txn| self.specs[txn].participants().count() > 0) {
            for shard in self.specs[txn].participants() {
                for primary in (0..self.replicas)
                    .filter(|&primary| self.serves(world, shard, primary).is_some())
                {
                    self.of_participant(world, (shard, primary), txn, out);
                }
            }
            self.of_client(world, txn, out);
        }
    }

    pub fn take_overs(&self, world: &World, shard: usize, out: &mut Vec<Step>) {
        let epoch = world.shards[shard].epoch;
        if epoch >= self.epochs[shard] && !self.is(Mutation::ReissuesEpoch) {
            return;
        }
        for &primary in self.candidates {
            for with in self.others(primary) {
                out.push(Step::TakeOver { shard, primary, with });
            }
        }
    }

    /// The sets of replicas beside one that are enough for a quorum, or just more than enough.
    fn others(&self, one: usize) -> impl Iterator<Item = Replicas> {
        let (f, most) = (self.f as u32, if self.changes_members() { self.f + 1 } else { self.f });
        let all = 1..1_u16 << self.replicas;
        all.map(|set| set as Replicas)
            .filter(move |set| set & 1 << one == 0 && (f..=most as u32).contains(&set.count_ones()))
    }

    fn faults(&self, world: &World, (shard, replica): (usize, usize), out: &mut Vec<Step>) {
        let one = &world.shards[shard].replicas[replica];
        // Others have nothing in memory that they could lose.
        let may_lose = one.role != Role::Idle || self.is(Mutation::GrantIsVolatile);
        if may_lose && world.restarts < self.restarts {
            out.push(Step::Restart { shard, replica });
        }
        if world.losses < self.losses && self.epochs[shard] > 1 && one.lost_in.is_none() {
            out.push(Step::Lose { shard, replica });
        }
        if one.role == Role::Idle && world.given_up < self.gives_up && self.epochs[shard] > 1 {
            out.push(Step::Empty { shard, replica });
        }
    }

    fn of_backup(&self, world: &World, (shard, replica): (usize, usize), out: &mut Vec<Step>) {
        let of_shard = &world.shards[shard];
        out.push(Step::Install { shard, replica });
        for epoch in 1..=of_shard.epoch {
            let at = usize::from(epoch) - 1;
            for txn in 0..TXNS {
                let acked = of_shard.acked[replica][at][txn];
                let again = if self.is(Mutation::RevivesDropped) { 0 } else { acked };
                for record in Record::of(of_shard.sent[at][txn] & !again) {
                    out.push(Step::Store { shard, replica, epoch, txn, record });
                    if self.is(Mutation::AcksBeforeLog) {
                        out.push(Step::AckOnly { shard, replica, epoch, txn, record });
                    }
                }
                if of_shard.marked[at][txn] & !(1 << replica) != 0 {
                    out.push(Step::StoreMark { shard, replica, epoch, txn });
                }
            }
        }
        for txn in 0..TXNS {
            if self.may_truncate(world, (shard, replica), txn) {
                out.push(Step::Truncate { shard, replica, txn });
            }
        }
        if self.snapshot.is_some() && self.has_closed_timestamps {
            out.push(Step::ReadAtBackup { shard, replica });
        }
    }

    fn of_primary(&self, world: &World, (shard, primary): (usize, usize), out: &mut Vec<Step>) {
        let one = &world.shards[shard].replicas[primary];
        for lease in (world.now + 1).max(one.lease + 1)..=self.leases {
            for by in self.others(primary).filter(|by| by.count_ones() == self.f as u32) {
                out.push(Step::Renew { shard, primary, by, lease });
            }
        }
        for replica in 0..self.replicas {
            let one = &world.shards[shard].replicas[replica];
            if one.lost_in.is_some() || one.is_empty {
                out.push(Step::Rebuild { shard, primary, replica });
            }
        }
        if self.snapshot.is_some() {
            out.push(Step::Snapshot { shard, primary });
            if self.has_closed_timestamps {
                out.push(Step::Close { shard, primary });
            }
        }
        if self.singles[shard] {
            out.push(Step::SingleRead { shard, primary });
        }
    }

    fn of_participant(
        &self,
        world: &World,
        (shard, primary): (usize, usize),
        txn: usize,
        out: &mut Vec<Step>,
    ) {
        out.push(Step::Read { shard, primary, txn });
        for attempt in 0..=world.txns[txn].attempt {
            out.push(Step::Prepare { shard, primary, txn, attempt });
        }
        out.push(Step::Vote { shard, primary, txn });
        out.push(Step::Hear { shard, primary, txn });
        if self.has_termination {
            out.push(Step::Freeze { shard, primary, txn });
        }
        if self.has_watermarks {
            out.push(Step::Pass { shard, primary, txn });
        }
        let is_single = self.specs[txn].is_single();
        if self.has_termination || (self.has_watermarks && !is_single) {
            out.push(Step::Answer { shard, primary, txn });
        }
        if self.has_watermarks && !is_single {
            out.push(Step::GiveUp { shard, primary, txn });
        }
        if self.has_truncation {
            out.push(Step::Settle { shard, primary, txn });
            if !is_single {
                out.push(Step::AcknowledgeDecision { shard, primary, txn });
            }
        }
    }

    fn of_client(&self, world: &World, txn: usize, out: &mut Vec<Step>) {
        out.push(Step::TryLater { txn });
        out.push(Step::Decide { txn });
        if self.has_termination {
            out.push(Step::Conclude { txn });
        }
        if world.txns[txn].is_client_up && world.client_crashes < self.client_crashes {
            out.push(Step::ClientCrash { txn });
        }
    }

    /// Takes a step; false if it cannot be taken.
    pub fn take(&self, next: &mut World, step: Step) -> bool {
        match step {
            Step::TimePasses => {
                next.now += 1;
                true
            }
            Step::Restart { shard, replica } => self.restart(next, shard, replica),
            Step::Lose { shard, replica } => self.lose(next, (shard, replica)),
            Step::Empty { shard, replica } => self.empty(next, (shard, replica)),
            Step::TakeOver { shard, primary, with } => self.take_over(next, (shard, primary), with),
            Step::Install { shard, replica } => self.install(next, shard, replica),
            Step::Rebuild { shard, primary, replica } => {
                self.rebuild(next, (shard, primary), replica)
            }
            Step::Renew { shard, primary, by, lease } => {
                self.renew(next, (shard, primary), by, lease)
            }
            Step::Store { shard, replica, epoch, txn, record } => {
                self.store(next, (shard, replica), epoch, txn, record)
            }
            Step::AckOnly { shard, replica, epoch, txn, record } => {
                self.acknowledge(next, (shard, replica), epoch, txn, record)
            }
            Step::Pass { shard, primary, txn } => self.pass(next, (shard, primary), txn),
            Step::StoreMark { shard, replica, epoch, txn } => {
                self.store_mark(next, (shard, replica), epoch, txn)
            }
            Step::AcknowledgeDecision { shard, primary, txn } => {
                self.acknowledge_decision(next, (shard, primary), txn)
            }
            Step::Settle { shard, primary, txn } => self.settle(next, (shard, primary), txn),
            Step::Truncate { shard, replica, txn } => self.truncate(next, (shard, replica), txn),
            Step::Read { shard, primary, txn } => self.read(next, (shard, primary), txn),
            Step::Prepare { shard, primary, txn, attempt } => {
                self.prepare(next, (shard, primary), txn, attempt)
            }
            Step::Vote { shard, primary, txn } => self.vote(next, (shard, primary), txn),
            Step::TryLater { txn } => self.try_later(next, txn),
            Step::Decide { txn } => self.decide(next, txn),
            Step::Hear { shard, primary, txn } => self.hear(next, (shard, primary), txn),
            Step::ClientCrash { txn } => {
                next.txns[txn].is_client_up = false;
                next.client_crashes += 1;
                true
            }
            Step::Freeze { shard, primary, txn } => self.freeze(next, (shard, primary), txn),
            Step::Answer { shard, primary, txn } => self.answer(next, (shard, primary), txn),
            Step::GiveUp { shard, primary, txn } => self.give_up(next, (shard, primary), txn),
            Step::Conclude { txn } => self.conclude(next, txn),
            Step::Snapshot { shard, primary } => self.read_snapshot(next, (shard, primary)),
            Step::Close { shard, primary } => self.close(next, (shard, primary)),
            Step::ReadAtBackup { shard, replica } => self.read_at_backup(next, (shard, replica)),
            Step::SingleRead { shard, primary } => self.read_single(next, (shard, primary)),
        }
    }
}

const _: () = assert!(REPLICAS < 8, "a set of replicas is a byte");

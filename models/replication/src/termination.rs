//! Who finds out what became of a transaction whose client is silent (docs/protocol/transactions.md,
//! termination).

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::{FORGOTTEN, Record};
use crate::world::{At, Replica, World};

impl Small {
    /// A primary that is asked, or asks itself, freezes what it has.
    pub fn freeze(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let is_forgotten = self.has_passed(world, (shard, primary), txn);
        if self.is_given_up(world, (shard, primary), txn) {
            return false;
        }
        let frozen = match world.shards[shard].replicas[primary].view[txn] {
            _ if !is_asked(world, txn) => return false,
            Record::Unseen if is_forgotten => return false,
            Record::Prepared(attempt) => Record::Frozen(attempt),
            Record::Unseen => Record::Aborted,
            _ => return false,
        };
        self.propose(world, (shard, primary), txn, frozen);
        true
    }

    /// It answers when that is durable.
    pub fn answer(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let one = &world.shards[shard].replicas[primary];
        let record = one.view[txn];
        if record == Record::Unseen && self.has_passed(world, (shard, primary), txn) {
            let is_told = is_asked(world, txn) && !self.is(Mutation::SaysNothingOfForgotten);
            if is_told {
                world.txns[txn].answers[shard] |= FORGOTTEN;
            }
            return is_told;
        }
        let may_answer = match record {
            Record::Frozen(_) if self.is_given_up(world, (shard, primary), txn) => false,
            Record::Frozen(_) => {
                world.now >= one.old_lease || self.is(Mutation::VotesUnderOldLease)
            }
            Record::Committed(_) | Record::Aborted => true,
            Record::Prepared(_) | Record::Unseen => false,
        };
        if !may_answer || !self.counts(world, (shard, primary), txn, record) {
            return false;
        }
        world.txns[txn].answers[shard] |= record.bit();
        true
    }

    /// A primary that is still prepared hears that another shard has forgotten the transaction. So
    /// it was aborted, or this shard would have acknowledged its commit: it records that, and tells
    /// it, and frees its key, when it counts. A primary that was deposed meanwhile cannot.
    pub fn give_up(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let promise = world.shards[shard].replicas[primary].view[txn];
        let is_forgotten =
            |other| other != shard && world.txns[txn].answers[other] & FORGOTTEN != 0;
        if promise.promised().is_none() || !self.specs[txn].participants().any(is_forgotten) {
            return false;
        }
        if self.is_given_up(world, (shard, primary), txn) {
            let is_recorded = self.counts(world, (shard, primary), txn, Record::Aborted);
            if is_recorded {
                world.shards[shard].replicas[primary].view[txn] = Record::Aborted;
            }
            return is_recorded;
        }
        self.propose(world, (shard, primary), txn, Record::Aborted);
        if !self.is(Mutation::FreesWhatItGivesUp) {
            world.shards[shard].replicas[primary].view[txn] = promise;
        }
        true
    }

    /// Whether a primary holds a promise until the record counts that gives it up.
    pub fn is_given_up(&self, world: &World, (shard, primary): At, txn: usize) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let of_shard = &world.shards[shard];
        let is_sent = of_shard.sent[usize::from(epoch) - 1][txn] & Record::Aborted.bit() != 0;
        is_sent && of_shard.replicas[primary].view[txn].promised().is_some()
    }

    /// Who has all answers knows the outcome.
    pub fn conclude(&self, world: &mut World, txn: usize) -> bool {
        let mut frozen = 0_u8;
        let mut committed = 0_u8;
        let (mut is_aborted, mut is_forgotten) = (false, false);
        for (place, shard) in self.specs[txn].participants().enumerate() {
            let mut answers = world.txns[txn].answers[shard];
            if place == 0 && self.is(Mutation::AskerDoesNotAnswer) {
                let primary = usize::from(world.shards[shard].primary);
                let own = world.shards[shard].replicas[primary].view[txn];
                answers = match own.promised() {
                    Some(attempt) => Record::Frozen(attempt).bit(),
                    None => 0,
                };
            }
            if answers == 0 {
                return false;
            }
            is_forgotten |= answers == FORGOTTEN;
            for record in Record::of(answers) {
                match record {
                    Record::Frozen(attempt) => frozen |= 1 << attempt,
                    Record::Committed(attempt) => committed |= 1 << attempt,
                    Record::Aborted => is_aborted = true,
                    Record::Prepared(_) | Record::Unseen => {}
                }
            }
        }
        let told = &mut world.txns[txn].told;
        if is_forgotten && self.is(Mutation::TakesForgottenForAborted) {
            is_aborted = true;
        }
        if committed != 0 {
            told.commits |= committed;
        } else if is_aborted || (frozen.count_ones() > 1 && !self.is(Mutation::IgnoresTimestamps)) {
            told.abort = true;
        } else if is_forgotten {
            // Whoever is still prepared gives up, or knows better by now.
            return false;
        } else {
            told.commits |= 1 << (u8::BITS - 1 - frozen.leading_zeros());
        }
        true
    }
}

/// Whether somebody has a promise to ask about, or had one: a question may come late.
fn is_asked(world: &World, txn: usize) -> bool {
    let is_frozen =
        |answers: &u8| Record::of(*answers).any(|record| matches!(record, Record::Frozen(_)));
    let is_promised = |replica: &Replica| replica.view[txn].promised().is_some();
    world.txns[txn].answers.iter().any(is_frozen)
        || world.shards.iter().any(|of_shard| of_shard.replicas.iter().any(is_promised))
}

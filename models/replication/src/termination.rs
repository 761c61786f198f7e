//! Who finds out what became of a transaction whose client is silent (docs/protocol/transactions.md,
//! termination).

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::world::World;

impl Small {
    /// A primary that is asked, or asks itself, freezes what it has.
    pub fn freeze(&self, world: &mut World, (shard, primary): (usize, usize), txn: usize) -> bool {
        // Somebody has a promise to ask about.
        let is_asked = world.shards.iter().any(|of_shard| {
            of_shard.replicas.iter().any(|replica| replica.view[txn].promised().is_some())
        });
        let frozen = match world.shards[shard].replicas[primary].view[txn] {
            _ if !is_asked => return false,
            Record::Prepared(attempt) => Record::Frozen(attempt),
            Record::Unseen => Record::Aborted,
            _ => return false,
        };
        self.propose(world, (shard, primary), txn, frozen);
        true
    }

    /// It answers when that is durable.
    pub fn answer(&self, world: &mut World, (shard, primary): (usize, usize), txn: usize) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let one = &world.shards[shard].replicas[primary];
        let record = one.view[txn];
        let may_answer = match record {
            Record::Frozen(_) => {
                world.now >= one.old_lease || self.is(Mutation::VotesUnderOldLease)
            }
            Record::Committed(_) | Record::Aborted => true,
            Record::Prepared(_) | Record::Unseen => false,
        };
        if !may_answer || !world.shards[shard].is_durable(epoch, primary, txn, record) {
            return false;
        }
        world.txns[txn].answers[shard] |= record.bit();
        true
    }

    /// Who has all answers knows the outcome.
    pub fn conclude(&self, world: &mut World, txn: usize) -> bool {
        let mut frozen = 0_u8;
        let mut committed = 0_u8;
        let mut is_aborted = false;
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
        if committed != 0 {
            told.commits |= committed;
        } else if is_aborted || (frozen.count_ones() > 1 && !self.is(Mutation::IgnoresTimestamps)) {
            told.abort = true;
        } else {
            told.commits |= 1 << (u8::BITS - 1 - frozen.leading_zeros());
        }
        true
    }
}

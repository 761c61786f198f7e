//! What a primary and its backups do with transactions (docs/protocol/transactions.md).

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::{ATTEMPTS, Attempt, Record};
use crate::world::{At, BOUNDS, World};

impl Small {
    /// A replica makes a record durable and acknowledges it, if it is of the epoch that it is in.
    pub fn store(
        &self,
        world: &mut World,
        (shard, replica): At,
        epoch: u8,
        txn: usize,
        record: Record,
    ) -> bool {
        let one = &mut world.shards[shard].replicas[replica];
        let is_promised =
            one.promised == epoch || (one.promised > epoch && self.is(Mutation::AcceptsOldEpoch));
        let is_installed = one.normal == epoch
            || self.is(Mutation::AcksBeforeInstall)
            || (self.is(Mutation::ServesWithoutOwnCopy)
                && one.role == crate::world::Role::Serving(epoch))
            || (one.normal > epoch && self.is(Mutation::AcceptsOldEpoch));
        // Another copy of what it has dropped: its number is at or below `stable`.
        let is_acked =
            world.shards[shard].acked[replica][usize::from(epoch) - 1][txn] & record.bit() != 0;
        let one = &mut world.shards[shard].replicas[replica];
        let is_known =
            is_acked && one.settled & 1 << txn != 0 && !self.is(Mutation::RevivesDropped);
        if !is_promised || !is_installed || is_known || one.is_empty {
            return false;
        }
        one.table[txn] = one.table[txn].with(record);
        world.shards[shard].acked[replica][usize::from(epoch) - 1][txn] |= record.bit();
        true
    }

    /// Only says that it has it.
    pub fn acknowledge(
        &self,
        world: &mut World,
        (shard, replica): At,
        epoch: u8,
        txn: usize,
        record: Record,
    ) -> bool {
        let of_shard = &mut world.shards[shard];
        if of_shard.replicas[replica].promised != epoch {
            return false;
        }
        of_shard.acked[replica][usize::from(epoch) - 1][txn] |= record.bit();
        true
    }

    /// A transaction reads the key at its begin.
    pub fn read(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let spec = &self.specs[txn];
        let one = &mut world.shards[shard].replicas[primary];
        let reads = &mut world.txns[txn].reads[shard];
        if !spec.reads[shard]
            || reads.is_some()
            || spec.begin >= BOUNDS[usize::from(one.lease)]
            || self.is_written(&one.view, shard, spec.begin)
        {
            return false;
        }
        *reads = Some(self.version(&one.view, one.store, shard, spec.begin));
        one.read_mark = one.read_mark.max(spec.begin);
        true
    }

    /// Validates a transaction at a commit timestamp (MILANA, Algorithm 1, with step 3).
    pub fn prepare(
        &self,
        world: &mut World,
        (shard, primary): At,
        txn: usize,
        attempt: Attempt,
    ) -> bool {
        let spec = &self.specs[txn];
        let has_read =
            (0..spec.reads.len()).all(|at| !spec.reads[at] || world.txns[txn].reads[at].is_some());
        let one = &world.shards[shard].replicas[primary];
        let commit = self.at(txn, attempt);
        let is_new = match one.view[txn] {
            Record::Unseen => true,
            Record::Prepared(has) => has < attempt,
            Record::Frozen(_) | Record::Committed(_) | Record::Aborted => false,
        };
        let is_given_up = self.is_given_up(world, (shard, primary), txn);
        if !has_read || !is_new || is_given_up || commit >= BOUNDS[usize::from(one.lease)] {
            return false;
        }
        if one.view[txn] == Record::Unseen && self.has_passed(world, (shard, primary), txn) {
            // Too old: it may be a repeat of what was forgotten. So that is no *no*.
            world.txns[txn].no[shard] |= self.is(Mutation::TooOldIsNo);
            return self.is(Mutation::TooOldIsNo);
        }
        let mut others = one.view;
        others[txn] = Record::Unseen;
        let latest = self.version(&others, one.store, shard, u8::MAX);
        let version = world.txns[txn].reads[shard];
        let is_refused = self.is_written(&others, shard, u8::MAX)
            || (spec.reads[shard] && version != Some(latest));
        if is_refused {
            self.propose(world, (shard, primary), txn, Record::Aborted);
            return true;
        }
        if spec.writes[shard] && (one.read_mark >= commit || latest >= commit) {
            world.txns[txn].later[shard] |= 1 << attempt;
            return true;
        }
        self.propose(world, (shard, primary), txn, Record::Prepared(attempt));
        let one = &mut world.shards[shard].replicas[primary];
        if spec.reads[shard] {
            one.read_mark = one.read_mark.max(commit);
        }
        true
    }

    /// Whether a primary may say what later readers must find.
    fn may_promise(&self, world: &World, (shard, primary): At) -> bool {
        world.now >= world.shards[shard].replicas[primary].old_lease
            || self.is(Mutation::VotesUnderOldLease)
    }

    /// Tells the client what the shard has durably.
    pub fn vote(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let record = world.shards[shard].replicas[primary].view[txn];
        if self.is_given_up(world, (shard, primary), txn) {
            return false;
        }
        let is_durable = self.counts(world, (shard, primary), txn, record);
        match record {
            Record::Prepared(attempt)
                if is_durable && self.may_promise(world, (shard, primary)) =>
            {
                world.txns[txn].yes[shard] |= 1 << attempt;
                if self.specs[txn].is_single() {
                    self.propose(world, (shard, primary), txn, Record::Committed(attempt));
                }
                true
            }
            // By the merge, for nobody else has a say.
            Record::Committed(attempt)
                if self.specs[txn].is_single()
                    && is_durable
                    && self.may_promise(world, (shard, primary)) =>
            {
                world.txns[txn].yes[shard] |= 1 << attempt;
                true
            }
            Record::Aborted if is_durable || self.is(Mutation::NoIsNotReplicated) => {
                world.txns[txn].no[shard] = true;
                true
            }
            _ => false,
        }
    }

    /// A client tries a later timestamp.
    pub fn try_later(&self, world: &mut World, txn: usize) -> bool {
        let one = &mut world.txns[txn];
        let is_asked = one.later.iter().any(|later| later & 1 << one.attempt != 0);
        if !one.is_client_up || one.told.is_any() || !is_asked || one.attempt + 1 == ATTEMPTS {
            return false;
        }
        one.attempt += 1;
        true
    }

    /// A client decides from the votes for its timestamp, and tells its application.
    pub fn decide(&self, world: &mut World, txn: usize) -> bool {
        let one = &mut world.txns[txn];
        if !one.is_client_up || one.told.abort {
            return false;
        }
        // One shard alone says which of its attempts was carried out.
        let attempts = if self.specs[txn].is_single() { !0 } else { 1 << one.attempt };
        let agreed =
            self.specs[txn].participants().fold(attempts, |all, shard| all & one.yes[shard]);
        if agreed != 0 {
            one.told.commits |= agreed;
            return true;
        }
        let is_refused = one.no.iter().any(|&no| no);
        one.told.abort |= is_refused;
        is_refused
    }

    /// A primary hears a decision.
    pub fn hear(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let told = world.txns[txn].told;
        let record = world.shards[shard].replicas[primary].view[txn];
        if self.is_given_up(world, (shard, primary), txn) {
            return false;
        }
        match (told.commit(), record) {
            // Carried out, and forgotten.
            (_, Record::Unseen) if self.has_passed(world, (shard, primary), txn) => false,
            (Some(_), Record::Committed(_)) => false,
            (Some(_), Record::Aborted) => {
                // A deposed primary may have refused what its successors have promised: nobody was
                // told of it.
                let is_contradicted = self.counts(world, (shard, primary), txn, record);
                world.is_contradicted |= is_contradicted;
                is_contradicted
            }
            (Some(attempt), _) => {
                let attempt = match record.promised() {
                    Some(own) if self.is(Mutation::IgnoresTimestamps) => own,
                    _ => attempt,
                };
                self.propose(world, (shard, primary), txn, Record::Committed(attempt));
                true
            }
            (None, Record::Prepared(_) | Record::Frozen(_) | Record::Unseen) if told.abort => {
                self.propose(world, (shard, primary), txn, Record::Aborted);
                true
            }
            _ => false,
        }
    }

    /// The snapshot reads the key.
    pub fn read_snapshot(&self, world: &mut World, (shard, primary): At) -> bool {
        let Some(at) = self.snapshot else { return false };
        let one = &mut world.shards[shard].replicas[primary];
        if world.snapshot[shard].is_some()
            || at >= BOUNDS[usize::from(one.lease)]
            || self.is_written(&one.view, shard, at)
        {
            return false;
        }
        world.snapshot[shard] = Some(self.version(&one.view, one.store, shard, at));
        one.read_mark = one.read_mark.max(at);
        true
    }

    /// Somebody reads what the key has now, whatever its timestamp.
    pub fn read_single(&self, world: &mut World, (shard, primary): At) -> bool {
        let one = &world.shards[shard].replicas[primary];
        let has_lease = world.now < one.lease || self.is(Mutation::ReadsAboveLease);
        let is_alone = world.now >= one.old_lease || self.is(Mutation::ReadsUnderOldLease);
        if !has_lease || !is_alone || self.is_written(&one.view, shard, u8::MAX) {
            return false;
        }
        let version = self.version(&one.view, one.store, shard, u8::MAX);
        let told = (0..self.specs.len())
            .filter(|&txn| self.specs[txn].writes[shard])
            .filter_map(|txn| world.txns[txn].told.commit().map(|attempt| self.at(txn, attempt)));
        let newest = told.max().unwrap_or(0).max(world.shards[shard].seen);
        world.is_stale |= version < newest;
        world.shards[shard].seen = newest.max(version);
        true
    }
}

//! What a replica is told, and what it wants done.

use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use super::ReplicaId;
use crate::batches::Batch;
use crate::lineage::Lineage;
use crate::message::Message;
use crate::number_set::NumberSet;

/// Counts what a replica wants to be durable; only rises.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What a replica promises and has installed; it is logged among the batches. The last one stands.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mark {
    /// Lower epochs are refused.
    pub promised: Epoch,
    /// The epochs whose tables were installed. Of those before the last one, nothing above its
    /// table is valid.
    pub lineage: Lineage,
    /// The highest lease that was granted, held or handed over.
    pub lease: Timestamp,
    /// Everything up to this one counts.
    pub counted: BatchNumber,
    /// It has lost or given up what it had, and has installed no table of this epoch or a later one
    /// since.
    pub lost_before: Option<Epoch>,
    /// What it had then, if it knows that. If it does not, it answers no candidate.
    pub given_up: Option<GivenUp>,
    /// What is in its log before this mark, and what is in its store, is void: it lacked batches that
    /// nobody keeps any more, and takes a checkpoint.
    pub emptied: bool,
    /// The checkpoint that it has taken last; zero for none.
    pub session: u64,
}

/// What a replica had before it gave that up, for candidates: whatever of it counts is in their
/// tables, and it can hand out nothing.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GivenUp {
    /// The epochs whose tables it had installed.
    pub lineage: Lineage,
    /// The batches that it had durably, and may have acknowledged.
    pub had: NumberSet,
}

/// What a replica wants to be durable, for its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Entry<B> {
    /// A batch of records.
    Batch(Batch<B>),
    /// What is promised and installed.
    Mark(Mark),
}

/// What happens to a replica.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<B> {
    /// It is to be primary in this epoch, says the master, which hands out each epoch once.
    Lead {
        /// The new epoch.
        epoch: Epoch,
        /// Its replicas, this one included; at most [`crate::limits::MAX_REPLICAS`].
        replicas: Vec<ReplicaId>,
        /// The replicas of the last epoch of which the master knows that it served, and of every
        /// later one: more than half of each have to answer. Empty for a shard that never had any.
        previous: Vec<Vec<ReplicaId>>,
    },
    /// A batch of its shard's records, while it serves; numbered on from the last one.
    Append {
        /// Its number.
        number: BatchNumber,
        /// The highest read bound in it; zero if there is none.
        lease: Timestamp,
        /// Its records.
        payload: B,
    },
    /// Everything up to this ticket is durable.
    Persisted {
        /// The ticket.
        through: Ticket,
    },
    /// A message of another replica.
    Message {
        /// Whose.
        from: ReplicaId,
        /// The message.
        message: Message<B>,
    },
    /// A connection to another replica stands anew; what was sent over the last one may be lost.
    LinkUp {
        /// Which replica.
        to: ReplicaId,
    },
    /// A checkpoint was taken over: the store has everything up to this batch, durably, and it
    /// counts.
    Rebased {
        /// The epoch that the replica which it is from leads, as a primary or a candidate that
        /// installs its table: whoever leads an earlier one is deposed.
        epoch: Epoch,
        /// The last batch of the checkpoint.
        through: BatchNumber,
        /// The highest read bound in it.
        lease: Timestamp,
        /// Its number.
        session: u64,
    },
    /// Others have its place, in a configuration that serves: it gives up what it has.
    Replaced {
        /// In this epoch.
        by: Epoch,
    },
    /// As a primary, or a candidate that installs its table: a replica takes a checkpoint, which
    /// brings it everything up to this batch, and counts as having that much: what follows is kept
    /// for it. What it said before that it had counts no more.
    TakesCheckpoint {
        /// Which replica.
        replica: ReplicaId,
        /// The number of the checkpoint; those of one replica rise.
        session: u64,
        /// The batch.
        through: BatchNumber,
    },
    /// Time has passed.
    Tick,
}

/// What a replica wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output<B> {
    /// Send a message.
    Send {
        /// To whom.
        to: ReplicaId,
        /// The message.
        message: Message<B>,
    },
    /// Append to the own log, in this order, and say so by [`Input::Persisted`].
    Persist {
        /// Its number.
        ticket: Ticket,
        /// What to append.
        entry: Entry<B>,
    },
    /// As a backup, or when a table is taken over: carry out what the records of this batch say.
    /// They count. Batches come in the order of their numbers, each once.
    Apply(Batch<B>),
    /// The table of the epoch counts, and all of it was handed out: the shard serves now, from
    /// batch `through` on.
    Serve {
        /// The epoch.
        epoch: Epoch,
        /// The last batch of the table; the shard's next one comes after it.
        through: BatchNumber,
        /// The highest lease of earlier epochs: every key counts as read up to it (rule P7).
        floor: Timestamp,
    },
    /// The shard's own batches up to this one count: what rests on them may be told.
    Counted {
        /// The last of them.
        through: BatchNumber,
    },
    /// It is primary, or was to be, no more.
    Deposed {
        /// The epoch that is over for it.
        epoch: Epoch,
        /// A later one that has begun.
        by: Epoch,
    },
    /// It was to lead an epoch that it has promised already, perhaps as a primary before a restart:
    /// the master has to hand out another one.
    NeedsEpoch {
        /// The epoch that it cannot lead.
        epoch: Epoch,
    },
    /// It was to lead, and lacks batches that nobody has any more: another replica has to.
    CannotLead {
        /// The epoch that it cannot lead.
        epoch: Epoch,
    },
    /// A message was dropped that no replica sends; it has changed nothing.
    Malformed {
        /// Whose it was.
        from: ReplicaId,
    },
    /// This replica lacks batches that nobody keeps any more, and its log says durably that
    /// everything here is void. Empty the store, take a checkpoint of a primary, and say so by
    /// [`Input::Rebased`]. It begins after this was said; from which epoch it may be is looked at then,
    /// and it may be asked for once more.
    TakeCheckpoint,
    /// A replica lacks batches that are not kept any more: it needs a checkpoint, and is not waited
    /// for.
    Behind {
        /// Which replica.
        replica: ReplicaId,
    },
}

/// How far a replica is on its way to serve, for people.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Stores what the primary sends.
    Backup,
    /// Takes a checkpoint, because it lacks what nobody keeps any more.
    Rebuilding,
    /// As a candidate, waits for answers.
    Joining,
    /// As a candidate, waits for batches that it lacks.
    Fetching,
    /// Installs a table; as a candidate, waits until it is durable at enough replicas.
    Installing,
    /// Is primary.
    Serving,
}

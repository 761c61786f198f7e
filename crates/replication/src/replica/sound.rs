//! Whether a message can be of a replica at all.
//!
//! What another process has sent may be anything. A message that says what no replica says is
//! dropped before it changes anything; what passes meets no assertion, and makes no work or memory
//! without bound. A replica that lies with well-formed messages is not noticed.

use timestone_types::Epoch;
use timestone_wal::BatchNumber;

use super::{Replica, Step};
use crate::batches::{Batch, Payload};
use crate::limits::{MAX_AHEAD, MAX_RUNS_TOLD, MAX_SPAN};
use crate::lineage::Lineage;
use crate::message::{JoinAnswer, Message};
use crate::number_set::NumberSet;

impl<B: Payload> Replica<B> {
    /// See the module.
    pub(super) fn is_sound(&self, message: &Message<B>) -> bool {
        match message {
            Message::Join { .. } | Message::Probe { .. } | Message::Refused { .. } => true,
            Message::Joined { epoch, answer } => {
                // Nobody has installed a table that is not made yet; a late answer may tell of it.
                let is_joining = self.state() == Step::Joining && self.own.promised == *epoch;
                let is_new = !is_joining || answer.lineage.installed() < *epoch;
                is_answer(*epoch, answer) && is_new
            }
            Message::Fetch { runs, .. } => {
                runs.len() <= MAX_RUNS_TOLD && runs.iter().all(|(first, last)| first <= last)
            }
            Message::Fetched { epoch, batch } => is_number(batch.number) && batch.epoch < *epoch,
            Message::Install { epoch, based_on, through, .. } => {
                self.is_table(*epoch, based_on, *through)
            }
            Message::Append { epoch, batch, .. } => self.is_batch(*epoch, batch),
            Message::NeedsCheckpoint { held_above, .. } => *held_above < BatchNumber::MAX,
            Message::Acked { durable, received, .. } => {
                is_set(durable) && received.as_ref().is_none_or(is_set)
            }
        }
    }

    /// Whether a table of this epoch may be so.
    fn is_table(&self, epoch: Epoch, based_on: &Lineage, through: BatchNumber) -> bool {
        let own = &self.own;
        // What counts is in every later table; a checkpoint may have brought more.
        let is_known = own.installed() >= epoch || own.counted <= through.max(own.batches.base());
        through < BatchNumber::MAX
            && based_on.installed() < epoch
            && based_on.table_end() <= through
            && is_known
    }

    /// Whether the primary of this epoch may send such a batch.
    fn is_batch(&self, epoch: Epoch, batch: &Batch<B>) -> bool {
        let own = &self.own;
        // Where the epoch's table ends, its own batches begin.
        let table_end = match &self.table {
            Some(table) if table.epoch == epoch => Some(table.head.through),
            _ if own.installed() == epoch => Some(own.lineage.table_end()),
            _ => None,
        };
        let is_of_epoch = batch.epoch == epoch;
        let is_near = self.state() == Step::Installing
            || batch.number.get().saturating_sub(own.received.prefix().get()) <= MAX_AHEAD;
        is_number(batch.number)
            && batch.epoch <= epoch
            && table_end.is_none_or(|end| is_of_epoch == (batch.number > end))
            && is_near
    }
}

/// Whether a batch may have this number: they begin at 1, and one more is to follow.
fn is_number(number: BatchNumber) -> bool {
    BatchNumber::ZERO < number && number < BatchNumber::MAX
}

fn is_set(set: &NumberSet) -> bool {
    set.last() < BatchNumber::MAX && set.runs().len() <= MAX_RUNS_TOLD
}

/// Whether a replica that joins this epoch may have that.
fn is_answer(epoch: Epoch, answer: &JoinAnswer) -> bool {
    let JoinAnswer { lineage, has, held_above, void_since, .. } = answer;
    let has_nothing = lineage.installed() == Epoch::ZERO && has.last() == BatchNumber::ZERO;
    is_set(has)
        && void_since.is_none_or(|since| since <= epoch && has_nothing)
        && lineage.installed() <= epoch
        && lineage.table_end() <= has.prefix()
        && *held_above <= has.last()
        && has.last().get() - held_above.get() <= MAX_SPAN
}

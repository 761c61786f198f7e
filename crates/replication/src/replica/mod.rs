//! One replica of one shard.
//!
//! ```text
//!   Input ─► step ─┬─ backup.rs    promises, installs tables, stores batches, acknowledges
//!                  ├─ takeover.rs  becomes primary: join ─► fetch ─► install ─► serve
//!                  ├─ fetching.rs  as a candidate, asks for batches that it lacks
//!                  ├─ leading.rs   sends batches, counts acknowledgements, sends again
//!                  ├─ rebuilding.rs takes a checkpoint for what nobody keeps any more
//!                  └─ recover.rs   what a restart finds in its log                      ─► Output
//!   state: own (promise, batches, what of them is durable, counts, is applied) · followers.rs · persisting.rs · table.rs
//! ```
//! Invariants: what is told is durable before; a batch counts when the primary and half of the other
//! replicas (rounded up) have it durably; batches that count are never cut; backups carry out what
//! counts, in the order of numbers, and nothing else; one epoch has one primary, which serves at most
//! once. Source: SEMEL §3.2, MILANA §4.5 (Algorithm 2); rules P1 to P8 of
//! docs/protocol/replication.md.

mod backup;
mod fetching;
mod followers;
mod input;
mod leading;
mod persisting;
mod rebuilding;
mod recover;
mod sound;
mod table;
mod takeover;

use core::fmt;

use timestone_types::{Epoch, Timestamp, is_planted};
use timestone_wal::BatchNumber;

use crate::batches::{Batch, Batches, Payload};
use crate::limits::Retention;
use crate::lineage::Lineage;
use crate::message::Message;
use crate::number_set::NumberSet;
pub use input::{Entry, GivenUp, Input, Mark, Output, Step, Ticket};
use leading::Leading;
use persisting::{Persisted, Persisting};
pub use recover::{Stored, Void};
use table::{EpochTable, TableHead};

/// A replica of a shard: the server that keeps it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaId(pub u32);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One replica. See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica<B> {
    me: ReplicaId,
    own: Own<B>,
    persisting: Persisting,
    /// The table that is being installed.
    table: Option<EpochTable<B>>,
    /// Whose messages it takes as a backup: the primary of the promised epoch.
    primary: Option<ReplicaId>,
    leading: Option<Leading>,
    retention: Retention,
}

/// What a replica has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Own<B> {
    /// Lower epochs are refused. It may not be durable yet; nothing is told before it is.
    promised: Epoch,
    /// The epochs whose tables were installed, durably.
    lineage: Lineage,
    /// The highest lease in anything that was taken.
    lease: Timestamp,
    batches: Batches<B>,
    /// The batches of the installed epoch and before.
    received: NumberSet,
    /// Those of them that are durable.
    durable: NumberSet,
    /// Everything up to this one counts.
    counted: BatchNumber,
    /// Everything up to this one was handed out to be carried out.
    applied: BatchNumber,
    /// It has lost or given up what it had, and has installed no table of this epoch or a later one
    /// since.
    lost_before: Option<Epoch>,
    /// What it had then, if it knows that.
    given_up: Option<GivenUp>,
    /// Everything that it had is void: it takes nothing before a checkpoint has come.
    emptied: bool,
    /// The checkpoint that it has taken last.
    session: u64,
}

impl<B> Own<B> {
    /// The last epoch whose table is installed.
    fn installed(&self) -> Epoch {
        self.lineage.installed()
    }

    /// It does not know what it had. That was the newest epoch when it lost it; it has acknowledged
    /// and granted nothing since.
    fn void_since(&self) -> Option<Epoch> {
        let is_known = self.given_up.is_some() || is_planted!(AnswersAfterLoss);
        self.lost_before.filter(|_| !is_known)
    }
}

impl<B: Payload> Own<B> {
    /// Takes a batch of the installed epoch, or of its table.
    fn take(&mut self, batch: Batch<B>) {
        assert!(
            batch.epoch <= self.installed(),
            "a replica stores records of the epoch that it is in (rule P2)"
        );
        self.lease = self.lease.max(batch.lease);
        self.received.insert(batch.number);
        self.batches.insert(batch);
    }

    /// Everything up to this one counts, says the primary: as far as it is here.
    fn count_received(&mut self, through: BatchNumber) {
        self.count(through.min(self.received.prefix()));
    }

    /// Everything up to this one counts.
    fn count(&mut self, through: BatchNumber) {
        self.counted = self.counted.max(through);
    }

    /// Hands out what counts, is here and was not handed out.
    fn apply(&mut self, out: &mut Vec<Output<B>>) {
        let ready = if is_planted!(AppliesUncounted) {
            self.durable.prefix()
        } else {
            self.counted.min(self.durable.prefix())
        };
        while self.applied < ready {
            let number = self.applied.next();
            let Some(batch) = self.batches.get(number) else { break };
            out.push(Output::Apply(batch.clone()));
            self.applied = number;
        }
    }

    /// Drops what no replica lacks and what was handed out.
    fn drop_stable(&mut self, stable: BatchNumber) {
        self.batches.drop_through(stable.min(self.counted).min(self.applied));
    }

    fn mark(&self) -> Mark {
        Mark {
            promised: self.promised,
            lineage: self.lineage.clone(),
            lease: self.lease,
            counted: self.counted,
            lost_before: self.lost_before,
            given_up: self.given_up.clone(),
            emptied: self.emptied,
            session: self.session,
        }
    }

    fn assert_sound(&self) {
        debug_assert!(self.installed() <= self.promised, "what is installed was promised");
        debug_assert!(self.durable.last() <= self.received.last(), "durable is what was received");
        debug_assert!(
            self.batches.base() <= self.applied,
            "what is dropped was handed out to be carried out"
        );
        debug_assert!(
            self.applied <= self.counted || is_planted!(AppliesUncounted),
            "only what counts is carried out"
        );
    }
}

impl<B: Payload> Replica<B> {
    /// Takes one input; appends what is to be done to `out`, in order.
    pub fn step(&mut self, now: Timestamp, input: Input<B>, out: &mut Vec<Output<B>>) {
        match input {
            Input::Lead { epoch, replicas, previous } => {
                self.lead(now, epoch, (&replicas, previous), out);
            }
            Input::Append { number, lease, payload } => {
                self.append(now, (number, lease, payload), out);
            }
            Input::Persisted { through } => self.persisted(now, through, out),
            Input::Message { from, message } => self.message(now, from, message, out),
            Input::LinkUp { to } => {
                if let Some(leading) = &mut self.leading {
                    leading.ask_again(now, to, &self.own, out);
                }
            }
            Input::Rebased { epoch, through, lease, session } => {
                self.rebased(now, (epoch, through), (lease, session), out);
            }
            Input::Replaced { by } => self.replaced(by, out),
            Input::TakesCheckpoint { replica, session, through } => {
                if let Some(leading) = &mut self.leading {
                    leading.takes_checkpoint(now, (replica, session), through);
                }
            }
            Input::Tick => {
                if let Some(leading) = &mut self.leading {
                    leading.tick(now, &self.own, out);
                }
                self.fetch_missing(Some(now), out);
            }
        }
        self.own.assert_sound();
    }

    /// When the next tick is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.leading.as_ref().and_then(|leading| leading.deadline(&self.own))
    }

    /// Where it is, for `status` and tests.
    #[must_use]
    pub fn state(&self) -> Step {
        match &self.leading {
            Some(leading) => leading.state(),
            None if self.own.emptied => Step::Rebuilding,
            None if self.table.is_some() => Step::Installing,
            None => Step::Backup,
        }
    }

    /// The epoch below which everything is refused.
    #[must_use]
    pub const fn promised(&self) -> Epoch {
        self.own.promised
    }

    /// The last epoch whose table is installed.
    #[must_use]
    pub fn installed(&self) -> Epoch {
        self.own.installed()
    }

    /// Everything up to this batch counts, as far as is known here.
    #[must_use]
    pub const fn counted(&self) -> BatchNumber {
        self.own.counted
    }

    /// It keeps what is above this batch for replicas that may lack it.
    #[must_use]
    pub const fn held_above(&self) -> BatchNumber {
        self.own.batches.base()
    }

    /// Whether it has all that it ever stored, or what has taken the place of that.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.own.lost_before.is_none()
    }

    /// Whether it has given up what it had, and knows what that was.
    #[must_use]
    pub const fn remembers(&self) -> bool {
        self.own.given_up.is_some()
    }

    /// The newest epoch when it lost what it had, if it does not know what that was: its answer to a
    /// candidate is that it has nothing, which counts for tables that rest on later epochs (rule P22).
    #[must_use]
    pub fn void_since(&self) -> Option<Epoch> {
        self.own.void_since()
    }

    /// What is durable here.
    #[must_use]
    pub const fn durable(&self) -> &NumberSet {
        &self.own.durable
    }

    /// The epoch whose table it installs everywhere, if it is a candidate that does: it gives
    /// checkpoints of what it has carried out.
    #[must_use]
    pub fn candidate(&self) -> Option<Epoch> {
        let leading = self.leading.as_ref()?;
        (leading.state() == Step::Installing && !self.own.emptied).then(|| leading.epoch())
    }

    /// Whether it leads, something waits for other replicas, and none of them has said anything new for
    /// [`crate::limits::FETCH_TIMEOUT`]: it goes on to ask them, and another replica may reach more.
    #[must_use]
    pub fn hears_nobody(&self, now: Timestamp) -> bool {
        let leading = self.leading.as_ref();
        leading.is_some_and(|leading| leading.hears_nobody(now, &self.own))
    }

    /// Whether it waits for a checkpoint: nothing that it had before is of any worth.
    #[must_use]
    pub const fn is_emptied(&self) -> bool {
        self.own.emptied
    }

    /// Keeps other batches than by default for replicas that lack them.
    pub const fn set_retention(&mut self, retention: Retention) {
        self.retention = retention;
    }

    /// The mark to be appended again before the log files go that hold the last one.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.own.mark()
    }

    /// How far each other replica is, while this one is primary: batches that it lacks, and whether
    /// it is too far behind to be waited for.
    pub fn lag(&self) -> impl Iterator<Item = (ReplicaId, u64, bool)> + '_ {
        let last = self.own.received.last();
        self.leading.iter().flat_map(move |leading| leading.lag(last))
    }

    fn message(
        &mut self,
        now: Timestamp,
        from: ReplicaId,
        message: Message<B>,
        out: &mut Vec<Output<B>>,
    ) {
        if !self.is_sound(&message) {
            return out.push(Output::Malformed { from });
        }
        let epoch = message.epoch();
        if let Message::Refused { promised } = message {
            return self.refused(promised, out);
        }
        let accepts = is_planted!(AcceptsOldEpoch)
            && matches!(message, Message::Append { .. })
            && epoch == self.own.installed();
        if epoch < self.own.promised && !accepts {
            let promised = self.own.promised;
            // An answer or an acknowledgement of an epoch that is over needs no answer.
            if matches!(message, Message::Joined { .. } | Message::Acked { .. }) {
                return;
            }
            return out.push(Output::Send { to: from, message: Message::Refused { promised } });
        }
        match message {
            Message::Join { .. } => self.join(from, epoch, out),
            Message::Joined { answer, .. } => self.joined(now, (from, epoch), answer, out),
            Message::Fetch { runs, .. } => self.fetch(from, epoch, &runs, out),
            Message::Fetched { batch, .. } => self.fetched(now, epoch, batch, out),
            Message::Install { based_on, through, floor, .. } => {
                let head = TableHead { based_on, through, floor };
                self.install(from, EpochTable::new(epoch, head), out);
            }
            Message::Append { counted, stable, batch, .. } => {
                self.store(from, epoch, batch, out);
                self.told(epoch, (counted, stable), out);
            }
            Message::Probe { counted, stable, .. } => {
                self.told(epoch, (counted, stable), out);
                self.probe(from, epoch, out);
            }
            Message::Acked { installed, counted, session, durable, received, .. } => {
                let has = (installed, counted, &durable, received.as_ref());
                self.acked(now, (from, epoch, session), has, out);
            }
            Message::NeedsCheckpoint { held_above, .. } => {
                self.needs_checkpoint((from, epoch), held_above, out);
            }
            Message::Refused { .. } => {}
        }
    }

    /// Somebody has promised a higher epoch than ours.
    fn refused(&mut self, promised: Epoch, out: &mut Vec<Output<B>>) {
        if self.leading.as_ref().is_some_and(|leading| leading.epoch() < promised) {
            self.step_down(promised, out);
        }
    }

    /// Leads no more: `by` has begun.
    fn step_down(&mut self, by: Epoch, out: &mut Vec<Output<B>>) {
        let Some(leading) = self.leading.take() else { return };
        assert!(leading.epoch() < by, "a primary steps down for a later epoch only");
        self.primary = None;
        self.table = None;
        out.push(Output::Deposed { epoch: leading.epoch(), by });
    }

    fn persisted(&mut self, now: Timestamp, through: Ticket, out: &mut Vec<Output<B>>) {
        let mut acknowledges = false;
        while let Some(persisted) = self.persisting.pop(through) {
            match persisted {
                Persisted::Batch { number, epoch } => {
                    if self.own.batches.get(number).is_some_and(|batch| batch.epoch == epoch) {
                        self.own.durable.insert(number);
                        acknowledges = true;
                    }
                    // The same batch may be here of old, where nobody knows that it counts.
                    if let Some(table) = &mut self.table {
                        acknowledges |= table.persisted(number, epoch);
                    }
                }
                Persisted::Promise(epoch) if epoch == self.own.promised => {
                    self.promise_is_durable(now, epoch, out);
                }
                Persisted::Table(epoch) if epoch == self.own.promised => {
                    self.table_is_durable(epoch);
                    acknowledges = true;
                }
                Persisted::Emptied => self.take_checkpoint(out),
                Persisted::Promise(_) | Persisted::Table(_) => {}
            }
        }
        if !acknowledges {
            return;
        }
        self.own.apply(out);
        self.complete_table(out);
        if self.leading.is_some() {
            self.go_on(now, out);
        } else {
            self.acknowledge(out);
        }
    }
}

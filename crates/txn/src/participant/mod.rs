//! The participant: one per shard primary. It validates, promises, decides with others, and
//! remembers what replays need.
//!
//! ```text
//!   Input ──▶ step ─┬─ read.rs          latest_read, waiting reads, scans
//!                   ├─ prepare.rs       rules 1-3, Later, rounds, conditions, fences
//!                   ├─ finish.rs        durable, decided, applied
//!                   ├─ termination.rs   freeze, backup coordinator, spreading
//!                   ├─ housekeeping.rs  window, read bound, watermark, reports
//!                   ├─ expiry.rs        as of when expiry is judged, and what of it is told
//!                   ├─ log_lost.rs      what goes on without the log
//!                   └─ recovery.rs      the log after a restart           ──▶ Output
//!   state: window.rs (marks) · table.rs (transactions) · clients.rs · waiting.rs · keyspaces.rs
//! ```
//!
//! Invariants: nothing is answered before what it rests on is durable; every token gets exactly one
//! final answer (`Parked` announces that it comes later); a transaction is in at most one place;
//! per key at most one transaction is prepared (but for recovery from an unordered log, which makes
//! several wait in line); the same inputs give the same outputs.
//!
//! Deliberately absent: values, key bytes, message layouts, the clock.

mod carry;
mod clients;
mod expiry;
mod finish;
mod housekeeping;
mod input;
mod log_lost;
mod output;
mod prepare;
mod read;
mod recovery;
mod table;
mod termination;
mod waiting;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

pub use carry::KeptOutcome;
pub use input::{
    Condition, DecisionOrigin, FrozenState, Input, LatestInStore, Prepare, ReadAt, ReadItem,
    Recovered, Ticket, Token, TxnStatus, Vote, Wait, WriteItem, WriteKind,
};
pub use output::{LogIntent, Output};
use timestone_types::{AbortReason, KeyHash, ShardId, Timestamp, TxnId, limits as shared};

use self::clients::Clients;
use self::expiry::ExpiryTime;
use self::housekeeping::Bound;
use self::recovery::Recovery;
use self::table::{Asker, Handle, Place, Table};
pub use self::table::{Holder, InFlight, Written};
use self::termination::Resolution;
use self::waiting::Waiting;
use crate::Refusal;
use crate::planted::bugs;
use crate::validation::{Timestamps, Validation};

/// What can be chosen per shard.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long `Wait::Yes` waits.
    pub prepared_wait: Duration,
    /// Vote `Later` where only the timestamp is too low; `false` is the paper's behaviour (abort).
    pub vote_later: bool,
    /// Holds the watermark back for reads in the past.
    pub history_window: Duration,
    /// After this long without a decision, termination begins.
    pub decision_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prepared_wait: shared::PREPARED_WAIT,
            vote_later: true,
            history_window: Duration::ZERO,
            decision_timeout: shared::DECISION_TIMEOUT,
        }
    }
}

/// What is waited for in the log, and what follows.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Nothing,
    Promise { record: Handle, txn: TxnId, asker: Asker },
    AbortedPromise { record: Handle, txn: TxnId, asker: Asker, reason: AbortReason },
    Committed { record: Handle, txn: TxnId, token: Option<Token> },
    Aborted { txn: TxnId, then: AfterAbort },
    Bound { bound: Timestamp, watermark: Timestamp },
}

/// What follows when an abort is durable.
#[derive(Clone, Copy, Debug)]
enum AfterAbort {
    Vote { asker: Asker, reason: AbortReason },
    Acknowledge(Token),
    Nothing,
}

/// Counts for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Marks in both generations.
    pub marks: usize,
    /// Transactions promised, or committed and not yet applied and logged.
    pub in_flight: usize,
    /// Outcomes that are kept for replays.
    pub kept: usize,
    /// Inputs that wait.
    pub waiting: usize,
    /// Client incarnations that are known.
    pub clients: usize,
    /// Transactions that this shard is bringing to their end.
    pub resolving: usize,
    /// At or above every mark that was dropped.
    pub floor: Timestamp,
}

/// One shard's primary. Starts in recovery: hand it the log's records, then `Input::RecoveryDone`.
#[derive(Debug)]
pub struct Participant<V: Validation = Timestamps> {
    shard: ShardId,
    config: Config,
    recovery: Option<Recovery>,
    validation: V,
    table: Table,
    clients: Clients,
    waiting: Waiting,
    resolutions: BTreeMap<TxnId, Resolution>,
    pending: VecDeque<(Ticket, Pending)>,
    last_ticket: Ticket,
    bound: Bound,
    watermark: Timestamp,
    pledged_watermark: Timestamp,
    /// Commits of the last run in here may have been carried out or not, whatever the watermark:
    /// their promises may be lost.
    uncertain: core::ops::Range<Timestamp>,
    /// From then on their write sets are not asked for: nobody who has one comes any more. Peers
    /// have none, and would tell the decision for ever.
    uncertain_until: Timestamp,
    /// Nothing of this run outlives it: see [`Input::Closing`].
    is_closing: bool,
    /// After a restart, sessions that were live may come back until then.
    returning_until: Timestamp,
    /// How far the physical clock leads the time that this participant is given.
    held_back: Duration,
    expiry: ExpiryTime,
}

impl Participant {
    /// A participant that knows nothing yet, and validates by timestamps.
    #[must_use]
    pub fn new(shard: ShardId, config: Config) -> Self {
        Self::with_validation(Timestamps::default(), shard, config)
    }
}

impl<V: Validation> Participant<V> {
    /// A participant that knows nothing yet, with a strategy of its own.
    #[must_use]
    pub fn with_validation(validation: V, shard: ShardId, config: Config) -> Self {
        Self {
            shard,
            config,
            recovery: Some(Recovery::default()),
            validation,
            table: Table::new(),
            clients: Clients::new(),
            waiting: Waiting::default(),
            resolutions: BTreeMap::new(),
            pending: VecDeque::new(),
            last_ticket: Ticket::default(),
            bound: Bound::default(),
            watermark: Timestamp::ZERO,
            pledged_watermark: Timestamp::ZERO,
            uncertain: Timestamp::ZERO..Timestamp::ZERO,
            uncertain_until: Timestamp::ZERO,
            is_closing: false,
            returning_until: Timestamp::ZERO,
            held_back: Duration::ZERO,
            expiry: ExpiryTime::default(),
        }
    }

    /// Takes one input; appends what is to be done to `out`, in order.
    #[inline]
    pub fn step(&mut self, now: Timestamp, input: Input<'_>, out: &mut Vec<Output>) {
        if self.recovery.is_some() && !bugs().serve_while_recovering {
            return self.step_in_recovery(now, input, out);
        }
        if self.bound.lost && self.step_without_log(now, &input, out) {
            return;
        }
        match input {
            Input::Read { token, keyspace, key, at, wait, latest } => {
                self.read(now, token, keyspace, key, at, wait, latest, out);
            }
            Input::Prepare(prepare) => self.prepare(now, &prepare, out),
            Input::Decide { token, txn, outcome, origin } => {
                self.decide(now, Some(token), txn, outcome, origin, out)
            }
            Input::DecidedWriteSet { prepare } => self.decided_write_set(now, &prepare, out),
            Input::Durable { through } => self.durable(now, through, out),
            Input::Applied { txn } => self.applied(txn, out),
            Input::Report { client, watermark, acked, clock, closing } => {
                self.report(now, client, (watermark, acked, clock), closing)
            }
            Input::Tick => self.tick(now, out),
            Input::Status { token, txn } => {
                let status = match self.status_of(txn) {
                    (status, true) => status,
                    (_, false) => TxnStatus::Unknown,
                };
                out.push(Output::StatusIs { token, txn, status });
            }
            Input::Terminate { token, txn, begin, participants } => {
                self.terminate(now, token, txn, begin, participants, out);
            }
            Input::Freeze { token, txn, begin } => self.freeze(now, token, txn, begin, out),
            Input::FreezeAnswer { from, txn, state } => self.frozen(now, from, txn, state, out),
            Input::DecisionAcked { from, txn } => self.decision_acked(from, txn),
            Input::RaiseFloor { token, keyspace, at, wait } => {
                self.raise_floor(now, token, keyspace, at, wait, out)
            }
            Input::Newest { token, keyspace, latest } => self.newest(token, keyspace, latest, out),
            Input::LogLost => self.lose_log(out),
            Input::Closing => self.spread_all(now, out),
            Input::ClockHeld { back } => self.held_back = back,
            Input::Recovered(_) | Input::RecoveryDone => self.step_in_recovery(now, input, out),
        }
    }

    #[cold]
    fn step_in_recovery(&mut self, now: Timestamp, input: Input<'_>, out: &mut Vec<Output>) {
        let token = match input {
            Input::Recovered(record) => {
                if let Some(recovery) = &mut self.recovery {
                    recovery.add(record);
                }
                return;
            }
            Input::RecoveryDone => {
                if let Some(recovery) = self.recovery.take() {
                    self.recovery_done(now, recovery, out);
                }
                return;
            }
            Input::Read { token, .. }
            | Input::Decide { token, .. }
            | Input::Status { token, .. }
            | Input::Terminate { token, .. }
            | Input::Freeze { token, .. }
            | Input::RaiseFloor { token, .. }
            | Input::Newest { token, .. } => token,
            Input::Prepare(prepare) | Input::DecidedWriteSet { prepare } => prepare.token,
            Input::ClockHeld { back } => {
                self.held_back = back;
                return;
            }
            Input::Durable { .. }
            | Input::Applied { .. }
            | Input::Report { .. }
            | Input::Tick
            | Input::LogLost
            | Input::Closing
            | Input::FreezeAnswer { .. }
            | Input::DecisionAcked { .. } => return,
        };
        out.push(Output::Refuse { token, refusal: Refusal::Recovering });
    }

    /// When the next `Tick` is due; `None` while recovering.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.recovery.is_none().then(|| self.deadline())
    }

    /// A hint that the key will be read or written in a moment: brings its mark into the
    /// processor's cache.
    #[inline]
    pub fn prefetch(&self, key: KeyHash) {
        self.validation.prefetch(key);
    }

    /// Which shard this is.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The durable watermark: versions below it may be gone.
    #[must_use]
    pub fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// To be asked just before a read at `at` is answered: versions may have been collected while a
    /// page was read.
    ///
    /// # Errors
    /// [`Refusal::TooOld`] when the watermark has passed `at` meanwhile.
    pub fn check_answer(&self, at: Timestamp) -> Result<(), Refusal> {
        if at < self.watermark && !bugs().skip_answer_check {
            return Err(Refusal::TooOld { watermark: self.watermark });
        }
        Ok(())
    }

    /// All participants of a transaction that is in flight here; empty when it is not.
    #[must_use]
    pub fn participants_of(&self, txn: TxnId) -> &[ShardId] {
        match self.table.find(txn) {
            Some(Place::Flight(slot)) => self.table.record(slot).participants.as_slice(),
            _ => &[],
        }
    }

    /// Counts for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            marks: self.validation.len(),
            in_flight: self.table.in_flight(),
            kept: self.table.kept_len(),
            waiting: self.waiting.len(),
            clients: self.clients.all().len(),
            resolving: self.resolutions.len(),
            floor: self.validation.low_water(),
        }
    }

    fn log(&mut self, intent: LogIntent, pending: Pending, out: &mut Vec<Output>) {
        self.last_ticket = Ticket(self.last_ticket.0 + 1);
        let ticket = self.last_ticket;
        self.pending.push_back((ticket, pending));
        out.push(Output::Log { ticket, intent });
    }

    /// Until when an input may wait for a decision; `None` when it may not.
    fn may_wait(&self, now: Timestamp, wait: Wait) -> Option<Timestamp> {
        let deadline = match wait {
            Wait::No => return None,
            Wait::Yes => now.saturating_add(self.config.prepared_wait),
            Wait::Until(deadline) => deadline,
        };
        (deadline > now && !self.waiting.is_full()).then_some(deadline)
    }

    fn park(
        &mut self,
        token: Token,
        owner: Handle,
        reads: bool,
        deadline: Timestamp,
        out: &mut Vec<Output>,
    ) {
        self.waiting.park(&mut self.table, owner, reads, token, deadline);
        out.push(Output::Parked { token });
    }

    /// Parks a question about a transaction; the caller has marked it as asked about.
    fn park_asking(&mut self, txn: TxnId, token: Token, out: &mut Vec<Output>) {
        if self.waiting.is_full() {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        self.waiting.park_asking(txn, token);
        out.push(Output::Parked { token });
    }

    /// The guard against broken clocks.
    #[inline]
    fn within_lead(&self, now: Timestamp, at: Timestamp) -> Result<(), Refusal> {
        let lead = at.since(now);
        if lead > shared::MAX_CLOCK_LEAD && !bugs().trust_every_clock {
            return Err(self.refuse_lead(lead));
        }
        Ok(())
    }

    /// The same for a read: at or below the floor it raises no mark, so that it does no harm
    /// however far ahead it is.
    #[inline]
    fn may_read_at(&self, now: Timestamp, at: Timestamp) -> Result<(), Refusal> {
        if at <= self.validation.low_water() { Ok(()) } else { self.within_lead(now, at) }
    }

    /// Who reads what is latest needs no timestamp of its own: one that leads because the server's
    /// clock is held is not waited for.
    #[inline]
    fn latest_asked(&self, now: Timestamp, asked: Timestamp) -> Timestamp {
        if self.bound.lost {
            return self.latest_without_log(asked);
        }
        let allowed = now.saturating_add(shared::MAX_CLOCK_LEAD);
        if asked <= allowed || asked.since(allowed) > self.held_back { asked } else { allowed }
    }

    #[cold]
    fn refuse_lead(&self, lead: Duration) -> Refusal {
        let wait = lead.saturating_sub(shared::MAX_CLOCK_LEAD);
        if wait <= self.held_back {
            Refusal::ClockHeld { wait }
        } else {
            Refusal::ClockAhead { lead }
        }
    }
}

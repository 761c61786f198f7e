//! The participant: one per shard primary. It validates, promises, decides with others, and
//! remembers what replays need.
//!
//! ```text
//!   Input ──▶ step ─┬─ admission.rs     the clock guard, the watermark, the read bound (present.rs: replicas)
//!                   │     └─▶ life.rs   promises.rs, decisions.rs, at_once.rs: one transaction from prepare to outcome
//!                   │           └─▶ crate::validation   rules about keys
//!                   ├─ termination.rs   when the client is silent       ├─ propagation.rs  telling commits
//!                   ├─ housekeeping.rs  time, durability, the watermark  ├─ log_lost.rs     without the log
//!                   ├─ closed.rs        timestamps for reads at backups  │
//!                   └─ recovery.rs      the log after a restart                               ──▶ Output
//!   state: transactions.rs (table.rs, clients.rs) · waiting.rs · appended.rs · horizon.rs (expiry.rs)
//! ```
//!
//! Each part owns its state; [`Participant`] owns the parts and passes each what it needs.
//!
//! Invariants: nothing is answered before what it rests on is durable; every token gets exactly one
//! final answer (`Parked` announces that it comes later); a transaction is in at most one place;
//! per key at most one transaction is prepared (but for recovery from an unordered log, which makes
//! several wait in line); the same inputs give the same outputs.
//!
//! Deliberately absent: values, key bytes, message layouts, the clock.

mod admission;
mod appended;
mod at_once;
mod clients;
mod closed;
mod copy_forward;
mod decisions;
mod direct;
mod expiry;
mod horizon;
mod housekeeping;
mod input;
mod life;
mod log_lost;
mod output;
mod present;
mod promises;
mod propagation;
mod recovery;
mod table;
mod termination;

mod transactions;
mod waiting;

use core::time::Duration;

pub use copy_forward::{CopyForward, KeptOutcome, KeptPromise};
pub use expiry::ExpiryRule;
pub use horizon::Collected;
pub use input::{
    DecidedBy, DirectWrite, FrozenState, Input, JudgedCondition, LatestInStore, LogRange,
    LogSequence, Lookup, Prepare, RangeItem, ReadAt, ReadItem, Recovered, Token, TxnStatus, Vote,
    Wait, WriteItem, WriteKind,
};
pub use output::{DirectAnswer, LogIntent, Output};
use timestone_types::{KeyHash, KeyspaceId, ShardId, Timestamp, is_planted, limits as shared};

use self::admission::{ReadAsked, ScanAsked};
use self::decisions::Decision;
use self::horizon::Horizon;
use self::life::Lifecycle;
use self::log_lost::answer_without_log;
use self::propagation::Propagation;
use self::recovery::LogReplay;
pub use self::table::{Holder, InFlight, Written};
use self::termination::{Ask, Termination};
use self::transactions::Report;
use crate::Refusal;
use crate::limits::{BOUND_AHEAD, MAX_GENERATION_ENTRIES};
use crate::validation::{KeyRead, Timestamps, Validation};

/// What can be chosen per shard.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long `Wait::Yes` waits.
    pub prepared_wait: Duration,
    /// Vote `Later` where only the timestamp is too low; `false` is the paper's behaviour (abort).
    pub vote_later: bool,
    /// Holds the watermark back for reads in the past.
    pub history: Duration,
    /// How far behind the clock the watermark stays at least, so that a session that is new, or whose
    /// clock is behind, may begin above it. Less than [`shared::WATERMARK_LAG`]: for experiments.
    pub watermark_lag: Duration,
    /// Whether nothing commits at or below a timestamp at which a key was read in a snapshot. Off, no
    /// read leaves a trace: for experiments, in which clients do not take that for granted
    /// ([`crate::validation::BelowWatermark`]).
    pub notes_reads: bool,
    /// After this long without a decision, termination begins.
    pub decision_timeout: Duration,
    /// The shard has other replicas, one of which may become primary without this one's knowing, or
    /// may have been primary before: what promises the present goes by true time. Whoever says so
    /// tells how wrong the clock is ([`Input::ClockError`]).
    pub has_replicas: bool,
    /// How far ahead of the clock the read bound is written, which is the lease of a primary: from
    /// [`MIN_LEASE`](crate::limits::MIN_LEASE) to [`BOUND_AHEAD`]. A bound
    /// that a clock's error needs lies further ahead.
    pub lease: Duration,
    /// Most keys that are remembered of one generation of recent accesses, which bounds their memory:
    /// at most [`MAX_GENERATION_ENTRIES`]. With fewer of them a busy shard forgets sooner.
    pub recent_keys: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prepared_wait: shared::PREPARED_WAIT,
            vote_later: true,
            history: Duration::ZERO,
            watermark_lag: shared::WATERMARK_LAG,
            notes_reads: true,
            decision_timeout: shared::DECISION_TIMEOUT,
            has_replicas: false,
            lease: BOUND_AHEAD,
            recent_keys: MAX_GENERATION_ENTRIES,
        }
    }
}

/// Figures of a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Versions below it may be gone.
    pub watermark: Timestamp,
    /// Keys whose use is remembered.
    pub access_records: usize,
    /// Memory of what is remembered of them, in bytes.
    pub access_bytes: usize,
    /// Transactions promised, or committed and not yet applied and logged.
    pub in_flight: usize,
    /// Outcomes that are kept for replays.
    pub kept: usize,
    /// Inputs that wait.
    pub waiting: usize,
    /// Client incarnations that are known.
    pub clients: usize,
    /// Transactions that this shard is bringing to their end, or telling others of.
    pub resolving: usize,
    /// At or above every access record that was dropped.
    pub low_water: Timestamp,
    /// As of when expiry is judged.
    pub expiry: ExpiryRule,
}

/// One shard's primary. Starts in recovery: hand it the log's records, then `Input::RecoveryDone`.
#[derive(Debug)]
pub struct Participant<V: Validation = Timestamps> {
    recovery: Option<LogReplay>,
    horizon: Horizon,
    life: Lifecycle<V>,
    termination: Termination,
    propagation: Propagation,
}

impl Participant {
    /// A participant that knows nothing yet, and validates by timestamps.
    #[must_use]
    pub fn new(shard: ShardId, config: Config) -> Self {
        Self::with_validation(Timestamps::remembering(config.recent_keys), shard, config)
    }
}

impl<V: Validation> Participant<V> {
    /// A participant that knows nothing yet, with a strategy of its own.
    #[must_use]
    pub fn with_validation(validation: V, shard: ShardId, config: Config) -> Self {
        Self {
            recovery: Some(LogReplay::default()),
            horizon: Horizon::new(config.has_replicas, config.lease),
            life: Lifecycle::new(validation, config),
            termination: Termination::new(shard),
            propagation: Propagation::new(shard, config.decision_timeout),
        }
    }

    /// Takes one input; appends what is to be done to `out`, in order.
    #[inline]
    pub fn step(&mut self, now: Timestamp, input: Input<'_>, out: &mut Vec<Output>) {
        if self.recovery.is_some() && !is_planted!(ServesInRecovery) {
            return self.step_in_recovery(now, input, out);
        }
        self.horizon.assert_sound();
        if self.horizon.present.is_waiting() && self.waits_for_present(now, &input, out) {
            return;
        }
        if self.horizon.bound.is_lost()
            && answer_without_log(&self.life, &self.horizon.watermark, &input, out)
        {
            return;
        }
        match input {
            Input::Read { token, keyspace, key, at, wait, latest: store } => {
                let latest = matches!(at, ReadAt::Latest(_));
                let is_noted = latest || self.life.config.notes_reads;
                let key = KeyRead { keyspace, key, latest, is_noted, store };
                self.read(now, ReadAsked { token, key, at, wait }, out);
            }
            Input::Prepare(prepare) => self.prepare(now, &prepare, out),
            Input::PutDone { prepare } => self.life.put_done(&prepare, out),
            Input::DirectRead { keyspace, key, at, latest: store } => {
                let key = KeyRead { keyspace, key, latest: true, is_noted: true, store };
                out.push(Output::Direct(self.direct_read(now, &key, at)));
            }
            Input::DirectWrite(write) => {
                out.push(Output::Direct(self.direct_write(now, &write)));
            }
            Input::DirectPutDone(write) => self.direct_put_done(&write),
            Input::Decide { token, txn, outcome, decided_by } => {
                self.decide(now, Decision { token: Some(token), txn, outcome, decided_by }, out)
            }
            Input::DecidedWriteSet { prepare } => self.decided_write_set(now, &prepare, out),
            Input::Durable { range } => self.durable(now, range, out),
            Input::Applied { txn } => self.life.applied(txn, out),
            Input::Report { client, watermark, acked, clock, closing } => {
                self.life.txns.report(now, Report { client, watermark, acked, clock, closing })
            }
            Input::Tick => self.tick(now, out),
            Input::Scan { token, keyspace, at, wait } => {
                self.scan(now, &ScanAsked { token, keyspace, at, wait, range: None }, out)
            }
            Input::Range { token, range, at, wait, writers } => {
                let (keyspace, range) = (range.keyspace, Some((range, writers)));
                self.scan(now, &ScanAsked { token, keyspace, at, wait, range }, out);
            }
            Input::Newest { token, keyspace, latest } => {
                self.newest(now, (token, keyspace, latest), out)
            }
            Input::LogLost => self.lose_log(out),
            Input::CloseTimestamp => out.push(Output::Closed { at: self.close_timestamp(now) }),
            Input::ClockHeld { back } => self.horizon.held_back = back,
            Input::ClockError { bound } => self.horizon.present.set_error(bound),
            Input::Leases { are_short } => self.horizon.bound.set_short(are_short),
            Input::Recovered(_) | Input::RecoveryDone => self.step_in_recovery(now, input, out),
            Input::Status { .. }
            | Input::Terminate { .. }
            | Input::Freeze { .. }
            | Input::FreezeAnswer { .. }
            | Input::DecisionAcked { .. }
            | Input::Closing
            | Input::Owes { .. }
            | Input::Recognise { .. }
            | Input::CopyForward => self.step_to_the_end(now, input, out),
        }
    }

    /// When a range was read that a key lies in, if that was at or above a timestamp; else zero. Whoever
    /// hands in a write says this of its key, in the same turn.
    #[inline]
    #[must_use]
    pub fn range_read_at(&self, keyspace: KeyspaceId, key: &[u8], above: Timestamp) -> Timestamp {
        self.life.validation.range_read_at(keyspace, key, above)
    }

    /// What holds whenever something is served. Not before the log was read to its end: what it
    /// promised, and how far it served, is not known before.
    #[inline]
    fn assert_serving(&self) {
        debug_assert!(
            self.recovery.is_none() || is_planted!(ServesInRecovery),
            "nothing is served before the log was read"
        );
        self.horizon.assert_sound();
    }

    /// What is asked and told about the end of transactions.
    fn step_to_the_end(&mut self, now: Timestamp, input: Input<'_>, out: &mut Vec<Output>) {
        let (life, horizon) = (&mut self.life, &self.horizon);
        let watermark = &horizon.watermark;
        // What nobody knows is kept out by a record, which stays until the watermark has passed its begin.
        if let Input::Terminate { token, txn, begin, .. } | Input::Freeze { token, txn, begin } =
            input
            && life.txns.table.find(txn).is_none()
            && !is_planted!(RecordsTheFuture)
            && let Err(refusal) = horizon.may_read_at(now, begin, life.validation.low_water())
        {
            return out.push(Output::Refuse { token, refusal });
        }
        match input {
            Input::Status { token, txn } => {
                let status = match life.txns.status_of(txn) {
                    (status, true) => status,
                    (_, false) => TxnStatus::Unknown,
                };
                out.push(Output::StatusIs { token, txn, status });
            }
            Input::Terminate { token, txn, begin, participants } => {
                let ask = Ask { token, txn, begin, participants };
                self.termination.terminate(now, life, watermark, ask, out);
            }
            Input::Freeze { token, txn, begin } => {
                self.termination.freeze(now, life, watermark, (token, txn, begin), out)
            }
            Input::FreezeAnswer { from, txn, state } => {
                // What cannot have been promised or decided is no answer: it is asked for again.
                let told = state.timestamp();
                let low_water = life.validation.low_water();
                if told.is_none_or(|at| horizon.may_commit_at(now, at, low_water).is_ok()) {
                    self.termination.frozen(life, from, txn, state, out);
                }
            }
            Input::DecisionAcked { from, txn } => self.propagation.acked(&mut life.txns, from, txn),
            Input::Closing => {
                self.propagation.begin_all(now, &life.txns, &mut life.waiting, out);
                out.push(self.owed(Timestamp::MAX));
            }
            Input::Owes { until } => out.push(self.owed(until)),
            Input::Recognise { token, txn, begin } => {
                let is_new = life.txns.table.find(txn).is_none()
                    && !life.txns.is_acked(txn)
                    && begin >= watermark.pledged();
                out.push(Output::Recognised { token, is_new });
            }
            Input::CopyForward => {
                let copy = life.txns.copy_forward(self.horizon.bound.durable());
                out.push(Output::CopyForward(Box::new(copy)));
            }
            _ => debug_assert!(false, "an input is taken by one of the two"),
        }
    }

    /// What would be lost with this run, of commits at or below `until`.
    fn owed(&self, until: Timestamp) -> Output {
        let (txns, watermark) = (&self.life.txns, &self.horizon.watermark);
        Output::Owed {
            decisions: txns.owes_decisions(until),
            aborts: watermark.is_uncertain_after(watermark.durable())
                && txns.keeps_aborts(watermark.uncertain_end()),
        }
    }

    #[cold]
    fn step_in_recovery(&mut self, now: Timestamp, input: Input<'_>, out: &mut Vec<Output>) {
        assert!(
            self.recovery.is_some() || matches!(input, Input::Recovered(_) | Input::RecoveryDone),
            "what a run serves does not wait for its log"
        );
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
            | Input::Scan { token, .. }
            | Input::Range { token, .. }
            | Input::Recognise { token, .. }
            | Input::Newest { token, .. } => token,
            Input::Prepare(prepare)
            | Input::PutDone { prepare }
            | Input::DecidedWriteSet { prepare } => prepare.token,
            Input::ClockHeld { back } => {
                self.horizon.held_back = back;
                return;
            }
            Input::ClockError { bound } => return self.horizon.present.set_error(bound),
            Input::Leases { are_short } => return self.horizon.bound.set_short(are_short),
            Input::DirectRead { .. } | Input::DirectWrite(_) => {
                return out.push(Output::Direct(DirectAnswer::Indirect));
            }
            Input::CloseTimestamp => return out.push(Output::Closed { at: Timestamp::ZERO }),
            Input::Durable { .. }
            | Input::Applied { .. }
            | Input::Report { .. }
            | Input::Tick
            | Input::LogLost
            | Input::Closing
            | Input::Owes { .. }
            | Input::CopyForward
            | Input::FreezeAnswer { .. }
            | Input::DirectPutDone(_)
            | Input::DecisionAcked { .. } => return,
        };
        out.push(Output::Refuse { token, refusal: Refusal::Recovering });
    }

    /// When the next `Tick` is due; `None` while recovering.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Timestamp> {
        self.recovery.is_none().then(|| self.deadline())
    }

    /// Where a look-up of what is known of a key begins. It tells nothing: it is there to be fetched
    /// into the processor's cache, when the key will be read or written in a moment.
    #[inline]
    pub fn home_of(&self, key: KeyHash) -> Option<&impl Sized> {
        self.life.validation.home_of(key)
    }

    /// Figures for gauges and tests; nothing is decided by them.
    #[must_use]
    pub fn view(&self, now: Timestamp) -> View {
        let mut expiry = self.horizon.expiry;
        View {
            expiry: expiry.rule(now, Timestamp::MAX, self.horizon.bound.is_lost()),
            watermark: self.horizon.watermark.durable(),
            access_records: self.life.validation.len(),
            access_bytes: self.life.validation.memory_bytes(),
            in_flight: self.life.txns.table.in_flight(),
            kept: self.life.txns.table.kept_len(),
            waiting: self.life.waiting.len(),
            clients: self.life.txns.clients(),
            resolving: self.termination.len() + self.propagation.len(),
            low_water: self.life.validation.low_water(),
        }
    }
}

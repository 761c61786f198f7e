//! One session: a task on an event loop that runs transaction after transaction.
//!
//! ```text
//!   (wait for the intended start) ─► plan ─► begin ─ get … get ─ put … ─ commit ─► recorder, history, totals ─┐
//!        ▲                                     ▲                          └── aborted, --retry ──┐            │
//!        └─────────────────────────────────────┴──────────────────────────────────────────────────┴───────────┘
//! ```
//! Gets are awaited one after another, as an application would; puts wait for the commit. Buffers
//! are used again.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use timestone::{
    AbortKind, Error, ErrorCode, LocalDb, LocalTransaction, ScanOptions, TransactionOptions,
};
use timestone_clock::{Clock, SystemClock};
use timestone_types::{Expiry, Timestamp};
use timestone_workload::history::{self, Completion, MicroOp, Seen, SessionSlot};
use timestone_workload::{
    Generator, KeyIndex, KeyShape, Op, TxnPlan, ValueKind, WorkloadError, WorkloadKind, integer_of,
    list_of, write_integer, write_list_element,
};

use super::board::{BenchRun, Board};
use super::limits::{ERROR_PAUSE, TICK};
use crate::failure::Failure;

/// A session with its buffers.
pub(super) struct BenchSession {
    db: LocalDb,
    run: Arc<BenchRun>,
    board: Rc<Board>,
    slot: SessionSlot,
    generator: Generator,
    plan: TxnPlan,
    shape: KeyShape,
    options: TransactionOptions,
    key: Vec<u8>,
    value: Vec<u8>,
    /// What the transaction read and wrote, where a history is written.
    seen: Vec<MicroOp>,
    /// Bank: sum of the balances read.
    sum: i64,
    /// When the attempt began, counted from the run's begin: what expires does so from then on.
    began: Timestamp,
}

/// How an attempt ended, other than by a commit.
enum AttemptFailure {
    Aborted(AbortKind),
    Unknown,
    Refused(Error),
    /// The data is not the workload's: nothing that follows would mean anything.
    Broken(WorkloadError),
}

/// What comes after an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    /// The next transaction, at once.
    Next,
    /// The next transaction, after a pause.
    Pause,
    /// The same one.
    Again,
}

impl From<WorkloadError> for AttemptFailure {
    fn from(error: WorkloadError) -> Self {
        Self::Broken(error)
    }
}

impl From<Error> for AttemptFailure {
    fn from(error: Error) -> Self {
        match error.abort_kind() {
            Some(kind) => Self::Aborted(kind),
            None if error.code() == ErrorCode::UnknownOutcome => Self::Unknown,
            None => Self::Refused(error),
        }
    }
}

/// What a failed commit means: what is not known to have had no effect may have had one.
fn commit_failed(error: Error) -> AttemptFailure {
    if error.had_no_effect() { error.into() } else { AttemptFailure::Unknown }
}

/// When what is written now for so long expires, by this machine's clock.
fn expires_after(millis: u32) -> Expiry {
    Expiry::at(history::expiry(SystemClock::new().now(), millis))
}

impl BenchSession {
    pub(super) fn new(
        db: LocalDb,
        board: &Rc<Board>,
        slot: SessionSlot,
        generator: Generator,
    ) -> Self {
        let run = Arc::clone(&board.run);
        let shape = run.spec.key_shape();
        Self {
            db,
            run,
            board: Rc::clone(board),
            slot,
            generator,
            plan: TxnPlan::default(),
            shape,
            options: TransactionOptions::default(),
            key: Vec::new(),
            value: Vec::new(),
            seen: Vec::new(),
            sum: 0,
            began: Timestamp::ZERO,
        }
    }

    /// Runs until the run is over.
    pub(super) async fn run(mut self) {
        if let Err(failure) = self.run_all().await {
            self.board.give_up(failure);
        }
        self.board.live.set(self.board.live.get() - 1);
    }

    async fn run_all(&mut self) -> Result<(), Failure> {
        let mut ready = Instant::now();
        while !self.run.course.is_over() {
            if let Some(offset) = self.board.next_start() {
                ready = self.run.course.begin + offset;
                self.wait_until(ready).await?;
                if self.run.course.is_over() {
                    break;
                }
            }
            self.generator.next(&mut self.plan);
            if self.run.singles && self.run.spec.kind == WorkloadKind::Register {
                // Registers are read before they are written; one request does one of it.
                self.plan.ops.drain(..self.plan.ops.len().saturating_sub(1));
            }
            let is_read_only = self.plan.is_read_only();
            let next = loop {
                let ending = self.attempt().await?;
                let now = Instant::now();
                match self.record(ending, now.duration_since(ready), is_read_only).await? {
                    After::Again if !self.run.course.is_over() => {}
                    After::Again | After::Next => break now,
                    After::Pause => break Instant::now(),
                }
            };
            if self.board.next_is_at_once() {
                ready = next;
            }
        }
        Ok(())
    }

    /// Sleeps until an intended start, looking up now and then whether the run is over.
    async fn wait_until(&self, start: Instant) -> Result<(), Failure> {
        while !self.run.course.is_over() {
            let left = start.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.db.sleep(left.min(TICK)).await?;
        }
        Ok(())
    }

    /// Writes down how an attempt ended; tells what comes after it.
    async fn record(
        &mut self,
        ending: Result<(), AttemptFailure>,
        latency: std::time::Duration,
        is_read_only: bool,
    ) -> Result<After, Failure> {
        let is_measured = self.run.course.is_measured();
        let mut pause = None;
        let mut again = false;
        {
            let mut recorder = self.board.recorder.borrow_mut();
            match ending {
                Ok(()) if is_measured => recorder.committed(latency, is_read_only),
                Err(AttemptFailure::Aborted(kind)) => {
                    again = self.run.retry && kind.retryable();
                    if is_measured {
                        recorder.aborted(kind, is_read_only);
                    }
                }
                Err(AttemptFailure::Unknown) if is_measured => recorder.unknown(),
                Err(AttemptFailure::Refused(error)) => {
                    if is_measured {
                        recorder.error();
                    }
                    pause = Some(error.retry_after().unwrap_or(ERROR_PAUSE));
                    self.board.first_error.borrow_mut().get_or_insert(error);
                }
                Err(AttemptFailure::Broken(error)) => {
                    return Err(Failure::failed(error.to_string()));
                }
                Ok(()) | Err(AttemptFailure::Unknown) => {}
            }
        }
        if let Some(pause) = pause {
            self.db.sleep(pause).await?;
            return Ok(After::Pause);
        }
        Ok(if again { After::Again } else { After::Next })
    }

    /// Runs the plan once, with its lines in the history.
    async fn attempt(&mut self) -> Result<Result<(), AttemptFailure>, Failure> {
        let Some(chronicle) = &self.run.chronicle else { return Ok(self.execute().await) };
        let lost = |error: WorkloadError| Failure::failed(error.to_string());
        self.began = Timestamp::from_nanos(
            u64::try_from(self.run.course.begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
        );
        history::invocation(&self.plan, self.began, &mut self.seen);
        chronicle.invoke(self.slot, &self.seen).map_err(lost)?;
        self.seen.clear();
        let run = Arc::clone(&self.run);
        let ending = self.execute().await;
        let fate = match &ending {
            Ok(()) => Completion::Committed(&self.seen),
            Err(AttemptFailure::Unknown) => Completion::Unknown,
            Err(
                AttemptFailure::Aborted(_) | AttemptFailure::Refused(_) | AttemptFailure::Broken(_),
            ) => Completion::Aborted,
        };
        run.chronicle
            .as_ref()
            .map_or(Ok(()), |chronicle| chronicle.complete(self.slot, fate))
            .map_err(lost)?;
        Ok(ending)
    }

    async fn execute(&mut self) -> Result<(), AttemptFailure> {
        if self.run.singles {
            return self.execute_single().await;
        }
        let max_staleness = self.run.max_staleness.filter(|_| self.plan.is_read_only());
        let options = TransactionOptions { max_staleness, ..self.options.clone() };
        let tx = Rc::new(self.db.begin(&options)?);
        self.sum = 0;
        let is_measured = self.run.course.is_measured();
        if let Some(snapshots) = &self.run.snapshots
            && is_measured
            && self.plan.is_read_only()
        {
            snapshots.look(self.plan.ops.iter().map(|op| op.key()), tx.begin_timestamp()?);
        }
        for at in 0..self.plan.ops.len() {
            let op = self.plan.ops[at];
            self.step(&tx, op).await?;
        }
        let committed = tx.commit().await.map_err(commit_failed)?;
        if let Some(snapshots) = &self.run.snapshots {
            let writes = self.plan.ops.iter().filter(|op| op.writes());
            writes.for_each(|op| snapshots.acknowledge(op.key(), committed));
        }
        if self.run.spec.kind == WorkloadKind::Bank && self.plan.is_read_only() {
            let mut totals = self.board.totals.get();
            totals.check(self.sum, self.run.spec.total_balance());
            self.board.totals.set(totals);
        }
        Ok(())
    }

    /// The plan as one request: its one operation, or a read and a write of the same key.
    async fn execute_single(&mut self) -> Result<(), AttemptFailure> {
        let Some(&op) = self.plan.ops.last() else { return Ok(()) };
        let key = op.key();
        self.key.clear();
        self.shape.write(key, &mut self.key);
        self.value.clear();
        let written = match op {
            Op::Put(_) => {
                self.run.spec.write_value(key, &mut self.value);
                let swapped = self.db.swap(&self.key, &self.value).await;
                return swapped.map(drop).map_err(commit_failed);
            }
            Op::Write { value, .. } => {
                write_integer(value, &mut self.value);
                self.note(MicroOp::Write { key, value: Some(value) });
                self.db.put(&self.key, &self.value).await
            }
            Op::WriteFor { value, millis, .. } => {
                write_integer(value, &mut self.value);
                let until = history::expiry(self.began, millis);
                self.note(MicroOp::WriteUntil { key, value, until });
                self.db.put_until(&self.key, &self.value, expires_after(millis)).await
            }
            Op::Delete(_) => {
                self.note(MicroOp::Write { key, value: None });
                self.db.delete(&self.key).await
            }
            _ => {
                let found = self.db.get(&self.key).await?;
                return self.look_at(key, found.as_deref());
            }
        };
        written.map(drop).map_err(commit_failed)
    }

    async fn step(&mut self, tx: &Rc<LocalTransaction>, op: Op) -> Result<(), AttemptFailure> {
        let key = op.key();
        self.key.clear();
        self.shape.write(key, &mut self.key);
        self.value.clear();
        match op {
            Op::Get(_) => {
                if self.run.spec.value_kind() == ValueKind::Opaque {
                    // Looked at where it lies, as an application would that does not keep it.
                    let bytes =
                        tx.get_with(&self.key, |found| found.map_or(0, <[u8]>::len)).await?;
                    std::hint::black_box(bytes);
                } else {
                    let found = tx.get(&self.key).await?;
                    self.look_at(key, found.as_deref())?;
                }
                return Ok(());
            }
            Op::Scan { count, .. } => return self.scan(tx, count).await,
            Op::Put(_) => self.run.spec.write_value(key, &mut self.value),
            Op::PutFor { millis, .. } => {
                self.run.spec.write_value(key, &mut self.value);
                tx.put_until(&self.key, &self.value, expires_after(millis))?;
                return Ok(());
            }
            Op::WriteFor { value, millis, .. } => {
                write_integer(value, &mut self.value);
                self.note(MicroOp::WriteUntil {
                    key,
                    value,
                    until: history::expiry(self.began, millis),
                });
                tx.put_until(&self.key, &self.value, expires_after(millis))?;
                return Ok(());
            }
            Op::Close { into, .. } => return self.close(tx, key, into).await,
            Op::Add { delta, .. } => {
                let balance = self.balance(tx, key).await?.unwrap_or_default();
                let next = balance + delta;
                if next < 0 {
                    tx.abort();
                    return Err(AttemptFailure::Aborted(AbortKind::Requested));
                }
                write_integer(next, &mut self.value);
                self.note(MicroOp::Write { key, value: Some(next) });
            }
            Op::Append { element, .. } => {
                let found = tx.get(&self.key).await?;
                self.value.extend_from_slice(found.as_deref().unwrap_or_default());
                write_list_element(element, &mut self.value);
                self.note(MicroOp::Append { key, element });
            }
            Op::Delete(_) => {
                self.note(MicroOp::Write { key, value: None });
                tx.delete(&self.key)?;
                return Ok(());
            }
            Op::Write { value, .. } => {
                write_integer(value, &mut self.value);
                self.note(MicroOp::Write { key, value: Some(value) });
            }
        }
        tx.put(&self.key, &self.value)?;
        Ok(())
    }

    /// Reads up to so many keys with their values, from `self.key` on.
    async fn scan(&self, tx: &Rc<LocalTransaction>, count: u32) -> Result<(), AttemptFailure> {
        let (from, limit) = (self.key.clone(), usize::try_from(count).ok());
        let mut scan = tx.scan(&ScanOptions { from, limit, ..ScanOptions::default() })?;
        while let Some((_, value)) = scan.next().await? {
            std::hint::black_box(value.len());
        }
        Ok(())
    }

    /// Bank: what the account under `self.key` holds; `None` for one that is closed.
    async fn balance(
        &mut self,
        tx: &LocalTransaction,
        key: KeyIndex,
    ) -> Result<Option<i64>, AttemptFailure> {
        let found = tx.get(&self.key).await?;
        if found.is_none() && self.run.spec.delete_percent > 0 {
            self.note(MicroOp::Read { key, seen: Seen::Nothing });
            return Ok(None);
        }
        let balance = integer_of(found.as_deref().unwrap_or_default())?;
        self.note(MicroOp::Read { key, seen: Seen::Integer(balance) });
        Ok(Some(balance))
    }

    /// Bank: all that an account holds goes to another one, and the account with it.
    async fn close(
        &mut self,
        tx: &LocalTransaction,
        account: KeyIndex,
        into: KeyIndex,
    ) -> Result<(), AttemptFailure> {
        let Some(moved) = self.balance(tx, account).await? else {
            tx.abort();
            return Err(AttemptFailure::Aborted(AbortKind::Requested));
        };
        tx.delete(&self.key)?;
        self.key.clear();
        self.shape.write(into, &mut self.key);
        let next = self.balance(tx, into).await?.unwrap_or_default() + moved;
        write_integer(next, &mut self.value);
        tx.put(&self.key, &self.value)?;
        self.note(MicroOp::Write { key: into, value: Some(next) });
        self.note(MicroOp::Write { key: account, value: None });
        Ok(())
    }

    /// A read of a workload whose values mean something.
    fn look_at(&mut self, key: KeyIndex, found: Option<&[u8]>) -> Result<(), AttemptFailure> {
        let seen = match (self.run.spec.value_kind(), found) {
            (_, None) => Seen::Nothing,
            (ValueKind::List, Some(bytes)) => {
                let mut list = Vec::new();
                list_of(bytes, &mut list)?;
                Seen::List(list)
            }
            (_, Some(bytes)) => {
                let value = integer_of(bytes)?;
                self.sum = self.sum.wrapping_add(value);
                Seen::Integer(value)
            }
        };
        self.note(MicroOp::Read { key, seen });
        Ok(())
    }

    fn note(&mut self, op: MicroOp) {
        if self.run.chronicle.is_some() {
            self.seen.push(op);
        }
    }
}

//! What a session of a simulated client does: the workload's plans, loading before them, reading
//! everything after them.
//!
//! Tasks on the client's event loop, written as an application would; they see the store through
//! [`LocalDb`] alone.

mod giving_up;
mod tasks;
mod values;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use timestone_client::{
    Error, ErrorCode, LocalDb, LocalTransaction, Result, ScanOptions, TransactionOptions, Value,
};
use timestone_types::{Expiry, KeyspaceId, Timestamp};
use timestone_workload::history::{MicroOp, Seen, expiry, invocation};
use timestone_workload::{
    KeyIndex, Op, TxnPlan, WorkloadError, WorkloadSpec, integer_of, write_integer,
    write_list_element,
};

pub(crate) use self::tasks::{audit, load, touch};
pub(crate) use self::values::VANISHED;
use self::values::{read_value, write_value_of};
use crate::board::{Board, ClientWork, PlannedRange, TxnEnd};
use crate::clock::TimeJudge;
use crate::single::{Precondition, Single, SingleChange, expiry_at};
use timestone_costmodel::Counter;

/// After an error that is no conflict, a session rests for this long.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// How an attempt ended, other than by a commit.
enum AttemptEnd {
    Aborted,
    Failed(Error),
    Unknown,
    /// An operation was dropped.
    GivenUp,
    Broken(String),
}

impl From<Error> for AttemptEnd {
    fn from(error: Error) -> Self {
        match error.abort_kind() {
            Some(_) => Self::Aborted,
            None if error.code() == ErrorCode::UnknownOutcome => Self::Unknown,
            None => Self::Failed(error),
        }
    }
}

impl From<WorkloadError> for AttemptEnd {
    fn from(error: WorkloadError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// What a failed commit means: what is not known to have had no effect may have had one.
fn commit_failed(board: &Board, error: Error) -> AttemptEnd {
    board.judge_error(&error);
    if error.had_no_effect() { error.into() } else { AttemptEnd::Unknown }
}

struct ClientSession {
    db: LocalDb,
    board: Arc<Board>,
    slot: usize,
    keyspace: KeyspaceId,
    key: Vec<u8>,
    value: Vec<u8>,
    seen: Vec<MicroOp>,
    /// When the transaction began, counted from the run's begin: what expires does so from then on.
    began: Timestamp,
    /// Of clients that follow the servers' time.
    judge: Option<TimeJudge>,
    /// Reads of the client that backups have answered, as counted so far; `None`: another session
    /// counts them.
    backup_reads: Option<u64>,
    /// It only reads, and asks again until it is answered.
    is_reader: bool,
    /// What its transaction reads of a range.
    range: Option<PlannedRange>,
    /// Of which key it has given an operation up just now.
    given_up: Option<KeyIndex>,
}

/// Runs transactions in a slot until the run is over, as the client's session of this number; the first
/// one counts what all of its
/// sessions read at backups.
pub(crate) async fn run(
    db: LocalDb,
    board: Arc<Board>,
    (slot, number): (usize, usize),
    counter: Counter,
    judge: Option<TimeJudge>,
) -> Result<()> {
    let db = board.settings.deadline.map_or_else(|| db.clone(), |span| db.with_deadline(span));
    let mut session = ClientSession {
        db,
        board: Arc::clone(&board),
        slot,
        keyspace: KeyspaceId::DEFAULT,
        key: Vec::new(),
        value: Vec::new(),
        seen: Vec::new(),
        began: Timestamp::ZERO,
        judge,
        backup_reads: (number == 0).then_some(0),
        is_reader: (number as u64) < board.settings.readers,
        range: None,
        given_up: None,
    };
    if board.settings.closed {
        session.run_closed(&counter).await?;
    } else {
        session.run_open().await?;
    }
    board.session_ends(slot);
    Ok(())
}

impl ClientSession {
    /// Transactions at their times, each written down.
    async fn run_open(&mut self) -> Result<()> {
        let (board, slot, mut plan) = (Arc::clone(&self.board), self.slot, TxnPlan::default());
        // When the snapshot was asked for that a session waits for that only reads.
        let mut asked = None;
        while let Some(wait) = board.next_wait(slot) {
            let given_up = self.given_up.take();
            if !wait.is_zero() && given_up.is_none() {
                self.db.sleep(wait).await?;
            }
            self.seen.clear();
            let invoked = board.now();
            let ended = match &board.work {
                ClientWork::Plans(spec) if given_up.is_none() && board.draws_scan(slot) => {
                    let keyspace = board.draws_keyspace(slot);
                    let keys = every_key_in(&board, spec, keyspace);
                    board.invoke(slot, keys.map(|key| read_of(key, Seen::Nothing)).collect());
                    self.scan(keyspace).await
                }
                ClientWork::Plans(_) if self.is_reader => {
                    if asked.is_none() {
                        board.plan(slot, &mut plan);
                        only_read(&mut plan);
                    }
                    let since = *asked.get_or_insert(invoked);
                    let mut ops = Vec::new();
                    self.began = board.at();
                    invocation(&plan, self.began, &mut ops);
                    board.invoke(slot, ops);
                    let ended = self.execute(&plan).await;
                    if ended.is_ok() {
                        board.answered_old_read(since);
                        asked = None;
                    }
                    ended
                }
                ClientWork::Plans(_) => {
                    board.plan(slot, &mut plan);
                    if let Some(key) = given_up {
                        giving_up::go_on(key, board.roll(slot, 2) == 0, &mut plan);
                    }
                    if let Some(single) = board.single(slot, &plan) {
                        board.invoke(slot, single.steps(Seen::Nothing, true));
                        self.single(single).await
                    } else {
                        let mut ops = Vec::new();
                        self.began = board.at();
                        self.range = board.draws_range(slot, &plan);
                        if let Some(range) = &self.range {
                            let keys = (range.keys.start.0..range.keys.end.0).map(KeyIndex);
                            ops.extend(keys.map(|key| read_of(key, Seen::Nothing)));
                        }
                        invocation(&plan, self.began, &mut ops);
                        board.invoke(slot, ops);
                        self.execute(&plan).await
                    }
                }
                ClientWork::Ring { nodes, .. } => {
                    board.invoke(slot, Vec::new());
                    self.turn_ring(*nodes).await
                }
            };
            let (fate, pause) = self.fate(ended);
            if fate == TxnEnd::Unknown {
                board.ended_unknown(invoked);
            }
            if board.settings.clocks_agree {
                board.judge_clocks(&self.db.clock_offsets());
            }
            if let Some(judge) = &mut self.judge
                && let Some(wrong) = judge.look(self.db.now(), self.db.clock_figures())
            {
                board.complaints.wrong(wrong);
            }
            board.complete(slot, fate, std::mem::take(&mut self.seen));
            if let Some(counted) = &mut self.backup_reads {
                let answered = self.db.stats().answered_by_backups;
                board.backup_reads.fetch_add(answered - *counted, Relaxed);
                *counted = answered;
            }
            if pause {
                self.db.sleep(ERROR_PAUSE).await?;
            }
        }
        Ok(())
    }

    /// Transactions one after another, as `bench` runs them.
    async fn run_closed(&mut self, counter: &Counter) -> Result<()> {
        let (board, mut plan) = (Arc::clone(&self.board), TxnPlan::default());
        if let Some(first) = board.next_wait(self.slot) {
            self.db.sleep(first).await?;
        }
        let mut again = false;
        while board.begin_closed(self.slot, again, &mut plan) {
            counter.bookkeeping();
            let ended = self.execute(&plan).await;
            self.seen.clear();
            let (fate, pause) = self.fate(ended);
            board.recorder.end_closed(fate);
            again = board.settings.retries && fate == TxnEnd::Aborted;
            if pause {
                self.db.sleep(ERROR_PAUSE).await?;
            }
        }
        Ok(())
    }

    /// What came of an attempt, and whether to rest before the next.
    fn fate(&self, ended: std::result::Result<(), AttemptEnd>) -> (TxnEnd, bool) {
        match ended {
            Ok(()) => (TxnEnd::Committed, false),
            Err(AttemptEnd::Aborted) => (TxnEnd::Aborted, false),
            Err(AttemptEnd::Unknown) => (TxnEnd::Unknown, true),
            Err(AttemptEnd::GivenUp) => (TxnEnd::Unknown, false),
            Err(AttemptEnd::Failed(error)) => {
                if error.code() == ErrorCode::ClientClockBehind {
                    self.board.complaints.clock_is_late(self.slot);
                }
                self.board.judge_error(&error);
                self.board.complaints.said(error.to_string());
                (TxnEnd::Failed, true)
            }
            Err(AttemptEnd::Broken(what)) => {
                self.board.complaints.wrong(what);
                (TxnEnd::Aborted, true)
            }
        }
    }

    fn key(&mut self, key: KeyIndex) {
        self.keyspace = self.board.keyspaces.of(key);
        self.key.clear();
        self.board.work.spec().key_shape().write(key, &mut self.key);
    }

    fn options(&self) -> TransactionOptions {
        TransactionOptions {
            external_wait: self.board.settings.external,
            ..TransactionOptions::default()
        }
    }

    async fn execute(&mut self, plan: &TxnPlan) -> std::result::Result<(), AttemptEnd> {
        let mut options = self.options();
        options.max_staleness = self.board.settings.max_staleness.filter(|_| plan.is_read_only());
        let range = self.range.take();
        // A range is one of the transaction's own keyspace.
        let db = match range {
            Some(_) => self.db.in_keyspace(self.board.keyspaces.of(KeyIndex(0))),
            None => self.db.clone(),
        };
        let tx = Rc::new(db.begin(&options)?);
        if plan.is_read_only() {
            let keys = plan.ops.iter().map(|op| op.key());
            self.board.snapshots.look(keys, tx.begin_timestamp()?);
        }
        for (place, &op) in plan.ops.iter().enumerate() {
            if let Some(range) = range.as_ref().filter(|range| range.before == place) {
                self.read_range(&tx, range).await?;
            }
            self.step(&tx, op).await?;
        }
        if let Some(range) = &range {
            if range.before >= plan.ops.len() {
                self.read_range(&tx, range).await?;
            }
            let unanswered = |op: &MicroOp| match *op {
                MicroOp::Read { key, .. } => read_of(key, Seen::Nothing),
                ref other => other.clone(),
            };
            self.board.amends(self.slot, self.seen.iter().map(unanswered).collect());
        }
        // Only from here on can it take effect.
        self.board.commits(self.slot, moved(&self.seen));
        let begin = tx.begin_timestamp().ok();
        let at = tx.commit().await.map_err(|error| commit_failed(&self.board, error))?;
        if plan.is_read_only() {
            self.board.read_only.committed.fetch_add(1, Relaxed);
            // What shards validate commits above its begin.
            self.board.read_only.locally.fetch_add(u64::from(Some(at) == begin), Relaxed);
        }
        for op in plan.ops.iter().filter(|op| !matches!(op, Op::Get(_))) {
            self.board.data.acknowledge(self.board.keyspaces.number_of(op.key()), at);
            self.board.snapshots.acknowledge(op.key(), at);
        }
        Ok(())
    }

    /// Reads a range in its order. In the history's eyes every key of it is read that could be there, as far
    /// as the range was read: what is absent as well.
    async fn read_range(
        &mut self,
        tx: &Rc<LocalTransaction>,
        range: &PlannedRange,
    ) -> std::result::Result<(), AttemptEnd> {
        if self.board.data.precedes_load(tx.begin_timestamp()?) {
            tx.abort();
            return Err(AttemptEnd::Aborted);
        }
        self.key(range.keys.start);
        let from = self.key.clone();
        self.key(range.keys.end);
        let (to, limit, descending) = (Some(self.key.clone()), range.limit, range.is_descending());
        let options = ScanOptions { from, to, limit, descending, ..ScanOptions::default() };
        let (mut scan, mut found) = (tx.scan(&options)?, BTreeMap::new());
        let shape = self.board.work.spec().key_shape();
        while let Some((name, value)) = scan.next().await? {
            let key = shape.read(&name).filter(|key| range.keys.contains(key));
            let last = if descending { found.first_key_value() } else { found.last_key_value() };
            let last = last.map(|(last, _)| *last);
            let follows = |last, key| if descending { key < last } else { last < key };
            match key {
                Some(key) if last.is_none_or(|last| follows(last, key)) => found.insert(key, value),
                _ => {
                    return Err(AttemptEnd::Broken(format!(
                        "a range of keys finds {} after {last:?}",
                        name.escape_ascii()
                    )));
                }
            };
        }
        let mut read = range.keys.start.0..range.keys.end.0;
        if limit == Some(found.len()) {
            let ends = found.first_key_value().zip(found.last_key_value());
            match ends {
                Some(((first, _), _)) if descending => read.start = first.0,
                Some((_, (last, _))) => read.end = last.0 + 1,
                None => {}
            }
        }
        for key in read.map(KeyIndex) {
            let seen = self.read(key, found.get(&key).map(|value| &value[..]))?;
            self.seen.push(read_of(key, seen));
        }
        Ok(())
    }

    /// The session in the keyspace of its key.
    fn db(&self) -> LocalDb {
        self.db.in_keyspace(self.keyspace)
    }

    /// Every key of the keyspace as of one point in time: a transaction that reads all keys, in the
    /// history's eyes.
    async fn scan(&mut self, keyspace: u64) -> std::result::Result<(), AttemptEnd> {
        let board = Arc::clone(&self.board);
        let (acknowledged, losses) = board.data.acknowledged(keyspace);
        // The number of a keyspace is that of its first key.
        let db = self.db.in_keyspace(board.keyspaces.of(KeyIndex(keyspace)));
        let mut scan = db.scan(&ScanOptions::default()).await?;
        let at = scan.timestamp()?;
        if at < acknowledged && board.data.acknowledged(keyspace).1 == losses {
            return Err(AttemptEnd::Broken(format!(
                "a scan begins at {at}, although a write at {acknowledged} was acknowledged before \
                 it was asked for"
            )));
        }
        let mut found = BTreeMap::new();
        while let Some((name, value)) = scan.next().await? {
            if found.insert(name.clone(), value).is_some() {
                return Err(AttemptEnd::Broken(format!(
                    "a scan finds key {} twice",
                    name.escape_ascii()
                )));
            }
        }
        for key in every_key_in(&board, board.work.spec(), keyspace) {
            self.key(key);
            let value = found.remove(&self.key[..]);
            let seen = self.read(key, value.as_deref())?;
            self.seen.push(read_of(key, seen));
        }
        match found.into_keys().next() {
            Some(name) => Err(AttemptEnd::Broken(format!(
                "a scan finds key {}, which nobody wrote",
                name.escape_ascii()
            ))),
            None => Ok(()),
        }
    }

    /// One operation on one key, without a transaction.
    async fn single(&mut self, single: Single) -> std::result::Result<(), AttemptEnd> {
        let key = single.key;
        self.key(key);
        self.value.clear();
        let SingleChange::Put { value, .. } = single.change else {
            if let SingleChange::Nothing = single.change {
                let found = self.db().get(&self.key).await?;
                let seen = self.read(key, found.as_deref())?;
                self.seen = single.steps(seen, true);
                return Ok(());
            }
            return self.write_single(&single, None).await;
        };
        write_value_of(&self.board, key, value, &mut self.value);
        let found = if single.reads_first() { self.db().get(&self.key).await? } else { None };
        self.write_single(&single, found.as_ref()).await
    }

    async fn write_single(
        &mut self,
        single: &Single,
        found: Option<&Value>,
    ) -> std::result::Result<(), AttemptEnd> {
        let (mutation, condition) = (single.mutation(&self.value), single.condition(found));
        let tells = single.look != Precondition::Blind;
        let asked = self.db().write(&self.key, mutation, condition, tells);
        let span = self.board.gives_up(self.slot);
        let Some(answer) = giving_up::within(&self.db, span, asked).await else {
            self.given_up = Some(single.key);
            return Err(AttemptEnd::GivenUp);
        };
        let outcome = answer.map_err(|error| commit_failed(&self.board, error))?;
        let seen = self.read(single.key, outcome.found.as_deref().filter(|_| tells))?;
        self.seen = single.steps(seen, outcome.took_place());
        Ok(())
    }

    async fn step(&mut self, tx: &LocalTransaction, op: Op) -> std::result::Result<(), AttemptEnd> {
        let key = op.key();
        self.key(key);
        self.value.clear();
        match op {
            Op::Get(_) if self.board.settings.closed => {
                // Looked at where it lies, as an application would that does not keep it.
                let bytes = tx.get_with(&self.key, |found| found.map_or(0, <[u8]>::len)).await?;
                std::hint::black_box(bytes);
                return Ok(());
            }
            Op::Get(_) => {
                let found = self.find(tx).await?;
                let seen = self.read(key, found.as_deref())?;
                self.seen.push(MicroOp::Read { key, seen });
                return Ok(());
            }
            Op::Scan { .. } => {
                return Err(AttemptEnd::Broken("the plan scans".to_owned()));
            }
            Op::Put(_) => {
                return Err(AttemptEnd::Broken(format!(
                    "the plan puts a filling without a number to key {}",
                    key.0
                )));
            }
            Op::PutFor { .. } => {
                return Err(AttemptEnd::Broken(format!(
                    "the plan puts a filling without a number to key {}",
                    key.0
                )));
            }
            Op::WriteFor { value, millis, .. } => {
                write_value_of(&self.board, key, value, &mut self.value);
                let until = expiry(self.began, millis);
                self.seen.push(MicroOp::WriteUntil { key, value, until });
                tx.put_in(self.keyspace, &self.key, &self.value, expiry_at(until))?;
                return Ok(());
            }
            Op::Close { into, .. } => return self.close(tx, key, into).await,
            Op::Add { delta, .. } => {
                let balance = self.balance(tx, key).await?.unwrap_or_default();
                let next = balance + delta;
                if next < 0 {
                    tx.abort();
                    return Err(AttemptEnd::Aborted);
                }
                write_integer(next, &mut self.value);
                self.seen.push(MicroOp::Write { key, value: Some(next) });
            }
            Op::Append { element, .. } => {
                let found = self.find(tx).await?;
                self.value.extend_from_slice(found.as_deref().unwrap_or_default());
                write_list_element(element, &mut self.value);
                self.seen.push(MicroOp::Append { key, element });
                if self.board.settings.canary && element % 10 == 0 {
                    return Ok(());
                }
            }
            Op::Delete(_) => {
                self.seen.push(MicroOp::Write { key, value: None });
                tx.delete_in(self.keyspace, &self.key)?;
                return Ok(());
            }
            Op::Write { value, .. } => {
                write_value_of(&self.board, key, value, &mut self.value);
                self.seen.push(MicroOp::Write { key, value: Some(value) });
            }
        }
        tx.put_in(self.keyspace, &self.key, &self.value, Expiry::NEVER)?;
        Ok(())
    }

    /// Bank: what the account under `self.key` holds; `None` for one that is closed.
    async fn balance(
        &mut self,
        tx: &LocalTransaction,
        key: KeyIndex,
    ) -> std::result::Result<Option<i64>, AttemptEnd> {
        let found = self.find(tx).await?;
        if found.is_none() && self.board.work.spec().delete_percent > 0 {
            self.seen.push(read_of(key, Seen::Nothing));
            return Ok(None);
        }
        let balance = integer_of(found.as_deref().unwrap_or_default())?;
        self.seen.push(read_of(key, Seen::Integer(balance)));
        Ok(Some(balance))
    }

    /// Bank: all that an account holds goes to another one, and the account with it.
    async fn close(
        &mut self,
        tx: &LocalTransaction,
        account: KeyIndex,
        into: KeyIndex,
    ) -> std::result::Result<(), AttemptEnd> {
        let Some(moved) = self.balance(tx, account).await? else {
            tx.abort();
            return Err(AttemptEnd::Aborted);
        };
        tx.delete(&self.key)?;
        self.key(into);
        let next = self.balance(tx, into).await?.unwrap_or_default() + moved;
        write_integer(next, &mut self.value);
        tx.put(&self.key, &self.value)?;
        self.seen.push(MicroOp::Write { key: into, value: Some(next) });
        self.seen.push(MicroOp::Write { key: account, value: None });
        Ok(())
    }

    /// Reads the key. A clock that is behind may show a time before everything was loaded: that is
    /// no attempt.
    async fn find(&self, tx: &LocalTransaction) -> std::result::Result<Option<Value>, AttemptEnd> {
        let found = tx.get_in(self.keyspace, &self.key).await?;
        if found.is_none() && self.board.data.precedes_load(tx.begin_timestamp()?) {
            tx.abort();
            return Err(AttemptEnd::Aborted);
        }
        Ok(found)
    }

    /// What was found under a key, as a history tells it.
    fn read(
        &mut self,
        key: KeyIndex,
        found: Option<&[u8]>,
    ) -> std::result::Result<Seen, AttemptEnd> {
        read_value(&self.board.work, key, found).map_err(AttemptEnd::Broken)
    }

    /// One transaction on the ring: mostly `r → a → b → c` becomes `r → b → a → c`; now and then
    /// all of it is walked.
    async fn turn_ring(&mut self, nodes: u64) -> std::result::Result<(), AttemptEnd> {
        let start = self.board.roll(self.slot, nodes);
        let walks = self.board.roll(self.slot, 5) == 0;
        let tx = self.db.begin(&self.options())?;
        if walks {
            let length = self.walk(&tx, start, nodes).await?;
            tx.commit().await.map_err(|error| commit_failed(&self.board, error))?;
            self.board.data.walk();
            if length != Some(nodes) {
                let found = length
                    .map_or("does not come back".to_owned(), |length| format!("has {length} keys"));
                return Err(AttemptEnd::Broken(format!(
                    "the ring of {nodes} keys {found}, walked from key {start}"
                )));
            }
            return Ok(());
        }
        let first = self.next(&tx, start).await?;
        let second = self.next(&tx, first).await?;
        let third = self.next(&tx, second).await?;
        for (from, to) in [(start, second), (second, first), (first, third)] {
            self.key(KeyIndex(from));
            self.value.clear();
            write_integer(to as i64, &mut self.value);
            tx.put(&self.key, &self.value)?;
        }
        tx.commit().await.map_err(|error| commit_failed(&self.board, error))?;
        Ok(())
    }

    async fn next(
        &mut self,
        tx: &LocalTransaction,
        node: u64,
    ) -> std::result::Result<u64, AttemptEnd> {
        self.key(KeyIndex(node));
        let found = self.find(tx).await?;
        Ok(integer_of(found.as_deref().unwrap_or_default())? as u64)
    }

    async fn walk(
        &mut self,
        tx: &LocalTransaction,
        start: u64,
        nodes: u64,
    ) -> std::result::Result<Option<u64>, AttemptEnd> {
        let mut at = start;
        for length in 1..=nodes {
            at = self.next(tx, at).await?;
            if at == start {
                return Ok(Some(length));
            }
        }
        Ok(None)
    }
}

/// Makes a plan read what it would read and write, each key once.
fn only_read(plan: &mut TxnPlan) {
    let mut keys: Vec<_> = plan.ops.iter().map(|op| op.key()).collect();
    keys.sort_unstable();
    keys.dedup();
    plan.ops.clear();
    plan.ops.extend(keys.into_iter().map(Op::Get));
}

/// The keys that a workload uses.
fn every_key(spec: &WorkloadSpec) -> impl Iterator<Item = KeyIndex> + use<> {
    (0..spec.keys).map(KeyIndex)
}

/// Those of one keyspace, by its number.
fn every_key_in<'a>(
    board: &'a Board,
    spec: &WorkloadSpec,
    keyspace: u64,
) -> impl Iterator<Item = KeyIndex> + use<'a> {
    every_key(spec).filter(move |key| board.keyspaces.number_of(*key) == keyspace)
}

const fn read_of(key: KeyIndex, seen: Seen) -> MicroOp {
    MicroOp::Read { key, seen }
}

/// Bank: by how much which account changes; an account that is absent holds nothing.
fn moved(seen: &[MicroOp]) -> Vec<(KeyIndex, i64)> {
    let held = |key: KeyIndex| {
        seen.iter().find_map(|op| match *op {
            MicroOp::Read { key: read, seen: Seen::Integer(balance) } if read == key => {
                Some(balance)
            }
            _ => None,
        })
    };
    let change = |op: &MicroOp| match *op {
        MicroOp::Write { key, value } => {
            Some((key, value.unwrap_or_default() - held(key).unwrap_or_default()))
        }
        _ => None,
    };
    seen.iter().filter_map(change).collect()
}

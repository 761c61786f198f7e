//! The store as tasks on the event loop see it: no other thread is involved, nothing is locked, a
//! read costs a frame, or a call where the shard is in this process.
//!
//! [`LocalDb`] and [`LocalTransaction`] are what `Db::spawn` hands to its closure. Operations begin
//! when they are called and are waited for by awaiting, so
//! `let a = tx.get(b"a"); let b = tx.get(b"b"); (a.await?, b.await?)` asks for both at once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use timestone_clock::server_time::ClockFigures;
use timestone_cluster::{ClusterError, Keyspace, KeyspaceOptions};
use timestone_session::{
    ClockOffset, Condition, EngineStats, KeyName, Mutation, RequestOptions, SessionError,
    SessionId, Step, Ticket, TxnHandle, TxnOptions, TxnStatus, ValueView,
};
use timestone_types::{Expiry, KeyspaceId, ShardId, Timestamp, TxnId, Version};
use timestone_wire::CallAt;

use crate::calls::Caller;
use crate::event_loop::Core;
use crate::master::{Master, bad_keyspace};
use crate::operation::{Met, Operation};
use crate::ops::{Output, owned, unexpected};
use crate::owned::{OwnedCondition, OwnedMutation};
use crate::retry::note_met;
use crate::{Error, Result, TransactOptions, TransactionOptions, Value, WriteOutcome};

fn to_value(output: Output) -> Result<Option<Value>> {
    if let Output::Value(value) = output { Ok(value) } else { unexpected(output) }
}

fn to_timestamp(output: Output) -> Result<Timestamp> {
    if let Output::Committed(at) = output { Ok(at) } else { unexpected(output) }
}

pub(crate) fn to_unit(output: Output) -> Result<()> {
    to_timestamp(output).map(drop)
}

fn to_nothing(output: Output) -> Result<()> {
    if let Output::Value(_) | Output::InPlace = output { Ok(()) } else { unexpected(output) }
}

fn to_outcome(output: Output) -> Result<WriteOutcome> {
    match output {
        Output::Written(timestamp, previous) => {
            Ok(WriteOutcome { written: Some(timestamp), found: previous })
        }
        Output::ConditionFailed(found) => Ok(WriteOutcome { written: None, found }),
        other => unexpected(other),
    }
}

fn to_status(output: Output) -> Result<TxnStatus> {
    if let Output::Status(status) = output { Ok(status) } else { unexpected(output) }
}

pub(crate) fn to_frame(output: Output) -> Result<Vec<u8>> {
    if let Output::Frame(bytes) = output { Ok(bytes) } else { unexpected(output) }
}

/// A session, closed when the last handle to it is gone.
pub(crate) struct SessionHandle {
    core: Rc<Core>,
    id: SessionId,
    /// Shared with handles on other threads, and closed by nobody.
    is_shared: bool,
}

impl SessionHandle {
    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        if !self.is_shared {
            self.core.engine.borrow_mut().close_session(self.id);
        }
    }
}

/// The store, for tasks on the event loop. Clones share a session: they see each other's writes, once
/// those have been awaited. What is under way at one time has no order.
#[derive(Clone)]
pub struct LocalDb {
    core: Rc<Core>,
    session: Rc<SessionHandle>,
    keyspace: KeyspaceId,
    deadline: Option<Duration>,
}

impl fmt::Debug for LocalDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalDb").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

impl LocalDb {
    /// A handle with a session of its own.
    pub(crate) fn open(core: &Rc<Core>) -> Result<Self> {
        let id = core.engine.borrow_mut().open_session()?;
        Ok(Self::with(core, id, false))
    }

    /// A handle on the session of the handles on other threads.
    pub(crate) fn shared(core: &Rc<Core>) -> Result<Self> {
        Ok(Self::with(core, core.session_of_handles()?, true))
    }

    fn with(core: &Rc<Core>, id: SessionId, is_shared: bool) -> Self {
        let session = Rc::new(SessionHandle { core: Rc::clone(core), id, is_shared });
        Self { core: Rc::clone(core), session, keyspace: KeyspaceId::DEFAULT, deadline: None }
    }

    /// A handle with a new session: independent of what this one has seen.
    ///
    /// # Errors
    /// Too many sessions.
    pub fn new_session(&self) -> Result<Self> {
        let own = Self::open(&self.core)?;
        Ok(Self { keyspace: self.keyspace, deadline: self.deadline, ..own })
    }

    /// The same session, with operations that give up after `span`.
    #[must_use]
    pub fn with_deadline(&self, span: Duration) -> Self {
        Self { deadline: Some(span), ..self.clone() }
    }

    /// The same session in another keyspace, by its id.
    #[must_use]
    pub fn in_keyspace(&self, keyspace: KeyspaceId) -> Self {
        Self { keyspace, ..self.clone() }
    }

    pub(crate) fn with_options(mut self, keyspace: KeyspaceId, deadline: Option<Duration>) -> Self {
        self.keyspace = keyspace;
        self.deadline = deadline;
        self
    }

    pub(crate) const fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) const fn keyspace_of_handle(&self) -> KeyspaceId {
        self.keyspace
    }

    /// The session has heard of something at `at`: whatever it begins from now on lies above that.
    pub(crate) fn saw(&self, at: Timestamp) -> Result<()> {
        Ok(self.core.engine.borrow_mut().saw(self.session.id, at)?)
    }

    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.now()
    }

    /// Whether commits in this handle's keyspace wait for the clocks, if that is known.
    fn external_wait(&self) -> Option<bool> {
        self.core.keyspaces.external_wait(self.keyspace)
    }

    /// The master, asked on behalf of this handle.
    pub(crate) fn master(&self) -> Master<'_> {
        Master::new(&self.core, self.deadline)
    }

    pub(crate) fn request_options(&self) -> RequestOptions {
        RequestOptions {
            deadline: self.deadline.map(|span| self.now().saturating_add(span)),
            external_wait: self.external_wait() == Some(true),
            ..RequestOptions::default()
        }
    }

    /// How far the clock of each shard's server is from this client's, as the latest answer told;
    /// shards that have answered nothing yet are left out.
    #[must_use]
    pub fn clock_offsets(&self) -> Vec<(ShardId, ClockOffset)> {
        self.core.engine.borrow().shards().clock_offsets().collect()
    }

    /// What the client has done so far.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.core.engine.borrow().stats()
    }

    /// Whom the time of this client goes by, how far that is from its own clock, and how far it may be
    /// from true time.
    #[must_use]
    pub fn clock_figures(&self) -> ClockFigures {
        self.core.clock.figures()
    }

    /// Runs another task on this loop.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.core.tasks.spawn(Box::pin(future));
    }

    /// Pauses the task.
    pub fn sleep(&self, span: Duration) -> Operation<()> {
        let op = self.core.timer(self.now().saturating_add(span));
        Operation::waiting(&self.core, op, to_unit)
    }

    /// Asks for a key by a call, or puts it, where that may be. A handle with a deadline of its own
    /// asks in frames, which are given up in time.
    #[inline]
    fn call<T>(
        &self,
        key: &[u8],
        put: Option<(&[u8], Expiry)>,
        convert: fn(Output) -> Result<T>,
    ) -> Option<Operation<T>> {
        if self.deadline.is_some() {
            return None;
        }
        let mut calls = self.core.calls.borrow_mut();
        let mut engine = self.core.engine.borrow_mut();
        let route = calls.route(&engine, key, put.map(|(value, _)| value.len()))?;
        let begin = engine.begin_direct(self.now(), self.session.id).ok()?;
        let op = self.core.ops.borrow_mut().open();
        let at = CallAt { keyspace: self.keyspace, epoch: route.epoch, begin };
        let waiting = Caller { op, session: Rc::clone(&self.session) };
        calls.ask(engine.client(), route, waiting, at, (key, put));
        let put = put.map(|_| (self.session.id, begin));
        Some(Operation::called(&self.core, op, put, convert))
    }

    /// Reads the latest version of a key, linearizably.
    pub fn get(&self, key: &[u8]) -> Operation<Option<Value>> {
        if let Some(called) = self.call(key, None, to_value) {
            return called;
        }
        let ticket = Cell::new(None);
        let start = |op| {
            let mut engine = self.core.engine.borrow_mut();
            let step = engine.get_latest(
                self.now(),
                self.session.id,
                self.keyspace,
                key,
                self.request_options(),
                op,
            )?;
            Ok(keep(step, &ticket).map(|view| Ok(owned(view))))
        };
        Operation::begin(&self.core, to_value, None, start, || ticket.take())
    }

    /// Writes a key, linearizably and exactly once, under a condition.
    pub fn write(
        &self,
        key: &[u8],
        mutation: Mutation<'_>,
        condition: Condition<'_>,
        return_previous: bool,
    ) -> Operation<WriteOutcome> {
        if self.external_wait().is_none() {
            let (db, key) = (self.clone(), key.to_vec());
            let (mutation, condition) =
                (OwnedMutation::from(mutation), OwnedCondition::from(condition));
            return Operation::later(&self.core, async move {
                db.master().learn_external_wait(db.keyspace).await?;
                db.write(&key, mutation.borrow(), condition.borrow(), return_previous).await
            });
        }
        if let (Mutation::Put { value, expires_at }, Condition::Always, false) =
            (mutation, condition, return_previous)
            && self.external_wait() == Some(false)
            && let Some(called) = self.call(key, Some((value, expires_at)), to_outcome)
        {
            return called;
        }
        let ticket = Cell::new(None);
        let start = |op| {
            if self.external_wait() == Some(true) {
                self.core.read_clock();
            }
            let options = RequestOptions { return_previous, ..self.request_options() };
            let mut engine = self.core.engine.borrow_mut();
            let (now, session) = (self.now(), self.session.id);
            let step = engine.write_if(
                now,
                session,
                self.keyspace,
                key,
                mutation,
                condition,
                options,
                op,
            )?;
            Ok(keep(step, &ticket).map(|_| Err(Error::closed())))
        };
        Operation::begin(&self.core, to_outcome, None, start, || ticket.take())
    }

    /// Writes a key.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<Timestamp> {
        self.put_until(key, value, Expiry::NEVER).await
    }

    /// Writes a key that becomes absent at `expires_at`.
    pub async fn put_until(
        &self,
        key: &[u8],
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<Timestamp> {
        self.write(key, Mutation::Put { value, expires_at }, Condition::Always, false)
            .await?
            .or_condition(key)
    }

    /// Deletes a key.
    pub async fn delete(&self, key: &[u8]) -> Result<Timestamp> {
        self.write(key, Mutation::Delete, Condition::Always, false).await?.or_condition(key)
    }

    /// Writes a key when it is absent; tells whether it did.
    pub async fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
        Ok(self.write(key, mutation, Condition::Absent, false).await?.took_place())
    }

    /// Writes a key when it has the value `expected` (`None`: when it is absent); tells whether it
    /// did.
    pub async fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool> {
        let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
        let condition = expected.map_or(Condition::Absent, Condition::ValueIs);
        Ok(self.write(key, mutation, condition, false).await?.took_place())
    }

    /// Writes a key when its latest version is `version` ([`Version::ZERO`]: when it is absent);
    /// tells whether it did.
    pub async fn put_if_version(&self, key: &[u8], version: Version, value: &[u8]) -> Result<bool> {
        let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
        Ok(self.write(key, mutation, Condition::VersionIs(version), false).await?.took_place())
    }

    /// Writes a key and returns the value that it had: a read and a write in one request.
    pub fn swap(&self, key: &[u8], value: &[u8]) -> Operation<WriteOutcome> {
        let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
        self.write(key, mutation, Condition::Always, true)
    }

    /// Asks what became of a transaction.
    pub fn status(&self, txn: TxnId) -> Operation<TxnStatus> {
        let ticket = Cell::new(None);
        let start = |op| {
            let mut engine = self.core.engine.borrow_mut();
            let step = engine.status(self.now(), txn, self.request_options(), op)?;
            keep(step, &ticket);
            Ok(None)
        };
        Operation::begin(&self.core, to_status, None, start, || ticket.take())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// A snapshot in the future, or too many transactions.
    pub fn begin(&self, options: &TransactionOptions) -> Result<LocalTransaction> {
        self.begin_with(options.for_engine(self.now(), self.deadline))
    }

    fn begin_with(&self, mut options: TxnOptions) -> Result<LocalTransaction> {
        options.external_wait |= self.external_wait() == Some(true);
        let handle = self.core.engine.borrow_mut().begin(self.now(), self.session.id, options)?;
        Ok(LocalTransaction {
            core: Rc::clone(&self.core),
            session: Rc::clone(&self.session),
            handle,
            keyspace: self.keyspace,
            others: RefCell::default(),
            spoiled: RefCell::new(None),
            waits: options.external_wait,
            handed_over: Cell::new(false),
            met: None,
        })
    }

    /// A read-only transaction on the state as of `at`.
    ///
    /// # Errors
    /// As [`LocalDb::begin`].
    pub fn snapshot(&self, at: Timestamp) -> Result<LocalTransaction> {
        self.begin(&TransactionOptions { snapshot_at: Some(at), ..TransactionOptions::default() })
    }

    /// Pauses before attempt number `attempt + 1` of a transaction.
    pub(crate) async fn pause(&self, attempt: u32) -> Result<()> {
        let span = self.core.engine.borrow_mut().backoff(attempt);
        self.sleep(span).await
    }

    /// Creates a keyspace.
    ///
    /// # Errors
    /// A bad name or option, or one that exists.
    pub async fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.master().create_keyspace(name, options).await
    }

    /// All keyspaces, by ascending id.
    ///
    /// # Errors
    /// No server answers.
    pub async fn keyspaces(&self) -> Result<Vec<Keyspace>> {
        self.master().keyspaces().await
    }

    /// Drops a keyspace: its keys are gone, and its id is never used again.
    ///
    /// # Errors
    /// No such keyspace, or the one that cannot be dropped: nothing has changed. After any other
    /// error the keyspace may be there still, with its keys or without them; dropping it again ends
    /// it.
    pub async fn drop_keyspace(&self, name: &str) -> Result<()> {
        let id = self.master().keyspace_id(name).await?;
        if id == KeyspaceId::DEFAULT {
            // The master would refuse it as well, but only once its keys are gone.
            return Err(bad_keyspace(&ClusterError::KeyspacePermanent));
        }
        self.clear(id).await?;
        let dropped = self.master().drop_keyspace(name).await?;
        if dropped != id {
            // Somebody else has dropped that one meanwhile, and created another one.
            self.clear(dropped).await?;
        }
        Ok(())
    }

    async fn clear(&self, keyspace: KeyspaceId) -> Result<()> {
        let options = TransactOptions::default();
        self.transact_with(&options, |tx| async move { tx.clear_keyspace(keyspace) }).await
    }

    /// A handle on a keyspace by its name, which a server is asked for each time.
    ///
    /// # Errors
    /// No such keyspace.
    pub async fn keyspace(&self, name: &str) -> Result<Self> {
        Ok(self.in_keyspace(self.master().keyspace_id(name).await?))
    }
}

/// Takes a step's ticket, or its value when there is one already.
pub(crate) fn keep<'a>(step: Step<'a>, ticket: &Cell<Option<Ticket>>) -> Option<ValueView<'a>> {
    match step {
        Step::Value(view) => Some(view),
        Step::Pending(own) => {
            ticket.set(Some(own));
            None
        }
        Step::Committed(_) => None,
    }
}

/// A transaction of a task on the event loop. Dropped without a commit, it is aborted.
pub struct LocalTransaction {
    core: Rc<Core>,
    session: Rc<SessionHandle>,
    handle: TxnHandle,
    keyspace: KeyspaceId,
    /// Further keyspaces that it is about; each once.
    others: RefCell<Vec<KeyspaceId>>,
    /// A write that was refused: the transaction must not commit without it.
    spoiled: RefCell<Option<Error>>,
    /// It was begun so that its commit waits for the clocks, whatever keyspaces it is about.
    waits: bool,
    /// Its commit goes on without this handle.
    handed_over: Cell<bool>,
    /// Kept for closures with an error type of their own.
    pub(crate) met: Option<Met>,
}

impl fmt::Debug for LocalTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTransaction").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl LocalTransaction {
    pub(crate) const fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// The snapshot that it reads from.
    ///
    /// # Errors
    /// The transaction is over.
    pub fn begin_timestamp(&self) -> Result<Timestamp> {
        Ok(self.core.engine.borrow().begin_timestamp(self.handle)?)
    }

    /// A read-only transaction at the same snapshot, and until the same deadline.
    pub(crate) fn reader(&self) -> Result<Self> {
        let (snapshot_at, deadline) = {
            let engine = self.core.engine.borrow();
            (engine.begin_timestamp(self.handle)?, engine.deadline(self.handle)?)
        };
        let snapshot_at = Some(snapshot_at);
        self.db().begin_with(TxnOptions { snapshot_at, deadline, ..TxnOptions::default() })
    }

    /// The session's handle.
    #[must_use]
    pub fn db(&self) -> LocalDb {
        let session = Rc::clone(&self.session);
        LocalDb { core: Rc::clone(&self.core), session, keyspace: self.keyspace, deadline: None }
    }

    pub(crate) const fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    pub(crate) const fn handle(&self) -> TxnHandle {
        self.handle
    }

    /// Notes an error that a new attempt may not meet.
    pub(crate) fn note_met(&self, error: &Error) {
        if let Some(met) = &self.met {
            note_met(&mut met.borrow_mut(), error);
        }
    }

    /// Reads a key.
    pub fn get(&self, key: &[u8]) -> Operation<Option<Value>> {
        self.get_in(self.keyspace, key)
    }

    /// Reads a key and looks at its value where it is, without a copy of its own: the fastest read
    /// there is. `look` must not use the client, neither this transaction nor any other handle of its
    /// loop: what holds the value is in use.
    ///
    /// # Panics
    /// `look` uses the client.
    ///
    /// # Errors
    /// As awaiting [`LocalTransaction::get`].
    pub async fn get_with<R>(
        &self,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let ticket = Cell::new(None);
        self.read(self.keyspace, key, to_nothing, |_| (), &ticket).await?;
        let engine = self.core.engine.borrow();
        // What was asked is found by its ticket, without another search for the key.
        let view = match ticket.get() {
            Some(ticket) => engine.read_result(ticket),
            None => engine.peek(self.handle, self.keyspace, key),
        };
        Ok(look(view.ok_or(SessionError::NoTransaction)?.value))
    }

    /// Reads a key of a keyspace.
    pub fn get_in(&self, keyspace: KeyspaceId, key: &[u8]) -> Operation<Option<Value>> {
        self.read(keyspace, key, to_value, owned, &Cell::new(None))
    }

    fn read<T>(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        convert: fn(Output) -> Result<T>,
        view: fn(ValueView<'_>) -> T,
        ticket: &Cell<Option<Ticket>>,
    ) -> Operation<T> {
        self.touch(keyspace);
        let start = |op| {
            let mut engine = self.core.engine.borrow_mut();
            let step = engine.get(self.core.now(), self.handle, keyspace, key, op)?;
            Ok(keep(step, ticket).map(|found| Ok(view(found))))
        };
        Operation::begin(&self.core, convert, Some(view), start, || ticket.get())
            .noting(self.met.as_ref())
    }

    /// Reads several keys at once; the answers come in their order.
    ///
    /// # Errors
    /// The first that fails.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> impl Future<Output = Result<Vec<Option<Value>>>> + 'static + use<K> {
        let asked: Vec<_> = keys.iter().map(|key| self.get(key.as_ref())).collect();
        async move {
            let mut values = Vec::with_capacity(asked.len());
            for one in asked {
                values.push(one.await?);
            }
            Ok(values)
        }
    }

    /// Writes a key at commit.
    ///
    /// # Errors
    /// A limit, a read-only transaction, or one that is over.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_in(self.keyspace, key, value, Expiry::NEVER)
    }

    /// Writes a key that becomes absent at `expires_at`.
    ///
    /// # Errors
    /// As [`LocalTransaction::put`].
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<()> {
        self.put_in(self.keyspace, key, value, expires_at)
    }

    /// Writes a key of a keyspace.
    ///
    /// # Errors
    /// As [`LocalTransaction::put`].
    pub fn put_in(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<()> {
        self.write(KeyName { keyspace, key }, Some(value), expires_at)
    }

    /// Deletes a key at commit.
    ///
    /// # Errors
    /// As [`LocalTransaction::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_in(self.keyspace, key)
    }

    /// Deletes a key of a keyspace.
    ///
    /// # Errors
    /// As [`LocalTransaction::put`].
    pub fn delete_in(&self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.write(KeyName { keyspace, key }, None, Expiry::NEVER)
    }

    fn write(&self, key: KeyName<'_>, value: Option<&[u8]>, expires_at: Expiry) -> Result<()> {
        self.touch(key.keyspace);
        let (now, mut engine) = (self.core.now(), self.core.engine.borrow_mut());
        self.note(engine.write(now, self.handle, key, value, expires_at))
    }

    /// Makes every key of a keyspace absent at commit. The transaction may write to other keyspaces; it
    /// writes nothing to this one, and reads nothing of it from then on.
    ///
    /// # Errors
    /// As [`LocalTransaction::put`]; a transaction that writes to the keyspace.
    pub fn clear_keyspace(&self, keyspace: KeyspaceId) -> Result<()> {
        self.touch(keyspace);
        self.note(self.core.engine.borrow_mut().fence(self.core.now(), self.handle, keyspace))
    }

    /// It is about this keyspace, too.
    fn touch(&self, keyspace: KeyspaceId) {
        if keyspace != self.keyspace {
            let mut others = self.others.borrow_mut();
            if !others.contains(&keyspace) {
                others.push(keyspace);
            }
        }
    }

    /// Whether any keyspace that it is about has commits wait for the clocks; `None` while that is
    /// not known of all.
    fn external_wait(&self) -> Option<bool> {
        let mut any = self.core.keyspaces.external_wait(self.keyspace)?;
        for &keyspace in self.others.borrow().iter() {
            any |= self.core.keyspaces.external_wait(keyspace)?;
        }
        Some(any)
    }

    /// A refused write must not be left out silently: the commit will be refused with the same
    /// error.
    fn note(&self, result: Result<(), SessionError>) -> Result<()> {
        result.map_err(|error| {
            let error = Error::from(error);
            self.spoiled.borrow_mut().get_or_insert_with(|| error.clone());
            error
        })
    }

    /// Commits. The transaction is over afterwards, whatever comes of it.
    pub fn commit(&self) -> Operation<Timestamp> {
        if let Some(error) = self.spoiled.borrow_mut().take() {
            self.abort();
            return Operation::ready(&self.core, Err(error));
        }
        let committed = match self.external_wait() {
            Some(waits) => commit(&self.core, self.handle, waits || self.waits),
            None => {
                // It is committed from there; this handle must not abort it meanwhile.
                let waits_anyway = self.waits;
                let committing = Committing {
                    core: Rc::clone(&self.core),
                    _session: Rc::clone(&self.session),
                    handle: self.handle,
                };
                let mut keyspaces = self.others.borrow().clone();
                keyspaces.push(self.keyspace);
                self.handed_over.set(true);
                Operation::later(&self.core, async move {
                    let deadline = committing.core.engine.borrow().deadline(committing.handle)?;
                    let left = deadline.map(|at| at.since(committing.core.now()));
                    let master = Master::new(&committing.core, left);
                    let mut waits = waits_anyway;
                    for keyspace in keyspaces {
                        waits |= master.learn_external_wait(keyspace).await?;
                    }
                    commit(&committing.core, committing.handle, waits).await
                })
            }
        };
        committed.noting(self.met.as_ref())
    }

    /// Forgets the transaction. Without effect when it is over.
    pub fn abort(&self) {
        self.core.engine.borrow_mut().abort(self.handle);
    }
}

impl Drop for LocalTransaction {
    fn drop(&mut self) {
        if !self.handed_over.get() {
            self.abort();
        }
    }
}

/// A transaction that will be committed when something is found out. Dropped before, it is aborted.
struct Committing {
    core: Rc<Core>,
    /// It closes with its last handle, and its open transactions with it.
    _session: Rc<SessionHandle>,
    handle: TxnHandle,
}

impl Drop for Committing {
    fn drop(&mut self) {
        self.core.engine.borrow_mut().abort(self.handle);
    }
}

fn commit(core: &Rc<Core>, handle: TxnHandle, external_wait: bool) -> Operation<Timestamp> {
    let ticket = Cell::new(None);
    let start = |op| {
        if external_wait {
            core.read_clock();
        }
        let mut engine = core.engine.borrow_mut();
        if external_wait {
            engine.wait_for_clocks(handle);
        }
        Ok(match engine.commit(core.now(), handle, op)? {
            Step::Committed(at) => Some(Ok(at)),
            Step::Pending(own) => {
                ticket.set(Some(own));
                None
            }
            Step::Value(_) => None,
        })
    };
    Operation::begin(core, to_timestamp, None, start, || ticket.take())
}

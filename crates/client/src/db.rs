//! The store from any thread and any executor: calls travel to the event loop through a bounded
//! queue, results come back through a oneshot each. Every call begins when it is made; awaiting its
//! [`Pending`] waits for the result.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use timestone_clock::server_time::ClockFigures;
use timestone_cluster::{Keyspace, KeyspaceOptions};
use timestone_session::{ClockOffset, EngineStats, TxnStatus};
use timestone_types::{Expiry, KeyspaceId, ShardId, Timestamp, TxnId, Version, is_planted};

use crate::event_loop::Core;
use crate::local::{LocalDb, LocalTransaction};
use crate::oneshot::{self, Receiver};
use crate::retry::{Retry, note_met};
use crate::scan::{Entry, Progress};
use crate::shared::LoopShared;
use crate::{Error, Result, TransactOptions, TransactionOptions, Value, WriteOutcome};

/// A call under way. Await it, or [`Pending::wait`] for it on a thread of its own. Dropping it does
/// not take the call back.
#[derive(Debug)]
pub struct Pending<T>(State<T>);

#[derive(Debug)]
enum State<T> {
    Asked(Receiver<Result<T>>),
    Refused(Option<Error>),
}

impl<T> Pending<T> {
    pub(crate) const fn of(receiver: Receiver<Result<T>>) -> Self {
        Self(State::Asked(receiver))
    }

    /// Why the call never reaches the loop, if it does not.
    pub(crate) fn refusal(&self) -> Option<&Error> {
        match &self.0 {
            State::Refused(error) => error.as_ref(),
            State::Asked(_) => None,
        }
    }

    /// Blocks the thread until the result is there. Never call it on an event loop: it would wait
    /// for itself.
    ///
    /// # Errors
    /// Those of the call.
    pub fn wait(self) -> Result<T> {
        match self.0 {
            State::Asked(receiver) => {
                receiver.wait().unwrap_or_else(|| Err(Error::closed_meanwhile()))
            }
            State::Refused(error) => Err(error.unwrap_or_else(Error::closed)),
        }
    }
}

impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            State::Asked(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|got| got.unwrap_or_else(|| Err(Error::closed_meanwhile()))),
            State::Refused(error) => Poll::Ready(Err(error.take().unwrap_or_else(Error::closed))),
        }
    }
}

/// Keeps the event loop alive.
pub(crate) struct Lifeline {
    pub(crate) shared: Arc<LoopShared>,
    /// Run when the last handle is dropped: ends a runtime that the client has to itself.
    pub(crate) end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

/// The store. Cheap to clone, usable from every thread; all clones share one session, so they see
/// each other's writes.
///
/// ```no_run
/// # async fn example() -> timestone_client::Result<()> {
/// let db = timestone_client::connect("timestone://127.0.0.1:7400").await?;
/// db.put(b"n", b"1").await?;
/// let total = db
///     .transact(async |tx| {
///         let n: u64 = tx.get(b"n").await?.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap_or(0));
///         tx.put(b"n", (n + 1).to_string().as_bytes());
///         Ok(n + 1)
///     })
///     .await?;
/// assert_eq!(db.get(b"n").await?.unwrap(), total.to_string().as_bytes()[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    life: Arc<Lifeline>,
    keyspace: KeyspaceId,
    deadline: Option<Duration>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

impl Db {
    pub(crate) fn new(life: Lifeline) -> Self {
        Self { life: Arc::new(life), keyspace: KeyspaceId::DEFAULT, deadline: None }
    }

    /// Runs `body` on the event loop, with a handle on this handle's session.
    fn call<T, F, Fut>(&self, body: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(LocalDb) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + 'static,
    {
        let (keyspace, deadline) = (self.keyspace, self.deadline);
        self.on_loop(move |core| {
            LocalDb::shared(core).map(|db| body(db.with_options(keyspace, deadline)))
        })
    }

    fn on_loop<T, F, Fut>(&self, begin: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&Rc<Core>) -> Result<Fut> + Send + 'static,
        Fut: Future<Output = Result<T>> + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let command = Box::new(move |core: &Rc<Core>| match begin(core) {
            Ok(future) => core.tasks.spawn(Box::pin(async move { sender.send(future.await) })),
            Err(error) => sender.send(Err(error)),
        });
        match self.life.shared.call(command) {
            Ok(()) => Pending(State::Asked(receiver)),
            Err(_) if self.life.shared.is_closed() => {
                Pending(State::Refused(Some(Error::closed())))
            }
            Err(_) => Pending(State::Refused(Some(Error::overloaded()))),
        }
    }

    /// Runs a task *on* the event loop, with a session of its own: the fast path. Its future need
    /// not be `Send`; nothing crosses threads until it has finished.
    ///
    /// ```no_run
    /// # async fn example(db: timestone_client::Db) -> timestone_client::Result<()> {
    /// let sum = db
    ///     .spawn(|db| async move {
    ///         let mut sum = 0;
    ///         for key in [b"a", b"b"] {
    ///             sum += db.get(key).await?.map_or(0, |value| value.len());
    ///         }
    ///         Ok(sum)
    ///     })
    ///     .await?;
    /// # let _ = sum;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn<T, F, Fut>(&self, task: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(LocalDb) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + 'static,
    {
        let (keyspace, deadline) = (self.keyspace, self.deadline);
        self.on_loop(move |core| {
            LocalDb::open(core).map(|db| task(db.with_options(keyspace, deadline)))
        })
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

    /// The same session in another keyspace, by its name. Asks a server which one has the name now: keep
    /// the handle.
    ///
    /// # Errors
    /// No such keyspace.
    pub async fn keyspace(&self, name: &str) -> Result<Self> {
        Ok(self.in_keyspace(self.keyspace_id(name).await?))
    }

    pub(crate) fn keyspace_id(&self, name: &str) -> Pending<KeyspaceId> {
        let name = name.to_owned();
        self.call(move |db| async move { db.master().keyspace_id(&name).await })
    }

    /// Creates a keyspace.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Pending<Keyspace> {
        let name = name.to_owned();
        self.call(move |db| async move { db.create_keyspace(&name, options).await })
    }

    /// All keyspaces, by ascending id.
    pub fn keyspaces(&self) -> Pending<Vec<Keyspace>> {
        self.call(|db| async move { db.keyspaces().await })
    }

    /// Drops a keyspace with all its keys; see [`crate::LocalDb::drop_keyspace`] for what holds after an
    /// error.
    pub fn drop_keyspace(&self, name: &str) -> Pending<()> {
        let name = name.to_owned();
        self.call(move |db| async move { db.drop_keyspace(&name).await })
    }

    /// How far the clock of each shard's server is from this client's, as the latest answer told;
    /// shards that have answered nothing yet are left out.
    pub fn clock_offsets(&self) -> Pending<Vec<(ShardId, ClockOffset)>> {
        self.call(|db| async move { Ok(db.clock_offsets()) })
    }

    /// Whom the time of this client goes by, and how well: the servers, or its own clock.
    pub fn clock_figures(&self) -> Pending<ClockFigures> {
        self.call(|db| async move { Ok(db.clock_figures()) })
    }

    /// Has the session see everything of the keyspace that was acknowledged by now.
    pub(crate) fn catch_up(&self) -> Pending<()> {
        self.call(|db| async move { db.catch_up().await })
    }

    /// Reads the latest version of a key, linearizably.
    pub fn get(&self, key: &[u8]) -> Pending<Option<Value>> {
        let key = key.to_vec();
        self.call(move |db| async move { db.get(&key).await })
    }

    /// Writes a key, linearizably and exactly once.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Pending<Timestamp> {
        self.put_until(key, value, Expiry::NEVER)
    }

    /// Writes a key that becomes absent at `expires_at`.
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Expiry) -> Pending<Timestamp> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.call(move |db| async move { db.put_until(&key, &value, expires_at).await })
    }

    /// Deletes a key.
    pub fn delete(&self, key: &[u8]) -> Pending<Timestamp> {
        let key = key.to_vec();
        self.call(move |db| async move { db.delete(&key).await })
    }

    /// Writes a key when it is absent; tells whether it did.
    pub fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Pending<bool> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.call(move |db| async move { db.put_if_absent(&key, &value).await })
    }

    /// Writes a key when it has the value `expected` (`None`: when it is absent); tells whether it
    /// did.
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Pending<bool> {
        let (key, expected, value) = (key.to_vec(), expected.map(<[u8]>::to_vec), value.to_vec());
        self.call(
            move |db| async move { db.compare_and_set(&key, expected.as_deref(), &value).await },
        )
    }

    /// Writes a key when its latest version is `version` ([`Version::ZERO`]: when it is absent);
    /// tells whether it did.
    pub fn put_if_version(&self, key: &[u8], version: Version, value: &[u8]) -> Pending<bool> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.call(move |db| async move { db.put_if_version(&key, version, &value).await })
    }

    /// Deletes a key and returns the value that it had.
    pub fn take(&self, key: &[u8]) -> Pending<WriteOutcome> {
        use timestone_session::{Condition, Mutation};
        let key = key.to_vec();
        self.call(move |db| async move {
            db.write(&key, Mutation::Delete, Condition::Present, true).await
        })
    }

    /// Writes a key and returns the value that it had: a read and a write that nothing comes between,
    /// in one request, where a transaction takes two.
    pub fn swap(&self, key: &[u8], value: &[u8]) -> Pending<WriteOutcome> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.call(move |db| async move { db.swap(&key, &value).await })
    }

    /// Asks what became of a transaction.
    pub fn status(&self, txn: TxnId) -> Pending<TxnStatus> {
        self.call(move |db| async move { db.status(txn).await })
    }

    /// The counters of the event loop's engine.
    pub fn stats(&self) -> Pending<EngineStats> {
        self.call(|db| async move { Ok(db.core().engine.borrow().stats()) })
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// A snapshot in the future, or too many transactions.
    pub async fn begin(&self, options: &TransactionOptions) -> Result<Transaction> {
        Ok(Transaction::new(self, self.begin_on_loop(options).await?))
    }

    /// Whoever gives this up gives the transaction up that has begun by then.
    pub(crate) fn begin_on_loop(&self, options: &TransactionOptions) -> Pending<Owner> {
        let (options, shared) = (options.clone(), Arc::clone(&self.life.shared));
        self.call(move |db| async move {
            let transaction = db.begin(&options)?;
            let begin = transaction.begin_timestamp()?;
            let core = db.core();
            let id = core.next_remote.replace(core.next_remote.get() + 1);
            core.remote.borrow_mut().insert(id, Rc::new(transaction));
            Ok(Owner { shared, id, begin, met: Met::default(), unwritten: OnceLock::new() })
        })
    }

    /// A read-only transaction on the state as of `at`.
    ///
    /// # Errors
    /// As [`Db::begin`].
    pub async fn snapshot(&self, at: Timestamp) -> Result<Transaction> {
        self.begin(&TransactionOptions { snapshot_at: Some(at), ..TransactionOptions::default() })
            .await
    }

    /// Runs a closure as a transaction, again after conflicts, and commits it. The closure must
    /// have no effects of its own: it may run several times.
    ///
    /// # Errors
    /// What the closure returns; the last conflict when every attempt met one; `UnknownOutcome`
    /// when it may have committed.
    pub async fn transact<T, F>(&self, body: F) -> Result<T>
    where
        F: AsyncFnMut(Transaction) -> Result<T>,
    {
        self.transact_with(&TransactOptions::default(), body).await
    }

    /// As [`Db::transact`], with options.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn transact_with<T, F>(&self, options: &TransactOptions, body: F) -> Result<T>
    where
        F: AsyncFnMut(Transaction) -> Result<T>,
    {
        self.run_until_committed(options, body, Retry::again_unless_own).await
    }

    /// As [`Db::transact`], for closures with an error type of their own: it is whatever an
    /// [`Error`] can be made into, and the closure's own errors come back as they are. Each of them
    /// aborts the transaction. It is run again when the commit met a conflict, or one of its
    /// operations met what a new attempt may not meet, however the closure put that.
    ///
    /// ```no_run
    /// # use timestone_client::{Db, Error};
    /// #[derive(Debug)]
    /// enum Refused {
    ///     TooPoor { has: u64 },
    ///     Store(Error),
    /// }
    ///
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Self {
    ///         Self::Store(error)
    ///     }
    /// }
    ///
    /// async fn pay(db: &Db, price: u64) -> Result<u64, Refused> {
    ///     db.transact_as::<Refused, _>(async |tx| {
    ///         let has = tx.get(b"purse").await?.map_or(0, |coins| coins.len() as u64);
    ///         let left = has.checked_sub(price).ok_or(Refused::TooPoor { has })?;
    ///         tx.put(b"purse", &vec![b'o'; left as usize]).await?;
    ///         Ok(left)
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    /// What the closure returns; the last conflict when every attempt met one; `UnknownOutcome`
    /// when it may have committed.
    pub async fn transact_as<E, T>(
        &self,
        body: impl AsyncFnMut(Transaction) -> core::result::Result<T, E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
    {
        self.transact_as_with(&TransactOptions::default(), body).await
    }

    /// As [`Db::transact_as`], with options.
    ///
    /// # Errors
    /// As [`Db::transact_as`].
    pub async fn transact_as_with<E, T>(
        &self,
        options: &TransactOptions,
        body: impl AsyncFnMut(Transaction) -> core::result::Result<T, E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
    {
        self.run_until_committed(options, body, Retry::again_if_met).await
    }

    /// `again` judges what the closure has returned, beside what its operations met.
    async fn run_until_committed<E, T>(
        &self,
        options: &TransactOptions,
        mut body: impl AsyncFnMut(Transaction) -> core::result::Result<T, E>,
        again: impl Fn(&mut Retry, E, Option<Error>) -> core::result::Result<(), E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
    {
        let mut retry = Retry::new(options);
        loop {
            let transaction = self.begin(&options.transaction).await?;
            match body(transaction.clone()).await {
                Ok(value) => match transaction.commit().await {
                    Ok(_) => return Ok(value),
                    Err(error) => {
                        transaction.abort();
                        retry.again(error)?;
                    }
                },
                Err(error) => {
                    transaction.abort();
                    again(&mut retry, error, transaction.met())?;
                }
            }
            self.pause(retry.attempts()).await?;
        }
    }

    pub(crate) fn pause(&self, attempt: u32) -> Pending<()> {
        self.call(move |db| async move { db.pause(attempt).await })
    }
}

/// A transaction from any thread. Clones are the same transaction; when the last one is dropped
/// without a commit, it is aborted.
#[derive(Clone)]
pub struct Transaction {
    db: Db,
    owner: Arc<Owner>,
}

/// A transaction on the loop: when this is dropped, the loop forgets it.
pub(crate) struct Owner {
    shared: Arc<LoopShared>,
    id: u64,
    begin: Timestamp,
    met: Met,
    /// Why a write has not reached the loop, if one has not: the others are not the whole transaction.
    unwritten: OnceLock<Error>,
}

/// The first error of an operation that a new attempt may not meet.
type Met = Arc<Mutex<Option<Error>>>;

fn lock(met: &Met) -> MutexGuard<'_, Option<Error>> {
    met.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Owner {
    fn drop(&mut self) {
        let id = self.id;
        let forget: crate::shared::Command =
            Box::new(move |core: &Rc<Core>| core.forget_remote(id));
        if self.shared.call(forget).is_err() && !is_planted!(KeepsUnowned) {
            // The queue is full, if the loop goes on. Nobody may keep the transaction: it holds the watermark.
            self.shared.forget_later(id);
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("begin", &self.owner.begin).finish_non_exhaustive()
    }
}

impl Transaction {
    pub(crate) fn new(db: &Db, owner: Owner) -> Self {
        Self { db: db.clone(), owner: Arc::new(owner) }
    }

    fn call<T, F, Fut>(&self, body: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<LocalTransaction>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + 'static,
    {
        let (id, met) = (self.owner.id, Arc::clone(&self.owner.met));
        self.db.on_loop(move |core| {
            let called = core.remote_txn(id).map(body)?;
            Ok(async move {
                let result = called.await;
                if let Err(error) = &result {
                    note_met(&mut lock(&met), error);
                }
                result
            })
        })
    }

    /// What an operation met that a new attempt may not meet, if one did.
    pub(crate) fn met(&self) -> Option<Error> {
        lock(&self.owner.met).clone()
    }

    /// The snapshot that it reads from.
    #[must_use]
    pub fn begin_timestamp(&self) -> Timestamp {
        self.owner.begin
    }

    /// Reads a key.
    pub fn get(&self, key: &[u8]) -> Pending<Option<Value>> {
        let (key, keyspace) = (key.to_vec(), self.db.keyspace);
        self.call(move |tx| {
            let read = tx.get_in(keyspace, &key);
            async move {
                let _until_then = tx;
                read.await
            }
        })
    }

    /// The keyspace that it is about.
    pub(crate) const fn keyspace(&self) -> KeyspaceId {
        self.db.keyspace
    }

    /// The next entries of a scan, and how far it has come then.
    pub(crate) fn scan_further(&self, mut progress: Progress) -> Pending<(Progress, Vec<Entry>)> {
        self.call(move |tx| async move {
            let entries = tx.scan_further(&mut progress).await?;
            Ok((progress, entries))
        })
    }

    /// Reads several keys at once; the answers come in their order.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Pending<Vec<Option<Value>>> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        self.call(move |tx| {
            let reads = tx.get_many(&keys);
            async move {
                let _until_then = tx;
                reads.await
            }
        })
    }

    /// Writes a key at commit. Limits are checked now; when the result is not awaited, a write that
    /// is refused makes the commit fail with the same error.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Pending<()> {
        self.put_until(key, value, Expiry::NEVER)
    }

    /// Writes a key that becomes absent at `expires_at`.
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Expiry) -> Pending<()> {
        let (key, value, keyspace) = (key.to_vec(), value.to_vec(), self.db.keyspace);
        self.write(move |tx| tx.put_in(keyspace, &key, &value, expires_at))
    }

    /// Deletes a key at commit; as [`Transaction::put`].
    pub fn delete(&self, key: &[u8]) -> Pending<()> {
        let (key, keyspace) = (key.to_vec(), self.db.keyspace);
        self.write(move |tx| tx.delete_in(keyspace, &key))
    }

    /// A write; if it does not reach the loop, the commit fails.
    fn write(
        &self,
        body: impl FnOnce(&LocalTransaction) -> Result<()> + Send + 'static,
    ) -> Pending<()> {
        let pending = self.now(body);
        if let Some(error) = pending.refusal()
            && !is_planted!(CommitsUnwritten)
        {
            // The first one is told.
            let _ = self.owner.unwritten.set(error.clone());
        }
        pending
    }

    /// Something that is done the moment the call reaches the loop, so that calls keep their order.
    fn now(
        &self,
        body: impl FnOnce(&LocalTransaction) -> Result<()> + Send + 'static,
    ) -> Pending<()> {
        self.call(move |tx| core::future::ready(body(&tx)))
    }

    /// Commits. The transaction is over afterwards, whatever comes of it.
    pub fn commit(&self) -> Pending<Timestamp> {
        if let Some(error) = self.owner.unwritten.get() {
            self.abort();
            return Pending(State::Refused(Some(error.clone())));
        }
        let pending = self.call(move |tx| tx.commit());
        self.ends_with(&pending);
        pending
    }

    /// Forgets the transaction. Without effect when it is over.
    pub fn abort(&self) {
        let pending = self.now(|tx| {
            tx.abort();
            Ok(())
        });
        self.ends_with(&pending);
    }

    /// The transaction is over with this call, also if it has not reached the loop: no clone commits
    /// it any more.
    fn ends_with<T>(&self, pending: &Pending<T>) {
        if let Some(error) = pending.refusal()
            && !is_planted!(CommitsUnwritten)
        {
            let _ = self.owner.unwritten.set(error.clone());
            self.owner.shared.forget_later(self.owner.id);
        }
    }
}

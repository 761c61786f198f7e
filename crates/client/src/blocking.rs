//! The same client for threads that may block: the same names, without `await`.
//!
//! ```no_run
//! use timestone_client::blocking;
//!
//! # fn main() -> timestone_client::Result<()> {
//! let db = blocking::connect("timestone://127.0.0.1:7400")?;
//! db.put(b"greeting", b"hello")?;
//! db.transact(|tx| {
//!     let greeting = tx.get(b"greeting")?.unwrap_or_default();
//!     tx.put(b"copy", &greeting)
//! })?;
//! assert_eq!(db.get(b"copy")?.unwrap(), b"hello");
//! # Ok(())
//! # }
//! ```

use core::time::Duration;

use timestone_clock::server_time::ClockFigures;
use timestone_cluster::{Keyspace, KeyspaceOptions};
use timestone_session::TxnStatus;
use timestone_types::{Expiry, KeyspaceId, Timestamp, TxnId, Version};

use crate::retry::Retry;
use crate::scan::{Entry, scanning};
use crate::{
    ConnectOptions, Error, Result, ScanOptions, TransactOptions, TransactionOptions, Value,
    WriteOutcome,
};

/// Connects to a cluster. See [`crate::connect`].
///
/// # Errors
/// A bad address, or no server that answers.
pub fn connect(url: &str) -> Result<Db> {
    connect_with(url, &ConnectOptions::default())
}

/// As [`connect`], with options.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(url: &str, options: &ConnectOptions) -> Result<Db> {
    let (db, ready) = crate::connect::start(url, options)?;
    ready.wait()?;
    Ok(Db(db))
}

/// The store; see [`crate::Db`].
#[derive(Clone, Debug)]
pub struct Db(crate::Db);

impl From<crate::Db> for Db {
    fn from(db: crate::Db) -> Self {
        Self(db)
    }
}

impl Db {
    /// The asynchronous handle on the same session.
    #[must_use]
    pub const fn as_async(&self) -> &crate::Db {
        &self.0
    }

    /// See [`crate::Db::clock_figures`].
    ///
    /// # Errors
    /// The event loop has ended.
    pub fn clock_figures(&self) -> Result<ClockFigures> {
        self.0.clock_figures().wait()
    }

    /// See [`crate::Db::with_deadline`].
    #[must_use]
    pub fn with_deadline(&self, span: Duration) -> Self {
        Self(self.0.with_deadline(span))
    }

    /// See [`crate::Db::in_keyspace`].
    #[must_use]
    pub fn in_keyspace(&self, keyspace: KeyspaceId) -> Self {
        Self(self.0.in_keyspace(keyspace))
    }

    /// See [`crate::Db::keyspace`].
    ///
    /// # Errors
    /// No such keyspace.
    pub fn keyspace(&self, name: &str) -> Result<Self> {
        Ok(self.in_keyspace(self.0.keyspace_id(name).wait()?))
    }

    /// See [`crate::Db::create_keyspace`].
    ///
    /// # Errors
    /// A bad name or option, or one that exists.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.0.create_keyspace(name, options).wait()
    }

    /// See [`crate::Db::keyspaces`].
    ///
    /// # Errors
    /// No server answers.
    pub fn keyspaces(&self) -> Result<Vec<Keyspace>> {
        self.0.keyspaces().wait()
    }

    /// See [`crate::Db::drop_keyspace`].
    ///
    /// # Errors
    /// No such keyspace, or one that cannot be dropped.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.0.drop_keyspace(name).wait()
    }

    /// See [`crate::Db::get`].
    ///
    /// # Errors
    /// No answer before the deadline, or a refusal.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.0.get(key).wait()
    }

    /// See [`crate::Db::put`].
    ///
    /// # Errors
    /// A limit, a refusal, or an unknown outcome.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Timestamp> {
        self.0.put(key, value).wait()
    }

    /// See [`crate::Db::put_until`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<Timestamp> {
        self.0.put_until(key, value, expires_at).wait()
    }

    /// See [`crate::Db::delete`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete(&self, key: &[u8]) -> Result<Timestamp> {
        self.0.delete(key).wait()
    }

    /// See [`crate::Db::take`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn take(&self, key: &[u8]) -> Result<WriteOutcome> {
        self.0.take(key).wait()
    }

    /// See [`crate::Db::swap`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn swap(&self, key: &[u8], value: &[u8]) -> Result<WriteOutcome> {
        self.0.swap(key, value).wait()
    }

    /// See [`crate::Db::put_if_absent`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.0.put_if_absent(key, value).wait()
    }

    /// See [`crate::Db::compare_and_set`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool> {
        self.0.compare_and_set(key, expected, value).wait()
    }

    /// See [`crate::Db::put_if_version`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_if_version(&self, key: &[u8], version: Version, value: &[u8]) -> Result<bool> {
        self.0.put_if_version(key, version, value).wait()
    }

    /// See [`crate::Db::status`].
    ///
    /// # Errors
    /// No answer before the deadline.
    pub fn status(&self, txn: TxnId) -> Result<TxnStatus> {
        self.0.status(txn).wait()
    }

    /// See [`crate::Db::begin`].
    ///
    /// # Errors
    /// A snapshot in the future, or too many transactions.
    pub fn begin(&self, options: &TransactionOptions) -> Result<Transaction> {
        let owner = self.0.begin_on_loop(options).wait()?;
        Ok(Transaction(crate::Transaction::new(&self.0, owner)))
    }

    /// See [`crate::Db::snapshot`].
    ///
    /// # Errors
    /// As [`Db::begin`].
    pub fn snapshot(&self, at: Timestamp) -> Result<Transaction> {
        self.begin(&TransactionOptions { snapshot_at: Some(at), ..TransactionOptions::default() })
    }

    /// See [`crate::Db::scan`].
    ///
    /// # Errors
    /// As [`crate::Db::scan`].
    pub fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        if options.at.is_none() {
            self.0.catch_up().wait()?;
        }
        let Transaction(transaction) = self.begin(&scanning(options))?;
        Ok(Scan(crate::Scan::new(transaction, options)?))
    }

    /// See [`crate::Db::transact`].
    ///
    /// # Errors
    /// What the closure returns; the last conflict; an unknown outcome.
    pub fn transact<T>(&self, body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TransactOptions::default(), body)
    }

    /// See [`crate::Db::transact_with`].
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_with<T>(
        &self,
        options: &TransactOptions,
        body: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        self.run_until_committed(options, body, Retry::again_unless_own)
    }
}

impl Db {
    /// See [`crate::Db::transact_as`].
    ///
    /// ```no_run
    /// # use timestone_client::{Error, blocking};
    /// #[derive(Debug)]
    /// enum Refused {
    ///     NobodyThere,
    ///     Store(Error),
    /// }
    ///
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Self {
    ///         Self::Store(error)
    ///     }
    /// }
    ///
    /// fn rename(db: &blocking::Db) -> Result<(), Refused> {
    ///     db.transact_as::<Refused, _>(|tx| {
    ///         let found = tx.get(b"old")?.ok_or(Refused::NobodyThere)?;
    ///         tx.put(b"new", &found)?;
    ///         tx.delete(b"old")?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Db::transact_as`].
    pub fn transact_as<E, T>(
        &self,
        body: impl FnMut(&Transaction) -> core::result::Result<T, E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
    {
        self.transact_as_with(&TransactOptions::default(), body)
    }

    /// See [`crate::Db::transact_as_with`].
    ///
    /// # Errors
    /// As [`Db::transact_as`].
    pub fn transact_as_with<E, T>(
        &self,
        options: &TransactOptions,
        body: impl FnMut(&Transaction) -> core::result::Result<T, E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
    {
        self.run_until_committed(options, body, Retry::again_if_met)
    }

    /// `again` judges what the closure has returned, beside what its operations met.
    fn run_until_committed<E, T>(
        &self,
        options: &TransactOptions,
        mut body: impl FnMut(&Transaction) -> core::result::Result<T, E>,
        again: impl Fn(&mut Retry, E, Option<Error>) -> core::result::Result<(), E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
    {
        let mut retry = Retry::new(options);
        loop {
            let transaction = self.begin(&options.transaction)?;
            match body(&transaction) {
                Ok(value) => match transaction.commit() {
                    Ok(_) => return Ok(value),
                    Err(error) => {
                        transaction.abort();
                        retry.again(error)?;
                    }
                },
                Err(error) => {
                    transaction.abort();
                    again(&mut retry, error, transaction.0.met())?;
                }
            }
            self.0.pause(retry.attempts()).wait()?;
        }
    }
}

/// A transaction; see [`crate::Transaction`].
#[derive(Clone, Debug)]
pub struct Transaction(crate::Transaction);

impl Transaction {
    /// See [`crate::Transaction::begin_timestamp`].
    #[must_use]
    pub fn begin_timestamp(&self) -> Timestamp {
        self.0.begin_timestamp()
    }

    /// See [`crate::Transaction::scan`].
    ///
    /// # Errors
    /// As [`crate::Transaction::scan`].
    pub fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        Ok(Scan(self.0.scan(options)?))
    }

    /// See [`crate::Transaction::get`].
    ///
    /// # Errors
    /// The transaction is over, or no answer came before the deadline.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.0.get(key).wait()
    }

    /// See [`crate::Transaction::get_many`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.0.get_many(keys).wait()
    }

    /// See [`crate::Transaction::put`].
    ///
    /// # Errors
    /// A limit, a read-only transaction, or one that is over.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value).wait()
    }

    /// See [`crate::Transaction::put_until`].
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<()> {
        self.0.put_until(key, value, expires_at).wait()
    }

    /// See [`crate::Transaction::delete`].
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.delete(key).wait()
    }

    /// See [`crate::Transaction::commit`].
    ///
    /// # Errors
    /// Why it was aborted, or that its outcome is not known.
    pub fn commit(&self) -> Result<Timestamp> {
        self.0.commit().wait()
    }

    /// See [`crate::Transaction::abort`].
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// A scan under way; see [`crate::Scan`].
#[derive(Debug)]
pub struct Scan(crate::Scan);

impl Scan {
    /// See [`crate::Scan::timestamp`].
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.0.timestamp()
    }
}

impl Iterator for Scan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.0.wait_next().transpose()
    }
}

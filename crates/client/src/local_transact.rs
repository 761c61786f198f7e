//! Transactions of tasks on the event loop that are run until they commit.
//!
//! ```text
//!   closure ──► begin, run ─┬─ Ok ──► commit ─┬─ committed ──► Ok
//!                 ▲         │                 └─ conflict ──┐
//!                 │         └─ Err ──► abort ──► may a new attempt fare better? ── no ──► Err
//!                 └───────────── pause ◄────────────────────┴─ yes
//! ```
//! What threads use, in `db.rs`, does the same through the loop.

use std::future::Future;
use std::rc::Rc;

use crate::local::{LocalDb, LocalTransaction};
use crate::operation::Met;
use crate::retry::Retry;
use crate::{Error, Result, TransactOptions};

impl LocalDb {
    /// Runs a closure as a transaction, again after conflicts, and commits it. The closure must
    /// have no effects of its own: it may run several times.
    ///
    /// # Errors
    /// What the closure returns; the last conflict when every attempt met one;
    /// [`crate::ErrorCode::UnknownOutcome`] when it may have committed.
    pub async fn transact<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnMut(Rc<LocalTransaction>) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.transact_with(&TransactOptions::default(), body).await
    }

    /// As [`LocalDb::transact`], with options.
    ///
    /// # Errors
    /// As [`LocalDb::transact`].
    pub async fn transact_with<T, F, Fut>(&self, options: &TransactOptions, body: F) -> Result<T>
    where
        F: FnMut(Rc<LocalTransaction>) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.run_until_committed(options, body, Retry::again_unless_own).await
    }

    /// As [`LocalDb::transact`], for closures with an error type of their own: it is whatever an
    /// [`Error`] can be made into, and the closure's own errors come back as they are. Each of them
    /// aborts the transaction. It is run again when the commit met a conflict, or one of its reads
    /// met what a new attempt may not meet, however the closure put that.
    ///
    /// ```no_run
    /// # use timestone_client::{Error, LocalDb};
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
    /// async fn pay(db: &LocalDb, price: u64) -> Result<u64, Refused> {
    ///     db.transact_as(|tx| async move {
    ///         let has = tx.get(b"purse").await?.map_or(0, |coins| coins.len() as u64);
    ///         let left = has.checked_sub(price).ok_or(Refused::TooPoor { has })?;
    ///         tx.put(b"purse", &vec![b'o'; left as usize])?;
    ///         Ok(left)
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    /// What the closure returns; the last conflict when every attempt met one;
    /// [`crate::ErrorCode::UnknownOutcome`] when it may have committed.
    pub async fn transact_as<E, T, F, Fut>(&self, body: F) -> core::result::Result<T, E>
    where
        E: From<Error>,
        F: FnMut(Rc<LocalTransaction>) -> Fut,
        Fut: Future<Output = core::result::Result<T, E>>,
    {
        self.transact_as_with(&TransactOptions::default(), body).await
    }

    /// As [`LocalDb::transact_as`], with options.
    ///
    /// # Errors
    /// As [`LocalDb::transact_as`].
    pub async fn transact_as_with<E, T, F, Fut>(
        &self,
        options: &TransactOptions,
        body: F,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
        F: FnMut(Rc<LocalTransaction>) -> Fut,
        Fut: Future<Output = core::result::Result<T, E>>,
    {
        self.run_until_committed(options, body, Retry::again_if_met).await
    }

    /// `again` judges what the closure has returned, beside what its operations met.
    async fn run_until_committed<E, T, F, Fut>(
        &self,
        options: &TransactOptions,
        mut body: F,
        again: impl Fn(&mut Retry, E, Option<Error>) -> core::result::Result<(), E>,
    ) -> core::result::Result<T, E>
    where
        E: From<Error>,
        F: FnMut(Rc<LocalTransaction>) -> Fut,
        Fut: Future<Output = core::result::Result<T, E>>,
    {
        let mut retry = Retry::new(options);
        loop {
            let met = Met::default();
            let mut transaction = self.begin(&options.transaction)?;
            transaction.met = Some(Rc::clone(&met));
            let transaction = Rc::new(transaction);
            match body(Rc::clone(&transaction)).await {
                Ok(value) => match transaction.commit().await {
                    Ok(_) => return Ok(value),
                    Err(error) => {
                        transaction.abort();
                        retry.again(error)?;
                    }
                },
                Err(error) => {
                    transaction.abort();
                    again(&mut retry, error, met.take())?;
                }
            }
            self.pause(retry.attempts()).await?;
        }
    }
}

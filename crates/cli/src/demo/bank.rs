//! The workload: transfers between accounts that are spread over all shards, and readings of all
//! accounts, whose sum never changes.
//!
//! ```text
//!   open: accounts ─► run: sessions on one event loop ─► Tally ◄─ figures of a second
//!                          transfer │ total                  stop ─► check: the sum once more
//! ```
//! The keys lie in the default keyspace and are text, so that whoever tries the cluster out can look
//! at them: `timestone scan`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use timestone::blocking::{self, Db};
use timestone::{
    ConnectOptions, Error, ErrorCode, LocalDb, Pending, TransactOptions, TransactionOptions,
};
use timestone_cluster::ShardMap;
use timestone_workload::{Random, integer_of};

use super::limits::{
    ACCOUNTS_PER_SHARD, CHECK_TIMEOUT, INITIAL_BALANCE, LEAST_ACCOUNTS, MAX_AMOUNT, OPEN_TIMEOUT,
    OPERATION_DEADLINE, READING_PERCENT, REFUSED_PAUSE, SESSIONS_TIMEOUT, TICK,
};
use super::tally::Tally;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// The accounts, and on which shard each is.
#[derive(Debug)]
struct Accounts {
    keys: Vec<Vec<u8>>,
    /// Places in the map.
    shards: Vec<usize>,
}

impl Accounts {
    fn of(map: &ShardMap) -> Self {
        let count = LEAST_ACCOUNTS + ACCOUNTS_PER_SHARD * map.shards().len();
        let keys: Vec<_> =
            (0..count).map(|number| format!("account/{number:04}").into_bytes()).collect();
        let place = |key: &Vec<u8>| {
            let shard = map.shard_of_key(key);
            let found = map.shards().iter().position(|entry| entry.id == shard);
            found.expect("a map knows the shards that it routes to")
        };
        let shards = keys.iter().map(place).collect();
        Self { keys, shards }
    }

    fn total(&self) -> i64 {
        INITIAL_BALANCE * self.keys.len() as i64
    }
}

/// What sessions share.
#[derive(Debug)]
struct Shared {
    accounts: Accounts,
    tally: Mutex<Tally>,
    is_over: AtomicBool,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bank, and the client that works on it.
pub(super) struct Bank {
    db: Db,
    shared: Arc<Shared>,
    sessions: Option<Pending<u32>>,
}

impl Bank {
    /// Connects, and stores what every account holds at first.
    pub(super) fn open(url: &str, map: &ShardMap, interrupt: &Interrupt) -> Result<Self, Failure> {
        let options =
            ConnectOptions { name: "timestone demo".to_owned(), ..ConnectOptions::default() };
        let db = blocking::connect_with(url, &options)?.with_deadline(OPERATION_DEADLINE);
        let accounts = Accounts::of(map);
        let balance = INITIAL_BALANCE.to_string().into_bytes();
        // To store the same once more does no harm: nothing moves yet.
        let once = TransactOptions { max_attempts: 1, ..TransactOptions::default() };
        until(OPEN_TIMEOUT, Some(interrupt), || {
            db.transact_with(&once, |tx| {
                accounts.keys.iter().try_for_each(|key| tx.put(key, &balance))
            })
        })
        .map_err(|error| match error {
            None => Failure::interrupted("the demo was ended before its accounts were stored"),
            Some(error) => Failure::failed(format!(
                "the cluster did not store the accounts within {OPEN_TIMEOUT:?}: {error}"
            )),
        })?;
        let mut in_use = vec![false; map.shards().len()];
        accounts.shards.iter().for_each(|&shard| in_use[shard] = true);
        let tally = Mutex::new(Tally::new(accounts.total(), &in_use, Instant::now()));
        let shared = Arc::new(Shared { accounts, tally, is_over: AtomicBool::new(false) });
        Ok(Self { db, shared, sessions: None })
    }

    /// How many accounts there are.
    pub(super) fn accounts(&self) -> usize {
        self.shared.accounts.keys.len()
    }

    /// What they hold together.
    pub(super) fn total(&self) -> i64 {
        self.shared.accounts.total()
    }

    /// The counters.
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.shared.tally()
    }

    /// Starts the sessions.
    pub(super) fn run(&mut self, clients: u32, per_second: u32, seed: u64) {
        let shared = Arc::clone(&self.shared);
        let pace = SessionPace { clients, per_second };
        let drive = move |db| drive(db, shared, pace, seed);
        self.sessions = Some(self.db.as_async().spawn(drive));
    }

    /// Ends the sessions, and waits until they have ended.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.shared.is_over.store(true, Relaxed);
        let Some(sessions) = self.sessions.take() else { return Ok(()) };
        match sessions.wait()? {
            0 => Ok(()),
            left => Err(Failure::failed(format!(
                "{left} sessions did not end within {SESSIONS_TIMEOUT:?} after their deadline"
            ))),
        }
    }

    /// What all accounts hold together now, in one transaction that is validated.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let transaction =
            TransactionOptions { read_only: true, strict: true, ..TransactionOptions::default() };
        let options = TransactOptions { transaction, max_attempts: 1 };
        let keys = &self.shared.accounts.keys;
        let found =
            until(CHECK_TIMEOUT, None, || self.db.transact_with(&options, |tx| tx.get_many(keys)))
                .map_err(|error| {
                    let why = error.map_or_else(String::new, |error| format!(": {error}"));
                    Failure::failed(format!(
                        "the bank could not be checked at the end, within {CHECK_TIMEOUT:?}{why}"
                    ))
                })?;
        let mut tally = self.tally();
        match sum_of(keys, found.iter().map(Option::as_deref)) {
            Ok(sum) => tally.check(sum),
            Err(what) => tally.broken(what),
        }
        Ok(())
    }
}

/// Tries until it works; the last error when it does not in time, none after a signal.
fn until<T>(
    timeout: Duration,
    interrupt: Option<&Interrupt>,
    mut attempt: impl FnMut() -> timestone::Result<T>,
) -> Result<T, Option<Error>> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if begin.elapsed() > timeout => return Err(Some(error)),
            Err(_) if interrupt.is_some_and(Interrupt::has_come) => return Err(None),
            Err(_) => std::thread::sleep(TICK),
        }
    }
}

fn sum_of<'a>(
    keys: &[Vec<u8>],
    found: impl Iterator<Item = Option<&'a [u8]>>,
) -> Result<i64, String> {
    keys.iter().zip(found).map(|(key, value)| balance_of(key, value)).sum()
}

fn balance_of(key: &[u8], value: Option<&[u8]>) -> Result<i64, String> {
    let key = key.escape_ascii();
    let Some(value) = value else { return Err(format!("{key} is gone")) };
    integer_of(value).map_err(|error| format!("{key} holds no balance: {error}"))
}

/// How often sessions begin transactions.
#[derive(Clone, Copy, Debug)]
struct SessionPace {
    clients: u32,
    per_second: u32,
}

impl SessionPace {
    /// From one transaction of a session to its next.
    fn period(self) -> Duration {
        Duration::from_secs_f64(f64::from(self.clients) / f64::from(self.per_second))
    }
}

/// When a session begins its next transaction: at the next of its own times. What it has missed is
/// not made up for, and it does not begin at once: after a failover all sessions would, and meet in
/// conflicts from then on.
fn next_due(due: Instant, period: Duration, now: Instant) -> Instant {
    let missed = now.saturating_duration_since(due).div_duration_f64(period) as u32;
    due + period * (missed + 1)
}

/// On the event loop: runs all sessions to their end; how many did not reach it.
async fn drive(
    db: LocalDb,
    shared: Arc<Shared>,
    pace: SessionPace,
    seed: u64,
) -> timestone::Result<u32> {
    let live = Rc::new(Cell::new(pace.clients));
    let begin = Instant::now();
    for client in 0..pace.clients {
        let session = Session {
            db: db.new_session()?,
            shared: Arc::clone(&shared),
            random: Random::derived(seed, u64::from(client)),
        };
        let first = begin + pace.period().mul_f64(f64::from(client) / f64::from(pace.clients));
        let live = Rc::clone(&live);
        db.spawn(async move {
            session.run(first, pace.period()).await;
            live.set(live.get() - 1);
        });
    }
    let mut over_since = None;
    while live.get() > 0 {
        db.sleep(TICK).await?;
        let is_over = shared.is_over.load(Relaxed);
        if is_over && over_since.get_or_insert_with(Instant::now).elapsed() > SESSIONS_TIMEOUT {
            break;
        }
    }
    Ok(live.get())
}

/// Why a transaction did not commit.
enum Failed {
    /// Before its commit, or in it, with nothing written.
    Met(Error),
    /// In its commit.
    Unknown,
    /// It found something that is no account.
    Broken(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Met(error)
    }
}

/// One session.
struct Session {
    db: LocalDb,
    shared: Arc<Shared>,
    random: Random,
}

impl Session {
    /// Runs a transaction at each of its times until the run is over; one that is late is not made
    /// up for.
    async fn run(mut self, first: Instant, period: Duration) {
        let mut due = first;
        while !self.shared.is_over.load(Relaxed) {
            let wait = due.saturating_duration_since(Instant::now()).min(TICK);
            if !wait.is_zero() {
                if self.db.sleep(wait).await.is_err() {
                    // The event loop ends.
                    return;
                }
                continue;
            }
            due = next_due(due, period, Instant::now());
            let ended = if self.random.percent(READING_PERCENT) {
                self.look_at_all().await
            } else {
                self.transfer().await
            };
            let refused = ended.err().is_some_and(|failed| self.note(failed));
            if refused && self.db.sleep(REFUSED_PAUSE).await.is_err() {
                return;
            }
        }
    }

    /// Counts a failure; whether it was a refusal.
    fn note(&self, failed: Failed) -> bool {
        let mut tally = self.shared.tally();
        match failed {
            Failed::Met(error) => match error.abort_kind() {
                Some(kind) => tally.aborted(kind),
                None if error.code() == ErrorCode::UnknownOutcome => tally.unknown(),
                None => {
                    tally.refused(error.to_string());
                    return true;
                }
            },
            Failed::Unknown => tally.unknown(),
            Failed::Broken(what) => tally.broken(what),
        }
        false
    }

    async fn transfer(&mut self) -> Result<(), Failed> {
        let shared = Arc::clone(&self.shared);
        let accounts = &shared.accounts;
        let count = accounts.keys.len() as u64;
        let from = self.random.below(count);
        let to = (from + self.random.between(1, count - 1)) % count;
        let [from, to] = [from, to].map(|account| account as usize);
        let amount = self.random.between(1, MAX_AMOUNT) as i64;
        let (payer, payee) = (&accounts.keys[from], &accounts.keys[to]);

        let tx = self.db.begin(&TransactionOptions::default())?;
        let (has, gets) = (tx.get(payer), tx.get(payee));
        let (has, gets) = (has.await?, gets.await?);
        let has = balance_of(payer, has.as_deref()).map_err(Failed::Broken)?;
        let gets = balance_of(payee, gets.as_deref()).map_err(Failed::Broken)?;
        let amount = amount.min(has);
        tx.put(payer, (has - amount).to_string().as_bytes())?;
        tx.put(payee, (gets + amount).to_string().as_bytes())?;
        tx.commit().await.map_err(|error| match error.had_no_effect() {
            true => Failed::Met(error),
            false => Failed::Unknown,
        })?;
        let shards = [accounts.shards[from], accounts.shards[to]];
        shared.tally().committed(&shards, Instant::now());
        Ok(())
    }

    /// Reads all accounts in one snapshot. It commits without a message, so that it tells nothing
    /// of shards that serve.
    async fn look_at_all(&self) -> Result<(), Failed> {
        let keys = &self.shared.accounts.keys;
        let read_only = TransactionOptions { read_only: true, ..TransactionOptions::default() };
        let tx = self.db.begin(&read_only)?;
        let found = tx.get_many(keys).await?;
        tx.commit().await?;
        let sum = sum_of(keys, found.iter().map(Option::as_deref)).map_err(Failed::Broken)?;
        let mut tally = self.shared.tally();
        tally.committed(&[], Instant::now());
        tally.check(sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::ClusterId;

    use super::*;

    #[test]
    fn every_shard_of_a_small_cluster_has_accounts() {
        for shards in 1..=16 {
            let map = ShardMap::even(ClusterId::new(7), shards).unwrap();
            let accounts = Accounts::of(&map);
            let has_some = |shard| accounts.shards.contains(&shard);
            assert!((0..usize::from(shards)).all(has_some), "{shards}: {accounts:?}");
        }
    }

    #[test]
    fn sessions_keep_their_own_times() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let next = |now| next_due(at(10), Duration::from_millis(100), at(now));
        for (now, due) in [(10, 110), (109, 110), (111, 210), (1_050, 1_110)] {
            assert_eq!(next(now), at(due), "{now}");
        }
    }

    #[test]
    fn an_account_that_is_gone_is_told() {
        let keys = [b"account/0000".to_vec(), b"account/0001".to_vec()];
        let sum = |found: [Option<&[u8]>; 2]| sum_of(&keys, found.into_iter());
        assert_eq!(sum([Some(b"40"), Some(b"2")]), Ok(42));
        assert_eq!(sum([Some(b"40"), None]), Err("account/0001 is gone".to_owned()));
        assert!(sum([Some(b"x"), None]).unwrap_err().starts_with("account/0000 holds no balance"));
    }
}

//! Loads: each is one loop that works until it is told to stop, survives whatever happens to the
//! server, and writes down in the [`Journal`] what it asked for and what it was told.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use timestone::blocking::{Db, Transaction};
use timestone::{Error, TransactionOptions};

use crate::journal::{Journal, WorkEnd, value_of};
use crate::random::Random;
use crate::resp::{Reply, Resp};

/// Accounts of the bank, and what each begins with.
pub(crate) const ACCOUNTS: u64 = 24;
const BALANCE: i64 = 1000;
/// The bank's total, for ever.
pub(crate) const TOTAL: i64 = ACCOUNTS as i64 * BALANCE;
/// Some works give up so soon that a restart leaves their outcome unknown.
const SHORT_DEADLINE: Duration = Duration::from_millis(250);
/// Pause after the server could not be reached.
const PAUSE: Duration = Duration::from_millis(20);

/// Loads under way.
pub(crate) struct Loads {
    stop: Arc<AtomicBool>,
    threads: Vec<(String, JoinHandle<()>)>,
    python: Option<(Child, ChildStdin)>,
}

/// What every load is given.
#[derive(Clone)]
struct LoadContext {
    name: String,
    journal: Arc<Journal>,
    stop: Arc<AtomicBool>,
    random: Random,
}

impl LoadContext {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// What an error of the native client says about the work that met it.
    fn fate_of(&self, error: &Error) -> WorkEnd {
        self.journal.met(&self.name, error);
        WorkEnd::of(error)
    }

    fn settle(&self, work: crate::journal::WorkId, fate: WorkEnd) {
        self.journal.settle(&self.name, work, fate);
        if fate != WorkEnd::Acknowledged {
            std::thread::sleep(PAUSE);
        }
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("account/{number}").into_bytes()
}

fn amount(value: Option<timestone::Value>) -> Result<i64, Error> {
    let value = value.ok_or_else(|| Error::application("an account is missing"))?;
    String::from_utf8_lossy(&value)
        .parse()
        .map_err(|_| Error::application(format!("an account holds {value:?}")))
}

/// Opens the accounts.
pub(crate) fn open_bank(db: &Db) {
    db.transact(|tx| {
        (0..ACCOUNTS)
            .try_for_each(|number| tx.put(&account(number), BALANCE.to_string().as_bytes()))
    })
    .expect("the bank can be opened");
}

/// The bank's total in one snapshot.
pub(crate) fn bank_total(db: &Db) -> i64 {
    let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
    let total =
        db.transact(|tx| tx.get_many(&keys)?.into_iter().map(amount).sum::<Result<i64, Error>>());
    total.unwrap_or_else(|error| panic!("could not add up the bank: {error}"))
}

impl Loads {
    pub(crate) fn new() -> Self {
        Self { stop: Arc::default(), threads: Vec::new(), python: None }
    }

    fn spawn(
        &mut self,
        name: &str,
        journal: &Arc<Journal>,
        random: &mut Random,
        body: impl FnOnce(LoadContext) + Send + 'static,
    ) {
        let context = LoadContext {
            name: name.to_owned(),
            journal: Arc::clone(journal),
            stop: Arc::clone(&self.stop),
            random: random.fork(),
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(context))
            .expect("a thread can be started");
        self.threads.push((name.to_owned(), thread));
    }

    /// Transfers between accounts, every one with a receipt; half of them by hand and without a
    /// retry.
    pub(crate) fn bank(
        &mut self,
        name: &'static str,
        db: Db,
        journal: &Arc<Journal>,
        random: &mut Random,
    ) {
        self.spawn(name, journal, random, move |mut context| {
            let hasty = db.with_deadline(SHORT_DEADLINE);
            for number in 0u64.. {
                if !context.goes_on() {
                    return;
                }
                let (from, to) = (context.random.below(ACCOUNTS), context.random.below(ACCOUNTS));
                let sum = context.random.below(20) as i64;
                let receipt = format!("{name}/{number}");
                let transfer = |tx: &Transaction| {
                    let (have, had) =
                        (amount(tx.get(&account(from))?)?, amount(tx.get(&account(to))?)?);
                    if from != to {
                        tx.put(&account(from), (have - sum).to_string().as_bytes())?;
                        tx.put(&account(to), (had + sum).to_string().as_bytes())?;
                    }
                    tx.put(receipt.as_bytes(), value_of(&receipt).as_bytes())
                };
                let work = context.journal.begin(vec![receipt.clone()]);
                let done = match number % 4 {
                    0 => db.transact(transfer),
                    1 => hasty.transact(transfer),
                    2 => hasty
                        .begin(&TransactionOptions::default())
                        .and_then(|tx| transfer(&tx).and_then(|()| tx.commit().map(drop))),
                    _ => db
                        .begin(&TransactionOptions::default())
                        .and_then(|tx| transfer(&tx).and_then(|()| tx.commit().map(drop))),
                };
                context.settle(
                    work,
                    done.map_or_else(|error| context.fate_of(&error), |()| WorkEnd::Acknowledged),
                );
            }
        });
    }

    /// Single keys: one of its own for every put, and one that rises.
    pub(crate) fn puts(
        &mut self,
        name: &'static str,
        db: Db,
        journal: &Arc<Journal>,
        random: &mut Random,
    ) {
        self.spawn(name, journal, random, move |context| {
            let hasty = db.with_deadline(SHORT_DEADLINE);
            let rising = format!("{name}/rising");
            for number in 1u64.. {
                if !context.goes_on() {
                    return;
                }
                let db = if number.is_multiple_of(3) { &hasty } else { &db };
                let key = format!("{name}/{number}");
                let work = context.journal.begin(vec![key.clone()]);
                let done = db.put(key.as_bytes(), value_of(&key).as_bytes());
                context.settle(
                    work,
                    done.map_or_else(|error| context.fate_of(&error), |_| WorkEnd::Acknowledged),
                );
                context.journal.rising_tried(&rising, number);
                match db
                    .put(rising.as_bytes(), number.to_string().as_bytes())
                    .map_err(|error| context.fate_of(&error))
                {
                    Ok(_) => context.journal.rising_acknowledged(name, &rising, number),
                    Err(WorkEnd::Refused) => context.journal.rising_refused(&rising, number),
                    Err(_) => {}
                }
            }
        });
    }

    /// Transactions over several keys and shards; some the application aborts.
    pub(crate) fn several(
        &mut self,
        name: &'static str,
        db: Db,
        journal: &Arc<Journal>,
        random: &mut Random,
    ) {
        self.spawn(name, journal, random, move |mut context| {
            let hasty = db.with_deadline(SHORT_DEADLINE);
            for number in 0u64.. {
                if !context.goes_on() {
                    return;
                }
                let keys: Vec<String> = (0..2 + context.random.below(5))
                    .map(|part| format!("{name}/{number}/{part}"))
                    .collect();
                let work = context.journal.begin(keys.clone());
                let db = if number.is_multiple_of(2) { &hasty } else { &db };
                let write = |tx: &Transaction| {
                    keys.iter().try_for_each(|key| tx.put(key.as_bytes(), value_of(key).as_bytes()))
                };
                let done = if number % 16 == 5 {
                    db.transact(|tx| {
                        write(tx).and_then(|()| Err::<(), _>(Error::application("changed my mind")))
                    })
                } else {
                    db.transact(write)
                };
                let fate =
                    done.map_or_else(|error| context.fate_of(&error), |()| WorkEnd::Acknowledged);
                context.settle(work, fate);
            }
        });
    }

    /// Looks at the bank and at one pair of keys all the time: a snapshot is never torn.
    pub(crate) fn reader(
        &mut self,
        name: &'static str,
        db: Db,
        journal: &Arc<Journal>,
        random: &mut Random,
    ) {
        self.spawn(name, journal, random, move |context| {
            let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
            while context.goes_on() {
                let total = db.transact(|tx| {
                    tx.get_many(&keys)?.into_iter().map(amount).sum::<Result<i64, Error>>()
                });
                let work = context.journal.begin(Vec::new());
                match total {
                    Ok(total) => {
                        assert_eq!(total, TOTAL, "a snapshot of the bank does not add up");
                        context.settle(work, WorkEnd::Acknowledged);
                    }
                    Err(error) => {
                        context.journal.met(name, &error);
                        context.settle(work, WorkEnd::Refused);
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }

    /// The Redis protocol: a key of its own for every SET, one that rises, MULTI over several keys,
    /// a counter.
    pub(crate) fn resp(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        journal: &Arc<Journal>,
        random: &mut Random,
    ) {
        self.spawn(name, journal, random, move |context| {
            let mut number = 0;
            while context.goes_on() {
                let Ok(mut resp) = Resp::connect(address) else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                while context.goes_on() {
                    number += 1;
                    if !resp_round(&context, &mut resp, number) {
                        break;
                    }
                }
            }
        });
    }

    /// The same by redis-py, in a process of its own; `false` when there is no Python that has it.
    pub(crate) fn redis_py(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        journal: &Arc<Journal>,
        random: &mut Random,
    ) -> bool {
        let Some(python) = python_with_redis() else { return false };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/load.py");
        let mut child = Command::new(python)
            .args([script, name, &address.ip().to_string(), &address.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter that answered a moment ago can be started");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let stdin = child.stdin.take().expect("piped");
        self.python = Some((child, stdin));
        self.spawn(name, journal, random, move |context| {
            let mut works = std::collections::BTreeMap::new();
            for line in lines.lines().map_while(Result::ok) {
                report(&context, &mut works, &line);
            }
            assert!(works.is_empty(), "{name} ended without a word about {works:?}");
        });
        true
    }

    /// Stops all of them, and waits until every work is settled.
    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some((mut child, mut stdin)) = self.python.take() {
            let _ = stdin.write_all(b"stop\n");
            drop(stdin);
            let status = child.wait().expect("our own child");
            assert!(status.success(), "load.py ended with {status}");
        }
        for (name, thread) in self.threads.drain(..) {
            assert!(thread.join().is_ok(), "load {name} failed");
        }
    }

    /// Waits until every one of them was served again: their clients find the server by themselves.
    pub(crate) fn wait_until_served(&self, journal: &Journal, timeout: Duration) {
        let before: Vec<u64> =
            self.threads.iter().map(|(name, _)| journal.acknowledged(name)).collect();
        crate::server::eventually("the loads' return", timeout, || {
            for ((name, thread), before) in self.threads.iter().zip(&before) {
                assert!(!thread.is_finished(), "load {name} ended by itself");
                if journal.acknowledged(name) <= *before {
                    return Err(format!(
                        "load {name} is not served again: {}",
                        journal.situation()
                    ));
                }
            }
            Ok(())
        });
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some((mut child, _)) = self.python.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The interpreter to use: the one that the environment names, else python3, when it has the
/// module.
pub(crate) fn python_with_redis() -> Option<String> {
    let named = std::env::var("TIMESTONE_TEST_PYTHON").ok();
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let probe = Command::new(&python)
        .args(["-c", "import redis"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = probe.is_ok_and(|status| status.success());
    assert!(found || named.is_none(), "TIMESTONE_TEST_PYTHON={python} cannot import redis");
    found.then_some(python)
}

/// What an error reply says about the work that met it.
fn fate_of(error: &str) -> WorkEnd {
    if error.starts_with("UNKNOWN") { WorkEnd::Unknown(None) } else { WorkEnd::Refused }
}

/// One round of commands; `false` when the connection is lost.
fn resp_round(context: &LoadContext, resp: &mut Resp, number: u64) -> bool {
    let name = &context.name;
    let fate = |reply: &std::io::Result<Reply>, done: fn(&Reply) -> bool| match reply {
        Ok(Reply::Error(error)) => fate_of(error),
        Ok(reply) if done(reply) => WorkEnd::Acknowledged,
        Ok(reply) => panic!("{name}: an unexpected reply {reply:?}"),
        Err(_) => WorkEnd::Unknown(None),
    };
    let key = format!("{name}/{number}");
    let work = context.journal.begin(vec![key.clone()]);
    let reply = resp.call(&[b"SET", key.as_bytes(), value_of(&key).as_bytes()]);
    context.settle(work, fate(&reply, Reply::is_ok));
    if reply.is_err() {
        return false;
    }

    let rising = format!("{name}/rising");
    context.journal.rising_tried(&rising, number);
    let reply = resp.call(&[b"SET", rising.as_bytes(), number.to_string().as_bytes()]);
    match fate(&reply, Reply::is_ok) {
        WorkEnd::Acknowledged => context.journal.rising_acknowledged(name, &rising, number),
        WorkEnd::Refused => context.journal.rising_refused(&rising, number),
        _ => {}
    }
    if reply.is_err() {
        return false;
    }

    let keys: Vec<String> = (0..3).map(|part| format!("{name}/{number}/{part}")).collect();
    let work = context.journal.begin(keys.clone());
    let reply = exec(resp, &keys);
    context.settle(
        work,
        fate(
            &reply,
            |reply| matches!(reply, Reply::Array(replies) if replies.iter().all(Reply::is_ok)),
        ),
    );
    if reply.is_err() {
        return false;
    }

    let counter = format!("{name}/counter");
    context.journal.counter_tried(&counter);
    let reply = resp.call(&[b"INCR", counter.as_bytes()]);
    match fate(&reply, |reply| matches!(reply, Reply::Integer(_))) {
        WorkEnd::Acknowledged => context.journal.counter_acknowledged(name, &counter),
        WorkEnd::Refused => context.journal.counter_refused(&counter),
        _ => {}
    }
    reply.is_ok()
}

fn exec(resp: &mut Resp, keys: &[String]) -> std::io::Result<Reply> {
    resp.queue(&[b"MULTI"])?;
    for key in keys {
        resp.queue(&[b"SET", key.as_bytes(), value_of(key).as_bytes()])?;
    }
    resp.queue(&[b"EXEC"])?;
    for _ in 0..=keys.len() {
        resp.reply()?;
    }
    resp.reply()
}

/// One line of load.py: what happened, then the number of the work or the key.
fn report(
    context: &LoadContext,
    works: &mut std::collections::BTreeMap<String, crate::journal::WorkId>,
    line: &str,
) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let journal = &context.journal;
    match words[..] {
        ["begin", id, ref keys @ ..] => {
            works.insert(
                id.to_owned(),
                journal.begin(keys.iter().map(|&key| key.to_owned()).collect()),
            );
        }
        [told @ ("done" | "refused" | "unknown"), id] => {
            let work = works
                .remove(id)
                .unwrap_or_else(|| panic!("load.py settles a work that it never began: {line}"));
            let fate = match told {
                "done" => WorkEnd::Acknowledged,
                "refused" => WorkEnd::Refused,
                _ => WorkEnd::Unknown(None),
            };
            journal.settle(&context.name, work, fate);
        }
        ["rising", "tried", key, number] => {
            journal.rising_tried(key, number.parse().expect("a number"))
        }
        ["rising", "done", key, number] => {
            journal.rising_acknowledged(&context.name, key, number.parse().expect("a number"))
        }
        ["rising", "refused", key, number] => {
            journal.rising_refused(key, number.parse().expect("a number"))
        }
        ["counter", "tried", key] => journal.counter_tried(key),
        ["counter", "done", key] => journal.counter_acknowledged(&context.name, key),
        ["counter", "refused", key] => journal.counter_refused(key),
        _ => panic!("load.py wrote a line that means nothing: {line}"),
    }
}

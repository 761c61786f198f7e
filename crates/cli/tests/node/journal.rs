//! What loads did and what they were told: the truth that a restarted server is measured by.
//!
//! ```text
//!   load ─ begin(keys) ─► Journal ◄─ settle(acknowledged │ refused │ unknown) ─ load
//!                            │
//!   check ◄─ settled since the last look, plus some older ones
//! ```
//! Every key of a work is its own, and holds the value that belongs to the key, so a check is sound
//! while loads go on: an acknowledged work is there with all its keys, a refused one with none, one
//! of unknown outcome with all or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use timestone::blocking::Db;
use timestone::{Error, ErrorCode, TxnId, TxnStatus};

use crate::random::Random;

/// What a load was told of a work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkEnd {
    /// Nothing yet.
    Open,
    /// It took place.
    Acknowledged,
    /// It did not take place, and never will.
    Refused,
    /// Nobody could say; the transaction to ask about, where it is known.
    Unknown(Option<TxnId>),
}

impl WorkEnd {
    /// What an error of the native client says about the work that met it.
    pub(crate) fn of(error: &Error) -> Self {
        match error.code() {
            ErrorCode::UnknownOutcome | ErrorCode::SessionEnded => Self::Unknown(error.txn()),
            _ => Self::Refused,
        }
    }
}

/// A work of a load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WorkId(usize);

#[derive(Clone, Debug)]
struct JournaledWork {
    keys: Vec<String>,
    fate: WorkEnd,
}

/// A key that one writer overwrites with rising numbers.
#[derive(Clone, Debug, Default)]
struct Rising {
    tried: u64,
    acknowledged: u64,
    refused: BTreeSet<u64>,
}

/// A counter that one writer adds ones to.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    tried: u64,
    acknowledged: u64,
    refused: u64,
}

#[derive(Debug, Default)]
struct JournalState {
    works: Vec<JournaledWork>,
    unchecked: Vec<WorkId>,
    rising: BTreeMap<String, Rising>,
    counters: BTreeMap<String, Counter>,
    acknowledged: BTreeMap<String, u64>,
    errors: BTreeMap<String, String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<JournalState>);

/// The value that belongs to a key: tells a value of another key, a torn one, or one of the wrong
/// length from a right one.
pub(crate) fn value_of(key: &str) -> String {
    let length = key.bytes().map(usize::from).sum::<usize>() * 37 % 1500;
    format!("{key}|{}", "x".repeat(length))
}

impl Journal {
    fn state(&self) -> std::sync::MutexGuard<'_, JournalState> {
        self.0.lock().expect("nobody panics with the journal")
    }

    /// A work is about to be asked for.
    pub(crate) fn begin(&self, keys: Vec<String>) -> WorkId {
        let mut state = self.state();
        state.works.push(JournaledWork { keys, fate: WorkEnd::Open });
        WorkId(state.works.len() - 1)
    }

    /// A load was told what became of its work.
    pub(crate) fn settle(&self, load: &str, work: WorkId, fate: WorkEnd) {
        let mut state = self.state();
        state.works[work.0].fate = fate;
        state.unchecked.push(work);
        if fate == WorkEnd::Acknowledged {
            *state.acknowledged.entry(load.to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn rising_tried(&self, key: &str, number: u64) {
        self.state().rising.entry(key.to_owned()).or_default().tried = number;
    }

    pub(crate) fn rising_acknowledged(&self, load: &str, key: &str, number: u64) {
        let mut state = self.state();
        state.rising.entry(key.to_owned()).or_default().acknowledged = number;
        *state.acknowledged.entry(load.to_owned()).or_default() += 1;
    }

    pub(crate) fn rising_refused(&self, key: &str, number: u64) {
        self.state().rising.entry(key.to_owned()).or_default().refused.insert(number);
    }

    pub(crate) fn counter_tried(&self, key: &str) {
        self.state().counters.entry(key.to_owned()).or_default().tried += 1;
    }

    pub(crate) fn counter_acknowledged(&self, load: &str, key: &str) {
        let mut state = self.state();
        state.counters.entry(key.to_owned()).or_default().acknowledged += 1;
        *state.acknowledged.entry(load.to_owned()).or_default() += 1;
    }

    pub(crate) fn counter_refused(&self, key: &str) {
        self.state().counters.entry(key.to_owned()).or_default().refused += 1;
    }

    /// The error that a load met last, for whoever has to find out why it does not go on.
    pub(crate) fn met(&self, load: &str, error: &dyn std::fmt::Display) {
        self.state().errors.insert(load.to_owned(), error.to_string());
    }

    /// Acknowledged works and the last error of every load.
    pub(crate) fn situation(&self) -> String {
        let state = self.state();
        format!("acknowledged {:?}; last errors {:?}", state.acknowledged, state.errors)
    }

    /// How many works of a load were acknowledged so far.
    pub(crate) fn acknowledged(&self, load: &str) -> u64 {
        self.state().acknowledged.get(load).copied().unwrap_or(0)
    }

    /// What was done, in one line.
    pub(crate) fn summary(&self) -> String {
        let state = self.state();
        let count = |wanted: fn(&WorkEnd) -> bool| {
            state.works.iter().filter(|work| wanted(&work.fate)).count()
        };
        format!(
            "{} works: {} acknowledged, {} refused, {} unknown, {} open; by load {:?}",
            state.works.len(),
            count(|fate| *fate == WorkEnd::Acknowledged),
            count(|fate| *fate == WorkEnd::Refused),
            count(|fate| matches!(fate, WorkEnd::Unknown(_))),
            count(|fate| *fate == WorkEnd::Open),
            state.acknowledged
        )
    }

    /// Works settled since the last call, and `more` older ones.
    fn to_check(&self, random: &mut Random, more: usize) -> Vec<(WorkId, JournaledWork)> {
        let mut state = self.state();
        let mut chosen: BTreeSet<WorkId> =
            std::mem::take(&mut state.unchecked).into_iter().collect();
        for _ in 0..more.min(state.works.len()) {
            chosen.insert(WorkId(random.below(state.works.len() as u64) as usize));
        }
        chosen
            .into_iter()
            .map(|id| (id, state.works[id.0].clone()))
            .filter(|(_, work)| work.fate != WorkEnd::Open)
            .collect()
    }

    /// Checks what was settled since the last time and some older works, the rising keys and the
    /// counters.
    pub(crate) fn check(&self, db: &Db, random: &mut Random) -> usize {
        let works = self.to_check(random, 200);
        self.check_works(db, &works);
        self.check_numbers(db);
        works.len()
    }

    /// Checks every work there ever was.
    pub(crate) fn check_all(&self, db: &Db) -> usize {
        let works: Vec<(WorkId, JournaledWork)> = self
            .state()
            .works
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, work)| (WorkId(index), work))
            .collect();
        self.check_works(db, &works);
        self.check_numbers(db);
        works.len()
    }

    fn check_works(&self, db: &Db, works: &[(WorkId, JournaledWork)]) {
        for some in works.chunks(500) {
            let asked: Vec<_> = some
                .iter()
                .map(|(_, work)| {
                    work.keys
                        .iter()
                        .map(|key| db.as_async().get(key.as_bytes()))
                        .collect::<Vec<_>>()
                })
                .collect();
            for ((_, work), answers) in some.iter().zip(asked) {
                let mut present = 0;
                for (key, answer) in work.keys.iter().zip(answers) {
                    let value = answer
                        .wait()
                        .unwrap_or_else(|error| panic!("could not read {key}: {error}"));
                    if let Some(value) = value {
                        assert_eq!(
                            String::from_utf8_lossy(&value),
                            value_of(key),
                            "key {key} holds another key's value, or a damaged one"
                        );
                        present += 1;
                    }
                }
                let all = work.keys.len();
                match work.fate {
                    WorkEnd::Acknowledged => assert!(present == all, "{}", lost(db, &work.keys)),
                    WorkEnd::Refused => {
                        assert_eq!(present, 0, "reported as failed, and visible: {:?}", work.keys)
                    }
                    WorkEnd::Unknown(txn) => check_unknown(db, &work.keys, txn),
                    WorkEnd::Open => {}
                }
            }
        }
    }

    fn check_numbers(&self, db: &Db) {
        let (rising, counters) = {
            let state = self.state();
            (state.rising.clone(), state.counters.clone())
        };
        let number = |key: &str| -> u64 {
            let value = db
                .get(key.as_bytes())
                .unwrap_or_else(|error| panic!("could not read {key}: {error}"));
            value.map_or(0, |value| {
                String::from_utf8_lossy(&value)
                    .trim()
                    .parse()
                    .unwrap_or_else(|_| panic!("{key} holds no number: {value:?}"))
            })
        };
        for (key, before) in rising {
            let found = number(&key);
            assert!(
                found >= before.acknowledged,
                "{key} is {found}, but {} was acknowledged",
                before.acknowledged
            );
            self.soon(|state| {
                let after = &state.rising[&key];
                assert!(
                    !after.refused.contains(&found),
                    "{key} is {found}, which was reported as failed"
                );
                (found <= after.tried)
                    .then_some(())
                    .ok_or_else(|| format!("{key} is {found}, but only {} was tried", after.tried))
            });
        }
        for (key, before) in counters {
            let found = number(&key);
            assert!(
                found >= before.acknowledged,
                "{key} is {found}, but {} additions were acknowledged",
                before.acknowledged
            );
            self.soon(|state| {
                let most = state.counters[&key].tried - before.refused;
                (found <= most).then_some(()).ok_or_else(|| {
                    format!("{key} is {found}, but at most {most} can have been added")
                })
            });
        }
    }

    /// What another process reports may be a moment late.
    fn soon(&self, check: impl Fn(&JournalState) -> Result<(), String>) {
        crate::server::eventually("a number", std::time::Duration::from_secs(5), || {
            check(&self.state())
        });
    }
}

/// What can be said of an acknowledged work that is not all there: which keys, and whether they
/// turn up later.
fn lost(db: &Db, keys: &[String]) -> String {
    let missing = || {
        keys.iter()
            .filter(|key| db.get(key.as_bytes()).is_ok_and(|value| value.is_none()))
            .collect::<Vec<_>>()
    };
    let now = missing();
    std::thread::sleep(std::time::Duration::from_secs(4));
    format!(
        "acknowledged, and lost: of {keys:?} {now:?} are not there, and 4 s later {:?}",
        missing()
    )
}

/// All keys or none; and as the transaction's status says, where somebody still knows it.
fn check_unknown(db: &Db, keys: &[String], txn: Option<TxnId>) {
    let status = txn.and_then(|txn| db.status(txn).ok());
    let present = db.transact(|tx| Ok(tx.get_many(keys)?.iter().flatten().count()));
    let present = present.unwrap_or_else(|error| panic!("could not read {keys:?}: {error}"));
    match status {
        Some(TxnStatus::Committed(_)) => {
            assert_eq!(
                present,
                keys.len(),
                "its status is committed, and it is not there: {keys:?}"
            )
        }
        Some(TxnStatus::Aborted) => {
            assert_eq!(present, 0, "its status is aborted, and it is visible: {keys:?}")
        }
        _ => assert!(
            present == 0 || present == keys.len(),
            "{present} of {} keys of one transaction are visible: {keys:?}",
            keys.len()
        ),
    }
}

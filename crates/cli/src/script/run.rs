//! Runs statements in one transaction: reads at once, writes at commit, conditions in between.

use timestone::blocking::{Db, Transaction};
use timestone::{ScanOptions, Timestamp, TransactionOptions};

use super::{Numbered, Statement};
use crate::failure::Failure;
use crate::moment;
use crate::output::shown;

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScriptOutcome {
    /// It took effect.
    Committed(Timestamp),
    /// The script said so; it took no effect.
    Aborted,
}

/// What a `get` found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScriptRead {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// Its value; `None` when it is absent.
    pub(crate) value: Option<Vec<u8>>,
}

/// Is shown every read as it is answered.
pub(crate) type ReadObserver<'a> = dyn FnMut(ScriptRead) -> Result<(), Failure> + 'a;

/// One transaction under way. Dropped before its end, it takes no effect.
pub(crate) struct Runner {
    db: Db,
    transaction: Transaction,
}

impl Runner {
    /// Begins a transaction.
    pub(crate) fn begin(db: &Db) -> Result<Self, Failure> {
        let transaction = db.begin(&TransactionOptions::default())?;
        Ok(Self { db: db.clone(), transaction })
    }

    /// Runs one statement; `Some` when it was the last one.
    pub(crate) fn step(
        &self,
        statement: &Statement,
        observe: &mut ReadObserver<'_>,
    ) -> Result<Option<ScriptOutcome>, Failure> {
        match statement {
            Statement::Get(key) => {
                let value = self.transaction.get(key)?.map(Vec::from);
                observe(ScriptRead { key: key.clone(), value })?;
            }
            Statement::Scan(prefix) => {
                let options = ScanOptions { prefix: prefix.clone(), ..ScanOptions::default() };
                for entry in self.transaction.scan(&options)? {
                    let (key, value) = entry?;
                    observe(ScriptRead { key: key.to_vec(), value: Some(value.to_vec()) })?;
                }
            }
            Statement::Put { key, value, end: None } => self.transaction.put(key, value)?,
            Statement::Put { key, value, end: Some(end) } => {
                let past =
                    |problem| Failure::usage(format!("the expiry of {} {problem}", shown(key)));
                let now = moment::now(&self.db)?;
                let expiry = end.resolve_ahead(now).map_err(past)?;
                self.transaction.put_until(key, value, expiry)?;
            }
            Statement::Delete(key) => self.transaction.delete(key)?,
            Statement::If(key, test) => {
                let found = self.transaction.get(key)?;
                if !test.holds(found.as_deref()) {
                    let has = found.map_or_else(
                        || "is absent".to_owned(),
                        |value| format!("has \"{}\"", shown(&value)),
                    );
                    return Err(Failure::conflict(format!(
                        "the condition 'if {} {test}' does not hold, the key {has}: the \
                         transaction is aborted, nothing was written",
                        shown(key)
                    )));
                }
            }
            Statement::Commit => return self.commit().map(Some),
            Statement::Abort => {
                self.transaction.abort();
                return Ok(Some(ScriptOutcome::Aborted));
            }
        }
        Ok(None)
    }

    /// Commits.
    pub(crate) fn commit(&self) -> Result<ScriptOutcome, Failure> {
        match self.transaction.commit() {
            Ok(at) => Ok(ScriptOutcome::Committed(at)),
            Err(error) if error.abort_kind().is_some() => Err(Failure::conflict(format!(
                "the transaction was aborted, nothing was written: {error}"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs a whole script; its end is a commit when it does not say otherwise.
    pub(crate) fn run(
        self,
        statements: &[Numbered],
        observe: &mut ReadObserver<'_>,
    ) -> Result<ScriptOutcome, Failure> {
        for (line, statement) in statements {
            let ended = self.step(statement, observe).map_err(|failure| failure.on_line(*line))?;
            if let Some(ending) = ended {
                return Ok(ending);
            }
        }
        self.commit()
    }
}

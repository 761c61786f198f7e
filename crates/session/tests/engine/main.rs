//! The engine against naive shards over a network that can be fair or foul: what applications are
//! told, and what the shards were told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod backups;
mod broken_peer;
mod clocks;
mod commits;
mod failover;
mod failures;
mod hostile;
mod questions;
mod read_only;
mod singles;
mod storms;
mod world;

use timestone_session::{
    Condition, Mutation, OpId, RequestOptions, SessionError, SessionId, Step, Ticket, TxnHandle,
    TxnOptions,
};
use timestone_types::{Expiry, Timestamp};

use world::{Application, Outcome, SPACE, World, name, pending};

/// Transactions and requests, each brought to its end.
trait Requests {
    fn begin(&mut self, session: SessionId) -> TxnHandle;

    fn begin_with(&mut self, session: SessionId, options: TxnOptions) -> TxnHandle;

    /// Reads a key in a transaction, whatever it takes.
    fn get(&mut self, txn: TxnHandle, key: &[u8]) -> Outcome;

    /// The value that a read finds.
    fn value(&mut self, txn: TxnHandle, key: &[u8]) -> Option<Vec<u8>>;

    fn put(&mut self, txn: TxnHandle, key: &[u8], value: &[u8]);

    fn commit(&mut self, txn: TxnHandle) -> Outcome;

    fn committed(&mut self, txn: TxnHandle) -> Timestamp;

    /// Begins to write a key, without waiting for what comes of it.
    fn begin_write(
        &mut self,
        session: SessionId,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        options: RequestOptions,
    ) -> (OpId, Result<Ticket, SessionError>);

    /// Begins to write `v`, which a shard is asked for.
    fn put_later(&mut self, session: SessionId, key: &[u8], options: RequestOptions) -> OpId;

    fn write(
        &mut self,
        session: SessionId,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        options: RequestOptions,
    ) -> Outcome;

    fn read_latest(&mut self, session: SessionId, key: &[u8], options: RequestOptions) -> Outcome;
}

impl Requests for World {
    fn begin(&mut self, session: SessionId) -> TxnHandle {
        self.host.engine.begin(self.now, session, TxnOptions::default()).unwrap()
    }

    fn begin_with(&mut self, session: SessionId, options: TxnOptions) -> TxnHandle {
        self.host.engine.begin(self.now, session, options).unwrap()
    }

    fn get(&mut self, txn: TxnHandle, key: &[u8]) -> Outcome {
        let op = self.op();
        match self.host.engine.get(self.now, txn, SPACE, key, op) {
            Ok(Step::Value(view)) => Outcome::Value(view.value.map(<[u8]>::to_vec), view.version),
            Ok(Step::Pending(_)) => self.wait(op),
            Ok(Step::Committed(_)) => panic!("a read does not commit"),
            Err(error) => Outcome::Failed(error),
        }
    }

    fn value(&mut self, txn: TxnHandle, key: &[u8]) -> Option<Vec<u8>> {
        match self.get(txn, key) {
            Outcome::Value(value, _) => value,
            other => panic!("a read of {} yields {other:?}", key.escape_ascii()),
        }
    }

    fn put(&mut self, txn: TxnHandle, key: &[u8], value: &[u8]) {
        self.host.engine.write(self.now, txn, name(key), Some(value), Expiry::NEVER).unwrap();
    }

    fn commit(&mut self, txn: TxnHandle) -> Outcome {
        let op = self.op();
        match self.host.engine.commit(self.now, txn, op) {
            Ok(Step::Committed(at)) => Outcome::Committed(at, None),
            Ok(Step::Pending(_)) => self.wait(op),
            Ok(Step::Value(_)) => panic!("a commit has no value"),
            Err(error) => Outcome::Failed(error),
        }
    }

    fn committed(&mut self, txn: TxnHandle) -> Timestamp {
        match self.commit(txn) {
            Outcome::Committed(at, _) => at,
            other => panic!("the commit yields {other:?}"),
        }
    }

    fn begin_write(
        &mut self,
        session: SessionId,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        options: RequestOptions,
    ) -> (OpId, Result<Ticket, SessionError>) {
        let op = self.op();
        let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
        let (now, engine) = (self.now, &mut self.host.engine);
        match engine.write_if(now, session, SPACE, key, mutation, condition, options, op) {
            Ok(Step::Pending(ticket)) => (op, Ok(ticket)),
            Ok(step) => panic!("answered at once: {step:?}"),
            Err(error) => (op, Err(error)),
        }
    }

    fn put_later(&mut self, session: SessionId, key: &[u8], options: RequestOptions) -> OpId {
        let (op, begun) = self.begin_write(session, key, b"v", Condition::Always, options);
        begun.unwrap();
        op
    }

    fn write(
        &mut self,
        session: SessionId,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        options: RequestOptions,
    ) -> Outcome {
        let (op, begun) = self.begin_write(session, key, value, condition, options);
        self.outcome(op, begun.map(|_| true))
    }

    fn read_latest(&mut self, session: SessionId, key: &[u8], options: RequestOptions) -> Outcome {
        let op = self.op();
        let begun =
            pending(self.host.engine.get_latest(self.now, session, SPACE, key, options, op));
        self.outcome(op, begun)
    }
}

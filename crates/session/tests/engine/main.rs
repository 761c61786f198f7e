//! The engine against naive shards over a network that can be fair or foul: what applications are
//! told, and what the shards were told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod commits;
mod failures;
mod shard;
mod singles;
mod storms;
mod world;

use timestone_session::{
    Condition, Mutation, RequestOptions, SessionError, SessionId, Step, TxnHandle, TxnOptions,
};
use timestone_types::{Expiry, Timestamp};

use world::{Outcome, SPACE, World, pending};

impl World {
    fn begin(&mut self, session: SessionId) -> TxnHandle {
        self.engine.begin(self.now, session, TxnOptions::default()).unwrap()
    }

    fn begin_with(&mut self, session: SessionId, options: TxnOptions) -> TxnHandle {
        self.engine.begin(self.now, session, options).unwrap()
    }

    /// Reads a key in a transaction, whatever it takes.
    fn get(&mut self, txn: TxnHandle, key: &[u8]) -> Outcome {
        let op = self.op();
        match self.engine.get(self.now, txn, SPACE, key, op) {
            Ok(Step::Value(view)) => Outcome::Value(view.value.map(<[u8]>::to_vec), view.version),
            Ok(Step::Pending(_)) => self.wait(op),
            Ok(Step::Committed(_)) => panic!("a read does not commit"),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// The value that a read finds.
    fn value(&mut self, txn: TxnHandle, key: &[u8]) -> Option<Vec<u8>> {
        match self.get(txn, key) {
            Outcome::Value(value, _) => value,
            other => panic!("a read of {} yields {other:?}", key.escape_ascii()),
        }
    }

    fn put(&mut self, txn: TxnHandle, key: &[u8], value: &[u8]) {
        self.engine.put(self.now, txn, SPACE, key, value, Expiry::NEVER).unwrap();
    }

    fn commit(&mut self, txn: TxnHandle) -> Outcome {
        let op = self.op();
        match self.engine.commit(self.now, txn, op) {
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

    fn write(
        &mut self,
        session: SessionId,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        options: RequestOptions,
    ) -> Outcome {
        let op = self.op();
        let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
        let step =
            self.engine.write_if(self.now, session, SPACE, key, mutation, condition, options, op);
        let begun: Result<bool, SessionError> = pending(step);
        self.outcome(op, begun)
    }

    fn read_latest(&mut self, session: SessionId, key: &[u8], options: RequestOptions) -> Outcome {
        let op = self.op();
        let begun = pending(self.engine.get_latest(self.now, session, SPACE, key, options, op));
        self.outcome(op, begun)
    }
}

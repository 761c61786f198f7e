//! What a command sees of the store: keys as they are at one point in time, under what the command
//! (and those before it in the same transaction) wrote.
//!
//! Commands are functions over a [`View`] and nothing else, so the same function serves a plain
//! command, a queued one and a retry.

use timestone_session::{Engine, SessionError, TxnHandle, ValueView};
use timestone_types::{Expiry, KeyspaceId, Timestamp};

use super::failure::Failure;

/// The keyspace that the gateway serves: Redis's database 0.
pub(super) const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

/// A key that is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found<'a> {
    /// Its value.
    pub(super) value: &'a [u8],
    /// When it becomes absent.
    pub(super) expires_at: Expiry,
}

/// See the module.
pub(super) trait View {
    /// A key, when it is present. Must be one that the command's `reads` named.
    fn get(&self, key: &[u8]) -> Option<Found<'_>>;

    /// Writes a key.
    ///
    /// # Errors
    /// A limit of keys, values or transactions.
    fn put(&mut self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<(), Failure>;

    /// Makes a key absent.
    ///
    /// # Errors
    /// A limit of transactions.
    fn delete(&mut self, key: &[u8]) -> Result<(), Failure>;
}

/// A transaction of the engine, whose reads have been answered.
pub(super) struct TransactionView<'e> {
    pub(super) engine: &'e mut Engine,
    pub(super) txn: TxnHandle,
    pub(super) now: Timestamp,
}

impl View for TransactionView<'_> {
    fn get(&self, key: &[u8]) -> Option<Found<'_>> {
        let view = self.engine.peek(self.txn, KEYSPACE, key)?;
        view.value.map(|value| Found { value, expires_at: view.expires_at })
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<(), Failure> {
        let put = self.engine.put(self.now, self.txn, KEYSPACE, key, value, expires_at);
        put.map_err(Failure::from)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.engine.delete(self.now, self.txn, KEYSPACE, key).map_err(Failure::from)
    }
}

/// One key as a linearizable read found it, for commands that only read that key.
pub(super) struct OneKeyView<'a> {
    pub(super) found: ValueView<'a>,
}

impl View for OneKeyView<'_> {
    fn get(&self, _key: &[u8]) -> Option<Found<'_>> {
        self.found.value.map(|value| Found { value, expires_at: self.found.expires_at })
    }

    fn put(&mut self, _key: &[u8], _value: &[u8], _expires_at: Expiry) -> Result<(), Failure> {
        Err(SessionError::ReadOnly.into())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), Failure> {
        Err(SessionError::ReadOnly.into())
    }
}

/// Keys in memory, for tests of commands.
#[cfg(test)]
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct MapView {
    pub(super) keys: std::collections::BTreeMap<Vec<u8>, (Vec<u8>, Expiry)>,
}

#[cfg(test)]
impl View for MapView {
    fn get(&self, key: &[u8]) -> Option<Found<'_>> {
        self.keys.get(key).map(|(value, expires_at)| Found { value, expires_at: *expires_at })
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<(), Failure> {
        self.keys.insert(key.to_vec(), (value.to_vec(), expires_at));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.keys.remove(key);
        Ok(())
    }
}

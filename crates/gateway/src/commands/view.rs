//! What a command sees of the store: keys as they are at one point in time, under what the command
//! (and those before it in the same transaction) wrote.
//!
//! Commands are functions over a [`KeyView`] and nothing else, so the same function serves a plain
//! command, a queued one and a retry.

use timestone_session::{Engine, KeyName, SessionError, TxnHandle, ValueView};
use timestone_types::{Expiry, KeyspaceId, Timestamp};

use crate::failure::Failure;

/// A key that is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PresentValue<'a> {
    /// Its value.
    pub(crate) value: &'a [u8],
    /// When it becomes absent.
    pub(crate) expires_at: Expiry,
}

/// See the module.
pub(crate) trait KeyView {
    /// A key, when it is present. Must be one that the command's `reads` named.
    fn get(&self, key: &[u8]) -> Option<PresentValue<'_>>;

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
pub(crate) struct TransactionView<'e> {
    pub(crate) engine: &'e mut Engine,
    pub(crate) txn: TxnHandle,
    pub(crate) now: Timestamp,
    /// The keyspace that the gateway serves: Redis's database 0.
    pub(crate) keyspace: KeyspaceId,
}

impl KeyView for TransactionView<'_> {
    fn get(&self, key: &[u8]) -> Option<PresentValue<'_>> {
        let view = self.engine.peek(self.txn, self.keyspace, key)?;
        view.value.map(|value| PresentValue { value, expires_at: view.expires_at })
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires_at: Expiry) -> Result<(), Failure> {
        let name = KeyName { keyspace: self.keyspace, key };
        let put = self.engine.write(self.now, self.txn, name, Some(value), expires_at);
        debug_assert!(
            put.is_err() || self.get(key).is_some() || !expires_at.is_never(),
            "a transaction reads what it has written, unless that had expired when it began"
        );
        put.map_err(Failure::from)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        let name = KeyName { keyspace: self.keyspace, key };
        let deleted = self.engine.write(self.now, self.txn, name, None, Expiry::NEVER);
        debug_assert!(deleted.is_err() || self.get(key).is_none(), "what is deleted is absent");
        deleted.map_err(Failure::from)
    }
}

/// One key as a linearizable read found it, for commands that only read that key.
pub(crate) struct OneKeyView<'a> {
    pub(crate) found: ValueView<'a>,
}

impl KeyView for OneKeyView<'_> {
    fn get(&self, _key: &[u8]) -> Option<PresentValue<'_>> {
        self.found.value.map(|value| PresentValue { value, expires_at: self.found.expires_at })
    }

    fn put(&mut self, _key: &[u8], _value: &[u8], _expires_at: Expiry) -> Result<(), Failure> {
        debug_assert!(false, "a command that reads one key writes nothing");
        Err(SessionError::ReadOnly.into())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), Failure> {
        debug_assert!(false, "a command that reads one key writes nothing");
        Err(SessionError::ReadOnly.into())
    }
}

/// Keys in memory, for tests of commands.
#[cfg(test)]
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct MapView {
    pub(crate) keys: std::collections::BTreeMap<Vec<u8>, (Vec<u8>, Expiry)>,
}

#[cfg(test)]
impl KeyView for MapView {
    fn get(&self, key: &[u8]) -> Option<PresentValue<'_>> {
        self.keys
            .get(key)
            .map(|(value, expires_at)| PresentValue { value, expires_at: *expires_at })
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

//! Transactions that read a snapshot and are validated by timestamps.

pub(crate) mod keys;
pub(crate) mod record;
pub(crate) mod transact;

//! A shard's records, on their way to the log and in it.

pub(crate) mod journal;
pub(crate) mod order;

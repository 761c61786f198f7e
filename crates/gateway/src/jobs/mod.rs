//! Commands that take more than one step: what a job is, how it runs, and who comes first on a key.

pub(crate) mod job;
pub(crate) mod key_queues;
pub(crate) mod keyspace_scan;
pub(crate) mod run;

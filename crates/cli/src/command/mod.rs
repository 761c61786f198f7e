//! The commands, one file each. Each has its flags (`…Args`) and a function that runs it.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod delete;
pub(crate) mod dump;
pub(crate) mod get;
pub(crate) mod keyspace;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod master;
pub(crate) mod put;
pub(crate) mod scan;
pub(crate) mod scrub;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod txn;
pub(crate) mod version;

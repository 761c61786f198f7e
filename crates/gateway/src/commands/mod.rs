//! What commands mean: their table, their arguments, and what each of them does.
//!
//! ```text
//!   arguments ─► table: which command ─┬─ keys, strings   functions over a view of the command's keys
//!                                      └─ local           the connection's own state, and what is told of the server
//! ```
//! Deliberately absent: connections, transactions and retries; a command is a function over a
//! [`view`].

pub(crate) mod arguments;
pub(crate) mod expiry;
pub(crate) mod extended;
pub(crate) mod glob;
pub(crate) mod integer;
pub(crate) mod keys;
pub(crate) mod local;
pub(crate) mod strings;
pub(crate) mod subcommands;
pub(crate) mod table;
pub(crate) mod view;

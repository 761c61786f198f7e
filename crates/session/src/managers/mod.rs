//! Transaction managers: what a transaction of one kind does at begin, read and commit.

pub(crate) mod timestamps;

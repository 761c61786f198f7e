//! Write sets of promised transactions, from the prepare until the store holds their writes.

pub(crate) mod payload;

//! What the devices over an I/O engine share: the bookkeeping of operations between their
//! acceptance and their completion. Nothing here does I/O.

pub(crate) mod reads;
pub(crate) mod requests;
pub(crate) mod runs;
pub(crate) mod syncs;

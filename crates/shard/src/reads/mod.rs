//! Reads of the store: look-ups of youngest versions, and whether what was found may be told.

pub(crate) mod ahead;
mod answers;
pub(crate) mod expiry;
pub(crate) mod items;
pub(crate) mod lookups;
pub(crate) mod lost;
pub(crate) mod pages;
pub(crate) mod range;
mod scan;

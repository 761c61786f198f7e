//! The bounds of lanes, so small that a ring fills within a model.

/// Slots of a ring.
pub(crate) const LANE_CAPACITY: usize = 2;
/// Events of a chunk.
pub(crate) const LANE_CHUNK: usize = 2;

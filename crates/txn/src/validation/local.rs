//! The client's half of validation: read-only transactions validate themselves (MILANA §4.3) and
//! commit without a message.
//!
//! ```text
//!   each answered read ──▶ observe ──┐
//!   strict? waits for the clocks? ───┴──▶ commits: here │ not: the shards validate, or it aborts
//! ```
//!
//! It is a serializable snapshot at begin, because a primary never lets a write commit at or below
//! the timestamp at which a key was read. A read that met a prepared write at or below begin is not
//! certain: that may have committed. `Strict` transactions, and those that wait for the clocks,
//! promise more than a snapshot, and ask the shards ([`crate::coordinator::CommitKind`]); who read
//! nothing promises nothing.

/// Collects what a read-only transaction needs to know to commit by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalValidation {
    must_be_latest: bool,
    has_reads: bool,
    uncertain: Option<u32>,
}

impl LocalValidation {
    /// Nothing was read yet. `must_be_latest`: a snapshot is not enough.
    #[must_use]
    pub const fn new(must_be_latest: bool) -> Self {
        Self { must_be_latest, has_reads: false, uncertain: None }
    }

    /// Notes one answered read, which the caller knows by its place.
    #[inline]
    pub const fn observe(&mut self, place: u32, prepared_before: bool) {
        debug_assert!(self.has_reads || self.uncertain.is_none(), "what is uncertain was read");
        self.has_reads = true;
        if prepared_before && self.uncertain.is_none() {
            self.uncertain = Some(place);
        }
    }

    /// The first read that met a prepared version at or below begin.
    #[must_use]
    pub const fn uncertain(self) -> Option<u32> {
        self.uncertain
    }

    /// Whether the transaction commits here and now, if it wrote nothing.
    #[must_use]
    pub const fn commits(self) -> bool {
        !self.has_reads || (!self.must_be_latest && self.uncertain.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_uncertain_read_is_enough() {
        let mut validation = LocalValidation::default();
        validation.observe(0, false);
        assert!(validation.commits());
        validation.observe(1, true);
        validation.observe(2, true);
        validation.observe(3, false);
        assert!(!validation.commits());
        assert_eq!(validation.uncertain(), Some(1));
    }

    #[test]
    fn who_promises_more_than_a_snapshot_asks_unless_it_read_nothing() {
        let mut validation = LocalValidation::new(true);
        assert!(validation.commits());
        validation.observe(0, false);
        assert!(!validation.commits());
    }
}

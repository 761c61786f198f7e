//! Local validation of read-only transactions (MILANA §4.3): they commit at the client, without a
//! message.
//!
//! It is a serializable snapshot at begin, because a primary never lets a write commit at or below
//! a key's `latest_read`. `Strict` transactions use a [`super::Coordinator`] with
//! [`super::CommitKind::StrictReadOnly`] instead.

/// Collects what a read-only transaction needs to know to commit by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalValidation {
    uncertain: bool,
}

impl LocalValidation {
    /// Notes one answered read.
    pub fn observe(&mut self, prepared_before: bool) {
        self.uncertain |= prepared_before;
    }

    /// Whether the transaction commits: no key that it read had a prepared version at or below
    /// begin.
    #[must_use]
    pub fn commits(self) -> bool {
        !self.uncertain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_uncertain_read_is_enough() {
        let mut validation = LocalValidation::default();
        validation.observe(false);
        assert!(validation.commits());
        validation.observe(true);
        validation.observe(false);
        assert!(!validation.commits());
    }
}

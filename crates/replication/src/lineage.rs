//! The epochs that a replica's batches have come through: each with the last batch of its table.
//!
//! ```text
//!   epoch 1 ── table to 0, wrote 1 2 3 4 ─┬─ epoch 2: table to 3, wrote 4' 5'          2 agrees with 3 up to 3
//!                                         └─ epoch 3: table to 4 (2 has not served)
//! ```
//! A table is made of what the replicas of one epoch have. So two replicas have the same batches up
//! to where their lineages part, whatever they know of what counts.

use timestone_types::Epoch;
use timestone_wal::BatchNumber;

use crate::limits::MAX_LINEAGE;

/// See the module. Ascending; the last one is the epoch that is installed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lineage(Vec<(Epoch, BatchNumber)>);

impl Default for Lineage {
    /// Of a replica that has nothing.
    fn default() -> Self {
        Self(vec![(Epoch::ZERO, BatchNumber::ZERO)])
    }
}

impl Lineage {
    /// As it was told; `None` where that is no lineage.
    #[must_use]
    pub fn new(epochs: Vec<(Epoch, BatchNumber)>) -> Option<Self> {
        let rises = epochs.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1);
        (rises && !epochs.is_empty() && epochs.len() <= MAX_LINEAGE).then_some(Self(epochs))
    }

    /// Epochs and the last batches of their tables, ascending.
    #[must_use]
    pub fn epochs(&self) -> &[(Epoch, BatchNumber)] {
        &self.0
    }

    /// The epoch that is installed.
    #[must_use]
    pub fn installed(&self) -> Epoch {
        self.0.last().map_or(Epoch::ZERO, |last| last.0)
    }

    /// The last batch of its table.
    #[must_use]
    pub fn table_end(&self) -> BatchNumber {
        self.0.last().map_or(BatchNumber::ZERO, |last| last.1)
    }

    /// Another epoch comes after it. The oldest is forgotten when there are many; a replica that
    /// knows none of those that are left needs a checkpoint.
    #[must_use]
    pub(crate) fn followed_by(&self, epoch: Epoch, table_end: BatchNumber) -> Self {
        assert!(self.installed() < epoch, "epochs rise");
        assert!(self.table_end() <= table_end, "a table has what the tables before it have");
        let skipped = (self.0.len() + 1).saturating_sub(MAX_LINEAGE);
        let mut epochs = self.0[skipped..].to_vec();
        epochs.push((epoch, table_end));
        Self(epochs)
    }

    /// Whether a batch of this epoch was cut by no later table.
    pub(crate) fn has(&self, epoch: Epoch, number: BatchNumber) -> bool {
        let later = self.0.iter().find(|one| one.0 > epoch);
        epoch <= self.installed() && later.is_none_or(|(_, end)| number <= *end)
    }

    /// Up to which batch replicas of both have the same; `None` if that is not known.
    pub(crate) fn agrees_up_to(&self, other: &Self) -> Option<BatchNumber> {
        let knows = |epoch: Epoch| other.0.iter().position(|one| one.0 == epoch);
        let (own, theirs) = self
            .0
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, one)| knows(one.0).map(|theirs| (index, theirs)))?;
        let next = |epochs: &[(Epoch, BatchNumber)], index: usize| {
            epochs.get(index + 1).map_or(BatchNumber::MAX, |next| next.1)
        };
        Some(next(&self.0, own).min(next(&other.0, theirs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(epochs: &[(u32, u64)]) -> Lineage {
        let epochs = epochs.iter().map(|&(epoch, end)| (Epoch::new(epoch), BatchNumber::new(end)));
        Lineage::new(epochs.collect()).unwrap()
    }

    #[test]
    fn replicas_agree_up_to_where_their_lineages_part() {
        let (one, two) = (lineage(&[(0, 0), (1, 0)]), lineage(&[(0, 0), (1, 0), (2, 3)]));
        let three = lineage(&[(0, 0), (1, 0), (3, 4)]);
        let agree = |one: &Lineage, other: &Lineage| one.agrees_up_to(other).map(BatchNumber::get);
        assert_eq!(agree(&one, &one), Some(u64::MAX));
        assert_eq!(agree(&one, &two), Some(3));
        assert_eq!(agree(&two, &three), Some(3));
        assert_eq!(agree(&three, &one), Some(4));
        assert_eq!(agree(&lineage(&[(7, 9)]), &three), None);
    }

    #[test]
    fn a_long_lineage_forgets_its_oldest_epochs() {
        let mut long = Lineage::default();
        for epoch in 1..100 {
            long = long.followed_by(Epoch::new(epoch), BatchNumber::new(u64::from(epoch)));
        }
        assert_eq!(long.epochs().len(), MAX_LINEAGE);
        assert_eq!(long.installed(), Epoch::new(99));
        assert_eq!(Lineage::default().agrees_up_to(&long), None);
        assert!(Lineage::new(Vec::new()).is_none());
        assert!(Lineage::new(vec![(Epoch::new(2), BatchNumber::ZERO); 2]).is_none());
    }
}

//! A short list of shards that lives in place: almost every transaction has few participants.
//!
//! It never shrinks and it does not sort by itself; [`ShardList::lowest`] finds the backup
//! coordinator.

use timestone_types::ShardId;

use crate::limits::INLINE_SHARDS;

/// The participants of one transaction; up to [`INLINE_SHARDS`] without an allocation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardList {
    inline: [ShardId; INLINE_SHARDS],
    length: u8,
    more: Vec<ShardId>,
}

impl ShardList {
    /// Copies a slice.
    #[must_use]
    pub fn new(shards: &[ShardId]) -> Self {
        let mut list = Self::default();
        list.set(shards);
        list
    }

    /// Replaces the contents, keeping an allocation that is there.
    pub fn set(&mut self, shards: &[ShardId]) {
        self.more.clear();
        if shards.len() <= INLINE_SHARDS {
            self.inline[..shards.len()].copy_from_slice(shards);
            self.length = shards.len() as u8;
        } else {
            self.length = 0;
            self.more.extend_from_slice(shards);
        }
        debug_assert_eq!(self.as_slice(), shards);
    }

    /// The shards in the order in which they were given.
    #[must_use]
    pub fn as_slice(&self) -> &[ShardId] {
        if self.more.is_empty() { &self.inline[..usize::from(self.length)] } else { &self.more }
    }

    /// The lowest-numbered shard: the backup coordinator.
    #[must_use]
    pub fn lowest(&self) -> Option<ShardId> {
        self.as_slice().iter().copied().min()
    }

    /// Where `shard` stands in the list.
    #[must_use]
    pub fn position(&self, shard: ShardId) -> Option<usize> {
        self.as_slice().iter().position(|&one| one == shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_whether_they_fit_in_place_or_not() {
        for length in [0, 1, INLINE_SHARDS, INLINE_SHARDS + 1, 40] {
            let shards: Vec<ShardId> = (0..length as u16).rev().map(ShardId::new).collect();
            let mut list = ShardList::new(&[ShardId::new(99); 12]);
            list.set(&shards);
            assert_eq!(list.as_slice(), shards);
            assert_eq!(list.lowest(), shards.last().copied());
            assert_eq!(list.position(ShardId::new(99)), None);
        }
    }
}

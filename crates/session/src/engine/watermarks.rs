//! What shards have told of their watermarks, and when they are asked: for comparisons with Centiman, whose
//! clients spread watermarks after so many transactions each (MILANA §5.3).
//!
//! ```text
//!   a transaction asks for its commit ─► counted ─► `every` of them ─► reports that are answered
//!   WatermarkIs of a shard ─► told ─► the lowest of all shards ─► transactions that begin from now on
//! ```
//! Invariant: what a shard has told only rises, for its watermark is durable and only rises.

use timestone_types::Timestamp;

use super::shards::ShardIndex;

/// See the module.
#[derive(Debug)]
pub(crate) struct ShardWatermarks {
    /// Reports are due after so many transactions; never without.
    every: Option<u32>,
    counted: u32,
    told: Vec<Timestamp>,
}

impl ShardWatermarks {
    pub(super) const fn new(every: Option<u32>) -> Self {
        Self { every, counted: 0, told: Vec::new() }
    }

    /// A transaction asks for its commit.
    #[inline]
    pub(crate) const fn count(&mut self) {
        self.counted = self.counted.saturating_add(1);
    }

    /// Whether shards are to be asked.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.every.is_some_and(|every| self.counted >= every)
    }

    /// Whether what shards say is wanted.
    pub(super) const fn is_wanted(&self) -> bool {
        self.every.is_some()
    }

    /// They are asked.
    pub(super) const fn asked(&mut self) {
        self.counted = 0;
    }

    /// A shard has told its watermark.
    pub(super) fn tell(&mut self, shard: ShardIndex, at: Timestamp) {
        if self.told.len() <= shard.index() {
            self.told.resize(shard.index() + 1, Timestamp::ZERO);
        }
        let told = &mut self.told[shard.index()];
        *told = at.max(*told);
    }

    /// The lowest watermark of these shards; zero while one of them has told none.
    pub(super) fn lowest(&self, shards: impl Iterator<Item = ShardIndex>) -> Timestamp {
        let told = |shard: ShardIndex| self.told.get(shard.index()).copied().unwrap_or_default();
        shards.map(told).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_that_is_furthest_behind_counts_and_who_has_told_nothing_most_of_all() {
        let at = Timestamp::from_nanos;
        let mut told = ShardWatermarks::new(Some(2));
        let of = |told: &ShardWatermarks, shards: u16| told.lowest((0..shards).map(ShardIndex));
        told.tell(ShardIndex(0), at(7));
        told.tell(ShardIndex(1), at(5));
        assert_eq!((of(&told, 2), of(&told, 3), of(&told, 0)), (at(5), at(0), at(0)));
        told.tell(ShardIndex(1), at(9));
        told.tell(ShardIndex(0), at(6));
        assert_eq!(of(&told, 2), at(7), "a late answer takes nothing back");
    }

    #[test]
    fn shards_are_asked_after_so_many_transactions_and_never_without_a_number() {
        let (mut some, mut none) = (ShardWatermarks::new(Some(2)), ShardWatermarks::new(None));
        let count = |one: &mut ShardWatermarks| {
            one.count();
            one.is_due()
        };
        assert_eq!([count(&mut some), count(&mut some), count(&mut none)], [false, true, false]);
        some.asked();
        assert!(!some.is_due() && some.is_wanted() && !none.is_wanted());
    }
}

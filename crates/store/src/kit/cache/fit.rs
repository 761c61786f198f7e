//! The table of the record cache follows what the cache may take.
//!
//! ```text
//!   halved:  bucket 2i, bucket 2i+1 ─► bucket i      the eight that are worth most; no record is looked at
//!   doubled: the records of all segments ─► their buckets; what was remembered of keys is lost
//! ```
//! A table that stays as large as the cache was made for takes memory that records could have, and
//! remembers keys that left long ago, which then displace those that are asked for more often.
//!
//! Buckets are found by the upper bits of a product, so that a table of half as many has what was in
//! two neighbours in one: that needs an even number of buckets.

use super::table::{Bucket, TableSlot, WAYS};
use super::{Cache, CachedRecord, records};

/// Cached bytes for which one slot is provided; smaller records push each other out of their
/// buckets earlier.
const BYTES_PER_SLOT: u64 = 192;
/// The table can be halved so often.
const HALVINGS: u32 = 4;

/// Buckets of a table for so many bytes of records, table included.
pub(super) fn buckets_for(bytes: u64) -> usize {
    even((bytes / BYTES_PER_SLOT) as usize / WAYS)
}

/// About as many buckets, but so that they can be halved.
const fn even(buckets: usize) -> usize {
    let even = buckets >> HALVINGS << HALVINGS;
    if even == 0 { 1 } else { even }
}

impl Cache {
    /// Makes the table as large as it should be, if it is twice that, or half.
    pub(super) fn fit_table(&mut self) {
        if self.most_segments == 0 {
            return;
        }
        let wanted = even(self.most_buckets * self.max_segments / self.most_segments);
        while self.buckets.len() / 2 >= wanted && self.buckets.len().is_multiple_of(2) {
            self.halve_table();
        }
        if self.buckets.len() * 2 <= wanted {
            self.rebuild_table(wanted);
        }
        self.assert_sound();
    }

    fn halve_table(&mut self) {
        let pairs = self.buckets.chunks_exact(2);
        debug_assert!(pairs.remainder().is_empty(), "neighbours come in pairs");
        self.buckets = pairs.map(|pair| best_of(pair[0], pair[1])).collect();
    }

    /// Files all records anew.
    fn rebuild_table(&mut self, buckets: usize) {
        debug_assert!(buckets > 0, "there is a table");
        let mut filed = Vec::new();
        for segment in self.small.iter().chain(&self.main).copied() {
            let used = self.segments[segment as usize].used;
            let mut at = 0;
            for record in records(&self.bytes_of(segment)[..used]) {
                let place = CachedRecord { segment, offset: at as u32 };
                at += record.len();
                let name = Self::name_of(record);
                if let Some((bucket, way)) = self.slot_at(name, place) {
                    filed.push((name, TableSlot(self.buckets[bucket].0[way])));
                }
            }
        }
        self.buckets = vec![Bucket::default(); buckets];
        for (name, slot) in filed {
            let bucket = self.bucket_of(name.key);
            let least = self.buckets[bucket].slots_mut().min_by_key(|raw| TableSlot(**raw).worth());
            if let Some(raw) = least
                && TableSlot(*raw).worth() < slot.worth()
            {
                *raw = slot.0;
            }
        }
    }
}

/// The slots of two buckets that are worth most.
fn best_of(one: Bucket, other: Bucket) -> Bucket {
    let mut slots = [0; 2 * WAYS];
    slots[..WAYS].copy_from_slice(&one.0);
    slots[WAYS..].copy_from_slice(&other.0);
    slots.sort_unstable_by_key(|&raw| core::cmp::Reverse(TableSlot(raw).worth()));
    let mut best = Bucket::default();
    best.0.copy_from_slice(&slots[..WAYS]);
    best
}

#[cfg(test)]
mod tests {
    use timestone_types::Expiry;

    use super::super::tests::key;
    use super::*;

    /// So many of the first `keys` are cached, each with its own value.
    fn found(cache: &mut Cache, keys: u64) -> u64 {
        let is_there = |&n: &u64| {
            let place = cache.find(key(n, &n.to_le_bytes()));
            place.is_some_and(|place| {
                assert_eq!(cache.value(place), [n as u8; 500], "{n}");
                true
            })
        };
        (0..keys).filter(is_there).count() as u64
    }

    #[test]
    fn the_table_follows_what_is_left_and_records_stay_in_it() {
        let mut cache = Cache::new(32 << 20);
        let whole = cache.buckets.len();
        let keys = 6000;
        for n in 0..keys {
            cache.insert(key(n, &n.to_le_bytes()), Expiry::NEVER, &[n as u8; 500]);
        }
        assert_eq!(found(&mut cache, keys), keys);
        cache.charge(25 << 20);
        assert!(cache.taken_segments() <= cache.max_segments, "nothing had to go");
        assert_eq!(cache.buckets.len(), whole / 4);
        // A few buckets of four had more than eight records.
        let left = found(&mut cache, keys);
        assert!(left * 100 > keys * 99, "{left} of {keys}");
        cache.charge(0);
        assert_eq!(cache.buckets.len(), whole);
        assert_eq!(found(&mut cache, keys), left);
    }

    #[test]
    fn a_table_that_is_halved_has_in_a_bucket_what_two_neighbours_had() {
        let mut cache = Cache::new(32 << 20);
        let before: Vec<usize> =
            (0..1000).map(|n| cache.bucket_of(key(n, b"").name().key)).collect();
        cache.halve_table();
        let halved = |n: u64| cache.bucket_of(key(n, b"").name().key);
        assert!((0..).zip(&before).all(|(n, &bucket)| halved(n) == bucket / 2));
    }

    #[test]
    fn what_is_worth_most_of_two_buckets_stays() {
        let (mut one, mut other) = (Bucket::default(), Bucket::default());
        let record = |hash: u64, frequency| {
            TableSlot::new(hash << 40, frequency, CachedRecord { segment: 1, offset: 8 }).0
        };
        one.0 = core::array::from_fn(|way| record(way as u64 + 1, 1));
        other.0[..3].copy_from_slice(&[record(20, 3), TableSlot::ghost(7).0, record(21, 0)]);
        let best = best_of(one, other);
        assert!(best.0.contains(&other.0[0]) && !best.0.contains(&other.0[1]));
        assert!(!best.0.contains(&other.0[2]), "it was asked for least");
    }
}

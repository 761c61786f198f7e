//! What the cache keeps, gives back and forgets.

use std::collections::BTreeMap;

use timestone_types::{ClientId, KeyHash};

use super::*;

pub(super) fn key(n: u64, bytes: &[u8]) -> CacheKey<'_> {
    let hash = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    CacheKey {
        keyspace: KeyspaceId::DEFAULT,
        id: KeyId::new(KeyHash(hash ^ hash >> 31), n as u32),
        version: Version::new(Timestamp::from_nanos(n + 1), ClientId::new(1)),
        key: bytes,
    }
}

#[test]
fn what_was_inserted_is_found_with_its_key_only() {
    let mut cache = Cache::new(4 << 20);
    let expires = Expiry::at(Timestamp::from_nanos(77));
    cache.insert(key(1, b"one"), expires, b"value");
    let place = cache.find(key(1, b"one")).expect("cached");
    assert_eq!(
        (cache.value(place), cache.key(place), cache.expires_at(place)),
        (&b"value"[..], &b"one"[..], expires)
    );
    assert_eq!(cache.find(key(1, b"two")), None);
    assert_eq!(cache.find(key(2, b"one")), None);
    let plain = key(1, b"");
    assert_eq!(cache.find_by_id(plain.keyspace, plain.id, plain.version), Some(place));
}

#[test]
fn memory_stays_within_the_bound_and_hot_records_stay() {
    let bound = 4 << 20;
    let mut cache = Cache::new(bound);
    let value = [7; 500];
    let hot: Vec<[u8; 8]> = (0..1000u64).map(u64::to_le_bytes).collect();
    for (n, bytes) in hot.iter().enumerate() {
        cache.insert(key(n as u64, bytes), Expiry::NEVER, &value);
    }
    let mut in_bucket: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for n in 0..1000 {
        in_bucket.entry(cache.bucket_of(key(n, &hot[n as usize]).name().key)).or_default().push(n);
    }
    let present = |cache: &Cache, n: u64| {
        let key = key(n, &[]);
        cache.find_by_id(key.keyspace, key.id, key.version).is_some()
    };
    // Queues give up only what nobody asked for. What can be lost nevertheless is a place in a
    // bucket of the table that is full.
    let mut displaced = 0;
    for n in 1000..100_000u64 {
        let bytes = n.to_le_bytes();
        let bucket = cache.bucket_of(key(n, &bytes).name().key);
        let there: Vec<u64> = in_bucket.get(&bucket).into_iter().flatten().copied().collect();
        let before = there.iter().filter(|&&n| present(&cache, n)).count();
        let was_full = cache.buckets[bucket].slots().all(|slot| slot.0 != 0 && !slot.is_ghost());
        cache.insert(key(n, &bytes), Expiry::NEVER, &value);
        let lost = before - there.iter().filter(|&&n| present(&cache, n)).count();
        assert!(lost == 0 || (lost == 1 && was_full), "a hot record left a bucket that had room");
        displaced += lost;
        if n % 4 == 0 {
            let n = n / 4 % 1000;
            cache.find(key(n, &hot[n as usize]));
        }
    }
    assert!(cache.bytes() <= bound, "{} bytes", cache.bytes());
    let kept = (0..1000).filter(|&n| cache.find(key(n, &hot[n as usize])).is_some()).count();
    // The hot ones came first, so they fill the first two segments and begin the third. When
    // the cache is full for the first time the first two are moved whole, which frees nothing,
    // and the third goes with all that it holds: an insert moves two at most. From then on
    // nothing is lost.
    let segment = SEGMENT_BYTES / (HEADER + 8 + value.len()).next_multiple_of(8);
    assert_eq!(
        (segment, kept + displaced),
        (468, 2 * segment),
        "hot records survive a flood of cold ones"
    );
    assert!(displaced < 10, "{displaced} hot records were pushed out of their buckets");
}

#[test]
fn hits_under_zipf_are_nearly_as_many_as_there_can_be() {
    const KEYS: u64 = 1_000_000;
    let value = [7; 500];
    let mut cache = Cache::new(16 << 20);
    let mut shares = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=KEYS {
        sum += 1.0 / (rank as f64).powf(0.99);
        shares.push(sum);
    }
    let mut dice = 1u64;
    let mut draw = || {
        dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let at = (dice >> 11) as f64 / (1u64 << 53) as f64 * sum;
        shares.partition_point(|&share| share <= at) as u64
    };
    let (warmup, measured) = (700_000, 200_000);
    let mut hits = 0;
    for turn in 0..warmup + measured {
        let n = draw();
        let bytes = n.to_le_bytes();
        match cache.find(key(n, &bytes)) {
            Some(_) => hits += u64::from(turn >= warmup),
            None => cache.insert(key(n, &bytes), Expiry::NEVER, &value),
        }
    }
    // Whoever knew what is asked for most would keep these.
    let record = (HEADER + 8 + value.len()).next_multiple_of(8);
    let best = shares[cache.limit_bytes() as usize / record] / sum;
    let rate = hits as f64 / f64::from(measured);
    assert!(rate > 0.93 * best, "{rate:.3} of {best:.3}");
}

#[test]
fn overwriting_what_fits_pushes_nothing_out_but_old_versions() {
    let mut cache = Cache::new(4 << 20);
    let value = [7; 500];
    let keys = 3000u64;
    // A version's number tells its key.
    let version = |round: u64, n: u64| {
        let mut key = key(n, b"k");
        key.version = Version::new(Timestamp::from_nanos(round * keys + n + 1), ClientId::new(1));
        key
    };
    let mut rounds = vec![0u64; keys as usize];
    for n in 0..keys {
        cache.insert(version(0, n), Expiry::NEVER, &value);
    }
    let mut dice = 1u64;
    for _ in 0..60_000 {
        dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let n = (dice >> 33) % keys;
        let round = &mut rounds[n as usize];
        cache.superseded(version(*round, n), value.len());
        *round += 1;
        cache.insert(version(*round, n), Expiry::NEVER, &value);
    }
    let kept = (0..keys).filter(|&n| cache.find(version(rounds[n as usize], n)).is_some()).count();
    assert!(kept * 100 > keys as usize * 99, "{kept} of {keys} youngest versions");
    assert!(cache.bytes() <= 4 << 20);
}

#[test]
fn what_is_overwritten_again_and_again_takes_no_more_memory() {
    let mut cache = Cache::new(64 << 20);
    let value = [7; 500];
    let keys = 2000u64;
    let version = |round: u64, n: u64| CacheKey {
        version: Version::new(Timestamp::from_nanos(round * keys + n + 1), ClientId::new(1)),
        ..key(n, b"k")
    };
    for round in 0..40 {
        for n in 0..keys {
            if round > 0 {
                cache.superseded(version(round - 1, n), value.len());
            }
            cache.insert(version(round, n), Expiry::NEVER, &value);
        }
    }
    assert!((0..keys).all(|n| cache.find(version(39, n)).is_some()), "the youngest are there");
    let live = keys as usize * (HEADER + 1 + value.len());
    let used = cache.segments.len() * SEGMENT_BYTES;
    assert!(used < 3 * live, "{used} bytes for {live} that are wanted");
}

#[test]
fn what_is_charged_to_it_is_given_back_and_what_is_hot_stays() {
    let mut cache = Cache::new(16 << 20);
    let full = cache.limit_bytes();
    let value = |n: u64| [n as u8; 500];
    let keys = 40_000u64;
    let fill = |cache: &mut Cache, from: u64| {
        for n in from..from + keys {
            cache.insert(key(n, &n.to_le_bytes()), Expiry::NEVER, &value(n));
            // Some are asked for again and again.
            for hot in [n - n % 16, n - n % 1600] {
                cache.find(key(hot, &hot.to_le_bytes()));
            }
        }
    };
    let kept = |cache: &mut Cache, until: u64| {
        let mut kept = 0;
        for n in 0..until {
            if let Some(place) = cache.find(key(n, &n.to_le_bytes())) {
                assert_eq!(cache.value(place), value(n), "{n}");
                kept += 1;
            }
        }
        kept
    };
    fill(&mut cache, 0);
    let before = kept(&mut cache, keys);
    assert!(cache.bytes() > full - (1 << 20), "it is full");
    for charged in [1 << 20, 8 << 20, u64::MAX] {
        cache.charge(charged);
        let left = cache.limit_bytes();
        assert!(left <= (full.saturating_sub(charged)).max(full / 4 + (2 << 20)), "{left}");
        (0..16).for_each(|_| cache.charge(charged));
        assert!(cache.bytes() <= left, "{} of {left}", cache.bytes());
    }
    let less = kept(&mut cache, keys);
    assert!(0 < less && less < before, "{less} of {before}");
    fill(&mut cache, keys);
    assert!(cache.bytes() <= cache.limit_bytes() && kept(&mut cache, 2 * keys) > 0);
    cache.charge(0);
    assert_eq!(cache.limit_bytes(), full);
    fill(&mut cache, 2 * keys);
    assert!(cache.bytes() > full - (1 << 20), "it grows again");
    assert!(kept(&mut cache, 3 * keys) > less);
}

#[test]
fn without_memory_there_is_no_cache() {
    let mut cache = Cache::new(1000);
    cache.charge(0);
    cache.insert(key(1, b"one"), Expiry::NEVER, b"value");
    assert_eq!((cache.find(key(1, b"one")), cache.bytes()), (None, 0));
}

//! Drawing keys, alone or several different ones, and numbers that no other client uses.

use crate::keys::Strewing;
use crate::limits::MAX_REDRAWS;
use crate::{KeyIndex, Random, WorkloadSpec, Zipf};

/// One client's draws from the keys of a run.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) random: Random,
    zipf: Zipf,
    strewing: Strewing,
    count: u64,
    picked: Vec<KeyIndex>,
}

impl Keys {
    pub(super) fn new(spec: &WorkloadSpec, client: u32) -> Self {
        Self {
            random: Random::derived(spec.seed, u64::from(client)),
            zipf: Zipf::new(spec.keys, spec.zipf),
            strewing: Strewing::new(spec.keys),
            count: spec.keys.max(1),
            picked: Vec::new(),
        }
    }

    /// How many keys there are.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// A rank below the count, 0 being the most frequent.
    #[inline]
    pub(super) fn rank(&mut self) -> u64 {
        self.zipf.draw(&mut self.random)
    }

    /// Any key.
    #[inline]
    pub(super) fn one(&mut self) -> KeyIndex {
        let rank = self.rank();
        self.strewing.key(rank)
    }

    /// `wanted` different keys, in the order in which they were drawn; as many as there are, when
    /// there are fewer.
    pub(super) fn different(&mut self, wanted: u64) -> &[KeyIndex] {
        self.picked.clear();
        for _ in 0..wanted.min(self.count) {
            let mut key = self.one();
            let mut redraws = 0;
            while self.picked.contains(&key) {
                redraws += 1;
                // Where few keys are left that are likely at all, their neighbours step in.
                key = if redraws < MAX_REDRAWS {
                    self.one()
                } else {
                    KeyIndex((key.0 + 1) % self.count)
                };
            }
            self.picked.push(key);
        }
        &self.picked
    }

    /// `wanted` keys drawn independently, sorted.
    pub(super) fn independent_sorted(&mut self, wanted: u64) -> &[KeyIndex] {
        self.picked.clear();
        for _ in 0..wanted {
            let key = self.one();
            self.picked.push(key);
        }
        self.picked.sort_unstable();
        &self.picked
    }
}

/// Numbers from 0 of which every client has its own: client, client + clients, client + 2 ·
/// clients, …
#[derive(Clone, Copy, Debug)]
pub(super) struct UniqueNumbers {
    next: u64,
    step: u64,
}

impl UniqueNumbers {
    pub(super) const fn new(client: u32, clients: u32) -> Self {
        Self { next: client as u64, step: clients as u64 }
    }

    pub(super) const fn take(&mut self) -> u64 {
        let number = self.next;
        self.next += self.step;
        number
    }

    /// The number that was taken `ago` takes before the last one; the caller knows that there was
    /// one.
    pub(super) const fn taken(&self, ago: u64) -> u64 {
        self.next - (ago + 1) * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadKind;

    fn keys(count: u64, zipf: f64) -> Keys {
        Keys::new(&WorkloadSpec { keys: count, zipf, ..WorkloadSpec::of(WorkloadKind::Retwis) }, 0)
    }

    #[test]
    fn different_keys_differ_even_when_few_are_likely() {
        for (count, zipf) in [(10, 0.0), (10, 5.0), (1_000_000, 5.0), (3, 1.0)] {
            let mut keys = keys(count, zipf);
            for _ in 0..200 {
                let mut picked = keys.different(10).to_vec();
                assert_eq!(picked.len() as u64, count.min(10));
                picked.sort_unstable();
                picked.dedup();
                assert_eq!(picked.len() as u64, count.min(10), "{count} {zipf}");
            }
        }
    }

    #[test]
    fn independent_keys_are_sorted_and_may_repeat() {
        let mut keys = keys(10, 0.0);
        let mut repeated = false;
        for _ in 0..100 {
            let picked = keys.independent_sorted(5);
            assert!(picked.is_sorted());
            repeated |= picked.windows(2).any(|pair| pair[0] == pair[1]);
        }
        assert!(repeated);
    }

    #[test]
    fn clients_numbers_never_meet() {
        let mut taken: Vec<u64> = (0..3)
            .flat_map(|client| {
                let mut numbers = UniqueNumbers::new(client, 3);
                let first: Vec<u64> = (0..10).map(|_| numbers.take()).collect();
                assert_eq!((numbers.taken(0), numbers.taken(9)), (first[9], first[0]));
                first
            })
            .collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..30).collect::<Vec<_>>());
    }
}

//! A strategy of another kind, for tests: two-phase locking at prepare, and leases on what was read.
//!
//! A prepare takes shared locks on what it read and exclusive ones on what it writes, and keeps them
//! until its decision. Who meets a lock waits for its holder, never for a later timestamp. The life
//! of a transaction is the one that timestamps have: if this fits, the seam between the two is in
//! the right place.
//!
//! The reads of a promise are not in the log. After a restart such a promise locks the whole shard
//! for reading until it is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use timestone_txn::participant::{Holder, InFlight, Prepare, ReadItem, WriteItem, Written};
use timestone_txn::validation::{Case, KeyRead, ReadVerdict, Until, Validation, Verdict};
use timestone_types::{AbortKind, AbortReason, KeyHash, KeyRange, KeyspaceId, Timestamp, Version};

use crate::random::run;

/// What holds one key.
#[derive(Debug, Default)]
struct Lock {
    exclusive: BTreeSet<Holder>,
    shared: BTreeSet<Holder>,
    /// Nobody writes before that.
    leased_until: Timestamp,
}

/// `SHARED = false` is a bug on purpose: what was read is not locked. With `LEASE_US`, whoever reads
/// a key has it for so long.
#[derive(Debug, Default)]
pub struct Locks<const SHARED: bool = true, const LEASE_US: u64 = 0> {
    keys: BTreeMap<u64, Lock>,
    /// Promises whose reads are not known.
    shared_by_all: BTreeSet<Holder>,
}

fn reason(kind: AbortKind, item: usize, other: Option<Holder>, case: &Case<'_>) -> AbortReason {
    let other = other.map(|holder| case.others.txn(holder));
    AbortReason { item: Some(item as u32), other, ..AbortReason::of(kind) }
}

impl<const SHARED: bool, const LEASE_US: u64> Locks<SHARED, LEASE_US> {
    fn check_read(&self, at: usize, item: &ReadItem, case: &Case<'_>) -> Option<Verdict> {
        let lock = self.keys.get(&item.key.0);
        let writer = lock.and_then(|lock| lock.exclusive.iter().find(|&&one| one != case.own));
        if let Some(&holder) = writer {
            let reason = reason(AbortKind::Prepared, at, Some(holder), case);
            return Some(Verdict::Wait(Until::Decided(holder), reason));
        }
        (item.latest.version != item.version)
            .then(|| Verdict::No(reason(AbortKind::ReadConflict, at, None, case)))
    }

    fn check_write(
        &self,
        at: usize,
        item: &WriteItem,
        commit: Timestamp,
        case: &Case<'_>,
    ) -> Option<Verdict> {
        if let Some(lock) = self.keys.get(&item.key.0) {
            let holders = lock.exclusive.iter().chain(&lock.shared).chain(&self.shared_by_all);
            if let Some(&holder) = holders.into_iter().find(|&&one| one != case.own) {
                let reason = reason(AbortKind::WriteConflict, at, Some(holder), case);
                return Some(Verdict::Wait(Until::Decided(holder), reason));
            }
            if lock.leased_until > case.now {
                let reason = reason(AbortKind::WriteConflict, at, None, case);
                return Some(Verdict::Wait(Until::Passed(lock.leased_until), reason));
            }
        } else if let Some(&holder) = self.shared_by_all.iter().find(|&&one| one != case.own) {
            let reason = reason(AbortKind::WriteConflict, at, Some(holder), case);
            return Some(Verdict::Wait(Until::Decided(holder), reason));
        }
        // Versions are in the order of their locks.
        (item.latest.version.timestamp >= commit)
            .then(|| Verdict::No(reason(AbortKind::Timestamp, at, None, case)))
    }
}

impl<const SHARED: bool, const LEASE_US: u64> Validation for Locks<SHARED, LEASE_US> {
    fn validate(&mut self, prepare: &Prepare<'_>, case: Case<'_>) -> Verdict {
        assert!(case.own.is_none(), "who never says later is never asked for another round");
        let mut reads = prepare.reads.iter().enumerate();
        let mut writes = prepare.writes.iter().enumerate();
        let offset = prepare.reads.len();
        reads
            .find_map(|(at, item)| self.check_read(at, item, &case))
            .or_else(|| {
                writes.find_map(|(at, item)| {
                    self.check_write(offset + at, item, prepare.commit, &case)
                })
            })
            .unwrap_or(Verdict::Promise)
    }

    fn promise(&mut self, holder: Holder, prepare: &Prepare<'_>) {
        if holder.is_none() {
            return;
        }
        for item in prepare.reads.iter().filter(|_| SHARED) {
            self.keys.entry(item.key.0).or_default().shared.insert(holder);
        }
        for item in prepare.writes {
            let lock = self.keys.entry(item.key.0).or_default();
            assert!(lock.exclusive.is_empty(), "an exclusive lock is held once");
            lock.exclusive.insert(holder);
        }
    }

    fn commit_at_once(&mut self, prepare: &Prepare<'_>, _: Version) {
        let is_free = |item: &WriteItem| {
            self.keys.get(&item.key.0).is_none_or(|lock| lock.exclusive.is_empty())
        };
        assert!(prepare.writes.iter().all(is_free), "nobody holds what is put");
    }

    fn restore(&mut self, holder: Holder, writes: &[WriteItem]) {
        for item in writes {
            self.keys.entry(item.key.0).or_default().exclusive.insert(holder);
        }
        self.shared_by_all.insert(holder);
    }

    fn came_late(&mut self, _: &[WriteItem]) {
        // Nobody has ranges validated here.
    }

    fn decided(&mut self, holder: Holder, _: &[Written], _: Option<Version>) {
        self.shared_by_all.remove(&holder);
        for lock in self.keys.values_mut() {
            lock.exclusive.remove(&holder);
            lock.shared.remove(&holder);
        }
    }

    fn read(
        &mut self,
        read: &KeyRead,
        others: InFlight<'_>,
        admit: impl FnOnce(Timestamp) -> Option<Timestamp>,
    ) -> ReadVerdict {
        let Some(at) = admit(read.store.version.timestamp) else { return ReadVerdict::NotAdmitted };
        let lock = self.keys.entry(read.key.0).or_default();
        let blocks = |one: &&Holder| read.latest || others.may_commit_at(**one) <= at;
        if let Some(&holder) = lock.exclusive.iter().find(blocks) {
            return ReadVerdict::Blocked(at, holder);
        }
        let lease = at.saturating_add(Duration::from_micros(LEASE_US));
        lock.leased_until = lock.leased_until.max(lease);
        ReadVerdict::At(at)
    }

    fn read_around(&mut self, _: &KeyRead, _: Timestamp) {}

    fn scanned(&mut self, _: KeyspaceId, _: Timestamp) {}

    fn range_read(&mut self, _: KeyRange<'_>, _: Timestamp) {}

    fn range_read_at(&self, _: KeyspaceId, _: &[u8], _: Timestamp) -> Timestamp {
        Timestamp::ZERO
    }

    fn newest(&self, _: KeyspaceId) -> Timestamp {
        Timestamp::ZERO
    }

    fn retire(&mut self, now: Timestamp, _: impl Iterator<Item = KeyHash>) {
        self.keys.retain(|_, lock| {
            !lock.exclusive.is_empty() || !lock.shared.is_empty() || lock.leased_until > now
        });
    }

    fn retire_at(&self) -> Timestamp {
        Timestamp::MAX
    }

    fn begin(&mut self, _: Timestamp, _: Timestamp) {}

    fn close(&mut self, _: Timestamp) {}

    fn low_water(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn memory_bytes(&self) -> usize {
        self.keys.len() * size_of::<(u64, Lock)>()
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn home_of(&self, _: KeyHash) -> Option<&impl Sized> {
        None::<&KeyHash>
    }
}

/// Runs worlds whose shards validate so; how many read-write transactions were committed.
fn commits_of<V: Validation + Default>(seeds: u64) -> Result<usize, String> {
    let mut commits = 0;
    for seed in 0..seeds {
        let (shards, clients) = (1 + (seed % 4) as u16, 2 + (seed % 5) as u32);
        let (problem, count) = run::<V>(seed, shards, clients, true);
        problem.map_or(Ok(()), |problem| Err(format!("seed {seed}: {problem}")))?;
        commits += count;
    }
    Ok(commits)
}

#[test]
fn locks_run_the_same_life() {
    let commits = commits_of::<Locks>(40).unwrap();
    assert!(commits > 400, "only {commits} read-write transactions were committed");
}

#[test]
fn whoever_writes_waits_until_a_lease_has_passed() {
    let commits = commits_of::<Locks<true, 2_000>>(20).unwrap();
    assert!(commits > 100, "only {commits} read-write transactions were committed");
}

#[test]
fn a_strategy_that_does_not_lock_what_was_read_is_found_out() {
    let problem = commits_of::<Locks<false>>(1000).unwrap_err();
    assert!(problem.contains("cycle"), "{problem}");
}

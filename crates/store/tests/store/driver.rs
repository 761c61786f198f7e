//! Drives a store as a shard stage would, but waits for every answer.

use std::time::Duration;

use timestone_flash::{FlashDevice, MemoryConfig, MemoryMedia};
use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Count, Direction, Figure, Ftl, FtlConfig, KeyList, KeyRange, Latest, LatestLookup,
    Lookup, Mftl, MftlConfig, PromisedPuts, PutSize, PutsInMemory, RangeCheck, RangeList,
    ReadOutcome, ReadToken, RecoveryReport, ScanCursor, ScanLimit, StoreError, StoreEvent,
};
use timestone_types::{
    ClientId, Expiry, HashSeed, KeyHash, KeyRef, KeyspaceId, Timestamp, Version,
};

pub(crate) const SPACE: KeyspaceId = KeyspaceId::DEFAULT;
/// A keyspace whose keys are in order.
pub(crate) const ORDERED: KeyspaceId = KeyspaceId::numbered(5, false).ordered();

/// What a read of a range found: keys with their versions.
pub(crate) type Entries = Vec<(Vec<u8>, Version)>;

/// What a get answered: version and value, or absence with its version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Got {
    Value(Version, Vec<u8>),
    Absent(Version),
}

/// A store and the time.
pub(crate) struct Driver<S: Store = Mftl> {
    pub(crate) store: S,
    pub(crate) now: u64,
    pub(crate) events: Vec<StoreEvent>,
    pub(crate) same_hash: bool,
    /// The keyspace of what is put and read without saying where.
    pub(crate) space: KeyspaceId,
}

pub(crate) fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

pub(crate) fn version(nanos: u64) -> Version {
    Version::new(at(nanos), ClientId::new(1))
}

pub(crate) fn media(pages_per_block: u32, blocks: u32) -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block,
        initial_blocks: blocks,
        max_blocks: blocks,
        ..MemoryConfig::default()
    })
}

/// As [`media`], with completions in an order drawn from `seed`, few at a time.
pub(crate) fn unruly_media(pages_per_block: u32, blocks: u32, seed: u64) -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block,
        initial_blocks: blocks,
        max_blocks: blocks,
        queue_depth: 16,
        completions_per_poll: 3,
        shuffle: Some(seed),
    })
}

pub(crate) fn config() -> MftlConfig {
    MftlConfig {
        store_id: 42,
        seed: HashSeed(7),
        cache_bytes: 0,
        checkpoint_bytes: 0,
        ..MftlConfig::default()
    }
}

/// A store on flash whose power can be cut, whatever its index is.
pub(crate) trait Survives: Store + Sized {
    /// Whether each deletion that is forgotten is counted once.
    const COUNTS_DELETIONS: bool;

    /// Opens it, configured as far as both can be; over a translation layer, if it may have one.
    fn open_over(
        device: Box<dyn FlashDevice>,
        config: MftlConfig,
        layered: bool,
    ) -> Result<(Driver<Self>, RecoveryReport), StoreError>;

    /// The same over a device in memory.
    fn open_on(
        media: &MemoryMedia,
        config: MftlConfig,
        layered: bool,
    ) -> Result<(Driver<Self>, RecoveryReport), StoreError> {
        Self::open_over(Box::new(media.open()), config, layered)
    }
}

impl Survives for Mftl {
    const COUNTS_DELETIONS: bool = true;

    fn open_over(
        device: Box<dyn FlashDevice>,
        config: MftlConfig,
        layered: bool,
    ) -> Result<(Driver<Self>, RecoveryReport), StoreError> {
        let (store, report) = if layered {
            Self::open(Box::new(Ftl::open(device, FtlConfig::default())?), config)?
        } else {
            Self::open(device, config)?
        };
        Ok((Driver::new(store), report))
    }
}

pub(crate) fn open(media: &MemoryMedia, config: MftlConfig) -> (Driver, RecoveryReport) {
    let (store, report) = Mftl::open(Box::new(media.open()), config).expect("opens");
    (Driver::new(store), report)
}

impl<S: Store> Driver<S> {
    pub(crate) fn new(store: S) -> Self {
        Self { store, now: 1, events: Vec::new(), same_hash: false, space: SPACE }
    }

    pub(crate) fn key<'a>(&self, space: KeyspaceId, bytes: &'a [u8]) -> KeyRef<'a> {
        let key = KeyRef::new(self.store.seed(), space, bytes);
        if self.same_hash { KeyRef { hash: KeyHash(0x1234_5678), ..key } } else { key }
    }

    pub(crate) fn try_put(
        &mut self,
        key: &[u8],
        nanos: u64,
        value: &[u8],
    ) -> Result<(), StoreError> {
        let key = self.key(self.space, key);
        self.store.put(key, version(nanos), value, Expiry::NEVER)
    }

    /// Puts, waiting while the store is busy.
    pub(crate) fn put(&mut self, key: &[u8], nanos: u64, value: &[u8]) {
        self.patiently(|driver| driver.try_put(key, nanos, value));
    }

    /// Puts into another keyspace, waiting while the store is busy.
    pub(crate) fn put_in(&mut self, space: KeyspaceId, key: &[u8], nanos: u64, value: &[u8]) {
        let here = core::mem::replace(&mut self.space, space);
        self.put(key, nanos, value);
        self.space = here;
    }

    pub(crate) fn put_expiring(&mut self, key: &[u8], nanos: u64, value: &[u8], expires: u64) {
        let key = self.key(self.space, key);
        self.store.put(key, version(nanos), value, Expiry::at(at(expires))).expect("accepted");
    }

    pub(crate) fn try_delete(&mut self, key: &[u8], nanos: u64) -> Result<(), StoreError> {
        let key = self.key(self.space, key);
        self.store.delete(key, version(nanos))
    }

    pub(crate) fn delete(&mut self, key: &[u8], nanos: u64) {
        self.patiently(|driver| driver.try_delete(key, nanos));
    }

    fn patiently(&mut self, mut call: impl FnMut(&mut Self) -> Result<(), StoreError>) {
        for _ in 0..100_000 {
            match call(self) {
                Ok(()) => return,
                Err(StoreError::Busy) => self.pump(),
                Err(error) => panic!("refused: {error}"),
            }
        }
        panic!("busy for ever: {:?}", self.store.figures());
    }

    pub(crate) fn pump(&mut self) {
        self.now += 1_000_000;
        self.store.pump(at(self.now), &mut self.events);
    }

    pub(crate) fn pumps(&mut self, times: usize) {
        for _ in 0..times {
            self.pump();
        }
    }

    /// Whether a put of so many bytes would be admitted after so many promised ones of its size; room is
    /// asked for if not.
    pub(crate) fn admit(&mut self, bytes: usize, promised: usize) -> Result<(), StoreError> {
        let put = PutSize { keyspace: self.space, bytes };
        let (count, bytes_of_all) = (promised as u64, (promised * bytes) as u64);
        let mut in_memory = PutsInMemory::default();
        for _ in 0..promised * usize::from(self.space.is_in_memory()) {
            in_memory.add(self.space, bytes, 0);
        }
        let promised = PromisedPuts { count, bytes: bytes_of_all, in_memory };
        let admitted = self.store.admit(&mut core::iter::once(put), promised);
        if admitted.is_err() {
            self.store.ask_room(&mut core::iter::once(put), promised);
        }
        admitted
    }

    /// What the store tells of itself.
    pub(crate) fn figure(&self, figure: Figure) -> u64 {
        self.store.figures().get(figure)
    }

    /// The youngest version of a key.
    pub(crate) fn latest(&mut self, key: &[u8]) -> Latest {
        let key = self.key(self.space, key);
        let token = ReadToken(self.now + 11);
        match self.store.latest(key, token) {
            LatestLookup::Known(latest) => latest,
            LatestLookup::Pending => self.until(|event| match event {
                StoreEvent::LatestDone { token: of, found: Ok(found) } if *of == token => {
                    Some(*found)
                }
                _ => None,
            }),
        }
    }

    fn until<T>(&mut self, mut wanted: impl FnMut(&mut StoreEvent) -> Option<T>) -> T {
        for _ in 0..100_000 {
            let mut found = None;
            self.events.retain_mut(|event| {
                if found.is_none() {
                    found = wanted(event);
                    found.is_none()
                } else {
                    true
                }
            });
            if let Some(found) = found {
                return found;
            }
            self.pump();
            self.store.wait(Duration::from_millis(1));
        }
        panic!("no answer");
    }

    pub(crate) fn try_get_in(
        &mut self,
        space: KeyspaceId,
        key: &[u8],
        nanos: u64,
    ) -> Result<Got, StoreError> {
        let key = self.key(space, key);
        let token = ReadToken(self.now);
        match self.store.get(key, at(nanos), token)? {
            Lookup::Present { version, value, .. } => {
                return Ok(Got::Value(version, value.to_vec()));
            }
            Lookup::Absent { version, .. } => return Ok(Got::Absent(version)),
            Lookup::Pending => {}
        }
        let outcome = self.until(|event| match event {
            StoreEvent::ReadDone { token: found, outcome } if *found == token => {
                Some(core::mem::replace(outcome, ReadOutcome::Failed(StoreError::Busy)))
            }
            _ => None,
        });
        match outcome {
            ReadOutcome::Present { version, value, .. } => {
                let copy = value.clone();
                self.store.recycle(value);
                Ok(Got::Value(version, copy))
            }
            ReadOutcome::Absent { version, .. } => Ok(Got::Absent(version)),
            ReadOutcome::Failed(error) => Err(error),
        }
    }

    pub(crate) fn get(&mut self, key: &[u8], nanos: u64) -> Got {
        self.try_get_in(self.space, key, nanos).expect("readable")
    }

    pub(crate) fn value(&mut self, key: &[u8], nanos: u64) -> Option<Vec<u8>> {
        match self.get(key, nanos) {
            Got::Value(_, value) => Some(value),
            Got::Absent(_) => None,
        }
    }

    /// All keys of a keyspace, sorted, gathered in steps of `limit` keys.
    pub(crate) fn keys(&mut self, space: KeyspaceId, nanos: u64, limit: u32) -> Vec<Vec<u8>> {
        self.keys_within(space, nanos, ScanLimit { keys: limit, bytes: usize::MAX })
    }

    /// All keys of a keyspace, sorted, gathered in steps of `limit`.
    pub(crate) fn keys_within(
        &mut self,
        space: KeyspaceId,
        nanos: u64,
        limit: ScanLimit,
    ) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut cursor = ScanCursor::START;
        loop {
            let (keys, next) = self.page(space, nanos, cursor, limit);
            found.extend(keys.iter().map(<[u8]>::to_vec));
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        found.sort();
        found
    }

    /// One page of a scan.
    pub(crate) fn page(
        &mut self,
        space: KeyspaceId,
        nanos: u64,
        cursor: ScanCursor,
        limit: ScanLimit,
    ) -> (KeyList, Option<ScanCursor>) {
        let token = ReadToken(self.now + 7);
        self.store.scan(space, cursor, limit, at(nanos), token).expect("scan");
        self.until(|event| match event {
            StoreEvent::ScanDone { token: found, keys, next } if *found == token => {
                assert!(next.is_none_or(|next| next.0 < 1 << 47), "the gateway has so many bits");
                Some((core::mem::take(keys), *next))
            }
            _ => None,
        })
    }

    /// One page of a range of the driver's keyspace, ascending.
    pub(crate) fn try_range(
        &mut self,
        ends: (&[u8], Option<&[u8]>),
        nanos: u64,
        limit: ScanLimit,
    ) -> Result<(RangeList, Option<Vec<u8>>), StoreError> {
        self.try_range_in(Direction::Ascending, ends, nanos, limit)
    }

    /// One page of a range of the driver's keyspace.
    pub(crate) fn try_range_in(
        &mut self,
        direction: Direction,
        (from, to): (&[u8], Option<&[u8]>),
        nanos: u64,
        limit: ScanLimit,
    ) -> Result<(RangeList, Option<Vec<u8>>), StoreError> {
        let token = ReadToken(self.now + 13);
        let range = KeyRange { keyspace: self.space, from, to };
        let as_of = AsOf { at: at(nanos), judged: at(nanos) };
        self.store.range_as_of(range, direction, limit, as_of, token)?;
        self.until(|event| match event {
            StoreEvent::RangeDone { token: found, entries, next } if *found == token => {
                Some(Ok((core::mem::take(entries), next.take())))
            }
            StoreEvent::ReadFailed { token: found, error } if *found == token => {
                Some(Err(core::mem::replace(error, StoreError::Busy)))
            }
            _ => None,
        })
    }

    /// A whole range of the driver's keyspace, gathered in steps of `limit`: read upwards, and downwards
    /// with the same entries.
    pub(crate) fn range_within(
        &mut self,
        ends: (&[u8], Option<&[u8]>),
        nanos: u64,
        limit: ScanLimit,
    ) -> Entries {
        let found = self.range_in(Direction::Ascending, ends, nanos, limit);
        let mut downwards = self.range_in(Direction::Descending, ends, nanos, limit);
        downwards.reverse();
        assert!(
            found == downwards,
            "{} entries upwards, {} downwards",
            found.len(),
            downwards.len()
        );
        found
    }

    fn range_in(
        &mut self,
        direction: Direction,
        (from, to): (&[u8], Option<&[u8]>),
        nanos: u64,
        limit: ScanLimit,
    ) -> Entries {
        let mut found = Entries::new();
        let (mut from, mut to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        loop {
            let page = self.try_range_in(direction, (&from, to.as_deref()), nanos, limit);
            let (entries, next) = page.expect("a page of a range");
            assert!(entries.len() <= limit.keys.max(1) as usize, "{} entries", entries.len());
            assert!(entries.key_bytes() <= limit.bytes || entries.len() == 1, "{limit:?}");
            found.extend(entries.iter().map(|entry| (entry.key.to_vec(), entry.version)));
            let Some(next) = next else { break };
            let goes_on = |other: &[u8]| next != other || !entries.is_empty();
            if direction == Direction::Ascending {
                assert!(next >= from && goes_on(&from), "a range goes on");
                assert!(to.as_ref().is_none_or(|to| next < *to), "inside the range");
                from = next;
            } else {
                assert!(to.as_ref().is_none_or(|to| next <= *to && goes_on(to)), "a range goes on");
                assert!(next > from, "inside the range");
                to = Some(next);
            }
        }
        let follows = |one: &[u8], other: &[u8]| direction.compare(one, other).is_lt();
        assert!(
            found.is_sorted_by(|one, other| follows(&one.0, &other.0)),
            "in order, each key once"
        );
        found
    }

    /// The same, in steps of so many keys.
    pub(crate) fn range(&mut self, from: &[u8], to: Option<&[u8]>, nanos: u64) -> Entries {
        self.range_within((from, to), nanos, ScanLimit { keys: 7, bytes: usize::MAX })
    }

    /// What was written first in a range above a time, in steps of so many keys: the key, if it was
    /// not a fence, and the version.
    pub(crate) fn above(
        &mut self,
        (from, to): (&[u8], Option<&[u8]>),
        nanos: u64,
        step: u32,
    ) -> Option<(Option<Vec<u8>>, Version)> {
        let mut from = from.to_vec();
        loop {
            let range = KeyRange { keyspace: self.space, from: &from, to };
            match self.store.first_above(range, at(nanos), step).expect("checked") {
                RangeCheck::None => return None,
                RangeCheck::Above { key, version } => return Some((key, version)),
                RangeCheck::More(next) => {
                    assert!(next > from, "a check goes on");
                    from = next;
                }
            }
        }
    }

    pub(crate) fn count(&mut self, space: KeyspaceId, nanos: u64) -> u64 {
        let token = ReadToken(self.now + 9);
        match self.store.count(space, at(nanos), token).expect("count") {
            Count::Keys(keys) => keys,
            Count::Pending => self.until(|event| match event {
                StoreEvent::CountDone { token: found, keys } if *found == token => Some(*keys),
                _ => None,
            }),
        }
    }

    /// Makes everything durable.
    pub(crate) fn sync(&mut self) {
        let batch = self.store.stable_batch().max(1) + 1000;
        self.store.begin_batch(batch);
        self.store.sync_soon();
        for _ in 0..10_000 {
            if self.store.stable_batch() == batch - 1 {
                return;
            }
            self.pump();
        }
        panic!("not stable");
    }

    pub(crate) fn checkpoint(&mut self) {
        self.store.checkpoint_now();
        self.checkpoint_done();
    }

    /// Waits for the end of a checkpoint.
    pub(crate) fn checkpoint_done(&mut self) {
        self.until(|event| matches!(event, StoreEvent::CheckpointDone).then_some(()));
    }

    pub(crate) fn shut_down(&mut self) {
        self.store.shutdown();
        self.until(|event| matches!(event, StoreEvent::ShutDown).then_some(()));
    }

    pub(crate) fn scrub(&mut self) -> timestone_store::ScrubReport {
        self.store.scrub();
        self.until(|event| match event {
            StoreEvent::ScrubDone(report) => Some(*report),
            _ => None,
        })
    }
}

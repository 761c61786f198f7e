//! Scans and counts: bucket after bucket, in the order of hashes, some ahead.
//!
//! ```text
//!   scan ─► buckets from the cursor on, 16 at a time ─► versions of each key ─► visible? ─► page of keys
//! ```
//!
//! A page of a scan ends before the hash that would be too much. All keyspaces share the buckets:
//! a scan of a small one reads as much as one of a large one.
//!
//! Invariant: what is kept of a scan is at most [`AHEAD`] buckets and its page.

use std::collections::{BTreeMap, VecDeque};

use timestone_types::{KeyHash, KeyspaceId, Version};

use super::chain::{Gathering, is_void};
use super::contents::FrugalContents;
use super::reads::{Owner, PartsFor, ServingWalks};
use super::translations::Name;
use crate::api::{AsOf, KeyList, ReadToken, ScanCursor, ScanLimit, StoreEvent};
use crate::error::StoreError;
use crate::layout::{LargeHead, RecordKind};

/// Buckets that are gathered at once for one scan.
const AHEAD: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    Keys(ScanLimit),
    Count,
}

#[derive(Debug)]
struct BucketScan {
    number: u64,
    token: Option<ReadToken>,
    keyspace: KeyspaceId,
    wants: Wants,
    /// `None`: every key that has any version.
    as_of: Option<AsOf>,
    cursor: u64,
    /// The next bucket to gather, and those that are gathered from `next - ahead` on.
    next: u32,
    ahead: VecDeque<Option<Gathering>>,
    keys: KeyList,
    key_bytes: usize,
    found: u64,
    /// The keys of the first bucket that are visible, in the order of their hashes; a key that lies
    /// with its value is asked for.
    pending: Option<Visible>,
    asked: bool,
}

/// All scans under way.
#[derive(Default)]
pub(super) struct Scans {
    list: Vec<BucketScan>,
    last: u64,
}

impl Scans {
    /// Begins a scan, or (without a time) a listing of everything.
    pub(super) fn begin_scan(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: Option<AsOf>,
        token: ReadToken,
    ) {
        let from = cursor.0.saturating_mul(1 << ScanCursor::BELOW);
        self.begin(keyspace, from, Wants::Keys(limit), as_of, token);
    }

    /// Begins a count.
    pub(super) fn begin_count(&mut self, keyspace: KeyspaceId, as_of: AsOf, token: ReadToken) {
        self.begin(keyspace, 0, Wants::Count, Some(as_of), token);
    }

    fn begin(
        &mut self,
        keyspace: KeyspaceId,
        cursor: u64,
        wants: Wants,
        as_of: Option<AsOf>,
        token: ReadToken,
    ) {
        self.last += 1;
        self.list.push(BucketScan {
            number: self.last,
            token: Some(token),
            keyspace,
            wants,
            as_of,
            cursor,
            next: u32::MAX,
            ahead: VecDeque::new(),
            keys: KeyList::default(),
            key_bytes: 0,
            found: 0,
            pending: None,
            asked: false,
        });
    }

    /// Nobody wants the answers any more.
    pub(super) fn abandon(&mut self) {
        self.list.clear();
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        self.list.iter().any(|scan| {
            scan.next == u32::MAX || scan.ahead.front().is_some_and(|first| first.is_some())
        })
    }

    /// A bucket is gathered.
    pub(super) fn gathered(&mut self, number: u64, gathering: Gathering) {
        let Some(scan) = self.list.iter_mut().find(|scan| scan.number == number) else { return };
        let first = scan.next - scan.ahead.len() as u32;
        let at = (gathering.bucket - first) as usize;
        debug_assert!(scan.ahead[at].is_none(), "a bucket is gathered once");
        scan.ahead[at] = Some(gathering);
    }

    /// A scan cannot go on.
    pub(super) fn failed(&mut self, number: u64, error: StoreError, events: &mut Vec<StoreEvent>) {
        let Some(at) = self.list.iter().position(|scan| scan.number == number) else { return };
        let scan = self.list.swap_remove(at);
        events.extend(scan.token.map(|token| StoreEvent::ReadFailed { token, error }));
    }

    /// The key of a large value is known.
    pub(super) fn large_key(&mut self, number: u64, key: Vec<u8>) {
        let Some(scan) = self.list.iter_mut().find(|scan| scan.number == number) else { return };
        scan.asked = false;
        if let Some(first) = scan.pending.as_mut().and_then(VecDeque::front_mut) {
            first.1 = Some(key);
        }
    }

    /// Goes on with all scans.
    pub(super) fn pump(&mut self, serving: &mut ServingWalks<'_>) {
        let mut at = 0;
        while at < self.list.len() {
            if self.list[at].advance(serving) {
                self.list.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
}

impl BucketScan {
    /// Goes on; true when it is answered.
    fn advance(&mut self, serving: &mut ServingWalks<'_>) -> bool {
        let count = serving.core.buckets.count();
        if self.next == u32::MAX {
            let is_empty = serving.core.spaces.get(self.keyspace).is_none();
            self.next =
                if is_empty { count } else { serving.core.buckets.of(KeyHash(self.cursor)) };
        }
        loop {
            while self.ahead.len() < AHEAD && self.next < count && !self.has_enough() {
                let gathering = serving.core.gathering(self.next, None);
                self.ahead.push_back(None);
                self.next += 1;
                serving.gather(Owner::Scan(self.number), gathering);
            }
            if self.pending.is_none() {
                match self.ahead.front() {
                    None => return self.answer(None, serving),
                    Some(None) => return false,
                    Some(Some(gathering))
                        if serving
                            .core
                            .buckets
                            .was_large_linked_after(gathering.bucket, gathering.began) =>
                    {
                        // What was staged then may be in the chain now, and was not then.
                        let bucket = gathering.bucket;
                        let anew = serving.core.gathering(bucket, None);
                        self.ahead[0] = None;
                        serving.gather(Owner::Scan(self.number), anew);
                        return false;
                    }
                    Some(Some(gathering)) => {
                        // What it is to see may have been dropped before its bucket was gathered.
                        let at = self.as_of.map(|as_of| as_of.at);
                        let age = at.map_or(Ok(()), |at| serving.core.spaces.marks.check_age(at));
                        if let Err(error) = age {
                            let failed = |token| StoreEvent::ReadFailed { token, error };
                            serving.events.extend(self.token.map(failed));
                            return true;
                        }
                        let visible = visible(gathering, self, serving.core);
                        self.pending = Some(visible);
                    }
                }
            }
            match self.take_keys(serving) {
                Taken::All => {
                    self.pending = None;
                    self.ahead.pop_front();
                }
                Taken::Waits => return false,
                Taken::Full(next) => return self.answer(Some(next), serving),
            }
        }
    }

    /// Whether more buckets than those under way will hardly be needed.
    fn has_enough(&self) -> bool {
        match self.wants {
            Wants::Count => false,
            Wants::Keys(limit) => {
                let likely = self.keys.len() + self.ahead.len() * 2;
                !self.ahead.is_empty() && likely > limit.keys as usize
            }
        }
    }

    fn take_keys(&mut self, serving: &mut ServingWalks<'_>) -> Taken {
        let Some(pending) = self.pending.as_mut() else { return Taken::All };
        let Wants::Keys(limit) = self.wants else {
            self.found += pending.len() as u64;
            return Taken::All;
        };
        // All keys of one position go together: they are in one bucket.
        while let Some(&(hash, ..)) = pending.front() {
            let position = position_of(hash);
            let is_same = |other: &KeyHash| position_of(*other) == position;
            let same = pending.iter().take_while(|(other, ..)| is_same(other)).count();
            let unknown = pending.iter().take(same).position(|(_, key, _)| key.is_none());
            if let Some(unknown) = unknown {
                pending.swap(0, unknown);
                if self.asked {
                    return Taken::Waits;
                }
                let Some(Some(gathering)) = self.ahead.front() else { return Taken::Waits };
                let Some(at) = pending[0].2 else { return Taken::Waits };
                let record = gathering.record(&gathering.records[at]);
                let Some(head) = LargeHead::read(record.value) else { return Taken::Waits };
                if is_void(&record, &serving.core.kit.volume.blocks) {
                    // It was moved meanwhile: the bucket is looked at anew.
                    let bucket = gathering.bucket;
                    self.pending = None;
                    self.ahead[0] = None;
                    let anew = serving.core.gathering(bucket, None);
                    serving.gather(Owner::Scan(self.number), anew);
                    return Taken::Waits;
                }
                self.asked = true;
                serving.assemble(PartsFor::Scan(self.number), (&record, head), 0);
                return Taken::Waits;
            }
            let bytes: usize =
                pending.iter().take(same).map(|(_, key, _)| key.as_ref().map_or(0, Vec::len)).sum();
            let too_much = self.keys.len() + same > limit.keys as usize
                || self.key_bytes + bytes > limit.bytes;
            if too_much && !self.keys.is_empty() {
                return Taken::Full(ScanCursor(position));
            }
            for (_, key, _) in pending.drain(..same) {
                self.keys.push(&key.unwrap_or_default());
            }
            self.key_bytes += bytes;
            self.cursor = (position + 1).saturating_mul(1 << ScanCursor::BELOW);
        }
        Taken::All
    }

    fn answer(&mut self, next: Option<ScanCursor>, serving: &mut ServingWalks<'_>) -> bool {
        let Some(token) = self.token else { return true };
        serving.events.push(match self.wants {
            Wants::Count => StoreEvent::CountDone { token, keys: self.found },
            Wants::Keys(_) => {
                let keys = core::mem::take(&mut self.keys);
                StoreEvent::ScanDone { token, keys, next }
            }
        });
        true
    }
}

const fn position_of(hash: KeyHash) -> u64 {
    hash.0 >> ScanCursor::BELOW
}

enum Taken {
    All,
    Waits,
    /// The page is full: where the next one begins.
    Full(ScanCursor),
}

/// Keys in the order of their hashes: their bytes, or the record of the gathering that knows where
/// they are.
type Visible = VecDeque<(KeyHash, Option<Vec<u8>>, Option<usize>)>;

/// The keys of a bucket that a scan wants, in the order of their hashes.
fn visible(gathering: &Gathering, scan: &BucketScan, core: &FrugalContents) -> Visible {
    /// Per key its best version so far: of a record, or of a staged value.
    struct VisibleKey {
        key: Option<Vec<u8>>,
        version: Version,
        is_visible: bool,
        at: Option<usize>,
    }
    let at = scan.as_of.map_or(timestone_types::Timestamp::MAX, |as_of| as_of.at);
    let fence = core.spaces.fence_at(scan.keyspace, at);
    let mut all: BTreeMap<Name, Vec<VisibleKey>> = BTreeMap::new();
    let mut note = |name: Name, key: Option<&[u8]>, version: Version, is_visible: bool, at| {
        let same = all.entry(name).or_default();
        let known = same
            .iter_mut()
            .find(|known| key.is_none() || known.key.is_none() || known.key.as_deref() == key);
        match known {
            Some(known) => {
                if known.key.is_none() {
                    known.key = key.map(<[u8]>::to_vec);
                }
                if version > known.version {
                    (known.version, known.is_visible, known.at) = (version, is_visible, at);
                }
            }
            None => {
                same.push(VisibleKey { key: key.map(<[u8]>::to_vec), version, is_visible, at });
            }
        }
    };
    let sees =
        |version: Version, tombstone: bool, expires_at: timestone_types::Expiry| match scan.as_of {
            None => true,
            Some(as_of) => version > fence && !tombstone && !expires_at.has_passed(as_of.judged),
        };
    for (number, gathered) in gathering.records.iter().enumerate() {
        let record = gathering.record(gathered);
        let hidden = record.keyspace != scan.keyspace
            || record.hash.0 < scan.cursor
            || record.version.timestamp > at
            || is_void(&record, &core.kit.volume.blocks);
        if hidden {
            continue;
        }
        let is_outside = record.kind.is_large()
            && record.key.is_empty()
            && LargeHead::read(record.value).is_some_and(|head| head.key_outside > 0);
        let is_visible = sees(record.version, record.kind.is_tombstone(), record.expires_at);
        let key = (!is_outside).then_some(record.key);
        note(core.name_of(&record), key, record.version, is_visible, Some(number));
        debug_assert!(record.kind != RecordKind::Fence);
    }
    for (name, versions) in &core.staged {
        let is_here = name.keyspace == scan.keyspace
            && core.buckets.of(name.hash) == gathering.bucket
            && name.hash.0 >= scan.cursor;
        for staged in versions.iter().filter(|one| is_here && one.version.timestamp <= at) {
            let expires_at = core.kit.staging.value(staged.slot).0;
            let key = core.kit.staging.key(staged.slot);
            note(
                *name,
                Some(key),
                staged.version,
                sees(staged.version, staged.tombstone, expires_at),
                None,
            );
        }
    }
    // All are of one keyspace, so names are in the order of their hashes.
    all.into_iter()
        .flat_map(|(name, keys)| keys.into_iter().map(move |found| (name.hash, found)))
        .filter(|(_, found)| found.is_visible)
        .map(|(hash, found)| (hash, found.key, found.at))
        .collect()
}

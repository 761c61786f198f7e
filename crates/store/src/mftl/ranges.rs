//! Reads of ranges, and the check whether something in a range was written.
//!
//! ```text
//!   order ─ keys, up or down ─► index: which version? ─► found │ absent
//!                                └─ may expire, or two keys share the entry ─► record ─► found │ absent
//!   listed: [ found │ asked │ found … ]  ─ all answered, and full, at the end, or too many absent ─► event
//! ```
//! Most keys are answered by the index alone. Where the record decides, it is looked up as by a get,
//! the key compared; many such look-ups may be under way, and the answer waits for all of them. Only
//! as many keys are listed as the limit allows, those included that are not answered yet: when some
//! of them turn out absent, the read goes on behind them.
//!
//! A page ends behind so many keys that are not visible, too, whether it has found something or not:
//! whoever asks would wait for a page without end otherwise, and ask again, which begins a second one.
//!
//! Invariants: `outstanding` of a read = its waiters in [`super::reads`]; every key of the range that is
//! not in `left` was listed, or is not visible.

use std::collections::VecDeque;

use timestone_types::{Direction, Expiry, HashSeed, KeyspaceId, Timestamp, Version, is_planted};

use super::index::{Ahead, KeyId};
use super::locate::{Found, Sought, locate, record_in_group};
use super::order::{Order, id_of};
use super::reads::{PendingReads, Waiter};
use super::space::{Space, Spaces};
use crate::api::{
    AsOf, KeyRange, RangeCheck, RangeEntry, RangeList, ReadToken, ScanLimit, StoreEvent,
};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::ordered::{RangeLeft, Walked, cost_of};
use crate::limits::{
    RANGE_ABSENT_BYTES, RANGE_ABSENT_KEYS, RANGE_HIDDEN_KEYS, RANGE_KEYS_AT_ONCE,
    RANGE_KEYS_PER_PUMP,
};

/// Keys whose entries are fetched together.
const BATCH_KEYS: u32 = 64;
/// Records that one read may wait for.
const MAX_OUTSTANDING: u32 = 64;

/// What is known of a key that was listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    /// Its record is being looked up.
    Asked,
    /// It is visible.
    Visible(Version, Expiry),
    /// It is not.
    Absent,
}

/// A record that a read waits for: which read, and the place of the key among those that it listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RangePlace {
    read: u64,
    place: usize,
}

struct RangeWalk {
    id: u64,
    /// None: nobody wants the answer any more.
    token: Option<ReadToken>,
    keyspace: KeyspaceId,
    left: RangeLeft,
    limit: ScanLimit,
    as_of: AsOf,
    /// The keys that were listed, one after the other, with their ends.
    keys: Vec<u8>,
    listed: Vec<(usize, Listed)>,
    /// How many of them are or may be visible, and their bytes.
    count: u32,
    bytes: usize,
    /// How many are known to be absent.
    absent: u32,
    /// What the look at keys has cost that were not listed, because the index says that they are not visible.
    hidden: u32,
    /// There is no room for the next key of what is left.
    is_full: bool,
    /// Nothing is left.
    is_at_end: bool,
    outstanding: u32,
    error: Option<StoreError>,
}

/// Keys that are looked at together, with their ends.
#[derive(Default)]
struct KeyBatch {
    bytes: Vec<u8>,
    keys: Vec<(usize, KeyId)>,
}

impl KeyBatch {
    fn iter(&self) -> impl Iterator<Item = (&[u8], KeyId)> {
        let starts = core::iter::once(0).chain(self.keys.iter().map(|&(end, _)| end));
        starts.zip(&self.keys).map(|(start, &(end, id))| (&self.bytes[start..end], id))
    }
}

/// The version of a key that may be visible, and whether its record decides.
fn candidate(space: &Space, id: KeyId, at: Timestamp) -> Option<(Version, bool)> {
    let mut chain = space.index.chain(id);
    let (version, location) = chain.find(|(version, _)| version.timestamp <= at)?;
    let is_shared = space.order.as_ref().is_some_and(|order| order.is_shared(id));
    // Of a shared entry this may be the other key's version: the record says.
    (is_shared || !location.tombstone()).then_some((version, is_shared || location.may_expire()))
}

impl RangeWalk {
    fn key(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.listed[before].0);
        &self.keys[start..self.listed[place].0]
    }

    /// Whether it has listed all that it may for now.
    fn listed_all(&self) -> bool {
        let is_done = self.is_full || self.is_at_end || self.is_long_enough();
        is_done || self.token.is_none() || self.error.is_some()
    }

    /// Whether there is something to list.
    fn has_work(&self) -> bool {
        !self.listed_all() && self.outstanding < MAX_OUTSTANDING
    }

    /// Whether so many keys were not visible that the page ends, whatever it has found.
    fn is_long_enough(&self) -> bool {
        let is_long = self.absent >= RANGE_ABSENT_KEYS
            || self.keys.len() - self.bytes >= RANGE_ABSENT_BYTES
            || self.hidden >= RANGE_HIDDEN_KEYS;
        is_long && !is_planted!(EndlessPages)
    }

    fn is_over(&self) -> bool {
        self.outstanding == 0 && self.listed_all()
    }

    /// Lists further keys, and looks up the records that decide.
    fn list(&mut self, budget: &mut u32, spaces: &Spaces, kit: &mut Kit, reads: &mut PendingReads) {
        let found = spaces.get(self.keyspace);
        let Some((space, order)) = found.and_then(|space| Some((space, space.order.as_ref()?)))
        else {
            self.is_at_end = true;
            return;
        };
        let first = self.listed.len();
        let mut asked = self.outstanding;
        while *budget > 0 && !self.listed_all() {
            let (batch, walked) = self.next_keys(order, spaces.seed, budget);
            Ahead::take_all(batch.keys.iter().map(|&(_, id)| (Some(&space.index), id.place(), 0)));
            if !self.list_batch(&batch, space, &mut asked) {
                break;
            }
            match walked {
                Walked::UpTo(next) => self.left.go_on(next),
                Walked::ToEnd | Walked::Stopped => self.is_at_end = true,
            }
        }
        for place in first..self.listed.len() {
            if self.listed[place].1 == Listed::Asked {
                self.look_up(place, spaces, kit, reads);
            }
        }
    }

    /// The next keys, as many as may be worth a look together.
    fn next_keys(&self, order: &Order, seed: HashSeed, budget: &mut u32) -> (KeyBatch, Walked) {
        let room = self.limit.keys.saturating_sub(self.count).saturating_add(1);
        let most = room.min(BATCH_KEYS).min(*budget);
        let (mut left, mut batch) = (most, KeyBatch::default());
        let walked = order.walk(self.left.wanted(), &mut left, |key| {
            batch.bytes.extend_from_slice(key);
            batch.keys.push((batch.bytes.len(), id_of(seed, self.keyspace, key)));
            true
        });
        *budget -= most - left;
        debug_assert!(left < most || walked == Walked::ToEnd, "there is progress");
        (batch, walked)
    }

    /// Lists those of some keys that may be visible. False when it had to stop at one of them, from
    /// which it goes on.
    fn list_batch(&mut self, batch: &KeyBatch, space: &Space, asked: &mut u32) -> bool {
        let fence = space.fence_at(self.as_of.at);
        for (key, id) in batch.iter() {
            let found = candidate(space, id, self.as_of.at).filter(|&(version, _)| version > fence);
            let Some((version, decides)) = found else {
                self.hidden += cost_of(key);
                continue;
            };
            let has_room = self.has_room(key);
            if !has_room || *asked >= MAX_OUTSTANDING {
                self.is_full = !has_room;
                self.left.stop_at(key);
                return false;
            }
            *asked += u32::from(decides);
            let listed =
                if decides { Listed::Asked } else { Listed::Visible(version, Expiry::NEVER) };
            self.push(key, listed);
        }
        true
    }

    fn has_room(&self, key: &[u8]) -> bool {
        let fits = self.bytes + key.len() <= self.limit.bytes;
        self.count == 0 || (self.count < self.limit.keys && fits)
    }

    fn push(&mut self, key: &[u8], listed: Listed) {
        self.keys.extend_from_slice(key);
        self.listed.push((self.keys.len(), listed));
        self.count += 1;
        self.bytes += key.len();
    }

    /// Looks the record of a listed key up, from memory or through a page.
    fn look_up(&mut self, place: usize, spaces: &Spaces, kit: &mut Kit, reads: &mut PendingReads) {
        let keyspace = self.keyspace;
        let key = self.key(place);
        let id = id_of(spaces.seed, keyspace, key);
        let found = locate(spaces, kit, Sought { keyspace, id, key }, self.as_of.at, None);
        if let Found::OnFlash { version, page } = found {
            let who = RangePlace { read: self.id, place };
            let times = (self.as_of.at, self.as_of.judged);
            let waiter = Waiter::range(who, (keyspace, id, key), times, version, page);
            self.outstanding += 1;
            return reads.wait(waiter, &mut kit.volume);
        }
        match in_memory(found, kit) {
            Ok(found) => self.answered(place, found),
            Err(error) => self.fail(error),
        }
    }

    /// The record of a listed key was looked up: its version and expiry, if it has a value.
    fn answered(&mut self, place: usize, found: Option<(Version, Expiry)>) {
        debug_assert_eq!(self.listed[place].1, Listed::Asked, "it is answered once");
        let visible = found.filter(|(_, expires_at)| !expires_at.has_passed(self.as_of.judged));
        self.listed[place].1 = match visible {
            Some((version, expires_at)) => Listed::Visible(version, expires_at),
            None => {
                self.count -= 1;
                self.absent += 1;
                self.bytes -= self.key(place).len();
                // There may be room again for the key that was left out.
                self.is_full = false;
                Listed::Absent
            }
        };
    }

    fn fail(&mut self, error: StoreError) {
        self.error.get_or_insert(error);
    }

    fn finish(self) -> Option<StoreEvent> {
        let token = self.token?;
        if let Some(error) = self.error {
            return Some(StoreEvent::ReadFailed { token, error });
        }
        let mut entries = RangeList::default();
        for place in 0..self.listed.len() {
            if let (_, Listed::Visible(version, expires_at)) = self.listed[place] {
                entries.push(RangeEntry { key: self.key(place), version, expires_at });
            }
        }
        debug_assert_eq!(entries.len(), self.count as usize, "what was counted");
        let is_descending = self.left.wanted().direction == Direction::Descending;
        let mut next = self.left.next();
        if is_planted!(RangeSkips) && self.is_full {
            if is_descending {
                next.pop();
            } else {
                next.push(0);
            }
        }
        Some(StoreEvent::RangeDone { token, entries, next: (!self.is_at_end).then_some(next) })
    }
}

/// What a record says that was found in memory: its version and expiry, if it has a value.
pub(super) fn in_memory(found: Found, kit: &Kit) -> Result<Option<(Version, Expiry)>, StoreError> {
    Ok(match found {
        Found::Absent { .. } | Found::OnFlash { .. } => None,
        Found::Cached { version, place } => Some((version, kit.cache.expires_at(place))),
        Found::Staged { version, slot } => Some((version, kit.staging.value(slot).0)),
        Found::InGroup { version, page, offset } => {
            let record = record_in_group(&kit.volume, page, offset)?;
            (!record.kind.is_tombstone()).then_some((version, record.expires_at))
        }
    })
}

/// See [`Reads::first_above`](crate::Reads::first_above), of a range of this keyspace.
pub(super) fn first_above(
    seed: HashSeed,
    space: &Space,
    range: KeyRange<'_>,
    t: Timestamp,
    max_keys: u32,
) -> RangeCheck {
    let fence = space.latest_fence();
    if fence.timestamp > t && !range.is_empty() {
        return RangeCheck::Above { key: None, version: fence };
    }
    let Some(order) = &space.order else { return RangeCheck::None };
    order.keys().first_above(range, t, max_keys, |key| {
        let youngest = space.index.latest(id_of(seed, space.id, key));
        youngest.map(|(version, _)| version)
    })
}

/// All reads of ranges under way.
#[derive(Default)]
pub(super) struct RangeReads {
    list: VecDeque<RangeWalk>,
    next_id: u64,
}

impl RangeReads {
    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        self.list.iter().any(|read| read.has_work() || read.is_over())
    }

    /// Nobody wants the answers to those under way any more: each goes when its records are back.
    pub(super) fn abandon(&mut self) {
        self.list.iter_mut().for_each(|read| read.token = None);
    }

    /// Begins one, whose time may be asked.
    pub(super) fn begin(
        &mut self,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        debug_assert!(self.list.iter().all(|read| read.id < id), "numbers rise");
        self.list.push_back(RangeWalk {
            id,
            token: Some(token),
            keyspace: range.keyspace,
            left: RangeLeft::new(range, direction),
            limit: ScanLimit { keys: limit.keys.max(1), ..limit },
            as_of,
            keys: Vec::new(),
            listed: Vec::new(),
            count: 0,
            bytes: 0,
            absent: 0,
            hidden: 0,
            is_full: false,
            is_at_end: range.is_empty(),
            outstanding: 0,
            error: None,
        });
    }

    /// Lists further keys, for one read after the other in turn, so that short ones are not held up
    /// by long ones; and reports those that are done.
    pub(super) fn pump(
        &mut self,
        spaces: &Spaces,
        kit: &mut Kit,
        reads: &mut PendingReads,
        events: &mut Vec<StoreEvent>,
    ) {
        let mut left = RANGE_KEYS_PER_PUMP;
        while left > 0
            && let Some(place) = self.list.iter().position(RangeWalk::has_work)
            && let Some(mut read) = self.list.remove(place)
        {
            let checked = spaces.marks.check_age(read.as_of.at);
            let space = spaces.get(read.keyspace);
            let whole = space.map_or(Ok(()), |space| space.check_order_at(read.as_of.at));
            match checked.and(whole) {
                Ok(()) => {
                    let given = RANGE_KEYS_AT_ONCE.min(left);
                    let mut budget = given;
                    read.list(&mut budget, spaces, kit, reads);
                    // Whoever looks at nothing costs something as well.
                    left -= (given - budget).max(1);
                }
                Err(error) => read.fail(error),
            }
            self.list.push_back(read);
        }
        while let Some(place) = self.list.iter().position(RangeWalk::is_over)
            && let Some(mut read) = self.list.remove(place)
        {
            // While it waited for records, what it was to find may have been collected.
            if let Err(error) = spaces.marks.check_age(read.as_of.at) {
                read.fail(error);
            }
            events.extend(read.finish());
        }
    }

    /// A read that waits for a record, which has come.
    fn arrived(&mut self, RangePlace { read, .. }: RangePlace) -> Option<&mut RangeWalk> {
        let read = self.list.iter_mut().find(|one| one.id == read);
        debug_assert!(read.is_some(), "a read stays as long as it waits");
        let read = read?;
        assert!(read.outstanding > 0, "it was waited for");
        read.outstanding -= 1;
        Some(read)
    }

    /// A record that was waited for: its version and expiry, if it has a value.
    pub(super) fn answered(&mut self, who: RangePlace, found: Option<(Version, Expiry)>) {
        if let Some(read) = self.arrived(who) {
            read.answered(who.place, found);
        }
    }

    /// A record that was waited for could not be read.
    pub(super) fn failed(&mut self, who: RangePlace, error: StoreError) {
        if let Some(read) = self.arrived(who) {
            read.fail(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryDevice};
    use timestone_types::{ClientId, KeyRef};

    use super::super::{Mftl, MftlConfig};
    use super::*;
    use crate::api::prelude::*;

    const SPACE: KeyspaceId = KeyspaceId::numbered(1, false).ordered();

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn pump(store: &mut Mftl, times: u64) -> Vec<StoreEvent> {
        let mut events = Vec::new();
        for _ in 0..times {
            let now = store.kit.volume.now().as_nanos() + 1_000_000;
            store.pump(at(now), &mut events);
        }
        events
    }

    /// Values, deletions, large values and values that expire.
    fn filled() -> Mftl {
        let device = Box::new(MemoryDevice::new(MemoryConfig::default()));
        let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
        let mut store = Mftl::open(device, config).expect("opens").0;
        for n in 0..400u64 {
            let bytes = [&n.to_be_bytes()[..], &vec![b'.'; n as usize % 5 * 500]].concat();
            let key = KeyRef::new(store.seed(), SPACE, &bytes);
            let version = |nanos| Version::new(at(nanos), ClientId::new(1));
            let size = if n % 7 == 0 { 9000 } else { 20 };
            let expiry = if n % 3 == 0 { Expiry::at(at(20 + n % 2)) } else { Expiry::NEVER };
            store.put(key, version(10), &vec![7; size], expiry).expect("put");
            if n % 11 == 0 {
                store.delete(key, version(15)).expect("deleted");
            }
            pump(&mut store, 1);
        }
        store.begin_batch(2);
        store.sync_soon();
        pump(&mut store, 100);
        store
    }

    fn found(store: &mut Mftl, nanos: u64) -> RangeList {
        let (range, token) = (KeyRange::all(SPACE), ReadToken(1));
        let limit = ScanLimit { keys: u32::MAX, bytes: usize::MAX };
        let as_of = AsOf { at: at(nanos), judged: at(nanos) };
        store.range_as_of(range, Direction::Ascending, limit, as_of, token).expect("begins");
        for event in pump(store, 2000) {
            if let StoreEvent::RangeDone { entries, next: None, .. } = event {
                return entries;
            }
        }
        panic!("no answer")
    }

    /// Keys that have expired, and are not collected, have their records looked at.
    #[test]
    fn what_is_absent_takes_no_memory_for_long() {
        let device = Box::new(MemoryDevice::new(MemoryConfig::default()));
        let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
        let mut store = Mftl::open(device, config).expect("opens").0;
        let mut long = 0;
        for n in 0..8000u64 {
            let mut bytes = n.to_be_bytes().to_vec();
            if n % 100 == 0 {
                bytes.resize(30_000, b'.');
                long += 30_000;
            }
            let key = KeyRef::new(store.seed(), SPACE, &bytes);
            let version = Version::new(at(10), ClientId::new(1));
            let expiry = if n % 50 == 7 { Expiry::at(at(1000)) } else { Expiry::at(at(20)) };
            store.put(key, version, b"value", expiry).expect("put");
            if n % 20 == 0 {
                pump(&mut store, 1);
            }
        }
        store.begin_batch(2);
        store.sync_soon();
        pump(&mut store, 100);
        let limit = ScanLimit { keys: u32::MAX, bytes: usize::MAX };
        let as_of = AsOf { at: at(30), judged: at(30) };
        let ask = |store: &mut Mftl, from: &[u8]| {
            let range = KeyRange { keyspace: SPACE, from, to: None };
            store
                .range_as_of(range, Direction::Ascending, limit, as_of, ReadToken(1))
                .expect("begins");
        };
        ask(&mut store, b"");
        let (mut most_keys, mut most_bytes, mut found) = (0, 0, 0);
        for _ in 0..10_000 {
            let events = pump(&mut store, 1);
            if let Some(StoreEvent::RangeDone { entries, next, .. }) = events.first() {
                found += entries.len();
                if let Some(next) = next {
                    ask(&mut store, next);
                    continue;
                }
                assert_eq!(found, 160);
                let most = 160 + 2 * RANGE_ABSENT_KEYS as usize;
                assert!(most_keys < most && most_keys > 0, "{most_keys} keys were kept");
                assert!(most_bytes < long / 2 && most_bytes > 0, "{most_bytes} bytes were kept");
                return;
            }
            for read in &store.ranges.list {
                most_keys = most_keys.max(read.listed.len());
                most_bytes = most_bytes.max(read.keys.len());
            }
        }
        panic!("no answer")
    }

    /// How many pages a range takes in which nothing is visible: 20 000 keys that have expired, or were
    /// deleted. None: one of them does not end in 10 000 pumps.
    fn pages_of_absent(is_deleted: bool, direction: Direction) -> Option<u32> {
        let device = Box::new(MemoryDevice::new(MemoryConfig::default()));
        let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
        let mut store = Mftl::open(device, config).expect("opens").0;
        for n in 0..20_000u64 {
            let key = n.to_be_bytes();
            let key = KeyRef::new(store.seed(), SPACE, &key);
            let version = Version::new(at(10), ClientId::new(1));
            if is_deleted {
                store.delete(key, version).expect("deleted");
            } else {
                store.put(key, version, b"value", Expiry::at(at(20))).expect("put");
            }
            if n % 20 == 0 {
                pump(&mut store, 1);
            }
        }
        store.begin_batch(2);
        store.sync_soon();
        pump(&mut store, 100);
        let limit = ScanLimit { keys: 1, bytes: usize::MAX };
        let as_of = AsOf { at: at(30), judged: at(30) };
        let (mut left, mut pages) = ((Vec::new(), None), 0);
        loop {
            let range = KeyRange { keyspace: SPACE, from: &left.0, to: left.1.as_deref() };
            store.range_as_of(range, direction, limit, as_of, ReadToken(1)).expect("begins");
            let done = (0..10_000).find_map(|_| pump(&mut store, 1).pop())?;
            let StoreEvent::RangeDone { entries, next, .. } = done else { panic!("{done:?}") };
            assert!(entries.is_empty(), "nothing is there");
            pages += 1;
            let Some(next) = next else { return Some(pages) };
            match direction {
                Direction::Ascending => left.0 = next,
                Direction::Descending => left.1 = Some(next),
            }
        }
    }

    #[test]
    fn a_page_ends_however_many_keys_are_absent() {
        let of_records = 20_000 / RANGE_ABSENT_KEYS;
        for direction in [Direction::Ascending, Direction::Descending] {
            let pages = pages_of_absent(false, direction).expect("each page ends");
            assert!((of_records..=of_records + 1).contains(&pages), "{pages} pages");
            // The index says at once that they are not there.
            assert_eq!(pages_of_absent(true, direction), Some(2));
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_page_that_goes_on_behind_what_is_absent_is_found() {
        use timestone_types::planted::{Bug, with};
        let pages = |is_deleted| {
            with(Bug::EndlessPages, || pages_of_absent(is_deleted, Direction::Ascending))
        };
        assert_eq!((pages(false), pages(true)), (None, Some(1)));
    }

    /// Where all entries of the index may be of several keys, the records decide, to the same end.
    #[test]
    fn records_say_the_same_as_the_index() {
        let mut store = filled();
        let times = [10, 14, 15, 20, 21, 30];
        let by_index = times.map(|nanos| found(&mut store, nanos));
        assert!(by_index[0].len() == 400 && by_index[5].len() < 270);
        let before = store.stats().reads.page_reads;
        let seed = store.seed();
        for n in 0..400u64 {
            let bytes = [&n.to_be_bytes()[..], &vec![b'.'; n as usize % 5 * 500]].concat();
            let space = store.spaces.get_mut(SPACE).expect("it is there");
            let order = space.order.as_mut().expect("it has one");
            order.share(id_of(seed, SPACE, &bytes));
        }
        let by_records = times.map(|nanos| found(&mut store, nanos));
        assert!(by_records == by_index, "the same keys, versions and expiries");
        assert!(store.stats().reads.page_reads > before + 100, "pages were read for it");
    }
}

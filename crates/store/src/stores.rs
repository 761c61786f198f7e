//! The stores of a shard: a keyspace says by its id which one is its own.
//!
//! ```text
//!   key ─► KeyspaceId::is_in_memory? ─┬─ yes ──────────────────► Dram
//!                      ::is_frugal?  ─┼─ yes ► FrugalPart ─────► Skimpy, on a device of its own
//!                                     └─ neither ──────────────► Mftl
//! ```
//! The id alone decides, so that a shard need not be told of a keyspace before the first request or
//! log record for it arrives. The choice is a test of two bits; nothing is dispatched dynamically.
//! A keyspace whose index was changed in this data directory is kept under another id ([`places`]).
//!
//! What concerns durability concerns the stores on flash alone: batches, syncs, checkpoints, scrubs
//! and the end. Nobody has to wait for a store that keeps nothing. A batch is stable when it is so
//! in both stores on flash: the log has what belongs to either. What both have to do is reported
//! when both have done it ([`joint`]).
//!
//! Both devices signal the same descriptor, if any: a thread waits for one.

mod frugal;
mod joint;
mod places;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_types::{
    Direction, Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version, is_planted,
};

use crate::api::{
    AsOf, Count, Figure, FigureValues, Figures, KeyRange, KeysAhead, Latest, LatestLookup, Lookup,
    PromisedPuts, PutSize, PutsInMemory, RangeCheck, ReadToken, Reads, ScanCursor, ScanLimit,
    StoreEvent, Upkeep, Writes,
};
use crate::dram::Dram;
use crate::error::StoreError;
use crate::limits::WAIT_SLICE;
use crate::mftl::Mftl;
use crate::skimpy::Skimpy;
use frugal::FrugalPart;
pub use frugal::{OpenFrugal, Opening};
use joint::{Joint, OneOfTwo};
use places::WalkMark;
pub use places::{KeyspacePlace, Places};

/// See the module.
pub struct Stores {
    flash: Mftl,
    dram: Dram,
    frugal: FrugalPart,
    joint: Joint,
    /// What the record caches of both stores on flash may take together, where the second one may
    /// come later.
    cache_bytes: u64,
    /// Puts that are to be admitted to the second one.
    frugal_puts: Vec<PutSize>,
    /// Keyspaces in memory have been written to in this run.
    uses_dram: bool,
    /// Where keyspaces are kept; `None`: ids are taken as they are, those of the data directory
    /// alone included.
    places: Option<Places>,
    /// Walks under way over keyspaces that are kept elsewhere.
    marked_walks: Vec<(ReadToken, WalkMark)>,
}

impl Stores {
    /// A store on flash, and one in memory that was opened
    /// [in recovery](Dram::in_recovery) or is new. Keyspaces with their index on flash cannot be
    /// written to.
    ///
    /// # Panics
    /// The two hash keys by different seeds.
    #[must_use]
    pub fn new(flash: Mftl, dram: Dram) -> Self {
        assert_eq!(flash.seed(), dram.seed(), "a key has one hash");
        Self {
            flash,
            dram,
            frugal: FrugalPart::default(),
            joint: Joint::default(),
            cache_bytes: 0,
            frugal_puts: Vec::new(),
            uses_dram: false,
            places: None,
            marked_walks: Vec::new(),
        }
    }

    /// The same, with a store for keyspaces whose index is on flash, on a device that signals the
    /// same descriptor as the other one's.
    ///
    /// # Panics
    /// It hashes keys by another seed.
    #[must_use]
    pub fn with_frugal(mut self, frugal: Skimpy) -> Self {
        assert_eq!(self.flash.seed(), frugal.seed(), "a key has one hash");
        // Both were told of it, each as far as its checkpoints say.
        let watermark = self.flash.watermark().max(frugal.watermark());
        self.frugal = FrugalPart::open(frugal);
        self.advance_watermark(watermark);
        self
    }

    /// The same, with such a store that is opened when something is to be written there. Each of
    /// the two record caches has half of `cache_bytes` from then on.
    #[must_use]
    pub fn with_frugal_later(mut self, open: OpenFrugal, cache_bytes: u64) -> Self {
        self.frugal = FrugalPart::later(open);
        self.cache_bytes = cache_bytes;
        self.advance_watermark(self.flash.watermark());
        self
    }
}

/// Where keyspaces are kept.
impl Stores {
    /// The same, for whoever knows keyspaces by the ids that the cluster has given out.
    #[must_use]
    pub fn with_places(mut self, places: Places) -> Self {
        self.places = Some(places);
        self
    }

    #[inline]
    fn place(&self, keyspace: KeyspaceId) -> KeyspaceId {
        self.places.as_ref().map_or(keyspace, |places| places.of(keyspace))
    }

    /// A walk over a keyspace that is kept elsewhere may have come to the end of a page.
    fn mark_cursor(&mut self, event: &mut StoreEvent) {
        let (StoreEvent::ScanDone { token, .. } | StoreEvent::ReadFailed { token, .. }) = *event
        else {
            return;
        };
        let walk = self.marked_walks.iter().position(|&(walk, _)| walk == token);
        let Some((_, mark)) = walk.map(|index| self.marked_walks.swap_remove(index)) else {
            return;
        };
        if let StoreEvent::ScanDone { next: Some(next), .. } = event {
            *next = mark.put_on(*next);
        }
    }

    #[inline]
    fn placed<'a>(&self, key: KeyRef<'a>) -> KeyRef<'a> {
        self.places.as_ref().map_or(key, |places| places.key(self.flash.seed(), key))
    }
}

/// What a get finds where nothing was ever written.
const NOTHING: Lookup<'static> =
    Lookup::Absent { version: Version::ZERO, expires_at: Expiry::NEVER };

/// The youngest version of a key of such a keyspace.
const NEVER_WRITTEN: Latest = Latest { version: Version::ZERO, absent: true, may_expire: false };

/// The bytes of each of two record caches.
const fn half(cache_bytes: u64) -> u64 {
    cache_bytes / 2
}

impl Stores {
    /// The store in memory is kept going as soon as it has something.
    #[inline]
    fn assert_sound(&self) {
        debug_assert!(self.uses_dram || !self.dram.has_puts(), "what is there is collected");
        debug_assert!(
            self.frugal.get().is_none_or(|frugal| frugal.seed() == self.flash.seed()),
            "a key has one hash"
        );
    }

    /// The store with its index on flash, which is opened for a write where it is not there yet;
    /// that is waited for for so long.
    ///
    /// # Errors
    /// [`StoreError::NoDevice`]; [`StoreError::Busy`] while it is being opened;
    /// [`StoreError::ShuttingDown`].
    #[inline]
    fn frugal_for_writing(&mut self, at_most: Duration) -> Result<&mut Skimpy, StoreError> {
        let (store, opened) = self.frugal.for_writing(at_most)?;
        if opened {
            self.flash.resize_cache(half(self.cache_bytes));
            store.resize_cache(half(self.cache_bytes));
        }
        Ok(store)
    }
}

impl Reads for Stores {
    #[inline]
    fn seed(&self) -> HashSeed {
        self.flash.seed()
    }

    #[inline]
    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.assert_sound();
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            return self.dram.get_as_of(key, at, judged, token);
        }
        if key.keyspace.is_frugal() {
            let frugal = self.frugal.get_at(AsOf { at, judged })?;
            return frugal.map_or(Ok(NOTHING), |frugal| frugal.get_as_of(key, at, judged, token));
        }
        self.flash.get_as_of(key, at, judged, token)
    }

    #[inline]
    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        self.assert_sound();
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            return self.dram.get_in_memory(key, at, judged);
        }
        if key.keyspace.is_frugal() {
            let frugal = self.frugal.get_at(AsOf { at, judged })?;
            return frugal.map_or(Ok(NOTHING), |frugal| frugal.get_in_memory(key, at, judged));
        }
        self.flash.get_in_memory(key, at, judged)
    }

    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool {
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            return self.dram.is_beside_fence(key, fence);
        }
        if key.keyspace.is_frugal() {
            return self.frugal.get().is_some_and(|frugal| frugal.is_beside_fence(key, fence));
        }
        self.flash.is_beside_fence(key, fence)
    }

    #[inline]
    fn latest(&mut self, key: KeyRef<'_>, token: ReadToken) -> LatestLookup {
        self.assert_sound();
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            return self.dram.latest(key, token);
        }
        if key.keyspace.is_frugal() {
            return match self.frugal.get_mut() {
                Some(frugal) => frugal.latest(key, token),
                None => LatestLookup::Known(NEVER_WRITTEN),
            };
        }
        self.flash.latest(key, token)
    }

    #[inline]
    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest> {
        self.assert_sound();
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            return self.dram.latest_in_memory(key);
        }
        if key.keyspace.is_frugal() {
            return match self.frugal.get() {
                Some(frugal) => frugal.latest_in_memory(key),
                None => Some(NEVER_WRITTEN),
            };
        }
        self.flash.latest_in_memory(key)
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() {
            return self.dram.newest(keyspace);
        }
        if keyspace.is_frugal() {
            return self.frugal.get().map_or(Timestamp::ZERO, |frugal| frugal.newest(keyspace));
        }
        self.flash.newest(keyspace)
    }

    #[inline]
    fn lost(&self, keyspace: KeyspaceId) -> Timestamp {
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() { self.dram.lost(keyspace) } else { self.flash.lost(keyspace) }
    }

    #[inline]
    fn fetch_ahead(&self, keys: KeysAhead<'_>) {
        // Keyspaces of the others are unknown there, which costs next to nothing.
        self.flash.fetch_ahead(keys);
    }

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        let mark = self.places.as_ref().map_or(WalkMark::NONE, |places| places.walk_mark(keyspace));
        let Some(cursor) = mark.take_off(cursor) else {
            // The gateway knows by this very watermark that the cursor is at fault.
            let (at, watermark) = (as_of.at, as_of.at.next());
            return Err(StoreError::TooOld { at, watermark });
        };
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() {
            self.dram.scan_as_of(keyspace, cursor, limit, as_of, token)?;
        } else if keyspace.is_frugal() {
            match self.frugal.get_mut() {
                Some(frugal) => frugal.scan_as_of(keyspace, cursor, limit, as_of, token)?,
                None => self.frugal.scan_nothing(Some(as_of), token)?,
            }
        } else {
            self.flash.scan_as_of(keyspace, cursor, limit, as_of, token)?;
        }
        self.marked_walks.retain(|&(other, _)| other != token);
        if mark != WalkMark::NONE {
            self.marked_walks.push((token, mark));
        }
        Ok(())
    }

    fn range_as_of(
        &mut self,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        if range.keyspace.is_in_memory() {
            return self.dram.range_as_of(range, direction, limit, as_of, token);
        }
        self.flash.range_as_of(range, direction, limit, as_of, token)
    }

    fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
    ) -> Result<RangeCheck, StoreError> {
        self.assert_sound();
        if range.keyspace.is_in_memory() {
            return self.dram.first_above(range, t, max_keys);
        }
        self.flash.first_above(range, t, max_keys)
    }

    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        self.assert_sound();
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() {
            return self.dram.list_keys(keyspace, cursor, limit, token);
        }
        if keyspace.is_frugal() {
            return match self.frugal.get_mut() {
                Some(frugal) => frugal.list_keys(keyspace, cursor, limit, token),
                // Any time will do, so that nothing is refused.
                None => self.frugal.scan_nothing(None, token).unwrap_or_default(),
            };
        }
        self.flash.list_keys(keyspace, cursor, limit, token);
    }

    fn kept_keyspaces(&self) -> Vec<KeyspaceId> {
        let mut all = self.flash.kept_keyspaces();
        all.extend(self.frugal.get().map(Skimpy::kept_keyspaces).unwrap_or_default());
        if let Some(places) = &self.places {
            all = places.told(all);
        }
        all.sort_unstable();
        all
    }

    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version> {
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() {
            return self.dram.fences(keyspace);
        }
        if keyspace.is_frugal() {
            return self.frugal.get().map_or_else(Vec::new, |frugal| frugal.fences(keyspace));
        }
        self.flash.fences(keyspace)
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.assert_sound();
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() {
            return self.dram.count_as_of(keyspace, as_of, token);
        }
        if keyspace.is_frugal() {
            let nothing = Ok(Count::Keys(0));
            return self
                .frugal
                .get_at(as_of)?
                .map_or(nothing, |frugal| frugal.count_as_of(keyspace, as_of, token));
        }
        self.flash.count_as_of(keyspace, as_of, token)
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.assert_sound();
        self.flash.recycle(bytes);
    }
}

impl Writes for Stores {
    #[inline]
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            self.uses_dram = true;
            return self.dram.put(key, version, value, expires_at);
        }
        if key.keyspace.is_frugal() {
            return self.frugal_for_writing(Duration::ZERO)?.put(key, version, value, expires_at);
        }
        self.flash.put(key, version, value, expires_at)
    }

    #[inline]
    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.assert_sound();
        let key = self.placed(key);
        if key.keyspace.is_in_memory() {
            self.uses_dram = true;
            return self.dram.delete(key, version);
        }
        if key.keyspace.is_frugal() {
            return self.frugal_for_writing(Duration::ZERO)?.delete(key, version);
        }
        self.flash.delete(key, version)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.assert_sound();
        let keyspace = self.place(keyspace);
        if keyspace.is_in_memory() {
            self.uses_dram = true;
            return self.dram.fence(keyspace, version);
        }
        if keyspace.is_frugal() {
            return self.frugal_for_writing(Duration::ZERO)?.fence(keyspace, version);
        }
        self.flash.fence(keyspace, version)
    }

    #[inline]
    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        let mut in_memory_puts = PutsInMemory::default();
        let (frugal_puts, places) = (&mut self.frugal_puts, self.places.as_ref());
        let mut on_flash = puts
            .map(|put| {
                let keyspace = places.map_or(put.keyspace, |places| places.of(put.keyspace));
                PutSize { keyspace, ..put }
            })
            .filter(|put| {
                if put.keyspace.is_in_memory() {
                    in_memory_puts.count += 1;
                    in_memory_puts.bytes += Dram::most_bytes(*put);
                } else if put.keyspace.is_frugal() {
                    frugal_puts.push(*put);
                } else {
                    return true;
                }
                false
            })
            .peekable();
        // A device that is behind does not hold up what is not for it.
        let full = if on_flash.peek().is_some() {
            self.flash.admit(&mut on_flash, promised)
        } else {
            Ok(())
        };
        // It need not have looked at all of them.
        on_flash.for_each(drop);
        let mut frugal_puts = std::mem::take(&mut self.frugal_puts);
        let frugal = if full.is_err() || frugal_puts.is_empty() {
            full
        } else {
            self.frugal_for_writing(Duration::ZERO)
                .and_then(|frugal| frugal.admit(&mut frugal_puts.iter().copied(), promised))
        };
        frugal_puts.clear();
        self.frugal_puts = frugal_puts;
        frugal?;
        self.dram.admit_puts(in_memory_puts, promised.in_memory)
    }

    #[cold]
    fn ask_room(&mut self, puts: &mut dyn Iterator<Item = PutSize>, promised: PromisedPuts) {
        let places = self.places.as_ref();
        let in_place = puts.map(|put| {
            let keyspace = places.map_or(put.keyspace, |places| places.of(put.keyspace));
            PutSize { keyspace, ..put }
        });
        let (frugal, flash): (Vec<PutSize>, Vec<PutSize>) = in_place
            .filter(|put| !put.keyspace.is_in_memory())
            .partition(|put| put.keyspace.is_frugal());
        self.flash.ask_room(&mut flash.into_iter(), promised);
        if !frugal.is_empty()
            && let Ok(store) = self.frugal_for_writing(Duration::ZERO)
        {
            store.ask_room(&mut frugal.into_iter(), promised);
        }
    }
}

impl Upkeep for Stores {
    fn recovered(&mut self, bound: Timestamp) {
        self.assert_sound();
        self.flash.recovered(bound);
        if let Some(frugal) = self.frugal.get_mut() {
            frugal.recovered(bound);
        }
        self.dram.recovered(bound);
    }

    fn begin_life(&mut self) {
        self.assert_sound();
        self.marked_walks.clear();
        self.flash.begin_life();
        self.frugal.begin_life();
        self.dram.begin_life();
    }

    fn has_failed(&self) -> bool {
        self.flash.has_failed() || self.frugal.get().is_some_and(Skimpy::has_failed)
    }

    fn unread_pages(&self) -> usize {
        self.flash.unread_pages() + self.frugal.get().map_or(0, Skimpy::unread_pages)
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        self.assert_sound();
        self.flash.advance_watermark(t);
        self.frugal.advance_watermark(t);
        self.dram.advance_watermark(t);
    }

    fn watermark(&self) -> Timestamp {
        self.flash.watermark()
    }

    fn youngest(&self) -> Timestamp {
        let frugal = self.frugal.get().map(Skimpy::youngest).unwrap_or_default();
        self.flash.youngest().max(frugal).max(self.dram.youngest())
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.assert_sound();
        self.flash.advance_replay_floor(t);
        self.frugal.advance_replay_floor(t);
        self.dram.advance_replay_floor(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        self.assert_sound();
        self.flash.begin_batch(batch);
        self.frugal.begin_batch(batch);
    }

    fn stable_batch(&self) -> u64 {
        let full = self.flash.stable_batch();
        match self.frugal.get() {
            Some(frugal) if !is_planted!(StableInOneStore) => full.min(frugal.stable_batch()),
            _ => full,
        }
    }

    fn sync_soon(&mut self) {
        self.assert_sound();
        self.flash.sync_soon();
        if let Some(frugal) = self.frugal.get_mut() {
            frugal.sync_soon();
        }
    }

    fn checkpoint_now(&mut self) {
        self.assert_sound();
        self.flash.checkpoint_now();
        if let Some(frugal) = self.frugal.get_mut() {
            self.joint.ask_checkpoint();
            frugal.checkpoint_now();
        }
    }

    fn scrub(&mut self) {
        self.assert_sound();
        match self.frugal.get_mut() {
            None => self.flash.scrub(),
            Some(frugal) if self.joint.ask_scrub() => {
                self.flash.scrub();
                frugal.scrub();
            }
            // It joins the walk that is under way.
            Some(_) => {}
        }
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.assert_sound();
        if self.frugal.is_opening() {
            // Who was refused meanwhile comes again.
            let _ = self.frugal_for_writing(Duration::ZERO);
        }
        let first = events.len();
        self.flash.pump(now, events);
        self.joint.take(OneOfTwo::Full, events, first);
        let before = events.len();
        self.frugal.pump(now, events);
        self.joint.take(OneOfTwo::Frugal, events, before);
        // Walks over keyspaces that nobody has written to yet are answered, too.
        if self.uses_dram || self.dram.next_deadline().is_some() {
            self.dram.pump(now, events);
        }
        if !self.marked_walks.is_empty() {
            events[first..].iter_mut().for_each(|event| self.mark_cursor(event));
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let all =
            [self.flash.next_deadline(), self.frugal.next_deadline(), self.dram.next_deadline()];
        all.into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.flash.wake_fd()
    }

    fn wait(&mut self, timeout: Duration) {
        self.assert_sound();
        if self.frugal.is_opening() {
            let _ = self.frugal_for_writing(timeout);
            return;
        }
        let Some(frugal) = self.frugal.get_mut() else { return self.flash.wait(timeout) };
        // Either may be the one that completes something.
        self.flash.wait(timeout.min(WAIT_SLICE));
        frugal.wait(timeout.min(WAIT_SLICE));
    }

    fn resize_cache(&mut self, bytes: u64) {
        self.assert_sound();
        self.cache_bytes = bytes;
        match self.frugal.get_mut() {
            None => self.flash.resize_cache(bytes),
            Some(frugal) => {
                frugal.resize_cache(half(bytes));
                self.flash.resize_cache(half(bytes));
            }
        }
    }

    fn charge_cache(&mut self, beside: u64) {
        self.assert_sound();
        self.flash.charge_cache(beside);
        if let Some(frugal) = self.frugal.get_mut() {
            frugal.charge_cache(0);
        }
    }

    fn shutdown(&mut self) {
        self.assert_sound();
        if self.frugal.get().is_some() {
            self.joint.ask_end();
        }
        self.flash.shutdown();
        self.frugal.shutdown();
        self.dram.close();
    }
}

impl Figures for Stores {
    fn figures(&self) -> FigureValues {
        let mut figures = self.flash.figures();
        if let Some(frugal) = self.frugal.get() {
            figures.add_all(&labelled(&frugal.figures()));
        }
        if self.uses_dram {
            figures.add_all(&self.dram.figures());
        } else {
            figures.add(Figure::DramLimitBytes, self.dram.figures().get(Figure::DramLimitBytes));
        }
        figures
    }

    fn is_full(&self) -> bool {
        self.flash.is_full()
            || self.frugal.get().is_some_and(Skimpy::is_full)
            || (self.uses_dram && self.dram.is_full())
    }

    fn growth_error(&self) -> Option<&str> {
        self.flash.growth_error().or_else(|| self.frugal.get().and_then(Skimpy::growth_error))
    }
}

/// The figures of the store with its index on flash, as they are added to those of the other one:
/// what only makes sense for one of them has a name of its own, what counts for the device has both.
fn labelled(frugal: &FigureValues) -> FigureValues {
    let mut figures = FigureValues::default().but_for(frugal.partial());
    for (figure, value) in frugal.iter() {
        let (own, also) = match figure {
            Figure::Versions => (Figure::FrugalRecords, None),
            Figure::IndexBytes => (Figure::FrugalIndexBytes, None),
            Figure::DeviceGets => (Figure::FrugalDeviceGets, Some(figure)),
            Figure::ProgrammedBytes => (Figure::FrugalProgrammedBytes, Some(figure)),
            Figure::CapacityBytes => (Figure::FrugalCapacityBytes, Some(figure)),
            Figure::LimitBytes => (Figure::FrugalLimitBytes, Some(figure)),
            Figure::FreeBytes => (Figure::FrugalFreeBytes, Some(figure)),
            Figure::LiveBytes => (Figure::FrugalLiveBytes, Some(figure)),
            Figure::DebtBytes => (Figure::FrugalDebtBytes, Some(figure)),
            _ => (figure, None),
        };
        figures.add(own, value);
        if let Some(also) = also {
            figures.add(also, value);
        }
    }
    figures
}

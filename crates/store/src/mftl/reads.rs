//! Reads that had to wait: for a page, and for the parts of a large value.
//!
//! ```text
//!   waiter ─► page_reads ─► page ─► record ─► whom it was for:  a get    ─► answer, cache
//!                │                    │                         a walk   ─► its key
//!                │                    └► large head ─► assembly collection ─► staging
//!                │                          of its parts ─► …   dead parts ─► blocks hear of them
//!                └◄─ not there: a get goes on down its chain      a range  ─► version, expiry
//! ```
//!
//! Large values are put together only as far as there is memory for them; further gets of them
//! wait, and look their key up again when it is their turn, since collection may have moved the
//! value meanwhile. Whoever asks for a key alone reads the parts that have it, and none where it is in
//! the head.
//!
//! Whoever looks further after a while is *too old* when the watermark has passed its time: what it was
//! to find may have been collected. The youngest version of a key has not been.
//!
//! A page that does not hold the key (another key shares its id, or the value was moved meanwhile)
//! sends a get on down its chain. A block is not erased while it has readers.
//!
//! Hidden dependencies that this module made explicit: everybody who reads pages shares one queue,
//! so that serving one page may go on to gets, walks, collection and the block table; [`Serving`]
//! lists them.
//!
//! Invariant: every waiter is answered once, served or failed.

use timestone_flash::{BlockId, FlashError, PAGE_BYTES, PageId};
use timestone_types::{Expiry, KeyRef, KeyspaceId, Timestamp, Version, is_planted};

use super::Mftl;
use super::collect::victims::Victims;
use super::index::{KeyId, Location};
use super::locate::{Found, Sought, head_is_void, is_there, locate, record_in_group};
use super::ranges::{RangePlace, RangeReads, in_memory};
use super::space::Spaces;
use super::walk::Walks;
use crate::api::{ReadOutcome, ReadToken, StoreEvent};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::assembly::{Assemblies, Assembly, WantedParts};
use crate::kit::blocks::Blocks;
use crate::kit::cache::CacheKey;
use crate::kit::page_reads::{PageFailure, PageReads};
use crate::kit::staging::Moved;
use crate::kit::volume::Volume;
use crate::layout::{self, LargeHead, Record, RecordKind};

/// Whom a page or value is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    /// A get of the caller; none: of an earlier life, and nobody wants its answer any more.
    Get(Option<ReadToken>),
    /// A read of a range: whether a key that it listed is visible. As a get, without the value.
    Range(RangePlace),
    /// Recovery: the key of a large value, which is not in its head; so many asked before.
    Key(usize),
    /// A scan or count: the key and expiry of one version.
    Walk(u64),
    /// Collection moves a large value out of this block.
    Restage(BlockId),
    /// A large value was superseded by a version at this time: the blocks of its parts must know.
    DeadParts(Timestamp),
}

/// Somebody who waits for a page.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) who: For,
    pub(super) keyspace: KeyspaceId,
    pub(super) id: KeyId,
    /// The key; empty when it is what is asked for.
    key: Vec<u8>,
    at: Timestamp,
    /// As of when expiry is judged.
    judged: Timestamp,
    pub(super) version: Version,
    pub(super) page: PageId,
}

impl Waiter {
    /// For a get at a time, which judges expiry as of another.
    pub(super) fn get(
        token: ReadToken,
        key: KeyRef<'_>,
        id: KeyId,
        (at, judged): (Timestamp, Timestamp),
        version: Version,
        page: PageId,
    ) -> Self {
        let who = For::Get(Some(token));
        let bytes = key.bytes.to_vec();
        Self { who, keyspace: key.keyspace, id, key: bytes, at, judged, version, page }
    }

    /// For a read of a range, which judges expiry as of another time than it reads at.
    pub(super) fn range(
        who: RangePlace,
        (keyspace, id, key): (KeyspaceId, KeyId, &[u8]),
        (at, judged): (Timestamp, Timestamp),
        version: Version,
        page: PageId,
    ) -> Self {
        let who = For::Range(who);
        Self { who, keyspace, id, key: key.to_vec(), at, judged, version, page }
    }

    /// For whoever knows the version but not the key.
    pub(super) fn keyless(
        who: For,
        keyspace: KeyspaceId,
        id: KeyId,
        version: Version,
        page: PageId,
    ) -> Self {
        let at = Timestamp::MAX;
        Self { who, keyspace, id, key: Vec::new(), at, judged: at, version, page }
    }

    fn wants_key(&self) -> bool {
        !matches!(self.who, For::Get(_) | For::Range(_))
    }

    /// Whether the head of a large value is all that it asks for: a range needs no value, and the key
    /// that is in the head was compared.
    fn asks_head_only(&self, record: &Record<'_>) -> bool {
        matches!(self.who, For::Range(_)) && !(record.kind.is_large() && record.key.is_empty())
    }

    fn wants(&self, record: &Record<'_>) -> bool {
        if record.keyspace != self.keyspace {
            return false;
        }
        if self.wants_key() || (record.kind.is_large() && record.key.is_empty()) {
            let id = KeyId::new(record.hash, self.id.check);
            return (id.segment, id.tag) == (self.id.segment, self.id.tag);
        }
        record.key == self.key
    }

    fn sought(&self) -> Sought<'_> {
        Sought { keyspace: self.keyspace, id: self.id, key: &self.key }
    }
}

/// All reads under way.
pub(super) struct PendingReads {
    pub(super) pages: PageReads<Waiter>,
    pub(super) assemblies: Assemblies<Waiter>,
    /// Keys that recovery has asked for, with their numbers; none: it could not be read.
    pub(super) keys: Vec<(usize, Option<Vec<u8>>)>,
    /// Blocks have heard of parts that nobody needs any more.
    parts_died: bool,
    /// Heads that are being read for that.
    dead_parts: u32,
}

impl PendingReads {
    /// None; `assembled_bytes` of large values may be put together at once.
    pub(super) fn new(assembled_bytes: u64) -> Self {
        Self {
            pages: PageReads::new(),
            assemblies: Assemblies::new(assembled_bytes),
            keys: Vec::new(),
            parts_died: false,
            dead_parts: 0,
        }
    }

    /// Whether blocks have heard of parts that nobody needs any more since the last call.
    pub(super) fn take_parts_died(&mut self) -> bool {
        core::mem::take(&mut self.parts_died)
    }

    /// Nobody wants the answers to the gets under way any more.
    pub(super) fn abandon_gets(&mut self) {
        for waiter in self.pages.waiters_mut().chain(self.assemblies.waiters_mut()) {
            if let For::Get(token) = &mut waiter.who {
                *token = None;
            }
        }
    }

    /// Queues a waiter for its page.
    pub(super) fn wait(&mut self, waiter: Waiter, volume: &mut Volume) {
        debug_assert!(waiter.page.0 < Location::MAX_PAGES, "what is staged has no page");
        self.pages.wait(waiter.page, waiter, volume);
    }

    /// If a superseded record is a large one, the blocks of its parts must know: its head is read
    /// for that. Whether it is.
    pub(super) fn note_dead_parts(
        &mut self,
        dead: (KeyspaceId, KeyId, Version, Location),
        by: Timestamp,
        volume: &mut Volume,
    ) -> bool {
        let (keyspace, id, version, location) = dead;
        debug_assert!(version.timestamp <= by, "a younger version supersedes it");
        let page = PageId(location.page());
        let is_large = location.staged().is_none() && volume.blocks.is_large(page);
        if is_large {
            self.dead_parts += 1;
            self.wait(Waiter::keyless(For::DeadParts(by), keyspace, id, version, page), volume);
        }
        is_large
    }

    /// Heads that are being read so that blocks hear of dead parts.
    pub(super) fn dead_parts(&self) -> u32 {
        self.dead_parts
    }
}

/// What a page holds for a waiter.
enum Resolved<'a> {
    Record(Record<'a>),
    /// The head of a large value whose parts are not all where it says: go on down the chain.
    Void(Record<'a>),
    /// Another key's record of the same id and version: go on down the chain.
    Elsewhere,
    Damaged(&'static str),
}

/// What is read for whoever waits, and all who may be waiting.
pub(super) struct Serving<'a> {
    pub(super) kit: &'a mut Kit,
    pub(super) spaces: &'a Spaces,
    pub(super) reads: &'a mut PendingReads,
    pub(super) walks: &'a mut Walks,
    pub(super) ranges: &'a mut RangeReads,
    pub(super) victims: &'a mut Victims,
    pub(super) events: &'a mut Vec<StoreEvent>,
}

impl<'a> Serving<'a> {
    /// The parts of a store that serve.
    pub(super) fn of(store: &'a mut Mftl) -> Self {
        store.assert_sound();
        let Mftl { kit, spaces, reads, walks, ranges, collector, events, .. } = store;
        Self { kit, spaces, reads, walks, ranges, victims: &mut collector.victims, events }
    }

    /// Serves waiters whose pages were in groups when they asked.
    pub(super) fn group_pages(&mut self) {
        let mut pages = self.reads.pages.take_group_pages();
        for page in pages.drain(..) {
            self.assert_pinned(page);
            match self.kit.volume.copy_of_group_page(page) {
                Some(copy) => {
                    self.page(page, None, &copy);
                    self.kit.volume.give(copy);
                }
                None => self.reads.pages.read_after_all(page, &mut self.kit.volume),
            }
        }
        self.reads.pages.recycle(pages);
    }

    /// A page that somebody waits for is not erased meanwhile.
    fn assert_pinned(&self, page: PageId) {
        let blocks = &self.kit.volume.blocks;
        debug_assert!(blocks.get(blocks.of(page)).readers > 0, "a read pins its block");
    }

    /// A page has been read.
    pub(super) fn page_read(&mut self, page: PageId, result: Result<(), FlashError>, bytes: &[u8]) {
        self.assert_pinned(page);
        let failure = PageFailure::of(page, result, bytes, &mut self.kit.volume);
        self.page(page, failure.as_ref(), bytes);
    }

    fn page(&mut self, page: PageId, failure: Option<&PageFailure>, bytes: &[u8]) {
        let mut waiting = self.reads.pages.arrived(page, &mut self.kit.volume);
        while let Some(waiter) = self.reads.pages.next(&mut waiting) {
            debug_assert_eq!(waiter.page, page, "it waited for this page");
            self.reads.dead_parts -= u32::from(matches!(waiter.who, For::DeadParts(_)));
            match failure {
                None => self.serve(waiter, bytes),
                Some(failure) => self.failed(waiter.who, failure.error(page)),
            }
        }
        debug_assert!(waiting.is_empty(), "every waiter is answered");
    }

    fn serve(&mut self, waiter: Waiter, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), PAGE_BYTES, "a page is looked at whole");
        let resolved = resolve(&waiter, bytes, &self.kit.volume.blocks);
        match (waiter.who, resolved) {
            (For::DeadParts(_), Resolved::Void(_)) if is_planted!(VoidKeepsParts) => {}
            (For::DeadParts(by), Resolved::Record(record) | Resolved::Void(record)) => {
                self.dead_parts(&record, by);
            }
            (For::DeadParts(_), Resolved::Elsewhere) => {}
            (_, Resolved::Record(record)) if waiter.asks_head_only(&record) => {
                self.record_of_range(waiter.who, &record);
            }
            (_, Resolved::Record(record)) if record.kind.is_large() => {
                self.assemble(waiter, &record);
            }
            (_, Resolved::Record(record)) if waiter.wants_key() => {
                self.key_found(waiter.who, waiter.id, record.key, record.expires_at);
            }
            (_, Resolved::Record(record)) => self.record(&waiter, &record),
            (_, Resolved::Void(_) | Resolved::Elsewhere) => self.go_on(waiter),
            (_, Resolved::Damaged(reason)) => {
                self.kit.volume.corrupt += 1;
                self.failed(waiter.who, StoreError::Corrupt { page: waiter.page.0, reason });
            }
        }
    }

    /// The blocks of a superseded value's parts hear of it, also where one of them has been erased
    /// before: nobody else tells the others.
    fn dead_parts(&mut self, record: &Record<'_>, by: Timestamp) {
        debug_assert!(record.version.timestamp <= by, "a younger version supersedes it");
        let blocks = &mut self.kit.volume.blocks;
        let watermark = self.spaces.marks.collection();
        self.reads.parts_died |= by <= watermark;
        let head = record.kind.is_large().then(|| LargeHead::read(record.value)).flatten();
        for extent in head.iter().flat_map(|head| &head.extents) {
            if is_there(extent, blocks) {
                let dead = extent.pages * PAGE_BYTES as u32;
                blocks.superseded_bytes(blocks.of(extent.page), dead, by, watermark);
            }
        }
    }

    /// A get has its record.
    fn record(&mut self, waiter: &Waiter, record: &Record<'_>) {
        debug_assert!(record.key == waiter.key && record.version == waiter.version);
        let filed = CacheKey {
            keyspace: waiter.keyspace,
            id: waiter.id,
            version: waiter.version,
            key: &waiter.key,
        };
        if record.kind == RecordKind::Value && self.kit.cache.find(filed).is_none() {
            self.kit.cache.insert(filed, record.expires_at, record.value);
        }
        if record.kind.is_tombstone() {
            let (version, expires_at) = (waiter.version, record.expires_at);
            return self.finish(waiter.who, ReadOutcome::Absent { version, expires_at });
        }
        let mut value = self.kit.buffers.take();
        value.extend_from_slice(record.value);
        self.answer(waiter, record.expires_at, value);
    }

    /// A read of a range has the record of a key.
    fn record_of_range(&mut self, who: For, record: &Record<'_>) {
        debug_assert!(matches!(who, For::Range(_)), "others need more");
        if let For::Range(place) = who {
            let has_value = !record.kind.is_tombstone();
            let found = has_value.then_some((record.version, record.expires_at));
            self.ranges.answered(place, found);
        }
    }

    /// Looks further down a waiter's chain. (A walk looks its version up anew.)
    fn go_on(&mut self, waiter: Waiter) {
        debug_assert!(!matches!(waiter.who, For::DeadParts(_)), "it looks at one page only");
        match waiter.who {
            For::Get(_) | For::Range(_) => {
                let after = Some((waiter.version, waiter.page));
                self.locate(waiter, after);
            }
            For::Walk(walk) => {
                let pages = &mut *self.reads;
                self.walks.skipped(walk, &waiter, self.spaces, self.kit, pages);
            }
            For::Restage(victim) if self.is_named(&waiter) => {
                // An older checkpoint named a head that is void by now. The one that these parts belong to may
                // be on a page that was not read.
                let is_read = self.kit.volume.blocks.are_all_read();
                if is_read || is_planted!(TrustsVoidHeads) {
                    self.victims.restaged(victim);
                } else {
                    self.victims.restage_failed(victim);
                }
            }
            For::Restage(victim) => {
                let value = (waiter.keyspace, waiter.id, waiter.version);
                self.victims.restage_again(victim, value, waiter.page, &self.kit.volume);
            }
            For::Key(number) => self.reads.keys.push((number, None)),
            For::DeadParts(_) => {}
        }
    }

    /// Whether the index still names a version where a waiter has looked for it.
    fn is_named(&self, waiter: &Waiter) -> bool {
        self.spaces.get(waiter.keyspace).is_some_and(|space| {
            let mut chain = space.index.chain(waiter.id);
            chain.any(|(found, place)| found == waiter.version && place.page() == waiter.page.0)
        })
    }

    /// Lets gets of large values go on that waited for memory, in their order.
    pub(super) fn queued(&mut self) {
        for waiter in self.reads.assemblies.take_queued() {
            debug_assert!(matches!(waiter.who, For::Get(_)), "only gets wait for memory");
            self.locate(waiter, None);
        }
    }

    /// Finds what a get or a range is to be told, behind `after` in its chain.
    fn locate(&mut self, mut waiter: Waiter, after: Option<(Version, PageId)>) {
        debug_assert!(!waiter.wants_key(), "only gets and ranges look further");
        let found = locate(self.spaces, self.kit, waiter.sought(), waiter.at, after);
        if let Err(error) = self.spaces.marks.check_age(waiter.at)
            && !self.is_youngest(&waiter, found)
        {
            return self.failed(waiter.who, error);
        }
        if let (For::Range(place), false) = (waiter.who, matches!(found, Found::OnFlash { .. })) {
            return match in_memory(found, self.kit) {
                Ok(found) => self.ranges.answered(place, found),
                Err(error) => self.ranges.failed(place, error),
            };
        }
        match found {
            Found::Absent { version, expires_at } => {
                self.finish(waiter.who, ReadOutcome::Absent { version, expires_at });
            }
            Found::OnFlash { version, page } => {
                (waiter.version, waiter.page) = (version, page);
                self.reads.wait(waiter, &mut self.kit.volume);
            }
            Found::Cached { version, place } => {
                waiter.version = version;
                let mut value = self.kit.buffers.take();
                value.extend_from_slice(self.kit.cache.value(place));
                self.answer(&waiter, self.kit.cache.expires_at(place), value);
            }
            Found::InGroup { version, page, offset } => {
                waiter.version = version;
                let mut value = self.kit.buffers.take();
                match record_in_group(&self.kit.volume, page, offset) {
                    Ok(record) => {
                        value.extend_from_slice(record.value);
                        let expires_at = record.expires_at;
                        self.answer(&waiter, expires_at, value);
                    }
                    Err(error) => self.failed(waiter.who, error),
                }
            }
            Found::Staged { version, slot } => {
                waiter.version = version;
                let mut copy = self.kit.buffers.take();
                let (expires_at, value) = self.kit.staging.value(slot);
                copy.extend_from_slice(value);
                self.answer(&waiter, expires_at, copy);
            }
        }
    }

    /// Whether nothing was written to a key after what was found of it, and so nothing of it collected.
    fn is_youngest(&self, waiter: &Waiter, found: Found) -> bool {
        let version = match found {
            // The tombstones of a key may have been collected, too.
            Found::Absent { .. } => return false,
            Found::Cached { version, .. }
            | Found::InGroup { version, .. }
            | Found::Staged { version, .. }
            | Found::OnFlash { version, .. } => version,
        };
        let space = self.spaces.get(waiter.keyspace);
        let latest = space.and_then(|space| space.index.latest(waiter.id));
        latest.is_some_and(|(youngest, _)| youngest == version)
    }

    fn answer(&mut self, waiter: &Waiter, expires_at: Expiry, value: Vec<u8>) {
        let version = waiter.version;
        debug_assert!(version.timestamp <= waiter.at, "nothing younger than was asked for");
        if expires_at.has_passed(waiter.judged) {
            self.finish(waiter.who, ReadOutcome::Absent { version, expires_at });
        } else {
            self.finish(waiter.who, ReadOutcome::Present { version, expires_at, value });
        }
    }

    fn finish(&mut self, who: For, outcome: ReadOutcome) {
        debug_assert!(matches!(who, For::Get(_)), "only gets are answered");
        match (who, outcome) {
            (For::Get(Some(token)), outcome) => {
                self.events.push(StoreEvent::ReadDone { token, outcome });
            }
            (_, ReadOutcome::Present { value, .. }) => self.kit.buffers.give(value),
            _ => {}
        }
    }

    /// A walk has its key. (What collection moves is no large value any more: it has been moved
    /// already.)
    fn key_found(&mut self, who: For, id: KeyId, key: &[u8], expires_at: Expiry) {
        debug_assert!(!matches!(who, For::Get(_) | For::Range(_)), "those know their key");
        match who {
            For::Walk(walk) => self.walks.found(walk, id, key, expires_at),
            For::Restage(victim) => self.victims.restaged(victim),
            For::Key(number) => self.reads.keys.push((number, Some(key.to_vec()))),
            For::Get(_) | For::Range(_) | For::DeadParts(_) => {}
        }
    }

    fn failed(&mut self, who: For, error: StoreError) {
        debug_assert!(
            matches!(who, For::Get(_)) || !matches!(error, StoreError::Busy),
            "only gets are sent away for lack of memory"
        );
        match who {
            For::Get(_) => self.finish(who, ReadOutcome::Failed(error)),
            For::Walk(walk) => self.walks.failed(walk, error),
            For::Range(place) => self.ranges.failed(place, error),
            For::Restage(victim) => self.victims.restage_failed(victim),
            For::Key(number) => self.reads.keys.push((number, None)),
            For::DeadParts(_) => {
                tracing::warn!(
                    %error,
                    "the head of a large value that was overwritten cannot be read; its room comes \
                     back after a restart"
                );
            }
        }
    }

    /// Reads the parts of a large value, as far as they are wanted.
    fn assemble(&mut self, waiter: Waiter, record: &Record<'_>) {
        debug_assert!(record.kind.is_large() && record.version == waiter.version, "its head");
        let Some(head) = LargeHead::read(record.value) else {
            let reason = "the head of a large value makes no sense";
            return self.failed(waiter.who, StoreError::Corrupt { page: waiter.page.0, reason });
        };
        let blocks = &self.kit.volume.blocks;
        if let For::Restage(victim) = waiter.who
            && !head.extents.iter().any(|extent| blocks.of(extent.page) == victim)
        {
            // The part that was met there is of an earlier placement of the value.
            return self.victims.restaged(victim);
        }
        let is_get = matches!(waiter.who, For::Get(_));
        let counted = if is_get { u64::from(head.total) } else { 0 };
        let wanted = match waiter.who {
            For::Get(_) | For::Restage(_) | For::DeadParts(_) => WantedParts::Value,
            For::Range(_) | For::Walk(_) | For::Key(_) => WantedParts::Key,
        };
        let assemblies = &mut self.reads.assemblies;
        if is_get && !assemblies.has_room(counted) {
            if let Err(waiter) = assemblies.queue(waiter, counted) {
                self.failed(waiter.who, StoreError::Busy);
            }
            return;
        }
        let payload = self.kit.buffers.take();
        let volume = &mut self.kit.volume;
        if let Some(done) =
            assemblies.begin(waiter, (record, head), wanted, counted, payload, volume)
        {
            self.assembled(done);
        }
    }

    /// Some parts of a large value have been read.
    pub(super) fn parts_read(&mut self, number: u64, readable: bool, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(PAGE_BYTES), "parts are whole pages");
        let volume = &mut self.kit.volume;
        if let Some(done) = self.reads.assemblies.part_read(number, readable, bytes, volume) {
            self.assembled(done);
        }
    }

    fn assembled(&mut self, assembly: Assembly<Waiter>) {
        debug_assert_eq!(assembly.version, assembly.waiter.version, "the value that was wanted");
        if let Some(reason) = assembly.damaged {
            self.kit.volume.corrupt += 1;
            let (waiter, bytes) = assembly.into_waiter();
            self.kit.buffers.give(bytes);
            return self.failed(waiter.who, StoreError::Corrupt { page: waiter.page.0, reason });
        }
        match assembly.waiter.who {
            For::Get(_) | For::Range(_) if assembly.key() != assembly.waiter.key => {
                self.go_on(assembly.waiter);
            }
            For::Range(place) => {
                let has_value = !assembly.kind.is_tombstone();
                let found = has_value.then_some((assembly.version, assembly.expires_at));
                self.ranges.answered(place, found);
                self.kit.buffers.give(assembly.into_waiter().1);
            }
            For::Key(number) => self.reads.keys.push((number, Some(assembly.key().to_vec()))),
            For::Get(_) => {
                let (waiter, expires_at, value) = assembly.into_value();
                self.answer(&waiter, expires_at, value);
            }
            For::Walk(walk) => {
                let (id, expires_at) = (assembly.waiter.id, assembly.expires_at);
                self.walks.found(walk, id, assembly.key(), expires_at);
                self.kit.buffers.give(assembly.into_waiter().1);
            }
            For::DeadParts(_) => {}
            For::Restage(victim) => self.restage(&assembly, victim),
        }
    }

    /// Takes a value in that collection moves. The index stays with the old head until the new one
    /// is written.
    fn restage(&mut self, assembly: &Assembly<Waiter>, victim: BlockId) {
        debug_assert!(assembly.damaged.is_none(), "what is damaged stays where it is");
        let waiter = &assembly.waiter;
        let record = Record {
            kind: assembly.kind,
            keyspace: waiter.keyspace,
            hash: assembly.hash,
            version: assembly.version,
            expires_at: assembly.expires_at,
            key: assembly.key(),
            value: assembly.value(),
            links: None,
        };
        let moved = Moved { victim, from: waiter.page, extents: assembly.extents().to_vec() };
        let batch = self.kit.volume.writer.batch();
        super::large::stage(&record, waiter.id, batch, Some(moved), self.kit);
    }
}

fn resolve<'a>(waiter: &Waiter, bytes: &'a [u8], blocks: &Blocks) -> Resolved<'a> {
    let Some(raw) =
        layout::find(bytes, waiter.id.check, waiter.version, |record| waiter.wants(record))
    else {
        // Another key's record is only believed when it is whole: a damaged key must not look like
        // another one.
        let other = layout::find(bytes, waiter.id.check, waiter.version, |_| true);
        return match other.map(Record::read_intact) {
            Some(Some(_)) => Resolved::Elsewhere,
            Some(None) => Resolved::Damaged("the checksum of a record does not match"),
            None => Resolved::Damaged("a record is not where the index says"),
        };
    };
    let Some(record) = Record::read_intact(raw) else {
        return Resolved::Damaged("the checksum of a record does not match");
    };
    if record.kind.is_large()
        && LargeHead::read(record.value).is_some_and(|head| head_is_void(&head, blocks))
    {
        return Resolved::Void(record);
    }
    Resolved::Record(record)
}

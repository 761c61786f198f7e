//! Gets: finding a version, and waiting for pages of the device.
//!
//! ```text
//!   locate: index chain ─► absent │ cache │ group │ staging area │ page on flash
//!                                                                    └► waiter ─► page read (shared by all that want the page)
//!                                                                         └► record ─► answer, cache
//!                                                                         └► large head ─► assembly of its parts ─► answer
//! ```
//!
//! Large values are put together only as far as there is memory for them; further gets of them
//! wait, and look their key up again when it is their turn, since collection may have moved the
//! value meanwhile.
//!
//! A page that does not hold the key (another key shares its id, or the value was moved meanwhile)
//! sends the waiter on down its chain. A block is not erased while it has readers.
//!
//! Invariant: a page is in `pages` if and only if one read of it is queued or under way; its
//! waiters hold one reader of the block together.

use std::collections::{BTreeMap, VecDeque};

use timestone_flash::{BlockId, FlashError, FlashOp, PAGE_BYTES, PageId};
use timestone_types::{Expiry, KeyHash, KeyRef, KeyspaceId, Timestamp, Version};

use super::blocks::{BlockState, Blocks};
use super::cache::{CacheKey, Place};
use super::index::{KeyId, Location};
use super::port::Purpose;
use super::{Mftl, collect, staging};
use crate::api::{Lookup, ReadOutcome, ReadToken, StoreEvent};
use crate::error::StoreError;
use crate::layout::{self, LargeHead, PART_PAYLOAD, PageKind, Record};
use crate::limits::{GROUP_PAGES, MAX_QUEUED_READ_BYTES};

const NONE: u32 = u32::MAX;

/// Where a version was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Absent { version: Version, expires_at: Expiry },
    Cached { version: Version, place: Place },
    InGroup { version: Version, page: PageId, offset: usize },
    Staged { version: Version, slot: u32 },
    OnFlash { version: Version, page: PageId },
}

/// A record as a reader sees it who judges its expiry as of `judged`.
pub(super) fn visible(
    version: Version,
    expires_at: Expiry,
    value: &[u8],
    judged: Timestamp,
) -> Lookup<'_> {
    if expires_at.has_passed(judged) {
        Lookup::Absent { version, expires_at }
    } else {
        Lookup::Present { version, expires_at, value }
    }
}

/// Whom a page or value is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    /// A get of the caller.
    Get(ReadToken),
    /// A scan or count: the key and expiry of one version.
    Walk(u64),
    /// Collection moves a large value out of this block.
    Restage(BlockId),
    /// A large value was superseded by a version at this time: the blocks of its parts must know.
    Burial(Timestamp),
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
    next: u32,
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
        let who = For::Get(token);
        let bytes = key.bytes.to_vec();
        Self { who, keyspace: key.keyspace, id, key: bytes, at, judged, version, page, next: NONE }
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
        Self { who, keyspace, id, key: Vec::new(), at, judged: at, version, page, next: NONE }
    }

    fn wants_key(&self) -> bool {
        !matches!(self.who, For::Get(_))
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
}

/// A large value that is being put together from its parts.
struct Assembly {
    waiter: Waiter,
    head: LargeHead<'static>,
    key: Vec<u8>,
    expires_at: Expiry,
    kind: layout::RecordKind,
    hash: KeyHash,
    payload: Vec<u8>,
    outstanding: u32,
    /// Bytes that it counts for among those that are put together.
    counted: u64,
    damaged: Option<&'static str>,
}

/// All reads under way.
#[derive(Default)]
pub(super) struct Reads {
    waiters: Vec<Option<Waiter>>,
    free: Vec<u32>,
    pages: BTreeMap<u32, u32>,
    assemblies: Vec<Option<Assembly>>,
    /// Bytes of the values that are put together for gets, and the gets that wait until there are
    /// fewer, with their values' lengths.
    assembled_bytes: u64,
    queued: VecDeque<(Waiter, u64)>,
    queued_bytes: u64,
    /// There are fewer since they were last looked at.
    freed: bool,
}

impl Reads {
    /// Whether a get of a large value may go on.
    pub(super) fn has_work(&self) -> bool {
        !self.queued.is_empty() && self.freed
    }
}

/// What a page holds for a waiter.
enum Resolved<'a> {
    Record(Record<'a>),
    /// Another key's record of the same id and version, or a void head: go on down the chain.
    Elsewhere,
    Damaged(&'static str),
}

impl Mftl {
    /// Finds the youngest version at or before `at`; with `after`, the one behind that version and
    /// page in the chain.
    pub(super) fn locate(
        &mut self,
        keyspace: KeyspaceId,
        id: KeyId,
        key: &[u8],
        at: Timestamp,
        after: Option<(Version, PageId)>,
    ) -> Found {
        let nothing = Found::Absent { version: Version::ZERO, expires_at: Expiry::NEVER };
        let Some(space) = self.spaces.get(keyspace) else { return nothing };
        let fence = space.fence_at(at);
        let fenced = Found::Absent { version: fence, expires_at: Expiry::NEVER };
        let mut passed = after.is_none();
        for (version, location) in space.index.chain(id) {
            if let Some((last, page)) = after {
                if version > last {
                    continue;
                }
                if version == last && !passed {
                    passed = location.page() == page.0;
                    continue;
                }
            }
            if version.timestamp > at {
                continue;
            }
            if version <= fence {
                return fenced;
            }
            if location.tombstone() && !location.may_expire() {
                return Found::Absent { version, expires_at: Expiry::NEVER };
            }
            let page = location.page();
            if page >= Location::STAGED {
                if self.staging.key(page - Location::STAGED) != key {
                    continue;
                }
                return Found::Staged { version, slot: page - Location::STAGED };
            }
            if let Some(place) = self.cache.find(CacheKey { keyspace, id, version, key }) {
                return Found::Cached { version, place };
            }
            let page = PageId(page);
            let block = self.blocks.get(self.blocks.of(page));
            if self.blocks.geometry.index_of(page) < block.readable {
                return Found::OnFlash { version, page };
            }
            let Some(bytes) = self.writer.page(page, &self.blocks) else {
                return Found::OnFlash { version, page };
            };
            let same = |record: &Record<'_>| record.keyspace == keyspace && record.key == key;
            match layout::find(bytes, id.check, version, same) {
                Some(record)
                    if Record::read(record).is_some_and(|record| !record.kind.is_large()) =>
                {
                    let offset = record.as_ptr() as usize - bytes.as_ptr() as usize;
                    return Found::InGroup { version, page, offset };
                }
                // A large head: its parts must be read, so it is answered as if it were on flash.
                _ => return Found::OnFlash { version, page },
            }
        }
        fenced
    }

    /// The record at an offset that [`Self::locate`] found in a group.
    pub(super) fn record_in_group(
        &self,
        page: PageId,
        offset: usize,
    ) -> Result<Record<'_>, StoreError> {
        self.writer.page(page, &self.blocks).and_then(|bytes| Record::read(&bytes[offset..])).ok_or(
            StoreError::Corrupt { page: page.0, reason: "a page being written lost a record" },
        )
    }

    /// Queues a waiter for its page; the page is read once for all who want it.
    pub(super) fn wait_for_page(&mut self, mut waiter: Waiter) {
        let page = waiter.page;
        let first = self.reads.pages.get(&page.0).copied();
        waiter.next = first.unwrap_or(NONE);
        let slot = match self.reads.free.pop() {
            Some(slot) => {
                self.reads.waiters[slot as usize] = Some(waiter);
                slot
            }
            None => {
                self.reads.waiters.push(Some(waiter));
                (self.reads.waiters.len() - 1) as u32
            }
        };
        self.reads.pages.insert(page.0, slot);
        if first.is_some() {
            return;
        }
        let block = self.blocks.of(page);
        self.blocks.get_mut(block).readers += 1;
        if self.blocks.geometry.index_of(page) < self.blocks.get(block).readable {
            self.stats.page_reads += 1;
            let buffer = self.port.buffer(1);
            let token = Purpose::PageRead.token(u64::from(page.0));
            self.port.read(FlashOp::Read { token, page, pages: 1, buffer });
        } else {
            // The page is still in a group: serve it from there at the next pump, in the same way.
            self.reads_from_groups().push(page);
        }
    }

    fn reads_from_groups(&mut self) -> &mut Vec<PageId> {
        &mut self.walks.group_pages
    }

    /// Serves waiters whose pages were in groups when they asked.
    pub(super) fn serve_group_pages(&mut self) {
        let mut pages = core::mem::take(&mut self.walks.group_pages);
        for page in pages.drain(..) {
            let Some(bytes) = self.writer.page(page, &self.blocks) else {
                let buffer = self.port.buffer(1);
                let token = Purpose::PageRead.token(u64::from(page.0));
                self.port.read(FlashOp::Read { token, page, pages: 1, buffer });
                continue;
            };
            let mut copy = self.port.buffer(1);
            copy.copy_from_slice(bytes);
            self.serve_page(page, Ok(()), &copy);
            self.port.give(copy);
        }
        if self.walks.group_pages.is_empty() {
            self.walks.group_pages = pages;
        }
    }

    /// A page has been read.
    pub(super) fn page_read(&mut self, page: PageId, result: Result<(), FlashError>, bytes: &[u8]) {
        let block = self.blocks.of(page);
        let generation = self.blocks.get(block).generation;
        let checked = match result {
            Err(error) => Err(StoreError::Flash(error)),
            Ok(()) => match layout::verify(bytes, page, generation, self.config.store_id) {
                Ok(_) => Ok(()),
                Err(reason) => {
                    self.stats.corrupt += 1;
                    Err(StoreError::Corrupt { page: page.0, reason })
                }
            },
        };
        self.serve_page(page, checked, bytes);
    }

    fn serve_page(&mut self, page: PageId, checked: Result<(), StoreError>, bytes: &[u8]) {
        let block = self.blocks.of(page);
        self.blocks.get_mut(block).readers -= 1;
        let mut next = self.reads.pages.remove(&page.0).unwrap_or(NONE);
        let mut failure = checked.err();
        while next != NONE {
            let Some(waiter) = self.reads.waiters[next as usize].take() else { break };
            self.reads.free.push(next);
            next = waiter.next;
            match &mut failure {
                None => self.serve(waiter, bytes),
                Some(StoreError::Corrupt { page, reason }) => {
                    let error = StoreError::Corrupt { page: *page, reason };
                    self.read_failed(waiter, error);
                }
                // The device's own error goes to the first; the others get the short form.
                Some(_) if next == NONE => {
                    let error = failure.take().unwrap_or(StoreError::Busy);
                    self.read_failed(waiter, error);
                    break;
                }
                Some(_) => self.read_failed(
                    waiter,
                    StoreError::Corrupt { page: page.0, reason: "it could not be read" },
                ),
            }
        }
    }

    fn serve(&mut self, waiter: Waiter, bytes: &[u8]) {
        if let For::Burial(by) = waiter.who {
            if let Resolved::Record(record) = resolve(&waiter, bytes, &self.blocks)
                && record.kind.is_large()
            {
                let head = LargeHead::read(record.value);
                for extent in head.iter().flat_map(|head| &head.extents) {
                    let block = self.blocks.of(extent.page);
                    let dead = extent.pages * PAGE_BYTES as u32;
                    self.blocks.superseded_bytes(block, dead, by, self.collection_watermark);
                }
            }
            return;
        }
        match resolve(&waiter, bytes, &self.blocks) {
            Resolved::Record(record) if record.kind.is_large() => self.assemble(waiter, &record),
            Resolved::Record(record) => {
                if waiter.wants_key() {
                    self.walk_found(waiter.who, waiter.id, record.key, record.expires_at);
                    return;
                }
                let filed = CacheKey {
                    keyspace: waiter.keyspace,
                    id: waiter.id,
                    version: waiter.version,
                    key: &waiter.key,
                };
                if record.kind == layout::RecordKind::Value && self.cache.find(filed).is_none() {
                    self.cache.insert(filed, record.expires_at, record.value);
                }
                self.answer(&waiter, record.expires_at, record.value, record.kind.is_tombstone());
            }
            Resolved::Elsewhere => self.go_on(waiter),
            Resolved::Damaged(reason) => {
                self.stats.corrupt += 1;
                let page = waiter.page.0;
                self.read_failed(waiter, StoreError::Corrupt { page, reason });
            }
        }
    }

    /// Looks further down a waiter's chain.
    fn go_on(&mut self, waiter: Waiter) {
        if waiter.wants_key() {
            self.walk_skipped(&waiter);
            return;
        }
        let after = Some((waiter.version, waiter.page));
        self.locate_for(waiter, after);
    }

    /// Lets gets of large values go on that waited for memory, in their order.
    pub(super) fn serve_queued(&mut self) {
        self.reads.freed = false;
        let mut bytes = self.reads.assembled_bytes;
        while let Some((waiter, length)) = self.reads.queued.pop_front() {
            if bytes > 0 && bytes + length > self.config.assembled_bytes {
                return self.reads.queued.push_front((waiter, length));
            }
            bytes += length;
            self.reads.queued_bytes -= length;
            self.locate_for(waiter, None);
        }
    }

    /// Finds what a waiter is to be told, behind `after` in its chain.
    fn locate_for(&mut self, mut waiter: Waiter, after: Option<(Version, PageId)>) {
        match self.locate(waiter.keyspace, waiter.id, &waiter.key, waiter.at, after) {
            Found::Absent { version, expires_at } => {
                self.finish(waiter.who, ReadOutcome::Absent { version, expires_at });
            }
            Found::OnFlash { version, page } => {
                waiter.version = version;
                waiter.page = page;
                self.wait_for_page(waiter);
            }
            Found::Cached { version, place } => {
                waiter.version = version;
                let mut value = self.bytes();
                value.extend_from_slice(self.cache.value(place));
                let expires_at = self.cache.expires_at(place);
                self.answer_owned(&waiter, expires_at, value);
            }
            Found::InGroup { version, page, offset } => {
                waiter.version = version;
                let mut value = self.bytes();
                match self.record_in_group(page, offset) {
                    Ok(record) => {
                        value.extend_from_slice(record.value);
                        let expires_at = record.expires_at;
                        self.answer_owned(&waiter, expires_at, value);
                    }
                    Err(error) => self.read_failed(waiter, error),
                }
            }
            Found::Staged { version, slot } => {
                waiter.version = version;
                let mut copy = self.bytes();
                let (expires_at, value) = self.staging.value(slot);
                copy.extend_from_slice(value);
                self.answer_owned(&waiter, expires_at, copy);
            }
        }
    }

    fn answer(&mut self, waiter: &Waiter, expires_at: Expiry, value: &[u8], tombstone: bool) {
        if tombstone {
            self.finish(waiter.who, ReadOutcome::Absent { version: waiter.version, expires_at });
            return;
        }
        let mut bytes = self.bytes();
        bytes.extend_from_slice(value);
        self.answer_owned(waiter, expires_at, bytes);
    }

    fn answer_owned(&mut self, waiter: &Waiter, expires_at: Expiry, value: Vec<u8>) {
        let version = waiter.version;
        if expires_at.has_passed(waiter.judged) {
            self.finish(waiter.who, ReadOutcome::Absent { version, expires_at });
        } else {
            self.finish(waiter.who, ReadOutcome::Present { version, expires_at, value });
        }
    }

    fn finish(&mut self, who: For, outcome: ReadOutcome) {
        if let For::Get(token) = who {
            self.events.push(StoreEvent::ReadDone { token, outcome });
        }
    }

    fn read_failed(&mut self, waiter: Waiter, error: StoreError) {
        match waiter.who {
            For::Get(_) => self.finish(waiter.who, ReadOutcome::Failed(error)),
            who => self.walk_failed(who, error),
        }
    }

    /// Reads the parts of a large value.
    fn assemble(&mut self, waiter: Waiter, record: &Record<'_>) {
        let Some(head) = LargeHead::read(record.value) else {
            let page = waiter.page.0;
            self.read_failed(
                waiter,
                StoreError::Corrupt { page, reason: "the head of a large value makes no sense" },
            );
            return;
        };
        if let For::Restage(victim) = waiter.who
            && !head.extents.iter().any(|extent| self.blocks.of(extent.page) == victim)
        {
            // The part that was met there is of an earlier placement of the value.
            collect::restaged(&mut self.collector, victim);
            return;
        }
        let is_get = matches!(waiter.who, For::Get(_));
        let counted = if is_get { u64::from(head.total) } else { 0 };
        let reading = self.reads.assembled_bytes;
        if is_get && reading > 0 && reading + counted > self.config.assembled_bytes {
            if self.reads.queued_bytes + counted > MAX_QUEUED_READ_BYTES {
                return self.read_failed(waiter, StoreError::Busy);
            }
            self.reads.queued_bytes += counted;
            return self.reads.queued.push_back((waiter, counted));
        }
        self.reads.assembled_bytes += counted;
        let mut payload = self.bytes();
        let total = head.total as usize;
        payload.resize(total, 0);
        payload[total - head.tail.len()..].copy_from_slice(head.tail);
        let slot = match self.reads.assemblies.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.reads.assemblies.push(None);
                self.reads.assemblies.len() - 1
            }
        };
        let mut part = 0;
        let mut outstanding = 0;
        for extent in &head.extents {
            let mut done = 0;
            while done < extent.pages {
                let pages = (extent.pages - done).min(GROUP_PAGES);
                let page = PageId(extent.page.0 + done);
                let block = self.blocks.of(page);
                self.blocks.get_mut(block).readers += 1;
                let buffer = self.port.buffer(pages);
                let token = Purpose::PartRead.token((slot as u64) << 32 | u64::from(part));
                self.port.read(FlashOp::Read { token, page, pages, buffer });
                outstanding += 1;
                done += pages;
                part += pages;
            }
        }
        let (key, kind) = (record.key.to_vec(), record.kind);
        let head = LargeHead { tail: &[], ..head };
        let (expires_at, hash) = (record.expires_at, record.hash);
        let assembly = Assembly {
            waiter,
            head,
            key,
            expires_at,
            kind,
            hash,
            payload,
            outstanding,
            counted,
            damaged: None,
        };
        self.reads.assemblies[slot] = Some(assembly);
        if outstanding == 0 {
            self.assembled(slot);
        }
    }

    /// Some parts of a large value have been read.
    pub(super) fn part_read(&mut self, number: u64, result: Result<(), FlashError>, bytes: &[u8]) {
        let (slot, first) = ((number >> 32) as usize, number as u32);
        let Some(assembly) = self.reads.assemblies.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let mut at = 0;
        let extent = assembly.head.extents.iter().find(|extent| {
            let inside = (at..at + extent.pages).contains(&first);
            at += if inside { 0 } else { extent.pages };
            inside
        });
        let Some(&extent) = extent else { return };
        let begin = PageId(extent.page.0 + first - at);
        let block = self.blocks.of(begin);
        self.blocks.get_mut(block).readers -= 1;
        assembly.outstanding -= 1;
        if result.is_err() {
            assembly.damaged = Some("a part of a large value could not be read");
        }
        let pages = (extent.pages - (first - at)).min(GROUP_PAGES);
        for (offset, page) in bytes.chunks_exact(PAGE_BYTES).take(pages as usize).enumerate() {
            let id = PageId(begin.0 + offset as u32);
            let (header, body) = layout::part_header(page);
            let part = first + offset as u32;
            let sound = layout::verify(page, id, extent.generation, self.config.store_id)
                .is_ok_and(|found| found.kind == PageKind::LargePart);
            if !sound || header.part != part || header.version != assembly.waiter.version {
                assembly.damaged = Some("a part of a large value is damaged");
                continue;
            }
            let start = part as usize * PART_PAYLOAD;
            let end = (start + PART_PAYLOAD).min(assembly.payload.len());
            if start < end {
                assembly.payload[start..end].copy_from_slice(&body[..end - start]);
            }
        }
        if assembly.outstanding == 0 {
            self.assembled(slot);
        }
    }

    fn assembled(&mut self, slot: usize) {
        let Some(mut assembly) = self.reads.assemblies[slot].take() else { return };
        self.reads.assembled_bytes -= assembly.counted;
        self.reads.freed = true;
        if assembly.damaged.is_none() && crc32c::crc32c(&assembly.payload) != assembly.head.crc {
            assembly.damaged = Some("the checksum of a large value does not match");
        }
        let page = assembly.waiter.page.0;
        if let Some(reason) = assembly.damaged {
            self.stats.corrupt += 1;
            self.recycle_bytes(assembly.payload);
            self.read_failed(assembly.waiter, StoreError::Corrupt { page, reason });
            return;
        }
        let outside = assembly.head.key_outside as usize;
        let key = if outside > 0 { &assembly.payload[..outside] } else { &assembly.key[..] };
        match assembly.waiter.who {
            For::Get(_) if key != assembly.waiter.key => self.go_on(assembly.waiter),
            For::Get(_) => {
                let mut value = assembly.payload;
                value.drain(..outside);
                self.answer_owned(&assembly.waiter, assembly.expires_at, value);
            }
            For::Walk(_) => {
                let key = key.to_vec();
                let waiter = assembly.waiter;
                self.walk_found(waiter.who, waiter.id, &key, assembly.expires_at);
            }
            For::Burial(_) => {}
            For::Restage(victim) => {
                let key = key.to_vec();
                let record = Record {
                    kind: assembly.kind,
                    keyspace: assembly.waiter.keyspace,
                    hash: assembly.hash,
                    version: assembly.waiter.version,
                    expires_at: assembly.expires_at,
                    key: &key,
                    value: &assembly.payload[outside..],
                };
                let moved = staging::Moved {
                    victim,
                    from: assembly.waiter.page,
                    extents: assembly.head.extents.clone(),
                };
                self.restage(&record, assembly.waiter.id, moved);
            }
        }
    }

    fn recycle_bytes(&mut self, bytes: Vec<u8>) {
        crate::api::Reads::recycle(self, bytes);
    }
}

/// Whether the parts of a large head are where it says: otherwise the value was moved and this head
/// is void.
pub(super) fn head_is_void(head: &LargeHead<'_>, blocks: &Blocks) -> bool {
    head.extents.iter().any(|extent| {
        let block = blocks.of(extent.page);
        blocks.list.get(block.0 as usize).is_none_or(|entry| {
            entry.generation != extent.generation
                || matches!(entry.state, BlockState::Erasing | BlockState::Free)
        })
    })
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
        return Resolved::Elsewhere;
    }
    Resolved::Record(record)
}

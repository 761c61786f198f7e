//! Reads that had to wait for the device: look-ups of a key, and gathering of whole buckets.
//!
//! ```text
//!   get, latest ─► search ─┐                      ┌─► answer (large: its parts first), translation, cache
//!   scan, count ─► bucket ─┼─► page ─► next page ─┼─► scans
//!   collection  ─► bucket ─┘                      └─► collection
//! ```
//!
//! A walk begins anew when its bucket is rewritten meanwhile, or when a large value of it gets a new
//! head: what it would go on to may be erased. The page that it waits for stays until then.
//!
//! Invariant: every walk is answered once, served or failed.

use std::collections::VecDeque;

use timestone_flash::{BlockId, FlashError, PageId};
use timestone_types::{Expiry, KeyRef, Timestamp, Version};

use super::ahead::EarlyGatherings;
use super::buckets::Buckets;
use super::chain::{Gathering, Search, SoughtKey, Start, is_void};
use super::contents::{FrugalContents, gathering_rule, key_id};
use super::translations::{Name, Youngest};
use crate::api::{Latest, ReadOutcome, ReadToken, StoreEvent};
use crate::error::StoreError;
use crate::kit::assembly::{Assemblies, Assembly, WantedParts};
use crate::kit::cache::CacheKey;
use crate::kit::page_reads::{PageFailure, PageReads};
use crate::kit::staging::Moved;
use crate::kit::volume::Volume;
use crate::layout::{LargeHead, NO_PAGE, Record, RecordKind};

/// Whom a bucket is gathered for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A scan or count.
    Scan(u64),
    /// The rewriting of the bucket.
    Rewriting,
    /// The rewriting of the bucket, when its records are in the log's tail.
    Early,
    /// Large values of a block, which are looked at or leave it.
    Parts(BlockId),
}

/// What a search is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum For {
    Get(Option<ReadToken>),
    Latest(Option<ReadToken>),
}

/// A staged version that a search is compared with in the end.
#[derive(Debug)]
struct StagedCopy {
    version: Version,
    tombstone: bool,
    expires_at: Expiry,
    value: Vec<u8>,
}

#[derive(Debug)]
struct KeyWalk {
    who: For,
    name: Name,
    key: Vec<u8>,
    at: Timestamp,
    judged: Timestamp,
    staged: Option<StagedCopy>,
    search: Search,
    /// The records of its bucket that it has met, as long as it follows the chain.
    gathering: Option<Box<Gathering>>,
}

#[derive(Debug)]
enum Task {
    Key(KeyWalk),
    Bucket(Owner, Gathering),
}

#[derive(Debug)]
struct PendingWalk {
    task: Task,
    /// When it began, by the clock of links.
    began: u64,
    /// Blocks that had been given up by then.
    retired: u64,
    /// Its bucket was rewritten since.
    anew: bool,
}

impl PendingWalk {
    /// Whether a pointer led it nowhere that may have led somewhere when it began: what was there is
    /// dead for whoever begins now, and may be what this one was to find.
    fn has_lost(&self, buckets: &Buckets) -> bool {
        let vanished = match &self.task {
            Task::Key(walk) => walk.search.vanished,
            // What is rewritten is judged by what is there then.
            Task::Bucket(Owner::Rewriting | Owner::Early, _) => false,
            Task::Bucket(_, gathering) => gathering.vanished,
        };
        vanished && self.retired != buckets.retired()
    }

    fn bucket(&self) -> u32 {
        match &self.task {
            Task::Key(walk) => walk.search.bucket,
            Task::Bucket(_, gathering) => gathering.bucket,
        }
    }
}

/// Whom the parts of a large value are read for.
#[derive(Debug)]
pub(super) enum PartsFor {
    Get {
        token: Option<ReadToken>,
        name: Name,
        key: Vec<u8>,
        at: Timestamp,
        judged: Timestamp,
        page: u32,
    },
    /// A scan wants its key.
    Scan(u64),
    /// It leaves a block.
    Leaving(BlockId, Name, u32),
}

/// What the reads have come to, for others.
#[derive(Debug)]
pub(super) enum WalkResult {
    Gathered(Owner, Gathering),
    /// A bucket could not be gathered: its chain is damaged.
    Damaged(Owner, u32, StoreError),
    /// A look-up has gone through some pages of a chain: what it has gathered there. The rest is behind that.
    Walked(Gathering),
    /// The key of a large value, for a scan.
    LargeKey(u64, Result<Vec<u8>, StoreError>),
    /// A large value of a bucket that leaves a block is staged, or cannot be read.
    Left(BlockId, u32, bool),
}

/// All reads under way.
pub(super) struct PendingReads {
    walks: Vec<Option<PendingWalk>>,
    free: Vec<u32>,
    pub(super) pages: PageReads<u32>,
    pub(super) assemblies: Assemblies<PartsFor>,
    pub(super) answers: VecDeque<WalkResult>,
    pub(super) early: EarlyGatherings,
}

impl PendingReads {
    /// None.
    pub(super) fn new(assembled_bytes: u64) -> Self {
        Self {
            walks: Vec::new(),
            free: Vec::new(),
            pages: PageReads::new(),
            assemblies: Assemblies::new(assembled_bytes),
            answers: VecDeque::new(),
            early: EarlyGatherings::default(),
        }
    }

    /// Nobody wants the answers of gets and look-ups any more.
    pub(super) fn abandon_gets(&mut self) {
        for walk in self.walks.iter_mut().flatten() {
            if let Task::Key(KeyWalk { who, .. }) = &mut walk.task {
                *who = match *who {
                    For::Get(_) => For::Get(None),
                    For::Latest(_) => For::Latest(None),
                };
            }
        }
        for parts in self.assemblies.waiters_mut() {
            if let PartsFor::Get { token, .. } = parts {
                *token = None;
            }
        }
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        self.pages.has_work() || self.assemblies.has_work() || !self.answers.is_empty()
    }

    /// A bucket was rewritten: whoever follows its chain begins anew.
    pub(super) fn rewritten(&mut self, bucket: u32) {
        for walk in self.walks.iter_mut().flatten().filter(|walk| walk.bucket() == bucket) {
            walk.anew = true;
        }
        _ = self.early.take(bucket);
        let is_early = |answer: &WalkResult| matches!(answer, WalkResult::Gathered(Owner::Early, early) if early.bucket == bucket);
        self.answers.retain(|answer| !is_early(answer));
    }

    /// An early gathering that is under way goes on for the rewriting of its bucket, if there is one.
    pub(super) fn adopt(&mut self, bucket: u32) -> bool {
        let Some(since) = self.early.forget(bucket) else { return false };
        let mut tasks = self.walks.iter_mut().flatten().map(|walk| &mut walk.task);
        let early = tasks.find_map(|task| match task {
            Task::Bucket(owner @ Owner::Early, gathering)
                if gathering.bucket == bucket && gathering.began >= since =>
            {
                Some(owner)
            }
            _ => None,
        });
        early.map(|owner| *owner = Owner::Rewriting).is_some()
    }

    fn keep(&mut self, walk: PendingWalk) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.walks[slot as usize] = Some(walk);
                slot
            }
            None => {
                self.walks.push(Some(walk));
                self.walks.len() as u32 - 1
            }
        }
    }
}

/// What serving a read may touch.
pub(super) struct ServingWalks<'a> {
    pub(super) core: &'a mut FrugalContents,
    pub(super) reads: &'a mut PendingReads,
    pub(super) events: &'a mut Vec<StoreEvent>,
}

impl ServingWalks<'_> {
    /// Begins to look for the youngest version of a key at or before a time.
    pub(super) fn get(
        &mut self,
        key: KeyRef<'_>,
        (at, judged): (Timestamp, Timestamp),
        token: Option<ReadToken>,
    ) {
        self.key(For::Get(token), SoughtKey::of(key), at, judged);
    }

    /// Begins to look for the youngest version of a key.
    pub(super) fn latest(&mut self, key: KeyRef<'_>, token: ReadToken) {
        self.key(For::Latest(Some(token)), SoughtKey::of(key), Timestamp::MAX, Timestamp::MAX);
    }

    fn key(&mut self, who: For, key: SoughtKey<'_>, at: Timestamp, judged: Timestamp) {
        let staged = self.core.staged_at(key.name, at).map(|staged| {
            let (expires_at, value) = self.core.kit.staging.value(staged.slot);
            let value = if matches!(who, For::Get(_)) { value.to_vec() } else { Vec::new() };
            let (version, tombstone) = (staged.version, staged.tombstone);
            StagedCopy { version, tombstone, expires_at, value }
        });
        let bucket = self.core.buckets.of(key.name.hash);
        let start = self.core.start_of(key.name);
        let search = Search::new(bucket, at, start, &self.core.buckets);
        let (name, key) = (key.name, key.bytes.to_vec());
        let gathering = self.gathering_beside(bucket, start);
        let walk = KeyWalk { who, name, key, at, judged, staged, search, gathering };
        self.begin(Task::Key(walk));
    }

    /// What a look-up gathers that is to go through a chain which has grown.
    fn gathering_beside(&self, bucket: u32, start: Start) -> Option<Box<Gathering>> {
        let from_head = start.known.is_none();
        if !from_head || !self.core.buckets.is_worth_a_rewriting(bucket) {
            return None;
        }
        let mut gathering = self.core.gathering(bucket, None);
        gathering.from_memory = is_in_memory(gathering.head, &self.core.kit.volume);
        Some(Box::new(gathering))
    }

    /// Gathers the rest of a bucket.
    pub(super) fn gather_on(&mut self, owner: Owner, gathering: Gathering) {
        self.follow(Task::Bucket(owner, gathering));
    }

    /// Begins to gather a bucket; those before a record that was gathered before.
    pub(super) fn gather(&mut self, owner: Owner, gathering: Gathering) {
        self.begin(Task::Bucket(owner, gathering));
    }

    fn begin(&mut self, mut task: Task) {
        if let Task::Bucket(_, gathering) = &mut task {
            gathering.from_memory = is_in_memory(gathering.head, &self.core.kit.volume);
        }
        self.follow(task);
    }

    fn follow(&mut self, task: Task) {
        let buckets = &self.core.buckets;
        let (began, retired) = (buckets.now(), buckets.retired());
        let walk = PendingWalk { task, began, retired, anew: false };
        let slot = self.reads.keep(walk);
        self.advance(slot);
    }

    /// Follows a walk's chain until it waits for the device, or is over.
    fn advance(&mut self, slot: u32) {
        let Some(mut walk) = self.reads.walks[slot as usize].take() else { return };
        let FrugalContents { kit, buckets, translations, spaces, tail_pages, .. } = &mut *self.core;
        loop {
            if core::mem::take(&mut walk.anew) {
                (walk.began, walk.retired) = (buckets.now(), buckets.retired());
                match &mut walk.task {
                    Task::Key(key) => {
                        // What it is to see may have gone with the rewriting.
                        if let Err(error) = spaces.marks.check_age(key.at) {
                            self.reads.free.push(slot);
                            return self.failed(walk, error);
                        }
                        let start = Start { known: translations.peek(key.name) };
                        key.search = Search::new(key.search.bucket, key.at, start, buckets);
                        key.gathering = None;
                    }
                    Task::Bucket(_, gathering) => {
                        let rule = gathering_rule(gathering.bucket, buckets, translations, spaces);
                        *gathering = Gathering::new(gathering.bucket, None, rule, buckets);
                        gathering.from_memory = is_in_memory(gathering.head, &kit.volume);
                    }
                }
            }
            let blocks = &kit.volume.blocks;
            let page = match &mut walk.task {
                Task::Key(key) => key.search.page(buckets, blocks),
                Task::Bucket(_, gathering) => gathering.page(buckets, blocks),
            };
            if walk.has_lost(buckets) {
                walk.anew = true;
                continue;
            }
            let Some(page) = page else {
                self.reads.free.push(slot);
                return self.finish(walk);
            };
            let in_group = kit.volume.page_in_group(PageId(page));
            let trusted = in_group.is_some();
            let Some(bytes) = in_group.or_else(|| tail_pages.get(PageId(page), blocks)) else {
                self.reads.walks[slot as usize] = Some(walk);
                return self.reads.pages.wait(PageId(page), slot, &mut kit.volume);
            };
            let known = (&*buckets, blocks);
            let looked = look(&mut walk.task, page, bytes, trusted, known, &mut kit.buffers);
            if let Err(reason) = looked {
                self.reads.free.push(slot);
                return self.failed(walk, StoreError::Corrupt { page, reason });
            }
        }
    }

    /// Serves walks whose pages were in groups when they asked.
    pub(super) fn group_pages(&mut self) {
        let mut pages = self.reads.pages.take_group_pages();
        for page in pages.drain(..) {
            match self.core.kit.volume.copy_of_group_page(page) {
                Some(copy) => {
                    self.page(page, None, &copy);
                    self.core.kit.volume.give(copy);
                }
                None => self.reads.pages.read_after_all(page, &mut self.core.kit.volume),
            }
        }
        self.reads.pages.recycle(pages);
    }

    /// A page has been read.
    pub(super) fn page_read(&mut self, page: PageId, result: Result<(), FlashError>, bytes: &[u8]) {
        let failure = PageFailure::of(page, result, bytes, &mut self.core.kit.volume);
        self.page(page, failure.as_ref(), bytes);
    }

    fn page(&mut self, page: PageId, failure: Option<&PageFailure>, bytes: &[u8]) {
        let mut waiting = self.reads.pages.arrived(page, &mut self.core.kit.volume);
        while let Some(slot) = self.reads.pages.next(&mut waiting) {
            let Some(mut walk) = self.reads.walks[slot as usize].take() else { continue };
            if walk.anew {
                self.reads.walks[slot as usize] = Some(walk);
                self.advance(slot);
                continue;
            }
            let error = match failure {
                None => {
                    let FrugalContents { kit, buckets, .. } = &mut *self.core;
                    let blocks = &kit.volume.blocks;
                    let buckets = &*buckets;
                    let (task, known) = (&mut walk.task, (buckets, blocks));
                    let looked = look(task, page.0, bytes, false, known, &mut kit.buffers);
                    match looked {
                        Ok(()) => {
                            self.reads.walks[slot as usize] = Some(walk);
                            self.advance(slot);
                            continue;
                        }
                        Err(reason) => {
                            kit.volume.corrupt += 1;
                            StoreError::Corrupt { page: page.0, reason }
                        }
                    }
                }
                Some(failure) => failure.error(page),
            };
            self.reads.free.push(slot);
            self.failed(walk, error);
        }
    }

    fn failed(&mut self, walk: PendingWalk, error: StoreError) {
        match walk.task {
            Task::Key(KeyWalk { who: For::Get(Some(token)), .. }) => {
                let outcome = ReadOutcome::Failed(error);
                self.events.push(StoreEvent::ReadDone { token, outcome });
            }
            Task::Key(KeyWalk { who: For::Latest(Some(token)), .. }) => {
                self.events.push(StoreEvent::LatestDone { token, found: Err(error) });
            }
            Task::Key(_) => {}
            Task::Bucket(owner, gathering) => {
                self.reads.answers.push_back(WalkResult::Damaged(owner, gathering.bucket, error));
            }
        }
    }

    fn finish(&mut self, walk: PendingWalk) {
        match walk.task {
            Task::Key(key) => self.key_done(key, walk.began),
            Task::Bucket(owner, gathering) => {
                self.reads.answers.push_back(WalkResult::Gathered(owner, gathering));
            }
        }
    }

    fn key_done(&mut self, mut walk: KeyWalk, began: u64) {
        let gathering = walk.gathering.take().filter(|_| walk.search.pages > 1);
        if walk.search.best.as_ref().is_none_or(|best| !best.kind.is_large()) {
            self.core.walked(walk.search.bucket, walk.search.pages);
            let handed_over = gathering.map(|gathering| WalkResult::Walked(*gathering));
            self.reads.answers.extend(handed_over);
        }
        if let Some(youngest) = walk.search.youngest()
            && !self.core.buckets.was_linked_after(walk.search.bucket, began)
        {
            self.core.translations.insert(walk.name, youngest);
        }
        let fence = self.core.spaces.fence_at(walk.name.keyspace, walk.at);
        match walk.who {
            For::Get(token) => self.get_done(token, walk, fence),
            For::Latest(Some(token)) => {
                let staged = walk.staged.as_ref().map(|staged| Latest {
                    version: staged.version,
                    absent: staged.tombstone,
                    may_expire: !staged.expires_at.is_never(),
                });
                let best = walk.search.best.as_ref().map(|best| Latest {
                    version: best.version,
                    absent: best.kind.is_tombstone(),
                    may_expire: !best.expires_at.is_never(),
                });
                let fence = Latest { version: fence, absent: true, may_expire: false };
                let all = [staged, best, Some(fence)].into_iter().flatten();
                let found = all.max_by_key(|one| one.version).unwrap_or_default();
                self.events.push(StoreEvent::LatestDone { token, found: Ok(found) });
            }
            For::Latest(None) => {}
        }
    }

    fn get_done(&mut self, token: Option<ReadToken>, mut walk: KeyWalk, fence: Version) {
        let best = walk.search.best.take();
        let found = best.as_ref().map_or(Version::ZERO, |best| best.version);
        if let Some(staged) = walk.staged.take_if(|staged| staged.version > found)
            && staged.version > fence
        {
            let (version, expires_at) = (staged.version, staged.expires_at);
            if staged.tombstone {
                return self.answer(token, ReadOutcome::Absent { version, expires_at });
            }
            return self.visible(token, version, expires_at, staged.value, walk.judged);
        }
        let Some(best) = best.filter(|best| best.version > fence) else {
            let (version, expires_at) = (fence, Expiry::NEVER);
            return self.answer(token, ReadOutcome::Absent { version, expires_at });
        };
        let (version, expires_at) = (best.version, best.expires_at);
        if best.kind.is_tombstone() {
            return self.answer(token, ReadOutcome::Absent { version, expires_at });
        }
        if best.kind == RecordKind::Value {
            let (keyspace, id) = (walk.name.keyspace, key_id(walk.name));
            let filed = CacheKey { keyspace, id, version, key: &walk.key };
            if self.core.kit.cache.find(filed).is_none() {
                self.core.kit.cache.insert(filed, expires_at, &best.value);
            }
            return self.visible(token, version, expires_at, best.value, walk.judged);
        }
        let Some(head) = LargeHead::read(&best.value) else {
            let reason = "the head of a large value makes no sense";
            let error = StoreError::Corrupt { page: best.place.page, reason };
            return self.answer(token, ReadOutcome::Failed(error));
        };
        let KeyWalk { name, key, at, judged, .. } = walk;
        let counted = u64::from(head.total);
        let inline = if head.key_outside > 0 { Vec::new() } else { key.clone() };
        let record = Record {
            kind: best.kind,
            keyspace: name.keyspace,
            hash: name.hash,
            version,
            expires_at,
            key: &inline,
            value: &best.value,
            links: None,
        };
        if is_void(&record, &self.core.kit.volume.blocks) {
            // Its parts have left their places since the walk was there.
            if let Err(error) = self.core.spaces.marks.check_age(at) {
                return self.answer(token, ReadOutcome::Failed(error));
            }
            return self.key(For::Get(token), SoughtKey { name, bytes: &key }, at, judged);
        }
        let waiter = PartsFor::Get { token, name, key, at, judged, page: best.place.page };
        if !self.reads.assemblies.has_room(counted) {
            if let Err(PartsFor::Get { token, .. }) = self.reads.assemblies.queue(waiter, counted) {
                self.answer(token, ReadOutcome::Failed(StoreError::Busy));
            }
            return;
        }
        self.assemble(waiter, (&record, head), counted);
    }

    fn visible(
        &mut self,
        token: Option<ReadToken>,
        version: Version,
        expires_at: Expiry,
        value: Vec<u8>,
        judged: Timestamp,
    ) {
        if expires_at.has_passed(judged) {
            self.core.kit.buffers.give(value);
            return self.answer(token, ReadOutcome::Absent { version, expires_at });
        }
        self.answer(token, ReadOutcome::Present { version, expires_at, value });
    }

    fn answer(&mut self, token: Option<ReadToken>, outcome: ReadOutcome) {
        match (token, outcome) {
            (Some(token), outcome) => self.events.push(StoreEvent::ReadDone { token, outcome }),
            (None, ReadOutcome::Present { value, .. }) => self.core.kit.buffers.give(value),
            (None, _) => {}
        }
    }

    /// Begins to read the parts of a large value.
    pub(super) fn assemble(
        &mut self,
        waiter: PartsFor,
        (record, head): (&Record<'_>, LargeHead<'_>),
        counted: u64,
    ) {
        debug_assert!(!is_void(record, &self.core.kit.volume.blocks), "its parts are there");
        let wanted = match waiter {
            PartsFor::Get { .. } | PartsFor::Leaving(..) => WantedParts::Value,
            PartsFor::Scan(_) => WantedParts::Key,
        };
        let payload = self.core.kit.buffers.take();
        let volume = &mut self.core.kit.volume;
        let assemblies = &mut self.reads.assemblies;
        if let Some(done) =
            assemblies.begin(waiter, (record, head), wanted, counted, payload, volume)
        {
            self.assembled(done);
        }
    }

    /// Some parts of a large value have been read.
    pub(super) fn parts_read(&mut self, number: u64, readable: bool, bytes: &[u8]) {
        let volume = &mut self.core.kit.volume;
        if let Some(done) = self.reads.assemblies.part_read(number, readable, bytes, volume) {
            self.assembled(done);
        }
    }

    /// Lets gets of large values go on that waited for memory, in their order.
    pub(super) fn queued(&mut self) {
        for waiter in self.reads.assemblies.take_queued() {
            if let PartsFor::Get { token, name, key, at, judged, .. } = waiter {
                if let Err(error) = self.core.spaces.marks.check_age(at) {
                    self.answer(token, ReadOutcome::Failed(error));
                    continue;
                }
                self.key(For::Get(token), SoughtKey { name, bytes: &key }, at, judged);
            }
        }
    }

    fn assembled(&mut self, assembly: Assembly<PartsFor>) {
        if let Some(reason) = assembly.damaged {
            self.core.kit.volume.corrupt += 1;
            let (waiter, bytes) = assembly.into_waiter();
            self.core.kit.buffers.give(bytes);
            return match waiter {
                PartsFor::Get { token, page, .. } => {
                    let error = StoreError::Corrupt { page, reason };
                    self.answer(token, ReadOutcome::Failed(error));
                }
                PartsFor::Scan(scan) => {
                    let error = StoreError::Corrupt { page: 0, reason };
                    self.reads.answers.push_back(WalkResult::LargeKey(scan, Err(error)));
                }
                PartsFor::Leaving(block, name, _) => {
                    let bucket = self.core.buckets.of(name.hash);
                    self.reads.answers.push_back(WalkResult::Left(block, bucket, false));
                }
            };
        }
        match &assembly.waiter {
            PartsFor::Get { token, key, page, .. } if assembly.key() != key => {
                let reason = "two keys have the same hashes";
                let (token, error) = (*token, StoreError::Corrupt { page: *page, reason });
                self.answer(token, ReadOutcome::Failed(error));
            }
            &PartsFor::Get { token, judged, .. } => {
                let version = assembly.version;
                let (_, expires_at, value) = assembly.into_value();
                self.visible(token, version, expires_at, value, judged);
            }
            &PartsFor::Scan(scan) => {
                let key = assembly.key().to_vec();
                self.reads.answers.push_back(WalkResult::LargeKey(scan, Ok(key)));
                let (_, bytes) = assembly.into_waiter();
                self.core.kit.buffers.give(bytes);
            }
            &PartsFor::Leaving(victim, name, page) => {
                let record = Record {
                    kind: assembly.kind,
                    keyspace: name.keyspace,
                    hash: name.hash,
                    version: assembly.version,
                    expires_at: assembly.expires_at,
                    key: assembly.key(),
                    value: assembly.value(),
                    links: None,
                };
                let extents = assembly.extents().to_vec();
                let moved = Moved { victim, from: PageId(page), extents };
                let batch = self.core.kit.volume.writer.batch();
                self.core.kit.staging.accept(&record, key_id(name), batch, Some(moved));
                let bucket = self.core.buckets.of(name.hash);
                self.reads.answers.push_back(WalkResult::Left(victim, bucket, true));
            }
        }
    }
}

/// Whether records may still come into a chain's first page.
fn is_in_memory(head: u32, volume: &Volume) -> bool {
    head != NO_PAGE && volume.page_in_group(PageId(head)).is_some()
}

fn look(
    task: &mut Task,
    page: u32,
    bytes: &[u8],
    trusted: bool,
    (buckets, blocks): (&Buckets, &crate::kit::blocks::Blocks),
    buffers: &mut crate::kit::buffers::Buffers,
) -> Result<(), &'static str> {
    match task {
        Task::Key(walk) => {
            let key = SoughtKey { name: walk.name, bytes: &walk.key };
            let mut copy = || buffers.take();
            // Where the look-up leaves the chain, or something is damaged, the rest is nobody's.
            walk.gathering.take_if(|gathering| {
                gathering.page(buckets, blocks) != Some(page)
                    || gathering.look(bytes, trusted, buckets).is_err()
            });
            walk.search.look(bytes, trusted, key, buckets, blocks, Some(&mut copy))
        }
        Task::Bucket(_, gathering) => gathering.look(bytes, trusted, buckets),
    }
}

/// A key's youngest version, with what is staged of it.
pub(super) fn latest_of(
    youngest: Youngest,
    staged: Option<super::contents::StagedVersion>,
    fence: Version,
) -> Latest {
    let of_index = Latest {
        version: youngest.version,
        absent: youngest.tombstone,
        may_expire: youngest.may_expire,
    };
    let staged = staged.map(|one| Latest {
        version: one.version,
        absent: one.tombstone,
        may_expire: one.may_expire,
    });
    let fence = Latest { version: fence, absent: true, may_expire: false };
    [Some(of_index), staged, Some(fence)]
        .into_iter()
        .flatten()
        .max_by_key(|one| one.version)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_types::{ClientId, KeyspaceId};

    use super::super::buckets::{Beginning, RecordPlace};
    use super::super::translations::Translations;
    use super::super::{Skimpy, SkimpyConfig};
    use super::*;
    use crate::api::prelude::*;

    fn pump(store: &mut Skimpy, now: &mut u64, events: &mut Vec<StoreEvent>) {
        *now += 1_000_000;
        store.pump(Timestamp::from_nanos(*now), events);
    }

    /// What a get finds that goes through four beginnings, while the block of the first one is erased;
    /// completions come in an order drawn from `seed`.
    fn found_in_the_last_beginning(seed: u64) -> ReadOutcome {
        let config = MemoryConfig {
            pages_per_block: 2,
            initial_blocks: 64,
            max_blocks: 64,
            completions_per_poll: 1,
            shuffle: Some(seed),
            ..MemoryConfig::default()
        };
        let device = Box::new(MemoryMedia::new(config).open());
        let config = SkimpyConfig { keys: 1, cache_bytes: 0, ..Default::default() };
        let (mut store, _) = Skimpy::open(device, config).expect("opens");
        let (mut now, mut events) = (0, Vec::new());
        let hash_seed = store.seed();
        // By the highest bit of their hashes keys have their buckets.
        let all: Vec<[u8; 4]> = (0..100u32).map(u32::to_be_bytes).collect();
        let keys = all.iter().map(|name| KeyRef::new(hash_seed, KeyspaceId::DEFAULT, name));
        let keys: Vec<_> = keys.filter(|key| key.hash.0 >> 63 == 0).take(8).collect();
        let bucket = store.core.buckets.of(keys[0].hash);
        let version = Version::new(Timestamp::from_nanos(5), ClientId::new(1));
        for &key in &keys {
            // None leads to another.
            store.core.buckets.restore(bucket, NO_PAGE, Vec::new());
            store.put(key, version, &[7; 3000], Expiry::NEVER).expect("there is room");
        }
        store.begin_batch(2);
        store.sync_soon();
        (0..100).for_each(|_| pump(&mut store, &mut now, &mut events));
        let place = |store: &Skimpy, at: usize| {
            let known = store.core.translations.peek(SoughtKey::of(keys[at]).name);
            RecordPlace { page: known.expect("it was put").page, slot: 0 }
        };
        let older = [0, 2, 4, 6].map(|at| Beginning::Chain(place(&store, at)));
        store.core.buckets.restore(bucket, NO_PAGE, older.to_vec());
        let geometry = store.core.kit.volume.geometry();
        store.core.translations = Translations::new(1, false, geometry);
        events.clear();
        let (at, token) = (Timestamp::from_nanos(9), ReadToken(1));
        assert!(matches!(store.get(keys[6], at, token), Ok(crate::api::Lookup::Pending)));
        let home = store.core.kit.volume.blocks.of(PageId(older[0].page()));
        while store.core.kit.volume.blocks.get(home).readers > 0 {
            pump(&mut store, &mut now, &mut events);
        }
        store.core.kit.volume.erase(home);
        for _ in 0..100 {
            pump(&mut store, &mut now, &mut events);
            if let Some(StoreEvent::ReadDone { outcome, .. }) = events.pop() {
                return outcome;
            }
        }
        panic!("no answer")
    }

    #[test]
    fn no_beginning_is_passed_over_when_one_is_erased() {
        for seed in 0..20 {
            let found = found_in_the_last_beginning(seed);
            assert!(matches!(found, ReadOutcome::Present { .. }), "{found:?} with seed {seed}");
        }
    }
}

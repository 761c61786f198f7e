//! Following a chain: page by page, from its newest record to its end.
//!
//! ```text
//!   head ─► page: last record of the bucket ─ next ─► page: … ─► end, or a cut ─► older beginnings
//!                          └─ prior (of the key that is looked for) ─► page: …
//!   translation ─► loose version ─ prior ─► loose version: … ─► the chain, from its head on
//! ```
//!
//! A pointer is *cut* when its page is gone: a crash has taken it, or the block was erased and is
//! used anew (its pages have higher sequence numbers, and a chain leads back). What lay behind a
//! cut was found by recovery, and is among the older beginnings. A page that is there and damaged is
//! no cut: whoever follows the chain is told.
//!
//! What must not happen: a damaged record is taken for one of another bucket, so that what is behind
//! it is lost without a word.

use timestone_flash::{BlockId, PageId};
use timestone_types::{Expiry, HashSeed, KeyRef, Timestamp, Version, is_planted};

use super::buckets::{Beginning, Buckets, RecordPlace, bucket_of};
use super::contents::{is_of, name_of};
use super::loose::LooseVersion;
use super::translations::{Name, Youngest};
use super::work;
use crate::kit::blocks::{BlockState, Blocks};
use crate::layout::{
    self, Extent, LargeHead, LinkKind, Links, NO_PAGE, Record, RecordKind, UNKNOWN_PAGE,
};

/// Whether a page is the one that was meant by whoever wrote at sequence number `from`: its block was
/// not erased since, and no crash has taken it.
fn is_there(page: u32, from: u64, buckets: &Buckets, blocks: &Blocks) -> bool {
    let id = PageId(page);
    let home = blocks.of(id);
    let Some(block) = blocks.find(home) else { return false };
    buckets.was_begun_by(home, from)
        && !matches!(block.state, BlockState::Free | BlockState::Dirty | BlockState::Erasing)
        && blocks.geometry.index_of(id) < block.pages
        && !blocks.is_hole(id)
}

/// Whether the parts of a large value have left the places that its head names.
pub(super) fn is_void(record: &Record<'_>, blocks: &Blocks) -> bool {
    record.kind.is_large()
        && LargeHead::read(record.value)
            .is_none_or(|head| head.extents.iter().any(|extent| !is_in_place(extent, blocks)))
}

/// Whether parts of a large value are where its head says.
pub(super) fn is_in_place(extent: &Extent, blocks: &Blocks) -> bool {
    blocks.find(blocks.of(extent.page)).is_some_and(|block| {
        block.generation == extent.generation
            && !matches!(block.state, BlockState::Free | BlockState::Erasing)
    })
}

/// A key that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoughtKey<'a> {
    pub(super) name: Name,
    pub(super) bytes: &'a [u8],
}

impl<'a> SoughtKey<'a> {
    pub(super) fn of(key: KeyRef<'a>) -> Self {
        let name = Name { keyspace: key.keyspace, hash: key.hash, check: key.check };
        Self { name, bytes: key.bytes }
    }

    /// Whether a record is one of this key. A key that lies with a large value is known by its
    /// hashes.
    fn has(&self, record: &Record<'_>) -> bool {
        if record.keyspace != self.name.keyspace || record.hash != self.name.hash {
            return false;
        }
        if record.kind.is_large() && record.key.is_empty() {
            return LargeHead::read(record.value).is_some_and(|head| {
                head.key_outside as usize == self.bytes.len() && head.check == self.name.check
            });
        }
        record.key == self.bytes
    }
}

/// A page and where to begin in it, backwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChainCursor {
    page: u32,
    before: u16,
    /// The sequence number of the page that pointed here.
    from: u64,
}

impl ChainCursor {
    const END: Self = Self { page: NO_PAGE, before: 0, from: u64::MAX };

    fn at(page: u32) -> Self {
        Self { page, before: u16::MAX, from: u64::MAX }
    }

    /// A beginning.
    fn from(beginning: Beginning) -> Self {
        match beginning {
            Beginning::Chain(RecordPlace { page, slot }) => {
                Self { page, before: slot + 1, from: u64::MAX }
            }
            Beginning::Loose(version) => Self::at(version.page),
        }
    }

    /// What a record at a place points to.
    fn to(page: u32, from: RecordPlace, sequence: u64) -> Self {
        let before = if page == from.page { from.slot } else { u16::MAX };
        Self { page, before, from: sequence }
    }
}

/// The last record before a slot for which `wanted` holds. `Err`: something there is damaged.
fn last<'a>(
    bytes: &'a [u8],
    before: u16,
    (trusted, scarred): (bool, bool),
    wanted: impl Fn(&Record<'_>) -> bool,
) -> Result<Option<(u16, Record<'a>, Links)>, &'static str> {
    for slot in (0..before.min(layout::count(bytes))).rev() {
        let raw = layout::record_at(bytes, slot);
        let record = raw.and_then(if trusted { Record::read } else { Record::read_intact });
        let Some(record) = record else {
            if scarred {
                continue;
            }
            return Err("the checksum of a record does not match");
        };
        if let Some(links) = record.links
            && wanted(&record)
        {
            return Ok(Some((slot, record, links)));
        }
    }
    Ok(None)
}

const NOT_THERE: &str = "a record is not where its chain says";

/// Which records of a page a walk looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Along {
    /// Those of the bucket that are in its chain.
    Chain,
    /// Those of a key that are in the chain.
    Key,
    /// Those of a key that are loose.
    Loose,
}

impl Along {
    /// A prior pointer.
    fn prior_of(links: Links) -> Self {
        if links.loose_prior { Self::Loose } else { Self::Key }
    }
}

/// The best version that a search has met.
#[derive(Clone, Debug)]
pub(super) struct Best {
    pub(super) version: Version,
    pub(super) kind: RecordKind,
    pub(super) expires_at: Expiry,
    pub(super) place: RecordPlace,
    /// A copy, where the page does not stay.
    pub(super) value: Vec<u8>,
}

/// What memory knows of a key when a search begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) known: Option<Youngest>,
}

impl Start {
    /// Nothing: from the newest record of its bucket.
    pub(super) const HEAD: Self = Self { known: None };
}

/// Looks for the youngest version of a key at or before a time.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) bucket: u32,
    at: Timestamp,
    cursor: ChainCursor,
    along: Along,
    /// The cursor follows a prior pointer; where the chain goes on instead.
    prior: Option<ChainCursor>,
    /// The cursor is where this version is: copies of older ones, whose chain a crash has cut, may lie behind it
    /// in the page.
    known: Option<Version>,
    /// The next of the older beginnings.
    root: usize,
    /// It was led past what may be among the older beginnings.
    passed: bool,
    finished: bool,
    /// A pointer led nowhere.
    pub(super) vanished: bool,
    /// Pages of chains that it has looked at.
    pub(super) pages: u8,
    pub(super) best: Option<Best>,
    /// The youngest version met, and whether it is known to be the key's.
    youngest: Youngest,
    met: u32,
    youngest_known: bool,
    from_head: bool,
    /// The youngest version, where that is known and wanted.
    wanted: Option<Version>,
}

impl Search {
    /// From the newest record of its bucket; or from where the youngest version is, if that is
    /// exact, or loose.
    pub(super) fn new(bucket: u32, at: Timestamp, start: Start, buckets: &Buckets) -> Self {
        let is_start =
            |known: &Youngest| known.exact || known.loose || known.version.timestamp <= at;
        let known = start.known.filter(is_start);
        let is_loose = known.is_some_and(|known| known.loose);
        // What is behind a beginning may be younger than all that the chain has: a loose version, or what an
        // earlier start could not read, and nobody knew of who put the records in front.
        let mut older = buckets.older(bucket).iter();
        let in_pieces =
            older.any(|one| matches!(one, Beginning::Loose(_)) || !is_planted!(TrustsPieces));
        let page = known.map(|known| known.page);
        Self {
            bucket,
            at,
            cursor: ChainCursor::at(page.unwrap_or_else(|| buckets.head(bucket))),
            along: match page {
                Some(_) if is_loose => Along::Loose,
                Some(_) => Along::Key,
                None => Along::Chain,
            },
            prior: page.map(|_| ChainCursor::at(buckets.head(bucket))),
            known: known.map(|known| known.version),
            root: 0,
            passed: known.is_some_and(|known| known.loose && !known.exact) || in_pieces,
            finished: known.is_some_and(|known| known.page == NO_PAGE),
            vanished: false,
            pages: 0,
            best: None,
            youngest: Youngest::NONE,
            met: 0,
            youngest_known: false,
            from_head: page.is_none(),
            wanted: known.map(|known| known.version).filter(|known| known.timestamp <= at),
        }
    }

    /// The page to look at next; `None` at the end.
    pub(super) fn page(&mut self, buckets: &Buckets, blocks: &Blocks) -> Option<u32> {
        while !self.finished {
            if self.cursor.page != NO_PAGE {
                if is_there(self.cursor.page, self.cursor.from, buckets, blocks) {
                    return Some(self.cursor.page);
                }
                self.vanished = true;
            }
            self.cut(buckets);
        }
        None
    }

    /// The pointer leads nowhere, or is at the end: by the chain, and then from the next beginning.
    fn cut(&mut self, buckets: &Buckets) {
        if let Some(chain) = self.prior.take() {
            (self.cursor, self.along) = (chain, Along::Chain);
        } else if let Some(&root) = buckets.older(self.bucket).get(self.root) {
            self.root += 1;
            self.cursor = ChainCursor::from(root);
            (self.along, self.known) = match root {
                Beginning::Chain(_) => (Along::Chain, None),
                Beginning::Loose(loose) => (Along::Loose, Some(loose.version)),
            };
        } else {
            self.cursor = ChainCursor::END;
            self.finished = true;
            self.youngest_known = true;
        }
    }

    /// Looks at a page. `copy` gets the value of the best version, where the page does not stay.
    pub(super) fn look(
        &mut self,
        bytes: &[u8],
        trusted: bool,
        key: SoughtKey<'_>,
        buckets: &Buckets,
        blocks: &Blocks,
        mut copy: Option<&mut dyn FnMut() -> Vec<u8>>,
    ) -> Result<(), &'static str> {
        let (page, sequence) = (self.cursor.page, layout::sequence(bytes));
        if sequence > self.cursor.from {
            self.vanished = true;
            self.cut(buckets);
            return Ok(());
        }
        let scarred = buckets.is_scarred(page);
        // A run is as long as it is, however the bucket is written.
        if self.along != Along::Loose {
            self.pages = self.pages.saturating_add(1);
        }
        while !self.finished && self.cursor.page == page {
            let bits = buckets.bits();
            let along = self.along;
            let known = self.known.take();
            let found = last(bytes, self.cursor.before, (trusted, scarred), |record| {
                if along == Along::Chain {
                    return !record.is_loose() && bucket_of(record.hash, bits) == self.bucket;
                }
                record.is_loose() == (along == Along::Loose)
                    && key.has(record)
                    && known.is_none_or(|version| record.version == version)
            })?;
            let Some((slot, record, links)) = found else {
                if along != Along::Chain || scarred {
                    self.cut(buckets);
                    continue;
                }
                return Err(NOT_THERE);
            };
            let place = RecordPlace { page, slot };
            // From a loose one the chain goes on where it was left.
            let chain = match self.prior.take() {
                before if along == Along::Loose => before.unwrap_or(ChainCursor::END),
                _ => ChainCursor::to(links.next, place, sequence),
            };
            (self.cursor, self.along) = (chain, Along::Chain);
            if key.has(&record) {
                let (is_void, alone) = (is_void(&record, blocks), links.loose_prior);
                if !is_void {
                    self.met(&record, links, place, &mut copy);
                }
                self.passed |= alone
                    && (!buckets.older(self.bucket).is_empty() || links.kind == LinkKind::Flagged);
                let follows = alone || (!is_void && !self.mistrusts(links));
                if !self.finished && follows && links.prior != UNKNOWN_PAGE {
                    self.finished = links.prior == NO_PAGE;
                    self.cursor = ChainCursor::to(links.prior, place, sequence);
                    (self.prior, self.along) = (Some(chain), Along::prior_of(links));
                }
            }
            if self.cursor.page == NO_PAGE && !self.finished {
                self.cut(buckets);
            }
        }
        Ok(())
    }

    /// Whether younger versions may lie behind a record. So it is behind a cut: what recovery found
    /// there has no order. A record that skips one which is lost leads past the cut.
    fn mistrusts(&self, links: Links) -> bool {
        (links.kind == LinkKind::Flagged && !is_planted!(TrustsFlagged))
            || self.root > 0
            || (self.passed && !is_planted!(TrustsPassed))
    }

    fn met(
        &mut self,
        record: &Record<'_>,
        links: Links,
        place: RecordPlace,
        copy: &mut Option<&mut dyn FnMut() -> Vec<u8>>,
    ) {
        let mistrusted = self.mistrusts(links);
        if !self.youngest_known {
            if self.met == 0 || record.version > self.youngest.version {
                let exact = self.met == 0 && self.root == 0;
                self.youngest = Youngest::of(record, place.page, exact);
            }
            self.met += 1;
            self.youngest_known = !mistrusted;
        }
        if record.version.timestamp > self.at {
            return;
        }
        if self.best.as_ref().is_none_or(|best| record.version > best.version) {
            let mut value = self.best.take().map(|best| best.value).unwrap_or_default();
            if let Some(copy) = copy {
                if value.capacity() == 0 {
                    value = copy();
                }
                value.clear();
                value.extend_from_slice(record.value);
            }
            let (version, kind, expires_at) = (record.version, record.kind, record.expires_at);
            self.best = Some(Best { version, kind, expires_at, place, value });
        }
        self.finished |= !mistrusted || self.wanted == Some(record.version);
    }

    /// Whether it is over; if not, it waits for a page.
    pub(super) fn is_over(&self) -> bool {
        self.finished
    }

    /// The key's youngest version, if the search has found that out.
    pub(super) fn youngest(&self) -> Option<Youngest> {
        let is_known = self.from_head && self.youngest_known;
        // A loose one that recovery had no place for is found by its beginning alone.
        is_known.then_some(self.youngest).filter(|youngest| !youngest.loose)
    }
}

/// A record of a bucket, in the bytes of a [`Gathering`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    begin: usize,
    end: usize,
    pub(super) place: RecordPlace,
    /// The sequence number of its page.
    sequence: u64,
    pub(super) is_loose: bool,
    /// It is loose, and prior pointers lead there from the loose version that memory knows.
    pub(super) is_of_run: bool,
}

impl Gathered {
    /// By this records are in the order of the log.
    pub(super) fn in_log(&self) -> (u64, u16) {
        (self.sequence, self.place.slot)
    }
}

/// What a detour looks for.
#[derive(Debug)]
enum DetourTo {
    /// Loose ones.
    Loose(Name),
    /// A loose one that memory knows.
    Known(LooseVersion),
}

/// A detour to versions of one key that the chain does not lead to.
#[derive(Debug)]
struct Detour {
    to: DetourTo,
    /// It began at the loose version that memory knows.
    is_of_run: bool,
    /// Where the chain goes on.
    back: ChainCursor,
}

impl Detour {
    fn to_known(version: LooseVersion, is_of_run: bool) -> Self {
        Self { to: DetourTo::Known(version), is_of_run, back: ChainCursor::END }
    }

    fn wants(&self, record: &Record<'_>, seed: HashSeed) -> bool {
        match &self.to {
            DetourTo::Loose(name) => record.is_loose() && is_of(record, *name, seed),
            DetourTo::Known(version) => record.is_loose() && version.is(record, seed),
        }
    }
}

/// What the records of a bucket are gathered by.
#[derive(Debug)]
pub(super) struct GatheringRule {
    /// Loose versions of the bucket's keys.
    pub(super) loose: Vec<LooseVersion>,
    /// What a version at or below it supersedes is not wanted.
    pub(super) mark: Timestamp,
    pub(super) seed: HashSeed,
}

/// Gathers the records of a bucket, in the order of its chain, and loose versions of its keys: all but
/// those that the chain leads past, or that are loose, and that a version at or below a time supersedes.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) bucket: u32,
    /// The bucket's head when it began.
    pub(super) head: u32,
    /// The head's page was in memory then: records that were linked since may lie there, too.
    pub(super) from_memory: bool,
    cursor: ChainCursor,
    detour: Option<Detour>,
    root: usize,
    finished: bool,
    /// A pointer led nowhere.
    pub(super) vanished: bool,
    /// It ends before any of these records, which were gathered before, by place and the sequence number of
    /// the page: a block may have been erased since, and be used anew. Ascending.
    known: Vec<(RecordPlace, u64)>,
    /// It has met one of them.
    pub(super) joined: bool,
    rule: GatheringRule,
    /// When it began, by the clock of links.
    pub(super) began: u64,
    pub(super) records: Vec<Gathered>,
    bytes: Vec<u8>,
}

impl Gathering {
    /// From the newest record on: all of them, or until it meets one of the chain that was gathered before.
    pub(super) fn new(
        bucket: u32,
        before: Option<&Self>,
        rule: GatheringRule,
        buckets: &Buckets,
    ) -> Self {
        let known = before.map_or(&[][..], |before| &before.records);
        let of_chain = known.iter().filter(|one| !one.is_loose);
        let mut known: Vec<_> = of_chain.map(|one| (one.place, one.sequence)).collect();
        known.sort_unstable();
        Self {
            bucket,
            head: buckets.head(bucket),
            from_memory: true,
            cursor: ChainCursor::at(buckets.head(bucket)),
            detour: None,
            root: 0,
            finished: false,
            vanished: false,
            known,
            joined: false,
            rule,
            began: buckets.now(),
            records: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// The page to look at next; `None` at the end.
    pub(super) fn page(&mut self, buckets: &Buckets, blocks: &Blocks) -> Option<u32> {
        while !self.finished {
            if self.cursor.page != NO_PAGE {
                if is_there(self.cursor.page, self.cursor.from, buckets, blocks) {
                    return Some(self.cursor.page);
                }
                self.vanished = true;
            }
            self.cut(buckets);
        }
        None
    }

    /// The pointer leads nowhere, or is at the end: back to the chain, and then from the next beginning.
    fn cut(&mut self, buckets: &Buckets) {
        let older = buckets.older(self.bucket);
        if let Some(detour) = self.detour.take() {
            self.cursor = detour.back;
        } else if let Some(&root) = older.get(self.root) {
            self.root += 1;
            self.cursor = ChainCursor::from(root);
            if let Beginning::Loose(version) = root {
                self.detour = Some(Detour::to_known(version, false));
            }
        } else if let Some(version) = self.rule.loose.pop() {
            self.cursor = ChainCursor::at(version.page);
            self.detour = Some(Detour::to_known(version, true));
        } else {
            self.cursor = ChainCursor::END;
            self.finished = true;
        }
    }

    /// Looks at a page.
    pub(super) fn look(
        &mut self,
        bytes: &[u8],
        trusted: bool,
        buckets: &Buckets,
    ) -> Result<(), &'static str> {
        let (page, sequence) = (self.cursor.page, layout::sequence(bytes));
        if sequence > self.cursor.from {
            self.vanished = true;
            self.cut(buckets);
            return Ok(());
        }
        let (bits, scarred) = (buckets.bits(), buckets.is_scarred(page));
        while !self.finished && self.cursor.page == page {
            let found =
                last(bytes, self.cursor.before, (trusted, scarred), |record| match &self.detour {
                    Some(detour) => detour.wants(record, self.rule.seed),
                    None => !record.is_loose() && bucket_of(record.hash, bits) == self.bucket,
                })?;
            let Some((slot, record, links)) = found else {
                if scarred || self.detour.is_some() {
                    // It may have moved, and its block may be used anew.
                    self.vanished |= self.leads_to_known();
                    self.cut(buckets);
                    continue;
                }
                return Err(NOT_THERE);
            };
            let place = RecordPlace { page, slot };
            if self.knows(place, sequence) {
                (self.finished, self.joined) = (true, true);
                return Ok(());
            }
            let begin = self.bytes.len();
            let end = begin + record.bytes();
            self.bytes.resize(end, 0);
            record.write(&mut self.bytes[begin..]);
            let is_of_run = self.detour.as_ref().is_some_and(|detour| detour.is_of_run);
            let is_loose = record.is_loose();
            self.records.push(Gathered { begin, end, place, sequence, is_loose, is_of_run });
            self.go_on(&record, links, place, sequence);
            if self.cursor.page == NO_PAGE {
                self.cut(buckets);
            }
        }
        Ok(())
    }

    /// Whether a record was gathered before.
    fn knows(&self, place: RecordPlace, sequence: u64) -> bool {
        if is_planted!(JoinsUsedAnew) {
            return self.known.binary_search_by_key(&place, |&(place, _)| place).is_ok();
        }
        self.known.binary_search(&(place, sequence)).is_ok()
    }

    fn leads_to_known(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| matches!(detour.to, DetourTo::Known(_)))
    }

    /// Goes on from a record: to what nothing else leads to, as long as a reader may want that; else by the
    /// chain.
    fn go_on(&mut self, record: &Record<'_>, links: Links, place: RecordPlace, sequence: u64) {
        let (back, is_of_run) = match self.detour.take() {
            Some(detour) => (detour.back, detour.is_of_run),
            None => (ChainCursor::to(links.next, place, sequence), false),
        };
        if links.loose_prior && record.version.timestamp > self.rule.mark {
            self.cursor = ChainCursor::to(links.prior, place, sequence);
            let to = DetourTo::Loose(name_of(record, self.rule.seed));
            self.detour = Some(Detour { to, is_of_run, back });
        } else {
            self.cursor = back;
        }
    }

    /// Whether it has come to the end, or met what was gathered before.
    pub(super) fn is_over(&self) -> bool {
        self.finished
    }

    /// The record that was gathered.
    pub(super) fn record(&self, gathered: &Gathered) -> Record<'_> {
        work::look();
        Record::read(&self.bytes[gathered.begin..gathered.end]).expect("it was written here")
    }

    /// Whether nothing was linked in front since it began.
    pub(super) fn is_all(&self, buckets: &Buckets) -> bool {
        let head = buckets.head(self.bucket);
        self.head == head && (head == NO_PAGE || !self.from_memory)
    }

    /// The records are behind those that `front` has gathered since.
    pub(super) fn put_in_front(&mut self, front: &Self) {
        (self.head, self.from_memory) = (front.head, front.from_memory);
        let moved = self.bytes.len();
        self.bytes.extend_from_slice(&front.bytes);
        let front = front.records.iter().map(|one| Gathered {
            begin: one.begin + moved,
            end: one.end + moved,
            ..*one
        });
        self.records.splice(0..0, front);
    }

    /// Bytes of its records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a record lies in a block.
    pub(super) fn is_in(&self, at: usize, block: Option<BlockId>, blocks: &Blocks) -> bool {
        Some(blocks.of(PageId(self.records[at].place.page))) == block
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_types::{ClientId, KeyspaceId};

    use super::super::contents::FrugalContents;
    use super::super::{Skimpy, SkimpyConfig};
    use super::*;
    use crate::api::prelude::*;
    use crate::kit::ledger::Held;
    use crate::kit::writer::StreamId;

    fn gathered(core: &FrugalContents, before: Option<&Gathering>) -> Gathering {
        let mut gathering = core.gathering(0, before);
        while let Some(page) = gathering.page(&core.buckets, &core.kit.volume.blocks) {
            let Some(bytes) = core.kit.volume.page_in_group(PageId(page)) else { break };
            let bytes = bytes.to_vec();
            gathering.look(&bytes, true, &core.buckets).expect("it is sound");
        }
        gathering
    }

    /// A bucket is gathered, a block with a record of it is erased, and what is put into the bucket then
    /// gets that record's place: how many records are gathered since.
    fn records_since_in_a_page_that_is_used_anew() -> usize {
        let config = MemoryConfig {
            pages_per_block: 2,
            initial_blocks: 64,
            max_blocks: 64,
            ..MemoryConfig::default()
        };
        let device = Box::new(MemoryMedia::new(config).open());
        let config = SkimpyConfig { keys: 1, cache_bytes: 0, loose: false, ..Default::default() };
        let (mut store, _) = Skimpy::open(device, config).expect("opens");
        let seed = store.seed();
        let names: Vec<[u8; 4]> = (0..100u32).map(u32::to_be_bytes).collect();
        let keys = names.iter().map(|name| KeyRef::new(seed, KeyspaceId::DEFAULT, name));
        let (own, others): (Vec<_>, Vec<_>) = keys.partition(|key| key.hash.0 >> 63 == 0);
        let version = |n| Version::new(Timestamp::from_nanos(n), ClientId::new(1));
        let value = [7; 3000];
        for (key, n) in [(own[0], 5), (others[0], 5), (own[0], 6), (others[1], 6)] {
            store.put(key, version(n), &value, Expiry::NEVER).expect("there is room");
        }
        let whole = gathered(&store.core, None);
        assert_eq!(whole.records.len(), 2);
        let place = whole.records[1].place;
        let block = store.core.kit.volume.blocks.of(PageId(place.page));
        let mut now = 0;
        let mut pump = |store: &mut Skimpy| {
            now += 1_000_000;
            store.pump(Timestamp::from_nanos(now), &mut Vec::new());
        };
        store.begin_batch(2);
        store.sync_soon();
        (0..20).for_each(|_| pump(&mut store));
        assert_eq!(store.core.log.pop_front(), Some(block));
        store.core.kit.volume.erase(block);
        (0..20).for_each(|_| pump(&mut store));
        let link = |core: &mut FrugalContents, key: KeyRef<'_>| {
            let record = Record {
                kind: RecordKind::Value,
                keyspace: key.keyspace,
                hash: key.hash,
                version: version(7),
                expires_at: Expiry::NEVER,
                key: key.bytes,
                value: &value,
                links: None,
            };
            core.link(&record, SoughtKey::of(key).name, Held::NOTHING, 0)
        };
        let core = &mut store.core;
        let (mut at, blocks) = (0, core.kit.volume.blocks.count());
        while core.kit.volume.blocks.free_count() > 1
            || core.kit.volume.writer.pages_left(StreamId::Hot, &core.kit.volume.blocks) > 0
        {
            link(core, others[2 + at % 8]).expect("there is room");
            at += 1;
            assert!(at < 2 * blocks as usize, "the least worn blocks are filled first");
        }
        assert_eq!(link(core, own[1]), Some(PageId(place.page)), "it is used anew");
        gathered(core, Some(&whole)).records.len()
    }

    /// *Otherwise* what was put meanwhile is taken for what was gathered before: the bucket is written
    /// without it.
    #[test]
    fn what_lies_where_something_was_before_is_gathered() {
        assert_eq!(records_since_in_a_page_that_is_used_anew(), 1);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn what_is_taken_for_what_lay_there_before_is_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::JoinsUsedAnew, records_since_in_a_page_that_is_used_anew), 0);
    }
}

//! What survives a power cut: the pages and generations of a memory device, and the faults ordered
//! for it.
//!
//! ```text
//!   MemoryMedia (shared handle, for tests)          MemoryDevice (one at a time, opened on it)
//!     inject, flip_bit, set_full, power_cut ──► Media ◄── programs, erases, syncs
//! ```
//!
//! A page that is programmed changes at once, and its former content is kept until a sync covers
//! it: a power cut decides from its seed whether the page is kept, lost or torn between sectors.
//! Erases that have not completed may or may not have happened.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::FlashClock;
use crate::device::{BlockId, Generation, PAGE_BYTES, PageId};
use crate::dice::FaultDice;
use crate::error::FlashError;
use crate::faults::{Fault, FaultOrders, OpKind};
use crate::limits::SECTOR_BYTES;
use crate::memory::MemoryDevice;

/// How long operations take; see [`MemoryMedia::set_pace`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashPace {
    /// A read, and each further page of it.
    pub read: Duration,
    /// A program.
    pub program: Duration,
    /// What each page of a read or program adds.
    pub per_page: Duration,
    /// An erase, or a growth.
    pub erase: Duration,
    /// A sync.
    pub sync: Duration,
    /// Each operation takes up to this much longer, as drawn.
    pub spread: Duration,
    /// What the draws derive from.
    pub seed: u64,
}

impl FlashPace {
    fn of(&self, kind: OpKind, pages: u32) -> Duration {
        match kind {
            OpKind::Read => self.read + self.per_page * pages,
            OpKind::Program => self.program + self.per_page * pages,
            OpKind::Erase | OpKind::Grow => self.erase,
            OpKind::Sync => self.sync,
        }
    }
}

/// A power cut at a chosen operation, and what it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerCut {
    /// The program, erase, sync or growth of this number, counted from 1 since the order was given,
    /// is the last that starts.
    pub operation: u32,
    /// Bytes of it that arrive, when it is a program; an erase or growth happened when this is not
    /// zero.
    pub keep_bytes: usize,
    /// What becomes of everything else that no sync covers.
    pub others: Unsettled,
}

/// What becomes of writes that no sync covers when the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsettled {
    /// They arrived.
    Kept,
    /// They did not.
    Lost,
    /// Each was kept, lost or torn between sectors, as the seed has it.
    Drawn(u64),
}

/// Shape and manners of a memory device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Pages of every block.
    pub pages_per_block: u32,
    /// Blocks usable at first.
    pub initial_blocks: u32,
    /// Blocks it may grow to.
    pub max_blocks: u32,
    /// Most operations in flight.
    pub queue_depth: u32,
    /// Most completions a poll delivers: fewer keep operations in flight longer.
    pub completions_per_poll: usize,
    /// Completes operations in an order drawn from this seed, as far as the rules leave it open;
    /// `None`: in order of submission.
    pub shuffle: Option<u64>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            pages_per_block: crate::limits::DEFAULT_PAGES_PER_BLOCK,
            initial_blocks: 16,
            max_blocks: 64,
            queue_depth: crate::limits::DEFAULT_QUEUE_DEPTH,
            completions_per_poll: usize::MAX,
            shuffle: None,
        }
    }
}

/// The medium of a memory device: outlives the device, takes orders for faults. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemoryMedia {
    shared: Arc<Mutex<Media>>,
    config: MemoryConfig,
}

impl MemoryMedia {
    /// A fresh medium of erased blocks.
    ///
    /// # Panics
    /// When the configuration has no pages or more blocks at first than at most, or its pages
    /// cannot be numbered in 32 bits.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        assert!(config.pages_per_block > 0 && config.initial_blocks <= config.max_blocks);
        assert!(
            config.max_blocks.checked_mul(config.pages_per_block).is_some(),
            "pages are numbered in 32 bits"
        );
        let media = Media {
            pages_per_block: config.pages_per_block,
            generations: vec![Generation::FIRST; config.initial_blocks as usize],
            pages: vec![None; (config.initial_blocks * config.pages_per_block) as usize],
            fresh: true,
            ..Media::default()
        };
        Self { shared: Arc::new(Mutex::new(media)), config }
    }

    /// Opens the device. A device opened before on the same medium stops working, as after a
    /// restart of the machine.
    #[must_use]
    pub fn open(&self) -> MemoryDevice {
        MemoryDevice::open(self.clone(), self.config)
    }

    /// The same medium, which may grow to so many blocks, or to as many as before where that is
    /// more.
    #[must_use]
    pub fn with_room(&self, max_blocks: u32) -> Self {
        let max_blocks = self.config.max_blocks.max(max_blocks);
        Self {
            shared: Arc::clone(&self.shared),
            config: MemoryConfig { max_blocks, ..self.config },
        }
    }

    /// Whether both are one medium.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// From now on the device lies: syncs are acknowledged, and what they cover stays in a cache
    /// that a cut of the power takes. When it no longer lies, all that it has acknowledged is
    /// synced at once.
    pub fn set_lying(&self, lying: bool) {
        self.lock().set_lying(lying);
    }

    /// Sets how long operations take that are submitted from now on; `None`: each poll completes
    /// them. With a pace, an operation completes at the first poll at which the medium's clock has
    /// come so far, or when somebody blocks on the device.
    pub fn set_pace(&self, pace: Option<FlashPace>) {
        self.lock().pacing.pace = pace;
    }

    /// Moves the medium's clock, in nanoseconds of any origin.
    pub fn set_now(&self, nanos: u64) {
        self.lock().pacing.clock.set(nanos);
    }

    /// When something under way completes next, by the medium's clock.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.lock().pacing.next_due
    }

    /// How many operations, and of how many bytes together, were asked for since the medium was
    /// made.
    #[must_use]
    pub fn asked(&self) -> (u64, u64) {
        self.lock().asked
    }

    /// Orders a fault.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.single.add(fault);
    }

    /// From now on every read fails that is of one of these pages, be it of others as well: until
    /// the page is written again, or the faults are taken back.
    pub fn fail_reads_of(&self, pages: impl IntoIterator<Item = PageId>) {
        self.lock().faults.unreadable.extend(pages);
    }

    /// Takes back the faults that have not struck yet, and those of pages that cannot be read.
    pub fn clear_faults(&self) {
        let faults = &mut self.lock().faults;
        faults.single.clear();
        faults.unreadable.clear();
    }

    /// Faults that were ordered and have not struck yet.
    #[must_use]
    pub fn pending_faults(&self) -> usize {
        self.lock().faults.single.pending()
    }

    /// Flips one bit (0 to 32 767) of a page as it is now: rot. Says whether the page ever held
    /// data; nothing is flipped otherwise.
    pub fn flip_bit(&self, page: PageId, bit: usize) -> bool {
        let mut media = self.lock();
        match media.pages.get_mut(page.0 as usize) {
            Some(Some(bytes)) => {
                bytes[bit / 8 % PAGE_BYTES] ^= 1 << (bit % 8);
                true
            }
            _ => false,
        }
    }

    /// The bytes of a page as they are now; `None` when it never held any.
    #[must_use]
    pub fn page(&self, page: PageId) -> Option<Vec<u8>> {
        self.lock().pages.get(page.0 as usize)?.as_ref().map(|bytes| bytes.to_vec())
    }

    /// Puts other bytes where a page is, whatever was there: for images made by hand. At most a
    /// page of them counts; the rest of it is zeros. The medium counts as used from then on.
    pub fn set_page(&self, page: PageId, content: &[u8]) {
        let mut media = self.lock();
        media.fresh = false;
        media.faults.unreadable.remove(&page);
        if let Some(bytes) = media.pages.get_mut(page.0 as usize) {
            let count = content.len().min(PAGE_BYTES);
            let mut whole = blank();
            whole[..count].copy_from_slice(&content[..count]);
            *bytes = Some(whole);
        }
    }

    /// Makes every growth fail for lack of space, or no longer.
    pub fn set_full(&self, full: bool) {
        self.lock().faults.full = full;
    }

    /// Cuts the power: every page not covered by a completed sync is kept, lost or torn, every
    /// unfinished erase happened or not, all as the seed has it. The device that was open answers
    /// everything with an error from now on.
    pub fn power_cut(&self, seed: u64) {
        self.lock().power_cut(seed);
    }

    /// Ends the process that has the device open, and leaves the machine on: what completed is in a
    /// cache, where the next opening reads it and a later cut of the power may lose it. Of what was
    /// under way each page is there or not, each erase happened or not, as the seed has it.
    pub fn kill(&self, seed: u64) {
        self.lock().kill(seed);
    }

    /// Cuts the power at an operation to come: its program arrives in part, what no sync covers
    /// meets the given fate, and the device that was open answers everything with an error from
    /// then on.
    pub fn cut_power_at(&self, cut: PowerCut) {
        self.lock().faults.cut = Some(cut);
    }

    /// Since a cut that was ordered has come: bytes that its operation would have changed (a page
    /// for what is not a program). `None` before that.
    #[must_use]
    pub fn interrupted_bytes(&self) -> Option<usize> {
        self.lock().faults.interrupted
    }

    /// When the open device is dropped, a part of what it accepted since its last poll, from the
    /// front and as long as the seed has it, reaches the medium: its process died while it handed
    /// in its operations. Without this order none of it does.
    pub fn cut_submissions(&self, seed: u64) {
        self.lock().faults.parting = Some(seed);
    }

    /// A medium of its own with the same content, and nothing ordered. What no sync covers yet
    /// counts as kept.
    #[must_use]
    pub fn copy(&self) -> Self {
        let media = self.lock();
        let copy = Media {
            pages_per_block: media.pages_per_block,
            generations: media.generations.clone(),
            pages: media.pages.clone(),
            fresh: media.fresh,
            ..Media::default()
        };
        Self { shared: Arc::new(Mutex::new(copy)), config: self.config }
    }

    /// Pages that a power cut now could lose.
    #[must_use]
    pub fn unsynced_pages(&self) -> usize {
        self.lock().unsynced.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Media> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type PageBytes = Box<[u8]>;

/// A programmed page that no sync has covered yet.
#[derive(Debug)]
struct Unsynced {
    page: PageId,
    before: Option<PageBytes>,
    /// When its program completed, in ticks of `Media::clock`.
    completed_at: Option<u64>,
}

/// What is to go wrong, as ordered, and what has.
#[derive(Debug, Default)]
pub(crate) struct OrderedFaults {
    pub(crate) single: FaultOrders,
    /// Pages that are not read.
    unreadable: BTreeSet<PageId>,
    cut: Option<PowerCut>,
    /// Since the ordered cut has come: bytes of the operation that it struck.
    interrupted: Option<usize>,
    /// Draws what the open device leaves when it is dropped.
    pub(crate) parting: Option<u64>,
    /// Growths fail for lack of space.
    pub(crate) full: bool,
}

impl OrderedFaults {
    /// Counts one operation that would change the medium, of so many bytes, against an ordered cut;
    /// gives what is to arrive of it when that is the one.
    pub(crate) fn struck_by_cut(&mut self, bytes: usize) -> Option<PowerCut> {
        let cut = self.cut.as_mut()?;
        cut.operation = cut.operation.saturating_sub(1);
        if cut.operation > 0 {
            return None;
        }
        self.interrupted = Some(bytes);
        self.cut.take()
    }

    /// Whether one of these pages is not read.
    pub(crate) fn strike_pages(&self, page: PageId, pages: u32) -> bool {
        self.unreadable.range(page..PageId(page.0 + pages)).next().is_some()
    }

    /// A device is opened: what concerned the one before is over.
    fn begin_session(&mut self) {
        self.interrupted = None;
        self.parting = None;
    }
}

/// How long operations take, by a clock that tests move.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    pace: Option<FlashPace>,
    draws: u64,
    /// The simulator moves it.
    pub(crate) clock: FlashClock,
    /// When the first operation of the open device is over.
    pub(crate) next_due: Option<u64>,
}

impl Pacing {
    /// When an operation submitted now is over; zero without a pace.
    fn due(&mut self, kind: OpKind, pages: u32) -> u64 {
        let Some(pace) = self.pace else { return 0 };
        self.draws += 1;
        let mut dice = FaultDice::new(pace.seed ^ self.draws.rotate_left(32));
        let nanos = |span: Duration| usize::try_from(span.as_nanos()).unwrap_or(usize::MAX / 2);
        let longer = dice.below(nanos(pace.spread) + 1) as u64;
        self.clock.now().saturating_add(nanos(pace.of(kind, pages)) as u64).saturating_add(longer)
    }
}

/// The medium itself.
#[derive(Debug, Default)]
pub(crate) struct Media {
    pages_per_block: u32,
    pub(crate) generations: Vec<Generation>,
    pages: Vec<Option<PageBytes>>,
    unsynced: Vec<Unsynced>,
    /// It lies about syncs, and this is the latest moment that it says one has covered.
    lying: Option<u64>,
    /// Erases that were started and have not completed.
    erasing: Vec<BlockId>,
    pub(crate) faults: OrderedFaults,
    /// Never opened: all extents are known to be empty.
    pub(crate) fresh: bool,
    /// Rises at each opening and power cut; a device of an older session is dead.
    pub(crate) session: u64,
    clock: u64,
    pub(crate) pacing: Pacing,
    /// Operations and bytes that were asked for.
    asked: (u64, u64),
}

impl Media {
    /// When an operation submitted now is over; zero without a pace.
    pub(crate) fn due(&mut self, kind: OpKind, pages: u32) -> u64 {
        self.asked.0 += 1;
        self.asked.1 += u64::from(pages) * PAGE_BYTES as u64;
        self.pacing.due(kind, pages)
    }

    /// Copies pages out; what was never programmed reads as zeros.
    pub(crate) fn read(&self, page: PageId, into: &mut [u8]) {
        for (offset, target) in into.chunks_exact_mut(PAGE_BYTES).enumerate() {
            match &self.pages[page.0 as usize + offset] {
                Some(bytes) => target.copy_from_slice(bytes),
                None => target.fill(0),
            }
        }
    }

    /// Programs pages, of which only the first `keep_bytes` arrive.
    pub(crate) fn program(&mut self, page: PageId, bytes: &[u8], keep_bytes: usize) {
        for (offset, source) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let id = PageId(page.0 + offset as u32);
            let kept = keep_bytes.saturating_sub(offset * PAGE_BYTES).min(PAGE_BYTES);
            self.faults.unreadable.remove(&id);
            let before = self.pages[id.0 as usize].take();
            let mut after = before.clone().unwrap_or_else(blank);
            after[..kept].copy_from_slice(&source[..kept]);
            self.pages[id.0 as usize] = Some(after);
            self.unsynced.push(Unsynced { page: id, before, completed_at: None });
        }
    }

    /// The page at which a misdirected program lands.
    pub(crate) fn astray(&self, page: PageId, off: u32, pages: u32) -> PageId {
        let last = (self.pages.len() as u32).saturating_sub(pages);
        PageId(page.0.wrapping_add(off) % (last + 1))
    }

    /// What is on the medium now stays there.
    pub(crate) fn settle_page_writes(&mut self) {
        self.unsynced.clear();
    }

    /// The program of these pages has completed: from now on a sync covers them.
    pub(crate) fn program_completed(&mut self, page: PageId, pages: u32) {
        self.clock += 1;
        let range = page.0..page.0 + pages;
        for entry in self.unsynced.iter_mut().filter(|entry| range.contains(&entry.page.0)) {
            entry.completed_at.get_or_insert(self.clock);
        }
    }

    /// The moment that a sync submitted now covers.
    pub(crate) fn moment(&self) -> u64 {
        self.clock
    }

    /// A sync of that moment has completed.
    pub(crate) fn sync_completed(&mut self, moment: u64) {
        if let Some(claimed) = &mut self.lying {
            *claimed = moment.max(*claimed);
            return;
        }
        self.unsynced.retain(|entry| entry.completed_at.is_none_or(|completed| completed > moment));
    }

    fn set_lying(&mut self, lying: bool) {
        let claimed = self.lying.take();
        if lying {
            self.lying = Some(claimed.unwrap_or(0));
        } else if let Some(claimed) = claimed {
            self.sync_completed(claimed);
        }
    }

    /// An erase has started: a power cut may find it done.
    pub(crate) fn erase_started(&mut self, block: BlockId) {
        self.erasing.push(block);
    }

    /// The erase has ended; `succeeded` makes it durable. The pages keep their content until they
    /// are programmed again.
    pub(crate) fn erase_ended(&mut self, block: BlockId, succeeded: bool) {
        self.erasing.retain(|&erasing| erasing != block);
        if succeeded {
            self.raise_generation(block);
        }
    }

    /// A generation that recovery found to be higher than the table's.
    pub(crate) fn adopt(&mut self, block: BlockId, generation: Generation) {
        self.generations[block.0 as usize] = generation;
    }

    /// Adds erased blocks.
    pub(crate) fn grow_to(&mut self, blocks: u32) {
        self.generations.resize(blocks as usize, Generation::FIRST);
        self.pages.resize((blocks * self.pages_per_block) as usize, None);
    }

    /// The next session, in which all extents are unknown. Says whether the medium had never been
    /// opened.
    pub(crate) fn begin_session(&mut self) -> bool {
        self.session += 1;
        self.pacing.next_due = None;
        self.erasing.clear();
        // What a device still had under way when it was dropped is in the cache: a sync covers it, and
        // nothing that becomes of the next device takes it back.
        self.clock += 1;
        let under_way = self.unsynced.iter_mut().filter(|entry| entry.completed_at.is_none());
        under_way.for_each(|entry| entry.completed_at = Some(self.clock));
        self.faults.begin_session();
        std::mem::replace(&mut self.fresh, false)
    }

    /// Settles everything that no sync covers, and ends the session.
    pub(crate) fn settle_by_cut(&mut self, fate: Unsettled) {
        match fate {
            Unsettled::Kept => {
                self.unsynced.clear();
                for block in std::mem::take(&mut self.erasing) {
                    self.raise_generation(block);
                }
            }
            Unsettled::Lost => {
                for entry in std::mem::take(&mut self.unsynced).into_iter().rev() {
                    self.pages[entry.page.0 as usize] = entry.before;
                }
                self.erasing.clear();
            }
            Unsettled::Drawn(seed) => return self.power_cut(seed),
        }
        self.session += 1;
    }

    fn raise_generation(&mut self, block: BlockId) {
        let generation = &mut self.generations[block.0 as usize];
        *generation = generation.next();
    }

    fn kill(&mut self, seed: u64) {
        let mut dice = FaultDice::new(seed);
        self.session += 1;
        self.pacing.next_due = None;
        self.clock += 1;
        let mut kept = Vec::new();
        for mut entry in std::mem::take(&mut self.unsynced).into_iter().rev() {
            if entry.completed_at.is_none() && dice.below(2) == 0 {
                self.pages[entry.page.0 as usize] = entry.before;
            } else {
                entry.completed_at.get_or_insert(self.clock);
                kept.push(entry);
            }
        }
        kept.reverse();
        self.unsynced = kept;
        for block in std::mem::take(&mut self.erasing) {
            if dice.below(2) == 0 {
                self.raise_generation(block);
            }
        }
    }

    fn power_cut(&mut self, seed: u64) {
        let mut dice = FaultDice::new(seed);
        self.session += 1;
        self.pacing.next_due = None;
        self.lying = self.lying.map(|_| 0);
        let mut settled = BTreeSet::new();
        for entry in std::mem::take(&mut self.unsynced).into_iter().rev() {
            if settled.contains(&entry.page) {
                continue;
            }
            let current = &mut self.pages[entry.page.0 as usize];
            match dice.below(4) {
                // Lost: an older unsynced program of the page, after an erase, has its own fate.
                0 => *current = entry.before,
                // Torn: some sectors arrived, from the front, before the power went.
                1 => {
                    let arrived = dice.below(PAGE_BYTES / SECTOR_BYTES) * SECTOR_BYTES;
                    let mut torn = entry.before.unwrap_or_else(blank);
                    if let Some(bytes) = current {
                        torn[..arrived].copy_from_slice(&bytes[..arrived]);
                    }
                    *current = Some(torn);
                    settled.insert(entry.page);
                }
                // Kept: the cache had been written back in time.
                _ => {
                    settled.insert(entry.page);
                }
            }
        }
        for block in std::mem::take(&mut self.erasing) {
            if dice.below(2) == 0 {
                self.raise_generation(block);
            }
        }
    }
}

/// The error of a device whose medium has gone on without it.
pub(crate) fn powered_off() -> FlashError {
    FlashError::Failed { reason: "the power was cut, or the medium was opened again" }
}

fn blank() -> PageBytes {
    vec![0; PAGE_BYTES].into_boxed_slice()
}

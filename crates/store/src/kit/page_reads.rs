//! Page reads in flight: a page is read once for all who want it.
//!
//! ```text
//!   wait ─► first for its page? ─► on the device: read    ─► completion ─┐
//!             └─ no: joins          in a group: next pump ─► copy ───────┴─► arrived ─► next …
//! ```
//!
//! What a waiter is, and what it does with its page, is the store's: this part only keeps it.
//!
//! Hidden dependency that this part made explicit: pages that are still in a group when somebody
//! waits for them were kept by the walks; they are reads in flight like all others.
//!
//! Invariants: a page is in `first` if and only if one read of it is queued or under way; its
//! waiters hold one pin of the block together.

use std::collections::BTreeMap;

use timestone_flash::{FlashError, PageId};

use super::port::Purpose;
use super::volume::Volume;
use crate::error::StoreError;

const NONE: u32 = u32::MAX;

/// The waiters of a page that has been read, in the reverse order of their asking.
#[derive(Debug)]
pub(crate) struct Waiting(u32);

impl Waiting {
    /// Whether the last one has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == NONE
    }
}

/// Why a page cannot be looked at: all who wait for it are told.
#[derive(Debug)]
pub(crate) enum PageFailure {
    /// It is not what was written there.
    Damaged(&'static str),
    /// The device did not read it.
    Unread(FlashError),
}

impl PageFailure {
    /// What is wrong with a page that has been read, if anything is. Damage is counted.
    pub(crate) fn of(
        page: PageId,
        result: Result<(), FlashError>,
        bytes: &[u8],
        volume: &mut Volume,
    ) -> Option<Self> {
        if let Err(error) = result {
            return Some(Self::Unread(error));
        }
        let reason = volume.verify(page, bytes).err()?;
        volume.corrupt += 1;
        Some(Self::Damaged(reason))
    }

    /// For one of those who wait.
    pub(crate) fn error(&self, page: PageId) -> StoreError {
        match self {
            Self::Damaged(reason) => StoreError::Corrupt { page: page.0, reason },
            Self::Unread(error) => StoreError::Flash(error.told_again()),
        }
    }
}

/// All page reads in flight; `W` is whoever waits.
pub(crate) struct PageReads<W> {
    /// Waiters, with the next one of the same page.
    waiters: Vec<Option<(W, u32)>>,
    free: Vec<u32>,
    /// By page: its waiter that came last.
    first: BTreeMap<u32, u32>,
    /// Pages that are in groups: served at the next pump.
    in_groups: Vec<PageId>,
    /// Reads of the device so far.
    issued: u64,
}

impl<W> PageReads<W> {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            waiters: Vec::new(),
            free: Vec::new(),
            first: BTreeMap::new(),
            in_groups: Vec::new(),
            issued: 0,
        }
    }

    /// Reads of the device so far.
    pub(crate) const fn issued(&self) -> u64 {
        self.issued
    }

    /// Whoever waits.
    pub(crate) fn waiters_mut(&mut self) -> impl Iterator<Item = &mut W> + '_ {
        self.waiters.iter_mut().flatten().map(|(waiter, _)| waiter)
    }

    /// Whether the next pump can serve somebody.
    pub(crate) fn has_work(&self) -> bool {
        !self.in_groups.is_empty()
    }

    /// Queues a waiter for its page, and has the page read if nobody waited for it yet.
    pub(crate) fn wait(&mut self, page: PageId, waiter: W, volume: &mut Volume) {
        let next = self.first.get(&page.0).copied().unwrap_or(NONE);
        let entry = Some((waiter, next));
        let slot = match self.free.pop() {
            Some(slot) => {
                debug_assert!(self.waiters[slot as usize].is_none(), "a free slot is empty");
                self.waiters[slot as usize] = entry;
                slot
            }
            None => {
                self.waiters.push(entry);
                (self.waiters.len() - 1) as u32
            }
        };
        self.first.insert(page.0, slot);
        if next != NONE {
            return;
        }
        if volume.is_on_device(page) {
            self.issued += 1;
            volume.read(Purpose::PageRead, u64::from(page.0), page, 1);
        } else {
            volume.blocks.pin(volume.blocks.of(page));
            self.in_groups.push(page);
        }
    }

    /// The pages that were in groups when somebody asked for them. What is still there is to be
    /// copied from its group; for what is not, call [`Self::read_after_all`].
    pub(crate) fn take_group_pages(&mut self) -> Vec<PageId> {
        debug_assert!(self.in_groups.len() <= self.first.len(), "somebody waits for each of them");
        core::mem::take(&mut self.in_groups)
    }

    /// Gives the vector of [`Self::take_group_pages`] back, for its memory.
    pub(crate) fn recycle(&mut self, pages: Vec<PageId>) {
        debug_assert!(pages.is_empty());
        if self.in_groups.is_empty() {
            self.in_groups = pages;
        }
    }

    /// A page has left its group meanwhile: it is read.
    pub(crate) fn read_after_all(&self, page: PageId, volume: &mut Volume) {
        assert!(self.first.contains_key(&page.0), "somebody waits for it");
        volume.read_pinned(Purpose::PageRead, u64::from(page.0), page, 1);
    }

    /// A page has arrived: its waiters. From here on it may be waited for anew.
    pub(crate) fn arrived(&mut self, page: PageId, volume: &mut Volume) -> Waiting {
        volume.blocks.unpin(volume.blocks.of(page));
        let first = self.first.remove(&page.0);
        debug_assert!(first.is_some(), "a page is read for somebody");
        Waiting(first.unwrap_or(NONE))
    }

    /// The next of the waiters.
    pub(crate) fn next(&mut self, waiting: &mut Waiting) -> Option<W> {
        let slot = waiting.0;
        let (waiter, next) = self.waiters.get_mut(slot as usize)?.take()?;
        debug_assert!(self.free.len() < self.waiters.len(), "a place is free once");
        self.free.push(slot);
        waiting.0 = next;
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::super::volume::tests::{run_until_idle, volume};
    use super::super::writer::StreamId;
    use super::*;
    use crate::layout::PageKind;

    fn page(volume: &mut Volume) -> PageId {
        let page = volume.append_raw(StreamId::Large, PageKind::LargePart, 0, 0, |_| {});
        page.expect("there is room")
    }

    fn all(reads: &mut PageReads<u32>, mut waiting: Waiting) -> Vec<u32> {
        core::iter::from_fn(|| reads.next(&mut waiting)).collect()
    }

    #[test]
    fn a_page_is_read_once_for_all_who_want_it() {
        let (mut volume, mut reads) = (volume(), PageReads::new());
        let (one, other) = (page(&mut volume), page(&mut volume));
        volume.flush_all();
        run_until_idle(&mut volume);
        for (page, waiter) in [(one, 1), (other, 2), (one, 3)] {
            reads.wait(page, waiter, &mut volume);
        }
        let done = run_until_idle(&mut volume);
        let numbers: Vec<u64> = done.iter().map(|&(_, number, _)| number).collect();
        assert_eq!(numbers, [u64::from(one.0), u64::from(other.0)]);
        assert_eq!(reads.issued(), 2);
        let waiting = reads.arrived(one, &mut volume);
        assert_eq!(all(&mut reads, waiting), [3, 1]);
        assert_eq!(volume.blocks.get(volume.blocks.of(one)).readers, 1, "the other one's");
        let waiting = reads.arrived(other, &mut volume);
        assert_eq!(all(&mut reads, waiting), [2]);
        assert_eq!(volume.blocks.get(volume.blocks.of(one)).readers, 0);
    }

    #[test]
    fn a_page_in_a_group_waits_for_the_next_pump_without_a_read() {
        let (mut volume, mut reads) = (volume(), PageReads::new());
        let page = page(&mut volume);
        reads.wait(page, 1, &mut volume);
        assert!(reads.has_work());
        assert_eq!(reads.take_group_pages(), [page]);
        assert_eq!((reads.issued(), reads.has_work()), (0, false));
        assert!(volume.copy_of_group_page(page).is_some());
        let waiting = reads.arrived(page, &mut volume);
        assert_eq!(all(&mut reads, waiting), [1]);
    }

    #[test]
    fn a_page_can_be_waited_for_anew_while_its_waiters_are_served() {
        let (mut volume, mut reads) = (volume(), PageReads::new());
        let page = page(&mut volume);
        volume.flush_all();
        run_until_idle(&mut volume);
        reads.wait(page, 1, &mut volume);
        reads.wait(page, 2, &mut volume);
        run_until_idle(&mut volume);
        let mut waiting = reads.arrived(page, &mut volume);
        assert_eq!(reads.next(&mut waiting), Some(2));
        reads.wait(page, 3, &mut volume);
        assert_eq!(all(&mut reads, waiting), [1]);
        assert_eq!(run_until_idle(&mut volume).len(), 1);
        let waiting = reads.arrived(page, &mut volume);
        assert_eq!(all(&mut reads, waiting), [3]);
    }
}

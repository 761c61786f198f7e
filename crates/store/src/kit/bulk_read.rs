//! Reading much of a device at once, and syncing it: for recovery, which waits for both.
//!
//! ```text
//!   jobs ─► up to `depth` reads in flight ─► take, in any order ─► their buffers again
//!    ▲                  │
//!    └─ page by page ◄──┘ those of several pages that failed
//! ```
//!
//! A read of several pages that fails says nothing of any of them: a page that cannot be read would
//! make its neighbours look lost. So they are read again one by one.
//!
//! What it deliberately does not do: share the device. Nobody else asks it for anything meanwhile.
//!
//! Invariant: a slot of `running` is taken exactly while its read is in flight.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use timestone_flash::{
    AlignedBuffer, BlockId, FlashCompletion, FlashDevice, FlashError, FlashOp, Geometry,
    PAGE_BYTES, PageId, RejectedReason, Token,
};

use super::port::Purpose;
use crate::error::StoreError;

/// Pages that a scan reads together.
const SCAN_PAGES: u32 = 64;

/// Pages that are read together: the first, and how many.
pub(crate) type PageRange = (PageId, u32);

/// The pages of a block from one on, so many together as a scan reads.
pub(crate) fn chunks(
    geometry: Geometry,
    block: BlockId,
    from: u32,
) -> impl Iterator<Item = PageRange> {
    (from..geometry.pages_per_block).step_by(SCAN_PAGES as usize).map(move |index| {
        (geometry.page(block, index), SCAN_PAGES.min(geometry.pages_per_block - index))
    })
}

/// Pages, those that lie one behind the other in a block together.
pub(crate) fn runs(pages: &BTreeSet<PageId>, geometry: Geometry) -> Vec<PageRange> {
    let mut runs: Vec<PageRange> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((first, count))
                if first.0 + *count == page.0
                    && *count < SCAN_PAGES
                    && geometry.block_of(*first) == geometry.block_of(page) =>
            {
                *count += 1;
            }
            _ => runs.push((page, 1)),
        }
    }
    runs
}

struct BulkRead {
    jobs: VecDeque<PageRange>,
    running: Vec<Option<PageRange>>,
    idle: Vec<AlignedBuffer>,
}

impl BulkRead {
    fn buffer(&mut self, pages: u32) -> AlignedBuffer {
        let length = pages as usize * PAGE_BYTES;
        let mut buffer = match self.idle.iter().position(|buffer| buffer.capacity() >= length) {
            Some(at) => self.idle.swap_remove(at),
            None => AlignedBuffer::zeroed(length),
        };
        buffer.set_length(length);
        debug_assert!(buffer.capacity() >= length, "the pages have room");
        buffer
    }

    /// Hands the device as many jobs as it takes.
    fn submit(&mut self, device: &mut dyn FlashDevice) -> Result<(), StoreError> {
        while let Some(slot) = self.running.iter().position(Option::is_none) {
            let Some((page, pages)) = self.jobs.pop_front() else { break };
            let (token, buffer) = (Purpose::Recovery.token(slot as u64), self.buffer(pages));
            match device.submit(FlashOp::Read { token, page, pages, buffer }) {
                Ok(()) => {
                    debug_assert!(self.running[slot].is_none(), "a slot reads one range");
                    self.running[slot] = Some((page, pages));
                }
                Err(rejected) => match rejected.reason {
                    RejectedReason::QueueFull => {
                        self.jobs.push_front((page, pages));
                        break;
                    }
                    RejectedReason::Refused(error) => return Err(error.into()),
                },
            }
        }
        Ok(())
    }

    /// The pages of a read that failed become jobs of their own, the next ones.
    fn read_one_by_one(&mut self, (first, pages): PageRange) {
        debug_assert!(pages > 1, "a page by itself is read once");
        (0..pages).rev().for_each(|offset| self.jobs.push_front((PageId(first.0 + offset), 1)));
    }

    /// The job of a completion.
    fn arrived(&mut self, token: Token) -> Option<PageRange> {
        let (purpose, slot) = Purpose::of(token)?;
        // A device that outlived a store may still complete what that one asked for.
        let slot = self.running.get_mut(slot as usize).filter(|_| purpose == Purpose::Recovery)?;
        let job = slot.take();
        debug_assert!(job.is_some(), "a read completes once");
        job
    }
}

/// Reads pages with many reads in flight; `take` gets each read's bytes as it arrives, and page by
/// page where those of a job could not be read together: only a page that cannot be read by itself
/// is told as failed. How many bytes were read; the first error of `take` ends it.
pub(crate) fn read_all(
    device: &mut dyn FlashDevice,
    jobs: VecDeque<PageRange>,
    depth: usize,
    mut take: impl FnMut(PageRange, Result<(), FlashError>, &[u8]) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    assert!(depth > 0, "nothing would ever be read");
    let mut bulk = BulkRead { jobs, running: vec![None; depth], idle: Vec::new() };
    let mut completions: Vec<FlashCompletion> = Vec::new();
    let mut bytes = 0;
    let mut failure = Ok(());
    loop {
        if failure.is_err() {
            bulk.jobs.clear();
        }
        bulk.submit(device)?;
        if bulk.running.iter().all(Option::is_none) {
            return failure.map(|()| bytes);
        }
        if device.poll(&mut completions) == 0 {
            device.wait(Duration::from_millis(100));
        }
        for FlashCompletion { token, result, buffer } in completions.drain(..) {
            let (Some(job), Some(buffer)) = (bulk.arrived(token), buffer) else { continue };
            bytes += buffer.len() as u64;
            if result.is_err() && job.1 > 1 {
                bulk.read_one_by_one(job);
            } else if failure.is_ok() {
                failure = take(job, result, &buffer);
            }
            bulk.idle.push(buffer);
        }
    }
}

/// Makes durable what was found: a process that was killed leaves pages in a cache, and whoever is
/// told that they are stable gives up the log that has them, too. Blocks.
pub(crate) fn sync(device: &mut dyn FlashDevice) -> Result<(), StoreError> {
    if timestone_types::is_planted!(UnsyncedIsStable) {
        return Ok(());
    }
    let token = Purpose::Recovery.token(0);
    while let Err(rejected) = device.submit(FlashOp::Sync { token }) {
        match rejected.reason {
            RejectedReason::QueueFull => device.wait(Duration::from_millis(10)),
            RejectedReason::Refused(error) => return Err(error.into()),
        }
    }
    let mut completions: Vec<FlashCompletion> = Vec::new();
    loop {
        device.poll(&mut completions);
        match completions.drain(..).find(|completion| completion.token == token) {
            Some(completion) => {
                // The first slot's reads have the same token.
                debug_assert!(completion.buffer.is_none(), "all reads were over before");
                return completion.result.map_err(StoreError::from);
            }
            None => device.wait(Duration::from_millis(100)),
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{BlockId, MemoryConfig, MemoryMedia};

    use super::super::volume::tests::{run_until_idle, volume};
    use super::super::writer::StreamId;
    use super::*;
    use crate::layout::PageKind;

    /// A device of full blocks, and a read of each.
    fn device() -> (Box<dyn FlashDevice>, VecDeque<PageRange>) {
        let mut volume = volume();
        let geometry = volume.geometry();
        for _ in 0..geometry.blocks * geometry.pages_per_block {
            volume.append_raw(StreamId::Large, PageKind::LargePart, 0, 0, |_| {}).expect("room");
        }
        volume.flush_all();
        run_until_idle(&mut volume);
        let jobs = (0..geometry.blocks).map(|block| (geometry.page(BlockId(block), 0), 2));
        (volume.into_device(), jobs.collect())
    }

    #[test]
    fn every_job_is_taken_once_whatever_the_depth() {
        for depth in [1, 3, 50] {
            let (mut device, wanted) = device();
            let mut taken = Vec::new();
            let bytes = read_all(&mut *device, wanted.clone(), depth, |job, _, _| {
                taken.push(job);
                Ok(())
            });
            taken.sort_unstable();
            assert!(taken.iter().eq(&wanted), "depth {depth}");
            assert_eq!(bytes.ok(), Some(2 * PAGE_BYTES as u64 * wanted.len() as u64));
        }
    }

    #[test]
    fn a_page_that_cannot_be_read_is_told_alone() {
        let media = MemoryMedia::new(MemoryConfig::default());
        let pages = media.open().geometry().pages_per_block;
        (0..pages).for_each(|page| media.set_page(PageId(page), &[7; PAGE_BYTES]));
        media.fail_reads_of([PageId(3), PageId(9)]);
        for depth in [1, 16] {
            let (mut read, mut failed) = (Vec::new(), Vec::new());
            let jobs = [(PageId(0), 8), (PageId(8), 2), (PageId(10), 6)];
            let result = read_all(&mut media.open(), jobs.into(), depth, |job, result, bytes| {
                let (first, pages) = job;
                assert_eq!(bytes.len(), pages as usize * PAGE_BYTES);
                assert!(result.is_err() || bytes.iter().all(|&byte| byte == 7));
                let of = if result.is_ok() { &mut read } else { &mut failed };
                of.extend(first.0..first.0 + pages);
                Ok(())
            });
            assert!(result.is_ok());
            read.sort_unstable();
            assert!(read.iter().copied().eq((0..16).filter(|&page| page != 3 && page != 9)));
            failed.sort_unstable();
            assert_eq!(failed, [3, 9], "depth {depth}");
        }
    }

    #[test]
    fn the_first_error_ends_it_when_everything_in_flight_is_back() {
        let (mut device, wanted) = device();
        let mut taken = 0;
        let result = read_all(&mut *device, wanted, 2, |_, _, _| {
            taken += 1;
            Err(StoreError::Busy)
        });
        assert!(matches!(result, Err(StoreError::Busy)) && taken == 1);
        assert_eq!(device.in_flight(), 0);
    }
}

//! A scrub: reads every page of the device once, and checks what it holds.
//!
//! ```text
//!   block 0, 1, … ─► its readable pages, up to 512 KiB at a time ─► checksums ─► report
//! ```
//!
//! One read is under way at a time: a scrub takes as long as it takes, and costs next to nothing.
//!
//! Invariant: `reading` pins its block.

use timestone_flash::{BlockId, PAGE_BYTES, PageId};

use super::blocks::BlockState;
use super::port::Purpose;
use super::volume::Volume;
use super::writer::StreamId;
use crate::api::ScrubReport;
use crate::layout::{self, PageHeader, PageKind, Record};
use crate::limits::GROUP_PAGES;

struct Scrub {
    block: u32,
    page: u32,
    reading: Option<(PageId, u32)>,
    report: ScrubReport,
}

/// The scrub that is under way, if any.
#[derive(Default)]
pub(crate) struct Scrubber {
    scrub: Option<Scrub>,
}

impl Scrubber {
    /// Begins one; one that is under way goes on.
    pub(crate) fn begin(&mut self) {
        let scrub = self.scrub.get_or_insert(Scrub {
            block: 0,
            page: 0,
            reading: None,
            report: ScrubReport::default(),
        });
        debug_assert!(scrub.report.corrupt_pages <= scrub.report.pages, "no page counts twice");
    }

    /// Whether the next pump can do something.
    pub(crate) fn has_work(&self) -> bool {
        self.scrub.as_ref().is_some_and(|scrub| scrub.reading.is_none())
    }

    /// Asks for the next pages; the report when there are none.
    pub(crate) fn pump(&mut self, volume: &mut Volume) -> Option<ScrubReport> {
        let scrub = self.scrub.as_mut().filter(|scrub| scrub.reading.is_none())?;
        while scrub.block < volume.blocks.count() {
            let id = BlockId(scrub.block);
            let block = volume.blocks.get(id);
            let readable = !matches!(block.state, BlockState::Free | BlockState::Erasing);
            if readable && scrub.page < block.readable {
                let count = GROUP_PAGES.min(block.readable - scrub.page);
                let page = volume.geometry().page(id, scrub.page);
                scrub.page += count;
                debug_assert!(scrub.page <= block.readable, "what is not written is not read");
                scrub.reading = Some((page, count));
                volume.read(Purpose::ScrubRead, 0, page, count);
                return None;
            }
            scrub.block += 1;
            scrub.page = 0;
        }
        self.scrub.take().map(|scrub| scrub.report)
    }

    /// Pages have been read.
    pub(crate) fn pages_read(&mut self, readable: bool, bytes: &[u8], volume: &mut Volume) {
        let Some(scrub) = &mut self.scrub else { return };
        let Some((first, count)) = scrub.reading.take() else { return };
        volume.blocks.unpin(volume.blocks.of(first));
        let report = &mut scrub.report;
        report.pages += u64::from(count);
        if !readable {
            report.corrupt_pages += u64::from(count);
            return;
        }
        for (offset, bytes) in bytes.chunks_exact(PAGE_BYTES).take(count as usize).enumerate() {
            let page = PageId(first.0 + offset as u32);
            match volume.verify(page, bytes) {
                Ok(header) if matches!(header.kind, PageKind::Records | PageKind::LargeHeads) => {
                    for raw in layout::records(bytes) {
                        report.records += 1;
                        if raw.and_then(Record::read_intact).is_none() {
                            report.corrupt_records += 1;
                        }
                    }
                }
                Ok(_) => {}
                Err(_) if volume.blocks.is_hole(page) || is_unused(page, bytes, volume) => {}
                Err(_) => report.corrupt_pages += 1,
            }
        }
        debug_assert!(report.corrupt_pages <= report.pages);
    }
}

/// Whether a page is the unused rest of a block with a checkpoint: after a restart such a block counts
/// as written whole, however short the checkpoint is.
fn is_unused(page: PageId, bytes: &[u8], volume: &Volume) -> bool {
    let block = volume.blocks.get(volume.blocks.of(page));
    let is_earlier = || match PageHeader::read(bytes) {
        Some(Ok(header)) => header.page == page && header.generation < block.generation,
        _ => false,
    };
    block.stream == StreamId::Checkpoint && (bytes.iter().all(|&byte| byte == 0) || is_earlier())
}

#[cfg(test)]
mod tests {
    use super::super::volume::tests::{run_until_idle, volume};
    use super::*;

    #[test]
    fn every_readable_page_is_looked_at_once_and_damage_is_counted() {
        let (mut volume, mut scrubber) = (volume(), Scrubber::default());
        for _ in 0..6 {
            volume.append_raw(StreamId::Large, PageKind::LargePart, 0, 0, |_| {}).expect("room");
        }
        volume.flush_all();
        run_until_idle(&mut volume);
        scrubber.begin();
        let mut report = None;
        for round in 0..10 {
            report = scrubber.pump(&mut volume);
            if report.is_some() {
                break;
            }
            for (_, _, mut bytes) in run_until_idle(&mut volume) {
                if round == 0 {
                    bytes[PAGE_BYTES - 1] ^= 1;
                }
                scrubber.pages_read(true, &bytes, &mut volume);
            }
        }
        let report = report.expect("it ends");
        assert_eq!((report.pages, report.corrupt_pages, report.records), (6, 1, 0));
        assert!(!scrubber.has_work());
    }
}

//! The device as streams of pages: block table, page writer and device port, wired together.
//!
//! ```text
//!   append ─► writer ─► port ─► device         take: free ─► open ─► sealed ─► … ─► erase ─► free
//!   read   ─► pin the block ─► port            poll ◄─ completions ◄─ device
//! ```
//!
//! Where several stores share a shard, they share its volume: its blocks belong to nobody until a
//! stream takes one.
//!
//! Hidden dependencies that this part made explicit: a program's completion makes pages readable
//! (writer → blocks); a page is checked against its block's generation and the writer's stamp; the
//! erase of a block needs the block table, the port and the device's new generation together.
//!
//! Invariants: a block is pinned once for every read under way in it, and erased only without pins;
//! `cleaning` are the blocks that are erased because a crash left them in doubt.

use timestone_flash::{
    AlignedBuffer, BlockId, FlashCompletion, FlashDevice, FlashOp, Geometry, PAGE_BYTES, PageId,
};
use timestone_types::Timestamp;

use super::blocks::{Blocks, EraseNeed};
use super::ledger::Held;
use super::port::{Port, Purpose};
use super::writer::{StreamId, Writer};
use crate::layout::{self, PageHeader, PageKind, Record};

/// Blocks, writer and port of one device.
pub(crate) struct Volume {
    pub(crate) blocks: Blocks,
    pub(crate) writer: Writer,
    port: Port,
    /// Dirty blocks that are being erased.
    cleaning: Vec<BlockId>,
    /// Kept for its memory.
    completions: Vec<FlashCompletion>,
    /// Corrupt records and pages met since opening.
    pub(crate) corrupt: u64,
}

impl Volume {
    /// A device with what is known of its blocks.
    pub(crate) fn new(device: Box<dyn FlashDevice>, mut blocks: Blocks, writer: Writer) -> Self {
        blocks.tell_channels((0..blocks.count()).map(|n| device.channel(BlockId(n))).collect());
        Self {
            blocks,
            writer,
            port: Port::new(device),
            cleaning: Vec::new(),
            completions: Vec::new(),
            corrupt: 0,
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &dyn FlashDevice {
        &*self.port.device
    }

    /// What holds between calls.
    #[inline]
    pub(crate) fn assert_sound(&self) {
        debug_assert!(self.cleaning.len() as u32 <= self.blocks.count(), "a block is cleaned once");
        debug_assert!(self.completions.is_empty(), "completions are given back empty");
    }

    /// Blocks until the device may have completed something.
    pub(crate) fn wait(&mut self, timeout: core::time::Duration) {
        self.assert_sound();
        self.port.device.wait(timeout);
    }

    /// Ends it without draining.
    pub(crate) fn into_device(self) -> Box<dyn FlashDevice> {
        self.port.device
    }

    /// The shape of the device.
    pub(crate) fn geometry(&self) -> Geometry {
        self.blocks.geometry
    }

    /// The time that the last pump was told.
    pub(crate) fn now(&self) -> Timestamp {
        self.writer.now()
    }

    /// Gives the system back some of the buffers that are kept and that nobody took since this was
    /// called last.
    pub(crate) fn give_back(&mut self) {
        self.writer.give_back();
        self.port.give_back();
    }

    /// Bytes of pages on their way to the device, and of buffers that are kept.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.writer.memory_bytes() + self.port.memory_bytes()
    }

    /// Adds a record to a stream; see [`Writer::append`].
    #[inline]
    pub(crate) fn append(
        &mut self,
        stream: StreamId,
        record: &Record<'_>,
        check: u32,
        leave: u32,
    ) -> Option<PageId> {
        self.assert_sound();
        self.writer.append(stream, record, check, leave, &mut self.blocks, &mut self.port)
    }

    /// Adds a record of these puts to a stream; see [`Writer::append_held`].
    pub(crate) fn append_held(
        &mut self,
        stream: StreamId,
        (record, held): (&Record<'_>, Held),
        check: u32,
        leave: u32,
    ) -> Option<PageId> {
        self.assert_sound();
        let into = (&mut self.blocks, &mut self.port);
        self.writer.append_held(stream, (record, held), check, leave, into)
    }

    /// Adds a page without records to a stream; see [`Writer::append_raw`].
    pub(crate) fn append_raw(
        &mut self,
        stream: StreamId,
        kind: PageKind,
        used: u16,
        leave: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<PageId> {
        self.assert_sound();
        let into = (&mut self.blocks, &mut self.port);
        self.writer.append_raw(stream, kind, used, leave, into, fill)
    }

    /// The open page of a stream takes no more records.
    pub(crate) fn end_page(&mut self, stream: StreamId) {
        self.assert_sound();
        self.writer.end_page(stream, &self.blocks, &mut self.port);
    }

    /// Hands everything of a stream to the device.
    pub(crate) fn flush(&mut self, stream: StreamId) {
        self.assert_sound();
        self.writer.flush(stream, &self.blocks, &mut self.port);
    }

    /// Hands everything to the device.
    pub(crate) fn flush_all(&mut self) {
        self.assert_sound();
        StreamId::ALL.into_iter().for_each(|stream| self.flush(stream));
    }

    /// Hands over what has waited long enough.
    pub(crate) fn flush_due(
        &mut self,
        packing: core::time::Duration,
        partial: core::time::Duration,
    ) {
        self.assert_sound();
        self.writer.flush_due(packing, partial, &self.blocks, &mut self.port);
    }

    /// Ends the open block of a stream, so that it may be collected.
    pub(crate) fn end_block(&mut self, stream: StreamId) {
        self.assert_sound();
        self.writer.end_block(stream, &mut self.blocks, &mut self.port);
    }

    /// Syncs the device when that is due or wanted.
    pub(crate) fn sync(&mut self, interval: core::time::Duration, wanted: bool) {
        self.assert_sound();
        self.writer.ledger.sync(self.writer.now(), interval, wanted, &mut self.port);
    }

    /// Where a put would go on at the earliest in a block.
    pub(crate) fn scan_from(&self, block: BlockId) -> u32 {
        self.writer.scan_from(block, &self.blocks)
    }

    /// The bytes of a page that the device does not have yet.
    #[inline]
    pub(crate) fn page_in_group(&self, page: PageId) -> Option<&[u8]> {
        self.writer.page(page, &self.blocks)
    }

    /// Whether a page can be read from the device.
    #[inline]
    pub(crate) fn is_on_device(&self, page: PageId) -> bool {
        let block = self.blocks.get(self.blocks.of(page));
        self.blocks.geometry.index_of(page) < block.readable
    }

    /// Reads pages of one block, which stays until the pin of this read is gone: whoever gets the
    /// completion calls [`Blocks::unpin`].
    pub(crate) fn read(&mut self, purpose: Purpose, number: u64, page: PageId, pages: u32) {
        debug_assert!(pages > 0 && self.blocks.of(page).0 < self.blocks.count());
        self.blocks.pin(self.blocks.of(page));
        self.read_pinned(purpose, number, page, pages);
    }

    /// Reads pages of a block that is emptied, from the one with an index on. [`Self::first_read`] tells which by
    /// the number that comes with the completion: zones have more pages than 16 bits count.
    pub(crate) fn read_victim(&mut self, block: BlockId, first: u32, pages: u32) {
        let page = self.geometry().page(block, first);
        self.read(Purpose::VictimRead, u64::from(page.0), page, pages);
    }

    /// What [`Self::read_victim`] was given.
    pub(crate) fn first_read(&self, number: u64) -> (BlockId, u32) {
        let page = PageId(number as u32);
        (self.blocks.of(page), self.geometry().index_of(page))
    }

    /// As [`Self::read`], for a block that is pinned already.
    pub(crate) fn read_pinned(&mut self, purpose: Purpose, number: u64, page: PageId, pages: u32) {
        assert!(pages > 0 && self.blocks.get(self.blocks.of(page)).readers > 0, "pinned before");
        let buffer = self.port.buffer(pages);
        self.port.read(FlashOp::Read { token: purpose.token(number), page, pages, buffer });
    }

    /// A copy of a page that is still in a group, in a buffer to be given back.
    pub(crate) fn copy_of_group_page(&mut self, page: PageId) -> Option<AlignedBuffer> {
        let bytes = self.writer.page(page, &self.blocks)?;
        let mut copy = self.port.buffer(1);
        debug_assert_eq!(copy.len(), bytes.len(), "a page is copied whole");
        copy.copy_from_slice(bytes);
        Some(copy)
    }

    /// A copy of pages of one block that are all still in groups, in a buffer to be given back.
    pub(crate) fn copy_of_group_pages(
        &mut self,
        block: BlockId,
        first: u32,
        count: u32,
    ) -> AlignedBuffer {
        let mut copy = self.port.buffer(count);
        for (index, into) in (first..).zip(copy.chunks_exact_mut(PAGE_BYTES)) {
            let page = self.blocks.geometry.page(block, index);
            let bytes = self.writer.page(page, &self.blocks);
            into.copy_from_slice(bytes.expect("what could not be programmed is in memory"));
        }
        copy
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: AlignedBuffer) {
        self.assert_sound();
        self.port.give(buffer);
    }

    /// A read has come back from the device.
    pub(crate) fn read_done(&mut self) {
        self.assert_sound();
        self.port.read_done();
    }

    /// Checks a page that was read against what its block holds now.
    pub(crate) fn verify(&self, page: PageId, bytes: &[u8]) -> Result<PageHeader, &'static str> {
        let generation = self.blocks.get(self.blocks.of(page)).generation;
        layout::verify(bytes, page, generation, self.writer.stamp.store)
    }

    /// Asks for a block's erase, now or when nobody writes on its channel. Nobody may be reading in it.
    pub(crate) fn erase(&mut self, block: BlockId) {
        self.assert_sound();
        self.blocks.begin_erase(block);
        self.begin_erases(EraseNeed::MayWait);
    }

    /// Begins the erases that waited for their channels and need not any more.
    pub(crate) fn begin_erases(&mut self, need: EraseNeed) {
        self.assert_sound();
        while let Some(block) = self.blocks.next_erase(need) {
            let token = Purpose::Erase.token(u64::from(block.0));
            self.port.write(FlashOp::Erase { token, block });
        }
    }

    /// A block has been erased: it is free.
    pub(crate) fn erased(&mut self, block: BlockId) {
        debug_assert!(block.0 < self.blocks.count(), "a block that is there");
        if let Some(at) = self.cleaning.iter().position(|&other| other == block) {
            self.cleaning.swap_remove(at);
            self.blocks.cleaned();
        }
        self.blocks.release(block, self.port.device.generation(block));
    }

    /// A block could not be erased: it is left alone.
    pub(crate) fn erase_failed(&mut self, block: BlockId) {
        if let Some(at) = self.cleaning.iter().position(|&other| other == block) {
            self.cleaning.swap_remove(at);
            self.blocks.cleaned();
        }
        tracing::warn!(block = block.0, "a block that could not be erased is set aside");
        self.blocks.erase_failed(block);
    }

    /// Whether the device calls a block bad.
    pub(crate) fn is_bad(&self, block: BlockId) -> bool {
        self.port.device.is_bad(block)
    }

    /// Erases free blocks that a crash left in doubt, a few ahead of their use.
    pub(crate) fn clean_blocks(&mut self) {
        self.assert_sound();
        while let Some(block) = self.blocks.next_to_clean() {
            self.cleaning.push(block);
            self.erase(block);
        }
    }

    /// Asks the device to grow.
    pub(crate) fn grow(&mut self, blocks: u32) {
        assert!(blocks > 0, "growth by nothing");
        self.port.write(FlashOp::Grow { token: Purpose::Grow.token(0), blocks });
    }

    /// The device has grown: its new blocks are free.
    pub(crate) fn grown(&mut self) {
        self.blocks.geometry = self.port.device.geometry();
        while self.blocks.count() < self.blocks.geometry.blocks {
            let generation = self.port.device.generation(BlockId(self.blocks.count()));
            self.blocks.add_free(generation);
        }
        let device = &self.port.device;
        let channels = (0..self.blocks.count()).map(|n| device.channel(BlockId(n)));
        self.blocks.tell_channels(channels.collect());
        self.assert_sound();
    }

    /// Hands the device what it has room for; what has completed, in a vector that
    /// [`Self::polled`] takes back.
    pub(crate) fn poll(&mut self) -> Vec<FlashCompletion> {
        self.assert_sound();
        let mut completions = core::mem::take(&mut self.completions);
        self.port.submit(&mut completions);
        self.port.device.poll(&mut completions);
        completions
    }

    /// Takes back the vector of [`Self::poll`], emptied.
    pub(crate) fn polled(&mut self, completions: Vec<FlashCompletion>) {
        assert!(completions.is_empty(), "every completion is looked at");
        self.completions = completions;
    }
}

/// Bytes of a block of this shape.
pub(crate) fn block_bytes(geometry: Geometry) -> u64 {
    u64::from(geometry.pages_per_block) * PAGE_BYTES as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use timestone_flash::{MemoryConfig, MemoryDevice};
    use timestone_types::HashSeed;

    use super::super::blocks::BlockState;
    use super::super::writer::Stamp;
    use super::*;

    /// A volume of 8 fresh blocks of 4 pages.
    pub(crate) fn volume() -> Volume {
        volume_of(8)
    }

    pub(crate) fn volume_of(initial_blocks: u32) -> Volume {
        let device = Box::new(MemoryDevice::new(MemoryConfig {
            pages_per_block: 4,
            initial_blocks,
            max_blocks: 2 * initial_blocks,
            ..MemoryConfig::default()
        }));
        let mut blocks = Blocks::new(device.geometry());
        for block in 0..device.geometry().blocks {
            blocks.add_free(device.generation(BlockId(block)));
        }
        Volume::new(device, blocks, Writer::new(Stamp { store: 7, seed: HashSeed(1) }, 1))
    }

    /// Polls until nothing is under way; what completed beside writes.
    pub(crate) fn run_until_idle(volume: &mut Volume) -> Vec<(Purpose, u64, AlignedBuffer)> {
        let mut reads = Vec::new();
        for _ in 0..20 {
            let mut completions = volume.poll();
            for done in completions.drain(..) {
                done.result.expect("a memory device does not fail");
                let (purpose, number) = Purpose::of(done.token).expect("a token of ours");
                match purpose {
                    Purpose::Program => volume.writer.programmed(number, &mut volume.blocks),
                    Purpose::Sync => volume.writer.ledger.synced(),
                    Purpose::Erase => volume.erased(BlockId(number as u32)),
                    Purpose::Grow => volume.grown(),
                    _ => {
                        volume.read_done();
                        reads.push((purpose, number, done.buffer.expect("a read has a buffer")));
                    }
                }
            }
            volume.polled(completions);
            volume.wait(core::time::Duration::from_millis(1));
        }
        reads
    }

    fn raw_page(volume: &mut Volume, byte: u8) -> PageId {
        let page = volume.append_raw(StreamId::Large, PageKind::LargePart, 1, 0, |page| {
            *page.last_mut().expect("a page has bytes") = byte;
        });
        page.expect("there is room")
    }

    #[test]
    fn what_was_appended_is_read_from_its_group_and_then_from_the_device() {
        let mut volume = volume();
        let page = raw_page(&mut volume, 42);
        assert!(!volume.is_on_device(page));
        assert_eq!(volume.page_in_group(page).and_then(<[u8]>::last), Some(&42));
        volume.flush_all();
        run_until_idle(&mut volume);
        assert!(volume.is_on_device(page));
        volume.read(Purpose::PageRead, 5, page, 1);
        let reads = run_until_idle(&mut volume);
        let [(Purpose::PageRead, 5, bytes)] = &reads[..] else { panic!("one read: {reads:?}") };
        assert!(volume.verify(page, bytes).is_ok_and(|header| header.page == page));
        assert!(volume.verify(PageId(page.0 + 1), bytes).is_err(), "not another page's bytes");
    }

    #[test]
    fn puts_wait_while_the_bound_of_groups_is_reached_and_no_longer() {
        let mut volume = volume_of(48);
        // Less than the least: twelve groups, of one block each here.
        volume.writer.bound_groups(0);
        let mut pages = 0;
        while !volume.writer.is_behind() {
            raw_page(&mut volume, 1);
            pages += 1;
        }
        assert_eq!(pages, 11 * 4 + 1, "the twelfth group is begun");
        volume.flush_all();
        run_until_idle(&mut volume);
        assert!(!volume.writer.is_behind(), "the device has them");
        volume.writer.bound_groups(u64::MAX);
        (0..30 * 4).for_each(|_| _ = raw_page(&mut volume, 1));
        assert!(!volume.writer.is_behind());
    }

    #[test]
    fn an_erased_block_is_free_again_with_a_new_generation() {
        let mut volume = volume();
        let free = volume.blocks.free_count();
        let page = raw_page(&mut volume, 1);
        volume.end_block(StreamId::Large);
        run_until_idle(&mut volume);
        let block = volume.blocks.of(page);
        let generation = volume.blocks.get(block).generation;
        volume.erase(block);
        assert_eq!(volume.blocks.get(block).state, BlockState::Erasing);
        run_until_idle(&mut volume);
        assert_eq!(volume.blocks.get(block).state, BlockState::Free);
        assert!(volume.blocks.get(block).generation > generation);
        assert_eq!(volume.blocks.free_count(), free);
    }

    #[test]
    #[should_panic(expected = "a block with readers is not erased")]
    fn a_block_with_a_read_under_way_is_not_erased() {
        let mut volume = volume();
        let page = raw_page(&mut volume, 1);
        volume.end_block(StreamId::Large);
        run_until_idle(&mut volume);
        volume.read(Purpose::PageRead, 0, page, 1);
        volume.erase(volume.blocks.of(page));
    }

    /// A block that a crash left in doubt, and that a head names which damage has not reached.
    fn clean_around_a_read() {
        let mut volume = volume();
        let page = raw_page(&mut volume, 1);
        volume.end_block(StreamId::Large);
        run_until_idle(&mut volume);
        let block = volume.blocks.of(page);
        volume.blocks.set_dirty(block);
        volume.read(Purpose::PageRead, 0, page, 1);
        while volume.blocks.take(StreamId::Hot, 0).is_some() {}
        volume.clean_blocks();
        assert_eq!(volume.blocks.get(block).state, BlockState::Dirty, "it is read");
        run_until_idle(&mut volume);
        volume.blocks.unpin(block);
        volume.clean_blocks();
        run_until_idle(&mut volume);
        assert_eq!(volume.blocks.get(block).state, BlockState::Free);
    }

    #[test]
    fn a_block_in_doubt_with_a_read_under_way_is_cleaned_later() {
        clean_around_a_read();
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    #[should_panic(expected = "a block with readers is not erased")]
    fn a_block_in_doubt_that_is_cleaned_with_a_read_under_way_is_found() {
        use timestone_types::planted::{Bug, with};
        with(Bug::CleansWhatIsRead, clean_around_a_read);
    }

    #[test]
    fn growth_adds_free_blocks() {
        let mut volume = volume();
        volume.grow(4);
        run_until_idle(&mut volume);
        assert_eq!((volume.blocks.count(), volume.blocks.free_count()), (12, 12));
    }
}

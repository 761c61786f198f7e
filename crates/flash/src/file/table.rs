//! The block table in memory, and the steps that change it on the medium without ever putting both
//! copies at risk.
//!
//! ```text
//!   idle ──due changes──► primary: copy n mod 2 ──► syncing ──► (changes are complete) mirror: the other copy ──► idle
//!                              └─ failed: taken back
//! ```
//!
//! Erases and growth that become due while a batch is under way form the next one. The protocol is
//! specified in `docs/formats/flash.md`. Nothing here does I/O: the device asks for the next write
//! and reports it.
//!
//! Invariants: a copy is only written while the other one is whole and durable; sequences rise by
//! one with each batch that touches a page.

use std::io;

use crate::device::{BlockId, Generation, Token};
use crate::file::layout::{ENTRIES_PER_TABLE_PAGE, Layout};

/// Something that the table is to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableChange {
    /// A block's generation rises.
    Erase { token: Token, block: BlockId },
    /// Blocks up to this number exist.
    Grow { to: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BatchPhase {
    Idle,
    Primary,
    Syncing,
    Mirror,
}

/// What the device has to do next for the table.
#[derive(Debug)]
pub(crate) enum TableStep {
    /// Nothing, or wait for writes.
    Nothing,
    /// Sync the medium and report it.
    Sync,
    /// The batch failed and was taken back; its changes are to be told.
    Failed(io::Error),
}

/// One write that the device is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableWrite {
    /// Which copy.
    pub(crate) copy: u32,
    /// Which page of it.
    pub(crate) index: u32,
}

/// The table and the batch under way.
#[derive(Debug)]
pub(crate) struct BlockTable {
    layout: Layout,
    generations: Vec<Generation>,
    /// Of each table page.
    sequences: Vec<u64>,
    waiting: Vec<TableChange>,
    active: Vec<TableChange>,
    /// Blocks that existed before the active batch.
    blocks_before: u32,
    dirty: Vec<u32>,
    next_dirty: usize,
    writes_in_flight: usize,
    error: Option<io::Error>,
    phase: BatchPhase,
}

impl BlockTable {
    /// The table as found on the medium: the generations of usable blocks, and the sequence of
    /// every table page.
    pub(crate) fn new(layout: Layout, generations: Vec<Generation>, sequences: Vec<u64>) -> Self {
        assert_eq!(sequences.len(), layout.table_pages() as usize);
        Self {
            layout,
            blocks_before: generations.len() as u32,
            generations,
            sequences,
            waiting: Vec::new(),
            active: Vec::new(),
            dirty: Vec::new(),
            next_dirty: 0,
            writes_in_flight: 0,
            error: None,
            phase: BatchPhase::Idle,
        }
    }

    /// Asks for a change.
    pub(crate) fn request(&mut self, change: TableChange) {
        self.waiting.push(change);
    }

    /// Changes that were asked for and are not under way.
    pub(crate) fn waiting(&mut self) -> &mut Vec<TableChange> {
        &mut self.waiting
    }

    /// A generation that recovery found on the medium's pages, ahead of the table; it is written
    /// with the next change nearby.
    pub(crate) fn adopt(&mut self, block: BlockId, generation: Generation) {
        self.generations[block.0 as usize] = generation;
    }

    /// Begins the next batch, of the changes that are due, unless one is under way.
    pub(crate) fn begin(&mut self, is_due: impl Fn(&TableChange) -> bool) {
        if self.phase != BatchPhase::Idle || self.waiting.is_empty() {
            return;
        }
        debug_assert!(self.active.is_empty());
        self.active.extend(self.waiting.extract_if(.., |change| is_due(change)));
        if self.active.is_empty() {
            return;
        }
        self.blocks_before = self.generations.len() as u32;
        self.dirty.clear();
        for change in &self.active {
            match *change {
                TableChange::Erase { block, .. } => {
                    let generation = &mut self.generations[block.0 as usize];
                    *generation = generation.next();
                    self.dirty.push(block.0 / ENTRIES_PER_TABLE_PAGE);
                }
                TableChange::Grow { to } => {
                    let from = self.generations.len() as u32;
                    self.generations.resize(to as usize, Generation::FIRST);
                    self.dirty
                        .extend(from / ENTRIES_PER_TABLE_PAGE..=(to - 1) / ENTRIES_PER_TABLE_PAGE);
                }
            }
        }
        self.dirty.sort_unstable();
        self.dirty.dedup();
        for &index in &self.dirty {
            self.sequences[index as usize] += 1;
        }
        self.next_dirty = 0;
        self.phase = BatchPhase::Primary;
    }

    /// The next write of the batch, if the phase has one left and not too many are under way.
    pub(crate) fn next_write(&mut self, most_in_flight: usize) -> Option<TableWrite> {
        let mirror = match self.phase {
            BatchPhase::Primary => 0,
            BatchPhase::Mirror => 1,
            BatchPhase::Idle | BatchPhase::Syncing => return None,
        };
        if self.writes_in_flight >= most_in_flight || self.error.is_some() {
            return None;
        }
        let index = *self.dirty.get(self.next_dirty)?;
        self.next_dirty += 1;
        self.writes_in_flight += 1;
        Some(TableWrite { copy: ((self.sequences[index as usize] + mirror) & 1) as u32, index })
    }

    /// The bytes of a table page.
    pub(crate) fn encode(&self, index: u32, page: &mut [u8]) {
        let first = (index * ENTRIES_PER_TABLE_PAGE) as usize;
        let last = (first + ENTRIES_PER_TABLE_PAGE as usize).min(self.generations.len());
        let covered = self.generations.get(first..last).unwrap_or(&[]);
        self.layout.encode_table(page, index, self.sequences[index as usize], covered);
    }

    /// A write has ended.
    pub(crate) fn wrote(&mut self, result: io::Result<()>) {
        self.writes_in_flight -= 1;
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// Goes on to the next phase when this one's writes have ended.
    pub(crate) fn advance(&mut self) -> TableStep {
        let finished = self.writes_in_flight == 0
            && (self.next_dirty == self.dirty.len() || self.error.is_some());
        match self.phase {
            BatchPhase::Primary if finished => match self.error.take() {
                None => {
                    self.phase = BatchPhase::Syncing;
                    TableStep::Sync
                }
                Some(error) => {
                    self.take_back();
                    TableStep::Failed(error)
                }
            },
            BatchPhase::Mirror if finished => {
                if let Some(error) = self.error.take() {
                    // The primary copy is durable, and the next batch begins with this one.
                    tracing::warn!(%error, "a second copy of the block table could not be written");
                }
                self.phase = BatchPhase::Idle;
                TableStep::Nothing
            }
            _ => TableStep::Nothing,
        }
    }

    /// The sync of the batch has succeeded: its changes are durable, and its other copy is to be
    /// written.
    pub(crate) fn synced(&mut self) {
        assert_eq!(self.phase, BatchPhase::Syncing);
        self.phase = BatchPhase::Mirror;
        self.next_dirty = 0;
    }

    /// The sync of the batch has failed.
    pub(crate) fn sync_failed(&mut self) {
        assert_eq!(self.phase, BatchPhase::Syncing);
        self.take_back();
    }

    /// The changes of the batch, to be told; empty afterwards.
    pub(crate) fn active(&mut self) -> &mut Vec<TableChange> {
        &mut self.active
    }

    /// Forgets the batch: the next one writes the same copies with the same sequences.
    fn take_back(&mut self) {
        for change in &self.active {
            if let TableChange::Erase { block, .. } = change {
                let generation = &mut self.generations[block.0 as usize];
                *generation = Generation(generation.0 - 1);
            }
        }
        self.generations.truncate(self.blocks_before as usize);
        for &index in &self.dirty {
            self.sequences[index as usize] -= 1;
        }
        self.phase = BatchPhase::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::PAGE_BYTES;
    use crate::file::layout::DeviceId;

    fn table(blocks: u32) -> BlockTable {
        let layout = Layout {
            pages_per_block: 4,
            table_room: 3 * ENTRIES_PER_TABLE_PAGE,
            device_id: DeviceId(9),
        };
        BlockTable::new(layout, vec![Generation::FIRST; blocks as usize], vec![1; 3])
    }

    fn erase(block: u32) -> TableChange {
        TableChange::Erase { token: Token(block.into()), block: BlockId(block) }
    }

    fn writes(table: &mut BlockTable) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| table.next_write(8)).map(|write| (write.copy, write.index)).collect()
    }

    #[test]
    fn a_batch_writes_one_copy_syncs_and_then_writes_the_other() {
        let mut table = table(2000);
        table.request(erase(3));
        table.request(erase(1500));
        table.begin(|_| true);
        assert_eq!(writes(&mut table), [(0, 0), (0, 1)], "sequence 2 goes to copy 0 first");
        assert!(matches!(table.advance(), TableStep::Nothing), "writes are under way");
        table.wrote(Ok(()));
        table.wrote(Ok(()));
        assert!(matches!(table.advance(), TableStep::Sync));
        assert_eq!(writes(&mut table), [], "the other copy waits for the sync");
        table.synced();
        assert_eq!(table.active().drain(..).count(), 2);
        assert_eq!(writes(&mut table), [(1, 0), (1, 1)]);
        table.request(erase(4));
        table.begin(|_| true);
        assert!(table.active().is_empty(), "no batch begins before the mirror is written");
        table.wrote(Ok(()));
        table.wrote(Ok(()));
        assert!(matches!(table.advance(), TableStep::Nothing));
        table.begin(|_| true);
        assert_eq!(
            writes(&mut table),
            [(1, 0)],
            "sequence 3 begins with the copy that was written last"
        );
    }

    #[test]
    fn a_failed_batch_leaves_no_trace() {
        let mut table = table(10);
        let mut before = vec![0; PAGE_BYTES];
        table.encode(0, &mut before);
        table.request(erase(3));
        table.request(TableChange::Grow { to: 1100 });
        table.begin(|_| true);
        assert_eq!(writes(&mut table), [(0, 0), (0, 1)]);
        table.wrote(Err(io::ErrorKind::Other.into()));
        table.wrote(Ok(()));
        assert!(matches!(table.advance(), TableStep::Failed(_)));
        assert_eq!(table.active().drain(..).count(), 2);
        let mut after = vec![0; PAGE_BYTES];
        table.encode(0, &mut after);
        assert_eq!(before, after);
    }

    #[test]
    fn changes_that_are_not_due_wait() {
        let mut table = table(10);
        table.request(erase(1));
        table.request(erase(2));
        table.begin(|change| *change == erase(2));
        assert_eq!(*table.active(), [erase(2)]);
        assert_eq!(*table.waiting(), [erase(1)]);
    }
}

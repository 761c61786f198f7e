//! Programs on their way into the file: neighbours travel together, completions of a block come in
//! page order.
//!
//! ```text
//!   add ─► collecting run (block, pages a..b) ─► take: one write ─► finish ─► release: its programs complete,
//!            ▲ a program of page b joins it                                   after those of earlier runs of the block
//! ```
//!
//! Runs and their vectors are recycled. Nothing here does I/O.
//!
//! Invariants: a run's pages are consecutive pages of one block; runs of one block are in page
//! order in `order`.

use std::collections::VecDeque;
use std::io;

use timestone_io::AlignedBuffer;

use crate::device::{BlockId, Token};
use crate::ledger::Extent;
use crate::limits::MAX_RUN_PAGES;

/// Which run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunId(pub(crate) u32);

#[derive(Debug)]
enum RunState {
    Collecting,
    InFlight,
    Done(io::Result<()>),
}

#[derive(Debug)]
struct ProgramRun {
    extent: Extent,
    tokens: Vec<Token>,
    buffers: Vec<AlignedBuffer>,
    state: RunState,
}

/// One program whose turn to complete has come.
#[derive(Debug)]
pub(crate) struct Released {
    pub(crate) token: Token,
    pub(crate) extent: Extent,
    pub(crate) buffer: AlignedBuffer,
    pub(crate) result: io::Result<()>,
}

/// All programs in flight.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    slab: Vec<ProgramRun>,
    free: Vec<RunId>,
    collecting: Vec<RunId>,
    order: VecDeque<RunId>,
    /// Scratch of `release`: blocks with an unfinished run further ahead.
    held: Vec<BlockId>,
}

impl Runs {
    /// Adds a program, to the collecting run that ends where it begins if there is one.
    pub(crate) fn add(&mut self, token: Token, extent: Extent, buffer: AlignedBuffer) {
        let last = self
            .collecting
            .iter()
            .rev()
            .find(|id| self.slab[id.0 as usize].extent.block == extent.block);
        if let Some(&id) = last {
            let run = &mut self.slab[id.0 as usize];
            let adjacent = run.extent.index + run.extent.pages == extent.index;
            if adjacent && run.extent.pages + extent.pages <= MAX_RUN_PAGES {
                run.extent.pages += extent.pages;
                run.tokens.push(token);
                run.buffers.push(buffer);
                return;
            }
        }
        let id = self.fresh(extent);
        let run = &mut self.slab[id.0 as usize];
        run.tokens.push(token);
        run.buffers.push(buffer);
        self.collecting.push(id);
        self.order.push_back(id);
    }

    /// The next run to write: from then on nothing joins it. Its buffers come back with
    /// [`finish`](Self::finish).
    pub(crate) fn take(&mut self) -> Option<(RunId, Extent, Vec<AlignedBuffer>)> {
        let id = self.collecting.pop()?;
        let run = &mut self.slab[id.0 as usize];
        run.state = RunState::InFlight;
        Some((id, run.extent, std::mem::take(&mut run.buffers)))
    }

    /// Blocks with runs that can be taken, each once, in the order of their first ones.
    pub(crate) fn waiting(&self, blocks: &mut Vec<BlockId>) {
        blocks.clear();
        for id in &self.collecting {
            let block = self.slab[id.0 as usize].extent.block;
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        }
    }

    /// The first run of a block that can be taken, for media that must be written in order; as
    /// [`take`](Self::take).
    pub(crate) fn take_of(
        &mut self,
        block: BlockId,
    ) -> Option<(RunId, Extent, Vec<AlignedBuffer>)> {
        let of_block = |id: &RunId| self.slab[id.0 as usize].extent.block == block;
        let at = self.collecting.iter().position(of_block)?;
        let id = self.collecting.remove(at);
        let run = &mut self.slab[id.0 as usize];
        run.state = RunState::InFlight;
        Some((id, run.extent, std::mem::take(&mut run.buffers)))
    }

    /// The pages of a run that is being written.
    pub(crate) fn extent(&self, id: RunId) -> Extent {
        self.slab[id.0 as usize].extent
    }

    /// The write of a run has ended.
    pub(crate) fn finish(
        &mut self,
        id: RunId,
        buffers: Vec<AlignedBuffer>,
        result: io::Result<()>,
    ) {
        let run = &mut self.slab[id.0 as usize];
        assert!(matches!(run.state, RunState::InFlight), "a run ends that was not in flight");
        assert_eq!(buffers.len(), run.tokens.len(), "every program of a run gets its buffer back");
        run.buffers = buffers;
        run.state = RunState::Done(result);
    }

    /// Hands out every program whose run is done and has no unfinished run of its block ahead of
    /// it, in page order.
    pub(crate) fn release(&mut self, mut each: impl FnMut(Released)) {
        self.held.clear();
        let mut position = 0;
        while position < self.order.len() {
            let id = self.order[position];
            let run = &mut self.slab[id.0 as usize];
            if self.held.contains(&run.extent.block) || !matches!(run.state, RunState::Done(_)) {
                self.held.push(run.extent.block);
                position += 1;
                continue;
            }
            let RunState::Done(result) = std::mem::replace(&mut run.state, RunState::Collecting)
            else {
                unreachable!()
            };
            let mut index = run.extent.index;
            for (token, buffer) in run.tokens.drain(..).zip(run.buffers.drain(..)) {
                let pages = (buffer.len() / crate::device::PAGE_BYTES) as u32;
                let extent = Extent { block: run.extent.block, index, pages };
                index += pages;
                each(Released {
                    token,
                    extent,
                    buffer,
                    result: result.as_ref().copied().map_err(same_error),
                });
            }
            self.order.remove(position);
            self.free.push(id);
        }
    }

    fn fresh(&mut self, extent: Extent) -> RunId {
        if let Some(id) = self.free.pop() {
            self.slab[id.0 as usize].extent = extent;
            return id;
        }
        self.slab.push(ProgramRun {
            extent,
            tokens: Vec::new(),
            buffers: Vec::new(),
            state: RunState::Collecting,
        });
        RunId(self.slab.len() as u32 - 1)
    }
}

/// One failure, told to several.
pub(crate) fn same_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::PAGE_BYTES;

    fn extent(block: u32, index: u32, pages: u32) -> Extent {
        Extent { block: BlockId(block), index, pages }
    }

    fn buffer(pages: usize) -> AlignedBuffer {
        AlignedBuffer::zeroed(pages * PAGE_BYTES)
    }

    fn tokens(runs: &mut Runs) -> Vec<u64> {
        let mut seen = Vec::new();
        runs.release(|released| seen.push(released.token.0));
        seen
    }

    #[test]
    fn neighbours_join_and_strangers_do_not() {
        let mut runs = Runs::default();
        runs.add(Token(1), extent(0, 0, 1), buffer(1));
        runs.add(Token(2), extent(7, 0, 2), buffer(2));
        runs.add(Token(3), extent(0, 1, 3), buffer(3));
        let (second, at, buffers) = runs.take().unwrap();
        assert_eq!((at, buffers.len()), (extent(7, 0, 2), 1));
        let (first, at, both) = runs.take().unwrap();
        assert_eq!((at, both.len()), (extent(0, 0, 4), 2));
        assert!(runs.take().is_none());
        runs.finish(first, both, Ok(()));
        runs.finish(second, buffers, Ok(()));
        assert_eq!(tokens(&mut runs), [1, 3, 2]);
    }

    #[test]
    fn a_block_completes_in_page_order_while_others_overtake() {
        let mut runs = Runs::default();
        let mut taken = Vec::new();
        for (token, at) in [(1, extent(0, 0, 1)), (2, extent(0, 1, 1)), (3, extent(5, 0, 1))] {
            runs.add(Token(token), at, buffer(1));
            taken.push(runs.take().unwrap());
        }
        let (first, _, first_buffers) = taken.remove(0);
        for (id, _, buffers) in taken {
            runs.finish(id, buffers, Ok(()));
        }
        assert_eq!(tokens(&mut runs), [3], "page 1 of block 0 waits for page 0");
        runs.finish(first, first_buffers, Err(io::ErrorKind::Other.into()));
        assert_eq!(tokens(&mut runs), [1, 2]);
    }

    #[test]
    fn runs_of_a_block_are_taken_in_page_order() {
        let mut runs = Runs::default();
        for index in 0..2 * MAX_RUN_PAGES {
            runs.add(Token(index.into()), extent(3, index, 1), buffer(1));
            runs.add(Token(u64::MAX), extent(4, index, 1), buffer(1));
        }
        let mut blocks = Vec::new();
        runs.waiting(&mut blocks);
        assert_eq!(blocks, [BlockId(3), BlockId(4)]);
        let firsts: Vec<_> =
            std::iter::from_fn(|| runs.take_of(BlockId(3))).map(|(_, at, _)| at.index).collect();
        assert_eq!(firsts, [0, MAX_RUN_PAGES]);
        runs.waiting(&mut blocks);
        assert_eq!(blocks, [BlockId(4)]);
    }

    #[test]
    fn a_run_does_not_outgrow_one_write() {
        let mut runs = Runs::default();
        for index in 0..=MAX_RUN_PAGES {
            runs.add(Token(index.into()), extent(0, index, 1), buffer(1));
        }
        let mut sizes: Vec<_> =
            std::iter::from_fn(|| runs.take()).map(|(_, at, _)| at.pages).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, MAX_RUN_PAGES]);
    }
}

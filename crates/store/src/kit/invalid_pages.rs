//! Pages that a recovery met without a sound header of their block's life, and what they mean for the block.

use std::collections::BTreeSet;

use timestone_flash::{BlockId, Geometry};

use super::blocks::Blocks;

/// One of them.
#[derive(Clone, Copy, Debug)]
struct InvalidPage {
    block: u32,
    index: u32,
    /// It is neither blank nor a sound page of an earlier life: something was, or is, there.
    unreadable: bool,
    /// The device did not read it.
    failed: bool,
}

/// How many of them count as damage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DamagedPages {
    /// Within what their blocks have.
    pub(crate) inside: u64,
    /// Behind that, where something was.
    pub(crate) behind: u64,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct InvalidPages(Vec<InvalidPage>);

impl InvalidPages {
    /// Whether none was met.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes a page; `unreadable`: it is neither blank nor of an earlier life; `failed`: the device did not
    /// read it.
    pub(crate) fn push(&mut self, block: BlockId, index: u32, unreadable: bool, failed: bool) {
        self.0.push(InvalidPage { block: block.0, index, unreadable, failed });
    }

    /// Blocks of which the device did not read some page.
    pub(crate) fn unread_blocks(&self) -> BTreeSet<u32> {
        self.0.iter().filter(|page| page.failed).map(|page| page.block).collect()
    }

    /// Pages that the device did not read.
    pub(crate) fn unread_pages(&self) -> u64 {
        self.0.iter().filter(|page| page.failed).count() as u64
    }

    /// Makes holes of them, in blocks that have so many `pages`. What the device has not read may be there,
    /// and be read at the next start: so far goes a block that has any, and these pages are noted.
    pub(crate) fn settle(
        &self,
        pages: &mut [u32],
        geometry: Geometry,
        blocks: &mut Blocks,
    ) -> DamagedPages {
        for &InvalidPage { block, index, failed, .. } in &self.0 {
            let pages = &mut pages[block as usize];
            if failed {
                blocks.add_unread(geometry.page(BlockId(block), index));
            }
            if failed && *pages > 0 {
                *pages = (*pages).max(index + 1);
            }
        }
        let mut damaged = DamagedPages::default();
        for &InvalidPage { block, index, unreadable, .. } in &self.0 {
            if index < pages[block as usize] {
                blocks.add_hole(geometry.page(BlockId(block), index));
                damaged.inside += 1;
            } else {
                damaged.behind += u64::from(unreadable);
            }
        }
        damaged
    }
}

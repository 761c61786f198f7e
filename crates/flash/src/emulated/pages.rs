//! What the pages of an emulated device hold.

use crate::device::{PAGE_BYTES, PageId};

/// The pages of a device.
#[derive(Debug)]
pub(super) struct PageStore {
    /// `None` was never programmed.
    pages: Vec<Option<Box<[u8]>>>,
}

impl PageStore {
    /// So many pages, none of them programmed.
    pub(super) fn new(pages: usize) -> Self {
        Self { pages: vec![None; pages] }
    }

    /// Pages of the device.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The device has so many pages.
    pub(super) fn grow_to(&mut self, pages: usize) {
        self.pages.resize(pages, None);
    }

    /// Copies a page out; what was never programmed reads as zeros.
    pub(super) fn read(&self, page: PageId, into: &mut [u8]) {
        match &self.pages[page.0 as usize] {
            Some(bytes) => into.copy_from_slice(bytes),
            None => into.fill(0),
        }
    }

    /// Programs a page, of which only the first `keep_bytes` arrive.
    pub(super) fn program(&mut self, page: PageId, bytes: &[u8], keep_bytes: usize) {
        let blank = || vec![0; PAGE_BYTES].into_boxed_slice();
        let room = self.pages[page.0 as usize].get_or_insert_with(blank);
        let kept = keep_bytes.min(PAGE_BYTES);
        room[..kept].copy_from_slice(&bytes[..kept]);
    }

    /// Flips one bit of a page, if it ever held data; says so.
    pub(super) fn flip_bit(&mut self, page: PageId, bit: usize) -> bool {
        match self.pages.get_mut(page.0 as usize) {
            Some(Some(bytes)) => {
                bytes[bit / 8 % PAGE_BYTES] ^= 1 << (bit % 8);
                true
            }
            _ => false,
        }
    }
}

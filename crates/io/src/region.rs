//! Large memory that is looked at everywhere: anonymous, zeroed when first touched, on huge pages
//! where the system has them.
//!
//! A cache of a gigabyte in pages of 4 KiB needs a walk through the page tables for nearly every
//! look; in pages of 2 MiB it needs none. A region is aligned to the size of a huge page and
//! advised (`MADV_HUGEPAGE`); where that is not to be had it is ordinary memory. Memory is taken
//! from the system only as it is touched.

#![expect(unsafe_code, reason = "mapping memory has no safe interface")]

use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;
use core::slice;
use std::io;

use rustix::mm::{Advice, madvise};

use crate::huge::{HUGE_PAGE_BYTES, Rest, map, unmap};

/// Pages are at least as small wherever this runs; what is aligned to it and is not to larger ones
/// is refused by the system, and zeroed by hand.
const PAGE: usize = 4096;

/// Owned memory of whole huge pages.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region owns its mapping alone (no aliases are handed out but through borrows), like a
// `Vec<u8>`.
unsafe impl Send for Region {}
// SAFETY: shared access only reads.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of `bytes`, rounded up to a multiple of [`HUGE_PAGE_BYTES`] (at least one).
    ///
    /// # Errors
    /// The system has no room in the address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start: map(bytes, Rest::Huge)?, bytes })
    }

    /// Gives the memory of a part back to the system: it is zeroed again, and taken anew when it is
    /// touched. Only whole pages go; the rest is zeroed by hand. Until the region
    /// [is whole again](Self::is_whole_again) the system makes no huge page of what is left of it,
    /// which would take the memory anew.
    ///
    /// # Panics
    /// The part does not lie in the region.
    pub fn give_back(&mut self, part: Range<usize>) {
        assert!(part.start <= part.end && part.end <= self.bytes, "a part lies in its region");
        let pages = part.start.next_multiple_of(PAGE)..part.end / PAGE * PAGE;
        if pages.is_empty() || !self.forget(pages.clone()) {
            return self[part].fill(0);
        }
        self[part.start..pages.start].fill(0);
        self[pages.end..part.end].fill(0);
    }

    /// All of it is in use again, and may be huge pages.
    pub fn is_whole_again(&mut self) {
        self.advise(Advice::LinuxHugepage);
    }

    fn advise(&mut self, advice: Advice) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: the region is this one's own mapping; the advice changes nothing that it holds.
        let advised = unsafe { madvise(self.start.as_ptr().cast(), self.bytes, advice) };
        if let Err(error) = advised {
            tracing::debug!(%error, "the system does not take advice on huge pages");
        }
    }

    /// Whether the system took whole pages back.
    fn forget(&mut self, pages: Range<usize>) -> bool {
        if cfg!(miri) {
            return false;
        }
        self.advise(Advice::LinuxNoHugepage);
        // SAFETY: the pages lie in this region's own mapping, which is private and anonymous, and
        // `&mut self` makes this the only borrow; they read as zeroes afterwards, which are
        // initialised bytes.
        unsafe {
            let start = self.start.as_ptr().add(pages.start);
            madvise(start.cast(), pages.len(), Advice::LinuxDontNeed)
        }
        .is_ok()
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + bytes` is mapped, readable and initialised (zeroed by the system)
        // as long as `self` lives.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only borrow.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; no borrow of it outlives `self`.
        let unmapped = unsafe { unmap(self.start, self.bytes) };
        debug_assert!(unmapped, "a whole mapping can always be removed");
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_zeroed_and_writable_to_its_end() {
        let mut region = Region::new(3 * 1024 * 1024).unwrap();
        assert_eq!(region.len(), 2 * HUGE_PAGE_BYTES);
        assert_eq!(region.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        assert!(region.iter().step_by(4096).all(|&byte| byte == 0));
        let last = region.len() - 1;
        region[0] = 1;
        region[last] = 2;
        assert_eq!((region[0], region[last]), (1, 2));
    }

    #[test]
    fn a_part_that_is_given_back_is_zeroed_and_the_rest_is_as_it_was() {
        let mut region = Region::new(HUGE_PAGE_BYTES).unwrap();
        region.fill(7);
        for part in [4096..12_288, 20_000..40_000, 50_000..50_001, 60_000..60_000] {
            region.give_back(part.clone());
            assert!(region[part.clone()].iter().all(|&byte| byte == 0), "{part:?}");
            region[part].fill(7);
            assert!(region.iter().all(|&byte| byte == 7));
        }
    }
}

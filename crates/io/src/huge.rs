//! Mappings of whole huge pages, for [`Region`](crate::Region) and
//! [`HugePageAllocator`](crate::HugePageAllocator).
//!
//! Anonymous, zeroed when first touched, aligned to the size of a huge page and advised
//! (`MADV_HUGEPAGE`); where those are not to be had it is ordinary memory. Nothing here allocates
//! or unwinds: an allocator calls it.

#![expect(unsafe_code, reason = "mapping memory has no safe interface")]

use core::ptr::{NonNull, null_mut};
use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size and alignment of a huge page, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// What becomes of the rest behind the last huge page that an allocation fills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// It is on another huge page, of which all is taken with the first touch.
    Huge,
    /// It is on ordinary pages.
    Ordinary,
}

/// Maps fresh memory of `bytes`, rounded up to whole huge pages.
///
/// # Errors
/// The system has no room in the address space.
pub(crate) fn map(bytes: usize, rest: Rest) -> io::Result<NonNull<u8>> {
    let filled = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    // One page more than asked for, so that an aligned stretch is inside.
    let whole = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES);
    let with_slack = whole.and_then(|whole| whole.checked_add(HUGE_PAGE_BYTES));
    let (Some(bytes), Some(with_slack)) = (whole, with_slack) else {
        return Err(io::ErrorKind::OutOfMemory.into());
    };
    // SAFETY: a fresh anonymous mapping at an address of the system's choice touches no memory of
    // anybody.
    let mapped = unsafe {
        mmap_anonymous(
            null_mut(),
            with_slack,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    let mapped = mapped.cast::<u8>();
    let skip = mapped.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `skip` is below a huge page, so the aligned stretch lies inside the mapping; what is
    // before and behind it belongs to nobody else and is given back, in whole pages since both ends
    // are aligned to them. The advice changes no content.
    let start = unsafe {
        let start = mapped.add(skip);
        if skip > 0 {
            let _ = munmap(mapped.cast(), skip);
        }
        if skip < HUGE_PAGE_BYTES {
            let _ = munmap(start.add(bytes).cast(), HUGE_PAGE_BYTES - skip);
        }
        let advised = if rest == Rest::Huge { bytes } else { filled };
        // Without huge pages it is ordinary memory.
        let _ = madvise(start.cast(), advised, Advice::LinuxHugepage);
        if advised < bytes {
            // A system may take huge pages for all memory that is not advised otherwise.
            let _ = madvise(start.add(advised).cast(), bytes - advised, Advice::LinuxNoHugepage);
        }
        start
    };
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Gives back what [`map`] gave for so many bytes. Whether the system took it; if not, it is lost.
///
/// # Safety
/// `start` came from [`map`] with the same `bytes`, was not given back before, and nobody uses it
/// any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: exactly the mapping made in `map`, by the caller's promise.
    unsafe { munmap(start.as_ptr().cast(), bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES)) }.is_ok()
}

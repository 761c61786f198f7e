//! The allocator of programs that look at much memory in no order: large allocations lie on huge
//! pages.
//!
//! Tables of tens of megabytes that are looked at everywhere cost a walk through the page tables
//! for nearly every look on pages of 4 KiB. What is smaller than a huge page goes to the system's
//! allocator; the rest is mapped on its own, aligned and advised (`MADV_HUGEPAGE`), and taken from
//! the system only as it is touched. Buffers of bytes take huge pages for what fills them, tables
//! for all that they have. Set by the binary alone: a library does not choose for its host.
//!
//! Invariant: whether an allocation is large depends on its layout alone, so that it is given back
//! the way it was taken.

#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use std::alloc::System;

use crate::huge::{HUGE_PAGE_BYTES, Rest, map, unmap};

/// The system's allocator, with large allocations on huge pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePageAllocator;

/// Whether a layout is served by a mapping of its own.
fn is_large(layout: Layout) -> bool {
    layout.size() >= HUGE_PAGE_BYTES && layout.align() <= HUGE_PAGE_BYTES
}

/// Fresh zeroed memory of its own for a large layout; null when the system has none.
fn large(layout: Layout) -> *mut u8 {
    // Bytes without alignment are buffers: there may be many of a little more than 2 MiB, each of
    // which would take 4. Everything else are tables, which are there for long. A hash table has
    // what every look begins with at its end.
    let rest = if layout.align() == 1 { Rest::Ordinary } else { Rest::Huge };
    map(layout.size(), rest).map_or(null_mut(), NonNull::as_ptr)
}

// SAFETY: small layouts are the system allocator's throughout; large ones get a mapping of their
// own, which is at least as large and as aligned as asked for, and which `dealloc` removes as a
// whole. Nothing here unwinds or allocates.
unsafe impl GlobalAlloc for HugePageAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            large(layout)
        } else {
            // SAFETY: the caller's promises are passed on.
            unsafe { System.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            large(layout)
        } else {
            // SAFETY: the caller's promises are passed on.
            unsafe { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_large(layout) {
            if let Some(memory) = NonNull::new(memory) {
                // SAFETY: `memory` came from `map` with this size, and nobody uses it any more.
                let _ = unsafe { unmap(memory, layout.size()) };
            }
        } else {
            // SAFETY: the caller's promises are passed on; `memory` came from the system's
            // allocator, since its layout is small.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` is not zero and does not overflow with this
        // alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(wanted) {
            // SAFETY: the caller's promises are passed on.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: `wanted` is a proper layout; both stretches are as long as what is copied, and do
        // not overlap.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                core::ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 16).unwrap()
    }

    #[test]
    fn sizes_around_a_huge_page_are_zeroed_writable_and_given_back() {
        for bytes in [
            1,
            4096,
            HUGE_PAGE_BYTES - 1,
            HUGE_PAGE_BYTES,
            HUGE_PAGE_BYTES + 1,
            3 * HUGE_PAGE_BYTES,
        ] {
            // SAFETY: what is allocated is used within its bounds and given back with its layout.
            unsafe {
                let memory = HugePageAllocator.alloc_zeroed(layout(bytes));
                assert!(!memory.is_null());
                assert_eq!((*memory, *memory.add(bytes - 1)), (0, 0), "{bytes}");
                assert!(
                    bytes < HUGE_PAGE_BYTES || (memory as usize).is_multiple_of(HUGE_PAGE_BYTES),
                    "{bytes}"
                );
                *memory = 1;
                *memory.add(bytes - 1) = 2;
                HugePageAllocator.dealloc(memory, layout(bytes));
            }
        }
    }

    /// Whether an address of this process has a flag of `/proc/PID/smaps`: huge pages are advised
    /// (`hg`), or advised against (`nh`).
    fn has_flag(address: usize, flag: &str) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        maps.lines().any(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends =
                range.map(|(from, until)| [from, until].map(|end| usize::from_str_radix(end, 16)));
            if let Some([Ok(from), Ok(until)]) = ends {
                inside = (from..until).contains(&address);
            }
            inside && line.starts_with("VmFlags:") && line.split(' ').any(|word| word == flag)
        })
    }

    #[test]
    fn what_bytes_leave_behind_the_last_whole_huge_page_takes_no_other_one_and_the_end_of_tables_does()
     {
        for (whole, align) in [(1, 1), (3, 1), (1, 16), (3, 16)] {
            let bytes = whole * HUGE_PAGE_BYTES + 100;
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: as above.
            unsafe {
                let memory = HugePageAllocator.alloc(layout);
                let start = memory as usize;
                let end = start + bytes - 1;
                assert!(
                    has_flag(start, "hg") && has_flag(start + whole * HUGE_PAGE_BYTES - 1, "hg"),
                    "{bytes}"
                );
                assert_eq!(
                    (has_flag(end, "hg"), has_flag(end, "nh")),
                    (align > 1, align == 1),
                    "{bytes}"
                );
                HugePageAllocator.dealloc(memory, layout);
            }
        }
    }

    #[test]
    fn what_grows_and_shrinks_over_the_boundary_keeps_its_bytes() {
        let sizes = [
            100,
            HUGE_PAGE_BYTES - 5,
            HUGE_PAGE_BYTES + 5,
            5 * HUGE_PAGE_BYTES,
            3 * HUGE_PAGE_BYTES,
            200,
        ];
        // SAFETY: as above.
        unsafe {
            let mut memory = HugePageAllocator.alloc(layout(sizes[0]));
            (0..100).for_each(|at| *memory.add(at) = at as u8);
            for pair in sizes.windows(2) {
                memory = HugePageAllocator.realloc(memory, layout(pair[0]), pair[1]);
                assert!(!memory.is_null());
                assert!((0..100).all(|at| *memory.add(at) == at as u8), "{pair:?}");
            }
            HugePageAllocator.dealloc(memory, layout(200));
        }
    }

    #[test]
    fn what_cannot_be_had_is_null() {
        // SAFETY: null is not used.
        let memory = unsafe { HugePageAllocator.alloc(layout(isize::MAX as usize - 100)) };
        assert!(memory.is_null());
    }
}

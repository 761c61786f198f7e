//! Asking the processor for memory ahead of its use.
//!
//! A load that misses all caches takes longer than all the other work on a request; a prefetch
//! takes one instruction, waits for nothing and faults on nothing. Who knows a few requests
//! beforehand what they will look at, asks for all of it first.
//!
//! Where the processor has no such instruction in stable Rust, these do nothing.

#![expect(unsafe_code, reason = "the instruction has no safe interface, though it can do no harm")]

/// Bytes of a line of the processor's cache.
const LINE_BYTES: usize = 64;

/// Asks for the cache line in which `item` begins.
#[inline]
pub fn prefetch<T>(item: &T) {
    fetch(core::ptr::from_ref(item).cast());
}

/// Asks for every cache line of `bytes`.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        fetch(line.as_ptr());
    }
}

/// Asks for the first `most` cache lines of `item`, as far as it has so many.
#[inline]
pub fn prefetch_lines<T: ?Sized>(item: &T, most: usize) {
    let begin = core::ptr::from_ref(item).cast::<u8>();
    for line in 0..size_of_val(item).div_ceil(LINE_BYTES).min(most) {
        fetch(begin.wrapping_add(line * LINE_BYTES));
    }
}

#[inline]
fn fetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and faults at no address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_nothing() {
        let bytes = [7u8; 300];
        prefetch_bytes(&bytes);
        prefetch_bytes(&[]);
        prefetch(&bytes);
        assert_eq!(bytes, [7u8; 300]);
    }
}

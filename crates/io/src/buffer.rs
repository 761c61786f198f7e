//! Page-aligned memory for O_DIRECT, and a pool of it.
//!
//! A buffer is plain owned memory: it moves into an operation and comes back in the completion, so
//! nobody can look at it while the kernel writes into it. The pool is single-threaded and explicit
//! (`take`, `give`): a buffer that is dropped instead of given back is simply freed.
//!
//! Invariants: memory is always initialised (zeroed when allocated); `length ≤ capacity`, both
//! multiples of [`ALIGNMENT`]; the memory neither moves nor is freed while its `AlignedBuffer`
//! exists, wherever that value itself is moved to; whether it is a mapping of its own depends on
//! the capacity alone.
//!
//! Large buffers are mappings of their own: those that are dropped go back to the system, whole. From
//! an allocator they would come out of the memory that small ones share, and leave holes in it.

#![expect(unsafe_code, reason = "aligned allocation has no safe interface in std")]

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Buffers of at least so many bytes are mappings of their own.
const MAPPED_BYTES: usize = 128 * 1024;

/// Alignment and granularity of buffers, in bytes: the page size, which every O_DIRECT file system
/// we support accepts.
pub const ALIGNMENT: usize = 4096;

/// Owned memory, aligned to [`ALIGNMENT`], whose length is a multiple of it.
pub struct AlignedBuffer {
    memory: NonNull<u8>,
    length: usize,
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone (no aliases are handed out but through borrows), like a
// `Vec<u8>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Zeroed memory of `bytes`, rounded up to a multiple of [`ALIGNMENT`] (at least one).
    ///
    /// # Panics
    /// When `bytes` is beyond half the address space.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let capacity = round_up(bytes);
        let layout = Self::layout(capacity);
        let memory = if is_mapped(capacity) {
            // SAFETY: a fresh anonymous mapping at an address of the system's choice touches no
            // memory of anybody. It is zeroed, and aligned to pages.
            let mapped = unsafe {
                mmap_anonymous(
                    core::ptr::null_mut(),
                    capacity,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )
            };
            mapped.map_or(core::ptr::null_mut(), <*mut _>::cast)
        } else {
            // SAFETY: the layout's size is at least ALIGNMENT, hence not zero.
            unsafe { alloc_zeroed(layout) }
        };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, length: capacity, capacity }
    }

    /// How long the buffer could become without a new allocation, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the visible length to `bytes`, rounded up to a multiple of [`ALIGNMENT`]. Content is
    /// kept; what comes into view is whatever was there before.
    ///
    /// # Panics
    /// When that exceeds the capacity.
    pub fn set_length(&mut self, bytes: usize) {
        let length = round_up(bytes);
        assert!(
            length <= self.capacity,
            "a buffer of {} bytes cannot become {length} long",
            self.capacity
        );
        self.length = length;
    }

    /// Start of the memory, for the engines.
    pub(crate) fn as_mut_pointer(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Start of the memory, for the engines.
    pub(crate) fn as_pointer(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT)
            .expect("a buffer is smaller than the address space")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if is_mapped(self.capacity) {
            // SAFETY: mapped in `zeroed` with exactly this capacity, which never changes, and
            // unmapped only here. Should the system refuse, the memory is lost.
            let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.capacity) };
            return;
        }
        // SAFETY: allocated in `zeroed` with exactly this layout (capacity never changes), and
        // freed only here.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length ≤ capacity` bytes were allocated and initialised; the borrow of self
        // keeps them alive and unwritten.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the unique borrow of self makes the access unique.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.length) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} of {} bytes)", self.length, self.capacity)
    }
}

/// Recycles buffers by size class (powers of two times [`ALIGNMENT`]), so that steady state
/// allocates nothing.
///
/// Owned by one thread. Keeps at most `keep_bytes`; what is given beyond is freed.
#[derive(Debug)]
pub struct BufferPool {
    classes: Vec<Vec<AlignedBuffer>>,
    kept_bytes: usize,
    keep_bytes: usize,
}

impl BufferPool {
    /// An empty pool that keeps at most `keep_bytes` bytes of idle buffers.
    #[must_use]
    pub fn new(keep_bytes: usize) -> Self {
        Self { classes: Vec::new(), kept_bytes: 0, keep_bytes }
    }

    /// A buffer of `bytes`, rounded up to a multiple of [`ALIGNMENT`]. Its content is unspecified
    /// (zeros or what its last user left).
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> AlignedBuffer {
        let class = class_to_hold(bytes);
        match self.classes.get_mut(class).and_then(Vec::pop) {
            Some(mut buffer) => {
                self.kept_bytes -= buffer.capacity();
                buffer.set_length(bytes);
                buffer
            }
            None => {
                let mut buffer = AlignedBuffer::zeroed(ALIGNMENT << class);
                buffer.set_length(bytes);
                buffer
            }
        }
    }

    /// Takes a buffer back, whoever allocated it.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        if self.kept_bytes + buffer.capacity() > self.keep_bytes {
            return;
        }
        let class = class_within(buffer.capacity());
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.kept_bytes += buffer.capacity();
        self.classes[class].push(buffer);
    }

    /// Bytes of idle buffers held now.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}

/// Whether a buffer is a mapping of its own.
fn is_mapped(capacity: usize) -> bool {
    capacity >= MAPPED_BYTES && !cfg!(miri)
}

/// The next multiple of the alignment, at least one.
fn round_up(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

/// Smallest class whose buffers hold `bytes`.
fn class_to_hold(bytes: usize) -> usize {
    (round_up(bytes) / ALIGNMENT).next_power_of_two().trailing_zeros() as usize
}

/// Largest class whose size the buffer of `capacity` reaches: every buffer kept in a class is at
/// least as large as the class says.
fn class_within(capacity: usize) -> usize {
    (capacity / ALIGNMENT).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_rounded_up() {
        // Miri takes a minute for a mebibyte.
        let large = if cfg!(miri) { 1 << 14 } else { 1 << 20 };
        for bytes in [0, 1, 4095, 4096, 4097, MAPPED_BYTES - 1, MAPPED_BYTES + 1, large] {
            let buffer = AlignedBuffer::zeroed(bytes);
            assert_eq!(buffer.as_pointer() as usize % ALIGNMENT, 0);
            assert!(buffer.len() >= bytes && buffer.len().is_multiple_of(ALIGNMENT));
            assert!(buffer[..] == vec![0; buffer.len()][..]);
        }
    }

    #[test]
    fn the_pool_hands_the_same_memory_out_again() {
        let mut pool = BufferPool::new(1 << 20);
        let mut first = pool.take(5000);
        assert_eq!(first.len(), 8192);
        first[0] = 7;
        let address = first.as_pointer();
        pool.give(first);
        assert_eq!(pool.kept_bytes(), 8192);
        let again = pool.take(8000);
        assert_eq!(again.as_pointer(), address);
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn an_odd_capacity_is_kept_where_it_is_large_enough() {
        let mut pool = BufferPool::new(1 << 20);
        pool.give(AlignedBuffer::zeroed(3 * ALIGNMENT));
        assert_eq!(
            pool.take(4 * ALIGNMENT).capacity(),
            4 * ALIGNMENT,
            "three pages cannot serve four"
        );
        assert_eq!(pool.take(2 * ALIGNMENT).capacity(), 3 * ALIGNMENT);
    }

    #[test]
    fn the_pool_keeps_no_more_than_it_may() {
        let mut pool = BufferPool::new(2 * ALIGNMENT);
        for _ in 0..5 {
            pool.give(AlignedBuffer::zeroed(ALIGNMENT));
        }
        assert_eq!(pool.kept_bytes(), 2 * ALIGNMENT);
    }

    #[test]
    #[should_panic(expected = "cannot become")]
    fn a_buffer_does_not_grow_beyond_its_memory() {
        AlignedBuffer::zeroed(ALIGNMENT).set_length(ALIGNMENT + 1);
    }
}

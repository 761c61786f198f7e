//! What a connection has received of a frame whose rest is not here yet, or of frames that nobody
//! takes at the moment.
//!
//! Invariants: an idle connection holds no buffer; a frame longer than what is read at once is
//! collected only in memory that is reserved for it.

use timestone_types::Timestamp;

use crate::limits::{POOL_LARGEST, READ_BYTES};
use crate::{Charge, FrameBatchPool, Tally};

/// The beginning of a frame up to this size is put in front of what is read next; a longer one is
/// collected in its own buffer.
pub(in crate::net) const SCRATCH_HEAD: usize = READ_BYTES / 4;

/// See the module.
#[derive(Debug)]
pub(in crate::net) struct InputBuffer {
    bytes: Vec<u8>,
    /// Bytes that `bytes` needs before splitting it again makes sense.
    needed: usize,
    /// Memory for the long frame that is being collected.
    reservation: Option<Charge>,
    /// What the stage has counted of `bytes`, in bytes of memory.
    counted: u64,
    /// The last time that something was read.
    pub(in crate::net) read_at: Timestamp,
}

impl InputBuffer {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { bytes: Vec::new(), needed: 0, reservation: None, counted: 0, read_at: now }
    }

    /// What is kept.
    #[inline]
    pub(in crate::net) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether what is read next goes into this buffer, and not behind a copy of it into a scratch
    /// of so many bytes.
    #[inline]
    pub(in crate::net) const fn collects(&self, scratch: usize) -> bool {
        self.bytes.len() > SCRATCH_HEAD || self.needed > scratch
    }

    /// Whether a frame is about to be collected for which no memory is reserved yet.
    #[inline]
    pub(in crate::net) const fn collects_unreserved(&self, scratch: usize) -> bool {
        self.collects(scratch) && self.reservation.is_none()
    }

    /// Whether memory is reserved for a long frame.
    #[inline]
    pub(in crate::net) const fn is_reserved(&self) -> bool {
        self.reservation.is_some()
    }

    /// Memory that the frame that is being collected takes, in bytes.
    #[inline]
    pub(in crate::net) fn needed(&self) -> usize {
        self.needed.max(self.bytes.len())
    }

    /// Splitting again makes sense from so many bytes on.
    #[inline]
    pub(in crate::net) const fn set_needed(&mut self, needed: usize) {
        self.needed = needed;
    }

    /// Takes the memory that was reserved for the long frame that is being collected.
    pub(in crate::net) fn reserve(&mut self, charge: Charge, now: Timestamp) {
        let bytes = self.needed();
        assert!(self.reservation.is_none(), "memory is reserved once for a frame");
        self.reservation = Some(charge);
        self.bytes.reserve_exact(bytes - self.bytes.len());
        self.read_at = now;
    }

    /// Collects what was read of a long frame. Whether splitting makes sense.
    #[inline]
    pub(in crate::net) fn collect(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        self.bytes.len() >= self.needed
    }

    /// Takes the bytes out, to split them.
    pub(in crate::net) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Keeps `rest` (the end of what was received) until more comes; an empty rest gives the buffer
    /// back.
    pub(in crate::net) fn keep(&mut self, rest: &[u8], pool: &mut FrameBatchPool) {
        self.reservation = None;
        if rest.is_empty() {
            pool.give(self.take());
            return;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(rest);
    }

    /// Keeps what of `bytes` is not `consumed`, in a buffer no larger than it needs.
    pub(in crate::net) fn keep_rest(
        &mut self,
        mut bytes: Vec<u8>,
        consumed: usize,
        pool: &mut FrameBatchPool,
    ) {
        let rest = bytes.len() - consumed;
        if rest > SCRATCH_HEAD || (rest > 0 && bytes.capacity() <= POOL_LARGEST) {
            bytes.drain(..consumed);
            bytes.shrink_to(rest.max(POOL_LARGEST));
            self.reservation = None;
            self.bytes = bytes;
        } else {
            self.keep(&bytes[consumed..], pool);
            pool.give(bytes);
        }
    }

    /// Counts what is held of an unfinished frame, beside what is reserved for it.
    #[inline]
    pub(in crate::net) fn count(&mut self, all: &mut Tally) {
        let reserved = self.reservation.as_ref().map_or(0, Charge::bytes);
        let bytes = (self.bytes.capacity() as u64).saturating_sub(reserved);
        let before = std::mem::replace(&mut self.counted, bytes);
        if before != bytes {
            all.change(before, bytes);
        }
    }

    /// Nothing of it counts any more.
    pub(in crate::net) fn uncount(&mut self, all: &mut Tally) {
        all.change(std::mem::take(&mut self.counted), 0);
    }

    /// Gives the buffer and what is reserved back.
    pub(super) fn release(&mut self, pool: &mut FrameBatchPool) {
        self.reservation = None;
        pool.give(self.take());
    }
}

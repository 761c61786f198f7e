//! Bytes for answers: what callers give back is used again.
//!
//! Invariants: `kept_bytes` is the capacity of everything kept, and never above
//! [`RECYCLE_BYTES`].

use crate::limits::RECYCLE_BYTES;

/// Idle byte vectors.
#[derive(Default)]
pub(crate) struct Buffers {
    kept: Vec<Vec<u8>>,
    kept_bytes: usize,
}

impl Buffers {
    /// An empty vector, a used one when there is any.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = self.kept.pop().unwrap_or_default();
        assert!(bytes.capacity() <= self.kept_bytes, "what is kept was counted");
        self.kept_bytes -= bytes.capacity();
        bytes.clear();
        bytes
    }

    /// Keeps bytes for reuse, as far as the bound allows.
    pub(crate) fn give(&mut self, bytes: Vec<u8>) {
        if self.kept_bytes + bytes.capacity() <= RECYCLE_BYTES {
            self.kept_bytes += bytes.capacity();
            self.kept.push(bytes);
        }
        debug_assert!(self.kept_bytes <= RECYCLE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_comes_out_empty_with_its_memory() {
        let mut buffers = Buffers::default();
        assert_eq!(buffers.take().capacity(), 0);
        buffers.give(vec![7; 100]);
        let again = buffers.take();
        assert!(again.is_empty() && again.capacity() >= 100);
        assert_eq!(buffers.kept_bytes, 0);
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let mut buffers = Buffers::default();
        buffers.give(vec![0; RECYCLE_BYTES]);
        buffers.give(vec![0; 1]);
        assert_eq!(buffers.kept.len(), 1);
    }
}

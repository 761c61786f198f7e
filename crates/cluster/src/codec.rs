//! Little-endian reading and writing of metadata: a cursor that checks every bound, and helpers
//! that append.
//!
//! Metadata is small and rarely read; the code favours plainness over speed. Lists announce their
//! length as `u32` and every reader says how many it accepts at most, so that no announced length
//! makes it allocate more than the bytes can hold.

use crate::ClusterError;

/// Reads from the front of bytes that somebody else wrote.
pub(crate) struct Cursor<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub(crate) const fn fail(&self, reason: &'static str) -> ClusterError {
        ClusterError::malformed(self.what, reason)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ClusterError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.fail("it ends too early"));
        };
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ClusterError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ClusterError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ClusterError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ClusterError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The length of a list whose items take at least `item_bytes` each.
    pub(crate) fn count(&mut self, limit: usize, item_bytes: usize) -> Result<usize, ClusterError> {
        let count = self.u32()? as usize;
        if count > limit {
            return Err(self.fail("a list is longer than its bound"));
        }
        if count.saturating_mul(item_bytes) > self.rest.len() {
            return Err(self.fail("a list is longer than the bytes that follow"));
        }
        Ok(count)
    }

    pub(crate) fn text(&mut self, limit: usize) -> Result<&'a str, ClusterError> {
        let length = usize::from(self.u16()?);
        if length > limit {
            return Err(self.fail("a text is longer than its bound"));
        }
        let head = self.bytes(length)?;
        core::str::from_utf8(head).map_err(|_| self.fail("a text is not UTF-8"))
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], ClusterError> {
        let Some((head, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.fail("it ends too early"));
        };
        self.rest = rest;
        Ok(head)
    }

    /// All that is left.
    pub(crate) fn remainder(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    pub(crate) const fn finish(&self) -> Result<(), ClusterError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.fail("bytes follow its end")) }
    }
}

pub(crate) fn put_u8(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a list's length; every list of this crate is bounded far below `u32::MAX`.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("lists are bounded by limits.rs");
    put_u32(out, count);
}

/// Appends a text with its length; every text of this crate is bounded far below `u16::MAX`.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("texts are bounded by limits.rs");
    put_u16(out, length);
    out.extend_from_slice(text.as_bytes());
}

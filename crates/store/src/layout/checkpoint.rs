//! A page of a checkpoint: a part of a stream, which is the store's own.
//!
//! ```text
//!   48 checkpoint u64 │ 56 page in the checkpoint u32 │ 60 1 on the last page u32 │ 64 stream
//! ```

use super::{MAX_COUNT, RAW_PAYLOAD, put_u32, put_u64, u32_at, u64_at};

/// Behind the page header: checkpoint number u64, page number in the checkpoint u32, 1 on the last
/// page u32.
pub(crate) const CHECKPOINT_FIXED: usize = 16;
/// Bytes of the stream in a page.
pub(crate) const CHECKPOINT_PAYLOAD: usize = RAW_PAYLOAD - CHECKPOINT_FIXED;

/// Fills what follows the page header.
pub(crate) fn write_checkpoint_page(
    bytes: &mut [u8],
    number: u64,
    page: u32,
    ends: bool,
    chunk: &[u8],
) {
    let body = bytes.len() - RAW_PAYLOAD;
    put_u64(bytes, body, number);
    put_u32(bytes, body + 8, page);
    put_u32(bytes, body + 12, u32::from(ends));
    bytes[body + CHECKPOINT_FIXED..body + CHECKPOINT_FIXED + chunk.len()].copy_from_slice(chunk);
}

/// A page of a checkpoint: its number, its place in it, whether it is the last, its payload.
pub(crate) fn read_checkpoint_page(page: &[u8], used: u16) -> Option<(u64, u32, bool, &[u8])> {
    let body = page.len() - RAW_PAYLOAD;
    let end = body
        .checked_add(usize::from(used))
        .filter(|&end| used as usize >= CHECKPOINT_FIXED && end <= page.len())?;
    let last = u32_at(page, body + 12) == 1;
    let number = Some(u64_at(page, body)).filter(|&number| number <= MAX_COUNT)?;
    Some((number, u32_at(page, body + 8), last, &page[body + CHECKPOINT_FIXED..end]))
}

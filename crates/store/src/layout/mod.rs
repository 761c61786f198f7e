//! How bytes lie on flash: pages, records, parts of large values, checkpoints. Documented in
//! `docs/formats/store.md`.
//!
//! All numbers are little-endian. Nothing here does I/O; damaged bytes give `None` or an error
//! value, never a panic.

mod checkpoint;
mod large;
mod page;
mod record;

pub(crate) use checkpoint::{
    CHECKPOINT_FIXED, CHECKPOINT_PAYLOAD, read_checkpoint_page, write_checkpoint_page,
};
pub(crate) use large::{
    Extent, LargeHead, MAX_PARTS, PART_PAYLOAD, PartHeader, part_header, write_part_header,
};
pub(crate) use page::{
    FORMAT, HEADER_BYTES, MAX_COUNT, PageHeader, PageKind, RAW_PAYLOAD, SLOT_BYTES, append, count,
    find, init_page, is_lost_page, lost_page, record_at, records, room, seal, sequence, verify,
};
#[cfg(feature = "fuzz")]
pub(crate) use page::{is_sealable, reseal_records, stamp};
pub(crate) use record::{
    LINK_BYTES, LinkKind, Links, MAX_RECORD_BYTES, NO_PAGE, Record, RecordKind, UNKNOWN_PAGE,
};

/// Reads a number of a fixed width from bytes that are known to be long enough.
macro_rules! number {
    ($name:ident, $put:ident, $type:ty) => {
        pub(crate) fn $name(bytes: &[u8], at: usize) -> $type {
            let mut raw = [0; size_of::<$type>()];
            raw.copy_from_slice(&bytes[at..at + size_of::<$type>()]);
            <$type>::from_le_bytes(raw)
        }

        pub(crate) fn $put(bytes: &mut [u8], at: usize, value: $type) {
            bytes[at..at + size_of::<$type>()].copy_from_slice(&value.to_le_bytes());
        }
    };
}

number!(u16_at, put_u16, u16);
number!(u32_at, put_u32, u32);
number!(u64_at, put_u64, u64);

#[cfg(test)]
mod tests;

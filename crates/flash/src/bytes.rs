//! Numbers in pages, little-endian, and the checksum around its own place.

/// CRC-32C over a page without the four bytes at `hole`.
pub(crate) fn crc_around(page: &[u8], hole: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..hole]), &page[hole + 4..])
}

pub(crate) fn put_u32(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn get_u32(page: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(bytes)
}

pub(crate) fn get_u64(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

//! What the fuzz targets need of the layout, which is private otherwise: entries that decode bytes,
//! and one that makes a page sound.
//!
//! Only with the feature `fuzz`. The decoders say `None` or an error to what makes no sense; a
//! panic, or something that encodes to something else than it was decoded from, is what these
//! entries look for.

use timestone_flash::{Generation, PAGE_BYTES, PageId};

use crate::layout::{self, LargeHead, PageHeader, PageKind, Record, part_header};
use crate::mftl;

/// Decodes a page and everything in it. Shorter than a page is filled up with zeros.
///
/// # Panics
/// When a decoder breaks its word.
pub fn decode_page(bytes: &[u8]) {
    let mut page = bytes[..bytes.len().min(PAGE_BYTES)].to_vec();
    page.resize(PAGE_BYTES, 0);
    let header = PageHeader::read(&page);
    if let Some(Ok(header)) = header {
        let verified = layout::verify(&page, header.page, header.generation, header.store);
        assert_eq!(verified, Ok(header), "a header that reads verifies against itself");
    }
    let _ = part_header(&page);
    let used = header.and_then(Result::ok).map_or(PAGE_BYTES as u16, |header| header.count);
    let _ = layout::read_checkpoint_page(&page, used);
    for raw in layout::records(&page).flatten() {
        let Some(record) = Record::read(raw) else { continue };
        let mut again = vec![0; record.bytes().max(raw.len()) + 8];
        record.write(&mut again);
        assert_eq!(
            Record::read_intact(&again),
            Some(record),
            "a record encodes to something else than it was"
        );
        if let Some(head) = LargeHead::read(record.value) {
            let mut again = Vec::new();
            head.write(&mut again);
            assert_eq!(
                LargeHead::read(&again),
                Some(head),
                "a head encodes to something else than it was"
            );
        }
        let _ = layout::find(&page, 0, record.version, |found| *found == record);
    }
}

/// Decodes the stream of a checkpoint; gives how many keys it named.
#[must_use]
pub fn decode_checkpoint(bytes: &[u8]) -> Option<u64> {
    mftl::decode_checkpoint(bytes)
}

/// The stream of a checkpoint, cut into the pages of block 0 on; to be sealed.
#[must_use]
pub fn checkpoint_pages(stream: &[u8]) -> Vec<Vec<u8>> {
    mftl::checkpoint_pages(stream)
}

/// Makes `page`, which is as long as a page, a sound one of this place: identity and checksums are
/// filled in, its kind made one that exists, and everything else left as it is.
pub fn seal(page: &mut [u8], place: PageId, generation: Generation, store: u64) {
    let kind = match page[6] % 4 {
        1 => PageKind::Records,
        2 => PageKind::LargeHeads,
        3 => PageKind::LargePart,
        _ => PageKind::Checkpoint,
    };
    layout::stamp(page, kind, place, generation, store);
    if matches!(kind, PageKind::Records | PageKind::LargeHeads) {
        layout::reseal_records(page);
    }
    if layout::is_sealable(page) {
        layout::seal(page);
    }
}

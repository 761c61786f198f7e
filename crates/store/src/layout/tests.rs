//! The layouts: what is written reads back, damage is noticed, and the document says what the code
//! does.

use timestone_flash::{Generation, PAGE_BYTES, PageId};
use timestone_types::{ClientId, Expiry, KeyHash, KeyspaceId, Timestamp, Version};

use super::*;

fn sample<'a>(key: &'a [u8], value: &'a [u8], expires_at: Expiry) -> Record<'a> {
    Record {
        kind: RecordKind::Value,
        keyspace: KeyspaceId::new(7),
        hash: KeyHash(0x0102_0304_0506_0708),
        version: Version::new(Timestamp::from_nanos(99), ClientId::new(3)),
        expires_at,
        key,
        value,
        links: None,
    }
}

fn page_with(records: &[Record<'_>]) -> Vec<u8> {
    let mut page = vec![0xff; PAGE_BYTES];
    let header = PageHeader {
        kind: PageKind::Records,
        generation: Generation(4),
        page: PageId(17),
        count: 0,
        used: HEADER_BYTES as u16,
        store: 5,
        seed: 6,
        sequence: 8,
    };
    init_page(&mut page, &header);
    for record in records {
        append(&mut page, record, 0xabcd);
    }
    seal(&mut page);
    page
}

#[test]
fn a_page_reads_back_as_written() {
    let expires = Expiry::at(Timestamp::from_nanos(1234));
    let written = [sample(b"one", b"first", Expiry::NEVER), sample(b"two", b"", expires)];
    let page = page_with(&written);
    let header = verify(&page, PageId(17), Generation(4), 5).expect("intact");
    assert_eq!((header.count, header.sequence, header.seed), (2, 8, 6));
    let read: Vec<_> = records(&page)
        .map(|bytes| Record::read_intact(bytes.expect("slot")).expect("intact"))
        .collect();
    assert_eq!(read, written);
    assert!(verify(&page, PageId(18), Generation(4), 5).is_err());
    assert!(verify(&page, PageId(17), Generation(5), 5).is_err());
    assert!(verify(&page, PageId(17), Generation(4), 4).is_err());
}

const LINK_KINDS: [LinkKind; 7] = [
    LinkKind::Youngest,
    LinkKind::Flagged,
    LinkKind::First,
    LinkKind::Middle,
    LinkKind::Last,
    LinkKind::Only,
    LinkKind::Loose,
];

#[test]
fn a_record_in_a_chain_reads_back_with_its_pointers() {
    let expires = Expiry::at(Timestamp::from_nanos(77));
    let kinds = LINK_KINDS.into_iter().enumerate();
    let written: Vec<Record<'_>> = kinds
        .map(|(number, kind)| {
            let (next, loose_prior) = (number as u32, number % 3 == 0);
            let prior = if loose_prior { (1 << 30) - 1 } else { UNKNOWN_PAGE };
            let links = Links { next, prior, loose_prior, kind, bits: 31 };
            let expires_at = if number % 2 == 0 { expires } else { Expiry::NEVER };
            Record { links: Some(links), ..sample(b"key", b"value", expires_at) }
        })
        .collect();
    let page = page_with(&written);
    let read = records(&page).map(|raw| Record::read_intact(raw.expect("slot")).expect("intact"));
    assert!(read.eq(written.iter().copied()));
    assert_eq!(written[1].bytes(), Record::bytes_for(3, 5, false) + LINK_BYTES);
    assert_eq!(record_at(&page, 2).and_then(Record::read), Some(written[2]));
    assert_eq!((count(&page), sequence(&page)), (7, 8));
    let mut earlier = record_at(&page, 2).expect("a record").to_vec();
    assert!(!Record::is_of_earlier_chains(&earlier));
    earlier[5] = earlier[5] & !7 | 6;
    assert!(!Record::is_of_earlier_chains(&earlier), "it is damaged");
    let bytes = written[2].bytes();
    let sealed = crc32c::crc32c(&earlier[4..bytes]);
    earlier[..4].copy_from_slice(&sealed.to_le_bytes());
    assert!(Record::is_of_earlier_chains(&earlier) && Record::read(&earlier).is_none());
}

#[test]
fn the_longest_record_fills_a_page_exactly() {
    let value = vec![1; MAX_RECORD_BYTES - Record::bytes_for(3, 0, false)];
    let page = page_with(&[sample(b"key", &value, Expiry::NEVER)]);
    assert_eq!(room(&page), 0);
    assert_eq!(
        Record::read_intact(records(&page).next().flatten().expect("slot")).expect("intact").value,
        value
    );
}

#[test]
fn every_flipped_bit_of_a_page_is_noticed_or_harmless() {
    let written =
        [sample(b"one", b"first", Expiry::NEVER), sample(b"two", b"second", Expiry::NEVER)];
    let clean = page_with(&written);
    let used = usize::from(u16_at(&clean, 22));
    for bit in 0..PAGE_BYTES * 8 {
        let mut page = clean.clone();
        page[bit / 8] ^= 1 << (bit % 8);
        let in_gap = (used..PAGE_BYTES - 2 * SLOT_BYTES).contains(&(bit / 8));
        let verified = verify(&page, PageId(17), Generation(4), 5).is_ok();
        let whole =
            records(&page).filter(|bytes| bytes.and_then(Record::read_intact).is_some()).count();
        if in_gap || bit / 8 == 7 {
            assert!(verified && whole == 2, "bit {bit} belongs to nothing");
        } else {
            assert!(!verified || whole == 1, "bit {bit} went unnoticed");
        }
    }
}

#[test]
fn a_large_head_reads_back_and_nonsense_does_not() {
    let extents = vec![Extent { page: PageId(9), pages: 2, generation: Generation(3) }];
    let head = LargeHead {
        total: 2 * PART_PAYLOAD as u32 + 4,
        key_outside: 0,
        crc: 77,
        check: 5,
        extents,
        tail: b"tail",
    };
    let mut bytes = Vec::new();
    head.write(&mut bytes);
    assert_eq!(LargeHead::read(&bytes), Some(head));
    assert_eq!(LargeHead::read(&bytes[..bytes.len() - 1]), None);
    put_u32(&mut bytes, 12, u32::MAX);
    assert_eq!(LargeHead::read(&bytes), None);

    let value = |pages: u32| {
        let extents = vec![Extent { page: PageId(9), pages, generation: Generation(3) }];
        let total = pages * PART_PAYLOAD as u32;
        let mut bytes = Vec::new();
        LargeHead { total, key_outside: 0, crc: 77, check: 5, extents, tail: b"" }
            .write(&mut bytes);
        LargeHead::read(&bytes).map(|head| head.parts())
    };
    assert_eq!(value(MAX_PARTS - 1), Some(MAX_PARTS - 1));
    assert_eq!(value(MAX_PARTS + 1), None, "no value is that large");
}

/// `docs/formats/store.md` gives offsets and sizes in tables; each number there must be the code's.
#[test]
fn the_document_agrees_with_the_code() {
    let document = include_str!("../../../../docs/formats/store.md");
    let states =
        |line: String| assert!(document.contains(&line), "docs/formats/store.md lacks: {line}");
    states(format!("format version **{FORMAT}**"));
    states(format!("page header: **{HEADER_BYTES}** bytes"));
    states(format!("slot: **{SLOT_BYTES}** bytes"));
    states(format!("longest record: **{MAX_RECORD_BYTES}** bytes"));
    states(format!(
        "record without expiry: **{}** bytes + key + value",
        Record::bytes_for(0, 0, false)
    ));
    states(format!(
        "record with expiry: **{}** bytes + key + value",
        Record::bytes_for(0, 0, true)
    ));
    states(format!("pointers: **{LINK_BYTES}** bytes"));
    for kind in LINK_KINDS {
        states(format!("| {} | `{kind:?}` |", kind as u8));
    }
    states(format!("payload of a part: **{PART_PAYLOAD}** bytes"));
    states(format!("payload of a checkpoint page: **{RAW_PAYLOAD}** bytes"));
    let kinds =
        [PageKind::Records, PageKind::LargeHeads, PageKind::LargePart, PageKind::Checkpoint];
    for kind in kinds {
        states(format!("| {} | `{kind:?}` |", kind as u8));
    }
    let page = page_with(&[sample(b"k", b"v", Expiry::NEVER)]);
    assert_eq!(page[..4], *b"TSPG");
    let fields = [
        ("magic", 0, u64::from(u32::from_le_bytes(*b"TSPG"))),
        ("generation", 12, 4),
        ("page number", 16, 17),
        ("store id", 24, 5),
        ("hash seed", 32, 6),
        ("sequence", 40, 8),
    ];
    for (name, offset, value) in fields {
        states(format!("| {offset} | {name} |"));
        assert_eq!(u64::from(u32_at(&page, offset)), value & 0xffff_ffff, "{name}");
    }
    let record = &page[HEADER_BYTES..];
    let fields = [
        ("key length", 6, 1),
        ("value length", 8, 1),
        ("keyspace", 12, 7),
        ("timestamp", 24, 99),
        ("client", 32, 3),
    ];
    for (name, offset, value) in fields {
        states(format!("| {offset} | {name} |"));
        assert_eq!(u64::from(record[offset]), value, "{name}");
    }
}

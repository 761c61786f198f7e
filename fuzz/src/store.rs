//! The store's target: pages as a decoder meets them, and whole devices whose pages are sound but
//! say anything.

use timestone_flash::{Generation, MemoryConfig, MemoryMedia, PAGE_BYTES, PageId};
use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Direction, KeyRange, Mftl, MftlConfig, ReadToken, ScanCursor, ScanLimit, StoreEvent, fuzz,
};
use timestone_types::{ClientId, Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version};

const STORE: u64 = 1;
const PAGES_PER_BLOCK: u32 = 4;
const BLOCKS: u32 = 12;
/// A keyspace whose keys are in order.
const ORDERED: KeyspaceId = KeyspaceId::numbered(1, false).ordered();
/// Bytes of a page that an input gives: the others are zeros, so that inputs stay short.
const GIVEN: usize = 700;

/// The first byte says how the rest is meant: as a page and a checkpoint's stream (0), as pages of
/// a device (1), as the checkpoint of one (2).
pub fn store_page(data: &[u8]) {
    let Some((&mode, bytes)) = data.split_first() else { return };
    match mode % 3 {
        0 => {
            fuzz::decode_page(bytes);
            let _ = fuzz::decode_checkpoint(bytes);
        }
        1 => {
            let pages: Vec<(u32, Vec<u8>)> = bytes.chunks(GIVEN + 1).filter_map(page_of).collect();
            exercise(&pages);
        }
        _ => {
            let pages = fuzz::checkpoint_pages(bytes);
            exercise(&(0..).zip(pages).take(PAGES_PER_BLOCK as usize).collect::<Vec<_>>());
        }
    }
}

/// Where it lies, its header and its beginning; what is left of the input is its end, where slots
/// are.
fn page_of(chunk: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (&place, given) = chunk.split_first()?;
    let mut page = vec![0; PAGE_BYTES];
    let (front, back) = given.split_at(given.len() - given.len().min(16));
    page[..front.len()].copy_from_slice(front);
    let at = PAGE_BYTES - back.len();
    page[at..].copy_from_slice(back);
    Some((u32::from(place) % (PAGES_PER_BLOCK * BLOCKS), page))
}

/// Opens a store on the pages and uses it: whatever they say, nothing panics.
fn exercise(pages: &[(u32, Vec<u8>)]) {
    let media = MemoryMedia::new(MemoryConfig {
        pages_per_block: PAGES_PER_BLOCK,
        initial_blocks: BLOCKS,
        max_blocks: BLOCKS,
        ..MemoryConfig::default()
    });
    for (place, page) in pages {
        let mut page = page.clone();
        fuzz::seal(&mut page, PageId(*place), Generation::FIRST, STORE);
        media.set_page(PageId(*place), &page);
    }
    let config =
        MftlConfig { store_id: STORE, seed: HashSeed(1), cache_bytes: 0, ..MftlConfig::default() };
    let Ok((mut store, _)) = Mftl::open(Box::new(media.open()), config) else { return };
    let late = Timestamp::from_nanos(u64::MAX / 2);
    let (mut events, mut now) = (Vec::new(), 0);
    let _ = store.scan(
        KeyspaceId::DEFAULT,
        ScanCursor::START,
        ScanLimit { keys: 100, bytes: 3000 },
        late,
        ReadToken(1),
    );
    let _ = store.count(KeyspaceId::DEFAULT, late, ReadToken(2));
    let limit = ScanLimit { keys: 100, bytes: 3000 };
    let as_of = AsOf { at: late, judged: late };
    for (direction, token) in [(Direction::Ascending, 8), (Direction::Descending, 11)] {
        let all = KeyRange::all(ORDERED);
        let _ = store.range_as_of(all, direction, limit, as_of, ReadToken(token));
    }
    let _ = store.first_above(KeyRange::all(ORDERED), Timestamp::from_nanos(1 << 40), 100);
    store.scrub();
    for round in 0..3_u64 {
        let name = [b'k', round as u8];
        let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, &name);
        let version = Version::new(Timestamp::from_nanos(1 + round), ClientId::new(1));
        let _ = store.put(key, version, &[7; 3000], Expiry::NEVER);
        let ordered = KeyRef::new(store.seed(), ORDERED, &name);
        let _ = store.put(ordered, version, &[7; 30], Expiry::NEVER);
        let _ = store.get(key, late, ReadToken(3 + round));
        store.advance_watermark(Timestamp::from_nanos(1 << (round * 20)));
        store.advance_replay_floor(Timestamp::from_nanos(1 << (round * 20)));
        store.checkpoint_now();
        for _ in 0..60 {
            now += 1_000_000;
            store.pump(Timestamp::from_nanos(now), &mut events);
        }
    }
    let keys: Vec<Vec<u8>> = events
        .iter()
        .filter_map(
            |event| if let StoreEvent::ScanDone { keys, .. } = event { Some(keys) } else { None },
        )
        .flat_map(|keys| keys.iter().map(<[u8]>::to_vec))
        .collect();
    for name in keys.iter().take(4) {
        let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, name);
        let _ = store.get(key, late, ReadToken(9));
        store.pump(Timestamp::from_nanos(now), &mut events);
    }
}

/// Seeds: the pages and the checkpoint of a small store that was shut down, as this target reads
/// them.
#[must_use]
pub fn store_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let media = MemoryMedia::new(MemoryConfig {
        pages_per_block: PAGES_PER_BLOCK,
        initial_blocks: BLOCKS,
        max_blocks: BLOCKS,
        ..MemoryConfig::default()
    });
    let config =
        MftlConfig { store_id: STORE, seed: HashSeed(1), cache_bytes: 0, ..MftlConfig::default() };
    let (mut store, _) = Mftl::open(Box::new(media.open()), config).expect("a fresh store opens");
    for number in 1..4_u64 {
        let name = [b'k', number as u8];
        let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, &name);
        let version = |time| Version::new(Timestamp::from_nanos(time), ClientId::new(1));
        let expiry =
            if number == 2 { Expiry::at(Timestamp::from_nanos(50)) } else { Expiry::NEVER };
        store
            .put(key, version(number), &vec![3; if number == 3 { 5000 } else { 20 }], expiry)
            .expect("room");
        store.delete(key, version(number + 10)).expect("room");
        let ordered = KeyRef::new(store.seed(), ORDERED, &name);
        store.put(ordered, version(number), &[3; 20], expiry).expect("room");
    }
    store
        .fence(KeyspaceId::DEFAULT, Version::new(Timestamp::from_nanos(2), ClientId::new(1)))
        .expect("room");
    store.shutdown();
    let mut events = Vec::new();
    for now in 1..5000 {
        store.pump(Timestamp::from_nanos(now * 1_000_000), &mut events);
    }
    assert!(matches!(events.last(), Some(StoreEvent::ShutDown)), "{events:?}");
    drop(store);
    let (mut images, mut raws, mut stream) = (vec![1], Vec::new(), vec![2]);
    for place in 0..PAGES_PER_BLOCK * BLOCKS {
        let Some(page) = media.page(PageId(place)) else { continue };
        let body = usize::from(u16::from_le_bytes([page[20], page[21]]));
        if page[6] == 4 {
            stream.extend_from_slice(&page[64..(48 + body).max(64)]);
        } else {
            images.push(place as u8);
            images.extend_from_slice(&page[..GIVEN - 16]);
            images.extend_from_slice(&page[PAGE_BYTES - 16..]);
            let kind = ["", "page", "heads", "part"][usize::from(page[6]) % 4];
            if !raws.iter().any(|(known, _)| *known == kind) {
                raws.push((kind, [&[0], &page[..]].concat()));
            }
        }
    }
    raws.push(("image", images));
    raws.push(("checkpoint", stream));
    raws
}

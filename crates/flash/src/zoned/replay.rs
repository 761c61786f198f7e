//! Reads the log of the block table back: from the bytes of the two metadata zones to the table.
//!
//! A zone counts when it begins with a whole snapshot; the one with the higher sequences is the
//! log, and ends before the first batch that is not whole. What a power cut leaves is told from
//! damage by sequences: a torn batch has nothing behind it.

use crate::device::{Generation, PAGE_BYTES};
use crate::zoned::journal::LogEnd;
use crate::zoned::layout::{self, BadPage, COPIES, Identity, Place};

const PAIR_BYTES: usize = COPIES as usize * PAGE_BYTES;

/// The table as the log has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Replayed {
    pub(crate) identity: Identity,
    /// Of all data zones; zero for blocks that do not exist yet.
    pub(crate) generations: Vec<Generation>,
    pub(crate) end: LogEnd,
    /// Damaged pages whose second copy is whole.
    pub(crate) damaged: u64,
}

/// Why there is no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreadable {
    /// Another version of the format.
    Version(u32),
    /// Pages of the log are damaged that something behind them needs.
    Damaged,
    /// There is only a first snapshot that was not finished.
    Unfinished,
}

/// One table page of the log, by one of its copies.
struct Entry<'a> {
    identity: Identity,
    place: Place,
    page: &'a [u8],
    /// A copy of it is damaged.
    damaged: bool,
}

/// The table that the two zones hold, each from its beginning to where it was written at most.
/// `None`: there is nothing of such a log.
pub(crate) fn replay(zones: [&[u8]; 2]) -> Result<Option<Replayed>, Unreadable> {
    let mut version = None;
    let [first, second] = zones.map(|bytes| entries(bytes, &mut version));
    let found = [replay_zone(0, &first, zones[0]), replay_zone(1, &second, zones[1])];
    let [first_end, second_end] =
        [&found[0], &found[1]].map(|zone| zone.as_ref().map(|zone| zone.end.sequence));
    let current = match (first_end, second_end) {
        (None, None) => return none_whole(&[first, second], version),
        (first, second) => usize::from(second > first),
    };
    let [mut whole, mut other] = found;
    if current == 1 {
        std::mem::swap(&mut whole, &mut other);
    }
    let Some(whole) = whole else { return Err(Unreadable::Damaged) };
    let entries = [&first, &second];
    // Behind the end there may be one torn batch, in this zone or as a snapshot in the other.
    let next = whole.end.sequence + 1;
    let later = |entry: &&Entry<'_>| {
        entry.identity.device_id == whole.identity.device_id && entry.place.batch.0 > next
    };
    if entries.iter().flat_map(|entries| entries.iter().flatten()).any(|entry| later(&entry)) {
        return Err(Unreadable::Damaged);
    }
    Ok(Some(whole))
}

/// No zone begins with a whole snapshot.
fn none_whole(
    zones: &[Vec<Option<Entry<'_>>>; 2],
    version: Option<u32>,
) -> Result<Option<Replayed>, Unreadable> {
    let all = || zones.iter().flatten().flatten();
    match (version, all().next()) {
        (Some(version), _) => Err(Unreadable::Version(version)),
        (None, None) => Ok(None),
        (None, Some(_)) if all().all(|entry| entry.place.batch.0 == 1) => {
            Err(Unreadable::Unfinished)
        }
        (None, Some(_)) => Err(Unreadable::Damaged),
    }
}

/// Every pair of pages, as far as one of the two can be read.
fn entries<'a>(bytes: &'a [u8], version: &mut Option<u32>) -> Vec<Option<Entry<'a>>> {
    bytes
        .chunks(PAIR_BYTES)
        .map(|pair| {
            let copies: Vec<_> = pair.chunks_exact(PAGE_BYTES).collect();
            let mut found = None;
            for &page in &copies {
                match layout::decode(page) {
                    Ok((identity, place)) if found.is_none() => {
                        found = Some(Entry { identity, place, page, damaged: false });
                    }
                    Ok(_) => {}
                    Err(BadPage::Version(other)) => *version = Some(other),
                    Err(_) => {}
                }
            }
            let mut entry = found?;
            entry.damaged = copies.len() < 2 || copies[0] != copies[1];
            Some(entry)
        })
        .collect()
}

/// The table of one zone, up to its last whole batch.
fn replay_zone(number: usize, entries: &[Option<Entry<'_>>], bytes: &[u8]) -> Option<Replayed> {
    let identity = entries.first()?.as_ref()?.identity;
    let table_pages = identity.table_pages();
    let mut generations = vec![Generation::default(); identity.data_zones as usize];
    let (mut at, mut sequence, mut damaged) = (0, None, 0);
    while let Some(batch) = whole_batch(entries, at, identity, sequence) {
        if at == 0 && !batch.iter().map(|entry| entry.place.index).eq(0..table_pages) {
            return None;
        }
        for entry in &batch {
            let begin = (entry.place.index * layout::ENTRIES_PER_PAGE) as usize;
            let into = generations[begin..].iter_mut();
            into.zip(layout::entries(entry.page)).for_each(|(into, found)| *into = found);
            damaged += u64::from(entry.damaged);
        }
        at += batch.len();
        sequence = batch.last().map(|entry| entry.place.sequence);
    }
    let sequence = sequence?;
    // What is behind the end was never written, or is what an earlier use has left.
    let leftover = |entry: &Option<Entry<'_>>| match entry {
        Some(entry) => entry.place.sequence <= sequence,
        None => true,
    };
    let rest = bytes.get(at * PAIR_BYTES..).unwrap_or_default();
    let blank = rest.iter().take(PAIR_BYTES).all(|&byte| byte == 0);
    let clean = damaged == 0
        && (blank || entries.get(at).is_some_and(|entry| entry.is_some()))
        && entries.get(at).is_none_or(leftover);
    let end = LogEnd { zone: number, used: (at * COPIES as usize) as u32, sequence, clean };
    Some(Replayed { identity, generations, end, damaged })
}

/// The batch that begins at a pair, if all of it is there and follows `after`.
fn whole_batch<'a, 'b>(
    entries: &'a [Option<Entry<'b>>],
    at: usize,
    identity: Identity,
    after: Option<u64>,
) -> Option<Vec<&'a Entry<'b>>> {
    let first = entries.get(at)?.as_ref()?;
    let batch = first.place.batch;
    if batch.0 != first.place.sequence || after.is_some_and(|after| batch.0 != after + 1) {
        return None;
    }
    let length = usize::try_from(batch.1 - batch.0 + 1).ok()?;
    let pairs = entries.get(at..at.checked_add(length)?)?;
    let belongs = |(entry, sequence): (&'a Option<Entry<'b>>, u64)| {
        let entry = entry.as_ref()?;
        let fits = entry.place.batch == batch && entry.place.sequence == sequence;
        (fits && entry.identity == identity).then_some(entry)
    };
    pairs.iter().zip(batch.0..).map(belongs).collect()
}

//! What memory tells of a record in the log's tail, so that nobody follows its chain.
//!
//! ```text
//!   record ─► translation of its key:  a younger version at or below the watermark ─► dead
//!                                      this version, elsewhere                     ─► dead
//!                                      this version, here                          ─► moves
//!                                      anything else, or none                      ─► its chain is asked
//! ```
//!
//! A translation names the youngest version. Of a key that is written all the time that one lies above
//! the watermark, so the period of an older version is noted beside it.
//!
//! What must not happen: a record is dropped for one that a reader at the watermark does not see yet, or
//! that a crash may take. The second is the block's business: it is erased when everything that was
//! appended before is durable.

use timestone_flash::BlockId;
use timestone_types::{Timestamp, is_planted};

use super::contents::FrugalContents;
use super::translations::Name;
use crate::layout::{LinkKind, Links, NO_PAGE, Record, RecordKind, UNKNOWN_PAGE};

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TailFate {
    Dead,
    Moves,
    Asks,
}

/// A record that moves, with a copy of its bytes.
#[derive(Debug)]
pub(super) struct TailRecord {
    name: Name,
    page: u32,
    bytes: Vec<u8>,
}

impl TailRecord {
    /// Of a page of the tail.
    pub(super) fn new(record: &Record<'_>, page: u32, core: &FrugalContents) -> Self {
        let mut bytes = vec![0; record.bytes()];
        record.write(&mut bytes);
        Self { name: core.name_of(record), page, bytes }
    }

    fn record(&self) -> Record<'_> {
        Record::read(&self.bytes).expect("it was written here")
    }

    /// Bytes of the record.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What becomes of it by now.
    pub(super) fn fate(&self, core: &FrugalContents) -> TailFate {
        of_name(&self.record(), self.name, self.page, core)
    }

    /// Whether another one is a copy of the same version.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.record().version == other.record().version
    }
}

/// What becomes of a record in a page of the tail.
pub(super) fn fate(record: &Record<'_>, page: u32, core: &FrugalContents) -> TailFate {
    // Whoever drops a large value has to find out whether its parts were counted as dead before.
    if record.kind.is_large() {
        return TailFate::Asks;
    }
    of_name(record, core.name_of(record), page, core)
}

fn of_name(record: &Record<'_>, name: Name, page: u32, core: &FrugalContents) -> TailFate {
    let mark = core.spaces.marks.collection();
    let Some((known, behind)) = core.translations.peek_behind(name) else { return TailFate::Asks };
    if known.version == record.version && known.page != page {
        return TailFate::Dead;
    }
    if known.version == record.version {
        // Tombstones, and what may have become one, go by rules of their own.
        let stays = record.kind == RecordKind::Value
            && record.expires_at.is_never()
            && record.version > core.spaces.fence_at(name.keyspace, mark);
        return if stays { TailFate::Moves } else { TailFate::Asks };
    }
    let is_seen = |at: Timestamp| at <= mark || is_planted!(JudgesAboveWatermark);
    let superseded = (known.version > record.version && is_seen(known.version.timestamp))
        || behind.is_some_and(|(first, last)| first > record.version.timestamp && is_seen(last));
    if superseded { TailFate::Dead } else { TailFate::Asks }
}

/// Appends records that move, in front of their bucket's chain; those that are loose and were asked for
/// lately stay loose. There is room for all of them. All that the bucket has in the block beside them is dead.
pub(super) fn append(
    bucket: u32,
    records: &[TailRecord],
    block: BlockId,
    core: &mut FrugalContents,
) {
    let mark = core.spaces.marks.collection();
    let before = core.buckets.head(bucket);
    let mut head = before;
    for one in records {
        let mut record = one.record();
        // Nobody reads before a version that is at or below the watermark.
        let is_passed = record.version.timestamp <= mark;
        let may_stay = !is_passed || core.translations.is_used(one.name);
        if record.is_loose() && may_stay && core.may_stay_loose() {
            let copy = core.append_loose_copy(&record, one.name);
            core.translations.update(one.name, copy);
            continue;
        }
        let prior = if is_passed { NO_PAGE } else { UNKNOWN_PAGE };
        let kind = if core.may_lead() { LinkKind::Youngest } else { LinkKind::Flagged };
        let bits = core.buckets.bits();
        record.links = Some(Links { next: head, prior, loose_prior: false, kind, bits });
        let copy = core.append_copy(&record, one.name);
        head = copy.page;
        core.translations.update(one.name, copy);
    }
    let geometry = core.kit.volume.geometry();
    let first = geometry.page(block, 0).0;
    // The tail has the ends of chains alone: one that begins there has nothing elsewhere.
    if head == before && core.begins_in(bucket, block) {
        head = NO_PAGE;
    }
    if head != before {
        core.buckets.moved(bucket, head, first..first + geometry.pages_per_block);
    }
}

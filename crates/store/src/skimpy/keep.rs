//! Which records of a bucket are kept when it is rewritten.
//!
//! ```text
//!   versions of a key, youngest first:  above the watermark │ the youngest at or below it │ older ones
//!                                              kept         │ kept; a tombstone may go    │ dropped
//! ```
//!
//! A tombstone (or what has expired for every reader) goes only when nothing older of its key can
//! come back: no write at or below it arrives any more (the replay floor), and it lies in the block
//! that is erased next, with whatever else of its key is in the chain. *Otherwise* a scan after a
//! crash finds a value whose tombstone is gone.

use timestone_flash::{BlockId, PAGE_BYTES};
use timestone_types::{Timestamp, is_planted};

use super::chain::{Gathering, is_void};
use super::contents::FrugalContents;
use super::translations::Name;
use crate::layout::{LargeHead, RecordKind};

/// What becomes of the records of a bucket.
#[derive(Debug, Default)]
pub(super) struct KeepVerdict {
    /// KeptRecord ones, the oldest first.
    pub(super) kept: Vec<KeptRecord>,
    /// The places of tombstones that are dropped.
    pub(super) tombstones: Vec<usize>,
    /// When the watermark will have passed what lets kept ones go later.
    pub(super) until: Timestamp,
    /// All keys that the bucket had.
    pub(super) names: Vec<Name>,
}

/// A record that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptRecord {
    /// Its place in the gathering.
    pub(super) at: usize,
    pub(super) name: Name,
    /// Only the tombstone of what has expired is kept.
    pub(super) shrinks: bool,
    /// Bytes that go when the watermark has passed [`Self::dies`].
    pub(super) later: u64,
    pub(super) dies: Timestamp,
}

/// Decides; `erased` is the block that goes when the bucket is rewritten.
pub(super) fn judge(
    gathering: &Gathering,
    erased: Option<BlockId>,
    may_drop_tombstones: bool,
    core: &FrugalContents,
) -> KeepVerdict {
    let mark = core.spaces.marks.collection();
    let floor = core.spaces.marks.replay_floor();
    let blocks = &core.kit.volume.blocks;
    // (key, number) of all, by key, youngest first; copies of a version as they lie in the chain.
    let mut all: Vec<(Name, usize)> = (0..gathering.records.len())
        .map(|at| (core.name_of(&gathering.record(&gathering.records[at])), at))
        .collect();
    let version = |at: usize| gathering.record(&gathering.records[at]).version;
    all.sort_by(|one, other| {
        one.0.cmp(&other.0).then(version(other.1).cmp(&version(one.1))).then(one.1.cmp(&other.1))
    });
    let mut verdict = KeepVerdict::default();
    for versions in all.chunk_by(|one, other| one.0 == other.0) {
        let name = versions[0].0;
        verdict.names.push(name);
        let fence = core.spaces.fence_at(name.keyspace, mark);
        let (mut decided, mut last, mut younger) = (false, None, None);
        for (place, &(_, at)) in versions.iter().enumerate() {
            let record = gathering.record(&gathering.records[at]);
            let is_copy = last == Some(record.version);
            if decided || is_copy || record.version <= fence || is_void(&record, blocks) {
                continue;
            }
            last = Some(record.version);
            let below = record.version.timestamp <= mark;
            let expired = below && record.expires_at.has_passed(mark);
            decided = below;
            if below && (expired || record.kind.is_tombstone()) {
                let goes = |&(_, at): &(Name, usize)| gathering.is_in(at, erased, blocks);
                let is_alone = versions[place..].iter().all(goes);
                let droppable = (is_alone || is_planted!(EarlyTombstone))
                    && may_drop_tombstones
                    && record.version.timestamp <= floor;
                if droppable {
                    verdict.tombstones.push(at);
                    continue;
                }
            }
            let parts = record.kind.is_large().then(|| LargeHead::read(record.value)).flatten();
            let parts = parts.map_or(0, |head| u64::from(head.parts()) * PAGE_BYTES as u64);
            let (mut later, mut dies) = (0, Timestamp::MAX);
            if let Some(by) = younger {
                (later, dies) = (record.bytes() as u64 + parts, by);
            } else if record.kind.is_tombstone() {
                (later, dies) = (record.bytes() as u64, record.version.timestamp);
            }
            if later > 0 {
                verdict.until = verdict.until.max(dies);
            }
            younger = Some(record.version.timestamp);
            let has_key = !record.kind.is_large()
                || LargeHead::read(record.value).is_some_and(|head| head.key_outside == 0);
            let shrinks = expired && has_key && record.kind != RecordKind::Tombstone;
            verdict.kept.push(KeptRecord { at, name, shrinks, later, dies });
        }
    }
    verdict.kept.sort_by_key(|kept| (version(kept.at), core::cmp::Reverse(kept.at)));
    verdict
}

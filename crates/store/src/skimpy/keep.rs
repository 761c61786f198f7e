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
//!
//! Of copies of a version the last one in the log is kept. *Otherwise* it may be one in a block that is
//! empty and not erased yet: all others are taken for needless, and that one goes with its block.

use core::cmp::Reverse;

use timestone_flash::{BlockId, PAGE_BYTES};
use timestone_types::{Timestamp, is_planted};

use super::chain::{Gathering, is_void};
use super::contents::FrugalContents;
use super::translations::Name;
use super::work;
use crate::layout::{LargeHead, RecordKind};

/// What becomes of the records of a bucket.
#[derive(Debug, Default)]
pub(super) struct KeepVerdict {
    /// Those that are kept, of each key the oldest first.
    kept: Vec<KeptRecord>,
    /// By place in the gathering: the number among those that are kept; [`DROPPED`], or [`STAYS`].
    numbers: Vec<u32>,
    /// The places of tombstones that are dropped, ascending.
    tombstones: Vec<usize>,
    /// When the watermark will have passed what lets kept ones go later.
    pub(super) until: Timestamp,
    /// All keys that the bucket had.
    keys: Vec<JudgedKey>,
}

const DROPPED: u32 = u32::MAX;
/// It is loose, and nothing has to be done about it.
const STAYS: u32 = u32::MAX - 1;

/// What is to leave the place where it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaving<'a> {
    /// Nothing has to.
    Nothing,
    /// What lies in a block that is erased next.
    Block(BlockId),
    /// By place in the gathering.
    Records(&'a [bool]),
}

impl Leaving<'_> {
    fn has(self, gathering: &Gathering, at: usize, core: &FrugalContents) -> bool {
        match self {
            Leaving::Nothing => false,
            Leaving::Block(block) => gathering.is_in(at, Some(block), &core.kit.volume.blocks),
            Leaving::Records(records) => records[at],
        }
    }
}

/// A key of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedKey {
    pub(super) name: Name,
    /// The place in the gathering of the youngest of its records that are kept.
    pub(super) youngest: Option<usize>,
    /// The place of the first of its records, dropped ones included.
    pub(super) first: usize,
    /// Its youngest version is loose, and stays where it is.
    pub(super) stays: bool,
}

/// A record that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptRecord {
    /// Its place in the gathering.
    pub(super) at: usize,
    pub(super) name: Name,
    /// Younger, and older, versions of its key are kept.
    pub(super) has_younger: bool,
    pub(super) has_older: bool,
    /// Only the tombstone of what has expired is kept.
    pub(super) shrinks: bool,
    /// It is its key's youngest version, and loose.
    pub(super) is_loose: bool,
    /// It has to leave its place.
    pub(super) leaves: bool,
    /// Bytes that go when the watermark has passed [`Self::dies`].
    pub(super) later: u64,
    pub(super) dies: Timestamp,
}

impl KeepVerdict {
    /// What is kept, of each key the oldest first.
    pub(super) fn kept(&self) -> impl Iterator<Item = &KeptRecord> {
        self.kept.iter().inspect(|_| work::look())
    }

    /// How many records are kept.
    pub(super) fn count(&self) -> usize {
        self.kept.len()
    }

    /// All keys of the bucket.
    pub(super) fn keys(&self) -> impl Iterator<Item = &JudgedKey> {
        self.keys.iter().inspect(|_| work::look())
    }

    /// What is said of the record at a place of the gathering, if it is kept.
    pub(super) fn of(&self, at: usize) -> Option<&KeptRecord> {
        work::look();
        self.kept.get(self.numbers[at] as usize)
    }

    /// Whether the record at a place is a loose one that stays there.
    pub(super) fn stays_at(&self, at: usize) -> bool {
        self.numbers[at] == STAYS
    }

    /// Whether tombstones are dropped.
    pub(super) fn forgets(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// Whether the record at a place is a tombstone that is dropped.
    pub(super) fn forgets_at(&self, at: usize) -> bool {
        self.tombstones.binary_search(&at).is_ok()
    }
}

/// Decides. What is loose and need not leave its place stays there, and counts as a version of its key.
pub(super) fn judge(
    gathering: &Gathering,
    leaving: Leaving<'_>,
    may_drop_tombstones: bool,
    core: &FrugalContents,
) -> KeepVerdict {
    let erased = match leaving {
        Leaving::Block(block) => Some(block),
        Leaving::Nothing | Leaving::Records(_) => None,
    };
    let mark = core.spaces.marks.collection();
    let floor = core.spaces.marks.replay_floor();
    let blocks = &core.kit.volume.blocks;
    // All by key, youngest first; of copies of a version the last one in the log: a record of the chain may
    // lead to a run of which something was copied before, and those copies lie behind it in the chain.
    let named = |at: usize| {
        let record = gathering.record(&gathering.records[at]);
        (core.name_of(&record), Reverse(record.version), at)
    };
    let mut all: Vec<_> = (0..gathering.records.len()).map(named).collect();
    all.sort_unstable_by_key(|&(name, version, at)| {
        let last = (!is_planted!(KeepsFirstCopy)).then(|| gathering.records[at].in_log());
        (name, version, Reverse(last), at)
    });
    let (mut verdict, mut staying) = (KeepVerdict::default(), Vec::new());
    for versions in all.chunk_by(|one, other| one.0 == other.0) {
        let name = versions[0].0;
        let begin = verdict.kept.len();
        let fence = core.spaces.fence_at(name.keyspace, mark);
        let loose = core.translations.loose(name);
        let is_youngest = |at: usize| {
            let record = gathering.record(&gathering.records[at]);
            loose.is_some_and(|known| {
                (known.version, known.page) == (record.version, gathering.records[at].place.page)
            })
        };
        let leaves = |at: usize| leaving.has(gathering, at, core);
        let (mut decided, mut last, mut younger) = (false, None, None);
        if let Some(known) = loose
            && !versions.iter().any(|&(_, _, at)| is_youngest(at))
        {
            // It was put since.
            (decided, younger) = (known.version.timestamp <= mark, Some(known.version.timestamp));
        }
        // Nothing leads to the others of a run any more when its youngest leaves.
        let run_leaves = versions.iter().any(|&(_, _, at)| is_youngest(at) && leaves(at));
        // Versions behind one of the chain are found by that one, and not by the loose ones before it.
        let mut behind_chain = false;
        for (place, &(_, _, at)) in versions.iter().enumerate() {
            let record = gathering.record(&gathering.records[at]);
            behind_chain |= !gathering.records[at].is_loose;
            let is_copy = last == Some(record.version);
            if decided || is_copy || record.version <= fence || is_void(&record, blocks) {
                continue;
            }
            last = Some(record.version);
            let below = record.version.timestamp <= mark;
            let expired = below && record.expires_at.has_passed(mark);
            decided = below;
            if below && (expired || record.kind.is_tombstone()) {
                let goes = |&(_, _, at): &(Name, _, usize)| gathering.is_in(at, erased, blocks);
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
            let has_younger = younger.is_some();
            younger = Some(record.version.timestamp);
            let has_key = !record.kind.is_large()
                || LargeHead::read(record.value).is_some_and(|head| head.key_outside == 0);
            let shrinks = expired && has_key && record.kind != RecordKind::Tombstone;
            if verdict.kept.len() > begin
                && let Some(before) = verdict.kept.last_mut()
            {
                before.has_older = true;
            }
            let is_of_run = gathering.records[at].is_of_run && !behind_chain;
            let leaves = leaves(at) || (is_of_run && run_leaves);
            if loose.is_some() && is_of_run && !leaves {
                staying.push(at);
                continue;
            }
            let (has_older, is_loose) = (false, is_youngest(at));
            verdict.kept.push(KeptRecord {
                at,
                name,
                has_younger,
                has_older,
                shrinks,
                is_loose,
                leaves,
                later,
                dies,
            });
        }
        let youngest = verdict.kept.get(begin).map(|kept| kept.at);
        let first = versions.iter().map(|&(_, _, at)| at).min().unwrap_or(0);
        let stays = loose.is_some() && !run_leaves;
        verdict.keys.push(JudgedKey { name, youngest, first, stays });
    }
    // Of a whole bucket, those come last of which memory knows nothing: whoever looks for them begins there.
    verdict.kept.sort_by_cached_key(|kept| {
        let version = gathering.record(&gathering.records[kept.at]).version;
        (!core.knows(kept.name), version, Reverse(kept.at))
    });
    verdict.numbers = vec![DROPPED; gathering.records.len()];
    for (kept, number) in verdict.kept.iter().zip(0..) {
        verdict.numbers[kept.at] = number;
    }
    staying.into_iter().for_each(|at| verdict.numbers[at] = STAYS);
    verdict.tombstones.sort_unstable();
    debug_assert!(verdict.kept.len() <= gathering.records.len());
    verdict
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia, PageId};
    use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Version};

    use super::super::rewrite::append_moved;
    use super::super::{Skimpy, SkimpyConfig};
    use super::*;
    use crate::api::prelude::*;

    fn gathered(core: &FrugalContents, bucket: u32) -> Gathering {
        let mut gathering = core.gathering(bucket, None);
        while let Some(page) = gathering.page(&core.buckets, &core.kit.volume.blocks) {
            let group = core.kit.volume.page_in_group(PageId(page));
            let bytes = group.expect("nothing is durable yet").to_vec();
            gathering.look(&bytes, true, &core.buckets).expect("it is sound");
        }
        gathering
    }

    /// Two versions of a key are copied out of the tail, one of a run among them; the block is not erased
    /// yet. Then a record of the chain leads to the run: how many of the originals are kept.
    fn originals_that_are_kept() -> usize {
        let config = MemoryConfig {
            pages_per_block: 2,
            initial_blocks: 64,
            max_blocks: 64,
            ..MemoryConfig::default()
        };
        let device = Box::new(MemoryMedia::new(config).open());
        let config = SkimpyConfig {
            keys: 1,
            translated_thousandths: 64_000,
            cache_bytes: 0,
            ..SkimpyConfig::default()
        };
        let (mut store, _) = Skimpy::open(device, config).expect("opens");
        let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, b"key");
        let bucket = store.core.buckets.of(key.hash);
        let put = |store: &mut Skimpy, n, expires_at| {
            let version = Version::new(Timestamp::from_nanos(n), ClientId::new(1));
            store.put(key, version, &[7; 3000], expires_at).expect("there is room");
        };
        [10, 20, 40].into_iter().for_each(|n| put(&mut store, n, Expiry::NEVER));
        let core = &mut store.core;
        let tail = core.log[0];
        let gathering = gathered(core, bucket);
        let verdict = judge(&gathering, Leaving::Block(tail), false, core);
        let leave = verdict.kept().filter(|kept| kept.leaves).count();
        assert_eq!((verdict.count(), leave), (2, 2), "the youngest is loose, and stays");
        append_moved(&gathering, &verdict, tail, core);
        core.log.pop_front();
        put(&mut store, 50, Expiry::at(Timestamp::MAX.previous()));
        let core = &store.core;
        let gathering = gathered(core, bucket);
        let verdict = judge(&gathering, Leaving::Nothing, false, core);
        assert_eq!(verdict.count(), 4, "all versions are wanted");
        let is_in =
            |kept: &&KeptRecord| gathering.is_in(kept.at, Some(tail), &core.kit.volume.blocks);
        verdict.kept().filter(is_in).count()
    }

    /// *Otherwise* the copy is taken for needless, goes with its block, and the version is gone.
    #[test]
    fn what_is_kept_lies_in_no_block_that_was_emptied() {
        assert_eq!(originals_that_are_kept(), 0);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_original_in_a_block_that_was_emptied_is_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::KeepsFirstCopy, originals_that_are_kept), 1);
    }
}

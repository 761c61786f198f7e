//! Values larger than a page: into the staging area, and their heads out of it.
//!
//! ```text
//!   put, collection ─► stage ─► (kit: parts written, durable) ─► head appended ─► index
//! ```
//!
//! Hidden dependency that this module made explicit: a head that is written decides over four
//! parts at once: the index must still want it, blocks hear what it supersedes, the pins of its
//! parts go, and a victim learns whether its value has left.
//!
//! Invariant: a block that is collected is not let go before every head that names parts in it was
//! replaced, also when a head moved while its value was staged.

use timestone_flash::{PAGE_BYTES, PageId};
use timestone_types::{Timestamp, Version, is_planted};

use super::collect::victims::Victims;
use super::index::{KeyId, Location};
use super::space::Spaces;
use crate::kit::Kit;
use crate::kit::staging::{Cut, Moved, PARTS_PER_PUMP, Staged};
use crate::kit::writer::StreamId;
use crate::layout::Record;

/// Takes a large record in, which can be read at once. For collection there is always room.
pub(super) fn stage(
    record: &Record<'_>,
    id: KeyId,
    batch: u64,
    moved: Option<Moved>,
    kit: &mut Kit,
) -> Location {
    debug_assert!(record.kind.is_large());
    kit.volume.blocks.note_large(Cut::of(record.key.len(), record.value.len()).parts);
    let slot = kit.staging.accept(record, id, batch, moved);
    Location::in_staging(slot, record.kind.is_tombstone(), !record.expires_at.is_never())
}

/// Writes heads whose parts are durable, then parts. Whether a value of a put turned out to be superseded:
/// its parts are dead, or will be when the watermark has passed what came after it.
pub(super) fn pump(kit: &mut Kit, spaces: &mut Spaces, victims: &mut Victims) -> bool {
    let (mut at, mut budget, mut died) = (0, PARTS_PER_PUMP, false);
    while let Some((slot, staged)) = kit.staging.next_head(&mut at, &mut budget, &mut kit.volume) {
        let from = match &staged.moved {
            Some(moved) => moved.from.0,
            None => Location::STAGED + slot,
        };
        let Some(outcome) = write_head(&staged, from, kit, spaces) else {
            kit.staging.put_back(slot, staged);
            at += 1;
            continue;
        };
        release_parts(&staged, &outcome, kit, spaces.marks.collection());
        died |= staged.moved.is_none() && (!outcome.wanted || outcome.superseded.is_some());
        kit.staging.finish(at, &staged, outcome.pages);
        leave_victim(&staged, &outcome, (kit, spaces), victims);
    }
    debug_assert!(budget <= PARTS_PER_PUMP, "no more is written than may be");
    died
}

/// What became of a head.
struct HeadOutcome {
    /// The index named the value still, and names the new head now.
    wanted: bool,
    /// It is no longer its key's youngest version, or is a tombstone: its page, and since when.
    superseded: Option<(PageId, Timestamp)>,
    /// Pages that were begun for it.
    pages: u64,
}

/// Writes the head of a value whose parts are durable, and moves the index to it. `None`: there is
/// no room.
fn write_head(
    staged: &Staged,
    from: u32,
    kit: &mut Kit,
    spaces: &mut Spaces,
) -> Option<HeadOutcome> {
    let mut outcome = HeadOutcome { wanted: false, superseded: None, pages: 0 };
    let watermark = spaces.marks.collection();
    let Some(space) = spaces.get_mut(staged.keyspace) else { return Some(outcome) };
    outcome.wanted = space
        .index
        .chain(staged.id)
        .any(|(version, place)| version == staged.version && place.page() == from);
    if !outcome.wanted {
        // What was pruned while it was staged is counted as dead, and was never written. Of what a fence
        // hides nobody knows whether it was counted before.
        if staged.moved.is_none() && staged.version > space.fence_at(watermark) {
            space.index.erased(staged.id);
        }
        return Some(outcome);
    }
    let mut value = kit.buffers.take();
    staged.write_head(&mut value);
    let before = kit.volume.writer.ordinal(StreamId::Large);
    let record = staged.head_record(&value);
    let leave = staged.leave_beside(&kit.volume.blocks);
    let page = kit.volume.append(StreamId::Large, &record, staged.id.check, leave);
    kit.buffers.give(value);
    let page = page?;
    if staged.moved.is_none() {
        kit.volume.writer.note_put(StreamId::Large, staged.held());
    }
    outcome.pages = kit.volume.writer.ordinal(StreamId::Large) - before;
    let to = Location::new(page.0, staged.kind.is_tombstone(), !staged.expires_at.is_never());
    let moved = space.index.moved(staged.id, staged.version, from, to);
    assert!(moved, "the index was just seen to name it");
    let latest = space.index.latest(staged.id).map_or(Version::ZERO, |(version, _)| version);
    let dead =
        latest != staged.version || (staged.kind.is_tombstone() && !space.index.hides(staged.id));
    outcome.superseded = dead.then_some((page, latest.timestamp));
    Some(outcome)
}

/// The pins of a value's parts go; their blocks hear when they are dead.
fn release_parts(staged: &Staged, outcome: &HeadOutcome, kit: &mut Kit, watermark: Timestamp) {
    debug_assert!(!staged.extents.is_empty(), "a large value has parts");
    let blocks = &mut kit.volume.blocks;
    for extent in &staged.extents {
        let block = blocks.of(extent.page);
        blocks.unpin(block);
        let bytes = extent.pages * PAGE_BYTES as u32;
        if !outcome.wanted {
            blocks.usage(block).died(bytes);
        } else if let Some((_, by)) = outcome.superseded {
            blocks.superseded_bytes(block, bytes, by, watermark);
        }
    }
    if let Some((page, by)) = outcome.superseded {
        blocks.superseded(page, by, watermark);
    }
}

/// A value that collection moves has arrived, or came too late.
fn leave_victim(
    staged: &Staged,
    outcome: &HeadOutcome,
    (kit, spaces): (&mut Kit, &mut Spaces),
    victims: &mut Victims,
) {
    let Some(moved) = &staged.moved else { return };
    debug_assert!(!moved.extents.is_empty(), "a large value had parts");
    let value = (staged.keyspace, staged.id, staged.version);
    if !outcome.wanted {
        return victims.restage_again(moved.victim, value, moved.from, &kit.volume);
    }
    let blocks = &mut kit.volume.blocks;
    if blocks.of(moved.from) == moved.victim {
        victims.head_left(moved.victim, value, spaces);
    } else if !is_planted!(ForgetsOldHeads)
        && let Some(space) = spaces.get_mut(staged.keyspace)
    {
        space.index.left_behind(staged.id);
    }
    for extent in &moved.extents {
        let block = blocks.of(extent.page);
        if blocks.get(block).generation == extent.generation {
            blocks.usage(block).died(extent.pages * PAGE_BYTES as u32);
        }
    }
    victims.restaged(moved.victim);
}

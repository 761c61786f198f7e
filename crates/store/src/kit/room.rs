//! Whether there is room for a write, and what to do when there is none: grow, or say so.
//!
//! ```text
//!   put ─► lacks_small, lacks_large: enough free blocks? ─ no ─► ask; refused: Busy, or DeviceFull
//!                                                                 │
//!   collection ◄── take_asked ◄───────────────────────────────────┘   grow ─► device ─► grown, or not
//! ```
//!
//! Hidden dependencies that this part made explicit: puts told the collector what they asked for in
//! vain, by writing to its fields; whether the store is *stuck* is judged by collection, and read
//! by puts and by the figures; a growth under way makes a full store look busy.
//!
//! Invariants: one growth is under way at a time (`growing`); `asked` is what was asked for since
//! the last [`Room::take_asked`].

use core::time::Duration;
use std::sync::Arc;

use timestone_flash::{FlashError, PAGE_BYTES};
use timestone_types::{Span, Timestamp};

use super::blocks::{Blocks, LEAST_RESERVE};
use super::staging::Staging;
use super::volume::{Volume, block_bytes};
use super::writer::StreamId;
use crate::error::StoreError;
use crate::layout::PART_PAYLOAD;
use crate::limits;

/// A device that could not grow is asked again after a while: a full disk may have room by then.
#[derive(Clone, Default)]
struct GrowthPause {
    until: Timestamp,
    last: Duration,
    /// Why it could not.
    cause: Option<Arc<str>>,
}

/// Room for writes.
pub(crate) struct Room {
    /// Without a log collection waits for what is staged: that must not wait for room which others
    /// have taken meanwhile.
    count_staged: bool,
    /// Free blocks that a put asked for in vain since collection looked; 0 when none did. Large
    /// values need more than the low water.
    asked: u32,
    /// Nothing is worth collecting: really full, until something dies.
    stuck: bool,
    growing: bool,
    growth: GrowthPause,
}

impl Room {
    /// For a store with or without a log.
    pub(crate) fn new(without_log: bool) -> Self {
        Self {
            count_staged: without_log,
            asked: 0,
            stuck: false,
            growing: false,
            growth: GrowthPause::default(),
        }
    }

    /// How many free blocks puts that fit pages want after so many bytes more, where there are fewer.
    #[inline]
    pub(crate) fn lacks_small(
        &self,
        ahead: u64,
        volume: &Volume,
        staging: &Staging,
    ) -> Option<u32> {
        let blocks = &volume.blocks;
        let ahead = if self.count_staged { ahead + staging.bytes() } else { ahead };
        let more = ahead.div_ceil(block_bytes(blocks.geometry));
        let wanted = blocks.reserve() + u32::try_from(more).unwrap_or(u32::MAX);
        let open = ahead == 0 && volume.writer.has_room(StreamId::Hot, PAGE_BYTES, blocks);
        let has_room = open || blocks.free_count() > wanted;
        (!has_room).then(|| wanted.saturating_add(1))
    }

    /// How many free blocks are wanted for everything that is staged, for so many values more, and for
    /// heads, where there are fewer.
    pub(crate) fn lacks_large(
        &self,
        values: u64,
        bytes: u64,
        volume: &Volume,
        staging: &Staging,
    ) -> Option<u32> {
        let blocks = &volume.blocks;
        let pages = (staging.bytes() + bytes) / PART_PAYLOAD as u64 + staging.count() + values + 1;
        let more = pages / u64::from(blocks.geometry.pages_per_block) + 2;
        let wanted = u64::from(blocks.reserve()) + more + 1;
        let has_room = u64::from(blocks.free_count()) >= wanted;
        (!has_room).then(|| u32::try_from(wanted).unwrap_or(u32::MAX))
    }

    /// Whether there are blocks for a large value of so many bytes that is put now. If not, they are asked
    /// for.
    pub(crate) fn take_large(&mut self, bytes: u64, volume: &Volume, staging: &Staging) -> bool {
        let lacks = self.lacks_large(1, bytes, volume, staging);
        if let Some(blocks) = lacks {
            self.ask(blocks, volume);
        }
        lacks.is_none()
    }

    /// So many free blocks are wanted in vain: collection makes room.
    #[cold]
    pub(crate) fn ask(&mut self, blocks: u32, volume: &Volume) {
        self.asked = self.asked.max(blocks);
        debug_assert!(self.asked > volume.blocks.free_count(), "more than is free is asked for");
    }

    /// Why there is no block for a write.
    #[cold]
    pub(crate) fn none(&self, blocks: &Blocks) -> StoreError {
        if self.growing || !self.stuck {
            return StoreError::Busy;
        }
        StoreError::DeviceFull {
            live_blocks: blocks.count() - blocks.free_count(),
            blocks: blocks.count(),
            growth: self.growth.cause.clone(),
        }
    }

    /// Whether puts are refused, and will be until something dies or the device can grow.
    pub(crate) fn is_full(&self, blocks: &Blocks) -> bool {
        // Another attempt to grow, after one that failed, is no room yet.
        self.stuck
            && (!self.growing || self.growth.cause.is_some())
            && blocks.free_count() <= blocks.floor()
    }

    /// Free blocks that were asked for in vain since the last call; 0 when none were.
    pub(crate) fn take_asked(&mut self) -> u32 {
        let asked = core::mem::take(&mut self.asked);
        debug_assert!(asked == 0 || asked > LEAST_RESERVE, "it is asked for beside the reserve");
        asked
    }

    /// Whether nothing is worth collecting.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Collection has found out whether it can win anything.
    pub(crate) fn set_stuck(&mut self, stuck: bool) {
        debug_assert!(
            !stuck || self.stuck || !self.growing,
            "a device that grows has room to come"
        );
        self.stuck = stuck;
    }

    /// How many blocks the device may grow by now; zero when it cannot.
    pub(crate) fn may_grow(&self, volume: &Volume) -> u32 {
        let geometry = volume.geometry();
        let room = geometry.max_blocks - volume.blocks.count();
        if volume.now() >= self.growth.until { room } else { 0 }
    }

    /// Asks the device to grow, unless it is asked already.
    pub(crate) fn grow(&mut self, volume: &mut Volume) {
        let room = self.may_grow(volume);
        if self.growing || room == 0 {
            return;
        }
        self.growing = true;
        debug_assert!(room > 0, "a device grows where it may");
        volume.grow((volume.blocks.count() / 8).clamp(16, 1024).min(room));
    }

    /// The device has grown.
    pub(crate) fn grown(&mut self, volume: &mut Volume) {
        (self.growing, self.stuck) = (false, false);
        self.growth = GrowthPause::default();
        volume.grown();
        assert_eq!(volume.blocks.count(), volume.geometry().blocks, "each new block is free");
    }

    /// The device could not grow: it is left alone for a while.
    pub(crate) fn growth_failed(&mut self, now: Timestamp, error: &FlashError) {
        self.growing = false;
        let is_news = self.growth.cause.is_none();
        let pause = (self.growth.last * 2).clamp(limits::GROWTH_RETRY, limits::MAX_GROWTH_RETRY);
        // The cause without the advice that comes with it.
        let cause = match error {
            FlashError::Full { reason } => reason.clone(),
            other => other.to_string(),
        };
        self.growth = GrowthPause {
            until: now.saturating_add(pause),
            last: pause,
            cause: Some(cause.into()),
        };
        assert!(pause <= limits::MAX_GROWTH_RETRY && self.growth.until >= now);
        if is_news {
            tracing::warn!(
                %error,
                "the flash device could not grow: free space on its disk; it tries again in {}, \
                 and then now and then",
                Span(pause)
            );
        }
    }

    /// Why the device could not grow when it was asked last; `None` when it could, or was not
    /// asked.
    pub(crate) fn growth_error(&self) -> Option<&str> {
        self.growth.cause.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::volume::tests::{run_until_idle, volume};
    use super::*;

    fn full() -> FlashError {
        FlashError::Full { reason: "no space left".into() }
    }

    #[test]
    fn what_is_asked_for_in_vain_is_told_once() {
        let (volume, staging, mut room) = (volume(), Staging::new(1000), Room::new(false));
        assert_eq!(room.lacks_small(1, &volume, &staging), None);
        let lacks = room.lacks_small(1 << 20, &volume, &staging).expect("there is no room");
        assert_eq!(room.take_asked(), 0, "nothing comes of looking");
        room.ask(lacks, &volume);
        assert!(!room.take_large(1 << 21, &volume, &staging));
        assert!(room.take_asked() > volume.blocks.count());
        assert_eq!(room.take_asked(), 0);
    }

    #[test]
    fn a_store_is_full_only_when_it_is_stuck_and_cannot_grow() {
        let (mut volume, mut room) = (volume(), Room::new(false));
        assert!(matches!(room.none(&volume.blocks), StoreError::Busy));
        room.set_stuck(true);
        assert!(matches!(room.none(&volume.blocks), StoreError::DeviceFull { growth: None, .. }));
        room.grow(&mut volume);
        assert!(matches!(room.none(&volume.blocks), StoreError::Busy), "it may grow");
        room.growth_failed(Timestamp::ZERO, &full());
        assert!(matches!(
            room.none(&volume.blocks),
            StoreError::DeviceFull { growth: Some(cause), .. } if &*cause == "no space left"
        ));
    }

    #[test]
    fn growth_that_failed_is_tried_again_after_longer_and_longer_pauses() {
        let (mut volume, mut room) = (volume(), Room::new(false));
        let now = Timestamp::from_nanos(1);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            room.growing = true;
            room.growth_failed(now, &full());
            pauses.push(room.growth.last);
        }
        assert_eq!(pauses[..2], [limits::GROWTH_RETRY, limits::GROWTH_RETRY * 2]);
        assert_eq!(pauses[8], limits::MAX_GROWTH_RETRY);
        assert_eq!(room.may_grow(&volume), 0);
        volume.writer.tick(now.saturating_add(limits::MAX_GROWTH_RETRY));
        assert_eq!(room.may_grow(&volume), 8);
        room.grow(&mut volume);
        for mut completions in [volume.poll(), volume.poll()] {
            completions.drain(..).for_each(|_| room.grown(&mut volume));
            volume.polled(completions);
        }
        run_until_idle(&mut volume);
        assert_eq!((volume.blocks.count(), room.growth_error()), (16, None));
    }
}

//! The data zones of a device as its owner's blocks: how far each is written, and whether it can be
//! written now.
//!
//! ```text
//!   empty ──first program──► active ──filled──► full          (a sealed one is finished when another zone
//!     ▲  ▲                     │  └──sealed──► finishing ─► full      needs its resource)
//!     │  └──── reset ──────────┴──────────────────┘
//!     └─ stale: holds what nobody wants, is reset before its first program
//! ```
//!
//! Invariants: one write of a zone at a time; active zones within the limit; writes in flight within
//! the limit of open zones.

use timestone_io::{Zone, ZoneCondition, ZoneLimits};

use crate::device::{BlockId, PAGE_BYTES};

/// One data zone.
#[derive(Clone, Copy, Debug)]
struct DataZone {
    /// Whole pages below the write pointer.
    filled: u32,
    /// The write pointer lies between two pages.
    torn: bool,
    /// It takes one of the device's active resources.
    active: bool,
    /// A write, or a command, is under way.
    busy: bool,
    /// Its owner programs nothing more before an erase.
    sealed: bool,
    /// It holds what nobody wants: to be reset before the first program.
    stale: bool,
    /// A program failed: nothing more before an erase.
    failed: bool,
    /// The device takes no writes for it any more.
    bad: bool,
    /// Its last page is the last of its capacity: filled, it is full by itself.
    fills: bool,
}

/// What a program's zone allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Write.
    Write,
    /// Reset it first.
    Reset,
    /// Something of it, or as much as is allowed, is under way.
    Wait,
    /// As many zones are active as the device allows.
    NoRoom,
    /// It takes no programs.
    Refused(&'static str),
}

/// All data zones.
#[derive(Debug)]
pub(crate) struct DataZones {
    zones: Vec<DataZone>,
    first_start: u64,
    zone_bytes: u64,
    pages_per_block: u32,
    /// Bounds for data, without what the table needs; `u32::MAX`: none.
    max_active: u32,
    max_writes: u32,
    active: u32,
    writes: u32,
    bad: u32,
}

impl DataZones {
    /// The zones as the device reported them.
    pub(crate) fn new(report: &[Zone], pages_per_block: u32, limits: ZoneLimits) -> Self {
        let first = report.first().map_or((0, 0), |zone| (zone.start, zone.length));
        let bound = |limit: u32| if limit == 0 { u32::MAX } else { limit };
        let blank = DataZone {
            filled: 0,
            torn: false,
            active: false,
            busy: false,
            sealed: false,
            stale: false,
            failed: false,
            bad: false,
            fills: false,
        };
        let mut zones = Self {
            zones: vec![blank; report.len()],
            first_start: first.0,
            zone_bytes: first.1,
            pages_per_block,
            max_active: bound(limits.max_active),
            max_writes: bound(limits.max_open),
            active: 0,
            writes: 0,
            bad: 0,
        };
        for (block, zone) in (0..).zip(report) {
            zones.reported(BlockId(block), zone);
        }
        zones
    }

    fn zone(&mut self, block: BlockId) -> &mut DataZone {
        &mut self.zones[block.0 as usize]
    }

    /// Where a block's zone begins.
    pub(crate) fn start(&self, block: BlockId) -> u64 {
        self.first_start + u64::from(block.0) * self.zone_bytes
    }

    /// Bytes from one zone to the next.
    pub(crate) fn zone_bytes(&self) -> u64 {
        self.zone_bytes
    }

    /// Pages that the medium holds of a block.
    pub(crate) fn filled(&self, block: BlockId) -> u32 {
        self.zones[block.0 as usize].filled
    }

    /// Whether the device takes no writes for a block any more.
    pub(crate) fn is_bad(&self, block: BlockId) -> bool {
        self.zones.get(block.0 as usize).is_some_and(|zone| zone.bad)
    }

    /// Bad ones of the first `blocks`.
    pub(crate) fn bad_count(&self, blocks: u32) -> u32 {
        if self.bad == 0 {
            return 0;
        }
        self.zones.iter().take(blocks as usize).filter(|zone| zone.bad).count() as u32
    }

    /// Whether a zone holds nothing, so that a reset would change nothing.
    pub(crate) fn is_empty(&self, block: BlockId) -> bool {
        let zone = &self.zones[block.0 as usize];
        zone.filled == 0 && !zone.torn && !zone.active && !zone.failed
    }

    /// Whether something of a zone is under way.
    pub(crate) fn is_busy(&self, block: BlockId) -> bool {
        self.zones[block.0 as usize].busy
    }

    /// What the device says of a zone.
    pub(crate) fn reported(&mut self, block: BlockId, zone: &Zone) {
        let pages_per_block = self.pages_per_block;
        let written = zone.written_bytes();
        let (was_active, was_bad) = (self.zone(block).active, self.zone(block).bad);
        let to = self.zone(block);
        to.filled = ((written / PAGE_BYTES as u64) as u32).min(pages_per_block);
        to.torn = !written.is_multiple_of(PAGE_BYTES as u64) && to.filled < pages_per_block;
        to.fills = u64::from(pages_per_block) * PAGE_BYTES as u64 == zone.capacity;
        to.active = zone.condition.is_active();
        to.bad = zone.condition.is_bad();
        let (active, bad) = (to.active, to.bad);
        self.active = self.active + u32::from(active) - u32::from(was_active);
        self.bad = self.bad + u32::from(bad) - u32::from(was_bad);
        if zone.condition == ZoneCondition::Full {
            debug_assert!(!active, "a full zone takes no resource");
        }
    }

    /// What its owner has found in a block: so many pages count. Says whether programs may go on
    /// there: not where the medium is further on than the owner, or less far.
    pub(crate) fn observed(&mut self, block: BlockId, pages: u32) -> bool {
        let zone = self.zone(block);
        if pages == 0 {
            zone.stale = zone.filled > 0 || zone.torn;
            return true;
        }
        zone.filled == pages && !zone.torn
    }

    /// A block that begins to exist: what is in its zone counts for nothing.
    pub(crate) fn added(&mut self, block: BlockId) {
        self.observed(block, 0);
    }

    /// The owner programs nothing more in a block before its erase.
    pub(crate) fn seal(&mut self, block: BlockId) {
        self.zone(block).sealed = true;
    }

    /// Whether the next program of a block may be written.
    pub(crate) fn admission(&self, block: BlockId) -> Admission {
        let zone = &self.zones[block.0 as usize];
        if zone.bad {
            return Admission::Refused("the zone takes no writes any more");
        }
        if zone.failed {
            return Admission::Refused("an earlier program of the zone failed");
        }
        if zone.busy || self.writes >= self.max_writes {
            return Admission::Wait;
        }
        if zone.stale {
            return Admission::Reset;
        }
        if !zone.active && self.active >= self.max_active {
            return Admission::NoRoom;
        }
        Admission::Write
    }

    /// A write begins.
    pub(crate) fn begin_write(&mut self, block: BlockId) {
        let zone = self.zone(block);
        assert!(!zone.busy && !zone.bad && !zone.stale, "a zone is written that allows it");
        zone.busy = true;
        let new = !std::mem::replace(&mut zone.active, true);
        assert!(!new || self.active < self.max_active, "active zones are within the limit");
        self.active += u32::from(new);
        self.writes += 1;
    }

    /// A write of so many pages has ended well.
    pub(crate) fn wrote(&mut self, block: BlockId, pages: u32) {
        let pages_per_block = self.pages_per_block;
        self.writes -= 1;
        let zone = self.zone(block);
        zone.busy = false;
        zone.filled += pages;
        assert!(zone.filled <= pages_per_block, "a zone is filled within its capacity");
        if zone.filled == pages_per_block {
            zone.sealed = true;
            if zone.fills {
                zone.active = false;
                self.active -= 1;
            }
        }
    }

    /// A write has failed; what the device says of the zone comes with [`Self::reported`].
    pub(crate) fn write_failed(&mut self, block: BlockId) {
        self.writes -= 1;
        let zone = self.zone(block);
        (zone.busy, zone.failed, zone.sealed) = (false, true, true);
    }

    /// A command for a zone begins.
    pub(crate) fn begin_command(&mut self, block: BlockId) {
        let was = std::mem::replace(&mut self.zone(block).busy, true);
        assert!(!was, "one thing at a time for a zone");
    }

    /// A reset has ended.
    pub(crate) fn was_reset(&mut self, block: BlockId, succeeded: bool) {
        let zone = self.zone(block);
        zone.busy = false;
        if !succeeded {
            (zone.failed, zone.sealed) = (true, true);
            return;
        }
        let was_active = std::mem::replace(&mut zone.active, false);
        (zone.filled, zone.torn) = (0, false);
        (zone.sealed, zone.stale, zone.failed) = (false, false, false);
        self.active -= u32::from(was_active);
    }

    /// A zone was finished.
    pub(crate) fn was_finished(&mut self, block: BlockId) {
        let zone = self.zone(block);
        zone.busy = false;
        let was_active = std::mem::replace(&mut zone.active, false);
        self.active -= u32::from(was_active);
    }

    /// A finish has failed: the zone is not tried again.
    pub(crate) fn finish_failed(&mut self, block: BlockId) {
        let zone = self.zone(block);
        (zone.busy, zone.sealed) = (false, false);
    }

    /// A zone that takes a resource and is programmed no more, of those that nothing waits for.
    pub(crate) fn to_finish(&self, is_free: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let done =
            |zone: &DataZone| zone.active && !zone.busy && !zone.bad && (zone.sealed || zone.stale);
        let blocks = (0..).map(BlockId).zip(&self.zones);
        blocks.filter(|(_, zone)| done(zone)).map(|(block, _)| block).find(|&block| is_free(block))
    }

    /// Active zones, and how many there may be.
    pub(crate) fn activity(&self) -> (u32, u32) {
        (self.active, self.max_active)
    }
}

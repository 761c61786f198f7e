//! Where a record is, in four bytes.

/// Where a record is, and what must be known of it without reading it: 30 bits of page, tombstone,
/// may-expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location(u32);

impl Location {
    /// Pages that a location can name.
    pub(crate) const MAX_PAGES: u32 = (1 << 30) - 0x1_0000;
    /// From here on, "pages" are slots of values that are being staged.
    pub(crate) const STAGED: u32 = Self::MAX_PAGES;
    /// Marks a node that is a dead count; no page has this number.
    pub(crate) const DEAD_COUNT: Self = Self(u32::MAX);
    const TOMBSTONE: u32 = 1 << 30;
    const MAY_EXPIRE: u32 = 1 << 31;

    /// A record in `page`.
    pub(crate) fn new(page: u32, tombstone: bool, may_expire: bool) -> Self {
        debug_assert!(page < 1 << 30);
        let mut raw = page;
        if tombstone {
            raw |= Self::TOMBSTONE;
        }
        if may_expire {
            raw |= Self::MAY_EXPIRE;
        }
        Self(raw)
    }

    /// A value that is being staged in a slot.
    pub(crate) fn in_staging(slot: u32, tombstone: bool, may_expire: bool) -> Self {
        assert!(slot < (1 << 30) - 1 - Self::STAGED, "fewer values are staged than have numbers");
        Self::new(Self::STAGED + slot, tombstone, may_expire)
    }

    /// The slot of a value that is being staged.
    #[inline]
    pub(crate) fn staged(self) -> Option<u32> {
        self.page().checked_sub(Self::STAGED)
    }

    /// The raw bits, for checkpoints.
    pub(crate) fn raw(self) -> u32 {
        self.0
    }

    /// From raw bits; `None` for what no location looks like.
    pub(crate) fn from_raw(raw: u32) -> Option<Self> {
        let location = Self(raw);
        (location.page() < Self::MAX_PAGES).then_some(location)
    }

    /// The page, or [`Location::STAGED`] plus a slot.
    pub(crate) fn page(self) -> u32 {
        self.0 & ((1 << 30) - 1)
    }

    /// Whether the record is a tombstone.
    pub(crate) fn tombstone(self) -> bool {
        self.0 & Self::TOMBSTONE != 0
    }

    /// Whether the record has an expiry.
    pub(crate) fn may_expire(self) -> bool {
        self.0 & Self::MAY_EXPIRE != 0
    }
}

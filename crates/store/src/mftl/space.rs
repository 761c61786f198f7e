//! Keyspaces: an index each, and the fences that hide what lies at or below them.
//!
//! A fence acts as a tombstone of every key of its keyspace. Once the watermark has passed it, what
//! it hides leaves the index: whole, when nothing was written since, else segment by segment. The
//! youngest fence at or below the watermark is kept for ever (one record a keyspace), because a
//! scan after a crash may find records that it hides.

use timestone_types::{KeyspaceId, Timestamp, Version};

use super::index::{Index, SEGMENTS};

/// A fence and the page of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fence {
    pub(crate) version: Version,
    pub(crate) page: u32,
}

/// One keyspace.
pub(crate) struct Space {
    pub(crate) id: KeyspaceId,
    pub(crate) index: Index,
    /// Ascending by version.
    pub(crate) fences: Vec<Fence>,
    /// The youngest version ever put.
    pub(crate) youngest: Version,
    /// Rises whenever the index is dropped whole: what was counted in an earlier one is not counted
    /// down in this one.
    pub(crate) epoch: u32,
    /// The fence that the index has been swept for, and the next segment of the sweep that is going
    /// on.
    pub(crate) swept: Version,
    pub(crate) sweep_next: u16,
}

impl Space {
    fn new(id: KeyspaceId) -> Self {
        Self {
            id,
            index: Index::new(),
            fences: Vec::new(),
            youngest: Version::ZERO,
            epoch: 0,
            swept: Version::ZERO,
            sweep_next: 0,
        }
    }

    /// The youngest fence at or before `at`; zero when there is none.
    pub(crate) fn fence_at(&self, at: Timestamp) -> Version {
        self.fences
            .iter()
            .rev()
            .map(|fence| fence.version)
            .find(|version| version.timestamp <= at)
            .unwrap_or(Version::ZERO)
    }

    /// The youngest fence; zero when there is none.
    pub(crate) fn latest_fence(&self) -> Version {
        self.fences.last().map_or(Version::ZERO, |fence| fence.version)
    }

    /// Adds a fence; false when it is there already.
    pub(crate) fn add_fence(&mut self, fence: Fence) -> bool {
        match self.fences.binary_search_by_key(&fence.version, |known| known.version) {
            Ok(_) => false,
            Err(at) => {
                self.fences.insert(at, fence);
                true
            }
        }
    }

    /// Forgets fences that a younger one at or below the watermark stands for.
    pub(crate) fn prune_fences(&mut self, watermark: Timestamp) {
        let keep = self.fence_at(watermark);
        self.fences.retain(|fence| fence.version >= keep);
    }
}

/// All keyspaces, and indexes that were dropped but whose blocks do not know it yet.
#[derive(Default)]
pub(crate) struct Spaces {
    pub(crate) list: Vec<Space>,
    pub(crate) dropped: Vec<(Index, u16)>,
}

impl Spaces {
    /// The position of a keyspace.
    pub(crate) fn find(&self, id: KeyspaceId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |space| space.id).ok()
    }

    /// A keyspace that is there.
    pub(crate) fn get(&self, id: KeyspaceId) -> Option<&Space> {
        self.find(id).map(|at| &self.list[at])
    }

    /// A keyspace that is there, to change it.
    pub(crate) fn get_mut(&mut self, id: KeyspaceId) -> Option<&mut Space> {
        self.find(id).map(|at| &mut self.list[at])
    }

    /// The position of a keyspace, which is made when it is not there.
    pub(crate) fn ensure(&mut self, id: KeyspaceId) -> usize {
        match self.list.binary_search_by_key(&id, |space| space.id) {
            Ok(at) => at,
            Err(at) => {
                self.list.insert(at, Space::new(id));
                at
            }
        }
    }

    /// Whether a fence hides keys that still take room: collection wins that room once the
    /// watermark has passed the fence.
    pub(crate) fn are_emptying(&self) -> bool {
        let emptying = |space: &Space| space.latest_fence() > space.swept && space.index.keys() > 0;
        !self.dropped.is_empty() || self.list.iter().any(emptying)
    }

    /// Does a little of what fences ask for; reports the pages that lose a record. True when
    /// something is left to do.
    pub(crate) fn sweep(
        &mut self,
        watermark: Timestamp,
        mut gone: impl FnMut(u32, Timestamp),
    ) -> bool {
        const STEP: u16 = 8;
        for space in &mut self.list {
            let fence = space.fence_at(watermark);
            if fence <= space.swept || fence.is_zero() {
                continue;
            }
            space.prune_fences(watermark);
            if space.youngest <= fence {
                let index = core::mem::replace(&mut space.index, Index::new());
                space.epoch += 1;
                space.swept = fence;
                space.sweep_next = 0;
                self.dropped.push((index, 0));
                return true;
            }
            let end = (space.sweep_next + STEP).min(SEGMENTS as u16);
            for segment in space.sweep_next..end {
                space
                    .index
                    .sweep(segment, fence, |location| gone(location.page(), fence.timestamp));
            }
            space.sweep_next = if end == SEGMENTS as u16 { 0 } else { end };
            if space.sweep_next == 0 {
                space.swept = fence;
            }
            return true;
        }
        let Some((index, next)) = self.dropped.last_mut() else { return false };
        let end = (*next + STEP).min(SEGMENTS as u16);
        for segment in *next..end {
            for (_, chain, _) in index.keys_from(segment, 0) {
                for (version, location) in chain {
                    gone(location.page(), version.timestamp);
                }
            }
        }
        *next = end;
        if end == SEGMENTS as u16 {
            self.dropped.pop();
        }
        true
    }
}

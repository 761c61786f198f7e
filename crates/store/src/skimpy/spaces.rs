//! Keyspaces: their fences, and the youngest version that was put.
//!
//! A fence hides what lies at or below it. The youngest one at or below the watermark is kept for
//! ever: a scan after a crash may find what it hides.
//!
//! Invariants: `list` ascends by keyspace; fences of a keyspace ascend by version.

use timestone_types::{HashSeed, KeyspaceId, Timestamp, Version};

use crate::kit::watermarks::Watermarks;

/// A fence and the page of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fence {
    pub(super) version: Version,
    pub(super) page: u32,
}

/// One keyspace.
pub(super) struct FencedSpace {
    pub(super) id: KeyspaceId,
    pub(super) fences: Vec<Fence>,
    pub(super) youngest: Version,
}

impl FencedSpace {
    /// The youngest fence at or before `at`; zero when there is none.
    pub(super) fn fence_at(&self, at: Timestamp) -> Version {
        let fences = self.fences.iter().rev().map(|fence| fence.version);
        fences.into_iter().find(|version| version.timestamp <= at).unwrap_or(Version::ZERO)
    }

    /// The youngest fence; zero when there is none.
    pub(super) fn latest_fence(&self) -> Version {
        self.fences.last().map_or(Version::ZERO, |fence| fence.version)
    }

    /// The highest timestamp of any version and fence.
    pub(super) fn newest(&self) -> Timestamp {
        self.youngest.max(self.latest_fence()).timestamp
    }

    /// Adds a fence, or notes where its record is now.
    pub(super) fn add_fence(&mut self, fence: Fence) {
        match self.fences.binary_search_by_key(&fence.version, |known| known.version) {
            Ok(at) => self.fences[at].page = fence.page,
            Err(at) => self.fences.insert(at, fence),
        }
        debug_assert!(self.fences.is_sorted_by_key(|known| known.version));
    }

    /// Whether a fence of this version is known.
    pub(super) fn has_fence(&self, version: Version) -> bool {
        self.fences.iter().any(|known| known.version == version)
    }

    /// Forgets fences that a younger one at or below the watermark stands for.
    pub(super) fn prune_fences(&mut self, watermark: Timestamp) {
        let keep = self.fence_at(watermark);
        self.fences.retain(|fence| fence.version >= keep);
    }
}

/// All keyspaces.
#[derive(Default)]
pub(super) struct FencedSpaces {
    pub(super) seed: HashSeed,
    pub(super) marks: Watermarks,
    pub(super) list: Vec<FencedSpace>,
}

impl FencedSpaces {
    /// The highest timestamp of any version and fence.
    pub(super) fn youngest(&self) -> Timestamp {
        self.list.iter().map(FencedSpace::newest).max().unwrap_or_default()
    }

    /// A keyspace that is there.
    pub(super) fn get(&self, id: KeyspaceId) -> Option<&FencedSpace> {
        let at = self.list.binary_search_by_key(&id, |space| space.id).ok()?;
        Some(&self.list[at])
    }

    /// A keyspace, which is made when it is not there.
    pub(super) fn ensure(&mut self, id: KeyspaceId) -> &mut FencedSpace {
        let at = match self.list.binary_search_by_key(&id, |space| space.id) {
            Ok(at) => at,
            Err(at) => {
                let space = FencedSpace { id, fences: Vec::new(), youngest: Version::ZERO };
                self.list.insert(at, space);
                at
            }
        };
        &mut self.list[at]
    }

    /// The youngest fence of a keyspace at or before `at`.
    pub(super) fn fence_at(&self, id: KeyspaceId, at: Timestamp) -> Version {
        self.get(id).map_or(Version::ZERO, |space| space.fence_at(at))
    }
}

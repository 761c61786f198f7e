//! Finding a version: in the index first, and then where its record is.
//!
//! ```text
//!   locate: index chain ─► absent │ cache │ group │ staging area │ page on flash
//! ```
//!
//! Hidden dependency: the answer depends on all that can hold a record, in this order, because a
//! record may be at several of these places at once.
//!
//! Invariant: what the index names is at one of these places, and stays there until the caller's
//! next call that changes the store.

use timestone_flash::PageId;
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version};

use super::index::{KeyId, Location};
use super::space::Spaces;
use crate::api::Lookup;
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::blocks::{BlockState, Blocks};
use crate::kit::cache::{CacheKey, CachedRecord};
use crate::kit::volume::Volume;
use crate::layout::{self, Extent, LargeHead, Record};

/// Where a version was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Absent { version: Version, expires_at: Expiry },
    Cached { version: Version, place: CachedRecord },
    InGroup { version: Version, page: PageId, offset: usize },
    Staged { version: Version, slot: u32 },
    OnFlash { version: Version, page: PageId },
}

/// A record as a reader sees it who judges its expiry as of `judged`.
#[inline]
pub(super) fn visible(
    version: Version,
    expires_at: Expiry,
    value: &[u8],
    judged: Timestamp,
) -> Lookup<'_> {
    if expires_at.has_passed(judged) {
        Lookup::Absent { version, expires_at }
    } else {
        Lookup::Present { version, expires_at, value }
    }
}

/// Which key is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought<'a> {
    pub(super) keyspace: KeyspaceId,
    pub(super) id: KeyId,
    pub(super) key: &'a [u8],
}

/// Whether a chain, youngest first, has this version at this page.
fn is_in(
    chain: impl Iterator<Item = (Version, Location)>,
    (last, page): (Version, PageId),
) -> bool {
    chain
        .skip_while(|&(version, _)| version > last)
        .take_while(|&(version, _)| version == last)
        .any(|(_, location)| location.page() == page.0)
}

/// Finds the youngest version at or before `at`; with `after`, the one behind that version and page
/// in the chain.
pub(super) fn locate(
    spaces: &Spaces,
    kit: &mut Kit,
    Sought { keyspace, id, key }: Sought<'_>,
    at: Timestamp,
    after: Option<(Version, PageId)>,
) -> Found {
    debug_assert!(after.is_none_or(|(version, _)| version.timestamp <= at), "it goes on below");
    let nothing = Found::Absent { version: Version::ZERO, expires_at: Expiry::NEVER };
    let Some(space) = spaces.get(keyspace) else { return nothing };
    let fence = space.fence_at(at);
    let fenced = Found::Absent { version: fence, expires_at: Expiry::NEVER };
    // Collection may have moved the version that was looked at: then it is looked at again.
    let mut passed = !after.is_some_and(|place| is_in(space.index.chain(id), place));
    for (version, location) in space.index.chain(id) {
        if let Some((last, page)) = after {
            if version > last {
                continue;
            }
            if version == last && !passed {
                passed = location.page() == page.0;
                continue;
            }
        }
        if version.timestamp > at {
            continue;
        }
        if version <= fence {
            return fenced;
        }
        if location.tombstone() && !location.may_expire() {
            return Found::Absent { version, expires_at: Expiry::NEVER };
        }
        if let Some(slot) = location.staged() {
            if kit.staging.key(slot) != key {
                continue;
            }
            return Found::Staged { version, slot };
        }
        if let Some(place) = kit.cache.find(CacheKey { keyspace, id, version, key }) {
            return Found::Cached { version, place };
        }
        return outside_cache(&kit.volume, Sought { keyspace, id, key }, version, location);
    }
    fenced
}

/// Where a record is that is not cached.
fn outside_cache(
    volume: &Volume,
    Sought { keyspace, id, key }: Sought<'_>,
    version: Version,
    location: Location,
) -> Found {
    let page = PageId(location.page());
    if volume.is_on_device(page) {
        return Found::OnFlash { version, page };
    }
    let Some(bytes) = volume.page_in_group(page) else {
        return Found::OnFlash { version, page };
    };
    let same = |record: &Record<'_>| record.keyspace == keyspace && record.key == key;
    match layout::find(bytes, id.check, version, same) {
        Some(record) if Record::read(record).is_some_and(|record| !record.kind.is_large()) => {
            let offset = record.as_ptr() as usize - bytes.as_ptr() as usize;
            Found::InGroup { version, page, offset }
        }
        // A large head: its parts must be read, so it is answered as if it were on flash.
        _ => Found::OnFlash { version, page },
    }
}

/// The record at an offset that [`locate`] found in a group.
pub(super) fn record_in_group(
    volume: &Volume,
    page: PageId,
    offset: usize,
) -> Result<Record<'_>, StoreError> {
    volume
        .page_in_group(page)
        .and_then(|bytes| Record::read(&bytes[offset..]))
        .ok_or(StoreError::Corrupt { page: page.0, reason: "a page being written lost a record" })
}

/// Whether the parts of a large head are where it says: otherwise the value was moved and this head
/// is void.
pub(super) fn head_is_void(head: &LargeHead<'_>, blocks: &Blocks) -> bool {
    head.extents.iter().any(|extent| !is_there(extent, blocks))
}

/// Whether parts are where their head says.
pub(super) fn is_there(extent: &Extent, blocks: &Blocks) -> bool {
    blocks.find(blocks.of(extent.page)).is_some_and(|entry| {
        entry.generation == extent.generation
            && !matches!(entry.state, BlockState::Erasing | BlockState::Free)
    })
}

#[cfg(test)]
mod tests {
    use timestone_types::ClientId;

    use super::*;

    #[test]
    fn a_version_that_was_moved_is_not_behind_its_old_place() {
        let version = |at| Version::new(Timestamp::from_nanos(at), ClientId::new(1));
        let chain = [(version(9), 4), (version(7), 8), (version(5), 2)]
            .map(|(version, page)| (version, Location::new(page, false, false)));
        let is_in = |at, page| is_in(chain.into_iter(), (version(at), PageId(page)));
        assert!(is_in(7, 8) && is_in(9, 4) && is_in(5, 2));
        assert!(!is_in(7, 3), "collection has moved it from there to page 8");
        assert!(!is_in(7, 4) && !is_in(6, 8));
    }
}

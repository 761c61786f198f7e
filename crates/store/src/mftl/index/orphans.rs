//! Dead records of keys that have no version in the index.
//!
//! ```text
//!   x@10 dead, in a block that stays    checkpoint: x@25, one dead record
//!   x@30 is put, not durable ─► the block of x@25 is erased ─► the power goes ─► nothing of x is in the index
//!   the log brings x@30 again, which has one dead record: x@10
//! ```
//! *Otherwise* a tombstone of x hides nothing as far as the index knows, and goes before x@10 does, which is back
//! after a scan (planted bug `ForgetsOrphans`).
//!
//! Few: bounded by what was not durable at a crash.

use std::collections::BTreeMap;

use super::KeyId;

/// How many each of them has.
#[derive(Debug, Default)]
pub(super) struct Orphans(BTreeMap<KeyId, u32>);

impl Orphans {
    /// So many more of a key.
    pub(super) fn add(&mut self, id: KeyId, dead: u32) {
        if dead > 0 {
            let known = self.0.entry(id).or_default();
            *known = known.saturating_add(dead);
        }
    }

    /// Whether a key has any.
    pub(super) fn has(&self, id: KeyId) -> bool {
        self.0.contains_key(&id)
    }

    /// All of a key, to be counted elsewhere.
    pub(super) fn take(&mut self, id: KeyId) -> Option<u32> {
        self.0.remove(&id)
    }

    /// The block of one is erased.
    pub(super) fn take_one(&mut self, id: KeyId) {
        if let Some(dead) = self.0.get_mut(&id) {
            *dead -= 1;
            if *dead == 0 {
                self.0.remove(&id);
            }
        }
    }

    /// Those of one segment.
    pub(super) fn of_segment(
        &self,
        segment: u16,
    ) -> impl Iterator<Item = (KeyId, u32)> + Clone + '_ {
        let of_segment = self.0.iter().filter(move |(id, _)| id.segment == segment);
        of_segment.map(|(id, dead)| (*id, *dead))
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * 2 * size_of::<(KeyId, u32)>()) as u64
    }
}

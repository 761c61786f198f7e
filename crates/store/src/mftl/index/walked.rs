//! At which watermark the chains of the hottest keys were walked last. A chain grows with every put, and
//! what is dead in it with the watermark: another walk at the same watermark finds nothing new.
//!
//! Invariant: there is a place for each key, or no place at all.

use timestone_types::{KeyHash, Timestamp};

use super::KeyId;

/// Keys that have a place: the hottest ones, whose chains are long.
const WALKED_KEYS: usize = 64;

/// A walk visits at most about so many versions for each that it frees.
const VISITS_FOR_ONE: u64 = 8;

/// Whether enough is dead by now in a chain that was pruned below a version, as far as that is known (zero:
/// it is not): what the watermark has passed since, beside what lies above it and is walked over.
#[inline]
pub(super) fn finds_enough(
    pruned_below: Timestamp,
    watermark: Timestamp,
    youngest: Timestamp,
) -> bool {
    let span = |from: Timestamp, to: Timestamp| to.as_nanos().saturating_sub(from.as_nanos());
    span(pruned_below, watermark) >= span(watermark, youngest) / VISITS_FOR_ONE
}

/// By key: the watermark of the last walk over its whole chain. Keys share the places.
#[derive(Debug, Default)]
pub(super) struct Walked(Vec<(KeyId, Timestamp)>);

impl Walked {
    /// Whether a walk over the whole chain may find more than the last one did, and that one will be
    /// done now.
    pub(super) fn is_worth_one(&mut self, id: KeyId, watermark: Timestamp) -> bool {
        if self.0.is_empty() {
            self.0 = vec![(KeyId::new(KeyHash(0), 0), Timestamp::ZERO); WALKED_KEYS];
        }
        let walked = &mut self.0[id.check as usize % WALKED_KEYS];
        let before = core::mem::replace(walked, (id, watermark));
        debug_assert!(self.0.len() == WALKED_KEYS, "there is a place for each key");
        before != (id, watermark)
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(KeyId, Timestamp)>()
    }
}

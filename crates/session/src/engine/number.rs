//! The correlation number of a request: says by itself whom the reply is for, so that no table of
//! requests is kept.
//!
//! ```text
//!    63 62 61                 35 34          17 16           0
//!   ┌─────┬─────────────────────┬──────────────┬─────────────┐
//!   │kind │ generation (27 bits)│ slot (18)    │ item (17)   │   read: one key of a transaction
//!   │     │                     │              │ 0           │   commit: prepares, decisions, terminations of a transaction
//!   │     │                     │ slot (18)    │ round (17)  │   single: one request outside a transaction
//!   │     │ count (27)          │ 0            │ 1           │   as a commit, which never has an item: a ping
//!   └─────┴─────────────────────┴──────────────┴─────────────┘
//! ```
//! Generations are cut to 27 bits: a reply would have to be late by 67 million uses of its slot to
//! be taken for another's.

use timestone_types::limits as shared;

use super::slab::SlabKey;
use crate::limits;

const SLOT_BITS: u32 = 18;
const ITEM_BITS: u32 = 17;
const GENERATION_BITS: u32 = 27;

const _: () = assert!(2 + GENERATION_BITS + SLOT_BITS + ITEM_BITS == 64);
const _: () =
    assert!(limits::MAX_TRANSACTIONS <= 1 << SLOT_BITS && limits::MAX_SINGLES <= 1 << SLOT_BITS);
const _: () = assert!(shared::MAX_TXN_KEYS < 1 << ITEM_BITS);

/// Whom a reply is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// Nobody: reports.
    Nobody = 0,
    /// One key's read in a transaction.
    Read = 1,
    /// A transaction's commit.
    Commit = 2,
    /// A request outside a transaction.
    Single = 3,
}

/// A request's number, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub(crate) asker: Asker,
    pub(crate) slot: SlabKey,
    pub(crate) item: u32,
}

/// The number of requests that nobody waits for.
pub(crate) const NOBODY: u64 = 0;

/// What the number of a ping has in the place of the item, where commits have nothing.
const PING_ITEM: u32 = 1;

/// The number of the `count`-th request that only asks for a reading of a server's clock.
pub(crate) const fn ping(count: u32) -> u64 {
    let slot = SlabKey { index: 0, generation: count };
    Number::new(Asker::Commit, slot, PING_ITEM).pack()
}

/// Whether a number is that of a ping.
#[inline]
pub(crate) const fn is_ping(raw: u64) -> bool {
    raw >> 62 == Asker::Commit as u64 && raw & low(ITEM_BITS) == PING_ITEM as u64
}

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Number {
    /// The highest item. Rounds are cut to that.
    pub(crate) const MAX_ITEM: u32 = low(ITEM_BITS) as u32;

    pub(crate) const fn new(asker: Asker, slot: SlabKey, item: u32) -> Self {
        Self { asker, slot, item }
    }

    pub(crate) const fn pack(self) -> u64 {
        let generation = self.slot.generation as u64 & low(GENERATION_BITS);
        let slot = self.slot.index as u64 & low(SLOT_BITS);
        let item = self.item as u64 & low(ITEM_BITS);
        (self.asker as u64) << 62 | generation << (SLOT_BITS + ITEM_BITS) | slot << ITEM_BITS | item
    }

    /// Takes a number apart; the generation is cut to its low bits, see [`Number::is_for`].
    pub(crate) const fn unpack(raw: u64) -> Self {
        let asker = match raw >> 62 {
            1 => Asker::Read,
            2 => Asker::Commit,
            3 => Asker::Single,
            _ => Asker::Nobody,
        };
        let index = (raw >> ITEM_BITS & low(SLOT_BITS)) as u32;
        let generation = (raw >> (SLOT_BITS + ITEM_BITS) & low(GENERATION_BITS)) as u32;
        Self { asker, slot: SlabKey { index, generation }, item: (raw & low(ITEM_BITS)) as u32 }
    }

    /// Whether the number was made for the present holder of its slot.
    pub(crate) const fn is_for(self, holder: SlabKey) -> bool {
        self.slot.index == holder.index
            && self.slot.generation as u64 == holder.generation as u64 & low(GENERATION_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_reads_back_and_an_old_one_is_told_from_a_new_one() {
        let slot = SlabKey { index: 0x3_fffe, generation: 0xf7ff_fff3 };
        let number = Number::new(Asker::Read, slot, 99_999);
        let back = Number::unpack(number.pack());
        assert_eq!((back.asker, back.item, back.slot.index), (Asker::Read, 99_999, slot.index));
        assert!(back.is_for(slot));
        assert!(!back.is_for(SlabKey { generation: slot.generation + 2, ..slot }));
        assert_eq!(Number::unpack(NOBODY).asker, Asker::Nobody);
    }
}

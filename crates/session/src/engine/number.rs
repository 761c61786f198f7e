//! The correlation number of a request: says by itself whom the reply is for, so that no table of
//! requests is kept.
//!
//! ```text
//!    63 62 61                 35 34          17 16           0
//!   ┌─────┬─────────────────────┬──────────────┬─────────────┐
//!   │kind │ generation (27 bits)│ slot (18)    │ item (17)   │   read: one key of a transaction
//!   │     │                     │              │ 0           │   commit: prepares, decisions, terminations of a transaction
//!   │     │                     │ slot (18)    │ round (17)  │   single: one request outside a transaction
//!   └─────┴─────────────────────┴──────────────┴─────────────┘
//! ```
//! Generations are cut to 27 bits: a reply would have to be late by 67 million uses of its slot to
//! be taken for another's.

use timestone_types::limits as shared;

use crate::{limits, slab::Name};

const SLOT_BITS: u32 = 18;
const ITEM_BITS: u32 = 17;
const GENERATION_BITS: u32 = 27;

const _: () = assert!(2 + GENERATION_BITS + SLOT_BITS + ITEM_BITS == 64);
const _: () =
    assert!(limits::MAX_TRANSACTIONS <= 1 << SLOT_BITS && limits::MAX_SINGLES <= 1 << SLOT_BITS);
const _: () = assert!(shared::MAX_TXN_KEYS < 1 << ITEM_BITS);

/// Whom a reply is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nobody: reports.
    None = 0,
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
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    pub(crate) item: u32,
}

/// The number of requests that nobody waits for.
pub(crate) const NOBODY: u64 = 0;

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Number {
    pub(crate) const fn new(kind: Kind, name: Name, item: u32) -> Self {
        Self { kind, name, item }
    }

    pub(crate) const fn pack(self) -> u64 {
        let generation = self.name.generation as u64 & low(GENERATION_BITS);
        let slot = self.name.index as u64 & low(SLOT_BITS);
        let item = self.item as u64 & low(ITEM_BITS);
        (self.kind as u64) << 62 | generation << (SLOT_BITS + ITEM_BITS) | slot << ITEM_BITS | item
    }

    /// Takes a number apart; the generation is cut to its low bits, see [`Number::is_for`].
    pub(crate) const fn unpack(raw: u64) -> Self {
        let kind = match raw >> 62 {
            1 => Kind::Read,
            2 => Kind::Commit,
            3 => Kind::Single,
            _ => Kind::None,
        };
        let index = (raw >> ITEM_BITS & low(SLOT_BITS)) as u32;
        let generation = (raw >> (SLOT_BITS + ITEM_BITS) & low(GENERATION_BITS)) as u32;
        Self { kind, name: Name { index, generation }, item: (raw & low(ITEM_BITS)) as u32 }
    }

    /// Whether the number was made for the present holder of its slot.
    pub(crate) const fn is_for(self, holder: Name) -> bool {
        self.name.index == holder.index
            && self.name.generation as u64 == holder.generation as u64 & low(GENERATION_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_reads_back_and_an_old_one_is_told_from_a_new_one() {
        let name = Name { index: 0x3_fffe, generation: 0xf7ff_fff3 };
        let number = Number::new(Kind::Read, name, 99_999);
        let back = Number::unpack(number.pack());
        assert_eq!((back.kind, back.item, back.name.index), (Kind::Read, 99_999, name.index));
        assert!(back.is_for(name));
        assert!(!back.is_for(Name { generation: name.generation + 2, ..name }));
        assert_eq!(Number::unpack(NOBODY).kind, Kind::None);
    }
}

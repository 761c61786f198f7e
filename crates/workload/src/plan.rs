//! One transaction as plain data: what a generator makes and a runner executes, again and again
//! when it aborts.

use crate::KeyIndex;

/// One step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Read the key.
    Get(KeyIndex),
    /// Read some keys that follow each other in their order, with their values.
    Scan {
        /// The first of them, or where it would be.
        from: KeyIndex,
        /// How many at most.
        count: u32,
    },
    /// Write a value of the specified size.
    Put(KeyIndex),
    /// Read the integer there and write it back increased; when it would fall below zero, abort the
    /// transaction.
    Add {
        /// The key.
        key: KeyIndex,
        /// What to add.
        delta: i64,
    },
    /// Read the list there and write it back with one more element.
    Append {
        /// The key.
        key: KeyIndex,
        /// The element, which no other append carries.
        element: i64,
    },
    /// Write this integer.
    Write {
        /// The key.
        key: KeyIndex,
        /// The integer, which no other write carries.
        value: i64,
    },
    /// Delete the key.
    Delete(KeyIndex),
    /// Write a value of the specified size, which expires.
    PutFor {
        /// The key.
        key: KeyIndex,
        /// After how many milliseconds it expires.
        millis: u32,
    },
    /// Write this integer, which expires.
    WriteFor {
        /// The key.
        key: KeyIndex,
        /// The integer, which no other write carries.
        value: i64,
        /// After how many milliseconds it expires.
        millis: u32,
    },
    /// Read the integers of both keys, delete the first, and write the second back increased by
    /// what the first held; when that is absent, abort the transaction.
    Close {
        /// The account that is closed.
        key: KeyIndex,
        /// The account that has its money then. It may be absent, which is as if it held nothing.
        into: KeyIndex,
    },
}

impl Op {
    /// The key that the step touches; of several, the first.
    #[must_use]
    pub const fn key(self) -> KeyIndex {
        match self {
            Self::Get(key)
            | Self::Scan { from: key, .. }
            | Self::Put(key)
            | Self::Delete(key)
            | Self::Add { key, .. }
            | Self::Append { key, .. }
            | Self::Write { key, .. }
            | Self::PutFor { key, .. }
            | Self::WriteFor { key, .. }
            | Self::Close { key, .. } => key,
        }
    }

    /// Whether the step writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Get(_) | Self::Scan { .. })
    }

    /// Whether the step needs what is there.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::Get(_)
                | Self::Scan { .. }
                | Self::Add { .. }
                | Self::Append { .. }
                | Self::Close { .. }
        )
    }
}

/// A transaction to run; its buffer is used again for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TxnPlan {
    /// Its steps, in order.
    pub ops: Vec<Op>,
    /// What the workload calls it: `timeline`, `transfer`, `update` …
    pub name: &'static str,
}

impl TxnPlan {
    /// Whether no step writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        !self.ops.iter().any(|op| op.writes())
    }

    pub(crate) fn begin(&mut self, name: &'static str) {
        self.ops.clear();
        self.name = name;
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }
}

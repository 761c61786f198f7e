//! Small values inside messages: when to read, what to write under which condition, votes and
//! states.

use timestone_types::limits::MAX_VALUE_BYTES;
use timestone_types::{AbortReason, Timestamp, Version};

use crate::WireError;
use crate::layout::{Codec, Fixed, bounded};

/// Which version a read wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAt {
    /// The youngest at or below a transaction's begin.
    Snapshot(Timestamp),
    /// The latest, linearizably. Nothing of the key is committed at or below the timestamp from then on: it
    /// is the asker's now, or what its session needs.
    Latest(Timestamp),
}

/// A tag and a timestamp, which two enums share as their layout.
const TAGGED_TIMESTAMP_BYTES: usize = 1 + 8;

#[inline]
fn store_tagged(tag: u8, at: Timestamp, to: &mut [u8]) {
    to[0] = tag;
    at.store(&mut to[1..TAGGED_TIMESTAMP_BYTES]);
}

impl Fixed for ReadAt {
    const BYTES: usize = TAGGED_TIMESTAMP_BYTES;

    #[inline]
    fn store(&self, to: &mut [u8]) {
        match *self {
            Self::Snapshot(at) => store_tagged(1, at, to),
            Self::Latest(at) => store_tagged(2, at, to),
        }
    }

    #[inline]
    fn load(from: &[u8]) -> Result<Self, WireError> {
        let at = Timestamp::load(&from[1..TAGGED_TIMESTAMP_BYTES])?;
        match from[0] {
            1 => Ok(Self::Snapshot(at)),
            2 => Ok(Self::Latest(at)),
            _ => Err(WireError::BadField { field: "when to read" }),
        }
    }
}

/// What a server knows about a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnState {
    /// Nothing: never seen, or forgotten since.
    Unknown,
    /// Prepared with this commit timestamp, undecided.
    Prepared(Timestamp),
    /// Committed with this timestamp.
    Committed(Timestamp),
    /// Aborted.
    Aborted,
    /// Nothing, and nothing ever will be: it began below the shard's watermark. Told to peers that ask
    /// how it ended.
    Forgotten,
}

impl Fixed for TxnState {
    const BYTES: usize = TAGGED_TIMESTAMP_BYTES;

    #[inline]
    fn store(&self, to: &mut [u8]) {
        match *self {
            Self::Unknown => store_tagged(0, Timestamp::ZERO, to),
            Self::Prepared(at) => store_tagged(1, at, to),
            Self::Committed(at) => store_tagged(2, at, to),
            Self::Aborted => store_tagged(3, Timestamp::ZERO, to),
            Self::Forgotten => store_tagged(4, Timestamp::ZERO, to),
        }
    }

    #[inline]
    fn load(from: &[u8]) -> Result<Self, WireError> {
        let at = Timestamp::load(&from[1..TAGGED_TIMESTAMP_BYTES])?;
        match (from[0], at) {
            (0, Timestamp::ZERO) => Ok(Self::Unknown),
            (1, at) => Ok(Self::Prepared(at)),
            (2, at) => Ok(Self::Committed(at)),
            (3, Timestamp::ZERO) => Ok(Self::Aborted),
            (4, Timestamp::ZERO) => Ok(Self::Forgotten),
            _ => Err(WireError::BadField { field: "the state of a transaction" }),
        }
    }
}

/// A participant's answer to a prepare, or a shard's to a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Prepared durably; with a single participant: committed durably.
    Yes,
    /// Only the timestamp is too low: ask again with this one or a later one. Nothing is left
    /// prepared.
    Later(Timestamp),
    /// Refused, durably.
    No(AbortReason),
}

impl Fixed for Verdict {
    /// A tag, and the longest of the alternatives; shorter ones are followed by zeros.
    const BYTES: usize = 1 + <AbortReason as Fixed>::BYTES;

    #[inline]
    fn store(&self, to: &mut [u8]) {
        to.fill(0);
        match self {
            Self::Yes => to[0] = 1,
            Self::Later(at) => {
                to[0] = 2;
                at.store(&mut to[1..9]);
            }
            Self::No(reason) => {
                to[0] = 3;
                reason.store(&mut to[1..Self::BYTES]);
            }
        }
    }

    #[inline]
    fn load(from: &[u8]) -> Result<Self, WireError> {
        let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        match from[0] {
            1 if zeros(&from[1..]) => Ok(Self::Yes),
            2 if zeros(&from[9..]) => Timestamp::load(&from[1..9]).map(Self::Later),
            3 => AbortReason::load(&from[1..Self::BYTES]).map(Self::No),
            _ => Err(WireError::BadField { field: "a vote" }),
        }
    }
}

/// Declares an enum of plain numbers as a fixed field.
macro_rules! numbered {
    ($(#[$doc:meta])* $vis:vis $name:ident($field:literal) { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant = $number,)+
        }

        impl $name {
            /// The value with this number.
            #[must_use]
            #[inline]
            $vis const fn from_u8(raw: u8) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::layout::Fixed for $name {
            const BYTES: usize = 1;

            #[inline]
            fn store(&self, to: &mut [u8]) {
                to[0] = *self as u8;
            }

            #[inline]
            fn load(from: &[u8]) -> Result<Self, $crate::WireError> {
                Self::from_u8(from[0]).ok_or($crate::WireError::BadField { field: $field })
            }
        }
    };
}

pub(crate) use numbered;

numbered! {
    /// What one write of a prepare does.
    pub WriteKind("the kind of a write") {
        /// Stores a value.
        Put = 1,
        /// Stores a tombstone.
        Delete = 2,
        /// Makes everything of the keyspace at this shard absent (FLUSHDB, drop); has neither key
        /// nor value.
        Fence = 3,
    }
}

numbered! {
    /// What a single-key write does when its condition holds.
    pub WriteAction("the action of a write") {
        /// Stores the value with the expiry given.
        Put = 1,
        /// Stores the value and keeps the expiry that the key has.
        PutKeepExpiry = 2,
        /// Stores a tombstone. Where the key is absent already nothing is stored, and the write
        /// succeeds.
        Delete = 3,
        /// Stores the value with the expiry given, at the write's timestamp or, where that is too
        /// low, at the lowest that is not, up to `PLACED_WITHIN` (`timestone_types::limits`) above
        /// it. A write with a condition, or that asks for the previous value, takes place at its
        /// timestamp or not at all, as with [`WriteAction::Put`].
        PutFrom = 4,
    }
}

/// What must hold of the key's latest version for a single-key write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition<'a> {
    /// Nothing.
    Always,
    /// The key is absent (NX).
    IfAbsent,
    /// The key is present (XX).
    IfPresent,
    /// The key is present with this version; [`Version::ZERO`] means absent, whatever tombstone it
    /// has.
    IfVersion(Version),
    /// The key is present with this value.
    IfValue(&'a [u8]),
}

/// [`Condition`] as a variable field: a tag, then the version or the value.
pub(crate) struct ConditionCodec;

impl<'a> Codec<'a> for ConditionCodec {
    type Value = Condition<'a>;

    #[inline]
    fn length(value: &Self::Value) -> usize {
        1 + match value {
            Condition::Always | Condition::IfAbsent | Condition::IfPresent => 0,
            Condition::IfVersion(_) => <Version as Fixed>::BYTES,
            Condition::IfValue(value) => value.len(),
        }
    }

    #[inline]
    fn append(value: &Self::Value, out: &mut Vec<u8>) {
        match value {
            Condition::Always => out.push(1),
            Condition::IfAbsent => out.push(2),
            Condition::IfPresent => out.push(3),
            Condition::IfVersion(version) => {
                let mut bytes = [4u8; 1 + <Version as Fixed>::BYTES];
                version.store(&mut bytes[1..]);
                out.extend_from_slice(&bytes);
            }
            Condition::IfValue(value) => {
                out.push(5);
                out.extend_from_slice(value);
            }
        }
    }

    #[inline]
    fn take(bytes: &'a [u8]) -> Result<Self::Value, WireError> {
        match bytes {
            [1] => Ok(Condition::Always),
            [2] => Ok(Condition::IfAbsent),
            [3] => Ok(Condition::IfPresent),
            [4, version @ ..] if version.len() == <Version as Fixed>::BYTES => {
                Version::load(version).map(Condition::IfVersion)
            }
            [5, value @ ..] => {
                bounded("an expected value's bytes", value.len(), MAX_VALUE_BYTES)?;
                Ok(Condition::IfValue(value))
            }
            _ => Err(WireError::BadField { field: "the condition of a write" }),
        }
    }
}

//! What a single-key write is to do, kept for as long as something has to be found out before it is
//! sent.

use timestone_session::{Condition, Mutation};
use timestone_types::{Expiry, Version};

/// A mutation that outlives the call.
pub(crate) enum OwnedMutation {
    Put(Vec<u8>, Expiry),
    PutKeepExpiry(Vec<u8>),
    Delete,
}

impl From<Mutation<'_>> for OwnedMutation {
    fn from(mutation: Mutation<'_>) -> Self {
        match mutation {
            Mutation::Put { value, expires_at } => Self::Put(value.to_vec(), expires_at),
            Mutation::PutKeepExpiry { value } => Self::PutKeepExpiry(value.to_vec()),
            Mutation::Delete => Self::Delete,
        }
    }
}

impl OwnedMutation {
    pub(crate) fn borrow(&self) -> Mutation<'_> {
        match self {
            Self::Put(value, expires_at) => Mutation::Put { value, expires_at: *expires_at },
            Self::PutKeepExpiry(value) => Mutation::PutKeepExpiry { value },
            Self::Delete => Mutation::Delete,
        }
    }
}

/// A condition that outlives the call.
pub(crate) enum OwnedCondition {
    Always,
    Absent,
    Present,
    VersionIs(Version),
    ValueIs(Vec<u8>),
}

impl From<Condition<'_>> for OwnedCondition {
    fn from(condition: Condition<'_>) -> Self {
        match condition {
            Condition::Always => Self::Always,
            Condition::Absent => Self::Absent,
            Condition::Present => Self::Present,
            Condition::VersionIs(version) => Self::VersionIs(version),
            Condition::ValueIs(value) => Self::ValueIs(value.to_vec()),
        }
    }
}

impl OwnedCondition {
    pub(crate) fn borrow(&self) -> Condition<'_> {
        match self {
            Self::Always => Condition::Always,
            Self::Absent => Condition::Absent,
            Self::Present => Condition::Present,
            Self::VersionIs(version) => Condition::VersionIs(*version),
            Self::ValueIs(value) => Condition::ValueIs(value),
        }
    }
}

//! A value that was read, with its version.

use core::fmt;
use core::ops::Deref;

use timestone_types::{Expiry, Version};

/// A key's value as it was read. Dereferences to its bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Value {
    bytes: Vec<u8>,
    version: Version,
    expires_at: Expiry,
}

impl Value {
    pub(crate) const fn new(bytes: Vec<u8>, version: Version, expires_at: Expiry) -> Self {
        Self { bytes, version, expires_at }
    }

    /// Which version it is; [`Version::ZERO`] for the transaction's own write, which has none yet.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// When the key becomes absent.
    #[must_use]
    pub const fn expires_at(&self) -> Expiry {
        self.expires_at
    }

    /// The bytes.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.bytes == other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.bytes == other.as_slice()
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.bytes
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"@{}", self.bytes.escape_ascii(), self.version)
    }
}

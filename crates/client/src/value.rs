//! What was found: a value with its version, and a key.

use core::borrow::Borrow;
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

/// A key that a scan found. Dereferences to its bytes; for people it is text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(Vec<u8>);

impl Key {
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

// Equal bytes are equal keys, and keys stand in the order of their bytes: maps may be asked with
// bytes.
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<[u8]> for Key {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Key {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.0 == other.as_slice()
    }
}

impl From<Key> for Vec<u8> {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"@{}", self.bytes.escape_ascii(), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scan_finds_is_shown_as_text() {
        let value = Value::new(b"caf\xc3\xa9".to_vec(), Version::ZERO, Expiry::NEVER);
        let entry = (Key::new(b"acct/7\0".to_vec()), value);
        let shown = format!("{entry:?}");
        assert!(shown.starts_with(r#"("acct/7\x00", "caf\xc3\xa9"@"#), "{shown}");
    }
}

//! Keyspaces: names, ids and options.
//!
//! A keyspace's id is part of every stored key and is never used again after a drop. The options
//! name all that the design has; [`KeyspaceOptions::check_served`] refuses, with what is served
//! instead, those that this version does not serve. Source: docs/protocol/membership.md,
//! "Keyspaces".

use core::fmt;
use core::str::FromStr;

use timestone_types::KeyspaceId;

use crate::ClusterError;
use crate::codec::{Cursor, put_text, put_u8, put_u32};
use crate::limits::MAX_KEYSPACE_NAME_BYTES;

/// Declares an option: an enum with numbers for layouts, names for people, and which of them this
/// version serves.
macro_rules! option {
    (
        $(#[$doc:meta])* $name:ident($text:literal, served: $served:literal, choices: $choices:literal) {
            $($(#[$variant_doc:meta])* $variant:ident = $number:literal $label:literal $is_served:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)+
        }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value with this number, as layouts store it.
            #[must_use]
            pub const fn from_u8(raw: u8) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The value's name, as the command line takes it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }

            const fn check_served(self) -> Result<(), ClusterError> {
                let is_served = match self {
                    $(Self::$variant => $is_served,)+
                };
                if is_served {
                    Ok(())
                } else {
                    Err(ClusterError::Unsupported { option: $text, value: self.name(), served: $served })
                }
            }

            fn decode(raw: u8, cursor: &Cursor<'_>) -> Result<Self, ClusterError> {
                Self::from_u8(raw).ok_or_else(|| cursor.fail(concat!("its option ", $text, " has an unknown value")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = ClusterError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($label => Ok(Self::$variant),)+
                    _ => Err(ClusterError::UnknownValue {
                        option: $text,
                        value: text.chars().take(40).collect(),
                        choices: $choices,
                    }),
                }
            }
        }
    };
}

option! {
    /// Where versions are kept. The keyspace's id says so as well
    /// ([`KeyspaceId::is_in_memory`]).
    StoreKind("store", served: "mftl, dram", choices: "mftl, dram") {
        /// On flash (SEMEL).
        Mftl = 0 "mftl" true,
        /// In memory only: the keyspace is empty after a restart of a server that holds it.
        Dram = 1 "dram" true,
    }
}
option! {
    /// How keys are found (docs/protocol/storage.md, "Index"). The keyspace's id says so as well
    /// ([`KeyspaceId::is_ordered`], [`KeyspaceId::is_frugal`]).
    IndexKind("index", served: "full, frugal, ordered", choices: "full, frugal, ordered") {
        /// Every key's hash and every version's place in memory.
        Full = 1 "full" true,
        /// A bounded amount of memory per flash page (SkimpyFTL).
        Frugal = 2 "frugal" true,
        /// Keys in order, for range scans.
        Ordered = 3 "ordered" true,
    }
}
option! {
    /// What concurrent transactions may see of each other.
    Isolation("isolation", served: "serializable", choices: "serializable, nmsi") {
        /// As if one ran after the other.
        Serializable = 1 "serializable" true,
        /// Non-monotonic snapshot isolation over regions (Blotter).
        Nmsi = 2 "nmsi" false,
    }
}
option! {
    /// Who coordinates commits.
    CommitMode("commit", served: "client", choices: "client, server") {
        /// The client library, with timestamps (MILANA).
        Client = 1 "client" true,
        /// A server, with locks (DTranx).
        Server = 2 "server" false,
    }
}
option! {
    /// What clients keep between transactions (Kairos §3).
    CacheMode("cache", served: "none", choices: "none, naive, invalidation, lease") {
        /// Nothing.
        None = 1 "none" true,
        /// Values until an abort shows that they are stale.
        Naive = 2 "naive" false,
        /// Values until the server says that they are stale.
        Invalidation = 3 "invalidation" false,
        /// Values under self-invalidating leases (Kairos).
        Lease = 4 "lease" false,
    }
}
option! {
    /// Whether commits wait for the clock's error bound (docs/protocol/transactions.md, "Real
    /// time").
    ExternalMode("external", served: "none, wait", choices: "none, wait") {
        /// Acknowledge at once.
        None = 1 "none" true,
        /// Acknowledge when the clock's error bound has passed the commit timestamp: strictly
        /// serializable.
        Wait = 2 "wait" true,
    }
}

impl StoreKind {
    /// Whether a keyspace is there after a restart. If not, it is empty then.
    #[must_use]
    pub const fn survives_restart(self) -> bool {
        match self {
            Self::Mftl => true,
            Self::Dram => false,
        }
    }
}

/// The byte of the index has the store in its upper bits: zero in what was written before there was
/// a choice.
const STORE_SHIFT: u8 = 4;

/// How a keyspace behaves; fixed when it is created, but for its index: a data directory can be
/// converted between full and frugal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyspaceOptions {
    /// Where versions are kept.
    pub store: StoreKind,
    /// How keys are found.
    pub index: IndexKind,
    /// What concurrent transactions may see of each other.
    pub isolation: Isolation,
    /// Who coordinates commits.
    pub commit: CommitMode,
    /// What clients keep between transactions.
    pub cache: CacheMode,
    /// Whether commits wait for the clock's error bound.
    pub external: ExternalMode,
}

impl KeyspaceOptions {
    /// The options of the keyspace `default`.
    pub const DEFAULT: Self = Self {
        store: StoreKind::Mftl,
        index: IndexKind::Full,
        isolation: Isolation::Serializable,
        commit: CommitMode::Client,
        cache: CacheMode::None,
        external: ExternalMode::None,
    };

    /// Whether this version serves every one of them.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`] naming the first option that it does not serve, and what it
    /// serves instead.
    pub fn check_served(&self) -> Result<(), ClusterError> {
        self.store.check_served()?;
        self.index.check_served()?;
        self.id(0)?;
        self.isolation.check_served()?;
        self.commit.check_served()?;
        self.cache.check_served()?;
        self.external.check_served()
    }

    /// The id of a keyspace with these options.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: an index on flash of a keyspace in memory.
    pub fn id(&self, number: u32) -> Result<KeyspaceId, ClusterError> {
        let id = KeyspaceId::numbered(number, self.store == StoreKind::Dram);
        match (self.index, self.store) {
            (IndexKind::Full, _) => Ok(id),
            (IndexKind::Ordered, _) => Ok(id.ordered()),
            (IndexKind::Frugal, StoreKind::Mftl) => Ok(id.frugal()),
            (IndexKind::Frugal, StoreKind::Dram) => Err(ClusterError::Unsupported {
                option: "index",
                value: self.index.name(),
                served: "full or ordered with store dram",
            }),
        }
    }

    /// Whether a keyspace with this id may have these options. Its id is of the index that it was
    /// created with: that may have been changed between full and frugal since.
    pub(crate) fn fit(&self, id: KeyspaceId) -> bool {
        match (self.store, self.index) {
            (StoreKind::Mftl, IndexKind::Full | IndexKind::Frugal) => {
                !id.is_place() && !id.is_in_memory() && !id.is_ordered()
            }
            _ => self.id(id.number()) == Ok(id),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u8(out, self.index as u8 | (self.store as u8) << STORE_SHIFT);
        put_u8(out, self.isolation as u8);
        put_u8(out, self.commit as u8);
        put_u8(out, self.cache as u8);
        put_u8(out, self.external as u8);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, ClusterError> {
        let byte = cursor.u8()?;
        let index = byte & ((1 << STORE_SHIFT) - 1);
        Ok(Self {
            store: StoreKind::decode(byte >> STORE_SHIFT, cursor)?,
            index: IndexKind::decode(index, cursor)?,
            isolation: Isolation::decode(cursor.u8()?, cursor)?,
            commit: CommitMode::decode(cursor.u8()?, cursor)?,
            cache: CacheMode::decode(cursor.u8()?, cursor)?,
            external: ExternalMode::decode(cursor.u8()?, cursor)?,
        })
    }
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A checked name: 1 to 64 of `a-z`, `0-9`, `-`, `_`, `.`, starting with a letter or a digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyspaceName(String);

impl KeyspaceName {
    /// The name of the keyspace that always exists.
    pub const DEFAULT: &'static str = "default";

    /// Checks a name.
    ///
    /// # Errors
    /// [`ClusterError::BadName`].
    pub fn new(text: &str) -> Result<Self, ClusterError> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let starts = text.bytes().next().is_some_and(letter);
        let rest = text.bytes().all(|byte| letter(byte) || matches!(byte, b'-' | b'_' | b'.'));
        if !starts || !rest || text.len() > MAX_KEYSPACE_NAME_BYTES {
            return Err(ClusterError::BadName { name: text.chars().take(80).collect() });
        }
        Ok(Self(text.to_owned()))
    }

    /// The name of the keyspace that always exists, as a name.
    #[must_use]
    pub fn default_keyspace() -> Self {
        Self(Self::DEFAULT.to_owned())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.0);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, ClusterError> {
        Self::new(cursor.text(MAX_KEYSPACE_NAME_BYTES)?)
    }
}

impl fmt::Display for KeyspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for KeyspaceName {
    type Err = ClusterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

/// One keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyspace {
    /// Its id, part of every stored key; never used again.
    pub id: KeyspaceId,
    /// Its name, unique among those that exist.
    pub name: KeyspaceName,
    /// Its options.
    pub options: KeyspaceOptions,
}

impl Keyspace {
    /// The fewest bytes that one entry takes: id, an empty name, five options.
    pub(crate) const MIN_BYTES: usize = 4 + 2 + 5;

    /// The keyspace that always exists.
    #[must_use]
    pub fn default_keyspace() -> Self {
        Self {
            id: KeyspaceId::DEFAULT,
            name: KeyspaceName::default_keyspace(),
            options: KeyspaceOptions::DEFAULT,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.id.get());
        self.name.encode(out);
        self.options.encode(out);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, ClusterError> {
        let id = KeyspaceId::new(cursor.u32()?);
        let name = KeyspaceName::decode(cursor)?;
        let options = KeyspaceOptions::decode(cursor)?;
        if !options.fit(id) {
            let words = "its id and its options store and index contradict each other";
            return Err(cursor.fail(words));
        }
        Ok(Self { id, name, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["default", "a", "0", "user-data_v1.2", &"x".repeat(64)] {
            assert!(KeyspaceName::new(good).is_ok(), "{good:?} was refused");
        }
        for bad in ["", "-a", ".a", "A", "a b", "a/b", "é", "a\0", &"x".repeat(65)] {
            assert!(KeyspaceName::new(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn options_that_are_not_served_are_refused_by_name() {
        assert_eq!(KeyspaceOptions::DEFAULT.check_served(), Ok(()));
        for index in [IndexKind::Frugal, IndexKind::Ordered] {
            let options = KeyspaceOptions { index, ..KeyspaceOptions::DEFAULT };
            assert_eq!(options.check_served(), Ok(()));
        }
        assert_eq!(
            KeyspaceOptions { external: ExternalMode::Wait, ..KeyspaceOptions::DEFAULT }
                .check_served(),
            Ok(())
        );
        let refused = [
            (
                KeyspaceOptions {
                    index: IndexKind::Frugal,
                    store: StoreKind::Dram,
                    ..KeyspaceOptions::DEFAULT
                },
                "index = frugal",
            ),
            (
                KeyspaceOptions { isolation: Isolation::Nmsi, ..KeyspaceOptions::DEFAULT },
                "isolation = nmsi",
            ),
            (
                KeyspaceOptions { commit: CommitMode::Server, ..KeyspaceOptions::DEFAULT },
                "commit = server",
            ),
            (
                KeyspaceOptions { cache: CacheMode::Lease, ..KeyspaceOptions::DEFAULT },
                "cache = lease",
            ),
        ];
        for (options, expected) in refused {
            let error = options.check_served().expect_err("must be refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn options_read_back_from_their_names_and_numbers() {
        for &kind in IndexKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(IndexKind::from_u8(kind as u8), Some(kind));
        }
        for &kind in StoreKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let options = KeyspaceOptions { store: kind, ..KeyspaceOptions::DEFAULT };
            let (mut bytes, mut old) = (Vec::new(), Vec::new());
            options.encode(&mut bytes);
            assert_eq!(KeyspaceOptions::decode(&mut Cursor::new("options", &bytes)), Ok(options));
            KeyspaceOptions::DEFAULT.encode(&mut old);
            assert_eq!((bytes[0] == old[0], old[0]), (kind == StoreKind::Mftl, 1));
            assert_eq!(bytes[1..], old[1..]);
            let right = options.id(3).unwrap();
            let wrong = [KeyspaceId::numbered(3, kind == StoreKind::Mftl), right.ordered()];
            for (id, is_read) in [(right, true), (wrong[0], false), (wrong[1], false)] {
                let name = KeyspaceName::new("one").unwrap();
                let mut bytes = Vec::new();
                Keyspace { id, name, options }.encode(&mut bytes);
                let decoded = Keyspace::decode(&mut Cursor::new("keyspace", &bytes));
                assert_eq!(decoded.is_ok(), is_read, "{id}");
            }
        }
        for &mode in CacheMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(CacheMode::from_u8(mode as u8), Some(mode));
        }
        let error = "fulll".parse::<IndexKind>().expect_err("not a value").to_string();
        assert!(error.contains("full, frugal, ordered"), "{error}");
    }
}

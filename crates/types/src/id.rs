//! Identities: who, which shard, which keyspace, in which epoch.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name($inner);

        impl $name {
            /// The lowest id; never handed out where ids are handed out.
            pub const ZERO: Self = Self(0);

            /// Wraps a raw number.
            #[must_use]
            pub const fn new(raw: $inner) -> Self {
                Self(raw)
            }

            /// The raw number, for layouts and displays.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// One *incarnation* of one client, handed out durably by the cluster's master and never used
    /// twice.
    ClientId(u32)
}
id! {
    /// Counts the requests and transactions of one client incarnation, from 1.
    Sequence(u64)
}
id! {
    /// One shard: a set of slots, owned by one primary at a time.
    ShardId(u16)
}
id! {
    /// One keyspace; 0 is `default`.
    KeyspaceId(u32)
}
id! {
    /// One configuration of one shard (primary and replicas); only rises.
    Epoch(u32)
}
id! {
    /// One cluster, drawn at random when it is created, so that data and clients of another one are
    /// noticed.
    ClusterId(u64)
}

impl KeyspaceId {
    /// The keyspace that always exists.
    pub const DEFAULT: Self = Self(0);
    /// The bit of an id that says that the keyspace is kept in memory only.
    const IN_MEMORY: u32 = 1 << 31;
    /// The bit of an id that says that its keys are kept in order.
    const ORDERED: u32 = 1 << 30;
    /// The bit of an id that says that its index is on flash.
    const FRUGAL: u32 = 1 << 29;
    /// The bit of an id that says that one data directory has given it out, for itself alone.
    const PLACE: u32 = 1 << 28;
    /// What an id says beside the number.
    const MARKS: u32 = Self::IN_MEMORY | Self::ORDERED | Self::FRUGAL | Self::PLACE;
    /// The highest number of a keyspace.
    pub const MAX_NUMBER: u32 = !Self::MARKS;

    /// The id of the keyspace with this number: of one that is kept in memory only, or on flash.
    ///
    /// # Panics
    /// The number is above [`Self::MAX_NUMBER`].
    #[must_use]
    pub const fn numbered(number: u32, in_memory: bool) -> Self {
        assert!(number <= Self::MAX_NUMBER, "numbers of keyspaces are bounded");
        Self(if in_memory { number | Self::IN_MEMORY } else { number })
    }

    /// The id of a keyspace as this one, with its keys in order.
    ///
    /// # Panics
    /// Its index is on flash: that has no order.
    #[must_use]
    pub const fn ordered(self) -> Self {
        assert!(!self.is_frugal(), "an index on flash has no order");
        Self(self.0 | Self::ORDERED)
    }

    /// The id of a keyspace as this one, with its index on flash.
    ///
    /// # Panics
    /// It is kept in memory only, or its keys are in order.
    #[must_use]
    pub const fn frugal(self) -> Self {
        assert!(!self.is_in_memory() && !self.is_ordered(), "an index on flash is by hashes");
        Self(self.0 | Self::FRUGAL)
    }

    /// The id under which one data directory keeps a keyspace whose index was changed there, with its
    /// index on flash or in memory. No client and no other directory knows it; its number is the
    /// directory's.
    ///
    /// # Panics
    /// The number is above [`Self::MAX_NUMBER`].
    #[must_use]
    pub const fn place(number: u32, is_frugal: bool) -> Self {
        let id = Self(Self::numbered(number, false).0 | Self::PLACE);
        if is_frugal { id.frugal() } else { id }
    }

    /// Whether the id is one [data directory's own](Self::place).
    #[inline]
    #[must_use]
    pub const fn is_place(self) -> bool {
        self.0 & Self::PLACE != 0
    }

    /// Its number: handed out one after the other, wherever the keyspaces are kept.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & !Self::MARKS
    }

    /// Whether its keys are kept in order as well, so that ranges of them can be read. The id says
    /// so, as for [`is_in_memory`](Self::is_in_memory).
    #[inline]
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        self.0 & Self::ORDERED != 0
    }

    /// Whether its index is on flash (SkimpyFTL). The id says so, as for
    /// [`is_in_memory`](Self::is_in_memory).
    #[inline]
    #[must_use]
    pub const fn is_frugal(self) -> bool {
        self.0 & Self::FRUGAL != 0
    }

    /// Whether the keyspace is kept in memory only. The id says so, and not a table: every shard
    /// knows it with the first request, log record or fence that names the keyspace.
    #[inline]
    #[must_use]
    pub const fn is_in_memory(self) -> bool {
        self.0 & Self::IN_MEMORY != 0
    }
}

impl Sequence {
    /// The sequence number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Identifies one transaction for ever. A retry by the application is a new transaction.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The client that began it.
    pub client: ClientId,
    /// Its number among that client's requests.
    pub sequence: Sequence,
}

impl TxnId {
    /// The transaction `sequence` of `client`.
    #[must_use]
    pub const fn new(client: ClientId, sequence: Sequence) -> Self {
        Self { client, sequence }
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.client.get(), self.sequence.get())
    }
}

impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl core::str::FromStr for TxnId {
    type Err = &'static str;

    /// Reads what `Display` wrote: two hexadecimal numbers joined by a dash.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str =
            "a transaction id is two hexadecimal numbers joined by '-', for example 1f-2a";
        let (client, sequence) = text.split_once('-').ok_or(FORM)?;
        let client = u32::from_str_radix(client, 16).map_err(|_| FORM)?;
        let sequence = u64::from_str_radix(sequence, 16).map_err(|_| FORM)?;
        Ok(Self::new(ClientId::new(client), Sequence::new(sequence)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_id_reads_back_as_written() {
        let id = TxnId::new(ClientId::new(0x9f), Sequence::new(0xdead_beef));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("9f".parse::<TxnId>().is_err());
        assert!("9f-zz".parse::<TxnId>().is_err());
    }
}

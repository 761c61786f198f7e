//! One record: a version of a key, a tombstone, a fence, or the head of a large value.
//!
//! ```text
//!   0 crc u32 │ 4 flags u8 │ 5 zero u8 │ 6 key length u16 │ 8 value length u32 │ 12 keyspace u32 │ 16 hash u64
//!   24 timestamp u64 │ 32 client u32 │ [36 expiry u64] │ [hash next u32 │ prior u32] │ key │ value
//! ```
//!
//! Byte 5 and the two pointers are of records in a chain ([`Links`]) alone.
//!
//! The checksum (CRC-32C) covers everything behind itself. A record lies in one page; what does not
//! fit is a *large* record, whose value is a [`super::LargeHead`]. The hash is kept so that
//! recovery files a record where its writer did.

use timestone_flash::PAGE_BYTES;
use timestone_types::{ClientId, Expiry, KeyHash, KeyspaceId, Timestamp, Version, is_planted};

use super::{HEADER_BYTES, SLOT_BYTES, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

const FIXED: usize = 36;
const EXPIRY: usize = 8;
const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 2;
const LARGE: u8 = 4;
const FENCE: u8 = 8;
const LINKED: u8 = 16;
/// Bytes of the pointers of a record in a chain.
pub(crate) const LINK_BYTES: usize = 8;
const LARGE_TOMBSTONE: u8 = LARGE | TOMBSTONE;

/// The longest record: a page with nothing else in it.
pub(crate) const MAX_RECORD_BYTES: usize = PAGE_BYTES - HEADER_BYTES - SLOT_BYTES;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// A key with a value.
    Value,
    /// A key that is absent from this version on. With an expiry: a value that had expired for
    /// every reader.
    Tombstone,
    /// A key with a value that lies in pages of its own.
    Large,
    /// A tombstone whose key lies in pages of its own.
    LargeTombstone,
    /// The keyspace's fence; no key, no value.
    Fence,
}

impl RecordKind {
    /// Whether the key is absent from this version on.
    pub(crate) fn is_tombstone(self) -> bool {
        matches!(self, Self::Tombstone | Self::LargeTombstone)
    }

    /// Whether the record's value is a [`super::LargeHead`].
    pub(crate) fn is_large(self) -> bool {
        matches!(self, Self::Large | Self::LargeTombstone)
    }
}

/// No page: the end of a chain, or no older version.
pub(crate) const NO_PAGE: u32 = u32::MAX;
/// Instead of a page of the prior version: further versions are to be looked for in the chain.
pub(crate) const UNKNOWN_PAGE: u32 = u32::MAX - 1;

/// The place of a record in the chain of its bucket (SkimpyFTL §3.1). A pointer names a page, and
/// in it the last record of the bucket (of the key) before the one that points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Links {
    /// The next record of the chain; [`NO_PAGE`] at its end.
    pub(crate) next: u32,
    /// The next older version of the key; [`NO_PAGE`] or [`UNKNOWN_PAGE`].
    pub(crate) prior: u32,
    /// The prior version is loose: nothing else leads there.
    pub(crate) loose_prior: bool,
    pub(crate) kind: LinkKind,
    /// The logarithm of the number of buckets.
    pub(crate) bits: u8,
}

/// How a record came into its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum LinkKind {
    /// Put, as its key's youngest version.
    Youngest = 0,
    /// Put, and younger versions of its key may lie behind it in the chain.
    Flagged = 1,
    /// A copy that begins a rewritten chain.
    First = 2,
    /// A copy in the middle of one.
    Middle = 3,
    /// A copy with which one is complete.
    Last = 4,
    /// A copy that is a rewritten chain alone.
    Only = 5,
    /// No chain leads there: memory knows where it is, or a prior pointer leads there.
    Loose = 7,
}

/// In a prior pointer: the version there is loose. A store has fewer pages than that.
const LOOSE_PRIOR: u32 = 1 << 30;

impl LinkKind {
    const ALL: [Self; 7] = [
        Self::Youngest,
        Self::Flagged,
        Self::First,
        Self::Middle,
        Self::Last,
        Self::Only,
        Self::Loose,
    ];

    /// Of a copy at a place of a rewritten chain.
    pub(crate) const fn of_copy(number: usize, count: usize) -> Self {
        match (number == 0, number + 1 == count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// Whether no chain leads there.
    pub(crate) const fn is_loose(self) -> bool {
        matches!(self, Self::Loose)
    }

    /// Whether it was put in front of a chain, and not copied.
    pub(crate) const fn is_put(self) -> bool {
        matches!(self, Self::Youngest | Self::Flagged)
    }

    /// Whether a rewritten chain begins with it.
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a rewritten chain is complete with it.
    pub(crate) const fn completes(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

impl Links {
    const fn marks(self) -> u8 {
        self.kind as u8 | self.bits << 3
    }

    /// The prior pointer, with what is said of it.
    const fn marked_prior(self) -> u32 {
        if self.loose_prior { self.prior | LOOSE_PRIOR } else { self.prior }
    }

    fn of(marks: u8, next: u32, prior: u32) -> Option<Self> {
        let kind = LinkKind::ALL.into_iter().find(|&kind| kind as u8 == marks & 7)?;
        let loose_prior = prior < UNKNOWN_PAGE && prior & LOOSE_PRIOR != 0;
        let prior = if loose_prior { prior & !LOOSE_PRIOR } else { prior };
        Some(Self { next, prior, loose_prior, kind, bits: marks >> 3 })
    }
}

/// A record, read in place or about to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) hash: KeyHash,
    pub(crate) version: Version,
    pub(crate) expires_at: Expiry,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Its place in the chain of its bucket, in stores that have chains.
    pub(crate) links: Option<Links>,
}

impl<'a> Record<'a> {
    /// Bytes that a record with such a key and value takes.
    pub(crate) fn bytes_for(key: usize, value: usize, expires: bool) -> usize {
        FIXED + if expires { EXPIRY } else { 0 } + key + value
    }

    /// Whether no chain leads to it.
    pub(crate) fn is_loose(&self) -> bool {
        self.links.is_some_and(|links| links.kind.is_loose())
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_for(self.key.len(), self.value.len(), !self.expires_at.is_never())
            + if self.links.is_some() { LINK_BYTES } else { 0 }
    }

    /// Writes it at the start of `out`, which is at least [`Self::bytes`] long.
    pub(crate) fn write(&self, out: &mut [u8]) {
        let bytes = self.bytes();
        let mut flags = match self.kind {
            RecordKind::Value => 0,
            RecordKind::Tombstone => TOMBSTONE,
            RecordKind::Large => LARGE,
            RecordKind::LargeTombstone => LARGE | TOMBSTONE,
            RecordKind::Fence => FENCE,
        };
        let mut key_at = FIXED;
        if !self.expires_at.is_never() {
            flags |= EXPIRES;
            put_u64(out, FIXED, self.expires_at.timestamp().as_nanos());
            key_at += EXPIRY;
        }
        out[5] = 0;
        if let Some(links) = self.links {
            flags |= LINKED;
            out[5] = links.marks();
            put_u32(out, key_at, links.next);
            put_u32(out, key_at + 4, links.marked_prior());
            key_at += LINK_BYTES;
        }
        out[4] = flags;
        put_u16(out, 6, self.key.len() as u16);
        put_u32(out, 8, self.value.len() as u32);
        put_u32(out, 12, self.keyspace.get());
        put_u64(out, 16, self.hash.0);
        put_u64(out, 24, self.version.timestamp.as_nanos());
        put_u32(out, 32, self.version.client.get());
        let value_at = key_at + self.key.len();
        out[key_at..value_at].copy_from_slice(self.key);
        out[value_at..bytes].copy_from_slice(self.value);
        let crc = crc32c::crc32c(&out[4..bytes]);
        put_u32(out, 0, crc);
    }

    /// The version of the record at the start of `bytes`, without looking at anything else.
    pub(crate) fn peek_version(bytes: &[u8]) -> Option<Version> {
        if bytes.len() < FIXED {
            return None;
        }
        Some(Version::new(
            Timestamp::from_nanos(u64_at(bytes, 24)),
            ClientId::new(u32_at(bytes, 32)),
        ))
    }

    /// Whether the record at the start of `bytes` was put in a chain as earlier versions did (`Skips`, kind 6):
    /// who follows the chain passes over the record before it.
    pub(crate) fn is_of_earlier_chains(bytes: &[u8]) -> bool {
        if bytes.len() < FIXED || bytes[4] & LINKED == 0 || bytes[5] & 7 != 6 {
            return false;
        }
        // A bit that has flipped makes no record an earlier one.
        let expiry = if bytes[4] & EXPIRES == 0 { 0 } else { EXPIRY };
        let (key, value) = (usize::from(u16_at(bytes, 6)), u32_at(bytes, 8) as usize);
        let sealed = bytes.get(4..FIXED + expiry + LINK_BYTES + key + value);
        sealed.is_some_and(|sealed| crc32c::crc32c(sealed) == u32_at(bytes, 0))
    }

    /// Reads the record at the start of `bytes`; `None` when its lengths make no sense. The
    /// checksum is [`Self::read_intact`]'s.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let version = Self::peek_version(bytes)?;
        let flags = bytes[4];
        let kind = match flags & !(EXPIRES | LINKED) {
            0 => RecordKind::Value,
            TOMBSTONE => RecordKind::Tombstone,
            LARGE => RecordKind::Large,
            FENCE => RecordKind::Fence,
            LARGE_TOMBSTONE => RecordKind::LargeTombstone,
            _ => return None,
        };
        let mut key_at = FIXED;
        let mut expires_at = Expiry::NEVER;
        if flags & EXPIRES != 0 {
            if bytes.len() < FIXED + EXPIRY {
                return None;
            }
            expires_at = Expiry::at(Timestamp::from_nanos(u64_at(bytes, FIXED)));
            key_at += EXPIRY;
        }
        let mut links = None;
        if flags & LINKED != 0 {
            if bytes.len() < key_at + LINK_BYTES {
                return None;
            }
            links = Some(Links::of(bytes[5], u32_at(bytes, key_at), u32_at(bytes, key_at + 4))?);
            key_at += LINK_BYTES;
        }
        let value_at = key_at + usize::from(u16_at(bytes, 6));
        let end = value_at.checked_add(u32_at(bytes, 8) as usize)?;
        if end > bytes.len() {
            return None;
        }
        Some(Self {
            kind,
            keyspace: KeyspaceId::new(u32_at(bytes, 12)),
            hash: KeyHash(u64_at(bytes, 16)),
            version,
            expires_at,
            key: &bytes[key_at..value_at],
            value: &bytes[value_at..end],
            links,
        })
    }

    /// Reads the record at the start of `bytes` and verifies its checksum.
    pub(crate) fn read_intact(bytes: &'a [u8]) -> Option<Self> {
        let record = Self::read(bytes)?;
        let mut end =
            Self::bytes_for(record.key.len(), record.value.len(), bytes[4] & EXPIRES != 0);
        end += if record.links.is_some() { LINK_BYTES } else { 0 };
        if is_planted!(UncheckedBytes) {
            return Some(record);
        }
        (crc32c::crc32c(&bytes[4..end]) == u32_at(bytes, 0)).then_some(record)
    }
}

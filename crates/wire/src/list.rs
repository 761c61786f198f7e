//! Lists inside messages: participants, scanned entries, statistics. Checked once when decoded,
//! iterated in place after.

use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{Expiry, ShardId, Timestamp, Version};

use crate::layout::{Codec, Fixed, bounded, checked_codec, entries};
use crate::limits::{
    MAX_FRAME_BYTES, MAX_PARTICIPANTS, MAX_SCAN_ENTRIES, MAX_STATUS_BYTES,
    SCAN_ENTRY_OVERHEAD_BYTES, SCAN_PAGE_BYTES,
};
use crate::reply::{ScanPage, StatusList};
use crate::{Envelope, Message, WireError};

/// A list of shards: from memory when it is to be sent, in place when it was received.
#[derive(Clone, Copy, Debug)]
pub struct Shards<'a>(ShardsIn<'a>);

#[derive(Clone, Copy, Debug)]
enum ShardsIn<'a> {
    Memory(&'a [ShardId]),
    Bytes(&'a [u8]),
}

impl<'a> Shards<'a> {
    /// A list to be sent; at most [`MAX_PARTICIPANTS`].
    #[must_use]
    pub const fn new(shards: &'a [ShardId]) -> Self {
        Self(ShardsIn::Memory(shards))
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            ShardsIn::Memory(shards) => shards.len(),
            ShardsIn::Bytes(bytes) => bytes.len() / 2,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shard at an index.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<ShardId> {
        match self.0 {
            ShardsIn::Memory(shards) => shards.get(index).copied(),
            ShardsIn::Bytes(bytes) => {
                let at = index.checked_mul(2)?;
                let pair = bytes.get(at..)?.first_chunk::<2>()?;
                Some(ShardId::new(u16::from_le_bytes(*pair)))
            }
        }
    }

    /// The shards, in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ShardId> + use<'a> {
        let list = *self;
        (0..list.len()).map(move |index| list.get(index).unwrap_or_default())
    }
}

impl PartialEq for Shards<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Shards<'_> {}

/// [`Shards`] as a variable field: two bytes each.
pub(crate) struct ShardsCodec;

impl<'a> Codec<'a> for ShardsCodec {
    type Value = Shards<'a>;

    #[inline]
    fn length(value: &Self::Value) -> usize {
        value.len() * 2
    }

    #[inline]
    fn append(value: &Self::Value, out: &mut Vec<u8>) {
        match value.0 {
            ShardsIn::Memory(shards) => {
                for shard in shards {
                    out.extend_from_slice(&shard.get().to_le_bytes());
                }
            }
            ShardsIn::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }

    #[inline]
    fn take(bytes: &'a [u8]) -> Result<Self::Value, WireError> {
        bounded("shards of a list", bytes.len() / 2, MAX_PARTICIPANTS)?;
        if !bytes.len().is_multiple_of(2) {
            return Err(WireError::BadField { field: "a list of shards" });
        }
        Ok(Shards(ShardsIn::Bytes(bytes)))
    }
}

/// One key of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanEntry<'a> {
    /// The version that is visible in the snapshot.
    pub version: Version,
    /// When it expires.
    pub expires_at: Expiry,
    /// The key.
    pub key: &'a [u8],
    /// The value; empty when the scan did not ask for values.
    pub value: &'a [u8],
}

/// Version, expiry and two lengths.
const SCAN_ENTRY_HEAD: usize = <Version as Fixed>::BYTES + 8 + 4 + 4;
const _: () = assert!(SCAN_ENTRY_HEAD == SCAN_ENTRY_OVERHEAD_BYTES);

fn split_scan_entry(bytes: &[u8]) -> Result<(ScanEntry<'_>, &[u8]), WireError> {
    const FIELD: WireError = WireError::BadField { field: "an entry of a scan" };
    let (head, rest) = bytes.split_at_checked(SCAN_ENTRY_HEAD).ok_or(FIELD)?;
    let (key_bytes, value_bytes) =
        (u32::load(&head[20..24])? as usize, u32::load(&head[24..28])? as usize);
    bounded("a key's bytes", key_bytes, MAX_KEY_BYTES)?;
    bounded("a value's bytes", value_bytes, MAX_VALUE_BYTES)?;
    let (key, rest) = rest.split_at_checked(key_bytes).ok_or(FIELD)?;
    let (value, rest) = rest.split_at_checked(value_bytes).ok_or(FIELD)?;
    let version = Version::load(&head[0..12])?;
    let expires_at = Expiry::at(Timestamp::load(&head[12..20])?);
    Ok((ScanEntry { version, expires_at, key, value }, rest))
}

impl ScanEntry<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        let mut head = [0u8; SCAN_ENTRY_HEAD];
        self.version.store(&mut head[0..12]);
        self.expires_at.store(&mut head[12..20]);
        (self.key.len() as u32).store(&mut head[20..24]);
        (self.value.len() as u32).store(&mut head[24..28]);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }
}

entries! {
    /// The entries of a page, in the order of the scan. The iterator is the list: copy it to iterate
    /// again.
    ScanEntries, ScanEntry, split_scan_entry
}

impl<'a> ScanEntries<'a> {
    /// No entries.
    pub const EMPTY: Self = Self { count: 0, bytes: &[] };

    fn check(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = bytes;
        let mut count = 0u32;
        while !rest.is_empty() {
            (_, rest) = split_scan_entry(rest)?;
            count += 1;
            bounded("entries of a scan", count as usize, MAX_SCAN_ENTRIES as usize)?;
        }
        Ok(Self { count, bytes })
    }
}

checked_codec! {
    /// [`ScanEntries`] as a variable field.
    ScanCodec, ScanEntries, check
}

/// Writes a [`ScanPage`] entry by entry, straight into the outgoing bytes. Dropped without
/// [`ScanPageWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct ScanPageWriter<'v> {
    frame: OpenFrame<'v>,
    count: u32,
}

impl<'v> ScanPageWriter<'v> {
    /// Opens a frame at the end of `out`.
    pub fn begin(envelope: &Envelope, out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        ScanPage { next: 0, done: false, entries: ScanEntries::EMPTY }.encode(envelope, out);
        Self { frame: OpenFrame::new(out, start, ScanPage::FIXED_BYTES), count: 0 }
    }

    /// Appends an entry; `false`, and nothing appended, when the page is full: then finish with a
    /// cursor at this entry.
    #[must_use]
    pub fn push(&mut self, entry: &ScanEntry<'_>) -> bool {
        self.frame.push_scan_entry(entry, &mut self.count)
    }

    /// How many entries the page has so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Closes the frame.
    pub fn finish(mut self, next: u64, done: bool) {
        let body = self.frame.fixed_mut();
        next.store(&mut body[0..8]);
        done.store(&mut body[8..9]);
        self.frame.close();
    }
}

/// Names and values of statistics, in the order they were written. The iterator is the list: copy
/// it to iterate again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusEntries<'a> {
    bytes: &'a [u8],
}

fn split_status_entry(bytes: &[u8]) -> Result<((&str, &str), &[u8]), WireError> {
    const FIELD: WireError = WireError::BadField { field: "an entry of a status list" };
    let (lengths, rest) = bytes.split_first_chunk::<4>().ok_or(FIELD)?;
    let name_bytes = usize::from(u16::load(&lengths[0..2])?);
    let value_bytes = usize::from(u16::load(&lengths[2..4])?);
    let (name, rest) = rest.split_at_checked(name_bytes).ok_or(FIELD)?;
    let (value, rest) = rest.split_at_checked(value_bytes).ok_or(FIELD)?;
    let name = core::str::from_utf8(name).map_err(|_| FIELD)?;
    let value = core::str::from_utf8(value).map_err(|_| FIELD)?;
    Ok(((name, value), rest))
}

impl<'a> Iterator for StatusEntries<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        // The bytes were checked when they came in: this fails at their end only.
        let (entry, rest) = split_status_entry(self.bytes).ok()?;
        self.bytes = rest;
        Some(entry)
    }
}

impl<'a> StatusEntries<'a> {
    fn check(bytes: &'a [u8]) -> Result<Self, WireError> {
        bounded("bytes of a status list", bytes.len(), MAX_STATUS_BYTES)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = split_status_entry(rest)?;
        }
        Ok(Self { bytes })
    }
}

checked_codec! {
    /// [`StatusEntries`] as a variable field.
    StatusCodec, StatusEntries, check
}

/// Writes a [`StatusList`] entry by entry. Dropped without [`StatusListWriter::finish`], it leaves
/// nothing behind.
#[derive(Debug)]
pub struct StatusListWriter<'v> {
    frame: OpenFrame<'v>,
}

impl<'v> StatusListWriter<'v> {
    /// Opens a frame at the end of `out`.
    pub fn begin(envelope: &Envelope, out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        StatusList { entries: StatusEntries { bytes: &[] } }.encode(envelope, out);
        Self { frame: OpenFrame::new(out, start, StatusList::FIXED_BYTES) }
    }

    /// Appends an entry; `false`, and nothing appended, when the list is full or one of the texts
    /// longer than 64 KiB.
    #[must_use]
    pub fn push(&mut self, name: &str, value: &str) -> bool {
        let (Ok(name_bytes), Ok(value_bytes)) =
            (u16::try_from(name.len()), u16::try_from(value.len()))
        else {
            return false;
        };
        if self.frame.tail_bytes() + 4 + name.len() + value.len() > MAX_STATUS_BYTES {
            return false;
        }
        let out = self.frame.out();
        out.extend_from_slice(&name_bytes.to_le_bytes());
        out.extend_from_slice(&value_bytes.to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value.as_bytes());
        true
    }

    /// Closes the frame.
    pub fn finish(self) {
        self.frame.close();
    }
}

/// A frame whose last variable field is being written at the end of `out`. Closing it fills in the
/// two lengths; dropping it takes it back.
#[derive(Debug)]
pub(crate) struct OpenFrame<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    fixed_end: usize,
    tail: usize,
    open: bool,
}

impl<'v> OpenFrame<'v> {
    /// The frame was just encoded from `start` on with a last field that may hold a beginning
    /// already.
    pub(crate) fn with_tail(
        out: &'v mut Vec<u8>,
        start: usize,
        fixed_bytes: usize,
        tail: usize,
    ) -> Self {
        Self { start, fixed_end: start + fixed_bytes, tail, open: true, out }
    }

    fn new(out: &'v mut Vec<u8>, start: usize, fixed_bytes: usize) -> Self {
        let tail = out.len();
        Self::with_tail(out, start, fixed_bytes, tail)
    }

    #[inline]
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Appends an entry to a page of a scan that has so many; `false`, and nothing appended, when the
    /// page is full.
    pub(crate) fn push_scan_entry(&mut self, entry: &ScanEntry<'_>, count: &mut u32) -> bool {
        let bytes = SCAN_ENTRY_HEAD + entry.key.len() + entry.value.len();
        let full = *count == MAX_SCAN_ENTRIES || self.tail_bytes() + bytes > SCAN_PAGE_BYTES;
        if full && *count > 0 {
            return false;
        }
        entry.append(self.out);
        *count += 1;
        true
    }

    /// How long the last variable field is so far.
    #[inline]
    pub(crate) fn tail_bytes(&self) -> usize {
        self.out.len() - self.tail
    }

    /// The last variable field's bytes so far.
    #[inline]
    pub(crate) fn tail_mut(&mut self) -> &mut [u8] {
        &mut self.out[self.tail..]
    }

    /// The fixed fields, without the header.
    fn fixed_mut(&mut self) -> &mut [u8] {
        &mut self.out[self.start + crate::HEADER_BYTES..self.fixed_end]
    }

    #[inline]
    pub(crate) fn close(mut self) {
        let length = self.out.len() - self.start;
        let tail = self.tail_bytes() as u32;
        assert!(
            length <= MAX_FRAME_BYTES,
            "what a frame carries is checked against the limits before it is encoded"
        );
        (length as u32).store(&mut self.out[self.start..self.start + 4]);
        tail.store(&mut self.out[self.fixed_end - 4..self.fixed_end]);
        self.open = false;
    }
}

impl Drop for OpenFrame<'_> {
    fn drop(&mut self) {
        if self.open {
            self.out.truncate(self.start);
        }
    }
}

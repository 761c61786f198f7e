//! What a store reports when it is pumped.

use super::found::{KeyList, Latest, RangeList, ReadOutcome, ReadToken, ScanCursor};
#[allow(unused_imports, reason = "for the documentation")]
use super::upkeep::Upkeep;
use crate::error::StoreError;

/// What a walk over all records found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Pages that were read.
    pub pages: u64,
    /// Records whose checksum was verified.
    pub records: u64,
    /// Pages whose header does not check out.
    pub corrupt_pages: u64,
    /// Records whose checksum does not check out.
    pub corrupt_records: u64,
}

/// Something that [`Upkeep::pump`] reports.
#[derive(Debug)]
pub enum StoreEvent {
    /// A pending get is answered.
    ReadDone {
        /// The token of the get.
        token: ReadToken,
        /// Its answer.
        outcome: ReadOutcome,
    },
    /// A pending look-up of a youngest version is answered.
    LatestDone {
        /// The token of the look-up.
        token: ReadToken,
        /// The youngest version, as of some moment between the look-up and this event.
        found: Result<Latest, StoreError>,
    },
    /// A scan is answered.
    ScanDone {
        /// The token of the scan.
        token: ReadToken,
        /// The keys visible at its time, in the order of the scan, within the limit.
        keys: KeyList,
        /// Where to go on: no key before it is missing. `None` at the end.
        next: Option<ScanCursor>,
    },
    /// A read of a range is answered.
    RangeDone {
        /// The token of the read.
        token: ReadToken,
        /// The keys of the range that are visible at its time, in its direction, within the limit.
        entries: RangeList,
        /// The first key that was not looked at, or a string before it: the read goes on from there;
        /// downwards it goes on before this one. `None` at the end, and there alone.
        next: Option<Vec<u8>>,
    },
    /// A scan, a read of a range or a count could not be completed.
    ReadFailed {
        /// The token of the scan, read or count.
        token: ReadToken,
        /// Why.
        error: StoreError,
    },
    /// A count is answered.
    CountDone {
        /// The token of the count.
        token: ReadToken,
        /// The exact number of visible keys.
        keys: u64,
    },
    /// A scrub has walked all records.
    ScrubDone(ScrubReport),
    /// A checkpoint has become durable.
    CheckpointDone,
    /// The device failed; the store takes no more writes. Reads go on as far as they can.
    DeviceFailed(StoreError),
    /// Everything is durable, a checkpoint included where the device has room for one: the store
    /// may be dropped.
    ShutDown,
}

impl StoreEvent {
    /// Whether it is for whoever has asked a question, and not for the owner of the store.
    pub(crate) const fn answers_a_read(&self) -> bool {
        match self {
            Self::ReadDone { .. }
            | Self::LatestDone { .. }
            | Self::ScanDone { .. }
            | Self::RangeDone { .. }
            | Self::ReadFailed { .. }
            | Self::CountDone { .. } => true,
            Self::ScrubDone(_) | Self::CheckpointDone | Self::DeviceFailed(_) | Self::ShutDown => {
                false
            }
        }
    }
}

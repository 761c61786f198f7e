//! Frames: the 24-byte header, splitting a run of bytes into frames, and the numbers of the kinds.
//!
//! ```text
//!   offset 0   4   length of the whole frame, header included
//!          4   1   kind
//!          5   1   flags, 0 in this version
//!          6   2   shard                     0 where the message is for the server
//!          8   4   epoch of the shard        as the sender knows it
//!         12   8   request                   chosen by the asker, echoed by every reply
//!         20   4   version of the shard map  that the sender has
//! ```

use core::fmt;

use timestone_cluster::MapVersion;
use timestone_types::{Epoch, ShardId};

use crate::WireError;
use crate::layout::{Fixed, fixed_newtype};
use crate::limits::MAX_FRAME_BYTES;

/// In place of a shard's number: the server as a whole says this, not one of its shards. No shard
/// has it.
pub const SERVER_ITSELF: ShardId = ShardId::new(u16::MAX);

/// Size of a frame's header.
pub const HEADER_BYTES: usize = 24;

/// Correlates a reply with its request; unique among the open requests of one connection. 0 where
/// no reply is expected.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(u64);

impl RequestId {
    /// No reply is expected.
    pub const NONE: Self = Self(0);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fixed_newtype! {
    RequestId: u64, RequestId::new, RequestId::get;
}

/// The part of a header that its sender chooses.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The shard that is asked, or that answers.
    pub shard: ShardId,
    /// The shard's epoch as the sender knows it.
    pub epoch: Epoch,
    /// Correlates reply and request.
    pub request: RequestId,
    /// The version of the map that the sender has.
    pub map_version: MapVersion,
}

impl Envelope {
    /// Writes a header at the front of `to`, which is at least [`HEADER_BYTES`] long.
    #[inline]
    pub(crate) fn store(&self, kind: Kind, length: usize, to: &mut [u8]) {
        assert!(
            length <= MAX_FRAME_BYTES,
            "what a frame carries is checked against the limits before it is encoded"
        );
        (length as u32).store(&mut to[0..4]);
        to[4] = kind as u8;
        to[5] = 0;
        self.shard.store(&mut to[6..8]);
        self.epoch.store(&mut to[8..12]);
        self.request.store(&mut to[12..20]);
        self.map_version.store(&mut to[20..24]);
    }
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the whole frame, in bytes.
    pub length: u32,
    /// What the body is.
    pub kind: Kind,
    /// What the sender chose.
    pub envelope: Envelope,
}

/// One whole frame, borrowed from a receive buffer or batch of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    header: Header,
    bytes: &'a [u8],
}

/// How long the frame at the front of `bytes` is: `None` while fewer than 4 bytes are there. For
/// whoever cuts a byte stream.
///
/// # Errors
/// [`WireError::FrameLength`] when no frame has that length.
#[inline]
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head);
    if (length as usize) < HEADER_BYTES || length as usize > MAX_FRAME_BYTES {
        return Err(WireError::FrameLength {
            length,
            least: HEADER_BYTES as u32,
            most: MAX_FRAME_BYTES as u32,
        });
    }
    Ok(Some(length as usize))
}

/// How many whole frames stand one after another at the front of `bytes`, by their lengths alone.
/// For whoever counts what is handed to a stage.
#[inline]
#[must_use]
pub fn count_frames(mut bytes: &[u8]) -> u32 {
    let mut frames = 0;
    while let Ok(Some(length)) = frame_length(bytes)
        && let Some(rest) = bytes.get(length..)
    {
        bytes = rest;
        frames += 1;
    }
    frames
}

/// Rewrites what the header of a whole frame says of its sender's knowledge: the shard's epoch and
/// the version of the map. For whoever keeps a frame that is asked again after a newer map.
pub fn restamp(frame: &mut [u8], epoch: Epoch, map_version: MapVersion) {
    assert!(frame.len() >= HEADER_BYTES, "a frame has a header");
    epoch.store(&mut frame[8..12]);
    map_version.store(&mut frame[20..24]);
}

/// Whether two whole frames ask for the same under one number: whatever their sender knew of the
/// shard's epoch and the map.
#[must_use]
pub fn is_same_request(one: &[u8], other: &[u8]) -> bool {
    let (Some((header, asked)), Some((other_header, other_asked))) =
        (one.split_first_chunk::<HEADER_BYTES>(), other.split_first_chunk::<HEADER_BYTES>())
    else {
        return false;
    };
    header[..8] == other_header[..8]
        && header[12..20] == other_header[12..20]
        && asked == other_asked
}

/// A batch of replies behind the reading of the clock at its front, if there is one.
#[must_use]
pub fn without_clock(batch: &[u8]) -> &[u8] {
    match Frame::split(batch) {
        Ok(Some((frame, rest))) if frame.kind() == Kind::ClockIs => rest,
        _ => batch,
    }
}

impl<'a> Frame<'a> {
    /// Takes the first frame off `bytes`: the frame and what follows it; `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// [`WireError::FrameLength`], [`WireError::UnknownKind`], or flags that this version does not
    /// know.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, WireError> {
        let Some(length) = frame_length(bytes)? else { return Ok(None) };
        let Some((own, rest)) = bytes.split_at_checked(length) else { return Ok(None) };
        let head = &own[..HEADER_BYTES];
        let kind = Kind::from_u8(head[4]).ok_or(WireError::UnknownKind(head[4]))?;
        if head[5] != 0 {
            return Err(WireError::BadField { field: "a frame's flags" });
        }
        let envelope = Envelope {
            shard: Fixed::load(&head[6..8])?,
            epoch: Fixed::load(&head[8..12])?,
            request: Fixed::load(&head[12..20])?,
            map_version: Fixed::load(&head[20..24])?,
        };
        Ok(Some((
            Self { header: Header { length: length as u32, kind, envelope }, bytes: own },
            rest,
        )))
    }

    /// Takes `bytes` as exactly one frame.
    ///
    /// # Errors
    /// As [`Frame::split`]; [`WireError::Truncated`] or [`WireError::Trailing`] when it is not
    /// exactly one.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        match Self::split(bytes)? {
            Some((frame, [])) => Ok(frame),
            Some((frame, _)) => Err(WireError::Trailing { kind: frame.kind() as u8 }),
            None => Err(WireError::Truncated { kind: bytes.get(4).copied().unwrap_or(0) }),
        }
    }

    /// The whole header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What the body is.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.header.kind
    }

    /// What the sender chose.
    #[must_use]
    #[inline]
    pub const fn envelope(&self) -> &Envelope {
        &self.header.envelope
    }

    /// The envelope of a reply to this frame: same shard and request, with the replier's epoch and
    /// map.
    #[must_use]
    #[inline]
    pub const fn reply_envelope(&self, epoch: Epoch, map_version: MapVersion) -> Envelope {
        Envelope {
            shard: self.header.envelope.shard,
            epoch,
            request: self.header.envelope.request,
            map_version,
        }
    }

    /// The whole frame's bytes, header included.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The frames of a batch of frames, or of a receive buffer, in order.
///
/// Ends at the first incomplete frame ([`Frames::rest`] holds its beginning) and after the first
/// error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Frames<'a> {
    /// Over a run of frames.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, failed: false }
    }

    /// What was not consumed yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match Frame::split(self.rest) {
            Ok(Some((frame, rest))) => {
                self.rest = rest;
                Some(Ok(frame))
            }
            Ok(None) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// A field of a message, for documentation and for whoever takes frames apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its size; `None` when it is variable: then a `u32` with its length stands at the end of the
    /// fixed part.
    pub bytes: Option<usize>,
}

/// One kind of message: how it is written into a frame and read from it.
pub trait Message<'a>: Sized {
    /// The kind that its frames have.
    const KIND: Kind;
    /// Its fields, in the order of their bytes.
    const FIELDS: &'static [Field];

    /// Appends one whole frame to `out`; allocates only what `out` needs to grow.
    fn encode(&self, envelope: &Envelope, out: &mut Vec<u8>);

    /// Reads the message, borrowing from the frame.
    ///
    /// # Errors
    /// Why the frame is not such a message.
    fn decode(frame: &Frame<'a>) -> Result<Self, WireError>;
}

/// Declares the kinds with their numbers, and what is checked for each.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// What a frame is. Requests are below 128, replies from 128.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)+
        }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The kind with this number.
            #[must_use]
            #[inline]
            pub const fn from_u8(raw: u8) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The kind's name, for logs and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// The fields of its body, in the order of their bytes.
            #[must_use]
            pub const fn fields(self) -> &'static [Field] {
                match self {
                    $(Self::$name => <crate::$name as Message<'static>>::FIELDS,)+
                }
            }

            /// Whether frames of this kind answer requests.
            #[must_use]
            pub const fn is_reply(self) -> bool {
                self as u8 >= 128
            }
        }

        /// Decodes a frame by its kind and drops the result: for checkers.
        ///
        /// # Errors
        /// Why the frame is not a message.
        pub fn check(frame: &Frame<'_>) -> Result<(), WireError> {
            match frame.kind() {
                $(Kind::$name => <crate::$name as Message<'_>>::decode(frame).map(drop),)+
            }
        }

        /// Decodes a frame by its kind and appends the message again, under the same envelope: the
        /// same bytes, as fuzzing and tests check.
        ///
        /// # Errors
        /// Why the frame is not a message.
        pub fn recode(frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
            match frame.kind() {
                $(Kind::$name => <crate::$name as Message<'_>>::decode(frame)?.encode(frame.envelope(), out),)+
            }
            Ok(())
        }
    };
}

kinds! {
    /// [`crate::Hello`].
    Hello = 1,
    /// [`crate::Get`].
    Get = 2,
    /// [`crate::Prepare`].
    Prepare = 3,
    /// [`crate::Write`].
    Write = 4,
    /// [`crate::Decide`].
    Decide = 5,
    /// [`crate::Status`].
    Status = 6,
    /// [`crate::Terminate`].
    Terminate = 7,
    /// [`crate::Freeze`].
    Freeze = 8,
    /// [`crate::FetchWriteSet`].
    FetchWriteSet = 9,
    /// [`crate::Forget`].
    Forget = 10,
    /// [`crate::Report`].
    Report = 11,
    /// [`crate::Scan`].
    Scan = 12,
    /// [`crate::Count`].
    Count = 13,
    /// [`crate::ShardStats`].
    ShardStats = 14,
    /// [`crate::NodeStatus`].
    NodeStatus = 15,
    /// [`crate::MapPull`].
    MapPull = 16,
    /// [`crate::MapPush`].
    MapPush = 17,
    /// [`crate::MasterAsk`].
    MasterAsk = 18,
    /// [`crate::Ping`].
    Ping = 19,
    /// [`crate::Newest`].
    Newest = 20,
    /// [`crate::Scrub`].
    Scrub = 21,
    /// [`crate::ReplicaAsk`].
    ReplicaAsk = 22,
    /// [`crate::Heartbeat`].
    Heartbeat = 23,
    /// [`crate::CheckpointAsk`].
    CheckpointAsk = 24,
    /// [`crate::ClosedAsk`].
    ClosedAsk = 25,
    /// [`crate::GetAtBackup`].
    GetAtBackup = 26,
    /// [`crate::Range`].
    Range = 27,
    /// [`crate::PrepareRanges`].
    PrepareRanges = 28,
    /// [`crate::RangeDown`].
    RangeDown = 29,
    /// [`crate::Welcome`].
    Welcome = 128,
    /// [`crate::Value`].
    Value = 129,
    /// [`crate::Vote`].
    Vote = 130,
    /// [`crate::Written`].
    Written = 131,
    /// [`crate::DecideAck`].
    DecideAck = 132,
    /// [`crate::StatusIs`].
    StatusIs = 133,
    /// [`crate::FreezeAnswer`].
    FreezeAnswer = 134,
    /// [`crate::WriteSet`].
    WriteSet = 135,
    /// [`crate::ScanPage`].
    ScanPage = 136,
    /// [`crate::Counted`].
    Counted = 137,
    /// [`crate::StatusList`].
    StatusList = 138,
    /// [`crate::MapIs`].
    MapIs = 139,
    /// [`crate::MasterReply`].
    MasterReply = 140,
    /// [`crate::Done`].
    Done = 141,
    /// [`crate::ErrorReply`].
    ErrorReply = 142,
    /// [`crate::NewestIs`].
    NewestIs = 143,
    /// [`crate::ClockIs`].
    ClockIs = 144,
    /// [`crate::Scrubbed`].
    Scrubbed = 145,
    /// [`crate::ReplicaAnswer`].
    ReplicaAnswer = 146,
    /// [`crate::HeartbeatAck`].
    HeartbeatAck = 147,
    /// [`crate::CheckpointPart`].
    CheckpointPart = 148,
    /// [`crate::ClosedIs`].
    ClosedIs = 149,
    /// [`crate::RangePage`].
    RangePage = 150,
    /// [`crate::WatermarkIs`].
    WatermarkIs = 151,
}

//! Bytes between processes: frames, every message of the native protocol, and the RESP codec.
//!
//! ```text
//!   session ─ Get, Prepare, … ─ encode ─► batch of frames ─► Frames ─► Frame ─ decode ─► shard
//!   session ◄─ Value, Vote, … ─ decode ◄─ batch of frames ◄────────── encode ◄────────── shard
//!   redis client ─ bytes ─► resp::CommandParser ─► gateway ─► resp::ReplyWriter ─ bytes ─► redis client
//! ```
//! A frame is a 24-byte header and a body: fixed fields, the lengths of the variable fields, the
//! variable fields; little-endian and packed throughout (docs/formats/wire.md). Decoding borrows
//! from the received bytes; encoding appends to the caller's `Vec<u8>` and allocates nothing else.
//! A frame is decoded by its kind: `match frame.kind() { Kind::Get => Get::decode(&frame)? … }`.
//!
//! Invariants:
//! - decoding never panics, whatever the bytes; every length is checked against the frame and the
//!   limits;
//! - decoding allocates nothing but the lists of replicas' messages, of at most 64 KiB each;
//! - a message that decodes encodes to the same bytes again;
//! - numbers of kinds, codes and enums are never given a second meaning.
//!
//! What a client asks of a shard in its own process has no bytes: `calls.rs`.
//!
//! What is deliberately absent: sockets, buffers' lifetimes, retries, and what a message *does*.

mod calls;
mod code;
mod error;
mod frame;
mod hello;
mod layout;
pub mod limits;
mod list;
mod prepare;
mod range;
mod replica;
mod reply;
mod request;
pub mod resp;
pub mod strangers;
mod value;

pub use calls::{AskedCalls, Call, CallAnswer, CallAnswers, CallAt, Calls};
pub use code::ErrorCode;
pub use error::WireError;
pub use frame::{
    Envelope, Field, Frame, Frames, HEADER_BYTES, Header, Kind, Message, RequestId, SERVER_ITSELF,
    check, count_frames, frame_length, is_same_request, recode, restamp, without_clock,
};
pub use hello::{
    Hello, Limits, PLACES_PUTS, PROTOCOL, ProtocolVersion, READS_AT_BACKUPS, READS_DOWNWARDS,
    READS_RANGES, Role, Welcome,
};
pub use list::{ScanEntries, ScanEntry, ScanPageWriter, Shards, StatusEntries, StatusListWriter};
pub use prepare::{
    PrepareBody, PrepareHead, PrepareWriter, ReadEntries, ReadEntry, WriteEntries, WriteEntry,
};
pub use range::{
    PrepareRanges, Range, RangeDown, RangeEntries, RangeEntry, RangeListWriter, RangePage,
    RangePageWriter,
};
pub use replica::{
    BatchBytes, ReplicaAnswer, ReplicaAsk, decode_replica_message, encode_replica_message,
};
pub use reply::{
    CheckpointPart, ClockIs, ClosedIs, Counted, DecideAck, Done, ErrorReply, FreezeAnswer,
    HeartbeatAck, MapIs, MasterReply, NewestIs, ScanPage, Scrubbed, StatusIs, StatusList, Value,
    Vote, WatermarkIs, WriteSet, Written,
};
pub use request::{
    CheckpointAsk, ClosedAsk, Count, Decide, FetchWriteSet, Forget, Freeze, Get, GetAtBackup,
    Heartbeat, MapPull, MapPush, MasterAsk, Newest, NodeStatus, Ping, Prepare, Report, Scan, Scrub,
    ShardStats, Status, Terminate, Write,
};
pub use value::{Condition, ReadAt, TxnState, Verdict, WriteAction, WriteKind};

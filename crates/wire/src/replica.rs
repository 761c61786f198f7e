//! What the replicas of a shard tell each other, in frames.
//!
//! ```text
//!   from 4 │ length 4 │ tag 1 · the message's fields · its lists, each behind the number of its entries
//! ```
//! A message asks or answers, and its frame has the kind that says so. [`encode_replica_message`]
//! writes one from the memory of a replica, [`decode_replica_message`] reads one into it. What a
//! message may say is checked by the replica that gets it; here its lengths are, and that its lists
//! are lists of their kind.

use timestone_replication::limits::{MAX_LINEAGE, MAX_RUNS_TOLD};
use timestone_replication::{
    Batch, JoinAnswer, Lineage, Message as ReplicaMessage, NumberSet, ReplicaId,
};
use timestone_wal::{BatchNumber, RecordNumber};

use crate::layout::{Fixed, bounded, fixed_newtype};
use crate::limits::MAX_BATCH_BYTES;
use crate::value::numbered;
use crate::{Envelope, Field, Frame, HEADER_BYTES, Kind, Message, WireError};

/// The records of a batch, as they travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchBytes<'a> {
    /// The number of the first of them among the shard's records.
    pub first: RecordNumber,
    /// The records, as the log has them; at most [`MAX_BATCH_BYTES`].
    pub records: &'a [u8],
}

const fn raw_replica(id: ReplicaId) -> u32 {
    id.0
}

fixed_newtype! {
    ReplicaId: u32, ReplicaId, raw_replica;
    BatchNumber: u64, BatchNumber::new, BatchNumber::get;
    RecordNumber: u64, RecordNumber::new, RecordNumber::get;
}

numbered! {
    /// Which message it is.
    Tag("the tag of a replica's message") {
        /// `Message::Join`.
        Join = 1,
        /// `Message::Joined`.
        Joined = 2,
        /// `Message::Fetch`.
        Fetch = 3,
        /// `Message::Fetched`.
        Fetched = 4,
        /// `Message::Install`.
        Install = 5,
        /// `Message::Append`.
        Append = 6,
        /// `Message::Probe`.
        Probe = 7,
        /// `Message::Acked`.
        Acked = 8,
        /// `Message::Refused`.
        Refused = 9,
        /// `Message::NeedsCheckpoint`.
        NeedsCheckpoint = 10,
    }
}

impl Tag {
    const fn of<B>(message: &ReplicaMessage<B>) -> Self {
        match message {
            ReplicaMessage::Join { .. } => Self::Join,
            ReplicaMessage::Joined { .. } => Self::Joined,
            ReplicaMessage::Fetch { .. } => Self::Fetch,
            ReplicaMessage::Fetched { .. } => Self::Fetched,
            ReplicaMessage::Install { .. } => Self::Install,
            ReplicaMessage::Append { .. } => Self::Append,
            ReplicaMessage::Probe { .. } => Self::Probe,
            ReplicaMessage::Acked { .. } => Self::Acked,
            ReplicaMessage::Refused { .. } => Self::Refused,
            ReplicaMessage::NeedsCheckpoint { .. } => Self::NeedsCheckpoint,
        }
    }

    /// The kind of the frames that carry such a message.
    const fn kind(self) -> Kind {
        match self {
            Self::Join
            | Self::Fetch
            | Self::Install
            | Self::Append
            | Self::Probe
            | Self::NeedsCheckpoint => Kind::ReplicaAsk,
            Self::Joined | Self::Fetched | Self::Acked | Self::Refused => Kind::ReplicaAnswer,
        }
    }
}

/// Bytes before the message: header, sender, length.
const FIXED_BYTES: usize = HEADER_BYTES + <ReplicaId as Fixed>::BYTES + 4;

/// Appends one frame with a message of the replica `from` to `out`: a [`Kind::ReplicaAsk`] or a
/// [`Kind::ReplicaAnswer`], as the message is. `batch` gives the records of a batch.
///
/// Of the runs of a fetch the first [`MAX_RUNS_TOLD`] are told: who asks asks again for what did not
/// come.
///
/// # Panics
/// When a set, a lineage or a batch is above its bound: a replica keeps them.
pub fn encode_replica_message<B>(
    envelope: &Envelope,
    from: ReplicaId,
    message: &ReplicaMessage<B>,
    batch: impl Fn(&B) -> BatchBytes<'_>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + FIXED_BYTES, 0);
    let tag = Tag::of(message);
    put(out, &tag);
    put_fields(message, batch, out);
    let frame = &mut out[start..];
    let length = frame.len();
    envelope.store(tag.kind(), length, frame);
    from.store(&mut frame[HEADER_BYTES..HEADER_BYTES + 4]);
    ((length - FIXED_BYTES) as u32).store(&mut frame[HEADER_BYTES + 4..FIXED_BYTES]);
}

/// Reads a message of a replica, and who says so. `own` makes of the records of a batch what the
/// caller keeps; it is called for a frame that is a message only.
///
/// # Errors
/// Why the frame is none.
pub fn decode_replica_message<'a, B>(
    frame: &Frame<'a>,
    own: impl Fn(BatchBytes<'a>) -> B,
) -> Result<(ReplicaId, ReplicaMessage<B>), WireError> {
    let kind = frame.kind();
    if !matches!(kind, Kind::ReplicaAsk | Kind::ReplicaAnswer) {
        let expected = Kind::ReplicaAsk as u8;
        return Err(WireError::WrongKind { expected, found: kind as u8 });
    }
    let mut fields = Fields { rest: &frame.bytes()[HEADER_BYTES..], kind };
    let (from, length) = (fields.take()?, fields.take::<u32>()?);
    if fields.rest.len() < length as usize {
        return Err(WireError::Truncated { kind: kind as u8 });
    }
    if fields.rest.len() > length as usize {
        return Err(fields.trailing());
    }
    let tag: Tag = fields.take()?;
    if tag.kind() != kind {
        return Err(WireError::BadField { field: "the tag of a replica's message" });
    }
    let message = fields.message(tag, own)?;
    fields.end()?;
    Ok((from, message))
}

fn put<T: Fixed>(out: &mut Vec<u8>, field: &T) {
    let at = out.len();
    out.resize(at + T::BYTES, 0);
    field.store(&mut out[at..]);
}

fn put_fields<B>(
    message: &ReplicaMessage<B>,
    batch_bytes: impl Fn(&B) -> BatchBytes<'_>,
    out: &mut Vec<u8>,
) {
    put(out, &message.epoch());
    match message {
        ReplicaMessage::Join { .. } | ReplicaMessage::Refused { .. } => {}
        ReplicaMessage::Joined { answer, .. } => {
            put(out, &answer.lease);
            put(out, &answer.held_above);
            put(out, &answer.void_since.is_some());
            if let Some(since) = &answer.void_since {
                put(out, since);
            }
            put_lineage(&answer.lineage, out);
            put_set(&answer.has, out);
        }
        ReplicaMessage::Fetch { runs, .. } => {
            put_runs(&runs[..runs.len().min(MAX_RUNS_TOLD)], out);
        }
        ReplicaMessage::Fetched { batch, .. } => put_batch(batch, batch_bytes, out),
        ReplicaMessage::Install { based_on, through, floor, .. } => {
            put(out, through);
            put(out, floor);
            put_lineage(based_on, out);
        }
        ReplicaMessage::Append { counted, stable, batch, .. } => {
            put(out, counted);
            put(out, stable);
            put_batch(batch, batch_bytes, out);
        }
        ReplicaMessage::Probe { counted, stable, .. } => {
            put(out, counted);
            put(out, stable);
        }
        ReplicaMessage::NeedsCheckpoint { held_above, .. } => put(out, held_above),
        ReplicaMessage::Acked { installed, counted, session, durable, received, .. } => {
            put(out, installed);
            put(out, counted);
            put(out, session);
            put_set(durable, out);
            put(out, &received.is_some());
            if let Some(received) = received {
                put_set(received, out);
            }
        }
    }
}

fn put_batch<B>(batch: &Batch<B>, batch_bytes: impl Fn(&B) -> BatchBytes<'_>, out: &mut Vec<u8>) {
    let BatchBytes { first, records } = batch_bytes(&batch.payload);
    assert!(records.len() <= MAX_BATCH_BYTES, "a log takes no longer batch");
    put(out, &batch.number);
    put(out, &batch.epoch);
    put(out, &batch.lease);
    put(out, &first);
    put(out, &(records.len() as u32));
    out.extend_from_slice(records);
}

fn put_lineage(lineage: &Lineage, out: &mut Vec<u8>) {
    put(out, &(lineage.epochs().len() as u32));
    for (epoch, table_end) in lineage.epochs() {
        put(out, epoch);
        put(out, table_end);
    }
}

fn put_set(set: &NumberSet, out: &mut Vec<u8>) {
    put(out, &set.prefix());
    put_runs(set.runs(), out);
}

fn put_runs(runs: &[(BatchNumber, BatchNumber)], out: &mut Vec<u8>) {
    assert!(runs.len() <= MAX_RUNS_TOLD, "a replica has no more runs");
    put(out, &(runs.len() as u32));
    for (first, last) in runs {
        put(out, first);
        put(out, last);
    }
}

/// What is left of a frame's body.
struct Fields<'a> {
    rest: &'a [u8],
    kind: Kind,
}

impl<'a> Fields<'a> {
    const fn truncated(&self) -> WireError {
        WireError::Truncated { kind: self.kind as u8 }
    }

    const fn trailing(&self) -> WireError {
        WireError::Trailing { kind: self.kind as u8 }
    }

    const fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.trailing()) }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(self.truncated())?;
        self.rest = rest;
        Ok(bytes)
    }

    fn take<T: Fixed>(&mut self) -> Result<T, WireError> {
        T::load(self.bytes(T::BYTES)?)
    }

    /// A list of at most `limit` pairs: its bytes are there before it takes memory.
    fn pairs<A: Fixed, B: Fixed>(
        &mut self,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<(A, B)>, WireError> {
        let count = self.take::<u32>()? as usize;
        bounded(what, count, limit)?;
        let each = A::BYTES + B::BYTES;
        let pair = |bytes: &[u8]| -> Result<(A, B), WireError> {
            let (first, second) = bytes.split_at(A::BYTES);
            Ok((A::load(first)?, B::load(second)?))
        };
        self.bytes(count * each)?.chunks_exact(each).map(pair).collect()
    }

    fn runs(&mut self) -> Result<Vec<(BatchNumber, BatchNumber)>, WireError> {
        self.pairs("runs of batches", MAX_RUNS_TOLD)
    }

    fn lineage(&mut self) -> Result<Lineage, WireError> {
        let epochs = self.pairs("epochs of a lineage", MAX_LINEAGE)?;
        Lineage::new(epochs).ok_or(WireError::BadField { field: "a replica's lineage" })
    }

    fn set(&mut self) -> Result<NumberSet, WireError> {
        let (through, runs) = (self.take()?, self.runs()?);
        NumberSet::new(through, runs).ok_or(WireError::BadField { field: "a set of batches" })
    }

    /// A batch, which ends its message.
    fn batch<B>(&mut self, own: impl Fn(BatchBytes<'a>) -> B) -> Result<Batch<B>, WireError> {
        let (number, epoch, lease) = (self.take()?, self.take()?, self.take()?);
        let (first, length) = (self.take()?, self.take::<u32>()? as usize);
        bounded("bytes of a batch of records", length, MAX_BATCH_BYTES)?;
        let records = self.bytes(length)?;
        self.end()?;
        Ok(Batch { number, epoch, lease, payload: own(BatchBytes { first, records }) })
    }

    fn message<B>(
        &mut self,
        tag: Tag,
        own: impl Fn(BatchBytes<'a>) -> B,
    ) -> Result<ReplicaMessage<B>, WireError> {
        let epoch = self.take()?;
        Ok(match tag {
            Tag::Join => ReplicaMessage::Join { epoch },
            Tag::Joined => {
                let (lease, held_above) = (self.take()?, self.take()?);
                let void_since = if self.take()? { Some(self.take()?) } else { None };
                let (lineage, has) = (self.lineage()?, self.set()?);
                let answer = JoinAnswer { lineage, lease, has, held_above, void_since };
                ReplicaMessage::Joined { epoch, answer }
            }
            Tag::Fetch => ReplicaMessage::Fetch { epoch, runs: self.runs()? },
            Tag::Fetched => ReplicaMessage::Fetched { epoch, batch: self.batch(own)? },
            Tag::Install => {
                let (through, floor) = (self.take()?, self.take()?);
                ReplicaMessage::Install { epoch, based_on: self.lineage()?, through, floor }
            }
            Tag::Append => {
                let (counted, stable) = (self.take()?, self.take()?);
                ReplicaMessage::Append { epoch, counted, stable, batch: self.batch(own)? }
            }
            Tag::Probe => {
                ReplicaMessage::Probe { epoch, counted: self.take()?, stable: self.take()? }
            }
            Tag::Acked => {
                let (installed, counted, session) = (self.take()?, self.take()?, self.take()?);
                let durable = self.set()?;
                let received = if self.take()? { Some(self.set()?) } else { None };
                ReplicaMessage::Acked { epoch, installed, counted, session, durable, received }
            }
            Tag::Refused => ReplicaMessage::Refused { promised: epoch },
            Tag::NeedsCheckpoint => {
                ReplicaMessage::NeedsCheckpoint { epoch, held_above: self.take()? }
            }
        })
    }
}

macro_rules! carriers {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        $($(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name<'a> {
            from: ReplicaId,
            message: ReplicaMessage<BatchBytes<'a>>,
        }

        impl $name<'_> {
            /// Bytes before the message: header, sender, length.
            pub const FIXED_BYTES: usize = FIXED_BYTES;
        }

        impl<'a> Message<'a> for $name<'a> {
            const KIND: Kind = Kind::$name;
            const FIELDS: &'static [Field] = &[
                Field { name: "from", bytes: Some(<ReplicaId as Fixed>::BYTES) },
                Field { name: "message", bytes: None },
            ];

            fn encode(&self, envelope: &Envelope, out: &mut Vec<u8>) {
                encode_replica_message(envelope, self.from, &self.message, |bytes| *bytes, out);
            }

            fn decode(frame: &Frame<'a>) -> Result<Self, WireError> {
                if frame.kind() != Self::KIND {
                    let (expected, found) = (Self::KIND as u8, frame.kind() as u8);
                    return Err(WireError::WrongKind { expected, found });
                }
                let (from, message) = decode_replica_message(frame, |bytes| bytes)?;
                Ok(Self { from, message })
            }
        })+
    };
}

carriers! {
    /// A message of a replica that asks another one: Join, Fetch, Install, Append, Probe,
    /// NeedsCheckpoint. Answered by [`ReplicaAnswer`]s, if at all. Made by [`encode_replica_message`] only.
    ReplicaAsk;
    /// A message of a replica that answers another one: Joined, Fetched, Acked, Refused. Made by
    /// [`encode_replica_message`] only.
    ReplicaAnswer;
}

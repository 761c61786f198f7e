//! What replicas tell each other: random and extreme messages, bytes, and lists that are none.

use proptest::prelude::*;
use timestone_replication::limits::{MAX_LINEAGE, MAX_RUNS_TOLD};
use timestone_replication::{
    Batch, JoinAnswer, Lineage, Message as ReplicaMessage, NumberSet, ReplicaId,
};
use timestone_types::{Epoch, Timestamp};
use timestone_wal::{BatchNumber, RecordNumber};
use timestone_wire::*;

use crate::golden::{TO, assert_bytes, at};
use crate::sample::Source;

/// A batch's records, as a replica keeps them.
type Records = (RecordNumber, Vec<u8>);
type Told = ReplicaMessage<Records>;

pub(crate) fn encode(to: &Envelope, from: ReplicaId, message: &Told, out: &mut Vec<u8>) {
    encode_replica_message(to, from, message, bytes_of, out);
}

fn bytes_of((first, records): &Records) -> BatchBytes<'_> {
    BatchBytes { first: *first, records }
}

fn decode(bytes: &[u8]) -> Result<(ReplicaId, Told), WireError> {
    let frame = Frame::parse(bytes)?;
    decode_replica_message(&frame, |batch| (batch.first, batch.records.to_vec()))
}

fn number(source: &mut Source) -> BatchNumber {
    match source.below(6) {
        0 => BatchNumber::ZERO,
        1 => BatchNumber::MAX,
        _ => BatchNumber::new(source.next()),
    }
}

fn epoch(source: &mut Source) -> Epoch {
    Epoch::new(source.next() as u32)
}

fn lineage(source: &mut Source) -> Lineage {
    let mut epochs = vec![(Epoch::new(source.below(3) as u32), BatchNumber::ZERO)];
    for _ in 0..source.below(4) {
        let (last, end) = epochs[epochs.len() - 1];
        let next = Epoch::new(last.get() + 1 + source.below(9) as u32);
        epochs.push((next, BatchNumber::new(end.get() + source.below(99) as u64)));
    }
    Lineage::new(epochs).unwrap()
}

fn set(source: &mut Source) -> NumberSet {
    let mut set = NumberSet::through(BatchNumber::new(source.below(1000) as u64));
    for _ in 0..source.below(5) {
        set.insert(BatchNumber::new(source.below(2000) as u64));
    }
    set
}

fn batch(source: &mut Source) -> Batch<Records> {
    let payload = (RecordNumber::new(source.next()), source.bytes(300));
    Batch { number: number(source), epoch: epoch(source), lease: source.time(), payload }
}

/// A random message that travels in frames of this kind.
pub(crate) fn message(source: &mut Source, kind: Kind) -> Told {
    let epoch = epoch(source);
    if kind == Kind::ReplicaAsk {
        let (counted, stable) = (number(source), number(source));
        return match source.below(6) {
            0 => ReplicaMessage::Join { epoch },
            1 => {
                let runs = (0..source.below(5)).map(|_| (number(source), number(source)));
                ReplicaMessage::Fetch { epoch, runs: runs.collect() }
            }
            2 => ReplicaMessage::Install {
                epoch,
                based_on: lineage(source),
                through: counted,
                floor: source.time(),
            },
            3 => ReplicaMessage::Append { epoch, counted, stable, batch: batch(source) },
            4 => ReplicaMessage::NeedsCheckpoint { epoch, held_above: stable },
            _ => ReplicaMessage::Probe { epoch, counted, stable },
        };
    }
    match source.below(4) {
        0 => {
            let (lineage, lease) = (lineage(source), source.time());
            let (has, held_above) = (set(source), number(source));
            let void_since = source.flag().then(|| Epoch::new(source.below(9) as u32));
            let answer = JoinAnswer { lineage, lease, has, held_above, void_since };
            ReplicaMessage::Joined { epoch, answer }
        }
        1 => ReplicaMessage::Fetched { epoch, batch: batch(source) },
        2 => ReplicaMessage::Acked {
            epoch,
            installed: source.flag(),
            counted: number(source),
            session: source.next(),
            durable: set(source),
            received: source.flag().then(|| set(source)),
        },
        _ => ReplicaMessage::Refused { promised: epoch },
    }
}

proptest! {
    #[test]
    fn a_message_reads_back_as_it_was_told(seed in any::<u64>()) {
        for kind in [Kind::ReplicaAsk, Kind::ReplicaAnswer] {
            let source = &mut Source::new(seed);
            let (from, told) = (ReplicaId(source.next() as u32), message(source, kind));
            let mut bytes = b"what was there before".to_vec();
            let start = bytes.len();
            encode(&source.envelope(), from, &told, &mut bytes);
            let frame = Frame::parse(&bytes[start..]).unwrap();
            prop_assert_eq!((frame.kind(), frame.kind().is_reply()), (kind, kind == Kind::ReplicaAnswer));
            prop_assert_eq!(decode(frame.bytes()), Ok((from, told)));
        }
    }
}

#[test]
fn the_longest_lists_and_the_longest_batch_fit_a_frame() {
    let runs: Vec<(BatchNumber, BatchNumber)> = (1..=MAX_RUNS_TOLD as u64)
        .map(|run| (BatchNumber::new(2 * run), BatchNumber::new(2 * run)))
        .collect();
    let has = NumberSet::new(BatchNumber::ZERO, runs.clone()).unwrap();
    let epochs = (0..MAX_LINEAGE as u32).map(|epoch| (Epoch::new(epoch), BatchNumber::MAX));
    let answer = JoinAnswer {
        lineage: Lineage::new(epochs.collect()).unwrap(),
        lease: Timestamp::MAX,
        has: has.clone(),
        held_above: BatchNumber::MAX,
        void_since: Some(Epoch::new(u32::MAX)),
    };
    let epoch = Epoch::new(u32::MAX);
    let records = vec![7; limits::MAX_BATCH_BYTES];
    let batch = Batch {
        number: BatchNumber::MAX,
        epoch,
        lease: Timestamp::MAX,
        payload: (RecordNumber::new(u64::MAX), records),
    };
    let (counted, stable) = (BatchNumber::MAX, BatchNumber::MAX);
    for told in [
        Told::Joined { epoch, answer },
        Told::Fetch { epoch, runs: runs.clone() },
        Told::Acked {
            epoch,
            installed: true,
            counted,
            session: 9,
            durable: has.clone(),
            received: Some(has),
        },
        Told::Append { epoch, counted, stable, batch },
    ] {
        let mut bytes = Vec::new();
        encode(&TO, ReplicaId(u32::MAX), &told, &mut bytes);
        assert!(bytes.len() <= limits::MAX_FRAME_BYTES);
        assert!(decode(&bytes) == Ok((ReplicaId(u32::MAX), told)));
    }
    let mut more = runs.clone();
    more.push((BatchNumber::MAX, BatchNumber::MAX));
    let mut bytes = Vec::new();
    encode(&TO, ReplicaId(1), &Told::Fetch { epoch, runs: more }, &mut bytes);
    assert_eq!(decode(&bytes), Ok((ReplicaId(1), Told::Fetch { epoch, runs })));
}

/// A frame with this body behind the sender and the length.
fn frame_of(kind: Kind, message: &str) -> Vec<u8> {
    let digits: Vec<u8> = message.bytes().filter(u8::is_ascii_hexdigit).collect();
    let hex = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let message: Vec<u8> = digits.chunks(2).map(hex).collect();
    let mut bytes = Vec::new();
    encode(&TO, ReplicaId(1), &Told::Join { epoch: Epoch::ZERO }, &mut bytes);
    bytes.truncate(ReplicaAsk::FIXED_BYTES);
    bytes.extend_from_slice(&message);
    let length = (bytes.len() as u32).to_le_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes[4] = kind as u8;
    bytes[28..32].copy_from_slice(&(message.len() as u32).to_le_bytes());
    bytes
}

#[test]
fn messages_byte_by_byte() {
    let (epoch, lease) = (Epoch::new(5), at(6));
    let number = BatchNumber::new;
    let lineage = Lineage::new(vec![(Epoch::new(1), number(2)), (Epoch::new(3), number(4))]);
    let lineage = lineage.unwrap();
    let lineage_hex = "02000000 01000000 0200000000000000 03000000 0400000000000000";
    let has = NumberSet::new(number(7), vec![(number(9), number(10))]).unwrap();
    let has_hex = "0700000000000000 01000000 0900000000000000 0a00000000000000";
    let payload = (RecordNumber::new(11), b"rec".to_vec());
    let batch = Batch { number: number(12), epoch: Epoch::new(4), lease, payload };
    let batch_hex = "0c00000000000000 04000000 0600000000000000 0b00000000000000 03000000 726563";
    let (counted, stable) = (number(13), number(14));
    let counted_hex = "0d00000000000000";
    let answer = JoinAnswer {
        lineage: lineage.clone(),
        lease,
        has: has.clone(),
        held_above: stable,
        void_since: Some(Epoch::new(15)),
    };
    let received = Some(NumberSet::default());
    for (message, hex) in [
        (Told::Join { epoch }, String::new()),
        (
            Told::Joined { epoch, answer },
            format!("0600000000000000 0e00000000000000 01 0f000000 {lineage_hex} {has_hex}"),
        ),
        (
            Told::Fetch { epoch, runs: vec![(number(1), number(2))] },
            "01000000 0100000000000000 0200000000000000".to_owned(),
        ),
        (Told::Fetched { epoch, batch: batch.clone() }, batch_hex.to_owned()),
        (
            Told::Install { epoch, based_on: lineage, through: counted, floor: lease },
            format!("{counted_hex} 0600000000000000 {lineage_hex}"),
        ),
        (
            Told::Append { epoch, counted, stable, batch },
            format!("{counted_hex} 0e00000000000000 {batch_hex}"),
        ),
        (Told::Probe { epoch, counted, stable }, format!("{counted_hex} 0e00000000000000")),
        (
            Told::Acked { epoch, installed: true, counted, session: 9, durable: has, received },
            format!("01 {counted_hex} 0900000000000000 {has_hex} 01 0000000000000000 00000000"),
        ),
        (Told::Refused { promised: epoch }, String::new()),
        (Told::NeedsCheckpoint { epoch, held_above: stable }, "0e00000000000000".to_owned()),
    ] {
        let (tag, kind) = match message {
            Told::Join { .. } => ("01", "1600"),
            Told::Joined { .. } => ("02", "9200"),
            Told::Fetch { .. } => ("03", "1600"),
            Told::Fetched { .. } => ("04", "9200"),
            Told::Install { .. } => ("05", "1600"),
            Told::Append { .. } => ("06", "1600"),
            Told::Probe { .. } => ("07", "1600"),
            Told::Acked { .. } => ("08", "9200"),
            Told::Refused { .. } => ("09", "9200"),
            Told::NeedsCheckpoint { .. } => ("0a", "1600"),
        };
        let mut bytes = Vec::new();
        encode(&TO, ReplicaId(0x0403_0201), &message, &mut bytes);
        let body = format!("{tag} 05000000 {hex}");
        let length = body.chars().filter(char::is_ascii_hexdigit).count() / 2;
        assert_bytes(&bytes, kind, &format!("01020304 {length:02x}000000 {body}"));
        assert_eq!(decode(&bytes), Ok((ReplicaId(0x0403_0201), message)));
    }
}

#[test]
fn what_is_no_message_of_a_replica_is_refused() {
    use Kind::{ReplicaAnswer as Answer, ReplicaAsk as Ask};
    let tag: Result<(), WireError> =
        Err(WireError::BadField { field: "the tag of a replica's message" });
    let bad = |field| Err(WireError::BadField { field });
    let too_long = |what, length, limit| Err(WireError::TooLong { what, length, limit });
    let truncated = Err(WireError::Truncated { kind: Answer as u8 });
    let (number, zero, one) = ("0500000000000000", "0000000000000000", "0100000000000000");
    let joined = format!("02 05000000 {zero} {zero} 00");
    let acked = format!("08 05000000 01 {zero} {zero}");
    let batch = format!("04 05000000 {number} 01000000 {zero} {zero}");
    for (kind, message, expected) in [
        (Ask, "00 05000000".to_owned(), tag),
        (Ask, "0b 05000000".to_owned(), tag),
        // An answer's message in an ask, and the other way round.
        (Ask, "09 05000000".to_owned(), tag),
        (Answer, "01 05000000".to_owned(), tag),
        // A lineage that is empty, one that falls, and one that is too long.
        (Answer, format!("{joined} 00000000 {zero} 00000000"), bad("a replica's lineage")),
        (
            Answer,
            format!("{joined} 02000000 02000000{zero} 02000000{zero} {zero} 00000000"),
            bad("a replica's lineage"),
        ),
        (
            Answer,
            format!("{joined} 02000000 01000000{one} 02000000{zero} {zero} 00000000"),
            bad("a replica's lineage"),
        ),
        (
            Answer,
            format!("{joined} 21000000"),
            too_long("epochs of a lineage", 33, MAX_LINEAGE as u64),
        ),
        (Answer, format!("{joined} 20000000"), truncated),
        // Runs that touch what is before them, and more than a replica has.
        (Answer, format!("{acked} {zero} 01000000 {one}{one} 00"), bad("a set of batches")),
        (
            Answer,
            format!("{acked} {zero} 02000000 {number}{number}{number}{number} 00"),
            bad("a set of batches"),
        ),
        (
            Answer,
            format!("{acked} {zero} ffffffff"),
            too_long("runs of batches", u64::from(u32::MAX), MAX_RUNS_TOLD as u64),
        ),
        (Answer, format!("{acked} {zero} 00000000 02"), bad("a flag")),
        (Answer, format!("{acked} {zero} 00000000 01"), truncated),
        // A batch that is shorter or longer than it says.
        (Answer, format!("{batch} 04000000 726563"), truncated),
        (
            Answer,
            format!("{batch} 02000000 726563"),
            Err(WireError::Trailing { kind: Answer as u8 }),
        ),
        (
            Answer,
            format!("{batch} ffffffff 726563"),
            too_long(
                "bytes of a batch of records",
                u64::from(u32::MAX),
                limits::MAX_BATCH_BYTES as u64,
            ),
        ),
    ] {
        let bytes = frame_of(kind, &message);
        assert_eq!(decode(&bytes).map(drop), expected, "{message}");
        assert_eq!(check(&Frame::parse(&bytes).unwrap()), expected, "{message}");
    }
    let good = frame_of(Answer, &format!("{batch} 03000000 726563"));
    assert!(decode(&good).is_ok());
    let mut ping = Vec::new();
    Ping {}.encode(&TO, &mut ping);
    assert_eq!(decode(&ping), Err(WireError::WrongKind { expected: 22, found: 19 }));
    assert_eq!(
        ReplicaAsk::decode(&Frame::parse(&good).unwrap()),
        Err(WireError::WrongKind { expected: 22, found: 146 })
    );
}

#[test]
fn records_are_kept_of_frames_that_are_messages_only() {
    let batch =
        format!("04 05000000 {} 01000000 {} {}", "00".repeat(8), "00".repeat(8), "00".repeat(8));
    for (rest, expected) in [("03000000 726563", 1), ("02000000 726563", 0), ("04000000 726563", 0)]
    {
        let bytes = frame_of(Kind::ReplicaAnswer, &format!("{batch} {rest}"));
        let kept = std::cell::Cell::new(0);
        let decoded = decode_replica_message(&Frame::parse(&bytes).unwrap(), |records| {
            kept.set(kept.get() + 1);
            records.first
        });
        assert_eq!((decoded.is_ok(), kept.get()), (expected == 1, expected));
    }
}

#[test]
fn parts_of_checkpoints_have_their_bounds() {
    let cursor = vec![1; limits::MAX_CURSOR_BYTES + 1];
    let part = vec![2; limits::MAX_CHECKPOINT_PART_BYTES + 1];
    for (cursor, part, expected) in [
        (&cursor[1..], &part[1..], None),
        (&cursor[..], &part[1..], Some("a checkpoint's cursor")),
        (&cursor[1..], &part[..], Some("a part of a checkpoint")),
    ] {
        let mut bytes = Vec::new();
        CheckpointPart { last: false, cursor, part }.encode(&TO, &mut bytes);
        match CheckpointPart::decode(&Frame::parse(&bytes).unwrap()) {
            Ok(told) => assert!(expected.is_none() && told.cursor == cursor && told.part == part),
            Err(WireError::TooLong { what, .. }) => assert_eq!(Some(what), expected),
            Err(error) => panic!("{error}"),
        }
    }
}

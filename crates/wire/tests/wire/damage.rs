//! Damaged, truncated, oversized: an error each time, never a panic, and never a message that means
//! something else.

use proptest::prelude::*;
use timestone_types::limits::{MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_KEYS, MAX_VALUE_BYTES};
use timestone_types::{ClientId, Expiry, KeyspaceId, ShardId, Timestamp, TxnId};
use timestone_wire::*;

use crate::sample::{encode, encode_again};

fn set_length(bytes: &mut [u8]) {
    let length = (bytes.len() as u32).to_le_bytes();
    bytes[..4].copy_from_slice(&length);
}

#[test]
fn every_beginning_of_every_message_is_refused() {
    for seed in 0..20 {
        for &kind in Kind::ALL {
            let mut bytes = Vec::new();
            encode(kind, seed, &mut bytes);
            for length in 0..bytes.len() {
                let mut beginning = bytes[..length].to_vec();
                assert!(
                    !matches!(Frame::split(&beginning), Ok(Some(_))),
                    "{} cut to {length} is a frame",
                    kind.name()
                );
                if length < HEADER_BYTES {
                    continue;
                }
                set_length(&mut beginning);
                let frame = Frame::parse(&beginning).unwrap();
                assert!(check(&frame).is_err(), "{} cut to {length} was taken", kind.name());
            }
            bytes.push(0);
            set_length(&mut bytes);
            assert!(
                check(&Frame::parse(&bytes).unwrap()).is_err(),
                "{} with a byte more was taken",
                kind.name()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_damaged_message_is_refused_or_encodes_to_the_damaged_bytes(
        seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), twice in any::<prop::sample::Index>(),
    ) {
        for &kind in Kind::ALL {
            let mut bytes = Vec::new();
            encode(kind, seed, &mut bytes);
            let (first, second) = (at.index(bytes.len()), twice.index(bytes.len()));
            bytes[first] = byte;
            bytes[second] = bytes[second].wrapping_add(1);
            if let Ok(frame) = Frame::parse(&bytes) && let Ok(again) = encode_again(&frame) {
                prop_assert_eq!(&again, &bytes, "{}", frame.kind().name());
            }
        }
    }

    #[test]
    fn noise_is_never_more_than_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..400), kind in any::<u8>()) {
        for frame in Frames::new(&bytes) {
            let _ = frame.and_then(|frame| check(&frame));
        }
        if let Ok(body) = PrepareBody::parse(&bytes) {
            prop_assert_eq!(body.reads().len(), body.reads().count());
            prop_assert_eq!(body.writes().len(), body.writes().count());
        }
        if bytes.len() >= HEADER_BYTES {
            set_length(&mut bytes);
            bytes[4] = kind;
            bytes[5] = 0;
            if let Ok(frame) = Frame::parse(&bytes) && let Ok(again) = encode_again(&frame) {
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}

#[test]
fn lengths_that_no_frame_has_are_refused_before_the_frame_is_there() {
    for length in [0u32, 23, limits::MAX_FRAME_BYTES as u32 + 1, u32::MAX] {
        let expected =
            WireError::FrameLength { length, least: 24, most: limits::MAX_FRAME_BYTES as u32 };
        assert_eq!(frame_length(&length.to_le_bytes()), Err(expected));
        assert_eq!(Frames::new(&length.to_le_bytes()).collect::<Vec<_>>(), vec![Err(expected)]);
    }
    assert_eq!(frame_length(&[24, 0, 0]), Ok(None));
    assert_eq!(frame_length(&[24, 0, 0, 0]), Ok(Some(24)));
}

#[test]
fn unknown_kinds_flags_and_mistaken_kinds_are_named() {
    let mut bytes = Vec::new();
    encode(Kind::Ping, 1, &mut bytes);
    assert_eq!(
        Get::decode(&Frame::parse(&bytes).unwrap()),
        Err(WireError::WrongKind { expected: 2, found: 19 })
    );
    bytes[5] = 1;
    assert_eq!(Frame::parse(&bytes), Err(WireError::BadField { field: "a frame's flags" }));
    bytes[5] = 0;
    bytes[4] = 99;
    assert_eq!(Frame::parse(&bytes), Err(WireError::UnknownKind(99)));
    assert_eq!(ErrorCode::from(&WireError::UnknownKind(99)), ErrorCode::Unsupported);
}

#[test]
fn keys_and_values_above_their_bounds_are_refused_by_the_receiver() {
    let (keyspace, client, at) = (KeyspaceId::DEFAULT, ClientId::new(1), Timestamp::from_nanos(1));
    let mut bytes = Vec::new();
    let key = vec![b'k'; MAX_KEY_BYTES + 1];
    let get = Get { keyspace, at: ReadAt::Latest(at), client, wait: true, key: &key[1..] };
    get.encode(&Envelope::default(), &mut bytes);
    assert_eq!(Get::decode(&Frame::parse(&bytes).unwrap()), Ok(get));
    bytes.clear();
    Get { key: &key, ..get }.encode(&Envelope::default(), &mut bytes);
    let expected = WireError::TooLong { what: "a key's bytes", length: 65_537, limit: 65_536 };
    assert_eq!(Get::decode(&Frame::parse(&bytes).unwrap()), Err(expected));

    bytes.clear();
    let value = vec![0u8; MAX_VALUE_BYTES + 1];
    let reply = Value {
        version: Default::default(),
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: &value,
    };
    reply.encode(&Envelope::default(), &mut bytes);
    assert!(matches!(
        Value::decode(&Frame::parse(&bytes).unwrap()),
        Err(WireError::TooLong { what: "a value's bytes", .. })
    ));
}

fn body_of(reads: u32, writes: u32) -> Vec<u8> {
    let mut bytes = reads.to_le_bytes().to_vec();
    bytes.extend_from_slice(&writes.to_le_bytes());
    bytes
}

#[test]
fn announced_numbers_are_checked_before_they_are_believed() {
    for (reads, writes) in
        [(u32::MAX, u32::MAX), (0, MAX_TXN_KEYS as u32 + 1), (MAX_TXN_KEYS as u32, 1)]
    {
        let error = PrepareBody::parse(&body_of(reads, writes)).unwrap_err();
        assert!(
            matches!(error, WireError::TooLong { what: "keys of a transaction", .. }),
            "{error}"
        );
    }
    assert_eq!(
        PrepareBody::parse(&body_of(1, 0)),
        Err(WireError::BadField { field: "a read of a prepare" })
    );
    assert_eq!(
        PrepareBody::parse(&body_of(0, 1)),
        Err(WireError::BadField { field: "a write of a prepare" })
    );
    assert_eq!(PrepareBody::parse(&[]), Err(WireError::BadField { field: "a read of a prepare" }));
}

fn put(key: &[u8], kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = 0u32.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(&u64::MAX.to_le_bytes());
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

#[test]
fn a_transaction_above_its_bytes_is_refused_though_each_write_is_not() {
    let value = vec![0u8; MAX_VALUE_BYTES];
    let fits = MAX_TXN_BYTES / MAX_VALUE_BYTES;
    let mut bytes = body_of(0, fits as u32);
    (0..fits).for_each(|_| bytes.extend(put(b"", 1, &value)));
    assert_eq!(PrepareBody::parse(&bytes).map(|body| body.writes().len()), Ok(fits));
    bytes[4..8].copy_from_slice(&(fits as u32 + 1).to_le_bytes());
    bytes.extend(put(b"k", 2, b""));
    assert!(matches!(
        PrepareBody::parse(&bytes),
        Err(WireError::TooLong { what: "bytes of a transaction", .. })
    ));
}

#[test]
fn deletes_with_values_and_fences_with_keys_are_refused() {
    for (key, kind, value, good) in [
        (b"k".as_slice(), 1, b"v".as_slice(), true),
        (b"k", 2, b"", true),
        (b"", 3, b"", true),
        (b"k", 2, b"v", false),
        (b"k", 3, b"", false),
        (b"", 3, b"v", false),
        (b"k", 4, b"", false),
        (b"k", 0, b"", false),
    ] {
        let mut bytes = body_of(0, 1);
        bytes.extend(put(key, kind, value));
        assert_eq!(
            PrepareBody::parse(&bytes).is_ok(),
            good,
            "kind {kind} with {key:?} and {value:?}"
        );
    }
}

#[test]
#[should_panic(expected = "checked against the limits")]
fn encoding_more_than_a_frame_holds_is_a_fault_of_the_caller() {
    let value = vec![0u8; limits::MAX_FRAME_BYTES];
    let reply = Value {
        version: Default::default(),
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: &value,
    };
    reply.encode(&Envelope::default(), &mut Vec::new());
}

#[test]
#[should_panic(expected = "reads come before writes")]
fn a_read_after_a_write_is_a_fault_of_the_caller() {
    let mut bytes = Vec::new();
    let (txn, at) = (TxnId::default(), Timestamp::ZERO);
    let head = PrepareHead {
        txn,
        begin: at,
        commit: at,
        single: true,
        wait: false,
        participants: &[ShardId::ZERO],
    };
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut bytes);
    let (keyspace, expires_at) = (KeyspaceId::DEFAULT, Expiry::NEVER);
    writer.write(&WriteEntry {
        keyspace,
        kind: WriteKind::Delete,
        expires_at,
        key: b"k",
        value: b"",
    });
    writer.read(&ReadEntry {
        keyspace,
        version: Default::default(),
        absent: true,
        expires_at,
        key: b"k",
    });
}

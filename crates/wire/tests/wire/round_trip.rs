//! What is encoded reads back: every kind, whole batches of frames, prepares by their sets, and the
//! negotiation of versions.

use core::time::Duration;

use proptest::prelude::*;
use timestone_cluster::MapVersion;
use timestone_types::{
    AbortKind, AbortReason, ClientId, ClusterId, Epoch, Expiry, ShardId, Timestamp, TxnId, Version,
};
use timestone_wire::*;

use crate::sample::{Sets, Source, encode, encode_again};

proptest! {
    #[test]
    fn every_message_reads_back_and_encodes_to_the_same_bytes(seed in any::<u64>()) {
        for &kind in Kind::ALL {
            let mut bytes = Vec::new();
            encode(kind, seed, &mut bytes);
            let frame = Frame::parse(&bytes).unwrap();
            prop_assert_eq!(frame.kind(), kind);
            prop_assert_eq!(frame.envelope(), &Source::new(seed).envelope());
            prop_assert_eq!(check(&frame), Ok(()));
            let again = encode_again(&frame).unwrap();
            prop_assert_eq!(again, bytes, "{}", kind.name());
        }
    }

    #[test]
    fn a_prepare_carries_its_sets_and_its_body_reads_alone(seed in any::<u64>()) {
        let source = &mut Source::new(seed);
        let sets = Sets::random(source);
        let participants = source.shards();
        let envelope = source.envelope();
        let head = PrepareHead {
            txn: source.txn(),
            begin: source.time(),
            commit: source.time(),
            single: source.flag(),
            wait: source.flag(),
            participants: &participants,
        };
        let mut bytes = b"what was there before".to_vec();
        let start = bytes.len();
        sets.write(&envelope, &head, &mut bytes);
        let frame = Frame::parse(&bytes[start..]).unwrap();
        let prepare = Prepare::decode(&frame).unwrap();
        prop_assert_eq!(
            (prepare.txn, prepare.begin, prepare.commit, prepare.single, prepare.wait),
            (head.txn, head.begin, head.commit, head.single, head.wait)
        );
        prop_assert_eq!(prepare.participants.iter().collect::<Vec<_>>(), participants);
        let alone = prepare.body.bytes().to_vec();
        let body = PrepareBody::parse(&alone).unwrap();
        prop_assert_eq!(body.reads().len() + body.writes().len(), sets.reads.len() + sets.writes.len());
        prop_assert_eq!(Sets::of(&body), sets);
    }

    #[test]
    fn a_frame_batch_gives_its_frames_in_order_and_keeps_an_unfinished_one(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let source = &mut Source::new(seed);
        let kinds: Vec<Kind> = (0..6).map(|_| Kind::ALL[source.below(Kind::ALL.len())]).collect();
        let mut frame_batch = Vec::new();
        let mut ends = Vec::new();
        for (index, &kind) in kinds.iter().enumerate() {
            encode(kind, seed ^ index as u64, &mut frame_batch);
            ends.push(frame_batch.len());
        }
        let cut = cut.index(frame_batch.len() + 1);
        let mut frames = Frames::new(&frame_batch[..cut]);
        let mut seen = 0;
        for frame in frames.by_ref() {
            prop_assert_eq!(frame.unwrap().kind(), kinds[seen]);
            seen += 1;
        }
        prop_assert_eq!(seen, ends.iter().filter(|&&end| end <= cut).count());
        let consumed = if seen == 0 { 0 } else { ends[seen - 1] };
        prop_assert_eq!(frames.rest(), &frame_batch[consumed..cut]);
    }
}

#[test]
fn a_reply_echoes_the_request_and_brings_the_repliers_epoch() {
    let mut bytes = Vec::new();
    encode(Kind::Get, 5, &mut bytes);
    let frame = Frame::parse(&bytes).unwrap();
    let reply = frame.reply_envelope(Epoch::new(9), MapVersion::new(8));
    assert_eq!((reply.shard, reply.request), (frame.envelope().shard, frame.envelope().request));
    assert_eq!((reply.epoch, reply.map_version), (Epoch::new(9), MapVersion::new(8)));
}

#[test]
fn versions_are_negotiated_or_refused_in_words() {
    let hello = Hello::new(Role::Client, ClusterId::ZERO, ClientId::ZERO, "test");
    assert_eq!(hello.negotiate(), Ok(PROTOCOL.1));
    let newer = Hello { least: ProtocolVersion(8), most: ProtocolVersion(9), ..hello };
    let error = newer.negotiate().unwrap_err();
    assert_eq!(ErrorCode::from(&error), ErrorCode::VersionMismatch);
    assert_eq!(
        error.to_string(),
        "the peer speaks protocol 8 to 9, this program 3 to 7: update the older side"
    );
    let wide = Hello { least: ProtocolVersion(0), most: ProtocolVersion(9), ..hello };
    assert_eq!(wide.negotiate(), Ok(PROTOCOL.1));
    let older = Hello { least: ProtocolVersion(0), most: ProtocolVersion(0), ..hello };
    assert!(older.negotiate().is_err());
    let upside_down = Hello { least: ProtocolVersion(4), most: ProtocolVersion(3), ..hello };
    assert!(upside_down.negotiate().is_err());
}

#[test]
fn a_connection_that_does_not_begin_with_a_hello_is_noticed() {
    let mut bytes = Vec::new();
    encode(Kind::Get, 1, &mut bytes);
    assert_eq!(Hello::first(&Frame::parse(&bytes).unwrap()), Err(WireError::NotHello));
    let mut bytes = Vec::new();
    Hello { magic: 1, ..Hello::new(Role::Tool, ClusterId::ZERO, ClientId::ZERO, "") }
        .encode(&Envelope::default(), &mut bytes);
    assert_eq!(Hello::first(&Frame::parse(&bytes).unwrap()), Err(WireError::NotHello));
    for stranger in [
        b"GET / HTTP/1.1\r\n".as_slice(),
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\0\0\0\0",
    ] {
        assert_eq!(
            Hello::first_length(stranger),
            Err(WireError::NotHello),
            "{:?}",
            stranger.escape_ascii().to_string()
        );
    }
    let mut bytes = Vec::new();
    let longest = "n".repeat(limits::MAX_CLIENT_NAME_BYTES + 1);
    Hello::new(Role::Tool, ClusterId::ZERO, ClientId::ZERO, &longest)
        .encode(&Envelope::default(), &mut bytes);
    assert_eq!(Hello::first_length(&bytes), Ok(Some(bytes.len())));
    assert_eq!(bytes.len(), Hello::MAX_BYTES);
    assert_eq!(Hello::first_length(&bytes[..3]), Ok(None));
}

#[test]
fn an_unfinished_writer_leaves_nothing_behind() {
    let mut bytes = b"before".to_vec();
    drop(StatusListWriter::begin(&Envelope::default(), &mut bytes));
    drop(ScanPageWriter::begin(&Envelope::default(), &mut bytes));
    let (at, no_one) = (Timestamp::ZERO, &[][..]);
    let head = PrepareHead {
        txn: TxnId::default(),
        begin: at,
        commit: at,
        single: true,
        wait: true,
        participants: no_one,
    };
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut bytes);
    writer.write(&WriteEntry {
        keyspace: timestone_types::KeyspaceId::DEFAULT,
        kind: WriteKind::Put,
        expires_at: Expiry::NEVER,
        key: b"k",
        value: b"v",
    });
    drop(writer);
    assert_eq!(bytes, b"before");
}

#[test]
fn a_full_page_takes_no_more_but_a_single_entry_of_any_size() {
    let value = vec![7u8; timestone_types::limits::MAX_VALUE_BYTES];
    let entry =
        ScanEntry { version: Version::ZERO, expires_at: Expiry::NEVER, key: b"k", value: &value };
    let mut bytes = Vec::new();
    let mut page = ScanPageWriter::begin(&Envelope::default(), &mut bytes);
    assert!(page.push(&entry), "the first entry always fits");
    assert!(!page.push(&ScanEntry { value: b"", ..entry }));
    page.finish(3, false);
    let page = ScanPage::decode(&Frame::parse(&bytes).unwrap()).unwrap();
    assert_eq!((page.next, page.done, page.entries.len()), (3, false, 1));
}

#[test]
fn an_error_is_cut_between_characters_and_printed_with_its_code() {
    let long = "é".repeat(600);
    let mut bytes = Vec::new();
    ErrorReply::new(ErrorCode::Busy, &long)
        .with_retry_after(Duration::from_millis(3))
        .encode(&Envelope::default(), &mut bytes);
    let frame = Frame::parse(&bytes).unwrap();
    let error = ErrorReply::decode(&frame).unwrap();
    assert_eq!(error.message, "é".repeat(512));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(3)));
    let reason =
        AbortReason { at: Timestamp::from_nanos(43), ..AbortReason::of(AbortKind::ReadConflict) };
    let error =
        ErrorReply::of_abort(&reason, "key=acct/7: committed by another transaction; retry");
    assert_eq!(
        error.to_string(),
        "TS1020 CONFLICT key=acct/7: committed by another transaction; retry"
    );
    assert!(error.retryable() && error.detail == 43 && error.retry_after().is_none());
}

#[test]
fn participants_iterate_alike_from_memory_and_from_bytes() {
    let shards: Vec<ShardId> = [3u16, 0, 65_535].map(ShardId::new).to_vec();
    let list = Shards::new(&shards);
    assert_eq!((list.len(), list.get(2), list.get(3)), (3, Some(ShardId::new(65_535)), None));
    assert_eq!(list.iter().collect::<Vec<_>>(), shards);
    assert!(!list.is_empty() && Shards::new(&[]).is_empty());
}

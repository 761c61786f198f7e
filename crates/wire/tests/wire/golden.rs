//! Layouts, asserted byte by byte, and the documentation's tables against the code.

use std::fmt::Write as _;

use timestone_cluster::{MapVersion, ServerId};
use timestone_types::{
    AbortKind, AbortReason, ClientId, ClusterId, Direction, Epoch, Expiry, KeyspaceId, Sequence,
    ShardId, Timestamp, TxnId, Version,
};
use timestone_wire::*;

pub(crate) const TO: Envelope = Envelope {
    shard: ShardId::new(0x0201),
    epoch: Epoch::new(0x0605_0403),
    request: RequestId::new(0x0e0d_0c0b_0a09_0807),
    map_version: MapVersion::new(0x1211_100f),
};
/// The header after length, kind and flags, for [`TO`].
const TO_HEX: &str = "0102 03040506 0708090a0b0c0d0e 0f101112";

const TXN: TxnId = TxnId::new(ClientId::new(0x11), Sequence::new(0x22));
const TXN_HEX: &str = "11000000 2200000000000000";

pub(crate) const fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

pub(crate) fn assert_bytes(bytes: &[u8], kind_and_flags: &str, body: &str) {
    let body: String = body.split_whitespace().collect();
    let length = 24 + body.len() / 2;
    let expected = format!("{:08x}{kind_and_flags}{TO_HEX}{body}", (length as u32).swap_bytes())
        .replace(' ', "");
    let found: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn get() {
    let mut out = Vec::new();
    let get = Get {
        keyspace: KeyspaceId::new(5),
        at: ReadAt::Snapshot(at(6)),
        client: ClientId::new(7),
        wait: true,
        key: b"key",
    };
    get.encode(&TO, &mut out);
    assert_bytes(&out, "0200", "05000000 01 0600000000000000 07000000 01 03000000 6b6579");
}

#[test]
fn value() {
    let mut out = Vec::new();
    let value = Value {
        version: Version::new(at(1), ClientId::new(2)),
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: b"hi",
    };
    value.encode(&TO, &mut out);
    assert_bytes(&out, "8100", "0100000000000000 02000000 ffffffffffffffff 00 01 02000000 6869");
}

#[test]
fn ranges() {
    let mut out = Vec::new();
    let (keyspace, client) = (KeyspaceId::new(5), ClientId::new(7));
    let range =
        Range { keyspace, at: at(6), client, limit: 8, has_end: true, from: b"a", to: b"bc" };
    range.encode(&TO, &mut out);
    let fixed = "05000000 0600000000000000 07000000 08000000 01";
    assert_bytes(&out, "1b00", &format!("{fixed} 01000000 02000000 61 6263"));
    out.clear();
    range.encode_in(Direction::Descending, &TO, &mut out);
    assert_bytes(&out, "1d00", &format!("{fixed} 01000000 02000000 61 6263"));
    let frame = Frame::parse(&out).unwrap();
    assert_eq!(Range::decode_any(&frame).unwrap(), (range, Direction::Descending));
    assert_eq!((range.end(), Range { has_end: false, ..range }.end()), (Some(&b"bc"[..]), None));

    out.clear();
    let mut page = RangePageWriter::begin(&TO, Some(b"n"), &mut out);
    let version = Version::new(at(1), ClientId::new(2));
    assert!(page.push(&ScanEntry { version, expires_at: Expiry::NEVER, key: b"k", value: b"" }));
    page.finish();
    let entry = "0100000000000000 02000000 ffffffffffffffff 01000000 00000000 6b";
    assert_bytes(&out, "9600", &format!("00 01000000 1d000000 6e {entry}"));

    out.clear();
    let mut list = RangeListWriter::default();
    list.push(&RangeEntry { keyspace, expires_at: Expiry::at(at(9)), from: b"", to: Some(b"x") });
    let head = PrepareHead {
        txn: TXN,
        begin: at(3),
        commit: at(4),
        single: true,
        wait: false,
        participants: &[ShardId::new(1)],
    };
    PrepareWriter::begin_with(&TO, &head, list.entries(), &mut out).finish();
    let fixed = format!("{TXN_HEX} 0300000000000000 0400000000000000 01 00");
    let range = "05000000 0900000000000000 01 00000000 01000000 78";
    let tail = format!("02000000 16000000 08000000 0100 {range} 00000000 00000000");
    assert_bytes(&out, "1c00", &format!("{fixed} {tail}"));
    let frame = Frame::parse(&out).unwrap();
    let (prepare, ranges) = Prepare::decode_any(&frame).unwrap();
    assert_eq!((prepare.txn, prepare.commit, prepare.single), (TXN, at(4), true));
    assert!(ranges.eq([RangeEntry {
        keyspace,
        expires_at: Expiry::at(at(9)),
        from: b"",
        to: Some(b"x")
    }]));
}

#[test]
fn prepare() {
    let mut out = Vec::new();
    let participants = [ShardId::new(1), ShardId::new(0x0302)];
    let head = PrepareHead {
        txn: TXN,
        begin: at(3),
        commit: at(4),
        single: false,
        wait: true,
        participants: &participants,
    };
    let mut writer = PrepareWriter::begin(&TO, &head, &mut out);
    let version = Version::new(at(8), ClientId::new(9));
    let expires_at = Expiry::at(at(10));
    writer.read(&ReadEntry {
        keyspace: KeyspaceId::new(7),
        version,
        absent: true,
        expires_at,
        key: b"r",
    });
    writer.write(&WriteEntry {
        keyspace: KeyspaceId::new(7),
        kind: WriteKind::Put,
        expires_at,
        key: b"w",
        value: b"val",
    });
    let fence = WriteKind::Fence;
    writer.write(&WriteEntry {
        keyspace: KeyspaceId::new(6),
        kind: fence,
        expires_at: Expiry::NEVER,
        key: b"",
        value: b"",
    });
    writer.finish();
    let body = "
        01000000 02000000
        07000000 0800000000000000 09000000 0a00000000000000 01 01000000 72
        07000000 01 0a00000000000000 01000000 03000000 77 76616c
        06000000 03 ffffffffffffffff 00000000 00000000";
    let expected = format!(
        "{TXN_HEX} 0300000000000000 0400000000000000 00 01 04000000 54000000 01000203 {body}"
    );
    assert_bytes(&out, "0300", &expected);
}

#[test]
fn write() {
    let mut out = Vec::new();
    let write = Write {
        txn: TXN,
        begin: at(1),
        commit: at(2),
        keyspace: KeyspaceId::new(3),
        action: WriteAction::PutKeepExpiry,
        wait: false,
        return_previous: true,
        expires_at: Expiry::at(at(4)),
        condition: Condition::IfVersion(Version::new(at(5), ClientId::new(6))),
        key: b"k",
        value: b"v",
    };
    write.encode(&TO, &mut out);
    let fixed =
        format!("{TXN_HEX} 0100000000000000 0200000000000000 03000000 02 00 01 0400000000000000");
    let lengths = "0d000000 01000000 01000000";
    assert_bytes(&out, "0400", &format!("{fixed} {lengths} 04 0500000000000000 06000000 6b 76"));
    for (condition, hex) in [
        (Condition::Always, "01"),
        (Condition::IfAbsent, "02"),
        (Condition::IfPresent, "03"),
        (Condition::IfValue(b"old"), "056f6c64"),
    ] {
        let mut out = Vec::new();
        Write { condition, ..write }.encode(&TO, &mut out);
        let lengths = format!("{:02x}000000 01000000 01000000", hex.len() / 2);
        assert_bytes(&out, "0400", &format!("{fixed} {lengths} {hex} 6b 76"));
    }
}

#[test]
fn votes() {
    let reason =
        AbortReason { kind: AbortKind::WriteConflict, item: Some(3), other: Some(TXN), at: at(9) };
    let zeros = "00".repeat(25);
    for (verdict, hex) in [
        (Verdict::Yes, format!("01{zeros}")),
        (Verdict::Later(at(5)), format!("02 0500000000000000 {}", &zeros[16..])),
        (Verdict::No(reason), format!("03 02 03000000 {TXN_HEX} 0900000000000000")),
        (
            Verdict::No(AbortReason::of(AbortKind::Requested)),
            format!("03 09 ffffffff {}", &zeros[10..]),
        ),
    ] {
        let mut out = Vec::new();
        Vote { txn: TXN, commit: at(4), verdict }.encode(&TO, &mut out);
        assert_bytes(&out, "8200", &format!("{TXN_HEX} 0400000000000000 {hex}"));
    }
}

#[test]
fn decisions_reports_and_states() {
    let mut out = Vec::new();
    Decide::new(TXN, Some(at(7))).encode(&TO, &mut out);
    assert_bytes(&out, "0500", &format!("{TXN_HEX} 0700000000000000"));
    out.clear();
    Decide::new(TXN, None).encode(&TO, &mut out);
    assert_bytes(&out, "0500", &format!("{TXN_HEX} 0000000000000000"));
    assert_eq!(
        Decide::decode(&Frame::parse(&out).unwrap()).map(|decide| decide.decision()),
        Ok(None)
    );
    out.clear();
    let (client, acked) = (ClientId::new(1), Sequence::new(3));
    Report { client, watermark: at(2), acked, now: at(4), closing: true }.encode(&TO, &mut out);
    assert_bytes(&out, "0b00", "01000000 0200000000000000 0300000000000000 0400000000000000 01");
    for (state, hex) in [
        (TxnState::Unknown, "00 0000000000000000"),
        (TxnState::Prepared(at(1)), "01 0100000000000000"),
        (TxnState::Committed(at(2)), "02 0200000000000000"),
        (TxnState::Aborted, "03 0000000000000000"),
        (TxnState::Forgotten, "04 0000000000000000"),
    ] {
        out.clear();
        StatusIs { txn: TXN, state }.encode(&TO, &mut out);
        assert_bytes(&out, "8500", &format!("{TXN_HEX} {hex}"));
    }
}

#[test]
fn hello_and_error() {
    let mut out = Vec::new();
    Hello::new(Role::Client, ClusterId::new(1), ClientId::new(2), "me").encode(&TO, &mut out);
    assert_bytes(&out, "0100", "5453544e 0300 0700 01 0100000000000000 02000000 02000000 6d65");
    out.clear();
    let error = ErrorReply {
        code: ErrorCode::Conflict,
        retry_after_ns: 5,
        detail: 6,
        other: Some(TXN),
        message: "no",
    };
    error.encode(&TO, &mut out);
    assert_bytes(
        &out,
        "8e00",
        &format!("fc03 0500000000000000 0600000000000000 {TXN_HEX} 02000000 6e6f"),
    );
}

#[test]
fn welcome() {
    let mut out = Vec::new();
    let near = [ShardId::new(1), ShardId::new(3)];
    let welcome = Welcome {
        protocol: PROTOCOL.1,
        cluster: ClusterId::new(4),
        client: ClientId::new(5),
        now: at(6),
        limits: Limits { key_bytes: 7, value_bytes: 8, txn_bytes: 9, txn_keys: 10 },
        near: Shards::new(&near),
        map: b"map",
    };
    welcome.encode(&TO, &mut out);
    assert_bytes(
        &out,
        "8000",
        "0700 0400000000000000 05000000 0600000000000000 07000000 08000000 09000000 0a000000 \
         04000000 03000000 0100 0300 6d6170",
    );
}

#[test]
fn a_reading_of_the_clock() {
    let mut out = Vec::new();
    ClockIs::begin(&TO, &mut out);
    assert_bytes(&out, "9000", "0000000000000000 ffffffffffffffff");
    let length = out.len();
    assert_eq!(ClockIs::decode(&Frame::parse(&out).unwrap()).unwrap().error(), None);
    // What follows stays as it is when the reading is put in.
    Ping {}.encode(&TO, &mut out);
    let reading =
        ClockIs::new(at(0x0807_0605_0403_0201), Some(core::time::Duration::from_nanos(0x0a09)));
    reading.fill(&mut out);
    assert_bytes(&out[..length], "9000", "0102030405060708 090a000000000000");
    let frames: Vec<_> = Frames::new(&out).map(Result::unwrap).collect();
    assert_eq!((frames[0].kind(), frames[1].kind(), frames.len()), (Kind::ClockIs, Kind::Ping, 2));
    assert_eq!(ClockIs::decode(&frames[0]).unwrap(), reading);
    assert_eq!(reading.error(), Some(core::time::Duration::from_nanos(0x0a09)));
    assert_eq!(ClockIs::new(at(1), Some(core::time::Duration::MAX)).error(), None);
}

#[test]
fn heartbeats_and_checkpoints() {
    let mut out = Vec::new();
    Heartbeat { beat: b"beat" }.encode(&TO, &mut out);
    assert_bytes(&out, "1700", "04000000 62656174");
    out.clear();
    HeartbeatAck {}.encode(&TO, &mut out);
    assert_bytes(&out, "9300", "");
    out.clear();
    CheckpointAsk { from: ServerId::new(0x0403_0201), after: b"" }.encode(&TO, &mut out);
    assert_bytes(&out, "1800", "01020304 00000000");
    out.clear();
    CheckpointPart { last: true, cursor: b"c", part: b"part" }.encode(&TO, &mut out);
    assert_bytes(&out, "9400", "01 01000000 04000000 63 70617274");
    out.clear();
    ClosedAsk { from: ServerId::new(0x0403_0201) }.encode(&TO, &mut out);
    assert_bytes(&out, "1900", "01020304");
    out.clear();
    ClosedIs { through: 7, at: Timestamp::from_nanos(9) }.encode(&TO, &mut out);
    assert_bytes(&out, "9500", "0700000000000000 0900000000000000");
    out.clear();
    WatermarkIs { at: Timestamp::from_nanos(9) }.encode(&TO, &mut out);
    assert_bytes(&out, "9700", "0900000000000000");
    out.clear();
    let (keyspace, at) = (KeyspaceId::new(5), Timestamp::from_nanos(9));
    GetAtBackup { keyspace, at, key: b"k" }.encode(&TO, &mut out);
    assert_bytes(&out, "1a00", "05000000 0900000000000000 01000000 6b");
}

#[test]
fn lists() {
    let mut out = Vec::new();
    let mut list = StatusListWriter::begin(&TO, &mut out);
    assert!(list.push("a", "bc"));
    list.finish();
    assert_bytes(&out, "8a00", "07000000 0100 0200 61 6263");
    out.clear();
    let mut page = ScanPageWriter::begin(&TO, &mut out);
    let version = Version::new(at(1), ClientId::new(2));
    assert!(page.push(&ScanEntry { version, expires_at: Expiry::NEVER, key: b"k", value: b"v" }));
    page.finish(9, true);
    let entry = "0100000000000000 02000000 ffffffffffffffff 01000000 01000000 6b 76";
    assert_bytes(&out, "8800", &format!("0900000000000000 01 1e000000 {entry}"));
}

/// The tables of docs/formats/wire.md, as the code has them.
fn tables() -> String {
    let mut text = String::from(
        "| kind | message | fixed bytes | fields in order (bytes; `…` = variable) \
         |\n|---|---|---|---|\n",
    );
    for &kind in Kind::ALL {
        let fixed: usize = HEADER_BYTES
            + kind.fields().iter().map(|field| field.bytes.unwrap_or(4)).sum::<usize>();
        let fields: Vec<String> = kind
            .fields()
            .iter()
            .map(|field| match field.bytes {
                Some(bytes) => format!("{} {bytes}", field.name),
                None => format!("{} …", field.name),
            })
            .collect();
        writeln!(text, "| {} | {} | {fixed} | {} |", kind as u8, kind.name(), fields.join(" · "))
            .unwrap();
    }
    text.push_str("\n| code | retryable |\n|---|---|\n");
    for &code in ErrorCode::ALL {
        writeln!(text, "| {code} | {} |", if code.retryable() { "yes" } else { "no" }).unwrap();
    }
    text
}

#[test]
fn the_documentation_shows_the_codes_tables() {
    let documented = include_str!("../../../../docs/formats/wire.md");
    let spaced = |number: usize| {
        let digits = number.to_string();
        let groups: Vec<&str> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|group| std::str::from_utf8(group).unwrap())
            .collect();
        groups.join(" ")
    };
    assert!(
        documented.contains(&format!("24 to {} |", spaced(limits::MAX_FRAME_BYTES))),
        "the longest frame"
    );
    assert!(
        documented.contains(&format!("a `Hello` of at most {} bytes", spaced(Hello::MAX_BYTES))),
        "the longest hello"
    );
    assert!(
        documented.contains(&format!("at most {} bytes,\nwhich", spaced(limits::MAX_BATCH_BYTES))),
        "the longest batch"
    );
    let cursor = spaced(limits::MAX_CURSOR_BYTES);
    let part = spaced(limits::MAX_CHECKPOINT_PART_BYTES);
    assert!(
        documented
            .contains(&format!("Cursors (at most {cursor} bytes) and parts (at most {part})")),
        "the longest part of a checkpoint"
    );
    let tables = tables();
    for part in tables.split("\n\n") {
        assert!(
            documented.contains(part.trim_end()),
            "docs/formats/wire.md does not hold this table:\n{part}"
        );
    }
}

#[test]
fn the_constant_part_of_a_frame_is_what_its_fields_add_up_to() {
    assert_eq!((Get::FIXED_BYTES, Value::FIXED_BYTES, Prepare::FIXED_BYTES), (46, 50, 62));
    assert_eq!((Vote::FIXED_BYTES, Decide::FIXED_BYTES, Ping::FIXED_BYTES), (70, 44, 24));
}

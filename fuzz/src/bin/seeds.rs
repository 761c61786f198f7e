//! Writes the seed corpora: one small input for each thing a target knows. Run it after a layout changed.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a tool that writes files")]

use std::path::Path;

use timestone_cluster::{
    Address, DirectoryId, KeyspaceName, KeyspaceOptions, Master, MasterCommand, ServerAddresses, ShardMap,
};
use timestone_types::{
    ClientId, ClusterId, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, TxnOutcome, Version,
};
use timestone_wal::block::Entry;
use timestone_wal::{BatchNumber, DecisionOrigin, LogRecord, Participants};
use timestone_wire::*;

fn main() -> std::io::Result<()> {
    for (target, seeds) in [
        ("frame", frames()),
        ("resp", resp()),
        ("cluster", cluster()),
        ("log_block", log_blocks()),
        ("record", vec![("all", records())]),
        ("store_page", timestone_fuzz::store_seeds()),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            std::fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}

type Seeds = Vec<(&'static str, Vec<u8>)>;

const TXN: TxnId = TxnId::new(ClientId::new(1), Sequence::new(2));
const AT: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn frames() -> Seeds {
    fn one<'a>(message: impl Message<'a>) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&Envelope { request: RequestId::new(7), ..Envelope::default() }, &mut out);
        out
    }
    let (keyspace, client, key) = (KeyspaceId::DEFAULT, ClientId::new(1), b"key".as_slice());
    let (expires_at, version) = (Expiry::NEVER, Version::new(AT, client));
    let shards = [ShardId::new(0), ShardId::new(1)];
    let prepare = prepare();
    let body = Frame::parse(&prepare).and_then(|frame| Prepare::decode(&frame)).expect("just encoded").body;
    let (mut map, mut command) = (Vec::new(), Vec::new());
    map_of(2).encode(&mut map);
    MasterCommand::ListKeyspaces.encode(&mut command);
    let write = Write {
        txn: TXN,
        begin: AT,
        commit: AT,
        keyspace,
        action: WriteAction::Put,
        wait: true,
        return_previous: true,
        expires_at,
        condition: Condition::IfVersion(version),
        key,
        value: b"value",
    };
    let hello = Hello::new(Role::Client, ClusterId::new(3), client, "seed");
    let welcome =
        Welcome { protocol: PROTOCOL.1, cluster: ClusterId::new(3), client, now: AT, limits: Limits::OURS, map: &map };
    let written = Written {
        txn: TXN,
        commit: AT,
        verdict: Verdict::Later(AT),
        previous_present: true,
        previous_version: version,
        previous_expires_at: expires_at,
        previous_value: b"old",
    };
    let value = Value { version, expires_at, prepared_before: false, present: true, value: b"value" };
    let reason = timestone_types::AbortReason::of(timestone_types::AbortKind::ReadConflict);
    let mut page = Vec::new();
    let mut writer = ScanPageWriter::begin(&Envelope::default(), &mut page);
    assert!(writer.push(&ScanEntry { version, expires_at, key, value: b"value" }));
    writer.finish(5, false);
    let mut list = Vec::new();
    let mut writer = StatusListWriter::begin(&Envelope::default(), &mut list);
    assert!(writer.push("name", "value"));
    writer.finish();
    vec![
        ("hello", one(hello)),
        ("welcome", one(welcome)),
        ("get", one(Get { keyspace, at: ReadAt::Snapshot(AT), client, wait: true, key })),
        ("value", one(value)),
        ("write_set", one(WriteSet { txn: TXN, begin: AT, commit: AT, body })),
        ("prepare", prepare.clone()),
        ("write", one(write)),
        ("if_value", one(Write { condition: Condition::IfValue(b"old"), ..write })),
        ("written", one(written)),
        ("vote_no", one(Vote { txn: TXN, commit: AT, verdict: Verdict::No(reason) })),
        ("decide", one(Decide::new(TXN, Some(AT)))),
        ("terminate", one(Terminate { txn: TXN, begin: AT, commit: AT, participants: Shards::new(&shards) })),
        (
            "freeze",
            [one(Freeze { txn: TXN, begin: AT }), one(FreezeAnswer { txn: TXN, state: TxnState::Aborted })].concat(),
        ),
        ("report", one(Report { client, watermark: AT, acked: Sequence::new(1), closing: false })),
        ("scan", one(Scan { keyspace, cursor: 0, limit: 10, at: AT, client, with_values: true })),
        ("page", page),
        ("list", list),
        ("map", one(MapPush { map: &map })),
        ("master", one(MasterAsk { command: &command })),
        ("error", one(ErrorReply::new(ErrorCode::Busy, "later"))),
    ]
}

fn prepare() -> Vec<u8> {
    let shards = [ShardId::new(0), ShardId::new(1)];
    let mut out = Vec::new();
    let head = PrepareHead { txn: TXN, begin: AT, commit: AT, single: false, wait: true, participants: &shards };
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut out);
    let (keyspace, expires_at) = (KeyspaceId::DEFAULT, Expiry::NEVER);
    writer.read(&ReadEntry {
        keyspace,
        version: Version::new(AT, TXN.client),
        absent: false,
        expires_at,
        key: b"read",
    });
    writer.write(&WriteEntry { keyspace, kind: WriteKind::Put, expires_at, key: b"key", value: b"value" });
    writer.write(&WriteEntry { keyspace, kind: WriteKind::Fence, expires_at, key: b"", value: b"" });
    writer.finish();
    out
}

/// The first byte is the length of the pieces that the stream arrives in.
fn resp() -> Seeds {
    vec![
        ("multibulk", b"\x03*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*1\r\n$4\r\nPING\r\n".to_vec()),
        ("inline", b"\x00PING\r\nSET k \"a\\x41\\n b\" 'it\\'s'\r\n\r\n*0\r\n".to_vec()),
        ("broken", b"\x01*1\r\n:1\r\n".to_vec()),
    ]
}

fn map_of(shards: u16) -> ShardMap {
    let mut master = Master::create(ClusterId::new(3), shards).expect("a valid number of shards");
    let native = Some(Address::new("127.0.0.1:7400").expect("an address"));
    let addresses = ServerAddresses { native, resp: None, http: None };
    let (cluster, directory) = (ClusterId::ZERO, DirectoryId(9));
    master
        .step(MasterCommand::RegisterServer { cluster, directory, addresses, shards_wanted: shards })
        .expect("a free shard");
    master.map().clone()
}

/// The first byte says what follows: map, command, answer, state.
fn cluster() -> Seeds {
    let mut master = Master::create(ClusterId::new(3), 2).expect("a valid number of shards");
    let name = KeyspaceName::new("users").expect("a name");
    let create = MasterCommand::CreateKeyspace { name, options: KeyspaceOptions::DEFAULT };
    let (mut map, mut command, mut answer, mut state) = (vec![0], vec![1], vec![2], vec![3]);
    map_of(2).encode(&mut map);
    create.encode(&mut command);
    master.step(create).expect("a new keyspace").answer.encode(&mut answer);
    master.encode(&mut state);
    vec![("map", map), ("command", command), ("answer", answer), ("state", state)]
}

fn records() -> Vec<u8> {
    let frame = prepare();
    let body = Frame::parse(&frame).and_then(|frame| Prepare::decode(&frame)).expect("just encoded").body.bytes();
    let shards = [ShardId::new(0), ShardId::new(1)];
    let participants = Participants::new(&shards);
    let version = Version::new(AT, TXN.client);
    let mut out = Vec::new();
    LogRecord::Prepare { txn: TXN, begin: AT, commit: AT, single: false, participants, body }.encode(&mut out);
    LogRecord::Decision { txn: TXN, commit: AT, origin: DecisionOrigin::Client }.encode(&mut out);
    LogRecord::ReadBound { bound: AT, watermark: AT }.encode(&mut out);
    LogRecord::Outcome { txn: TXN, outcome: TxnOutcome::Aborted }.encode(&mut out);
    LogRecord::Fence { keyspace: KeyspaceId::DEFAULT, version }.encode(&mut out);
    LogRecord::KeepFrom { batch: BatchNumber::new(7) }.encode(&mut out);
    LogRecord::Other { kind: 64, bytes: b"other" }.encode(&mut out);
    out
}

/// The first byte says whether a block's header is put around the rest.
fn log_blocks() -> Seeds {
    let records = records();
    let entry = Entry::new(ShardId::new(1), BatchNumber::new(1), records.len() as u32, true, true);
    let payload = [&entry.to_bytes()[..], &records].concat();
    vec![("payload", [&[1], &payload[..]].concat()), ("raw", [&[0], &payload[..]].concat())]
}

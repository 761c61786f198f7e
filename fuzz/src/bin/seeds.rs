//! Writes the seed corpora: one small input for each thing a target knows. Run it after a layout
//! changed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool that writes files"
)]

use std::path::Path;

use timestone_cluster::{
    Address, DirectoryId, KeyspaceName, KeyspaceOptions, Master, MasterCommand, ReplicaClaim,
    ReplicaLoss, ReplicaStatus, Run, ServerAddresses, ServerId, ShardMap,
};
use timestone_replication::{Batch, JoinAnswer, Lineage, NumberSet, ReplicaId};
use timestone_types::{
    AbortKind, ClientId, ClusterId, Epoch, Expiry, HashSeed, KeyspaceId, PreviousFound, Sequence,
    ShardId, Timestamp, TxnId, Version,
};
use timestone_wal::block::Entry;
use timestone_wal::{BatchHead, BatchNumber, DecidedBy, LogRecord, Participants, RecordNumber};
use timestone_wire::*;

fn main() -> std::io::Result<()> {
    for (target, seeds) in [
        ("frame", frames()),
        ("resp", resp()),
        ("cluster", cluster()),
        ("log_block", log_blocks()),
        ("record", vec![("all", records())]),
        ("store_page", timestone_fuzz::store_seeds()),
        ("settings", settings()),
        ("script", script()),
        ("scenario", scenarios()),
        ("costs", costs()),
        ("history", histories()),
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
    let body = Frame::parse(&prepare)
        .and_then(|frame| Prepare::decode(&frame))
        .expect("just encoded")
        .body;
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
    let near = [ShardId::new(0), ShardId::new(2)];
    let welcome = Welcome {
        protocol: PROTOCOL.1,
        cluster: ClusterId::new(3),
        client,
        now: AT,
        limits: Limits::OURS,
        near: Shards::new(&near),
        map: &map,
    };
    let written = Written {
        txn: TXN,
        commit: AT,
        verdict: Verdict::Later(AT),
        previous_present: true,
        previous_version: version,
        previous_expires_at: expires_at,
        previous_value: b"old",
    };
    let value =
        Value { version, expires_at, prepared_before: false, present: true, value: b"value" };
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
        (
            "terminate",
            one(Terminate { txn: TXN, begin: AT, commit: AT, participants: Shards::new(&shards) }),
        ),
        (
            "freeze",
            [
                one(Freeze { txn: TXN, begin: AT }),
                one(FreezeAnswer { txn: TXN, state: TxnState::Aborted }),
            ]
            .concat(),
        ),
        (
            "report",
            one(Report { client, watermark: AT, acked: Sequence::new(1), now: AT, closing: false }),
        ),
        ("scan", one(Scan { keyspace, cursor: 0, limit: 10, at: AT, client, with_values: true })),
        ("page", page),
        ("list", list),
        ("map", one(MapPush { map: &map })),
        ("master", one(MasterAsk { command: &command })),
        ("error", one(ErrorReply::new(ErrorCode::Busy, "later"))),
        ("heartbeat", [one(Heartbeat { beat: b"beat" }), one(HeartbeatAck {})].concat()),
        (
            "checkpoint",
            [
                one(CheckpointAsk { from: ServerId::new(2), after: b"" }),
                one(CheckpointPart { last: false, cursor: b"cursor", part: b"part" }),
            ]
            .concat(),
        ),
        (
            "closed",
            [
                one(ClosedAsk { from: ServerId::new(2) }),
                one(ClosedIs { through: 7, at: Timestamp::from_nanos(9) }),
                one(WatermarkIs { at: Timestamp::from_nanos(9) }),
                one(GetAtBackup {
                    keyspace: KeyspaceId::DEFAULT,
                    at: Timestamp::from_nanos(9),
                    key: b"k",
                }),
            ]
            .concat(),
        ),
        ("replica_ask", replica_asks()),
        ("replica_answer", replica_answers()),
    ]
}

fn told(messages: Vec<Told>) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        encode_replica_message(&Envelope::default(), ReplicaId(2), &message, batch_bytes, &mut out);
    }
    out
}

const fn batch_bytes((): &()) -> BatchBytes<'_> {
    BatchBytes { first: RecordNumber::new(6), records: b"records" }
}

type Told = timestone_replication::Message<()>;

const EPOCH: Epoch = Epoch::new(3);

fn batch() -> Batch<()> {
    Batch { number: BatchNumber::new(4), epoch: Epoch::new(2), lease: AT, payload: () }
}

fn lineage() -> Lineage {
    let second = (Epoch::new(2), BatchNumber::new(1));
    Lineage::new(vec![(Epoch::ZERO, BatchNumber::ZERO), second]).expect("epochs rise")
}

fn replica_asks() -> Vec<u8> {
    let (counted, stable) = (BatchNumber::new(3), BatchNumber::new(1));
    told(vec![
        Told::Join { epoch: EPOCH },
        Told::Fetch { epoch: EPOCH, runs: vec![(stable, counted)] },
        Told::Install { epoch: EPOCH, based_on: lineage(), through: counted, floor: AT },
        Told::Append { epoch: EPOCH, counted, stable, batch: batch() },
        Told::Probe { epoch: EPOCH, counted, stable },
        Told::NeedsCheckpoint { epoch: EPOCH, held_above: stable },
    ])
}

fn replica_answers() -> Vec<u8> {
    let counted = BatchNumber::new(3);
    let run = (BatchNumber::new(5), BatchNumber::new(7));
    let durable = NumberSet::from_runs(counted, [run]);
    let received = Some(NumberSet::through(run.1));
    let answer = JoinAnswer {
        lineage: lineage(),
        lease: AT,
        has: durable.clone(),
        held_above: BatchNumber::new(1),
        void_since: None,
    };
    told(vec![
        Told::Joined { epoch: EPOCH, answer },
        Told::Fetched { epoch: EPOCH, batch: batch() },
        Told::Acked { epoch: EPOCH, installed: true, counted, session: 9, durable, received },
        Told::Refused { promised: EPOCH },
    ])
}

fn prepare() -> Vec<u8> {
    let shards = [ShardId::new(0), ShardId::new(1)];
    let mut out = Vec::new();
    let head = PrepareHead {
        txn: TXN,
        begin: AT,
        commit: AT,
        single: false,
        wait: true,
        participants: &shards,
    };
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, &mut out);
    let (keyspace, expires_at) = (KeyspaceId::DEFAULT, Expiry::NEVER);
    writer.read(&ReadEntry {
        keyspace,
        version: Version::new(AT, TXN.client),
        absent: false,
        expires_at,
        key: b"read",
    });
    writer.write(&WriteEntry {
        keyspace,
        kind: WriteKind::Put,
        expires_at,
        key: b"key",
        value: b"value",
    });
    writer.write(&WriteEntry {
        keyspace,
        kind: WriteKind::Fence,
        expires_at,
        key: b"",
        value: b"",
    });
    writer.finish();
    out
}

/// The first byte is the length of the pieces that the stream arrives in.
fn resp() -> Seeds {
    vec![
        (
            "multibulk",
            b"\x03*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*1\r\n$4\r\nPING\r\n".to_vec(),
        ),
        ("inline", b"\x00PING\r\nSET k \"a\\x41\\n b\" 'it\\'s'\r\n\r\n*0\r\n".to_vec()),
        ("broken", b"\x01*1\r\n:1\r\n".to_vec()),
    ]
}

fn map_of(shards: u16) -> ShardMap {
    let mut master =
        Master::create(ClusterId::new(3), shards, HashSeed(5)).expect("a valid number of shards");
    let native = Some(Address::new("127.0.0.1:7400").expect("an address"));
    let addresses = ServerAddresses { native, resp: None, http: None };
    let (cluster, directory) = (ClusterId::ZERO, DirectoryId(9));
    master
        .step(MasterCommand::RegisterServer {
            cluster,
            directory,
            run: Run { number: 1, tag: 1 },
            addresses,
            shards_wanted: shards,
        })
        .expect("a free shard");
    master.map().clone()
}

/// The first byte says what follows: map, command, answer, state, heartbeat.
fn cluster() -> Seeds {
    let mut master =
        Master::create(ClusterId::new(3), 2, HashSeed(5)).expect("a valid number of shards");
    let name = KeyspaceName::new("users").expect("a name");
    let create = MasterCommand::CreateKeyspace { name, options: KeyspaceOptions::DEFAULT };
    let (mut map, mut command, mut answer, mut state) = (vec![0], vec![1], vec![2], vec![3]);
    map_of(2).encode(&mut map);
    create.encode(&mut command);
    master.step(create).expect("a new keyspace").answer.encode(&mut answer);
    master.encode(&mut state);
    let mut beat = vec![4];
    let status = ReplicaStatus {
        shard: ShardId::new(1),
        promised: Epoch::new(3),
        claim: ReplicaClaim::Serves,
        installed: Epoch::new(3),
        loss: ReplicaLoss::VoidSince(Epoch::new(2)),
        lag_records: 5,
    };
    timestone_cluster::Heartbeat { server: ServerId::new(2), replicas: vec![status], asked: None }
        .encode(&mut beat);
    vec![
        ("map", map),
        ("command", command),
        ("answer", answer),
        ("state", state),
        ("heartbeat", beat),
    ]
}

fn records() -> Vec<u8> {
    let frame = prepare();
    let body = Frame::parse(&frame)
        .and_then(|frame| Prepare::decode(&frame))
        .expect("just encoded")
        .body
        .bytes();
    let shards = [ShardId::new(0), ShardId::new(1)];
    let participants = Participants::new(&shards);
    let mut out = Vec::new();
    let found = PreviousFound::Unasked;
    LogRecord::Prepare {
        txn: TXN,
        begin: AT,
        commit: AT,
        single: false,
        found,
        participants,
        body,
    }
    .encode(&mut out);
    let (begin, decided_by, met) = (AT, DecidedBy::Client, Timestamp::ZERO);
    LogRecord::Decision {
        txn: TXN,
        begin,
        commit: AT,
        decided_by,
        abort: None,
        found,
        met,
        participants,
    }
    .encode(&mut out);
    let (commit, abort, participants) =
        (Timestamp::ZERO, Some(AbortKind::Condition), Participants::new(&[]));
    let (found, met) = (PreviousFound::Present, AT);
    LogRecord::Decision { txn: TXN, begin, commit, decided_by, abort, found, met, participants }
        .encode(&mut out);
    LogRecord::ReadBound { bound: AT, watermark: AT }.encode(&mut out);
    LogRecord::KeepFrom { batch: BatchNumber::new(7) }.encode(&mut out);
    LogRecord::Other { kind: 64, bytes: b"other" }.encode(&mut out);
    out
}

/// The first byte says whether a block's header is put around the rest.
fn log_blocks() -> Seeds {
    let records = records();
    let (shard, batch) = (ShardId::new(1), BatchNumber::new(1));
    let head = BatchHead { shard, batch, epoch: Epoch::new(1), first: RecordNumber::FIRST };
    let entry = Entry::new(head, records.len() as u32, true, true);
    let payload = [&entry.to_bytes()[..], &records].concat();
    vec![("payload", [&[1], &payload[..]].concat()), ("raw", [&[0], &payload[..]].concat())]
}

fn settings() -> Seeds {
    let all = "data = \"a \\\"b\\\" \\\\c\"\nlisten = \"127.0.0.1:0\"\nresp = \"none\"\nhttp \
        = \"[::1]:7402\"\n\
        advertise = \"10.0.0.1:7400\"\nlog = \"none\"\ndevice = \"file\"\ncapacity \
        = \"20GiB\"\ncache = \"512 MB\"\n\
        shards = 2\nthreads = \"1\"\nlayout = \"staged\"\ncluster = \"blue\"\ncluster-shards = 6\n\
        master = \"timestone://127.0.0.1:7400\"\ninsecure = true\npin = \"no\"\nlog-filter = \
        'warn,timestone_server=debug'\n\
        log-format = \"json\"\n";
    let odd = "cache = 1.5e9\ndata = \"\"\"two\nlines\"\"\"\nshards = [1, 2]\ncluster = \
        2026-11-20T12:00:00Z\n";
    vec![
        ("all", all.as_bytes().to_vec()),
        ("odd", odd.as_bytes().to_vec()),
        ("unknown", b"cahce = \"64MiB\"\n".to_vec()),
    ]
}

fn script() -> Seeds {
    let all = "# why\nget a\nput 'b c' \"\\x00\\\"\\\\\\n\" expire 30s\nPUT d 1 expire \
        2026-11-20T12:00:00Z\r\n\
        if a = 1\nif a != \"\"\nif 'a' exists\nif a absent\ndelete a # gone\ncommit\n";
    vec![
        ("all", all.as_bytes().to_vec()),
        ("abort", b"set \xff ''\nrollback".to_vec()),
        ("moment", b"2m ago".to_vec()),
    ]
}

fn scenarios() -> Seeds {
    let all = "name = \"all\"\nabout = \"every table and key\"\n\
        [cluster]\nservers = 2\nshards = 1\nthreads = 2\nvary-threads = true\nlayout \
        = \"staged\"\ncores = 1\ntogether = true\n\
        clients = 3\nsessions = 1\nregions = 2\nclocks = \"5ms\"\njump = \"1.5s\"\nslowness = 2.0\n\
        [workload]\nkind = \"register\"\nrate = 10.0\nclosed = false\nkeys = 12\nzipf = 0.75\nops \
        = 3\nappends-per-key = 8\n\
        deletes = 10\nexternal = \"wait\"\ncanary = false\nseconds = 2.5\nwarmup = \"10ms\"\n\
        [storage]\nas-served = true\nlog = \"ssd\"\nblock-pages = 4\ncapacity-bytes = \
        1048576\ncache-bytes = 65536\n\
        checkpoint-bytes = 4096\npacking-delay = \"1ms\"\nsync-interval = \"20ms\"\nlog-file-bytes \
        = 65536\nlog-block-bytes = 4096\n\
        log-write = \"150us\"\nlog-change = \"2ms\"\nread = \"80us\"\ndecision-timeout \
        = \"1s\"\nshuffle = true\n\
        [network]\nnear = \"50us\"\nfar = \"30ms\"\njitter = 0.2\nrequest-timeout = \"250ms\"\n\
        [faults]\npower-cut = { every = \"2s\", lasting = \"300ms\" }\nkill = \
        { every = \"2m\" }\n[swarm]\ndraw = true\n";
    vec![
        ("all", all.as_bytes().to_vec()),
        ("swarm", include_bytes!("../../../scenarios/swarm.toml").to_vec()),
        ("wrong", b"[faults]\nkill = { every = \"1ns\" }\n".to_vec()),
    ]
}

/// The figures that come with the binary, and the same with one that is none.
fn costs() -> Seeds {
    let usual = include_str!("../../../crates/costmodel/costs.toml");
    vec![
        ("usual", usual.as_bytes().to_vec()),
        ("no-number", usual.replacen("turn = ", "turn = nan # ", 1).into_bytes()),
        ("too-much", usual.replacen("turn = ", "turn = 1e300 # ", 1).into_bytes()),
    ]
}

fn histories() -> Seeds {
    let event = |kind: &str, process: u32, value: &str| {
        format!("{{:type :{kind}, :process {process}, :f :txn, :value [{value}]}}\n")
    };
    let txn = |process, begin: &str, end: &str| {
        event("invoke", process, begin) + &event("ok", process, end)
    };
    let lists = txn(0, "[:append 1 1] [:r 2 nil]", "[:append 1 1] [:r 2 []]")
        + &txn(1, "[:r 1 nil] [:append 2 1]", "[:r 1 [1]] [:append 2 1]")
        + &event("invoke", 0, "[:append 1 2]")
        + "{:process 0, :type :info, :f :txn, :value nil, :index 9, :time 7, :error \
            [:timeout \"x\"]}\n";
    let registers =
        txn(0, "[:w 1 1]", "[:w 1 1]") + &txn(1, "[:r 1 nil] [:w 1 nil]", "[:r 1 1] [:w 1 nil]");
    let skew = txn(0, "[:r 1 nil] [:w 2 1]", "[:r 1 nil] [:w 2 1]")
        + &txn(1, "[:r 2 nil] [:w 1 1]", "[:r 2 nil] [:w 1 1]");
    let other = "; a comment\n{:type :info, :process :nemesis, :f :kill, :value nil}\n\
        #jepsen.history.Op{:process 3, :f :txn, :type :fail, :value nil}\n{:process +4N :f :txn :type :ok :value ([:r 9 (1)])}\n";
    vec![
        ("lists", lists.into_bytes()),
        ("registers", registers.into_bytes()),
        ("skew", skew.into_bytes()),
        ("other", other.as_bytes().to_vec()),
    ]
}

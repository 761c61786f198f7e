//! Random messages of every kind from a seed, encoded.

use timestone_cluster::{
    MapVersion, MasterAnswer, MasterCommand, ServerAddresses, ServerId, ServerInfo, ShardMap,
};
use timestone_replication::ReplicaId;
use timestone_types::random::{Dice, Seed};
use timestone_types::{
    AbortKind, AbortReason, ClientId, ClusterId, Direction, Epoch, Expiry, KeyspaceId, Sequence,
    ShardId, Timestamp, TxnId, Version,
};
use timestone_wire::*;

use crate::replica;

/// Enough randomness for shapes; every failure names its seed.
pub(crate) struct Source(Dice);

impl Source {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Seed(seed).dice())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.roll()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(crate) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn text(&mut self, most: usize) -> String {
        let length = self.below(most + 1);
        (0..length).map(|_| ['a', 'é', '7', '漢', ' '][self.below(5)]).collect()
    }

    pub(crate) fn time(&mut self) -> Timestamp {
        match self.below(8) {
            0 => Timestamp::ZERO,
            1 => Timestamp::MAX,
            _ => Timestamp::from_nanos(self.next()),
        }
    }

    pub(crate) fn txn(&mut self) -> TxnId {
        TxnId::new(ClientId::new(self.next() as u32 | 1), Sequence::new(self.next()))
    }

    pub(crate) fn version(&mut self) -> Version {
        Version::new(self.time(), ClientId::new(self.next() as u32))
    }

    pub(crate) fn keyspace(&mut self) -> KeyspaceId {
        KeyspaceId::new(self.next() as u32)
    }

    pub(crate) fn client(&mut self) -> ClientId {
        ClientId::new(self.next() as u32)
    }

    pub(crate) fn envelope(&mut self) -> Envelope {
        Envelope {
            shard: ShardId::new(self.next() as u16),
            epoch: Epoch::new(self.next() as u32),
            request: RequestId::new(self.next()),
            map_version: MapVersion::new(self.next() as u32),
        }
    }

    pub(crate) fn verdict(&mut self) -> Verdict {
        match self.below(3) {
            0 => Verdict::Yes,
            1 => Verdict::Later(self.time()),
            _ => Verdict::No(AbortReason {
                kind: AbortKind::ALL[self.below(AbortKind::ALL.len())],
                item: self.flag().then_some(7),
                other: self.flag().then(|| self.txn()),
                at: self.time(),
            }),
        }
    }

    pub(crate) fn state(&mut self) -> TxnState {
        match self.below(5) {
            0 => TxnState::Unknown,
            1 => TxnState::Prepared(self.time()),
            2 => TxnState::Committed(self.time()),
            3 => TxnState::Forgotten,
            _ => TxnState::Aborted,
        }
    }

    pub(crate) fn shards(&mut self) -> Vec<ShardId> {
        let length = self.below(6);
        (0..length).map(|_| ShardId::new(self.next() as u16)).collect()
    }

    pub(crate) fn map_bytes(&mut self) -> Vec<u8> {
        let server = ServerInfo {
            id: ServerId::new(1),
            directory: timestone_cluster::DirectoryId(self.next()),
            addresses: ServerAddresses::IN_PROCESS,
        };
        let shards = 1 + self.below(9) as u16;
        let map = ShardMap::single(ClusterId::new(self.next()), server, shards).unwrap();
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        bytes
    }
}

type OwnedRead = (KeyspaceId, Version, bool, Expiry, Vec<u8>);
type OwnedWrite = (KeyspaceId, WriteKind, Expiry, Vec<u8>, Vec<u8>);

/// What a prepare was built from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sets {
    pub reads: Vec<OwnedRead>,
    pub writes: Vec<OwnedWrite>,
}

impl Sets {
    pub(crate) fn random(source: &mut Source) -> Self {
        let reads = (0..source.below(5)).map(|_| {
            let expiry = Expiry::at(source.time());
            (source.keyspace(), source.version(), source.flag(), expiry, source.bytes(40))
        });
        let reads = reads.collect();
        let writes = (0..source.below(5)).map(|_| {
            let expiry = Expiry::at(source.time());
            match source.below(4) {
                0 => (source.keyspace(), WriteKind::Fence, Expiry::NEVER, vec![], vec![]),
                1 => {
                    (source.keyspace(), WriteKind::Delete, Expiry::NEVER, source.bytes(40), vec![])
                }
                _ => {
                    (source.keyspace(), WriteKind::Put, expiry, source.bytes(40), source.bytes(300))
                }
            }
        });
        Self { reads, writes: writes.collect() }
    }

    pub(crate) fn write(&self, envelope: &Envelope, head: &PrepareHead<'_>, out: &mut Vec<u8>) {
        self.write_with(envelope, head, RangeEntries::EMPTY, out);
    }

    fn write_with(
        &self,
        envelope: &Envelope,
        head: &PrepareHead<'_>,
        ranges: RangeEntries<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut writer = PrepareWriter::begin_with(envelope, head, ranges, out);
        for (keyspace, version, absent, expires_at, key) in &self.reads {
            let (keyspace, version, absent, expires_at) =
                (*keyspace, *version, *absent, *expires_at);
            writer.read(&ReadEntry { keyspace, version, absent, expires_at, key });
        }
        for (keyspace, kind, expires_at, key, value) in &self.writes {
            writer.write(&WriteEntry {
                keyspace: *keyspace,
                kind: *kind,
                expires_at: *expires_at,
                key,
                value,
            });
        }
        writer.finish();
    }

    pub(crate) fn of(body: &PrepareBody<'_>) -> Self {
        let reads = body.reads().map(|read| {
            (read.keyspace, read.version, read.absent, read.expires_at, read.key.to_vec())
        });
        let writes = body.writes().map(|write| {
            (write.keyspace, write.kind, write.expires_at, write.key.to_vec(), write.value.to_vec())
        });
        Self { reads: reads.collect(), writes: writes.collect() }
    }
}

fn prepare(source: &mut Source, envelope: &Envelope, out: &mut Vec<u8>) -> Sets {
    let participants = source.shards();
    let sets = Sets::random(source);
    let head = PrepareHead {
        txn: source.txn(),
        begin: source.time(),
        commit: source.time(),
        single: source.flag(),
        wait: source.flag(),
        participants: &participants,
    };
    sets.write(envelope, &head, out);
    sets
}

/// At least one range.
fn ranges(source: &mut Source) -> RangeListWriter {
    let mut list = RangeListWriter::default();
    for _ in 0..1 + source.below(3) {
        let (from, to) = (source.bytes(20), source.flag().then(|| source.bytes(20)));
        let (keyspace, expires_at) = (source.keyspace(), Expiry::at(source.time()));
        list.push(&RangeEntry { keyspace, expires_at, from: &from, to: to.as_deref() });
    }
    list
}

/// A random message of a kind, encoded as one frame at the end of `out`.
pub(crate) fn encode(kind: Kind, seed: u64, out: &mut Vec<u8>) {
    let source = &mut Source::new(seed);
    let to = &source.envelope();
    let (txn, at, keyspace, client) =
        (source.txn(), source.time(), source.keyspace(), source.client());
    let (short, long, flag) = (source.bytes(60), source.bytes(600), source.flag());
    match kind {
        Kind::Hello => {
            let role = [Role::Client, Role::Server, Role::Tool][source.below(3)];
            Hello::new(role, ClusterId::new(source.next()), client, &source.text(20))
                .encode(to, out);
        }
        Kind::Get => {
            let at = if flag { ReadAt::Snapshot(at) } else { ReadAt::Latest(at) };
            Get { keyspace, at, client, wait: source.flag(), key: &short }.encode(to, out);
        }
        Kind::Prepare => drop(prepare(source, to, out)),
        Kind::Write => {
            let expected = source.bytes(50);
            let version = source.version();
            let conditions = [
                Condition::Always,
                Condition::IfAbsent,
                Condition::IfPresent,
                Condition::IfVersion(version),
                Condition::IfValue(&expected),
            ];
            let condition = conditions[source.below(5)];
            let action = [WriteAction::Put, WriteAction::PutKeepExpiry, WriteAction::Delete]
                [source.below(3)];
            let (begin, commit, wait, return_previous) =
                (source.time(), source.time(), source.flag(), source.flag());
            let expires_at = Expiry::at(at);
            let (key, value) = (&short[..], &long[..]);
            Write {
                txn,
                begin,
                commit,
                keyspace,
                action,
                wait,
                return_previous,
                expires_at,
                condition,
                key,
                value,
            }
            .encode(to, out);
        }
        Kind::Decide => Decide::new(txn, flag.then_some(at)).encode(to, out),
        Kind::Status => Status { txn }.encode(to, out),
        Kind::Terminate => {
            let shards = source.shards();
            Terminate { txn, begin: at, commit: source.time(), participants: Shards::new(&shards) }
                .encode(to, out);
        }
        Kind::Freeze => Freeze { txn, begin: at }.encode(to, out),
        Kind::FetchWriteSet => FetchWriteSet { txn, commit: at }.encode(to, out),
        Kind::Forget => Forget { txn }.encode(to, out),
        Kind::Report => {
            let acked = Sequence::new(source.next());
            Report { client, watermark: at, acked, now: source.time(), closing: flag }
                .encode(to, out);
        }
        Kind::Scan => {
            Scan { keyspace, cursor: source.next(), limit: 10, at, client, with_values: flag }
                .encode(to, out);
        }
        Kind::Count => Count { keyspace, at, client }.encode(to, out),
        Kind::Newest => Newest { keyspace }.encode(to, out),
        Kind::ShardStats => ShardStats {}.encode(to, out),
        Kind::NodeStatus => NodeStatus {}.encode(to, out),
        Kind::MapPull => MapPull {}.encode(to, out),
        Kind::MapPush => MapPush { map: &source.map_bytes() }.encode(to, out),
        Kind::MasterAsk => {
            let mut command = Vec::new();
            MasterCommand::RegisterClient { count: 1 + source.below(9) as u32 }
                .encode(&mut command);
            MasterAsk { command: &command }.encode(to, out);
        }
        Kind::Ping => Ping {}.encode(to, out),
        Kind::ReplicaAsk | Kind::ReplicaAnswer => {
            let message = replica::message(source, kind);
            replica::encode(to, ReplicaId(source.next() as u32), &message, out);
        }
        Kind::Heartbeat => Heartbeat { beat: &long }.encode(to, out),
        Kind::CheckpointAsk => {
            let from = ServerId::new(source.next() as u32);
            CheckpointAsk { from, after: if flag { &short[..] } else { &[] } }.encode(to, out);
        }
        Kind::ClosedAsk => ClosedAsk { from: ServerId::new(source.next() as u32) }.encode(to, out),
        Kind::GetAtBackup => GetAtBackup { keyspace, at, key: &short }.encode(to, out),
        Kind::Range | Kind::RangeDown => {
            let end = if flag { source.bytes(20) } else { Vec::new() };
            let direction =
                if kind == Kind::Range { Direction::Ascending } else { Direction::Descending };
            Range { keyspace, at, client, limit: 10, has_end: flag, from: &short, to: &end }
                .encode_in(direction, to, out);
        }
        Kind::PrepareRanges => {
            let ranges = ranges(source);
            let sets = Sets::random(source);
            let participants = source.shards();
            let head = PrepareHead {
                txn,
                begin: at,
                commit: source.time(),
                single: flag,
                wait: source.flag(),
                participants: &participants,
            };
            sets.write_with(to, &head, ranges.entries(), out);
        }
        Kind::RangePage => {
            let next = source.flag().then(|| source.bytes(30));
            let mut page = RangePageWriter::begin(to, next.as_deref(), out);
            for _ in 0..source.below(5) {
                let (key, version) = (source.bytes(30), source.version());
                let expires_at = Expiry::at(source.time());
                assert!(page.push(&ScanEntry { version, expires_at, key: &key, value: &[] }));
            }
            page.finish();
        }
        Kind::WatermarkIs => WatermarkIs { at }.encode(to, out),
        Kind::ClosedIs => ClosedIs { through: source.next(), at }.encode(to, out),
        Kind::HeartbeatAck => HeartbeatAck {}.encode(to, out),
        Kind::CheckpointPart => {
            CheckpointPart { last: flag, cursor: &short, part: &long }.encode(to, out);
        }
        Kind::Welcome => {
            let (cluster, map) = (ClusterId::new(source.next()), source.map_bytes());
            let near = source.shards();
            Welcome {
                protocol: PROTOCOL.1,
                cluster,
                client,
                now: at,
                limits: Limits::OURS,
                near: Shards::new(&near),
                map: &map,
            }
            .encode(to, out);
        }
        Kind::Value => {
            let (version, expires_at) = (source.version(), Expiry::at(at));
            Value {
                version,
                expires_at,
                prepared_before: flag,
                present: source.flag(),
                value: &long,
            }
            .encode(to, out);
        }
        Kind::Vote => Vote { txn, commit: at, verdict: source.verdict() }.encode(to, out),
        Kind::Written => Written {
            txn,
            commit: at,
            verdict: source.verdict(),
            previous_present: flag,
            previous_version: source.version(),
            previous_expires_at: Expiry::at(source.time()),
            previous_value: &long,
        }
        .encode(to, out),
        Kind::DecideAck => DecideAck { txn }.encode(to, out),
        Kind::StatusIs => StatusIs { txn, state: source.state() }.encode(to, out),
        Kind::FreezeAnswer => FreezeAnswer { txn, state: source.state() }.encode(to, out),
        Kind::WriteSet => {
            let mut frame = Vec::new();
            prepare(source, to, &mut frame);
            let prepare = Prepare::decode(&Frame::parse(&frame).unwrap()).unwrap();
            WriteSet { txn, begin: at, commit: source.time(), body: prepare.body }.encode(to, out);
        }
        Kind::ScanPage => {
            let mut page = ScanPageWriter::begin(to, out);
            for _ in 0..source.below(5) {
                let (key, value) = (source.bytes(30), source.bytes(100));
                let (version, expires_at) = (source.version(), Expiry::at(source.time()));
                assert!(page.push(&ScanEntry { version, expires_at, key: &key, value: &value }));
            }
            page.finish(source.next(), flag);
        }
        Kind::Counted => Counted { keys: source.next() }.encode(to, out),
        Kind::NewestIs => NewestIs { at }.encode(to, out),
        Kind::Scrub => Scrub {}.encode(to, out),
        Kind::Scrubbed => Scrubbed {
            pages: source.next(),
            records: source.next(),
            corrupt_pages: source.next(),
            corrupt_records: source.next(),
        }
        .encode(to, out),
        Kind::ClockIs => ClockIs { now: at, error_ns: source.next() }.encode(to, out),
        Kind::StatusList => {
            let mut list = StatusListWriter::begin(to, out);
            for _ in 0..source.below(5) {
                assert!(list.push(&source.text(10), &source.text(30)));
            }
            list.finish();
        }
        Kind::MapIs => MapIs { map: &source.map_bytes() }.encode(to, out),
        Kind::MasterReply => {
            let mut answer = Vec::new();
            MasterAnswer::Dropped { id: keyspace }.encode(&mut answer);
            MasterReply { answer: &answer }.encode(to, out);
        }
        Kind::Done => Done {}.encode(to, out),
        Kind::ErrorReply => {
            let code = ErrorCode::ALL[source.below(ErrorCode::ALL.len())];
            let other = flag.then_some(txn);
            let (retry_after_ns, detail, message) = (source.next(), source.next(), source.text(50));
            ErrorReply { code, retry_after_ns, detail, other, message: &message }.encode(to, out);
        }
    }
}

/// Decodes a frame by its kind and encodes what was read again.
pub(crate) fn encode_again(frame: &Frame<'_>) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    recode(frame, &mut out).map(|()| out)
}

//! A server for tests: blocking sockets, a thread per connection, all keys in one map under one
//! lock, transactions validated by version.
//!
//! It speaks real frames, so that what is tested is the client: greeting, routing, losses, retries,
//! errors. Several of them share what they know, as if every record were at all of them, and serve the
//! shards that the map gives them.

use std::collections::BTreeMap;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use timestone_cluster::{
    Address, ClientIdBlock, DirectoryId, IndexKind, Keyspace, MasterAnswer, MasterCommand,
    ServerAddresses, ServerId, ServerInfo, ShardMap,
};
use timestone_types::{
    AbortKind, AbortReason, ClientId, ClusterId, Direction, Epoch, Expiry, KeyspaceId, ShardId,
    Timestamp, TxnId, Version, slot_of,
};
use timestone_wire as wire;
use wire::{Condition, Envelope, ErrorCode, ErrorReply, Frame, Kind, Message, Verdict};

type Key = (KeyspaceId, Vec<u8>);
type Entry = (Version, Option<Vec<u8>>);
type Writes = Vec<(Key, Option<Vec<u8>>)>;

#[derive(Default)]
struct Data {
    keys: BTreeMap<Key, Entry>,
    prepared: BTreeMap<(TxnId, ShardId), Writes>,
    answers: BTreeMap<TxnId, Vec<u8>>,
    votes: BTreeMap<(TxnId, ShardId, Timestamp), Verdict>,
    keyspaces: Vec<Keyspace>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    id: ServerId,
    data: Arc<Mutex<Data>>,
    /// The newest map, which each of them tells to who asks.
    map: Arc<Mutex<ShardMap>>,
    connections: Mutex<Vec<TcpStream>>,
    /// It is dead: whoever comes is hung up on.
    dead: AtomicBool,
    /// Shards of the map that are its own are not served yet.
    pub(crate) idle: AtomicBool,
    /// How often it was asked for its map.
    pub(crate) pulls: AtomicU32,
    pub(crate) hellos: AtomicU32,
    next_client: AtomicU32,
    /// Under which ids it was greeted.
    pub(crate) greeted: Mutex<Vec<ClientId>>,
    /// Sessions that it has ended: those of clients up to this one.
    pub(crate) ended: AtomicU32,
    next_stamp: AtomicU32,
    /// Of the commits that are asked next, so many are refused as conflicts.
    pub(crate) conflicts: AtomicU32,
    /// Hellos are refused.
    pub(crate) unfriendly: AtomicBool,
    /// Threads that it says it has; connections are theirs in turn, shards too.
    pub(crate) threads: AtomicU32,
    /// Requests that came over a connection which is not near their shard.
    pub(crate) far: AtomicU32,
    /// Requests are read and never answered.
    pub(crate) deaf: AtomicBool,
    /// The highest version of the protocol that it speaks.
    pub(crate) protocol: AtomicU16,
}

impl Server {
    pub(crate) fn start() -> Arc<Self> {
        Self::cluster(1, 3).remove(0)
    }

    /// So many servers; the first of them is primary of all shards.
    pub(crate) fn cluster(servers: u32, shards: u16) -> Vec<Arc<Self>> {
        let listen = |_| TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<_> = (0..servers).map(listen).collect();
        let infos: Vec<_> = listeners.iter().zip(1..).map(info_of).collect();
        let map = ShardMap::single(ClusterId::new(77), infos[0].clone(), shards).unwrap();
        let mut entries = map.shards().to_vec();
        if servers > 1 {
            let all = infos.iter().map(|info| info.id).collect::<Vec<_>>();
            entries.iter_mut().for_each(|entry| entry.replicas.clone_from(&all));
        }
        let map = ShardMap::new(map.cluster(), map.version(), infos.clone(), entries).unwrap();
        let map = Arc::new(Mutex::new(map));
        let data = Data { keyspaces: vec![Keyspace::default_keyspace()], ..Data::default() };
        let data = Arc::new(Mutex::new(data));
        let start = |(listener, info): (TcpListener, ServerInfo)| {
            Self::serve_at(listener, info.id, Arc::clone(&map), Arc::clone(&data))
        };
        listeners.into_iter().zip(infos).map(start).collect()
    }

    fn serve_at(
        listener: TcpListener,
        id: ServerId,
        map: Arc<Mutex<ShardMap>>,
        data: Arc<Mutex<Data>>,
    ) -> Arc<Self> {
        let server = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            id,
            data,
            map,
            connections: Mutex::default(),
            dead: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            pulls: AtomicU32::new(0),
            hellos: AtomicU32::new(0),
            next_client: AtomicU32::new(id.get()),
            greeted: Mutex::default(),
            ended: AtomicU32::new(0),
            next_stamp: AtomicU32::new(1),
            conflicts: AtomicU32::new(0),
            unfriendly: AtomicBool::new(false),
            threads: AtomicU32::new(1),
            far: AtomicU32::new(0),
            deaf: AtomicBool::new(false),
            protocol: AtomicU16::new(wire::PROTOCOL.1.0),
        });
        let accepting = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepting.connections.lock().unwrap().push(stream.try_clone().unwrap());
                if accepting.dead.load(Ordering::SeqCst) {
                    accepting.hang_up();
                    continue;
                }
                let serving = Arc::clone(&accepting);
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        server
    }

    /// It serves nobody any more.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.hang_up();
    }

    /// It serves whoever comes.
    pub(crate) fn come_back(&self) {
        self.dead.store(false, Ordering::SeqCst);
    }

    /// The newest map has all shards at this server, in a higher epoch.
    pub(crate) fn take_over(&self) {
        let mut map = self.map.lock().unwrap();
        let mut entries = map.shards().to_vec();
        for entry in &mut entries {
            (entry.primary, entry.epoch) = (self.id, Epoch::new(entry.epoch.get() + 1));
            entry.replicas.sort_by_key(|&server| server != self.id);
        }
        let version = timestone_cluster::MapVersion::new(map.version().get() + 1);
        let servers = map.servers().to_vec();
        *map = ShardMap::new(map.cluster(), version, servers, entries).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("timestone://{}", self.address)
    }

    /// Breaks every connection.
    pub(crate) fn hang_up(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Breaks the connection that was made last.
    pub(crate) fn hang_up_newest(&self) {
        if let Some(stream) = self.connections.lock().unwrap().pop() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let (mut received, mut chunk) = (Vec::new(), [0; 65536]);
        let mut near = Vec::new();
        loop {
            match stream.read(&mut chunk) {
                Ok(bytes) if bytes > 0 => received.extend_from_slice(&chunk[..bytes]),
                _ => return,
            }
            let (mut taken, mut out) = (0, Vec::new());
            while let Some((frame, rest)) = Frame::split(&received[taken..]).unwrap() {
                self.answer(&frame, &mut near, &mut out);
                taken = received.len() - rest.len();
            }
            received.drain(..taken);
            if !self.deaf.load(Ordering::SeqCst) && stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    fn answer(&self, frame: &Frame<'_>, near: &mut Vec<ShardId>, out: &mut Vec<u8>) {
        let map = self.map.lock().unwrap().clone();
        let shard = frame.envelope().shard;
        let entry = map.shards().iter().find(|entry| entry.id == shard);
        let epoch = entry.map_or(Epoch::ZERO, |entry| entry.epoch);
        let envelope = frame.reply_envelope(epoch, map.version());
        if self.refuses(frame, &map, &envelope, out) {
            return;
        }
        let is_asked_of_shard =
            matches!(frame.kind(), Kind::Get | Kind::Write | Kind::Prepare | Kind::Decide);
        if is_asked_of_shard && !near.contains(&envelope.shard) {
            self.far.fetch_add(1, Ordering::SeqCst);
        }
        match frame.kind() {
            Kind::Hello => {
                self.greet(&map, &wire::Hello::first(frame).unwrap(), near, &envelope, out);
            }
            Kind::MapPull => {
                self.pulls.fetch_add(1, Ordering::SeqCst);
                let mut bytes = Vec::new();
                map.encode(&mut bytes);
                wire::MapIs { map: &bytes }.encode(&envelope, out);
            }
            Kind::Get => self.get(&wire::Get::decode(frame).unwrap(), &envelope, out),
            Kind::Write => {
                let write = wire::Write::decode(frame).unwrap();
                if write.txn.client.get() <= self.ended.load(Ordering::SeqCst) {
                    return ErrorReply::new(ErrorCode::SessionEnded, "begin another one")
                        .encode(&envelope, out);
                }
                self.write(&write, &envelope, out);
            }
            Kind::Range | Kind::RangeDown => {
                self.assert_knows(frame);
                let (range, direction) = wire::Range::decode_any(frame).unwrap();
                self.range(&range, direction, &map, &envelope, out);
            }
            Kind::Prepare | Kind::PrepareRanges => {
                if frame.kind() == Kind::PrepareRanges {
                    self.assert_knows(frame);
                }
                self.prepare(&wire::Prepare::decode_any(frame).unwrap().0, &envelope, out);
            }
            Kind::Decide => {
                let decide = wire::Decide::decode(frame).unwrap();
                let mut data = self.data.lock().unwrap();
                if let (Some(at), Some(writes)) =
                    (decide.decision(), data.prepared.remove(&(decide.txn, envelope.shard)))
                {
                    apply(&mut data, Version::new(at, decide.txn.client), writes);
                }
                wire::DecideAck { txn: decide.txn }.encode(&envelope, out);
            }
            Kind::Status => {
                let txn = wire::Status::decode(frame).unwrap().txn;
                wire::StatusIs { txn, state: wire::TxnState::Unknown }.encode(&envelope, out);
            }
            Kind::MasterAsk => self.master(
                &wire::MasterAsk::decode(frame).unwrap().master_command().unwrap(),
                &envelope,
                out,
            ),
            Kind::Report => {}
            Kind::Ping => wire::Done {}.encode(&envelope, out),
            other => panic!("the client never sends {}", other.name()),
        }
    }

    /// Whether it does not serve the shard that a frame is for, or not in that epoch.
    fn refuses(
        &self,
        frame: &Frame<'_>,
        map: &ShardMap,
        envelope: &Envelope,
        out: &mut Vec<u8>,
    ) -> bool {
        use Kind::{
            Decide, Get, Ping, Prepare, PrepareRanges, Range, RangeDown, Report, Status, Write,
        };
        let is_of_shard = matches!(
            frame.kind(),
            Get | Range
                | RangeDown
                | Write
                | Prepare
                | PrepareRanges
                | Decide
                | Status
                | Ping
                | Report
        );
        if !is_of_shard {
            return false;
        }
        let code = if map.primary(envelope.shard).map(|server| server.id) != Some(self.id) {
            ErrorCode::WrongShard
        } else if frame.envelope().epoch != envelope.epoch {
            ErrorCode::StaleEpoch
        } else if self.idle.load(Ordering::SeqCst) {
            ErrorCode::Unavailable
        } else {
            return false;
        };
        if frame.kind() != Report {
            ErrorReply::new(code, "not here, or not yet").encode(envelope, out);
        }
        true
    }

    fn greet(
        &self,
        shard_map: &ShardMap,
        hello: &wire::Hello<'_>,
        near: &mut Vec<ShardId>,
        envelope: &Envelope,
        out: &mut Vec<u8>,
    ) {
        let turn = self.hellos.fetch_add(1, Ordering::SeqCst);
        self.greeted.lock().unwrap().push(hello.client);
        let threads = self.threads.load(Ordering::SeqCst);
        let of_turn = |shard: &ShardId| u32::from(shard.get()) % threads == turn % threads;
        near.extend(shard_map.shards().iter().map(|shard| shard.id).filter(of_turn));
        if self.unfriendly.load(Ordering::SeqCst) {
            return ErrorReply::new(ErrorCode::NotAllowed, "this server serves nobody")
                .encode(envelope, out);
        }
        let fresh = || ClientId::new(self.next_client.fetch_add(1, Ordering::SeqCst));
        let client = if hello.client == ClientId::ZERO { fresh() } else { hello.client };
        let newest = wire::ProtocolVersion(self.protocol.load(Ordering::SeqCst));
        let (mut map, protocol) = (Vec::new(), hello.negotiate().unwrap().min(newest));
        shard_map.encode(&mut map);
        let (cluster, now) = (shard_map.cluster(), Timestamp::from_nanos(1));
        let welcome = wire::Welcome {
            protocol,
            cluster,
            client,
            now,
            limits: wire::Limits::OURS,
            near: wire::Shards::new(near),
            map: &map,
        };
        welcome.encode(envelope, out);
    }

    fn get(&self, get: &wire::Get<'_>, envelope: &Envelope, out: &mut Vec<u8>) {
        let data = self.data.lock().unwrap();
        let entry = data.keys.get(&(get.keyspace, get.key.to_vec()));
        let (version, value) =
            entry.map_or((Version::ZERO, None), |(version, value)| (*version, value.as_deref()));
        let value = wire::Value {
            version,
            expires_at: Expiry::NEVER,
            prepared_before: false,
            present: value.is_some(),
            value: value.unwrap_or_default(),
        };
        value.encode(envelope, out);
    }

    /// It is new enough for ranges; an older one would end the connection.
    fn assert_knows(&self, frame: &Frame<'_>) {
        let newest = self.protocol.load(Ordering::SeqCst);
        let needed = match frame.kind() {
            Kind::RangeDown => wire::READS_DOWNWARDS,
            _ => wire::READS_RANGES,
        };
        assert!(newest >= needed.0, "it does not know {}", frame.kind().name());
    }

    /// All keys of a range that are its shard's, in one page.
    fn range(
        &self,
        range: &wire::Range<'_>,
        direction: Direction,
        map: &ShardMap,
        envelope: &Envelope,
        out: &mut Vec<u8>,
    ) {
        let data = self.data.lock().unwrap();
        let mut page = wire::RangePageWriter::begin(envelope, None, out);
        let mut entries: Vec<_> = data.keys.iter().collect();
        entries.sort_by(|((_, one), _), ((_, other), _)| direction.compare(one, other));
        for ((keyspace, key), (version, value)) in entries {
            let is_inside = *keyspace == range.keyspace
                && key.as_slice() >= range.from
                && range.end().is_none_or(|end| key.as_slice() < end)
                && map.shard_of(slot_of(key)) == envelope.shard;
            if is_inside && value.is_some() {
                let (version, expires_at) = (*version, Expiry::NEVER);
                assert!(page.push(&wire::ScanEntry { version, expires_at, key, value: &[] }));
            }
        }
        page.finish();
    }

    fn write(&self, write: &wire::Write<'_>, envelope: &Envelope, out: &mut Vec<u8>) {
        let mut data = self.data.lock().unwrap();
        if let Some(answer) = data.answers.get(&write.txn) {
            return wire::Written::decode(&Frame::parse(answer).unwrap())
                .unwrap()
                .encode(envelope, out);
        }
        let key = (write.keyspace, write.key.to_vec());
        let (previous_version, previous) =
            data.keys.get(&key).cloned().unwrap_or((Version::ZERO, None));
        let holds = match write.condition {
            Condition::Always => true,
            Condition::IfAbsent => previous.is_none(),
            Condition::IfPresent => previous.is_some(),
            Condition::IfVersion(version) => previous_version == version,
            Condition::IfValue(value) => previous.as_deref() == Some(value),
        };
        let verdict =
            if holds { Verdict::Yes } else { Verdict::No(AbortReason::of(AbortKind::Condition)) };
        if holds {
            let newest = self.protocol.load(Ordering::SeqCst);
            let is_placed = write.action == wire::WriteAction::PutFrom;
            assert!(!is_placed || newest >= wire::PLACES_PUTS.0, "it chooses no timestamps");
            let value = (write.action != wire::WriteAction::Delete).then(|| write.value.to_vec());
            apply(&mut data, Version::new(write.commit, write.txn.client), vec![(key, value)]);
        }
        let mut answer = Vec::new();
        let written = wire::Written {
            txn: write.txn,
            commit: write.commit,
            verdict,
            previous_present: previous.is_some(),
            previous_version,
            previous_expires_at: Expiry::NEVER,
            previous_value: previous
                .as_deref()
                .filter(|_| write.return_previous)
                .unwrap_or_default(),
        };
        written.encode(envelope, &mut answer);
        out.extend_from_slice(&answer);
        data.answers.insert(write.txn, answer);
    }

    fn prepare(&self, prepare: &wire::Prepare<'_>, envelope: &Envelope, out: &mut Vec<u8>) {
        let mut data = self.data.lock().unwrap();
        let name = (prepare.txn, envelope.shard, prepare.commit);
        if let Some(&verdict) = data.votes.get(&name) {
            let (txn, commit) = (prepare.txn, prepare.commit);
            return wire::Vote { txn, commit, verdict }.encode(envelope, out);
        }
        let is_prepared = |key: &Key| {
            let others = data.prepared.iter().filter(|((txn, _), _)| *txn != prepare.txn);
            others.flat_map(|(_, writes)| writes).any(|(written, _)| written == key)
        };
        let stale = prepare.body.reads().position(|read| {
            let key = (read.keyspace, read.key.to_vec());
            let latest = data.keys.get(&key).map_or(Version::ZERO, |entry| entry.0);
            latest != read.version || is_prepared(&key)
        });
        let refused = self
            .conflicts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        let verdict = match stale.or(refused.then_some(0)) {
            Some(item) => {
                let other =
                    Some(TxnId::new(ClientId::new(0x9f), timestone_types::Sequence::new(2)));
                let at = Timestamp::from_nanos(u64::from(
                    self.next_stamp.fetch_add(1, Ordering::SeqCst),
                ));
                Verdict::No(AbortReason {
                    kind: AbortKind::ReadConflict,
                    item: Some(item as u32),
                    other,
                    at,
                })
            }
            None => {
                let write = |entry: wire::WriteEntry<'_>| {
                    let value = (entry.kind == wire::WriteKind::Put).then(|| entry.value.to_vec());
                    ((entry.keyspace, entry.key.to_vec()), value)
                };
                let writes: Vec<_> = prepare.body.writes().map(write).collect();
                if prepare.single {
                    apply(&mut data, Version::new(prepare.commit, prepare.txn.client), writes);
                } else {
                    data.prepared.insert((prepare.txn, envelope.shard), writes);
                }
                Verdict::Yes
            }
        };
        data.votes.insert(name, verdict);
        wire::Vote { txn: prepare.txn, commit: prepare.commit, verdict }.encode(envelope, out);
    }

    fn master(&self, command: &MasterCommand, envelope: &Envelope, out: &mut Vec<u8>) {
        let mut data = self.data.lock().unwrap();
        let answer = match command {
            MasterCommand::CreateKeyspace { name, options } => {
                if data.keyspaces.iter().any(|keyspace| keyspace.name == *name) {
                    return ErrorReply::new(ErrorCode::KeyspaceExists, "it exists")
                        .encode(envelope, out);
                }
                let id = KeyspaceId::new(data.keyspaces.len() as u32);
                let id = if options.index == IndexKind::Ordered { id.ordered() } else { id };
                data.keyspaces.push(Keyspace { id, name: name.clone(), options: *options });
                MasterAnswer::Created(data.keyspaces.last().unwrap().clone())
            }
            MasterCommand::ListKeyspaces => MasterAnswer::Keyspaces(data.keyspaces.clone()),
            MasterCommand::DropKeyspace { name } => {
                let at = data.keyspaces.iter().position(|keyspace| keyspace.name == *name).unwrap();
                MasterAnswer::Dropped { id: data.keyspaces.remove(at).id }
            }
            MasterCommand::RegisterClient { count } => MasterAnswer::Clients(ClientIdBlock {
                first: ClientId::new(self.next_client.fetch_add(*count, Ordering::SeqCst)),
                count: *count,
            }),
            MasterCommand::FetchMap => MasterAnswer::Map(self.map.lock().unwrap().clone()),
            other => panic!("the client never asks {other:?}"),
        };
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        wire::MasterReply { answer: &bytes }.encode(envelope, out);
    }
}

/// What a map says of a server that listens.
fn info_of((listener, number): (&TcpListener, u32)) -> ServerInfo {
    let address = Address::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let addresses = ServerAddresses { native: Some(address), resp: None, http: None };
    let directory = DirectoryId(u64::from(number));
    ServerInfo { id: ServerId::new(number), directory, addresses }
}

fn apply(data: &mut Data, version: Version, writes: Writes) {
    for (key, value) in writes {
        if key.1.is_empty() {
            data.keys.retain(|(keyspace, _), _| *keyspace != key.0);
        } else {
            data.keys.insert(key, (version, value));
        }
    }
}

//! Three servers with a replica of one shard each, stepped by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use timestone_clock::ManualClock;
use timestone_cluster::{
    Address, DirectoryId, MapVersion, NormalConfiguration, ReplicationFactor, Run, ServerAddresses,
    ServerInfo, ShardEntry, SlotRange, Term,
};
use timestone_flash::{MemoryConfig, MemoryMedia, PageId};
use timestone_gateway::DirectShard;
use timestone_replication::limits::Retention;
use timestone_replication::{Step, Void};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{
    ConnectionId, ConnectionView, DialId, DisconnectReason, Generation, NetCommand, StageId,
};
use timestone_shard::gauges::ShardGauges;
use timestone_shard::{DirectAt, LogAppend, Replay, own_reply_address};
use timestone_store::{Mftl, MftlConfig, Store};
use timestone_types::random::Dice;
use timestone_types::{
    ClientId, ClusterId, Expiry, KeyRef, KeyspaceId, SLOT_COUNT, Sequence, Slot, TxnId,
};
use timestone_wire::{
    Condition, Envelope, Get, Message, ReadAt, RequestId, Value, Verdict, Write, WriteAction,
    Written,
};

use super::super::start::OpenStore;
use super::super::*;
use crate::error::ServerError;
use crate::replica_gauges::ReplicaGauges;
use crate::shared_shard::{CalledShard, ShardSlot};

pub(super) const SHARD: ShardId = ShardId::new(0);
pub(super) const STAGE: StageId = StageId::new(0);
pub(super) const LOG: StageId = StageId::new(1);
pub(super) const NET: StageId = StageId::new(2);
pub(super) const NODE: StageId = StageId::new(3);
pub(super) const ASKER: StageId = StageId::new(7);
pub(super) const CLIENT: ClientId = ClientId::new(3);
pub(super) const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);
pub(super) const SERVERS: u32 = 3;
/// Pages of a device that are looked at.
const PAGES: u32 = 1 << 14;

pub(super) fn address(server: u32) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + server as u16))
}

/// A connection from one server to another.
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) dial: DialId,
}

/// How a connection is called at its end that accepted it.
pub(super) const ACCEPTED: u32 = 1 << 20;

pub(super) fn reply_to(connection: u32) -> ReplyAddress {
    let (connection, generation) = (ConnectionId::new(connection), Generation::new(0));
    ReplyAddress { stage: NET, connection, generation }
}

/// The device of a server, which may be made anew.
#[derive(Clone)]
pub(super) struct Device(Arc<Mutex<MemoryMedia>>);

impl Device {
    pub(super) fn store(&self) -> Box<dyn Store + Send> {
        let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
        Box::new(Mftl::open(Box::new(self.0.lock().unwrap().open()), config).unwrap().0)
    }
}

impl Device {
    /// The pages that hold this value.
    pub(super) fn pages_with(&self, number: u64) -> Vec<PageId> {
        let (medium, value) = (self.0.lock().unwrap(), number.to_be_bytes());
        let holds = |page: &PageId| {
            let bytes = medium.page(*page).unwrap_or_default();
            bytes.windows(value.len()).any(|one| one == value)
        };
        (0..PAGES).map(PageId).filter(holds).collect()
    }

    /// Reads of these pages fail, or none does any more.
    pub(super) fn fail_reads_of(&self, pages: Vec<PageId>) {
        let medium = self.0.lock().unwrap();
        if pages.is_empty() {
            return medium.clear_faults();
        }
        medium.fail_reads_of(pages);
    }

    /// Damages the record of this value.
    pub(super) fn damage(&self, number: u64) {
        let pages = self.pages_with(number);
        assert!(!pages.is_empty(), "it is on the device");
        let (medium, value) = (self.0.lock().unwrap(), number.to_be_bytes());
        for page in pages {
            let bytes = medium.page(page).unwrap();
            let at = bytes.windows(value.len()).position(|one| one == value).unwrap();
            assert!(medium.flip_bit(page, at * 8));
        }
    }
}

impl OpenStore for Device {
    fn open(&self, _: ShardId) -> Result<Replay, ServerError> {
        panic!("the store is open")
    }

    fn loss_is_logged(&self, _: ShardId) -> Result<(), ServerError> {
        Ok(())
    }

    fn open_empty(&self, _: ShardId) -> Result<Box<dyn Store + Send>, ServerError> {
        *self.0.lock().unwrap() = MemoryMedia::new(MemoryConfig::default());
        Ok(self.store())
    }
}

/// A server: one replica, its device and its log.
pub(super) struct Server {
    pub(super) device: Device,
    /// How often it has begun to take a checkpoint.
    pub(super) rebuilt: u32,
    pub(super) rebuilds: bool,
    /// `None` while it is down.
    pub(super) driver: Option<ManualDriver<Event>>,
    pub(super) gauges: Arc<ReplicaGauges>,
    /// Where a gateway would find the shard.
    pub(super) slot: ShardSlot,
    /// What its log has, and what it was given besides.
    pub(super) durable: Vec<LogAppend>,
    pub(super) given: Vec<LogAppend>,
}

pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) clock: Arc<ManualClock>,
    pub(super) servers: BTreeMap<u32, Server>,
    pub(super) connections: Vec<Connection>,
    /// Between these two nothing passes.
    pub(super) cut: Option<(u32, u32)>,
    /// The log of this one writes, and does not come to the end.
    pub(super) busy_log: Option<u32>,
    /// No part of a checkpoint reaches this one.
    pub(super) loses_parts: Option<u32>,
    /// Nothing passes to or from this one.
    pub(super) deaf: Option<u32>,
    pub(super) control: ControlState,
    pub(super) retention: Retention,
    pub(super) requests: u64,
    /// What was answered, by its request.
    pub(super) answers: BTreeMap<u64, Vec<u8>>,
}

/// The configuration of an epoch.
pub(super) fn control(epoch: u32, primary: u32, normal: u32) -> ControlState {
    let ids: Vec<ServerId> = (1..=SERVERS).map(ServerId::new).collect();
    let servers = ids.iter().map(|&id| {
        let native = Some(Address::new(&address(id.get()).to_string()).unwrap());
        let addresses = ServerAddresses { native, resp: None, http: None };
        ServerInfo { id, directory: DirectoryId(u64::from(id.get())), addresses }
    });
    let all = SlotRange::new(Slot::new(0).unwrap(), Slot::new(SLOT_COUNT - 1).unwrap()).unwrap();
    let entry = ShardEntry {
        id: SHARD,
        epoch: Epoch::new(epoch),
        primary: ServerId::new(primary),
        replicas: ids.clone(),
        ranges: vec![all],
    };
    let map =
        ShardMap::new(ClusterId::new(5), MapVersion::new(epoch), servers.collect(), vec![entry]);
    ControlState {
        replication: ReplicationFactor::new(3).unwrap(),
        term: Term::ZERO,
        normal: vec![NormalConfiguration { epoch: Epoch::new(normal), replicas: ids }],
        runs: vec![Run::NONE; 3],
        map: map.unwrap(),
    }
}

impl World {
    pub(super) fn new() -> Self {
        Self::keeping(Retention::default())
    }

    /// Primaries keep so much for those that lack it.
    pub(super) fn keeping(retention: Retention) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let servers = (1..=SERVERS).map(|id| {
            let device = Device(Arc::new(Mutex::new(MemoryMedia::new(MemoryConfig::default()))));
            let gauges = Arc::new(ReplicaGauges::new(SHARD));
            let slot = ShardSlot::default();
            let (durable, given) = (Vec::new(), Vec::new());
            (
                id,
                Server {
                    device,
                    rebuilt: 0,
                    rebuilds: false,
                    driver: None,
                    gauges,
                    slot,
                    durable,
                    given,
                },
            )
        });
        let mut world = Self {
            now: START,
            clock,
            servers: servers.collect(),
            connections: Vec::new(),
            cut: None,
            busy_log: None,
            loses_parts: None,
            deaf: None,
            control: control(1, 1, 1),
            retention,
            requests: 0,
            answers: BTreeMap::new(),
        };
        (1..=SERVERS).for_each(|id| world.start(id));
        world
    }

    /// A server starts with what its device and its log have kept.
    pub(super) fn start(&mut self, id: u32) {
        self.start_with(id, None);
    }

    /// A server starts that has lost its device and its log, and knows that; this is the newest epoch
    /// that the master has handed out.
    pub(super) fn start_without_devices(&mut self, id: u32) {
        let server = self.servers.get_mut(&id).unwrap();
        server.durable.clear();
        *server.device.0.lock().unwrap() = MemoryMedia::new(MemoryConfig::default());
        let newest = self.control.map.shards()[0].epoch;
        self.start_with(id, Some(Void::found(newest, true)));
    }

    pub(super) fn start_with(&mut self, id: u32, void: Option<Void>) {
        let server = self.servers.get_mut(&id).unwrap();
        let mut found = FoundEntries::default();
        for LogAppend { head, bytes } in &server.durable {
            for (record, count) in timestone_wal::BatchRecords::new(bytes).zip(0..) {
                found.record(head.batch, head.first.plus(count), record.unwrap());
            }
        }
        found.close();
        if let Some(void) = void {
            found.is_void(void);
        }
        let me = replica_of(ServerId::new(id));
        let device = server.device.clone();
        let store =
            if found.is_emptied() { device.open_empty(SHARD).unwrap() } else { device.store() };
        let replay = Replay::new(SHARD, store);
        let started =
            StartedReplica::new((SHARD, me), (LOG, &[LOG]), replay, found, self.now).unwrap();
        server.gauges = Arc::new(ReplicaGauges::new(SHARD));
        server.slot = ShardSlot::default();
        let parts = ReplicaParts {
            log: LOG,
            net: NET,
            node: NODE,
            stage: STAGE,
            gauges: Arc::new(ShardGauges::new(SHARD)),
            replica_gauges: Arc::clone(&server.gauges),
            clock: Arc::clone(&self.clock) as Arc<_>,
            memory: Arc::default(),
            participant: timestone_txn::participant::Config::default(),
            stores: Box::new(device),
            retention: self.retention,
            slot: server.slot.clone(),
        };
        let map = Arc::new(self.control.map.clone());
        let stage = ReplicaStage::new(
            (SHARD, ServerId::new(id)),
            map,
            Some(started.begin(self.retention)),
            parts,
        );
        server.driver = Some(ManualDriver::new(vec![Box::new(stage)], self.now, 100_000));
        self.tell(id);
        self.turns();
    }

    /// A server's process ends; what its log was given last may be lost.
    pub(super) fn kill(&mut self, id: u32, seed: u64) {
        let server = self.servers.get_mut(&id).unwrap();
        server.driver = None;
        server.device.0.lock().unwrap().kill(seed);
        server.given.clear();
        for (number, gone) in self.connections.clone().into_iter().enumerate() {
            let is_of = |end| end == id;
            if is_of(gone.from) || is_of(gone.to) {
                self.end_connection(number as u32, gone);
            }
        }
    }

    /// Both ends that live are told; the number is not used again.
    pub(super) fn end_connection(&mut self, number: u32, gone: Connection) {
        if gone.from == 0 {
            return;
        }
        let reason = || DisconnectReason::Closed;
        let own = NetEvent::Disconnected {
            reply_to: reply_to(number),
            dial: Some(gone.dial),
            reason: reason(),
        };
        self.send(gone.from, Event::Net(own));
        self.connections[number as usize] = Connection { from: 0, to: 0, ..gone };
    }

    pub(super) fn send(&mut self, to: u32, event: Event) {
        if let Some(driver) = self.servers.get_mut(&to).and_then(|one| one.driver.as_mut()) {
            driver.send(STAGE, event).unwrap();
        }
    }

    /// Tells a server the configuration.
    pub(super) fn tell(&mut self, id: u32) {
        let control = Arc::new(self.control.clone());
        self.send(id, Event::ConfigurationsChanged(control));
    }

    /// Cuts a server off from the others.
    pub(super) fn deafen(&mut self, id: u32) {
        self.deaf = Some(id);
    }

    /// The master makes a server primary, of the next epoch.
    pub(super) fn make_primary(&mut self, id: u32) {
        let entry = &self.control.map.shards()[0];
        let normal = if self.serving() == Some(entry.primary.get()) {
            entry.epoch
        } else {
            self.control.normal[0].epoch
        };
        self.control = control(entry.epoch.get() + 1, id, normal.get());
        (1..=SERVERS).for_each(|id| self.tell(id));
        self.turns();
    }

    /// Who serves in the present epoch.
    pub(super) fn serving(&self) -> Option<u32> {
        let entry = &self.control.map.shards()[0];
        let gauges = &self.servers[&entry.primary.get()].gauges;
        let serves =
            gauges.step() == Some(Step::Serving) && gauges.standing().promised == entry.epoch;
        let is_up = self.servers[&entry.primary.get()].driver.is_some();
        (serves && is_up).then_some(entry.primary.get())
    }

    pub(super) fn pass(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(20) {
            self.now = self.now.saturating_add(Duration::from_millis(20));
            self.clock.set(self.now);
            for server in self.servers.values_mut() {
                if let Some(driver) = &mut server.driver {
                    driver.set_now(self.now);
                }
            }
            self.turns();
        }
    }

    /// Until no log has this value any more, and each server's device does.
    pub(super) fn pass_until_stored(&mut self, number: u64) {
        let value = number.to_be_bytes();
        let is_logged = |append: &LogAppend| append.bytes.windows(8).any(|one| one == value);
        for _ in 0..200 {
            let is_stored = self.servers.values().all(|server| {
                !server.durable.iter().any(is_logged)
                    && !server.device.pages_with(number).is_empty()
            });
            if is_stored {
                return;
            }
            // Each log wants to empty its files.
            for id in 1..=SERVERS {
                let last = self.servers[&id].durable.last().map(|append| append.head.batch);
                let below = last.unwrap_or_default();
                self.send(id, Event::LogCopyForward { below });
            }
            self.pass(200);
        }
        let kept = self.servers.values().map(|server| {
            let last = server.durable.last().map(|append| append.head.batch);
            let first = server.durable.iter().find(|append| is_logged(append));
            (first.map(|append| append.head.batch), last, server.device.pages_with(number).len())
        });
        panic!("the logs keep value {number}: {:?}", kept.collect::<Vec<_>>());
    }

    /// Everybody's turns, until nothing is on its way.
    pub(super) fn turns(&mut self) {
        for _ in 0..12 {
            for id in 1..=SERVERS {
                let server = self.servers.get_mut(&id).unwrap();
                let Some(driver) = &mut server.driver else { continue };
                driver.send(STAGE, Event::Wake).unwrap();
                driver.turn();
                let mut sent = Vec::new();
                while let Some(one) = driver.take_sent() {
                    sent.push(one);
                }
                for (to, event) in sent {
                    self.sent(id, to, event);
                }
                self.sync(id);
                let server = self.servers.get_mut(&id).unwrap();
                let rebuilds = server.gauges.step() == Some(Step::Rebuilding);
                server.rebuilt += u32::from(rebuilds && !server.rebuilds);
                server.rebuilds = rebuilds;
            }
        }
    }

    /// A log has written what it was given.
    pub(super) fn sync(&mut self, id: u32) {
        let server = self.servers.get_mut(&id).unwrap();
        let Some(last) = server.given.last().filter(|_| self.busy_log != Some(id)) else { return };
        let batch = last.head.batch;
        server.durable.append(&mut server.given);
        self.send(id, Event::LogDurable { batch });
    }

    /// What a stage has sent.
    pub(super) fn sent(&mut self, from: u32, to: StageId, event: Event) {
        match (to, event) {
            (LOG, Event::LogAppend(append)) => {
                self.servers.get_mut(&from).unwrap().given.push(append);
            }
            (LOG, Event::LogRelease { keep_from, .. }) => {
                let server = self.servers.get_mut(&from).unwrap();
                server.durable.retain(|append| append.head.batch >= keep_from);
                self.send(from, Event::LogRetained { log: LOG, from: keep_from });
            }
            (NET, Event::NetCommand(NetCommand::Dial { dial, address: peer, owner })) => {
                assert_eq!(owner, STAGE);
                self.dial(from, dial, peer);
            }
            (NET, Event::FrameBatch(frame_batch)) => self.deliver(frame_batch),
            (NET, Event::NetCommand(NetCommand::Abort(at))) => {
                let number = at.connection.index();
                let gone = self.connections[number];
                self.end_connection(number as u32, gone);
            }
            (ASKER, Event::FrameBatch(frame_batch)) => {
                for frame in Frames::new(without_clock(&frame_batch.bytes)) {
                    let frame = frame.unwrap();
                    let request = frame.envelope().request.get();
                    self.answers.insert(request, frame.bytes().to_vec());
                }
            }
            (NODE, Event::FrameBatch(_)) => {}
            (to, event) => panic!("{to}: {event:?}"),
        }
    }

    pub(super) fn is_cut(&self, one: u32, other: u32) -> bool {
        self.cut.is_some_and(|cut| cut == (one.min(other), one.max(other)))
            || self.deaf.is_some_and(|deaf| deaf == one || deaf == other)
    }

    pub(super) fn dial(&mut self, from: u32, dial: DialId, peer: SocketAddr) {
        let to = u32::from(peer.port()) - 7000;
        if self.servers[&to].driver.is_none() || self.is_cut(from, to) {
            let error = std::io::ErrorKind::ConnectionRefused.into();
            return self
                .send(from, Event::Net(NetEvent::DialFailed { dial, address: peer, error }));
        }
        let number = self.connections.len() as u32;
        self.connections.push(Connection { from, to, dial });
        let (reply_to, dial, owner) = (reply_to(number), Some(dial), Some(STAGE));
        let view = ConnectionView { reply_to, peer, dial, owner };
        self.send(from, Event::Net(NetEvent::Connected(view)));
    }

    /// Delivers bytes over a connection, to its other end.
    pub(super) fn deliver(&mut self, mut frame_batch: FrameBatch) {
        let raw = frame_batch.reply_to.connection.index() as u32;
        let (number, is_accepted) = (raw % ACCEPTED, raw >= ACCEPTED);
        let Connection { from, to, .. } = self.connections[number as usize];
        if from == 0 || self.is_cut(from, to) {
            return;
        }
        let (to, at) = if is_accepted { (from, number) } else { (to, number + ACCEPTED) };
        // Greetings are for the node.
        let mut bytes = Vec::new();
        for frame in Frames::new(&frame_batch.bytes) {
            let frame = frame.unwrap();
            let is_lost = frame.kind() == Kind::CheckpointPart && self.loses_parts == Some(to);
            if frame.kind() != Kind::Hello && !is_lost {
                bytes.extend_from_slice(frame.bytes());
            }
        }
        (frame_batch.bytes, frame_batch.reply_to) = (bytes, reply_to(at));
        if !frame_batch.bytes.is_empty() {
            self.send(to, Event::FrameBatch(frame_batch));
        }
    }

    /// Asks the server that the map names, and waits for its answer for a moment.
    pub(super) fn ask(&mut self, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Option<Vec<u8>> {
        self.requests += 1;
        let entry = &self.control.map.shards()[0];
        let (request, primary) = (RequestId::new(self.requests), entry.primary.get());
        let (epoch, map_version) = (entry.epoch, self.control.map.version());
        let mut bytes = Vec::new();
        encode(&Envelope { request, shard: SHARD, epoch, map_version }, &mut bytes);
        self.send(primary, Event::FrameBatch(FrameBatch::new(own_reply_address(ASKER), bytes)));
        self.turns();
        self.answers.remove(&self.requests)
    }

    /// Writes once; whether it was acknowledged.
    pub(super) fn write(
        &mut self,
        number: u64,
        key: u64,
        begin: Timestamp,
        commit: &mut Timestamp,
    ) -> bool {
        let txn = TxnId::new(CLIENT, Sequence::new(number));
        let (key, value) = (key.to_be_bytes(), number.to_be_bytes());
        let write = Write {
            txn,
            begin,
            commit: *commit,
            keyspace: KeyspaceId::DEFAULT,
            action: WriteAction::Put,
            wait: false,
            return_previous: false,
            expires_at: Expiry::NEVER,
            condition: Condition::Always,
            key: &key,
            value: &value,
        };
        let answer = self.ask(|envelope, out| write.encode(envelope, out));
        let Some(answer) = answer else { return false };
        let frame = Frame::parse(&answer).unwrap();
        match Written::decode(&frame).map(|written| written.verdict) {
            Ok(Verdict::Yes) => true,
            Ok(Verdict::Later(at)) => {
                *commit = at;
                false
            }
            Ok(Verdict::No(reason)) => panic!("write {number}: {reason:?}"),
            Err(_) => false,
        }
    }

    /// The latest value of a key.
    pub(super) fn read(&mut self, key: u64) -> Option<u64> {
        for _ in 0..100 {
            let (keyspace, at) = (KeyspaceId::DEFAULT, ReadAt::Latest(self.now));
            let key = key.to_be_bytes();
            let get = Get { keyspace, at, client: CLIENT, wait: false, key: &key };
            let answer = self.ask(|envelope, out| get.encode(envelope, out));
            let value = answer.as_deref().and_then(|bytes| {
                let frame = Frame::parse(bytes).unwrap();
                let value = Value::decode(&frame).ok()?;
                Some(value.present.then(|| u64::from_be_bytes(value.value.try_into().unwrap())))
            });
            match value {
                Some(value) => return value,
                None => self.pass(100),
            }
        }
        panic!("key {key} is never read");
    }

    /// What the gateway of a server reads by a call, and nothing where it cannot call.
    pub(super) fn call(&self, id: u32, key: u64) -> Option<u64> {
        let (slot, seed) = (self.servers[&id].slot.clone(), MftlConfig::default().seed);
        let (now, key) = (self.now, key.to_be_bytes());
        let epoch = self.control.map.shards()[0].epoch;
        let mut called = CalledShard { id: SHARD, seed, slot, takes_puts: false };
        let mut value = None;
        let is_called = called.enter(&mut |shard| {
            let key = KeyRef::new(seed, KeyspaceId::DEFAULT, &key);
            let found = shard.get(key, DirectAt { now, epoch, begin: now });
            let found = found.and_then(|found| found.value);
            value = found.map(|value| u64::from_be_bytes(value.try_into().unwrap()));
        });
        assert_eq!(is_called, called.is_here());
        value
    }

    /// Writes until it is acknowledged, whatever happens meanwhile.
    pub(super) fn write_to_the_end(&mut self, dice: &mut Dice, number: u64, key: u64) {
        let (begin, mut commit) = (self.now, self.now.next());
        for _ in 0..200 {
            if self.write(number, key, begin, &mut commit) {
                return;
            }
            self.disturb(dice);
            self.pass(40 + dice.below(100));
            self.repair(dice);
        }
        panic!("write {number} is never acknowledged: {:?}", self.state());
    }

    pub(super) fn state(&self) -> Vec<(u32, Option<Step>, Epoch, Epoch, u64)> {
        let of = |(id, server): (&u32, &Server)| {
            let gauges = &server.gauges;
            let counted = gauges.counted().get();
            (*id, gauges.step(), gauges.standing().promised, gauges.installed(), counted)
        };
        self.servers.iter().map(of).collect()
    }

    /// Something goes wrong.
    pub(super) fn disturb(&mut self, dice: &mut Dice) {
        let id = 1 + dice.below(u64::from(SERVERS)) as u32;
        let down = self.servers.values().filter(|one| one.driver.is_none()).count();
        match dice.below(30) {
            0..=1 if down == 0 && self.cut.is_none() => self.kill(id, dice.below(1000)),
            2 if self.able().contains(&id) => self.make_primary(id),
            3 if down == 0 => {
                let other = 1 + id % SERVERS;
                self.cut = Some((id.min(other), id.max(other)));
            }
            _ => {}
        }
    }

    /// Something is repaired, and the controller does its work.
    pub(super) fn repair(&mut self, dice: &mut Dice) {
        let down = self.servers.iter().find(|(_, one)| one.driver.is_none()).map(|(id, _)| *id);
        if let Some(id) = down.filter(|_| dice.below(6) == 0) {
            self.start(id);
        }
        if dice.below(4) == 0 {
            self.cut = None;
        }
        let primary = self.control.map.shards()[0].primary.get();
        let is_down = self.servers[&primary].driver.is_none();
        let wishes = self.servers[&primary].gauges.standing().wish != Wish::Nothing;
        if (is_down || wishes) && dice.below(2) == 0 {
            let mut up = self.able();
            up.retain(|id| is_down || *id != primary);
            if !up.is_empty() {
                self.make_primary(up[dice.below(up.len() as u64) as usize]);
            }
        }
    }

    /// Those that may become primary: who has given up what it had may not.
    pub(super) fn able(&self) -> Vec<u32> {
        let is_able =
            |one: &Server| one.driver.is_some() && one.gauges.step() != Some(Step::Rebuilding);
        self.servers.iter().filter(|(_, one)| is_able(one)).map(|(id, _)| *id).collect()
    }

    pub(super) fn heal(&mut self) {
        self.cut = None;
        for id in 1..=SERVERS {
            if self.servers[&id].driver.is_none() {
                self.start(id);
            }
        }
        self.pass(200);
        // The controller takes the one that is the most up to date.
        let has = |id: &u32| {
            let gauges = &self.servers[id].gauges;
            (gauges.installed(), gauges.counted())
        };
        let best = self.able().into_iter().max_by_key(has);
        self.make_primary(best.unwrap());
        for _ in 0..50 {
            self.pass(100);
            if self.serving().is_some() {
                return;
            }
        }
        panic!("nobody serves: {:?}", self.state());
    }
}

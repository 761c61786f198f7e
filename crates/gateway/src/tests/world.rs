//! A gateway, some shards, and redis clients that a test plays: no sockets, no clock, every turn by
//! hand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use timestone_cluster::{Keyspace, KeyspaceName, MasterAnswer, MasterCommand, ShardMap};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{
    AdmissionLimit, ConnectionId, ConnectionView, DisconnectReason, FrameBatch, Generation, Memory,
    NetCommand, NetEvent, ReplyAddress, Stage, StageId,
};
use timestone_session::Routes;
use timestone_types::{ClientId, ClusterId, Epoch, ShardId, Timestamp};
use timestone_wire::{Frame, Kind, MapIs, MasterAsk, MasterReply, Message as _, count_frames};

use super::host::{Event, GatewayStage};
use super::remote::Remote;
use super::shards::{TestShard, Wishes};
use crate::connection::ConnectionIndex;
use crate::parts::Parts;
use crate::{DirectShard, Gateway, GatewayGauges, Setup};

const GATEWAY: StageId = StageId::new(0);
const NET: StageId = StageId::new(100);
const NODE: StageId = StageId::new(101);
/// The net stage of the native protocol.
pub(super) const NATIVE: StageId = StageId::new(102);
pub(super) const SHARDS: u16 = 3;

/// A redis client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Client(u32);

/// See the module.
pub(super) struct World {
    driver: ManualDriver<Event>,
    pub(super) now: Timestamp,
    pub(super) wishes: Arc<Mutex<Wishes>>,
    outputs: BTreeMap<Client, Vec<u8>>,
    pub(super) closed: Vec<Client>,
    /// Clients of which the net stage was told to read nothing more.
    pub(super) paused: Vec<Client>,
    /// Clients that read nothing: what they are sent is not written.
    deaf: Vec<Client>,
    /// Batches of frames are kept in `to_net`: the net stage has not looked at them yet.
    pub(super) holds_output: bool,
    pub(super) to_net: Vec<FrameBatch>,
    pub(super) memory: Arc<Memory>,
    /// The server that has the last shard, in worlds of two.
    pub(super) remote: Remote,
    /// The newest map that the node of this process knows, if it answers.
    pub(super) newest: Option<ShardMap>,
    /// How often the node was asked for it.
    pub(super) pulls: u32,
    /// The keyspaces that the node tells of.
    pub(super) keyspaces: Vec<Keyspace>,
    clients: u32,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with_own(SHARDS)
    }

    /// A process that has the first `own` of the cluster's shards; the others have no server.
    pub(super) fn with_own(own: u16) -> Self {
        Self::with(own, Arc::default())
    }

    /// Two servers: the other one has the last shard.
    pub(super) fn of_two() -> Self {
        Self::build(SHARDS - 1, Arc::default(), 0, Remote::map(1, Remote::ADDRESS))
    }

    /// A gateway of a keyspace of this name, which calls the first `called` shards.
    pub(super) fn serving(keyspace: &str, called: u16) -> Self {
        let map = ShardMap::even(ClusterId::new(1), SHARDS).unwrap();
        let keyspace = KeyspaceName::new(keyspace).unwrap();
        Self::build_for(keyspace, SHARDS, Arc::default(), called, map)
    }

    /// The same, with so much memory for connections.
    pub(super) fn with(own: u16, memory: Arc<Memory>) -> Self {
        Self::build(own, memory, 0, ShardMap::even(ClusterId::new(1), SHARDS).unwrap())
    }

    /// A gateway that calls the first `called` shards, which answer one of so many calls.
    pub(super) fn calling(called: u16, hesitation: u64) -> Self {
        let map = ShardMap::even(ClusterId::new(1), SHARDS).unwrap();
        let world = Self::build(SHARDS, Arc::default(), called, map);
        world.wishes.lock().unwrap().hesitation = hesitation;
        world
    }

    fn build(own: u16, memory: Arc<Memory>, called: u16, map: ShardMap) -> Self {
        Self::build_for(KeyspaceName::default_keyspace(), own, memory, called, map)
    }

    fn build_for(
        keyspace: KeyspaceName,
        own: u16,
        memory: Arc<Memory>,
        called: u16,
        map: ShardMap,
    ) -> Self {
        // Whole seconds, so that times to live are round.
        let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
        let wishes: Arc<Mutex<Wishes>> = Arc::default();
        let map = Arc::new(map);
        let shards: Vec<_> = map
            .shards()
            .iter()
            .zip(1..=own)
            .map(|(shard, stage)| (shard.id, StageId::new(stage)))
            .collect();
        let core = Gateway::new(Setup {
            stage: GATEWAY,
            thread: 0,
            client: ClientId::new(9),
            map,
            keyspace,
            server: Remote::OWN,
            shards: shards.iter().map(|(shard, _)| *shard).collect(),
            net: Some(NATIVE),
            seed: 7,
            memory: Arc::clone(&memory),
            gauges: GatewayGauges::default(),
        });
        let tested: Vec<_> = (0..SHARDS)
            .map(|shard| (ShardId::new(shard), Arc::clone(&wishes)))
            .map(|(id, wishes)| (id, TestShard::new(id, wishes)))
            .collect();
        let called = tested.iter().take(usize::from(called));
        let called = called.map(|(id, shard)| Box::new(shard.called(*id)) as Box<dyn DirectShard>);
        let core = core.calling(called.collect());
        let mut stages: Vec<Box<dyn Stage<Event>>> =
            vec![Box::new(GatewayStage { core, node: NODE, shards })];
        for (_, shard) in tested {
            stages.push(Box::new(shard));
        }
        let limit = AdmissionLimit { requests: 1_000_000, bytes: 1 << 40 };
        let driver = (0..=SHARDS).fold(ManualDriver::new(stages, now, 4096), |driver, stage| {
            driver.with_admission(StageId::new(stage), limit)
        });
        Self {
            driver,
            now,
            wishes,
            outputs: BTreeMap::new(),
            closed: Vec::new(),
            paused: Vec::new(),
            deaf: Vec::new(),
            holds_output: false,
            to_net: Vec::new(),
            memory,
            remote: Remote::default(),
            newest: None,
            pulls: 0,
            keyspaces: vec![Keyspace::default_keyspace()],
            clients: 0,
        }
    }

    fn reply_to(client: Client) -> ReplyAddress {
        ReplyAddress {
            stage: NET,
            connection: ConnectionId::new(client.0),
            generation: Generation::new(3),
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        assert!(self.driver.send(GATEWAY, event).is_ok());
    }

    /// Delivers frames that came over a link, as the net stage counts them.
    pub(super) fn arrive(&mut self, mut frame_batch: FrameBatch) {
        frame_batch.frames = count_frames(&frame_batch.bytes);
        let (frames, bytes) = (frame_batch.frames, frame_batch.bytes.len());
        self.driver.gauge(GATEWAY).admit(u64::from(frames), bytes as u64);
        self.event(Event::FrameBatch(frame_batch));
    }

    /// Delivers frames to the shard of the other server.
    pub(super) fn deliver_to_remote(&mut self, mut frame_batch: FrameBatch) {
        frame_batch.frames = count_frames(&frame_batch.bytes);
        let stage = StageId::new(SHARDS);
        let (frames, bytes) = (frame_batch.frames, frame_batch.bytes.len());
        self.driver.gauge(stage).admit(u64::from(frames), bytes as u64);
        assert!(self.driver.send(stage, Event::FrameBatch(frame_batch)).is_ok());
    }

    pub(super) fn connect(&mut self) -> Client {
        let client = Client(self.clients);
        self.clients += 1;
        let peer = "127.0.0.1:5000".parse().unwrap();
        let view = ConnectionView {
            reply_to: Self::reply_to(client),
            peer,
            dial: None,
            owner: Some(GATEWAY),
        };
        self.event(Event::Net(NetEvent::Connected(view)));
        client
    }

    pub(super) fn disconnect(&mut self, client: Client) {
        let reason = DisconnectReason::Closed;
        self.event(Event::Net(NetEvent::Disconnected {
            reply_to: Self::reply_to(client),
            dial: None,
            reason,
        }));
        self.settle();
    }

    pub(super) fn half_close(&mut self, client: Client) {
        self.event(Event::Net(NetEvent::HalfClosed(Self::reply_to(client))));
        self.settle();
    }

    /// A key that is this process's, and is not any more after [`World::move_slots`].
    pub(super) fn key_that_moves(&self) -> String {
        let [before, after] =
            [SHARDS, SHARDS + 1].map(|shards| ShardMap::even(ClusterId::new(1), shards).unwrap());
        let moves = |key: &String| {
            before.shard_of_key(key.as_bytes()).get() < SHARDS
                && after.shard_of_key(key.as_bytes()).get() == SHARDS
        };
        (0..).map(|n| format!("moves{n}")).find(moves).unwrap()
    }

    /// Another process gets a shard, with a part of every other's slots.
    pub(super) fn move_slots(&mut self) {
        let map = ShardMap::even(ClusterId::new(1), SHARDS + 1).unwrap();
        self.event(Event::MapChanged(Arc::new(map)));
        self.settle();
    }

    /// From now on a client reads nothing of what it is sent.
    pub(super) fn stop_reading(&mut self, client: Client) {
        self.deaf.push(client);
    }

    /// How much a client was sent and has not read.
    pub(super) fn unread(&mut self, client: Client) -> usize {
        self.settle();
        self.outputs.get(&client).map_or(0, Vec::len)
    }

    /// A client that reads nothing otherwise reads what it was sent so far.
    pub(super) fn read(&mut self, client: Client) -> Vec<u8> {
        let bytes = self.output(client);
        self.event(Event::Net(NetEvent::Written {
            reply_to: Self::reply_to(client),
            bytes: bytes.len(),
        }));
        bytes
    }

    /// Delivers bytes of a client, without a turn.
    pub(super) fn post(&mut self, client: Client, bytes: &[u8]) {
        let frame_batch = FrameBatch {
            reply_to: Self::reply_to(client),
            frames: 1,
            bytes: bytes.to_vec(),
            charge: None,
        };
        self.driver.gauge(GATEWAY).admit(1, bytes.len() as u64);
        self.event(Event::FrameBatch(frame_batch));
    }

    /// Turns until nothing happens any more at this point in time.
    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            let (worked, any) = self.step();
            if !any && (!worked || self.wishes.lock().unwrap().hold) {
                return;
            }
        }
    }

    /// One turn. Whether the stages had something to do, and whether they have sent something to
    /// the net stage.
    pub(super) fn step(&mut self) -> (bool, bool) {
        let worked = self.driver.turn();
        let mut any = false;
        while let Some((to, event)) = self.driver.take_sent() {
            any = true;
            if to == NATIVE {
                Remote::take(self, event);
                continue;
            }
            if to == NODE {
                self.ask_node(event);
                continue;
            }
            assert_eq!(to, NET, "only the net stage is elsewhere: {event:?}");
            match event {
                Event::FrameBatch(frame_batch) if self.holds_output => {
                    self.to_net.push(frame_batch)
                }
                Event::FrameBatch(frame_batch) => {
                    let client = Client(frame_batch.reply_to.connection.index() as u32);
                    self.outputs.entry(client).or_default().extend_from_slice(&frame_batch.bytes);
                    if !self.deaf.contains(&client) {
                        let bytes = frame_batch.bytes.len();
                        self.event(Event::Net(NetEvent::Written {
                            reply_to: frame_batch.reply_to,
                            bytes,
                        }));
                    }
                }
                Event::NetCommand(NetCommand::Pause(reply_to)) => {
                    self.paused.push(Client(reply_to.connection.index() as u32));
                }
                Event::NetCommand(NetCommand::Resume(reply_to)) => {
                    self.paused.retain(|client| client.0 != reply_to.connection.index() as u32);
                }
                Event::NetCommand(NetCommand::Close(reply_to)) => {
                    self.closed.push(Client(reply_to.connection.index() as u32));
                }
                other => panic!("the net stage was sent {other:?}"),
            }
        }
        (worked, any)
    }

    /// The node is asked for its map, or for the keyspaces.
    fn ask_node(&mut self, event: Event) {
        let Event::FrameBatch(batch) = event else { panic!("the node was sent {event:?}") };
        let frame = Frame::parse(&batch.bytes).unwrap();
        if frame.kind() == Kind::MasterAsk {
            let asked = MasterAsk::decode(&frame).unwrap();
            let asked = MasterCommand::decode(asked.command).unwrap();
            assert_eq!(asked, MasterCommand::ListKeyspaces);
            let mut told = Vec::new();
            MasterAnswer::Keyspaces(self.keyspaces.clone()).encode(&mut told);
            let mut answer = Vec::new();
            let envelope = *frame.envelope();
            MasterReply { answer: &told }.encode(&envelope, &mut answer);
            return self.event(Event::FrameBatch(FrameBatch::new(batch.reply_to, answer)));
        }
        assert_eq!(frame.kind(), Kind::MapPull, "gateways of tests ask the node nothing else");
        self.pulls += 1;
        if let Some(map) = &self.newest {
            let answer = map_is(&frame, map);
            self.event(Event::FrameBatch(FrameBatch::new(batch.reply_to, answer)));
        }
    }

    /// Lets time pass, with turns at every deadline.
    pub(super) fn pass(&mut self, span: core::time::Duration) {
        let until = self.now.saturating_add(span);
        loop {
            self.settle();
            let next = self.driver.next_deadline().unwrap_or(until).max(self.now.next()).min(until);
            self.now = next;
            self.driver.set_now(next);
            self.settle();
            if self.now >= until {
                return;
            }
        }
    }

    /// What a client has been answered since the last call.
    pub(super) fn output(&mut self, client: Client) -> Vec<u8> {
        self.settle();
        self.outputs.remove(&client).unwrap_or_default()
    }

    /// What a client has been sent since the last call, without another turn.
    pub(super) fn sent(&mut self, client: Client) -> Vec<u8> {
        self.outputs.remove(&client).unwrap_or_default()
    }

    /// What [`Self::output`] gives, as text, with line ends written as `|`.
    pub(super) fn text(&mut self, client: Client) -> String {
        shown(&self.output(client))
    }

    /// Sends lines (inline commands, split at `;`) and gives the answers; time passes until there
    /// is one.
    pub(super) fn ask(&mut self, client: Client, lines: &str) -> String {
        let lines: String = lines.split(';').map(|line| format!("{}\r\n", line.trim())).collect();
        self.post(client, lines.as_bytes());
        self.wait(client)
    }

    /// Lets time pass until a client has an answer.
    pub(super) fn wait(&mut self, client: Client) -> String {
        for _ in 0..30_000 {
            let answer = self.text(client);
            if !answer.is_empty() {
                return answer;
            }
            self.pass(core::time::Duration::from_millis(1));
        }
        panic!("no answer came");
    }

    /// Requests and bytes that were let in and are not finished, at the gateway and at all shards.
    pub(super) fn admitted(&self) -> [(u64, u64); 2] {
        let at = |stage| {
            let gauge = self.driver.gauge(StageId::new(stage));
            (gauge.requests(), gauge.bytes())
        };
        let shards = (1..=SHARDS).map(at).reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1));
        [at(0), shards.unwrap()]
    }

    pub(super) fn begin_shutdown(&mut self) {
        self.driver.begin_shutdown();
    }

    pub(super) fn is_drained(&self) -> bool {
        self.driver.is_drained()
    }

    /// Lets time pass until the gateway has ended. Tells how long that took.
    pub(super) fn end(&mut self, within: core::time::Duration) -> Option<core::time::Duration> {
        let begun = self.now;
        while !self.is_drained() {
            if self.now.since(begun) > within {
                return None;
            }
            self.pass(core::time::Duration::from_millis(100));
        }
        Some(self.now.since(begun))
    }
}

/// The answer to a question for a map.
pub(super) fn map_is(question: &Frame<'_>, map: &ShardMap) -> Vec<u8> {
    let (mut bytes, mut out) = (Vec::new(), Vec::new());
    map.encode(&mut bytes);
    let envelope = question.reply_envelope(Epoch::ZERO, map.version());
    MapIs { map: &bytes }.encode(&envelope, &mut out);
    out
}

pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}

/// A command in the form that clients send.
pub(super) fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.as_ref().len()).as_bytes());
        out.extend_from_slice(argument.as_ref());
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A gateway's parts by themselves, with a client: its connection, the memory, and the present.
pub(super) fn connected() -> (Parts, ConnectionIndex, Arc<Memory>, Timestamp) {
    let map = ShardMap::even(ClusterId::new(1), SHARDS).unwrap();
    let memory = Arc::new(Memory::default());
    let gauges = GatewayGauges::default();
    let keyspace = KeyspaceName::default_keyspace();
    let mut parts =
        Parts::new(ClientId::new(9), Routes::from(&map), keyspace, 0, 7, &memory, gauges).unwrap();
    let (connection, generation) = (ConnectionId::new(0), Generation::new(1));
    let reply_to = ReplyAddress { stage: StageId::new(100), connection, generation };
    let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
    parts.connections.connect(now, reply_to, "127.0.0.1:5000".parse().unwrap());
    let index = parts.connections.find(reply_to).unwrap();
    (parts, index, memory, now)
}

//! The other server of a test's world, behind a link that a test may cut, stop, or have refused.
//!
//! The net stage of the native protocol is played here: it connects what is dialled, tells what is
//! written, and carries frames to the reference shard that is the other server's, and back.

use std::net::SocketAddr;

use timestone_cluster::{
    Address, DirectoryId, MapVersion, ServerAddresses, ServerId, ServerInfo, ShardMap,
};
use timestone_seda::{
    ConnectionId, ConnectionView, DialId, DisconnectReason, FrameBatch, Generation, NetCommand,
    NetEvent, ReplyAddress, StageId,
};
use timestone_types::{ClientId, ClusterId, Epoch, ShardId, Timestamp, TxnId};
use timestone_wire::{
    Envelope, Frame, Frames, Hello, Kind, Limits, Message, Prepare, ProtocolVersion, Role, Shards,
    Welcome, Write,
};

use super::host::Event;
use super::world::{NATIVE, SHARDS, World, map_is};

/// What becomes of dials.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Dials {
    /// They are connected, and welcomed to the cluster.
    #[default]
    Welcomed,
    /// Nobody listens.
    Refused,
    /// They are connected, and welcomed to another cluster.
    Strangers,
    /// They are connected, and nobody answers.
    Unanswered,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Remote {
    pub(super) dials: Dials,
    /// Where was dialled to, and when.
    pub(super) dialled: Vec<(SocketAddr, Timestamp)>,
    /// The connection that stands.
    pub(super) connection: Option<ReplyAddress>,
    connections: u32,
    /// Who has greeted.
    pub(super) greeted: Vec<(Role, ClusterId, ClientId)>,
    pub(super) aborted: Vec<ReplyAddress>,
    pub(super) closed: Vec<ReplyAddress>,
    /// Requests are lost on their way.
    pub(super) loses_requests: bool,
    /// Answers wait in `held`.
    pub(super) holds_answers: bool,
    pub(super) held: Vec<FrameBatch>,
    /// The server reads nothing: what it is sent is not written.
    pub(super) reads_nothing: bool,
    /// Writes and prepares that were sent, with their names.
    pub(super) asked: Vec<TxnId>,
    /// Nobody listens at this address.
    pub(super) dead: Option<SocketAddr>,
    /// The newest map that the other server knows, if it answers.
    pub(super) newest: Option<ShardMap>,
    /// How often it was asked for it.
    pub(super) pulls: u32,
    /// Frames that were sent, by kind, and their bytes.
    pub(super) kinds: Vec<Kind>,
    pub(super) bytes: usize,
}

impl Remote {
    pub(super) const ADDRESS: &str = "10.0.0.2:7400";
    /// The server that the gateway is part of, and the other one.
    pub(super) const OWN: ServerId = ServerId::new(1);
    const ID: ServerId = ServerId::new(2);
    const CLUSTER: ClusterId = ClusterId::new(1);

    /// A map in which the other server, at an address, has the last shard.
    pub(super) fn map(version: u32, address: &str) -> ShardMap {
        Self::map_from(version, address, SHARDS - 1)
    }

    /// A map in which the other server has the shards from this one on.
    pub(super) fn map_from(version: u32, address: &str, first: u16) -> ShardMap {
        let server = |id, native| ServerInfo {
            id,
            directory: DirectoryId(u64::from(id.get())),
            addresses: ServerAddresses {
                native: Some(Address::new(native).unwrap()),
                resp: None,
                http: None,
            },
        };
        let mut shards = ShardMap::even(Self::CLUSTER, SHARDS).unwrap().shards().to_vec();
        for shard in &mut shards {
            shard.primary = if shard.id.get() < first { Self::OWN } else { Self::ID };
            shard.replicas = vec![shard.primary];
        }
        let servers = vec![server(Self::OWN, "10.0.0.1:7400"), server(Self::ID, address)];
        ShardMap::new(Self::CLUSTER, MapVersion::new(version), servers, shards).unwrap()
    }

    /// A map in which a third server, at an address, has taken over what the other one had.
    pub(super) fn map_after_failover(version: u32, address: &str) -> ShardMap {
        let before = Self::map(1, Self::ADDRESS);
        let (mut servers, mut shards) = (before.servers().to_vec(), before.shards().to_vec());
        let native = Some(Address::new(address).unwrap());
        let addresses = ServerAddresses { native, resp: None, http: None };
        let id = ServerId::new(3);
        servers.push(ServerInfo { id, directory: DirectoryId(3), addresses });
        for shard in shards.iter_mut().filter(|shard| shard.primary == Self::ID) {
            shard.epoch = Epoch::new(shard.epoch.get() + 1);
            (shard.primary, shard.replicas) = (id, vec![id]);
        }
        ShardMap::new(Self::CLUSTER, MapVersion::new(version), servers, shards).unwrap()
    }

    /// A key of the other server, or of this one.
    pub(super) fn key(of_other: bool, number: usize) -> String {
        let map = Self::map(1, Self::ADDRESS);
        let last = ShardId::new(SHARDS - 1);
        let keys = (0..).map(|n| format!("k{n}"));
        keys.filter(|key| (map.shard_of_key(key.as_bytes()) == last) == of_other)
            .nth(number)
            .unwrap()
    }

    /// Takes what the net stage is told by the gateway, or by the shard behind it.
    pub(super) fn take(world: &mut World, event: Event) {
        match event {
            Event::NetCommand(NetCommand::Dial { dial, address, owner }) => {
                Self::dial(world, dial, address, owner);
            }
            Event::NetCommand(NetCommand::Abort(reply_to)) => {
                world.remote.aborted.push(reply_to);
                world.remote.connection.take_if(|connection| *connection == reply_to);
            }
            Event::NetCommand(NetCommand::Close(reply_to)) => world.remote.closed.push(reply_to),
            Event::FrameBatch(frame_batch) => Self::frames(world, frame_batch),
            other => panic!("the native net stage was sent {other:?}"),
        }
    }

    fn dial(world: &mut World, dial: DialId, address: SocketAddr, owner: StageId) {
        let now = world.now;
        let remote = &mut world.remote;
        remote.dialled.push((address, now));
        if remote.dials == Dials::Refused || remote.dead == Some(address) {
            let error = std::io::ErrorKind::ConnectionRefused.into();
            return world.event(Event::Net(NetEvent::DialFailed { dial, address, error }));
        }
        remote.connections += 1;
        let reply_to = ReplyAddress {
            stage: NATIVE,
            connection: ConnectionId::new(0),
            generation: Generation::new(remote.connections),
        };
        remote.connection = Some(reply_to);
        let view = ConnectionView { reply_to, peer: address, dial: Some(dial), owner: Some(owner) };
        world.event(Event::Net(NetEvent::Connected(view)));
    }

    fn frames(world: &mut World, frame_batch: FrameBatch) {
        let first = Frame::split(&frame_batch.bytes).unwrap().unwrap().0;
        if first.kind().is_reply() {
            return Self::answer(world, frame_batch);
        }
        if world.remote.connection != Some(frame_batch.reply_to) {
            return;
        }
        if first.kind() == Kind::Hello {
            return Self::greet(world, frame_batch.reply_to, &Hello::first(&first).unwrap());
        }
        if first.kind() == Kind::MapPull {
            world.remote.pulls += 1;
            if let Some(map) = &world.remote.newest {
                let answer = map_is(&first, map);
                world.arrive(FrameBatch::new(frame_batch.reply_to, answer));
            }
            return;
        }
        let remote = &mut world.remote;
        for frame in Frames::new(&frame_batch.bytes) {
            let frame = frame.unwrap();
            remote.kinds.push(frame.kind());
            match frame.kind() {
                Kind::Write => remote.asked.push(Write::decode(&frame).unwrap().txn),
                Kind::Prepare => remote.asked.push(Prepare::decode(&frame).unwrap().txn),
                _ => {}
            }
        }
        let (reply_to, bytes) = (frame_batch.reply_to, frame_batch.bytes.len());
        remote.bytes += bytes;
        if !remote.loses_requests {
            world.deliver_to_remote(frame_batch);
        }
        if !world.remote.reads_nothing {
            world.event(Event::Net(NetEvent::Written { reply_to, bytes }));
        }
    }

    fn answer(world: &mut World, frame_batch: FrameBatch) {
        if world.remote.holds_answers {
            world.remote.held.push(frame_batch);
        } else if world.remote.connection == Some(frame_batch.reply_to) {
            world.arrive(frame_batch);
        }
    }

    fn greet(world: &mut World, reply_to: ReplyAddress, hello: &Hello<'_>) {
        world.remote.greeted.push((hello.role, hello.cluster, hello.client));
        let cluster = match world.remote.dials {
            Dials::Unanswered => return,
            Dials::Strangers => ClusterId::new(99),
            Dials::Welcomed | Dials::Refused => Self::CLUSTER,
        };
        let (mut map, mut bytes) = (Vec::new(), Vec::new());
        Self::map(1, Self::ADDRESS).encode(&mut map);
        let welcome = Welcome {
            protocol: ProtocolVersion(3),
            cluster,
            client: hello.client,
            now: world.now,
            limits: Limits::OURS,
            near: Shards::new(&[]),
            map: &map,
        };
        welcome.encode(&Envelope::default(), &mut bytes);
        world.arrive(FrameBatch::new(reply_to, bytes));
    }

    /// The connection breaks: what was on its way is lost.
    pub(super) fn cut(world: &mut World) {
        let reply_to = world.remote.connection.take().expect("a connection stands");
        let reason = DisconnectReason::Closed;
        world.event(Event::Net(NetEvent::Disconnected { reply_to, dial: None, reason }));
    }
}

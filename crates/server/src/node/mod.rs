//! The node stage: what concerns the whole process rather than one shard.
//!
//! ```text
//!   client ── Hello ──► node ── Welcome{client id, map} ──► client
//!   anybody ─ MapPull, MasterAsk, NodeStatus ──► node ──► embedded master │ master in another process
//!   shard ── Freeze, Decide for a shard elsewhere ──► node ── connection ──► that shard's server, and its answers back
//! ```
//! It runs on a thread of its own, because it may block: the embedded master's state is written and
//! synced before an answer that depends on it leaves. Nothing of the data path passes through here
//! on a single node. Source: replication.md ("The master").

mod joining;
mod links;
mod master;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use timestone_clock::Clock;
use timestone_cluster::{ClusterError, MasterAnswer, MasterCommand, ServerId, ShardMap, StoreKind};
use timestone_seda::{Context, NetCommand, NetEvent, Origin, Parcel, Stage, StageId};
use timestone_types::{ClientId, ClusterId, Epoch, ShardId, Timestamp};
use timestone_wire::{
    self as wire, Envelope, ErrorCode, ErrorReply, Frame, Frames, Hello, Kind, Limits, MapIs,
    MasterReply, Message, Role, StatusListWriter, Welcome,
};

use crate::event::Event;
use crate::limits::{LAST_LIFE_INTERVAL, LIFE_INTERVAL};
use crate::manifest::Manifest;
pub use crate::node::joining::{JoinStep, Joining, Registration};
use crate::node::links::Links;
pub(crate) use crate::node::master::{MasterLink, register};

/// The figure of a node's status under which it tells the cluster's name.
const CLUSTER_NAME: &str = "cluster_name";

/// How often a process that is not the master asks for the map.
const MAP_INTERVAL: core::time::Duration = core::time::Duration::from_secs(1);

/// The node stage.
pub(crate) struct NodeStage {
    server: ServerId,
    map: Arc<ShardMap>,
    cluster_name: Option<String>,
    master: MasterLink,
    links: Links,
    shard_stages: Vec<(ShardId, StageId)>,
    gateways: Vec<StageId>,
    unsent: VecDeque<(StageId, Event)>,
    next_map: Timestamp,
    figures: Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    shared_map: Arc<std::sync::RwLock<Arc<ShardMap>>>,
    stopping: Arc<AtomicBool>,
    // Read for answers only; time comes with every turn.
    clock: Arc<dyn Clock>,
    // Where it is saved how far this run has lived, if it has no log to tell; and when it is saved
    // next.
    has_log: bool,
    life: Option<Arc<Manifest>>,
    next_life: Timestamp,
    // A turn of the shutdown has come.
    is_ending: bool,
    embedded: Embedded,
}

/// The stages whose clients end with this process, and where these are written down for the next
/// one.
pub(crate) struct Embedded {
    pub(crate) stages: Vec<StageId>,
    pub(crate) manifest: Arc<Manifest>,
}

/// What a node stage is made of.
pub(crate) struct NodeParts {
    pub(crate) server: ServerId,
    pub(crate) map: Arc<ShardMap>,
    /// The cluster's name, if it has one.
    pub(crate) cluster_name: Option<String>,
    pub(crate) master: MasterLink,
    /// The net stage that dials other processes.
    pub(crate) net: Option<StageId>,
    pub(crate) shard_stages: Vec<(ShardId, StageId)>,
    /// Who else is told of a new map.
    pub(crate) gateways: Vec<StageId>,
    /// Figures for `NodeStatus`.
    pub(crate) figures: Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    /// The map as the rest of the process reads it.
    pub(crate) shared_map: Arc<std::sync::RwLock<Arc<ShardMap>>>,
    /// Set when the process is about to stop: readiness says no.
    pub(crate) stopping: Arc<AtomicBool>,
    /// The process's clock, of which answers carry a reading.
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the shards of this process write a log.
    pub(crate) has_log: bool,
    /// For a run without a log: where it is saved how far that has lived.
    pub(crate) life: Option<Arc<Manifest>>,
    /// Whose client ids the manifest must have.
    pub(crate) embedded: Embedded,
}

impl NodeStage {
    pub(crate) fn new(parts: NodeParts) -> Self {
        Self {
            server: parts.server,
            map: parts.map,
            cluster_name: parts.cluster_name,
            master: parts.master,
            links: Links::new(parts.net),
            shard_stages: parts.shard_stages,
            gateways: parts.gateways,
            unsent: VecDeque::new(),
            next_map: Timestamp::ZERO,
            figures: parts.figures,
            shared_map: parts.shared_map,
            stopping: parts.stopping,
            clock: parts.clock,
            has_log: parts.has_log,
            life: parts.life,
            next_life: Timestamp::ZERO,
            is_ending: false,
            embedded: parts.embedded,
        }
    }

    /// One of our own stages is about to be given client ids, in place of those that ended when it
    /// was silent. What it leaves behind under them, the next run need not wait for; if the
    /// manifest cannot be saved, it waits once.
    fn note_clients(&self, origin: Origin, answer: &MasterAnswer) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::ForgottenRenewal) {
            return;
        }
        if let MasterAnswer::Clients(block) = answer
            && self.embedded.stages.contains(&origin.stage)
            && let Err(error) =
                self.embedded.manifest.has_clients(&block.iter().collect::<Vec<_>>())
        {
            tracing::warn!(%error, "the manifest could not be saved: the next start will wait for \
                a client of this one");
        }
    }

    /// Saves how far this run has lived. Nobody waits for it: the next start may find a time that
    /// is [`LIFE_INTERVAL`] old, after a graceful stop [`LAST_LIFE_INTERVAL`], or older if the
    /// manifest could not be saved.
    fn save_life(&mut self, now: Timestamp) {
        self.next_life =
            now.saturating_add(if self.is_ending { LAST_LIFE_INTERVAL } else { LIFE_INTERVAL });
        if let Some(life) = &self.life
            && let Err(error) = life.lives(now)
        {
            tracing::warn!(%error, "the manifest could not be saved; it is tried again");
        }
    }

    fn parcel(&mut self, ctx: &mut Context<'_, Event>, parcel: Parcel) {
        self.links.heard(ctx.now(), parcel.origin);
        let mut frames = Frames::new(&parcel.bytes);
        for frame in &mut frames {
            match frame {
                Ok(frame) => self.frame(ctx, parcel.origin, &frame),
                Err(error) => {
                    tracing::warn!(%error, "a parcel for the node holds bytes that are no frame; \
                        the rest of it is dropped");
                    break;
                }
            }
        }
        ctx.finish_parcel(parcel);
    }

    fn frame(&mut self, ctx: &mut Context<'_, Event>, origin: Origin, frame: &Frame<'_>) {
        if self.shard_stages.iter().any(|(_, stage)| *stage == origin.stage) {
            return self.forward(ctx, frame);
        }
        match frame.kind() {
            Kind::Hello => self.hello(ctx, origin, frame),
            Kind::MapPull => self.answer_map(ctx, origin, frame),
            Kind::MasterAsk => self.master_ask(ctx, origin, frame),
            Kind::NodeStatus => self.status(ctx, origin, frame),
            kind if kind.is_reply() => self.reply(ctx, frame),
            // A peer was told another's decision and has no prepare: only the client has the write
            // set. The peer is told again, until the client has helped it, or its watermark shows
            // that it has forgotten.
            Kind::FetchWriteSet => {}
            _ => {
                let shard = frame.envelope().shard;
                let words =
                    format!("shard {shard} is not on this server; fetch the shard map again");
                self.answer(ctx, origin, frame, |envelope, out| {
                    ErrorReply::new(ErrorCode::WrongShard, &words).encode(envelope, out)
                });
            }
        }
    }

    fn hello(&mut self, ctx: &mut Context<'_, Event>, origin: Origin, frame: &Frame<'_>) {
        let hello = match Hello::first(frame)
            .and_then(|hello| hello.negotiate().map(|version| (hello, version)))
        {
            Ok((hello, version)) => (hello, version),
            Err(error) => {
                return self.turn_away(
                    ctx,
                    origin,
                    frame,
                    ErrorCode::from(&error),
                    &error.to_string(),
                );
            }
        };
        let (hello, protocol) = hello;
        let cluster = self.map.cluster();
        if hello.cluster != ClusterId::ZERO && hello.cluster != cluster {
            let words = format!(
                "this server belongs to cluster {:016x}, not to {:016x}; check the address",
                cluster.get(),
                hello.cluster.get()
            );
            return self.turn_away(ctx, origin, frame, ErrorCode::WrongCluster, &words);
        }
        if hello.role != Role::Client || hello.client != ClientId::ZERO {
            return self.welcome(ctx, origin, frame.envelope().request, protocol, hello.client);
        }
        match self.master.client_id() {
            Ok(Some(client)) => {
                self.welcome(ctx, origin, frame.envelope().request, protocol, client)
            }
            Ok(None) => {
                // The ids of the last block are used up: the answer waits for the next one.
                self.master.waiting.push_back((origin, frame.envelope().request, protocol));
                self.ask_for_clients(ctx);
            }
            Err(error) => {
                let words = error.to_string();
                self.answer(ctx, origin, frame, |envelope, out| {
                    ErrorReply::new(ErrorCode::Unavailable, &words).encode(envelope, out);
                });
            }
        }
    }

    /// Says why not, and ends the connection: who does not belong here must not go on.
    fn turn_away(
        &mut self,
        ctx: &mut Context<'_, Event>,
        origin: Origin,
        frame: &Frame<'_>,
        code: ErrorCode,
        words: &str,
    ) {
        self.answer(ctx, origin, frame, |envelope, out| {
            ErrorReply::new(code, words).encode(envelope, out)
        });
        self.send(ctx, origin.stage, Event::NetCommand(NetCommand::Close(origin)));
    }

    fn welcome(
        &mut self,
        ctx: &mut Context<'_, Event>,
        origin: Origin,
        request: wire::RequestId,
        protocol: wire::ProtocolVersion,
        client: ClientId,
    ) {
        let mut map = Vec::new();
        self.map.encode(&mut map);
        let envelope = Envelope {
            shard: ShardId::ZERO,
            epoch: Epoch::ZERO,
            request,
            map_version: self.map.version(),
        };
        let welcome = Welcome {
            protocol,
            cluster: self.map.cluster(),
            client,
            now: ctx.now(),
            limits: Limits::OURS,
            map: &map,
        };
        let mut bytes = ctx.take_buffer();
        welcome.encode(&envelope, &mut bytes);
        self.send(ctx, origin.stage, Event::Parcel(Parcel::new(origin, bytes)));
    }

    fn answer_map(&mut self, ctx: &mut Context<'_, Event>, origin: Origin, frame: &Frame<'_>) {
        let mut map = Vec::new();
        self.map.encode(&mut map);
        self.answer(ctx, origin, frame, |envelope, out| MapIs { map: &map }.encode(envelope, out));
    }

    fn master_ask(&mut self, ctx: &mut Context<'_, Event>, origin: Origin, frame: &Frame<'_>) {
        let command = match wire::MasterAsk::decode(frame) {
            Ok(ask) => ask.master_command(),
            Err(error) => {
                let words = error.to_string();
                let code = ErrorCode::from(&error);
                return self.answer(ctx, origin, frame, |envelope, out| {
                    ErrorReply::new(code, &words).encode(envelope, out)
                });
            }
        };
        let done = match command {
            Ok(command) if self.is_dram_with_log(&command) => Err(ClusterError::DramWithLog.into()),
            Ok(command) if self.master.is_embedded() => self.master.execute(command),
            Ok(command) => return self.relay(ctx, origin, frame, &command),
            Err(error) => Err(error.into()),
        };
        match done {
            Ok((answer, map)) => {
                if let Some(map) = map {
                    self.set_map(ctx, map);
                }
                self.note_clients(origin, &answer);
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                self.answer(ctx, origin, frame, |envelope, out| {
                    MasterReply { answer: &bytes }.encode(envelope, out)
                });
            }
            Err(error) => {
                let (code, words) = (error.code(), error.to_string());
                self.answer(ctx, origin, frame, |envelope, out| {
                    ErrorReply::new(code, &words).encode(envelope, out)
                });
            }
        }
    }

    /// Whether a command asks for a keyspace in memory on a server that has a log.
    fn is_dram_with_log(&self, command: &MasterCommand) -> bool {
        matches!(command, MasterCommand::CreateKeyspace { options, .. } if options.store == StoreKind::Dram)
            && self.has_log
    }

    /// Passes a command on to the master in another process; its answer finds the way back by a
    /// number of ours.
    fn relay(
        &mut self,
        ctx: &mut Context<'_, Event>,
        origin: Origin,
        frame: &Frame<'_>,
        command: &MasterCommand,
    ) {
        let number = self.master.relay(origin, frame.envelope().request);
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let envelope = Envelope { request: number, ..Envelope::default() };
        let mut out = ctx.take_buffer();
        wire::MasterAsk { command: &bytes }.encode(&envelope, &mut out);
        if let Some(address) = self.master.address() {
            let (stage, event) = self.links.send(ctx.now(), address, out);
            self.send_all(ctx, stage, event);
        }
    }

    fn ask_for_clients(&mut self, ctx: &mut Context<'_, Event>) {
        let Some((address, number)) = self.master.want_clients() else { return };
        let mut bytes = Vec::new();
        MasterCommand::RegisterClient { count: crate::limits::CLIENT_BLOCK }.encode(&mut bytes);
        let mut out = ctx.take_buffer();
        wire::MasterAsk { command: &bytes }
            .encode(&Envelope { request: number, ..Envelope::default() }, &mut out);
        let (stage, event) = self.links.send(ctx.now(), address, out);
        self.send_all(ctx, stage, event);
    }

    fn pull_map(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(address) = self.master.address() else { return };
        if ctx.now() < self.next_map {
            return;
        }
        self.next_map = ctx.now().saturating_add(MAP_INTERVAL);
        let mut out = ctx.take_buffer();
        wire::MapPull {}.encode(&Envelope::default(), &mut out);
        let (stage, event) = self.links.send(ctx.now(), address, out);
        self.send_all(ctx, stage, event);
    }

    /// A frame of one of our shards for a shard elsewhere.
    fn forward(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        let Some(native) = self
            .map
            .primary(frame.envelope().shard)
            .and_then(|server| server.addresses.native.as_ref())
        else {
            return;
        };
        let mut out = ctx.take_buffer();
        out.extend_from_slice(frame.bytes());
        match links::resolve(native.as_str()) {
            Some(address) => {
                let (stage, event) = self.links.send(ctx.now(), address, out);
                self.send_all(ctx, stage, event);
            }
            None => ctx.give_buffer(out),
        }
    }

    /// An answer from another process: to one of our shards, or from the master.
    fn reply(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        match frame.kind() {
            Kind::FreezeAnswer | Kind::DecideAck | Kind::StatusIs => {
                let asker = frame.envelope().request.get();
                let stage =
                    self.shard_stages.iter().find(|(shard, _)| u64::from(shard.get()) + 1 == asker);
                if let Some(&(_, stage)) = stage {
                    let mut out = ctx.take_buffer();
                    out.extend_from_slice(frame.bytes());
                    let origin = Origin { stage, ..crate::shard::own_origin(ctx.stage()) };
                    self.send(ctx, stage, Event::Parcel(Parcel::new(origin, out)));
                }
            }
            Kind::MapIs => {
                if let Ok(map) =
                    MapIs::decode(frame).map_err(drop).and_then(|is| is.shard_map().map_err(drop))
                {
                    self.set_map(ctx, map);
                }
            }
            Kind::MasterReply | Kind::ErrorReply => self.master_replied(ctx, frame),
            _ => {}
        }
    }

    fn master_replied(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        let number = frame.envelope().request;
        let answer = MasterReply::decode(frame).ok().and_then(|reply| reply.master_answer().ok());
        if let Some((origin, request)) = self.master.relayed(number) {
            if let Some(answer) = &answer {
                self.note_clients(origin, answer);
            }
            let mut out = ctx.take_buffer();
            self.tell_clock(&mut out);
            let begun = out.len();
            out.extend_from_slice(frame.bytes());
            out[begun + 12..begun + 20].copy_from_slice(&request.get().to_le_bytes());
            return self.send(ctx, origin.stage, Event::Parcel(Parcel::new(origin, out)));
        }
        if let Some(MasterAnswer::Clients(block)) = answer {
            self.master.add_clients(block);
            while let Some((origin, request, protocol)) = self.master.waiting.pop_front() {
                match self.master.client_id() {
                    Ok(Some(client)) => self.welcome(ctx, origin, request, protocol, client),
                    _ => {
                        self.master.waiting.push_front((origin, request, protocol));
                        return self.ask_for_clients(ctx);
                    }
                }
            }
        }
    }

    fn set_map(&mut self, ctx: &mut Context<'_, Event>, map: ShardMap) {
        if map.version() <= self.map.version() {
            return;
        }
        self.map = Arc::new(map);
        if let Ok(mut shared) = self.shared_map.write() {
            *shared = Arc::clone(&self.map);
        }
        let shards = self.shard_stages.iter().map(|&(_, stage)| stage);
        let told: Vec<StageId> = shards.chain(self.gateways.iter().copied()).collect();
        for stage in told {
            self.send(ctx, stage, Event::MapChanged(Arc::clone(&self.map)));
        }
    }

    fn status(&mut self, ctx: &mut Context<'_, Event>, origin: Origin, frame: &Frame<'_>) {
        let mut figures = vec![
            ("server".to_owned(), self.server.to_string()),
            ("cluster".to_owned(), format!("{:016x}", self.map.cluster().get())),
            ("shards".to_owned(), self.shard_stages.len().to_string()),
        ];
        figures
            .extend(self.cluster_name.iter().map(|name| (CLUSTER_NAME.to_owned(), name.clone())));
        figures.extend((self.figures)());
        self.answer(ctx, origin, frame, |envelope, out| {
            let mut list = StatusListWriter::begin(envelope, out);
            for (name, value) in &figures {
                if !list.push(name, value) {
                    tracing::warn!(
                        name,
                        "the node's figures do not fit one answer; the rest of them is left out"
                    );
                    break;
                }
            }
            list.finish();
        });
    }

    fn answer(
        &mut self,
        ctx: &mut Context<'_, Event>,
        origin: Origin,
        frame: &Frame<'_>,
        write: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) {
        let envelope = frame.reply_envelope(Epoch::ZERO, self.map.version());
        let mut bytes = ctx.take_buffer();
        if frame.kind() != Kind::Hello {
            self.tell_clock(&mut bytes);
        }
        write(&envelope, &mut bytes);
        self.send(ctx, origin.stage, Event::Parcel(Parcel::new(origin, bytes)));
    }

    /// Begins a batch of answers with a reading of the clock. Not before a `Welcome`, which is the
    /// first thing that a peer hears.
    fn tell_clock(&self, bytes: &mut Vec<u8>) {
        let envelope = Envelope {
            shard: wire::SERVER_ITSELF,
            map_version: self.map.version(),
            ..Envelope::default()
        };
        crate::shard::reading(&*self.clock).encode(&envelope, bytes);
    }

    fn send_all(
        &mut self,
        ctx: &mut Context<'_, Event>,
        stage: Option<StageId>,
        events: Vec<Event>,
    ) {
        if let Some(stage) = stage {
            for event in events {
                self.send(ctx, stage, event);
            }
        }
    }

    fn send(&mut self, ctx: &mut Context<'_, Event>, stage: StageId, event: Event) {
        if !self.unsent.is_empty() {
            self.unsent.push_back((stage, event));
        } else if let Err(event) = ctx.send(stage, event) {
            self.unsent.push_back((stage, event));
        }
    }
}

impl Stage<Event> for NodeStage {
    fn name(&self) -> &str {
        "node"
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.links.set_owner(ctx.stage());
        // The run's begin has been saved.
        self.next_life = ctx.now().saturating_add(LIFE_INTERVAL);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        while let Some(event) = events.pop_front() {
            match event {
                Event::Parcel(parcel) => self.parcel(ctx, parcel),
                Event::Net(NetEvent::Connected(view)) => {
                    let (stage, events) =
                        self.links.connected(ctx.now(), &view, self.map.cluster());
                    self.send_all(ctx, stage, events);
                }
                Event::Net(
                    NetEvent::Disconnected { dial: Some(dial), .. }
                    | NetEvent::DialFailed { dial, .. },
                ) => {
                    self.links.disconnected(dial);
                    self.master.link_lost();
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some((stage, event)) = self.unsent.pop_front() {
            if let Err(event) = ctx.send(stage, event) {
                self.unsent.push_front((stage, event));
                ctx.want_turn();
                break;
            }
        }
        if ctx.is_shutting_down() && !self.is_ending && !is_planted!(ForgottenEnd) {
            self.is_ending = true;
            self.next_life = ctx.now();
        }
        if self.life.is_some() && ctx.now() >= self.next_life {
            self.save_life(ctx.now());
        }
        if ctx.is_shutting_down() {
            self.stopping.store(true, Ordering::Relaxed);
        } else {
            self.pull_map(ctx);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let map = (!self.master.is_embedded()).then_some(self.next_map);
        let life = self.life.is_some().then_some(self.next_life);
        [map, life].into_iter().flatten().min()
    }

    fn drained(&self) -> bool {
        self.unsent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use timestone_cluster::{ClientIdBlock, DirectoryId, Master, ServerAddresses};
    use timestone_seda::manual::ManualDriver;

    use super::*;
    use crate::config::{AcceptedLoss, ServerConfig};
    use crate::premises::{Local, Premises};

    #[test]
    fn a_new_map_is_told_to_shards_and_gateways_once() {
        let mut master =
            Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
        let before = Arc::new(master.map().clone());
        let command = MasterCommand::RegisterServer {
            cluster: ClusterId::new(4),
            directory: DirectoryId(1),
            addresses: ServerAddresses { native: None, resp: None, http: None },
            shards_wanted: 2,
        };
        let MasterAnswer::Server { map: after, .. } = master.step(command).unwrap().answer else {
            panic!("refused")
        };
        assert!(after.version() > before.version());
        let folder = tempfile::tempdir().unwrap();
        let stage = StageId::new;
        let block = ClientIdBlock { first: ClientId::new(1), count: 10 };
        let parts = NodeParts {
            shard_stages: vec![(ShardId::new(0), stage(1)), (ShardId::new(1), stage(2))],
            gateways: vec![stage(5), stage(6)],
            ..parts(
                before,
                MasterLink::remote("127.0.0.1:9".parse().unwrap(), block),
                directory(folder.path()).1,
            )
        };
        let now = Timestamp::from_nanos(1);
        let mut driver = ManualDriver::new(
            vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>],
            now,
            100,
        );
        let mut bytes = Vec::new();
        let mut encoded = Vec::new();
        after.encode(&mut encoded);
        for _ in 0..2 {
            MapIs { map: &encoded }.encode(&Envelope::default(), &mut bytes);
        }
        driver
            .send(stage(0), Event::Parcel(Parcel::new(crate::shard::own_origin(stage(9)), bytes)))
            .unwrap();
        driver.turn();
        let mut told = Vec::new();
        while let Some((to, event)) = driver.take_sent() {
            if let Event::MapChanged(map) = event {
                assert_eq!(map.version(), after.version());
                told.push(to);
            }
        }
        assert_eq!(told, [stage(1), stage(2), stage(5), stage(6)]);
    }

    /// The clients in the manifest after `asker` was given one, by a master in this process or in
    /// another one.
    fn clients_after_a_renewal(asker: StageId, is_remote: bool) -> Vec<ClientId> {
        let folder = tempfile::tempdir().unwrap();
        let (premises, manifest) = directory(folder.path());
        let master = Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
        let map = Arc::new(master.map().clone());
        let (stage, block) = (StageId::new, ClientIdBlock { first: ClientId::new(1), count: 10 });
        let master = match is_remote {
            true => MasterLink::remote("127.0.0.1:9".parse().unwrap(), block),
            false => MasterLink::embedded(master, premises),
        };
        let parts = NodeParts {
            gateways: vec![stage(5)],
            embedded: Embedded {
                stages: vec![stage(5), stage(6)],
                manifest: Arc::clone(&manifest),
            },
            ..parts(map, master, Arc::clone(&manifest))
        };
        let now = Timestamp::from_nanos(1);
        let mut driver = ManualDriver::new(
            vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>],
            now,
            100,
        );
        let (mut command, mut asked, mut answer, mut told) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        MasterCommand::RegisterClient { count: 1 }.encode(&mut command);
        wire::MasterAsk { command: &command }.encode(&Envelope::default(), &mut asked);
        driver
            .send(stage(0), Event::Parcel(Parcel::new(crate::shard::own_origin(asker), asked)))
            .unwrap();
        driver.turn();
        if is_remote {
            MasterAnswer::Clients(ClientIdBlock { first: ClientId::new(77), count: 1 })
                .encode(&mut answer);
            let envelope = Envelope { request: wire::RequestId::new(1), ..Envelope::default() };
            MasterReply { answer: &answer }.encode(&envelope, &mut told);
            driver
                .send(
                    stage(0),
                    Event::Parcel(Parcel::new(crate::shard::own_origin(stage(9)), told)),
                )
                .unwrap();
            driver.turn();
        }
        manifest.own_clients().into_iter().collect()
    }

    /// How far a run without a log is known to have lived, at the first moment of its end and half
    /// a second later, of five seconds before.
    fn lived_at_the_end() -> [u64; 2] {
        let folder = tempfile::tempdir().unwrap();
        let (premises, manifest) = directory(folder.path());
        let master = Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
        let map = Arc::new(master.map().clone());
        let stopping = Arc::new(AtomicBool::new(false));
        let parts = NodeParts {
            stopping: Arc::clone(&stopping),
            life: Some(Arc::clone(&manifest)),
            ..parts(map, MasterLink::embedded(master, premises), Arc::clone(&manifest))
        };
        let millis = |n: u64| Timestamp::from_nanos(n * 1_000_000);
        let stages = vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>];
        let mut driver = ManualDriver::new(stages, millis(100_000), 100);
        driver.turn();
        driver.set_now(millis(105_000));
        driver.turn();
        // Whoever stops a server says so before its stages hear of it.
        stopping.store(true, Ordering::Relaxed);
        driver.begin_shutdown();
        [105_000, 105_500].map(|now| {
            driver.set_now(millis(now));
            driver.turn();
            manifest.lived_until().as_nanos() / 1_000_000
        })
    }

    #[test]
    fn a_run_without_a_log_saves_at_its_end_how_far_it_has_lived() {
        assert_eq!(lived_at_the_end(), [105_000, 105_500]);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_run_that_forgets_its_last_moments_is_noticed() {
        let lived = crate::planted::with(crate::planted::Bug::ForgottenEnd, lived_at_the_end);
        assert!(lived[1] < 105_000, "the planted bug is found");
    }

    /// A node of these, whose server has no shards and no gateways.
    fn parts(map: Arc<ShardMap>, master: MasterLink, manifest: Arc<Manifest>) -> NodeParts {
        NodeParts {
            server: ServerId::new(1),
            map: Arc::clone(&map),
            cluster_name: None,
            master,
            net: None,
            shard_stages: Vec::new(),
            gateways: Vec::new(),
            figures: Arc::new(Vec::new),
            shared_map: Arc::new(std::sync::RwLock::new(map)),
            stopping: Arc::default(),
            clock: Arc::new(timestone_clock::ManualClock::new(Timestamp::from_nanos(1))),
            has_log: false,
            life: None,
            embedded: Embedded { stages: Vec::new(), manifest },
        }
    }

    fn directory(folder: &std::path::Path) -> (Arc<dyn Premises>, Arc<Manifest>) {
        let premises: Arc<dyn Premises> =
            Arc::new(Local::open(&ServerConfig::embedded(folder.join("data"))).unwrap());
        let manifest = Manifest::open(&premises, &AcceptedLoss::Nothing).unwrap();
        (premises, manifest)
    }

    #[test]
    fn the_client_that_one_of_our_stages_goes_on_as_is_in_the_manifest() {
        for is_remote in [false, true] {
            for own in [5, 6] {
                assert_eq!(
                    clients_after_a_renewal(StageId::new(own), is_remote).len(),
                    1,
                    "stage {own}, {is_remote}"
                );
            }
            assert_eq!(
                clients_after_a_renewal(StageId::new(9), is_remote),
                [],
                "it asks for somebody elsewhere"
            );
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_renewed_client_that_is_not_written_down_is_noticed() {
        let bug = crate::planted::Bug::ForgottenRenewal;
        assert_eq!(
            crate::planted::with(bug, || clients_after_a_renewal(StageId::new(5), false)),
            []
        );
    }
}

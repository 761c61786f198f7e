//! The node of a server whose shards have several replicas: heartbeats, configurations, and the
//! controller.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use timestone_cluster::{
    Address, EmbeddedMaster, HandOver, Heartbeat, MapVersion, MasterFailure, MasterService,
    ReplicaClaim, ReplicaLoss, ReplicaStatus, ReplicationFactor,
};
use timestone_replication::Step;
use timestone_types::HashSeed;
use timestone_wal::BatchNumber;

use super::*;
use crate::departure::Departure;
use crate::replica_gauges::{ReplicaGauges, Wish};

const NET: StageId = StageId::new(9);
const SHARDS: [StageId; 3] = [StageId::new(1), StageId::new(2), StageId::new(3)];

/// A master of three shards with three replicas each, at three servers; each is primary of one.
pub(super) fn master_of_three() -> Master {
    let factor = ReplicationFactor::new(3).unwrap();
    let mut master = Master::create_replicated(ClusterId::new(4), 3, factor, HashSeed(1)).unwrap();
    for server in 1..=3 {
        master.step(registering(server)).unwrap();
    }
    for (shard, server) in (0..).zip(1..=3) {
        assert_eq!(master.map().shards()[shard].primary, ServerId::new(server));
    }
    master
}

pub(super) fn registering(server: u16) -> MasterCommand {
    let native = Some(Address::new(&format!("127.0.0.1:{}", 7000 + server)).unwrap());
    MasterCommand::RegisterServer {
        cluster: ClusterId::new(4),
        directory: DirectoryId(server.into()),
        run: Run { number: 1, tag: 1 },
        addresses: ServerAddresses { native, resp: None, http: None },
        shards_wanted: 1,
    }
}

/// Several handles of one master.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<EmbeddedMaster>>);

impl Shared {
    pub(super) fn new(master: Master) -> Self {
        let lease = crate::limits::SERVER_LEASE;
        Self(Arc::new(Mutex::new(EmbeddedMaster::new(master, lease, |_| Ok(())))))
    }

    pub(super) fn control(&self) -> ControlState {
        self.0.lock().unwrap().master().control()
    }
}

impl MasterService for Shared {
    fn execute(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterFailure> {
        self.0.lock().unwrap().execute(command)
    }

    fn renew(&mut self, now: Timestamp, server: ServerId) -> Result<(), MasterFailure> {
        self.0.lock().unwrap().renew(now, server)
    }

    fn alive(&mut self, now: Timestamp) -> Result<Vec<ServerId>, MasterFailure> {
        self.0.lock().unwrap().alive(now)
    }

    fn campaign(
        &mut self,
        now: Timestamp,
        server: ServerId,
    ) -> Result<Option<timestone_cluster::Term>, MasterFailure> {
        self.0.lock().unwrap().campaign(now, server)
    }

    fn resign(&mut self, server: ServerId) -> Result<(), MasterFailure> {
        self.0.lock().unwrap().resign(server)
    }

    fn map_above(&mut self, seen: MapVersion) -> Result<Option<ShardMap>, MasterFailure> {
        self.0.lock().unwrap().map_above(seen)
    }
}

/// Server 1 of three, driven by hand; time in milliseconds.
struct Driven {
    driver: ManualDriver<Event>,
    gauges: Vec<Arc<ReplicaGauges>>,
    now: u64,
    /// Servers whose heartbeats come, and what they claim of the shard that is theirs.
    heard: Vec<(u32, ReplicaClaim)>,
    /// The configurations that the shards' stages were told, in order.
    told: Vec<Arc<ControlState>>,
    /// Frames for others, and addresses that were dialled.
    sent: Vec<(ReplyAddress, Vec<u8>)>,
    dialled: Vec<(DialId, SocketAddr)>,
    /// What the stages were told of handing over.
    hand_overs: Vec<(StageId, bool)>,
    departure: Arc<Departure>,
    _folder: tempfile::TempDir,
}

impl Driven {
    fn new(control: ControlState, link: impl FnOnce(Arc<dyn Environment>) -> MasterLink) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (environment, manifest) = directory(folder.path());
        let gauges: Vec<Arc<ReplicaGauges>> =
            (0..3).map(|shard| Arc::new(ReplicaGauges::new(ShardId::new(shard)))).collect();
        for (gauges, entry) in gauges.iter().zip(control.map.shards()) {
            gauges.set_epochs(entry.epoch, entry.epoch);
            gauges.set_step(Some(Step::Backup));
            gauges.set_progress(BatchNumber::new(5), 0);
        }
        let departure = Arc::new(Departure::default());
        let parts = NodeParts {
            departure: Arc::clone(&departure),
            control: Arc::new(control.clone()),
            replicas: gauges.clone(),
            net: Some(NET),
            shard_stages: (0..).map(ShardId::new).zip(SHARDS).collect(),
            ..parts(Arc::new(control.map), link(environment), manifest)
        };
        let stages = vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>];
        let driver = ManualDriver::new(stages, Timestamp::from_nanos(1_000_000_000), 100);
        let mut driven = Self {
            driver,
            gauges,
            now: 1000,
            heard: vec![(2, ReplicaClaim::Serves), (3, ReplicaClaim::Serves)],
            told: Vec::new(),
            sent: Vec::new(),
            dialled: Vec::new(),
            hand_overs: Vec::new(),
            departure,
            _folder: folder,
        };
        driven.turn();
        driven
    }

    fn turn(&mut self) {
        self.driver.set_now(Timestamp::from_nanos(self.now * 1_000_000));
        self.driver.turn();
        while let Some((to, event)) = self.driver.take_sent() {
            match event {
                Event::ConfigurationsChanged(control) if to == SHARDS[0] => self.told.push(control),
                Event::HandOver { is_wanted } => self.hand_overs.push((to, is_wanted)),
                Event::FrameBatch(batch) => self.sent.push((batch.reply_to, batch.bytes.to_vec())),
                Event::NetCommand(timestone_seda::NetCommand::Dial { dial, address, .. }) => {
                    self.dialled.push((dial, address));
                }
                _ => {}
            }
        }
    }

    fn frames(&mut self, reply_to: ReplyAddress, bytes: Vec<u8>) {
        let batch = Event::FrameBatch(FrameBatch::new(reply_to, bytes));
        self.driver.send(StageId::new(0), batch).unwrap();
    }

    /// The heartbeat of another server, whose primaries claim this of their epochs.
    fn hear(&mut self, server: u32, claim: ReplicaClaim) {
        let control = self.told.last().expect("it is told at the begin").clone();
        let status = |entry: &timestone_cluster::ShardEntry| ReplicaStatus {
            shard: entry.id,
            promised: entry.epoch,
            claim: if entry.primary.get() == server { claim } else { ReplicaClaim::None },
            installed: entry.epoch,
            loss: ReplicaLoss::None,
            lag_records: 0,
        };
        let replicas = control.map.shards().iter().map(status).collect();
        let heartbeat = Heartbeat { server: ServerId::new(server), replicas, asked: None };
        self.frames(accepted(server), framed(&heartbeat));
    }

    /// So much time passes, with a heartbeat of each that is heard every 50 ms.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            self.now += 50;
            for (server, claim) in self.heard.clone() {
                self.hear(server, claim);
            }
            self.turn();
        }
    }

    fn latest(&self) -> &ControlState {
        self.told.last().expect("it is told at the begin")
    }
}

/// A connection that a server has made to this one.
fn accepted(server: u32) -> ReplyAddress {
    ReplyAddress {
        stage: NET,
        connection: ConnectionId::new(100 + server),
        generation: Generation::new(1),
    }
}

fn framed(heartbeat: &Heartbeat) -> Vec<u8> {
    let (mut beat, mut bytes) = (Vec::new(), Vec::new());
    heartbeat.encode(&mut beat);
    wire::Heartbeat { beat: &beat }.encode(&Envelope::default(), &mut bytes);
    bytes
}

/// The kinds of all frames in these bytes.
fn kinds(bytes: &[u8]) -> Vec<Kind> {
    Frames::new(bytes).map(|frame| frame.unwrap().kind()).collect()
}

fn heartbeats_in(bytes: &[u8]) -> Vec<Heartbeat> {
    let of_frame = |frame: Result<Frame<'_>, _>| {
        let beat = wire::Heartbeat::decode(&frame.ok()?).ok()?;
        Some(Heartbeat::decode(beat.beat).unwrap())
    };
    Frames::new(bytes).filter_map(of_frame).collect()
}

#[test]
fn a_server_tells_all_others_how_its_replicas_are() {
    let control = master_of_three().control();
    let clients = ClientIdBlock { first: ClientId::new(1), count: 10 };
    let mut driven = Driven::new(control, |_| MasterLink::remote(far(), clients));
    driven.gauges[0].set_step(Some(Step::Serving));
    driven.gauges[1].set_step(Some(Step::Joining));
    driven.gauges[1].set_wish(Wish::NewEpoch);
    driven.gauges[2].set_step(None);
    let others: Vec<(DialId, SocketAddr)> =
        driven.dialled.iter().copied().filter(|(_, address)| *address != far()).collect();
    let addresses: Vec<u16> = others.iter().map(|(_, address)| address.port()).collect();
    assert_eq!(addresses, [7002, 7003]);
    driven.pass(500);
    assert_eq!(driven.dialled.len(), 3, "a connection that is being made is waited for");
    let (dial, peer) = others[0];
    let reply_to = ReplyAddress { connection: ConnectionId::new(7), ..accepted(0) };
    let view = ConnectionView { reply_to, peer, dial: Some(dial), owner: None };
    driven.driver.send(StageId::new(0), Event::Net(NetEvent::Connected(view))).unwrap();
    driven.turn();
    driven.sent.clear();
    driven.pass(300);
    let sent = driven.sent.iter().filter(|(to, _)| *to == reply_to);
    let told: Vec<Heartbeat> = sent.flat_map(|(_, bytes)| heartbeats_in(bytes)).collect();
    assert_eq!(told.len(), 3, "one every 100 ms");
    let status = |shard: u16, claim| ReplicaStatus {
        shard: ShardId::new(shard),
        promised: Epoch::new(2),
        claim,
        installed: Epoch::new(2),
        loss: ReplicaLoss::None,
        lag_records: 0,
    };
    // What can keep nothing is left out.
    let replicas = vec![status(0, ReplicaClaim::Serves), status(1, ReplicaClaim::NeedsEpoch)];
    assert_eq!(told[0], Heartbeat { server: ServerId::new(1), replicas, asked: None });
}

#[test]
fn heartbeats_are_answered_and_garbage_is_refused() {
    let clients = ClientIdBlock { first: ClientId::new(1), count: 10 };
    let control = master_of_three().control();
    let mut driven = Driven::new(control, |_| MasterLink::remote(far(), clients));
    driven.sent.clear();
    driven.hear(2, ReplicaClaim::Serves);
    let mut garbage = Vec::new();
    wire::Heartbeat { beat: &[1, 2, 3] }.encode(&Envelope::default(), &mut garbage);
    driven.frames(accepted(3), garbage);
    driven.turn();
    let answered = |server| {
        let answers = driven.sent.iter().filter(|(to, _)| *to == accepted(server));
        let kinds: Vec<Kind> = answers.flat_map(|(_, bytes)| kinds(bytes)).collect();
        kinds.into_iter().filter(|kind| *kind != Kind::ClockIs).collect::<Vec<_>>()
    };
    assert_eq!(answered(2), [Kind::HeartbeatAck]);
    assert_eq!(answered(3), [Kind::ErrorReply]);
}

#[test]
fn a_cluster_of_single_copies_sends_no_heartbeats_and_has_no_controller() {
    let mut master = Master::create(ClusterId::new(4), 3, HashSeed(1)).unwrap();
    for server in 1..=3 {
        master.step(registering(server)).unwrap();
    }
    let mut driven = Driven::new(master.control(), |environment| {
        MasterLink::embedded(master.clone(), environment)
    });
    driven.heard.clear();
    driven.pass(2000);
    assert_eq!((driven.dialled.len(), driven.told.len()), (0, 0));
}

#[test]
fn the_controller_confirms_what_serves_and_moves_what_is_lost() {
    let master = master_of_three();
    let control = master.control();
    let mut driven = Driven::new(control, |environment| MasterLink::embedded(master, environment));
    assert_eq!(driven.told.len(), 1, "replicas are told at the begin");
    driven.pass(1000);
    let confirmed = |driven: &Driven| {
        driven.latest().normal.iter().map(|one| one.epoch.get()).collect::<Vec<_>>()
    };
    assert_eq!(confirmed(&driven), [0, 2, 2], "its own does not serve yet");
    driven.gauges[0].set_step(Some(Step::Serving));
    driven.pass(200);
    assert_eq!(confirmed(&driven), [2, 2, 2]);
    driven.heard.retain(|(server, _)| *server != 2);
    driven.pass(400);
    assert_eq!(driven.latest().map.shards()[1].primary, ServerId::new(2), "it may be late");
    driven.pass(400);
    let moved = &driven.latest().map.shards()[1];
    assert_ne!(moved.primary, ServerId::new(2));
    assert_eq!((moved.epoch.get(), moved.replicas.len()), (3, 3));
    assert_eq!(driven.latest().map.shards()[2].epoch.get(), 2, "the others stay");
}

/// A server of a cluster whose shards are all confirmed; its own serves.
fn settled(master: Master) -> Driven {
    let control = master.control();
    let mut driven = Driven::new(control, |environment| MasterLink::embedded(master, environment));
    driven.gauges[0].set_step(Some(Step::Serving));
    driven.pass(1000);
    assert!(driven.latest().normal.iter().all(|normal| normal.epoch.get() == 2));
    driven
}

#[test]
fn a_server_that_is_stopped_ends_when_another_one_serves_its_shard() {
    let mut driven = settled(master_of_three());
    driven.departure.begin();
    driven.pass(200);
    assert_eq!(driven.hand_overs, SHARDS.map(|stage| (stage, true)));
    assert_eq!(driven.latest().map.shards()[0].epoch.get(), 2, "its leases are long");
    driven.gauges[0].set_wish(Wish::Successor);
    driven.heard[0].1 = ReplicaClaim::None;
    driven.pass(100);
    let moved = driven.latest().map.shards()[0].clone();
    assert_eq!((moved.primary, moved.epoch.get()), (ServerId::new(2), 3));
    driven.gauges[0].set_step(Some(Step::Backup));
    driven.pass(100);
    assert!(!driven.departure.is_over(), "nobody serves yet");
    driven.heard[0].1 = ReplicaClaim::Serves;
    driven.pass(200);
    assert!(driven.departure.is_over());
    assert_eq!(driven.latest().normal[0].epoch.get(), 3, "it is confirmed");
}

#[test]
fn a_server_that_is_stopped_waits_for_nobody_where_nobody_can_take_its_shard() {
    let mut driven = settled(master_of_three());
    driven.heard.clear();
    driven.pass(1200);
    driven.departure.begin();
    driven.pass(100);
    assert!(driven.departure.is_over());
}

#[test]
fn a_primary_hands_over_as_long_as_the_controller_asks() {
    let control = master_of_three().control();
    let clients = ClientIdBlock { first: ClientId::new(1), count: 10 };
    let mut driven = Driven::new(control, |_| MasterLink::remote(far(), clients));
    let ask = |driven: &mut Driven, shard: u16, epoch: u32| {
        let asked = Some(HandOver { shard: ShardId::new(shard), epoch: Epoch::new(epoch) });
        let heartbeat = Heartbeat { server: ServerId::new(2), replicas: Vec::new(), asked };
        driven.frames(accepted(2), framed(&heartbeat));
        driven.now += 100;
        driven.turn();
    };
    driven.heard.clear();
    ask(&mut driven, 0, 1);
    ask(&mut driven, 1, 2);
    assert_eq!(driven.hand_overs, [], "another epoch, and another server's shard");
    (0..20).for_each(|_| ask(&mut driven, 0, 2));
    assert_eq!(driven.hand_overs, [(SHARDS[0], true)]);
    driven.pass(1000);
    assert_eq!(driven.hand_overs, [(SHARDS[0], true), (SHARDS[0], false)]);
}

/// A master that does not carry out confirmations for a while, and counts them.
#[derive(Clone)]
struct Refusing {
    master: Shared,
    confirmations: Arc<AtomicU32>,
    refuses: Arc<AtomicBool>,
}

impl MasterService for Refusing {
    fn execute(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterFailure> {
        if matches!(command, MasterCommand::ConfirmShard { .. }) {
            self.confirmations.fetch_add(1, Ordering::Relaxed);
            if self.refuses.load(Ordering::Relaxed) {
                return Err(MasterFailure::Unavailable { detail: "not now".to_owned() });
            }
        }
        self.master.execute(command)
    }

    fn renew(&mut self, now: Timestamp, server: ServerId) -> Result<(), MasterFailure> {
        self.master.renew(now, server)
    }

    fn alive(&mut self, now: Timestamp) -> Result<Vec<ServerId>, MasterFailure> {
        self.master.alive(now)
    }

    fn campaign(
        &mut self,
        now: Timestamp,
        server: ServerId,
    ) -> Result<Option<timestone_cluster::Term>, MasterFailure> {
        self.master.campaign(now, server)
    }

    fn resign(&mut self, server: ServerId) -> Result<(), MasterFailure> {
        self.master.resign(server)
    }

    fn map_above(&mut self, seen: MapVersion) -> Result<Option<ShardMap>, MasterFailure> {
        self.master.map_above(seen)
    }
}

/// Heartbeats come more often than the controller has anything else to do.
#[test]
fn what_was_refused_is_proposed_again_while_heartbeats_come() {
    let refusing = Refusing {
        master: Shared::new(master_of_three()),
        confirmations: Arc::default(),
        refuses: Arc::new(AtomicBool::new(true)),
    };
    let control = refusing.master.control();
    let mut driven = Driven::new(control, |_| MasterLink::shared(Box::new(refusing.clone())));
    driven.pass(500);
    // Two shards serve; each is confirmed at each of the some 25 heartbeats at most.
    let asked = refusing.confirmations.load(Ordering::Relaxed);
    assert!((10..=100).contains(&asked), "{asked} confirmations in half a second");
    refusing.refuses.store(false, Ordering::Relaxed);
    driven.pass(100);
    let confirmed: Vec<u32> = driven.latest().normal.iter().map(|one| one.epoch.get()).collect();
    assert_eq!(confirmed, [0, 2, 2]);
}

#[test]
fn a_primary_that_needs_an_epoch_gets_it() {
    let master = master_of_three();
    let control = master.control();
    let mut driven = Driven::new(control, |environment| MasterLink::embedded(master, environment));
    driven.heard = vec![(2, ReplicaClaim::NeedsEpoch), (3, ReplicaClaim::Serves)];
    driven.pass(100);
    driven.heard[0].1 = ReplicaClaim::None;
    driven.pass(300);
    let entry = &driven.latest().map.shards()[1];
    assert_eq!((entry.epoch.get(), entry.primary.get()), (3, 2));
}

/// The master is the environment's, and another server is the controller until its lease ends.
#[test]
fn the_next_controller_goes_on_when_the_lease_of_the_last_one_has_ended() {
    let mut shared = Shared::new(master_of_three());
    let held = shared.campaign(Timestamp::from_nanos(1_000_000_000), ServerId::new(2)).unwrap();
    let held = held.expect("nobody else has asked");
    let mut driven =
        Driven::new(shared.control(), |_| MasterLink::shared(Box::new(shared.clone())));
    driven.pass(2000);
    assert_eq!(shared.control(), *driven.latest(), "nothing was done");
    assert_eq!(shared.control().normal[1].epoch.get(), 0);
    // What the other one does is heard of.
    let (shard, epoch) = (ShardId::new(1), Epoch::new(2));
    shared.execute(MasterCommand::ConfirmShard { term: held, shard, epoch }).unwrap();
    driven.pass(100);
    assert_eq!(driven.latest().normal[1].epoch, epoch);
    driven.heard.retain(|(server, _)| *server != 2);
    driven.pass(crate::limits::SERVER_LEASE.as_millis() as u64 + 1500);
    assert_eq!(shared.control().term, held.next());
    assert_eq!(shared.control().normal[2].epoch.get(), 2, "the new controller confirms");
    let moved = shared.control().map.shards()[1].clone();
    assert_ne!(moved.primary, ServerId::new(2));
    assert_eq!(moved, driven.latest().map.shards()[1]);
    // Its term is over as soon as another one has begun; what it proposes is refused.
    shared.resign(ServerId::new(1)).unwrap();
    let now = Timestamp::from_nanos(driven.now * 1_000_000);
    let next = shared.campaign(now, ServerId::new(3)).unwrap();
    assert_eq!(next, Some(held.next().next()));
    driven.heard.clear();
    driven.pass(2000);
    assert_eq!(shared.control().map.shards()[1], moved);
}

#[test]
fn a_remote_master_is_asked_for_configurations_and_what_it_says_is_told() {
    let mut master = master_of_three();
    let before = master.control();
    let clients = ClientIdBlock { first: ClientId::new(1), count: 10 };
    let mut driven = Driven::new(before, |_| MasterLink::remote(far(), clients));
    let (dial, _) = *driven.dialled.iter().find(|(_, address)| *address == far()).unwrap();
    let reply_to = ReplyAddress { connection: ConnectionId::new(7), ..accepted(0) };
    let view = ConnectionView { reply_to, peer: far(), dial: Some(dial), owner: None };
    driven.driver.send(StageId::new(0), Event::Net(NetEvent::Connected(view))).unwrap();
    driven.turn();
    let to_master = |driven: &Driven| {
        let sent = driven.sent.iter().filter(|(to, _)| *to == reply_to);
        sent.flat_map(|(_, bytes)| kinds(bytes)).filter(|kind| *kind == Kind::MasterAsk).count()
    };
    let asked = to_master(&driven);
    driven.pass(500);
    assert_eq!(to_master(&driven) - asked, 5, "every 100 ms");
    let expected = timestone_cluster::Term::ZERO;
    let controller = ServerId::new(1);
    master.step(MasterCommand::BeginTerm { controller, expected }).unwrap();
    let (term, shard, epoch) = (expected.next(), ShardId::new(0), Epoch::new(2));
    master.step(MasterCommand::ConfirmShard { term, shard, epoch }).unwrap();
    for _ in 0..2 {
        let (mut answer, mut bytes) = (Vec::new(), Vec::new());
        MasterAnswer::Control(master.control()).encode(&mut answer);
        let envelope = Envelope { request: wire::RequestId::new(77), ..Envelope::default() };
        MasterReply { answer: &answer }.encode(&envelope, &mut bytes);
        driven.frames(reply_to, bytes);
        driven.turn();
    }
    assert_eq!(driven.told.len(), 2, "at the begin, and once more");
    assert_eq!(*driven.latest(), master.control());
    // One that was overtaken changes nothing.
    let (mut answer, mut bytes) = (Vec::new(), Vec::new());
    MasterAnswer::Control(master_of_three().control()).encode(&mut answer);
    MasterReply { answer: &answer }.encode(&Envelope::default(), &mut bytes);
    driven.frames(reply_to, bytes);
    driven.turn();
    assert_eq!(driven.told.len(), 2);
}

/// Of a server that is not the master's nothing was asked that could be lost.
#[test]
fn what_the_master_was_asked_is_lost_with_its_connection_alone() {
    let clients = ClientIdBlock { first: ClientId::new(1), count: 1 };
    let mut driven =
        Driven::new(master_of_three().control(), |_| MasterLink::remote(far(), clients));
    let dial_of = |driven: &Driven, to: SocketAddr| {
        driven.dialled.iter().rev().find(|(_, address)| *address == to).unwrap().0
    };
    let connect = |driven: &mut Driven, connection| {
        let reply_to = ReplyAddress { connection: ConnectionId::new(connection), ..accepted(0) };
        let dial = Some(dial_of(driven, far()));
        let view = ConnectionView { reply_to, peer: far(), dial, owner: None };
        driven.driver.send(StageId::new(0), Event::Net(NetEvent::Connected(view))).unwrap();
        driven.turn();
    };
    let end = |driven: &mut Driven, dial| {
        let reason = timestone_seda::DisconnectReason::Closed;
        let ended = NetEvent::Disconnected { reply_to: accepted(0), dial: Some(dial), reason };
        driven.driver.send(StageId::new(0), Event::Net(ended)).unwrap();
        driven.turn();
    };
    let greet = |driven: &mut Driven| {
        let mut hello = Vec::new();
        wire::Hello::new(wire::Role::Client, ClusterId::ZERO, ClientId::ZERO, "")
            .encode(&Envelope::default(), &mut hello);
        driven.frames(accepted(50), hello);
        driven.turn();
    };
    let asked = |driven: &Driven| {
        let is_for_clients = |frame: Result<Frame<'_>, _>| {
            let ask = wire::MasterAsk::decode(&frame.unwrap());
            ask.is_ok_and(|ask| {
                matches!(ask.master_command(), Ok(MasterCommand::RegisterClient { .. }))
            })
        };
        let sent = driven.sent.iter();
        sent.map(|(_, bytes)| Frames::new(bytes).filter(|frame| is_for_clients(*frame)).count())
            .sum::<usize>()
    };
    connect(&mut driven, 7);
    (0..3).for_each(|_| greet(&mut driven));
    assert_eq!(asked(&driven), 1, "the first had an id, the others wait for the same answer");
    let other = dial_of(&driven, "127.0.0.1:7002".parse().unwrap());
    end(&mut driven, other);
    greet(&mut driven);
    driven.pass(200);
    assert_eq!(asked(&driven), 1, "its answer is on its way");
    let own = dial_of(&driven, far());
    end(&mut driven, own);
    driven.pass(600);
    connect(&mut driven, 8);
    driven.pass(200);
    assert_eq!(asked(&driven), 2, "it is asked again, whoever waits");
}

/// A new primary may wait for what the master has to tell; clients that look for it do not delay it.
#[test]
fn the_map_is_told_without_asking_a_master_elsewhere() {
    let clients = ClientIdBlock { first: ClientId::new(1), count: 1 };
    let control = master_of_three().control();
    let version = control.map.version();
    let mut driven = Driven::new(control, |_| MasterLink::remote(far(), clients));
    let (dial, _) = *driven.dialled.iter().find(|(_, address)| *address == far()).unwrap();
    let reply_to = ReplyAddress { connection: ConnectionId::new(7), ..accepted(0) };
    let view = ConnectionView { reply_to, peer: far(), dial: Some(dial), owner: None };
    driven.driver.send(StageId::new(0), Event::Net(NetEvent::Connected(view))).unwrap();
    driven.turn();
    driven.sent.clear();
    let (mut command, mut asked) = (Vec::new(), Vec::new());
    MasterCommand::FetchMap.encode(&mut command);
    wire::MasterAsk { command: &command }.encode(&Envelope::default(), &mut asked);
    driven.frames(accepted(50), asked);
    driven.turn();
    let [(to, answer)] = driven.sent.as_slice() else { panic!("{:?}", driven.sent) };
    assert_eq!(*to, accepted(50));
    let frame = Frame::parse(wire::without_clock(answer)).unwrap();
    let answer = MasterReply::decode(&frame).unwrap().master_answer().unwrap();
    let MasterAnswer::Map(map) = answer else { panic!("{answer:?}") };
    assert_eq!(map.version(), version);
}

//! Tests of the node stage, driven by hand.

mod replicated;
mod runs;

use timestone_cluster::{
    ClientIdBlock, ControlState, ControllerLimits, DirectoryId, Master, MasterAnswer,
    MasterCommand, Run, ServerAddresses, ShardMap,
};
use timestone_seda::manual::ManualDriver;
use timestone_seda::{ConnectionId, ConnectionView, DialId, Generation};
use timestone_types::{ClientId, ClusterId};
use timestone_wire::MasterReply;

use super::*;
use crate::config::{AcceptedLoss, ServerConfig};
use crate::environment::{Environment, LocalEnvironment};
use crate::manifest::Manifest;

/// Where masters of other processes are.
fn far() -> std::net::SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

/// The connection that the node has dialled to the master, from its first turn on.
fn dialled(driver: &mut ManualDriver<Event>) -> ReplyAddress {
    driver.turn();
    let reply_to = ReplyAddress {
        stage: StageId::new(9),
        connection: ConnectionId::new(7),
        generation: Generation::new(1),
    };
    let view = ConnectionView { reply_to, peer: far(), dial: Some(DialId::new(1)), owner: None };
    driver.send(StageId::new(0), Event::Net(NetEvent::Connected(view))).unwrap();
    driver.turn();
    reply_to
}

/// Whether a map that comes over a connection of this kind is told to shards and gateways, once.
fn is_told(over_our_link: bool) -> Vec<StageId> {
    let mut master = Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
    let before = Arc::new(master.map().clone());
    let command = MasterCommand::RegisterServer {
        cluster: ClusterId::new(4),
        directory: DirectoryId(1),
        run: Run { number: 1, tag: 1 },
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
        ..parts(before, MasterLink::remote(far(), block), directory(folder.path()).1)
    };
    let now = Timestamp::from_nanos(1);
    let mut driver =
        ManualDriver::new(vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>], now, 100);
    let mut bytes = Vec::new();
    let mut encoded = Vec::new();
    after.encode(&mut encoded);
    for _ in 0..2 {
        MapIs { map: &encoded }.encode(&Envelope::default(), &mut bytes);
    }
    let link = dialled(&mut driver);
    let accepted = ReplyAddress { connection: ConnectionId::new(8), ..link };
    let from = if over_our_link { link } else { accepted };
    driver.send(stage(0), Event::FrameBatch(FrameBatch::new(from, bytes))).unwrap();
    driver.turn();
    let mut told = Vec::new();
    while let Some((to, event)) = driver.take_sent() {
        if let Event::MapChanged(map) = event {
            assert_eq!(map.version(), after.version());
            told.push(to);
        }
    }
    told
}

#[test]
fn a_new_map_is_told_to_shards_and_gateways_once() {
    assert_eq!(is_told(true), [1, 2, 5, 6].map(StageId::new));
}

/// A client that sends a map was asked nothing.
#[test]
fn a_map_counts_from_the_master_alone() {
    assert_eq!(is_told(false), []);
}

/// The clients in the manifest after `asker` was given one, by a master in this process or in
/// another one.
fn clients_after_a_renewal(asker: StageId, is_remote: bool) -> Vec<ClientId> {
    let folder = tempfile::tempdir().unwrap();
    let (environment, manifest) = directory(folder.path());
    let master = Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
    let map = Arc::new(master.map().clone());
    let (stage, block) = (StageId::new, ClientIdBlock { first: ClientId::new(1), count: 10 });
    let master = match is_remote {
        true => MasterLink::remote(far(), block),
        false => MasterLink::embedded(master, environment),
    };
    let parts = NodeParts {
        gateways: vec![stage(5)],
        embedded: Embedded { stages: vec![stage(5), stage(6)], manifest: Arc::clone(&manifest) },
        ..parts(map, master, Arc::clone(&manifest))
    };
    let now = Timestamp::from_nanos(1);
    let mut driver =
        ManualDriver::new(vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>], now, 100);
    let (mut command, mut asked, mut answer, mut told) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    MasterCommand::RegisterClient { count: 1 }.encode(&mut command);
    wire::MasterAsk { command: &command }.encode(&Envelope::default(), &mut asked);
    let link = is_remote.then(|| dialled(&mut driver));
    driver
        .send(
            stage(0),
            Event::FrameBatch(FrameBatch::new(timestone_shard::own_reply_address(asker), asked)),
        )
        .unwrap();
    driver.turn();
    if let Some(link) = link {
        MasterAnswer::Clients(ClientIdBlock { first: ClientId::new(77), count: 1 })
            .encode(&mut answer);
        let envelope = Envelope { request: wire::RequestId::new(1), ..Envelope::default() };
        MasterReply { answer: &answer }.encode(&envelope, &mut told);
        driver.send(stage(0), Event::FrameBatch(FrameBatch::new(link, told))).unwrap();
        driver.turn();
    }
    manifest.own_clients().into_iter().collect()
}

/// How far a run without a log is known to have lived, at the first moment of its end and half
/// a second later, of five seconds before.
fn lived_at_the_end() -> [u64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let (environment, manifest) = directory(folder.path());
    let master = Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
    let map = Arc::new(master.map().clone());
    let stopping = Arc::new(AtomicBool::new(false));
    let parts = NodeParts {
        stopping: Arc::clone(&stopping),
        life: Some(Arc::clone(&manifest)),
        ..parts(map, MasterLink::embedded(master, environment), Arc::clone(&manifest))
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
    let control = ControlState::of_single_copies(ShardMap::clone(&map));
    NodeParts {
        server: ServerId::new(1),
        map: Arc::clone(&map),
        control: Arc::new(control),
        replicas: Vec::new(),
        limits: ControllerLimits::default(),
        cluster_name: None,
        master,
        net: None,
        shard_stages: Vec::new(),
        doors: Vec::new(),
        gateways: Vec::new(),
        figures: Arc::new(Vec::new),
        shared_map: Arc::new(std::sync::RwLock::new(map)),
        stopping: Arc::default(),
        departure: Arc::default(),
        clock: Arc::new(timestone_clock::ManualClock::new(Timestamp::from_nanos(1))),
        life: None,
        run_interval: crate::limits::RUN_INTERVAL,
        embedded: Embedded { stages: Vec::new(), manifest },
    }
}

fn directory(folder: &std::path::Path) -> (Arc<dyn Environment>, Arc<Manifest>) {
    let environment: Arc<dyn Environment> =
        Arc::new(LocalEnvironment::open(&ServerConfig::embedded(folder.join("data"))).unwrap());
    let manifest = Manifest::open(&environment, &AcceptedLoss::Nothing).unwrap();
    (environment, manifest)
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

/// Who may change shards is not asked yet, and no shard could follow.
#[test]
fn changes_of_shards_are_refused_over_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let (environment, manifest) = directory(folder.path());
    let master = Master::create(ClusterId::new(4), 2, timestone_types::HashSeed(1)).unwrap();
    let map = Arc::new(master.map().clone());
    let parts = parts(map, MasterLink::embedded(master, environment), manifest);
    let stages = vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>];
    let mut driver = ManualDriver::new(stages, Timestamp::from_nanos(1), 100);
    let (asker, expected) = (StageId::new(5), timestone_cluster::Term::ZERO);
    for (command, is_refused) in [
        (MasterCommand::BeginRestored, true),
        (MasterCommand::BeginTerm { controller: ServerId::new(1), expected }, true),
        (MasterCommand::FetchMap, false),
    ] {
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        command.encode(&mut bytes);
        wire::MasterAsk { command: &bytes }.encode(&Envelope::default(), &mut asked);
        let reply_to = timestone_shard::own_reply_address(asker);
        driver.send(StageId::new(0), Event::FrameBatch(FrameBatch::new(reply_to, asked))).unwrap();
        driver.turn();
        let Some((_, Event::FrameBatch(answered))) = driver.take_sent() else {
            panic!("no answer to {command:?}")
        };
        let frame = Frame::parse(wire::without_clock(&answered.bytes)).unwrap();
        let refused = ErrorReply::decode(&frame).is_ok_and(|it| it.code == ErrorCode::Unsupported);
        assert_eq!(refused, is_refused, "{command:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_renewed_client_that_is_not_written_down_is_noticed() {
    let bug = crate::planted::Bug::ForgottenRenewal;
    assert_eq!(crate::planted::with(bug, || clients_after_a_renewal(StageId::new(5), false)), []);
}

//! The thread that asks etcd for a host: what it tells without being asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use timestone_cluster::{
    Address, ControlState, DirectoryId, MapVersion, MasterAnswer, MasterCommand, MasterService,
    ServerAddresses, ServerId, Term,
};
use timestone_etcd::{EtcdMaster, EtcdWorker, MasterNews, ServedServer};
use timestone_types::{ClusterId, Epoch, ShardId};

use super::{Noted, open};
use crate::server::EtcdServer;

const TIMEOUT: Duration = Duration::from_secs(20);

/// What a worker has told last.
#[derive(Default)]
struct Heard {
    control: Option<ControlState>,
    term: Option<Option<Term>>,
    version: Option<MapVersion>,
}

impl Heard {
    /// Takes what there is to hear until something is so.
    fn until(&mut self, worker: &EtcdWorker, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what} was not told");
            match worker.take() {
                Some(MasterNews::Control(control)) => self.control = Some(*control),
                Some(MasterNews::Controller(term)) => self.term = Some(term),
                Some(MasterNews::Map(map)) => self.version = Some(map.version()),
                Some(MasterNews::Answered(number, answer)) => panic!("{number}: {answer:?}"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn register(master: &mut EtcdMaster, server: u64) {
    let native = Some(Address::new("127.0.0.1:7400").unwrap());
    let command = MasterCommand::RegisterServer {
        cluster: ClusterId::ZERO,
        directory: DirectoryId(server),
        addresses: ServerAddresses { native, resp: None, http: None },
        shards_wanted: 1,
    };
    assert!(matches!(master.execute(command), Ok(MasterAnswer::Server { .. })));
}

fn follower(server: u32, is_replicated: bool) -> ServedServer {
    ServedServer { server: ServerId::new(server), known: MapVersion::ZERO, is_replicated }
}

#[test]
fn a_worker_tells_configurations_and_who_is_the_controller() {
    let etcd = Arc::new(EtcdServer::start());
    let noted: Vec<Noted> = (0..3).map(|_| Noted::default()).collect();
    let mut masters: Vec<EtcdMaster> = (1..)
        .zip(&noted)
        .map(|(server, noted)| open(&etcd, "/timestone/worker", server, noted, (1, 3)))
        .collect();
    for (server, master) in (1..).zip(&mut masters) {
        register(master, server);
    }
    let mut own = masters.pop().unwrap();
    let mut workers = masters.into_iter().zip(1..).map(|(master, server)| {
        EtcdWorker::begin(master, follower(server, true)).expect("a thread")
    });
    let (one, mut heard) = (workers.next().unwrap(), Heard::default());
    heard.until(&one, "a term", |heard| heard.term.flatten().is_some());
    let (two, mut heard_two) = (workers.next().unwrap(), Heard::default());
    heard_two.until(&two, "another controller", |heard| heard.term == Some(None));
    let term = heard.term.flatten().unwrap();
    let (shard, epoch) = (ShardId::ZERO, Epoch::new(2));
    let before = MasterCommand::FetchControl;
    let MasterAnswer::Control(before) = own.execute(before).unwrap() else { panic!() };
    assert_ne!(before.normal[0].epoch, epoch);
    own.execute(MasterCommand::ConfirmShard { term, shard, epoch }).unwrap();
    for (worker, heard) in [(&one, &mut heard), (&two, &mut heard_two)] {
        heard.until(worker, "a confirmation, which changes no map", |heard| {
            heard.control.as_ref().is_some_and(|control| control.normal[0].epoch == epoch)
        });
        assert_eq!(heard.version, Some(before.map.version()));
    }
    // Whoever holds the lease is gone: the other one follows in the next term.
    drop(one);
    heard_two.until(&two, "the next term", |heard| heard.term == Some(Some(term.next())));
}

#[test]
fn a_worker_of_single_copies_does_not_campaign() {
    let etcd = Arc::new(EtcdServer::start());
    let mut master = open(&etcd, "/timestone/single", 1, &Noted::default(), (1, 1));
    register(&mut master, 1);
    let mut other = open(&etcd, "/timestone/single", 2, &Noted::default(), (1, 1));
    let worker = EtcdWorker::begin(master, follower(1, false)).expect("a thread");
    let mut heard = Heard::default();
    for server in 2..5 {
        let known = heard.version;
        register(&mut other, server);
        heard.until(&worker, "a newer map", |heard| heard.version > known);
    }
    assert!(heard.control.is_none() && heard.term.is_none());
    let MasterAnswer::Control(control) = other.execute(MasterCommand::FetchControl).unwrap() else {
        panic!()
    };
    assert_eq!(control.term, Term::ZERO);
}
